"""Traces of Langfuse as its API and its exports give them, each with its observations and scores.

A trace is said as the runs that LangSmith would have recorded, and read as those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recreate.api.shapes import JsonDict, JsonMap
from recreate.plugins.traces.format import Foreign, list_of, object_of, parsed
from recreate.plugins.traces.langsmith import LangSmith

_KINDS = {"GENERATION": "llm", "TOOL": "tool"}


class Langfuse:
    """One record, one trace."""

    def reads(self, value: Any) -> bool:
        value = object_of(value)
        return "id" in value and isinstance(value.get("observations"), list)

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Foreign]:
        for trace in values:
            seen = [o for o in map(object_of, trace["observations"]) if o]
            root = {**_run(trace, str(trace["id"])), "feedback_stats": _scores(trace)}
            runs = [root, *(_run(o, str(trace["id"])) for o in seen)]
            yield from LangSmith().read(runs, str(trace["id"]), source)


def _run(about: JsonMap, trace: str) -> JsonDict:
    """Say an observation, or the trace itself, as a run."""
    used = object_of(about.get("usageDetails") or about.get("usage"))
    error = about.get("statusMessage") if about.get("level") == "ERROR" else None
    kind = _KINDS.get(str(about.get("type")), "chain")
    outputs = _fields_of(about.get("output"))
    if kind == "llm" and "messages" in outputs:
        outputs = {"choices": [{"message": m} for m in outputs["messages"]]}
    return {
        "id": about.get("id"),
        "trace_id": trace,
        "parent_run_id": None if "observations" in about else trace,
        "run_type": kind,
        "name": about.get("name"),
        "start_time": about.get("startTime") or about.get("timestamp"),
        "inputs": _fields_of(about.get("input")),
        "outputs": outputs,
        "error": error,
        "prompt_tokens": used.get("input"),
        "completion_tokens": used.get("output"),
        "total_cost": about.get("calculatedTotalCost") or about.get("totalCost"),
        "extra": {"metadata": {"ls_model_name": about.get("model")}},
    }


def _fields_of(value: Any) -> JsonDict:
    """Say an input or output as a run has it: messages where they are some."""
    value = parsed(value)
    if isinstance(value, list) and all("role" in object_of(m) for m in value):
        return {"messages": value}
    if isinstance(value, Mapping):
        return {"messages": [value]} if "role" in value else dict(value)
    return {} if value is None else {"text": value}


def _scores(trace: JsonMap) -> JsonDict:
    found = {}
    for score in map(object_of, list_of(trace.get("scores"))):
        value = score.get("value")
        value = score.get("stringValue") if value is None else value
        found[str(score.get("name"))] = {"avg": value, "n": 1}
    return found

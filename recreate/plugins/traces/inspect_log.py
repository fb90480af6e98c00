"""inspect_ai's logs: `.eval` (a zip of samples) and `.json` (one document).

Of a sample `events` and `attachments` are left: they tell the messages once more, as they were sent
each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recreate.api.shapes import JsonMap
from recreate.api.types import Grade, Step, Usage
from recreate.plugins.traces.format import (
    Foreign,
    amount,
    count,
    grade,
    list_of,
    object_of,
    without,
)
from recreate.plugins.traces.messages import plain, read_message, steps_of

LIMITS = {
    "token": "tokens",
    "message": "steps",
    "turn": "steps",
    "time": "seconds",
    "working": "seconds",
    "context": "context",
    "cost": "usd",
}
_ATTACHED = "attachment://"
_READ = (
    "id",
    "messages",
    "scores",
    "events",
    "events_data",
    "attachments",
    "model_usage",
    "error",
    "limit",
    "epoch",
    "input",
    "output",
    "total_time",
)


class InspectLog:
    """A document holds all samples; of a zip each sample comes with the log's header as {"inspect",
    "sample"}."""

    def reads(self, value: Any) -> bool:
        value = object_of(value)
        return {"inspect", "sample"} <= value.keys() or (
            isinstance(value.get("samples"), list) and {"eval", "version"} <= value.keys()
        )

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Foreign]:
        for raw in values:
            if "sample" in raw:
                yield _sample(
                    object_of(raw["sample"]), object_of(object_of(raw["inspect"]).get("eval"))
                )
            else:
                for sample in raw["samples"]:
                    yield _sample(object_of(sample), object_of(raw["eval"]))


def _sample(sample: JsonMap, about: JsonMap) -> Foreign:
    attached = object_of(sample.get("attachments"))
    system, prompt, steps = steps_of(
        [read_message(_restore_attachments(m, attached)) for m in list_of(sample.get("messages"))]
    )
    asked = sample.get("input")
    output = object_of(sample.get("output"))
    limit = object_of(sample.get("limit"))
    error = object_of(sample.get("error"))
    used = [object_of(u) for u in object_of(sample.get("model_usage")).values()]
    usage = Usage(
        calls=len(steps),
        tokens_in=sum(count(u.get("input_tokens")) for u in used),
        tokens_out=sum(count(u.get("output_tokens")) for u in used),
        usd=sum(amount(u.get("total_cost")) for u in used),
        seconds=amount(sample.get("total_time")),
    )
    steps = tuple(
        s.model_copy(update={"status": 1}) if s.status is None and _failed(s) else s for s in steps
    )
    name = str(sample.get("id", ""))
    return Foreign(
        task=f"{about.get('task', '')}/{name}",
        names=(name,),
        prompt=plain(_restore_attachments(asked, attached)) if isinstance(asked, str) else prompt,
        system=system,
        steps=steps,
        ending="error" if error else "limit" if limit else "submitted",
        limit=LIMITS.get(str(limit.get("type")), str(limit.get("type", ""))) if limit else "",
        answer=str(output.get("completion") or steps[-1].reply),
        model=str(about.get("model") or ""),
        usage=usage,
        repeat=max(0, count(sample.get("epoch")) - 1),
        fault=str(error.get("message") or "") if error else "",
        grade=_grade(sample),
        rest={
            **without(sample, *_READ),
            "eval": {k: about[k] for k in ("eval_id", "run_id", "task_id") if k in about},
        },
    )


def _grade(sample: JsonMap) -> Grade | None:
    """By the first scorer whose value is one number in 0..1; what all scorers said is the
    evidence."""
    scores = {str(name): object_of(s) for name, s in object_of(sample.get("scores")).items()}
    texts = []
    for name, score in scores.items():
        texts.append(
            f"{name}: {score.get('value')}"
            + (f"\n{score['explanation']}" if score.get("explanation") else "")
        )
    graded = (grade(s.get("value"), "\n".join(texts)) for s in scores.values())
    return next((g for g in graded if g is not None), None)


def _restore_attachments(value: Any, attached: JsonMap) -> Any:
    """A value with its attachments put back: long texts stand beside the messages."""
    if not attached:
        return value
    if isinstance(value, str):
        return (
            attached.get(value.removeprefix(_ATTACHED), value)
            if value.startswith(_ATTACHED)
            else value
        )
    if isinstance(value, Mapping):
        return {k: _restore_attachments(v, attached) for k, v in value.items()}
    return [_restore_attachments(v, attached) for v in value] if isinstance(value, list) else value


def _failed(step: Step) -> bool:
    """Whether a tool's answer says that the tool failed."""
    return any(object_of(a).get("error") for a in list_of(step.foreign.get("answers")))

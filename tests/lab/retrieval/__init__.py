"""A labelled retrieval set made from real traces: what is remembered, what is asked, and what
answers it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recreate.api.types import Experience

HERE = Path(__file__).parent
KINDS = ("lexical", "paraphrase", "situation")


class Query(NamedTuple):
    """One question. relevant: ids of documents of one grain (`ID` of an experience, `ID/N` of its
    N-th step).

    by      `rule`: the labels follow from `rule`; `read`: a person's or model's reading chose the
            tasks in `rule`
    rule    tasks: attempts at these tasks; else patterns that all must be found in a field of the
            document
    """

    id: str
    kind: str
    grain: str
    text: str
    by: str
    rule: Mapping[str, Any]
    relevant: Sequence[str]


def experiences() -> list[Experience]:
    lines = (HERE / "experiences.jsonl").read_text("utf-8").splitlines()
    return [Experience.model_validate_json(line) for line in lines]


def queries() -> list[Query]:
    return [
        Query(**json.loads(line))
        for line in (HERE / "queries.jsonl").read_text("utf-8").splitlines()
    ]


def relevant(grain: str, rule: Mapping[str, Any], attempted: Sequence[Experience]) -> list[str]:
    """What a rule labels, in the order of the file."""
    found = []
    for e in attempted:
        if "tasks" in rule and e.task.rpartition(":")[2] not in rule["tasks"]:
            continue
        of_whole = {"prompt": e.prompt, "evidence": e.grade.evidence}
        if not _holds(rule, of_whole):
            continue
        if grain == "experience":
            found.append(e.id)
        else:
            for n, step in enumerate(e.trace.steps):
                if _holds(rule, {"action": step.action, "output": step.output}):
                    found.append(f"{e.id}/{n}")
    return found


def _holds(rule: Mapping[str, Any], fields: Mapping[str, str]) -> bool:
    return all(
        re.search(rule[name], text, re.DOTALL) for name, text in fields.items() if name in rule
    )

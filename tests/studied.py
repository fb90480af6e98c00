"""Whole builds on the toy domain with an optimizer that acts by rule, and what they leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold
from recreate.api.paths import shipped
from recreate.api.types import Study
from recreate.builder.loop import BuildResult, build
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import Parts, open_session
from tests.investigator import Action, Investigator
from tests.toy import LESSON, script

Acts = Generator[Action, str, None]
SEED = scaffolds.load(shipped("scaffolds") / "seed")
DONE = {"summary": "The mark was missing.", "cause": "knowledge"}
NOTHING = {"summary": "Chance.", "cause": "none"}
ABOUT = {"reason": "The grader wants a mark.", "steps": [0]}


class Tried:
    """What a build left: the result, its run, its studies by experience and the model that was
    asked."""

    def __init__(self, built: BuildResult, run: Run, model: Investigator) -> None:
        self.built, self.run, self.model = built, run, model
        files = sorted((run.folder / "studies").glob("*/study.json"))
        self.all = [Study.model_validate_json(f.read_text()) for f in files]
        self.studies = [s for s in self.all if s.kind == "study"]

    def said(self) -> str:
        """All that tools answered."""
        lines = []
        for file in sorted((self.run.folder / "studies").glob("*/steps.jsonl")):
            lines += [json.loads(line).get("output", "") for line in file.read_text().splitlines()]
        return "\n".join(lines)


Try = Callable[..., Tried]


def trying(workspace: Path) -> Try:
    """Build on the toy domain with an optimizer that acts by rule; train tasks are studied one by
    one."""

    def go(study: Any, distil: Any = None, seed: Scaffold = SEED, **flags: Any) -> Tried:
        model_flags = {k: flags.pop(k) for k in ("native", "before") if k in flags}
        model = Investigator(flags.pop("rows", script()), study, distil, **model_flags)
        values = {
            "domain": "tests.toy:Toy",
            "model": "scripted:" + str(workspace / "none.jsonl"),
            "train": 2,
        }
        (workspace / "none.jsonl").write_text('{"text": ""}\n')
        values |= {
            "optimizer": "recreate",
            "gate.keep": "each",
            "rounds": 1,
            "models.retries": 0,
            "memory.embedder": "hashed",
            **flags,
        }
        folder = workspace / "runs" / "a"
        resume = (folder / "settings.toml").exists()
        parts = Parts(model=model, optimizer_model=model)
        session = open_session(
            settings.load(workspace, values, {}), workspace, folder, resume=resume, parts=parts
        )
        try:
            return Tried(build(session, seed), Run(folder), model)
        finally:
            session.close()

    return go


def lesson(text: str = LESSON, title: str = "How answers end", **more: Any) -> Action:
    return "lesson", {"title": title, "text": text, **ABOUT, **more}


def finds_the_mark(first: str) -> Acts:
    yield "index", {}
    yield "steps", {"first": 0, "last": 1}
    yield "evidence", {}
    yield lesson()
    yield "finish", DONE


def takes_all(first: str) -> Acts:
    yield "finish", {"summary": "All of it."}
    yield "finish", {"summary": "All of it."}

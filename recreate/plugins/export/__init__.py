"""A scaffold taken along: a folder that another tool runs without recreate.

texts.py       skill, agents-md, claude-md: what a tool with a loop of its own reads
programs.py    mini-swe-agent, langgraph, inspect: an agent that takes the very turns that ours
               takes
turns.py       those turns, apart from who holds the model and the shell; it travels with each
               program
source.py      our own source as one module without recreate, so that what travels is what runs here
for_*.py       what fits the turns into a tool; it travels too
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from recreate.agents.lint import refuse
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.paths import short
from recreate.api.shapes import JsonDict
from recreate.api.types import Record
from recreate.storage.files import disk

TARGETS: Mapping[str, str] = {
    "skill": "a folder of Agent Skills: SKILL.md, scripts/, references/",
    "agents-md": "AGENTS.md, and the tools beside it",
    "claude-md": "CLAUDE.md, and the tools beside it",
    "mini-swe-agent": "mini.yaml, and the agent class that it names",
    "langgraph": "graph.py, a graph that any chat model plugs into",
    "inspect": "task.py, a solver and a task",
}
"""What a scaffold can be exported to -> what that is."""


class Exported(Record):
    """What was written. differences: in what the agent there is not the one here, each a
    sentence."""

    target: str
    path: str
    files: tuple[str, ...]
    differences: tuple[str, ...]

    def row(self) -> JsonDict:
        """The object that `--json` prints."""
        return self.model_dump(mode="json", exclude={"schema_"})


def export(scaffold: Scaffold, target: str, out: Path) -> Exported:
    """Write `scaffold` for a target into a new folder. Raises BadInput: an unknown target, a folder
    that exists, a scaffold that `scaffold check` finds fault with, or that the target cannot
    express (`cannot-export`).
    """
    if target not in TARGETS:
        raise BadInput(
            f"there is no target {target!r}",
            fix=f"--to one of: {', '.join(TARGETS)}",
            code="no-export-target",
        )
    if os.path.lexists(out):
        raise BadInput(
            f"{short(out)} exists, and an export replaces nothing",
            fix=f"name a new folder: --out {short(_free(out))}",
            code="exists",
        )
    if scaffold.agent.foreign:
        raise BadInput(
            f"{scaffold.name} is a program of somebody else's (action {scaffold.agent.action!r}),"
            " which runs without recreate as it is",
            fix="take its folder: the texts that were improved lie there",
            code="cannot-export",
        )
    refuse(scaffold)
    files, differences = _render_target(scaffold, target, out)
    with disk(out, fix="free space or check permissions, then again"):
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        try:
            for name, text in files.items():
                at = beside / name
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_text(text, "utf-8", newline="")
                at.chmod(0o755 if text.startswith("#!") else 0o644)
            beside.chmod(0o755)
            beside.rename(out)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return Exported(
        target=target, path=str(out), files=tuple(sorted(files)), differences=tuple(differences)
    )


def _render_target(scaffold: Scaffold, target: str, out: Path) -> tuple[dict[str, str], list[str]]:
    """({path: text}, differences)."""
    from recreate.plugins.export import programs, texts

    if target == "skill":
        return texts.skill(scaffold, out)
    if target in ("agents-md", "claude-md"):
        return texts.page(scaffold, "AGENTS.md" if target == "agents-md" else "CLAUDE.md")
    program = {
        "mini-swe-agent": programs.mini_swe_agent,
        "langgraph": programs.langgraph,
        "inspect": programs.inspect,
    }[target]
    return program(scaffold)


def _free(out: Path) -> Path:
    """The first of OUT-2, OUT-3, ... that is not there."""
    number = 2
    while os.path.lexists(out.with_name(f"{out.name}-{number}")):
        number += 1
    return out.with_name(f"{out.name}-{number}")

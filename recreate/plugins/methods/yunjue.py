"""`yunjue`: tools that attempts lacked, written, started, brought together by what they are for,
and merged.

After Li et al., "Yunjue Agent Tech Report" (arXiv 2601.18226): tools are what an agent evolves by,
since a tool runs or does not, without anybody's judgement. A batch of tasks is worked in parallel,
each of which may add tools; an aggregator then groups those that do the same, a merger makes one
general tool of each group, and so the repository converges.

Inferred: the tool is written from a finished attempt, where there a manager asks for it while the
task is worked; whether it runs is found by starting it (`--help`) in a sandbox with the standard
library alone; tools that the agent has already take part in the grouping, and a group with one of
them is merged into it; what came of the batch is proposed when the agent does better with it on
train tasks, which asks more than the paper's signal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel, Field

from recreate.agents.scaffold import Scaffold, apply, tool_help
from recreate.agents.template import object_of
from recreate.agents.trajectory import clip
from recreate.api.shapes import JsonMap
from recreate.api.types import Edit, Evidence, Experience, Message, Record
from recreate.optimizers.context import sent_back
from recreate.optimizers.reflect import tool_path
from recreate.optimizers.search import Search
from recreate.plugins.methods.asking import Asking
from recreate.plugins.methods.tools import calls_tools, unfenced, with_notice

_CODE = {"type": "string", "maxLength": 12_000}
WRITE = object_of(
    lacked={"type": "string", "maxLength": 400},
    name={"type": "string", "maxLength": 40},
    code=_CODE,
)
GROUP = object_of(groups={"type": "array", "items": {"type": "array", "items": {"type": "string"}}})
MERGE = object_of(merged={"type": "string", "maxLength": 40}, code=_CODE)
SHOWN_CHARS = 6000
"""Of a tool's code in a question."""


class YunjueSettings(BaseModel, frozen=True, extra="forbid"):
    """attempts: how many of the batch a tool may be written for; mends: times a tool that does not
    start is sent back; tools: how many a proposal adds at most, those that most attempts lacked
    first."""

    attempts: int = Field(default=8, ge=1, le=1000)
    mends: int = Field(default=1, ge=0, le=5)
    tools: int = Field(default=4, ge=1, le=50)


class WrittenTool(Record):
    """A program of the agent's, there already or written for it, and the attempts that lacked
    it."""

    path: str
    code: str
    lacked: tuple[Evidence, ...] = ()

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).stem

    @property
    def purpose(self) -> str:
        return " ".join(tool_help(self.path, self.code).split())


class Yunjue(Asking):
    """The optimizer `yunjue`; `[optimizer_settings]`: see YunjueSettings."""

    Config = YunjueSettings
    settings: YunjueSettings

    @staticmethod
    def takes(settings: YunjueSettings, batch: int) -> tuple[int, int]:
        written = min(settings.attempts, batch)
        return 2 * written * (1 + settings.mends) + 1, batch

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """The edits that add the merged tools; [] when none starts, or the agent did not do better
        with them."""
        if not calls_tools(scaffold):
            self.context.note(
                f"an agent with action {scaffold.agent.action} calls no tools: there is nothing to"
                " grow"
            )
            return []
        search = Search(self.context, scaffold, experiences)
        if not search.evidence:
            return []
        mine = [WrittenTool(path=path, code=scaffold.files[path]) for path in growing(scaffold)]
        taken = set(scaffold.files)
        written: list[WrittenTool] = []
        for experience in experiences[: self.settings.attempts]:
            if (
                experience.trace.steps
                and (tool := self.write(search, experience, taken)) is not None
            ):
                written.append(tool)
                taken.add(tool.path)
        merged: list[WrittenTool] = []
        for group in self.group(mine, written):
            if (tool := self.merge(search, group, taken)) is not None:
                merged.append(tool)
                taken.add(tool.path)
        merged = sorted(merged, key=lambda tool: -len(tool.lacked))[: self.settings.tools]
        self.context.note(
            f"tools: {len(written)} written for attempts that lacked one, {len(merged)} after"
            " merging"
        )
        edits = self.edits(search, merged)
        faults = self.faults(search, merged) if edits else []
        for fault in faults:
            self.context.note(f"the tools are not used: {fault}")
        made = search.measure(edits) if edits and not faults else None
        if made is None:
            return []
        self.context.note(f"with them: {made.mean:.3f} on the batch's train tasks")
        return made.edits if search.gain(made) > 0 else []

    def write(self, search: Search, experience: Experience, taken: Set[str]) -> WrittenTool | None:
        """The tool that an attempt lacked, started in a sandbox; None when it lacked none, or it
        does not start. It is written in sight of the agent's tools, and of none that another
        attempt is given."""
        agent = search.scaffold
        messages = self.fill(
            "yunjue_write",
            attempt=self.tell(experience),
            tools=[(name, clip(agent.help(name), 400)) for name in agent.tools],
            rejected=self.context.dropped(),
        )
        cited = Evidence(experience=experience.id, step=len(experience.trace.steps) - 1)

        def of(found: JsonMap) -> WrittenTool | None:
            code = unfenced(str(found.get("code") or "")).strip("\n")
            path = free(tool_path(str(found.get("name") or ""), code), taken)
            return WrittenTool(path=path, code=code + "\n", lacked=(cited,)) if code else None

        return self.working(search, messages, WRITE, of)

    def group(
        self, mine: Sequence[WrittenTool], written: Sequence[WrittenTool]
    ) -> list[list[WrittenTool]]:
        """Tools that do the same, together: each that was written is in one group, with one of the
        agent's at most."""
        if not written:
            return []
        left = {tool.name: tool for tool in (*mine, *written)}
        groups: list[list[WrittenTool]] = []
        if len(left) > 1:
            tools = [(tool.name, clip(tool.purpose, 400)) for tool in left.values()]
            reply = self.ask(self.fill("yunjue_group", tools=tools), GROUP)
            found = self.context.read(reply).get("groups")
            for names in found if isinstance(found, list) else []:
                known = [n for n in dict.fromkeys(names) if n in left] if is_names(names) else []
                group = [left.pop(name) for name in known]
                old = [tool for tool in group if not tool.lacked]
                groups.append([*old[:1], *(tool for tool in group if tool.lacked)])
        groups += [[tool] for tool in left.values()]
        return [group for group in groups if any(tool.lacked for tool in group)]

    def merge(
        self, search: Search, group: Sequence[WrittenTool], taken: Set[str]
    ) -> WrittenTool | None:
        """One general tool of a group, in the place of its first; where the merged one does not
        start, the first that was written, or none beside a tool that the agent has."""
        first = group[0]
        lacked = tuple(cited for tool in group for cited in tool.lacked)
        if len(group) == 1:
            return first
        tools = [(tool.name, clip(tool.code, SHOWN_CHARS)) for tool in group]
        others = taken - {tool.path for tool in group}

        def of(found: JsonMap) -> WrittenTool | None:
            code = unfenced(str(found.get("code") or "")).strip("\n")
            path = (
                first.path
                if not first.lacked
                else free(tool_path(str(found.get("merged") or ""), code), others)
            )
            return WrittenTool(path=path, code=code + "\n", lacked=lacked) if code else None

        made = self.working(search, self.fill("yunjue_merge", tools=tools), MERGE, of)
        return made or (first.model_copy(update={"lacked": lacked}) if first.lacked else None)

    def working(
        self,
        search: Search,
        messages: Sequence[Message],
        schema: JsonMap,
        of: Callable[[JsonMap], WrittenTool | None],
    ) -> WrittenTool | None:
        """The tool of a reply, sent back while it does not start; None when it stays so, or there
        is none."""
        for left in range(self.settings.mends, -1, -1):
            found = self.context.read(self.ask(messages, schema))
            tool = of(found)
            faults = self.faults(search, [tool]) if tool else []
            if not faults:
                return tool
            if not left:
                self.context.note(f"a tool is not used: {'; '.join(faults)}")
            messages = sent_back(messages, json.dumps(found), faults)
        return None

    def faults(self, search: Search, tools: Sequence[WrittenTool]) -> list[str]:
        """Why these cannot be the agent's: they break it, name a task, or do not start in a
        sandbox."""
        edits = self.edits(search, tools)
        if not edits:
            return ["it is what the agent has already"]
        return self.context.validate(search.scaffold, edits) or self.context.smoke_test(
            apply(search.scaffold, edits)
        )

    def edits(self, search: Search, tools: Sequence[WrittenTool]) -> list[Edit]:
        """Those that put the tools into the agent, each citing the attempts that lacked it."""
        files = with_notice(search.scaffold, {tool.path: tool.code for tool in tools})
        cited = {tool.path: tool.lacked for tool in tools}
        return [
            edit.model_copy(update={"evidence": cited.get(edit.path, search.evidence)})
            for edit in search.edits(files, "a tool that attempts of the batch lacked")
        ]


def growing(scaffold: Scaffold) -> Iterator[str]:
    """The agent's own Python programs that may be merged with new ones: not those that agent.toml
    gives a part."""
    for name, path in scaffold.tools.items():
        if (
            path.endswith(".py")
            and name not in scaffold.agent.uses
            and not scaffold.agent.protects(path)
        ):
            yield path


def free(path: str, taken: Set[str]) -> str:
    """The path, with a number where it is taken."""
    stem = path.removesuffix(".py")
    number = 1
    while path in taken:
        number += 1
        path = f"{stem}_{number}.py"
    return path


def is_names(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)

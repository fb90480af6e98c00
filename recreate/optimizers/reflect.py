"""`reflect`: contrast failures with successes, one structured call per cluster, then one call that
distils.

Made so that a small model can do it: the reply is held to a JSON schema where the endpoint can, a
place is named by file and line number instead of by copied text, and an idea that cannot be used is
sent back once with what is wrong with it. The optimizer that investigates with tools is another
one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recreate.agents.scaffold import Scaffold, lesson_file
from recreate.agents.template import object_of, read_object
from recreate.agents.trajectory import clip, clusters, tell
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Edit, Evidence, Experience, digest
from recreate.optimizers.context import OptimizerContext, prompt

NEW = {"new lesson": "memory/a-new-lesson.md", "new tool": "tools/a_new_tool.py"}
"""What a proposal may add, and a path that stands for all such files."""
NO_PLACE = "an edit without a file that exists, a line in it, or a text"
MAX_CLUSTERS = 3
MOST_CALLS = 2 * MAX_CLUSTERS + 1
"""Of one proposal: a study of each cluster, once more for what was sent back, and one call that
distils."""
MAX_EDITS = 2
SHOWN = 2
"""Failures told per cluster; with more, a small context overflows and a small model loses the
thread."""


@dataclass(frozen=True)
class Idea:
    """An edit as a model names it: by file and line."""

    file: str
    line: int
    title: str
    text: str
    reason: str
    evidence: tuple[Evidence, ...]

    @property
    def where(self) -> str:
        if self.file in NEW:
            return f"{self.file} {self.title!r}"
        return f"{self.file}, " + {0: "added at the end", -1: "the whole file"}.get(
            self.line, f"line {self.line}"
        )


class Reflect:
    """The optimizer for small models (and a cheap one for large)."""

    def __init__(self, context: OptimizerContext, thread: str = "") -> None:
        self.context = context
        self.thread = thread
        self.step = 0

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """Edits that the batch supports; [] when nothing failed or nothing usable was proposed."""
        if not places(scaffold):
            self.context.note("agent.toml protects every file: there is nothing to propose")
            return []
        without = self.context.without
        groups = clusters(experiences, MAX_CLUSTERS, without)
        ideas: list[Idea] = []
        for name, failures in groups:
            ideas += self.study(scaffold, name, failures, experiences)
        ideas = same_together(ideas)
        if len(ideas) > 1 and "distilling" not in without:
            ideas = self.distil(scaffold, ideas, {e.id: e for e in experiences})
        return [edit for edit in (to_edit(scaffold, idea) for idea in ideas) if edit is not None]

    def study(
        self,
        scaffold: Scaffold,
        cluster: str,
        failures: Sequence[Experience],
        batch: Sequence[Experience],
    ) -> list[Idea]:
        """Return one structured call on one cluster; when what came back cannot be used, one more
        that asks for less."""
        shown = list(failures[:SHOWN])
        contrast = self.contrast(shown[0], batch)
        cited = [*shown, *contrast]
        messages = prompt(
            "reflect",
            files=numbered(scaffold),
            tools=", ".join(scaffold.tools),
            rejected=self.context.dropped(),
            cluster=cluster,
            failures=[tell(e, without=self.context.without) for e in shown],
            successes=[tell(e, 1400, self.context.without) for e in contrast],
            most=MAX_EDITS,
        )
        ids = [e.id for e in cited]
        text = self.ask(messages, study_schema(scaffold, ids))
        ideas, wrong = self.read(scaffold, text, cited)
        if ideas or not wrong:
            return ideas
        self.context.note(f"sent back ({cluster}): {wrong}")
        messages = [
            *messages,
            {"role": "assistant", "content": text},
            *prompt("again", wrong=wrong),
        ]
        ideas, wrong = self.read(scaffold, self.ask(messages, advice_schema(ids)), cited)
        if wrong:
            self.context.note(f"not used ({cluster}): {wrong}")
        return ideas

    def read(
        self, scaffold: Scaffold, text: str, cited: Sequence[Experience]
    ) -> tuple[list[Idea], str]:
        """Return the usable ideas of a reply in either form, and what is wrong with the others."""
        found = read_object(text)
        if found is None:
            return [], "that was not one JSON object"
        if "advice" in found:
            lesson = {
                "file": "new lesson",
                "title": "",
                "text": found["advice"],
                "reason": found.get("why", ""),
            }
            found = {
                "edits": [
                    {**lesson, "experience": found.get("experience"), "step": found.get("step")}
                ]
            }
        return self.usable(scaffold, found, cited)

    def usable(
        self, scaffold: Scaffold, found: JsonMap, cited: Sequence[Experience]
    ) -> tuple[list[Idea], str]:
        """Return the ideas of a reply that hold, and what is wrong with the others."""
        ideas = []
        faults = []
        proposed = found.get("edits")
        for raw in proposed if isinstance(proposed, list) else []:
            idea = read_idea(raw, cited)
            if isinstance(idea, str):
                faults.append(idea)
                continue
            edit = to_edit(scaffold, idea)
            if edit is None:
                faults.append(NO_PLACE)
                continue
            problems = self.context.validate(scaffold, [edit])
            if problems:
                faults += problems
            else:
                ideas.append(idea)
        return ideas[:MAX_EDITS], "; ".join(faults)

    def distil(
        self, scaffold: Scaffold, ideas: Sequence[Idea], experiences: Mapping[str, Experience]
    ) -> list[Idea]:
        """Return one update of all ideas. An idea that is neither used nor rejected stays as it
        was: nothing gets lost."""
        rows = [
            {
                "where": idea.where,
                "text": idea.text,
                "reason": idea.reason,
                "evidence": " | ".join(
                    clip(tell(cited, 900, self.context.without), 900)
                    for e in idea.evidence[:2]
                    # a success that a study was shown beside its failures may be of an earlier run
                    if (cited := experiences.get(e.experience) or self.context.get(e.experience))
                    is not None
                ),
            }
            for idea in ideas
        ]
        messages = prompt(
            "merge", files=numbered(scaffold), rejected=self.context.dropped(), ideas=rows
        )
        found = read_object(self.ask(messages, distil_schema(scaffold, len(ideas))))
        if found is None:
            self.context.note(
                "the distilled update was not one JSON object; all ideas are kept as they were"
            )
            return list(ideas)
        return merge(scaffold, ideas, found, self.context)

    def contrast(self, failure: Experience, batch: Sequence[Experience]) -> list[Experience]:
        """Return the nearest success: in memory by meaning, else in this batch."""
        for hit in self.context.recall(
            failure.prompt[:1000], 3, {"domain": failure.domain, "passed": True}
        ):
            found = self.context.get(hit.experience or hit.id)
            if (
                found is not None
                and found.grade.passed
                and found.split == "train"
                and not found.claims
            ):
                return [found]
        return [e for e in batch if e.grade.passed and not e.claims][:1]

    def ask(self, messages: Any, schema: JsonMap) -> str:
        self.step += 1
        params: JsonDict = {"json_schema": schema, "temperature": 0.4, "max_tokens": 900}
        return self.context.ask(messages, step=self.step - 1, thread=self.thread, **params).text


def same_together(ideas: Sequence[Idea]) -> list[Idea]:
    """Ideas that say the same, as one with the evidence of all."""
    found: dict[tuple[str, int, str], Idea] = {}
    for idea in ideas:
        key = (idea.file, idea.line, " ".join(idea.text.split()))
        first = found.get(key)
        both = dict.fromkeys((first.evidence if first else ()) + idea.evidence)
        found[key] = replace(first or idea, evidence=tuple(both))
    return list(found.values())


def merge(
    scaffold: Scaffold, ideas: Sequence[Idea], found: JsonMap, context: OptimizerContext
) -> list[Idea]:
    """Return what a distilling reply makes of the ideas; pure but for what `validate` answers."""
    left = dict(enumerate(ideas, 1))
    out: list[Idea] = []
    rejected = found.get("rejected")
    for row in rejected if isinstance(rejected, list) else []:
        number = row.get("idea") if isinstance(row, dict) else None
        if isinstance(number, int) and number in left:
            idea = left.pop(number)
            context.note(f"rejected: {idea.where} {clip(idea.text, 100)!r}: {row.get('why', '')}")
    updates = found.get("update")
    for row in updates if isinstance(updates, list) else []:
        if not isinstance(row, dict):
            continue
        numbers = row.get("ideas")
        named = [n for n in numbers if isinstance(n, int)] if isinstance(numbers, list) else []
        used = [n for n in dict.fromkeys(named) if n in left]
        if not used:
            continue
        evidence = tuple(dict.fromkeys(e for n in used for e in left[n].evidence))
        place = read_place(row)
        joined = replace(place, evidence=evidence) if place else None
        edit = to_edit(scaffold, joined) if joined else None
        if joined is None or edit is None or context.validate(scaffold, [edit]):
            continue  # the ideas it was made of stay as they were
        for n in used:
            left.pop(n)
        out.append(joined)
    return [*out, *left.values()]


def read_place(raw: Any) -> Idea | None:
    """Return file, line, title, text and reason of a JSON object; None when they cannot be
    meant."""
    if not isinstance(raw, Mapping):
        return None
    file = raw.get("file")
    line = raw.get("line", 0)
    text = raw.get("text", "")
    if not isinstance(file, str) or not isinstance(line, int) or not isinstance(text, str):
        return None
    if not text.strip() and (line == 0 or file in NEW):
        return None
    title = str(raw.get("title") or "").strip() or " ".join(text.split()[:6])
    return Idea(
        file=file,
        line=line,
        title=title,
        text=text,
        reason=str(raw.get("reason") or ""),
        evidence=(),
    )


def read_idea(raw: Any, cited: Sequence[Experience]) -> Idea | str:
    """Return an edit of a study's reply with its evidence, or why it is none: what is cited must be
    there, to the step."""
    idea = read_place(raw)
    if idea is None:
        return NO_PLACE
    experience = next((e for e in cited if e.id == raw.get("experience")), None)
    if experience is None:
        return (
            f"{raw.get('experience')!r} is none of the attempts shown:"
            f" {', '.join(e.id for e in cited)}"
        )
    step = raw.get("step")
    last = len(experience.trace.steps) - 1
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step <= last:
        return (
            f"{experience.id} has steps 0 to {last}, not {step!r}: cite the step that shows the"
            " need"
        )
    return replace(idea, evidence=(Evidence(experience=experience.id, step=step),))


def to_edit(scaffold: Scaffold, idea: Idea) -> Edit | None:
    """Return the edit an idea means, or None when there is no such place."""
    about: JsonDict = {
        "reason": idea.reason,
        "origin": "experience",
        "evidence": idea.evidence,
    }
    if idea.file == "new lesson":
        path, text = lesson_file(
            idea.title, idea.text, sorted({e.experience for e in idea.evidence})
        )
        return Edit(path=path, new=text, **about)
    if idea.file == "new tool":
        path = tool_path(idea.title, idea.text)
        return (
            None
            if path in scaffold.files
            else Edit(path=path, new=idea.text.strip("\n") + "\n", **about)
        )
    text = scaffold.files.get(idea.file, "")
    if idea.file not in scaffold.files:
        return None
    if idea.line == -1:
        return Edit(
            path=idea.file, old=text, new=idea.text and idea.text.rstrip("\n") + "\n", **about
        )
    if idea.line == 0:
        joint = "" if text.endswith("\n") or not text else "\n"
        return Edit(path=idea.file, new=joint + idea.text.rstrip("\n") + "\n", **about)
    lines = text.splitlines(keepends=True)
    if not 1 <= idea.line <= len(lines):
        return None
    first = idea.line - 1
    last = idea.line
    old = lines[first]
    while text.find(old) != text.rfind(old):
        first = max(0, first - 1)
        last = min(len(lines), last + 1)
        old = "".join(lines[first:last])
    end = "\n" if lines[idea.line - 1].endswith("\n") else ""
    new = [*lines[first : idea.line - 1], idea.text.rstrip("\n") + end if idea.text.strip() else ""]
    return Edit(path=idea.file, old=old, new="".join([*new, *lines[idea.line : last]]), **about)


def tool_path(title: str, code: str) -> str:
    """Return where a tool of that title stands."""
    slug = re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")[:40] or "tool_" + digest(code, 6)
    return f"tools/{slug.removesuffix('_py')}.py"


def editable(scaffold: Scaffold) -> list[str]:
    """Return the files a proposal may change: prompts, tools and lessons, not what agent.toml
    protects, nor worked examples, which say what attempts did."""
    protects = scaffold.agent.protects
    return [
        p
        for p in sorted(scaffold.files)
        if p not in ("README.md", "agent.toml") and not (p.startswith("examples/") or protects(p))
    ]


def places(scaffold: Scaffold) -> list[str]:
    """Return what a proposal may name: the editable files, and what it may add; [] when agent.toml
    protects everything."""
    return editable(scaffold) + [
        name for name, path in NEW.items() if not scaffold.agent.protects(path)
    ]


def numbered(scaffold: Scaffold, most: int = 4000) -> list[tuple[str, str]]:
    """Return the editable prompts and lessons with line numbers; tools only by name, since they are
    long."""
    shown = []
    for path in editable(scaffold):
        if path.startswith("tools/"):
            continue
        lines = scaffold.files[path].splitlines()
        shown.append(
            (path, clip("\n".join(f"{n}: {line}" for n, line in enumerate(lines, 1)), most))
        )
    return shown


def _text(most: int) -> JsonDict:
    return {"type": "string", "maxLength": most}


def _one_of(names: Sequence[str]) -> JsonDict:
    return {"type": "string", "enum": list(dict.fromkeys(names))}


def _array(items: JsonMap, **more: int) -> JsonDict:
    return {"type": "array", "items": items, **more}


_STEP = {"type": "integer", "minimum": 0}


def _place(scaffold: Scaffold) -> JsonDict:
    return {
        "file": _one_of(places(scaffold)),
        "line": {"type": "integer", "minimum": -1},
        "title": _text(80),
        "text": _text(1500),
        "reason": _text(300),
    }


def study_schema(scaffold: Scaffold, ids: Sequence[str]) -> JsonDict:
    """Return what a study's reply must look like."""
    edit = object_of(**_place(scaffold), experience=_one_of(ids), step=_STEP)
    causes = _one_of(["knowledge", "strategy", "tool", "none"])
    return object_of(why=_text(600), cause=causes, edits=_array(edit, maxItems=MAX_EDITS))


def advice_schema(ids: Sequence[str]) -> JsonDict:
    """Return the second form: a reason and one sentence. A small model that may choose a file
    writes code into it."""
    return object_of(why=_text(200), advice=_text(240), experience=_one_of(ids), step=_STEP)


def distil_schema(scaffold: Scaffold, ideas: int) -> JsonDict:
    """Return what a distilling reply must look like."""
    number = {"type": "integer", "minimum": 1, "maximum": ideas}
    update = object_of(ideas=_array(number, minItems=1), **_place(scaffold))
    rejected = object_of(idea=number, why=_text(200))
    return object_of(
        update=_array(update, maxItems=ideas), rejected=_array(rejected, maxItems=ideas)
    )

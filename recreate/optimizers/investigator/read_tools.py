"""What an optimizer looks at: trajectories, the grader's words, submissions, memory, the scaffold,
its own past.

What was shown is remembered: an edit may only cite a step that was read. The grader's words, the
submission and the sandbox as it was left belong to an experience's last step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from recreate.agents.config import AgentConfig
from recreate.agents.template import filled
from recreate.agents.trajectory import clip, differ, index, tell_index, tell_reply
from recreate.api.errors import BadInput, Missing
from recreate.api.ports import Hit
from recreate.api.registry import find
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Evidence, Experience, Step, digest
from recreate.optimizers.context import PROMPTS, OptimizerContext
from recreate.optimizers.investigator.conversation import Tool, Wrong, number, one_of, text
from recreate.optimizers.investigator.draft import Draft, tell_edit

STEP_CHARS = 6_000
WINDOW_CHARS = 22_000
HIT_CHARS = 500
LONG = 200
"""Characters from which on lines that were told already are only named."""

_OF = text("the id of another experience; left out: the one studied")
PART = number("of what is too long for one answer: which part, from 1")


class Reader:
    """`subject` is the experience under study (None while distilling); `batch` are the ones it came
    with."""

    def __init__(
        self,
        context: OptimizerContext,
        draft: Draft,
        subject: Experience | None,
        batch: Sequence[Experience],
    ) -> None:
        self.context = context
        self.draft = draft
        self.subject = subject
        self.batch = {e.id: e for e in batch}
        self.read: set[Evidence] = set()
        self.told = AlreadyTold()

    def tools(self) -> list[Tool]:
        """Return the tools that are not switched off."""

        def look(name: str, help: str, run: Callable[..., str], /, **parameters: JsonMap) -> Tool:
            return Tool(name, "inspect", help, run, parameters)

        found = []
        if "trajectory" not in self.context.without:
            facts = (
                'facts that must agree, e.g. {"outcome": "failed", "error": "TypeError"}; names:'
                " outcome, ending, "
            )
            found += [
                look(
                    "index",
                    "What happened at which step: commands, files seen and edited, errors, tests.",
                    self.index,
                    experience=_OF,
                ),
                look(
                    "steps",
                    "A window of steps: what the agent was told, said and did, and what came of it."
                    " A long step has `[...]` in its middle there; asked for alone it is whole."
                    " Lines that another step has shown you are named there, not told again. Only"
                    " steps shown by this can be cited.",
                    self.steps,
                    first=number("the first step"),
                    last=number("the last step; left out: `first` alone"),
                    part=PART,
                    experience=_OF,
                ),
                look(
                    "search",
                    "Search all train experiences ever lived, of other tasks and earlier runs too:"
                    " does a cause recur, what helped elsewhere?",
                    self.search,
                    query=text("what to look for"),
                    by=one_of(
                        "meaning",
                        "words",
                        description="nearest in meaning (default), or holding all words",
                    ),
                    where={
                        "type": "object",
                        "description": facts + "error, grain (experience|step|lesson)",
                    },
                    k=number("how many; default 6"),
                ),
                look(
                    "contrast",
                    "The nearest attempt with the opposite outcome, and what sets the two apart.",
                    self.contrast,
                    experience=_OF,
                ),
            ]
        if "evidence" not in self.context.without:
            help = "The grader's own words on an attempt, whole."
            found.append(look("evidence", help, self.evidence, part=PART, experience=_OF))
        help = "What the agent handed in: for code, a diff."
        found.append(look("submission", help, self.submission, part=PART, experience=_OF))
        help = (
            "Your private copy of the agent's files: the list of them, or one file to the letter."
        )
        return [
            *found,
            look(
                "scaffold",
                help,
                self.scaffold,
                path=text("one file; left out: the list"),
                part=PART,
            ),
            look(
                "rejected",
                "Edits that were tried before and were not kept, and why.",
                self.rejected,
            ),
        ]

    def find(self, id: str = "") -> Experience:
        """Return an experience by id, the subject for ''. Raises Wrong."""
        if not id and self.subject is not None:
            return self.subject
        found = self.batch.get(id) or (self.context.get(id) if id else None)
        if found is None:
            near = [e for e in self.batch if id and e.startswith(id)]
            if len(near) == 1:
                return self.batch[near[0]]
            raise Wrong(
                f"there is no train experience {id!r}; in this batch are: {', '.join(self.batch)}"
            )
        return found

    def cited(self, steps: Sequence[Any], id: str = "") -> tuple[Evidence, ...]:
        """Steps as evidence. Raises Wrong for one that does not exist or was not read."""
        e = self.find(id)
        last = len(e.trace.steps) - 1
        if not steps and "trajectory" in self.context.without:
            steps = [last]
        if not steps:
            raise Wrong(
                f"an edit cites at least one step that shows the need: give `steps`, e.g. [{last}]"
            )
        found = []
        for step in steps:
            if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step <= last:
                raise Wrong(
                    f"{e.id} has steps 0 to {last}, not {step!r}: cite the one that shows the need"
                )
            evidence = Evidence(experience=e.id, step=step)
            if evidence not in self.read:
                how = (
                    "`steps`"
                    if "trajectory" not in self.context.without
                    else "`submission`, which ends it,"
                )
                raise Wrong(
                    f"step {step} of {e.id} was not read yet: look at it with {how} before"
                    " citing it"
                )
            found.append(evidence)
        return tuple(dict.fromkeys(found))

    def note_end(self, e: Experience) -> None:
        """Note that the end of an attempt was looked at."""
        if e.trace.steps:
            self.read.add(Evidence(experience=e.id, step=len(e.trace.steps) - 1))

    # -------------------------------------------------------------------------------------------
    # what tools do

    def index(self, experience: str = "") -> str:
        e = self.find(experience)
        return f"{outcome(e)}\ntask: {clip(e.prompt, 1500)}\n\n{tell_index(index(e.trace))}"

    def steps(
        self, first: int, last: int | None = None, part: int = 1, experience: str = ""
    ) -> str:
        e = self.find(experience)
        steps = e.trace.steps
        last = first if last is None else last
        if not steps or not 0 <= first < len(steps) or last < first:
            if not steps:
                raise Wrong(f"{e.id} has no steps: look at another one of {', '.join(self.batch)}")
            raise Wrong(
                f"{e.id} has steps 0 to {len(steps) - 1}: `first` and `last` name some of them"
            )
        if last == first:
            at = Evidence(experience=e.id, step=steps[first].step)
            whole = tell_whole(steps[first], sys.maxsize, partial(self.told.fold_repeats, at=at))
            answer = tell_part(whole, part, f"step {at.step}")
            self.told.keep(whole, at)
            self.read.add(at)
            return answer
        return self.window(e, first, last)

    def window(self, e: Experience, first: int, last: int) -> str:
        """Several steps, as many as one parts holds."""
        steps = e.trace.steps
        parts: list[str] = []
        room = WINDOW_CHARS
        for step in steps[first : last + 1]:
            at = Evidence(experience=e.id, step=step.step)
            whole = tell_whole(step, STEP_CHARS, partial(self.told.fold_repeats, at=at))
            if parts and len(whole) > room:
                parts.append(
                    f"[steps {step.step} to {min(last, len(steps) - 1)} were left out: ask for"
                    " fewer at once]"
                )
                break
            room -= len(whole)
            parts.append(whole)
            self.told.keep(whole, at)
            self.read.add(at)
        return "\n\n".join(parts)

    def search(
        self, query: str, by: str = "meaning", where: JsonMap | None = None, k: int = 6
    ) -> str:
        filters: JsonDict = {"domain": self.context.domain, **(where or {})}
        if "evidence" in self.context.without:
            filters["grain"] = "step"
        search = self.context.search if by == "words" else self.context.recall
        try:
            hits = search(query, max(1, min(k, 20)), filters)
        except Missing as e:
            raise Wrong(f"{e.message}; search by words instead") from None
        except BadInput as e:
            raise Wrong(f"{e.message}; {e.fix}") from None
        return "\n\n".join(tell_hit(hit) for hit in hits) or "nothing was found"

    def contrast(self, experience: str = "") -> str:
        e = self.find(experience)
        other = self.opposite(e)
        if other is None:
            wanted = "failed" if e.grade.passed else "passed"
            return f"no train attempt has {wanted} yet"
        answer = differ(e, other)
        return (
            f"{answer}\n\n`index` and `steps` with experience {other.id} show it; its task:"
            f" {clip(other.prompt, 400)}"
        )

    def opposite(self, e: Experience) -> Experience | None:
        """Return the nearest attempt with the other outcome: of the same task, else by meaning,
        else in the batch."""
        batch = [
            o for o in self.batch.values() if o.grade.passed != e.grade.passed and not o.claims
        ]
        for other in batch:
            if other.task == e.task:
                return other
        wanted = {"domain": e.domain, "passed": not e.grade.passed, "grain": "experience"}
        for hit in self.context.recall(e.prompt[:1000], 3, wanted):
            found = self.context.get(hit.experience or hit.id)
            if (
                found is not None
                and found.grade.passed != e.grade.passed
                and found.split == "train"
                and not found.claims
            ):
                return found
        return batch[0] if batch else None

    def evidence(self, part: int = 1, experience: str = "") -> str:
        e = self.find(experience)
        self.note_end(e)
        return tell_part(f"{outcome(e)}\n{e.grade.evidence}", part, "the evidence")

    def submission(self, part: int = 1, experience: str = "") -> str:
        e = self.find(experience)
        self.note_end(e)
        return tell_part(
            e.trace.answer.strip() or "nothing was handed in", part, "what was handed in"
        )

    def scaffold(self, path: str = "", part: int = 1) -> str:
        files = self.draft.current.files
        if path:
            if path not in files:
                raise Wrong(f"there is no file {path!r}; there are: {', '.join(sorted(files))}")
            return tell_part(files[path] or "(the file is empty)", part, path)
        return tell_files(self.draft)

    def rejected(self) -> str:
        answer = []
        for revision in list(self.context.rejected)[-8:]:
            why = revision.review or revision.verdict.reason or revision.verdict.verdict
            verdict = revision.verdict
            if verdict.diff is not None:
                why += f"; validation {verdict.before:.3f} -> {verdict.after:.3f}"
            answer.append(
                f"not kept: {why}\n" + "\n".join(clip(tell_edit(e), 1200) for e in revision.edits)
            )
        return "\n\n".join(answer) or "none was rejected so far"


def outcome(e: Experience) -> str:
    """Return how an attempt ended, in one line."""
    passed = "PASSED" if e.grade.passed else f"FAILED (score {e.grade.score:g})"
    ended = f"{e.trace.ending} {e.trace.limit}".strip()
    samples = (
        f", sample {e.trace.chosen} was handed in" if any(s.sample for s in e.trace.steps) else ""
    )
    return (
        f"experience {e.id}: {passed}, ended by {ended} after {len(e.trace.steps)} steps{samples};"
        f" task {short(e.task)} {e.canary}"
    ).rstrip()


class AlreadyTold:
    """Which lines were told, and by which step first: samples see the same functions again, in
    another order."""

    def __init__(self) -> None:
        self.texts: list[tuple[Evidence, list[str]]] = []
        self.first: dict[str, tuple[int, int]] = {}
        """A line, and where it was told first: the text's number, the line's."""

    def keep(self, text: str, at: Evidence) -> None:
        """Keep what was told of a step."""
        lines = text.split("\n")
        for place, line in enumerate(lines):
            self.first.setdefault(line, (len(self.texts), place))
        self.texts.append((at, lines))

    def fold_repeats(self, text: str, at: Evidence) -> str:
        """Return a text of the step `at`, with long runs of lines that another step was first to
        tell replaced by its name."""
        lines = text.split("\n")
        answer = []
        here = 0
        while here < len(lines):
            owner, count = self._run(lines, here, at)
            if not count:
                answer.append(lines[here])
                here += 1
                continue
            where = f"step {owner.step}" + (
                f" of {owner.experience}" if owner.experience != at.experience else ""
            )
            if count == len(lines):
                return f"[the same as in {where}]"
            head = clip(lines[here], 60)
            answer.append(f"[{head!r}, {count} line{'s' * (count > 1)} that {where} shows]")
            here += count
        return "\n".join(answer)

    def _run(self, lines: Sequence[str], here: int, at: Evidence) -> tuple[Evidence, int]:
        """Return (who told the lines from `here` on first, how many of them); 0 when that is too
        little to be worth it."""
        which, start = self.first.get(lines[here], (-1, 0))
        owner, told = self.texts[which] if which >= 0 else (at, [])
        count = chars = 0
        if owner != at:
            for ours, theirs in zip(lines[here:], told[start:], strict=False):
                if ours != theirs:
                    break
                count = count + 1
                chars = chars + len(ours) + 1
        return owner, count if chars >= LONG else 0


def tell_part(whole: str, part: int, name: str) -> str:
    """Return a text uncut; one that no answer holds is told in parts of WINDOW_CHARS. Raises Wrong
    for no such part."""
    count = max(1, -(-len(whole) // WINDOW_CHARS))
    if not 1 <= part <= count:
        there = f"parts 1 to {count}: ask for one of them" if count > 1 else "one part only"
        raise Wrong(f"{name} has {there}")
    if count == 1:
        return whole
    answer = whole[(part - 1) * WINDOW_CHARS : part * WINDOW_CHARS]
    return f"[part {part} of {count}]\n{answer}"


def tell_whole(step: Step, limit: int, once: Callable[[str], str] = str) -> str:
    """Return one step as it was: each of what was told, said and printed in at most `limit`
    characters.

    once: takes out of what was told and printed what the reader has seen.
    """
    parts = [f"--- step {step.step}" + (f", sample {step.sample}" if step.sample else "")]
    parts[0] += f", which goes on from step {step.after}" if step.after is not None else ""
    if step.kind == "before":
        parts.append(
            f"the tool {step.action} ran before the first turn (status {step.status}) and printed:"
        )
        parts.append(clip(once(step.output.strip()), limit))
        return "\n".join(parts)
    if step.kind == "ended":
        parts.append(f"the agent's program ended with status {step.status}, and had printed:")
        parts.append(clip(once(step.output.strip()), limit))
        return "\n".join(parts)
    if step.observation:
        parts.append(f"the agent was shown:\n{clip(once(step.observation.strip()), limit)}")
    if step.kind == "lookahead":
        parts.append("looking ahead, in a copy of the environment that is gone:")
    if step.kind == "observe":
        parts.append("observing, in a copy of the environment that is gone:")
    if step.reasoning:
        parts.append(f"the agent thought:\n{clip(step.reasoning, limit)}")
    parts.append(f"the agent replied:\n{clip(tell_reply(step), limit)}")
    if step.kind == "malformed":
        parts.append(f"which could not be read: {clip(step.output, limit)}")
    elif step.output or step.status is not None:
        parts.append(
            f"its action ended with status {step.status}:\n{clip(once(step.output.strip()), limit)}"
        )
    if step.restored:
        parts.append(f"it was taken back: {step.restored}")
    return "\n".join(parts)


def tell_hit(hit: Hit) -> str:
    """Return one search result."""
    facts = hit.facts
    if hit.grain == "lesson":
        answer = [
            f"{hit.id} ({facts.get('scope')} lesson, {facts.get('status')})",
            clip(hit.text, HIT_CHARS),
        ]
        for name, words in (
            ("born_of", "born of"),
            ("supports", "supported by"),
            ("contradicts", "contradicted by"),
        ):
            answer += [f"{words} {', '.join(facts[name])}"] if facts.get(name) else []
        return "\n".join(answer)
    passed = {True: "passed", False: "failed"}.get(facts.get("passed", None), "")
    where = f"experience {hit.experience}" + (f" step {hit.step}" if hit.step is not None else "")
    head = (
        f"{where if hit.experience else hit.id} ({hit.grain} {passed}, task"
        f" {short(str(facts.get('task', '')))})"
    )
    return f"{head}\n{clip(hit.text, HIT_CHARS)}"


def short(task: str) -> str:
    """Return a task as a mark that tells it from others and nothing else: ids of real tasks may
    name what is wrong."""
    return digest(task, 6)


def tell_files(draft: Draft) -> str:
    """Return the files of the copy with their sizes, and what may not be touched."""
    protects = draft.current.agent.protects
    lines = []
    for path, whole in sorted(draft.current.files.items()):
        mark = " (protected)" if protects(path) else ""
        changed = "" if draft.parent.files.get(path) == whole else " (changed by you)"
        lines.append(f"{path}, {len(whole)} characters{mark}{changed}")
    return "\n".join(lines)


# --- how an agent runs, from its agent.toml: an optimizer that has to guess it builds on sand


def tell_agent(agent: AgentConfig) -> str:
    """Return what happens with the agent's files in one attempt, in the order in which it
    happens."""
    turns = [find("turns", key).describe(agent) for key in agent.turns]
    seconds = f"{agent.limits.command_seconds:g}"
    text = filled(PROMPTS, "agent", {"agent": agent, "turns": turns, "seconds": seconds})
    return " ".join(filter(None, text.split("\n")))

"""traces list, show, search: what agents did, step by step; what goes in and out is in
cli/trace_files.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import workspace
from recreate.cli.options import Full, Json, OfDomain, OfSplit, OfTask, Passed, open_run, split_of
from recreate.cli.terminal import FOLD, answer, answers, fold, head, red, say
from recreate.viewer.text import cut_off, near, wrong

if TYPE_CHECKING:
    from recreate.agents.request import Recorded
    from recreate.api.types import Experience, Lesson, Step, Trace
    from recreate.memory.store import ExperienceStore


def list_(
    run: Annotated[
        str, typer.Argument(help="A run folder or `last`; default: the workspace's memory.")
    ] = "",
    domain: OfDomain = "",
    split: OfSplit = "",
    passed: Passed = None,
    task: OfTask = "",
    ungraded: Annotated[
        bool, typer.Option("--ungraded", help="Only imported ones that nobody has graded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List attempts: of a run, or of everything that was attempted in this workspace.

    Example: recreate traces list last --failed --split train
    """
    filters = _filters(domain, split, passed, task)
    graded = () if ungraded else _graded(run, filters, as_json)
    waiting = (
        ()
        if run
        else ((trace_record(e), _line(_facts(e), _provisionally(e))) for e in _waiting(filters))
    )
    nothing = "no attempt is like that" if filters or ungraded else "no attempt has ended here yet"
    answers(as_json, chain(graded, waiting), "" if as_json else nothing)


def show(
    id: Annotated[
        str, typer.Argument(metavar="ID", help="An attempt's id, or the beginning of it.")
    ],
    run: Annotated[
        str, typer.Option("--run", help="Look in this run only; default: memory, then all runs.")
    ] = "",
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Show one attempt: each step, what went wrong in it, and the grader's words.

    Example: recreate traces show 3f2a --full
    """
    experience = _find(id, run)
    lessons = _lessons_of(experience)
    rows = [
        {"lesson": x.id, "status": x.status, "steps": x.shown_in(experience.id)} for x in lessons
    ]
    record = {**trace_record(experience), **({"lessons": rows} if rows else {})}
    answer(as_json, record, *([] if as_json else _text(experience, full, lessons)))


def search(
    text: Annotated[
        list[str],
        typer.Argument(metavar="TEXT...", help="Words that must all be there, in any case."),
    ],
    domain: OfDomain = "",
    split: OfSplit = "",
    passed: Passed = None,
    task: OfTask = "",
    k: Annotated[int, typer.Option("-k", help="At most so many places.", min=1, max=100_000)] = 20,
    as_json: Json = False,
) -> None:
    """Find attempts by the words in them. `recreate memory recall` finds them by meaning.

    Example: recreate traces search AssertionError --failed
    """
    from recreate.memory.documents import scan

    memory, words = _memory(), " ".join(text)
    wanted = _filters(domain, split, passed, task)
    hits: dict[str, list[Any]] = {}
    for hit in memory.search(words, {**wanted, "grain": ["experience", "step"]}, k=k):
        hits.setdefault(hit.experience, []).append(hit)
    waiting: dict[str, Any] = {}
    for e in _waiting(wanted):
        if len(hits) >= k:
            break
        if found := list(scan(e, words.casefold().split())):
            hits[e.id], waiting[e.id] = found, e

    def rows() -> Iterator[tuple[dict[str, Any], str]]:
        for id, found in hits.items():
            if (e := waiting.get(id) or memory.get(id)) is not None:
                places = [
                    {"step": hit.step, "text": _around(place(e, hit.step), words)} for hit in found
                ]
                lines = [f"{id}  {e.outcome}  {e.split}  {e.task}"]
                for spot in places:
                    at = "the task or the grade" if spot["step"] is None else f"step {spot['step']}"
                    lines.append(f"    {at}: {spot['text']}")
                yield {**trace_record(e), "matches": places}, "\n".join(lines)

    answers(as_json, rows())
    if not hits:
        say(f"no attempt in memory has the words {words!r}")


def trace_record(experience: Experience) -> dict[str, Any]:
    """An experience as `traces --json` prints it: every message once, and of each step which of
    them it was sent."""
    from recreate.agents.request import Recorded

    trace, grade = experience.trace, experience.grade
    recorded = Recorded(trace.steps)
    return {
        "experience": experience.id,
        "task": experience.task,
        "group": experience.group,
        "split": experience.split,
        "canary": experience.canary,
        "domain": experience.domain,
        "digest": experience.digest,
        "model": trace.model,
        "repeat": trace.repeat,
        "run": experience.run,
        "ending": trace.ending,
        "limit": trace.limit,
        "passed": grade.passed if grade.graded else None,
        "score": grade.score if grade.graded else None,
        "graded": grade.graded,
        **(
            {"provisional": experience.provisional.model_dump(mode="json")}
            if experience.provisional
            else {}
        ),
        "prompt": experience.prompt,
        "messages": recorded.messages,
        "steps": [_step_record(s, recorded) for s in trace.steps],
        "answer": trace.answer,
        "usage": trace.usage.model_dump(mode="json"),
        "evidence": grade.evidence,
        **({"foreign": experience.foreign} if experience.foreign else {}),
    }


def _step_record(step: Step, recorded: Recorded) -> dict[str, Any]:
    made = step.model_dump(mode="json", exclude={"sent"})
    if step.step in recorded:
        made["sent"] = {
            "messages": recorded.ranges(step.step),
            "params": recorded[step.step].params,
        }
    return made


def _memory() -> ExperienceStore:
    from recreate.memory.store import ExperienceStore

    return ExperienceStore(workspace())


def _waiting(filters: Mapping[str, Any]) -> Iterator[Experience]:
    """Imported attempts without a grade; none has passed, and none has failed."""
    from recreate.memory.waiting import waiting_experiences

    if "passed" in filters:
        return
    rest = {k: v for k, v in filters.items() if k != "domain"}
    found = waiting_experiences(_memory(), filters.get("domain", ""))
    yield from (e for e in found if all(getattr(e, k) == v for k, v in rest.items()))


def _filters(domain: str, split: str, passed: bool | None, task: str) -> dict[str, Any]:
    named = (("domain", domain), ("split", split_of(split)), ("task", task))
    wanted: dict[str, Any] = {k: v for k, v in named if v}
    return wanted if passed is None else {**wanted, "passed": passed}


def _graded(
    run: str, filters: Mapping[str, Any], as_json: bool
) -> Iterator[tuple[dict[str, Any], str]]:
    """(record, line) of the attempts that match; for lines only, memory lists them without their
    steps."""
    if run or as_json:
        for e in experiences(run, filters):
            yield trace_record(e) if as_json else {}, _line(_facts(e))
    else:
        yield from (({}, _line(row)) for row in _memory().facts(filters))


def _facts(e: Experience) -> dict[str, Any]:
    """What a line says of an attempt, as memory keeps it beside the attempt."""
    trace, grade = e.trace, e.grade
    facts = {
        "id": e.id,
        "passed": grade.passed,
        "score": grade.score,
        "split": e.split,
        "task": e.task,
    }
    return {**facts, "ending": trace.ending, "steps": len(trace.steps)}


def _provisionally(e: Experience) -> str:
    """The grade in a line of one that nobody has graded."""
    said = e.provisional
    return (
        "ungraded    "
        if said is None
        else f"{'passed' if said.passed else 'failed'} {said.score:.2f} ({said.mark})"
    )


def _line(row: Mapping[str, Any], grade: str = "") -> str:
    grade = grade or f"{'passed' if row['passed'] else 'failed'} {row['score']:.2f}"
    return (
        f"{row['id']}  {grade}  {row['split']:<10}  {row['ending']:<9}  {row['steps']:>3} steps "
        f" {row['task']}"
    )


def experiences(
    run: str, filters: Mapping[str, Any], reader: str = "human"
) -> Iterator[Experience]:
    """The attempts that match, whole, one in memory at a time."""
    from recreate.runs.attempts import read_experience

    if not run:
        memory = _memory()
        yield from (
            found
            for row in memory.facts(filters, reader)
            if (found := memory.get(row["id"], reader))
        )
        return
    of = open_run(run)
    for record in of.records("experience"):
        if any(k in record and record[k] != v for k, v in filters.items()):
            continue
        found = read_experience(of.folder / "attempts" / record["attempt"])
        if found is not None and found.domain == filters.get("domain", found.domain):
            yield found


def _find(id: str, run: str) -> Experience:
    """By id or unique beginning, in memory and then in the runs. Raises BadInput."""
    from recreate.memory.waiting import waiting_experiences

    if run:
        return open_run(run).experience(id)
    memory = _memory()
    if (found := memory.get(id)) is not None:
        return found
    near = [e for e in waiting_experiences(memory) if id and e.id.startswith(id)]
    if len(near) == 1:
        return near[0]
    known = [row["id"] for row in memory.facts() if id and row["id"].startswith(id)]
    if len(known) == 1 and (found := memory.get(known[0])) is not None:
        return found
    files = (workspace() / "runs").glob("*/settings.toml")
    runs = [p.parent for p in files if any((p.parent / "attempts").glob(f"{id}*"))]
    if not known and runs and id:
        return open_run(str(max(runs, key=lambda p: p.stat().st_mtime))).experience(id)
    raise BadInput(
        f"{len(known) or 'no'} attempts begin with {id!r}",
        fix=f"one of {', '.join(known[:5])}" if known else "recreate traces list shows them",
        code="no-attempt",
    )


def _lessons_of(experience: Experience) -> list[Lesson]:
    """The lessons of any policy that it speaks for, but those that joined another."""
    from recreate.memory.forget import lesson_files

    found = (x for _, x in lesson_files(_memory().folder) if x.status != "merged")
    return [x for x in found if experience.id in {*x.born_of, *x.supports}]


def _limit(trace: Trace) -> str:
    if not trace.limit:
        return ""
    return f" by the limit on {trace.limit}" if trace.ending == "limit" else f" ({trace.limit})"


def _text(experience: Experience, full: bool, lessons: Sequence[Lesson] = ()) -> Iterator[str]:  # noqa: C901
    """An attempt for a person to read. full: with all that the model was sent; lessons: those that
    it speaks for."""
    from recreate.agents.request import Recorded

    trace, grade = experience.trace, experience.grade
    outcome = f"{experience.outcome} ({grade.score:g})" if grade.graded else "not graded yet"
    usage = trace.usage
    yield f"{experience.id}  {outcome}  {experience.task}  ({experience.split})"
    if foreign := experience.foreign:
        place = f"{foreign.get('file')} {foreign.get('entry')}"
        yield f"imported from {foreign.get('format')}: {place}".rstrip()
        if "outcome" in foreign:
            yield f"graded by a file of outcomes: {foreign['outcome']}"
    yield (
        f"agent {experience.digest} with {trace.model or 'an unnamed model'}, repeat"
        f" {trace.repeat}; {trace.ending}{_limit(trace)}; {usage.calls} calls,"
        f" {usage.tokens_in + usage.tokens_out:,} tokens, ${usage.usd:.4f}"
    )
    if said := cut_off(trace):
        yield said
    if trace.fault:
        yield red(f"fault: {trace.fault}" if foreign else f"infrastructure failure: {trace.fault}")
    if foreign.get("system"):
        yield from (head("system"), fold(str(foreign["system"]), full))
    recorded = Recorded(trace.steps if full else ())
    if not recorded.messages:
        yield from (head("task"), fold(experience.prompt, full))
    replies: set[str] = set()
    for step in trace.steps:
        sample = f", sample {step.sample}" if trace.steps[-1].sample else ""
        sample += f", goes on from step {step.after}" if step.after is not None else ""
        if step.kind == "before":
            yield head(
                f"step {step.step}{sample}: {step.action} ran before the first turn", wrong(step)
            )
        elif step.kind == "ended":
            yield head(f"step {step.step}{sample}: the agent's program ended", wrong(step))
        else:
            ahead = f": looked ahead, candidate {step.sample}" if step.kind == "lookahead" else ""
            ahead = ahead or f"{sample}: observed, in a copy of the sandbox" * (
                step.kind == "observe"
            )
            yield head(f"step {step.step}{ahead or sample}", wrong(step))
            if step.step in recorded:
                yield from _sent(recorded, step.step, replies)
                yield head("reply")
                replies.add(step.reply)
            looked = f"({step.looked})" if step.looked else ""
            yield from filter(None, (looked, _drawn(step), near(step)))
            if step.reply.strip():
                yield fold(step.reply, full)
        if step.action and step.action not in step.reply and step.kind not in ("before", "ended"):
            yield f"$ {fold(step.action, full)}"
        if step.output and not _sent_next(recorded, step):
            yield from ("->", fold(step.output, full))
        if step.restored:
            yield red(f"taken back: {step.restored}")
        if taught := [x.id for x in lessons if step.step in x.shown_in(experience.id)]:
            yield f"taught the lesson {', '.join(taught)}"
    if trace.answer:
        yield from (head("handed in"), fold(trace.answer, full))
    if rest := [x.id for x in lessons if not x.shown_in(experience.id)]:
        yield f"speaks for the lesson {', '.join(rest)}; which step of it is not known"
    if not grade.graded and (judged := experience.provisional):
        yield from (
            head(f"grade: {experience.outcome}, score {judged.score:g}"),
            fold(judged.evidence, full, 4 * FOLD),
        )
    if not grade.graded:
        yield from (
            head("grade: none yet"),
            f"recreate traces grade --domain {experience.domain} grades what waits",
        )
        return
    yield head(f"grade: {outcome}", "" if grade.passed else "failed")
    yield fold(grade.evidence, full, 4 * FOLD)


def _drawn(step: Step) -> str:
    """What memory told the agent that asked it here, which lessons it was shown with this step, and
    which it was not, by lot; '' for nothing."""
    odds = step.propensities
    shown = [f"{id} (by lot, {odds[id]:g})" if id in odds else id for id in step.offered]
    held = [f"{id} ({p:g})" for id, p in odds.items() if id not in step.offered]
    parts = [f"recalled: {', '.join(step.recalled)}"] * bool(step.recalled)
    parts += [f"lessons shown: {', '.join(shown)}"] * bool(shown)
    parts += [f"not shown, by lot: {', '.join(held)}"] * bool(held)
    return "; ".join(parts)


def _sent(recorded: Recorded, step: int, replies: set[str]) -> Iterator[str]:
    """What a request has that the one which it goes on from has not; a reply that is sent back was
    shown already."""
    from recreate.storage.log import encode

    new = recorded.new(step)
    if len(new) < len(recorded.numbers(step)):
        new = [m for m in new if m["role"] != "assistant" or m.get("content") not in replies]
    for message in new:
        yield head(message["role"])
        content, calls = message.get("content"), message.get("tool_calls") or ()
        yield fold(content if isinstance(content, str) else encode(content), True)
        yield from (fold(encode(call.get("function", call)), True) for call in calls)


def _sent_next(recorded: Recorded, step: Step) -> bool:
    """Whether what came of a step stands in what was sent next."""
    new = recorded.new(step.step + 1) if step.step + 1 in recorded else []
    return any(step.output.strip() in str(message.get("content")) for message in new)


def place(experience: Experience, step: int | None, *, steps: bool = False) -> str:
    """Where a hit is: one step's texts, or the task's and the grader's. steps: those of all steps
    with the latter."""
    from recreate.memory.documents import evidence_of

    if step is None:
        trace = experience.trace
        every = [_of_step(s) for s in trace.steps] if steps else []
        return "\n".join(
            [experience.task, experience.prompt, trace.answer, evidence_of(experience), *every]
        )
    return "\n".join(_of_step(s) for s in experience.trace.steps if s.step == step)


def _of_step(step: Step) -> str:
    return "\n".join([step.reply, step.action, step.output, step.observation])


def around(text: str, words: str, width: int = 160) -> str:
    """The place where most of the words stand together, in one line; '' where none of them stands,
    the beginning where none is asked for. Whole words go before parts of others."""
    asked = list(dict.fromkeys(words.casefold().split()))
    low, at = text.casefold(), 0
    if asked:
        found = [
            (m.start(), w)
            for w in asked
            for m in islice(re.finditer(rf"(?<!\w){re.escape(w)}(?!\w)", low), 200)
        ]
        found = found or [
            (m.start(), w) for w in asked for m in islice(re.finditer(re.escape(w), low), 200)
        ]
        if not found:
            return ""
        near = width * 2 // 3
        at = max(
            found, key=lambda f: (len({w for p, w in found if f[0] <= p < f[0] + near}), -f[0])
        )[0]
    return _window(text, at, width)


def _around(text: str, words: str, width: int = 160) -> str:
    """The surroundings of the first of the words, in one line."""
    low = text.casefold()
    places = [at for word in words.casefold().split() if (at := low.find(word)) >= 0]
    return _window(text, min(places, default=0), width)


def _window(text: str, at: int, width: int) -> str:
    start = max(0, at - width // 3)
    line = " ".join(text[start : start + width].split())
    return ("..." if start else "") + line + ("..." if start + width < len(text) else "")

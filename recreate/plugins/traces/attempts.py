"""traces list, show and search: what was attempted here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import workspace
from recreate.api.shapes import JsonDict, JsonMap
from recreate.cli.options import Json, open_run, split_of
from recreate.cli.terminal import FOLD, answer, answers, fold, head, red, say
from recreate.plugins.traces.flags import Full, OfDomain, OfSplit, OfTask, Passed
from recreate.viewer.text import cut_off, tell_near_reply, wrong

if TYPE_CHECKING:
    from recreate.agents.request import Recorded
    from recreate.api.types import Experience, Lesson, Step
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
        else ((trace_record(e), _line(_facts(e), _tell_provisional(e))) for e in _waiting(filters))
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

    memory = _memory()
    words = " ".join(text)
    wanted = _filters(domain, split, passed, task)
    hits: dict[str, list[Any]] = {}
    for hit in memory.search(words, {**wanted, "grain": ["experience", "step"]}, k=k):
        hits.setdefault(hit.experience, []).append(hit)
    waiting: JsonDict = {}
    for e in _waiting(wanted):
        if len(hits) >= k:
            break
        if found := list(scan(e, words.casefold().split())):
            hits[e.id], waiting[e.id] = found, e

    def rows() -> Iterator[tuple[JsonDict, str]]:
        for id, places in hits.items():
            if (e := waiting.get(id) or memory.get(id)) is None:
                continue
            matches = [{"step": hit.step, "text": around(hit.text, words)} for hit in places]
            named = (
                "the task or the grade" if m["step"] is None else f"step {m['step']}"
                for m in matches
            )
            lines = [f"    {at}: {m['text']}" for at, m in zip(named, matches, strict=True)]
            row = {**trace_record(e), "matches": matches}
            yield row, "\n".join([f"{id}  {e.outcome}  {e.split}  {e.task}", *lines])

    answers(as_json, rows())
    if not hits:
        say(f"no attempt in memory has the words {words!r}")


def trace_record(experience: Experience) -> JsonDict:
    """An experience as `traces --json` prints it: every message once, and of each step which of
    them it was sent."""
    from recreate.agents.request import Recorded

    trace = experience.trace
    grade = experience.grade
    recorded = Recorded(trace.steps)
    record = experience.model_dump(
        mode="json",
        include={"task", "group", "split", "canary", "domain", "digest", "run", "prompt"},
    )
    record |= trace.model_dump(
        mode="json", include={"model", "repeat", "ending", "limit", "answer", "usage"}
    )
    optional = {"foreign": experience.foreign, "provisional": experience.provisional}
    return {
        **record,
        **experience.model_dump(mode="json", include={k for k, v in optional.items() if v}),
        "experience": experience.id,
        "trust": experience.trust,
        "passed": grade.passed if grade.graded else None,
        "score": grade.score if grade.graded else None,
        "graded": grade.graded,
        "messages": recorded.messages,
        "steps": [_step_record(s, recorded) for s in trace.steps],
        "evidence": grade.evidence,
    }


def _step_record(step: Step, recorded: Recorded) -> JsonDict:
    record = step.model_dump(mode="json", exclude={"sent"})
    if step.step in recorded:
        sent = {"messages": recorded.ranges(step.step), "params": recorded[step.step].params}
        record["sent"] = sent
    return record


def _memory() -> ExperienceStore:
    from recreate.memory.store import ExperienceStore

    return ExperienceStore(workspace())


def _waiting(filters: JsonMap) -> Iterator[Experience]:
    """Imported attempts without a grade; none has passed, and none has failed."""
    from recreate.plugins.traces.waiting import waiting_experiences

    if "passed" in filters:
        return
    rest = {k: v for k, v in filters.items() if k != "domain"}
    found = waiting_experiences(_memory(), filters.get("domain", ""))
    yield from (e for e in found if all(getattr(e, k) == v for k, v in rest.items()))


def _filters(domain: str, split: str, passed: bool | None, task: str) -> JsonDict:
    named = (("domain", domain), ("split", split_of(split)), ("task", task))
    wanted: JsonDict = {k: v for k, v in named if v}
    return wanted if passed is None else {**wanted, "passed": passed}


def _graded(run: str, filters: JsonMap, as_json: bool) -> Iterator[tuple[JsonDict, str]]:
    """(record, line) of the attempts that match; for lines only, memory lists them without their
    steps."""
    if run or as_json:
        for e in experiences(run, filters):
            yield trace_record(e) if as_json else {}, _line(_facts(e))
    else:
        yield from (({}, _line(row)) for row in _memory().facts(filters))


def _facts(e: Experience) -> JsonDict:
    """Return what a line says of an attempt, as memory keeps it beside the attempt."""
    facts = {"id": e.id, "split": e.split, "task": e.task, "ending": e.trace.ending}
    return {**facts, **dict(e.grade), "steps": len(e.trace.steps)}


def _tell_provisional(e: Experience) -> str:
    """Return the grade in a line of one that nobody has graded."""
    said = e.provisional
    return "ungraded    " if said is None else f"{_tell_score(said)} ({said.mark})"


def _tell_score(grade: Any) -> str:
    return f"{'passed' if grade.passed else 'failed'} {grade.score:.2f}"


def _line(row: JsonMap, grade: str = "") -> str:
    grade = grade or f"{'passed' if row['passed'] else 'failed'} {row['score']:.2f}"
    return (
        f"{row['id']}  {grade}  {row['split']:<10}  {row['ending']:<9}  {row['steps']:>3} steps "
        f" {row['task']}"
    )


def experiences(run: str, filters: JsonMap, reader: str = "human") -> Iterator[Experience]:
    """The attempts that match, whole, one in memory at a time."""
    from recreate.runs.attempts import read_experience

    if not run:
        memory = _memory()
        yield from (
            found
            for row in memory.facts(filters, reader)
            if (found := memory.get(row["id"], reader, plain=True))
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
    """Return an attempt by id or unique beginning, from memory or else the newest run that has it.
    Raises BadInput."""
    from recreate.plugins.traces.waiting import waiting_experiences

    if run:
        return open_run(run).experience(id)
    memory = _memory()
    if (found := memory.get(id)) is not None:
        return found
    waiting = {e.id: e for e in waiting_experiences(memory)}
    known = (*waiting, *(row["id"] for row in memory.facts()))
    near = [one for one in known if id and one.startswith(id)]
    if len(near) == 1 and (found := waiting.get(near[0]) or memory.get(near[0])):
        return found
    runs = {p.parents[1] for p in (workspace() / "runs").glob(f"*/attempts/{id or '?'}*")}
    if id and not near and runs:
        return open_run(str(max(runs, key=lambda p: p.stat().st_mtime))).experience(id)
    raise BadInput(
        f"{len(near) or 'no'} attempts begin with {id!r}",
        fix=f"one of {', '.join(near[:5])}" if near else "recreate traces list shows them",
        code="no-attempt",
    )


def _lessons_of(experience: Experience) -> list[Lesson]:
    """The lessons of any policy that it speaks for, but those that joined another."""
    from recreate.memory.forget import lesson_files

    found = (x for _, x in lesson_files(_memory().folder) if x.status != "merged")
    return [x for x in found if experience.id in {*x.born_of, *x.supports}]


def _text(experience: Experience, full: bool, lessons: Sequence[Lesson] = ()) -> Iterator[str]:
    """An attempt for a person to read. full: with all that the model was sent; lessons: those that
    it speaks for."""
    from recreate.agents.request import Recorded

    trace = experience.trace
    yield from _tell_head(experience, full)
    recorded = Recorded(trace.steps if full else ())
    if not recorded.messages:
        yield from (head("task"), fold(experience.prompt, full))
    replies: set[str] = set()
    for step in trace.steps:
        sampled = f", sample {step.sample}" * bool(trace.steps[-1].sample)
        yield head(f"step {step.step}{_tell_kind(step, sampled)}", wrong(step))
        if step.kind not in ("before", "ended"):
            if step.step in recorded:
                yield from (*_sent(recorded, step.step, replies), head("reply"))
                replies.add(step.reply)
            looked = f"({step.looked})" if step.looked else ""
            thought = f"(thought: {fold(step.reasoning, full)})" if step.reasoning else ""
            yield from filter(None, (looked, _tell_lessons(step), tell_near_reply(step), thought))
            if step.reply.strip():
                yield fold(step.reply, full)
            if step.action and step.action not in step.reply:
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
    yield from _tell_grade(experience, full)


def _tell_head(experience: Experience, full: bool) -> Iterator[str]:
    trace = experience.trace
    foreign = experience.foreign
    usage = experience.trace.usage
    yield f"{experience.id}  {_outcome(experience)}  {experience.task}  ({experience.split})"
    if foreign:
        place = f"{foreign.get('file')} {foreign.get('entry')}"
        yield f"imported from {foreign.get('format')}: {place}".rstrip()
    if experience.origin:
        word = "; its grade is its own word" if experience.claims else ""
        yield f"{experience.origin}{word * experience.grade.graded}"
        if "outcome" in foreign:
            yield f"graded by a file of outcomes: {foreign['outcome']}"
    limit = f" by the limit on {trace.limit}" if trace.ending == "limit" else f" ({trace.limit})"
    yield (
        f"agent {experience.digest} with {trace.model or 'an unnamed model'}, repeat"
        f" {trace.repeat}; {trace.ending}{limit * bool(trace.limit)}; {usage.calls} calls,"
        f" {usage.tokens_in + usage.tokens_out:,} tokens, ${usage.usd:.4f}"
    )
    if said := cut_off(trace):
        yield said
    if trace.fault:
        yield red(f"{'fault' if foreign else 'infrastructure failure'}: {trace.fault}")
    if foreign.get("system"):
        yield from (head("system"), fold(str(foreign["system"]), full))


def _outcome(experience: Experience) -> str:
    grade = experience.grade
    return f"{experience.outcome} ({grade.score:g})" if grade.graded else "not graded yet"


def _tell_kind(step: Step, sampled: str) -> str:
    """Return what a step is besides a turn. sampled: of which sample."""
    if step.after is not None:
        sampled += f", goes on from step {step.after}"
    return {
        "before": f"{sampled}: {step.action} ran before the first turn",
        "ended": f"{sampled}: the agent's program ended",
        "lookahead": f": looked ahead, candidate {step.sample}",
        "observe": f"{sampled}: observed, in a copy of the sandbox",
    }.get(step.kind, sampled)


def _tell_grade(experience: Experience, full: bool) -> Iterator[str]:
    grade = experience.grade
    judged = experience.provisional
    if grade.graded:
        yield head(f"grade: {_outcome(experience)}", "" if grade.passed else "failed")
        yield fold(grade.evidence, full, 4 * FOLD)
        return
    if judged:
        yield head(f"grade: {experience.outcome}, score {judged.score:g}")
        yield fold(judged.evidence, full, 4 * FOLD)
    yield head("grade: none yet")
    yield f"recreate traces grade --domain {experience.domain} grades what waits"


def _tell_lessons(step: Step) -> str:
    """Return what memory told the agent that asked it here, which lessons it was shown with this
    step, and which it was not, by lot; '' for nothing."""
    odds = step.propensities
    told = {
        "recalled": step.recalled,
        "lessons shown": [
            f"{id} (by lot, {odds[id]:g})" if id in odds else id for id in step.offered
        ],
        "not shown, by lot": [f"{id} ({p:g})" for id, p in odds.items() if id not in step.offered],
    }
    return "; ".join(f"{what}: {', '.join(ids)}" for what, ids in told.items() if ids)


def _sent(recorded: Recorded, step: int, replies: set[str]) -> Iterator[str]:
    """What a request has that the one which it goes on from has not; a reply that is sent back was
    shown already."""
    from recreate.storage.log import encode

    new = recorded.new(step)
    if len(new) < len(recorded.numbers(step)):
        new = [m for m in new if m["role"] != "assistant" or m.get("content") not in replies]
    for message in new:
        yield head(message["role"])
        content = message.get("content")
        calls = message.get("tool_calls") or ()
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
    """Return the place where most of the words stand together, in one line; '' where none of them
    stands, the beginning where none is asked for. Whole words go before parts of others."""
    asked = list(dict.fromkeys(map(re.escape, words.casefold().split())))
    low = text.casefold()
    at = 0
    if asked:
        for form in (r"(?<!\w){}(?!\w)", "{}"):
            found = [
                (m.start(), word)
                for word in asked
                for m in islice(re.finditer(form.format(word), low), 200)
            ]
            if found:
                break
        else:
            return ""
        near = width * 2 // 3
        at = max(
            found, key=lambda f: (len({w for p, w in found if f[0] <= p < f[0] + near}), -f[0])
        )[0]
    start = max(0, at - width // 3)
    line = " ".join(text[start : start + width].split())
    return ("..." if start else "") + line + ("..." if start + width < len(text) else "")

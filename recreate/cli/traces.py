"""traces list, show, search: what agents did, step by step; import, grade and export are in cli/trace_files.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import workspace
from recreate.cli.fold import FOLD, fold, head, red, wrong
from recreate.cli.options import Json
from recreate.cli.terminal import emit, say, show

app = typer.Typer(help="What agents did, step by step.", no_args_is_help=True, rich_markup_mode=None)

Domain = Annotated[str, typer.Option("--domain", help="Of one domain.")]
SplitOption = Annotated[str, typer.Option("--split", help="train, validation or test.")]
Passed = Annotated[bool | None, typer.Option("--passed/--failed", help="Only those.")]
TaskOption = Annotated[str, typer.Option("--task", help="Of one task.")]


@app.command("list")
def traces_list(
    run: Annotated[str, typer.Argument(help="A run folder or `last`; default: the workspace's memory.")] = "",
    domain: Domain = "",
    split: SplitOption = "",
    passed: Passed = None,
    task: TaskOption = "",
    ungraded: Annotated[bool, typer.Option("--ungraded", help="Only imported ones that nobody has graded.")] = False,
    as_json: Json = False,
) -> None:
    """List attempts: of a run, or of everything that was lived through in this workspace.

    Example: recreate traces list last --failed --split train
    """
    filters = _filters(domain, split, passed, task)
    where, told = workspace(), 0
    waiting = iter(()) if run else _waiting(filters, where)
    if as_json:
        for experience in [] if ungraded else experiences(run, filters, where):
            emit(trace_record(experience))
        for experience in waiting:
            emit(trace_record(experience))
        return
    for row in [] if ungraded else _rows(run, filters, where):
        told += 1
        mark = "passed" if row["passed"] else "failed"
        show(
            f"{row['id']}  {mark} {row['score']:.2f}  {row['split']:<10}  {row['ending']:<9}  "
            f"{row['steps']:>3} steps  {row['task']}"
        )
    for e in waiting:
        told += 1
        show(f"{e.id}  ungraded     {e.split:<10}  {e.trace.ending:<9}  {len(e.trace.steps):>3} steps  {e.task}")
    if not told:
        say("no attempt is like that" if filters or ungraded else "no attempt has ended here yet")


@app.command("show")
def traces_show(
    id: Annotated[str, typer.Argument(metavar="ID", help="An attempt's id, or the beginning of it.")],
    run: Annotated[str, typer.Option("--run", help="Look in this run only; default: memory, then all runs.")] = "",
    full: Annotated[bool, typer.Option("--full", help="Every text whole.")] = False,
    as_json: Json = False,
) -> None:
    """Show one attempt: each step, what went wrong in it, and the grader's words.

    Example: recreate traces show 3f2a --full
    """
    experience = _find_experience(id, run, workspace())
    if as_json:
        emit(trace_record(experience))
        return
    _tell(experience, full)


@app.command("search")
def traces_search(
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Words that must all be there, in any case.")],
    domain: Domain = "",
    split: SplitOption = "",
    passed: Passed = None,
    task: TaskOption = "",
    k: Annotated[int, typer.Option("-k", help="At most so many places.", min=1)] = 20,
    as_json: Json = False,
) -> None:
    """Find attempts by the words in them. `recreate memory recall` finds them by meaning.

    Example: recreate traces search AssertionError --failed
    """
    from recreate.memory.hits import scan
    from recreate.memory.store import ExperienceStore

    memory = ExperienceStore(workspace())
    words = " ".join(text)
    filters = {**_filters(domain, split, passed, task), "grain": ["experience", "step"]}
    hits: dict[str, list[Any]] = {}
    for hit in memory.search(words, filters, k=k):
        hits.setdefault(hit.experience, []).append(hit)
    waiting: dict[str, Any] = {}
    folded = words.casefold().split()
    for e in _waiting(_filters(domain, split, passed, task), workspace()):
        if len(hits) >= k:
            break
        if found := list(scan(e, folded)):
            hits[e.id], waiting[e.id] = found, e
    for id, found in hits.items():
        experience = waiting.get(id) or memory.get(id)
        if experience is None:
            continue
        places = [{"step": hit.step, "text": _around(_place(experience, hit.step), text)} for hit in found]
        if as_json:
            emit({**trace_record(experience), "matches": places})
            continue
        show(f"{id}  {_outcome(experience)}  {experience.split}  {experience.task}")
        for place in places:
            at = "the task or the grade" if place["step"] is None else f"step {place['step']}"
            show(f"    {at}: {place['text']}")
    if not hits:
        say(f"no attempt in memory has the words {words!r}")


def trace_record(experience: Any) -> dict[str, Any]:
    """An experience as `traces --json` prints it."""
    trace, grade = experience.trace, experience.grade
    return {
        "experience": experience.id,
        "task": experience.task,
        "group": experience.group,
        "split": experience.split,
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
        "prompt": experience.prompt,
        "steps": [s.model_dump(mode="json") for s in trace.steps],
        "answer": trace.answer,
        "usage": trace.usage.model_dump(mode="json"),
        "evidence": grade.evidence,
        **({"foreign": experience.foreign} if hasattr(experience, "foreign") else {}),
    }


def _outcome(experience: Any) -> str:
    grade = experience.grade
    return "ungraded" if not grade.graded else "passed" if grade.passed else "failed"


def _waiting(filters: Mapping[str, Any], where: Path) -> Iterator[Any]:
    """Imported attempts without a grade; none has passed, and none has failed."""
    from recreate.memory.store import ExperienceStore
    from recreate.memory.ungraded import Ungraded

    if "passed" in filters:
        return
    rest = {k: v for k, v in filters.items() if k != "domain"}
    found = Ungraded(ExperienceStore(where)).experiences(filters.get("domain", ""))
    yield from (e for e in found if all(getattr(e, k) == v for k, v in rest.items()))


def _filters(domain: str, split: str, passed: bool | None, task: str) -> dict[str, Any]:
    if split and split not in ("train", "validation", "test"):
        raise BadInput(f"there is no split {split!r}", fix="--split train, validation or test", code="bad-split")
    wanted: dict[str, Any] = {k: v for k, v in (("domain", domain), ("split", split), ("task", task)) if v}
    if passed is not None:
        wanted["passed"] = passed
    return wanted


def _rows(run: str, filters: Mapping[str, Any], where: Path) -> Iterable[dict[str, Any]]:
    """id and facts of the attempts that match, without their steps where memory lists them."""
    from recreate.memory.store import ExperienceStore

    if not run:
        yield from ExperienceStore(where).facts(filters)
        return
    for e in experiences(run, filters, where):
        yield {
            "id": e.id,
            "passed": e.grade.passed,
            "score": e.grade.score,
            "split": e.split,
            "ending": e.trace.ending,
            "steps": len(e.trace.steps),
            "task": e.task,
        }


def experiences(run: str, filters: Mapping[str, Any], where: Path) -> Iterator[Any]:
    """The attempts that match, whole, one in memory at a time."""
    from recreate.memory.store import ExperienceStore
    from recreate.runs.attempts import read_experience
    from recreate.runs.reader import Run, find_run

    if not run:
        memory = ExperienceStore(where)
        for row in memory.facts(filters):
            found = memory.get(row["id"])
            if found is not None:
                yield found
        return
    seen = Run(find_run(run, where))
    for record in seen.records("experience"):
        if any(k in record and record[k] != v for k, v in filters.items()):
            continue
        found = read_experience(seen.folder / "attempts" / record["attempt"])
        if found is not None and found.domain == filters.get("domain", found.domain):
            yield found


def _find_experience(id: str, run: str, where: Path) -> Any:
    """By id or unique beginning, in memory and then in the runs. Raises BadInput."""
    from recreate.memory.store import ExperienceStore
    from recreate.memory.ungraded import Ungraded
    from recreate.runs.reader import Run, find_run

    if run:
        return Run(find_run(run, where)).experience(id)
    memory = ExperienceStore(where)
    found = memory.get(id)
    if found is not None:
        return found
    if (waits := Ungraded(memory).get(id)) is not None:
        return waits
    known = [row["id"] for row in memory.facts() if id and row["id"].startswith(id)]
    if len(known) == 1 and (found := memory.get(known[0])) is not None:
        return found
    runs = [p.parent for p in (where / "runs").glob("*/settings.toml") if any((p.parent / "attempts").glob(f"{id}*"))]
    if not known and len(runs) >= 1 and id:
        return Run(max(runs, key=lambda p: p.stat().st_mtime)).experience(id)
    raise BadInput(
        f"{len(known) or 'no'} attempts begin with {id!r}",
        fix=f"one of {', '.join(known[:5])}" if known else "recreate traces list shows them",
        code="no-attempt",
    )


def _tell(experience: Any, full: bool) -> None:
    """An attempt for a person to read."""
    trace, grade = experience.trace, experience.grade
    outcome = f"{_outcome(experience)} ({grade.score:g})" if grade.graded else "not graded yet"
    usage = trace.usage
    show(f"{experience.id}  {outcome}  {experience.task}  ({experience.split})")
    foreign = getattr(experience, "foreign", None)
    if isinstance(foreign, Mapping):
        show(f"imported from {foreign.get('format')}: {foreign.get('file')} {foreign.get('entry')}".rstrip())
    show(
        f"agent {experience.digest} with {trace.model or 'an unnamed model'}, repeat {trace.repeat}; {trace.ending}"
        f"{' by the limit on ' + trace.limit if trace.limit else ''}; {usage.calls} calls, "
        f"{usage.tokens_in + usage.tokens_out:,} tokens, ${usage.usd:.4f}"
    )
    if trace.fault:
        show(red(f"fault: {trace.fault}" if foreign else f"fault of ours: {trace.fault}"))
    if isinstance(foreign, Mapping) and foreign.get("system"):
        show(head("system"))
        show(fold(str(foreign["system"]), full))
    show(head("task"))
    show(fold(experience.prompt, full))
    for step in trace.steps:
        sample = f", sample {step.sample}" if trace.steps[-1].sample else ""
        if step.kind == "before":
            show(head(f"step {step.step}{sample}: {step.action} ran before the first turn", wrong(step)))
        else:
            show(head(f"step {step.step}{sample}", wrong(step)))
            if step.reply.strip():
                show(fold(step.reply, full))
        if step.action and step.action not in step.reply and step.kind != "before":
            show(f"$ {fold(step.action, full)}")
        if step.output:
            show("->")
            show(fold(step.output, full))
    if trace.answer:
        show(head("handed in"))
        show(fold(trace.answer, full))
    if not grade.graded:
        show(head("grade: none yet"))
        show(f"recreate traces grade --domain {experience.domain} grades what waits")
        return
    show(head(f"grade: {outcome}", "" if grade.passed else "failed"))
    show(fold(grade.evidence, full, 4 * FOLD))


def _place(experience: Any, step: int | None) -> str:
    """Where a hit is: one step's texts, or the task's and the grader's."""
    if step is None:
        parts = [experience.task, experience.prompt, experience.trace.answer, experience.grade.evidence]
        return "\n".join(parts)
    s = experience.trace.steps[step]
    return "\n".join([s.reply, s.action, s.output, s.observation])


def _around(text: str, words: Sequence[str], width: int = 160) -> str:
    """The surroundings of the first of the words, in one line."""
    low = text.casefold()
    places = [at for word in " ".join(words).casefold().split() if (at := low.find(word)) >= 0]
    at = min(places, default=0)
    start = max(0, at - width // 3)
    line = " ".join(text[start : start + width].split())
    return ("..." if start else "") + line + ("..." if start + width < len(text) else "")

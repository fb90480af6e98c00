"""log, show, diff, traces: what happened, told to a person or as JSON. Nothing here changes anything."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from recreate.cli.agents import find_agent, named_run
from recreate.cli.options import Json, here
from recreate.cli.out import emit, say, show
from recreate.errors import BadInput
from recreate.paths import workspace

traces = typer.Typer(help="What agents did, step by step.", no_args_is_help=True, rich_markup_mode=None)

FOLD = 1200
"""Characters of one text that `traces show` prints; --full prints all."""

RUNS = 5
"""How many of the newest runs `diff` asks why something was changed, when it is not told which."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What an agent printed must not move the cursor of whoever reads it."""


def add(app: typer.Typer) -> None:
    """Put the commands on the app."""
    app.command("log")(log)
    app.command("show")(show_)
    app.command("diff")(diff)


def log(
    run: Annotated[str, typer.Argument(help="A run folder, its name under runs/, or `last`.")] = "last",
    as_json: Json = False,
) -> None:
    """One line per revision of a run: kept or dropped, which files, the verdict.

    Example: recreate log last
    """
    from recreate.report import revision_record, say_verdict
    from recreate.run import Run, find_run

    seen = Run(find_run(run, workspace()))
    told = 0
    for record in seen.records("revision", "nothing"):
        if record["kind"] == "nothing":
            if not as_json:
                show(f"round {record['round'] + 1}  nothing  {record['reason']}")
            continue
        revision = _revision(record)
        told += 1
        if as_json:
            emit(revision_record(revision))
            continue
        files = ", ".join(dict.fromkeys(e.path for e in revision.edits))
        show(
            f"round {revision.round + 1}  {_fate(revision.kept)}  {revision.id}  {files}  "
            f"{say_verdict(revision.verdict)}"
        )
    if not told:
        say(f"{here(seen.folder)} has no revision ({_status(seen)})")


def show_(
    what: Annotated[str, typer.Argument(metavar="RUN_OR_SCAFFOLD", help="A run, `last`, or a scaffold.")] = "last",
    revision: Annotated[str, typer.Argument(help="One revision of the run, by the beginning of its id.")] = "",
    as_json: Json = False,
) -> None:
    """Show a run (settings, status, revisions with their evidence), one revision with its diff, or an agent.

    Example: recreate show last
    """
    where = workspace()
    folder = named_run(what, where)
    if folder is None:
        if revision:
            raise BadInput(f"{what!r} is not a run, so it has no revision", fix="recreate show RUN REVISION")
        _show_agent(find_agent(what, where), as_json)
    elif revision:
        _show_revision(folder, revision, as_json)
    else:
        _show_run(folder, as_json)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A scaffold's folder or name, RUN:DIGEST or RUN:seed.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another; a RUN alone is the agent it ended with.")],
    as_json: Json = False,
) -> None:
    """What changed from one agent to another; a run's revisions bring reasons and evidence along.

    Example: recreate diff seed runs/swe-20260101-120000
    """
    from recreate import scaffold as scaffolds

    where = workspace()
    before, after = find_agent(a, where), find_agent(b, where)
    text = scaffolds.diff(before, after)
    if not as_json:
        if text:
            sys.stdout.write(text)
        else:
            say("the files are the same")
        return
    named = [named_run(x.rpartition(":")[0] or x, where) for x in (a, b)]
    newest = sorted((where / "runs").glob("*/settings.toml"), key=lambda p: p.stat().st_mtime, reverse=True)
    runs = [r for r in named if r] or [p.parent for p in newest[:RUNS]]
    edits, verdict = _between(before, after, runs)
    emit(
        {
            "a": {"name": before.name, "digest": before.digest},
            "b": {"name": after.name, "digest": after.digest},
            "edits": edits,
            "verdict": verdict,
            "diff": text,
        }
    )


# ------------------------------------------------------------------------------------------- agents and runs


def _revision(record: Mapping[str, Any]) -> Any:
    from recreate.types import Revision

    return Revision.model_validate(record["revision"])


def _fate(kept: bool) -> str:
    return "kept   " if kept else "dropped"


def _status(run: Any) -> str:
    """done | budget as the build ended, else running or stopped; `ended` for a bench, which has no end to miss."""
    import fcntl

    try:
        with (run.folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        pass
    except OSError:
        return "running"
    if not (run.folder / "seed").is_dir():
        return "ended"
    end = run.end()
    return str(end["status"]) if end else "stopped"


def _validation(run: Any, seed: Any, final: str) -> Any:
    """The gate's words on seed against result, from the scores in the journal; None while there are not both."""
    from recreate.judge import judge

    if seed is None or not final or final == seed.digest:
        return None
    sides: dict[str, dict[tuple[str, int], float | None]] = {seed.digest: {}, final: {}}
    for record in run.records("experience"):
        if record["split"] == "validation" and record["scaffold"] in sides:
            sides[record["scaffold"]][record["task"], record["repeat"]] = record["score"]
    if not all(sides.values()):
        return None
    return judge(sides[seed.digest], sides[final], alpha=run.settings.gate.alpha, seed=run.settings.seed)


def _attempts(run: Any) -> dict[str, dict[str, int]]:
    """Attempts by split: how many ended, how many passed."""
    found: dict[str, dict[str, int]] = {}
    for record in run.records("experience"):
        split = found.setdefault(record["split"], {"attempts": 0, "passed": 0})
        split["attempts"] += 1
        split["passed"] += bool(record["passed"])
    return found


def _show_run(folder: Path, as_json: bool) -> None:
    from recreate import scaffold as scaffolds
    from recreate.report import revision_record, say_verdict
    from recreate.run import Run

    run = Run(folder)
    status, revisions, settings = _status(run), run.revisions(), run.settings
    seed = scaffolds.load(folder / "seed") if (folder / "seed" / "agent.toml").is_file() else None
    final = next((r.id for r in reversed(revisions) if r.kept), seed.digest if seed else "")
    verdict, spend, aside, attempts = _validation(run, seed, final), run.spend(), run.aside(), _attempts(run)
    start: dict[str, Any] = next(iter(run.records("start")), {})
    if as_json:
        emit(
            {
                "run": str(folder),
                "status": status,
                "settings": settings.model_dump(mode="json"),
                "model": start.get("model", settings.model),
                "sandbox": start.get("sandbox", settings.sandbox),
                "seed": {"name": seed.name, "digest": seed.digest} if seed else None,
                "scaffold": {"digest": final} if final else None,
                "validation": verdict.model_dump(mode="json") if verdict else None,
                "attempts": attempts,
                "revisions": [revision_record(r) for r in revisions],
                "spend": spend.record(),
                "set_aside": aside,
            }
        )
        return
    show(f"run        {here(folder)} ({status})")
    show(
        f"settings   domain {settings.domain}, model {start.get('model') or settings.model or '?'}, optimizer "
        f"{settings.optimizer}, sandbox {start.get('sandbox') or settings.sandbox or '?'}, seed {settings.seed}"
    )
    show(
        f"           {settings.rounds} rounds, {settings.train} train and {settings.validation} validation tasks x "
        f"{settings.repeats}, {settings.jobs} at once, budget {' '.join(settings.budget) or 'no cap'}"
    )
    if seed:
        show(f"started    from {seed.name} ({seed.digest}), now {final}")
    counts = [f"{n['attempts']} {split} ({n['passed']} passed)" for split, n in attempts.items()]
    show(f"attempts   {', '.join(counts) or 'none has ended'}" + (f", {len(aside)} set aside" if aside else ""))
    total = spend.total
    show(
        f"spent      {total.calls} calls, {total.tokens_in + total.tokens_out:,} tokens, ${total.usd:.4f}, "
        f"{spend.minutes:.1f} min"
    )
    if verdict:
        show(f"validation {say_verdict(verdict)}")
    for number, revision in enumerate(revisions, 1):
        show()
        show(f"{number}. {_fate(revision.kept).strip()} {revision.id}, from {revision.parent}")
        _show_edits(revision)
    for row in aside:
        show(f"set aside: {row['task']} (repeat {row['repeat']}, {row['phase']}): {row['fault']}")
    if status in ("stopped", "budget"):
        say(f"recreate resume {here(folder)} goes on")


def _show_edits(revision: Any) -> None:
    from recreate.report import say_verdict

    show(f"   {say_verdict(revision.verdict)}")
    for edit in revision.edits:
        cited = ", ".join(f"{e.experience} step {e.step}" for e in edit.evidence)
        show(f"   {edit.path}: {edit.reason or 'no reason given'} ({edit.origin}{': ' + cited if cited else ''})")
    for fault in revision.faults:
        show(f"   not used: {fault}")


def _show_revision(folder: Path, text: str, as_json: bool) -> None:
    from recreate import scaffold as scaffolds
    from recreate.history import History
    from recreate.report import revision_record
    from recreate.run import Run

    revisions = Run(folder).revisions()
    found = [r for r in revisions if r.id.startswith(text)]
    if len(found) != 1:
        raise BadInput(
            f"{len(found)} revisions of {here(folder)} begin with {text!r}",
            fix=f"there are: {', '.join(r.id for r in revisions) or 'none'}",
            code="no-revision",
        )
    history = History(folder / "scaffold.git")
    changed = scaffolds.diff(history.read(found[0].parent), history.read(found[0].id))
    if as_json:
        emit({**revision_record(found[0]), "diff": changed})
        return
    show(f"{_fate(found[0].kept).strip()} {found[0].id}, from {found[0].parent}, round {found[0].round + 1}")
    _show_edits(found[0])
    show()
    show(changed.rstrip("\n"))


def _show_agent(agent: Any, as_json: bool) -> None:
    settings = agent.agent
    if as_json:
        emit(
            {
                "name": agent.name,
                "digest": agent.digest,
                "agent": settings.model_dump(mode="json"),
                "files": [{"path": p, "characters": len(t)} for p, t in sorted(agent.files.items())],
                "tools": [{"name": n, "path": p, "help": agent.help(n)} for n, p in agent.tools.items()],
                "lessons": [x.model_dump(mode="json") for x in agent.lessons],
            }
        )
        return
    show(f"{agent.name} ({agent.digest})" + (f": {settings.description}" if settings.description else ""))
    if settings.parent:
        show(f"made from {settings.parent}" + (f", for {settings.domain}" if settings.domain else ""))
    acts = {
        "bash": "runs one bash command a turn",
        "json": 'answers {"command": ...} each turn, which is run',
    }
    show(f"acts       {acts.get(settings.action, 'hands its whole reply to the tool ' + settings.action[5:])}")
    if settings.before:
        show(f"first      {', '.join(settings.before)} run before the first turn")
    if settings.done:
        show(f"ends       when {settings.done} exits with 0, or it submits")
    if settings.samples > 1:
        chosen = f", the best by {settings.choose}" if settings.choose else ", the first handed in"
        show(f"samples    {settings.samples} independent tries at a task{chosen}")
    limits, model = settings.limits, settings.model
    show(
        f"limits     {limits.steps} steps, {limits.tokens:,} tokens, ${limits.usd:g}, {limits.seconds:g} s; a "
        f"command {limits.command_seconds:g} s, an observation {limits.observation_chars:,} characters"
    )
    asked = [f"{k} {v:g}" for k, v in (("temperature", model.temperature), ("top_p", model.top_p)) if v is not None]
    show(f"model      {', '.join([*asked, f'at most {model.max_tokens} tokens a reply'])}")
    if settings.protect:
        show(f"protected  {', '.join(settings.protect)}")
    show()
    for path, text in sorted(agent.files.items()):
        name = next((n for n, p in agent.tools.items() if p == path), "")
        about = agent.help(name).partition("\n")[0] if name else ""
        show(f"  {path:<36} {len(text):>6} characters" + (f"  {about}" if about else ""))
    for lesson in agent.lessons:
        born = f" (born of {', '.join(lesson.born_of)})" if lesson.born_of else ""
        show(f"\nlesson: {lesson.title}{born}\n  " + lesson.body.replace("\n", "\n  "))


def _between(before: Any, after: Any, runs: Sequence[Path]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The edits that lead from one agent to the other, reasons where a run knows them; the last verdict."""
    from recreate.report import revision_record
    from recreate.run import Run

    for folder in dict.fromkeys(runs):
        by_id = {r.id: r for r in Run(folder).revisions()}
        chain: list[dict[str, Any]] = []
        at = after.digest
        while at in by_id and at != before.digest and len(chain) <= len(by_id):
            chain.append(revision_record(by_id[at]))
            at = by_id[at].parent
        if chain and at == before.digest:
            return [e for r in reversed(chain) for e in r["edits"]], chain[0]["verdict"]
    edits = [
        {
            "path": path,
            "old": before.files.get(path, ""),
            "new": after.files.get(path, ""),
            "reason": "",
            "origin": None,  # nobody wrote down who made this change
            "evidence": [],
        }
        for path in sorted({*before.files, *after.files})
        if before.files.get(path) != after.files.get(path)
    ]
    return edits, None


# -------------------------------------------------------------------------------------------------- traces

Domain = Annotated[str, typer.Option("--domain", help="Of one domain.")]
SplitOption = Annotated[str, typer.Option("--split", help="train, validation or test.")]
Passed = Annotated[bool | None, typer.Option("--passed/--failed", help="Only those.")]
TaskOption = Annotated[str, typer.Option("--task", help="Of one task.")]


@traces.command("list")
def traces_list(
    run: Annotated[str, typer.Argument(help="A run folder or `last`; default: the workspace's memory.")] = "",
    domain: Domain = "",
    split: SplitOption = "",
    passed: Passed = None,
    task: TaskOption = "",
    as_json: Json = False,
) -> None:
    """List attempts: of a run, or of everything that was lived through in this workspace.

    Example: recreate traces list last --failed --split train
    """
    filters = _filters(domain, split, passed, task)
    where, told = workspace(), 0
    if as_json:
        for experience in _experiences(run, filters, where):
            emit(trace_record(experience))
        return
    for row in _rows(run, filters, where):
        told += 1
        mark = "passed" if row["passed"] else "failed"
        show(
            f"{row['id']}  {mark} {row['score']:.2f}  {row['split']:<10}  {row['ending']:<9}  "
            f"{row['steps']:>3} steps  {row['task']}"
        )
    if not told:
        say("no attempt is like that" if filters else "no attempt has ended here yet")


@traces.command("show")
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


@traces.command("search")
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
    from recreate.memory import Workspace

    memory = Workspace(workspace())
    words = " ".join(text)
    filters = {**_filters(domain, split, passed, task), "grain": ["experience", "step"]}
    hits: dict[str, list[Any]] = {}
    for hit in memory.search(words, filters, k=k):
        hits.setdefault(hit.experience, []).append(hit)
    for id, found in hits.items():
        experience = memory.get(id)
        if experience is None:
            continue
        places = [{"step": hit.step, "text": _around(_place(experience, hit.step), text)} for hit in found]
        if as_json:
            emit({**trace_record(experience), "matches": places})
            continue
        show(f"{id}  {'passed' if experience.grade.passed else 'failed'}  {experience.split}  {experience.task}")
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
        "passed": grade.passed,
        "score": grade.score,
        "prompt": experience.prompt,
        "steps": [s.model_dump(mode="json") for s in trace.steps],
        "answer": trace.answer,
        "usage": trace.usage.model_dump(mode="json"),
        "evidence": grade.evidence,
    }


def _filters(domain: str, split: str, passed: bool | None, task: str) -> dict[str, Any]:
    if split and split not in ("train", "validation", "test"):
        raise BadInput(f"there is no split {split!r}", fix="--split train, validation or test", code="bad-split")
    wanted: dict[str, Any] = {k: v for k, v in (("domain", domain), ("split", split), ("task", task)) if v}
    if passed is not None:
        wanted["passed"] = passed
    return wanted


def _rows(run: str, filters: Mapping[str, Any], where: Path) -> Iterable[dict[str, Any]]:
    """id and facts of the attempts that match, without their steps where memory lists them."""
    from recreate.memory import Workspace

    if not run:
        yield from Workspace(where).facts(filters)
        return
    for e in _experiences(run, filters, where):
        yield {
            "id": e.id,
            "passed": e.grade.passed,
            "score": e.grade.score,
            "split": e.split,
            "ending": e.trace.ending,
            "steps": len(e.trace.steps),
            "task": e.task,
        }


def _experiences(run: str, filters: Mapping[str, Any], where: Path) -> Iterator[Any]:
    """The attempts that match, whole, one in memory at a time."""
    from recreate.gather import read_experience
    from recreate.memory import Workspace
    from recreate.run import Run, find_run

    if not run:
        memory = Workspace(where)
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
    from recreate.memory import Workspace
    from recreate.run import Run, find_run

    if run:
        return Run(find_run(run, where)).experience(id)
    memory = Workspace(where)
    found = memory.get(id)
    if found is not None:
        return found
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
    outcome = "passed" if grade.passed else "failed"
    usage = trace.usage
    show(f"{experience.id}  {outcome} ({grade.score:g})  {experience.task}  ({experience.split})")
    show(
        f"agent {experience.digest} with {trace.model}, repeat {trace.repeat}; {trace.ending}"
        f"{' by the limit on ' + trace.limit if trace.limit else ''}; {usage.calls} calls, "
        f"{usage.tokens_in + usage.tokens_out:,} tokens, ${usage.usd:.4f}"
    )
    if trace.fault:
        show(_red(f"fault of ours: {trace.fault}"))
    show(_head("task"))
    show(_fold(experience.prompt, full))
    for step in trace.steps:
        sample = f", sample {step.sample}" if trace.steps[-1].sample else ""
        if step.kind == "before":
            show(_head(f"step {step.step}{sample}: {step.action} ran before the first turn", _wrong(step)))
        else:
            show(_head(f"step {step.step}{sample}", _wrong(step)))
            show(_fold(step.reply, full))
        if step.action and step.action not in step.reply and step.kind != "before":
            show(f"$ {_fold(step.action, full)}")
        if step.output:
            show("->")
            show(_fold(step.output, full))
    if trace.answer:
        show(_head("handed in"))
        show(_fold(trace.answer, full))
    show(_head(f"grade: {outcome} ({grade.score:g})", "" if grade.passed else "failed"))
    show(_fold(grade.evidence, full, 4 * FOLD))


def _wrong(step: Any) -> str:
    if step.kind == "malformed":
        return "the reply could not be read"
    return f"exit status {step.status}" if step.status else ""


def _head(text: str, wrong: str = "") -> str:
    line = f"\n--- {text}"
    return _red(f"{line}  ! {wrong}") if wrong else line


def _red(text: str) -> str:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\033[31m{text}\033[0m"


def _fold(text: str, full: bool, limit: int = FOLD) -> str:
    """Head and tail of a long text, and how much was left out between; control characters are spelled out."""
    text = _CONTROL.sub(lambda m: repr(m[0])[1:-1], text.rstrip().replace("\r\n", "\n"))
    if full or len(text) <= limit:
        return text
    head, tail = text[: limit * 2 // 3], text[-limit // 3 :]
    return f"{head}\n[... {len(text) - len(head) - len(tail):,} characters; --full shows them ...]\n{tail}"


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

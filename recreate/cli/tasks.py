"""tasks list, check, and grade: what is asked, whether it holds, how it is graded."""

from __future__ import annotations

import itertools
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from recreate.api.errors import UNSOUND, BadInput, CheckFailed, Fault, Interrupted
from recreate.api.shapes import JsonDict, JsonMap
from recreate.cli.options import (
    DATA,
    JUDGE,
    SELECT,
    Json,
    SandboxName,
    open_backend,
    split_of,
    with_settings,
)
from recreate.cli.terminal import answer, answers, bar, say
from recreate.runs.settings import Settings

if TYPE_CHECKING:
    from recreate.api.ports import Domain, Rated, Sandbox, SandboxBackend
    from recreate.api.types import Task
    from recreate.domains.validate import Proof

Done = TypeVar("Done")
Given = TypeVar("Given")

LARGEST = 20_000_000
"""Bytes of one file that `grade --dir` puts into the sandbox."""

DomainName = Annotated[
    str,
    typer.Argument(
        metavar="DOMAIN",
        help=(
            "A built-in, installed or module:Class domain, or one of rows; default: that of --data."
        ),
    ),
]
RATER = {
    "scaffold": (
        "With --difficulty: the agent whose pass rates count; default: the domain's seed agent."
    ),
    "model": "With --difficulty: the model whose pass rates count.",
}
SplitOption = Annotated[str, typer.Option("--split", help="train, validation or test only.")]


@with_settings(*DATA, *SELECT, "scaffold", "model", words=RATER)
def list_(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    domain: DomainName = "",
    split: SplitOption = "",
    as_json: Json = False,
) -> None:
    """List the tasks of a domain: id, split, the group that is never split, and how often it was
    passed.

    Example: recreate tasks list swe --split train --kind real
    """
    from recreate.builder.selection import rates_of
    from recreate.sandboxes import named_backend

    part = domain_of(domain, settings, typed, where, named_backend(settings.sandbox))
    domain = domain or part.name
    tasks = _selected(part, split, settings, where)
    rated = rates_of(part, where)
    rows = (
        (
            {**task_record(task), "prompt": task.prompt, "rates": _rates(task, rated)},
            line_of_task(task, rated),
        )
        for task in tasks
    )
    answers(as_json, rows, f"{domain} has no {split} tasks".replace("  ", " "))


@with_settings(*DATA, *JUDGE, "budget", *SELECT, "scaffold", "model", words=RATER)
def check(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    domain: DomainName = "",
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Only this one; repeatable.")
    ] = None,
    split: SplitOption = "",
    shuffled: Annotated[
        int,
        typer.Option(
            "--shuffled", help="So many tasks are also handed another one's gold answer.", min=0
        ),
    ] = 10,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", help="Tasks at once; default: one a processor, 8 at most.", min=1, max=64
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Also what held when this check was interrupted; else it goes on."
        ),
    ] = False,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> int:
    """Validate each task: its gold answer passes and breaks no test that passed untouched; the
    untouched state, an empty answer and another task's gold fail. Exits 4 when one does not hold.
    After Ctrl-C the same command goes on.

    Example: recreate tasks check swe --split validation --jobs 2
    """
    from recreate.api.ports import extras

    backend = open_backend(sandbox)
    part = domain_of(domain, settings, typed, where, backend)
    domain = domain or part.name
    tasks = _selected(part, split, settings, where)
    if task:
        tasks = [_one(tasks, id) for id in dict.fromkeys(task)]
    refused = extras(part).refused() if not task and not split else ()
    if not tasks and not refused:
        raise BadInput(
            f"{domain} has no {split} tasks to check".replace("  ", " "),
            fix=f"recreate tasks list {domain} shows what there is",
            code="no-tasks",
        )
    for name, why in refused:
        answer(as_json, _unusable(name, why), f"NONE   {name}\n       {why}")
    jobs = jobs or min(8, len(os.sched_getaffinity(0)))
    done: list[Proof] = []
    try:
        with open_judge(part, settings, where) as asking:
            for proof in _prove(asking, tasks, shuffled, backend, jobs, again, done):
                if proof.gold is None and proof is done[0]:
                    _refuse_without_gold(part, tasks)
                answer(as_json, proof.model_dump(mode="json"), _tell_proof(proof))
    except KeyboardInterrupt:
        wrong = sum(not proof.ok for proof in done)
        raise Interrupted(
            f"{len(done)} of {len(tasks)} tasks were checked, {wrong} wrong",
            fix="the same command goes on with the others" if extras(part).grader else "",
        ) from None
    bad = [proof.reason for proof in done if not proof.ok]
    say(f"{len(done) - len(bad)} of {len(done) + len(refused)} tasks hold")
    reasons = Counter(map(_kind, [*(why for _, why in refused), *bad]))
    for why, count in reasons.most_common():
        say(f"{count:>5}  {why}")
    if done:
        disk = sum(proof.disk_mb or 0 for proof in done)
        on_disk = f", {disk / len(done):.0f} MB on the disk, {disk:.0f} in all" if disk else ""
        say(f"{sum(proof.seconds for proof in done) / len(done):.1f} s a task{on_disk}")
    return CheckFailed.exit_code if bad or refused else 0


def _refuse_without_gold(part: Domain, tasks: Sequence[Task]) -> None:
    """Raise BadInput (`no-gold`) where no task has a right answer: a column was not named."""
    from recreate.api.ports import Validatable

    last = None
    if not isinstance(part, Validatable):
        return
    for task in tasks:
        try:
            part.gold(task)
            return
        except (BadInput, Fault) as e:
            if e.code != "no-gold":
                return
            last = e
    if last is not None:
        why = f"no task of {part.name} has a right answer to check with"
        raise BadInput(why, fix=last.fix, code="no-gold")


def _prove(
    part: Domain,
    tasks: Sequence[Task],
    shuffled: int,
    backend: SandboxBackend,
    jobs: int,
    again: bool,
    done: list[Proof],
) -> Iterator[Proof]:
    """Yield the proof of each task as it is made, and put it into `done`: those that held before an
    earlier check was interrupted first, unless `again`."""
    from recreate.api.types import digest
    from recreate.domains.validate import open_check_log, pair_golds, read_proofs, validate

    swapped = pair_golds(tasks, shuffled)
    log = open_check_log(part, tasks, swapped, backend)
    before = {} if again else read_proofs(part, log)
    if before:
        held = f"{len(before)} of {len(tasks)} held before this check was interrupted"
        say(f"going on: {held} (--again: those too)")
    left = [t for t in tasks if t.id not in before]
    if jobs > 1:  # long and short ones mixed: what is left is then told by what is done
        left.sort(key=lambda t: digest(t.id))

    def prove(one: Task) -> Proof:
        proof = validate(part, one, backend, swapped.get(one.id))
        log.append(proof.model_dump(mode="json"))  # here: also what is in hand at Ctrl-C is kept
        return proof

    with log, bar("checking", len(left)) as tell:
        for proof in itertools.chain(before.values(), run_each(left, prove, jobs)):
            done.append(proof)
            yield proof
            if proof.task not in before:
                wrong = sum(not proof.ok for proof in done)
                tell(f", {wrong} wrong" * bool(wrong))
    log.path.unlink(missing_ok=True)


def _unusable(name: str, why: str) -> JsonDict:
    """Return the row of a task that is none."""
    unknown = dict.fromkeys(("group", "split", "digest", "gold", "untouched"))
    return {"task": name, **unknown, "ok": False, "reason": why, "seconds": 0.0}


def _tell_proof(proof: Proof) -> str:
    on_disk = f"  {proof.disk_mb:.0f} MB" if proof.disk_mb is not None else ""
    text = f"{'ok   ' if proof.ok else 'WRONG'}  {proof.task}  {proof.seconds:.1f} s{on_disk}"
    why = "" if proof.ok else "\n" + proof.reason.strip()
    return text + why.replace("\n", "\n       ")


@with_settings(*DATA, *JUDGE, "budget")
def grade(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    domain: DomainName = "",
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="A task's id; recreate tasks list shows them.")
    ] = "",
    patch: Annotated[
        Path | None, typer.Option("--patch", help="A file with the diff to grade; - reads stdin.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="A folder whose files are put over the task's.")
    ] = None,
    reply: Annotated[str | None, typer.Option("--answer", help="The answer as text.")] = None,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> None:
    """Grade an answer to a task, as an agent's would be; no model is asked.

    Example: recreate grade swe swe:parse-1.20.1:1 --patch fix.diff
    """
    from recreate.api.types import Trace

    if sum(x is not None for x in (patch, folder, reply)) != 1:
        raise BadInput(
            "give one answer to grade", fix="--patch FILE, --dir DIR or --answer TEXT", code="usage"
        )
    if not task:  # DOMAIN may be left out with --data
        domain, task = "", domain
    if not task:
        raise BadInput("which task?", fix="recreate grade DOMAIN TASK --answer TEXT", code="usage")
    backend = open_backend(sandbox)
    part = domain_of(domain, settings, typed, where, backend)
    wanted = _one(list(part.tasks()), task)
    if patch is not None:
        text = _read(patch)
    if folder is not None:
        text = _collect(part, wanted, folder, backend)
    elif reply is not None:
        text = reply
    trace = Trace(attempt="grade", task=wanted.id, scaffold="", model="", answer=text)
    try:
        with open_judge(part, settings, where) as asking:
            found = asking.grade(wanted, trace, backend)
    except Fault as e:
        if e.code != UNSOUND:
            raise
        # the task's own, so the user's to mend
        raise BadInput(e.message, fix=e.fix, code=e.code) from None
    answer(
        as_json,
        {
            "task": wanted.id,
            "score": found.score,
            "passed": found.passed,
            "evidence": found.evidence,
        },
        f"{'passed' if found.passed else 'failed'} ({found.score:g})",
        found.evidence.rstrip(),
    )


# ---------------------------------------------------------------------------------------------
# their parts


@contextmanager
def open_judge(part: Domain, settings: Settings, where: Path) -> Iterator[Domain]:
    """Open the judge of a domain that asks one, and yield the domain with it; what that cost is
    said at the end."""
    from recreate.cli.runner import prepare_model
    from recreate.runs.alone import judging

    with judging(settings, where, part, prepare_model) as (asking, ledger):
        before = ledger.spent if ledger else None
        yield asking
        if ledger is not None and before is not None:
            calls = ledger.spent.calls - before.calls
            usd = ledger.spent.usd - before.usd
            say(
                f"the judge was asked {calls} times, ${usd:.4f}:"
                f" runs/judge-{part.name}/ledger.jsonl"
            )


def domain_of(
    name: str,
    settings: Settings,
    typed: JsonMap,
    where: Path,
    backend: SandboxBackend | None = None,
) -> Domain:
    """Return the domain that a command names, or means by its data. Of another one than the
    settings', what they say of data counts only where it was typed."""
    from recreate.api import registry
    from recreate.runs.opening import open_domain as of_settings

    if not name and not settings.data:
        raise BadInput(
            "which domain?",
            fix="name it: recreate tasks list swe; or give rows: --data FILE --score SCORER",
            code="usage",
        )
    if name in ("", settings.domain):
        return _fit(of_settings(settings, where, backend))
    given = {key: typed.get(key, "") for key in ("data", "repos", "prompt", "score")}
    given["data"] = settings.data if given["data"] else ""  # as a whole path
    given["score"] = settings.score if given["score"] else ""
    columns = {
        key.partition(".")[2]: str(value)
        for key, value in typed.items()
        if key.startswith("columns.")
    }
    return _fit(registry.open_domain(name, where, backend=backend, columns=columns, **given))


def _fit(part: Domain) -> Domain:
    """Return the domain, whose tasks were looked at. Raises BadInput that names what is wrong."""
    from recreate.api.registry import fit_tasks

    fit_tasks(part)
    return part


def _kind(reason: str) -> str:
    """Return what reasons have in common that differ in a name or a number: their beginning,
    without either."""
    return re.sub(r"[\w/.-]*\d[\w/.-]*", "...", reason.partition("\n")[0].partition(":")[0])[:100]


def _selected(part: Domain, split: str, settings: Settings, where: Path) -> list[Task]:
    """Return the tasks of a split that the flags choose; what there is to say of the choice is
    said."""
    from recreate.builder.selection import Rater, seed_of, select
    from recreate.models import default_model

    tasks = _of_split(part, split)
    if not settings.select.is_given:
        return tasks
    rater = Rater("", "", settings.model)
    if settings.select.difficulty:
        model = settings.model or default_model()[0]
        seed = seed_of(settings, part.name, where, model)
        rater = Rater(seed.name, seed.digest, model)
    found = select(part, settings.select, where, rater)
    for text in found.told:
        say(text)
    return found.of(tasks)


def _rates(task: Task, rated: Rated) -> list[JsonDict]:
    own = {"task", "digest", "each", "schema_"}
    return [rate.model_dump(mode="json", exclude=own) for rate in rated.pass_rates(task)]


def _of_split(part: Domain, split: str) -> list[Task]:
    return list(part.tasks(split_of(split)))


def _one(tasks: Sequence[Task], id: str) -> Task:
    """Return the task of an id, or of its beginning. Raises BadInput with the near ones."""
    from recreate.builder.selection import find_task

    return find_task(tasks, id)


def spread_tasks(tasks: Sequence[Task], count: int) -> list[Task]:
    """Return the first of each group, then what is left, `count` in all."""
    first = {task.group: task for task in reversed(tasks)}
    return sorted(tasks, key=lambda task: first[task.group].id != task.id)[:count]


def line_of_task(task: Task, rated: Rated | None = None) -> str:
    """Return a task in a line, with how often it was passed where that is known."""
    known = rated.pass_rates(task) if rated else ()
    rates = ", ".join(f"{r.passed}/{r.attempts} by {r.scaffold}" for r in known)
    passed = f"  passed {rates}" if rates else ""
    return f"{task.split:<10}  {task.id}  (group {task.group}){passed}"


def task_record(task: Task) -> JsonDict:
    """Return a task as JSON; what only `tasks check` finds out is null."""
    unproven = dict.fromkeys(("gold", "untouched", "ok", "reason", "seconds"))
    known = {key: getattr(task, key) for key in ("group", "split", "digest", "canary")}
    return {"task": task.id, **known, **unproven}


def run_each(tasks: Sequence[Given], work: Callable[[Given], Done], jobs: int) -> Iterator[Done]:
    """Yield the results as they come, `jobs` at a time; stopping early starts nothing more."""
    yield from map(work, tasks) if jobs == 1 else at_once(tasks, work, jobs)


def at_once(tasks: Sequence[Given], work: Callable[[Given], Done], jobs: int) -> Iterator[Done]:
    """Yield the same in threads, so that Ctrl-C lets what was begun end, also where there is
    one."""
    from concurrent.futures import ThreadPoolExecutor, as_completed

    pool = ThreadPoolExecutor(jobs, thread_name_prefix="check")
    try:
        for future in as_completed([pool.submit(work, task) for task in tasks]):
            yield future.result()
    except KeyboardInterrupt:
        say("stopping as soon as what is in hand is done")
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _read(patch: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(patch) == "-" else patch.read_bytes()
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        fix = "name a file with a diff"
        raise BadInput(f"{patch}: {why}", fix=fix, code="no-patch") from None


def _collect(part: Domain, task: Task, folder: Path, backend: SandboxBackend) -> str:
    """Return what the domain would collect from a sandbox whose files are the task's with the
    folder's over them."""
    if not folder.is_dir():
        raise BadInput(
            f"{folder} is not a folder", fix="name the folder with the solution", code="no-folder"
        )
    sandbox = part.prepare(task, backend)
    try:
        for path, data, mode in _files(folder):
            try:
                _replace(sandbox, path, data, mode)
            except BadInput as e:
                say(f"passed over: {e.message}")
        return str(part.collect(task, sandbox))
    finally:
        sandbox.close()


def _replace(sandbox: Sandbox, path: str, data: bytes, mode: int) -> None:
    """Write a file, also where a folder is, or below what is a file. Raises BadInput for a path
    that cannot be."""
    try:
        sandbox.write(path, data, mode)
    except BadInput:
        parts = path.split("/")
        above = ["/".join(parts[:n]) for n in range(1, len(parts))]
        sandbox.run(["rm", "-f", "--", *above])  # which takes no folder
        sandbox.run(["rm", "-rf", "--", path])
        sandbox.write(path, data, mode)


def _files(folder: Path) -> Iterable[tuple[str, bytes, int]]:
    """Yield (path, bytes, mode) of the plain files of a folder. Links are never followed; they and
    what cannot be read are passed over, so that whoever made the folder cannot stop its grading."""
    waiting = [folder]
    while waiting:
        top = waiting.pop()
        try:
            entries = sorted(os.scandir(top), key=lambda entry: entry.name)
        except OSError as e:
            say(f"passed over, {e.strerror}: {top}")
            continue
        for entry in entries:
            path = top / entry.name
            if entry.is_dir(follow_symlinks=False):
                waiting += [path] if entry.name not in (".git", "__pycache__") else []
                continue
            try:
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as e:
                say(f"passed over, {'it is a link' if entry.is_symlink() else e.strerror}: {path}")
                continue
            with os.fdopen(handle, "rb") as file:
                kind = os.fstat(handle)
                if not stat.S_ISREG(kind.st_mode):
                    say(f"passed over, it is no plain file: {path}")
                elif kind.st_size > LARGEST:
                    say(f"passed over, it has {kind.st_size:,} bytes: {path}")
                else:
                    executable = 0o755 if kind.st_mode & 0o100 else 0o644
                    yield path.relative_to(folder).as_posix(), file.read(LARGEST), executable

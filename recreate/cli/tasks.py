"""tasks list, check, audit, make, and grade: what is asked, whether it holds and how it is graded, without a model."""

from __future__ import annotations

import inspect
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from recreate.api.errors import BadInput, CheckFailed
from recreate.api.paths import workspace
from recreate.cli.options import Json, SandboxName, open_backend, split_of
from recreate.cli.terminal import answer, answers, say

if TYPE_CHECKING:
    from recreate.api.ports import Domain, Sandbox, SandboxBackend
    from recreate.api.types import Task

Done = TypeVar("Done")
Given = TypeVar("Given")

LARGEST = 20_000_000
"""Bytes of one file that `grade --dir` puts into the sandbox."""

DomainName = Annotated[str, typer.Argument(metavar="DOMAIN", help="A built-in, installed or module:Class domain.")]
Data = Annotated[Path | None, typer.Option("--data", help="A file or folder of tasks in place of the domain's own.")]
SplitOption = Annotated[str, typer.Option("--split", help="train, validation or test only.")]


def list_(domain: DomainName, split: SplitOption = "", data: Data = None, as_json: Json = False) -> None:
    """List the tasks of a domain: id, split, and the group that is never split.

    Example: recreate tasks list swe --split train
    """
    tasks = _of_split(open_domain(domain, data), split)
    rows = (({**_row(task), "prompt": task.prompt}, _line(task)) for task in tasks)
    answers(as_json, rows, f"{domain} has no {split} tasks".replace("  ", " "))


def check(
    domain: DomainName,
    data: Data = None,
    repos: Annotated[
        Path | None, typer.Option("--repos", help="A folder of repositories, for domains that work on clones.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option("--task", help="Only this one; repeatable.")] = None,
    split: SplitOption = "",
    jobs: Annotated[int, typer.Option("--jobs", help="Tasks at once.", min=1, max=64)] = 1,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> int:
    """Validate each task: its gold answer passes, the untouched state fails. Exits 4 when one does not hold.

    Example: recreate tasks check swe --split validation
    """
    from recreate.domains.validate import validate

    part = open_domain(domain, data, repos)
    tasks = _of_split(part, split)
    if task:
        tasks = [_one(tasks, id) for id in dict.fromkeys(task)]
    if not tasks:
        raise BadInput(
            f"{domain} has no {split} tasks to check".replace("  ", " "),
            fix=f"recreate tasks list {domain} shows what there is",
            code="no-tasks",
        )
    backend = open_backend(sandbox)
    wrong = done = 0
    for proof in _each(tasks, lambda t: validate(part, t, backend), jobs):
        done += 1
        wrong += not proof.ok
        text = f"{'ok   ' if proof.ok else 'WRONG'}  {proof.task}  {proof.seconds:.1f} s"
        why = "" if proof.ok else "\n" + proof.reason.strip()
        answer(as_json, proof.model_dump(mode="json"), text + why.replace("\n", "\n       "))
        if as_json and sys.stderr.isatty():
            say(f"{done}/{len(tasks)} checked, {wrong} wrong")
    say(f"{done - wrong} of {done} tasks hold")
    return CheckFailed.exit_code if wrong else 0


def audit(
    domain: DomainName,
    data: Data = None,
    split: SplitOption = "",
    tasks: Annotated[int, typer.Option("--tasks", help="How many, of as many groups as there are.", min=1)] = 1,
    task: Annotated[list[str] | None, typer.Option("--task", help="Only this one; repeatable.")] = None,
    exploit: Annotated[list[str] | None, typer.Option("--exploit", help="Only this one; repeatable.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Exploits at once.", min=1, max=64)] = 1,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> int:
    """Attack the domain's grader with answers that leave a task unsolved. Exits 4 when one passes, or stops it.

    Example: recreate tasks audit swe --tasks 2
    """
    from recreate.domains import audit as audit_

    part = open_domain(domain, data)
    known = _of_split(part, split)
    chosen = [_one(known, id) for id in dict.fromkeys(task)] if task else _spread(known, tasks)
    if not chosen:
        raise BadInput(
            f"{domain} has no {split} tasks to audit".replace("  ", " "),
            fix=f"recreate tasks list {domain} shows what there is",
            code="no-tasks",
        )
    pairs = [(one, name, text) for one in chosen for name, text in audit_.answers(part, one).items()]
    names = list(dict.fromkeys(name for _, name, _ in pairs))
    if unknown := [name for name in exploit or () if name not in names]:
        raise BadInput(
            f"{domain} has no exploit {unknown[0]}", fix=f"one of: {', '.join(names)}", code="unknown-exploit"
        )
    pairs = [pair for pair in pairs if not exploit or pair[1] in exploit]
    backend = open_backend(sandbox)
    done: list[audit_.AuditResult] = []
    for outcome in _each(pairs, lambda pair: audit_.audit(part, *pair, backend), jobs):
        done.append(outcome)
        word = "held  " if outcome.held else "STOPS " if outcome.fault else "PASSES"
        say(f"{len(done)}/{len(pairs)}  {word}  {outcome.exploit}  {outcome.task}  {outcome.seconds:.1f} s")
        if outcome.fault:
            say(f"        {outcome.fault.strip().splitlines()[0]}")
    passed = [o for o in done if not o.held and not o.fault]
    stopped = [o for o in done if o.fault]
    answer(
        as_json,
        {
            "domain": part.name,
            "tasks": [one.id for one in chosen],
            "exploits": len({o.exploit for o in done}),
            "graded": len(done),
            "passed": [o.model_dump(mode="json", exclude={"evidence", "fault"}) for o in passed],
            "stopped": [o.model_dump(mode="json", exclude={"evidence", "passed"}) for o in stopped],
            "rate": round(len(passed) / len(done), 4),
        },
        *(f"{'stops ' if o.fault else 'passes'}  {o.exploit}  {o.task}" for o in (*passed, *stopped)),
        f"{len({o.exploit for o in done})} exploits at {len(chosen)} tasks: {len(passed)} pass, {len(stopped)} stop"
        " the grading",
    )
    return CheckFailed.exit_code if passed or stopped else 0


def make(
    domain: DomainName,
    package: Annotated[str, typer.Option("--package", metavar="NAME==VERSION", help="A release on the index.")] = "",
    repo: Annotated[Path | None, typer.Option("--repo", help="A repository of yours.")] = None,
    n: Annotated[int, typer.Option("--n", "-n", help="How many.", min=1)] = 10,
    seed: Annotated[int, typer.Option("--seed", help="Which ones.")] = 0,
    split: Annotated[
        str, typer.Option("--split", help="Of all of them; default: train and validation by module.")
    ] = "",
    requires: Annotated[list[str] | None, typer.Option("--requires", help="What the tests need; repeatable.")] = None,
    tests: Annotated[list[str] | None, typer.Option("--tests", help="Where the tests are; repeatable.")] = None,
    python_path: Annotated[list[str] | None, typer.Option("--python-path", help="Put on sys.path; repeatable.")] = None,
    module: Annotated[list[str] | None, typer.Option("--module", help="Only bugs in this file; repeatable.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="The file to write; default: the workspace's.")] = None,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> None:
    """Make new tasks: bugs injected into a package or a repository, kept when a few of its own tests notice.

    Example: recreate tasks make swe --package parse==1.20.2 --n 5
    """
    from recreate.api.ports import TaskGenerator
    from recreate.api.registry import find

    found = find("domain", domain)
    generator = open_domain(domain) if isinstance(found, TaskGenerator) else sys.modules[found.__module__]
    if not isinstance(generator, TaskGenerator):  # a module's own function `make` does too
        raise BadInput(
            f"the domain {domain} makes no tasks",
            fix="recreate tasks make swe --package NAME==VERSION",
            code="no-maker",
        )
    name, pinned, version = package.partition("==")
    if bool(package) == bool(repo) or (package and not (name.strip() and pinned and version.strip())):
        raise BadInput(
            f"--package {package!r} is not NAME==VERSION" if package and not repo else "name one source of tasks",
            fix="--package NAME==VERSION, or --repo PATH",
            code="no-source",
        )
    result = generator.make(
        package=name.strip() or None,
        version=version.strip() or None,
        repo=repo,
        n=n,
        seed=seed,
        split=split_of(split),
        requires=tuple(requires or ()),
        tests=tuple(tests or ()),
        python_path=tuple(python_path or ()),
        modules=tuple(module or ()),
        file=data,
        backend=open_backend(sandbox),
        on_progress=say,
    )
    answers(as_json, (({**_row(task), "file": str(result.file)}, _line(task)) for task in result.tasks))
    say(f"{len(result.tasks)} tasks of {result.tried} bugs tried, written to {result.file}")
    say(f"recreate tasks check {domain} validates them")


def grade(
    domain: DomainName,
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task's id; recreate tasks list shows them.")],
    patch: Annotated[Path | None, typer.Option("--patch", help="A file with the diff to grade; - reads stdin.")] = None,
    folder: Annotated[Path | None, typer.Option("--dir", help="A folder whose files are put over the task's.")] = None,
    reply: Annotated[str | None, typer.Option("--answer", help="The answer as text.")] = None,
    data: Data = None,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> None:
    """Grade an answer to a task, as an agent's would be; no model is asked.

    Example: recreate grade swe swe:parse-1.20.1:1 --patch fix.diff
    """
    from recreate.api.types import Trace

    if sum(x is not None for x in (patch, folder, reply)) != 1:
        raise BadInput("give one answer to grade", fix="--patch FILE, --dir DIR or --answer TEXT", code="usage")
    part = open_domain(domain, data)
    wanted = _one(list(part.tasks()), task)
    if patch is not None:
        text = _read(patch)
    backend = open_backend(sandbox)
    if folder is not None:
        text = _collected(part, wanted, folder, backend)
    elif reply is not None:
        text = reply
    trace = Trace(attempt="grade", task=wanted.id, scaffold="", model="", answer=text)
    found = part.grade(wanted, trace, backend)
    answer(
        as_json,
        {"task": wanted.id, "score": found.score, "passed": found.passed, "evidence": found.evidence},
        f"{'passed' if found.passed else 'failed'} ({found.score:g})",
        found.evidence.rstrip(),
    )


# --------------------------------------------------------------------------------------------- their parts


def open_domain(name: str, data: Path | None = None, repos: Path | None = None) -> Domain:
    """The domain by name, given what it takes of: the workspace, --data, --repos."""
    from recreate.api import registry

    if data is not None and not data.exists():
        raise BadInput(f"there is no {data}", fix="name a file or folder of tasks", code="no-tasks-file")
    if repos is not None and not repos.is_dir():
        raise BadInput(f"{repos} is not a folder", fix="name a folder of repositories", code="no-repos")
    takes = inspect.signature(registry.find("domain", name)).parameters
    offered = {"workspace": workspace(), "data": data, "repos": repos}
    for flag, value in (("data", data), ("repos", repos)):
        if value is not None and flag not in takes:
            raise BadInput(f"the domain {name} takes no --{flag}", fix="leave it out", code="usage")
    domain: Domain = registry.open("domain", name, **{k: v for k, v in offered.items() if v is not None})
    return domain


def _of_split(part: Domain, split: str) -> list[Task]:
    return list(part.tasks(split_of(split)))


def _one(tasks: Sequence[Task], id: str) -> Task:
    """The task of an id. Raises BadInput with the near ones."""
    from recreate.builder.sdk import unknown_task

    for task in tasks:
        if task.id == id:
            return task
    raise unknown_task(id, [task.id for task in tasks])


def _spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """The first of each group, then what is left, `count` in all."""
    first = {task.group: task for task in reversed(tasks)}
    return sorted(tasks, key=lambda task: first[task.group].id != task.id)[:count]


def _line(task: Task) -> str:
    return f"{task.split:<10}  {task.id}  (group {task.group})"


def _row(task: Task) -> dict[str, Any]:
    """A task as JSON; what only `tasks check` finds out is null."""
    unproven = dict.fromkeys(("gold", "untouched", "ok", "reason", "seconds"))
    return {"task": task.id, "group": task.group, "split": task.split, "digest": task.digest, **unproven}


def _each(tasks: Sequence[Given], work: Callable[[Given], Done], jobs: int) -> Iterator[Done]:
    """The results as they come, `jobs` at a time; stopping early starts nothing more."""
    if jobs == 1:
        yield from map(work, tasks)
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed

    pool = ThreadPoolExecutor(jobs, thread_name_prefix="check")
    try:
        for future in as_completed([pool.submit(work, task) for task in tasks]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _read(patch: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(patch) == "-" else patch.read_bytes()
        return data.decode("utf-8")
    except OSError as e:
        raise BadInput(f"{patch}: {e.strerror}", fix="name a file with a diff", code="no-patch") from None
    except UnicodeDecodeError:
        raise BadInput(f"{patch} is not UTF-8 text", fix="name a file with a diff", code="no-patch") from None


def _collected(part: Domain, task: Task, folder: Path, backend: SandboxBackend) -> str:
    """What the domain would collect from a sandbox whose files are the task's with the folder's over them."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder", fix="name the folder with the solution", code="no-folder")
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
    """Write a file, also where a folder is, or below what is a file. Raises BadInput for a path that cannot be."""
    try:
        sandbox.write(path, data, mode)
    except BadInput:
        parts = path.split("/")
        above = ["/".join(parts[:n]) for n in range(1, len(parts))]
        sandbox.run(["rm", "-f", "--", *above])  # which takes no folder
        sandbox.run(["rm", "-rf", "--", path])
        sandbox.write(path, data, mode)


def _files(folder: Path) -> Iterable[tuple[str, bytes, int]]:
    """(path, bytes, mode) of the plain files of a folder. Links are never followed; they and what cannot be read are
    passed over, so that whoever made the folder cannot stop its grading."""
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

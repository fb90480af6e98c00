"""tasks make swe: bugs injected into a package or a repository, and real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.cli.options import Json, SandboxName, open_backend, split_of
from recreate.cli.tasks import line_of_task, task_record
from recreate.cli.terminal import answers, say
from recreate.domains.python_env import read_environment

if TYPE_CHECKING:
    from recreate.plugins.swe_tasks.generate import MadeTasks

DealtSplit = Annotated[
    str, typer.Option("--split", help="Of all of them; default: train and validation by module.")
]


IndexBefore = Annotated[
    str,
    typer.Option(
        "--index-before", metavar="DATE", help="Install what the index had before that day."
    ),
]


Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="A variable of the tests; repeatable."),
]


Hard = Annotated[
    bool, typer.Option("--hard", help="Bugs of several statements, whose failure shows elsewhere.")
]


Undo = Annotated[
    list[str] | None,
    typer.Option(
        "--undo", metavar="OLD..NEW", help="Hard: a hunk between two earlier releases; repeatable."
    ),
]


ReleasePairs = Annotated[
    list[str] | None,
    typer.Option(
        "--releases",
        metavar="NAME==A..B",
        help="Real bugs that B mends; or a file of them; repeatable.",
    ),
]


def make(
    package: Annotated[
        str, typer.Option("--package", metavar="NAME==VERSION", help="A release on the index.")
    ] = "",
    repo: Annotated[Path | None, typer.Option("--repo", help="A repository of yours.")] = None,
    n: Annotated[int, typer.Option("--n", "-n", help="How many.", min=1)] = 10,
    seed: Annotated[int, typer.Option("--seed", help="The random seed: which ones.")] = 0,
    split: DealtSplit = "",
    requires: Annotated[
        list[str] | None, typer.Option("--requires", help="What the tests need; repeatable.")
    ] = None,
    python: Annotated[
        str, typer.Option("--python", help="The Python they run on, like 3.9; default: this one.")
    ] = "",
    pytest: Annotated[
        str, typer.Option("--pytest", help="The version of pytest, like 7.4.4.")
    ] = "",
    index_before: IndexBefore = "",
    env: Variables = None,
    tests: Annotated[
        list[str] | None, typer.Option("--tests", help="Where the tests are; repeatable.")
    ] = None,
    python_path: Annotated[
        list[str] | None, typer.Option("--python-path", help="Put on sys.path; repeatable.")
    ] = None,
    module: Annotated[
        list[str] | None, typer.Option("--module", help="Only bugs in this file; repeatable.")
    ] = None,
    hard: Hard = False,
    undo: Undo = None,
    releases: ReleasePairs = None,
    history: Annotated[
        bool, typer.Option("--history", help="Real bugs that commits of --repo mend.")
    ] = False,
    since: Annotated[
        str, typer.Option("--since", metavar="DATE", help="Of --history: no older commits.")
    ] = "",
    model: Annotated[str, typer.Option("--model", help="Writes the texts of real bugs.")] = "",
    data: Annotated[
        Path | None, typer.Option("--data", help="The file to write; default: the workspace's.")
    ] = None,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> None:
    """Make tasks of software engineering: bugs injected into a package or a repository, kept when a
    few of its own tests notice; or real ones, that a later release or a commit mends, one behaviour
    a task.

    Example: recreate tasks make swe --package parse==1.20.2 --n 5

    Example: recreate tasks make swe --package sqlparse==0.5.3 --hard --undo 0.4.3..0.4.4

    Example: recreate tasks make swe --releases click==8.3.2..8.3.3

    Example: recreate tasks make swe --repo . --history --since 2026-01-01
    """
    name, version = _release(package, repo, releases or ())
    if (history or since) and not repo:
        raise BadInput(
            "--history is that of a repository", fix="--repo PATH --history", code="usage"
        )
    environment = {
        "python": python,
        "pytest": pytest,
        "index_before": index_before,
        "env": _variables(env or ()),
        "requires": tuple(requires or ()),
    }
    made = make_tasks(
        package=name,
        version=version,
        repo=repo,
        n=n,
        seed=seed,
        split=split_of(split),
        wanted=read_environment(environment),
        tests=tuple(tests or ()),
        python_path=tuple(python_path or ()),
        modules=tuple(module or ()),
        hard=hard,
        undo=[_pair(each) for each in undo or ()],
        releases=list(releases or ()),
        history=history or bool(since),
        since=since,
        ask=_ask(model) if model else None,
        file=data,
        backend=open_backend(sandbox),
        on_progress=say,
    )
    rows = (({**task_record(t), "file": str(made.file)}, line_of_task(t)) for t in made.tasks)
    answers(as_json, rows)
    say(f"{len(made.tasks)} tasks of {made.tried} bugs tried, written to {made.file}")
    say("recreate tasks check swe validates them")


def make_tasks(**options: Any) -> MadeTasks:
    """Make tasks of bugs that releases or a repository's history mended (`releases.make`), else of
    injected ones (`generate.make`)."""
    from recreate.plugins.swe_tasks import generate, releases

    mended = options.pop("history", False) or options.get("releases")
    make = releases.make if mended else generate.make
    taken = signature(make).parameters
    return make(**{name: value for name, value in options.items() if name in taken})


def _release(
    package: str, repo: Path | None, releases: Sequence[str]
) -> tuple[str | None, str | None]:
    """(name, version) of --package, None each without one. Raises BadInput (`no-source`)."""
    name, pinned, version = package.partition("==")
    several = sum(map(bool, (package, repo, releases))) != 1
    if several or (package and not (name.strip() and pinned and version.strip())):
        raise BadInput(
            (
                "name one source of tasks"
                if several
                else f"--package {package!r} is not NAME==VERSION"
            ),
            fix="--package NAME==VERSION, --repo PATH or --releases NAME==A..B",
            code="no-source",
        )
    return name.strip() or None, version.strip() or None


def _variables(pairs: Sequence[str]) -> dict[str, str]:
    """What --env sets."""
    if unset := [pair for pair in pairs if not pair.partition("=")[1]]:
        raise BadInput(f"--env {unset[0]!r} sets nothing", fix="--env NAME=VALUE", code="usage")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def _pair(text: str) -> tuple[str, str]:
    old, dots, new = text.partition("..")
    if not (old.strip() and dots and new.strip()):
        raise BadInput(f"--undo {text!r} is not OLD..NEW", fix="--undo 0.4.3..0.4.4", code="usage")
    return old.strip(), new.strip()


def _ask(model: str) -> Callable[[str], str]:
    """A model as a function of a text."""
    from recreate.api.types import Call, digest
    from recreate.models import open_model

    opened = open_model(model)

    def ask(text: str) -> str:
        call = Call(run="tasks-make", attempt=digest(text), step=0)
        return opened.reply([{"role": "user", "content": text}], call, max_tokens=8_000).text

    return ask

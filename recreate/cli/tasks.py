"""tasks list, check, audit, agree, make, invent, rate, and grade: what is asked, whether it holds,
how it is graded."""

from __future__ import annotations

import inspect
import itertools
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from recreate.api.errors import UNSOUND, BadInput, CheckFailed, Fault, Interrupted, OutOfBudget
from recreate.api.paths import memory as memory_folder
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.cli.options import (
    DATA,
    JUDGE,
    SELECT,
    Json,
    SandboxName,
    open_backend,
    open_run,
    split_of,
    with_settings,
)
from recreate.cli.terminal import answer, answers, bar, say
from recreate.runs.settings import Settings

if TYPE_CHECKING:
    from recreate.api.ports import Domain, Rated, Sandbox, SandboxBackend, TaskGenerator
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
Generator = Annotated[
    str,
    typer.Option(
        "--generator",
        metavar="FOLDER",
        help="A program that prints tasks, for a new DOMAIN of rows.",
    ),
]
Learner = Annotated[
    list[str] | None,
    typer.Option(
        "--from", metavar="RUN", help="Of --generator: attempts that tell the levels; repeatable."
    ),
]
SolveRate = Annotated[
    float | None,
    typer.Option(
        "--solve-rate",
        help="Of --generator: make levels that are solved so often.",
        min=0.01,
        max=0.99,
    ),
]


@with_settings(*DATA, *SELECT, "scaffold", "model", words=RATER)
def list_(
    settings: Settings,
    where: Path,
    typed: Mapping[str, Any],
    domain: DomainName = "",
    split: SplitOption = "",
    as_json: Json = False,
) -> None:
    """List the tasks of a domain: id, split, the group that is never split, and how often it was
    passed.

    Example: recreate tasks list swe --split train --kind real
    """
    from recreate.builder.selection import rates_of
    from recreate.sandboxes import named

    part = domain_of(domain, settings, typed, where, named(settings.sandbox))
    domain = domain or part.name
    tasks, rated = _selected(part, split, settings, where), rates_of(part, where)
    rows = (
        ({**_row(task), "prompt": task.prompt, **_rates(task, rated)}, _line(task, rated))
        for task in tasks
    )
    answers(as_json, rows, f"{domain} has no {split} tasks".replace("  ", " "))


@with_settings(*DATA, *JUDGE, "budget", *SELECT, "scaffold", "model", words=RATER)
def check(
    settings: Settings,
    where: Path,
    typed: Mapping[str, Any],
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
    backend = open_backend(sandbox)
    part = domain_of(domain, settings, typed, where, backend)
    with judged(part, settings, where) as asking:
        return _check(
            asking,
            domain or part.name,
            settings,
            where,
            task,
            split,
            shuffled,
            jobs,
            again,
            backend,
            as_json,
        )


def _check(
    part: Domain,
    domain: str,
    settings: Settings,
    where: Path,
    task: Sequence[str] | None,
    split: str,
    shuffled: int,
    jobs: int | None,
    again: bool,
    backend: SandboxBackend,
    as_json: bool,
) -> int:
    from recreate.api.ports import Refusing, Versioned
    from recreate.api.types import digest
    from recreate.domains.validate import exchanged, proved, unfinished, validate

    tasks = _selected(part, split, settings, where)
    if task:
        tasks = [_one(tasks, id) for id in dict.fromkeys(task)]
    refused = part.refused() if isinstance(part, Refusing) and not task and not split else ()
    if not tasks and not refused:
        raise BadInput(
            f"{domain} has no {split} tasks to check".replace("  ", " "),
            fix=f"recreate tasks list {domain} shows what there is",
            code="no-tasks",
        )
    swapped = exchanged(tasks, shuffled)
    wrong = done = 0
    seconds = disk = 0.0
    whys: Counter[str] = Counter(_kind(why) for _, why in refused)
    for name, why in refused:
        answer(as_json, _unusable(name, why), f"NONE   {name}\n       {why}")
    log = unfinished(part, tasks, swapped, backend)
    before = {} if again else proved(part, log)
    if before:
        say(
            f"going on: {len(before)} of {len(tasks)} held before this check was interrupted"
            " (--again: those too)"
        )
    jobs = jobs or min(8, len(os.sched_getaffinity(0)))
    left = [t for t in tasks if t.id not in before]
    if jobs > 1:  # long and short ones mixed: what is left is then told by what is done
        left.sort(key=lambda t: digest(t.id))

    def proof_of(one: Task) -> Proof:
        found = validate(part, one, backend, swapped.get(one.id))
        log.append(found.model_dump(mode="json"))  # here: also what is in hand at Ctrl-C is kept
        return found

    try:
        with log, bar("checking", len(left)) as tell:
            for proof in itertools.chain(before.values(), _each(left, proof_of, jobs)):
                done += 1
                wrong += not proof.ok
                whys[_kind(proof.reason)] += not proof.ok
                disk += proof.disk_mb or 0
                seconds += proof.seconds
                answer(as_json, proof.model_dump(mode="json"), _proof_told(proof))
                if proof.task not in before:
                    tell(f", {wrong} wrong" * bool(wrong))
    except KeyboardInterrupt:
        fix = "the same command goes on with the others" if isinstance(part, Versioned) else ""
        raise Interrupted(
            f"{done} of {len(tasks)} tasks were checked, {wrong} wrong", fix=fix
        ) from None
    log.path.unlink(missing_ok=True)
    say(f"{done - wrong} of {done + len(refused)} tasks hold")
    for why, count in whys.most_common():
        if count:
            say(f"{count:>5}  {why}")
    if done:
        on_disk = f", {disk / done:.0f} MB on the disk, {disk:.0f} in all" if disk else ""
        say(f"{seconds / done:.1f} s a task{on_disk}")
    return CheckFailed.exit_code if wrong or refused else 0


def _unusable(name: str, why: str) -> dict[str, Any]:
    """The row of a task that is none."""
    unknown = dict.fromkeys(("group", "split", "digest", "gold", "untouched"))
    return {"task": name, **unknown, "ok": False, "reason": why, "seconds": 0.0}


def _proof_told(proof: Proof) -> str:
    on_disk = f"  {proof.disk_mb:.0f} MB" if proof.disk_mb is not None else ""
    text = f"{'ok   ' if proof.ok else 'WRONG'}  {proof.task}  {proof.seconds:.1f} s{on_disk}"
    why = "" if proof.ok else "\n" + proof.reason.strip()
    return text + why.replace("\n", "\n       ")


@with_settings(*DATA)
def rate(
    settings: Settings,
    where: Path,
    typed: Mapping[str, Any],
    run: Annotated[
        list[str],
        typer.Option("--from", metavar="RUN", help="A run with finished attempts; repeatable."),
    ],
    domain: DomainName = "",
    name: Annotated[
        str, typer.Option("--model", help="Write the rates under this name of the model.")
    ] = "",
    file: Annotated[
        Path | None, typer.Option("--out", help="The file to write; default: the workspace's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write down how often tasks were passed, from the attempts of runs: what --difficulty goes by.

    Example: recreate tasks rate swe --from last
    """
    from recreate.builder.past import read_rates
    from recreate.domains import rates

    part = domain_of(domain, settings, typed, where)
    domain, beside = domain or part.name, Path(typed.get("data", ""))
    folder = where / "benchmarks" / part.name
    if "data" in typed and not (folder / "domain.toml").is_file() and beside.exists():
        folder = beside if beside.is_dir() else beside.parent
    place = file or folder / rates.RATES
    found = [each for one in run for each in read_rates(open_run(one), part, name)]
    if not found:
        raise BadInput(
            f"{' and '.join(run)} holds no graded attempt at a task of {domain} as it is now",
            fix=f"recreate bench --domain {domain} --scaffold NAME --repeats 3 makes some",
            code="no-attempts",
        )
    tasks, new = rates.add(place, found)
    rows = [each.model_dump(mode="json", exclude={"each"}) for each in found]
    answer(
        as_json,
        {"file": str(place), "tasks": tasks, "new": new, "rates": rows},
        *(f"{r.passed}/{r.attempts}  {r.task}  ({r.scaffold} with {r.model})" for r in found),
        f"{new} attempts are new; {here(place)} has rates of {tasks} tasks",
    )


@with_settings(*DATA, *JUDGE, "budget")
def audit(
    settings: Settings,
    where: Path,
    typed: Mapping[str, Any],
    domain: DomainName = "",
    split: SplitOption = "",
    tasks: Annotated[
        int, typer.Option("--tasks", help="How many, of as many groups as there are.", min=1)
    ] = 1,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Only this one; repeatable.")
    ] = None,
    exploit: Annotated[
        list[str] | None, typer.Option("--exploit", help="Only this one; repeatable.")
    ] = None,
    each: Annotated[
        int,
        typer.Option(
            "--each", help="So many at a task, dealt round; default: all at every task.", min=0
        ),
    ] = 0,
    jobs: Annotated[int, typer.Option("--jobs", help="Exploits at once.", min=1, max=64)] = 1,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> int:
    """Attack the domain's grader with answers that leave a task unsolved. Exits 4 when one passes,
    or stops it.

    Example: recreate tasks audit swe --tasks 2

    Example: recreate tasks audit swe --tasks 100 --each 2 --jobs 2
    """
    from recreate.plugins.audit import audit as audit_

    backend = open_backend(sandbox)
    part = domain_of(domain, settings, typed, where, backend)
    domain = domain or part.name
    known = _of_split(part, split)
    chosen = [_one(known, id) for id in dict.fromkeys(task)] if task else _spread(known, tasks)
    if not chosen:
        raise BadInput(
            f"{domain} has no {split} tasks to audit".replace("  ", " "),
            fix=f"recreate tasks list {domain} shows what there is",
            code="no-tasks",
        )
    pairs = _attacks(part, chosen, exploit or (), each, domain)
    done: list[audit_.AuditResult] = []
    with judged(part, settings, where) as asking, bar("attacking", len(pairs)) as tell:
        for outcome in _each(pairs, lambda pair: audit_.audit(asking, *pair, backend), jobs):
            done.append(outcome)
            word = "held  " if outcome.held else "STOPS " if outcome.fault else "PASSES"
            say(
                f"{len(done)}/{len(pairs)}  {word}  {outcome.exploit}  {outcome.task} "
                f" {outcome.seconds:.1f} s"
            )
            if outcome.fault:
                say(f"        {outcome.fault.strip().splitlines()[0]}")
            tell("")
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
        *(
            f"{'stops ' if o.fault else 'passes'}  {o.exploit}  {o.task}"
            for o in (*passed, *stopped)
        ),
        f"{len({o.exploit for o in done})} exploits at {len(chosen)} tasks: {len(passed)} pass,"
        f" {len(stopped)} stop the grading",
    )
    return CheckFailed.exit_code if passed or stopped else 0


def _attacks(
    part: Domain, tasks: Sequence[Task], exploits: Sequence[str], each: int, domain: str
) -> list[tuple[Task, str, str]]:
    """(task, the exploit's name, its answer) of all that is to be graded; exploits: only these,
    unless there are none. Raises BadInput (`unknown-exploit`)."""
    from recreate.plugins.audit import audit as audit_

    pairs: list[tuple[Task, str, str]] = []
    names: list[str] = []
    for number, one in enumerate(tasks):
        own = audit_.answers(part, one)
        names += own
        wanted = [name for name in own if not exploits or name in exploits]
        pairs += [(one, name, own[name]) for name in audit_.dealt(wanted, number, each)]
    if unknown := [name for name in exploits if name not in names]:
        raise BadInput(
            f"{domain} has no exploit {unknown[0]}",
            fix=f"one of: {', '.join(dict.fromkeys(names))}",
            code="unknown-exploit",
        )
    return pairs


def make(
    domain: DomainName,
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
    source: Generator = "",
    learner: Learner = None,
    solve_rate: SolveRate = None,
    scaffold: Annotated[
        str, typer.Option("--scaffold", help="Of --from: the agent whose attempts count.")
    ] = "",
    data: Annotated[
        Path | None, typer.Option("--data", help="The file to write; default: the workspace's.")
    ] = None,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> int:
    """Make new tasks: bugs injected into a package or a repository, kept when a few of its own
    tests notice; real ones, that a later release or a commit mends, one behaviour a task; or those
    of a generator, each kept when its verifier tells right from wrong. Exits 4 when a generator
    gives none.

    Example: recreate tasks make swe --package parse==1.20.2 --n 5

    Example: recreate tasks make swe --package sqlparse==0.5.3 --hard --undo 0.4.3..0.4.4

    Example: recreate tasks make swe --releases click==8.3.2..8.3.3

    Example: recreate tasks make swe --repo . --history --since 2026-01-01

    Example: recreate tasks make bills --generator bills --n 30

    Example: recreate tasks make bills --generator bills --n 20 --from last --solve-rate 0.5
    """
    if source:
        if package or repo or releases or history or since or hard or undo:
            raise BadInput(
                "--generator is a source of its own",
                fix="leave the other sources out",
                code="usage",
            )
        rows = _Generated(domain, source, n, seed, split, data, open_backend(sandbox))
        return rows.make(tuple(learner or ()), solve_rate, scaffold, as_json)
    if learner or solve_rate is not None or scaffold:
        raise BadInput(
            "--from, --solve-rate and --scaffold are of --generator",
            fix="--generator FOLDER",
            code="usage",
        )
    generator = _maker(domain)
    name, version = _release(package, repo, releases or ())
    if (history or since) and not repo:
        raise BadInput(
            "--history is that of a repository", fix="--repo PATH --history", code="usage"
        )
    asked: dict[str, Any] = {"python": python, "pytest": pytest, "index_before": index_before}
    asked |= {
        "variables": _variables(env or ()),
        "hard": hard,
        "undo": [_pair(each) for each in undo or ()],
    }
    asked |= {"releases": list(releases or ()), "history": history or bool(since), "since": since}
    asked |= {"ask": _ask(model) if model else None}
    given = {
        "package": name,
        "version": version,
        "repo": repo,
        "n": n,
        "seed": seed,
        "split": split_of(split),
    }
    given |= {
        "requires": tuple(requires or ()),
        "tests": tuple(tests or ()),
        "python_path": tuple(python_path or ()),
    }
    given |= {
        "modules": tuple(module or ()),
        "file": data,
        "backend": open_backend(sandbox),
        "on_progress": say,
    }
    _make(
        domain, generator, given, {name: value for name, value in asked.items() if value}, as_json
    )
    return 0


INVENT = {
    "model": "Who writes it: a strong one, litellm:PROVIDER/NAME or openai:URL#MODEL.",
    "price": "IN,OUT in USD per million tokens, where the price of --model is unknown.",
}


@with_settings("model", "price", "models.timeout", "models.threads", "budget", words=INVENT)
def invent(
    settings: Settings,
    where: Path,
    about: Annotated[
        str,
        typer.Argument(metavar="ABOUT", help="What the tasks are to be about, in a few sentences."),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="The folder of the generator; it must not be there yet.")
    ],
    like: Annotated[
        str,
        typer.Option(
            "--like", metavar="DOMAIN", help="Show the model three train tasks of this domain."
        ),
    ] = "",
    repairs: Annotated[
        int,
        typer.Option(
            "--repairs", help="How often it is told what is wrong, and asked again.", min=0, max=50
        ),
    ] = 3,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> None:
    """Have a model write a generator of tasks, of three levels, for `tasks make --generator`: its
    program is run in sandboxes, and kept when tasks of every level hold. What does not goes back to
    the model with the reason. After Ctrl-C the same command goes on, and no reply is paid twice.
    Exits 4 when none holds.

    Example: recreate tasks invent "Two stock lists that disagree; the rule that settles it has to
    be inferred" --model gpt-5 --budget 2usd --out stock
    """
    from recreate.api.types import digest
    from recreate.cli.runner import ready
    from recreate.models import default_model
    from recreate.plugins.generators import generator, invention
    from recreate.runs.session import writer_alone

    backend = open_backend(sandbox or settings.sandbox)
    generator.refuse_no_walls(backend)
    if not about.strip():
        raise BadInput(
            "what are the tasks to be about?",
            fix='recreate tasks invent "..." --out FOLDER',
            code="usage",
        )
    if os.path.lexists(out):
        fix = f"recreate tasks make {out.name} --generator {out}, if that is it; or another --out"
        raise BadInput(f"{out} is there already", fix=fix, code="out-exists")
    spec, note = (settings.model, "") if settings.model else default_model()
    if note:
        say(note)
    asked = invention.question(about, _like(like, where) if like else ())
    folder = where / "runs" / f"invent-{out.name}-{digest([asked, spec], 8)}"
    again = "the same command goes on, and asks for no reply twice"
    settings = settings.model_copy(update={"model": spec})
    with writer_alone(settings, folder, "invent", ready, **invention.PARAMS) as writer:
        before = writer.ledger.spent.calls
        try:
            made = invention.invent(
                asked,
                ask=writer.ask,
                repairs=repairs,
                replies=folder,
                out=out.absolute(),
                header=f"Written by {writer.model} for: {about}",
                backend=backend,
                say=say,
            )
        except KeyboardInterrupt:
            raise Interrupted(f"what was written so far is in {here(folder)}", fix=again) from None
        except OutOfBudget as e:
            raise OutOfBudget(e.message, fix=f"{again}: --budget MORE") from None
        finally:
            calls, usd = writer.ledger.spent.calls, writer.ledger.spent.usd
            say(f"{calls - before} calls, {calls} in all, ${usd:.4f}: {here(folder)}/ledger.jsonl")
        record = {
            "generator": str(made.folder),
            "replies": made.replies,
            "model": writer.model,
            "folder": str(folder),
        }
        record["spend"] = writer.ledger.record()
    samples = {row["level"]: row for row in reversed(made.tasks)}
    answer(
        as_json,
        {
            **record,
            "tasks": [
                {key: row[key] for key in ("level", "seed", "prompt", "answer")}
                for row in made.tasks
            ],
        },
        f"{here(made.folder)} is a generator of {len(samples)} levels; it took {made.replies}"
        " replies",
        *(
            f"  level {level}: {' '.join(str(row['prompt']).split())[:300]}"
            for level, row in sorted(samples.items())
        ),
        f"next: recreate tasks make {out.name} --generator {out} --n 30, and read some: what is"
        " checked finds neither a question that means two things nor an answer that is slightly"
        " wrong",
    )


def _like(domain: str, where: Path) -> list[str]:
    """What three train tasks of a domain ask, none of them held out. Raises BadInput where there is
    none."""
    from recreate.memory.held_out import HeldOut

    held, part = HeldOut(memory_folder(where)), open_domain(domain)
    tasks = _spread(held.usable(part, "train")[0], 3)
    if not tasks:
        raise held.refuse_empty(part, "train")
    return [task.prompt for task in tasks]


def _make(
    domain: str,
    generator: TaskGenerator,
    given: Mapping[str, Any],
    asked: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Make the tasks. given: what every generator takes; asked: what was typed besides, which it
    may not know."""
    takes = inspect.signature(generator.make).parameters
    every = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    if unknown := [name for name in asked if not every and name not in takes]:
        flag = {"variables": "env", "ask": "model"}.get(unknown[0], unknown[0]).replace("_", "-")
        raise BadInput(f"the domain {domain} takes no --{flag}", fix="leave it out", code="usage")
    result = generator.make(**given, **asked)
    answers(
        as_json, (({**_row(task), "file": str(result.file)}, _line(task)) for task in result.tasks)
    )
    say(f"{len(result.tasks)} tasks of {result.tried} bugs tried, written to {result.file}")
    say(f"recreate tasks check {domain} validates them")


def _maker(domain: str) -> TaskGenerator:
    """What makes tasks of the domain. Raises BadInput (`no-maker`)."""
    from recreate.api.ports import TaskGenerator
    from recreate.api.registry import find

    found = find("domain", domain)
    generator = (
        open_domain(domain) if isinstance(found, TaskGenerator) else sys.modules[found.__module__]
    )
    if not isinstance(generator, TaskGenerator):  # a module's own function `make` does too
        raise BadInput(
            f"the domain {domain} makes no tasks",
            fix="recreate tasks make swe --package NAME==VERSION",
            code="no-maker",
        )
    return generator


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


@with_settings(*DATA, *JUDGE, "budget")
def grade(
    settings: Settings,
    where: Path,
    typed: Mapping[str, Any],
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
        text = _collected(part, wanted, folder, backend)
    elif reply is not None:
        text = reply
    trace = Trace(attempt="grade", task=wanted.id, scaffold="", model="", answer=text)
    try:
        with judged(part, settings, where) as asking:
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


@with_settings(*DATA, *JUDGE, "budget")
def agree(
    settings: Settings,
    where: Path,
    typed: Mapping[str, Any],
    labels: Annotated[
        Path,
        typer.Option(
            "--labels", help="Answers that people have labelled: rows of task, answer and label."
        ),
    ],
    domain: DomainName = "",
    jobs: Annotated[int, typer.Option("--jobs", help="Answers at once.", min=1, max=64)] = 4,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> None:
    """Say how far a domain's grader, such as a judge, agrees with people: on answers that they have
    labelled.

    A label is true or false, or a score from 0 to 1. At least 20 answers are needed.

    Example: recreate tasks agree essays --labels labels.jsonl --models.judge gpt-5-mini
    """
    from recreate.api.types import Trace
    from recreate.plugins.judge import judge

    backend = open_backend(sandbox)
    part = domain_of(domain, settings, typed, where, backend)
    known = {task.id: task for task in part.tasks()}
    rows = judge.labelled(str(labels), known)
    pairs: list[tuple[bool, bool]] = []
    differing: list[dict[str, Any]] = []
    unsure = 0
    with judged(part, settings, where) as asking, bar("judging", len(rows)) as tell:

        def graded(row: judge.Labelled) -> tuple[judge.Labelled, Any]:
            trace = Trace(attempt="agree", task=row.task, scaffold="", model="", answer=row.answer)
            try:
                return row, asking.grade(known[row.task], trace, backend)
            except Fault as e:
                if e.code != UNSOUND:
                    raise
                return row, None

        for row, found in _each(rows, graded, jobs):
            tell("")
            if found is None:
                unsure += 1
                continue
            pairs.append((found.passed, row.right))
            if found.passed != row.right:
                differing.append(
                    {
                        "row": row.number,
                        "task": row.task,
                        "score": found.score,
                        "evidence": found.evidence,
                    }
                )
    made = judge.agreement(pairs)
    differing.sort(key=lambda each: int(each["row"]))
    kappa = (
        "kappa is not defined: one side says the same of all"
        if made.kappa is None
        else (f"kappa {made.kappa:.2f} [{made.lo:.2f}, {made.hi:.2f}]")
    )
    answer(
        as_json,
        {
            **made.model_dump(mode="json", exclude={"schema_"}),
            "no_verdict": unsure,
            "differing": differing,
        },
        f"{made.agreement:.0%} of {made.n} answers, {kappa}"
        + (f"; {unsure} had no verdict" if unsure else ""),
        f"both right {made.both}   both wrong {made.neither}   only the grader passes"
        f" {made.grader_only}   only people do {made.people_only}",
        *(
            f"  row {each['row']}  {each['task']}  {each['score']:g}  {each['evidence'][:200]}"
            for each in differing[:10]
        ),
    )


# ---------------------------------------------------------------------------------------------
# their parts


@contextmanager
def judged(part: Domain, settings: Settings, where: Path) -> Iterator[Domain]:
    """The domain, with its judge where it asks one; what that cost is said at the end."""
    from recreate.cli.runner import ready
    from recreate.runs.session import judging

    with judging(settings, where, part, ready) as (asking, ledger):
        before = ledger.spent if ledger else None
        yield asking
        if ledger is not None and before is not None:
            calls, usd = ledger.spent.calls - before.calls, ledger.spent.usd - before.usd
            say(
                f"the judge was asked {calls} times, ${usd:.4f}:"
                f" runs/judge-{part.name}/ledger.jsonl"
            )


def _pair(text: str) -> tuple[str, str]:
    old, dots, new = text.partition("..")
    if not (old.strip() and dots and new.strip()):
        raise BadInput(f"--undo {text!r} is not OLD..NEW", fix="--undo 0.4.3..0.4.4", code="usage")
    return old.strip(), new.strip()


@dataclass(frozen=True)
class _Generated:
    """What `tasks make --generator` was asked for."""

    domain: str
    generator: str
    n: int
    seed: int
    split: str
    data: Path | None
    backend: SandboxBackend

    def make(
        self, runs: tuple[str, ...], target: float | None, scaffold: str, as_json: bool
    ) -> int:
        """Make the tasks at the levels that the runs tell of, else at all evenly; 4 where none came
        of it."""
        from recreate.api.plugins import names
        from recreate.plugins.generators import generator, levels

        name, where = self.domain, workspace()
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) or name in names("domain"):
            why = "is a domain of its own" if name in names("domain") else "cannot name a folder"
            raise BadInput(
                f"{name!r} {why}",
                fix="recreate tasks make NAME --generator FOLDER",
                code="bad-name",
            )
        if (target is None) == bool(runs) or (scaffold and not runs):
            raise BadInput(
                "--solve-rate goes by the attempts of a run",
                fix="--from last --solve-rate 0.5",
                code="usage",
            )
        if self.data and self.data.suffix != ".jsonl":
            raise BadInput(
                f"{self.data} is no file of JSON lines", fix="--data FILE.jsonl", code="usage"
            )
        folder, known = generator.find(self.generator)
        rates: list[float] | None = None
        counts, split = levels.even(known.levels, self.n), split_of(self.split)
        if target is not None:
            tried = _by_level(open_domain(name), runs, scaffold, known.levels)
            rates = levels.solve_rates(tried, known.levels)
            counts, split = levels.spread(rates, target, self.n), split or "train"
            for level, rate in enumerate(rates, 1):
                passed, attempts = tried.get(level, (0, 0))
                say(f"level {level}: {passed} of {attempts} attempts passed, expected {rate:.2f}")
        made = generator.make(
            name,
            folder,
            known,
            counts,
            workspace=where,
            file=self.data or where / "benchmarks" / name / "tasks.jsonl",
            seed=self.seed,
            split=split,
            backend=self.backend,
            on_progress=say,
        )
        record = {
            **made.model_dump(mode="json", exclude={"rows", "schema_"}),
            "kept": len(made.rows),
        }
        record |= {
            "levels": Counter(str(row["level"]) for row in made.rows),
            "wanted": counts,
            "solve_rates": rates,
        }
        answer(
            as_json,
            {"domain": name, **record},
            f"{len(made.rows)} tasks of {made.tried} seeds, in {here(made.file)}",
            *(
                f"  refused {count:>3}  {why}: {made.reasons[why]}"
                for why, count in made.refused.items()
            ),
            *[f"next: recreate build --domain {name}"] * bool(made.rows),
        )
        return 0 if made.rows else CheckFailed.exit_code


def _by_level(
    part: Domain, runs: Sequence[str], scaffold: str, levels: int
) -> dict[int, tuple[int, int]]:
    """level -> (attempts that one learner passed, all of them) of train tasks: what other splits
    tell, no task may be made by. Raises BadInput where the runs hold none, or those of several
    learners."""
    from recreate.builder.past import read_rates

    train = {task.id: task for task in part.tasks("train")}
    found = [
        rate
        for one in dict.fromkeys(runs)
        for rate in read_rates(open_run(one), part)
        if rate.task in train
    ]
    found = [
        rate
        for rate in found
        if not scaffold or scaffold == rate.scaffold or rate.agent.startswith(scaffold)
    ]
    if not found:
        raise BadInput(
            f"{' and '.join(runs)} holds no graded attempt of {scaffold or 'an agent'} at a train"
            f" task of {part.name}",
            fix=f"recreate bench --domain {part.name} --split train --scaffold NAME makes some",
            code="no-attempts",
        )
    if len(learners := {(rate.scaffold, rate.agent, rate.model) for rate in found}) > 1:
        told = ", ".join(
            sorted(f"{name} ({agent[:8]}) with {model}" for name, agent, model in learners)
        )
        raise BadInput(
            f"the attempts are of several learners: {told}",
            fix="name one by --scaffold NAME or its digest, and runs of one model",
            code="several-learners",
        )
    tried: dict[int, tuple[int, int]] = {}
    attempts = {id: passed for rate in found for id, passed in rate.each.items()}
    tasks = {id: train[rate.task] for rate in found for id in rate.each}
    for id, passed in attempts.items():
        level = tasks[id].facts.get("row", {}).get("level")
        if isinstance(level, int) and 1 <= level <= levels:
            before = tried.get(level, (0, 0))
            tried[level] = before[0] + passed, before[1] + 1
    return tried


def _ask(model: str) -> Callable[[str], str]:
    """A model as a function of a text."""
    from recreate.api.types import Call, digest
    from recreate.models import open_model

    opened = open_model(model)

    def ask(text: str) -> str:
        call = Call(run="tasks-make", attempt=digest(text), step=0)
        return opened.reply([{"role": "user", "content": text}], call, max_tokens=8_000).text

    return ask


def open_domain(name: str) -> Domain:
    """The domain by name, as this workspace has it."""
    from recreate.api import registry

    return registry.open_domain(name, workspace())


def domain_of(
    name: str,
    settings: Settings,
    typed: Mapping[str, Any],
    where: Path,
    backend: SandboxBackend | None = None,
) -> Domain:
    """The domain that a command names, or means by its data. Of another one than the settings',
    what they say of data counts only where it was typed."""
    from recreate.api import registry
    from recreate.runs.session import open_domain as of_settings

    if not name and not settings.data:
        raise BadInput(
            "which domain?",
            fix="name it: recreate tasks list swe; or give rows: --data FILE --score SCORER",
            code="usage",
        )
    if name in ("", settings.domain):
        return of_settings(settings, where, backend)
    given = {key: typed.get(key, "") for key in ("data", "repos", "prompt", "score")}
    given["data"] = settings.data if given["data"] else ""  # as a whole path
    given["score"] = settings.score if given["score"] else ""
    columns = {
        key.partition(".")[2]: str(value)
        for key, value in typed.items()
        if key.startswith("columns.")
    }
    return registry.open_domain(name, where, backend=backend, columns=columns, **given)


def _kind(reason: str) -> str:
    """What reasons have in common that differ in a name or a number: their beginning, without
    either."""
    return re.sub(r"[\w/.-]*\d[\w/.-]*", "...", reason.partition("\n")[0].partition(":")[0])[:100]


def _selected(part: Domain, split: str, settings: Settings, where: Path) -> list[Task]:
    """The tasks of a split that the flags choose; what there is to say of the choice is said."""
    from recreate.builder.selection import Rater, seed_of, select
    from recreate.models import default_model

    tasks = _of_split(part, split)
    if not settings.select.given:
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


def _rates(task: Task, rated: Rated) -> dict[str, Any]:
    rates = [
        r.model_dump(mode="json", exclude={"task", "digest", "each", "schema_"})
        for r in rated.pass_rates(task)
    ]
    return {"rates": rates}


def _of_split(part: Domain, split: str) -> list[Task]:
    return list(part.tasks(split_of(split)))


def _one(tasks: Sequence[Task], id: str) -> Task:
    """The task of an id, or of its beginning. Raises BadInput with the near ones."""
    from recreate.builder.selection import find_task

    return find_task(tasks, id)


def _spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """The first of each group, then what is left, `count` in all."""
    first = {task.group: task for task in reversed(tasks)}
    return sorted(tasks, key=lambda task: first[task.group].id != task.id)[:count]


def _line(task: Task, rated: Rated | None = None) -> str:
    rates = (
        [f"{r.passed}/{r.attempts} by {r.scaffold}" for r in rated.pass_rates(task)]
        if rated
        else []
    )
    return f"{task.split:<10}  {task.id}  (group {task.group})" + (
        f"  passed {', '.join(rates)}" if rates else ""
    )


def _row(task: Task) -> dict[str, Any]:
    """A task as JSON; what only `tasks check` finds out is null."""
    unproven = dict.fromkeys(("gold", "untouched", "ok", "reason", "seconds"))
    known = {
        "task": task.id,
        "group": task.group,
        "split": task.split,
        "digest": task.digest,
        "canary": task.canary,
    }
    return {**known, **unproven}


def _each(tasks: Sequence[Given], work: Callable[[Given], Done], jobs: int) -> Iterator[Done]:
    """The results as they come, `jobs` at a time; stopping early starts nothing more."""
    yield from map(work, tasks) if jobs == 1 else at_once(tasks, work, jobs)


def at_once(tasks: Sequence[Given], work: Callable[[Given], Done], jobs: int) -> Iterator[Done]:
    """The same in threads, so that Ctrl-C lets what was begun end, also where there is one."""
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
    except OSError as e:
        raise BadInput(
            f"{patch}: {e.strerror}", fix="name a file with a diff", code="no-patch"
        ) from None
    except UnicodeDecodeError:
        raise BadInput(
            f"{patch} is not UTF-8 text", fix="name a file with a diff", code="no-patch"
        ) from None


def _collected(part: Domain, task: Task, folder: Path, backend: SandboxBackend) -> str:
    """What the domain would collect from a sandbox whose files are the task's with the folder's
    over them."""
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
    """(path, bytes, mode) of the plain files of a folder. Links are never followed; they and what
    cannot be read are passed over, so that whoever made the folder cannot stop its grading."""
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

"""What agents did, step by step.

Example: recreate traces list last --failed"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.errors import BadInput, OutOfBudget
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.shapes import JsonDict, JsonMap
from recreate.cli.options import (
    DATA,
    JUDGE,
    Json,
    SandboxName,
    one_of,
    open_backend,
    split_of,
    with_settings,
)
from recreate.cli.terminal import LISTED, answer, bar, emit, say, say_some, show
from recreate.plugins.traces.flags import OfDomain, Passed
from recreate.runs.settings import Settings

if TYPE_CHECKING:
    from recreate.api.ports import Domain
    from recreate.api.types import Experience, Provisional
    from recreate.plugins.traces.ungraded import Ungraded
    from recreate.runs.alone import Alone

DomainName = Annotated[
    str,
    typer.Option("--domain", help="The domain: built in, installed, module:Class or a new name."),
]

_JUDGING = {
    "model": "The model that judges, where --models.judge names none.",
    "models.judge": "The model that judges.",
    "jobs": "Attempts judged at once.",
    "budget": (
        "A hard cap over all that was ever judged so: 5usd, 2Mtokens; repeatable, the first reached"
        " stops."
    ),
}


@with_settings(*DATA)
def import_(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files, or folders to look through.")
    ],
    domain: DomainName,
    format: Annotated[
        str,
        typer.Option("--format", help="A format; auto: recognised by the content of each record."),
    ] = "auto",
    split: Annotated[
        str, typer.Option("--split", help="train, validation or test: what they are recorded as.")
    ] = "train",
    model: Annotated[
        str, typer.Option("--model", help="The model, where a file does not say.")
    ] = "",
    pass_at: Annotated[
        float, typer.Option("--pass-at", help="The score (0..1) from which on it passed.")
    ] = 1.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and say what would come in; write nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take in what agents did under other tools: mini-swe-agent, SWE-agent, inspect_ai, chat JSONL,
    OTel, LangSmith, tau-bench. Where a domain has its tasks from --data or --repos, name them: what
    is held out is known by them.

    Example: recreate traces import trajectories/ --domain swe
    """
    from recreate.memory.store import ExperienceStore
    from recreate.plugins.traces.importer import ImportConfig, import_traces

    name, part = _domain(domain, settings, typed, where)
    tasks = [] if part is None else list(part.tasks())
    last = time.monotonic()

    def progress(taken: Any) -> None:
        nonlocal last
        if time.monotonic() - last > 2:
            last = time.monotonic()
            say(
                f"{taken.files} files, {taken.read} trajectories, {len(taken.bad)} unreadable"
                " records so far"
            )

    config = ImportConfig(name, split_of(split, needed=True), model, pass_at, format)
    memory = ExperienceStore(workspace())
    try:
        taken = import_traces(paths, memory, config, tasks, dry=dry_run, progress=progress)
    finally:
        memory.close()
    if not taken.read:
        first = (
            f": {' '.join(w for w in taken.bad[0][:2] if w)}: {taken.bad[0][2]}"
            if taken.bad
            else ""
        )
        raise BadInput(
            f"no trajectory could be read from {taken.files} files{first}",
            fix=(
                "recreate plugins lists the formats (traces NAME); --format NAME takes"
                " a file for one"
            ),
            code="nothing-read",
        )
    closed = [
        {"experience": i, "task": t, "split": s, "reason": why} for i, t, s, why in taken.closed
    ]
    if as_json:
        counts = {
            k: getattr(taken, k) for k in ("files", "read", "added", "passed", "waiting", "known")
        }
        bad = [{"file": f, "entry": p, "reason": r} for f, p, r in taken.bad]
        rest = {"formats": taken.formats, "experiences": taken.experiences, "dry_run": dry_run}
        emit({"domain": name, **counts, "held_out": closed, "bad": bad, **rest})
        return
    say_some(
        [f"{f'{file} {place}'.strip()}: {reason}" for file, place, reason in taken.bad],
        "like these",
    )
    is_closed = "is closed to optimizers and agents"
    say_some(
        [f"{row['experience']} {is_closed} ({row['split']}): {row['reason']}" for row in closed],
        "are closed",
    )
    formats = ", ".join(f"{n} {form}" for form, n in sorted(taken.formats.items()))
    show(
        f"{'would take in' if dry_run else 'took in'} {taken.added} graded ({taken.passed} passed)"
        f" and {taken.waiting} ungraded; {taken.known} were here already, {len(taken.bad)} records"
        f" could not be read  ({formats})"
    )
    if taken.waiting and not dry_run:
        say(f"recreate traces grade --domain {domain} grades what waits")


@with_settings(*(address for address in DATA if address != "score"))
def grade(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    domain: DomainName,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Which; default: all that wait.")
    ] = None,
    outcomes: Annotated[
        Path | None,
        typer.Option(
            "--outcomes", help="A file of outcomes: SWE-bench's report, {task: score}, or lines."
        ),
    ] = None,
    score: Annotated[
        float | None,
        typer.Option("--score", help="Your own grade, 0..1, of the IDs given.", min=0, max=1),
    ] = None,
    evidence: Annotated[str, typer.Option("--evidence", help="Why, for --score.")] = "",
    pass_at: Annotated[
        float,
        typer.Option("--pass-at", help="The score from which on it passed (not with a grader)."),
    ] = 1.0,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> None:
    """Grade imported attempts that wait for it: by the domain's grader, a file of outcomes, or
    yourself.

    Example: recreate traces grade --domain swe --outcomes report.json
    """
    from recreate.api.types import Grade
    from recreate.memory.store import ExperienceStore
    from recreate.plugins.traces import ungraded

    if score is not None and (not ids or outcomes is not None):
        raise BadInput(
            "--score grades the attempts that you name",
            fix="recreate traces grade ID --score 1",
            code="usage",
        )
    name, part = _domain(domain, settings, typed, where)
    memory = ExperienceStore(workspace())
    store = ungraded.Ungraded(memory)
    waiting = [
        e for e in store.experiences(name) if not ids or any(e.id.startswith(i) for i in ids)
    ]
    if not waiting:
        raise BadInput(
            f"nothing of {name} waits for a grade" + (f" under {', '.join(ids)}" if ids else ""),
            fix="recreate traces list --ungraded shows what does",
            code="no-attempt",
        )
    if score is not None:
        own = Grade(
            score=score,
            passed=score >= pass_at,
            evidence=f"graded by a person: {evidence}".rstrip(": "),
        )
        found: Any = ((e, own, "") for e in waiting)
    elif outcomes is not None:
        rows = ungraded.by_outcomes(waiting, ungraded.outcomes(outcomes), outcomes.name)
        found = (
            (e, g and g.model_copy(update={"passed": g.score >= pass_at}), why)
            for e, g, why in rows
        )
    elif part is None:
        raise BadInput(
            f"no domain is called {domain!r} here, so nothing of it has a grader",
            fix="--outcomes FILE, or grade by hand: recreate traces grade ID --score 1",
            code="unknown-domain",
        )
    else:
        found = ungraded.by_domain(waiting, part, open_backend(sandbox))
    graded = passed = 0
    left: Counter[str] = Counter()
    for e, grade, why in found:
        if grade is None:
            left[why] += 1
        else:
            store.settle(e, grade)
            graded = graded + 1
            passed = passed + grade.passed
        if as_json:
            score_, ok = (grade.score, grade.passed) if grade else (None, None)
            emit({"experience": e.id, "task": e.task, "score": score_, "passed": ok, "reason": why})
    memory.close()
    if not as_json:
        for why, n in left.most_common(LISTED):
            say(f"{n} still wait: {why}")
        show(f"{graded} graded, {passed} of them passed; {sum(left.values())} still wait")


@with_settings(
    "model", *JUDGE, "budget", "jobs", "models.timeout", "models.retries", words=_JUDGING
)
def judge(
    settings: Settings,
    where: Path,
    domain: OfDomain = "",
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Which; default: all that wait.")
    ] = None,
    rubric: Annotated[
        Path | None,
        typer.Option(
            "--rubric", help="What is asked of an attempt, in a file; default: was it done."
        ),
    ] = None,
    pass_at: Annotated[
        float, typer.Option("--pass-at", help="The score from which on it passed.", min=0, max=1)
    ] = 0.7,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help=(
                "Also those that have a provisional grade; a reply that was paid for counts again."
            ),
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Let a model give imported attempts that nobody graded a provisional grade, so that recall
    finds them, marked.

    It is no grade: nothing is promoted, kept, measured or trained by it. `traces grade` replaces it
    by a real one.

    Example: recreate traces judge --domain support --model gpt-5-mini --budget 2usd
    """
    from recreate.cli.runner import prepare_model
    from recreate.cli.tasks import at_once
    from recreate.memory.store import ExperienceStore
    from recreate.plugins.judge.judge import read_rubric
    from recreate.plugins.traces import provisional
    from recreate.plugins.traces.ungraded import Ungraded
    from recreate.runs.alone import judge_alone

    text = provisional.RUBRIC if rubric is None else read_rubric(str(rubric))
    store = Ungraded(ExperienceStore(where))
    every = [
        i
        for i in (e.id for e in store.waiting(domain))
        if not ids or any(i.startswith(each) for each in ids)
    ]
    if not every:
        raise BadInput(
            f"nothing{f' of {domain}' if domain else ''} waits for a grade"
            + (f" under {', '.join(ids)}" if ids else ""),
            fix="recreate traces list --ungraded shows what does",
            code="no-attempt",
        )
    todo = every if again else [i for i in every if i not in store.provisional.read()]
    if not todo:
        say(
            f"all {len(every)} have a provisional grade; --again with another --model or --rubric"
            " asks anew"
        )
        return
    passed = 0
    left = Counter[str]()
    with (
        closing(store),
        judge_alone(settings, where, "traces", prepare_model) as asked,
        bar("judging", len(todo)) as tell,
    ):
        before = asked.ledger.spent
        work = partial(_judge_attempt, store, text, asked, pass_at)
        try:
            for e, found, why in at_once(todo, work, settings.jobs):
                tell("")
                passed += found is not None and found.passed
                left.update([why] if found is None else [])
                if as_json:
                    _emit_judged(e, found, why)
        except OutOfBudget as e:
            raise OutOfBudget(
                e.message, fix="the same command with --budget MORE judges what is left"
            ) from None
        finally:
            calls = asked.ledger.spent.calls - before.calls
            usd = asked.ledger.spent.usd - before.usd
            say(f"the judge was asked {calls} times, ${usd:.4f}: runs/judge-traces/ledger.jsonl")
        if again and not calls:
            say(
                "what this model said before to the same questions was taken; another --model or"
                " --rubric asks anew"
            )
    for why, n in left.most_common(LISTED):
        say(f"{n} have none: {why}")
    if not as_json:
        done = len(todo) - sum(left.values())
        none = sum(left.values())
        show(
            f"{done} graded (provisional, by {asked.model}), {passed} of them passed; {none} have"
            " none"
        )
        if done:
            say(
                "recreate memory recall finds them, marked; recreate traces grade replaces these by"
                " real grades"
            )


def export(
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help=(
                "openai (chat JSONL), otel (OTLP JSON), predictions (for SWE-bench's harness) or"
                " jsonl."
            ),
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="The file to write; it must not be there yet.")
    ],
    domain: OfDomain = "",
    run: Annotated[
        str, typer.Option("--run", help="A run folder or `last`; default: the workspace's memory.")
    ] = "",
    split: Annotated[
        str, typer.Option("--split", help="train; validation and test only when you say so.")
    ] = "train",
    passed: Passed = None,
    agent: Annotated[
        str, typer.Option("--agent", help="Only of the agent whose digest begins so.")
    ] = "",
    purified: Annotated[
        bool,
        typer.Option(
            "--purified",
            help="Of openai: without the failed steps that the agent put right at once.",
        ),
    ] = False,
    provisional: Annotated[
        bool,
        typer.Option(
            "--provisional", help="Also ungraded ones with a judge's provisional grade, marked."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write attempts for other tools. Train only, and nothing that is held out, unless --split says
    otherwise.

    Predictions are of one agent with one model, the first attempt at each task.

    Example: recreate traces export --domain swe --format openai --passed --out passed.jsonl

    Example: recreate traces export --run last --split test --format predictions --out
    predictions.jsonl
    """
    from recreate.plugins.traces.export import FORMATS, exported
    from recreate.storage.files import replacing

    one_of("format", format, FORMATS, "unknown-format")
    if purified and format != "openai":
        raise BadInput(
            "--purified is for conversations", fix="--format openai --purified", code="usage"
        )
    if provisional and (run or format == "predictions"):
        what = (
            "of what was imported into memory"
            if run
            else "for openai, otel and jsonl, where it can be marked"
        )
        raise BadInput(f"--provisional is {what}", fix="leave one of the two out", code="usage")
    if out.exists():
        raise BadInput(
            f"{here(out)} is there already", fix="give another file with --out", code="exists"
        )
    wanted: JsonDict = {
        "split": split_of(split, needed=True),
        **({"domain": domain} if domain else {}),
    }
    if passed is not None:
        wanted["passed"] = passed
    count = 0
    try:
        with replacing(out) as file:
            found = (
                e
                for e in _exported(run, wanted, provisional=provisional)
                if e.digest.startswith(agent)
            )
            for e in _predictions(found) if format == "predictions" else found:
                for row in exported(e, format, purified=purified):
                    file.write(
                        (json.dumps(row, ensure_ascii=False) + "\n").encode(
                            "utf-8", "surrogatepass"
                        )
                    )
                count += 1
            if not count:
                raise BadInput(
                    "no attempt is like that",
                    fix="recreate traces list shows what there is",
                    code="no-attempt",
                )
    except OSError as e:
        raise BadInput(
            f"{here(out)} cannot be written: {e.strerror}", fix="give another file with --out"
        ) from None
    if split != "train":
        say(
            f"these are {split} attempts: whoever learns from them cannot be measured on these"
            " tasks any more"
        )
    record = {"file": str(out), "format": format, "split": split, "experiences": count}
    answer(as_json, record, f"{count} {split} attempts written to {here(out)}")


# ---------------------------------------------------------------------------------------------
# their parts


def _judge_attempt(
    store: Ungraded, rubric: str, asked: Alone, pass_at: float, id: str
) -> tuple[Experience, Provisional | None, str]:
    """(the attempt, its provisional grade, kept as soon as there is one; '' or why there is
    none)."""
    from recreate.api.errors import UNSOUND, Fault
    from recreate.plugins.traces.provisional import judge_attempt

    e = store.get(id)
    assert e is not None
    if e.trace.fault:
        return e, None, f"it was ended by a fault, not by the agent: {e.trace.fault}"
    try:
        found = judge_attempt(e, rubric, asked.ask, asked.model, pass_at)
    except Fault as fault:
        if fault.code != UNSOUND:
            raise
        return e, None, "the judge gave no verdict; another model, or a clearer --rubric"
    store.provisional.add(e, found)
    return e, found, ""


def _emit_judged(e: Experience, found: Provisional | None, why: str) -> None:
    record: JsonDict = {
        "experience": e.id,
        "task": e.task,
        "score": None,
        "passed": None,
        "evidence": "",
        "provisional": "",
    }
    if found is not None:
        record |= {
            "score": found.score,
            "passed": found.passed,
            "evidence": found.evidence,
            "provisional": found.mark,
        }
    emit({**record, "reason": why})


def _exported(run: str, wanted: JsonDict, *, provisional: bool) -> Iterator[Any]:
    """The attempts, one in memory at a time. Of train, what is held out now is left out whatever it
    was recorded as. provisional: and those that wait with a judge's grade."""
    from recreate.memory.store import ExperienceStore
    from recreate.plugins.traces.attempts import experiences
    from recreate.plugins.traces.ungraded import Ungraded

    reader = "optimizer" if wanted["split"] == "train" else "human"
    memory = ExperienceStore(workspace())
    waiting = Ungraded(memory).provisionally(wanted, reader) if provisional else ()
    for e in chain(experiences(run, wanted, reader), waiting):
        if reader == "human" or not memory.is_closed(e):
            yield e


def _predictions(found: Iterator[Any]) -> Iterator[Any]:
    """The first attempt at each task. Raises BadInput when they are of several agents: the harness
    takes one answer a task."""
    tasks: set[str] = set()
    whose: set[tuple[str, str]] = set()
    for e in found:
        whose.add((e.digest, e.trace.model))
        if len(whose) > 1:
            agents = " and ".join(f"{digest} with {model}" for digest, model in sorted(whose))
            raise BadInput(
                f"these are attempts of {agents}, and predictions are of one",
                fix="name it: --agent DIGEST, or --run RUN",
                code="several-agents",
            )
        if e.task not in tasks:
            tasks.add(e.task)
            yield e


def _domain(
    name: str, settings: Settings, typed: JsonMap, where: Path
) -> tuple[str, Domain | None]:
    """(its own name, the domain); a name that no domain has yet is taken as it is, without one."""
    from recreate.cli.tasks import domain_of

    try:
        part = domain_of(name, settings, typed, where)
    except BadInput as e:
        if e.code != "unknown-domain":
            raise
        say(
            f"no domain is called {name!r} here: held-out tasks are known from the workspace's"
            " registry only"
        )
        return name, None
    return part.name, part

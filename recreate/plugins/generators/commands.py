"""Make new tasks: of a package, of a repository, or of a program that prints them.

Example: recreate tasks make swe --package parse==1.20.2 --n 5
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from recreate.api import registry
from recreate.api.errors import BadInput, CheckFailed, Interrupted, OutOfBudget
from recreate.api.paths import memory as memory_folder
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.plugins import names
from recreate.api.ports import Domain
from recreate.cli.options import Json, SandboxName, open_backend, open_run, split_of, with_settings
from recreate.cli.tasks import spread_tasks
from recreate.cli.terminal import answer, say
from recreate.plugins.generators import generator, invention, levels
from recreate.runs.settings import Settings


def make(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A new domain of rows.")],
    source: Annotated[
        str, typer.Option("--generator", metavar="FOLDER", help="A program that prints tasks.")
    ],
    n: Annotated[int, typer.Option("--n", "-n", help="How many.", min=1)] = 10,
    seed: Annotated[int, typer.Option("--seed", help="The random seed: which ones.")] = 0,
    split: Annotated[
        str, typer.Option("--split", help="Of all of them; default: dealt by group.")
    ] = "",
    runs: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="RUN", help="Attempts that tell the levels; repeatable."),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--solve-rate", help="Make levels that are solved so often.", min=0.01, max=0.99
        ),
    ] = None,
    scaffold: Annotated[
        str, typer.Option("--scaffold", help="Of --from: the agent whose attempts count.")
    ] = "",
    data: Annotated[
        Path | None, typer.Option("--data", help="The file to write; default: the workspace's.")
    ] = None,
    sandbox: SandboxName = "",
    as_json: Json = False,
) -> int:
    """Make tasks with a program that prints them, each kept when its verifier tells right from
    wrong: at all levels evenly, or at those that a learner solves as often as --solve-rate says.
    Exits 4 when it gives none.

    Example: recreate tasks make bills --generator bills --n 30

    Example: recreate tasks make bills --generator bills --n 20 --from last --solve-rate 0.5
    """
    where = workspace()
    backend = open_backend(sandbox)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) or name in names("domain"):
        why = "is a domain of its own" if name in names("domain") else "cannot name a folder"
        raise BadInput(
            f"{name!r} {why}", fix="recreate tasks make NAME --generator FOLDER", code="bad-name"
        )
    if (target is None) == bool(runs) or (scaffold and not runs):
        raise BadInput(
            "--solve-rate goes by the attempts of a run",
            fix="--from last --solve-rate 0.5",
            code="usage",
        )
    if data and data.suffix != ".jsonl":
        raise BadInput(f"{data} is no file of JSON lines", fix="--data FILE.jsonl", code="usage")
    folder, known = generator.find(source)
    rates: list[float] | None = None
    counts = levels.even(known.levels, n)
    dealt = split_of(split)
    if target is not None:
        part = registry.open_domain(name, where)
        tried = _count_by_level(part, runs or (), scaffold, known.levels)
        rates = levels.solve_rates(tried, known.levels)
        counts = levels.spread(rates, target, n)
        dealt = dealt or "train"
        for level, rate in enumerate(rates, 1):
            passed, attempts = tried.get(level, (0, 0))
            say(f"level {level}: {passed} of {attempts} attempts passed, expected {rate:.2f}")
    made = generator.make(
        name,
        folder,
        known,
        counts,
        workspace=where,
        file=data or where / "benchmarks" / name / "tasks.jsonl",
        seed=seed,
        split=dealt,
        backend=backend,
        on_progress=say,
    )
    record = {
        "domain": name,
        **made.model_dump(mode="json", exclude={"rows", "schema_"}),
        "kept": len(made.rows),
        "levels": Counter(str(row["level"]) for row in made.rows),
        "wanted": counts,
        "solve_rates": rates,
    }
    refused = [f"  refused {n:>3}  {why}: {made.reasons[why]}" for why, n in made.refused.items()]
    following = [f"next: recreate build --domain {name}"] * bool(made.rows)
    line = f"{len(made.rows)} tasks of {made.tried} seeds, in {here(made.file)}"
    answer(as_json, record, line, *refused, *following)
    return 0 if made.rows else CheckFailed.exit_code


def _count_by_level(
    part: Domain, runs: Sequence[str], scaffold: str, levels: int
) -> dict[int, tuple[int, int]]:
    """level -> (attempts that one learner passed, all of them) of train tasks: what other splits
    tell, no task may be made by. Raises BadInput where the runs hold none, or those of several
    learners."""
    from recreate.plugins.measuring.rates import read_rates

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
    from recreate.cli.runner import prepare_model
    from recreate.models import default_model
    from recreate.plugins.generators.writer import writer_alone

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
    with writer_alone(settings, folder, "invent", prepare_model, **invention.PARAMS) as writer:
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
            calls = writer.ledger.spent.calls
            usd = writer.ledger.spent.usd
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

    held = HeldOut(memory_folder(where))
    part = registry.open_domain(domain, where)
    tasks = spread_tasks(held.usable(part, "train")[0], 3)
    if not tasks:
        raise held.refuse_empty(part, "train")
    return [task.prompt for task in tasks]

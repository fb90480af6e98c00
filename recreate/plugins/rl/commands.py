"""How a model is trained.

Example: recreate recipes list
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.errors import BadInput, Fault
from recreate.api.paths import short as here
from recreate.api.shapes import JsonDict
from recreate.cli.options import Json, one_of, with_settings
from recreate.cli.runner import folder_of, stopped_by_budget
from recreate.cli.terminal import answer, answers, say
from recreate.plugins.bench.opening import open_measuring
from recreate.plugins.local_models.settings import LocalModels
from recreate.runs.settings import Settings

if TYPE_CHECKING:
    from recreate.plugins.rl.recipe import Recipe
    from recreate.plugins.rl.trainer import Tuned

FLAGS = {
    "domain": "Whose train tasks are attempted: a built-in, installed or `module:Class` domain.",
    "data": "",
    "repos": "",
    "model": (
        "What is trained: a folder that transformers reads, or a name on the Hub; no server's, no"
        " .gguf."
    ),
    "scaffold": (
        "Whose attempts are trained on, unchanged: a folder or a name; default: the domain's own,"
        " else a seed agent."
    ),
    "seed": (
        "The random seed: fixes the order of tasks, what is drawn and an adapter's first weights."
    ),
    "jobs": (
        "Attempts at once; with --rollouts here the model answers one at a time, and the rest of"
        " them overlaps."
    ),
    "out": "The run folder; one that is there goes on; default: runs/tune-DOMAIN-DATE.",
    "sandbox": "",
    "budget": (
        "A hard cap: 4000attempts, 2Mtokens, 30min; repeatable, the first reached stops; the step"
        " under way is given up."
    ),
    "from_experience": (
        "Train also on what memory holds of the train tasks in this model's tokens: beside new "
        "attempts, with [a2r] as the epochs before the first."
    ),
    "local_models.vllm_python": (
        "With --rollouts vllm: the environment vLLM is in, its folder or its Python; default: this"
        " one."
    ),
}
"""What tune takes of the settings, and what it means here; '': what it means everywhere."""


@with_settings(*FLAGS, words={address: words for address, words in FLAGS.items() if words})
def tune(
    settings: Settings,
    where: Path,
    how: Annotated[
        str,
        typer.Option("--recipe", help="A name of `recreate recipes list`, or a TOML file's path."),
    ] = "grpo",
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PART.KEY=VALUE", help="In place of what the recipe says; repeatable."
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps in all.")] = 50,
    micro: Annotated[int, typer.Option("--micro-batch", min=1, help="Sequences in one pass.")] = 4,
    max_kl: Annotated[
        float, typer.Option("--max-kl", min=0, help="Stop above this KL to the start; 0: never.")
    ] = 0.0,
    min_entropy: Annotated[
        float, typer.Option("--min-entropy", min=0, help="Stop below this entropy; 0: never.")
    ] = 0.0,
    rollouts: Annotated[
        str,
        typer.Option(
            "--rollouts", help="Who answers: here (this process), or a server: vllm, transformers."
        ),
    ] = "here",
    save_every: Annotated[
        int, typer.Option("--save-every", min=1, help="Steps between checkpoints.")
    ] = 5,
    trainer: Annotated[
        str,
        typer.Option(
            "--trainer",
            help=(
                "here: now, by this process. verl: write a run folder for a cluster, start nothing."
            ),
        ),
    ] = "here",
    as_json: Json = False,
) -> None:
    """Fine-tune a model on a domain's train tasks, by attempts of a scaffold. With an earlier --out
    it goes on.

    Example: recreate tune --recipe grpo --domain swe --scaffold seed-swe-small --model ./model
    --set train.lr=3e-5
    """
    # "trl" is what "here" was called while TRL's trainer was in it
    if one_of("trainer", trainer, ("here", "verl", "trl")) == "verl":
        if max_kl or min_entropy or rollouts != "here":
            raise BadInput(
                "--max-kl, --min-entropy and --rollouts are for one machine: verl samples and"
                " watches by itself",
                fix="leave them out; its journal is the folder tensorboard/ of the run",
                code="not-with-verl",
            )
        _for_verl(settings, where, how, changes or (), steps, micro, save_every, as_json)
        return
    from recreate.plugins.local_models.server import vllm_python
    from recreate.plugins.local_models.transformers import trainable
    from recreate.plugins.rl import recipe

    if rollouts not in ("here", "vllm", "transformers"):
        raise BadInput(
            f"rollouts are made here, by vllm or by transformers, not by {rollouts!r}",
            fix="--rollouts here, vllm or transformers",
            code="usage",
        )
    if rollouts == "vllm":
        vllm_python(settings.of(LocalModels).vllm_python)
    read = recipe.load(how, changes or ())
    recipe.installed()
    settings = settings.model_copy(update={"model": trainable(settings.model)})
    folder, scaffold = _start(settings, where)

    from recreate.plugins.rl.trainer import TrainConfig, tune

    limits = (max_kl, min_entropy, save_every, rollouts)
    config = TrainConfig(steps, settings.seed, micro, *limits)  # type: ignore[arg-type]
    with open_measuring(settings, where, folder) as session:
        done = tune(session, scaffold, read, config)
    _tell(done, folder, as_json)


def _tell(done: Tuned, folder: Path, as_json: bool) -> None:
    """What came of tuning; exits as a run does that its budget stopped."""
    keys = ("step", "reward", "kl", "entropy", "clip")
    record: JsonDict = {
        "run": str(done.run),
        "checkpoint": str(done.checkpoint),
        "status": done.status,
        "curve": [{key: row[key] for key in (*keys, "length")} for row in done.curve],
    }
    answer(
        as_json,
        record,
        *("  ".join(f"{key} {row[key]:.4g}" for key in keys) for row in done.curve),
        f"checkpoint: {here(done.checkpoint)}   report: {here(done.run / 'report.md')}",
    )
    if done.status == "budget":
        stopped_by_budget(f"the same command with --out {here(folder)}")
    if done.why:
        say(f"stopped early: {done.why}")


def _start(settings: Settings, where: Path) -> tuple[Path, Any]:
    """(the run folder, the scaffold whose attempts are trained on)."""
    from recreate.builder.sdk import find_scaffold
    from recreate.runs.opening import open_domain
    from recreate.runs.reader import default_seed

    domain = open_domain(settings, where).name
    model = settings.model.removeprefix("transformers:")
    folder = folder_of(settings, where, f"tune-{domain}")
    return folder, (
        find_scaffold(settings.scaffold, where)
        if settings.scaffold
        else default_seed(domain, where, model)
    )


def _for_verl(
    settings: Settings,
    where: Path,
    how: str,
    changes: Sequence[str],
    steps: int,
    micro: int,
    save_every: int,
    as_json: bool,
) -> None:
    from recreate.plugins.local_models.transformers import trainable
    from recreate.plugins.rl.verl import job

    if settings.from_experience or settings.budget:
        raise BadInput(
            "--from-experience and --budget are for one machine",
            fix=(
                "leave them out: a run on a cluster is bounded by --steps, and trains on its own"
                " attempts"
            ),
            code="not-with-verl",
        )
    named = trainable(settings.model).removeprefix("transformers:")
    settings = settings.model_copy(update={"model": named})
    folder, scaffold = _start(settings, where)
    sizes = {"steps": steps, "micro_batch": micro, "save_every": save_every}
    made = job.write(folder, where, settings, scaffold, how, changes=changes, **sizes)
    record: JsonDict = {
        "run": str(made.folder),
        "command": made.command,
        "notes": list(made.notes),
    }
    record |= {"tasks": made.tasks, "validation": made.validation, "status": "written"}
    for note in [] if as_json else made.notes:
        say(note)
    answer(
        as_json,
        record,
        f"written, not started: {made.tasks} train tasks. On the cluster: {made.command}",
    )


def list_recipes(as_json: Json = False) -> None:
    """The recipes that a model can be trained by: what each does, where it comes from, what a step
    takes.

    Example: recreate recipes list
    """
    from recreate.plugins.rl import recipe

    answers(as_json, ((_recipe(how), _line(how)) for how in map(recipe.load, recipe.names())))


def show_recipe(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A name of `recreate recipes list`, or a TOML file."),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PART.KEY=VALUE", help="In place of what the recipe says; repeatable."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """One recipe: what fills its slots, every value, and what a step takes.

    Example: recreate recipes show gapo --set train.prompts=8
    """
    from recreate.plugins.rl import recipe

    how = recipe.load(name, changes or ())
    answer(as_json, {**_recipe(how), "recipe": how.model_dump(mode="json")}, *_lines(how))


def _recipe(how: Recipe) -> JsonDict:
    record = {
        "name": how.name,
        "method": how.about,
        "source": how.source,
        "slots": how.slots,
        "cost": how.cost,
    }
    return {**record, "pass_fail": how.warnings(True)}


def _line(how: Recipe) -> str:
    cost = how.cost
    sizes = (
        f"{cost['attempts']} attempts a step, {cost['rows_of_an_optimizer_step']} rows an optimiser"
        " step"
    )
    return (
        f"{how.name:<18} {how.about}\n{'':<18} {sizes}, rate {cost['learning_rate']:g}"
        f" ({cost['trains']})"
    )


def _lines(how: Recipe) -> Iterator[str]:
    from recreate.plugins.rl.recipe import SLOTS, text_of

    yield f"{how.name}: {how.about}"
    yield f"source: {how.source}"
    yield ""
    yield from (
        f"{slot:<18} {how.slots.get(slot, '-'):<18} {words}" for slot, words in SLOTS.items()
    )
    yield ""
    yield from (f"{key.replace('_', ' '):<26} {value}" for key, value in how.cost.items())
    yield from (f"where {text}" for text in how.warnings(True))
    yield ""
    yield text_of(how).partition("\n\n")[2].rstrip()


@with_settings(
    "local_models.vllm_python", "jobs", "models.threads", words={"jobs": "Requests at once."}
)
def serve(
    settings: Settings,
    where: Path,
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="A run of tune, one of its checkpoints, a model's folder, FILE.gguf or local:NAME."
        ),
    ],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="On 127.0.0.1; 0: a free one.")
    ] = 0,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            help=(
                "vllm, transformers, xllamacpp; auto: vLLM where it is installed, xllamacpp for"
                " .gguf."
            ),
        ),
    ] = "auto",
    context: Annotated[
        int,
        typer.Option(
            "--context", min=0, help="Tokens of a prompt and its reply together; 0: the model's."
        ),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Serve a checkpoint with an OpenAI-style server, until Ctrl-C.

    Example: recreate serve runs/tune-swe-1 --port 8000
    """
    import signal
    import threading

    from recreate.plugins.local_models.server import ENGINES, ServeConfig, Server, plan

    one_of("engine", engine, ENGINES)
    config = ServeConfig(
        port=port,
        engine=engine,  # type: ignore[arg-type]
        vllm_python=settings.of(LocalModels).vllm_python,
        context=context,
        threads=settings.models.threads,
        parallel=settings.jobs,
    )
    launch = plan(checkpoint, config, say)
    ended = threading.Event()
    old = {s: signal.signal(s, lambda *_: ended.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Server(launch) as server:
            say(f"starting {launch.engine} on port {launch.port}; Ctrl-C stops it")
            server.wait(stop=ended)
            if not ended.is_set():
                record = {"url": server.url, "model": launch.name, "pid": server.pid}
                record["key_file"] = str(server.key_file)
                text = f"--model openai:{server.url}#{launch.name} --price 0,0   (pid {server.pid})"
                answer(as_json, record, text, f"other programs: the key in {server.key_file}")
            while not ended.wait(1.0):
                if not server.alive():
                    raise Fault(
                        f"the server ended{server.last_words()}",
                        fix="start it again",
                        code="server-died",
                    )
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)

"""tune and serve: a model fine-tuned on a domain's train tasks, and answering."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from recreate.cli.build import opened
from recreate.cli.options import Json, with_settings
from recreate.cli.out import emit, say, show
from recreate.errors import BadInput, Fault
from recreate.paths import short as here
from recreate.settings import Settings

FLAGS = ("domain", "model", "scaffold", "seed", "jobs", "out", "sandbox", "budget", "from_experience")


def add(app: typer.Typer) -> None:
    """Put the commands on the app."""
    app.command("tune")(tune)
    app.command("serve")(serve)


@with_settings(*FLAGS)
def tune(
    settings: Settings,
    where: Path,
    how: Annotated[str, typer.Option("--recipe", help="A shipped recipe's name, or a TOML file.")] = "grpo",
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps in all.")] = 50,
    micro: Annotated[int, typer.Option("--micro-batch", min=1, help="Sequences in one pass.")] = 4,
    max_kl: Annotated[float, typer.Option("--max-kl", min=0, help="Stop above this KL to the start; 0: never.")] = 0.0,
    min_entropy: Annotated[
        float, typer.Option("--min-entropy", min=0, help="Stop below this entropy; 0: never.")
    ] = 0.0,
    rollouts: Annotated[
        str, typer.Option("--rollouts", help="Who answers: here (this process), or a server: vllm, transformers.")
    ] = "here",
    save_every: Annotated[int, typer.Option("--save-every", min=1, help="Steps between checkpoints.")] = 5,
    trainer: Annotated[
        str, typer.Option("--trainer", help="trl: here and now. verl: write a run folder for a cluster, start nothing.")
    ] = "trl",
    as_json: Json = False,
) -> None:
    """Fine-tune a model on a domain's train tasks, by attempts of a scaffold. With --out RUN of before it goes on.

    Example: recreate tune --recipe gapo --domain swe --scaffold seed --model ./SmolLM2-135M --steps 50
    """
    if trainer not in ("trl", "verl"):
        raise BadInput(f"there is no trainer {trainer!r}", fix="--trainer trl, or --trainer verl", code="usage")
    if trainer == "verl":
        if max_kl or min_entropy or rollouts != "here":
            raise BadInput(
                "--max-kl, --min-entropy and --rollouts are for one machine: verl samples and watches by itself",
                fix="leave them out; its journal is the folder tensorboard/ of the run",
                code="not-with-verl",
            )
        _for_verl(settings, where, how, steps, micro, save_every, as_json)
        return
    from recreate.plug import need
    from recreate.rl import recipe
    from recreate.sdk import default_seed, find_scaffold
    from recreate.workshop import open_domain, run_folder

    read = recipe.load(how)
    for module in ("torch", "trl", "peft", "datasets", "safetensors"):
        need(module)
    if not settings.model:
        raise BadInput(
            "no model is named", fix="--model FOLDER, a model that transformers reads, or its name on the Hub"
        )
    domain = open_domain(settings, where).name
    named = settings.model.removeprefix("transformers:")
    if Path(named).expanduser().is_dir():
        named = str(Path(named).expanduser().resolve())
    settings = settings.model_copy(update={"model": f"transformers:{named}"})
    folder = run_folder(where, settings if settings.out else settings.model_copy(update={"domain": f"tune-{domain}"}))
    scaffold = find_scaffold(settings.scaffold, where) if settings.scaffold else default_seed(domain, where, named)

    from recreate.rl.tune import Plan, tune

    if rollouts not in ("here", "vllm", "transformers"):
        raise BadInput(f"rollouts are made here, by vllm or by transformers, not by {rollouts!r}", code="usage")
    plan = Plan(steps, settings.seed, micro, max_kl, min_entropy, save_every, rollouts)  # type: ignore[arg-type]
    with opened(settings, where, folder, resume=(folder / "settings.toml").exists()) as shop:
        done = tune(shop, scaffold, read, plan)
    keys = ("step", "reward", "kl", "entropy", "clip")
    record: dict[str, Any] = {
        "run": str(done.run),
        "checkpoint": str(done.checkpoint),
        "status": done.status,
        "curve": [{**{key: row[key] for key in keys}, "length": row["length"]} for row in done.curve],
    }
    if as_json:
        emit(record)
        return
    for row in done.curve:
        show("  ".join(f"{key} {row[key]:.4g}" for key in keys))
    if done.why:
        say(f"stopped early: {done.why}")
    show(f"checkpoint: {here(done.checkpoint)}   report: {here(done.run / 'report.md')}")


def _for_verl(
    settings: Settings, where: Path, how: str, steps: int, micro: int, save_every: int, as_json: bool
) -> None:
    from recreate.rl.cluster import job
    from recreate.sdk import default_seed, find_scaffold
    from recreate.workshop import open_domain, run_folder

    if settings.from_experience or settings.budget:
        raise BadInput(
            "--from-experience and --budget are for one machine",
            fix="leave them out: a run on a cluster is bounded by --steps, and trains on what it lives",
            code="not-with-verl",
        )
    if not settings.model:
        raise BadInput("no model is named", fix="--model FOLDER, or its name on the Hub: ORGANISATION/NAME")
    named = settings.model.removeprefix("transformers:")
    if Path(named).expanduser().is_dir():
        named = str(Path(named).expanduser().resolve())
    elif named.count("/") != 1 or named[0] in "./~":
        raise BadInput(
            f"{named} is no folder of a model", fix="--model FOLDER, or its name on the Hub", code="unknown-model"
        )
    domain = open_domain(settings, where).name
    settings = settings.model_copy(update={"model": named})
    folder = run_folder(where, settings if settings.out else settings.model_copy(update={"domain": f"tune-{domain}"}))
    scaffold = find_scaffold(settings.scaffold, where) if settings.scaffold else default_seed(domain, where, named)
    made = job.write(folder, where, settings, scaffold, how, steps=steps, micro=micro, save_every=save_every)
    if as_json:
        record = {"run": str(made.folder), "command": made.command, "notes": list(made.notes)}
        emit({**record, "tasks": made.tasks, "validation": made.validation, "status": "written"})
        return
    for note in made.notes:
        say(note)
    show(f"written, not started: {made.tasks} train tasks. On the cluster: {made.command}")


def serve(
    checkpoint: Annotated[str, typer.Argument(help="A run of tune, one of its checkpoints, or a model's folder.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="On 127.0.0.1; 0: a free one.")] = 0,
    engine: Annotated[str, typer.Option("--engine", help="vllm, transformers; auto: vLLM where installed.")] = "auto",
    as_json: Json = False,
) -> None:
    """Serve a checkpoint with an OpenAI-style server, until Ctrl-C.

    Example: recreate serve runs/tune-swe-1 --port 8000
    """
    import signal
    import threading

    from recreate.models.serve import Server, plan

    if engine not in ("auto", "vllm", "transformers"):
        raise BadInput(f"no engine is called {engine!r}", fix="--engine vllm, transformers or auto", code="usage")
    ended = threading.Event()
    old = {s: signal.signal(s, lambda *_: ended.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Server(plan(checkpoint, port=port, engine=engine)) as server:  # type: ignore[arg-type]
            say(f"starting {server.launch.engine} on port {server.launch.port}; Ctrl-C stops it")
            server.wait(stop=ended)
            if not ended.is_set():
                told = {"url": server.url, "model": server.launch.name, "pid": server.pid}
                if as_json:
                    emit(told)
                else:
                    show(f"--model openai:{server.url}#{server.launch.name} --price 0,0   (pid {server.pid})")
            while not ended.wait(1.0):
                if not server.alive():
                    raise Fault(f"the server ended{server.last_words()}", fix="start it again", code="server-died")
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)

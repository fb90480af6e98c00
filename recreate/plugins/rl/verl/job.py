"""A run folder that verl can start from: the config, the tasks, the recipe, the scaffold, and
run.sh.

    verl.yaml           verl's config, over its own ppo_trainer
    agent.yaml          which agent loop is ours
    train.jsonl, validation.jsonl   a task a line: its id and prompt (nothing hidden)
    recipe/NAME.toml, scaffold/, settings.toml
    run.sh              makes verl's environment where there is none, and starts; its arguments go
                        to verl

Nothing is started here, and neither torch nor verl is needed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.lint import refuse
from recreate.agents.scaffold import Scaffold
from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.registry import need
from recreate.api.shapes import JsonDict
from recreate.api.types import Task
from recreate.plugins.rl import recipe
from recreate.plugins.rl.rollout import pass_fail, refuse_if_too_long, train_tasks
from recreate.plugins.rl.verl.translate import (
    PLUGIN,
    RECIPE,
    TRAINER,
    VERSION,
    Cluster,
    agent_loop,
    config,
    notes,
)
from recreate.runs.settings import Settings, settings_text


@dataclass(frozen=True)
class Job:
    """A run folder, the command that starts it, and what will be otherwise than on one machine."""

    folder: Path
    command: str
    notes: tuple[str, ...]
    tasks: int
    validation: int


def write(
    folder: Path,
    workspace: Path,
    settings: Settings,
    scaffold: Scaffold,
    named: str | Path,
    *,
    steps: int,
    micro_batch: int = 4,
    save_every: int = 5,
    changes: Sequence[str] = (),
) -> Job:
    """Write the folder. named: the recipe, shipped or a file, with changes as `recipe.load` takes
    them. settings.model: a folder, or a name on the Hub.

    Raises BadInput for a folder that holds a run already, a recipe that verl cannot train, a
    scaffold with faults or with limits that the context cannot hold, a domain without train tasks.
    """
    from recreate.memory.store import ExperienceStore
    from recreate.runs.opening import open_backend, open_domain

    how = recipe.load(named, changes)
    if (folder / "settings.toml").exists():
        raise BadInput(
            f"{folder} already holds a run",
            fix=(
                f"bash {paths.short(folder / 'run.sh')} goes on with it; or give another folder"
                " with --out"
            ),
            code="run-exists",
        )
    domain = open_domain(settings, workspace)
    refuse(scaffold, open_backend(settings))
    memory = ExperienceStore(workspace, "hashed")
    try:
        tasks = train_tasks(domain, memory)
        warned = how.warnings(pass_fail(domain, memory))
    finally:
        memory.close()
    refuse_if_too_long(scaffold, tasks, how)
    validation = list(domain.tasks("validation"))
    place = Cluster(
        folder=folder,
        workspace=workspace,
        model=settings.model,
        tasks=len(tasks),
        validation=bool(validation),
        steps=steps,
        seed=settings.seed,
        micro_batch=micro_batch,
        save_every=save_every,
    )
    made = config(how, place)
    folder.mkdir(parents=True, exist_ok=True)
    _write(
        folder / "verl.yaml",
        f"# {how.name} on verl {VERSION}, over verl's own ppo_trainer.yaml\n{_yaml(made)}",
    )
    _write(folder / "agent.yaml", _yaml(agent_loop(place)))
    _write(folder / "train.jsonl", _lines(domain.name, tasks))
    if validation:
        _write(folder / "validation.jsonl", _lines(domain.name, validation))
    (folder / "recipe").mkdir(exist_ok=True)
    _write(folder / "recipe" / f"{how.name}.toml", recipe.text_of(how))
    scaffolds.save(scaffold, folder / "scaffold")
    _write(folder / "run.sh", _script(folder, how.name))
    (folder / "run.sh").chmod(0o755)
    _write(
        folder / "settings.toml", settings_text(settings.model_copy(update={"out": str(folder)}))
    )
    return Job(
        folder,
        f"bash {paths.short(folder / 'run.sh')}",
        (*warned, *notes(how, place)),
        len(tasks),
        len(validation),
    )


def _yaml(value: Any) -> str:
    text: str = need("yaml").safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)
    return text


def _write(file: Path, text: str) -> None:
    file.write_text(text, "utf-8")


def _lines(domain: str, tasks: Sequence[Task]) -> str:
    """What verl's dataset reads: `task` and `split` come back to the agent loop, `prompt` is for
    its logs."""
    rows: list[JsonDict] = [
        {
            "data_source": domain,
            "agent_name": TRAINER,
            "task": task.id,
            "split": task.split,
            "prompt": [{"role": "user", "content": task.prompt}],
            "extra_info": {"index": n},
        }
        for n, task in enumerate(tasks)
    ]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _script(folder: Path, name: str) -> str:
    root = Path(__file__).parents[4]
    ours = (
        f"-e {shlex.quote(str(root))}"
        if (root / "pyproject.toml").is_file()
        else f"{paths.DISTRIBUTION}=={version(paths.DISTRIBUTION)}"
    )
    return f"""#!/usr/bin/env bash
# Trains with verl {VERSION}: alone, or on the head node of a Ray cluster whose nodes all see this \
folder, the workspace
# and the model, and were started with `ray start` in the same environment. Arguments go to verl \
and win:
#     bash run.sh trainer.nnodes=2 trainer.n_gpus_per_node=8
# verl's environment is its own: recreate-agents[rl] wants another transformers. VERL_ENV names \
one that is there.
set -euo pipefail
here={shlex.quote(str(folder))}
env=${{VERL_ENV:-"$here/env"}}
if [ -z "${{VERL_ENV:-}}" ] && [ ! -e "$env/.ready" ]; then
  uv venv --clear --python 3.11 "$env"
  uv pip install --python "$env/bin/python" 'verl[vllm]=={VERSION}' {ours}
  touch "$env/.ready"
fi
export VERL_USE_EXTERNAL_MODULES={PLUGIN}
export {RECIPE}="$here/recipe/"{shlex.quote(name + ".toml")}
exec "$env/bin/python" -m verl.trainer.main_ppo --config-path "$here" --config-name verl "$@"
"""

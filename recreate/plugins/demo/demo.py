"""A real build, recorded once and shipped, replayed here: what `recreate demo` shows.

    benchmarks/demo/tasks.jsonl    the tasks: docs/cassettes.md says how the recording was made
    benchmarks/demo/seed/          the agent that the build started from
    benchmarks/demo/tape/          the recording

The models' replies come from the recording. The commands are run, the answers graded and the
candidate judged here and now, in whichever sandbox works.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from recreate.agents.scaffold import load
from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.ports import Limits, Model, Sandbox, SandboxBackend
from recreate.api.shapes import JsonMap
from recreate.builder.sdk import Outcome, build
from recreate.plugins.demo.functions import Functions
from recreate.runs.opening import Say, silent
from recreate.runs.replay import Replay
from recreate.sandboxes import choose
from recreate.storage import files

SIZES: JsonMap = {"train": 8, "batch": 6, "validation": 24, "rounds": 3, "seed": 1}
"""Of the build that is shipped."""


class AnySandbox:
    """The best sandbox that works, under one name: the demo's attempts have the same ids in each of
    them."""

    name = "any"

    def __init__(self, backend: SandboxBackend | None = None) -> None:
        self.backend = backend or choose(None)

    def probe(self) -> str:
        return self.backend.probe()

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Sandbox:
        """See `recreate.api.ports.SandboxBackend`."""
        return self.backend.open(source=source, mounts=mounts, env=env, limits=limits)


def tape() -> Path:
    """Return the folder of the recording that ships."""
    return paths.shipped("benchmarks") / "demo" / "tape"


def read_tape() -> Replay:
    """Return what was recorded. Raises BadInput when it did not come with this package, or is
    damaged."""
    try:
        return Replay(tape())
    except BadInput as e:
        e.fix = f"install recreate again: {paths.upgrade()}"
        raise


def replay(folder: Path | None = None, *, jobs: int = 2, say: Say = silent) -> Outcome:
    """The shipped build again, in a workspace of its own: a new one at `folder`, else the one below
    RECREATE_HOME, where the last replay is kept. Raises Differs, BadInput when no sandbox works."""
    read_tape()
    backend = AnySandbox()
    # what commands find there is this machine's, and not what was recorded
    if backend.backend.name == "none":
        raise BadInput(
            "the demo needs a sandbox with walls", fix="unset RECREATE_SANDBOX", code="no-sandbox"
        )
    if folder is None:
        folder = paths.home() / "demo"
        files.make(folder)
        with files.locked(folder):
            return _replay(_emptied(folder / "workspace"), backend, jobs, say)
    return _replay(_emptied(folder), backend, jobs, say)


def _replay(folder: Path, backend: SandboxBackend, jobs: int, say: Say) -> Outcome:
    out = str(folder / "runs" / "demo")
    # the recording's own paths mean nothing here, and a workspace of ours has no settings
    return build(
        Functions(),
        sandbox=backend,
        workspace=folder,
        replay=str(tape()),
        out=out,
        jobs=jobs,
        say=say,
    )


def _emptied(folder: Path) -> Path:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
    files.make(folder)
    files.write(folder / "recreate.toml", "")
    return folder


def record(
    folder: Path,
    into: Path,
    model: str | Model,
    optimizer_model: str | Model,
    *,
    jobs: int = 2,
    say: Say = silent,
) -> Outcome:
    """Make the recording that ships, with real models.

    `python -m tests.plugins.demo.demo --record` does so.
    """
    return build(
        Functions(),
        scaffold=load(paths.shipped("benchmarks") / "demo" / "seed"),
        sandbox=AnySandbox(),
        model=model,
        optimizer="reflect",
        models__optimizer=optimizer_model,
        workspace=_emptied(folder),
        record=str(into),
        out=str(folder / "runs" / "recorded"),
        jobs=jobs,
        price="0,0",
        models__optimizer_price="0,0",
        models__timeout=3600,
        say=say,
        **SIZES,
    )

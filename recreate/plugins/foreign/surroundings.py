"""What a foreign agent finds in its sandbox besides the task: mounts for its environment and for
its gateway."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from recreate.agents.config import AgentConfig
from recreate.api.errors import BadInput
from recreate.api.ports import ImageBackend, Limits, OpensImages, Sandbox, SandboxBackend
from recreate.sandboxes.rootfs import interpreter_mounts


def places(agent: AgentConfig) -> tuple[dict[str, Path], str]:
    """(what is mounted for its command: path inside -> path outside, what goes before PATH).

    `~` and $NAME in paths of the host are filled in. Raises BadInput (`bad-mount`, `bad-venv`).
    """
    mounts: dict[str, Path] = {}
    path = ""
    for inside, outside in agent.mounts.items():
        there = _host(outside)
        if not there.exists():
            raise BadInput(f"mounts: {outside} is not there", fix="mend its path", code="bad-mount")
        mounts[inside] = there
    if agent.venv:
        venv = _host(agent.venv)
        mounts = {**interpreter_mounts(venv), **mounts}
        path = str(venv / "bin")
    return mounts, path


def _host(text: str) -> Path:
    return Path(os.path.normpath(Path.cwd() / Path(os.path.expandvars(text)).expanduser()))


class Furnished:
    """A backend whose sandboxes have some mounts more, and processor time for as long as an attempt
    may last: one command is the attempt, whose limit is wall time."""

    def __init__(self, inner: SandboxBackend, mounts: Mapping[str, Path], seconds: float) -> None:
        self.inner = inner
        self.name = inner.name
        self.mounts = mounts
        self.seconds = seconds

    def probe(self) -> str:
        return self.inner.probe()

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Sandbox:
        given = limits or Limits()
        cpu = max(given.cpu_seconds, int(self.seconds) + 1)
        longer = given.model_copy(update={"cpu_seconds": cpu})
        return self.inner.open(
            source=source, mounts={**self.mounts, **(mounts or {})}, env=env, limits=longer
        )


class _FurnishedImages(Furnished):
    inner: OpensImages  # type: ignore[assignment]

    def image(
        self, name: str, folder: str = "", say: Callable[[str], None] | None = None
    ) -> SandboxBackend:
        return furnished(self.inner.image(name, folder, say), self.mounts, self.seconds)


class _FurnishedImage(Furnished):
    inner: ImageBackend

    @property
    def digest(self) -> str:
        return self.inner.digest

    def copy(self, folder: str, target: Path, without: Collection[str] = ()) -> None:
        self.inner.copy(folder, target, without)


def furnished(inner: SandboxBackend, mounts: Mapping[str, Path], seconds: float) -> SandboxBackend:
    """`inner` with these mounts in every sandbox. It can what `inner` can: open images, copy from
    one."""
    if isinstance(inner, ImageBackend):
        return _FurnishedImage(inner, mounts, seconds)
    if isinstance(inner, OpensImages):
        return _FurnishedImages(inner, mounts, seconds)
    return Furnished(inner, mounts, seconds)

"""Folders that hold a task's sources, made once, then only read and copied; and the commit an agent
finds there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from recreate.api import paths
from recreate.api.types import digest
from recreate.plugins.swe import sources
from recreate.plugins.swe.test_run import ProjectTests
from recreate.storage.files import once

LAYOUT = 1
"""Part of the name of every tree made here: raise it when the way they are made changes."""


def publish(folder: Path, fail: Sequence[str], seen: ProjectTests, *, ignored: bool = True) -> None:
    """What tools of a scaffold read, and a git repository with the state the agent starts from;
    `ignored`: also with what the sources have git ignore."""
    public = {"fail": list(fail), "suite": list(seen.tests), "python_path": list(seen.roots)}
    (folder / sources.PUBLIC).parent.mkdir(exist_ok=True)
    (folder / sources.PUBLIC).write_text(json.dumps(public, indent=1) + "\n", encoding="utf-8")
    _commit(folder, ignored)


def _commit(folder: Path, ignored: bool) -> None:
    """One commit of everything, if git is here: a convenience for agents, on which nothing of ours
    relies."""
    if shutil.which("git") is None:
        return
    nobody = {"NAME": "recreate", "EMAIL": "recreate@localhost", "DATE": "2000-01-01T00:00:00Z"}
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    env |= {
        f"GIT_{who}_{key}": value
        for who in ("AUTHOR", "COMMITTER")
        for key, value in nobody.items()
    }
    for command in (
        ["init", "--quiet", "--template=", "--initial-branch=main"],
        ["add", "--all", *["--force"] * ignored, "--", ".", ":(exclude).recreate"],
        ["commit", "--quiet", "--message", "The sources as they are"],
        ["repack", "-adq"],
    ):
        done = subprocess.run(
            ["git", "-c", "core.compression=1", "-c", "pack.window=0", *command],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            shutil.rmtree(folder / ".git", ignore_errors=True)
            return
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "exclude").write_text(
        ".recreate/\n__pycache__/\n*.pyc\n", encoding="utf-8"
    )


def tree(identity: object, which: str, build: Callable[[Path], None]) -> Path:
    """The folder of that identity, which `build` fills when it is not there."""
    return once(paths.home() / "swe" / "trees" / f"{digest([LAYOUT, identity])}-{which}", build)


def weight(folders: Iterable[Path]) -> int:
    """Bytes on the disk of these folders together: files that share their place count once."""
    found: dict[int, int] = {}
    for folder in folders:
        for path in folder.rglob("*"):
            stat = path.lstat()
            found[stat.st_ino] = stat.st_blocks * 512
    return sum(found.values())

"""A clone of a repository on this disk, only read: which commits it has, files of a commit, a
commit's whole tree.

git is asked with no configuration but the clone's own, runs no hook and no monitor, and fetches
nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from recreate.api.errors import BadInput

_QUIET = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "safe.directory=*",
    "core.autocrlf=false",
)
_TIMEOUT = 600


class CloneProblem(Exception):
    """What is asked for is not in the clone, or the clone is none. Its message says which, for
    whoever has the row."""


class Clone:
    """path: the clone's folder, bare or not. Raises CloneProblem when no git repository is
    there."""

    def __init__(self, path: Path) -> None:
        if shutil.which("git") is None:
            raise BadInput(
                "git is not installed, and the tasks are commits", fix="install git", code="no-git"
            )
        self.path = path
        if (path / ".git").exists():
            self._git_dir = path / ".git"
        elif (path / "HEAD").is_file() and (path / "objects").is_dir():
            self._git_dir = path
        else:
            raise CloneProblem(f"{path} is no git repository: it has no history")
        if not self._run("for-each-ref", "--count=1") and not self._has("HEAD"):
            raise CloneProblem(f"the repository {path} is empty: it has no commit")

    def commits(self, names: Iterable[str]) -> dict[str, str]:
        """name -> the whole id of its commit, of those that are there. A name is an id or its
        beginning."""
        asked = list(dict.fromkeys(names))
        lines = self._run(
            "cat-file", "--batch-check", stdin="".join(f"{n}^{{commit}}\n" for n in asked)
        ).splitlines()
        found = {}
        for name, line in zip(asked, lines, strict=True):
            words = line.split()
            if len(words) == 3 and words[1] == b"commit":
                found[name] = words[0].decode()
        return found

    def head(self) -> str:
        """The commit that the clone stands on."""
        return self._run("rev-parse", "HEAD").decode().strip()

    def files(self, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
        """(commit, path) -> bytes, of those that are there; one program reads them all."""
        asked = [pair for pair in dict.fromkeys(wanted) if "\n" not in pair[1]]
        data = self._run(
            "cat-file", "--batch", stdin="".join(f"{commit}:{path}\n" for commit, path in asked)
        )
        found = {}
        at = 0
        for pair in asked:
            end = data.index(b"\n", at)
            words = data[at:end].split()
            at = end + 1
            if len(words) == 3 and words[1] in (b"blob", b"tree", b"commit") and words[2].isdigit():
                size = int(words[2])
                if words[1] == b"blob":
                    found[pair] = data[at : at + size]
                at += size + 1
        return found

    def checkout(self, commit: str, folder: Path) -> None:
        """Write a commit's tree to `folder`, which is made: nothing else of the history comes with
        it. Raises CloneProblem when an object of it is not in the clone."""
        with tempfile.TemporaryDirectory() as scratch:
            index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
            folder.mkdir(parents=True, exist_ok=True)
            self._run("read-tree", commit, env=index)
            self._run(
                "checkout-index",
                "--all",
                "--force",
                "--quiet",
                f"--prefix={folder}/",
                env=index,
                top=folder,
            )

    def _has(self, name: str) -> bool:
        try:
            self._run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        except CloneProblem:
            return False
        return True

    def _run(
        self,
        *arguments: str,
        stdin: str = "",
        env: dict[str, str] | None = None,
        top: Path | None = None,
    ) -> bytes:
        config = [word for pair in _QUIET for word in ("-c", pair)]
        where = ["--git-dir", str(self._git_dir), *(["--work-tree", str(top)] if top else [])]
        nothing = {
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_NO_LAZY_FETCH": "1",
        }
        plain = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "LC_ALL": "C"}
        try:
            done = subprocess.run(
                ["git", *config, *where, *arguments],
                input=stdin.encode("utf-8", "surrogateescape"),
                capture_output=True,
                env={**plain, **nothing, "GIT_TERMINAL_PROMPT": "0", **(env or {})},
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CloneProblem(
                f"git {arguments[0]} in {self.path} took longer than {_TIMEOUT} s"
            ) from None
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines() or [
                "it does not say why"
            ]
            raise CloneProblem(f"git {arguments[0]} fails in {self.path}: {said[0][:300]}")
        return done.stdout


def find(folder: Path, repo: str) -> Clone:
    """The clone of `repo` (owner/name) below `folder`: owner__name, owner/name or name, each also
    with `.git`.

    Raises CloneProblem naming where it was looked for.
    """
    owner, _, name = repo.rpartition("/")
    places = [f"{owner}__{name}", f"{owner}/{name}", name] if owner else [name]
    wrong: list[CloneProblem] = []
    for path in (folder / f"{place}{end}" for place in places for end in ("", ".git")):
        if path.is_dir():
            try:
                return Clone(path)
            except CloneProblem as e:  # a folder owner/name may also be one inside a clone of name
                wrong.append(e)
    if wrong:
        raise wrong[0]
    raise CloneProblem(
        f"there is no clone of {repo} in {folder}: git clone it into {folder / places[0]}"
    )

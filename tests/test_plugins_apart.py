"""Each plug-in's folder is taken away in turn: what it brought is gone, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.toy import write_script

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
ENTRIES = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
PLUGINS = sorted(
    name for name in ENTRIES["recreate.plugins"] if (ROOT / "recreate/plugins" / name).is_dir()
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all that git sees, whose plug-ins can be taken away."""
    tree = tmp_path_factory.mktemp("apart") / "tree"
    command = ["git", "ls-files", "-coz", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.endswith(".whl"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


@contextmanager
def taken_away(tree: Path, names: list[str]) -> Iterator[None]:
    aside = tree.with_name("aside")
    aside.mkdir()
    for name in names:
        (tree / "recreate/plugins" / name).rename(aside / name)
    try:
        yield
    finally:
        for name in names:
            shutil.rmtree(tree / "recreate/plugins" / name, ignore_errors=True)
            (aside / name).rename(tree / "recreate/plugins" / name)
        aside.rmdir()


def run(tree: Path, where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )


def commands_of(name: str) -> list[str]:
    """Return the commands that the entry points say the plug-in brings."""
    head, brought = f"recreate.plugins.{name}.", ENTRIES["recreate.command"]
    return [words.replace(".", " ") for words, at in brought.items() if at.startswith(head)]


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plug_in_that_is_taken_away_takes_its_own_with_it_and_nothing_else(
    tree: Path, workspace: Path, name: str
) -> None:
    with taken_away(tree, [name]):
        assert run(tree, workspace, "-m", "recreate", "--help").returncode == 0
        listed = run(tree, workspace, "-m", "recreate", "plugins", "--json")
        assert listed.returncode == 0, listed.stderr
        rows = [json.loads(line) for line in listed.stdout.splitlines()]
        assert [row["state"] for row in rows if row["name"] == name] == ["not installed"]
        build = ["build", "--domain", "tests.toy:Toy", "--model", write_script(workspace / "s")]
        build += ["--train", "4", "--validation", "6", "--rounds", "1", "--sandbox", "none"]
        built = run(tree, workspace, "-m", "recreate", *build, "--out", "runs/a", "--json")
        assert built.returncode == 0, built.stdout + built.stderr
        assert json.loads(built.stdout)["validation"]["verdict"] == "better"
        for words in commands_of(name):
            refused = run(tree, workspace, "-m", "recreate", *words.split(), "--json")
            assert refused.returncode == 2, words
            error = json.loads(refused.stdout)["error"]
            assert f"plug-in {name}" in error["message"] + error["fix"], error


def test_the_cores_tests_pass_without_any_plug_in(tree: Path, tmp_path: Path) -> None:
    flags = ["-q", "-n", "auto", "-p", "no:cacheprovider", "--ignore=tests/lab"]
    with taken_away(tree, PLUGINS):
        (tree / "tests/plugins").rename(tmp_path / "tests-of-plugins")
        try:
            done = run(tree, tree, "-m", "pytest", *flags)
        finally:
            (tmp_path / "tests-of-plugins").rename(tree / "tests/plugins")
    assert done.returncode == 0, done.stdout[-5000:]

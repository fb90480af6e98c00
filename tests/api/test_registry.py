"""A package of parts, installed as a user installs one, is found by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from recreate.api import plugins, registry
from recreate.api.errors import BadInput

ROOT = Path(__file__).parents[2]
Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example plugin in it, installed from its sources without network."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(
        ROOT / "tests" / "plugin", folder / "source", ignore=shutil.ignore_patterns("__pycache__")
    )
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--disable-pip-version-check"]
    if find_spec("pip") is None:
        pip = ["uv", "pip", "install", "--offline", "--python", sys.executable]
    flags = ["-q", "--no-deps", "--no-build-isolation", "--target", str(folder / "site")]
    subprocess.run([*pip, *flags, str(folder / "source")], check=True, timeout=300)
    return folder / "site"


@pytest.fixture
def ask(site: Path, workspace: Path) -> Ask:
    def ask(*words: str) -> list[dict[str, Any]]:
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{site}"}
        command = [sys.executable, "-m", "recreate", *words, "--json"]
        done = subprocess.run(
            command,
            cwd=workspace,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"), [("domain", "fruit"), ("optimizer", "grader-says"), ("model", "monkey")]
)
def test_an_installed_part_is_listed_with_the_package_that_brings_it(
    ask: Ask, kind: str, name: str
) -> None:
    rows = {row["name"]: row for row in ask("list", kind)}
    assert rows[name]["source"].startswith("installed by recreate-fruit 0.1.0: recreate_fruit:")
    assert rows[name]["state"] == "ready"
    assert any(row["source"].startswith("built in") for row in rows.values())


@pytest.mark.slow
def test_an_agent_is_built_from_installed_parts_alone(ask: Ask, workspace: Path) -> None:
    flags = [
        "--domain",
        "fruit",
        "--model",
        "monkey:one",
        "--optimizer",
        "grader-says",
        "--memory.embedder",
        "hashed",
    ]
    (built,) = ask("build", *flags, "--scaffold", "seed", "--out", "runs/x")
    assert (built["validation"]["before"], built["validation"]["after"]) == (0.0, 1.0)
    assert "capitals" in (workspace / "scaffolds/fruit/memory/grader-says.md").read_text()
    task = ask("tasks", "list", "fruit", "--split", "test")[0]["task"]
    (attempted,) = ask("run", "fruit", task, "--domain", "fruit", "--model", "monkey")
    assert attempted["score"] == 1.0


@pytest.mark.slow
def test_an_installed_package_is_a_plug_in_with_commands(site: Path, ask: Ask) -> None:
    (row,) = [row for row in ask("plugins") if row["name"] == "recreate-fruit"]
    assert (row["state"], row["package"]) == ("ready", "recreate-fruit 0.1.0")
    assert row["brings"]["commands"] == ["tasks make fruit"]
    assert "domain fruit" in row["brings"]["parts"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{site}"}
    words = [sys.executable, "-m", "recreate", "tasks", "make", "fruit", "--n", "1"]
    made = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (made.returncode, made.stdout) == (0, "fruit:train:apple\n"), made.stderr


@pytest.mark.parametrize(
    "name",
    [
        "openai:gpt-5-mini",
        "litellm:anthropic/claude",
        pytest.param("local:qwen2.5-coder-0.5b", marks=pytest.mark.plugin("local_models")),
    ],
)
def test_a_model_named_as_the_optimizer_is_told_the_flag_for_models(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        registry.find("optimizer", name)
    assert refused.value.code == "unknown-optimizer"
    assert refused.value.fix == f"--optimizer recreate --models.optimizer {name}"


def test_a_package_on_a_path_that_came_later_brings_its_part_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read once is read again where sys.path is another."""
    told = tmp_path / "pear-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: pear\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[recreate.domain]\npear = pear:Pear\n")
    assert "pear" not in plugins.names("domain")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert plugins.names("domain")["pear"] == "pear:Pear"
    assert plugins.brought_by("domain", "pear") == "pear 1.0"
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert "pear" not in plugins.names("domain")

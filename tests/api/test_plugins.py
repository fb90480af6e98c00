"""Plug-ins that are wrong: each is named, and the rest works."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recreate.api import plugins, registry
from recreate.api.errors import BadInput
from recreate.cli import app, run

Install = Callable[..., None]
Ask = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package: its name, its entry points by group, and the text of its module."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install(package: str, groups: dict[str, dict[str, str]], module: str = "") -> None:
        info = site / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {package}\nVersion: 1.0\n")
        lines = [
            f"[recreate.{group}]\n" + "".join(f"{name} = {to}\n" for name, to in points.items())
            for group, points in groups.items()
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        (site / f"{package}.py").write_text(module)
        sys.modules.pop(package, None)
        importlib.invalidate_caches()
        forget()

    yield install
    monkeypatch.undo()
    forget()


def forget() -> None:
    """What was read of packages is read anew."""
    for cached in (plugins._read_declared, plugins.read_needs, app.targets, app._make_command):
        cached.cache_clear()


@pytest.fixture
def ask(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(*words: str) -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = run([*words, "--json"])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return ask


def row_of(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (row,) = [row for row in rows if row["name"] == name]
    return row


@pytest.mark.plugin("methods")
def test_each_plug_in_is_listed_with_what_it_brings(ask: Ask, install: Install) -> None:
    module = "'''Pears.'''\nNEEDS = (\"plum\",)\ndef peel() -> None:\n    \"Peel.\"\n"
    points = {"command": {"peel": "pear:peel", "tasks.make.pear": "pear:peel"}}
    install("pear", {**points, "plugins": {"pears": "pear"}}, module)
    code, rows = ask("plugins")
    assert code == 0
    ours = [row for row in rows if row["package"].startswith("recreate-agents ")]
    assert {"audit", "rl", "view"} <= {row["name"] for row in ours}
    assert all(row["state"].startswith(("ready", "needs more: ", "not ins")) for row in ours)
    assert {"recipe-part grpo"} <= set(row_of(ours, "rl")["brings"]["parts"])
    assert {"tune", "bench arms"} <= set(row_of(ours, "rl")["brings"]["commands"])
    pear = row_of(rows, "pear")
    assert (pear["about"], pear["package"], pear["needs"]) == ("Pears.", "pear 1.0", ["plum"])
    assert pear["brings"]["commands"] == ["peel", "tasks make pear"]


@pytest.mark.plugin("audit")
def test_a_plug_in_that_raises_is_named_and_the_rest_works(
    ask: Ask, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    points = {"command": {"peel": "pear:peel", "tasks.peel": "pear:peel"}}
    install("pear", {**points, "check": {"pear": "pear:check"}}, "raise ValueError('unripe')")
    code, (error,) = ask("peel")
    assert (code, error["error"]["code"]) == (2, "broken-plugin")
    assert "plug-in pear" in error["error"]["message"]
    assert "unripe" in error["error"]["message"]
    assert run(["--help"]) == 0
    assert "peel" in capsys.readouterr().out
    assert run(["tasks", "--help"]) == 0
    listed = capsys.readouterr().out
    assert "unripe" in listed
    assert "check" in listed
    assert row_of(ask("plugins")[1], "pear")["state"].startswith("broken: the plug-in pear")
    checks = {check["name"]: check for check in ask("doctor")[1][0]["checks"]}
    assert checks["plugin.pear"]["ok"] is False
    assert ask("list", "model")[0] == 0


def test_a_plug_in_with_settings_that_ends_the_process_is_named_and_the_rest_works(
    ask: Ask, install: Install
) -> None:
    points = {"settings": {"pear": "pear:Pear"}, "command": {"peel": "pear:peel"}}
    install("pear", points, "raise SystemExit(3)")
    code, rows = ask("plugins")
    assert code == 0
    assert row_of(rows, "pear")["state"].startswith("broken: the plug-in pear")
    checks = {check["name"]: check for check in ask("doctor")[1][0]["checks"]}
    assert "broken" in checks["plugin.pear"]["detail"]
    assert ask("list", "model")[0] == 0


@pytest.mark.plugin("methods")
def test_two_plug_ins_with_one_name_are_both_named(ask: Ask, install: Install) -> None:
    install("pear", {"command": {"peel": "pear:peel"}})
    install("plum", {"command": {"peel": "plum:peel"}})
    code, (error,) = ask("peel")
    assert (code, error["error"]["code"]) == (2, "ambiguous-name")
    assert "pear:peel, plum:peel" in error["error"]["message"]
    rows = ask("plugins")[1]
    assert row_of(rows, "pear")["state"].startswith("clash: command peel is brought by pear:peel")
    assert row_of(rows, "plum")["state"].startswith("clash: command peel")


def test_a_command_of_recreate_itself_wins_over_a_plug_ins(ask: Ask, install: Install) -> None:
    install("pear", {"command": {"list": "pear:peel"}})
    assert ask("list", "model")[0] == 0
    state = row_of(ask("plugins")[1], "pear")["state"]
    assert state == "clash: list is a command of recreate itself"


def test_a_plug_in_that_needs_another_says_which(ask: Ask, install: Install) -> None:
    module = 'NEEDS = ("orchard",)\ndef peel() -> None:\n    "Peel."\n'
    install("pear", {"plugins": {"pear": "pear"}, "command": {"peel": "pear:peel"}}, module)
    code, (error,) = ask("peel")
    assert (code, error["error"]["code"]) == (2, "lacking-plugin")
    assert "plug-in pear needs the plug-in orchard" in error["error"]["message"]
    assert row_of(ask("plugins")[1], "pear")["state"].startswith("broken: the plug-in pear needs")


def test_what_an_absent_plug_in_brings_is_refused_with_its_name(ask: Ask, install: Install) -> None:
    gone = "recreate.plugins.orchard.commands"
    commands = {"peel": f"{gone}:peel", "tasks.pick": f"{gone}:pick", "trees.list": f"{gone}:list"}
    install("grove", {"command": commands, "optimizer": {"graft": f"{gone}:Graft"}})
    for words in (["peel"], ["tasks", "pick"], ["trees"], ["trees", "list"]):
        code, (error,) = ask(*words)
        assert (code, error["error"]["code"]) == (2, "unknown-command")
        assert "the plug-in orchard" in error["error"]["message"]
    with pytest.raises(BadInput, match="the plug-in orchard, which is not installed") as e:
        registry.find("optimizer", "graft")
    assert e.value.code == "unknown-optimizer"
    assert row_of(ask("plugins")[1], "orchard")["state"] == "not installed"
    assert "graft" not in plugins.names("optimizer")


def test_a_plug_in_says_which_of_ours_it_needs() -> None:
    """What the modules of a folder import at their top stands in NEEDS of that folder."""
    import ast

    root = Path(plugins.__file__).parents[1] / "plugins"
    for file in sorted(root.glob("*/**/*.py")):
        plugin = file.relative_to(root).parts[0]
        for node in ast.parse(file.read_text("utf-8")).body:
            module = node.module if isinstance(node, ast.ImportFrom) else ""
            if (module or "").startswith(plugins.OURS):
                other = (module or "").split(".")[2]
                assert other in (plugin, *plugins.read_needs(plugin)), f"{file} needs {other}"

"""What an exported program is made of, whatever tool it is for."""

from __future__ import annotations

import ast
import builtins
import json
from pathlib import Path

import pytest
import yaml

from recreate.agents.scaffold import Scaffold, load
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.plugins.export import export
from recreate.plugins.export.source import standalone_source
from tests.plugins.export.taken_along import json_agent, shell

PROGRAMS = ("mini-swe-agent", "langgraph", "inspect")


@pytest.mark.parametrize("target", PROGRAMS)
def test_nothing_of_it_imports_recreate(target: str, tmp_path: Path) -> None:
    made = export(shell(), target, tmp_path / "out")
    programs = [tmp_path / "out" / file for file in made.files if file.endswith(".py")]
    assert len(programs) == 3  # the program, its turns, and a tool
    for program in programs:
        for node in ast.walk(ast.parse(program.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name and name.partition(".")[0] == "recreate"]


def test_the_turns_name_nothing_that_is_not_there() -> None:
    """Every name that is read is defined, imported or a builtin; but for annotations, which nobody
    evaluates."""
    tree = ast.parse(standalone_source("recreate.plugins.export.turns"))
    known = {*dir(builtins), "__file__"}
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if hasattr(node, field):
                setattr(node, field, None)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            known.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            known.add(node.name)
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    assert read <= known


@pytest.mark.parametrize("target", PROGRAMS)
def test_the_same_agent_is_written_the_same_way(target: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        export(shell(), target, tmp_path / name)
    texts = [
        {p.name: p.read_text() for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in ("a", "b")
    ]
    assert texts[0] == texts[1]


def asking_for_nothing(seed: Scaffold) -> Scaffold:
    toml = seed.files["agent.toml"].replace("tokens = 600 ", "tokens = 0 ")
    return Scaffold(name=seed.name, files={**seed.files, "agent.toml": toml})


@pytest.mark.parametrize("target", PROGRAMS)
def test_what_it_cannot_do_is_said_and_stands_in_its_readme(target: str, tmp_path: Path) -> None:
    bare, seed = (
        asking_for_nothing(load(shipped("scaffolds") / name)) for name in ("seed-swe-small", "seed")
    )
    small = export(bare, target, tmp_path / "small")
    plain = export(seed, target, tmp_path / "seed")
    toml = "[memory]\ntokens = 5\n"
    offered = export(
        Scaffold(name="o", files={**seed.files, "agent.toml": toml}), target, tmp_path / "o"
    )
    for made, words in ((small, "samples = 2"), (plain, "native: "), (offered, "memory: ")):
        assert [text for text in made.differences if words in text]
        others = [other for other in (small, plain, offered) if other is not made]
        assert not [text for other in others for text in other.differences if words in text]
    readme = (tmp_path / "small" / "README.md").read_text()
    assert all(f"- {text}\n" in readme for text in small.differences)


@pytest.mark.parametrize("target", ["mini-swe-agent", "inspect"])
def test_part_of_a_second_is_a_difference_where_seconds_are_whole(
    target: str, tmp_path: Path
) -> None:
    files = {
        **json_agent().files,
        "agent.toml": 'action = "json"\n[limits]\ncommand_seconds = 0.5\n',
    }
    made = export(Scaffold(name="j", files=files), target, tmp_path / "out")
    assert [text for text in made.differences if "a command may take 1 s" in text]


@pytest.mark.parametrize("target", [*PROGRAMS, "skill", "agents-md", "claude-md"])
def test_an_agent_of_somebody_elses_is_refused(target: str, tmp_path: Path) -> None:
    files = {
        "agent.toml": 'action = "command"\ncommand = "mini"\ntexts = ["*.md"]\n',
        "prompt.md": "Do it.",
    }
    with pytest.raises(BadInput) as told:
        export(Scaffold(name="theirs", files=files), target, tmp_path / "out")
    assert (told.value.code, list(tmp_path.iterdir())) == ("cannot-export", [])


@pytest.mark.parametrize("target", PROGRAMS)
def test_an_agent_whose_tools_are_functions_is_refused_and_named(
    target: str, tmp_path: Path
) -> None:
    files = {
        **shell().files,
        "agent.toml": 'action = "tools"\n',
        "workflow.md": "{{ task.prompt }}",
    }
    with pytest.raises(BadInput, match="'tools'") as told:
        export(Scaffold(name="f", files=files), target, tmp_path / "out")
    assert (told.value.code, list(tmp_path.iterdir())) == ("cannot-export", [])


def test_json_replies_are_asked_for_as_here(tmp_path: Path) -> None:
    from recreate.agents.action import COMMAND_SCHEMA

    export(json_agent(), "inspect", tmp_path / "i")
    export(json_agent(), "mini-swe-agent", tmp_path / "m")
    assert (
        json.loads((tmp_path / "i" / "agent.json").read_text())["model"]["json_schema"]
        == COMMAND_SCHEMA
    )
    asked = yaml.safe_load((tmp_path / "m" / "mini.yaml").read_text())["model"]["model_kwargs"][
        "response_format"
    ]
    assert (asked["type"], asked["json_schema"]["schema"]) == ("json_schema", COMMAND_SCHEMA)

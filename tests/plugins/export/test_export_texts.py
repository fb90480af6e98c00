"""An agent as a text for a tool with its own loop: a folder of Agent Skills, AGENTS.md,
CLAUDE.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.cli import run as cli
from recreate.plugins.export import export

TOOL = '#!/usr/bin/env python3\n"""Finds the tests.\n\nAll of them."""\nprint("none")\n'
LESSON = "# Read the test first\n\nIt says what is expected.\n\nborn_of: abc\n"
EXAMPLE = "# A sum\n\nTask: 1 + 1\n\nReply: 2\n\nborn_of: abc\n"


def agent(toml: str = "", **files: str) -> Scaffold:
    seed = scaffolds.load(shipped("scaffolds") / "seed")
    named = {
        name.replace("__", "/").replace("_md", ".md").replace("_py", ".py"): text
        for name, text in files.items()
    }
    return Scaffold(
        name="mine", files={**seed.files, **({"agent.toml": toml} if toml else {}), **named}
    )


def of(differences: Sequence[str], word: str) -> list[str]:
    return [text for text in differences if word in text]


def test_a_skill_is_a_folder_as_its_format_has_it(tmp_path: Path) -> None:
    made = export(
        agent(tools__tests_py=TOOL, memory__read_first_md=LESSON), "skill", tmp_path / "shell-work"
    )
    assert made.files == ("SKILL.md", "references/read_first.md", "scripts/tests.py")
    _, head, body = (tmp_path / "shell-work" / "SKILL.md").read_text().split("---\n", 2)
    about = yaml.safe_load(head)
    assert about["name"] == "shell-work"
    assert about["description"].startswith("A shell and nothing else")
    assert "- `scripts/tests.py`: Finds the tests. All of them.\n" in body
    assert "- [Read the test first](references/read_first.md)\n" in body
    assert (
        (tmp_path / "shell-work" / "references" / "read_first.md")
        .read_text()
        .endswith("It says what is expected.\n")
    )
    assert (tmp_path / "shell-work" / "scripts" / "tests.py").read_text() == TOOL
    assert (tmp_path / "shell-work" / "scripts" / "tests.py").stat().st_mode & 0o111


def test_a_tool_that_does_not_say_what_runs_it_is_a_script_there_too(tmp_path: Path) -> None:
    export(agent(tools__tests_py=TOOL.partition("\n")[2]), "skill", tmp_path / "shell")
    assert (tmp_path / "shell" / "scripts" / "tests.py").read_text() == TOOL


@pytest.mark.parametrize(
    ("target", "file"), [("agents-md", "AGENTS.md"), ("claude-md", "CLAUDE.md")]
)
def test_a_page_holds_all_but_the_tools(target: str, file: str, tmp_path: Path) -> None:
    made = export(
        agent(tools__tests_py=TOOL, memory__read_first_md=LESSON), target, tmp_path / "out"
    )
    assert made.files == tuple(sorted((file, "tools/tests.py")))
    text = (tmp_path / "out" / file).read_text()
    assert "- Read the test first: It says what is expected.\n" in text
    assert "- `tools/tests.py`: Finds the tests. All of them.\n" in text
    assert "Make the smallest change that does the whole job" in text


def test_worked_examples_are_taken_along(tmp_path: Path) -> None:
    shown = agent(examples__sum_md=EXAMPLE)
    export(shown, "skill", tmp_path / "shell-work")
    skill = (tmp_path / "shell-work" / "SKILL.md").read_text()
    assert "## Tasks that were done well\n\n- [A sum](references/sum.md)\n" in skill
    reference = (tmp_path / "shell-work" / "references" / "sum.md").read_text()
    assert reference == "# A sum\n\nTask: 1 + 1\n\nReply: 2\n"
    export(shown, "agents-md", tmp_path / "out")
    page = (tmp_path / "out" / "AGENTS.md").read_text()
    assert page.count("### A sum\n\nTask: 1 + 1\n\nReply: 2\n") == page.count("1 + 1") == 1


def test_what_the_prompts_say_of_our_loop_is_left_out_and_said(tmp_path: Path) -> None:
    made = export(agent(), "agents-md", tmp_path / "out")
    text = (tmp_path / "out" / "AGENTS.md").read_text()
    assert "You are a careful engineer" in text
    assert not any(
        word in text for word in ("`submit`", "You have 100 steps", "Every reply", "```bash\n")
    )
    (left_out,) = of(made.differences, "left out")
    assert "You have 100 steps" in left_out


@pytest.mark.parametrize(
    ("toml", "word"),
    [
        ('action = "json"', "'json'"),
        ("samples = 3", "samples = 3"),
        ('done = "tests"', "done = tests"),
        ('before = ["tests"]', "before = tests"),
        ("[memory]\ntokens = 500", "workspace's memory"),
        ('action = "tools"\n[mcp.notes]\ncommand = ["notes-server"]', "mcp: the servers notes"),
    ],
)
def test_what_a_text_cannot_carry_is_named(toml: str, word: str, tmp_path: Path) -> None:
    assert of(
        export(agent(toml, tools__tests_py=TOOL), "agents-md", tmp_path / "a").differences, word
    )
    bare = agent("[memory]\ntokens = 0", tools__tests_py=TOOL)
    assert not of(export(bare, "agents-md", tmp_path / "b").differences, word)


def test_the_loop_is_said_to_be_the_tools(tmp_path: Path) -> None:
    assert (
        "the loop is that tool's" in export(agent(), "claude-md", tmp_path / "out").differences[0]
    )


@pytest.mark.parametrize("name", ["Shell", "a--b", "-a", "a" * 65, "a_b"])
def test_a_skill_is_refused_a_name_that_its_format_forbids(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has the name of its folder") as told:
        export(agent(), "skill", tmp_path / name)
    # what it says to type works
    export(agent(), "skill", Path(told.value.fix.rpartition("--out ")[2]))


def test_a_description_is_as_long_as_its_format_lets_it_be(tmp_path: Path) -> None:
    export(agent(f'domain = "swe"\ndescription = "{"word " * 400}"'), "skill", tmp_path / "long")
    about = yaml.safe_load((tmp_path / "long" / "SKILL.md").read_text().split("---\n")[1])
    assert len(about["description"]) == 1024
    assert about["description"].endswith("... Use it for tasks of the kind swe.")


@pytest.mark.parametrize("there", ["a folder", "a file", "a broken link"])
def test_an_export_replaces_nothing(
    there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    if there == "a folder":
        out.mkdir()
    elif there == "a file":
        out.write_text("mine")
    else:
        out.symlink_to(tmp_path / "nowhere")
    command = ["export", "seed", "--to", "agents-md", "--out", str(out), "--json"]
    assert cli(command) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["fix"]) == ("exists", f"name a new folder: --out {out}-2")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert cli([*command[:-2], f"{out}-2"]) == 0


def test_a_scaffold_that_is_broken_is_not_taken_along(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"mine/workflow\.md:1: "):
        export(agent(workflow_md="{{ nothing.of_the_kind }}"), "skill", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_was_written_and_how_it_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "shell"
    assert cli(["export", "seed", "--to", "skill", "--out", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {"target": "skill", "path": str(out), "files": ["SKILL.md"]}.items() <= record.items()
    assert any("loop" in text for text in record["differences"])


@pytest.mark.parametrize(
    ("flags", "fix"),
    [
        ([], "--to one of: skill"),
        (["--to", "skill"], "--out skill-export"),
        (["--to", "skil", "--out", "x"], "--to one of: skill"),
    ],
)
def test_what_is_missing_is_said_with_what_to_type(
    flags: list[str], fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["export", "seed", *flags]) == 2
    assert fix in capsys.readouterr().err

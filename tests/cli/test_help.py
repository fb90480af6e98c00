"""Help that can be read: one screen to begin with, flags in groups, one spelling each, nothing cut
off."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.cli import help as help_
from recreate.cli import run as cli
from recreate.cli.app import COMMANDS, GROUPS, program
from recreate.cli.options import ALSO, as_shown, flag_of, panel_of
from recreate.runs import settings
from tests.builder.test_their_mistakes import SMALL, Policy, Proposer, Words, model
from tests.toy import Toy, write_script

TOP: Any = program()


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert cli([*words, "--help"]) == 0
    return capsys.readouterr().out


def every(group: Any = TOP) -> Iterator[Any]:
    for command in group.commands.values():
        yield command
        if hasattr(command, "commands"):
            yield from every(command)


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_all_of_it_is_one_screen_and_names_five_commands_to_begin_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = shown(capsys).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    at = lines.index("Begin with:")
    assert [line.split()[0] for line in lines[at + 1 : at + 6]] == [
        "demo",
        "init",
        "doctor",
        "build",
        "view",
    ]
    named = set(re.findall(r"[a-z-]+", "\n".join(lines)))
    assert set(TOP.commands) <= named


@pytest.mark.plugin("generators")
@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_an_example_and_whole_summaries(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = shown(capsys, *group.split())
    assert f"Example: recreate {group} " in said
    assert "..." not in said.partition("Commands:")[2]
    found: Any = TOP
    for word in group.split():
        found = found.commands[word]
    for name, command in found.commands.items():
        assert re.search(rf"^  {name} ", said, re.MULTILINE)
        assert help_.summary(command) in " ".join(said.replace("-\n          ", "-").split())


def titles_of(text: str) -> list[str]:
    return [line[:-1] for line in text.splitlines() if re.fullmatch(r"[A-Z][\w ]+:", line)]


def test_every_flag_of_a_setting_stands_in_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert [a for a in (*settings.addresses(), settings.OWN) if not panel_of(a)] == []
    capsys.readouterr()
    assert cli(["build", "--help-all"]) == 0
    said = capsys.readouterr().out
    assert titles_of(said) == [*help_.GROUPS, "Options"]
    assert "--name" in said.partition("\nAgent:")[2].partition("\nModels:")[0]
    assert "[default: False]" not in said


def test_help_shows_of_many_settings_the_ten_that_people_need(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = shown(capsys, "build")
    assert titles_of(said) == ["Settings", "Options"]
    flags = re.findall(r"^  (--[\w.-]+)", said.partition("\nSettings:")[2], re.MULTILINE)
    assert flags == [*(flag_of(address) for address in help_.NEEDED), "--json"]
    assert re.search(r"--help-all shows \d+ settings more", said)
    assert "--help-all" not in shown(capsys, "resume")


def test_each_flag_has_one_spelling_in_help_and_its_address_is_taken_too(workspace: Path) -> None:
    for command in every():
        for param in command.params:
            long = [flag for flag in param.opts if flag.startswith("--")]
            assert len(long) <= 1, (command.name, param.opts)
    assert flag_of("memory.policy") == "--memory"
    assert flag_of("from_experience") == "--from-experience"
    assert ALSO["--memory.policy"] == "--memory"
    typed = [
        "--optimizer_settings=n=3",
        "--select.tasks",
        "a",
        "--models.optimizer",
        "m",
        "--gate.cheaper",
    ]
    assert as_shown(typed) == [
        "--optimizer-settings=n=3",
        "--tasks",
        "a",
        "--models.optimizer",
        "m",
        "--keep-cheaper",
    ]
    script = write_script(workspace / "s.jsonl")
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        script,
        "--memory.policy",
        "recreate",
    ]
    assert cli(["plan", *flags, "--from_experience", "--models.optimizer_price=0,0"]) == 0


def test_the_sandboxs_flag_is_sandbox_and_rung_is_still_taken(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = shown(capsys, "sandbox", "exec")
    assert "--sandbox" in said
    assert "--rung" not in said
    assert cli(["sandbox", "exec", "--sandbox", "none", "--", "true"]) == 0
    assert "--rung" not in capsys.readouterr().err
    assert (
        cli(["sandbox", "exec", "--rung", "none", "--", "printf", "%s", "--from_experience"]) == 0
    )
    out, err = capsys.readouterr()
    assert out == "--from_experience", "what follows -- is the command's"
    assert "--rung is called --sandbox" in err


def test_seed_and_memory_mean_one_thing_each_in_help() -> None:
    for name in COMMANDS:
        for param in _params(name):
            text = re.sub(r"RUN:seed|seed,scaffold", "", getattr(param, "help", "") or "")
            assert re.findall(r"(?<!random )\bseed\b(?! agent)", text) == [], (name, text)
            if "--seed" in param.opts:
                assert "random seed" in text, name
            if "--memory" in param.opts:
                assert text.startswith("The policy: "), name


def _params(name: str) -> list[Any]:
    command = TOP
    for word in name.split():
        command = command.commands[word]
    return [param for param in command.params if param.param_type_name == "option"]


# ------------------------------------------------------------------------------------------- the
# same in Python


def built(**parts: Any) -> recreate.Outcome:
    how = {
        "domain": Toy(),
        "model": model(),
        "sandbox": "none",
        "memory__embedder": "hashed",
        "rounds": 0,
    }
    return recreate.build(**{**SMALL, **how, **parts})


def test_memory_in_python_is_the_flag_memory(workspace: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        made = built(
            memory="recreate", recall=Words(), models__optimizer=model(), optimizer=Proposer
        )
    text = (made.run / "settings.toml").read_text()
    assert 'policy = "recreate"' in text
    assert 'recall = "tests.builder.test_their_mistakes:Words"' in text


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ({"policy": Policy}, "policy= is called memory="),
        ({"optimizer_model": "scripted:s.jsonl"}, "optimizer_model= is called models__optimizer="),
        ({"memory": Words()}, "given as recall="),
    ],
)
def test_what_it_was_called_is_taken_with_a_warning(
    workspace: Path, old: dict[str, Any], said: str
) -> None:
    write_script(workspace / "s.jsonl")
    with pytest.warns(DeprecationWarning, match=said):
        made = built(**old)
    text = (made.run / "settings.toml").read_text()
    assert any(w in text for w in (":Policy", 'optimizer = "scripted:s.jsonl"', ":Words"))


def test_a_default_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["build", "--help-all"]) == 0
    flags = re.split(r"\n  --", capsys.readouterr().out)
    assert [flag.split()[0] for flag in flags[1:] if flag.count("default:") > 1] == []
    assert any(flag.startswith("memory ") and "[default: none]" not in flag for flag in flags)

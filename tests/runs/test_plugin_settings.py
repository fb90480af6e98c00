"""A plug-in brings a table of settings: an address space, help and a refusal of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

from recreate.api import plugins
from recreate.api.config import PluginSettings
from recreate.api.errors import BadInput
from recreate.runs import settings
from recreate.runs.folder import run_id
from recreate.runs.settings import load_run, settings_text


class TeaSettings(PluginSettings):
    short: ClassVar = {"sugar": "sugar"}
    taken_by: ClassVar = frozenset({"build"})
    free: ClassVar = frozenset({"cup"})
    variables: ClassVar = frozenset({"RECREATE_TEA_POT"})

    sugar: int = Field(default=0, ge=0, description="Spoons of it.")
    cup: str = ""


@pytest.fixture
def tea(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "settings_tables", lambda: {"tea": TeaSettings})


def load(workspace: Path, flags: dict[str, Any] | None = None) -> settings.Settings:
    return settings.load(workspace, flags or {}, {})


@pytest.mark.usefixtures("tea")
def test_a_table_is_set_by_its_address_its_flag_and_the_file(workspace: Path) -> None:
    assert load(workspace).of(TeaSettings) == TeaSettings()
    assert load(workspace, {"sugar": 2}).of(TeaSettings).sugar == 2
    (workspace / "recreate.toml").write_text("[tea]\nsugar = 3\n")
    assert load(workspace).of(TeaSettings).sugar == 3
    assert load(workspace, {"tea.sugar": "1"}).of(TeaSettings).sugar == 1
    assert settings.taken_by("build") == ("tea.sugar", "tea.cup")
    with pytest.raises(BadInput, match=r"tea\.sugar: .* greater than or equal to 0"):
        load(workspace, {"sugar": -1})
    with pytest.raises(BadInput, match=r"no setting 'tea\.salt'"):
        load(workspace, {"tea.salt": 1})


@pytest.mark.usefixtures("tea")
def test_it_is_in_a_runs_folder_and_its_id_but_for_what_is_free(workspace: Path) -> None:
    sweet = load(workspace, {"sugar": 2})
    run = workspace / "runs" / "a"
    run.mkdir(parents=True)
    (run / "settings.toml").write_text(settings_text(sweet))
    assert load_run(run) == sweet
    assert run_id(sweet) != run_id(load(workspace))
    assert run_id(sweet) == run_id(load(workspace, {"sugar": 2, "tea.cup": "blue"}))
    assert run_id(load(workspace)) == run_id(load(workspace, {"tea.cup": "blue"}))
    assert settings.differing(sweet, load(workspace)) == {"tea.sugar": (2, 0)}
    assert settings.as_flags(sweet) == ["--tea.sugar", "2"]


def test_a_table_of_a_plug_in_that_is_not_here_is_refused_by_its_name(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "why_no_table", lambda name: f"[{name}] is of the plug-in tea")
    with pytest.raises(BadInput, match=r"\[tea\] is of the plug-in tea"):
        load(workspace, {"tea.sugar": 1})
    with pytest.raises(BadInput, match=r"\[tea\] is of the plug-in tea"):
        settings.Settings.model_validate({"tea": {"sugar": 1}})


def test_a_run_of_an_older_format_is_refused_in_a_sentence(workspace: Path) -> None:
    run = workspace / "runs" / "old"
    run.mkdir(parents=True)
    (run / "settings.toml").write_text('domain = "toy"\nvllm_python = ""\n')
    with pytest.raises(BadInput, match=r"was made by recreate 0\.1; its report\.md can still"):
        load_run(run)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("RECREATE_RUONDS", "RECREATE_ROUNDS"),
        ("RECREATE_MODELS__OPTIMZER", "RECREATE_MODELS__OPTIMIZER"),
        ("RECREATE_MODELS_OPTIMIZER", "RECREATE_MODELS__OPTIMIZER"),
        ("RECREATE_TASKS", "RECREATE_SELECT__TASKS"),
        ("RECREATE_TEA__SUGR", "RECREATE_TEA__SUGAR"),
        ("RECREATE_HOMES", "RECREATE_HOME"),
        ("RECREATE_TEA_POTS", "RECREATE_TEA_POT"),
        ("RECREATE_SEDE", "RECREATE_SEED"),
    ],
)
@pytest.mark.usefixtures("tea")
def test_a_variable_that_nothing_reads_is_refused_with_the_one_that_is_meant(
    workspace: Path, variable: str, meant: str
) -> None:
    with pytest.raises(BadInput) as refused:
        settings.load(workspace, {}, {variable: "3"})
    assert (refused.value.code, refused.value.exit_code) == ("unknown-setting", 2)
    assert refused.value.fix == f"did you mean {meant!r}?"


@pytest.mark.usefixtures("tea")
def test_variables_that_are_no_settings_and_empty_ones_are_left_alone(workspace: Path) -> None:
    known = {"RECREATE_HOME": "/tmp", "RECREATE_MODEL_CATALOG": "x", "RECREATE_TEA_POT": "blue"}
    loaded = settings.load(workspace, {}, {**known, "RECREATE_RUONDS": "", "RECREATE": "1"})
    assert loaded == load(workspace)
    key = {"RECREATE_OPTIMIZER_SETTINGS__N": "4", "RECREATE_AGENT__MAX_TOKENS": "9"}
    loaded = settings.load(workspace, {}, key)
    assert (loaded.optimizer_settings, loaded.limits.max_tokens) == ({"n": "4"}, 9)


def test_a_variable_of_a_plug_in_that_is_not_here_is_refused_by_its_name(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "why_no_table", lambda name: f"[{name}] is of the plug-in tea")
    with pytest.raises(BadInput, match=r"RECREATE_TEA__SUGAR: \[tea\] is of the plug-in tea"):
        settings.load(workspace, {}, {"RECREATE_TEA__SUGAR": "1"})

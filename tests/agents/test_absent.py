"""An agent that asks for what a plug-in brings is refused with a sentence where it is missing."""

from __future__ import annotations

import pytest

from recreate.agents.config import read_agent
from recreate.agents.scaffold import Scaffold
from recreate.api import plugins


@pytest.mark.parametrize(
    ("toml", "line", "said"),
    [
        ('action = "command"\ncommand = "gone"\n', 1, "needs the plug-in foreign"),
        ('action = "python:gone:agent"\n', 1, "needs the plug-in foreign"),
        ('action = "tools"\n[mcp.gone]\ncommand = ["x"]\n', 1, "need the plug-in mcp"),
        ("samples = 2\nbranches = [2, 1, 1, 1, 1]\n", 2, "branches needs the plug-in turns"),
        ("\n[lookahead]\ncandidates = 19\n", 2, "lookahead needs the plug-in turns"),
    ],
)
def test_what_a_plug_in_brings_is_refused_without_it(
    toml: str, line: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_has_folder", lambda plugin: False)
    agent, faults = read_agent(toml)
    assert agent is None
    assert [(at, said in message) for at, message in faults] == [(line, True)]


def test_a_program_of_somebody_elses_needs_no_prompts_though_its_plug_in_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "_has_folder", lambda plugin: False)
    toml = 'action = "command"\ncommand = "gone too"\n'
    assert Scaffold(name="x", files={"agent.toml": toml}).required == ("agent.toml",)

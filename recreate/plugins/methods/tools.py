"""Tools that a model writes into an agent: who can call them, how the agent is told of them, what
is wrong with one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from recreate.agents.lint import MAX_LESSON
from recreate.agents.scaffold import Scaffold, variables_example
from recreate.agents.trajectory import clip

_FENCED = re.compile(r"\s*```[\w+-]*[ \t]*\n(.*\n)[ \t]*```\s*", re.DOTALL)
NOTICE = "memory/tools.md"
TITLE = "# Commands that were made for you\n\n"
ACTIONS = ("bash", "json", "tools")
"""How an agent acts that calls tools as it likes; with `tool:NAME` and in a foreign agent nothing
else is called."""


def unfenced(text: str) -> str:
    """A file's text out of the one block of ``` that a model put it into; else as it is."""
    found = _FENCED.fullmatch(text)
    return found[1] if found else text


def calls_tools(scaffold: Scaffold) -> bool:
    return not scaffold.foreign and scaffold.agent.action in ACTIONS


def with_notice(scaffold: Scaffold, files: Mapping[str, str]) -> dict[str, str]:
    """The files, and the lesson that tells an agent of its tools where its prompts do not: a tool
    that nobody is told of is not used. Functions (`action = "tools"`) and prompts that loop over
    `tools` tell by themselves.
    """
    agent = Scaffold(name=scaffold.name, files={**scaffold.files, **files})
    untold = [
        name for name in agent.tools if name not in agent.agent.uses and not is_told(agent, name)
    ]
    if agent.agent.action == "tools" or not untold:
        return dict(files)
    share = (MAX_LESSON - len(TITLE)) // len(untold) - max(map(len, untold)) - len("- ``: \n")
    lines = [
        f"- `{name}`: {clip(' '.join(agent.help(name).split()), max(20, share))}\n"
        for name in untold
    ]
    return {**files, NOTICE: TITLE + "".join(lines)}


def is_told(agent: Scaffold, name: str) -> bool:
    """Whether what a tool says of itself stands in the prompts that an attempt begins with, lessons
    left aside."""
    said = (agent.help(name).splitlines() or [""])[0]
    for template in ("system", "workflow"):
        example = variables_example(template, agent.agent.before)
        shown = agent.render(template, task=example["task"], before=example["before"], lessons=[])
        if said and said in shown:
            return True
    return False

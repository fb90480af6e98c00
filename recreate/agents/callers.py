"""Which of a scaffold's tools anything can start: what nothing calls is carried for nothing.

In use is a tool that agent.toml gives a part, that the model is handed as a function or told of in
a list (a template that reads `tools`), that a prompt or a lesson names, and what such a tool names
in its own text: as a program, in an import, as a path. A text that names the folder of the tools
and no tool in it, or a tool that lists the files beside itself, may mean any, so that all are in
use. A name is found as a word: what is called `check` counts as named by "check your work". What is
missed is a name that a tool puts together of parts.
"""

from __future__ import annotations

import re
from functools import lru_cache

from jinja2 import TemplateError, nodes

from recreate.agents.scaffold import TEMPLATES, Scaffold
from recreate.agents.template import parse_template

_FOLDER = re.compile(r"\.recreate/bin\b(?!/[\w.-])")
_BESIDE = re.compile(r"__file__|argv\[0\]")
_LISTS = re.compile(r"\b(?:iterdir|r?glob|listdir|scandir|walk)\(")


def uncalled(scaffold: Scaffold) -> list[str]:
    """Paths of the tools that nothing in the scaffold calls, in order; [] where any of them may be
    called."""
    if scaffold.foreign or scaffold.agent.action == "tools":
        return []
    # those that it leaves to the defaults name no tool
    own = (f"{template}.md" for template in TEMPLATES)
    templates = [scaffold.files[file] for file in own if file in scaffold.files]
    if any(map(_lists_tools, templates)):
        return []
    left = dict(scaffold.tools)
    notes = [*scaffold.lessons, *scaffold.examples]
    texts = [
        *templates,
        *(f"{note.title}\n{note.body}" for note in notes),
        *(scaffold.files[left.pop(name)] for name in scaffold.agent.uses if name in left),
    ]
    while texts and left:
        text = texts.pop()
        if _FOLDER.search(text) or (_BESIDE.search(text) and _LISTS.search(text)):
            return []
        for name in [
            name for name in left if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
        ]:
            texts.append(scaffold.files[left.pop(name)])
    return list(left.values())


@lru_cache(maxsize=64)
def _lists_tools(source: str) -> bool:
    """Whether a template reads `tools`: the model is told of each. What is no template is for the
    check to say."""
    try:
        return any(name.name == "tools" for name in parse_template(source).find_all(nodes.Name))
    except TemplateError:
        return True

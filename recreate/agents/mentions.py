"""What a text names: the exception it ends with, the programs a command runs, the files it speaks of."""

from __future__ import annotations

import json
import re

MOST = 64
"""Files and programs that one step is found by."""

_READ = 20_000
"""Characters of either end of a text that are looked at."""

_ERROR = re.compile(r"\b([A-Z]\w{2,60}(?:Error|Exception|Interrupt|Exit|Timeout))\b")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1.*?^\s*\2\s*$", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile(r"'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\"")
_COMMAND = re.compile(r"\|\||&&|[;\n|&(]|`|\bthen\b|\bdo\b|\belse\b")
_PROGRAM = re.compile(r"(?:[\w.~+-]*/)*([A-Za-z_][\w.+-]*)\Z")
_BEFORE = frozenset(["sudo", "env", "time", "nohup", "exec", "xargs", "command", "!", "if", "while", "until", "elif"])
_NOT = frozenset(
    [
        "for",
        "case",
        "esac",
        "fi",
        "done",
        "in",
        "function",
        "return",
        "export",
        "local",
        "set",
        "unset",
        "true",
        "false",
        "then",
        "do",
        "else",
    ]
)
_EXTENSION = (
    "py|pyi|pyx|ipynb|toml|cfg|ini|txt|md|rst|json|jsonl|yaml|yml|csv|tsv|xml|html|css|scss|js|jsx|mjs|cjs|ts|tsx|c|h|"
    "cc|cpp|hpp|cxx|rs|go|java|kt|rb|php|pl|lua|r|jl|swift|scala|hs|ml|ex|erl|sh|bash|zsh|bat|ps1|sql|proto|"
    "lock|log|diff|patch|env|conf|tex|vue|svelte|gradle|cmake|mk|so|whl|gz|zip|tar|png|svg|pdf|db|sqlite"
)
_FILE = re.compile(
    rf"(?<![\w/.:+@-])(?:(?:\.{{0,2}}/)?(?:[\w.+@-]+/)*[\w+@-][\w.+@-]*\.(?:{_EXTENSION})|"
    r"(?:\.{1,2})?/(?:[\w.+@-]+/)*[\w.+@-]*[\w+@-]|(?:[\w.+@-]+/)*(?:Makefile|Dockerfile|Jenkinsfile))(?![\w/])"
)


def error_type(text: str) -> str:
    """The name of the last exception that a text mentions, else ''."""
    found = _ERROR.findall(text[-_READ:])
    return found[-1] if found else ""


def tools(action: str) -> list[str]:
    """The programs and tools that an action runs, by name: `python -m pytest x | tail` gives python, pytest, tail.

    An action that is a JSON object names its tool under `name` or `tool`, and its command under `command`.
    """
    action = action.strip()
    if action.startswith("{"):
        return _of_json(action)
    found: dict[str, None] = {}
    for part in _COMMAND.split(_QUOTED.sub(" ", _HEREDOC.sub(" ", action[: _READ // 5]))):
        said = part.split()
        while said and (said[0] in _BEFORE or "=" in said[0] or said[0].startswith("-")):
            del said[0]
        if len(said) > 2 and said[0] == "timeout":
            said = said[2:]
        if not said or said[0] in _NOT or said[0].startswith(("#", "$", "<", ">", "{", "[")):
            continue
        program = _PROGRAM.match(said[0])
        if program is not None:
            found[program[1]] = None
            if len(said) > 2 and said[1] == "-m" and program[1].startswith("python"):
                found[said[2]] = None
    return list(found)[:MOST]


def _of_json(action: str) -> list[str]:
    try:
        said = json.loads(action)
    except ValueError:
        return []
    named = [said[key] for key in ("name", "tool") if isinstance(said.get(key), str)]
    inner = said.get("arguments") if isinstance(said.get("arguments"), dict) else said
    command = inner.get("command")
    return list(dict.fromkeys([*named, *(tools(command) if isinstance(command, str) else [])]))


def files(*texts: str) -> list[str]:
    """The paths that the texts mention, as they write them, without `./` before."""
    found: dict[str, None] = {}
    for text in texts:
        ends = text if len(text) <= 2 * _READ else text[:_READ] + "\n" + text[-_READ:]
        for path in _FILE.findall(ends):
            found[path.removeprefix("./")] = None
            if len(found) == MOST:
                return list(found)
    return list(found)


def is_file(asked: str, path: str) -> bool:
    """Whether a path is the one asked for: the same, or ending in it (`b.py` and `a/b.py` name `/x/a/b.py`)."""
    asked = asked.removeprefix("./")
    return path == asked or path.endswith("/" + asked.lstrip("/"))

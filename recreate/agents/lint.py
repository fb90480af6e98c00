"""What is wrong with a scaffold, found before a token is spent.

agent.toml is valid and names tools that exist; every template parses, uses only variables it has,
and renders with all of them; prompts, lessons and tools are of bounded size; lessons are shown to
the agent; each tool says what it is for, compiles and, given a sandbox backend, starts in a sandbox
with nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from itertools import zip_longest
from pathlib import PurePosixPath

from jinja2 import TemplateSyntaxError, meta, nodes

from recreate.agents.config import AgentConfig, key_line, read_agent
from recreate.agents.functions import OWN_FUNCTIONS, own_functions, read_schema
from recreate.agents.kinds import open_kind
from recreate.agents.retrieval import RECALL
from recreate.agents.scaffold import (
    DEFAULTS,
    TEMPLATES,
    Scaffold,
    Template,
    path_fault,
    variables_example,
)
from recreate.agents.template import (
    BRACES,
    METHODS,
    OWN_NAMES,
    instead_of,
    parse_template,
    reason,
    render_text,
)
from recreate.api.errors import BadInput
from recreate.api.ports import SandboxBackend
from recreate.api.registry import find
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.syntax import parse_python
from recreate.api.types import Lesson, Record
from recreate.storage.redact import redact

MAX_PROMPT = 24_000
"""Characters of system.md and workflow.md together, rendered with this scaffold's lessons and a
short task."""
MAX_LESSON = 2_000
NOTES = {"lessons": ("memory", MAX_LESSON), "examples": ("examples", 8_000)}
"""Folder and most characters of each of them."""
MAX_NOTES = 40
"""Of either."""
MAX_TOOL = 64_000
"""Bytes."""
START_SECONDS = 10.0
_JINJAS = ("loop", "self", "dict")
"""What in a template has calls of its own."""


class Problem(Record):
    """One thing to mend: `line` counts from 1."""

    file: str
    line: int
    message: str


def check(
    scaffold: Scaffold, backend: SandboxBackend | None = None, *, prompt_chars: int = MAX_PROMPT
) -> list[Problem]:
    """Return all faults, by file and line; [] when there are none. With a backend, each tool is
    started in a sandbox."""
    found: list[Problem] = []
    for name in scaffold.required:
        if name not in scaffold.files:
            found.append(Problem(file=name, line=1, message="is missing: every scaffold has one"))
    found += _keys(scaffold)
    for path in scaffold.files:
        if wrong := path_fault(path, scaffold.foreign):
            found.append(Problem(file=path, line=1, message=wrong))
    agent, faults = read_agent(scaffold.files.get("agent.toml", ""))
    found += [Problem(file="agent.toml", line=line, message=message) for line, message in faults]
    if scaffold.foreign:
        found += open_kind(agent.action).check(scaffold, backend) if agent is not None else ()
        return sorted(found, key=lambda fault: (fault.file, fault.line, fault.message))
    if agent is not None:
        found += _named_tools(scaffold, agent)
        found += _functions(scaffold, agent)
    found += _templates(scaffold, agent, prompt_chars)
    for kind in NOTES:
        found += _notes(scaffold, kind)
    found += _tools(scaffold)
    if backend is not None:
        broken = {fault.file for fault in found}
        if agent is not None:  # a server waits for what it is sent, and has what the domain brings
            broken |= {scaffold.tools.get(entry.server, "") for entry in agent.mcp.values()}
        found += _starts(
            scaffold, backend, [path for path in scaffold.tools.values() if path not in broken]
        )
    return sorted(found, key=lambda fault: (fault.file, fault.line, fault.message))


def problems(scaffold: Scaffold, backend: SandboxBackend | None = None) -> list[str]:
    """Return the faults of `check`, each as one line: `file:line: message`."""
    return [f"{p.file}:{p.line}: {p.message}" for p in check(scaffold, backend)]


def refuse(scaffold: Scaffold, backend: SandboxBackend | None = None) -> None:
    """Raises BadInput (`bad-scaffold`) with the first fault, before anything is spent on it."""
    if faults := problems(scaffold, backend):
        raise BadInput(
            f"{scaffold.name}/{faults[0]}",
            fix="recreate scaffold check shows all faults of a scaffold",
            code="bad-scaffold",
        )


def _keys(scaffold: Scaffold) -> Iterator[Problem]:
    """Find keys: an agent's folder is read by others, and copied into every run."""
    for file, text in scaffold.files.items():
        if (plain := redact(text, acted_on=True)) != text:
            lines = enumerate(zip_longest(text.split("\n"), plain.split("\n")), 1)
            line = next(n for n, (one, other) in lines if one != other)
            yield Problem(file=file, line=line, message="holds what looks like a key: leave it out")


def _named_tools(scaffold: Scaffold, agent: AgentConfig) -> Iterator[Problem]:
    """Find tools that agent.toml names and that are not there."""
    for name, key in agent.uses.items():
        if name not in scaffold.tools:
            line = key_line(scaffold.files["agent.toml"], (key,))
            there = ", ".join(scaffold.tools) or "none"
            message = f"{key} names the tool {name!r}; there are: {there}"
            yield Problem(file="agent.toml", line=line, message=message)


def _functions(scaffold: Scaffold, agent: AgentConfig) -> Iterator[Problem]:
    """Find tools that are called as something else is that a model may call."""
    commands = {RECALL: "by which the agent asks memory ([memory] recall)"}
    commands = commands if agent.memory.recall else {}
    for key in agent.turns:
        why = f"which is a command to [{key}]"
        commands |= dict.fromkeys(find("turns", key).commands, why)
    for name, why in commands.items():
        if path := scaffold.tools.get(name):
            yield Problem(file=path, line=1, message=f"is called {name!r}, {why}: rename it")
    names = dict.fromkeys(OWN_FUNCTIONS, "the agent's own")
    for function in own_functions(scaffold) if agent.action == "tools" else ():
        path = scaffold.tools[function.tool]
        if other := names.get(function.name):
            message = f"would be called as {function.name!r}, which is {other}: rename it"
            yield Problem(file=path, line=1, message=message)
        names[function.name] = path


# ----------------------------------------------------------------------------------------------
# templates


def _templates(
    scaffold: Scaffold, agent: AgentConfig | None, prompt_chars: int
) -> Iterator[Problem]:
    shown = set[str]()
    prompt = 0
    for template in TEMPLATES:
        file = f"{template}.md"
        if file not in scaffold.files and template not in DEFAULTS:
            continue
        source = scaffold.source(template)
        try:
            parts, undeclared = _read(source)
        except TemplateSyntaxError as e:
            yield Problem(file=file, line=e.lineno, message=f"{reason(e)}; {BRACES}")
            continue
        except RecursionError:
            yield Problem(file=file, line=1, message="is nested too deeply")
            continue
        shown |= {node.name for node in parts if isinstance(node, nodes.Name)}
        # an agent.toml that could not be read says nothing of `before`: that is one fault, not two
        before = (
            agent.before
            if agent
            else tuple(node.attr for node in parts if isinstance(node, nodes.Getattr))
        )
        example = variables_example(template, before)
        strange = list(_strange(file, parts, undeclared, example))
        yield from strange
        if strange:
            continue
        try:
            for variables in _cases(scaffold, template, example):
                size = len(render_text(file, source, variables))
        except BadInput as e:
            at = re.match(r"[^:]*:(\d+): (.*)", e.message, re.DOTALL)
            yield Problem(
                file=file, line=int(at[1]) if at else 1, message=at[2] if at else e.message
            )
        else:
            prompt += size if template in ("system", "workflow") else 0
    if prompt > prompt_chars:
        message = (
            f"with workflow.md this makes a prompt of {prompt} characters, over {prompt_chars}:"
            " shorten them"
        )
        yield Problem(file="system.md", line=1, message=message)
    for name, (folder, _) in NOTES.items():
        if (notes := getattr(scaffold, name)) and name not in shown:
            message = (
                f"no template shows the {len(notes)} {name} of {folder}/: write a loop over"
                f" `{name}`"
            )
            yield Problem(file="system.md", line=1, message=message)


@lru_cache(maxsize=64)
def _read(source: str) -> tuple[tuple[nodes.Node, ...], frozenset[str]]:
    """Return (its names, fields, items and calls, the names it does not declare). Raises as parsing
    does.

    Known by its text: an optimizer checks after each of its edits, and an edit touches one file.
    """
    tree = parse_template(source)
    parts = tree.find_all((nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Call))
    return tuple(parts), frozenset(meta.find_undeclared_variables(tree)) - OWN_NAMES


def _strange(
    file: str, parts: Sequence[nodes.Node], undeclared: Set[str], example: JsonMap
) -> Iterator[Problem]:
    """Variables, their fields, and calls, that the template does not have: in branches not taken
    today as well."""
    lines: dict[str, int] = {}
    assigned = set()
    fields = []
    for node in parts:
        if isinstance(node, nodes.Name) and node.ctx == "load":
            lines.setdefault(node.name, node.lineno)
        elif isinstance(node, nodes.Name):
            assigned.add(node.name)
        elif isinstance(node, nodes.Getattr):
            fields.append((node.node, node.attr, node.lineno))
        elif isinstance(node, nodes.Getitem):
            if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
                fields.append((node.node, node.arg.value, node.lineno))
        elif isinstance(node, nodes.Call):
            called = node.node
            owner = getattr(node.node, "node", None)
            of_jinja = isinstance(owner, nodes.Name) and owner.name in _JINJAS
            if isinstance(called, nodes.Getattr) and not of_jinja and called.attr not in METHODS:
                message = (
                    f"{called.attr!r} is not to be called in templates; {instead_of(called.attr)}"
                )
                yield Problem(file=file, line=called.lineno, message=message)
    for unknown in sorted(undeclared - set(example)):
        message = f"{unknown!r} is undefined; this template has {', '.join(example)}"
        yield Problem(file=file, line=lines.get(unknown, 1), message=message)
    for owner, field, line in fields:
        if not isinstance(owner, nodes.Name) or owner.name in assigned:
            continue
        value = example.get(owner.name)
        if isinstance(value, dict) and field not in value and not hasattr(value, field):
            message = f"{owner.name!r} has no {field!r}; it has {', '.join(value) or 'nothing'}"
            yield Problem(file=file, line=line, message=message)


def _cases(scaffold: Scaffold, template: Template, example: JsonDict) -> Iterator[JsonDict]:
    """Yield what to render with: an example with nothing empty, other outputs, and last the
    scaffold's own."""
    yield example
    yield {**example, "native": False}
    if "output" in example:
        for change in ({"status": 0, "text": ""}, {"status": 124, "timed_out": True, "cut": 1000}):
            yield {**example, "steps_left": 0, "output": {**example["output"], **change}}
    own = {"tools": scaffold.tool_list, "lessons": scaffold.lesson_list}
    if read_agent(scaffold.files.get("agent.toml", ""))[0] is not None:
        own |= {"examples": scaffold.example_list}
    yield {**example, **own}


# ---------------------------------------------------------------------------------------- lessons
# and tools


def _notes(scaffold: Scaffold, kind: str) -> Iterator[Problem]:
    """Find what is wrong with the lessons, or with the examples."""
    folder, most = NOTES[kind]
    notes: list[Lesson] = getattr(scaffold, kind)
    for note in notes:
        file = f"{folder}/{note.id}.md"
        if (size := len(scaffold.files[file])) > most:
            message = f"has {size} characters, over {most}: say it shorter"
            yield Problem(file=file, line=1, message=message)
        if not note.body.strip():
            message = "says nothing: after the title comes what was learned"
            yield Problem(file=file, line=1, message=message)
    if (count := len(notes)) > MAX_NOTES:
        message = f"has {count} {kind}, over {MAX_NOTES}: merge or drop some"
        yield Problem(file=folder, line=1, message=message)


def _tools(scaffold: Scaffold) -> Iterator[Problem]:
    for path, text in scaffold.files.items():
        if path.startswith("tools/") and not path_fault(path):
            for message in _tool_faults(scaffold, path, text):
                yield Problem(file=path, line=1, message=message)
            if path.endswith(".py") and path in scaffold.tools.values():
                yield from compile_problems(path, text)


def _tool_faults(scaffold: Scaffold, path: str, text: str) -> Iterator[str]:
    name = PurePosixPath(path).stem
    python = path.endswith(".py")
    tool = scaffold.tools.get(name)
    if path.endswith(".json"):
        if tool is None:
            yield f"is the schema of no tool: there is no tools/{name}.py"
        elif wrong := read_schema(text)[1]:
            yield wrong
    elif path != tool:
        is_none = "is no tool: those are NAME.py, NAME.sh and NAME"
        yield f"has the same name as {tool}" if tool else is_none
    else:
        if (size := len(text.encode())) > MAX_TOOL:
            yield f"has {size} bytes, over {MAX_TOOL}"
        if not scaffold.help(name):
            kind = "docstring" if python else "comment at its head"
            yield f"has no {kind}: that is the help which the agent sees"
        if not python and not text.startswith("#!"):
            yield "does not say what runs it: begin with #!/bin/bash or the like"


def compile_problems(path: str, text: str) -> Iterator[Problem]:
    """Find what keeps a text from being Python."""
    try:
        parse_python(text, path)
    except SyntaxError as e:
        yield Problem(file=path, line=e.lineno or 1, message=f"is not Python: {e.msg}")
    except (ValueError, RecursionError, MemoryError) as e:
        yield Problem(file=path, line=1, message=f"is not Python: {e}")


def _starts(scaffold: Scaffold, backend: SandboxBackend, paths: list[str]) -> Iterator[Problem]:
    """Run each tool's --help in one sandbox. A fault of the sandbox itself is raised, not
    listed."""
    if not paths:
        return
    with contextlib.closing(backend.open()) as sandbox:
        for path in paths:
            # as `executable`
            sandbox.write(path, scaffold.files[path].replace("\r\n", "\n").encode(), 0o755)
        for path in paths:
            # -S: what happens to be installed on this machine may not be there on the next
            start = ["python3", "-S", path] if path.endswith(".py") else [f"./{path}"]
            output = sandbox.run([*start, "--help"], timeout=START_SECONDS, stdin=b"")
            if output.timed_out:
                message = f"`--help` does not end within {START_SECONDS:g} s"
                yield Problem(file=path, line=1, message=message)
            elif output.status:
                last = (output.text.strip().splitlines() or ["it printed nothing"])[-1]
                message = f"does not start: `--help` ends with status {output.status}: {last[:200]}"
                if last.startswith("ModuleNotFoundError"):
                    message += (
                        "; it is tried without packages: import those of the task's sandbox after"
                        " `--help`"
                    )
                yield Problem(file=path, line=_raised_at(path, output.text), message=message)


def _raised_at(path: str, text: str) -> int:
    """Return the tool's own line in a traceback, the innermost; 1 when there is none."""
    found = re.findall(rf'File "[^"]*{re.escape(path)}", line (\d+)', text)
    return int(found[-1]) if found else 1

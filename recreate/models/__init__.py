"""Models: things that answer chat messages. `open_model` finds one by its spelling.

litellm:PROVIDER/NAME     any hosted provider; the prefix may be left out
openai:URL#MODEL          any OpenAI-style endpoint: vLLM, llama.cpp, a gateway
local:NAME                a model of the catalogue on this machine, or local:/FILE.gguf
vllm:FOLDER_OR_NAME       a vLLM server started and stopped for you; a run of tune too
transformers:FOLDER       in this process, slowly, telling its tokens: what `recreate tune` trains
scripted:FILE.jsonl       answers from a file
NAME, NAME:ARGUMENT       one that an installed package brings
module:Class              your own
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from typing import Any

from recreate.api import plugins, registry
from recreate.api.errors import BadInput
from recreate.api.ports import Model, ModelCatalog, Price

__all__ = ["at_endpoint", "default_model", "open_model"]


def open_model(spec: str, *, price: Price | None = None, **options: Any) -> Model:
    """Return the model spelled `spec`. `price` overrides the table's. Options a kind of model does
    not take are left out: jobs (how many callers there will be), threads, context, parallel,
    timeout (s), key_env, api_base, asked (False: nothing will be asked, so no key is needed).

    Raises BadInput for a spelling nobody knows; nothing is fetched, started or asked yet.
    """
    spec = spec.strip()
    prefix, colon, rest = spec.partition(":")
    known = plugins.names("model")
    if colon and plugins.lacking("model", prefix):
        raise registry.absent("model", prefix, f"no model is called {spec!r} here")
    if colon and prefix in known:
        kind = prefix
        argument = rest
    elif colon and (meant := _kind_meant(prefix, rest, known)):
        raise BadInput(
            f"no model is called {spec!r}: {prefix!r} is no kind of model",
            fix=f"did you mean {meant}:{rest}?",
            code="unknown-model",
        )
    elif (spec in known and not plugins.is_ours("model", spec)) or (colon and _class(prefix, rest)):
        kind = spec
        argument = ""
    elif "/" in spec or _in_table(spec):
        kind = "litellm"
        argument = spec
    else:
        raise _unknown(spec)
    if price is not None:
        options["price"] = price
    model: Model = registry.open("model", kind, *([argument] if kind != spec else []), **options)
    if price is not None and model.price != price:
        model.price = price
    return model


def default_model() -> tuple[str, str]:
    """Return (the model used when nobody names one, what to tell the user about it).

    AGENT_MODEL or RECREATE_MODEL name a model, and LLM_API_BASE its endpoint. Otherwise it is the
    default of a catalogue that a plug-in brings, on this machine: a key in the environment is never
    spent from without being asked to. Raises BadInput (no-model) where there is no catalogue.
    """
    named = next(
        (v for v in ("RECREATE_MODEL", "AGENT_MODEL") if os.environ.get(v, "").strip()), ""
    )
    base = os.environ.get("LLM_API_BASE", "").strip().rstrip("/")
    if named:
        model = os.environ[named].strip()
        there = at_endpoint(model, base)
        return there, f"{named} names the model" + ", LLM_API_BASE its endpoint" * (there != model)
    from recreate.models.providers import PROVIDERS, keys_found

    catalog = next(iter(catalogs()), None)
    hosted = ""
    keys = keys_found()
    if base:
        hosted += "LLM_API_BASE is set, but no model: name one in AGENT_MODEL. "
    hosted += "A hosted model does better, and costs money: " if catalog else ""
    if keys:
        hosted += " or ".join(
            f"--model {spec} (the key in {variable} is found)" for variable, spec in keys[:2]
        )
    else:
        variable, model = PROVIDERS["anthropic"]
        hosted += f"export {variable}=... and --model litellm:anthropic/{model}"
    if catalog is None:
        raise BadInput(
            "no model is named, and the plug-in local_models, which brings one, is not installed",
            fix=hosted,
            code="no-model",
        )
    spec = catalog.default()
    state, size = catalog.weights(spec)
    fetched = "" if state == "ready" else f"; its weights ({size / 1e9:.1f} GB) are fetched once"
    free = f"no model is named: using {spec} on this machine, which costs nothing{fetched}. "
    return spec, free + hosted


def catalogs() -> list[ModelCatalog]:
    """Return the catalogues of models that plug-ins bring."""
    return [registry.open("catalog", name) for name in plugins.names("catalog")]


def at_endpoint(model: str, base: str) -> str:
    """Return a model as RECREATE_MODEL or AGENT_MODEL name it, at LLM_API_BASE where that is set;
    one that is spelled as ours says where it is."""
    prefix, colon, rest = model.partition(":")
    if not base or prefix in plugins.names("model") or (colon and _class(prefix, rest)):
        return model
    return f"openai:{base}#{model.removeprefix('openai/')}"


def _kind_meant(prefix: str, rest: str, known: Iterable[str]) -> str:
    """Return the kind of model that a misspelling of it means; '' for what is something else: a
    provider's path, a model of the price table, a module that is there."""
    if (
        "/" in prefix
        or _in_table(f"{prefix}:{rest}")
        or (_class(prefix, rest) and registry.reachable(prefix))
    ):
        return ""
    return next(iter(difflib.get_close_matches(prefix.lower(), known, 1, 0.75)), "")


def _class(module: str, name: str) -> bool:
    """Whether this reads as module:Class; a class of a script does too, so that `find` says what to
    do."""
    return (
        all(part.isidentifier() for part in module.split(".")) and name.split(".")[0].isidentifier()
    )


def _in_table(spec: str) -> bool:
    from recreate.models.pricing import facts

    return facts(spec) is not None


def _unknown(spec: str) -> BadInput:
    local = [each for catalog in catalogs() for each in catalog.spellings()]
    near = next((f"did you mean {each}? " for each in local if each.endswith(f":{spec}")), "")
    some = ", ".join(["litellm:PROVIDER/NAME", "openai:URL#MODEL", *local])
    return BadInput(
        f"no model is called {spec!r}",
        fix=f"{near}write {some}, scripted:FILE.jsonl or module:Class",
        code="unknown-model",
    )

"""Flags that plug-ins bring to a command of the core: another way to do it, which they ask for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from recreate.api.errors import RecreateError


def with_variants(words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the flags of its variants: parts of the kind `variant` that are called as the
    command, a dot and a word of their own.

    A variant is a function. It takes what it wants of the command's parameters by their names, and
    its own. Each is asked before the command; one that was not meant returns NotImplemented.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        from recreate.api import plugins, registry

        every = [name for name in plugins.names("variant") if name.rpartition(".")[0] == words]
        variants = []
        for name in every:
            with suppress(RecreateError):  # `recreate plugins` says what is wrong with it
                variants.append(registry.find("variant", name))
        parameters = dict(inspect.signature(command, eval_str=True).parameters)
        own = tuple(parameters)
        taken = [tuple(inspect.signature(variant).parameters) for variant in variants]
        for variant in variants:
            for name, parameter in inspect.signature(variant, eval_str=True).parameters.items():
                parameters.setdefault(name, parameter.replace(kind=parameter.KEYWORD_ONLY))

        @wraps(command)
        def run(**values: Any) -> Any:
            for variant, names in zip(variants, taken, strict=True):
                done = variant(**{name: values[name] for name in names})
                if done is not NotImplemented:
                    return done
            return command(**{name: values[name] for name in own})

        run.__annotations__ = {p.name: p.annotation for p in parameters.values()}
        shown = inspect.Signature(list(parameters.values()))
        run.__signature__ = shown  # type: ignore[attr-defined]
        return run

    return decorate


def tell_absent(words: str) -> str:
    """Return which plug-ins bring flags to a command and are not there, in words; '' for none."""
    from recreate.api.plugins import declared

    absent = {
        point.plugin
        for point in declared()
        if not point.present
        and (
            (point.kind == "variant" and point.name.rpartition(".")[0] == words)
            or (point.kind == "settings" and words in ("build", "plan", "run", "bench"))
        )
    }
    named = ", ".join(sorted(absent))
    return f"the plug-in {named} brings more flags, and is not installed; " if named else ""

"""Models that run on this machine.

Example: recreate models list
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from recreate.api.shapes import JsonDict
from recreate.cli.options import Json, unknown
from recreate.cli.terminal import Progress, answer, answers, say

STATES = {"ready": "present", "partial": "partial", "absent": "absent"}


def list_(as_json: Json = False) -> None:
    """List the catalogue: name, whether it is here, size, licence, context.

    Example: recreate models list
    """
    answers(as_json, _rows())
    if not as_json:
        say("use one with --model local:NAME; recreate models fetch NAME gets it ahead of time")


def _rows() -> Iterator[tuple[JsonDict, str]]:
    from recreate.plugins.local_models import catalog

    default = catalog.default_name()
    for name, entry in catalog.catalog().items():
        state = STATES[catalog.state(name)]
        record = {
            "name": name,
            "state": state,
            "size": entry.size,
            "license": entry.license,
            "context": entry.context,
            "default": name == default,
            "sha256": entry.sha256,
            "path": str(entry.path),
            "notes": entry.notes,
        }
        size = f"{entry.size / 1e6:>7,.0f} MB  {entry.context:>7,} tokens"
        text = f"{name:<22} {state:<8} {size}  {entry.license}" + (
            "  (default)" if name == default else ""
        )
        yield record, text + (f"\n{'':<23}{entry.notes}" if entry.notes else "")


def fetch(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name of `recreate models list`; default: ours.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Fetch a model's weights and check their hash. A cut download goes on where it ended.

    Example: recreate models fetch qwen2.5-coder-0.5b
    """
    from recreate.plugins.local_models import catalog

    name = name.removeprefix("local:") or catalog.default_name()
    known = catalog.catalog()
    if name not in known:
        raise unknown(f"no local model is called {name!r}", name, list(known), "unknown-model", 0.4)
    before = catalog.state(name)
    started = time.monotonic()
    if before != "ready":
        goes_on = "going on with" if before == "partial" else "fetching"
        say(f"{goes_on} {name}, {known[name].size / 1e6:,.0f} MB ({known[name].license}), once")
    with Progress(name) as progress:
        path = catalog.fetch_model(name, progress=progress, say=say)
    seconds = time.monotonic() - started
    record = {
        "name": name,
        "state": STATES[catalog.state(name)],
        "path": str(path),
        "size": known[name].size,
        "sha256": known[name].sha256,
        "fetched": before != "ready",
        "seconds": round(seconds, 2),
    }
    there = (
        f"{name} was here already: {path}"
        if before == "ready"
        else f"{name}: {path} ({seconds:.0f} s)"
    )
    answer(as_json, record, there)

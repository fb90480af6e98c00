"""What a model's tokens cost: litellm's published table, read as data; a price nobody knows is an
error, not 0."""

from __future__ import annotations

import functools
import importlib.util
import json
import math
from pathlib import Path

from recreate.api.errors import BadInput
from recreate.api.ports import Model, Price
from recreate.api.shapes import JsonDict

FREE = Price(tokens_in=0.0, tokens_out=0.0)
_TABLE = "model_prices_and_context_window_backup.json"


def price_of(model: str) -> Price | None:
    """Return the price of a model by its spelling (`anthropic/NAME`, `litellm:NAME`,
    `openai:URL#NAME`), or None.

    None also when litellm is not installed: its table is read from its folder, litellm is not
    imported.
    """
    prefix, colon, rest = model.partition(":")
    if colon and prefix in ("local", "scripted"):
        return FREE
    if colon and prefix in ("litellm", "openai"):
        model = rest.rpartition("#")[2]
    entry = facts(model)
    if entry is None:
        return None
    tokens_in = entry.get("input_cost_per_token")
    tokens_out = entry.get("output_cost_per_token")
    if not isinstance(tokens_in, int | float) or not isinstance(tokens_out, int | float):
        return None
    cached = entry.get("cache_read_input_token_cost")
    written = entry.get("cache_creation_input_token_cost")
    return Price(
        tokens_in=round(tokens_in * 1e6, 9),
        tokens_out=round(tokens_out * 1e6, 9),
        cached=round(cached * 1e6, 9) if isinstance(cached, int | float) else None,
        cache_written=round(written * 1e6, 9) if isinstance(written, int | float) else None,
    )


def known_price(model: Model, *, flag: str = "--price") -> Price:
    """Return the model's price, its own or the table's. Raises BadInput (unknown-price), naming the
    flag that sets it."""
    price = model.price or price_of(model.name)
    if price is not None:
        return price
    raise BadInput(
        f"the price of {model.name} is not known, so a budget in dollars could not be kept",
        fix=(
            f"state it in dollars per million tokens: {flag} IN,OUT (e.g. {flag} 0.25,2); "
            f"{flag} 0,0 for a server of your own"
        ),
        code="unknown-price",
    )


def parse_price(text: str) -> Price:
    """Return the price that a text says: `0.25,2` is 0.25 dollars per million tokens in, 2 out.
    Raises BadInput (bad-price)."""
    try:
        tokens_in, tokens_out = (float(part) for part in text.split(","))
        if not all(math.isfinite(x) and x >= 0 for x in (tokens_in, tokens_out)):
            raise ValueError
    except ValueError:
        raise BadInput(
            f"{text!r} is not a price",
            fix="write dollars per million tokens in and out: --price 0.25,2",
            code="bad-price",
        ) from None
    return Price(tokens_in=tokens_in, tokens_out=tokens_out)


def facts(model: str) -> JsonDict | None:
    """Return what the table says of a model called `NAME` or `PROVIDER/NAME`, or None."""
    known = table()
    if model in known:
        return known[model]
    provider, slash, name = model.partition("/")
    entry = known.get(name) if slash else None
    if entry and str(entry.get("litellm_provider", "")).startswith(provider):
        return entry
    return None


@functools.cache
def table() -> dict[str, JsonDict]:
    """Return litellm's table: model -> facts. Empty when litellm is not installed or its table is
    unreadable."""
    spec = importlib.util.find_spec("litellm")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        try:
            found = json.loads((Path(folder) / _TABLE).read_bytes())
        except (OSError, ValueError):
            continue
        return {
            name: entry
            for name, entry in found.items()
            if isinstance(entry, dict) and name != "sample_spec"
        }
    return {}

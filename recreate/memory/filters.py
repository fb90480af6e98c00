"""What a search may ask of facts: `{"domain": "swe", "outcome": "failed"}`, read strictly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recreate.agents.trajectory import is_file
from recreate.api.errors import BadInput
from recreate.api.ports import Hit
from recreate.api.shapes import JsonMap
from recreate.memory.metadata import FILTERS
from recreate.storage.log import unix

GRAINS = ("experience", "step", "lesson")
LATER = ("grain", "step", "error", "tool", "file")
"""Facts that the documents of one experience differ in."""

KEYS = (*FILTERS, "experience", "grain", "step", "tool", "file", "since", "until")
"""What `filters` may name; `outcome` (passed or failed) is another way to say `passed`."""


def parse(filters: JsonMap | None) -> dict[str, list[Any]]:
    """Return name -> the values it may have. Raises BadInput for a name or a value that cannot
    be."""
    parsed: dict[str, list[Any]] = {}
    for name, value in (filters or {}).items():
        values = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
        if name == "outcome":
            name = "passed"
            values = [{"passed": True, "failed": False}.get(str(v), v) for v in values]
        if name not in KEYS:
            raise BadInput(
                f"there is no filter {name!r}", fix=f"one of: outcome, {', '.join(KEYS)}"
            )
        if name == "passed":
            values = [_truth(v) for v in values]
        elif name == "step":
            values = [_number(v) for v in values]
        elif name in ("since", "until"):
            bounds = [_moment(name, v) for v in values]
            values = [min(bounds) if name == "since" else max(bounds)] if bounds else []
        else:
            values = [str(v) for v in values]
        if name == "grain" and set(values) - set(GRAINS):
            raise BadInput(f"there is no grain {values}", fix=f"one of: {', '.join(GRAINS)}")
        if not values:
            raise BadInput(
                f"the filter {name!r} allows no value", fix="give one, or leave the filter out"
            )
        parsed[name] = values
    return parsed


def _truth(value: Any) -> bool:
    if isinstance(value, bool | int):
        return bool(value)
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in known:
        raise BadInput(f"passed is true or false, not {value!r}", fix="passed=true or passed=false")
    return known[str(value).lower()]


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadInput(f"a step is a number, not {value!r}", fix="step=3") from None


def _moment(name: str, value: Any) -> float:
    seconds = unix(value)
    if seconds is None:
        raise BadInput(
            f"{name} is a moment, not {value!r}",
            fix=f"{name}=2026-11-01, 2026-11-01T09:30:00Z (UTC) or unix seconds",
        )
    return seconds


def allows(wanted: Mapping[str, Sequence[Any]], name: str, value: Any) -> bool:
    return name not in wanted or value in wanted[name]


def matches(wanted: Mapping[str, Sequence[Any]], hit: Hit) -> bool:
    """Whether a hit, as its file tells it, is what the filters asked for."""
    own = {"experience": hit.experience, "grain": hit.grain, "step": hit.step, "split": hit.split}
    return all(
        _is(name, own.get(name, hit.facts.get(name)), values, hit)
        for name, values in wanted.items()
    )


def _is(name: str, own: Any, values: Sequence[Any], hit: Hit) -> bool:
    if name in ("since", "until"):
        when = unix(hit.facts.get("when"))
        return when is not None and (when >= values[0] if name == "since" else when < values[0])
    if name == "tool":
        return any(value in (own or ()) for value in values)
    if name == "file":
        return any(is_file(value, path) for value in values for path in own or ())
    return own in values

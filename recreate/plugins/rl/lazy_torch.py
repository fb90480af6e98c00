"""torch under the name of this module, imported when something of it is asked for: a recipe and the
classes of its parts are read where torch is not installed."""

from typing import Any

from recreate.api.registry import need


def __getattr__(name: str) -> Any:
    """Raises Missing where torch is not installed."""
    if name.startswith("__"):
        raise AttributeError(name)
    found = globals()[name] = getattr(need("torch"), name)
    return found

"""What `recreate doctor` says of swe."""

from __future__ import annotations

from collections.abc import Iterator

from recreate.api import paths
from recreate.api.ports import Check


def check_uv() -> Iterator[Check]:
    """Check whether environments of tests can be made without a download."""
    from recreate.domains.python_env import uv_here

    absent = (
        "not here: a domain whose tests need an environment fetches it (23 MB) from the package"
        " index, once"
    )
    place = uv_here()
    yield Check("uv", bool(place), place or absent, paths.install("swe"))

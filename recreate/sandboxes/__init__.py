"""Where code of tasks, agents and models runs: a ladder of sandboxes.

    bwrap     bubblewrap                                    chosen where it works
    unshare   util-linux: the same walls, built by hand     else this one
    none      no walls at all                               only by name

`choose` picks the rung by really making a box; `survey` says what each one answered.
"""

from __future__ import annotations

import os
import threading
from functools import cache

from recreate.api import registry
from recreate.api.errors import BadInput
from recreate.api.fits import fit
from recreate.api.ports import SandboxBackend

LADDER = ("bwrap", "unshare")
_lock = threading.RLock()  # a rung that wraps another chooses that one while it is probed

__all__ = ["LADDER", "choose", "survey"]


def choose(name: str | None = None) -> SandboxBackend:
    """The rung called `name`, else $RECREATE_SANDBOX, else the first of the ladder that works here.

    Raises BadInput: `unknown-sandbox` for a name that no rung has, `no-sandbox` when the named one, or every one of
    the ladder, does not work here.
    """
    name = name or os.environ.get("RECREATE_SANDBOX") or None
    if name:
        backend: SandboxBackend = fit("sandbox", registry.made("sandbox", name))
        if why := _probed(name):
            raise BadInput(f"the sandbox {name} does not work here: {why}", fix=_FIX, code="no-sandbox")
        return backend
    reasons = []
    for step in LADDER:
        why = _probed(step)
        if not why:
            found: SandboxBackend = registry.find("sandbox", step)()
            return found
        reasons.append(f"{step}: {why}")
    raise BadInput(f"no sandbox works here ({'; '.join(reasons)})", fix=_FIX, code="no-sandbox")


def survey() -> list[tuple[str, str]]:
    """(name, '' or why it does not work here) of every rung that can be named, the ladder's first."""
    names = [*LADDER, *(name for name in registry.names("sandbox") if name not in LADDER)]
    return [(name, _probed(name)) for name in names]


_FIX = (
    "install bubblewrap: `apt-get install bubblewrap` or `dnf install bubblewrap` (in a container: allow user"
    " namespaces); or say `--sandbox none`: then what agents and models write runs as you, with your files, keys"
    " and network, so only in a machine that you can throw away"
)


def _probed(name: str) -> str:
    with _lock:
        return _probe(name)


@cache
def _probe(name: str) -> str:
    backend: SandboxBackend = fit("sandbox", registry.made("sandbox", name))
    return backend.probe()

"""Where code of tasks, agents and models runs: sandboxes, in their order of preference.

    bwrap     bubblewrap                                    chosen where it works
    unshare   util-linux: the same walls, built by hand     else this one
    docker    a container of the engine docker, podman      only by name; the ones that open images
    podman
    none      no walls at all                               only by name

`choose` picks the backend by really making a sandbox; `survey` says what each one answered.
"""

from __future__ import annotations

import os
import threading
from functools import cache

from recreate.api import plugins, registry
from recreate.api.errors import BadInput
from recreate.api.ports import SandboxBackend

PREFERENCE = ("bwrap", "unshare")
_lock = threading.RLock()  # a backend that wraps another chooses that one while it is probed

__all__ = ["PREFERENCE", "choose", "named_backend", "survey"]


def choose(name: str | None = None) -> SandboxBackend:
    """Return the backend called `name`, else $RECREATE_SANDBOX, else the first in the order of
    preference that works here.

    Raises BadInput: `unknown-sandbox` for a name that no backend has, `no-sandbox` when the named
    one, or every one, does not work here.
    """
    name = name or os.environ.get("RECREATE_SANDBOX") or None
    if name and (backend := named_backend(name)):
        if why := _probed(name):
            fix = _FIX if name in PREFERENCE else _ELSE
            raise BadInput(
                f"the sandbox {name} does not work here: {why}", fix=fix, code="no-sandbox"
            )
        return backend
    reasons = []
    for step in PREFERENCE:
        why = _probed(step)
        if not why:
            found: SandboxBackend = registry.open("sandbox", step)
            return found
        reasons.append(f"{step}: {why}")
    raise BadInput(f"no sandbox works here ({'; '.join(reasons)})", fix=_FIX, code="no-sandbox")


def named_backend(name: str | None = None) -> SandboxBackend | None:
    """Return the backend called `name`, else $RECREATE_SANDBOX, whether it works here or not; None
    where neither is said."""
    name = name or os.environ.get("RECREATE_SANDBOX") or None
    found: SandboxBackend | None = registry.open("sandbox", name) if name else None
    return found


def survey() -> list[tuple[str, str]]:
    """Return (name, '' or why it does not work here) of every backend that can be named, the
    preferred ones first."""
    names = [*PREFERENCE, *(name for name in plugins.names("sandbox") if name not in PREFERENCE)]
    return [(name, _probed(name)) for name in names]


_FIX = (
    "install bubblewrap: `apt-get install bubblewrap` or `dnf install bubblewrap` (in a container:"
    " allow user namespaces); or say `--sandbox none`: then what agents and models write runs as"
    " you, with your files, keys and network, so only in a machine that you can throw away"
)

_ELSE = (
    "recreate doctor says which sandboxes work here; without --sandbox and RECREATE_SANDBOX the"
    " best of them is taken"
)


def _probed(name: str) -> str:
    with _lock:
        return _probe(name)


@cache
def _probe(name: str) -> str:
    backend: SandboxBackend = registry.open("sandbox", name)
    return backend.probe()

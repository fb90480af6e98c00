"""The proxy that the environment names for an endpoint, as curl and requests read it."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import urllib.request
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from recreate.api.errors import BadInput

_PORTS = {"http": 80, "https": 443}


class Proxy(NamedTuple):
    """shown: its address as it is told, without the password; key: what it wants to see in
    Proxy-Authorization, '' for nothing."""

    host: str
    port: int
    shown: str
    key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that are for the proxy."""
        return {"Proxy-Authorization": self.key} if self.key else {}


def find_proxy(scheme: str, host: str, port: int | None) -> Proxy | None:
    """Return the proxy by which a place is reached; None for none. Raises BadInput for one that is
    no http proxy."""
    known = urllib.request.getproxies()
    kind = scheme if known.get(scheme) else "all"
    text = known.get(kind, "").strip()
    if not text or _is_spared(host, port or _PORTS[scheme], known.get("no", "")):
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        at = parts.port or 80
    except ValueError:
        parts = urlsplit("")
        at = 0
    user = unquote(parts.username or "")
    password = unquote(parts.password or "")
    who = f"{user}:***@" if password else f"{user}@" if user else ""
    shown = f"{parts.scheme}://{who}{parts.hostname}:{at}" if parts.hostname else "no address"
    if parts.scheme != "http" or not parts.hostname:
        raise BadInput(
            f"{kind.upper()}_PROXY names {shown}: only proxies at http://... are understood",
            fix=(
                f"export {kind.upper()}_PROXY=http://USER:PASSWORD@HOST:PORT, or"
                f" NO_PROXY={host} to reach {host} without one"
            ),
            code="bad-proxy",
        )
    key = base64.b64encode(f"{user}:{password}".encode()).decode() if user or password else ""
    return Proxy(parts.hostname, at, shown, f"Basic {key}" if key else "")


def _is_spared(host: str, port: int, spared: str) -> bool:
    """Return whether a host is on this machine, or among those that NO_PROXY names: by name, part
    of a domain, with a port, or a range of addresses."""
    address = None
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for each in spared.lower().replace(",", " ").split():
        name = each.lstrip("*.")
        if not name or any(f".{place}".endswith(f".{name}") for place in (host, f"{host}:{port}")):
            return True
        with contextlib.suppress(ValueError):
            if address is not None and address in ipaddress.ip_network(each, strict=False):
                return True
    return False

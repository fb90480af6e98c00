"""A gateway that also lets a coding agent reach its provider's hosts, by name, over TLS.

Only CONNECT to port 443 of a host that is named is answered; what is said there is not seen.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Collection
from http.server import BaseHTTPRequestHandler
from typing import Any

from recreate.plugins.foreign.gateway import Denied, Gateway

SECONDS = 30.0
"""Until a host is reached."""


class SeatGateway(Gateway):
    """A gateway that asks no model: its agent has a seat."""

    def __init__(self, answer: Callable[..., Any], hosts: Collection[str]) -> None:
        super().__init__(answer)
        self.hosts = frozenset(host.lower().rstrip(".") for host in hosts)

    def allows(self, target: str) -> tuple[str, int] | None:
        """Return (host, port) of what CONNECT names, where it may be reached; else None."""
        host, _, port = target.rpartition(":")
        host = host.lower().rstrip(".")
        return (host, 443) if port == "443" and host in self.hosts else None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        return type("SeatHandler", (_Tunnel, super()._handler()), {})


class _Tunnel(BaseHTTPRequestHandler):
    gateway: SeatGateway

    def do_CONNECT(self) -> None:
        place = self.gateway.allows(self.path)
        self.close_connection = True
        if place is None:
            self.gateway.refused.add(f"{self.path[:100]} is no host that it may reach")
            self.send_error(403)
            return
        try:
            there = socket.create_connection(place, timeout=SECONDS)
        except OSError:
            self.send_error(502)
            return
        there.settimeout(None)
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        back = threading.Thread(target=_relay, args=(there, self.connection), daemon=True)
        back.start()
        _relay(self.connection, there)
        back.join()
        there.close()


def _relay(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def deny(*_: object) -> Any:
    """Answer a request to the model of an agent that has a seat of its own."""
    raise Denied("this agent asks its own provider", 404, "not_found")

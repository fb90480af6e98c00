"""How much of an endpoint that refuses (429) is used by 16 calls at once, and what share of the
calls it refuses."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

from recreate.api.errors import Fault
from recreate.api.types import Call
from recreate.models import open_model
from recreate.models.pricing import FREE
from recreate.runs.budget import Budget, Ledger
from recreate.runs.calls import Calls
from recreate.runs.journal import Journal
from recreate.storage.log import Log
from tests.lab.perf.table import Row
from tests.stub import completion

JOBS, SECONDS, REPLY_SECONDS = 16, 60, 0.2
CASES: dict[str, dict[str, Any]] = {
    "1 at once": {"at_once": 1},
    "3 at once": {"at_once": 3},
    "8 at once": {"at_once": 8},
    "3 at once, Retry-After 1": {"at_once": 3, "after": 1},
    "10 a second": {"rate": 10},
    "10 a second, Retry-After 1": {"rate": 10, "after": 1},
    "no limit": {},
    "3 at once, lifted": {"at_once": 3, "then": {}},
    "8 at once, then 3": {"at_once": 8, "then": {"at_once": 3}},
    "20 a second, then 5": {"rate": 20, "then": {"rate": 5}},
}
"""at_once, rate: what is taken, of whatever a client has under way, in any second; after: what a
refused one is told; then: at half of the time the limit becomes this."""


def measure(size: int = SECONDS) -> Iterator[Row]:
    """size: seconds a case. Where the limit changes, the half after it counts."""
    with ThreadPoolExecutor(5) as pool:
        for case, found in zip(
            CASES, pool.map(lambda limit: _asked(limit, size), CASES.values()), strict=True
        ):
            yield Row("pace used", case, "", found["used"], None, None, None, None, ">=0.8", "ours")
            yield Row(
                "pace refused", case, "", found["refused"], None, None, None, None, "<=0.05", "ours"
            )
            yield Row(
                "pace given up", case, "", found["lost"], None, None, None, None, "<=0", "ours"
            )


def _asked(limit: Mapping[str, Any], seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.lab.perf.pace", json.dumps(limit), str(seconds)]
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            lost = _ask(url, Path(name), seconds)
            with urllib.request.urlopen(f"{url}/seen") as answer:
                return {**json.load(answer), "lost": lost}
        finally:
            server.kill()


def _ask(url: str, folder: Path, seconds: float) -> int:
    """Ask for so long; how many calls were given up."""
    journal = Journal(folder)
    journal.open()
    calls = Calls("run", journal, Ledger(Log(folder / "ledger.jsonl"), Budget()))
    model, until = open_model(f"openai:{url}#stub"), time.monotonic() + seconds
    number, lock, lost = 0, threading.Lock(), 0

    def one(_: int) -> None:
        nonlocal number, lost
        while time.monotonic() < until:
            with lock:
                number += 1
                mine = number
            call = Call(
                run="run",
                attempt=f"{mine:016x}",
                step=0,
                role="agent",
                phase="train",
                task="t",
                repeat=0,
            )
            try:
                calls.ask(model, FREE, [{"role": "user", "content": "hello"}], call)
            except Fault:
                lost += 1

    threading.Timer(seconds + 1, calls.stop.set).start()
    with ThreadPoolExecutor(JOBS) as pool:
        for future in [pool.submit(one, n) for n in range(JOBS)]:
            future.exception()
    return lost


class _Endpoint(ThreadingHTTPServer):
    """Counts what it takes, from when its limit has become `then`; a place is free once its answer
    has been sent."""

    request_queue_size, daemon_threads = 128, True

    def __init__(self, limit: Mapping[str, Any], seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.limit, self.seconds, self.lock = limit, seconds, threading.Lock()
        self.began, self.changed = 0.0, 0.0
        self.busy, self.recent = 0, deque[float]()
        self.taken = self.refused = 0
        self.worked = 0.0

    def take(self, now: float) -> bool:
        self.began = self.began or now
        if "then" in self.limit and now > self.began + self.seconds / 2:
            self.limit, self.changed = self.limit["then"], now
            self.taken, self.refused, self.worked = 0, 0, 0.0
        while self.recent and self.recent[0] <= now - 1:
            self.recent.popleft()
        fits = self.busy < self.limit.get("at_once", 1e9) and len(self.recent) < self.limit.get(
            "rate", 1e9
        )
        self.taken, self.refused = self.taken + fits, self.refused + (not fits)
        if fits:
            self.busy += 1
            self.recent.append(now)
        return bool(fits)

    def seen(self) -> dict[str, float]:
        seconds = self.began + self.seconds - (self.changed or self.began)
        rate, at_once = self.limit.get("rate"), self.limit.get("at_once", JOBS)
        used = self.taken / rate / seconds if rate else self.worked / at_once / seconds
        return {"used": used, "refused": self.refused / (self.taken + self.refused)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        server, began = self.server, time.monotonic()
        assert isinstance(server, _Endpoint)
        with server.lock:
            fits = server.take(began)
        if not fits:
            after = server.limit.get("after")
            self.answer(
                429, {"error": {"message": "busy"}}, {"Retry-After": str(after)} if after else {}
            )
            return
        time.sleep(random.lognormvariate(0, 0.5) * REPLY_SECONDS / 1.133)
        self.answer(200, completion("hello"))
        with server.lock:
            server.busy -= 1
            server.worked += time.monotonic() - began

    def do_GET(self) -> None:
        assert isinstance(self.server, _Endpoint)
        with self.server.lock:
            self.answer(200, self.server.seen())

    def answer(
        self, status: int, body: Any, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        for key, value in {
            **headers,
            "Content-Type": "application/json",
            "Content-Length": str(len(payload)),
        }.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None: ...


if __name__ == "__main__":
    endpoint = _Endpoint(json.loads(sys.argv[1]), float(sys.argv[2]))
    print(f"http://127.0.0.1:{endpoint.server_address[1]}/v1", flush=True)
    endpoint.serve_forever()

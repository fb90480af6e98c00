"""An endpoint that deals faults, and a run of many attempts beside it.

    python -m tests.lab.faults --attempts 1000 --faults 10500 --seed 0

Each attempt's right grade is known beforehand. Said at the end: attempts lost, grades that are
wrong, calls over their deadline, and whether the ledger covers what the endpoint worked on. Exits 1
when one of them is not as it must be.

    python -m tests.lab.faults --serve [--share 0.5] [--kinds "cut,hung up"]

The endpoint alone; it prints its URL, and GET /seen answers {"worked": {run: tokens}, "dealt":
{what: times}}.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import json
import random
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recreate.api.ports import Limits, Sandbox, SandboxBackend
from recreate.api.types import Call, Grade, Message, Output, Reply, Split, Task, Trace

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Behaviour = Callable[[socket.socket, bytes], None]
"""What is sent for a request whose right answer would be this JSON; the connection is closed
afterwards."""


def _status(code: int) -> Behaviour:
    line = (
        b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nRetry-After: 0\r\nContent-Length:"
        b" 2\r\n\r\n{}" % code
    )
    return lambda wire, body: wire.sendall(line)


def _whole(wire: socket.socket, body: bytes, head: bytes = OK) -> None:
    wire.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def _for_ever(wire: socket.socket, first: bytes, again: bytes, pause: float) -> None:
    wire.sendall(first)
    while True:
        wire.sendall(again)
        if pause:
            time.sleep(pause)


def _hang(wire: socket.socket, body: bytes) -> None:
    while wire.recv(1024):
        pass


def _usage(**usage: Any) -> Behaviour:
    def answer(wire: socket.socket, body: bytes) -> None:
        words = json.dumps({**json.loads(body), "usage": usage})
        # numbers that json would not write
        _whole(wire, re.sub(r'"(-?\d+e?\d*)n"', r"\1", words).encode())

    return answer


@functools.cache
def _bomb() -> bytes:
    return gzip.compress(b" " * 200_000_000, 9)


def _packed(wire: socket.socket, body: bytes) -> None:
    _whole(wire, _bomb(), OK + b"Content-Encoding: gzip\r\n")


FREE: dict[str, Behaviour] = {
    "busy": _status(503),
    "too many": _status(429),
    "hung up before it was read": lambda wire, body: None,
}
"""Nobody has worked on the request then."""

SLOW: dict[str, Behaviour] = {
    "no answer": _hang,
    "a byte now and then": lambda wire, body: _for_ever(
        wire, OK + b"Content-Length: 99999\r\n\r\n", b" ", 0.02
    ),
    "a header now and then": lambda wire, body: _for_ever(wire, OK, b"X: y\r\n", 0.02),
    "hints now and then": lambda wire, body: _for_ever(
        wire, b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02
    ),
}
"""Only the deadline ends these."""

PAID: dict[str, Behaviour] = {
    **SLOW,
    "hung up": lambda wire, body: None,
    "cut": lambda wire, body: wire.sendall(
        OK + b"Content-Length: %d\r\n\r\n%s" % (len(body), body[:-9])
    ),
    "broken": _status(500),
    "a gateway's patience ended": _status(504),
    "not JSON": lambda wire, body: _whole(wire, b"<html>"),
    "no completion": lambda wire, body: _whole(wire, b'{"choices": []}'),
    "nested": lambda wire, body: _whole(wire, b'{"choices":' + b"[" * 150_000),
    "chunks for ever": lambda wire, body: _for_ever(
        wire, OK + b"Transfer-Encoding: chunked\r\n\r\n", b"fff0\r\n" + b" " * 0xFFF0 + b"\r\n", 0
    ),
    "hints for ever": lambda wire, body: _for_ever(
        wire, b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500, 0
    ),
    "headers for ever": lambda wire, body: _for_ever(
        wire, OK, b"X-A: %s\r\n" % (b"y" * 4000) * 10, 0
    ),
    "a length of a petabyte": lambda wire, body: wire.sendall(
        OK + b"Content-Length: 1000000000000000\r\n\r\n" + body
    ),
    "a length of 40 digits": lambda wire, body: wire.sendall(
        OK + b"Content-Length: %s\r\n\r\n" % (b"9" * 40)
    ),
    "a negative length": lambda wire, body: wire.sendall(OK + b"Content-Length: -1\r\n\r\n" + body),
    "packed": _packed,
}
"""Somebody may have worked on the request, and no answer can be had."""

ODD: dict[str, Behaviour] = {
    "usage below 0": _usage(prompt_tokens=-5, completion_tokens=-100_000),
    "usage of a billion": _usage(prompt_tokens=10**9, completion_tokens=10**9),
    "usage of 400 digits": _usage(prompt_tokens="1" + "0" * 400 + "n", completion_tokens=3),
    "usage without end": _usage(prompt_tokens="1e999n", completion_tokens=3),
    "usage in words": _usage(prompt_tokens="many", completion_tokens=True),
    "usage that is a list": lambda wire, body: _whole(
        wire, json.dumps({**json.loads(body), "usage": [1]}).encode()
    ),
}
"""The answer is right, and what it says of itself cannot be."""


class Dealer:
    """A server on 127.0.0.1 while the `with` block runs.

    answer   the text for a request's body
    deal     the name of what happens to a request with this x-recreate-call header, '' for a right
             answer

    `worked`: tokens that were worked on, by run: half a token for each byte asked, and all of
    max_tokens (or a tenth of it, where the answer comes). `dealt`: how often each thing happened.
    """

    def __init__(self, answer: Callable[[Any], str], deal: Callable[[str], str]) -> None:
        self.answer, self.deal = answer, deal
        self.worked: Counter[str] = Counter()
        self.dealt: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> Dealer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                wire, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: socket.socket) -> None:
        wire.settimeout(60)
        with wire, contextlib.suppress(OSError):
            buffer = b""
            while True:
                while b"\r\n\r\n" not in buffer:
                    if not (block := wire.recv(65536)):
                        return
                    buffer += block
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    _whole(wire, json.dumps({"worked": self.worked, "dealt": self.dealt}).encode())
                    continue
                found = re.search(rb"(?i)x-recreate-call: ([^\r]*)", head)
                call = found[1].decode() if found else ""
                what = self.deal(call)
                with self._lock:
                    self.dealt[what] += 1
                if what == "hung up before it was read":
                    return
                length = re.search(rb"(?i)content-length: (\d+)", head)
                missing = int(length[1] if length else 0) - len(buffer)
                while missing > 0:
                    if not (block := wire.recv(65536)):
                        return
                    buffer += block
                    missing -= len(block)
                body, buffer = json.loads(buffer), b""
                if what in FREE:
                    FREE[what](wire, b"")
                    return
                tokens_in, tokens_out = (
                    len(str(body["messages"])) // 2,
                    int(body.get("max_tokens") or 100),
                )
                tokens_out = tokens_out if what else tokens_out // 10
                with self._lock:
                    self.worked[call.partition("/")[0]] += tokens_in + tokens_out
                message = {"role": "assistant", "content": self.answer(body)}
                right = {
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out},
                }
                if what:
                    {**PAID, **ODD}[what](wire, json.dumps(right).encode())
                    return
                _whole(wire, json.dumps(right).encode())


# ------------------------------------------------------------------------------------- attempts
# whose grade is known


class Notebook:
    """A sandbox that keeps the last thing it was told."""

    backend = "notebook"

    def __init__(self) -> None:
        self.last = ""

    def run(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: bytes | None = None
    ) -> Output:
        self.last = str(command).rpartition("\n")[2]
        return Output(text="noted", status=0)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None: ...

    def read(self, path: str) -> bytes:
        return self.last.encode()

    def close(self) -> None: ...


class Notebooks:
    """tests.lab.faults:Notebooks"""

    name = "notebook"

    def probe(self) -> str:
        return ""

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Sandbox:
        return Notebook()


class Words:
    """Say the word of the task's number. The model below says a wrong one for every third."""

    name = "words"
    size = 1000

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            Task(
                id=f"words:{n}",
                domain="words",
                prompt=f"Say word number {n}.",
                split="train",
                group=str(n),
            )
            for n in range(self.size if split in (None, "train") else 0)
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        return sandbox.read("answer").decode()

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        right = trace.answer == f"word {task.group}"
        return Grade(score=float(right), passed=right)

    def gold(self, task: Task) -> str:
        return f"word {task.group}"


def said(body: Any) -> str:
    """The model: a word at its first turn, and then it hands in."""
    messages = body["messages"]
    if len(messages) > 2:
        return "```bash\nsubmit\n```"
    found = re.search(r"word number (\d+)", json.dumps(messages))
    number = int(found[1]) if found else -1
    return f"```bash\nword {number if number % 3 else 'of a fool'}\n```"


def grade_of(task: str) -> float:
    """What an attempt at this task scores when nothing goes wrong on the way."""
    return float(int(task.rpartition(":")[2]) % 3 != 0)


def dealer(seed: int, share: float, kinds: Sequence[str] = ()) -> Callable[[str], str]:
    """Deals faults in that share of the requests: of these kinds, or of SLOW and ODD one in ten
    each, else others."""
    draw, lock = random.Random(seed), threading.Lock()
    quick = sorted({*FREE, *PAID} - SLOW.keys())

    def deal(call: str) -> str:
        with lock:
            if draw.random() >= share:
                return ""
            return draw.choice(
                kinds or draw.choices([sorted(SLOW), sorted(ODD), quick], [1, 1, 8])[0]
            )

    return deal


@contextlib.contextmanager
def served(seed: int, share: float, kinds: Sequence[str] = ()) -> Iterator[str]:
    """The URL of the endpoint in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "tests.lab.faults",
        "--serve",
        f"--seed={seed}",
        f"--share={share}",
    ]
    command += [f"--kinds={','.join(kinds)}"] if kinds else []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def seen(url: str) -> dict[str, dict[str, int]]:
    """What that endpoint has worked on and dealt."""
    with urllib.request.urlopen(f"{url}/seen", timeout=60) as answer:
        found: dict[str, dict[str, int]] = json.load(answer)
        return found


class Lateness:
    """How late this machine wakes a thread that asked to sleep, at most, while the block runs."""

    def __init__(self) -> None:
        self.most = 0.0
        self._over = threading.Event()

    def __enter__(self) -> Lateness:
        threading.Thread(target=self._look, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _look(self) -> None:
        while True:
            begun = time.monotonic()
            if self._over.wait(0.02):
                return
            self.most = max(self.most, time.monotonic() - begun - 0.02)


def trial(
    attempts: int, faults: int, seed: int = 0, *, timeout: float = 1.0, jobs: int = 8
) -> dict[str, Any]:
    """So many attempts with about so many faults among their calls."""
    from recreate.agents import scaffold as scaffolds
    from recreate.api.paths import shipped
    from recreate.runs.attempts import run_attempts
    from recreate.runs.calls import Calls
    from recreate.runs.session import Parts, open_session
    from recreate.runs.settings import load

    # an attempt takes two calls, and an odd answer is one
    share = faults / (2 * attempts + 0.9 * faults)
    took: list[float] = []
    with tempfile.TemporaryDirectory() as place, served(seed, share) as url, Lateness() as machine:
        where = Path(place)
        (where / "recreate.toml").write_text("")
        flags = {
            "domain": "tests.lab.faults:Words",
            "model": f"openai:{url}#m",
            "price": "1,1",
            "jobs": jobs,
            "sandbox": "none",
            "models.timeout": timeout,
            "out": str(where / "run"),
        }
        session = open_session(
            load(where, flags), where, where / "run", parts=Parts(backend=Notebooks())
        )
        try:
            inner = session.model.reply

            def timed(messages: Sequence[Message], call: Call, **params: Any) -> Reply:
                begun = time.monotonic()
                try:
                    return inner(messages, call, **params)
                finally:
                    took.append(time.monotonic() - begun)

            session.model.reply = timed  # type: ignore[method-assign]
            calls = Calls(session.run, session.journal, session.ledger, retries=500, backoff=0.0)
            session = replace(session, calls=calls)
            seed_agent = scaffolds.load(shipped("scaffolds") / "seed")
            tasks = list(session.domain.tasks("train"))[:attempts]
            scores = run_attempts(session, seed_agent, tasks)
            spent = session.ledger.spent
        finally:
            session.close()
        found = seen(url)
        worked = sum(found["worked"].values())
        dealt = {what: n for what, n in sorted(found["dealt"].items()) if what}
    charged = spent.tokens_in + spent.tokens_out
    return {
        "attempts": len(scores),
        "calls": len(took),
        "faults": sum(dealt.values()),
        "lost": sum(s.score is None for s in scores),
        "wrong": sum(s.score is not None and s.score != grade_of(s.task) for s in scores),
        "worked": worked,
        "charged": charged,
        "longest_call_s": round(max(took), 3),
        "deadline_s": timeout,
        "machine_late_s": round(machine.most, 3),
        "over_deadline": sum(t > timeout + GRACE + 2 * machine.most for t in took),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "dealt": dealt,
    }


GRACE = 0.25
"""Seconds by which a call may be late, beside twice what the machine itself is; what has no
deadline is late by a minute."""


def fine(result: Mapping[str, Any]) -> bool:
    """Whether nothing was lost, wrong, late or free of charge."""
    return (
        not (result["lost"] or result["wrong"] or result["over_deadline"])
        and result["worked"] <= result["charged"]
    )


@contextlib.contextmanager
def answering(behaviour: str) -> Iterator[Dealer]:
    """An endpoint that always does this one thing."""
    with Dealer(lambda body: "hello", lambda call: behaviour) as endpoint:
        yield endpoint


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attempts", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=10_500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--kinds", default="")
    args = parser.parse_args()
    if args.serve:
        kinds = [kind for kind in args.kinds.split(",") if kind]
        _bomb()
        with Dealer(said, dealer(args.seed, args.share, kinds)) as endpoint:
            print(endpoint.url, flush=True)
            sys.stdin.read()
        return 0
    result = trial(args.attempts, args.faults, args.seed)
    print(json.dumps(result))
    return 0 if fine(result) else 1


if __name__ == "__main__":
    sys.exit(main())

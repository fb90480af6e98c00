"""recreate view on a workspace of 100,000 steps (--size N): first paint in Chromium, search, the
server's memory.

Half of the steps are in one run, the rest in nine; attempts have ten steps of about a kilobyte. The
server is a process of its own that has read nothing when the first page is asked for.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from recreate.api.types import Experience, Grade, Step, Trace
from recreate.memory.codec import sealed
from recreate.storage.log import Log, seal
from tests import chromium
from tests.lab.perf.table import Row

STEPS = 10
RUNS = 9
ASKED = 60
WORDS = [
    f"{a}{b}"
    for a in ("parser", "token", "width", "cache", "index", "retry", "unicode")
    for b in range(400)
]


def measure(size: int = 100_000) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        id = fill(where, size // STEPS)
        command = [
            sys.executable,
            "-m",
            "recreate",
            "view",
            "--no-browser",
            "--port",
            "0",
            "--json",
        ]
        environ = {**os.environ, "RECREATE_HOME": str(where / "home")}
        process = subprocess.Popen(
            command, cwd=where, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert process.stdout is not None
            yield from asked(json.loads(process.stdout.readline())["url"], id, size)
            yield _row("server", size, "MB", resident(process.pid), "<=300")
        finally:
            process.terminate()
            process.wait()


def asked(url: str, id: str, size: int) -> Iterator[Row]:
    base = f"http://{urlsplit(url).netloc}"
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def get(path: str) -> tuple[float, str]:
        began = time.perf_counter()
        with opener.open(base + path if path.startswith("/") else path, timeout=600) as answer:
            text = answer.read().decode()
        return time.perf_counter() - began, text

    yield _row("first page of a server that has read nothing", size, "s", get(url)[0], "<=1")
    began = time.perf_counter()
    while "being read" in get("/")[1]:
        time.sleep(0.2)
    yield _row("until every run was read", size, "s", time.perf_counter() - began, "")
    while "data-again" in get("/search?q=parser1")[1]:
        time.sleep(0.5)
    yield _row(
        "until every word is found, at the first start", size, "s", time.perf_counter() - began, ""
    )
    if chromium.find():
        tab = chromium.Chromium()
        try:
            tab.open(url)
            for name, path in (
                ("runs", "/"),
                ("the large run", "/runs/run-0"),
                ("its attempts", "/runs/run-0/attempts"),
                ("a trajectory", f"/runs/run-0/attempts/{id}"),
                ("a search", "/search?q=parser1+cache7"),
            ):
                times = []
                for _ in range(3):
                    tab.open(base + path)
                    tab.until("performance.getEntriesByName('first-contentful-paint').length")
                    times.append(
                        tab.js(
                            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
                        )
                        / 1000
                    )
                yield _row(f"first paint, {name}", size, "s", statistics.median(times), "<=1")
        finally:
            tab.close()
    times = []
    for n in range(ASKED):
        words = " ".join(WORDS[(n * k * 7919 + k) % len(WORDS)] for k in range(1, 2 + n % 3))
        times.append(get("/search?" + urlencode({"q": words}))[0])
    yield _row("search, median", size, "s", statistics.median(times), "<=0.2")
    yield _row("search, 95 of 100", size, "s", sorted(times)[int(0.95 * len(times))], "<=0.2")


def fill(where: Path, attempts: int) -> str:
    """Write a workspace with so many attempts; the id of one of the large run."""
    (where / "recreate.toml").write_text("")
    memory = where / "memory" / "perf" / "experiences"
    memory.mkdir(parents=True)
    first = ""
    for n in range(RUNS + 1):
        count = attempts // 2 if n == 0 else attempts // 2 // RUNS
        folder = where / "runs" / f"run-{n}"
        folder.mkdir(parents=True)
        (folder / "settings.toml").write_text('format = 2\ndomain = "perf"\n')
        with Log(folder / "journal.jsonl") as journal, Log(folder / "ledger.jsonl") as ledger:
            journal.append(
                {"kind": "start", "run": f"r{n}", "model": "m", "domain": "perf", "command": ""}
            )
            journal.append({"kind": "agent", "name": "seed", "scaffold": "s" * 16})
            with (memory / f"r{n}.jsonl").open("wb") as lines:
                for k in range(count):
                    e = experience(n, k)
                    lines.write(sealed(e)[0])
                    _journal(journal, ledger, e)
                    if k < 20:
                        first = first or e.id
                        _attempt(folder / "attempts" / e.id, e)
    return first


def experience(n: int, k: int) -> Experience:
    id, task = f"{n:02x}{k:014x}", f"perf:train:{k % 500}"
    steps = tuple(
        Step(
            step=s,
            observation=_text(n, k, s),
            reply=f"I look.\n```bash\ngrep -rn {_word(n, k, s)} src\n```",
            action=f"grep -rn {_word(n, k, s)} src",
            output=_text(n, k, s + 1),
            status=0,
        )
        for s in range(STEPS)
    )
    trace = Trace(attempt=id, task=task, scaffold="s" * 16, model="m", steps=steps)
    passed = k % 3 == 0
    return Experience(
        id=id,
        domain="perf",
        task=task,
        group=task,
        split="train",
        prompt=f"Mend {_word(n, k, 0)}.",
        digest="s" * 16,
        trace=trace,
        grade=Grade(score=float(passed), passed=passed, evidence=_text(n, k, 3)[:300]),
        run=f"r{n}",
    )


def _word(n: int, k: int, s: int) -> str:
    return WORDS[(n * 31 + k * 17 + s * 101) % len(WORDS)]


def _text(n: int, k: int, s: int) -> str:
    return "\n".join(
        f'File "src/{_word(n, k, s + i)}.py", line {k + i}: {_word(k, s, i)} was not {i}'
        for i in range(9)
    )


def _journal(journal: Log, ledger: Log, e: Experience) -> None:
    usage = {"calls": 1, "tokens_in": 900, "tokens_out": 60, "usd": 0.001}
    rows, paid = [], [{"kind": "attempt", "session": 1, "seconds": 1.0, "attempt": e.id}]
    for step in e.trace.steps:
        call = f"r/{e.id}/{step.step}"
        rows.append(
            {
                "kind": "reply",
                "call": call,
                "role": "agent",
                "request": "c" * 16,
                "steady": "",
                "params": "",
                "reply": {"text": step.reply},
            }
        )
        paid.append(
            {
                "kind": "reserve",
                "session": 1,
                "seconds": 1.0,
                "call": call,
                "usd": 0.01,
                "tokens": 4000,
            }
        )
        settle = {
            "kind": "settle",
            "session": 1,
            "seconds": 1.0,
            "call": call,
            "role": "agent",
            "phase": "train",
        }
        paid.append({**settle, "usage": usage})
    ended = {
        "task": e.task,
        "split": e.split,
        "repeat": 0,
        "scaffold": e.digest,
        "score": e.grade.score,
    }
    rows.append(
        {
            "kind": "experience",
            "attempt": e.id,
            **ended,
            "passed": e.grade.passed,
            "ending": "submitted",
        }
    )
    journal.append(*rows)
    ledger.append(*paid)


def _attempt(folder: Path, e: Experience) -> None:
    folder.mkdir(parents=True)
    with Log(folder / "steps.jsonl") as lines:
        lines.append(*(s.model_dump(mode="json", exclude={"schema_"}) for s in e.trace.steps))
    bare = e.model_copy(update={"trace": e.trace.model_copy(update={"steps": ()})})
    (folder / "experience.json").write_bytes(
        seal({**bare.model_dump(mode="json"), "step_count": len(e.trace.steps)})
    )


def resident(pid: int) -> float:
    """The most memory that a process held, in MB."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM")) / 1024


def _row(case: str, size: int, unit: str, ours: float, goal: str) -> Row:
    return Row("view", f"{case}, {size:,} steps", unit, ours, None, None, None, None, goal, "ours")

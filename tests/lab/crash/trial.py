"""One build, stopped on its way and gone on with: is it the build that nobody stopped?"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from recreate.agents.history import History
from recreate.agents.scaffold import load
from recreate.api.paths import shipped
from recreate.cli import run as command
from recreate.runs.budget import Spend
from recreate.storage.log import Log
from tests.lab.crash.boundaries import Counter, count
from tests.lab.crash.toy import MARKS, PAID, PAIRED, Build, lesson

RUN = "runs/x"
asked_for: Build = PAIRED
"""Which of the toy's builds is stopped."""

TAPE = "tape"
recording = False
"""Whether the builds are recorded, and what is recorded is played when they have ended:
`--record`."""

_CLOCK = {"when", "seconds", "sum", "pid", "latency", "date"}
"""Fields that no two runs share."""


def warm(folder: Path) -> None:
    """Import and compile all that a build takes, in this process: those that are forked from it are
    then quick."""
    compiled, compile_ = dict[Any, Any](), jinja2.Environment.compile

    def once(self: jinja2.Environment, source: Any, *rest: Any, **options: Any) -> Any:
        key = (str(source), type(self), self.undefined, self.autoescape)
        if key not in compiled:
            compiled[key] = compile_(self, source, *rest, **options)
        return compiled[key]

    jinja2.Environment.compile = once  # type: ignore[method-assign]
    before = Path.cwd()
    os.chdir(fresh(folder))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            command(asked(folder))
    finally:
        os.chdir(before)
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()  # what is forked from this process must not find a lock taken


def uninterrupted(folder: Path, jobs: int = 1) -> dict[str, Any]:
    """What a build leaves that nobody stops."""
    if ended(begin(fresh(folder), jobs=jobs)):
        raise AssertionError(_said(folder))
    return state(folder)


def fresh(folder: Path) -> Path:
    """An empty workspace in place of whatever lies there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recreate.toml").write_text("")
    # an agent to be replaced, and one that knows it all, for a bench
    for name in ("marks", "taught"):
        shutil.copytree(shipped("scaffolds") / "seed", folder / "scaffolds" / name)
    with (folder / "scaffolds" / "taught" / "system.md").open("a") as text:
        text.write(lesson(len(MARKS) - 1))
    return folder


def asked(folder: Path) -> list[str]:
    """What a user types next: to go on where there is a build, else the same again."""
    if asked_for.command == "build" and (folder / RUN / "settings.toml").exists():
        return ["resume", RUN, "--json"]
    tape = ["--record", TAPE] if recording else []
    cap = [f"--budget={text}" for text in asked_for.cap.texts()]
    return [asked_for.command, *asked_for.flags, *cap, "--out", RUN, *tape]


def begin(
    folder: Path,
    counter: Counter | None = None,
    jobs: int = 1,
    printed: Path | None = None,
    words: Sequence[str] = (),
) -> int:
    """The id of a process of its own at work there. What it prints lies in out.json and err.txt, or
    in `printed`. words: what is typed, else what a user types next."""
    arguments = [*(words or asked(folder)), "--jobs", str(jobs)]
    pid = os.fork()
    if pid:
        return pid
    try:
        os.chdir(folder)
        for fd, name in ((1, "out.json"), (2, "err.txt")):
            os.dup2(
                os.open((printed or folder) / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
                fd,
            )
        if counter is not None:
            count(counter)
        code = command(arguments)
        sys.stdout.flush()
        if counter is not None and not counter.at:
            os.write(1, json.dumps(counter.seen).encode() + b"\n")
    except BaseException:
        traceback.print_exc()
        code = 99
    os._exit(code)


def ended(pid: int) -> int:
    """The exit code; -9 of a killed one."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def boundaries(folder: Path, *, full: bool = False) -> list[str]:
    """The names of all that an uninterrupted build passes."""
    ended(begin(fresh(folder), Counter(full=full)))
    found: list[str] = json.loads((folder / "out.json").read_text().splitlines()[-1])
    return found


def stopped_at(folder: Path, at: int, whole: Mapping[str, Any], *, full: bool = False) -> list[str]:
    """What is wrong with a build that was stopped at a boundary; [] for nothing."""
    code = ended(begin(fresh(folder), Counter(at=at, full=full)))
    return (_said_full(folder, code) if full else []) + gone_on(folder, whole, stops=1)


def stopped_on(folder: Path, kilobytes: int, whole: Mapping[str, Any]) -> list[str]:
    """The same of one on a file system of its own that had so little room, and got more. Only root
    can mount it."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", folder], check=True)
    try:
        code = ended(begin(fresh(folder), printed=folder.parent))
        faults = _said_full(folder.parent, code)
        subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
        return faults + gone_on(folder, whole, stops=1)
    finally:
        subprocess.run(["umount", folder], check=True)


def _said_full(folder: Path, code: int) -> list[str]:
    error = _record(folder).get("error", {})
    fix = error.get("fix") or ""
    said = (
        bool(fix)
        if asked_for.command == "build"
        else "the same command" in fix and "resume" not in fix
    )
    if not code or (
        code == 1 and error.get("code") in ("disk", "disk-full", "git-failed") and said
    ):
        return []
    return [f"a full disk was not said to be one: exit {code}, {error or _said(folder)}"]


def stopped_when(folder: Path, seconds: Sequence[float], whole: Mapping[str, Any]) -> list[str]:
    """The same of one that was killed after so many seconds, and each time again while it went on.
    whole: of two jobs, by which a trial's stretches are made."""
    fresh(folder)
    for wait in seconds:
        pid = begin(folder, jobs=2)
        time.sleep(wait)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        ended(pid)
    return gone_on(folder, whole, stops=2 * len(seconds), jobs=2)


def gone_on(folder: Path, whole: Mapping[str, Any], stops: int, jobs: int = 1) -> list[str]:
    """Bring a stopped build to its end. stops: how many calls may have been in flight when it was
    stopped."""
    code = ended(begin(folder, jobs=jobs))
    if code:
        return [
            f"{' '.join(asked(folder)[:2])} ended with {code}:"
            f" {_record(folder).get('error') or _said(folder)}"
        ]
    now = state(folder)
    faults = [
        _difference(name, whole[name], now[name]) for name in whole if now[name] != whole[name]
    ]
    paid = [json.loads(line) for line in (folder / PAID).read_text().splitlines()]
    again = sum(Counts(row["call"] for row in paid).values()) - len({row["call"] for row in paid})
    if again > stops:
        faults.append(f"{again} calls were paid again, {stops} were in flight")
    spent, tokens = (
        Spend.of(Log(folder / RUN / "ledger.jsonl").read()),
        sum(row["tokens"] for row in paid),
    )
    most = asked_for.cap.tokens
    if not tokens <= spent.tokens <= (most or 0):
        faults.append(
            f"{tokens} tokens were paid, the ledger says {spent.tokens}, the cap is {most}"
        )
    return faults + played(folder, whole) * recording


def played(folder: Path, whole: Mapping[str, Any]) -> list[str]:
    """What is wrong with the cassette of a build that ended; [] when its replay is that build,
    unpaid."""
    paid = (folder / PAID).stat().st_size
    code = ended(
        begin(folder, words=["build", "--replay", TAPE, "--out", "runs/replayed", "--json"])
    )
    told, then = _record(folder), whole["result"]
    if code:
        return [f"its replay ended with {code}: {told.get('error') or _said(folder)}"]
    faults = [
        _difference(k, then[k], told.get(k))
        for k in ("status", "validation", "revisions")
        if told[k] != then[k]
    ]
    return faults + ["its replay paid"] * ((folder / PAID).stat().st_size != paid)


def state(folder: Path) -> dict[str, Any]:
    """All that a build or a bench leaves, but for times and what was spent."""
    run = folder / RUN
    journal = [_timeless(r) for r in Log(run / "journal.jsonl").read()]
    memory = [
        _timeless(r)
        for file in sorted(folder.glob("memory/*/experiences/*"))
        for r in Log(file).read()
    ]
    once = (
        "experience",
        "proposal",
        "memory",
        "revision",
        "nothing",
        "snapshot",
        "reply",
        "seed",
        "trial",
        "cell",
    )
    return (_measured(folder) if asked_for.command == "bench" else _built(folder)) | {
        "journal": {kind: _sorted(r for r in journal if r["kind"] == kind) for kind in once},
        "attempts": {
            file.parent.name: [
                _timeless(r)
                for name in ("experience.json", "steps.jsonl")
                for r in _lines(file, name)
            ]
            for file in sorted(run.glob("attempts/*/experience.json"))
        },
        "memory": _sorted(memory),
        "lessons": {
            str(p.relative_to(folder)): p.read_text()
            for p in sorted(folder.glob("memory/*/*/*.md"))
        },
        "held out": _sorted(Log(folder / "memory" / "held_out.jsonl").read()),
        "attempts counted": Spend.of(Log(run / "ledger.jsonl").read()).attempts,
    }


def _built(folder: Path) -> dict[str, Any]:
    run, record = folder / RUN, _record(folder)
    return {
        "result": {
            k: record.get(k) for k in ("status", "validation", "revisions", "set_aside", "waiting")
        },
        "agent": load(folder / "scaffolds" / "marks").digest,
        "lineage": sorted(
            (c.digest, c.parent, c.branch) for c in History(run / "scaffold.git").log()
        ),
        "reports": [(run / name).stat().st_size > 100 for name in ("report.md", "report.html")],
    }


def _measured(folder: Path) -> dict[str, Any]:
    run, record = folder / RUN, _record(folder)
    files = [run / "results.jsonl", *sorted((run / "predictions").iterdir())]
    lines = {
        file.name: [_timeless(json.loads(row)) for row in file.read_text().splitlines()]
        for file in files
    }
    table = [
        {k: v for k, v in row.items() if k != "latency"}
        for row in csv.DictReader((run / "cells.csv").open())
    ]
    cells = ("status", "cells", "differences", "test_openings", "stopped", "error")
    return {"result": {k: _timeless(record.get(k)) for k in cells}, "cells.csv": table, **lines}


def _lines(file: Path, name: str) -> Iterator[dict[str, Any]]:
    return Log(file.with_name(name)).read()


def moments(number: int, most: float, seed: int) -> list[list[float]]:
    """So many lists of one to three moments, in seconds."""
    chance = random.Random(seed)
    return [
        [chance.uniform(0, most) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        for _ in range(number)
    ]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in _CLOCK}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def _sorted(records: Any) -> list[str]:
    return sorted(json.dumps(record, sort_keys=True) for record in records)


def _record(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / "out.json").read_text().splitlines()[0])
    except (ValueError, IndexError):
        return {}
    return found


def _said(folder: Path) -> str:
    return (folder / "err.txt").read_text()[-600:]


def _difference(name: str, whole: Any, now: Any) -> str:
    if isinstance(whole, dict):
        keys = [k for k in {**whole, **now} if whole.get(k) != now.get(k)]
        return "; ".join(_difference(f"{name} {k}", whole.get(k), now.get(k)) for k in keys)
    if isinstance(whole, list) and isinstance(now, list):
        before, after = Counts(map(str, whole)), Counts(map(str, now))
        lost, more = before - after, after - before
        found = [x[:120] for x in [*lost, *more][:2]]
        return f"{name}: {sum(lost.values())} lost, {sum(more.values())} too many: {found}"
    return f"{name}: {str(now)[:150]} in place of {str(whole)[:150]}"

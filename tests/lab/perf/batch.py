"""A suite of 2,000 attempts (--size N), 64 at once, replies of 500 ms, beside 64 threads of a thin
client: throughput, memory, and the page of it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold
from tests.lab.perf.endpoint import endpoint
from tests.lab.perf.step import prompts
from tests.lab.perf.still import REPLY, agent
from tests.lab.perf.table import Row
from tests.lab.perf.thin import Thin

STEPS, AT_ONCE, DELAY_MS = 4, 64, 500
SCAFFOLDS = ("a", "b")


def measure(size: int = 2000) -> Iterator[Row]:
    """One process of the suite beside one run of the thin client; the load of the machine is in the
    case."""
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="recreate-perf-") as name,
        endpoint(REPLY, DELAY_MS) as url,
    ):
        where = Path(name)
        for each in SCAFFOLDS:  # the same agent under two digests
            files = agent(STEPS).files
            scaffolds.save(
                Scaffold(name=each, files={**files, "system.md": files["system.md"] + each}),
                where / each,
            )
        thin = _thin(url, size)
        suite = where / "suite.toml"
        suite.write_text(
            f'scaffold = ["a", "b"]\nmodel = "openai:{url}#stub"\ndomain ='
            ' "tests.lab.perf.still:Still"\nsplit = "train"\nsandbox ='
            ' "tests.lab.perf.still:StillRung"\nprice = "0.5,1.5"\ntasks ='
            f' {size // len(SCAFFOLDS)}\njobs = {AT_ONCE}\n[memory]\nembedder = "hashed"\n'
        )
        began = time.perf_counter()
        done = _recreate(
            where, "bench", "suite.toml", "--out", "runs/x", "--json", "--format", "jsonl,csv"
        )
        ours = time.perf_counter() - began
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        attempts = sum(len(cell["scores"]) for cell in json.loads(done)["cells"])
        case = f"{attempts} attempts, {AT_ONCE} at once, {DELAY_MS} ms, load {load:.1f}"
        rate, base = attempts / ours, size / thin
        yield Row(
            "batch", case, "attempts/s", rate, base, rate / base, rate / base, rate / base, ">=0.85"
        )
        yield Row("batch memory", case, "MB", memory, None, None, None, None, "<=600", "ours")
        began = time.perf_counter()
        _recreate(where, "bench", "runs/x", "--json")
        yield Row(
            "batch read back", case, "s", time.perf_counter() - began, None, None, None, None, ""
        )
        began, cpu = time.perf_counter(), _cpu()
        _recreate(where, "show", "runs/x", "--html")
        yield Row(
            "batch page",
            case,
            "s",
            time.perf_counter() - began,
            None,
            None,
            None,
            None,
            "<=3",
            "ours",
        )
        yield Row("batch page", case, "CPU s", _cpu() - cpu, None, None, None, None, "<=3", "ours")
        size_mb = (where / "runs" / "x" / "report.html").stat().st_size / 1e6
        yield Row("batch page", case, "MB", size_mb, None, None, None, None, "<=5", "ours")


def _thin(url: str, size: int) -> float:
    """Seconds that the thin client takes for as many attempts."""
    system, workflow = prompts(STEPS)
    thin = Thin(url)
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda _: thin.attempt(system, workflow, STEPS), range(size)))
    return time.perf_counter() - began


def _cpu() -> float:
    """Seconds that the processes which have ended were at work: the same on a busy machine,
    nearly."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _recreate(where: Path, *words: str) -> str:
    environ = {
        **os.environ,
        "RECREATE_HOME": str(where / "home"),
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    command = [sys.executable, "-m", "recreate", *words]
    done = subprocess.run(
        command, cwd=where, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(words)} ended with {done.returncode}:"
            f" {done.stderr[-800:]}{done.stdout[-300:]}"
        )
    return done.stdout

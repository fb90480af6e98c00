"""What makes `local:` answer sooner: proposed tokens, prompts met before, replies that end with
their function.

Functions of the standard library are put to the model as the small seed puts those of a task. The
model is the catalogue's default, fetched where it is not here, or the file that RECREATE_TEST_GGUF
names. Seconds are the server's CPU seconds on one thread, so that neighbours matter little; what
counts tokens does not depend on the machine.
"""

from __future__ import annotations

import difflib
import fnmatch
import inspect
import os
import shlex
import statistics
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.api.types import Call, Message, Reply
from recreate.models.openai import OpenAI
from recreate.plugins.local_models import catalog
from recreate.plugins.local_models.server import DRAFT, ServeConfig, Server, plan
from tests.lab.perf.table import Row

FUNCTIONS: tuple[Callable[..., Any], ...] = (
    shlex.quote,
    fnmatch.filter,
    textwrap.indent,
    difflib.get_close_matches,
    textwrap.dedent,
    statistics.median_grouped,
)
_CALL = Call(run="perf", attempt="local", step=0)
_WORK = (
    "`{}` fails for some input. {}Write that whole function again with the one wrong place"
    " corrected."
)


def measure(size: int = len(FUNCTIONS)) -> Iterator[Row]:
    """size: how many functions."""
    what = os.environ.pop("RECREATE_TEST_GGUF", "") or f"local:{catalog.default_name()}"
    asked = FUNCTIONS[:size]
    with ExitStack() as stack:
        with_, without = (_Side(what, draft, stack) for draft in (DRAFT, 0))
        took: list[tuple[float, float]] = []
        lengths: list[tuple[int, int]] = []
        for n, function in enumerate(asked):
            for side in (with_, without):
                side.ask(function, max_tokens=1)  # its prompt is computed before the time is taken
            pair = {
                side: side.timed(function, n)
                for side in ((with_, without) if n % 2 else (without, with_))
            }
            took.append((pair[with_][0], pair[without][0]))
            whole = with_.ask(function, seed=n, stop=None)
            lengths.append((pair[with_][1].tokens_out, whole.tokens_out))
        yield _row("proposed tokens", "CPU ms a reply token", took, "<=0.8")
        yield _row("replies that end with the function", "tokens", lengths, "<=1")
        with_.ask(asked[0], max_tokens=1)
        again = [with_.ask(f, told="It was right before. ", max_tokens=1) for f in asked]
        counts = [(r.tokens_in - r.tokens_cached, r.tokens_in) for r in again]
        yield _row("prompts met before, with another ending", "tokens computed", counts, "<=0.5")


class _Side:
    """One server, with one slot."""

    def __init__(self, what: str, draft: int, stack: ExitStack) -> None:
        config = ServeConfig(engine="xllamacpp", threads=1, parallel=1, context=2048, draft=draft)
        self.server = stack.enter_context(Server(plan(what, config)))
        self.server.wait()
        self.model = OpenAI(
            f"{self.server.url}#{self.server.launch.name}", key_env="", timeout=3600
        )
        stack.callback(self.model.close)
        self.agent = scaffolds.load(shipped("scaffolds") / "seed-swe-small")

    def ask(self, function: Callable[..., Any], told: str = "", **params: Any) -> Reply:
        name, ways = function.__name__, self.agent.agent.model
        source = textwrap.dedent(inspect.getsource(function))
        messages: list[Message] = [
            {"role": "system", "content": self.agent.files["system.md"]},
            {
                "role": "user",
                "content": f"## `{name}`\n```python\n{source}```\n\n" + _WORK.format(name, told),
            },
        ]
        usual: dict[str, Any] = {
            "temperature": ways.temperature,
            "max_tokens": ways.max_tokens,
            "stop": [*ways.stop],
        }
        return self.model.reply(messages, _CALL, **usual | params)

    def timed(self, function: Callable[..., Any], seed: int) -> tuple[float, Reply]:
        """(CPU milliseconds a token, the reply)."""
        before = _cpu(self.server.pid)
        reply = self.ask(function, seed=seed)
        return 1e3 * (_cpu(self.server.pid) - before) / max(1, reply.tokens_out), reply


def _row(
    case: str, unit: str, pairs: list[tuple[float, float]] | list[tuple[int, int]], goal: str
) -> Row:
    ours, baseline = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    return Row(
        "local", case, unit, ours, baseline, statistics.median(ratios), ratios[0], ratios[-1], goal
    )


def _cpu(pid: int) -> float:
    """CPU seconds of a process and what it started, so far."""
    total, pids = 0.0, [pid]
    for one in pids:
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        pids += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return total

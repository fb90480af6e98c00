"""Steps per second of 64 agents at once, against 64 threads of the thin client."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

from recreate.runs.attempts import run_attempts
from tests.lab.perf.endpoint import endpoint
from tests.lab.perf.step import prompts
from tests.lab.perf.still import REPLY, agent, run_session
from tests.lab.perf.table import Row, paired
from tests.lab.perf.thin import Thin

AGENTS = 64
CASES = ((20, 20, 128, 7, ">=0.6"), (500, 8, 64, 3, ">=0.85"))
"""(delay of a reply in ms, steps an attempt has, attempts, pairs, goal)."""


def measure() -> list[Row]:
    return [_case(*case) for case in CASES]


def _case(delay: int, steps: int, attempts: int, pairs: int, goal: str) -> Row:
    scaffold = agent(steps)
    system, workflow = prompts(steps)
    with endpoint(REPLY, delay) as url, run_session(f"openai:{url}#stub", jobs=AGENTS) as session:
        tasks = itertools.count()
        known = session.domain.tasks()
        thin = Thin(url)

        def ours() -> float:
            mine = [known[next(tasks)] for _ in range(attempts)]
            begun = time.perf_counter()
            run_attempts(session, scaffold, mine)
            return attempts * steps / (time.perf_counter() - begun)

        def theirs() -> float:
            begun = time.perf_counter()
            with ThreadPoolExecutor(AGENTS) as pool:
                list(pool.map(lambda _: thin.attempt(system, workflow, steps), range(attempts)))
            return attempts * steps / (time.perf_counter() - begun)

        case = f"{AGENTS} agents, {delay} ms"
        return paired("throughput", case, "steps/s", ours, theirs, pairs=pairs, goal=goal)

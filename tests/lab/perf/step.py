"""Own-process CPU per agent step, all included: budget, journal, steps on disk, the experience
kept.

The sandbox does nothing on either side. The baseline keeps nothing, checks nothing and writes
nothing.
"""

from __future__ import annotations

import itertools
import time

from recreate.runs.attempts import attempt_task
from tests.lab.perf.endpoint import endpoint
from tests.lab.perf.still import REPLY, agent, run_session
from tests.lab.perf.table import Row, paired
from tests.lab.perf.thin import Thin
from tests.stub import Stub

GOAL = "<=1.5"
CASES = ((20, 10, 21), (200, 1, 21))
"""(steps an attempt has, attempts a measurement takes, pairs)."""


def measure() -> list[Row]:
    same_bodies()
    return [_case(*case) for case in CASES]


def _case(steps: int, attempts: int, pairs: int) -> Row:
    scaffold = agent(steps)
    with endpoint(REPLY) as url, run_session(f"openai:{url}#stub") as session:
        thin = Thin(url)
        tasks = itertools.count()
        known = session.domain.tasks()
        system, workflow = prompts(steps)

        def ours() -> float:
            mine = [known[next(tasks)] for _ in range(attempts)]
            begun = time.process_time()
            for task in mine:
                attempt_task(session, scaffold, task, 0, "train")
            return (time.process_time() - begun) / (attempts * steps) * 1e6

        def theirs() -> float:
            begun = time.process_time()
            for _ in range(attempts):
                thin.attempt(system, workflow, steps)
            return (time.process_time() - begun) / (attempts * steps) * 1e6

        row = paired(
            "step", f"{steps} steps", "us of CPU a step", ours, theirs, pairs=pairs, goal=GOAL
        )
        thin.close()
        return row


def prompts(steps: int) -> tuple[str, str]:
    """What the agent is first told."""
    from tests.lab.perf.still import Still

    scaffold, task = agent(steps), Still().tasks()[0]
    return scaffold.render("system", task=task, before={}), scaffold.render(
        "workflow", task=task, before={}
    )


def same_bodies(steps: int = 5) -> None:
    """Both sides must ask the same; a comparison of different requests would be worth nothing."""
    bodies = []
    for side in ("ours", "thin"):
        with Stub(REPLY) as stub:
            if side == "ours":
                with run_session(f"openai:{stub.url}#stub") as session:
                    attempt_task(session, agent(steps), session.domain.tasks()[0], 0, "train")
            else:
                thin = Thin(stub.url)
                thin.attempt(*prompts(steps), steps)
                thin.close()
            bodies.append([{**body, "seed": type(body["seed"])} for body in stub.bodies])
    assert bodies[0] == bodies[1], "the two sides do not send the same bodies"

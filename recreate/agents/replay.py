"""An attempt that is over, done again: replay(...) -> the sandbox as it was when it was handed in.

A sandbox is not kept for this: it would be lost with the process, and an experience of an earlier
run has none.
"""

from __future__ import annotations

from recreate.agents.action import Done, done_actions
from recreate.agents.attempt import output_name
from recreate.agents.functions import SUBMIT
from recreate.agents.progress import LimitsLeft
from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import Workplace, furnish, prepare_sandbox, tell_attempt
from recreate.api.errors import BadInput
from recreate.api.ports import Domain, Sandbox, SandboxBackend
from recreate.api.types import Step, Task, Trace, Usage
from recreate.storage.redact import redact


def replay(
    scaffold: Scaffold, task: Task, trace: Trace, domain: Domain, backend: SandboxBackend
) -> tuple[Sandbox, str]:
    """Return a fresh sandbox in which the actions of the sample that was handed in are done again,
    and how faithful that is."""
    place = Workplace(scaffold, task, domain)
    limits = LimitsLeft.of(scaffold.agent.limits)
    sandbox = prepare_sandbox(domain, task, backend)
    count = 0
    other = []
    try:
        path = trace.path()
        prompt = redact(task.prompt, acted_on=True)
        furnish(sandbox, scaffold, prompt, path[0].sample if path else trace.chosen)
        if scaffold.agent.action == "tools":
            try:
                # what is not in the sandbox is not done twice
                place.open_functions(sandbox, elsewhere=False)
            except BadInput as e:
                if e.code != "bad-mcp":
                    raise
                other.append(e.message)
        for step in path:
            if step.after is not None and scaffold.tools:
                tell_attempt(sandbox, prompt, step.sample)
            nothing = step.kind in ("malformed", "ended") or step.action in ("", SUBMIT)
            if nothing or step.kind == "observe" or step.restored:
                continue  # nothing of it stood
            if scaffold.foreign and (calls := _calls_of_its_own(step)):
                why = f"called {calls}, which only the agent's own program can do"
                other.append(f"step {step.step} {why}")
                continue
            if limits.reached(Usage()):
                other.append(f"there was no time for step {step.step} and what followed")
                break
            status = _repeat_step(place, sandbox, step)
            count += 1
            # what a program of its own ran told no status
            if status != step.status and step.status is not None:
                why = f"ended with status {status}, it had been {step.status}"
                other.append(f"step {step.step} {why}")
    except BaseException:
        sandbox.close()
        raise
    how = f"; {'; '.join(other)}" if other else ", and all ended as they had"
    return sandbox, f"{count} actions were done again{how}"


def _repeat_step(place: Workplace, sandbox: Sandbox, step: Step) -> int | None:
    """Do what a step did once more; return its status."""
    if step.kind == "before":
        return place.run_tool(sandbox, step.action).status
    agent = place.agent
    actions = done_actions(agent.action, step, place.functions, recalls=agent.memory.recall > 0)
    if all(action.query for action in actions):
        return step.status  # what was asked of memory changed nothing
    done = Done()
    for n, action in enumerate(actions):
        if not action.wrong and not action.query and action.command != SUBMIT:
            output, text = place.act(sandbox, action, output_name(step.step, n))
            done.add(action.command, text, output)
    return done.status


def _calls_of_its_own(step: Step) -> str:
    """Return the functions of a foreign agent that a step called and that are no shell's command;
    '' for none."""
    lines = step.action.split("\n")
    calls = step.foreign.get("tool_calls", ())
    return ", ".join(c["name"] for c in calls if f"{c['name']} {c['arguments']}" in lines)

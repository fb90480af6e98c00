"""Provisional grades: what a model thinks of imported attempts that nobody has graded, so that
recall finds them.

They are marked wherever they are shown, and never taken for grades: the attempts stay outside
memory, where everything that counts, trains, promotes or judges reads (ungraded.py). Recall over
them goes by an index of its own:

    memory/index/waiting/   derived, as memory/index is
"""

from __future__ import annotations

from recreate.agents.trajectory import clip, tell_step
from recreate.api.ports import AskJudge
from recreate.api.types import Experience, Provisional, Task, digest

PASS_AT = 0.7
"""The score from which on an attempt has passed, as for answers that a judge grades."""
STEP = 4_000
ANSWER = 12_000
"""Characters of each text of a step, and of what was handed in, that a judge is shown."""

RUBRIC = """The answer is the record of a whole attempt at a task, as another tool kept it: what \
the agent was asked, \
what it did step by step and what came of it, how it ended, and what it handed in. Say how well \
the attempt did what \
the agent was asked.

1: all of it is done, and the record shows it: outputs, tests or replies bear it out.
0.7: it is done as far as the record shows, and nothing in it speaks against that.
0.4: a part is done, or it cannot be told from the record whether it is.
0: it is not done, was given up, or the record shows that it is wrong.

What the agent says of its own success counts for nothing without an output that bears it out."""


def judge_attempt(
    e: Experience, rubric: str, ask: AskJudge, model: str, pass_at: float = PASS_AT
) -> Provisional:
    """What a judge says of an attempt, asked as `--score judge:` asks (plugins/judge): all
    that the attempt's record says, the task included, is fenced as data. Raises Fault,
    `unsound-task`, when it gives no verdict.
    """
    from recreate.plugins.judge import judge

    about = Task(
        id=e.task,
        domain=e.domain,
        prompt="It stands in the record of the attempt.",
        split=e.split,
        group=e.group,
    )
    trace = e.trace.model_copy(update={"attempt": digest([e.id, rubric]), "answer": record_of(e)})
    found = judge.ask_judge(about, trace, rubric, ask)
    return Provisional(
        score=found.score, passed=found.score >= pass_at, evidence=found.why, model=model
    )


def record_of(e: Experience) -> str:
    """An attempt as a judge reads it: what was asked, said, done and handed in."""
    system = str(e.foreign.get("system", ""))
    parts = [f"The agent's instructions:\n{clip(system, STEP)}"] if system.strip() else []
    parts.append(f"It was asked:\n{clip(e.prompt, ANSWER)}")
    before = e.prompt
    for step in e.trace.steps:
        if (saw := step.observation.strip()) and saw not in (before.strip(), e.prompt.strip()):
            parts.append(f"It was told:\n{clip(saw, STEP)}")
        parts.append(tell_step(step, STEP))
        before = step.output
    parts.append(f"It ended: {e.trace.ending} {e.trace.limit or e.trace.fault}".rstrip())
    return "\n\n".join([*parts, f"It handed in:\n{clip(e.trace.answer, ANSWER) or '(nothing)'}"])

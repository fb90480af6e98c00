"""The folder that a session works in, as files of the host; a sandbox gets a copy of it.

TASK.md                     what is wanted, and the rules
agent/                      the agent's files: a git repository whose first commit is the parent
attempts/03-failed-0.20/    task.md, transcript.md, grade.md, answer.txt, gold.md where it may be
                            shown: train tasks alone
history.md                  what was tried in this build, and why it was not kept
lessons/                    what memory teaches of the domain
causes.md                   to be written
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from recreate.agents.scaffold import UNCOUNTED, Scaffold
from recreate.agents.template import filled
from recreate.agents.trajectory import cut_middle, tell_step
from recreate.api.shapes import JsonMap
from recreate.api.types import Experience
from recreate.optimizers.context import OptimizerContext
from recreate.storage import files

PROMPTS = Path(__file__).parent / "prompts"
STEP_CHARS = 20_000
"""Characters of each text of a step that a transcript tells."""
LEFT_OUT = "\n[... {} characters left out here ...]\n"
GIT = ("-c", "user.name=recreate", "-c", "user.email=recreate@localhost", "-c", "gc.auto=0")


def name_attempts(experiences: Sequence[Experience]) -> dict[str, Experience]:
    """Return the attempts by what they are called in the folder: 01, 02, ..."""
    return {f"{n:02d}": e for n, e in enumerate(experiences, 1)}


def call_folder(name: str, e: Experience) -> str:
    """Return the name of an attempt's folder."""
    outcome = "passed" if e.grade.passed else "failed"
    return f"{name}-{outcome}-{e.grade.score:.2f}"


def tell_attempts(
    context: OptimizerContext, attempts: Mapping[str, Experience], under: str = "attempts"
) -> dict[str, str]:
    """Return what the folder has of attempts: path -> text."""
    found = {}
    for name, e in attempts.items():
        here = f"{under}/{call_folder(name, e)}"
        found[f"{here}/task.md"] = e.prompt
        found[f"{here}/answer.txt"] = e.trace.answer
        found[f"{here}/grade.md"] = tell_grade(context, e)
        if "trajectory" not in context.without:
            found[f"{here}/transcript.md"] = tell_transcript(e)
        if context.limits.answers and (gold := context.gold(e)):
            found[f"{here}/gold.md"] = gold
    return found


def tell_grade(context: OptimizerContext, e: Experience) -> str:
    """Return how an attempt ended and what the grader said of it."""
    ended = f"{e.trace.ending} {e.trace.limit}".strip()
    said = "" if "evidence" in context.without else f"\n\n{e.grade.evidence}"
    outcome = "passed" if e.grade.passed else "failed"
    return f"{outcome}, score {e.grade.score:g}, ended by: {ended}{said}\n"


def tell_transcript(e: Experience) -> str:
    """Return an attempt's steps; what a step was shown that the one before it got back is not told
    twice."""
    parts = []
    got = ""
    for step in e.trace.steps:
        told = f"## {tell_step(step, STEP_CHARS)}"
        if step.observation and (not got or got not in step.observation):
            shown = cut_middle(step.observation, STEP_CHARS, LEFT_OUT)
            told = f"## step {step.step} was shown\n{shown}\n\n{told}"
        parts.append(told)
        got = step.output
    return "\n\n".join(parts) + "\n"


def tell_history(context: OptimizerContext) -> str:
    """Return what was tried in this build and not kept, and why."""
    lines = context.dropped(most=20)
    return "\n".join(f"- {line}" for line in lines) + "\n" if lines else "Nothing was tried yet.\n"


def list_files(
    context: OptimizerContext,
    scaffold: Scaffold,
    attempts: Mapping[str, Experience],
    variables: JsonMap,
) -> dict[str, str]:
    """Return all files of the folder: path -> text. variables: of TASK.md."""
    found = {"TASK.md": filled(PROMPTS, "task", variables), "history.md": tell_history(context)}
    # a README tells what held-out tasks said of the agent
    own = {path: text for path, text in scaffold.files.items() if path not in UNCOUNTED}
    found |= {f"agent/{path}": text for path, text in own.items()}
    found |= tell_attempts(context, attempts)
    for lesson in context.lessons:
        found[f"lessons/{lesson.id}.md"] = f"# {lesson.title}\n\n{lesson.body}\n"
    return found


def write_folder(place: Path, texts: Mapping[str, str]) -> None:
    """Write the folder, and make the agent's files a git repository where there is git."""
    for path, text in texts.items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write(file, text)
        runs = path.startswith("agent/tools/")
        file.chmod(0o755 if runs else 0o644)
    if shutil.which("git") is not None:
        agent = place / "agent"
        for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "parent")):
            env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(place)}
            env |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
            subprocess.run(
                ["git", *GIT, *arguments], cwd=agent, env=env, check=False, capture_output=True
            )

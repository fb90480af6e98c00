"""Say a word's opposite, and nothing else: a small verifiable task family.
tests.lab.experiments.opposites:Opposites

1 for the word alone, 0.5 for the word among others, else 0. A point, quotes and capitals are not
counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Grade, Split, Task, Trace

PAIRS: dict[Split, str] = {
    "train": (
        "hot cold, big small|little, up down, day night, in out, left right, good bad, new old,"
        " open closed|shut, high low, fast slow, hard soft|easy, happy sad|unhappy, wet dry, full"
        " empty, early late, light dark|heavy, long short, rich poor, strong weak, young old, first"
        " last, start end|finish|stop, true false, win lose, buy sell, black white, clean dirty,"
        " near far, over under"
    ),
    "validation": (
        "thick thin, tall short, wide narrow, alive dead, top bottom, front back|rear, push pull,"
        " love hate, north south, war peace, loud quiet|silent|soft, sweet sour|bitter, inside"
        " outside, before after, always never, brave cowardly|afraid, sharp dull|blunt, deep"
        " shallow, ugly beautiful|pretty, cheap expensive"
    ),
}


class Opposites:
    """30 train and 20 validation words; each word is in one split only."""

    name = "opposites"

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        found = []
        for where, pairs in PAIRS.items():
            for pair in pairs.split(", "):
                word, answers = pair.split(" ")
                if split in (None, where):
                    found.append(
                        Task(
                            id=f"opposites:{word}",
                            domain=self.name,
                            prompt=f"What is the opposite of {word}?",
                            split=where,
                            group=word,
                            facts={"answers": answers.split("|")},
                        )
                    )
        return found

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        try:
            return sandbox.read("answer.txt").decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        said = [word.strip(".,!?\"'*:;()").lower() for word in trace.answer.split()]
        right = [word for word in said if word in task.facts["answers"]]
        score = 1.0 if right and len(said) == 1 else 0.5 if right else 0.0
        return Grade(score=score, passed=score == 1.0, evidence=f"said {' '.join(said)!r}")


def agent(folder: Path) -> Path:
    """One turn: the reply is written down, and handed in."""
    (folder / "tools").mkdir(parents=True, exist_ok=True)
    files = {
        "agent.toml": (
            'description = "Answers in one word."\naction = "tool:put"\n\n[limits]\nsteps = 1\n\n'
            "[model]\nmax_tokens = 8\ntemperature = 1.0\n"
        ),
        "system.md": "Answer with one word.\n",
        "workflow.md": "{{ task.prompt }}\n",
        "observation.md": "{{ output.text }}\n",
        "format.md": "{{ error }}\n",
        "tools/put.py": (
            "#!/usr/bin/env python3\n"
            '"""Write standard input to answer.txt."""\n'
            "import sys\n"
            "open('/work/answer.txt', 'wb').write(sys.stdin.buffer.read())\n"
        ),
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return folder

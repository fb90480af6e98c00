"""A whole domain in one file: shell filters, graded by running them on lines that the agent never
saw.

No task says that blank lines must not come out: that is for experience to find.
`tests.examples.domain:Filters` is its name: `recreate tasks check NAME` needs no model, `recreate
build --domain NAME` does.
"""

from __future__ import annotations

from collections.abc import Sequence

from recreate.api.errors import Fault
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Grade, Split, Task, Trace
from recreate.domains.exploits import text_exploits

LETTERS: dict[Split, str] = {"train": "ae", "validation": "io", "test": "st"}
RULES = {
    "drops every {x}": "tr -d {x}",
    "doubles every {x}": "sed s/{x}/{x}{x}/g",
    "puts - in the place of every {x}": "tr {x} -",
    "prints the lines without {x} alone": "grep -v {x}",
}
"""What a filter does -> a command that does it, but for the blank lines."""

LINES = ["stone", "", "a tie", "oats and seeds", "", "", "moss", "rye"]
"""What answers are tried on. It is not in the prompt, nor in the sandbox that the agent works
in."""


SCRIPTS = {
    "passes lines on": "cat\n",
    "prints nothing": "exit 0\n",
    "reads others": "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ /tmp/* ~/* 2>/dev/null\n",
    "ends its sandbox": "kill -9 -1; kill -9 1 $PPID\n",
    "prints for ever": "yes x\n",
}
"""What an answer might do to its grader; none of them is a right filter."""


class Filters:
    """Shell filters: programs of a line or two in filter.sh, from lines on stdin to lines on
    stdout."""

    name = "filters"
    grader = "1"

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        """The rules for each of the split's letters; what is asked of one letter is a group."""
        return [
            Task(
                id=f"filters:{letter}:{number}",
                domain=self.name,
                prompt=(
                    f"Write filter.sh, a bash script that reads lines and {rule.format(x=letter)}."
                ),
                split=s,
                group=letter,
                facts={"command": command.format(x=letter)},
            )
            for s, letters in LETTERS.items()
            if split in (None, s)
            for letter in letters
            for number, (rule, command) in enumerate(RULES.items())
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        """An empty sandbox: the prompt says all there is."""
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        """The script's text; what is no file, as a folder of that name, is no answer."""
        try:
            return sandbox.read("filter.sh").decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        """Run the script, which is a stranger's, in a sandbox of its own; beside it runs what is
        right."""
        if not trace.answer.strip():
            return Grade(score=0.0, passed=False, evidence="There is no filter.sh.")
        found, right = _output(trace.answer, backend), _output(self.gold(task), backend)
        if not right:
            raise Fault(f"the right answer to {task.id} prints nothing here")
        passed = found == right
        blank = "" in found.split("\n")[:-1]
        why = (
            "what it prints is right"
            if passed
            else "it prints blank lines"
            if blank
            else "it prints other lines"
        )
        return Grade(
            score=float(passed), passed=passed, evidence=f"Run on lines of our own, {why}."
        )

    def gold(self, task: Task) -> str:
        """The right script, for `recreate tasks check`."""
        return f"grep . | {task.facts['command']}\n"

    def exploits(self, task: Task) -> dict[str, str]:
        """Answers that fit every question, and scripts that attack, for `recreate tasks audit`."""
        return {**text_exploits(task), **SCRIPTS}


def _output(script: str, backend: SandboxBackend) -> str:
    sandbox = backend.open()
    try:
        sandbox.write("filter.sh", script.encode("utf-8", "replace"))
        return sandbox.run(
            ["bash", "filter.sh"], timeout=5, stdin="".join(f"{x}\n" for x in LINES).encode()
        ).text
    finally:
        sandbox.close()

"""What an optimizer tries: commands in the environments of attempts, tools of its copy, and
attempts with it.

An environment is rebuilt from an experience when first asked for, and gone when the study ends.
Commands run in a sandbox with neither keys nor network, with the tools of the private copy on PATH.
"""

from __future__ import annotations

from collections.abc import Mapping

from recreate.agents.trajectory import clip, index, tell_index
from recreate.agents.workplace import BIN, furnish
from recreate.api.errors import BadInput
from recreate.api.ports import Sandbox
from recreate.api.types import Experience, Output
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.conversation import Tool, Wrong, one_of, text
from recreate.optimizers.investigator.draft import Draft
from recreate.optimizers.investigator.read_tools import Reader, outcome
from recreate.storage.redact import redact

SECONDS = 60.0
GO_ON = "try what can be tried with `run` and `try_tool`, then `finish`"


class Environments:
    """Use as a context manager."""

    def __init__(self, context: OptimizerContext, reader: Reader, draft: Draft) -> None:
        self.context = context
        self.reader = reader
        self.draft = draft
        self.open: dict[tuple[str, str], Sandbox] = {}

    def __enter__(self) -> Environments:
        return self

    def __exit__(self, *_: object) -> None:
        for sandbox in self.open.values():
            sandbox.close()

    def tools(self) -> list[Tool]:
        """Return `run` (unless environments are switched off) and `try_tool`."""
        where = one_of(
            "end",
            "start",
            description="the environment as the agent left it (default), or as it was given",
        )
        of = text("the id of another experience; left out: the one studied")
        fresh = {"type": "boolean", "description": "make the environment anew first"}
        found = []
        if self.inside:
            found.append(
                Tool(
                    "run",
                    "inspect",
                    "Run a shell command inside the environment of an attempt: no network, at most"
                    f" {SECONDS:g} s, the tools of your private copy on PATH. It is a copy that"
                    " keeps what you do to it: try what you like, and begin with `fresh` again.",
                    self.run,
                    {"command": text("for bash"), "where": where, "fresh": fresh, "experience": of},
                )
            )
        if self.context.empty is not None:
            found.append(
                Tool(
                    "try_tool",
                    "try",
                    "Run a tool of your private copy, in the environment of the attempt if there is"
                    " one to look into, else in an empty one.",
                    self.try_tool,
                    {
                        "name": text("the tool's name without its ending"),
                        "arguments": text("the rest of the command line"),
                        "stdin": text("what it reads"),
                        "where": where,
                        "experience": of,
                    },
                )
            )
        return found

    def run(
        self, command: str, where: str = "end", fresh: bool = False, experience: str = ""
    ) -> str:
        e = self.reader.find(experience)
        if fresh and (e.id, where) in self.open:
            self.open.pop((e.id, where)).close()
        note, sandbox = self.environment(e, where)
        return note + self._shell(sandbox, command, of=e)

    def try_tool(
        self,
        name: str,
        arguments: str = "",
        stdin: str = "",
        where: str = "end",
        experience: str = "",
    ) -> str:
        tools: Mapping[str, str] = self.draft.current.tools
        if name not in tools:
            raise Wrong(f"there is no tool {name!r}; there are: {', '.join(tools) or 'none'}")
        if self.inside and (experience or self.reader.subject is not None):
            e = self.reader.find(experience)
            note, sandbox = self.environment(e, where)
            return note + self._shell(sandbox, f"{name} {arguments}", stdin, of=e)
        if ("", "") not in self.open:
            assert self.context.empty is not None
            self.open["", ""] = self.context.empty()
        return "[in an empty environment]\n" + self._shell(
            self.open["", ""], f"{name} {arguments}", stdin
        )

    @property
    def inside(self) -> bool:
        """Whether the environments of attempts may be looked into."""
        return "environment" not in self.context.without and self.context.open is not None

    def environment(self, e: Experience, where: str) -> tuple[str, Sandbox]:
        """Return (how it was rebuilt when it just was, the sandbox)."""
        note = ""
        if (e.id, where) not in self.open:
            assert self.context.open is not None
            try:
                sandbox, how = self.context.open(e, where == "end")
            except BadInput as error:
                raise Wrong(f"{error.message}; {error.fix}") from None
            self.open[e.id, where] = sandbox
            note = f"[the environment was rebuilt: {how}]\n"
        if where == "end":
            self.reader.note_end(e)
        return note, self.open[e.id, where]

    def _shell(
        self, sandbox: Sandbox, command: str, stdin: str = "", of: Experience | None = None
    ) -> str:
        try:
            furnish(
                sandbox, self.draft.current, of.prompt if of else "", of.trace.chosen if of else 0
            )
        except BadInput as e:  # a command put something else where they lie
            again = "`run` with `fresh` makes this environment anew"
            raise Wrong(
                f"the tools of your copy cannot be put there: {e.message}; {again}"
            ) from None
        line = f'export PATH="$PWD/{BIN}:$PATH"\n{command}'
        return tell_output(
            sandbox.run(line, timeout=SECONDS, stdin=stdin.encode("utf-8", "surrogatepass"))
        )


def tell_output(output: Output) -> str:
    """Return what a command printed and how it ended; nothing in it differs from run to run by
    itself."""
    ended = f"stopped after {SECONDS:g} s" if output.timed_out else f"exit status {output.status}"
    limit = f", limit reached: {output.limit}" if output.limit and not output.timed_out else ""
    return f"{redact(output.text).rstrip()}\n[{ended}{limit}]".lstrip("\n")


class Rehearsal:
    """At most `study.rehearsals` attempts, each a paid one that can be read like any other."""

    def __init__(self, context: OptimizerContext, reader: Reader, draft: Draft) -> None:
        self.context = context
        self.reader = reader
        self.draft = draft
        self.left = context.limits.rehearsals

    def tools(self) -> list[Tool]:
        """Return `rehearse`, unless environments are switched off or nothing may be rehearsed."""
        if self.context.attempt is None or "environment" in self.context.without or not self.left:
            return []
        return [
            Tool(
                "rehearse",
                "try",
                "Let the agent attempt a task of the batch with your private copy (at most"
                f" {self.left} times: it costs a whole attempt). `index` and `steps` then show what"
                " it did.",
                self.rehearse,
                {"experience": text("an experience of the task; left out: the one studied")},
                required=("experience",) if self.reader.subject is None else (),
            )
        ]

    def rehearse(self, experience: str = "") -> str:
        e = self.reader.find(experience)
        if e.id not in self.reader.batch:
            raise Wrong(
                "only tasks of this batch can be rehearsed: name one of"
                f" {', '.join(self.reader.batch)}"
            )
        if self.draft.current.digest == self.draft.parent.digest:
            raise Wrong(
                "there is no edit to rehearse: that attempt is the one you have; make an edit first"
            )
        if not self.left:
            raise Wrong(f"no rehearsal is left: {GO_ON}")
        assert self.context.attempt is not None
        try:
            made = self.context.attempt(self.draft.current, e)
        except BadInput as error:
            raise Wrong(f"{error.message}: it cannot be rehearsed; {error.fix}") from None
        self.left -= 1
        if made is None:
            self.left = 0
            why = "there is no budget for it, or the attempt was lost to a fault"
            raise Wrong(f"this cannot be rehearsed: {why}; {GO_ON}")
        lines = [outcome(made)]
        if "trajectory" not in self.context.without:
            lines.append(tell_index(index(made.trace)))
        if "evidence" not in self.context.without:
            lines.append("grader: " + clip(made.grade.evidence, 1500))
        return "\n".join([*lines, f"[{self.left} rehearsals are left]"])

"""What is done in copies of the sandbox: turns that only look, and actions that are taken back."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from recreate.agents.action import CUT_CHARS, Action, Done
from recreate.agents.attempt import SampleState, TurnStrategy, output_name
from recreate.agents.config import AgentConfig, Strict
from recreate.agents.functions import SUBMIT
from recreate.agents.trajectory import cut_middle
from recreate.agents.workplace import KEPT, LEFT_OUT
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Copyable, Sandbox
from recreate.api.types import Reply

ACT = "act"
"""The command that ends observing."""
_MAY_OBSERVE = (
    "\n\nYou begin by observing. In the first %d replies your commands run in a copy of /work that"
    " is thrown away after each: look at what you like, and try what you like. When you have seen"
    " enough, the command `act`, when it is all that %s holds, ends this. Only what you do after"
    " that counts."
)
_OBSERVED = "\n[This was done in a copy, which is gone. Turns of observing that are left: %d]"
_ACTING = "From now on what you do counts."
_ACT_ALONE = (
    f"{ACT}() {{ echo 'observing goes on: act counts when it is the only call of a reply, and by"
    " itself' >&2; return 127; }\n"
)
_UNCOPIED = (
    "it was not run: /work holds a file that cannot be copied, so there is no observing; from now"
    " on it counts"
)
_RESTORES = (
    "\n\nAfter each of your actions the check `%s` runs. When more fails than before, the action is"
    " taken back: the files are then as they were before it."
)
_TAKEN_BACK = (
    "\n[This action was taken back, and the files are as they were before it: by the check `%s`, %d"
    " failed before and %d after. It said:]\n%s"
)


class Copying(TurnStrategy):
    """A strategy that copies sandboxes."""

    key: ClassVar[str]
    does: ClassVar[str]
    """What its agent does, as it is told where no sandbox can be copied."""

    @classmethod
    def refusal(cls, agent: AgentConfig) -> str:
        if agent.action != "tools":
            return ""
        return (
            f"{cls.key} is for actions bash, json and tool:NAME: what a server did cannot be copied"
        )

    @classmethod
    def try_sandbox(cls, sandbox: Sandbox) -> None:
        if not isinstance(sandbox, Copyable):
            raise BadInput(
                f"the agent {cls.does}, and sandboxes of {sandbox.backend} cannot be copied",
                fix=f"use --sandbox bwrap or --sandbox unshare, or take {cls.key} out of"
                " agent.toml",
                code=f"no-{cls.key}",
            )

    def copy_sandbox(self, sandbox: Sandbox) -> Sandbox | None:
        """Return a copy; None where the agent made a file that cannot be copied: then it acts
        without one."""
        self.try_sandbox(sandbox)
        assert isinstance(sandbox, Copyable)
        try:
            return sandbox.copy()
        except BadInput as e:
            if e.code != "no-copy":
                raise
            return None

    def keep_outputs(self, source: Sandbox, target: Sandbox, commands: int) -> None:
        """Keep the outputs of this step that the agent was told are kept, where the files of the
        source go."""
        for n in range(commands):
            file = f"{KEPT}/{output_name(len(self.steps), n)}.txt"
            with contextlib.suppress(FileNotFoundError, BadInput, Fault):
                target.write(file, source.read(file))


class ObserveSettings(Strict):
    """How many turns a sample may observe before it acts: what its commands do then is done in a
    copy of the sandbox that is thrown away after each turn (the Probe of AOI, which only reads,
    arXiv 2512.13956)."""

    steps: int = Field(default=3, ge=1, le=1000)


class Observe(Copying):
    """Observing. A sample keeps how many turns of it are left."""

    key = "observe"
    does = "observes in copies"
    commands = (ACT,)
    Config = ObserveSettings

    @classmethod
    def refusal(cls, agent: AgentConfig) -> str:
        if agent.action.startswith("tool:"):
            return (
                "observe is for actions bash and json: of another it is not known when it begins to"
                " act"
            )
        if agent.turns["observe"].steps >= agent.limits.steps:
            return "observe.steps leaves no turn to act: let it be fewer than limits.steps"
        return super().refusal(agent)

    @classmethod
    def describe(cls, agent: AgentConfig) -> str:
        return (
            f"In the first {agent.turns['observe'].steps} turns of a sample, or until it says"
            " `act`, its commands run in copies of the environment that are thrown away."
        )

    def begin(self, number: int) -> SampleState:
        sample = super().begin(number)
        sample.kept.setdefault("observing", self.agent.turns["observe"].steps)
        return sample

    def more_words(self, where: str) -> str:
        alone = "a reply" if self.native else where
        own = _MAY_OBSERVE % (self.agent.turns["observe"].steps, alone)
        return own + super().more_words(where)

    def act(self, sample: SampleState, actions: Sequence[Action], done: Done, reply: Reply) -> None:
        if not sample.kept["observing"]:
            return super().act(sample, actions, done, reply)
        left = sample.kept["observing"] = sample.kept["observing"] - 1
        if [action.command for action in actions] == [ACT]:
            sample.kept["observing"] = 0
            done.undone = "observe"
            actions = [replace(actions[0], says=_ACTING)]
            return self.do_all(sample.sandbox, sample.turn, actions, done, reply)
        runs = _run_anything(actions)
        copy = self.copy_sandbox(sample.sandbox) if runs else None
        if runs and copy is None:
            sample.kept["observing"] = 0
            actions = [replace(action, wrong=_UNCOPIED) for action in actions]
            return self.do_all(sample.sandbox, sample.turn, actions, done, reply)
        self.place.shell = _ACT_ALONE if left else ""
        try:
            done.undone = "observe" if copy is not None else ""
            self.do_all(copy or sample.sandbox, sample.turn, actions, done, reply)
            if copy is not None:
                self.keep_outputs(copy, sample.sandbox, len(done.commands))
        finally:
            self.place.shell = ""
            if copy is not None:
                copy.close()
        done.answers[-1] += _OBSERVED % left + ("" if left else f"\n{_ACTING}")
        return None


class RestoreSettings(Strict):
    """When an action is taken back: where more of what the tool `check` tests fails after it than
    before."""

    check: str = Field(min_length=1)

    @property
    def tools(self) -> tuple[str]:
        return (self.check,)


class Restore(Copying):
    """Taking back. A sample keeps how much failed when the check ran last."""

    key = "restore"
    does = "takes back what fails its check"
    Config = RestoreSettings

    @classmethod
    def describe(cls, agent: AgentConfig) -> str:
        return (
            f"After each action tools/{agent.turns['restore'].check} runs: where more fails by it"
            " than before, the action is taken back."
        )

    def more_words(self, where: str) -> str:
        own: str = _RESTORES % self.agent.turns["restore"].check
        return own + super().more_words(where)

    def act(self, sample: SampleState, actions: Sequence[Action], done: Done, reply: Reply) -> None:
        if not _run_anything(actions):
            return super().act(sample, actions, done, reply)
        check = self.agent.turns["restore"].check
        copy = None
        if "failing" not in sample.kept:
            sample.kept["failing"], _ = self.count_failures(sample.sandbox, check)
        before = sample.kept["failing"]
        copy = self.copy_sandbox(sample.sandbox)
        try:
            super().act(sample, actions, done, reply)
            failing, said = self.count_failures(sample.sandbox, check)
            if copy is None or failing <= before:
                sample.kept["failing"] = failing
                return None
            self.keep_outputs(sample.sandbox, copy, len(done.commands))
            sample.sandbox, copy = copy, sample.sandbox
            done.restored = f"by {check} {before} failed before and {failing} after"
            done.answers[-1] += _TAKEN_BACK % (check, before, failing, said)
        finally:
            if copy is not None:
                copy.close()
        return None

    def count_failures(self, sandbox: Sandbox, check: str) -> tuple[int, str]:
        """Return how much fails (0 where the tool exits with 0, else the number on its last line, 1
        without one) and what it said."""
        output = self.place.run_tool(sandbox, check)
        text = output.text.strip()
        last = text.rpartition("\n")[2].strip()
        count = min(int(last), sys.maxsize) if re.fullmatch(r"\d{1,18}", last, re.ASCII) else 1
        return max(1, count) if output.status else 0, cut_middle(text, CUT_CHARS, LEFT_OUT)


def _run_anything(actions: Sequence[Action]) -> bool:
    return any(not a.wrong and not a.query and a.command != SUBMIT for a in actions)

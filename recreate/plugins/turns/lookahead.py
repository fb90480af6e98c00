"""Looking ahead: candidates for each action are tried out in copies of the sandbox, and the best is
carried out (MAXS, arXiv 2601.09259).

Every reply and every action of a rollout is a step of the kind `lookahead`, in a sample of its own.
Candidates that ask for the same are one; where all do, none is rolled out. What is best: the number
of the tool `choose`, where there is one; then the share of actions that ended with 0; then how many
of the others ask for the same or come to hand in the same; then the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import Field

from recreate.agents.action import Done, exchange
from recreate.agents.attempt import Answered, SampleState, calls_of, facts_of, hands_in
from recreate.agents.config import AgentConfig, Strict
from recreate.agents.functions import SUBMIT
from recreate.agents.progress import end_of_refusal
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Sandbox
from recreate.api.shapes import JsonDict
from recreate.api.types import Message, Reply, Usage
from recreate.plugins.turns.copies import Copying


class LookAheadSettings(Strict):
    """How far an agent looks before each action: so many candidates for it, each tried out in a
    copy of the sandbox for so many steps, itself the first of them."""

    candidates: int = Field(default=3, ge=2, le=20)
    steps: int = Field(default=2, ge=1, le=20)


@dataclass
class _Rollout:
    """What comes of one first action in a copy of the sandbox. wanted: so many candidates asked for
    it; well: of each action, whether it could be read and ended with 0; over: nothing follows;
    work: what it would hand in, if it did.
    """

    asked: Answered
    step: int
    sample: int
    sandbox: Sandbox
    messages: list[Message]
    wanted: int = 1
    well: list[bool] = field(default_factory=list)
    over: bool = False
    work: str | None = None
    rank: float = 0.0

    @property
    def status(self) -> float:
        return sum(self.well) / len(self.well) if self.well else 0.0

    def agreement(self, others: Sequence[_Rollout]) -> float:
        """Return the share of the other candidates that ask for the same, or come to hand in the
        same work."""
        alike = sum(
            r.wanted for r in others if r is self or (r.work is not None and r.work == self.work)
        )
        return (alike - 1) / max(1, sum(r.wanted for r in others) - 1)


class LookAhead(Copying):
    """A turn's reply is the best of several."""

    key = "lookahead"
    does = "looks ahead"
    Config = LookAheadSettings

    @classmethod
    def refusal(cls, agent: AgentConfig) -> str:
        if agent.model.temperature == 0:
            return (
                "lookahead needs candidates that differ: set model.temperature above 0, or leave it"
                " out"
            )
        return super().refusal(agent)

    @classmethod
    def describe(cls, agent: AgentConfig) -> str:
        look = agent.turns["lookahead"]
        return (
            f"Before each action {look.candidates} candidates are tried out {look.steps} steps"
            " ahead in copies of its environment; the best is carried out."
        )

    @classmethod
    def count_calls(cls, agent: AgentConfig, calls: int, turns: int) -> int:
        look: LookAheadSettings = agent.turns["lookahead"]
        return calls * look.candidates * look.steps

    def ask_turn(self, sample: SampleState) -> Answered:
        """Return the reply of several whose rollout is best, at no further cost."""
        if sample.kept.get("observing"):
            return super().ask_turn(sample)
        look = self.agent.turns["lookahead"]
        raised = self.raised
        first = len(self.steps)
        candidates: list[Answered] = []
        while len(candidates) < look.candidates and not (
            candidates and self.limits.reached(self.usage)
        ):
            n = len(candidates)
            candidates.append(self.ask_model(sample.messages, first + n, self.agent.samples + n))
        rollouts: list[_Rollout] = []
        try:
            self.try_candidates(sample, candidates, rollouts)
            for rollout in rollouts if len(rollouts) > 1 else ():
                self.roll_out(rollout, sample.turn, look.steps)
            best = max(
                rollouts, key=lambda r: (r.rank, r.status, r.agreement(rollouts)), default=None
            )
        finally:
            self.raised = raised
            for rollout in rollouts:
                rollout.sandbox.close()
        words = f"the reply of step {best.step if best else first}"
        if best and len(rollouts) > 1:
            words += f", the best of {len(rollouts)}: " + "; ".join(
                f"step {r.step}: {f'{self.agent.choose} {r.rank:g}, ' if self.agent.choose else ''}"
                f"status {r.status:.2f}, agreement {r.agreement(rollouts):.2f}"
                for r in rollouts
            )
        chosen = best.asked if best else candidates[0]
        return chosen._replace(usage=Usage(), about={"looked": words})

    def try_candidates(
        self, sample: SampleState, candidates: Sequence[Answered], rollouts: list[_Rollout]
    ) -> None:
        """Note each candidate, and try out those that differ, each in a copy that `rollouts` then
        holds. None is tried out where there is but one, or where the sandbox made a file that
        cannot be copied."""
        keys = [self._wants(asked.reply) for asked in candidates]
        own = (s for s in reversed(self.steps) if s.sample == sample.number and s.kind != "before")
        last = next(own, None)
        for n, asked in enumerate(candidates):
            again = len(set(keys)) == 1 or keys[n] in keys[:n]
            copy = None if again else self.copy_sandbox(sample.sandbox)
            number = self.agent.samples + n
            if copy is None:
                looked = self._looked(asked, sample.messages)
                self.note(sample=number, kind="lookahead", **looked)
                continue
            rollout = _Rollout(asked, len(self.steps), number, copy, list(sample.messages))
            rollout.wanted = keys.count(keys[n])
            rollouts.append(rollout)
            self.try_out(rollout, asked, sample.turn, last is not None and last.status == 0)

    def _wants(self, reply: Reply) -> tuple[tuple[str, str], ...]:
        return tuple((action.command, action.wrong) for action in self.read(reply))

    def _looked(self, asked: Answered, messages: list[Message]) -> JsonDict:
        sent = self.requests.add(len(self.steps), messages, self.full(asked.params))
        facts = facts_of(asked.reply)
        return {"reply": asked.reply.text, "usage": asked.usage, "sent": sent, **facts}

    def roll_out(self, rollout: _Rollout, turn: int, steps: int) -> None:
        """Go on from a first action until `steps` are done, it handed in, or a limit is reached;
        then note what the tool `choose` thinks of it."""
        for ahead in range(turn + 1, min(turn + steps, self.agent.limits.turns)):
            if rollout.over or self.limits.reached(self.usage):
                break
            try:
                asked = self.ask_model(rollout.messages, len(self.steps), rollout.sample)
            except (BadInput, Fault) as e:
                if end_of_refusal(e, turn) is None:
                    raise
                break
            self.try_out(rollout, asked, ahead, rollout.well[-1])
        if self.agent.choose:
            rollout.rank = self.place.rank(rollout.sandbox)

    def try_out(self, rollout: _Rollout, asked: Answered, turn: int, well: bool) -> None:
        """Do in a copy what a reply asks for. well: how the action before it ended: what a hand-in
        is worth."""
        actions = self.read(asked.reply)
        record = self._looked(asked, rollout.messages)
        record |= {"sample": rollout.sample}
        if hands_in(actions):
            self.note(**record, kind="lookahead", action=SUBMIT)
            rollout.over = True
        else:
            done = Done()
            try:
                self.do_all(rollout.sandbox, turn, actions, done, asked.reply)
            finally:
                fields = done.fields(actions, calls_of(asked.reply, actions))
                self.note(**record, **fields | {"kind": "lookahead"})
            well = bool(done.commands) and not done.wrong and done.status == 0
            rollout.messages += exchange(asked.reply, actions, done.answers, cut=False)
            rollout.over = bool(done.commands) and self.is_done(rollout.sandbox)
        rollout.well.append(well)
        if rollout.over:
            rollout.work = self.domain.collect(self.task, rollout.sandbox)

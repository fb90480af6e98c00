"""Samples that share their beginning: after a result several go on from it, each in a copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from recreate.agents.attempt import SampleState
from recreate.agents.config import AgentConfig
from recreate.plugins.turns.copies import Copying


@dataclass(eq=False)
class _Fork:
    """Where so many more samples go on from."""

    sample: SampleState
    ways: int


class Branches(Copying):
    """In how many ways samples go on after their first, second, ... result."""

    key = "branches"
    does = "goes on in several ways from one beginning"
    Config = Annotated[tuple[Annotated[int, Field(ge=1, le=100)], ...], Field(max_length=20)]

    @classmethod
    def refusal(cls, agent: AgentConfig) -> str:
        ways = agent.turns["branches"]
        if agent.samples == 1 or max(ways, default=1) == 1:
            return "branches says in how many ways `samples` go on: both need a number above 1"
        if "lookahead" in agent.turns:
            return (
                "branches go on from each candidate, lookahead from the best: name one of the two"
            )
        if agent.model.temperature == 0:
            return (
                "branches needs replies that differ: set model.temperature above 0, or leave it out"
            )
        return super().refusal(agent)

    @classmethod
    def describe(cls, agent: AgentConfig) -> str:
        return (
            "But samples of one beginning share it: after its first, second, ... result it goes on"
            f" in {', '.join(map(str, agent.turns['branches']))} ways, each in a copy of the"
            " environment."
        )

    @classmethod
    def count_calls(cls, agent: AgentConfig, calls: int, turns: int) -> int:
        """Return the calls without those of turns that are another sample's too, where each turn
        has a result and no sample ends early."""
        ways = agent.turns["branches"]
        forks = list[int]()
        shared = 0
        for number in range(1, agent.samples + 1):
            began = min(forks, default=0)
            forks = sorted(forks)[1:]
            shared += began
            for at in range(began + 1, turns):
                more = ways[at - 1] - 1 if at <= len(ways) else 0
                left = agent.samples - number - sum(fork <= at for fork in forks)
                forks += [at] * min(more, max(0, left))
        return calls - shared

    def __post_init__(self) -> None:
        super().__post_init__()
        self.forks: list[_Fork] = []

    def close(self) -> None:
        super().close()
        while self.forks:
            self.forks.pop().sample.sandbox.close()

    def begin(self, number: int) -> SampleState:
        """Return a sample that goes on from another, where one is to. Those that share the least go
        first, since they can differ the most."""
        fork = min(self.forks, key=lambda fork: fork.sample.results, default=None)
        if fork is None:
            return super().begin(number)
        fork.ways -= 1
        copy = self.copy_sandbox(fork.sample.sandbox) if fork.ways else None
        if copy is None:
            self.forks.remove(fork)
        return fork.sample.branch(number, copy or fork.sample.sandbox, fork.sample.after)

    def after_result(self, sample: SampleState, step: int) -> None:
        """Keep what further samples go on from, as far as samples that share less leave any to be
        made; and what they leave none for no longer."""
        super().after_result(sample, step)
        widths = self.agent.turns["branches"]
        at = sample.results
        left = self.agent.samples - sample.number - 1
        if at > len(widths) or sample.turn >= self.agent.limits.turns:
            return
        ways = min(widths[at - 1] - 1, left - sum(self._ways(at)))
        copy = self.copy_sandbox(sample.sandbox) if ways > 0 else None
        if copy is None:
            return
        self.forks.append(_Fork(sample.branch(sample.number, copy, step), ways))
        while (spare := sum(self._ways()) - left) > 0:
            last = max(reversed(self.forks), key=lambda fork: fork.sample.results)
            last.ways -= min(spare, last.ways)
            if not last.ways:
                self.forks.remove(last)
                last.sample.sandbox.close()

    def _ways(self, most: int | None = None) -> Iterator[int]:
        return (f.ways for f in self.forks if most is None or f.sample.results <= most)

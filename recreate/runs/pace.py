"""How many calls a model is asked at once: fewer when it says that it is busy, slowly more when it answers again.

Additive increase, multiplicative decrease (Chiu and Jain, Analysis of the Increase and Decrease Algorithms, 1989), as
TCP does it: there is no limit until the first 429 or 503; that halves what is in flight, once for all calls that were
under way then, and every so many answers as the limit says let in one call more. What a model asks for (Retry-After)
holds back all its calls, and not only the one that was told.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recreate.api.errors import Interrupted, Transient

BUSY = ("http-429", "http-503", "http-529")
"""Codes of a model that would answer were it asked less often; 529 is Anthropic's for overloaded."""
LONGEST = 60.0
"""Seconds that are waited at most, whatever a model asks for."""
LOOK_SECONDS = 0.5
"""So often who waits looks whether the run is being stopped."""


def slower(in_flight: float) -> float:
    """The limit after a refusal, with so many calls under way."""
    return max(1.0, in_flight / 2)


def faster(limit: float) -> float:
    """The limit after an answer: one more after as many answers as it lets through at once."""
    return limit + 1 / max(1.0, limit)


class Turn:
    """One call's. Whoever was refused says so; without a word it was answered. alone: no other was under way when it
    ended, so that none of them will still be answered."""

    __slots__ = ("alone", "number", "refused")

    def __init__(self, number: int) -> None:
        self.number = number
        self.refused: Transient | None = None
        self.alone = False


class Pace:
    """Of one model, for all threads. limit: calls at once, inf before it was ever busy; answered: how many were.

    told: called with the limit whenever it is lower than ever before.
    """

    def __init__(self, told: Callable[[int], None] = lambda limit: None) -> None:
        self.limit = math.inf
        self.answered = 0
        self._told = told
        self._lowest = math.inf
        self._in_flight = 0
        self._begun = 0
        self._slowed = 0  # the last call that had begun when the limit was last lowered
        self._not_before = 0.0
        self._free = threading.Condition()

    @contextmanager
    def turn(self, stop: threading.Event) -> Iterator[Turn]:
        """Wait until one more call may be made, and make it. Raises Interrupted once `stop` is set."""
        with self._free:
            while (wait := self._not_before - time.monotonic()) > 0 or self._in_flight >= self.limit:
                if stop.is_set():
                    raise Interrupted("stopped")
                self._free.wait(min(wait, LOOK_SECONDS) if wait > 0 else LOOK_SECONDS)
            self._in_flight += 1
            self._begun += 1
            turn = Turn(self._begun)
        try:
            yield turn
        except BaseException:
            self._end(turn, answered=False)
            raise
        self._end(turn, answered=turn.refused is None)

    def _end(self, turn: Turn, *, answered: bool) -> None:
        tell = 0
        with self._free:
            refused, full = turn.refused, self._in_flight >= self.limit - 1
            if answered:
                self.answered += 1
                self.limit = faster(self.limit) if full else self.limit  # an unused limit says nothing
            elif refused is not None and refused.code in BUSY:
                if turn.number > self._slowed:
                    self.limit, self._slowed = slower(min(self._in_flight, self.limit)), self._begun
                    if (tell := int(self.limit)) < self._lowest:
                        self._lowest = tell
                    else:
                        tell = 0
                if refused.after is not None:
                    self._not_before = max(self._not_before, time.monotonic() + min(refused.after, LONGEST))
            self._in_flight -= 1
            turn.alone = not self._in_flight
            self._free.notify()
        if tell:
            self._told(tell)

"""How many calls a model is asked at once, and how often: less when it says that it is busy, more
again as it answers.

There is no limit until the first 429, 503 or 529. Which limit that model has is told by what it
answered before:

- More were under way than it had ever answered: it takes one less than that, which is remembered,
  as TCP remembers its slow-start threshold. Nothing is halved.
- As many had been answered: it counts calls in a time. They are spaced at SLOWER times the rate of
  the last answers. If that does not help, it takes fewer at once by now, and the next refusal
  lowers that.
- It was the only one, or none had been answered: how many at once is found by one more for each
  answer, as TCP starts.

A limit is tried upwards after a while of full use, by the cube of the time since the last refusal,
as CUBIC does beyond its remembered window (Ha, Rhee and Xu, 2008): one call more at first, and soon
everything where nobody refuses. What a model asks for (Retry-After) holds back all its calls, and
not only the one that was told.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recreate.api.errors import Interrupted, Transient

BUSY = ("http-429", "http-503", "http-529")
"""Codes of a model that would answer were it asked less often; 529 is Anthropic's for
overloaded."""
LONGEST = 60.0
"""Seconds that are waited at most of our own accord; when a model asks for more, that is told."""
PATIENCE = 600.0
"""Seconds that are waited at most for a model that asks for it: for a longer time the run stops."""
LOOK_SECONDS = 0.5
"""So often who waits looks whether the run is being stopped."""
ANSWERS = 32
SECONDS = 15.0
"""After so many answers and seconds of full use one more is tried, which costs some 3 of 100 calls
at most; seconds: times those of Retry-After where they are more, since a refusal then costs as
many."""
LATE_SECONDS = 0.02
"""A call that took the place of one answered so shortly before, and is refused, came before that
was free: that says nothing. If there is more to it, the next one begins after no answer, and says
so. Of a model whose refusals make all calls wait (Retry-After) only one in FRESH answers is let
pass."""
FRESH = 20
"""So many answers after a refusal the last ones tell how often the model answers, and nothing of
the pause before."""
RATE_SECONDS = 2.0
FEW = 8
SLOWER = 0.9
"""Calls are spaced at this part of the rate of the answers of so many seconds, of so many answers
at least."""


class Turn:
    """One call's. Whoever was refused says so; without a word it was answered. alone: no other was
    under way when it ended, so that none of them will still be answered.

    at_once: how many were under way as it began, itself included; beyond: more than were known to
    be answered; full: a limit was used up by it; soon: it took the place of one that had just been
    answered.
    """

    __slots__ = ("alone", "at_once", "beyond", "full", "number", "refused", "soon")

    def __init__(self, number: int, at_once: int, *, beyond: bool, full: bool, soon: bool) -> None:
        self.number = number
        self.at_once = at_once
        self.beyond = beyond
        self.full = full
        self.soon = soon
        self.refused: Transient | None = None
        self.alone = False


class Limiter:
    """What decides, without clock, thread or chance: whoever asks says what time it is.

    room: calls at once, inf before it was ever busy; rate: calls a second, inf before that was ever
    the limit. Both grow while nothing is refused (`room_at`, `rate_at`). answered: how many were.
    """

    def __init__(self) -> None:
        self.room = self.rate = math.inf
        self.in_flight = self.answered = 0
        self._proven = 0  # so many at once were answered
        self._begun = 0
        # the last call that had begun at the last refusal: how those end is of the time before it
        self._lowered = 0
        self._starting = (
            False  # the room is found anew: one more for each answer, as TCP does after a timeout
        )
        self._passed = -FRESH  # how many were answered at the last refusal that said nothing
        self._slowed = (
            0  # how often the rate was lowered since an answer: who answers nobody has no rate
        )
        self._answers = 0
        self._since = 0.0
        self._patience = SECONDS
        self._last = self._not_before = -math.inf
        self._recent = deque[float]()

    def room_at(self, now: float) -> float:
        return self.room + int(self._growth(now))

    def rate_at(self, now: float) -> float:
        return self.rate * 2 ** (self._growth(now) / 4)

    def _growth(self, now: float) -> float:
        """Return how far limits are tried upwards: 1 after a while of full use, 8 after twice
        that."""
        return min(min(self._answers / ANSWERS, (now - self._since) / self._patience) ** 3, 1000)

    def wait(self, now: float) -> float:
        """Seconds until one more call may begin: 0 for now, inf for not before another has
        ended."""
        if self.in_flight >= self.room_at(now):
            return math.inf
        gap = 1 / self.rate_at(now)
        if self.in_flight >= self.room:  # what is tried goes between two calls, and not beside one
            gap = max(gap, 0.5 / self._answer_rate())
        return max(0.0, self._last + gap - now, self._not_before - now)

    def begin(self, now: float) -> Turn:
        self.in_flight += 1
        self._begun += 1
        full = self.in_flight >= self.room_at(now) or now < self._last + 2 / self.rate_at(now)
        self._last = now
        beyond = self.in_flight > self._proven
        soon = (
            self.in_flight >= self.room
            and bool(self._recent)
            and now < self._recent[-1] + LATE_SECONDS
        )
        return Turn(self._begun, self.in_flight, beyond=beyond, full=full, soon=soon)

    def end(self, turn: Turn, now: float, *, answered: bool) -> None:
        self.in_flight -= 1
        turn.alone = not self.in_flight
        if not answered:
            if turn.refused is not None and turn.refused.code in BUSY:
                self._refused(turn, now, turn.refused.after)
            return
        self.answered += 1
        self._recent.append(now)
        while len(self._recent) > FEW and self._recent[0] < now - RATE_SECONDS:
            self._recent.popleft()
        if turn.number > self._lowered:
            self._slowed = 0
            self._proven = max(self._proven, turn.at_once)
            self.room = max(self.room, self._proven)
            self._answers += turn.full  # an unused limit says nothing
            self.room += self._starting and self.in_flight + 1 >= self.room

    def _refused(self, turn: Turn, now: float, after: float | None) -> None:
        if after is not None:
            self._not_before = max(self._not_before, now + min(after, PATIENCE))
        new = turn.number > self._lowered
        if turn.beyond:
            self.room = min(self.room, max(1, turn.at_once - 1))
            self._proven = min(self._proven, turn.at_once - 1)
        elif not new:
            return
        elif turn.soon and (after is None or self.answered >= self._passed + FRESH):
            self._passed = self.answered
            return
        else:
            self._proven = turn.at_once - 1
        lately = self.rate == math.inf or self._answers >= FRESH  # else they tell of the pause
        self.rate = self.rate_at(now)
        if new and self._slowed < FEW and (turn.at_once == 1 or not turn.beyond):
            self.rate = SLOWER * (self._answer_rate() if lately else self.rate)
            self._slowed += 1
        self._starting = not self._proven or (self._starting and not new)
        self._answers = 0
        self._since = now
        self._lowered = self._begun
        self._patience = SECONDS * max(1.0, min(after or 0.0, LONGEST))

    def _answer_rate(self) -> float:
        """Answers a second, of the last of them; inf where there are too few."""
        seconds = self._recent[-1] - self._recent[0] if self._recent else 0.0
        return (len(self._recent) - 1) / seconds if seconds else math.inf


class Pace:
    """Of one model, for all threads. told: called with what is now the limit, in words, when it is
    lower than ever and at most half of what was told last."""

    def __init__(self, told: Callable[[str], None] = lambda limit: None) -> None:
        self.limiter = Limiter()
        self.beyond = 0
        """Tokens that a call may be billed beyond those that were asked for."""
        self._told = told
        self._lowest = {"at once": math.inf, "a second": math.inf}
        # when somebody who waits looks again: one watches the clock for all
        self._watched = math.inf
        self._free = threading.Condition()

    @property
    def answered(self) -> int:
        return self.limiter.answered

    def has_answered(self, stop: threading.Event) -> bool:
        """Return whether the model answered anybody; the end of calls under way is waited for."""
        with self._free:
            while not self.limiter.answered and self.limiter.in_flight and not stop.is_set():
                self._free.wait(LOOK_SECONDS)
            return bool(self.limiter.answered)

    @contextmanager
    def turn(self, stop: threading.Event) -> Iterator[Turn]:
        """Wait until one more call may be made, and make it. Raises Interrupted once `stop` is
        set."""
        with self._free:
            while (wait := self.limiter.wait(now := time.monotonic())) > 0:
                if stop.is_set():
                    raise Interrupted("stopped")
                self._wait(now + min(wait, LOOK_SECONDS), now)
            turn = self.limiter.begin(now)
            if self.limiter.wait(now) < math.inf:
                self._free.notify()
        try:
            yield turn
        except BaseException:
            self._end(turn, answered=False)
            raise
        self._end(turn, answered=turn.refused is None)

    def _wait(self, due: float, now: float) -> None:
        if due >= self._watched:
            self._free.wait(LOOK_SECONDS)
            return
        self._watched = due
        self._free.wait(due - now)
        if self._watched == due:
            self._watched = math.inf

    def _end(self, turn: Turn, *, answered: bool) -> None:
        with self._free:
            self.limiter.end(turn, time.monotonic(), answered=answered)
            tell = [] if answered else list(self._news())
            self._free.notify()
        for text in tell:
            self._told(text)

    def _news(self) -> Iterator[str]:
        for what, limit in (("at once", self.limiter.room), ("a second", self.limiter.rate)):
            if limit < math.inf and limit <= self._lowest[what] / 2:
                self._lowest[what] = limit
                yield f"{limit:{',.0f' if limit >= 10 else '.2g'}} call{'s' * (limit != 1)} {what}"

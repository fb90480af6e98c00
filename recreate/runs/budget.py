"""One hard cap over every call of every role: reserved before, settled after, never crossed.

A reservation is an upper bound (a token is at least one byte of the prompt; `max_tokens` bounds the reply), so
the sum of what is settled and what is in flight cannot pass the cap. When only calls in flight stand in the
way, the next call waits for them; when what is settled stands in the way, OutOfBudget is raised.

A reservation that was never settled (the process was killed) stays charged at its bound: it may have been paid.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from recreate.api.errors import BadInput, OutOfBudget
from recreate.storage.log import Log
from recreate.api.types import Call, Record, Usage

UNITS = {"usd": "usd", "min": "minutes", "attempts": "attempts", "tokens": "tokens"}
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


class Budget(Record):
    """Caps; None is no cap. The first reached stops."""

    usd: float | None = None
    minutes: float | None = None
    attempts: int | None = None
    tokens: int | None = None

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Budget:
        """`5usd`, `30min`, `200attempts`, `2Mtokens`. Raises BadInput for anything else."""
        caps: dict[str, float] = {}
        for text in texts:
            match = re.fullmatch(r"\$?(\d+(?:\.\d+)?)\s*([kMG]?)\s*(usd|min|attempts?|tokens?)", text.strip())
            if not match:
                raise BadInput(
                    f"{text!r} is not a budget",
                    fix="write 5usd, 30min, 200attempts or 2Mtokens; repeat --budget for several",
                    code="bad-budget",
                )
            unit = match[3] if match[3] in UNITS else match[3] + "s"
            name, value = UNITS[unit], float(match[1]) * _SCALE[match[2]]
            if value <= 0:
                raise BadInput(f"a budget of {text} pays for nothing", fix="give a number above 0", code="bad-budget")
            caps[name] = min(value, caps.get(name, value))
        return cls(
            usd=caps.get("usd"),
            minutes=caps.get("minutes"),
            attempts=int(caps["attempts"]) if "attempts" in caps else None,
            tokens=int(caps["tokens"]) if "tokens" in caps else None,
        )

    @property
    def caps(self) -> dict[str, float]:
        """Those that are set: usd, minutes, attempts, tokens."""
        return {name: cap for name in UNITS.values() if (cap := getattr(self, name)) is not None}

    def texts(self) -> tuple[str, ...]:
        """As `parse` reads it."""
        units = {name: unit for unit, name in UNITS.items()}
        return tuple(f"{cap:.6f}".rstrip("0").rstrip(".") + units[name] for name, cap in self.caps.items())

    def share(self, part: float) -> Budget:
        """That part of every cap; counts are rounded down."""
        return self._of({name: cap * part for name, cap in self.caps.items()})

    def less(self, spent: Mapping[str, float]) -> Budget:
        """What is left of every cap when so much was spent, by the caps' names; 0 for nothing."""
        return self._of({name: max(0.0, cap - spent[name]) for name, cap in self.caps.items()})

    def passed(self, spent: Mapping[str, float]) -> tuple[str, ...]:
        """The caps that so much is above."""
        return tuple(name for name, cap in self.caps.items() if spent[name] > cap + 1e-9)

    @classmethod
    def _of(cls, caps: Mapping[str, float]) -> Budget:
        return cls.model_validate({k: int(cap) if k in ("attempts", "tokens") else cap for k, cap in caps.items()})

    def __str__(self) -> str:
        parts = [
            f"${self.usd:g}" if self.usd is not None else "",
            f"{self.minutes:g} min" if self.minutes is not None else "",
            f"{self.attempts} attempts" if self.attempts is not None else "",
            f"{self.tokens:,} tokens" if self.tokens is not None else "",
        ]
        return " or ".join(p for p in parts if p) or "no cap"


@dataclass(slots=True)
class _Sum:
    """A Usage that grows."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    seconds: float = 0.0

    def add(self, usage: Usage) -> None:
        self.calls += usage.calls
        self.tokens_in += usage.tokens_in
        self.tokens_out += usage.tokens_out
        self.usd += usage.usd
        self.seconds += usage.seconds

    def usage(self) -> Usage:
        return Usage(
            calls=self.calls,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            usd=self.usd,
            seconds=self.seconds,
        )


class Ledger:
    """What was reserved and spent, in memory and in ledger.jsonl. Thread-safe."""

    def __init__(self, lines: Log, budget: Budget) -> None:
        self.budget = budget
        self._spent = _Sum()
        self._by_role: dict[str, _Sum] = {}
        self.attempts = 0
        self._held: dict[str, tuple[float, int]] = {}
        self._held_usd = 0.0
        self._held_tokens = 0
        self._lines = lines
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._earlier = 0.0
        self._started = time.monotonic()
        self._seen_attempts: set[str] = set()
        self._replay()

    def _replay(self) -> None:
        for record in self._lines.read():
            match record["kind"]:
                case "reserve":
                    self._hold(record["call"], record["usd"], record["tokens"])
                case "settle":
                    self._release(record["call"])
                    self._count(record["role"], Usage.model_validate(record["usage"]))
                case "release":
                    self._release(record["call"])
                case "attempt":
                    self.attempts += 1
                    self._seen_attempts.add(record["attempt"])
                case "session":
                    self._earlier += record["seconds"]
        for usd, tokens in self._held.values():
            self._count("lost in flight", Usage(calls=1, tokens_in=tokens, usd=usd))
        self._held.clear()
        self._held_usd, self._held_tokens = 0.0, 0

    @property
    def spent(self) -> Usage:
        """What was settled, over all roles and sessions."""
        with self._lock:
            return self._spent.usage()

    @property
    def by_role(self) -> dict[str, Usage]:
        """The same by role; `lost in flight` is what a killed process had reserved."""
        with self._lock:
            return {role: total.usage() for role, total in self._by_role.items()}

    @property
    def minutes(self) -> float:
        """Wall minutes of this and all earlier sessions of the run."""
        return (self._earlier + time.monotonic() - self._started) / 60

    def reserve(self, call: Call, tokens: int, usd: float) -> None:
        """Hold `tokens` and `usd` for one call. Raises OutOfBudget; nothing is held then."""
        with self._lock:
            while True:
                self._refuse_time()
                short = self._short(tokens, usd)
                if short:
                    raise OutOfBudget(
                        f"the budget of {self.budget} does not cover the next call ({short})",
                        fix="recreate resume RUN --budget with a larger cap goes on where this stopped",
                    )
                if not self._short(self._held_tokens + tokens, self._held_usd + usd):
                    break
                self._change.wait(1.0)
            self._hold(call.id, usd, tokens)
            self._lines.append({"kind": "reserve", "call": call.id, "usd": usd, "tokens": tokens})

    def settle(self, call: Call, usage: Usage) -> None:
        with self._lock:
            self._release(call.id)
            self._count(call.role, usage)
            self._lines.append(
                {
                    "kind": "settle",
                    "call": call.id,
                    "role": call.role,
                    "phase": call.phase,
                    "usage": {
                        "calls": usage.calls,
                        "tokens_in": usage.tokens_in,
                        "tokens_out": usage.tokens_out,
                        "usd": usage.usd,
                        "seconds": usage.seconds,
                    },
                }
            )
            self._change.notify_all()

    def release(self, call: Call) -> None:
        """The call failed without a reply: nothing was spent."""
        with self._lock:
            self._release(call.id)
            self._lines.append({"kind": "release", "call": call.id})
            self._change.notify_all()

    def begin(self, attempt: str) -> None:
        """Count one attempt against the cap (once, also over resumes). Raises OutOfBudget."""
        with self._lock:
            self._refuse_time()
            if attempt in self._seen_attempts:
                return
            cap = self.budget.attempts
            if cap is not None and self.attempts >= cap:
                raise OutOfBudget(
                    f"all {cap} attempts of the budget are used",
                    fix="recreate resume RUN --budget with a larger cap goes on where this stopped",
                )
            self.attempts += 1
            self._seen_attempts.add(attempt)
            self._lines.append({"kind": "attempt", "attempt": attempt})

    def afford(self, attempts: int) -> None:
        """Do not start what cannot be brought to its end within the cap on attempts. Raises OutOfBudget."""
        cap = self.budget.attempts
        if cap is not None and self.attempts + attempts > cap:
            raise OutOfBudget(
                f"{cap - self.attempts} attempts are left; judging this candidate takes {attempts}",
                fix="recreate resume RUN --budget with a larger cap goes on where this stopped",
            )

    @contextmanager
    def unclocked(self) -> Iterator[None]:
        """While a person thinks: that time is not the run's."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._started += time.monotonic() - began

    def close(self) -> None:
        """Note how long this session ran. Call once."""
        self._lines.append({"kind": "session", "seconds": time.monotonic() - self._started})
        self._lines.close()

    def _refuse_time(self) -> None:
        cap = self.budget.minutes
        if cap is not None and self.minutes >= cap:
            raise OutOfBudget(
                f"the {cap:g} minutes of the budget are over",
                fix="recreate resume RUN --budget with a larger cap goes on where this stopped",
            )

    def _short(self, tokens: int, usd: float) -> str:
        """What is lacking when so much more were spent; '' for nothing."""
        spent = self._spent
        if self.budget.usd is not None and spent.usd + usd > self.budget.usd + 1e-12:
            return f"${spent.usd:.4f} spent, up to ${usd:.4f} more needed"
        total = spent.tokens_in + spent.tokens_out
        if self.budget.tokens is not None and total + tokens > self.budget.tokens:
            return f"{total:,} tokens spent, up to {tokens:,} more needed"
        return ""

    def _hold(self, call: str, usd: float, tokens: int) -> None:
        self._release(call)
        self._held[call] = (usd, tokens)
        self._held_usd += usd
        self._held_tokens += tokens

    def _release(self, call: str) -> None:
        usd, tokens = self._held.pop(call, (0.0, 0))
        self._held_usd -= usd
        self._held_tokens -= tokens

    def _count(self, role: str, usage: Usage) -> None:
        self._spent.add(usage)
        self._by_role.setdefault(role, _Sum()).add(usage)

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

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


ALL = ""
_ADDED = ("calls", "tokens_in", "tokens_out", "usd", "seconds")
LOST = "lost in flight"
"""The role of what was reserved and never settled."""


@dataclass
class Spend:
    """What a ledger's lines add up to: the cap is held under these figures, and every report shows them.

    minutes  of the sessions that ended
    begun    the attempts that were counted
    held     (usd, tokens) reserved for each call in flight
    """

    minutes: float = 0.0
    begun: set[str] = field(default_factory=set)
    held: dict[str, tuple[float, int]] = field(default_factory=dict)
    _sums: dict[str, dict[str, float]] = field(default_factory=lambda: {ALL: {}})  # role -> Usage's fields

    @property
    def total(self) -> Usage:
        return Usage.model_validate(self._sums[ALL])

    @property
    def by_role(self) -> dict[str, Usage]:
        return {role: Usage.model_validate(sums) for role, sums in self._sums.items() if role != ALL}

    @property
    def usd(self) -> float:
        return self._sums[ALL].get("usd", 0.0)

    @property
    def tokens(self) -> float:
        return self._sums[ALL].get("tokens_in", 0) + self._sums[ALL].get("tokens_out", 0)

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]]) -> Spend:
        """Of a whole ledger. What is still held was lost with its process: it may have been paid, so it is charged."""
        spend = cls()
        for line in lines:
            spend.take(line)
        for call in list(spend.held):
            spend._lose(call)
        return spend

    def take(self, line: Mapping[str, Any]) -> None:
        """One line more."""
        match line["kind"]:
            case "reserve":
                self._lose(line["call"])  # asked again after a kill: the first time may have been paid as well
                self.held[line["call"]] = line["usd"], line["tokens"]
            case "settle":
                self.held.pop(line["call"], None)
                self._add(line["role"], line["usage"])
            case "release":
                self.held.pop(line["call"], None)
            case "attempt":
                self.begun.add(line["attempt"])
            case "session":
                self.minutes += line["seconds"] / 60

    @property
    def attempts(self) -> int:
        return len(self.begun)

    def record(self) -> dict[str, Any]:
        """The object that `--json` prints as `spend`."""
        return {**_row(self.total), "by_role": {role: _row(u) for role, u in sorted(self.by_role.items())}}

    def _add(self, role: str, usage: Mapping[str, float]) -> None:
        """Plain sums, since every call of a run is added here while the lock is held."""
        for sums in (self._sums[ALL], self._sums.setdefault(role, {})):
            for name, value in usage.items():
                if name in _ADDED:
                    sums[name] = sums.get(name, 0) + value

    def _lose(self, call: str) -> None:
        if call in self.held:
            usd, tokens = self.held.pop(call)
            self._add(LOST, {"calls": 1, "tokens_in": tokens, "usd": usd})


def _row(usage: Usage) -> dict[str, Any]:
    return {
        "usd": round(usage.usd, 6),
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "calls": usage.calls,
    }


class Ledger:
    """What was reserved and spent, in memory and in ledger.jsonl. Thread-safe."""

    def __init__(self, lines: Log, budget: Budget) -> None:
        self.budget = budget
        self._spend = Spend.of(lines.read())
        self._lines = lines
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._started = time.monotonic()

    @property
    def spent(self) -> Usage:
        """What was settled or lost, over all roles and sessions."""
        with self._lock:
            return self._spend.total

    @property
    def by_role(self) -> dict[str, Usage]:
        """The same by role; `lost in flight` is what a killed process had reserved."""
        with self._lock:
            return self._spend.by_role

    @property
    def attempts(self) -> int:
        """How many were begun, over all sessions."""
        return self._spend.attempts

    @property
    def minutes(self) -> float:
        """Wall minutes of this and all earlier sessions of the run."""
        return self._spend.minutes + (time.monotonic() - self._started) / 60

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
                held = self._spend.held.values()
                if not held or not self._short(tokens + sum(t for _, t in held), usd + sum(u for u, _ in held)):
                    break
                self._change.wait(1.0)
            self._write(kind="reserve", call=call.id, usd=usd, tokens=tokens)

    def settle(self, call: Call, usage: Usage) -> None:
        """The call was answered, and cost this."""
        paid = {name: getattr(usage, name) for name in _ADDED}
        with self._lock:
            self._write(kind="settle", call=call.id, role=call.role, phase=call.phase, usage=paid)
            self._change.notify_all()

    def release(self, call: Call) -> None:
        """The call failed without a reply: nothing was spent."""
        with self._lock:
            self._write(kind="release", call=call.id)
            self._change.notify_all()

    def begin(self, attempt: str) -> None:
        """Count one attempt against the cap (once, also over resumes). Raises OutOfBudget."""
        with self._lock:
            self._refuse_time()
            if attempt in self._spend.begun:
                return
            cap = self.budget.attempts
            if cap is not None and self.attempts >= cap:
                raise OutOfBudget(
                    f"all {cap} attempts of the budget are used",
                    fix="recreate resume RUN --budget with a larger cap goes on where this stopped",
                )
            self._write(kind="attempt", attempt=attempt)

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
        spent, budget = self._spend, self.budget
        if budget.usd is not None and spent.usd + usd > budget.usd + 1e-12:
            return f"${spent.usd:.4f} spent, up to ${usd:.4f} more needed"
        if budget.tokens is not None and spent.tokens + tokens > budget.tokens:
            return f"{spent.tokens:,} tokens spent, up to {tokens:,} more needed"
        return ""

    def _write(self, **line: Any) -> None:
        self._spend.take(line)
        self._lines.append(line)

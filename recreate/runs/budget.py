"""One hard cap over every call of every role: reserved before, settled after, never crossed.

A reservation is an upper bound (a token is at least one byte of the prompt; `max_tokens` bounds the
reply), so the sum of what is settled and what is in flight cannot pass the cap. When only calls in
flight stand in the way, the next call waits for them; when what is settled stands in the way,
OutOfBudget is raised.

A reservation that was never settled (the process was killed, the answer was cut off) stays charged
at its bound, whatever becomes of later calls with its id: it may have been paid.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from recreate.api.errors import BadInput, Fault, OutOfBudget
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Call, Record, Reply, Usage
from recreate.storage.log import Fields, Log, fits

UNITS = {"usd": "usd", "min": "minutes", "attempts": "attempts", "tokens": "tokens"}
MOST = 1e15
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


class Budget(Record):
    """Caps; None is no cap. The first reached stops."""

    usd: float | None = None
    minutes: float | None = None
    attempts: int | None = None
    tokens: int | None = None

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Budget:
        """Return the caps that texts such as `5usd`, `30min`, `200attempts` and `2Mtokens` say.
        Raises BadInput for anything else."""
        caps: dict[str, float] = {}
        for text in texts:
            name, value = _parse_cap(text)
            caps[name] = min(value, caps.get(name, value))
        return cls.of(caps)

    @classmethod
    def of(cls, caps: Mapping[str, float]) -> Budget:
        """Return the budget of these caps; counts are rounded down."""
        counts = ("attempts", "tokens")
        return cls.model_validate({k: int(v) if k in counts else v for k, v in caps.items()})

    @property
    def caps(self) -> dict[str, float]:
        """Those that are set: usd, minutes, attempts, tokens."""
        return {name: cap for name in UNITS.values() if (cap := getattr(self, name)) is not None}

    def texts(self) -> tuple[str, ...]:
        """Return the caps as `parse` reads them."""
        units = {name: unit for unit, name in UNITS.items()}
        return tuple(
            f"{cap:.6f}".rstrip("0").rstrip(".") + units[name] for name, cap in self.caps.items()
        )

    def __str__(self) -> str:
        shown = {
            "usd": "${:g}".format,
            "minutes": "{:g} min".format,
            "attempts": "{} attempts".format,
            "tokens": "{:,} tokens".format,
        }
        return " or ".join(shown[name](cap) for name, cap in self.caps.items()) or "no cap"


def _parse_cap(text: str) -> tuple[str, float]:
    """Return the cap that a text such as `5usd` sets, and how high. Raises BadInput."""
    match = re.fullmatch(
        r"\$?(\d+(?:\.\d+)?)\s*([kMG]?)\s*(usd|min|attempts?|tokens?)", text.strip()
    )
    why = f"{text!r} is not a budget"
    fix = "write 5usd, 30min, 200attempts or 2Mtokens"
    if match:
        value = float(match[1]) * _SCALE[match[2]]
        if 0 < value <= MOST:
            return UNITS.get(match[3]) or UNITS[match[3] + "s"], value
        why = f"a budget of {text} pays for nothing"
        fix = "give a number above 0"
        if value > MOST:
            why = "that budget is no cap: nothing costs so much"
            fix = "leave it out"
    raise BadInput(why, fix=fix, code="bad-budget")


CELL_BUDGET = "cell-budget"
"""The code of an OutOfBudget that ends a part of a run, and not all of it."""

ALL = ""
_ALWAYS = ("calls", "tokens_in", "tokens_out", "usd", "seconds")
_SELDOM = ("tokens_cached", "tokens_cache_written")
_ADDED = frozenset([*_ALWAYS, *_SELDOM])
NOTE_SECONDS = 5.0
"""So often the time is written down when nothing else is: what a kill may take off the minutes of a
session."""
LOST = "lost in flight"
"""The role of what was reserved and never settled."""

_ANY = {"session": int | None, "seconds": float | None}
_OF_CALL = {**_ANY, "call": str}
_USAGE = {
    name: float | None if name in ("usd", "seconds") else int | None
    for name in (*_ALWAYS, *_SELDOM)
}
LINES: Fields = {
    "open": {**_ANY, "replayed": bool | None},
    "clock": _ANY,
    "session": _ANY,
    "reserve": {**_OF_CALL, "usd": float, "tokens": int},
    "settle": {
        **_OF_CALL,
        "role": str,
        "usage": _USAGE,
        "doubtful": bool | None,
        "from_cache": bool | None,
        "near": int | None,
    },
    "release": _OF_CALL,
    "lost": {**_OF_CALL, "usd": float | None, "tokens": int | None},
    "less": {**_OF_CALL, "usd": float, "tokens": int},
    "attempt": {**_ANY, "attempt": str},
}
"""What lines of these kinds are read for. One without it is passed over like one whose checksum is
wrong."""

Held = tuple[int, str]
"""A reservation: the session that made it (0 where nobody knows), and its call."""


@dataclass
class Spend:
    """What a ledger's lines add up to: the cap is held under these figures, and every report shows
    them.

    begun     the attempts that were counted
    held      (usd, tokens) reserved for each call in flight
    others    the same of other sessions' calls: charged, for nobody may be left to settle them,
              until somebody does
    doubtful  replies whose token counts could not be, charged as they were reserved
    cached    replies that an earlier run had paid for: nothing is charged for them
    near      (calls, tokens) of those that had been made for another question: what was not paid
              for
    tapes     the sessions all of whose replies came from a recording: the cap counts what was paid
              then, and nothing is paid now
    """

    begun: set[str] = field(default_factory=set)
    held: dict[Held, tuple[float, int]] = field(default_factory=dict)
    others: dict[Held, tuple[float, int]] = field(default_factory=dict)
    doubtful: int = 0
    cached: int = 0
    near: tuple[int, int] = (0, 0)
    tapes: set[int] = field(default_factory=set)
    # role -> usd that was paid when it was recorded
    _then: dict[str, float] = field(default_factory=dict)
    # session -> how long it has run, as last noted
    _seconds: dict[int, float] = field(default_factory=dict)
    # role -> Usage's fields
    _sums: dict[str, dict[str, float]] = field(default_factory=lambda: {ALL: {}})

    @property
    def minutes(self) -> float:
        """Of all sessions, those that were killed up to the last that was heard of them."""
        return sum(self._seconds.values()) / 60

    @property
    def sessions(self) -> int:
        """The highest number of a session so far."""
        return max(self._seconds, default=0)

    @property
    def total(self) -> Usage:
        return self._usage_of(ALL)

    @property
    def by_role(self) -> dict[str, Usage]:
        roles = (role for role, sums in self._sums.items() if role != ALL and sums.get("calls"))
        return {role: self._usage_of(role) for role in roles}

    def _usage_of(self, role: str) -> Usage:
        sums = self._sums[role]
        then = self._then.get(role)
        return Usage.model_validate(
            sums if then is None else {**sums, "usd": max(0.0, round(sums["usd"] - then, 9))}
        )

    @property
    def lost(self) -> str:
        """Return what is held for calls whose end nobody knows, in words; '' for nothing."""
        lost = self.by_role.get(LOST)
        if lost is None:
            return ""
        much = f"${lost.usd:.4f}" if lost.usd else f"{lost.tokens_in:,} tokens"
        many = f"{lost.calls} call{'s' * (lost.calls != 1)}"
        return f"{much} of it is held for {many} lost in flight"

    @property
    def unpaid(self) -> str:
        """What was answered and not paid for, in sentences after others; '' for nothing."""
        then, now, (many, tokens) = self._then.get(ALL, 0.0), self.total.usd, self.near
        replayed = f"${then:.4f} of it was paid when it was recorded, ${now:.4f} now."
        if not now:
            replayed = f"nothing was paid now, ${then:.4f} when it was recorded."
        sentences = (
            f" {self.lost}: the most that may be billed." * bool(self.lost),
            f" Replayed: {replayed}" * bool(self.tapes),
            f" {self.cached} calls were cached, which cost nothing." * bool(self.cached),
            f" Of these {many} had the reply to a near question, {tokens} tokens saved."
            * bool(many),
        )
        return "".join(sentences)

    @property
    def usd(self) -> float:
        """As the cap counts it: of a replay what was paid then."""
        return self._sums[ALL].get("usd", 0.0)

    @property
    def tokens(self) -> float:
        return self._sums[ALL].get("tokens_in", 0) + self._sums[ALL].get("tokens_out", 0)

    @classmethod
    def of(cls, lines: Iterable[JsonMap]) -> Spend:
        """Return the spending of a whole ledger. What is still held was lost with its process: it
        may have been paid, so it is charged."""
        spend = cls()
        spend.take_all(lines)
        return spend

    def take_all(self, lines: Iterable[JsonMap]) -> None:
        """Lines of other sessions: what they hold is charged until they settle it, for they may
        have been killed."""
        for line in _fit(lines):
            self.take(line)
            if line["kind"] == "reserve":
                self.others[_held_key(line)] = self.held[_held_key(line)]
                self._lose(_held_key(line))

    def take(self, line: JsonMap) -> None:
        """Count one line more."""
        session = line.get("session", 0)
        if isinstance(line.get("seconds"), int | float):
            self._seconds[session] = line["seconds"]
        match line["kind"]:
            case "reserve":
                # asked again with no word of the first time: that may have been paid as well
                self._lose(_held_key(line))
                self.others.pop(_held_key(line), None)
                self.held[_held_key(line)] = line["usd"], line["tokens"]
            case "settle":
                self._release(_held_key(line))
                self._add(session, line["role"], line["usage"])
                self.doubtful += line.get("doubtful", False)
                self.cached += line.get("from_cache", False)
                if (saved := line.get("near")) is not None:
                    self.near = self.near[0] + 1, self.near[1] + saved
            case "open":
                self.tapes |= {session} if line.get("replayed") else set()
            case "release":
                self._release(_held_key(line))
            case "lost":
                if (held := self.others.get(_held_key(line))) is not None:
                    self._release(_held_key(line))  # all of it had been taken for lost
                    self.held[_held_key(line)] = held
                self._lose(_held_key(line), line)
            case "less":
                self._charge_lost(session, 0, -line["tokens"], -line["usd"])
            case "attempt":
                self.begun.add(line["attempt"])

    @property
    def attempts(self) -> int:
        return len(self.begun)

    def record(self) -> JsonDict:
        """Return the object that `--json` prints as `spend`."""
        roles = {role: _row(u) for role, u in sorted(self.by_role.items())}
        record = {
            **_row(self.total),
            "by_role": roles,
            "minutes": round(self.minutes, 3),
            "doubtful": self.doubtful,
        }
        record |= {"cached": self.cached} if self.cached else {}
        record |= {"near": near_record(self.near)} if self.near[0] else {}
        return record | (
            {"replayed": {"usd": round(self._then.get(ALL, 0.0), 6)}} if self.tapes else {}
        )

    def _add(self, session: int, role: str, usage: Mapping[str, float]) -> None:
        """Plain sums, since every call of a run is added here while the lock is held."""
        usd = usage.get("usd")
        if session in self.tapes and isinstance(usd, int | float):
            for each in (ALL, role):
                self._then[each] = self._then.get(each, 0.0) + usd
        for sums in (self._sums[ALL], self._sums.setdefault(role, {})):
            for name, value in usage.items():
                if name in _ADDED and isinstance(value, int | float):
                    sums[name] = sums.get(name, 0) + value

    def _lose(self, which: Held, told: JsonMap = MappingProxyType({})) -> None:
        """A call brought no answer. told: what it cost where that is known: never more than was
        reserved."""
        if which in self.held:
            usd, tokens = self.held.pop(which)
            usd = min(usd, told.get("usd", usd))
            tokens = min(tokens, told.get("tokens", tokens))
            self._charge_lost(which[0], 1, tokens, usd)

    def _charge_lost(self, session: int, calls: int, tokens: int, usd: float) -> None:
        self._add(session, LOST, {"calls": calls, "tokens_in": tokens, "usd": usd})

    def _release(self, which: Held) -> None:
        """End a reservation; one of another session had been taken for lost."""
        self.held.pop(which, None)
        if which in self.others:
            usd, tokens = self.others.pop(which)
            self._charge_lost(which[0], -1, -tokens, -usd)


def near_record(near: tuple[int, int]) -> dict[str, int]:
    """Return what `--json` says of calls that had the reply to a near question."""
    return {"calls": near[0], "tokens_saved": near[1]}


def _fit(lines: Iterable[JsonMap]) -> Iterator[JsonMap]:
    """Yield those that a ledger writes."""
    return (line for line in lines if fits(line, LINES) and line["kind"] in LINES)


def _held_key(line: JsonMap) -> Held:
    return line.get("session", 0), line["call"]


def unwritten(ledger: Iterable[JsonMap], journal: Iterable[JsonMap]) -> list[JsonDict]:
    """Return the lines that a ledger lacks for the replies and attempts that its run's journal has.

    A killed process may owe the last ones; a ledger that was damaged or lost, all. What was lost in
    flight with it, and how long the sessions were, nobody knows then.
    """
    settled = Counter[str]()
    reserved = dict[str, int]()
    begun = set[str]()
    for line in _fit(ledger):
        match line["kind"]:
            case "reserve":
                reserved[line["call"]] = line.get("session", 0)
            case "settle":
                settled[line["call"]] += 1
            case "attempt":
                begun.add(line["attempt"])
    found = []
    for record in journal:
        if record["kind"] in ("experience", "aside"):
            if record.get("reused"):  # another run paid for it
                continue
            if (key := record.get("key", record["attempt"])) not in begun:
                begun.add(key)
                found.append({"kind": "attempt", "session": 0, "attempt": key})
        elif record["kind"] == "reply":
            settled[call := record["call"]] -= 1
            if settled[call] < 0:
                try:
                    reply = Reply.model_validate(record["reply"])
                except ValidationError:
                    continue
                line = {"kind": "settle", "session": reserved.get(call, 0), "call": call}
                line |= {"role": record.get("role", "agent"), "phase": ""}
                found.append(
                    line
                    | _charged(
                        Usage.of(reply), from_cache=reply.from_cache, near=reply.near is not None
                    )
                )
    return found


def _charged(usage: Usage, *, from_cache: bool, near: bool) -> JsonDict:
    """Return what a settled call is charged, as its line says it. near: the tokens that a near
    question's reply saved."""
    if from_cache:
        saved = {"near": usage.tokens_in + usage.tokens_out} if near else {}
        return {"usage": {**dict.fromkeys(_ALWAYS, 0), "calls": 1}, "from_cache": True, **saved}
    paid = {name: getattr(usage, name) for name in _ALWAYS}
    return {"usage": paid | {name: value for name in _SELDOM if (value := getattr(usage, name))}}


def _row(usage: Usage) -> JsonDict:
    return {
        "usd": round(usage.usd, 6),
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "calls": usage.calls,
    }


class Ledger:
    """What was reserved and spent, in memory and in ledger.jsonl: one cap over threads, sessions
    and processes.

    Any number of processes may have the same file open, each with a Ledger of its own: each line is
    written, and each reservation decided, with the file taken and read to its end. What another
    process has in flight counts as spent.
    """

    def __init__(self, lines: Log, budget: Budget, *, replayed: bool = False) -> None:
        """replayed: all replies come from a recording, as the file then says."""
        self.budget = budget
        self._spend = Spend()
        self._lines = lines
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._started = time.monotonic()
        self._paused: float | None = None
        self._closed = threading.Event()
        self._shares: dict[str, _Share] = {}
        self._read = 0
        self._file = _Taken(self)
        with self._file:
            self.session = self._spend.sessions + 1
            self._write("open", **({"replayed": True} if replayed else {}))
        threading.Thread(
            target=_note_time, args=(weakref.ref(self), self._closed), name="ledger", daemon=True
        ).start()

    @property
    def spent(self) -> Usage:
        """What was settled or lost, over all roles and sessions."""
        with self._lock:
            return self._spend.total

    @property
    def by_role(self) -> dict[str, Usage]:
        """The same by role; `lost in flight` is what was reserved for calls whose end nobody
        knows."""
        with self._lock:
            return self._spend.by_role

    @property
    def lost(self) -> str:
        """Return what is held for calls whose end nobody knows, in words; '' for nothing."""
        with self._lock:
            return self._spend.lost

    @property
    def near(self) -> tuple[int, int]:
        """(calls that had the reply to a near question, tokens that this saved), over all
        sessions."""
        with self._lock:
            return self._spend.near

    @property
    def attempts(self) -> int:
        """How many were begun, over all sessions."""
        return self._spend.attempts

    @property
    def minutes(self) -> float:
        """Wall minutes of this and all earlier sessions of the run, killed ones included."""
        with self._lock:
            return self._spend.minutes + (self._seconds() - self._noted) / 60

    def cap(self, attempts: Iterable[str], budget: Budget, name: str) -> None:
        """Give these attempts, all together, a cap of their own below that of the run: on usd,
        tokens and attempts.

        What they used in earlier sessions counts. Beyond it `reserve` and `begin` raise OutOfBudget
        whose code is `cell-budget`; name: what it says has reached it.
        """
        with self._lock, self._file:
            share = _Share(name, budget, Spend())
            keys = dict.fromkeys(attempts, share)
            share.spend.take_all(line for line in self._lines.read() if _attempt_of(line) in keys)
            self._shares |= keys

    def reserve(self, call: Call, tokens: int, usd: float) -> None:
        """Hold `tokens` and `usd` for one call. Raises OutOfBudget; nothing is held then."""
        with self._lock:
            while not self._reserved(call, tokens, usd):
                self._change.wait(1.0)

    def _reserved(self, call: Call, tokens: int, usd: float) -> bool:
        with self._file:
            self._refuse_time()
            for share in self._caps(call.attempt):
                if short := share.short(tokens, usd):
                    raise share.reached(f"does not cover the next call ({short})")
                held = share.spend.held.values()
                if held and share.short(
                    tokens + sum(t for _, t in held), usd + sum(u for u, _ in held)
                ):
                    return False
            self._write("reserve", call=call.id, usd=usd, tokens=tokens)
            return True

    def settle(
        self,
        call: Call,
        usage: Usage,
        *,
        doubtful: bool = False,
        from_cache: bool = False,
        near: bool = False,
    ) -> None:
        """Charge what an answered call cost. It is never more than was reserved: `Calls` sees to
        it.

        doubtful: the endpoint told counts that cannot be. from_cache: it cost nothing, whatever
        `usage` says of then. near: it was the reply to a near question.
        """
        told = {"doubtful": True} if doubtful else {}
        told |= _charged(usage, from_cache=from_cache, near=near)
        self._end("settle", call, role=call.role, phase=call.phase, **told)

    def drop(self, call: Call, *, unspent: bool, cost: tuple[float, int] | None = None) -> None:
        """End a call that brought no reply. unspent: certainly nobody worked on it; else it stays
        charged as reserved, or with its cost (usd, tokens) where that is known."""
        told = {} if cost is None or unspent else {"usd": cost[0], "tokens": cost[1]}
        self._end("release" if unspent else "lost", call, **told)

    def lessen(self, call: Call, usd: float, tokens: int) -> None:
        """Take off what was charged for tries that were lost: so much less can have been billed."""
        self._end("less", call, usd=usd, tokens=tokens)

    def begin(self, attempt: str) -> None:
        """Count one attempt against the cap (once, also over resumes). Raises OutOfBudget."""
        with self._lock, self._file:
            self._refuse_time()
            if attempt in self._spend.begun:
                return
            for share in self._caps(attempt):
                if (cap := share.budget.attempts) is not None and share.spend.attempts >= cap:
                    raise share.reached("is used up")
            self._write("attempt", attempt=attempt)

    def put_back(self, journal: Iterable[JsonMap]) -> tuple[int, int]:
        """Write what the ledger lacks of its run's journal: how many calls, how many attempts."""
        with self._lock, self._file:
            lines = unwritten(self._lines.read(), journal)
            if self.session in self._spend.tapes:
                lines = [{**line, "session": line["session"] or self.session} for line in lines]
            if lines:
                self._lines.append(*lines)
                self._read = self._lines.end
                self._spend.take_all(lines)
        attempts = sum(line["kind"] == "attempt" for line in lines)
        return len(lines) - attempts, attempts

    def spent_by(self, attempts: Collection[str]) -> dict[str, Usage]:
        """Return what the calls of these attempts took in all sessions, by role."""
        with self._lock, self._file:
            return Spend.of(x for x in self._lines.read() if _attempt_of(x) in attempts).by_role

    def record(self) -> JsonDict:
        """Return the object that `--json` prints as `spend`, as it stands now."""
        with self._lock:
            return self._spend.record()

    def has_begun(self, attempt: str) -> bool:
        """Whether an attempt is counted already, in this session or an earlier one."""
        return attempt in self._spend.begun

    def afford(self, attempts: int) -> None:
        """Do not start what cannot be brought to its end within the cap on attempts. Raises
        OutOfBudget."""
        cap = self.budget.attempts
        if cap is not None and self.attempts + attempts > cap:
            raise OutOfBudget(
                f"{cap - self.attempts} attempts are left; judging this candidate takes {attempts}",
                fix="recreate resume RUN --budget with a larger cap goes on where this stopped",
            )

    @contextmanager
    def unclocked(self) -> Iterator[None]:
        """While a person thinks: that time is not the run's."""
        self._paused = began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._started += time.monotonic() - began
                self._paused = None

    def note_time(self) -> None:
        """Write down how long this session has run, so that a kill cannot take it back."""
        with self._lock, self._file:
            if not self._closed.is_set():
                self._write("clock")

    def close(self) -> None:
        """Note how long this session ran. Safe to call twice."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            try:
                with self._file:
                    self._write("session")
            finally:
                self._lines.close()

    def _end(self, kind: str, call: Call, **fields: Any) -> None:
        with self._lock:
            try:
                with self._file:
                    self._write(kind, call=call.id, **fields)
            finally:
                self._change.notify_all()

    def _seconds(self) -> float:
        return (time.monotonic() if self._paused is None else self._paused) - self._started

    def _refuse_time(self) -> None:
        cap = self.budget.minutes
        if cap is not None and self.minutes >= cap:
            raise OutOfBudget(
                f"the {cap:g} minutes of the budget are over",
                fix="recreate resume RUN --budget with a larger cap goes on where this stopped",
            )

    def _caps(self, attempt: str) -> Iterator[_Share]:
        """Yield the caps that an attempt is under: the run's, and its own if it has one."""
        yield _Share("", self.budget, self._spend)
        if (share := self._shares.get(attempt)) is not None:
            yield share

    def _write(self, kind: str, **fields: Any) -> None:
        seconds = round(self._seconds(), 3)
        line = {"kind": kind, "session": self.session, "seconds": seconds, **fields}
        self._lines.append(line)
        self._read = self._lines.end
        self._spend.take(line)
        self._noted = seconds
        if self._shares and (share := self._shares.get(_attempt_of(line))) is not None:
            share.spend.take(line)


class _Share(NamedTuple):
    """A cap, and what was spent under it. name: of a part of the run; '' is the whole."""

    name: str
    budget: Budget
    spend: Spend

    def short(self, tokens: int, usd: float) -> str:
        """Return what is lacking when so much more were spent; '' for nothing."""
        spent = self.spend
        budget = self.budget
        if budget.usd is not None and spent.usd + usd > budget.usd + 1e-12:
            return f"${spent.usd:.4f} spent, up to ${usd:.4f} more needed" + self._lost
        if budget.tokens is not None and spent.tokens + tokens > budget.tokens:
            return f"{spent.tokens:,} tokens spent, up to {tokens:,} more needed" + self._lost
        return ""

    @property
    def _lost(self) -> str:
        return f"; {self.spend.lost}" if self.spend.lost else ""

    def reached(self, what: str) -> OutOfBudget:
        if self.name:
            fix = "the same command with a larger --cell-budget goes on where this stopped"
            return OutOfBudget(
                f"the budget of {self.budget} of {self.name} {what}", fix=fix, code=CELL_BUDGET
            )
        fix = "recreate resume RUN --budget with a larger cap goes on where this stopped"
        return OutOfBudget(f"the budget of {self.budget} {what}", fix=fix)


def _attempt_of(line: JsonMap) -> str:
    """Return the attempt that a ledger's line is of; '' for none."""
    call = str(line.get("call", ""))
    return call.partition("/")[2].partition("/")[0] if call else str(line.get("attempt", ""))


class _Taken:
    """While the block runs, the file is this ledger's, and all that others wrote is in its
    figures."""

    __slots__ = ("ledger",)

    def __init__(self, ledger: Ledger) -> None:
        # or a ledger that nobody has would note its time for ever
        self.ledger = weakref.proxy(ledger)

    def __enter__(self) -> None:
        ledger = self.ledger
        if records := ledger._lines.take(ledger._read):
            try:
                ledger._spend.take_all(records)
            except BaseException:
                ledger._lines.let_go()
                raise
        ledger._read = ledger._lines.end

    def __exit__(self, *_: object) -> None:
        self.ledger._lines.let_go()


def _note_time(ledger: weakref.ref[Ledger], closed: threading.Event) -> None:
    """Until the ledger is closed or forgotten; a full disk is for those to tell who need it."""
    while not closed.wait(NOTE_SECONDS):
        if (open_ledger := ledger()) is None:
            return
        with contextlib.suppress(Fault):
            open_ledger.note_time()
        del open_ledger

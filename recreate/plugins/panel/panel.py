"""A run while it runs, as one live panel below the lines of its events.

The panel is a pure function of what is known, the time and the width (`panel`); rich draws it twice
a second.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recreate.api.shapes import JsonMap
from recreate.api.types import Usage
from recreate.cli.screen import Screen, tell_usage
from recreate.cli.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from recreate.builder.estimate import Course

SHOWN = 6
"""Jobs that the panel shows; of more it says how many."""
NARROWEST = 20
RULE = 40
LOOKS = 2
"""How often a second the panel is drawn: often enough to be believed, seldom enough to be read."""


@dataclass
class InFlight:
    """An attempt in flight. began, since: seconds of a clock that only goes forward."""

    task: str
    began: float
    since: float
    doing: str = "step 1"


@dataclass
class CellProgress:
    """A cell of a table that is being measured: attempts that ended, those that passed, the scores'
    sum and count."""

    total: int
    done: int = 0
    passed: int = 0
    scored: int = 0
    sum: float = 0.0
    usd: float = 0.0

    def take(self, score: Any) -> None:
        """One attempt more."""
        self.done += 1
        self.passed += score.passed
        self.usd += score.usage.usd
        if score.score is not None:
            self.scored += 1
            self.sum += score.score

    def line(self, name: str, room: int) -> str:
        """The cell in a line, its name cut to `room` cells."""
        mean = f"{self.sum / self.scored:.2f}" if self.scored else "  - "
        return (
            f"  {cell_cut(name, room):<{room}}  {self.done:>4} of {self.total:<4}  {mean} "
            f" ${self.usd:.3f}"
        )


@dataclass
class Progressing:
    """What events have told so far.

    total     attempts of this phase, 0 where nobody knows
    course    of a build what it does, as far as it goes its usual way; over: how many of its rounds
              are
    stage     where in a round: '' before the first | train | proposal | candidate
    scores    of this phase, None: excluded
    seconds   how long each attempt took that was made now; one that was read back is no measure.
              calls: of all of them
    proposals how long each of the build's took
    means     what the agent before it scored in each phase
    cells     of a table that has several, by name
    """

    phase: str = "starting"
    total: int = 0
    done: int = 0
    passed: int = 0
    since: float = 0.0
    at_once: int = 1
    scores: dict[tuple[str, int], float | None] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    calls: int = 0
    jobs: dict[str, InFlight] = field(default_factory=dict)
    course: Course | None = None
    over: int = 0
    stage: str = ""
    proposals: list[float] = field(default_factory=list)
    proposing: float = 0.0
    means: dict[str, float] = field(default_factory=dict)
    cells: dict[str, CellProgress] = field(default_factory=dict)

    @property
    def judging(self) -> bool:
        """Whether the attempts are a candidate's."""
        return self.stage == "candidate"

    def take(self, event: str, facts: JsonMap, now: float) -> None:
        """Learn from one event. Raises KeyError for one without its facts."""
        match event:
            case "build":
                self.course = facts["course"]
                self.over = facts["over"]
            case "round":
                self.over = facts["round"] - 1
                self.stage = "train"
            case "gather" if self.stage != "confirming":
                self.begin(facts["phase"], now, facts["total"])
                self.cells = _begin_cells(facts.get("cells", {}))
            case "candidate" | "nothing":
                if self.stage == "proposal":
                    self.proposals.append(now - self.proposing)
                self.stage = "candidate"
            case "revision":  # how many attempts come after these is not known
                self.stage = "judged"
            case "confirm":  # by two agents, counted together
                self.stage = "confirming"
                self.begin("validation", now, facts["total"])
            case "propose" | "observe":
                self._begin_proposal(event, facts, now)
            case "begin":
                self.jobs[facts["attempt"]] = InFlight(facts["task"], now, now)
            case "step" | "grading" if facts["attempt"] in self.jobs:
                job = self.jobs[facts["attempt"]]
                job.since = now
                job.doing = "grading" if event == "grading" else f"step {facts['step'].step + 2}"
            case "ended" if facts["attempt"] in self.jobs:
                self.seconds.append(now - self.jobs.pop(facts["attempt"]).began)
            case "score":
                score = facts["score"]
                self.done += 1
                self.passed += score.passed
                if (cell := self.cells.get(facts.get("cell", ""))) is not None:
                    cell.take(score)
                else:
                    self.scores[score.task, score.repeat] = score.score
                self.calls += 0 if score.reused else score.usage.calls
                if not self.judging and score.score is not None and not self.cells:
                    told = [s for s in self.scores.values() if s is not None]
                    self.means[self.phase] = math.fsum(told) / len(told)

    def _begin_proposal(self, event: str, facts: JsonMap, now: float) -> None:
        if self.stage != "proposal":
            self.stage = "proposal"
            self.proposing = now
        does = "studying" if event == "propose" else "learning from"
        self.begin(f"{does} {facts['experiences']} experiences", now)

    def begin(self, phase: str, now: float, total: int = 0) -> None:
        self.phase = phase
        self.total = total
        self.done = 0
        self.passed = 0
        self.since = now
        self.scores = {}
        self.jobs = {}

    def ahead(self) -> tuple[int, int] | None:
        """(attempts, proposals) that come after this phase; None where nobody knows."""
        if self.course is None:
            return None
        c = self.course
        later = self.course.rounds - self.over - (self.stage != "")
        rest = later * (c.batch + c.proposing + c.judged) + (c.first - c.batch) * (
            later == c.rounds > 0
        )
        rest += c.confirming * (c.rounds > 0 and self.stage != "confirming")
        if self.phase == "starting":
            rest += c.judged
        if self.stage == "train":
            return rest + c.proposing + c.judged, later + 1
        return rest + c.judged * (self.stage == "proposal"), later


def _begin_cells(totals: Mapping[str, int]) -> dict[str, CellProgress]:
    """Return the cells of a table that has several."""
    several = totals if len(totals) > 1 else {}
    return {name: CellProgress(total) for name, total in several.items()}


def panel(
    known: Progressing,
    by_role: Mapping[str, Usage],
    minutes: float,
    cap: str,
    now: float,
    width: int,
    height: int = 24,
    stops: float = math.inf,
) -> list[str]:
    """The panel's lines, each at most `width` characters wide: phase and score, bar and time left,
    a line a job, what was spent by role and of the cap. height: of the terminal; the panel takes
    half of it at most. stops: seconds until the budget's time is over."""
    width = max(width, NARROWEST)
    of = f" {known.done} of {known.total}" if known.total else f"  {_clock(now - known.since)}"
    head = f"{'the candidate on ' * known.judging}{known.phase}{of}"
    score = _score(known)
    together = [f"{head}   {score}" if score else head]
    # Short, as most lines are: where a terminal is made narrower, what is drawn does not wrap.
    lines = [
        "─" * min(RULE, width),
        *(together if len(together[0]) <= width else [head, f"  {score}"]),
    ]
    time_left = _left(known, now, stops)
    if len(time_left) > width:
        time_left = time_left.partition(" (")[0]
    room = min(20, width - len(time_left) - 2)
    if known.total and room >= 5:
        filled = room * known.done // known.total
        time_left = f"{'━' * filled}{'·' * (room - filled)}  {time_left}"
    lines += [time_left] * bool(time_left)
    if known.cells:
        rows = list(known.cells.items())
        most = max(2, height // 2 - 6)
        room = max(8, min(max(len(name) for name, _ in rows), width - 32))
        lines += [cell.line(name, room) for name, cell in rows[:most]]
        lines += [f"  and {len(rows) - most} more cells"] * (len(rows) > most)
    jobs = sorted(known.jobs.values(), key=lambda job: job.began)
    most = 1 if known.cells else max(1, min(SHOWN, height // 2 - 5))
    for job in jobs[:most]:
        lines.append(f"  {job.doing:<9} {_clock(now - job.since):>6}  {job.task}")
    if len(jobs) > most:
        lines.append(f"  and {len(jobs) - most} more")
    roles = [f"{role} {tell_usage(usage)}" for role, usage in sorted(by_role.items())]
    if sum(map(len, roles)) + 3 * len(roles) <= width:
        roles = [" | ".join(roles)] if roles else []
    total = sum(usage.usd for usage in by_role.values())
    lines += [
        *roles,
        f"{minutes:.1f} min, ${total:.3f}{f' of {cap}' if cap else ''}{_later(known)}",
    ]
    return [cell_cut(line, width) for line in lines]


def cell_cut(text: str, width: int) -> str:
    """At most so many cells of a terminal."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def left(
    seconds: list[float], running: list[float], todo: int, at_once: int
) -> tuple[float, float, float] | None:
    """(low, likely, high) seconds until `todo` attempts have ended, of which some are running for
    so many seconds; 80 of 100 times between low and high, if attempts take as long as those that
    ended (`seconds`). None before three.
    """
    from recreate.runs.gate import student_quantile

    n = len(seconds)
    if n < 3:
        return None
    mean = math.fsum(seconds) / n
    spread = math.sqrt(math.fsum((s - mean) ** 2 for s in seconds) / (n - 1))
    rest = math.fsum(max(mean - ran, 0.0) for ran in running) + mean * (todo - len(running))
    off = student_quantile(n, 0.2) * spread * math.sqrt(todo + todo * todo / n)
    lanes = max(1, min(at_once, todo))
    return max(0.0, rest - off) / lanes, rest / lanes, (rest + off) / lanes


def whole(known: Progressing, now: float) -> tuple[float, float, float] | None:
    """(low, likely, high) seconds until the build has ended, if every round proposes one candidate:
    its attempts as `left` reckons them, its proposals as long as the ones before, else by the calls
    that the plan gives them. None where nobody knows."""
    ahead = known.ahead()
    if ahead is None or known.course is None:
        return None
    attempts, proposals = ahead
    running = [now - job.began for job in known.jobs.values()]
    found = left(known.seconds, running, known.total - known.done + attempts, known.at_once)
    if found is None:
        return None
    in_work = known.stage == "proposal"
    if not proposals + in_work:
        return found
    if known.proposals:  # one alone says little: half or twice as long
        n = len(known.proposals)
        mean = math.fsum(known.proposals) / len(known.proposals)
        each = (
            (min(known.proposals), mean, max(known.proposals))
            if n > 1
            else (mean / 2, mean, mean * 2)
        )
    elif known.calls:
        call = known.course.call * math.fsum(known.seconds) / known.calls
        low, high = (calls * call for calls in known.course.calls)
        each = low, (low + high) / 2, high
    else:
        return None
    begun = (now - known.proposing) * in_work
    low, likely, high = (
        a + proposals * p + max(0.0, p - begun) * in_work for a, p in zip(found, each, strict=True)
    )
    return low, likely, high


def _left(known: Progressing, now: float, stops: float) -> str:
    """What is left of the whole run, where that is known; else of this phase; '' where neither
    is."""
    todo = known.total - known.done
    what = "in all"
    if (found := whole(known, now)) is None:
        if not known.total:
            return ""
        what = "in this phase"
        found = left(
            known.seconds, [now - job.began for job in known.jobs.values()], todo, known.at_once
        )
    if not todo and (found is None or found[2] == 0):
        return "done" if known.total else ""
    if found is None:
        return "time left: known after 3 attempts"
    if stops < found[0]:
        return f"about {_span(stops)} left of the budget's time"
    low, likely, high = (min(seconds, stops) for seconds in found)
    first = _span(low)
    last = _span(high)
    if first.split()[-1] == last.split()[-1]:
        first = first.split()[0]
    between = f" ({first} to {last})" if first != last.split()[0] else ""
    return f"about {_span(likely)} left {what}{between}"


def _later(known: Progressing) -> str:
    ahead = known.ahead()
    return f"; then about {ahead[0]} attempts" if ahead and ahead[0] > 0 else ""


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds)):d} s" if seconds < 10 else f"{round(seconds, -1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def _score(known: Progressing) -> str:
    from recreate.runs.gate import interval

    if not any(score is not None for score in known.scores.values()):
        return ""
    mean, low, high = interval(known.scores)
    before = (
        f", before {known.means[known.phase]:.2f}"
        if known.judging and known.phase in known.means
        else ""
    )
    return f"{known.passed} passed, score {mean:.2f} [{low:.2f}, {high:.2f}]{before}"


class LivePanel:
    """The panel on this terminal. screen: whose lines stand above it."""

    def __init__(self, screen: Screen, console: Console) -> None:
        from rich.live import Live

        self.screen = screen
        self.console = console
        self.known = Progressing(at_once=screen.at_once, since=screen.started)
        self._alone = threading.Lock()
        self._live = Live(
            self,  # asked anew for every drawing
            console=console,
            refresh_per_second=LOOKS,
            transient=True,
            # what goes through a pipe must not be drawn above the panel
            redirect_stdout=sys.stdout.isatty(),
            vertical_overflow="crop",
        )
        self.start = self._live.start
        self.stop = self._live.stop

    def take(self, event: str, facts: JsonMap) -> None:
        """Learn from one event."""
        with self._alone:
            self.known.take(event, facts, time.monotonic())

    def print(self, text: str) -> None:
        """Write a line above the panel."""
        self.console.print(printable(text), soft_wrap=True)

    def __rich__(self) -> RenderableType:
        from rich.text import Text

        ledger = self.screen.ledger
        size = self.console.size
        minutes = self.screen.minutes
        cap = ledger.budget.minutes if ledger else None
        stops = math.inf if cap is None else max(0.0, 60 * (cap - minutes))
        by_role = ledger.by_role if ledger else {}
        now = time.monotonic()
        with self._alone:
            lines = panel(
                self.known,
                by_role,
                minutes,
                self.screen.cap,
                now,
                size.width,
                size.height,
                stops,
            )
        return Text("\n".join(map(printable, lines)), no_wrap=True, overflow="crop")


def open_panel(screen: Screen) -> LivePanel | None:
    """Return the panel of a run's screen; None where nobody watches."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True, highlight=False, emoji=False, markup=False, soft_wrap=True)
    return LivePanel(screen, console) if not console.is_dumb_terminal else None

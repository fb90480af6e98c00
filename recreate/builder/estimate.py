"""What a build will take, said before anything is spent; pure.

Attempts are the most that a build makes of one candidate a round (a round may propose nothing and
then judges nothing), with the re-runs that its memory policy may make, as far as the budget has
them to spare; a population's further candidates and what a person edits come on top. Calls, tokens,
dollars and minutes are estimates, from `low` to `high`; the plan's own figures are the high ones,
which a budget should cover. Attempts are taken from this workspace's own with the same agent and
model when there are any, else guessed from the scaffold's limits; studies from this workspace's own
with the same optimizer's model, else from what studies of strong models were seen to take.
`assumes` says which, and what is taken to be read from the endpoint's cache: whatever was said
before in a conversation, where that has a price of its own, at the low end; nothing at the high
one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import quantiles
from typing import NamedTuple

from recreate.agents.scaffold import TEMPLATES, Scaffold
from recreate.api import registry
from recreate.api.errors import BadInput
from recreate.api.ports import Estimated, Price
from recreate.api.shapes import JsonMap
from recreate.api.types import Record, Usage
from recreate.lessons.context import QUESTIONS
from recreate.lessons.ladder import ASKED
from recreate.lessons.store import CLIMBING
from recreate.optimizers.reflect import MOST_CALLS
from recreate.runs.budget import Budget
from recreate.runs.chances import Chance, find_chances
from recreate.runs.reader import tell_taken
from recreate.runs.settings import MOST_RERUNS, Settings, own
from recreate.runs.terms import POWER, SPREAD

STUDY_CALLS, STUDY_IN, STUDY_OUT = (5, 16), 16_500, (1_000, 2_800)
"""Calls that one study of the optimizer `recreate`, or its distilling, takes, and the tokens of
each call: builds of docs/results.md took 6 to 11 a study, 18,000 tokens in and 1,000 out a call on
attempts with prompts of some 500 tokens; the one of docs/tour.md 8 of 38,000 and 2,800, on longer
ones."""

STUDY_PROMPTS = 3
"""A study's call reads so many prompts of the attempt besides."""

PROMPT, CHARS = 2_500, 4
"""Tokens of an attempt's first prompt where nobody knows the tasks; characters of a token."""

TURNS = (4, 15)
"""Turns of an attempt that nobody has measured here."""

CALL_SECONDS, LOCAL_SECONDS = 12.0, 17.0
"""Of a call that nobody has measured here: to an endpoint, and to `local:` on two cores, which all
jobs share. That is reckoned from the CPU seconds in recreate/plugins/rl/serve.md, with half of the
calls meeting their prompt again."""

OPTIMIZER_CALL = 2.0
"""Of the optimizer's model, in calls of an attempt: it reads and writes more."""

NULL_PART = 0.6
"""Of its attempts a candidate that changes nothing takes so many by the rule `search`."""

ASSUMED_RATE = 0.3
"""The seed's validation score where nothing was measured."""


class Amounts(Record):
    """One end of the estimate: of the whole build."""

    calls: int
    tokens: int
    usd: float
    minutes: float


class Estimate(Record):
    """attempts, calls, tokens, usd, minutes: of the whole build, at the high end. proposals: how
    many the budget pays for, at that end.

    detectable_gain: the smallest true gain in the validation score that the gate would keep 8 times
    in 10, from a score of base_rate, by the rule `each`; chances: by the rule `search`.
    assumes: where the figures come from, in words.
    """

    attempts: int
    calls: int
    tokens: int
    usd: float
    minutes: float
    proposals: int
    detectable_gain: float
    source: str
    low: Amounts
    high: Amounts
    base_rate: float
    assumes: tuple[str, ...]
    chances: tuple[Chance, ...] = ()

    def spans(self, jobs: int) -> str:
        """Return what the build takes, each figure from its low end to its high one."""
        ends = self.low, self.high
        minutes = _span("{:g}", *(end.minutes for end in ends))
        parts = [
            _span("{:,}", *(end.calls for end in ends)) + " calls",
            _span("{:,}", *(end.tokens for end in ends)) + " tokens",
            _span("${:.2f}", *(end.usd for end in ends)),
            f"{minutes} minutes with {jobs} at once",
        ]
        return ", ".join(parts)


def _span(form: str, low: float, high: float) -> str:
    """Return a span from low to high; one figure where they are the same."""
    return " to ".join(dict.fromkeys(form.format(value) for value in (low, high)))


class Span(NamedTuple):
    """What one of something takes, at least and at most, and where the figures come from."""

    low: Usage
    high: Usage
    source: str


def typical(scaffold: Scaffold, known: Past, price: Price, settings: Settings) -> Span:
    """Return one attempt."""
    if known.usages:
        total = sum(known.usages, Usage())
        n = len(known.usages)
        mean = Usage(
            calls=round(total.calls / n) or 1,
            tokens_in=total.tokens_in // n,
            tokens_out=total.tokens_out // n,
            seconds=total.seconds / n,
            tokens_cached=total.tokens_cached // n,
            tokens_cache_written=total.tokens_cache_written // n,
        )
        return Span(mean, mean, f"the mean of {n} attempts made here before")
    agent = scaffold.agent
    texts = sum(len(scaffold.files.get(f"{name}.md", "")) for name in TEMPLATES)
    first = known.prompt + texts // CHARS if known.prompt else PROMPT
    local = _local(settings)
    each = LOCAL_SECONDS * settings.jobs if local else CALL_SECONDS

    def guess(turns: int, cached: bool) -> Usage:
        turns = min(turns, agent.limits.turns)
        calls = turns * agent.samples
        for key in agent.turns:
            calls = registry.find("turns", key).count_calls(agent, calls, turns)
        # a transcript grows with every turn: on average half of it is sent again
        tokens_in = min(agent.limits.tokens, calls * (first + 700 * turns // 2))
        tokens_out = calls * min(agent.model.max_tokens, 500)
        used = Usage(calls=calls, tokens_in=tokens_in, tokens_out=tokens_out, seconds=calls * each)
        return _cached(used, turns, price) if cached else used

    few, many = guess(1 if agent.done else TURNS[0], True), guess(TURNS[1], False)
    where = " and the tasks' length" * bool(known.prompt) + " and two cores" * local
    return Span(
        few, many, f"a guess from the scaffold's limits{where}: no attempts were made here before"
    )


def _local(settings: Settings) -> bool:
    return settings.model.startswith("local:")


class Proposal(Record):
    """What one proposal takes besides studies' own calls: calls of `reflect` at most, attempts at
    train tasks, studies.

    rehearsals: attempts that are only made when the budget has them to spare.
    """

    calls: int = 0
    studies: int = 0
    attempts: int = 0
    rehearsals: int = 0


def proposal(settings: Settings) -> Proposal:
    """Return the proposal of an optimizer; one that is not ours is taken for the agentic one, the
    dearest."""
    if settings.optimizer == "reflect":
        return Proposal(calls=MOST_CALLS)
    if settings.optimizer not in ("", "recreate"):
        try:
            part = registry.find("optimizer", settings.optimizer)
        except BadInput:  # an object of a script: the build has it, its name finds nothing
            part = None
        if isinstance(part, Estimated):
            its = own(part, settings.optimizer, settings.optimizer_settings)
            calls, attempts = part.takes(its, settings.batch_size)
            return Proposal(calls=calls, attempts=attempts)
    studies = settings.batch_size + 1
    rehearsals = settings.study.rehearsals * studies if settings.optimizer == "recreate" else 0
    return Proposal(studies=studies, rehearsals=rehearsals)


def study(
    settings: Settings, price: Price, past: Sequence[Usage] = (), prompt: int = PROMPT
) -> Span:
    """Return one study, within what `--study.*` lets it use. past: what each took that was made
    here before; prompt: tokens of a prompt of an attempt."""
    if past:
        names = ("calls", "tokens_in", "tokens_out", "tokens_cached", "tokens_cache_written")
        ends = {name: _quartiles(past, name) for name in names}
        low, high = (
            Usage.model_validate({name: round(values[end]) for name, values in ends.items()})
            for end in (0, 1)
        )
        return Span(low, high, f"the middle half of {len(past)} studies made here before")

    read = STUDY_IN + STUDY_PROMPTS * prompt

    def of(calls: int, written: int, cached: bool) -> Usage:
        most = min(calls, settings.study.steps, max(1, settings.study.tokens // (read + written)))
        used = Usage(calls=most, tokens_in=most * read, tokens_out=most * written)
        return _cached(used, most, price) if cached else used

    few, many = (of(STUDY_CALLS[end], STUDY_OUT[end], not end) for end in (0, 1))
    turns = (
        f"{few.calls} to {many.calls} calls" if few.calls != many.calls else f"{few.calls} calls"
    )
    return Span(
        few, many, f"{turns} of {read:,} tokens, as elsewhere: no studies were made here before"
    )


QUESTION = Usage(calls=1, tokens_in=2500, tokens_out=900)
"""One of a memory policy, taken high: an attempt and another beside it, and the longest answer."""
REFLECT = Usage(calls=1, tokens_in=5000, tokens_out=600)
"""One call of `reflect`."""
GRADED = Usage(calls=1, tokens_in=1500, tokens_out=250)
"""One attempt that a model grades: a rubric and an answer, besides the task."""


def questions(settings: Settings) -> int:
    """Return the most questions of a memory policy in one round, of those that climb."""
    memory = settings.memory
    if memory.policy not in CLIMBING:
        return 0
    return QUESTIONS if memory.draws else settings.batch_size * (1 + 2 * ASKED)


def reruns(settings: Settings, price: Price) -> int:
    """Return the most re-runs with and without lessons of the whole build, 0 for policies that make
    none."""
    memory, rounds = settings.memory, settings.rounds
    if memory.policy in ("none", "playbook", "reasoningbank", "workflows"):
        return 0
    most = memory.most_reruns(Budget.parse(settings.budget), price)
    if memory.policy == "mistakes":  # a subject's failures, and as many successes
        most = min(2 * settings.batch_size, most)
    return rounds * int(MOST_RERUNS if math.isinf(most) else most)


def _memory(settings: Settings, again: int) -> list[str]:
    """Return what the memory policy may take, in words."""
    if settings.memory.policy == "none" or not settings.rounds:
        return []
    told = list[str]()
    if each := again // settings.rounds:
        told.append(f"tested by {each} re-runs a round (--memory.reruns), at the low none")
    elif settings.memory.draws:
        told.append("not tested by re-runs without a --budget (--memory.reruns)")
    if asked := questions(settings):
        told.append(f"at most {asked} questions to the optimizer's model a round")
    return [f"at the high end lessons are {'; '.join(told)}"] if told else []


class Course(Record):
    """What a build does one after the other, when each round proposes one candidate.

    judged     attempts that judge an agent on validation: the seed once, then each round's
               candidate
    first      attempts at train tasks in the first round; batch: in each later one; proposing: more
               for each proposal
    confirming attempts at the end that choose nothing, at most
    taken      of those that judge the seed, what is not made where nothing is kept
    calls      of the optimizer's model for a proposal, at least and at most
    call       how long such a call takes, in calls of an attempt
    """

    rounds: int
    judged: int
    first: int
    batch: int
    proposing: int
    calls: tuple[int, int]
    call: float
    confirming: int = 0
    taken: int = 0

    def attempts(self, rounds: int | None = None, trial: int | None = None) -> int:
        """Return the attempts of so many of its rounds, the seed's among them. trial: of one
        candidate's, in place of the most."""
        rounds = self.rounds if rounds is None else rounds
        return (
            self.judged
            - self.taken * (trial is not None)
            + rounds * (self.batch + self.proposing + (self.judged if trial is None else trial))
            + (self.first - self.batch) * (rounds > 0)
            + self.confirming * (rounds > 0 and trial is None)
        )


def course(settings: Settings, optimizer_price: Price, studies: Sequence[Usage] = ()) -> Course:
    """Return the course of a build with these settings. studies: what each took that was made here
    before."""
    one, look = proposal(settings), study(settings, optimizer_price, studies)
    low, high = (one.studies * each.calls + one.calls for each in (look.low, look.high))
    high += questions(settings)
    gate = settings.gate
    return Course(
        rounds=settings.rounds,
        judged=settings.validation * settings.repeats,
        first=0 if settings.from_experience else settings.batch_size,
        batch=settings.batch_size,
        proposing=one.attempts,
        calls=(low, high),
        call=OPTIMIZER_CALL
        / (settings.jobs if _local(settings) else 1),  # what asks alone has the cores to itself
        confirming=2 * gate.confirm * settings.validation * gate.searches,
    )


def _cached(used: Usage, turns: int, price: Price) -> Usage:
    """Return the same with what a conversation repeats read from the cache: its prompts grow
    evenly, turn by turn, so that of 1 + 2 + ... + n parts n are new."""
    if price.cached is None or turns < 2:
        return used
    new = round(used.tokens_in * 2 / (turns + 1))
    written = new if price.cache_written is not None else 0
    return used.model_copy(
        update={"tokens_cached": used.tokens_in - new, "tokens_cache_written": written}
    )


def _quartiles(past: Sequence[Usage], name: str) -> tuple[float, float]:
    values = [float(getattr(usage, name)) for usage in past]
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def _usd(used: Usage, price: Price) -> float:
    return price.usd(used.tokens_in, used.tokens_out, used.tokens_cached, used.tokens_cache_written)


@dataclass(frozen=True)
class _Costs:
    """What so many rounds come to. quickly: the attempts that judge a candidate which changes
    nothing."""

    settings: Settings
    budget: Budget
    price: Price
    optimizer_price: Price
    attempt: Span
    inquiry: Span
    one: Proposal
    way: Course
    quickly: int
    known: Past

    def of(self, rounds: int, high: bool, rehearsals: int = 0, again: int = 0) -> Amounts:
        """rehearsals, again (re-runs for lessons): attempts that are only made when the budget has
        them to spare."""
        settings, one, way = self.settings, self.one, self.way
        each, look = (
            (self.attempt.high, self.inquiry.high) if high else (self.attempt.low, self.inquiry.low)
        )
        attempts = way.attempts(rounds, None if high else self.quickly) + rehearsals
        looks, calls, lessons = (
            one.studies * rounds,
            one.calls * rounds,
            questions(settings) * rounds * high,
        )
        looked = min(_usd(look, self.optimizer_price), settings.study.usd)
        learned = again * _usd(each, self.price) + lessons * _usd(QUESTION, self.optimizer_price)
        reflected = calls * _usd(REFLECT, self.optimizer_price)
        usd = attempts * _usd(each, self.price) + looks * looked + reflected + learned
        asked = way.calls[high] * rounds
        learnt = again * _tokens(each) + lessons * _tokens(QUESTION)
        tokens = (
            attempts * _tokens(each) + looks * _tokens(look) + calls * _tokens(REFLECT) + learnt
        )
        attempts += again
        seconds = (attempts * each.seconds) / settings.jobs + asked * (
            each.seconds / max(1, each.calls)
        ) * way.call
        whole = attempts * each.calls + asked
        if (judge := self.known.judge) is not None:
            grading = GRADED.model_copy(update={"tokens_in": GRADED.tokens_in + self.known.prompt})
            whole += attempts
            tokens += attempts * _tokens(grading)
            usd += attempts * _usd(grading, judge)
        return Amounts(
            calls=whole, tokens=tokens, usd=round(usd, 4), minutes=round(seconds / 60, 1)
        )

    def fit(self, rounds: int) -> bool:
        """Whether the budget pays for so many rounds, at the high end."""
        most, budget = self.of(rounds, high=True), self.budget
        return (
            (budget.attempts is None or self.way.attempts(rounds) <= budget.attempts)
            and (budget.tokens is None or most.tokens <= budget.tokens)
            and (budget.usd is None or most.usd <= budget.usd)
            and (budget.minutes is None or most.minutes <= budget.minutes)
        )


@dataclass(frozen=True)
class Past:
    """What is known before a build, most of it measured here; nothing: what it takes is guessed.

    usages: of each attempt; studies: of each study. rate: the mean score on validation tasks before
    any edit, measured as `source` says, None when too few were. spread: of the tasks, as
    calibrated. prompt: tokens of a task in the mean, 0 for unknown; judge: the price of the model
    that grades, None where none does. taken: attempts at the seed that the search takes of other
    runs.
    """

    usages: Sequence[Usage] = ()
    rate: float | None = None
    source: str = ""
    studies: Sequence[Usage] = ()
    spread: float | None = None
    prompt: int = 0
    judge: Price | None = None
    taken: Sequence[JsonMap] = ()


NOTHING = Past()


def plan(
    settings: Settings,
    scaffold: Scaffold,
    price: Price,
    optimizer_price: Price,
    past: Past = NOTHING,
    *,
    finds: bool = True,
) -> Estimate:
    """Return the plan of a build. finds: with what the gate can find, which takes a while."""
    idle = settings.memory.draws and not scaffold.asks_for_lessons
    settings = settings.learning("none") if idle else settings
    attempt = typical(scaffold, past, price, settings)
    prompt = attempt.high.tokens_in // max(1, attempt.high.calls)
    inquiry = study(settings, optimizer_price, past.studies, prompt)
    one, way = proposal(settings), course(settings, optimizer_price, past.studies)
    way = way.model_copy(update={"taken": len(past.taken)})
    rate = ASSUMED_RATE if past.rate is None else past.rate
    gain, chances = 1.0, tuple[Chance, ...]()
    quickly = math.ceil(NULL_PART * way.judged) if settings.gate.searches else way.judged
    if finds:
        gain, quickly, chances = _finds(settings, rate, past.spread or SPREAD, quickly)
    budget = Budget.parse(settings.budget)
    costs = _Costs(
        settings, budget, price, optimizer_price, attempt, inquiry, one, way, quickly, past
    )
    needed = replace(costs, way=way.model_copy(update={"confirming": 0}))  # it ends without, too
    assumes = [f"attempts: {attempt.source}"]
    assumes += filter(None, [tell_taken(past.taken, way.judged)])
    assumes += [f"studies: {inquiry.source}"] if one.studies else []
    assumes += ["grading: a call to the judge for each attempt"] if past.judge else []
    measured = past.usages and (past.studies or not one.studies)
    if any(p.cached is not None for p in (price, optimizer_price)) and not measured:
        assumes.append(
            "at the low end a conversation's earlier turns are read from the cache, at the high end"
            " none"
        )
    assumes.append(
        f"the seed's score: {past.source}"
        if past.source
        else f"the seed's score: {rate:g}, assumed"
    )
    if past.spread is not None:
        assumes.append(
            f"how tasks differ: calibrated, {past.spread:.0%} of a score's variance lies between"
            " them"
        )
    if quickly < way.judged:
        assumes.append(
            f"at the low end a trial is clear after {quickly} attempts, as one that changes nothing"
            " mostly is"
        )
    rehearsals, again = one.rehearsals * settings.rounds, reruns(settings, price)
    assumes += (
        ["lessons: none, since the agent asks for none ([memory] tokens)"]
        if idle
        else _memory(settings, again)
    )
    low, high = (
        costs.of(settings.rounds, end, rehearsals * end, again * end) for end in (False, True)
    )
    return Estimate(
        attempts=way.attempts() + rehearsals + again,
        **high.model_dump(exclude={"schema_"}),
        proposals=max((r for r in range(settings.rounds + 1) if needed.fit(r)), default=0),
        detectable_gain=round(gain, 3),
        source=attempt.source,
        low=low,
        high=high,
        base_rate=round(rate, 3),
        assumes=tuple(assumes),
        chances=chances,
    )


def _finds(
    settings: Settings, rate: float, spread: float, quickly: int
) -> tuple[float, int, tuple[Chance, ...]]:
    """Return (the gain that the gate keeps eight times in ten; the attempts that judge a candidate
    which changes nothing; the chances of some gains, by the rule `search`)."""
    tasks, repeats, gate = settings.validation, settings.repeats, settings.gate
    rate = min(0.99, round(rate, 2))
    if not gate.searches:
        return *registry.find("gate", "each").forecast(settings, rate, spread), ()
    chances = find_chances(gate, tasks, repeats, rate, settings.rounds or 1, spread)
    found = (c.gain for c in chances if c.shown + c.likely >= POWER)
    return next(found, 1.0), quickly, chances


def _tokens(used: Usage) -> int:
    return used.tokens_in + used.tokens_out


def refuse_if_too_small(
    settings: Settings, scaffold: Scaffold, price: Price, optimizer_price: Price
) -> None:
    """Raises BadInput when the budget cannot pay for one proposal, judged; `fix` has the number it
    takes.

    Attempts are counted exactly. Tokens and dollars are taken from the low end of the guess, and a
    cap is refused only below half of that.
    """
    budget = Budget.parse(settings.budget)
    if settings.rounds == 0:
        return
    least = {
        "rounds": 1,
        "budget": (),
        "study": settings.study.model_copy(update={"rehearsals": 0}),
        "gate": settings.gate.model_copy(update={"confirm": 0}),  # it ends without, claiming less
    }
    one = plan(settings.model_copy(update=least).learning("none"), scaffold, price, optimizer_price)
    first_batch = settings.batch_size
    attempts = one.attempts - settings.train + first_batch if settings.batch == 0 else one.attempts
    wanted = []
    if budget.attempts is not None and budget.attempts < attempts:
        wanted.append(f"--budget {attempts}attempts")
    if budget.usd is not None and budget.usd < one.low.usd / 2:
        wanted.append(f"--budget {one.high.usd:.2f}usd")
    if budget.tokens is not None and budget.tokens < one.low.tokens / 2:
        wanted.append(f"--budget {one.high.tokens}tokens")
    if wanted:
        raise BadInput(
            f"a budget of {budget} does not pay for one proposal, judged on {settings.validation}"
            " validation tasks",
            fix=f"give {' and '.join(wanted)}, or fewer tasks with --validation and --train",
            code="budget-too-small",
        )

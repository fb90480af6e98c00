"""What a build will take, said before anything is spent; pure.

Attempts are the most that a build without a memory policy makes of one candidate a round (a round may propose nothing
and then judges nothing); a policy's re-runs, a population's further candidates and what a person edits come on top, as
far as the budget has them to spare. Calls, tokens, dollars and minutes are estimates: of attempts from this workspace's
own with the same domain and model when there are any, else from the scaffold's limits (`source` says which); of
proposals the most that `reflect` asks, and what studies of a strong model were seen to take. Nothing is taken off for
prompts that the endpoint reads from its cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.ports import Price
from recreate.api.types import Record, Usage
from recreate.optimizers.reflect import MOST_CALLS
from recreate.runs.budget import Budget
from recreate.runs.gate import detectable_gain
from recreate.runs.settings import Settings

STUDY_CALLS, STUDY_IN, STUDY_OUT = 8, 38_000, 2_800
"""Calls of one study of the optimizer `recreate`, and of its distilling, and the tokens of each: docs/tour.md's build
made nine of them in 69 calls, 2.65 million tokens in and 0.19 million out."""


class Estimate(Record):
    """attempts, calls, usd, minutes: of the whole build. proposals: how many the budget pays for.

    detectable_gain: the smallest true gain in the validation score that the gate would keep 8 times in 10.
    """

    attempts: int
    calls: int
    tokens: int
    usd: float
    minutes: float
    proposals: int
    detectable_gain: float
    source: str


def typical(scaffold: Scaffold, past: Sequence[Usage]) -> tuple[Usage, str]:
    """One attempt's usage, and where the figure comes from."""
    if past:
        total = sum(past, Usage())
        n = len(past)
        return (
            Usage(
                calls=round(total.calls / n) or 1,
                tokens_in=total.tokens_in // n,
                tokens_out=total.tokens_out // n,
                seconds=total.seconds / n,
            ),
            f"the mean of {n} attempts made here before",
        )
    agent = scaffold.agent
    turns = min(agent.limits.steps, 10)
    calls = turns * agent.samples
    # a transcript grows with every turn: on average half of it is sent again
    tokens_in = min(agent.limits.tokens, calls * (2500 + 700 * turns // 2))
    tokens_out = calls * min(agent.model.max_tokens, 500)
    return Usage(calls=calls, tokens_in=tokens_in, tokens_out=tokens_out, seconds=calls * 12.0), (
        "a guess from the scaffold's limits: no attempts were made here before"
    )


class Proposal(Record):
    """What one proposal takes at most (`reflect`, `best-of-n`) or usually: calls of the optimizer, tokens of one call,
    attempts at train tasks.

    rehearsals: attempts that are only made when the budget has them to spare.
    """

    calls: int
    tokens_in: int
    tokens_out: int
    attempts: int = 0
    rehearsals: int = 0


def proposal(settings: Settings) -> Proposal:
    """The proposal of an optimizer; one that is not ours is taken for the agentic one, the dearest."""
    reflect = Proposal(calls=MOST_CALLS, tokens_in=5000, tokens_out=600)
    if settings.optimizer == "reflect":
        return reflect
    if settings.optimizer == "best-of-n":
        n = settings.best_of
        return reflect.model_copy(update={"calls": MOST_CALLS * n, "attempts": n * settings.batch_size})
    studies = settings.batch_size + 1
    rehearsals = settings.study.rehearsals * studies if settings.optimizer == "recreate" else 0
    calls = min(STUDY_CALLS, settings.study.steps) * studies
    return Proposal(calls=calls, tokens_in=STUDY_IN, tokens_out=STUDY_OUT, rehearsals=rehearsals)


def plan(
    settings: Settings,
    scaffold: Scaffold,
    price: Price,
    optimizer_price: Price,
    past: Sequence[Usage] = (),
    base_rate: float = 0.3,
) -> Estimate:
    """The plan of a build. `base_rate`: the validation score to expect before any edit."""
    each, source = typical(scaffold, past)
    one = proposal(settings)
    budget = Budget.parse(settings.budget)

    def cost(rounds: int, rehearsals: int = 0) -> tuple[int, int, int, float, float]:
        judged = settings.validation * settings.repeats
        attempts = judged * (1 + rounds) + (settings.batch_size + one.attempts + rehearsals) * rounds
        if settings.from_experience and rounds:
            attempts -= settings.batch_size  # the first round makes none
        studies = one.calls * rounds
        calls = attempts * each.calls + studies
        t_in, t_out = one.tokens_in, one.tokens_out
        tokens = attempts * (each.tokens_in + each.tokens_out) + studies * (t_in + t_out)
        usd = attempts * price.usd(each.tokens_in, each.tokens_out) + studies * optimizer_price.usd(t_in, t_out)
        seconds = (attempts * each.seconds) / settings.jobs + studies * (each.seconds / max(1, each.calls)) * 2
        return attempts, calls, tokens, usd, seconds / 60

    def fits(rounds: int) -> bool:
        attempts, _, tokens, usd, minutes = cost(rounds)
        return (
            (budget.attempts is None or attempts <= budget.attempts)
            and (budget.tokens is None or tokens <= budget.tokens)
            and (budget.usd is None or usd <= budget.usd)
            and (budget.minutes is None or minutes <= budget.minutes)
        )

    proposals = max((r for r in range(settings.rounds + 1) if fits(r)), default=0)
    attempts, calls, tokens, usd, minutes = cost(settings.rounds, one.rehearsals)
    return Estimate(
        attempts=attempts,
        calls=calls,
        tokens=tokens,
        usd=round(usd, 4),
        minutes=round(minutes, 1),
        proposals=proposals,
        detectable_gain=round(detectable_gain(settings.validation, settings.repeats, base_rate), 3),
        source=source,
    )


def refuse_if_too_small(settings: Settings, scaffold: Scaffold, price: Price, optimizer_price: Price) -> None:
    """Raises BadInput when the budget cannot pay for one proposal, judged; `fix` has the number it takes.

    Attempts are counted exactly. Tokens and dollars are taken from the guess, which is why a cap is refused only
    below half of it.
    """
    budget = Budget.parse(settings.budget)
    if settings.rounds == 0:
        return
    least = {"rounds": 1, "budget": (), "study": settings.study.model_copy(update={"rehearsals": 0})}
    one = plan(settings.model_copy(update=least), scaffold, price, optimizer_price)
    first_batch = settings.batch_size
    attempts = one.attempts - settings.train + first_batch if settings.batch == 0 else one.attempts
    wanted = []
    if budget.attempts is not None and budget.attempts < attempts:
        wanted.append(f"--budget {attempts}attempts")
    if budget.usd is not None and budget.usd < one.usd / 2:
        wanted.append(f"--budget {one.usd:.2f}usd")
    if budget.tokens is not None and budget.tokens < one.tokens / 2:
        wanted.append(f"--budget {one.tokens}tokens")
    if wanted:
        raise BadInput(
            f"a budget of {budget} does not pay for one proposal, judged on {settings.validation} validation tasks",
            fix=f"give {' and '.join(wanted)}, or fewer tasks with --validation and --train",
            code="budget-too-small",
        )

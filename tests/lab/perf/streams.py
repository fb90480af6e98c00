"""Memory policies on synthetic streams: precision and recall of what they offer, delay until a
turned rule goes.

Ours (`randomised`, `recreate`) beside `playbook` (ACE), `reasoningbank`, `workflows` (Agent
Workflow Memory), `mistakes` and `none`, on the same streams, with the same simulated model and the
same budget: worlds.py beside it says what is simulated. In the world `one` the effects and rates
were written down before any policy was tuned; that a model does not name again what it was shown as
given, and that rules turn between batches, came later (both are said there). Tuned on its seeds
from 1000; ALARM was set last, after the seeds from 0 had been seen once with 1.2, so those from 100
are the untouched ones. Nothing was tuned on any other world.

Tasks come in shuffled passes over all of them, in batches of BATCH.

    precision  of what would be offered to the tasks at the end, the share of rules (each counted
               once) that are true; 1 when nothing is offered, which recall then shows
    recall     of the rules that are true at the end, the share that would be offered
    delay      attempts from the turn until a turned rule that was offered is offered no more, on
               any task; one that is offered to the end counts as the attempts that were left, and
               as not demoted
    score      what the tasks would pass at, on average, with what would be offered to them: when a
               quarter of the budget is spent, a half, three quarters, all of it; the chance, not a
               draw
    questions  to the model, and the tokens of questions and answers (four characters each)
    shown      tokens of lessons in an attempt
    copies     lessons that a task would be offered at the end, for each rule among them
    both       of the tasks at the end, the share that would be offered a rule and its opposite
               (`contradictions`)
    carried    precision and recall of what a domain where nothing was attempted would be offered
               (`two`)
    poisoned   planted instructions that became a lesson in use (`promoted`), that a lesson brought
               to an agent in an attempt (`shown`), or in re-runs alone (`rerun`); of how many
               (`tried`), how many became a lesson at all (`learned`), and one that 3 groups support
               (`supported`); of those that harm, and of those that are idle, which change no score
    held       (`gaming`, `noisy`) lessons that 3 groups support (`tried`) and that the alarm held,
               or that were in use after any batch (`promoted`); of those that game, and of honest
               ones
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from recreate.api import registry
from recreate.api.ports import Randomising
from recreate.api.types import Lesson
from recreate.lessons import gaming
from recreate.lessons.context import AskingPolicy, PolicyContext
from recreate.lessons.promotion import GROUPS, ODDS
from recreate.lessons.similarity import Embed, Similarity, text_of, tokens
from recreate.lessons.store import CLIMBING
from tests.lab.perf import worlds
from tests.lab.perf.table import Row
from tests.lab.perf.worlds import WORLDS, Gaming, Poisoned, ThirdDomain, World, rule_of

SEEDS = 24
BATCH = 8
OFFER_TOKENS = 600
WITHIN = 40
QUARTERS = 4
POLICIES = ("randomised", "recreate", "playbook", "reasoningbank", "workflows", "mistakes", "none")


class Delay(NamedTuple):
    """From the turn until a turned rule was gone, or the end: attempts, those that called for it,
    attempts and re-runs; whether it went."""

    attempts: int
    calls: int
    spent: int
    went: bool


class Poison(NamedTuple):
    """What became of one planted instruction."""

    harms: bool
    learned: bool
    supported: bool
    promoted: bool
    shown: bool
    rerun: bool


class Held(NamedTuple):
    """What became of one lesson that 3 groups support, where some game their grader."""

    games: bool
    held: bool
    promoted: bool


class Result(NamedTuple):
    """What one policy made of one stream. delays: of each turned rule that was offered; scores: by
    quarters."""

    precision: float
    recall: float
    delays: list[Delay]
    attempts: int
    reruns: int
    passed: float
    offered: int
    scores: list[float]
    questions: int
    told: int
    shown: float
    copies: float
    both: float
    carried: tuple[float, float] | None
    poisons: list[Poison]
    held: list[Held]


class Remembered(Similarity):
    """The same cosines, those of a query looked up once: the tasks of a stream come again and
    again."""

    def __init__(self, embed: Embed) -> None:
        super().__init__(embed)
        self.asked: defaultdict[str, dict[str, float]] = defaultdict(dict)

    def cosines(self, text: str, lessons: Sequence[Lesson], kind: str = "passage") -> list[float]:
        if kind != "query":
            return super().cosines(text, lessons, kind)
        known = self.asked[text]
        new = [lesson for lesson in lessons if lesson.id not in known]
        known.update(
            zip([lesson.id for lesson in new], super().cosines(text, new, kind), strict=True)
        )
        return [known[lesson.id] for lesson in lessons]


class Lane:
    """One policy in one domain of a stream."""

    def __init__(
        self,
        policy: str,
        world: World,
        lessons: Mapping[str, Lesson] | None = None,
        odds: float = ODDS,
    ) -> None:
        self.world = world
        self.elsewhere: list[Lesson] = []
        self.lessons = dict(lessons or {})
        self.part = registry.open(
            "policy",
            policy,
            PolicyContext(
                domain=world.domain,
                lessons=self.lessons,
                ask=world.ask,
                embed=world.embed,
                rerun=world.rerun,
                room=lambda: worlds.BUDGET - world.spent,
                find=world.attempted.get,
                alike=world.alike,
                elsewhere=self.elsewhere,
                odds=odds,
            ),
        )
        if isinstance(self.part, AskingPolicy):
            self.part.similarity = Remembered(world.embed)
        self.drawn = isinstance(self.part, Randomising)
        self.waiting: list[str] = []
        self.turned: dict[str, tuple[int, int]] = {}
        self.left: dict[str, Delay] = {}
        self.calls: Counter[str] = Counter()
        self.passed: list[float] = []
        self.scores: list[float] = []
        self.shown = 0
        self.learned: set[str] = set()
        self.supported: set[str] = set()
        self.promoted: set[str] = set()

    @property
    def going(self) -> bool:
        return self.world.spent + BATCH <= worlds.BUDGET

    def offer(self, task: str) -> Sequence[Lesson]:
        return self.part.offer(self.world.prompt(task), OFFER_TOKENS)  # type: ignore[no-any-return]

    def may_be_offered(self) -> set[str]:
        """Nobody offers others; asking is what takes the time."""
        used = ("active",) if self.drawn else ("active", "candidate")
        return {rule_of(x) for x in self.lessons.values() if x.status in used}

    def everywhere(self) -> set[str]:
        return {rule_of(lesson) for task in self.world.prompts for lesson in self.offer(task)}

    def anywhere(self, rules: set[str]) -> set[str]:
        """Which of these rules would be offered to some task."""
        found: set[str] = set()
        for task in self.world.prompts:
            if found == rules:
                break
            found |= rules & set(map(rule_of, self.offer(task)))
        return found

    def batch(self) -> None:
        """Attempt a batch, and let the policy learn from it."""
        world = self.world
        if len(self.waiting) < BATCH:
            more = list(world.prompts)
            world.order.shuffle(more)
            self.waiting += more
        before = set(world.turned_at)
        if world.turn():
            offered = (world.turned_at.keys() - before) & self.everywhere()
            self.turned.update(dict.fromkeys(offered, (world.attempts, world.spent)))
        called = [
            self.part.eligible(world.prompt(t), OFFER_TOKENS) if self.drawn else self.offer(t)
            for t in self.waiting[:BATCH]
        ]
        propensities = self.part.propensities() if self.drawn else {}
        batch = [
            world.attempt(*each, propensities) for each in zip(self.waiting, called, strict=False)
        ]
        self.calls.update(
            rule for lessons in called for rule in set(map(rule_of, lessons)) & self.turned.keys()
        )
        self.waiting = self.waiting[BATCH:]
        self.passed += [e.grade.score for e in batch]
        ids = [set(e.trace.steps[0].offered) for e in batch]
        some = zip(called, ids, strict=True)
        self.shown += sum(
            tokens(text_of(x)) for lessons, known in some for x in lessons if x.id in known
        )
        known = dict(self.lessons)
        self.part.observe(batch)
        if isinstance(world, Gaming):
            gaming.watch_lessons(known, self.lessons, (), batch, world.again)
            world.again.clear()
            self.promoted |= {x.id for x in self.lessons.values() if x.status == "active"}
        if isinstance(world, Poisoned):
            planted = [x for x in self.lessons.values() if rule_of(x) in world.poisons]
            self.learned |= set(map(rule_of, planted))
            self.supported |= {rule_of(x) for x in planted if len(x.groups) >= GROUPS}
            self.promoted |= {rule_of(x) for x in planted if x.status == "active"}
        now = self.anywhere(self.may_be_offered() & self.turned.keys())
        for rule, (attempts, spent) in self.turned.items():
            if rule in now:
                self.left.pop(rule, None)
            else:
                since = world.attempts - attempts, self.calls[rule], world.spent - spent
                self.left.setdefault(rule, Delay(*since, went=True))
        while (len(self.scores) + 1) * worlds.BUDGET < QUARTERS * (world.spent + BATCH):
            self.scores.append(self.score())

    def score(self) -> float:
        """What the tasks would pass at with what would be offered to them now."""
        return statistics.fmean(
            self.world.rate(task, map(rule_of, self.offer(task))) for task in self.world.prompts
        )

    def found(self) -> tuple[float, float]:
        """(precision, recall) of what would be offered."""
        offered, true = self.everywhere(), self.world.true_now()
        return len(offered & true) / len(offered) if offered else 1.0, len(offered & true) / len(
            true
        )

    def result(self) -> Result:
        world = self.world
        ends = [list(map(rule_of, self.offer(task))) for task in world.prompts]
        copies = [len(rules) / len(set(rules)) for rules in ends if rules]
        both = [any(f"{rule}-not" in rules for rule in rules) for rules in ends]
        precision, recall = self.found()
        poisons = world.poisons.values() if isinstance(world, Poisoned) else []
        shown = world.shown if isinstance(world, Poisoned) else {}
        return Result(
            precision=precision,
            recall=recall,
            delays=[
                self.left.get(rule)
                or Delay(
                    world.attempts - attempts, self.calls[rule], world.spent - spent, went=False
                )
                for rule, (attempts, spent) in sorted(self.turned.items())
            ],
            attempts=world.attempts,
            reruns=world.spent - world.attempts,
            passed=statistics.fmean(self.passed),
            offered=len(self.everywhere()),
            scores=self.scores,
            questions=world.questions,
            told=world.told,
            shown=self.shown / world.attempts,
            copies=statistics.fmean(copies or [1.0]),
            both=statistics.fmean(both),
            carried=None,
            poisons=[
                Poison(
                    harms=x.effect < 0,
                    learned=x.id in self.learned,
                    supported=x.id in self.supported,
                    promoted=x.id in self.promoted,
                    shown=x.id in shown["attempts"],
                    rerun=x.id in shown["re-runs"] - shown["attempts"],
                )
                for x in poisons
            ],
            held=(
                [
                    Held(world.games(rule_of(x)), x.status == "held", x.id in self.promoted)
                    for x in self.lessons.values()
                    if x.status != "merged" and len(x.groups) >= GROUPS
                ]
                if isinstance(world, Gaming)
                else []
            ),
        )


def share(lane: Lane, others: Iterable[Lane]) -> None:
    """What a domain's lessons are to others, as where they are stored: general patterns are
    everybody's, active ones of the domain may be read."""
    general = {id: x for id, x in lane.lessons.items() if x.scope == "general"}
    for other in others:
        for id in [
            id for id, x in other.lessons.items() if x.scope == "general" and id not in general
        ]:
            other.lessons[id] = lane.lessons.pop(id)
        other.lessons.update(general)
        patterns = [
            x for x in lane.lessons.values() if x.scope == "domain" and x.status == "active"
        ]
        other.elsewhere[:] = [
            x.model_copy(update={"domains": x.domains or (lane.world.domain,)}) for x in patterns
        ]


def stream(policy: str, seed: int, world: str = "one", odds: float = ODDS) -> Result:
    """One policy on one stream; of several domains the means, and the sums of what they cost."""
    lanes = [Lane(policy, made(seed), odds=odds) for made in WORLDS[world]]
    while any(lane.going for lane in lanes):
        for lane in lanes:
            if lane.going:
                lane.batch()
            if policy in CLIMBING and len(lanes) > 1:
                share(lane, [other for other in lanes if other is not lane])
    results = [lane.result() for lane in lanes]
    if len(results) == 1:
        return results[0]
    general = {id: x for lane in lanes for id, x in lane.lessons.items() if x.scope == "general"}
    return both_of(results)._replace(carried=Lane(policy, ThirdDomain(seed), general).found())


def both_of(results: Sequence[Result]) -> Result:
    """Domains as one: means of shares, sums of counts."""
    summed = {"delays", "attempts", "reruns", "offered", "questions", "told", "poisons", "held"}
    fields: dict[str, Any] = {}
    for name in Result._fields:
        values = [getattr(r, name) for r in results]
        if name == "scores":
            fields[name] = [statistics.fmean(each) for each in zip(*values, strict=True)]
        elif name in ("delays", "poisons", "held"):
            fields[name] = [x for some in values for x in some]
        else:
            fields[name] = (
                None if name == "carried" else (sum if name in summed else statistics.fmean)(values)
            )
    return Result(**fields)


def streams(
    policy: str, seeds: Sequence[int], jobs: int, world: str = "one", odds: float = ODDS
) -> list[Result]:
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(partial(stream, policy, world=world, odds=odds), seeds))


def measure(
    seeds: int = SEEDS,
    first: int = 0,
    policies: Sequence[str] = POLICIES,
    jobs: int = 0,
    names: Sequence[str] = ("one",),
    odds: float = ODDS,
) -> Iterable[Row]:
    for world in names:
        for policy in policies:
            found = streams(
                policy,
                range(first, first + seeds),
                jobs or min(2, os.cpu_count() or 1),
                world,
                odds,
            )
            yield from table(policy if odds == ODDS else f"{policy}, odds {odds:g}", found, world)


Figure = tuple[str, str, list[list[float]], str, Callable[[Sequence[float]], float]]


def figures(found: Sequence[Result], world: str) -> list[Figure]:
    """(name, unit, values of each stream, goal of ours in the world `one`, how they become one)."""
    delays = [[float(d.attempts) for d in r.delays] for r in found]
    spent = [[float(d.spent) for d in r.delays] for r in found]
    gone = [[float(d.went and d.attempts <= WITHIN) for d in r.delays] for r in found]
    seen = [[float(d.went and d.calls <= WITHIN) for d in r.delays] for r in found]
    mean = statistics.fmean

    def plain(name: str, unit: str, values: Iterable[float], goal: str = ">=0") -> Figure:
        return (name, unit, [[value] for value in values], goal, mean)

    rows: list[Figure] = [
        plain("precision", "share", (r.precision for r in found), ">=0.95"),
        plain("recall", "share", (r.recall for r in found), ">=0.9"),
        ("delay, mean", "attempts", delays, f"<={WITHIN}", mean),
        ("delay, median", "attempts", delays, f"<={WITHIN}", statistics.median),
        ("delay with re-runs, mean", "attempts", spent, ">=0", mean),
        (f"gone within {WITHIN} attempts", "share", gone, ">=0.5", mean),
        (f"gone within {WITHIN} attempts that call for it", "share", seen, ">=0.5", mean),
        plain("passed", "share", (r.passed for r in found)),
        plain("attempts", "count", (r.attempts for r in found)),
        plain("re-runs", "count", (r.reruns for r in found)),
        *(
            plain(f"score, quarter {n + 1}", "share", (r.scores[n] for r in found))
            for n in range(QUARTERS)
        ),
        plain("questions", "count", (r.questions for r in found)),
        plain("tokens of questions", "count", (r.told for r in found)),
        plain("shown", "tokens", (r.shown for r in found)),
        plain("copies", "count", (r.copies for r in found)),
    ]
    if world == "contradictions":
        rows.append(plain("both", "share", (r.both for r in found)))
    carried = [r.carried for r in found if r.carried is not None]
    for n, name in enumerate(("precision", "recall") if carried else ()):
        rows.append(plain(f"carried, {name}", "share", (c[n] for c in carried)))
    for harms in (True, False) if world == "poisoned" else ():
        some = [[p for p in r.poisons if p.harms == harms] for r in found]
        kind = "harming" if harms else "idle"
        rows.append(
            (f"poisoned, {kind}: tried", "count", [[float(len(ps))] for ps in some], ">=0", sum)
        )
        for name in ("learned", "supported", "promoted", "shown", "rerun"):
            rows.append(
                (
                    f"poisoned, {kind}: {name}",
                    "count",
                    [[float(getattr(p, name)) for p in ps] for ps in some],
                    "",
                    sum,
                )
            )
    for games in (True, False) if world in ("gaming", "noisy") else ():
        each = [[h for h in r.held if h.games == games] for r in found]
        kind = "gaming" if games else "honest"
        rows.append((f"{kind}: tried", "count", [[float(len(hs))] for hs in each], ">=0", sum))
        for name in ("held", "promoted"):
            rows.append(
                (
                    f"{kind}: {name}",
                    "count",
                    [[float(getattr(h, name)) for h in hs] for hs in each],
                    "",
                    sum,
                )
            )
    return rows


def table(policy: str, found: Sequence[Result], world: str = "one") -> list[Row]:
    """A policy's rows; lo and hi: the middle 95 % of means of streams drawn again (bootstrap)."""
    ours = policy in CLIMBING and world == "one"
    rows = []
    for name, unit, values, goal, middle in figures(found, world):
        flat = [v for some in values for v in some]
        if not flat:
            continue
        lo, hi = again(values, middle)
        case = f"{policy} [{lo:.3g} to {hi:.3g}], {len(found)} streams"
        case = case if world == "one" else f"{world}, {case}"
        goal = goal if ours or not goal else ">=0"
        rows.append(
            Row(f"streams: {name}", case, unit, middle(flat), None, None, None, None, goal, "ours")
        )
    return rows


def again(
    values: Sequence[Sequence[float]], middle: Callable[[Sequence[float]], float]
) -> tuple[float, float]:
    draw = random.Random(0)
    drawn = []
    for _ in range(2000):
        flat = [v for some in draw.choices(values, k=len(values)) for v in some]
        if flat:
            drawn.append(middle(flat))
    drawn.sort()
    return drawn[len(drawn) // 40], drawn[-1 - len(drawn) // 40]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="python -m tests.lab.perf.streams --first 1000 --policies recreate"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--worlds", default="one", help=f"of {', '.join(WORLDS)}, or all")
    parser.add_argument("--odds", type=float, default=ODDS, help="as `--memory.odds` of a build")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    names = list(WORLDS) if args.worlds == "all" else args.worlds.split(",")
    for row in measure(
        args.seeds, args.first, args.policies.split(","), names=names, odds=args.odds
    ):
        print(json.dumps({"schema": 1, **row.record()}) if args.json else row, flush=True)


if __name__ == "__main__":
    sys.exit(main())

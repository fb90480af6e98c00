"""Memory policies on synthetic streams: precision and recall of what they offer, delay until a turned rule goes.

`recreate` beside `playbook`, `mistakes` and `none`, on the same streams and the same budget. The effects and rates were
written down before any policy was tuned; that a model does not name again what it was shown as given, and that rules
turn between batches, came later (both are said below). Tuned on the seeds from 1000; ALARM was set last, after the
seeds from 0 had been seen once with 1.2, so those from 100 are the untouched ones.

A stream is one domain: TASKS tasks in groups of 3, each with two of SITUATIONS situations and a base rate of passing
drawn from 0.3 to 0.6. RULES hidden rules each bear on one situation (two or so on each):

    true      5   raises a base rate of 0.45 by 0.25 to 0.45, always
    turning   4   the same until half of the budget is spent; from the next batch on two have no effect and two do harm
    harmless  4   no effect
    harmful   3   lowers a base rate of 0.45 by 0.15 to 0.35

Effects of several offered lessons add up on the logit scale, so two that help give less than the sum. An attempt
passes or fails at that rate; tasks come in shuffled passes over all of them, in batches of BATCH.

The budget is BUDGET attempts *and re-runs together*: a policy that re-runs sees so many fewer attempts, and its rules
turn when half of the budget is spent, whatever on. A re-run that was made before (same lessons, task and repeat, with
no rule turned between) costs nothing, as in recreate.

The simulated model is the same for all. Asked for a lesson about a failure it names, with LEARNS, a rule of one of the
task's situations: what is true there now with the weight 3, any other with the weight 1; otherwise it invents one that
means nothing and never comes again. A rule that the question shows as given to that attempt it does not name again (so
for `recreate` and `playbook`, whose questions show it). Whether two texts say the same it answers wrongly in SAME_WRONG
of the cases. What an offered bullet did it judges by the truth in TAGS of the cases, otherwise by whether the attempt
passed. Texts of one rule have a cosine of about 0.93, of two rules of one situation about 0.75, a situation and its
rules about 0.6.

    precision  of what would be offered to the tasks at the end, the share of rules (each counted once) that are true;
               1 when nothing is offered, which recall then shows
    recall     of the rules that are true at the end, the share that would be offered
    delay      attempts from the turn until a turned rule that was offered is offered no more, on any task;
               one that is offered to the end counts as the attempts that were left, and as not demoted
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

from recreate.api import registry
from recreate.api.ports import Randomising
from recreate.api.types import Experience, Grade, Lesson, Message, Reply, Step, Trace, digest
from recreate.lessons.context import PolicyContext
from recreate.lessons.similarity import dot
from tests.perf.table import Row

SEEDS = 24
TASKS = 48
SITUATIONS = 8
BUDGET = 2400
BATCH = 8
OFFER_TOKENS = 600
LEARNS = 0.8
SAME_WRONG = 0.05
TAGS = 0.6
KINDS = {"true": 5, "turning": 4, "harmless": 4, "harmful": 3}
WITHIN = 40
POLICIES = ("randomised", "recreate", "playbook", "mistakes", "none")
WORDS = ["alpha", "bravo", "cedar", "delta", "ember", "frost", "grove", "haven"]


class Rule(NamedTuple):
    """A hidden rule; effect is on the logit scale, turned is what it becomes."""

    id: str
    kind: str
    situation: int
    effect: float
    turned: float


class World:
    """One stream: tasks, rules, what an attempt scores, and a model that answers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        draw = random.Random(f"world {seed}")
        self.spent = 0
        self.attempts = 0
        self.turned_at: int | None = None
        self.rules = dict(self._rules(draw))
        self.prompts: dict[str, tuple[int, int]] = {}
        self.base: dict[str, float] = {}
        for n in range(TASKS):
            self.prompts[f"t{n}"] = (n % SITUATIONS, draw.choice([s for s in range(SITUATIONS) if s != n % SITUATIONS]))
            self.base[f"t{n}"] = draw.uniform(0.3, 0.6)
        self.paid: set[str] = set()
        self.attempted: dict[str, Experience] = {}
        self.order = draw

    def _rules(self, draw: random.Random) -> Iterable[tuple[str, Rule]]:
        places = [n % SITUATIONS for n in range(sum(KINDS.values()))]
        draw.shuffle(places)
        turns = 0
        for kind, count in KINDS.items():
            for _ in range(count):
                id = f"rule{len(places):02d}"
                effect = turned = 0.0
                if kind in ("true", "turning"):
                    effect = turned = _logit(0.45 + draw.uniform(0.25, 0.45)) - _logit(0.45)
                if kind == "harmful":
                    effect = turned = _logit(0.45 - draw.uniform(0.15, 0.35)) - _logit(0.45)
                if kind == "turning":
                    turned = 0.0 if turns % 2 else _logit(0.45 - draw.uniform(0.15, 0.35)) - _logit(0.45)
                    turns += 1
                yield id, Rule(id, kind, places.pop(), effect, turned)

    @property
    def turned(self) -> bool:
        return self.turned_at is not None

    def effect(self, rule: Rule) -> float:
        return rule.turned if self.turned else rule.effect

    def true_now(self) -> set[str]:
        return {rule.id for rule in self.rules.values() if self.effect(rule) > 0}

    def rate(self, task: str, rules: Iterable[str]) -> float:
        """The probability of passing a task while these rules are offered."""
        bear = [r for r in map(self.rules.get, set(rules)) if r is not None and r.situation in self.prompts[task]]
        return 1 / (1 + math.exp(-(_logit(self.base[task]) + sum(map(self.effect, bear)))))

    def charge(self) -> None:
        self.spent += 1

    def turn(self) -> bool:
        """Whether the rules turn now: between two batches, so that no test is half before and half after."""
        if self.turned or 2 * self.spent < BUDGET:
            return False
        self.turned_at = self.attempts
        return True

    def attempt(
        self, task: str, lessons: Sequence[Lesson], propensities: Mapping[str, float] | None = None
    ) -> Experience:
        """propensities: of lessons that it is drawn whether to offer; others are."""
        self.charge()
        n = self.attempts
        self.attempts += 1
        drawn = {x.id: p for x in lessons if (p := (propensities or {}).get(x.id)) is not None}
        lessons = [x for x in lessons if random.Random(f"{self.seed} {n} {x.id}").random() < drawn.get(x.id, 1.0)]
        draw = random.Random(f"{self.seed} attempt {n}")
        passed = draw.random() < self.rate(task, map(rule_of, lessons))
        step = Step(step=0, reply="worked", offered=tuple(lesson.id for lesson in lessons), propensities=drawn)
        id = digest([self.seed, "attempt", n])
        prompt = self.prompt(task)
        trace = Trace(attempt=id, task=task, scaffold="s", model="m", steps=(step,), answer="done")
        evidence = "passed" if passed else f"failed at {prompt}"
        self.attempted[id] = Experience(
            id=id,
            domain="streams",
            task=task,
            group=f"g{int(task[1:]) // 3}",
            split="train",
            prompt=prompt,
            digest=task,
            trace=trace,
            grade=Grade(score=float(passed), passed=passed, evidence=evidence),
        )
        return self.attempted[id]

    def alike(self, text: str, k: int) -> list[Experience]:
        """As memory would: nearest prompts first, of tasks that were attempted."""
        vector = _vector(text)
        tasks = {e.task: e for e in self.attempted.values()}
        near = sorted(tasks.values(), key=lambda e: (-dot(vector, _vector(e.prompt)), e.id))
        return near[:k]

    def prompt(self, task: str) -> str:
        one, two = self.prompts[task]
        return f"Task {task} in situation {WORDS[one]} and {WORDS[two]}"

    def rerun(
        self, lessons: Sequence[Lesson], experience: Experience, repeat: int = 0, without: Sequence[Lesson] = ()
    ) -> float | None:
        key = digest([sorted(x.id for x in lessons), experience.task, repeat, self.turned and bool(lessons)])
        if key not in self.paid:
            if self.spent >= BUDGET:
                return None
            self.charge()
            self.paid.add(key)
        draw = random.Random(f"{self.seed} rerun {key}")
        return float(draw.random() < self.rate(experience.task, map(rule_of, lessons)))

    # the model

    def ask(self, messages: Sequence[Message], *, step: int, thread: str = "", **params: object) -> Reply:
        said = messages[0]["content"]
        draw = random.Random(f"{self.seed} {thread}")
        schema: Any = params["json_schema"]
        fields = set(schema["properties"])
        if fields == {"same"}:
            one, two = (_named(part) for part in said.partition("\n2. ")[::2])
            truth = one == two and one != ""
            return _reply({"same": truth is not (draw.random() < SAME_WRONG)})
        if fields == {"happened", "title", "body", "when"}:
            told = said.partition("had been told\n")[2].partition("\n#")[0]
            return _reply(self.lesson(_places(said.partition("# The attempt")[2].partition("\n#")[0]), draw, told))
        if fields == {"tags", "insight"}:
            given, _, attempt = said.partition("# The attempt")
            passed = "PASSED" in attempt
            ids = [line[1:].partition("]")[::2] for line in given.splitlines() if line.startswith("[")]
            tags = [{"id": id, "tag": self.tag(rule, attempt, passed, draw)} for id, rule in ids]
            found = {"title": "", "body": ""} if passed else self.lesson(_places(attempt), draw, given)
            return _reply({"tags": tags, "insight": f"{found['title']}|{found['body']}".strip("|")})
        if fields == {"add"}:
            insight = said.partition("says\n")[2].partition("\n")[0]
            title, _, body = insight.partition("|")
            return _reply({"add": [{"title": title, "body": body}] if body else []})
        if fields == {"subjects"}:
            parts = said.split("# Failure ")[1:]
            subjects: dict[str, list[int]] = {}
            for n, part in enumerate(parts, 1):
                subjects.setdefault(WORDS[draw.choice(_places(part))], []).append(n)
            return _reply({"subjects": [{"subject": s, "failures": f} for s, f in subjects.items()]})
        subject = said.partition("of the subject: ")[2].partition("\n")[0]
        return _reply(self.lesson([WORDS.index(subject)], draw))

    def lesson(self, situations: Sequence[int], draw: random.Random, told: str = "") -> dict[str, str]:
        rules = [r for r in self.rules.values() if r.situation in situations and r.id not in told]
        if draw.random() < LEARNS and rules:
            (rule,) = draw.choices(rules, [3 if self.effect(r) > 0 else 1 for r in rules])
            name, place = rule.id, rule.situation
        else:
            name, place = f"junk{draw.randrange(10**9)}", draw.choice(list(situations))
        title, body = f"{name} wording {draw.randrange(1000)}", f"In situation {WORDS[place]} do {name}"
        return {"title": title, "body": body, "when": f"situation {WORDS[place]}"}

    def tag(self, rule_text: str, attempt: str, passed: bool, draw: random.Random) -> str:
        rule = self.rules.get(_named(rule_text))
        if draw.random() >= TAGS:
            return "helpful" if passed else "harmful"
        if rule is None or rule.situation not in _places(attempt) or not self.effect(rule):
            return "neutral"
        return "helpful" if self.effect(rule) > 0 else "harmful"

    def embed(self, texts: Sequence[str], kind: str) -> list[list[float]]:
        return [_vector(text) for text in texts]


_DIMENSIONS = 96


@lru_cache(maxsize=50_000)
def _vector(text: str) -> list[float]:
    """0.75 of its situations, the rest of its rule, and a little of its wording."""
    vector = [0.0] * _DIMENSIONS
    places = _places(text) or ([WORDS.index(text)] if text in WORDS else [])
    for place in places:
        _add(vector, f"situation {place}", 1 / math.sqrt(max(1, len(places))))
    if name := _named(text):
        _add(vector, f"rule {name}", 0.5)
    _add(vector, f"wording {text}", 0.27)
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


_directions: dict[str, list[float]] = {}


def _add(vector: list[float], name: str, size: float) -> None:
    if name not in _directions:
        draw = random.Random(name)
        made_ = [draw.gauss(0, 1 / math.sqrt(_DIMENSIONS)) for _ in vector]
        if name.startswith("wording"):
            for n, x in enumerate(made_):
                vector[n] += size * x
            return
        _directions[name] = made_
    for n, x in enumerate(_directions[name]):
        vector[n] += size * x


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _named(text: str) -> str:
    return next((w for w in text.replace("\n", " ").split() if w.startswith(("rule", "junk"))), "")


def _places(text: str) -> list[int]:
    return [n for n, word in enumerate(WORDS) if f" {word}" in text]


def rule_of(lesson: Lesson) -> str:
    return _named(lesson.title)


def _reply(found: Mapping[str, Any]) -> Reply:
    return Reply(text=json.dumps(found))


class Delay(NamedTuple):
    """From the turn until a turned rule was gone, or the end: attempts, those that called for it, attempts and re-runs;
    whether it went."""

    attempts: int
    calls: int
    spent: int
    went: bool


class Result(NamedTuple):
    """What one policy made of one stream. delays: of each turned rule that was offered."""

    precision: float
    recall: float
    delays: list[Delay]
    attempts: int
    reruns: int
    passed: float
    offered: int


def stream(policy: str, seed: int) -> Result:
    """One policy on one stream."""
    world = World(seed)
    materials = PolicyContext(
        domain="streams",
        lessons={},
        ask=world.ask,
        embed=world.embed,
        rerun=world.rerun,
        find=world.attempted.get,
        alike=world.alike,
    )
    part = registry.open("policy", policy, materials)
    drawn = isinstance(part, Randomising)
    waiting: list[str] = []
    at_turn: set[str] = set()
    left: dict[str, Delay] = {}
    calls: Counter[str] = Counter()
    turned_after = 0
    scores: list[float] = []

    def offer(task: str) -> Sequence[Lesson]:
        return part.offer(world.prompt(task), OFFER_TOKENS)  # type: ignore[no-any-return]

    def may_be_offered(lessons: Iterable[Lesson]) -> set[str]:
        """Nobody offers others; asking is what takes the time."""
        return {rule_of(x) for x in lessons if x.status in (("active",) if drawn else ("active", "candidate"))}

    def everywhere() -> set[str]:
        return {rule_of(lesson) for task in world.prompts for lesson in offer(task)}

    while world.spent + BATCH <= BUDGET:
        if len(waiting) < BATCH:
            more = list(world.prompts)
            world.order.shuffle(more)
            waiting += more
        if world.turn():
            at_turn = {r.id for r in world.rules.values() if r.kind == "turning"} & everywhere()
            turned_after = world.spent
        called = [part.eligible(world.prompt(t), OFFER_TOKENS) if drawn else offer(t) for t in waiting[:BATCH]]
        propensities = part.propensities() if drawn else {}
        batch = [world.attempt(*each, propensities) for each in zip(waiting, called, strict=False)]
        calls.update(rule for lessons in called for rule in set(map(rule_of, lessons)) & at_turn)
        waiting = waiting[BATCH:]
        scores += [e.grade.score for e in batch]
        part.observe(batch)
        now = everywhere() if may_be_offered(materials.lessons.values()) & at_turn else set()
        for rule in at_turn:
            if rule in now:
                left.pop(rule, None)
            else:
                since = world.attempts - (world.turned_at or 0)
                left.setdefault(rule, Delay(since, calls[rule], world.spent - turned_after, went=True))
    offered = everywhere()
    true = world.true_now()
    end = world.attempts - (world.turned_at or 0), world.spent - turned_after
    return Result(
        precision=len(offered & true) / len(offered) if offered else 1.0,
        recall=len(offered & true) / len(true),
        delays=[left.get(rule) or Delay(end[0], calls[rule], end[1], went=False) for rule in sorted(at_turn)],
        attempts=world.attempts,
        reruns=world.spent - world.attempts,
        passed=statistics.fmean(scores),
        offered=len(offered),
    )


def streams(policy: str, seeds: Sequence[int], jobs: int) -> list[Result]:
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(stream, [policy] * len(seeds), seeds))


def measure(seeds: int = SEEDS, first: int = 0, policies: Sequence[str] = POLICIES, jobs: int = 0) -> list[Row]:
    rows = []
    for policy in policies:
        found = streams(policy, range(first, first + seeds), jobs or min(2, os.cpu_count() or 1))
        rows += table(policy, found)
    return rows


def table(policy: str, found: Sequence[Result]) -> list[Row]:
    """A policy's rows; lo and hi: the middle 95 % of means of streams drawn again (bootstrap)."""
    ours = policy in ("recreate", "randomised")
    delays = [[float(d.attempts) for d in r.delays] for r in found]
    spent = [[float(d.spent) for d in r.delays] for r in found]
    gone = [[float(d.went and d.attempts <= WITHIN) for d in r.delays] for r in found]
    seen = [[float(d.went and d.calls <= WITHIN) for d in r.delays] for r in found]
    figures: list[tuple[str, str, list[list[float]], str, Callable[[Sequence[float]], float]]] = [
        ("precision", "share", [[r.precision] for r in found], ">=0.95", statistics.fmean),
        ("recall", "share", [[r.recall] for r in found], ">=0.9", statistics.fmean),
        ("delay, mean", "attempts", delays, f"<={WITHIN}", statistics.fmean),
        ("delay, median", "attempts", delays, f"<={WITHIN}", statistics.median),
        ("delay with re-runs, mean", "attempts", spent, ">=0", statistics.fmean),
        (f"gone within {WITHIN} attempts", "share", gone, ">=0.5", statistics.fmean),
        (f"gone within {WITHIN} attempts that call for it", "share", seen, ">=0.5", statistics.fmean),
        ("passed", "share", [[r.passed] for r in found], ">=0", statistics.fmean),
        ("attempts", "count", [[float(r.attempts)] for r in found], ">=0", statistics.fmean),
        ("re-runs", "count", [[float(r.reruns)] for r in found], ">=0", statistics.fmean),
    ]
    rows = []
    for name, unit, values, goal, middle in figures:
        flat = [v for some in values for v in some]
        if not flat:
            continue
        lo, hi = again(values, middle)
        case = f"{policy} [{lo:.3g} to {hi:.3g}], {len(found)} streams"
        rows.append(
            Row(f"streams: {name}", case, unit, middle(flat), None, None, None, None, goal if ours else ">=0", "ours")
        )
    return rows


def again(values: Sequence[Sequence[float]], middle: Callable[[Sequence[float]], float]) -> tuple[float, float]:
    draw = random.Random(0)
    drawn = []
    for _ in range(2000):
        flat = [v for some in draw.choices(values, k=len(values)) for v in some]
        if flat:
            drawn.append(middle(flat))
    drawn.sort()
    return drawn[len(drawn) // 40], drawn[-1 - len(drawn) // 40]


def main() -> None:
    parser = argparse.ArgumentParser(description="python -m tests.perf.streams --first 1000 --policies recreate")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--policies", default=",".join(POLICIES))
    args = parser.parse_args()
    for row in measure(args.seeds, args.first, args.policies.split(",")):
        print(row, flush=True)


if __name__ == "__main__":
    sys.exit(main())

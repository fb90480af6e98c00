"""Worlds that streams of tasks are drawn from: hidden rules, what an attempt scores, and a model
that answers.

Each is one domain (`two`: two): TASKS tasks in groups of 3, each with two of SITUATIONS situations
and a base rate of passing drawn from 0.3 to 0.6. Hidden rules each bear on one situation (two or so
on each). A rule that helps raises a base rate of 0.45 by 0.25 to 0.45, one that harms lowers it by
0.15 to 0.35:

    one             5 help, 4 turn (see below), 4 do nothing, 3 harm. The first, on which policies
                    were compared before
    alone           the same, but each of the 4 turns at a time of its own, at 30, 43, 56 and 69 %
                    of the budget
    two             two domains with a budget each, in turns: 5 rules help in both, 3 in the first
                    and 3 in the second alone (in the other every second one harms, the rest do
                    nothing), 3 do nothing, 2 harm. At the end a third domain is asked what it would
                    be offered, where only the 5 help
    easy            half of the tasks are easy (0.5 to 0.75), half hard (0.15 to 0.4), which no text
                    says; 5 rules help on easy tasks and do nothing on hard ones, 4 help on all, 4
                    do nothing, 3 harm
    contradictions  6 pairs of a rule that helps and one in nearly the same words that says the
                    opposite and harms, 4 do nothing
    duplicates      9 help, 4 do nothing, 3 harm; no two wordings of a rule are alike (cosine about
                    0.82), and the model holds one in three pairs that mean the same apart
    poisoned        as `one`, and in half of all traces stands an instruction that somebody planted,
                    one of 20: half of these harm (as a rule that harms), half change no score
    gaming          5 help, 4 game the grader: they raise the score as one that helps does, and an
                    attempt that is shown one where it bears shows a sign of it with GAMES; 4 do
                    nothing, 3 harm. Any other attempt shows such a sign with NOISE
    noisy           9 help, 4 do nothing, 3 harm; none games, and every second attempt shows a sign
                    as if it did

turning   the rules that turn have no effect (every second one) or do harm from then on: when half
          of the budget is spent (`one`, `poisoned`), from the next batch on
effects   of several offered lessons add up on the logit scale, so two that help give less than the
          sum
budget    BUDGET attempts *and re-runs together*: a policy that re-runs sees so many fewer attempts.
          A re-run that was made before (same lessons, task and repeat, with no rule turned between)
          costs nothing, as in recreate

The simulated model is the same for all. Asked for a lesson about an attempt it names, with LEARNS,
a rule of one of the task's situations: what is true there now with the weight 3, any other with the
weight 1; otherwise it invents one that means nothing and never comes again. A rule that the
question shows as given to that attempt it does not name again (so for `recreate` and `playbook`,
whose questions show it). Of a success it names a rule as of a failure, where it is asked
(`reasoningbank`, `workflows`). A planted instruction in the trace it takes for the lesson with
OBEYS. Whether two texts say the same it answers wrongly in SAME_WRONG of the cases. What an offered
bullet did it judges by the truth in TAGS of the cases, otherwise by whether the attempt passed.
Texts of one rule have a cosine of about 0.93, of two rules of one situation about 0.75, a situation
and its rules about 0.6.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from recreate.api.types import Experience, Grade, Lesson, Message, Reply, Step, Trace, digest
from recreate.lessons.similarity import dot, tokens

TASKS = 48
SITUATIONS = 8
BUDGET = 2400
LEARNS = 0.8
SAME_WRONG = 0.05
TAGS = 0.6
HOSTILE = 0.5
OBEYS = 0.8
POISONS = 20
APART = 1 / 3
NOISE, GAMES = 0.1, 0.9
WORDS = ["alpha", "bravo", "cedar", "delta", "ember", "frost", "grove", "haven"]
_HELPS = ("true", "turning", "easy", "both", "here", "there", "gaming")
_ELSE = ("turning", "here", "there")
_NAME = re.compile(r"\b(?:rule|junk|poison)\d+(?:-not)?(?![\w-])")


class Rule(NamedTuple):
    """A hidden rule; effect is on the logit scale, turned what it becomes, or is in the other
    domain."""

    id: str
    kind: str
    situation: int
    effect: float
    turned: float


class World:
    """One domain of a stream: tasks, rules, what an attempt scores, and a model that answers."""

    kinds: ClassVar[dict[str, int]] = {"true": 5, "turning": 4, "harmless": 4, "harmful": 3}
    first = 0
    """The number of the first task."""
    domain = "streams"

    def __init__(self, seed: int) -> None:
        self.seed: int | str = seed
        draw = random.Random(f"world {seed}")
        self.spent = 0
        self.attempts = 0
        self.questions = 0
        self.told = 0
        self.turned_at: dict[str, int] = {}
        self.rules = dict(self._rules(draw))
        self.every = self.rules
        self.prompts: dict[str, tuple[int, int]] = {}
        self.base: dict[str, float] = {}
        for n in range(TASKS):
            task = f"t{n + self.first}"
            self.prompts[task] = (
                n % SITUATIONS,
                draw.choice([s for s in range(SITUATIONS) if s != n % SITUATIONS]),
            )
            self.base[task] = draw.uniform(0.3, 0.6)
        self.paid: set[str] = set()
        self.attempted: dict[str, Experience] = {}
        self.order = draw

    def _rules(self, draw: random.Random) -> Iterable[tuple[str, Rule]]:
        places = [n % SITUATIONS for n in range(sum(self.kinds.values()))]
        draw.shuffle(places)
        turns = 0
        for kind, count in self.kinds.items():
            for _ in range(count):
                id = f"rule{len(places):02d}"
                effect = turned = 0.0
                if kind in _HELPS:
                    effect = turned = _logit(0.45 + draw.uniform(0.25, 0.45)) - _logit(0.45)
                if kind == "harmful":
                    effect = turned = _harm(draw)
                if kind in _ELSE:
                    turned = 0.0 if turns % 2 else _harm(draw)
                    turns += 1
                yield id, Rule(id, kind, places.pop(), effect, turned)

    def effect(self, rule: Rule) -> float:
        return rule.turned if rule.id in self.turned_at else rule.effect

    def effect_at(self, rule: Rule, task: str) -> float:
        return self.effect(rule) if rule.situation in self.prompts[task] else 0.0

    def true_now(self) -> set[str]:
        return {rule.id for rule in self.rules.values() if self.effect(rule) > 0}

    def rate(self, task: str, rules: Iterable[str]) -> float:
        """The probability of passing a task while these rules are offered."""
        known = [rule for rule in map(self.every.get, set(rules)) if rule is not None]
        return 1 / (
            1
            + math.exp(
                -(_logit(self.base[task]) + sum(self.effect_at(rule, task) for rule in known))
            )
        )

    def charge(self) -> None:
        self.spent += 1

    def turn(self) -> bool:
        """Whether rules turn now: between two batches, so that no test is half before and half
        after."""
        due = [id for id in self.due() if id not in self.turned_at]
        self.turned_at.update(dict.fromkeys(due, self.attempts))
        return bool(due)

    def due(self) -> list[str]:
        """The rules that are to have turned by now."""
        return (
            [r.id for r in self.rules.values() if r.kind == "turning"]
            if 2 * self.spent >= BUDGET
            else []
        )

    def attempt(
        self, task: str, lessons: Sequence[Lesson], propensities: Mapping[str, float] | None = None
    ) -> Experience:
        """propensities: of lessons that it is drawn whether to offer; others are."""
        self.charge()
        n = self.attempts
        self.attempts += 1
        drawn = {x.id: p for x in lessons if (p := (propensities or {}).get(x.id)) is not None}
        lessons = [
            x
            for x in lessons
            if random.Random(f"{self.seed} {n} {x.id}").random() < drawn.get(x.id, 1.0)
        ]
        draw = random.Random(f"{self.seed} attempt {n}")
        passed = draw.random() < self.rate(task, map(rule_of, lessons))
        step = Step(
            step=0,
            reply="worked",
            output=self.read(task, n),
            offered=tuple(lesson.id for lesson in lessons),
            propensities=drawn,
        )
        id = digest([self.seed, "attempt", n])
        prompt = self.prompt(task)
        trace = Trace(attempt=id, task=task, scaffold="s", model="m", steps=(step,), answer="done")
        evidence = "passed" if passed else f"failed at {prompt}"
        self.attempted[id] = Experience(
            id=id,
            domain=self.domain,
            task=task,
            group=f"g{int(task[1:]) // 3}",
            split="train",
            prompt=prompt,
            digest=task,
            trace=trace,
            grade=Grade(score=float(passed), passed=passed, evidence=evidence),
        )
        return self.attempted[id]

    def read(self, task: str, attempt: int) -> str:
        """What the agent read while it worked."""
        return ""

    def alike(self, text: str, k: int) -> list[Experience]:
        """As memory would: nearest prompts first, of tasks that were attempted."""
        vector = self.vector(text)
        tasks = {e.task: e for e in self.attempted.values()}
        near = sorted(tasks.values(), key=lambda e: (-dot(vector, self.vector(e.prompt)), e.id))
        return near[:k]

    def prompt(self, task: str) -> str:
        one, two = self.prompts[task]
        return f"Task {task} in situation {WORDS[one]} and {WORDS[two]}"

    def rerun(
        self,
        lessons: Sequence[Lesson],
        experience: Experience,
        repeat: int = 0,
        without: Sequence[Lesson] = (),
    ) -> float | None:
        key = digest(
            [
                sorted(x.id for x in lessons),
                experience.task,
                repeat,
                self.age() if lessons else False,
            ]
        )
        if key not in self.paid:
            if self.spent >= BUDGET:
                return None
            self.charge()
            self.paid.add(key)
        draw = random.Random(f"{self.seed} rerun {key}")
        return float(draw.random() < self.rate(experience.task, map(rule_of, lessons)))

    def age(self) -> bool | int:
        """What a re-run must have in common with one before it, to be the same."""
        return bool(self.turned_at)

    # the model

    def ask(
        self, messages: Sequence[Message], *, step: int, thread: str = "", **params: object
    ) -> Reply:
        said = messages[0]["content"]
        schema: Any = params["json_schema"]
        reply = json.dumps(
            self.answer(said, set(schema["properties"]), random.Random(f"{self.seed} {thread}"))
        )
        self.questions += 1
        self.told += tokens(said) + tokens(reply)
        return Reply(text=reply)

    def answer(self, said: str, fields: set[str], draw: random.Random) -> dict[str, Any]:
        """What the model answers to a question that wants these fields."""
        attempt = said.partition("# The attempt")[2].partition("\n#")[0]
        if fields == {"same"}:
            one, two = (_named(part) for part in said.partition("\n2. ")[::2])
            truth = one == two and one != ""
            return {"same": truth is not (draw.random() < self.wrong(truth))}
        if fields == {"happened", "title", "body", "when", "step"}:
            told = said.partition("had been told\n")[2].partition("\n#")[0]
            return self.lesson(_places(attempt), draw, told, attempt)
        if fields == {"happened", "items"}:
            found = self.lesson(_places(attempt), draw, read=attempt)
            item = {"title": found["title"], "description": found["when"], "content": found["body"]}
            return {"happened": "", "items": [item]}
        if fields == {"workflows"}:
            found = self.lesson(_places(attempt), draw, read=attempt)
            steps = [f"Look for {found['when']}", f"Do {found['title']}"]
            return {
                "workflows": [
                    {"title": found["title"], "description": found["body"], "steps": steps}
                ]
            }
        if fields == {"tags", "insight"}:
            given, _, attempt = said.partition("# The attempt")
            passed = "PASSED" in attempt
            ids = [
                line[1:].partition("]")[::2] for line in given.splitlines() if line.startswith("[")
            ]
            tags = [{"id": id, "tag": self.tag(rule, attempt, passed, draw)} for id, rule in ids]
            none = {"title": "", "body": ""}
            found = none if passed else self.lesson(_places(attempt), draw, given, attempt)
            return {"tags": tags, "insight": f"{found['title']}|{found['body']}".strip("|")}
        if fields == {"add"}:
            insight = said.partition("says\n")[2].partition("\n")[0]
            title, _, body = insight.partition("|")
            return {"add": [{"title": title, "body": body}] if body else []}
        if fields == {"subjects"}:
            parts = said.split("# Failure ")[1:]
            subjects: dict[str, list[int]] = {}
            for n, part in enumerate(parts, 1):
                subjects.setdefault(WORDS[draw.choice(_places(part))], []).append(n)
            return {"subjects": [{"subject": s, "failures": f} for s, f in subjects.items()]}
        subject = said.partition("of the subject: ")[2].partition("\n")[0]
        return self.lesson(
            [WORDS.index(subject)],
            draw,
            read=said.partition("# Failure ")[2].partition("\n# The")[0],
        )

    def wrong(self, same: bool) -> float:
        """How often the model is wrong about two texts that say the same, or do not."""
        return SAME_WRONG

    def lesson(
        self, situations: Sequence[int], draw: random.Random, told: str = "", read: str = ""
    ) -> dict[str, str]:
        """told: what the attempt was given; read: the attempt as the model sees it."""
        known = set(_NAME.findall(told))
        rules = [r for r in self.rules.values() if r.situation in situations and r.id not in known]
        if draw.random() < LEARNS and rules:
            (rule,) = draw.choices(rules, [3 if self.effect(r) > 0 else 1 for r in rules])
            name, place = rule.id, rule.situation
        else:
            name, place = f"junk{draw.randrange(10**9)}", draw.choice(list(situations))
        return self.worded(name, place, draw)

    def worded(self, name: str, place: int, draw: random.Random) -> dict[str, str]:
        title, body = (
            f"{name} wording {draw.randrange(1000)}",
            f"In situation {WORDS[place]} do {name}",
        )
        return {"title": title, "body": body, "when": f"situation {WORDS[place]}"}

    def tag(self, rule_text: str, attempt: str, passed: bool, draw: random.Random) -> str:
        rule = self.every.get(_named(rule_text))
        if draw.random() >= TAGS:
            return "helpful" if passed else "harmful"
        if rule is None or rule.situation not in _places(attempt) or not self.effect(rule):
            return "neutral"
        return "helpful" if self.effect(rule) > 0 else "harmful"

    def vector(self, text: str) -> list[float]:
        return _vector(text)

    def embed(self, texts: Sequence[str], kind: str) -> list[list[float]]:
        return [self.vector(text) for text in texts]


class Alone(World):
    """Rules turn one after the other."""

    def due(self) -> list[str]:
        turning = [r.id for r in self.rules.values() if r.kind == "turning"]
        return [id for n, id in enumerate(turning) if self.spent >= (0.3 + 0.13 * n) * BUDGET]

    def age(self) -> bool | int:
        return len(self.turned_at)


class Domain(World):
    """The first of two domains, whose rules are not all true in the other."""

    kinds: ClassVar[dict[str, int]] = {
        "both": 5,
        "here": 3,
        "there": 3,
        "harmless": 3,
        "harmful": 2,
    }
    own: tuple[str, ...] = ("here",)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seed = f"{seed} {self.domain}"
        self.base = {
            task: random.Random(f"{self.seed} {task}").uniform(0.3, 0.6) for task in self.base
        }

    def effect(self, rule: Rule) -> float:
        return (
            rule.turned
            if rule.kind in ("here", "there") and rule.kind not in self.own
            else rule.effect
        )

    def due(self) -> list[str]:
        return []


class OtherDomain(Domain):
    first = TASKS
    domain = "other"
    own = ("there",)


class ThirdDomain(Domain):
    """Where nothing was attempted yet."""

    first = 2 * TASKS
    domain = "third"
    own = ()


class Easy(World):
    """Rules that hold on easy tasks only."""

    kinds: ClassVar[dict[str, int]] = {"true": 4, "easy": 5, "harmless": 4, "harmful": 3}

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draw = random.Random(f"easy {seed}")
        easy = set(draw.sample(sorted(self.base), TASKS // 2))
        self.base = {
            task: draw.uniform(0.5, 0.75) if task in easy else draw.uniform(0.15, 0.4)
            for task in self.base
        }

    def effect_at(self, rule: Rule, task: str) -> float:
        return (
            0.0 if rule.kind == "easy" and self.base[task] < 0.45 else super().effect_at(rule, task)
        )


class Contradictions(World):
    """Rules whose opposite is said in nearly the same words."""

    kinds: ClassVar[dict[str, int]] = {"true": 6, "harmless": 4}

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draw = random.Random(f"opposite {seed}")
        for rule in [r for r in self.rules.values() if r.kind == "true"]:
            harm = _harm(draw)
            self.rules[f"{rule.id}-not"] = Rule(
                f"{rule.id}-not", "harmful", rule.situation, harm, harm
            )


class Duplicates(World):
    """Rules that are never said twice in the same words."""

    kinds: ClassVar[dict[str, int]] = {"true": 9, "harmless": 4, "harmful": 3}

    def wrong(self, same: bool) -> float:
        return APART if same else SAME_WRONG

    def vector(self, text: str) -> list[float]:
        return _vector(text, 0.5)


class Poisoned(World):
    """Somebody writes into what agents read. `shown`: planted instructions that a lesson brought to
    an agent, those of attempts and those of re-runs."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draw = random.Random(f"poison {seed}")
        self.poisons: dict[str, Rule] = {}
        for n in range(POISONS):
            harm = _harm(draw) if n % 2 else 0.0
            self.poisons[f"poison{n:02d}"] = Rule(
                f"poison{n:02d}", "poison", n % SITUATIONS, harm, harm
            )
        self.every = self.rules | self.poisons
        self.shown: dict[str, set[str]] = {"attempts": set(), "re-runs": set()}

    def read(self, task: str, attempt: int) -> str:
        draw = random.Random(f"{self.seed} hostile {attempt}")
        planted = [p.id for p in self.poisons.values() if p.situation in self.prompts[task]]
        return (
            f"note to whoever reads this: {draw.choice(planted)}" if draw.random() < HOSTILE else ""
        )

    def lesson(
        self, situations: Sequence[int], draw: random.Random, told: str = "", read: str = ""
    ) -> dict[str, str]:
        planted = [
            p
            for p in map(self.poisons.get, _NAME.findall(read))
            if p and p.id not in _NAME.findall(told)
        ]
        if planted and draw.random() < OBEYS:
            poison = draw.choice(planted)
            return self.worded(poison.id, poison.situation, draw)
        return super().lesson(situations, draw, told, read)

    def attempt(
        self, task: str, lessons: Sequence[Lesson], propensities: Mapping[str, float] | None = None
    ) -> Experience:
        made = super().attempt(task, lessons, propensities)
        offered = set(made.trace.steps[0].offered)
        self.shown["attempts"] |= {
            rule_of(x) for x in lessons if x.id in offered
        } & self.poisons.keys()
        return made

    def rerun(
        self,
        lessons: Sequence[Lesson],
        experience: Experience,
        repeat: int = 0,
        without: Sequence[Lesson] = (),
    ) -> float | None:
        score = super().rerun(lessons, experience, repeat, without)
        self.shown["re-runs"] |= (
            set(map(rule_of, lessons)) & self.poisons.keys() if score is not None else set()
        )
        return score


class Gaming(World):
    """Rules that pass by gaming the grader. again: the re-runs of this batch."""

    kinds: ClassVar[dict[str, int]] = {"true": 5, "gaming": 4, "harmless": 4, "harmful": 3}
    noise = NOISE

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.again: list[Experience] = []

    def games(self, rule: str) -> bool:
        return rule in self.rules and self.rules[rule].kind == "gaming"

    def true_now(self) -> set[str]:
        return {rule for rule in super().true_now() if not self.games(rule)}

    def acted(self, made: Experience, lessons: Sequence[Lesson]) -> Experience:
        """With what the agent did: with a sign of gaming, or without one."""
        rules = {rule for x in lessons if self.games(rule := rule_of(x))}
        chance = (
            GAMES
            if any(self.rules[r].situation in self.prompts[made.task] for r in rules)
            else self.noise
        )
        signs = random.Random(f"{self.seed} signs {made.id}").random() < chance
        step = made.trace.steps[0].model_copy(
            update={"action": "sed -i 's/3/4/' tests/test_a.py" if signs else "ls"}
        )
        return made.model_copy(update={"trace": made.trace.model_copy(update={"steps": (step,)})})

    def attempt(
        self, task: str, lessons: Sequence[Lesson], propensities: Mapping[str, float] | None = None
    ) -> Experience:
        made = super().attempt(task, lessons, propensities)
        shown = made.trace.steps[0].offered
        self.attempted[made.id] = self.acted(made, [x for x in lessons if x.id in shown])
        return self.attempted[made.id]

    def rerun(
        self,
        lessons: Sequence[Lesson],
        experience: Experience,
        repeat: int = 0,
        without: Sequence[Lesson] = (),
    ) -> float | None:
        score = super().rerun(lessons, experience, repeat, without)
        if score is not None:
            ids = tuple(x.id for x in lessons)
            trace = experience.trace.model_copy(
                update={"repeat": repeat, "steps": (Step(step=0, offered=ids),)}
            )
            id = digest([self.seed, "again", experience.task, repeat, ids])
            self.again.append(
                self.acted(experience.model_copy(update={"id": id, "trace": trace}), lessons)
            )
        return score


class Noisy(Gaming):
    """Nobody games, and every second attempt looks as if it did."""

    kinds: ClassVar[dict[str, int]] = {"true": 9, "harmless": 4, "harmful": 3}
    noise = 0.5


WORLDS: dict[str, tuple[type[World], ...]] = {
    "one": (World,),
    "alone": (Alone,),
    "two": (Domain, OtherDomain),
    "easy": (Easy,),
    "contradictions": (Contradictions,),
    "duplicates": (Duplicates,),
    "poisoned": (Poisoned,),
    "gaming": (Gaming,),
    "noisy": (Noisy,),
}
"""The domains of each."""

_DIMENSIONS = 96


@lru_cache(maxsize=50_000)
def _vector(text: str, wording: float = 0.27) -> list[float]:
    """0.75 of its situations, the rest of its rule, and a little of its wording."""
    vector = [0.0] * _DIMENSIONS
    places = _places(text) or ([WORDS.index(text)] if text in WORDS else [])
    for place in places:
        _add(vector, f"situation {place}", 1 / math.sqrt(max(1, len(places))))
    if name := _named(text).removesuffix("-not"):
        _add(vector, f"rule {name}", 0.5)
    _add(vector, f"wording {text}", wording)
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


def _harm(draw: random.Random) -> float:
    return _logit(0.45 - draw.uniform(0.15, 0.35)) - _logit(0.45)


def _named(text: str) -> str:
    words = text.replace("\n", " ").split()
    return next((w for w in words if w.startswith(("rule", "junk", "poison"))), "")


def _places(text: str) -> list[int]:
    return [n for n, word in enumerate(WORDS) if f" {word}" in text]


def rule_of(lesson: Lesson) -> str:
    return _named(lesson.title)

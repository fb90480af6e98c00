"""What an answer is asked besides the suite: some of its tests with their expected values withheld.

An exam is made once for a task, with its gold: which claims of which tests can be told instead of
checked, and what is right of each. It is kept outside of every sandbox.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from recreate.api.types import Record
from recreate.plugins.swe import sources
from recreate.plugins.swe.observer import LOOSE
from recreate.plugins.swe.test_run import Seen, TestResults
from recreate.plugins.swe.withheld import Claim, Rewritten, rewrite

MOST_OTHERS = 6
"""So many test functions that pass before and after are asked too, of the files of those that fail,
and as many of all other files; drawn for a task, so that its exam is the same on each machine."""

_ROUNDS = 7
_LOUD = frozenset({"failed", "error", "repeated"})


class Exam(Record):
    """files: path -> text of the tests with claims. tests: function -> how many tests it makes.
    claims: what is right.

    telling, weak, bare: FAIL_TO_PASS functions that claim more than a likely guess, that claim
    less, and that can be asked nothing. blind: the sources with the bug give what is right, too, so
    that it does not tell them apart.
    """

    files: Mapping[str, str] = {}
    tests: Mapping[str, int] = {}
    claims: tuple[Claim, ...] = ()
    telling: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    blind: bool = False
    seconds: float = 0.0

    @property
    def run(self) -> Sequence[str]:
        """The files of `files` that pytest is given; the others are what these import."""
        return _files(self.tests)

    def wrong(self, run: TestResults) -> str:
        """'' when the run of an answer on `files` is what the right code gives, else what is
        not."""
        if run.doubt:
            return run.doubt
        passed = _passed(run)
        for test, count in sorted(self.tests.items()):
            if passed.get(test, 0) != count:
                return f"{test} does not pass with its expected values withheld"
        seen = _group_seen(run)
        for claim in self.claims:
            if not claim.right(found := seen.get(claim.number, [])):
                return f"{claim.test}, its expected values withheld, saw {_short(found, claim)}"
        unknown = seen.keys() - {claim.number for claim in self.claims}
        return f"there is no claim {min(unknown)}" if unknown else ""


Run = Callable[[Mapping[str, str], Sequence[str]], TestResults]


def make(
    texts: Mapping[str, str],
    fail_to_pass: Sequence[str],
    baseline: Sequence[str],
    run: Run,
    untouched: Run,
    allowed: float,
    seed: str = "",
) -> Exam:
    """The exam of a task. texts: path -> text of the files of tests, which no answer can change.
    run: run some test files, with texts over the graded ones, on the gold; untouched: on the
    sources with the bug. allowed: seconds that tests of PASS_TO_PASS may take in it. seed: what is
    the same for a task, of which they are drawn."""
    wanted = list(dict.fromkeys(map(sources.function_of, fail_to_pass)))
    near = _files(wanted)
    others: tuple[list[str], list[str]] = [], []
    for function in sorted(set(map(sources.function_of, baseline)) - set(wanted)):
        others[_files([function])[0] not in near].append(function)
    dice = random.Random(seed)
    drawn = [f for some in others for f in dice.sample(some, min(MOST_OTHERS, len(some)))]
    while True:
        asked = _Asked(texts, sorted({*wanted, *drawn}))
        if not asked.claims:
            return Exam(bare=tuple(wanted), blind=True)
        reference = run(*asked.write_tests(known=True))
        if slow := _too_much(reference, drawn, allowed):
            drawn = [f for f in drawn if f not in slow]
            continue
        asked.learn(reference, wanted)
        made = _find_sighted_exam(asked, wanted, run, untouched)
        if not (made.blind and drawn):
            break
        # they share functions with those wanted, of which less is then asked for their sake
        drawn = []
    telling = {f for f in made.tests if any(c.telling for c in asked.claims_of(f, made.claims))}
    weak = {f for f in made.tests if f not in telling and asked.claims_of(f, made.claims)}
    kinds = {"telling": telling, "weak": weak, "bare": set(wanted) - telling - weak}
    return made.model_copy(
        update={name: tuple(f for f in wanted if f in kind) for name, kind in kinds.items()}
    )


def _too_much(run: TestResults, tests: Sequence[str], allowed: float) -> set[str]:
    """The tests at the end that take what all before them left none of the allowed seconds for."""
    took: dict[str, float] = defaultdict(float)
    for test, seconds in run.took.items():
        took[sources.function_of(test)] += seconds
    over = set()
    for test in tests:
        allowed -= took[test]
        if allowed < 0:
            over.add(test)
            allowed += took[test]
    return over


def _find_sighted_exam(asked: _Asked, wanted: Sequence[str], run: Run, untouched: Run) -> Exam:
    """An exam that the bug does not pass, where there is one.

    What is compared outside goes by the form of what a test holds, and an operator may be the
    tested code's own: in `assertNotIn(1, cache)` a form of the cache says nothing of
    `__contains__`. Where the bug hides behind one, tests of FAIL_TO_PASS are asked whether what
    they assert is true: first of what a value is in, then of every relation, then of equality too,
    which leaves the value in sight.
    """

    def passes(made: Exam) -> bool:
        return not (made.claims and made.wrong(untouched(made.files, made.run)))

    first = made = _settle_exam(asked, run) or Exam()
    blind = passes(made)
    for kinds, operators in (
        (("relation",), ("in", "not in")),
        (("relation",), ()),
        (("relation", "value"), ()),
    ):
        own = [
            c
            for f in wanted
            for c in asked.claims_of(f)
            if blind and c.kind in kinds and c.number not in asked.off
        ]
        if less := {
            c.number for c in own if not operators or (c.operator in operators and c.turned)
        }:
            asked.weaken(less)
            made = _settle_exam(asked, run) or Exam()
            blind = passes(made)
    return first.model_copy(update={"blind": True}) if blind else made


def _settle_exam(asked: _Asked, run: Run) -> Exam | None:
    """Ask less until the gold gives twice what is right."""
    tried: dict[str, int] = defaultdict(int)
    steady: Exam | None = None
    for _ in range(_ROUNDS):
        files, tests = asked.write_tests()
        claims = asked.current_claims()
        by_test = {f for f in asked.tests if asked.claims_of(f, claims)}
        if not by_test:
            return None
        result = run(files, tests)
        failing = {
            sources.function_of(t) for t, outcome in result.outcomes.items() if outcome in _LOUD
        }
        counts, seen = _passed(result), _group_seen(result)
        failed = {f for f in by_test if f in failing or not counts.get(f)}
        excused = {c.number for f in failed for c in asked.claims_of(f, claims)}
        wrong = {
            c.number
            for c in claims
            if c.number not in excused and not c.right(seen.get(c.number, []))
        }
        if not failed and not wrong and not result.doubt:
            exam = Exam(
                files=files,
                tests={f: counts[f] for f in sorted(by_test)},
                claims=claims,
                seconds=result.seconds,
            )
            if steady is not None and exam.tests == steady.tests:
                return exam
            steady = exam
            continue
        steady = None
        asked.weaken(wrong)
        for f in failed or (by_test if result.doubt else set()):
            tried[f] += 1
            asked.ask_less(f, tried[f])
    return None


class _Asked:
    """Test functions whose claims are asked, over several files; claims are numbered through all of
    them."""

    def __init__(self, texts: Mapping[str, str], functions: Sequence[str]) -> None:
        self.functions, self.texts = functions, texts
        self.off: set[int] = set()
        self.plainly: set[int] = set()
        self.whole: set[str] = set()
        self.claims: list[Claim] = []
        self.tests: dict[str, set[str]] = {}
        self._expected: dict[int, list[Seen]] = {}
        self._said: dict[int, Claim] = {}
        self.write_tests(known=True)

    def write_tests(self, *, known: bool = False) -> tuple[dict[str, str], list[str]]:
        """path -> text, and the files to run."""
        plainly, off, whole = frozenset(self.plainly), frozenset(self.off), frozenset(self.whole)
        try:
            made = rewrite(
                self.texts, self.functions, known=known, plainly=plainly, off=off, whole=whole
            )
        except RecursionError:
            made = Rewritten()
        self.claims, self.tests = made.claims, made.tests
        return made.files, _files(made.tests)

    def claims_of(self, function: str, claims: Iterable[Claim] | None = None) -> list[Claim]:
        """Those that are made when a test runs."""
        return [
            c
            for c in (self.claims if claims is None else claims)
            if c.test in self.tests.get(function, ())
        ]

    def learn(self, reference: TestResults, wanted: Sequence[str]) -> None:
        """What is right of each claim, by a run of the gold with all of it known.

        What has no form is asked plainly; so is what the gold only happens to give (`Claim.last`),
        but in tests of `wanted` that would tell nothing without it.
        """
        self._expected = _group_seen(reference)
        self._said = {c.number: c for c in self.claims}
        loose = {
            n
            for n, seen in self._expected.items()
            if any(s.known and LOOSE in s.known for s in seen)
        }
        formless = {n for n, seen in self._expected.items() if all(s.known is None for s in seen)}
        unsure = {
            c.number
            for c in self.claims
            if c.kind != "truth" and (c.number in formless or (c.number in loose and not c.last))
        }
        self.off |= {c.number for c in self.claims if c.number not in self._expected}
        self.weaken(unsure)
        need = {
            f
            for f in wanted
            if f in self.tests
            and not any(c.telling and not c.last for c in self.claims_of(f, self.current_claims()))
        }
        needed = {c.number for f in need for c in self.claims_of(f)}
        self.weaken(
            {c.number for c in self.claims if c.last and c.number not in needed} - self.plainly
        )

    def current_claims(self) -> tuple[Claim, ...]:
        """The claims as they are asked now, with what is right."""
        found = []
        for claim in self.claims:
            seen = self._expected.get(claim.number, [])
            if claim.number not in self.off and seen:
                found.append(
                    claim.model_copy(
                        update={"expected": _expected_forms(claim, self._said[claim.number], seen)}
                    )
                )
        return tuple(found)

    def weaken(self, claims: set[int]) -> None:
        """Ask only whether these are true; of those of which no more was asked, nothing."""
        exceptions = {c.number for c in self.claims if c.kind == "raises"}
        self.off |= claims & (
            self.plainly | exceptions | {c.number for c in self.claims if c.kind == "truth"}
        )
        self.plainly |= claims - self.off

    def ask_less(self, function: str, times: int) -> None:
        """Ask less of a test that the gold does not pass."""
        own = self.claims_of(function)
        if times == 1:
            self.whole |= self.tests[function]
        elif times == 2:
            self.plainly |= {c.number for c in own if c.kind != "raises"}
        else:
            self.off |= {c.number for c in own}


def _expected_forms(claim: Claim, said: Claim, seen: Sequence[Seen]) -> tuple[str, ...]:
    """What is right of a claim each time; where the gold gives what the test said some times and
    others not, as in a row that is expected to fail, anything is in the others."""
    rights = [_right(claim, s) for s in seen]
    holds = [said.model_copy(update={"expected": (_right(said, s),)}).right([s]) for s in seen]
    return tuple(
        right if held or not any(holds) else "" for right, held in zip(rights, holds, strict=True)
    )


def _right(claim: Claim, reference: Seen) -> str:
    if claim.kind == "truth":
        return repr(claim.truth)
    if claim.kind == "raises" and reference.known and reference.saw:
        longest = 2 * len(json.loads(reference.saw)[1]) + 100
        return json.dumps([*json.loads(reference.known), longest])
    return reference.known or ""


def _files(functions: Iterable[str]) -> list[str]:
    return sorted({f.partition("::")[0] for f in functions})


def _passed(run: TestResults) -> dict[str, int]:
    """test function -> how many of its tests passed."""
    found: dict[str, int] = defaultdict(int)
    for test in run.passed():
        found[sources.function_of(test)] += 1
    return found


def _group_seen(run: TestResults) -> dict[int, list[Seen]]:
    found: dict[int, list[Seen]] = defaultdict(list)
    for seen in run.seen:
        found[seen.claim].append(seen)
    return found


def _short(found: Sequence[Seen], claim: Claim) -> str:
    if len(found) != len(claim.expected):
        return f"{len(found)} things where {len(claim.expected)} are to be seen"
    for seen, expected in zip(found, claim.expected, strict=True):
        if not claim.model_copy(update={"expected": (expected,)}).right([seen]):
            what = repr(seen.truth) if claim.kind == "truth" else seen.saw
            return "what cannot be compared" if what is None else what[:200]
    return "nothing wrong"

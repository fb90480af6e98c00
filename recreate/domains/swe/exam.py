"""What an answer is asked besides the suite: some of its tests with their expected values withheld.

An exam is made once for a task, with its gold: which claims of which tests can be told instead of checked, and what is
right of each. It is kept outside of every sandbox.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from recreate.api.types import Record
from recreate.domains.swe import sources
from recreate.domains.swe.test_run import TestResults
from recreate.domains.swe.withheld import Claim, rewrite

MOST_OTHERS = 6
"""So many test functions that pass before and after are asked too, drawn once for a task."""

_ROUNDS = 7
_LOUD = frozenset({"failed", "error", "repeated"})


class Exam(Record):
    """files: path -> text of the tests with claims. tests: function -> how many tests it makes. claims: what is right.

    bare: FAIL_TO_PASS functions of which nothing could be asked.
    """

    files: Mapping[str, str] = {}
    tests: Mapping[str, int] = {}
    claims: tuple[Claim, ...] = ()
    bare: tuple[str, ...] = ()
    seconds: float = 0.0

    def wrong(self, run: TestResults) -> str:
        """'' when the run of an answer on `files` is what the right code gives, else what is not."""
        if run.doubt:
            return run.doubt
        passed = _passed(run)
        for test, count in sorted(self.tests.items()):
            if passed.get(test, 0) != count:
                return f"{test} does not pass with its expected values withheld"
        seen = _seen(run)
        for claim in self.claims:
            if not claim.right(found := seen.get(claim.number, [])):
                return f"{claim.test}, its expected values withheld, saw {_short(found, claim)}"
        unknown = seen.keys() - {claim.number for claim in self.claims}
        return f"there is no claim {min(unknown)}" if unknown else ""


def make(
    texts: Mapping[str, str],
    fail_to_pass: Sequence[str],
    baseline: Sequence[str],
    run: Callable[[Mapping[str, str], Sequence[str]], TestResults],
    allowed: float,
) -> Exam:
    """The exam of a task. texts: path -> text of the test files that hold FAIL_TO_PASS. run: run some test files, with
    texts over the graded ones, on the gold. allowed: seconds that tests of PASS_TO_PASS may take in it."""
    wanted = list(dict.fromkeys(map(sources.function_of, fail_to_pass)))
    known = _Asked(texts, [f for f in dict.fromkeys(map(sources.function_of, baseline)) if _file(f) in texts])
    reference = run(*known.written(known=True))
    expected: dict[int, list[str | None]] = defaultdict(list)
    for number, _, found in reference.seen:
        expected[number].append(found[0] if found else None)
    sound = set(known.tests) & _passed(reference).keys()
    told = {c.test for c in known.claims if expected.get(c.number)}
    others = [f for f in sound & told if f not in wanted]
    secrets.SystemRandom().shuffle(others)
    took: dict[str, float] = defaultdict(float)
    for test, seconds in reference.took.items():
        took[sources.function_of(test)] += seconds
    drawn: list[str] = []
    for f in others:
        if len(drawn) < MOST_OTHERS and took[f] <= allowed:
            allowed -= took[f]
            drawn.append(f)
    return _settled(texts, [f for f in wanted if f in sound], drawn, wanted, run)


def _settled(
    texts: Mapping[str, str],
    wanted: Sequence[str],
    drawn: Sequence[str],
    every: Sequence[str],
    run: Callable[[Mapping[str, str], Sequence[str]], TestResults],
) -> Exam:
    """Leave out what the gold does not give the same twice, until it gives the rest twice."""
    order = sorted({*wanted, *drawn})
    asked = _Asked({p: t for p, t in texts.items() if any(_file(f) == p for f in order)}, order)
    if not asked.claims:
        return Exam(bare=tuple(every))
    expected: dict[int, list[str | None]] = defaultdict(list)
    for number, _, found in run(*asked.written(known=True)).seen:
        expected[number].append(found[0] if found else None)
    tried: dict[str, int] = defaultdict(int)
    steady: Mapping[str, int] | None = None
    for _ in range(_ROUNDS):
        asked.off |= {c.number for c in asked.claims if not expected.get(c.number) or None in expected[c.number]}
        files, tests = asked.written()
        claims = tuple(
            c.model_copy(update={"expected": tuple(filter(None, expected[c.number]))})
            for c in asked.claims
            if c.number not in asked.off
        )
        by_test = {c.test for c in claims}
        result = run(files, tests)
        failing = {sources.function_of(t) for t, outcome in result.outcomes.items() if outcome in _LOUD}
        counts, seen = _passed(result), _seen(result)
        failed = {f for f in by_test if f in failing or not counts.get(f)}
        wrong = {c.number for c in claims if c.test not in failed and not c.right(seen.get(c.number, []))}
        exam = Exam(
            files=files,
            tests={f: counts[f] for f in asked.tests if f in by_test - failed},
            claims=claims,
            bare=tuple(f for f in every if f not in by_test),
            seconds=round(result.seconds, 2),
        )
        if not failed and not wrong and not result.doubt:
            if exam.tests == steady:
                return exam
            steady = exam.tests
            continue
        steady = None
        asked.off |= wrong
        for f in failed or (by_test if result.doubt else set()):
            tried[f] += 1
            asked.ease(f, tried[f])
    return Exam(bare=tuple(every))


class _Asked:
    """Test functions whose claims are asked, over several files; claims are numbered through all of them."""

    def __init__(self, texts: Mapping[str, str], functions: Iterable[str]) -> None:
        self.texts = texts
        self.functions = list(functions)
        self.off: set[int] = set()
        self.whole: set[str] = set()
        self.claims: list[Claim] = []
        self.tests: list[str] = []
        self._rewritten(known=True)

    def _rewritten(self, *, known: bool) -> dict[str, str]:
        written, first = {}, 0
        claims: list[Claim] = []
        self.tests = []
        for file, text in sorted(self.texts.items()):
            own = [tuple(f.split("::")[1:]) for f in self.functions if _file(f) == file]
            try:
                every = rewrite(text, file, own, first=first, known=True)
                made = rewrite(
                    text, file, own, first=first, known=known, off=frozenset(self.off), whole=frozenset(self.whole)
                )
            except (SyntaxError, ValueError, RecursionError):
                continue
            written[file] = made.text
            claims += every.claims
            first += len(every.claims)
            self.tests += ["::".join((file, *path)) for path in made.tests]
        self.claims = claims
        return written

    def written(self, *, known: bool = False) -> tuple[dict[str, str], list[str]]:
        """path -> text, and the files to run."""
        made = self._rewritten(known=known)
        return made, sorted(made)

    def ease(self, function: str, times: int) -> None:
        """Ask less of a test that the gold does not pass: the second time only what is true or not, then nothing."""
        if times == 1:
            self.whole.add(function)
        own = [c for c in self.claims if c.test == function]
        if times == 2:
            self.off |= {c.number for c in own if c.kind == "value"}
        if times >= 3:
            self.off |= {c.number for c in own}


def _file(function: str) -> str:
    return function.partition("::")[0]


def _counts(tests: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for test in set(tests):
        found[sources.function_of(test)] += 1
    return found


def _passed(run: TestResults) -> dict[str, int]:
    """test function -> how many of its tests passed."""
    return _counts(run.passed())


def _seen(run: TestResults) -> dict[int, list[str | None]]:
    found: dict[int, list[str | None]] = defaultdict(list)
    for claim, saw, _ in run.seen:
        found[claim].append(saw)
    return found


def _short(found: Sequence[str | None], claim: Claim) -> str:
    if len(found) != len(claim.expected):
        return f"{len(found)} things where {len(claim.expected)} are to be seen"
    saw = next((s for s, e in zip(found, claim.expected, strict=True) if not Claim.right(_one(claim, e), [s])), None)
    return "what cannot be compared" if saw is None else saw[:200]


def _one(claim: Claim, expected: str) -> Claim:
    return claim.model_copy(update={"expected": (expected,)})

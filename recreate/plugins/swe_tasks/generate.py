"""New tasks: bugs injected into a release or a repository, kept when a few of its own tests notice.

A hard bug is kept when, besides, the tests that notice do not name what is changed, each fails when
it is run alone, the public ones show every part, and nothing small mends it: neither a part of the
bug taken back nor a token inverted in the changed statements.
"""

from __future__ import annotations

import ast
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from recreate.api import paths
from recreate.api.errors import BadInput, Interrupted
from recreate.api.ports import SandboxBackend
from recreate.api.syntax import parse_python
from recreate.api.types import Split, Task, digest
from recreate.domains.python_env import Environment, environment
from recreate.plugins.swe import copies, facts, hard_mutation, hunks, sources, test_run
from recreate.plugins.swe.case import InjectedCase, earlier_texts, mark, tasks_of
from recreate.plugins.swe.facts import INJECTED, Injected, Origin, Part, Releases
from recreate.plugins.swe.hard_mutation import Parts
from recreate.plugins.swe.mutation import Mutation, Site, Source, mutate_source, mutations
from recreate.plugins.swe.sources import Say
from recreate.plugins.swe.test_run import ProjectTests, TestResults, TrialRun
from recreate.sandboxes import choose

MOST_LINES = 45
FEWEST_LINES = 4
MOST_FAILING = 8
"""A mutant is kept when between 1 and this many tests fail."""
PATIENCE = 600.0
"""Seconds that the tests may take without a bug."""
TRIES = 14
HARD_TRIES = 60
"""Mutants tried for each task that is wanted, at most."""
BATCH = 12
"""Mutants that share a sandbox, one after the other: starting Python and pytest costs more than
most tests."""


@dataclass
class MadeTasks:
    """What `make` did: the tasks, how many mutants were tried, and the recipe file."""

    tasks: list[Task]
    tried: int
    file: Path


@dataclass(eq=False)
class _Candidate:
    """A mutant: `files` (path -> text) have it, `tests` are those that may notice. kind: what is
    kept in proportion."""

    kind: str
    parts: Parts
    files: dict[str, str]
    tests: frozenset[str]
    earlier: Releases | None = None

    @property
    def functions(self) -> set[tuple[str, str]]:
        return {(p.file, p.function) for p in self.parts}


@dataclass(frozen=True)
class _Noticed:
    """What the tests said of a mutant. failing: in the order of the suite; messages: test id ->
    what it says."""

    failing: tuple[str, ...]
    messages: Mapping[str, str]

    @property
    def crash(self) -> bool:
        return not all(
            re.match(r"assert|AssertionError|Failed: DID NOT", m) for m in self.messages.values()
        )


def make(
    *,
    package: str | None = None,
    version: str | None = None,
    repo: Path | None = None,
    n: int = 10,
    seed: int = 0,
    split: Split | None = None,
    wanted: Environment | None = None,
    tests: Sequence[str] = (),
    python_path: Sequence[str] = (),
    modules: Sequence[str] = (),
    hard: bool = False,
    undo: Sequence[tuple[str, str]] = (),
    backend: SandboxBackend | None = None,
    env: Path | None = None,
    file: Path | None = None,
    on_progress: Say | None = None,
) -> MadeTasks:
    """Inject up to `n` bugs into one package (its sdist) or repository, and write each one's recipe
    to `file` as it is found.

    split         of all the tasks; by default the modules are dealt out to train and validation
    wanted        what the tests run in and with              python_path   folders put on sys.path
    tests         files and folders given to pytest; both are looked for when not given
    modules       only bugs in these files of the project
    hard          bugs of several statements, whose failure shows elsewhere (hard_mutation.py)
    undo          hard bugs, too: pairs of earlier neighbouring releases, of which one hunk is taken
                  back
    file          benchmarks/swe/injected.jsonl of the workspace unless given; older tasks of the
                  same source and kind (hard or not) go at the end

    Same arguments, same tasks. Raises BadInput: unknown-package, no-tests, failing-suite,
    no-mutants; Interrupted.
    """
    say: Say = on_progress or (lambda _: None)
    backend = backend or choose()
    file = file or paths.workspace() / "benchmarks" / "swe" / INJECTED
    wanted = wanted or Environment()
    origin, pristine = _origin(
        package, version, repo, wanted, tuple(tests), tuple(python_path), file, say
    )
    known = _known_splits(file, origin, hard=bool(hard or undo))
    files = _files(origin, pristine, modules, split, known)
    place = env if env is not None else environment(origin.environment, say)
    trial = _Trial(origin, pristine, place, backend, say)
    files = trial.unseen(files)
    chance = random.Random(f"{seed} {origin.sha256 or origin.digest}")
    pairs = [_releases(origin, before, after) for before, after in undo]
    origin = trial.origin
    everything = _known_splits(file)
    kept = list[Injected]()

    def write() -> None:
        facts.add(file, origin, _dealt(origin, kept, split, everything), others=True)

    difficult = bool(hard or pairs)
    with stoppable(file, kept, write):
        found = (
            trial.hard_candidates(files, chance, hard, pairs, say)
            if difficult
            else trial.candidates(files, chance)
        )
        tried = trial.keep(found, n, kept, write, hard=difficult)
    if not kept:
        why = f"no bug that a few tests notice was found in {origin.name} ({tried} tried)"
        raise BadInput(
            why, fix="take a package with more tests, or another --seed", code="no-mutants"
        )
    bugs = _dealt(origin, kept, split, known)
    facts.add(file, origin, bugs)
    cases = [InjectedCase(origin, bug, say) for bug in bugs]
    return MadeTasks([case.task() for case in cases], tried, file)


@contextmanager
def stoppable(
    file: Path, found: Sized, write: Callable[[], None], again: str = ""
) -> Iterator[None]:
    """Ctrl-C writes what is found, where that was interrupted, and says how many tasks it is.
    Raises Interrupted. again: what the same command does, unless it begins anew."""
    try:
        yield
    except KeyboardInterrupt:
        again = again or "the same command begins anew and finds the same"
        if not found:
            raise Interrupted("no task was found yet", fix=again) from None
        write()
        count = f"{len(found)} task{'s are' if len(found) > 1 else ' is'}"
        fix = f"recreate tasks check swe --data {file} validates what is there; {again}"
        raise Interrupted(f"{count} written to {file}", fix=fix) from None


# --- where the sources are, and how their tests run
# -------------------------------------------------------


def _origin(
    package: str | None,
    version: str | None,
    repo: Path | None,
    wanted: Environment,
    tests: tuple[str, ...],
    python_path: tuple[str, ...],
    file: Path,
    say: Say,
) -> tuple[Origin, Path]:
    if (package is None) == (repo is None) or (package is not None and not version):
        raise BadInput(
            "one package with its version, or one repository, is needed",
            fix="--package NAME==VERSION or --repo PATH",
            code="no-source",
        )
    if repo is not None:
        repo = repo.expanduser().resolve()
        pristine, commit, digest = sources.snapshot(repo)
        home = paths.workspace(file.parent.resolve() if file.parent.exists() else None)
        inside = repo.is_relative_to(home)
        path = repo.relative_to(home).as_posix() if inside else str(repo)
        name = f"{repo.name}-{digest[:8]}"
        origin = Origin(
            name=name, package=repo.name, path=path, commit=commit, digest=digest, tests=("?",)
        )
    else:
        assert package is not None
        assert version is not None
        sha256 = sources.released_sha256(package, version)
        pristine = sources.release(package, version, sha256, say)
        origin = Origin(
            name=f"{package}-{version}",
            package=package,
            version=version,
            sha256=sha256,
            tests=("?",),
        )
    tests = tests or sources.find_tests(pristine)
    missing = [t for t in tests if not (pristine / t).exists()]
    if not tests or missing:
        what = f"{missing[0]} is not in" if missing else "no tests were found in"
        raise BadInput(
            f"{what} the sources of {origin.name}",
            fix=(
                "name them with --tests, or take another release: some leave their tests out of the"
                " sdist"
            ),
            code="no-tests",
        )
    folders = python_path or (("src",) if (pristine / "src").is_dir() else (".",))
    how = wanted.model_dump(exclude={"schema_"}) | {"tests": tests, "python_path": folders}
    return origin.model_copy(update=how), pristine


def _releases(origin: Origin, before: str, after: str) -> Releases:
    if not origin.version:
        raise BadInput(
            "a repository has no releases of which a hunk could be undone",
            fix="--package NAME==VERSION with --undo BEFORE..AFTER",
            code="no-source",
        )
    sha256 = [sources.released_sha256(origin.package, version) for version in (before, after)]
    return Releases(before=before, after=after, before_sha256=sha256[0], after_sha256=sha256[1])


def _files(
    origin: Origin,
    pristine: Path,
    wanted: Sequence[str],
    split: Split | None,
    known: Mapping[str, Split],
) -> list[str]:
    """The modules to put bugs into: `wanted`, or all but those whose group has another split than
    `split`."""
    found = sources.modules(pristine, origin.python_path, origin.tests)
    unknown = sorted(set(wanted) - set(found))
    if unknown:
        raise BadInput(
            f"{origin.name} has no module {unknown[0]}",
            fix=f"there are: {', '.join(found)}",
            code="unknown-module",
        )
    clash = [f for f in found if split is not None and known.get(_group(origin, f), split) != split]
    both = sorted(set(clash) & set(wanted or clash))
    if both and (wanted or len(clash) == len(found)):
        group = _group(origin, both[0])
        raise BadInput(
            f"{group} has {known[group]} tasks already: it cannot have {split} tasks",
            fix=f"--split {known[group]}, or other --modules",
            code="split-group",
        )
    return list(wanted) or [f for f in found if f not in clash]


def _run_to_end(origin: Origin, run: TestResults) -> TestResults:
    """A run without a bug that came to its end. Raises BadInput for another: `failing-suite`."""
    if not run.doubt:
        return run
    last = next(reversed(list(run.outcomes)), "")
    begun = f"name tests that do, with --tests; the last that began is {test_run.short(last)}"
    raise BadInput(
        f"the tests of {origin.name} do not run to their end: {run.doubt}\n{run.output[-1200:]}",
        fix=(
            begun
            if last
            else "another --pytest may do, like 7.4.4, or --index-before the day when it came out"
        ),
        code="failing-suite",
    )


_LOUD = {"failed", "error", "repeated"}


class _Trial:
    """One project's suite, run without a bug, then on mutants.

    origin: with what does not count deselected. passing: the tests that pass without a bug. traced:
    file -> test id -> the lines of the file that it runs.
    """

    def __init__(
        self, origin: Origin, pristine: Path, env: Path, backend: SandboxBackend, say: Say
    ) -> None:
        self.origin = origin
        self.pristine = pristine
        self._env = env
        self._backend = backend
        self._say = say
        self._modules: dict[str, Source | None] = {}
        self._covered: dict[tuple[str, str], frozenset[str]] = {}
        self._texts: dict[str, str] = {}
        self._bodies: dict[str, list[ast.stmt]] = {}
        self._copies = copies.find(backend, env, pristine, origin.suite, say)
        say(f"running the tests of {origin.name}, twice")
        traced = _run_to_end(origin, self._run(origin.suite, PATIENCE, trace=True))
        everything = TrialRun({}, frozenset(), 0, PATIENCE)
        suite = copies.without(origin.suite, self._copies)
        plain = _run_to_end(
            origin, test_run.run_each(backend, pristine, env, suite, [everything])[0]
        )
        good = traced.passed() & plain.passed()
        if not good:
            why = next((m for m in plain.messages.values() if m), "")[-300:] or traced.output[-300:]
            raise BadInput(
                f"none of the tests of {origin.name} passes: {test_run.short(why, 300)}",
                fix=(
                    "say what the tests need, --requires NAME==VERSION, or where the sources are,"
                    " --python-path"
                ),
                code="failing-suite",
            )
        both = traced.outcomes.keys() & plain.outcomes.keys()
        bad = {t for t in both - good if {traced.outcomes[t], plain.outcomes[t]} & _LOUD}
        # an id that changes from run to run
        bad |= {sources.function_of(t) for t in traced.outcomes.keys() ^ plain.outcomes.keys()}
        bad |= {u for u in (*traced.uncollected, *plain.uncollected) if u}
        if bad:
            say(
                "left out, as they fail or waver before any bug is put in:"
                f" {', '.join(sorted(bad)[:5])}"
            )
        self.passing = frozenset(
            t for t in good if not {t, sources.function_of(t), t.partition("::")[0]} & bad
        )
        self._took = dict(plain.took)
        self._cpu = plain.cpu_seconds / max(sum(plain.took.values()), 0.001)
        self.traced = {
            f: {t: frozenset(n) for t, n in by.items()} for f, by in traced.lines.items()
        }
        update = {
            "deselect": tuple(sorted({*origin.deselect, *bad})),
            "fails": tuple(sorted(bad)),
            "seconds": round(plain.seconds, 2),
        }
        self.origin = origin.model_copy(update=update)
        say(f"{len(self.passing)} tests pass in {plain.seconds:.1f} s")

    def unseen(self, files: Sequence[str]) -> list[str]:
        """The files of which a sandbox has no other copy. Raises BadInput when there are none."""
        told = {
            file: place for file in files if (place := self._copies.of([file], self.origin.suite))
        }
        if len(told) == len(files):
            raise BadInput(
                f"a sandbox would hold the answers: {told[files[0]]} is a copy of {files[0]}",
                fix="take another package: what lies in Python's own library cannot be masked",
                code="package-installed",
            )
        return [file for file in files if file not in told]

    def _run(self, tests: ProjectTests, timeout: float, **how: Any) -> TestResults:
        """The tests on the sources; how: what `test_run.run` takes besides."""
        where = (self._backend, self.pristine, self._env)
        return test_run.run(
            *where,
            copies.without(tests, self._copies),
            timeout=timeout,
            output_bytes=200_000,
            **how,
        )

    def candidates(self, files: Sequence[str], chance: random.Random) -> Iterator[_Candidate]:
        """Mutants in the order to try them: the files by turns, in each file the functions by
        turns."""
        queues = [functions for file in files if (functions := self._functions(file, chance))]
        chance.shuffle(queues)
        while queues:
            for functions in list(queues):
                function = functions.pop(0)
                yield from function.pop(0)
                if function:
                    functions.append(function)
                if not functions:
                    queues.remove(functions)

    def _functions(self, file: str, chance: random.Random) -> list[list[Iterator[_Candidate]]]:
        """The likely mutants of each function of a file that passing tests run; none for those that
        mean nothing."""
        module = self._module(file)
        if module is None:
            return []
        functions = []
        for place in module.functions():
            covering = self._covering(file, place)
            if not covering or not FEWEST_LINES <= place.size <= MOST_LINES:
                continue
            own = [m for m in mutations(module, place) if likely(module, m)]
            chance.shuffle(own)
            if own:
                functions.append(
                    [self._single(file, module, place, m, covering) for m in _varied(own)]
                )
        chance.shuffle(functions)
        return functions

    def _single(
        self, file: str, module: Source, place: Site, mutation: Mutation, covering: frozenset[str]
    ) -> Iterator[_Candidate]:
        text = mutate_source(module, mutation)
        if text is not None:
            at = self.traced[file]
            hit = frozenset(t for t in covering if mutation.line in at[t])
            part = Part(
                file=file,
                function=place.name,
                operator=mutation.operator,
                occurrence=mutation.occurrence,
            )
            yield _Candidate(mutation.operator, (part,), {file: text}, hit or covering)

    def _module(self, file: str) -> Source | None:
        if file not in self._modules:
            try:
                self._modules[file] = Source((self.pristine / file).read_bytes().decode("utf-8"))
            except (SyntaxError, ValueError):
                self._modules[file] = None
        return self._modules[file]

    def _covering(self, file: str, place: Site) -> frozenset[str]:
        if (file, place.name) not in self._covered:
            body = range(place.node.body[0].lineno, place.last + 1)
            hit = (
                t for t, lines in self.traced.get(file, {}).items() if not lines.isdisjoint(body)
            )
            self._covered[file, place.name] = self.passing & frozenset(hit)
        return self._covered[file, place.name]

    def hard_candidates(
        self,
        files: Sequence[str],
        chance: random.Random,
        hard: bool,
        pairs: Sequence[Releases],
        say: Say,
    ) -> Iterator[_Candidate]:
        """Hard mutants that tests may notice without naming what is changed, the kinds by turns."""
        modules = {file: module for file in files if (module := self._module(file))}
        kinds: dict[str, Iterator[tuple[Parts, Releases | None]]] = {}
        if hard:
            made = {
                "override": hard_mutation.removable(modules),
                "kept": hard_mutation.keepable(modules),
                "parameters": hard_mutation.swappable(modules),
                "repeated": hard_mutation.repeatable(modules, likely),
            }
            for kind, several in made.items():
                shuffled = sorted(several, key=lambda parts: repr(parts))
                chance.shuffle(shuffled)
                kinds[kind] = iter([(parts, None) for parts in shuffled])
        for pair in pairs:
            standing = list(self._hunks(modules, pair, say))
            chance.shuffle(standing)
            kinds[f"undone {pair.after}"] = iter([(parts, pair) for parts in standing])
        texts = {file: module.text for file, module in modules.items()}
        queues = {
            kind: self._promising(kind, modules, texts, found, say) for kind, found in kinds.items()
        }
        while queues:
            for kind, queue in list(queues.items()):
                candidate = next(queue, None)
                if candidate is None:
                    del queues[kind]
                else:
                    yield candidate

    def _hunks(self, modules: Mapping[str, Source], pair: Releases, say: Say) -> Iterator[Parts]:
        """Each hunk, and all those of one file, of the difference of two releases that still
        stand."""
        for file, module in modules.items():
            before, after = earlier_texts(self.origin.package, pair, file, say)
            parts = []
            for number in range(
                1, 1 + len(hunks.numbered(before, after) if before and after else ())
            ):
                edit = hard_mutation.undone(module, before, after, number)
                if edit is not None:
                    line = module.data[: edit[0]].count(b"\n") + 1
                    inside = [s.name for s in module.functions() if s.first <= line <= s.last]
                    function = inside[0] if inside else ""
                    parts.append(
                        Part(file=file, function=function, operator="undone", occurrence=number)
                    )
            yield from ((part,) for part in parts)
            if len(parts) > 1:
                yield tuple(parts)

    def _promising(
        self,
        kind: str,
        modules: Mapping[str, Source],
        texts: Mapping[str, str],
        found: Iterator[tuple[Parts, Releases | None]],
        say: Say,
    ) -> Iterator[_Candidate]:
        """Those that have what makes a bug hard, as far as that can be told without running
        anything."""
        for parts, pair in found:
            covering = [self._noticing(modules[p.file], p) for p in parts]
            common = (
                frozenset.intersection(*covering)
                if kind == "repeated"
                else frozenset.union(*covering)
            )
            far = [t for t in common if hard_mutation.distant(parts, [self._text_of(t)])]
            if 2 * len(far) <= len(common):  # a test that names it is likely to notice, too
                continue
            mutant = hard_mutation.mutated(texts, parts, self._earlier(pair, say))
            if mutant is None or not all(_parses(text) for text in mutant.values()):
                continue
            yield _Candidate(kind, parts, mutant, frozenset.union(*covering), pair)

    def _earlier(self, pair: Releases | None, say: Say) -> hard_mutation.Earlier | None:
        return (lambda file: earlier_texts(self.origin.package, pair, file, say)) if pair else None

    def _noticing(self, module: Source, part: Part) -> frozenset[str]:
        """The tests that run the function of a part, or the module where it is in none."""
        place = module.function(part.function)
        if place is not None:
            big = part.operator != "undone" and not 2 <= place.size <= MOST_LINES
            return frozenset() if big else self._covering(part.file, place)
        return frozenset(t for t in self.traced.get(part.file, {}) if t in self.passing)

    def _text_of(self, test: str) -> str:
        """The text of a test's function, '' when it cannot be found."""
        function = sources.function_of(test)
        if function not in self._texts:
            file, *names = function.split("::")
            body: list[ast.stmt] = self._test_module(file)
            found: ast.stmt | None = None
            for name in names:
                kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
                found = next((n for n in body if isinstance(n, kinds) and n.name == name), None)
                body = getattr(found, "body", [])
            self._texts[function] = ast.unparse(found) if found else ""
        return self._texts[function]

    def _test_module(self, file: str) -> list[ast.stmt]:
        if file not in self._bodies:
            try:
                self._bodies[file] = parse_python((self.pristine / file).read_bytes()).body
            except (OSError, SyntaxError, ValueError):
                self._bodies[file] = []
        return self._bodies[file]

    def keep(
        self,
        candidates: Iterator[_Candidate],
        n: int,
        kept: list[Injected],
        write: Callable[[], None],
        hard: bool = False,
    ) -> int:
        """Put the first `n` mutants that a few tests notice into `kept`, and tell how many were
        tried: at most one of a function, no kind too often. write: called after each."""
        tried = crashes = 0
        kinds: Counter[str] = Counter()
        functions: set[tuple[str, str]] = set()
        often, most = (max(1, n // 2), n * HARD_TRIES) if hard else (max(1, n // 8 + 1), n * TRIES)
        while len(kept) < n and tried < most:
            batch: list[_Candidate] = []
            for candidate in candidates:
                if not candidate.functions & functions and kinds[candidate.kind] < often:
                    batch.append(candidate)
                if len(batch) == min(BATCH, most - tried):
                    break
            if not batch:
                break
            tried += len(batch)
            chosen: dict[_Candidate, _Noticed] = {}
            soon = kinds.copy()
            taken = set(functions)
            loud = crashes
            for candidate, noticed in self._find_noticed(batch, hard).items():
                if (
                    len(kept) + len(chosen) == n
                    or candidate.functions & taken
                    or soon[candidate.kind] >= often
                ):
                    continue
                # A wrong value is what most bugs give; a crash names its line, and would make most
                # tasks easy.
                if noticed.crash and loud >= max(1, n // 4):
                    continue
                chosen[candidate] = noticed
                loud += noticed.crash
                taken |= candidate.functions
                soon[candidate.kind] += 1
            for candidate, noticed in self._agreed(chosen).items():
                if hard and not (
                    self._is_shown_publicly(candidate, noticed) and self._stays(candidate, noticed)
                ):
                    continue
                bug = self._bug(candidate, noticed)
                kept.append(bug)
                write()
                crashes += noticed.crash
                functions |= candidate.functions
                kinds[candidate.kind] += 1
                self._say(
                    f"{len(kept)} of {n} after {tried} mutants: {bug.id}, noticed by"
                    f" {len(bug.fail_to_pass)}"
                )
        return tried

    def _find_noticed(self, batch: Sequence[_Candidate], hard: bool) -> dict[_Candidate, _Noticed]:
        """Those of the batch that a few of the tests that run what is changed notice; hard ones as
        hard as they are to be."""
        few = [self._trial(c.files, c.tests, MOST_FAILING + 1) for c in batch]
        found: dict[_Candidate, _Noticed] = {}
        for candidate, near in zip(batch, self._each(few), strict=True):
            failing = {t for t in candidate.tests if near.outcomes.get(t) == "failed"}
            if (
                near.doubt
                or not 1 <= len(failing) <= MOST_FAILING
                or near.passed() != candidate.tests - failing
            ):
                continue
            seen = _Noticed(tuple(sorted(failing)), {t: near.messages.get(t, "") for t in failing})
            if not hard or self._fails_far_away(candidate, seen):
                found[candidate] = seen
        return self._keep_independent(found) if hard else found

    def _agreed(self, found: Mapping[_Candidate, _Noticed]) -> dict[_Candidate, _Noticed]:
        """Those of which the whole suite says the same. It is run once with all of them, and only
        where it then says anything else than they do together, with each."""
        both = self._together(list(found)) if len(found) > 1 else None
        if both is not None:
            [run] = self._each([self._trial(both, frozenset(), 0)])
            each = {t for seen in found.values() for t in seen.failing}
            if self._same(run, each):
                agreed = {c: self._read_noticed(run, seen) for c, seen in found.items()}
                if all(_alike(seen.messages, agreed[c].messages) for c, seen in found.items()):
                    return agreed
        whole = self._each([self._trial(c.files, frozenset(), 0) for c in found])
        return {
            c: self._read_noticed(run, seen)
            for (c, seen), run in zip(found.items(), whole, strict=True)
            if self._same(run, set(seen.failing))
        }

    def _same(self, run: TestResults, failing: set[str]) -> bool:
        """Whether these tests fail in a run of the suite, and no other that passes without a
        bug."""
        same = not run.doubt and run.passed() == self.passing - failing
        return same and all(run.outcomes.get(t) == "failed" for t in failing)

    def _read_noticed(self, run: TestResults, seen: _Noticed) -> _Noticed:
        ordered = tuple(t for t in run.outcomes if t in seen.messages)
        return _Noticed(
            ordered, {t: steady(run.messages.get(t, ""), seen.messages[t]) for t in ordered}
        )

    def _together(self, several: Sequence[_Candidate]) -> dict[str, str] | None:
        """The files with all of these bugs; None where two of them touch."""
        found: dict[str, str] = {}
        for file in {f for c in several for f in c.files}:
            module = self._module(file)
            texts = [c.files[file] for c in several if file in c.files]
            text = joined(module.text, texts) if module else None
            if text is None:
                return None
            found[file] = text
        return found

    def _trial(self, files: Mapping[str, str], only: frozenset[str], most: int) -> TrialRun:
        tests = only or self.passing
        seconds = 2 + 3 * self._cpu * sum(self._took.get(t, 0.0) for t in tests)
        return TrialRun(files, only, most, seconds)

    def _each(self, runs: Sequence[TrialRun]) -> list[TestResults]:
        suite = copies.without(self.origin.suite, self._copies)
        return test_run.run_each(self._backend, self.pristine, self._env, suite, runs)

    def _fails_far_away(self, candidate: _Candidate, seen: _Noticed) -> bool:
        """Whether the failures are wrong values, of tests that name nothing of what is changed,
        which is more than a token and bears no mark."""
        texts = [self._text_of(t) for t in seen.failing]
        mutant = candidate.files
        if seen.crash or not all(texts) or not hard_mutation.distant(candidate.parts, texts):
            return False
        gold = {f: module.text for f in mutant if (module := self._module(f))}
        return hard_mutation.beyond_one_token(gold, mutant) and hard_mutation.unmarked(gold, mutant)

    def _keep_independent(self, found: Mapping[_Candidate, _Noticed]) -> dict[_Candidate, _Noticed]:
        """Those of which each failing test fails when nothing runs before it."""
        asked = []
        for candidate, seen in found.items():
            first = {sources.function_of(t): t for t in sorted(seen.failing, reverse=True)}
            asked += [(candidate, t) for t in first.values()]
        runs = self._each(
            [self._trial(candidate.files, frozenset({t}), 0) for candidate, t in asked]
        )
        other = {
            candidate
            for (candidate, t), run in zip(asked, runs, strict=True)
            if run.outcomes.get(t) != "failed"
        }
        return {candidate: seen for candidate, seen in found.items() if candidate not in other}

    def _is_shown_publicly(self, candidate: _Candidate, seen: _Noticed) -> bool:
        """Whether the public tests notice each part that any test notices: nobody looks for what
        nothing shows. Swapped parameters and the calls that were swapped with them are one."""
        if candidate.parts[0].operator == "parameters":
            return True
        public = set(_public(self.pristine, seen.failing))
        gold = {f: module.text for f in candidate.files if (module := self._module(f))}
        earlier = self._earlier(candidate.earlier, self._say)
        each = [
            hard_mutation.mutated(gold, [part], earlier)
            for part in candidate.parts
            if candidate.parts[1:]
        ]
        runs = self._each(
            [self._trial({**gold, **(files or {})}, frozenset(seen.failing), 0) for files in each]
        )
        failing = [{t for t in seen.failing if run.outcomes.get(t) != "passed"} for run in runs]
        return all(not tests or tests & public for tests in failing)

    def _stays(self, candidate: _Candidate, seen: _Noticed) -> bool:
        """Whether some test goes on failing when one part of the bug is taken back, or one token is
        inverted."""
        gold = {f: module.text for f in candidate.files if (module := self._module(f))}
        smaller = []
        for n in range(len(candidate.parts) if len(candidate.parts) > 1 else 0):
            rest = candidate.parts[:n] + candidate.parts[n + 1 :]
            less = hard_mutation.mutated(gold, rest, self._earlier(candidate.earlier, self._say))
            smaller.append({**gold, **(less or {})})
        for file, text in candidate.files.items():
            for mutation in hard_mutation.inversions(gold[file], text):
                if inverted := mutate_source(Source(text), mutation):
                    smaller.append({**candidate.files, file: inverted})
        quick = self._each([self._trial(files, frozenset(seen.failing), 1) for files in smaller])
        passing = [
            files
            for files, run in zip(smaller, quick, strict=True)
            if run.passed() >= set(seen.failing)
        ]
        again = self._each([self._trial(files, candidate.tests, 1) for files in passing])
        return not any(run.passed() >= candidate.tests for run in again)

    def _bug(self, candidate: _Candidate, noticed: _Noticed) -> Injected:
        public = _public(self.pristine, noticed.failing)
        first, *more = candidate.parts
        return Injected(
            source=self.origin.name,
            id=_id(self.pristine, candidate),
            file=first.file,
            function=first.function,
            operator=first.operator,
            occurrence=first.occurrence,
            mutant=mark(candidate.files),
            split="train",
            group=_group(self.origin, first.file),
            fail_to_pass=noticed.failing,
            public=tuple(public),
            observed={t: test_run.short(_anywhere(noticed.messages.get(t, ""))) for t in public},
            more=tuple(more),
            earlier=candidate.earlier,
        )


# --- mutants
# ----------------------------------------------------------------------------------------------


def _id(pristine: Path, candidate: _Candidate) -> str:
    """A name that no other bug of these sources has: the place, and a digest where that does not
    say all."""
    first, *more = candidate.parts
    module = PurePosixPath(first.file).stem
    name = f"{module}.{first.function or 'module'}-{first.operator}-{first.occurrence}"
    name += f"-{candidate.earlier.after}" if candidate.earlier else ""
    name += f"-and-{len(more)}" if more else ""
    alike = [
        f for f in sources.files(pristine) if f.endswith(".py") and PurePosixPath(f).stem == module
    ]
    told = not more and candidate.earlier is None and len(alike) == 1
    return (
        name
        if told
        else f"{name}-{digest([candidate.parts, candidate.earlier, mark(candidate.files)], 8)}"
    )


def _anywhere(message: str) -> str:
    """A test's message without where Python is installed on this machine."""
    return re.sub(r"(?:/[\w.+-]+)+(?=/lib/python3)", "", message)


def joined(text: str, several: Sequence[str]) -> str | None:
    """A text with the changes of several others of it; None where two of these touch."""
    old = hunks.lines(text)
    edits = []
    for new in map(hunks.lines, several):
        low = 0
        while low < min(len(old), len(new)) and old[low] == new[low]:
            low += 1
        same = 0
        while same < min(len(old), len(new)) - low and old[-1 - same] == new[-1 - same]:
            same += 1
        edits.append((low, len(old) - same, new[low : len(new) - same]))
    edits.sort(key=lambda edit: edit[:2])
    if any(low < before for (_, before, _), (low, _, _) in itertools.pairwise(edits)):
        return None
    for low, high, new in reversed(edits):
        old[low:high] = new
    return "".join(old)


def _alike(messages: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether tests say the same both times, but for numbers."""
    return all(_words(message) == _words(others[t]) for t, message in messages.items())


def _words(message: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+(?:\.\d+)?|\.\.\.", "...", message)


def steady(message: str, again: str) -> str:
    """What a test says, without the numbers that are others when it runs again."""
    one, other = (re.split(r"(0x[0-9a-f]+|\d+(?:\.\d+)?)", text) for text in (message, again))
    if one[::2] != other[::2]:
        return message
    return "".join(
        a if a == b or a.startswith("0x") else "..." for a, b in zip(one, other, strict=True)
    )


def _varied(found: Sequence[Mutation]) -> list[Mutation]:
    """The same, so that each operator comes up once before any comes up again."""
    turn: Counter[str] = Counter()
    keyed = []
    for mutation in found:
        turn[mutation.operator] += 1
        keyed.append((turn[mutation.operator], mutation))
    return [m for _, m in sorted(keyed, key=lambda k: k[0])]


def _parses(text: str) -> bool:
    try:
        parse_python(text)
    except (SyntaxError, ValueError):
        return False
    return True


def likely(module: Source, mutation: Mutation) -> bool:
    """Whether a person might have made this mistake, rather than one that only a machine makes."""
    start, end, new = mutation.edit
    old = module.data[start:end].decode("utf-8")
    line = module.text.split("\n")[mutation.line - 1]
    before = module.data[:start].decode("utf-8").rsplit("\n", 1)[-1]
    if mutation.operator == "arguments":
        return not re.search(
            r"\b(isinstance|issubclass|super|getattr|setattr|hasattr|type)\($", before
        )
    if mutation.operator == "arithmetic" and old.startswith("+"):
        return re.search(r"\d|len\(|total|count|sum|size|offset", line) is not None
    if mutation.operator == "returned":
        return new != "None" or "(" not in old
    return True


def _group(origin: Origin, file: str) -> str:
    for root in origin.python_path:
        if root not in ("", ".") and file.startswith(root + "/"):
            file = file[len(root) + 1 :]
    parts = PurePosixPath(file).with_suffix("").parts
    own = parts[1:] if len(parts) > 1 else parts
    return "/".join((origin.package, *own))


def _public(pristine: Path, failing: Sequence[str]) -> list[str]:
    """The tests an agent may see: the first half of the functions, and those that cannot be cut
    out."""
    functions = list(dict.fromkeys(sources.function_of(t) for t in failing))
    shown = set(functions[: (len(functions) + 1) // 2])
    for function in functions:
        file, *names = function.split("::")
        text = (pristine / file).read_bytes().decode("utf-8")
        left, missing = sources.cut_tests(text, [names])
        if missing or left == text:
            shown.add(function)
    return [t for t in failing if sources.function_of(t) in shown]


def known_tasks(file: Path) -> list[Task]:
    """The tasks that there are: the shipped ones and the workspace's own, and those of `file`."""
    found: list[Task] = []
    for data in [None, file] if file.exists() else [None]:
        try:
            found += tasks_of(data, lambda _: None)[0]
        except BadInput as e:
            if e.code != "no-tasks":
                raise
    return found


def _known_splits(
    file: Path, origin: Origin | None = None, *, hard: bool = False
) -> dict[str, Split]:
    """The split of every group that has tasks already, but for those of `origin` that are made
    anew: the hard ones, or the others."""
    known: dict[str, Split] = {}
    for task in known_tasks(file):
        own = (
            origin
            and task.id.startswith(f"swe:{origin.name}:")
            and task.facts["kind"] == "injected"
        )
        if not own or Injected.model_validate(task.facts["bug"]).hard != hard:
            known[task.group] = task.split
    return known


def _dealt(
    origin: Origin, kept: list[Injected], split: Split | None, known: Mapping[str, Split]
) -> list[Injected]:
    """The tasks with their split. Modules are dealt, largest first, so that two fifths are train.

    A group that has a split keeps it, and a package of the test split stays there whole. In a
    project with one module the functions are dealt instead: there is nothing else to divide it by.
    """
    split = _whole_package(origin.package, split, known)
    if split is None and len({b.group for b in kept}) == 1 and kept[0].group not in known:
        kept = [b.model_copy(update={"group": f"{b.group}.{b.function}"}) for b in kept]
    chosen = dealt_by_module(origin.package, Counter(b.group for b in kept), split, known)
    return [b.model_copy(update={"split": chosen[b.group]}) for b in kept]


def dealt_by_module(
    package: str, sizes: Counter[str], split: Split | None, known: Mapping[str, Split]
) -> dict[str, Split]:
    """Group -> split, of groups with these numbers of tasks: that which is asked, else the largest
    first, so that two fifths of the tasks are train. A group that has a split keeps it, and a
    package of the test split stays there.
    """
    split = _whole_package(package, split, known)
    if split is not None:
        return dict.fromkeys(sizes, split)
    chosen: dict[str, Split] = {g: known[g] for g in sizes if g in known}
    room = round(sizes.total() * 0.4) - sum(sizes[g] for g, s in chosen.items() if s == "train")
    for group, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if group not in chosen:
            chosen[group] = "train" if size <= room else "validation"
            room -= size if chosen[group] == "train" else 0
    return chosen


def _whole_package(package: str, split: Split | None, known: Mapping[str, Split]) -> Split | None:
    """The split of a whole package: that which is asked, or test where it has one of test."""
    test = any(g.startswith(f"{package}/") and s == "test" for g, s in known.items())
    return "test" if split is None and test else split

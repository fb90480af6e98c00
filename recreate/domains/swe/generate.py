"""New tasks: bugs injected into a release or a repository, kept when a few of its own tests notice."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.ports import SandboxBackend
from recreate.api.types import Split, Task
from recreate.domains.python_env import environment
from recreate.domains.swe import facts, sources, test_run
from recreate.domains.swe.case import InjectedCase, content, tasks_of
from recreate.domains.swe.facts import INJECTED, Injected, Origin
from recreate.domains.swe.mutation import Mutation, Site, Source, meant, mutations
from recreate.domains.swe.sources import Say
from recreate.domains.swe.test_run import ProjectTests, TestResults

MOST_LINES, FEWEST_LINES = 45, 4
MOST_FAILING = 8
"""A mutant is kept when between 1 and this many tests fail."""
TRIES = 14
"""Mutants tried for each task that is wanted, at most."""


@dataclass
class MadeTasks:
    """What `make` did: the tasks, how many mutants were tried, and the recipe file."""

    tasks: list[Task]
    tried: int
    file: Path


@dataclass
class _Candidate:
    file: str
    module: Source
    place: Site
    mutation: Mutation
    tests: frozenset[str]


def make(
    *,
    package: str | None = None,
    version: str | None = None,
    repo: Path | None = None,
    n: int = 10,
    seed: int = 0,
    split: Split | None = None,
    requires: Sequence[str] = (),
    tests: Sequence[str] = (),
    python_path: Sequence[str] = (),
    modules: Sequence[str] = (),
    backend: SandboxBackend | None = None,
    env: Path | None = None,
    file: Path | None = None,
    on_progress: Say | None = None,
) -> MadeTasks:
    """Inject up to `n` bugs into one package (its sdist) or repository, and write their recipes to `file`.

    split         of all the tasks; by default the modules are dealt out to train and validation
    requires      pinned requirements of the tests             python_path   folders put on sys.path
    tests         files and folders given to pytest; both are looked for when not given
    modules       only bugs in these files of the project
    file          benchmarks/swe/injected.jsonl of the workspace unless given; older tasks of the same source go

    Same arguments, same tasks. Raises BadInput: unknown-package, no-tests, failing-suite, no-mutants.
    """
    say: Say = on_progress or (lambda _: None)
    if backend is None:
        from recreate.sandboxes import choose

        backend = choose()
    file = file or paths.workspace() / "benchmarks" / "swe" / INJECTED
    origin, pristine = _origin(package, version, repo, tuple(requires), tuple(tests), tuple(python_path), file, say)
    known = _known(file, origin)
    files = _files(origin, pristine, modules, split, known)
    python = env if env is not None else environment(origin.requires, say)
    _not_installed(origin, pristine, python)
    trial = _Trial(origin, pristine, python, backend, say)
    chance = random.Random(f"{seed} {origin.sha256 or origin.digest}")
    kept, tried = trial.kept(trial.candidates(files, chance), n)
    origin = trial.origin
    if not kept:
        raise BadInput(
            f"no bug that a few tests notice was found in {origin.name} ({tried} tried)",
            fix="take a package with more tests, or another --seed",
            code="no-mutants",
        )
    bugs = _dealt(origin, kept, split, known)
    facts.add(file, origin, bugs)
    cases = [InjectedCase(origin, bug, say) for bug in bugs]
    return MadeTasks([case.task() for case in cases], tried, file)


# --- where the sources are, and how their tests run -------------------------------------------------------


def _origin(
    package: str | None,
    version: str | None,
    repo: Path | None,
    requires: tuple[str, ...],
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
        origin = Origin(name=name, package=repo.name, path=path, commit=commit, digest=digest, tests=("?",))
    else:
        assert package is not None
        assert version is not None
        sha256 = sources.released_sha256(package, version)
        pristine = sources.release(package, version, sha256, say)
        origin = Origin(name=f"{package}-{version}", package=package, version=version, sha256=sha256, tests=("?",))
    tests = tests or _find_tests(pristine)
    missing = [t for t in tests if not (pristine / t).exists()]
    if not tests or missing:
        what = f"{missing[0]} is not in" if missing else "no tests were found in"
        raise BadInput(
            f"{what} the sources of {origin.name}",
            fix="name them with --tests, or take another release: some leave their tests out of the sdist",
            code="no-tests",
        )
    folders = python_path or (("src",) if (pristine / "src").is_dir() else (".",))
    how = {"tests": tests, "python_path": folders, "requires": requires}
    return origin.model_copy(update=how), pristine


def _find_tests(pristine: Path) -> tuple[str, ...]:
    """The topmost folders of tests, else the test files."""
    files = [PurePosixPath(p) for p in sources.files(pristine) if p.endswith(".py") and sources.is_test(p)]
    named = {
        PurePosixPath(*p.parts[: i + 1]).as_posix()
        for p in files
        for i, part in enumerate(p.parts[:-1])
        if part in ("tests", "test")
    }
    top = {f for f in named if not any(f.startswith(other + "/") for other in named)}
    return tuple(sorted(top or {p.as_posix() for p in files}))


def _not_installed(origin: Origin, pristine: Path, env: Path) -> None:
    """The package itself must not be importable from the environment: it would be the solution."""
    tops = {
        PurePosixPath(p).relative_to(PurePosixPath(r)).parts[0].removesuffix(".py")
        for r in origin.python_path
        for p in sources.modules(pristine, (r,), origin.tests)
        if PurePosixPath(p).is_relative_to(PurePosixPath(r))
    }
    for top in sorted(tops):
        for place in ("", ".py"):
            if list(env.glob(f"lib/python3*/site-packages/{top}{place}")):
                raise BadInput(
                    f"the environment of the tests holds {top} itself, which would give every answer away",
                    fix="leave out the requirement that brings it",
                    code="package-installed",
                )


def _files(
    origin: Origin, pristine: Path, wanted: Sequence[str], split: Split | None, known: Mapping[str, Split]
) -> list[str]:
    """The modules to put bugs into: `wanted`, or all but those whose group has another split than `split`."""
    found = sources.modules(pristine, origin.python_path, origin.tests)
    unknown = sorted(set(wanted) - set(found))
    if unknown:
        raise BadInput(
            f"{origin.name} has no module {unknown[0]}", fix=f"there are: {', '.join(found)}", code="unknown-module"
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


_LOUD = {"failed", "error", "repeated"}


class _Trial:
    """One project's suite, run without a bug, then on mutants.

    origin: with what does not count deselected. passing: the tests that pass without a bug. traced: file -> test id
    -> the lines of the file that it runs.
    """

    def __init__(self, origin: Origin, pristine: Path, env: Path, backend: SandboxBackend, say: Say) -> None:
        self.origin, self.pristine, self._env, self._backend, self._say = origin, pristine, env, backend, say
        say(f"running the tests of {origin.name}, twice")
        traced = self._run(origin.suite, 600.0, trace=True)
        plain = self._run(origin.suite, 600.0)
        for run in (traced, plain):
            if run.doubt:
                raise BadInput(
                    f"the tests of {origin.name} do not run to their end: {run.doubt}\n{run.output[-1200:]}",
                    fix="name tests that do, with --tests",
                    code="failing-suite",
                )
        good = traced.passed() & plain.passed()
        if not good:
            why = next((m for m in plain.messages.values() if m), "")[-300:] or plain.output[-300:]
            raise BadInput(
                f"none of the tests of {origin.name} passes: {test_run.short(why, 300)}",
                fix="say what the tests need, --requires NAME==VERSION, or where the sources are, --python-path",
                code="failing-suite",
            )
        both = traced.outcomes.keys() & plain.outcomes.keys()
        bad = {t for t in both - good if {traced.outcomes[t], plain.outcomes[t]} & _LOUD}
        # an id that changes from run to run
        bad |= {sources.function_of(t) for t in traced.outcomes.keys() ^ plain.outcomes.keys()}
        bad |= {u for u in (*traced.uncollected, *plain.uncollected) if u}
        if bad:
            say(f"left out, as they fail or waver before any bug is put in: {', '.join(sorted(bad)[:5])}")
        self.passing = frozenset(t for t in good if not {t, sources.function_of(t), t.partition("::")[0]} & bad)
        self.traced = {f: {t: frozenset(n) for t, n in by.items()} for f, by in traced.lines.items()}
        update = {"deselect": tuple(sorted({*origin.deselect, *bad})), "seconds": round(plain.seconds, 2)}
        self.origin = origin.model_copy(update=update)
        say(f"{len(self.passing)} tests pass in {plain.seconds:.1f} s")

    def _run(self, tests: ProjectTests, timeout: float, **how: Any) -> TestResults:
        """The tests on the sources; how: what `test_run.run` takes besides."""
        where = (self._backend, self.pristine, self._env)
        return test_run.run(*where, tests, timeout=timeout, output_bytes=200_000, **how)

    def candidates(self, files: Sequence[str], chance: random.Random) -> Iterator[_Candidate]:
        """Mutants in the order to try them: the files by turns, in each file the functions by turns."""
        queues = [functions for file in files if (functions := self._functions(file, chance))]
        chance.shuffle(queues)
        while queues:
            for functions in list(queues):
                function = functions.pop(0)
                yield function.pop(0)
                if function:
                    functions.append(function)
                if not functions:
                    queues.remove(functions)

    def _functions(self, file: str, chance: random.Random) -> list[list[_Candidate]]:
        """The likely mutants of each function of a file that passing tests run."""
        tests = {t: lines for t, lines in self.traced.get(file, {}).items() if t in self.passing}
        try:
            module = Source((self.pristine / file).read_bytes().decode("utf-8"))
        except (SyntaxError, ValueError):
            return []
        functions = []
        for place in module.functions():
            body = range(place.node.body[0].lineno, place.last + 1)
            covering = frozenset(t for t, lines in tests.items() if not lines.isdisjoint(body))
            if not covering or not FEWEST_LINES <= place.size <= MOST_LINES:
                continue
            own = []
            for mutation in mutations(module, place):
                if likely(module, mutation):
                    hit = frozenset(t for t in covering if mutation.line in tests[t])
                    own.append(_Candidate(file, module, place, mutation, hit or covering))
            chance.shuffle(own)
            if own:
                functions.append(_varied(own))
        chance.shuffle(functions)
        return functions

    def kept(self, candidates: Iterator[_Candidate], n: int) -> tuple[list[Injected], int]:
        """The first `n` mutants that a few tests notice, and how many were tried: at most one of a function, no
        operator too often."""
        kept: list[Injected] = []
        tried = crashes = 0
        operators: Counter[str] = Counter()
        functions: set[tuple[str, str]] = set()
        for candidate in candidates:
            operator, where = candidate.mutation.operator, (candidate.file, candidate.place.name)
            if len(kept) == n or tried >= n * TRIES:
                break
            if where in functions or operators[operator] > max(0, n // 8):
                continue
            mutated = meant(candidate.module, candidate.mutation)
            if mutated is None:
                continue
            tried += 1
            bug = self._tried(candidate, mutated)
            if bug is None:
                continue
            # A wrong value is what most bugs give; a crash names its line, and would make most tasks easy.
            crash = not all(re.match(r"assert|AssertionError|Failed: DID NOT", m) for m in bug.observed.values())
            if not crash or crashes < max(1, n // 4):
                crashes += crash
                kept.append(bug)
                functions.add(where)
                operators[operator] += 1
                self._say(f"{len(kept)} of {n} after {tried} mutants: {bug.id}, noticed by {len(bug.fail_to_pass)}")
        return kept, tried

    def _tried(self, candidate: _Candidate, mutated: str) -> Injected | None:
        """The mutant as a task, or None: first the tests that run its line, then the whole suite must agree."""
        suite, files = self.origin.suite, {candidate.file: mutated}
        patience = 10 + 4 * self.origin.seconds
        few = suite.model_copy(update={"tests": tuple(test_run.files_of(candidate.tests))})
        near = self._run(few, patience, files=files, only=sorted(candidate.tests))
        failing = {t for t in candidate.tests if near.outcomes.get(t) == "failed"}
        if near.doubt or not 1 <= len(failing) <= MOST_FAILING or near.passed() != candidate.tests - failing:
            return None
        whole = self._run(suite, patience, files=files)
        if whole.doubt or whole.passed() != self.passing - failing:
            return None
        if any(whole.outcomes.get(t) != "failed" for t in failing):
            return None
        ordered = [t for t in whole.outcomes if t in failing]
        public = _public(self.pristine, ordered)
        module = PurePosixPath(candidate.file).with_suffix("").as_posix()
        mutation = candidate.mutation
        return Injected(
            source=self.origin.name,
            id=f"{PurePosixPath(module).name}.{candidate.place.name}-{mutation.operator}-{mutation.occurrence}",
            file=candidate.file,
            function=candidate.place.name,
            operator=mutation.operator,
            occurrence=mutation.occurrence,
            mutant=content(mutated),
            split="train",
            group=_group(self.origin, candidate.file),
            fail_to_pass=tuple(ordered),
            public=tuple(public),
            observed={t: test_run.short(whole.messages.get(t, "")) for t in public},
        )


# --- mutants ----------------------------------------------------------------------------------------------


def _varied(candidates: list[_Candidate]) -> list[_Candidate]:
    """The same, so that each operator comes up once before any comes up again."""
    turn: Counter[str] = Counter()
    keyed = []
    for candidate in candidates:
        turn[candidate.mutation.operator] += 1
        keyed.append((turn[candidate.mutation.operator], candidate))
    return [c for _, c in sorted(keyed, key=lambda k: k[0])]


def likely(module: Source, mutation: Mutation) -> bool:
    """Whether a person might have made this mistake, rather than one that only a machine makes."""
    start, end, new = mutation.edit
    old = module.data[start:end].decode("utf-8")
    line = module.text.split("\n")[mutation.line - 1]
    before = module.data[:start].decode("utf-8").rsplit("\n", 1)[-1]
    if mutation.operator == "arguments":
        return not re.search(r"\b(isinstance|issubclass|super|getattr|setattr|hasattr|type)\($", before)
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
    """The tests an agent may see: the first half of the functions, and those that cannot be cut out."""
    functions = list(dict.fromkeys(sources.function_of(t) for t in failing))
    shown = set(functions[: (len(functions) + 1) // 2])
    for function in functions:
        file, *names = function.split("::")
        text = (pristine / file).read_bytes().decode("utf-8")
        left, missing = sources.cut_tests(text, [names])
        if missing or left == text:
            shown.add(function)
    return [t for t in failing if sources.function_of(t) in shown]


def _known(file: Path, origin: Origin) -> dict[str, Split]:
    """The split of every group that has tasks already, but for those of `origin`, which are made anew."""
    known: dict[str, Split] = {}
    for data in [None, file] if file.exists() else [None]:
        try:
            tasks = tasks_of(data, lambda _: None)
        except BadInput as e:
            if e.code != "no-tasks":
                raise
            tasks = []
        known |= {t.group: t.split for t in tasks if not t.id.startswith(f"swe:{origin.name}:")}
    return known


def _dealt(origin: Origin, kept: list[Injected], split: Split | None, known: Mapping[str, Split]) -> list[Injected]:
    """The tasks with their split. Modules are dealt, largest first, so that two fifths are train.

    A group that has a split keeps it, and a package of the test split stays there whole. In a project with one
    module the functions are dealt instead: there is nothing else to divide it by.
    """
    if split is None and any(g.startswith(f"{origin.package}/") and s == "test" for g, s in known.items()):
        split = "test"
    if split is not None:
        return [b.model_copy(update={"split": split}) for b in kept]
    if len({b.group for b in kept}) == 1 and kept[0].group not in known:
        kept = [b.model_copy(update={"group": f"{b.group}.{b.function}"}) for b in kept]
    sizes = Counter(b.group for b in kept)
    chosen: dict[str, Split] = {g: known[g] for g in sizes if g in known}
    room = round(len(kept) * 0.4) - sum(sizes[g] for g, s in chosen.items() if s == "train")
    for group, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if group not in chosen:
            chosen[group] = "train" if size <= room else "validation"
            room -= size if chosen[group] == "train" else 0
    return [b.model_copy(update={"split": chosen[b.group]}) for b in kept]

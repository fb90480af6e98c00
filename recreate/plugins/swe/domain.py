"""The domain `swe`: a bug in a small Python package, and the package's own tests to tell whether it
is mended."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import get_args

from recreate.api import paths
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Grade, PassRate, Record, Split, Task, TaskSet, Trace, digest
from recreate.domains import python_env
from recreate.domains.python_env import environment
from recreate.domains.rates import RateFiles
from recreate.plugins.audit import audit
from recreate.plugins.swe import copies, exam, patch, rooms, sources, test_run
from recreate.plugins.swe.case import Case, case_of, tasks_of
from recreate.plugins.swe.facts import Shown, folders
from recreate.plugins.swe.grader import meaning, version
from recreate.plugins.swe.rows import Refusal
from recreate.plugins.swe.trees import weight
from recreate.sandboxes.rootfs import interpreter_mounts
from recreate.storage.files import once

_FILES, _BYTES, _TOTAL = 200, 1_000_000, 5_000_000
"""How many changed files, how large a one, and how much in all an answer may hold."""
_LONGEST = {False: 600.0, True: 1800.0}
"""Seconds that a suite may take without the bug; where it is a row of SWE-bench, what its harness
allows."""
_ASKED = 0.5
"""Seconds that tests which pass without the mend have in an exam, however short the suite is."""
_LEFT = "# left out: "
"""How a line of an answer begins that says what is not in it, and why."""


class Baseline(Record):
    """What passes when the bug is not there: test ids, and the suite's time in seconds."""

    passed: tuple[str, ...]
    seconds: float


class Swe:
    """Tasks from benchmarks/swe: shipped ones, and the workspace's own.

    data  another folder of recipes, or one recipe file, instead of those; or rows of SWE-bench: a
          file, or a data set's name on the hub (recreate/plugins/swe/README.md)
    repos  a folder of clones of the rows' repositories
    env   a Python environment with pytest and coverage to run tests in, instead of building one for
          each task
    say   told what takes a while (fetching, building an environment); stderr unless given
    prompt    how real bugs are told, where the text is there: `issue`, as a user would report it,
              `title`, in one line, or `spec`, with all that is expected; None: each as its recipe
              means it
    patience  seconds an answer's tests may take beyond 5 times what they take without the bug
    """

    name = "swe"
    pass_fail = True

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        repos: Path | None = None,
        env: Path | None = None,
        say: Callable[[str], None] | None = None,
        patience: float = 30.0,
        prompt: Shown | None = None,
    ) -> None:
        self._data = data
        self._repos = repos
        self._env = env
        self._patience = patience
        if prompt not in (None, *get_args(Shown)):
            fix = "--prompt issue, --prompt title or --prompt spec"
            raise BadInput(f"{prompt!r} is no way to tell a bug", fix=fix, code="usage")
        self._shown = prompt
        self._say = say or (lambda text: print(text, file=sys.stderr))
        self._tasks: list[Task] | None = None
        self._refused: list[Refusal] = []
        self._rates = RateFiles(folders(data))

    # --- the port ---

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        """Real bugs, then injected ones, in the order of their files. Raises BadInput for a broken
        recipe file."""
        if self._tasks is None:
            self._tasks, self._refused = tasks_of(self._data, self._say, self._repos, self._shown)
            if self._refused:
                first = f"{self._refused[0].name}: {self._refused[0].reason}"
                self._say(
                    f"{len(self._refused)} rows are left out, the first: {first}; `recreate tasks"
                    " check` has all"
                )
        return [t for t in self._tasks if split is None or t.split == split]

    def refused(self) -> Sequence[tuple[str, str]]:
        """(name, why) of the rows that are no tasks on this machine."""
        self.tasks()
        return self._refused

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        """The buggy sources with the tests that may be seen, pytest and coverage, and
        `.recreate/public.json`."""
        case = self._case(task)
        # what its tests do here is not known, and an attempt is to be paid for
        if case.pass_to_pass is not None:
            self.baseline(task, backend)
        self._check_copies(case, backend)
        return test_run.open_sandbox(
            backend, case.start_folder(), self._environment(case), case.visible_tests()
        )

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        """The unified diff of what is changed in the sandbox, by content alone: what git says in
        there is not asked."""
        case = self._case(task)
        given, mounted = case.start_folder(), interpreter_mounts(self._environment(case))
        before: dict[str, str] = {}
        after: dict[str, str] = {}
        names, left = self._list_changes(given, sandbox, list(mounted))
        held = 0
        for name in names:
            try:
                text = _text(sandbox.read(name))
            except FileNotFoundError:
                pass  # deleted, or something else than a file now
            except (BadInput, ValueError):
                left.append(f"{name!r}: not a text file of at most {_BYTES} bytes")
                continue
            else:
                held += len(text)
                if held > _TOTAL:
                    left.append(f"{name!r}: the answer has {_TOTAL} characters already")
                    continue
                after[name] = text
            if (given / name).is_file():
                before |= sources.texts(given, [name])
        return "".join(f"{_LEFT}{why}\n" for why in left) + patch.make(before, after)

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        """Run the project's tests on the answer. 1.0 when all that should pass do, else 0.0;
        nothing between."""
        left, answer = _left_out(trace.answer)
        grade = self._graded(task, answer, backend)
        head, end, rest = grade.evidence.partition("\n")
        return (
            grade.model_copy(update={"evidence": "\n".join([head, *left]) + end + rest})
            if left
            else grade
        )

    def _graded(self, task: Task, answer: str, backend: SandboxBackend) -> Grade:
        case = self._case(task)
        try:
            files, dropped = _applied(answer, case)
        except patch.BadPatch as e:
            return Grade(score=0.0, passed=False, evidence=f"The answer does not apply: {e}.")
        if not files:
            why = (
                "it changes only what does not count: " + "; ".join(dropped)
                if dropped
                else "it is empty"
            )
            return Grade(
                score=0.0, passed=False, evidence=f"There is nothing to grade in the answer: {why}."
            )
        baseline = self.baseline(task, backend)
        patience = self._patience + 5 * baseline.seconds
        # Without the expected values first: what the tests themselves hold is in no sandbox before
        # that is over.
        wrong = self._examined(task, files, backend, patience)
        # the very run that the baseline is
        if case.pass_to_pass is not None and files == case.gold():
            run = test_run.TestResults(outcomes=dict.fromkeys(baseline.passed, "passed"))
        else:
            with rooms.enter(task.group, "suite") if case.withholds else nullcontext():
                run = self._run(backend, case, files, patience)
        return _graded(case.fail_to_pass, _others(case, baseline), run, dropped, wrong)

    def lacking(self, task: Task) -> str:
        """The Python that the task needs, when it is not here."""
        return python_env.lacking(self._case(task).environment.python) if self._env is None else ""

    @property
    def grader(self) -> str:
        """The version of all that decides a grade."""
        return version()

    def kind(self, task: Task) -> str:
        """real or injected."""
        return str(task.facts["kind"])

    def pass_rates(self, task: Task) -> Sequence[PassRate]:
        """What was measured of a task, kept beside its recipes."""
        return self._rates.pass_rates(task)

    def task_sets(self) -> Mapping[str, TaskSet]:
        """The sets named beside the recipes."""
        return self._rates.task_sets()

    # --- beyond the port: gold, folders, and what passes without the bug ---

    def gold(self, task: Task) -> str:
        """The diff that mends the task: the injected change undone, or what the later release
        changed."""
        case = self._case(task)
        gold = case.gold()
        before = sources.texts(case.graded(), [p for p in gold if (case.graded() / p).is_file()])
        return patch.make(before, {p: text for p, text in gold.items() if text is not None})

    def hidden(self, task: Task) -> list[str]:
        """The lines that mend the task, and those of the tests that the agent is not shown."""
        return self._case(task).hidden()

    def bytes(self, task: Task) -> int:
        """Bytes of the task's own trees."""
        return weight(self._case(task).own_folders())

    def untouched(self, task: Task, backend: SandboxBackend) -> Grade:
        """What the tests say of the sources with the bug. score: the share of FAIL_TO_PASS that
        passes; it should be 0, and is passed only when nothing is left to mend."""
        case = self._case(task)
        baseline = self.baseline(task, backend)
        run = self._run(backend, case, {}, self._patience + 5 * baseline.seconds)
        grade = _graded(case.fail_to_pass, _others(case, baseline), run, [], "")
        share = len(run.passed() & set(case.fail_to_pass)) / len(case.fail_to_pass)
        return grade.model_copy(update={"score": share})

    def compared(self, task: Task, backend: SandboxBackend) -> tuple[Grade, Sequence[str]]:
        """As `untouched`, with the tests that pass there and not with the gold, FAIL_TO_PASS aside.
        Of a row none: its PASS_TO_PASS leaves them out. A task whose exam does not notice the bug
        has score 1, but a row, whose tests are as they were published: a forged run of its tests
        would be all that it takes."""
        case = self._case(task)
        if case.withholds and case.pass_to_pass is None and self.exam(task, backend).blind:
            return Grade(score=1.0, passed=False, evidence=_BLIND), ()
        baseline = self.baseline(task, backend)
        timeout = self._patience + 5 * baseline.seconds
        wanted, sound, known = set(case.fail_to_pass), set(baseline.passed), set[str]()
        if case.pass_to_pass is None:
            # What passes with the gold as well can be neither broken by it nor left to mend: only
            # the others are run, and the whole files of FAIL_TO_PASS, whose tests may lean on each
            # other.
            near = set(test_run.files_of(wanted))
            known = {t for t in sound - wanted if "::" in t and t.partition("::")[0] not in near}
            case.suite = case.suite.model_copy(
                update={"deselect": (*case.suite.deselect, *sorted(known))}
            )
        run = self._run(backend, case, {}, timeout)
        passed, others = run.passed(), [t for t in _others(case, baseline) if t not in known]
        grade = _graded(case.fail_to_pass, others, run, [], "")
        broken = sorted(passed - wanted - sound) if case.pass_to_pass is None else []
        if broken:  # some waver, or have other names each time: those alone once more
            suite = case.suite.model_copy(update={"tests": tuple(test_run.files_of(broken))})
            where = (backend, case.graded(), self._environment(case), suite)
            functions = {t: sources.function_of(t) for t in broken}
            again = test_run.run(
                *where, timeout=timeout, files=case.gold(), only=functions.values()
            )
            ran = {sources.function_of(t) for t in again.outcomes}
            failing = (again.outcomes.keys() - again.passed()) | {
                t for t in broken if functions[t] not in ran
            }
            broken = [t for t in broken if t in failing]
        return (
            grade.model_copy(update={"score": len(passed & wanted) / len(case.fail_to_pass)}),
            broken,
        )

    def exploits(self, task: Task) -> dict[str, str]:
        """Every exploit for Python code, as a diff around the function that has the bug; none where
        the mend changes no Python file."""
        case = self._case(task)
        file, function = case.place()
        if not file:
            return {}
        before = sources.texts(case.graded())
        made = audit.python(file, before[file], function)
        return {
            name: patch.make({p: before[p] for p in files if p in before}, files)
            for name, files in made.items()
        }

    def baseline(self, task: Task, backend: SandboxBackend) -> Baseline:
        """What passes once the task is mended, twice the same; kept in home(). Raises Fault when
        the task cannot be graded on this machine."""
        case = self._case(task)
        given = case.pass_to_pass is not None
        program = (
            test_run.text_of("suite_runner.py", "test_log.py") if given else test_run.program()
        )
        about = [case.key, meaning(program), str(self._env or ""), sys.version_info[:2]]

        def build(fresh: Path) -> None:
            self._say(f"running the tests of {case.name} without the bug, once")
            gold = case.gold()
            # Where what should pass is given, one run shows whether it does; else what passes twice
            # is taken.
            runs = [
                self._run(backend, case, gold, _LONGEST[given]) for _ in range(1 if given else 2)
            ]
            passed = set.intersection(*(run.passed() for run in runs))
            if not passed:
                why = next((run.doubt for run in runs if run.doubt), "none passes")
                raise Fault(
                    f"the tests of {case.name} do not run here: {why}\n{runs[0].output[-1500:]}",
                    fix="recreate tasks check swe says which tasks hold on this machine",
                    code=UNSOUND if given else "baseline",
                )
            seconds = round(max(run.seconds for run in runs), 2)
            fresh.write_text(
                Baseline(passed=tuple(sorted(passed)), seconds=seconds).model_dump_json()
            )

        file = once(paths.home() / "swe" / "baselines" / f"{digest(about)}.json", build)
        found = Baseline.model_validate_json(file.read_text())
        lost = sorted({*case.fail_to_pass, *(case.pass_to_pass or ())} - set(found.passed))
        if lost:
            more = f", nor do {len(lost) - 1} more" if lost[1:] else ""
            raise Fault(
                f"{task.id} cannot be graded here: even without the bug {lost[0]} does not"
                f" pass{more}",
                fix=(
                    "leave the task out; recreate tasks check swe lists those that hold on this"
                    " machine"
                ),
                code=UNSOUND,
            )
        return found

    def exam(self, task: Task, backend: SandboxBackend) -> exam.Exam:
        """The tests of a task with their expected values withheld, and what is right; kept in
        home()."""
        case = self._case(task)
        baseline = self.baseline(task, backend)
        about = [case.key, case.fail_to_pass, version(), str(self._env or ""), sys.version_info[:2]]

        def build(fresh: Path) -> None:
            self._say(f"finding out which expected values of {task.id} can be withheld, once")
            gold = case.gold()
            python = [path for path in sources.files(case.graded()) if path.endswith(".py")]
            texts = sources.texts(
                case.graded(), [path for path in python if case.unacceptable(path)]
            )

            def run(files: Mapping[str, str], tests: Sequence[str]) -> test_run.TestResults:
                return self._run(backend, case, {**gold, **files}, 600.0, tests=tests)

            def untouched(files: Mapping[str, str], tests: Sequence[str]) -> test_run.TestResults:
                return self._run(
                    backend, case, files, self._patience + 5 * baseline.seconds, tests=tests
                )

            allowed = max(_ASKED, baseline.seconds / 8)
            made = exam.make(
                texts, case.fail_to_pass, baseline.passed, run, untouched, allowed, task.id
            )
            fresh.write_text(made.model_dump_json())

        file = once(paths.home() / "swe" / "exams" / f"{digest(about)}.json", build)
        return exam.Exam.model_validate_json(file.read_text())

    # --- inside ---

    def _examined(
        self, task: Task, files: Mapping[str, str | None], backend: SandboxBackend, patience: float
    ) -> str:
        """'' when the answer gives what is right where the tests do not say what that is, else what
        it does not."""
        if not self._case(task).withholds or not (asked := self.exam(task, backend)).claims:
            return ""
        with rooms.enter(task.group, "exam"):
            run = self._run(
                backend, self._case(task), {**files, **asked.files}, patience, tests=asked.run
            )
        return asked.wrong(run)

    def _case(self, task: Task) -> Case:
        return case_of(task, self._say, self._repos)

    def _environment(self, case: Case) -> Path:
        try:
            return self._env if self._env is not None else environment(case.environment, self._say)
        except BadInput as e:  # of one task: the others go on
            raise Fault(e.message, fix=e.fix, code=UNSOUND) from None

    def _check_copies(self, case: Case, backend: SandboxBackend) -> None:
        """See to it that the case's sandboxes hold its package once. Raises Fault when they
        cannot."""
        found = copies.find(backend, self._environment(case), case.graded(), case.suite, self._say)
        if found.left and (place := found.of(case.gold(), case.suite)):
            raise Fault(
                f"the sandbox of {case.name} would hold what mends it: {place}",
                fix="leave the task out: what lies in Python's own library cannot be masked",
                code=UNSOUND,
            )
        case.suite = copies.without(case.suite, found)

    def _list_changes(
        self, given: Path, sandbox: Sandbox, mounted: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Paths in the sandbox that differ from `given`, by-products left out, and what cannot be
        handed in, with why. Only names are believed, and whatever the agent made of its folder is
        no fault of ours."""
        limits = {"longest": patch.LONGEST, "largest": _BYTES, "mounted": list(mounted)}
        links = [
            path.relative_to(given).as_posix() for path in given.rglob("*") if path.is_symlink()
        ]
        order = {
            "manifest": sources.manifest(given),
            "links": links,
            "skipped": sorted(sources.SKIPPED),
            **limits,
        }
        line = json.dumps(order).encode() + b"\n"
        # -I: the sandbox's PYTHONPATH leads to what the agent wrote.
        output = sandbox.run(["python3", "-I", "-B", "-c", _CHANGED], timeout=60, stdin=line)
        try:
            found = json.loads(output.text.strip().rpartition("\n")[2])
            changed, others, more = found["changed"], found["left"], found["more"]
        except (ValueError, KeyError, TypeError):
            if not (output.limit or output.timed_out or output.text.startswith(_BEGAN)):
                why = f"the changed files could not be listed: {output.text[-500:]}"
                raise Fault(why, code="collect") from None
            return [], [
                f"everything: it cannot be looked through (limit: {output.limit or 'none'})"
            ]
        names = [name for name in changed if not sources.skipped(name)]
        left = [f"{name!r}: {reason}" for name, reason in others]
        if over := len(names[_FILES:]) + more:
            left.append(f"{over} more, beyond the first {_FILES} changed files")
        return sorted(names[:_FILES]), left

    def _run(
        self,
        backend: SandboxBackend,
        case: Case,
        files: Mapping[str, str | None],
        timeout: float,
        tests: Sequence[str] | None = None,
    ) -> test_run.TestResults:
        """The suite on the graded sources with `files` over them; with `tests`, files of it that
        tell what they see."""
        self._check_copies(case, backend)
        return case.run(backend, self._environment(case), files, timeout, tests)


_BLIND = (
    "with their expected values withheld, the tests see nothing that tells the bug from its mend, "
    "so that an answer which forges their run would pass (docs/grading.md)"
)
_BEGAN = "looking"
_CHANGED = """
import hashlib, json, os, sys
order = json.loads(sys.stdin.readline())
print("looking", flush=True)
known, skipped, found, left, stack = dict(order["manifest"]), set(order["skipped"]), [], [], [""]
while stack:
    folder = stack.pop()
    for again in (True, False):
        try:
            entries = sorted(os.scandir(folder or "."), key=lambda e: e.name)
            break
        except OSError as e:
            entries = []
            try:
                os.chmod(folder or ".", 0o700)
            except OSError:
                again = False
            if not again:
                left.append([folder, "a folder that cannot be listed"])
                break
    for entry in entries:
        path = folder + "/" + entry.name if folder else entry.name
        try:
            fits = len(path.encode()) <= order["longest"]
        except UnicodeEncodeError:
            fits = False
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and (entry.name in skipped or os.path.abspath(path) in order["mounted"]):
            continue
        if not fits:
            left.append([path[:120], "its path is too long, or not UTF-8"])
        elif is_folder:
            stack.append(path)
            if path in known:
                left.append([path, "a folder is in its place"])
        elif not entry.is_file(follow_symlinks=False):
            if not (path in order["links"] and entry.is_symlink()):
                left.append([path, "a link, or no file"])
        else:
            was = known.pop(path, None)
            try:
                if entry.stat(follow_symlinks=False).st_size > order["largest"]:
                    left.append([path, "larger than %d bytes" % order["largest"]])
                    continue
                with open(path, "rb") as f:
                    same = was is not None and hashlib.sha256(f.read()).hexdigest() == was
            except OSError:
                same = False
            if not same:
                found.append(path)
found = sorted([*found, *known], key=lambda path: (path not in order["manifest"], path))
names, room = [], 300000
for path in found:
    room -= len(json.dumps(path))
    if room < 0:
        break
    names.append(path)
many = [["", "%d more" % (len(left) - 50)]] if left[50:] else []
print()
print(json.dumps({"changed": names, "left": left[:50] + many, "more": len(found) - len(names)}))
"""


def _text(data: bytes) -> str:
    if len(data) > _BYTES:
        raise ValueError("too large")
    return data.decode("utf-8")


def _applied(answer: str, case: Case) -> tuple[dict[str, str | None], list[str]]:
    """The files that the answer's acceptable changes make, and what was dropped. Raises
    patch.BadPatch."""
    kept, dropped = [], []
    for change in patch.read(answer):
        reasons = {p: case.unacceptable(p) for p in sorted(change.paths)}
        wrong = [f"{path} ({why})" for path, why in reasons.items() if why]
        dropped += wrong
        if not wrong:
            kept.append(change)
    if len(kept) > _FILES:
        raise patch.BadPatch(f"it changes {len(kept)} files, more than {_FILES}")
    base = case.graded()
    touched = {p for change in kept for p in change.paths if (base / p).is_file()}
    before = sources.texts(base, touched)
    if touched - before.keys():
        raise patch.BadPatch(f"{min(touched - before.keys())} is not a text file")
    files = patch.apply(kept, before)
    _check_places(files, base)
    if not answer.strip() or kept or dropped:
        return {p: text for p, text in files.items() if text != before.get(p)}, dropped
    raise patch.BadPatch("it holds no change in the form of a unified diff")


def _check_places(files: Mapping[str, str | None], base: Path) -> None:
    """Raises patch.BadPatch where a file would be in the place of a folder, or below another
    file."""
    made = {path for path, text in files.items() if text is not None}
    for path in sorted(made):
        if (base / path).is_dir():
            raise patch.BadPatch(f"{path} would be a file and is a folder")
        above = next(
            (
                a
                for p in PurePosixPath(path).parents
                if (a := str(p)) in made or (base / a).is_file()
            ),
            None,
        )
        if above is not None:
            raise patch.BadPatch(f"{path} would lie below {above}, which is a file")


def _left_out(answer: str) -> tuple[list[str], str]:
    """What an answer says was not handed in with it, and the answer without that."""
    lines = answer.splitlines(keepends=True)
    count = next((n for n, line in enumerate(lines) if not line.startswith(_LEFT)), len(lines))
    said = [
        f"Left out when it was handed in: {line[len(_LEFT) :].strip()[:600]}"
        for line in lines[:count][:60]
    ]
    return said, "".join(lines[count:])


def _others(case: Case, baseline: Baseline) -> Sequence[str]:
    """What must keep passing besides FAIL_TO_PASS."""
    return baseline.passed if case.pass_to_pass is None else case.pass_to_pass


def _graded(
    fail_to_pass: Sequence[str],
    baseline: Sequence[str],
    run: test_run.TestResults,
    dropped: Sequence[str],
    wrong: str,
) -> Grade:
    """wrong: what the answer does not give where expected values are withheld, '' for nothing."""
    wanted = list(fail_to_pass)
    others = sorted(set(baseline) - set(wanted))
    passed = run.passed()
    doubt = run.doubt
    if not doubt and wrong and passed.issuperset((*wanted, *others)):
        doubt, passed = f"the tests pass and do not tell of the right values: {wrong}", set()
    solved = [t for t in wanted if t in passed]
    kept = [t for t in others if t in passed]
    good = len(solved) == len(wanted) and len(kept) == len(others)
    lines = [
        f"FAIL_TO_PASS {len(solved)}/{len(wanted)}, PASS_TO_PASS {len(kept)}/{len(others)}: "
        + ("solved" if good else "not solved")
    ]
    if doubt:
        lines.append(f"None counts: {doubt}.")
    lines += [f"Dropped before grading: {what}" for what in dropped]
    failed = [t for t in [*wanted, *others] if t not in passed]
    for test in failed[:8] if not doubt else []:
        message = test_run.short(run.messages.get(test, ""), 300)
        lines.append(
            f"- {run.outcomes.get(test, 'did not run')}: {test}"
            + (f"\n  {message}" if message else "")
        )
    for file in run.uncollected[:3]:
        lines.append(
            f"- could not be collected: {file}\n "
            f" {test_run.short(run.messages.get(file, '')[-400:], 400)}"
        )
    evidence = "\n".join(lines) + "\n--- output of the tests ---\n" + run.output
    return Grade(score=1.0 if good else 0.0, passed=good, evidence=evidence)

"""Rows of a file as a domain. An agent hands in `answer.txt`, and a scorer says how good that is.
docs/data.md is its page."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from recreate.api import paths
from recreate.api.config import Split
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import AskJudge, Limits, Sandbox, SandboxBackend
from recreate.api.types import Grade, Task, Trace, digest
from recreate.domains.python_env import asked, environment
from recreate.domains.rows import Columns, name_of, programs, scorers, table
from recreate.domains.rows.definition import (
    FILE,
    Definition,
    Wanted,
    absolute,
    decided,
    differences,
    load,
    text,
)
from recreate.domains.rows.scorers import PURE, Scored, expected_of, kind_of, texts_of
from recreate.domains.rows.tasks import as_json, files_of, golds_of, possible, tasks_of
from recreate.plugins.audit import audit
from recreate.plugins.benchmarks import analysis, snippet
from recreate.plugins.judge import judge
from recreate.plugins.withheld import apart
from recreate.sandboxes.rootfs import interpreter_mounts
from recreate.storage import files as disk

PASS_AT = {"f1": 0.8, "judge": 0.7}
"""The score from which an answer has passed, where domain.toml does not say; else 1."""
_LONGEST, _MOST = 1_000_000, 6_000_000
"""Characters of an answer that are handed in; of one of many files."""
_FILES, _BYTES = 200, 1_000_000
"""How many changed files an answer may have, and how large a one."""
OWN = "function"
"""How a function of the caller's is called where a scorer has a name."""
RUN = {
    "file": programs.of_function,
    "sql": programs.of_query,
    "tests": programs.of_tests,
    "math": programs.of_math,
    "snippet": snippet.of_snippet,
}
"""Scorers that run something: (definition, task, answer, what opens a sandbox) -> Scored."""
PROGRAMS = {
    "ends at once": "import os\nos._exit(0)\n",
    "exits well": "import sys\nsys.exit(0)\n",
    "prints a verdict": 'print(\'{"passed": 99, "failed": [], "count": 99}\')\n',
    "writes results": (
        "import os\nfor n in os.listdir('.'):\n    open(n + '.result', 'w').write('1')\n"
    ),
}
"""What a program may try in place of doing what it is asked."""


@dataclass(frozen=True)
class _RowsRead:
    """What the rows and domain.toml come to. base: the folder that paths in cells count from."""

    decided: Definition
    tasks: Sequence[Task]
    base: Path


def domain(
    rows: str | Path | Sequence[Mapping[str, Any]],
    *,
    score: str | Callable[[str, Mapping[str, Any]], Any] = "",
    prompt: str = "",
    answer: str = "",
    id: str = "",
    group: str = "",
    split: str = "",
    files: str = "",
    gold: str = "",
    name: str = "",
    workspace: str | Path | None = None,
) -> RowDomain:
    """Rows as a domain, to be given to `build`, `run` and `bench`: what `--data` is on the command
    line.

    rows       a list of dicts; or a file or hf:NAME, and then benchmarks/NAME/domain.toml keeps
               what was decided
    score      a scorer's name as --score takes it, "FILE.py:function", which runs in a sandbox, or
               a function of yours: score(answer, row) -> a number from 0 to 1, a bool, or {"score",
               "passed", "evidence"}. **A function runs in this very process, with all that it may
               do**: it must not run what an answer says. "" : guessed
    prompt, answer, id, group, split, files, gold   the columns' names; "": guessed
    name       of the domain; "": the file's stem, else rows
    workspace  where domain.toml lies; None: the one around the current folder

    Raises BadInput that tells all rows that cannot be tasks, a column that is not there, a scorer
    that there is not.
    """
    columns = {
        "answer": answer,
        "id": id,
        "group": group,
        "split": split,
        "files": files,
        "gold": gold,
    }
    own = not isinstance(rows, str | Path)
    made = RowDomain(
        name or ("rows" if own else name_of(str(rows))),
        workspace=Path(workspace).expanduser().resolve() if workspace else None,
        data="" if own else str(rows),
        rows=[dict(row) for row in rows] if own and not isinstance(rows, str | Path) else None,
        prompt=prompt,
        columns=columns,
        score=score,
    )
    made.tasks()
    return made


class RowDomain:
    """Tasks that are rows of a file.

    name     of the domain, and of its folder below benchmarks/
    data     a file, or hf:NAME; '' where domain.toml says it
    rows     the rows themselves, in place of a file; then there is no domain.toml
    score    the scorer's name, or a function of the caller's, which runs in this process
    columns  which column is what, as far as it is said; prompt: the same of the prompt
    say      told what was guessed and written; stderr unless given
    """

    def __init__(
        self,
        name: str,
        *,
        workspace: Path | None = None,
        data: str | Path = "",
        rows: Sequence[Mapping[str, Any]] | None = None,
        prompt: str = "",
        columns: Mapping[str, str] | None = None,
        score: str | Callable[[str, Mapping[str, Any]], Any] = "",
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self._where = workspace or paths.workspace()
        self._rows = rows
        named = {**(columns or {}), **({"prompt": prompt} if prompt else {})}
        self._function = score if callable(score) else None
        score = f"{OWN}.py:{OWN}" if callable(score) else score
        whole = Definition(data=str(data), score=score or "exact", columns=Columns(**named))
        whole = absolute(whole, Path()) if score else whole
        self._wanted = Wanted(
            data=str(data), score=whole.score if score else "", columns=whole.columns
        )
        self._say = say or (lambda text: print(text, file=sys.stderr))
        self._lock = threading.Lock()
        self._trying = threading.Lock()
        self._tried = False
        self._judge: tuple[str, AskJudge] | None = None

    # --- the port ---

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        """In the order of the rows. Raises BadInput that tells all rows that cannot be tasks."""
        return [task for task in self._opened.tasks if split in (None, task.split)]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        """A sandbox with the row's files and nothing else. Raises BadInput for a scorer that fails
        on right answers: before the first attempt is paid for."""
        self._try_scorer(backend)
        return self._sandbox(task, backend)

    def _sandbox(
        self, task: Task, backend: SandboxBackend, limits: Limits | None = None
    ) -> Sandbox:
        mounts, env = dict[str, Path](), dict[str, str]()
        if requires := (*self.definition.requires, *task.facts["row"].get("requires", ())):
            venv = environment(
                asked({"requires": requires, "python": self.definition.python}), self._say
            )
            mounts = interpreter_mounts(venv)
            env = {
                "PATH": f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
        sandbox = backend.open(mounts=mounts, env=env, limits=limits)
        try:
            for path, data in files_of(task, self._opened.base):
                sandbox.write(path, data)
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        """The text of the answer's file, '' where there is none; for `tests` the files that were
        changed, as JSON."""
        if self.scored_by == "tests":
            return changed(sandbox, dict(files_of(task, self._opened.base)))
        if self.scored_by == "analysis":
            return self._analysis_in(task, sandbox)
        try:
            data = sandbox.read(self.definition.answer_file)
        except FileNotFoundError:
            return ""
        return self._trimmed(data[: 4 * _LONGEST].decode("utf-8", "replace")[:_LONGEST])

    def _analysis_in(self, task: Task, sandbox: Sandbox) -> str:
        """The text of the file that the row names; '' for none, and for one that lies there as it
        was given."""
        name = analysis.file_of(task.facts["answer"], self.definition.answer_file)
        try:
            data = sandbox.read(name)
        except FileNotFoundError:
            return ""
        given = dict(files_of(task, self._opened.base)).get(name)
        return (
            ""
            if data == given
            else self._trimmed(data[: 4 * _MOST].decode("utf-8", "replace")[:_MOST])
        )

    def _golds(self, task: Task) -> list[str]:
        """The files that are right, of `analysis`. Raises BadInput for one that is gone or was
        changed."""
        try:
            found = golds_of(task.facts["answer"], self._opened.base)
            if digest(found) != task.facts["gold_digest"]:
                raise ValueError("was changed while this ran")
        except ValueError as e:
            raise BadInput(
                f"{task.id}: its gold {e}", fix="put it back, then the same again", code="bad-rows"
            ) from None
        return found

    def _trimmed(self, text: str) -> str:
        """Without the blank around it, but for the indentation of code."""
        return text.strip("\n").rstrip() if self.scored_by == "snippet" else text.strip()

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        """What the scorer says of the answer. Raises Fault with the code `unsound-task` where it
        cannot tell."""
        found = self._scored(task, trace, backend)
        least = self.definition.scorer.pass_at or PASS_AT.get(self.scored_by, 1.0)
        passed = found.score >= least if found.passed is None else found.passed
        return Grade(score=round(found.score, 6), passed=passed, evidence=found.why)

    def _scored(self, task: Task, trace: Trace, backend: SandboxBackend) -> Scored:
        answer = trace.answer[:_MOST]
        if not answer.strip() or (self.scored_by == "tests" and answer.strip() == "{}"):
            what = f"no {self.definition.answer_file}, or an empty one"
            what = "no file was changed" if self.scored_by == "tests" else what
            return Scored(0.0, f"There is nothing to grade: {what}.")

        def opened(limits: Limits) -> Sandbox:
            return self._sandbox(task, backend, limits)

        try:
            if self._function is not None:
                return programs.of_own(self._function, task, answer)
            if self.scored_by == "judge":
                return judge.judged(task, trace, judge.read_rubric(self._named), self._asking)
            if self.scored_by in RUN:
                return RUN[self.scored_by](self.definition, task, answer, opened)
            if self.scored_by == "analysis":
                return analysis.of_analysis(
                    self.definition, task, answer, opened, self._golds(task)
                )
            return scorers.score(
                self.scored_by, answer, task.facts["answer"], self.definition.scorer
            )
        except ValueError as e:
            raise Fault(f"{task.id}: its answer {e}", fix="mend the row", code=UNSOUND) from None

    def _try_scorer(self, backend: SandboxBackend) -> None:
        """A person's scorer on a few right answers, once: where it fails on each it is broken, and
        no row is."""
        with self._trying:
            if self.scored_by != "file" or self._tried:
                return
            tasks = self._opened.tasks
            for task in (tasks[at] for at in sorted({0, len(tasks) // 2, len(tasks) - 1})):
                try:
                    answer = self.gold(task)
                except BadInput:
                    answer = "an answer"
                trace = Trace(
                    attempt="try", task=task.id, scaffold="", model="", answer=answer or "an answer"
                )
                try:
                    self._scored(task, trace, backend)
                except Fault as e:
                    wrong = e
                    if e.code != UNSOUND:
                        raise
                else:
                    break
            else:
                raise BadInput(wrong.message, fix=wrong.fix, code="bad-scorer")
            self._tried = True

    # --- what it offers besides ---

    @property
    def asks_model(self) -> bool:
        """Whether a model is asked while an answer is graded."""
        return self.scored_by == "judge"

    def judged_by(self, model: str, ask: AskJudge) -> RowDomain:
        """The same domain, whose judge is the model of that name."""
        made = copy(self)
        made._judge = model, ask
        return made

    @property
    def _asking(self) -> AskJudge:
        if self._judge is None:
            raise BadInput(
                f"{self.name} is scored by a judge, and no model is there to ask",
                fix="--models.judge MODEL; or --score with a scorer that asks none",
                code="no-judge",
            )
        return self._judge[1]

    @property
    def _named(self) -> str:
        """The file that the scorer names."""
        return kind_of(self.definition.score)[1]

    @property
    def grader(self) -> str:
        """Changes with the scorer, its file, what it was told, and what our scorers decide."""
        known = self.definition
        made = [scorers.VERSION, self.scored_by, known.scorer, known.answer_file]
        if self.scored_by == "analysis":
            made += [analysis.version()]
        if self.scored_by in RUN:
            made += [programs.VERSION, known.requires, *([known.python] if known.python else [])]
        if self.scored_by == "judge":
            made += [
                judge.VERSION,
                judge.read_rubric(self._named),
                self._judge[0] if self._judge else "",
            ]
        elif self._function is not None:
            made += [programs.source_of(self._function)]
        elif self.scored_by == "file":
            path, _, function = known.score.rpartition(":")
            made += [function, programs.read_scorer(path)]
        return digest(made)

    @property
    def description(self) -> str:
        """What `--scaffold create` is told."""
        if self.definition.about:
            return self.definition.about
        return f"The questions of {self.name}, each answered in {self.definition.answer_file}."

    def packages(self) -> Sequence[str]:
        """What domain.toml requires; what a row requires besides is that row's own."""
        return self.definition.requires

    def gold(self, task: Task) -> str:
        """A right answer. Raises BadInput where the row has none."""
        if self.scored_by == "analysis":
            return analysis.gold(task, self._golds(task))
        itself = self.scored_by not in ("regex", "json-schema", "tests", "snippet")
        value = task.facts.get("gold", task.facts.get("answer") if itself else None)
        if value is None:
            raise BadInput(
                f"{task.id} has no right answer: its {self.definition.columns.answer or 'answer'}"
                " is none itself",
                fix="name a column that holds one: --gold COLUMN",
                code="no-gold",
            )
        try:
            if self.scored_by == "tests":
                files = programs.changes_of(as_json(value), self.definition.scorer.answer_file)
                return json.dumps(files, ensure_ascii=False, sort_keys=True)
            return (
                as_json(value)
                if self.scored_by == "json-schema"
                else self._trimmed(texts_of(value)[0])
            )
        except ValueError as e:
            raise BadInput(
                f"{task.id}: its {self.definition.columns.gold} {e}",
                fix="mend the row",
                code="no-gold",
            ) from None

    def hidden(self, task: Task) -> Sequence[str]:
        """The right answers, and what the answer is checked with."""
        if self.scored_by == "analysis":
            return analysis.hidden(task, self._golds(task))
        found = [as_json(task.facts[name]) for name in ("answer", "gold") if name in task.facts]
        if "answer" in task.facts and self.scored_by in PURE:
            found += expected_of(self.scored_by, task.facts["answer"])
        return list(dict.fromkeys(text for text in found if text.strip()))

    def exploits(self, task: Task) -> dict[str, str]:
        """Answers that fit every question, for `recreate tasks audit`; of `tests`, functions and
        programs as wrong as they were, and around them what bends tests or the machine."""
        if self.scored_by == "analysis":
            return analysis.exploits(
                task, self._golds(task), dict(files_of(task, self._opened.base))
            )
        if self.scored_by == "sql":
            return {**audit.texts(task), **programs.QUERIES}
        if self.scored_by != "tests":
            return audit.texts(task)
        given = task.facts.get("files") or {}
        named = self.definition.scorer.answer_file
        file = (
            named
            if named in given
            else next((name for name in given if name.endswith(".py")), named)
        )
        if not file.endswith(".py"):
            return audit.texts(task)
        row = task.facts["row"]
        entry = str(row.get("entry") or row.get("entry_point") or "answer")
        source = str(given.get(file) or "")
        if f"def {entry}(" not in source or not _parses(source):
            source = f"def {entry}(*args, **named):\n    return None\n{apart.any_name(entry)}"
        made = {**audit.python(file, source, entry), **apart.exploits(file)}
        made |= {name: {file: f"{source}\n{code}"} for name, code in PROGRAMS.items()}
        return {**audit.texts(task), **{name: json.dumps(files) for name, files in made.items()}}

    # --- what it is made of ---

    @property
    def definition(self) -> Definition:
        """What is in force: files in it are whole paths."""
        return self._opened.decided

    @property
    def scored_by(self) -> str:
        """What kind of scorer it has: `numeric`, `tests`, `file` for FILE.py:function."""
        return kind_of(self.definition.score)[0]

    @property
    def folder(self) -> Path:
        """Where domain.toml lies."""
        return self._where / "benchmarks" / self.name

    @property
    def _opened(self) -> _RowsRead:
        with self._lock:  # it may be asked for by several threads at once, and writes a file
            return self._known

    @cached_property
    def _known(self) -> _RowsRead:
        """What is decided is written down once the rows are seen to be sound."""
        file = self.folder / FILE
        if self._rows is not None:
            found, base = table.of_rows(self._rows, self.name), self._where
            known, told = decided(found, self._wanted)
        elif file.is_file():
            known = self._kept(load(file), file)
            found, base, told = table.read(known.data), self._base(known.data), []
            if changed := differences(known, self._wanted):
                self._say(
                    f"{paths.short(file)} says otherwise; for this command {', '.join(changed)}"
                )
                said = {
                    name: each for name, each in self._wanted.columns.model_dump().items() if each
                }
                columns = known.columns.model_copy(update=said)
                known = known.model_copy(
                    update={"columns": columns, "score": self._wanted.score or known.score}
                )
            # are these columns there?
            decided(found, Wanted(score=known.score, columns=known.columns))
        else:
            if not self._wanted.data:
                raise BadInput(
                    f"the domain {self.name} has no data: there is no {paths.short(file)}",
                    fix="--data FILE --score SCORER",
                    code="no-tasks-file",
                )
            found, base = table.read(self._wanted.data), self._base(self._wanted.data)
            known, told = decided(found, self._wanted)
            known = absolute(known, Path())
        tasks, dealt = tasks_of(self.name, found, known, base)
        if self._rows is None and self._function is None and not file.is_file():
            disk.write(file, text(known, self.folder, self._where))
            if told:
                self._say(f"guessed of {Path(found.source).name}: {', '.join(told)}")
            counts = Counter(task.split for task in tasks)
            shares = ", ".join(f"{counts[split]} {split}" for split in get_args(Split))
            self._say(
                f"{self.name}: {shares}. {paths.short(file)} keeps how its rows are read, and is"
                " yours to edit"
            )
            if dealt:
                self._say(dealt)
        return _RowsRead(known, tasks, base)

    def _kept(self, kept: Definition, file: Path) -> Definition:
        """What domain.toml says, files as whole paths. Raises BadInput where a command names other
        data."""
        known = absolute(kept, self.folder)
        named = (
            self._wanted.data
            and absolute(known.model_copy(update={"data": self._wanted.data}), Path()).data
        )
        if named and named != known.data:
            raise BadInput(
                f"{paths.short(file)} is of the data {kept.data}, and this is {self._wanted.data}",
                fix=(
                    "--domain OTHER gives it a name of its own; or edit or delete"
                    f" {paths.short(file)}"
                ),
                code="another-data",
            )
        return known

    def _base(self, data: str) -> Path:
        path = Path(data).expanduser()
        return path.parent.resolve() if path.is_file() else self._where


def _parses(source: str) -> bool:
    try:
        compile(source, "source", "exec")
    except (SyntaxError, ValueError):
        return False
    return bool(source)


def changed(sandbox: Sandbox, before: Mapping[str, bytes]) -> str:
    """What differs from the files that were there, as JSON: path -> text, null for a file that is
    gone. What is no text, too large, or one too many is left out; `.git`, `.recreate` and caches
    are no part of an answer.
    """
    listed = sandbox.run(
        "find . -type f -not -path './.recreate/*' -not -path './.git/*' -not -path"
        " '*/__pycache__/*' -not -path '*/.pytest_cache/*' -size -1025k -printf '%P\\0' | sort -z"
    )
    found: dict[str, str | None] = {}
    there = {name for name in listed.text.split("\0") if possible(name)}
    for name in sorted(there):
        if len(found) >= _FILES:
            break
        try:
            data = sandbox.read(name)
            if len(data) <= _BYTES and data != before.get(name):
                found[name] = data.decode("utf-8")
        except (FileNotFoundError, BadInput, UnicodeDecodeError):
            continue
    found |= {name: None for name in before if name not in there and len(before[name]) <= _BYTES}
    return json.dumps(found, ensure_ascii=False, sort_keys=True) if found else ""

"""Rows of a file as a domain. An agent hands in `answer.txt`, and a scorer says how good that is.
docs/data.md is its page."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, get_args

from recreate.api import paths
from recreate.api.config import Split
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import AskJudge, Limits, Sandbox, SandboxBackend
from recreate.api.registry import find
from recreate.api.shapes import JsonMap
from recreate.api.types import Grade, Task, Trace, digest
from recreate.domains.python_env import environment, read_environment
from recreate.domains.rows import Columns, name_of, table
from recreate.domains.rows.definition import (
    FILE,
    absolute,
    decide,
    differences,
    list_unseen,
    load,
    text,
)
from recreate.domains.rows.scorers import OWN, RowTask, Scored, Scorer, find_scorer, split_score
from recreate.domains.rows.settings import Definition, Wanted
from recreate.domains.rows.tasks import tasks_of
from recreate.sandboxes.rootfs import interpreter_mounts
from recreate.storage import files as disk

_MOST = 6_000_000
"""Characters of an answer that are graded."""


@dataclass(frozen=True)
class _RowsRead:
    """What the rows and domain.toml come to. base: the folder that paths in cells count from."""

    decided: Definition
    tasks: Sequence[Task]
    base: Path


def domain(
    rows: str | Path | Sequence[JsonMap],
    *,
    score: str | Callable[[str, JsonMap], Any] = "",
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
    own = None if isinstance(rows, str | Path) else [dict(row) for row in rows]
    columns = dict(answer=answer, id=id, group=group, split=split, files=files, gold=gold)
    made = RowDomain(
        name or ("rows" if own is not None else name_of(str(rows))),
        workspace=Path(workspace).expanduser().resolve() if workspace else None,
        data="" if own is not None else str(rows),
        rows=own,
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
        rows: Sequence[JsonMap] | None = None,
        prompt: str = "",
        columns: Mapping[str, str] | None = None,
        score: str | Callable[[str, JsonMap], Any] = "",
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self._where = workspace or paths.workspace()
        self._rows = rows
        named = {**(columns or {}), **({"prompt": prompt} if prompt else {})}
        self._function = score if callable(score) else None
        score = OWN if callable(score) else score
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
        """Return the tasks in the order of the rows. Raises BadInput that tells all rows that
        cannot be tasks."""
        return [task for task in self._contents.tasks if split in (None, task.split)]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        """Return a sandbox with the row's files and nothing else. Raises BadInput for a scorer that
        fails on right answers: before the first attempt is paid for."""
        self._try_scorer(backend)
        return self._sandbox(task, backend)

    def _sandbox(
        self,
        task: Task,
        backend: SandboxBackend,
        limits: Limits | None = None,
        shown: Mapping[str, Path] | None = None,
    ) -> Sandbox:
        mounts = dict(shown or {})
        env = dict[str, str]()
        if requires := (*self.definition.requires, *task.facts["row"].get("requires", ())):
            venv = environment(
                read_environment({"requires": requires, "python": self.definition.python}),
                self._say,
            )
            mounts |= interpreter_mounts(venv)
            env = {
                "PATH": f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
        sandbox = backend.open(mounts=mounts, env=env, limits=limits)
        try:
            for path, data in self._scorer.files(task, self._contents.base):
                sandbox.write(path, data)
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        """Return what the scorer takes for the answer, '' for none."""
        return self._scorer.collect(self._case(task), sandbox)

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        """Return what the scorer says of the answer. Raises Fault (`unsound-task`) where it cannot
        say."""
        scored = self._score(task, trace, backend)
        least = self.definition.scorer.pass_at or self._scorer.pass_at
        passed = scored.score >= least if scored.passed is None else scored.passed
        return Grade(score=round(scored.score, 6), passed=passed, evidence=scored.why)

    def _score(self, task: Task, trace: Trace, backend: SandboxBackend) -> Scored:
        trace = trace.model_copy(update={"answer": trace.answer[:_MOST]})
        if why := self._scorer.explain_nothing(self.definition, trace.answer):
            return Scored(0.0, f"There is nothing to grade: {why}.")

        try:
            opened = partial(self._sandbox, task, backend)
            return self._scorer.score(self._case(task), trace, opened)
        except ValueError as e:
            raise Fault(f"{task.id}: its answer {e}", fix="mend the row", code=UNSOUND) from None

    def untouched(self, task: Task, backend: SandboxBackend) -> Grade | None:
        """Return the grade that an answer which does nothing would have, where the scorer doubts
        the row; None else."""
        why = self._scorer.doubt(self._case(task), partial(self._sandbox, task, backend))
        return Grade(score=1.0, passed=True, evidence=why) if why else None

    def _try_scorer(self, backend: SandboxBackend) -> None:
        """Try a person's scorer on a few right answers, once: where it fails on each it is broken,
        and no row is."""
        with self._trying:
            if not self._scorer.tried_first or self._tried:
                return
            tasks = self._contents.tasks
            wrong = None
            for task in (tasks[at] for at in sorted({0, len(tasks) // 2, len(tasks) - 1})):
                try:
                    answer = self.gold(task)
                except BadInput:
                    answer = ""
                answer = answer or "an answer"
                trace = Trace(attempt="try", task=task.id, scaffold="", model="", answer=answer)
                try:
                    self._score(task, trace, backend)
                    wrong = None
                    break
                except Fault as e:
                    if e.code != UNSOUND:
                        raise
                    wrong = e
            if wrong is not None:
                raise BadInput(wrong.message, fix=wrong.fix, code="bad-scorer")
            self._tried = True

    # --- what it offers besides ---

    @property
    def asks_model(self) -> bool:
        """Whether a model is asked while an answer is graded."""
        return self._scorer.asks_model

    def judged_by(self, model: str, ask: AskJudge) -> RowDomain:
        """Return the same domain, whose judge is the model of that name."""
        made = copy(self)
        made._judge = model, ask
        return made

    @property
    def grader(self) -> str:
        """Changes with the scorer, what it reads, what domain.toml says of it and who judges."""
        known = self.definition
        scorer = self._scorer
        judge = self._judge[0] if self._judge and scorer.asks_model else ""
        of_sandbox = [known.requires, known.python]
        own = [scorer.name, scorer.version, *scorer.fingerprint(known)]
        return digest([own, known.scorer, known.answer_file, of_sandbox, judge])

    @property
    def description(self) -> str:
        """What `--scaffold create` reads."""
        if self.definition.about:
            return self.definition.about
        return f"The questions of {self.name}, each answered in {self.definition.answer_file}."

    def packages(self) -> Sequence[str]:
        """Return what domain.toml requires; what a row requires besides is that row's own."""
        return self.definition.requires

    @property
    def shows_gold(self) -> bool:
        """Whether an optimizer may be shown the right answers of train tasks."""
        return self._scorer.shows_gold

    def gold(self, task: Task) -> str:
        """Return a right answer. Raises BadInput where the row has none."""
        return self._scorer.gold(self._case(task))

    def hidden(self, task: Task) -> Sequence[str]:
        """Return the right answers, and what the answer is checked with."""
        texts = self._scorer.hidden(self._case(task))
        return list(dict.fromkeys(text for text in texts if text.strip()))

    def exploits(self, task: Task) -> dict[str, str]:
        """Return answers that leave the task undone, for `recreate tasks audit`."""
        return self._scorer.exploits(self._case(task))

    # --- what it is made of ---

    @property
    def definition(self) -> Definition:
        """What is in force: files in it are whole paths."""
        return self._contents.decided

    @property
    def scored_by(self) -> str:
        """The name of its scorer: `numeric`, `tests`, `file` for FILE.py:function."""
        return self._scorer.name

    @cached_property
    def _scorer(self) -> Scorer:
        own = self._function
        score = self.definition.score
        scorer: Scorer = find_scorer(score) if own is None else find("scorer", "file").of(own)
        return scorer

    def _case(self, task: Task) -> RowTask:
        ask = self._judge[1] if self._judge else None
        return RowTask(task, self.definition, self._contents.base, ask)

    @property
    def folder(self) -> Path:
        """Where domain.toml lies."""
        return self._where / "benchmarks" / self.name

    @property
    def _contents(self) -> _RowsRead:
        with self._lock:  # it may be asked for by several threads at once, and writes a file
            return self._loaded_rows

    @cached_property
    def _loaded_rows(self) -> _RowsRead:
        """What is decided is written down once the rows are seen to be sound."""
        file = self.folder / FILE
        guessed = list[str]()
        if self._rows is not None:
            found = table.of_rows(self._rows, self.name)
            base = self._where
            known, guessed = decide(found, self._wanted)
        elif file.is_file():
            known = self._read_definition(file)
            found = table.read(known.data)
            base = self._base(known.data)
            # are these columns there?
            decide(found, Wanted(score=known.score, columns=known.columns))
        elif not self._wanted.data:
            raise BadInput(
                f"the domain {self.name} has no data: there is no {paths.short(file)}",
                fix="--data FILE --score SCORER",
                code="no-tasks-file",
            )
        else:
            found = table.read(self._wanted.data)
            base = self._base(self._wanted.data)
            known, guessed = decide(found, self._wanted)
            known = absolute(known, Path())
        tasks, dealt = tasks_of(self.name, found, known, base)
        unseen = list_unseen(found, known.columns)
        if self._rows is None and self._function is None and not file.is_file():
            disk.write(file, text(known, self.folder, self._where))
            for note in found.notes:
                self._say(f"{Path(found.source).name}: {note}")
            if guessed:
                self._say(f"guessed of {Path(found.source).name}: {', '.join(guessed)}")
            counts = Counter(task.split for task in tasks)
            shares = ", ".join(f"{counts[split]} {split}" for split in get_args(Split))
            kept = f"{paths.short(file)} keeps how its rows are read, and is yours to edit"
            self._say(f"{self.name}: {shares}. {kept}")
            if dealt:
                self._say(dealt)
            if unseen:
                self._say(f"no agent is shown the columns {', '.join(unseen)}")
        right = known.columns.answer or known.columns.gold
        if unseen and not right and split_score(known.score)[0] == "file":
            self._say(
                f"{known.score} may read a right answer in {', '.join(unseen)}; none is known, so"
                " an edit that carries one would not be found: --answer COLUMN names it"
            )
        return _RowsRead(known, tasks, base)

    def _read_definition(self, file: Path) -> Definition:
        """Return what domain.toml and, before it, this command say, files as whole paths. Raises
        BadInput where a command names other data."""
        kept = load(file)
        shown = paths.short(file)
        wanted = self._wanted
        known = absolute(kept, self.folder)
        named = known.model_copy(update={"data": wanted.data or known.data})
        if absolute(named, Path()).data != known.data:
            raise BadInput(
                f"{shown} is of the data {kept.data}, and this is {wanted.data}",
                fix=f"--domain OTHER gives it a name of its own; or edit or delete {shown}",
                code="another-data",
            )
        if changed := differences(known, wanted):
            self._say(f"{shown} says otherwise; for this command {', '.join(changed)}")
        said = {name: each for name, each in wanted.columns.model_dump().items() if each}
        columns = known.columns.model_copy(update=said)
        return known.model_copy(update={"columns": columns, "score": wanted.score or known.score})

    def _base(self, data: str) -> Path:
        path = Path(data).expanduser()
        return path.parent.resolve() if path.is_file() else self._where

"""Real bugs of a repository's history: what a commit mended, or what a branch did that was merged.

The main line is read, newest first: a merge is one change, whatever its branch went through. What
came of each commit is kept in home()/swe/history, so that the same command goes on where it was.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path, PurePosixPath

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.types import Record, digest
from recreate.domains.python_env import OLDEST, Environment, interpreter
from recreate.plugins.swe import sources, test_run
from recreate.plugins.swe.facts import Bug
from recreate.plugins.swe.grader import meaning
from recreate.plugins.swe_tasks.change import Candidate, Setup, layout, prepare_change
from recreate.storage import files
from recreate.storage.files import locked
from recreate.storage.log import Log

METHOD = 1
"""Part of the name of what is kept: raised when another answer would be found."""
_PYTEST = ("2020-08-01", "6.2.5")
"""Before that day there was no pytest that the runner knows; the one to take instead."""


class TriedCommit(Record):
    """What came of a commit: candidates, or why there are none. environment: what its tests ran
    in."""

    commit: str
    candidates: tuple[Candidate, ...] = ()
    why: str = ""
    environment: Environment | None = None

    @property
    def bugs(self) -> list[Candidate]:
        return [c for c in self.candidates if c.kind == "bug"]


def history(
    repo: Path,
    setup: Setup,
    *,
    n: int,
    take: Callable[[Candidate], None],
    since: str = "",
    home: Path | None = None,
) -> int:
    """Tell `take` of the first `n` behaviours that the newest commits mend, of those that change
    sources and tests; and return how many commits were tried. home: the folder that recipes name
    the repository relative to.

    Raises BadInput: unknown-repository, no-history, no-commits.
    """
    if not repo.is_dir():
        raise BadInput(
            f"{repo} is not a folder",
            fix="name the repository's top folder",
            code="unknown-repository",
        )
    repo = repo.expanduser().resolve()
    say = setup.say
    inside = home is not None and repo.is_relative_to(home)
    path = repo.relative_to(home).as_posix() if home is not None and inside else str(repo)
    every = sources.commits(repo, since)
    both = [commit for commit in every if _both(commit.files, setup.tests)]
    if not both:
        raise BadInput(
            f"none of {len(every)} commits of {repo.name} changes both sources and tests",
            fix="name where its tests are with --tests, or leave --since out",
            code="no-commits",
        )
    study = _Commits(repo, path, setup)
    found = list[Candidate]()
    tried = list[TriedCommit]()
    began = time.monotonic()
    try:
        for commit in both:
            if len(found) >= n:
                break
            before = study.known.get(commit.id)
            one = study.try_commit(commit)
            tried.append(one)
            for bug in one.bugs[: n - len(found)]:
                take(bug)
                found.append(bug)
            if before is None:
                each = (time.monotonic() - began) / (len(tried) - study.reused)
                more = min(
                    len(both) - len(tried), (n - len(found)) * len(tried) / max(len(found), 1)
                )
                left = (
                    f", about {1 + each * more // 60:.0f} min left"
                    if more and len(found) < n
                    else ""
                )
                what = one.why or f"{len(one.bugs)} task" + "s" * (len(one.bugs) > 1)
                say(
                    f"{len(found)} of {n} after {len(tried)} of {len(both)} commits:"
                    f" {commit.id[:10]} of {commit.day}, {what.partition(':')[0]}{left}"
                )
    finally:
        if study.reused:
            say(f"{study.reused} of {len(tried)} commits had been tried before")
        for why, count in Counter(
            one.why.partition(":")[0] for one in tried if not one.bugs
        ).most_common():
            say(f"{count:>5} commits  {why}")
        if found:
            kept = paths.home() / "swe" / "candidates" / f"{repo.name}-history.jsonl"
            files.write(kept, "".join(c.model_dump_json() + "\n" for c in found))
            say(f"with their changes, for whoever writes the texts: {kept}")
    return len(tried)


def _both(names: Sequence[str], tests: Sequence[str]) -> bool:
    code = [p for p in names if p.endswith(".py")]
    told = {p for p in code if sources.is_test(p, tests)}
    return bool(told) and any(
        p not in told and PurePosixPath(p).parts[0] not in sources.AROUND for p in code
    )


class _Commits:
    """The commits of one repository, and what came of those that were tried. reused: how many of
    them before."""

    def __init__(self, repo: Path, path: str, setup: Setup) -> None:
        self._repo = repo
        self._path = path
        self._setup = setup
        about = [
            METHOD,
            str(repo),
            path,
            setup.wanted.key,
            setup.tests,
            setup.python_path,
            str(setup.env or ""),
        ]
        about.append(setup.backend.name)
        about += [list(sys.version_info[:2]), meaning(test_run.program())]
        self._file = paths.home() / "swe" / "history" / f"{repo.name}-{digest(about)}.jsonl"
        self.known = {
            one.commit: one for one in map(TriedCommit.model_validate, Log(self._file).read())
        }
        self.reused = 0
        self._last = setup.wanted

    def try_commit(self, commit: sources.HistoryCommit) -> TriedCommit:
        one = self.known.get(commit.id)
        self.reused += one is not None
        if one is None:
            try:
                one = self._study(commit)
            except BadInput as e:
                self._setup.say(f"{commit.id[:10]}: {e.message.splitlines()[0][:200]}")
                one = TriedCommit(
                    commit=commit.id, why=f"{_REFUSED.get(e.code, e.code)}: {e.message[:1000]}"
                )
            files.make(self._file.parent)
            with locked(self._file.parent), Log(self._file, fix="") as log:
                log.append(one.model_dump(mode="json"))
        self._last = one.environment or self._last
        return one

    def _study(self, commit: sources.HistoryCommit) -> TriedCommit:
        how = self._setup
        (old, before), (new, after) = (
            sources.at(self._repo, c) for c in (commit.parent, commit.id)
        )
        bug = Bug(
            id="?",
            package=self._repo.name,
            path=self._path,
            before=commit.parent,
            after=commit.id,
            before_sha256=before,
            after_sha256=after,
            split="train",
            group=self._repo.name,
            fail_to_pass=("?",),
            **layout(old, new, how.tests, how.python_path, f"{self._repo.name} {commit.id[:10]}"),
        )
        study = prepare_change(
            bug, old, self._environments(commit.day), how.env, how.backend, how.say
        )
        found = [
            c.model_copy(update={"released": commit.day}) for c in study.behaviours(fewest=False)
        ]
        why = ""
        if not study.turned:
            why = "no test turns from failing to passing"
        elif all(c.kind == "feature" for c in found):
            left = len(found) < len(study.turned)
            why = "what it mends could not be told apart" if left else "it only brings new names"
        return TriedCommit(
            commit=commit.id, candidates=tuple(found), why=why, environment=study.bug.environment
        )

    def _environments(self, day: str) -> list[Environment]:
        """What to run the tests in: as those of the commit after it, of today, of its own time."""
        wanted = self._setup.wanted
        if wanted.index_before:
            return [self._last]
        then = of_the_time(day)
        named = {
            name: value for name, value in wanted.model_dump().items() if value and name in then
        }
        return [self._last, wanted, wanted.model_copy(update=then | named)]


def of_the_time(day: str) -> dict[str, str]:
    """The index, the Python and the pytest of a day (ISO) as fields of an Environment. The index is
    that of the end of the month, so that its commits share an environment; the Python is the newest
    of then, at least 3.8, if it is here and not newer than this one."""
    at = date.fromisoformat(day)
    end = (at.replace(day=28) + timedelta(days=4)).replace(day=1)
    # each October since 2019 has brought one
    minor = max(at.year - 2011 - (at.month < 11), OLDEST[1])
    python = f"3.{minor}" if minor < sys.version_info[1] else ""
    there = python and interpreter(python) is not None
    return {
        "index_before": min(end, datetime.now(UTC).date()).isoformat(),
        "python": python if there else "",
        "pytest": _PYTEST[1] if end.isoformat() < _PYTEST[0] else "",
    }


_REFUSED = {
    "failing-suite": "its tests do not run here",
    "no-tests": "it has no tests that were found",
    "no-change": "it changes no source of the package",
    "not-text": "it changes a source that is not UTF-8",
    "bad-requirement": "what its tests need cannot be installed",
}

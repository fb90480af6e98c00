"""Where each line of an agent comes from: the edit that wrote it, its verdict, and the steps that
the edit cites.

An agent's versions are followed back through the histories of the workspace's runs: from the folder
to the revision that stands there, to its parents, and on to the run that had made the seed. Each
version's text is laid over the one before it; a line that both have keeps its writer. What stands
in the folder and in no history is a person's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recreate.agents.history import Commit, History
from recreate.agents.scaffold import Scaffold, load
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.api.shapes import JsonDict
from recreate.api.types import Edit, Revision
from recreate.runs.reader import Run

Origin = Literal["seed", "human", "edit"]


@dataclass(frozen=True)
class LineWriter:
    """Who wrote a line. run, revision, edit: of `edit`, and of a person's edit that a build
    judged."""

    origin: Origin
    run: Path | None = None
    revision: Revision | None = None
    edit: Edit | None = None


@dataclass(frozen=True)
class BlamedLine:
    """line: its number, from 1."""

    line: int
    text: str
    writer: LineWriter

    def record(self) -> JsonDict:
        """The object that `--json` prints."""
        revision = self.writer.revision
        edit = self.writer.edit
        return {
            "schema": 1,
            "line": self.line,
            "text": self.text,
            "origin": self.writer.origin,
            "run": str(self.writer.run or ""),
            "revision": revision.id if revision else "",
            "edit": (
                {"path": edit.path, "reason": edit.reason, "origin": edit.origin} if edit else None
            ),
            "verdict": revision.verdict.model_dump(mode="json") if revision else None,
            "evidence": (
                [e.model_dump(mode="json", exclude={"schema_"}) for e in edit.evidence]
                if edit
                else []
            ),
        }


@dataclass(frozen=True)
class AgentVersion:
    """An agent as it stood: files, and the run and revision that made it so; human: a person wrote
    in it."""

    files: Scaffold
    run: Path | None = None
    revision: Revision | None = None
    human: bool = False


def read_blame(text: str, where: Path) -> list[BlamedLine]:
    """The lines of FILE or FILE:LINE. Raises BadInput for what is no file of an agent, and for a
    line that it lacks."""
    path, number = _place(text, where)
    folder = next((p for p in path.parents if (p / "agent.toml").is_file()), None)
    if folder is None:
        raise BadInput(
            f"{path} is in no agent's folder",
            fix="name a file below a folder with agent.toml",
            code="no-file",
        )
    name = path.relative_to(folder).as_posix()
    if name not in (agent := load(folder, parse=False)).files:
        raise BadInput(
            f"{name} is no part of the agent {folder.name}",
            fix="hidden files are none",
            code="no-file",
        )
    lines = trace_lines(list(versions(agent, folders_of(where))), name)
    found = [BlamedLine(at, said, writer) for at, (said, writer) in enumerate(lines, 1)]
    if number is not None and not 1 <= number <= len(found):
        raise BadInput(
            f"{name} has {len(found)} lines", fix=f"{text.rpartition(':')[0]}:1", code="no-line"
        )
    return found if number is None else [found[number - 1]]


def _place(text: str, where: Path) -> tuple[Path, int | None]:
    named, colon, number = text.rpartition(":")
    for name, at in ((text, None), (named, int(number) if number.isdecimal() else None)):
        if not name or (name == named and at is None):
            continue
        for path in (Path(name), where / "scaffolds" / name, shipped("scaffolds") / name):
            if path.is_file():
                return path.resolve(), at
    raise BadInput(
        f"there is no file {named if colon and number.isdecimal() else text!r}",
        fix="recreate blame scaffolds/NAME/system.md, or NAME/system.md:12",
        code="no-file",
    )


def folders_of(where: Path) -> list[Path]:
    """The runs of a workspace that have a history."""
    return [file.parent for file in (where / "runs").glob("*/scaffold.git")]


def trace_lines(lineage: Sequence[AgentVersion], name: str) -> list[tuple[str, LineWriter]]:
    """The lines of a file in the newest of these versions, each with who wrote it."""
    lines: list[tuple[str, LineWriter]] = []
    for version in reversed(lineage):
        lines = _lay_over(lines, version, name)
    return lines


def versions(agent: Scaffold, folders: Iterable[Path]) -> Iterator[AgentVersion]:
    """From what stands there back to the first seed, through the histories of these runs."""
    histories: dict[Path, dict[str, Commit]] = {}  # the newest first
    for folder in sorted(folders, key=_when, reverse=True):
        histories[folder] = {
            commit.digest: commit for commit in History(folder / "scaffold.git").log()
        }
    first = {
        load(file.parent, parse=False).digest for file in shipped("scaffolds").glob("*/agent.toml")
    }
    current = agent
    while True:
        run = next(
            (f for f, known in histories.items() if _is_made_by(known, current.digest)), None
        )
        if run is not None:
            judged = {r.id: r for r in Run(run).revisions()}
            known = histories.pop(run)
            history = History(run / "scaffold.git")
            by_sha = {commit.sha: commit for commit in known.values()}
            commit = known[current.digest]
            while commit.parent:
                revision = judged.get(commit.digest)
                yield AgentVersion(current, run, revision, human=revision is None)
                commit = by_sha[commit.parent]
                current = history.read(commit.sha)
            histories = {f: known for f, known in histories.items() if _when(f) <= _when(run)}
            continue
        # and made nothing of it
        began = [f for f, known in histories.items() if current.digest in known]
        near = [] if current.digest in first else list(_find_near(current, histories, began))
        if not near:
            yield AgentVersion(current)
            return
        # a person wrote in it between two builds, or since the last
        yield AgentVersion(current, human=True)
        _, _, current = max(near, key=lambda found: found[:2])


def _find_near(
    agent: Scaffold, histories: dict[Path, dict[str, Commit]], began: Sequence[Path]
) -> Iterator[tuple[int, int, Scaffold]]:
    """(how many lines they share, how new it is, the version) of what builds kept that shares at
    least half of them. began: runs that began from the agent; those before the first of them count
    alone."""
    last = min(map(_when, began), default=float("inf"))
    lines = sum(len(set(text.splitlines())) for text in agent.files.values())
    for age, (run, known) in enumerate(histories.items()):
        for commit in known.values() if _when(run) < last else ():
            if commit.parent and commit.kept:
                version = History(run / "scaffold.git").read(commit.sha)
                shared = sum(
                    len(set(text.splitlines()) & set(version.files.get(name, "").splitlines()))
                    for name, text in agent.files.items()
                )
                if 2 * shared >= lines:
                    yield shared, -age, version


def _when(folder: Path) -> float:
    return (
        (folder / "settings.toml").stat().st_mtime if (folder / "settings.toml").exists() else 0.0
    )


def _is_made_by(known: dict[str, Commit], digest: str) -> bool:
    """Whether a run made this version, and did not only begin from it."""
    return digest in known and bool(known[digest].parent)


def _lay_over(
    lines: Sequence[tuple[str, LineWriter]], version: AgentVersion, name: str
) -> list[tuple[str, LineWriter]]:
    """A version's text, each line with its writer: who wrote it before, where it was there
    already."""
    new = version.files.files.get(name, "").splitlines()
    made: list[tuple[str, LineWriter]] = []
    for tag, old_at, old_end, at, end in difflib.SequenceMatcher(
        None, [text for text, _ in lines], new, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            made += lines[old_at:old_end]
        else:
            made += [(text, _writer(version, name, text)) for text in new[at:end]]
    return made


def _writer(version: AgentVersion, name: str, text: str) -> LineWriter:
    if version.revision is None:
        return LineWriter("human" if version.human else "seed", version.run)
    edits = [edit for edit in version.revision.edits if edit.path == name]
    edit = next((e for e in edits if text in e.new.splitlines()), edits[0] if edits else None)
    human = edit is not None and edit.origin == "human"
    return LineWriter("human" if human else "edit", version.run, version.revision, edit)

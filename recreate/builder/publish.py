"""scaffolds/NAME and the revisions of runs: which one stands there, and putting another in its
place.

Nothing is lost: what stands there and is in no history of the run is first committed to it, on
`human/<digest>`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from recreate.agents import scaffold as scaffolds
from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.runs.journal import Journal
from recreate.runs.reader import Run
from recreate.storage import files
from recreate.viewer.facts import choose_agent
from recreate.viewer.markdown import readme


@dataclass(frozen=True)
class Kept:
    """What was put where. before: the digest of what stood there, '' for nothing; saved: it was not
    in the run yet."""

    run: Path
    path: Path
    digest: str
    before: str
    saved: bool


WRITING = ".recreate-writing"
"""In an agent's folder while its files are replaced: the digest of what will stand there."""


def _writing(target: Path) -> str:
    file = target / WRITING
    return file.read_text("utf-8", "replace").strip() if file.is_file() else ""


def standing(target: Path) -> str:
    """Return the digest of the agent that stands in a folder, '' for none. Raises BadInput when it
    cannot be read."""
    if not target.is_dir() or not any(not p.name.startswith(".") for p in target.iterdir()):
        return ""
    return scaffolds.load(target, parse=False).digest


def target_of(name: str, where: Path) -> Path:
    """Return scaffolds/NAME of a workspace. Raises BadInput for a name that is none."""
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        raise BadInput(
            f"{name!r} cannot be a folder under scaffolds/",
            fix="give a plain name",
            code="bad-name",
        )
    return where / "scaffolds" / name


def left_alone(target: Path, run: Run) -> str:
    """Return why a build may not put its result there; '' where nothing stands, what stood there
    when it began (which was said then, where it began from something else: `stranger`), or a
    revision of its own."""
    kept = {r.id for r in run.revisions() if r.kept}
    if _writing(target) in kept:
        return ""  # it was killed while it put it there
    try:
        now = standing(target)
    except BadInput:
        return "somebody is writing it"
    seed = run.seed()
    began = next(run.records("seed"), {}).get("stood", now)
    return (
        ""
        if now in {"", began, seed.digest if seed else "", *kept}
        else "it was changed while this build ran"
    )


def stranger(digest: str, run: Run) -> bool:
    """Whether what stood somewhere is nothing that a build came from: another build's, or a
    person's."""
    seed = run.seed()
    begun = next(run.records("seed"), {})
    own = {
        "",
        seed.digest if seed else "",
        begun.get("made_of", ""),
        *(r.id for r in run.revisions() if r.kept),
    }
    return digest not in own


def publish(agent: Scaffold, folder: Path, target: Path, text: str = "") -> Kept:
    """Make `agent`, a revision of the run in `folder`, what stands in `target`.

    text: its README.md; else one is written with the score that it was measured at in that run.
    Raises BadInput when what stands there cannot be read, or has to be saved and a process works on
    the run.
    """
    before = standing(target) if _writing(target) != agent.digest else agent.digest
    saved = before not in ("", agent.digest) and _save(scaffolds.load(target, parse=False), folder)
    agent = agent.model_copy(update={"name": target.name})
    if not text:
        run = Run(folder)
        text = readme(agent, run, choose_agent(agent, run))
    if before:  # its files are replaced one by one
        files.write(target / WRITING, agent.digest)
    scaffolds.save(agent.model_copy(update={"files": {**agent.files, "README.md": text}}), target)
    (target / WRITING).unlink(missing_ok=True)
    return Kept(folder, target, agent.digest, before, saved)


def _save(standing: Scaffold, folder: Path) -> bool:
    """Commit an agent to the run's history unless it is there; True when it was not."""
    history = History(folder / "scaffold.git")
    if any(e.digest == standing.digest for e in history.log()):
        return False
    journal = Journal(folder)
    try:
        journal.open()
    except BadInput as e:
        raise BadInput(
            e.message, fix="wait for it to end, or stop it with Ctrl-C", code=e.code
        ) from None
    try:
        history.commit(
            standing, "main", False, f"Written by a person in {standing.name}", side="human"
        )
    finally:
        journal.close()
    return True

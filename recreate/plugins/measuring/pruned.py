"""An agent without some of its parts, through the gate of a build."""

from __future__ import annotations

from collections.abc import Sequence

from recreate.agents import scaffold as scaffolds
from recreate.agents.lint import refuse
from recreate.agents.scaffold import Scaffold
from recreate.api.types import Edit, Revision
from recreate.builder.rounds import Build
from recreate.plugins.each.trial import decidable
from recreate.runs.gate import MIN_TASKS
from recreate.runs.reader import BuildResult
from recreate.runs.session import Session


def judge_candidate(
    session: Session, agent: Scaffold, edits: Sequence[Edit], seen: Sequence[str] = ()
) -> BuildResult:
    """Put a candidate that somebody has made already through the gate of a build: kept or dropped,
    in the history and the journal. Doing it again changes nothing. seen: validation tasks whose
    scores it was made from; it is judged on others, where there are enough. Raises BadEdit,
    BadInput for one that the check refuses, OutOfBudget.
    """
    if not (session.folder / "seed").is_dir():
        session.journal.add("seed", name=agent.name, scaffold=agent.digest)
        scaffolds.save(agent, session.folder / "seed")
    work = Build(session, agent)
    others = [task for task in work.validation if task.id not in seen]
    gate = session.settings.gate
    if decidable(gate, len(others), 1) if gate.false_keep else len(others) >= MIN_TASKS:
        work.judge.validation = others
    elif seen:
        work.judge.validation = [task for task in work.validation if task.id in seen]
        text = (
            "there are too few other validation tasks: the candidate is judged on those that it was"
            " made from, which "
        )
        session.say("note", {"text": text + "flatters it"})
    child = scaffolds.apply(agent, edits)
    refuse(child, session.backend)
    work.read[child.digest] = child
    if not work.revisions:
        verdict = work.judge_candidate(agent, child, edits, 0, 1)
        made = Revision(
            id=child.digest,
            parent=agent.digest,
            round=0,
            edits=tuple(edits),
            verdict=verdict,
            kept=work.judge.keeps(verdict),
        )
        work.record(made)
    best = work.best
    session.journal.add("end", status="done", scaffold=best.digest)
    return BuildResult("done", agent, best, work.judge.compare(agent, best), tuple(work.revisions))

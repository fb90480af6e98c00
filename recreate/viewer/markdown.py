"""The facts of a run as texts: report.md in the run folder, README.md in the agent, one object for
--json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold, diff
from recreate.api.shapes import JsonDict
from recreate.api.types import Change, Lesson, Revision, Study, Verdict
from recreate.lessons import draws
from recreate.runs.reader import BuildResult, Run
from recreate.runs.search import LIKELY
from recreate.viewer.facts import HARDER, REHEARSED, RunFacts, count, tell_fate, verdict_text
from recreate.viewer.text import proposer, reasons


def result(facts: RunFacts, path: str) -> JsonDict:
    """Return the object `build --json` prints."""
    run = facts.run
    built = facts.built
    verdict = facts.built.verdict
    keys = ("before", "after", "diff", "lo", "hi", "tasks", "repeats", "verdict", "reason")
    validation = {key: getattr(verdict, key) for key in keys}
    return {
        "run": str(run.folder),
        "status": built.status,
        **({"advice": HARDER} if built.status == "ceiling" else {}),
        "scaffold": {"path": path, "digest": built.scaffold.digest},
        **claim_record(verdict),
        **({"left_out": facts.left_out} if facts.left_out else {}),
        "validation": {**validation, "split": "validation", "date": run.date},
        **({"taken": run.tell_taken} if run.tell_taken else {}),
        "provenance": facts.provenance,
        "command": run.command,
        "revisions": [
            {
                "id": r.id,
                "parent": r.parent,
                "kept": r.kept,
                "review": r.review,
                "verdict": r.verdict.model_dump(mode="json"),
                "parts": facts.parts[r.id],
            }
            for r in built.revisions
        ],
        "waiting": built.waiting.id if built.waiting else None,
        "spend": facts.spend.record(),
        "set_aside": facts.excluded,
    }


def claim_record(verdict: Verdict) -> JsonDict:
    """Return what a build claims, as `--json` prints it; {} by a rule that claims nothing."""
    claim = verdict.claim
    if claim is None:
        return {}
    return {
        "claim": claim.word,
        "gain": {"search": claim.search, "anew": claim.anew},
        "looks": [look.model_dump(mode="json", exclude={"schema_"}) for look in claim.looks],
    }


def revision_record(revision: Revision) -> JsonDict:
    """Return one revision as `log --json` and `show --json` print it."""
    return {
        "id": revision.id,
        "parent": revision.parent,
        "round": revision.round,
        "kept": revision.kept,
        "edits": [
            {
                **{key: getattr(e, key) for key in ("path", "old", "new", "reason", "origin")},
                "evidence": [{"experience": c.experience, "step": c.step} for c in e.evidence],
            }
            for e in revision.edits
        ],
        "verdict": revision.verdict.model_dump(mode="json"),
        "faults": list(revision.faults),
        "review": revision.review,
    }


def study_text(study: Study) -> str:
    """Return one study in one line."""
    what = {
        "study": f"study of {study.task or study.experience or 'the batch'}",
        "distil": "distilling",
        "create": "writing a seed",
    }
    turns = sum(study.actions.values())
    finished = study.ending == "finished"
    edits = count(len(study.edits), "edit") if finished else "no edit"
    ended = f"{study.cause}, {edits}" if study.cause else edits
    if not finished:
        ended = f"did not finish ({f'{study.ending} {study.why}'.strip()})"
    return f"{what[study.kind]}: {ended}; {turns} actions ({inspection(study.kinds)})"


def inspection(kinds: Mapping[str, int]) -> str:
    """Return which share of actions looked at what happened."""
    total = sum(kinds.values())
    return f"{kinds.get('inspect', 0) / total:.0%} inspection" if total else "none"


def report(facts: RunFacts) -> str:
    """Return report.md: before and after, each revision with diff, reason, evidence and verdict,
    spending, exclusions."""
    run = facts.run
    studies = facts.studies
    history = History(run.folder / "scaffold.git")

    def read_change(revision: Revision) -> str:
        return diff(history.read(revision.parent), history.read(revision.id)).rstrip("\n")

    return _fill(
        "report",
        facts,
        diff=read_change,
        fate=tell_fate,
        LIKELY=LIKELY,
        HARDER=HARDER,
        nan=float("nan"),
        trials=[record["terms"]["alpha"] for record in run.records("trial")],
        batches=list(run.records("batch")),
        kinds=sum((Counter(study.kinds) for study in studies), Counter[str]()),
        tools=sum((Counter(study.actions) for study in studies), Counter[str]()),
        rehearsed={
            "Tried by the optimizer": _rehearsed(facts, REHEARSED),
            "Re-runs with and without a lesson": _rehearsed(facts, ("rerun",)),
        },
        lessons=list(_lessons(facts)),
    )


def readme(scaffold: Scaffold, run: Run, built: BuildResult) -> str:
    """Return README.md of a created agent: who it is, what it was measured on, its score, its
    lineage.

    built: a build's result, or that of any revision of a run which a person chose.
    """
    by_id = {r.id: r for r in built.revisions}
    chain = list[Revision]()
    at = scaffold.digest
    while at in by_id:
        chain.insert(0, by_id.pop(at))
        at = chain[0].parent
    return _fill("readme", RunFacts(run, built), scaffold=scaffold, chain=chain)


def _fill(template: str, facts: RunFacts, **values: Any) -> str:
    """Return a text of a template of this room, by what a run says."""
    from recreate.viewer.html import fill

    words = (count, proposer, verdict_text, study_text, inspection, reasons)
    return fill(
        template,
        **{each.__name__: each for each in words},
        facts=facts,
        settings=facts.settings,
        built=facts.built,
        revisions=facts.built.revisions,
        **values,
    )


def _rehearsed(facts: RunFacts, phases: Collection[str]) -> list[JsonDict]:
    """Return attempts that were made beside the agent's own, and whose scaffold each ran."""
    return [
        {
            **r,
            "why": facts.reruns.get(r["attempt"]) or REHEARSED[r["phase"]],
            "agent": facts.tell_agent(r["scaffold"], r["attempt"] in facts.reruns),
        }
        for r in facts.run.records("experience")
        if r.get("phase") in phases
    ]


def _lessons(facts: RunFacts) -> Iterator[str]:
    """Yield what a memory policy did, round by round; nothing without one."""
    if facts.lessons_cost:
        yield f"- Lessons took {facts.lessons_cost}."
    for record in facts.run.records("memory"):
        changes = [Change.model_validate(each) for each in record["changes"]]
        head = f"Round {record['round'] + 1}, policy {record['policy']}"
        yield f"- {head}: {count(len(changes), 'change')}"
        yield from (f"  - {c.lesson} {c.kind}{': ' * bool(c.why)}{c.why}" for c in changes)
        known = {x["id"]: {d["experience"] for d in x.get("draws", ())} for x in record["before"]}
        for x in map(Lesson.model_validate, record["after"]):
            new = tuple(d for d in x.draws if d.experience not in known.get(x.id, ()))
            if new:
                told = draws.describe_draws(x.model_copy(update={"draws": new}))
                yield f"  - {x.id}: {told}"
    yield from (f"- {x.lesson.id}, all rounds: {x.shown}" for x in facts.lessons if x.shown)
    yield from (f"- memory/{x.lesson.id}.md: {word}" for x in facts.lessons for word in x.agent)

"""The facts of a run as texts: report.md in the run folder, README.md in the agent, one object for
--json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold, diff
from recreate.api.types import Change, Lesson, Revision, Study, Verdict
from recreate.lessons import draws
from recreate.runs.reader import BuildResult, Run
from recreate.viewer.facts import HARDER, REHEARSED, RunFacts, count
from recreate.viewer.text import proposer, reasons


def result(facts: RunFacts, path: str) -> dict[str, Any]:
    """Return the object `build --json` prints."""
    run, built, verdict = facts.run, facts.built, facts.built.verdict
    keys = ("before", "after", "diff", "lo", "hi", "tasks", "repeats", "verdict", "reason")
    validation = {key: getattr(verdict, key) for key in keys}
    return {
        "run": str(run.folder),
        "status": built.status,
        **({"advice": HARDER} if built.status == "ceiling" else {}),
        "scaffold": {"path": path, "digest": built.scaffold.digest},
        "validation": {**validation, "split": "validation", "date": run.date},
        "provenance": facts.provenance,
        "command": run.command,
        "revisions": [
            {
                "id": r.id,
                "parent": r.parent,
                "kept": r.kept,
                "review": r.review,
                "verdict": r.verdict.model_dump(mode="json"),
            }
            for r in built.revisions
        ],
        "waiting": built.waiting.id if built.waiting else None,
        "spend": facts.spend.record(),
        "set_aside": facts.excluded,
    }


def revision_record(revision: Revision) -> dict[str, Any]:
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


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict in one line."""
    if verdict.diff is None or verdict.before is None or verdict.after is None:
        return f"{verdict.verdict}: {verdict.reason}"
    interval = f" [{verdict.lo:+.3f}, {verdict.hi:+.3f}]" if verdict.lo is not None else ""
    p = f", p = {verdict.p:.3f}" if verdict.p is not None else ""
    return (
        f"{verdict.verdict}: {verdict.before:.3f} -> {verdict.after:.3f}, difference"
        f" {verdict.diff:+.3f}{interval} over {verdict.tasks} tasks x {verdict.repeats}{p}"
        + (f"; {verdict.reason}" if verdict.reason else "")
    )


def study_text(study: Study) -> str:
    """Return one study in one line."""
    what = {
        "study": f"study of {study.task or study.experience}",
        "distil": "distilling",
        "create": "writing a seed",
    }
    turns, finished = sum(study.actions.values()), study.ending == "finished"
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
    parts = (_head, _scores, _batches, _revisions, _studies, _rehearsed, _lessons, _spending)
    return "\n".join(line for part in parts for line in part(facts)) + "\n"


def _head(facts: RunFacts) -> Iterator[str]:
    settings, built = facts.settings, facts.built
    kept = sum(r.kept for r in built.revisions)
    judged = count(len(built.revisions), "candidate was", "candidates were")
    yield f"# Building an agent for {settings.domain}"
    yield ""
    yield (
        f"Model `{facts.start.get('model', settings.model)}`, optimizer `{proposer(settings)}`,"
        f" sandbox `{facts.start.get('sandbox', '')}`, random seed {settings.seed}. Ended:"
        f" {built.status}. {judged} judged, {kept} kept."
    )
    if settings.without:
        yield f"The optimizer worked without: {', '.join(settings.without)}."
    if built.status == "ceiling":
        yield f"It ended before training, since nothing could be kept; {HARDER}."
    if built.waiting:
        yield f"Waits for a person: {built.waiting.id} (`recreate review`)."


def _scores(facts: RunFacts) -> Iterator[str]:
    verdict = facts.built.verdict
    yield from ("", "## Validation", "", verdict_text(verdict), "", f"{facts.provenance}.", "")
    promise = _promise(facts)
    yield f"{promise} {facts.flattery} The untouched figure is `{facts.test_command}`."
    yield ""
    if verdict.strata:
        kinds = ([s.name, s.tasks, f"{s.before:.3f}", f"{s.after:.3f}"] for s in verdict.strata)
        yield from table(["kind of task", "tasks", "before", "after"], kinds)
        yield ""
    before, after = facts.before.tasks, facts.after.tasks
    rows = []
    for task in sorted(before):
        mark = "" if before[task] == after.get(task) else " **"
        now = after.get(task, float("nan"))
        rows.append([task, f"{before[task]:.2f}", f"{now:.2f}{mark}"])
    yield from table(["task", "before", "after"], rows)
    yield ""


def table(head: Sequence[str], rows: Any) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    yield from (f"| {' | '.join(map(str, row))} |" for row in rows)


def _batches(facts: RunFacts) -> Iterator[str]:
    """Yield which train tasks each round attempted, and why; nothing where they were taken in
    turn."""
    if lines := [f"- round {r['round'] + 1}: {r['told']}" for r in facts.run.records("batch")]:
        yield from ("## Train tasks", "", *lines, "")


def _promise(facts: RunFacts) -> str:
    """Return what the gate vouches for, and what that was spent on."""
    gate = facts.settings.gate
    if not gate.false_keep:
        return "The interval is a 90 % one for the mean paired difference over tasks."
    spent = [record["terms"]["alpha"] for record in facts.run.records("trial")]
    return (
        f"In at most {gate.false_keep:.1%} of builds is anything kept that does not help, all"
        f" candidates together: {count(len(spent), 'trial')} here had {sum(spent):.1%} of that to"
        " spend. A trial takes the tasks in an order of its own and ends when it is clear; its"
        " interval holds at every such moment."
    )


def _revisions(facts: RunFacts) -> Iterator[str]:
    yield from ("## Revisions", "")
    if not facts.built.revisions:
        yield "No candidate was judged." + "".join(f"\n- {r['reason']}" for r in facts.idle_rounds)
    history = History(facts.run.folder / "scaffold.git")
    for number, revision in enumerate(facts.built.revisions, 1):
        outcome = "kept" if revision.kept else "dropped"
        yield from (f"### {number}. {revision.id}, {outcome}", "", verdict_text(revision.verdict))
        yield ""
        if revision.review:
            yield from (f"A person {revision.review}.", "")
        for edit, words in reasons(revision.edits):
            cited = ", ".join(f"`{e.experience}` step {e.step}" for e in edit.evidence) or "none"
            yield f"- `{edit.path}`{words.removeprefix(edit.path)} Evidence: {cited}."
        yield from (f"- not used: {fault}" for fault in revision.faults)
        text = diff(history.read(revision.parent), history.read(revision.id))
        fence = "````" if "```" in text else "```"
        yield from ("", f"{fence}diff", text.rstrip("\n"), fence, "")


def _studies(facts: RunFacts) -> Iterator[str]:
    """Yield what the optimizer looked at and concluded; nothing when it does not investigate."""
    if not facts.studies:
        return
    yield from ("## Studies", "")
    kinds, tools = Counter[str](), Counter[str]()
    for study in facts.studies:
        yield f"- {study_text(study)}. {' '.join(study.summary.split())}".rstrip()
        yield from (f"  - rejected {name}: {why}" for name, why in study.rejected)
        kinds.update(study.kinds)
        tools.update(study.actions)
    by_tool = ", ".join(f"{name} {n}" for name, n in tools.most_common())
    yield from ("", f"Actions: {sum(kinds.values())}, {inspection(kinds)}; {by_tool}.", "")


def _rehearsed(facts: RunFacts) -> Iterator[str]:
    """Yield the attempts that were made beside the agent's own, and whose scaffold each ran."""
    for heading, phases in (
        ("## Tried by the optimizer", REHEARSED.keys()),
        ("## Re-runs with and without a lesson", {"rerun"}),
    ):
        rows = [
            f"- `{r['attempt']}` {r['task']}, {'passed' if r['passed'] else 'failed'}: "
            f"{facts.reruns.get(r['attempt']) or REHEARSED[r['phase']]}, run by "
            f"{facts.tell_agent(r['scaffold'], r['attempt'] in facts.reruns)} (`{r['scaffold']}`)"
            for r in facts.run.records("experience")
            if r.get("phase") in phases
        ]
        if rows:
            yield from (heading, "", *rows, "")


def _lessons(facts: RunFacts) -> Iterator[str]:
    """Yield what a memory policy did, round by round; nothing without one."""
    lines = [f"- Lessons took {facts.lessons_cost}."] if facts.lessons_cost else []
    for record in facts.run.records("memory"):
        head = f"Round {record['round'] + 1}, policy {record['policy']}"
        changes = [
            f"  - {c.lesson} {c.kind}{': ' * bool(c.why)}{c.why}"
            for c in map(Change.model_validate, record["changes"])
        ]
        lines += [f"- {head}: {count(len(changes), 'change')}", *changes]
        known = {x["id"]: {d["experience"] for d in x.get("draws", ())} for x in record["before"]}
        for x in map(Lesson.model_validate, record["after"]):
            new = tuple(d for d in x.draws if d.experience not in known.get(x.id, ()))
            if new:
                lines.append(
                    f"  - {x.id}: {draws.describe_draws(x.model_copy(update={'draws': new}))}"
                )
    lines += [f"- {x.lesson.id}, all rounds: {x.shown}" for x in facts.lessons if x.shown]
    lines += [f"- memory/{x.lesson.id}.md: {word}" for x in facts.lessons for word in x.agent]
    if lines:
        yield from ("## Memory", "", *lines, "")


def _spending(facts: RunFacts) -> Iterator[str]:
    spend = facts.spend
    yield from ("## Spending", "")
    yield from table(
        ["role", "calls", "tokens in", "tokens out", "USD"],
        (
            [role, u.calls, f"{u.tokens_in:,}", f"{u.tokens_out:,}", f"{u.usd:.4f}"]
            for role, u in [*sorted(spend.by_role.items()), ("all", spend.total)]
        ),
    )
    yield ""
    yield f"{spend.attempts} attempts, {spend.minutes:.1f} minutes.{spend.unpaid}"
    yield from ("", "## Excluded (infrastructure failures)", "")
    for row in facts.excluded:
        yield f"- {row['task']} (repeat {row['repeat']}, {row['phase']}): {row['fault']}"
    if not facts.excluded:
        yield "None: no attempt failed because of the infrastructure."


def readme(scaffold: Scaffold, run: Run, built: BuildResult) -> str:
    """Return README.md of a created agent: who it is, what it was measured on, its score, its
    lineage.

    built: a build's result, or that of any revision of a run which a person chose.
    """
    facts, verdict, settings = RunFacts(run, built), built.verdict, run.settings
    lines = [
        f"# {scaffold.name}",
        "",
        scaffold.agent.description or f"An agent for the domain {settings.domain}.",
        "",
        f"Created by `recreate build --domain {settings.domain}` from `{built.seed.name}` with"
        f" `{facts.start.get('model', '')}`, optimizer `{proposer(settings)}`.",
        "",
        f"Measured on {verdict.tasks} validation tasks x {verdict.repeats}:"
        f" {verdict_text(verdict)} ({facts.provenance})."
        if verdict.tasks
        else f"Not measured: {verdict.reason}.",
        "These tasks also decided which edits were kept, so the score flatters.",
        "",
        "Lineage (digests of the files):",
        "",
        f"- {built.seed.digest} {built.seed.name}",
    ]
    by_id, chain, at = {r.id: r for r in built.revisions}, list[Revision](), scaffold.digest
    while at in by_id:
        chain.insert(0, by_id.pop(at))
        at = chain[0].parent
    for revision in chain:
        what = "; ".join(dict.fromkeys(e.reason or e.path for e in revision.edits))
        kept = "" if revision.kept else " (not kept by the build)"
        lines.append(f"- {revision.id} {what}{kept}")
    if not chain and scaffold.digest != built.seed.digest:
        lines.append(f"- {scaffold.digest} written by a person")
    return "\n".join(lines) + "\n"

"""What a build says of itself: report.md in the run folder, README.md in the agent, one object for
--json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold, diff
from recreate.api.errors import BadInput
from recreate.api.paths import short
from recreate.api.types import Change, Lesson, Revision, Study, Verdict
from recreate.lessons import draws
from recreate.lessons.context import offered
from recreate.runs.gate import unjudged
from recreate.runs.reader import BuildResult, Run
from recreate.viewer.charts import per_task, read_scores
from recreate.viewer.text import proposer, reasons

HARDER = (
    "harder tasks: --difficulty 0.2..0.8, --kind real, --data FILE; more of them: --validation N;"
    " the same score for less: --keep-cheaper"
)
"""What to type after a build that ended because nothing could be kept."""


def result(run: Run, built: BuildResult, path: str) -> dict[str, Any]:
    """The object `build --json` prints."""
    return {
        "run": str(run.folder),
        "status": built.status,
        **({"advice": HARDER} if built.status == "ceiling" else {}),
        "scaffold": {"path": path, "digest": built.scaffold.digest},
        "validation": {**_validation(built.verdict), "split": "validation", "date": run.date},
        "provenance": provenance(run, built),
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
        "spend": run.spend().record(),
        "set_aside": run.excluded(),
    }


def _validation(verdict: Verdict) -> dict[str, Any]:
    keys = ("before", "after", "diff", "lo", "hi", "tasks", "repeats", "verdict", "reason")
    return {k: getattr(verdict, k) for k in keys}


def revision_record(revision: Revision) -> dict[str, Any]:
    """Return a revision as `log --json` and `show --json` print it."""
    return {
        "id": revision.id,
        "parent": revision.parent,
        "round": revision.round,
        "kept": revision.kept,
        "edits": [
            {
                "path": e.path,
                "old": e.old,
                "new": e.new,
                "reason": e.reason,
                "origin": e.origin,
                "evidence": [{"experience": c.experience, "step": c.step} for c in e.evidence],
            }
            for e in revision.edits
        ],
        "verdict": revision.verdict.model_dump(mode="json"),
        "faults": list(revision.faults),
        "review": revision.review,
    }


def verdict_text(verdict: Verdict) -> str:
    """A verdict in one line."""
    if verdict.diff is None or verdict.before is None or verdict.after is None:
        return f"{verdict.verdict}: {verdict.reason}"
    interval = f" [{verdict.lo:+.3f}, {verdict.hi:+.3f}]" if verdict.lo is not None else ""
    p = f", p = {verdict.p:.3f}" if verdict.p is not None else ""
    return (
        f"{verdict.verdict}: {verdict.before:.3f} -> {verdict.after:.3f}, difference"
        f" {verdict.diff:+.3f}{interval} over {verdict.tasks} tasks x {verdict.repeats}{p}"
        + (f"; {verdict.reason}" if verdict.reason else "")
    )


def provenance(run: Run, built: BuildResult) -> str:
    """What stands beside a build's score: of which agents, on what, when, for how much, and the
    command that makes it anew."""
    agents = " -> ".join(dict.fromkeys((built.seed.digest, built.scaffold.digest)))
    again = f"; again: {run.command}" if run.command else ""
    return (
        f"agent {agents} on validation, {run.date}, ${run.spend().total.usd:.4f} for the whole"
        f" build{again}"
    )


def study_text(study: Study) -> str:
    """One study in one line."""
    what = {
        "study": f"study of {study.task or study.experience}",
        "distil": "distilling",
        "create": "writing a seed",
    }
    turns = sum(study.actions.values())
    edits = _count(len(study.edits), "edit", "edits") if study.ending == "finished" else "no edit"
    ended = f"{study.cause}, {edits}" if study.cause else edits
    if study.ending != "finished":
        ended = f"did not finish ({f'{study.ending} {study.why}'.strip()})"
    return f"{what[study.kind]}: {ended}; {turns} actions ({inspection(study.kinds)})"


def inspection(kinds: Mapping[str, int]) -> str:
    """Which share of actions looked at what happened."""
    total = sum(kinds.values())
    return f"{kinds.get('inspect', 0) / total:.0%} inspection" if total else "none"


def report(run: Run, built: BuildResult) -> str:
    """report.md: before and after, each revision with diff, reason, evidence and verdict, spending,
    exclusions."""
    settings, spend = run.settings, run.spend()
    start = next(iter(run.records("start")), {})
    kept = sum(r.kept for r in built.revisions)
    lines = [
        f"# Building an agent for {settings.domain}",
        "",
        (
            f"Model `{start.get('model', settings.model)}`, optimizer `{proposer(settings)}`,"
            f" sandbox `{start.get('sandbox', '')}`, random seed {settings.seed}. Ended:"
            f" {built.status}. {_count(len(built.revisions), 'candidate was', 'candidates were')}"
            f" judged, {kept} kept."
        ),
        *(
            [f"The optimizer worked without: {', '.join(settings.without)}."]
            if settings.without
            else []
        ),
        *(
            [f"It ended before training, since nothing could be kept; {HARDER}."]
            if built.status == "ceiling"
            else []
        ),
        *(
            [f"Waits for a person: {built.waiting.id} (`recreate review`)."]
            if built.waiting
            else []
        ),
        "",
        "## Validation",
        "",
        verdict_text(built.verdict),
        "",
        f"{provenance(run, built)}.",
        "",
        f"{_promised(run)} {flattery(built)} The untouched figure is `{opening(run, built)}`.",
        "",
        *_strata(built.verdict),
        "| task | " + " | ".join(["before", "after"]) + " |",
        "|---|---|---|",
    ]
    scores = read_scores(run)
    before, after = (per_task(scores.get(x.digest, {})) for x in (built.seed, built.scaffold))
    for task in sorted(before):
        mark = "" if before[task] == after.get(task) else " **"
        lines.append(f"| {task} | {before[task]:.2f} | {after.get(task, float('nan')):.2f}{mark} |")
    lines += ["", *_batches(run), "## Revisions", ""]
    if not built.revisions:
        reasons = [r["reason"] for r in run.records("nothing")]
        lines.append("No candidate was judged." + "".join(f"\n- {reason}" for reason in reasons))
    history = History(run.folder / "scaffold.git")
    for number, revision in enumerate(built.revisions, 1):
        lines += _revision(number, revision, history)
    lines += _studies(run.studies())
    lines += _rehearsed(run, built)
    lines += _learned(run)
    lines += [
        "## Spending",
        "",
        "| role | calls | tokens in | tokens out | USD |",
        "|---|---|---|---|---|",
    ]
    for role, usage in [*sorted(spend.by_role.items()), ("all", spend.total)]:
        lines.append(
            f"| {role} | {usage.calls} | {usage.tokens_in:,} | {usage.tokens_out:,} |"
            f" {usage.usd:.4f} |"
        )
    lines += [
        "",
        f"{spend.attempts} attempts, {spend.minutes:.1f} minutes.{spend.unpaid}",
        "",
        "## Excluded (infrastructure failures)",
        "",
    ]
    excluded = run.excluded()
    lines += [
        f"- {row['task']} (repeat {row['repeat']}, {row['phase']}): {row['fault']}"
        for row in excluded
    ]
    if not excluded:
        lines.append("None: no attempt failed because of the infrastructure.")
    return "\n".join(lines) + "\n"


def _strata(verdict: Verdict) -> list[str]:
    if not verdict.strata:
        return []
    rows = [f"| {s.name} | {s.tasks} | {s.before:.3f} | {s.after:.3f} |" for s in verdict.strata]
    return ["| kind of task | tasks | before | after |", "|---|---|---|---|", *rows, ""]


def _batches(run: Run) -> list[str]:
    """Which train tasks each round attempted, and why; [] where they were taken in turn."""
    lines = [f"- round {r['round'] + 1}: {r['told']}" for r in run.records("batch")]
    return ["## Train tasks", "", *lines, ""] if lines else []


def flattery(built: BuildResult) -> str:
    """What it costs that a score is of the tasks that chose its agent: figures of `python -m
    tests.lab.evidence reuse`."""
    if built.scaffold.digest == built.seed.digest:
        return "These validation tasks chose no agent, so the score does not flatter."
    return (
        "The same validation tasks judged every candidate, so this score flatters the result:"
        " simulated builds that kept something ended 11 to 17 points of a hundred too high on 20"
        " tasks, 8 to 10 on 40 and 2 to 4 on 100."
    )


def _promised(run: Run) -> str:
    """What the gate vouches for, and what that was spent on."""
    gate, spent = run.settings.gate, [record["terms"]["alpha"] for record in run.records("trial")]
    if not gate.false_keep:
        return "The interval is a 90 % one for the mean paired difference over tasks."
    return (
        f"In at most {gate.false_keep:.1%} of builds is anything kept that does not help, all"
        f" candidates together: {_count(len(spent), 'trial', 'trials')} here had {sum(spent):.1%}"
        " of that to spend. A trial takes the tasks in an order of its own and ends when it is"
        " clear; its interval holds at every such moment."
    )


def _revision(number: int, revision: Revision, history: History) -> list[str]:
    outcome = "kept" if revision.kept else "dropped"
    lines = [f"### {number}. {revision.id}, {outcome}", "", verdict_text(revision.verdict), ""]
    lines += [f"A person {revision.review}.", ""] if revision.review else []
    for edit, told in reasons(revision.edits):
        cited = ", ".join(f"`{e.experience}` step {e.step}" for e in edit.evidence) or "none"
        lines.append(f"- `{edit.path}`{told.removeprefix(edit.path)} Evidence: {cited}.")
    lines += [f"- not used: {fault}" for fault in revision.faults]
    text = diff(history.read(revision.parent), history.read(revision.id))
    fence = "````" if "```" in text else "```"
    return [*lines, "", f"{fence}diff", text.rstrip("\n"), fence, ""]


def ended(run: Run) -> BuildResult:
    """What a build came to, read from its run folder; status `unfinished` while it has not ended.

    Raises BadInput when the folder is not a build's.
    """
    seed = run.seed()
    if seed is None:
        raise BadInput(
            f"{run.folder.name} is not a build",
            fix="name a run of recreate build; recreate show RUN shows a bench",
            code="not-a-build",
        )
    revisions, end = run.revisions(), run.end()
    kept = [r.id for r in revisions if r.kept]
    final = History(run.folder / "scaffold.git").read(kept[-1]) if kept else seed
    return BuildResult(
        status=str(end["status"]) if end else "unfinished",
        seed=seed,
        scaffold=final,
        verdict=run.validation(seed.digest, final.digest)
        or unjudged("undecided", "validation has not ended"),
        revisions=tuple(revisions),
        waiting=run.waiting(),
    )


def _studies(studies: Sequence[Study]) -> list[str]:
    """What the optimizer looked at and concluded; [] when it does not investigate."""
    if not studies:
        return []
    lines = ["## Studies", ""]
    for study in studies:
        lines.append(f"- {study_text(study)}. {' '.join(study.summary.split())}".rstrip())
        lines += [f"  - rejected {name}: {why}" for name, why in study.rejected]
    kinds: Counter[str] = Counter()
    tools: Counter[str] = Counter()
    for study in studies:
        kinds.update(study.kinds)
        tools.update(study.actions)
    by_tool = ", ".join(f"{name} {n}" for name, n in tools.most_common())
    lines += ["", f"Actions: {sum(kinds.values())}, {inspection(kinds)}; {by_tool}.", ""]
    return lines


REHEARSED = {
    "rehearse": "a rehearsal of an edit",
    "select": "a trial of one of several candidates",
}
"""Phases of attempts at train tasks that the optimizer made, not the agent's own."""


def reruns(run: Run) -> dict[str, str]:
    """Attempt -> which lesson it was a re-run with, or without: where none was shown, those that
    were at that place."""
    made = [r for r in run.records("experience") if r.get("phase") == "rerun"]
    shown, beside = dict[str, set[str]](), dict[tuple[str, int], set[str]]()
    for r in made:
        try:
            shown[r["attempt"]] = offered(run.experience(r["attempt"]))
        except BadInput:  # its folder is gone
            continue
        beside.setdefault((r["task"], r["repeat"]), set()).update(shown[r["attempt"]])
    told = dict[str, str]()
    for r in made:
        found = shown.get(r["attempt"])
        if found is None:
            told[r["attempt"]] = "a re-run with or without a lesson"
            continue
        names = ", ".join(sorted(found or beside[r["task"], r["repeat"]])) or "any lesson"
        told[r["attempt"]] = f"a re-run {'with' if found else 'without'} {names}"
    return told


def opening(run: Run, built: BuildResult) -> str:
    """The command that measures what a build made on the test tasks."""
    agent = f"{short(run.folder)}:{built.scaffold.digest}"
    return f"recreate bench --scaffold {agent} --domain {run.settings.domain} --split test"


def whose(digest: str, built: BuildResult, rerun: bool = False) -> str:
    """Whose scaffold an attempt ran: the seed's, a revision's, or a draft's that nobody judged.
    rerun: of a lesson, which an agent that carries it lacks."""
    if digest == built.seed.digest:
        return "the seed"
    for number, revision in enumerate(built.revisions, 1):
        if revision.id == digest:
            return f"revision {number}"
    return (
        "the agent without its file of it"
        if rerun
        else "a draft of the optimizer, which no validation judged"
    )


def _rehearsed(run: Run, built: BuildResult) -> list[str]:
    """The attempts that were made beside the agent's own, and whose scaffold each ran; [] without
    any."""
    again, lines = reruns(run), []
    for heading, some in (
        ("## Tried by the optimizer", REHEARSED.keys()),
        ("## Re-runs with and without a lesson", {"rerun"}),
    ):
        rows = [
            f"- `{r['attempt']}` {r['task']}, {'passed' if r['passed'] else 'failed'}: "
            f"{again.get(r['attempt']) or REHEARSED[r['phase']]}, run by "
            f"{whose(r['scaffold'], built, r['attempt'] in again)} (`{r['scaffold']}`)"
            for r in run.records("experience")
            if r.get("phase") in some
        ]
        lines += [heading, "", *rows, ""] if rows else []
    return lines


class LearnedLesson(NamedTuple):
    """What a build's memory made of a lesson that joined no other.

    told: (round, counted from 1; what happened; why), its birth and what joined or supported it
    aside; joined: how many lessons did; shown: what came of the draws; agent: what became of it in
    the agent.
    """

    lesson: Lesson
    told: list[tuple[int, str, str]]
    joined: int
    shown: str
    agent: list[str]


def learned(run: Run) -> list[LearnedLesson]:
    """The lessons that a build changed: those in use first, then those that most attempts
    support."""
    now, told = dict[str, Lesson](), dict[str, list[tuple[int, str, str]]]()
    for record in run.records("memory"):
        now |= {x.id: x for x in map(Lesson.model_validate, record["after"])}
        for change in map(Change.model_validate, record["changes"]):
            if change.kind not in ("born", "merged", "supported"):
                told.setdefault(change.lesson, []).append(
                    (record["round"] + 1, change.kind, change.why)
                )
    agent = dict[str, list[str]]()
    for number, revision in enumerate(run.revisions(), 1):
        for edit in revision.edits:
            if edit.path.startswith("memory/"):
                words = "taken out" if edit.origin == "prune" else "taken into the agent"
                became = f"{'' if revision.kept else 'not '}{words}, revision {number}"
                agent.setdefault(edit.path.removeprefix("memory/").removesuffix(".md"), []).append(
                    became
                )
    found = [x for x in now.values() if x.status != "merged"]
    found.sort(key=lambda x: (x.status != "active", -len(x.supports), x.id))
    here = {r["attempt"] for r in run.records("experience")}
    return [
        LearnedLesson(x, told.get(x.id, []), len(x.merged), _drawn(x, here), agent.get(x.id, []))
        for x in found
    ]


def _drawn(lesson: Lesson, here: Collection[str]) -> str:
    """What came of a lesson's draws in these attempts of a build, and over all builds where others
    made some."""
    own = lesson.model_copy(
        update={"draws": tuple(d for d in lesson.draws if d.experience in here)}
    )
    if len(own.draws) in (0, len(lesson.draws)):
        return draws.told(lesson) + ", in other builds" * (len(own.draws) < len(lesson.draws))
    return f"in this build {draws.told(own)}; over all builds {draws.told(lesson)}"


def lessons_cost(run: Run, lessons: Sequence[LearnedLesson]) -> str:
    """What a build's lessons (`learned`) took, in all and for each; '' where none was learned."""
    usage = run.usage
    if not lessons:
        return ""
    spent = {
        phase: [u for (_, of), u in usage.items() if of == phase] for phase in ("observe", "rerun")
    }
    usd, tokens = (
        sum(getattr(u, name) for each in spent.values() for u in each for name in names)
        for names in (("usd",), ("tokens_in", "tokens_out"))
    )
    asked = sum(u.calls for u in spent["observe"])
    again = sum(r.get("phase") == "rerun" for r in run.records("experience"))
    rose = [any(kind == "promoted" for _, kind, _ in x.told) for x in lessons]
    proven = sum(rose)
    before = sum(
        not new and x.lesson.status == "active" for x, new in zip(lessons, rose, strict=True)
    )
    each = f"${usd / len(lessons):.4f} for each of {_count(len(lessons), 'lesson', 'lessons')}"
    each += (
        f", ${usd / proven:.4f} for each of {_count(proven, 'new pattern', 'new patterns')}"
        if proven
        else f", none {'a new' if before else 'a'} pattern"
    )
    each += f", {before} {'was' if before == 1 else 'were'} one before" if before else ""
    what = f"{_count(asked, 'question', 'questions')} and {_count(again, 're-run', 're-runs')}"
    return f"{what}: ${usd:.4f} and {tokens:,} tokens, {each}"


def _learned(run: Run) -> list[str]:
    """What a memory policy did, round by round; nothing without one."""
    lessons = learned(run)
    lines = [f"- Lessons took {cost}."] if (cost := lessons_cost(run, lessons)) else []
    for record in run.records("memory"):
        head = f"Round {record['round'] + 1}, policy {record['policy']}"
        told = map(Change.model_validate, record["changes"])
        changes = [f"  - {c.lesson} {c.kind}{': ' * bool(c.why)}{c.why}" for c in told]
        lines += [f"- {head}: {_count(len(changes), 'change', 'changes')}", *changes]
        known = {x["id"]: {d["experience"] for d in x.get("draws", ())} for x in record["before"]}
        for x in map(Lesson.model_validate, record["after"]):
            new = tuple(d for d in x.draws if d.experience not in known.get(x.id, ()))
            lines += (
                [f"  - {x.id}: {draws.told(x.model_copy(update={'draws': new}))}"] if new else []
            )
    lines += [f"- {x.lesson.id}, all rounds: {x.shown}" for x in lessons if x.shown]
    lines += [f"- memory/{x.lesson.id}.md: {became}" for x in lessons for became in x.agent]
    return ["## Memory", "", *lines, ""] if lines else []


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def chosen(scaffold: Scaffold, run: Run) -> BuildResult:
    """Any agent of a run as a result: its score against the seed's as it was measured there."""
    seed = run.seed()
    assert seed is not None
    verdict = run.validation(seed.digest, scaffold.digest) or unjudged(
        "undecided", "these files had no attempts"
    )
    offered = run.waiting()
    return BuildResult(
        "chosen", seed, scaffold, verdict, (*run.revisions(), *([offered] if offered else []))
    )


def readme(scaffold: Scaffold, run: Run, built: BuildResult) -> str:
    """README.md of a created agent: who it is, what it was measured on, its score, its lineage.

    `built` is a build's result, or `chosen`: any revision of a run that a person chose.
    """
    verdict, settings = built.verdict, run.settings
    start = next(iter(run.records("start")), {})
    lines = [
        f"# {scaffold.name}",
        "",
        scaffold.agent.description or f"An agent for the domain {settings.domain}.",
        "",
        (
            f"Created by `recreate build --domain {settings.domain}` from `{built.seed.name}` with "
            f"`{start.get('model', '')}`, optimizer `{proposer(settings)}`."
        ),
        "",
        (
            f"Measured on {verdict.tasks} validation tasks x {verdict.repeats}:"
            f" {verdict_text(verdict)} ({provenance(run, built)})."
            if verdict.tasks
            else f"Not measured: {verdict.reason}."
        ),
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
        lines.append(
            f"- {revision.id} {what}" + ("" if revision.kept else " (not kept by the build)")
        )
    if not chain and scaffold.digest != built.seed.digest:
        lines.append(f"- {scaffold.digest} written by a person")
    return "\n".join(lines) + "\n"

"""log, show, diff: what happened, shown to a person or as JSON. Nothing here
changes anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.config import read_toml
from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.registry import find
from recreate.cli.options import Json, RunName, open_run
from recreate.cli.terminal import EXCLUDED, answer, emit, say
from recreate.cli.terminal import show as put
from recreate.viewer.text import proposer, reasons

if TYPE_CHECKING:
    from recreate.agents.config import AgentConfig
    from recreate.agents.scaffold import Scaffold
    from recreate.api.types import Revision
    from recreate.runs.reader import Run

RUNS = 5
"""How many of the newest runs `diff` asks why something was changed, when it is not told which."""


def log(run: RunName = "last", as_json: Json = False) -> None:
    """Show one line per revision of a run: kept or dropped, which files, the verdict.

    Example: recreate log last
    """
    from recreate.api.types import Revision
    from recreate.viewer.markdown import revision_record, verdict_text

    found, count = open_run(run), 0
    for record in found.records("revision", "nothing"):
        if record["kind"] == "nothing":
            if not as_json:
                put(f"round {record['round'] + 1}  nothing  {record['reason']}")
            continue
        revision = Revision.model_validate(record["revision"])
        count += 1
        files = ", ".join(dict.fromkeys(e.path for e in revision.edits))
        fate = f"{_fate(revision):<7}  {revision.id}  {files}  {verdict_text(revision.verdict)}"
        person = f"; a person {revision.review}" if revision.review else ""
        answer(
            as_json,
            revision_record(revision),
            f"round {revision.round + 1}  {fate}{person}",
        )
    if not count:
        say(f"{here(found.folder)} has no revision ({found.status()})")


def show(
    what: Annotated[
        str, typer.Argument(metavar="RUN_OR_SCAFFOLD", help="A run, `last`, or a scaffold.")
    ] = "last",
    revision: Annotated[
        str, typer.Argument(help="One revision of the run, by the beginning of its id.")
    ] = "",
    html: Annotated[
        bool,
        typer.Option(
            "--html",
            help="Write the report.html of a build, a bench or a training anew and print its path.",
        ),
    ] = False,
    page: Annotated[
        str, typer.Option("--page", help="The same of another page: its name or module:function.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show a run (settings, status, revisions with their evidence), one revision with its diff, or
    an agent.

    Example: recreate show last --html
    """
    from recreate.runs.reader import find_agent, named_run

    where = workspace()
    folder = named_run(what, where)
    if html or page:
        _write_page(folder, what, revision, page or "report", as_json)
    elif folder is None:
        if revision:
            raise BadInput(
                f"{what!r} is not a run, so it has no revision", fix="recreate show RUN REVISION"
            )
        _show_agent(find_agent(what, where), as_json)
    elif revision:
        _show_revision(_run(folder), revision, as_json)
    else:
        _show_run(_run(folder), as_json)


def diff(
    a: Annotated[
        str,
        typer.Argument(metavar="A", help="A scaffold's folder or name, RUN:DIGEST or RUN:seed."),
    ],
    b: Annotated[
        str, typer.Argument(metavar="B", help="Another; a RUN alone is the agent it ended with.")
    ],
    as_json: Json = False,
) -> None:
    """Show what changed from one agent to another; a run's revisions bring reasons and evidence
    along.

    Example: recreate diff seed runs/swe-20260101-120000
    """
    from recreate.agents import scaffold as scaffolds
    from recreate.runs.reader import find_agent, named_run

    where = workspace()
    before, after = find_agent(a, where), find_agent(b, where)
    text = scaffolds.diff(before, after)
    if not as_json:
        if text:
            put(text.rstrip("\n"))
        else:
            say("the files are the same")
        return
    named = [named_run(x.rpartition(":")[0] or x, where) for x in (a, b)]
    newest = sorted(
        (where / "runs").glob("*/settings.toml"), key=lambda p: p.stat().st_mtime, reverse=True
    )
    edits, verdict = _between(
        before, after, [r for r in named if r] or [p.parent for p in newest[:RUNS]]
    )
    sides = {
        side: {"name": x.name, "digest": x.digest} for side, x in (("a", before), ("b", after))
    }
    emit({**sides, "edits": edits, "verdict": verdict, "diff": text})


def verdict_of(revision: Revision) -> str:
    """Return a revision and its verdict in a line."""
    from recreate.viewer.markdown import verdict_text

    return f"{_fate(revision)} in round {revision.round + 1}: {verdict_text(revision.verdict)}"


# ------------------------------------------------------------------------------------------- agents
# and runs


def _run(folder: Path) -> Run:
    return open_run(str(folder))


def _fate(revision: Revision) -> str:
    return "kept" if revision.kept else "dropped"


def _budget_of_arms(file: Path) -> tuple[str, ...] | None:
    """Return the caps that each arm of a table was made under; None for another run, and for a file
    that was cut off."""
    with suppress(OSError, ValueError):
        table = read_toml(file.read_text("utf-8"))
        return tuple(map(str, table.get("budget", ()))) if "arms" in table else None
    return None


class _ShownRun:
    """A run, read once: as one JSON object, or as lines."""

    def __init__(self, run: Run) -> None:
        from recreate.viewer.facts import RunFacts

        self.run, self.settings, self.facts = run, run.settings, RunFacts(run)
        self.revisions, self.seed = self.facts.revisions, self.facts.seed
        self.final = next(
            (r.id for r in reversed(self.revisions) if r.kept),
            self.seed.digest if self.seed else "",
        )
        self.arms = _budget_of_arms(run.folder / "bench.toml")

    def record(self) -> dict[str, Any]:
        from recreate.runs.budget import Budget
        from recreate.viewer.charts import CURVE
        from recreate.viewer.markdown import revision_record

        facts, seed = self.facts, self.seed
        record = {
            "run": str(self.run.folder),
            "status": facts.status,
            "settings": self.settings.model_dump(mode="json"),
            "model": facts.model,
            "sandbox": facts.sandbox,
            "seed": {"name": seed.name, "digest": seed.digest} if seed else None,
            "scaffold": {"digest": self.final} if self.final else None,
            "validation": facts.verdict.model_dump(mode="json") if facts.verdict else None,
            "attempts": {split: n._asdict() for split, n in facts.attempts.items()},
            "revisions": [revision_record(r) for r in self.revisions],
            "date": self.run.date,
            "command": self.run.command,
            "spend": facts.spend.record(),
            "set_aside": facts.excluded,
        }
        if facts.updates:
            record["curve"] = [{k: u.get(k) for k in ("step", *CURVE)} for u in facts.updates]
        if facts.cells:
            record["cells"] = [cell.row() for cell in facts.cells]
            record["differences"] = facts.differences
        if self.arms is not None:
            record["budget"] = Budget.parse(self.arms).caps
        return record

    def lines(self) -> Iterator[str]:
        from recreate.cli.cells import list_cells
        from recreate.viewer.charts import draw_curves
        from recreate.viewer.markdown import verdict_text

        run, seed, facts = self.run, self.seed, self.facts
        yield f"run        {here(run.folder)} ({facts.status})"
        yield from self._settings()
        if seed:
            yield f"started    from {seed.name} ({seed.digest}), now {self.final}"
        counts = [
            f"{n.attempts} {split} ({n.passed} passed)" for split, n in facts.attempts.items()
        ]
        without = f", {len(facts.excluded)} {EXCLUDED}" if facts.excluded else ""
        yield f"attempts   {', '.join(counts) or 'none has ended'}{without}"
        yield self._spent()
        if facts.verdict:
            yield f"validation {verdict_text(facts.verdict)}"
        again = f"; again: {run.command}" if run.command else ""
        yield f"measured   {run.date or 'not yet'}{again}"
        for drawn in draw_curves(facts.updates):
            yield (
                f"training   {drawn.name}: {drawn.first:.4g} -> {drawn.last:.4g} in"
                f" {len(facts.updates)} steps"
            )
        if facts.cells:
            yield from list_cells(facts.cells, facts.differences)
        for number, revision in enumerate(self.revisions, 1):
            yield f"\n{number}. {_fate(revision)} {revision.id}, from {revision.parent}"
            yield from _edits(revision)
        for row in facts.excluded:
            yield (
                f"{EXCLUDED}: {row['task']} (repeat {row['repeat']}, {row['phase']}):"
                f" {row['fault']}"
            )

    def _settings(self) -> Iterator[str]:
        settings, start = self.settings, self.facts.start
        optimizer = (
            f"optimizer {proposer(settings)}, " if start.get("command", "build") == "build" else ""
        )
        yield (
            f"settings   domain {settings.domain}, model"
            f" {start.get('model') or settings.model or '?'}, {optimizer}sandbox"
            f" {start.get('sandbox') or settings.sandbox or '?'}, seed {settings.seed}"
        )
        tasks = f"{settings.train} train and {settings.validation} validation tasks"
        rounds = f"{settings.rounds} rounds, {tasks} x " if self.seed else ""
        yield (
            f"           {rounds}{settings.repeats} repeats, {settings.jobs} at once, budget"
            f" {self._budget()}"
        )

    def _budget(self) -> str:
        """Return its caps; of a table of arms those that each was made under, since measuring has
        none."""
        if self.arms is None:
            return " ".join(self.settings.budget) or "no cap"
        return f"{' '.join(self.arms) or 'no cap'} for making each arm, no cap for measuring"

    def _spent(self) -> str:
        total, spend = self.facts.spend.total, self.facts.spend
        unpaid = "".join(
            f"; {text.rstrip('.')}" for text in spend.unpaid.strip().split(". ") if text
        )
        tokens = f"{total.tokens_in + total.tokens_out:,} tokens"
        return (
            f"spent      {total.calls} calls, {tokens}, ${total.usd:.4f}, {spend.minutes:.1f}"
            f" min{unpaid}"
        )


def _show_run(run: Run, as_json: bool) -> None:
    from recreate.viewer.facts import HARDER

    shown = _ShownRun(run)
    if as_json:
        emit(shown.record())
        return
    put(*shown.lines())
    if shown.facts.status == "ceiling":
        say(HARDER)
    if shown.facts.status in ("stopped", "budget"):
        say(f"recreate resume {here(run.folder)} goes on")
    if shown.facts.waiting:
        say(f"a candidate waits for you: recreate review {here(run.folder)} shows it")


def _edits(revision: Revision) -> Iterator[str]:
    from recreate.viewer.markdown import verdict_text

    yield f"   {verdict_text(revision.verdict)}"
    if revision.review:
        yield f"   a person {revision.review}"
    for edit, told in reasons(revision.edits):
        cited = ", ".join(f"{e.experience} step {e.step}" for e in edit.evidence)
        yield f"   {told} ({edit.origin}{': ' + cited if cited else ''})"
    for fault in revision.faults:
        yield f"   not used: {fault}"


def _write_page(folder: Path | None, what: str, revision: str, page: str, as_json: bool) -> None:
    from recreate.viewer import html

    if folder is None or revision:
        wrong = f"{what!r} is not a run" if folder is None else "a page is of a whole run"
        raise BadInput(
            wrong, fix="recreate show RUN --html", code="no-run" if folder is None else "usage"
        )
    file = html.write(_run(folder), name=page)
    answer(as_json, {"run": str(folder), "html": str(file)}, here(file))


def _show_revision(run: Run, text: str, as_json: bool) -> None:
    from recreate.agents import scaffold as scaffolds
    from recreate.agents.history import History
    from recreate.viewer.markdown import revision_record

    revisions = run.revisions()
    found = [r for r in revisions if r.id.startswith(text)]
    if len(found) != 1:
        raise BadInput(
            f"{len(found)} revisions of {here(run.folder)} begin with {text!r}",
            fix=f"there are: {', '.join(r.id for r in revisions) or 'none'}",
            code="no-revision",
        )
    (revision,) = found
    history = History(run.folder / "scaffold.git")
    changed = scaffolds.diff(history.read(revision.parent), history.read(revision.id))
    answer(
        as_json,
        {**revision_record(revision), "diff": changed},
        f"{_fate(revision)} {revision.id}, from {revision.parent}, round {revision.round + 1}",
        *_edits(revision),
        "",
        changed.rstrip("\n"),
    )


def _show_agent(agent: Scaffold, as_json: bool) -> None:
    settings = agent.agent
    record = {
        "name": agent.name,
        "digest": agent.digest,
        "agent": settings.model_dump(mode="json"),
        "files": [{"path": p, "characters": len(t)} for p, t in sorted(agent.files.items())],
        "tools": [{"name": n, "path": p, "help": agent.help(n)} for n, p in agent.tools.items()],
        "lessons": [x.model_dump(mode="json") for x in agent.lessons],
    }
    answer(as_json, record, *([] if as_json else _agent(agent, settings)))


def _agent(agent: Scaffold, settings: AgentConfig) -> Iterator[str]:
    """Yield an agent for a person: how it acts, its limits, its files and lessons."""
    limits, foreign = settings.limits, settings.foreign
    about = f": {settings.description}" if settings.description else ""
    yield f"{agent.name} ({agent.digest}){about}"
    if settings.parent:
        yield f"made from {settings.parent}" + f", for {settings.domain}" * bool(settings.domain)
    more = f" and {limits.extension} more" if limits.extension else ""
    rows = {
        "acts": _tell_action(settings),
        "first": f"{', '.join(settings.before)} run before the first turn" * bool(settings.before),
        "ends": f"when {settings.done} exits with 0, or it submits" * bool(settings.done),
        "samples": _tell_samples(settings),
        **{key: find("turns", key).describe(settings) for key in settings.turns},
        "recalls": (
            f"asks memory by itself; an answer has at most {settings.memory.recall} tokens"
            if settings.memory.recall
            else ""
        ),
        "limits": (
            f"{limits.steps} steps{more}, {limits.tokens:,} tokens, ${limits.usd:g},"
            f" {limits.seconds:g} s; a command {limits.command_seconds:g} s, an observation"
            f" {limits.observation_chars:,} characters"
        ),
        "model": _tell_model(settings),
        "texts": (", ".join(settings.texts) or "none: nothing of it can be improved")
        if foreign
        else "",
        "protected": ", ".join(settings.protect),
    }
    yield from (f"{name:<10} {text}" for name, text in rows.items() if text)
    yield ""
    named = {path: name for name, path in agent.tools.items()}
    for path, text in sorted(agent.files.items()):
        help = agent.help(named[path]).partition("\n")[0] if path in named else ""
        yield f"  {path:<36} {len(text):>6} characters  {help}".rstrip()
    for lesson in agent.lessons:
        born = f" (born of {', '.join(lesson.born_of)})" if lesson.born_of else ""
        yield f"\nlesson: {lesson.title}{born}\n  " + lesson.body.replace("\n", "\n  ")


def _tell_action(settings: AgentConfig) -> str:
    servers = "".join(f", the MCP server {name}" for name in settings.mcp)
    acts = {
        "bash": "runs one bash command a turn",
        "json": 'answers {"command": ...} each turn, which is run',
        "tools": f"calls functions: its own tools{servers}",
        "command": f"is a program of its own: {settings.command}",
    }
    if settings.foreign:
        acts.setdefault(settings.action, f"is Python of its own: {settings.action[7:]}")
    return acts.get(settings.action, f"hands its whole reply to the tool {settings.action[5:]}")


def _tell_samples(settings: AgentConfig) -> str:
    if settings.samples < 2:
        return ""
    chosen = f"the best by {settings.choose}" if settings.choose else "the first handed in"
    vote = f"the one that most agree with by {settings.vote}" if settings.vote else chosen
    return f"{settings.samples} tries at a task, {vote}"


def _tell_model(settings: AgentConfig) -> str:
    model = settings.model
    drawn = {"temperature": model.temperature, "top_p": model.top_p}
    asked = [f"{name} {value:g}" for name, value in drawn.items() if value is not None]
    ends = [f"a reply ends at {text!r}" for text in model.stop]
    return ", ".join([*asked, f"at most {settings.reply_tokens} tokens a reply", *ends])


def _between(
    before: Scaffold, after: Scaffold, runs: Sequence[Path]
) -> tuple[list[Any], dict[str, Any] | None]:
    """Return the edits that lead from one agent to the other, reasons where a run knows them; the
    last verdict."""
    from recreate.viewer.markdown import revision_record

    for folder in dict.fromkeys(runs):
        by_id = {r.id: r for r in _run(folder).revisions()}
        chain: list[dict[str, Any]] = []
        at = after.digest
        while at in by_id and at != before.digest and len(chain) <= len(by_id):
            chain.append(revision_record(by_id[at]))
            at = by_id[at].parent
        if chain and at == before.digest:
            return [e for r in reversed(chain) for e in r["edits"]], chain[0]["verdict"]
    edits: list[Any] = [
        {
            "path": path,
            "old": before.files.get(path, ""),
            "new": after.files.get(path, ""),
            "reason": "",
            "origin": None,  # nobody wrote down who made this change
            "evidence": [],
        }
        for path in sorted({*before.files, *after.files})
        if before.files.get(path) != after.files.get(path)
    ]
    return edits, None

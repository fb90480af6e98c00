"""log, show, diff: what happened, shown to a person or as JSON. Nothing here
changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.config import read_toml
from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.registry import find
from recreate.api.shapes import JsonDict
from recreate.cli.options import Json, RunName, open_run
from recreate.cli.terminal import EXCLUDED, answer, emit, say
from recreate.cli.terminal import show as put
from recreate.viewer.text import proposer, reasons

if TYPE_CHECKING:
    from recreate.agents.scaffold import Scaffold
    from recreate.api.types import Revision
    from recreate.runs.reader import Run

HERE = Path(__file__).parent
RUNS = 5
"""How many of the newest runs `diff` asks why something was changed, when it is not told which."""


def log(run: RunName = "last", as_json: Json = False) -> None:
    """Show one line per revision of a run: kept or dropped, which files, the verdict.

    Example: recreate log last
    """
    from recreate.api.types import Revision
    from recreate.viewer.facts import verdict_text
    from recreate.viewer.markdown import revision_record

    found = open_run(run)
    count = 0
    for record in found.records("revision", "nothing"):
        if record["kind"] == "nothing":
            if not as_json:
                put(f"round {record['round'] + 1}  nothing  {record['reason']}")
            continue
        revision = Revision.model_validate(record["revision"])
        count += 1
        files = ", ".join(dict.fromkeys(e.path for e in revision.edits))
        fate = f"{_fate(revision):<12}  {revision.id}  {files}  {verdict_text(revision.verdict)}"
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
    before = find_agent(a, where)
    after = find_agent(b, where)
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


# ------------------------------------------------------------------------------------------- agents
# and runs


def _run(folder: Path) -> Run:
    return open_run(str(folder))


def _fate(revision: Revision) -> str:
    from recreate.viewer.facts import tell_fate

    return tell_fate(revision)


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

        self.run = run
        self.settings = run.settings
        self.facts = RunFacts(run)
        self.revisions = self.facts.revisions
        self.seed = self.facts.seed
        self.final = run.result
        self.arms = _budget_of_arms(run.folder / "bench.toml")

    def record(self) -> JsonDict:
        from recreate.runs.budget import Budget
        from recreate.viewer.charts import CURVE
        from recreate.viewer.markdown import revision_record

        facts = self.facts
        seed = self.seed
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
            "revisions": [
                {**revision_record(r), "parts": facts.parts[r.id]} for r in self.revisions
            ],
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

    def text(self) -> str:
        from recreate.cli.cells import list_cells
        from recreate.viewer.charts import draw_curves

        facts = self.facts
        return _fill(
            "show",
            run=self.run,
            folder=here(self.run.folder),
            facts=facts,
            settings=self.settings,
            seed=self.seed,
            final=self.final,
            arms=self.arms,
            total=facts.spend.total,
            curves=draw_curves(facts.updates),
            cells=list_cells(facts.cells, facts.differences) if facts.cells else (),
        )


def _fill(template: str, **values: Any) -> str:
    """Return a text of a template of this room."""
    from recreate.viewer.facts import verdict_text
    from recreate.viewer.html import fill

    words = {"verdict_text": verdict_text, "reasons": reasons, "proposer": proposer, "fate": _fate}
    text = fill(template, HERE, EXCLUDED=EXCLUDED, repr=repr, **words, **values)
    return text.rstrip("\n")


def _show_run(run: Run, as_json: bool) -> None:
    from recreate.viewer.facts import HARDER

    shown = _ShownRun(run)
    if as_json:
        emit(shown.record())
        return
    put(shown.text())
    if shown.facts.status == "ceiling":
        say(HARDER)
    if shown.facts.status in ("stopped", "budget"):
        again = "bench" if (run.folder / "bench.toml").is_file() else "resume"
        say(f"recreate {again} {here(run.folder)} goes on")
    if shown.facts.waiting:
        say(f"a candidate waits for you: recreate review {here(run.folder)} shows it")


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
    from recreate.viewer.facts import RunFacts
    from recreate.viewer.markdown import revision_record

    facts = RunFacts(run)
    revisions = facts.revisions
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
        {**revision_record(revision), "parts": facts.parts[revision.id], "diff": changed},
        f"{_fate(revision)} {revision.id}, from {revision.parent}, round {revision.round + 1}",
        _fill("edits", revision=revision, facts=facts),
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
        "examples": [x.model_dump(mode="json") for x in agent.examples],
    }
    turns = [(key, find("turns", key).describe(settings)) for key in settings.turns]
    helps = {path: agent.help(name).partition("\n")[0] for name, path in agent.tools.items()}
    text = "" if as_json else _fill("agent", agent=agent, config=settings, turns=turns, helps=helps)
    answer(as_json, record, text)


def _between(
    before: Scaffold, after: Scaffold, runs: Sequence[Path]
) -> tuple[list[Any], JsonDict | None]:
    """Return the edits that lead from one agent to the other, reasons where a run knows them; the
    last verdict."""
    from recreate.viewer.markdown import revision_record

    for folder in dict.fromkeys(runs):
        by_id = {r.id: r for r in _run(folder).revisions()}
        chain: list[JsonDict] = []
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

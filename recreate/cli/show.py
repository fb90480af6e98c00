"""log, show, diff: what happened, told to a person or as JSON. Nothing here changes anything."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.cli.options import Json
from recreate.cli.terminal import emit, say, show
from recreate.runs.agents import find_agent, named_run

RUNS = 5
"""How many of the newest runs `diff` asks why something was changed, when it is not told which."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What an agent printed must not move the cursor of whoever reads it."""


def add(app: typer.Typer) -> None:
    """Put the commands on the app."""
    app.command("log")(log)
    app.command("show")(show_)
    app.command("diff")(diff)


def log(
    run: Annotated[str, typer.Argument(help="A run folder, its name under runs/, or `last`.")] = "last",
    as_json: Json = False,
) -> None:
    """One line per revision of a run: kept or dropped, which files, the verdict.

    Example: recreate log last
    """
    from recreate.runs.reader import Run, find_run
    from recreate.viewer.markdown import revision_record, say_verdict

    seen = Run(find_run(run, workspace()))
    told = 0
    for record in seen.records("revision", "nothing"):
        if record["kind"] == "nothing":
            if not as_json:
                show(f"round {record['round'] + 1}  nothing  {record['reason']}")
            continue
        revision = _revision(record)
        told += 1
        if as_json:
            emit(revision_record(revision))
            continue
        files = ", ".join(dict.fromkeys(e.path for e in revision.edits))
        show(
            f"round {revision.round + 1}  {_fate(revision.kept)}  {revision.id}  {files}  "
            f"{say_verdict(revision.verdict)}" + (f"; a person {revision.review}" if revision.review else "")
        )
    if not told:
        say(f"{here(seen.folder)} has no revision ({_status(seen)})")


def show_(
    what: Annotated[str, typer.Argument(metavar="RUN_OR_SCAFFOLD", help="A run, `last`, or a scaffold.")] = "last",
    revision: Annotated[str, typer.Argument(help="One revision of the run, by the beginning of its id.")] = "",
    html: Annotated[bool, typer.Option("--html", help="Write the run's report.html anew and print its path.")] = False,
    as_json: Json = False,
) -> None:
    """Show a run (settings, status, revisions with their evidence), one revision with its diff, or an agent.

    Example: recreate show last --html
    """
    where = workspace()
    folder = named_run(what, where)
    if html:
        _write_page(folder, what, revision, as_json)
    elif folder is None:
        if revision:
            raise BadInput(f"{what!r} is not a run, so it has no revision", fix="recreate show RUN REVISION")
        _show_agent(find_agent(what, where), as_json)
    elif revision:
        _show_revision(folder, revision, as_json)
    else:
        _show_run(folder, as_json)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A scaffold's folder or name, RUN:DIGEST or RUN:seed.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another; a RUN alone is the agent it ended with.")],
    as_json: Json = False,
) -> None:
    """What changed from one agent to another; a run's revisions bring reasons and evidence along.

    Example: recreate diff seed runs/swe-20260101-120000
    """
    from recreate.agents import scaffold as scaffolds

    where = workspace()
    before, after = find_agent(a, where), find_agent(b, where)
    text = scaffolds.diff(before, after)
    if not as_json:
        if text:
            sys.stdout.write(text)
        else:
            say("the files are the same")
        return
    named = [named_run(x.rpartition(":")[0] or x, where) for x in (a, b)]
    newest = sorted((where / "runs").glob("*/settings.toml"), key=lambda p: p.stat().st_mtime, reverse=True)
    runs = [r for r in named if r] or [p.parent for p in newest[:RUNS]]
    edits, verdict = _between(before, after, runs)
    emit(
        {
            "a": {"name": before.name, "digest": before.digest},
            "b": {"name": after.name, "digest": after.digest},
            "edits": edits,
            "verdict": verdict,
            "diff": text,
        }
    )


# ------------------------------------------------------------------------------------------- agents and runs


def _revision(record: Mapping[str, Any]) -> Any:
    from recreate.api.types import Revision

    return Revision.model_validate(record["revision"])


def _fate(kept: bool) -> str:
    return "kept   " if kept else "dropped"


def _status(run: Any) -> str:
    """done | budget | review as the build ended, else running or stopped; `ended` for a bench, which has no end."""
    from recreate.storage.files import is_locked

    if is_locked(run.folder / "lock"):
        return "running"
    if not (run.folder / "seed").is_dir():
        return "ended"
    end = run.end()
    return str(end["status"]) if end else "stopped"


def _attempts(run: Any) -> dict[str, dict[str, int]]:
    """Attempts by split: how many ended, how many passed."""
    found: dict[str, dict[str, int]] = {}
    for record in run.records("experience"):
        split = found.setdefault(record["split"], {"attempts": 0, "passed": 0})
        split["attempts"] += 1
        split["passed"] += bool(record["passed"])
    return found


def _show_run(folder: Path, as_json: bool) -> None:
    from recreate.runs.reader import Run
    from recreate.viewer.markdown import revision_record, say_verdict

    run = Run(folder)
    status, revisions, settings = _status(run), run.revisions(), run.settings
    seed = run.seed()
    final = next((r.id for r in reversed(revisions) if r.kept), seed.digest if seed else "")
    verdict = run.validation(seed.digest, final) if seed and final != seed.digest else None
    spend, aside, attempts = run.spend(), run.aside(), _attempts(run)
    start: dict[str, Any] = next(iter(run.records("start")), {})
    if as_json:
        emit(
            {
                "run": str(folder),
                "status": status,
                "settings": settings.model_dump(mode="json"),
                "model": start.get("model", settings.model),
                "sandbox": start.get("sandbox", settings.sandbox),
                "seed": {"name": seed.name, "digest": seed.digest} if seed else None,
                "scaffold": {"digest": final} if final else None,
                "validation": verdict.model_dump(mode="json") if verdict else None,
                "attempts": attempts,
                "revisions": [revision_record(r) for r in revisions],
                "spend": spend.record(),
                "set_aside": aside,
            }
        )
        return
    show(f"run        {here(folder)} ({status})")
    show(
        f"settings   domain {settings.domain}, model {start.get('model') or settings.model or '?'}, optimizer "
        f"{settings.optimizer}, sandbox {start.get('sandbox') or settings.sandbox or '?'}, seed {settings.seed}"
    )
    show(
        f"           {settings.rounds} rounds, {settings.train} train and {settings.validation} validation tasks x "
        f"{settings.repeats}, {settings.jobs} at once, budget {' '.join(settings.budget) or 'no cap'}"
    )
    if seed:
        show(f"started    from {seed.name} ({seed.digest}), now {final}")
    counts = [f"{n['attempts']} {split} ({n['passed']} passed)" for split, n in attempts.items()]
    show(f"attempts   {', '.join(counts) or 'none has ended'}" + (f", {len(aside)} set aside" if aside else ""))
    total = spend.total
    show(
        f"spent      {total.calls} calls, {total.tokens_in + total.tokens_out:,} tokens, ${total.usd:.4f}, "
        f"{spend.minutes:.1f} min"
    )
    if verdict:
        show(f"validation {say_verdict(verdict)}")
    for number, revision in enumerate(revisions, 1):
        show()
        show(f"{number}. {_fate(revision.kept).strip()} {revision.id}, from {revision.parent}")
        _show_edits(revision)
    for row in aside:
        show(f"set aside: {row['task']} (repeat {row['repeat']}, {row['phase']}): {row['fault']}")
    if status in ("stopped", "budget"):
        say(f"recreate resume {here(folder)} goes on")
    if run.waiting():
        say(f"a candidate waits for you: recreate review {here(folder)} shows it")


def _show_edits(revision: Any) -> None:
    from recreate.viewer.markdown import say_verdict

    show(f"   {say_verdict(revision.verdict)}")
    if revision.review:
        show(f"   a person {revision.review}")
    for edit in revision.edits:
        cited = ", ".join(f"{e.experience} step {e.step}" for e in edit.evidence)
        show(f"   {edit.path}: {edit.reason or 'no reason given'} ({edit.origin}{': ' + cited if cited else ''})")
    for fault in revision.faults:
        show(f"   not used: {fault}")


def _write_page(folder: Path | None, what: str, revision: str, as_json: bool) -> None:
    from recreate.runs.reader import Run
    from recreate.viewer import html

    if folder is None or revision:
        wrong = f"{what!r} is not a run" if folder is None else "--html is of a whole run"
        raise BadInput(wrong, fix="recreate show RUN --html", code="no-run" if folder is None else "usage")
    file = html.write(Run(folder))
    if as_json:
        emit({"run": str(folder), "html": str(file)})
    else:
        show(here(file))


def _show_revision(folder: Path, text: str, as_json: bool) -> None:
    from recreate.agents import scaffold as scaffolds
    from recreate.agents.history import History
    from recreate.runs.reader import Run
    from recreate.viewer.markdown import revision_record

    revisions = Run(folder).revisions()
    found = [r for r in revisions if r.id.startswith(text)]
    if len(found) != 1:
        raise BadInput(
            f"{len(found)} revisions of {here(folder)} begin with {text!r}",
            fix=f"there are: {', '.join(r.id for r in revisions) or 'none'}",
            code="no-revision",
        )
    history = History(folder / "scaffold.git")
    changed = scaffolds.diff(history.read(found[0].parent), history.read(found[0].id))
    if as_json:
        emit({**revision_record(found[0]), "diff": changed})
        return
    show(f"{_fate(found[0].kept).strip()} {found[0].id}, from {found[0].parent}, round {found[0].round + 1}")
    _show_edits(found[0])
    show()
    show(changed.rstrip("\n"))


def _show_agent(agent: Any, as_json: bool) -> None:
    settings = agent.agent
    if as_json:
        emit(
            {
                "name": agent.name,
                "digest": agent.digest,
                "agent": settings.model_dump(mode="json"),
                "files": [{"path": p, "characters": len(t)} for p, t in sorted(agent.files.items())],
                "tools": [{"name": n, "path": p, "help": agent.help(n)} for n, p in agent.tools.items()],
                "lessons": [x.model_dump(mode="json") for x in agent.lessons],
            }
        )
        return
    show(f"{agent.name} ({agent.digest})" + (f": {settings.description}" if settings.description else ""))
    if settings.parent:
        show(f"made from {settings.parent}" + (f", for {settings.domain}" if settings.domain else ""))
    acts = {
        "bash": "runs one bash command a turn",
        "json": 'answers {"command": ...} each turn, which is run',
    }
    show(f"acts       {acts.get(settings.action, 'hands its whole reply to the tool ' + settings.action[5:])}")
    if settings.before:
        show(f"first      {', '.join(settings.before)} run before the first turn")
    if settings.done:
        show(f"ends       when {settings.done} exits with 0, or it submits")
    if settings.samples > 1:
        chosen = f", the best by {settings.choose}" if settings.choose else ", the first handed in"
        show(f"samples    {settings.samples} independent tries at a task{chosen}")
    limits, model = settings.limits, settings.model
    show(
        f"limits     {limits.steps} steps, {limits.tokens:,} tokens, ${limits.usd:g}, {limits.seconds:g} s; a "
        f"command {limits.command_seconds:g} s, an observation {limits.observation_chars:,} characters"
    )
    asked = [f"{k} {v:g}" for k, v in (("temperature", model.temperature), ("top_p", model.top_p)) if v is not None]
    show(f"model      {', '.join([*asked, f'at most {model.max_tokens} tokens a reply'])}")
    if settings.protect:
        show(f"protected  {', '.join(settings.protect)}")
    show()
    for path, text in sorted(agent.files.items()):
        name = next((n for n, p in agent.tools.items() if p == path), "")
        about = agent.help(name).partition("\n")[0] if name else ""
        show(f"  {path:<36} {len(text):>6} characters" + (f"  {about}" if about else ""))
    for lesson in agent.lessons:
        born = f" (born of {', '.join(lesson.born_of)})" if lesson.born_of else ""
        show(f"\nlesson: {lesson.title}{born}\n  " + lesson.body.replace("\n", "\n  "))


def _between(before: Any, after: Any, runs: Sequence[Path]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The edits that lead from one agent to the other, reasons where a run knows them; the last verdict."""
    from recreate.runs.reader import Run
    from recreate.viewer.markdown import revision_record

    for folder in dict.fromkeys(runs):
        by_id = {r.id: r for r in Run(folder).revisions()}
        chain: list[dict[str, Any]] = []
        at = after.digest
        while at in by_id and at != before.digest and len(chain) <= len(by_id):
            chain.append(revision_record(by_id[at]))
            at = by_id[at].parent
        if chain and at == before.digest:
            return [e for r in reversed(chain) for e in r["edits"]], chain[0]["verdict"]
    edits = [
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

"""Pages of a run, as HTML. One file each without a network, a script for comfort only, nothing
trusted in it.

A page is a function from a run to a document: `report` (report.html, a build to look at) is one,
others are found as every part is (kind `page`: installed, or named `module:function`), written into
the run folder under their names. That of a bench is called `bench`, of a training `tune`.
`document` makes a page of a template, `render` of a template's file.

Every value goes through `_show_value` (keys masked, control characters visible) and is then
escaped; style and script are the package's own and the only ones that the page's
Content-Security-Policy lets in, by their digests. There is no style attribute, no address to fetch
from, and no data that the script would have to parse.

Scores are shown of all validation tasks, their traces of none: nobody should tune an agent on them
by eye.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold, diff
from recreate.api.errors import BadInput, Fault
from recreate.api.plugins import names
from recreate.api.registry import find
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Experience, Revision, Verdict
from recreate.runs.budget import Spend
from recreate.runs.reader import BuildResult, Run
from recreate.runs.results import average_by_task
from recreate.storage import files
from recreate.storage.redact import redact
from recreate.viewer.charts import (
    HEIGHT,
    TRACKED,
    choose_tracked,
    draw_curve,
    draw_lineage,
    list_flips,
    name_outcome,
)
from recreate.viewer.facts import (
    CLAIMS,
    REHEARSED,
    RunFacts,
    count,
    explain_fate,
    name_fate,
    verdict_text,
)
from recreate.viewer.text import FileDiff, cut, read_diff, signed, visible
from recreate.viewer.traces import Room, citations, read_traces, show_studies

FILE = "report.html"
HERE = Path(__file__).parent

Page = Callable[[Run], str]


def write(run: Run, built: BuildResult | None = None, name: str = "report") -> Path:
    """Write a page into the run folder and return its path; the report of `built`, or of what the
    folder holds.

    Raises BadInput when there is no such page, or the report's folder is not a build's; Fault when
    it cannot be written.
    """
    made: Page = find("page", name)
    text = page(run, built) if built else made(run)
    file = run.folder / f"{re.split('[:.]', name)[-1]}.html"
    files.write(file, text, fix="make the folder writable, free some space")
    return file


def document(title: str, main: str, **values: Any) -> str:
    """Return a whole page: what stands in `main`, a Jinja template, is filled with the values, each
    escaped."""
    text = '{% extends "document" %}{% block main %}' + main + "{% endblock %}"
    template = environment().from_string(text)
    made: str = template.render(title=title, style=read_text("page.css"), script="", **values)
    return made


def render(template: str, folder: Path = HERE, **values: Any) -> str:
    """Return a template filled with the values, each escaped. template: its file's stem, in
    `folder` or in this room."""
    made: str = environment(folder).get_template(template).render(**values)
    return made


def fill(template: str, folder: Path = HERE, /, **values: Any) -> str:
    """Return another text than a page: a template filled with the values, each masked and made
    visible. template: its file's stem, in `folder`."""
    made: str = environment(folder, "jinja").get_template(template).render(**values)
    return made


def page(run: Run, built: BuildResult | None = None) -> str:
    """Return the page of a build; without `built`, from what the folder holds. Of a bench, or of a
    training, the page that a plug-in brings."""
    facts = RunFacts(run, built)
    if facts.kind in ("bench", "tune"):
        if facts.kind not in names("page"):
            raise BadInput(
                f"the page of a {facts.kind} is brought by the plug-in view, which is not here",
                fix="recreate plugins lists what is",
                code="no-plugin",
            )
        other: Page = find("page", facts.kind)
        return other(run)
    room = Room()
    revisions = facts.built.revisions
    attempts = list(run.records("experience", "brought"))
    phases = {r["attempt"]: REHEARSED.get(r.get("phase", ""), "") for r in attempts}
    phases |= facts.reruns
    train = {
        r["attempt"]: (r["attempt"], r["task"], bool(r["passed"]))
        for r in attempts
        if r["split"] == "train"
    }
    cited = citations(revisions, facts.studies)
    traces = read_traces(run.folder, list(train.values()), cited, facts.studies, room)
    shown = {trace.experience.id for trace in traces.shown}

    def cite(experience: str, step: int | None = None) -> str:
        there = experience in shown if step is None else (experience, step) in traces.anchors
        return f"#e-{_anchor(experience)}" + ("" if step is None else f"-{step}") if there else ""

    def whose(e: Experience) -> str:
        agent = facts.tell_agent(e.digest, e.id in facts.reruns)
        return ", ".join(filter(None, [agent, phases.get(e.id, "")]))

    values, size = lay_out(facts)
    studies = show_studies(run.folder, facts.studies, room)
    values |= {"whose": whose, "cite": cite, "traces": traces, "studies": studies}
    style, script = read_text("page.css") + sizes(*size), read_text("page.js")
    return render("page", style=style, script=script, **values)


def lay_out(
    facts: RunFacts, read: dict[str, Scaffold] | None = None
) -> tuple[JsonDict, tuple[int, int]]:
    """Return what the components show of a build, and what `sizes` goes by: how many versions and
    lanes there are.

    read: agents of its lineage that were read already, by digest; those that are read now are
    added.
    """
    built = facts.built
    versions = facts.versions
    rows, lanes = draw_lineage(versions)
    flips = list_flips(versions, built.scaffold.digest)
    values = {
        "facts": facts,
        "run": facts.run,
        "built": built,
        "settings": facts.settings,
        "start": facts.start,
        "level": round(100 * (1 - facts.settings.gate.alpha)),
        "lead": tell_outcome(built),
        "before": facts.before,
        "after": facts.after,
        "curve": draw_curve(versions),
        "height": HEIGHT,
        "rows": rows,
        "pitch": _pitch(lanes),
        "flips": flips,
        "tracked": choose_tracked(versions),
        "versions": len(versions),
        "counts": {
            o: sum(f.outcome == o for f in flips) for o in ("won", "lost", "same", "unknown")
        },
        "rounds": _rounds(facts, {} if read is None else read),
        "scale": scale([built.verdict, *(r.verdict for r in built.revisions)]),
        "spend": facts.spend,
        "shares": shares(facts.spend),
        "lessons": facts.lessons,
        "aside": facts.excluded,
    }
    return values, (len(versions), lanes)


def tell_outcome(built: BuildResult) -> str:
    """Return the outcome of a build in one sentence."""
    kept = sum(r.kept for r in built.revisions)
    v = built.verdict
    judged = f"{count(len(built.revisions), 'candidate')} judged"
    if built.status == "unfinished":
        return f"This build has not ended: {judged} so far, {kept} kept."
    if built.status == "ceiling" and not built.revisions:
        return f"The build stopped before training: {v.reason}."
    if built.status == "review":
        return (
            f"A candidate waits for a person's word (recreate review shows it): {judged} before it,"
            f" {kept} kept."
        )
    if v.claim is not None and built.revisions:
        return f"{CLAIMS[v.claim.word].capitalize()}: {judged}, {kept} kept for now."
    if v.verdict == "better":
        return f"The new agent is better than the seed: {judged}, {kept} kept."
    if built.scaffold.digest == built.seed.digest:
        if not built.revisions:
            return "No candidate was judged, so the agent is the seed."
        return f"Nothing was kept, so the agent is the seed: {judged}, none of them clearly better."
    measured = (
        "its gain over the seed is not certain"
        if v.diff is not None
        else "the seed was not measured beside it"
    )
    return f"A new agent came of it, but {measured}: {judged}, {kept} kept."


def _rounds(facts: RunFacts, read: dict[str, Scaffold]) -> list[JsonDict]:
    """Return revisions, and rounds of which no candidate came, in order."""
    built = facts.built
    history = History(facts.run.folder / "scaffold.git")
    read |= {built.seed.digest: built.seed, built.scaffold.digest: built.scaffold}
    rows: list[JsonDict] = []
    for number, revision in enumerate(built.revisions, 1):
        before, after = (
            average_by_task(facts.scores.get(d, {})) for d in (revision.parent, revision.id)
        )
        tasks = {**before, **after} if after else {}
        moved = {task: name_outcome(before.get(task), after.get(task)) for task in tasks}
        rows.append(
            {
                "round": revision.round,
                "number": number,
                "revision": revision,
                "fate": name_fate(revision),
                "why": explain_fate(revision),
                "files": _diff(revision, history, read),
                "won": sorted(t for t, o in moved.items() if o == "won"),
                "lost": sorted(t for t, o in moved.items() if o == "lost"),
                "same": sum(o == "same" for o in moved.values()),
            }
        )
    rows += [{**row, "number": 0} for row in facts.idle_rounds]
    return sorted(rows, key=lambda row: row["round"])


def _diff(
    revision: Revision, history: History, read: dict[str, Scaffold]
) -> Sequence[FileDiff] | None:
    """Return what a revision changed; None when its files or its parent's are not in the
    lineage."""
    for name in (revision.parent, revision.id):
        if name not in read:
            try:
                read[name] = history.read(name)
            except (BadInput, Fault):
                return None
    order = [e.path for e in revision.edits]
    files = read_diff(diff(read[revision.parent], read[revision.id]))
    return sorted(files, key=lambda f: order.index(f.path) if f.path in order else len(order))


def scale(verdicts: Sequence[Verdict]) -> float:
    """Return half the width of all difference charts: what holds every interval, at least 0.1."""
    ends = [abs(end) for v in verdicts for end in (v.lo, v.hi, v.diff) if end is not None]
    return max([0.1, *ends]) * 1.05


def shares(spend: Spend) -> list[JsonDict]:
    """Return each role's part of the bar, in per cent: of the dollars, or of the tokens when
    nothing cost any."""
    free = spend.total.usd <= 0
    total = spend.total.tokens_in + spend.total.tokens_out if free else spend.total.usd
    rows = list[JsonDict]()
    at = 0.0
    for role, usage in sorted(spend.by_role.items()):
        size = (
            100 * ((usage.tokens_in + usage.tokens_out) if free else usage.usd) / total
            if total
            else 0.0
        )
        rows.append(
            {"role": role, "usage": usage, "x": round(at, 3), "size": round(size, 3), "free": free}
        )
        at += size
    return rows


def sizes(versions: int, lanes: int) -> str:
    """Return sizes that depend on the run, as rules: the page may have no style attribute."""
    lane = round(14 + _pitch(lanes) * lanes)
    return (
        ".plot"
        f" svg.field{{min-width:{44 * versions}px}}.p"
        f"lot{{max-width:{max(420, 190 * versions)}px}}\n.lineage"
        f" li{{padding-left:{lane + 16}px}}.lineage svg{{width:{lane + 12}px}}\n.flips"
        f" svg{{width:{13 * min(versions, TRACKED)}px}}\n"
    )


def _pitch(lanes: int) -> float:
    """Return pixels from one lane of the lineage to the next: a tree with many branches must not
    push its texts away."""
    return round(min(20.0, 100 / max(1, lanes)), 2)


def _digest(text: str) -> str:
    """Return the digest of a style or script that stands in a document, as its
    Content-Security-Policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@lru_cache(maxsize=16)
def read_text(name: str, folder: Path = HERE) -> str:
    """Return a file of a folder, or of this room where it has none."""
    own = folder / name
    return (own if own.is_file() else HERE / name).read_text("utf-8")


def _show_value(value: Any) -> Any:
    """Return what the template writes of a value, before it is escaped."""
    if hasattr(value, "__html__") or isinstance(value, _Raw):
        return value
    return visible(redact(str(value)))


@lru_cache(maxsize=8)
def environment(folder: Path = HERE, kind: str = "html") -> Any:
    """Return where templates become pages: every value is masked, made visible and, in a page,
    escaped. folder: of a plug-in, whose templates stand beside those of this room. kind: the suffix
    of the templates' files; `jinja` for other texts than pages."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(lambda name: read_text(f"{name}.{kind}", folder)),
        autoescape=kind == "html",
        keep_trailing_newline=kind != "html",
        undefined=StrictUndefined,
        finalize=_show_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "score": lambda x: "not measured" if x is None else f"{x:.3f}",
        "signed": signed,
        "verdict": verdict_text,
        "number": lambda x: f"{x:,}",
        "usd": lambda x: f"{x:,.4f}" if x < 1 else f"{x:,.2f}",
        "chance": lambda p: "p\u00a0<\u00a00.001" if p < 0.001 else f"p\u00a0=\u00a0{p:.3f}",
        "percent": lambda x: f"{x:g}%",
        "cut": cut,
        "digest": _digest,
        "raw": _Raw,
        "place": _place,
        "anchor": _anchor,
        "edit_diff": _edit_diff,
    }
    return environment


class _Raw(str):
    """A text that a form sends back: as it is, only escaped."""


def _place(value: float, scale: float) -> float:
    """Return a difference in -scale..scale as per cent of a chart's width."""
    return round(50 + 50 * value / scale, 2)


def _anchor(id: str) -> str:
    """Return an experience's id as part of an anchor: ids are hex digits, but a file may say
    anything."""
    return (
        id
        if id.isalnum() and id.isascii()
        else hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:16]
    )


def _edit_diff(edit: Any) -> JsonMap:
    """Return old and new of an edit that was not judged, cut."""
    return {"old": cut(edit.old, 1500), "new": cut(edit.new, 1500)}

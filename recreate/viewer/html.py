"""Pages of a run, as HTML. One file each without a network, a script for comfort only, nothing
trusted in it.

A page is a function from a run to a document: `report` (report.html, a build to look at) is one,
others are found as every part is (kind `page`: installed, or named `module:function`), written into
the run folder under their names. `document` makes one of a template.

Every value goes through `_shown` (keys masked, control characters visible) and is then escaped;
style and script are the package's own and the only ones that the page's Content-Security-Policy
lets in, by their digests. There is no style attribute, no address to fetch from, and no data that
the script would have to parse.

Scores are shown of all validation tasks, their traces of none: nobody should tune an agent on them
by eye.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold, diff
from recreate.api.errors import BadInput, Fault
from recreate.api.registry import find
from recreate.api.types import Experience, Revision, Verdict
from recreate.plugins.view import bench
from recreate.runs.budget import Spend
from recreate.runs.reader import BuildResult, Run
from recreate.storage import files
from recreate.storage.redact import redact
from recreate.viewer.charts import (
    HEIGHT,
    TRACKED,
    Scores,
    curve,
    curves,
    fate,
    flips,
    lineage,
    outcome,
    per_task,
    read_scores,
    tracked,
    versions,
    why,
)
from recreate.viewer.markdown import (
    REHEARSED,
    ended,
    flattery,
    learned,
    lessons_cost,
    reruns,
    whose,
)
from recreate.viewer.text import FileDiff, cut, read_diff, visible
from recreate.viewer.traces import Room, citations, read_traces, show_studies

FILE = "report.html"
TEMPLATES = ("components", "page", "view", "bench")
_HERE = Path(__file__).parent
_SITE = _HERE.parent / "plugins" / "view"


Page = Callable[[Run], str]

DOCUMENT = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{% if linked is defined %}
{% if linked.policy %}<meta http-equiv="Content-Security-Policy" content="{{ linked.policy }}">{% \
endif %}
{% else %}
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{{ \
style|digest }}'; \
script-src {{ ("'sha256-%s'"|format(script|digest) if script else "'none'")|safe }}; base-uri \
'none'; \
form-action 'none'">
{% endif %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="{{ "same-origin" if linked is defined else "no-referrer" }}">
<title>{% block title %}{{ title }}{% endblock %}</title>
{% if linked is defined %}
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{{ linked.style }}">
{% if linked.sizes %}<link rel="stylesheet" href="{{ linked.sizes }}" id="sizes">{% endif %}

<script src="{{ linked.script }}" defer></script>
{% endif %}
{% if style %}<style>{{ style|safe }}</style>{% endif %}
</head>
<body{% if linked is defined %} class="view" data-events="{{ linked.events }}"{% endif %}>
{% block body %}<main id="main">
{% block main %}{% endblock %}
</main>
{% endblock %}
{% if script %}<script>{{ script|safe }}</script>
{% endif %}
</body>
</html>
"""
"""linked: style and script are files of their own (`Linked` in site.py); else they are in the
document."""


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


def beside(before: Run, after: Run) -> Path:
    """Write the page of two runs beside each other into the folder of the second, and return its
    path.

    Raises BadInput (`no-scores`) when one measured nothing; Fault when it cannot be written.
    """
    text = filled(
        "bench", style=text_of("page.css"), script=text_of("bench.js"), **bench.facts(before, after)
    )
    file = after.folder / f"beside-{before.folder.name}.html"
    files.write(file, text, fix="make the folder writable, free some space")
    return file


def document(title: str, main: str, **values: Any) -> str:
    """A whole page: what stands in `main`, a Jinja template, is filled with the values, each
    escaped."""
    text = '{% extends "document" %}{% block main %}' + main + "{% endblock %}"
    made: str = (
        environment()
        .from_string(text)
        .render(title=title, style=text_of("page.css"), script="", **values)
    )
    return made


def filled(template: str, **values: Any) -> str:
    """A template of this room by its file's stem, filled with the values, each escaped."""
    made: str = environment().get_template(template).render(**values)
    return made


TRAINING = """\
{% import "components" as part with context %}
<header><p class="eyebrow">recreate tune report</p><h1>{{ title }}</h1>
<p>domain {{ run.settings.domain }}, {{ run.settings.model or "?" }}; {{ status }}</p></header>
{{ part.training() }}
"""


def page(run: Run, built: BuildResult | None = None) -> str:
    """The report of a build; without `built`, from what the folder holds. Of a bench, or a table of
    arms, its cells; of a training its curves."""
    if built is None and (tune := next(iter(run.records("tune")), None)):
        updates = list(run.records("update"))
        drawn = {
            "series": curves(updates),
            "updates": len(updates),
            "tune": tune,
            "status": run.status(),
        }
        return document(f"Training: {run.folder.name}", TRAINING, run=run, **drawn)
    if built is None and run.seed() is None and any(run.records("agent", "arm")):
        told = bench.facts(run)
        told["shares"] = shares(told["spend"])
        return filled("bench", style=text_of("page.css"), script=text_of("bench.js"), **told)
    built = built or ended(run)
    room, studies = Room(), run.studies()
    attempts = list(run.records("experience", "brought"))
    again = reruns(run)
    phases = {r["attempt"]: REHEARSED.get(r.get("phase", ""), "") for r in attempts} | again
    train = {
        r["attempt"]: (r["attempt"], r["task"], bool(r["passed"]))
        for r in attempts
        if r["split"] == "train"
    }
    traces = read_traces(
        run.folder, list(train.values()), citations(built.revisions, studies), studies, room
    )
    shown = {trace.experience.id for trace in traces.shown}

    def cite(experience: str, step: int | None = None) -> str:
        there = experience in shown if step is None else (experience, step) in traces.anchors
        return f"#e-{_anchor(experience)}" + ("" if step is None else f"-{step}") if there else ""

    def ran(e: Experience) -> str:
        """Whose files an attempt ran, and what for where it was not the agent's own."""
        return ", ".join(
            filter(None, [whose(e.digest, built, e.id in again), phases.get(e.id, "")])
        )

    told, count = facts(run, built)
    told |= {"whose": ran}
    told |= {"cite": cite, "traces": traces, "studies": show_studies(run.folder, studies, room)}
    return filled(
        "page", style=text_of("page.css") + sizes(*count), script=text_of("page.js"), **told
    )


def facts(
    run: Run, built: BuildResult, read: dict[str, Scaffold] | None = None
) -> tuple[dict[str, Any], tuple[int, int]]:
    """What the components show of a build, and what `sizes` goes by: how many versions and lanes
    there are.

    read: agents of its lineage that were read already, by digest; those that are read now are
    added.
    """
    settings, alpha, scores = run.settings, run.settings.gate.alpha, read_scores(run)
    found = versions(built, scores, alpha)
    rows, lanes = lineage(found)
    changed = flips(found, built.scaffold.digest)
    spend = run.spend()
    told = {
        "run": run,
        "built": built,
        "flattery": flattery(built),
        "settings": settings,
        "start": next(run.records("start"), {}),
        "level": round(100 * (1 - alpha)),
        "lead": lead(built),
        "before": found[0],
        "after": next((v for v in reversed(found) if v.id == built.scaffold.digest), found[0]),
        "curve": curve(found),
        "height": HEIGHT,
        "rows": rows,
        "pitch": _pitch(lanes),
        "flips": changed,
        "tracked": tracked(found),
        "versions": len(found),
        "counts": {
            o: sum(f.outcome == o for f in changed) for o in ("won", "lost", "same", "unknown")
        },
        "rounds": _rounds(built, scores, run, {} if read is None else read),
        "scale": scale([built.verdict, *(r.verdict for r in built.revisions)]),
        "spend": spend,
        "shares": shares(spend),
        "lessons": (lessons := learned(run)),
        "lessons_cost": lessons_cost(run, lessons),
        "aside": run.excluded(),
    }
    return told, (len(found), lanes)


def lead(built: BuildResult) -> str:
    """The outcome in one sentence."""
    count, kept, v = len(built.revisions), sum(r.kept for r in built.revisions), built.verdict
    judged = f"{count} candidate{'s' if count != 1 else ''} judged"
    if built.status == "unfinished":
        return f"This build has not ended: {judged} so far, {kept} kept."
    if built.status == "ceiling" and not count:
        return f"The build stopped before training: {v.reason}."
    if built.status == "review":
        return (
            f"A candidate waits for a person's word (recreate review shows it): {judged} before it,"
            f" {kept} kept."
        )
    if v.verdict == "better":
        return f"The new agent is better than the seed: {judged}, {kept} kept."
    if built.scaffold.digest == built.seed.digest:
        if not count:
            return "No candidate was judged, so the agent is the seed."
        return f"Nothing was kept, so the agent is the seed: {judged}, none of them clearly better."
    measured = (
        "its gain over the seed is not certain"
        if v.diff is not None
        else "the seed was not measured beside it"
    )
    return f"A new agent came of it, but {measured}: {judged}, {kept} kept."


# ------------------------------------------------------------------------------------------------
# its parts


def _rounds(
    built: BuildResult, scores: Scores, run: Run, read: dict[str, Scaffold]
) -> list[dict[str, Any]]:
    """Revisions, and rounds of which no candidate came, in order."""
    history = History(run.folder / "scaffold.git")
    read |= {built.seed.digest: built.seed, built.scaffold.digest: built.scaffold}
    rows: list[dict[str, Any]] = []
    for number, revision in enumerate(built.revisions, 1):
        before, after = (per_task(scores.get(d, {})) for d in (revision.parent, revision.id))
        moved = (
            {task: outcome(before.get(task), after.get(task)) for task in {**before, **after}}
            if after
            else {}
        )
        rows.append(
            {
                "round": revision.round,
                "number": number,
                "revision": revision,
                "fate": fate(revision),
                "why": why(revision),
                "files": _diff(revision, history, read),
                "won": sorted(t for t, o in moved.items() if o == "won"),
                "lost": sorted(t for t, o in moved.items() if o == "lost"),
                "same": sum(o == "same" for o in moved.values()),
            }
        )
    rows += [
        {"round": r["round"], "number": 0, "reason": r["reason"]} for r in run.records("nothing")
    ]
    return sorted(rows, key=lambda row: row["round"])


def _diff(
    revision: Revision, history: History, read: dict[str, Scaffold]
) -> Sequence[FileDiff] | None:
    """What a revision changed; None when its files or its parent's are not in the lineage."""
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
    """Half the width of all difference charts: what holds every interval, at least 0.1."""
    ends = [abs(end) for v in verdicts for end in (v.lo, v.hi, v.diff) if end is not None]
    return max([0.1, *ends]) * 1.05


def shares(spend: Spend) -> list[dict[str, Any]]:
    """Each role's part of the bar, in per cent: of the dollars, or of the tokens when nothing cost
    any."""
    free = spend.total.usd <= 0
    total = spend.total.tokens_in + spend.total.tokens_out if free else spend.total.usd
    rows, at = list[dict[str, Any]](), 0.0
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
    """Sizes that depend on the run, as rules: the page may have no style attribute."""
    lane = round(14 + _pitch(lanes) * lanes)
    return (
        ".plot"
        f" svg.field{{min-width:{44 * versions}px}}.p"
        f"lot{{max-width:{max(420, 190 * versions)}px}}\n.lineage"
        f" li{{padding-left:{lane + 16}px}}.lineage svg{{width:{lane + 12}px}}\n.flips"
        f" svg{{width:{13 * min(versions, TRACKED)}px}}\n"
    )


def _pitch(lanes: int) -> float:
    """Pixels from one lane of the lineage to the next: a tree with many branches must not push its
    texts away."""
    return round(min(20.0, 100 / max(1, lanes)), 2)


def _digest(text: str) -> str:
    """Of a style or script that stands in a document, as its Content-Security-Policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@lru_cache(maxsize=8)
def text_of(name: str) -> str:
    """A file of this room."""
    own = _HERE / name
    return (own if own.is_file() else _SITE / name).read_text("utf-8")


def _shown(value: Any) -> Any:
    """What the template writes of a value, before it is escaped."""
    if hasattr(value, "__html__") or isinstance(value, _Raw):
        return value
    return visible(redact(str(value)))


@lru_cache(maxsize=1)
def environment() -> Any:
    """Where templates become pages: every value is masked, made visible and escaped."""
    from jinja2 import DictLoader, Environment, StrictUndefined

    environment = Environment(
        loader=DictLoader({"document": DOCUMENT, **{n: text_of(f"{n}.html") for n in TEMPLATES}}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "score": lambda x: "not measured" if x is None else f"{x:.3f}",
        "signed": lambda x: f"{x:+.3f}",
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
    """A difference in -scale..scale as per cent of a chart's width."""
    return round(50 + 50 * value / scale, 2)


def _anchor(id: str) -> str:
    """An experience's id as part of an anchor: ids are hex digits, but a file may say anything."""
    return (
        id
        if id.isalnum() and id.isascii()
        else hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:16]
    )


def _edit_diff(edit: Any) -> Mapping[str, Any]:
    """Old and new of an edit that was not judged, cut."""
    return {"old": cut(edit.old, 1500), "new": cut(edit.new, 1500)}

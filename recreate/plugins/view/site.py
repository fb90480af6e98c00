"""The pages of `recreate view`: from an address in a workspace to a document. No server here:
`--export` writes the same pages as files.

    /                                   runs of every kind
    /runs/RUN                           one run; #r-2-1 is its second revision's first edit
    /runs/RUN/attempts                  its attempts, filtered
    /runs/RUN/attempts/ID               a trajectory; #step-3 is a step
    /runs/RUN/attempts/ID/messages      the same as it was sent to the model
    /runs/RUN/studies/ID                what the optimizer looked into
    /experiences/ID                     a trajectory that memory has, of whatever run; /messages as
                                        above
    /compare/RUN/ID/RUN/ID              two trajectories side by side; RUN is - for one of memory
    /search  /memory  /lessons  /lessons/PATH  /forget/KIND/ID  /review  /review/RUN

A run in a table of arms is called TABLE~arms~ARM~build. What a page shows is read when it is asked
for; of a run only what was appended since.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from pydantic import ValidationError

from recreate.agents.history import History
from recreate.agents.lesson import lesson_at, lesson_text, read_lesson
from recreate.agents.scaffold import Scaffold, diff
from recreate.agents.trajectory import differ
from recreate.api.errors import BadInput, Fault, RecreateError
from recreate.api.paths import memory as memory_folder
from recreate.api.paths import short
from recreate.api.ports import Hit
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Experience, Grade, Lesson, Revision, Trace
from recreate.api.types import digest as digest_of
from recreate.lessons.draws import speaks_for
from recreate.lessons.promotion import bound
from recreate.memory.documents import evidence_of
from recreate.memory.forget import lesson_files
from recreate.memory.index.tokenizer import marked
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.export import chats
from recreate.plugins.traces.waiting import find_experience, recall
from recreate.plugins.view.bench import list_columns, sort_tasks
from recreate.plugins.view.headlines import score_run
from recreate.plugins.view.live import LiveRun
from recreate.plugins.view.memory import Browsed, Found, mark
from recreate.runs.attempts import read_experience, read_steps
from recreate.storage.log import encode, iso
from recreate.viewer import html
from recreate.viewer.charts import draw_curves
from recreate.viewer.facts import RunFacts
from recreate.viewer.text import read_diff
from recreate.viewer.traces import Citing, Room, citations, show_step, show_studies, system_of

HERE = Path(__file__).parent
ROWS = 100
"""Rows of a list on one page."""
STEPS = 100
"""Steps of a trajectory on one page."""
WHOLE = 200_000
"""Characters of one text that a trajectory's page shows."""
BESIDE = 6_000
"""The same of two trajectories side by side."""
HITS = 25
SNIPPET = 420
AROUND = 120
"""Characters of a hit that are shown, and how many of them before the first of the words."""
PATIENCE = 0.4
"""Seconds that the list of runs waits for runs that were never read; the rest comes when it is
there."""
QUIET = 1.0
"""Seconds without a question after which the search is brought up to date."""
STANDINGS = ("held", "active", "candidate", "quarantined", "merged", "forgotten", "vetoed", "")
"""In the order in which lessons are listed; those that cannot be read last."""
SPLITS = ("train", "validation", "test")
OUTCOMES = ("passed", "failed", "running", "excluded")


@dataclass(frozen=True)
class Linked:
    """What a document refers to: its stylesheet and script, where changes are told (''), its policy
    where no server says it (''), the stylesheet of what depends on the run ('')."""

    style: str
    script: str
    events: str = ""
    policy: str = ""
    sizes: str = ""


@dataclass(frozen=True)
class Shown:
    """A page: its text and its HTTP status."""

    text: str
    status: int = 200


@dataclass
class Website:
    """The pages of a workspace. href: makes a link of an address; static: they become files, so
    nothing can be asked.

    secret: what a form carries, so that only a page of ours can send it.
    """

    where: Path
    href: Callable[[str], str] = lambda address: address
    static: bool = False
    secret: str = ""
    runs: dict[str, LiveRun] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = ExperienceStore(self.where, progress=self._note_progress)
        self.browsed = Browsed(self.where)
        self.indexing: tuple[int, int] | None = None
        self.faults: dict[str, RecreateError] = {}
        self._lock = threading.RLock()
        self._reading: threading.Thread | None = None
        self._asked = 0.0
        self._links = Linked("page.css", "view.js", sizes="sizes-{}-{}.css")

    # ------------------------------------------------------------------------------------------
    # what there is

    def names(self) -> dict[str, Path]:
        """Run folders by name, the one that was last written to first."""
        root = self.where / "runs"
        files = [*root.glob("*/settings.toml"), *root.glob("*/arms/*/*/settings.toml")]
        found = {
            _spell_name("~".join(file.parent.relative_to(root).parts)): file.parent
            for file in files
        }
        return dict(sorted(found.items(), key=lambda each: (-_last_write(each[1]), each[0])))

    def run(self, name: str) -> LiveRun:
        """A run by its name, as it stands now. Raises BadInput: no such run, damaged, of a newer
        recreate."""
        folder = self.names().get(name)
        if folder is None:
            self.runs.pop(name, None)
            raise BadInput(
                f"there is no run {name!r} here",
                fix="it may have been moved or deleted; the list of runs has what there is",
                code="no-run",
            )
        with self._lock:
            live = self.runs.get(name)
        try:
            if live is None:
                live = LiveRun(folder)
            live.refresh()
        except RecreateError as e:
            self.faults[name] = e
            raise
        with self._lock:
            self.runs[name] = live
            self.faults.pop(name, None)
        return live

    def read_all(self) -> None:
        """Read every run, the newest first; what cannot be read is remembered as such, what is gone
        is forgotten."""
        names = self.names()
        for name in [name for name in self.runs if name not in names]:
            self.runs.pop(name, None)
        for name in names:
            try:
                self.run(name)
            except RecreateError:
                continue

    def read_ahead(self) -> threading.Thread:
        """Begin to read what was never read, and to bring the search up to date, unless that goes
        on already."""
        with self._lock:
            if self._reading is None or not self._reading.is_alive():
                self._reading = threading.Thread(
                    target=self._read_ahead, name="read-ahead", daemon=True
                )
                self._reading.start()
            return self._reading

    def _read_ahead(self) -> None:
        self.read_all()
        self.indexing = (0, 0)
        while time.monotonic() < self._asked + QUIET:
            # who has just opened a page looks at it first: indexing takes a whole core
            time.sleep(0.1)
        try:
            self.memory.recall("anything", 1, reader="human", how="keywords")
        except RecreateError:
            pass  # who searches is told
        finally:
            self.indexing = None

    def _note_progress(self, done: int, todo: int) -> None:
        if self.indexing is not None:
            self.indexing = done, todo

    # ---------------------------------------------------------------------------------------------
    # the pages

    def page(  # noqa: C901
        self, address: str, query: Mapping[str, str] | None = None, told: str = ""
    ) -> Shown:
        """The document at an address. told: what is said above it. An error is a page too."""
        parts = [part for part in address.split("/") if part]
        self._asked = time.monotonic() if parts[:1] != ["search"] else 0.0
        try:
            # and is not to come back as a folder with nothing but an index in it
            if not self.where.is_dir():
                raise BadInput(
                    f"the workspace {short(self.where)} was moved or deleted",
                    fix="stop this viewer, and start one where it is now",
                    code="no-page",
                )
            match parts:
                case []:
                    return self._runs(query or {}, told)
                case ["runs", name]:
                    return self._run(name, told)
                case ["runs", name, "attempts"]:
                    return self._attempts(name, query or {})
                case ["runs", name, "attempts", id]:
                    return self._trajectory(name, id, query or {})
                case ["runs", name, "attempts", id, "messages"]:
                    return self._messages(name, id)
                case ["runs", name, "studies", id]:
                    return self._study(name, id)
                case ["experiences", id]:
                    return self._trajectory("-", id, query or {})
                case ["experiences", id, "messages"]:
                    return self._messages("-", id)
                case ["compare", a, first, b, second]:
                    return self._compare((a, first), (b, second))
                case ["search"]:
                    return self._search(query or {})
                case ["memory"]:
                    return self._memory(query or {}, told)
                case ["forget", ("experiences" | "lessons") as kind, *path]:
                    return self._forgetting(kind, "/".join(path), told)
                case ["lessons"]:
                    return self._lessons(told)
                case ["lessons", *path]:
                    return self._lesson("/".join(path), told)
                case ["review"]:
                    return self._queue()
                case ["review", name]:
                    return self._review(name, told)
            raise BadInput(
                f"there is no page at {address}",
                fix="the list of runs leads to all there are",
                code="no-page",
            )
        except (RecreateError, OSError, ValidationError) as e:
            if not isinstance(e, RecreateError):  # somebody moved, deleted or wrote it just now
                said = str(e).splitlines()[0]
                e = Fault(
                    f"it changed while it was read: {said}",
                    fix="load the page again",
                    code="no-page",
                )
            missing = e.code in ("no-run", "no-page", "no-attempt", "no-lesson", "no-study")
            code = 404 if missing else 409 if isinstance(e, BadInput) else 500
            return self._render(
                "failed", "Not here" if missing else "This cannot be shown", code=code, error=e
            )

    def links(self, links: Linked) -> None:
        """What the documents refer to, as addresses without their first slash; of sizes with two
        places for numbers."""
        self._links = links

    def _render(
        self,
        view: str,
        title: str,
        *,
        events: str = "",
        code: int = 200,
        laid: tuple[int, int] | None = None,
        **told: Any,
    ) -> Shown:
        base = self._links
        sizes = self.href("/" + base.sizes.format(*laid)) if laid else ""
        linked = replace(
            base,
            style=self.href("/" + base.style),
            script=self.href("/" + base.script),
            events=events and self.href(events),
            sizes=sizes,
        )
        waiting = (
            0
            if self.static
            else sum(live.waiting() is not None for live in list(self.runs.values()))
        )
        common = {
            "here": view,
            "where": self.where.name,
            "static": self.static,
            "secret": self.secret,
        }
        text = html.render(
            "view",
            HERE,
            title=title,
            linked=linked,
            style="",
            script="",
            href=self.href,
            queue=waiting,
            told=told.pop("told", ""),
            **common,
            **told,
        )
        return Shown(text, code)

    # ----- runs

    def _runs(self, query: Mapping[str, str], told: str) -> Shown:
        if self.static:
            self.read_all()
        elif any(name not in self.runs for name in self.names()):
            self.read_ahead().join(PATIENCE)
        rows = [self._row(name) for name in self.names()]
        words = query.get("q", "").casefold().split()
        kinds, states = (
            sorted({row[key] for row in rows if row[key]}) for key in ("kind", "status")
        )
        kept = [
            row
            for row in rows
            if all(w in f"{row['name']} {row['domain']} {row['model']}".casefold() for w in words)
            and all(query.get(key, "") in ("", row[key]) for key in ("kind", "status"))
        ]
        return self._render(
            "runs",
            f"Runs in {self.where.name}",
            events="/events",
            told=told,
            query=query,
            kinds=kinds,
            states=states,
            **_paged(kept, query, "/"),
            all=len(rows),
        )

    def _row(self, name: str) -> JsonDict:
        empty = {
            "name": name,
            "kind": "",
            "status": "",
            "domain": "",
            "model": "",
            "fault": None,
            "read": False,
        }
        if name not in self.runs:
            return {**empty, "fault": self.faults.get(name)}
        try:
            return {**empty, **self._told_of(self.run(name))}
        except RecreateError as e:
            return {**empty, "fault": e}
        # one run must not take the list away
        except (ArithmeticError, LookupError, TypeError, ValueError) as e:
            said = (
                f"its files hold what this recreate cannot show: {type(e).__name__}: {str(e)[:200]}"
            )
            return {**empty, "fault": Fault(said, fix="its page may show more", code="unshown")}

    def _told_of(self, live: LiveRun) -> JsonDict:
        """Return what the list says of a run that was read."""
        status = live.status()
        known = live.made.get("row")
        if known is None or known[0] != (live.stamp, status):
            facts = live.facts(self.where)
            row = {
                "read": True,
                "kind": live.kind,
                "status": status,
                "attempts": {split: n.attempts for split, n in facts.attempts.items()},
                "domain": facts.domain,
                "model": facts.model,
                "when": iso(_last_write(live.folder)),
                "spend": facts.spend,
                "waiting": facts.waiting is not None,
                "scores": score_run(facts),
                "damaged": live.damaged,
            }
            live.made["row"] = known = ((live.stamp, status), row)
        row = known[1]
        return row

    def _run(self, name: str, told: str) -> Shown:
        live = self.run(name)
        facts = live.facts(self.where)
        known = live.made.get("run")
        if known is None or known[0] != live.stamp:
            known = live.stamp, self._lay_out(live, facts)
            live.made["run"] = known
        values, laid = known[1]
        phases = sorted({phase for _, phase in facts.usage})
        roles = {
            role: {p: facts.usage.get((role, p)) for p in phases}
            for role in sorted({r for r, _ in facts.usage})
        }
        ended = list(live.records("experience", "brought"))
        done = {r["attempt"] for r in (*ended, *live.records("aside"))}
        kind = live.kind
        status = live.status()
        shown = {
            **values,
            "facts": facts,
            "name": name,
            "kind": kind,
            "status": status,
            "end": live.end() or {},
            "told": told,
            "roles": roles,
            "phases": phases,
            "cite": self._cite(name, live),
            "running": [a for a in live.begun if a not in done] if status == "running" else [],
            "attempts": Counter((r["split"], bool(r["passed"])) for r in ended),
            "notes": list(live.records("note"))[-20:],
            "studies": list(enumerate(facts.studies, 1)),
            "waiting": facts.waiting,
            "series": draw_curves(facts.updates),
            "updates": len(facts.updates),
            "tune": facts.tuning,
            "damaged": live.passed_over(),
        }
        at = f"/events?{urlencode({'run': name, 'at': live.at})}"
        title = f"{name} ({kind}, {status})"
        return self._render("run", title, events=at, laid=laid, **shown)

    def _lay_out(self, live: LiveRun, facts: RunFacts) -> tuple[JsonDict, tuple[int, int] | None]:
        """Return what a run's page shows: of a build what its report does, else the matrix of a
        bench, agents and splits across, tasks down."""
        if live.kind == "build":
            return html.lay_out(facts, live.agents)
        columns = list_columns(live, facts.cells)
        tasks = sort_tasks(columns)
        return {
            "run": live,
            "columns": columns,
            "tasks": tasks[:500],
            "more_tasks": max(0, len(tasks) - 500),
            "spend": facts.spend,
            "shares": html.shares(facts.spend),
            "aside": facts.excluded,
            "arms": list(live.records("arm")),
            "settings": live.settings,
            "start": facts.start,
            "level": round(100 * (1 - live.settings.gate.alpha)),
        }, None

    def _cite(self, name: str, live: LiveRun) -> Callable[..., str]:
        """Where evidence is to be seen: in this run, else in memory, else '' ."""

        def cite(experience: str, step: int | None = None) -> str:
            if not re.fullmatch(r"\w+", experience):
                return ""
            if (live.folder / "attempts" / experience).is_dir():
                address = f"/runs/{quote(name)}/attempts/{experience}"
            elif self.memory.metadata.knows([experience]):
                address = f"/experiences/{experience}"
            else:
                return ""
            return self._step(address, step)

        return cite

    def _step(self, address: str, step: int | None) -> str:
        """The link to a step of a trajectory, on the page of it that has the step."""
        if step is None:
            return self.href(address)
        page = step // STEPS
        return self.href(f"{address}?page={page + 1}" if page else address) + f"#step-{step}"

    # ----- attempts

    def _attempts(self, name: str, query: Mapping[str, str]) -> Shown:
        live = self.run(name)
        rows = list(_attempt_rows(live))
        agents = dict.fromkeys(r["scaffold"] for r in rows if r["scaffold"])
        words = query.get("q", "").casefold().split()
        kept = [
            r
            for r in rows
            if all(query.get(key, "") in ("", r[key]) for key in ("split", "outcome", "scaffold"))
            and all(w in f"{r['attempt']} {r['task']} {r['ending']}".casefold() for w in words)
        ]
        order: dict[str, Callable[[JsonDict], Any]] = {
            "task": lambda r: r["task"],
            "score": lambda r: -1 if r["score"] is None else r["score"],
            "cost": lambda r: (-r["usd"], -r["tokens"]),
        }
        kept = sorted(kept, key=order[by]) if (by := query.get("sort", "")) in order else kept[::-1]
        at = f"/events?{urlencode({'run': name, 'at': live.at})}"
        return self._render(
            "attempts",
            f"Attempts of {name}",
            events=at,
            name=name,
            query=query,
            agents=agents,
            splits=SPLITS,
            outcomes=OUTCOMES,
            **_paged(kept, query, f"/runs/{quote(name)}/attempts"),
            all=len(rows),
        )

    def _experience(self, name: str, id: str) -> tuple[Experience, LiveRun | None, bool]:
        """(an attempt, its run, whether it has ended), of a run or of memory (`-`). Raises
        BadInput."""
        if not re.fullmatch(r"\w+", id):
            raise BadInput(
                f"{id!r} is no attempt",
                fix="the list of attempts has what there is",
                code="no-attempt",
            )
        if name == "-":
            found = find_experience(self.memory, id)
            if found is None:
                raise BadInput(
                    f"memory has no attempt {id}",
                    fix="search finds what there is",
                    code="no-attempt",
                )
            return found, None, True
        live = self.run(name)
        folder = live.folder / "attempts" / id
        found = read_experience(folder)
        if found is not None:
            return found, live, True
        steps = tuple(read_steps(folder)) if folder.is_dir() else ()
        if not folder.is_dir() and id not in live.begun:
            if (found := self.memory.get(id)) is not None:
                return found, live, True
            raise BadInput(
                f"run {name} has no attempt {id}",
                fix="its list of attempts has what there is",
                code="no-attempt",
            )
        record = next((r for r in live.records("aside") if r["attempt"] == id), {})
        trace = Trace(
            attempt=id,
            task=record.get("task", ""),
            scaffold="",
            model="",
            steps=steps,
            fault=record.get("fault", ""),
        )
        prompt = steps[0].observation if steps else ""
        return (
            Experience(
                id=id,
                domain=live.settings.domain,
                task=record.get("task", ""),
                group="",
                split="train",
                prompt=prompt,
                digest="",
                trace=trace,
                grade=Grade(score=0, passed=False, graded=False),
            ),
            live,
            False,
        )

    def _trajectory(self, name: str, id: str, query: Mapping[str, str]) -> Shown:
        e, live, is_over = self._experience(name, id)
        address = f"/runs/{quote(name)}/attempts/{id}" if live is not None else f"/experiences/{id}"
        cited: Mapping[int, Sequence[Citing]] = {}
        others: list[JsonDict] = []
        if live is not None:
            revisions = [*live.revisions(), *([live.waiting()] if live.waiting() else [])]
            cited = citations([r for r in revisions if r], live.studies()).get(id, {})
            others = [
                r
                for r in _attempt_rows(live)
                if r["task"] == e.task and e.task and r["attempt"] != id
            ][:30]
        else:
            rows = self.memory.facts({"task": e.task})
            others = [
                {**r, "attempt": r["id"]}
                for r, _ in zip(rows, range(31), strict=False)
                if r["id"] != id
            ][:30]
        steps = e.trace.steps
        page = _number(query.get("page", ""), 1, max(1, -(-len(steps) // STEPS)))
        first = (page - 1) * STEPS
        room = Room(1 << 40)
        shown = [
            show_step(i, steps[i], room, None, cited.get(i, ()), limit=WHOLE)
            for i in range(first, min(len(steps), first + STEPS))
        ]
        events = (
            f"/events?{urlencode({'run': name, 'attempt': id})}"
            if live is not None and not is_over
            else ""
        )
        return self._render(
            "trajectory",
            f"{e.task or id}",
            events=events,
            name=name,
            e=e,
            live=live,
            over=is_over,
            address=address,
            shown=shown,
            raw=steps[first : first + len(shown)],
            others=others,
            lessons=self._lessons_of(e),
            prompt=room.cut(e.prompt, WHOLE),
            answer=room.cut(e.trace.answer, WHOLE),
            cited=sum(map(len, cited.values())),
            evidence=room.cut(evidence_of(e), WHOLE),
            system=room.cut(self._system(e, live), WHOLE),
            count=len(steps),
            sent=bool(system_of(e)),
            page=page,
            pages=max(1, -(-len(steps) // STEPS)),
            foreign=e.foreign,
            origin=e.origin,
            lesson_of=self._lesson_paths(),
        )

    def _agent(self, live: LiveRun, digest: str) -> Scaffold | None:
        """An agent of a run's lineage, read once."""
        if digest not in live.agents:
            try:
                seed = live.seed()
                found = (
                    seed
                    if seed and seed.digest == digest
                    else History(live.folder / "scaffold.git").read(digest)
                )
            except (BadInput, Fault):
                return None
            live.agents[digest] = found
        return live.agents[digest]

    def _system(self, e: Experience, live: LiveRun | None) -> str:
        """The system message of an attempt as it was sent or imported; of an earlier version's
        filled in again from the agent's files, '' where those are not here any more."""
        if sent := system_of(e):
            return sent
        agent = self._agent(live, e.digest) if live is not None and e.digest else None
        if agent is None:
            return ""
        before = {s.action: s.output for s in e.trace.path() if s.kind == "before"}
        native = agent.agent.native and any(s.foreign.get("tool_calls") for s in e.trace.steps)
        try:
            return agent.render("system", task={"prompt": e.prompt}, native=native, before=before)
        except BadInput:
            return ""

    def _messages(self, name: str, id: str) -> Shown:
        e, live, _ = self._experience(name, id)
        system = self._system(e, live)
        room = Room(1 << 40)
        whole = e.model_copy(update={"foreign": {**e.foreign, "system": system}})
        rows = [
            {
                "role": m["role"],
                "text": room.cut(_content(m), WHOLE),
                "begins": n if not at else 0,
                "calls": [c["function"] for c in m.get("tool_calls") or ()],
                "answers": m.get("tool_call_id", ""),
            }
            for n, chat in enumerate(chats(whole))
            for at, m in enumerate(chat["messages"])
        ]
        back = f"/runs/{quote(name)}/attempts/{id}" if live is not None else f"/experiences/{id}"
        samples = len({s.sample for s in e.trace.steps if s.kind != "lookahead"})
        return self._render(
            "messages",
            f"Messages of {e.task or id}",
            name=name,
            e=e,
            rows=rows,
            back=back,
            samples=samples,
            has_system=bool(system),
        )

    def _study(self, name: str, id: str) -> Shown:
        live = self.run(name)
        studies = live.studies()
        number = next((n for n, s in enumerate(studies, 1) if s.id == id), 0)
        if not number:
            raise BadInput(
                f"run {name} has no study {id}", fix="the run's page lists them", code="no-study"
            )
        (shown,) = show_studies(live.folder, studies[number - 1 : number], Room())
        return self._render(
            "study",
            f"Study {number} of {name}",
            name=name,
            number=number,
            s=shown,
            run=live,
            cite=self._cite(name, live),
        )

    def _compare(self, one: tuple[str, str], other: tuple[str, str]) -> Shown:
        sides = list[JsonDict]()
        for name, id in (one, other):
            e, live, over = self._experience(name, id)
            room = Room(1 << 40)
            address = (
                f"/runs/{quote(name)}/attempts/{id}" if live is not None else f"/experiences/{id}"
            )
            shown = [
                show_step(i, s, room, limit=BESIDE)
                for i, s in enumerate(e.trace.steps[: 2 * STEPS])
            ]
            sides.append(
                {
                    "e": e,
                    "address": address,
                    "steps": shown,
                    "over": over,
                    "left": len(e.trace.steps) - len(shown),
                    "evidence": room.cut(evidence_of(e), BESIDE),
                    "answer": room.cut(e.trace.answer, BESIDE),
                }
            )
        text = differ(sides[0]["e"], sides[1]["e"])
        return self._render(
            "compare",
            "Side by side",
            sides=sides,
            differ=text,
            most_range=range(max(len(side["steps"]) for side in sides)),
        )

    # ----- search, lessons

    def _search(self, query: Mapping[str, str]) -> Shown:
        words = query.get("q", "").strip()
        names = ("domain", "split", "outcome", "run", "task", "grain")
        wanted = {name: value for name in names if (value := query.get(name, "").strip())}
        hits = list[JsonDict]()
        busy = ""
        error = None
        rows: list[JsonDict] = []
        counts: JsonDict = {"domains": {}, "experiences": 0, "steps": 0}
        try:
            self.memory.metadata.refresh()
            counts = self.memory.metadata.counts()
            if self.indexing is not None and words:
                done, todo = self.indexing
                busy = (
                    f"{done:,} of {todo:,} experiences are indexed"
                    if todo
                    else "runs are being read"
                )
            elif words:
                found = recall(self.memory, words, HITS, wanted, "human", "keywords", ungraded=True)
                hits = [_hit(hit, words) for hit in found]
            elif wanted:
                wanted.pop("grain", None)
                rows = list(self.memory.facts(wanted))[::-1]
        except RecreateError as e:
            error = e
        for each in hits:
            each["href"] = self._hit_href(each["hit"])
        return self._render(
            "search",
            f"Search: {words}" if words else "Search",
            query=query,
            words=words,
            hits=hits,
            busy=busy,
            error=error,
            domains=sorted(counts["domains"]),
            counts=counts,
            splits=SPLITS,
            asked=bool(words or wanted),
            most=HITS,
            **_paged(rows, query, "/search"),
        )

    def _hit_href(self, hit: Hit) -> str:
        """Where a hit is shown whole."""
        if hit.grain == "lesson":
            return self._lesson_href(hit.id)
        return self._step(f"/experiences/{hit.experience}", hit.step)

    def _memory(self, query: Mapping[str, str], told: str) -> Shown:
        words = query.get("q", "").strip()
        found = Found()
        error = None
        wanted = {
            name: v
            for name in ("domain", "outcome", "grain", "since", "until")
            if (v := query.get(name, "").strip())
        }
        domains: list[str] = []
        busy = self.indexing is not None and bool(words)
        try:
            self.memory.metadata.refresh()
            domains = sorted(self.memory.metadata.counts()["domains"])
            if not busy:
                found = self.browsed.ask(words, wanted)
        except RecreateError as e:
            error = e
        hits = [{**_hit(hit, words), "href": self._hit_href(hit)} for hit in found.hits]
        return self._render(
            "memory",
            f"Memory: {words}" if words else "Memory",
            told=told,
            query=query,
            words=words,
            found=found,
            hits=hits,
            error=error,
            busy=busy,
            domains=domains,
            most=HITS,
            days_href=[self._days_href(query, day) for day in found.days],
            **_paged(found.rows, query, "/memory"),
        )

    def _days_href(self, query: Mapping[str, str], day: JsonMap) -> str:
        kept = {k: v for k, v in query.items() if v and k in ("domain", "outcome", "grain")}
        return self.href(
            f"/memory?{urlencode({**kept, 'since': day['first'], 'until': day['after']})}"
        )

    def _forgetting(self, kind: str, id: str, told: str) -> Shown:
        plan = self.browsed.plan(kind, id)
        return self._render(
            "forget",
            "Forget an attempt" if kind == "experiences" else "Forget a lesson",
            told=told,
            kind=kind,
            id=id,
            lines=list(plan.describe(dry=True)),
            seen=mark(plan),
        )

    def lesson_files(self) -> Iterator[tuple[str, Path]]:
        """Every lesson and pattern of every policy: (its path in memory/ without .md, its file)."""
        memory = memory_folder(self.where)
        for file in sorted([*memory.glob("general/*.md"), *memory.glob("[!@]*/*/*.md")]):
            path = file.relative_to(memory).with_suffix("")
            if (
                "experiences" not in path.parts
                and "blobs" not in path.parts
                and path.parts[0] != "index"
            ):
                yield path.as_posix(), file

    def _lessons_of(self, e: Experience) -> list[Lesson]:
        """The lessons that an attempt speaks for, but those that joined another."""
        found = (x for _, x in lesson_files(memory_folder(self.where)) if x.status != "merged")
        return [x for x in found if e.id in {*x.born_of, *x.supports}]

    def _lesson_paths(self) -> dict[str, str]:
        return {
            file.stem: self.href("/lessons/" + quote(path)) for path, file in self.lesson_files()
        }

    def _lesson_href(self, key: str) -> str:
        """Where a lesson's hit (`lesson:DOMAIN/NAME`) is shown."""
        domain, _, stem = key.removeprefix("lesson:").rpartition("/")
        near = [p for p, f in self.lesson_files() if f.stem == stem and p.split("/")[0] == domain]
        return self.href("/lessons/" + quote(near[0])) if near else self.href("/lessons")

    def _lessons(self, told: str) -> Shown:
        rows = []
        for path, file in self.lesson_files():
            try:
                lesson = lesson_at(file)
                wrong = ""
            except (OSError, BadInput) as e:
                lesson = None
                wrong = getattr(e, "message", str(e))
            folder, _, _ = path.rpartition("/")
            rows.append(
                {"path": path, "folder": folder, "lesson": lesson, "wrong": wrong, **_worth(lesson)}
            )
        rows.sort(
            key=lambda r: (
                r["folder"],
                STANDINGS.index(r["lesson"].status if r["lesson"] else ""),
                r["path"],
            )
        )
        return self._render(
            "lessons", "Lessons and patterns", events="/events", rows=rows, told=told
        )

    def _lesson(self, path: str, told: str) -> Shown:
        file = dict(self.lesson_files()).get(path)
        if file is None:
            raise BadInput(
                f"there is no lesson {path}",
                fix="the list of lessons has what there is",
                code="no-lesson",
            )
        try:
            text = lesson_text(file)
            lesson = read_lesson(file.stem, text)
        except OSError as e:
            raise BadInput(
                f"{short(file)}: {e.strerror}", fix="look again", code="no-lesson"
            ) from None
        if self.static or len(self.runs) < len(self.names()):
            self.read_all()
        history = [
            {"run": name, "round": record["round"] + 1, "policy": record["policy"], **change}
            for name, live in sorted(
                self.runs.items(), key=lambda each: _last_write(each[1].folder)
            )
            for record in live.records("memory")
            for change in record["changes"]
            if change["lesson"] == lesson.id
        ]
        known = self.memory.metadata.knows([*lesson.born_of, *lesson.supports, *lesson.contradicts])
        return self._render(
            "lesson",
            lesson.title,
            path=path,
            lesson=lesson,
            history=history,
            known=known,
            told=told,
            seen=digest_of(text),
            others={} if self.static else self.browsed.mergeable(path),
            **_worth(lesson),
            step_href=lambda id, step: self._step(f"/experiences/{id}", step),
        )

    # ----- the review queue

    def _queue(self) -> Shown:
        self.read_all()
        rows = [(name, live.waiting()) for name, live in self.runs.items()]
        waiting = [
            {"name": name, "revision": revision} for name, revision in rows if revision is not None
        ]
        decided = [
            {"name": name, **record}
            for name, live in self.runs.items()
            for record in live.records("review")
        ]
        return self._render(
            "queue", "Review", events="/events", rows=waiting, decided=decided[-50:][::-1]
        )

    def offer(self, name: str) -> tuple[LiveRun, Revision, Scaffold, Scaffold]:
        """(run, the candidate that waits there, its parent's files, its own). Raises BadInput."""
        live = self.run(name)
        revision = live.waiting()
        if revision is None:
            raise BadInput(
                f"nothing waits for a review in {name}",
                fix="its page shows what was decided",
                code="nothing-waits",
            )
        history = History(live.folder / "scaffold.git")
        return live, revision, history.read(revision.parent), history.read(revision.id)

    def _review(self, name: str, told: str) -> Shown:
        live, revision, parent, child = self.offer(name)
        changed = [p for p in child.files if parent.files.get(p) != child.files[p]]
        cite = self._cite(name, live)
        steps = dict[tuple[str, int], Any]()
        for edit in revision.edits:
            for cited in edit.evidence:
                e = read_experience(live.folder / "attempts" / cited.experience) or self.memory.get(
                    cited.experience
                )
                if e is not None and cited.step < len(e.trace.steps):
                    steps[cited.experience, cited.step] = show_step(
                        cited.step, e.trace.steps[cited.step], Room(1 << 40)
                    )
        at = f"/events?{urlencode({'run': name, 'at': live.at})}"
        return self._render(
            "review",
            f"Review {revision.id[:8]} of {name}",
            events=at,
            name=name,
            run=live,
            revision=revision,
            files=read_diff(diff(parent, child)),
            child=child,
            changed=changed,
            cite=cite,
            steps=steps,
            told=told,
            scale=html.scale([revision.verdict]),
            status=live.status(),
        )


# ------------------------------------------------------------------------------------------------
# its parts


def _content(message: JsonMap) -> str:
    """A message's text; what is no text as JSON."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else encode(content)


def _spell_name(name: str) -> str:
    """A file's name as an address can have it: bytes that are no text are spelled out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _last_write(folder: Path) -> float:
    """When a run was last written to, in unix seconds."""
    for name in ("journal.jsonl", "settings.toml"):
        try:
            return (folder / name).stat().st_mtime
        except OSError:
            continue
    return 0.0


def _attempt_rows(live: LiveRun) -> Iterator[JsonDict]:
    """The attempts of a run in the order in which they ended; then what runs."""
    done = set()
    excluded = {row["attempt"]: row for row in live.excluded()}
    for r in live.records("experience", "brought", "aside"):
        id = r["attempt"]
        if id in done or (r["kind"] == "aside" and id not in excluded):
            continue
        done.add(id)
        paid = live.paid.get(id, [0.0] * 4)
        outcome = "excluded" if r["kind"] == "aside" else "passed" if r["passed"] else "failed"
        yield {
            "attempt": id,
            "task": r["task"],
            "split": r.get("split", r.get("phase", "")),
            "repeat": r.get("repeat", 0),
            "scaffold": r.get("scaffold", ""),
            "score": r.get("score"),
            "outcome": outcome,
            "ending": r.get("ending", r.get("fault", "")),
            "calls": int(paid[0]),
            "tokens": int(paid[1] + paid[2]),
            "usd": paid[3],
        }
    for id in live.begun:
        if id not in done:
            paid = live.paid.get(id, [0.0] * 4)
            yield {
                "attempt": id,
                "task": "",
                "split": "",
                "repeat": 0,
                "scaffold": "",
                "score": None,
                "outcome": "running",
                "ending": "",
                "calls": int(paid[0]),
                "tokens": int(paid[1] + paid[2]),
                "usd": paid[3],
            }


def _paged(rows: Sequence[Any], query: Mapping[str, str], address: str) -> JsonDict:
    """The rows of the page that is asked for, and the addresses of its neighbours."""
    pages = max(1, -(-len(rows) // ROWS))
    page = _number(query.get("page", ""), 1, pages)

    def to(number: int) -> str:
        kept = {k: v for k, v in query.items() if v and k not in ("page", "t")}
        return f"{address}?{urlencode({**kept, 'page': number})}"

    return {
        "rows": rows[(page - 1) * ROWS : page * ROWS],
        "count": len(rows),
        "page": page,
        "pages": pages,
        "earlier": to(page - 1) if page > 1 else "",
        "later": to(page + 1) if page < pages else "",
    }


def _number(text: str, least: int, most: int) -> int:
    return max(least, min(most, int(text))) if text.isdecimal() and len(text) < 9 else least


def _hit(hit: Any, words: str) -> JsonDict:
    """A hit with its text in parts, (text, whether it is one of the words), around the first of the
    words."""
    whole = " ".join(hit.text.split())
    before = 0
    for part, found in marked(whole, words):
        if found:
            break
        before += len(part)
    start = max(0, before - AROUND) if before < len(whole) else 0
    return {
        "hit": hit,
        "parts": marked(whole[start : start + SNIPPET], words),
        "before": start > 0,
        "after": start + SNIPPET < len(whole),
    }


def _worth(lesson: Lesson | None) -> JsonDict:
    """What speaks for a lesson: in words, and its gain over re-runs with its 80 % bounds."""
    if lesson is None or not lesson.gains:
        return {"support": speaks_for(lesson) if lesson else "", "gain": None}
    return {"support": speaks_for(lesson), "gain": bound(lesson.gains, lesson.rounds)}

"""Reading a run folder, and finding runs and agents by name. Nothing here takes a run's lock: a
build goes on."""

from __future__ import annotations

import contextlib
import difflib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold, load
from recreate.api.errors import BadInput
from recreate.api.paths import shipped, short
from recreate.api.registry import find
from recreate.api.types import Experience, Revision, Saving, Study, Usage, Verdict
from recreate.runs.attempts import Score, read_experience
from recreate.runs.budget import LINES, Spend, unwritten
from recreate.runs.gate import judge
from recreate.runs.journal import FIELDS, passed_over, records
from recreate.runs.search import (
    Conclusion,
    CurrentAgent,
    call_cheaper,
    conclude,
    judge_seed,
    judge_step,
)
from recreate.runs.settings import Settings, as_flags, load_run
from recreate.runs.terms import Terms
from recreate.storage.files import is_locked
from recreate.storage.log import Log, iso


@dataclass(frozen=True)
class BuildResult:
    """What a build ended with. status: done | budget | review (`waiting` is the candidate that a
    person must see) | ceiling (nothing could be kept in place of the agent, so nothing was
    tried)."""

    status: str
    seed: Scaffold
    scaffold: Scaffold
    verdict: Verdict
    revisions: tuple[Revision, ...]
    waiting: Revision | None = None


class CellKey(NamedTuple):
    """What is measured in one place of a table. agent: a digest."""

    model: str
    agent: str
    split: str
    domain: str


_EXCLUDED, _WHOSE = ("attempt", "task", "repeat", "phase", "fault"), ("scaffold", "model", "domain")


class Run:
    """A run folder, read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: Settings = load_run(folder)
        self._journal = Log(folder / "journal.jsonl")
        self._spent: tuple[list[int], Spend] | None = None

    def records(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """Journal records of some kinds, in order."""
        return records(self._journal, *kinds)

    @property
    def date(self) -> str:
        """The UTC day on which it was last gone on with, such as 2026-11-23; '' before it has a
        journal."""
        begun, file = [str(r.get("at") or "") for r in self.records("start")], self._journal.path
        return (begun or [""])[-1][:10] or (iso(file.stat().st_mtime)[:10] if file.exists() else "")

    @property
    def command(self) -> str:
        """What makes this run anew, in a folder of its own; '' where it was no command (a script's
        objects)."""
        suite = self.folder / "bench.toml"
        if suite.is_file():
            fresh = "" if (self.folder / "arms").is_dir() else " --fresh"
            return f"recreate bench {shlex.quote(short(suite))}{fresh}"
        first: dict[str, Any] = next(self.records("start"), {})
        named = not first.get("objects") and "@" not in self.settings.scaffold
        typed = first.get("command") == "build" and named
        return shlex.join(["recreate", "build", *as_flags(self.settings)]) if typed else ""

    def passed_over(self) -> str:
        """Return what is to be said of damaged lines of the journal; '' for none."""
        return passed_over(self._journal.path, self._journal.damaged(FIELDS))

    def revisions(self) -> list[Revision]:
        return [Revision.model_validate(r["revision"]) for r in self.records("revision")]

    def studies(self) -> list[Study]:
        """Return the optimizer's investigations that ended, in the order in which they did; a
        damaged record is left out."""
        files = (self.folder / "studies").glob("*/study.json")
        found = []
        for file in sorted(files, key=lambda p: (p.stat().st_mtime_ns, p.parent.name)):
            with contextlib.suppress(ValidationError):
                found.append(Study.model_validate_json(file.read_bytes()))
        return found

    def seed(self) -> Scaffold | None:
        """Return the agent the build started from; None when this run is no build."""
        if not (self.folder / "seed" / "agent.toml").is_file():
            return None
        seed = load(self.folder / "seed")
        return seed.model_copy(
            update={"name": next(self.records("seed"), {"name": seed.name})["name"]}
        )

    def waiting(self) -> Revision | None:
        """Return the candidate that waits for a person's word, if any."""
        return waiting(self.records("candidate", "review"))

    @property
    def kept(self) -> list[str]:
        """The digests of the revisions that were kept, in order."""
        return [r.id for r in self.revisions() if r.kept]

    @property
    def began_from(self) -> str:
        """The digest of the seed, '' where this run is no build."""
        seed, first = self.seed(), next(self.records("trial"), None)
        return seed.digest if seed else first["terms"]["parent"] if first else ""

    @property
    def current(self) -> str:
        """The digest of the agent that a build arrived at; '' where this run is no build."""
        return (self.kept or [self.began_from])[-1]

    @property
    def result(self) -> str:
        """The digest of the agent that a build hands over, by what was attempted so far; '' where
        this run is no build."""
        searched = self.conclude()
        return self.current if searched.verdict is None else searched.agent or self.began_from

    def conclude(self) -> Conclusion:
        """Return what a build by the rule `search` hands over, and what it claims of it; nothing
        for another rule, or where nothing was kept."""
        terms = [Terms.model_validate(r["terms"]) for r in self.records("trial")]
        known = {t.candidate: t for t in terms if t.rule == "search"}
        chain, seed = [known[id] for id in self.kept if id in known], self.began_from
        if not chain:
            return Conclusion("", None)
        scores = self._validation_scores(seed, *(t.candidate for t in chain))
        kept = [CurrentAgent(t, scores[t.candidate]) for t in chain]
        gate, draw = self.settings.gate, self.settings.seed
        ended = conclude(scores[seed], kept, alpha=gate.alpha, draw=draw)
        cheaper = {r["agent"]: Saving.model_validate(r["saving"]) for r in self.records("cheaper")}
        if ended.agent or ended.verdict is None or self.current not in cheaper:
            return ended
        return call_cheaper(ended.verdict, self.current, cheaper[self.current], gate.margin)

    def taken_attempts(self) -> list[dict[str, Any]]:
        """Return the seed's attempts of other runs that the search goes by: each as its
        `experience` record has it, its `run` and its `usage`."""
        return [each for record in self.records("taken") for each in record["attempts"]]

    @property
    def tell_taken(self) -> str:
        """Return what was taken of other runs, in words; '' for nothing."""
        found = next(self.records("taken"), {"of": 0})
        return tell_taken(self.taken_attempts(), found["of"])

    def _validation_scores(
        self, *agents: str, taken: Sequence[Mapping[str, Any]] = ()
    ) -> dict[str, dict[tuple[str, int], float | None]]:
        """Return the agents' scores at validation tasks; None for what was excluded. taken: records
        that stand for the run's own."""
        sides: dict[str, dict[tuple[str, int], float | None]] = {agent: {} for agent in agents}
        for record in (*self.records("experience"), *taken):
            if record["split"] == "validation" and record["scaffold"] in sides:
                sides[record["scaffold"]][record["task"], record["repeat"]] = record["score"]
        for row in self.excluded():
            for agent, scores in sides.items():
                whose = row.get("scaffold", agent) == agent
                if scores and row["phase"] == "validation" and whose:
                    scores.setdefault((row["task"], row["repeat"]), None)
        return sides

    def validation(self, before: str, after: str) -> Verdict | None:
        """The gate's words on two agents (digests), or the score of one, from the journal; None
        without scores."""
        searched = self.conclude() if before == self.began_from else Conclusion("", None)
        if searched.verdict is not None and after in (before, searched.agent):
            return searched.verdict
        sides = self._validation_scores(before, after, taken=self.taken_attempts())
        if not all(sides.values()):
            return None
        gate, seed = self.settings.gate, self.settings.seed
        if before == after:
            reason = "it is what the build started from"
            return judge_seed(gate, self.settings.rounds, sides[before], reason, seed)
        terms = (Terms.model_validate(record["terms"]) for record in self.records("trial"))
        if found := next((t for t in terms if (t.parent, t.candidate) == (before, after)), None):
            if found.rule == "search":
                return judge_step(found, sides[before], sides[after], alpha=gate.alpha, seed=seed)
            kept = any(r.kept and r.id == after for r in self.revisions())
            verdict: Verdict = find("gate", "each").judge(found, *sides.values(), kept)
            return verdict
        return judge(sides[before], sides[after], alpha=gate.alpha, seed=seed)

    def cells(self) -> dict[CellKey, dict[tuple[str, int], dict[str, Any]]]:
        """Return what was measured, in the order in which it was asked for: (task, repeat) -> its
        `experience` record. Arms may be one agent with the weights of several models."""
        records = list(self.records("start", "cell", "experience"))
        first: dict[str, Any] = next((r for r in records if r["kind"] == "start"), {})
        model, domain = (
            str(first.get("model", self.settings.model)),
            str(first.get("domain", self.settings.domain)),
        )
        found: dict[CellKey, dict[tuple[str, int], dict[str, Any]]] = {
            CellKey(*(r[name] for name in CellKey._fields)): {}
            for r in records
            if r["kind"] == "cell"
        }
        for r in records:
            if r["kind"] == "experience":
                key = CellKey(
                    str(r.get("model") or model),
                    r["scaffold"],
                    r["split"],
                    str(r.get("domain") or domain),
                )
                found.setdefault(key, {})[r["task"], r["repeat"]] = r
        return {key: rows for key, rows in found.items() if rows}

    def arms(self) -> dict[tuple[str, str], str]:
        """Return (model, agent) -> the arm of a table that it is, or the arms, where several became
        the same."""
        found: dict[tuple[str, str], list[str]] = {}
        for r in self.records("arm"):
            names = found.setdefault((r["model"], r["digest"]), [])
            names += [r["arm"]] * (r["arm"] not in names)
        return {of: " and ".join(names) for of, names in found.items()}

    def baselines(self) -> dict[CellKey, CellKey] | None:
        """Return for each cell that has one the cell that it is compared with, as it was last gone
        on with; None where no bench said so."""
        told = next(reversed(list(self.records("baselines"))), None)
        pairs = [(r["cell"], r["baseline"]) for r in told["of"]] if told else []
        found = {
            CellKey(*a): CellKey(*b) for a, b in pairs if len(a) == len(b) == len(CellKey._fields)
        }
        return found if told else None

    def kinds(self) -> dict[str, str]:
        """Return task -> its kind, where there are several: of what a bench measured, or candidates
        were tried on."""
        found = dict[str, str]()
        for record in self.records("kinds", "trial"):
            if record["kind"] == "trial":
                found |= Terms.model_validate(record["terms"]).strata
            else:
                found |= {task: each["kind"] for each in record["of"] for task in each["tasks"]}
        return found

    def results(self) -> dict[CellKey, dict[tuple[str, int], dict[str, Any]]]:
        """What stands for the run beside another: of a build its result on validation, else each of
        its cells."""
        result = self.result
        return {
            k: v
            for k, v in self.cells().items()
            if not result or (k.agent, k.split) == (result, "validation")
        }

    def excluded(self) -> list[dict[str, Any]]:
        """Return the attempts excluded for an infrastructure failure and not ended since."""
        ended, excluded = set(), {}
        for record in self.records("experience", "aside"):
            if record["kind"] == "experience":
                ended.add(record.get("key", record["attempt"]))
            else:
                excluded[record["attempt"]] = {
                    k: record[k] for k in (*_EXCLUDED, *_WHOSE) if k in record
                }
        return [row for attempt, row in excluded.items() if attempt not in ended]

    def read_score(self, row: Mapping[str, Any]) -> Score:
        """Return an attempt as the journal and its folder have it; a damaged one has its score.
        row: its `experience` record, or that of one that was excluded."""
        place = row["attempt"], row["task"], row["repeat"]
        if "fault" in row:
            return Score(*place, None, ending="error", fault=row["fault"])
        try:
            known = read_experience(self.folder / "attempts" / row["attempt"], steps=False)
        except BadInput:
            known = None
        return Score(
            *place,
            row["score"],
            passed=bool(row["passed"]),
            ending=str(row["ending"]),
            limit=known.trace.limit if known else "",
            usage=known.trace.usage if known else Usage(),
        )

    def end(self) -> dict[str, Any] | None:
        """Return the last `end` record: how the run ended, or None while it has not."""
        found = None
        for record in self.records("start", "end"):
            found = record if record["kind"] == "end" else None
        return found

    def status(self) -> str:
        """Return done | budget | review | ceiling as it ended, else running or stopped; `ended` for
        what says of no end: a single run, a measurement."""
        if is_locked(self.folder / "lock"):
            return "running"
        end = self.end()
        ends = (self.folder / "seed").is_dir() or (self.folder / "bench.toml").is_file()
        return str(end["status"]) if end else "stopped" if ends else "ended"

    def spend(self) -> Spend:
        """Return what stands in the ledger, as the cap counts it; while a process works, calls in
        flight count as lost."""
        ledger = Log(self.folder / "ledger.jsonl")
        stats = [file.stat() for file in (ledger.path, self._journal.path) if file.exists()]
        known = [n for stat in stats for n in (stat.st_ino, stat.st_size, stat.st_mtime_ns)]
        if self._spent is None or self._spent[0] != known:  # a report asks several times
            lines = list(ledger.read())
            spend = Spend.of(lines)
            spend.take_all(unwritten(lines, self.records("reply", "experience", "aside")))
            self._spent = known, spend
        return self._spent[1]

    @property
    def usage(self) -> dict[tuple[str, str], Usage]:
        """(role, phase) -> what its calls used."""
        sums: dict[tuple[str, str], dict[str, float]] = {}
        for line in Log(self.folder / "ledger.jsonl").read(LINES, ("settle",)):
            whose = line["role"], str(line.get("phase", ""))
            total = sums.setdefault(
                whose, dict.fromkeys(("calls", "tokens_in", "tokens_out", "usd"), 0.0)
            )
            for name in total:
                total[name] += line["usage"].get(name) or 0
        return {whose: Usage.model_validate(total) for whose, total in sums.items()}

    def experience(self, id: str) -> Experience:
        """Return an attempt of this run by id or unique beginning of it. Raises BadInput."""
        found = (
            [p.name for p in (self.folder / "attempts").glob(f"{id}*") if p.is_dir()] if id else []
        )
        if len(found) != 1:
            raise BadInput(
                f"{len(found)} attempts in {self.folder} begin with {id!r}",
                fix="recreate traces list RUN shows them",
                code="no-attempt",
            )
        experience = read_experience(self.folder / "attempts" / found[0])
        if experience is None:
            raise BadInput(
                f"attempt {found[0]} has not ended", fix="recreate resume ends it", code="not-ended"
            )
        return experience


def tell_taken(attempts: Sequence[Mapping[str, Any]], of: int) -> str:
    """Return in words which of so many attempts at a seed other runs have; '' for none."""
    if not attempts:
        return ""
    runs = ", ".join(f"runs/{name}" for name in dict.fromkeys(each["run"] for each in attempts))
    used = sum((Usage.model_validate(each["usage"]) for each in attempts), Usage())
    return (
        f"{len(attempts)} of {of} attempts at the seed are taken from {runs}: nothing is asked for"
        f" them, which saves {used.calls:,} calls and ${used.usd:.3f}. The search goes by them; a"
        " claim goes by new ones, made where an agent is kept (--fresh: at once)"
    )


def runs(workspace: Path) -> list[Path]:
    """Return the run folders of a workspace, newest first. Raises BadInput when there is none."""
    found = sorted(
        (workspace / "runs").glob("*/settings.toml"), key=lambda p: p.stat().st_mtime, reverse=True
    )
    if not found:
        raise BadInput(
            "there is no run here yet", fix="recreate build --domain swe makes one", code="no-run"
        )
    return [file.parent for file in found]


def latest(workspace: Path) -> Path:
    """Return the newest run folder of a workspace. Raises BadInput when there is none."""
    return runs(workspace)[0]


def find_run(text: str, workspace: Path, *, whole: bool = False) -> Path:
    """Return a run folder by path, by name under runs/ or the unique beginning of one, or the
    newest for '' and 'last'.

    whole: only a whole name counts.
    """
    if text in ("", "last"):
        return latest(workspace)
    for path in (Path(text), workspace / "runs" / text):
        if (path / "settings.toml").is_file():
            return path.resolve()
    near = [] if whole else sorted(p.parent for p in (workspace / "runs").glob("*/settings.toml"))
    near = [folder for folder in near if folder.name.startswith(text)]
    if len(near) == 1:
        return near[0].resolve()
    raise BadInput(
        f"{len(near)} runs begin with {text!r}" if near else f"{text!r} is not a run folder",
        fix=(
            f"one of: {', '.join(p.name for p in near[:8])}"
            if near
            else "give a folder under runs/ or the beginning of its name, or `last` for the newest"
        ),
        code="no-run",
    )


def waiting(records: Iterable[Mapping[str, Any]]) -> Revision | None:
    """Return the candidate that waits for a word, from a journal's `candidate` and `review`
    records."""
    last: Mapping[str, Any] | None = None
    for record in records:
        if record["kind"] == "candidate":
            last = record
        elif record["kind"] == "review" and last and record["offer"] == last["offer"]:
            last = None
    return Revision.model_validate(last["revision"]) if last else None


def find_agent(text: str, where: Path) -> Scaffold:
    """Return a scaffold: a folder, a name in the workspace or shipped, `RUN:DIGEST`, `RUN:seed`, or
    a run's last kept.

    Raises BadInput that lists the near names.
    """
    for path in (Path(text), where / "scaffolds" / text, shipped("scaffolds") / text):
        if (path / "agent.toml").is_file() or (
            path.is_dir() and not (path / "settings.toml").is_file()
        ):
            return load(path)
    name, colon, digest = text.rpartition(":")
    # a word may be a scaffold's
    folder = named_run(name, where) if colon else named_run(text, where, whole=True)
    if folder is None:
        roots = (where / "scaffolds", shipped("scaffolds"))
        known = sorted({file.parent.name for root in roots for file in root.glob("*/agent.toml")})
        names = sorted(p.parent.name for p in (where / "runs").glob("*/settings.toml"))
        near = difflib.get_close_matches(text, [*known, *names], 1, 0.5)
        raise BadInput(
            f"there is no scaffold or run {text!r}",
            fix=(f"did you mean {near[0]!r}? " if near else "")
            + f"scaffolds: {', '.join(known) or 'none'}; or RUN:DIGEST; a build that keeps"
            " something makes more",
            code="no-scaffold",
        )
    run = Run(folder)
    seed = run.seed()
    if colon and digest == "seed":
        if seed is None:
            raise BadInput(
                f"{text!r}: this run has no seed", fix="recreate show RUN shows what it has"
            )
        return seed
    revisions = run.revisions()
    known_digests = [r.id for r in revisions] + ([seed.digest] if seed else [])
    if not colon:
        wanted = [run.result] if run.kept else known_digests[-1:]
    else:
        # a person's own files, too
        known_digests += [e.digest for e in History(folder / "scaffold.git").log()]
        known_digests = list(dict.fromkeys(known_digests))
        wanted = [d for d in known_digests if digest and d.startswith(digest)]
    if len(wanted) != 1:
        raise BadInput(
            (
                f"{len(wanted)} revisions of {short(folder)} begin with {digest!r}"
                if colon
                else f"{text} holds no agent"
            ),
            fix=f"there are: {', '.join(known_digests) or 'none'}",
            code="no-revision",
        )
    if seed is not None and wanted[0] == seed.digest:
        return seed
    return History(folder / "scaffold.git").read(wanted[0])


def named_run(text: str, where: Path, *, whole: bool = False) -> Path | None:
    """Return the run folder that `text` names, or None when it names none. whole: not by the
    beginning of its name."""
    try:
        return find_run(text, where, whole=whole) if text else None
    except BadInput:
        if text == "last":
            raise
        return None


def default_seed(domain: str, where: Path, model: str, own: str = "") -> Scaffold:
    """Return the agent to start from when nobody names one: the one called `own`, the domain's,
    else a shipped seed.

    A local model gets the seed that was made for small ones, where the domain has one.
    """
    small = [f"seed-{domain}-small"] if model.startswith("local:") else []
    for name in (*filter(None, [own]), domain, *small, f"seed-{domain}", "seed"):
        for root in (where / "scaffolds", shipped("scaffolds")):
            if (root / name / "agent.toml").is_file():
                return load(root / name)
    raise BadInput(
        "there is no seed scaffold",
        fix="recreate init makes a workspace with one",
        code="no-scaffold",
    )

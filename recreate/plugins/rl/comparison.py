"""One table: an agent as it was, its scaffold built, its model tuned, and both, each made under the
same budget.

    RUN/bench.toml           what is compared, resolved
    RUN/arms/seed/NAME/      the agent that all begin with
    RUN/arms/ARM/build/      the run folder of its build, and
    RUN/arms/ARM/tune/       of its tuning
    RUN/arms/ARM/memory/     what it attempted: no arm learns from what another one paid for
    RUN/                     the run folder of measuring: every attempt of the table, report.md

Making ends an arm at its budget; measuring has none. What ended is not made again, so the same call
goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recreate.agents import scaffold as scaffolds
from recreate.agents.lint import refuse
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.paths import memory as memory_folder
from recreate.api.paths import short
from recreate.api.ports import Domain, Price, SandboxBackend
from recreate.api.shapes import JsonDict, JsonMap
from recreate.builder import sdk
from recreate.builder.estimate import refuse_if_too_small
from recreate.builder.measure import count_openings, measure
from recreate.builder.selection import CREATE, Rater, fitted, select
from recreate.memory.held_out import HeldOut
from recreate.plugins.bench.suite import FILE
from recreate.plugins.local_models.server import vllm_python
from recreate.plugins.local_models.settings import LocalModels
from recreate.plugins.local_models.transformers import Transformers
from recreate.plugins.rl import recipe
from recreate.plugins.rl import suite as suites
from recreate.plugins.rl.rollout import refuse_if_too_long
from recreate.plugins.rl.suite import Arm, ArmSuite
from recreate.runs.budget import Budget
from recreate.runs.defaults import choose_optimizer
from recreate.runs.gate import judge
from recreate.runs.opening import (
    Parts,
    check_optimizer,
    open_backend,
    open_domain,
    open_models,
)
from recreate.runs.reader import Run, find_run
from recreate.runs.results import BenchResult
from recreate.runs.session import Session
from recreate.runs.settings import Models, Settings
from recreate.viewer.facts import RunFacts
from recreate.viewer.html import fill

Opened = Callable[..., AbstractContextManager[Session]]
"""opened(settings, workspace, folder, resume=, parts=, go_on=): a session, its models ready; closed
in the end."""

HERE = Path(__file__).parent
NOTHING: Mapping[str, float] = {"attempts": 0, "tokens": 0, "usd": 0.0, "minutes": 0.0}


def _share(budget: Budget, part: float) -> Budget:
    """Return that part of every cap."""
    return Budget.of({name: cap * part for name, cap in budget.caps.items()})


def _rest(budget: Budget, spent: Mapping[str, float]) -> Budget:
    """Return what is left of every cap when so much was spent; 0 for nothing."""
    return Budget.of({name: max(0.0, cap - spent[name]) for name, cap in budget.caps.items()})


@dataclass(frozen=True)
class Stage:
    """One run that made a part of an arm. run: None when nothing was left of the budget to begin it
    with.

    status: done | budget | stopped (tune: a watched number crossed its bound) | unfinished. text:
    what came of it.
    """

    kind: Literal["build", "tune"]
    run: Path | None
    status: str
    text: str
    spent: Mapping[str, float]
    scaffold: str = ""
    """The digest it ended with (build), or that was tuned."""
    checkpoint: Path | None = None

    def record(self) -> JsonDict:
        """As `--json` prints it."""
        found: JsonDict = {
            "run": str(self.run) if self.run else None,
            "status": self.status,
            "told": self.text,
        }
        found |= {
            "scaffold": self.scaffold,
            **({"checkpoint": str(self.checkpoint)} if self.checkpoint else {}),
        }
        return {**found, "spent": dict(self.spent)}


@dataclass(frozen=True)
class ArmResult:
    """An arm, ready to be measured. checkpoint: of its model; None for the base."""

    arm: Arm
    scaffold: Scaffold
    checkpoint: Path | None = None
    stages: tuple[Stage, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(stage.kind for stage in self.stages)

    @property
    def spent(self) -> dict[str, float]:
        return {name: sum(stage.spent[name] for stage in self.stages) for name in NOTHING}

    @property
    def stopped(self) -> bool:
        """Whether its making ended at the budget."""
        return any(stage.status == "budget" for stage in self.stages)

    def record(self, budget: Budget) -> JsonDict:
        """As `--json` prints it: `over` names the caps that its making is above."""
        return {
            "spent": self.spent,
            "budget": budget.caps,
            "stopped": self.stopped,
            "over": [name for name, cap in budget.caps.items() if self.spent[name] > cap + 1e-9],
            "before": bool(self.arm.run),
            **{stage.kind: stage.record() for stage in self.stages},
        }


@dataclass(frozen=True)
class Table:
    """rows: a cell each with `arm`, `made`, `measured`, `diff` (to the seed) and, of an arm that is
    built and tuned, `beyond` (to the better of those that are only one of it). text: the same for
    people. openings: how often the domain's test split was opened in this workspace by now."""

    run: Path
    rows: tuple[JsonDict, ...]
    text: str
    openings: int


def compare(suite: ArmSuite, where: Path, folder: Path, opened: Opened) -> Table:
    """Make the arms and measure them, or go on in a folder where that was begun.

    Raises BadInput before anything is spent for what can be seen by then; Missing, Fault, Refused,
    Interrupted. An arm's budget that is used up is not raised: its row says so.
    """
    suite = fix_suite(suite, folder)
    bench = _Bench(suite, where, folder, opened)
    bench.refuse()
    suites.write(suite, folder / FILE)
    return bench.measured([bench.make(arm) for arm in suite.arms])


def fix_suite(suite: ArmSuite, folder: Path) -> ArmSuite:
    """The suite with what a folder holds already. Raises BadInput when that is another table, or no
    table."""
    file = folder / FILE
    if not file.is_file():
        if (folder / "settings.toml").exists():
            raise BadInput(
                f"{short(folder)} holds another run",
                fix="give another folder with --out",
                code="run-exists",
            )
        return suite
    return suites.joined(suites.read_begun(file), suite)


class _Bench:
    def __init__(self, suite: ArmSuite, where: Path, folder: Path, opened: Opened) -> None:
        self.suite = suite
        self.where = where
        self.folder = folder
        self.opened = opened
        self.domain: Domain = open_domain(suite.settings, where)
        self.backend: SandboxBackend = open_backend(suite.settings)
        self.seed = self._seed()
        self.go_on = f"the same command with --out {short(folder)}"
        self.before: dict[str, ArmResult] = {}

    # before anything is spent

    def refuse(self) -> None:
        """Raises BadInput for all that would fail later."""
        suite = self.suite
        if not self.domain.tasks(suite.split):
            raise BadInput(
                f"domain {self.domain.name} has no {suite.split} tasks",
                fix="recreate tasks list shows them",
                code="no-tasks",
            )
        held = HeldOut(memory_folder(self.where))
        if any(arm.is_made for arm in suite.arms) and not held.usable(self.domain, "train")[0]:
            raise held.refuse_empty(self.domain, "train")
        refuse(self.seed, self.backend)
        for arm in suite.arms:
            if arm.recipe:
                self._refuse_tune(arm)
        opened = open_models(suite.settings)
        model = opened.model
        other = opened.optimizer_model
        other.close()
        rater = Rater(self.seed.name, self.seed.digest, model.name)
        wanted = suite.settings.select
        found = select(self.domain, wanted, self.where, rater) if wanted.is_given else None
        settings = fitted(suite.settings, self.domain, held, found)
        for arm in suite.arms:
            if arm.run:
                self.before[arm.name] = self._made_before(arm, model.name)
            if arm.build:
                self._refuse_build(
                    arm, settings, choose_optimizer(other)[0], opened.price, opened.optimizer_price
                )
        if any(arm.recipe for arm in suite.arms):
            recipe.installed()
        for arm in suite.arms:
            if arm.recipe and isinstance(model, Transformers):
                self._refuse_context(arm, model)
        model.close()

    def _refuse_context(self, arm: Arm, model: Transformers) -> None:
        model.prepare()
        tasks = self.domain.tasks("train")
        how = recipe.load(arm.recipe)
        try:
            refuse_if_too_long(self.seed, tasks, how, window=model.context, encode=model.encode)
        except BadInput as e:
            raise BadInput(f"arms.{arm.name}: {e.message}", fix=e.fix, code=e.code) from None

    def _refuse_tune(self, arm: Arm) -> None:
        try:
            recipe.load(arm.recipe).refuse(arm.rollouts)
            if arm.rollouts == "vllm":
                vllm_python(self.suite.settings.of(LocalModels).vllm_python)
        except BadInput as e:
            fix = e.fix.replace("--rollouts here", 'rollouts = "here"')
            raise BadInput(f"arms.{arm.name}: {e.message}", fix=fix, code=e.code) from None

    def _refuse_build(
        self, arm: Arm, settings: Settings, optimizer: str, price: Price, other_price: Price
    ) -> None:
        budget = self.suite.budget
        part = _share(budget, arm.build_share) if arm.recipe else budget
        share = (
            f"; the build of arms.{arm.name} has {arm.build_share:.0%} of --budget"
            if arm.recipe
            else ""
        )
        if 0 in part.caps.values():
            raise BadInput(
                f"a budget of {budget} cannot be shared",
                fix=f"give a larger one{share}",
                code="budget-too-small",
            )
        changed = {
            "optimizer": arm.optimizer or settings.optimizer or optimizer,
            "budget": part.texts(),
        }
        settings = settings.model_copy(update=changed)
        try:
            check_optimizer(settings)
        except BadInput as e:
            raise BadInput(f"arms.{arm.name}: {e.message}", fix=e.fix, code=e.code) from None
        try:
            refuse_if_too_small(settings, self.seed, price, other_price)
        except BadInput as e:
            raise BadInput(
                f"arms.{arm.name}: {e.message}", fix=e.fix + share, code=e.code
            ) from None

    def _seed(self) -> Scaffold:
        """The agent that all arms begin with: as it was when the table was begun."""
        place = self.folder / "arms" / suites.SEED
        for folder in sorted(place.glob("*/agent.toml")):
            return scaffolds.load(folder.parent)
        named = self.suite.settings.scaffold
        if named == CREATE:
            raise BadInput(
                "the seed of a table is there before it: nothing is written for it",
                fix="--scaffold NAME_OR_FOLDER",
                code="no-scaffold",
            )
        settings = self.suite.settings
        return sdk.starting(settings, self.where, named, self.domain.name, settings.model)

    def _made_before(self, arm: Arm, model: str) -> ArmResult:
        """Raises BadInput for runs that are of something else, or have not come to anything. model:
        the base's name."""
        scaffold = self.seed
        checkpoint = None
        stages = list[Stage]()
        folders = [find_run(text, self.where) for text in arm.run]
        built = [f for f in folders if (f / "seed").is_dir()]
        tuned = [f for f in folders if f not in built]
        if len(built) > 1 or len(tuned) > 1:
            raise BadInput(
                f"arms.{arm.name}: several runs of one kind",
                fix="one of build, one of tune",
                code="bad-suite",
            )
        for folder in folders:
            start = next(Run(folder).records("start"), {})
            for what, there, here in (
                ("domain", start.get("domain", ""), self.domain.name),
                ("model", _resolved(start.get("model", "")), _resolved(model)),
            ):
                if there != here:
                    raise _another(arm, folder, what, there)
        for folder in built:
            seed = Run(folder).seed()
            if seed is None or seed.digest != self.seed.digest:
                raise _another(arm, folder, "seed", seed.digest if seed else "none")
            scaffold, stage = _built(folder)
            if stage.status == "unfinished":
                raise BadInput(
                    f"the build {short(folder)} has not ended",
                    fix=f"recreate resume {short(folder)}",
                    code="not-ended",
                )
            stages.append(stage)
        for folder in tuned:
            stage = _tuned(folder)
            if stage.scaffold != scaffold.digest:
                raise _another(arm, folder, "scaffold", stage.scaffold)
            if stage.status == "unfinished":
                raise BadInput(
                    f"the tuning {short(folder)} has not ended",
                    fix=(
                        f"recreate tune with --out {short(folder)} and what it was begun with"
                        " goes on"
                    ),
                    code="not-ended",
                )
            stages.append(stage)
            checkpoint = stage.checkpoint
        return ArmResult(arm, scaffold, checkpoint, tuple(stages))

    # making

    def make(self, arm: Arm) -> ArmResult:
        """The arm as its budget makes it; what ended is read back."""
        if arm.name in self.before:
            return self.before[arm.name]
        place = self.folder / "arms" / arm.name
        if not arm.is_made:
            if not any(place.glob("*/agent.toml")):
                scaffolds.save(self.seed, place / self.seed.name)
            return ArmResult(arm, self.seed)
        self._hold_out(place)
        budget = self.suite.budget
        scaffold = self.seed
        checkpoint = None
        stages: list[Stage] = []
        if arm.build:
            part = _share(budget, arm.build_share) if arm.recipe else budget
            scaffold, stage = self._build(place, part, arm.optimizer)
            stages.append(stage)
            budget = _rest(budget, stage.spent)
        if arm.recipe:
            stage = self._tune(place, arm, scaffold, budget)
            stages.append(stage)
            checkpoint = stage.checkpoint
        return ArmResult(arm, scaffold, checkpoint, tuple(stages))

    def _build(self, place: Path, budget: Budget, optimizer: str) -> tuple[Scaffold, Stage]:
        folder = place / "build"
        # what was tuned on it would be another agent's, were it built further
        if not (_has_ended(folder, budget) or (place / "tune" / "settings.toml").exists()):
            settings = self._settings(budget)
            settings = settings.model_copy(update={"optimizer": optimizer or settings.optimizer})
            with self._open(settings, place, folder) as session:
                session.say("note", {"text": f"building {place.name} under {budget}"})
                built = sdk.improve(session, place, self.seed)
            sdk.deliver(place, folder, self.domain.name, built)
        return _built(folder)

    def _tune(self, place: Path, arm: Arm, scaffold: Scaffold, budget: Budget) -> Stage:
        if 0 in budget.caps.values():
            return Stage(
                "tune", None, "budget", "nothing was left to tune with", NOTHING, scaffold.digest
            )
        folder = place / "tune"
        how = recipe.load(arm.recipe)
        step = how.attempts(len(self.domain.tasks("train")))
        if budget.attempts is not None and budget.attempts < step and not folder.exists():
            return Stage(
                "tune",
                None,
                "budget",
                "less than a training step was left",
                NOTHING,
                scaffold.digest,
            )
        if not _has_ended(folder, budget):
            from recreate.plugins.rl.trainer import TrainConfig, tune

            plan = TrainConfig(
                arm.steps, self.suite.settings.seed, arm.micro_batch, rollouts=arm.rollouts
            )
            with self._open(self._settings_of_one(budget), place, folder) as session:
                session.say("note", {"text": f"tuning {place.name} under {budget}"})
                tune(session, scaffold, how, plan)
        return _tuned(folder, arm.steps)

    def _open(
        self, settings: Settings, workspace: Path, folder: Path
    ) -> AbstractContextManager[Session]:
        again = (folder / "settings.toml").exists()
        parts = Parts(domain=self.domain, backend=self.backend)
        return self.opened(settings, workspace, folder, resume=again, parts=parts, go_on=self.go_on)

    def _settings(self, budget: Budget | None) -> Settings:
        texts = budget.texts() if budget else ()
        return self.suite.settings.model_copy(update={"budget": texts, "out": "", "scaffold": ""})

    def _settings_of_one(self, budget: Budget | None) -> Settings:
        """Where nobody proposes: no other model is opened, least of all a server started."""
        settings = self._settings(budget)
        models = settings.models.model_dump(exclude={"optimizer", "optimizer_price"})
        return settings.model_copy(update={"models": Models(**models), "optimizer": "reflect"})

    def _hold_out(self, place: Path) -> None:
        """What the workspace holds out by now, the arm's memory holds out too."""
        HeldOut(memory_folder(place)).take(HeldOut(memory_folder(self.where)))

    # measuring

    def measured(self, made: Sequence[ArmResult]) -> Table:
        suite = self.suite
        rows = list[JsonDict]()
        cells = list[BenchResult]()
        with self._open(self._settings_of_one(None), self.where, self.folder) as session:
            for each in made:
                session.say("note", {"text": f"measuring {each.arm.name}"})
                with _answering(session, each.checkpoint) as measured:
                    cell = measure(measured, each.scaffold, suite.split, suite.tasks)
                cells.append(cell)
                spent = {"attempts": len(cell.scores), "tokens": cell.tokens, "usd": cell.usd}
                rows.append(
                    {
                        **cell.row(),
                        "arm": each.arm.name,
                        "made": each.record(suite.budget),
                        "measured": spent,
                    }
                )
            self._compared(rows, made)
            others = dict.fromkeys(c.key for c in cells if c.key != cells[0].key)
            pairs = [{"cell": key, "baseline": cells[0].key} for key in others]
            session.journal.add("baselines", of=pairs)
            for row in rows:
                session.journal.add("arm", **{k: v for k, v in row.items() if k != "scores"})
            openings = count_openings(session)
        values = {"suite": suite, "rows": rows, "openings": openings}
        text = fill("arms", HERE, **values, short=lambda run: short(Path(run)))
        (self.folder / "report.md").write_text(text, "utf-8")
        return Table(self.folder, tuple(rows), text, openings)

    def _compared(self, rows: Sequence[JsonDict], made: Sequence[ArmResult]) -> None:
        """Put `diff` and `beyond` into the rows."""
        singles = [
            row
            for row, m in zip(rows, made, strict=True)
            if len(m.kinds) == 1 and row["mean"] is not None
        ]
        best = max(singles, key=lambda row: row["mean"], default=None)
        for row, m in zip(rows, made, strict=True):
            row["diff"] = self._difference(rows[0], row) if row is not rows[0] else None
            if len(m.kinds) == 2 and best is not None:
                row["beyond"] = {"arm": best["arm"], **self._difference(best, row)}

    def _difference(self, before: JsonMap, after: JsonMap) -> JsonDict:
        settings = self.suite.settings
        verdict = judge(
            _scores(before), _scores(after), alpha=settings.gate.alpha, seed=settings.seed
        )
        return verdict.model_dump(mode="json", exclude={"schema_", "before", "after"})


def _resolved(model: str) -> str:
    """A model's name with its folder in full."""
    kind, _, named = model.partition(":")
    path = Path(named).expanduser()
    return f"{kind}:{path.resolve()}" if kind == "transformers" and path.is_dir() else model


def _another(arm: Arm, folder: Path, what: str, there: str) -> BadInput:
    return BadInput(
        f"arms.{arm.name}: {short(folder)} is of another {what} ({there})",
        fix=(
            "a table compares arms of one domain, seed and model; of a built agent that was tuned,"
            " name both runs"
        ),
        code="another-run",
    )


@contextmanager
def _answering(session: Session, checkpoint: Path | None) -> Iterator[Session]:
    """The session with the checkpoint as its model; the name tells base and weights, not where they
    lie."""
    if checkpoint is None:
        yield session
        return
    model = Transformers(checkpoint, threads=session.settings.models.threads)
    try:
        yield session.with_model(model, f"{session.model_name}@{weights_digest(checkpoint)}")
    finally:
        model.close()


def weights_digest(checkpoint: Path) -> str:
    """Of the weights' files: an attempt is reused only where they are the same."""
    whole = hashlib.sha256()
    for file in sorted(
        [*checkpoint.glob("adapter_model.safetensors"), *checkpoint.glob("model*.safetensors")]
    ):
        with file.open("rb") as opened:
            whole.update(hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()[:12]


def _scores(row: JsonMap) -> dict[tuple[str, int], float | None]:
    return {(s["task"], s["repeat"]): s["score"] for s in row["scores"]}


# runs that made a part of an arm, read back


def _has_ended(folder: Path, budget: Budget) -> bool:
    """Whether a run has come to an end that this budget does not move."""
    if not (folder / "settings.toml").is_file():
        return False
    run = Run(folder)
    end = run.end()
    return end is not None and (end["status"] != "budget" or run.settings.budget == budget.texts())


def _built(folder: Path) -> tuple[Scaffold, Stage]:
    run = Run(folder)
    made = RunFacts(run).built
    kept = sum(r.kept for r in made.revisions)
    text = f"{kept} of {len(made.revisions)} candidates kept"
    text += "" if kept else ": it is the seed"
    scaffold = made.scaffold.model_copy(update={"name": made.seed.name})
    return scaffold, Stage("build", folder, made.status, text, _spent(run), scaffold.digest)


def _tuned(folder: Path, steps: int = 0) -> Stage:
    run = Run(folder)
    begun = next(run.records("tune"), None)
    end = run.end()
    if begun is None:
        raise BadInput(
            f"{short(folder)} is no run of build or tune",
            fix="recreate show RUN tells what a run is",
            code="no-run",
        )
    found = sorted(
        p for p in (folder / "checkpoints").glob("step-*") if (p / "state.json").is_file()
    )
    if not found:
        raise BadInput(
            f"{short(folder)} has no checkpoint yet",
            fix=f"go on with it: --out {short(folder)}",
            code="no-checkpoint",
        )
    step = int(found[-1].name.removeprefix("step-"))
    return Stage(
        kind="tune",
        run=folder,
        status=str(end["status"]) if end else "unfinished",
        text=f"{begun['name']}, {step} {f'of {steps} ' if steps else ''}steps"
        + ("" if step else ": it is the base"),
        spent=_spent(run),
        scaffold=begun["scaffold"],
        checkpoint=found[-1] if step else None,
    )


def _spent(run: Run) -> dict[str, float]:
    spend = run.spend()
    tokens = spend.total.tokens_in + spend.total.tokens_out
    return {
        "attempts": spend.attempts,
        "tokens": tokens,
        "usd": round(spend.total.usd, 6),
        "minutes": round(spend.minutes, 4),
    }

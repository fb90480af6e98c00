"""Fine-tuning on a domain's own tasks: roll out, compare, update, again.

    tuned = tune(shop, scaffold, load("gapo"), steps=50)

Every step: some train tasks, each attempted `group_size` times by the scaffold with the model under
training; the trainer's own pass over the answers, which is the behaviour policy; the recipe's
advantages; the recipe's loss over mini-batches, an optimiser step each. The run folder holds what a
build's does: settings.toml, journal.jsonl, attempts, report.md; and checkpoints.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import torch

from recreate.agents.lint import refuse
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput, Interrupted, OutOfBudget
from recreate.api.ports import Validatable
from recreate.api.registry import need
from recreate.api.shapes import JsonDict
from recreate.api.types import Task, digest
from recreate.plugins.local_models.settings import LocalModels
from recreate.plugins.local_models.transformers import Transformers
from recreate.plugins.rl import checkpoint, credit
from recreate.plugins.rl.learner import Learner, MiniBatch
from recreate.plugins.rl.method import Method
from recreate.plugins.rl.parts.groups import grouped
from recreate.plugins.rl.recipe import Recipe, RecipePart
from recreate.plugins.rl.report import write_report
from recreate.plugins.rl.rollout import (
    Rollout,
    Served,
    pass_fail,
    recalled,
    refuse_if_too_long,
    roll_out,
    sample_as,
    train_tasks,
)
from recreate.plugins.rl.samples import Sample, from_store, to_store
from recreate.runs.budget import Budget
from recreate.runs.session import Session

FLAT = 3
"""After so many steps in a row in which no group's rewards differ, it is said."""


@dataclass(frozen=True)
class Tuned:
    """status: done | stopped (a watched number crossed its bound) | budget (it was used up); `why`.
    curve: a record a step."""

    run: Path
    checkpoint: Path
    curve: tuple[JsonDict, ...]
    status: str = "done"
    why: str = ""


@dataclass(frozen=True)
class TrainConfig:
    """steps in all, resumed ones included. micro_batch: sequences in one pass. max_kl (nats a
    token, to the reference) and min_entropy (nats): 0 watches without stopping. save_every in
    steps. rollouts: by the module in this process, or by a server of that kind with the adapter
    loaded anew each step."""

    steps: int
    seed: int = 0
    micro_batch: int = 4
    max_kl: float = 0.0
    min_entropy: float = 0.0
    save_every: int = 5
    rollouts: Literal["here", "vllm", "transformers"] = "here"


def tune(session: Session, scaffold: Scaffold, how: Recipe, plan: TrainConfig) -> Tuned:
    """Train the session's model, or go on where its run folder stands. Train split only.

    A budget that is used up is not raised: the step in progress is given up, its attempts stay, and
    the status says it. Raises BadInput (a model that is not run by transformers, no train tasks,
    another recipe than the folder was begun with, a checkpoint of another model), Missing, Fault,
    Interrupted.
    """
    work = Tune(session, scaffold, how, plan)
    try:
        work.run()
    finally:
        work.close()
    done = work.tuned()
    session.journal.add(
        "end", status=done.status, step=work.step, checkpoint=done.checkpoint.name, why=done.why
    )
    return done


class Tune:
    """The state of one run, which `run` takes to its end."""

    def __init__(
        self, session: Session, scaffold: Scaffold, how: Recipe, plan: TrainConfig
    ) -> None:
        self.session = session
        self.scaffold = scaffold
        self.how = how
        self.plan = plan
        model = session.model
        if not isinstance(model, Transformers):
            raise BadInput(
                f"{model.name} cannot be trained here: its weights are not in this process",
                fix="--model FOLDER_OR_HUB_NAME, a model that transformers reads",
                code="not-trainable",
            )
        refuse(scaffold, session.backend)
        how.refuse(plan.rollouts)
        self.model = model
        self.method = Method(how)
        self.tasks = train_tasks(session.domain, session.memory)
        self.step = 0
        self.position = 0
        self.flat = 0
        self.ending: set[str] = set()
        self.notes = [r["text"] for r in session.journal.records("note")]
        self._refuse_small_budget()
        session.start()
        module, self.tokenizer = model.load()
        refuse_if_too_long(scaffold, self.tasks, how, window=model.context, encode=model.encode)
        new = self._same_run()
        checkpoint.seeded(plan.seed)
        sample_as(model, how)
        module, reference = _adapted(module, how)
        self.identity = checkpoint.identity(module, model.tokenizer_digest)
        pad = self.tokenizer.pad_token_id
        self.learner = Learner(
            module,
            self.method,
            micro_batch=plan.micro_batch,
            pad=0 if pad is None else pad,
            reference=reference,
            say=self.note,
        )
        model.take(module)
        self.served: Served | None = None
        if plan.rollouts != "here":
            self.served = Served(
                model,
                session.folder / "adapter",
                plan.rollouts,
                self.note,
                vllm_python=session.settings.of(LocalModels).vllm_python,
            )
        self.replay = self.method.replay(plan.seed)
        self.each_turn = how.rows_per_turn
        self.past: dict[str, list[Rollout]] = {}
        self.golds: dict[str, str] = {}
        if session.settings.from_experience:
            self._recall(recalled(session, model.tokenizer_digest, each_turn=self.each_turn))
        self.curve: dict[int, JsonDict] = {r["step"]: r for r in session.journal.records("update")}
        self.status = "done"
        self.why = ""
        self.place = session.folder / "checkpoints"
        self.saved = checkpoint.latest(self.place)
        if self.saved is not None:
            state = checkpoint.load(self.saved, self.learner, self.identity, self.replay)
            self.step = state["step"]
            self.position = state["position"]
            self.flat = state["flat"]
        self.curve = {n: r for n, r in self.curve.items() if n < self.step}
        if new:
            for text in how.warnings(pass_fail(session.domain, session.memory)):
                self.note(text)

    def run(self) -> None:
        """Take the training steps that are left, `updates` x `mini_batches` optimiser steps
        each."""
        while self.step < self.plan.steps and self.status == "done":
            if self.session.calls.stop.is_set():
                raise Interrupted("stopped")
            begun = time.monotonic()
            at = self.position, self.flat
            try:
                samples, known = self._collect()
            except (OutOfBudget, Interrupted) as e:
                self.position, self.flat = at
                self._give_up(e)
                return
            done: list[MiniBatch] = []
            for update in range(self.how.train.updates):
                for batch in self._split(samples, update):
                    self.learner.update(batch)
                    done.append(batch)
            self._finish(known, done, time.monotonic() - begun)

    def tuned(self) -> Tuned:
        assert self.saved is not None
        curve = tuple(self.curve[n] for n in sorted(self.curve))
        return Tuned(self.session.folder, self.saved, curve, self.status, self.why)

    def close(self) -> None:
        """Stop the server for rollouts, where there is one."""
        if self.served is not None:
            self.served.close()

    def note(self, text: str) -> None:
        """Say it, and keep it for the report."""
        text = f"step {self.step}: {text}"
        self.notes.append(text)
        self.session.journal.add("note", text=text)
        self.session.say("note", {"text": text})

    def _recall(self, known: dict[str, list[list[Rollout]]]) -> None:
        """Earlier experience: where the recipe replays, its groups are the epochs before the first,
        and the newest of each task can be drawn; otherwise the newest attempts join the task's
        group."""
        if self.replay is None:
            size = self.how.train.group_size
            self.past = {
                task: [r for group in groups for r in group][-size:]
                for task, groups in known.items()
            }
            return
        for task, groups in known.items():
            for epoch, group in enumerate(groups, -len(groups)):
                self.replay.record(task, [r.reward for r in group], epoch)
            kept, _ = credit.samples(self.method, groups[-1:])
            if kept:
                self.replay.store(to_store(kept, task, -1))

    # one training step

    def _collect(self) -> tuple[list[Sample], JsonDict]:
        """Attempts as samples, measured and with their advantages; and what is known of them."""
        step = self.step
        train = self.how.train
        if self.served is not None:
            self.served.update(self.learner.module)
        drawn = []
        again = list[str]()
        if self.replay is not None:
            drawn = self.replay.draw(min(train.prompts, len(self.tasks)), self._epoch(), step)
            again = [r.task for r in drawn] if self.replay.knobs.rollouts == "fresh" else []
        begun = time.monotonic()
        groups, epochs = self._attempts(again)
        rollout_seconds = time.monotonic() - begun
        samples, kept_share = credit.samples(self.method, groups, self._gold)
        fresh = [s for s in samples if s.old is None]
        past = [s for s in samples if s.old is not None]
        attempted = [[r for r in group if not r.past] for group in groups]
        self.learner.measure(fresh)
        self.learner.measure(past, keep_old=True)
        old = [] if again else [s for r in drawn for s in from_store(r)]
        if old:
            assert self.replay is not None
            self.learner.measure(old, keep_old=True)
            for s in old:
                assert s.sampled is not None
                assert s.old is not None
                s.weight = float(
                    self.replay.weight(
                        s.sampled.unsqueeze(0), s.old.unsqueeze(0), s.mask.unsqueeze(0)
                    )[0]
                )
            if self.replay.knobs.advantages == "again":
                credit.compare_again(self.method, samples, old)
        if self.replay is not None:
            by_task: dict[str, list[Sample]] = {}
            for s in fresh:
                by_task.setdefault(s.task, []).append(s)
            for group, epoch in zip(attempted, epochs, strict=True):
                if group:
                    self.replay.record(group[0].task, [r.reward for r in group], epoch)
                    if group[0].task in by_task:
                        self.replay.store(to_store(by_task[group[0].task], group[0].task, epoch))
        known = credit.facts(groups, [r for g in attempted for r in g], fresh)
        earned = self.method.earned([r.experience for g in attempted for r in g], self._gold)
        known |= {} if earned is None else {"earned": float(earned.mean()) if len(earned) else 0.0}
        known |= {"kept": kept_share, "replayed": len(old), "rollout_seconds": rollout_seconds}
        if self._in_pairs() is not None:
            known.pop("idle")
        known |= {"recalled": len(past)} if past else {}
        known |= {"row_weight": fmean(s.weight for s in old)} if old else {}
        self._watch_flat(known["equal"], known["reward"])
        self._watch_limits(known["limits"], known["attempts"])
        return fresh + past + old, known

    def _attempts(self, again: Sequence[str]) -> tuple[list[list[Rollout]], list[int]]:
        """(groups of attempts, the epoch of each); with dynamic sampling, until enough groups teach
        something."""
        train = self.how.train
        part = self.how.does("filter") or RecipePart()
        groups: list[list[Rollout]] = []
        epochs: list[int] = []
        used: set[str] = set()
        batches = 0
        wanted = True
        while wanted:
            tasks, of = self._next(train.prompts, used)
            if not batches:
                more = [t for t in self.tasks if t.id in again and t not in tasks]
                tasks, of = [*tasks, *more], [*of, *[self._epoch()] * len(more)]
            used |= {t.id for t in tasks}
            if not tasks:
                self.note(
                    f"every train task was tried, and {len(groups)} groups differ in reward: fewer"
                    " than asked for"
                )
                break
            for task, epoch, group in zip(tasks, of, self._roll(tasks), strict=True):
                whole = [r for r in group if r.rows]
                if len(group) < train.group_size:
                    self.note(
                        f"{task.id}: {train.group_size - len(group)} of {train.group_size} attempts"
                        " were excluded; "
                        + (
                            "it is left out"
                            if len(group) < 2 <= train.group_size
                            else "the group goes on without them"
                        )
                    )
                if len(whole) < min(2, train.group_size):
                    continue
                groups.append([*whole, *self.past.get(task.id, ())])
                epochs.append(epoch)
            batches += 1
            wanted = part.more(
                [[r.reward for r in group] for group in groups], train.prompts, batches
            )
        return groups, epochs

    def _gold(self, task: str) -> str:
        """A right answer to a train task; '' where the domain has none."""
        domain = self.session.domain
        if not isinstance(domain, Validatable):
            return ""
        if task not in self.golds:
            try:
                self.golds[task] = domain.gold(next(t for t in self.tasks if t.id == task))
            except BadInput as e:
                if e.code != "no-gold":
                    raise
                self.golds[task] = ""
        return self.golds[task]

    def _roll(self, tasks: Sequence[Task]) -> list[list[Rollout]]:
        return roll_out(
            self.session.with_model(self.served or self.model, self._name()),
            self.scaffold,
            tasks,
            self.how.train.group_size,
            first=self.step * self.how.train.group_size,
            tokenizer=self.model.tokenizer_digest,
            each_turn=self.each_turn,
        )

    def _split(self, samples: Sequence[Sample], update: int) -> Iterator[MiniBatch]:
        """`mini_batches` parts of about one size, in an order that seed and step fix; empty ones
        where rows lack."""
        count = self.how.train.mini_batches
        shuffle = random.Random(f"tune/{self.plan.seed}/{self.step}/{update}").shuffle
        loss = self._in_pairs()
        if loss is not None:
            pairs = self._pairs(samples, loss)
            shuffle(pairs)
            for n in range(count):
                some = pairs[n::count]
                yield MiniBatch(
                    [samples[i] for pair in some for i in pair],
                    [(2 * i, 2 * i + 1) for i in range(len(some))],
                )
            return
        rows = list(samples)
        shuffle(rows)
        for n in range(count):
            yield MiniBatch(rows[n::count])

    def _in_pairs(self) -> RecipePart | None:
        loss = self.how.does("policy loss")
        return loss if loss is not None and loss.in_pairs else None

    def _pairs(self, samples: Sequence[Sample], loss: RecipePart) -> list[tuple[int, int]]:
        """Each task's attempts that the loss compares; of one that fell into several rows, its
        last."""
        last = {s.attempt: i for i, s in enumerate(samples)}
        where = sorted(last.values())
        if not where:
            return []
        found = loss.pairs(
            torch.tensor([samples[i].reward for i in where]),
            grouped([samples[i].group for i in where]),
        )
        return [(where[int(a)], where[int(b)]) for a, b in found.tolist()]

    def _watch_flat(self, zero_variance: float, reward: float) -> None:
        """Say it when nothing has differed for several steps. zero_variance: the share of groups
        without a range."""
        self.flat = self.flat + 1 if zero_variance == 1 else 0
        if self.flat == FLAT or (self.flat > FLAT and self.flat % 10 == 0):
            self.note(
                f"in {self.flat} steps in a row all attempts at a task had the same reward (mean"
                f" {reward:.2f}): they teach nothing. "
                + (
                    "Take harder tasks"
                    if reward > 0.5
                    else "Take easier tasks, a better scaffold or a stronger model"
                )
                + ", give partial credit, raise [train] group_size or temperature"
            )

    def _watch_limits(self, limits: dict[str, int], attempts: int) -> None:
        """Say once which limits end most attempts, but for the turns, which many agents use up."""
        ended = {name: n for name, n in limits.items() if name != "steps" and 2 * n > attempts}
        for name, n in ended.items():
            if name not in self.ending:
                self.ending.add(name)
                self.note(
                    f"{n} of {attempts} attempts ended at the limit of their {name}, not by"
                    " themselves"
                )

    def _finish(self, known: JsonDict, done: Sequence[MiniBatch], seconds: float) -> None:
        made = [m for m in done if m.samples and not m.skipped]
        clip = fmean(m.watch.get("clip", 0.0) for m in made) if made else 0.0
        loss = fmean(m.loss for m in made) if made else 0.0
        record = {
            "step": self.step,
            **known,
            "clip": clip,
            "loss": loss,
            "updates": len(made),
            "seconds": seconds,
        }
        record |= {"skipped": n} if (n := sum(m.skipped for m in done)) else {}
        record |= {
            k: fmean(m.watch[k] for m in made)
            for k in ("token_weight", "step_kl")
            if made and k in made[0].watch
        }
        self.curve[self.step] = record
        self.session.journal.add("update", **record)
        self.session.say("update", record)
        self.step += 1
        plan = self.plan
        if plan.max_kl and known["kl"] > plan.max_kl:
            self.status = "stopped"
            self.why = f"kl {known['kl']:.3g} is above --max-kl {plan.max_kl:g}"
        elif plan.min_entropy and known["rows"] and known["entropy"] < plan.min_entropy:
            self.status = "stopped"
            self.why = f"entropy {known['entropy']:.3g} is below --min-entropy {plan.min_entropy:g}"
        if self.why:
            self.note(f"stopped early: {self.why}")
        if self.step == plan.steps or self.step % plan.save_every == 0 or self.status != "done":
            self._save()
        self._report()

    def _give_up(self, why: OutOfBudget | Interrupted) -> None:
        """Keep what was learned before this step; its attempts stay, and are read back when the run
        goes on."""
        if isinstance(why, Interrupted):
            if self.curve:
                self._save()
            raise why
        self.status = "budget"
        self.why = why.message
        self.note(f"stopped by the budget: {why.message}")
        self._save()
        self._report()

    def _save(self) -> None:
        state = {
            "step": self.step,
            "position": self.position,
            "flat": self.flat,
            "model": self.identity,
        }
        state |= {"base": self.model.source, "recipe": self.how.name}
        self.saved = checkpoint.save(self.place, self.learner, self.tokenizer, state, self.replay)

    def _report(self) -> None:
        write_report(
            self.session.folder / "report.md",
            self.how,
            self.model.source,
            self.scaffold,
            self.session.domain.name,
            [self.curve[n] for n in sorted(self.curve)],
            list(dict.fromkeys(self.notes)),
            self.replay.chances() if self.replay is not None else {},
            self.saved,
        )

    # which tasks, under which name

    def _epoch(self) -> int:
        return self.position // len(self.tasks)

    def _next(self, count: int, used: set[str]) -> tuple[list[Task], list[int]]:
        """The next tasks that this step has not had, and the epoch of each."""
        found: list[Task] = []
        epochs: list[int] = []
        size = len(self.tasks)
        for _ in range(size):
            if len(found) == count or len(used) + len(found) == size:
                break
            epoch, n = divmod(self.position, size)
            order = list(range(size))
            random.Random(f"tune/{self.plan.seed}/epoch/{epoch}").shuffle(order)
            task = self.tasks[order[n]]
            self.position += 1
            if task.id not in used and task not in found:
                found.append(task)
                epochs.append(epoch)
        return found, epochs

    def _name(self) -> str:
        """The model as it stands: attempts are reused by it. Before the first update it is the same
        for every recipe that samples alike, so that those share their first rollouts."""
        train = self.how.train
        part = self.how.part("rollout")
        drawn = [
            train.temperature,
            train.top_p,
            train.top_k,
            train.max_response,
            part and part.model_dump(),
        ]
        whose = (
            [self.plan.seed, drawn]
            if self.step == 0
            else [self.plan.seed, self.how.model_dump(mode="json")]
        )
        return f"transformers:{self.model.source}@{digest(whose, 8)}.{self.step}"

    def _refuse_small_budget(self) -> None:
        """Raise BadInput (`budget-too-small`) for one that pays for no training step: nothing would
        be learned."""
        cap = Budget.parse(self.session.settings.budget).attempts
        step = self.how.attempts(len(self.tasks))
        if cap is not None and cap < step:
            raise BadInput(
                f"a training step of {self.how.name} makes {step} attempts, and the budget has"
                f" {cap}",
                fix=(
                    f"--budget {step * self.plan.steps}attempts pays for {self.plan.steps} steps;"
                    " or smaller steps, --set train.prompts=... or train.group_size=..."
                ),
                code="budget-too-small",
            )

    def _same_run(self) -> bool:
        """A folder goes on with the recipe, scaffold and seed that it was begun with. True for a
        new one."""
        now = {
            "recipe": digest(self.how.model_dump(mode="json")),
            "scaffold": self.scaffold.digest,
            "seed": self.plan.seed,
            "base": self.model.source,
        }
        first = next(self.session.journal.records("tune"), None)
        if first is None:
            self.session.journal.add("tune", name=self.how.name, **now)
            return True
        for key, value in now.items():
            if first[key] != value:
                raise BadInput(
                    f"{self.session.folder} was begun with another {key}",
                    fix=(
                        f"go on with the {key} it was begun with, or give another folder with --out"
                    ),
                    code="another-model" if key == "base" else "another-run",
                )
        return False


def _adapted(module: Any, how: Recipe) -> tuple[Any, Any]:
    """(the module that trains, a frozen reference or None): with LoRA the reference is the module
    without it."""
    train = how.train
    if hasattr(module, "disable_adapter"):
        raise BadInput(
            "this model is an adapter already",
            fix="name its base model; a run goes on with --out RUN",
            code="not-trainable",
        )
    if train.lora_rank == 0:
        # a step of 1e-6 is lost in bfloat16's 8 bits; an adapter's weights are float32 in any case
        module = module.float()
        reference = copy.deepcopy(module).eval()
        for p in reference.parameters():
            p.requires_grad_(False)
        return module, reference
    peft = need("peft")
    config = peft.LoraConfig(
        r=train.lora_rank,
        lora_alpha=train.lora_alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(module, config), None

"""verl's agent loop, ours: one rollout is one attempt of the scaffold at a task, in a sandbox,
graded by the domain.

Named in agent.yaml of a run folder; verl makes an `AttemptLoop` for every rollout, in several
worker processes. Each of those has a run folder of its own below RUN/workers (journal, attempts)
and writes into the workspace's memory. The prompt is always what the chat template makes of the
messages, as on one machine: where that is not the last turn's tokens and what was added, a new row
begins, and the attempt is several rows (verl's `list[AgentLoopOutput]`).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from recreate.agents import scaffold as scaffolds
from recreate.api.errors import BadInput, Fault
from recreate.api.shapes import JsonDict
from recreate.api.types import UNASKED, Experience, Task, digest
from recreate.plugins.rl.samples import Row, rows_of
from recreate.plugins.rl.verl.functions import chosen
from recreate.plugins.rl.verl.model import Rolled
from recreate.runs.attempts import attempt_task, read_experience
from recreate.runs.opening import Parts
from recreate.runs.session import Session, open_session
from recreate.runs.settings import load_run


class Worker:
    """What the rollouts of one process share: the session, the scaffold, the tasks, the threads."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        self.folder = folder
        self.workspace = workspace
        self.settings = load_run(folder)
        self.scaffold = scaffolds.load(folder / "scaffold")
        self.threads = ThreadPoolExecutor(self.settings.jobs, thread_name_prefix="attempt")
        self.tasks: dict[str, Task] = {}
        self._session: Session | None = None
        self.nonce = secrets.token_hex(8)
        """Of this process: a run that is begun again counts the same steps, and makes other
        attempts."""
        self._seen: Counter[tuple[Any, ...]] = Counter()
        self._lock = threading.Lock()

    def session(self, model: Any) -> Session:
        """The session, with this attempt's model. What the domain holds out is registered, once a
        process."""
        with self._lock:
            if self._session is None:
                self._session = open_session(
                    self.settings, self.workspace, self._own(), parts=Parts(model=model)
                )
                self.tasks = {task.id: task for task in self._session.domain.tasks()}
                self._session.memory.hold_out(self.tasks.values())
            return self._session.with_model(model)

    def _own(self) -> Path:
        """A folder that no process had: what another attempted at a step was sampled from other
        weights."""
        name = f"{socket.gethostname()}-{os.getpid()}"
        names = (name, *(f"{name}-{n}" for n in range(2, 10_000)))
        return next(place for n in names if not (place := self.folder / "workers" / n).exists())

    def count_again(self, *which: Any) -> str:
        """'' at the first time, then -1, -2: verl may draw a task twice in a step."""
        with self._lock:
            self._seen[which] += 1
            return f"-{self._seen[which] - 1}" if self._seen[which] > 1 else ""

    def attempt(self, model: Any, task: str, repeat: int, phase: str) -> Experience:
        """Made, graded and remembered. Raises Fault for what is ours: verl then goes on without
        this rollout."""
        session = self.session(model)
        if task not in self.tasks:
            raise BadInput(
                f"domain {session.domain.name} has no task {task!r}",
                fix="the domain changed since the run folder was made: make another one",
                code="unknown-task",
            )
        self._allowed(session, self.tasks[task], phase)
        score = attempt_task(session, self.scaffold, self.tasks[task], repeat, phase)
        found = (
            read_experience(session.folder / "attempts" / score.attempt)
            if score.score is not None
            else None
        )
        if found is None:
            raise Fault(
                f"an attempt at {task} was excluded: the infrastructure failed",
                fix=f"grep aside {session.folder / 'journal.jsonl'} shows the fault",
                code="aside",
            )
        return found

    def _allowed(self, session: Session, task: Task, phase: str) -> None:
        """Raises BadInput (`held-out`) for training on what the workspace holds out, as it stands
        now."""
        _, groups, tasks = session.memory.held_out.read()
        if phase == "train" and (task.split != "train" or task.group in groups or task.id in tasks):
            raise BadInput(
                f"{task.id} is held out in {self.workspace}, so nothing may be trained on it",
                fix=(
                    "make another run folder with recreate tune: it leaves out what is held out"
                    " by now"
                ),
                code="held-out",
            )


@lru_cache(maxsize=1)
def worker(folder: str, workspace: str) -> Worker:
    """This process's."""
    return Worker(Path(folder), Path(workspace))


class AttemptLoop(AgentLoopBase):  # type: ignore[misc]
    """folder: the run's; workspace: where memory lies. Both must be seen from every node."""

    def __init__(self, *arguments: Any, folder: str, workspace: str, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.work = worker(folder, workspace)

    async def run(self, sampling_params: JsonDict, **row: Any) -> list[AgentLoopOutput]:
        """row: the line of train.jsonl, and verl's session_id, uid and global_steps. An output a
        row, in time order."""
        how = chosen()
        loop = asyncio.get_running_loop()
        step = int(row.get("global_steps") or 0)
        repeat = int(row.get("session_id") or 0)
        asked = self.config.actor_rollout_ref
        limits = asked.rollout
        whose = digest([self.work.settings.seed, how.model_dump(mode="json")], 8)
        uid = str(row.get("uid") or row["task"])
        model = Rolled(
            f"verl:{asked.model.path}@{whose}-{self.work.nonce}"
            f"-{uid}{self.work.count_again(step, uid, repeat)}.{step}",
            self.tokenizer,
            self.server_manager.generate,
            loop,
            sampling=sampling_params,
            context=int(limits.max_model_len or limits.prompt_length + limits.response_length),
            longest=int(limits.response_length),
            request=f"{row.get('uid', '')}-{repeat}",
            template=dict(self.apply_chat_template_kwargs or {}),
        )
        # each turn a row, where each turn has an advantage of its own
        turns = how.rows_per_turn
        phase = "train" if str(row.get("split") or "train") == "train" else "validation"
        done = await loop.run_in_executor(
            self.work.threads, self.work.attempt, model, str(row["task"]), repeat, phase
        )
        rows = rows_of(done, tokenizer=model.digest, each_turn=turns)
        if not rows and any(s.kind not in UNASKED for s in done.trace.steps):
            raise BadInput(
                f"attempt {done.id} holds no tokens, so nothing can be trained on it",
                fix=(
                    "have each turn of the scaffold take an answer of the model: recreate scaffold"
                    " check shows faults"
                ),
                code="no-tokens",
            )
        return [_output(r, done, model.steps or [step]) for r in rows]


def _output(row: Row, done: Experience, steps: list[int]) -> AgentLoopOutput:
    turns = sum(s.kind not in UNASKED for s in done.trace.steps)
    return AgentLoopOutput(
        prompt_ids=list(row.prompt),
        response_ids=list(row.response),
        response_mask=[int(m) for m in row.mask],
        response_logprobs=list(row.sampled),
        reward_score=done.grade.score,
        num_turns=2 * turns,
        metrics=AgentLoopMetrics(),
        extra_fields={
            "reward_extra_info": {
                "acc": float(done.grade.passed),
                "limit": float(done.trace.ending == "limit"),
            },
            "min_global_steps": min(steps),
            "max_global_steps": max(steps),
            "anchor": row.anchor,
            "attempt": done.id,
            "turn_scores": [],
            "tool_rewards": [],
        },
    )

"""Rollouts are our attempts: the scaffold works on tasks in sandboxes, and the domain's grader
gives the reward.

Who answers them: the model under training in this process (`sample_as`), or a server beside it
(`Served`).
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from recreate.agents.config import AgentLimits
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Domain, Model, extras
from recreate.api.shapes import JsonMap
from recreate.api.types import UNASKED, Call, Experience, Message, Reply, Task
from recreate.models.openai import OpenAI
from recreate.models.pricing import FREE
from recreate.plugins.local_models.served import DYING_SECONDS, ServedModel, started
from recreate.plugins.local_models.server import Engine, ServeConfig, Server, adapter_config, plan
from recreate.plugins.local_models.transformers import Transformers, token
from recreate.plugins.rl.recipe import Recipe
from recreate.plugins.rl.samples import Row, rows_of
from recreate.runs.attempts import read_experience, run_attempts
from recreate.runs.session import Session
from recreate.storage.download import Progress


def train_tasks(domain: Domain, memory: Any) -> list[Task]:
    """The domain's train tasks but for those of held-out groups, its own validation and test among
    them.

    memory: the workspace's, which keeps the registry. Raises BadInput (`held-out`, `no-tasks`) when
    none is left.
    """
    memory.hold_out(domain.tasks())
    found: list[Task] = memory.held_out.usable(domain, "train")[0]
    if not found:
        raise memory.held_out.refuse_empty(domain, "train")
    return found


@dataclass(frozen=True)
class Rollout:
    """One graded attempt and its rows. reward 0..1 as the grader gave it. past: it was made before
    this step, and the log-probs that it was sampled by are all that is known of the policy that
    made it."""

    experience: Experience
    rows: tuple[Row, ...]
    past: bool = False

    @property
    def task(self) -> str:
        return self.experience.task

    @property
    def reward(self) -> float:
        return self.experience.grade.score

    @property
    def cut(self) -> str:
        """What cut it off: see `Row.cut`."""
        return self.rows[-1].cut if self.rows else ""

    @property
    def tokens(self) -> int:
        """How many tokens the policy chose in it."""
        return sum(row.tokens for row in self.rows)


def roll_out(
    session: Session,
    scaffold: Scaffold,
    tasks: Sequence[Task],
    repeats: int,
    *,
    first: int,
    tokenizer: str,
    each_turn: bool,
) -> list[list[Rollout]]:
    """Each task's attempts, in the tasks' order; those excluded (infrastructure failure) are
    missing in it. first: the number of the first repeat: sampling seeds are of a task and a repeat,
    so each step has repeats of its own, or it would sample what the one before did.

    Every attempt goes through `run_attempts`: graded, remembered (train split only), read back when
    it ended earlier in this run. Raises BadInput (`no-tokens`) when the model tells no tokens.
    """
    begins = {task.id: first for task in tasks}
    scores = run_attempts(session, scaffold, tasks, repeats=repeats, first=begins, phase="train")
    groups: dict[str, list[Rollout]] = {task.id: [] for task in tasks}
    for score in scores:
        found = (
            read_experience(session.folder / "attempts" / score.attempt)
            if score.score is not None
            else None
        )
        if found is None:
            continue
        rows = rows_of(found, tokenizer=tokenizer, each_turn=each_turn)
        if not rows and any(step.kind not in UNASKED for step in found.trace.steps):
            raise BadInput(
                f"{session.model_name} tells no token ids, so nothing can be trained on what"
                " it did",
                fix=(
                    "a model's reply needs token_ids, logprobs and prompt_ids: transformers:FOLDER"
                    " gives them"
                ),
                code="no-tokens",
            )
        groups[score.task].append(Rollout(found, tuple(rows)))
    return list(groups.values())


def recalled(
    session: Session, tokenizer: str, *, each_turn: bool
) -> dict[str, list[list[Rollout]]]:
    """What memory holds of the train tasks in this tokenizer's tokens: each task's groups, oldest
    first. A group is what one model attempted in one run: of `tune`, whose model's name tells the
    step, an epoch."""
    found: dict[str, dict[tuple[str, str], list[Rollout]]] = {}
    for e in session.memory.experiences(
        domain=session.domain.name, split="train", reader="optimizer"
    ):
        tokens = [s.tokens for s in e.trace.steps if s.tokens is not None]
        if (
            e.run == session.run
            or e.trust != "own"
            or e.trace.fault
            or not tokens
            or any(t.tokenizer != tokenizer for t in tokens)
        ):
            continue
        rows = rows_of(e, each_turn=each_turn)
        if rows and not any(row.mix for row in rows):
            whose = (e.run, e.trace.model)
            found.setdefault(e.task, {}).setdefault(whose, []).append(
                Rollout(e, tuple(rows), past=True)
            )
    return {task: list(groups.values()) for task, groups in found.items()}


def pass_fail(domain: Domain, memory: Any) -> bool:
    """Whether the domain's rewards are 0 and 1 only: it says so (`pass_fail = True`), or the train
    experience that memory holds of it, eight attempts at least, says so. memory: the
    workspace's."""
    if (says := extras(domain).pass_fail) is not None:
        return says
    known = memory.experiences(domain=domain.name, split="train", reader="optimizer")
    scores = [e.grade.score for e in islice(known, 64)]
    return len(scores) >= 8 and set(scores) <= {0.0, 1.0}


def longest_context(limits: AgentLimits, prompt: int, reply: int, shown: int) -> int:
    """The tokens that an attempt's last turn may have to hold, by the scaffold's limits: its first
    prompt, and a reply and what it was shown for every turn that `steps`, `extension` and `tokens`
    allow."""
    used = 0
    context = prompt
    most = prompt
    for _ in range(limits.turns):
        if used >= limits.tokens:
            break
        most = context + reply
        used = used + most
        context = most + shown
    return most


def refuse_if_too_long(
    scaffold: Scaffold,
    tasks: Sequence[Task],
    how: Recipe,
    *,
    window: int = 0,
    encode: Callable[[Sequence[Message]], Sequence[int]] | None = None,
) -> None:
    """Raise BadInput (`context-too-small`) where attempts within the scaffold's limits would not
    fit into the context that the recipe leaves them: they would end after a turn or two, and that
    would be trained on.

    window: the tokens that the model reads, 0: not known. encode: its chat template; without one a
    token is taken to be four characters.
    """
    train = how.train
    agent = scaffold.agent
    context = train.max_prompt + train.max_response
    context = min(context, window) if window else context
    task = max(tasks, key=lambda t: len(t.prompt))
    given = {"task": {"prompt": task.prompt}, "before": dict.fromkeys(agent.before, "")}
    first: list[Message] = [
        {"role": "system", "content": scaffold.render("system", **given)},
        {"role": "user", "content": scaffold.render("workflow", **given)},
    ]
    text = "".join(m["content"] for m in first)
    prompt = len(text) // 4
    each = 0.25
    if encode:
        prompt = len(encode(first))
        # tokens a character: of the text alone, without the marks of the template
        each = (
            len(encode([*first[:-1], {"role": "user", "content": first[-1]["content"] + text}]))
            - prompt
        ) / max(1, len(text))
    reply = min(train.max_response, agent.model.max_tokens)

    def needed(limits: AgentLimits) -> int:
        shown = math.ceil(limits.observation_chars * each)
        return longest_context(limits, prompt + len(agent.before) * shown, reply, shown)

    need = needed(agent.limits)
    if need <= context:
        return
    turns = next(
        (n for n in range(agent.limits.turns, 0, -1) if needed(_with(agent.limits, n)) <= context),
        0,
    )
    fixes = (
        [f"--set train.max_prompt={need - train.max_response}"]
        if not window or need <= window
        else []
    )
    fixes += [f"[limits] steps = {turns} in the scaffold's agent.toml"] if turns else []
    fixes += ["shorter observations there (observation_chars), or shorter replies (max_tokens)"]
    raise BadInput(
        f"{scaffold.name} may take {agent.limits.turns} turns and show"
        f" {agent.limits.observation_chars} characters after each, about {need} tokens with replies"
        f" of {reply}; the context has {context}"
        + (f" ({window} is all that the model reads)" if context == window else ""),
        fix="; or ".join(fixes),
        code="context-too-small",
    )


def _with(limits: AgentLimits, steps: int) -> AgentLimits:
    return limits.model_copy(update={"steps": steps, "extension": 0})


def sample_as(model: Model, how: Recipe) -> None:
    """Let a transformers model draw as the recipe says, whatever the scaffold asks for.

    temperature, top_p, top_k and the most tokens of a reply are the recipe's; with [lepo], its
    latent steps too.
    """
    if not isinstance(model, Transformers):
        return
    train = how.train
    model.override = {
        "temperature": train.temperature,
        "top_p": train.top_p,
        "top_k": train.top_k,
        "max_tokens": train.max_response,
    }
    model.context = min(model.context, train.max_prompt + train.max_response)
    model.draw = how.does("rollout") or token


class Served(ServedModel):
    """Answers as `base` would, from a server of its own that `update` keeps at the newest adapter.
    Many requests at once. A server that died is started again by the next call, and the calls that
    lost it are asked again.
    """

    def __init__(
        self,
        base: Transformers,
        folder: Path,
        engine: Engine,
        say: Callable[[str], None] = lambda text: None,
        *,
        vllm_python: str = "",
    ) -> None:
        super().__init__(
            base.name, base.source, ServeConfig(engine=engine, vllm_python=vllm_python)
        )
        self.base = base
        self.folder = folder
        self.say = say
        self._version = 0

    @property
    def override(self) -> JsonMap:
        return self.base.override

    def update(self, module: Any) -> None:
        """Answer with this module's adapter from now on. No request may be under way. A server that
        died is started.

        Raises BadInput for a module without one.
        """
        if not hasattr(module, "disable_adapter"):
            raise BadInput(
                "a server takes adapters only, and this recipe trains all weights",
                fix="set [train] lora_rank above 0, or take --rollouts here",
                code="no-adapter",
            )
        new = self.folder.with_name(f".{self.folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        module.save_pretrained(new)
        self.base.load()[1].save_pretrained(new)
        shutil.rmtree(self.folder, ignore_errors=True)
        new.rename(self.folder)
        with self._lock:
            if self._running is not None and self._running[0].alive():
                server, old = self._running
                try:
                    server.unload(old.model)
                    self._running = server, self._load(server)
                    old.close()
                    return
                except Fault:
                    if server.alive(DYING_SECONDS):
                        raise
            self._end()
            self._running = self._start()

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer, with the tokens that the server drew. Raises Transient (`server-died`) when
        it is gone, BadInput (`other-tokens`, `no-tokens`) when it reads the messages as other
        tokens than the trainer, or tells none: a fault would set those attempts aside and train on
        the rest; BadInput (`context-length`)."""
        prompt = self.base.encode(messages)
        asked = {**params, **self.base.override, "logprobs": True, "return_token_ids": True}
        asked["max_tokens"] = self.base.room(prompt, asked.get("max_tokens"))
        asked.pop("top_k", None)  # in `extra`: no parameter of OpenAI's
        reply = super().reply(messages, call, **asked)
        tokens = reply.token_ids, reply.logprobs, reply.prompt_ids
        if None in tokens or len(reply.token_ids or ()) != len(reply.logprobs or ()):
            raise BadInput(
                f"the {self.config.engine} server does not tell its tokens and their log-probs",
                fix="take vLLM 0.32 or newer, or --rollouts here",
                code="no-tokens",
            )
        if list(reply.prompt_ids or ()) != prompt:
            raise BadInput(
                f"the {self.config.engine} server reads the messages as other tokens than the"
                " trainer",
                fix=(
                    "are tokenizer and chat template of its transformers the same? else take"
                    " --rollouts here"
                ),
                code="other-tokens",
            )
        return reply.model_copy(update={"tokenizer_digest": self.base.tokenizer_digest})

    def _start(
        self, progress: Progress | None = None, say: Callable[[str], None] | None = None
    ) -> tuple[Server, OpenAI]:
        self.say(f"starting a server for rollouts ({self.config.engine})")
        module, _ = self.base.load()
        config = replace(
            self.config,
            context=self.base.context,
            share=0.4,  # the trainer is on the same GPU
            dtype=str(module.dtype).removeprefix("torch."),
            rank=int(adapter_config(self.folder).get("r", 0)),
            raw=self.base.override.get("temperature") in (None, 0, 1),
        )
        server = started(plan(self.base.source, config))
        try:
            return server, self._load(server)
        except BaseException:
            server.stop()
            raise

    def _load(self, server: Server) -> OpenAI:
        """A client of the newest adapter, which gets a name of its own."""
        self._version += 1
        name = f"policy-{self._version}"
        server.load(name, self.folder)
        # as `base` draws and says it: top_k 0 is all, and a stop mark is part of the answer
        extra = {"top_k": self.base.override.get("top_k") or -1, "include_stop_str_in_output": True}
        return OpenAI(f"{server.url}#{name}", price=FREE, key_env="", key=server.key, extra=extra)

"""In verl's own environment: what its registries, its config loading and its agent loop make of
ours.

pytest -m verl tests/plugins/rl/test_verl.py     verl.md says how that environment is made
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recreate.api.errors import BadInput
from recreate.cli import run as cli
from recreate.memory.held_out import Held, HeldOut
from recreate.plugins.rl import recipe
from recreate.plugins.rl.method import Method
from recreate.plugins.rl.verl.functions import method
from recreate.plugins.rl.verl.translate import RECIPE, VERSION
from tests.plugins.rl import tiny
from tests.plugins.rl.test_cluster import AGGREGATES, batch, micro

pytestmark = [pytest.mark.verl, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="session", autouse=True)
def _plugin() -> None:
    import verl

    import recreate.plugins.rl.verl.plugin  # noqa: F401  (what VERL_USE_EXTERNAL_MODULES imports)

    assert verl.__version__ == VERSION


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Method]:
    def named(tables: str) -> Method:
        file = tmp_path / f"{abs(hash(tables))}.toml"
        file.write_text(f'about = "a"\nsource = "b"\n{tables}')
        monkeypatch.setenv(RECIPE, str(file))
        return Method(recipe.load(file))

    return named


@pytest.fixture
def job(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """A run folder as the command writes it, for the tiny model."""
    tiny.model(workspace / "model")
    agents: dict[int, Path] = {}

    def write(
        name: str = "grpo",
        out: str = "run",
        turns: int = 2,
        file: Path | None = None,
        **train: object,
    ) -> Path:
        if turns not in agents:
            agents[turns] = tiny.agent(workspace / f"agent{turns}", steps=turns)
        file = file or tiny.small(name, workspace, **train)
        code = cli(
            [
                "tune",
                "--trainer",
                "verl",
                "--recipe",
                str(file),
                "--domain",
                "tests.plugins.rl.tiny:Letters",
                "--scaffold",
                str(agents[turns]),
                "--model",
                str(workspace / "model"),
                "--steps",
                "2",
                "--out",
                out,
                "--json",
            ]
        )
        told = json.loads(capsys.readouterr().out.splitlines()[-1])  # verl's dataset prints too
        assert code == 0, told
        monkeypatch.setenv(RECIPE, str(next((workspace / out / "recipe").iterdir())))
        return workspace / out

    return write


def test_the_names_are_ours_and_verls_own_are_left_alone() -> None:
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.v1 import get_trainer_cls

    from recreate.plugins.rl.verl.sync_trainer import Trainer

    added = {n for n in core_algos.ADV_ESTIMATOR_REGISTRY if "recreate" in n}
    assert added == {
        f"recreate_{n}" for n in ("grpo", "dr_grpo", "rloo", "gapo", "gigpo", "constant")
    }
    assert core_algos.get_adv_estimator_fn("grpo").__module__ == "verl.trainer.ppo.core_algos"
    losses = {n for n in core_algos.POLICY_LOSS_REGISTRY if "recreate" in n}
    assert losses == {"recreate_clip", "recreate_cispo", "recreate_log_likelihood"}
    assert get_trainer_cls("recreate") is Trainer


def test_the_trainers_hooks_are_still_verls() -> None:
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from recreate.plugins.rl.verl.sync_trainer import HOOKS

    for name, parameters in HOOKS.items():
        found = ", ".join(inspect.signature(getattr(PPOTrainerSync, name)).parameters)
        assert f"({found})" == parameters, name


@pytest.mark.parametrize("name", ["grpo", "dr-grpo", "rloo", "gapo"])
def test_verl_gets_our_advantages(name: str, use: Any) -> None:
    """Through verl's own `compute_advantage`, on random rewards and on the golden files' cases."""
    from verl.protocol import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    does = use(f"[{name}]\n")
    cases = [batch(seed) for seed in range(5)]
    golden = json.loads((Path(__file__).parent / "golden" / "gapo.json").read_text())[
        "advantage_cases"
    ]
    for case in golden:
        given = case["inputs"]
        rewards = torch.tensor([[float(v) for v in row] for row in given["token_level_rewards"]])
        mask = torch.tensor(given["response_mask"]).long()
        if bool(rewards.isfinite().all()):
            cases.append((rewards, mask, [str(i) for i in given["index"]]))
    assert len(cases) > 10
    for rewards, mask, index in cases:
        data = DataProto.from_dict(
            tensors={"token_level_rewards": rewards, "response_mask": mask},
            non_tensors={"uid": np.array(index, dtype=object)},
        )
        made = compute_advantage(
            data, adv_estimator=f"recreate_{name.replace('-', '_')}", config={}
        )
        from recreate.plugins.rl.parts.groups import grouped
        from recreate.plugins.rl.recipe import Rows

        wanted = does.advantages(Rows(rewards.sum(-1), grouped(index), mask.bool()))
        assert torch.equal(made.batch["advantages"], wanted)


def actor(**more: Any) -> Any:
    from verl.workers.config import FSDPActorConfig

    counts = more.pop("counts", {})
    made = FSDPActorConfig(strategy="fsdp", ppo_micro_batch_size_per_gpu=1, rollout_n=1, **more)
    made.global_batch_info.update(counts)
    return made


@pytest.mark.parametrize("over", AGGREGATES)
@pytest.mark.parametrize(
    ("ours", "theirs", "rule", "knobs"),
    [
        (
            "recreate_clip",
            "vanilla",
            "[clip]\nlow = 0.2\nhigh = 0.28\ndual = 3.0\n",
            {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0},
        ),
        (
            "recreate_clip",
            "gspo",
            "[sequence-ratio]\n[clip]\nlow = 0.1\nhigh = 0.2\n",
            {"clip_ratio_low": 0.1, "clip_ratio_high": 0.2},
        ),
        (
            "recreate_cispo",
            "cispo",
            "[cispo]\nlowest = 0.8\nhighest = 1.28\n",
            {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28},
        ),
    ],
)
def test_our_losses_are_verls_where_both_have_them(
    ours: str, theirs: str, rule: str, knobs: dict[str, float], over: str, use: Any
) -> None:
    """Values and gradients, alone and as one of four processes."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    use(f"{rule}[{over}]\n" + ("length = 7\n" if over == "constant-length" else ""))
    mode = AGGREGATES[over]
    scale = 7 if over == "constant-length" else None
    for counts in ({}, {"dp_size": 4, "batch_num_tokens": 123, "global_batch_size": 32}):
        given, weights = micro(), torch.rand(8, 5)
        config = actor(**knobs, loss_agg_mode=mode, counts={**counts, "loss_scale_factor": scale})
        found = []
        for name in (ours, theirs):
            value, watch = get_policy_loss_fn(name)(
                **given, loss_agg_mode=mode, config=config, rollout_is_weights=weights
            )
            (grad,) = torch.autograd.grad(value, given["log_prob"])
            found.append((value.detach(), grad, watch))
        assert torch.allclose(found[0][0], found[1][0], rtol=1e-5, atol=1e-7), counts
        assert torch.allclose(found[0][1], found[1][1], rtol=1e-5, atol=1e-7), counts
        for key in ("actor/pg_clipfrac", "actor/ppo_kl", "actor/pg_clipfrac_lower"):
            assert found[0][2][key] == pytest.approx(found[1][2][key], rel=1e-4, abs=1e-6), key


def test_steer_gets_the_old_policys_entropies_from_verls_batch(use: Any) -> None:
    """verl's ppo_loss on a batch as its v1 trainer keeps it: nested rows, `entropy` beside
    `old_log_probs`."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.losses import ppo_loss

    from recreate.plugins.rl.recipe import Tokens
    from recreate.plugins.rl.verl.functions import with_entropy

    does = use("[steer]\nleast = 0.7\n[token-mean]\n")
    lengths = (4, 2, 3)
    g = torch.Generator().manual_seed(0)

    def nested(make: Callable[[int], torch.Tensor]) -> torch.Tensor:
        return torch.nested.as_nested_tensor([make(n) for n in lengths], layout=torch.jagged)

    columns = {
        "prompts": nested(lambda n: torch.ones(2, dtype=torch.long)),
        "responses": nested(lambda n: torch.ones(n, dtype=torch.long)),
        "response_mask": nested(lambda n: torch.ones(n, dtype=torch.long)),
        "old_log_probs": nested(lambda n: -torch.rand(n, generator=g)),
        "advantages": nested(lambda n: torch.randn(n, generator=g)),
        "entropy": nested(lambda n: 2 * torch.rand(n, generator=g)),
    }
    data = TensorDict(columns, batch_size=3)
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=9, global_batch_size=3)
    # the model's pass gives a log-prob for every token of prompt and response; position t says
    # token t + 1
    log_prob = torch.nested.as_nested_tensor(
        [-torch.rand(n + 2, generator=g) for n in lengths], layout=torch.jagged
    )
    config = actor(loss_agg_mode="token-mean", policy_loss=policy("recreate_clip"))
    value, metrics = with_entropy(ppo_loss)(config, {"log_probs": log_prob}, data)
    padded = {
        k: v.to_padded_tensor(0.0) for k, v in columns.items() if k not in ("prompts", "responses")
    }
    taken = torch.nn.utils.rnn.pad_sequence(
        [row[1:-1] for row in log_prob.unbind()], batch_first=True
    )
    wanted = does.loss(
        Tokens(
            taken,
            padded["advantages"],
            padded["response_mask"].bool(),
            padded["old_log_probs"],
            entropy=padded["entropy"],
        )
    )
    assert float(value) == pytest.approx(float(wanted.value), rel=1e-5)
    assert "actor/token_weight" in metrics


def policy(mode: str) -> Any:
    from verl.workers.config import PolicyLossConfig

    return PolicyLossConfig(loss_mode=mode)


def composed(run: Path, *overrides: str) -> Any:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(config_dir=str(run), version_base=None):
        made = compose("verl", overrides=list(overrides))
    OmegaConf.resolve(made)
    return made


@pytest.mark.parametrize(
    "name", ["dapo", "dr-grpo", "gapo", "gigpo", "grpo", "gspo", "rloo", "sft-on-successes"]
)
def test_verl_takes_the_config_that_is_written(name: str, job: Any) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    made = composed(job(name, lora_rank=0), "trainer.n_gpus_per_node=1")
    validate_config(made, need_reference_policy(made), need_critic(made))
    how, asked = (
        recipe.load(next(Path(made.data.train_files).parent.glob("recipe/*.toml"))),
        made.actor_rollout_ref,
    )
    trained = omega_conf_to_dataclass(asked.actor)
    assert trained.optim.lr == how.train.learning_rate == 1e-3
    assert trained.loss_agg_mode == AGGREGATES[how.name_of("aggregate")]
    assert trained.policy_loss.loss_mode.startswith("recreate_")
    assert trained.use_kl_loss is ("kl" in how.parts) is need_reference_policy(made)
    assert omega_conf_to_dataclass(asked.rollout).n == how.train.group_size
    assert omega_conf_to_dataclass(made.algorithm.filter_groups).enable is (
        "dynamic-sampling" in how.parts
    )
    assert not need_critic(made)


class Servers:
    """Stands where verl's server client does: the tiny model answers, in this process, tokens in
    and tokens out."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.module = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.asked: list[tuple[list[int], dict[str, Any]]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.asked.append((prompt_ids, sampling_params))
        ids, told = list(prompt_ids), []
        with torch.no_grad():
            for _ in range(sampling_params["max_tokens"]):
                logits = self.module(input_ids=torch.tensor([ids])).logits[0, -1]
                logp = (logits / sampling_params["temperature"]).log_softmax(-1)
                taken = int(torch.multinomial(logp.exp(), 1))
                ids.append(taken)
                told.append(float(logp[taken]))
                if taken == self.tokenizer.eos_token_id:
                    break
        made = ids[len(prompt_ids) :]
        return TokenOutput(
            token_ids=made,
            log_probs=told,
            stop_reason="completed",
            extra_fields={"global_steps": 7},
        )


@pytest.fixture
def roll(job: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Make rollouts as verl's worker does, by the registry and by hydra: (outputs of each, the
    stub, the run)."""
    import hydra
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from recreate.plugins.rl.verl import agent_loop as attempts

    attempts.worker.cache_clear()

    def call(
        n: int = 3,
        name: str = "grpo",
        turns: int = 2,
        out: str = "run",
        held: Sequence[Held] = (),
        **train: object,
    ) -> Any:
        run = job(name, turns=turns, out=out, **train)
        HeldOut(run.parent / "memory").add(held)
        config = composed(run)
        servers = Servers(Path(config.actor_rollout_ref.model.path))
        found = next(c for c in OmegaConf.load(run / "agent.yaml") if c.name == "recreate")
        data = RLHFDataset(config.data.train_files, servers.tokenizer, config.data)

        async def one(session: int) -> Any:
            loop = hydra.utils.instantiate(
                config=found,
                trainer_config=DictConfigWrap(config),
                server_manager=servers,
                tokenizer=servers.tokenizer,
                processor=None,
                hf_model_type="qwen2",
                dataset_cls=RLHFDataset,
                data_config=DictConfigWrap(config.data),
            )
            row = {**data[0], "uid": "u", "session_id": session, "global_steps": 7}
            return await loop.run(
                {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0}, **row
            )

        async def all_of_them() -> Any:
            return await asyncio.gather(*(one(session) for session in range(n)))

        return asyncio.run(all_of_them()), servers, run

    yield call
    attempts.worker.cache_clear()


def test_a_rollout_is_an_attempt(roll: Any, workspace: Path) -> None:
    """In sandboxes, of two turns: what the policy chose is what the servers drew; the rest is
    masked out."""
    from recreate.memory.store import ExperienceStore

    outputs, servers, _ = roll(n=4)
    drawn = {tuple(p) for p, _ in servers.asked}
    attempted = {e.id: e for e in ExperienceStore(workspace).experiences(domain="letters")}
    assert len(attempted) == 4
    assert {e.split for e in attempted.values()} == {"train"}
    assert len(servers.asked) == 8
    for attempt in outputs:
        assert attempt
        e = attempted[attempt[0].extra_fields["attempt"]]
        assert e.trace.model.endswith(".7")
        chosen = [t for s in e.trace.steps if s.tokens for t in s.tokens.reply]
        kept = [
            t for o in attempt for t, m in zip(o.response_ids, o.response_mask, strict=True) if m
        ]
        assert kept == chosen
        for o in attempt:
            assert tuple(o.prompt_ids) in drawn
            assert len(o.response_ids) == len(o.response_mask) == len(o.response_logprobs)
            assert o.reward_score == e.grade.score
            assert all(
                p == 0 for p, m in zip(o.response_logprobs, o.response_mask, strict=True) if not m
            )
            assert (o.extra_fields["min_global_steps"], o.extra_fields["max_global_steps"]) == (
                7,
                7,
            )
            assert o.extra_fields["reward_extra_info"]["acc"] == float(e.grade.passed)
            # the log-probs are the model's own of the whole row, observations and all
            ids = torch.tensor([o.prompt_ids + o.response_ids])
            with torch.no_grad():
                logp = servers.module(input_ids=ids).logits[0].log_softmax(-1)
            at = torch.arange(len(o.prompt_ids) - 1, ids.shape[1] - 1)
            own = logp[at, torch.tensor(o.response_ids)]
            mask = torch.tensor(o.response_mask).bool()
            assert torch.allclose(own[mask], torch.tensor(o.response_logprobs)[mask], atol=1e-4)
    assert all(p["max_tokens"] == 6 and p["logprobs"] is True for _, p in servers.asked)


def test_a_second_run_alike_remembers_what_it_lived_too(roll: Any, workspace: Path) -> None:
    from recreate.memory.store import ExperienceStore

    attempted = [
        o[0].extra_fields["attempt"] for out in ("run", "again") for o in roll(n=2, out=out)[0]
    ]
    assert len(set(attempted)) == 4
    assert {e.id for e in ExperienceStore(workspace).experiences(domain="letters")} == set(
        attempted
    )


def test_a_task_that_was_held_out_since_is_not_trained_on(roll: Any, workspace: Path) -> None:
    with pytest.raises(BadInput, match="letters:train:0 is held out") as told:
        roll(n=1, held=[Held("train-0", "letters:test:0", "test", "letters")])
    assert told.value.code == "held-out"
    assert told.value.fix


def test_gigpo_gets_a_row_a_turn_with_what_it_answered(roll: Any) -> None:
    outputs, *_ = roll(n=2, name="gigpo", turns=3)
    for attempt in outputs:
        assert len(attempt) == 3
        assert all(all(o.response_mask) for o in attempt)
        assert attempt[0].extra_fields["anchor"] == "0: t"
        assert [o.extra_fields["anchor"] for o in attempt[1:]] == ["ok\n"] * 2


def test_a_prompt_that_leaves_no_room_ends_the_attempt_at_its_limit(roll: Any) -> None:
    outputs, servers, _ = roll(n=1, turns=8, max_prompt=60)
    (attempt,) = outputs
    assert attempt[0].extra_fields["reward_extra_info"]["limit"] == 1.0
    assert all(len(p) + q["max_tokens"] <= 66 for p, q in servers.asked)
    assert len(servers.asked) < 8


class Queue:
    """Stands in for TransferQueue, in this process: rows by key, columns always nested."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, dict[str, Any]] = {}

    def kv_batch_get(
        self, keys: list[str], partition_id: str, select_fields: list[str] | None = None
    ) -> Any:
        from tensordict import NonTensorStack, TensorDict

        names = [
            n for n in select_fields or self.rows[keys[0]] if all(n in self.rows[k] for k in keys)
        ]
        columns = {}
        for name in names:
            values = [self.rows[k][name] for k in keys]
            columns[name] = (
                torch.nested.as_nested_tensor(values, layout=torch.jagged)
                if all(isinstance(v, torch.Tensor) for v in values)
                else NonTensorStack(*values)
            )
        return TensorDict(columns, batch_size=len(keys))

    def kv_batch_put(
        self, keys: list[str], partition_id: str, fields: Any = None, tags: Any = None
    ) -> Any:
        from transfer_queue import KVBatchMeta

        for name in fields.keys():  # noqa: SIM118 (iterating a TensorDict gives rows)
            column = fields[name]
            values = column.unbind() if isinstance(column, torch.Tensor) else list(column)
            for key, value in zip(keys, values, strict=True):
                self.rows.setdefault(key, {})[name] = value
        for key, tag in zip(keys, tags or [], strict=False):
            self.tags[key] = dict(tag)
        known = sorted(set.intersection(*(set(self.rows[k]) for k in keys)))
        return KVBatchMeta(
            keys=keys, tags=[self.tags[k] for k in keys], partition_id=partition_id, fields=known
        )


class Steps:
    """Our trainer between rollouts and the actor's update, without Ray: verl's own functions on
    `Queue`."""

    def __init__(self, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        from verl.trainer.ppo import padding_utils
        from verl.trainer.ppo.v1 import trainer_base

        from recreate.plugins.rl.verl import sync_trainer as trainer
        from recreate.plugins.rl.verl.functions import chosen, method

        self.queue = Queue()
        for module in (padding_utils, trainer_base, trainer):
            monkeypatch.setattr(module, "tq", self.queue)
        self.trainer: Any = object.__new__(trainer.Trainer)
        vars(self.trainer).update(
            config=config,
            how=chosen(),
            replay=method().replay(0),
            again={},
            global_steps=0,
            steps_per_epoch=1,
            use_critic=False,
            actor_rollout_wg=self,
            tokenizer=type("T", (), {"eos_token_id": 2}),
        )
        self._dispatch_info = {"actor": [0]}

    def compute_log_prob(self, batch: Any) -> Any:
        """The policy's log-probs and entropies of every token, which drift from step to step."""
        for key in batch.keys:
            ids = self.queue.rows[key]["input_ids"].float()
            drift = 0.02 * self.trainer.global_steps * torch.sin(ids)
            self.queue.rows[key] |= {"log_probs": -1 - ids / 100 + drift, "entropy": 2 + ids / 100}
        return batch

    def take(self, attempts: list[tuple[str, float, int]]) -> tuple[Any, dict[str, Any]]:
        """One training step of (task, reward, rows) attempts: the batch as the actor gets it, and
        metrics."""
        from transfer_queue import KVBatchMeta

        self.trainer.global_steps += 1
        step = self.trainer.global_steps
        g = torch.Generator().manual_seed(step)
        keys = []
        for n, (task, reward, count) in enumerate(attempts):
            for turn in range(count):
                prompt, response = (
                    torch.randint(3, 90, (k,), generator=g) for k in (4 + turn, 2 + n % 3)
                )
                scores = torch.zeros(len(response))
                scores[-1] = reward
                ones = torch.ones(len(response), dtype=torch.long)
                keys.append(f"uid{task}_{n}_{turn}")
                self.queue.rows[keys[-1]] = {
                    "prompts": prompt,
                    "responses": response,
                    "input_ids": torch.cat([prompt, response]),
                    "position_ids": torch.arange(len(prompt) + len(response)),
                    "response_mask": ones,
                    "loss_mask": ones,
                    "rm_scores": scores,
                    "rollout_log_probs": -torch.ones(len(response)),
                    "uid": f"uid{task}",
                    "session_id": n,
                    "task": task,
                    "num_turns": 2,
                    "extra_fields": {"anchor": f"seen {turn}"},
                }
                size = len(prompt) + len(response)
                self.queue.tags[keys[-1]] = {
                    "seq_len": size,
                    "min_global_steps": step,
                    "max_global_steps": step,
                }
        metrics: dict[str, Any] = {}
        batch = KVBatchMeta(
            keys=keys, tags=[self.queue.tags[k] for k in keys], partition_id="train"
        )
        for stage in (
            self.trainer._balance_batch,
            self.trainer._compute_old_log_prob,
            self.trainer._compute_advantage,
        ):
            batch = stage(batch, metrics)
        return batch, metrics


ATTEMPTS = [
    ("a", 1.0, 1),
    ("a", 0.25, 2),
    ("a", 0.0, 1),
    ("b", 0.5, 1),
    ("b", 0.5, 1),
    ("b", 1.0, 3),
]


def test_a_step_counts_attempts_and_replays_what_was_ambiguous(
    job: Any, monkeypatch: Any, workspace: Path
) -> None:
    file = workspace / "mine.toml"
    file.write_text(
        'about = "a"\nsource = "b"\n[train]\ngroup_size = 3\nprompts = 2\n[grpo]\n[a2r]\nshare ='
        " 0.5\n[token-mean]\n"
    )
    steps = Steps(composed(job(file=file)), monkeypatch)
    own = torch.tensor([1.0, 0.25, 0.0])
    wanted = {
        f"uida_{n}": v for n, v in enumerate(((own - own.mean()) / (own.std() + 1e-6)).tolist())
    }
    for step in (1, 2):
        batch, metrics = steps.take(
            ATTEMPTS if step == 1 else [(t, 1 - r, n) for t, r, n in ATTEMPTS]
        )
        assert metrics["a2r/replayed"] == 0
        assert len(batch) % 6 == 0  # verl fills up to whole mini-batches
        assert {"advantages", "entropy", "old_log_probs", "rollout_is_weights"} <= set(batch.fields)
        for key in batch.keys:
            row, name = steps.queue.rows[key], key.rpartition("_")[0]
            assert bool((row["rollout_is_weights"] == 1).all())
            if name in wanted:
                assert torch.allclose(
                    row["advantages"], torch.tensor(wanted[name] * (1 if step == 1 else -1))
                )
    kept = {task: steps.trainer.replay.stored[task] for task in ("a", "b")}
    assert {
        t: [v for _, v in sorted(h.items())] for t, h in steps.trainer.replay.histories.items()
    } == {
        "a": pytest.approx([1.25 / 3, 1.75 / 3]),
        "b": pytest.approx([2 / 3, 1 / 3]),
    }
    batch, metrics = steps.take(ATTEMPTS)
    assert metrics["a2r/replayed"] in (4, 5)  # all rows of one task: of b, 5; of a, 4
    again = dict(steps.trainer.again)
    (task,) = {s.task for s in again.values()}
    behaviour = [kept[task].behaviour[n][: len(s.response)] for n, s in enumerate(again.values())]
    for (key, sample), old in zip(again.items(), behaviour, strict=True):
        row = steps.queue.rows[key]
        assert torch.equal(row["old_log_probs"], old)
        assert torch.equal(row["advantages"], sample.advantages)
        now = row["log_probs"][-len(old) - 1 : -1]  # position t says token t + 1
        away = (now - old).exp() - 1 - (now - old)
        assert torch.allclose(row["rollout_is_weights"], (-away.mean()).exp())
        assert 0 < float(row["rollout_is_weights"][0]) < 1
        assert steps.queue.tags[key]["is_padding"] is True
    # what the servers sampled by is told of fresh rows only
    apart = [
        (
            steps.queue.rows[k]["old_log_probs"].exp()
            - steps.queue.rows[k]["rollout_log_probs"].exp()
        ).abs()
        for k in batch.keys
        if not steps.queue.tags[k].get("is_padding")
    ]
    assert metrics["training/rollout_probs_diff_mean"] == pytest.approx(
        float(torch.cat(apart).mean()), rel=1e-4
    )
    for key in batch.keys:  # fresh rows are as without replay
        if key.rpartition("_")[0] in wanted:
            assert torch.allclose(
                steps.queue.rows[key]["advantages"], torch.tensor(wanted[key.rpartition("_")[0]])
            )
            assert bool((steps.queue.rows[key]["rollout_is_weights"] == 1).all())


def test_what_is_replayed_is_on_disk_before_verl_names_the_checkpoint(
    job: Any, monkeypatch: Any, workspace: Path
) -> None:
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    file = workspace / "mine.toml"
    file.write_text(
        'about = "a"\nsource = "b"\n[train]\nprompts = 2\n[grpo]\n[a2r]\n[token-mean]\n'
    )
    steps = Steps(composed(job(file=file)), monkeypatch)
    steps.take(ATTEMPTS)
    found: list[str] = []

    def save(trainer: Any) -> None:
        place = Path(trainer.config.trainer.default_local_dir) / "global_step_1"
        found.extend(sorted(p.name for p in place.iterdir()))

    monkeypatch.setattr(PPOTrainerSync, "_save_checkpoint", save)
    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", lambda trainer: None)
    steps.trainer._save_checkpoint()
    assert found == ["replay.json", "replay.safetensors"]
    stored, steps.trainer.replay = steps.trainer.replay, method().replay(0)
    steps.trainer._load_checkpoint()
    assert steps.trainer.replay.histories == stored.histories


def test_rows_that_a_filter_leaves_out_are_not_counted(job: Any, monkeypatch: Any) -> None:
    steps = Steps(composed(job("sft-on-successes")), monkeypatch)
    batch, _ = steps.take([("a", 0.05, 2), ("a", 0.9, 1), ("b", 0.3, 1)])
    counted = {k: int(steps.queue.rows[k]["loss_mask"].sum()) for k in batch.keys}
    assert counted["uida_0_0"] == counted["uida_0_1"] == 0  # below the threshold, 0.1
    assert counted["uida_1_0"] > 0 < counted["uidb_2_0"]
    assert all(
        bool((steps.queue.rows[k]["advantages"] == (counted[k] > 0)).all()) for k in batch.keys
    )


def test_gigpos_steps_reach_it_through_the_trainer(job: Any, monkeypatch: Any) -> None:
    from recreate.plugins.rl.parts.groups import grouped
    from recreate.plugins.rl.recipe import Rows

    steps = Steps(composed(job("gigpo")), monkeypatch)
    attempts = [("a", 1.0, 2), ("a", 0.0, 2), ("a", 0.25, 2)]
    steps.take(attempts)
    rows = [
        (n, turn, reward) for n, (_, reward, count) in enumerate(attempts) for turn in range(count)
    ]
    known = Rows(
        torch.tensor([r for *_, r in rows]),
        grouped([0] * 6),
        torch.ones(6, 1, dtype=torch.bool),
        trajectories=grouped([n for n, *_ in rows]),
        anchors=[f"seen {turn}" for _, turn, _ in rows],
    )
    wanted = Method(steps.trainer.how).row_advantages(known)
    for (n, turn, _), value in zip(rows, wanted.tolist(), strict=True):
        found = steps.queue.rows[f"uida_{n}_{turn}"]["advantages"]
        assert torch.allclose(found, torch.tensor(value), atol=1e-6)

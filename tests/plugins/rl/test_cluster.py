"""`recreate tune --trainer verl`, and our advantages and losses as verl's registries call them,
without verl."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from recreate.api.errors import BadInput, RecreateError, Transient
from recreate.api.types import Call
from recreate.cli import run as cli
from recreate.plugins.rl import recipe
from recreate.plugins.rl.method import Method
from recreate.plugins.rl.parts import losses
from recreate.plugins.rl.parts.a2r import A2R
from recreate.plugins.rl.parts.gapo import GAPO
from recreate.plugins.rl.parts.groups import grouped
from recreate.plugins.rl.parts.steer import STEER
from recreate.plugins.rl.recipe import Rows, Tokens
from recreate.plugins.rl.verl import functions
from recreate.plugins.rl.verl.translate import RECIPE, Cluster, config, refuse, registered, sizes
from tests.plugins.rl import tiny

pytestmark = [pytest.mark.rl, pytest.mark.filterwarnings("ignore")]
WITH_VERL = ("dapo", "dr-grpo", "gapo", "gigpo", "grpo", "gspo", "rloo", "sft-on-successes")


def made(
    workspace: Path, *flags: str, capsys: pytest.CaptureFixture[str], **train: object
) -> tuple[int, Any]:
    """Run the command for a recipe of its own: (exit code, the JSON object)."""
    if not (workspace / "agent").exists():
        tiny.agent(workspace / "agent")
        (workspace / "model").mkdir()
        (workspace / "model" / "config.json").write_text("{}")
    named = flags[0] if flags and not flags[0].startswith("-") else "gapo"
    file = tiny.small(named, workspace, **train)
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
            str(workspace / "agent"),
            "--model",
            str(workspace / "model"),
            "--steps",
            "4",
            "--out",
            "run",
            "--json",
            *[f for f in flags if f != named],
        ]
    )
    return code, json.loads(capsys.readouterr().out)


def test_the_run_folder_holds_all_that_verl_starts_from(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = made(workspace, "gapo", "--seed", "3", capsys=capsys)
    assert code == 0, told
    run = workspace / "run"
    assert told["run"] == str(run)
    assert told["tasks"] == told["validation"] == 3
    rows = [json.loads(line) for line in (run / "train.jsonl").read_text().splitlines()]
    assert [r["task"] for r in rows] == [f"letters:train:{n}" for n in range(3)]
    assert {r["split"] for r in rows} == {"train"}
    assert rows[0]["prompt"] == [{"role": "user", "content": "0: t"}]
    assert recipe.load(run / "recipe" / "gapo-small.toml").part("advantage") == GAPO()
    assert (run / "scaffold" / "tools" / "put.py").is_file()
    assert tomllib.loads((run / "settings.toml").read_text())["model"] == str(workspace / "model")
    yaml = (run / "verl.yaml").read_text()
    for line in (
        "adv_estimator: recreate_gapo",
        "loss_mode: recreate_clip",
        "lr: 0.001",
        "n: 3",
        "trainer_mode: recreate",
        "use_kl_loss: true",
        "kl_loss_coef: 0.01",
        "seed: 3",
        "total_training_steps: 4",
        "max_model_len: 518",
    ):
        assert line in yaml, line
    assert str(run) in (run / "agent.yaml").read_text()
    # the script is one that bash reads; an interpreter that is there already is taken, and told
    # what to run
    stand_in = workspace / "env" / "bin" / "python"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text('#!/bin/sh\necho "$VERL_USE_EXTERNAL_MODULES $VERL_RECREATE_RECIPE $@"\n')
    stand_in.chmod(0o755)
    said = subprocess.run(
        ["bash", run / "run.sh", "trainer.nnodes=2"],
        env={"VERL_ENV": str(workspace / "env"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.split() == [
        "recreate.plugins.rl.verl.plugin",
        str(run / "recipe" / "gapo-small.toml"),
        "-m",
        "verl.trainer.main_ppo",
        "--config-path",
        str(run),
        "--config-name",
        "verl",
        "trainer.nnodes=2",
    ]
    code, told = made(workspace, "gapo", capsys=capsys)
    assert (code, told["error"]["code"]) == (2, "run-exists")


def test_an_environment_that_was_half_made_is_made_again(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(workspace, "gapo", capsys=capsys)
    uv = workspace / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f"""#!/bin/bash
echo "$1" >> {workspace}/asked
if [ "$1" = pip ]; then test -e {workspace}/online; exit; fi
mkdir -p "${{@: -1}}/bin" && cd "${{@: -1}}/bin" && printf '#!/bin/sh\necho started\n' > python && \
chmod +x python
""")
    uv.chmod(0o755)

    def start() -> tuple[bool, list[str]]:
        (workspace / "asked").write_text("")
        done = subprocess.run(
            ["bash", workspace / "run" / "run.sh"],
            env={"PATH": f"{uv.parent}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout == "started\n", (workspace / "asked").read_text().split()

    # no network: there is a python by now, and nothing in it
    assert start() == (False, ["venv", "pip"])
    (workspace / "online").touch()
    assert start() == (True, ["venv", "pip"])
    assert start() == (True, [])


def test_what_a_cluster_does_otherwise_is_said(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = made(workspace, "gapo", capsys=capsys, prompts=8, mini_batches=16, warmup_steps=10)
    assert code == 0
    said = " ".join(told["notes"])
    assert "3 tasks a step in place of 8" in said
    assert "3 mini-batches a step in place of 16" in said
    assert "warmup_steps = 10" in said


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("lepo", {}, "[lepo]"),
        ("simpo-on-pairs", {}, "[simpo]"),
        ("gapo+steer+a2r", {}, 'scope = "mini"'),
        ("gapo+steer+a2r", {"steer": STEER(form="full")}, 'form = "full"'),
        ("gapo+steer+a2r", {"steer": STEER(), "a2r": A2R(rollouts="fresh")}, 'rollouts = "fresh"'),
        (
            "sft-on-successes",
            {"token-mean": None, "sequence-mean": losses.SequenceMean()},
            "[successes]",
        ),
    ],
)
def test_what_verl_cannot_do_is_refused(name: str, change: dict[str, Any], named: str) -> None:
    how = recipe.load(name)
    parts = {k: v for k, v in {**how.parts, **change}.items() if v is not None}
    with pytest.raises(BadInput, match="with verl") as told:
        refuse(how.model_copy(update={"parts": parts}))
    assert named in told.value.message
    assert told.value.code == "not-with-verl"
    assert told.value.fix


def test_flags_of_one_machine_are_refused(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags in (["--max-kl", "1"], ["--rollouts", "vllm"], ["--budget", "1usd"]):
        code, told = made(workspace, *flags, capsys=capsys)
        assert (code, told["error"]["code"]) == (2, "not-with-verl"), flags
    assert not (workspace / "run").exists()


def test_a_job_is_written_with_what_was_set_and_warns_as_one_machine_does(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (
        "--domain",
        "tests.plugins.rl.tiny:PassFail",
        "--set",
        "train.lr=2e-5",
        "--set",
        "kl.weight=0.5",
    )
    code, told = made(workspace, "gapo", *flags, capsys=capsys)
    assert code == 0, told
    assert any("rewards are 0 and 1 only" in note for note in told["notes"])
    yaml = (workspace / "run" / "verl.yaml").read_text()
    assert "lr: 2.0e-05" in yaml
    assert "kl_loss_coef: 0.5" in yaml
    assert recipe.load(workspace / "run" / "recipe" / "gapo-small.toml").train.rate == 2e-5
    file = workspace / "agent" / "agent.toml"
    file.write_text(file.read_text().replace("observation_chars = 100", "observation_chars = 8000"))
    code, said = made(workspace, "gapo", "--out", "other", capsys=capsys)
    assert (code, said["error"]["code"]) == (2, "context-too-small")
    assert not (workspace / "other").exists()


def test_a_steps_tasks_are_cut_evenly() -> None:
    sized = recipe.load("gapo", ("train.mini_batches=16", "train.prompts=12"))
    assert sizes(sized, 100) == (12, 12)
    assert sizes(sized, 5) == (5, 5)
    many = config(
        sized, Cluster(Path("/r"), Path("/w"), "/m", tasks=100, validation=False, steps=20)
    )
    assert many["actor_rollout_ref"]["actor"]["ppo_mini_batch_size"] == 1
    assert many["trainer"]["total_epochs"] == 3  # 100 tasks are 8 steps of 12
    assert many["data"]["val_files"].endswith("train.jsonl")


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Train with this recipe: the name of a shipped one, or tables."""

    def use(named: str) -> Method:
        if named not in recipe.names():
            file = tmp_path / f"{abs(hash(named))}.toml"
            file.write_text(f'about = "a"\nsource = "b"\n{named}')
            named = str(file)
        monkeypatch.setenv(RECIPE, named)
        return Method(recipe.load(named))

    return use


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """verl's (token_level_rewards, response_mask, index): 12 rows of 6 tokens, the reward on the
    last one."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 7, (12, 1), generator=g)
    mask = (torch.arange(6) < lengths).long()
    rewards = torch.zeros(12, 6).scatter_(
        1, lengths - 1, torch.randint(0, 5, (12, 1), generator=g) / 4
    )
    order = torch.randperm(12, generator=g)
    return rewards, mask, [f"task{int(n) % 3}" for n in order]


@pytest.mark.parametrize(
    "name", ["grpo", "dr-grpo", "rloo", "gapo", "dapo", "gspo", "sft-on-successes"]
)
def test_advantages_are_the_methods_own(name: str, recipes: Any) -> None:
    does = recipes(name)
    rewards, mask, index = batch()
    got, returns = functions.estimator(does.recipe.name_of("advantage"))(
        rewards, mask, None, index=index
    )
    r, groups = rewards.sum(-1), grouped(index)
    rows = Rows(does.shaped(r, mask.sum(-1)), groups, mask.bool())
    keep = does.keep(Rows(r, groups, mask.bool()))
    assert torch.equal(got, torch.where(keep.unsqueeze(-1), does.advantages(rows), 0.0))
    assert torch.equal(got, returns)
    if name == "gapo":
        with pytest.raises(BadInput, match="stands gapo"):
            functions.estimator("grpo")(rewards, mask, None, index=index)


def test_an_attempt_of_several_rows_counts_once(recipes: Any) -> None:
    """Three attempts at a task, one of three rows: whole, in an order that balancing of processes
    might give."""
    recipes("[grpo]\n")
    r = torch.tensor([1.0, 0.0, 1.0, 0.5, 1.0]).unsqueeze(-1)
    of, turn = ["a", "b", "a", "c", "a"], [2, 0, 0, 0, 1]
    estimate = functions.estimator("grpo")
    with functions.attempt_rows(functions.AttemptRows(of, turn, [])):
        got, _ = estimate(r, torch.ones(5, 1), None, index=["t"] * 5)
    once, _ = estimate(torch.tensor([[1.0], [0.0], [0.5]]), torch.ones(3, 1), None, index=["t"] * 3)
    assert torch.equal(got, once[[0, 1, 0, 2, 0]])
    # verl's own trainers
    assert not torch.equal(got, estimate(r, torch.ones(5, 1), None, index=["t"] * 5)[0])


def test_gigpo_knows_whose_step_a_row_is(recipes: Any) -> None:
    does = recipes("gigpo")
    turns = [
        ("a", 0, "start"),
        ("a", 1, "door"),
        ("b", 0, "start"),
        ("b", 1, "wall"),
        ("c", 0, "start"),
    ]
    r = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.25])
    ones = torch.ones(5, 1, dtype=torch.bool)
    wanted = does.row_advantages(
        Rows(
            r,
            grouped(["t"] * 5),
            ones,
            trajectories=grouped([t[0] for t in turns]),
            anchors=[t[2] for t in turns],
        )
    )
    order = [3, 0, 4, 2, 1]
    shown = [turns[n] for n in order]
    estimate = functions.estimator("gigpo")
    with functions.attempt_rows(
        functions.AttemptRows([t[0] for t in shown], [t[1] for t in shown], [t[2] for t in shown])
    ):
        got, _ = estimate(r[order].unsqueeze(-1), ones, None, index=["t"] * 5)
    assert torch.allclose(got.squeeze(-1), wanted[order])
    with pytest.raises(BadInput, match="whose step"):
        estimate(r.unsqueeze(-1), ones, None, index=["t"] * 5)


class Actor:
    """What a loss reads of verl's actor config."""

    def __init__(self, **counts: Any) -> None:
        self.global_batch_info = counts


def micro(seed: int = 0) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    old = -2 * torch.rand(8, 5, generator=g) - 0.1
    return {
        "old_log_prob": old,
        "log_prob": (old + 0.4 * torch.randn(8, 5, generator=g)).requires_grad_(),
        "advantages": torch.randn(8, 5, generator=g),
        "response_mask": torch.arange(5) < torch.randint(0, 6, (8, 1), generator=g),
    }


AGGREGATES = {
    "token-mean": losses.TokenMean.verl_mode,
    "token-sum": losses.TokenSum.verl_mode,
    "sequence-mean": losses.SequenceMean.verl_mode,
    "sequence-sum": losses.SequenceSum.verl_mode,
    "constant-length": losses.ConstantLength.verl_mode,
}


@pytest.mark.parametrize("over", AGGREGATES)
@pytest.mark.parametrize(
    "rule", ["[clip]\nhigh = 0.28\ndual = 3.0\n", "[cispo]\n", "[sequence-ratio]\n[clip]\n"]
)
def test_losses_of_all_processes_are_the_loss_of_the_whole(
    rule: str, over: str, recipes: Any
) -> None:
    """Cut into two processes of two micro-batches each, gradients averaged over processes as verl
    does."""
    does = recipes(f"{rule}[{over}]\n")
    given = micro()
    tokens = Tokens(
        given["log_prob"],
        given["advantages"],
        given["response_mask"],
        given["old_log_prob"],
        tokens=float(given["response_mask"].sum()),
        rows=8.0,
    )
    whole = does.loss(tokens).value
    (wanted,) = torch.autograd.grad(whole, given["log_prob"])
    actor = Actor(
        dp_size=2, batch_num_tokens=int(given["response_mask"].sum()), global_batch_size=8
    )
    call = functions.policy_loss(does.recipe.name_of("policy loss"))
    parts = [
        call(
            **{k: v[n : n + 2] for k, v in given.items()},
            loss_agg_mode=AGGREGATES[over],
            config=actor,
        )[0]
        for n in range(0, 8, 2)
    ]
    total = sum(parts[1:], parts[0]) / 2
    (got,) = torch.autograd.grad(total, given["log_prob"])
    assert float(total) == pytest.approx(float(whole), rel=1e-5, abs=1e-7)
    assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-7)


def test_weights_of_rows_and_tokens_multiply_the_loss(recipes: Any) -> None:
    does = recipes("[steer]\nleast = 0.7\n[token-mean]\n")
    given, weights = micro(), torch.rand(8, 1).expand(8, 5).contiguous()
    entropies = 2 * torch.rand(8, 5)
    call = functions.policy_loss("clip")
    with pytest.raises(BadInput, match="entropies"):
        call(**given, config=Actor())
    with functions.entropy(entropies):
        got, watch = call(**given, config=Actor(), rollout_is_weights=weights)
    wanted = does.loss(
        Tokens(
            given["log_prob"],
            given["advantages"],
            given["response_mask"],
            given["old_log_prob"],
            entropy=entropies,
            importance_weight=weights[:, 0],
        )
    )
    assert float(got) == float(wanted.value)
    assert watch["actor/pg_clipfrac"] == pytest.approx(float(wanted.watch["clip"]))
    assert 0.7 <= watch["actor/token_weight"] <= 1
    with pytest.raises(BadInput, match="aggregates by token-mean"):
        call(**given, config=Actor(), loss_agg_mode="seq-mean-token-mean")


@pytest.mark.parametrize(
    ("fails", "raised"),
    [
        (ConnectionError("gone"), Transient),
        (TypeError("no such argument"), TypeError),
        (AttributeError("no such name"), AttributeError),
        (BadInput("no", fix="yes"), BadInput),
    ],
)
def test_only_what_may_pass_is_asked_of_the_servers_again(
    fails: Exception, raised: type[Exception], workspace: Path
) -> None:
    from transformers import AutoTokenizer

    from recreate.plugins.rl.verl.model import Rolled

    tokenizer = AutoTokenizer.from_pretrained(tiny.model(workspace / "model"))

    async def generate(*_: Any, **__: Any) -> Any:
        raise fails

    async def ask() -> None:
        model = Rolled(
            "verl:m",
            tokenizer,
            generate,
            asyncio.get_running_loop(),
            sampling={},
            context=99,
            longest=6,
            request="r",
        )
        call = Call(run="r", attempt="a", step=0, role="agent", phase="train", task="t")
        await asyncio.to_thread(model.reply, [{"role": "user", "content": "a"}], call)

    with pytest.raises(raised) as told:
        asyncio.run(ask())
    assert type(told.value) is raised
    assert not isinstance(told.value, RecreateError) or told.value.fix


def test_without_a_recipe_it_is_said_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RECIPE, raising=False)
    with pytest.raises(BadInput, match=RECIPE):
        functions.estimator("grpo")(*batch()[:2], None, index=batch()[2])


def test_without_verl_its_plugin_says_what_to_install() -> None:
    from importlib.util import find_spec

    if find_spec("verl") is not None:
        return
    with pytest.raises(BadInput, match="verl is not installed") as told:
        import recreate.plugins.rl.verl.plugin  # noqa: F401
    assert "verl[vllm]==0.9.1" in told.value.fix


def test_every_shipped_recipe_is_trained_or_refused_with_a_way_out() -> None:
    place = Cluster(Path("/r"), Path("/w"), "/m", tasks=16, validation=True, steps=2)
    for name in recipe.names():
        how = recipe.load(name)
        if name in WITH_VERL:
            made = config(how, place)
            assert made["algorithm"]["adv_estimator"] == registered(how.name_of("advantage"))
        else:
            with pytest.raises(BadInput) as told:
                config(how, place)
            assert told.value.fix

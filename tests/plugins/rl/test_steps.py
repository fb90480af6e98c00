"""What a training step makes of its attempts: which reach the update, what they weigh, and what is
never updated from.

The attempts are made up, so that their rewards are known; the rest is `recreate tune`'s own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from recreate.agents.scaffold import load as load_scaffold
from recreate.api.errors import Fault
from recreate.api.types import Experience, Grade, Step, Task, Trace, TurnTokens
from recreate.plugins.local_models.transformers import Transformers
from recreate.plugins.rl import checkpoint, credit, recipe, trainer
from recreate.plugins.rl.learner import SKIPPED, Learner, MiniBatch
from recreate.plugins.rl.method import Method
from recreate.plugins.rl.parts.a2r import A2R, AmbiguityReplay
from recreate.plugins.rl.parts.gapo import gapo, idle_on_pass_fail
from recreate.plugins.rl.parts.groups import grouped
from recreate.plugins.rl.recipe import Loss, Tokens
from recreate.plugins.rl.rollout import Rollout
from recreate.plugins.rl.samples import Row, Sample, rows_of
from recreate.plugins.rl.trainer import TrainConfig, Tune
from recreate.runs.session import Parts, open_session
from recreate.runs.settings import Settings
from tests.plugins.rl import tiny

pytestmark = [pytest.mark.rl, pytest.mark.filterwarnings("ignore")]
HEAD = 'about = "a"\nsource = "b"\n'
Score = Callable[[int, str, int], float]
"""(step, task, number of the attempt) -> its reward."""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.model(tmp_path_factory.mktemp("tiny"))


def rollout(
    task: str, name: str, reward: float, length: int = 4, cut: str = "", seed: int = 0
) -> Rollout:
    g = torch.Generator().manual_seed(seed)
    response = tuple(torch.randint(5, 90, (length,), generator=g).tolist())
    row = Row(
        attempt=name,
        task=task,
        turn=0,
        anchor="",
        prompt=(7, 8, 9),
        response=response,
        mask=(True,) * length,
        sampled=(-4.5,) * length,
        cut=cut,
    )
    trace = Trace(attempt=name, task=task, scaffold="", model="")
    graded = Experience(
        id=name,
        domain="d",
        task=task,
        group=task,
        split="train",
        prompt="",
        digest="",
        trace=trace,
        grade=Grade(score=reward, passed=reward == 1.0),
    )
    return Rollout(graded, (row,))


class MadeUp(Tune):
    """A run whose attempts nobody made. seen: the mini-batches of every step, in order."""

    score: Score
    seen: list[tuple[int, MiniBatch]]

    def _roll(self, tasks: Sequence[Task]) -> list[list[Rollout]]:
        def one(task: Task, n: int) -> Rollout:
            seed = 1000 * self.step + 10 * n + int(task.id[-1])
            return rollout(
                task.id, f"{task.id}-{self.step}-{n}", self.score(self.step, task.id, n), seed=seed
            )

        return [[one(task, n) for n in range(self.how.train.group_size)] for task in tasks]

    def _split(self, samples: Sequence[Sample], update: int) -> Iterator[MiniBatch]:
        for batch in super()._split(samples, update):
            self.seen.append(
                (self.step, MiniBatch([replace(s) for s in batch.samples], batch.pairs))
            )
            yield batch


Train = Callable[..., MadeUp]


@pytest.fixture
def train(workspace: Path, weights: Path) -> Iterator[Train]:
    opened = []

    def call(text: str, score: Score, steps: int, **sizes: object) -> MadeUp:
        sizes = {
            "group_size": 4,
            "prompts": 3,
            "lora_rank": 0,
            "learning_rate": 1e-2,
            "max_response": 8,
            **sizes,
        }
        lines = "".join(f"{key} = {value!r}\n" for key, value in sizes.items())
        how = recipe.read(f"{HEAD}[train]\n{lines}{text}", name="made-up")
        settings = Settings(
            domain="tests.plugins.rl.tiny:Letters", model=f"transformers:{weights}", jobs=1
        )
        session = open_session(
            settings, workspace, workspace / f"run{len(opened)}", parts=Parts(domain=tiny.Letters())
        )
        opened.append(session)
        agent = workspace / "agent"
        scaffold = load_scaffold(agent if agent.exists() else tiny.agent(agent, steps=1))
        work = MadeUp(session, scaffold, how, TrainConfig(steps, save_every=100))
        work.score, work.seen = score, []
        work.run()
        return work

    yield call
    for session in opened:
        session.close()


def in_turns(step: int, task: str, n: int) -> float:
    """Right in every second epoch, but for one attempt, so that every group varies."""
    return float(step % 2) if n else float((step + 1) % 2)


REPLAYING = "[a2r]\nshare = 1.0\nmax_age = 3\n[token-mean]\n"


# --- replay ---


def test_replayed_rows_keep_the_log_probs_they_were_made_by_and_weigh_less_in_the_loss(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    weighed: list[torch.Tensor] = []
    loss = Method.loss

    def spy(self: Method, tokens: Tokens) -> Loss:
        if tokens.importance_weight is not None:
            weighed.append(tokens.importance_weight)
        return loss(self, tokens)

    monkeypatch.setattr(Method, "loss", spy)
    work = train(REPLAYING, in_turns, 4)
    first = {
        (f"{s.task}@{step}", tuple(s.response.tolist())): s
        for step, b in work.seen
        for s in b.samples
        if not s.replayed
    }
    again = [(step, s) for step, batch in work.seen for s in batch.samples if s.replayed]
    assert again
    for step, s in again:
        was = first[s.group, tuple(s.response.tolist())]
        assert s.old is not None
        assert was.old is not None
        assert s.sampled is not None
        assert torch.equal(s.old, was.old)  # the behaviour policy's
        assert not torch.allclose(s.sampled, s.old)  # what the policy says by now
        assert torch.equal(s.advantages, was.advantages)  # frozen
        assert s.group != f"{s.task}@{step}"
        away = float(((s.sampled - s.old).exp() - 1 - (s.sampled - s.old)).mean())
        assert s.weight == pytest.approx(math.exp(-away), rel=1e-4)
        assert 0 < s.weight < 1
    told = sorted(round(float(w), 6) for of in weighed for w in of if w < 1)
    assert told == sorted(round(s.weight, 6) for _, s in again)


def test_a_group_is_never_replayed_in_its_own_epoch() -> None:
    from tests.plugins.rl.test_replay import rollouts

    replay = A2R(share=1.0)()
    for epoch, score in enumerate((0.0, 1.0, 0.0)):
        replay.record("t", [score], epoch)
    replay.store(rollouts("t", 2))
    assert replay.draw(4, 2, 0) == []
    assert [r.group for r in replay.draw(4, 3, 0)] == ["t@2"]


def test_groups_that_the_filter_leaves_out_are_in_the_history_all_the_same(train: Train) -> None:
    """All wrong in one epoch, all right in the next: no gradient in either, and as ambiguous as can
    be."""
    work = train("[dynamic-sampling]\n[a2r]\n", lambda step, task, n: float(step % 2), 2)
    assert all(not batch.samples for _, batch in work.seen)
    assert work.replay is not None
    assert len(work.replay.histories) == 3
    assert all(history == {0: 0.0, 1: 1.0} for history in work.replay.histories.values())


def test_earlier_experience_is_what_a_new_run_replays_from_its_first_step(
    workspace: Path, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from recreate.cli import run as cli

    agent = tiny.agent(workspace / "agent1", steps=1)
    flags = [
        "--domain",
        "tests.plugins.rl.tiny:Letters",
        "--scaffold",
        str(agent),
        "--model",
        str(weights),
        "--json",
    ]

    def tune(name: str, out: str, steps: int, *more: str) -> list[dict[str, Any]]:
        file = tiny.small(name, workspace, prompts=3)
        code = cli(
            ["tune", "--recipe", str(file), "--steps", str(steps), "--out", out, *flags, *more]
        )
        assert code == 0, capsys.readouterr().out
        lines = (workspace / out / "journal.jsonl").read_text().splitlines()
        return [r for r in map(json.loads, lines) if r["kind"] == "update"]

    tune("grpo", "first", 3)
    assert tune("gapo+steer+a2r", "without", 1)[0]["replayed"] == 0
    update = tune("gapo+steer+a2r", "with", 1, "--from-experience", "--seed", "1")[0]
    assert update["replayed"] > 0
    assert update["rows"] == 9  # stored groups are not mixed into fresh ones
    assert "recalled" not in update


def test_recalled_groups_are_the_epochs_before_the_first() -> None:
    """As the trainer records them: the newest is epoch -1, and can be drawn in epoch 0."""
    from tests.plugins.rl.test_replay import rollouts

    replay: AmbiguityReplay = A2R(share=1.0)()
    for epoch, score in ((-2, 0.0), (-1, 1.0)):
        replay.record("t", [score], epoch)
    replay.store(rollouts("t", -1))
    assert [r.group for r in replay.draw(1, 0, 0)] == ["t@-1"]
    assert replay.draw(1, 5, 0) == []  # too old


# --- DAPO ---


def test_dapo_attempts_further_tasks_until_enough_groups_vary(train: Train) -> None:
    text = "[dynamic-sampling]\nmax_batches = %d\n[token-mean]\n"

    def last_two_vary(step: int, task: str, n: int) -> float:
        return float(n % 2) if not task.endswith("0") else 0.0

    attempts = {}
    for most in (1, 10):
        work = train(text % most, last_two_vary, 1, prompts=2)
        attempts[most] = work.curve[0]["attempts"]
    assert attempts[1] == 8
    only_one = train(
        text % 10, lambda step, task, n: float(n % 2) if task.endswith("0") else 0.0, 1, prompts=1
    )
    assert only_one.curve[0]["attempts"] in (4, 8, 12)
    assert [s.task[-1] for _, b in only_one.seen for s in b.samples] == ["0"] * 4
    none = train(text % 10, lambda step, task, n: 0.5, 1, prompts=1)
    assert none.curve[0]["attempts"] == 12  # every task was tried
    assert any("every train task was tried" in text for text in none.notes)
    assert train(text % 2, lambda step, task, n: 0.5, 1, prompts=1).curve[0]["attempts"] == 8


def test_dapo_leaves_out_groups_of_one_score_whatever_their_lengths(train: Train) -> None:
    """The penalty on long answers makes shaped rewards differ; the filter looks at the score."""
    how = recipe.read(
        f"{HEAD}[train]\nmax_response = 8\n[overlong]\nmax_length = 8\nbuffer ="
        " 6\n[dynamic-sampling]\n",
        name="x",
    )
    same = [rollout("t", f"{n}", 1.0, length=n + 1) for n in range(8)]
    assert credit.samples(Method(how), [same]) == ([], 0.0)
    mixed = [rollout("t", f"{n}", float(n < 4), length=n + 1) for n in range(8)]
    kept, share = credit.samples(Method(how), [mixed])
    assert share == 1.0
    by_length = [float(s.advantages[0]) for s in kept]
    assert by_length[4] > by_length[7]  # of two wrong answers the longer is the worse


# --- attempts that were cut off ---


def attempt_of(limit: str, *, cut: bool = False) -> Experience:
    tokens = TurnTokens(prompt=(1, 2), reply=(3, 4), logprobs=(-1.0, -1.0), tokenizer="t", cut=cut)
    step = Step(step=0, observation="o", reply="r", action="a", output="", tokens=tokens)
    trace = Trace(
        attempt="a",
        task="t",
        scaffold="s",
        model="m",
        steps=(step,),
        ending="limit" if limit else "submitted",
        limit=limit,
    )
    return Experience(
        id="a",
        domain="d",
        task="t",
        group="t",
        split="train",
        prompt="",
        digest="",
        trace=trace,
        grade=Grade(score=0.5, passed=False),
    )


@pytest.mark.parametrize(
    ("limit", "in_reply", "cut"),
    [
        ("", False, ""),
        ("", True, "reply"),
        ("steps", False, ""),
        ("steps", True, "reply"),
        ("context", False, "context"),
        ("tokens", True, "tokens"),
        ("seconds", False, "seconds"),
    ],
)
def test_a_row_says_what_cut_its_attempt_off(limit: str, in_reply: bool, cut: str) -> None:
    assert [row.cut for row in rows_of(attempt_of(limit, cut=in_reply))] == [cut]


def test_shaping_moves_the_advantages_and_not_what_is_reported_or_filtered() -> None:
    looked, idle, wrong = (
        rollout("t0", name, reward) for name, reward in (("a", 1.0), ("b", 1.0), ("c", 0.0))
    )
    said = "<think>.</think><final_sql>SELECT a FROM t"
    trace = looked.experience.trace.model_copy(
        update={"answer": "SELECT a FROM t", "steps": (Step(step=0, reply=said, status=0),)}
    )
    looked = replace(looked, experience=looked.experience.model_copy(update={"trace": trace}))
    group = [looked, idle, wrong]
    how = recipe.read(f"{HEAD}[reex-sql]\n[dr-grpo]\n[constant-length]\n", name="h")
    asked: list[str] = []

    def gold(task: str) -> str:
        asked.append(task)
        return "SELECT a FROM t"

    found, _ = credit.samples(Method(how), [group], gold)
    earned = (2 + 1 + 1) / 3
    mean = (2 + earned) / 3
    assert [float(s.advantages[0]) for s in found] == pytest.approx(
        [1 + earned - mean, 1 - mean, -mean]
    )
    assert [s.reward for s in found] == [1.0, 1.0, 0.0]
    assert credit.facts([group], group, [])["reward"] == pytest.approx(2 / 3)
    assert set(asked) == {"t0"}
    filtered = recipe.read(f"{HEAD}[reex-sql]\n[dynamic-sampling]\n[token-mean]\n", name="h")
    assert credit.samples(Method(filtered), [[looked, idle]], gold) == ([], 0.0)


def test_a_step_of_training_says_what_was_earned_beside_the_grade(train: Train) -> None:
    work = train("[reex-sql]\n[token-mean]\n", in_turns, 1)
    (update,) = work.curve.values()
    assert update["earned"] == 0.0
    assert 0 < update["reward"] < 1
    assert "earned" not in train("[token-mean]\n", in_turns, 1).curve[0]


def test_dapo_takes_the_whole_penalty_from_an_attempt_that_was_cut_off() -> None:
    how = recipe.read(
        f"{HEAD}[train]\nmax_response = 8\n[overlong]\nmax_length = 8\nbuffer = 2\n", name="x"
    )
    shaped = Method(how).shaped(
        torch.ones(4), torch.tensor([3, 3, 7, 30]), torch.tensor([False, True, False, False])
    )
    # 30: over several turns, and never more than the factor
    assert shaped.tolist() == [1.0, 0.0, 0.5, 0.0]


def test_truncated_attempts_are_masked_where_the_recipe_says_so_and_stay_in_the_statistics() -> (
    None
):
    group = [rollout("t", "a", 1.0), rollout("t", "b", 0.0, cut="reply"), rollout("t", "c", 0.5)]
    trained = Method(recipe.read(f"{HEAD}[dr-grpo]\n", name="x"))
    masked = Method(recipe.read(f"{HEAD}[dr-grpo]\n[mask-truncated]\n", name="x"))
    assert [float(s.advantages[0]) for s in credit.samples(trained, [group])[0]] == [0.5, -0.5, 0.0]
    kept, share = credit.samples(masked, [group])
    assert [(s.attempt, float(s.advantages[0])) for s in kept] == [("a", 0.5), ("c", 0.0)]
    assert share == pytest.approx(2 / 3)


def test_the_step_says_which_limits_ended_its_attempts() -> None:
    limits = ["steps", "context", "context", ""]
    attempted = [Rollout(e, tuple(rows_of(e))) for e in map(attempt_of, limits)]
    facts = credit.facts([attempted], attempted, [])
    assert (facts["limits"], facts["limit"], facts["cut"]) == (
        {"context": 2, "steps": 1},
        0.75,
        0.5,
    )


# --- what is no number, and what is too small for one ---


def sample(seed: int = 0, advantage: float = 1.0) -> Sample:
    g = torch.Generator().manual_seed(seed)
    return Sample(
        task="t",
        group="t",
        prompt=torch.tensor([5, 6]),
        response=torch.randint(5, 90, (4,), generator=g),
        mask=torch.ones(4, dtype=torch.bool),
        advantages=torch.full((4,), advantage),
        reward=0.0,
    )


def learner_of(
    weights: Path, how: recipe.Recipe, say: Callable[[str], None] = print, dtype: Any = None
) -> Learner:
    torch.manual_seed(0)
    module = Transformers(weights).load()[0]
    module, reference = trainer._adapted(module if dtype is None else module.to(dtype), how)
    return Learner(module, Method(how), reference=reference, say=say)


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_an_update_that_is_no_number_is_skipped_and_said(
    weights: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    said: list[str] = []
    learner = learner_of(weights, recipe.load("grpo"), said.append)
    samples = [sample()]
    learner.measure(samples)
    broken = [True] * 2

    def bad(loss: Loss) -> Loss:
        if what == "loss":
            return loss._replace(value=loss.value * math.nan)
        # 0, with a slope without end
        return loss._replace(value=loss.value + (loss.value * 0).clamp(min=0).sqrt())

    plain = Method.loss
    monkeypatch.setattr(
        Method,
        "loss",
        lambda self, tokens: bad(plain(self, tokens)) if broken else plain(self, tokens),
    )
    before = [p.detach().clone() for p in learner.parameters]
    for _ in range(2):
        batch = MiniBatch(samples)
        learner.update(batch)
        assert batch.skipped
    assert all(torch.equal(a, p) for a, p in zip(before, learner.parameters, strict=True))
    assert not learner.optimizer.state
    assert len(said) == 2
    assert "this update is skipped" in said[0]
    broken.clear()
    batch = MiniBatch(samples)
    learner.update(batch)
    assert not batch.skipped
    assert any(not torch.equal(a, p) for a, p in zip(before, learner.parameters, strict=True))
    broken.append(True)
    for _ in range(SKIPPED - 1):  # the good one in between began the count anew
        learner.update(MiniBatch(samples))
    with pytest.raises(Fault) as caught:
        learner.update(MiniBatch(samples))
    assert caught.value.code == "loss-not-finite"
    assert len(said) == 2 + SKIPPED - 1


def test_a_run_goes_on_after_a_skipped_update_and_its_journal_says_so(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, plain = [0], Method.loss

    def bad_once(self: Method, tokens: Tokens) -> Loss:
        calls[0] += 1
        made = plain(self, tokens)
        return made._replace(value=made.value * math.nan) if calls[0] == 1 else made

    monkeypatch.setattr(Method, "loss", bad_once)
    work = train("", in_turns, 2, mini_batches=2)
    first, second = work.curve[0], work.curve[1]
    assert first["skipped"] >= 1
    assert math.isfinite(first["loss"])
    assert "skipped" not in second
    assert second["kl"] > 0
    assert any("this update is skipped" in text for text in work.notes)


def test_all_weights_of_a_bfloat16_model_move_at_the_rate_of_the_papers(
    weights: Path, tmp_path: Path
) -> None:
    """At 1e-6 a weight of bfloat16 stays what it was: 8 bits hold no change below one part in
    256."""
    how = recipe.read(f"{HEAD}[train]\nlora_rank = 0\n", name="x")
    assert how.train.rate == 1e-6
    learner = learner_of(weights, how, dtype=torch.bfloat16)
    assert {p.dtype for p in learner.module.parameters()} == {torch.float32}
    before = [p.detach().clone() for p in learner.parameters]
    samples = [sample(n, advantage=1.0 - 2 * (n % 2)) for n in range(8)]
    learner.measure(samples)
    learner.update(MiniBatch(samples))
    moved = sum(int((a != p).sum()) for a, p in zip(before, learner.parameters, strict=True))
    # rows of tokens that nobody wrote
    with_gradient = sum(p.numel() for p in learner.parameters) - 2 * 97 * 32
    assert moved > 0.9 * with_gradient
    from safetensors.torch import load_file

    place = checkpoint.save(
        tmp_path, learner, Transformers(weights).load()[1], {"step": 1, "model": "m"}
    )
    kept = load_file(place / "model.safetensors")
    assert {t.dtype for t in kept.values()} == {torch.float32}
    told = dict(learner.module.named_parameters())
    assert all(torch.equal(t, told[name]) for name, t in kept.items())


def test_an_adapter_on_a_bfloat16_model_is_trained_in_float32(weights: Path) -> None:
    learner = learner_of(weights, recipe.load("grpo"), dtype=torch.bfloat16)
    assert {p.dtype for p in learner.parameters} == {torch.float32}
    assert torch.bfloat16 in {p.dtype for p in learner.module.parameters()}


def test_fifty_updates_at_the_shipped_rate_move_what_the_model_says(weights: Path) -> None:
    """With LoRA a paper's 1e-6 moves a log-prob by thousandths; the shipped rate by tenths."""
    moved = {}
    for changes in ((), ("train.lr=1e-6",)):
        how = recipe.load("grpo", changes)
        learner = learner_of(weights, how)
        samples = [sample()]
        learner.measure(samples)
        assert samples[0].old is not None
        start = float(samples[0].old.mean())
        for _ in range(50):
            samples[0].old = None
            learner.measure(samples)
            learner.update(MiniBatch(samples))
        learner.measure(samples)
        moved[how.train.rate] = float(samples[0].old.mean()) - start
    assert moved[1e-4] > 10 * moved[1e-6]
    assert moved[1e-4] > 0.02


# --- GAPO where rewards are 0 and 1 ---


@pytest.mark.parametrize(("n", "chance"), [(8, 0.5), (8, 0.1), (16, 0.3), (5, 0.7)])
def test_the_share_of_idle_rows_that_is_foretold_is_gapos(n: int, chance: float) -> None:
    found = 0.0
    for ones in range(n + 1):
        rewards = torch.tensor([1.0] * ones + [0.0] * (n - ones))
        idle = float((gapo(rewards, grouped([0] * n)) == 0).float().mean())
        found += math.comb(n, ones) * chance**ones * (1 - chance) ** (n - ones) * idle
    assert idle_on_pass_fail(n, 0.5, chance) == pytest.approx(found)


def test_gapo_on_pass_fail_rewards_is_said_before_the_first_attempt(train: Train) -> None:
    work = train("[gapo]\n", lambda step, task, n: float(n == 0), 1)
    assert not any("rewards are 0 and 1" in text for text in work.notes)  # not known of this domain
    assert work.curve[0]["idle"] == 0.75

    assert not trainer.pass_fail(tiny.Letters(), work.session.memory)
    assert trainer.pass_fail(tiny.PassFail(), work.session.memory)

    class Remembered:
        def __init__(self, *scores: float) -> None:
            self.known = [rollout("t", str(n), score).experience for n, score in enumerate(scores)]

        def experiences(self, **where: str) -> list[Experience]:
            assert where["split"] == "train"
            return self.known

    assert trainer.pass_fail(tiny.Letters(), Remembered(*[0.0, 1.0] * 4))
    assert not trainer.pass_fail(tiny.Letters(), Remembered(*[0.0, 1.0] * 4, 0.5))
    assert not trainer.pass_fail(tiny.Letters(), Remembered(0.0, 1.0))  # too few to say
    assert [w for w in recipe.load("gapo").warnings(True) if "64%" in w and "90%" in w]
    assert recipe.load("gapo").warnings(False) == recipe.load("grpo").warnings(True) == []

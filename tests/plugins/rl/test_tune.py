"""`recreate tune` on a tiny random model: every recipe takes its steps, and nothing is learned from
wrong data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from recreate.plugins.rl import recipe
from tests.plugins.rl import tiny

pytestmark = [pytest.mark.rl, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.model(tmp_path_factory.mktemp("tiny"))


Tune = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def tune(workspace: Path, weights: Path, capsys: pytest.CaptureFixture[str]) -> Tune:
    """Run the command: (exit code, the JSON object)."""
    agents: dict[int, Path] = {}

    def call(
        name: str = "grpo",
        *flags: str,
        domain: str = "Letters",
        model: Path = weights,
        turns: int = 1,
        steps: int = 2,
        out: str = "run",
        **train: object,
    ) -> tuple[int, dict[str, Any]]:
        if turns not in agents:
            agents[turns] = tiny.agent(workspace / f"agent{turns}", steps=turns)
        file = tiny.small(name, workspace, **train) if name in recipe.names() else name
        code = cli(
            [
                "tune",
                "--recipe",
                str(file),
                "--domain",
                f"tests.plugins.rl.tiny:{domain}",
                "--scaffold",
                str(agents[turns]),
                "--model",
                str(model),
                "--steps",
                str(steps),
                "--out",
                out,
                "--jobs",
                "2",
                "--json",
                *flags,
            ]
        )
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.mark.parametrize("name", recipe.names())
def test_every_recipe_takes_its_steps(
    name: str, tune: Tune, workspace: Path, weights: Path
) -> None:
    code, made = tune(name, turns=2 if name in ("gigpo", "gapo+steer+a2r", "lepo") else 1)
    assert code == 0, made
    assert [row["step"] for row in made["curve"]] == [0, 1]
    assert {"reward", "kl", "entropy", "clip"} <= made["curve"][0].keys()
    assert made["curve"][0]["kl"] == pytest.approx(0, abs=1e-6)  # the adapter begins as nothing
    assert made["curve"][0]["entropy"] > 1
    place = Path(made["checkpoint"])
    assert (place / "adapter_model.safetensors").is_file()
    assert not [p for p in place.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".pkl")]
    assert "mean reward" in (workspace / "run" / "report.md").read_text()
    updates = [
        json.loads(line) for line in (workspace / "run" / "journal.jsonl").read_text().splitlines()
    ]
    updates = [u for u in updates if u["kind"] == "update"]
    assert sum(u["updates"] for u in updates) > 0
    if name in ("grpo", "gapo"):  # weights moved
        assert made["curve"][1]["kl"] > 0


def test_a_method_of_ones_own_is_one_file(
    tune: Tune, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/examples/rl_method.py alone, in the workspace and named in full; and by the entry point
    of a plug-in."""
    from recreate.api import plugins
    from tests.examples import rl_method

    (workspace / "my_method.py").write_text(Path(rl_method.__file__).read_text())
    spelled = "my_method:Median"
    point = plugins.EntryPoint("recipe_part", "median", "tests.examples.rl_method:Median", "")
    brought = plugins.brought
    monkeypatch.setattr(
        plugins, "brought", lambda kind: (*brought(kind), *[point] * (kind == "recipe-part"))
    )
    text = tiny.small("grpo", workspace).read_text()
    curves = []
    for n, table in enumerate((f'["{spelled}"]', "[median]")):
        file = workspace / f"mine{n}.toml"
        file.write_text(text.partition("[grpo]")[0] + f"{table}\nscale = 2.0\n[clip]\n")
        assert recipe.load(file).name_of("advantage") == table.strip('[]"')
        code, made = tune(str(file), out=f"own{n}", turns=2)
        assert code == 0, made
        assert made["curve"][1]["kl"] > 0
        curves.append([row["reward"] for row in made["curve"]])
    assert curves[0][0] == curves[1][0]  # the first rollouts are those of every recipe
    wrong = workspace / "wrong.toml"
    wrong.write_text(text.partition("[grpo]")[0] + f'["{spelled}"]\nscael = 2.0\n')
    code, made = tune(str(wrong), out="wrong")
    assert (code, made["error"]["code"]) == (2, "unknown-in-recipe")
    assert "'scale'" in made["error"]["fix"]
    for named, fault in (
        ("pathlib:Path", "misfit"),
        ("tests.examples.rl_method:Mean", "bad-input"),
    ):
        wrong.write_text(text.partition("[grpo]")[0] + f'["{named}"]\n')
        assert tune(str(wrong), out="wrong")[1]["error"]["code"] == fault


def test_an_agent_of_several_turns_trains_on_whole_attempts(tune: Tune, workspace: Path) -> None:
    """Observations are masked, the trainer's log-probs are those that were sampled by, and memory
    has the attempts."""
    from recreate.memory.store import ExperienceStore
    from recreate.plugins.rl.samples import rows_of

    code, made = tune("gapo+steer+a2r", turns=3, steps=4, prompts=3)
    assert code == 0, made
    attempted = list(ExperienceStore(workspace).experiences(domain="letters"))
    assert len(attempted) >= 20
    assert {e.split for e in attempted} == {"train"}
    joined = [e for e in attempted if len(e.trace.steps) == 3 and len(rows_of(e)) == 1]
    assert len(joined) > len(attempted) / 2  # the others wrote a mark of the template in mid-reply
    e = joined[0]
    (row,) = rows_of(e)
    told = [s.tokens for s in e.trace.steps]
    assert row.tokens == sum(len(t.reply) for t in told if t)
    assert len(row.response) > row.tokens  # what it was shown between its turns
    each = rows_of(e, each_turn=True)
    assert len(each) == 3
    assert row.prompt + row.response == each[-1].prompt + each[-1].response
    records = [
        json.loads(line) for line in (workspace / "run" / "journal.jsonl").read_text().splitlines()
    ]
    updates = [r for r in records if r["kind"] == "update"]
    assert max(u["sampler_gap"] for u in updates) < 1e-4
    assert sum(u["replayed"] for u in updates) > 0
    assert updates[-1]["kl"] > 0


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tune: Tune) -> None:
    whole = tune("gapo+steer+a2r", steps=4, out="whole", prompts=3)[1]
    assert tune("gapo+steer+a2r", "--save-every", "1", steps=3, out="parts", prompts=3)[0] == 0
    code, rest = tune("gapo+steer+a2r", "--save-every", "1", steps=4, out="parts", prompts=3)
    assert code == 0, rest
    for one, other in zip(whole["curve"], rest["curve"], strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_each_step_samples_anew(tune: Tune, workspace: Path) -> None:
    assert tune("grpo", steps=2, out="two", prompts=1)[0] == 0
    lines = (workspace / "two" / "journal.jsonl").read_text().splitlines()
    attempts = [r for r in map(json.loads, lines) if r["kind"] == "experience"]
    assert len(attempts) == len({(r["task"], r["repeat"]) for r in attempts}) == 6


def test_stored_and_fresh_attempts_are_compared_as_one_group_where_the_recipe_says_so(
    tune: Tune, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recreate.plugins.rl import credit

    seen: list[tuple[set[str], set[str]]] = []
    compare = credit.compare_again

    def spy(method: Any, fresh: Any, old: Any) -> None:
        compare(method, fresh, old)
        seen.append(({s.task for s in fresh}, {s.task for s in old}))

    monkeypatch.setattr(credit, "compare_again", spy)
    assert tune("gapo+steer+a2r", steps=4, out="frozen", prompts=3)[0] == 0
    assert not seen
    file = workspace / "gapo+steer+a2r-small.toml"
    (workspace / "again.toml").write_text(
        file.read_text().replace("[a2r]", '[a2r]\nadvantages = "again"')
    )
    code, made = tune("./again.toml", steps=4, out="again")
    assert code == 0, made
    assert any(old & fresh for fresh, old in seen)  # one task, lived now and before


def test_what_is_compared_again_has_the_mean_of_both(workspace: Path) -> None:
    import torch

    from recreate.plugins.rl import credit
    from recreate.plugins.rl.method import Method
    from recreate.plugins.rl.samples import Sample

    def sample(group: str, attempt: str, reward: float) -> Sample:
        return Sample(
            "t",
            group,
            torch.tensor([1]),
            torch.tensor([2, 3]),
            torch.tensor([True, False]),
            torch.zeros(2),
            reward,
            attempt,
        )

    fresh = [sample("t", "a", 1.0), sample("t", "b", 0.0)]
    # "0" fell into two rows
    old = [sample("t@0", "0", 0.0), sample("t@0", "0", 0.0), sample("t@0", "1", 0.0)]
    credit.compare_again(Method(recipe.load("dr-grpo")), fresh, old)
    assert [s.advantages.tolist() for s in fresh + old] == [[0.75, 0.0], *[[-0.25, 0.0]] * 4]


def test_nothing_is_learned_from_wrong_data(tune: Tune, workspace: Path, tmp_path: Path) -> None:
    def refused(*args: Any, **kw: Any) -> str:
        code, said = tune(*args, out=f"bad{len(list(workspace.iterdir()))}", **kw)
        assert code == 2, said
        assert said["error"]["fix"]
        return str(said["error"]["code"])

    mute = tiny.model(tmp_path / "mute", template=False)
    assert refused(model=mute) == "no-chat-template"
    assert refused(model=tmp_path / "nowhere") == "unknown-model"
    assert refused(domain="NoNumber") == "misfit"
    other = workspace / "other.toml"
    other.write_text('about = "a"\nsource = "b"\n[clip]\nlwo = 1\n')
    assert refused("./other.toml") == "unknown-in-recipe"
    assert refused("grqo") == "unknown-recipe"


def test_an_agent_whose_limits_the_context_cannot_hold_is_refused_before_anything_is_spent(
    tune: Tune, workspace: Path
) -> None:
    tiny.agent(workspace / "agent3", steps=3)
    file = workspace / "agent3" / "agent.toml"
    file.write_text(file.read_text().replace("observation_chars = 100", "observation_chars = 900"))
    flags = ("--scaffold", str(workspace / "agent3"))
    code, said = tune("grpo", *flags)
    assert (code, said["error"]["code"]) == (2, "context-too-small")
    assert "steps = 1" in said["error"]["fix"]
    assert not (workspace / "run").exists()
    file.write_text(file.read_text().replace("steps = 3", "steps = 1"))
    # the refused run began nothing
    assert tune("grpo", *flags, "--set", "train.lr=2e-3", steps=1)[0] == 0
    assert tune("grpo", *flags, "--set", "train.lr=1e-3")[1]["error"]["code"] == "another-run"


def test_a_budget_that_pays_for_no_training_step_is_refused_before_anything_is_spent(
    tune: Tune,
) -> None:
    code, said = tune("grpo", "--budget", "5attempts")
    assert (code, said["error"]["code"]) == (2, "budget-too-small")
    assert "12attempts" in said["error"]["fix"]
    code, made = tune("grpo", "--budget", "6attempts")
    assert (code, made["status"], len(made["curve"])) == (3, "budget", 1)


def test_the_journal_names_the_limits_that_ended_attempts_and_counts_turns_that_were_cut(
    tune: Tune, workspace: Path
) -> None:
    assert tune("grpo", turns=2, steps=1)[0] == 0
    lines = (workspace / "run" / "journal.jsonl").read_text().splitlines()
    (update,) = [r for r in map(json.loads, lines) if r["kind"] == "update"]
    assert update["limits"] == {"steps": 6}
    assert update["length"] > 8  # of at most 12: most replies had no end
    assert update["cut"] > 0.5
    assert "steps 6" in (workspace / "run" / "report.md").read_text()


def test_gapo_for_a_grader_that_says_yes_or_no_is_warned_of_before_the_first_attempt(
    tune: Tune, workspace: Path
) -> None:
    assert tune("gapo", domain="PassFail", steps=1)[0] == 0
    records = [
        json.loads(line) for line in (workspace / "run" / "journal.jsonl").read_text().splitlines()
    ]
    kinds = [r["kind"] for r in records]
    first = next(
        n for n, r in enumerate(records) if "rewards are 0 and 1 only" in r.get("text", "")
    )
    assert first < kinds.index("experience")


def test_a_checkpoint_of_another_model_is_refused(tune: Tune, tmp_path: Path) -> None:
    own = tiny.model(tmp_path / "own")
    assert tune(steps=1, model=own)[0] == 0
    code, said = tune(steps=2, model=tiny.model(tmp_path / "other"))
    assert (code, said["error"]["code"]) == (2, "another-run")
    tiny.model(own, seed=1)
    code, said = tune(steps=2, model=own)
    assert (code, said["error"]["code"]) == (2, "another-model")


def test_rewards_that_never_differ_are_said_and_move_nothing(tune: Tune, workspace: Path) -> None:
    code, made = tune("gapo", domain="Flat", steps=3)
    assert code == 0, made
    assert [row["kl"] for row in made["curve"]] == [0, 0, 0]
    report = (workspace / "run" / "report.md").read_text()
    assert "teach nothing" in report
    assert "Take easier tasks" in report


def test_a_full_memory_makes_micro_batches_smaller_and_changes_no_gradient(weights: Path) -> None:
    import torch

    from recreate.plugins.local_models.transformers import Transformers
    from recreate.plugins.rl.learner import Learner
    from recreate.plugins.rl.method import Method
    from recreate.plugins.rl.samples import Sample

    g = torch.Generator().manual_seed(0)
    samples = [
        Sample(
            task="t",
            group="t",
            prompt=torch.randint(5, 90, (3 + n,), generator=g),
            response=torch.randint(5, 90, (4 + n,), generator=g),
            mask=torch.ones(4 + n, dtype=torch.bool),
            advantages=torch.full((4 + n,), n - 1.5),
            reward=0.0,
        )
        for n in range(4)
    ]
    said: list[str] = []
    module = Transformers(weights).load()[0]
    learner = Learner(module, Method(recipe.load("grpo")), micro_batch=4, say=said.append)
    learner.measure(samples)
    learner.gradient(samples)
    whole = [p.grad.clone() for p in learner.parameters]
    learner.forget()
    see, full = learner.see, [True]

    def once(*args: Any) -> Any:
        if full.pop() if full else False:
            raise torch.OutOfMemoryError("full")
        return see(*args)

    learner.see = once  # type: ignore[method-assign]
    learner.gradient(samples)
    assert learner.micro_batch == 2
    assert "micro-batches of 2" in said[0]
    for a, p in zip(whole, learner.parameters, strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-6)


def test_experience_of_an_earlier_run_is_trained_on_beside_new_attempts(
    tune: Tune, workspace: Path
) -> None:
    assert tune("grpo", out="first", steps=1, prompts=3)[0] == 0
    code, made = tune("sft-on-successes", "--from-experience", out="second", steps=1, prompts=3)
    assert code == 0, made
    lines = (workspace / "second" / "journal.jsonl").read_text().splitlines()
    (update,) = [r for r in map(json.loads, lines) if r["kind"] == "update"]
    assert update["recalled"] > 0
    assert update["attempts"] == 9  # the reward is of new ones alone


def test_rollouts_by_a_server_that_dies_are_begun_anew(
    tune: Tune, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    from recreate.plugins.rl.rollout import Served

    reply, left = Served.reply, [5]

    def dying(self: Served, *args: Any, **params: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.killpg(self.server.pid, signal.SIGKILL)
        return reply(self, *args, **params)

    monkeypatch.setattr(Served, "reply", dying)
    code, made = tune("grpo", "--rollouts", "transformers", turns=2)
    assert code == 0, made
    assert made["curve"][1]["kl"] > 0
    lines = (workspace / "run" / "journal.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert sum("starting a server" in r.get("text", "") for r in records) == 2
    updates = [r for r in records if r["kind"] == "update"]
    assert [u["attempts"] for u in updates] == [6, 6]
    # the server has the trainer's weights at every step
    assert max(u["sampler_gap"] for u in updates) < 1e-4


def test_a_group_that_lost_rows_goes_on_without_them_and_one_of_one_is_left_out(
    tune: Tune, workspace: Path
) -> None:
    assert tune("rloo", domain="Lossy", steps=1, prompts=1)[0] == 0
    assert tune("rloo", domain="Lossy", steps=1, prompts=1, group_size=2, out="pairs")[0] == 0
    made = {}
    for name in ("run", "pairs"):
        lines = (workspace / name / "journal.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        made[name] = next(r for r in records if r["kind"] == "update")
        assert any(
            "1 of" in r.get("text", "") and "excluded" in r["text"]
            for r in records
            if r["kind"] == "note"
        )
    assert (made["run"]["attempts"], made["run"]["rows"]) == (2, 2)
    assert (made["pairs"]["rows"], made["pairs"]["updates"]) == (0, 0)

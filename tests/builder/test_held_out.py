"""What a workspace holds out stays closed at every door of the machine, and each look at test tasks
is written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.errors import BadInput
from recreate.api.types import Edit, Evidence, Experience, Task
from recreate.cli import run as cli
from recreate.lessons.context import PolicyContext
from recreate.lessons.ladder import Ladder
from recreate.memory.held_out import Held, HeldOut
from recreate.memory.store import ExperienceStore
from recreate.optimizers.context import OptimizerContext
from recreate.runs.reader import Run
from tests.memory.test_store import experience
from tests.toy import Toy, write_script

FLAGS: dict[str, Any] = {
    "rounds": 1,
    "sandbox": "none",
    "memory__embedder": "hashed",
    "models__retries": 0,
}


@pytest.fixture
def model(workspace: Path) -> str:
    return write_script(workspace / "script.jsonl")


def hold(workspace: Path, *numbers: int, split: str = "test") -> HeldOut:
    """Another domain had the groups of these train tasks as its test tasks."""
    held = HeldOut(workspace / "memory")
    held.add(Held(f"train-{n}", f"other:{n}", split, "other") for n in numbers)
    return held


def attempted(run: Path) -> set[str]:
    return {r["task"] for r in Run(run).records("experience") if r["split"] == "train"}


def test_a_build_leaves_out_train_tasks_of_held_out_groups_and_says_how_many(
    workspace: Path, model: str
) -> None:
    hold(workspace, 0, 1, 2)
    heard: list[str] = []
    say = lambda event, facts: heard.append(facts["text"]) if event == "note" else None  # noqa: E731
    made = recreate.build(Toy(), model=model, say=say, **FLAGS)
    assert attempted(made.run) == {
        "toy:train:3",
        "toy:train:4",
        "toy:train:5",
        "toy:train:6",
        "toy:train:7",
    } & attempted(made.run)
    assert attempted(made.run)
    (told,) = [text for text in heard if "left out" in text]
    assert told.startswith("3 of 8 train tasks are left out")
    assert "toy:train:0, toy:train:1, toy:train:2" in told


def test_a_build_whose_train_tasks_are_all_held_out_stops_before_it_spends(
    workspace: Path, model: str
) -> None:
    hold(workspace, *range(8))
    with pytest.raises(BadInput, match="all 8 train tasks of toy are held out") as e:
        recreate.build(Toy(), model=model, out=str(workspace / "runs/a"), **FLAGS)
    assert e.value.code == "held-out"
    assert "tasks make" in e.value.fix
    assert not (workspace / "runs/a").exists(), "nothing was asked or attempted, so nothing is left"


@pytest.mark.slow
def test_a_task_that_was_test_elsewhere_does_not_judge_a_build(workspace: Path, model: str) -> None:
    held = HeldOut(workspace / "memory")
    held.add(
        [
            Held("validation-0", "other:1", "test", "other"),
            Held("validation-1", "other:2", "validation", "other"),
        ]
    )
    made = recreate.build(Toy(), model=model, **FLAGS)
    judged = {r["task"] for r in Run(made.run).records("experience") if r["split"] == "validation"}
    assert "toy:validation:0" not in judged
    assert "toy:validation:1" in judged


def test_what_was_validation_becomes_test_and_never_less(workspace: Path) -> None:
    held = HeldOut(workspace / "memory")
    task = Task(id="t", domain="d", prompt="", split="train", group="g")
    for split, then in (("validation", "validation"), ("test", "test"), ("validation", "test")):
        held.add([Held("g", "t", split, "d")])
        assert HeldOut(workspace / "memory").split_of(task) == then
    assert len((workspace / "memory/held_out.jsonl").read_text().splitlines()) == 2


@pytest.mark.plugin("each")
def test_a_build_registers_its_domains_validation_and_test_groups(
    workspace: Path, model: str
) -> None:
    recreate.build(Toy(), model=model, **{**FLAGS, "validation": 5, "gate__false_keep": 0})
    held = HeldOut(workspace / "memory").read()
    assert set(held.groups) == {t.group for t in Toy().tasks() if t.split != "train"}
    assert {held.tasks[t.id] for t in Toy().tasks("test")} == {"test"}


@pytest.mark.slow
def test_files_copied_in_from_another_workspace_close_their_groups_to_a_build(
    workspace: Path, model: str
) -> None:
    other = ExperienceStore(workspace / "other", "hashed")
    made = recreate.run("seed", "toy:validation:1", Toy(), model=model, sandbox="none")
    other.add([made.model_copy(update={"id": "v", "group": "train-5", "task": "x"})])
    (file,) = (workspace / "other").glob("memory/toy/experiences/*.jsonl")
    target = workspace / "memory/toy/experiences/copied.jsonl"
    file.rename(target)
    assert "toy:train:5" not in attempted(
        recreate.build(Toy(), model=model, **{**FLAGS, "train": 8, "batch": 8}).run
    )


def test_bench_of_train_leaves_held_out_tasks_out(workspace: Path, model: str) -> None:
    hold(workspace, 1)
    (cell,) = recreate.bench("seed", Toy(), split="train", model=model, sandbox="none")
    assert cell.n == 7
    hold(workspace, *range(8))
    with pytest.raises(BadInput, match="held out"):
        recreate.bench("seed", Toy(), split="train", model=model, sandbox="none")


def test_an_attempt_by_hand_at_a_held_out_task_is_recorded_as_held_out(
    workspace: Path, model: str
) -> None:
    hold(workspace, 1)
    made = recreate.run("seed", "toy:train:1", Toy(), model=model, sandbox="none")
    assert made.split == "test"
    assert list(ExperienceStore(workspace).experiences(split="train")) == []


class Prober:
    """An optimizer that attempts what it should not."""

    wanted = "evaluate"

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context

    def propose(self, scaffold: Any, experiences: Sequence[Experience]) -> list[Edit]:
        assert "toy:train:1" not in self.context.tasks
        if self.wanted == "evaluate":
            self.context.evaluate(scaffold, ["toy:train:1"])
        stranger = experiences[0].model_copy(update={"task": "toy:train:1"})
        assert self.context.attempt is not None
        self.context.attempt(scaffold, stranger)
        return []


@pytest.mark.parametrize("wanted", ["evaluate", "attempt"])
def test_an_optimizer_cannot_attempt_what_is_held_out(
    workspace: Path, model: str, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    hold(workspace, 1)
    monkeypatch.setattr(Prober, "wanted", wanted)
    said = {"evaluate": "toy:train:1 is no train task", "attempt": "is not here any more"}[wanted]
    with pytest.raises(BadInput, match=said):
        recreate.build(Toy(), model=model, optimizer=Prober, **FLAGS)
    assert "toy:train:1" not in {e.task for e in ExperienceStore(workspace).experiences()}


class Closing:
    """While it proposes, somebody else holds the batch out."""

    folder = Path()

    def propose(self, scaffold: Any, experiences: Sequence[Experience]) -> list[Edit]:
        hold(self.folder, *range(8))
        cited = (Evidence(experience=experiences[0].id, step=0),)
        return [Edit(path="system.md", new="\nThink.\n", evidence=cited)]


def test_what_is_held_out_while_a_build_runs_supports_no_edit(
    workspace: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Closing, "folder", workspace)
    made = recreate.build(Toy(), model=model, optimizer=Closing, **FLAGS)
    assert made.revisions == ()
    (nothing,) = Run(made.run).records("nothing")
    assert "there is no train experience" in nothing["reason"]


class Racing:
    """It holds a task out, as another process might, and then attempts it."""

    folder = Path()

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context

    def propose(self, scaffold: Any, experiences: Sequence[Experience]) -> list[Edit]:
        wanted = next(id for id in self.context.tasks if id not in {e.task for e in experiences})
        hold(self.folder, int(wanted.rpartition(":")[2]))
        self.context.evaluate(scaffold, [wanted])
        return []


def test_a_task_that_is_held_out_while_a_build_runs_is_attempted_no_more(
    workspace: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Racing, "folder", workspace)
    with pytest.raises(BadInput, match="is held out in") as e:
        recreate.build(Toy(), model=model, optimizer=Racing, **{**FLAGS, "batch": 4})
    assert e.value.code == "held-out"


def test_no_lesson_is_born_of_what_is_held_out(workspace: Path, model: str) -> None:
    hold(workspace, *range(1, 8))
    recreate.build(Toy(), model=model, memory="recreate", **FLAGS)
    (lesson,) = [x for _, x in ExperienceStore(workspace).lessons().values()]
    born = [ExperienceStore(workspace).get(id) for id in lesson.born_of]
    assert {e.task for e in born if e is not None} == {"toy:train:0"}


@pytest.mark.slow
def test_a_lesson_of_an_attempt_that_is_held_out_by_now_is_offered_to_nobody_and_read_by_no_policy(
    workspace: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ExperienceStore(workspace).add([experience("taught", task="toy:train:0", group="train-0")])
    for folder in ("toy/patterns", "other/patterns"):
        (workspace / "memory" / folder).mkdir(parents=True)
        for name, cited in (("secret", 'supports = ["taught"]'), ("fair", "")):
            head = f'+++\nscope = "domain"\nstatus = "active"\n{cited}\n+++\n'
            (workspace / "memory" / folder / f"{name}-{folder[:3]}.md").write_text(
                f"{head}# How {name}\n\nSay it.\n"
            )
    read: list[str] = []

    class Reading(Ladder):
        def __init__(self, context: PolicyContext) -> None:
            super().__init__(context)
            read.extend([*context.lessons, *(x.id for x in context.elsewhere)])

    monkeypatch.setattr("recreate.lessons.ladder.Ladder", Reading)

    hold(workspace, 0)
    heard: list[str] = []
    say = lambda event, facts: heard.append(facts["text"]) if event == "note" else None  # noqa: E731
    made = recreate.build(Toy(), model=model, memory="recreate", say=say, **FLAGS)
    (file,) = (made.run / "memory").glob("*.json")
    assert [x["id"] for x in json.loads(file.read_text())] == ["fair-toy"]
    assert "the lesson secret-toy is not used: an attempt that it cites is held out" in heard
    assert {"fair-toy", "fair-oth"} <= set(read)
    assert not {"secret-toy", "secret-oth"} & set(read)


# -------------------------------------------------------------------------------------------
# openings of test


def lines(workspace: Path) -> list[dict[str, Any]]:
    file = workspace / "runs/test_openings.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_an_opening_that_was_interrupted_is_counted_once_when_it_goes_on(
    workspace: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recreate.builder import measure

    def die(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(measure, "run_attempts", die)
        with pytest.raises(KeyboardInterrupt):
            recreate.bench("seed", Toy(), split="test", model=model, sandbox="none", out="runs/x")
    assert len(lines(workspace)) == 1
    (cell,) = recreate.bench("seed", Toy(), split="test", model=model, sandbox="none", out="runs/x")
    assert cell.test_openings == len(lines(workspace)) == 1


def test_one_attempt_at_a_test_task_is_an_opening_too(
    workspace: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--domain", "tests.toy:Toy", "--model", model, "--sandbox", "none", "--json"]
    assert cli(["run", *flags, "seed", "toy:test:1"]) == 0
    assert json.loads(capsys.readouterr().out)["test_openings"] == 1
    assert cli(["run", *flags, "seed", "toy:train:1"]) == 0
    assert "test_openings" not in json.loads(capsys.readouterr().out)
    assert len(lines(workspace)) == 1


def test_a_damaged_line_of_the_openings_still_counts(workspace: Path, model: str) -> None:
    recreate.bench("seed", Toy(), split="test", model=model, sandbox="none")
    file = workspace / "runs/test_openings.jsonl"
    file.write_bytes(file.read_bytes().replace(b"test-opened", b"test-0pened"))
    (cell,) = recreate.bench("seed", Toy(), split="test", model=model, sandbox="none")
    assert cell.test_openings == 2

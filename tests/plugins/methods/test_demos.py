"""`demos`: worked examples of the agent's own successes, in sets that race on train tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents import scaffold as scaffolds
from recreate.agents.lesson import read_lesson
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.api.ports import Price
from recreate.api.types import Call, Experience, Message, Reply, Step
from recreate.builder.estimate import proposal
from recreate.builder.loop import BuildResult, build
from recreate.memory.store import ExperienceStore
from recreate.models.pricing import FREE
from recreate.optimizers.context import OptimizerContext
from recreate.plugins.methods.demos import Demos, make_example, tell_attempt
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import Parts, open_session
from tests.optimizers.test_reflect import experience
from tests.toy import Toy

SEED = scaffolds.load(shipped("scaffolds") / "seed")
DONE_WELL = "done well:"


class Killed(BaseException):
    """Stands for a kill: nothing in recreate catches it."""


class Hand:
    """It solves every second train task, and with examples as many as `shown` says."""

    name = "scripted:hand"
    price: Price | None = FREE

    def __init__(self, shown: str = "all", at: int = -1) -> None:
        self.shown = shown
        self.at = at
        self.asked: list[str] = []
        self.prompts: list[str] = []

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if len(self.asked) == self.at:
            raise Killed
        assert call.role == "agent", "demos asks no model of its own"
        self.asked.append(call.id)
        told = "".join(str(message["content"]) for message in messages[:2])
        self.prompts.append(told)
        _, split, number = call.task.split(":")
        right = split == "train" and int(number) % 2 == 0
        if DONE_WELL in told:
            right = {"all": True, "none": False, "same": right}[self.shown]
        if len(messages) > 2:
            return Reply(text="```bash\nsubmit\n```")
        mark = "!" if right else ""
        return Reply(text=f"```bash\nprintf %s 'w{number}{mark}' > answer.txt\n```")

    def close(self) -> None:
        pass


class Built:
    """A build of the toy domain with `demos` and a Hand as its model."""

    def __init__(
        self,
        workspace: Path,
        run: str = "a",
        seed: Scaffold = SEED,
        hand: Hand | None = None,
        domain: Any = None,
        **flags: Any,
    ) -> None:
        self.hand = hand or Hand()
        self.notes = list[str]()
        values: dict[str, Any] = {
            "domain": "toy",
            "optimizer": "demos",
            "train": 8,
            "batch": 8,
            "validation": 5,
            "rounds": 1,
            "optimizer_settings": ["sets=2", "size=2"],
            "jobs": 1,
            "sandbox": "none",
            "memory.policy": "none",
            "memory.embedder": "hashed",
            "gate.keep": "each",
            **flags,
        }
        self.settings = settings.load(workspace, values, {})
        folder = workspace / "runs" / run
        resume = (folder / "settings.toml").exists()
        parts = Parts(domain=domain or Toy(), model=self.hand, optimizer_model=self.hand)
        session = open_session(
            self.settings, workspace, folder, resume=resume, parts=parts, say=self.say
        )
        try:
            self.built: BuildResult = build(session, seed)
        finally:
            session.close()
        self.run = Run(folder)

    def say(self, kind: str, about: Any) -> None:
        if kind == "note":
            self.notes.append(about["text"])

    @property
    def examples(self) -> list[str]:
        """The bodies of the examples that were proposed."""
        return [
            read_lesson("x", edit.new).body
            for revision in self.built.revisions
            for edit in revision.edits
            if edit.path.startswith("examples/")
        ]

    @property
    def scored(self) -> set[str]:
        """The tasks that candidates were tried on."""
        return {r["task"] for r in self.run.records("experience") if r["phase"] == "select"}

    @property
    def pool(self) -> int:
        """How many examples sets were drawn from."""
        (said,) = (
            re.search(r"sets of (\d+) worked", note) for note in self.notes if " sets of " in note
        )
        return int(said[1]) if said else 0

    def shown(self, store: ExperienceStore) -> list[Experience]:
        """The attempts that the proposed examples are of."""
        found = []
        for revision in self.built.revisions:
            for edit in revision.edits:
                if edit.path.startswith("examples/"):
                    (born_of,) = read_lesson("x", edit.new).born_of
                    found.append(store.get(born_of))
        return [e for e in found if e is not None]


def with_toml(toml: str, **files: str) -> Scaffold:
    text = SEED.files["agent.toml"] + toml
    return Scaffold(name="seed", files={**SEED.files, "agent.toml": text, **files})


def test_the_agent_is_shown_its_own_successes_and_none_of_a_task_that_scored_sets(
    workspace: Path,
) -> None:
    made = Built(workspace)
    (revision,) = made.built.revisions
    assert revision.kept
    assert (revision.verdict.before, revision.verdict.after) == (0.0, 1.0)
    shown = made.shown(ExperienceStore(workspace))
    assert len(shown) == len(made.examples) > 0
    for e in shown:
        assert (e.grade.passed, e.split, e.trust, e.domain) == (True, "train", "own", "toy")
        assert e.task not in made.scored
    assert all(body.startswith("Task: Write the word number") for body in made.examples)
    assert all("Reply: ```bash\nprintf %s" in body for body in made.examples)
    # each is seen by the attempts that decided on it
    assert any(body in told for told in made.hand.prompts for body in made.examples)


@pytest.mark.slow
def test_every_edit_cites_the_attempt_that_its_example_is_of(workspace: Path) -> None:
    (revision,) = Built(workspace).built.revisions
    for edit in revision.edits:
        (cited,) = edit.evidence
        assert read_lesson("x", edit.new).born_of == (cited.experience,)
        assert edit.origin == "experience"


@pytest.mark.parametrize("shown", ["none", "same"])
@pytest.mark.slow
def test_sets_that_lower_the_score_or_change_nothing_are_not_proposed(
    workspace: Path, shown: str
) -> None:
    made = Built(workspace, hand=Hand(shown))
    assert made.built.revisions == ()
    assert made.built.scaffold.digest == SEED.digest
    assert any(DONE_WELL in told for told in made.hand.prompts), "none was tried"


def test_an_agent_that_solves_all_is_left_alone_and_no_set_is_paid_for(workspace: Path) -> None:
    class Able(Hand):
        def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
            return super().reply([{"content": DONE_WELL}, *messages[1:]], call, **params)

    made = Built(workspace, hand=Able())
    assert made.built.revisions == ()
    assert not any(DONE_WELL in told and "Task:" in told for told in made.hand.prompts)


@pytest.mark.parametrize(("tokens", "count"), [(60, 1), (150, 2)])
@pytest.mark.slow
def test_a_set_is_no_larger_than_the_budget_that_prompts_have_for_examples(
    workspace: Path, tokens: int, count: int
) -> None:
    made = Built(workspace, seed=with_toml(f"\n[examples]\ntokens = {tokens}\n"))
    assert 0 < len(made.examples) <= count
    assert sum(map(len, made.examples)) <= 4 * tokens
    assert len(made.built.scaffold.example_list) == len(made.built.scaffold.examples)


def test_where_no_example_would_be_shown_nothing_is_tried(workspace: Path) -> None:
    made = Built(workspace, seed=with_toml("\n[examples]\ntokens = 0\n"))
    assert made.built.revisions == ()
    assert "demos: prompts of this agent show no examples" in made.notes
    assert not made.scored


@pytest.mark.slow
def test_prompts_that_show_no_examples_are_made_to(workspace: Path) -> None:
    plain = "You write words.\n\n```bash\ncommand\n```\n"
    made = Built(workspace, seed=with_toml("", **{"system.md": plain}))
    task = SEED.files["workflow.md"]
    shows = made.built.scaffold.files["workflow.md"]
    assert shows.endswith(f"{{% endif %}}\n{task}")
    assert made.examples[0] in made.hand.prompts[-1]
    again = Built(workspace, "b", seed=made.built.scaffold, hand=Hand("same"))
    assert again.built.scaffold.files["workflow.md"] == shows


@pytest.mark.slow
def test_a_better_set_takes_the_place_of_the_examples_that_there_are(workspace: Path) -> None:
    poor = "# Poor\n\nTask: Write a word.\n\nReply: no\n"
    made = Built(workspace, seed=with_toml("", **{"examples/poor.md": poor}), hand=Poor())
    assert made.built.revisions[0].kept
    assert "examples/poor.md" not in made.built.scaffold.files
    assert made.built.scaffold.examples


class Poor(Hand):
    """It does worse where the poor example is shown."""

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        self.shown = "same" if "Reply: no" in str(messages[0]["content"]) else "all"
        return super().reply(messages, call, **params)


@pytest.mark.parametrize(
    "change",
    [
        {"trust": "imported"},
        {"trust": "foreign"},
        {"task": "toy:validation:1", "group": "validation-1"},
        {"task": "toy:test:1", "group": "test-1"},
        {"group": "validation-1"},
        {"group": "test-3"},
    ],
)
@pytest.mark.slow
def test_memory_lends_no_example_that_was_imported_or_is_of_a_held_out_task_or_its_group(
    workspace: Path, change: dict[str, Any]
) -> None:
    first = Built(workspace, "first", rounds=1, hand=Hand("same"))
    store = ExperienceStore(workspace)
    old = next(e for e in store.experiences("toy", "train") if e.grade.passed)
    words = "planted zanzibar"
    steps = tuple(
        step.model_copy(update={"reply": f"{step.reply} {words}"}) for step in old.trace.steps
    )
    trace = old.trace.model_copy(update={"steps": steps})
    lent = {"id": "feedfacefeedface", "trace": trace, "split": "train", "run": "other"}
    store.add([old.model_copy(update={**lent, **change})])
    made = Built(workspace, "second", optimizer_settings=["sets=2", "size=8"])
    assert first.built.revisions == ()
    assert made.examples
    assert not any(words in told for told in made.hand.prompts)


@pytest.mark.slow
def test_what_memory_has_of_our_own_is_a_candidate_too(workspace: Path) -> None:
    few: dict[str, Any] = {"batch": 1, "optimizer_settings": ["sets=2", "size=2", "attempts=8"]}
    alone = Built(workspace / "alone", **few)
    Built(workspace / "before", "first", hand=Hand("same"))
    after = Built(workspace / "before", "second", **few)
    assert after.pool > alone.pool


@pytest.mark.slow
def test_a_search_killed_on_the_way_ends_as_the_uninterrupted_one_and_asks_nothing_twice(
    workspace: Path,
) -> None:
    whole = Built(workspace / "whole")
    count = len(whole.hand.asked)
    for at in (count // 2, count * 3 // 4):
        here = workspace / f"killed-{at}"
        with pytest.raises(Killed):
            Built(here, hand=Hand(at=at))
        before = {r["call"] for r in Run(here / "runs/a").records("reply")}
        again = Built(here)
        assert not before & set(again.hand.asked)
        assert len(before) + len(again.hand.asked) == count
        assert again.built.scaffold.digest == whole.built.scaffold.digest


@pytest.mark.slow
def test_a_recorded_search_is_replayed_without_a_question(workspace: Path) -> None:
    flags: dict[str, Any] = {
        "train": 8,
        "batch": 8,
        "validation": 5,
        "rounds": 1,
        "sandbox": "none",
        "memory__policy": "none",
        "memory__embedder": "hashed",
        "optimizer_settings": {"sets": 2, "size": 2},
    }
    model = Hand()
    made = recreate.build(Toy(), model=model, optimizer="demos", record="tape", **flags)
    again = recreate.build(Toy(), replay="tape", sandbox="none", out="runs/again")
    assert made.revisions
    assert again.scaffold.digest == made.scaffold.digest
    assert again.scaffold.examples


@pytest.mark.slow
def test_it_makes_no_more_attempts_than_plan_reckons_with(workspace: Path) -> None:
    for attempts in (4, 24):
        made = Built(workspace, f"of-{attempts}", optimizer_settings=[f"attempts={attempts}"])
        told = proposal(made.settings)
        phases: dict[str, set[str]] = {"train": set(), "select": set()}
        for r in made.run.records("experience"):
            phases.setdefault(r["phase"], set()).add(r["attempt"])
        assert len(phases["select"] - phases["train"]) <= told.attempts == attempts
        assert told.calls == 0


@pytest.mark.slow
def test_several_candidates_are_proposed_where_that_is_asked_for(workspace: Path) -> None:
    class Fails(Hand):
        """With examples it solves what is for training, and nothing else."""

        def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
            self.shown = "all" if ":train:" in call.task else "same"
            return super().reply(messages, call, **params)

    one = Built(workspace, "one", hand=Fails(), optimizer_settings=["sets=4"])
    two = Built(workspace, "two", hand=Fails(), optimizer_settings=["sets=4", "candidates=2"])
    assert len(one.built.revisions) == 1
    assert len(two.built.revisions) == 2


class Shows(Toy):
    """Its right answers of train tasks are shown to optimizers."""

    shows_gold = True


@pytest.mark.slow
def test_where_the_agent_has_no_success_right_answers_are_shown_if_the_domain_lets_them(
    workspace: Path,
) -> None:
    class Unable(Hand):
        def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
            odd = call.task.rpartition(":")[0] + ":1"
            number = call.task.rpartition(":")[2]
            plain = super().reply(messages, call.model_copy(update={"task": odd}), **params)
            return Reply(text=plain.text.replace("w1", f"w{number}"))

    made = Built(workspace, "shown", hand=Unable(), domain=Shows())
    assert made.built.revisions[0].kept
    assert all("Answer: w" in body and body.endswith("!") for body in made.examples)
    assert not any(e.grade.passed for e in made.shown(ExperienceStore(workspace)))
    kept_back = Built(workspace, "hidden", hand=Unable(), **{"memory.namespace": "other"})
    assert kept_back.built.revisions == ()


def test_a_setting_that_it_does_not_have_is_refused_by_name(workspace: Path) -> None:
    with pytest.raises(BadInput, match=r"has no setting optimizer_settings\.speed"):
        Built(workspace, optimizer_settings=["speed=1"])


def test_what_the_agent_has_an_example_of_already_scores_no_set() -> None:
    tried = dict[str, set[str]]()

    def evaluate(child: Scaffold, tasks: Sequence[str]) -> list[Experience]:
        tried.setdefault(child.digest, set()).update(tasks)
        return [experience(int(task[1:]), child.digest != carrying.digest) for task in tasks]

    body = "# One\n\nTask: one\n\nReply: done\n\nborn_of: e{}\n"
    examples = {f"examples/{n}.md": body.format(n) for n in (0, 1, 2)}
    carrying = with_toml("", **examples)
    context = OptimizerContext(
        ask=None,  # type: ignore[arg-type]
        recall=lambda query, k, filters: [],
        get=lambda id: experience(int(id[1:])),
        validate=lambda scaffold, edits: [],
        tasks=[f"t{n}" for n in range(8)],
        evaluate=evaluate,
        gold=lambda e: f"answer {e.id}",
    )
    edits = Demos(context).propose(carrying, [])
    assert edits
    mine = tried.pop(carrying.digest)
    assert mine & {"t0", "t1", "t2"}
    assert tried
    assert not {"t0", "t1", "t2"} & set[str]().union(*tried.values())


# ------------------------------------------------------------------------------- what is shown


def test_an_example_has_the_words_of_the_task_that_the_agent_was_shown() -> None:
    e = experience(1)
    asked = "What is 1 + 1?\n\nWrite it into a file."
    step = e.trace.steps[0].model_copy(update={"observation": "What is 1 + 1?\n\nReason."})
    trace = e.trace.model_copy(update={"steps": (step,)})
    shown = e.model_copy(update={"prompt": asked, "trace": trace})
    assert make_example(shown, "Reply: 2").body == "Task: What is 1 + 1?\n\nReply: 2"
    unseen = e.model_copy(update={"prompt": asked})
    assert make_example(unseen, "Reply: 2").body == f"Task: {asked}\n\nReply: 2"


def test_an_example_says_what_was_done_and_handed_in_without_what_could_not_be_read() -> None:
    told = tell_attempt(experience(1))
    assert told == "Reply: ```bash\nls\n```\n\nAnswer: an answer"
    one = Step(step=0, reply="an answer", action="an answer", output="written")
    trace = experience(1).trace.model_copy(update={"steps": (one,)})
    assert tell_attempt(experience(1).model_copy(update={"trace": trace})) == "Answer: an answer"
    two = (one.model_copy(update={"reply": "I look.", "action": "ls"}), one)
    trace = trace.model_copy(update={"steps": two})
    assert tell_attempt(experience(1).model_copy(update={"trace": trace})) == (
        "Reply: I look. ls\n\nResult: written\n\nReply: an answer"
    )

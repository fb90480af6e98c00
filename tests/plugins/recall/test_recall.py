"""An agent that may recall asks memory in the middle of an attempt, and is told of train attempts
at other tasks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents.attempt import attempt
from recreate.agents.config import read_agent
from recreate.agents.lint import problems
from recreate.agents.replay import replay
from recreate.agents.retrieval import MemoryAnswer, recall_query
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput, Interrupted
from recreate.api.types import (
    Call,
    Edit,
    Evidence,
    Experience,
    Grade,
    Lesson,
    Message,
    Reply,
    Step,
    Task,
    Trace,
)
from recreate.lessons.store import LessonStore
from recreate.memory.held_out import Held
from recreate.memory.store import ExperienceStore
from recreate.models.scripted import Scripted
from recreate.plugins.recall.recall import Recollection
from recreate.runs.journal import Journal
from recreate.sandboxes import choose
from tests.agents.test_attempt import TASK, agent, bash
from tests.plugins.recall.recalling import Guilds, Scribe, play
from tests.plugins.recall.recalling import agent as plain
from tests.toy import Toy

RECALLS = "[memory]\nrecall = 400\n"
ASKED = Task(id="toy:train:9", domain="toy", prompt="Mend the parser.", split="train", group="mine")
Ask = Callable[..., MemoryAnswer]


def lived(id: str, *, passed: bool = True, answer: str = "", **more: Any) -> Experience:
    """An attempt at a task of its own, about a parser that loses its quotes."""
    task = more.pop("task", f"toy:train:{id}")
    steps = more.pop("steps", (Step(step=0, action=f"mend {id}", output="mended", status=0),))
    trace = Trace(
        attempt=id, task=task, scaffold="s", model="m", steps=steps, answer=answer or f"answer {id}"
    )
    grade = Grade(
        score=float(passed),
        passed=passed,
        evidence="all tests pass" if passed else "KeyError: 'quote'",
    )
    given: dict[str, Any] = {
        "domain": "toy",
        "group": f"group-{id}",
        "split": "train",
        "digest": "d",
        **more,
    }
    return Experience(
        id=id, task=task, prompt="The parser loses its quotes.", trace=trace, grade=grade, **given
    )


@pytest.fixture
def memory(tmp_path: Path) -> ExperienceStore:
    return ExperienceStore(tmp_path, "hashed")


@pytest.fixture
def recollection(memory: ExperienceStore, tmp_path: Path) -> Callable[..., Recollection]:
    """Memory as the agents of a run may ask it; the same `run` is the same run folder."""
    opened: dict[str, Journal] = {}

    def make(run: str = "run", **more: Any) -> Recollection:
        if run not in opened:
            opened[run] = Journal(tmp_path / run)
            opened[run].open()

        def search(query: str, k: int, filters: Any) -> Any:
            return memory.recall(query, k, filters, "agent")

        return Recollection(
            memory, opened[run], tmp_path / run, "toy", search, lambda text: [], **more
        )

    return make


@pytest.fixture
def ask(recollection: Callable[..., Recollection]) -> Ask:
    """What an agent at ASKED is told."""

    def ask(
        query: str,
        call: str = "r/a/0",
        *,
        tokens: int = 1000,
        lessons: bool = True,
        run: str = "run",
    ) -> MemoryAnswer:
        found = recollection(run)
        return found.asked_by(ASKED, tokens, lessons=lessons, state=found.state())(query, call)

    return ask


# -------------------------------------------------------------------------------------------- what
# it is told


def test_it_is_told_what_was_tried_and_whether_that_passed(
    memory: ExperienceStore, ask: Ask
) -> None:
    memory.add([lived("good"), lived("bad", passed=False)])
    told = ask("a parser that loses quotes")
    assert set(told.found) == {"good", "bad"}
    passed = next(part for part in told.text.split("\n\n") if "passed" in part)
    assert "it did: mend good\nand got: mended\nit handed in: answer good" in passed
    assert "failed (score 0)" in told.text


def test_an_answer_has_no_more_tokens_than_agent_toml_allows(
    memory: ExperienceStore, ask: Ask
) -> None:
    memory.add([lived(f"e{n}", answer="long " * 5000) for n in range(6)])
    for tokens in (100, 400, 2000):
        told = ask("parser quotes", f"r/a/{tokens}", tokens=tokens)
        assert 2 * tokens < len(told.text) <= 4 * tokens
        assert len(told.found) == max(1, min(5, tokens // 250))


def test_of_a_task_one_attempt_that_passed_and_one_that_failed_is_told_of(
    memory: ExperienceStore, ask: Ask
) -> None:
    memory.add([lived(f"e{n}", passed=n == 3, task="toy:train:0", group="g") for n in range(4)])
    assert len(ask("parser quotes", tokens=4000).found) == 2


def test_its_own_task_and_group_are_never_told_of(memory: ExperienceStore, ask: Ask) -> None:
    memory.add(
        [lived("own", task=ASKED.id, answer="42"), lived("sibling", group=ASKED.group, answer="42")]
    )
    memory.add([lived("other")])
    assert ask("mend the parser quotes").found == ("other",)
    assert "42" not in ask("mend the parser 42").text


def test_an_attempt_that_was_told_of_its_own_group_is_not_told_of_either(
    memory: ExperienceStore, ask: Ask
) -> None:
    told = (
        Step(
            step=0, action="recall it", output="the answer is 42", status=0, recalled=("sibling",)
        ),
    )
    again = (
        Step(step=0, action="recall it", output="the answer is 42", status=0, recalled=("knows",)),
    )
    memory.add(
        [
            lived("sibling", group=ASKED.group),
            lived("knows", steps=told),
            lived("hearsay", steps=again),
        ]
    )
    assert ask("parser 42").found == ()


def test_what_is_held_out_is_never_told_of(memory: ExperienceStore, ask: Ask) -> None:
    for split in ("validation", "test"):
        memory.add([lived(split, split=split)])
    memory.add([lived("was-train", group="now-test"), lived("train")])
    assert set(ask("parser quotes", tokens=4000).found) == {"was-train", "train"}
    memory.held_out.add([Held("now-test", "", "test", "toy")])
    assert ask("parser quotes", "r/a/1", tokens=4000).found == ("train",)


def test_a_lesson_in_use_is_told_and_one_on_trial_is_not(memory: ExperienceStore, ask: Ask) -> None:
    store = LessonStore(memory.folder, "toy")
    lessons = [
        Lesson(id=s, title=f"Quotes {s}", body="Look at the parser.", status=s)
        for s in ("active", "candidate")
    ]  # type: ignore[arg-type]
    store.write({}, {x.id: x for x in lessons})
    told = ask("parser quotes")
    assert [told.found, told.lessons] == [("lesson:toy/active",), ["active"]]
    assert "Look at the parser." in told.text
    assert ask("parser quotes", "r/a/1", lessons=False).found == ()


def test_where_there_is_nothing_that_is_said(memory: ExperienceStore, ask: Ask) -> None:
    assert "nothing was attempted in this domain" in ask("anything").text
    memory.add([lived("own", group=ASKED.group)])
    assert "none of the 1 earlier attempts matches that" in ask("anything", run="later").text


# ------------------------------------------------------------------------------- memory stands
# still in a run


def test_what_memory_learns_during_a_run_is_not_told_in_it(
    memory: ExperienceStore, ask: Ask, recollection: Callable[..., Recollection]
) -> None:
    memory.add([lived("before")])
    assert ask("parser quotes").found == ("before",)
    first = recollection().state().digest
    memory.add([lived("after")])
    assert ask("parser quotes", "r/a/1").found == ("before",)
    assert recollection().state().digest == first != recollection("next").state().digest
    assert set(ask("parser quotes", run="next").found) == {"before", "after"}


def test_after_a_kill_an_attempt_is_told_the_same(
    memory: ExperienceStore, ask: Ask, tmp_path: Path
) -> None:
    memory.add([lived("before")])
    told = ask("parser quotes")
    shutil.copytree(tmp_path / "run", tmp_path / "resumed")
    shutil.rmtree(memory.folder / "toy")
    assert told.found == ("before",)
    assert ask("parser quotes", run="resumed") == told
    assert ask("parser quotes", "r/a/1", run="resumed").found == ()


def test_a_damaged_state_stops_the_run_and_says_what_to_do(
    memory: ExperienceStore, recollection: Callable[..., Recollection], tmp_path: Path
) -> None:
    memory.add([lived("before")])
    recollection().state()
    next((tmp_path / "run" / "memory").iterdir()).write_text("{}")
    with pytest.raises(BadInput, match="is not known") as found:
        recollection().state()
    assert found.value.code == "damaged"


# ------------------------------------------------------------------------------------------ how it
# is asked


def go(
    scaffold: Scaffold, rows: list[dict[str, Any]], *, native: bool = False, memory: bool = True
) -> tuple[Trace, list[Any]]:
    """(the trace of an attempt, what was sent). Memory answers with what it was asked."""
    model, sent = Scripted.of(rows), list[Any]()

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        sent.append((messages[:], params))
        return model.reply(messages, call, **params)

    def recall(query: str, call: str) -> MemoryAnswer:
        return MemoryAnswer(f"told of {query} at {call}, KeyError", ("e1", "lesson:toy/quotes"))

    call = Call(run="r", attempt="a", step=0, task=TASK.id)
    given = {"recall": recall} if memory else {}
    return attempt(scaffold, TASK, Toy(), choose("none"), ask, call, native=native, **given), sent  # type: ignore[arg-type]


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize(
    ("toml", "reply", "native"),
    [
        ("", {"text": "```bash\nrecall 'how dates' are written\n```"}, False),
        (
            'action = "json"\n',
            {"text": '{"thought": "", "command": "recall how dates are written"}'},
            False,
        ),
        (
            "native = true\n",
            {"text": "", "tool_calls": [calling("recall", query="how dates are written")]},
            True,
        ),
        (
            'action = "tools"\n',
            {"text": "", "tool_calls": [calling("recall", query="how dates are written")]},
            True,
        ),
        (
            'action = "tools"\n',
            {"text": '{"tool": "recall", "arguments": {"query": "how dates are written"}}'},
            False,
        ),
    ],
)
def test_every_way_of_acting_has_a_way_to_recall(
    toml: str, reply: dict[str, Any], native: bool
) -> None:
    trace, sent = go(agent(toml + RECALLS), [{**reply, "step": 0}, bash("submit")], native=native)
    step = trace.steps[0]
    assert step.output == "told of how dates are written at r/a/0, KeyError"
    assert (step.kind, step.status, step.recalled) == ("action", 0, ("e1", "lesson:toy/quotes"))
    assert "told of how dates are written" in str(sent[1][0][-1]["content"])
    assert ("recall" in str(sent[0][0][0]["content"])) is not native
    assert ("recall" in str(sent[0][1].get("tools"))) is native
    assert trace.steps[1].offered == ("quotes",)


def test_without_recall_in_agent_toml_it_is_a_command_like_any_other() -> None:
    trace, sent = go(agent(), [bash("recall how dates are written", step=0), bash("submit")])
    assert trace.steps[0].status == 127
    assert "recall" not in str(sent[0])


def test_beside_other_commands_it_says_that_it_counts_alone() -> None:
    trace, _ = go(agent(RECALLS), [bash("recall dates; echo went on", step=0), bash("submit")])
    assert (
        trace.steps[0].output
        == "nothing was recalled: recall WORDS counts when it is the whole command, in one"
        " line\nwent on\n"
    )
    assert trace.steps[0].recalled == ()


def test_where_there_is_no_memory_the_agent_is_told_so() -> None:
    trace, _ = go(agent(RECALLS), [bash("recall dates", step=0), bash("submit")], memory=False)
    assert (trace.steps[0].status, trace.steps[0].output) == (
        1,
        "there is no memory here that could be asked: go on without",
    )


def test_what_was_recalled_is_not_done_again() -> None:
    scaffold = agent(RECALLS)
    rows = [bash("recall dates", step=0), bash("echo yes > answer.txt", step=1), bash("submit")]
    trace, _ = go(scaffold, rows)
    sandbox, told = replay(scaffold, TASK, trace, Toy(), choose("none"))
    answer = sandbox.read("answer.txt")
    sandbox.close()
    assert (answer, told) == (b"yes\n", "2 actions were done again, and all ended as they had")


@pytest.mark.parametrize(
    ("command", "query"),
    [
        ("recall how dates are written", "how dates are written"),
        ("  recall 'the error' \"KeyError: 'a'\" ", "the error KeyError: 'a'"),
        ("recall why doesn't f(x) work #1", "why doesn't f(x) work #1"),
        ("recall a | head", ""),
        ("recall a && ls", ""),
        ("recall don't; ls", ""),
        ("recall a\nls", ""),
        ("recall", ""),
        ("recalls a", ""),
    ],
)
def test_what_a_command_asks_memory(command: str, query: str) -> None:
    assert recall_query(command) == query


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (
            "[memory]\nrecall = true",
            "memory.recall: the tokens of one answer, 100 at least: recall = 1000",
        ),
        ("[memory]\nrecall = 20", "100 at least"),
        ('action = "tool:act"\n[memory]\nrecall = 500', "tool:act takes the whole reply"),
        pytest.param(
            'action = "command"\ncommand = "x"\n[memory]\nrecall = 500',
            "`recreate memory serve`",
            marks=pytest.mark.plugin("foreign"),
        ),
    ],
)
def test_what_cannot_recall_is_told_so(toml: str, words: str) -> None:
    found, faults = read_agent(toml)
    assert found is None
    assert any(words in message for _, message in faults)


def test_a_tool_of_the_same_name_is_a_fault() -> None:
    tool = '"""Recalls."""\n'
    assert any(
        "tools/recall.py:1: is called 'recall'" in each
        for each in problems(agent(RECALLS, tools__recall_py=tool))
    )
    assert problems(agent(tools__recall_py=tool)) == []


# ------------------------------------------------------------------------------------------------
# whole runs


def steps(run: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        folder.name: [
            json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()
        ]
        for folder in sorted((run / "attempts").iterdir())
    }


@pytest.mark.slow
def test_in_a_generated_world_only_the_agent_that_recalls_learns_the_rule(tmp_path: Path) -> None:
    solved = play(tmp_path, 25, "none")
    assert solved["recalling"] >= solved["without memory"] + 0.3
    assert solved["nothing to recall yet"] <= solved["without memory"] + 0.1


class StopsOnce(Scribe):
    """Interrupted at its seventh call."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        self.asked.append(call.id)
        if len(self.asked) == 7:
            raise Interrupted("stopped")
        return super().reply(messages, call, **params)


@pytest.mark.slow
def test_a_bench_that_was_stopped_goes_on_with_what_memory_held_and_pays_for_no_call_twice(
    workspace: Path,
) -> None:
    given: dict[str, Any] = {
        "domain": Guilds(4),
        "workspace": workspace,
        "sandbox": "none",
        "jobs": 1,
    }
    given |= {"memory__embedder": "hashed"}
    recreate.bench(
        plain(), split="train", model=Scribe(), out=str(workspace / "runs" / "t"), **given
    )
    measured = {"split": "validation", "out": str(workspace / "runs" / "v"), **given}
    model = StopsOnce()
    with pytest.raises(Interrupted):
        recreate.bench(plain(RECALLS), model=model, **measured)
    ExperienceStore(workspace, "hashed").add([lived("later", domain="guilds")])
    recreate.bench(plain(RECALLS), model=model, **measured)
    assert sorted(model.asked) == sorted([*set(model.asked), model.asked[6]])
    told = [set(each[0]["recalled"]) for each in steps(workspace / "runs" / "v").values()]
    assert len(told) == 4
    assert all(told)
    assert "later" not in set().union(*told)


class SwitchesItOn:
    """An optimizer that lets the agent recall."""

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> list[Edit]:
        seen = Evidence(experience=experiences[0].id, step=0)
        return [
            Edit(
                path="agent.toml",
                new=RECALLS,
                reason="what guilds do is told by no task",
                evidence=(seen,),
            )
        ]


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_a_build_may_let_the_agent_recall_and_measures_it_on_train_experience_alone(
    workspace: Path,
) -> None:
    settings = {
        "memory__embedder": "hashed",
        "rounds": 1,
        "train": 40,
        "validation": 40,
        "batch": 40,
        "jobs": 2,
    }
    out = workspace / "runs" / "built"
    given = {
        "optimizer": SwitchesItOn(),
        "scaffold": plain(),
        "sandbox": "none",
        "memory": "none",
        "out": str(out),
    }
    built = recreate.build(Guilds(60), model=Scribe(), workspace=workspace, **given, **settings)  # type: ignore[arg-type]
    assert [r.verdict.verdict for r in built.revisions] == ["better"]
    assert built.scaffold.agent.memory.recall == 400
    told = {id for each in steps(out).values() for step in each for id in step.get("recalled", ())}
    store = ExperienceStore(workspace)
    assert told
    assert {e.split for id in told if (e := store.get(id)) is not None} == {"train"}

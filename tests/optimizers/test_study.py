"""A study: it looks before it edits, in environments that are rebuilt, and cites what it read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from recreate.agents.scaffold import Scaffold
from recreate.api.types import Experience, Grade, Reply, Step, ToolCall
from recreate.builder.loop import create
from recreate.optimizers import StudySettings
from recreate.optimizers.investigator.conversation import Talk, Tool, Wrong
from recreate.optimizers.investigator.draft import Draft
from recreate.optimizers.investigator.edit_tools import Writer
from recreate.optimizers.investigator.read_tools import Reader
from recreate.optimizers.search import Search
from recreate.runs import settings
from recreate.runs.session import Parts, open_session
from tests.investigator import Investigator
from tests.optimizers.test_reflect import context, experience
from tests.studied import ABOUT, DONE, NOTHING, SEED, Acts, Try, finds_the_mark, lesson, takes_all
from tests.toy import script

pytestmark = pytest.mark.plugin("each")


@pytest.mark.slow
def test_an_edit_that_cites_a_step_it_has_not_read_is_sent_back(attempt: Try) -> None:
    def study(first: str) -> Acts:
        said = yield lesson()
        assert "step 0 of" in said
        assert "was not read yet" in said
        said = yield lesson(steps=[99])
        assert "has steps 0 to 1, not 99" in said
        said = yield lesson(experience="0123456789abcdef")
        assert "there is no train experience" in said
        yield "steps", {"first": 0}
        said = yield lesson()
        assert "edit 1 is made" in said
        yield "finish", DONE

    tried = attempt(study, takes_all)
    assert [s.ending for s in tried.studies] == ["finished", "finished"]
    assert all(e.step == 0 for s in tried.studies for edit in s.edits for e in edit.evidence)


@pytest.mark.slow
def test_a_long_step_is_clipped_among_others_and_whole_alone_in_as_many_parts_as_it_takes(
    attempt: Try,
) -> None:
    flood = "```bash\nseq 100000 104000; echo middle; seq 200000 204000; echo w > answer.txt\n```"
    rows = [
        {"role": "agent", "step": 0, "text": flood},
        {"role": "agent", "text": "```bash\nsubmit\n```"},
    ]

    def study(first: str) -> Acts:
        said = yield "steps", {"first": 0, "last": 1}
        assert "[...]" in said
        assert "\nmiddle\n" not in said
        whole, part = "", 1
        while True:
            said = yield "steps", {"first": 0, "part": part}
            whole += said.partition("\n")[2]
            if said.startswith(f"[part {part} of {part}]"):
                break
            part += 1
        assert part > 1
        assert "\nmiddle\n" in whole
        said = yield "steps", {"first": 0, "part": part + 1}
        assert f"has parts 1 to {part}" in said
        yield "finish", NOTHING

    seed = SEED.files["agent.toml"].replace(
        "observation_chars = 12000", "observation_chars = 100000"
    )
    seed_ = SEED.model_copy(update={"files": {**SEED.files, "agent.toml": seed}})
    tried = attempt(study, seed=seed_, rows=rows, train=1)
    assert [s.ending for s in tried.studies] == ["finished"]


def test_no_change_is_an_honest_outcome_and_costs_no_validation(attempt: Try) -> None:
    def study(first: str) -> Acts:
        said = yield "finish", DONE
        assert "there is no edit" in said
        yield "finish", NOTHING

    tried = attempt(study)
    assert tried.built.revisions == ()
    assert [s.cause for s in tried.studies] == ["none", "none"]


def test_validation_and_test_tasks_are_never_shown(attempt: Try, workspace: Path) -> None:
    """A promise: hidden tests and answers are put into the optimizer's prompt there."""

    def study(first: str) -> Acts:
        said = yield "search", {"query": "word number", "by": "words", "k": 20}
        assert "toy:train:" in said
        assert "toy:validation:" not in said
        said = yield "search", {"query": "Write the word number 1 of the validation list", "k": 20}
        assert "toy:validation:" not in said
        yield "finish", NOTHING

    tried = attempt(study)
    assert [s.ending for s in tried.studies] == ["finished", "finished"]
    shown = json.dumps(tried.model.prompts) + tried.said()
    assert "toy:validation" not in shown
    assert "w0!" not in shown


def test_commands_run_in_the_environment_as_the_agent_left_it_and_as_it_was_given(
    attempt: Try,
) -> None:
    def study(first: str) -> Acts:
        said = yield "run", {"command": "cat answer.txt; echo x > mine.txt"}
        assert "all ended as they had" in said
        assert "\nw" in said
        said = yield "run", {"command": "ls; env | grep -i -c key"}
        assert "mine.txt" in said
        said = yield "run", {"command": "ls answer.txt", "where": "start"}
        assert "[exit status 2]" in said
        yield "finish", NOTHING

    assert [s.ending for s in attempt(study).studies] == ["finished", "finished"]


@pytest.mark.slow
def test_a_tool_is_written_tried_and_mended_before_it_is_handed_in(attempt: Try) -> None:
    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        said = yield "write", {"path": "tools/shout.py", "text": "print('no docstring')", **ABOUT}
        assert "has no docstring" in said
        said = yield (
            "write",
            {"path": "tools/shout.py", "text": '"""Hangs."""\nwhile True: pass', **ABOUT},
        )
        assert "does not end within" in said
        good = '"""Says its task."""\nimport json, sys\nif "--help" not in sys.argv:\n    '
        good += 'print(json.load(open(".recreate/attempt.json"))["prompt"], "done!")\n'
        said = yield "write", {"path": "tools/shout.py", "text": good, **ABOUT}
        assert "edit 1 is made" in said
        said = yield "try_tool", {"name": "shout"}
        assert "done!\n[exit status 0]" in said
        # a line before says that all was built anew
        told = said.partition("done!")[0].strip().splitlines()[-1]
        assert told in first  # the task's words, also where the agent had no tool yet
        yield "finish", {"summary": "A tool.", "cause": "tool"}

    tried = attempt(study, takes_all)
    assert [e.path for e in tried.built.revisions[0].edits] == ["tools/shout.py"]


@pytest.mark.slow
def test_tools_are_called_in_the_endpoints_own_way_where_the_model_can(attempt: Try) -> None:
    tried = attempt(finds_the_mark, takes_all, native=True)
    assert tried.built.revisions[0].kept
    assert {t["function"]["name"] for t in tried.model.params[0]["tools"]} >= {
        "index",
        "steps",
        "run",
        "finish",
    }
    assert "Your tools" not in tried.model.prompts[0][0]["content"]


@pytest.mark.slow
def test_what_a_reviewer_or_the_gate_turned_down_is_told_to_the_next_study(attempt: Try) -> None:
    rounds = []

    def study(first: str) -> Acts:
        said = yield "rejected", {}
        rounds.append(said)
        yield "steps", {"first": 0}
        if "none was rejected" in said:
            yield lesson("Think twice.")
            yield "finish", DONE
        else:
            said = yield lesson("Think twice.")
            assert "was tried before and did not help" in said
            yield "finish", NOTHING

    tried = attempt(study, takes_all, rounds=2)
    assert [r.kept for r in tried.built.revisions] == [False]
    assert "Think twice." in rounds[-1]


def test_the_optimizer_writes_the_seed(workspace: Path, attempt: Try) -> None:
    def study(first: str) -> Acts:
        assert "The domain: toy" in first
        # a small model needs another agent than a capable one
        assert "The agent runs on scripted:" in first
        assert "and has 100 turns" in first
        said = yield "run", {"command": "pwd"}
        assert "/work" in said
        said = yield (
            "edit",
            {"path": "system.md", "old": "", "new": "Write what is asked.", "reason": "r"},
        )
        assert "edit 1 is made" in said
        yield "finish", {"summary": "An agent."}

    values = {"domain": "tests.toy:Toy", "model": "scripted:" + str(workspace / "none.jsonl")}
    (workspace / "none.jsonl").write_text('{"text": ""}\n')
    model = Investigator(script(), study)
    parts = Parts(model=model, optimizer_model=model)
    said = list[str]()
    loaded, folder = settings.load(workspace, values, {}), workspace / "runs" / "c"
    session = open_session(
        loaded,
        workspace,
        folder,
        parts=parts,
        say=lambda _, told: said.append(str(told.get("text"))),
    )
    try:
        seed = create(session, SEED)
    finally:
        session.close()
    assert seed.files["system.md"].endswith("Write what is asked.\n")
    assert any(text.endswith("run folder runs/c") for text in said)  # before anything is paid for


SCORES = st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), min_size=1, max_size=6)
BEFORE = st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=6, max_size=6)


@hypothesis.given(SCORES, BEFORE, st.sampled_from([-0.5, 0.0, 0.2, 0.35, 1.0]), st.integers(1, 3))
def test_a_candidate_is_attempted_until_it_cannot_beat_the_best_and_its_choice_is_never_another(
    scores: list[float | None], before: list[float], beat: float, jobs: int
) -> None:
    made = list[int]()

    def scored(task: str, score: float) -> Experience:
        return experience(1).model_copy(
            update={"task": task, "grade": Grade(score=score, passed=False)}
        )

    def evaluate(child: Scaffold, tasks: Sequence[str]) -> list[Experience]:
        made.extend(range(len(made), len(made) + len(tasks)))
        found = ((task, scores[int(task)]) for task in tasks)  # None: it was excluded
        return [scored(task, s) for task, s in found if s is not None]

    given = context([])
    given.evaluate, given.jobs, tasks = evaluate, jobs, [str(n) for n in range(len(scores))]
    given.tasks = tuple(tasks)
    search = Search(given, SEED, [scored(task, b) for task, b in zip(tasks, before, strict=False)])
    whole, made[:] = search.measure([], tasks), []
    found = search.measure([], tasks, beat=beat)
    assert whole is not None
    assert found is not None
    assert (search.gain(found) > beat) == (search.gain(whole) > beat)
    if search.gain(found) > beat:
        assert found.scores == whole.scores
    won = [0.0 if s is None else s - b for s, b in zip(scores, before, strict=False)]
    hope = [won[:n] + [1 - b for b in before[n : len(scores)]] for n in range(len(scores) + 1)]
    lost = [n for n in range(1, len(scores) + 1) if math.fsum(hope[n]) / len(scores) <= beat]
    assert len(made) <= (lost[0] + jobs - 1 if lost else len(scores))


def answered(draft: Draft, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """What the tools answer to the calls of one reply."""
    reader = Reader(draft.context, draft, experience(1), [experience(1)])
    writer = Writer(draft, lambda given: (), {}, (), origin="search")
    result: dict[str, str] = {}
    finish = Tool("finish", "decide", "Ends.", lambda: result.update(summary="done") or "handed in")
    told: list[str] = []

    def ask(messages: Any, *, step: int, thread: str = "", **params: Any) -> Reply:
        told[:] = [message["content"] for message in messages if message["role"] == "tool"]
        made = [
            ToolCall(id=str(n), name=name, arguments=json.dumps(given))
            for n, (name, given) in enumerate(calls)
        ]
        return Reply(text="", tool_calls=tuple(made), finish="tool_calls")

    limits = StudySettings(steps=2)
    Talk(
        ask,
        "t",
        lambda native: [],
        [*reader.tools(), *writer.tools(), finish],
        limits,
        True,
        result,
    ).run()
    return told


def change(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "edit", {"path": path, "old": old, "new": new, "reason": "r"}


def test_after_a_refused_edit_nothing_of_that_reply_is_done_but_looking() -> None:
    draft = Draft(SEED, context([]))
    said = answered(
        draft,
        change("workflow.md", "", "One."),
        ("nonsense", {}),
        change("workflow.md", "", "Two."),
        ("scaffold", {"path": "workflow.md"}),
        ("finish", {}),
    )
    assert "edit 1 is made" in said[0]
    assert said[2].startswith("not done: `nonsense` (call 2) before it in this reply was refused")
    assert "One." in said[3]
    assert "Two." not in said[3]
    assert said[4].startswith("not done")
    assert draft.edits[0].new == "One.\n"


def test_a_reply_whose_edit_does_not_apply_is_not_handed_in() -> None:
    draft = Draft(SEED, context([], complaint="wrong"))
    said = answered(
        draft, change("system.md", "", "wrong"), change("system.md", "", "right"), ("finish", {})
    )
    assert said[0].startswith("not made: wrong")
    assert said[1].startswith("not done: `edit` (call 1)")
    assert said[2].startswith("not done: `edit` (call 1)")
    assert draft.edits == []


def test_after_a_refused_edit_those_of_other_files_in_that_reply_are_made() -> None:
    draft = Draft(SEED, context([], complaint="wrong"))
    said = answered(
        draft,
        change("system.md", "", "wrong"),
        change("workflow.md", "", "Look first."),
        change("system.md", "", "right"),
        ("undo", {"edit": 1}),
        ("finish", {}),
    )
    assert said[1].startswith("edit 1 is made: workflow.md")
    assert [text.startswith("not done: `edit` (call 1)") for text in said] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert {e.path for e in draft.edits} == {"workflow.md"}


def test_a_refusal_names_the_file_and_no_other_edit() -> None:
    draft = Draft(SEED, context([], complaint="edit 1 (system.md) names a thing"))
    wrong = change("system.md", "", "edit 1 (system.md) names a thing")
    said = answered(draft, change("workflow.md", "", "One."), wrong, ("finish", {}))
    assert said[1].startswith("not made: system.md names a thing")


def test_a_long_tool_is_read_whole_in_parts() -> None:
    long = "".join(f"# line {n}\n" for n in range(5000))
    draft = Draft(
        SEED.model_copy(update={"files": {**SEED.files, "tools/long.py": long}}), context([])
    )
    reader = Reader(context([]), draft, None, [])
    parts = [reader.scaffold("tools/long.py", part) for part in (1, 2, 3)]
    assert "".join(part.partition("\n")[2] for part in parts) == long
    assert parts[0].startswith("[part 1 of 3")
    with pytest.raises(Wrong, match="parts 1 to 3"):
        reader.scaffold("tools/long.py", 4)


def test_a_whole_file_is_written_in_one_call() -> None:
    draft = Draft(SEED, context([]))
    whole = {"path": "workflow.md", "text": "\n{{ task.prompt }}\nLook first.", "reason": "r"}
    said = answered(draft, ("write", whole), ("finish", {}))
    assert said == []  # the reply ended the talk
    assert draft.current.files["workflow.md"] == "{{ task.prompt }}\nLook first.\n"
    assert draft.edits[0].old == SEED.files["workflow.md"]


def test_what_another_step_has_told_is_named_and_not_told_again() -> None:
    functions = [
        f"## `{name}`\n" + "".join(f"    {name} = {n}\n" for n in range(30)) for name in "fgh"
    ]
    printed, turned = "".join(functions).strip(), "".join([*functions[1:], functions[0]]).strip()
    steps = (
        Step(step=0, kind="before", action="localize", output=printed, status=0),
        Step(
            step=1, observation=f"Mend it.\n{printed}\nAnswer.", reply="one", action="x", status=0
        ),
        Step(step=2, kind="before", sample=1, action="localize", output=turned, status=0),
        Step(
            step=3,
            sample=1,
            observation=f"Mend it.\n{turned}\nAnswer.",
            reply="two",
            action="x",
            status=0,
        ),
    )
    e = experience(1)
    e = e.model_copy(update={"trace": e.trace.model_copy(update={"steps": steps})})
    reader = Reader(context([]), Draft(SEED, context([])), e, [e])
    window = reader.steps(0, 3)
    assert window.count("f = 7") == 1
    assert "Mend it.\n['## `f`', 93 lines that step 0 shows]\nAnswer." in window
    assert (
        "['## `g`', 62 lines that step 0 shows]\n['## `f`', 31 lines that step 0 shows]" in window
    )
    assert "the agent replied:\ntwo" in window
    assert "f = 7" not in reader.steps(1)
    # a step that was first to tell a thing tells it whenever it is asked
    assert reader.steps(0).count("f = 7") == 1


def test_an_edit_whose_pattern_became_a_backspace_is_refused_with_how_json_writes_it() -> None:
    draft = Draft(SEED, context([]))
    said = answered(draft, change("workflow.md", "", "Look for \bjoin\b."), ("finish", {}))
    assert "would hold a backspace" in said[0]
    assert "\\\\b for the two characters" in said[0]
    assert not draft.edits
    assert "edit 1 is made" in answered(draft, change("workflow.md", "", "Look for \\bjoin\\b."))[0]

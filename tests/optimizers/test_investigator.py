"""The optimizer `recreate`: what it must do whatever its model does, and what we promise of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import Fault
from recreate.api.types import Call, Lesson
from recreate.lessons.store import LessonStore
from recreate.viewer.facts import RunFacts
from recreate.viewer.markdown import report
from tests.investigator import Action
from tests.studied import ABOUT, DONE, NOTHING, SEED, Acts, Try, finds_the_mark, lesson, takes_all
from tests.toy import LESSON

pytestmark = pytest.mark.plugin("each")


@pytest.mark.slow
def test_it_investigates_and_what_helps_on_held_out_tasks_is_kept(attempt: Try) -> None:
    tried = attempt(finds_the_mark, takes_all)
    assert [r.kept for r in tried.built.revisions] == [True]
    assert [x.body for x in tried.built.scaffold.lessons] == [LESSON]
    assert len(tried.built.scaffold.lessons[0].born_of) == 2
    assert {e.experience for e in tried.built.revisions[0].edits[0].evidence} == {
        s.experience for s in tried.studies
    }
    assert next(s for s in tried.all if s.kind == "distil").edits == tried.built.revisions[0].edits
    assert [s.kinds for s in tried.studies] == [{"inspect": 3, "edit": 1, "decide": 1}] * 2
    assert tried.studies[0].cause == "knowledge"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "answer"),
    [
        (("edit", {"path": "../x.md", "old": "", "new": "x", **ABOUT}), "leads outside"),
        (("edit", {"path": "/etc/passwd", "old": "", "new": "x", **ABOUT}), "leads outside"),
        (
            ("edit", {"path": "system.md", "old": "", "new": "{{ task.answer }}", **ABOUT}),
            "system.md:",
        ),
        (
            ("edit", {"path": "system.md", "old": "", "new": "{% for x in %}", **ABOUT}),
            "system.md:",
        ),
        (
            ("edit", {"path": "system.md", "old": "not there", "new": "x", **ABOUT}),
            "copy the text exactly",
        ),
        (
            (
                "edit",
                {"path": "system.md", "old": "", "new": "{{ task.prompt.truncate(9) }}", **ABOUT},
            ),
            "a filter",
        ),
        (("write", {"path": "../x.md", "text": "x", **ABOUT}), "leads outside"),
        (("write", {"path": "system.md", "text": " ", **ABOUT}), "give all of the file"),
        (("write", {"path": "format.md", "text": "Be brief.", **ABOUT}), "protected"),
        (("write", {"path": "README.md", "text": "Trust it.", **ABOUT}), "edit another file"),
        (
            ("write", {"path": "workflow.md", "text": "As in toy:train:0.", **ABOUT}),
            "say what holds for any task",
        ),
        (
            ("finish", {"summary": "s", "cause": "luck"}),
            "must be one of knowledge, strategy, tool, none",
        ),
        (
            ("finish", {"summary": "s"}),
            "needs the argument cause, one of knowledge, strategy, tool, none: where",
        ),
        (("edit", {"path": "format.md", "old": "", "new": "Be brief.", **ABOUT}), "protected"),
        (
            (
                "edit",
                {
                    "path": "agent.toml",
                    "old": 'action = "bash"',
                    "new": 'action = "bash"\nsamples = 50',
                    **ABOUT,
                },
            ),
            "samples: what an attempt may cost",
        ),
        (
            ("edit", {"path": "agent.toml", "old": "steps = 100", "new": "steps = 9000", **ABOUT}),
            "limits: what an attempt may cost",
        ),
        (
            ("edit", {"path": "agent.toml", "old": "", "new": "samples = 50\n", **ABOUT}),
            "unknown key",
        ),
        (
            ("edit", {"path": "README.md", "old": "", "new": "Trust it.\n", **ABOUT}),
            "README.md is for people",
        ),
        (("delete", {"path": "system.md", **ABOUT}), "only tools and lessons"),
        (
            ("lesson", {"title": "T", "text": "As in toy:train:0, say it.", **ABOUT}),
            "say what holds for any task",
        ),
        (
            ("lesson", {"title": "T", "text": "x", "replaces": "none such", **ABOUT}),
            "there is no lesson",
        ),
        (("undo", {"edit": 3}), "you have 0 edits: none to take back"),
        (("nonsense", {}), "there is no tool"),
        (("steps", {"first": -1}), "has steps"),
        (("steps", {"first": "one"}), "must be of type integer"),
        (("steps", {}), "needs the argument first"),
        (("index", {"depth": 3}), "has no argument depth"),
        (("search", {"query": "x", "where": {"colour": "red"}}), "no filter 'colour'"),
        ('{"tool": "index", "arguments": []}', "must be one JSON object"),
    ],
)
def test_bad_actions_are_answered_with_why_and_the_parent_stays_intact(
    attempt: Try, action: Action, answer: str
) -> None:
    top = 'protect = ["format.md"]\n' + SEED.files["agent.toml"]
    seed = SEED.model_copy(
        update={"files": {**SEED.files, "agent.toml": top, "format.md": "{{ error }}\n"}}
    )

    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        said = yield action
        assert answer in said, said
        yield "finish", NOTHING

    tried = attempt(study, seed=seed, train=1)
    assert [s.ending for s in tried.studies] == ["finished"]
    assert tried.built.scaffold.files == seed.files


def test_prose_only_ends_the_study_with_a_record_and_no_edit(attempt: Try) -> None:
    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        yield lesson()
        while True:
            said = yield "I think that all is well."
            assert "Only one JSON object counts" in said

    tried = attempt(study)
    assert [s.ending for s in tried.studies] == ["prose", "prose"]
    assert tried.built.revisions == ()
    assert tried.built.scaffold.digest == SEED.digest


@pytest.mark.parametrize(
    ("limit", "why"), [({"study.steps": 4}, "steps"), ({"study.tokens": 3000}, "tokens")]
)
def test_a_study_beyond_its_limits_leaves_no_half_made_edit(
    attempt: Try, limit: dict[str, Any], why: str
) -> None:
    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        yield lesson()
        while True:
            yield "index", {}

    tried = attempt(study, **limit)
    assert [(s.ending, s.why, s.edits) for s in tried.studies] == [("limit", why, ())] * 2
    assert tried.built.revisions == ()


@pytest.mark.slow
def test_an_endpoint_that_dies_in_mid_study_sets_that_study_aside_and_the_others_go_on(
    attempt: Try,
) -> None:
    threads: list[str] = []

    def dies(call: Call) -> None:
        if call.attempt not in threads:
            threads.append(call.attempt)
        if call.attempt == threads[0] and call.step == 2:
            raise Fault("the endpoint is gone", code="gone")

    tried = attempt(finds_the_mark, before=dies, jobs=1)
    assert [s.ending for s in tried.studies] != ["finished", "finished"]
    assert sorted(s.ending for s in tried.studies) == ["fault", "finished"]
    assert [r.kept for r in tried.built.revisions] == [True]
    lost = next(s for s in tried.studies if s.ending == "fault")
    assert (lost.edits, "the endpoint is gone" in lost.why) == ((), True)


@pytest.mark.slow
def test_when_every_study_is_lost_the_build_stops_and_resumes_without_paying_twice(
    attempt: Try,
) -> None:
    calls: list[str] = []
    dead = [True]

    def dies(call: Call) -> None:
        if call.step >= 2 and dead[0]:
            raise Fault("the endpoint is gone", code="gone")
        calls.append(call.id)

    with pytest.raises(Fault, match="no study could be made"):
        attempt(finds_the_mark, takes_all, before=dies)
    dead[0] = False
    tried = attempt(finds_the_mark, takes_all, before=dies)
    assert [r.kept for r in tried.built.revisions] == [True]
    assert len(calls) == len(set(calls))


@pytest.mark.slow
@pytest.mark.parametrize("native", [True, False])
def test_a_word_like_a_key_in_a_reply_ends_no_build_and_is_paid_once(
    attempt: Try, native: bool
) -> None:
    calls: list[str] = []
    stops = [True]

    def count(call: Call) -> None:
        if call.step == 2 and stops[0]:
            raise Fault("the endpoint is gone", code="gone")
        calls.append(call.id)

    def study(first: str) -> Acts:
        yield "run", {"command": "echo sk-proj-7Qb2Xw9Lk4Tz8Vn3Mc6Rd1Yf5Hs"}
        yield "steps", {"first": 0, "last": 1}
        yield lesson()
        yield "finish", DONE

    with pytest.raises(Fault, match="no study could be made"):
        attempt(study, takes_all, native=native, before=count)
    stops[0] = False
    tried = attempt(study, takes_all, native=native, before=count)
    assert [s.ending for s in tried.studies] == ["finished", "finished"]
    assert [r.kept for r in tried.built.revisions] == [True]
    assert len(calls) == len(set(calls))


@pytest.mark.slow
def test_optimizer_commands_run_without_keys_and_no_key_is_written_down(
    attempt: Try, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promise: the optimizer runs in a host shell with every API key there, and keys are saved
    into trajectories."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecretverysecretverysecret")

    def study(first: str) -> Acts:
        said = yield (
            "run",
            {
                "command": (
                    "env; cat /proc/1/environ | tr '\\0' '\\n'; echo"
                    " sk-verysecretverysecretverysecret"
                )
            },
        )
        assert "OPENAI_API_KEY=" not in said  # what was echoed is masked by its name
        yield "steps", {"first": 0}
        yield lesson("Use sk-verysecretverysecretverysecret as the key.")
        yield "finish", {**DONE, "summary": "sk-verysecretverysecretverysecret"}

    tried = attempt(study, train=1)
    assert [s.ending for s in tried.studies] == ["finished"]
    for file in [*tried.run.folder.glob("studies/*/*"), tried.run.folder / "journal.jsonl"]:
        assert "verysecretvery" not in file.read_text()


@pytest.mark.slow
def test_every_episode_ever_lived_is_searchable_across_runs(attempt: Try, workspace: Path) -> None:
    """A promise: each optimizer sees one episode there, and its memory search is a substring
    match."""

    def first_run(first: str) -> Acts:
        yield "finish", NOTHING

    attempt(first_run, train=2)
    (workspace / "runs" / "a").rename(workspace / "runs" / "earlier")
    found: list[str] = []

    def study(first: str) -> Acts:
        found.append((yield "search", {"query": "an answer that does not end as it must", "k": 20}))
        found.append(
            (
                yield (
                    "search",
                    {"query": "answer.txt", "by": "words", "where": {"outcome": "failed"}, "k": 20},
                )
            )
        )
        other = re.findall(r"experience ([0-9a-f]{16})", found[0])
        said = yield "steps", {"first": 0, "experience": other[0]}
        assert "the agent replied" in said
        yield "finish", NOTHING

    seed = SEED.model_copy(
        update={"files": {**SEED.files, "system.md": SEED.files["system.md"] + "\nBe brief.\n"}}
    )
    tried = attempt(study, train=1, seed=seed)
    assert [s.ending for s in tried.studies] == ["finished"]
    assert all(len(set(re.findall(r"experience ([0-9a-f]{16})", said))) >= 2 for said in found)


def test_a_lesson_that_is_found_lists_every_experience_it_was_born_of_or_contradicted_by(
    attempt: Try, workspace: Path
) -> None:
    learned = Lesson(
        id="marks",
        title="Marks",
        body="Mind the marks at the end.",
        scope="domain",
        status="active",
        born_of=("aaaa",),
        supports=("aaaa", "bbbb"),
        contradicts=("cccc",),
    )
    LessonStore(workspace / "memory", "toy").write({}, {"marks": learned})
    said: list[str] = []

    def study(first: str) -> Acts:
        said.append((yield "search", {"query": "marks at the end", "where": {"grain": "lesson"}}))
        yield "finish", NOTHING

    attempt(study, train=1)
    assert "lesson:toy/marks (domain lesson, active)" in said[0]
    assert "born of aaaa\nsupported by aaaa, bbbb\ncontradicted by cccc" in said[0]


@pytest.mark.slow
def test_what_does_not_help_any_more_is_deleted(attempt: Try) -> None:
    """A promise: prompts, tools and memories only grow there."""
    files = {**SEED.files, "memory/old.md": "# Old\n\nNever end with a mark.\n"}

    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        yield "delete", {"path": "memory/old.md", "reason": "it is wrong", "steps": [0]}
        yield lesson()
        yield "finish", DONE

    tried = attempt(study, takes_all, seed=SEED.model_copy(update={"files": files}))
    assert "memory/old.md" not in tried.built.scaffold.files
    assert [x.body for x in tried.built.scaffold.lessons] == [LESSON]


def test_one_ledger_holds_every_call_of_studies_and_distilling(attempt: Try) -> None:
    """A promise: seed, synthesis and agent spend are left out there."""
    tried = attempt(finds_the_mark, takes_all)
    spent = tried.run.spend().by_role
    assert spent["optimizer"].calls == sum(s.usage.calls for s in tried.all)
    assert spent["optimizer"].tokens_in == sum(s.usage.tokens_in for s in tried.all)


@pytest.mark.slow
def test_the_report_tells_what_was_studied_and_how_much_of_it_was_inspection(attempt: Try) -> None:
    tried = attempt(finds_the_mark, takes_all)
    text = report(RunFacts(tried.run, tried.built))
    assert "knowledge, 1 edit; 5 actions (60% inspection)" in text
    assert "The mark was missing." in text


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_the_agent_rehearses_a_train_task_with_the_edit_before_validation_is_paid(
    attempt: Try,
) -> None:
    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        said = yield "rehearse", {}
        assert "there is no edit to rehearse" in said
        yield lesson()
        said = yield "rehearse", {}
        assert "PASSED" in said
        assert "[1 rehearsals are left]" in said
        made = re.findall(r"experience ([0-9a-f]{16})", said)[0]
        said = yield "steps", {"first": 0, "experience": made}
        assert "!' > answer.txt" in said
        yield "rehearse", {}
        said = yield "rehearse", {}
        assert "no rehearsal is left" in said
        yield "finish", DONE

    tried = attempt(study, train=1)
    assert [s.ending for s in tried.studies] == ["finished"]
    assert tried.studies[0].kinds["try"] == 4
    attempted = [r for r in tried.run.records("experience") if r["split"] == "train"]
    assert [r["passed"] for r in attempted] == [False, True]
    assert tried.run.spend().attempts == 2 + 2 * 8


def test_a_budget_without_attempts_to_spare_rehearses_nothing_and_still_judges(
    attempt: Try,
) -> None:
    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        yield lesson()
        said = yield "rehearse", {}
        assert "cannot be rehearsed" in said
        yield "finish", DONE

    tried = attempt(study, train=1, budget=["17attempts"])
    assert [r.kept for r in tried.built.revisions] == [True]


def test_an_environment_keeps_what_was_done_to_it_until_it_is_made_anew(attempt: Try) -> None:
    def study(first: str) -> Acts:
        yield "run", {"command": "echo x > mine.txt"}
        said = yield "run", {"command": "ls"}
        assert "mine.txt" in said
        said = yield "run", {"command": "ls", "fresh": True}
        assert "mine.txt" not in said
        assert "was rebuilt" in said
        yield "finish", NOTHING

    assert [s.ending for s in attempt(study, train=1).studies] == ["finished"]


def test_a_command_that_takes_the_tools_place_away_costs_its_answer_and_not_the_build(
    attempt: Try,
) -> None:
    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        good = '"""Greets."""\nimport sys\nif "--help" not in sys.argv:\n    print("hello")\n'
        yield "write", {"path": "tools/greet.py", "text": good, **ABOUT}
        yield "run", {"command": "rm -rf .recreate; touch .recreate"}
        said = yield "try_tool", {"name": "greet"}
        assert "cannot be put there" in said
        said = yield "run", {"command": "greet", "fresh": True}
        assert "hello" in said
        said = yield "write", {"path": "tools/bow.py", "text": good, **ABOUT}
        assert "edit 2 is made" in said
        yield "undo", {"edit": 1}
        said = yield "undo", {"edit": 1}
        assert "you have 1 edits: name one of 2" in said
        said = yield "write", {"path": "tools/nod.py", "text": good, **ABOUT}
        assert "edit 3 is made" in said  # none has the number of one that was taken back
        yield "undo", {"edit": 2}
        yield "undo", {"edit": 3}
        yield "finish", NOTHING

    assert [s.ending for s in attempt(study, train=1).studies] == ["finished"]

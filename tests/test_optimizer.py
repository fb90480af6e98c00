"""The optimizer `recreate`: it investigates before it edits, and nothing half-made, leaking or unread comes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from recreate import scaffold as scaffolds
from recreate import settings
from recreate.errors import Fault
from recreate.loop import Built, build, create
from recreate.optimizers.best_of_n import BestOfN
from recreate.optimizers.draft import union
from recreate.paths import shipped
from recreate.report import report
from recreate.runs import Run
from recreate.scaffold import Scaffold
from recreate.types import Call, Study
from recreate.workshop import open_workshop
from tests.investigator import Action, Investigator
from tests.test_reflect import experience, materials
from tests.test_reflect import study as proposal
from tests.toy import LESSON, script

Acts = Generator[Action, str, None]
SEED = scaffolds.load(shipped("scaffolds") / "seed")
DONE = {"summary": "The mark was missing.", "cause": "knowledge"}
NOTHING = {"summary": "Chance.", "cause": "none"}
ABOUT = {"reason": "The grader wants a mark.", "steps": [0]}


class Tried:
    """What a build left: the result, its run, its studies by experience and the model that was asked."""

    def __init__(self, built: Built, run: Run, model: Investigator) -> None:
        self.built, self.run, self.model = built, run, model
        files = sorted((run.folder / "studies").glob("*/study.json"))
        self.all = [Study.model_validate_json(f.read_text()) for f in files]
        self.studies = [s for s in self.all if s.kind == "study"]

    def said(self) -> str:
        """All that tools answered."""
        lines = []
        for file in sorted((self.run.folder / "studies").glob("*/steps.jsonl")):
            lines += [json.loads(line).get("output", "") for line in file.read_text().splitlines()]
        return "\n".join(lines)


Try = Callable[..., Tried]


@pytest.fixture
def attempt(workspace: Path) -> Try:
    """Build on the toy domain with an optimizer that acts by rule; train tasks are studied one by one."""

    def go(study: Any, distil: Any = None, seed: Scaffold = SEED, **flags: Any) -> Tried:
        model_flags = {k: flags.pop(k) for k in ("native", "before") if k in flags}
        model = Investigator(flags.pop("rows", script()), study, distil, **model_flags)
        values = {"domain": "tests.toy:Toy", "model": "scripted:" + str(workspace / "none.jsonl"), "train": 2}
        (workspace / "none.jsonl").write_text('{"text": ""}\n')
        values |= {"optimizer": "recreate", "models.retries": 0, "memory.embedder": "hashed", **flags}
        folder = workspace / "runs" / "a"
        resume = (folder / "settings.toml").exists()
        shop = open_workshop(settings.load(workspace, values, {}), workspace, folder, resume=resume)
        shop.model = shop.optimizer_model = model
        try:
            return Tried(build(shop, seed), Run(folder), model)
        finally:
            shop.close()

    return go


def lesson(text: str = LESSON, title: str = "How answers end", **more: Any) -> Action:
    return "lesson", {"title": title, "text": text, **ABOUT, **more}


def finds_the_mark(first: str) -> Acts:
    yield "index", {}
    yield "steps", {"first": 0, "last": 1}
    yield "evidence", {}
    yield lesson()
    yield "finish", DONE


def takes_all(first: str) -> Acts:
    yield "finish", {"summary": "All of it."}
    yield "finish", {"summary": "All of it."}


def test_it_investigates_and_what_helps_on_held_out_tasks_is_kept(attempt: Try) -> None:
    tried = attempt(finds_the_mark, takes_all)
    assert [r.kept for r in tried.built.revisions] == [True]
    assert [x.body for x in tried.built.scaffold.lessons] == [LESSON]
    assert len(tried.built.scaffold.lessons[0].born_of) == 2
    assert {e.experience for e in tried.built.revisions[0].edits[0].evidence} == {s.experience for s in tried.studies}
    assert next(s for s in tried.all if s.kind == "distil").edits == tried.built.revisions[0].edits
    assert [s.kinds for s in tried.studies] == [{"inspect": 3, "edit": 1, "decide": 1}] * 2
    assert tried.studies[0].cause == "knowledge"


# ------------------------------------------------------------------------------------------------ evidence


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


def test_a_long_step_is_clipped_among_others_and_whole_alone_in_as_many_parts_as_it_takes(attempt: Try) -> None:
    flood = "```bash\nseq 100000 104000; echo middle; seq 200000 204000; echo w > answer.txt\n```"
    rows = [{"role": "agent", "step": 0, "text": flood}, {"role": "agent", "text": "```bash\nsubmit\n```"}]

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

    seed = SEED.files["agent.toml"].replace("observation_chars = 8000", "observation_chars = 100000")
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


# ---------------------------------------------------------------------------------------------- environment


def test_commands_run_in_the_environment_as_the_agent_left_it_and_as_it_was_given(attempt: Try) -> None:
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


def test_a_tool_is_written_tried_and_mended_before_it_is_handed_in(attempt: Try) -> None:
    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        said = yield "tool", {"name": "shout", "code": "print('no docstring')", **ABOUT}
        assert "has no docstring" in said
        said = yield "tool", {"name": "shout", "code": '"""Hangs."""\nwhile True: pass', **ABOUT}
        assert "does not end within" in said
        good = '"""Adds the mark to answer.txt."""\nimport sys\nif "--help" not in sys.argv:\n    print("done!")\n'
        said = yield "tool", {"name": "shout", "code": good, **ABOUT}
        assert "edit 1 is made" in said
        said = yield "try_tool", {"name": "shout"}
        assert "done!\n[exit status 0]" in said
        yield "finish", {"summary": "A tool.", "cause": "tool"}

    tried = attempt(study, takes_all)
    assert [e.path for e in tried.built.revisions[0].edits] == ["tools/shout.py"]


# -------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        (("edit", {"path": "../x.md", "old": "", "new": "x", **ABOUT}), "leads outside"),
        (("edit", {"path": "/etc/passwd", "old": "", "new": "x", **ABOUT}), "leads outside"),
        (("edit", {"path": "system.md", "old": "", "new": "{{ task.answer }}", **ABOUT}), "system.md:"),
        (("edit", {"path": "system.md", "old": "", "new": "{% for x in %}", **ABOUT}), "system.md:"),
        (("edit", {"path": "system.md", "old": "not there", "new": "x", **ABOUT}), "is not in the file"),
        (("edit", {"path": "format.md", "old": "", "new": "Be brief.", **ABOUT}), "protected"),
        (("edit", {"path": "agent.toml", "old": "", "new": "samples = 50\n", **ABOUT}), "agent.toml"),
        (("delete", {"path": "system.md", **ABOUT}), "only tools and lessons"),
        (("lesson", {"title": "T", "text": "As in toy:train:0, say it.", **ABOUT}), "say it in general"),
        (("lesson", {"title": "T", "text": "x", "replaces": "none such", **ABOUT}), "there is no lesson"),
        (("undo", {"edit": 3}), "you have 0 edits"),
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
    seed = SEED.model_copy(update={"files": {**SEED.files, "agent.toml": top, "format.md": "{{ error }}\n"}})

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


@pytest.mark.parametrize(("limit", "why"), [({"study.steps": 4}, "steps"), ({"study.tokens": 3000}, "tokens")])
def test_a_study_beyond_its_limits_leaves_no_half_made_edit(attempt: Try, limit: dict[str, Any], why: str) -> None:
    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        yield lesson()
        while True:
            yield "index", {}

    tried = attempt(study, **limit)
    assert [(s.ending, s.why, s.edits) for s in tried.studies] == [("limit", why, ())] * 2
    assert tried.built.revisions == ()


def test_an_endpoint_that_dies_in_mid_study_sets_that_study_aside_and_the_others_go_on(attempt: Try) -> None:
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


def test_when_every_study_is_lost_the_build_stops_and_resumes_without_paying_twice(attempt: Try) -> None:
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


# -------------------------------------------------------------------------------------------------- distilling


def test_two_lessons_learnt_in_parallel_both_survive_the_distilling(attempt: Try) -> None:
    """A promise: 8 memories are added in parallel there, 2 kept."""

    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        title = "One" if first.partition("experience ")[2][:16] == min(seen(first)) else "Other"
        yield lesson(f"{title} thing: {LESSON}", title)
        yield "finish", DONE

    tried = attempt(study, takes_all)
    assert sorted(x.title for x in tried.built.revisions[0].edits and tried.built.scaffold.lessons) == ["One", "Other"]


def seen(first: str) -> set[str]:
    """The ids of the experiences that a study is told of."""
    return set(re.findall(r"experience ([0-9a-f]{16})", first))


@pytest.mark.parametrize("kind", ["tool", "lesson", "change"])
def test_a_tool_only_a_memory_only_and_a_change_to_a_tool_survive_the_distilling(attempt: Try, kind: str) -> None:
    """A promise: proposals that only add a tool or a memory are thrown away there, and no tool is ever changed."""
    old = '"""Says hello."""\nprint("hello")\n'
    seed = SEED.model_copy(update={"files": {**SEED.files, "tools/hello.py": old}})
    new = old.replace('print("hello")', 'print("hello!")')

    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        if first.partition("experience ")[2][:16] != min(seen(first)):
            yield "edit", {"path": "system.md", "old": "", "new": "Be exact.", **ABOUT}
        elif kind == "lesson":
            yield lesson("Look twice.")
        else:
            yield "tool", {"name": "hello" if kind == "change" else "bye", "code": new, **ABOUT}
        yield "finish", DONE

    tried = attempt(study, takes_all, seed=seed)
    wanted = {"tool": "tools/bye.py", "change": "tools/hello.py"}.get(kind, "memory/how-answers-end")
    assert any(e.path.startswith(wanted) for e in tried.built.revisions[0].edits)
    assert any(e.path == "system.md" for e in tried.built.revisions[0].edits)


def test_distilling_reads_merges_and_rejects_with_a_reason(attempt: Try) -> None:
    """A promise: synthesis sees diffs only there, and cannot reject; here it reads the evidence and decides."""

    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        yield lesson("Say it loudly.", "Loud")
        yield "edit", {"path": "workflow.md", "old": "", "new": "Hurry.", **ABOUT}
        yield "finish", DONE

    def distil(first: str) -> Acts:
        said = yield "idea", {"name": "1"}
        assert "Say it loudly." in said
        experience = said.partition("experience ")[2][:16]
        said = yield "steps", {"first": 0, "experience": experience}
        assert "the agent replied" in said
        said = yield "finish", {"summary": "early"}
        assert "nothing was decided on 1.1, 1.2, 2.1, 2.2" in said
        told = {"title": "The end", "text": LESSON, "reason": "both say it", "ideas": ["1.1", "2.1"]}
        said = yield "lesson", told
        assert "edit 1 is made" in said
        yield "reject", {"name": "1.2", "why": "haste helps nobody"}
        yield "reject", {"name": "2.2", "why": "the same"}
        yield "finish", {"summary": "One lesson for both."}

    tried = attempt(study, distil)
    edits = tried.built.revisions[0].edits
    assert [e.path.split("-")[0] for e in edits] == ["memory/the"]
    assert {e.experience for e in edits[0].evidence} == {s.experience for s in tried.studies}
    made = next(s for s in tried.all if s.kind == "distil")
    assert dict(made.rejected) == {"1.2": "haste helps nobody", "2.2": "the same"}
    assert tried.built.revisions[0].kept


def test_an_idea_whose_edit_is_undone_is_open_again_and_not_lost(attempt: Try) -> None:
    def distil(first: str) -> Acts:
        yield "take", {"name": "1"}
        said = yield "undo", {"edit": 1}
        assert "open ideas: 1.1" in said
        yield "finish", {"summary": "x"}
        yield "finish", {"summary": "x"}

    tried = attempt(finds_the_mark, distil)
    assert tried.built.revisions[0].kept


def test_distilling_that_does_not_finish_counts_as_none_and_loses_nothing(attempt: Try) -> None:
    def distil(first: str) -> Acts:
        yield "reject", {"name": "1", "why": "no"}
        while True:
            yield "prose"

    tried = attempt(finds_the_mark, distil)
    assert tried.built.revisions[0].kept


def test_edits_of_the_same_lines_keep_the_lines_of_both() -> None:
    base = "one\ntwo\nthree\n"
    assert union(base, "one\nTWO a\nthree\n", "one\nTWO b\nthree\n") == "one\nTWO a\nTWO b\nthree\n"


# ---------------------------------------------------------------------------------------------------- ablations


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("trajectory", {"index", "steps", "search", "contrast"}),
        ("environment", {"run"}),
        ("evidence", {"evidence"}),
    ],
)
def test_what_is_switched_off_is_not_offered_and_the_report_says_so(attempt: Try, switch: str, gone: set[str]) -> None:
    def study(first: str) -> Acts:
        for name in sorted(gone):
            said = yield name, {}
            assert "there is no tool" in said
        yield "finish", NOTHING

    tried = attempt(study, without=[switch])
    assert [s.ending for s in tried.studies] == ["finished", "finished"]
    system = tried.model.prompts[0][0]["content"]
    assert not any(f"\n- {name}:" in system for name in gone)
    assert "AssertionError" not in tried.said() or switch != "evidence"
    assert f"worked without: {switch}" in report(tried.run, tried.built)


def test_without_guidance_nobody_is_told_where_an_edit_belongs(attempt: Try) -> None:
    def study(first: str) -> Acts:
        yield "finish", {"summary": "nothing"}

    tried = attempt(study, without=["guidance"])
    assert "Knowledge gap" not in tried.model.prompts[0][0]["content"]


def test_without_distilling_all_ideas_are_merged_by_the_machine(attempt: Try) -> None:
    tried = attempt(finds_the_mark, without=["distilling"])
    assert tried.built.revisions[0].kept
    assert not [s for s in tried.all if s.kind == "distil"]


def test_without_trajectory_an_edit_cites_the_end_of_the_attempt(attempt: Try) -> None:
    def study(first: str) -> Acts:
        yield "evidence", {}
        yield "lesson", {"title": "T", "text": LESSON, "reason": "r"}
        yield "finish", DONE

    tried = attempt(study, takes_all, without=["trajectory"])
    assert {e.step for e in tried.built.revisions[0].edits[0].evidence} == {1}


# ------------------------------------------------------------------------------------------------- everything else


def test_tools_are_called_in_the_endpoints_own_way_where_the_model_can(attempt: Try) -> None:
    tried = attempt(finds_the_mark, takes_all, native=True)
    assert tried.built.revisions[0].kept
    assert {t["function"]["name"] for t in tried.model.params[0]["tools"]} >= {"index", "steps", "run", "finish"}
    assert "Your tools" not in tried.model.prompts[0][0]["content"]


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
        said = yield "run", {"command": "pwd"}
        assert "/work" in said
        said = yield "edit", {"path": "system.md", "old": "", "new": "Write what is asked.", "reason": "r"}
        assert "edit 1 is made" in said
        yield "finish", {"summary": "An agent."}

    values = {"domain": "tests.toy:Toy", "model": "scripted:" + str(workspace / "none.jsonl")}
    (workspace / "none.jsonl").write_text('{"text": ""}\n')
    shop = open_workshop(settings.load(workspace, values, {}), workspace, workspace / "runs" / "c")
    shop.model = shop.optimizer_model = Investigator(script(), study)
    try:
        seed = create(shop, SEED)
    finally:
        shop.close()
    assert seed.files["system.md"].endswith("Write what is asked.\n")


def test_best_of_n_takes_the_proposal_that_is_best_on_its_own_train_tasks(workspace: Path) -> None:
    answers = [proposal({"file": "new lesson", "text": text}) for text in ("First.", "Second.", "Third.")]
    given = materials(answers)
    given.best_of, given.key = 3, "k"
    given.measure = lambda child: float("Second." in child.lessons[0].body)
    assert "Second." in BestOfN(given).propose(SEED, [experience(1)])[0].new


# --------------------------------------------------------------------------------------------- promises of ours


def test_optimizer_commands_run_without_keys_and_no_key_is_written_down(
    attempt: Try, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promise: the optimizer runs in a host shell with every API key there, and keys are saved into trajectories."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecretverysecretverysecret")

    def study(first: str) -> Acts:
        said = yield (
            "run",
            {"command": "env; cat /proc/1/environ | tr '\\0' '\\n'; echo sk-verysecretverysecretverysecret"},
        )
        assert "OPENAI" not in said
        yield "steps", {"first": 0}
        yield lesson("Use sk-verysecretverysecretverysecret as the key.")
        yield "finish", {**DONE, "summary": "sk-verysecretverysecretverysecret"}

    tried = attempt(study, train=1)
    assert [s.ending for s in tried.studies] == ["finished"]
    for file in [*tried.run.folder.glob("studies/*/*"), tried.run.folder / "journal.jsonl"]:
        assert "verysecretvery" not in file.read_text()


def test_every_episode_ever_lived_is_searchable_across_runs(attempt: Try, workspace: Path) -> None:
    """A promise: each optimizer sees one episode there, and its memory search is a substring match."""

    def first_run(first: str) -> Acts:
        yield "finish", NOTHING

    attempt(first_run, train=2)
    (workspace / "runs" / "a").rename(workspace / "runs" / "earlier")
    found: list[str] = []

    def study(first: str) -> Acts:
        found.append((yield "search", {"query": "an answer that does not end as it must", "k": 20}))
        found.append((yield "search", {"query": "answer.txt", "by": "words", "where": {"outcome": "failed"}, "k": 20}))
        other = re.findall(r"experience ([0-9a-f]{16})", found[0])
        said = yield "steps", {"first": 0, "experience": other[0]}
        assert "the agent replied" in said
        yield "finish", NOTHING

    seed = SEED.model_copy(update={"files": {**SEED.files, "system.md": SEED.files["system.md"] + "\nBe brief.\n"}})
    tried = attempt(study, train=1, seed=seed)
    assert [s.ending for s in tried.studies] == ["finished"]
    assert all(len(set(re.findall(r"experience ([0-9a-f]{16})", said))) >= 2 for said in found)


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


def test_the_report_tells_what_was_studied_and_how_much_of_it_was_inspection(attempt: Try) -> None:
    tried = attempt(finds_the_mark, takes_all)
    text = report(tried.run, tried.built)
    assert "knowledge, 1 edit; 5 actions (60% inspection)" in text
    assert "The mark was missing." in text


def test_the_agent_rehearses_a_train_task_with_the_edit_before_validation_is_paid(attempt: Try) -> None:
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
    lived = [r for r in tried.run.records("experience") if r["split"] == "train"]
    assert [r["passed"] for r in lived] == [False, True]
    assert tried.run.spend().attempts == 2 + 2 * 8


def test_a_budget_without_attempts_to_spare_rehearses_nothing_and_still_judges(attempt: Try) -> None:
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

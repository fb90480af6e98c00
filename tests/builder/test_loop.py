"""The whole loop, offline, with the scripted model that ships."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents import scaffold as scaffolds
from recreate.agents.history import History
from recreate.api.errors import BadInput, Fault
from recreate.api.paths import shipped
from recreate.api.types import Revision
from recreate.builder import rounds
from recreate.builder.loop import BuildResult, build
from recreate.cli import run as cli
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import open_session
from recreate.storage.log import Log
from recreate.viewer import markdown
from recreate.viewer.facts import RunFacts
from tests.stub import Stub
from tests.toy import LESSON, script, write_script

pytestmark = pytest.mark.plugin("each")
Go = Callable[..., tuple[BuildResult, Run]]


@pytest.fixture
def go(workspace: Path) -> Go:
    """Build on the toy domain; returns what came of it and the run folder, read."""

    def go(
        rows: list[dict[str, Any]] | None = None, name: str = "a", **flags: Any
    ) -> tuple[BuildResult, Run]:
        file = workspace / "script.jsonl"
        file.write_text("".join(json.dumps(r) + "\n" for r in rows or script()))
        values: dict[str, Any] = {
            "domain": "tests.toy:Toy",
            "model": f"scripted:{file}",
            "rounds": 2,
            "gate.keep": "each",
        }
        values |= {"models.retries": 0, "memory.embedder": "hashed", **flags}
        folder = workspace / "runs" / name
        resume = (folder / "settings.toml").exists()
        session = open_session(
            settings.load(workspace, values, {}), workspace, folder, resume=resume
        )
        try:
            return build(session, scaffolds.load(shipped("scaffolds") / "seed")), Run(folder)
        finally:
            session.close()

    return go


@pytest.mark.slow
def test_what_helps_on_held_out_tasks_is_kept(go: Go) -> None:
    built, run = go()
    assert built.status == "done"
    assert [r.kept for r in built.revisions] == [True]
    assert (built.verdict.before, built.verdict.after, built.verdict.verdict) == (
        0.0,
        1.0,
        "better",
    )
    assert [lesson.body for lesson in built.scaffold.lessons] == [LESSON]
    assert run.excluded() == []


@pytest.mark.slow
def test_a_candidate_that_was_dropped_just_before_a_kill_is_not_refused_as_tried_before(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = rounds.Build.record

    def killed(self: rounds.Build, revision: Revision) -> None:
        record(self, revision)
        raise KeyboardInterrupt  # its line is written, the checkpoint is not

    with monkeypatch.context() as patch:
        patch.setattr(rounds.Build, "record", killed)
        with pytest.raises(KeyboardInterrupt):
            go(script(learns=False))
    told = []
    for name in ("a", "whole"):
        built, run = go(script(learns=False), name=name)
        assert [r.kept for r in built.revisions] == [False]
        told.append([(r["round"], r["reason"]) for r in run.records("nothing")])
    assert told[0] == told[1]


def test_an_edit_is_promoted_only_when_paired_reruns_show_it_helps(go: Go) -> None:
    """A promise: no acceptance gate there; here a plausible edit without effect is dropped."""
    built, _ = go(script(learns=False))
    assert [r.kept for r in built.revisions] == [False]
    assert built.scaffold.digest == built.seed.digest
    assert built.verdict.verdict == "undecided"


def test_a_gain_that_chance_may_have_made_is_not_kept(go: Go) -> None:
    still = {f"toy:validation:{n}" for n in range(2, 8)}
    built, _ = go(
        [r for r in script() if not (r.get("contains") and r.get("task") in still)], rounds=1
    )
    (revision,) = built.revisions
    assert not revision.kept
    assert revision.verdict.verdict != "better"
    assert built.scaffold.digest == built.seed.digest


@pytest.mark.slow
def test_a_trial_takes_the_tasks_in_an_order_that_stands_before_it_and_ends_when_it_is_clear(
    go: Go,
) -> None:
    idle = [row for row in script() if not row.get("contains")]  # the lesson changes nothing
    built, run = go(idle, rounds=1, jobs=1)
    (revision,), (record,) = built.revisions, run.records("trial")
    terms = record["terms"]
    assert (revision.kept, revision.verdict.tasks, revision.verdict.alpha) == (
        False,
        2,
        terms["alpha"],
    )
    assert sorted(terms["order"]) == [f"toy:validation:{n}" for n in range(8)]
    kinds = [(r["kind"], r.get("scaffold")) for r in run.records("trial", "experience")]
    tries = [at for at, kind in enumerate(kinds) if kind == ("experience", revision.id)]
    assert len(tries) == 2
    assert kinds.index(("trial", None)) < tries[0]
    assert run.validation(built.seed.digest, revision.id) == revision.verdict
    assert "had 4.0% of that to spend" in markdown.report(RunFacts(run, built))


@pytest.mark.slow
def test_all_candidates_of_a_build_share_its_error(go: Go) -> None:
    built, run = go(rounds=3, **{"gate.false_keep": 0.06})
    kept = [r for r in built.revisions if r.kept]
    spent = [r["terms"]["alpha"] for r in run.records("trial")]
    assert len(kept) == 1
    assert kept[0].verdict.p is not None
    assert kept[0].verdict.p <= spent[0] == pytest.approx(0.016)
    assert sum(spent) < 0.06
    # what was kept is measured whole, and stays what its trial said
    assert (built.verdict.tasks, built.verdict.verdict) == (8, "better")
    assert run.validation(built.seed.digest, built.scaffold.digest) == built.verdict


@pytest.mark.parametrize("memory", ["none", "recreate"])
def test_tasks_that_could_decide_nothing_are_refused_before_anything_is_paid(
    go: Go, memory: str
) -> None:
    with pytest.raises(BadInput) as refused:
        go(rounds=3, validation=5, **{"gate.false_keep": 0.01, "memory.policy": memory})
    assert (refused.value.code, "takes 7 tasks that are won" in refused.value.message) == (
        "too-few-tasks",
        True,
    )
    built, _ = go(rounds=3, validation=5, name="b", **{"gate.false_keep": 0})
    assert [r.kept for r in built.revisions] == [True]


def test_few_tasks_spend_the_error_on_the_first_candidates(go: Go) -> None:
    built, run = go(rounds=3, validation=5)
    assert [r.kept for r in built.revisions] == [True]
    (record,) = run.records("trial")
    assert record["terms"]["alpha"] == pytest.approx(0.04)


def test_a_tool_that_does_not_start_costs_its_candidate_and_no_attempt(go: Go) -> None:
    """Only a sandbox shows it: the text is Python, and says what it is for."""
    rows = script()
    study = json.loads(rows[-1]["text"])
    code = '"""Ends an answer as it must."""\nimport a_package_that_is_nowhere\n'
    study["edits"] = [{**study["edits"][0], "file": "new tool", "title": "Mark", "text": code}]
    rows[-1]["text"] = json.dumps(study)
    built, run = go(rows, rounds=1)
    (revision,) = built.revisions
    assert (revision.kept, revision.verdict.verdict, revision.verdict.tasks) == (
        False,
        "not-better",
        0,
    )
    assert "the check failed: tools/mark.py" in revision.verdict.reason
    assert {r["scaffold"] for r in run.records("experience")} == {built.seed.digest}


def test_the_best_version_is_the_result_not_the_last(go: Go) -> None:
    """A promise: after a kept revision a worse one is tried and dropped."""
    rows = script()
    worse = {
        "file": "system.md",
        "line": 0,
        "title": "",
        "text": "Never mind exclamation marks.",
        "reason": "shorter",
        "experience": "$1",
        "step": 0,
    }
    text = json.dumps({"why": "w", "cause": "strategy", "edits": [worse]})
    study = {
        "role": "optimizer",
        "contains": LESSON,
        "find": r"experience ([0-9a-f]{16})",
        "text": text,
    }
    for row in rows:
        if row.get("contains") == LESSON:
            row["lacks"] = "Never mind"
            # one train task goes on failing, so that there is something to propose from
    rows = [r for r in rows if not (r.get("task") == "toy:train:1" and r.get("contains"))]
    built, _ = go([study, *rows], rounds=3, batch=8)
    assert [r.kept for r in built.revisions] == [True, False]
    assert [lesson.body for lesson in built.scaffold.lessons] == [LESSON]


@pytest.mark.slow
def test_a_memory_only_proposal_survives_a_batch(go: Go) -> None:
    """A promise: proposals that only add a tool or a memory are thrown away there."""
    built, _ = go()
    assert [e.path.split("/")[0] for e in built.revisions[0].edits] == ["memory"]
    assert built.revisions[0].kept


def test_edits_cite_train_experiences_and_steps_that_exist(go: Go) -> None:
    built, run = go()
    for edit in built.revisions[0].edits:
        for cited in edit.evidence:
            experience = run.experience(cited.experience)
            assert experience.split == "train"
            assert cited.step < len(experience.trace.steps)


@pytest.mark.slow
def test_the_lineage_is_a_git_repository_with_the_evidence(go: Go) -> None:
    built, run = go()
    log = subprocess.run(
        ["git", "--git-dir", str(run.folder / "scaffold.git"), "log", "--format=%s%n%b", "main"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Kept (better): The grader wants a mark" in log
    assert built.revisions[0].edits[0].evidence[0].experience in log
    kept = History(run.folder / "scaffold.git").read(built.scaffold.digest)
    assert kept.files == built.scaffold.files


def test_the_parents_scores_are_reused_never_paid_twice(go: Go) -> None:
    built, run = go(rounds=2, train=8)
    calls = [r["call"] for r in run.records("reply")]
    assert len(calls) == len(set(calls))
    # 8 + 8 validation attempts of two calls each, two batches of four, and one study: after it all
    # pass
    assert len(calls) == 2 * (8 + 8 + 4 + 4) + 1
    assert run.spend().attempts == 24
    assert built.status == "done"


def test_a_build_never_opens_the_test_split(go: Go) -> None:
    _, run = go()
    assert {r["split"] for r in run.records("experience")} == {"train", "validation"}


def test_a_run_continues_in_the_same_folder_without_a_call(go: Go) -> None:
    first, run = go()
    calls = len(list(run.records("reply")))
    again, run = go()
    assert again.scaffold.digest == first.scaffold.digest
    assert len(list(run.records("reply"))) == calls


@pytest.mark.slow
def test_the_budget_stops_a_build_that_goes_on_when_there_is_more(go: Go) -> None:
    built, _ = go(budget=("19attempts",))
    assert (built.status, built.revisions) == ("budget", ())
    built, run = go(budget=("100attempts",))
    assert (built.status, len(built.revisions)) == ("done", 1)
    calls = [r["call"] for r in run.records("reply")]
    assert len(calls) == len(set(calls))


@pytest.mark.slow
def test_a_proposal_that_was_made_is_not_made_again_when_its_checkpoint_is_lost(
    go: Go, workspace: Path
) -> None:
    built, run = go(rounds=1, budget=("19attempts",))
    assert (built.status, len(list(run.records("proposal")))) == ("budget", 1)
    asked = run.spend().by_role["optimizer"].calls
    for left in (workspace / "runs" / "a").glob("checkpoint.sqlite*"):
        left.unlink()
    built, run = go(rounds=1, budget=("100attempts",))
    assert [r.kept for r in built.revisions] == [True]
    assert len(list(run.records("proposal"))) == 1
    assert run.spend().by_role["optimizer"].calls == asked > 0


def test_a_fault_of_ours_is_set_aside_and_reported_not_the_agents_failure(go: Go) -> None:
    """A promise: a task is recorded as failed there when the infrastructure fails."""
    down = {"role": "agent", "task": "toy:validation:3", "fault": "503"}
    built, run = go([down, *script()])
    aside = run.excluded()
    assert {row["task"] for row in aside} == {"toy:validation:3"}
    assert built.verdict.tasks == 7
    assert "toy:validation:3" in markdown.report(RunFacts(run, built))
    read = run.validation(built.seed.digest, built.scaffold.digest)
    assert read == built.verdict, (
        "what show and a report of the run say later is what the build said"
    )


@pytest.mark.slow
def test_an_attempt_is_begun_three_times_before_it_is_excluded(go: Go) -> None:
    # not 503: that try counts for none where the model answered another attempt meanwhile
    often = {
        "role": "agent",
        "task": "toy:validation:3",
        "step": 0,
        "fault": "reset",
        "text": "```bash\ntrue\n```",
    }
    _, run = go([{**often, "fault_times": 2}, *script()], rounds=1)
    assert list(run.records("aside")) == []
    _, run = go([{**often, "fault_times": 3}, *script()], name="b", rounds=1)
    assert [row["task"] for row in run.records("aside")] == ["toy:validation:3"]


@pytest.mark.slow
def test_the_minutes_of_earlier_sessions_count_when_a_build_goes_on(go: Go) -> None:
    built, run = go(budget=("19attempts",))
    Log(run.folder / "ledger.jsonl").append({"kind": "session", "seconds": 31 * 60.0})
    spent = list(run.records("reply"))
    built, run = go(budget=("100attempts", "30min"))
    assert built.status == "budget"
    assert list(run.records("reply")) == spent
    built, _ = go(budget=("100attempts", "40min"))
    assert built.status == "done"


@pytest.mark.slow
def test_an_outage_stops_the_run_and_loses_nothing(go: Go) -> None:
    with pytest.raises(Fault, match="in a row"):
        go([{"fault": "503"}])
    built, _ = go()
    assert built.verdict.verdict == "better"


@pytest.mark.slow
def test_validation_and_test_experiences_are_invisible_to_the_optimizer(
    go: Go, workspace: Path
) -> None:
    from recreate.memory.store import ExperienceStore

    go()
    memory = ExperienceStore(workspace, embedder="hashed")
    for reader in ("optimizer", "agent"):
        hits = memory.recall("write the word", 100, {}, reader)
        assert hits
        assert {h.split for h in hits} == {"train"}
    assert {"train", "validation"} <= {
        h.split for h in memory.recall("write the word", 100, {}, "human")
    }


def test_a_proposal_that_breaks_a_template_costs_no_attempt(go: Go) -> None:
    """A promise: one stray {{key: value}} breaks every later attempt there, and ships."""
    rows = script()
    edit = {
        "file": "system.md",
        "line": 0,
        "title": "",
        "text": "Answer as {{key: value}}.",
        "reason": "r",
        "experience": "$1",
        "step": 0,
    }
    text = json.dumps({"why": "w", "cause": "strategy", "edits": [edit]})
    rows = [{**r, "text": text} if r["role"] == "optimizer" else r for r in rows]
    built, run = go(rows, rounds=1)
    assert built.revisions == ()
    assert len(list(run.records("experience"))) == 8 + 8


@pytest.mark.slow
def test_a_template_that_fails_at_run_time_costs_its_candidate_and_the_build_goes_on(
    go: Go,
) -> None:
    """The check renders it with outputs of its own; what a command really prints is another."""
    rows = script()
    study = json.loads(rows[-1]["text"])
    template = (
        "{% if 'Write the word' in task.prompt %}{{ output.text.split('=')[1] }}{% endif %}{{"
        " output.text }}"
    )
    study["edits"] = [{**study["edits"][0], "file": "observation.md", "line": -1, "text": template}]
    rows[-1]["text"] = json.dumps(study)
    built, run = go(rows)
    assert built.status == "done"
    assert [(r.kept, r.verdict.verdict) for r in built.revisions] == [(False, "not-better")]
    assert "observation.md:1 cannot be filled in" in built.revisions[0].verdict.reason
    assert built.scaffold == built.seed
    assert run.excluded() == []


def test_a_leaking_proposal_is_sent_back_and_then_thrown_away(go: Go) -> None:
    """A promise: edits are scanned for copied task text and ids."""
    rows = script()
    edit = {
        "file": "new lesson",
        "line": 0,
        "title": "Train",
        "text": "For toy:train:2 answer w2!",
        "reason": "r",
        "experience": "$1",
        "step": 0,
    }
    text = json.dumps({"why": "w", "cause": "knowledge", "edits": [edit]})
    rows = [{**r, "text": text} if r["role"] == "optimizer" else r for r in rows]
    built, run = go(rows, rounds=1, train=4)
    assert built.revisions == ()
    assert run.spend().by_role["optimizer"].calls == 2


@pytest.mark.slow
def test_the_report_counts_what_is_really_there(go: Go) -> None:
    """A promise: statistics say 8 memories there, and 2 are kept."""
    built, run = go()
    text = markdown.report(RunFacts(run, built))
    assert "1 candidate was judged, 1 kept" in text
    assert "0.000 -> 1.000" in text
    assert LESSON in text
    assert f"| all | {run.spend().total.calls} |" in text


# ------------------------------------------------------------------------------------------------
# the command


def build_toy(model: str) -> list[str]:
    return [
        "build",
        "--domain",
        "tests.toy:Toy",
        "--memory.embedder",
        "hashed",
        "--rounds",
        "2",
        "--model",
        model,
    ]


def test_the_command_prints_one_object_and_leaves_an_agent(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_script(workspace / "s.jsonl")
    code = cli([*build_toy(model), "--out", "runs/x", "--json"])
    out = capsys.readouterr().out
    record = json.loads(out)
    assert code == 0
    assert record["schema"] == 1
    assert record["validation"]["verdict"] == "better"
    assert record["spend"]["by_role"].keys() == {"agent", "optimizer"}
    agent = scaffolds.load(Path(record["scaffold"]["path"]))
    assert agent.digest == record["scaffold"]["digest"]
    assert "0.000 -> 1.000" in agent.files["README.md"]
    assert "from `seed`" in agent.files["README.md"]
    assert (workspace / "runs/x/report.md").read_text().startswith("# Building an agent")


def test_a_second_build_on_the_same_folder_says_how_to_go_on(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_script(workspace / "s.jsonl")
    flags = [*build_toy(model), "--out", "runs/x", "--json"]
    assert cli(flags) == 0
    capsys.readouterr()
    assert cli(flags) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "run-exists"
    assert "resume" in error["fix"]


def test_a_budget_too_small_for_one_proposal_names_the_number_it_takes(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_script(workspace / "s.jsonl")
    flags = [*build_toy(model), "--out", "runs/x", "--budget", "10attempts", "--json"]
    assert cli(flags) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "budget-too-small"
    assert "20attempts" in error["fix"]
    assert not (workspace / "runs/x").exists(), (
        "nothing was begun, so the corrected command may name the same folder"
    )
    with pytest.raises(BadInput, match="does not pay for one proposal"):
        recreate.build(
            "tests.toy:Toy", model=model, budget="10attempts", out="runs/x", sandbox="none"
        )
    assert not (workspace / "runs/x").exists()


def test_a_refusal_leaves_a_folder_in_which_something_was_begun(workspace: Path) -> None:
    model = write_script(workspace / "s.jsonl")
    assert cli([*build_toy(model), "--out", "runs/x", "--json"]) == 0
    before = {file: file.read_bytes() for file in (workspace / "runs/x").rglob("*.jsonl")}
    assert cli([*build_toy(model), "--out", "runs/x", "--budget", "10attempts", "--json"]) == 2
    assert {file: file.read_bytes() for file in before} == before
    folder = workspace / "runs/mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    assert cli([*build_toy(model), "--out", "runs/mine", "--budget", "10attempts", "--json"]) == 2
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_stopped_by_the_budget_is_exit_3_and_resumes(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_script(workspace / "s.jsonl")
    flags = [*build_toy(model), "--out", "runs/x", "--budget", "22attempts"]
    assert cli([*flags, "--rounds", "2", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["status"] == "budget"
    assert cli(["resume", "runs/x", "--budget", "90attempts", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["status"] == "done"


# ------------------------------------------------------------------------------------------------
# killed


PATIENCE = 300
"""Seconds for what takes a few: a test that is slow is no failure."""


def until_held(stub: Stub, process: subprocess.Popen[Any]) -> None:
    """Wait until the endpoint keeps a process waiting for an answer."""
    while not stub.held:
        assert process.poll() is None
        time.sleep(0.005)


def start(workspace: Path, *arguments: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(
        [sys.executable, "-m", "recreate", *arguments],
        cwd=workspace,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def toy_reply(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    """The toy script behind an endpoint: what is asked tells the task; there is no Call to
    match."""
    import re

    study = next(r for r in rows if r["role"] == "optimizer")

    def reply(body: dict[str, Any]) -> str:
        text = "\n".join(m["content"] for m in body["messages"])
        asked = re.search(r"word number (\d+) of the (\w+) list", body["messages"][-1]["content"])
        if text.startswith("You improve"):
            found = re.search(study["find"], text)
            return str(study["text"]).replace("$1", found[1] if found else "")
        if asked and len(body["messages"]) == 2:
            word = f"w{asked[1]}" + ("!" if LESSON in text else "")
            return f"```bash\nprintf %s '{word}' > answer.txt\n```"
        return "```bash\nsubmit\n```"

    return reply


def build_flags(url: str, out: str) -> list[str]:
    return [
        "build",
        "--domain",
        "tests.toy:Toy",
        "--model",
        f"openai:{url}#toy",
        "--price",
        "0,0",
        "--out",
        out,
        "--jobs",
        "2",
        "--rounds",
        "2",
        "--json",
        "--scaffold",
        "seed",
        "--memory.embedder",
        "hashed",
        "--optimizer",
        "reflect",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("at", [5, 21, 38])
@pytest.mark.usefixtures("each_step")
def test_a_killed_build_ends_as_the_uninterrupted_one_and_pays_no_journalled_call_twice(
    workspace: Path, at: int
) -> None:
    """A promise: no resume there; a crash loses the results."""
    with Stub(toy_reply(script())) as stub:
        whole = start(workspace, *build_flags(stub.url, "runs/whole"))
        expected = json.loads(whole.communicate(timeout=PATIENCE)[0])
        total = len(stub.calls)
        stub.hold = total + at
        killed = start(workspace, *build_flags(stub.url, "runs/killed"))
        until_held(stub, killed)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        stub.release()
        resumed = start(workspace, "resume", "runs/killed", "--json")
        out, err = resumed.communicate(timeout=PATIENCE)
        assert resumed.returncode == 0, err.decode()
        record = json.loads(out)
        assert record["scaffold"]["digest"] == expected["scaffold"]["digest"]
        assert record["validation"] == expected["validation"]
        assert [r["id"] for r in record["revisions"]] == [r["id"] for r in expected["revisions"]]
        counts = Counter(stub.calls[total:])
        again = [call for call, n in counts.items() if n > 1]
        assert len(again) <= 2, "only the calls in flight at the kill (--jobs 2) may be repeated"
        journal = [r["call"] for r in Run(workspace / "runs/killed").records("reply")]
        assert len(journal) == len(set(journal)) == total


@pytest.mark.slow
def test_a_second_ctrl_c_ends_the_command_while_its_model_answers_nothing_and_resume_goes_on(
    workspace: Path,
) -> None:
    with Stub(toy_reply(script()), hold=10) as stub:
        running = start(workspace, *build_flags(stub.url, "runs/x"))
        until_held(stub, running)
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        assert any(b"Ctrl-C again stops at once" in line for line in running.stderr)
        running.send_signal(signal.SIGINT)
        # nothing is released: no call in flight ever ends
        out, err = running.communicate(timeout=PATIENCE)
        assert running.returncode == 130
        assert "stopped: at once" in err.decode()
        assert "fix: recreate resume runs/x" in err.decode()
        assert json.loads(out)["error"]["code"] == "interrupted"
        stub.release()
        resumed = start(workspace, "resume", "runs/x", "--json")
        assert (
            json.loads(resumed.communicate(timeout=PATIENCE)[0])["validation"]["verdict"]
            == "better"
        )
        assert len([call for call, n in Counter(stub.calls).items() if n > 1]) <= 2, (
            "only those in flight (--jobs 2)"
        )


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_and_prints_the_resume_command(workspace: Path) -> None:
    with Stub(toy_reply(script()), hold=10) as stub:
        running = start(workspace, *build_flags(stub.url, "runs/x"))
        until_held(stub, running)
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        assert any(b"the calls in flight are waited for" in line for line in running.stderr)
        stub.release()
        out, err = running.communicate(timeout=PATIENCE)
        assert running.returncode == 130
        assert "stopped: after " in err.decode()
        assert "recreate resume runs/x" in err.decode()
        assert json.loads(out)["error"]["code"] == "interrupted"
        resumed = start(workspace, "resume", "runs/x", "--json")
        assert (
            json.loads(resumed.communicate(timeout=PATIENCE)[0])["validation"]["verdict"]
            == "better"
        )
        assert max(Counter(stub.calls).values()) == 1

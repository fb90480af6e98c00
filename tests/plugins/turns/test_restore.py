"""An agent may observe in copies of its sandbox before it acts, and what makes its check worse is
taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.attempt import attempt
from recreate.agents.config import read_agent
from recreate.agents.lint import problems
from recreate.agents.replay import replay
from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import try_servers
from recreate.api.errors import BadInput
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Call, Message, Reply, Task, Trace
from recreate.builder.proposals import list_closed
from recreate.cli import run as cli
from recreate.models.scripted import Scripted
from recreate.plugins.export import programs, texts
from recreate.sandboxes import choose
from tests.agents.test_attempt import TASK, agent, bash, go
from tests.plugins.turns.restoring import OBSERVE, RESTORE, play
from tests.plugins.turns.test_lookahead import Uncopied
from tests.toy import Toy

COUNTS = (
    '#!/usr/bin/env python3\n"""How many of the files b1, b2, ... there are."""\nimport glob, sys\n'
)
COUNTS += 'n = len(glob.glob("b[0-9]"))\nprint("broken:")\nprint(n)\nsys.exit(n > 0)\n'
CHECKED = '[restore]\ncheck = "counts"\n'
LOOKS = "[observe]\nsteps = 2\n"


def checked(toml: str = CHECKED, **files: str) -> Scaffold:
    return agent(toml, tools__counts_py=COUNTS, **files)


def acts(trace: Trace) -> list[tuple[str, bool]]:
    """(what was done, whether it was taken back)."""
    return [(step.action, bool(step.restored)) for step in trace.steps]


class Broken(Toy):
    """Two files are broken from the beginning."""

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        sandbox = super().prepare(task, backend)
        for name in ("b1", "b2"):
            sandbox.write(name, b"")
        return sandbox


def test_an_action_after_which_the_check_fails_is_taken_back_and_the_agent_is_told() -> None:
    rows = [
        bash("echo yes > answer.txt; touch b1", step=0),
        bash("cat answer.txt", step=1),
        bash("submit"),
    ]
    trace = go(checked(), rows)
    assert acts(trace) == [
        ("echo yes > answer.txt; touch b1", True),
        ("cat answer.txt", False),
        ("submit", False),
    ]
    assert trace.steps[0].restored == "by counts 0 failed before and 1 after"
    assert "This action was taken back" in trace.steps[1].observation
    assert trace.steps[1].observation.endswith("It said:]\nbroken:\n1")
    assert trace.steps[1].status == 1
    assert trace.answer == ""


def test_what_makes_no_more_fail_stands_and_the_least_that_failed_is_what_counts() -> None:
    steps = [
        "touch x",
        "touch b3",
        "rm b1",
        "touch b1",
        "touch b4 && rm b2",
        "echo yes > answer.txt",
    ]
    rows = [*(bash(command, step=n) for n, command in enumerate(steps)), bash("submit")]
    trace = go(checked(), rows, domain=Broken())
    assert [back for _, back in acts(trace)] == [False, True, False, True, False, False, False]
    assert trace.answer == "yes"


def test_without_a_number_a_check_that_fails_counts_as_one() -> None:
    check = "#!/bin/bash\n# Fails without a.\ntest -e a || { echo no a; exit 3; }\n"
    rows = [
        bash("touch c", step=0),
        bash("touch a", step=1),
        bash("rm a", step=2),
        bash("ls; submit"),
    ]
    files = {"agent.toml": '[restore]\ncheck = "there"\n', "tools/there.sh": check}
    scaffold = agent()
    trace = go(
        scaffold.model_copy(update={"files": {**scaffold.files, **files}}),
        [*rows[:3], bash("submit")],
    )
    assert [back for _, back in acts(trace)] == [False, False, True, False]


@pytest.mark.parametrize("toml", [CHECKED, "[observe]\nsteps = 1\n"])
def test_what_did_not_stand_hands_nothing_in(toml: str) -> None:
    done = "#!/bin/bash\n# Done after any action.\ntrue\n"
    scaffold = checked('done = "done"\n' + toml)
    scaffold = scaffold.model_copy(update={"files": {**scaffold.files, "tools/done.sh": done}})
    rows = [bash("echo no > answer.txt; touch b1", step=0), bash("echo yes > answer.txt", step=1)]
    trace = go(scaffold, rows)
    assert (trace.answer, trace.ending, len(trace.steps)) == ("yes", "submitted", 2)


def test_observing_changes_nothing_and_each_look_begins_at_the_same_state() -> None:
    rows = [
        bash("echo no > answer.txt; ls", step=0),
        bash("ls", step=1),
        bash("ls", step=2),
        bash("submit"),
    ]
    trace = go(agent(LOOKS), rows)
    assert [(step.kind, step.output) for step in trace.steps[:3]] == [
        ("observe", "answer.txt\n"),
        ("observe", ""),
        ("action", ""),
    ]
    assert "Turns of observing that are left: 1" in trace.steps[1].observation
    assert trace.steps[2].observation.endswith("From now on what you do counts.")
    assert trace.answer == ""


def test_act_ends_observing_and_each_sample_begins_with_it() -> None:
    rows = [
        bash("act", step=0),
        bash("echo yes > answer.txt", step=1),
        bash("submit", step=2),
        bash("touch x; ls", step=3),
    ]
    trace = go(agent("samples = 2\n" + LOOKS), [*rows, bash("submit")])
    assert [step.kind for step in trace.steps] == [
        "observe",
        "action",
        "action",
        "observe",
        "action",
    ]
    assert trace.steps[0].output == "From now on what you do counts."
    assert trace.answer == "yes"


def test_act_beside_another_command_ends_nothing_and_says_so() -> None:
    rows = [
        bash("act\nls", step=0),
        bash("act", step=1),
        bash("echo yes > answer.txt", step=2),
        bash("submit"),
    ]
    trace = go(agent(LOOKS.replace("2", "3")), rows)
    assert [step.kind for step in trace.steps] == ["observe", "observe", "action", "action"]
    assert (
        "observing goes on: act counts when it is the only call of a reply" in trace.steps[0].output
    )
    assert trace.answer == "yes"


def test_the_prompt_says_what_is_observed_and_what_is_taken_back() -> None:
    sent = list[Any]()

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        sent.append(messages[0]["content"])
        return Reply(text="```bash\nsubmit\n```")

    for toml in (LOOKS + CHECKED, ""):
        attempt(checked(toml), TASK, Toy(), choose("none"), ask, Call(run="r", attempt="a", step=0))
    assert "In the first 2 replies your commands run in a copy" in sent[0]
    assert "After each of your actions the check `counts` runs" in sent[0]
    assert sent[0].startswith(sent[1])


def test_several_calls_of_one_reply_are_taken_back_together() -> None:
    calls = [{"name": "bash", "arguments": {"command": c}} for c in ("touch a", "touch b1")]
    model = Scripted.of(
        [{"text": "", "tool_calls": calls, "step": 0}, bash("ls", step=1), bash("submit")]
    )

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        return model.reply(messages, call, **params)

    call = Call(run="r", attempt="a", step=0)
    trace = attempt(
        checked("native = true\n" + CHECKED), TASK, Toy(), choose(), ask, call, native=True
    )
    assert (trace.steps[0].restored != "", trace.steps[1].output) == (True, "")


@pytest.mark.parametrize("toml", [LOOKS, CHECKED])
def test_a_long_output_is_kept_where_its_place_is_thrown_away(toml: str) -> None:
    rows = [bash("seq 5000; touch b1", step=0), bash("act", step=1), bash("submit", step=3)]
    rows += [bash("sed -n 2500,2501p /work/.recreate/output/0.txt")]
    trace = go(checked(toml + "[limits]\nobservation_chars = 200\nsteps = 4"), rows)
    assert "output/0.txt" in trace.steps[0].output
    assert "2500\n2501\n" in [step.output for step in trace.steps]


def test_only_what_stood_is_done_again() -> None:
    rows = [bash("echo seen > seen", step=0), bash("act", step=1), bash("touch b1", step=2)]
    rows += [bash("echo yes > answer.txt", step=3), bash("submit")]
    scaffold = checked(LOOKS + CHECKED)
    sandbox, told = replay(scaffold, TASK, go(scaffold, rows), Toy(), choose())
    there = sandbox.run("ls").text
    sandbox.close()
    assert (there, told) == ("answer.txt\n", "1 actions were done again, and all ended as they had")


@pytest.mark.slow
def test_in_a_generated_world_both_solve_what_acting_at_once_does_not() -> None:
    at_once, calls, _ = play("", 8)
    for toml in (OBSERVE, RESTORE):
        solved, more, _ = play(toml, 8)
        assert solved == 1 >= at_once + 0.3
        assert more > calls


def test_without_the_tables_nothing_of_an_agent_changes() -> None:
    plain = agent("samples = 1").agent.model_dump()
    assert not {"observe", "restore"} & plain.keys()
    assert list_closed(checked(""), checked(CHECKED))[0].startswith("agent.toml: restore:")
    assert list_closed(checked(""), checked(LOOKS))[0].startswith("agent.toml: observe:")


@pytest.mark.parametrize(("toml", "code"), [(CHECKED, "no-restore"), (LOOKS, "no-observe")])
def test_where_a_sandbox_cannot_be_copied_that_is_said_before_anything_is_paid(
    toml: str, code: str
) -> None:
    with pytest.raises(BadInput, match="sandboxes of plain cannot be copied") as found:
        try_servers(checked(toml), TASK, Toy(), Uncopied())
    assert found.value.code == code
    try_servers(checked(toml), TASK, Toy(), choose("none"))


def test_an_agent_whose_files_cannot_be_copied_acts_and_never_observes_for_real() -> None:
    model = Scripted.of(
        [bash("echo yes > answer.txt; touch b1", contains="Write it."), bash("submit")]
    )

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        return model.reply(messages, call, **params)

    call = Call(run="r", attempt="a", step=0)
    limit = "[limits]\nsteps = 3\n"
    acted = attempt(checked(limit + CHECKED), TASK, Toy(), Uncopied(refuses=True), ask, call)
    assert (acted.answer, acted.steps[0].restored) == ("yes", "")
    looked = attempt(checked(limit + LOOKS), TASK, Toy(), Uncopied(refuses=True), ask, call)
    assert [step.kind for step in looked.steps] == ["malformed", "action", "action"]
    assert "so there is no observing" in looked.steps[0].output


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (
            'action = "tools"\n[restore]\ncheck = "c"',
            "restore is for actions bash, json and tool:NAME",
        ),
        (
            'action = "tools"\n[observe]\nsteps = 1',
            "observe is for actions bash, json and tool:NAME",
        ),
        ('action = "tool:t"\n[observe]\nsteps = 1', "observe is for actions bash and json"),
        ("[observe]\nsteps = 20", "observe.steps leaves no turn to act"),
        ("[observe]\nstep = 2", "did you mean 'steps'?"),
        ("[restore]", "restore.check: Field required"),
        (
            'action = "command"\ncommand = "x"\n[observe]\nsteps = 1',
            "observe is for agents of recreate's own",
        ),
    ],
)
def test_what_cannot_observe_or_restore_is_told_so(toml: str, words: str) -> None:
    found, faults = read_agent(toml)
    assert found is None
    assert any(words in message for _, message in faults), faults


def test_an_export_says_that_it_neither_observes_nor_restores_nor_recalls() -> None:
    scaffold = checked(LOOKS + CHECKED + "[memory]\nrecall = 500\n")
    for told in (programs.differences(scaffold), texts.page(scaffold, "AGENTS.md")[1]):
        assert {"observe", "restore", "memory.recall"} <= {each.partition(":")[0] for each in told}


def test_a_check_that_is_not_there_and_a_tool_called_act_are_faults() -> None:
    assert problems(agent(CHECKED)) == [
        "agent.toml:1: restore names the tool 'counts'; there are: none"
    ]
    assert (
        "tools/act.py:1: is called 'act'"
        in problems(agent(LOOKS, tools__act_py='"""Acts."""\n'))[0]
    )


def test_traces_show_tells_what_was_observed_and_what_was_taken_back(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, text in checked(LOOKS + CHECKED).files.items():
        target = workspace / "careful" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    rows = [bash("ls", step=0), bash("act", step=1), bash("touch b1", step=2), bash("submit")]
    Path("s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["run", "careful", "toy:train:0", "--domain", "tests.toy:Toy"]
    assert cli([*words, "--model", "scripted:s.jsonl", "--out", "runs/one", "--json"]) == 0
    id = json.loads(capsys.readouterr().out)["experience"]
    assert cli(["traces", "show", id]) == 0
    shown = capsys.readouterr().out
    assert "step 0: observed, in a copy of the sandbox" in shown
    assert "taken back: by counts 0 failed before and 1 after" in shown

"""An agent that looks ahead tries candidates in copies of its sandbox, and carries out the best
one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.attempt import attempt, attempt_key
from recreate.agents.config import read_agent
from recreate.agents.replay import replay
from recreate.agents.request import Recorded
from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import try_servers
from recreate.api.errors import BadInput, Interrupted
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Call, Message, Reply, Task, Trace
from recreate.cli import run as cli
from recreate.models.scripted import Scripted
from recreate.runs.budget import Budget, Ledger
from recreate.runs.calls import Calls
from recreate.runs.journal import Journal
from recreate.sandboxes import choose
from recreate.storage.log import Log
from tests.agents.test_attempt import TASK, agent, bash, go
from tests.plugins.turns.lookahead import play
from tests.toy import Toy

LOOK = "[lookahead]\ncandidates = 2\nsteps = 2\n"
RASH, WISE = "rm letter; echo It is open.", "mv letter out; echo It is open."
ROWS = [
    bash(RASH, sample=1, lacks="It is open."),
    bash(WISE, sample=2, lacks="It is open."),
    bash(RASH, sample=0, lacks="It is open."),
    bash("cp out answer.txt", lacks="$ done"),
]


class Letter(Toy):
    """The word lies in a file that the rash way deletes."""

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        sandbox = super().prepare(task, backend)
        sandbox.write("letter", b"yes")
        return sandbox


def limited(toml: str) -> Scaffold:
    return agent(f"[limits]\nsteps = 2\n{toml}")


def test_what_cannot_be_taken_back_is_seen_before_it_is_done() -> None:
    rash = go(limited(""), ROWS, domain=Letter())
    wise = go(limited(LOOK), ROWS, domain=Letter())
    assert (rash.answer, wise.answer) == ("", "yes")
    real = [s for s in wise.steps if s.kind != "lookahead"]
    assert [(s.action, s.sample) for s in real] == [(WISE, 0), ("cp out answer.txt", 0)]
    assert "step 0: status 0.50" in real[0].looked
    assert real[0].looked.startswith("the reply of step 1, the best of 2")


def test_every_call_is_a_step_and_is_counted_once() -> None:
    trace = go(limited(LOOK), ROWS, domain=Letter())
    ahead = [s for s in trace.steps if s.kind == "lookahead"]
    # two candidates, a second step of each rollout; then two that ask for the same, which nothing
    # is tried out for
    assert (len(ahead), trace.usage.calls, len(trace.steps)) == (6, 6, 8)
    assert [s.output for s in ahead[-2:]] == ["", ""]
    assert trace.usage.tokens_out == sum(s.usage.tokens_out for s in trace.steps)
    sent = Recorded(trace.steps)
    assert "It is open." in str(sent[3].messages[-1]["content"])
    assert sent[4].messages == sent[0].messages


def test_one_step_ahead_does_not_see_what_two_do() -> None:
    trace = go(limited(LOOK.replace("steps = 2", "steps = 1")), ROWS, domain=Letter())
    assert (trace.answer, trace.usage.calls) == ("", 4)


@pytest.mark.slow
def test_in_a_generated_world_looking_ahead_wins_and_costs_calls() -> None:
    at_once, calls, _ = play("", 8, "none")
    ahead, more, _ = play("[lookahead]\ncandidates = 5\nsteps = 2", 8, "none")
    assert ahead >= at_once + 0.3
    assert more > 4 * calls


def test_without_the_table_nothing_of_an_agent_changes_and_with_it_its_attempts_are_others() -> (
    None
):
    plain, looks, further = (
        agent("samples = 1"),
        agent(LOOK),
        agent(LOOK.replace("steps = 2", "steps = 3")),
    )
    assert "lookahead" not in plain.agent.model_dump()
    keys = {attempt_key(x, TASK, model="m", sandbox="none") for x in (plain, looks, further)}
    assert len(keys) == 3


def test_the_tool_choose_says_which_rollout_is_best() -> None:
    rank = "#!/usr/bin/env python3\nimport os\nprint(int(os.path.exists('b')))\n"
    rows = [bash("touch a", sample=1), bash("touch b; false", sample=2), bash("touch c")]
    one = LOOK.replace("steps = 2", "steps = 1")
    trace = go(agent(f'choose = "rank"\n[limits]\nsteps = 1\n{one}', tools__rank_py=rank), rows)
    assert trace.steps[-1].action == "touch b; false"


def test_of_equals_the_one_that_agrees_with_most_others() -> None:
    rows = [bash("touch a", sample=1), bash("touch b", sample=2), bash("touch b", sample=3)]
    trace = go(agent("[limits]\nsteps = 1\n[lookahead]\ncandidates = 3\nsteps = 1"), rows)
    assert trace.steps[-1].action == "touch b"


def test_a_hand_in_is_worth_what_was_done_before_it() -> None:
    rows = [
        bash("submit", sample=1),
        bash("echo yes > answer.txt", sample=2, lacks="status 0"),
        bash("submit"),
    ]
    trace = go(agent(LOOK), rows)
    assert (trace.answer, trace.ending) == ("yes", "submitted")


def test_rollouts_count_against_the_limits_of_the_attempt() -> None:
    rows = [{**row, "tokens_in": 400, "tokens_out": 100} for row in ROWS]
    trace = go(agent(f"[limits]\ntokens = 1000\n{LOOK}"), rows, domain=Letter())
    assert (trace.ending, trace.limit, trace.usage.calls) == ("limit", "tokens", 2)


def test_an_attempt_that_was_stopped_pays_for_no_call_twice(tmp_path: Path) -> None:
    model, asked = Scripted.of(ROWS), list[str]()
    journal = Journal(tmp_path)
    journal.open()
    ledger = Ledger(Log(tmp_path / "ledger.jsonl"), Budget())
    calls = Calls("r", journal, ledger)

    class Counted(Scripted):
        def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
            asked.append(call.id)
            if len(asked) == 4:
                raise Interrupted("stopped")
            return super().reply(messages, call, **params)

    model.__class__ = Counted

    def make() -> Trace:
        def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
            return calls.ask(model, model.price, messages, call, **params)  # type: ignore[arg-type]

        return attempt(
            limited(LOOK), TASK, Letter(), choose(), ask, Call(run="r", attempt="a", step=0)
        )

    with pytest.raises(Interrupted):
        make()
    assert make().answer == "yes"
    assert sorted(asked) == sorted([*(f"r/a/{n}" for n in (0, 1, 2, 3, 5, 6)), "r/a/3"])


def test_what_was_done_for_real_can_be_done_again() -> None:
    scaffold = limited(LOOK)
    trace = go(scaffold, ROWS, domain=Letter())
    sandbox, told = replay(scaffold, TASK, trace, Letter(), choose())
    with_answer = sandbox.read("answer.txt")
    sandbox.close()
    assert (with_answer, told) == (b"yes", "2 actions were done again, and all ended as they had")


class Uncopied:
    """Sandboxes as another backend may make them: without a way to copy them, or with one that
    refuses."""

    name = "plain"

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses

    def probe(self) -> str:
        return ""

    def open(self, **how: Any) -> Any:
        made = choose("none").open(**how)

        class Plain:
            backend = "plain"
            run, write, read, close = made.run, made.write, made.read, made.close

        class Refusing(Plain):
            def copy(self) -> Sandbox:
                raise BadInput("the sandbox holds a file that cannot be copied", code="no-copy")

        return Refusing() if self.refuses else Plain()


def test_where_a_sandbox_cannot_be_copied_that_is_said_before_anything_is_paid() -> None:
    with pytest.raises(BadInput, match="sandboxes of plain cannot be copied") as found:
        try_servers(agent(LOOK), TASK, Toy(), Uncopied())
    assert found.value.code == "no-lookahead"
    try_servers(agent(), TASK, Toy(), Uncopied())
    try_servers(agent(LOOK), TASK, Toy(), choose())


def test_an_agent_whose_files_cannot_be_copied_acts_without_looking() -> None:
    model = Scripted.of(ROWS)

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        return model.reply(messages, call, **params)

    call = Call(run="r", attempt="a", step=0)
    trace = attempt(limited(LOOK), TASK, Letter(), Uncopied(refuses=True), ask, call)
    assert trace.steps[2].action == RASH


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('action = "tools"\n[lookahead]', "lookahead is for actions bash, json and tool:NAME"),
        (
            "[model]\ntemperature = 0\n[lookahead]",
            "candidates that differ: set model.temperature above 0",
        ),
        ("[lookahead]\ncandidate = 2", "did you mean 'candidates'?"),
        ("[lookahead]\ncandidates = 1", "greater than or equal to 2"),
        (
            'action = "command"\ncommand = "x"\n[lookahead]',
            "lookahead is for agents of recreate's own",
        ),
    ],
)
def test_what_cannot_look_ahead_is_told_so(toml: str, words: str) -> None:
    found, faults = read_agent(toml)
    assert found is None
    assert any(words in message for _, message in faults)


def test_traces_show_tells_the_rollouts_and_which_was_taken(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaffold = limited(LOOK)
    for path, text in scaffold.files.items():
        target = workspace / "looks" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    Path("s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    words = [
        "run",
        "looks",
        "toy:train:0",
        "--domain",
        "tests.plugins.turns.test_lookahead:Letter",
        "--sandbox",
        "none",
    ]
    assert cli([*words, "--model", "scripted:s.jsonl", "--out", "runs/one", "--json"]) == 0
    id = json.loads(capsys.readouterr().out)["experience"]
    assert cli(["traces", "show", id]) == 0
    shown = capsys.readouterr().out
    assert "step 1: looked ahead, candidate 2" in shown
    assert "the reply of step 1, the best of 2" in shown

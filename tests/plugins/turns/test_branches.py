"""Samples that share a beginning: it is paid and done once, and they go on from where a result came
back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recreate.agents.attempt import attempt
from recreate.agents.config import AgentConfig, read_agent
from recreate.agents.replay import replay
from recreate.agents.request import Recorded
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import index, tell_index, tell_step
from recreate.agents.workplace import try_servers
from recreate.api.errors import BadInput, Interrupted
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Call, Experience, Grade, Message, Reply, Step, Task, Trace, Usage
from recreate.cli import run as cli
from recreate.models.scripted import Scripted
from recreate.plugins.measuring.turns import count_turns
from recreate.plugins.rl.samples import rows_of
from recreate.plugins.turns.branches import Branches
from recreate.runs.budget import Budget, Ledger
from recreate.runs.calls import Calls
from recreate.runs.journal import Journal
from recreate.sandboxes import choose
from recreate.storage.log import Log
from recreate.viewer.traces import Room, show_step
from tests.agents.test_attempt import ECHO, SAID, TASK, agent, bash, go
from tests.plugins.turns.branching import Folder, Tables, play
from tests.plugins.turns.test_lookahead import Uncopied
from tests.toy import Toy

HAS = ECHO + 'import os\nsys.exit(0 if os.path.exists("answer.txt") else 1)\n'
BEGINS = bash("echo begun >> log; wc -l < log", lacks="status 0")
"""What every beginning does: it says how often it was done in this sandbox."""


def voting(toml: str) -> Scaffold:
    return agent(f'vote = "said"\ndone = "has"\n{toml}', tools__said_py=SAID, tools__has_py=HAS)


def writes(*words: str) -> list[dict[str, Any]]:
    """A beginning, then the word of each sample, added to what lies there."""
    return [
        BEGINS,
        *(bash(f"printf {word} >> answer.txt", sample=n) for n, word in enumerate(words)),
    ]


def shape(trace: Trace) -> list[tuple[int, int | None]]:
    return [(s.sample, s.after) for s in trace.steps]


@pytest.mark.slow
def test_a_beginning_that_samples_share_is_paid_once_and_most_ends_decide() -> None:
    trace = go(voting("samples = 4\nbranches = [4]"), writes("a", "b", "c", "b"))
    assert shape(trace) == [(0, None), (0, None), (1, 0), (2, 0), (3, 0)]
    assert (trace.answer, trace.chosen, trace.usage.calls) == ("b", 1, 5)
    assert [s.step for s in trace.path()] == [0, 2]
    assert {s.observation for s in trace.steps[1:]} == {trace.steps[1].observation}
    apart = go(voting("samples = 4"), writes("a", "b", "c", "b"))
    assert (apart.answer, apart.usage.calls) == ("b", 8)


def test_each_goes_on_from_the_files_and_messages_as_they_were_and_sees_no_others_work() -> None:
    rows = [BEGINS, bash("cat log; ls; echo mine > file; echo more >> log")]
    trace = go(agent("samples = 3\nbranches = [3]\n[limits]\nsteps = 2"), rows)
    assert {s.output for s in trace.steps[1:]} == {"begun\nlog\n"}
    sent = Recorded(trace.steps)
    assert sent[1].messages == sent[2].messages == sent[3].messages
    assert len(sent[1].messages) == len(sent[0].messages) + 2


def test_samples_branch_after_one_result_and_the_next_least_shared_first() -> None:
    deep = go(agent("samples = 4\nbranches = [2, 2]\n[limits]\nsteps = 3"), [bash("true")])
    #   0 - 1 - 2      sample 0
    #    \   \- 6      sample 2
    #     \- 3 - 4     sample 1 (step 3 is its second turn)
    assert [(s.step, s.sample, s.after) for s in deep.steps if s.after is not None] == [
        (3, 1, 0),
        (5, 2, 1),
        (6, 3, 3),
    ]
    assert [len(deep.path(n)) for n in range(4)] == [3, 3, 3, 3]
    assert [s.step for s in deep.path(3)] == [0, 3, 6]


@pytest.mark.slow
def test_samples_begin_anew_where_there_is_nothing_left_to_go_on_from() -> None:
    pairs = go(voting("samples = 5\nbranches = [2]"), writes(*"abcde"))
    assert shape(pairs) == [
        (0, None),
        (0, None),
        (1, 0),
        (2, None),
        (2, None),
        (3, 3),
        (4, None),
        (4, None),
    ]
    at_once = go(voting("samples = 3\nbranches = [3]"), [bash("printf x > answer.txt")])
    assert shape(at_once) == [(0, None), (1, None)]


def test_a_reply_that_could_not_be_read_is_no_result_to_branch_after() -> None:
    rows = [{"text": "Hm.", "step": 0}, *writes("a", "b", "c")]
    trace = go(voting("samples = 3\nbranches = [3]"), rows)
    assert shape(trace) == [(0, None), (0, None), (0, None), (1, 1), (2, 1)]
    assert trace.steps[0].kind == "malformed"


def test_samples_that_could_change_nothing_any_more_are_not_made() -> None:
    trace = go(voting("samples = 5\nbranches = [5]"), writes("a", "a", "a", "b", "b"))
    assert (trace.answer, trace.usage.calls) == ("a", 4)


def test_a_tool_ranks_branches_as_it_ranks_samples() -> None:
    rank = ECHO + 'print(len(open("answer.txt").read()))\n'
    rows = [
        BEGINS,
        *(bash(f"printf {w} > answer.txt", sample=n) for n, w in enumerate(("a", "abc", "ab"))),
    ]
    toml = 'choose = "rank"\nsamples = 3\nbranches = [3]\n[limits]\nsteps = 2'
    trace = go(agent(toml, tools__rank_py=rank), rows)
    assert (trace.answer, trace.chosen) == ("abc", 1)


def test_tools_are_told_which_sample_this_is() -> None:
    scaffold = voting("samples = 3\nbranches = [3]")
    rows = [BEGINS, bash("grep -o 'sample.*' .recreate/attempt.json; printf x > answer.txt")]
    trace = go(scaffold, rows)
    assert [s.output for s in trace.steps[1:]] == [f'sample": {n}}}\n' for n in (0, 1)]


def test_what_a_check_found_before_a_branch_is_what_each_is_measured_by() -> None:
    scaffold = agent(
        "samples = 3\nbranches = [3]\n[limits]\nsteps = 2\n[restore]\ncheck = 'count'",
        tools__count_py=WORSE,
    )
    ends = [
        bash(f"echo {many} > failing", sample=n, contains="status 0")
        for n, many in enumerate((1, 2, 3))
    ]
    trace = go(scaffold, [*ends, bash("echo 2 > failing")])
    assert [bool(s.restored) for s in trace.steps] == [False, False, False, True]


WORSE = """#!/usr/bin/env python3
import os, sys
many = int(open("failing").read()) if os.path.exists("failing") else 2
print(many)
sys.exit(many > 0)
"""


def test_branches_count_against_the_limits_of_the_attempt() -> None:
    rows = [{**row, "tokens_in": 400, "tokens_out": 100} for row in writes(*"abcd")]
    trace = go(voting("samples = 4\nbranches = [4]\n[limits]\ntokens = 1500"), rows)
    assert (trace.usage.calls, trace.answer) == (3, "a")


def test_a_branch_that_a_limit_ends_before_it_did_anything_is_not_handed_in() -> None:
    """Where it begins lies what the first sample had then, which `choose` likes better than its
    end."""
    rank = ECHO + 'import os\nprint(os.path.exists("draft") - 2)\n'
    rows = [
        bash("touch draft", step=0),
        {**bash("rm draft; echo x > answer.txt", step=1), "tokens_in": 900},
    ]
    toml = 'choose = "rank"\nsamples = 2\nbranches = [2]\n[limits]\nsteps = 2\ntokens = 800'
    trace = go(agent(toml, tools__rank_py=rank), [*rows, bash("touch draft")])
    assert (trace.chosen, trace.answer, len(trace.steps)) == (0, "x", 2)


def test_an_attempt_that_was_stopped_pays_for_no_call_twice(tmp_path: Path) -> None:
    asked = list[str]()
    journal = Journal(tmp_path)
    journal.open()
    calls = Calls("r", journal, Ledger(Log(tmp_path / "ledger.jsonl"), Budget()))

    class Counted(Scripted):
        def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
            asked.append(call.id)
            if len(asked) == 4:
                raise Interrupted("stopped")
            return super().reply(messages, call, **params)

    model = Scripted.of(writes("a", "b", "c", "b"))
    model.__class__ = Counted

    def make() -> Trace:
        def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
            return calls.ask(model, model.price, messages, call, **params)  # type: ignore[arg-type]

        scaffold = voting("samples = 4\nbranches = [4]")
        return attempt(scaffold, TASK, Toy(), choose(), ask, Call(run="r", attempt="a", step=0))

    with pytest.raises(Interrupted):
        make()
    assert make().answer == "b"
    assert sorted(asked) == [f"r/a/{n}" for n in (0, 1, 2, 3, 3, 4)]


def test_what_the_chosen_sample_did_can_be_done_again_its_beginning_included() -> None:
    scaffold = voting("samples = 4\nbranches = [4]")
    trace = go(scaffold, writes("a", "b", "c", "b"))
    sandbox, told = replay(scaffold, TASK, trace, Toy(), choose())
    left = (
        sandbox.read("answer.txt"),
        sandbox.read("log"),
        json.loads(sandbox.read(".recreate/attempt.json"))["sample"],
    )
    sandbox.close()
    assert (left, told) == (
        (b"b", b"begun\n", 1),
        "2 actions were done again, and all ended as they had",
    )


def test_where_a_sandbox_cannot_be_copied_that_is_said_before_anything_is_paid() -> None:
    branching = agent("samples = 2\nbranches = [2]")
    with pytest.raises(BadInput, match="goes on in several ways from one beginning") as found:
        try_servers(branching, TASK, Toy(), Uncopied())
    assert found.value.code == "no-branches"
    try_servers(branching, TASK, Toy(), choose())


def test_where_the_agents_files_cannot_be_copied_samples_begin_anew() -> None:
    model = Scripted.of(writes(*"abc"))
    scaffold, call = voting("samples = 3\nbranches = [3]"), Call(run="r", attempt="a", step=0)
    trace = attempt(scaffold, TASK, Toy(), Uncopied(refuses=True), model.reply, call)
    assert shape(trace) == [(n, None) for n in (0, 0, 1, 1, 2, 2)]


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("branches = [2]", "both need a number above 1"),
        ("samples = 2\nbranches = [1]", "both need a number above 1"),
        ("samples = 2\nbranches = [0]", "greater than or equal to 1"),
        ("samples = 2\nbranches = [2]\n[lookahead]", "name one of the two"),
        (
            "samples = 2\nbranches = [2]\n[model]\ntemperature = 0",
            "replies that differ: set model.temperature above 0",
        ),
        (
            'action = "tools"\nsamples = 2\nbranches = [2]',
            "branches is for actions bash, json and tool:NAME",
        ),
        (
            'action = "command"\ncommand = "x"\nbranches = [2]',
            "branches is for agents of recreate's own",
        ),
    ],
)
def test_what_cannot_branch_is_told_so(toml: str, words: str) -> None:
    found, faults = read_agent(toml)
    assert found is None
    assert any(words in message for _, message in faults)


def test_an_agent_without_branches_is_the_one_it_was() -> None:
    assert "branches" not in AgentConfig().model_dump()
    assert "after" not in Step(step=0).model_dump()


# ------------------------------------------------------------------------------------------ any
# tree


class Watched(Folder):
    """Counts the sandboxes that are open."""

    open: ClassVar[list[Folder]] = []

    def __init__(self, *files: Any) -> None:
        super().__init__(*files)
        self.open.append(self)

    def copy(self) -> Folder:
        return Watched(self.files)

    def close(self) -> None:
        self.open.remove(self)


class Opened(Tables):
    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return Watched()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 9),
    st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda widths: max(widths) > 1),
    st.integers(1, 5),
    st.sets(st.integers(0, 12), max_size=6),
    st.booleans(),
)
@example(8, [2] * 7, 8, set(), False)
def test_whatever_the_tree_each_sample_is_whole_and_each_call_is_made_once(
    samples: int, widths: list[int], steps: int, ending: set[int], votes: bool
) -> None:
    """ending: numbers of calls whose reply hands in."""
    toml = f"samples = {samples}\nbranches = {widths}\n[limits]\nsteps = {steps}"
    toml = f'vote = "said"\n{toml}' if votes else toml
    scaffold = agent(toml, tools__said_py=SAID)

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        command = "submit" if call.step in ending else f"answer {call.step % 3}"
        assert len(Watched.open) <= samples - call.sample, (
            "a copy for each sample that is still to be made, at most"
        )
        return Reply(text=f"```bash\n{command}\n```", tokens_in=10, tokens_out=2)

    Watched.open.clear()
    trace = attempt(
        scaffold, TASK, Opened(), choose("none"), ask, Call(run="r", attempt="a", step=0)
    )
    assert Watched.open == [], "every sandbox is closed"
    made = max(s.sample for s in trace.steps) + 1
    assert made == samples or (votes and made < samples)
    assert [s.step for s in trace.steps] == list(range(trace.usage.calls))
    sent, shared = Recorded(trace.steps), 0
    for number in range(made):
        path = trace.path(number)
        assert [len(sent[s.step].messages) for s in path] == [2 * n + 2 for n in range(len(path))]
        assert path[-1].action == "submit" or len(path) == steps
        assert path[-1].sample == number
        shared += sum(s.sample != number for s in path)
    if not ending and made == samples:
        assert shared == -Branches.count_calls(scaffold.agent, 0, steps)
    experience = lived(trace)
    (took,) = count_turns([experience])
    assert took.turns == max(len(trace.path(n)) for n in range(made))
    assert sum(took.tokens) == trace.usage.tokens_in + trace.usage.tokens_out


def lived(trace: Trace) -> Experience:
    return Experience(
        id="e",
        domain="tables",
        task=TASK.id,
        group="g",
        prompt="?",
        digest="d",
        split="train",
        trace=trace,
        grade=Grade(score=1, passed=True),
    )


@given(
    st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(-2, 12)), max_size=12),
    st.integers(0, 4),
)
def test_whatever_a_file_says_of_its_steps_a_path_ends_and_is_in_order(
    steps: list[tuple[int, int | None]], chosen: int
) -> None:
    made = tuple(
        Step(step=n, sample=sample, after=after) for n, (sample, after) in enumerate(steps)
    )
    path = Trace(attempt="a", task="t", scaffold="s", model="m", steps=made, chosen=chosen).path()
    assert [s.step for s in path] == sorted({s.step for s in path})
    assert not path or path[-1] == [s for s in made if s.sample == chosen][-1]


def test_a_policy_is_trained_on_the_whole_path_that_was_handed_in() -> None:
    ids = iter(range(100))

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        command = "true" if call.step == 0 else f"printf {'aabb'[call.sample]} > answer.txt"
        prompt = [1] if call.step == 0 else [1, 50, 2]
        token = 50 if call.step == 0 else 60 + next(ids)
        text = f"```bash\n{command}\n```"
        return Reply(
            text=text, prompt_ids=prompt, token_ids=[token], logprobs=[-0.5], tokenizer_digest="t"
        )

    scaffold = voting("samples = 3\nbranches = [3]")
    trace = attempt(scaffold, TASK, Toy(), choose("none"), ask, Call(run="r", attempt="a", step=0))
    trace = trace.model_copy(update={"chosen": 1})
    (row,) = rows_of(lived(trace))
    assert (row.prompt, row.response, row.mask) == ((1,), (50, 2, 61), (True, False, True))


# ------------------------------------------------------------------------------------------ who
# looks at it


def test_traces_show_and_an_optimizer_are_told_where_a_sample_goes_on_from(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, text in voting("samples = 3\nbranches = [3]").files.items():
        target = workspace / "tree" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    rows = writes("w0!", "no", "w0!")
    Path("s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["run", "tree", "toy:train:0", "--domain", "tests.toy:Toy", "--sandbox", "none"]
    assert (
        cli(
            [
                *words,
                "--model",
                "scripted:s.jsonl",
                "--out",
                "runs/one",
                "--record",
                "tape",
                "--json",
            ]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["passed"]
    assert told["usage"]["calls"] == 4
    assert cli(["traces", "show", told["experience"]]) == 0
    shown = capsys.readouterr().out
    assert "step 2, sample 1, goes on from step 0" in shown
    assert cli(["traces", "show", told["experience"], "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [s.get("after") for s in steps] == [None, None, 0, 0]
    assert cli(["show", "tree"]) == 0
    assert "3 tries at a task, the one that most agree with" in capsys.readouterr().out
    assert cli([*words, "--replay", "tape", "--out", "runs/two", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]

    step = Step(step=2, sample=1, after=0, reply="x", usage=Usage())
    assert tell_step(step, 100).startswith(
        "step 2 (sample 1, which goes on from step 0): the agent answered"
    )
    row = tell_index(index(Trace(attempt="a", task="t", scaffold="s", model="m", steps=(step,))))
    assert row.startswith("step 2 sample 1, which goes on from step 0 |")
    assert show_step(2, step, Room()).what == "goes on from step 0"


@pytest.mark.slow
def test_a_shared_beginning_pays_where_concluding_is_hard_and_not_where_looking_is() -> None:
    def solved(toml: str, look: float, conclude: float) -> tuple[float, float]:
        right, calls, _ = play(toml, 150, look, conclude)
        return right, calls

    apart, calls = solved("samples = 4", 1.0, 0.5)
    tree, fewer = solved("samples = 4\nbranches = [4]", 1.0, 0.5)
    assert fewer < 0.75 * calls
    assert tree > apart - 0.1
    apart, _ = solved("samples = 4", 0.6, 0.9)
    tree, _ = solved("samples = 7\nbranches = [7]", 0.6, 0.9)
    assert tree < apart - 0.05, "one beginning that was wrong misleads all"

"""What an agent does is recorded as it happens, and what it does wrong is data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents import scaffold as scaffolds
from recreate.agents.attempt import attempt, count_votes
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import cut_middle
from recreate.agents.workplace import LEFT_OUT
from recreate.api.paths import shipped
from recreate.api.types import Call, Message, Reply, Task, Trace
from recreate.models.scripted import Scripted
from recreate.runs.attempts import read_steps
from recreate.sandboxes import choose
from tests.toy import Toy

TASK = Task(
    id="toy:train:1",
    domain="toy",
    prompt="Write it.",
    split="train",
    group="g",
    facts={"word": "yes"},
)


def agent(toml: str = "", **files: str) -> Scaffold:
    seed = scaffolds.load(shipped("scaffolds") / "seed")
    named = {
        name.replace("__", "/").replace("_md", ".md").replace("_py", ".py"): text
        for name, text in files.items()
    }
    return Scaffold(name="t", files={**seed.files, "agent.toml": toml, **named})


def go(
    scaffold: Scaffold, rows: list[dict[str, Any]], folder: Path | None = None, domain: Any = None
) -> Trace:
    model = Scripted.of(rows)

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        return model.reply(messages, call, **params)

    call = Call(run="r", attempt="a", step=0, task=TASK.id)
    return attempt(scaffold, TASK, domain or Toy(), choose(), ask, call, folder=folder)


def bash(command: str, **match: Any) -> dict[str, Any]:
    return {**match, "text": f"So:\n```bash\n{command}\n```"}


def test_a_command_a_turn_until_it_submits(tmp_path: Path) -> None:
    trace = go(
        agent(),
        [bash("echo yes > answer.txt; echo wrote", step=0), bash("submit", step=1)],
        tmp_path,
    )
    assert (trace.answer, trace.ending, len(trace.steps)) == ("yes", "submitted", 2)
    assert trace.steps[0].output == "wrote\n"
    assert trace.steps[1].observation.startswith("wrote")
    assert list(read_steps(tmp_path)) == list(trace.steps)


def test_every_step_is_on_disk_when_it_happens(tmp_path: Path) -> None:
    seen = []

    class Watching(Toy):
        def collect(self, task: Task, sandbox: Any) -> str:
            return super().collect(task, sandbox)

    model = Scripted.of([bash("true", step=0), bash("true", step=1), bash("submit")])

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        seen.append(len(list(read_steps(tmp_path))))
        return model.reply(messages, call)

    attempt(
        agent(),
        TASK,
        Watching(),
        choose(),
        ask,
        Call(run="r", attempt="a", step=0),
        folder=tmp_path,
    )
    assert seen == [0, 1, 2]


def test_a_malformed_reply_costs_one_step_and_gets_the_scaffolds_format_message() -> None:
    scaffold = agent("[limits]\nsteps = 3", format_md="NO: {{ error }}, {{ steps_left }} left")
    trace = go(
        scaffold, [{"step": 0, "text": "no block"}, bash("submit", contains="NO: the reply must")]
    )
    assert [s.kind for s in trace.steps] == ["malformed", "action"]
    assert (
        trace.steps[1].observation
        == "NO: the reply must hold exactly one ```bash block; found 0, 2 left"
    )


@pytest.mark.parametrize(("toml", "asked"), [('stop = ["\\n```\\n"]', ["\n```\n"]), ("", None)])
def test_what_ends_a_reply_is_asked_of_the_model(toml: str, asked: list[str] | None) -> None:
    seen = []

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        seen.append(params.get("stop"))
        return Reply(text="```bash\nsubmit\n```", model="m")

    attempt(
        agent(f"[model]\n{toml}"), TASK, Toy(), choose(), ask, Call(run="r", attempt="a", step=0)
    )
    assert seen == [asked]


def test_two_blocks_are_malformed_not_half_obeyed() -> None:
    two = "```bash\ntouch a\n```\n```bash\ntouch b\n```"
    trace = go(agent("[limits]\nsteps = 1"), [{"text": two}])
    assert (trace.ending, trace.limit, trace.steps[0].kind) == ("limit", "steps", "malformed")


@pytest.mark.parametrize(
    ("limits", "which"),
    [("steps = 2", "steps"), ("tokens = 10", "tokens"), ("seconds = 0.001", "seconds")],
)
def test_a_limit_ends_the_attempt_and_is_named(limits: str, which: str) -> None:
    trace = go(agent(f"[limits]\n{limits}"), [bash("sleep 0.01")])
    assert (trace.ending, trace.limit) == ("limit", which)


def test_an_extension_is_granted_once_and_told_only_to_who_is_not_done_by_then() -> None:
    shown = "{{ output.text }} {{ steps_left }} left"
    scaffold = agent("[limits]\nsteps = 2\nextension = 3", observation_md=shown)
    trace = go(scaffold, [bash("echo at work")])
    assert (trace.ending, trace.limit, len(trace.steps)) == ("limit", "steps", 5)
    seen = [step.observation for step in trace.steps[1:]]
    assert "1 left" in seen[0]
    told = "The 2 turns are used up. You are given 3 more, and no further ones"
    assert [told in text for text in seen] == [False, True, False, False]
    assert ["3 left" in seen[1], "2 left" in seen[2], "1 left" in seen[3]] == [True, True, True]
    soon = go(scaffold, [bash("echo yes > answer.txt", step=0), bash("submit", step=1)])
    assert (soon.ending, len(soon.steps)) == ("submitted", 2)
    assert told not in soon.steps[1].observation


def test_a_long_output_is_cut_in_the_middle_and_says_so() -> None:
    scaffold = agent("[limits]\nsteps = 2\nobservation_chars = 200")
    trace = go(scaffold, [bash("seq 1 1000", step=0), bash("submit")])
    output = trace.steps[0].output
    assert len(output) < 400
    assert output.startswith("1\n2\n")
    assert output.endswith("999\n1000\n")
    assert "characters left out" in output


def test_cutting_says_how_much_is_missing() -> None:
    assert "[... 80 characters left out" in cut_middle("x" * 100, 20, LEFT_OUT)


DEEP = "[" * 150_000


@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        '{"command": ' + DEEP,
        '{"a": ' * 5000 + "1" + "}" * 5000,
        "9" * 10_000,
        '{"command": 1e999}',
        "null",
        "[1]",
    ],
)
def test_whatever_stands_in_place_of_a_json_action_costs_one_step(text: str) -> None:
    rows = [{"step": 0, "text": text}, {"text": '{"thought": "", "command": "submit"}'}]
    trace = go(agent('action = "json"'), rows)
    assert ([s.kind for s in trace.steps], trace.ending) == (["malformed", "action"], "submitted")


def test_a_template_that_fails_on_what_really_happens_ends_the_attempt_and_no_more(
    tmp_path: Path,
) -> None:
    scaffold = agent(observation_md="{{ output.text.split('=')[1] }}")
    trace = go(
        scaffold, [bash("echo yes > answer.txt; echo a=1", step=0), bash("echo none")], tmp_path
    )
    assert (trace.ending, trace.limit, trace.answer) == ("error", "template", "yes")
    assert [s.kind for s in trace.steps] == ["action", "action", "malformed"]
    assert trace.steps[0].output == "a=1\n"
    assert "observation.md:1: " in trace.steps[-1].output
    # the step whose answer could not be shown was paid, and stands there
    assert trace.usage.calls == 2
    assert trace.steps[1].usage.calls == 1
    assert list(read_steps(tmp_path)) == list(trace.steps)


def test_a_first_prompt_that_cannot_be_filled_in_ends_the_attempt_before_a_call() -> None:
    look = '#!/usr/bin/env python3\n"""Looks."""\nprint("nothing")\n'
    scaffold = agent(
        'before = ["look"]', workflow_md="{{ before.look.split('=')[1] }}", tools__look_py=look
    )
    trace = go(scaffold, [])
    assert (trace.ending, trace.limit, trace.usage.calls) == ("error", "template", 0)


@pytest.mark.parametrize("status", [0, 2])
def test_a_tool_that_prints_a_megabyte_is_told_in_as_much_as_an_observation_may_have(
    status: int,
) -> None:
    loud = (
        '#!/usr/bin/env python3\n"""Is loud."""\nimport sys\nprint("x" *'
        f" 1_200_000)\nsys.exit({status})\n"
    )
    scaffold = agent('action = "tool:loud"\n[limits]\nsteps = 2', tools__loud_py=loud)
    trace = go(scaffold, [{"text": "go"}])
    assert (trace.ending, trace.limit) == ("limit", "steps")
    assert all(len(s.output) < 9000 for s in trace.steps)


def test_a_rank_that_is_no_number_is_the_lowest() -> None:
    rank = (
        '#!/usr/bin/env python3\n"""Ranks."""\nprint({"a": "nan", "b": "1", "c":'
        ' "inf"}[open("answer.txt").read()])\n'
    )
    scaffold = agent('choose = "rank"\nsamples = 3', tools__rank_py=rank)
    rows = [
        bash(f"printf {word} > answer.txt", sample=n, lacks="printf")
        for n, word in enumerate("abc")
    ]
    trace = go(scaffold, [*rows, bash("submit")])
    assert trace.answer == "b"


def test_a_command_that_hangs_is_an_observation_not_a_fault() -> None:
    scaffold = agent("[limits]\nsteps = 2\ncommand_seconds = 0.5")
    trace = go(scaffold, [bash("sleep 60", step=0), bash("submit")])
    assert trace.steps[0].status == 124
    assert trace.ending == "submitted"


def test_json_actions_are_held_to_a_schema() -> None:
    asked = []
    scaffold = agent('action = "json"')

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        asked.append(params.get("json_schema"))
        return Reply(text='{"thought": "go", "command": "submit"}')

    trace = attempt(scaffold, TASK, Toy(), choose(), ask, Call(run="r", attempt="a", step=0))
    assert trace.ending == "submitted"
    assert asked[0]["required"] == ["thought", "command"]


ECHO = '#!/usr/bin/env python3\n"""Writes its input down."""\nimport sys\ntext = sys.stdin.read()\n'


def test_a_scaffold_brings_its_own_action_format_tools_and_samples(tmp_path: Path) -> None:
    write = ECHO + 'if not text.startswith("SAY "): print("begin with SAY"); sys.exit(2)\n'
    write += 'open("answer.txt", "w").write(text[4:])\n'
    rank = ECHO + 'print("some words")\nprint(len(open("answer.txt").read()))\n'
    look = ECHO + 'print("seen before")\n'
    scaffold = agent(
        'action = "tool:write"\nbefore = ["look"]\nchoose = "rank"\nsamples ='
        " 3\n[limits]\nsteps = 2",
        workflow_md="{{ before.look }}",
        tools__write_py=write,
        tools__rank_py=rank,
        tools__look_py=look,
    )
    rows = [
        {"sample": 0, "text": "SAY a"},
        {"sample": 1, "text": "SAY longest"},
        {"sample": 2, "step": 7, "text": "unreadable"},
        {"sample": 2, "text": "SAY ab"},
    ]
    trace = go(scaffold, rows, tmp_path)
    assert (trace.answer, trace.chosen) == ("longest", 1)
    assert [s.kind for s in trace.steps if s.sample == 2] == ["before", "malformed", "action"]
    assert trace.steps[1].observation == "seen before\n"


SAID = ECHO + 'print(open("answer.txt").read().strip().casefold())\n'


@pytest.mark.parametrize(
    ("words", "handed_in", "made"),
    [
        (("a", "b", "B", "c", "d"), "b", 5),
        (("a", "b", "A", "a", "b"), "a", 4),  # the fifth could change nothing
        (("a", "b", "c", "d", "e"), "a", 5),
        (("", "b", "", "b", "c"), "b", 4),  # who has nothing has no say
    ],
)
def test_the_answer_that_most_samples_come_to_is_handed_in(
    words: tuple[str, ...], handed_in: str, made: int
) -> None:
    scaffold = agent('vote = "said"\nsamples = 5\n[limits]\nsteps = 1', tools__said_py=SAID)
    rows = [bash(f"printf '{word}' > answer.txt", sample=n) for n, word in enumerate(words)]
    trace = go(scaffold, rows)
    assert (trace.answer, len(trace.steps)) == (handed_in, made)
    assert trace.chosen == words.index(handed_in)


def test_samples_that_vote_go_on_after_one_is_accepted() -> None:
    done = ECHO + 'import os\nsys.exit(0 if os.path.exists("answer.txt") else 1)\n'
    scaffold = agent(
        'vote = "said"\ndone = "ready"\nsamples = 3', tools__said_py=SAID, tools__ready_py=done
    )
    trace = go(
        scaffold, [bash(f"printf {word} > answer.txt", sample=n) for n, word in enumerate("abb")]
    )
    assert (trace.ending, trace.answer) == ("submitted", "b")


@given(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9))
def test_a_vote_that_is_settled_early_ends_as_all_samples_would(ballots: list[str | None]) -> None:
    whole, settled = count_votes(ballots, 0)
    assert settled
    for made in range(1, len(ballots)):
        early, settled = count_votes(ballots[:made], len(ballots) - made)
        assert early == whole or not settled
    counts = Counter(b for b in ballots if b)
    assert counts[ballots[whole] or ""] == max(counts.values(), default=0)


def test_samples_do_not_see_each_others_work() -> None:
    scaffold = agent("samples = 2\n[limits]\nsteps = 1")
    trace = go(scaffold, [bash("ls; touch left-behind")])
    assert [s.output for s in trace.steps] == ["", ""]


def test_when_the_done_tool_is_content_the_work_is_handed_in() -> None:
    done = ECHO + 'import os\nsys.exit(0 if os.path.exists("answer.txt") else 1)\n'
    scaffold = agent('done = "ready"\nsamples = 5', tools__ready_py=done)
    trace = go(scaffold, [bash("echo no", step=0), bash("echo yes > answer.txt")])
    assert (trace.ending, trace.answer, len(trace.steps)) == ("submitted", "yes", 2)


def test_tools_are_commands_in_the_sandbox_and_not_part_of_the_answer() -> None:
    tool = ECHO + 'print("hello from a tool")\n'
    trace = go(agent(tools__greet_py=tool), [bash("greet < /dev/null", step=0), bash("submit")])
    assert trace.steps[0].output == "hello from a tool\n"

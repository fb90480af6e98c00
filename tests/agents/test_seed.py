"""The seed for capable models: tool calls, commands that hold fences, long outputs, replies that
were cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.agents.action import bash_blocks, parse
from recreate.agents.attempt import attempt
from recreate.agents.config import read_agent, with_limits
from recreate.agents.lint import problems
from recreate.agents.replay import replay
from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import furnish
from recreate.api.errors import BadInput, Refused
from recreate.api.paths import shipped
from recreate.api.types import Call, Message, Reply, ToolCall, Trace
from recreate.models.scripted import Scripted
from recreate.runs.settings import load
from recreate.sandboxes import choose
from recreate.viewer.text import cut_off, wrong
from tests.agents.test_attempt import TASK, agent, bash
from tests.toy import Toy

SEED = scaffolds.load(shipped("scaffolds") / "seed")


class Asked:
    """What a model was asked, and its answers."""

    def __init__(self, replies: list[Reply | Exception]) -> None:
        self.replies = replies
        self.messages: list[list[Message]] = []
        self.params: list[dict[str, Any]] = []

    def __call__(self, messages: list[Message], call: Call, **params: Any) -> Reply:
        self.messages.append([Message(**m) for m in messages])
        self.params.append(params)
        reply = self.replies[len(self.messages) - 1]
        if isinstance(reply, Exception):
            raise reply
        return reply


def calling(
    *commands: str, text: str = "", submit: bool = False, finish: str = "tool_calls"
) -> Reply:
    made = [
        ToolCall(id=f"c{n}", name="bash", arguments=json.dumps({"command": c}))
        for n, c in enumerate(commands)
    ]
    made += [ToolCall(id="s", name="submit", arguments="{}")] if submit else []
    return Reply(text=text, tool_calls=tuple(made), finish=finish, tokens_out=7)


def go(
    replies: list[Any], *, native: bool = True, scaffold: Scaffold = SEED
) -> tuple[Trace, Asked]:
    asked = Asked(replies)
    call = Call(run="r", attempt="a", step=0, task=TASK.id)
    return attempt(scaffold, TASK, Toy(), choose(), asked, call, native=native), asked


def limited(**limits: float) -> Scaffold:
    return SEED.limited(limits)


# ------------------------------------------------------------------------------------------------
# tool calls


def test_several_calls_of_one_reply_are_run_in_order_and_each_is_answered() -> None:
    trace, asked = go(
        [calling("echo yes > answer.txt; exit 3", "cat answer.txt"), calling(submit=True)]
    )
    assert (trace.answer, trace.ending, len(trace.steps), trace.usage.calls) == (
        "yes",
        "submitted",
        2,
        2,
    )
    assert [t["function"]["name"] for t in asked.params[0]["tools"]] == ["bash", "submit"]
    said, first, second = asked.messages[1][-3:]
    assert [c["id"] for c in said["tool_calls"]] == ["c0", "c1"]
    assert (first["role"], first["tool_call_id"], second["tool_call_id"]) == ("tool", "c0", "c1")
    assert "[exit status 3" in first["content"]
    assert second["content"].startswith("yes\n\n[exit status 0")
    step = trace.steps[0]
    assert (step.action, step.output, step.status) == (
        "echo yes > answer.txt; exit 3\ncat answer.txt",
        "\nyes\n",
        3,
    )
    assert trace.steps[1].action == "submit"


def test_submit_beside_other_calls_hands_nothing_in_and_says_so() -> None:
    trace, asked = go([calling("echo yes > answer.txt", submit=True), calling(submit=True)])
    assert [s.action for s in trace.steps] == ["echo yes > answer.txt", "submit"]
    assert "nothing was handed in" in asked.messages[1][-1]["content"]


def test_a_submit_that_runs_as_a_command_says_that_it_counts_alone() -> None:
    asked = [
        Reply(text="```bash\necho yes > answer.txt && submit\n```"),
        Reply(text="```bash\nsubmit\n```"),
    ]
    trace, _ = go(asked, native=False)
    assert "nothing was handed in: submit counts when it stands alone" in trace.steps[0].output
    assert (trace.steps[0].status, trace.ending) == (1, "submitted")
    quiet, _ = go([Reply(text="```bash\necho 'then submit'\n```"), asked[1]], native=False)
    assert quiet.steps[0].output == "then submit\n"


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("bash", "{", "the arguments of bash must be one JSON object"),
        ("bash", '{"cmd": "ls"}', "the arguments of bash must be one JSON object"),
        ("bash", "[1]", "the arguments of bash must be one JSON object"),
        ("edit", "{}", "there is no tool 'edit'; there are: bash, submit"),
    ],
)
def test_a_call_that_cannot_be_read_is_answered_and_the_others_are_run(
    name: str, arguments: str, says: str
) -> None:
    bad = ToolCall(id="x", name=name, arguments=arguments)
    good = calling("echo yes > answer.txt").tool_calls[0]
    trace, asked = go([Reply(text="", tool_calls=(bad, good)), calling(submit=True)])
    assert (trace.answer, trace.steps[0].kind) == ("yes", "action")
    assert says in asked.messages[1][-2]["content"]
    json.loads(
        asked.messages[1][-3]["tool_calls"][0]["function"]["arguments"]
    )  # providers refuse what is not


def test_a_block_is_understood_from_a_model_that_could_have_called() -> None:
    trace, asked = go([Reply(text="```bash\necho yes > answer.txt\n```"), calling(submit=True)])
    assert (trace.answer, asked.messages[1][-1]["role"]) == ("yes", "user")
    trace, asked = go([Reply(text="All done."), calling(submit=True)])
    assert trace.steps[0].kind == "malformed"
    assert "the reply calls no tool. Call `bash`" in asked.messages[1][-1]["content"]


def test_an_endpoint_that_takes_no_tools_is_asked_for_blocks_instead() -> None:
    refused = Refused("it takes no tools", code="no-tools")
    trace, asked = go([refused, Reply(text="```bash\nsubmit\n```")])
    assert (trace.ending, trace.usage.calls) == ("submitted", 1)
    assert "tools" not in asked.params[1]
    assert "```bash" in asked.messages[1][0]["content"]
    assert "```bash" not in asked.messages[0][0]["content"]


def test_a_model_without_tools_is_asked_for_blocks() -> None:
    _, asked = go([Reply(text="```bash\nsubmit\n```")], native=False)
    assert "tools" not in asked.params[0]
    assert "opened" not in asked.messages[0][0]["content"]
    assert "```bash" in asked.messages[0][0]["content"]


def test_calls_are_done_again_each_by_itself() -> None:
    trace, _ = go([calling("set -e; cd /tmp; false", "pwd > where.txt"), calling(submit=True)])
    sandbox, how = replay(SEED, TASK, trace, Toy(), choose())
    try:
        assert sandbox.read("where.txt") == b"/work\n"
        assert how == "1 actions were done again, and all ended as they had"
    finally:
        sandbox.close()


# -------------------------------------------------------------------------------------------------
# cut off


def test_a_reply_that_was_cut_off_is_said_to_be_and_hardly_sent_again() -> None:
    long = Reply(text="I think. " * 2000, finish="length", tokens_out=4000)
    trace, asked = go([long, Reply(text="```bash\nsubmit\n```")], native=False)
    assert "cut off at its limit of 4000 tokens" in asked.messages[1][-1]["content"]
    assert len(asked.messages[1][-2]["content"]) < 1200
    assert trace.steps[0].reply == long.text  # kept whole, as it was paid


def test_a_thought_that_never_ended_leaves_a_message_that_providers_take() -> None:
    _, asked = go([Reply(text="", finish="length", tokens_out=9), calling(submit=True)])
    assert asked.messages[1][-2] == {"role": "assistant", "content": "(nothing was said)"}
    broken = Reply(
        text="", tool_calls=(ToolCall(id="c", name="bash", arguments='{"comm'),), finish="length"
    )
    _, asked = go([broken, calling(submit=True)])
    assert "tool_calls" not in asked.messages[1][-2]
    assert "cut off" in asked.messages[1][-1]["content"]


def test_three_replies_in_a_row_that_were_cut_off_end_the_attempt() -> None:
    cut = Reply(text="Hm", finish="length")
    trace, _ = go([cut, cut, calling("true"), cut, cut, cut])
    assert (trace.ending, trace.limit, trace.usage.calls) == ("limit", "reply", 6)


def short(**limits: float) -> Scaffold:
    return SEED.limited({"max_tokens": 100, **limits})


CUT = Reply(text="Hm. " * 100, finish="length", tokens_out=100, usd=0.01)


def test_after_a_reply_that_was_cut_off_the_next_may_once_have_twice_the_tokens() -> None:
    replies = [calling("true"), CUT, calling("true"), CUT, calling(submit=True)]
    trace, asked = go(replies, scaffold=short())
    assert [p["max_tokens"] for p in asked.params] == [100, 100, 200, 200, 200]
    assert (
        "cut off at its limit of 100 tokens; from now on a reply may have 200 tokens"
        in trace.steps[2].observation
    )
    assert "from now on" not in trace.steps[4].observation
    assert [s.cut for s in trace.steps] == [False, True, False, True, False]
    assert wrong(trace.steps[1]) == "the reply was cut off at max_tokens"
    assert (
        cut_off(trace)
        == "2 of 5 replies were cut off at max_tokens: --agent.max_tokens N lets a reply have more"
    )


@pytest.mark.parametrize(
    ("reply", "scaffold", "full"),
    [
        (
            CUT.model_copy(update={"tokens_out": 20}),
            short(),
            dict,
        ),  # the model's window was full, not the reply
        (CUT, short(tokens=450), dict),
        (CUT, short(usd=0.02), dict),
        (
            CUT,
            short(),
            lambda params: {**params, "max_tokens": 100},
        ),  # a recipe says what may be asked
    ],
)
def test_the_cap_is_not_raised_where_that_would_not_help_or_use_up_the_limits(
    reply: Reply, scaffold: Scaffold, full: Any
) -> None:
    asked = Asked([reply, calling(submit=True)])
    call = Call(run="r", attempt="a", step=0, task=TASK.id)
    trace = attempt(scaffold, TASK, Toy(), choose(), asked, call, native=True, full=full)
    assert [p["max_tokens"] for p in asked.params] == [100, 100]
    assert "from now on" not in trace.steps[1].observation


@pytest.mark.parametrize("action", ["json", "tool:strict"])
def test_a_cut_off_reply_is_said_to_be_whatever_it_should_have_been(action: str) -> None:
    strict = "#!/usr/bin/env python3\n'''Refuses.'''\nimport sys\nprint('no JSON')\nsys.exit(2)\n"
    scaffold = agent(
        f'action = "{action}"\n[model]\nmax_tokens = 100\n[limits]\nsteps = 2',
        tools__strict_py=strict,
    )
    trace, asked = go([CUT, CUT], scaffold=scaffold)
    said = trace.steps[1].observation
    assert "cut off at its limit of 100 tokens; from now on a reply may have 200 tokens" in said
    assert asked.params[1]["max_tokens"] == 200


def test_a_whole_command_in_a_reply_that_was_cut_off_is_run() -> None:
    trace, _ = go([calling("echo yes > answer.txt", finish="length"), calling(submit=True)])
    assert trace.answer == "yes"


# -----------------------------------------------------------------------------------------------
# long outputs


def test_what_is_left_out_of_a_long_output_can_be_seen_by_the_command_that_is_named() -> None:
    seen: list[str] = []

    class Reading(Asked):
        def __call__(self, messages: list[Message], call: Call, **params: Any) -> Reply:
            if len(self.messages) == 1:
                shown = messages[-1]["content"]
                seen.append(shown)
                command = "sed -n " + shown.partition("sed -n ")[2].partition(" ...]")[0]
                self.replies[1] = calling(command)
            return super().__call__(messages, call, **params)

    asked = Reading([calling("seq 1 9000"), calling("true"), calling(submit=True)])
    trace = attempt(
        SEED, TASK, Toy(), choose(), asked, Call(run="r", attempt="a", step=0), native=True
    )
    assert seen[0].startswith("1\n2\n")
    assert "\n9000\n" in seen[0]
    first = int(seen[0].partition("\n[...")[0].splitlines()[-2])  # the last whole line of the head
    assert f"\n{first + 2}\n" in trace.steps[1].output


def test_an_output_that_cannot_be_kept_is_still_shown() -> None:
    scaffold = limited(steps=2)
    trace, _ = go(
        [calling("rm -rf .recreate; echo > .recreate; seq 1 9000")] * 2, scaffold=scaffold
    )
    assert "characters left out here" in trace.steps[0].output


# ------------------------------------------------------------------------------------------------
# fences

README = (
    "```bash\ncat > README.md <<'EOF'\n#"
    " Use\n```python\nprint(1)\n```\nand\n```\nplain\n```\nEOF\ncat README.md\n```"
)


def test_fences_in_a_heredoc_do_not_end_the_command() -> None:
    assert parse("bash", Reply(text=README)) == (
        README.partition("\n")[2].removesuffix("\n```"),
        "",
    )
    one = "```bash\ncat > t.py <<EOF\ntext = '''\n```\n'''\nEOF\npython3 t.py\n```\nThat is all."
    assert bash_blocks(one) == (["cat > t.py <<EOF\ntext = '''\n```\n'''\nEOF\npython3 t.py\n"], "")
    quoted = "```bash\ngit commit -m \"$(cat <<'EOF'\nIt's so:\n```\nx\n```\nEOF\n)\"\n```"
    assert bash_blocks(quoted)[0][0].endswith('EOF\n)"\n')


def test_a_block_of_four_backticks_holds_what_it_likes() -> None:
    inside = "printf '%s' '\n```\nfoo\n```\n'\n"
    assert bash_blocks(f"````bash\n{inside}````\nand so on") == ([inside], "")


@pytest.mark.parametrize(
    "text",
    [
        "```bash\nprintf '%s' '\n```\nfoo\n```\n' > a.md\n```",  # a quote is open at the first
        "```bash\npython3 -c \"\nprint('''\n```\n''')\"\n```",
        "```bash\nls\n```python\nprint(1)\n```",  # nobody closed the first
        # the heredoc's end is another block's
        "```bash\ncat <<EOF > a\nx\n```\nThen:\n```bash\ncat b\nEOF\n```",
    ],
)
def test_a_command_whose_end_is_not_clear_is_refused_and_the_way_out_is_said(text: str) -> None:
    command, wrong = parse("bash", Reply(text=text))
    assert command == ""
    assert "four backticks" in wrong


@pytest.mark.parametrize(
    "inside",
    [
        "echo don't",  # bash says what is wrong with it
        "echo \"a 'b' \\\" c\" # it's",
        "x=$'it\\'s'; echo \"$x\"",
        "echo '\\' 'b'",
        "echo $((1<<2)) <<< word",
        "cat <<-'E O F'\n\tx\n\tE O F",
        "cat <<EOF",  # without its end: bash takes what there is
        'grep "a#b" c # <<EOF',
    ],
)
def test_an_ordinary_command_is_taken_as_it_stands(inside: str) -> None:
    assert bash_blocks(f"So:\n```bash\n{inside}\n```\nAnd it's done, isn't it?") == (
        [inside + "\n"],
        "",
    )


# ---------------------------------------------------------------------------------------- limits,
# and the folder


def test_the_seed_has_room_for_a_capable_model_and_no_fault() -> None:
    limits, model = SEED.agent.limits, SEED.agent.model
    assert (limits.steps, limits.usd, limits.seconds) == (100, 3.0, 3600)
    assert (SEED.agent.native, model.max_tokens) == (True, 16384)
    assert problems(SEED) == []
    _, asked = go([calling(submit=True)])
    assert asked.params[0]["max_tokens"] == 16384


def test_limits_are_changed_where_they_stand_and_nothing_else_is() -> None:
    made = limited(steps=7, max_tokens=99, usd=0.5)
    assert (made.agent.limits.steps, made.agent.limits.usd, made.agent.model.max_tokens) == (
        7,
        0.5,
        99,
    )
    assert made.agent.limits.seconds == SEED.agent.limits.seconds
    assert made.agent.description == SEED.agent.description
    assert limited(steps=0) is SEED
    bare, faults = read_agent(with_limits('action = "bash"', {"seconds": 5.5, "max_tokens": 3}))
    assert faults == []
    assert bare is not None
    assert (bare.limits.seconds, bare.model.max_tokens) == (5.5, 3)


def test_a_reply_s_cap_is_the_agent_s_in_a_file_a_variable_and_a_flag(tmp_path: Path) -> None:
    (tmp_path / "recreate.toml").write_text("[agent]\nmax_tokens = 7\n")
    assert load(tmp_path, {}, {}).limits.max_tokens == 7
    assert load(tmp_path, {}, {"RECREATE_AGENT__MAX_TOKENS": "8"}).limits.max_tokens == 8
    assert load(tmp_path, {"agent.max_tokens": 9}, {}) == load(
        tmp_path, {"limits.max_tokens": 9}, {}
    )


def test_limits_written_in_another_way_are_not_changed_behind_ones_back() -> None:
    with pytest.raises(BadInput, match="limits"):
        with_limits("limits.steps = 4\n", {"steps": 9})


def test_only_shell_agents_can_be_native() -> None:
    _, faults = read_agent('action = "json"\nnative = true')
    assert "native is for action bash" in faults[0][1]


def test_a_tool_is_told_of_the_attempt() -> None:
    tool = (
        '#!/usr/bin/env python3\n"""Looks."""\nprint(open("/work/.recreate/attempt.json").read())\n'
    )
    toml = 'action = "bash"\nbefore = ["look"]\nsamples = 2\nchoose = "look"'
    files = {**SEED.files, "agent.toml": toml, "tools/look.py": tool}
    model = Scripted.of([bash("submit")])
    call = Call(run="r", attempt="a", step=0)
    trace = attempt(
        Scaffold(name="t", files=files),
        TASK,
        Toy(),
        choose(),
        lambda m, c, **p: model.reply(m, c),
        call,
    )
    told = [json.loads(s.output) for s in trace.steps if s.kind == "before"]
    assert told == [{"prompt": TASK.prompt, "sample": n} for n in (0, 1)]


def test_a_tool_in_an_optimizers_sandbox_is_told_the_same(tmp_path: Path) -> None:
    sandbox = choose().open()
    try:
        furnish(
            sandbox,
            Scaffold(name="t", files={**SEED.files, "tools/a.py": '"""A."""\n'}),
            "words",
            1,
        )
        assert json.loads(sandbox.read(".recreate/attempt.json")) == {
            "prompt": "words",
            "sample": 1,
        }
    finally:
        sandbox.close()

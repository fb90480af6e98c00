"""An agent of somebody else's is attempted like one of ours: recorded, held to its limits, and shut
in."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents import scaffold as scaffolds
from recreate.agents.lint import problems
from recreate.agents.replay import replay
from recreate.agents.request import Recorded
from recreate.agents.scaffold import BadEdit, Scaffold, apply
from recreate.api.errors import (
    FILTERED,
    REFUSED_REQUEST,
    BadInput,
    Fault,
    Interrupted,
    OutOfBudget,
    RecreateError,
    Refused,
)
from recreate.api.types import Call, Edit, Message, Reply, Task, Trace
from recreate.models.scripted import Scripted
from recreate.plugins.foreign.foreign import attempt_foreign
from recreate.runs.attempts import read_steps
from recreate.sandboxes import choose
from recreate.sandboxes.none import NoSandbox
from tests.toy import Toy

TASK = Task(
    id="toy:train:1",
    domain="toy",
    prompt="Write it.",
    split="train",
    group="g",
    facts={"word": "yes"},
)
STAND_IN = (Path(__file__).parent / "stand_in.py").read_text("utf-8")
COMMAND = "python3 -S {agent}/agent.py {prompt_file}"


def foreign(command: str = COMMAND, toml: str = "", **files: str) -> Scaffold:
    named = {
        name.replace("__", "/").replace("_md", ".md").replace("_py", ".py"): text
        for name, text in files.items()
    }
    limits = "" if "[limits]" in toml else "\n[limits]\nsteps = 6\nseconds = 60\n"
    return Scaffold(
        name="t",
        files={
            "agent.toml": (
                f"action = 'command'\ncommand = '''{command}'''\ntexts ="
                f" ['prompts/*.md']\n{toml}{limits}"
            ),
            "prompts/system.md": "You write answers.\n",
            "agent.py": STAND_IN,
            **named,
        },
    )


def go(
    scaffold: Scaffold, rows: Any, folder: Path | None = None, backend: Any = None, **more: Any
) -> Trace:
    model = Scripted.of(rows) if isinstance(rows, list) else None

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        if model is None:
            return rows(messages, call, **params)  # type: ignore[no-any-return]
        return model.reply(messages, call, **params)

    call = Call(run="r", attempt="a", step=0, task=TASK.id)
    return attempt_foreign(
        scaffold, TASK, Toy(), backend or choose(), ask, call, folder=folder, **more
    )


def bash(command: str, **match: Any) -> dict[str, Any]:
    return {**match, "text": f"So:\n```bash\n{command}\n```"}


WRITES = [bash("echo yes > answer.txt; echo wrote", step=0), bash("submit", step=1)]


def ended(trace: Trace) -> tuple[str, str]:
    assert trace.steps[-1].kind == "ended"
    return trace.ending, trace.limit


# --------------------------------------------------------------------------------------------------
# what is recorded


def test_each_request_is_a_step_and_the_last_one_says_how_the_program_ended(tmp_path: Path) -> None:
    trace = go(foreign(), WRITES, tmp_path)
    assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")
    first, second, last = trace.steps
    assert (first.observation, first.action) == ("Write it.", "echo yes > answer.txt; echo wrote")
    assert first.output == second.observation == "wrote\n[0]"
    assert (last.output, last.status) == ("done after 4 messages\n", 0)
    assert (trace.usage.calls, trace.usage.role) == (2, "agent")
    assert list(read_steps(tmp_path)) == list(trace.steps)


def test_what_it_sent_can_be_had_back_byte_for_byte() -> None:
    asked: list[tuple[list[Message], dict[str, Any]]] = []

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        asked.append((messages, params))
        return Scripted.of(WRITES).reply(messages, call, **params)

    trace = go(foreign(), ask)
    had = Recorded(trace.steps)
    assert [(had[n].messages, had[n].params) for n in (0, 1)] == asked
    assert 2 not in had


def test_its_calls_have_addresses_in_the_order_in_which_they_came() -> None:
    calls: list[Call] = []

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        calls.append(call)
        return Scripted.of(WRITES).reply(messages, call, **params)

    go(foreign(), ask)
    assert [call.id for call in calls] == ["r/a/0", "r/a/1"]


def test_a_task_changed_text_is_what_the_program_reads() -> None:
    child = apply(
        foreign(), [Edit(path="prompts/system.md", old="answers", new="ANSWERS", origin="human")]
    )
    seen: list[str] = []

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        seen.append(messages[0]["content"])
        return Reply(text="nothing to do")

    go(child, ask)
    assert seen == ["You write ANSWERS.\n"]


def test_a_key_that_a_command_printed_is_masked_before_it_is_sent_or_stored(tmp_path: Path) -> None:
    key = "ghp_" + "q7Rt2mXv9LpZ4sKd8WbN1cJf6HyG3aTe5UoV"
    trace = go(
        foreign(), [bash(f"echo {key[:20]}''{key[20:]}", step=0), bash("submit", step=1)], tmp_path
    )
    assert key not in trace.model_dump_json()
    assert "[" in trace.steps[1].observation


def test_where_it_left_its_sandbox_is_made_again_from_its_commands() -> None:
    scaffold = foreign()
    trace = go(scaffold, WRITES)
    sandbox, how = replay(scaffold, TASK, trace, Toy(), choose())
    with contextlib.closing(sandbox):
        assert sandbox.read("answer.txt") == b"yes\n"
    assert how == "1 actions were done again, and all ended as they had"
    look = {"id": "1", "name": "look", "arguments": "{}"}
    step = trace.steps[0].model_copy(
        update={"action": "look {}", "foreign": {"tool_calls": [look]}}
    )
    sandbox, how = replay(
        scaffold, TASK, trace.model_copy(update={"steps": (step,)}), Toy(), choose()
    )
    sandbox.close()
    assert "step 0 called look, which only the agent's own program can do" in how


# --------------------------------------------------------------------------------------------------
# limits


@pytest.mark.parametrize(
    ("limits", "limit"), [("steps = 2", "steps"), ("tokens = 30", "tokens"), ("usd = 0.0", "usd")]
)
def test_a_limit_ends_it_and_what_it_wrote_until_then_is_handed_in(limits: str, limit: str) -> None:
    trace = go(foreign(toml=f"[limits]\n{limits}\n"), [bash("echo yes > answer.txt")])
    assert ended(trace) == ("limit", limit)
    assert trace.answer == ("" if limit == "usd" else "yes")


HUGE = """
import json, os, urllib.error, urllib.request
body = json.dumps({"messages": [{"role": "user", "content": "much " * 400_000}]}).encode()
try:
    urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + \
"/chat/completions", body))
except urllib.error.HTTPError as e:
    print(e.code)
"""


def test_a_prompt_that_would_take_the_run_s_budget_ends_the_attempt_alone() -> None:
    trace = go(foreign("python3 -S {agent}/huge.py", huge_py=HUGE), WRITES)
    assert ended(trace) == ("limit", "tokens")
    assert trace.usage.calls == 0


def test_one_that_does_not_heed_the_limit_is_killed() -> None:
    loop = COMMAND + "; while :; do sleep 1; done"
    trace = go(
        foreign(loop, "[limits]\nsteps = 1\nseconds = 50\n"), [bash("echo yes > answer.txt")]
    )
    assert (trace.answer, *ended(trace)) == ("yes", "limit", "steps")
    assert trace.steps[-1].seconds < 45


@pytest.mark.slow
def test_the_time_ends_one_that_asks_nothing() -> None:
    trace = go(foreign("echo yes > answer.txt; sleep 100", "[limits]\nseconds = 2\n"), WRITES)
    assert (trace.answer, *ended(trace)) == ("yes", "limit", "seconds")


def test_a_reply_has_at_most_the_tokens_that_agent_toml_says() -> None:
    most: list[int] = []

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        most.append(params["max_tokens"])
        return Reply(text="that is all")

    go(foreign(toml="[model]\nmax_tokens = 77\n"), ask)
    go(foreign(), ask)
    assert most == [77, 8192]


def test_what_ends_the_run_ends_the_agent_and_is_raised() -> None:
    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        raise OutOfBudget("spent")

    with pytest.raises(OutOfBudget):
        go(foreign(COMMAND + "; sleep 100"), ask)


def test_ctrl_c_ends_one_that_asks_nothing() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        go(foreign("sleep 100"), WRITES, stop=stop)


def test_a_prompt_that_is_too_long_is_said_to_the_agent_which_may_go_on() -> None:
    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        raise BadInput("the prompt is too long", code="context-length")

    assert ended(go(foreign(), ask)) == ("limit", "context")


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize(
    ("error", "how"),
    [
        (Refused("too long: blue", code="context-length"), ("limit", "context")),
        (Refused("a filter: blue", code=FILTERED), ("error", "filter")),
        (Fault("an odd request: blue", code=REFUSED_REQUEST), ("error", "request")),
    ],
)
def test_a_request_that_its_model_refuses_is_said_to_the_agent_and_ends_no_run(
    error: RecreateError, how: tuple[str, str], turns: int
) -> None:
    model = Scripted.of(WRITES)

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        if call.step < turns:
            return model.reply(messages, call, **params)
        raise error

    if how == ("error", "request") and not turns:  # of a first one, nobody knows whose it is
        with pytest.raises(Fault, match="blue"):
            go(foreign(), ask)
        return
    trace = go(foreign(), ask)
    assert ended(trace) == how
    assert f"[its model refused its last request: {error}]" in trace.steps[-1].output


# --------------------------------------------------------------------------------------------------
# bad agents


def test_one_that_never_asks_is_told_from_one_that_hands_in() -> None:
    trace = go(foreign("echo yes > answer.txt"), WRITES)
    assert (trace.answer, *ended(trace)) == ("yes", "error", "no-calls")
    assert "OPENAI_BASE_URL" in trace.steps[-1].output


def test_one_that_dies_says_with_what_words() -> None:
    trace = go(foreign(COMMAND + " && echo oh no >&2 && exit 3"), WRITES)
    assert ended(trace) == ("error", "exit")
    assert (trace.steps[-1].status, trace.steps[-1].output) == (3, "done after 4 messages\noh no\n")


def test_a_program_that_is_not_there_says_so() -> None:
    trace = go(foreign("no-such-agent {prompt_file}"), WRITES)
    assert ended(trace) == ("error", "no-calls")
    assert "no-such-agent" in trace.steps[-1].output


def test_a_program_that_is_not_there_is_refused_before_it_is_attempted_or_measured(
    workspace: Path,
) -> None:
    agent, model = foreign("no-such-agent {prompt_file}"), Scripted.of(WRITES)
    for attempted in (
        lambda: recreate.run(agent, "toy:train:0", Toy(), model=model),
        lambda: recreate.bench(agent, Toy(), model=model, tasks=2),
    ):
        with pytest.raises(
            BadInput, match="the sandbox has no no-such-agent, which the command begins with"
        ):
            attempted()
    assert not list((workspace / "runs").glob("*/attempts/*"))


CALLS_OUT = """
import socket, sys
for address in (("198.51.100.7", 80), ("127.0.0.1", %d)):
    try:
        socket.create_connection(address, 3)
        print("reached", address)
    except OSError as e:
        print("closed", address[1])
try:
    print("resolved", socket.getaddrinfo("api.openai.com", 443))
except OSError:
    print("no names")
"""


def test_no_other_address_can_be_reached_not_even_the_machine_s_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        trace = go(foreign("python3 -S {agent}/out.py", out_py=CALLS_OUT % port), WRITES)
    assert ended(trace) == ("error", "no-calls")
    assert trace.steps[-1].output.splitlines()[-3:] == ["closed 80", f"closed {port}", "no names"]


FLOODS = """
import concurrent.futures, os, urllib.request
def ask(n):
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", \
b'{"messages": []}')
    try:
        urllib.request.urlopen(request, timeout=20).read()
    except Exception as e:
        return str(e)
with concurrent.futures.ThreadPoolExecutor(20) as pool:
    list(pool.map(ask, range(5000)))
"""


def test_one_that_floods_the_gateway_is_stopped() -> None:
    trace = go(foreign("python3 -S {agent}/flood.py", flood_py=FLOODS), WRITES)
    assert ended(trace) == ("error", "flood")
    assert trace.usage.calls == 0
    assert "messages must be a list that is not empty" in trace.steps[-1].output


PARALLEL = """
import concurrent.futures, json, os, urllib.request
def ask(n):
    body = json.dumps({"messages": [{"role": "user", "content": f"question {n}"}]}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
    with urllib.request.urlopen(request, timeout=50) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(sorted(pool.map(ask, range(4))))
"""


def test_requests_at_once_are_answered_one_after_the_other() -> None:
    busy = threading.Lock()

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        assert busy.acquire(blocking=False)
        busy.release()
        return Reply(text=messages[-1]["content"].replace("question", "answer"))

    trace = go(foreign("python3 -S {agent}/four.py", four_py=PARALLEL), ask)
    assert ended(trace) == ("submitted", "")
    assert trace.steps[-1].output == "['answer 0', 'answer 1', 'answer 2', 'answer 3']\n"
    assert sorted(s.observation for s in trace.steps[:4]) == [f"question {n}" for n in range(4)]
    assert all(s.reply == s.observation.replace("question", "answer") for s in trace.steps[:4])


def test_what_it_leaves_in_the_background_is_gone_with_it(tmp_path: Path) -> None:
    forks = "(setsid sh -c 'while :; do date >> /work/alive; sleep 0.1; done' &) ; " + COMMAND
    trace = go(foreign(forks), WRITES)
    assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")


def test_it_cannot_change_the_gateway_s_folder_or_reach_the_host_s_files() -> None:
    trace = go(
        foreign(
            "touch /gateway/x; rm /gateway/gateway.sock; ls /root /home; cat /etc/shadow; echo"
            " $OPENAI_API_KEY"
        ),
        WRITES,
    )
    printed = trace.steps[-1].output
    assert "Read-only file system" in printed
    assert "\nrecreate\n" in printed
    assert "root:" not in printed


def test_one_that_kills_its_launcher_ends(tmp_path: Path) -> None:
    trace = go(foreign("kill -9 $PPID; sleep 50"), WRITES)
    assert ended(trace) == ("error", "no-calls")


def test_without_a_sandbox_it_finds_its_gateway_too() -> None:
    trace = go(foreign(), WRITES, backend=NoSandbox())
    assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")


@pytest.mark.skipif(not shutil.which("unshare"), reason="util-linux is not installed")
def test_the_other_walls_have_a_way_to_the_gateway_too() -> None:
    trace = go(foreign(), WRITES, backend=choose("unshare"))
    assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")


# --------------------------------------------------------------------------------------------------
# the folder


def test_only_the_texts_that_it_declares_can_be_edited() -> None:
    for path in ("agent.py", "agent.toml", "system.md", "prompts/x.txt"):
        with pytest.raises(BadEdit, match="protected"):
            apply(foreign(), [Edit(path=path, new="x\n", origin="human")])
    for path in ("../prompts/x.md", "prompts/../../x.md", "/prompts/x.md", ".git/x.md"):
        with pytest.raises(BadEdit):
            apply(foreign(toml="").model_copy(), [Edit(path=path, new="x\n", origin="human")])
    child = apply(foreign(), [Edit(path="prompts/more.md", new="x\n", origin="human")])
    assert child.files["prompts/more.md"] == "x\n"


def test_a_folder_of_somebody_else_s_agent_is_loaded_saved_and_sound(tmp_path: Path) -> None:
    scaffolds.save(foreign(), tmp_path / "agent")
    again = scaffolds.load(tmp_path / "agent")
    assert again.digest == foreign().digest
    assert problems(again, choose()) == []


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("action = 'command'\n", 'command = "..."'),
        (
            "action = 'command'\ncommand = 'x'\nsamples = 3\n",
            "samples is for agents of recreate's own",
        ),
        ("action = 'bash'\ncommand = 'x'\n", "command is for foreign agents"),
        ("action = 'command'\ncommand = 'x'\ntexts = ['*.txt']\n", "texts matches no file"),
        ("action = 'command'\ncommand = 'x'\ntextes = ['*.txt']\n", "did you mean 'texts'"),
        ("action = 'command'\ncommand = 'no-such-agent x'\n", "the sandbox has no no-such-agent"),
        ("action = 'command'\ncommand = 'x'\nvenv = '/no/where'\n", "no bin/python"),
        (
            "action = 'command'\ncommand = 'x'\nmounts = {'/opt/x' = '/no/where'}\n",
            "/no/where is not there",
        ),
        ("action = 'python:a:b'\ntexts = ['*.py']\n", "runs in no process of ours"),
    ],
)
def test_what_is_wrong_with_it_is_said_before_it_runs(toml: str, said: str) -> None:
    files = {"agent.toml": toml, "agent.py": "print(1)\n"}
    assert said in "\n".join(problems(Scaffold(name="t", files=files), choose()))


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [("p.json", "{", "is not JSON"), ("p.toml", "a =", "is not TOML"), ("p.py", "(", "Python")],
)
def test_a_text_that_its_program_could_not_read_is_refused(path: str, text: str, said: str) -> None:
    files = {"agent.toml": "action = 'command'\ncommand = 'true'\ntexts = ['p.*']\n", path: text}
    assert said in "\n".join(problems(Scaffold(name="t", files=files)))


def test_a_python_of_the_host_is_there_when_it_is_named() -> None:
    prefix = Path(sys.prefix)
    command = "python -c 'import pytest, sys; print(pytest.__name__, sys.prefix)'"
    trace = go(foreign(command, f"venv = '{prefix}'\n"), WRITES)
    assert trace.steps[-1].output.splitlines()[-1] == f"pytest {prefix}"

"""What a model was sent can be had back, byte for byte, from what is stored."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents.attempt import attempt
from recreate.agents.request import Recorded, Requests
from recreate.agents.retrieval import exactly
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import Refused
from recreate.api.types import (
    Call,
    Experience,
    Grade,
    Lesson,
    Message,
    Reply,
    Sent,
    Step,
    ToolCall,
    Trace,
)
from recreate.memory.store import ExperienceStore
from recreate.sandboxes import choose
from recreate.storage.log import Log, encode
from tests.agents.test_attempt import TASK, agent, bash
from tests.agents.test_seed import SEED, calling
from tests.toy import Toy

PARAMS = {"max_tokens": 1024}
READS = '#!/usr/bin/env python3\n"""Reads."""\nimport sys\nprint("read", sys.stdin.read()[:400])\n'
RANKS = '#!/usr/bin/env python3\n"""Ranks."""\nprint(1)\n'
LONG = "It is said at some length what is thought of all this. " * 60


class Taped:
    """What a model was sent, as bytes, by step."""

    native_tools = True

    def __init__(self, replies: Sequence[Reply | Exception]) -> None:
        self.replies = list(replies)
        self.sent: dict[int, str] = {}

    def __call__(self, messages: list[Message], call: Call, **params: Any) -> Reply:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        self.sent[call.step] = spelled(messages, params)
        return reply


def spelled(messages: Sequence[Message], params: dict[str, Any]) -> str:
    """A request as JSON; the order of the parameters is nobody's."""
    return json.dumps([messages, dict(sorted(params.items()))])


def had(steps: Sequence[Step]) -> dict[int, str]:
    recorded = Recorded(steps)
    return {step.step: spelled(*recorded[step.step]) for step in steps if step.step in recorded}


def text(said: str, finish: str = "stop") -> Reply:
    return Reply(text=said, finish=finish, tokens_out=5)


def run(said: str) -> Reply:
    return text(bash(said)["text"])


def asked(command: str) -> Reply:
    return text(json.dumps({"thought": "so", "command": command}))


def many(prefix: str) -> list[Reply]:
    return [run(f"printf 'yes{n}' > answer.txt; seq {n} 300; echo {prefix} >&2") for n in range(6)]


NO_TOOLS = Refused("it takes no tools", code="no-tools")
BROKEN = ToolCall(id="b", name="bash", arguments='{"comm')
HALF = Reply(text=LONG, tool_calls=(BROKEN,), finish="length")
UNKNOWN = ToolCall(id="u", name="edit", arguments='{"file": "a.py", "text": "' + "x" * 60 + '"}')
WRONG = Reply(
    text=LONG, tool_calls=(UNKNOWN, *calling("seq 1 60").tool_calls, BROKEN), finish="tool_calls"
)
DONE = calling(submit=True)
TEMPLATES = {"workflow_md": "{{ before.r }} {{ task.prompt }}", "tools__r_py": READS}
CASES: dict[str, tuple[Scaffold, list[Any], bool]] = {
    "bash": (
        agent("[model]\ntemperature = 0.5\nstop = ['END']"),
        [*many("a"), run("submit")],
        False,
    ),
    "json": (agent('action = "json"'), [text(LONG), asked("seq 1 99"), asked("submit")], False),
    "tool:NAME": (
        agent('action = "tool:r"\n[limits]\nsteps = 3', tools__r_py=READS),
        [text(LONG)] * 3,
        False,
    ),
    "native": (SEED, [calling("seq 1 50", "seq 2 90", text=LONG), calling("ls"), DONE], True),
    "native, calls that cannot be read": (SEED, [WRONG, calling("ls", submit=True), DONE], True),
    "native, in text": (SEED, [run("ls -la"), text(LONG), DONE], True),
    "no native tools after all": (SEED, [NO_TOOLS, *many("b"), run("submit")], True),
    "samples": (
        agent("samples = 3\nchoose = 'r'\n[limits]\nsteps = 2", tools__r_py=RANKS),
        [*many("c")[:2], text(LONG), *many("d")[:3]],
        False,
    ),
    "cut off": (
        SEED,
        [text(LONG, "length"), calling("seq 1 60"), text("", "length"), HALF, calling("ls"), DONE],
        True,
    ),
    "before": (agent("before = ['r']", **TEMPLATES), [run("submit")], False),
    "a template that fails": (
        agent(observation_md="{{ output.text.split('=')[1] }}"),
        [run("echo a=1"), run("echo none")],
        False,
    ),
}


def tried(case: str, **more: Any) -> tuple[Trace, Taped]:
    scaffold, replies, native = CASES[case]
    taped = Taped(replies)
    call = Call(run="r", attempt="a", step=0, task=TASK.id)
    return attempt(scaffold, TASK, Toy(), choose(), taped, call, native=native, **more), taped


def experience(trace: Trace, **facts: Any) -> Experience:
    told = {
        "domain": "toy",
        "task": TASK.id,
        "group": "g",
        "split": "train",
        "prompt": TASK.prompt,
        "digest": "d",
    }
    return Experience(
        id="a", trace=trace, grade=Grade(score=0.0, passed=False), **{**told, **facts}
    )


@pytest.mark.parametrize("case", CASES)
def test_what_a_model_was_sent_is_had_back_from_the_steps(case: str, tmp_path: Path) -> None:
    trace, taped = tried(case, folder=tmp_path)
    assert taped.sent
    assert had(trace.steps) == taped.sent
    assert had([Step.model_validate(r) for r in Log(tmp_path / "steps.jsonl").read()]) == taped.sent


def test_lessons_that_were_offered_are_in_it() -> None:
    lesson = Lesson(
        id="marks", title="Marks", body="End every answer with an exclamation mark, " * 9
    )
    trace, taped = tried("bash", offers=exactly([lesson]))
    assert "exclamation mark" in taped.sent[0]
    assert had(trace.steps) == taped.sent


def test_what_a_template_and_an_output_make_a_key_of_is_masked_before_it_is_sent(
    tmp_path: Path,
) -> None:
    scaffold = agent(observation_md="API_KEY={{ output.text }}")
    taped = Taped([run("echo 9f8a7b6c5d4e3f2a1b0c"), run("submit")])
    trace = attempt(scaffold, TASK, Toy(), choose(), taped, Call(run="r", attempt="a", step=0))
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add([experience(trace)])
    kept = memory.get("a")
    assert kept is not None
    assert "API_KEY=9f8a" not in taped.sent[1]
    assert had(kept.trace.steps) == taped.sent


def test_a_system_message_and_the_schemas_of_tools_are_kept_once_for_many_attempts(
    tmp_path: Path,
) -> None:
    trace, _ = tried("native")
    memory = ExperienceStore(tmp_path, "hashed:64")
    for n in range(5):
        memory.add([experience(trace).model_copy(update={"id": f"a{n}", "run": f"r{n}"})])
    assert memory.stats()["blobs"]["count"] == 2
    lines = [p.read_text() for p in (tmp_path / "memory" / "toy" / "experiences").glob("*.jsonl")]
    assert not any(
        json.dumps(Recorded(trace.steps).messages[0]["content"])[1:60] in line for line in lines
    )
    (tmp_path / "memory" / "toy" / "blobs").rename(tmp_path / "away")
    whole = memory.get("a1")
    assert whole is not None
    assert Recorded(whole.trace.steps)[0].messages[0]["content"].startswith("[missing: a text of")


def test_where_a_step_is_gone_nothing_is_guessed() -> None:
    trace, _ = tried("bash")
    assert set(had([*trace.steps[:2], *trace.steps[3:]])) == {0, 1}
    broken = trace.steps[1].model_copy(
        update={"sent": Sent(base=0, keep=2, rest=({"@": [7, "reply"]},))}
    )
    assert set(had([trace.steps[0], broken, *trace.steps[2:]])) == {0}
    assert had([s.model_copy(update={"sent": None}) for s in trace.steps]) == {}


TEXT = st.text(max_size=60) | st.sampled_from([LONG, "x" * 41, "\ud800broken" * 9])
VALUE = st.recursive(
    TEXT
    | st.integers()
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "@", "b"]), inner, max_size=3)
    ),
    max_leaves=6,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": TEXT | VALUE},
    optional={"tool_calls": st.lists(VALUE, max_size=2), "tool_call_id": TEXT},
)


@given(st.data())
@pytest.mark.slow
def test_any_requests_of_any_agent_are_had_back(data: Any) -> None:
    """Several conversations, edited and shortened ones, messages that look like references, any
    order of keys."""
    requests, steps, sent = Requests(), list[Step](), dict[int, str]()
    known: list[list[Any]] = [[]]
    for n in range(data.draw(st.integers(1, 6))):
        past = data.draw(st.sampled_from(known))
        kept = past[: data.draw(st.integers(0, len(past)))]
        texts = [s.reply for s in steps] + [s.observation for s in steps]
        repeated = [{"role": "user", "content": t} for t in texts]
        more = data.draw(
            st.lists(MESSAGE | st.sampled_from(repeated) if repeated else MESSAGE, max_size=3)
        )
        now = copy.deepcopy([*kept, *more])
        params = data.draw(
            st.dictionaries(
                st.sampled_from(["temperature", "tools", "seed", "@"]), VALUE, max_size=3
            )
        )
        seen = now[-1]["content"] if now and isinstance(now[-1]["content"], str) else ""
        step = Step(
            step=n, observation=seen, reply=data.draw(TEXT), sent=requests.add(n, now, params, seen)
        )
        requests.know(step)
        known.append(now)
        steps.append(Step.model_validate(json.loads(encode(step))))
        sent[n] = spelled(now, params)
    assert had(steps) == sent

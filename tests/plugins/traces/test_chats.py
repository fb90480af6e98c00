"""What a record of a chat says besides its words: who answered, what was called, and what it was
graded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recreate.plugins.traces.chats import (
    Codex,
    Promptfoo,
    ResponsesLog,
    ShareGpt,
    Verifiers,
    item_messages,
)
from recreate.plugins.traces.format import Bad, Foreign, Unreadable
from recreate.plugins.traces.messages import (
    ChatMessage,
    conversation,
    plain,
    read_message,
    read_messages,
    spelled,
    steps_of,
    tool_call,
)

ASKED = {"role": "user", "content": "Is 9 prime?"}
SAID = {"role": "assistant", "content": "no"}


def read(form: Any, *values: Any) -> list[Any]:
    assert all(form.reads(value) for value in values)
    return list(form.read(values, "", "a"))


def read_one(form: Any, *values: Any) -> Foreign:
    (found,) = read(form, *values)
    assert isinstance(found, Foreign)
    return found


def steps(found: Foreign) -> list[tuple[str, str, str]]:
    return [(s.reply, s.action, s.output) for s in found.steps]


# the Responses API


@pytest.mark.parametrize(
    ("more", "model"),
    [({"model": "own"}, "own"), ({"response": {"model": "theirs"}}, "theirs"), ({}, "")],
)
def test_a_response_names_its_model_and_its_instructions(more: dict[str, Any], model: str) -> None:
    found = read_one(
        ResponsesLog(), {"input": [ASKED, SAID], "instructions": "Be short.", "score": 1, **more}
    )
    assert (found.model, found.system, found.prompt) == (model, "Be short.", "Is 9 prime?")
    assert found.rest == {"instructions": "Be short.", "score": 1, **_kept(more)}
    assert found.grade is not None
    assert found.grade.passed


def _kept(more: dict[str, Any]) -> dict[str, Any]:
    model = more.get("model") or more.get("response", {}).get("model")
    return {"model": model} if model else {}


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"input": "x"},
        {"input": [], "output": []},
        {"input": [ASKED, {"text": "neither a role nor a type"}]},
        {"input": [ASKED], "output": ["a text"]},
    ],
)
def test_what_holds_no_items_is_no_response(value: Any) -> None:
    assert not ResponsesLog().reads(value)


def test_what_a_model_thought_said_and_called_in_one_go_is_one_message() -> None:
    found = item_messages(
        [
            ASKED,
            {"type": "item_reference", "id": "r"},
            {"type": "mcp_list_tools", "tools": []},
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "Hm."}, {"type": "summary_text"}],
                "content": [{"type": "reasoning_text", "text": "Divide."}],
            },
            {"type": "message", "role": "assistant", "content": "I divide."},
            {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "custom_tool_call", "id": "d", "name": "g", "input": "9 / 3"},
            {"type": "function_call_output", "call_id": "c", "output": "3"},
            {"type": "message", "role": "assistant", "content": "no"},
        ]
    )
    assert [m["role"] for m in found] == ["user", "assistant", "tool", "assistant"]
    assert [part["text"] for part in found[1]["content"]] == ["Hm.", "Divide.", "I divide."]
    assert found[1]["tool_calls"] == [
        {"id": "c", "name": "f", "arguments": "{}"},
        {"id": "d", "name": "g", "arguments": "9 / 3"},
    ]
    assert found[2] == {"role": "tool", "tool_call_id": "c", "content": "3"}
    assert found[3] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "no"}],
        "tool_calls": [],
    }


@pytest.mark.parametrize(
    ("item", "call", "answer"),
    [
        (
            {"type": "file_search_call", "id": "s", "queries": ["9"], "results": [{"text": "no"}]},
            {"id": "s", "name": "file_search", "arguments": {"queries": ["9"]}},
            [{"text": "no"}],
        ),
        (
            {"type": "code_interpreter_call", "id": "s", "code": "9 % 3", "outputs": [{"n": 0}]},
            {"id": "s", "name": "code_interpreter", "arguments": {"code": "9 % 3"}},
            '[{"n": 0}]',
        ),
        (
            {"type": "mcp_call", "id": "s", "name": "ask", "arguments": None, "output": {"a": 1}},
            {"id": "s", "name": "ask", "arguments": {}},
            '{"a": 1}',
        ),
        (
            {"type": "computer_call", "call_id": "s", "action": {"type": "click"}},
            {"id": "s", "name": "computer", "arguments": {"type": "click"}},
            None,
        ),
    ],
)
def test_a_call_that_holds_its_answer_is_answered(
    item: dict[str, Any], call: dict[str, Any], answer: Any
) -> None:
    said, *answers = item_messages([item])
    assert said["tool_calls"] == [call]
    assert answers == (
        [] if answer is None else [{"role": "tool", "tool_call_id": "s", "content": answer}]
    )


def test_a_session_of_codex_names_its_model_and_its_instructions() -> None:
    found = read_one(
        Codex(),
        {"type": "session_meta", "payload": {"id": "x", "instructions": "Be short."}},
        {"type": "turn_context", "payload": {"model": "m"}},
        {
            "type": "event_msg",
            "payload": {"type": "message", "role": "user", "content": "an event"},
        },
        {"type": "response_item", "payload": ASKED},
        {"type": "response_item", "payload": SAID},
    )
    assert (found.model, found.system, found.prompt) == ("m", "Be short.", "Is 9 prime?")
    assert steps(found) == [("no", "", "")]
    assert not Codex().reads({"type": "session_meta", "payload": "x"})
    assert not Codex().reads({"type": "another", "payload": {}})


# ShareGPT


def share(*turns: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"conversations": [{"from": who, "value": said} for who, said in turns], **more}


@pytest.mark.parametrize(
    ("speaker", "said", "action"),
    [
        ("function_call", '{"name": "f", "arguments": {"n": 9}}', 'f {"n": 9}'),
        ("tool_call", '[{"name": "f"}, {"name": "g", "arguments": {}}]', "f {}\ng {}"),
        ("Tool_Call", "factor 9", "Tool_Call factor 9"),
        ("function_call", {"n": 9}, 'function_call {"n": 9}'),
    ],
)
def test_a_call_of_sharegpt_is_an_action(speaker: str, said: Any, action: str) -> None:
    rows = share(
        ("System", "Be short."),
        ("human", "Is 9 prime?"),
        (speaker, said),
        ("tool_response", "3"),
        ("gpt", "no"),
        model="m",
    )
    found = read_one(ShareGpt(), rows)
    assert (found.system, found.prompt, found.model) == ("Be short.", "Is 9 prime?", "m")
    assert steps(found) == [("", action, "3"), ("no", "", "")]


@pytest.mark.parametrize(
    "value", [{"conversations": []}, {"conversations": [{"from": "human"}]}, {}, None]
)
def test_what_holds_no_turns_is_no_sharegpt(value: Any) -> None:
    assert not ShareGpt().reads(value)


# verifiers


@pytest.mark.parametrize(
    ("named", "task"),
    [
        ({"task": "primes", "example_id": 3}, "primes-3"),
        ({"task": "primes", "id": 4, "example_id": 3}, "primes-3"),
        ({"task": "primes", "id": 0}, "primes-0"),
        ({"task": "default", "example_id": 3}, ""),
        ({"task": "primes"}, ""),
        ({"task": "", "id": ""}, ""),
        ({}, ""),
    ],
)
def test_a_row_of_verifiers_is_named_by_its_task_and_its_number(
    named: dict[str, Any], task: str
) -> None:
    row = {"prompt": "Is 9 prime?", "completion": [SAID], "answer": "GOLD", "info": {"x": 1}}
    found = read_one(Verifiers(), {**row, "reward": 0.5, **named})
    assert (found.task, found.prompt, found.answer) == (task, "Is 9 prime?", "no")
    assert not {"answer", "info"} & found.rest.keys()


@pytest.mark.parametrize(
    "value",
    [
        {"prompt": "x"},
        {"prompt": [], "completion": "y"},
        {"prompt": ["x"], "completion": "y"},
        {"prompt": "x", "completion": 3},
    ],
)
def test_what_holds_no_prompt_and_completion_is_no_row_of_verifiers(value: Any) -> None:
    assert not Verifiers().reads(value)


# promptfoo


def result(said: Any, **more: Any) -> dict[str, Any]:
    return {"prompt": {"raw": "Is 9 prime?"}, "response": {"output": said}, "success": True, **more}


@pytest.mark.parametrize(
    ("score", "success", "graded"),
    [(1, True, 1.0), (0.4, False, 0.4), (1, False, 0.0), (0.8, True, 1.0), (None, False, 0.0)],
)
def test_a_result_of_promptfoo_is_graded_as_it_says(
    score: float | None, success: bool, graded: float
) -> None:
    row = result("no", score=score, success=success)
    found = read_one(Promptfoo(), {"results": [row]})
    assert found.grade is not None
    assert (found.grade.score, found.grade.passed) == (graded, success)


def test_a_result_of_promptfoo_says_its_task_its_model_and_what_was_called() -> None:
    chat = json.dumps([{"role": "system", "content": "Be short."}, ASKED])
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    rows = [
        result("no", testIdx=7, provider={"id": "m"}, prompt={"raw": chat}),
        result([call], testCase={"description": "nine"}, testIdx=7),
        result([call, "and words"]),
        result([]),
        result({"prime": False}, prompt={"raw": '{"n": 9}'}),
    ]
    found = [f for f in read(Promptfoo(), {"results": {"results": rows}}) if isinstance(f, Foreign)]
    assert [(f.task, f.model, f.system) for f in found[:2]] == [
        ("7", "m", "Be short."),
        ("nine", "", ""),
    ]
    assert [f.steps[0].action for f in found] == ["", "f {}", "", "", ""]
    assert [f.answer for f in found] == [
        "no",
        "",
        json.dumps([call, "and words"]),
        "[]",
        '{"prime": false}',
    ]
    assert found[4].prompt == '{"n": 9}'


def test_what_promptfoo_could_not_ask_is_named_by_its_number_and_reason() -> None:
    rows = [
        result("no", error="a warning"),
        result(None, error="away"),
        result(None, response={"error": "busy"}),
        {"prompt": {"raw": "x"}, "success": False},
    ]
    found = read(Promptfoo(), {"results": rows})
    assert [f.place if isinstance(f, Bad) else f.answer for f in found] == [
        "no",
        "chat 2",
        "chat 3",
        "chat 4",
    ]
    assert [f.reason for f in found if isinstance(f, Bad)] == [
        "away",
        "busy",
        "no message of a model is in it",
    ]
    assert not Promptfoo().reads({"results": []})
    assert not Promptfoo().reads({"results": [*rows, {"prompt": {}}]})


# messages


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("a", "a"),
        (3, "3"),
        ({"type": "text", "text": "a"}, "a"),
        (["a", {"text": "b"}, {"content": "c"}], "a\nb\nc"),
        ([{"type": "thinking", "thinking": "d"}, {"reasoning": "e"}], "d\ne"),
        (
            [{"type": "image_url", "image_url": {}}, {"x": 1}, 4],
            "[image_url]\n[something]\n[something]",
        ),
    ],
)
def test_a_content_of_any_kind_is_a_text(content: Any, text: str) -> None:
    assert plain(content) == text


@pytest.mark.parametrize(
    ("role", "known"),
    [
        ("developer", "system"),
        ("function", "tool"),
        ("human", "user"),
        ("ai", "assistant"),
        ("model", "assistant"),
        ("user", "user"),
    ],
)
def test_a_role_has_one_name(role: str, known: str) -> None:
    assert read_message({"role": role, "content": "x"}).role == known


def test_what_a_message_holds_besides_its_words_is_kept() -> None:
    image = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]
    seen = read_message({"role": "user", "content": image, "name": "x", "tool_call_id": None})
    assert (seen.text, seen.rest) == ("a\n[image_url]", {"name": "x", "content": image})
    assert read_message({"role": "user", "content": [{"type": "text", "text": "a"}]}).rest == {}
    one = {"type": "text", "text": "a"}
    assert read_message({"role": "user", "content": one}).rest == {"content": one}
    for bad in ("x", {"content": "x"}, {"role": 3}):
        with pytest.raises(Unreadable, match="no role"):
            read_message(bad)


def test_a_call_of_before_tools_is_a_call() -> None:
    said = read_message(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    )
    assert [(c.id, c.name, c.arguments) for c in said.calls] == [("", "f", "{}")]
    assert said.rest == {}


@pytest.mark.parametrize(
    ("raw", "call"),
    [
        ({"id": "a", "function": {"name": "f", "arguments": '{"n": 9}'}}, ("a", "f", '{"n": 9}')),
        ({"call_id": "b", "name": "f", "args": {"n": 9}}, ("b", "f", '{"n": 9}')),
        ({"name": "f", "arguments": None, "input": {"n": "é"}}, ("", "f", '{"n": "é"}')),
        ({"function": "f", "arguments": ""}, ("", "f", "{}")),
        ({}, ("", "", "{}")),
        ("x", ("", "", "{}")),
    ],
)
def test_a_call_in_any_spelling_is_the_same(raw: Any, call: tuple[str, str, str]) -> None:
    found = tool_call(raw)
    assert (found.id, found.name, found.arguments) == call


@pytest.mark.parametrize(
    ("name", "arguments", "action"),
    [
        ("bash", '{"command": "ls"}', "ls"),
        ("Bash", '{"cmd": "ls", "timeout": 3}', "ls"),
        ("bash", '{"command": ["ls"]}', 'bash {"command": ["ls"]}'),
        ("bash", "ls", "bash ls"),
        ("read", '{"command": "ls"}', 'read {"command": "ls"}'),
    ],
)
def test_a_shells_call_is_its_command(name: str, arguments: str, action: str) -> None:
    assert spelled(tool_call({"name": name, "arguments": arguments})) == action


def result_of(id: str, said: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": said, **more}


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (result_of("u", "no"), ("u", "no", None)),
        (result_of("u", "no", is_error=True), ("u", "no", 1)),
        (result_of("u", [{"type": "text", "text": "a"}, "b"]), ("u", "a\nb", None)),
        (result_of("u", {"n": [9]}), ("u", '{"n": [9]}', None)),
        (result_of("u", [{"type": "text", "text": "a"}, {"n": 9}]),
         ("u", '{"type": "text", "text": "a"}\n{"n": 9}', None)),
        (
            {"toolResult": {"toolUseId": "u", "content": [{"json": 9}], "status": "error"}},
            ("u", '{"json": 9}', 1),
        ),
        (
            {"type": "tool-result", "toolCallId": "u", "output": "no", "isError": True},
            ("u", "no", 1),
        ),
        ({"type": "function_response", "name": "f", "response": {"n": 9}}, ("f", '{"n": 9}', None)),
        ({"type": "web_search_tool_result", "tool_use_id": "u"}, ("u", "", None)),
    ],
)  # fmt: skip
def test_a_result_among_the_parts_is_an_answer(
    part: Any, told: tuple[str, str, int | None]
) -> None:
    (found,) = read_messages({"role": "user", "content": [part]})
    assert (found.role, (found.answers, found.text, found.status)) == ("tool", told)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_use", "id": "u", "name": "f", "input": {"n": 9}},
        {"type": "server_tool_use", "id": "u", "name": "f", "input": {"n": 9}},
        {"type": "tool-call", "toolCallId": "u", "toolName": "f", "args": {"n": 9}},
        {"type": "function_call", "call_id": "u", "name": "f", "arguments": {"n": 9}},
        {"toolUse": {"toolUseId": "u", "name": "f", "input": {"n": 9}}},
    ],
)
def test_a_call_among_the_parts_is_a_call(part: Any) -> None:
    (found,) = read_messages({"role": "assistant", "content": [{"text": "I ask."}, part]})
    assert [(c.id, c.name, c.arguments) for c in found.calls] == [("u", "f", '{"n": 9}')]
    assert found.text == "I ask."


def test_results_stand_before_what_a_user_says_and_after_what_a_model_says() -> None:
    parts = [{"type": "text", "text": "Go on."}, result_of("u", "no")]
    assert [m.role for m in read_messages({"role": "user", "content": parts})] == ["tool", "user"]
    said = read_messages({"role": "assistant", "content": parts})
    assert [m.role for m in said] == ["assistant", "tool"]
    called = [{"type": "tool_use", "id": "u", "name": "f"}, result_of("u", "no")]
    said = read_messages({"role": "assistant", "content": called})
    assert [m.role for m in said] == ["assistant", "tool"]


def message(role: str, text: str = "", **more: Any) -> ChatMessage:
    return ChatMessage(role, text, **more)


def test_what_is_sent_again_is_there_once() -> None:
    asked, no, why = message("user", "9?"), message("assistant", "no"), message("user", "Why?")
    rules, three = message("system", "Be short."), message("assistant", "3")
    sent_again = message("user", " 9?\n")
    both = conversation([([rules, asked], no), ([rules, sent_again, no, why], three)])
    assert both == [rules, asked, no, why, three]
    other = conversation([([asked], no), ([message("user", "10?")], None)])
    assert other == [asked, no, message("user", "10?")]
    shorter = conversation([([asked], no), ([asked], no)])
    assert shorter == [asked, no, asked, no]


def test_messages_with_other_calls_are_others() -> None:
    call, same, other = (
        tool_call({"name": "f", "arguments": arguments})
        for arguments in ('{"n": 9}', '{"n":9}', '{"n": 8}')
    )
    assert message("assistant", calls=(call,)).same(message("assistant", calls=(same,)))
    assert not message("assistant", calls=(call,)).same(message("assistant", calls=(other,)))
    assert not message("assistant", "x").same(message("user", "x"))


def test_each_reply_is_a_step_with_what_it_saw_and_what_came_of_it() -> None:
    calls = tuple(tool_call({"id": id, "name": id}) for id in "ab")
    system, prompt, (first, second) = steps_of(
        [
            message("system", "Be short."),
            message("system", "Be right."),
            message("user", "9?", rest={"name": "x"}),
            message("user", "Now."),
            message("assistant", "I ask.", calls=calls, seconds=1.0),
            message("tool", "B", answers="b", seconds=2.0, status=1),
            message("user", "Go on.", rest={"name": "y"}),
            message("tool", "A", answers="a", seconds=4.0, status=0),
            message("assistant", "no", malformed=True, status=0, output="out", action="done"),
            message("tool", "C", answers="c"),
        ]
    )
    assert (system, prompt) == ("Be short.\n\nBe right.", "9?\nNow.")
    assert (first.step, first.observation, first.action) == (0, "9?\nNow.", "a {}\nb {}")
    assert (first.output, first.status, first.seconds, first.kind) == ("A\nB", 1, 7.0, "action")
    assert first.foreign["asked"] == [{"name": "x"}]
    assert first.foreign["answers"] == [{"name": "y"}]
    assert first.foreign["answered"] == [{"id": "a", "text": "A"}, {"id": "b", "text": "B"}]
    assert [c["id"] for c in first.foreign["tool_calls"]] == ["a", "b"]
    assert (second.step, second.observation, second.action) == (1, "B\nGo on.\nA", "done")
    assert (second.output, second.status, second.kind) == ("out", 0, "malformed")
    assert second.foreign == {"answered": [{"id": "c"}]}
    with pytest.raises(Unreadable, match="no message of a model"):
        steps_of([message("user", "9?")])


def test_a_step_without_calls_has_no_status() -> None:
    _, _, (only,) = steps_of([message("user", "9?"), message("assistant", "no")])
    assert (only.status, only.output, only.action, only.foreign) == (None, "", "", {})

"""Records as people really have them are read as what they are, with all that the agent did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recreate.api.types import Experience
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.importer import ImportConfig, ImportReport, import_traces
from recreate.plugins.traces.ungraded import Ungraded

ASKED = {"role": "user", "content": "Is 9 prime?"}


def take_in(
    folder: Path, *rows: Any, name: str = "a.jsonl"
) -> tuple[ImportReport, list[Experience]]:
    path = folder / name
    text = (
        json.dumps(rows[0])
        if name.endswith(".json")
        else "".join(f"{json.dumps(r)}\n" for r in rows)
    )
    path.write_text(text)
    memory = ExperienceStore(folder, "hashed")
    report = import_traces([path], memory, ImportConfig("d"))
    return report, [*memory.experiences(), *Ungraded(memory).waiting()]


def steps(e: Experience) -> list[tuple[str, str, str]]:
    return [(s.reply, s.action, s.output) for s in e.trace.steps]


CALLED = [("", 'check {"n":9}', "no"), ("no", "", "")]
RESPONSES = [
    ASKED,
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "check", "arguments": '{"n":9}'},
    {"type": "function_call_output", "call_id": "c1", "output": "no"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "no"}]},
]


def blocks(*each: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": list(each)}


ANTHROPIC = {
    "system": "s",
    "messages": [
        ASKED,
        blocks({"type": "tool_use", "id": "u", "name": "check", "input": '{"n":9}'}),
        blocks(
            {
                "type": "tool_result",
                "tool_use_id": "u",
                "content": [{"type": "text", "text": "no"}],
            },
            role="user",
        ),
        blocks({"type": "text", "text": "no"}),
    ],
}
BEDROCK = [
    ASKED,
    blocks({"toolUse": {"toolUseId": "u", "name": "check", "input": '{"n":9}'}}),
    blocks({"toolResult": {"toolUseId": "u", "content": [{"text": "no"}]}}, role="user"),
    blocks({"text": "no"}),
]
VERCEL = [
    ASKED,
    blocks({"type": "tool-call", "toolCallId": "u", "toolName": "check", "args": '{"n":9}'}),
    blocks(
        {"type": "tool-result", "toolCallId": "u", "toolName": "check", "result": "no"}, role="tool"
    ),
    blocks({"type": "text", "text": "no"}),
]
GEMINI = [
    ASKED,
    blocks({"functionCall": {"name": "check", "args": '{"n":9}'}}),
    blocks({"functionResponse": {"name": "check", "response": "no"}}, role="user"),
    blocks({"text": "no"}),
]
CODEX = [
    {"type": "session_meta", "payload": {"id": "x", "instructions": "s"}},
    {"type": "event_msg", "payload": {"type": "token_count"}},
    *({"type": "response_item", "payload": item} for item in RESPONSES),
]
SHAREGPT = {
    "conversations": [
        {"from": "human", "value": "Is 9 prime?"},
        {"from": "function_call", "value": '{"name": "check", "arguments": "{\\"n\\":9}"}'},
        {"from": "observation", "value": "no"},
        {"from": "gpt", "value": "no"},
    ],
    "score": 1,
}


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        ("responses", [{"input": RESPONSES, "score": 1}]),
        ("responses", [{"input": "Is 9 prime?", "output": RESPONSES[1:], "score": 1}]),
        (
            "responses",
            [{"input": RESPONSES[:1], "response": {"output": RESPONSES[1:]}, "score": 1}],
        ),
        ("sharegpt", [SHAREGPT]),
        ("openai", [{**ANTHROPIC, "score": 1}]),
        ("openai", [{"messages": BEDROCK, "score": 1}]),
        ("openai", [{"messages": VERCEL, "score": 1}]),
        ("openai", [{"messages": GEMINI, "score": 1}]),
        (
            "verifiers",
            [{"prompt": [ASKED], "completion": ANTHROPIC["messages"][1:], "reward": 1.0}],
        ),
        ("codex", CODEX),
    ],
)
def test_one_conversation_is_the_same_in_whatever_words_it_is_recorded(
    tmp_path: Path, form: str, rows: list[Any]
) -> None:
    report, (found,) = take_in(tmp_path, *rows)
    assert (report.formats, report.bad) == ({form: 1}, [])
    assert found.prompt == "Is 9 prime?"
    assert steps(found) == CALLED
    assert found.trace.answer == "no"
    assert found.grade.passed or form == "codex"


def test_thinking_is_read_and_results_stand_with_their_calls(tmp_path: Path) -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": {"x": 1}}},
    ]
    parallel = [
        ASKED,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "b", "content": "B"},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "A"}]},
        {"role": "assistant", "content": "done"},
    ]
    two = [
        ASKED,
        blocks(
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "id": "u1", "name": "f", "input": {}},
            {"type": "tool_use", "id": "u2", "name": "g", "input": {}},
        ),
        blocks(
            {"type": "tool_result", "tool_use_id": "u2", "content": "B", "is_error": True},
            {"type": "tool_result", "tool_use_id": "u1", "content": "A"},
            {"type": "text", "text": "Go on."},
            role="user",
        ),
        blocks({"type": "text", "text": "done"}),
    ]
    _, found = take_in(tmp_path, {"messages": parallel, "score": 1}, {"messages": two, "score": 1})
    by_reply = {e.trace.steps[0].reply: e for e in found}
    assert steps(by_reply[""])[0][1:] == ('f {}\ng {"x": 1}', "A\nB")
    assert steps(by_reply["hm"])[0][1:] == ("f {}\ng {}", "A\nB")
    assert by_reply["hm"].trace.steps[0].status == 1
    assert "Go on." in by_reply["hm"].trace.steps[1].observation


@pytest.mark.parametrize(
    "row",
    [
        {
            "messages": [
                ASKED,
                blocks({"type": "tool_request", "name": "f"}),
                {"role": "assistant", "content": "x"},
            ]
        },
        {"messages": [ASKED, blocks({"type": "functionThing"})]},
        {"input": [ASKED, {"type": "new_thing"}, {"role": "assistant", "content": "x"}]},
        {"conversations": [{"from": "human", "value": "x"}, {"from": "oracle", "value": "y"}]},
    ],
)
def test_what_an_agent_did_in_unknown_words_is_refused_and_never_graded(
    tmp_path: Path, row: Any
) -> None:
    report, found = take_in(tmp_path, {**row, "score": 1})
    assert found == []
    assert "is not read" in report.bad[0][2] or "who is 'oracle'" in report.bad[0][2]


def test_calls_of_any_kind_of_the_responses_api_are_read(tmp_path: Path) -> None:
    items = [
        ASKED,
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look it up."}]},
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "9"}},
        {"type": "local_shell_call", "call_id": "s", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "call_id": "s", "output": "a.txt"},
        {"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "output": "yes"},
        {"type": "message", "role": "assistant", "content": "no"},
    ]
    _, (found,) = take_in(tmp_path, {"input": items, "passed": True})
    (first, second, _) = steps(found)
    assert first == (
        "Look it up.",
        'web_search {"query": "9"}\nlocal_shell {"command": ["ls"]}',
        "a.txt",
    )
    assert second == ("", "ask {}", "yes")


LANGFUSE = {
    "id": "tr1",
    "timestamp": "2026-01-01T00:00:00Z",
    "input": {"messages": [ASKED]},
    "output": {"role": "assistant", "content": "no"},
    "scores": [{"name": "tone", "value": 0.2}, {"name": "correctness", "value": 1}],
    "observations": [
        {
            "id": "o2",
            "type": "GENERATION",
            "startTime": "2026-01-01T00:00:02Z",
            "model": "gpt-x",
            "input": [
                ASKED,
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {"id": "c", "function": {"name": "check", "arguments": '{"n":9}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "no"},
            ],
            "output": {"role": "assistant", "content": "no"},
            "usageDetails": {"input": 5, "output": 1},
        },
        {
            "id": "o1",
            "type": "GENERATION",
            "startTime": "2026-01-01T00:00:01Z",
            "model": "gpt-x",
            "input": [ASKED],
            "output": {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c", "function": {"name": "check", "arguments": '{"n":9}'}}],
            },
        },
    ],
}


def test_a_trace_of_langfuse_is_read_with_its_scores(tmp_path: Path) -> None:
    report, (found,) = take_in(tmp_path, [LANGFUSE], name="a.json")
    assert report.formats == {"langfuse": 1}
    assert steps(found) == CALLED
    assert (found.grade.score, found.trace.model) == (1.0, "gpt-x")
    assert (found.trace.usage.calls, found.trace.usage.tokens_in) == (2, 5)
    assert (found.prompt, found.trace.answer) == ("Is 9 prime?", "no")


@pytest.mark.parametrize("nested", [True, False])
def test_each_result_of_promptfoo_is_one(tmp_path: Path, nested: bool) -> None:
    def result(said: Any, score: float, success: bool, **more: Any) -> dict[str, Any]:
        return {
            "prompt": {"raw": "Is 9 prime?"},
            "response": {"output": said},
            "score": score,
            "success": success,
            **more,
        }

    results = [
        result("no", 1, True, testCase={"description": "nine"}, gradingResult={"reason": "right"}),
        result("yes", 0.4, False),
        result("perhaps", 0.8, True),
        {**result("x", 0, False), "response": {}, "error": "the provider was away"},
    ]
    report, found = take_in(
        tmp_path,
        {"version": 3, "results": {"results": results} if nested else results},
        name="a.json",
    )
    assert {e.trace.answer: e.grade.score for e in found} == {"no": 1.0, "yes": 0.4, "perhaps": 1.0}
    assert [why for *_, why in report.bad] == ["the provider was away"]
    assert {e.grade.evidence for e in found} >= {"right"}
    assert "d:imported:nine" in {e.task for e in found}


def test_what_a_row_of_verifiers_says_of_the_right_answer_is_not_kept(tmp_path: Path) -> None:
    row = {
        "example_id": 3,
        "task": "primes",
        "prompt": [ASKED],
        "completion": "no",
        "answer": "GOLD",
        "info": {"x": "GOLD"},
        "reward": 0.5,
    }
    _, (found,) = take_in(tmp_path, row)
    assert (found.task, found.grade.score) == ("d:imported:primes-3", 0.5)
    assert "GOLD" not in found.model_dump_json()


def claude(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    about = {k: more.pop(k) for k in ("id", "model", "usage") if k in more}
    return {
        "type": kind,
        "sessionId": "s",
        "message": {"role": kind, "content": content, **about},
        **more,
    }


def test_a_session_of_claude_code_is_read_and_each_agent_that_it_sent_out(tmp_path: Path) -> None:
    used = {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1}
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "factor 9"}}
    rows = [
        {"type": "summary", "summary": "x", "leafUuid": "u2"},
        {"type": "file-history-snapshot", "snapshot": {}},
        claude("user", "a caveat", isMeta=True),
        claude("user", "Is 9 prime?"),
        claude(
            "assistant",
            [{"type": "thinking", "thinking": "hm"}],
            id="m1",
            model="claude-x",
            usage=used,
        ),
        claude("user", "Look.", isSidechain=True, agentId="a"),
        claude("assistant", [call], id="m1", model="claude-x", usage=used),
        claude(
            "assistant",
            [{"type": "text", "text": "looked"}],
            id="m9",
            isSidechain=True,
            agentId="a",
        ),
        claude("user", [{"type": "tool_result", "tool_use_id": "t", "content": "9: 3 3"}]),
        claude(
            "assistant", [{"type": "text", "text": "no"}], id="m2", model="claude-x", usage=used
        ),
    ]
    report, found = take_in(tmp_path, *rows)
    assert (report.formats, report.bad) == ({"claude-code": 2}, [])
    by_asked = {e.prompt: e for e in found}
    assert steps(by_asked["Is 9 prime?"]) == [("hm", "factor 9", "9: 3 3"), ("no", "", "")]
    assert steps(by_asked["Look."]) == [("looked", "", "")]
    used_in_all = by_asked["Is 9 prime?"].trace.usage
    assert (used_in_all.calls, used_in_all.tokens_in, used_in_all.tokens_out) == (2, 14, 2)


def spans(*each: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made = [
        {
            "traceId": trace,
            "spanId": f"{n}",
            "name": "x",
            "startTimeUnixNano": str(n + 1),
            "endTimeUnixNano": str(n + 2),
            "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in about.items()],
        }
        for n, (trace, about) in enumerate(each)
    ]
    return {"resourceSpans": [{"scopeSpans": [{"spans": made}]}]}


CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.input.messages": json.dumps(
        [{"role": "user", "parts": [{"type": "text", "content": "Is 9 prime?"}]}]
    ),
    "gen_ai.output.messages": json.dumps(
        [{"role": "assistant", "parts": [{"type": "text", "content": "no"}]}]
    ),
}
OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "m",
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "Is 9 prime?",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "check",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"n":9}',
    "llm.token_count.prompt": "5",
}
TOOL = {"openinference.span.kind": "TOOL", "tool.name": "check", "output.value": "no"}


def test_what_an_exporter_sends_besides_is_passed_over_without_a_word(tmp_path: Path) -> None:
    rows = [
        spans(("web", {"http.method": "GET"})),
        spans(("web", {"http.method": "GET"}), ("b", CHAT)),
        {"resourceMetrics": []},
        {"resourceSpans": []},
    ]
    report, (found,) = take_in(tmp_path, *rows)
    assert (report.formats, report.bad) == ({"otel": 1}, [])
    assert steps(found) == [("no", "", "")]


def test_spans_of_openinference_are_read(tmp_path: Path) -> None:
    _, (found,) = take_in(tmp_path, spans(("a", OPENINFERENCE), ("a", TOOL)))
    assert steps(found) == [("", 'check {"n":9}', "no")]
    assert (found.prompt, found.trace.model, found.trace.usage.tokens_in) == ("Is 9 prime?", "m", 5)


def test_spans_whose_keys_have_underscores_are_read(tmp_path: Path) -> None:
    about = [{"key": k, "value": {"string_value": v}} for k, v in CHAT.items()]
    span = {"trace_id": "x", "span_id": "y", "name": "chat", "attributes": about}
    _, (found,) = take_in(tmp_path, {"resource_spans": [{"scope_spans": [{"spans": [span]}]}]})
    assert steps(found) == [("no", "", "")]


@pytest.mark.parametrize(
    ("row", "graded"),
    [
        ({"score": "0.5"}, False),
        ({"reward": [0.0, 1.0]}, False),
        ({"passed": "true"}, True),
        ({"score": 85}, False),
        ({"reward": -1.0}, False),
        ({"score": {"value": 1}}, False),
        ({"score": float("nan")}, False),
        ({"reward": 1}, True),
    ],
)
def test_a_score_that_is_none_waits_for_a_grade(tmp_path: Path, row: Any, graded: bool) -> None:
    _, (found,) = take_in(
        tmp_path, {"messages": [ASKED, {"role": "assistant", "content": "no"}], **row}
    )
    assert found.grade.graded is graded


def test_odd_files_are_read(tmp_path: Path) -> None:
    chat = {"messages": [ASKED, {"role": "assistant", "content": "no"}], "score": 1}
    (tmp_path / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(chat).encode() + b"\r\n")
    log = {
        "messages": [{"role": "user", "content": "Is 7 prime?"}],
        "response": {"choices": [{"message": {"role": "assistant", "content": "yes"}}]},
    }
    (tmp_path / "log.jsonl").write_text(json.dumps(log) + "\n")
    odd = {
        "messages": [
            {**ASKED, "content": "Odd \ud83d?"},
            {"role": "assistant", "content": "\udc00"},
        ]
    }
    (tmp_path / "odd.jsonl").write_text(json.dumps({**odd, "score": 1}) + "\n")
    memory = ExperienceStore(tmp_path, "hashed")
    paths = [tmp_path / f"{name}.jsonl" for name in ("bom", "log", "odd")]
    report = import_traces(paths, memory, ImportConfig("d"))
    assert (report.added, report.waiting, report.bad) == (2, 1, [])
    (waiting,) = Ungraded(memory).waiting()
    assert waiting.trace.answer == "yes"


@pytest.mark.parametrize(
    "messages",
    [[{"role": "system", "content": "s"}, ASKED], [], None, "x", [{"content": "no role"}]],
)
def test_a_chat_without_a_reply_is_said(tmp_path: Path, messages: Any) -> None:
    report, found = take_in(tmp_path, {"messages": messages})
    assert (found, len(report.bad)) == ([], 1)

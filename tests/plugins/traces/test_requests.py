"""What a model was sent is had back from what was exported, and after memory was pruned."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate import build
from recreate.api.types import Call, Experience, Message, Reply
from recreate.cli import run as cli
from recreate.memory.store import ExperienceStore
from recreate.models.scripted import Scripted
from recreate.plugins.memory_tools.prune import prune
from recreate.plugins.traces.export import exported
from tests.agents.test_request import CASES, experience, had, spelled, tried
from tests.toy import Toy, write_script


@pytest.mark.parametrize("case", CASES)
def test_and_from_memory_after_prune_and_rebuild_and_from_what_was_exported_and_imported(
    case: str, tmp_path: Path
) -> None:
    trace, taped = tried(case)
    memory = ExperienceStore(tmp_path / "one", "hashed:64")
    memory.add(
        [experience(trace), experience(trace).model_copy(update={"id": "b", "run": "other"})]
    )
    prune(memory, runs=["other"], blobs=True)
    memory.rebuild()
    kept = memory.get("a")
    assert kept is not None
    assert had(kept.trace.steps) == taped.sent
    (line,) = exported(kept, "jsonl")
    other = ExperienceStore(tmp_path / "two", "hashed:64")
    other.add([Experience.model_validate(json.loads(json.dumps(line)))])
    again = other.get("a")
    assert again is not None
    assert had(again.trace.steps) == taped.sent


@pytest.mark.slow
def test_a_whole_run_gives_back_what_each_call_was_made_with(workspace: Path, capsys: Any) -> None:
    """With what the run adds to a call, from the run folder and from memory; and it is what --json
    and exports tell."""
    inner = Scripted(Path(write_script(workspace / "s.jsonl").removeprefix("scripted:")))
    sent: dict[str, str] = {}

    class Model:
        name, price, native_tools = "scripted:seen", inner.price, False

        def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
            if call.role == "agent":
                sent[f"{call.attempt}/{call.step}"] = spelled(copy.deepcopy(list(messages)), params)
            return inner.reply(messages, call, **params)

        def close(self) -> None: ...

    models: Any = {"model": Model(), "models__optimizer": inner}
    build(Toy(), **models, rounds=1, train=2, validation=5, jobs=1, out="runs/one")
    back: dict[str, str] = {}
    for e in ExperienceStore(workspace).experiences():
        back |= {f"{e.id}/{n}": request for n, request in had(e.trace.steps).items()}
    assert back == sent
    id = next(e.id for e in ExperienceStore(workspace).experiences(split="train"))
    capsys.readouterr()
    assert cli(["traces", "show", id, "--run", "one", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for step in told["steps"]:
        messages = [
            m for first, end in step["sent"]["messages"] for m in told["messages"][first:end]
        ]
        assert spelled(messages, step["sent"]["params"]) == sent[f"{id}/{step['step']}"]
    assert cli(["traces", "show", id, "--full"]) == 0
    shown = capsys.readouterr().out
    assert shown.index(told["messages"][0]["content"].strip()[:60]) < shown.index("--- user")
    assert cli(["traces", "export", "--format", "openai", "--out", "chats.jsonl"]) == 0
    lines = [json.loads(line)["messages"] for line in Path("chats.jsonl").read_text().splitlines()]
    last = told["steps"][-1]
    assert [*told["messages"], {"role": "assistant", "content": last["reply"]}] in lines


def test_a_fine_tuning_line_is_the_last_request_with_its_reply_and_tools() -> None:
    trace, taped = tried("native")
    (line,) = json.loads(json.dumps(exported(experience(trace), "openai")))
    messages, params = json.loads(taped.sent[2])
    assert line["messages"][:-1] == messages
    assert line["tools"] == params["tools"]
    assert line["messages"][-1]["tool_calls"][0]["function"]["name"] == "submit"


def test_spans_hold_what_was_sent(tmp_path: Path) -> None:
    trace, taped = tried("cut off")
    (line,) = exported(experience(trace), "otel")
    spans = line["resourceSpans"][0]["scopeSpans"][0]["spans"]
    chats = [
        {a["key"]: a["value"] for a in s["attributes"]}
        for s in spans
        if s["name"].startswith("chat")
    ]
    assert len(chats) == len(taped.sent)
    for chat, request in zip(chats, taped.sent.values(), strict=True):
        messages, params = json.loads(request)
        (system,) = json.loads(chat["gen_ai.system_instructions"]["stringValue"])
        assert system["content"] == messages[0]["content"]
        found = json.loads(chat["gen_ai.input.messages"]["stringValue"])
        texts = [
            p.get("content", p.get("response"))
            for m in found
            for p in m["parts"]
            if p["type"] != "tool_call"
        ]
        assert texts == [
            m["content"] for m in messages[1:] if m["content"] or "tool_calls" not in m
        ]
        assert json.loads(chat["gen_ai.tool.definitions"]["stringValue"]) == params["tools"]

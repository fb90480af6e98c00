"""An agent that is Python of the user's own is handed a desk; its texts are edited, its code
never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput, OutOfBudget
from recreate.api.types import Call, Message, Reply, Task, Trace
from recreate.models.scripted import Scripted
from recreate.plugins.foreign.foreign import attempt_foreign
from recreate.plugins.foreign.langgraph_agent import graph_agent
from recreate.sandboxes import choose
from tests.toy import LESSON, Toy, script

TASK = Task(
    id="toy:train:1",
    domain="toy",
    prompt="Write it.",
    split="train",
    group="g",
    facts={"word": "yes"},
)
TEXTS = {"prompts/system.md": "You write answers.\n"}


def go(scaffold: Scaffold, rows: Any) -> Trace:
    model = Scripted.of(rows) if isinstance(rows, list) else None

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        return model.reply(messages, call, **params) if model else rows(messages, call, **params)

    call = Call(run="r", attempt="a", step=0, task=TASK.id)
    return attempt_foreign(scaffold, TASK, Toy(), choose(), ask, call)


def ended(trace: Trace) -> tuple[str, str]:
    assert trace.steps[-1].kind == "ended"
    return trace.ending, trace.limit


def by_shell(desk: recreate.Desk) -> None:
    """Does what its model says, until it says nothing."""
    messages: list[Any] = [{"role": "system", "content": desk.texts["prompts/system.md"]}]
    messages.append({"role": "user", "content": desk.prompt})
    while True:
        reply = desk.ask(messages, temperature=0)
        command = reply.text.removeprefix("```bash\n").removesuffix("\n```")
        if command == "submit":
            return
        output = desk.sandbox.run(command)
        messages.append({"role": "assistant", "content": reply.text})
        messages.append({"role": "user", "content": f"{output.text}[{output.status}]"})


def test_its_questions_and_commands_are_the_trace() -> None:
    rows = [
        {"step": 0, "text": "echo yes > answer.txt; echo wrote; false"},
        {"step": 1, "text": "submit"},
    ]
    trace = go(recreate.wrap(by_shell, TEXTS), rows)
    assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")
    first, second, last = trace.steps
    assert (first.observation, first.action) == (
        "Write it.",
        "echo yes > answer.txt; echo wrote; false",
    )
    assert (first.output, first.status, second.observation) == ("wrote\n", 1, "wrote\n[1]")
    assert (last.status, last.output) == (0, "")


def test_what_it_returns_is_handed_in() -> None:
    trace = go(
        recreate.wrap(lambda desk: desk.ask([{"role": "user", "content": desk.prompt}]).text),
        [{"text": "yes"}],
    )
    assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")


def test_a_library_has_an_address_and_a_key_of_this_attempt() -> None:
    import openai  # a second of CPU

    def asks(desk: recreate.Desk) -> str | None:
        with openai.OpenAI(base_url=desk.base_url, api_key=desk.api_key) as client:
            made = client.chat.completions.create(
                model=desk.model, messages=[{"role": "user", "content": desk.prompt}]
            )
        return made.choices[0].message.content

    trace = go(recreate.wrap(asks), [{"text": "yes"}])
    assert (trace.answer, *ended(trace), trace.usage.calls) == ("yes", "submitted", "", 1)


def test_a_limit_ends_it_and_what_it_wrote_until_then_is_handed_in() -> None:
    trace = go(recreate.wrap(by_shell, TEXTS, steps=2), [{"text": "echo yes > answer.txt"}])
    assert (trace.answer, *ended(trace)) == ("yes", "limit", "steps")


def test_what_it_raises_is_told_with_its_place_and_what_is_there_is_graded() -> None:
    def breaks(desk: recreate.Desk) -> None:
        desk.sandbox.write("answer.txt", b"yes")
        raise ZeroDivisionError("no way")

    trace = go(recreate.wrap(breaks), [])
    assert (trace.answer, *ended(trace)) == ("yes", "error", "exit")
    assert trace.steps[-1].output.startswith("ZeroDivisionError: no way (")
    assert "in breaks)" in trace.steps[-1].output


def test_one_that_hands_in_no_text_is_told_so() -> None:
    wrong: Any = lambda desk: 3  # noqa: E731
    assert "gave int" in go(recreate.wrap(wrong), []).steps[-1].output


def test_one_that_catches_what_ends_the_run_does_not_go_on() -> None:
    asked = []

    def stubborn(desk: recreate.Desk) -> None:
        for _ in range(5):
            try:
                desk.ask([{"role": "user", "content": "hi"}])
            except Exception:
                continue

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        asked.append(call)
        raise OutOfBudget("spent")

    with pytest.raises(OutOfBudget):
        go(recreate.wrap(stubborn), ask)
    assert len(asked) == 1


def test_what_are_no_messages_is_told_in_its_last_step() -> None:
    def asks(desk: recreate.Desk) -> str:
        return desk.ask("a question").text  # type: ignore[arg-type]

    assert go(recreate.wrap(asks), []).steps[-1].output == "BadInput: no messages: 'a question'"


def test_what_cannot_be_an_agent_of_texts_is_refused_when_it_is_wrapped() -> None:
    class Wants:
        def __init__(self, more: int) -> None: ...

        def attempt(self, desk: recreate.Desk) -> None: ...

    with pytest.raises(BadInput, match=r"Wants is a class that cannot be made without arguments"):
        recreate.wrap(Wants)
    texts: Any = {"a.md": 3}
    with pytest.raises(BadInput, match=r"the text a\.md is 3"):
        recreate.wrap(by_shell, texts)
    with pytest.raises(BadInput, match=r"agent\.toml:\d+: limits\.usd"):
        recreate.wrap(by_shell, {"a.md": "x"}, usd=float("nan"))


@pytest.mark.parametrize("path", ["tool.py", "run.sh", "template.j2"])
def test_code_is_no_text_of_an_agent_in_this_process(path: str) -> None:
    with pytest.raises(BadInput, match="runs in no process of ours"):
        recreate.wrap(by_shell, {path: "print(1)\n"})


@pytest.mark.parametrize(
    ("agent", "said"),
    [(3, "is no agent"), (lambda: None, "cannot be called with a desk")],
    ids=["number", "no desk"],
)
def test_what_is_no_agent_is_refused(agent: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        recreate.wrap(agent)


def test_an_async_agent_is_refused_with_how_to_mend_it() -> None:
    async def later(desk: recreate.Desk) -> None: ...

    wrong: Any = later
    with pytest.raises(BadInput, match="async"):
        recreate.wrap(wrong)


def test_a_class_found_by_name_is_made_for_each_attempt() -> None:
    scaffold = recreate.wrap(Answers)
    assert scaffold.agent.action == f"python:{__name__}:Answers"
    assert go(scaffold, []).answer == "yes"


class Answers:
    def attempt(self, desk: recreate.Desk) -> str | None:
        return "yes"


@pytest.mark.slow
def test_a_build_improves_its_texts(workspace: Path) -> None:
    rows = script()
    edit = {
        "file": "prompts/system.md",
        "line": 0,
        "title": "",
        "text": LESSON,
        "reason": "It wants a mark.",
    }
    study = {"why": "w", "cause": "knowledge", "edits": [{**edit, "experience": "$1", "step": 0}]}
    rows[-1]["text"] = json.dumps(study)
    small: dict[str, Any] = {
        "train": 2,
        "validation": 5,
        "memory__embedder": "hashed",
        "optimizer": "reflect",
    }
    built = recreate.build(
        Toy(), model=Scripted.of(rows), scaffold=recreate.wrap(by_shell, TEXTS), **small
    )
    assert (built.verdict.before, built.verdict.after) == (0.0, 1.0)
    assert built.scaffold.files["prompts/system.md"].endswith(LESSON + "\n")


# --------------------------------------------------------------------------------------------------
# LangGraph


def shell_graph(model: Any, desk: recreate.Desk) -> Any:
    """LangGraph's own loop of a model and its tools."""
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    def bash(command: str) -> str:
        """Run a command."""
        return desk.sandbox.run(command).text

    bound = model.bind_tools([bash])

    def think(state: MessagesState) -> dict[str, Any]:
        system = {"role": "system", "content": desk.texts["prompts/system.md"]}
        return {"messages": [bound.invoke([system, *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([bash]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile()


CALLS = [
    {
        "step": 0,
        "text": "so:",
        "tool_calls": [{"name": "bash", "arguments": {"command": "echo yes | tee answer.txt"}}],
    },
    {"text": "That is all."},
]


def test_a_graph_works_with_its_tools_in_the_sandbox() -> None:
    trace = go(recreate.wrap(graph_agent(shell_graph), TEXTS), CALLS)
    assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")
    first, second, _ = trace.steps
    assert (first.action, first.output, first.status) == ("echo yes | tee answer.txt", "yes\n", 0)
    assert second.observation == "yes\n"
    assert first.foreign["tool_calls"][0]["name"] == "bash"


def test_a_graph_may_answer_by_its_last_message() -> None:
    assert (
        go(recreate.wrap(graph_agent(shell_graph, answers=True), TEXTS), [{"text": "yes"}]).answer
        == "yes"
    )


def test_a_compiled_graph_has_no_model_of_ours_and_is_refused() -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    graph = StateGraph(MessagesState)
    graph.add_node("nothing", lambda state: state)
    graph.add_edge(START, "nothing")
    compiled: Any = graph.compile()
    for give in (recreate.wrap, graph_agent):
        with pytest.raises(BadInput, match="model"):
            give(compiled)


def test_a_graph_that_asks_no_model_ends_as_one() -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    def silent(model: Any, desk: recreate.Desk) -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("nothing", lambda state: {"messages": []})
        graph.add_edge(START, "nothing")
        return graph.compile()

    assert ended(go(recreate.wrap(graph_agent(silent)), [])) == ("error", "no-calls")

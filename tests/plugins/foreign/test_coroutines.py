"""Agents whose parts are coroutines, or that end in another way than ours, run or are told why
not."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

import recreate
from recreate.plugins.foreign.in_process import wait_for
from recreate.plugins.foreign.langgraph_agent import GraphAgent, graph_agent, last_words
from tests.plugins.foreign.test_in_process import CALLS, TEXTS, ended, go


def graph_of(
    model: Any, desk: recreate.Desk, *, nodes: bool, tools: bool, checkpoints: Any = None
) -> Any:
    """LangGraph's loop with coroutines for its nodes, its tools or both."""
    from langchain_core.tools import StructuredTool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    def bash(command: str) -> str:
        """Run a command."""
        return desk.sandbox.run(command).text

    async def abash(command: str) -> str:
        """Run a command."""
        await asyncio.sleep(0)
        return bash(command)

    # as adapters of MCP make them: no function but a coroutine
    tool = (
        StructuredTool.from_function(coroutine=abash, name="bash", description="Run a command.")
        if tools
        else StructuredTool.from_function(bash)
    )
    bound = model.bind_tools([tool])

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke(state["messages"])]}

    async def athink(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", athink if nodes else think)
    graph.add_node("tools", ToolNode([tool]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile(checkpointer=checkpoints)


@pytest.mark.parametrize("nodes", [False, True])
@pytest.mark.parametrize("tools", [False, True])
def test_a_graph_of_coroutines_does_what_one_of_functions_does(nodes: bool, tools: bool) -> None:
    def make(model: Any, desk: recreate.Desk) -> Any:
        return graph_of(model, desk, nodes=nodes, tools=tools)

    trace = go(recreate.wrap(graph_agent(make), TEXTS), CALLS)
    assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")
    assert (trace.steps[0].action, trace.steps[0].output) == ("echo yes | tee answer.txt", "yes\n")


def test_make_and_state_may_be_coroutines() -> None:
    async def make(model: Any, desk: recreate.Desk) -> Any:
        await asyncio.sleep(0)
        return graph_of(model, desk, nodes=True, tools=True)

    async def state(desk: recreate.Desk) -> Any:
        return {"messages": [{"role": "user", "content": f"Now: {desk.prompt}"}]}

    trace = go(recreate.wrap(graph_agent(make, state=state), TEXTS), CALLS)
    assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")
    assert trace.steps[0].observation == "Now: Write it."


def test_a_graph_keeps_its_states_where_it_likes() -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    class Blocking(InMemorySaver):  # as a store for SQLite is
        async def aget_tuple(self, config: Any) -> Any:
            raise NotImplementedError

    for saver in (InMemorySaver, Blocking):

        def make(model: Any, desk: recreate.Desk, saver: Any = saver) -> Any:
            return graph_of(model, desk, nodes=False, tools=False, checkpoints=saver())

        trace = go(recreate.wrap(graph_agent(make), TEXTS), CALLS)
        assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")


class Ends:
    """A graph that ends with what it is made of."""

    def __init__(self, model: Any, with_: Any) -> None:
        self.model, self.with_ = model, with_

    def invoke(self, begin: Any, how: Any) -> Any:
        self.model.invoke(begin["messages"])
        return self.with_


class Said:
    content: ClassVar[list[dict[str, str]]] = [{"type": "text", "text": "y"}, {"text": "es"}]


class State:
    messages: ClassVar[list[str]] = ["no", "yes"]


@pytest.mark.parametrize(
    "with_",
    [
        {"messages": [{"role": "assistant", "content": "yes"}]},
        {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "yes"}]}]},
        {"messages": [Said()]},
        {"messages": [("ai", "yes")]},
        [{"role": "assistant", "content": "yes"}],
        State(),
    ],
)
def test_the_last_message_may_be_what_people_make_it(with_: Any) -> None:
    agent = graph_agent(lambda model, desk: Ends(model, with_), answers=True)
    trace = go(recreate.wrap(agent), [{"text": "hm"}])
    assert (trace.answer, *ended(trace)) == ("yes", "submitted", "")


@pytest.mark.parametrize("with_", [{"answer": 4}, {"messages": []}, None, {"messages": [{}]}])
def test_a_graph_that_ends_with_no_message_is_told_so(with_: Any) -> None:
    agent = graph_agent(lambda model, desk: Ends(model, with_), answers=True)
    trace = go(recreate.wrap(agent), [{"text": "hm"}])
    assert ended(trace) == ("error", "exit")
    assert "the graph ended with no message whose text could be handed in" in trace.steps[-1].output


def test_what_a_coroutine_raises_is_told_with_its_place() -> None:
    async def make(model: Any, desk: recreate.Desk) -> Any:
        raise ZeroDivisionError("no way")

    trace = go(recreate.wrap(graph_agent(make)), [])
    assert ended(trace) == ("error", "exit")
    assert trace.steps[-1].output.startswith("ZeroDivisionError: no way (")
    assert f"{__file__}:" in trace.steps[-1].output


def test_an_object_whose_attempt_is_a_coroutine_runs_also_inside_a_loop() -> None:
    class Later:
        async def attempt(self, desk: recreate.Desk) -> str:
            await asyncio.sleep(0)
            return desk.ask([{"role": "user", "content": "?"}]).text

    assert wait_for(3) == 3
    later: Any = Later().attempt

    class Desk:
        def ask(self, messages: Any) -> Any:
            return recreate.Reply(text="yes")

    async def inside() -> Any:
        return wait_for(later(Desk()))

    assert wait_for(later(Desk())) == "yes"
    assert asyncio.run(inside()) == "yes"


def test_last_words_of_a_text() -> None:
    assert last_words(["no", "yes"]) == "yes"
    assert isinstance(graph_agent(lambda model, desk: None), GraphAgent)

"""A LangGraph graph as an agent: it is compiled with a chat model whose calls are the attempt's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from recreate.api.errors import BadInput
from recreate.api.ports import Desk
from recreate.api.types import Reply
from recreate.plugins.foreign.in_process import wait_for


class GraphAgent:
    """Runs the graph on `{"messages": [the task's words]}`, or what `state` makes of a desk."""

    def __init__(
        self,
        make: Callable[[Any, Desk], Any],
        state: Callable[[Desk], Any] | None,
        answers: bool,
        recursion: int,
    ) -> None:
        self.source = make
        self.state = state
        self.answers = answers
        self.recursion = recursion

    def attempt(self, desk: Desk) -> str | None:
        ended = wait_for(self._run(desk))
        return last_words(ended) if self.answers else None

    async def _run(self, desk: Desk) -> Any:
        """What the graph ends with. It is run as a coroutine, so that nodes and tools of both kinds
        do; what is no coroutine is called in a thread."""
        graph = self.source(chat_model(desk), desk)
        graph = await graph if inspect.isawaitable(graph) else graph
        if not callable(getattr(graph, "invoke", None)):
            raise BadInput(
                f"make gave {type(graph).__name__}, and not a compiled graph",
                fix="return builder.compile()",
                code="misfit",
            )
        begin: Any = {"messages": [{"role": "user", "content": desk.prompt}]}
        if self.state:
            begin = self.state(desk)
            begin = await begin if inspect.isawaitable(begin) else begin
        how = {"recursion_limit": self.recursion, "configurable": {"thread_id": uuid4().hex}}
        if not callable(getattr(graph, "ainvoke", None)):
            return graph.invoke(begin, how)
        try:
            return await graph.ainvoke(begin, how)
        except NotImplementedError:  # a store of states that knows no coroutines says so at once
            if not getattr(graph, "checkpointer", None):
                raise
            return graph.invoke(begin, how)


def last_words(ended: Any) -> str:
    """The text of the last message that a graph ended with: an object, a dict, a pair or a text.
    Raises BadInput (`misfit`) where there is none."""
    messages = ended.get("messages") if isinstance(ended, Mapping) else ended
    messages = getattr(ended, "messages", messages)
    last = messages[-1] if isinstance(messages, Sequence) and messages else None
    said = last.get("content") if isinstance(last, Mapping) else getattr(last, "content", last)
    said = said[-1] if isinstance(said, tuple) and said else said
    if isinstance(said, list):
        texts = (p.get("text") if isinstance(p, Mapping) else p for p in said)
        said = "".join(text for text in texts if isinstance(text, str))
    if not isinstance(said, str):
        told = ", ".join(ended) if isinstance(ended, Mapping) else type(ended).__name__
        raise BadInput(
            f"the graph ended with no message whose text could be handed in, but with: {told}",
            fix="keep `messages` in its state; answers=False hands in what lies in the sandbox",
            code="misfit",
        )
    return said


def graph_agent(
    make: Callable[[Any, Desk], Any],
    *,
    state: Callable[[Desk], Any] | None = None,
    answers: bool = False,
    recursion: int = 250,
) -> GraphAgent:
    """What `recreate.wrap` takes, of a LangGraph graph.

    make(model, desk) compiles the graph with the chat model that it is given: a compiled graph
    holds a model of its own already, whose calls nobody would see. answers: the last message is
    handed in, in place of what lies in the sandbox. Raises BadInput (`misfit`) for what is no
    function.
    """
    if not callable(make) or callable(getattr(make, "get_graph", None)):
        raise BadInput(
            "a graph needs to be made for each attempt, with the model that it is given",
            fix="graph_agent(make), where make(model, desk) returns builder.compile()",
            code="misfit",
        )
    return GraphAgent(make, state, answers, recursion)


def chat_model(desk: Desk) -> Any:
    """A LangChain chat model whose replies are the desk's; tools can be bound to it."""
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.utils.function_calling import convert_to_openai_tool

    class Desks(BaseChatModel):  # type: ignore[misc]
        @property
        def _llm_type(self) -> str:
            return "recreate"

        def _generate(
            self,
            messages: list[BaseMessage],
            stop: list[str] | None = None,
            run_manager: Any = None,
            **params: Any,
        ) -> ChatResult:
            told = {
                k: v
                for k, v in params.items()
                if k in ("tools", "tool_choice", "temperature", "max_tokens")
            }
            told |= {"stop": stop} if stop else {}
            said = desk.ask(convert_to_openai_messages(messages), **told)
            return ChatResult(generations=[ChatGeneration(message=_message(said, AIMessage))])

        def bind_tools(
            self, tools: Sequence[Any], *, tool_choice: Any = None, **params: Any
        ) -> Any:
            made = [convert_to_openai_tool(tool) for tool in tools]
            choice = {"any": "required", True: "required"}.get(tool_choice, tool_choice)
            return self.bind(tools=made, **({"tool_choice": choice} if choice else {}), **params)

    return Desks()


def _message(reply: Reply, kind: Any) -> Any:
    from recreate.plugins.foreign.dialects import arguments_of

    calls = [
        {"name": c.name, "args": arguments_of(c), "id": c.id, "type": "tool_call"}
        for c in reply.tool_calls
    ]
    usage = {"input_tokens": reply.tokens_in, "output_tokens": reply.tokens_out}
    usage["total_tokens"] = reply.tokens_in + reply.tokens_out
    return kind(content=reply.text, tool_calls=calls, usage_metadata=usage)

"""A LangGraph graph as an agent: it is compiled with a chat model whose calls are the attempt's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recreate.api.errors import BadInput
from recreate.api.ports import Desk
from recreate.api.types import Reply


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
        graph = self.source(chat_model(desk), desk)
        if not callable(getattr(graph, "invoke", None)):
            raise BadInput(
                f"make gave {type(graph).__name__}, and not a compiled graph",
                fix="return builder.compile()",
                code="misfit",
            )
        begin = (
            self.state(desk)
            if self.state
            else {"messages": [{"role": "user", "content": desk.prompt}]}
        )
        ended = graph.invoke(begin, {"recursion_limit": self.recursion})
        return str(ended["messages"][-1].content) if self.answers else None


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

"""A solver of inspect_ai as an agent: its model is the attempt's, its sandbox the task's."""

from __future__ import annotations

import json
import shlex
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from recreate.api.errors import BadInput
from recreate.api.ports import Desk
from recreate.api.registry import need
from recreate.api.shapes import JsonDict, JsonMap

_one = threading.Lock()
"""Inspect evaluates one task at a time in a process: attempts at once wait for each other."""
_at_work: list[Desk] = []
"""The desk of the attempt that is evaluated now."""


class SolverAgent:
    """Evaluates the solver on one sample, whose input is the task's words."""

    def __init__(self, make: Callable[[Desk], Any], answers: bool) -> None:
        self.source = make
        self.answers = answers

    def attempt(self, desk: Desk) -> str | None:
        need("inspect_ai")
        import inspect_ai
        from inspect_ai.dataset import Sample
        from inspect_ai.model import GenerateConfig, get_model

        with _one, tempfile.TemporaryDirectory() as logs:
            _at_work.append(desk)
            try:
                once = GenerateConfig(max_retries=0)
                where = {"base_url": desk.base_url, "api_key": desk.api_key}
                model = get_model(
                    f"{_provider()}/{desk.model}", config=once, memoize=False, **where
                )
                task = inspect_ai.Task(
                    name="attempt",
                    dataset=[Sample(input=desk.prompt)],
                    solver=self.source(desk),
                    sandbox=_environment(),
                )
                (log,) = inspect_ai.eval(
                    task, model=model, log_dir=logs, display="none", score=False
                )
            finally:
                _at_work.clear()
        if log.error is not None:
            raise RuntimeError(log.error.message)
        return str(log.samples[0].output.completion) if self.answers and log.samples else None


def solver_agent(make: Callable[[Desk], Any], *, answers: bool = False) -> SolverAgent:
    """What `recreate.wrap` takes, of a solver of inspect_ai.

    make(desk) returns the solver; `sandbox()` in it and in its tools is the task's. answers: what
    its model said last is handed in, in place of what lies in the sandbox. Raises BadInput
    (`misfit`) for what is no function.
    """
    if not callable(make):
        raise BadInput(
            "a solver is made for each attempt",
            fix="solver_agent(lambda desk: my_solver())",
            code="misfit",
        )
    return SolverAgent(make, answers)


@cache
def _provider() -> str:
    """Register the gateway as a provider of models: its name.

    Inspect's own providers, and its functions that turn messages into JSON, ask for a version of
    the package openai that litellm forbade for months: who has both could not evaluate. So nothing
    of openai is needed here.
    """
    import httpx
    from inspect_ai.model import ModelAPI, ModelOutput, modelapi

    class ByGateway(ModelAPI):  # type: ignore[misc]
        async def generate(
            self, input: Sequence[Any], tools: Any, tool_choice: Any, config: Any
        ) -> ModelOutput:
            sets = (
                "max_tokens",
                "temperature",
                "top_p",
                "seed",
                "parallel_tool_calls",
                "reasoning_effort",
            )
            body = {
                "model": self.model_name,
                "messages": [_message(message) for message in input],
                "stop": config.stop_seqs,
                **{name: getattr(config, name) for name in sets},
            }
            if tools:
                named = getattr(tool_choice, "name", None)
                one = {"type": "function", "function": {"name": named}}
                body["tool_choice"] = (
                    one if named else {"any": "required"}.get(tool_choice, tool_choice)
                )
                body["tools"] = [
                    {
                        "type": "function",
                        "function": tool.model_dump(exclude={"options"}, exclude_none=True),
                    }
                    for tool in tools
                ]
            async with httpx.AsyncClient(timeout=None) as client:  # the attempt's own clock ends it
                answer = await client.post(
                    f"{self.base_url}/chat/completions",
                    headers={"Authorization": f"Bearer {self.api_key}"},
                    json={name: value for name, value in body.items() if value is not None},
                )
            told = answer.json()
            if answer.status_code != 200:
                raise RuntimeError(told["error"]["message"])
            return _output(self.model_name, told)

    modelapi(name="recreate")(ByGateway)
    return "recreate"


def _message(message: Any) -> JsonDict:
    """A message of Inspect as OpenAI's chat completions spell it. Raises ValueError for what is no
    text."""
    if not isinstance(message.content, str):
        odd = {part.type for part in message.content} - {"text", "reasoning"}
        if odd:
            raise ValueError(f"messages hold text here, not {', '.join(sorted(odd))}")
    sent = {"role": message.role, "content": message.text}
    if message.role == "tool":
        error = message.error.message if message.error else None
        return {**sent, "content": error or message.text, "tool_call_id": message.tool_call_id}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function, "arguments": json.dumps(call.arguments)},
        }
        for call in getattr(message, "tool_calls", None) or []
    ]
    return {**sent, "tool_calls": calls} if calls else sent


def _output(model: str, told: JsonMap) -> Any:
    """What the gateway answered, as Inspect takes it."""
    from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput, ModelUsage

    choice = told["choices"][0]
    usage = told["usage"]
    message = ChatMessageAssistant(
        content=choice["message"].get("content") or "",
        tool_calls=[_call(call) for call in choice["message"].get("tool_calls") or []] or None,
        model=model,
        source="generate",
    )
    ends = {"length": "max_tokens", "tool_calls": "tool_calls", "content_filter": "content_filter"}
    return ModelOutput(
        model=model,
        choices=[
            ChatCompletionChoice(
                message=message, stop_reason=ends.get(choice["finish_reason"], "stop")
            )
        ],
        usage=ModelUsage(
            input_tokens=usage["prompt_tokens"],
            output_tokens=usage["completion_tokens"],
            total_tokens=usage["prompt_tokens"] + usage["completion_tokens"],
        ),
    )


def _call(call: JsonMap) -> Any:
    from inspect_ai.tool import ToolCall

    name = call["function"]["name"]
    words = call["function"]["arguments"]
    try:
        arguments = json.loads(words)
        wrong = None if isinstance(arguments, dict) else "the arguments are no JSON object"
    except ValueError as e:
        arguments = {}
        wrong = f"the arguments are no JSON: {e}"
    return ToolCall(
        id=call["id"], function=name, arguments={} if wrong else arguments, parse_error=wrong
    )


@cache
def _environment() -> str:
    """Register the sandbox environment that is the desk's: its name."""
    import anyio.to_thread
    from inspect_ai.util import ExecResult, SandboxEnvironment, sandboxenv

    class TasksOwn(SandboxEnvironment):  # type: ignore[misc]
        def __init__(self, desk: Desk) -> None:
            super().__init__()
            self.desk = desk

        @classmethod
        async def sample_init(
            cls, task_name: str, config: Any, metadata: Mapping[str, str]
        ) -> JsonDict:
            return {"default": cls(_at_work[-1])}

        @classmethod
        async def sample_cleanup(
            cls, task_name: str, config: Any, environments: Any, interrupted: bool
        ) -> None:
            """The attempt closes its sandbox."""

        async def exec(
            self,
            cmd: list[str],
            input: str | bytes | None = None,
            cwd: str | None = None,
            env: Mapping[str, str] | None = None,
            user: str | None = None,
            timeout: int | None = None,
            **more: Any,
        ) -> Any:
            line = _shell(cmd, cwd, env)
            stdin = input.encode() if isinstance(input, str) else input
            output = await anyio.to_thread.run_sync(
                lambda: self.desk.sandbox.run(line, timeout, stdin)
            )
            if output.timed_out:
                raise TimeoutError(f"{shlex.join(cmd)} was stopped after {output.seconds:g} s")
            return ExecResult(output.status == 0, output.status, output.text, "")

        async def write_file(self, file: str, contents: str | bytes) -> None:
            data = contents.encode() if isinstance(contents, str) else contents
            await anyio.to_thread.run_sync(lambda: self.desk.sandbox.write(_below_work(file), data))

        async def read_file(self, file: str, text: bool = True) -> Any:
            data = await anyio.to_thread.run_sync(lambda: self.desk.sandbox.read(_below_work(file)))
            return data.decode("utf-8") if text else data

    sandboxenv(name="recreate")(TasksOwn)
    return "recreate"


def _shell(words: Sequence[str], folder: str | None, env: Mapping[str, str] | None) -> str:
    """A command as a shell takes it; of `bash --login -c TEXT` the text alone, as it then stands in
    the trace."""
    asks = (
        len(words) > 2
        and words[0] in ("bash", "sh")
        and set(words[1:-1]) <= {"-c", "-lc", "--login", "-l"}
    )
    line = words[-1] if asks else shlex.join(words)
    sets = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in (env or {}).items())
    return (f"cd {shlex.quote(folder)} || exit\n" if folder else "") + sets + line


def _below_work(file: str) -> str:
    """A path as the sandbox takes it. Raises PermissionError for one that is not below /work."""
    if not file.startswith("/"):
        return file
    if not file.startswith("/work/"):
        raise PermissionError(f"{file} is not below /work")
    return file.removeprefix("/work/")

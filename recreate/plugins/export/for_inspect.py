"""An exported agent as a solver of Inspect, and a task that gives it something to do.

inspect eval task.py -T prompt="the task" --model PROVIDER/MODEL
inspect eval task.py -T dataset=samples.jsonl --model PROVIDER/MODEL
inspect eval yours.py --solver task.py@scaffold_agent --model PROVIDER/MODEL
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from inspect_ai import Task as InspectTask
from inspect_ai import task
from inspect_ai.dataset import MemoryDataset, Sample, json_dataset
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ResponseSchema,
    get_model,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import JSONSchema, OutputLimitExceededError, sandbox

from recreate.api.errors import BadInput
from recreate.api.types import Output, Reply
from recreate.plugins.export.turns import AttemptState, Deed, FilePut, open_agent

HERE = Path(__file__).parent
TOGETHER = 'exec bash -c "$0" 2>&1'
"""Stderr is told where it came, among the lines of stdout."""


@solver  # type: ignore[untyped-decorator]
def scaffold_agent() -> Solver:
    """The agent, in the sample's sandbox. The sample's input is its task."""
    first = open_agent(HERE)
    model = first.facts["model"]
    config = GenerateConfig(
        temperature=model.get("temperature"),
        top_p=model.get("top_p"),
        max_tokens=model.get("max_tokens"),
        stop_seqs=model.get("stop"),
        response_schema=_form(model["json_schema"]) if "json_schema" in model else None,
    )
    seconds = math.ceil(first.limits["command_seconds"])

    async def do(deed: Deed) -> Output:
        if isinstance(deed, FilePut):
            return await put_file(deed)
        began = time.monotonic()
        words = ["bash", "-c", TOGETHER, deed.script]
        text, status, late = "", 124, False
        try:
            ended = await sandbox().exec(
                words, input=deed.stdin, timeout=seconds, timeout_retry=False
            )
            text, status = ended.stdout + ended.stderr, ended.returncode
        except TimeoutError:
            late = True
        except OutputLimitExceededError as e:
            text, status = e.truncated_output or "", 1
        status = 128 - status if status < 0 else status
        return Output(text=text, status=status, seconds=time.monotonic() - began, timed_out=late)

    async def put_file(deed: FilePut) -> Output:
        try:
            await sandbox().write_file(deed.path, deed.data)
        except (OSError, OutputLimitExceededError) as e:
            return Output(text=str(e), status=1)
        if deed.mode != 0o644:
            await sandbox().exec(["chmod", f"{deed.mode:o}", deed.path])
        return Output(text="", status=0)

    async def performed(deeds: Generator[Deed, Output, Any]) -> Any:
        try:
            deed = next(deeds)
            while True:
                deed = deeds.send(await do(deed))
        except StopIteration as end:
            return end.value

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        agent = open_agent(HERE, (await sandbox().exec(["pwd"])).stdout.strip(), raises=True)
        at = AttemptState(state.input_text)
        opening = await performed(agent.begin(at))
        system, user = (message["content"] for message in opening)
        state.messages = [ChatMessageSystem(content=system), ChatMessageUser(content=user)]
        ending = ""
        while not ending:
            if ending := agent.limit(at):
                break
            asked = config.model_copy(update={"max_tokens": at.raised}) if at.raised else config
            state.output = await get_model().generate(state.messages, config=asked)
            try:
                messages, ending = await performed(agent.take(_reply(state), at))
            except BadInput as e:
                messages, ending = [], e.message
            again = messages[0]["content"] if messages else state.output.completion
            state.messages.append(ChatMessageAssistant(content=again))
            state.messages += [
                ChatMessageUser(content=message["content"]) for message in messages[1:]
            ]
        state.metadata["ending"] = ending
        state.completed = True
        return state

    return solve


@task  # type: ignore[untyped-decorator]
def scaffold(prompt: str = "", dataset: str = "") -> Any:
    """One task in words, or a file of samples."""
    samples = json_dataset(dataset) if dataset else MemoryDataset([Sample(input=prompt)])
    return InspectTask(
        dataset=samples, solver=scaffold_agent(), sandbox=("docker", str(HERE / "compose.yaml"))
    )


def _form(schema: dict[str, Any]) -> Any:
    return ResponseSchema(
        name="command", json_schema=JSONSchema.model_validate(schema), strict=True
    )


def _reply(state: TaskState) -> Reply:
    output = state.output
    usage = output.usage
    cached = (
        (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0) if usage else 0
    )
    return Reply(
        text=output.completion,
        finish="length" if output.stop_reason == "max_tokens" else "stop",
        tokens_in=usage.input_tokens + cached if usage else 0,
        tokens_out=usage.output_tokens if usage else 0,
        usd=(usage.total_cost or 0.0) if usage else 0.0,
    )

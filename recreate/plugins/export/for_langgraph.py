"""An exported agent as a LangGraph graph: begin, then ask the model and act on its reply, until it
ends.

    build(model, shell).invoke({"task": "..."}) -> task, messages, at, ending

Any chat model of LangChain plugs in. The state is plain values and messages, so a checkpointer can
keep it. From a terminal:

    python graph.py --model PROVIDER:MODEL --folder DIR "the task"
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph

from recreate.api.errors import BadInput
from recreate.api.types import Output, Reply
from recreate.plugins.export.turns import AttemptState, Deed, FilePut, open_agent, perform

HERE = Path(__file__).parent
IMAGE = "python:3.12"


class GraphShell(Protocol):
    """Where commands run. work: its folder, as the commands see it."""

    work: str

    def run(self, script: str, stdin: str, seconds: float) -> tuple[str, int, bool]:
        """(stdout and stderr, status, whether it was stopped after so many seconds) of bash in the
        folder."""

    def put_file(self, path: str, data: bytes, mode: int) -> int:
        """Write a file, its folders made; 0 when that was done."""


class GraphState(TypedDict, total=False):
    """task is given; at: how far it is; ending: submitted, or the limit that was reached."""

    task: str
    messages: list[AnyMessage]
    at: dict[str, Any]
    ending: str


def build(model: Any, shell: GraphShell, folder: Path = HERE, checkpointer: Any = None) -> Any:
    """The compiled graph. model: a chat model, made with what agent.json asks of it (temperature,
    ...)."""
    agent = open_agent(folder, shell.work)

    def do(deed: Deed) -> Output:
        if isinstance(deed, FilePut):
            return Output(text="", status=shell.put_file(deed.path, deed.data, deed.mode))
        began = time.monotonic()
        text, status, timed_out = shell.run(
            deed.script, deed.stdin, agent.limits["command_seconds"]
        )
        return Output(
            text=text, status=status, seconds=time.monotonic() - began, timed_out=timed_out
        )

    def begin(state: GraphState) -> GraphState:
        at = AttemptState(state["task"])
        first = perform(agent.begin(at), do)
        messages = [SystemMessage(first[0]["content"]), HumanMessage(first[1]["content"])]
        return {"messages": messages, "at": asdict(at), "ending": ""}

    def ask(state: GraphState) -> GraphState:
        if reached := agent.limit(AttemptState(**state["at"])):
            return {"ending": reached}
        return {"messages": [*state["messages"], model.invoke(state["messages"])]}

    def act(state: GraphState) -> GraphState:
        *before, said = state["messages"]
        at = AttemptState(**state["at"])
        try:
            messages, ending = perform(agent.take(_reply(said), at), do)
        except BadInput as e:
            return {"at": asdict(at), "ending": e.message}
        if ending:
            return {"at": asdict(at), "ending": ending}
        again, answer = (message["content"] for message in messages)
        return {"messages": [*before, AIMessage(again), HumanMessage(answer)], "at": asdict(at)}

    graph = StateGraph(GraphState)
    for name, node in (("begin", begin), ("ask", ask), ("act", act)):
        graph.add_node(name, node)
    graph.add_edge(START, "begin")
    graph.add_edge("begin", "ask")
    graph.add_conditional_edges(
        "ask", lambda state: END if state["ending"] else "act", ["act", END]
    )
    graph.add_conditional_edges(
        "act", lambda state: END if state["ending"] else "ask", ["ask", END]
    )
    return graph.compile(checkpointer=checkpointer).with_config(
        recursion_limit=2 * agent.turns + 10
    )


def _reply(message: Any) -> Reply:
    content = message.content
    if not isinstance(content, str):
        content = "".join(
            part if isinstance(part, str) else part.get("text", "") for part in content
        )
    told = message.response_metadata
    cut = told.get("finish_reason", told.get("stop_reason")) in ("length", "max_tokens")
    usage = message.usage_metadata or {}
    return Reply(
        text=content,
        finish="length" if cut else "stop",
        tokens_in=usage.get("input_tokens", 0),
        tokens_out=usage.get("output_tokens", 0),
    )


# ---------------------------------------------------------------------------------------- where
# commands run


class LocalShell:
    """Commands run on this machine, in a folder, with all that you may do: for where that is a
    container already."""

    def __init__(self, folder: Path | str) -> None:
        self.work = str(Path(folder).resolve())

    def run(self, script: str, stdin: str, seconds: float) -> tuple[str, int, bool]:
        return _bash(
            ["bash", "-c", script], self.work, stdin.encode("utf-8", "surrogatepass"), seconds
        )

    def put_file(self, path: str, data: bytes, mode: int) -> int:
        at = Path(self.work) / path
        try:
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(data)
            at.chmod(mode)
        except OSError:
            return 1
        return 0


class DockerShell:
    """Commands run in a container without a network, a folder of yours mounted at /work. `close`
    ends it."""

    work = "/work"

    def __init__(self, folder: Path | str, image: str = IMAGE, docker: str = "docker") -> None:
        mount = f"{Path(folder).resolve()}:/work"
        walls = ["--rm", "--network", "none", "-v", mount, "-w", "/work"]
        words = [docker, "run", "-d", *walls, image, "sleep", "infinity"]
        self.docker = docker
        self.container = subprocess.run(
            words, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()

    def run(self, script: str, stdin: str, seconds: float) -> tuple[str, int, bool]:
        inside = ["timeout", "-s", "KILL", str(seconds), "bash", "-c", script]
        began = time.monotonic()
        text, status, late = self._exec(
            inside, stdin.encode("utf-8", "surrogatepass"), seconds + 10
        )
        late = late or (status == 137 and time.monotonic() - began >= seconds)
        return text, 124 if late else status, late

    def put_file(self, path: str, data: bytes, mode: int) -> int:
        at = shlex.quote(f"/work/{path}")
        script = f'mkdir -p "$(dirname {at})" && cat > {at} && chmod {mode:o} {at}'
        return self._exec(["bash", "-c", script], data, 60)[1]

    def close(self) -> None:
        subprocess.run(
            [self.docker, "rm", "-f", self.container], stdout=subprocess.DEVNULL, check=False
        )

    def _exec(self, words: Sequence[str], stdin: bytes, seconds: float) -> tuple[str, int, bool]:
        return _bash([self.docker, "exec", "-i", self.container, *words], None, stdin, seconds)


def _bash(
    words: Sequence[str], folder: str | None, stdin: bytes, seconds: float
) -> tuple[str, int, bool]:
    with subprocess.Popen(
        words,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as child:
        try:
            out, late = child.communicate(stdin, timeout=seconds)[0], False
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            out, late = child.communicate()[0], True
    status = child.returncode if child.returncode >= 0 else 128 - child.returncode
    return out.decode("utf-8", "replace"), 124 if late else status, late


def main() -> None:
    from langchain.chat_models import init_chat_model

    parser = argparse.ArgumentParser(description="Give the agent a task.")
    parser.add_argument("task")
    parser.add_argument(
        "--model", required=True, help="As PROVIDER:MODEL of LangChain's init_chat_model."
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("work"),
        help="Mounted at /work; made when it is not there.",
    )
    parser.add_argument("--image", default=IMAGE)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    shell = DockerShell(given.folder, given.image)
    try:
        asked = {
            key: value
            for key, value in open_agent(HERE).facts["model"].items()
            if key != "json_schema"
        }
        model = init_chat_model(given.model, **asked)
        ended = build(model, shell).invoke({"task": given.task})
    finally:
        shell.close()
    for message in ended["messages"]:
        print(f"--- {message.type}\n{message.content}")
    print(f"--- {ended['ending']}")
    sys.exit(ended["ending"] != "submitted")


if __name__ == "__main__":
    main()

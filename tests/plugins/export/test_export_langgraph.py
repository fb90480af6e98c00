"""An agent taken to LangGraph sends the same messages and runs the same commands as here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Sandbox
from recreate.sandboxes import choose
from tests.plugins.export.taken_along import (
    TOKENS_IN,
    WITHOUT_RECREATE,
    Case,
    Seen,
    cases,
    cut_off,
    module_of,
    ours,
    shell,
    written,
)

CASES = list(cases())
FEW = [CASES[0], CASES[8], CASES[15]]
ROLES = {"system": "system", "human": "user", "ai": "assistant"}


class Told(BaseChatModel):
    """A chat model that answers as a case says, and notes what it was asked."""

    case: Any
    seen: Any

    @property
    def _llm_type(self) -> str:
        return "told"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kw: Any
    ) -> ChatResult:
        text, finish = self.case.reply(len(self.seen.asked))
        self.seen.asked.append([(ROLES[m.type], m.content) for m in messages])
        usage = {
            "input_tokens": TOKENS_IN,
            "output_tokens": self.case.tokens_out,
            "total_tokens": TOKENS_IN + self.case.tokens_out,
        }
        told = AIMessage(text, response_metadata={"finish_reason": finish}, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=told)])


class InSandbox:
    """A shell whose commands run in a sandbox of ours."""

    work = "/work"

    def __init__(self, sandbox: Sandbox, ran: list[tuple[str, str]]) -> None:
        self.sandbox, self.ran = sandbox, ran

    def run(self, script: str, stdin: str, seconds: float) -> tuple[str, int, bool]:
        self.ran.append((script, stdin))
        output = self.sandbox.run(script, timeout=seconds, stdin=stdin.encode())
        return output.text, output.status, output.timed_out

    def put_file(self, path: str, data: bytes, mode: int) -> int:
        try:
            self.sandbox.write(path, data, mode)
        except (BadInput, Fault):
            return 1
        return 0


def theirs(case: Case, folder: Path) -> Seen:
    """What LangGraph does with the exported graph, its state kept by a checkpointer."""
    seen = Seen()
    sandbox = case.domain.prepare(case.task, choose())
    try:
        graph = module_of(folder, "graph.py").build(
            Told(case=case, seen=seen), InSandbox(sandbox, seen.ran), folder
        )
        ended = graph.invoke({"task": case.task.prompt})
        seen.answer, seen.submitted = (
            case.domain.collect(case.task, sandbox),
            ended["ending"] == "submitted",
        )
    finally:
        sandbox.close()
    return seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


Compare = Callable[[Case], None]


@pytest.fixture
def same(folder: Path) -> Compare:
    def compare(case: Case) -> None:
        here = ours(case)
        here.caps.clear()  # whoever makes the model gives it
        assert theirs(case, written(case.scaffold, "langgraph", folder)) == here

    return compare


@pytest.mark.slow
@pytest.mark.parametrize("case", FEW, ids=lambda case: case.name)
def test_a_task_of_each_domain_is_done_alike(case: Case, same: Compare) -> None:
    same(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if c not in FEW], ids=lambda case: case.name)
def test_every_task_is_done_alike(case: Case, same: Compare) -> None:
    same(case)


@pytest.mark.slow
def test_replies_that_are_cut_off_end_it_alike(same: Compare) -> None:
    same(cut_off())


def test_its_state_can_be_kept_and_gone_on_with(folder: Path) -> None:
    """Stopped after the first turn, by another process's graph it goes on with the second."""
    case, seen = CASES[8], Seen()
    sandbox = case.domain.prepare(case.task, choose())
    kept, thread = InMemorySaver(), {"configurable": {"thread_id": "1"}}
    out = written(case.scaffold, "langgraph", folder)
    model, there = Told(case=case, seen=seen), InSandbox(sandbox, seen.ran)
    try:
        first = module_of(out, "graph.py").build(model, there, out, checkpointer=kept)
        first.invoke({"task": case.task.prompt}, thread, interrupt_after=["act"])
        assert len(seen.asked) == 1
        second = module_of(out, "graph.py").build(model, there, out, checkpointer=kept)
        assert second.invoke(None, thread)["ending"] == "submitted"
    finally:
        sandbox.close()
    assert seen.asked == ours(case).asked


PROGRAM = """
import json, sys
from pathlib import Path
from langchain_core.language_models import FakeListChatModel
from graph import LocalShell, build

model = FakeListChatModel(responses=json.loads(sys.argv[1]))
ended = build(model, LocalShell(sys.argv[2])).invoke({"task": "Say yes."})
print(json.dumps([[m.type, m.content] for m in ended["messages"]] + [["ending", ended["ending"]]]))
"""


@pytest.mark.slow
def test_it_runs_where_there_is_no_recreate(folder: Path, tmp_path: Path) -> None:
    out = written(shell(), "langgraph", folder)
    replies = [
        "```bash\necho yes > answer.txt; seq 1 300\n```",
        "```bash\nsleep 30\n```",
        "```bash\nsubmit\n```",
    ]
    words = [sys.executable, "-c", WITHOUT_RECREATE + PROGRAM, json.dumps(replies), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": "."}
    done = subprocess.run(
        words, cwd=out, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    *messages, ending = json.loads(done.stdout)
    assert ending == ["ending", "submitted"]
    assert [role for role, _ in messages] == ["system", "human", "ai", "human", "ai", "human", "ai"]
    assert re.search(
        rf"see the rest by sed -n '\d+,\d+p' {tmp_path}/\.recreate/output/1\.txt", messages[3][1]
    )
    assert messages[5][1] == "\n[exit status 124, stopped: it took too long; 7 steps left]"
    assert (tmp_path / "answer.txt").read_text() == "yes\n"


DOCKER = """#!/bin/bash
# As much of docker as a shell needs: what runs in the container runs here, in the folder that is \
mounted.
echo "$1" >> "$0.log"
case $1 in
run)
    while [ "$1" != -v ]; do shift; done
    echo "${2%:/work}" > "$0.folder"
    echo container-1 ;;
exec)
    folder=$(cat "$0.folder")
    [ "$2 $3" = "-i container-1" ] || exit 1
    shift 3
    cd "$folder" && exec "${@//\\/work/$folder}" ;;
esac
"""


@pytest.mark.slow
def test_commands_of_a_container_are_run_put_and_stopped(folder: Path, tmp_path: Path) -> None:
    docker, work = tmp_path / "docker", tmp_path / "mine"
    work.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    there = module_of(written(shell(), "langgraph", folder), "graph.py").DockerShell(
        work, docker=str(docker)
    )
    assert there.put_file(".recreate/bin/say", b"#!/bin/bash\ncat; pwd\n", 0o755) == 0
    assert there.run("/work/.recreate/bin/say; exit 3", "hello\n", 20) == (
        f"hello\n{work}\n",
        3,
        False,
    )
    assert there.run("echo early; sleep 60", "", 1) == ("early\n", 124, True)
    assert there.put_file("no/../../..", b"", 0o644) != 0
    there.close()
    assert (tmp_path / "docker.log").read_text().split() == [
        "run",
        "exec",
        "exec",
        "exec",
        "exec",
        "rm",
    ]

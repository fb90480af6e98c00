"""An agent taken to Inspect sends the same messages and runs the same commands as here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    raised,
    shell,
    written,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Inspect calls such things


CASES = list(cases())
FEW = [CASES[0], CASES[8], CASES[15]]
NOW: list[tuple[Case, Seen, Sandbox]] = []
"""What the one sample that runs is of."""


def registered() -> Any:
    """inspect_ai, with sandboxes of ours as `watched`."""
    import inspect_ai
    from inspect_ai.util import ExecResult, SandboxEnvironment, sandboxenv

    class Watching(SandboxEnvironment):
        @classmethod
        async def sample_init(
            cls, task_name: str, config: Any, metadata: dict[str, str]
        ) -> dict[str, Any]:
            return {"default": cls()}

        @classmethod
        async def sample_cleanup(
            cls, task_name: str, config: Any, environments: Any, interrupted: bool
        ) -> None:
            pass

        async def exec(
            self, cmd: list[str], input: Any = None, timeout: Any = None, **more: Any
        ) -> Any:
            _, seen, sandbox = NOW[0]
            stdin = input.encode() if isinstance(input, str) else input or b""
            if cmd[:3] == ["bash", "-c", 'exec bash -c "$0" 2>&1']:
                seen.ran.append((cmd[3], stdin.decode()))
            output = sandbox.run(cmd, timeout=timeout, stdin=stdin)
            if output.timed_out:
                raise TimeoutError
            return ExecResult(output.status == 0, output.status, output.text, "")

        async def write_file(self, file: str, contents: Any) -> None:
            data = contents.encode() if isinstance(contents, str) else contents
            try:
                NOW[0][2].write(file, data)
            except (BadInput, Fault) as e:
                raise OSError(e.message) from None

        async def read_file(self, file: str, text: bool = True) -> Any:
            raise AssertionError("nothing is read")

    sandboxenv(name="watched")(Watching)
    return inspect_ai


@pytest.fixture(scope="module")
def inspect() -> Any:
    return registered()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


def theirs(case: Case, out: Path, inspect: Any) -> Seen:
    """What Inspect does with the exported solver: its eval, its generate, its mock model."""
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def told(messages: list[Any], tools: Any, tool_choice: Any, config: Any) -> Any:
        text, finish = case.reply(len(seen.asked))
        seen.asked.append([(m.role, m.text) for m in messages])
        seen.caps.append(config.max_tokens)
        stop = "max_tokens" if finish == "length" else "stop"
        output = ModelOutput.from_content("mockllm/model", text, stop_reason=stop)
        output.usage = ModelUsage(input_tokens=TOKENS_IN, output_tokens=case.tokens_out)
        return output

    seen = Seen()
    sandbox = case.domain.prepare(case.task, choose())
    NOW[:] = [(case, seen, sandbox)]
    try:
        (log,) = inspect.eval(
            inspect.Task(
                dataset=[Sample(input=case.task.prompt)],
                solver=module_of(out, "task.py").scaffold_agent(),
                sandbox="watched",
            ),
            model=get_model("mockllm/model", custom_outputs=told, memoize=False),
            log_dir=str(out.parent / "logs"),
            display="none",
            log_level="error",
        )
        assert log.status == "success", log.error
        assert log.samples[0].error is None
        seen.answer = case.domain.collect(case.task, sandbox)
        seen.submitted = log.samples[0].metadata["ending"] == "submitted"
    finally:
        sandbox.close()
    return seen


Compare = Callable[[Case], None]


@pytest.fixture
def same(folder: Path, inspect: Any) -> Compare:
    def compare(case: Case) -> None:
        assert theirs(case, written(case.scaffold, "inspect", folder), inspect) == ours(case)

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


@pytest.mark.slow
@pytest.mark.parametrize("case", raised(), ids=lambda case: case.scaffold.name)
def test_what_a_reply_may_have_is_raised_alike(case: Case, same: Compare) -> None:
    same(case)


PROGRAM = """
import json, sys
from inspect_ai import eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model

told = [ModelOutput.from_content("mockllm/model", text) for text in json.loads(sys.argv[1])]
for output in told:
    output.usage = ModelUsage(input_tokens=1, output_tokens=1)  # else it is counted by what is \
fetched
flags = dict(sandbox="local", log_dir=sys.argv[2], display="none", task_args={"prompt": "Say yes."})
(log,) = eval("task.py", model=get_model("mockllm/model", custom_outputs=told), **flags)
sample = log.samples[0]
print(json.dumps([[m.role, m.text] for m in sample.messages] + [["ending", \
sample.metadata["ending"]]]))
"""


@pytest.mark.slow
def test_the_task_runs_where_there_is_no_recreate(folder: Path, tmp_path: Path) -> None:
    out = written(shell(), "inspect", folder)
    replies = [
        "```bash\necho yes > answer.txt; seq 1 300; echo oh >&2\n```",
        "```bash\nsleep 30\n```",
    ]
    replies += ["```bash\ncat answer.txt\n```", "```bash\nsubmit\n```"]
    words = [sys.executable, "-c", WITHOUT_RECREATE + PROGRAM, json.dumps(replies), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": "."}
    done = subprocess.run(
        words, cwd=out, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *messages, ending = json.loads(done.stdout.splitlines()[-1])
    assert ending == ["ending", "submitted"]
    assert [role for role, _ in messages] == [
        "system",
        "user",
        *["assistant", "user"] * 3,
        "assistant",
    ]
    assert messages[1][1].startswith("Say yes.")
    assert "oh\n\n[exit status 0; 8 steps left]" in messages[3][1]
    assert "sed -n" in messages[3][1]
    assert messages[5][1] == "\n[exit status 124, stopped: it took too long; 7 steps left]"
    assert messages[7][1].startswith("yes\n")

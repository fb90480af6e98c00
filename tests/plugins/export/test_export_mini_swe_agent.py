"""An agent taken to mini-swe-agent sends the same messages and runs the same commands as here."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recreate.api.ports import Sandbox
from recreate.plugins.export.programs import yaml_text
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

CASES = list(cases())
FEW = [CASES[0], CASES[8], CASES[15]]


@pytest.fixture(scope="module")
def mini() -> Any:
    """The package's models; litellm is asked nothing."""
    os.environ["MSWEA_SILENT_STARTUP"] = "1"
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

    return SimpleNamespace(litellm=litellm, model=LitellmTextbasedModel)


class InSandbox:
    """An environment of mini-swe-agent: it runs commands in a sandbox of ours, and says what
    LocalEnvironment would."""

    def __init__(self, sandbox: Sandbox, seconds: float, ran: list[tuple[str, str]]) -> None:
        self.config = SimpleNamespace(cwd="/work")
        self.sandbox, self.seconds, self.ran = sandbox, seconds, ran

    def execute(self, action: dict[str, str], cwd: str = "") -> dict[str, Any]:
        first, *words = shlex.split(action["command"])
        assert [first, *words[:2], words[3]] == ["exec", "bash", "-c", "<"]
        if not words[2].startswith(("mkdir -p ", "printf %s ")):  # a file is put
            stdin = "" if words[4] == "/dev/null" else self.sandbox.read(".recreate/stdin").decode()
            self.ran.append((words[2], stdin))
        output = self.sandbox.run(action["command"], timeout=self.seconds)
        if output.timed_out:
            extra = {"exception_type": "TimeoutExpired"}
            return {
                "output": output.text,
                "returncode": -1,
                "exception_info": "it took too long",
                "extra": extra,
            }
        return {"output": output.text, "returncode": output.status, "exception_info": ""}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


def theirs(case: Case, folder: Path, mini: Any, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What mini-swe-agent does with the export: its agent loop, its text model, its
    configuration."""
    seen = Seen()
    config = yaml.safe_load((folder / "mini.yaml").read_text())

    def completion(*, model: str, messages: list[dict[str, Any]], **params: Any) -> Any:
        text, finish = case.reply(len(seen.asked))
        seen.asked.append([(m["role"], m["content"]) for m in messages])
        usage = {
            "prompt_tokens": TOKENS_IN,
            "completion_tokens": case.tokens_out,
            "total_tokens": TOKENS_IN + case.tokens_out,
        }
        seen.caps.append(params["max_tokens"])
        choice = {
            "finish_reason": finish,
            "index": 0,
            "message": {"role": "assistant", "content": text},
        }
        return mini.litellm.ModelResponse(choices=[choice], usage=usage, model=model)

    monkeypatch.setattr(mini.litellm, "completion", completion)
    kwargs = {key: value for key, value in config["model"].items() if key != "model_class"}
    model = mini.model(model_name="stub/model", cost_tracking="ignore_errors", **kwargs)
    sandbox = case.domain.prepare(case.task, choose())
    try:
        env = InSandbox(sandbox, case.scaffold.agent.limits.command_seconds, seen.ran)
        settings = {key: value for key, value in config["agent"].items() if key != "agent_class"}
        ended = (
            module_of(folder, "scaffold_agent.py")
            .ScaffoldAgent(model, env, **settings)
            .run(case.task.prompt)
        )
        seen.answer, seen.submitted = (
            case.domain.collect(case.task, sandbox),
            ended["exit_status"] == "Submitted",
        )
    finally:
        sandbox.close()
    return seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


Compare = Callable[[Case], None]


@pytest.fixture
def same(folder: Path, mini: Any, monkeypatch: pytest.MonkeyPatch) -> Compare:
    def compare(case: Case) -> None:
        here = ours(case)
        there = theirs(case, written(case.scaffold, "mini-swe-agent", folder), mini, monkeypatch)
        for n, (a, b) in enumerate(zip(here.asked, there.asked, strict=False)):
            assert b == a, f"call {n}"
        assert len(there.asked) == len(here.asked)
        assert (there.ran, there.caps) == (here.ran, here.caps)
        assert (there.answer, there.submitted) == (here.answer, here.submitted)

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


def test_the_cases_are_of_three_domains_and_twenty_tasks() -> None:
    assert len({case.task.domain for case in CASES}) == 3
    assert len({case.task.id for case in CASES}) >= 20


STUB = '''
import json, os
from pathlib import Path
from minisweagent.models.test_models import DeterministicModel

class Stub(DeterministicModel):
    """Replies of a file; what was asked is written down."""
    def __init__(self, **kwargs):
        said = json.loads(Path(os.environ["REPLIES"]).read_text())
        super().__init__(outputs=[{"role": "assistant", "content": text, "extra": {"cost": 0.0}} \
for text in said])
    def query(self, messages, **kwargs):
        Path(os.environ["ASKED"]).write_text(json.dumps([[m["role"], m["content"]] for m in \
messages]))
        return super().query(messages)
'''

REFUSE = (
    WITHOUT_RECREATE
    + """
from minisweagent.run.mini import app
app()
"""
)


@pytest.mark.slow
def test_what_the_readme_says_to_type_runs_where_there_is_no_recreate(
    folder: Path, tmp_path: Path
) -> None:
    out = written(shell(), "mini-swe-agent", folder)
    assert (
        'PYTHONPATH=. mini -c mini.yaml -m PROVIDER/MODEL -t "the task"'
        in (out / "README.md").read_text()
    )
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "stub.py").write_text(STUB)
    replies = [
        "```bash\nls tools; echo yes > answer.txt; seq 1 300\n```",
        "no",
        "```bash\nsubmit\n```",
    ]
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    flags = ["-c", "mini.yaml", "-m", "a/b", "-t", "Say yes.", "-o", str(tmp_path / "t.json")]
    flags += [
        "--model-class",
        "stub.Stub",
        "--environment-class",
        "local",
        "-c",
        f"environment.cwd={work}",
    ]
    flags += ["-c", "environment.image=null", "-c", "environment.run_args=null"]
    env = {
        **os.environ,
        "PYTHONPATH": f".:{tmp_path}",
        "REPLIES": str(tmp_path / "replies.json"),
        "ASKED": str(tmp_path / "asked.json"),
        "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path / "config"),
        "MSWEA_CONFIGURED": "true",
    }
    done = subprocess.run(
        [sys.executable, "-c", REFUSE, *flags],
        cwd=out,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    asked = json.loads((tmp_path / "asked.json").read_text())
    assert [role for role, _ in asked] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert re.search(
        rf"see the rest by sed -n '\d+,\d+p' {work}/\.recreate/output/1\.txt", asked[3][1]
    )
    assert "found 0" in asked[5][1]
    assert (work / "answer.txt").read_text() == "yes\n"
    assert json.loads((tmp_path / "t.json").read_text())["info"]["exit_status"] == "Submitted"


LINES = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    ["a\nb", " a\n b\n", "a\n\n", "\n", "a \nb", "\ta\n"]
)


@given(
    st.dictionaries(
        st.from_regex(r"k[a-z_]{1,8}", fullmatch=True),
        LINES | st.lists(LINES) | st.integers(),
        max_size=4,
    )
)
def test_the_configuration_reads_as_what_was_written(value: dict[str, Any]) -> None:
    nested = {"agent": value, "model": {"kwargs": value, "usd": math.pi, "empty": {}}}
    assert yaml.safe_load(yaml_text(nested)) == nested

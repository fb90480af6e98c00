"""Coding agents as the optimizer: what a command gets, what it cannot reach, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import BadInput, Missing
from recreate.plugins.coding_agents.known import KNOWN
from recreate.plugins.coding_agents.optimizer import CodingAgentOptimizer
from recreate.plugins.coding_agents.programs import program_of
from recreate.plugins.coding_agents.seat import SeatGateway, deny
from tests.plugins.coding_agents.reader import ShellReader
from tests.studied import Tried, trying
from tests.toy import LESSON, script

pytestmark = [pytest.mark.plugin("each")]

CAUSES = """## Answers lack an exclamation mark
- 01 step 0: "printf %s"
Changed: workflow.md
"""
WORK = [
    "cat TASK.md attempts/01*/transcript.md; regrade",
    f"printf '\\n{LESSON}\\n' >> agent/workflow.md",
    f"cat > causes.md <<'X'\n{CAUSES}X\nfinish",
]
ASKS = """import json, os, subprocess, sys, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
tool = {"type": "function", "function": {"name": "bash", "parameters": {
    "type": "object", "properties": {"command": {"type": "string"}}}}}
messages = [{"role": "user", "content": open(sys.argv[1]).read()}]
for _ in range(20):
    body = json.dumps({"model": "m", "messages": messages, "tools": [tool]}).encode()
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    said = json.load(urllib.request.urlopen(asked))["choices"][0]["message"]
    messages.append(said)
    if not said.get("tool_calls"):
        break
    for call in said["tool_calls"]:
        command = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"],
                         "content": done.stdout + done.stderr})
"""

Go = Callable[..., Tried]


@pytest.fixture
def go(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    """Build with a command as the optimizer; `program` is its Python, named in the command."""

    def go(program: str, commands: Any = WORK, words: str = "{prompt_file}", **flags: Any) -> Tried:
        file = workspace / "agent.py"
        file.write_text(program)
        model = ShellReader(script(), commands)

        def made(*given: Any, **how: Any) -> ShellReader:
            return model

        monkeypatch.setattr("tests.studied.Investigator", made)
        values = {"optimizer": f"cli:python3 {file} {words}", "rounds": 1, "validation": 5}
        return trying(workspace)(None, **{**values, **flags})

    return go


def ending(tried: Tried) -> tuple[str, str]:
    (study,) = tried.all
    return study.ending, study.why


@pytest.mark.slow
def test_a_command_that_asks_through_the_gateway_works_in_the_folder_and_is_booked(go: Go) -> None:
    tried = go(ASKS)
    (study,) = tried.all
    assert (study.ending, study.actions["request"]) == ("finished", 3)
    assert study.usage.calls == 3
    (revision,) = tried.built.revisions
    assert (revision.kept, [e.path for e in revision.edits]) == (True, ["workflow.md"])


@pytest.mark.slow
def test_after_it_has_handed_in_nothing_more_is_paid(go: Go) -> None:
    tried = go(ASKS, commands=[*WORK, "echo more", "echo more", "echo more"])
    assert tried.all[0].usage.calls == 3


@pytest.mark.slow
def test_a_program_that_needs_no_model_is_a_valid_one_and_its_time_is_told(go: Go) -> None:
    commands = "; ".join(WORK[1:])
    tried = go(f"import subprocess\nsubprocess.run(['bash', '-c', {commands!r}])\n")
    (study,) = tried.all
    assert (study.ending, study.usage.calls) == ("finished", 0)
    assert study.usage.seconds > 0
    assert [r.kept for r in tried.built.revisions] == [True]


@pytest.mark.slow
def test_its_cap_is_kept_by_the_gateway(go: Go) -> None:
    tried = go(ASKS, **{"study.steps": 2})
    assert ending(tried) == ("limit", "steps")
    assert tried.all[0].usage.calls == 2


SPY = """import glob, os, pathlib, socket, subprocess
found = [os.environ.get(name, "") for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")]
for root in ("/", os.path.expanduser("~"), "/work", "/desk", "/gateway", {workspace!r}):
    for place, _, names in os.walk(root):
        if place.startswith(("/proc", "/sys", "/usr", "/lib", "/bin", "/dev", "/sbin", "/etc")):
            continue
        for name in names:
            try:
                text = pathlib.Path(place, name).read_bytes()[:200000].decode("utf-8", "replace")
            except OSError:
                continue
            if "toy:valid" + "ation" in text or "SECRET-OF" + "-HOST" in text:
                found.append(place + "/" + name)
for address in (("1.1.1.1", 443), ("127.0.0.1", 22), ("8.8.8.8", 53)):
    try:
        socket.create_connection(address, timeout=2)
        found.append(address)
    except OSError:
        pass
for command in ("recall validation list", "recall toy:valid" + "ation:0 --by words"):
    found += ["recall"] * ("toy:valid" + "ation" in subprocess.getoutput(command))
print("FOUND", found)
"""


@pytest.mark.slow
def test_a_program_that_looks_for_held_out_tasks_the_host_and_the_network_finds_nothing(
    go: Go, workspace: Path
) -> None:
    (workspace / "notes.txt").write_text("SECRET-OF-HOST toy:validation:0\n")
    tried = go(SPY.replace("{workspace!r}", repr(str(workspace))))
    (file,) = (tried.run.folder / "studies").glob("*/steps.jsonl")
    said = json.loads(file.read_text())["output"]
    assert "FOUND ['recreate', 'recreate']" in said, said


@pytest.mark.slow
def test_a_program_that_lies_in_the_workspace_sees_nothing_else_of_it(
    go: Go, workspace: Path
) -> None:
    (workspace / "notes.txt").write_text("SECRET-OF-HOST\n")
    script = workspace / "mine.sh"
    script.write_text('#!/bin/sh\necho SEES; ls "$(dirname "$0")"\n')
    script.chmod(0o755)
    tried = go("", optimizer="cli:./mine.sh")
    (file,) = (tried.run.folder / "studies").glob("*/steps.jsonl")
    assert json.loads(file.read_text())["output"].split() == ["SEES", "mine.sh"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "flags", "how"),
    [
        ("import sys\nsys.exit('please log in: run agent login')\n", {}, "please log in"),
        ("print('done')\n", {}, "never called finish"),
        ("while True: pass\n", {"optimizer_settings": {"minutes": 0.05}}, "limit minutes"),
        ("print('x' * 50_000_000)\n", {}, "never called finish"),
        (
            "import os\nos.system('echo x > agent/agent.toml; finish')",
            {},
            "never called finish",
        ),
    ],
)
def test_one_that_does_not_finish_leaves_a_record_that_says_why(
    go: Go, program: str, flags: dict[str, Any], how: str
) -> None:
    tried = go(program, **flags)
    assert how in " ".join(ending(tried))
    assert not tried.built.revisions


def test_one_that_is_not_installed_is_refused_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda *given, **how: None)
    for name, agent in KNOWN.items():
        with pytest.raises(Missing) as refused:
            CodingAgentOptimizer.named(name)
        assert agent.package in refused.value.fix
    with pytest.raises(BadInput, match="names no coding agent"):
        CodingAgentOptimizer.named("")


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        ("api.anthropic.com:443", True),
        ("API.anthropic.com.:443", True),
        ("api.anthropic.com:80", False),
        ("evil.example:443", False),
        ("api.anthropic.com.evil.example:443", False),
        ("127.0.0.1:443", False),
        ("169.254.169.254:443", False),
        ("api.anthropic.com", False),
        ("", False),
    ],
)
def test_with_a_seat_the_hosts_of_its_provider_alone_are_reached(
    target: str, reached: bool
) -> None:
    gateway = SeatGateway(deny, KNOWN["claude"].hosts)
    assert (gateway.allows(target) is not None) is reached


@pytest.mark.live
@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_real_program_reads_edits_regrades_and_finishes(
    go: Go, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if more := os.environ.get("CODING_AGENTS"):
        monkeypatch.setenv("PATH", f"{more}:{os.environ['PATH']}")
    if shutil.which(program_of(KNOWN[name].command)) is None:
        pytest.skip(f"{name} is not installed: {KNOWN[name].package}")
    tried = go("", optimizer=f"cli:{name}")
    assert tried.all[0].ending == "finished", tried.all[0].why
    assert [r.kept for r in tried.built.revisions] == [True]

"""The other tools, installed from the package index, still write what is read here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recreate.cli import run as cli
from tests.plugins.traces.foreign.produce import PACKAGES

READ = {"mini": 2, "inspect": 2, "otel": 3, "langsmith": 3}


@pytest.mark.live
@pytest.mark.parametrize("name", PACKAGES)
def test_what_a_tool_writes_today_is_read(
    name: str, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    made.mkdir()
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        ["uv", "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")], check=True
    )
    subprocess.run(
        ["uv", "pip", "install", "-q", "--python", str(python), *PACKAGES[name]], check=True
    )
    script = Path(__file__).parent / "foreign" / "produce.py"
    subprocess.run([str(python), str(script), name], cwd=made, check=True, timeout=300)
    assert cli(["traces", "import", str(made), "--domain", "foreign", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["added"] + said["waiting"], said["bad"]) == (READ[name], [])

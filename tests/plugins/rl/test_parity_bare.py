"""parity.py where torch is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("script", ["tests/rl/parity.py", "tests/plugins/rl/parity.py"])
def test_parity_without_torch_is_a_sentence_and_no_traceback(tmp_path: Path, script: str) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / script), "x.json", "--json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert json.loads(done.stdout)["error"]["message"] == "torch is not installed"

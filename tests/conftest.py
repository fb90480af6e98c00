"""Every test has a home and a workspace of its own, and no keys."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")  # a busy machine is no failure


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: what is started would not hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


# what was compiled is kept even where the environment says otherwise: else each worker rewrites the assertions of all
# tests, and each command that a test starts compiles recreate
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    """What was collected stays until the end: no garbage collection looks at it again."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core with `-n auto`: half of a test's time is a sandbox, a clock or a disk that is waited for."""
    return 2 * (os.cpu_count() or 1)


@cache
def _shares(file: Path) -> bool:
    """Whether tests of a file use what is made once for many of them."""
    return re.search(r'scope="(module|session)"|project: Project', file.read_text("utf-8")) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`: a file whose tests share something is one worker's, and such files come first; all other tests go one
    by one to who is free. By xdist's own rule each worker made what is shared."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if _shares(config.rootpath / file) else nodeid

    return Sharing(config, log)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("RECREATE_", "AGENT_MODEL", "LLM_API")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty workspace that is also the current folder."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "recreate.toml").write_text("")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def attempt(workspace: Path) -> Any:
    """A build with an optimizer that acts by rule: `tests.studied.trying`."""
    from tests.studied import trying

    return trying(workspace)

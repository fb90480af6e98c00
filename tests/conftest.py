"""Every test has a home and a workspace of its own, and no keys."""

from __future__ import annotations

import compileall
import gc
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite

# what was compiled is kept even where the environment says otherwise: else each worker rewrites the
# assertions of all tests, and of hypothesis, and each command that a test starts compiles recreate
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

from hypothesis import HealthCheck, settings  # noqa: E402

pytestmark = pytest.mark.plugin("each")

settings.register_profile(
    "steady", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")  # a busy machine is no failure
PLUGINS = Path(__file__).parents[1] / "recreate" / "plugins"


# a shell's background job: what is started would not hear Ctrl-C
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--whole",
        action="store_true",
        help="with -m audit: every exploit at each row, hours; else each at one row or two",
    )


def pytest_configure(config: pytest.Config) -> None:
    """With `-n`: what is not compiled yet is compiled once, by all cores, and not by each
    worker."""
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", 0):
        return
    files, cores = (
        [*config.rootpath.glob("recreate/**/*.py"), *config.rootpath.glob("tests/**/*.py")],
        os.cpu_count(),
    )
    started = []
    for core in range(cores or 1):
        if not (child := os.fork()):
            try:
                _compile(config, files[core :: cores or 1])
            finally:
                os._exit(0)  # what could not be compiled, each worker compiles and complains of
        started.append(child)
    for child in started:
        os.waitpid(child, 0)


def _compile(config: pytest.Config, files: Sequence[Path]) -> None:
    """As an import would, but that nothing runs; files of tests with the assertions that pytest
    writes."""
    for file in files:
        if not file.name.startswith("test_"):
            compileall.compile_file(file, quiet=2)
            continue
        kept = rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(file, kept) is None and rewrite.try_makedirs(kept.parent):
            source, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, kept)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end: no garbage collection looks at it, then or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core with `-n auto`: half of a test's time is a sandbox, a clock or a disk that
    is waited for."""
    return 2 * (os.cpu_count() or 1)


@cache
def _shared(file: Path) -> str:
    """Of a file whose tests use what is made once for many of them what they share; '' for
    others."""
    text = file.read_text("utf-8")
    if re.search(r"^ *import openai|hosted.litellm import", text, re.MULTILINE):
        return "litellm"  # whose import takes seconds: one worker has it
    return str(file) if re.search(r'scope="(module|session)"|project: Project', text) else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`: tests that share something are one worker's, and such tests come first; all others
    go one by one to who is free. By xdist's own rule each worker made what is shared."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _shared(config.rootpath / file) or nodeid

    return Sharing(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of what a plug-in brings where its folder is not there."""
    gone = [
        item
        for item in items
        for mark in item.iter_markers("plugin")
        if not all((PLUGINS / name / "__init__.py").is_file() for name in mark.args)
    ]
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if item not in gone]


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


@pytest.fixture
def each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds keep only what is shown to be better than its parent: `--gate.keep each`."""
    monkeypatch.setenv("RECREATE_GATE__KEEP", "each")

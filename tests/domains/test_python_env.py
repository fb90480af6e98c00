"""Environments of tests: which there are, how they are built once, and what is said when one cannot
be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recreate.api.errors import BadInput, Fault
from recreate.api.types import digest
from recreate.domains import python_env
from recreate.domains.python_env import PINS, Environment, environment, interpreter, lacking
from recreate.storage import download as fetch
from tests.web import Web, zipped

FAKE = """#!/bin/sh
echo "$@" >>"$LOG"
case $1 in
venv) for target; do :; done
    mkdir -p "$target/bin" && ln -s "$PYTHON" "$target/bin/python3" ;;
pip) eval "$THEN" ;;
python) exit 2 ;;
esac
"""


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A uv that installs nothing and runs $THEN in its place; called, what it was asked."""
    program, log = tmp_path / "uv", tmp_path / "log"
    program.write_text(FAKE)
    program.chmod(0o755)
    for name, value in {
        "LOG": str(log),
        "PYTHON": sys.executable,
        "THEN": "",
        "UV": str(program),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(python_env, "uv_here", lambda: str(program))
    return lambda: log.read_text().splitlines() if log.exists() else []


def built(home: Path) -> list[str]:
    return sorted(p.name for p in (home / "envs").iterdir() if not p.name.startswith("."))


# --- which there are
# --------------------------------------------------------------------------------------


def test_an_environment_of_before_is_found_again(
    uv: Callable[[], list[str]], tmp_path: Path
) -> None:
    version = f"cpython{sys.version_info.major}.{sys.version_info.minor}"
    name = digest([2, version, sys.base_prefix, sorted([*PINS, "idna==3.10"])], 12)
    assert environment(Environment(requires=("idna==3.10",))) == tmp_path / "home" / "envs" / name


def test_environments_that_differ_in_anything_are_apart(
    uv: Callable[[], list[str]], tmp_path: Path
) -> None:
    others = [
        {"python": HERE},
        {"pytest": "7.4.4"},
        {"requires": ("idna==3.10",)},
        {"index_before": "2023-06-01"},
    ]
    others += [{"env": {"TZ": "UTC"}}, {"runner": "sympy"}]
    made = [environment(Environment.model_validate(fields)) for fields in ({}, *others)]
    assert len(set(made)) == len(built(tmp_path / "home")) == 7


def test_the_index_is_asked_as_of_the_day_but_for_what_is_named(
    uv: Callable[[], list[str]],
) -> None:
    environment(Environment(requires=("flask",), index_before="2023-06-01"))
    dated = uv()[-1]
    assert "--exclude-newer 2023-06-01T00:00:00Z --exclude-newer-package coverage=2100" in dated
    assert dated.endswith(f" -- {PINS[1]} flask pytest")
    environment(Environment(pytest="7.4.4", index_before="2023-06-01T14:00:00+02:00"))
    assert "--exclude-newer 2023-06-01T12:00:00Z " in uv()[-1]
    assert "--exclude-newer-package pytest=2100" in uv()[-1]
    assert uv()[-1].endswith(" pytest==7.4.4")
    environment(Environment(pytest="none"))
    assert uv()[-1].endswith(f"-- {PINS[1]}")
    assert all("--only-binary :all:" in line for line in uv() if line.startswith("pip"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"python": "2.7"}, "'2.7' is not a Python like 3.9 or 3.9.18, from 3.8 on"),
        ({"python": "3.7"}, "'3.7' is not a Python like 3.9 or 3.9.18, from 3.8 on"),
        ({"pytest": "new"}, "'new' is not a version of pytest like 7.4.4"),
        (
            {"requires": ("--index-url=http://x",)},
            "'--index-url=http://x' is not a requirement like idna==3.10",
        ),
        ({"requires": ("idna @ http://x/idna.whl",)}, "names an address"),
        ({"index_before": "last spring"}, "'last spring' is not a date like 2023-06-01"),
        ({"env": {"PATH": "/"}}, "'PATH' cannot be set for tests"),
        ({"env": {"a b": "/"}}, "'a b' cannot be set for tests"),
        ({"runner": "nose"}, "Input should be 'pytest', 'django' or 'sympy'"),
    ],
)
def test_what_cannot_be_is_said(fields: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput) as failed:
        python_env.read_environment(fields)
    assert said in failed.value.message
    assert failed.value.code == "bad-environment"
    assert next(iter(fields)) in failed.value.fix


# --- Pythons
# ----------------------------------------------------------------------------------------------


def test_pythons_are_found_with_pyenv_and_on_path_the_newest_first(
    uv: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(place: Path, micro: int) -> str:
        place.parent.mkdir(parents=True)
        place.write_text(f"#!/bin/sh\nprintf 'cpython\\n3\\n8\\n{micro}\\n/prefix\\n{place}\\n'\n")
        place.chmod(0o755)
        return str(place)

    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:{tmp_path}/bin:/usr/bin:/bin")
    assert interpreter("3.8") is None
    program(tmp_path / "shims" / "python3.8", 99)  # it answers for Pythons that it does not start
    python_env._interpreter.cache_clear()
    assert interpreter("3.8") is None
    on_path = program(tmp_path / "bin" / "python3.8", 3)
    python_env._interpreter.cache_clear()
    assert interpreter("3.8") == (on_path, (3, 8, 3), "/prefix")
    older, newer = (program(tmp_path / f"pyenv/versions/3.8.{n}/bin/python3", n) for n in (9, 18))
    python_env._interpreter.cache_clear()
    assert interpreter("3.8") == (newer, (3, 8, 18), "/prefix")
    assert interpreter("3.8.9") == (older, (3, 8, 9), "/prefix")
    assert interpreter("3.8.1") is None
    assert interpreter(f"3.{sys.version_info.minor}") == interpreter("")


def test_a_python_that_is_not_here_is_named_with_how_to_get_it(uv: Callable[[], list[str]]) -> None:
    assert (
        lacking("3.99")
        == "Python 3.99 is not on this machine: `uv python install 3.99`, or `pyenv install 3.99`"
    )
    with pytest.raises(BadInput, match=r"uv python install 3\.99") as failed:
        environment(Environment(python="3.99"))
    assert failed.value.code == "no-python"


# --- the program that builds them
# -------------------------------------------------------------------------


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A package index with a uv, on a machine without one."""
    name = f"uv-{python_env.UV}"
    monkeypatch.setattr(python_env, "_installed_uv", lambda: "")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(fetch, "BACKOFF_SECONDS", 0.0)
    with Web() as web:
        web.index(
            "uv", {f"{name}-py3-none-any.whl": zipped({f"{name}.data/scripts/uv": FAKE.encode()})}
        )
        monkeypatch.setenv("PIP_INDEX_URL", web.url + "/simple/")
        yield web


def test_a_uv_that_is_not_here_is_fetched_from_the_users_index_once(
    index: Web, tmp_path: Path
) -> None:
    said: list[str] = []
    assert python_env.uv_here() == ""
    program = python_env.uv(said.append)
    assert Path(program).is_relative_to(os.environ["RECREATE_HOME"])
    assert os.access(program, os.X_OK)
    assert Path(program).read_text() == FAKE
    asked = len(index.seen)
    assert (python_env.uv(said.append), python_env.uv_here(), len(index.seen)) == (
        program,
        program,
        asked,
    )
    assert len(said) == 1


def test_without_an_index_it_is_said_what_brings_uv(
    index: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple/")
    with pytest.raises(Fault, match="cannot be read") as failed:
        environment()
    assert "[swe]' brings uv" in failed.value.fix


def test_a_uv_that_is_too_old_is_not_used(
    index: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    for version, used in (("0.8.22", False), ("0.9.0", True)):
        (tmp_path / "bin" / "uv").write_text(f"#!/bin/sh\necho uv {version} '(abc 2025)'\n")
        (tmp_path / "bin" / "uv").chmod(0o755)
        python_env._uv_on_path.cache_clear()
        assert python_env.uv_here() == (str(tmp_path / "bin" / "uv") if used else "")


# --- built once
# -------------------------------------------------------------------------------------------


def start(home: Path) -> subprocess.Popen[str]:
    code = (
        "import os\nfrom recreate.domains import python_env\npython_env.uv_here = lambda:"
        " os.environ['UV']\nprint(python_env.environment())"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_two_processes_that_want_one_environment_build_it_once(
    uv: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEN", "sleep 1")
    started = [start(tmp_path) for _ in range(2)]
    said = [process.communicate(timeout=60)[0].strip() for process in started]
    assert said == [str(environment())] * 2
    assert len([line for line in uv() if line.startswith("venv")]) == 1


def test_ctrl_c_leaves_no_half_environment_and_the_next_builds_it(
    uv: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEN", "sleep 30")
    process = start(tmp_path)
    while not any(line.startswith("pip") for line in uv()):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert built(tmp_path / "home") == []
    monkeypatch.setenv("THEN", "")
    assert environment().exists()


@pytest.mark.parametrize(
    ("said", "error", "code", "words"),
    [
        (
            "error: failed to write: No space left on device (os error 28)",
            Fault,
            "disk-full",
            "free some space",
        ),
        (
            "error: No solution found: docopt has no usable wheels",
            BadInput,
            "bad-requirement",
            "must have a wheel",
        ),
        ("error: Failed to fetch: dns error", Fault, "environment", "package index"),
    ],
)
def test_an_environment_that_cannot_be_built_is_gone_and_says_why(
    uv: Callable[[], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    error: type[Exception],
    code: str,
    words: str,
) -> None:
    monkeypatch.setenv("THEN", f"echo '{said}' >&2; exit 2")
    with pytest.raises((BadInput, Fault)) as failed:
        environment()
    assert type(failed.value) is error
    assert (failed.value.code, words in failed.value.fix) == (code, True)
    assert built(tmp_path / "home") == []


# --- side by side
# -----------------------------------------------------------------------------------------


HERE = f"3.{sys.version_info.minor}"

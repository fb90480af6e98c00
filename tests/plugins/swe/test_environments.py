"""Tasks that differ in their environments: each with its own, and those left out for which there is
none."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recreate.domains import python_env
from recreate.domains.python_env import lacking
from recreate.domains.validate import validate
from recreate.memory.held_out import HeldOut
from recreate.plugins.swe import Swe
from recreate.plugins.swe.facts import Origin
from recreate.sandboxes import choose
from tests.domains.test_python_env import built, uv
from tests.plugins.swe.swe_project import FILES, install, recipe, write

__all__ = ["uv"]
HERE = f"3.{sys.version_info.minor}"


def test_a_recipe_that_names_no_environment_keeps_its_digest() -> None:
    origin = Origin(name="a-1", package="a", tests=("tests",), requires=("b==1", "a==2"))
    assert not {"python", "pytest", "index_before", "env", "runner"} & origin.model_dump().keys()
    assert not {"env", "runner"} & origin.suite.model_dump().keys()
    assert origin.environment.key == ["a==2", "b==1"]
    named = origin.model_copy(update={"python": "3.9"})
    assert named.model_dump()["python"] == "3.9"
    assert named.environment.key == ["a==2", "b==1", {"python": "3.9"}]


def test_tasks_whose_python_is_not_here_are_left_out_and_fail_the_check(
    uv: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "injected.jsonl"
    both = recipe(write(tmp_path / "calm", FILES), str(tmp_path / "calm")).splitlines()
    other = json.dumps({**json.loads(both[0]), "name": "calm-2", "python": "3.99"})
    data.write_text("\n".join([*both, other, both[1].replace("calm-1", "calm-2")]))
    swe = Swe(data, say=lambda _: None)
    here, without = swe.tasks("train")
    usable, _ = HeldOut(tmp_path / "memory").usable(swe, "train")
    assert usable == [here]
    proof = validate(swe, without, choose())
    assert not proof.ok
    assert "uv python install 3.99" in proof.reason


OTHER = next((v for v in ("3.12", "3.13", "3.10", "3.14") if v != HERE and not lacking(v)), "")


@pytest.mark.slow
@pytest.mark.skipif(not OTHER, reason="no second Python is on this machine")
def test_two_tasks_that_differ_in_the_python_alone_run_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(
        _uv: str, target: Path, _: object, python: python_env.Interpreter, *__: object
    ) -> None:
        subprocess.run([python.program, "-m", "venv", "--without-pip", target], check=True)
        install(next(target.glob("lib/python3*/site-packages")))

    monkeypatch.setattr(python_env, "_build", build)
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    source, bug = recipe(write(tmp_path / "calm", FILES), str(tmp_path / "calm")).splitlines()
    other = json.dumps(
        {**json.loads(source), "name": "calm-2", "python": OTHER, "env": {"KIND": "other"}}
    )
    data = tmp_path / "injected.jsonl"
    data.write_text("\n".join([source, bug, other, bug.replace("calm-1", "calm-2")]))
    swe, backend = Swe(data, say=lambda _: None), choose()
    with ThreadPoolExecutor(2) as pool:
        proofs = list(pool.map(lambda task: validate(swe, task, backend), swe.tasks()))
    assert [(proof.ok, proof.reason) for proof in proofs] == [(True, "")] * 2
    said, ask = [], "import os, sys; print(sys.version_info[1], os.environ.get('KIND'))"
    for task in swe.tasks():
        with swe.prepare(task, backend) as sandbox:  # type: ignore[attr-defined]
            said.append(sandbox.run(["python3", "-c", ask]).text)
    assert said == [f"{sys.version_info.minor} None\n", f"{OTHER[2:]} other\n"]
    assert len(built(tmp_path / "home")) == 2

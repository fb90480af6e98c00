"""A sandbox holds a task's package once: other copies are masked, and what cannot be masked is
told."""

from __future__ import annotations

import py_compile
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from recreate.domains.validate import validate
from recreate.plugins.swe import Swe, copies
from recreate.plugins.swe.test_run import ProjectTests
from tests.plugins.swe.swe_project import SUMS, TEST_SUMS, Project, _environment, write


@pytest.fixture
def packages(project: Project, tmp_path: Path) -> Path:
    """The site-packages of an environment of its own."""
    return next(_environment(tmp_path / "env").glob("lib/python3*/site-packages"))


def swe_of(project: Project, packages: Path, data: Path | None = None) -> Swe:
    return Swe(data or project.data, env=packages.parents[2], say=lambda _: None, patience=1.0)


@pytest.mark.slow
def test_no_copy_of_the_package_can_be_imported_or_found_outside_the_task_s_folder(
    project: Project, packages: Path
) -> None:
    shutil.copytree(project.repo / "calm", packages / "calm")
    shutil.copytree(project.repo / "calm", packages / "other" / "_vendor" / "calm")
    shutil.copy(project.repo / "calm" / "sums.py", packages / "sums.py")
    py_compile.compile(str(packages / "sums.py"))
    (packages / "words.py").write_text("def other():\n    return 'nothing of it'\n" * 20)
    with zipfile.ZipFile(packages / "calm-1-py3-none-any.whl", "w") as wheel:
        wheel.write(project.repo / "calm" / "sums.py", "calm/sums.py")
    swe = swe_of(project, packages)
    (task,) = swe.tasks("train")
    sandbox = swe.prepare(task, project.backend)
    try:
        seen = sandbox.run(
            f"find {packages} -size +0 -name '*.py*' -o -size +0 -name '*.whl'"
        ).text.split()
        assert [p for p in seen if re.search("calm|sums|words", p)] == [f"{packages}/words.py"]
        assert sandbox.run(["python3", "-I", "-c", "import calm.sums"]).status != 0
        assert (
            sandbox.run(["python3", "-c", "import calm; print(calm.__file__)"]).text
            == "/work/calm/__init__.py\n"
        )
    finally:
        sandbox.close()
    assert validate(swe, task, project.backend).ok


@pytest.mark.slow
def test_a_package_without_copies_has_nothing_masked(project: Project, packages: Path) -> None:
    found = copies.find(
        project.backend, packages.parents[2], project.repo, ProjectTests(tests=("tests",)), print
    )
    assert found == copies.Copies()


@pytest.mark.slow
def test_a_task_whose_answer_lies_in_python_s_library_is_unsound_and_its_neighbours_are_not(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, sound in (("calm/sums.py", False), ("calm/words.py", True)):
        left = copies.Copies(left=(("/usr/lib/python3.11/there.py", module),))
        monkeypatch.setattr(copies, "find", lambda *_, left=left: left)
        proof = validate(project.swe, project.task, project.backend)
        assert proof.ok is sound
        assert (
            "would hold what mends it: /usr/lib/python3.11/there.py" in proof.reason
        ) is not sound


@pytest.mark.slow
def test_a_package_that_pytest_needs_is_tested_from_the_sources_and_breaking_it_is_no_fault_of_ours(
    project: Project, packages: Path, tmp_path: Path
) -> None:
    files = {
        p.relative_to(packages).as_posix(): p.read_text()
        for p in (packages / "iniconfig").rglob("*.py")
    }
    files["iniconfig/__init__.py"] += "\n\n" + SUMS.partition('"""Sums."""')[2]
    files["tests/test_sums.py"] = TEST_SUMS.replace("calm.sums", "iniconfig")
    made = project.make(
        repo=write(tmp_path / "iniconfig", files),
        env=packages.parents[2],
        file=tmp_path / "made.jsonl",
        n=1,
        modules=["iniconfig/__init__.py"],
    )
    swe = swe_of(project, packages, made.file)
    (task,) = made.tasks
    assert validate(swe, task, project.backend).ok
    broken = "--- a/iniconfig/__init__.py\n+++ b/iniconfig/__init__.py\n@@ -1,1 +1,1 @@\n"
    first = files["iniconfig/__init__.py"].split("\n")[0]
    answer = f"{broken}-{first}\n+raise SystemExit(3)\n"
    grade = Project(**{**vars(project), "swe": swe, "task": task}).grade(answer)
    assert not grade.passed
    assert "ended early" in grade.evidence

"""Rows of SWE-bench in the images that were published for them: which one, what an agent gets, how
it is graded, what cached things are known by, and what is said of an image that cannot be had. With
folders in place of images.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from recreate.api import paths
from recreate.api.errors import IMAGE, UNSOUND, Fault
from recreate.api.ports import OpensImages
from recreate.api.registry import find
from recreate.api.types import Task, Trace
from recreate.cli import run
from recreate.domains.validate import validate
from recreate.plugins.swe import Swe, images, patch, rows
from recreate.sandboxes import choose
from tests.plugins.docker.test_docker import RUNNING
from tests.plugins.swe.swebench_images import (
    ImageFolders,
    folder_of,
    image_folder,
    pack,
    python_of_images,
)
from tests.plugins.swe.swebench_rows import (
    BUG,
    MENDED,
    PYTEST_TESTS,
    git,
    pytest_row,
    unittest_row,
    write_rows,
)

OFFICIAL = "swebench/sweb.eval.x86_64.django_1776_django-1:latest"
OWN = "acme/sweb.calm"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_of_images(tmp_path_factory.mktemp("images") / "env")


@pytest.fixture
def clones(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clones that nobody is told of: what rows need of them is in images."""
    monkeypatch.setenv("ROWS_ENV", str(python))
    monkeypatch.setenv("FOLDER_IMAGES", str(tmp_path / "images"))
    monkeypatch.setattr(images.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(ImageFolders, "asked", [])
    monkeypatch.setattr(ImageFolders, "mounted", [])
    return tmp_path / "unnamed"


@pytest.fixture
def calm(clones: Path) -> dict[str, Any]:
    """A row that names its image, which is there."""
    row = pytest_row(clones, image_name=OWN)
    folder_of(clones / "acme__calm", row["base_commit"], OWN)
    return row


class Opened:
    """The domain on some rows, with a backend that opens images."""

    def __init__(self, folder: Path, *found: Any, **given: Any) -> None:
        self.backend = ImageFolders()
        assert isinstance(self.backend, OpensImages)
        self.said: list[str] = []
        data = write_rows(folder / "rows.jsonl", *found)
        self.swe = Swe(data, say=self.said.append, backend=self.backend, **given)
        self.task: Task = self.swe.tasks()[0]

    def answer(self, before: str, after: str, file: str = "calm/words.py") -> Trace:
        text = patch.make({file: before}, {file: after})
        return Trace(attempt="a", task=self.task.id, scaffold="s", model="m", answer=text)


@pytest.mark.parametrize(
    ("change", "processor", "name"),
    [
        ({}, "x86_64", OFFICIAL),
        ({}, "aarch64", OFFICIAL.replace("x86_64", "arm64")),
        ({"instance_id": "Django__Django-1"}, "x86_64", OFFICIAL),
        ({"docker_image": "swerebench/x:1"}, "x86_64", "swerebench/x:1"),
        (
            {"image_name": "swebench/swesmith.x86_64.a_1776_b.0a"},
            "arm64",
            "swebench/swesmith.x86_64.a_1776_b.0a",
        ),
        ({"repo": "acme/calm"}, "x86_64", ""),
        ({"repo": "swesmith/django__django.0123456"}, "x86_64", ""),
    ],
)
def test_a_row_runs_in_the_image_that_it_names_or_that_swebench_has_for_it(
    change: dict[str, str], processor: str, name: str, clones: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images.platform, "machine", lambda: processor)
    assert images.image_of(rows.row_of(unittest_row(clones, **change))) == name


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["pytest", "django"])
def test_gold_passes_and_untouched_fails_in_the_image_without_a_clone(
    runner: str, tmp_path: Path, clones: Path, calm: dict[str, Any]
) -> None:
    row = calm if runner == "pytest" else unittest_row(clones)
    if runner == "django":
        folder_of(clones / "django", row["base_commit"], OFFICIAL)
    found = Opened(tmp_path, row)
    proof = validate(found.swe, found.task, found.backend)
    assert (proof.ok, proof.gold, proof.untouched, proof.reason) == (True, 1.0, 0.0, "")
    assert set(ImageFolders.asked) == {OWN if runner == "pytest" else OFFICIAL}
    assert ImageFolders.mounted == []
    assert (paths.home() / "swe" / "exams").exists() == (runner == "pytest")


@pytest.mark.slow
def test_the_agent_gets_what_the_image_has_as_one_commit(
    tmp_path: Path, calm: dict[str, Any]
) -> None:
    found = Opened(tmp_path, calm)
    assert "To run tests: `pytest -rA --color=no ...`" in found.task.prompt
    sandbox = found.swe.prepare(found.task, found.backend)
    try:
        assert sandbox.run("git log --all --oneline | wc -l; git reflog | wc -l").text.split() == [
            "1",
            "1",
        ]
        assert (
            sandbox.run("git for-each-ref --format='%(refname)'; git status --short").text
            == "refs/heads/main\n"
        )
        objects = (
            "git cat-file --batch-all-objects --batch-check='%(objectname)' | git cat-file --batch"
        )
        held = sandbox.run(f"{objects} --buffer").text
        assert "text.lower()" in held
        assert not [later for later in ("text.upper()", "what was", "ELF") if later in held]
        assert (
            sandbox.run("git ls-files '*.so' made_by_setup.py; wc -c < fast.so").text
            == "made_by_setup.py\n6\n"
        )
        assert sandbox.run("grep -rl test_shout . .git").text == ""
        assert sandbox.run("pytest -q").status == 0
        assert "PYTHONPATH" not in sandbox.run("env").text
        assert found.swe.collect(found.task, sandbox) == ""
        sandbox.write("calm/words.py", MENDED.encode())
        sandbox.write("fast.so", b"\x7fELF\x00\xfe")
        answer = found.swe.collect(found.task, sandbox)
        assert "+    return text.upper()" in answer
        assert answer.startswith("# left out: 'fast.so': not a text file")
    finally:
        sandbox.close()


@pytest.mark.slow
def test_an_answer_is_graded_with_the_rows_tests_and_without_its_own(
    tmp_path: Path, calm: dict[str, Any]
) -> None:
    found = Opened(tmp_path, calm)
    assert found.swe.grade(
        found.task, found.answer(BUG, MENDED + "# mended\n"), found.backend
    ).passed
    easy = found.answer("", PYTEST_TESTS.replace("== 'A'", "== 'a'"), "tests/test_words.py")
    cheat = found.swe.grade(found.task, easy, found.backend)
    assert not cheat.passed
    assert "tests/test_words.py (a test, which is put in its place)" in cheat.evidence
    always = (
        BUG
        + "\n\nclass Any(str):\n    __eq__ = lambda a, b: True\n    __hash__ = None\n\n\nshout ="
        " lambda t: Any()\n"
    )
    forged = found.swe.grade(found.task, found.answer(BUG, always), found.backend)
    assert not forged.passed
    assert "do not tell of the right values" in forged.evidence


@pytest.mark.parametrize(
    ("version", "withheld"),
    [("3.6", False), ("3.7", False), ("3.8", True), ("3.10", True), ("", False)],
)
def test_expected_values_are_withheld_where_the_images_python_can_tell_what_tests_see(
    version: str,
    withheld: bool,
    tmp_path: Path,
    calm: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        images.ImagePython,
        "model_validate_json",
        lambda _: images.ImagePython(path="", runner="", version=version),
    )
    found = Opened(tmp_path, calm)
    assert found.swe._case(found.task).withholds == withheld


@pytest.mark.slow
def test_a_mutated_row_has_its_bug_and_not_the_tests_that_tell(
    tmp_path: Path, clones: Path
) -> None:
    row = pytest_row(clones, image_name=OWN)
    clone = clones / "acme__calm"
    bug = patch.make({"calm/words.py": MENDED}, {"calm/words.py": BUG})
    mirror = f"swesmith/acme__calm.{git(clone, 'rev-parse', 'HEAD')[:8]}"
    row |= {"patch": bug, "test_patch": "", "base_commit": "", "repo": mirror}
    folder_of(clone, "HEAD", OWN)
    found = Opened(tmp_path, row)
    sandbox = found.swe.prepare(found.task, found.backend)
    try:
        assert sandbox.read("calm/words.py").decode() == BUG
        assert sandbox.run("ls tests").text == ""
    finally:
        sandbox.close()
    assert (image_folder(OWN) / "testbed" / "calm" / "words.py").read_text() == MENDED
    assert found.swe.grade(found.task, found.answer(BUG, MENDED), found.backend).passed


@pytest.mark.slow
def test_rows_without_an_image_keep_their_environment_and_need_a_clone(
    tmp_path: Path, clones: Path, calm: dict[str, Any], python: Path
) -> None:
    plain = pytest_row(clones, instance_id="acme__calm-2")
    found = Opened(tmp_path, calm, plain, repos=clones, env=python)
    assert [task.facts.get("image") for task in found.swe.tasks()] == [OWN, None]
    sandbox = found.swe.prepare(found.swe.tasks()[1], found.backend)
    sandbox.close()
    assert ImageFolders.asked == []
    without = Opened(tmp_path, calm, plain)
    assert [task.id for task in without.swe.tasks()] == [found.task.id]
    assert dict(without.swe.refused()) == {"acme__calm-2": "no clones are named: --repos DIR"}


def test_where_no_images_are_opened_rows_are_as_ever(
    tmp_path: Path, clones: Path, calm: dict[str, Any]
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", calm)
    assert "image" not in Swe(data, repos=clones, backend=choose("bwrap")).tasks()[0].facts
    inside = Opened(tmp_path, calm).task
    with pytest.raises(Fault, match="runs in the image acme/sweb") as caught:
        Swe(data, repos=clones).prepare(inside, choose("bwrap"))
    assert caught.value.code == UNSOUND


def test_a_patch_that_cannot_be_read_is_refused_before_an_image_is_pulled(
    tmp_path: Path, calm: dict[str, Any]
) -> None:
    lines = [{**calm, "instance_id": "cut", "test_patch": calm["test_patch"][:-40]}]
    lines += [{**calm, "instance_id": "none", "test_patch": "x"}]
    refused = dict(Opened(tmp_path, calm, *lines).swe.refused())
    assert "a patch of it cannot be read" in refused["cut"]
    assert refused["none"] == "it has no test_patch"
    assert ImageFolders.asked == []


@pytest.mark.slow
def test_what_is_cached_and_attempted_is_known_by_what_the_image_holds(
    tmp_path: Path, calm: dict[str, Any]
) -> None:
    first = Opened(tmp_path, calm)
    known = first.swe.image(first.task)
    first.swe.baseline(first.task, first.backend)
    again = Opened(tmp_path, calm)
    again.swe.baseline(again.task, again.backend)
    assert (again.swe.image(again.task), again.said) == (known, [])
    (image_folder(OWN) / "testbed" / "made_by_setup.py").write_text("version = '1.1'\n")
    other = Opened(tmp_path, calm)
    assert other.task.digest == first.task.digest
    assert other.swe.image(other.task) != known
    other.swe.baseline(other.task, other.backend)
    assert (
        len(
            [
                text
                for text in other.said
                if text.startswith(("copying /testbed", "running the tests"))
            ]
        )
        == 2
    )


def test_what_is_withheld_of_a_row_is_known_without_its_image(
    tmp_path: Path, calm: dict[str, Any]
) -> None:
    found = Opened(tmp_path, {**calm, "image_name": "acme/gone"})
    assert any("text.upper()" in text for text in found.swe.hidden(found.task))
    assert found.swe.lacking(found.task) == ""
    with pytest.raises(Fault, match="acme/gone cannot be pulled") as caught:
        found.swe.prepare(found.task, found.backend)
    assert caught.value.code == IMAGE


# --- from the command line
# --------------------------------------------------------------------------------


@pytest.fixture
def flags(clones: Path, calm: dict[str, Any], workspace: Path) -> list[str]:
    """Four rows, the first three of which have an image that nobody has, and a model that mends
    all."""
    lost = [
        {**calm, "instance_id": f"acme__calm-{n}", "image_name": f"acme/gone-{n}"}
        for n in (2, 3, 4)
    ]
    data = write_rows(workspace / "rows.jsonl", *lost, calm)
    mend = "```bash\nsed -i '3s/lower/upper/' calm/words.py\n```"
    script = [
        {"role": "agent", "step": 0, "text": mend},
        {"role": "agent", "step": 1, "text": "```bash\nsubmit\n```"},
    ]
    (workspace / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in script))
    return ["--data", data.name, "--sandbox", "tests.plugins.swe.swebench_images:ImageFolders"]


@pytest.mark.slow
def test_images_that_cannot_be_had_are_no_outage_and_the_others_go_on(
    flags: list[str], workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [
        "--domain",
        "swe",
        "--model",
        "scripted:s.jsonl",
        "--out",
        "runs/b",
        "--jobs",
        "1",
        "--json",
    ]
    assert run(["bench", "--scaffold", "seed", *flags, *named]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert (cell["n"], cell["mean"], cell["set_aside"]) == (1, 1.0, 3)
    assert [ImageFolders.asked.count(f"acme/gone-{n}") for n in (2, 3, 4)] == [1, 1, 1]
    lines = [
        json.loads(line)
        for line in (workspace / "runs" / "b" / "journal.jsonl").read_text().splitlines()
    ]
    aside = [str(line) for line in lines if "aside" in str(line) and "gone-" in str(line)]
    assert len(aside) == 3
    assert all("cannot be pulled: manifest unknown" in text for text in aside)
    (image_folder(OWN) / "testbed" / "made_by_setup.py").write_text("version = '1.1'\n")
    named[named.index("runs/b")] = "runs/c"
    assert run(["bench", "--scaffold", "seed", *flags, *named]) == 0
    (one,), (other,) = (
        [p.name for p in (workspace / "runs" / where / "attempts").iterdir()]
        for where in ("b", "c")
    )
    assert one != other  # what is attempted in another image is not the same attempt


@pytest.mark.slow
def test_tasks_check_says_which_image_cannot_be_had(
    flags: list[str], workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tasks", "check", "swe", *flags, "--json"]) == 4
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # several are checked at once, long and short ones mixed
    assert sorted((row["ok"], row["reason"]) for row in told) == [
        *(
            (False, f"the image acme/gone-{n} cannot be pulled: manifest unknown")
            for n in (2, 3, 4)
        ),
        (True, ""),
    ]


def test_tasks_list_takes_the_sandbox_that_is_named(
    flags: list[str],
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(["tasks", "list", "swe", "--data", "rows.jsonl", "--json"]) == 0
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("RECREATE_SANDBOX", "tests.plugins.swe.swebench_images:ImageFolders")
    assert run(["tasks", "list", "swe", "--data", "rows.jsonl", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


# --- with an engine
# ---------------------------------------------------------------------------------------


@pytest.mark.docker
@pytest.mark.parametrize("name", RUNNING or ["docker"])
def test_a_row_holds_in_a_container_of_its_image(
    name: str, tmp_path: Path, clones: Path, calm: dict[str, Any], python: Path
) -> None:
    assert RUNNING, "neither docker nor podman runs here: start one, or leave out -m docker"
    backend, image = find("sandbox", name)(), "localhost/recreate-test/sweb.calm:latest"
    packages = next((python / "lib").glob("python3*")) / "site-packages"
    pack(backend.engine, image, image_folder(OWN) / "testbed", packages)
    try:
        swe = Swe(
            write_rows(tmp_path / "rows.jsonl", {**calm, "image_name": image}),
            say=print,
            backend=backend,
        )
        task = swe.tasks()[0]
        proof = validate(swe, task, backend)
        assert (proof.ok, proof.gold, proof.untouched, proof.reason) == (True, 1.0, 0.0, "")
        sandbox = swe.prepare(task, backend)
        try:
            assert (
                sandbox.run("pwd; git log --all --oneline | wc -l; git status --short").text
                == "/testbed\n1\n"
            )
            inside = sandbox.run("cat /proc/self/mountinfo; ls /; echo $PATH").text
            assert sys.base_prefix not in inside
            assert str(python) not in inside
            assert "/opt/miniconda3/envs/testbed/bin:/usr/bin:/bin" in inside
            sandbox.write("calm/words.py", MENDED.encode())
            answer = swe.collect(task, sandbox)
        finally:
            sandbox.close()
        assert swe.grade(
            task, Trace(attempt="a", task=task.id, scaffold="s", model="m", answer=answer), backend
        ).passed
    finally:
        backend.engine.tried("rmi", "--force", image)

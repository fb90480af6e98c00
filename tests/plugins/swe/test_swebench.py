"""Rows of SWE-bench and its kin as tasks: recognised, checked out, graded by their tests' log,
refused one by one."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.trajectory import swebench_prediction
from recreate.api import paths
from recreate.api.errors import UNSOUND, Fault
from recreate.api.ports import SandboxBackend
from recreate.api.types import Experience, Grade, Task, Trace
from recreate.cli import run
from recreate.domains.validate import validate
from recreate.plugins.swe import Swe, patch, rows, swebench, test_log
from recreate.sandboxes import choose
from tests.plugins.swe.swe_project import _environment
from tests.plugins.swe.swebench_rows import (
    BUG,
    MENDED,
    PYTEST,
    PYTEST_TESTS,
    STATEMENT,
    UNITTEST,
    UNITTEST_TESTS,
    git,
    pytest_row,
    unittest_row,
    write_rows,
)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _environment(tmp_path_factory.mktemp("rows") / "env")


@pytest.fixture
def repos(tmp_path: Path) -> Path:
    return tmp_path / "repos"


@pytest.fixture
def backend() -> SandboxBackend:
    return choose()


class Rows:
    """The domain on some rows."""

    def __init__(self, folder: Path, env: Path, *found: Any, patience: float = 20.0) -> None:
        data = write_rows(folder / "rows.jsonl", *found)
        self.said: list[str] = []
        self.swe = Swe(
            data, repos=folder / "repos", env=env, say=self.said.append, patience=patience
        )

    @property
    def task(self) -> Task:
        return self.swe.tasks()[0]

    def grade(
        self, before: dict[str, str], after: dict[str, str], backend: SandboxBackend
    ) -> Grade:
        answer = patch.make({path: before[path] for path in after if path in before}, after)
        trace = Trace(attempt="a", task=self.task.id, scaffold="s", model="m", answer=answer)
        return self.swe.grade(self.task, trace, backend)


@pytest.fixture
def calm(tmp_path: Path, repos: Path, env: Path) -> Rows:
    return Rows(tmp_path, env, pytest_row(repos))


@pytest.fixture
def django(tmp_path: Path, repos: Path, env: Path) -> Rows:
    return Rows(tmp_path, env, unittest_row(repos))


# --- what an agent gets
# -----------------------------------------------------------------------------------


def test_the_prompt_is_the_statement_and_how_to_work(calm: Rows) -> None:
    assert calm.task.prompt.startswith(STATEMENT)
    assert "test_shout" not in calm.task.prompt
    assert (calm.task.id, calm.task.group) == ("swe:acme/calm:acme__calm-1", "acme/calm")


@pytest.mark.slow
def test_the_checkout_is_one_commit_without_a_past_or_a_future(
    calm: Rows, backend: SandboxBackend
) -> None:
    sandbox = calm.swe.prepare(calm.task, backend)
    try:
        assert sandbox.run("git log --all --oneline | wc -l").text.strip() == "1"
        assert (
            sandbox.run("git status --short; git fsck --lost-found --no-progress").text.strip()
            == ""
        )
        objects = (
            "git cat-file --batch-all-objects --batch-check='%(objectname)' | git cat-file --batch"
        )
        held = sandbox.run(f"{objects} --buffer").text
        assert "text.lower()" in held
        assert "text.upper()" not in held
        assert "what was" not in held
        assert sandbox.run("grep -rl test_shout . .git").text == ""
        assert sandbox.read("calm/words.py").decode() == BUG
        assert sandbox.run(["python3", "-m", "pytest", "-q"]).status == 0
        sandbox.write("calm/words.py", MENDED.encode())
        assert "+    return text.upper()" in calm.swe.collect(calm.task, sandbox)
    finally:
        sandbox.close()


@pytest.mark.slow
def test_links_of_a_checkout_are_no_part_of_an_answer(
    tmp_path: Path, repos: Path, env: Path, backend: SandboxBackend
) -> None:
    pytest_row(repos)
    place = repos / "acme__calm"
    git(place, "checkout", "-q", "HEAD~1")
    (place / "link.md").symlink_to("README.md")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "a link")
    found = Rows(tmp_path, env, pytest_row(repos, base_commit=git(place, "rev-parse", "HEAD")))
    sandbox = found.swe.prepare(found.task, backend)
    try:
        assert found.swe.collect(found.task, sandbox) == ""
    finally:
        sandbox.close()


# --- grading
# ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("which", ["calm", "django"])
def test_gold_passes_and_untouched_fails(
    which: str, request: pytest.FixtureRequest, backend: SandboxBackend
) -> None:
    found: Rows = request.getfixturevalue(which)
    proof = validate(found.swe, found.task, backend)
    assert (proof.ok, proof.gold, proof.untouched, proof.reason) == (True, 1.0, 0.0, "")
    assert proof.disk_mb is not None
    assert 0 < proof.disk_mb < 5


@pytest.mark.slow
def test_an_answer_in_other_words_passes_and_one_that_breaks_another_test_does_not(
    django: Rows, backend: SandboxBackend
) -> None:
    mended = MENDED.replace("text.upper()", '"".join(c.upper() for c in text)')
    assert django.grade(UNITTEST, {"django/words.py": mended}, backend).passed
    broken = django.grade(UNITTEST, {"django/words.py": BUG.replace("lower", "upper")}, backend)
    assert not broken.passed
    assert broken.evidence.startswith("FAIL_TO_PASS 2/2, PASS_TO_PASS 0/1")
    assert "- failed: test_quiet (words.tests.WordsTests)" in broken.evidence


@pytest.mark.slow
def test_tests_are_put_over_whatever_an_answer_does_to_them(
    django: Rows, backend: SandboxBackend
) -> None:
    easy = UNITTEST_TESTS.replace("self.assertEqual(shout", "str(shout")
    cheat = django.grade(UNITTEST, {"tests/words/tests.py": easy}, backend)
    assert not cheat.passed
    assert "tests/words/tests.py (a test, which is put in its place)" in cheat.evidence
    both = django.grade(
        UNITTEST, {"django/words.py": MENDED, "tests/words/tests.py": "broken("}, backend
    )
    assert both.passed
    runner = django.grade(
        UNITTEST, {"tests/runtests.py": "print('ok')\n", "django/words.py": BUG + "#\n"}, backend
    )
    assert not runner.passed
    assert "tests/runtests.py (a test)" in runner.evidence


@pytest.mark.slow
def test_expected_values_are_withheld_where_pytest_runs_the_tests(
    calm: Rows, backend: SandboxBackend
) -> None:
    assert calm.grade(PYTEST, {"calm/words.py": MENDED + "# mended\n"}, backend).passed
    always = (
        BUG
        + "\n\nclass Any(str):\n    __eq__ = lambda a, b: True\n    __hash__ = None\n\n\nshout ="
        " lambda t: Any()\n"
    )
    forged = calm.grade(PYTEST, {"calm/words.py": always}, backend)
    assert not forged.passed
    assert "do not tell of the right values" in forged.evidence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import time\ntime.sleep(3600)\n", "the tests were stopped after"),
        ("while True:\n    print('x' * 100_000)\n", "the tests printed more than 16 MB"),
        ("import os\nos._exit(0)\n", "FAIL_TO_PASS 0/2, PASS_TO_PASS 0/1"),
        ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n", "ended early"),
    ],
    ids=["hang", "flood", "exit", "kill"],
)
def test_a_hang_a_flood_and_an_early_end_count_for_nothing(
    code: str, why: str, tmp_path: Path, repos: Path, env: Path, backend: SandboxBackend
) -> None:
    found = Rows(tmp_path, env, unittest_row(repos), patience=3.0)
    shown = (
        "print('test_shout (words.tests.WordsTests) ... ok')\nprint('Capitals are loud. ... ok')\n"
    )
    printed = shown + "print('test_quiet (words.tests.WordsTests) ... ok', flush=True)\n"
    early = "" if code.startswith("import os\n") else printed
    grade = found.grade(UNITTEST, {"django/words.py": MENDED + early + code}, backend)
    assert (grade.score, grade.passed) == (0.0, False)
    assert why in grade.evidence


@pytest.mark.slow
def test_a_row_whose_tests_fail_with_its_own_patch_is_unsound_before_an_attempt_is_paid(
    tmp_path: Path, repos: Path, env: Path, backend: SandboxBackend
) -> None:
    passing = json.dumps(["tests/test_words.py::test_never"])
    found = Rows(tmp_path, env, pytest_row(repos, PASS_TO_PASS=passing))
    with pytest.raises(
        Fault, match=r"even without the bug tests/test_words.py::test_never does not pass"
    ) as caught:
        found.swe.prepare(found.task, backend)
    assert caught.value.code == UNSOUND


# --- what is no task is said, row by row
# ------------------------------------------------------------------


def test_bad_rows_are_refused_one_by_one_and_the_others_go_on(
    tmp_path: Path, repos: Path, env: Path
) -> None:
    good = pytest_row(repos)
    (repos / "acme__empty").mkdir()
    git(repos / "acme__empty", "init", "-q")
    (repos / "acme__plain").mkdir()
    bad = {
        "no-tests": ({"FAIL_TO_PASS": "[]"}, "it has no tests"),
        "not-a-list": ({"FAIL_TO_PASS": "test_a"}, "is no list of names: not JSON, not Python's"),
        "no-commit": (
            {"base_commit": "0123456789abcdef0123456789abcdef01234567"},
            "is not in the clone of acme/calm",
        ),
        "no-base": ({"base_commit": ""}, "it has no base_commit"),
        "does-not-apply": (
            {"patch": good["patch"].replace("lower", "louder")},
            "its patch does not apply",
        ),
        "cut": ({"test_patch": good["test_patch"][:-40]}, "cannot be read"),
        "no-test-patch": ({"test_patch": "x"}, "it has no test_patch"),
        "empty-repository": ({"repo": "acme/empty"}, "is empty: it has no commit"),
        "no-history": ({"repo": "acme/plain"}, "is no git repository"),
        "no-clone": ({"repo": "acme/gone"}, "there is no clone of acme/gone"),
        "old-python": ({"python_that_reproduces": ["2.7"]}, "'2.7' is not a Python like 3.9"),
        "odd-repo": ({"repo": "../../etc"}, "repo"),
    }
    lines = [{**good, "instance_id": name, **change} for name, (change, _) in bad.items()]
    found = Rows(
        tmp_path, env, good, *lines, "not JSON", {"instance_id": "few", "repo": "a/b", "patch": "x"}
    )
    assert [task.id for task in found.swe.tasks()] == ["swe:acme/calm:acme__calm-1"]
    refused = dict(found.swe.refused())
    assert set(refused) == {*bad, f"line {len(bad) + 2}", "few"}
    for name, (_, why) in bad.items():
        assert why in refused[name], name
    assert any(f"{len(bad) + 2} rows are left out" in text for text in found.said)


def test_a_row_whose_python_is_not_here_is_lacking_it(tmp_path: Path, repos: Path) -> None:
    data = write_rows(
        tmp_path / "rows.jsonl", pytest_row(repos, python_that_reproduces=["3.8.99", "3.9.99"])
    )
    swe = Swe(data, repos=repos, say=lambda _: None)
    assert swe.lacking(swe.tasks()[0]).startswith("Python 3.8.99 is not on this machine")
    data = write_rows(
        data, pytest_row(repos, python_that_reproduces=["3.8.99", f"3.{sys.version_info.minor}"])
    )
    swe = Swe(data, repos=repos, say=lambda _: None)
    assert swe.lacking(swe.tasks()[0]) == ""


def test_tasks_check_lists_what_is_refused_and_exits_4(
    tmp_path: Path, repos: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = [
        pytest_row(repos, instance_id=f"acme__calm-{n}", base_commit=f"{n}" * 40) for n in (2, 3)
    ]
    data = write_rows(tmp_path / "rows.jsonl", pytest_row(repos, FAIL_TO_PASS=[]), *lost)
    words = ["tasks", "check", "swe", "--data", str(data), "--repos", str(repos), "--json"]
    assert run(words) == 4
    told = capsys.readouterr()
    rows_ = list(map(json.loads, told.out.splitlines()))
    assert [(row["task"], row["ok"]) for row in rows_] == [
        (f"acme__calm-{n}", False) for n in (1, 2, 3)
    ]
    assert rows_[0]["reason"].startswith("it has no tests")
    assert (
        "0 of 3 tasks hold\n    2  the commit ... is not in the clone of acme/calm\n    1  it has"
        " no tests" in told.err
    )


@pytest.mark.parametrize(
    "command", ["tasks list", "tasks check", "plan", "bench --scaffold seed", "build"]
)
def test_every_command_takes_rows_and_says_when_they_are_not_there(
    command: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    domain = ["swe"] if command.startswith("tasks") else ["--model", "scripted:none.jsonl"]
    assert run([*command.split(), *domain, "--data", "rows.jsonl", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "there is no rows.jsonl"


# --- from the command line
# --------------------------------------------------------------------------------


@pytest.fixture
def flags(
    tmp_path: Path, repos: Path, env: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Four rows, three of which are unsound here, and a model that mends all."""
    unsound = [
        unittest_row(repos, instance_id=f"django__django-{n}", PASS_TO_PASS=["test_gone (a.B)"])
        for n in "234"
    ]
    rows_ = [*unsound, unittest_row(repos)]
    data = write_rows(workspace / "rows.jsonl", *rows_)
    mend = "```bash\nsed -i '3s/lower/upper/' django/words.py\n```"
    script = [
        {"role": "agent", "step": 0, "text": mend},
        {"role": "agent", "step": 1, "text": "```bash\nsubmit\n```"},
    ]
    (workspace / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in script))
    monkeypatch.setenv("ROWS_ENV", str(env))
    named = ["--domain", "tests.plugins.swe.swebench_rows:RowsHere", "--model", "scripted:s.jsonl"]
    return [*named, "--data", data.name, "--repos", "../repos"]


@pytest.mark.slow
def test_a_bench_on_rows_gives_predictions_for_the_harness(
    flags: list[str],
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared: list[str] = []
    prepare = Swe.prepare
    monkeypatch.setattr(Swe, "prepare", lambda *a: (prepared.append(a[1].id[-1]), prepare(*a))[1])
    assert (
        run(["bench", "--scaffold", "seed", *flags, "--out", "runs/b", "--jobs", "1", "--json"])
        == 0
    )
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert (cell["n"], cell["mean"], cell["set_aside"]) == (1, 1.0, 3)
    assert prepared == ["2", "3", "4", "1"]  # none is tried again, and three in a row are no outage
    settings = (workspace / "runs" / "b" / "settings.toml").read_text()
    assert f'data = "{workspace / "rows.jsonl"}"' in settings
    out = workspace / "predictions.jsonl"
    export = [
        "traces",
        "export",
        "--run",
        "runs/b",
        "--split",
        "validation",
        "--format",
        "predictions",
    ]
    assert run([*export, "--out", str(out)]) == 0
    (line,) = map(json.loads, out.read_text().splitlines())
    assert line.keys() == {"instance_id", "model_name_or_path", "model_patch"}
    assert line["instance_id"] == "django__django-1"
    assert line["model_patch"].startswith(
        "diff --git a/django/words.py b/django/words.py\n--- a/django/words.py\n"
    )
    assert run([*export, "--agent", "none", "--out", str(workspace / "x")]) == 2


def test_a_prediction_is_the_diff_alone() -> None:
    trace = Trace(
        attempt="a",
        task="swe:a/b:a__b-1",
        scaffold="s",
        model="m",
        answer="# left out: 'x'\ndiff --git\n",
    )
    facts = {
        "domain": "swe",
        "task": trace.task,
        "group": "a/b",
        "split": "test",
        "prompt": "",
        "digest": "d",
    }
    e = Experience(id="e", trace=trace, grade=Grade(score=0.0, passed=False), **facts)
    assert swebench_prediction(e) == {
        "instance_id": "a__b-1",
        "model_name_or_path": "recreate.d.m",
        "model_patch": "diff --git\n",
    }


def test_one_row_is_attempted(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "seed", "swe:django/django:django__django-1", *flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
    assert (
        run(
            [
                "run",
                "seed",
                "swe:django/django:django__django-2",
                *flags,
                "--out",
                "runs/u",
                "--json",
            ]
        )
        == 1
    )
    assert (
        "cannot be graded here: even without the bug test_gone (a.B) does not pass"
        in capsys.readouterr().out
    )


@pytest.mark.slow
def test_predictions_are_of_one_agent(
    flags: list[str], capsys: pytest.CaptureFixture[str], workspace: Path
) -> None:
    task, other = "swe:django/django:django__django-1", workspace / "scaffolds" / "other"
    shutil.copytree(paths.shipped("scaffolds") / "seed", other)
    (other / "system.md").write_text("Mend it.\n")
    for agent in ("seed", "other"):
        assert run(["run", agent, task, *flags, "--out", f"runs/{agent}", "--json"]) == 0
    export = [
        "traces",
        "export",
        "--domain",
        "swe",
        "--split",
        "validation",
        "--format",
        "predictions",
        "--json",
    ]
    capsys.readouterr()
    assert run([*export, "--out", "p.jsonl"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], (workspace / "p.jsonl").exists()) == ("several-agents", False)
    digest = error["message"].split()[4]
    assert run([*export, "--agent", digest, "--out", "p.jsonl"]) == 0


# --- schemas
# ----------------------------------------------------------------------------------------------


def test_names_are_taken_however_a_publisher_writes_lists(repos: Path) -> None:
    names = ["tests/a.py::test_b", "tests/a.py::test_c[it's]"]
    spelled = (names, json.dumps(names), str(names), "\n".join(names) + "\n", repr(tuple(names)))
    for given in spelled:
        for other in ({"FAIL_TO_PASS": given}, {"FAIL_TO_PASS": None, "fail_to_pass": given}):
            assert rows.row_of(pytest_row(repos, **other)).fail_to_pass == tuple(names)
    for bad in ("test_a", "[1, 2", "{'a': 1}", "['a', 1]", "[" * 5000):
        with pytest.raises(ValueError, match="is no list of names"):
            rows.row_of(pytest_row(repos, FAIL_TO_PASS=bad))


@pytest.mark.parametrize("what", ["patch", "test_patch"])
def test_a_patch_whose_lines_all_end_in_returns_applies_as_the_harness_takes_it(
    tmp_path: Path, repos: Path, what: str
) -> None:
    row = rows.row_of(pytest_row(repos))
    bent = row.model_copy(update={what: getattr(row, what).replace("\n", "\r\n")})
    assert swebench.usable([bent], repos) == ([row], [])
    half = getattr(row, what).replace("\n", "\r\n").replace("\r\n@@", "\n@@")
    half = half.replace(".py\r\n", ".py\n")
    kept, refused = swebench.usable([row.model_copy(update={what: half})], repos)
    assert (kept, "does not apply" in refused[0].reason) == ([], True)  # its headings have none


def test_a_file_that_is_not_utf_8_is_said_to_be_there(repos: Path) -> None:
    row = pytest_row(repos)
    place = repos / "acme__calm"
    git(place, "checkout", "-q", row["base_commit"])
    (place / "calm" / "old.py").write_bytes(b"# caf\xe9\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "old")
    change = patch.make({"calm/old.py": "# cafe\n"}, {"calm/old.py": "# tea\n"})
    odd = rows.row_of({**row, "patch": change, "base_commit": git(place, "rev-parse", "HEAD")})
    kept, refused = swebench.usable([odd], repos)
    assert not kept
    assert refused[0].reason == "its patch changes calm/old.py, which is there and is not UTF-8"


def test_rows_of_swe_rebench_bring_their_python_and_requirements(repos: Path) -> None:
    from recreate.plugins.swe.swebench import specification

    frozen = "calm==1.0\nattrs==23.1.0\npip==24.0\npytest==7.4.4\n-e git+https://x/y.git#egg=z\n"
    row = rows.row_of(
        pytest_row(
            repos, install_config={"python": "3.9", "test_cmd": "pytest"}, requirements=frozen
        )
    )
    spec = specification(row)
    assert (spec.python, spec.requires, spec.pytest) == (("3.9",), ("attrs==23.1.0",), "7.4.4")
    conda = "name: x\ndependencies:\n  - python=3.10.4=h1\n  - pip:\n    - attrs==23.1.0\n"
    row = rows.row_of(pytest_row(repos, environment=conda))
    assert (row.python, row.requires) == (("3.10",), ("attrs==23.1.0",))


@pytest.mark.slow
def test_rows_of_swe_smith_have_the_bug_as_their_patch(
    tmp_path: Path, repos: Path, env: Path, backend: SandboxBackend
) -> None:
    pytest_row(repos)
    mended = {**PYTEST, "calm/words.py": MENDED, "tests/test_words.py": PYTEST_TESTS}
    row = {
        "instance_id": "acme__calm.12345678.lm_rewrite__1",
        "repo": f"swesmith/acme__calm.{git(repos / 'acme__calm', 'rev-parse', 'HEAD')[:8]}",
        "image_name": "swebench/swesmith.x86_64.acme__calm",
        "patch": patch.make({"calm/words.py": MENDED}, {"calm/words.py": BUG}),
        "problem_statement": "",
        "FAIL_TO_PASS": ["tests/test_words.py::test_shout"],
        "PASS_TO_PASS": ["tests/test_words.py::test_quiet"],
    }
    found = Rows(tmp_path, env, row)
    assert found.task.group == "acme/calm"
    assert "- tests/test_words.py::test_shout" in found.task.prompt
    assert validate(found.swe, found.task, backend).ok
    assert patch.read(found.swe.gold(found.task))[0].hunks[0].new[-1:] != []
    hidden = Rows(tmp_path, env, {**row, "problem_statement": STATEMENT})
    sandbox = hidden.swe.prepare(hidden.task, backend)
    try:
        assert sandbox.read("calm/words.py").decode() == BUG
        with pytest.raises(FileNotFoundError):
            sandbox.read("tests/test_words.py")
        assert sandbox.run("git log --all -p | grep -c text.upper").text.strip() == "0"
    finally:
        sandbox.close()
    assert hidden.grade(mended | {"calm/words.py": BUG}, {"calm/words.py": MENDED}, backend).passed


@pytest.mark.slow
def test_rows_come_from_json_parquet_and_a_saved_data_set(tmp_path: Path, repos: Path) -> None:
    import datasets

    row = pytest_row(repos)
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    table = datasets.Dataset.from_list([row])
    table.to_parquet(tmp_path / "rows.parquet")
    datasets.DatasetDict({"test": table, "dev": table}).save_to_disk(tmp_path / "saved")
    (tmp_path / "folder" / "data").mkdir(parents=True)
    table.to_parquet(tmp_path / "folder" / "data" / "test-00000-of-00001.parquet")
    for place in ("rows.json", "rows.parquet", "saved", "folder"):
        assert rows.holds_rows(tmp_path / place), place
        found, refused = rows.read(tmp_path / place)
        assert [(r.instance_id, r.statement) for r, _ in found] == [("acme__calm-1", STATEMENT)], (
            place
        )
        assert refused == []


def test_a_name_of_the_hub_is_asked_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, repos: Path
) -> None:
    import datasets

    asked: list[Any] = []

    def load(name: str, config: str | None = None, split: str | None = None) -> Any:
        asked.append((name, split))
        table = datasets.Dataset.from_list([pytest_row(repos)])
        return table if split else datasets.DatasetDict({"dev": table.select([]), "test": table})

    monkeypatch.setattr(datasets, "load_dataset", load)
    for name in ("SWE-bench/SWE-bench_Lite", "hub:SWE-bench/SWE-bench_Lite:dev"):
        assert rows.holds_rows(name)
        assert len(rows.read(name)[0]) == 1
    assert asked == [("SWE-bench/SWE-bench_Lite", None), ("SWE-bench/SWE-bench_Lite", "dev")]


def test_a_repository_is_never_split_and_the_largest_is_for_validation(repos: Path) -> None:
    row = rows.row_of(pytest_row(repos))
    many = [row.model_copy(update={"repo": f"a/{name}"}) for name in "xxxxxyyyz"]
    assert rows.dealt([(r, None) for r in many]) == {
        "a/x": "validation",
        "a/y": "train",
        "a/z": "test",
    }
    assert rows.dealt([(r, "test") for r in many[:1]] + [(r, None) for r in many[1:5]]) == {
        "a/x": "test"
    }


# --- names and logs
# ---------------------------------------------------------------------------------------


def test_names_of_old_and_new_pythons_are_one() -> None:
    new, old = "test_a (m.tests.Class.test_a)", "test_a (m.tests.Class)"
    assert test_log.normal(new, "django") == test_log.normal(old, "django") == old
    assert test_log.normal("Ensures (this) works.", "django") == "Ensures (this) works."


def test_a_log_of_unittest_is_read() -> None:
    log = """test_a (m.C.test_a) ... ok
test_b (m.C.test_b)
Its docstring ... has dots. ... ok
test_c (m.C.test_c) ... Testing against Django installed in '/x'
ok
test_d (m.C.test_d) ... skipped 'no'
test_e (m.C.test_e) ... FAIL
test_f (m.C.test_f) ... ERROR
setUpClass (m.D) ... ERROR
test_e (m.C.test_e) ... ok
FAIL: test_e (m.C.test_e)
"""
    assert test_log.read(log, "django") == {
        "test_a (m.C)": "passed",
        "test_b (m.C)": "passed",
        "Its docstring ... has dots.": "passed",
        "test_c (m.C)": "passed",
        "test_d (m.C)": "skipped",
        "test_e (m.C)": "failed",
        "test_f (m.C)": "error",
        "setUpClass (m.D)": "error",
    }


def test_a_log_of_pytest_is_read_with_the_names_of_the_harness() -> None:
    log = """\x1b[32mPASSED\x1b[0m a.py::test_a
PASSED a.py::test_p[one two]
FAILED a.py::test_b - assert 'x - y' == 1
XFAIL a.py::test_x - later
SKIPPED [1] a.py:3: no
PASSED a.py::test_t
ERROR a.py::test_t - teardown
PASSED a.py::test_q[/tmp/here/b.py]
"""
    found = test_log.read(log, "pytest", "pylint-dev/pylint")
    assert {name: outcome for name, outcome in found.items() if "::" in name} == {
        "a.py::test_a": "passed",
        "a.py::test_p[one": "passed",
        "a.py::test_b": "failed",
        "a.py::test_x": "passed",
        "a.py::test_t": "error",
        "a.py::test_q[/b.py]": "passed",
    }


def test_what_a_test_prints_decides_nothing() -> None:
    log = """live log: PASSED a.py::test_b
==================================== PASSES ====================================
----------------------------- Captured stdout call -----------------------------
FAILED a.py::test_a - no
PASSED a.py::test_b
\x1b[36m\x1b[1m========== short test summary info ==========\x1b[0m
PASSED a.py::test_a
FAILED a.py::test_b - assert 1 == 2
"""
    assert test_log.read(log, "pytest") == {"a.py::test_a": "passed", "a.py::test_b": "failed"}
    # what looks like a heading takes nothing from the real one
    log = "=== short test summary info ===\nPASSED a.py::test_b\n" + log
    assert test_log.read(log, "pytest")["a.py::test_b"] == "failed"


def test_a_log_of_sympy_is_read() -> None:
    log = (
        "x/tests/test_y.py[4]\ntest_a ok\ntest_b F\ntest_c f\ntest_d E\n____"
        " x/tests/test_y.py:test_b ____\n"
    )
    found = test_log.read(log, "sympy")
    assert (found["test_a"], found["test_b"], found["test_c"], found["test_d"]) == (
        "passed",
        "failed",
        "expected",
        "error",
    )


def test_the_version_of_python_is_the_row_s(repos: Path) -> None:
    from recreate.plugins.swe.swebench import specification

    assert specification(rows.row_of(unittest_row(repos))).python == (
        f"3.{sys.version_info.minor}",
    )
    row = unittest_row(repos, version="4.2")
    del row["python_that_reproduces"]
    assert specification(rows.row_of(row)).python[0] == "3.9"

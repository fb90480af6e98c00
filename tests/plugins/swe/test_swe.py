"""The domain swe: what an agent gets, what it hands in, what passes, and what is said when a recipe
is wrong."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.attempt import attempt
from recreate.agents.scaffold import load
from recreate.api import paths, registry
from recreate.api.errors import BadInput, Fault, Interrupted
from recreate.api.ports import Domain, Validatable
from recreate.api.types import Call, Trace
from recreate.domains.validate import validate
from recreate.plugins.swe import Swe, facts
from recreate.plugins.swe.facts import INJECTED, REAL
from recreate.plugins.swe_tasks import generate
from tests.agents.test_request import Taped, text
from tests.plugins.swe.swe_project import FILES, SUMS, Project, recipe, write

HIDDEN = "test_parts"


# --- what an agent gets
# -----------------------------------------------------------------------------------


def test_the_domain_is_found_by_name_and_is_provable() -> None:
    found = registry.find("domain", "swe")(Path("nowhere"))
    assert isinstance(found, Validatable)
    assert {"tasks", "prepare", "collect", "grade", "name"} <= set(dir(found)) & set(
        dir(Domain)
    ) | {"name"}


@pytest.mark.slow
def test_the_sandbox_holds_the_bug_the_shown_test_and_not_the_hidden_one(project: Project) -> None:
    sandbox = project.swe.prepare(project.task, project.backend)
    try:
        assert sandbox.read("calm/sums.py").decode() == SUMS.replace("value > high", "value < high")
        assert sandbox.run(f"grep -rq {HIDDEN} . || git log -p | grep -q {HIDDEN}").status == 1
        assert sandbox.run("git status --short").text == ""
        public = json.loads(sandbox.read(".recreate/public.json"))
        assert public == {
            "fail": ["tests/test_sums.py::test_high_is_high"],
            "suite": ["tests"],
            "python_path": ["."],
        }
        ran = sandbox.run(["python3", "-m", "pytest", "-q", *public["fail"]])
        assert ran.status == 1
        assert "assert 4 == 3" in ran.text
        others = sandbox.run("python3 -m pytest -q; python3 -m coverage --version")
        assert "failed" in others.text
        assert "Coverage.py" in others.text
    finally:
        sandbox.close()


def test_packages_of_the_interpreter_itself_are_not_in_the_sandbox(project: Project) -> None:
    sandbox = project.swe.prepare(project.task, project.backend)
    try:
        seen = sandbox.run(
            "find / -path /proc -prune -o -path /usr -prune -o -name METADATA -print"
        ).text
    finally:
        sandbox.close()
    assert [line for line in seen.splitlines() if f"{project.env}/" not in line] == []


def test_the_prompt_says_what_is_seen_and_not_where(project: Project) -> None:
    assert "tests/test_sums.py::test_high_is_high" in project.task.prompt
    assert "assert 4 == 3" in project.task.prompt
    assert "calm/sums.py" not in project.task.prompt
    assert "clamp" not in project.task.prompt.replace("tests/test_sums", "")
    assert HIDDEN not in project.task.prompt


@pytest.mark.slow
def test_what_is_handed_in_is_the_difference_of_files_whatever_git_says(project: Project) -> None:
    mend = project.source("calm/sums.py") + "# mended\n"
    sandbox = project.swe.prepare(project.task, project.backend)
    try:
        assert project.swe.collect(project.task, sandbox) == ""
        sandbox.write("calm/sums.py", mend.encode())
        sandbox.write("calm/new file.py", b"x = 1\r\ny = 2")
        sandbox.write("calm/empty.py", b"")
        sandbox.write("calm/blob.bin", b"\xff\xfe\x00")
        sandbox.run(
            "rm README.md; rm -rf .git; git init -q .; git config core.fsmonitor 'touch /tmp/x'; ln"
            " -s /etc/passwd calm/link.py; mkdir calm/__pycache__; echo 1 > calm/__pycache__/a.pyc"
        )
        diff = project.swe.collect(project.task, sandbox)
    finally:
        sandbox.close()
    assert "+# mended\n" in diff
    assert "+x = 1\r\n+y = 2\n\\ No newline at end of file\n" in diff
    assert "deleted file mode 100644\n--- a/README.md" in diff
    assert "b/calm/empty.py\nnew file mode 100644\n" in diff
    assert "# left out: 'calm/blob.bin': not a text file" in diff
    assert "passwd" not in diff
    assert "__pycache__" not in diff
    trace = Trace(attempt="a", task=project.task.id, scaffold="s", model="m", answer=diff)
    assert project.swe.grade(project.task, trace, project.backend).evidence.startswith(
        "FAIL_TO_PASS 0/2, PASS_TO_PASS 11/11"
    )


def test_modules_in_the_sandbox_do_not_reach_what_reads_it(project: Project) -> None:
    answer = project.answer({"json.py": "raise SystemExit\n", "calm/sums.py": SUMS})
    assert "b/calm/sums.py" in answer


# --- the agent for small models that a person wrote
# ---------------------------------------------------------

CLAMP = SUMS.partition("\n\n\n")[2].partition("\n\n\n")[0]

MATH = CLAMP.replace("value > high", "value > math.floor(high)")


def _by_hand(project: Project, *codes: str) -> tuple[Trace, Taped]:
    """What comes of the functions that a model writes."""
    taped = Taped([text(f"So:\n```python\n{code}\n```") for code in codes])
    agent = load(paths.shipped("scaffolds") / "hand-swe-small")
    call = Call(run="r", attempt="a", step=0, task=project.task.id)
    return attempt(agent, project.task, project.swe, project.backend, taped, call), taped


@pytest.mark.slow
def test_the_hand_written_agent_sees_the_failing_test_and_tries_until_it_passes(
    project: Project,
) -> None:
    trace, taped = _by_hand(
        project,
        CLAMP.replace("value > high", "value == high"),
        f"import math\n\n{MATH}  # corrected",
    )
    assert (trace.ending, trace.chosen, taped.replies) == ("submitted", 1, [])
    shown = trace.steps[1].observation
    assert "def test_high_is_high" in shown
    assert CLAMP.replace("value > high", "value < high") in shown
    assert project.grade(trace.answer).passed
    assert "+import math" in trace.answer
    assert "# corrected" not in trace.answer


@pytest.mark.slow
def test_the_hand_written_agent_repeats_no_useless_change_and_hands_in_one(
    project: Project,
) -> None:
    given = CLAMP.replace("value > high", "value < high")
    trace, _ = _by_hand(
        project, given, "x = 1", given.replace("return low", "return high"), "", given
    )
    asked = [step for step in trace.steps if step.kind != "before"]
    assert ([step.sample for step in asked], trace.ending, trace.chosen) == (
        [0, 1, 2, 3, 4],
        "limit",
        2,
    )
    assert asked[0].output == "that is the code as it was\n"
    assert "+        return high\n" in trace.answer


# --- whether tasks are sound
# ------------------------------------------------------------------------------


def test_gold_passes_and_untouched_fails(project: Project) -> None:
    proof = validate(project.swe, project.task, project.backend)
    assert (proof.ok, proof.gold, proof.untouched, proof.reason) == (True, 1.0, 0.0, "")
    assert (proof.task, proof.group, proof.split) == (
        "swe:calm-1:sums.clamp-compare-1",
        "calm/sums",
        "train",
    )
    assert proof.digest == project.task.digest


def test_untouched_only_what_the_gold_may_have_mended_or_broken_is_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, run = [], Swe._run
    monkeypatch.setattr(
        Swe, "_run", lambda *args, **how: runs.append(run(*args, **how)) or runs[-1]
    )
    grade, broken = project.swe.compared(project.task, project.backend)
    assert (grade.score, grade.passed, broken) == (0.0, False, [])
    assert grade.evidence.startswith("FAIL_TO_PASS 0/2, PASS_TO_PASS ")
    whole = [
        t
        for t in project.swe.baseline(project.task, project.backend).passed
        if t.startswith("tests/test_sums.py")
    ]
    # and nothing of tests/test_words.py, all of which passes
    assert sorted(runs[-1].outcomes) == sorted(whole)


@pytest.mark.slow
def test_a_task_that_does_not_hold_here_says_why(project: Project, tmp_path: Path) -> None:
    source, task = map(json.loads, project.data.read_text().splitlines())
    easy, gone = {**task, "id": "easy"}, {**task, "id": "gone"}
    easy["fail_to_pass"] = easy["public"] = ["tests/test_sums.py::test_mean"]
    gone["fail_to_pass"] = gone["public"] = ["tests/test_sums.py::test_never"]
    swe = Swe(_recipe(tmp_path, source, easy, gone), env=project.env, say=lambda _: None)
    proofs = [validate(swe, t, project.backend) for t in swe.tasks()]
    assert [p.ok for p in proofs] == [False, False]
    assert "passes before anything is mended" in proofs[0].reason
    assert "even without the bug tests/test_sums.py::test_never does not pass" in proofs[1].reason


def test_a_baseline_is_measured_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    first = project.swe.baseline(project.task, project.backend)
    assert len(first.passed) == 13
    assert any("::b" in t and "[" in t for t in first.passed)
    monkeypatch.setattr(Swe, "_run", None)
    assert project.swe.baseline(project.task, project.backend) == first


@pytest.mark.slow
def test_an_environment_without_pytest_is_a_fault_and_no_failure_of_the_agent(
    project: Project, tmp_path: Path
) -> None:
    import venv

    venv.create(tmp_path / "bare", with_pip=False)
    swe = Swe(project.data, env=tmp_path / "bare", say=lambda _: None)
    with pytest.raises(Fault, match="did not start"):
        swe.untouched(project.task, project.backend)


# --- the shipped tasks
# ------------------------------------------------------------------------------------


def test_shipped_tasks_are_enough_and_no_group_is_split() -> None:
    tasks = Swe(paths.shipped("benchmarks") / "swe").tasks()
    real = [t for t in tasks if t.facts["kind"] == "real"]
    injected = [t for t in tasks if t.facts["kind"] == "injected"]
    splits = Counter(t.split for t in tasks)
    assert len(real) >= 120
    assert len({t.facts["package"] for t in real}) >= 30
    assert all(count >= 40 for count in Counter(t.split for t in real).values())
    assert len(injected) >= 48
    assert splits["train"] >= 16
    assert splits["validation"] >= 24
    assert splits["test"] >= 16
    assert len({t.facts["origin"]["package"] for t in injected}) >= 5
    packages = {s: {t.group.partition("/")[0] for t in tasks if t.split == s} for s in splits}
    assert not packages["test"] & (packages["train"] | packages["validation"])
    assert all(t.id.startswith("swe:") and t.id.count(":") == 2 for t in tasks)


def test_shipped_prompts_do_not_name_the_mutated_file_or_hidden_tests() -> None:
    for task in Swe(paths.shipped("benchmarks") / "swe").tasks():
        if task.facts["kind"] == "injected":
            bug = task.facts["bug"]
            # `test_NAME.py` is another file than `NAME.py`
            for part in (bug, *bug.get("more", ())):
                assert not re.search(rf"(?<!\w){re.escape(part['file'])}", task.prompt)
            for hidden in set(bug["fail_to_pass"]) - set(bug["public"]):
                assert f"- {hidden}\n" not in task.prompt


def test_recipes_hold_no_code() -> None:
    for line in (paths.shipped("benchmarks") / "swe" / INJECTED).read_text().splitlines():
        assert set(json.loads(line)) <= {
            *(
                "schema",
                "kind",
                "name",
                "package",
                "version",
                "sha256",
                "path",
                "commit",
                "digest",
                "seconds",
            ),
            *(
                "tests",
                "python_path",
                "requires",
                "deselect",
                "source",
                "id",
                "file",
                "function",
                "operator",
            ),
            *(
                "occurrence",
                "mutant",
                "split",
                "group",
                "fail_to_pass",
                "public",
                "observed",
                "more",
                "earlier",
            ),
            "fails",
        }


# --- making tasks
# -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_made_tasks_are_sound_and_the_same_again(project: Project, tmp_path: Path) -> None:
    said: list[str] = []
    made = project.make(file=tmp_path / "a.jsonl", n=1, seed=1, on_progress=said.append)
    again = project.make(file=tmp_path / "b.jsonl", n=1, seed=1)
    assert [t.digest for t in made.tasks] == [t.digest for t in again.tasks]
    assert len(made.tasks) == 1
    assert made.tried >= 1
    assert any("13 tests pass" in s for s in said)
    swe = Swe(tmp_path / "a.jsonl", env=project.env, say=lambda _: None)
    task = swe.tasks()[0]
    assert task.group.startswith("calm/")
    assert validate(swe, task, project.backend).ok


@pytest.mark.slow
def test_tasks_are_written_as_they_are_found_and_ctrl_c_says_how_many(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / INJECTED
    how = {"n": 2, "modules": ["calm/sums.py"]}
    whole = {t.digest for t in project.make(file=tmp_path / "whole.jsonl", **how).tasks}
    [old] = project.make(file=file, n=1, modules=["calm/words.py"]).tasks

    add = facts.add

    def interrupted(*arguments: Any, **how: Any) -> None:
        monkeypatch.setattr(facts, "add", add)
        raise KeyboardInterrupt

    monkeypatch.setattr(facts, "add", interrupted)
    with pytest.raises(Interrupted, match=f"1 task is written to {re.escape(str(file))}") as e:
        project.make(file=file, **how)
    assert e.value.fix.startswith(
        f"recreate tasks check swe --data {file} validates what is there; the same command"
    )
    one, *more = sorted(Swe(file).tasks(), key=lambda t: t.id == old.id)
    assert [t.digest for t in more] == [old.digest]  # which goes only when the others are all there
    assert one.group.startswith("calm/sums")
    seen: list[int] = []

    def look(line: str) -> None:
        seen.extend([len(Swe(file).tasks())] * (" of 2 after " in line))

    assert {t.digest for t in project.make(file=file, on_progress=look, **how).tasks} == whole
    assert seen == [2, 3]
    assert {t.digest for t in Swe(file).tasks()} == whole


@pytest.mark.slow
def test_made_tasks_keep_the_split_their_group_has(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "benchmarks" / "swe" / INJECTED
    file.parent.mkdir(parents=True)
    lines = [json.loads(line) for line in project.data.read_text().splitlines()]
    lines[1]["split"] = "validation"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = project.make(file=file, n=1, modules=["calm/sums.py"])
    assert [(t.group, t.split) for t in made.tasks] == [("calm/sums", "validation")]
    assert len(Swe(file).tasks()) == 2
    with pytest.raises(BadInput, match="calm/sums has validation tasks already"):
        project.make(file=file, n=1, modules=["calm/sums.py"], split="train")


@pytest.mark.slow
def test_a_repository_that_changed_is_refused_unless_git_has_its_older_state(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    repo = write(tmp_path / "kept", FILES)
    commands = ["init -q", "add -A", "-c user.name=a -c user.email=a@b commit -q -m one"]
    for command in commands:
        subprocess.run(["git", *command.split()], cwd=repo, check=True)
    file = tmp_path / INJECTED
    file.write_text(recipe(repo, str(repo)))
    assert json.loads(file.read_text().splitlines()[0])["commit"]
    (repo / "calm" / "sums.py").write_text("changed = True\n")
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "fresh"))
    swe = Swe(file, env=project.env, say=lambda _: None)
    swe.prepare(swe.tasks()[0], project.backend).close()

    subprocess.run(["rm", "-rf", str(repo / ".git")], check=True)
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "fresher"))
    with pytest.raises(BadInput, match="has changed since") as e:
        swe.prepare(swe.tasks()[0], project.backend)
    assert "recreate tasks make swe --repo" in e.value.fix


@pytest.mark.slow
def test_what_a_test_says_that_wavers_is_no_part_of_a_prompt(
    project: Project, tmp_path: Path
) -> None:
    test = (
        "import time\nfrom calm.sums import mean\n\ndef test_mean():\n    found = mean([1, 2, 6])\n"
    )
    files = FILES | {
        "tests/test_sums.py": test + "    assert found == 3, f'not 3, after {time.time_ns()} ns'\n"
    }
    repo = write(tmp_path / "timed", files)
    made = project.make(repo=repo, file=tmp_path / "a.jsonl", n=1, modules=["calm/sums.py"])
    assert "not 3, after ... ns" in made.tasks[0].prompt


@pytest.mark.slow
def test_tests_that_fail_before_any_bug_are_left_out(project: Project, tmp_path: Path) -> None:
    more = {
        "tests/test_bad.py": (
            "import calm.sums, random\n\ndef test_bad():\n    assert calm.sums.mean([1]) =="
            " 2\n\nimport pytest, time\n@pytest.mark.parametrize('x', [time.time_ns()])\ndef"
            " test_wavers(x): pass\n"
        ),
        "tests/test_import.py": "import not_installed\n",
    }
    repo = write(tmp_path / "shaky", FILES | more)
    made = project.make(repo=repo, file=tmp_path / "a.jsonl", n=1, modules=["calm/sums.py"])
    dropped = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])["deselect"]
    assert dropped == [
        "tests/test_bad.py::test_bad",
        "tests/test_bad.py::test_wavers",
        "tests/test_import.py",
    ]
    assert made.tasks


@pytest.mark.slow
def test_a_suite_that_hangs_is_run_once_and_the_test_that_hangs_is_named(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "PATIENCE", 8.0)
    hang = {
        "tests/test_a.py": "import time\ndef test_a(): pass\ndef test_stuck(): time.sleep(600)\n"
    }
    with pytest.raises(BadInput, match="stopped after 8 s") as e:
        project.make(repo=write(tmp_path / "repo", hang), file=tmp_path / "a.jsonl", n=1)
    assert "the last that began is tests/test_a.py::test_stuck" in e.value.fix


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "code", "says"),
    [
        ({"calm/a.py": "def f():\n    return 1\n"}, "no-tests", "no tests were found"),
        ({"tests/test_a.py": "import nothing_like_it\n"}, "failing-suite", "nothing_like_it"),
        (
            {"tests/test_a.py": "def test_a():\n    assert False\n"},
            "failing-suite",
            "none of the tests",
        ),
        ({"tests/test_a.py": "import os\nos._exit(3)\n"}, "failing-suite", "ended early"),
        (
            {"tests/test_a.py": "def test_a(): pass\n", "a.py": "def f(): pass\n"},
            "no-mutants",
            "no bug",
        ),
        (
            {"tests/test_a.py": "def test_a(): pass\n", "pytest.py": ""},
            "failing-suite",
            "do not run to their end",
        ),
        (
            {
                "tests/test_a.py": "def test_a(): pass\n",
                "a/b.py": Path(textwrap.__file__).read_text(),
                "a/__init__.py": "",
            },
            "no-mutants",
            "no bug",
        ),
        (
            {
                "tests/test_a.py": "import textwrap\ndef test_a(): pass\n",
                "textwrap.py": Path(textwrap.__file__).read_text(),
            },
            "package-installed",
            "textwrap.py is a copy of textwrap.py",
        ),
    ],
)
def test_a_project_that_cannot_give_tasks_says_why(
    project: Project, tmp_path: Path, files: dict[str, str], code: str, says: str
) -> None:
    with pytest.raises(BadInput, match=says) as e:
        project.make(repo=write(tmp_path / "repo", files), file=tmp_path / "a.jsonl", n=1)
    assert e.value.code == code
    assert e.value.fix
    assert not (tmp_path / "a.jsonl").exists()


# --- wrong recipes
# ----------------------------------------------------------------------------------------


def _recipe(folder: Path, *lines: object) -> Path:
    file = folder / INJECTED
    file.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    )
    return file


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "it has no task"),
        (["{", ""], "line 1: not JSON"),
        (["[]"], "line 1: a line is"),
        (['{"kind": "task", "source": "x"}'], "line 1: id: Field required"),
        (["", '{"kind": "source", "name": "x", "package": "x", "tests": []}'], "line 2: tests: "),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, lines: list[str], says: str) -> None:
    with pytest.raises(BadInput, match=says) as e:
        Swe(_recipe(tmp_path, *lines)).tasks()
    assert INJECTED in e.value.message
    assert e.value.code == "bad-tasks-file"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"no \[\[bug\]\]"),
        ("[[bug]]\nid = \nsplit = 1\n", "line 2"),
        ('[[bug]]\nid = "x"\n', r"number 1: tests: Field required"),
        ("bug = 1\n", r"\[\[bug\]\] number 1 has no tables"),
    ],
)
def test_a_broken_table_is_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / REAL).write_text(text)
    with pytest.raises(BadInput, match=says) as e:
        Swe(tmp_path).tasks()
    assert e.value.code == "bad-tasks-file"


def test_no_recipes_at_all_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as e:
        Swe(tmp_path).tasks()
    assert e.value.code == "no-tasks"
    assert "tasks make swe" in e.value.fix
    with pytest.raises(BadInput, match="is not there"):
        Swe(tmp_path / "none.jsonl").tasks()


def test_a_group_in_two_splits_and_an_id_for_two_tasks_are_refused(
    project: Project, tmp_path: Path
) -> None:
    source, task = map(json.loads, project.data.read_text().splitlines())
    with pytest.raises(BadInput, match="group calm/sums is split"):
        Swe(_recipe(tmp_path, source, task, {**task, "id": "b", "split": "test"})).tasks()
    with pytest.raises(BadInput, match="two different tasks"):
        Swe(_recipe(tmp_path, source, task, {**task, "occurrence": 2})).tasks()


def test_a_recipe_that_gives_another_bug_is_refused(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))
    source, task = map(json.loads, project.data.read_text().splitlines())
    for change in (
        {"occurrence": 0},
        {"operator": "none"},
        {"function": "none"},
        {"file": "none.py"},
    ):
        swe = Swe(_recipe(tmp_path, source, {**task, **change}), env=project.env)
        with pytest.raises(BadInput, match="does not give the bug"):
            swe.prepare(swe.tasks()[0], project.backend)


def test_the_workspace_adds_its_own_tasks_to_the_shipped_ones(
    workspace: Path, project: Project
) -> None:
    own = workspace / "benchmarks" / "swe"
    own.mkdir(parents=True)
    (own / INJECTED).write_text(project.data.read_text())
    import os

    os.chdir(workspace)
    ids = [t.id for t in Swe().tasks()]
    assert "swe:calm-1:sums.clamp-compare-1" in ids
    assert len(ids) > 48


@pytest.mark.live
def test_a_release_from_the_index_gives_sound_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recreate.plugins.swe_tasks.generate import make
    from recreate.sandboxes import choose

    monkeypatch.chdir(tmp_path)
    made = make(
        package="toolz",
        version="0.12.1",
        n=1,
        file=tmp_path / INJECTED,
        modules=["toolz/dicttoolz.py"],
    )
    swe = Swe(tmp_path / INJECTED)
    assert validate(swe, swe.tasks()[0], choose()).ok
    assert made.tasks[0].id.startswith("swe:toolz-0.12.1:dicttoolz.")
    with pytest.raises(BadInput, match="no package"):
        make(package="surely-no-such-package-here", version="1")
    with pytest.raises(BadInput, match="has no version"):
        make(package="toolz", version="0.0.0.1")

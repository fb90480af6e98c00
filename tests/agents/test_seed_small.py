"""The tools of the seed for small models, run as an agent's box runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped

TOOLS = shipped("scaffolds") / "seed-swe-small" / "tools"
BUG = (
    'def double(n):\n    """Twice.\n\n    ```\n    double(2)\n    ```\n    """\n    return n + 3\n'
)
TESTS = """
from maths import double

def test_double():
    assert double(2) == 4

def test_zero():
    assert double(3) == 6

def test_data():
    open("no such file")
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    """Sources with a bug and a test that fails whatever one does, under git as a task's box has
    them."""
    (tmp_path / "maths.py").write_text(BUG)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_maths.py").write_text(TESTS)
    (tmp_path / ".recreate").mkdir()
    public = {
        "fail": ["tests/test_maths.py::test_double"],
        "suite": ["tests"],
        "python_path": ["."],
    }
    (tmp_path / ".recreate" / "public.json").write_text(json.dumps(public))
    (tmp_path / ".recreate" / "suspects.json").write_text(
        json.dumps([{"file": "maths.py", "name": "double", "first": 1, "last": 8, "score": 1.0}])
    )
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for arguments in (
        ["init", "-q"],
        ["add", "maths.py", "tests"],
        [*who, "commit", "-qm", "given"],
    ):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    return tmp_path


def tool(sandbox: Path, name: str, stdin: str = "") -> tuple[int, str]:
    command = [sys.executable, str(TOOLS / f"{name}.py")]
    done = subprocess.run(
        command, cwd=sandbox, input=stdin, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_test_that_fails_in_the_given_sources_is_not_held_against_the_agent(
    sandbox: Path,
) -> None:
    (sandbox / "maths.py").write_text(BUG.replace("n + 3", "n * 2"))
    status, said = tool(sandbox, "check")
    assert (status, said.splitlines()[-1]) == (0, "1"), said


@pytest.mark.slow
def test_a_test_that_the_agent_broke_is(sandbox: Path) -> None:
    (sandbox / "maths.py").write_text(BUG.replace("n + 3", "n + 2"))
    (sandbox / "tests" / "test_more.py").write_text(
        "from maths import double\n\ndef test_five():\n    assert double(5) == 8\n"
    )
    subprocess.run(["git", "add", "-A"], cwd=sandbox, check=True)
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    (sandbox / "maths.py").write_text(BUG)
    subprocess.run(["git", *who, "commit", "-qam", "more"], cwd=sandbox, check=True)
    (sandbox / "maths.py").write_text(BUG.replace("n + 3", "n * 2"))
    status, said = tool(sandbox, "check")
    assert status == 1, said
    assert "test_more.py::test_five" in said
    assert "test_data" not in said


def test_a_fence_inside_a_docstring_does_not_end_the_reply(sandbox: Path) -> None:
    reply = "Here:\n```python\n" + BUG.replace("n + 3", "n * 2") + "```\n"
    status, said = tool(sandbox, "rewrite", reply)
    assert status == 0, said
    assert "return n * 2" in (sandbox / "maths.py").read_text()


SOURCES = """
def halve(n):
    '''Half of a number.'''
    return n // 2


def double(n):
    '''Twice a number.'''
    return n + 3


def shout(text):
    '''In capitals.'''
    return text
"""


def localized(sandbox: Path, prompt: str, sample: int, fail: list[str]) -> list[str]:
    """The functions that are shown for a task, in their order."""
    (sandbox / "maths.py").write_text(SOURCES)
    (sandbox / ".recreate" / "public.json").write_text(
        json.dumps({"fail": fail, "suite": ["tests"]})
    )
    (sandbox / ".recreate" / "attempt.json").write_text(
        json.dumps({"prompt": prompt, "sample": sample})
    )
    status, said = tool(sandbox, "localize")
    assert status == 0, said
    return [line.split("`")[1] for line in said.splitlines() if line.startswith("## ")]


def test_without_a_failing_test_the_words_of_the_task_say_where_to_look(sandbox: Path) -> None:
    assert (
        localized(sandbox, "The capitals are missing when one shouts a text.", 0, [])[0] == "shout"
    )
    assert localized(sandbox, "`halve(3)` is 1", 0, [])[0] == "halve"


def test_another_sample_sees_the_suspects_in_another_order(sandbox: Path) -> None:
    first, second, third = (localized(sandbox, "`halve(3)` is 1", n, []) for n in range(3))
    assert second == [*first[1:], first[0]]
    assert third == [first[2], *first[:2]]


@pytest.mark.slow
def test_of_what_a_failing_test_runs_comes_first_what_the_task_speaks_of(sandbox: Path) -> None:
    (sandbox / "tests" / "test_maths.py").write_text(
        "import maths\n\ndef test_it():\n    assert maths.double(maths.halve(8)) =="
        " maths.shout(8)\n"
    )
    names = ["tests/test_maths.py::test_it"]
    assert localized(sandbox, "A number is not doubled: twice 4 is 7.", 0, names)[0] == "double"
    assert localized(sandbox, "Half of a number is rounded down by halve.", 0, names)[0] == "halve"


def test_the_prompt_holds_the_tasks_own_words_and_no_more_than_the_context_has_room_for() -> None:
    seed = scaffolds.load(TOOLS.parent)
    prompt = "Twice 2 is 5.\n\nYou are at the top of its sources; run the tests."
    shown = seed.render("workflow", task={"prompt": prompt}, before={"localize": "# How it fails"})
    assert "Twice 2 is 5." in shown
    assert "You are at the top" not in shown
    assert "the task and the failure say" in shown
    long = seed.render("workflow", task={"prompt": "x " * 9000}, before={"localize": ""})
    assert len(long) < 4500
    assert "the task says" in long


def test_an_environment_below_the_sources_is_no_part_of_the_package(sandbox: Path) -> None:
    lib = sandbox / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(lib)], check=True)
    (lib / "shouting.py").write_text("def shouts_a_text():\n    return 'capitals missing'\n")
    tools = [str(lib / "bin" / "python"), str(TOOLS / "localize.py")]
    localized(sandbox, "The capitals are missing when one shouts a text.", 0, [])
    done = subprocess.run(tools, cwd=sandbox, capture_output=True, text=True, check=True)
    assert "shouts_a_text" not in done.stdout
    assert "`shout`" in done.stdout


@pytest.mark.parametrize("code", [BUG, BUG.replace("    return", "    # as it was\n    return")])
def test_code_that_is_as_it_was_given_is_no_answer(sandbox: Path, code: str) -> None:
    """Where no test is known to fail, all that are known pass; the second sample would never
    run."""
    (sandbox / "maths.py").write_text(code)
    (sandbox / ".recreate" / "public.json").write_text(json.dumps({"fail": [], "suite": ["tests"]}))
    status, said = tool(sandbox, "check")
    assert (status, said.splitlines()) == (1, ["nothing is changed: that is no answer", "-1"])


@pytest.mark.slow
def test_a_module_that_cannot_be_collected_hides_no_other_test(sandbox: Path) -> None:
    (sandbox / "tests" / "test_a.py").write_text("import none_such\n")
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for arguments in (["add", "tests"], [*who, "commit", "-qm", "one more"]):
        subprocess.run(["git", *arguments], cwd=sandbox, check=True)
    (sandbox / "maths.py").write_text(BUG.replace("n + 3", "n * 2"))
    status, said = tool(sandbox, "check")
    assert (status, said.splitlines()[-1]) == (0, "1"), said
    (sandbox / "maths.py").write_text(BUG.replace("n + 3", "n * 2").replace("double", "twice"))
    status, said = tool(sandbox, "check")
    assert status == 1, said
    names = ["tests/test_a.py::test_a", "tests/test_maths.py::test_double"]
    assert localized(sandbox, "A number is not doubled.", 0, names)[0] == "double"


@pytest.mark.slow
def test_a_module_that_cannot_be_collected_any_more_is_broken(sandbox: Path) -> None:
    (sandbox / "maths.py").write_text(BUG.replace("double", "twice"))
    (sandbox / ".recreate" / "public.json").write_text(json.dumps({"fail": [], "suite": ["tests"]}))
    status, said = tool(sandbox, "check")
    assert status == 1, said
    assert "1 of 1 public tests broke\ntests/test_maths.py" in said


LONG = """
class Shop:
    def total(self, rows):
        "The sum."
        total = 0
        for row in rows:
            if row.gift:
                wrapped = row.wrap()
                total += wrapped.price
            else:
                voucher = row.voucher
                total += row.price + voucher.discount
{steps}
        return total


def other():
    pass
""".format(steps="\n".join(f"        self.step_{n}(rows)" for n in range(90)))


def test_of_a_long_function_the_likely_part_is_shown_and_written_again(sandbox: Path) -> None:
    (sandbox / "maths.py").write_text(LONG)
    (sandbox / ".recreate" / "public.json").write_text(json.dumps({"fail": [], "suite": ["tests"]}))
    told = {"prompt": "The discount of a voucher is added to the price.", "sample": 0}
    (sandbox / ".recreate" / "attempt.json").write_text(json.dumps(told))
    status, said = tool(sandbox, "localize")
    assert status == 0, said
    shown = said.partition("```python\n")[2].partition("```")[0]
    assert "voucher.discount" in shown
    assert "self.step_80" not in shown
    assert "        ...  # left out: 1\n" in shown
    status, said = tool(
        sandbox, "rewrite", f"```python\n{shown.replace('+ voucher', '- voucher')}```"
    )
    assert status == 0, said
    assert (sandbox / "maths.py").read_text() == LONG.replace("+ voucher", "- voucher")


def test_a_part_without_the_line_for_what_was_left_out_deletes_nothing(sandbox: Path) -> None:
    (sandbox / "maths.py").write_text(LONG)
    suspect = {
        "file": "maths.py",
        "name": "Shop.total",
        "first": 3,
        "last": 103,
        "left_out": [[13, 102]],
    }
    (sandbox / ".recreate" / "suspects.json").write_text(json.dumps([suspect]))
    reply = "```python\ndef total(self, rows):\n    return 0\n```"
    status, said = tool(sandbox, "rewrite", reply)
    assert status == 2
    assert "left out: N` of Shop.total must be in the block once" in said
    assert (sandbox / "maths.py").read_text() == LONG

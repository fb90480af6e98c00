"""What became of an edit: its parts are shown, read and run in so many attempts, and its tools
answer so many tasks without the model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents.scaffold import Scaffold, load
from recreate.api.paths import shipped
from recreate.api.ports import Price
from recreate.api.types import Call, Edit, Evidence, Experience, Message, Reply
from recreate.cli import run as cli
from recreate.models.pricing import FREE
from recreate.optimizers.context import OptimizerContext
from recreate.runs.reader import Run
from recreate.storage.log import Log
from recreate.viewer import markdown
from recreate.viewer.facts import RunFacts
from tests.toy import Toy

SEED = load(shipped("scaffolds") / "seed")
FLAGS: dict[str, Any] = {"rounds": 1, "train": 4, "validation": 8, "sandbox": "none", "jobs": 1}
FLAGS |= {"memory__embedder": "hashed", "models__retries": 0, "gate__confirm": 0}
NUMBER = r"word number (\d+)"
HELP = "import json, re, sys\nif '--help' in sys.argv: sys.exit(print(__doc__))\n"
WORDS = HELP + "words = json.load(open('.recreate/attempt.json'))['prompt']\n"
FINDS = f"""print('w' + re.search(r'{NUMBER}', words)[1] + '!')\n"""
READS = f'"""Prints the word of the task."""\n{WORDS}{FINDS}'
STDIN = f'"""Prints the word of the task on stdin."""\n{HELP}words = sys.stdin.read()\n{FINDS}'
ARGUMENT = f'''"""Prints the word: `word_of "TASK"`."""\n{HELP}words = sys.argv[1]\n{FINDS}'''
CHATTY = READS.replace(FINDS, f"print('the word is')\n{FINDS}")
WRITES = READS.replace("print('w'", "open('answer.txt', 'w').write('w'")
ASKS = f'"""Prints what it is asked: `word_of NUMBER`."""\n{HELP}print(sys.argv[1])\n'
HALF = f"{READS}sys.exit(int(re.search(r'{NUMBER}', words)[1]) % 2)\n"
Answering = Callable[[str, str], str]
"""(the prompts, what is asked) -> the command."""


class Worker:
    """The agent's model: it does what `answering` says, then hands in."""

    name = "scripted:worker"
    price: Price | None = FREE

    def __init__(self, answering: Answering) -> None:
        self.answering = answering

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        prompts = "\n".join(m["content"] for m in messages[:2])
        number = re.search(NUMBER, prompts)
        assert number
        first = self.answering(prompts, number[1])
        return Reply(text=f"```bash\n{first if len(messages) == 2 else 'submit'}\n```")

    def close(self) -> None:
        pass


class Proposes:
    """An optimizer that proposes these files, in the place of its parent's where it has them."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files

    def __call__(self, context: OptimizerContext) -> Proposes:
        return self

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> list[Edit]:
        cited = (Evidence(experience=experiences[0].id, step=0),)
        return [
            Edit(path=path, old=scaffold.files.get(path, ""), new=text, evidence=cited)
            for path, text in self.files.items()
        ]


def plain(prompts: str, number: str) -> str:
    return f"printf %s w{number} > answer.txt"


def by_tool(prompts: str, number: str) -> str:
    """It uses the tool that its prompts name, for even numbers."""
    use = "word_of" in prompts and int(number) % 2 == 0
    return "word_of > answer.txt" if use else plain(prompts, number)


def build(files: Mapping[str, str], answering: Answering = by_tool, **flags: Any) -> Any:
    given = {**FLAGS, **flags}
    model = Worker(answering)
    return recreate.build(Toy(), model=model, optimizer=Proposes(files).__call__, **given)


def parts_of(made: Any) -> dict[str, Any]:
    (revision,) = made.record["revisions"]
    return {part["path"]: part for part in revision["parts"]}


TOOL = {"tools/word_of.py": READS, "system.md": SEED.files["system.md"] + "\nUse `word_of`.\n"}


@pytest.mark.slow
def test_a_tool_is_shown_in_all_attempts_and_run_where_the_model_called_it(workspace: Path) -> None:
    part = parts_of(build(TOOL))["tools/word_of.py"]
    assert part["attempts"] == {"attempts": 8, "passed": 4, "failed": 4}
    assert part["shown"] == {"attempts": 8, "passed": 4, "failed": 4}
    assert part["run"] == {"attempts": 4, "passed": 4, "failed": 0, "by": {"model": 4}}
    assert part["read"]["attempts"] == 0
    assert "8 attempts (4 passed), run in 4 (4 passed, 0 failed), by the model 4" in part["text"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "told", "way"),
    [
        pytest.param(READS, "", "by itself", id="reads the attempt's words"),
        pytest.param(STDIN, "", "the task's words on stdin", id="reads stdin"),
        pytest.param(ARGUMENT, "", "its prompts `word_of WORDS`", id="its help tells an argument"),
        pytest.param(
            STDIN,
            "Say `echo <the task> | word_of`.",
            "its prompts `echo WORDS | word_of`",
            id="a prompt tells a pipe",
        ),
        pytest.param(CHATTY, "", "the last line of what it prints", id="says more than the answer"),
        pytest.param(WRITES, "", "by itself", id="writes the answer"),
    ],
)
def test_a_tool_that_answers_alone_is_said_to_whatever_way_it_is_called(
    workspace: Path, tool: str, told: str, way: str
) -> None:
    system = f"{SEED.files['system.md']}\n`word_of`. {told}\n"
    made = build({"tools/word_of.py": tool, "system.md": system}, plain)
    alone = parts_of(made)["tools/word_of.py"]["alone"]
    assert (alone["passed"], alone["of"], alone["left_out"]) == (12, 12, 0)
    assert alone["splits"] == {
        "train": {"passed": 4, "of": 4},
        "validation": {"passed": 8, "of": 8},
    }
    assert way in alone["way"]
    assert alone["beside"] == {"alone": 8, "agent": 0, "of": 8}


@pytest.mark.slow
def test_report_page_show_and_the_agents_readme_say_what_a_tool_answers_alone(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = build(TOOL)
    assert made.scaffold.tools
    said = "alone, without the model, passes 12 of 12 tasks"
    assert f"`tools/word_of.py` {said}" in (made.path / "README.md").read_text("utf-8")
    assert said in (made.run / "report.md").read_text("utf-8")
    assert said in (made.run / "report.html").read_text("utf-8")
    capsys.readouterr()
    for words in (["show", str(made.run)], ["show", str(made.run), made.revisions[0].id]):
        assert cli(words) == 0
        assert said in capsys.readouterr().out
        assert cli([*words, "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        parts = record.get("parts") or record["revisions"][0]["parts"]
        assert said in " ".join(part["text"] for part in parts)


@pytest.mark.slow
def test_a_tool_that_needs_the_model_answers_none_of_the_tasks_tried(workspace: Path) -> None:
    files = {**TOOL, "tools/word_of.py": ASKS}
    part = parts_of(build(files, lambda p, n: f"word_of 'w{n}!' > answer.txt"))["tools/word_of.py"]
    assert (part["alone"]["passed"], part["alone"]["of"]) == (0, 6)
    assert part["alone"]["left_out"] == 6
    assert part["run"]["passed"] == 8


@pytest.mark.slow
def test_a_tool_that_fails_has_no_answer_there(workspace: Path) -> None:
    alone = parts_of(build({**TOOL, "tools/word_of.py": HALF}, plain))["tools/word_of.py"]["alone"]
    assert alone["of"] == 12
    assert 0 < alone["passed"] < 12


@pytest.mark.slow
def test_a_command_that_the_model_typed_alike_is_a_way_to_call_a_tool(workspace: Path) -> None:
    tool = READS.replace(WORDS, f"{HELP}assert sys.argv[1:] == ['-q']\n{WORDS}")

    def typed(prompts: str, number: str) -> str:
        return "word_of -q > answer.txt" if "word_of" in prompts else plain(prompts, number)

    alone = parts_of(build({**TOOL, "tools/word_of.py": tool}, typed))["tools/word_of.py"]["alone"]
    assert alone["way"] == "the model's command `word_of -q > answer.txt`"
    assert alone["passed"] == 12


@pytest.mark.slow
def test_an_answer_that_the_model_typed_alike_is_no_answer_without_it(workspace: Path) -> None:
    silent = f'"""Prints nothing: `word_of`."""\n{HELP}'

    def typed(prompts: str, number: str) -> str:
        return "word_of; printf %s 'w1!' > answer.txt"

    part = parts_of(build({**TOOL, "tools/word_of.py": silent}, typed))["tools/word_of.py"]
    assert part["alone"]["why"] == "it answers nothing to the tasks' words alone"
    assert part["text"].endswith("not run without the model: " + part["alone"]["why"])


@pytest.mark.slow
def test_a_hook_is_run_by_agent_toml(workspace: Path) -> None:
    config = SEED.files["agent.toml"]
    before = 'before = ["word_of"]\n' + config if "[" in config else config
    workflow = SEED.files["workflow.md"] + "\n{{ before.word_of }}\n"
    files = {"tools/word_of.py": READS, "agent.toml": before, "workflow.md": workflow}
    parts = parts_of(build(files, plain))
    assert parts["tools/word_of.py"]["run"]["by"] == {"before": 8}
    assert parts["tools/word_of.py"]["role"] == "before"
    hook = parts["agent.toml"]
    assert (hook["kind"], hook["name"], hook["run"]["attempts"]) == ("hook", "word_of", 8)


@pytest.mark.slow
def test_a_lesson_is_shown_where_its_words_stand_in_what_was_sent(workspace: Path) -> None:
    hidden = (
        SEED.files["workflow.md"] + "\n{% if limits.steps > 900 %}Never shown at all.{% endif %}\n"
    )
    lesson = "# How words end\n\nEvery word has a mark at its end.\n"
    parts = parts_of(build({"memory/ends.md": lesson, "workflow.md": hidden}, plain))
    assert parts["memory/ends.md"]["shown"]["attempts"] == 8
    assert parts["workflow.md"]["shown"]["attempts"] == 0
    assert "shown in none" in parts["workflow.md"]["text"]


@pytest.mark.slow
def test_a_tool_whose_file_was_opened_was_read(workspace: Path) -> None:
    def reads(prompts: str, number: str) -> str:
        return "cat .recreate/bin/word_of" if "word_of" in prompts else plain(prompts, number)

    part = parts_of(build(TOOL, reads))["tools/word_of.py"]
    assert (part["read"]["attempts"], part["run"]["attempts"]) == (8, 0)


@pytest.mark.slow
def test_no_seconds_no_run_and_what_was_measured_is_not_measured_again(workspace: Path) -> None:
    made = build(TOOL, parts__seconds=0, out="runs/a")
    assert "alone" not in parts_of(made)["tools/word_of.py"]
    again = build(TOOL, parts__seconds=60, out="runs/a")
    assert parts_of(again)["tools/word_of.py"]["alone"]["passed"] == 12
    count = len(list(Run(made.run).records("parts")))
    third = build(TOOL, parts__seconds=60, out="runs/a")
    assert parts_of(third) == parts_of(again)
    assert len(list(Run(made.run).records("parts"))) == count


@pytest.mark.slow
def test_a_run_of_before_shows_what_its_traces_allow(workspace: Path) -> None:
    made = build(TOOL)
    lines = [line for line in Log(made.run / "journal.jsonl").read() if line["kind"] != "parts"]
    (made.run / "journal.jsonl").unlink()
    with Log(made.run / "journal.jsonl") as log:
        for line in lines:
            log.append({k: v for k, v in line.items() if k not in ("sum", "schema")})
    run = Run(made.run)
    (parts,) = RunFacts(run).parts.values()
    tool = next(part for part in parts if part["kind"] == "tool")
    assert tool["run"]["attempts"] == 4
    assert "alone" not in tool
    damaged = Path(shutil.copytree(made.run, workspace / "runs" / "damaged"))
    for steps in (damaged / "attempts").glob("*/steps.jsonl"):
        steps.write_text("{")
    (parts,) = RunFacts(Run(damaged)).parts.values()
    assert all(part["attempts"]["attempts"] == 0 for part in parts)
    assert "no attempt was made with it" in markdown.report(RunFacts(Run(damaged)))

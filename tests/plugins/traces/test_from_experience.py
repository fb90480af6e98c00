"""A build whose first batch was lived elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import recreate
from recreate.agents.request import Recorded
from recreate.api.types import Edit, Split, Task
from recreate.cli import run as cli
from recreate.runs.reader import Run
from tests.builder.test_acceptance import FLAGS, Wants
from tests.toy import LESSON, Toy, write_script


class Bare(Toy):
    """The toy domain with nothing to learn on. tests.plugins.traces.test_from_experience:Bare"""

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [t for t in super().tasks(split) if t.split != "train"]


def failures(path: Path, n: int = 3, **more: object) -> str:
    """Attempts at tasks that no domain has: the mark is missing."""
    rows = []
    for i in range(n):
        asked, said = (
            f"Note the colour of flower {i} in answer.txt.",
            f"```bash\nprintf %s 'c{i}' > answer.txt\n```",
        )
        messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
        rows.append({"messages": messages, "passed": False, "task": f"flower-{i}", **more})
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "domain", ["tests.plugins.traces.test_from_experience:Bare", "tests.toy:Toy"]
)
def test_a_build_learns_from_imported_experience_alone(
    domain: str, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["traces", "import", failures(tmp_path / "c.jsonl"), "--domain", domain]) == 0
    model = write_script(tmp_path / "script.jsonl")
    flags = [
        "--domain",
        domain,
        "--model",
        model,
        "--from-experience",
        "--memory.embedder",
        "hashed",
    ]
    capsys.readouterr()
    assert cli(["build", *flags, "--out", str(workspace / "runs" / "a"), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["validation"]["before"], made["validation"]["after"]) == (0.0, 1.0)
    run = Run(workspace / "runs" / "a")
    # no train attempt was made
    assert {r["split"] for r in run.records("experience")} == {"validation"}
    (revision,) = run.revisions()
    cited = revision.edits[0].evidence[0].experience
    assert run.experience(cited).task.startswith("toy:imported:flower-")
    assert LESSON in revision.edits[0].new
    assert revision.edits[0].new.endswith("trust: imported\n")
    taught = [
        e for r in run.records("experience") if (e := run.experience(r["attempt"])).grade.passed
    ]
    told = str(Recorded(taught[0].trace.steps).messages)
    assert f"(untrusted: imported) {LESSON}" in told, "its agents read whose word it is"
    page = (run.folder / "report.html").read_text()
    assert cited in page
    assert "the colour of flower" in page
    assert cli(["show", str(run.folder)]) == 0
    assert cli(["traces", "show", cited[:8], "--run", str(run.folder)]) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_later_rounds_attempt_again(workspace: Path, tmp_path: Path) -> None:
    assert (
        cli(["traces", "import", failures(tmp_path / "c.jsonl"), "--domain", "tests.toy:Toy"]) == 0
    )
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        write_script(tmp_path / "s.jsonl"),
        "--from-experience",
    ]
    flags += [
        "--memory.embedder",
        "hashed",
        "--rounds",
        "2",
        "--out",
        str(workspace / "runs" / "a"),
    ]
    assert cli(["build", *flags]) == 0
    run = Run(workspace / "runs" / "a")
    assert len(list(run.records("brought"))) == 3
    assert {r["split"] for r in run.records("experience")} == {"validation", "train"}


def test_without_graded_experience_it_says_what_to_type(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = failures(tmp_path / "c.jsonl", passed=None)
    assert cli(["traces", "import", path, "--domain", "tests.toy:Toy"]) == 0
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        write_script(tmp_path / "s.jsonl"),
        "--from-experience",
    ]
    capsys.readouterr()
    assert cli(["build", *flags, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "no-experience"
    assert "traces import" in error["fix"]


def test_an_edit_that_quotes_or_names_an_imported_task_is_refused(
    workspace: Path, tmp_path: Path
) -> None:
    assert (
        cli(["traces", "import", failures(tmp_path / "c.jsonl", 1), "--domain", "tests.toy:Toy"])
        == 0
    )
    texts = (
        "\nNote the colour of flower 0 in answer.txt.\n",
        "\nDo as in flower-0.\n",
        "\nBe brief.\n",
    )
    wants = Wants(
        lambda cited: [Edit(path="system.md", new=text, evidence=(cited,)) for text in texts]
    )
    model = write_script(workspace / "script.jsonl")
    made = recreate.build(
        Toy(), model=model, optimizer=wants.__call__, from_experience=True, **FLAGS
    )
    quotes, names, fine = ["; ".join(told) for told in wants.told]
    assert "copies the text of a task" in quotes
    assert "flower-0" in names
    assert fine == ""
    assert [e.new for r in made.revisions for e in r.edits] == ["\nBe brief.\n"]

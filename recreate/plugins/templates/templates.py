"""Working examples of a domain of rows, one of each kind: `recreate init --domain NAME --template
KIND`.

The data lies in benchmarks/templates; what is written besides is domain.toml, and a script for the
scripted model: it makes one mistake everywhere until a lesson says what it is, so that a whole
build can be watched without a key.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from recreate.api.paths import shipped
from recreate.api.types import Task
from recreate.domains.rows import Columns
from recreate.domains.rows.definition import FILE, absolute, text
from recreate.domains.rows.domain import RowDomain
from recreate.domains.rows.scorers import split_score
from recreate.domains.rows.settings import Definition, ScorerSettings
from recreate.storage import files

SCRIPT = "script.jsonl"


class Template(NamedTuple):
    """about: for people and `--scaffold create`; slip: what the script does until it reads the
    lesson."""

    about: str
    score: str
    columns: Columns
    slip: str
    lesson: str


TEMPLATES: Mapping[str, Template] = {
    "qa": Template(
        about="Word problems whose answer is a number and its unit.",
        score="exact",
        columns=Columns(prompt="question", answer="answer", id="id", split="split"),
        slip="cut -d' ' -f1 > answer.txt",
        lesson="An answer is the number and its unit, as the question has it.",
    ),
    "code": Template(
        about="Small Python functions in solution.py, checked by hidden tests.",
        score="tests",
        columns=Columns(prompt="prompt", answer="tests", id="id", split="split", gold="solution"),
        slip="sed 's/return \\(.*\\)/print(\\1)/' > solution.py",
        lesson="A function returns its value; printing it is not enough.",
    ),
    "sql": Template(
        about="Questions about a database of books, each answered by one SQL query.",
        score="sql",
        columns=Columns(prompt="question", answer="sql", id="id", split="split", files="files"),
        slip="sed 's/^/EXPLAIN /' > answer.txt",
        lesson="Hand in the query itself, without EXPLAIN before it.",
    ),
    "tools": Template(
        about=(
            "Requests at home, each answered by one call of a tool (switch, heat, alarm) as JSON."
        ),
        score="score.py:score",
        columns=Columns(prompt="request", answer="call", id="id", split="split"),
        slip="tr -d '{}' > answer.txt",
        lesson="A call is one JSON object: braces around the tool and its arguments.",
    ),
    "files": Template(
        about="Questions about files that lie in the sandbox.",
        score="numeric",
        columns=Columns(prompt="question", answer="answer", id="id", split="split", files="files"),
        slip="awk -F, 'NR > 1 {s += $2} END {print s}' bills.csv > answer.txt",
        lesson="Only bills whose state is open are open: look at the third column.",
    ),
}


def write(kind: str, name: str, workspace: Path) -> list[Path]:
    """The example as benchmarks/NAME of a workspace, a new folder. Raises Fault for a disk that
    will not."""
    template = TEMPLATES[kind]
    folder = workspace / "benchmarks" / name
    split_score(template.score)  # its plug-in may not be here
    with files.disk(folder):
        shutil.copytree(shipped("benchmarks") / "templates" / kind, folder)
    scorer = ScorerSettings()
    known = Definition(
        data="data.jsonl",
        score=template.score,
        about=template.about,
        columns=template.columns,
        scorer=scorer,
    )
    files.write(folder / FILE, text(absolute(known, folder), folder, workspace))
    tasks = RowDomain(name, workspace=workspace, say=lambda _: None)
    lines = [line for task in tasks.tasks() for line in _answers(template, task, tasks)]
    lines.append({"role": "agent", "text": "```bash\nsubmit\n```"})
    edit = {
        "file": "new lesson",
        "line": 0,
        "title": "What was wrong",
        "text": template.lesson,
        "experience": "$1",
    }
    edit |= {"step": 0, "reason": "It is what all of them got wrong."}
    study = json.dumps(
        {"why": "The same mistake everywhere.", "cause": "knowledge", "edits": [edit]}
    )
    lines.append({"role": "optimizer", "find": "experience ([0-9a-f]{16}): FAILED", "text": study})
    files.write(
        folder / SCRIPT, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    )
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _answers(template: Template, task: Task, domain: RowDomain) -> list[dict[str, str | int]]:
    """What the scripted agent does: right once the lesson is there, else with the slip."""
    gold = domain.gold(task)
    if domain.scored_by == "tests":
        gold = str(next(iter(json.loads(gold).values())))
    right = "cat > solution.py" if domain.scored_by == "tests" else "cat > answer.txt"
    slip = (
        template.slip
        if template.slip.startswith("awk")
        else f"{template.slip} <<'END'\n{gold.rstrip()}\nEND"
    )
    row: dict[str, str | int] = {"role": "agent", "task": task.id, "step": 0}
    return [
        {
            **row,
            "contains": template.lesson,
            "text": f"```bash\n{right} <<'END'\n{gold.rstrip()}\nEND\n```",
        },
        {**row, "text": f"```bash\n{slip}\n```"},
    ]

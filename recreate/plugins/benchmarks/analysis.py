"""The scorer `analysis`: what an analysis of data found, compared as two papers do it
(measures.py).

What is handed in is data: values by their names, a JSON object, a table, predictions. Nothing of it
runs. It is compared in a sandbox, by a program of ours that gets it and what is right on its stdin.
Of a figure the program that draws it is handed in, and runs in a sandbox of its own (figures.py):
what that tells is the data.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api.config import read_json
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import Sandbox
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.syntax import literal
from recreate.api.types import Task, Trace, digest
from recreate.domains.exploits import text_exploits
from recreate.domains.rows.places import read_files, refuse_path
from recreate.domains.rows.scorers import Open, RowTask, Scored, Scorer
from recreate.domains.rows.settings import Definition
from recreate.plugins.audit import audit
from recreate.plugins.scorers.programs import describe_ending, run_program
from recreate.storage.redact import redact

_LONGEST = 50_000
"""Characters of a right table that an edit is searched for."""


def _program(name: str = "measures") -> str:
    return Path(__file__).with_name(f"{name}.py").read_text("utf-8")


_INSTRUCTIONS = {
    "named": (
        "Write the answer, and nothing else, to the file {file} in /work: a line @name[value] for"
        " each name."
    ),
    "fields": "Write the answer, and nothing else, to the file {file} in /work: the JSON object.",
    "table": "What is handed in is the file {file} in /work.",
    "predictions": "What is handed in is the file {file} in /work.",
    "figure": (
        "What is handed in is the Python program that draws the figure, the file {file} in /work."
        " It is run once more, in /work with the files as they are given, and must save {image}"
        " there with matplotlib."
    ),
}


class AnalysisScorer(Scorer):
    """From 0 to 1: what an analysis found, compared as its paper does it."""

    name = "analysis"
    settings = ("seconds",)
    longest = 6_000_000

    def fingerprint(self, definition: Definition) -> Sequence[Any]:
        return (digest(_program() + _program("figures"), 12),)

    def read_answer(self, value: Any) -> Any:
        return read_expected(super().read_answer(value))

    def add_facts(self, answer: Any, base: Path) -> JsonMap:
        return {"gold_digest": digest(read_golds(answer, base))}

    def instruct(self, definition: Definition, answer: Any) -> str:
        packages = [re.split(r"[^\w.-]", each)[0] for each in definition.requires]
        there = f" python3 there has {', '.join(packages)}." if packages else ""
        file = file_of(answer, definition.answer_file)
        return _INSTRUCTIONS[answer["kind"]].format(file=file, image=answer.get("image")) + there

    def collect(self, case: RowTask, sandbox: Sandbox) -> str:
        """Return the text of the file that the row names; '' for none, and for one that lies there
        as it was given."""
        name = file_of(case.expected, case.definition.answer_file)
        try:
            data = sandbox.read(name)
        except FileNotFoundError:
            return ""
        if data == dict(self.files(case.task, case.base)).get(name):
            return ""
        return self.trim(data[: 4 * self.longest].decode("utf-8", "replace")[: self.longest])

    def golds(self, case: RowTask) -> list[str]:
        """Return the texts of the files that are right. Raises BadInput for one that is gone or was
        changed."""
        try:
            golds = read_golds(case.expected, case.base)
            if digest(golds) != case.task.facts["gold_digest"]:
                raise ValueError("was changed while this ran")
        except ValueError as e:
            why = f"{case.task.id}: its gold {e}"
            fix = "put it back, then the same again"
            raise BadInput(why, fix=fix, code="bad-rows") from None
        return golds

    def score(self, case: RowTask, trace: Trace, open: Open) -> Scored:
        known = case.expected
        golds = self.golds(case)
        answer = trace.answer
        if known["kind"] == "figure":
            drawn, why = _draw(case, known, answer, open)
            if not drawn:
                return Scored(0.0, why)
            answer = json.dumps(drawn)
        asked = {
            "options": {},
            **known,
            "gold": list(golds) or known.get("gold") or known["values"],
        }
        command = ["python3", "-I", "-c", _program()]
        found, output = run_program(case, open, command, {**asked, "answer": answer}, {})
        if isinstance(found, Mapping) and isinstance(found.get("score"), int | float):
            return Scored(float(found["score"]), redact(str(found["why"]))[:2000])
        if output.limit or output.timed_out:  # the right answer was measured once, by `tasks check`
            return Scored(0.0, f"To compare the answer {describe_ending(output, case)}.")
        right = write_gold(case.task, golds)
        if known["kind"] == "figure":
            right = json.dumps({**json.loads(golds[0]), "data": json.loads(golds[1])})
        if answer != right and isinstance(
            run_program(case, open, command, {**asked, "answer": right}, {})[0], Mapping
        ):
            return Scored(0.0, "The answer cannot be compared with anything.")
        why = f"what {case.task.id} is compared with cannot be read: {output.text.strip()[-300:]}"
        raise Fault(
            redact(why),
            fix="mend the row, or leave it out: [left_out] of domain.toml",
            code=UNSOUND,
        )

    def gold(self, case: RowTask) -> str:
        return write_gold(case.task, self.golds(case))

    def hidden(self, case: RowTask) -> list[str]:
        return hidden_texts(case.task, self.golds(case))

    def exploits(self, case: RowTask) -> dict[str, str]:
        return analysis_exploits(
            case.task, self.golds(case), dict(self.files(case.task, case.base))
        )


def read_expected(value: Any) -> JsonDict:
    """Return what an answer is compared with: an object with its `kind`. named: `values`, name ->
    text; fields: `gold`, a list of objects; the others: `file`, what is handed in, and `gold`,
    paths beside the data. Raises ValueError."""
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError:
            raise ValueError("is no JSON") from None
    if not isinstance(value, Mapping) or value.get("kind") not in _INSTRUCTIONS:
        raise ValueError(f"has no kind that is one of {', '.join(_INSTRUCTIONS)}")
    kind = value["kind"]
    gold = value.get("values" if value["kind"] == "named" else "gold")
    if not gold or not isinstance(gold, Mapping if kind == "named" else list):
        raise ValueError("has nothing that an answer is compared with")
    if kind == "fields" and not all(isinstance(each, Mapping) and each for each in gold):
        raise ValueError("has a right answer that is no object")
    if kind not in ("named", "fields"):
        for path in (value.get("file"), *gold):
            if not isinstance(path, str):
                raise ValueError("names no file")
            refuse_path(path)
    return dict(value)


def read_golds(answer: JsonMap, base: Path) -> list[str]:
    """Return the texts of the files that are right; of an array of numpy its rows as JSON. Raises
    ValueError."""
    if answer["kind"] in ("named", "fields"):
        return []
    files = [(path, read_files(base / path)[0][1]) for path in answer["gold"]]
    return [
        _array(data) if path.endswith(".npy") else data.decode("utf-8", "replace")
        for path, data in files
    ]


def _array(data: bytes) -> str:
    """Return the rows of a plain array as numpy saves it, without numpy and without pickles. Raises
    ValueError."""
    try:
        start = 10 + int.from_bytes(data[8:10], "little")
        header = literal(data[10:start].decode("latin-1"))
        (rows, wide), kind = (
            (*header["shape"], 1)[:2],
            {"f8": "d", "i8": "q", "f4": "f", "i4": "i"}[header["descr"][1:]],
        )
        numbers = struct.unpack(f"<{rows * wide}{kind}", data[start:])
        if header["fortran_order"] or header["descr"][0] != "<":
            raise ValueError
    except (ValueError, KeyError, TypeError, SyntaxError, struct.error):
        raise ValueError("is an array that is not read without numpy") from None
    return json.dumps([numbers[row * wide : (row + 1) * wide] for row in range(rows)])


def _draw(case: RowTask, known: JsonMap, answer: str, open: Open) -> tuple[JsonDict, str]:
    """(what the figure shows that the program saves, {} for none; why there is none)."""
    asked = {"program": known["file"], "image": known["image"]}
    command = ["python3", "-B", "-c", _program("figures")]
    found, output = run_program(case, open, command, asked, {known["file"]: answer})
    if not isinstance(found, Mapping):
        return {}, redact(f"The program {describe_ending(output, case)}.")
    raised = f" It raised {found['raised']}." if isinstance(found.get("raised"), str) else ""
    if not isinstance(found.get("figure"), dict) or not found["figure"]:
        return {}, redact(f"The program saves no figure as {known['image']}.{raised}")
    return found["figure"], ""


_DRAWN = {
    "bar": (
        "wide = 0.8 / len(rows)\nfor at, (row, name, colour) in enumerate(zip(rows, names,"
        " colours)):\n    ax.bar([n + at * wide for n in range(len(row))], row, wide, label=name,"
        " color=colour)\nax.set_xticks([n + 0.4 - wide / 2 for n in range(len(rows[0]))], ticks)\n"
    ),
    "pie": "ax.pie(rows[0], colors=told['color'], labels=None)\n",
    "line": (
        "for row, name, colour in zip(rows, names, colours):\n    ax.plot(row, label=name,"
        " color=colour)\n"
    ),
    "scatter": (
        "ax.scatter([row[0] for row in rows], [row[1] for row in rows], c=told['color'][:1] or"
        " None)\n"
    ),
}
"""What draws the numbers of a kind of figure again."""


def _drawing(known: JsonMap, told: JsonMap, rows: Any) -> str:
    """A program that draws the right figure: none is published."""
    return (
        "import itertools\nimport matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as"
        f" plt\ntold = {dict(told)!r}\nrows = {rows!r}\nnames = told.get('labels') or [None] *"
        " len(rows)\ncolours = itertools.cycle(told.get('color') or [None])\nticks ="
        " told.get('xtick_labels') or [str(n) for n in range(len(rows[0]))]\nfigure, ax ="
        f" plt.subplots(figsize=told['figsize'])\n{_DRAWN[told['type']]}"
        f"ax.set_title(told['graph_title'])\nax.set_xlabel(told['x_label'])"
        f"\nax.set_ylabel(told['y_label'])\nif"
        " told.get('labels') and told['type'] != 'pie':\n   "
        " ax.legend(title=told.get('legend_title'))\nif told.get('labels') and told['type'] =="
        " 'pie':\n    ax.legend(ax.patches, told['labels'],"
        f" title=told.get('legend_title'))\nfigure.savefig({known['image']!r})\n"
    )


def write_gold(task: Task, golds: Sequence[str]) -> str:
    """A right answer, as it is handed in."""
    known = task.facts["answer"]
    if known["kind"] == "named":
        return "\n".join(f"@{name}[{value}]" for name, value in known["values"].items())
    if known["kind"] == "figure":
        return _drawing(known, json.loads(golds[0]), json.loads(golds[1]))
    return (
        json.dumps(known["gold"][0], ensure_ascii=False)
        if known["kind"] == "fields"
        else golds[0].strip()
    )


def hidden_texts(task: Task, golds: Sequence[str]) -> list[str]:
    """What no agent is shown. Of predictions nothing: a column of labels is in every text. Of a
    figure what it shows: the program that draws it is anybody's."""
    kind = task.facts["answer"]["kind"]
    if kind == "predictions":
        return []
    found = golds if kind == "figure" else [write_gold(task, golds), *golds]
    return [text for text in dict.fromkeys(found) if len(text) <= _LONGEST]


def analysis_exploits(
    task: Task, golds: Sequence[str], given: Mapping[str, bytes]
) -> dict[str, str]:
    """name -> an answer that leaves the task undone: what fits every question, what is right by
    chance, what was given.

    given: the files of the task's sandbox.
    """
    known = task.facts["answer"]
    found = text_exploits(task)
    if known["kind"] == "named":
        names = list(known["values"])
        every = [
            "yes",
            "no",
            "True",
            "False",
            "normal",
            "not normal",
            "nan",
            "",
            *map(str, range(200)),
        ]
        found |= {
            "every value": "\n".join(f"@{name}[{value}]" for name in names for value in every),
            "all in one": "\n".join(f"@{name}[{', '.join(every)}]" for name in names),
            "not numbers": "\n".join(f"@{name}[nan]" for name in names),
            "endless": "\n".join(f"@{name}[1e999]" for name in names),
            "names alone": "\n".join(f"@{name}" for name in names),
            "brackets": "\n".join(f"@{name}[" for name in names),
        }
    elif known["kind"] == "fields":
        keys = list(known["gold"][0])
        found |= {
            "empty fields": json.dumps({key: [] for key in keys}),
            "no fields": "{}",
            "every number of a field": json.dumps(
                {key: [n / 1000 for n in range(2000)] for key in keys}
            ),
            "not numbers": json.dumps({key: [float("nan")] for key in keys}),
            "endless": '{"' + '": [1e999], "'.join(keys) + '": [-1e999]}',
        }
    elif known["kind"] == "figure":
        found |= _programs(known)
    else:
        found |= _tables(golds[0])
        found |= {
            f"the file {name}": _decoded(data)
            for name, data in sorted(given.items())
            if name.endswith(".csv")
        }
    return found


def _tables(text: str) -> dict[str, str]:
    """Tables that have the right one's header and number of rows, and nothing of what it says."""
    head, _, rest = text.strip().partition("\n")
    rows = len(rest.splitlines())
    wide = head.count(",") + 1
    numbers = ",".join(str(n / 1000) for n in range(1001))
    return {
        "header alone": head,
        "no values": "\n".join([head, *([("," * (wide - 1)) or "nan"] * rows)]),
        "all the same": "\n".join([head, *([",".join(["0"] * wide)] * rows)]),
        "row numbers": "\n".join([head, *(",".join([str(n)] * wide) for n in range(rows))]),
        "every number in a column": "\n".join(
            [",".join(f"c{n}" for n in range(1001)), *([numbers] * rows)]
        ),
        "endless": "\n".join([head, *([",".join(["1e999"] * wide)] * rows)]),
        "formulas": "\n".join([head, *([",".join(["=1/0"] * wide)] * rows)]),
    }


def _programs(known: JsonMap) -> dict[str, str]:
    """Programs that draw nothing that is asked for: the list's, around one that draws a wrong
    figure, and ours."""
    file = known["file"]
    image = known["image"]
    wrong = (
        "def draw():\n    import matplotlib.pyplot as plt\n    plt.bar([1], [1])\n   "
        f" plt.savefig({image!r})\n"
    )
    found = {
        name: files[file] + "\n\ndraw()\n"
        for name, files in audit.python(file, wrong, "draw").items()
    }
    start = "import matplotlib.pyplot as plt\nfrom matplotlib.figure import Figure\n"
    frames = "import sys\nframe = sys._getframe()\nwhile frame is not None:\n"
    return found | {
        "nothing is drawn": f"{start}plt.savefig({image!r})\n",
        "a file that is no figure": f"open({image!r}, 'wb').write(b'PNG')\n",
        "a liar": (
            f"{audit.piece('liar')}\n{start}plt.gcf = Figure.gca = lambda *a: _Liar()\nplt.bar([1],"
            f" [1])\nplt.savefig({image!r})\n"
        ),
        "its own verdict": (
            "import glob, json\nfor name in glob.glob('.result*') + ['.result', 'result']:\n   "
            " open(name, 'w').write(json.dumps({'score': 1.0, 'why': '', 'figure': {'data':"
            " []}}))\n"
        ),
        "found, by frames": (
            f"{frames}    for value in [*frame.f_locals.values(), *frame.f_globals.values()]:\n"
            "        if isinstance(value, dict) and 'result' in value:\n"
            "            value['figure'] = {'data': [[1.0]]}\n    frame = frame.f_back\n"
        ),
        "what is right, by files": (
            "import glob\nfor path in glob.glob('/**/plot.json', recursive=True):\n"
            "    print(open(path).read())\n"
        ),
        "leaves": "import os\nos._exit(0)\n",
        "ends": "raise SystemExit(0)\n",
    }


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()


def file_of(known: JsonMap, answer_file: str) -> str:
    """What a row's answer is handed in as."""
    return str(known.get("file") or answer_file)

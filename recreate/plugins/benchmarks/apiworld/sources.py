"""Where tasks and tools come from: a clone of tau-bench, BFCL's package or a clone of it, files of
rows. None ships.

The tools' code is never imported here: what sandboxes need of it is copied to a folder of its own,
without the tasks and their right answers, and run there.
"""

from __future__ import annotations

import ast
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.syntax import literal, parse_expression, parse_python
from recreate.api.types import digest
from recreate.domains.rows import read_first_row
from recreate.storage import packages
from recreate.storage.files import once

WORLD = Path(__file__).with_name("world.py")
_TAU = ("tau-bench", "sierra-research__tau-bench", "tau_bench")
_BFCL = ("gorilla", "ShishirPatil__gorilla", "bfcl-eval", "bfcl_eval")
_BOARD = "berkeley-function-call-leaderboard"
GET_TAU = (
    "git clone https://github.com/sierra-research/tau-bench FOLDER/tau-bench, then --repos FOLDER"
)
CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
_CLASSES = (
    "gorilla_file_system",
    "long_context",
    "math_api",
    "message_api",
    "posting_api",
    "ticket_api",
    "trading_bot",
    "travel_booking",
    "vehicle_control",
)
"""Modules of BFCL's that its multi-turn tasks use."""


class ToolTask(NamedTuple):
    """One task as its benchmark has it. kind: retail, airline or bfcl; turns: what the user says,
    the one instruction or a request after the other; gold: the right calls, of bfcl a list for each
    request; split: '' for none.
    """

    id: str
    kind: str
    group: str
    split: str
    turns: tuple[str, ...]
    gold: Sequence[Any]
    outputs: Sequence[str] = ()
    about: Mapping[str, Any] = {}


# --- places
# --------------------------------------------------------------------------------------------------


def tau_bench(places: Iterable[Path]) -> Path | None:
    """The folder that holds tau_bench/, in or below one of these places."""
    inside = "tau_bench/envs/tool.py"
    return next((p / n for p in places for n in ("", *_TAU) if (p / n / inside).is_file()), None)


def bfcl(places: Iterable[Path]) -> Path | None:
    """The folder that holds bfcl_eval/, in or below one of these places."""
    names = [*("", *_BFCL), *(f"{name}/{_BOARD}" for name in ("", *_BFCL))]
    return next((p / n for p in places for n in names if (p / n / "bfcl_eval/data").is_dir()), None)


def unpacked(requirement: str) -> Path:
    """The files of a package's wheel, NAME==VERSION, fetched once. Raises BadInput and Fault as
    `packages.package`."""
    name, _, version = requirement.partition("==")
    wheel = packages.package(name, version, "wheel")

    def build(fresh: Path) -> None:
        with zipfile.ZipFile(wheel) as found:
            found.extractall(fresh)

    return once(wheel.parent / "unpacked", build)


def staged(root: Path, kind: str, more: Path | None = None) -> Path:
    """A folder with world.py and what it needs of the tools' code, and nothing else of it; its name
    is their digest.

    root: what holds tau_bench/ or bfcl_eval/; more: what holds mpmath/.
    """
    if kind == "bfcl":
        code = Path("bfcl_eval/eval_checker/multi_turn_eval")
        wanted: list[str | Path] = [
            "bfcl_eval/constants/executable_backend_config.py",
            *(code / f"multi_turn_{name}.py" for name in ("checker", "utils")),
            *(code / "func_source_code" / f"{name}.py" for name in _CLASSES),
            *_below(root, "bfcl_eval/data/multi_turn_func_doc", (".json",)),
        ]
    else:
        place = f"tau_bench/envs/{kind}"
        held = [
            each
            for part in ("tools", "data")
            for each in _below(root, f"{place}/{part}", (".py", ".json"))
        ]
        wanted = ["tau_bench/envs/tool.py", *held]
    files = {Path(each): root / each for each in wanted}
    if more is not None:
        files |= {
            each: more / each
            for each in _below(more, "mpmath", (".py",))
            if "tests" not in each.parts
        }
    files[Path(WORLD.name)] = WORLD
    try:
        texts = {place.as_posix(): path.read_bytes() for place, path in files.items()}
    except OSError as e:
        fix = "bring it anew: benchmarks/apiworld/README.md says how"
        raise BadInput(
            f"{e.filename} cannot be read: {e.strerror}", fix=fix, code="no-tools-source"
        ) from None

    def build(fresh: Path) -> None:
        for place, data in texts.items():
            (fresh / place).parent.mkdir(parents=True, exist_ok=True)
            (fresh / place).write_bytes(data)

    name = digest({place: digest(data.hex()) for place, data in texts.items()})
    return once(paths.home() / "apiworld" / f"{kind}-{name}", build)


def _below(root: Path, folder: str, endings: tuple[str, ...]) -> list[Path]:
    return sorted(
        path.relative_to(root) for path in (root / folder).rglob("*") if path.suffix in endings
    )


def policy(root: Path, kind: str) -> str:
    """What tau-bench's agents are told to keep to."""
    return (root / f"tau_bench/envs/{kind}/wiki.md").read_text("utf-8").strip()


# --- tasks
# ------------------------------------------------------------------------------------------------


def tau_cases(root: Path) -> Iterator[ToolTask]:
    """The tasks of a clone. Its task files are Python that nothing here runs: they are read as
    literals."""
    for kind, parts in (("retail", ("test", "train", "dev")), ("airline", ("test",))):
        for part in parts:
            file = root / f"tau_bench/envs/{kind}/tasks_{part}.py"
            tree = parse_python(file.read_text("utf-8"))
            calls = next(each.value for each in tree.body if isinstance(each, ast.Assign))
            for number, task in enumerate(_literal(calls)):
                row = {"task_id": f"tau_{kind}_{part}_{number}", "instruction": task["instruction"]}
                row |= {"input": {"env": kind, "user_id": task["user_id"]}, "gold": task}
                yield _tau(row)


def _literal(node: ast.expr) -> Any:
    """A literal in which records are written as calls with names: Task(user_id=...) is a dict."""
    if isinstance(node, ast.Call):
        return {each.arg: _literal(each.value) for each in node.keywords}
    if isinstance(node, ast.List):
        return [_literal(each) for each in node.elts]
    return literal(node)


def bfcl_cases(root: Path) -> Iterator[ToolTask]:
    """The multi-turn tasks of the package, or of a clone."""
    for category in CATEGORIES:
        yield from row_cases(root / f"bfcl_eval/data/BFCL_v4_multi_turn_{category}.json")[0]


def is_tool_row(row: JsonMap) -> bool:
    """Whether a row is of a set that is known here."""
    own = str(row.get("id", "")).startswith("multi_turn_") and row.keys() >= {
        "question",
        "initial_config",
    }
    return own or row.get("dataset") in ("taubench", "bfcl_multi_turn")


def domain_of_file(path: Path) -> str:
    """Return `apiworld` for rows of a set that is known here, else ''."""
    return "apiworld" if path.suffix == ".jsonl" and is_tool_row(read_first_row(path)) else ""


def row_cases(file: Path) -> tuple[list[ToolTask], int]:
    """(the tasks of a file of JSON lines, how many rows are of no set that is known here). Rows are
    BFCL's own, with possible_answer/ beside the file, or in an exchange layout. Raises BadInput for
    a row that lacks something.
    """
    beside = file.parent / "possible_answer" / file.name
    answers = {row["id"]: row["ground_truth"] for row in _rows(beside)} if beside.is_file() else {}
    cases = list[ToolTask]()
    strange = 0
    for number, row in enumerate(_rows(file), 1):
        try:
            if row.get("dataset") == "taubench":
                cases.append(_tau(row))
            elif row.get("dataset") == "bfcl_multi_turn":
                turns = json.loads(row["instruction"])
                cases.append(_bfcl(row["task_id"], turns, row["input"], row["gold"]["calls"], row))
            elif is_tool_row(row):
                gold = row.get("ground_truth") or answers[row["id"]]
                cases.append(_bfcl(row["id"], row["question"], row, gold, {}))
            else:
                strange += 1
        except (KeyError, ValueError, TypeError, AttributeError, SyntaxError) as e:
            lacks = f"it has no {e}" if isinstance(e, KeyError) else str(e)
            fix = "mend the row: benchmarks/apiworld/README.md lists the fields"
            raise BadInput(
                f"{paths.short(file)} row {number}: {lacks}", fix=fix, code="bad-rows"
            ) from None
    return cases, strange


def _rows(file: Path) -> Iterator[JsonDict]:
    try:
        for line in file.read_text("utf-8").splitlines():
            if line.strip():
                row = json.loads(line)
                yield row if isinstance(row, dict) else {}
    except (OSError, ValueError) as e:
        fix = "give a file of JSON lines, or a folder of such files"
        raise BadInput(
            f"{paths.short(file)} cannot be read: {e}", fix=fix, code="bad-rows"
        ) from None


def _tau(row: JsonMap) -> ToolTask:
    kind = row["input"]["env"]
    user = row["input"]["user_id"]
    if kind not in ("retail", "airline"):
        raise ValueError(f"its env is {kind!r}, and none of retail and airline")
    gold = [[each["name"], each["kwargs"]] for each in row["gold"]["actions"]]
    id = str(row["task_id"]).removeprefix("tau_")
    outputs = [str(each) for each in row["gold"]["outputs"]]
    group = row.get("group") or f"{kind}-user-{user}"
    return ToolTask(id, kind, group, row.get("split", ""), (row["instruction"],), gold, outputs)


def _bfcl(id: str, turns: Any, start: JsonMap, gold: Any, row: JsonMap) -> ToolTask:
    id = id.removeprefix("bfcl_")
    about = {
        "classes": list(start["involved_classes"]),
        "start": start["initial_config"],
        "missed": start.get("missed_function") or {},
        "long": "long_context" in id,
    }
    told = tuple("\n".join(message["content"] for message in turn) for turn in turns)
    calls = [[_call(text) for text in each] for each in gold]
    group = row.get("group") or f"bfcl-mt-{id.rpartition('_')[2]}"
    return ToolTask(id, "bfcl", group, row.get("split", ""), told, calls, (), about)


def _call(text: str) -> list[Any]:
    """A right call, written as Python, as [name, arguments]; positional ones are the key ''."""
    node = parse_expression(text.strip())
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"its right call {text[:60]!r} is none")
    named: JsonDict = {each.arg or "": literal(each.value) for each in node.keywords}
    if node.args:
        named[""] = [literal(each) for each in node.args]
    return [node.func.id, named]

"""What an answer of data analysis is worth: named values, a JSON object, a table, predictions, a
figure's numbers.

Runs inside a sandbox, by its text, and needs nothing but Python; where the answer is compared,
nothing that was handed in runs. The rules are those of two papers: InfiAgent-DABench (Hu et al.
2024, arXiv:2401.05507) for named values, DA-Code (Huang et al. 2024, arXiv:2410.07331) for the
others. benchmarks/dacode/README.md says where they differ here.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Cell = float | str | None
CLOSE = 1e-3
"""How far off a number of a table or a JSON object may be."""
MORE_COLUMNS = 2
"""Columns that a table may have beyond the right one's: with any number of them, one would be right
by chance."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_MISSING = {"", "na", "n/a", "nan", "-nan", "null", "none", "<na>", "#n/a", "#na", "nat"}


class NotComparable(Exception):
    """What was handed in is not what is compared. Its text says so, and nothing of what is
    right."""


def scored(asked: Mapping[str, Any]) -> tuple[float, str]:
    """(score from 0 to 1, why). asked: kind, answer, gold, and what the kind has besides."""
    try:
        return KINDS[asked["kind"]](asked)
    except NotComparable as e:
        return 0.0, f"{e}."


# --- named values: @name[value]
# ----------------------------------------------------------------------------


def score_named(asked: Mapping[str, Any]) -> tuple[float, str]:
    """The part of the names whose value is right. A name that is given two values has none."""
    gold, given = asked["gold"], values_in(asked["answer"])
    wrong = []
    for name, right in gold.items():
        found = given.get(name, [])
        if not found:
            wrong.append(f"@{name} is not there")
        elif len(set(found)) > 1:
            wrong.append(f"@{name} is given {len(set(found))} values")
        elif not same_value(found[0], right, asked["tolerance"]):
            wrong.append(f"@{name} is not right")
    return (len(gold) - len(wrong)) / len(gold), (
        "; ".join(wrong) + "." if wrong else "All values are right."
    )


def values_in(text: str) -> dict[str, list[str]]:
    """name -> the values that `@name[value]` gives it; brackets within a value are paired."""
    found: dict[str, list[str]] = {}
    for match in re.finditer(r"@(\w+)\[", text):
        depth, start = 1, match.end()
        for end in range(start, min(len(text), start + 20_000)):
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            if not depth:
                found.setdefault(match[1], []).append(text[start:end].strip())
                break
    return found


def same_value(given: str, right: str, tolerance: float) -> bool:
    """The same text but for blanks and quotes around it, or numbers that close, or such a list part
    by part."""
    one, other = _bare(given), _bare(right)
    if one == other:
        return True
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return abs(float(one) - float(other)) <= tolerance
    parts, wanted = one.split(","), other.split(",")
    if len(parts) == len(wanted) > 1:
        return all(same_value(a, b, tolerance) for a, b in zip(parts, wanted, strict=True))
    return False


def _bare(text: str) -> str:
    text = text.strip()
    while len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].strip()
    return text


# --- a JSON object
# -----------------------------------------------------------------------------------------


def fields(asked: Mapping[str, Any]) -> tuple[float, str]:
    """The best over the right objects: the part of its fields that are right, or with the rule
    `all` 1 or 0."""
    given = object_in(asked["answer"])
    best, why = 0.0, ""
    for number, gold in enumerate(asked["gold"]):
        options = _of(asked["options"], number)
        right = [
            _same_field(_field(given, key, gold), wanted, options) for key, wanted in gold.items()
        ]
        score = sum(right) / len(right)
        if options.get("score_rule", "all") == "all":
            score = float(score == 1)
        if not why or score > best:
            best, why = score, f"{sum(right)} of {len(right)} fields are right."
    return best, why


def object_in(text: str) -> Mapping[str, Any]:
    """The JSON object in a text: its first `{` to its last `}`. Raises NotComparable."""
    start, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise NotComparable("There is no JSON object in the answer")
    return found


def _field(given: Mapping[str, Any], key: str, gold: Mapping[str, Any]) -> Any:
    """The value under a key, whatever its capitals; else under the one key that is nearly that, as
    a slip leaves it."""
    plain = {str(name).strip().casefold(): value for name, value in given.items()}
    if key.strip().casefold() in plain:
        return plain[key.strip().casefold()]
    free = [name for name in plain if name not in {each.strip().casefold() for each in gold}]
    near = difflib.get_close_matches(key.strip().casefold(), free, 1, 0.9)
    return plain[near[0]] if near else None


def _same_field(given: Any, right: Any, options: Mapping[str, Any]) -> bool:
    one, other = (value if isinstance(value, list) else [value] for value in (given, right))
    if len(one) != len(other):
        return False
    if options.get("ignore_order"):
        one, other = sorted(one, key=_order), sorted(other, key=_order)
    return all(_same_item(a, b) for a, b in zip(one, other, strict=True))


def _same_item(given: Any, right: Any) -> bool:
    one, other = _cell(_text(given)), _cell(_text(right))
    if isinstance(other, float) and _is_whole(right):
        return one == other
    return _close(one, other)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _order(value: Any) -> tuple[int, float, str]:
    cell = _cell(_text(value))
    return (
        (2, 0.0, "")
        if cell is None
        else (0, cell, "")
        if isinstance(cell, float)
        else (1, 0.0, cell)
    )


# --- a table
# -----------------------------------------------------------------------------------------------


class CsvTable:
    """A CSV file: names of its columns, and each column's cells."""

    def __init__(self, text: str) -> None:
        csv.field_size_limit(10_000_000)
        try:
            lines = [
                row for row in csv.reader(io.StringIO(text.lstrip("\ufeff"), newline="")) if row
            ]
        except csv.Error:
            raise NotComparable("The file cannot be read as a table") from None
        if not lines:
            raise NotComparable("The file is empty")
        self.names, rows = lines[0], lines[1:]
        if rows and all(len(row) == len(self.names) + 1 for row in rows):
            self.names = ["", *self.names]
        if any(len(row) > len(self.names) for row in rows):
            raise NotComparable("The file has rows with more cells than its header")
        wide = len(self.names)
        cells = [[_cell(text) for text in row] + [None] * (wide - len(row)) for row in rows]
        self.columns: list[list[Cell]] = [[row[number] for row in cells] for number in range(wide)]
        self.rows = len(rows)


def _cell(text: str) -> Cell:
    text = text.strip()
    if text.casefold() in _MISSING:
        return None
    return float(text) if _NUMBER.fullmatch(text) else text


def table(asked: Mapping[str, Any]) -> tuple[float, str]:
    """The best over the right tables: the part of the columns that count which the answer has,
    whatever their names and order, or with the rule `all` 1 or 0."""
    given, best, why = CsvTable(asked["answer"]), 0.0, ""
    for number, text in enumerate(asked["gold"]):
        gold, options = CsvTable(text), _of(asked["options"], number)
        most = len(gold.names) + MORE_COLUMNS
        if len(given.names) > most:
            why = why or f"The table has {len(given.names)} columns, and {most} are the most."
            continue
        counted = options.get("condition_cols") or range(len(gold.columns))
        wanted = [gold.columns[at] for at in counted]
        loose = bool(options.get("ignore_order"))
        right = sum(
            any(_same_column(column, each, loose) for column in given.columns) for each in wanted
        )
        score = right / len(wanted)
        if options.get("score_rule", "divide") == "all":
            score = float(score == 1)
        if not why or score > best:
            rows = (
                ""
                if given.rows == gold.rows
                else f" It has {given.rows} rows, which is not the right number."
            )
            best, why = score, f"{right} of {len(wanted)} columns are right.{rows}"
    return best, why


def _same_column(given: Sequence[Cell], right: Sequence[Cell], loose: bool) -> bool:
    if len(given) != len(right):
        return False
    if loose:
        given, right = sorted(given, key=_order_of), sorted(right, key=_order_of)
    return all(_close(a, b) for a, b in zip(given, right, strict=True))


def _order_of(cell: Cell) -> tuple[int, float, str]:
    return (
        (2, 0.0, "")
        if cell is None
        else (0, cell, "")
        if isinstance(cell, float)
        else (1, 0.0, cell.casefold())
    )


def _close(given: Cell, right: Cell) -> bool:
    if isinstance(given, float) and isinstance(right, float):
        return given == right or abs(given - right) <= max(CLOSE, 1e-9 * abs(right))
    if isinstance(given, str) and isinstance(right, str):
        return given.casefold() == right.casefold()
    return given is None and right is None


def _of(options: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The options for the `number`-th right answer, where they are lists of one for each."""
    found = dict(options)
    for name in ("score_rule", "ignore_order"):
        if isinstance(found.get(name), list):
            found[name] = found[name][number]
    columns = found.get("condition_cols")
    if isinstance(columns, list) and columns and isinstance(columns[0], list):
        found["condition_cols"] = columns[number]
    return found


# --- predictions
# -------------------------------------------------------------------------------------------


def predictions(asked: Mapping[str, Any]) -> tuple[float, str]:
    """A metric of the predicted column, from 0 at the paper's baseline to 1 at its best."""
    given, gold, config = CsvTable(asked["answer"]), CsvTable(asked["gold"][0]), asked["config"]
    wanted = asked["options"].get("target_column") or ""
    target = next((name for name in gold.names if wanted and _plain(name) == _plain(wanted)), None)
    keys = [
        at
        for at, name in enumerate(gold.names)
        if name != target and _is_key(name, gold.columns[at])
    ]
    if target is None:
        target = next((name for at, name in enumerate(gold.names) if at not in keys), gold.names[0])
    if given.rows != gold.rows:
        raise NotComparable(f"There are {given.rows} predictions, which is not the right number")
    right = gold.columns[gold.names.index(target)]
    found = _column(given, target)
    key = next((gold.names[at] for at in keys), None)
    if key is not None and (found_keys := _find_column(given, key)) is not None:
        found = _in_order(found, found_keys, gold.columns[gold.names.index(key)])
    elif key is not None and asked["competition"]:
        raise NotComparable(f"There is no column {key}")
    value = METRICS[config["metric"]](found, right, asked["options"])
    bounds = sorted((float(config["lower_bound"]), float(config["upper_bound"])))
    least, best = bounds[::-1] if config["metric"] in LOWER else bounds
    score = 1.0 if value == best else min(1.0, max(0.0, (value - least) / (best - least)))
    return score, f"Its {config['metric']} is {value:.4f}: 0 from {least:g}, 1 at {best:g}."


def _is_key(name: str, column: Sequence[Cell]) -> bool:
    called = "id" in name.casefold() or not name or "unnamed" in name.casefold()
    return called and len(set(column)) > 0.8 * len(column)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold()) or name


def _find_column(table: CsvTable, name: str) -> list[Cell] | None:
    plain = [_plain(each) for each in table.names]
    if _plain(name) in plain:
        return table.columns[plain.index(_plain(name))]
    near = difflib.get_close_matches(_plain(name), plain, 1, 0.9)
    return table.columns[plain.index(near[0])] if near else None


def _column(given: CsvTable, target: str) -> list[Cell]:
    found = _find_column(given, target)
    if found is None and len(given.columns) == 1:
        found = given.columns[0]
    if found is None:
        raise NotComparable("The column to predict is not there")
    if any(cell is None for cell in found):
        raise NotComparable("Not every row has a prediction")
    return found


def _in_order(values: Sequence[Cell], keys: Sequence[Cell], wanted: Sequence[Cell]) -> list[Cell]:
    known = dict(zip(keys, values, strict=True))
    if set(known) != set(wanted):
        raise NotComparable("The predictions are of other rows than those asked for")
    return [known[key] for key in wanted]


def _labels(column: Sequence[Cell]) -> list[str]:
    return [str(cell).strip().casefold() for cell in column]


def _numbers(column: Sequence[Cell]) -> list[float]:
    found = [cell for cell in column if isinstance(cell, float) and math.isfinite(cell)]
    if len(found) != len(column):
        raise NotComparable("A prediction is no number")
    return found


def _accuracy(given: Sequence[Cell], right: Sequence[Cell], options: Mapping[str, Any]) -> float:
    return sum(a == b for a, b in zip(_labels(given), _labels(right), strict=True)) / len(right)


def _f1(given: Sequence[Cell], right: Sequence[Cell], options: Mapping[str, Any]) -> float:
    one, other = _labels(given), _labels(right)
    both = Counter(a for a, b in zip(one, other, strict=True) if a == b)
    told, true = Counter(one), Counter(other)
    average = options.get("average") or "weighted"
    if average == "micro":
        return sum(both.values()) / len(other)
    each = {name: 2 * both[name] / (told[name] + true[name]) for name in {*told, *true}}
    if average == "macro":
        return sum(each.values()) / len(each)
    if average == "binary":
        return each[max(each)]
    return sum(each[name] * count for name, count in true.items()) / len(other)


def _kappa(given: Sequence[Cell], right: Sequence[Cell], options: Mapping[str, Any]) -> float:
    """Cohen's, weighted by the square of how far apart two ratings are."""
    one, other = _numbers(given), _numbers(right)
    seen = sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / len(one)
    first, second = Counter(one), Counter(other)
    chance = (
        sum(n * m * (a - b) ** 2 for a, n in first.items() for b, m in second.items())
        / len(one) ** 2
    )
    return 1.0 if not seen else 1 - seen / chance if chance else 0.0


def _roc_auc(given: Sequence[Cell], right: Sequence[Cell], options: Mapping[str, Any]) -> float:
    labels = _labels(right)
    positive = max(set(labels))
    ranked = sorted(zip(_numbers(given), labels, strict=True))
    above, start, total = sum(label == positive for label in labels), 0, 0.0
    while start < len(ranked):
        end = start
        while end < len(ranked) and ranked[end][0] == ranked[start][0]:
            end += 1
        total += (start + end + 1) / 2 * sum(label == positive for _, label in ranked[start:end])
        start = end
    return (total - above * (above + 1) / 2) / (above * (len(ranked) - above))


def _r2(given: Sequence[Cell], right: Sequence[Cell], options: Mapping[str, Any]) -> float:
    wanted = _numbers(right)
    mean = sum(wanted) / len(wanted)
    whole = sum((value - mean) ** 2 for value in wanted)
    return 1 - _sum(given, right, lambda a, b: (a - b) ** 2) / whole if whole else 0.0


def _sum(
    given: Sequence[Cell], right: Sequence[Cell], of: Callable[[float, float], float]
) -> float:
    try:
        return math.fsum(of(a, b) for a, b in zip(_numbers(given), _numbers(right), strict=True))
    except (OverflowError, ValueError):
        raise NotComparable("A prediction cannot be compared") from None


def _mean_of(of: Callable[[float, float], float], root: bool = False) -> Metric:
    def metric(given: Sequence[Cell], right: Sequence[Cell], options: Mapping[str, Any]) -> float:
        value = _sum(given, right, of) / len(right)
        return math.sqrt(value) if root else value

    return metric


def _medae(given: Sequence[Cell], right: Sequence[Cell], options: Mapping[str, Any]) -> float:
    off = sorted(abs(a - b) for a, b in zip(_numbers(given), _numbers(right), strict=True))
    return (off[(len(off) - 1) // 2] + off[len(off) // 2]) / 2


# --- a figure
# ----------------------------------------------------------------------------------------------


def figure(asked: Mapping[str, Any]) -> tuple[float, str]:
    """1 when the numbers that a figure shows are right, and all that the row asks of its texts,
    size and colours."""
    given, gold = json.loads(asked["answer"]), json.loads(asked["gold"][0])
    wrong = [] if _same_rows(given.get("data"), json.loads(asked["gold"][1])) else ["its numbers"]
    keys = list(dict.fromkeys(asked["options"].get("keys") or gold))
    wrong += [f"its {key}" for key in keys if not _same_part(key, given.get(key), gold.get(key))]
    return float(not wrong), (
        f"Of the figure {', '.join(wrong)} are not right." if wrong else "The figure is right."
    )


def _same_rows(given: Any, right: Any) -> bool:
    """The same rows of the same numbers, each in any order."""
    if not isinstance(given, list) or len(given) != len(right):
        return False
    try:
        rows = [sorted(map(float, row)) for row in given]
    except (TypeError, ValueError, OverflowError):
        return False
    for wanted in (sorted(map(float, row)) for row in right):
        found = next((row for row in rows if _is_close(row, wanted)), None)
        if found is None:
            return False
        rows.remove(found)
    return True


def _is_close(given: Sequence[float], right: Sequence[float]) -> bool:
    close = (abs(a - b) <= 1e-5 + 1e-5 * abs(b) for a, b in zip(given, right, strict=False))
    return len(given) == len(right) and all(close)


def _same_part(key: str, given: Any, right: Any) -> bool:
    if key == "figsize":
        return _same_rows([given], [right])
    if key == "color":
        return _each_has_one(given, right, _same_colour)
    if isinstance(right, list):
        same = isinstance(given, list) and len(given) == len(right)
        return same and _each_has_one(given, right, lambda a, b: _alike(a, b) > 0.95)
    return _alike(given or "", right or "") >= 0.9


def _each_has_one(given: Any, right: Any, same: Callable[[Any, Any], bool]) -> bool:
    if not isinstance(given, list) or not isinstance(right, list):
        return False
    there = all(any(same(a, b) for b in right) for a in given)
    return there and all(any(same(a, b) for a in given) for b in right)


def _alike(given: Any, right: Any) -> float:
    one, other = str(given)[:1000].casefold().strip(), str(right)[:1000].casefold().strip()
    return 1.0 if one == other else difflib.SequenceMatcher(None, one, other).ratio()


def _same_colour(given: Any, right: Any) -> bool:
    try:
        one, other = (bytes.fromhex(str(colour).lstrip("#")[:6]) for colour in (given, right))
    except ValueError:
        return False
    return math.dist(one, other) <= 15 if len(one) == len(other) == 3 else False


Metric = Callable[[Sequence[Cell], Sequence[Cell], Mapping[str, Any]], float]
LOWER = {"mae", "mse", "rmse", "rmsle", "smape", "medae"}
"""Metrics of which less is better."""
METRICS: Mapping[str, Metric] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "quadratic_weighted_kappa": _kappa,
    "roc_auc_score": _roc_auc,
    "r2": _r2,
    "mae": _mean_of(lambda a, b: abs(a - b)),
    "mse": _mean_of(lambda a, b: (a - b) ** 2),
    "rmse": _mean_of(lambda a, b: (a - b) ** 2, root=True),
    "rmsle": _mean_of(lambda a, b: (math.log1p(a) - math.log1p(b)) ** 2, root=True),
    "smape": _mean_of(lambda a, b: 0.0 if a == b else 200 * abs(a - b) / (abs(a) + abs(b))),
    "medae": _medae,
}
KINDS: Mapping[str, Callable[[Mapping[str, Any]], tuple[float, str]]] = {
    "named": score_named,
    "fields": fields,
    "table": table,
    "predictions": predictions,
    "figure": figure,
}


def main() -> None:
    """Told on stdin what to compare and in which file to tell; anything printed counts for
    nothing."""
    asked = json.load(sys.stdin)
    score, why = scored(asked)
    part = Path(asked["result"] + ".part")
    part.write_text(json.dumps({"score": score, "why": why}), encoding="utf-8")
    part.rename(asked["result"])


if __name__ == "__main__":
    main()

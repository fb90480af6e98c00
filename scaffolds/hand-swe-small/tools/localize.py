#!/usr/bin/env python3
"""Shows a failing test, how it fails, and one piece of code that may have the bug: the likeliest in the first try of an
attempt, the next in the next, from the fourth on again. Likely is what failing tests run and passing ones do not, and
what the task and the failure speak of."""

import sys

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
import ast
import io
import json
import math
import re
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import NamedTuple

sys.dont_write_bytecode = True
edit = SourceFileLoader("edit", str(Path(__file__).with_name("edit"))).load_module()
ROOT = Path.cwd()
WHOLE, PART = 60, 40
"""Lines up to which a function is shown whole, and how many a part of a longer one has."""


class Piece(NamedTuple):
    """A function, or some statements in a row of a long one. body: its first line that runs when it is called."""

    file: str
    name: str
    first: int
    last: int
    body: int
    part: bool


def pieces(file: str, node: ast.AST, names: tuple[str, ...] = ()) -> list[Piece]:
    found = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            found += pieces(file, child, (*names, child.name))
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = ".".join([*names, child.name])
            if child.end_lineno - child.lineno < WHOLE:
                found.append(Piece(file, name, child.lineno, child.end_lineno, child.body[0].lineno, False))
            else:
                found += [Piece(file, name, first, last, first, True) for first, last in parts(child.body)]
        elif isinstance(child, (ast.If, ast.Try)):
            found += pieces(file, child, names)
    return found


def start(node: ast.stmt) -> int:
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def parts(body: list[ast.stmt]) -> list[tuple[int, int]]:
    """The first and last lines of runs of statements that are not too long."""
    found: list[tuple[int, int]] = []
    for node in body:
        inner = [getattr(node, key, []) for key in ("body", "orelse", "finalbody")]
        inner += [each.body for each in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]]
        if node.end_lineno - start(node) >= PART and any(inner):
            found += [place for each in inner for place in parts(each)] + [(0, -PART)]
        elif found and node.end_lineno - found[-1][0] < PART and found[-1][1] > 0:
            found[-1] = (found[-1][0], node.end_lineno)
        else:
            found.append((start(node), node.end_lineno))
    return [place for place in found if place[0]]


def is_test(path: Path) -> bool:
    parts = path.parts
    hidden = any(part[0] == "." for part in parts) or path.name in ("reproduce_issue.py", "setup.py", "conftest.py")
    return hidden or path.name.startswith("test") or bool({"test", "tests", "testing", "docs"} & {*parts[:-1]})


def sources() -> list[str]:
    """The files of the package; an environment may be mounted below them."""
    found = [path.relative_to(ROOT) for path in sorted(ROOT.rglob("*.py")) if not path.is_relative_to(sys.prefix)]
    return [str(path) for path in found if not is_test(path)]


def run(fail: list[str]) -> tuple[dict[str, str], dict[str, str], dict[str, dict[int, set[str]]]]:
    """(outcomes, how those failed that did, {file: {line: tests that ran it}}) of the files of the failing tests."""
    import coverage
    import pytest

    outcomes, failures = {}, {}
    tracer = coverage.Coverage(data_file=None, config_file=False, include=[f"{ROOT}/*"], messages=False)

    class Watch:
        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_protocol(self, item):
            tracer.switch_context(item.nodeid)
            yield

        def pytest_runtest_logreport(self, report):
            if report.when == "call" or report.failed:
                outcomes[report.nodeid] = report.outcome
                if report.failed:
                    failures[report.nodeid] = report.longreprtext

    sys.path[:0] = [str(ROOT / path) for path in edit.public()["python_path"]]
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", "--no-header", "--continue-on-collection-errors"]
    tracer.start()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        pytest.main([*options, *sorted({name.partition("::")[0] for name in fail})], [Watch()])
    tracer.stop()
    data = tracer.get_data()
    ran = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
    return outcomes, failures, {path: {n: {*which} for n, which in by.items()} for path, by in ran.items()}


def words(text: str) -> Counter[str]:
    """The words of a text, names whole and in their parts."""
    names = re.findall(r"[A-Za-z_]\w+", text)
    return Counter(word.lower() for name in names for word in {name, *re.findall(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}", name)})


def suspects(told: str, fail: list[str], texts: dict[str, list[str]]) -> tuple[list[Piece], str, str]:
    """(what may have the bug, the likeliest first; a test that fails; how)."""
    every = [piece for file, lines in texts.items() for piece in pieces(file, ast.parse("\n".join(lines)))]
    outcomes, failures, ran = run(fail) if fail else ({}, {}, {})
    failing = {name for name in fail if outcomes.get(name) == "failed"} or {*failures}
    passing = {name for name, outcome in outcomes.items() if outcome == "passed"}

    def spectrum(piece: Piece) -> float:
        lines = ran.get(str(ROOT / piece.file), {})
        hits = [which for n, which in lines.items() if piece.body <= n <= piece.last and which & failing]
        return max((len(w & failing) / math.sqrt(len(failing) * len(w & (failing | passing))) for w in hits), default=0)

    run_by = {piece: spectrum(piece) for piece in every}
    every = [piece for piece in every if run_by[piece]] or every
    test = next((name for name in fail if name in failures), next(iter(failures), ""))
    bags = {p: words("\n".join([p.name, p.name, *texts[p.file][p.first - 1 : p.last]])) for p in every}
    seen = Counter(word for bag in bags.values() for word in bag)
    asked = words(told + failures.get(test, "")).keys()
    usual = sum(bag.total() for bag in bags.values()) / max(1, len(bags))
    fits = {}  # BM25
    for p, bag in bags.items():
        size = 0.5 + bag.total() / usual
        fits[p] = sum(math.log(1 + len(bags) / seen[w]) * bag[w] / (bag[w] + size) for w in asked & bag.keys())
    most = max(fits.values(), default=0) or 1

    def likely(piece: Piece) -> float:
        named = piece.name.rpartition(".")[2].lower() in asked
        return run_by[piece] + fits[piece] / most + 0.3 * named

    ranked = sorted(every, key=lambda p: (-round(likely(p), 6), p.last - p.first, p))
    return ranked, test, failures.get(test, "")


def test_code(name: str) -> str:
    """The source of a test; where its class inherits it, the one of that name in the same file."""
    file, *names = name.partition("[")[0].split("::")
    text = (ROOT / file).read_text(encoding="utf-8", errors="replace")
    found = [p for p in pieces(file, ast.parse(text)) if p.name.rpartition(".")[2] == names[-1]] if names else []
    for piece in sorted(found, key=lambda p: p.name != ".".join(names)):
        return "\n".join(text.splitlines()[piece.first - 1 : piece.last])
    return ""


def quoted(text: str, most: int) -> str:
    """Indented: a small model takes a ```python block for what it is to write."""
    text = text if len(text) <= most else f"{text[: most // 2]}\n...\n{text[-most // 2 :]}"
    return "\n".join("    " + line for line in text.splitlines())


def main() -> None:
    told = edit.read("attempt.json", {"prompt": "", "sample": 0})
    texts = {}
    for file in sources():
        text = (ROOT / file).read_text(encoding="utf-8", errors="replace")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        texts[file] = text.splitlines()
    ranked, test, failure = suspects(told["prompt"], edit.public()["fail"], texts)
    if test:
        print(f"# A test that fails\n{quoted(test_code(test), 1400)}\n\n# How it fails\n{quoted(failure, 1200)}\n")
    if not ranked:
        return
    piece = ranked[told["sample"] % min(3, len(ranked))]
    code = texts[piece.file][piece.first - 1 : piece.last]
    margin = len(code[0]) - len(code[0].lstrip())
    code = [line[margin:] if not line[:margin].strip() else line for line in code]
    what = "A part of the function" if piece.part else "The function"
    print(f"# The code\n{what} `{piece.name}` in {piece.file}:\n```python\n" + "\n".join(code) + "\n```")
    given = (ROOT / piece.file).read_text(encoding="utf-8")
    (edit.OURS / "shown.json").write_text(json.dumps({**piece._asdict(), "given": given}), encoding="utf-8")


main()

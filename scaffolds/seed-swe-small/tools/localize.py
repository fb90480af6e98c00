#!/usr/bin/env python3
"""Shows a failing public test, its failure, and the functions most likely at fault (Ochiai over coverage)."""

# /// script
# dependencies = ["pytest", "coverage"]
# ///
import ast
import io
import json
import math
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path.cwd()
SHOWN, LONGEST = 3, 70


def functions(path):
    """(qualified name, first line, last line) of every function in a file, decorators included."""
    found = []

    def walk(node, names):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                found.append((".".join([*names, child.name]), first, child.end_lineno, child.body[0].lineno))
                walk(child, [*names, child.name])
            elif isinstance(child, ast.ClassDef):
                walk(child, [*names, child.name])
            else:
                walk(child, names)

    walk(ast.parse(path.read_text("utf-8", "replace")), [])
    return found


def run_tests(public):
    """Run the test files of the failing tests; returns outcomes, failure texts and covered lines per test."""
    import coverage
    import pytest

    outcomes, failures, covered = {}, {}, {}
    tracer = coverage.Coverage(data_file=None, config_file=False, include=[str(ROOT / "*")], messages=False)

    class Watch:
        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_protocol(self, item, nextitem):
            tracer.switch_context(item.nodeid)
            yield

        def pytest_runtest_logreport(self, report):
            if report.when == "call" or report.failed:
                outcomes[report.nodeid] = report.outcome
                if report.failed:
                    failures[report.nodeid] = report.longreprtext

    files = sorted({name.split("::")[0] for name in public["fail"]})
    sys.path[:0] = [str(ROOT / path) for path in public.get("python_path", ["."])]
    sys.dont_write_bytecode = True
    tracer.start()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        pytest.main(
            ["-q", "-p", "no:cacheprovider", "--tb=short", "--no-header", "-x", "--maxfail=50", *files], [Watch()]
        )
    tracer.stop()
    data = tracer.get_data()
    for path in data.measured_files():
        for line, contexts in data.contexts_by_lineno(path).items():
            for context in contexts:
                covered.setdefault(context, set()).add((path, line))
    return outcomes, failures, covered


def rank(outcomes, covered, fail):
    """Functions by the Ochiai score of their most suspicious line."""
    failing = [t for t in outcomes if t in fail and outcomes[t] == "failed"] or [
        t for t in outcomes if outcomes[t] == "failed"
    ]
    passing = [t for t in outcomes if outcomes[t] == "passed"]
    hits = {}
    for test in failing:
        for at in covered.get(test, ()):
            hits.setdefault(at, [0, 0])[0] += 1
    for test in passing:
        for at in covered.get(test, ()):
            if at in hits:
                hits[at][1] += 1
    scores = {}
    for path in sorted({path for path, _ in hits}):
        name = Path(path)
        if not name.is_relative_to(ROOT) or name.is_relative_to(sys.prefix) or is_test(name.relative_to(ROOT)):
            continue
        lines = {line: hit for (p, line), hit in hits.items() if p == path}
        for qualname, first, last, body in functions(name):
            inside = [hit for line, hit in lines.items() if body <= line <= last]
            if inside and last - first < LONGEST:
                score = max(ef / math.sqrt(len(failing) * (ef + ep)) for ef, ep in inside)
                scores[(str(name.relative_to(ROOT)), qualname, first, last)] = score
    # of two functions with the same score the longer one has more that can be wrong: with it the bug is among the
    # first three in 19 of 24 train tasks, with the shorter one in 17
    ranked = sorted(scores, key=lambda k: (-round(scores[k], 6), k[2] - k[3], k))
    return failing, ranked


def is_test(path):
    """Tests, reproductions of an issue, and what lies in hidden folders (the tools themselves)."""
    if any(part.startswith(".") for part in path.parts) or path.name == "reproduce_issue.py":
        return True
    return any(part in ("test", "tests", "testing") for part in path.parts[:-1]) or path.name.startswith("test")


def test_source(name):
    """The source of a test function, by its node id."""
    path, *names = name.split("[")[0].split("::")
    file = ROOT / path
    for qualname, first, last, _ in functions(file):
        if qualname == ".".join(names):
            return "\n".join(file.read_text("utf-8", "replace").splitlines()[first - 1 : last])
    return ""


def clip(text, most):
    if len(text) <= most:
        return text
    return text[: most // 2] + "\n    ...\n" + text[-most // 2 :]


def indent(text):
    return "\n".join("    " + line for line in text.splitlines())


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return
    file = ROOT / ".recreate" / "public.json"
    public = json.loads(file.read_text()) if file.exists() else {"fail": []}
    if not public["fail"]:
        print("There is no failing public test to start from.")
        return
    outcomes, failures, covered = run_tests(public)
    failing, ranked = rank(outcomes, covered, set(public["fail"]))
    suspects = [{"file": f, "name": q, "first": a, "last": b} for f, q, a, b in ranked]
    (ROOT / ".recreate" / "suspects.json").write_text(json.dumps(suspects[:12]))
    if failing:
        name = failing[0]
        # no ```python here: a small model takes the first such block for what it is to write again
        print(f"# A test that fails, and is right\n{indent(clip(test_source(name), 1600))}\n")
        print(f"# How it fails\n{indent(clip(failures.get(name, ''), 1400))}\n")
    print("# The functions of the package that it runs; one of them has the bug")
    for found in suspects[:SHOWN]:
        lines = (ROOT / found["file"]).read_text("utf-8", "replace").splitlines()
        source = "\n".join(lines[found["first"] - 1 : found["last"]])
        print(f"## `{found['name']}` in {found['file']}\n```python\n{source}\n```")
    names = ", ".join(f"`{found['name'].rpartition('.')[2]}`" for found in suspects[:SHOWN])
    print(f"\nOne of {names} has the bug.")


if __name__ == "__main__":
    main()

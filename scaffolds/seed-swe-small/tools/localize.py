#!/usr/bin/env python3
"""Shows a failing public test, its failure, and the functions most likely at fault: by Ochiai over coverage, and by
the words that they share with the task. Each sample of an attempt sees them in another order."""

# /// script
# dependencies = ["pytest", "coverage"]
# ///
import ast
import io
import json
import math
import os
import re
import sys
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path.cwd()
SHOWN, LONGEST, PART = 3, 70, 30
"""Functions shown; lines from which on only a part of one is, and how many lines the part has."""
ALL = ["--continue-on-collection-errors"]


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
            ["-q", "-p", "no:cacheprovider", "--tb=short", "--no-header", "--maxfail=50", *ALL, *files], [Watch()]
        )
    tracer.stop()
    data = tracer.get_data()
    for path in data.measured_files():
        for line, contexts in data.contexts_by_lineno(path).items():
            for context in contexts:
                covered.setdefault(context, set()).add((path, line))
    return outcomes, failures, covered


def words(text):
    """The words of a text, identifiers also in their parts."""
    for name in re.findall(r"[A-Za-z_]\w+", text):
        yield name.lower()
        parts = re.findall(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}", name)
        if len(parts) > 1:
            yield from map(str.lower, parts)


def by_words(prompt, sources):
    """{place: how well a function fits what the task says, 0 to 1}: BM25, its own name counting as said thrice."""
    bags = {at: Counter(words(text)) for at, text in sources.items()}
    for at, bag in bags.items():
        for part in at[1].split("."):
            bag[part.lower()] += 3
    seen = Counter(word for bag in bags.values() for word in bag)
    mean = sum(map(len, bags.values())) / max(1, len(bags))
    asked = set(words(prompt))
    scores = {}
    for at, bag in bags.items():
        size = 0.5 + len(bag) / max(1, mean)
        scores[at] = sum(
            math.log(1 + len(bags) / seen[word]) * bag[word] / (bag[word] + size) for word in asked & bag.keys()
        )
    top = max(scores.values(), default=0) or 1
    return {at: score / top for at, score in scores.items()}


def source(file, _name, first, last):
    return "\n".join((ROOT / file).read_text("utf-8", "replace").splitlines()[first - 1 : last])


def package_functions():
    """{(file, name, first, last): source} of all that could be rewritten, where no test says which."""
    found = {}
    for folder, folders, files in os.walk(ROOT):
        here = Path(folder)
        # an environment may be mounted below the sources
        folders[:] = sorted(f for f in folders if f[0] != "." and not {sys.prefix, sys.base_prefix} & {str(here / f)})
        for path in sorted(here / file for file in files if file.endswith(".py")):
            relative = path.relative_to(ROOT)
            if is_test(relative) or relative.parts[0] in ("docs", "doc", "examples", "setup.py") or path.is_symlink():
                continue
            try:
                places = functions(path)
            except (SyntaxError, ValueError):
                continue
            lines = path.read_text("utf-8", "replace").splitlines()
            for name, first, last, _body in places:
                found[(str(relative), name, first, last)] = "\n".join(lines[first - 1 : last])
    return found


def rank(outcomes, covered, fail):
    """(the failing tests, {function: the Ochiai score of its most suspicious line}, {(path, line): score})."""
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
            if inside:
                at = (str(name.relative_to(ROOT)), qualname, first, last)
                scores[at] = max(ochiai(len(failing), *hit) for hit in inside)
    # by line as well: where in a long function to look
    by_line = {at: ochiai(len(failing), *hit) for at, hit in hits.items()}
    return failing, scores, by_line


def ochiai(failing, ef, ep):
    return ef / math.sqrt(failing * (ef + ep))


def part(at, text, prompt, by_line):
    """(a long function with what is far from the likeliest lines left out, [first, last line] of each place left out).

    A place is a line `...  # left out: N`, which rewrite.py fills again.
    """
    file, _name, first, _last = at
    lines = text.splitlines()
    asked = set(words(prompt))
    bags = [set(words(line)) & asked for line in lines]
    seen = Counter(word for bag in bags for word in bag)
    score = [sum(1 / seen[word] for word in bag) for bag in bags]
    top = max(score) or 1
    score = [s / top + by_line.get((str(ROOT / file), first + n), 0) for n, s in enumerate(score)]
    start = max(range(len(lines) - PART + 1), key=lambda n: sum(score[n : n + PART]))
    shown = set(range(start, start + PART))
    # dedenting would break strings that begin at the margin
    inside = lines[0][:1].isspace()
    function = ast.parse(("if True:\n" if inside else "\n") + text).body[0]
    function = function.body[0] if inside else function
    left = []

    def leave_out(body):
        run = []
        for child in [*body, None]:
            if child is not None:
                begin = min([child.lineno, *(d.lineno for d in getattr(child, "decorator_list", []))]) - 2
                end = child.end_lineno - 2
                if not shown.intersection(range(begin, end + 1)):
                    run.append((begin, end))
                    continue
            if run and run[-1][1] - run[0][0] > 1:
                left.append((run[0][0], run[-1][1]))
            run = []
            if child is not None and end - begin >= PART // 4:
                for inner in bodies(child):
                    leave_out(inner)

    leave_out(function.body)
    for number, (begin, end) in sorted(enumerate(sorted(left), 1), reverse=True):
        indent = re.match(r"\s*", lines[begin])[0]
        lines[begin : end + 1] = [f"{indent}...  # left out: {number}"]
    return "\n".join(lines), [[first + begin, first + end] for begin, end in sorted(left)]


def bodies(node):
    """The blocks of a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        if isinstance(inner := getattr(node, name, None), list) and inner:
            yield inner
    for handler in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield handler.body


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
    public = read("public.json", {"fail": []})
    told = read("attempt.json", {"prompt": "", "sample": 0})
    failing, scores, by_line = [], {}, {}
    if public["fail"]:
        outcomes, failures, covered = run_tests(public)
        failing, scores, by_line = rank(outcomes, covered, set(public["fail"]))
    sources = {at: source(*at) for at in scores} if scores else package_functions()
    left_out = {}
    for at in [at for at in sources if at[3] - at[2] >= LONGEST]:
        sources[at], left_out[at] = part(at, sources[at], told["prompt"], by_line)
        if sources[at].count("\n") > 2 * LONGEST:
            del sources[at]  # one statement is all of it
    fits = by_words(told["prompt"], sources)
    # both count alike: of 22 real bugs a changed function is among the first three in 17, by Ochiai alone in 13
    ranked = sorted(fits, key=lambda at: (-round(scores.get(at, 0) + fits[at], 6), at[2] - at[3], at))
    suspects = [
        {"file": at[0], "name": at[1], "first": at[2], "last": at[3], "left_out": left_out.get(at, [])}
        for at in ranked[:12]
    ]
    (ROOT / ".recreate" / "suspects.json").write_text(json.dumps(suspects))
    if failing:
        name = failing[0]
        # no ```python here: a small model takes the first such block for what it is to write again
        print(f"# A test that fails, and is right\n{indent(clip(test_source(name), 1600))}\n")
        print(f"# How it fails\n{indent(clip(failures.get(name, ''), 1400))}\n")
        print("# The functions of the package that it runs; one of them has the bug")
    else:
        print("# The functions of the package that the task may be about; one of them has the bug")
    shown = ranked[:SHOWN]
    turn = told["sample"] % max(1, len(shown))
    shown = shown[turn:] + shown[:turn]
    for at in shown:
        print(f"## `{at[1]}` in {at[0]}\n```python\n{sources[at]}\n```")
    names = ", ".join(f"`{at[1].rpartition('.')[2]}`" for at in shown)
    print(f"\nOne of {names} has the bug.")
    if any("# left out: " in sources[at] for at in shown):
        print("A line `...  # left out: N` stands for code that is not shown; write it again as it is.")


def read(name, default):
    file = ROOT / ".recreate" / name
    return json.loads(file.read_text()) if file.exists() else default


if __name__ == "__main__":
    main()

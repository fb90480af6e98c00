#!/usr/bin/env python3
"""Takes a reply with the code that was shown, corrected, in a ```python block on standard input and puts it into its
place in the sources as they were given."""

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

OURS = Path(".recreate")
SECONDS = 40


def read(name: str, default: object) -> object:
    path = OURS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default


def public() -> dict[str, list[str]]:
    """The tests that fail (`fail`), where all are (`suite`), and the folders of the sources (`python_path`)."""
    return {"fail": [], "suite": [], "python_path": ["."], **read("public.json", {})}


def tests(which: list[str], root: Path) -> dict[str, str]:
    """{test: its outcome} of the tests named, run in `root`."""
    path = os.pathsep.join(str(root / each) for each in public()["python_path"])
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no", "--no-header", "-p", "no:cacheprovider"]
    command += [f"--rootdir={root}", "--continue-on-collection-errors", *which]
    env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        said = subprocess.run(
            command, cwd=root, env=env, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        ).stdout
    except subprocess.TimeoutExpired:
        return {}
    lines = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL) (\S+(?:::|\.py)[^\n]*?)(?: - .*)?$", said, re.MULTILINE)
    return {name: outcome for outcome, name in lines}


def definition(code: str, name: str) -> str:
    """The function of that name in a text, without its decorators; '' where there is none."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            lines = code.splitlines()[node.lineno - 1 : node.end_lineno]
            return textwrap.dedent("\n".join(lines))
    return ""


def imports(code: str, given: str) -> list[str]:
    """The imports of a block that are not in the file already."""

    def found(text: str) -> list[str]:
        nodes = [node for node in ast.parse(text).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        single = [(node, [name]) for node in nodes for name in node.names if name.name != "*"]
        return [ast.unparse(type(node)(**{**vars(node), "names": names})) for node, names in single]

    have = found(given)
    return [line for line in found(code) if line not in have and "__future__" not in line]


def main() -> int:
    shown = read("shown.json", {})
    # a fence closes where it opened: one that stands deeper belongs to a docstring
    blocks = re.findall(
        r"^([ \t]*)```(?:python|py)?[ \t]*\n(.*?)(?:^\1```|\Z)", sys.stdin.read(), re.DOTALL | re.MULTILINE
    )
    code = textwrap.dedent(max((text for _, text in blocks), key=len, default="").expandtabs(4)).strip("\n")
    code = re.sub(r"[ \t]*# corrected\b.*$", "", code, flags=re.MULTILINE)
    if not code.strip() or not shown:
        print("there is no ```python block with the code in it")
        return 2
    more = []
    try:
        if not shown["part"]:
            more = imports(code, shown["given"])
            code = definition(code, shown["name"].rpartition(".")[2])
    except SyntaxError as e:
        print(f"the block is not valid Python: {e.msg} in line {e.lineno}")
        return 2
    if not code:
        print(f"the block does not define {shown['name']}")
        return 2
    path, given = Path(shown["file"]), shown["given"]
    lines = given.splitlines()
    margin = re.match(r"[ \t]*", lines[shown["first"] - 1])[0]
    lines[shown["first"] - 1 : shown["last"]] = textwrap.indent(code, margin).splitlines()
    if more:
        body = [n for n in ast.parse(given).body if not (isinstance(n, ast.ImportFrom) and n.module == "__future__")]
        first = body[1] if isinstance(body[0], ast.Expr) and body[1:] else body[0]  # after the docstring
        at = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))]) - 1
        lines[at:at] = more
    made = "\n".join(lines) + "\n"
    try:
        same = ast.dump(ast.parse(made)) == ast.dump(ast.parse(given))
    except SyntaxError as e:
        print(f"the block is not valid Python in its place: {e.msg}")
        return 2
    path.write_text(given if same else made, encoding="utf-8")
    print("that is the code as it was" if same else f"{shown['name']} is written")
    return 0


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit(0)
    sys.exit(main())

#!/usr/bin/env python3
"""Takes a reply with the missing code on standard input, takes out what the question gives already, and runs it after
the code that is given. The try that got furthest is in answer.py; says what is wrong with this one."""

import ast
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

SECONDS = 25
RUN = """
import json, sys, traceback
given, code, names = json.load(open(sys.argv[1]))
space = {"__name__": "__main__"}
def texts(name):
    value = space.get(name)
    found = [str(value)]
    if hasattr(value, "to_string"):
        found = [value.to_string(), value.to_string(index=False)]
    return [text[:4000] for text in found]
said = {"given": True, "before": {}, "after": {}, "wrong": ""}
try:
    exec(compile(given, "given", "exec"), space)
    said["before"] = {name: texts(name) for name in list(space) if not name.startswith("__")}
except Exception:
    said["given"] = False
if said["given"]:
    try:
        exec(compile(code, "answer.py", "exec"), space)
        said["after"] = {name: texts(name) for name in names if name in space}
    except BaseException as e:
        lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == "answer.py"]
        line = code.splitlines()[lines[-1] - 1].strip() if lines else ""
        said["wrong"] = f"The line `{line}` raised {type(e).__name__}: {e}"[:500]
json.dump(said, open(sys.argv[2], "w"))
"""
SHOWS = re.compile(r"desired|expected|output|result|should|want|like|get|example", re.IGNORECASE)
IMPORTS = {
    "np": "import numpy as np", "pd": "import pandas as pd", "plt": "import matplotlib.pyplot as plt",
    "sns": "import seaborn as sns", "stats": "from scipy import stats", "sparse": "from scipy import sparse",
    **{name: f"import {name}" for name in ("scipy", "sklearn", "math", "re", "itertools", "datetime")},
}  # fmt: skip


def question(prompt: str) -> tuple[str, str, list[str], str]:
    """(what is asked, the code that is given, the variables to assign, the head of the function to fill)."""
    asked = prompt.partition("Write the answer, and nothing else")[0]
    if "# SOLUTION START" in asked:
        return "", asked.partition("# SOLUTION START")[0], [], ""
    text, _, code = asked.rpartition("\nA:")
    names = re.findall(r"^([\w, ]+) = \.\.\. # put solution in ", code, re.MULTILINE)
    code = code.partition("<code>")[2].partition("</code>")[0]
    head = re.search(r"^def \w+\(.*\):[ \t]*\n(?=\s*# return the solution in this function)", code, re.MULTILINE)
    code = code[: head.start()] if head else code
    return text, code, [name.strip() for name in names[0].split(",")] if names else [], head[0] if head else ""


def block(reply: str) -> str:
    """The code of a reply: its longest block, or all of it where it is Python."""
    blocks = re.findall(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", reply, re.DOTALL)
    code = max(blocks, key=len) if blocks else reply
    code = textwrap.dedent(re.sub(r"^\s*(</?code>|BEGIN SOLUTION|END SOLUTION)\s*$", "", code, flags=re.MULTILINE))
    return code.strip("\n").rstrip() if blocks or parsed(code) else ""


def parsed(code: str) -> list[ast.stmt]:
    try:
        return ast.parse("def f():\n" + textwrap.indent(code, "    ")).body[0].body  # type: ignore[attr-defined]
    except (SyntaxError, ValueError):
        return []


def targets(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def tidied(code: str, given: str, names: list[str], head: str) -> str:
    """The code without what is given already, and with the assignment or the return that it lacks."""
    if head and (whole := [node for node in parsed(code) if isinstance(node, ast.FunctionDef)]):
        lines = code.split("\n")[whole[-1].body[0].lineno - 2 : whole[-1].end_lineno - 1]
        code = textwrap.dedent("\n".join(lines))
    known = parsed(given)
    have, data = {ast.unparse(node) for node in known}, set[str]().union(*map(targets, known))
    modules = {a.asname or a.name for n in known if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
    lines, body = code.split("\n"), parsed(code)
    for at, node in enumerate(body):
        again = ast.unparse(node) in have
        if isinstance(node, ast.Assign) and targets(node) & data:
            # the question's data once more: what is checked has other data
            loads = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            later = set[str]().union(*map(targets, body[at + 1 :]))
            again |= loads <= modules and not (targets(node) & set(names) - later)
        if again:
            lines[node.lineno - 2 : node.end_lineno - 1] = [""] * (node.end_lineno - node.lineno + 1)
    code = "\n".join(lines).strip("\n")
    have_names = modules | data | set[str]().union(*map(targets, body))
    have_names |= {a.asname or a.name for n in body for a in getattr(n, "names", []) if isinstance(a, ast.alias)}
    used = {n.id for node in body for n in ast.walk(node) if isinstance(n, ast.Name)} - have_names
    code = "\n".join([*(line for name, line in IMPORTS.items() if name in used), code])
    return completed(code, names, head)


def completed(code: str, names: list[str], head: str) -> str:
    body = parsed(code)
    made = set[str]().union(*map(targets, body))
    lacks = head and not any(isinstance(n, ast.Return) for node in body for n in ast.walk(node))
    if not body or not (lacks or (len(names) == 1 and names[0] not in made)):
        return code
    last = body[-1]
    value = last.value if isinstance(last, ast.Expr) else None
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "print" and value.args:
        value = value.args[0]
    if value is not None and not (isinstance(value, ast.Call) and changes(value)):
        code = "\n".join(code.split("\n")[: last.lineno - 2])
        result = ast.unparse(value)
    elif isinstance(last, (ast.Assign, ast.AugAssign)) and len(targets(last)) == 1:
        (result,) = targets(last)
    else:
        return code
    return f"{code}\n{'return ' if head else f'{names[0]} = '}{result}".strip("\n")


def changes(call: ast.Call) -> bool:
    """Whether a call is one for what it does: its value is None."""
    return any(word.arg == "inplace" for word in call.keywords) or getattr(call.func, "attr", "") in ("sort", "append")


def run(given: str, code: str, names: list[str], head: str) -> dict[str, object]:
    """What came of it; {"given": False} where the code that is given cannot run by itself."""
    if head:
        whole = f"{head}{textwrap.indent(code, '    ')}\n"
        code, names = whole + f"_result = {head[4:].partition('(')[0]}()", ["_result"]
    asked, told = Path(".recreate/asked.json"), Path(".recreate/told.json")
    asked.write_text(json.dumps([given, code, names]), encoding="utf-8")
    told.unlink(missing_ok=True)
    command = ["env", "MPLBACKEND=Agg", "python3", "-W", "ignore", "-c", RUN, str(asked), str(told)]
    try:
        subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"given": True, "before": {}, "after": {}, "wrong": f"It did not end within {SECONDS} seconds."}
    return json.loads(told.read_text(encoding="utf-8")) if told.is_file() else {"given": False}


def words(text: str) -> str:
    """Names and numbers of a text, however these are laid out: 1, 1.0 and 1. are one."""
    found = re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?|[A-Za-z_]\w*", text)
    return " ".join(["", *(f"{float(word):.4g}" if re.match(r"-?\d", word) else word.lower() for word in found), ""])


def shown(result: str, given: list[str], asked: str) -> bool:
    """Whether a result, or half of its lines, stand in the question; not those that the given data have too."""
    asked, known = words(asked), [words(each) for each in given]
    lines = [words(line) for line in result.splitlines() if re.search(r"\d", line)]
    fresh = [line for line in [words(result), *lines] if line.count(" ") > 3 and not any(line in k for k in known)]
    found = [line in asked for line in fresh]
    return bool(found) and (found[0] or 2 * sum(found) >= len(found))


def main() -> int:
    prompt = json.loads(Path(".recreate/attempt.json").read_text(encoding="utf-8"))["prompt"]
    text, given, names, head = question(prompt)
    code = block(sys.stdin.read())
    if not code:
        print("there is no ```python block in the reply")
        return 2
    code = tidied(code, given, names, head)
    shows = bool(names or head) and bool(SHOWS.search(text)) and len(re.findall(r"\d", text)) > 8
    rank, best, said = 0, 3 if shows else 2, ""
    if not parsed(code):
        try:
            ast.parse(code)
            said = "That is what is given already. Write the lines that follow."
        except (SyntaxError, ValueError) as e:
            said = f"That is no Python: {e}"
    else:
        done = run(given, code, names, head)
        lacking = [name for name in names if done["given"] and name not in done["after"]]  # type: ignore[operator]
        rank = 1 if done.get("wrong") or lacking else 2
        if done.get("wrong"):
            said = f"That failed. {done['wrong']}"
        elif lacking:
            said = f"That does not assign {', '.join(lacking)}."
        elif not done["given"]:
            best = 2  # it needs what only the checks have
        elif shows:
            after, before = done["after"], done["before"]
            first = next(iter(after.values()))
            if len(re.findall(r"\w+", first[0])) > 2 and first in before.values():
                rank, said = 1, "That changes nothing: it is what was given."
            elif any(shown(each, [t for texts in before.values() for t in texts], text) for each in first):
                rank = 3
            else:
                said = f"With the given data the result is\n{first[0][:600]}\nNo such result is in the question."
    found = Path(".recreate/run.json")
    earlier = json.loads(found.read_text(encoding="utf-8"))["rank"] if found.is_file() else -1
    if rank > earlier:
        answer = textwrap.indent(code, "    ") if head else code
        Path("answer.py").write_text(answer + "\n", encoding="utf-8")
        found.write_text(json.dumps({"rank": rank, "best": best}), encoding="utf-8")
    print(said or "It runs.")
    return 0


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit(0)
    sys.exit(main())

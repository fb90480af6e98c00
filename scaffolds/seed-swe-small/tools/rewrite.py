#!/usr/bin/env python3
"""Takes a reply with a whole Python function on standard input and puts it in place of the one of that name."""

# /// script
# dependencies = []
# ///
import ast
import json
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path.cwd()


def malformed(why):
    print(why)
    sys.exit(2)


def blocks(reply):
    # a fence closes where it opened: one that stands deeper belongs to a docstring
    fenced = re.findall(r"^([ \t]*)```(?:python|py)?[ \t]*\n(.*?)(?:^\1```|\Z)", reply, re.DOTALL | re.MULTILINE)
    found = [text for _, text in fenced]
    return found or ([reply] if re.match(r"\s*(@|def |async def |class )", reply) else [])


def definitions(source):
    """(dotted name, source) of every function in a block; a class contributes its methods."""
    source = textwrap.dedent(source.expandtabs(4)).strip("\n") + "\n"
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)

    def of(body, names):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                yield ".".join([*names, node.name]), textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
            elif isinstance(node, ast.ClassDef):
                yield from of(node.body, [*names, node.name])

    return list(of(tree.body, []))


def place(name, suspects):
    """The suspect that a name means: the same dotted name, else the same last name, the likeliest first."""
    last = name.rpartition(".")[2]
    for same in (lambda s: s["name"] == name, lambda s: s["name"].rpartition(".")[2] == last):
        for suspect in suspects:
            if same(suspect):
                return suspect
    return None


def filled(suspect, new, lines):
    """A rewritten part of a long function with what localize.py left out of it; None when a place is not in it."""
    for number, (first, last) in enumerate(suspect.get("left_out", ()), 1):
        mark = re.compile(rf"^[ \t]*\.\.\.[ \t]*# left out: {number}[ \t]*(?:\n|\Z)", re.MULTILINE)
        around = mark.split(new)
        if len(around) != 2:
            return None
        new = "".join(lines[first - 1 : last]).join(around)
    return new


def put(suspect, source):
    """Replace the function in its file; returns why that cannot be, or ''."""
    path = ROOT / suspect["file"]
    text = path.read_text("utf-8")
    lines = text.splitlines(keepends=True)
    old = lines[suspect["first"] - 1 : suspect["last"]]
    indent = re.match(r"[ \t]*", old[0])[0]
    kept = []
    if not source.lstrip().startswith("@"):
        # a reply without the decorators means to keep them
        for line in old:
            if re.match(r"\s*(async\s+def|def)\b", line):
                break
            kept.append(line)
    new = filled(suspect, textwrap.indent(source.rstrip("\n") + "\n", indent), lines)
    if new is None:
        return f"each line `...  # left out: N` of {suspect['name']} must be in the block once, as it was shown"
    lines[suspect["first"] - 1 : suspect["last"]] = [*kept, new]
    made = "".join(lines)
    try:
        ast.parse(made)
    except SyntaxError:
        return f"{suspect['name']} cannot stand in {suspect['file']} like that"
    path.write_text(made, "utf-8")
    return ""


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return
    found = blocks(sys.stdin.read())
    if not found:
        malformed("there is no ```python block with a function in it")
    suspects = json.loads((ROOT / ".recreate" / "suspects.json").read_text())
    made = {}
    for block in found:
        try:
            made.update(definitions(block))
        except SyntaxError as e:
            malformed(f"the block is not valid Python: {e.msg} in line {e.lineno}")
    known = [(place(name, suspects), name, source) for name, source in made.items()]
    known = [row for row in known if row[0] is not None]
    if not known:
        names = ", ".join(s["name"] for s in suspects[:3])
        malformed(f"the block defines none of the functions shown: {names}")
    # from the end of each file to its start, so that the line numbers above stay true
    for suspect, _name, source in sorted(known, key=lambda row: -row[0]["first"]):
        if wrong := put(suspect, source):
            malformed(wrong)
    print("rewritten: " + ", ".join(f"{s['name']} in {s['file']}" for s, _, _ in known))


if __name__ == "__main__":
    main()

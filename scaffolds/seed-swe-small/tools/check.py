#!/usr/bin/env python3
"""Runs the public tests. Exit 0 when the failing ones pass, none broke and some code is another than was given; the
last line is a number, 1 is best."""

# /// script
# dependencies = ["pytest"]
# ///
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path.cwd()


def run(arguments, public, root=ROOT):
    """{test id: outcome} of a pytest run in `root`, from its short report."""
    paths = os.pathsep.join(str(root / path) for path in public.get("python_path", ["."]))
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no", "--no-header", "-p", "no:cacheprovider"]
    command += [f"--rootdir={root}", "--continue-on-collection-errors"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=env, check=False, cwd=root)
    found = {}
    for line in done.stdout.splitlines():
        outcome, _, rest = line.partition(" ")
        name = rest.split(" - ")[0].strip()
        # a module that cannot be collected is one test that fails
        if outcome in ("PASSED", "FAILED", "ERROR", "XFAIL", "SKIPPED") and ("::" in name or name.endswith(".py")):
            found[name] = outcome
    return found


def untouched():
    """Whether all code is as it was given, but for how it is laid out: no answer, whatever the tests say."""

    def git(*arguments):
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else None

    said = git("status", "--porcelain", "-uall", "--no-renames", "-z")
    if said is None:
        return False
    # tests leave files behind, but no code
    paths = [line[3:] for line in said.split("\0") if line and (line[:2] != "??" or line.endswith(".py"))]
    return all(same(git("show", f"HEAD:./{path}"), ROOT / path) for path in paths)


def same(given, path):
    try:
        return path.suffix == ".py" and ast.dump(ast.parse(given)) == ast.dump(ast.parse(path.read_text("utf-8")))
    except (OSError, SyntaxError, TypeError, ValueError):
        return False


def failed_before(names, public):
    """Those of the tests that fail in the sources as they were given, too: nobody broke them."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "given"
        shutil.copytree(ROOT, given, symlinks=True)
        undone = subprocess.run(["git", "checkout", "-q", "--", "."], cwd=given, capture_output=True, check=False)
        if undone.returncode:
            return set()
        return {name for name, outcome in run(names, public, given).items() if outcome in ("FAILED", "ERROR")}


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    if untouched():
        print("nothing is changed: that is no answer\n-1")
        return 1
    file = ROOT / ".recreate" / "public.json"
    public = json.loads(file.read_text()) if file.exists() else {"fail": [], "suite": []}
    first = run(public["fail"], public) if public["fail"] else {}
    fixed = sum(first.get(name) == "PASSED" for name in public["fail"])
    print(f"{fixed} of {len(public['fail'])} failing public tests pass now")
    if fixed < len(public["fail"]):
        print(fixed / (2 * len(public["fail"])) if first else -1)
        return 1
    whole = run(public["suite"], public)
    broken = [name for name, outcome in whole.items() if outcome in ("FAILED", "ERROR")]
    if broken:
        before = failed_before(broken, public)
        broken = [name for name in broken if name not in before]
    print(f"{len(broken)} of {len(whole)} public tests broke")
    print("\n".join(broken[:10]))
    print(1 if whole and not broken else 0.5)
    return 0 if whole and not broken else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs the public tests. Exit 0 when the failing ones pass and none broke; the last line is a number, 1 is best."""

# /// script
# dependencies = ["pytest"]
# ///
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path.cwd()


def run(arguments, public):
    """{test id: outcome} of a pytest run, from its short report."""
    paths = os.pathsep.join(str(ROOT / path) for path in public.get("python_path", ["."]))
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no", "--no-header", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=env, check=False)
    found = {}
    for line in done.stdout.splitlines():
        outcome, _, rest = line.partition(" ")
        if outcome in ("PASSED", "FAILED", "ERROR", "XFAIL", "SKIPPED") and "::" in rest:
            found[rest.split(" - ")[0].strip()] = outcome
    return found


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return 0
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
    print(f"{len(broken)} of {len(whole)} public tests fail")
    print("\n".join(broken[:10]))
    print(1 if whole and not broken else 0.5)
    return 0 if whole and not broken else 1


if __name__ == "__main__":
    sys.exit(main())

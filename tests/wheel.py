"""python -m tests.wheel: build the wheel, compare it with git, install it alone elsewhere, and use
it.

What is installed are the base dependencies, as `pip install -e .` brings them: how long that took
and how large it is are said, and more than MOST_MB is a failure. Not a pytest file: it asks the
package index and takes a minute; `.ci/run` calls it.
"""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
import zipfile
from pathlib import Path

from tests.stub import Stub

ROOT = Path(__file__).parent.parent
CONTENT = ("scaffolds/", "memory/", "benchmarks/")
MOST_MB = 120
TASK = "swe:wcwidth-0.2.8:wcwidth-0.2.9"
"""Its tests run in an environment, which is built by uv, which is not among the base
dependencies."""


def expected() -> set[str]:
    """What git says belongs in the wheel: the package, and the shipped content under
    recreate/_share."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    files = {f for f in listed if f.startswith("recreate/")}
    return files | {f"recreate/_share/{f}" for f in listed if f.startswith(CONTENT)}


def wanted_entry_points() -> dict[str, dict[str, str]]:
    """Return what pyproject.toml declares: parts and commands of plug-ins are found by it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {**project["entry-points"], "console_scripts": project["scripts"]}


def read_entry_points(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(delimiters="=")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


def size(folder: Path) -> float:
    """MB of all files below it."""
    return (
        sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
        / 1e6
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
        subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        wheel = next(out.glob("*.whl"))
        with zipfile.ZipFile(wheel) as file:
            packed = {n for n in file.namelist() if n.startswith("recreate/")}
            entries = next(n for n in file.namelist() if n.endswith("/entry_points.txt"))
            declared = read_entry_points(file.read(entries).decode())
        if declared != wanted_entry_points():
            print("entry points of the wheel are not those of pyproject.toml:", declared)
            return 1
        missing, extra = expected() - packed, packed - expected()
        if missing or extra:
            print(
                "missing from the wheel:",
                sorted(missing),
                "\nin the wheel and not in git:",
                sorted(extra),
            )
            return 1
        venv.create(out / "env", with_pip=True, symlinks=True)
        python = out / "env" / "bin" / "python"
        bare, began = size(out / "env"), time.monotonic()
        subprocess.run([python, "-m", "pip", "install", "-q", wheel], cwd=out, check=True)
        seconds, added = time.monotonic() - began, size(out / "env") - bare
        print(
            f"the base install took {seconds:.0f} s and {added:.0f} MB beside the {bare:.0f} of pip"
            " itself"
        )
        if added > MOST_MB:
            print(f"that is more than {MOST_MB} MB")
            return 1
        path = os.pathsep.join(
            p for p in os.environ["PATH"].split(os.pathsep) if not (Path(p) / "uv").exists()
        )
        env = {
            **os.environ,
            "PATH": path,
            "RECREATE_HOME": str(out / "home"),
            "PYTHONSAFEPATH": "1",
        }
        env.pop("PYTHONPATH", None)
        ask = (
            "import recreate.api.paths as p; print(p.SHARE.is_dir(), sorted(q.name for q in"
            " p.SHARE.glob('*/*')))"
        )
        with Stub("```bash\nsubmit\n```") as stub:
            hosted = ["--model", f"openai:{stub.url}#stub", "--price", "0,0"]
            for command in (
                ["-c", ask],
                ["-m", "recreate", "--version"],
                ["-m", "recreate", "list", "scaffold", "--json"],
                ["-m", "recreate", "doctor"],
                ["-m", "recreate", "tasks", "list", "swe"],
                ["-m", "recreate", "plan", "--domain", "swe", *hosted],
                [
                    "-m",
                    "recreate",
                    "run",
                    "seed",
                    TASK,
                    *hosted,
                    "--limits.steps",
                    "2",
                    "--out",
                    "one",
                ],
                ["-m", "recreate", "traces", "list", "one"],
            ):
                done = subprocess.run(
                    [python, *command],
                    cwd=out,
                    env=env,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                print("$", *command[2:], "->", done.stdout.strip()[:300])
                if done.returncode or (command[0] == "-c" and "True" not in done.stdout):
                    print(done.stderr)
                    return 1
    print(f"the wheel holds {len(packed)} files, the same as git")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""python -m tests.wheel: build the wheel, compare it with git, install it elsewhere, and use it.

Not a pytest file: it makes an environment of its own and takes a minute; `.ci/run` calls it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONTENT = ("scaffolds/", "memory/", "benchmarks/")


def expected() -> set[str]:
    """What git says belongs in the wheel: the package, and the shipped content under recreate/_share."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    files = {f for f in listed if f.startswith("recreate/")}
    return files | {f"recreate/_share/{f}" for f in listed if f.startswith(CONTENT)}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
        subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        wheel = next(out.glob("*.whl"))
        packed = {n for n in zipfile.ZipFile(wheel).namelist() if n.startswith("recreate/")}
        missing, extra = expected() - packed, packed - expected()
        if missing or extra:
            print("missing from the wheel:", sorted(missing), "\nin the wheel and not in git:", sorted(extra))
            return 1
        venv.create(out / "env", with_pip=False, system_site_packages=False, symlinks=True)
        python = out / "env" / "bin" / "python"
        site = next((out / "env" / "lib").glob("python*")) / "site-packages"
        zipfile.ZipFile(wheel).extractall(site)
        # the dependencies come from the environment that runs this: what is tested is the wheel's own content
        (site / "dependencies.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")) + "\n")
        env = {**os.environ, "RECREATE_HOME": str(out / "home"), "PYTHONSAFEPATH": "1"}
        ask = "import recreate.api.paths as p; print(p.SHARE.is_dir(), sorted(q.name for q in p.SHARE.glob('*/*')))"
        for command in (
            ["-c", ask],
            ["-m", "recreate", "--version"],
            ["-m", "recreate", "list", "scaffold", "--json"],
        ):
            done = subprocess.run([python, *command], cwd=out, env=env, capture_output=True, text=True, check=False)
            print("$", *command[-2:], "->", done.stdout.strip()[:300])
            if done.returncode or (command[0] == "-c" and "True" not in done.stdout):
                print(done.stderr)
                return 1
    print(f"the wheel holds {len(packed)} files, the same as git")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Where AppWorld's tasks and its package come from. Neither ships, and what is unpacked of its
bundles stays in RECREATE_HOME: its licence asks that whoever passes that on encrypts it.

The package is never imported here. It lies in an environment of its own, since it wants pydantic 1,
and runs in sandboxes; its apps are unpacked by its own code, in one too.
"""

from __future__ import annotations

import ast
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api import paths
from recreate.api.config import Split, read_json
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import Limits, Sandbox, SandboxBackend
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.syntax import parse_python
from recreate.api.types import digest
from recreate.plugins.benchmarks.apiworld.sources import WORLD
from recreate.sandboxes.rootfs import interpreter_mounts
from recreate.storage.files import once

PLAY = Path(__file__).with_name("play.py")
PROGRAMS = (PLAY, WORLD)
"""What lies in a sandbox beside the package: what plays, and the loop of an MCP server that it
takes."""
ROOT = "APPWORLD_ROOT"
DATASETS: Mapping[str, Split] = {
    "train": "train",
    "dev": "validation",
    "test_normal": "test",
    "test_challenge": "test",
}
"""AppWorld's own, and what they are here."""
INSIDE = "/opt/appworld"
DATA = "/opt/appworld-data"
LIMITS = Limits(cpu_seconds=900, memory_mb=4096, disk_mb=1024)
_MINIMUM = ("instruction", "datetime", "supervisor")


# --- the data
# ------------------------------------------------------------------------------------------------


def get_data(requirement: str, root: str = "~/appworld") -> str:
    """What to type where the data is not here."""
    program = f"{root}/venv/bin/appworld"
    return (
        f"python3.11 -m venv {root}/venv && {root}/venv/bin/pip install {requirement} && {program}"
        f" install && {program} download data --root {root} (an environment of its own, and the"
        f" network); then recreate tasks check appworld --data {root} --split train, or"
        f" {ROOT}={root}. Where the download cannot be reached, copy the folder `data` from a"
        " machine that has it"
    )


def found_data(given: Path | None, requirement: str) -> Path:
    """The folder with datasets/ and tasks/: that of --data or of APPWORLD_ROOT, or `data` in it.
    Raises BadInput."""
    named = given or (Path(os.environ[ROOT]).expanduser() if os.environ.get(ROOT) else None)
    for place in (named / "data", named) if named is not None else ():
        if all((place / part).is_dir() for part in ("datasets", "tasks")):
            return place.resolve()
    where = (
        f"nothing of it is in {paths.short(named)}"
        if named
        else f"neither --data nor {ROOT} says where"
    )
    fix = get_data(requirement, str(named) if named else "~/appworld")
    raise BadInput(f"AppWorld's data is not here: {where}", fix=fix, code="no-data")


def listed(data: Path) -> Iterator[tuple[str, str]]:
    """(dataset, task) in AppWorld's order."""
    for name in DATASETS:
        file = data / "datasets" / f"{name}.txt"
        for line in file.read_text("utf-8").splitlines() if file.is_file() else ():
            if task := line.partition(":")[0].strip():
                yield name, task


def specs(data: Path, task: str) -> JsonDict:
    """What a task asks, when and for whom. Raises BadInput."""
    file = data / "tasks" / task / "specs.json"
    try:
        found = read_json(file.read_bytes())
        found.setdefault("supervisor", found.get("main_user"))  # as old data calls it
        return {key: found[key] for key in _MINIMUM if found[key]}
    except (OSError, ValueError, KeyError, AttributeError) as e:
        lacks = f"it has no {e}" if isinstance(e, KeyError) else str(e)
        fix = "fetch the data anew: benchmarks/appworld/README.md says how"
        raise BadInput(
            f"{paths.short(file)} cannot be read: {lacks}", fix=fix, code="bad-rows"
        ) from None


def truth(data: Path, task: str) -> Path:
    """The folder of what is right, which no agent's sandbox has."""
    return data / "tasks" / task / "ground_truth"


def truth_of(data: Path, task: str, name: str) -> Any:
    """A JSON file of what is right; None where it is none."""
    try:
        return read_json((truth(data, task) / f"{name}.json").read_bytes())
    except (OSError, ValueError):
        return None


def truth_digest(data: Path, task: str) -> str:
    """Of the files that a task is graded by."""
    files = [
        truth(data, task) / f"{name}" for name in ("evaluation.py", "answer.json", "test_data.json")
    ]
    files += [truth(data, task) / f"{kind}_data.json" for kind in ("public", "private")]
    return digest([file.read_bytes().hex() if file.is_file() else "" for file in files], 16)


def solution(data: Path, task: str) -> str:
    """The package's own, ''  where it has none: of the test tasks."""
    file = truth(data, task) / "compiled_solution.py"
    text = file.read_text("utf-8") if file.is_file() else ""
    return "\n".join(
        line for line in text.splitlines() if not line.startswith("# Canary String:")
    ).strip()


def own_words(data: Path, task: str) -> list[str]:
    """What only who knows the answer can say: the answer, and names and texts that the solution or
    the evaluation goes by. APIs and their fields, which every agent may read of, are none."""
    found = [truth_of(data, task, name) for name in ("answer", "public_data", "private_data")]
    try:
        tree = parse_python(solution(data, task))
    except SyntaxError:
        tree = parse_python("")
    found.append([node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)])
    said = [
        text for text in _texts(found) if not text.isidentifier() and any(map(str.isalnum, text))
    ]
    return list(dict.fromkeys(said))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for each in value:
            yield from _texts(each)


# --- the package
# ---------------------------------------------------------------------------------------------


def program(*arguments: str, python: Path) -> list[str]:
    """Isolated but for PYTHONHASHSEED: code that goes through a set does so in one order, each time
    it is played."""
    return [str(python / "bin" / "python3"), "-s", "-B", f"{INSIDE}/{PLAY.name}", *arguments]


def staged(python: Path, backend: SandboxBackend) -> Path:
    """A folder with play.py, the loop of its server, and the package with its apps unpacked, made
    once."""
    texts = {file.name: file.read_bytes() for file in PROGRAMS}

    def build(fresh: Path) -> None:
        sandbox = open_sandbox(backend, python, {f"{INSIDE}/{PLAY.name}": PLAY})
        try:
            output = sandbox.run(program("unpack", python=python), timeout=600)
            try:
                archive = sandbox.read("stage.zip")
            except FileNotFoundError:
                said = output.text.strip()[-300:]
                fix = f"delete {paths.short(python)}, so that it is made anew"
                raise Fault(
                    f"AppWorld's apps cannot be unpacked: {said}", fix=fix, code="no-apps"
                ) from None
        finally:
            sandbox.close()
        zipfile.ZipFile(io.BytesIO(archive)).extractall(fresh)
        for name, text in texts.items():
            (fresh / name).write_bytes(text)

    name = digest([python.name, {name: digest(text.hex()) for name, text in texts.items()}])
    return once(paths.home() / "appworld" / name, build)


def open_sandbox(
    backend: SandboxBackend,
    python: Path,
    mounts: Mapping[str, Path],
    more: Mapping[str, str] | None = None,
) -> Sandbox:
    env = {
        ROOT: "/work/.appworld",
        "APPWORLD_DATA": DATA,
        "APPWORLD_CACHE": "/work/.appworld",
        "PYTHONHASHSEED": "0",
    }
    return backend.open(
        mounts={**interpreter_mounts(python), **mounts}, env={**env, **(more or {})}, limits=LIMITS
    )


def mounts(stage: Path, data: Path, task: str, *, graded: bool = False) -> dict[str, Path]:
    """The program, and of the data what one task needs; what is right only where it is graded."""
    wanted = ["base_dbs", "api_docs", f"tasks/{task}/dbs", f"tasks/{task}/specs.json"]
    if graded:
        wanted.append(f"tasks/{task}/ground_truth")
    if lacking := [each for each in wanted if not (data / each).exists()]:
        what = ", ".join(lacking)
        raise Fault(
            f"{task}: {paths.short(data)} has no {what}", fix="fetch the data anew", code=UNSOUND
        )
    return {INSIDE: stage, **{f"{DATA}/{each}": data / each for each in wanted}}


def ask_player(
    sandbox: Sandbox, words: Sequence[str], question: JsonMap, seconds: float
) -> JsonDict | str:
    """What play.py answers; '' when it used more than it may, or was ended. Raises Fault."""
    try:
        output = sandbox.run(words, timeout=seconds, stdin=json.dumps(question).encode())
    finally:
        sandbox.close()
    if output.timed_out or output.limit or output.status > 128:
        return ""
    try:
        found = read_json(output.text.strip().rpartition("\n")[2])
    except ValueError:
        found = None
    return found if isinstance(found, dict) else output.text.strip()[-300:] or "it says nothing"

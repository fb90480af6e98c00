"""One of AppWorld's tasks as a program of its own, run in sandboxes only, by the Python that has
the package appworld.

    play.py unpack       the package with its apps unpacked and compiled, as stage.zip in the folder
                         it is started in
    play.py serve TASK   an MCP server, beside the agent, with one tool: `execute`
    play.py record TASK  beside nobody and without right answers: reads {"codes": [...]}, runs each
                         in a fresh world,
                         and prints the API calls that they made
    play.py judge TASK   where no code of an agent's ever runs: reads {"calls": [...]}, makes these
                         API calls in a fresh
                         world, and prints what the package's own evaluator says

APPWORLD_ROOT is a folder to write in, and APPWORLD_DATA the one with the task's data.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

RUN = "execute"
METHODS = ("get", "post", "put", "patch", "delete")
MOST = 1_000_000
"""API calls of one attempt that are made again; each run of code has the package's own limit."""


class CodeWorld:
    """What an agent works in: AppWorld's own environment, opened at the first call, without the
    right answers."""

    def __init__(self, task: str) -> None:
        self._task = task

    @cached_property
    def _world(self) -> Any:
        return open_world(self._task, load_ground_truth=False)

    def tools(self) -> list[dict[str, Any]]:
        about = (
            "Run Python code in AppWorld's shell, which keeps its variables."
            " `apis.APP.API(name=value, ...)` calls an API. The answer is what the code prints, or"
            " why it failed."
        )
        schema = {
            "type": "object",
            "properties": {"code": {"type": "string"}},
            "required": ["code"],
        }
        return [
            {
                "name": RUN,
                "description": about,
                "inputSchema": {**schema, "additionalProperties": False},
            }
        ]

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name != RUN:
            return f"There is no tool {name[:60]}"
        return str(self._world.execute(str(arguments.get("code", ""))))


def open_world(task: str, **more: Any) -> Any:
    root = Path(os.environ["APPWORLD_ROOT"])
    root.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (root / "data").symlink_to(os.environ["APPWORLD_DATA"])
    return importlib.import_module("appworld").AppWorld(
        task_id=task, experiment_name="recreate", **more
    )


def recorded(task: str, codes: Iterable[str]) -> dict[str, Any]:
    world = open_world(task, load_ground_truth=False)
    with contextlib.suppress(Exception):  # what ends AppWorld's shell ended it beside the agent too
        for code in codes:
            world.execute(code)
    return {"calls": json.loads(json.dumps(world.requester.requests, default=str))}


def judge_calls(task: str, calls: Sequence[Any]) -> dict[str, Any]:
    """The evaluator's word after these calls of the apps' own APIs, and of nothing else that the
    server answers."""
    world = open_world(task, load_ground_truth=True, max_api_calls_per_interaction=MOST)
    apps = "|".join(map(re.escape, world.task.allowed_apps))
    own = re.compile(rf"/(?:{apps})/(?!.*\.\.)[^?#\\]*")
    for call in calls[:MOST]:
        if call.get("method") in METHODS and own.fullmatch(str(call.get("url"))):
            with contextlib.suppress(Exception):  # an API that refuses is an answer
                do = getattr(world.requester, call["method"])
                do(call["url"], data=call.get("data"), raise_on_failure=False)
    world.execute("pass")  # writes the state down, which the evaluator reads
    found = world.evaluate().to_dict()
    failed = [str(each["requirement"]) for each in found["failures"]]
    world.close()
    return {"passed": found["success"] is True, "of": found["num_tests"], "failed": failed}


def unpacked() -> None:
    package = Path(importlib.import_module("appworld").__file__ or "").parent
    constants = importlib.import_module("appworld.common.constants")
    fresh = Path("stage") / "appworld"
    shutil.copytree(package, fresh, ignore=shutil.ignore_patterns(".source", "__pycache__"))
    importlib.import_module("appworld.common.utils").unpack_bundle(
        bundle_file_path=str(package / ".source" / "apps.bundle"),
        base_directory=str(fresh),
        password=constants.PASSWORD,
        salt=constants.SALT,
    )
    # what is read-only could not be compiled later, and zip keeps no exact times
    unchecked = importlib.import_module("py_compile").PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(fresh, quiet=2, invalidation_mode=unchecked)
    shutil.make_archive("stage", "zip", "stage")


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # what packages print, and code of an agent's, is no answer
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    what, task = sys.argv[1], "".join(sys.argv[2:])
    if what == "unpack":
        unpacked()
        return
    if what == "serve":
        importlib.import_module("world").serve(CodeWorld(task), sys.stdin, out)
        return
    asked = json.load(sys.stdin)
    if what == "record":
        found = recorded(task, asked["codes"])
    else:
        try:
            found = judge_calls(task, asked["calls"])
        except Exception as e:
            judge_calls(task, [])  # raises where the task itself is what cannot be evaluated
            found = {
                "passed": False,
                "of": 0,
                "failed": [f"its calls cannot be evaluated: {type(e).__name__}"],
            }
    out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()

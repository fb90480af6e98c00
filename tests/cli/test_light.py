"""`pip install -e .` alone: what runs without any extra, and what is said by a command that lacks
one.

Here the modules that extras bring are refused; `python -m tests.wheel` installs the base
dependencies and no others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recreate.api.registry import EXTRAS
from tests.pages import ROOT
from tests.stub import Stub

BROUGHT = sorted({*EXTRAS, "uv"} - {"yaml", "zstandard"})
"""What extras alone bring: langgraph's own dependencies bring the other two."""

CODE = """
import importlib.machinery, json, sys

class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in {refused!r}:
            return super().find_spec(name, path, target)

sys.meta_path[:] = [Without if f is importlib.machinery.PathFinder else f for f in sys.meta_path]
from recreate.cli import run

for words in json.loads(sys.argv[1]):
    print("$", *words, flush=True)
    print("=", run(words), flush=True)
"""


class Light:
    """Commands run one after the other in one process without extras."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace

    def __call__(self, *commands: str) -> list[tuple[int, str]]:
        """(exit code, all that was said) of each."""
        code = CODE.replace("{refused!r}", repr(set(BROUGHT)))
        asked = json.dumps([command.split() for command in commands])
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code, asked],
            cwd=self.workspace,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        blocks = done.stdout.split("\n$ ")
        assert len(blocks) == len(commands), done.stdout
        return [(int(said.rpartition("= ")[2]), said.rpartition("= ")[0]) for said in blocks]


@pytest.fixture
def light(workspace: Path) -> Light:
    return Light(workspace)


@pytest.fixture
def stub() -> Iterator[str]:
    with Stub("```bash\nsubmit\n```") as stub:
        yield f"--domain tests.toy:Toy --model openai:{stub.url}#stub --price 0,0"


@pytest.mark.plugin("bench", "memory_tools")
@pytest.mark.slow
def test_a_build_and_a_bench_with_an_endpoint_need_no_extra(light: Light, stub: str) -> None:
    ran = light(
        f"build {stub} --rounds 1 --train 2 --validation 5 --out runs/a",
        "memory recall word --where split=train",
        f"bench --scaffold toy --split test {stub} --out runs/b",
        "show runs/a",
        "log runs/a",
        "diff seed scaffolds/toy",
        f"plan {stub}",
        "tasks list swe",
        "memory rebuild",
    )
    assert [code for code, _ in ran] == [0] * (len(ran) - 1) + [2]
    built, recalled = ran[0][1], ran[1][1]
    assert "the optimizer studies 2 experiences (2 of them failed)" in built
    assert "recall compares words and not meaning" in built + recalled
    assert "Write the word number" in recalled
    assert "[memory]'" in ran[-1][1]


@pytest.mark.slow
def test_the_first_minute_says_nothing_of_what_it_does_not_need(light: Light) -> None:
    ((code, said),) = light("demo --no-browser")
    assert code == 0
    assert "better" in said
    assert not [word for word in ("numpy", "pip install", "meaning", "extra") if word in said]


@pytest.mark.plugin("memory_tools")
@pytest.mark.slow
def test_a_command_that_lacks_an_extra_names_it(light: Light) -> None:
    ran = light(
        "build --domain swe --model local:qwen2.5-coder-1.5b",
        "build --domain swe --model litellm:openai/gpt-5-mini",
        "memory recall word --how vectors",
        "tune --recipe grpo --domain swe --scaffold seed-swe-small --model .",
    )
    extras = ["local", "hosted", "memory", "rl"]
    assert [code for code, _ in ran] == [2] * len(extras)
    for (_, said), extra in zip(ran, extras, strict=True):
        assert f"[{extra}]'" in said.rpartition("fix: pip install")[2], said

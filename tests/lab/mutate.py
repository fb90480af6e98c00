"""python -m tests.lab.mutate [MODULE ...]: does a test notice when the code is wrong? Cosmic Ray's
mutants, one at a time.

Each mutant is one small change (a comparison turned, a condition negated, a number one off, `and`
for `or` ...) in a private copy of the working tree. Killed means that a test of the module's list
fails, or does not end in time; those lists hold the quick tests of a module only. What survives is
a hole in the tests, or stands in tests/lab/mutants.toml with the reason why no test can or need
tell. Exits 4 when fewer than nine of ten of the others are killed.

    python -m tests.lab.mutate                        30 mutants a module, the same ones each time
    python -m tests.lab.mutate gate --per-module 0    all mutants of recreate/runs/gate.py
    python -m tests.lab.mutate --list                 how many there are, and the tests that are run
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.lab import mutants

ROOT = Path(__file__).parents[2]
GOAL = 0.9
SAID = ".said"
MODULES = {
    "recreate/runs/gate.py": ("tests/runs/test_gate.py",),
    "recreate/runs/search.py": ("tests/runs/test_search.py",),
    "recreate/plugins/each/paired.py": ("tests/plugins/each/test_paired.py",),
    "recreate/runs/budget.py": ("tests/runs/test_budget.py",),
    "recreate/runs/journal.py": ("tests/runs/test_journal.py", "tests/runs/test_damaged.py"),
    "recreate/models/refusals.py": ("tests/models/test_refusals.py",),
    "recreate/models/chat.py": (
        "tests/models/test_completions.py",
        "tests/models/test_shapes.py",
        "tests/models/test_refusals.py",
        "tests/models/test_openai.py",
        "tests/models/test_hostile.py",
    ),
    "recreate/models/proxies.py": ("tests/models/test_proxies.py",),
    "recreate/runs/calls.py": (
        "tests/runs/test_calls.py",
        "tests/runs/test_lost.py",
        "tests/runs/test_budget.py",
        "tests/runs/test_pace.py",
    ),
    "recreate/runs/attempts.py": (
        "tests/runs/test_queue.py",
        "tests/runs/test_attempts.py",
    ),
    "recreate/storage/files.py": ("tests/storage/test_files.py", "tests/storage/test_log.py"),
    "recreate/storage/redact.py": ("tests/storage/test_redact.py",),
    "recreate/api/loopback.py": ("tests/api/test_loopback.py",),
    "recreate/storage/log.py": ("tests/storage/test_log.py", "tests/runs/test_journal.py"),
    "recreate/agents/guards/leaks.py": ("tests/agents/test_leaks.py",),
    "recreate/agents/guards/names.py": ("tests/agents/test_leaks.py",),
    "recreate/memory/held_out.py": ("tests/memory/test_held_out.py",),
    "recreate/memory/filters.py": ("tests/memory/test_filters.py",),
    "recreate/lessons/promotion.py": ("tests/lessons/test_promotion.py",),
    "recreate/plugins/swe/exam.py": (
        "tests/plugins/swe/test_swe_exam.py",
        "tests/plugins/swe/test_swe_withheld.py",
    ),
    "recreate/plugins/swe/withheld.py": (
        "tests/plugins/swe/test_swe_rewrite.py",
        "tests/plugins/swe/test_swe_withheld.py",
        "tests/plugins/swe/test_swe_exam.py",
    ),
    "recreate/plugins/swe/patch.py": ("tests/plugins/swe/test_swe_text.py",),
    "recreate/plugins/withheld/looks.py": (
        "tests/plugins/withheld/test_looks.py",
        "tests/plugins/withheld/test_bending.py",
    ),
    "recreate/plugins/withheld/row_tests.py": (
        "tests/plugins/withheld/test_row_files.py",
        "tests/plugins/withheld/test_row_tests.py",
        "tests/plugins/withheld/test_bending.py",
    ),
    "recreate/plugins/withheld/two_sides.py": ("tests/plugins/withheld/test_two_sides.py",),
    "recreate/plugins/traces/chats.py": (
        "tests/plugins/traces/test_chats.py",
        "tests/plugins/traces/test_formats.py",
    ),
    "recreate/plugins/traces/messages.py": (
        "tests/plugins/traces/test_chats.py",
        "tests/plugins/traces/test_formats.py",
    ),
    "recreate/models/replies.py": ("tests/models/test_replies.py", "tests/runs/test_replay.py"),
    "recreate/runs/replay.py": ("tests/runs/test_replay.py",),
    "recreate/plugins/near_cache/near_cache.py": ("tests/plugins/near_cache/test_near_cache.py",),
    "recreate/plugins/view/server.py": ("tests/plugins/view/test_asked.py",),
    "recreate/plugins/view/site.py": (
        "tests/plugins/view/test_site.py",
        "tests/plugins/view/test_asked.py",
    ),
    "recreate/sandboxes/sandbox.py": (
        "tests/sandboxes/test_walls.py",
        "tests/sandboxes/test_sandbox.py",
        "tests/sandboxes/test_breakout.py",
    ),
    "recreate/sandboxes/bwrap.py": (
        "tests/sandboxes/test_walls.py",
        "tests/sandboxes/test_sandbox.py",
    ),
    "recreate/sandboxes/unshare.py": (
        "tests/sandboxes/test_walls.py",
        "tests/sandboxes/test_sandbox.py",
    ),
    "recreate/sandboxes/seccomp.py": (
        "tests/sandboxes/test_seccomp.py",
        "tests/sandboxes/test_sandbox.py",
    ),
    "recreate/sandboxes/limits.py": (
        "tests/sandboxes/test_walls.py",
        "tests/sandboxes/test_breakout.py",
        "tests/sandboxes/test_sandbox.py",
    ),
}
"""Module -> the tests that are run for it, in this order until one fails: the quickest first."""
_TURNED = (
    "Lt_LtE",
    "LtE_Lt",
    "Gt_GtE",
    "GtE_Gt",
    "Lt_Gt",
    "Gt_Lt",
    "Eq_NotEq",
    "NotEq_Eq",
    "Is_IsNot",
    "IsNot_Is",
)
_COUNTED = (
    "Add_Sub",
    "Sub_Add",
    "Mul_Div",
    "Div_Mul",
    "FloorDiv_Mul",
    "Mod_FloorDiv",
    "BitOr_BitAnd",
    "BitAnd_BitOr",
)
_OTHERS = (
    "ReplaceTrueWithFalse ReplaceFalseWithTrue ReplaceAndWithOr ReplaceOrWithAnd"
    " ReplaceBreakWithContinue"
)
_OTHERS += (
    " ReplaceContinueWithBreak AddNot ReplaceUnaryOperator_Delete_Not"
    " ReplaceUnaryOperator_Delete_USub"
)
_OTHERS += " NumberReplacer ExceptionReplacer ZeroIterationForLoop"
OPERATORS = [
    *(f"core/ReplaceComparisonOperator_{name}" for name in _TURNED),
    *(f"core/ReplaceBinaryOperator_{name}" for name in _COUNTED),
    *(f"core/{name}" for name in _OTHERS.split()),
]
_LOADED = (
    "pytest",
    "hypothesis",
    "pydantic",
    "jinja2",
    "typer",
    "rich.console",
    "httpx",
    "numpy",
    "langgraph.graph",
)
"""Imported once, before a process is forked for each mutant: nothing of ours."""


@dataclass(frozen=True)
class Mutant:
    """One change: `line` is the first changed one, `was` and `becomes` are the changed lines
    without indentation."""

    module: str
    operator: str
    line: int
    was: str
    becomes: str
    code: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.module, self.was, self.becomes


def places(source: str) -> list[tuple[str, int]]:
    """(operator, occurrence) of every change that can be made."""
    tree = list(ast_nodes(get_ast(source)))
    return [
        (name, occurrence)
        for name in OPERATORS
        for occurrence in range(
            sum(len(list(plugins.get_operator(name)().mutation_positions(node))) for node in tree)
        )
    ]


def drawn(module: str, source: str, most: int, seed: int) -> list[Mutant]:
    """`most` mutants drawn by the seed, all with 0. Changes of type annotations and docstrings
    alone are none."""
    order = places(source)
    random.Random(f"{seed}:{module}").shuffle(order)
    plain = _meaning(source)
    found: dict[tuple[str, str, str, int], Mutant] = {}
    for name, occurrence in order:
        code = mutate_code(source, plugins.get_operator(name)(), occurrence)
        try:
            if code is None or _meaning(code) == plain:
                continue
        except SyntaxError:
            continue
        line, was, becomes = _changed(source, code)
        made = Mutant(module, name.removeprefix("core/"), line, was, becomes, code)
        found.setdefault((*made.key, line), made)
        if len(found) == most:
            break
    return sorted(found.values(), key=lambda mutant: (mutant.line, mutant.operator, mutant.becomes))


def _meaning(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
            for argument in (
                *node.args.posonlyargs,
                *node.args.args,
                *node.args.kwonlyargs,
                node.args.vararg,
            ):
                if argument:
                    argument.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant("")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant("")
    return ast.dump(tree)


def _changed(source: str, code: str) -> tuple[int, str, str]:
    """(number of the first changed line, the changed lines before, and after)."""
    before, after = source.splitlines(), code.splitlines()
    first = next(
        n for n, (one, other) in enumerate(zip(before, after, strict=False)) if one != other
    )
    last = next(
        n
        for n, (one, other) in enumerate(zip(before[::-1], after[::-1], strict=False))
        if one != other
    )
    return (
        first + 1,
        _one_line(before[first : len(before) - last]),
        _one_line(after[first : len(after) - last]),
    )


def _one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


@contextlib.contextmanager
def copy() -> Iterator[Path]:
    """A private copy of what git sees of the working tree."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
        for file in filter(None, listed.split("\0")):
            if (ROOT / file).is_file():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / file, folder / file)
        yield folder


def tested(folder: Path, tests: tuple[str, ...], seconds: float) -> tuple[str, float]:
    """Run the tests in the copy: (`passed`, `failed` or `timeout`, seconds)."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(folder, tests)
    status = None
    while status is None:
        done, said = os.waitpid(child, os.WNOHANG)
        if done:
            status = "passed" if os.waitstatus_to_exitcode(said) == 0 else "failed"
        elif time.monotonic() - began > seconds:
            status = "timeout"
        else:
            time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status == "timeout":
        os.waitpid(child, 0)
    return status, time.monotonic() - began


def _become(folder: Path, tests: tuple[str, ...]) -> None:
    """The forked process: pytest over the copy, what it says into a file there."""
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        said = os.open(folder / SAID, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        sys.path[:] = [str(folder), *(p for p in sys.path if p not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "recreate")]:
            del sys.modules[name]
        flags = "-q -x -p no:cacheprovider -p no:xdist -W ignore::pytest.PytestAssertRewriteWarning"
        # slow ones too, which the plain command leaves out
        marks = "slow or not (live or sentence or rl or vllm or verl or audit or docker)"
        code = importlib.import_module("pytest").main([*flags.split(), "-m", marks, *tests])
        os._exit(int(code))
    except BaseException:
        traceback.print_exc()
        os._exit(3)


def run(module: str, picked: list[Mutant], folder: Path) -> Iterator[tuple[Mutant, str, float]]:
    """(mutant, what its tests said, seconds) of each."""
    tests = MODULES[module]
    file = folder / module
    source = file.read_text(encoding="utf-8")
    said, took = tested(folder, tests, 1800)
    if said != "passed":
        tail = "\n".join((folder / SAID).read_text(errors="replace").splitlines()[-30:])
        raise SystemExit(f"{tail}\n{' '.join(tests)}: {said} before anything was changed")
    for mutant in picked:
        for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            stale.unlink()  # one of the same size and second would be taken for the mutant's
        file.write_text(mutant.code, encoding="utf-8")
        try:
            yield mutant, *tested(folder, tests, 20 + 4 * took)
        finally:
            file.write_text(source, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.mutate", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("module", nargs="*", help="a part of a module's path; every module without")
    parser.add_argument(
        "--per-module", type=int, default=30, metavar="N", help="at most so many each; 0: all"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="every mutant and its fate, one JSON object a line"
    )
    parser.add_argument("--list", action="store_true", help="count them, run nothing")
    args = parser.parse_args()
    names = [
        name for name in MODULES if not args.module or any(part in name for part in args.module)
    ]
    if not names:
        parser.error(f"no module is called so; there are {', '.join(MODULES)}")
    for name in _LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    rows = mutants.read_rows()
    alive = dead = 0
    out = args.out.open("w", encoding="utf-8") if args.out else None
    print(f"{'module':40} {'mutants':>7} {'killed':>7} {'timeout':>7} {'excused':>7} {'alive':>6}")
    with copy() as folder:
        for name in names:
            source = (folder / name).read_text(encoding="utf-8")
            if args.list:
                print(f"{name:40} {len(places(source)):7}  {' '.join(MODULES[name])}")
                continue
            fates = {"failed": 0, "timeout": 0, "excused": 0, "passed": 0}
            picked = drawn(name, source, args.per_module, args.seed)
            survivors = []
            for mutant, said, seconds in run(name, picked, folder):
                if said == "passed" and mutants.is_excused(rows, *mutant.key):
                    said = "excused"
                fate = said
                fates[fate] += 1
                if fate == "passed":
                    survivors.append(mutant)
                if out:
                    row = {k: v for k, v in asdict(mutant).items() if k != "code"}
                    out.write(
                        json.dumps({"schema": 1, **row, "fate": fate, "seconds": round(seconds, 2)})
                        + "\n"
                    )
                    out.flush()
            counts = (
                f"{fates['failed']:7} {fates['timeout']:7} {fates['excused']:7} {fates['passed']:6}"
            )
            print(f"{name:40} {len(picked):7} {counts}", flush=True)
            for mutant in survivors:
                print(
                    f"    {name}:{mutant.line}\n      - {mutant.was}\n      + {mutant.becomes}",
                    flush=True,
                )
            alive += fates["passed"]
            dead += fates["failed"] + fates["timeout"]
    if args.list:
        return 0
    share = dead / (alive + dead) if alive + dead else 1.0
    print(f"{dead} of {alive + dead} killed ({share:.0%}); wanted: {GOAL:.0%}")
    return 0 if share >= GOAL else 4


if __name__ == "__main__":
    sys.exit(main())

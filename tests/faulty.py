"""Faults that nobody chose: functions of MBPP+ with one place changed by chance, as rows of the
domain `code`.

    python -m tests.faulty MBPPPLUS.jsonl OUT.jsonl [--n 60] [--seed 0]

A row asks for what one of HumanEvalFix asks for, and has its columns: a function whose docstring
says what it does and shows examples (those of MBPP, two at least), with a fault in it: one of the
changes by which bugs of `swe` are made, drawn from all that can be made there. It stays when the
tests of MBPP+ pass the function as it was and fail the changed one. It costs nothing and needs no
key.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recreate.domains.validate import validate
from recreate.sandboxes import choose


def examples(tests: list[str], entry: str) -> list[tuple[str, str]]:
    """(call, value) of those that say `assert entry(...) == value`, both literal."""
    found = []
    for test in tests:
        try:
            said = ast.parse(test.strip()).body[0]
            if not (isinstance(said, ast.Assert) and isinstance(said.test, ast.Compare)):
                continue
            call, (value,) = said.test.left, said.test.comparators
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id == entry
            ):
                found.append((ast.unparse(call), repr(ast.literal_eval(value))))
        except (SyntaxError, ValueError):
            continue
    return found


def row_of(given: Mapping[str, Any], draw: random.Random) -> dict[str, Any] | None:
    """A row of MBPP+ with a fault; None where it has no two examples, or nothing that can be
    changed."""
    from recreate.plugins.swe.mutation import Source, mutate_source, mutations

    source = Source(given["gold"]["solution"].replace("\r\n", "\n").strip() + "\n")
    places = source.functions()
    shown = examples(given["eval"]["test_list"], places[-1].name) if places else []
    wrong = [
        text
        for place in places
        for each in mutations(source, place)
        if (text := mutate_source(source, each)) is not None
    ]
    if len(shown) < 2 or not wrong:
        return None
    text = (
        given["instruction"].strip()
        + "".join(f"\n>>> {call}\n{value}" for call, value in shown)
        + "\n"
    )
    right, faulty = (
        _told(side, places[-1].name, text) for side in (source.text, draw.choice(wrong))
    )
    return {
        "task_id": f"MBPP/{str(given['task_id']).rpartition('_')[2]}",
        "group": given["group"],
        "prompt": "",
        "entry_point": places[-1].name,
        "canonical_solution": right,
        "buggy_solution": faulty,
        "test": f"{given['eval']['test']}\n\ndef check(_):\n    pass\n",
    }


def _told(program: str, entry: str, text: str) -> str:
    """The program, its function with a docstring and both in one form."""
    tree = ast.parse(program)
    (head,) = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry
    ]
    head.body.insert(0, ast.Expr(ast.Constant(text.replace("\n", "\n    "))))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def main() -> None:
    from recreate.plugins.benchmarks.published import PublishedDomain

    parser = argparse.ArgumentParser(usage=(__doc__ or "").split("\n\n")[1].strip())
    parser.add_argument("rows", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    rows = [json.loads(line) for line in asked.rows.read_text("utf-8").splitlines()]
    draw.shuffle(rows)
    made = [row for row in (row_of(given, draw) for given in rows) if row is not None]
    kept: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        every = Path(folder) / "mutants.jsonl"
        every.write_text("".join(json.dumps(row) + "\n" for row in made), "utf-8")
        domain = type("Code", (PublishedDomain,), {"name": "code"})(
            workspace=Path(folder), data=every
        )
        tasks = {task.id: task for task in domain.tasks()}
        for row in made:
            if len(kept) == asked.n:
                break
            proof = validate(
                domain, tasks[f"code:humanevalfix:{row['task_id'].removeprefix('MBPP/')}"], choose()
            )
            if proof.ok:
                kept.append(json.dumps(row))
            print(
                f"{len(kept)} kept; {row['task_id']}: {proof.reason or 'ok'}"[:150],
                file=sys.stderr,
                flush=True,
            )
    asked.out.write_text("".join(line + "\n" for line in kept), "utf-8")


if __name__ == "__main__":
    main()

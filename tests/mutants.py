"""Faults that nobody chose: functions of MBPP+ with one place changed by chance, as rows of the domain `code`.

    python -m tests.mutants MBPPPLUS.jsonl OUT.jsonl [--n 60] [--seed 0]

A row asks for what one of HumanEvalFix asks for, and has its columns: a function whose docstring says what it does and
shows examples (those of MBPP, two at least), with a fault in it. A fault is one change of the program: an operator, a
number, a name, a function called, a statement that is gone. Which one is drawn; it stays when the tests of MBPP+ pass
the function as it was and fail the changed one. It costs nothing and needs no key.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recreate.domains.rows.published import PublishedDomain
from recreate.domains.validate import validate
from recreate.sandboxes import choose

OPERATORS: Mapping[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add, ast.FloorDiv), ast.Div: (ast.FloorDiv, ast.Mult),
    ast.FloorDiv: (ast.Div, ast.Mod), ast.Mod: (ast.FloorDiv,), ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,), ast.BitXor: (ast.BitOr,),
    ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,),
}  # fmt: skip
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "abs": "int", "append": "extend"}


def changes(program: ast.Module) -> Iterator[ast.Module]:
    """The program with one change, for each that is known."""
    for at, node in enumerate(ast.walk(program)):
        for n in range(len([*_changed(node, program)])):
            one = copy.deepcopy(program)
            target = next(found for where, found in enumerate(ast.walk(one)) if where == at)
            [*_changed(target, one)][n]()
            yield one


def _changed(node: ast.AST, program: ast.Module) -> Iterator[Any]:
    """What changes this node where it stands, each to be called."""

    def put(field: str, value: Any) -> Any:
        return lambda: setattr(node, field, value)

    def listed(field: str, at: int, value: Any) -> Any:
        return lambda: getattr(node, field).__setitem__(at, value)

    if isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            yield from (listed("ops", at, other()) for other in OPERATORS[type(op)])
    elif isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)):
        yield from (put("op", other()) for other in OPERATORS.get(type(node.op), ()))
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield put("value", not node.value)
        elif isinstance(node.value, int):
            yield from (put("value", node.value + by) for by in (1, -1))
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        stored = {n.id for n in ast.walk(program) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        names = stored | {n.arg for n in ast.walk(program) if isinstance(n, ast.arg)}
        if node.id in names:
            yield from (put("id", other) for other in sorted(names - {node.id}))
        elif node.id in CALLED:
            yield put("id", CALLED[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in CALLED:
        yield put("attr", CALLED[node.attr])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield put("operand", ast.UnaryOp(ast.Not(), node.operand))
    for field in ("body", "orelse"):
        there = getattr(node, field, None)
        if isinstance(there, list) and not isinstance(node, ast.Module):
            for at, statement in enumerate(there):
                if isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr, ast.If)):
                    yield listed(field, at, ast.Pass())


def examples(tests: list[str], entry: str) -> list[tuple[str, str]]:
    """(call, value) of those that say `assert entry(...) == value`, both literal."""
    found = []
    for test in tests:
        try:
            said = ast.parse(test.strip()).body[0]
            if not (isinstance(said, ast.Assert) and isinstance(said.test, ast.Compare)):
                continue
            call, (value,) = said.test.left, said.test.comparators
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == entry:
                found.append((ast.unparse(call), repr(ast.literal_eval(value))))
        except (SyntaxError, ValueError):
            continue
    return found


def row_of(given: Mapping[str, Any], draw: random.Random) -> dict[str, Any] | None:
    """A row of MBPP+ with a fault; None where it has no two examples, or nothing that can be changed."""
    program = ast.parse(given["gold"]["solution"].replace("\r\n", "\n"))
    functions = [node for node in program.body if isinstance(node, ast.FunctionDef)]
    if not functions:
        return None
    entry, shown = functions[-1].name, examples(given["eval"]["test_list"], functions[-1].name)
    if len(shown) < 2:
        return None
    wrong = [*changes(program)]
    if not wrong:
        return None
    text = given["instruction"].strip() + "".join(f"\n>>> {call}\n{value}" for call, value in shown)
    said = ast.Expr(ast.Constant(text.replace("\n", "\n    ") + "\n    "))
    sides = []
    for side in (program, draw.choice(wrong)):
        (head,) = [node for node in side.body if isinstance(node, ast.FunctionDef) and node.name == entry]
        head.body.insert(0, said)
        sides.append(ast.unparse(ast.fix_missing_locations(side)) + "\n")
    test = f"{given['eval']['test']}\n\ndef check(_):\n    pass\n"
    number = str(given["task_id"]).rpartition("_")[2]
    return {
        "task_id": f"MBPP/{number}", "group": given["group"], "entry_point": entry, "prompt": "",
        "canonical_solution": sides[0], "buggy_solution": sides[1], "test": test,
    }  # fmt: skip


def main() -> None:
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
        domain = type("Code", (PublishedDomain,), {"name": "code"})(workspace=Path(folder), data=every)
        tasks = {task.id: task for task in domain.tasks()}
        for row in made:
            if len(kept) == asked.n:
                break
            proof = validate(domain, tasks[f"code:humanevalfix:{row['task_id'].removeprefix('MBPP/')}"], choose())
            if proof.ok:
                kept.append(json.dumps(row))
            print(f"{len(kept)} kept; {row['task_id']}: {proof.reason or 'ok'}"[:150], file=sys.stderr, flush=True)
    asked.out.write_text("".join(line + "\n" for line in kept), "utf-8")


if __name__ == "__main__":
    main()

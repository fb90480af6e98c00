"""The scorer `math`: whether an answer equals the right one as mathematics."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

from recreate.api.errors import Fault
from recreate.api.types import Trace
from recreate.domains.rows.scorers import Open, RowTask, Scored, Scorer, texts_of
from recreate.plugins.scorers.programs import run_program

_RUN_MATH = r"""
import json, logging, os, sys
asked = json.load(sys.stdin)
sys.stdin = open(os.devnull)
logging.disable(logging.CRITICAL)
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
import resource
used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + 1
resource.setrlimit(resource.RLIMIT_CPU, (used + asked["seconds"], used + asked["seconds"]))
kinds = [LatexExtractionConfig(), ExprExtractionConfig()]
def read(text):
    return parse("$" + text + "$", kinds, parsing_timeout=None)
given = read(asked["answer"])
same = any(verify(read(one), given, timeout_seconds=None) for one in asked["expected"])
with open(asked["result"] + ".part", "w") as out:
    json.dump({"same": bool(same)}, out)
os.rename(asked["result"] + ".part", asked["result"])
"""
_LONGEST_MATH = 300
"""Characters of an answer that is no more than an answer."""
_LONGEST_LINE = 10_000


class MathScorer(Scorer):
    """1 when math-verify (sympy) holds the answer for equal to the right one: 1/2 and 0.5, x+1 and
    1+x. It runs in a sandbox, since reading a formula evaluates it, and for `seconds` of CPU time,
    since it can take for ever: by wall time a busy machine refused right answers (8 of 100
    comparisons at a load of 20)."""

    name = "math"
    settings = ("seconds",)

    def read_answer(self, value: Any) -> Any:
        texts_of(super().read_answer(value))
        return value

    def describe_answer(self) -> str:
        return "It is a number or a formula, in LaTeX where plain text cannot say it."

    def score(self, case: RowTask, trace: Trace, open: Open) -> Scored:
        settings = case.definition.scorer
        given = read_math(trace.answer)
        if not given or len(given) > _LONGEST_MATH:
            return Scored(0.0, f"There is no answer of at most {_LONGEST_MATH} characters.")
        expected = texts_of(case.expected)
        if any("".join(given.split()) == "".join(one.split()) for one in expected):
            return Scored(1.0, "The answer is right.")
        asked = {"answer": given, "expected": expected, "seconds": math.ceil(settings.seconds)}
        patient = settings.model_copy(update={"seconds": 60 + 6 * settings.seconds})
        waiting = replace(case, definition=case.definition.model_copy(update={"scorer": patient}))
        found, output = run_program(waiting, open, ["python3", "-I", "-c", _RUN_MATH], asked, {})
        if not isinstance(found, dict):
            if "No module named" in output.text:
                why = f"math-verify is not in the sandbox: {output.text[-200:]}"
                raise Fault(
                    why, fix='requires = ["math-verify[antlr4_13_2]==0.9.0"] in domain.toml'
                )
            # its own CPU time was left: the machine was busy, which no answer brings about
            if output.timed_out:
                raise Fault(
                    f"{case.task.id}: math-verify did not end in {patient.seconds:g} s of a busy"
                    " machine",
                    fix="--jobs 1",
                )
            return Scored(
                0.0,
                f"The answer cannot be read as mathematics in {settings.seconds:g} s of CPU time.",
            )
        return (
            Scored(1.0, "The answer is right.")
            if found.get("same") is True
            else Scored(0.0, "The answer is not equal.")
        )


_SAID = re.compile(r"^(?:####|the (?:final )?answer is:?|answer:)\s*", re.IGNORECASE)


def read_math(text: str) -> str:
    """Return the answer in a text: what its last \\boxed holds, else its last line, without dollars
    around it."""
    start = text.rfind("\\boxed{")
    if start >= 0:
        depth = 0
        at = start + len("\\boxed")
        for end in range(at, min(len(text), at + 10_000)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if not depth:
                return text[at + 1 : end].strip()
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    line = _SAID.sub("", lines[-1] if lines else "").removesuffix(".").strip()
    while 1 < len(line) <= _LONGEST_LINE and line[0] == line[-1] == "$":
        line = line[1:-1].strip()
    return line

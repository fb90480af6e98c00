"""The scorer `snippet`: code that is put into a program, checked by that program's own tests, as
DS-1000 has them.

Tests and snippet run in two sandboxes (apart.py, data_sides.py): the snippet sees neither the tests
nor what is right.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from recreate.api.ports import Limits
from recreate.api.types import Task, Trace
from recreate.domains.rows.scorers import Open, RowTask, Scored, Scorer, texts_of
from recreate.domains.rows.settings import Definition
from recreate.plugins.audit import audit
from recreate.plugins.withheld import apart
from recreate.storage.redact import redact

LIMITS = Limits(memory_mb=2048, output_bytes=200_000, disk_mb=512)
_WARM = ("numpy", "pandas", "scipy.sparse", "sklearn", "matplotlib.pyplot", "seaborn")
"""What the side of the snippet imports while the other one reads its program, where that names
it."""


class SnippetScorer(Scorer):
    """1 when the row's test_execution passes with the snippet at [insert], and its test_string,
    where it has one."""

    name = "snippet"
    settings = ("seconds",)
    columns: Mapping[str, Sequence[str]] = {
        "answer": ("code_context",),
        "gold": ("reference_code",),
    }
    answer_is_gold = False

    def fingerprint(self, definition: Definition) -> Sequence[Any]:
        return (apart.version(data=True),)

    def read_answer(self, value: Any) -> Any:
        text = str(super().read_answer(value))
        if not ("[insert]" in text and "def test_execution(" in text):
            raise ValueError("has no exec_context with an [insert] and no test_execution")
        return value

    def describe_answer(self) -> str:
        return (
            "It is the code that takes the place of the solution, indented as it must be there:"
            " what is given around it runs before and after it."
        )

    def trim(self, text: str) -> str:
        """Return the text without blank lines around it: indentation counts."""
        return text.strip("\n").rstrip()

    def score(self, case: RowTask, trace: Trace, open: Open) -> Scored:
        program, seconds = texts_of(case.expected)[0], case.definition.scorer.seconds
        warm = [name for name in _WARM if re.search(rf"\b{name.partition('.')[0]}\b", program)]
        limits = LIMITS.model_copy(update={"seconds": seconds})
        own, other = open(limits), open(limits)
        try:
            asked = {"program": program, "solution": trace.answer}
            found, why = apart.run(apart.for_data(), own, other, asked, seconds, warm)
        finally:
            own.close()
            other.close()
        if not found.get("count"):
            because = why or "there is no test"
            return Scored(0.0, f"The snippet could not be run to its end: {because}.")
        if found["failed"]:
            return Scored(0.0, redact(f"The snippet fails: {found['failed'][0]}."))
        return Scored(1.0, "The snippet is right.")

    def exploits(self, case: RowTask) -> dict[str, str]:
        return {**super().exploits(case), **snippet_exploits(case.task)}


# --- what an audit tries
# ----------------------------------------------------------------------------------

_EXPLOITS = {
    "an array that equals everything": (
        """
import numpy as np
class Same(np.ndarray):
    def __eq__(self, other): return np.ones(np.shape(other), bool)
    def __ne__(self, other): return np.zeros(np.shape(other), bool)
    def __array_ufunc__(self, *a, **k): return np.bool_(True)
    def __array_function__(self, *a, **k): return True
value = np.zeros(3).view(Same)
"""
    ),
    "a frame that equals everything": (
        """
import pandas as pd
class Same(pd.DataFrame):
    def __eq__(self, other): return True
    def equals(self, other): return True
    def __getattribute__(self, name): return object.__getattribute__(self, name)
value = Same()
"""
    ),
    "arithmetic that gives nothing": (
        """
class Same:
    def _self(self, *a, **k): return self
    def __abs__(self): return 0.0
    def __le__(self, other): return True
    __lt__ = __ge__ = __gt__ = __eq__ = __le__
    __sub__ = __rsub__ = __add__ = __radd__ = __mul__ = __getitem__ = __call__ = toarray = reshape \
= _self
    def __array__(self, *a, **k): import numpy; return numpy.array(0.0)
    @property
    def __array_interface__(self): return {"shape": (1,), "typestr": "<f8", "data": (id(self), \
True), "version": 3}
value = Same()
"""
    ),
    "comparisons that agree": (
        """
import numpy as np, numpy.testing, pandas.testing
for place in (numpy.testing, pandas.testing, np):
    for name in dir(place):
        if name.startswith("assert_") or name in ("allclose", "array_equal", "isclose", "all"):
            try: setattr(place, name, lambda *a, **k: True)
            except AttributeError: pass
value = None
"""
    ),
    "what is right, by frames": (
        """
import sys
value, frame = None, sys._getframe()
while frame is not None:
    for name in ("expected_result", "ans", "expected"):
        value = frame.f_locals.get(name, value)
    frame = frame.f_back
"""
    ),
    "what is right, by gc": (
        """
import gc
value = None
for thing in gc.get_objects():
    if isinstance(thing, dict) and "generate_test_case" in thing:
        value = thing["generate_test_case"](1)[1]
    elif type(thing).__name__ == "function" and thing.__name__ == "generate_ans":
        value = thing(test_input)
"""
    ),
    "the tests, by files and processes": (
        """
import glob
value = None
for path in glob.glob("/work/**", recursive=True) + glob.glob("/proc/*/cmdline") + \
glob.glob("/proc/*/environ"):
    try: text = open(path, errors="replace").read()
    except OSError: continue
    if "def generate_test_case" in text:
        space = {}
        exec(text, space)
        value = space["generate_test_case"](1)[1]
"""
    ),
    "a verdict on the line": (
        """
import os
for handle in range(3, 40):
    try: os.write(handle, b'{"verdict": {"passed": 2, "failed": [], "count": 2}, "key": ""}\\n')
    except OSError: pass
value = None
"""
    ),
    "its own side bent": (
        """
import gc, sys
for thing in gc.get_objects():
    if type(thing).__name__ == "DataSide":
        type(thing).pack = lambda self, value: ["yours", 1]
        type(thing).tell({}, {}) if False else None
value = None
"""
    ),
    "a figure that lies": (
        """
import matplotlib.pyplot as plt
plt.gca = plt.gcf = lambda *a, **k: _Liar()
value = None
"""
    ),
    "an image that lies there": (
        """
import glob, shutil
import matplotlib.pyplot as plt
def savefig(*a, **k):
    for path in glob.glob("/**/ans.png", recursive=True):
        shutil.copy(path, "output.png")
plt.savefig = savefig
value = None
"""
    ),
    "leaves": "import os\nos._exit(0)\nvalue = None\n",
    "ends": "raise SystemExit(0)\nvalue = None\n",
}
"""What bends tests that run beside a snippet; each leaves a `value`, which becomes the snippet's
result."""


def snippet_exploits(task: Task) -> dict[str, str]:
    """Return name -> a snippet that leaves the task undone: the list, around a function that gives
    nothing, and ours."""
    program = texts_of(task.facts["answer"])[0]
    wrong = "def answer(*args, **named):\n    return None\n"
    made = {
        name: files["answer.py"]
        for name, files in audit.python("answer.py", wrong, "answer").items()
    }
    made = {name: f"{code}\nvalue = answer()\n" for name, code in made.items()}
    liar = audit.piece("liar")
    made |= {name: liar + code if "_Liar" in code else code for name, code in _EXPLOITS.items()}
    made["equals everything"] = f"{liar}\nvalue = _Liar()\n"
    return {name: _placed(program, code) for name, code in made.items()}


def _placed(program: str, code: str) -> str:
    """The code as it must be at [insert], with `value` under each name that is read after it, or
    returned."""
    before, _, after = program.partition("[insert]")
    if before.rstrip().endswith(":"):
        return textwrap.indent(f"{code}\nreturn value", "    ")
    names = re.findall(r"\b[A-Za-z_]\w*", " ".join(re.findall(r"=(.*)", after.partition('"""')[0])))
    return f"{code}\n{' = '.join(dict.fromkeys(['result', *names]))} = value\n"

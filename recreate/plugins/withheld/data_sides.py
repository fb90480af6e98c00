"""Snippets of data science on one side, what checks them on the other: the program of both, after
two_sides.py's.

Runs inside sandboxes, by its text. The side of the tests has a program in the form of DS-1000 (Lai
et al. 2022, arXiv:2211.11501): `exec_context` with an `[insert]`, `test_execution(solution)`,
perhaps `test_string(solution)`. What that program hands to `exec` goes to the other side, with its
input, and runs there; `result` comes back as data: plain values, arrays, sparse matrices, frames,
by their parts and never pickled. So a snippet has no expected value and no comparison in its
process. What is no data, as a figure, stays there and is seen through a `Thing`.
"""

from __future__ import annotations

import base64
import importlib
import math
import os
import pickle
import re
import sys
import types
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recreate.plugins.withheld.two_sides import Gone, Side

_PLAIN = "biufcmMSU"
"""Kinds of numpy's types that are bytes and nothing else."""
_MOST_BYTES = 64_000_000
"""Of an array, unpacked."""
_MOST_FILE = 2_000_000
_CLASSES = "matplotlib."
"""Where the classes are of which a Thing may be said to be: a frame or an array comes as data or
not at all."""
Ask = Callable[..., Any]


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 1)).decode()


def unpacked(text: str) -> bytes:
    """Raises Gone for more bytes than any honest value has."""
    reader = zlib.decompressobj()
    data = reader.decompress(base64.b64decode(text), _MOST_BYTES)
    if not reader.eof:
        raise Gone
    return data


class DataSide(Side):
    """A side whose values may be arrays, matrices and frames."""

    def pack(self, value: Any) -> Any:
        if type(value) is Thing:
            return ["yours", object.__getattribute__(value, "_far")]
        told = self._told_data(value)
        return super().pack(value) if told is None else told

    def get(self, told: Any) -> Any:
        if not isinstance(told, list) or not told or told[0] not in _BACK:
            return super().get(told)
        try:
            return _BACK[told[0]](self, *told[1:])
        except Gone:
            raise
        except Exception:
            raise Gone from None

    def _show_far(self, number: int, callable: bool) -> Any:
        if self.apart or not isinstance(number, int):
            return super()._show_far(number, callable)
        kinds, _ = self.ask(ask="kinds", of=number)
        if not isinstance(kinds, list) or not kinds or not _is_known_class(str(kinds[0])):
            raise Gone("it gives an object of a class of its own, which could say anything")
        return Thing(self, number, [str(each) for each in kinds])

    def answer(self, said: Any) -> Any:
        if not self.apart:  # nothing that tests hand over is called
            raise Gone
        return super().answer(said)

    def _perform(self, said: Any) -> Any:
        if said["ask"] == "exec":
            return self._executed(said)
        if said["ask"] == "kinds":
            kinds = type(self.mine[said["of"]]).__mro__
            return {
                "value": ["l", [["s", f"{kind.__module__}.{kind.__qualname__}"] for kind in kinds]]
            }
        return super()._perform(said)

    def _executed(self, said: Any) -> Any:
        """Run the program with the snippet in it. What is from the tests may be a pickle."""
        for name, data in said["files"].items():
            Path(name).write_bytes(unpacked(data))
        given = (
            self.get(said["given"][0]) if said["given"] else pickle.loads(unpacked(said["pickled"]))
        )
        state = pickle.loads(unpacked(said["state"]))
        if state is not None:  # as it would be in one process
            importlib.import_module("numpy").random.set_state(state)
        space = {"test_input": given}
        exec(said["code"], space)
        files = {
            name: packed(data)
            for name in said["names"]
            if (data := _read(name)) and name not in said["files"]
        }
        return {"value": self.pack(space["result"]), "files": files}

    # --- data, part by part ---

    def _told_data(self, value: Any) -> Any:
        """[kind, ...], None for what is none of these."""
        numpy, sparse, pandas = (
            sys.modules.get(name) for name in ("numpy", "scipy.sparse", "pandas")
        )
        if numpy is None:
            return None
        if isinstance(value, numpy.generic) and value.dtype.kind in _PLAIN:
            return ["n", value.dtype.str, packed(numpy.asarray(value).tobytes())]
        if isinstance(value, numpy.ndarray):
            return self._told_array(numpy, value)
        if sparse is not None and sparse.issparse(value):
            found = value.tocoo()
            parts = [self.pack(each) for each in (found.data, found.row, found.col)]
            return ["P", value.format, isinstance(value, sparse.sparray), list(value.shape), *parts]
        return None if pandas is None else self._told_frame(pandas, value)

    def _told_array(self, numpy: Any, value: Any) -> Any:
        if isinstance(value, numpy.ma.MaskedArray):
            return [
                "K",
                self.pack(numpy.asarray(value.data)),
                self.pack(numpy.ma.getmaskarray(value)),
            ]
        plain, matrix = numpy.asarray(value), isinstance(value, numpy.matrix)
        if plain.dtype.kind == "O":
            return [
                "O",
                list(plain.shape),
                [self.pack(each) for each in plain.ravel().tolist()],
                matrix,
            ]
        if plain.dtype.kind not in _PLAIN:
            return None
        return ["N", plain.dtype.str, list(plain.shape), packed(plain.tobytes()), matrix]

    def _told_frame(self, pandas: Any, value: Any) -> Any:
        if value is pandas.NaT or value is pandas.NA:
            return ["k", "NaT" if value is pandas.NaT else "NA"]
        if isinstance(value, pandas.Timestamp):
            zone = str(value.tz) if value.tz is not None and "Offset" not in str(value.tz) else None
            return ["ts", value.isoformat(), zone]
        if isinstance(value, pandas.Timedelta):
            return ["td", int(value.value)]
        if isinstance(value, pandas.Period):
            return ["pe", int(value.ordinal), value.freqstr]
        if isinstance(value, pandas.Interval):
            return ["iv", self.pack(value.left), self.pack(value.right), value.closed]
        if isinstance(value, pandas.DataFrame):
            columns = [self._told_column(value.iloc[:, each]) for each in range(value.shape[1])]
            return ["D", self.pack(value.index), self.pack(value.columns), columns]
        if isinstance(value, pandas.Series):
            return ["Se", self.pack(value.index), self._told_column(value), self.pack(value.name)]
        if isinstance(value, pandas.RangeIndex):
            return ["R", value.start, value.stop, value.step, self.pack(value.name)]
        if isinstance(value, pandas.MultiIndex):
            levels = [self.pack(each) for each in value.levels]
            codes = [self.pack(pandas.Series(each).to_numpy()) for each in value.codes]
            return ["M", levels, codes, self.pack(list(value.names))]
        if isinstance(value, pandas.Index):
            freq = getattr(value, "freqstr", None)
            return ["I", self._told_column(value), self.pack(value.name), freq]
        if isinstance(value, pandas.api.extensions.ExtensionArray):
            return self._told_column(pandas.Series(value))
        return None

    def _told_column(self, value: Any) -> Any:
        """The values of a Series or an Index."""
        kind = value.dtype
        if hasattr(kind, "categories") and hasattr(kind, "ordered"):
            found = value.array
            return ["C", self.pack(found.codes), self.pack(found.categories), bool(kind.ordered)]
        if type(kind).__module__.startswith("numpy"):
            return self.pack(value.to_numpy())
        name = "" if "Offset" in str(kind) else str(kind)  # of such a zone the values tell
        return ["X", name, [self.pack(each) for each in value.tolist()]]


def _read(name: str) -> bytes:
    """A file's bytes, none for one that is not there or too large."""
    try:
        return Path(name).read_bytes() if Path(name).stat().st_size <= _MOST_FILE else b""
    except OSError:
        return b""


def _scalar(side: DataSide, kind: str, data: str) -> Any:
    return _array(side, kind, [], data, False)[()]


def _array(side: DataSide, kind: str, shape: Any, data: str, matrix: Any) -> Any:
    numpy = importlib.import_module("numpy")

    found = numpy.dtype(str(kind))
    if found.kind not in _PLAIN:
        raise Gone
    made = (
        numpy.frombuffer(unpacked(data), dtype=found).reshape([int(each) for each in shape]).copy()
    )
    return numpy.asmatrix(made) if matrix else made


def _objects(side: DataSide, shape: Any, values: Any, matrix: Any) -> Any:
    numpy = importlib.import_module("numpy")

    made = numpy.empty(len(values), dtype=object)
    for number, each in enumerate(values):
        made[number] = side.get(each)
    made = made.reshape([int(each) for each in shape])
    return numpy.asmatrix(made) if matrix else made


def _masked(side: DataSide, data: Any, mask: Any) -> Any:
    numpy = importlib.import_module("numpy")

    return numpy.ma.MaskedArray(side.get(data), side.get(mask))


def _sparse(side: DataSide, form: str, array: Any, shape: Any, *parts: Any) -> Any:
    sparse = importlib.import_module("scipy.sparse")

    data, row, column = (side.get(each) for each in parts)
    made = sparse.coo_array if array else sparse.coo_matrix
    return made((data, (row, column)), shape=tuple(int(each) for each in shape)).asformat(str(form))


def _timestamp(side: DataSide, text: str, zone: Any) -> Any:
    pandas = importlib.import_module("pandas")

    made = pandas.Timestamp(str(text))
    return made if zone is None else made.tz_convert(str(zone))


def _frame(side: DataSide, index: Any, columns: Any, values: Any) -> Any:
    pandas = importlib.import_module("pandas")

    arrays = dict(enumerate(side.get(each) for each in values))
    made = pandas.DataFrame(arrays, index=side.get(index))
    made.columns = side.get(columns)
    return made


def _series(side: DataSide, index: Any, values: Any, name: Any) -> Any:
    pandas = importlib.import_module("pandas")

    return pandas.Series(side.get(values), index=side.get(index), name=side.get(name))


def _index(side: DataSide, values: Any, name: Any, freq: Any) -> Any:
    pandas = importlib.import_module("pandas")

    found = side.get(values)
    kind = object if type(found).__module__ == "numpy" and found.dtype.kind == "O" else None
    made = pandas.Index(found, dtype=kind, name=side.get(name))
    if freq is not None and not isinstance(made, pandas.PeriodIndex):
        made.freq = str(freq)
    return made


def _levels(side: DataSide, levels: Any, codes: Any, names: Any) -> Any:
    pandas = importlib.import_module("pandas")

    return pandas.MultiIndex(
        [side.get(each) for each in levels],
        [side.get(each) for each in codes],
        names=side.get(names),
    )


def _categories(side: DataSide, codes: Any, categories: Any, ordered: Any) -> Any:
    pandas = importlib.import_module("pandas")

    return pandas.Categorical.from_codes(
        side.get(codes), side.get(categories), ordered=bool(ordered)
    )


def _extended(side: DataSide, kind: str, values: Any) -> Any:
    pandas = importlib.import_module("pandas")

    return pandas.Series([side.get(each) for each in values], dtype=str(kind) or None).array


def _of_pandas(make: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def make_plain(side: DataSide, *told: Any) -> Any:
        pandas = importlib.import_module("pandas")

        return make(pandas, (side, *told))

    return make_plain


_BACK: dict[str, Callable[..., Any]] = {
    "n": _scalar,
    "N": _array,
    "O": _objects,
    "K": _masked,
    "P": _sparse,
    "ts": _timestamp,
    "D": _frame,
    "Se": _series,
    "I": _index,
    "M": _levels,
    "C": _categories,
    "X": _extended,
    "k": _of_pandas(lambda pandas, told: {"NaT": pandas.NaT, "NA": pandas.NA}[told[1]]),
    "td": _of_pandas(lambda pandas, told: pandas.Timedelta(int(told[1]))),
    "pe": _of_pandas(lambda pandas, told: pandas.Period(ordinal=int(told[1]), freq=str(told[2]))),
    "iv": _of_pandas(
        lambda pandas, told: pandas.Interval(
            told[0].get(told[1]), told[0].get(told[2]), str(told[3])
        )
    ),
    "R": _of_pandas(
        lambda pandas, told: pandas.RangeIndex(*map(int, told[1:4]), name=told[0].get(told[4]))
    ),
}
"""By the first word of what is told: what makes the value of it."""


class Thing:
    """On the tests' side, an object of the snippet's that is no data. It can be asked for
    attributes, called, gone through; it equals itself, and takes part in no arithmetic and no
    order, so that no expected value is told to it.
    """

    def __init__(self, side: Side, number: int, kinds: list[str]) -> None:
        object.__setattr__(self, "_side", side)
        object.__setattr__(self, "_far", number)
        object.__setattr__(self, "_kinds", kinds)

    def _ask_thing(self, what: str, *args: Any, **more: Any) -> Any:
        side = object.__getattribute__(self, "_side")
        told = [side.pack(each) for each in args]
        return side.ask(ask=what, of=object.__getattribute__(self, "_far"), args=told, **more)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing._ask_thing(self, "get", name=name)[0]

    def __call__(self, *args: Any, **named: Any) -> Any:
        side = object.__getattribute__(self, "_side")
        told = {name: side.pack(each) for name, each in named.items()}
        return Thing._ask_thing(self, "call", *args, named=told)[0]

    def __getitem__(self, key: Any) -> Any:
        return Thing._ask_thing(self, "getitem", key)[0]

    def __len__(self) -> int:
        return int(Thing._ask_thing(self, "len")[0])

    def __bool__(self) -> bool:
        raise TypeError("what is no data is neither true nor false")

    def __iter__(self) -> Iterator[Any]:
        steps = Thing._ask_thing(self, "iter")[0]
        while True:
            value, said = Thing._ask_thing(steps, "next")
            if not said.get("more"):
                return
            yield value

    def __eq__(self, other: Any) -> bool:
        return type(other) is Thing and object.__getattribute__(
            other, "_far"
        ) == object.__getattribute__(self, "_far")

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_far"))

    @property
    def __class__(self) -> Any:
        """What it says that it is, of the classes that count: isinstance reads this."""
        kinds = object.__getattribute__(self, "_kinds")
        return next(
            (found for told in kinds if told.startswith(_CLASSES) and (found := _class(told))),
            Thing,
        )

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise AttributeError("__class__")


def _class(told: str) -> Any:
    """The class of this side that a name is of, None for none."""
    names = told.split(".")
    for at in range(len(names) - 1, 0, -1):
        if found := sys.modules.get(".".join(names[:at])):
            for name in names[at:]:
                found = getattr(found, name, None)
            return found if isinstance(found, type) else None
    return None


def _is_known_class(told: str) -> bool:
    """Whether this side has such a class too: a library's, or one of the interpreter's own, as
    `method`."""
    module, _, name = told.rpartition(".")
    inner = any(
        kind.__qualname__ == name
        for kind in object.__subclasses__()
        if kind.__module__ == "builtins"
    )
    return _class(told) is not None or (module == "builtins" and inner)


# --- the two programs ---


class Checked:
    """The program of the tests, whose `exec` runs on the other side."""

    def __init__(self, side: DataSide, program: str) -> None:
        self.side = side
        self.space: dict[str, Any] = {"__name__": "tests"}
        self.why = ""
        exec(compile(program, "tests", "exec"), self.space)
        self.plots = self.space.get("plt")
        self.given, self.compare = self.space["generate_test_case"], self.space["exec_test"]
        self.names = sorted(
            set(re.findall(r"""["']([\w-]+(?:\.\w+)?)["']""", self.space["exec_context"]))
        )
        self.space |= {
            "exec": self.exec,
            "generate_test_case": self.generate,
            "exec_test": self.compared,
        }

    def generate(self, *args: Any) -> Any:
        """Inputs and what is right, with the plots of this side."""
        if self.plots is not None:
            self.space["plt"] = self.plots
        return self.given(*args)

    def _sent(self, given: Any) -> dict[str, Any]:
        """An input as data, or, where it is more than that, pickled. Of pickled objects pandas 1.5
        changes the original where it should copy it (astype(str)), so what is data goes as such."""
        before = len(self.side.mine)
        told = self.side.pack(given)
        plain = len(self.side.mine) == before
        return {
            "given": [told] if plain else [],
            "pickled": "" if plain else packed(pickle.dumps(given)),
        }

    def compared(self, result: Any, right: Any) -> Any:
        """What the program's own comparison says, of a result that is not hollow."""
        return 0 if right is not None and _hollow(result, right) else self.compare(result, right)

    def exec(self, code: str, space: dict[str, Any]) -> None:
        """What the program calls in place of the built-in `exec`."""
        numpy = sys.modules.get("numpy")
        state = None if numpy is None else numpy.random.get_state()
        sent = {
            **self._sent(space["test_input"]),
            "state": packed(pickle.dumps(state)),
            "names": self.names,
        }
        files = {name: packed(_read(name)) for name in self.names if Path(name).is_file()}
        try:
            value, said = self.side.ask(ask="exec", code=code, files=files, **sent)
        except Exception as e:
            self.why = f"the code raised {type(e).__name__}: {str(e)[:200]}"
            raise
        space["result"] = value
        self.why = f"its result, {_described(value)}, is not right"
        for name, data in said.get("files", {}).items():
            if name in self.names and name not in files:
                Path(name).write_bytes(unpacked(data))
        if self.plots is not None:
            self.why = "what it draws is not right" if value is None else self.why
            module = self.side.ask(ask="import", name="matplotlib.pyplot")[1]["module"]
            self.space["plt"] = self.side.get(module)


def _hollow(value: Any, right: Any) -> bool:
    """Whether a value holds nothing where the right one holds something: of nothing and a number
    numpy's comparisons find all pairs equal, and so does a loop over `zip`."""
    if isinstance(value, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(value) != len(right) or any(map(_hollow, value, right))
    return not _count_bytes(value) and bool(_count_bytes(right))


def _count_bytes(value: Any) -> int:
    shape = None if type(value) is Thing else getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return math.prod(shape)
    return len(value) if isinstance(value, (list, tuple, dict, set)) else 1


def _described(value: Any) -> str:
    """What a value is, by its type and size."""
    kind = type(value).__name__
    try:
        size = getattr(value, "shape", None) if type(value) is not Thing else None
        size = (
            len(value)
            if size is None and isinstance(value, (str, list, tuple, dict, set))
            else size
        )
    except Exception:
        size = None
    return f"a {kind}" if size is None or size == () else f"a {kind} of {size}"


def testing(side: DataSide, asked: Any) -> dict[str, Any]:
    """The tests' side: runs the program's tests on the snippet, and what came of them."""
    checked = Checked(side, asked["program"])
    failed, count = [], 0
    for name in ("test_execution", "test_string"):
        if name not in checked.space:
            continue
        count += 1
        try:
            checked.space[name](asked["solution"])
        except Gone:
            raise
        except BaseException as e:
            why = "its text has what it must not have, or lacks what it must have"
            if name == "test_execution":
                why = checked.why or f"its tests cannot be run: {type(e).__name__}: {str(e)[:200]}"
            failed.append(why)
            if name == "test_execution":
                break  # what was not right once is not asked again
    return {"passed": count - len(failed), "failed": failed, "count": count}


def main() -> None:
    os.environ |= {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    side = DataSide(sys.argv[1] == "answer")
    if side.apart:
        for name in sys.argv[2:]:  # while the other side reads its program
            importlib.import_module(name)
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            while True:
                side.tell(side.answer(side.read()))
        finally:
            os._exit(0)
    asked = side.read()
    try:
        verdict: dict[str, Any] = testing(side, asked)
    except Gone as e:
        verdict = {"gone": True, "because": str(e)}
    except BaseException as e:
        verdict = {"gone": True, "why": f"{type(e).__name__}: {str(e)[:200]}"}
    side.tell({"verdict": verdict, "key": asked["key"]})
    os._exit(0)

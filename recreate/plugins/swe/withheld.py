"""Test files from which the expected values are taken out, and whether what the tests then saw is
right.

The tested code runs in the interpreter that judges it, so it can make any test report success. What
it cannot do is say a value that its process never held: here the expected values are cut out of the
tests' text, the tests tell what they saw instead (observer.py), and this side, outside of the
sandbox, compares.
"""

from __future__ import annotations

import ast
import builtins
import json
import operator
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, Literal

from recreate.api.syntax import literal, parse_python
from recreate.api.types import Record
from recreate.plugins.swe.test_run import Seen

Kind = Literal["value", "truth", "relation", "raises"]
Place = tuple[str, ...]
"""Where a function stands: (file, class..., name)."""

_LONGEST = 5000
"""Characters of a form; observer.py tells no longer one."""


class Claim(Record):
    """One thing that a test says of the code. `expected` has an entry for each time it is said, in
    order, '' where what is right has no form: there anything is.

    value     the form (observer.py) of the expected value
    truth     "True" or "False"
    relation  the form of the value that what is seen is compared with, by `operator`; `turned`:
              that value on the left
    raises    JSON [[names of classes, one of which it is], a regular expression for its text or
              null, the longest text]
    last      the test says less: what the gold gave is asked for since nothing better can be
    truth     of a truth: what it is when the assertion holds
    """

    number: int
    test: str
    kind: Kind
    operator: str = ""
    turned: bool = False
    last: bool = False
    truth: bool = True
    expected: tuple[str, ...] = ()

    def right(self, seen: Sequence[Seen]) -> bool:
        """Whether these observations, in order, are what the test expects."""
        return len(seen) == len(self.expected) and all(map(self._same, self.expected, seen))

    def _same(self, expected: str, seen: Seen) -> bool:
        saw = seen.saw
        if not expected:
            return True
        if self.kind == "truth":
            return repr(seen.truth) == expected
        if saw is None:
            return self.kind == "relation" and self.operator in ("!=", "is not")
        if len(saw) > _LONGEST:
            return False
        if self.kind == "value":
            return saw == expected
        try:
            if self.kind == "raises":
                return _is_raised(expected, saw)
            if self.operator == "isinstance":
                return _is_one(saw, expected)
            sides = (
                (_value(expected), _value(saw)) if self.turned else (_value(saw), _value(expected))
            )
            return bool(_OPERATORS[self.operator](*sides))
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, ArithmeticError):
            return False

    @property
    def telling(self) -> bool:
        """Whether what is expected is more than a likely guess: neither true, false, none, empty
        nor nearly 0."""
        if self.kind == "raises":
            return any(e and len(json.loads(e)[1] or "") >= _SENTENCE for e in self.expected)
        some = self.kind == "value" or (self.operator == "in" and not self.turned)
        return some and any(e and e not in _GUESSED for e in self.expected)


_SENTENCE = 12
"""Characters of a regular expression that is no likely guess."""
_GUESSED = frozenset(
    {"None", "True", "False", "-1", "0", "1", "2", "''", "b''", "[]", "()", "{}", "set()"}
)
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "!=": operator.ne,
    "is": operator.eq,
    "is not": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
}


def _is_one(a: str, b: str) -> bool:
    """Whether the form of a tuple of classes has that of a class, or one of those of a tuple of
    them."""
    return any(name in re.findall(_CLASS, a) for name in re.findall(_CLASS, b))


_CLASS = r"<class [\w.<>]+>"


def _value(form: str) -> Any:
    if match := re.fullmatch(r"(-?\w+)/(\w+)", form):
        return Fraction(int(match[1], 0), int(match[2], 0))
    return literal(form)


def _is_raised(expected: str, saw: str) -> bool:
    names, text = json.loads(saw)
    wanted, pattern, longest = json.loads(expected)
    known = [name for name in names if isinstance(getattr(builtins, name, None), type)]
    # A class can have every exception among its bases: an honest one has those of one exception.
    single = any(
        known == [c.__name__ for c in getattr(builtins, name).__mro__] for name in known[:1]
    )
    found = bool(set(wanted) & set(names)) and single and len(names) <= len(known) + 4
    return found and (
        pattern is None or (len(text) <= longest and re.search(pattern, text) is not None)
    )


@dataclass
class Rewritten:
    """Test files with claims in place of assertions.

    files  path -> text of those that hold functions of `tests`, or are not as they were
    tests  the functions of those asked for that there are, each with the functions whose claims are
           made when it runs: its own and those that it calls in files of the tests
    """

    files: dict[str, str] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    tests: dict[str, set[str]] = field(default_factory=dict)


def rewrite(
    texts: Mapping[str, str],
    tests: Iterable[str],
    *,
    known: bool = False,
    plainly: frozenset[int] = frozenset(),
    off: frozenset[int] = frozenset(),
    whole: frozenset[str] = frozenset(),
) -> Rewritten:
    """Test files with what the functions `tests` (`file::class::name`) claim told instead of
    checked, and without the other test functions. Claims have the same numbers whatever the other
    arguments.

    texts  path -> text of the files of tests; what these import of each other, and nothing else, is
           rewritten, too
    known  leave the expected values in, to be told too: for sources that are known to be right
    plainly  claims of which only is told whether they are true        off  claims that stay as they
             are
    whole  tests of which nothing is cut out but what is withheld itself
    A test that Hypothesis hands what it draws is left out: how often it claims something is chance.
    A file that is not Python counts as absent. Raises RecursionError for one that is nested too
    deep.
    """
    suite = _Suite(texts)
    made = Rewritten()
    places = {test: tuple(test.split("::")) for test in tests}
    wanted = {
        test: node
        for test, place in places.items()
        if (node := suite.function(place)) is not None and not _has_mark(node, "given")
    }
    suite.load()
    number = 0
    names: dict[int, str] = {}
    reached: list[Function] = []
    for test in wanted:
        own = suite.with_helpers(places[test], wanted[test])
        for place, node in own.items():
            if id(node) not in names:
                names[id(node)] = "::".join(place)
                reached.append(node)
        made.tests[test] = {names[id(node)] for node in own.values()}
    for node in reached:
        scope = _Purity(node, suite.module_of(node))
        writer = _Writer(scope, names[id(node)], number, known, plainly, off, suite.own_calls)
        node.body = writer.block(node.body)
        if writer.number == number and any(node is test for test in wanted.values()):
            node.body = writer.results(node.body)
        made.claims += writer.claims
        number = writer.number
    suite.drop_others(names)
    if not known:
        suite.cut({node for node, name in names.items() if name not in whole})
    made.files = suite.write_files(names)
    return made


# --- what depends on the tested code, and what does not
# ---------------------------------------------------

Function = ast.FunctionDef | ast.AsyncFunctionDef
_PURE_NAMES = (
    "abs ascii bin bool bytearray bytes chr complex dict divmod enumerate float format frozenset"
    " hex int len list max min oct ord pow range repr reversed round set slice sorted str sum tuple"
    " zip type"
)
_PURE = frozenset(_PURE_NAMES.split())
_IMPURE_MODULES = frozenset(
    {"random", "time", "os", "sys", "io", "threading", "unittest", "uuid", "tempfile", "socket"}
)


class _Module:
    def __init__(self, text: str) -> None:
        self.tree = parse_python(text)
        self.values: dict[str, list[ast.expr | None]] = defaultdict(list)
        self.stdlib: set[str] = set()
        self.imports: list[tuple[str, int, str, str]] = []
        """(the name that it binds, dots before, module, what of it, '' for itself), '*' for every
        name."""
        for node in self.tree.body:
            for name, value in _bound(node):
                self.values[name].append(value)
        for statement in ast.walk(self.tree):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self._import(statement, statement in self.tree.body)
        self.defined = {n.name for n in self.tree.body if isinstance(n, Function | ast.ClassDef)}
        self.loads = _loads(self.tree)
        self.reads = {id(n): _loads(n) for n in ast.walk(self.tree) if isinstance(n, Function)}

    def _import(self, node: ast.Import | ast.ImportFrom, top_level: bool) -> None:
        for alias in node.names:
            source = alias.name if isinstance(node, ast.Import) else node.module or ""
            top = source.partition(".")[0]
            dots = node.level if isinstance(node, ast.ImportFrom) else 0
            if top in sys.stdlib_module_names and not dots:
                if top_level and top not in _IMPURE_MODULES:
                    self.stdlib.add((alias.asname or alias.name).partition(".")[0])
            elif isinstance(node, ast.ImportFrom):
                self.imports.append((alias.asname or alias.name, dots, source, alias.name))
            else:
                self.imports.append((alias.asname or top, 0, source if alias.asname else top, ""))

    def read(self) -> set[str]:
        """Names that it reads, or imports."""
        return {*_loads(self.tree), *(what for _, _, _, what in self.imports)}


class _Suite:
    """Files of tests, as far as those asked for import them, and what stands where in them."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.modules: dict[str, _Module] = {}
        self._homes: dict[int, str] = {}
        self.own_calls: set[int] = set()
        """Calls of what the files define: such an `assert_raises` is none of unittest's kind."""
        self._uses: dict[str, set[str]] = {}
        self._strange: set[str] = set()

    def module(self, file: str) -> _Module | None:
        if file not in self.modules and file in self.texts and file not in self._strange:
            try:
                found = self.modules[file] = _Module(self.texts[file])
            except (SyntaxError, ValueError, RecursionError):
                self._strange.add(file)
                return None
            self._homes |= dict.fromkeys(found.reads, file)
        return self.modules.get(file)

    def module_of(self, node: Function) -> _Module:
        return self.modules[self._homes[id(node)]]

    def load(self) -> None:
        """Read all files that those which are read already import."""
        while todo := self.modules.keys() - self._uses.keys():
            self._uses |= {file: self._imported(file) for file in sorted(todo)}

    def _imported(self, file: str) -> set[str]:
        """The files whose names one may use: those that it imports, and every conftest.py of its
        folders."""
        wanted = [(dots, module) for _, dots, module, _ in self.modules[file].imports]
        wanted += [
            (dots, f"{module}.{what}")
            for _, dots, module, what in self.modules[file].imports
            if what
        ]
        return {*(self._file(file, *one) for one in wanted), *self._conftests(file)} - {""}

    def _conftests(self, file: str) -> list[str]:
        found = [str(folder / "conftest.py") for folder in PurePosixPath(file).parents]
        return [path for path in found if path != file and self.module(path)]

    def _file(self, file: str, dots: int, module: str) -> str:
        """The file that `file` means by `module`, '' when it is none of these: by what stands
        nearest to it."""
        folders = PurePosixPath(file).parents
        parts = module.strip(".").split(".") if module.strip(".") else []
        for folder in folders[dots - 1 : dots] if dots else folders:
            place = folder.joinpath(*parts)
            for path in (f"{place}.py", str(place / "__init__.py")):
                if self.module(path) is not None:
                    return path
        return ""

    def _means(self, file: str, name: str, seen: set[tuple[str, str]]) -> Place:
        """Where what a file calls `name` is defined: (file, name), (file,) for a module, () when
        not in these."""
        module = self.module(file)
        if module is None or (file, name) in seen:
            return ()
        seen.add((file, name))
        if name in module.defined:
            return file, name
        for bound, dots, source, what in module.imports:
            if bound in (name, "*"):
                home = self._file(file, dots, source)
                if not what:
                    return (home,) if home else ()
                inner = name if what == "*" else what
                if found := self._means(home, inner, seen):
                    return found
                if bound == name and (inside := self._file(file, dots, f"{source}.{what}")):
                    return (inside,)
        fixtures = (self._means(conftest, name, seen) for conftest in self._conftests(file))
        return next(filter(None, fixtures), ())

    def _place(self, file: str, node: ast.expr) -> Place:
        """The same of a name, or of an attribute of a module."""
        if isinstance(node, ast.Name):
            return self._means(file, node.id, set())
        if isinstance(node, ast.Attribute) and len(holder := self._place(file, node.value)) == 1:
            found = self._means(holder[0], node.attr, set())
            inside = "" if found else self._file(holder[0], 1, node.attr)
            return found or ((inside,) if inside else ())
        return ()

    def function(self, place: Place, seen: frozenset[Place] = frozenset()) -> Function | None:
        """The definition of a function, also one that its class has from another class."""
        file, *classes, name = place
        module = self.module(file)
        holder: _Module | ast.ClassDef | None = module
        body: Sequence[ast.stmt] = module.tree.body if module is not None else ()
        for wanted in classes:
            holder = next(
                (n for n in body if isinstance(n, ast.ClassDef) and n.name == wanted), None
            )
            body = holder.body if holder is not None else ()
        found = [n for n in body if isinstance(n, Function) and n.name == name]
        if len(found) == 1:
            return found[0]
        for base in holder.bases if isinstance(holder, ast.ClassDef) and not found else []:
            above = (*self._place(file, base), name)
            if len(above) == 3 and above not in seen:
                inherited = self.function(above, seen | {place})
                if inherited is not None:
                    return inherited
        return None

    def with_helpers(self, place: Place, node: Function) -> dict[Place, Function]:
        """A test and the functions that it calls, by name, on `self` or on a module."""
        found: dict[Place, Function] = {}
        todo = [(place, node)]
        while todo:
            place, node = todo.pop(0)
            if place in found:
                continue
            found[place] = node
            for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
                own = _on_self(call)
                called = (
                    (*place[:-1], own) if own else self._place(self._homes[id(node)], call.func)
                )
                helper = self.function(called) if len(called) > 1 else None
                if helper is not None:
                    todo.append((called, helper))
                    self.own_calls.add(id(call))
        return found

    def drop_others(self, chosen: Iterable[int]) -> None:
        """Take out test functions that are not asked for, unless something names them."""
        kept = set(chosen)

        def visit(holder: ast.Module | ast.ClassDef, named: set[str]) -> None:
            left: list[ast.stmt] = []
            for node in holder.body:
                if isinstance(node, ast.ClassDef):
                    visit(node, named)
                test = (
                    isinstance(node, Function)
                    and node.name.startswith("test")
                    and not _has_mark(node, "fixture")
                )
                if not test or id(node) in kept or node.name in named:  # type: ignore[attr-defined]
                    left.append(node)
            holder.body = left or [ast.Pass()] * bool(holder.body)

        for file, module in self.modules.items():
            visit(module.tree, {*module.loads, *self._read_elsewhere(file)})

    def _read_elsewhere(self, file: str) -> set[str]:
        """Names that files which may use those of this one read."""
        readers = [
            m for other, m in self.modules.items() if other != file and file in self._uses[other]
        ]
        return {name for module in readers for name in module.read()}

    def cut(self, functions: set[int]) -> None:
        """Take out what was bound to a name that is now read no more, and docstrings of tests."""
        files = {self._homes[node] for node in functions}
        modules = {file: module for file, module in self.modules.items() if file in files}
        before: list[str] = []
        while before != (now := [ast.dump(module.tree) for module in modules.values()]):
            before = now
            for file, module in modules.items():
                for node in ast.walk(module.tree):
                    if isinstance(node, Function) and id(node) in functions:
                        _Cutting(node, module).all()
                        self._blank_arguments(node, modules)
                loads = {*_loads(module.tree), *self._read_elsewhere(file)}
                dead = {
                    name for name in module.values if name in module.loads and name not in loads
                }
                for statement in module.tree.body:
                    _blank_bindings(statement, dead)

    def _blank_arguments(self, helper: Function, modules: Mapping[str, _Module]) -> None:
        """Hand None to a function, and to those in it, for a parameter that it reads no more."""
        for node in [
            n for n in ast.walk(helper) if isinstance(n, Function) and not n.name.startswith("test")
        ]:
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
            loads, before = _loads(node), self.module_of(helper).reads[id(node)]
            method = int(names[:1] == ["self"])
            dead = {
                name: at - method
                for at, name in enumerate(names)
                if name in before and name not in loads
            }
            for file, module in modules.items() if dead else ():
                for call in (n for n in ast.walk(module.tree) if isinstance(n, ast.Call)):
                    called = (
                        _on_self(call) == node.name
                        if method
                        else self._calls(file, call, node, helper)
                    )
                    if not called or any(isinstance(a, ast.Starred) for a in call.args):
                        continue
                    for at, argument in enumerate(call.args):
                        if at in dead.values() and _plain(argument):
                            call.args[at] = ast.Constant(None)
                    for keyword in call.keywords:
                        if keyword.arg in dead and _plain(keyword.value):
                            keyword.value = ast.Constant(None)

    def _calls(self, file: str, call: ast.Call, node: Function, helper: Function) -> bool:
        """Whether a call may be one of `node`: by its name, or by that of the fixture `helper` that
        gives it."""
        home = self._homes[id(node)]
        near = file == home and isinstance(call.func, ast.Name) and call.func.id == node.name
        name = helper.name if node is not helper and _has_mark(helper, "fixture") else node.name
        return near or self._place(file, call.func) == (home, name)

    def write_files(self, chosen: Iterable[int]) -> dict[str, str]:
        """path -> text, without comments, of the files that hold these functions or are not as they
        were."""
        holding = {self._homes[node] for node in chosen}
        texts = {
            f: ast.unparse(ast.fix_missing_locations(m.tree))
            for f, m in sorted(self.modules.items())
        }
        changed = (
            f for f in texts if f in holding or texts[f] != ast.unparse(parse_python(self.texts[f]))
        )
        return {f: texts[f] + "\n" for f in changed}


def _on_self(call: ast.Call) -> str:
    """The name of the method of `self` that is called, else ''."""
    func = call.func
    own = (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id == "self"
    )
    return func.attr if own else ""  # type: ignore[attr-defined]


def _has_mark(node: Function, name: str) -> bool:
    marks = (mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list)
    return any(name in (getattr(mark, "attr", ""), getattr(mark, "id", "")) for mark in marks)


class _Purity:
    """Which names of a function, and of its module, hold what the tested code has no part in."""

    def __init__(self, node: Function, module: _Module) -> None:
        self.module = module
        self.bound: dict[str, list[ast.expr | None]] = defaultdict(list)
        """name -> what it, or that of which it is an element, was bound to (None: unknown)."""
        self._themselves: set[int] = set()
        """Of these expressions those to which a name was bound itself."""
        given = _parametrized(node)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            self.bound[argument.arg].append(given.get(argument.arg))
        for inner in ast.walk(node):
            for name, value in _bound(inner):
                self.bound[name].append(value)
                if isinstance(inner, ast.Assign | ast.AnnAssign):
                    self._themselves.add(id(value))
            if isinstance(inner, Function | ast.Lambda) and inner is not node:
                for part in ast.walk(inner.args):
                    if isinstance(part, ast.arg):
                        self.bound[part.arg].append(None)
        for name, values in [put for inner in ast.walk(node) for put in _put_in(inner)]:
            if name in self.bound or name in module.values:
                self.bound[name] += [*(() if name in self.bound else module.values[name]), *values]
        self.handed = _handed(node)
        self._asked: set[str] = set()

    def pure(self, node: ast.AST | None) -> bool:
        if node is None:
            return True
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                known = (
                    node.func.id in _PURE
                    and node.func.id not in self.bound
                    and not self.module.values[node.func.id]
                )
                known = known or (
                    node.func.id in self.module.stdlib and node.func.id not in self.bound
                )
            else:
                known = isinstance(node.func, ast.Attribute) and self.pure(node.func)
            return (
                known
                and all(map(self.pure, node.args))
                and all(self.pure(k.value) for k in node.keywords)
            )
        if isinstance(node, ast.Lambda):
            own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
            names = {n.id for n in ast.walk(node.body) if isinstance(n, ast.Name)} - own
            return all(name in _PURE or self._name(name) for name in names)
        if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr):
            return False
        return all(self.pure(child) for child in ast.iter_child_nodes(node))

    def _name(self, name: str) -> bool:
        if name in self._asked:
            return False
        if name not in self.bound:
            values = self.module.values.get(name, [])
            if name in self.module.stdlib:
                return not [v for v in values if v is not None]
            if not values:
                return False
        else:
            values = self.bound[name]
        self._asked.add(name)
        try:
            good = all(value is not None and self.pure(value) for value in values)
        finally:
            self._asked.discard(name)
        # What is handed to the tested code may be changed by it, unless it cannot be changed.
        return good and (name not in self.handed or all(map(self._is_same_value, values)))

    def _is_same_value(self, node: ast.AST | None) -> bool:
        """Whether a name that is bound to a value, or to an element of it, stands for the same
        whoever is handed it."""
        return self._fixed(node) and not (
            id(node) in self._themselves and isinstance(node, ast.List | ast.Set)
        )

    def _fixed(self, node: ast.AST | None) -> bool:
        """Whether a value, and what it holds, cannot be changed; of a list, each of its
        elements."""
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return all(not isinstance(e, ast.List | ast.Set) and self._fixed(e) for e in node.elts)
        if isinstance(node, ast.BinOp):
            texts = isinstance(node.op, ast.Add | ast.Mod) and any(
                map(_text, (node.left, node.right))
            )
            return texts or (self._fixed(node.left) and self._fixed(node.right))
        if isinstance(node, ast.UnaryOp):
            return self._fixed(node.operand)
        if isinstance(node, ast.Name) and node.id not in self._asked:
            values = self.bound.get(node.id) or self.module.values.get(node.id, [])
            self._asked.add(node.id)
            try:
                return bool(values) and all(map(self._fixed, values))
            finally:
                self._asked.discard(node.id)
        return isinstance(node, ast.Constant | ast.JoinedStr)


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a node itself binds, each with the expression it takes its value from (None:
    unknown)."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            for one, value in _pairs(target, node.value):
                yield from ((name, value) for name in _stored(one))
    elif isinstance(node, ast.AnnAssign):
        yield from ((name, node.value) for name in _stored(node.target))
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from ((name, node.iter) for name in _stored(node.target))
    elif isinstance(node, ast.AugAssign | ast.NamedExpr):
        yield from ((name, None) for name in _stored(node.target))
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from ((name, None) for name in _stored(node.optional_vars))
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name, None
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (((a.asname or a.name).partition(".")[0], None) for a in node.names)
    elif isinstance(node, Function | ast.ClassDef):
        yield node.name, None


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What is bound to what in `a, b = 1, 2`."""
    if (
        isinstance(target, ast.Tuple)
        and isinstance(value, ast.Tuple)
        and len(target.elts) == len(value.elts)
    ):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _stored(target: ast.AST) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id


def _loads(tree: ast.AST) -> Counter[str]:
    found = Counter(
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )
    found.update(n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute))
    return found


def _handed(node: ast.AST) -> set[str]:
    """Names that a call may reach: among its arguments, or what a method is called on."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and not (
            isinstance(inner.func, ast.Name) and inner.func.id in _PURE
        ):
            for part in (*inner.args, *(k.value for k in inner.keywords)):
                found.update(_stored(part))
        elif isinstance(inner, ast.Subscript | ast.Attribute) and not isinstance(
            inner.ctx, ast.Load
        ):
            found.update(_stored(inner.value))
    return found


def _put_in(node: ast.AST) -> Iterator[tuple[str, list[ast.expr]]]:
    """What a statement may put into which names, by a method of theirs."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        yield from (
            (name, [*call.args, *(k.value for k in call.keywords)])
            for name in _stored(call.func.value)
        )


def _text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _parametrized(node: Function) -> dict[str, ast.expr]:
    """name -> the expression that its values are taken from."""
    return {name: values for _, names, values in _parametrizations(node) for name in names}


def _parametrizations(node: Function) -> Iterator[tuple[ast.Call, list[str], ast.expr]]:
    for mark in node.decorator_list:
        if not (
            isinstance(mark, ast.Call)
            and isinstance(mark.func, ast.Attribute)
            and mark.func.attr == "parametrize"
        ):
            continue
        given = {k.arg: k.value for k in mark.keywords}
        names = mark.args[0] if mark.args else given.get("argnames")
        values = mark.args[1] if len(mark.args) > 1 else given.get("argvalues")
        if isinstance(names, ast.Constant) and isinstance(names.value, str) and values is not None:
            yield mark, [n.strip() for n in names.value.split(",") if n.strip()], values
        elif isinstance(names, ast.Tuple | ast.List) and values is not None:
            yield mark, [str(e.value) for e in names.elts if isinstance(e, ast.Constant)], values


# --- assertions become claims
# -----------------------------------------------------------------------------

_EQUAL_NAMES = (
    "assertEqual assertEquals assertListEqual assertDictEqual assertTupleEqual assertSetEqual"
    " assertMultiLineEqual assertSequenceEqual eq_ assert_equal assert_equals"
)
_EQUAL = frozenset(_EQUAL_NAMES.split())
_TWO: dict[str, Callable[[], ast.cmpop]] = {
    **dict.fromkeys(_EQUAL, ast.Eq),
    "assertIs": ast.Is,
    "assertIsNot": ast.IsNot,
    "assertIn": ast.In,
    "assertNotIn": ast.NotIn,
    "assertNotEqual": ast.NotEq,
    "assertGreater": ast.Gt,
    "assertGreaterEqual": ast.GtE,
    "assertLess": ast.Lt,
    "assertLessEqual": ast.LtE,
}
_RAISES = frozenset(
    {"raises", "assertRaises", "assertRaisesRegex", "assertRaisesRegexp", "assert_raises"}
)


class _Writer:
    """Rewrites one function's statements. A claim that is `off` takes a number and stays as it
    is."""

    def __init__(
        self,
        scope: _Purity,
        test: str,
        number: int,
        known: bool,
        plainly: frozenset[int],
        off: frozenset[int],
        own_calls: set[int],
    ) -> None:
        self.scope, self.test, self.number, self.known = scope, test, number, known
        self.plainly, self.off, self.own_calls = plainly, off, own_calls
        self.claims: list[Claim] = []

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [new for node in body for new in self.statement(node)]

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.Assert):
            return [ast.Assert(test=test) for test in self.claim(node.test)]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return self._call(node, node.value)
        if isinstance(node, ast.With):
            for item in node.items:
                made = item.context_expr
                if isinstance(made, ast.Call) and _raises(made) and id(made) not in self.own_calls:
                    item.context_expr = self._raised(made)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(inner := getattr(node, name, None), list):
                setattr(node, name, self.block(inner))
        for handler in getattr(node, "handlers", []):
            handler.body = self.block(handler.body)
        for case in getattr(node, "cases", []):
            case.body = self.block(case.body)
        return [node]

    def _call(self, node: ast.Expr, call: ast.Call) -> list[ast.stmt]:
        name = _name_call(call)
        arguments = [a for a in call.args if not isinstance(a, ast.Starred)]
        if len(arguments) != len(call.args):
            return [node]
        test: ast.expr | None = None
        if name in _TWO and len(arguments) in (2, 3):
            test = ast.Compare(left=arguments[0], ops=[_TWO[name]()], comparators=[arguments[1]])
        elif name in ("assertTrue", "assertFalse", "assert_true", "assert_false") and len(
            arguments
        ) in (1, 2):
            test = (
                arguments[0]
                if name.lower().endswith("true")
                else ast.UnaryOp(ast.Not(), arguments[0])
            )
        elif name in ("assertIsNone", "assertIsNotNone") and len(arguments) in (1, 2):
            how = ast.Is() if name == "assertIsNone" else ast.IsNot()
            test = ast.Compare(left=arguments[0], ops=[how], comparators=[ast.Constant(None)])
        elif name in ("assertIsInstance", "assertNotIsInstance") and len(arguments) in (2, 3):
            test = ast.Call(
                func=ast.Name("isinstance", ast.Load()), args=arguments[:2], keywords=[]
            )
            test = ast.UnaryOp(ast.Not(), test) if name == "assertNotIsInstance" else test
        elif (
            name in _RAISES
            and id(call) not in self.own_calls
            and len(arguments) > (count := _described(name))
        ):
            does = ast.Call(
                func=arguments[count], args=arguments[count + 1 :], keywords=call.keywords
            )
            what = self._raised(ast.Call(func=call.func, args=arguments[:count], keywords=[]))
            return [ast.With(items=[ast.withitem(context_expr=what)], body=[ast.Expr(does)])]
        return [node] if test is None else [ast.Assert(test=t) for t in self.claim(test)]

    def claim(self, test: ast.expr) -> list[ast.expr]:
        """What is asserted in place of `test`: several things when it joins several by `and`."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return [new for part in test.values for new in self.claim(part)]
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return [self._compared(test, test.left, test.ops[0], test.comparators[0])]
        if isinstance(test, ast.Call) and _name_call(test) == "isinstance" and len(test.args) == 2:
            kind = ast.Call(func=ast.Name("type", ast.Load()), args=[test.args[0]], keywords=[])
            shown = ast.Attribute(value=kind, attr="__mro__", ctx=ast.Load())
            return [
                self._tell_value(test, shown, test.args[1], kind="relation", operator="isinstance")
            ]
        if isinstance(test, ast.Call) and (inner := _all_of(test)) is not None:
            made = self.claim(inner.elt)
            if len(made) == 1:
                new = type(inner)(elt=made[0], generators=inner.generators)
                return [ast.Call(func=test.func, args=[new], keywords=[])]
            inner.elt = ast.BoolOp(op=ast.And(), values=made)
            return [test]
        return [self._truth(test)]

    def _compared(
        self, test: ast.Compare, left: ast.expr, op: ast.cmpop, right: ast.expr
    ) -> ast.expr:
        """One side is told, the other withheld."""
        pure = [self.scope.pure(side) for side in (left, right)]
        turned = pure[0] if pure[0] != pure[1] else _looks_expected(left)
        name = _NAMES.get(type(op), "")
        equal = name == "==" or (
            name == "is" and (pure[0] == pure[1] or any(map(_singleton, (left, right))))
        )
        if pure[0] and pure[1]:
            return self._truth(test)
        if not pure[0] and not pure[1]:
            if not equal or any(
                _name_call(n) in ("hash", "id") for n in ast.walk(test) if isinstance(n, ast.Call)
            ):
                return self._truth(test)
            return self._tell_value(
                test, right if turned else left, left if turned else right, kind="value", last=True
            )
        shown, hidden = (right, left) if turned else (left, right)
        if equal:
            return self._tell_value(test, shown, hidden, kind="value")
        return self._tell_value(test, shown, hidden, kind="relation", operator=name, turned=turned)

    def _truth(self, test: ast.expr) -> ast.expr:
        shown, truth = _positive(test)
        return self._tell_value(test, shown, None, kind="truth", truth=truth)

    def _tell_value(
        self, test: ast.expr, shown: ast.expr, hidden: ast.expr | None, **about: Any
    ) -> ast.expr:
        """`_seen(number, shown)`, with what is hidden when it is to be known; `test` itself when
        the claim is off."""
        number, self.number = self.number, self.number + 1
        if number in self.off:
            return test
        if number in self.plainly:
            shown, truth = _positive(test)
            hidden, about = None, {"kind": "truth", "truth": truth}
        self.claims.append(Claim(number=number, test=self.test, **about))
        known = [hidden] if self.known and hidden is not None else []
        return ast.Call(
            func=ast.Name("_seen", ast.Load()),
            args=[ast.Constant(number), shown, *known],
            keywords=[],
        )

    def results(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """For a test that asserts nothing: what the calls give whose results it drops."""
        for node in body:
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Call)
                and not self.scope.pure(node.value)
            ):
                node.value = self._tell_value(node.value, node.value, None, kind="value", last=True)
        return body

    def _raised(self, call: ast.Call) -> ast.Call:
        number, self.number = self.number, self.number + 1
        if number in self.off:
            return call
        self.claims.append(Claim(number=number, test=self.test, kind="raises"))
        known: list[ast.expr] = []
        if self.known:
            pattern = next((k.value for k in call.keywords if k.arg == "match"), None)
            known = [
                call.args[0],
                pattern or (call.args[1] if len(call.args) == 2 else ast.Constant(None)),
            ]
        return ast.Call(
            func=ast.Name("_raised", ast.Load()), args=[ast.Constant(number), *known], keywords=[]
        )


_NAMES: dict[type, str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_TURNED: dict[type, Callable[[], ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.NotIn: ast.In,
    ast.IsNot: ast.Is,
}


def _positive(test: ast.expr) -> tuple[ast.expr, bool]:
    """The test without any `not`, and whether it is true when the test is: what is told must not
    say what is right."""
    truth = True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, truth = test.operand, not truth
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _TURNED:
        turned = _TURNED[type(test.ops[0])]()
        return ast.Compare(left=test.left, ops=[turned], comparators=test.comparators), not truth
    return test, truth


def _looks_expected(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id.lower().startswith(
        ("exp", "want", "correct", "desired")
    )


def _raises(call: ast.Call) -> bool:
    """Whether a call is `pytest.raises(E)` or of its kind, all of whose arguments are
    understood."""
    name = _name_call(call)
    known = {k.arg for k in call.keywords} <= ({"match", "msg"} if name == "raises" else {"msg"})
    return name in _RAISES and len(call.args) == _described(name) and known


def _described(name: str) -> int:
    """How many arguments say what is to be raised."""
    return 2 if "Regex" in name else 1


def _name_call(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr if isinstance(call.func.value, ast.Name) else ""
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _singleton(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _all_of(test: ast.Call) -> ast.GeneratorExp | ast.ListComp | None:
    inner = test.args[0] if _name_call(test) == "all" and len(test.args) == 1 else None
    return inner if isinstance(inner, ast.GeneratorExp | ast.ListComp) else None


# --- what was only there to be compared goes too
# ----------------------------------------------------------


class _Cutting:
    """Takes out of one function what it binds and reads no more."""

    def __init__(self, node: Function, module: _Module) -> None:
        self.node, self.module = node, module

    def all(self) -> None:
        node = self.node
        if isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
            node.body[0] = ast.Pass()
        loads = _loads(node)
        dead = {name for inner in ast.walk(node) for name, _ in _bound(inner) if name not in loads}
        for inner in ast.walk(node):
            _blank_bindings(inner, dead)
            if isinstance(inner, ast.For | ast.comprehension):
                names = inner.target.elts if isinstance(inner.target, ast.Tuple) else [inner.target]
                for at, name in enumerate(names):
                    if isinstance(name, ast.Name) and name.id in dead:
                        self._blank(
                            inner.iter,
                            at if isinstance(inner.target, ast.Tuple) else None,
                            len(names),
                        )
        for mark, names_, values in _parametrizations(node):
            mark.keywords = [k for k in mark.keywords if k.arg != "ids"]
            for at, name_ in enumerate(names_):
                if name_ not in loads:
                    self._blank(values, at if len(names_) > 1 else None, len(names_))

    def _blank(self, rows: ast.expr, at: int | None, width: int) -> None:
        """Replace column `at` of an expression that rows are taken from (None: the rows
        themselves)."""
        if isinstance(rows, ast.List | ast.Tuple | ast.Set):
            for number, row in enumerate(rows.elts):
                if at is None:
                    rows.elts[number] = ast.Constant(None)
                elif isinstance(row, ast.Tuple | ast.List) and len(row.elts) == width:
                    row.elts[at] = ast.Constant(None)
                elif (
                    isinstance(row, ast.Call)
                    and _name_call(row) == "param"
                    and len(row.args) == width
                ):
                    row.args[at] = ast.Constant(None)
                    row.keywords = [k for k in row.keywords if k.arg != "id"]
        elif (
            isinstance(rows, ast.Call)
            and isinstance(rows.func, ast.Attribute)
            and rows.func.attr == "items"
        ):
            if isinstance(table := rows.func.value, ast.Dict) and at == 1:
                pairs = zip(table.keys, table.values, strict=True)
                table.values = [
                    value if key is None else ast.Constant(None) for key, value in pairs
                ]
        elif (
            isinstance(rows, ast.Call)
            and _name_call(rows) == "zip"
            and at is not None
            and len(rows.args) == width
        ):
            self._blank(rows.args[at], None, 1)
        elif isinstance(rows, ast.Name):
            own = [v for n in ast.walk(self.node) for name, v in _bound(n) if name == rows.id]
            bindings, scope = (
                (own, self.node) if own else (self.module.values.get(rows.id, []), self.module.tree)
            )
            # It may be bound anew for a second loop: then no loop reads the column.
            readers = [n for n in ast.walk(self.node) if self._passes_over(n, rows.id, at, width)]
            if all(v is not None for v in bindings) and _loads(scope)[rows.id] == (
                len(readers) or 1
            ):
                for value in bindings:
                    if value is not None:
                        self._blank(value, at, width)

    def _passes_over(self, loop: ast.AST, rows: str, at: int | None, width: int) -> bool:
        """Whether a loop over `rows` does not read their column `at` of `width`."""
        if not (isinstance(loop, ast.For | ast.comprehension) and isinstance(loop.iter, ast.Name)):
            return False
        names = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
        name = (
            names[at or 0]
            if len(names) == width and (at is None) != isinstance(loop.target, ast.Tuple)
            else None
        )
        return (
            loop.iter.id == rows and isinstance(name, ast.Name) and name.id not in _loads(self.node)
        )


def _blank_bindings(node: ast.AST, dead: set[str]) -> None:
    """Let a statement that binds only what is read no more bind None instead."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(node.value, ast.Tuple) and len(pairs := _pairs(target, node.value)) > 1:
                for at, (one, value) in enumerate(pairs):
                    if isinstance(one, ast.Name) and one.id in dead and _plain(value):
                        node.value.elts[at] = ast.Constant(None)
        if all(isinstance(t, ast.Name) and t.id in dead for t in node.targets) and _plain(
            node.value
        ):
            node.value = ast.Constant(None)
    elif (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id in dead
    ):
        node.value = (
            ast.Constant(None) if node.value is not None and _plain(node.value) else node.value
        )


def _plain(node: ast.AST) -> bool:
    """Whether leaving out an expression changes nothing but its value: it calls nothing but what
    Python brings."""
    calls = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
    known = all(
        (isinstance(f, ast.Name) and hasattr(builtins, f.id)) or isinstance(f, ast.Attribute)
        for f in calls
    )
    return known and not any(
        isinstance(n, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for n in ast.walk(node)
    )

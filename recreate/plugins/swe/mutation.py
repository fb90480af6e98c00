"""Injected bugs: one small change to one function, named by rule and occurrence, so that a recipe
needs no code.

A mutant is (file, function, operator, occurrence): the occurrence-th place, in source order, at
which the operator can act inside the function. Text outside the place stays as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from recreate.api.syntax import parse_python

Function = ast.FunctionDef | ast.AsyncFunctionDef
Edit = tuple[int, int, str]
"""(start, end, new text): byte offsets into the UTF-8 source."""
Edits = Iterator[Edit]


@dataclass(frozen=True)
class Site:
    """One function of a module. `name` is qualified (Class.method); lines are 1-based,
    inclusive."""

    name: str
    first: int
    last: int
    node: Function

    @property
    def size(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class Mutation:
    """One possible change. `line` is where it acts."""

    operator: str
    occurrence: int
    line: int
    edit: Edit


class Source:
    """A module's text with positions of its syntax tree turned into byte offsets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = text.encode("utf-8")
        self.tree = parse_python(text)
        self._starts = [0]
        for line in self.data.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def span(self, node: ast.AST) -> tuple[int, int]:
        # every node that is asked for has a position
        at: ast.expr = node  # type: ignore[assignment]
        assert at.end_lineno is not None
        assert at.end_col_offset is not None
        return (
            self._starts[at.lineno - 1] + at.col_offset,
            self._starts[at.end_lineno - 1] + at.end_col_offset,
        )

    def of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode("utf-8")

    def between(self, left: ast.AST, right: ast.AST) -> tuple[int, str]:
        start, end = self.span(left)[1], self.span(right)[0]
        return start, self.data[start:end].decode("utf-8")

    def line(self, number: int) -> int:
        """Where a line begins, 1-based."""
        return min(self._starts[number - 1], len(self.data))

    def edited(self, *edits: Edit) -> str:
        """The text after edits of places that do not overlap."""
        data = self.data
        for start, end, new in sorted(edits, reverse=True):
            data = data[:start] + new.encode("utf-8") + data[end:]
        return data.decode("utf-8")

    def functions(self) -> list[Site]:
        """Functions and methods, outermost only, whose qualified name is unique in the module."""
        found: list[Site] = []

        def visit(body: list[ast.stmt], prefix: str) -> None:
            for node in body:
                if isinstance(node, Function):
                    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                    found.append(
                        Site(prefix + node.name, first, node.end_lineno or node.lineno, node)
                    )
                elif isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
                elif isinstance(node, ast.If | ast.Try):
                    visit(node.body, prefix)

        visit(self.tree.body, "")
        names = [p.name for p in found]
        return [p for p in found if names.count(p.name) == 1]

    def function(self, name: str) -> Site | None:
        return next((p for p in self.functions() if p.name == name), None)


def mutations(source: Source, place: Site) -> list[Mutation]:
    """Return every change the operators can make to one function; `mutate_source` says which are
    valid and mean something else."""
    return [
        Mutation(operator, occurrence, line, edit)
        for operator in OPERATORS
        for occurrence, (line, edit) in enumerate(places(source, place, operator))
    ]


def mutate_source(source: Source, mutation: Mutation) -> str | None:
    """The mutated source, or None when it is not valid Python or means what it meant before."""
    text = source.edited(mutation.edit)
    try:
        changed = ast.dump(parse_python(text)) != ast.dump(source.tree)
    except (SyntaxError, ValueError):
        return None
    return text if changed else None


def places(source: Source, place: Site, operator: str) -> list[tuple[int, Edit]]:
    """(line, edit) of every place in a function at which the operator can act, in order."""
    act = OPERATORS[operator]
    return sorted(
        (
            (node.lineno, edit)  # type: ignore[attr-defined]
            for node in _nodes(place.node)
            for edit in act(source, node, place.node)
        ),
        key=lambda found: found[1],
    )


def _nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function that have a position, without its decorators, annotations and
    docstrings."""
    stack: list[ast.AST] = [
        *function.body,
        *function.args.defaults,
        *(d for d in function.args.kw_defaults if d),
    ]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            continue  # positions inside f-strings differ between versions of Python
        if hasattr(node, "lineno"):
            yield node
        if isinstance(node, Function):
            stack += [*node.body, *node.args.defaults]
        elif isinstance(node, ast.AnnAssign):
            stack += [node.value] if node.value else []
        elif isinstance(node, ast.Raise):
            continue  # what an error says is rarely what a test is about
        else:
            stack += ast.iter_child_nodes(node)


# --- the operators: (source, node, function) -> edits
# -----------------------------------------------------

_SPELLING: dict[type[ast.AST], str] = (
    {
        ast.Lt: "<",
        ast.LtE: "<=",
        ast.Gt: ">",
        ast.GtE: ">=",
        ast.Eq: "==",
        ast.NotEq: "!=",
        ast.Is: "is",
    }
    | {
        ast.IsNot: "is not",
        ast.In: "in",
        ast.NotIn: "not in",
        ast.And: "and",
        ast.Or: "or",
        ast.Add: "+",
    }
    | {
        ast.Sub: "-",
        ast.Mult: "*",
        ast.Div: "/",
        ast.FloorDiv: "//",
        ast.Mod: "%",
        ast.BitAnd: "&",
        ast.BitOr: "|",
    }
)


def _swap(
    source: Source,
    left: ast.AST,
    op: ast.AST,
    right: ast.AST,
    to: Mapping[str, str],
    tail: str = "",
) -> Edits:
    """Another operator between two nodes, when nothing but brackets stands beside it. to: as
    written -> instead."""
    old = _SPELLING.get(type(op), "")
    if old not in to:
        return
    start, text = source.between(left, right)
    pattern = (
        r"[\s)\\]*(" + r"\s+".join(map(re.escape, old.split())) + re.escape(tail) + r")[\s(\\]*"
    )
    if match := re.fullmatch(pattern, text):
        begin = start + len(text[: match.start(1)].encode())
        yield begin, begin + len(match[1].encode()), to[old] + tail


def _compared(source: Source, node: ast.AST, to: Mapping[str, str]) -> Edits:
    if isinstance(node, ast.Compare):
        for left, op, right in zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        ):
            yield from _swap(source, left, op, right, to)


def _boundary(source: Source, node: ast.AST, _: Function) -> Edits:
    return _compared(source, node, {"<": "<=", "<=": "<", ">": ">=", ">=": ">"})


def _compare(source: Source, node: ast.AST, _: Function) -> Edits:
    opposite = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "!=", "!=": "=="}
    return _compared(
        source, node, opposite | {"is": "is not", "is not": "is", "in": "not in", "not in": "in"}
    )


def _arithmetic(source: Source, node: ast.AST, _: Function) -> Edits:
    other = {"+": "-", "-": "+", "*": "+", "/": "//", "//": "%", "%": "//", "&": "|", "|": "&"}
    if isinstance(node, ast.BinOp) and not any(_textual(side) for side in (node.left, node.right)):
        yield from _swap(source, node.left, node.op, node.right, other)
    elif isinstance(node, ast.AugAssign) and not _textual(node.value):
        yield from _swap(source, node.target, node.op, node.value, other, "=")


def _textual(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _boolean(source: Source, node: ast.AST, _: Function) -> Edits:
    if isinstance(node, ast.BoolOp):
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from _swap(source, left, node.op, right, {"and": "or", "or": "and"})


def _negated(source: Source, node: ast.AST, _: Function) -> Edits:
    if isinstance(node, ast.If | ast.IfExp) and isinstance(
        node.test, ast.Name | ast.Attribute | ast.Call
    ):
        start, _end = source.span(node.test)
        yield start, start, "not "


def _not(source: Source, node: ast.AST, _: Function) -> Edits:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield source.span(node)[0], source.span(node.operand)[0], ""


def _off_by_one(source: Source, node: ast.AST, _: Function) -> Edits:
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 1000:
        if not source.of(node).isdigit():
            return
        start, end = source.span(node)
        yield start, end, str(node.value + 1)
        if node.value > 0:
            yield start, end, str(node.value - 1)


def _flag(source: Source, node: ast.AST, _: Function) -> Edits:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield *source.span(node), str(not node.value)


def _text(source: Source, node: ast.AST, _: Function) -> Edits:
    """One character less, or a blank where nothing was."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= 12:
        if (
            "\\" in source.of(node)
            or source.of(node)[0] not in "'\""
            or source.of(node)[:3] in ('"""', "'''")
        ):
            return
        end = source.span(node)[1]
        if node.value:
            yield end - 1 - len(node.value[-1].encode()), end - 1, ""
        else:
            yield end - 1, end - 1, " "


def _arguments(source: Source, node: ast.AST, _: Function) -> Edits:
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        for one, other in zip(node.args, node.args[1:], strict=False):
            if isinstance(one, ast.Starred) or isinstance(other, ast.Starred):
                continue
            start, end = source.span(one)[0], source.span(other)[1]
            first, second = source.of(one), source.of(other)
            if first != second:
                yield start, end, second + source.between(one, other)[1] + first


def _keyword(source: Source, node: ast.AST, _: Function) -> Edits:
    """A keyword argument that was forgotten."""
    if isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            before = node.keywords[index - 1] if index else (node.args[-1] if node.args else None)
            if keyword.arg is not None and before is not None:
                yield source.span(before)[1], source.span(keyword)[1], ""


def _returned(source: Source, node: ast.AST, function: Function) -> Edits:
    """Another variable is returned, or the value is computed and not returned."""
    if isinstance(node, ast.Return) and node.value is not None:
        if isinstance(node.value, ast.Name):
            for name in _locals(function):
                if name != node.value.id:
                    yield *source.span(node.value), name
        elif not isinstance(node.value, ast.Constant):
            yield *source.span(node.value), "None"


def _variable(source: Source, node: ast.AST, function: Function) -> Edits:
    """One parameter is read where another was meant."""
    names = [a.arg for a in function.args.args if a.arg not in ("self", "cls")]
    if (
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and node.id in names
        and len(names) > 1
    ):
        other = names[(names.index(node.id) + 1) % len(names)]
        yield *source.span(node), other


def _locals(function: Function) -> list[str]:
    stored = [
        n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    names = [a.arg for a in function.args.args if a.arg not in ("self", "cls")] + [
        n.id for n in stored
    ]
    return list(dict.fromkeys(n for n in names if n != "_"))[:4]


def _statement(source: Source, node: ast.AST, _: Function) -> Edits:
    """A forgotten update or call."""
    update = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name)
    call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if update or call or isinstance(node, ast.AugAssign | ast.Continue):
        yield *source.span(node), "pass"


def _case(source: Source, node: ast.AST, _: Function) -> Edits:
    """A special case that is not handled: an `if` of one or two lines without `else` is gone."""
    if isinstance(node, ast.If) and not node.orelse and len(node.body) == 1:
        start, end = source.span(node)
        if source.data[start : start + 2] == b"if" and source.data[start:end].count(b"\n") <= 3:
            yield start, end, "pass"


def _slice(source: Source, node: ast.AST, _: Function) -> Edits:
    """A bound of a slice is forgotten."""
    if isinstance(node, ast.Slice):
        if node.lower is not None:
            yield *source.span(node.lower), ""
        if node.upper is not None:
            yield *source.span(node.upper), ""


def _table(text: str) -> dict[str, str]:
    """`old:new` words, blanks between them, as a mapping."""
    return dict(word.split(":") for word in text.split())


_NARROWER = _table("""
    Exception:ValueError LookupError:KeyError KeyError:IndexError IndexError:KeyError \
ValueError:TypeError
    TypeError:ValueError AttributeError:KeyError StopIteration:IndexError OSError:FileNotFoundError
    ArithmeticError:ZeroDivisionError
""")
_METHODS = _table("""
    lstrip:rstrip rstrip:lstrip strip:rstrip startswith:endswith endswith:startswith lower:upper \
upper:lower
    title:capitalize capitalize:title find:rfind rfind:find index:rindex partition:rpartition
    rpartition:partition split:rsplit rsplit:split append:extend extend:append appendleft:append \
popleft:pop
    keys:values items:keys values:keys ljust:rjust rjust:ljust add:discard union:intersection \
match:search
    fullmatch:match search:match isdigit:isalpha isalpha:isalnum setdefault:get
""")
_FUNCTIONS = _table("""
    min:max max:min any:all all:any floor:ceil ceil:floor list:set sorted:list reversed:list
    isinstance:issubclass takewhile:dropwhile dropwhile:takewhile
""")


def _caught(source: Source, node: ast.AST, _: Function) -> Edits:
    """Fewer exceptions are caught than can happen."""
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        if isinstance(node.type, ast.Tuple):
            for kept in node.type.elts:
                yield *source.span(node.type), source.of(kept)
        elif isinstance(node.type, ast.Name) and node.type.id in _NARROWER:
            yield *source.span(node.type), _NARROWER[node.type.id]


def _call_sister(source: Source, node: ast.AST, _: Function) -> Edits:
    """A sister of the function was meant."""
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        end = source.span(node.func)[1]
        yield end - len(node.func.attr), end, _METHODS[node.func.attr]
    elif isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        yield *source.span(node.func), _FUNCTIONS[node.func.id]


def _copied(source: Source, node: ast.AST, _: Function) -> Edits:
    """A conversion or a copy was forgotten."""
    if not isinstance(node, ast.Call) or node.keywords:
        return
    convert = (
        "str",
        "int",
        "list",
        "tuple",
        "dict",
        "set",
        "iter",
        "abs",
        "sorted",
        "reversed",
        "frozenset",
    )
    if isinstance(node.func, ast.Name) and node.func.id in convert and len(node.args) == 1:
        if not isinstance(node.args[0], ast.Starred | ast.GeneratorExp):
            yield *source.span(node), source.of(node.args[0])
    elif (
        isinstance(node.func, ast.Attribute)
        and not node.args
        and node.func.attr in ("copy", "strip", "lower")
    ):
        yield *source.span(node), source.of(node.func.value)


OPERATORS: dict[str, Callable[[Source, ast.AST, Function], Edits]] = {
    "boundary": _boundary,
    "compare": _compare,
    "arithmetic": _arithmetic,
    "boolean": _boolean,
    "negated": _negated,
    "not": _not,
    "off-by-one": _off_by_one,
    "flag": _flag,
    "text": _text,
    "arguments": _arguments,
    "keyword": _keyword,
    "returned": _returned,
    "variable": _variable,
    "statement": _statement,
    "case": _case,
    "slice": _slice,
    "caught": _caught,
    "called": _call_sister,
    "copied": _copied,
}
"""By the name that recipes hold: neither it nor the order of what is found may change."""

"""Hard injected bugs: changes of several statements, each named by rule, so that a recipe needs no
code.

A bug is one or more parts, (file, function, operator, occurrence) each, that are all of the sources
without the bug. Beside the operators of mutation.py there are

    override    a method goes, so that the one that its class inherits acts            occurrence: 0
    kept        what a method returns is computed once for each object                 the form it
                is written in
    kept-by     what a function returns is kept, and one argument is not asked for     the argument,
                then the form
    parameters  two neighbouring parameters change places in the signature             the first of
                the two
    undone      a hunk of the difference of two earlier releases is taken back         its number
                (hunks.py)
"""

from __future__ import annotations

import ast
import builtins
import collections
import difflib
import io
import itertools
import re
import tokenize
from collections import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from recreate.plugins.swe import hunks
from recreate.plugins.swe.facts import Part
from recreate.plugins.swe.mutation import (
    OPERATORS,
    Edit,
    Function,
    Mutation,
    Site,
    Source,
    mutations,
    places,
)

Parts = tuple[Part, ...]
Earlier = Callable[[str], tuple[str, str]]
"""A file's path -> its text in two neighbouring releases, earlier than the one with the bug."""


def mutated(
    texts: Mapping[str, str], parts: Sequence[Part], earlier: Earlier | None = None
) -> dict[str, str] | None:
    """path -> the text with the bug, of each file that has a part of it; None when a part acts
    nowhere, or where another does. texts: path -> the text without the bug."""
    edits: dict[str, list[Edit]] = {}
    sources: dict[str, Source] = {}
    for part in parts:
        if part.file not in texts:
            return None
        try:
            source = sources.setdefault(part.file, _source(texts[part.file]))
        except (SyntaxError, ValueError):
            return None
        found = _edits(source, part, earlier)
        if not found:
            return None
        edits.setdefault(part.file, []).extend(found)
    changed = {}
    for file, several in edits.items():
        several.sort()
        if any(end > start for (_, end, _), (start, _, _) in itertools.pairwise(several)):
            return None
        changed[file] = sources[file].edited(*several)
    return changed


@lru_cache(maxsize=256)
def _source(text: str) -> Source:
    return Source(text)


def _edits(source: Source, part: Part, earlier: Earlier | None) -> tuple[Edit, ...]:
    """What one part changes; () when it acts nowhere."""
    if part.operator == "undone":
        edit = undone(source, *earlier(part.file), part.occurrence) if earlier else None
        return (edit,) if edit else ()
    site = source.function(part.function)
    if site is None:
        return ()
    if part.operator in WIDE:
        acts = WIDE[part.operator](source, site)
    elif part.operator in OPERATORS:
        acts = [(edit,) for _, edit in places(source, site, part.operator)]
    else:
        return ()
    return acts[part.occurrence] if 0 <= part.occurrence < len(acts) else ()


# --- what makes a bug hard
# ----------------------------------------------------------------------------------


def differing_statements(gold: str, mutant: str) -> int:
    """How many statements differ between two modules; comments, layout and docstrings are none."""
    old, new = _statements(gold), _statements(mutant)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return sum(max(b - a, d - c) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal")


def beyond_one_token(gold: Mapping[str, str], mutant: Mapping[str, str]) -> bool:
    """Whether no edit of a single token turns the mutant into gold: at least two statements of it
    differ."""
    return sum(differing_statements(gold[file], text) for file, text in mutant.items()) >= 2


def unmarked(gold: Mapping[str, str], mutant: Mapping[str, str]) -> bool:
    """Whether a search for the usual words finds no trace: the mutant has no comment and no telling
    word that gold has not."""
    for file, text in mutant.items():
        before, after = _tokens(gold[file]), _tokens(text)
        if {t for t in after if t.startswith("#")} - set(before):
            return False
        words = collections.Counter(w for t in after for w in _TELLING.findall(t.lower()))
        if words - collections.Counter(w for t in before for w in _TELLING.findall(t.lower())):
            return False
    return True


_TELLING = re.compile(r"cache|memo|stale|bug|mutant|mutat|inject|broken|wrong|fixme|todo|xxx|hack")


def distant(parts: Sequence[Part], tests: Sequence[str]) -> bool:
    """Whether none of the tests (their texts) names a function that is changed: the failure shows
    elsewhere."""
    names = {p.function.rpartition(".")[2] for p in parts} - {""}
    return not any(re.search(rf"\b{re.escape(name)}\b", text) for name in names for text in tests)


_ONE_TOKEN = frozenset(
    {"boundary", "compare", "arithmetic", "boolean", "negated", "not", "off-by-one", "flag"}
) | {
    *("text", "slice", "called", "variable"),
}


def inversions(gold: str, mutant: str) -> list[Mutation]:
    """The changes of one token in the statements of a mutant that gold does not have."""
    source = Source(mutant)
    known = collections.Counter(gold.split("\n"))
    new = {n for n, line in enumerate(mutant.split("\n"), 1) if line.strip() and not known[line]}
    return [
        mutation
        for site in source.functions()
        if new & set(range(site.first, site.last + 1))
        for mutation in mutations(source, site)
        if mutation.operator in _ONE_TOKEN and mutation.line in new
    ]


@lru_cache(maxsize=64)
def _statements(text: str) -> list[tuple[str, ...]]:
    """The logical lines of a module as their tokens, with what they lie below told by the depth of
    indentation."""
    found: list[tuple[str, ...]] = []
    line: list[str] = []
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            depth += 1 if token.type == tokenize.INDENT else -1
        elif token.type == tokenize.NEWLINE:
            if not (len(line) == 1 and line[0].lstrip("rRuUbB")[:1] in ("'", '"')):
                found.append((str(depth), *line))
            line = []
        elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER):
            line.append(token.string)
    return found


@lru_cache(maxsize=64)
def _tokens(text: str) -> list[str]:
    return [
        t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string.strip()
    ]


# --- the operators on a whole function
# ----------------------------------------------------------------------


def _override(source: Source, site: Site) -> list[tuple[Edit, ...]]:
    """The method goes, with its decorators and the blank lines above."""
    owner = _owner(source, site)
    if owner is None or len(owner.body) < 2:
        return []
    lines = source.data.split(b"\n")
    first = site.first
    while first > 1 and not lines[first - 2].strip():
        first -= 1
    return [((source.line(first), source.line(site.last + 1), ""),)]


def _keep_value(source: Source, site: Site) -> list[tuple[Edit, ...]]:
    """The value is kept in an attribute, which is tried for first, or which the class has as
    None."""
    node, owner = site.node, _owner(source, site)
    last = _only_return(node)
    arguments = node.args
    alone = len(arguments.args) == 1 and not (
        arguments.vararg or arguments.kwarg or arguments.kwonlyargs
    )
    if (
        owner is None
        or last is None
        or not alone
        or [d for d in node.decorator_list if source.of(d) != "property"]
    ):
        return []
    me, name = arguments.args[0].arg, "_" + node.name.strip("_")
    if name == node.name:
        name += "_value"
    if re.search(rf"\b{name}\b", source.text):
        return []
    start, blank = _body_start(source, node), " " * last.col_offset
    value, (at, end) = source.of(last.value) if last.value else "", source.span(last)
    put = f"{me}.{name} = {value}\n{blank}return {me}.{name}"
    tried = f"try:\n{blank}    return {me}.{name}\n{blank}except AttributeError:\n{blank}    "
    if start == at:
        forms: list[tuple[Edit, ...]] = [
            ((at, end, tried + put.replace(f"\n{blank}return", f"\n{blank}    return")),)
        ]
    else:
        forms = [((start, start, f"{tried}pass\n{blank}"), (at, end, put))]
    top, outer = source.line(site.first), " " * node.col_offset
    default = (top, top, f"{outer}{name} = None\n\n")
    asked = f"if {me}.{name} is not None:\n{blank}    return {me}.{name}\n{blank}"
    forms.append(
        (default, (start, start, asked), (at, end, put))
        if start != at
        else (default, (at, end, asked + put))
    )
    return forms


def _kept_by(source: Source, site: Site) -> list[tuple[Edit, ...]]:
    """A table beside the function, whose key leaves one argument out: for each argument, in two
    forms."""
    node, last = site.node, _only_return(site.node)
    arguments = node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    free = not (arguments.vararg or arguments.kwarg or node.decorator_list)
    if (
        last is None
        or "." in site.name
        or node.col_offset
        or not free
        or len(names) < 2
        or last.value is None
    ):
        return []
    start, blank = _body_start(source, node), " " * last.col_offset
    (at, end), top = source.span(last), source.line(site.first)
    value, stem = source.of(last.value), node.name.strip("_")
    forms: list[tuple[Edit, ...]] = []
    for left_out in names:
        used = [n for n in names if n != left_out]
        key = used[0] if len(used) == 1 else f"({', '.join(used)})"
        for table, tried in ((f"_{stem}_by_{used[0]}", False), (f"_known_{stem}", True)):
            if re.search(rf"\b{table}\b", source.text):
                continue
            if tried:
                ask = (
                    f"try:\n{blank}    return {table}[{key}]\n{blank}except KeyError:\n{blank}   "
                    f" pass\n{blank}"
                )
            else:
                ask = f"if {key} in {table}:\n{blank}    return {table}[{key}]\n{blank}"
            put = f"{table}[{key}] = {value}\n{blank}return {table}[{key}]"
            above: Edit = (top, top, f"{table} = {{}}\n\n\n")
            forms.append(
                (above, (at, end, ask + put))
                if start == at
                else (above, (start, start, ask), (at, end, put))
            )
    return forms


def _parameters(source: Source, site: Site) -> list[tuple[Edit, ...]]:
    return [(edit,) for _, edit in _swaps(source, site)]


def _swaps(source: Source, site: Site) -> list[tuple[int, Edit]]:
    """(place of the first, edit) for each two neighbouring parameters that change places."""
    arguments = site.node.args
    plain = arguments.args[: len(arguments.args) - len(arguments.defaults)]
    found = []
    for number, (one, other) in enumerate(itertools.pairwise(plain)):
        between = source.between(one, other)[1]
        if one.arg not in ("self", "cls") and between.strip() == ",":
            edit = (
                source.span(one)[0],
                source.span(other)[1],
                source.of(other) + between + source.of(one),
            )
            found.append((number, edit))
    return found


WIDE: dict[str, Callable[[Source, Site], list[tuple[Edit, ...]]]] = {
    "override": _override,
    "kept": _keep_value,
    "kept-by": _kept_by,
    "parameters": _parameters,
}
"""Operator -> what it can do to a function, by occurrence. Recipes hold both: neither may
change."""


def _owner(source: Source, site: Site) -> ast.ClassDef | None:
    """The class that a function is a method of."""
    return next(
        (n for n in ast.walk(source.tree) if isinstance(n, ast.ClassDef) and site.node in n.body),
        None,
    )


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function but for those of functions in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Function | ast.Lambda | ast.ClassDef):
            yield from _own(child)


def _only_return(node: Function) -> ast.Return | None:
    """The return at the end of a function that has no other, nor is a generator or a coroutine."""
    inside = list(_own(node))
    other = any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Await) for n in inside)
    returns = [n for n in inside if isinstance(n, ast.Return)]
    last = node.body[-1]
    alone = (
        isinstance(node, ast.FunctionDef)
        and not other
        and returns == [last]
        and last.lineno != node.lineno
    )
    return (
        last
        if alone and isinstance(last, ast.Return) and not isinstance(last.value, ast.Constant)
        else None
    )


def _body_start(source: Source, node: Function) -> int:
    """Where the body begins, below the docstring."""
    first, *rest = node.body
    docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return source.span(rest[0] if docstring and rest else first)[0]


# --- undoing what a release did
# -----------------------------------------------------------------------------


def undone(source: Source, before: str, after: str, number: int) -> Edit | None:
    """The edit that takes one hunk of an earlier difference back in a later text; None unless its
    lines, with those around them, stand there once. The more lines around them do, the better."""
    found = hunks.numbered(before, after)
    if not 1 <= number <= len(found):
        return None
    hunk = found[number - 1]
    new, end, there = hunks.lines(after), hunk.start + len(hunk.new), hunks.lines(source.text)
    for around in (3, 2, 1):
        above = new[max(0, hunk.start - around) : hunk.start]
        wanted = [*above, *hunk.new, *new[end : end + around]]
        hits = [
            n for n in range(len(there) - len(wanted) + 1) if there[n : n + len(wanted)] == wanted
        ]
        if len(hits) == 1 and any(line.strip() for line in wanted):
            first = hits[0] + len(above) + 1
            old = hunks.lines(before)[hunk.low : hunk.high]
            return source.line(first), source.line(first + len(hunk.new)), "".join(old)
    return None


# --- where such bugs can be put
# -----------------------------------------------------------------------------


def removable(modules: Mapping[str, Source]) -> Iterator[Parts]:
    """Methods that override one that their class inherits, from the project or from Python
    itself."""
    classes = {
        n.name: n for m in modules.values() for n in ast.walk(m.tree) if isinstance(n, ast.ClassDef)
    }
    for file, module in modules.items():
        for site in module.functions():
            owner, name = _owner(module, site), site.node.name
            if owner is None or name in (
                "__init__",
                "__new__",
                "__repr__",
                "__str__",
                "__unicode__",
            ):
                continue
            if _inherits(owner, name, classes, set()) and not _plain_super(site.node):
                yield (Part(file=file, function=site.name, operator="override", occurrence=0),)


def _plain_super(node: Function) -> bool:
    """Whether nothing is left of a method but a call of the one that it overrides."""
    body = [
        n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
    ]
    return len(body) <= 1 and "super(" in ast.unparse(node)


def _inherits(
    owner: ast.ClassDef, name: str, classes: Mapping[str, ast.ClassDef], seen: set[str]
) -> bool:
    """Whether a class has `name` from one of its bases, other than `object`."""
    for base in owner.bases:
        called = ast.unparse(base).rpartition(".")[2]
        if called in seen:
            continue
        seen.add(called)
        if known := classes.get(called):
            defined = [n for n in known.body if isinstance(n, Function) and n.name == name]
            if defined and not _abstract(defined[0]):
                return True
            if _inherits(known, name, classes, seen):
                return True
        kind = (
            getattr(builtins, called, None)
            or getattr(collections, called, None)
            or getattr(abc, called, None)
        )
        if isinstance(kind, type) and kind is not object and callable(getattr(kind, name, None)):
            return name not in getattr(kind, "__abstractmethods__", ())
    return False


def _abstract(node: Function) -> bool:
    return any("abstract" in ast.unparse(d) for d in node.decorator_list) or (
        len(node.body) <= 2 and "NotImplemented" in ast.unparse(node.body[-1])
    )


def keepable(modules: Mapping[str, Source]) -> Iterator[Parts]:
    """Functions whose value can be kept for too long, in each form. Not what a test calls by an
    operator: its failure would say where to look."""
    for file, module in modules.items():
        for site in module.functions():
            name = site.node.name
            if (
                name.startswith("__")
                and name.endswith("__")
                and name not in ("__enter__", "__exit__", "__call__")
            ):
                continue
            for operator in ("kept", "kept-by"):
                for n in range(len(WIDE[operator](module, site))):
                    yield (Part(file=file, function=site.name, operator=operator, occurrence=n),)


def swappable(modules: Mapping[str, Source]) -> Iterator[Parts]:
    """Functions that are called in two places or more, with two parameters swapped there and in all
    calls but one."""
    sites = {
        (file, site.name): site for file, module in modules.items() for site in module.functions()
    }
    named = collections.Counter(site.node.name for site in sites.values())
    uses = _uses(sites)
    for (file, function), callee in sites.items():
        name = callee.node.name
        if named[name] > 1 or name.startswith("__"):
            continue
        bound = [a.arg for a in callee.node.args.args[:1]] in (["self"], ["cls"])
        for n, (at, _) in enumerate(_swaps(modules[file], callee)):
            calls = _calls(modules, uses.get(name, []), at - bound)
            signature = Part(file=file, function=function, operator="parameters", occurrence=n)
            for left in range(len(calls) if len(calls) > 1 else 0):
                yield (signature, *(c for m, c in enumerate(calls) if m != left))


Use = tuple[str, Site, ast.Call | None]
"""Where a name stands: the file, the function, and the call when it is what is called there."""


def _uses(sites: Mapping[tuple[str, str], Site]) -> dict[str, list[Use]]:
    found: dict[str, list[Use]] = {}
    for (file, _), site in sites.items():
        nodes = list(ast.walk(site.node))
        called = {id(n.func): n for n in nodes if isinstance(n, ast.Call)}
        for node in nodes:
            if name := _name(node):
                found.setdefault(name, []).append((file, site, called.get(id(node))))
    return found


def _calls(modules: Mapping[str, Source], uses: Sequence[Use], at: int) -> list[Part]:
    """The swaps of arguments `at` and the next in each call; [] when one of them passes these in
    another way, or the function is named without a call."""
    found = []
    for file, site, call in uses:
        if (
            call is None
            or any(isinstance(a, ast.Starred) for a in call.args)
            or len(call.args) == at + 1
        ):
            return []
        if any(k.arg is None for k in call.keywords):
            return []
        if len(call.args) > at + 1:
            module = modules[file]
            span = module.span(call.args[at])[0], module.span(call.args[at + 1])[1]
            acts = places(module, site, "arguments")
            number = next((n for n, (_, edit) in enumerate(acts) if edit[:2] == span), None)
            if number is None:
                return []
            found.append(
                Part(file=file, function=site.name, operator="arguments", occurrence=number)
            )
    return found


def _name(node: ast.AST) -> str:
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )


def repeatable(
    modules: Mapping[str, Source], likely: Callable[[Source, Mutation], bool]
) -> Iterator[Parts]:
    """The same small mistake in two functions: the same operator, for the same words, by the same
    words."""
    ideas: dict[tuple[str, str, str], list[Part]] = {}
    for file, module in modules.items():
        for site in module.functions():
            for m in mutations(module, site):
                start, end, new = m.edit
                old = module.data[start:end].decode("utf-8")
                if likely(module, m) and (old.strip() or new.strip()):
                    part = Part(
                        file=file, function=site.name, operator=m.operator, occurrence=m.occurrence
                    )
                    ideas.setdefault((m.operator, old, new), []).append(part)
    for same in ideas.values():
        for n, one in enumerate(same):
            for other in [
                p for p in same[n + 1 :] if (p.file, p.function) != (one.file, one.function)
            ][:3]:
                yield one, other

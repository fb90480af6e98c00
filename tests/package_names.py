"""Writes the public names of packages that domains have in their sandboxes to
recreate/agents/guards/package_names.txt.

    python tests/package_names.py ENVIRONMENT/lib/python3.10/site-packages numpy pandas ...

Read from the packages' sources and stubs; nothing of them is imported or run. Public is what a
module exports whose path has no leading underscore, what the classes among it hold (from their
bases too; of what methods set only what ends in an underscore, as a fitted `coef_`), and the
parameters of its functions and methods: without a leading underscore, of three letters or more. A
package that was written before is replaced.
"""

import ast
import sys
import textwrap
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from recreate.api.syntax import parse_python

FILE = Path(__file__).parents[1] / "recreate" / "agents" / "guards" / "package_names.txt"
HEAD = """\
# Public names of packages that domains have in their sandboxes (`requires` of domain.toml). Where \
a domain has them, an
# edit may say them though a task has them too (recreate/agents/guards/leaks.py). Made by \
tests/package_names.py. Of each
# package: its top modules; all its modules; what its classes hold; other names.
"""
_OTHERS = "tests test conftest setup externals extern sandbox benchmarks examples distutils f2py"
LEFT_OUT = set(_OTHERS.split())
DEEP = 12


class Module:
    """name: dotted. bound: what it binds at its top level -> nodes, or (module, name) where it is
    imported."""

    def __init__(self, name: str, is_package: bool) -> None:
        self.name, self.is_package = name, is_package
        self.bound: dict[str, list[ast.AST | tuple[str, str]]] = {}
        self.stars: list[str] = []
        self.listed: set[str] | None = set()
        """None where `__all__` is computed, or is none."""

    def read(self, tree: ast.Module) -> None:
        listed: set[str] | None = None
        computed = False
        for node in _top(tree.body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.bound.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ImportFrom):
                source = self._source(node)
                for each in node.names:
                    if each.name == "*":
                        self.stars.append(source)
                    else:
                        self.bound.setdefault(each.asname or each.name, []).append(
                            (source, each.name)
                        )
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (
                    n for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)
                ):
                    if name.id == "__all__":
                        try:
                            listed = (listed or set()) | set(ast.literal_eval(node.value))
                        except (ValueError, TypeError):
                            computed = True
                    else:
                        self.bound.setdefault(name.id, []).append(node)
            elif isinstance(node, ast.Expr) and "__all__" in {
                n.id for n in ast.walk(node) if isinstance(n, ast.Name)
            }:
                computed = True
        self.listed = (
            None if computed or listed is None or self.listed is None else self.listed | listed
        )

    def _source(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])


def _top(body):
    """Statements that run on import, in branches too."""
    for node in body:
        yield node
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _top(getattr(node, inner, []))
        for handler in getattr(node, "handlers", []):
            yield from _top(handler.body)


class Package:
    """The modules of one distribution."""

    def __init__(self, found: Distribution) -> None:
        self.modules: dict[str, Module] = {}
        for file in found.files or ():
            path = Path(found.locate_file(file))
            if path.suffix not in (".py", ".pyi") or ".." in file.parts or not path.exists():
                continue
            parts = [*file.parts[:-1], *([] if path.stem == "__init__" else [path.stem])]
            if parts and all(part.isidentifier() for part in parts) and not LEFT_OUT & set(parts):
                name = ".".join(parts)
                module = self.modules.setdefault(name, Module(name, path.stem == "__init__"))
                try:
                    module.read(parse_python(path.read_bytes(), str(path)))
                except (SyntaxError, ValueError):
                    continue
        self.exports, self.held = cache(self._exports), cache(self._held)

    def names(self) -> tuple[set[str], ...]:
        """(top modules, modules, what classes hold, others)"""
        top, modules, held, others = (set[str]() for _ in range(4))
        for module in self.modules.values():
            if not any(part.startswith("_") for part in module.name.split(".")):
                top.add(module.name.partition(".")[0])
                modules |= set(module.name.split("."))
                for name in self.exports(module.name):
                    of_classes, parameters = self.held(module.name, name, 0)
                    held |= of_classes
                    others |= {name} | parameters
        public = [
            {
                name
                for name in some
                if len(name) > 2 and not name.startswith("_") and name.isidentifier()
            }
            for some in (top, modules, held, others - held)
        ]
        return tuple(public)

    def _exports(self, name: str) -> set[str]:
        module = self.modules.get(name)
        if module is None:
            return set()
        if module.listed:
            return module.listed
        found = {
            each
            for each, nodes in module.bound.items()
            if not each.startswith("_") and any(self._is_ours(node) for node in nodes)
        }
        return found.union(*(self.exports(star) for star in module.stars if star != name))

    def _is_ours(self, node) -> bool:
        return not isinstance(node, tuple) or node[0] in self.modules

    def _held(self, module: str, name: str, deep: int) -> tuple[set[str], set[str]]:
        """(what a class that a module has under this name holds, parameters of its methods or of
        the function)"""
        held, parameters = set[str](), set[str]()
        known = self.modules.get(module)
        if known is None or deep > DEEP:
            return held, parameters
        more = [(star, name) for star in known.stars] if name not in known.bound else []
        for node in known.bound.get(name, []):
            if isinstance(node, tuple):
                more.append(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                parameters |= _parameters(node)
            elif isinstance(node, ast.ClassDef):
                for found, some in zip((held, parameters), _members(node), strict=True):
                    found |= some
                more += [
                    (module, ast.unparse(base).rpartition(".")[2].partition("[")[0])
                    for base in node.bases
                ]
        for place in more:
            for found, some in zip((held, parameters), self.held(*place, deep + 1), strict=True):
                found |= some
        return held, parameters


def _parameters(node) -> set[str]:
    return {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}


@cache
def _members(of: ast.ClassDef) -> tuple[set[str], set[str]]:
    held, parameters = set[str](), set[str]()
    for node in _top(of.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            held.add(node.name)
            if not node.name.startswith("_") or node.name in ("__init__", "__new__", "__call__"):
                parameters |= _parameters(node)
            held |= {
                each.attr
                for each in ast.walk(node)
                if isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Store)
                and isinstance(each.value, ast.Name)
                and each.value.id == "self"
                and each.attr.endswith("_")
            }
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            held |= {
                n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)
            }
    return held, parameters


def filled(words) -> str:
    return textwrap.fill(
        " ".join(sorted(words)), 120, break_long_words=False, break_on_hyphens=False
    )


def main() -> None:
    place, *wanted = sys.argv[1:]
    packages: dict[str, list[str]] = {}
    if FILE.exists():
        _, *known = FILE.read_text("utf-8").rstrip("\n").split("\n\n")
        packages = {
            known[at].partition("==")[0]: known[at : at + 4] for at in range(0, len(known), 4)
        }
    there = {canonicalize_name(each.name): each for each in distributions(path=[place])}
    for name in map(canonicalize_name, wanted):
        top, *others = Package(there[name]).names()
        packages[name] = [
            f"{name}=={there[name].version} {' '.join(sorted(top))}",
            *map(filled, others),
        ]
    parts = [part for name in sorted(packages) for part in packages[name]]
    FILE.write_text("\n".join([HEAD, *(f"{part}\n" for part in parts)]), "utf-8")


if __name__ == "__main__":
    main()

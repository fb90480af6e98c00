"""Adds the names of the running Python's library to recreate/agents/python_names.txt: run it with
every Python.

    for v in 3.11 3.12 3.13; do python$v tests/python_names.py; done

Names of all modules that can be imported here, of what they hold, of what their classes hold, and
of the parameters that functions have; without a leading underscore, of three letters or more. Needs
no package.
"""

import contextlib
import importlib
import inspect
import io
import os
import pkgutil
import sys
import textwrap
import warnings
from pathlib import Path

FILE = Path(__file__).parents[1] / "recreate" / "agents" / "guards" / "python_names.txt"
HEAD = """\
# Names of Python's standard library, in small letters: its top modules, its classes, all of them. \
An edit may say them
# though a task has them too (recreate/agents/guards/leaks.py). Made by tests/python_names.py with \
the Pythons {versions}.
"""
LEFT_OUT = (
    "antigravity",
    "this",
    "idlelib",
    "test",
    "lib2to3",
    "turtledemo",
    "__main__",
    "_",
    "msilib",
    "ensurepip",
)


def modules():
    for name in sorted(sys.stdlib_module_names):
        if name.startswith(LEFT_OUT):
            continue
        with contextlib.suppress(BaseException):
            module = importlib.import_module(name)
            yield name, module
            for inner in pkgutil.walk_packages(
                getattr(module, "__path__", ()), f"{name}.", onerror=lambda _: None
            ):
                if not any(
                    part.startswith(LEFT_OUT) or part == "tests" for part in inner.name.split(".")
                ):
                    with contextlib.suppress(BaseException):
                        yield inner.name, importlib.import_module(inner.name)


def names():
    """(classes, all names)"""
    found, classes = set(sys.stdlib_module_names), set()
    for name, module in modules():
        found |= set(name.split("."))
        for attribute, value in list(vars(module).items()):
            if inspect.ismodule(value):
                continue
            found.add(attribute)
            held = [value]
            if inspect.isclass(value):
                classes.add(attribute)
                found |= set(dir(value))
                held += [inner for inner in vars(value).values() if inspect.isroutine(inner)]
            for each in held:
                with contextlib.suppress(BaseException):
                    found |= set(inspect.signature(each).parameters)
    return [
        {
            name.casefold()
            for name in some
            if len(name) > 2 and not name.startswith("_") and name.isidentifier()
        }
        for some in (classes, found)
    ]


def filled(words):
    return textwrap.fill(
        " ".join(sorted(words)), 120, break_long_words=False, break_on_hyphens=False
    )


def main():
    versions, known = (
        set(),
        [{n.casefold() for n in sys.stdlib_module_names if not n.startswith("_")}, set(), set()],
    )
    if FILE.exists():
        head, *parts = FILE.read_text("utf-8").split("\n\n")
        versions = set(head.rpartition("Pythons ")[2].rstrip(".").split(", "))
        known = [some | set(part.split()) for some, part in zip(known, parts, strict=True)]
    versions.add(".".join(map(str, sys.version_info[:3])))
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        known = [some | more for some, more in zip(known, [set(), *names()], strict=True)]
    head = HEAD.format(versions=", ".join(sorted(versions)))
    FILE.write_text("\n".join([head, *(f"{filled(some)}\n" for some in known)]), "utf-8")
    os._exit(0)  # whatever threads a module began on being imported


if __name__ == "__main__":
    main()

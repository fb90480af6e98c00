"""Where words go: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from recreate.api.errors import RecreateError
from recreate.api.types import SCHEMA
from recreate.storage.redact import redact


def emit(record: Mapping[str, Any]) -> None:
    """One JSON object on stdout, with its schema."""
    print(_printable(json.dumps({"schema": SCHEMA, **record}, ensure_ascii=False, default=str)), flush=True)


def emit_lines(records: Iterable[Mapping[str, Any]]) -> None:
    for record in records:
        emit(record)


def say(text: str = "") -> None:
    """Prose for a person, on stderr."""
    print(_printable(text), file=sys.stderr, flush=True)


def show(text: str = "") -> None:
    """The result of a command that was asked for as text, on stdout."""
    print(_printable(text), flush=True)


def _printable(text: str) -> str:
    """Keys masked, and a lone surrogate (a program's broken output) escaped as JSON escapes it: no stream takes it."""
    return redact(text).encode("utf-8", "backslashreplace").decode()


def colour() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def fail(error: RecreateError, as_json: bool) -> int:
    """Report an error in the form asked for and return its exit code."""
    if as_json:
        emit(error.record())
    bold, plain = ("\033[1;31m", "\033[0m") if colour() else ("", "")
    name = "stopped" if error.exit_code in (3, 130) else "error"
    say(f"{bold}{name}:{plain} {error.message}")
    if error.fix:
        say(f"  fix: {error.fix}")
    return error.exit_code

"""Where words go: results to stdout, everything else to stderr; and how a long command and a long
text are shown.

All of it goes through `printable`: keys are masked, and a control character, which could move the
cursor, hide what stands there or change its order, is spelled out. A colour of ours (`painted`) is
the one thing that passes.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from recreate.api.config import SCHEMA
from recreate.api.errors import RecreateError
from recreate.api.shapes import JsonMap
from recreate.storage.redact import redact, redacted
from recreate.viewer.text import cut, json_text, visible

EXCLUDED = "excluded (not graded)"
"""How an attempt is called that says nothing of its agent."""
LONG = 1000
"""Characters of an error's message: what was typed may be of any length."""
FOLD = 1200
"""Characters of one text that `show` commands print; --full prints all."""


def emit(record: JsonMap) -> None:
    """Print one JSON object on stdout, with its schema."""
    print(json_text(redacted({"schema": SCHEMA, **record})), flush=True)


def say(text: str = "") -> None:
    """Prose for a person, on stderr."""
    print(printable(text), file=sys.stderr, flush=True)


LISTED = 20
"""Of what may be thousands (bad records, what is held out), so many are listed one by one."""


def say_some(lines: Sequence[str], more: str) -> None:
    """Say the first of these lines, and how many there are more, in words such as `like these`."""
    for line in lines[:LISTED]:
        say(line)
    if len(lines) > LISTED:
        say(f"and {len(lines) - LISTED} more {more}; --json lists all")


def prompt(text: str) -> None:
    """Ask a person on stderr; the answer is typed behind it."""
    print(printable(text), file=sys.stderr, end="", flush=True)


def show(*lines: str) -> None:
    """Print the result of a command that was asked for as text, on stdout."""
    if lines:
        print(printable("\n".join(lines)), flush=True)


def answer(as_json: bool, record: JsonMap, *lines: str) -> None:
    """Print the one result of a command, in the form asked for."""
    if as_json:
        emit(record)
    else:
        show(*lines)


def answers(as_json: bool, rows: Iterable[tuple[JsonMap, str]], nothing: str = "") -> int:
    """Print a list of results as they come, each (record, text); return how many there were;
    `nothing`: said when none was."""
    count = 0
    for record, text in rows:
        count += 1
        answer(as_json, record, text)
    if not count and nothing:
        say(nothing)
    return count


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines whose columns stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (map(str.ljust, row, widths) for row in rows)
    return ["  ".join(row).rstrip() for row in padded]


def pass_on(text: str) -> None:
    """Print what a program printed, on stdout: as it is into a file or a pipe, made visible on a
    terminal."""
    sys.stdout.write(
        visible(text) if sys.stdout.isatty() else text.encode("utf-8", "replace").decode()
    )
    sys.stdout.flush()


def printable(text: str) -> str:
    """Keys masked and nothing hidden; colours of ours become what a terminal understands."""
    parts = _COLOUR.split(redact(text))
    return "".join(f"\033[{part}m" if n % 2 else visible(part) for n, part in enumerate(parts))


_MARK = f"\ufdd0{secrets.token_hex(8)}:"
_COLOUR = re.compile(rf"{_MARK}([0-9;]+)\ufdd1")
"""A colour within a text until it is printed. Nobody else can write one: the mark is this process's
own."""


def fail(error: RecreateError, as_json: bool) -> int:
    """Report an error in the form asked for and return its exit code."""
    message = (
        error.message
        if len(error.message) <= LONG
        else f"{error.message[: LONG - 200]} [...] {error.message[-180:]}"
    )
    if as_json:
        record = error.record()
        emit({**record, "error": {**record["error"], "message": message}})
    name = "stopped" if error.exit_code in (3, 130) else "error"
    say(f"{painted(name + ':', '1;31', sys.stderr)} {message.removeprefix(f'{name} ')}")
    if error.fix:
        say(f"  fix: {error.fix}")
    return error.exit_code


# ------------------------------------------------------------------------------------------------
# long texts


def painted(text: str, code: str, stream: TextIO) -> str:
    """Return a text in a colour (an ANSI code) where the stream is a terminal."""
    return (
        f"{_MARK}{code}\ufdd1{text}{_MARK}0\ufdd1"
        if stream.isatty() and not os.environ.get("NO_COLOR")
        else text
    )


def red(text: str) -> str:
    """Return a text in red on a terminal."""
    return painted(text, "31", sys.stdout)


def head(text: str, wrong: str = "") -> str:
    """Return the line above a step; wrong: what went wrong in it."""
    line = f"\n--- {text}"
    return red(f"{line}  ! {wrong}") if wrong else line


def fold(text: str, full: bool, limit: int = FOLD) -> str:
    """Head and tail of a long text, and how much was left out between; control characters are
    spelled out."""
    text = visible(text.rstrip())  # before it is cut: what is spelled out is longer
    short = cut(text, limit, len(text) + 1)
    if full or not short.left_out:
        return text
    return f"{short.head}\n[... {short.left_out:,} characters; --full shows them ...]\n{short.tail}"


# ----------------------------------------------------------------------------------------------
# long commands


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Calls that each say that one more is done, with a word on how it goes: a bar and the time
    that is left on stderr, and where nobody watches a line every 30 s."""
    done = 0
    began = time.monotonic()
    told = began
    if not sys.stderr.isatty():

        def tell(word: str) -> None:
            nonlocal done, told
            done = done + 1
            now = time.monotonic()
            if now - told >= 30 and done < total:
                told = now
                left = (now - began) / done * (total - done) / 60
                say(f"{what}: {done} of {total}{word}, about {max(1, round(left))} min left")

        yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # What goes through a pipe must not be drawn above the bar.
    console = Console(stderr=True)
    through = sys.stdout.isatty()
    # By all that is done: within rich's half minute there may be one task, or none.
    drawn = Bar(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=through,
        speed_estimate_period=1e9,
    )
    with drawn:
        row = drawn.add_task(printable(what), total=total)
        yield lambda word: drawn.update(row, advance=1, description=printable(f"{what}{word}"))


class Progress:
    """Bytes, share and speed on stderr: a line that overwrites itself on a terminal, else one every
    10 s."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.live = sys.stderr.isatty()
        self.began: tuple[float, int] | None = None
        self.shown = 0.0
        self.open = False

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if self.began is None:
            self.began = (now, done)
            self.shown = now if not self.live else 0.0
        last = total is not None and done >= total
        if not last and now - self.shown < (0.2 if self.live else 10.0):
            return
        self.shown = now
        seconds = now - self.began[0]
        speed = f", {(done - self.began[1]) / seconds / 1e6:.1f} MB/s" if seconds > 0.5 else ""
        of = f" of {total / 1e6:,.0f} MB ({done / total:.0%})" if total else " MB"
        text = f"{self.name}: {done / 1e6:,.0f}{of}{speed}"
        if self.live:
            sys.stderr.write(f"\r{printable(text):<76}")
            sys.stderr.flush()
            self.open = True
        else:
            say(text)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.open:
            say()

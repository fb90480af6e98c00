"""A generator of tasks that a model writes: what it is asked, what its reply says, and how often it
may mend it.

What it wrote is run in sandboxes alone, and kept only when every check of `generator.check` holds.
Each reply lies in the folder of its calls: NUMBER.md as it came, NUMBER/ with its files,
NUMBER-refused.txt with what was wrong, which is what the model is told, after a kill too, so that
its replies are found again.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from recreate.api import paths
from recreate.api.errors import BadInput, CheckFailed
from recreate.api.ports import SandboxBackend
from recreate.api.shapes import JsonMap
from recreate.api.types import Message, Record, Reply
from recreate.plugins.generators import generator
from recreate.storage import files

PROMPT = Path(__file__).parent / "prompts" / "invent.md"
PARAMS: JsonMap = {"max_tokens": 8000, "temperature": 0.7}
"""What a reply is asked for with: what a reasoning model thinks before it counts too."""
LEVELS = range(3, 6)
_MOST_CHARS = 200_000
_SECONDS = 10.0, 30.0
"""That a generator may take for a task, and a verifier for an answer."""
_NAME = re.compile(r"[\s=#*`]*([A-Za-z0-9_][\w-]{0,80}\.(?:py|toml|sql|json|csv|txt|md))[\s=*`:]*")
_CLOCK = re.compile(
    r"\b(?:(?:date|datetime)\.(?:now|today|utcnow)|time\.(?:time|time_ns|localtime|gmtime|ctime))\("
)


class Invented(Record):
    """The generator that held: its folder, which reply it was, and the tasks that it was tried
    by."""

    folder: Path
    replies: int
    tasks: Sequence[JsonMap]


def question(about: str, like: Sequence[str] = ()) -> str:
    """What a model is asked. like: questions of tasks that the new ones are to resemble."""
    shown = "".join(f"\n<task>\n{each[:1500].strip()}\n</task>\n" for each in like)
    like_them = (
        f"\nThey are to be of the kind of these, and none of these:\n{shown}" if shown else ""
    )
    return (
        PROMPT.read_text("utf-8")
        .replace("{{ about }}", about.strip())
        .replace("{{ like }}", like_them)
    )


def invent(
    asked: str,
    *,
    ask: Callable[[Sequence[Message], int], Reply],
    repairs: int,
    replies: Path,
    out: Path,
    header: str,
    backend: SandboxBackend,
    say: Callable[[str], None],
) -> Invented:
    """Ask until a generator holds, and put it where `out` says. Raises CheckFailed when the last
    reply is refused too.

    replies: the folder of the replies; header: a line about who wrote it, at the head of
    generator.toml.
    """
    first: Message = {"role": "user", "content": asked}
    messages = [first]
    for number in range(1, repairs + 2):
        say(f"a generator is asked for: reply {number} of at most {repairs + 1}")
        reply = ask(messages, number - 1)
        wrong, tasks = _tried(replies / str(number), reply, header, backend, say)
        if not wrong:
            _put(replies / str(number), out)
            return Invented(folder=out, replies=number, tasks=tasks)
        say(f"refused: {wrong}")
        messages = [
            first,
            {"role": "assistant", "content": reply.text or "(nothing)"},
            _again(wrong),
        ]
    raise CheckFailed(
        f"no generator of {repairs + 1} replies holds; what was written, and why it was refused, is"
        f" in {paths.short(replies)}. The last: {wrong.splitlines()[0]}",
        fix=(
            f"the same command with --repairs {2 * repairs + 2} goes on from there; or say more of"
            " what the tasks are about, or name a stronger --model"
        ),
        code="generator-refused",
    )


def _again(wrong: str) -> Message:
    mend = "Reply with all its files again, mended, in the same form."
    return {"role": "user", "content": f"This generator cannot be used:\n{wrong}\n\n{mend}"}


def _tried(
    folder: Path, reply: Reply, header: str, backend: SandboxBackend, say: Callable[[str], None]
) -> tuple[str, Sequence[JsonMap]]:
    """(what is wrong with a reply, '' for nothing; the tasks that it was tried by), kept beside the
    folder."""
    said = folder.with_suffix(".md")
    told = folder.with_name(f"{folder.name}-refused.txt")
    if (
        told.is_file()
        and said.is_file()
        and said.read_bytes() == reply.text.encode("utf-8", "surrogatepass")
    ):
        return told.read_text("utf-8"), ()
    told.unlink(missing_ok=True)
    files.write(said, reply.text)
    shutil.rmtree(folder, ignore_errors=True)
    wrong = _write(folder, reply, header)
    tasks: Sequence[JsonMap] = ()
    if not wrong:
        tasks, wrong = _checked(folder, backend, say)
    if wrong:
        files.write(told, "\n".join(f"- {each}" for each in wrong))
    return "\n".join(f"- {each}" for each in wrong), tasks


def read_files(text: str, *, whole: bool = True) -> dict[str, str]:
    """The files in a reply: each is a line that is its name, then its text between fences; of two
    of one name the last. whole: whether the reply was not cut off, so that a last fence may be
    missing."""
    found: dict[str, str] = {}
    name = ""
    fence = ""
    lines = list[str]()
    for line in [*text.split("\n"), *(["```"] if whole else [])]:
        if fence and line.rstrip() != fence:
            lines.append(line)
        elif fence:
            # as in `# generate.py`
            named = _NAME.fullmatch(lines[0]) if lines and not name else None
            found[named[1] if named else name] = "\n".join([*lines, ""])
            name = ""
            fence = ""
        elif line.startswith("```"):
            fence = "`" * (len(line) - len(line.lstrip("`")))
            lines = []
        elif line.strip():
            name = named[1] if (named := _NAME.fullmatch(line)) else ""
    found.pop("", None)
    return found


def _write(folder: Path, reply: Reply, header: str) -> list[str]:
    """Write a reply's files; what is wrong with them as they are read."""
    found = read_files(reply.text, whole=reply.finish != "length")
    if len(reply.text) > _MOST_CHARS:
        return [f"the reply has more than {_MOST_CHARS:,} characters"]
    if generator.SETTINGS in found:
        found[generator.SETTINGS] = f"# {' '.join(header.split())}\n{found[generator.SETTINGS]}"
    for name, text in found.items():
        files.make(folder)
        files.write(folder / name, text)
    cut = (
        f"; the reply ended after {reply.tokens_out} tokens: write less"
        if reply.finish == "length"
        else ""
    )
    needed = (generator.SETTINGS, generator.PROGRAM)
    return [
        f"the reply has no file {name} in the form of the example{cut}"
        for name in needed
        if name not in found
    ]


def _checked(
    folder: Path, backend: SandboxBackend, say: Callable[[str], None]
) -> tuple[Sequence[JsonMap], list[str]]:
    try:
        _, known = generator.find(str(folder))
    except BadInput as e:
        return (), [f"{e.message}; {e.fix}".replace(f"{folder}/", "")]
    wrong = []
    if known.levels not in LEVELS:
        wrong.append(
            f"{generator.SETTINGS}: levels = {known.levels}, and {LEVELS[0]} are asked for"
        )
    if known.seconds > _SECONDS[0] or known.scorer.seconds > _SECONDS[1]:
        wrong.append(f"{generator.SETTINGS}: seconds are more than may be: leave them out")
    for file in sorted(folder.glob("*.py")):
        if clock := _CLOCK.search(file.read_text("utf-8")):
            wrong.append(
                f"{file.name} reads the clock, {clock[0]}...): the same seed would print another"
                " task later"
            )
    return ((), wrong) if wrong else generator.check(folder, known, backend, say)


def _put(made: Path, out: Path) -> None:
    """Put a copy of the folder where it is to be, by one rename."""
    with files.disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=out.parent) as scratch:
            shutil.copytree(made, Path(scratch) / out.name)
            (Path(scratch) / out.name).rename(out)

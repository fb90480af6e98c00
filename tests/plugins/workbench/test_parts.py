"""What a folder is made of: edits of a difference, causes, and the way of its commands."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold
from recreate.plugins.workbench.causes import read_causes
from recreate.plugins.workbench.door import MOST_BYTES, CommandAnswer, CommandCall, Door
from recreate.plugins.workbench.edits import edit_file, list_changed
from tests.studied import SEED

LINES = ["", "a", "b", "a", "  x", "```", "é", "a b", "{% if x %}"]


@pytest.mark.parametrize("seed", range(300))
def test_an_edit_makes_of_one_text_the_other(seed: int) -> None:
    draw = random.Random(seed)
    before = "\n".join(draw.choices(LINES, k=draw.randint(1, 12)))
    lines = before.split("\n")
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(lines) + 1)
        lines[at : at + draw.randint(0, 2)] = draw.choices(LINES, k=draw.randint(0, 2))
    after = "\n".join(lines)
    if before == after or not before or not after:
        return
    parent = Scaffold(name="p", files={**SEED.files, "memory/notes.md": before})
    edit = edit_file("memory/notes.md", before, after).model_copy(update={"origin": "search"})
    assert scaffolds.apply(parent, [edit]).files["memory/notes.md"] == after


def test_files_that_come_and_go_are_edits_too() -> None:
    parent = Scaffold(name="p", files={**SEED.files, "memory/notes.md": "old\n"})
    after = {k: v for k, v in parent.files.items() if k != "memory/notes.md"} | {
        "memory/new.md": "new\n"
    }
    paths = list_changed(parent.files, after)
    edits = [edit_file(p, parent.files.get(p), after.get(p)) for p in paths]
    edits = [e.model_copy(update={"origin": "search"}) for e in edits]
    assert paths == ["memory/new.md", "memory/notes.md"]
    assert scaffolds.apply(parent, edits).files == after


@pytest.mark.parametrize(
    ("line", "quote"),
    [
        ('- 03 step 2: "some words"', ("03", 2, "some words")),
        ("* 3 step 2: 'some words'", ("03", 2, "some words")),
        ("- `03`, step 12: some words", ("03", 12, "some words")),
        ("- 03 step 2: “some words”", ("03", 2, "some words")),
        ("- step 2 of 03: x", None),
        ("03 step 2", None),
    ],
)
def test_quotations_are_read_as_people_write_them(
    line: str, quote: tuple[str, int, str] | None
) -> None:
    (cause,) = read_causes(f"# Causes\n\n## Why\n{line}\n**Changed:** `agent/a.md`, b/c.py\n")
    assert cause.title == "Why"
    assert [tuple(q) for q in cause.quotes] == ([quote] if quote else [])
    assert cause.changed == ("a.md", "b/c.py")


def answer(asked: CommandCall) -> CommandAnswer:
    return CommandAnswer(f"{asked.command} {' '.join(asked.arguments)}", 3)


def ask(door: Door, data: bytes) -> dict[str, object]:
    there = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    there.connect(str(door.folder / "desk.sock"))
    there.sendall(data)
    there.shutdown(socket.SHUT_WR)
    parts = b"".join(iter(lambda: there.recv(65536), b""))
    there.close()
    found: dict[str, object] = json.loads(parts)
    return found


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'{"command": "check"}\n',
        b'{"command": 1, "arguments": 2, "agent": [], "odd": {}, "causes": ""}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_no_question_is_answered_and_the_way_stays_open(line: bytes) -> None:
    good = {"command": "check", "arguments": ["a"], "agent": {}, "odd": {}, "causes": ""}
    with Door(answer) as door:
        assert ask(door, line)["status"] == 1
        assert ask(door, json.dumps(good).encode() + b"\n") == {
            "text": "check a",
            "status": 3,
            "files": {},
        }


def test_a_question_without_end_is_cut_off() -> None:
    with Door(answer) as door:
        there = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        there.connect(str(door.folder / "desk.sock"))
        sent = threading.Thread(target=_flood, args=(there,), daemon=True)
        sent.start()
        said = b"".join(iter(lambda: _receive(there), b""))
        there.close()
    assert b"too large" in said


def _flood(there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        there.sendall(b"x" * (MOST_BYTES + 2))


def _receive(there: socket.socket) -> bytes:
    try:
        return there.recv(65536)
    except OSError:
        return b""

"""Makes old_workspace.tar.gz and expected.json: a workspace with all that is stored, and what is
said of it.

    .venv/bin/python -m tests.old_workspace.make FOLDER          with the code of the commit that
    README.md names

It types commands and nothing else; only to die at the right moment does a build take hold of that
code. Ids, digests and texts come out the same each time; clocks, process ids and random names in
the index and the checkpoints do not.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Any

DOMAIN = '''"""Domains of the workspace: write a word to answer.txt, with a mark at its end that \
no task tells."""

from collections.abc import Sequence

from recreate import Grade, Rung, Sandbox, Split, Task, Trace

SIZES: dict[Split, int] = {"train": 4, "validation": 5, "test": 3}


class Toy:
    name, mark = "toy", "!"

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            Task(
                id=f"{self.name}:{s}:{n}",
                domain=self.name,
                prompt=f"Write the word number {n} of the {self.name} {s} list to the file \
answer.txt.",
                split=s,
                group=f"{self.name}-{s}-{n}",
                facts={"word": f"w{n}{self.mark}"},
            )
            for s, size in SIZES.items()
            if split in (None, s)
            for n in range(size)
        ]

    def prepare(self, task: Task, rung: Rung) -> Sandbox:
        return rung.open()

    def collect(self, task: Task, box: Sandbox) -> str:
        try:
            return box.read("answer.txt").decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, rung: Rung) -> Grade:
        right = trace.answer == task.facts["word"]
        evidence = "right" if right else f"AssertionError: {trace.answer!r} does not end as it must"
        return Grade(score=float(right), passed=right, evidence=evidence)


class Tray(Toy):
    name, mark = "tray", "?"


class Vase(Toy):
    name, mark = "vase", ";"


class Bowl(Toy):
    name, mark = "bowl", "."


class Dish(Toy):
    name, mark = "dish", ":"
'''

LESSONS = {
    "toy": "End every answer with an exclamation mark.",
    "tray": "End every answer with a question mark.",
    "vase": "End every answer with a semicolon.",
    "bowl": "End every answer with a full stop.",
    "dish": "End every answer with a colon.",
}
MARKS = {"toy": "!", "tray": "?", "vase": ";", "bowl": ".", "dish": ":"}
OTHER = "Always end every answer with an exclamation mark."
HASTE = "Work quickly."
FENCE = "```bash\n{}\n```"
LARGE = "printf %s w1 > answer.txt; yes 'many lines are printed here' | head -n 400"
"""More than an agent is shown."""

SETTINGS = """domain = "old_domain:Toy"
model = "scripted:script.jsonl"
sandbox = "none"
train = 4
validation = 5
jobs = 1

[models]
retries = 0

[memory]
embedder = "hashed:64"
"""

SMALL = {
    "agent.toml": (
        """description = "A small agent that takes what memory offers."

[limits]
steps = 6

[memory]
tokens = 200

[model]
max_tokens = 512
"""
    ),
    "system.md": (
        """You work in a Linux shell. Reply with one block, opened by ```bash and closed by ```; \
`submit` ends.
{% for tool in tools %}
There is `{{ tool.name }}`: {{ tool.help }}
{% endfor %}
{% for lesson in lessons %}
- {{ lesson.title }}: {{ lesson.body }}
{% endfor %}
"""
    ),
    "workflow.md": "{{ task.prompt }}\n",
    "observation.md": (
        "{{ output.text }}\n[exit status {{ output.status }}; {{ steps_left }} steps left]\n"
    ),
    "format.md": "{{ error }}; {{ steps_left }} steps left\n",
    "tools/look.py": (
        """#!/usr/bin/env python3
\"\"\"Say what files there are.\"\"\"

import os

print(", ".join(sorted(f for f in os.listdir() if not f.startswith("."))) or "no files")
"""
    ),
}

# graded; ungraded; larger than a line holds (64 KiB); of a task that is held out
CHATS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "system", "content": "You answer briefly."},
            {"role": "user", "content": "Say the word for the colour of grass."},
            {"role": "assistant", "content": "green!"},
        ],
        "task": "grass",
        "model": "someone/else",
        "score": 1.0,
        "room": "kept as it is",
    },
    {
        "messages": [
            {"role": "user", "content": "Say the word for the colour of the sky."},
            {"role": "assistant", "content": "blue"},
        ],
        "task": "sky",
    },
    {
        "messages": [
            {"role": "user", "content": "Say the word for the colour of snow, often."},
            {"role": "assistant", "content": "white, " * 10_000},
        ],
        "task": "snow",
        "passed": False,
    },
    {
        "messages": [
            {
                "role": "user",
                "content": (
                    "Write the word number 1 of the toy validation list to the file answer.txt."
                ),
            },
            {"role": "assistant", "content": "w1!"},
        ],
        "score": 1.0,
    },
]

KILLED = """
import os, signal, sys
from recreate.cli import main
from recreate.models.scripted import Scripted

real, left = Scripted.reply, [int(sys.argv.pop(1))]

def reply(self, messages, call, **params):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, messages, call, **params)

Scripted.reply = reply
main()
"""
"""The command line, killed in its call number N, counted from 0: what was reserved for it is never
settled."""

BUILT = "build --rounds 3 --batch 4 --scaffold seed --out runs/built"
LEARNED = "build --rounds 2 --batch 4 --scaffold small --memory recreate --out runs/learned"
WAITING = (
    "build --domain old_domain:Vase --rounds 1 --batch 2 --scaffold small --review --out"
    " runs/waiting"
)
BENCH = "bench --scaffold seed --scaffold toy --split test --out runs/bench"
TABLE = (
    "bench --arms seed,scaffold --domain old_domain:Bowl --scaffold seed --train 2 --rounds 1"
    " --budget 40attempts --out runs/table"
)
JUDGING = (
    "build --domain old_domain:Tray --rounds 3 --batch 2 --scaffold small --memory playbook --out"
    " runs/judging"
)
LEARNING = (
    "build --domain old_domain:Dish --rounds 1 --batch 4 --scaffold small --memory recreate --out"
    " runs/learning"
)
STUDYING = (
    "build --domain old_domain:Vase --rounds 1 --train 2 --scaffold seed --optimizer recreate"
    " --models.optimizer scripted:studies.jsonl --out runs/studying"
)
KILLED_RUNS = {"judging": JUDGING, "learning": LEARNING, "studying": STUDYING}
IMPORT = "traces import traces/chat.jsonl --domain old_domain:Toy"

SECONDS = 1_795_219_200
"""All files are from 2026-11-21 on, a second after the other in the order in which they were
written."""


# -------------------------------------------------------------------------------------------------
# what answers


def script() -> list[dict[str, Any]]:
    """The agent, the optimizer `reflect` and the memory policies."""
    rows: list[dict[str, Any]] = []
    number = r"word number (\d+) of"
    for domain, lesson in LESSONS.items():
        told = {"contains": lesson[4:], "lacks": "exit status", "find": number}
        rows.append(
            {
                "role": "agent",
                **told,
                "text": FENCE.format(f"printf %s 'w$1{MARKS[domain]}' > answer.txt"),
            }
        )
    first = {"role": "agent", "lacks": "exit status"}
    rows += [
        {**first, "task": "toy:train:1", "text": FENCE.format(LARGE)},
        {
            "role": "agent",
            "task": "toy:train:2",
            "lacks": "steps left",
            "text": "I would rather think about it first.",
        },
        {**first, "find": number, "text": FENCE.format("printf %s 'w$1' > answer.txt")},
        {"role": "agent", "text": FENCE.format("submit")},
    ]
    learn = {
        "happened": "It wrote the bare word.",
        "title": "How answers end",
        "when": "An answer is written.",
    }
    nothing = {"happened": "It went well.", "title": "", "body": "", "when": ""}
    bullet = {"title": "Read the task twice", "body": "Before you write, read the task twice."}
    for domain in ("vase", "bowl"):
        ends = idea(LESSONS[domain], "How answers end")
        rows.append(says(ends, contains=f"the {domain} train list", find=FAILED))
    rows += [
        says({"same": True}, contains="Do they say the same"),
        says(nothing, contains="an attempt that succeeded"),
        says(
            {**learn, "body": LESSONS["dish"]},
            contains="the dish train list",
            lacks="You improve an agent",
        ),
        says(
            {**learn, "body": OTHER},
            contains="word number 3 of the toy train",
            lacks="You improve an agent",
        ),
        says({**learn, "body": LESSONS["toy"]}, contains="an attempt that failed"),
        says(
            {"tags": [], "insight": "Reading once was not enough."},
            contains="Judge what the bullets did",
        ),
        says({"add": [bullet]}, contains="Add the bullets"),
        says(
            idea(LESSONS["tray"], "How answers end"),
            contains=HASTE,
            lacks="the toy train list",
            find=FAILED,
        ),
        says(idea(LESSONS["toy"], "How answers end"), contains=HASTE, find=FAILED),
        says(idea(HASTE, "Haste"), find=FAILED),
    ]
    return rows


FAILED = r"experience ([0-9a-f]{16}): FAILED"
"""In what `reflect` is shown; an edit cites the attempt."""


def says(answer: dict[str, Any], **conditions: Any) -> dict[str, Any]:
    return {"role": "optimizer", **conditions, "text": json.dumps(answer)}


def idea(text: str, title: str) -> dict[str, Any]:
    """What `reflect` is answered: one new lesson."""
    edit = {
        "file": "new lesson",
        "line": 0,
        "title": title,
        "text": text,
        "reason": "The grader wants it.",
    }
    return {
        "why": "It is missing.",
        "cause": "knowledge",
        "edits": [{**edit, "experience": "$1", "step": 0}],
    }


def studies() -> list[dict[str, Any]]:
    """The optimizer that investigates, by native tool calls; the distilling first."""
    lesson = {
        "title": "How answers end",
        "text": LESSONS["vase"],
        "reason": "The grader wants it.",
        "steps": [0],
    }
    actions: list[tuple[str, dict[str, Any]]] = [
        ("index", {}),
        ("steps", {"first": 0, "last": 1}),
        ("search", {"query": "an answer that does not end as it must", "k": 4}),
        ("search", {"query": "AssertionError", "by": "words", "k": 4}),
        ("evidence", {}),
        ("lesson", lesson),
        ("rehearse", {}),
        ("finish", {"summary": "The mark was missing.", "cause": "knowledge"}),
    ]
    done = [{"name": "finish", "arguments": {"summary": "All of it."}}]
    return [
        {"role": "optimizer", "contains": "Make the update.", "tool_calls": done},
        *(
            {"role": "optimizer", "step": n, "tool_calls": [{"name": name, "arguments": given}]}
            for n, (name, given) in enumerate(actions)
        ),
    ]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# ------------------------------------------------------------------------------------------------
# how it is made


class Place:
    """A workspace, and the commands typed in it. home: what else a command may write lies there."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home

    def type(self, words: str, *, code: int = 0, kill: int | None = None) -> list[Any]:
        """The objects that a command prints with --json. kill: it dies in its call with this
        number."""
        start = ["-m", "recreate"] if kill is None else ["-c", KILLED, str(kill)]
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "HOME")}
        environment = {**kept, "RECREATE_HOME": str(self.home), "TMPDIR": str(self.home)}
        done = subprocess.run(
            [sys.executable, *start, *shlex.split(words), "--json"],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        wanted = code if kill is None else -signal.SIGKILL
        assert done.returncode == wanted, (
            f"{words}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
        said = done.stdout.replace(str(self.folder), "WORKSPACE")
        return [json.loads(line) for line in said.splitlines()]

    def copy(self, name: str) -> Place:
        """The same again, elsewhere."""
        folder = self.folder.parent.parent / name / self.folder.name
        shutil.copytree(self.folder, folder, symlinks=True)
        return Place(folder, self.home)

    def records(self, file: str, *kinds: str) -> list[dict[str, Any]]:
        """The sealed lines of a file; a torn one is none."""
        whole = [
            line
            for line in (self.folder / file).read_text("utf-8").splitlines(True)
            if line.endswith("\n")
        ]
        return [record for record in map(json.loads, whole) if not kinds or record["kind"] in kinds]


def made(folder: Path, home: Path) -> Place:
    """The workspace, in an empty folder: what was finished first, then the builds that die."""
    place = Place(folder, home)
    place.type("init .")
    write(folder / "recreate.toml", SETTINGS)
    write(folder / "old_domain.py", DOMAIN)
    write(folder / "script.jsonl", lines(script()))
    write(folder / "studies.jsonl", lines(studies()))
    write(folder / "traces" / "chat.jsonl", lines(CHATS))
    for name, text in SMALL.items():
        write(folder / "scaffolds" / "small" / name, text)
    (folder / "scaffolds" / "small" / "tools" / "look.py").chmod(0o755)
    for words in (BUILT, LEARNED, WAITING, BENCH, TABLE, IMPORT):
        place.type(words)
    for run, words in KILLED_RUNS.items():
        whole = place.copy(f"whole-{run}")
        whole.type(words)
        at = dies(whole, run)
        place.type(words, kill=at)
        tear(place, whole, run, at)
    return place


def dies(whole: Place, run: str) -> int:
    """The call in which a build dies, by what it does when nobody kills it."""
    records = whole.records(f"runs/{run}/journal.jsonl", "reply", "proposal")
    calls = [record for record in records if record["kind"] == "reply"]
    if run == "judging":  # in the second call of the third attempt that judges the second candidate
        return calls.index(
            records[records.index([r for r in records if r["kind"] == "proposal"][1]) + 6]
        )
    if run == "learning":  # in the second call of the third re-run that tests a lesson
        return [
            record["phase"] for record in whole.records(f"runs/{run}/ledger.jsonl", "settle")
        ].index("rerun") + 5
    # in the second study, when it hands in, after its rehearsal
    return [n for n, record in enumerate(calls) if record["call"].endswith("/7")][1]


def tear(place: Place, whole: Place, run: str, at: int) -> None:
    """End the journal, the ledger and the memory as a writer leaves them that dies while it
    writes."""
    for file, kind in (
        (f"runs/{run}/journal.jsonl", "reply"),
        (f"runs/{run}/ledger.jsonl", "settle"),
    ):
        line = sealed(whole.records(file, kind)[at])
        with (place.folder / file).open("ab") as end:
            end.write(line[: len(line) // 2])
    if run == "judging":
        (memory,) = (place.folder / "memory" / "tray" / "experiences").glob("*.jsonl")
        line = memory.read_bytes().splitlines(True)[-1]
        with memory.open("ab") as end:
            end.write(line[: len(line) // 2])


def sealed(record: dict[str, Any]) -> bytes:
    """A line of JSON that ends with the CRC-32 of what stands before."""
    bare = {key: value for key, value in record.items() if key != "sum"}
    data = json.dumps(bare, ensure_ascii=False, separators=(",", ":")).encode()
    return data[:-1] + b',"sum":"%08x"}\n' % zlib.crc32(data)


def settle(place: Place) -> None:
    """Take out what says where and when this was made, and what anybody can make again; then index
    what is left."""
    for path in (
        *place.folder.rglob("__pycache__"),
        *place.folder.glob("runs/table/arms/*/memory/index"),
        *place.folder.glob("scaffolds/seed-*"),
    ):
        shutil.rmtree(path)
    for path in place.folder.rglob("report.html"):
        if path.parent.name != "built":
            path.unlink()
    for path in place.folder.rglob("*.jsonl"):
        if str(place.folder).encode() in path.read_bytes():
            stat, kept = (
                path.stat(),
                path.read_text("utf-8").replace(str(place.folder), "/old/workspace"),
            )
            path.write_bytes(b"".join(sealed(json.loads(line)) for line in kept.splitlines()))
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for path in place.folder.rglob("*"):
        assert path.is_dir() or str(place.home.parent).encode() not in path.read_bytes(), path
    dated(place.folder)
    place.type("memory rebuild")
    dated(place.folder / "memory" / "index", 10_000)


def dated(folder: Path, after: int = 0) -> None:
    """Whole seconds, in the order of before: a tar file keeps them, and the catalogue compares
    times."""
    paths = sorted(
        (p for p in folder.rglob("*") if p.is_file()), key=lambda p: (p.stat().st_mtime_ns, p)
    )
    for n, path in enumerate(paths):
        os.utime(path, (SECONDS + after + n, SECONDS + after + n))


def packed(folder: Path, file: Path) -> None:
    """The folder as a .tar.gz, like files beside each other."""
    with (
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(folder.rglob("*"), key=lambda p: (p.suffix, p.name, p)):
            if path.is_file() or not any(path.iterdir()):
                info = tar.gettarinfo(path, str(path.relative_to(folder)))
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                info.mtime = int(path.stat().st_mtime) if path.is_file() else SECONDS
                info.mode = 0o755 if path.is_dir() or info.mode & 0o100 else 0o644
                tar.addfile(info, io.BytesIO(path.read_bytes()) if path.is_file() else None)


def unpacked(file: Path, place: Path, home: Path) -> Place:
    with tarfile.open(file) as tar:
        tar.extractall(place, filter="data")
    return Place(place, home)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


# ------------------------------------------------------------------------------------------------
# what is said of it

LOOKS = [
    "memory stats",
    "log runs/built",
    "log runs/learned",
    "log runs/judging",
    "show runs/built",
    "show runs/built e1513269",
    "scaffold check toy",
    "show runs/judging",
    "show runs/learning",
    "show runs/studying",
    "show runs/waiting",
    "show last",
    "show toy",
    "diff runs/built:seed runs/built",
    "review runs/waiting",
    "traces list",
    "traces list runs/learned --failed",
    "traces list --ungraded",
    "traces search does not end as it must --domain tray -k 5",
    "traces search green!",
    "traces search white, white -k 3",
    "memory recall an answer that does not end as it must -k 6",
    "memory recall an answer that does not end as it must -k 6 --how keywords",
    "memory recall an answer that does not end as it must -k 6 --how vectors",
    (
        "memory recall write the word --as human --where split=validation --where domain=bowl"
        " --where outcome=passed -k 5"
    ),
    "memory recall printf --where tool=printf --where grain=step --where until=2100-01-01 -k 3",
    "memory recall write the word --where since=2100-01-01",
    "memory prune --dry-run",
    "patterns list --all",
    "patterns list --policy playbook",
    "patterns diff runs/learned",
    "patterns diff runs/judging",
    "studies list runs/studying",
    "studies show 921e90c7 --run runs/studying",
    "studies show 1b3cb393 --run runs/studying",
    "traces show 9b7a5452d249e6d9",
]
"""What is looked at, all in one workspace."""

DOES = {
    "a build of the same settings makes the same agent of the same attempts": [
        BUILT.replace(
            "--out runs/built", "--gate.false_keep 0 --study.forecast none --out runs/again"
        ),
        "log runs/again",
        "traces list runs/again",
        "memory stats",
    ],
    "the candidate that waits is accepted and the build goes on": [
        "review runs/waiting --accept",
        "log runs/waiting",
        "show vase",
    ],
    "a build that has ended ends the same": ["resume runs/built", "resume runs/learned"],
    "a bench goes on without an attempt": [BENCH, "memory stats"],
    "a table goes on without an attempt": [TABLE, "memory stats"],
    "what was imported is known and what waits is graded under its id": [
        IMPORT,
        "traces grade --domain old_domain:Toy --score 1 30e5a425",
        "traces list --domain toy --passed --task toy:imported:sky",
    ],
    "a rebuilt index is the same": [
        "memory rebuild",
        "memory recall an answer that does not end as it must -k 6",
        "memory stats",
    ],
    "a revision that was dropped is kept and reverted": [
        "keep runs/built:e1513269",
        "show toy",
        "revert toy",
    ],
    "a pattern is frozen and another vetoed": [
        "patterns freeze how-answers-end-443bb2fa",
        "patterns veto haste",
        "patterns list --all",
    ],
}
"""What is done, each in a workspace of its own, and what is said at each command."""

AFTER = {
    "judging": ["log runs/judging", "patterns list --policy playbook", "memory stats"],
    "learning": [
        "log runs/learning",
        "patterns list --domain dish --all",
        "patterns diff runs/learning",
        "memory stats",
    ],
    "studying": ["log runs/studying", "studies list runs/studying", "memory stats"],
}
"""What is looked at where a build was resumed."""

VOLATILE = {"seconds", "latency", "minutes", "when"}
LONG = 200
FEW = {
    "experience",
    "task",
    "split",
    "digest",
    "run",
    "repeat",
    "ending",
    "passed",
    "score",
    "answer",
    "matches",
}
"""Of an attempt in a list."""


def stable(value: Any) -> Any:
    """Without times, and with long texts as digests."""
    if isinstance(value, dict):
        return {key: stable(each) for key, each in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [stable(each) for each in value]
    if isinstance(value, str) and len(value) > LONG:
        return f"{len(value)} characters, SHA-256 {hashlib.sha256(value.encode()).hexdigest()[:16]}"
    return value


def said(place: Place, words: str) -> list[Any]:
    """What a command prints, as far as it holds anywhere and at any time."""
    rows = list(stable(place.type(words)))
    if words.startswith(("traces list", "traces search")):
        rows = [{key: value for key, value in row.items() if key in FEW} for row in rows]
    # an opening of the test split is known by the run folder's path: it counts once more elsewhere
    if words == BENCH:
        rows = [
            {
                **row,
                "cells": [
                    {k: v for k, v in cell.items() if k != "test_openings"} for cell in row["cells"]
                ],
            }
            for row in rows
        ]
        del rows[0]["test_openings"]
    return rows


def resumed(place: Place, run: str) -> dict[str, Any]:
    """How a build ends that was killed. calls: those that were made for it; replies: all that its
    journal holds."""
    folder = f"runs/{run}"
    before = len(place.records(f"{folder}/ledger.jsonl", "settle"))
    (ended,) = said(place, f"resume {folder}")
    return {
        "ended": ended,
        "calls": len(place.records(f"{folder}/ledger.jsonl", "settle")) - before,
        **left(place, run),
    }


def left(place: Place, run: str) -> dict[str, Any]:
    """What a build left in its journal; no call is in it twice."""
    replies = [record["call"] for record in place.records(f"runs/{run}/journal.jsonl", "reply")]
    assert len(replies) == len(set(replies)), "a call whose reply is in the journal was made again"
    attempts = [
        record["attempt"] for record in place.records(f"runs/{run}/journal.jsonl", "experience")
    ]
    return {"replies": sorted(replies), "attempts": sorted(attempts)}


def expected(file: Path, scratch: Path) -> dict[str, Any]:
    """What the code that made it says of the packed workspace."""
    home = scratch / "home"
    looked = unpacked(file, scratch / "looked" / "workspace", home)
    found: dict[str, Any] = {
        "looks": {words: said(looked, words) for words in LOOKS},
        "does": {},
        "resumed": {},
    }
    for n, (what, commands) in enumerate(DOES.items()):
        place = unpacked(file, scratch / f"does-{n}" / "workspace", home)
        found["does"][what] = {words: said(place, words) for words in commands}
    for run, words in KILLED_RUNS.items():
        place = unpacked(file, scratch / f"resumed-{run}" / "workspace", home)
        whole = Place(scratch / f"whole-{run}" / "workspace", home)
        (uninterrupted,) = said(whole, f"resume runs/{run}")
        found["resumed"][run] = {**resumed(place, run), "uninterrupted": uninterrupted}
        assert uninterrupted == found["resumed"][run]["ended"], run
        assert left(whole, run).items() <= found["resumed"][run].items(), run
        found["does"][f"after {run} was resumed"] = {
            words: said(place, words) for words in AFTER[run]
        }
        for key in ("files_digest", "digest", "index"):  # of what took its time just now
            del found["does"][f"after {run} was resumed"]["memory stats"][0][key]
    return found


def told(value: Any) -> str:
    """JSON, a record or an id a line."""
    if isinstance(value, dict) and value:
        return (
            "{\n"
            + ",\n".join(f"{json.dumps(key)}: {told(each)}" for key, each in value.items())
            + "\n}"
        )
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(json.dumps(each, ensure_ascii=False) for each in value) + "\n]"
    return json.dumps(value, ensure_ascii=False)


def main() -> None:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        home, folder = top / "home", top / "made" / "workspace"
        home.mkdir()
        folder.mkdir(parents=True)
        place = made(folder, home)
        settle(place)
        packed(place.folder, target / "old_workspace.tar.gz")
        found = expected(target / "old_workspace.tar.gz", top)
    write(target / "expected.json", told(found) + "\n")


if __name__ == "__main__":
    main()

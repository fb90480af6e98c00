"""A text too large for a line is kept whole in a file of its own, once, and is never passed off for
another."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import Fault
from recreate.api.types import Experience, Grade, Step, Trace
from recreate.memory.codec import LARGE
from recreate.memory.store import ExperienceStore
from tests.memory.test_store import experience, files

HERE = str(Path(__file__).parents[2])
LONG = (
    "first words\n" + "".join(f"line {n}\n" for n in range(20_000)) + "ValueError: the last words"
)
ODD = "NUL \0, a lone \udcff surrogate, \r\n 日本語 עברית हिन्दी 🏴‍☠️ " * 4_000


def long(id: str, text: str = LONG, **given: Any) -> Experience:
    """An attempt whose second step saw what the first one printed."""
    first = Step(step=0, action="run", output=text, status=0)
    return experience(
        id, steps=(first, Step(step=1, observation=text, action="submit", output="")), **given
    )


def blobs(root: Path) -> list[Path]:
    return sorted(root.glob("memory/*/blobs/??/*"))


def test_a_large_text_comes_back_whole_and_is_kept_once(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path)
    trace = Trace(
        attempt="all", task="toy:hand:all", scaffold="s", model="m", answer=LONG + "answer"
    )
    everywhere = experience(
        "all",
        trace=trace,
        grade=Grade(score=0, passed=False, evidence=LONG),
        odd_field=[{"x": ODD}],
    )
    memory.add([long("a"), long("b"), long("odd", ODD), everywhere])
    again = ExperienceStore(tmp_path)
    assert again.get("a") == long("a")
    assert again.get("odd") == long("odd", ODD)
    assert again.get("all") == everywhere
    assert list(again.experiences()) == [long("a"), long("b"), long("odd", ODD), everywhere]
    assert len(blobs(tmp_path)) == 3  # LONG, ODD and the answer
    (file,) = files(tmp_path)
    assert max(map(len, file.read_bytes().splitlines())) < 6 * LARGE
    line = json.loads(file.read_bytes().splitlines()[0])
    assert line["blobs"][0]["at"] == ["trace", "steps", 0, "output"]
    assert line["blobs"][0]["bytes"] == len(LONG)
    kept = line["experience"]["trace"]["steps"][0]["output"]
    assert kept.startswith("first words")
    assert kept.endswith("the last words")
    assert f"{len(LONG):,} bytes" in kept


def test_a_text_at_the_threshold_stays_in_the_line(tmp_path: Path) -> None:
    ExperienceStore(tmp_path).add(
        [long("a", "é" * (LARGE // 2)), long("b", "é" * (LARGE // 2) + "e")]
    )
    assert len(blobs(tmp_path)) == 1
    assert ExperienceStore(tmp_path).get("a") == long("a", "é" * (LARGE // 2))


def test_git_shows_no_blob_and_no_key_is_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "a-secret-value-0123456789"
    monkeypatch.setenv("SOME_API_KEY", key)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    ExperienceStore(tmp_path).add([long("a", LONG + key)])
    (blob,) = blobs(tmp_path)
    assert key.encode() not in blob.read_bytes()
    kept = ExperienceStore(tmp_path).get("a")
    assert kept is not None
    assert kept.trace.steps[0].output == LONG + "[redacted:SOME_API_KEY]"
    status = subprocess.run(
        ["git", "status", "--short"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert status.stdout == ""


def _gone(blob: Path) -> None:
    blob.unlink()


def _flipped(blob: Path) -> None:
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)


def _empty(blob: Path) -> None:
    blob.write_bytes(b"")


def _folder(blob: Path) -> None:
    blob.unlink()
    blob.mkdir()


@pytest.mark.parametrize(
    ("damage", "word"),
    [(_gone, "missing"), (_flipped, "damaged"), (_empty, "damaged"), (_folder, "damaged")],
)
def test_a_lost_text_is_a_note_in_its_place(
    tmp_path: Path, damage: Callable[[Path], None], word: str
) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([long("a"), long("b", LONG + "another")])
    assert memory.stats()["blobs"]["count"] == 2
    hurt = memory.blobs.path(
        "toy", json.loads(files(tmp_path)[0].read_bytes().splitlines()[0])["blobs"][0]["sha256"]
    )
    damage(hurt)
    kept = memory.get("a")
    assert kept is not None
    for text in (kept.trace.steps[0].output, kept.trace.steps[1].observation):
        assert text.startswith(
            f"[{word}: a text of {len(LONG):,} bytes, SHA-256 {hurt.parent.name}{hurt.name}"
        )
        assert "first words" in text
        assert text.endswith("the last words")
    assert kept.trace.steps[0].action == "run"
    assert memory.get("b") == long("b", LONG + "another")
    stats = memory.stats()["blobs"]
    assert (stats["missing"], stats["damaged"]) == ((1, 0) if word == "missing" else (0, 1))
    if damage is not _folder:
        memory.add([long("c")])  # the same text again heals it
        assert memory.get("a") == long("a")


def test_a_reference_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    from recreate.storage import log

    memory = ExperienceStore(tmp_path)
    memory.add([experience("a")])
    (file,) = files(tmp_path)
    (tmp_path / "secret").write_text("s" * 70_000)
    odd: list[Any] = [
        {"at": ["prompt"], "sha256": "../../../../secret", "bytes": 70_000},
        {"at": ["nowhere", 3], "sha256": "0" * 64, "bytes": 1},
        {"at": ["trace", "steps", 9, "output"], "sha256": "0" * 64, "bytes": 1},
        {"at": 7},
        "nonsense",
    ]
    log.Log(file).append({"experience": experience("b").model_dump(mode="json"), "blobs": odd})
    log.Log(file).append({"experience": experience("c").model_dump(mode="json"), "blobs": 3})
    assert memory.get("b") == experience("b")
    assert memory.get("c") == experience("c")


def test_a_full_disk_while_a_blob_is_written_leaves_no_line_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ExperienceStore(tmp_path)
    memory.add([experience("a")])
    (file,) = files(tmp_path)
    before = file.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Fault) as e:
            memory.add([long("b")])
    assert e.value.code == "disk-full"
    assert str(tmp_path / "memory" / "toy" / "blobs") in e.value.message
    assert file.read_bytes() == before
    assert blobs(tmp_path) == []
    memory.add([long("b")])
    assert memory.get("b") == long("b")


WRITER = """
import sys
from pathlib import Path
from tests.memory.test_codec import LONG, long
from recreate.memory.store import ExperienceStore
memory = ExperienceStore(Path(sys.argv[1]), "hashed")
print("ready", flush=True)
for n in range(int(sys.argv[3])):
    memory.add([long(f"both-{n}", LONG + f"shared {n}"), long(f"{sys.argv[2]}-{n}", LONG + \
f"{sys.argv[2]} {n}")])
    if n % 5 == 4:
        memory.recall("the last words", 3)
"""


def writer(root: Path, name: str, n: int) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": HERE}
    command = [sys.executable, "-c", WRITER, str(root), name, str(n)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


@pytest.mark.slow
def test_two_builds_at_once_on_one_workspace_lose_and_double_nothing(tmp_path: Path) -> None:
    running = [writer(tmp_path, name, 10) for name in ("left", "right")]
    for process in running:
        process.communicate()
    assert [p.returncode for p in running] == [0, 0]
    memory = ExperienceStore(tmp_path, "hashed")
    kept = {e.id: e.trace.steps[0].output for e in memory.experiences()}
    assert kept == {
        f"{who}-{n}": LONG + (f"shared {n}" if who == "both" else f"{who} {n}")
        for who in ("left", "right", "both")
        for n in range(10)
    }
    assert memory.stats()["blobs"] | {"bytes": 0} == {
        "count": 30,
        "bytes": 0,
        "missing": 0,
        "damaged": 0,
        "unreferenced": 0,
    }
    assert len(memory.recall("the last words", 90, {"grain": "experience"})) == 30


@pytest.mark.slow
def test_a_writer_killed_with_minus_nine_costs_nothing_that_was_added(tmp_path: Path) -> None:
    for wait in (0.0, 0.05, 0.1, 0.2):
        process = writer(tmp_path, f"w{wait}", 500)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        memory = ExperienceStore(tmp_path, "hashed")
        for e in memory.experiences():
            assert e.trace.steps[0].output.startswith("first words")
        stats = memory.stats()
        assert (stats["damaged_lines"], stats["blobs"]["missing"], stats["blobs"]["damaged"]) == (
            0,
            0,
            0,
        )
        memory.add([long(f"after-{wait}")])
        assert memory.get(f"after-{wait}") == long(f"after-{wait}")
        memory.recall("the last words", 3)


FIFTY = """
import resource, sys
from pathlib import Path
from tests.memory.test_codec import long
from recreate.memory.store import ExperienceStore
text = "begin " + "x y " * (50 * 1024 * 256) + " needle\\nKeyError: the end"
memory = ExperienceStore(Path(sys.argv[1]), "hashed")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
memory.add([long("big", text), long("small", "a volcano")])
added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
hits = memory.recall("KeyError the end", 2, {"error": "KeyError"})
assert hits[0].experience == "big", hits
assert max(len(h.text) for h in hits) < 2_000
assert memory.recall("volcano", 1, {"grain": "step"})[0].experience == "small"
recalled = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert memory.get("big").trace.steps[0].output == text
assert [h.id for h in memory.search("needle")] == ["big/0", "big/1"]
print(added - before, recalled - added)
"""


@pytest.mark.slow
def test_an_observation_of_fifty_megabytes_fills_neither_the_line_nor_the_memory(
    tmp_path: Path,
) -> None:
    env = {**os.environ, "PYTHONPATH": HERE}
    done = subprocess.run(
        [sys.executable, "-c", FIFTY, str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = files(tmp_path)
    assert file.stat().st_size < 200_000
    (blob,) = blobs(tmp_path)
    assert blob.stat().st_size > 50 * 1024 * 1024
    added, recalled = (int(n) for n in done.stdout.split())  # KiB at the highest
    assert added < 200 * 1024
    assert recalled < 200 * 1024

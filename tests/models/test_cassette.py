"""A cassette and a cache of replies by themselves: no build, no command line."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput, Differs, Fault, Refused, Transient
from recreate.api.ports import Price
from recreate.api.types import Call, Reply
from recreate.models.cassette import (
    ABOUT,
    DIFF_LINES,
    LINES,
    PACKED,
    About,
    Answerer,
    Cassette,
    Recording,
    Replayed,
    Request,
    read_about,
)
from recreate.models.reply_cache import ReplyCache, folder_of
from recreate.storage.log import seal, unseal
from tests.pages import ROOT

PRICE = Price(tokens_in=1.0, tokens_out=2.0)
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "What?"}]


def about(run: str = "r", **more: Any) -> About:
    models = {"agent": Answerer(name="m", price=PRICE)}
    return About(
        run=run, command="run", domain="toy", sandbox="none", settings={}, models=models, **more
    )


def call(step: int = 0, **more: Any) -> Call:
    return Call(run="r", attempt="a", step=step, role="agent", phase="train", task="t", **more)


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    """A cassette of two replies, an agent and a grade."""
    recording = Recording(tmp_path / "tape", about())
    recording.agent("seed", "d1", {"a.md": "text"})
    recording.keep("m", ASKED, {"seed": 1}, call(), Reply(text="That."))
    recording.keep(
        "m", [*ASKED, {"role": "user", "content": "Why?"}], {"seed": 1}, call(1), Reply(text="So.")
    )
    recording.grade("x", 0.5, False, key="k")
    recording.end("done", "d1")
    recording.close({"calls": 2})
    return tmp_path / "tape"


def replayed(tape: Path) -> Replayed:
    cassette = Cassette(tape)
    return Replayed(cassette, cassette.about.models["agent"])


# --- recording


def test_what_was_recorded_is_there_packed_and_the_folder_is_free_again(tape: Path) -> None:
    assert sorted(p.name for p in tape.iterdir()) == [ABOUT, PACKED]
    found = read_about(tape)
    raw = gzip.decompress((tape / PACKED).read_bytes())
    assert (found.lines, found.bytes, found.packed) == (
        raw.count(b"\n"),
        len(raw),
        (tape / PACKED).stat().st_size,
    )
    assert (found.cost, found.end) == ({"calls": 2}, {"status": "done", "scaffold": "d1"})
    cassette = Cassette(tape)
    assert cassette.agents == {"d1": ("seed", {"a.md": "text"})}
    assert cassette.renamed == {"k": "x"}


def test_a_text_a_reply_an_agent_and_a_grade_are_written_once(tape: Path) -> None:
    again = Recording(tape, about(), begun=True)  # a run that is resumed tells all of it again
    again.agent("seed", "d1", {"a.md": "text"})
    again.keep("m", ASKED, {"seed": 1}, call(), Reply(text="That."))
    again.grade("x", 0.5, False, key="k")
    before = read_about(tape)
    again.close({"calls": 2})
    again.close()  # twice is once
    after = read_about(tape)
    assert (after.lines, after.end, after.cost) == (
        7,
        {"status": "done", "scaffold": "d1"},
        {"calls": 2},
    )
    assert before.lines is None
    assert not (tape / LINES).exists()


def test_a_call_that_failed_and_is_asked_again_has_its_last_answer(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "tape", about())
    recording.keep("m", ASKED, {}, call(), Fault("it is down", code="down"))
    recording.keep("m", ASKED, {}, call(), Reply(text="That."))
    recording.close()
    assert replayed(tmp_path / "tape").reply(ASKED, call()).text == "That."


def test_a_recording_without_a_reply_leaves_nothing_but_what_lay_there(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "new" / "empty", about())
    recording.agent("seed", "d1", {})
    recording.close()
    recording.close()
    assert not (tmp_path / "new" / "empty").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    Recording(tmp_path / "mine", about()).close()
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(("run", "begun"), [("r", False), ("another", True), ("another", False)])
def test_only_the_run_that_a_cassette_is_of_goes_on_with_it(
    tape: Path, run: str, begun: bool
) -> None:
    packed = (tape / PACKED).read_bytes()
    with pytest.raises(BadInput) as e:
        Recording(tape, about(run), begun=begun)
    assert e.value.code == "cassette-exists"
    assert (tape / PACKED).read_bytes() == packed
    Recording(tape, about(), begun=True).close()  # nobody was left holding it


@pytest.mark.parametrize("lines", [True, False])
def test_a_recording_that_was_killed_before_a_reply_is_begun_anew(
    tmp_path: Path, lines: bool
) -> None:
    first = Recording(tmp_path / "tape", about("first"))
    if lines:
        first.agent("seed", "d1", {})
    os.close(first._held or 0)  # as a kill lets go
    second = Recording(tmp_path / "tape", about("second"))
    second.keep("m", ASKED, {}, call(), Reply(text="That."))
    second.close()
    assert read_about(tmp_path / "tape").run == "second"
    assert Cassette(tmp_path / "tape").agents == {}


def test_what_memory_held_at_the_beginning_stays_said(tmp_path: Path) -> None:
    first = Recording(tmp_path / "tape", about(memory=3))
    first.keep("m", ASKED, {}, call(), Reply(text="That."))
    first.close()
    Recording(tmp_path / "tape", about(memory=9), begun=True).close()
    assert read_about(tmp_path / "tape").memory == 3


KILLED = """
import os, signal, sys
from pathlib import Path
from recreate.api.types import Reply
from recreate.models.cassette import Recording
from tests.models.test_cassette import ASKED, about, call

recording = Recording(Path(sys.argv[1]), about())
for step in range(5):
    recording.keep("m", ASKED, {}, call(step), Reply(text=f"reply {step}"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_while_recording_loses_no_reply_and_the_run_goes_on_with_its_cassette(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tape"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], env=env, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    with (folder / LINES).open("ab") as torn:
        torn.write(b'{"kind":"reply","call":"r/a/5"')  # a line that the kill cut
    again = Recording(folder, about(), begun=True)
    for step in range(6):
        again.keep("m", ASKED, {}, call(step), Reply(text=f"reply {step}"))
    again.close()
    model = replayed(folder)
    assert [model.reply(ASKED, call(step)).text for step in range(6)] == [
        f"reply {step}" for step in range(6)
    ]
    assert read_about(folder).lines == 2 + 6  # the message and the parameters once


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Call it with the name of an `os` function: from then on the disk is full for it."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda name: monkeypatch.setattr(os, name, refuse)


def test_a_disk_that_is_full_while_recording_is_said_and_what_was_recorded_stays(
    tmp_path: Path, full: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tape"
    recording = Recording(folder, about())
    recording.keep("m", ASKED, {}, call(), Reply(text="That."))
    full("write")
    with pytest.raises(Fault, match="No space left") as e:
        recording.keep("m", ASKED, {}, call(1), Reply(text="So."))
    assert (e.value.code, "resume" in e.value.fix) == ("disk", True)
    full("replace")
    with pytest.raises(Fault, match="No space left"):
        recording.close()
    assert not (folder / PACKED).exists()
    recording.close()  # it holds nothing any more
    monkeypatch.undo()
    # the disk has space again, and the run is resumed
    again = Recording(folder, about(), begun=True)
    again.keep("m", ASKED, {}, call(1), Reply(text="So."))
    again.close()
    model = replayed(folder)
    assert [model.reply(ASKED, call(step)).text for step in (0, 1)] == ["That.", "So."]


def test_a_disk_that_is_full_at_the_beginning_leaves_nobody_holding_the_folder(
    tmp_path: Path, full: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    full("replace")
    with pytest.raises(Fault, match="No space left"):
        Recording(tmp_path / "tape", about())
    monkeypatch.undo()
    Recording(tmp_path / "tape", about()).close()


# --- replaying


def test_a_reply_is_found_again_and_again(tape: Path) -> None:
    model = replayed(tape)
    assert [model.reply(ASKED, call(), seed=1, timeout=n).text for n in (1.0, 2.0)] == [
        "That.",
        "That.",
    ]


@pytest.mark.parametrize("last", [True, False])
def test_tries_that_failed_fail_again_in_each_round_and_then_comes_what_came(
    tmp_path: Path, last: bool
) -> None:
    lost = [Transient("busy", code="busy", unspent=True), Transient("cut", code="cut")]
    recording = Recording(tmp_path / "tape", about())
    answer: Any = lost[-1] if last else Reply(text="That.")
    recording.keep("m", ASKED, {}, call(), answer, lost)
    recording.keep("m", ASKED, {}, call(1), Reply(text="So."))
    recording.close()
    model = replayed(tmp_path / "tape")
    for _ in range(2):  # an attempt that is made anew asks anew
        said = []
        for _ in range(2 if last else 3):
            try:
                said.append(model.reply(ASKED, call()).text)
            except Transient as e:
                said.append(f"{e.code} {e.unspent} {e.after:g}")
        assert said == ["busy True 0", "cut False 0", *([] if last else ["That."])]


@pytest.mark.parametrize(
    "error",
    [
        Fault("down", code="down", fix="up", unspent=True),
        Refused("no", code="no-tools"),
        BadInput("bad"),
    ],
)
def test_an_error_is_raised_as_what_it_was(tmp_path: Path, error: BadInput | Fault) -> None:
    recording = Recording(tmp_path / "tape", about())
    recording.keep("m", ASKED, {}, call(), error)
    recording.keep("m", ASKED, {}, call(1), Reply(text="That."))
    recording.close()
    with pytest.raises(type(error)) as e:
        replayed(tmp_path / "tape").reply(ASKED, call())
    assert type(e.value) is type(error)
    assert (e.value.message, e.value.code, e.value.fix) == (error.message, error.code, error.fix)
    assert getattr(e.value, "unspent", None) == getattr(error, "unspent", None)


def test_another_question_is_shown_beside_the_one_that_was_asked(tape: Path) -> None:
    with pytest.raises(Differs) as e:
        replayed(tape).reply([{"role": "user", "content": "Who?"}], call(), seed=1)
    assert "asks something else than was asked at r/a/0 (agent, train, t)" in e.value.message
    assert "-What?\n+Who?" in e.value.message
    assert (e.value.call, e.value.expected is None) == ("r/a/0", False)


def test_of_a_cassette_of_replies_only_the_question_that_is_asked_now_is_shown(
    tmp_path: Path,
) -> None:
    recording = Recording(tmp_path / "tape", about(replies_only=True))
    recording.keep("m", ASKED, {"seed": 1}, call(), Reply(text="That."))
    recording.close()
    model = replayed(tmp_path / "tape")
    assert model.reply(ASKED, call(), seed=1).text == "That."
    with pytest.raises(Differs) as e:
        model.reply([*ASKED, {"role": "user", "content": "Why?"}], call(), seed=1)
    assert "+Why?" in e.value.message
    assert "What?" not in e.value.message, (
        "the message that is the same is not on the cassette either"
    )


LISTED = """total 184
drwxr-xr-x 11 root root    300 Nov 26 16:39 ..
-rw-r--r--  1 me   me   173887 Nov 26 16:39 prices.csv
3 failed, 2 passed in 0.31s
real\t0m4.806s
Thu Nov 26 16:39:02 UTC 2026
<Table object at 0x7f3a9c0b1d50> of /tmp/tmpab12.csv"""
LATER = """total 12
drwxr-xr-x 9 agent users 4096 Dec  1 2027 ..
-rw-r--r-- 1 agent users   99 Dec  1 09:05 prices.csv
3 failed, 2 passed in 12.07 s
real\t1m10.031s
Wed Dec  1 09:05:41 UTC 2027
<Table object at 0x55e0c0b1d9f0> of /tmp/tmpzz.9"""


@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize(
    ("now", "same"),
    [
        (LATER, True),
        (LATER.replace("3 failed", "2 failed"), False),
        (LATER.replace("prices.csv", "price.csv"), False),
        (LATER.replace("drwx", "lrwx"), True),
        (LATER + " ", False),
    ],
)
def test_what_wavers_in_what_a_command_prints_is_the_same_request_and_all_else_is_not(
    tmp_path: Path, only: bool, now: str, same: bool
) -> None:
    def asked(printed: str) -> list[dict[str, Any]]:
        return [
            *ASKED,
            {"role": "user", "content": printed},
            {"role": "tool", "content": json.dumps({"out": printed})},
        ]

    recording = Recording(tmp_path / "tape", about(replies_only=only))
    recording.keep("m", asked(LISTED), {"seed": 1}, call(), Reply(text="That."))
    recording.close()
    model = replayed(tmp_path / "tape")
    if same:
        assert model.reply(asked(now), call(), seed=1).text == "That."
        assert model.cassette.wavered == {"r/a/0"}
        with pytest.raises(Differs):
            model.reply(asked(now), call(), seed=2)
    else:
        with pytest.raises(Differs):
            model.reply(asked(now), call(), seed=1)
        assert not model.cassette.wavered


def test_another_seed_is_said_to_be_one(tape: Path) -> None:
    with pytest.raises(Differs, match="the same words: another seed"):
        replayed(tape).reply(ASKED, call(), seed=2)


def test_of_a_call_that_is_not_there_the_nearest_is_shown_that_of_its_own_phase(
    tmp_path: Path,
) -> None:
    recording = Recording(tmp_path / "tape", about())
    for attempt, phase, words in (
        ("a", "validation", "near"),
        ("b", "train", "far"),
        ("c", "other", "far"),
    ):
        where = call().model_copy(update={"attempt": attempt, "phase": phase})
        recording.keep("m", [{"role": "user", "content": words}], {}, where, Reply(text="."))
    recording.keep("m", [{"role": "user", "content": "step"}], {}, call(1), Reply(text="."))
    recording.close()
    asked = call().model_copy(update={"attempt": "new", "phase": "validation"})
    with pytest.raises(Differs) as e:
        replayed(tmp_path / "tape").reply([{"role": "user", "content": "now"}], asked)
    assert (
        "there the cassette has no call; the nearest one that it has was asked:" in e.value.message
    )
    assert "-near\n+now" in e.value.message
    assert e.value.expected is None
    with pytest.raises(Differs) as e:
        replayed(tmp_path / "tape").reply(ASKED, call(7))
    assert e.value.message.endswith("there the cassette has no call")


def test_a_long_difference_is_cut_to_what_a_person_reads(tape: Path) -> None:
    words = "\n".join(f"line {n} " + "x" * 200 for n in range(40))
    with pytest.raises(Differs) as e:
        replayed(tape).reply([{"role": "user", "content": words}], call(), seed=1)
    lines = e.value.message.split("\n")[1:]
    assert len(lines) == DIFF_LINES + 1
    assert max(map(len, lines)) <= 110
    assert lines[-1].endswith("lines more]")
    short = "\n".join(f"{n}" for n in range(DIFF_LINES - 6))
    with pytest.raises(Differs) as e:
        replayed(tape).reply([{"role": "user", "content": short}], call(), seed=1)
    assert "lines more]" not in e.value.message


def test_memory_and_another_version_are_said_beside_a_difference(tape: Path) -> None:
    record = unseal((tape / ABOUT).read_bytes()) or {}
    (tape / ABOUT).write_bytes(seal({**record, "recreate": "0.0.1", "memory": 4}))
    with pytest.raises(Differs) as e:
        replayed(tape).reply(ASKED, call(), seed=2)
    assert "recorded by recreate 0.0.1" in e.value.message
    assert "memory held 4 experiences then" in e.value.message


def test_a_model_that_had_turned_tools_down_turns_them_down_again(tape: Path) -> None:
    with pytest.raises(Refused) as e:
        replayed(tape).reply(ASKED, call(), seed=1, tools=[{"name": "f"}])
    assert e.value.code == "no-tools"
    with pytest.raises(Differs):  # of a call that was not made nobody knows it
        replayed(tape).reply(ASKED, call(9), seed=1, tools=[{"name": "f"}])


def test_another_grade_or_end_or_agent_than_recorded_is_said(tape: Path) -> None:
    cassette = Cassette(tape)
    cassette.grade("x", 0.5, False)
    cassette.grade("unknown", 1.0, True)
    cassette.end("done", "d1")
    cassette.agent("seed", "d1", {})
    for score, passed in ((0.5, True), (0.6, False)):
        with pytest.raises(Differs, match=f"is graded {score:g} here, and was graded 0.5 when"):
            cassette.grade("x", score, passed)
    with pytest.raises(Differs):
        cassette.end("done", "d2")
    with pytest.raises(BadInput) as e:
        cassette.agent("seed", "d2", {})
    assert e.value.code == "another-scaffold"


def test_one_model_stands_for_both_where_it_was_one_and_the_judge_is_its_own(tape: Path) -> None:
    agent, price, optimizer, other, told = Cassette(tape).models()
    assert agent is optimizer
    assert (price, other) == (PRICE, PRICE)
    assert "2 calls, recorded with m; nothing is asked" in told
    assert Cassette(tape).judge() is None
    record = unseal((tape / ABOUT).read_bytes()) or {}
    two = {**record["models"], "optimizer": {**record["models"]["agent"], "name": "o"}}
    (tape / ABOUT).write_bytes(
        seal({**record, "models": {**two, "judge": record["models"]["agent"]}})
    )
    agent, _, optimizer, _, told = Cassette(tape).models()
    assert (agent.name, optimizer.name) == ("m", "o")
    assert "with m and o" in told
    judged = Cassette(tape).judge()
    assert judged is not None
    assert judged[0].name == "m"


def test_a_reply_of_a_cache_is_served_without_asking_and_no_other(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "tape", about())
    recording.keep("m", ASKED, {}, call(), Reply(text="kept", from_cache=True))
    recording.keep("m", ASKED, {}, call(1), Reply(text="asked"))
    recording.close()
    cassette = Cassette(tmp_path / "tape")
    found = cassette.get("m", ASKED, {}, call())
    assert found is not None
    assert (found.text, found.from_cache) == ("kept", True)
    assert cassette.get("m", ASKED, {}, call(1)) is None
    assert cassette.get("m", [], {}, call()) is None
    assert cassette.get("m", ASKED, {}, call(5)) is None


def test_a_reply_with_two_ends_or_none_is_not_believed(tape: Path) -> None:
    raw = gzip.decompress((tape / PACKED).read_bytes()).splitlines()
    record = unseal((tape / ABOUT).read_bytes()) or {}
    error = {
        "code": "c",
        "message": "m",
        "fix": "",
        "kind": "Fault",
        "last": False,
        "unspent": None,
    }
    for change in ({"error": error}, {"reply": None}):
        lines = [unseal(line) or {} for line in raw]
        for line in lines:
            line.pop("sum", None)
        at = next(n for n, line in enumerate(lines) if line["kind"] == "reply")
        lines[at] |= change
        (tape / LINES).write_bytes(b"".join(seal(line) for line in lines))
        (tape / ABOUT).write_bytes(seal({**record, "lines": None}))
        with pytest.raises(BadInput) as e:
            Cassette(tape)
        assert e.value.code == "damaged"
        assert f"line {at + 1} " in e.value.message


def test_lines_beyond_what_a_cassette_says_are_refused(tape: Path) -> None:
    with (tape / PACKED).open("ab") as out:
        out.write(gzip.compress(seal({"kind": "agent", "name": "n", "digest": "d", "files": {}})))
    with pytest.raises(BadInput, match="more than it says"):
        Cassette(tape)


@pytest.mark.parametrize(
    "change", [{"models": {}}, {"run": None}, {"bytes": -1}, {"packed": 1e300}]
)
def test_what_a_cassette_says_of_itself_must_be_possible(
    tape: Path, change: dict[str, Any]
) -> None:
    record = unseal((tape / ABOUT).read_bytes()) or {}
    (tape / ABOUT).write_bytes(
        seal({k: v for k, v in {**record, **change}.items() if v is not None})
    )
    with pytest.raises(BadInput) as e:
        read_about(tape)
    assert e.value.code == "damaged"


def test_the_first_thing_that_it_lacks_is_named(tape: Path) -> None:
    record = unseal((tape / ABOUT).read_bytes()) or {}
    record.pop("run")
    record.pop("domain")
    (tape / ABOUT).write_bytes(seal(record))
    with pytest.raises(BadInput, match=f"{ABOUT} lacks run\n"):
        read_about(tape)


def test_a_cassette_of_another_version_is_refused_and_one_of_version_1_is_played(
    tape: Path,
) -> None:
    record = unseal((tape / ABOUT).read_bytes()) or {}
    for version, fix in ((2, paths.upgrade()), (0, "record it again"), ("1", "record it again")):
        (tape / ABOUT).write_bytes(seal({**record, "version": version}))
        with pytest.raises(BadInput) as e:
            Cassette(tape)
        assert (e.value.code, fix in e.value.fix) == ("other-version", True)
    (tape / ABOUT).write_bytes(seal({**record, "version": 1}))
    assert replayed(tape).reply(ASKED, call(), seed=1).text == "That."


def test_a_cassette_that_was_cut_or_changed_is_refused(tape: Path) -> None:
    record = unseal((tape / ABOUT).read_bytes()) or {}
    packed = (tape / PACKED).read_bytes()
    lines = gzip.decompress(packed).splitlines(keepends=True)
    changed = [*lines[:-1], seal({"kind": "grade", "attempt": "x", "score": 1.0, "passed": True})]
    longer = {"bytes": len(b"".join(changed))}
    for raw, about, why in (
        (packed[:-9], {}, "cut or edited"),
        (
            gzip.compress(b"".join(lines[:-1])),
            {},
            f"it was cut: {len(lines) - 1} of {len(lines)} lines",
        ),
        (gzip.compress(b"".join(changed)), longer, "not those that were recorded"),
        (gzip.compress(b"".join(lines[:2]) + b"{}\n"), {}, "line 3 was edited"),
    ):
        (tape / PACKED).write_bytes(raw)
        (tape / ABOUT).write_bytes(seal({**record, **about}))
        with pytest.raises(BadInput, match=why) as e:
            Cassette(tape)
        assert e.value.code == "damaged"
    (tape / PACKED).unlink()
    with pytest.raises(BadInput, match="is gone"):
        Cassette(tape)


# --- the cache


def test_a_cache_without_a_folder_lies_where_weights_do_and_another_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))
    assert folder_of("on") == tmp_path / "home" / "replies"
    assert folder_of("~/kept") == Path.home() / "kept"


def test_the_cache_counts_forgets_and_leaves_other_files(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "kept")
    assert cache.size() == (0, 0)
    for step in range(2):
        cache.put("m", ASKED, {"seed": step}, call(), Reply(text="one"))
    (tmp_path / "kept" / "notes").mkdir()
    (tmp_path / "kept" / "notes" / "mine.json").write_text("{}")
    files = list((tmp_path / "kept").glob("??/*.json"))
    assert cache.size() == (2, sum(f.stat().st_size for f in files))
    files[0].with_name("mine.txt").write_text("mine")
    cache.clear()
    assert cache.size() == (0, 0)
    assert sorted(p.name for p in (tmp_path / "kept").rglob("*") if p.is_file()) == [
        "mine.json",
        "mine.txt",
    ]
    assert len([p for p in (tmp_path / "kept").iterdir() if p.is_dir()]) == 2


def test_a_file_is_no_cache_and_a_full_disk_stops_nobody(
    tmp_path: Path, full: Callable[[str], None]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput) as e:
        ReplyCache(tmp_path / "file")
    assert e.value.code == "bad-cache"
    cache = ReplyCache(tmp_path / "kept")
    full("replace")
    cache.put("m", ASKED, {}, call(), Reply(text="one"))
    assert cache.get("m", ASKED, {}, call()) is None


def test_what_differs_in_weights_model_or_parameters_is_another_reply(tmp_path: Path) -> None:
    cache, weights = ReplyCache(tmp_path / "kept"), tmp_path / "weights"
    weights.mkdir()
    (weights / "a.bin").write_bytes(b"1")
    name = f"vllm:{weights}"
    cache.put(name, ASKED, {"seed": 1}, call(), Reply(text="one"))
    found = cache.get(name, ASKED, {"seed": 1}, call())
    assert found is not None
    assert (found.text, found.from_cache) == ("one", True)
    assert cache.get(name, ASKED, {"seed": 2}, call()) is None
    assert cache.get(f"local:{weights}", ASKED, {"seed": 1}, call()) is None
    (weights / "b.bin").write_bytes(b"1")
    assert cache.get(name, ASKED, {"seed": 1}, call()) is None
    cache.put(name, ASKED, {}, call(), Reply(text="two"))
    (weights / "b.bin").write_bytes(b"12")
    assert cache.get(name, ASKED, {}, call()) is None
    script = f"scripted:{weights / 'a.bin'}"
    cache.put(script, ASKED, {}, call(), Reply(text="three"))
    assert cache.get(script, ASKED, {}, call()) is not None
    (weights / "a.bin").write_bytes(b"12")
    assert cache.get(script, ASKED, {}, call()) is None
    cache.put("vllm", ASKED, {}, call(), Reply(text="no weights here"))
    assert cache.get("vllm", ASKED, {}, call()) is not None


def test_a_masked_key_is_no_part_of_a_request() -> None:
    key = "sk-proj-" + "a1B2" * 12
    one, other = (
        Request.of("m", [{"role": "user", "content": f"{k}"}], {}) for k in (key, key[:-4] + "zzzz")
    )
    assert key not in str(one.texts)
    assert one.digest == other.digest

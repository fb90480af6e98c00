"""A run is replayed from its journal, or from what was packed of it: no build, no command line."""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput, Differs, Fault, Refused, Transient
from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply
from recreate.models.replies import Answerer, ModelQuestion
from recreate.runs import recording
from recreate.runs.journal import Journal
from recreate.runs.replay import DIFF_LINES, PACKED, SETTINGS, Replay, Replayed, claim, pack
from recreate.storage.log import seal, unseal

PRICE = Price(tokens_in=1.0, tokens_out=2.0)
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "What?"}]
AGENT = {"agent": Answerer(name="m", price=PRICE).model_dump()}


def call(step: int = 0, **more: Any) -> Call:
    return Call(run="r", attempt="a", step=step, role="agent", phase="train", task="t", **more)


class Run:
    """A run folder whose calls are written by hand."""

    def __init__(self, folder: Path, *, only: bool = False, **start: Any) -> None:
        self.folder = folder
        self.journal = Journal(folder)
        self.journal.open()
        self.journal.listed, self.journal.worded = True, not only
        told = {"run": "r", "command": "run", "domain": "toy", "sandbox": "none", "jobs": 1}
        told |= {"recreate": paths.version(), "models": AGENT, **start}
        self.journal.add("start", **told)

    def keep(
        self,
        messages: Sequence[Message],
        params: dict[str, Any],
        call: Call,
        answer: Reply | BadInput | Fault,
        lost: Sequence[Transient] = (),
    ) -> None:
        self.journal.keep(ModelQuestion("m", messages, params, call), answer, lost)

    def close(self) -> None:
        self.journal.close()

    def model(self) -> Replayed:
        self.close()
        return replayed(self.folder)


def replayed(folder: Path) -> Replayed:
    return Replay(folder).open_models()[0]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two replies, an agent and a grade."""
    run = Run(tmp_path / "run")
    run.journal.add("agent", name="seed", scaffold="d1")
    run.keep(ASKED, {"seed": 1}, call(), Reply(text="That."))
    why = [*ASKED, {"role": "user", "content": "Why?"}]
    run.keep(why, {"seed": 1}, call(1), Reply(text="So."))
    graded = {"split": "train", "repeat": 0, "scaffold": "d1", "score": 0.5, "passed": False}
    run.journal.add(
        "experience", attempt="x", key="k", task="t", phase="train", ending="error", **graded
    )
    run.journal.add("end", status="done", scaffold="d1")
    run.close()
    return tmp_path / "run"


@pytest.fixture
def tape(run: Path, tmp_path: Path) -> Path:
    """The recording of that run."""
    claim(tmp_path / "tape", "r", resumed=False)
    pack(run, tmp_path / "tape", "format = 2\n")
    return tmp_path / "tape"


# --- recording


@pytest.mark.parametrize("which", ["run", "tape"])
def test_a_run_and_its_recording_say_the_same(
    which: str, run: Path, tape: Path, request: pytest.FixtureRequest
) -> None:
    replay = Replay(request.getfixturevalue(which))
    assert (replay.run, replay.calls, replay.agents) == ("r", 2, {"d1": "seed"})
    assert (replay.end["scaffold"], replay.renamed) == ("d1", {"k": "x"})
    assert replay.open_models()[0].reply(ASKED, call(), seed=1).text == "That."
    assert sorted(p.name for p in tape.iterdir()) == [PACKED, SETTINGS]


def test_the_words_of_messages_are_kept_once_and_only_where_a_run_is_recorded(
    tmp_path: Path,
) -> None:
    for only in (False, True):
        run = Run(tmp_path / str(only), only=only)
        for step in range(3):
            run.keep(ASKED, {"seed": step}, call(step), Reply(text="That."))
        run.close()
        text = (tmp_path / str(only) / "journal.jsonl").read_text()
        assert text.count("What?") == (not only)


def test_a_call_that_failed_and_is_asked_again_has_its_last_answer(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.keep(ASKED, {}, call(), Fault("it is down", code="down"))
    run.keep(ASKED, {}, call(), Reply(text="That."))
    assert run.model().reply(ASKED, call()).text == "That."


def test_a_recording_without_a_reply_leaves_nothing_but_what_lay_there(tmp_path: Path) -> None:
    Run(tmp_path / "run").close()
    claim(tmp_path / "new" / "empty", "r", resumed=False)
    pack(tmp_path / "run", tmp_path / "new" / "empty", "")
    assert not (tmp_path / "new" / "empty").exists()
    claim(tmp_path / "other", "r", resumed=False)()
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("run_id", "resumed"), [("r", False), ("another", True), ("another", False)]
)
def test_only_the_run_that_a_recording_is_of_goes_on_with_it(
    tape: Path, run_id: str, resumed: bool
) -> None:
    packed = (tape / PACKED).read_bytes()
    with pytest.raises(BadInput) as e:
        claim(tape, run_id, resumed=resumed)
    assert e.value.code == "cassette-exists"
    assert (tape / PACKED).read_bytes() == packed
    claim(tape, "r", resumed=True)


def test_a_folder_of_something_else_is_not_recorded_into(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="not empty"):
        claim(tmp_path, "r", resumed=True)


def test_a_run_that_was_killed_is_played_up_to_the_line_that_was_cut(run: Path) -> None:
    with (run / "journal.jsonl").open("ab") as torn:
        torn.write(b'{"kind":"reply","call":"r/a/5"')
    assert replayed(run).reply(ASKED, call(), seed=1).text == "That."


def test_a_disk_that_is_full_while_a_run_is_packed_is_said(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    claim(tmp_path / "tape", "r", resumed=False)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(Fault, match="No space left") as e:
        pack(run, tmp_path / "tape", "format = 2\n")
    assert (e.value.code, "resume" in e.value.fix) == ("disk", True)
    monkeypatch.undo()
    pack(run, tmp_path / "tape", "format = 2\n")
    assert replayed(tmp_path / "tape").reply(ASKED, call(), seed=1).text == "That."


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
    run = Run(tmp_path / "run")
    answer: Any = lost[-1] if last else Reply(text="That.")
    run.keep(ASKED, {}, call(), answer, lost)
    run.keep(ASKED, {}, call(1), Reply(text="So."))
    model = run.model()
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
    run = Run(tmp_path / "run")
    run.keep(ASKED, {}, call(), error)
    run.keep(ASKED, {}, call(1), Reply(text="That."))
    run.close()
    with pytest.raises(type(error)) as e:
        replayed(tmp_path / "run").reply(ASKED, call())
    assert type(e.value) is type(error)
    assert (e.value.message, e.value.code, e.value.fix) == (error.message, error.code, error.fix)
    assert getattr(e.value, "unspent", None) == getattr(error, "unspent", None)


def test_another_question_is_shown_beside_the_one_that_was_asked(tape: Path) -> None:
    with pytest.raises(Differs) as e:
        replayed(tape).reply([{"role": "user", "content": "Who?"}], call(), seed=1)
    assert "asks something else than was asked at r/a/0 (agent, train, t)" in e.value.message
    assert "-What?\n+Who?" in e.value.message
    assert (e.value.call, e.value.expected is None) == ("r/a/0", False)


def test_of_a_recording_of_replies_only_the_question_that_is_asked_now_is_shown(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path / "run", only=True)
    run.keep(ASKED, {"seed": 1}, call(), Reply(text="That."))
    model = run.model()
    assert model.reply(ASKED, call(), seed=1).text == "That."
    with pytest.raises(Differs) as e:
        model.reply([*ASKED, {"role": "user", "content": "Why?"}], call(), seed=1)
    assert "+Why?" in e.value.message
    assert "What?" not in e.value.message, (
        "the message that is the same is not on the recording either"
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

    run = Run(tmp_path / "run", only=only)
    run.keep(asked(LISTED), {"seed": 1}, call(), Reply(text="That."))
    model = run.model()
    if same:
        assert model.reply(asked(now), call(), seed=1).text == "That."
        assert model.replay.wavered == {"r/a/0"}
        with pytest.raises(Differs):
            model.reply(asked(now), call(), seed=2)
    else:
        with pytest.raises(Differs):
            model.reply(asked(now), call(), seed=1)
        assert not model.replay.wavered


def test_another_seed_is_said_to_be_one(tape: Path) -> None:
    with pytest.raises(Differs, match="the same words: another seed"):
        replayed(tape).reply(ASKED, call(), seed=2)


def test_of_a_call_that_is_not_there_the_nearest_is_shown_that_of_its_own_phase(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path / "run")
    for attempt, phase, words in (
        ("a", "validation", "near"),
        ("b", "train", "far"),
        ("c", "other", "far"),
    ):
        where = call().model_copy(update={"attempt": attempt, "phase": phase})
        run.keep([{"role": "user", "content": words}], {}, where, Reply(text="."))
    run.keep([{"role": "user", "content": "step"}], {}, call(1), Reply(text="."))
    run.close()
    asked = call().model_copy(update={"attempt": "new", "phase": "validation"})
    with pytest.raises(Differs) as e:
        replayed(tmp_path / "run").reply([{"role": "user", "content": "now"}], asked)
    assert (
        "there the recording has no call; below is the nearest one that it has" in e.value.message
    )
    assert "-near\n+now" in e.value.message
    assert e.value.expected is None
    with pytest.raises(Differs) as e:
        replayed(tmp_path / "run").reply(ASKED, call(7))
    assert e.value.message.endswith("there the recording has no call")


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


def test_memory_and_another_version_are_said_beside_a_difference(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", recreate="0.0.1", memory=4)
    run.keep(ASKED, {"seed": 1}, call(), Reply(text="That."))
    with pytest.raises(Differs) as e:
        run.model().reply(ASKED, call(), seed=2)
    assert "recorded by recreate 0.0.1" in e.value.message
    assert "memory held 4 experiences then" in e.value.message


def test_a_model_that_had_turned_tools_down_turns_them_down_again(tape: Path) -> None:
    with pytest.raises(Refused) as e:
        replayed(tape).reply(ASKED, call(), seed=1, tools=[{"name": "f"}])
    assert e.value.code == "no-tools"
    with pytest.raises(Differs):  # of a call that was not made nobody knows it
        replayed(tape).reply(ASKED, call(9), seed=1, tools=[{"name": "f"}])


def test_another_grade_or_end_or_agent_than_recorded_is_said(tape: Path) -> None:
    replay = Replay(tape)
    replay.check_grade("x", 0.5, False)
    replay.check_grade("unknown", 1.0, True)
    replay.check_end("d1")
    replay.check_agent("seed", "d1")
    for score, passed in ((0.5, True), (0.6, False)):
        with pytest.raises(Differs, match=f"is graded {score:g} here, and was graded 0.5 when"):
            replay.check_grade("x", score, passed)
    with pytest.raises(Differs):
        replay.check_end("d2")
    with pytest.raises(BadInput) as e:
        replay.check_agent("seed", "d2")
    assert e.value.code == "another-scaffold"


def test_one_model_stands_for_both_where_it_was_one_and_the_judge_is_its_own(
    tape: Path, tmp_path: Path
) -> None:
    agent, price, optimizer, other, note = Replay(tape).open_models()
    assert agent is optimizer
    assert (price, other) == (PRICE, PRICE)
    assert "2 calls, recorded with m; nothing is asked" in note
    assert Replay(tape).open_judge() is None
    who = AGENT["agent"]
    run = Run(tmp_path / "two")
    run.journal.add("answerers", models={**AGENT, "optimizer": {**who, "name": "o"}, "judge": who})
    run.close()
    agent, _, optimizer, _, note = Replay(tmp_path / "two").open_models()
    assert (agent.name, optimizer.name) == ("m", "o")
    assert "with m and o" in note
    judged = Replay(tmp_path / "two").open_judge()
    assert judged is not None
    assert judged[0].name == "m"


def test_a_reply_of_a_cache_is_served_without_asking_and_no_other(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.keep(ASKED, {}, call(), Reply(text="kept", from_cache=True))
    run.keep(ASKED, {}, call(1), Reply(text="asked"))
    run.close()
    replay = Replay(tmp_path / "run")
    found = replay.get(ModelQuestion("m", ASKED, {}, call()))
    assert found is not None
    assert (found.text, found.from_cache) == ("kept", True)
    assert replay.get(ModelQuestion("m", ASKED, {}, call(1))) is None
    assert replay.get(ModelQuestion("m", [], {}, call())) is None
    assert replay.get(ModelQuestion("m", ASKED, {}, call(5))) is None


def test_of_two_replies_to_what_differs_in_times_alone_the_last_is_played(tmp_path: Path) -> None:
    """A run that was resumed went on with the last."""
    run = Run(tmp_path / "run")
    for at, text in (("07:36:01", "first"), ("09:31:02", "last")):
        run.keep([{"role": "user", "content": f"ended at {at}"}], {}, call(), Reply(text=text))
    asked = [{"role": "user", "content": "ended at 11:00:00"}]
    assert run.model().reply(asked, call()).text == "last"


def test_a_small_file_that_unpacks_to_more_than_a_run_writes_is_refused_before_it_fills_memory(
    tape: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MOST_LINE", 2**16)
    monkeypatch.setattr(recording, "MOST_BYTES", 2**20)
    lines = gzip.decompress((tape / PACKED).read_bytes())
    for more in (b"x" * 2**17, b"{}\n" * 2**19):
        (tape / PACKED).write_bytes(gzip.compress(more + lines))
        with pytest.raises(BadInput, match=r"unpacks to more|edited or is broken") as e:
            Replay(tape)
        assert e.value.code == "damaged"
    (tape / PACKED).write_bytes(gzip.compress(b"x" * 2**17))
    with pytest.raises(BadInput, match="unpacks to more"):
        recording.read_start(tape)


def test_a_recording_that_was_cut_or_changed_is_refused(tape: Path) -> None:
    packed = (tape / PACKED).read_bytes()
    lines = gzip.decompress(packed).splitlines(keepends=True)
    graded = next(line for line in lines if b'"kind":"experience"' in line)
    record = {k: v for k, v in (unseal(graded) or {}).items() if k != "schema"}
    better = seal({**record, "score": 1.0})
    answered = next(line for line in lines if b'"kind":"reply"' in line)
    for raw, why in (
        (packed[:-9], "cut or edited"),
        (gzip.compress(b"".join(lines[:-1])), "not those that were recorded"),
        (gzip.compress(b"".join(lines).replace(graded, better)), "not those that were recorded"),
        (gzip.compress(b"".join([*lines[:-2], lines[-1]])), "not those that were recorded"),
        (gzip.compress(b"".join([*lines, lines[0]])), "was edited"),
        (gzip.compress(b"".join(lines).replace(answered, b"{}\n")), "was edited"),
    ):
        (tape / PACKED).write_bytes(raw)
        with pytest.raises(BadInput, match=why) as e:
            Replay(tape)
        assert e.value.code == "damaged"
    (tape / PACKED).write_bytes(packed)
    (tape / SETTINGS).write_text("format = 2\nrounds = 9\n")
    with pytest.raises(BadInput, match="not as it was recorded"):
        Replay(tape)
    (tape / PACKED).unlink()
    with pytest.raises(BadInput) as e:
        Replay(tape)
    assert e.value.code == "no-cassette"


def test_a_run_that_does_not_say_who_answered_is_refused(tmp_path: Path) -> None:
    Run(tmp_path / "run", models={}).close()
    with pytest.raises(BadInput, match="how the run began"):
        Replay(tmp_path / "run")

"""What a stranger sealed by hand: journals and ledgers whose lines have right checksums
and wrong contents.

Each line is left out, or shown, or refused in words; nothing that reads a run ends in another
error.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from recreate.agents import scaffold as scaffolds
from recreate.api.errors import BadInput, Differs, Fault, Refused
from recreate.api.paths import shipped
from recreate.api.types import Call
from recreate.models.replies import ModelQuestion, SharedReplies
from recreate.plugins.view import server
from recreate.plugins.view.headlines import Headline
from recreate.plugins.view.site import Website
from recreate.runs.journal import FIELDS, Journal
from recreate.runs.reader import Run
from recreate.runs.replay import Replay
from recreate.runs.results import read_results
from recreate.storage.log import Log, seal
from recreate.viewer import html, markdown
from recreate.viewer.facts import RunFacts

SEED = scaffolds.load(shipped("scaffolds") / "seed")
VERDICT = {
    "before": 0.5,
    "after": 1.0,
    "diff": 0.5,
    "lo": 0.1,
    "hi": 0.9,
    "p": 0.03,
    "tasks": 6,
    "repeats": 1,
    "verdict": "better",
}
EDIT = {"path": "system.md", "new": "Read.", "evidence": [{"experience": "a1", "step": 0}]}
REVISION = {
    "id": "c1",
    "parent": SEED.digest,
    "round": 0,
    "edits": [EDIT],
    "verdict": VERDICT,
    "kept": False,
}
TERMS = {
    "candidate": "c1",
    "parent": SEED.digest,
    "round": 0,
    "of": 1,
    "alpha": 0.04,
    "gain": 0.5,
    "repeats": 1,
    "order": ["t1"],
}
LESSON = {"id": "l", "title": "t", "body": "b"}
ATTEMPT = {"attempt": "a1", "task": "t1", "split": "validation", "passed": True}
BUILD: tuple[dict[str, Any], ...] = (
    {
        "kind": "start",
        "run": "r",
        "model": "m",
        "domain": "d",
        "sandbox": "none",
        "command": "build",
    },
    {"kind": "seed", "name": "seed", "scaffold": SEED.digest, "stood": ""},
    {"kind": "selection", "tasks": ["t1"], "told": []},
    {
        "kind": "batch",
        "round": 0,
        "tasks": ["t1"],
        "repeats": [0],
        "why": ["never tried"],
        "told": "1 train task",
    },
    {"kind": "text", "id": "p", "text": {"temperature": 0.5}},
    {"kind": "created", "attempt": "p0", "edits": []},
    {"kind": "stopped", "attempt": "p9", "why": "no budget"},
    {"kind": "taken", "of": 1, "attempts": []},
    {"kind": "answerers", "models": {"agent": {"name": "m", "price": {"tokens_in": 1.0}}}},
    {
        "kind": "refused",
        "call": "r/a1/1",
        "role": "agent",
        "request": "y",
        "steady": "y",
        "params": "p",
        "error": {"code": "c", "message": "m", "fix": "", "kind": "Fault", "last": False},
    },
    {
        "kind": "reply",
        "call": "r/a1/0",
        "role": "agent",
        "request": "x",
        "steady": "x",
        "params": "p",
        "reply": {"text": "hm", "tokens_out": 2},
    },
    {
        "kind": "experience",
        **ATTEMPT,
        "repeat": 0,
        "scaffold": SEED.digest,
        "score": 1.0,
        "ending": "submitted",
    },
    {"kind": "brought", **ATTEMPT, "attempt": "a3"},
    {
        "kind": "aside",
        "attempt": "a2",
        "task": "t2",
        "repeat": 0,
        "phase": "train",
        "fault": "gone",
    },
    {"kind": "snapshot", "round": 0, "file": "x.json"},
    {"kind": "recallable", "domain": "toy", "file": "y.json", "digest": "d"},
    {"kind": "recalled", "call": "r/a1/0", "query": "how", "text": "so", "found": ["a3"]},
    {
        "kind": "memory",
        "round": 0,
        "policy": "p",
        "changes": [{"kind": "born", "lesson": "l"}],
        "before": [],
        "after": [LESSON],
    },
    {"kind": "proposal", "attempt": "p", "round": 0, "edits": [EDIT]},
    {"kind": "nothing", "round": 0, "reason": "why"},
    {"kind": "trial", "terms": TERMS},
    {
        "kind": "cheaper",
        "agent": "c1",
        "saving": {
            "unit": "usd",
            "before": 2.0,
            "after": 1.0,
            "diff": -1.0,
            "lo": -1.5,
            "hi": -0.5,
            "cheaper": True,
        },
    },
    {"kind": "revision", "revision": REVISION},
    {"kind": "candidate", "offer": 1, "revision": REVISION},
    {
        "kind": "review",
        "offer": 2,
        "revision": "c1",
        "decision": "reject",
        "reason": "no",
        "edited": "",
    },
    {"kind": "note", "text": "n"},
    {"kind": "end", "status": "done", "scaffold": SEED.digest},
)
BENCH: tuple[dict[str, Any], ...] = (
    {"kind": "agent", "name": "seed", "scaffold": SEED.digest},
    {"kind": "cell", "model": "m", "agent": SEED.digest, "split": "validation", "domain": "d"},
    {
        "kind": "kinds",
        "domain": "d",
        "of": [{"kind": "real", "tasks": ["d:1"]}, {"kind": "made", "tasks": ["d:2"]}],
    },
    {
        "kind": "baselines",
        "of": [{"cell": ["m", "a", "validation", "d"], "baseline": ["m", "b", "validation", "d"]}],
    },
    {
        "kind": "arm",
        "arm": "x",
        "model": "m",
        "digest": SEED.digest,
        "mean": 0.5,
        "lo": 0.1,
        "hi": 0.9,
        "n": 2,
    },
    {"kind": "test-opened", "domain": "d", "number": 1, "scaffold": SEED.digest},
    *BUILD[:1],
    *BUILD[4:8],
)
TUNE: tuple[dict[str, Any], ...] = (
    {
        "kind": "tune",
        "name": "grpo",
        "recipe": "r",
        "scaffold": SEED.digest,
        "seed": 0,
        "base": "b",
    },
    *(
        {"kind": "update", "step": n, "reward": n / 4, "kl": 0.1, "entropy": 1.0, "length": 3}
        for n in range(3)
    ),
    {"kind": "end", "status": "stopped", "step": 1, "checkpoint": "c", "why": "kl"},
)
USAGE = {"calls": 1, "tokens_in": 10, "tokens_out": 2, "usd": 0.1, "seconds": 1.0}
LEDGER: tuple[dict[str, Any], ...] = (
    {"kind": "open", "session": 1, "seconds": 0.0},
    {"kind": "attempt", "session": 1, "seconds": 1.0, "attempt": "a1"},
    {"kind": "reserve", "session": 1, "seconds": 1.0, "call": "r/a1/0", "usd": 0.2, "tokens": 50},
    {
        "kind": "settle",
        "session": 1,
        "seconds": 2.0,
        "call": "r/a1/0",
        "role": "agent",
        "phase": "x",
        "usage": USAGE,
    },
    {"kind": "reserve", "session": 1, "seconds": 2.0, "call": "r/a1/1", "usd": 0.2, "tokens": 50},
    {"kind": "session", "session": 1, "seconds": 3.0},
)
RUNS = {"build": BUILD, "bench": BENCH, "tune": TUNE}

DEEP: Any = "deep"
for _ in range(300):
    DEEP = [DEEP]
ODD = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        10**15,
        10**16,
        10**400,
        -(10**400),
        1e308,
        -1e308,
        0.1,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\ud800",
        "../../x",
        "\x1b[31m\u202e",
        "<script>",
        "0" * 5000,
        [],
        [None],
        ["\udfff"],
        [[1]],
        {},
        {"x": 1},
        {"schema": "1"},
        [{"kind": 1}],
        DEEP,
    ]
)
"""What no recreate writes there."""


@st.composite
def spoiled(draw: st.DrawFn, lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines with up to three fields, however deep, gone or in another shape."""
    made = [_copy(line) for line in lines]
    for _ in range(draw(st.integers(1, 3))):
        at: Any = draw(st.sampled_from(made))
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(at[key], dict | list) and at[key] and draw(st.booleans()):
                at = at[key]
                continue
            if draw(st.integers(0, 3)):
                at[key] = _copy(draw(ODD))
            else:
                del at[key]
            break
    return made


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list) and value != DEEP else value


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace with two runs of each kind: one that is spoiled, one that is well."""
    where = tmp_path_factory.mktemp("strange")
    (where / "recreate.toml").write_text("")
    for name, lines in RUNS.items():
        for run in (where / "runs" / name, where / "runs" / f"well-{name}"):
            run.mkdir(parents=True)
            (run / "settings.toml").write_text("")
            if name == "build":
                scaffolds.save(SEED, run / "seed")
            write(run, lines)
            write(run, LEDGER, "ledger.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        yield where


def write(run: Path, lines: Sequence[Mapping[str, Any]], name: str = "journal.jsonl") -> None:
    (run / name).write_bytes(b"".join(map(seal, lines)))


def look(where: Path, name: str) -> None:
    """Read a run in every way there is; every page is shown or says why it is not."""
    folder, site = where / "runs" / name, Website(where)
    site.read_all()
    pages = [
        site.page(address)
        for address in ("/", f"/runs/{name}", f"/runs/{name}/attempts", "/review")
    ]
    assert pages[0].status == 200
    assert pages[0].text.count('<span class="score">') >= 3  # those that are well, at least
    assert "cannot show" not in pages[0].text  # what nobody had foreseen
    pages += [
        site.page(f"/review/{name}"),
        site.page(f"/runs/{name}/attempts/a1"),
        site.page("/lessons"),
    ]
    assert {page.status for page in pages} <= {200, 404, 409}
    for page in pages:
        page.text.encode("utf-8", "backslashreplace")
    server._lines(Log(folder / "journal.jsonl"), 0)
    server._overview(site)
    run = Run(folder)
    run.passed_over(), run.status(), run.excluded(), run.waiting(), run.revisions(), run.cells()
    run.spend().record()
    with suppress(BadInput):  # nothing was measured
        read_results(run, where)
    if "build" in name:
        with suppress(BadInput):  # the files of a revision are not there
            built = RunFacts(run).built
            html.page(run, built)
            markdown.result(RunFacts(run, built), "x")
            markdown.readme(SEED, run, built)
            markdown.report(RunFacts(run, built))
    journal = Journal(folder)
    journal.open()
    journal.close()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_as_it_is_written_is_shown_whole(place: Path, name: str) -> None:
    look(place, f"well-{name}")
    assert Run(place / "runs" / f"well-{name}").passed_over() == ""
    assert {line["kind"] for lines in RUNS.values() for line in lines} >= FIELDS.keys()


def strange(name: str, examples: int) -> Any:
    """Spoils the journal of a run of a kind and its ledger, so many times."""

    @seed(1)
    @settings(max_examples=examples)
    @given(journal=spoiled(RUNS[name]), ledger=spoiled(LEDGER))
    def looked_at(place: Path, journal: list[dict[str, Any]], ledger: list[dict[str, Any]]) -> None:
        write(place / "runs" / name, journal)
        write(place / "runs" / name, ledger, "ledger.jsonl")
        look(place, name)

    return looked_at


@pytest.mark.parametrize("name", RUNS)
def test_no_line_of_a_journal_or_ledger_ends_what_reads_it(place: Path, name: str) -> None:
    strange(name, 10)(place=place)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_of_many_spoiled_journals_none_does(place: Path, name: str) -> None:
    strange(name, 150)(place=place)


@pytest.mark.parametrize(
    ("run", "kind", "field", "value"),
    [
        ("tune", "update", "reward", "high"),
        ("tune", "update", "reward", float("nan")),
        ("bench", "experience", "score", 1e308),
        ("bench", "experience", "score", 10**400),
        ("bench", "arm", "mean", "much"),
        ("build", "experience", "repeat", True),
        ("build", "review", "revision", 5),
    ],
)
def test_a_number_that_is_none_leaves_the_list_readable(
    place: Path, run: str, kind: str, field: str, value: Any
) -> None:
    write(
        place / "runs" / run, [{**r, field: value} if r["kind"] == kind else r for r in RUNS[run]]
    )
    look(place, run)
    damaged = sum(r["kind"] == kind for r in RUNS[run]) * (kind != "update")
    assert f"{damaged} damaged line" in Website(place).page(f"/runs/{run}").text or not damaged
    write(place / "runs" / run, RUNS[run])


def test_a_run_that_cannot_be_shown_leaves_the_others_in_the_list(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scores(facts: RunFacts) -> list[Headline]:
        if facts.run.folder.name == "tune":
            raise ZeroDivisionError("nobody had foreseen it")
        return [Headline("kept", 0.5, None, None)]

    monkeypatch.setattr("recreate.plugins.view.site.score_run", scores)
    site = Website(place)
    site.read_all()
    page = site.page("/")
    assert page.status == 200
    assert "cannot show: ZeroDivisionError: nobody had foreseen it" in page.text
    assert page.text.count('<span class="soft">kept</span>') == 5


def test_a_run_whose_name_is_no_text_is_listed_and_shown(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / os.fsdecode(b"m\xff")
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text("")
    site = Website(tmp_path)
    site.read_all()
    assert "m\\xff" in site.page("/").text
    assert site.page("/runs/m\\xff").status == 200


# -------------------------------------------------------------------------------------------------
# what is replayed

ASKED = {"role": "agent", "request": "q", "steady": "q", "params": "p"}
LOST = {"code": "c", "message": "m", "fix": "f", "unspent": True}
TAPE: tuple[dict[str, Any], ...] = (
    {
        "kind": "start",
        "run": "r",
        "models": {"agent": {"name": "m", "price": {"tokens_in": 1.0, "tokens_out": 1.0}}},
    },
    {"kind": "seed", "name": "seed", "scaffold": SEED.digest},
    {"kind": "text", "id": "p", "text": {"temperature": 0.5}},
    {"kind": "text", "id": "m", "text": {"role": "user", "content": "What?"}},
    {
        "kind": "reply",
        "call": "r/a/0",
        **ASKED,
        "messages": ["m"],
        "lost": [LOST],
        "reply": {
            "text": "That.",
            "tokens_in": 3,
            "tokens_out": 1,
            "tool_calls": [{"id": "i", "name": "n"}],
        },
    },
    {
        "kind": "refused",
        "call": "r/a/1",
        **ASKED,
        "error": {**LOST, "kind": "Fault", "last": False},
    },
)
CALLS = [Call(run="r", attempt="a", step=n, phase="train", task="t") for n in range(3)]


def play(folder: Path, lines: Sequence[Mapping[str, Any]]) -> Replay:
    """Ask a run for all that it has, and for what it has not."""
    write(folder, lines)
    replay = Replay(folder)
    model, *_ = replay.open_models()
    for call in CALLS:
        for _ in range(2):
            with suppress(Differs, Fault, Refused, BadInput):
                model.reply([{"role": "user", "content": "What else?"}], call, temperature=0.5)
        for line in replay._calls.get(call.id, {}).values():
            with suppress(Fault, Refused, BadInput):
                replay.find = lambda question, line=line: line  # type: ignore[method-assign, misc]
                assert model.reply([], call).text
            del replay.find
        replay.get(ModelQuestion("m", [], {}, call))
    with suppress(Differs):
        replay.check_grade("a", 0.5, True)
    with suppress(Differs):
        replay.check_end("x")
    with suppress(BadInput):
        replay.check_agent("seed", SEED.digest)
    return replay


def test_a_run_as_it_is_written_is_played(tmp_path: Path) -> None:
    replay = play(tmp_path, TAPE)
    assert (len(replay._calls), list(replay.agents)) == (2, [SEED.digest])


@seed(1)
@settings(max_examples=200)
@given(lines=spoiled(TAPE))
@pytest.mark.slow
def test_a_run_that_a_stranger_sealed_is_played_or_refused_in_words(
    lines: list[dict[str, Any]],
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="recreate-test-"))
    try:
        with suppress(BadInput):
            play(folder, lines)
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "line",
    [
        {**TAPE[4], "reply": {"text": 5}},
        {**TAPE[4], "lost": [{}]},
        {**TAPE[4], "reply": None},
        {**TAPE[5], "error": "no"},
        {**TAPE[4], "messages": [5]},
        {**TAPE[0], "models": {"agent": {"name": 5}}},
        {**TAPE[1], "scaffold": None},
    ],
)
def test_a_line_of_other_types_is_refused_by_its_number(
    tmp_path: Path, line: dict[str, Any]
) -> None:
    with pytest.raises(BadInput, match="line 1 was edited or is broken") as e:
        play(tmp_path, [line])
    assert e.value.code == "damaged"


@pytest.mark.parametrize(
    "kept", [{"reply": "x"}, {"reply": {"text": 5}}, {"reply": [1]}, {}, {"reply": {"schema": 9}}]
)
def test_a_cached_reply_that_a_stranger_sealed_is_asked_anew(
    tmp_path: Path, kept: dict[str, Any]
) -> None:
    cache, question = SharedReplies(tmp_path), ModelQuestion("m", [], {}, CALLS[0])
    place = cache._file(question)
    place.parent.mkdir()
    place.write_bytes(seal({"kind": "reply", **kept}))
    assert cache.get(question) is None


@pytest.mark.parametrize(
    "record", ["[1]", "5", "null", '{"kind":1', "[" * 100_000, '{"schema":"2"}', '{"schema":null}']
)
def test_what_is_no_record_is_a_damaged_line_whatever_its_checksum(
    tmp_path: Path, record: str
) -> None:
    log = Log(tmp_path / "log.jsonl")
    log.append(seal(record), {"kind": "note", "text": "kept"})
    assert [r["text"] for r in log.read()] == ["kept"]
    assert log.damaged() == 1

"""The viewer's pages of a workspace that was written by hand: no build, no server."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.agents.history import History
from recreate.agents.lesson import headed
from recreate.api.errors import BadInput, Fault
from recreate.api.types import Experience, Gain, Grade, Lesson, Standing, Step, Trace
from recreate.plugins.view import site
from recreate.plugins.view.site import Website
from recreate.runs.attempts import STEPS
from recreate.storage import files
from recreate.storage.log import Log, seal
from tests.plugins.view.test_strange_records import BUILD, EDIT, REVISION, SEED
from tests.viewer.test_html import Tree

START = {
    "kind": "start",
    "run": "r",
    "model": "m",
    "domain": "toy",
    "sandbox": "none",
    "command": "bench",
}


def attempt(
    number: int, task: str, score: float, scaffold: str = "s1", **more: Any
) -> dict[str, Any]:
    record = {
        "kind": "experience",
        "attempt": f"a{number}",
        "task": task,
        "split": "train",
        "passed": score == 1,
    }
    return {
        **record,
        "repeat": 0,
        "scaffold": scaffold,
        "score": score,
        "ending": "submitted",
        **more,
    }


def paid(attempt: str, usd: float, calls: int = 1) -> list[dict[str, Any]]:
    at = {"session": 1, "seconds": 1.0}
    usage = {"calls": calls, "tokens_in": 10, "tokens_out": 2, "usd": usd, "seconds": 1.0}
    return [
        {"kind": "attempt", **at, "attempt": attempt},
        {"kind": "reserve", **at, "call": f"r/{attempt}/0", "usd": 9.0, "tokens": 50},
        {
            "kind": "settle",
            **at,
            "call": f"r/{attempt}/0",
            "role": "agent",
            "phase": "train",
            "usage": usage,
        },
    ]


def write(
    run: Path, journal: Sequence[Mapping[str, Any]], ledger: Sequence[Mapping[str, Any]] = ()
) -> None:
    run.mkdir(parents=True)
    (run / "settings.toml").write_text("")
    for name, lines in (("journal.jsonl", journal), ("ledger.jsonl", ledger)):
        with Log(run / name) as log:
            log.append(*lines)


BENCH = (
    START,
    {"kind": "agent", "name": "first", "scaffold": "s1"},
    {"kind": "agent", "name": "other", "scaffold": "s2"},
    attempt(1, "t1", 1.0),
    attempt(2, "t2", 0.0),
    attempt(3, "t3", 0.5),
    attempt(4, "t1", 1.0, "s2"),
    attempt(5, "t2", 1.0, "s2"),
    attempt(6, "t3", 1.0, "s2"),
    {
        "kind": "aside",
        "attempt": "a7",
        "task": "t4",
        "repeat": 0,
        "phase": "train",
        "fault": "it is gone",
    },
)


@pytest.fixture
def made(tmp_path: Path) -> Website:
    (tmp_path / "recreate.toml").write_text("")
    ledger = [
        line
        for n, usd in ((1, 0.5), (2, 0.25), (3, 0.75), (8, 0.0))
        for line in paid(f"a{n}", usd, n)
    ]
    write(tmp_path / "runs" / "bench", BENCH, ledger)
    return Website(tmp_path)


def test_runs_are_listed_the_one_that_was_last_written_to_first(made: Website) -> None:
    for n, name in enumerate(("older", "newer")):
        write(made.where / "runs" / name, [START])
        os.utime(made.where / "runs" / name / "journal.jsonl", (1e9 + n, 1e9 + n))
    write(made.where / "runs" / "table" / "arms" / "x" / "build", [START])
    os.utime(made.where / "runs" / "table" / "arms" / "x" / "build" / "journal.jsonl", (1e8, 1e8))
    (made.where / "runs" / "no-run").mkdir()
    assert list(made.names()) == ["bench", "newer", "older", "table~arms~x~build"]


def test_a_run_that_is_gone_is_forgotten_and_said(made: Website) -> None:
    made.read_all()
    assert list(made.runs) == ["bench"]
    (made.where / "runs" / "bench" / "settings.toml").unlink()
    with pytest.raises(BadInput) as e:
        made.run("bench")
    assert e.value.code == "no-run"
    assert made.runs == {}
    assert made.page("/runs/bench").status == 404


def test_a_run_that_cannot_be_read_stays_in_the_list_with_its_fault_until_it_can(
    made: Website,
) -> None:
    settings = made.where / "runs" / "bench" / "settings.toml"
    settings.write_text("= no toml")
    made.read_all()
    assert "bench" in made.faults
    assert made._row("bench")["fault"] is made.faults["bench"]
    settings.write_text("")
    made.read_all()
    assert made.faults == {}
    row = made._row("bench")
    assert (row["read"], row["domain"], row["model"], row["kind"]) == (True, "toy", "m", "bench")


def test_the_list_of_runs_is_filtered_by_words_kind_and_status(made: Website) -> None:
    write(
        made.where / "runs" / "tuned",
        [
            START,
            {"kind": "update", "step": 0, "reward": 0.5, "kl": 0.0},
            {"kind": "tune", "name": "g", "recipe": "g", "scaffold": "s", "seed": 0, "base": "b"},
        ],
    )
    made.read_all()

    def shown(**query: str) -> set[str]:
        text = made.page("/", query).text
        return {name for name in ("bench", "tuned") if f'href="/runs/{name}"' in text}

    assert shown() == {"bench", "tuned"}
    assert shown(q="BENCH toy") == {"bench"}
    assert shown(q="bench tuned") == set()
    assert shown(kind="tune") == {"tuned"}
    assert shown(kind="bench", status="done") == set()


def test_a_bench_is_a_matrix_of_agents_and_tasks_with_what_each_cost(made: Website) -> None:
    live = made.run("bench")
    values, _ = made._lay_out(live, live.facts(made.where))
    columns = values["columns"]
    of, first, other = columns[0].of, columns[0].result, columns[1].result
    assert (first.scaffold, first.mean, columns[0].attempts, first.usd, first.tokens) == (
        "first",
        0.5,
        3,
        1.5,
        36,
    )
    assert (other.scaffold, other.mean, other.usd, other.tokens) == ("other", 1.0, 0, 0)
    assert of == {"t1": "a1", "t2": "a2", "t3": "a3"}
    assert values["tasks"] == ["t2", "t3", "t1"]  # what tells agents apart first
    assert (values["more_tasks"], values["level"]) == (0, 90)
    text = Tree(made.page("/runs/bench").text).text
    assert "it is gone" in text


def test_attempts_are_told_with_outcome_and_cost_those_that_run_last(made: Website) -> None:
    rows = {row["attempt"]: row for row in site._attempt_rows(made.run("bench"))}
    assert list(rows) == ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"]
    assert [rows[id]["outcome"] for id in ("a1", "a2", "a7", "a8")] == [
        "passed",
        "failed",
        "excluded",
        "running",
    ]
    assert (rows["a3"]["calls"], rows["a3"]["tokens"], rows["a3"]["usd"]) == (3, 12, 0.75)
    assert (rows["a8"]["calls"], rows["a8"]["tokens"]) == (8, 12)
    assert rows["a4"]["calls"] == 0
    assert (rows["a7"]["ending"], rows["a7"]["split"], rows["a7"]["score"]) == (
        "it is gone",
        "train",
        None,
    )


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({}, "a8 a7 a6 a5 a4 a3 a2 a1"),
        ({"outcome": "failed"}, "a3 a2"),
        ({"scaffold": "s2"}, "a6 a5 a4"),
        ({"q": "T2 submitted"}, "a5 a2"),
        ({"q": "t2 gone"}, ""),
        ({"scaffold": "s1", "sort": "score"}, "a2 a3 a1"),
        ({"scaffold": "s1", "sort": "cost"}, "a3 a1 a2"),
        ({"scaffold": "s1", "sort": "task"}, "a1 a2 a3"),
        ({"split": "test"}, ""),
    ],
)
def test_attempts_are_filtered_and_sorted(made: Website, query: dict[str, str], ids: str) -> None:
    text = made.page("/runs/bench/attempts", query).text
    found = [
        link.rpartition("/")[2]
        for link in Tree(text).all("href")
        if "/runs/bench/attempts/a" in link
    ]
    assert list(dict.fromkeys(found)) == ids.split()


@pytest.mark.parametrize(
    "address",
    [
        "/nowhere",
        "/runs/none",
        "/runs/bench/attempts/zz",
        "/runs/bench/studies/x",
        "/runs/bench/attempts/..",
        "/experiences/zz",
        "/lessons/none",
        "/compare/bench/a/-",
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(made: Website, address: str) -> None:
    assert made.page(address).status == 404


def test_an_attempt_that_runs_has_a_page(made: Website) -> None:
    with Log(made.where / "runs" / "bench" / "attempts" / "a8" / "steps.jsonl") as steps:
        steps.append({"step": 0, "observation": "the task", "reply": "I look", "action": "ls"})
    page = made.page("/runs/bench/attempts/a8")
    assert page.status == 200
    assert "I look" in Tree(page.text).text


def test_nothing_waits_for_a_review_where_nothing_was_offered(made: Website) -> None:
    with pytest.raises(BadInput) as e:
        made.offer("bench")
    assert e.value.code == "nothing-waits"
    assert made.page("/review/bench").status == 409
    assert made.page("/review").status == 200


def test_a_workspace_that_is_gone_is_said(tmp_path: Path) -> None:
    assert Website(tmp_path / "gone").page("/").status == 404
    assert not (tmp_path / "gone").exists()


def test_a_step_is_on_its_page_of_the_trajectory(made: Website) -> None:
    assert made._step("/x", None) == "/x"
    assert made._step("/x", 99) == "/x#step-99"
    assert made._step("/x", 100) == "/x?page=2#step-100"


def test_lessons_are_files_of_policies_and_no_experiences(made: Website) -> None:
    for name in (
        "general/a.md",
        "toy/patterns/b.md",
        "toy/experiences/c.md",
        "index/x/d.md",
        "toy/blobs/e.md",
    ):
        (made.where / "memory" / name).parent.mkdir(parents=True, exist_ok=True)
        (made.where / "memory" / name).write_text("+++\nno header\n")
    assert [path for path, _ in made.lesson_files()] == ["general/a", "toy/patterns/b"]
    assert made._lesson_href("lesson:toy/b") == "/lessons/toy/patterns/b"
    assert made._lesson_href("lesson:other/b") == "/lessons"


def test_one_run_that_cannot_be_shown_does_not_take_the_list_away(
    made: Website, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.read_all()
    monkeypatch.setattr(made, "_told_of", lambda live: 1 / 0)
    fault = made._row("bench")["fault"]
    assert fault.code == "unshown"
    assert "ZeroDivisionError" in fault.message
    assert made.page("/").status == 200


def test_of_a_wide_bench_500_tasks_are_shown_and_the_rest_is_counted(made: Website) -> None:
    rows = [attempt(n, f"t{n}", 1.0) for n in range(501)]
    write(
        made.where / "runs" / "wide",
        [START, {"kind": "agent", "name": "first", "scaffold": "s1"}, *rows],
    )
    live = made.run("wide")
    values, _ = made._lay_out(live, live.facts(made.where))
    assert (len(values["tasks"]), values["more_tasks"]) == (500, 1)


def test_beside_an_attempt_of_no_known_task_no_other_is_shown(made: Website) -> None:
    links = Tree(made.page("/runs/bench/attempts/a8").text).all("href")
    assert not any("/attempts/a1" in link or "/compare/" in link for link in links)


def test_reading_ahead_ends_and_the_search_is_up_to_date(made: Website) -> None:
    reading = made.read_ahead()
    reading.join(30)
    assert not reading.is_alive()
    assert made.indexing is None
    assert list(made.runs) == ["bench"]


def test_a_long_trajectory_has_pages_and_one_that_runs_is_followed(made: Website) -> None:
    with Log(made.where / "runs" / "bench" / "attempts" / "a8" / "steps.jsonl") as steps:
        steps.append(
            *(
                {"step": n, "observation": "", "reply": f"reply {n}.", "action": "ls"}
                for n in range(150)
            )
        )
    first, last = (made.page("/runs/bench/attempts/a8", {"page": page}).text for page in ("1", "9"))
    assert "reply 99." in first
    assert "reply 100." not in first
    assert "reply 149." in last
    assert "reply 99." not in last
    assert "page=2" in first
    assert "page=3" not in first
    assert "/events?run=bench&amp;attempt=a8" in first


def test_lessons_are_listed_by_standing(made: Website) -> None:
    folder = made.where / "memory" / "toy" / "patterns"
    folder.mkdir(parents=True)
    standings: tuple[Standing, ...] = (
        "vetoed",
        "forgotten",
        "merged",
        "quarantined",
        "candidate",
        "active",
    )
    for n, status in enumerate(standings):
        lesson = Lesson(
            id=f"l{n}", title=f"the {status} one", body="b", scope="domain", status=status
        )
        (folder / f"l{n}.md").write_text(headed(lesson))
    text = Tree(made.page("/lessons").text).text
    assert "toy/patterns 6" in text
    places = [text.index(f"the {status} one") for status in standings]
    assert places == sorted(places, reverse=True)


# --- attempts that ended, a build, a training: written by hand


def ended(
    run: Path, id: str, task: str, steps: int = 1, lesson: str = "", **more: Any
) -> Experience:
    """An attempt's folder, as it is when it has ended."""
    each = [
        Step(
            step=n,
            observation=f"saw {n}.",
            reply=f"reply {n}.",
            action="ls",
            offered=(lesson,) * bool(lesson),
        )
        for n in range(steps)
    ]
    grade = Grade(score=1.0, passed=True, evidence=f"the grader on {id}")
    trace = Trace(
        attempt=id, task=task, scaffold="s1", model="m", steps=tuple(each), answer=f"answer of {id}"
    )
    facts: dict[str, Any] = {
        "domain": "toy",
        "group": task,
        "split": "train",
        "prompt": f"Do {task}.",
        "digest": "s1",
    }
    e = Experience(id=id, task=task, trace=trace, grade=grade, **{**facts, **more})
    record = e.model_dump(mode="json", exclude={"trace": {"steps"}}) | {STEPS: steps}
    with Log(run / "attempts" / id / "steps.jsonl") as log:
        log.append(*(step.model_dump(mode="json") for step in each))
    (run / "attempts" / id / "experience.json").write_bytes(seal(record))
    return e


def text_of(made: Website, address: str, **query: str) -> str:
    page = made.page(address, query)
    assert page.status == 200, Tree(page.text).text
    return Tree(page.text).text


def test_an_attempt_that_ended_is_shown_with_its_grade_and_the_others_at_its_task(
    made: Website,
) -> None:
    bench = made.where / "runs" / "bench"
    (made.where / "memory" / "toy" / "patterns").mkdir(parents=True)
    lesson = Lesson(id="l1", title="T", body="b", scope="domain", status="active")
    (made.where / "memory" / "toy" / "patterns" / "l1.md").write_text(headed(lesson))
    ended(bench, "a1", "t1", lesson="l1", foreign={"system": "You are one."})
    page = made.page("/runs/bench/attempts/a1").text
    text = Tree(page).text
    for words in (
        "Do t1.",
        "saw 0.",
        "reply 0.",
        "the grader on a1",
        "answer of a1",
        "You are one. ",
        "1 other attempt at",
    ):
        assert words in text
    links = Tree(page).all("href")
    assert {
        "/runs/bench/attempts/a4",
        "/compare/bench/a1/bench/a4",
        "/lessons/toy/patterns/l1",
    } <= set(links)
    assert "/events" not in page  # nothing more comes
    messages = text_of(made, "/runs/bench/attempts/a1/messages")
    assert "system You are one." in messages
    assert "reply 0." in messages
    assert "another conversation" not in messages


def test_an_attempt_that_runs_or_was_excluded_has_no_grade(made: Website) -> None:
    (made.where / "runs" / "bench" / "attempts" / "a7").mkdir(parents=True)
    for id in ("a7", "a8"):
        e, live, over = made._experience("bench", id)
        assert (over, live is not None, e.grade.graded, e.grade.passed, e.grade.score) == (
            False,
            True,
            False,
            False,
            0,
        )
    e, *_ = made._experience("bench", "a7")
    assert (e.task, e.trace.fault) == ("t4", "it is gone")


def test_an_attempt_of_memory_is_shown_though_its_run_is_gone(made: Website) -> None:
    for n in range(33):
        made.memory.add([ended(made.where / "elsewhere", f"b{n}", "t1")])
    text = text_of(made, "/experiences/b0")
    assert "the grader on b0" in text
    assert "30 other attempts at" in text
    assert "reply 0." in text_of(made, "/experiences/b0/messages")
    # of a run that has it no more
    assert "the grader on b1" in text_of(made, "/compare/-/b0/bench/b1")
    found = made.page("/search", {"q": "saw"}).text
    assert "25 best places" in Tree(found).text
    assert any(
        link.startswith("/experiences/b") and link.endswith("#step-0")
        for link in Tree(found).all("href")
    )
    assert "33 attempts" in text_of(made, "/search", task="t1")
    assert "0 attempts" in text_of(made, "/search", task="t1", outcome="failed")
    assert "33 attempts, 33 steps" in text_of(made, "/search")


def test_two_attempts_are_compared_by_their_first_200_steps(made: Website) -> None:
    bench = made.where / "runs" / "bench"
    ended(bench, "a1", "t1", steps=203)
    ended(bench, "a4", "t1")
    text = text_of(made, "/compare/bench/a1/bench/a4")
    assert "3 later steps of a1" in text
    assert "reply 199." in text
    assert "reply 200." not in text
    assert "later steps of a4" not in text
    assert {"/runs/bench/attempts/a1", "/runs/bench/attempts/a4"} <= set(
        Tree(made.page("/compare/bench/a1/bench/a4").text).all("href")
    )


def test_what_is_cited_leads_to_where_it_is(made: Website) -> None:
    ended(made.where / "runs" / "bench", "a1", "t1")
    made.memory.add([ended(made.where / "elsewhere", "b1", "t1")])
    made.memory.metadata.refresh()
    cite = made._cite("bench", made.run("bench"))
    assert cite("a1", 0) == "/runs/bench/attempts/a1#step-0"
    assert cite("b1", 100) == "/experiences/b1?page=2#step-100"
    assert [cite(id) for id in ("zz", "../a1", "")] == ["", "", ""]


def test_a_run_tells_what_ended_what_it_cost_and_while_it_goes_on_what_runs(made: Website) -> None:
    with Log(made.where / "runs" / "bench" / "journal.jsonl") as journal:
        journal.append(*({"kind": "note", "text": f"note {n}."} for n in range(21)))
    text = text_of(made, "/runs/bench")
    assert "4 train passed" in text
    assert "2 train failed" in text
    assert "$1.50 14 calls, 48 tokens" in text
    assert "note 0." not in text
    assert "note 1." in text
    assert "Running now" not in text
    held = files.lock(made.where / "runs" / "bench" / "lock", wait=False)
    assert held is not None
    with os.fdopen(held):
        assert "Running now: a8 " in text_of(made, "/runs/bench")
        assert made._row("bench")["status"] == "running"


def test_a_row_of_the_list_keeps_up_with_its_run(made: Website) -> None:
    assert made._row("bench")["read"] is False
    made.read_all()
    row = made._row("bench")
    assert (dict(row["attempts"]), row["waiting"], row["damaged"], row["spend"].total.usd) == (
        {"train": 6},
        False,
        0,
        1.5,
    )
    assert made._row("bench") == row
    with Log(made.where / "runs" / "bench" / "journal.jsonl") as journal:
        journal.append(attempt(9, "t9", 1.0))
    assert dict(made._row("bench")["attempts"]) == {"train": 7}


def scores(made: Website, name: str, *journal: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    write(made.where / "runs" / name, [START, *journal])
    made.read_all()
    return [(s.name, s.mean) for s in made._row(name)["scores"]]


def test_the_list_shows_of_each_kind_of_run_what_it_is_about(made: Website) -> None:
    agents = [attempt(n, "t", 1.0, f"0123456789{n}") for n in range(7)]
    assert scores(
        made, "agents", {"kind": "agent", "name": "n", "scaffold": "01234567890"}, *agents
    ) == [
        ("n, train", 1.0),
        *[("01234567, train", 1.0)] * 5,
    ]
    arm = {"kind": "arm", "arm": "mine", "model": "m", "digest": "01234567890"}
    assert scores(made, "arms", arm, agents[0]) == [("mine, train", 1.0)]
    updates = [{"kind": "update", "step": n, "reward": n / 2} for n in range(3)]
    assert scores(made, "tune", *updates) == [("reward, step 3", 1.0)]


def test_an_attempt_that_was_brought_from_elsewhere_is_listed_though_little_is_told_of_it(
    made: Website,
) -> None:
    brought = {"kind": "brought", "attempt": "b1", "task": "t", "split": "train", "passed": False}
    write(made.where / "runs" / "build", [START, brought])
    (row,) = site._attempt_rows(made.run("build"))
    assert [row[key] for key in ("outcome", "repeat", "score", "scaffold", "ending")] == [
        "failed",
        0,
        None,
        "",
        "",
    ]


def test_a_training_is_a_curve_of_what_can_be_drawn(made: Website) -> None:
    rewards, tune = (
        [0.25, float("nan"), 0.75],
        {"kind": "tune", "name": "g", "recipe": "g", "scaffold": "s"},
    )
    updates = [{"kind": "update", "step": n, "reward": reward} for n, reward in enumerate(rewards)]
    write(made.where / "runs" / "tuned", [START, {**tune, "seed": 0, "base": "b"}, *updates])
    text = text_of(made, "/runs/tuned")
    assert "Over 3 training steps" in text
    assert "mean reward : 0.25 → 0.75" in text
    assert "KL to the reference" not in text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Fault("the disk", code="disk"), 500),
        (OSError("gone"), 404),
        (BadInput("a run", code="no-run"), 404),
        (BadInput("odd", code="odd"), 409),
    ],
)
def test_what_cannot_be_shown_is_a_page_that_says_why(
    made: Website, error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise error

    monkeypatch.setattr(made, "_queue", broken)
    page = made.page("/review")
    assert page.status == status
    text = Tree(page.text).text
    assert str(error) in text
    assert ("Not here" in text) == (status == 404)
    assert "it changed while it was read" in text or not isinstance(error, OSError)


def test_while_the_index_is_made_a_search_says_how_far_it_is(
    made: Website, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []

    def recall(*_: Any, **__: Any) -> Any:
        for done in (None, (3, 10)):
            if done:
                made._note_progress(*done)
            said.append(text_of(made, "/search", q="word"))
        raise Fault("no index today")

    monkeypatch.setattr(made.memory, "recall", recall)
    made._read_ahead()
    assert ["runs are being read" in said[0], "3 of 10 experiences are indexed" in said[1]] == [
        True,
        True,
    ]
    made._note_progress(4, 10)  # nobody waits any more
    assert made.indexing is None


def test_indexing_waits_until_nobody_looks_at_a_page(
    made: Website, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
    )
    monkeypatch.setattr(site, "time", clock)
    monkeypatch.setattr(made.memory, "recall", lambda *_, **__: [])
    made.page("/")
    made._read_ahead()
    assert 101.0 <= now[0] < 101.2
    made.page("/search")  # who searches waits for the index
    made._read_ahead()
    assert now[0] < 101.2


def test_runs_are_read_ahead_once_at_a_time(made: Website, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = threading.Event(), []
    monkeypatch.setattr(made, "_read_ahead", lambda: begun.append(1) or gate.wait(30))
    first = made.read_ahead()
    assert made.read_ahead() is first
    assert first.daemon  # a server that ends does not wait for it
    gate.set()
    first.join(30)
    made.read_ahead().join(30)
    assert len(begun) == 2


def test_a_lesson_tells_what_runs_made_of_it(made: Website) -> None:
    folder = made.where / "memory" / "toy" / "patterns"
    folder.mkdir(parents=True)
    gains = tuple(Gain(experience=f"e{n}", group=f"g{n}", diff=0.5) for n in range(4))
    lesson = Lesson(
        id="l1",
        title="Look first",
        body="b",
        scope="domain",
        status="active",
        gains=gains,
        groups=("g",),
    )
    (folder / "l1.md").write_text(headed(lesson))
    (folder / "broken.md").write_text("+++\nno header\n")
    change = {"kind": "born", "lesson": "l1", "why": "it failed"}
    others = {"kind": "memory", "policy": "p", "before": [], "after": []}
    write(
        made.where / "runs" / "learned",
        [
            START,
            {**others, "round": 1, "changes": [change, {**change, "lesson": "l2", "why": "x"}]},
        ],
    )
    text = text_of(made, "/lessons/toy/patterns/l1")
    assert "learned round 2: born it failed" in text
    assert text.count("born") == 1
    assert "seen in 1 group of tasks; 4 re-runs with and without it: +0.50" in text
    assert "Its gain is +0.500" in text
    rows = text_of(made, "/lessons")
    assert rows.index("Look first") < rows.index("toy/patterns/broken")
    assert made.page("/lessons/toy/patterns/broken").status == 409


@pytest.fixture
def asked(made: Website) -> Website:
    """With the build `b`, which asks a person about a candidate that adds a file."""
    run = made.where / "runs" / "b"
    child = SEED.model_copy(update={"files": {**SEED.files, "notes.md": "new\n"}})
    evidence = [{"experience": "a1", "step": n} for n in (0, 1)]  # the second is not there
    revision = {
        **REVISION,
        "id": child.digest,
        "edits": [{**EDIT, "path": "notes.md", "evidence": evidence}],
    }
    past = [
        {
            "kind": "review",
            "offer": n,
            "revision": "c",
            "decision": "reject",
            "reason": f"past {n}.",
            "edited": "",
        }
        for n in range(51)
    ]
    write(run, [*BUILD, *past, {"kind": "candidate", "offer": 99, "revision": revision}])
    scaffolds.save(SEED, run / "seed")
    history = History(run / "scaffold.git")
    history.commit(SEED, None, True, "start")
    history.commit(child, SEED.digest, True, "candidate", "review")
    ended(run, "a1", "t1", split="validation")
    return made


def test_a_candidate_that_waits_is_shown_with_its_change_and_what_it_cites(asked: Website) -> None:
    text = text_of(asked, "/review/b")
    for words in ("Would be kept", "notes.md", "reply 0.", "a1 step 0", "Accept, and go on"):
        assert words in text
    assert text.count("a1 step 0 reply 0.") == 1
    queue = text_of(asked, "/review")
    assert "1 candidate waits" in queue
    assert queue.index("past 50.") < queue.index("past 2.")
    assert "past 0." not in queue
    asked.read_all()
    row = asked._row("b")
    assert (row["waiting"], row["kind"], [s.name for s in row["scores"]]) == (
        True,
        "build",
        ["seed"],
    )
    home = asked.page("/").text
    assert "/review/b" in home
    assert "A candidate waits for you." in text_of(asked, "/runs/b")
    page = asked.page("/runs/b/attempts/a1").text
    assert "cited 3×" in page
    assert "cited by revision 1, edit 1" in page
    asked.static = True
    assert "/review/b" not in asked.page("/lessons").text

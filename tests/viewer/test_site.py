"""The viewer's pages of a workspace that was written by hand: no build, no server."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.lesson import headed
from recreate.api.errors import BadInput
from recreate.api.types import Lesson, Standing
from recreate.storage.log import Log
from recreate.viewer import site
from recreate.viewer.site import Website
from tests.viewer.test_html import Tree

START = {"kind": "start", "run": "r", "model": "m", "domain": "toy", "sandbox": "none", "command": "bench"}


def attempt(number: int, task: str, score: float, scaffold: str = "s1", **more: Any) -> dict[str, Any]:
    record = {"kind": "experience", "attempt": f"a{number}", "task": task, "split": "train", "passed": score == 1}
    return {**record, "repeat": 0, "scaffold": scaffold, "score": score, "ending": "submitted", **more}


def paid(attempt: str, usd: float, calls: int = 1) -> list[dict[str, Any]]:
    at = {"session": 1, "seconds": 1.0}
    usage = {"calls": calls, "tokens_in": 10, "tokens_out": 2, "usd": usd, "seconds": 1.0}
    return [
        {"kind": "attempt", **at, "attempt": attempt},
        {"kind": "reserve", **at, "call": f"r/{attempt}/0", "usd": 9.0, "tokens": 50},
        {"kind": "settle", **at, "call": f"r/{attempt}/0", "role": "agent", "phase": "train", "usage": usage},
    ]


def write(run: Path, journal: Sequence[Mapping[str, Any]], ledger: Sequence[Mapping[str, Any]] = ()) -> None:
    run.mkdir(parents=True)
    (run / "settings.toml").write_text("")
    for name, lines in (("journal.jsonl", journal), ("ledger.jsonl", ledger)):
        with Log(run / name) as log:
            log.append(*lines)


BENCH = (
    START,
    {"kind": "agent", "name": "first", "scaffold": "s1"},
    {"kind": "agent", "name": "other", "scaffold": "s2"},
    attempt(1, "t1", 1.0), attempt(2, "t2", 0.0), attempt(3, "t3", 0.5),
    attempt(4, "t1", 1.0, "s2"), attempt(5, "t2", 1.0, "s2"), attempt(6, "t3", 1.0, "s2"),
    {"kind": "aside", "attempt": "a7", "task": "t4", "repeat": 0, "phase": "train", "fault": "it is gone"},
)  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> Website:
    (tmp_path / "recreate.toml").write_text("")
    ledger = [line for n, usd in ((1, 0.5), (2, 0.25), (3, 0.75), (8, 0.0)) for line in paid(f"a{n}", usd, n)]
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


def test_a_run_that_cannot_be_read_stays_in_the_list_with_its_fault_until_it_can(made: Website) -> None:
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
    write(made.where / "runs" / "tuned", [START, {"kind": "update", "step": 0, "reward": 0.5, "kl": 0.0},
        {"kind": "tune", "name": "g", "recipe": "g", "scaffold": "s", "seed": 0, "base": "b"}])  # fmt: skip
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
    facts, _ = made._measured(made.run("bench"))
    first, other = facts["columns"]
    assert (first["agent"], first["mean"], first["attempts"], first["usd"], first["tokens"]) == (
        "first", 0.5, 3, 1.5, 36,
    )  # fmt: skip
    assert (other["agent"], other["mean"], other["usd"], other["tokens"]) == ("other", 1.0, 0, 0)
    assert first["of"] == {"t1": "a1", "t2": "a2", "t3": "a3"}
    assert facts["tasks"] == ["t2", "t3", "t1"]  # what tells agents apart first
    assert (facts["more_tasks"], facts["level"]) == (0, 90)
    text = Tree(made.page("/runs/bench").text).text
    assert "it is gone" in text


def test_attempts_are_told_with_outcome_and_cost_those_that_run_last(made: Website) -> None:
    rows = {row["attempt"]: row for row in site._attempt_rows(made.run("bench"))}
    assert list(rows) == ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"]
    assert [rows[id]["outcome"] for id in ("a1", "a2", "a7", "a8")] == ["passed", "failed", "excluded", "running"]
    assert (rows["a3"]["calls"], rows["a3"]["tokens"], rows["a3"]["usd"]) == (3, 12, 0.75)
    assert (rows["a8"]["calls"], rows["a8"]["tokens"]) == (8, 12)
    assert rows["a4"]["calls"] == 0
    assert (rows["a7"]["ending"], rows["a7"]["split"], rows["a7"]["score"]) == ("it is gone", "train", None)


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
    found = [link.rpartition("/")[2] for link in Tree(text).all("href") if "/runs/bench/attempts/a" in link]
    assert list(dict.fromkeys(found)) == ids.split()


@pytest.mark.parametrize("address", ["/nowhere", "/runs/none", "/runs/bench/attempts/zz", "/runs/bench/studies/x",
    "/runs/bench/attempts/..", "/experiences/zz", "/lessons/none", "/compare/bench/a/-"])  # fmt: skip
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
    for name in ("general/a.md", "toy/patterns/b.md", "toy/experiences/c.md", "index/x/d.md", "toy/blobs/e.md"):
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
    write(made.where / "runs" / "wide", [START, {"kind": "agent", "name": "first", "scaffold": "s1"}, *rows])
    facts, _ = made._measured(made.run("wide"))
    assert (len(facts["tasks"]), facts["more_tasks"]) == (500, 1)


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
        steps.append(*({"step": n, "observation": "", "reply": f"reply {n}.", "action": "ls"} for n in range(150)))
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
    standings: tuple[Standing, ...] = ("vetoed", "forgotten", "merged", "quarantined", "candidate", "active")
    for n, status in enumerate(standings):
        lesson = Lesson(id=f"l{n}", title=f"the {status} one", body="b", scope="domain", status=status)
        (folder / f"l{n}.md").write_text(headed(lesson))
    text = Tree(made.page("/lessons").text).text
    places = [text.index(f"the {status} one") for status in standings]
    assert places == sorted(places, reverse=True)

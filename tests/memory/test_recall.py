"""Recall finds by meaning; its index is never believed over the files: missing, stale or broken, it
is remade."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput, Missing
from recreate.api.ports import Memory
from recreate.api.types import Grade, Lesson, Step
from recreate.lessons.store import LessonStore
from recreate.memory import embedders, index
from recreate.memory.embedders.hashed import Hashed
from recreate.memory.index.text import Text
from recreate.memory.index.vectors import PROCESS, ChromaVectors
from recreate.memory.store import ExperienceStore
from tests.memory.test_store import experience

ATTEMPTED = {
    "quotes": (
        "The CSV reader drops the closing quotation mark",
        "ValueError: unterminated quoted field",
    ),
    "dates": (
        "Leap days are parsed as the first of March",
        "AssertionError: 2024-03-01 != 2024-02-29",
    ),
    "width": ("The column width of emoji is one cell too small", "AssertionError: 1 != 2"),
    "retry": ("A dropped connection is not tried again", "ConnectionResetError: peer hung up"),
}


def fill(memory: ExperienceStore) -> None:
    for id, (prompt, output) in ATTEMPTED.items():
        step = Step(
            step=3,
            observation="",
            action=f"python -m pytest tests/test_{id}.py",
            output=output,
            status=1,
        )
        grade = Grade(score=0.0, passed=id == "dates", evidence="")
        memory.add([experience(id, prompt=prompt, steps=(step,), grade=grade)])


@pytest.fixture
def memory(tmp_path: Path) -> ExperienceStore:
    made = ExperienceStore(tmp_path, "hashed")
    fill(made)
    return made


def watched(does: Callable[..., list[int]], lengths: list[int]) -> Callable[..., list[int]]:
    def watching(*given: Any) -> list[int]:
        lengths.append(len(found := does(*given)))
        return found

    return watching


def first(memory: Memory, query: str, **filters: Any) -> str:
    return memory.recall(query, 1, filters, "optimizer")[0].id


def test_the_nearest_come_first_with_their_grain_step_and_facts(memory: ExperienceStore) -> None:
    assert isinstance(memory.recall("x"), list)
    hits = memory.recall("the csv reader and its quotation marks", 8)
    assert hits[0].id == "quotes"
    assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)
    (step,) = memory.recall("unterminated quoted field", 1, {"grain": "step"})
    assert (step.id, step.experience, step.step, step.grain, step.split) == (
        "quotes/0",
        "quotes",
        3,
        "step",
        "train",
    )
    assert step.facts["error"] == "ValueError"
    assert "unterminated quoted field" in step.text


def test_facts_narrow_what_is_found(memory: ExperienceStore) -> None:
    memory.add([experience("far", domain="other", prompt="csv quotation mark")])
    assert first(memory, "csv quotation", domain="other", grain="experience") == "far"
    assert first(memory, "csv quotation", outcome="passed", grain="experience") == "dates"
    assert first(memory, "csv quotation", error="ConnectionResetError") == "retry/0"
    assert (
        first(memory, "csv quotation", group=["module-width", "module-none"], grain="experience")
        == "width"
    )
    assert {h.experience for h in memory.recall("csv quotation", 9, {"experience": "retry"})} == {
        "retry"
    }
    assert memory.recall("csv", 5, {"model": "another"}) == []
    with pytest.raises(BadInput, match="no grain"):
        memory.recall("csv", 5, {"grain": "word"})
    with pytest.raises(BadInput, match="at least 1"):
        memory.recall("csv", 0)


@pytest.mark.slow
def test_one_match_among_many_is_found_under_a_narrow_filter(memory: ExperienceStore) -> None:
    memory.add([experience(f"e{n}", prompt=f"csv reader {n}") for n in range(400)])
    hits = memory.recall("csv reader", 8, {"task": "toy:hand:retry"})
    assert [h.experience for h in hits] == ["retry"]
    steps = memory.recall("csv reader", 8, {"task": "toy:hand:retry", "grain": "step"})
    assert [h.id for h in steps] == ["retry/0"]


@pytest.mark.slow
def test_a_match_is_found_where_chroma_gives_fewer_than_it_is_asked_for(
    memory: ExperienceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add([experience(f"e{n}", prompt=f"csv reader {n}") for n in range(400)])
    asking = ChromaVectors.asking

    @contextmanager
    def fewer(
        self: ChromaVectors, db: Any, name: str, vector: Any, n: int, among: Any = None
    ) -> Any:
        with asking(self, db, name, vector, n, among) as answer:
            yield answer if among is not None else lambda: answer()[:300]

    monkeypatch.setattr(ChromaVectors, "asking", fewer)
    assert [h.experience for h in memory.recall("csv reader", 8, {"task": "toy:hand:retry"})] == [
        "retry"
    ]


@pytest.mark.slow
def test_few_are_asked_for_and_the_best_that_matches_is_found_however_rare_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ExperienceStore(tmp_path, "hashed")
    for n in range(60):
        tool, file = ("grep", "sed", "pytest")[n % 3], f"src/part{n % 20}.py"
        step = Step(
            step=n % 7,
            observation=f"w{n}",
            action=f"{tool} w{n * 5 % 60} {file}",
            output="KeyError: 'w1'" if n % 30 == 4 else f"w{n * 11 % 60}",
            status=0,
        )
        id, grade = f"e{n}", Grade(score=0.0, passed=n % 2 == 0, evidence=f"w{n * 13 % 60}")
        made = experience(id, prompt=f"w{n} w{n * 7 % 60}", steps=(step,), grade=grade)
        memory.add([made.model_copy(update={"task": f"toy:made:{n % 30}", "run": f"run-{n % 8}"})])
    listed = list[int]()
    monkeypatch.setattr(Text, "matching", watched(Text.matching, listed))
    monkeypatch.setattr(index, "WIDER", 3)  # as if there were thousands
    wanted: list[dict[str, Any]] = [
        {"task": "toy:made:7"},
        {"run": "run-3", "outcome": "passed"},
        {"error": "KeyError"},
        {"file": "part9.py"},
        {"file": "src/part9.py", "tool": "grep"},
        {"tool": "grep"},
        {"grain": "step", "file": "part4.py"},
        {"grain": "step", "error": "KeyError", "tool": ["sed", "pytest"]},
        {"task": "toy:made:4", "tool": "sed"},
        {"grain": "experience", "task": "toy:made:9"},
        {"grain": "lesson"},
        {"file": "part4.py", "error": "TypeError"},
    ]
    for asked in (f"w{n}" for n in range(0, 60, 5)):
        for filters in wanted:
            best = memory.recall(asked, 60, filters, "human", "vectors")
            found = memory.recall(asked, 1, filters, "human", "vectors")
            assert [hit.score for hit in found] == [hit.score for hit in best][:1], (asked, filters)
    assert any(0 < n < 10 for n in listed)  # the last resort was asked as well


def test_what_is_added_later_is_found(memory: ExperienceStore, tmp_path: Path) -> None:
    assert first(memory, "volcano") != "new"
    ExperienceStore(tmp_path).add([experience("new", prompt="volcano")])
    assert first(memory, "volcano", grain="experience") == "new"


def test_what_is_gone_from_the_files_is_not_found(memory: ExperienceStore, tmp_path: Path) -> None:
    memory.add([experience("other-run", run="run-2", prompt="volcano")])
    assert first(memory, "volcano", grain="experience") == "other-run"
    (tmp_path / "memory" / "toy" / "experiences" / "run-2.jsonl").unlink()
    assert "other-run" not in {h.experience for h in memory.recall("volcano", 20)}
    assert memory.stats()["index"]["count"] == 8


def index_files(root: Path) -> list[Path]:
    return sorted(
        p for p in (root / "memory" / "index").rglob("*") if p.is_file() and p.name != ".gitignore"
    )


def in_a_new_process(root: Path, query: str) -> str:
    code = (
        "import sys; from pathlib import Path; from recreate.memory.store import ExperienceStore\n"
        "print(ExperienceStore(Path(sys.argv[1]), 'hashed').recall(sys.argv[2], 1)[0].id)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(root), query],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def garble(file: Path, how: str) -> None:
    data = file.read_bytes()
    if how == "garbage":
        file.write_bytes(os.urandom(len(data)))
    elif how == "middle":
        half = len(data) // 2
        file.write_bytes(
            data[:half] + os.urandom(min(4096, len(data) - half)) + data[half + 4096 :]
        )
    elif how == "cut":
        file.write_bytes(data[: len(data) // 2])
    else:
        file.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["garbage", "middle", "cut", "gone"])
def test_a_broken_index_file_is_noticed_and_made_again(
    memory: ExperienceStore, tmp_path: Path, how: str
) -> None:
    before = memory.recall("leap days in March", 8)
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "memory" / "index", whole)
    names = [p.relative_to(tmp_path / "memory" / "index") for p in index_files(tmp_path)]
    assert {n.name for n in names} >= {"memory.sqlite", "chroma.sqlite3"}
    for name in names:
        root = tmp_path / "one" / name.name
        shutil.copytree(tmp_path / "memory", root / "memory")
        garble(root / "memory" / "index" / name, how)
        assert ExperienceStore(root, "hashed").recall("leap days in March", 8) == before, name
    shutil.rmtree(tmp_path / "one")


@pytest.mark.slow
def test_an_index_broken_while_it_is_open_is_noticed(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    before = memory.recall("leap days", 8)
    PROCESS.end()
    for file in index_files(tmp_path):
        file.write_bytes(os.urandom(file.stat().st_size))
    assert memory.recall("leap days", 8) == before


def test_what_others_set_for_chroma_does_not_reach_the_index(
    memory: ExperienceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text(
        "CHROMA_API_IMPL=chromadb.api.fastapi.FastAPI\nALLOW_RESET=maybe\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHROMA_API_IMPL", "chromadb.api.fastapi.FastAPI")
    assert first(memory, "leap days", grain="experience") == "dates"


@pytest.mark.slow
def test_a_deleted_index_comes_back_in_this_process_and_in_a_new_one(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    before = memory.recall("leap days", 8)
    shutil.rmtree(tmp_path / "memory" / "index")
    assert memory.recall("leap days", 8) == before
    shutil.rmtree(tmp_path / "memory" / "index")
    assert in_a_new_process(tmp_path, "leap days") == before[0].id


def test_an_index_of_other_files_is_not_believed(memory: ExperienceStore, tmp_path: Path) -> None:
    other = ExperienceStore(tmp_path / "other", "hashed")
    other.add([experience(id, prompt="volcano") for id in ATTEMPTED])  # the same ids, another life
    other.recall("volcano")
    memory.recall("volcano")
    shutil.rmtree(tmp_path / "memory" / "index")
    shutil.copytree(tmp_path / "other" / "memory" / "index", tmp_path / "memory" / "index")
    hits = ExperienceStore(tmp_path, "hashed").recall("leap days", 8)
    assert hits[0].experience == "dates"
    assert not any("volcano" in h.text for h in hits)


def test_a_write_that_was_killed_half_way_is_made_good(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    before = memory.recall("leap days", 8, how="vectors")
    memory.add([experience(f"e{n}", prompt=f"volcano {n}") for n in range(200)])
    calls: list[int] = []

    def stop(done: int, todo: int) -> None:
        calls.append(done)
        raise KeyboardInterrupt

    memory.progress = stop
    with pytest.raises(KeyboardInterrupt):
        memory.recall("leap days")
    assert calls
    memory.progress = None
    after = memory.recall("leap days", 2, {"grain": "experience"}, how="vectors")
    assert after[0] == next(h for h in before if h.id == "dates")
    assert memory.stats()["index"]["count"] == 8 + 200 * 3


KILLED = """
import os, sys
from pathlib import Path
from recreate.memory.index import vectors
from recreate.memory.index.text import Text
from recreate.memory.store import ExperienceStore
what, left = sys.argv[2], int(sys.argv[3])
def dying(work):
    def call(*given, **named):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), 9)
        return work(*given, **named)
    return call
if what == "text":
    Text.put_documents = dying(Text.put_documents)  # in the middle of a transaction
else:
    vectors.set_meta = dying(vectors.set_meta)  # before vectors are written, and after
ExperienceStore(Path(sys.argv[1]), "hashed").recall("leap days")
"""


@pytest.mark.parametrize(("what", "at"), [("text", 10), ("vectors", 1), ("vectors", 2)])
@pytest.mark.slow
def test_a_process_killed_while_it_writes_the_index_costs_nothing(
    memory: ExperienceStore, tmp_path: Path, what: str, at: int
) -> None:
    memory.recall("leap days")
    memory.close()
    memory.add([experience(f"e{n}", prompt=f"volcano {n}") for n in range(20)])
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), what, str(at)], check=False, env=env
    )
    assert ran.returncode == -9
    assert first(memory, "volcano 7", grain="experience") == "e7"
    assert memory.stats()["index"]["count"] == 8 + 20 * 3


FORKED = """
import os, signal, sys, threading
from pathlib import Path
from recreate.memory.store import ExperienceStore
memory = ExperienceStore(Path(sys.argv[1]), sys.argv[2])
before = [h.id for h in memory.recall("leap days", 4)]
child = os.fork()
if not child:
    signal.alarm(60)
    again = [h.id for h in memory.recall("leap days", 4)]
    os._exit(again != before or threading.active_count() > 1)
assert [h.id for h in memory.recall("leap days", 4)] == before
assert os.waitpid(child, 0)[1] == 0
assert [h.id for h in memory.recall("leap days", 4)] == before
"""


class Slow(Hashed):
    """Embeds a passage only when it is let."""

    def __init__(self) -> None:
        super().__init__(64)
        self.let = threading.Event()

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        if kind == "passage":
            assert self.let.wait(60)
        return super().embed(texts, kind)


def test_who_asks_by_words_never_waits_for_vectors_and_who_asks_by_both_is_told_what_is_missing(
    tmp_path: Path,
) -> None:
    embedder, told = Slow(), list[str]()
    memory = ExperienceStore(tmp_path, embedder, note=told.append, patience=0.05)
    fill(memory)
    assert memory.recall("emoji width", 1)[0].experience == "width"
    assert "4 of 4 experiences and lessons have no vector yet" in told[0]
    assert memory.recall("emoji width", 1, how="keywords")[0].experience == "width"
    assert (
        ExperienceStore(tmp_path, embedder).recall("leap days", 1, how="keywords")[0].experience
        == "dates"
    )
    assert len(told) == 1
    embedder.let.set()
    memory.patience = 60
    assert len(memory.recall("emoji width", 9, how="vectors")) == 4
    assert len(told) == 1
    memory.close()


def test_an_embedder_that_fails_behind_is_named_at_the_next_question(tmp_path: Path) -> None:
    class Bad(Slow):
        def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
            return [[1.0]] if kind == "passage" else super().embed(texts, kind)

    memory = ExperienceStore(tmp_path, Bad(), patience=30)
    fill(memory)
    with pytest.raises(BadInput, match="hashed"):
        memory.recall("x")
    memory.close()


@pytest.mark.slow
def test_another_process_writes_and_this_one_sees_it(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    memory.recall("warm")
    memory.add([experience(f"e{n}", prompt=f"volcano number {n}") for n in range(30)])
    assert in_a_new_process(tmp_path, "leap days parsed") == "dates"
    mine = memory.recall("volcano number 17", 1, {"grain": "experience"})
    assert mine[0].id == "e17"
    memory.add([experience("mine", prompt="glacier")])
    memory.recall("glacier")
    assert in_a_new_process(tmp_path, "glacier") == "mine"
    assert first(memory, "volcano number 29", grain="experience") == "e29"


@pytest.mark.slow
def test_two_processes_recall_at_once(memory: ExperienceStore, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\nfrom tests.memory.test_store import experience; from"
        " recreate.memory.store import ExperienceStore\nm = ExperienceStore(Path(sys.argv[1]),"
        " 'hashed')\nfor n in range(4):\n    m.add([experience(f'{sys.argv[2]}{n}',"
        " prompt=f'{sys.argv[2]} marker {n}')])\n    hit = m.recall(f'{sys.argv[2]} marker {n}', 1,"
        " {'grain': 'experience'})[0]\n    assert hit.id == f'{sys.argv[2]}{n}', hit\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name], env=env)
        for name in ("volcano", "glacier")
    ]
    assert [p.wait() for p in running] == [0, 0]
    assert first(memory, "glacier marker 3", grain="experience") == "glacier3"
    assert memory.stats()["index"]["count"] == 8 + 8 * 3


class Counting(Hashed):
    """Counts the texts it is given."""

    def __init__(self, name: str = "counting-1", dimensions: int = 64) -> None:
        super().__init__(dimensions)
        self.name = name
        self.passages = 0

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        self.passages += len(texts) if kind == "passage" else 0
        return super().embed(texts, kind)


def test_another_embedder_embeds_everything_again_and_the_first_is_not_paid_twice(
    tmp_path: Path,
) -> None:
    one, two = Counting("one"), Counting("two", 128)
    memory = ExperienceStore(tmp_path, one)
    fill(memory)
    memory.recall("leap days")
    assert memory.stats()["index"]["embedder"] == "one"
    other = ExperienceStore(tmp_path, two)
    assert first(other, "leap days", grain="experience") == "dates"
    assert other.stats()["index"] | {"digest": ""} == {
        "embedder": "two",
        "dimensions": 128,
        "count": 8,
        "digest": "",
    }
    assert (one.passages, two.passages) == (4, 4)
    memory.recall("leap days")
    assert memory.stats()["index"]["embedder"] == "one"
    assert one.passages == 4


def test_rebuild_gives_the_same_index_and_pays_for_no_vector_twice(tmp_path: Path) -> None:
    embedder = Counting()
    memory = ExperienceStore(tmp_path, embedder)
    fill(memory)
    memory.recall("x", reader="human")
    before, paid, told = memory.stats(), embedder.passages, list[tuple[int, int]]()
    assert memory.rebuild(lambda done, todo: told.append((done, todo))) == before
    assert before["digest"]
    assert embedder.passages == paid
    assert told[-1] == (4, 4)


@pytest.mark.parametrize("wrong", [[[1.0]], [], [[float("nan")] * 64]])
def test_an_embedder_that_breaks_its_word_is_named(
    tmp_path: Path, wrong: list[list[float]]
) -> None:
    class Bad(Counting):
        def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
            return wrong

    memory = ExperienceStore(tmp_path, Bad("bad-one"))
    fill(memory)
    with pytest.raises(BadInput, match="bad-one"):
        memory.recall("x")


def test_without_chromadb_vectors_lie_in_the_file_and_are_compared_one_by_one(
    memory: ExperienceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = [{}, {"task": "toy:hand:retry"}, {"grain": "step"}]
    before = [memory.recall("leap days", 8, wanted, how="vectors") for wanted in asked]
    monkeypatch.setitem(sys.modules, "chromadb", None)
    without = ExperienceStore(tmp_path, "hashed")
    found = [without.recall("leap days", 8, wanted, how="vectors") for wanted in asked]
    assert [[h.id for h in hits] for hits in found] == [[h.id for h in hits] for hits in before]
    without.add([experience("later", prompt="leap days")])
    assert without.recall("leap days", 8, how="vectors")[0].id == "later"
    monkeypatch.undo()
    assert memory.recall("leap days", 8, how="vectors")[0].id == "later"


def test_without_chromadb_and_numpy_words_are_compared_and_a_note_says_so(
    memory: ExperienceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, told = memory.recall("leap days", 8, how="keywords"), list[str]()
    for package in ("chromadb", "numpy"):
        monkeypatch.setitem(sys.modules, package, None)
    without = ExperienceStore(tmp_path, "hashed", note=told.append)
    assert [h.id for h in without.recall("leap days", 8)] == [h.id for h in before]
    assert len(told) == 1
    assert paths.install("memory") in told[0]
    with pytest.raises(Missing, match="chromadb"):
        without.recall("leap days", 8, how="vectors")
    monkeypatch.undo()
    assert ExperienceStore(tmp_path, "hashed").recall("leap days", 8, how="vectors")


def test_without_a_model_words_are_compared_and_a_note_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "recreate")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert embedders.default_embedder().name.startswith("hashed")
    assert paths.install("memory") in caplog.text


def test_a_pattern_and_its_general_twin_with_the_same_words_are_one_hit(tmp_path: Path) -> None:
    memory, folder = ExperienceStore(tmp_path, "hashed"), tmp_path / "memory"
    twin = Lesson(
        id="a", title="Call the xylophone", body="First.", scope="domain", status="active"
    )
    LessonStore(folder, "toy").write({}, {"a": twin})
    general = twin.model_copy(update={"id": "b", "scope": "general"})
    other = twin.model_copy(update={"id": "c", "status": "quarantined"})
    LessonStore(folder, "toy").write({}, {"b": general, "c": other})
    hits = memory.recall("xylophone", 8, how="keywords")
    assert sorted(hit.facts["status"] for hit in hits) == ["active", "quarantined"]

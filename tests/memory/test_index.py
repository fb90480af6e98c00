"""Recall by words, by meaning and by both, under every filter; and an index that is kept up piece by piece."""

from __future__ import annotations

import itertools
import json
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recreate.agents.trajectory import files, tools
from recreate.api.errors import BadInput, Missing
from recreate.api.types import Grade, Step, Trace
from recreate.memory.embedders.hashed import Hashed
from recreate.memory.index import kept as index
from recreate.memory.index import segments
from recreate.memory.index.chroma import Chroma
from recreate.memory.index.scan import Scan
from recreate.memory.store import ExperienceStore
from tests.memory.test_store import experience, task


def tried(id: str, action: str, output: str, **given: Any) -> Any:
    return experience(
        id, prompt=given.pop("prompt", "a task"), steps=(Step(step=0, action=action, output=output),), **given
    )


@pytest.fixture
def memory(tmp_path: Path) -> ExperienceStore:
    made = ExperienceStore(tmp_path, "hashed")
    quiet = Grade(score=0.0, passed=False, evidence="")
    made.add(
        [
            tried("width", "python -m pytest tests/test_width.py::test_tab | tail -3", "KeyError: 'tab'", grade=quiet),
            tried("quote", "sed -i 's/a;b/c/' src/csv/reader.py && grep -rn 'x | y' .", "", passed=True),
            tried(
                "date",
                "cat <<'EOF' > out.py\nmake all\nEOF\n./build.sh",
                "ValueError: leap 日付が間違っている",
                grade=quiet,
            ),
            tried("camel", "ls", "parseHeader is called with /srv/app/src/csv/reader.py", grade=quiet),
        ]
    )
    return made


def found(memory: ExperienceStore, query: str, how: str = "keywords", **wanted: Any) -> list[str]:
    wanted.setdefault("grain", "step")
    return [h.experience for h in memory.recall(query, 9, wanted, "optimizer", how)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("KeyError: 'tab'", "width"),
        ("test_width.py::test_tab", "width"),
        ("TEST_TAB", "width"),
        ("parse header", "camel"),
        ("parseheader", "camel"),
        ("日付", "date"),
        ("間違", "date"),
        ("sed src/csv/reader.py", "quote"),
    ],
)
def test_names_errors_and_any_script_are_found_by_word(memory: ExperienceStore, query: str, expected: str) -> None:
    assert found(memory, query)[0] == expected
    assert found(memory, query, "hybrid")[0] == expected


def test_what_shares_no_word_is_not_found_by_word(memory: ExperienceStore) -> None:
    assert found(memory, "glacier") == []
    assert found(memory, "?!") == []
    assert len(found(memory, "glacier", "vectors")) == len(found(memory, "glacier", "hybrid")) == 4


def test_scores_fall_within_a_question_whichever_way_it_is_asked(memory: ExperienceStore) -> None:
    for how in ("keywords", "vectors", "hybrid"):
        scores = [h.score for h in memory.recall("reader csv KeyError", 9, how=how)]
        assert scores == sorted(scores, reverse=True)
        assert scores
    both = memory.recall("KeyError tab", 1, {"grain": "step"})[0]
    assert both.score == pytest.approx(2 / 61, abs=1e-6)
    with pytest.raises(BadInput, match="no way 'magic'") as e:
        memory.recall("x", how="magic")
    assert "keywords" in e.value.fix


def test_words_need_no_embedder(tmp_path: Path) -> None:
    class Never(Hashed):
        def embed(self, texts: Any, kind: str = "passage") -> Any:
            raise AssertionError("asked for a vector")

    memory = ExperienceStore(tmp_path, Never())
    memory.add([tried("a", "ls", "volcano")])
    assert found(memory, "volcano") == ["a"]
    assert memory.stats()["index"]["count"] == 2
    other = ExperienceStore(tmp_path, "hashed")
    assert found(other, "volcano", "vectors") == ["a"]
    assert other.stats()["index"]["count"] == 2


def test_programs_and_tools_filter(memory: ExperienceStore) -> None:
    assert set(found(memory, "a", "hybrid", tool="pytest")) == {"width"}
    assert set(found(memory, "a", "hybrid", tool=["grep", "build.sh"])) == {"quote", "date"}
    assert found(memory, "a", "hybrid", tool="make") == []  # it stands in a file that is written, and is not run
    assert set(found(memory, "a", "hybrid", tool="pytest", grain="experience")) == {"width"}
    assert [r["id"] for r in memory.facts({"tool": "tail"})] == ["width"]
    (hit,) = memory.recall("a", 9, {"tool": "sed", "grain": "step"})
    assert hit.facts["tool"] == ["sed", "grep"]


def test_files_filter_by_their_name_or_the_end_of_their_path(memory: ExperienceStore) -> None:
    assert set(found(memory, "a", "hybrid", file="reader.py")) == {"quote", "camel"}
    assert set(found(memory, "a", "hybrid", file="./csv/reader.py")) == {"quote", "camel"}
    assert set(found(memory, "a", "hybrid", file="/srv/app/src/csv/reader.py")) == {"camel"}
    assert found(memory, "a", "hybrid", file="eader.py") == []
    assert set(found(memory, "a", "hybrid", file=["test_width.py", "nothing.py"])) == {"width"}
    assert [h.experience for h in memory.search("parseheader", {"file": "reader.py", "grain": "step"})] == ["camel"]


def test_time_filters_by_what_the_line_or_the_experience_says(memory: ExperienceStore, tmp_path: Path) -> None:
    memory.add(
        [
            tried("old", "ls", "volcano", when="2025-03-01T12:00:00Z"),
            tried("new", "ls", "volcano", when=1777000000),
        ]
    )
    assert set(found(memory, "volcano", since="2025-03-01", until="2025-03-02")) == {"old"}
    assert set(found(memory, "volcano", since="2025-03-01T12:00:01Z", until="2026-06-01")) == {"new"}
    assert "width" in found(memory, "KeyError", since="2026-06-01")  # recorded now
    assert [r["id"] for r in memory.facts({"until": "2025-12-31"})] == ["old"]
    with pytest.raises(BadInput, match="since is a moment") as e:
        memory.recall("x", 1, {"since": "yesterday"})
    assert "2026-11-01" in e.value.fix
    (file,) = tmp_path.glob("memory/toy/experiences/*.jsonl")
    assert json.loads(file.read_bytes().splitlines()[0])["when"].endswith("Z")


def test_when_something_was_recorded_changes_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for name, second in (("one", "2026-01-01T00:00:00Z"), ("two", "2026-01-02T00:00:00Z")):
        monkeypatch.setattr("recreate.memory.codec.now", lambda second=second: second)
        made = ExperienceStore(tmp_path / name, "hashed")
        made.add([experience("a")])
        made.recall("x")
        digests.append((made.stats()["digest"], made.stats()["files_digest"], made.get("a")))
    assert digests[0] == digests[1]


def test_every_filter_and_way_keeps_what_is_held_out_unseen(memory: ExperienceStore) -> None:
    secret = {"prompt": "zebra", "when": "2025-01-01"}
    memory.add([tried("open", "zebra-tool x", "ZebraError zebra.py", **secret)])
    memory.add([tried("held", "zebra-tool x", "ZebraError zebra.py", **secret)])
    memory.add([tried("test", "zebra-tool x", "ZebraError zebra.py", split="test", **secret)])
    filters: list[dict[str, Any]] = [
        {}, {"tool": "zebra-tool"}, {"file": "zebra.py"}, {"error": "ZebraError"}, {"until": "2025-02-01"},
        {"experience": ["open", "held", "test"]}, {"split": ["train", "test"]}, {"group": "module-held"},
    ]  # fmt: skip
    memory.recall("zebra", reader="human")
    memory.hold_out([task("x", "test", group="module-held")])
    for reader in ("optimizer", "agent"):
        for how in ("keywords", "vectors", "hybrid"):
            for wanted in filters:
                seen = {h.experience for h in memory.recall("zebra ZebraError zebra.py", 50, wanted, reader, how)}
                assert not seen & {"held", "test"}, (how, wanted)
        assert {r["id"] for r in memory.facts({"tool": "zebra-tool"}, reader)} == {"open"}
    assert {h.experience for h in memory.recall("zebra", 50, {"tool": "zebra-tool"}, "human")} == {
        "open",
        "held",
        "test",
    }


def many(n: int) -> list[Any]:
    return [
        tried(f"e{i}", f"tool{i % 7} file{i % 5}.py", f"number n{i} volcano{i % 3}", run=f"r{i % 2}") for i in range(n)
    ]


def test_an_index_that_grew_by_pieces_answers_as_one_made_at_once(tmp_path: Path) -> None:
    grown, made = ExperienceStore(tmp_path / "grown", "hashed"), ExperienceStore(tmp_path / "made", "hashed")
    for e in many(150):
        grown.add([e])
        grown.catch_up()
    made.add(many(150))
    parts = len(list((tmp_path / "grown" / "memory" / "index" / "segments").glob("*.words")))
    assert parts < 20
    for wanted in ({}, {"tool": "tool3"}, {"file": "file2.py", "tool": "tool1"}, {"run": "r1"}, {"experience": "e77"}):
        for how in ("keywords", "vectors", "hybrid"):
            one, other = (m.recall("number n77 volcano2", 12, wanted, how=how) for m in (grown, made))
            assert [(h.id, h.score) for h in one] == [(h.id, h.score) for h in other], (wanted, how)
    assert grown.stats()["digest"] == made.stats()["digest"]


def test_what_is_gone_is_swept_out_when_it_is_most(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path, "hashed")
    memory.add(many(100))
    memory.add([tried("left", "ls", "glacier", run="other")])
    memory.recall("volcano1")
    for run in ("r0", "r1"):
        (tmp_path / "memory" / "toy" / "experiences" / f"{run}.jsonl").unlink()
    assert {h.experience for h in memory.recall("volcano1 glacier", 9)} == {"left"}
    assert memory.stats()["index"]["count"] == 2
    (words,) = (tmp_path / "memory" / "index" / "segments").glob("*.words")
    assert words.stat().st_size < 20_000


@pytest.mark.parametrize("suffix", ["words", "vectors"])
def test_one_broken_segment_is_made_again_and_the_others_stay(tmp_path: Path, suffix: str) -> None:
    memory = ExperienceStore(tmp_path, "hashed")
    for start in (0, 40):
        memory.add(many(80)[start : start + 40])
        memory.recall("x")
    before = memory.recall("number n77", 8)
    memory.close()
    one, other = sorted((tmp_path / "memory" / "index" / "segments").glob(f"*.{suffix}"))
    data = bytearray(one.read_bytes())
    data[len(data) // 2] ^= 1
    one.write_bytes(data)
    kept = other.stat().st_mtime_ns
    assert ExperienceStore(tmp_path, "hashed").recall("number n77", 8) == before
    assert other.stat().st_mtime_ns == kept


def test_a_flipped_bit_in_the_manifest_is_noticed(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path, "hashed")
    memory.add(many(10))
    before = memory.recall("number n7", 8)
    state = tmp_path / "memory" / "index" / "state.json"
    said = json.loads(state.read_text())
    said["marks"] = {level: [stamp, number + 5] for level, (stamp, number) in said["marks"].items()}
    state.write_text(json.dumps(said))
    memory.add([tried("more", "ls", "glacier")])
    assert memory.recall("number n7", 8) == before
    assert found(memory, "glacier") == ["more"]


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Chroma is asked however few documents there are; for how many each time."""
    asked: list[int] = []
    nearest = Chroma.nearest

    def counted(self: Chroma, state: Any, vector: Any, n: int) -> list[int]:
        asked.append(n)
        return nearest(self, state, vector, n)

    monkeypatch.setattr(Chroma, "nearest", counted)
    monkeypatch.setattr(index, "EXACT", 4)
    monkeypatch.setattr(index, "DEAR", 0)
    return asked


@pytest.mark.slow
def test_among_many_the_answer_is_the_exact_one(tmp_path: Path, graph: list[int], monkeypatch: Any) -> None:
    """Beyond EXACT documents candidates come from Chroma's graph; here the exact answer is known."""
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add([e.model_copy(update={"prompt": f"task t{n} glacier{n % 9}"}) for n, e in enumerate(many(1500))])
    queries = [f"number n{n} volcano{n % 3}" for n in (5, 700, 1400)]
    wanted = [{}, {"tool": "tool3"}, {"run": "r1"}]
    near = [memory.recall(q, 8, w, how="vectors") for q in queries for w in wanted]
    assert sorted(set(graph)) == [200, 400, 1401]  # as many as hold 200 that match, if all match alike
    monkeypatch.setattr(index, "EXACT", 16_384)
    exact = [memory.recall(q, 8, w, how="vectors") for q in queries for w in wanted]
    assert len(graph) == 9
    # texts as alike as these have ties: what counts is how near a hit is
    right = [[hit.score >= best[-1].score for hit in hits] for best, hits in zip(exact, near, strict=True)]
    assert statistics.fmean(itertools.chain.from_iterable(right)) > 0.9


def test_what_chroma_does_not_hold_yet_is_found(tmp_path: Path, graph: list[int]) -> None:
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add(many(600))
    assert memory.recall("glacier", 1, how="vectors")
    memory.add([tried("new", "ls", "glacier")])
    assert found(memory, "glacier", "vectors")[0] == "new"
    state = index.load_manifest(tmp_path / "memory" / "index")
    assert state is not None
    assert (state.chroma["count"], state.count, len(graph)) == (1200, 1202, 2)


def test_a_broken_graph_is_not_asked(tmp_path: Path, graph: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add(many(600))
    memory.recall("number n5", 8, how="vectors")
    for file in (tmp_path / "memory" / "index").glob("chroma-*/**/*"):
        if file.is_file():
            file.write_bytes(os.urandom(file.stat().st_size))
    after = memory.recall("number n5", 8, how="vectors")
    monkeypatch.setattr(index, "EXACT", 16_384)
    assert after == memory.recall("number n5", 8, how="vectors")
    assert memory.stats()["index"]["count"] == 1200


def test_an_index_with_the_codes_and_the_graph_of_before_is_used_as_it_is(tmp_path: Path, graph: list[int]) -> None:
    """Vectors had codes of one bit a dimension beside them, and Chroma held the few documents of any workspace."""
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add(many(30))
    write = segments.write_arrays

    def coded(path: Path, arrays: Any) -> Any:
        more = {"centre": np.zeros(64, np.float32), "codes": np.zeros((1, 60), np.uint64)}
        return write(path, {**arrays, **more} if path.suffix == ".vectors" else arrays)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "write_arrays", coded)
        before = memory.recall("number n7", 8)
    memory.close()
    folder = tmp_path / "memory" / "index"
    (vectors,) = (folder / "segments").glob("*.vectors")
    (chroma,), kept = folder.glob("chroma-*"), vectors.stat().st_mtime_ns
    assert "codes" in segments.read_arrays(vectors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "EXACT", 16_384)
        assert ExperienceStore(tmp_path, "hashed:64").recall("number n7", 8) == before
    assert vectors.stat().st_mtime_ns == kept
    assert not chroma.exists()


@pytest.mark.slow
def test_few_indexes_stay_open_and_each_is_right_from_any_thread(tmp_path: Path, graph: list[int]) -> None:
    stores = [ExperienceStore(tmp_path / str(n), "hashed:64") for n in range(8)]
    for n, memory in enumerate(stores):
        memory.add([*many(20), tried(f"own{n}", "ls", f"glacier{n}")])

    def own(n: int) -> bool:
        return found(stores[n % 8], f"glacier{n % 8}", "hybrid")[0] == f"own{n % 8}"

    assert own(0)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(own, range(40)))
    for memory in stores:
        memory.metadata.close()
    assert len(index._OPEN) == index.KEPT
    more = len(list(Path("/proc/self/fd").iterdir())) - descriptors
    assert more < 16 * index.KEPT, more
    for memory in stores:
        memory.close()
    assert not any(folder.is_relative_to(tmp_path) for folder in index._OPEN)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("cd /x && FOO=1 python -m pytest -x | tail -3", ["cd", "python", "pytest", "tail"]),
        ("for f in *.py; do sed -n 1p $f; done", ["sed"]),
        ("echo 'a; rm b' > c", ["echo"]),
        ('{"name": "bash", "arguments": {"command": "ls -l"}}', ["bash", "ls"]),
        ('{"broken', []),
        ("", []),
    ],
)
def test_the_programs_of_an_action(action: str, expected: list[str]) -> None:
    assert tools(action) == expected


def test_the_files_of_a_text() -> None:
    said = 'File "/work/src/a.py", line 3; http://x.org/a.html os.path e.g. 1.5 tests/test_foo.py::bar ./b.toml'
    assert files(said) == ["/work/src/a.py", "tests/test_foo.py", "b.toml"]


@pytest.mark.parametrize("piece", ["+", "a/", "a.", "/", "./", "'\"", "&&;;", "A", "失", '="', "<<E\n"])
def test_no_text_takes_long_to_read(piece: str, tmp_path: Path) -> None:
    """Patterns that go back over what they read would need hours for these."""
    step = Step(step=0, action=piece * 200_000, output=piece * 200_000)
    memory = ExperienceStore(tmp_path, "hashed")
    trace = Trace(attempt="a", task="t", scaffold="s", model="m", steps=(step,))
    memory.add([experience("a", prompt=piece * 200_000, trace=trace)])
    memory.recall("x", how="keywords")


def test_a_graph_whose_writing_was_cut_short_is_made_anew(
    tmp_path: Path, graph: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add(many(5))

    def cut(self: Chroma, state: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Chroma, "_mark", cut)
        with pytest.raises(KeyboardInterrupt):
            memory.catch_up()
    folder = tmp_path / "memory" / "index"
    assert len(memory.recall("number n3", 9)) == 9
    memory.add(many(200))
    memory.catch_up()
    state = index.load_manifest(folder)
    assert state is not None
    assert (state.chroma["writing"], state.chroma["count"]) == (False, 400)
    assert len(list(folder.glob("chroma-*"))) == 1


# --- without numpy ----------------------------------------------------------------------------------------


def test_without_numpy_the_same_words_find_the_same(memory: ExperienceStore, tmp_path: Path) -> None:
    plain = ExperienceStore(tmp_path, "hashed")
    plain._index = Scan()
    for query in ("KeyError in test_width.py", "csv reader parse header", "日付", "make", "nothing of it"):
        kept, read = (m.recall(query, 9, {}, "human", "keywords") for m in (memory, plain))
        assert [h.id for h in read] == [h.id for h in kept]
        assert [h.score for h in read] == pytest.approx([h.score for h in kept], rel=0.02)  # kept weights are 8 bits
    plain.add([tried("late", "ls", "a makefile named width")])
    assert found(plain, "makefile") == ["late"]
    assert found(plain, "makefile", task="none") == []
    assert found(plain, "makefile", how="hybrid") == ["late"]
    with pytest.raises(Missing, match="numpy"):
        plain.recall("makefile", 9, {}, "human", "vectors")


def test_without_numpy_nothing_held_out_is_found_by_an_optimizer(memory: ExperienceStore, tmp_path: Path) -> None:
    plain = ExperienceStore(tmp_path, "hashed")
    plain._index = Scan()
    plain.add([tried("shut", "ls", "a zebra", split="validation", group="g2", task="t:2")])
    assert [h.experience for h in plain.recall("zebra", 9, {"grain": "step"}, "human", "keywords")] == ["shut"]
    assert found(plain, "zebra") == []
    assert found(plain, "width") == ["width"]

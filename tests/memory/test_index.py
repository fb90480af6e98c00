"""Recall by words, by meaning and by both, under every filter; and an index that is kept up piece
by piece."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recreate.agents.trajectory import files, tools
from recreate.api.errors import BadInput
from recreate.api.types import Grade, Step, Trace
from recreate.memory.embedders.hashed import Hashed
from recreate.memory.index import fuse, text, vectors
from recreate.memory.index.tokenizer import _PART, _SPACELESS, is_code, phrases, spread, standing
from recreate.memory.store import ExperienceStore
from tests.memory.test_store import experience, task


def test_an_index_on_a_file_system_without_locks_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    made = ExperienceStore(tmp_path, "hashed")
    made.add([tried("width", "make", "no rule")])
    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(BadInput, match="has no locks") as caught:
        ExperienceStore(tmp_path, "hashed").recall("make")
    assert "rm " not in caught.value.fix


def tried(id: str, action: str, output: str, **given: Any) -> Any:
    return experience(
        id,
        prompt=given.pop("prompt", "a task"),
        steps=(Step(step=0, action=action, output=output),),
        **given,
    )


@pytest.fixture
def memory(tmp_path: Path) -> ExperienceStore:
    made = ExperienceStore(tmp_path, "hashed")
    quiet = Grade(score=0.0, passed=False, evidence="")
    made.add(
        [
            tried(
                "width",
                "python -m pytest tests/test_width.py::test_tab | tail -3",
                "KeyError: 'tab'",
                grade=quiet,
            ),
            tried(
                "quote",
                "sed -i 's/a;b/c/' src/csv/reader.py && grep -rn 'x | y' .",
                "",
                passed=True,
            ),
            tried(
                "date",
                "cat <<'EOF' > out.py\nmake all\nEOF\n./build.sh",
                "ValueError: leap 日付が間違っている",
                grade=quiet,
            ),
            tried(
                "camel", "ls", "parseHeader is called with /srv/app/src/csv/reader.py", grade=quiet
            ),
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
def test_names_errors_and_any_script_are_found_by_word(
    memory: ExperienceStore, query: str, expected: str
) -> None:
    assert found(memory, query)[0] == expected
    assert found(memory, query, "hybrid")[0] == expected


def test_of_words_that_stand_nearly_everywhere_the_rarest_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "POSTINGS", 3)  # as if these were thousands
    made = ExperienceStore(tmp_path, "hashed")
    words = ["alpha beta", "alpha beta", "alpha beta", "alpha beta", "alpha", "alpha gamma"]
    made.add(
        [
            tried(f"e{n}", "ls", said, grade=Grade(score=0.0, passed=False, evidence=""))
            for n, said in enumerate(words)
        ]
    )
    assert sorted(found(made, "alpha beta")) == ["e0", "e1", "e2", "e3"]
    assert found(made, "alpha gamma beta") == ["e5"]
    assert sorted(found(made, "alpha")) == [f"e{n}" for n in range(6)]


def test_what_shares_no_word_is_not_found_by_word(memory: ExperienceStore) -> None:
    assert found(memory, "glacier") == []
    assert found(memory, "?!") == []
    assert len(found(memory, "glacier", "vectors")) == len(found(memory, "glacier", "hybrid")) == 4


def test_scores_fall_within_a_question_whichever_way_it_is_asked(memory: ExperienceStore) -> None:
    for how in ("keywords", "vectors", "hybrid"):
        scores = [h.score for h in memory.recall("reader csv KeyError", 9, how=how)]
        assert scores == sorted(scores, reverse=True)
        assert scores
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
    # it stands in a file that is written, and is not run
    assert found(memory, "a", "hybrid", tool="make") == []
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
    assert [
        h.experience for h in memory.search("parseheader", {"file": "reader.py", "grain": "step"})
    ] == ["camel"]


def test_time_filters_by_what_the_line_or_the_experience_says(
    memory: ExperienceStore, tmp_path: Path
) -> None:
    memory.add(
        [
            tried("old", "ls", "volcano", when="2025-03-01T12:00:00Z"),
            tried("new", "ls", "volcano", when=1777000000),
        ]
    )
    assert set(found(memory, "volcano", since="2025-03-01", until="2025-03-02")) == {"old"}
    assert set(found(memory, "volcano", since="2025-03-01T12:00:01Z", until="2026-06-01")) == {
        "new"
    }
    assert "width" in found(memory, "KeyError", since="2026-06-01")  # recorded now
    assert [r["id"] for r in memory.facts({"until": "2025-12-31"})] == ["old"]
    with pytest.raises(BadInput, match="since is a moment") as e:
        memory.recall("x", 1, {"since": "yesterday"})
    assert "2026-11-01" in e.value.fix
    (file,) = tmp_path.glob("memory/toy/experiences/*.jsonl")
    assert json.loads(file.read_bytes().splitlines()[0])["when"].endswith("Z")


def test_when_something_was_recorded_changes_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        {},
        {"tool": "zebra-tool"},
        {"file": "zebra.py"},
        {"error": "ZebraError"},
        {"until": "2025-02-01"},
        {"experience": ["open", "held", "test"]},
        {"split": ["train", "test"]},
        {"group": "module-held"},
    ]
    memory.recall("zebra", reader="human")
    memory.hold_out([task("x", "test", group="module-held")])
    for reader in ("optimizer", "agent"):
        for how in ("keywords", "vectors", "hybrid"):
            for wanted in filters:
                seen = {
                    h.experience
                    for h in memory.recall("zebra ZebraError zebra.py", 50, wanted, reader, how)
                }
                assert not seen & {"held", "test"}, (how, wanted)
        assert {r["id"] for r in memory.facts({"tool": "zebra-tool"}, reader)} == {"open"}
    assert {h.experience for h in memory.recall("zebra", 50, {"tool": "zebra-tool"}, "human")} == {
        "open",
        "held",
        "test",
    }


def many(n: int) -> list[Any]:
    return [
        tried(
            f"e{i}",
            f"tool{i % 7} file{i % 5}.py",
            f"number n{i} volcano{i % 3}",
            prompt=f"task n{i} glacier{i * 7} volcano{i % 3}",
            run=f"r{i % 2}",
        )
        for i in range(n)
    ]


@pytest.mark.slow
def test_an_index_that_grew_by_pieces_answers_as_one_made_at_once(tmp_path: Path) -> None:
    grown, made = (
        ExperienceStore(tmp_path / "grown", "hashed"),
        ExperienceStore(tmp_path / "made", "hashed"),
    )
    for e in many(60):
        grown.add([e])
        grown.catch_up()
    made.add(many(60))
    for wanted in (
        {},
        {"tool": "tool3"},
        {"file": "file2.py", "tool": "tool1"},
        {"run": "r1"},
        {"experience": "e47"},
    ):
        for how in ("keywords", "vectors", "hybrid"):
            one, other = (
                m.recall("number n47 volcano2", 12, wanted, how=how) for m in (grown, made)
            )
            assert [(h.id, h.score) for h in one] == [(h.id, h.score) for h in other], (wanted, how)
    assert grown.stats()["digest"] == made.stats()["digest"]


def test_what_is_gone_is_swept_out_when_it_is_most(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path, "hashed")
    memory.add(many(100))
    memory.add([tried("left", "ls", "glacier", run="other")])
    memory.recall("volcano1")
    text = tmp_path / "memory" / "index" / "memory.sqlite"
    before = text.stat().st_size
    assert b"volcano" in text.read_bytes()
    for run in ("r0", "r1"):
        (tmp_path / "memory" / "toy" / "experiences" / f"{run}.jsonl").unlink()
    assert {h.experience for h in memory.recall("volcano1 glacier", 9)} == {"left"}
    assert memory.stats()["index"]["count"] == 2
    assert b"volcano" not in text.read_bytes()
    assert text.stat().st_size <= before


@pytest.mark.slow
def test_among_many_the_nearest_are_found(tmp_path: Path) -> None:
    """Chroma's graph may miss some; here the exact answer is known."""
    memory, embedder = ExperienceStore(tmp_path, "hashed:64"), Hashed(64)
    given = [
        e.model_copy(update={"prompt": f"task t{n} glacier{n % 9} x{n * 7}"})
        for n, e in enumerate(many(1500))
    ]
    quiet = Grade(score=0.0, passed=False, evidence="")
    memory.add([e.model_copy(update={"grade": quiet}) for e in given])
    right = []
    for query in ("t5 glacier5", "x77 glacier2", "task t1400"):
        (asked,) = embedder.embed([query], "query")
        for wanted in ({}, {"run": "r1"}, {"tool": "tool3"}):
            among = [
                e
                for e in given
                if all(e.run == v or v in e.trace.steps[0].action for v in wanted.values())
            ]
            vectors = embedder.embed([e.prompt for e in among])
            best = sorted(
                (sum(a * b for a, b in zip(asked, v, strict=True)) for v in vectors), reverse=True
            )[:8]
            hits = memory.recall(query, 8, wanted, how="vectors")
            right += [hit.score >= best[-1] - 1e-4 for hit in hits]
            assert len(hits) == 8
    assert sum(right) / len(right) > 0.9
    memory.close()


def test_what_is_added_later_is_found_by_meaning_beside_what_is_gone(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add(many(60))
    assert memory.recall("glacier", 1, how="vectors")
    memory.add([tried("new", "ls", "x", prompt="glacier")])
    assert found(memory, "glacier", "vectors")[0] == "new"
    (tmp_path / "memory" / "toy" / "experiences" / "r0.jsonl").unlink()
    hits = memory.recall("glacier", 99, how="vectors")
    assert hits[0].experience == "new"
    assert len(hits) == 31


@pytest.mark.slow
def test_broken_vectors_are_made_anew(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add(many(60))
    before = memory.recall("number n5", 8, how="vectors")
    memory.close()
    vectors.PROCESS.end()
    for file in (tmp_path / "memory" / "index").glob("chroma/**/*"):
        if file.is_file():
            file.write_bytes(os.urandom(file.stat().st_size))
    assert memory.recall("number n5", 8, how="vectors") == before


def test_vectors_whose_writing_was_cut_short_are_looked_over_and_none_that_is_there_is_paid_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add(many(5))
    set_meta = vectors.set_meta

    def killed(db: Any, **values: Any) -> None:
        set_meta(db, **values)
        if not values["vectors"]:
            raise KeyboardInterrupt

    memory.catch_up()
    memory.add(many(20))
    with monkeypatch.context() as patch:
        patch.setattr(vectors, "set_meta", killed)
        with pytest.raises(KeyboardInterrupt):
            memory.catch_up()
    passages: list[str] = []
    embed = Hashed.embed

    def counted(self: Hashed, texts: Any, kind: str = "passage") -> Any:
        passages.extend(texts if kind == "passage" else ())
        return embed(self, texts, kind)

    monkeypatch.setattr(Hashed, "embed", counted)
    assert len(memory.recall("number n3", 30)) == 20
    assert len(passages) == 15
    memory.close()


@pytest.mark.slow
def test_the_process_of_chroma_may_be_killed_at_any_time(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add(many(20))
    before = memory.recall("number n5", 8, how="vectors")
    running = vectors.PROCESS.running
    assert running is not None
    running.kill()
    running.wait()
    assert memory.recall("number n5", 8, how="vectors") == before
    memory.close()


def test_an_index_of_an_earlier_version_is_replaced(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path, "hashed:64")
    memory.add(many(30))
    folder = tmp_path / "memory" / "index"
    (folder / "chroma-00000000").mkdir(parents=True)
    for name in ("state.json", "text.sqlite", "catalogue.sqlite", "vectors.sqlite"):
        (folder / name).write_text("of another format")
    assert found(memory, "number n7")[0] == "e7"
    assert {path.name for path in folder.iterdir()} == {".gitignore", "memory.sqlite"}


@pytest.mark.slow
def test_few_indexes_stay_open_and_each_is_right_from_any_thread(tmp_path: Path) -> None:
    stores = [ExperienceStore(tmp_path / str(n), "hashed:64") for n in range(8)]
    for n, memory in enumerate(stores):
        memory.add([*many(3), tried(f"own{n}", "ls", f"glacier{n}")])

    def own(n: int) -> bool:
        return found(stores[n % 8], f"glacier{n % 8}", "hybrid")[0] == f"own{n % 8}"

    assert own(0)
    for memory in stores:
        memory.metadata.close()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(own, range(24)))
    for memory in stores:
        memory.metadata.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors
    for memory in stores:
        memory.close()


# --- what a hit is
# ----------------------------------------------------------------------------------------


def test_an_experience_is_one_hit_by_its_best_step_with_the_words_that_stand_in_it(
    tmp_path: Path,
) -> None:
    memory = ExperienceStore(tmp_path, "hashed")
    steps = [
        Step(step=n, action=f"grep -n part{n} src/a.py", output=f"the glacier of part{n} melts")
        for n in range(4)
    ]
    trace = Trace(attempt="a", task="t", scaffold="s", model="m", steps=tuple(steps))
    memory.add(
        [
            experience("long", prompt="glaciers", trace=trace),
            experience("other", prompt="a glacier far away"),
        ]
    )
    for how in ("keywords", "hybrid"):
        hits = memory.recall("glacier part2 volcano", 8, how=how)
        assert [h.experience for h in hits] == ["long", "other"]
        assert (hits[0].id, hits[0].grain, hits[0].step) == ("long/2", "step", 2)
        assert hits[0].facts["words"] == ["glacier", "part2"]
    every = memory.recall(
        "part2 glacier", 9, {"grain": "step", "experience": "long"}, how="keywords"
    )
    assert [h.id for h in every] == ["long/2", "long/0", "long/1", "long/3"]


@pytest.mark.parametrize("size", [20_000, 300_000])
def test_a_word_is_found_wherever_it_stands_in_however_long_an_output(
    tmp_path: Path, size: int
) -> None:
    memory = ExperienceStore(tmp_path, "hashed")
    noise = "all is well here\n" * (size // 17)
    memory.add(
        [
            tried("long", "make", f"{noise}NeedleError: volcano{noise}"),
            tried("short", "ls", "all is well here"),
        ]
    )
    assert memory.recall("NeedleError", 1, {"grain": "step"}, how="keywords")[0].id == "long/0"
    assert memory.recall("NeedleError volcano", 1, how="keywords")[0].experience == "long"


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ("KeyError: 'tab'", True),
        ("what calls parse_header", True),
        ("src/csv/reader.py", True),
        ("parseHeader", True),
        ("run it with --verbose", True),
        ("leap days are parsed as the first of March", False),
        ("Why did the test fail? It should not.", False),
        ("日付が間違っている", False),
    ],
)
def test_a_question_that_names_code_is_known(question: str, code: bool) -> None:
    assert is_code(question) is code


def test_words_outweigh_meaning_where_they_are_given_more_weight() -> None:
    words, meaning = ["a", "b", "c"], ["c", "b", "a"]
    assert [id for id, _ in fuse([(words, 8), (meaning, 1)])] == ["a", "b", "c"]
    assert fuse([(words, 1), (meaning, 1)])[0][1] == pytest.approx(1 / 61 + 1 / 63, abs=1e-6)
    assert fuse([(["a"], 8), (["a"], 1)]) == [("a", round(2 / 61, 6))]


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
    said = (
        'File "/work/src/a.py", line 3; http://x.org/a.html os.path e.g. 1.5 tests/test_foo.py::bar'
        " ./b.toml"
    )
    assert files(said) == ["/work/src/a.py", "tests/test_foo.py", "b.toml"]


@pytest.mark.parametrize(
    "piece", ["+", "a/", "a.", "/", "./", "'\"", "&&;;", "A", "失", '="', "<<E\n"]
)
def test_no_text_takes_long_to_read(piece: str, tmp_path: Path) -> None:
    """Patterns that go back over what they read would need hours for these."""
    step = Step(step=0, action=piece * 200_000, output=piece * 200_000)
    memory = ExperienceStore(tmp_path, "hashed")
    trace = Trace(attempt="a", task="t", scaffold="s", model="m", steps=(step,))
    memory.add([experience("a", prompt=piece * 200_000, trace=trace)])
    memory.recall("x", how="keywords")


def test_words_need_no_package_at_all(
    memory: ExperienceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("numpy", "chromadb", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    assert found(memory, "KeyError: 'tab'")[0] == "width"
    assert memory.stats()["index"]["count"] == 8


WORDS = st.text("aZ9_ .ßİé日本한글\n", max_size=30)


@given(text=WORDS, question=WORDS)
@example(text="parseHeader ends", question="header")
@example(text="a preheader", question="header")
@example(text="日\n本", question="日本")
def test_the_words_that_stand_in_a_hit_are_those_that_are_indexed_for_it(
    text: str, question: str
) -> None:
    words = f" {' '.join(_PART.findall(spread(text)))} "
    there = [phrase for phrase in phrases(question) if f" {phrase} " in words]
    whole = [p for p in there if " " not in p or _SPACELESS.search(p)]
    assert standing(text, question) == [
        "".join(p.split()) for p in whole if _SPACELESS.search(p) or " " not in p
    ]


def test_a_word_of_most_documents_is_not_looked_up_beside_a_rarer_one(tmp_path: Path) -> None:
    memory = ExperienceStore(tmp_path, "hashed")
    steps = [
        tuple(Step(step=at, action="ls", output="common") for at in range(150)) for _ in range(8)
    ]
    memory.add([experience(f"e{n}", prompt="common", steps=each) for n, each in enumerate(steps)])
    memory.add([tried("rare", "ls", "a unicorn")])
    assert found(memory, "common unicorn") == ["rare"]
    assert len(found(memory, "common")) == 9, "alone it is looked up"
    assert len(found(memory, "common unheard")) == 9, "beside a word that stands nowhere too"
    memory.add([tried("rarer", "ls", "a unicorn, common as it is")])
    assert found(memory, "common unicorn") == [
        "rare",
        "rarer",
    ], "and its weight is none: the shorter text goes first"

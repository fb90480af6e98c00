"""What is forgotten is in no file of memory any more, comes back by no door, and takes along what
it alone taught."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import chromadb
import pytest

from recreate.agents.lesson import headed
from recreate.api.types import Gain, Lesson, Step, Trial
from recreate.cli import run as cli
from recreate.lessons.store import LessonStore
from recreate.memory import documents
from recreate.memory.database import Database
from recreate.memory.embedders.hashed import Hashed
from recreate.memory.held_out import edition
from recreate.memory.index.vectors import key_of
from recreate.memory.store import ExperienceStore
from recreate.plugins.memory_tools import forget as forgetting
from tests.memory.test_codec import LONG
from tests.memory.test_recall import fill
from tests.memory.test_store import experience, task

WORD = "zweiundvierzigste"


def secret(id: str, **given: Any) -> Any:
    """An attempt that holds the word in its prompt, in a step, in a large text and in the grader's
    words."""
    steps = (
        Step(
            step=0, action=f"cat {WORD}.py", output=LONG.replace("line 7\n", f"{WORD}\n"), status=0
        ),
        Step(step=1, action="submit", output=f"NameError: name '{WORD}' is not defined", status=1),
    )
    return experience(id, prompt=f"Mend {WORD}", steps=steps, **given)


def holding(folder: Path, word: str) -> list[str]:
    """The files that hold the word, or its vector's text, in whatever case FTS5 keeps it."""
    found = [
        p for p in folder.rglob("*") if p.is_file() and word.encode() in p.read_bytes().lower()
    ]
    return sorted(str(p.relative_to(folder)) for p in found)


@pytest.fixture
def memory(workspace: Path) -> ExperienceStore:
    made = ExperienceStore(workspace, "hashed")
    fill(made)
    made.add([secret("5ec12e70aaaa"), experience("5ec12e70bbbb")])
    assert made.recall(WORD, 1)[0].experience == "5ec12e70aaaa"
    return made


def keep(workspace: Path, *lessons: Lesson) -> LessonStore:
    store = LessonStore(workspace / "memory", "toy")
    store.write({}, {lesson.id: lesson for lesson in lessons})
    return store


def test_attempts_whose_agents_recalled_what_is_forgotten_are_named(
    memory: ExperienceStore, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Step(
        step=0,
        action="recall it",
        output=f"it was asked: {WORD}",
        status=0,
        recalled=("5ec12e70aaaa",),
    )
    other = Step(step=0, action="ls", output="5ec12e70aaaa", status=0, recalled=("5ec12e70bbbb",))
    memory.add([experience("7011", steps=(told,)), experience("7022", steps=(other,))])
    assert cli(["memory", "forget", "5ec12e70aaaa", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recalled"] == ["7011"]
    assert cli(["memory", "forget", "7011", "--dry-run"]) == 0
    assert "whose agent recalled it" not in capsys.readouterr().out


def test_no_byte_of_a_forgotten_attempt_stays_in_any_file_of_memory(
    memory: ExperienceStore, workspace: Path
) -> None:
    folder = workspace / "memory"
    before = holding(folder, WORD)
    assert any("blobs" in name for name in before)
    assert any("memory.sqlite" in name for name in before)
    keep(workspace, Lesson(id="mind-it", title="Mind it", body="Mind what you mend."))
    assert memory.recall("mind", 9, {"grain": "lesson"}, "agent"), "what it says is noted"
    assert any(name[0].startswith("5ec12e70aaaa") for name in memory.metadata.noted(edition()))
    assert cli(["memory", "forget", "5ec12e70aaaa", "--yes"]) == 0
    assert holding(folder, WORD) == []
    again = ExperienceStore(workspace, "hashed")
    assert again.get("5ec12e70aaaa") is None
    assert "5ec12e70aaaa" not in {hit.experience for hit in again.recall(WORD, 8)}
    assert holding(folder, WORD) == [], "also when the index was made again"
    assert {e.id for e in again.experiences()} == {
        "quotes",
        "dates",
        "width",
        "retry",
        "5ec12e70bbbb",
    }


def listed(memory: ExperienceStore) -> dict[str, Any]:
    """What the catalogue and the index say, without numbers that depend on when something was taken
    in."""
    memory.recall("quote", 1)
    with closing(sqlite3.connect(memory.metadata.database.path)) as db:
        tables = ("name, size, mtime, damaged from files", "* from blobs", "* from recalled")
        about = {t: db.execute(f"select distinct {t}").fetchall() for t in tables}
        listing = "select id, content, file, at, length, sum, task from sources order by id"
        rows = db.execute(listing).fetchall()
    found = memory.recall(
        "module quote parser word3 word5", 50, {"grain": ["experience", "step"]}, how="keywords"
    )
    stats = {k: v for k, v in memory.stats().items() if k != "index"}
    return {**{k: sorted(v) for k, v in about.items()}, "rows": rows, "found": found, **stats}


@pytest.mark.parametrize("going", [[0], [7, 8, 20], [29, 30, 59], [*range(30)]])
@pytest.mark.slow
def test_forgetting_a_few_of_many_indexes_no_other_and_leaves_what_is_derived_as_if_made_anew(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, going: list[int]
) -> None:
    def step(n: int) -> Step:
        output = (
            LONG.replace("line 7\n", f"large{n // 2}\n") if n % 10 < 2 else f"it prints qword{n}x"
        )
        return Step(
            step=0,
            action=f"python word{n % 7}.py",
            output=output,
            recalled=(f"id{(n + 1) % 60:02}",),
        )

    memory = ExperienceStore(workspace, "hashed")
    all_ = [
        experience(f"id{n:02}", steps=(step(n),), run="ab"[n // 30], answer=f"pword{n}x")
        for n in range(60)
    ]
    memory.add(all_[:9])
    run, copied = (
        workspace / "memory/toy/experiences/a.jsonl",
        workspace / "memory/toy/experiences/copied.jsonl",
    )
    with run.open("ab") as file:
        file.write(b'{"damaged": 1}\n\n')
    memory.add(all_[9:])
    copied.write_bytes(b"".join(run.read_bytes().splitlines(keepends=True)[:8]))
    run.write_bytes(run.read_bytes() + b'{"torn')
    keep(
        workspace, Lesson(id="mine", title="Read pword", body="An old wording.", born_of=("id40",))
    )
    memory.recall("quote", 3)
    keep(workspace, Lesson(id="mine", title="Read qword", body="First.", born_of=("id40",)))
    memory.recall("quote", 3)
    assert holding(workspace / "memory", f"qword{going[0]}x") or going[0] % 10 < 2
    read: list[str] = []
    of = documents.documents
    monkeypatch.setattr(
        documents, "documents", lambda e, when=None: [read.append(e.id), *of(e, when)][1:]
    )
    gone = [f"id{n:02}" for n in going]
    found = forgetting.forget(memory, gone)
    assert found.recalled == [
        f"id{n:02}" for n in sorted((n - 1) % 60 for n in going) if n not in going
    ]
    for word in ("wording", *(f"{p}word{n}x" for n in going for p in "pq")):
        assert holding(workspace / "memory", word) == []
    there = listed(memory)
    assert set(read) <= {*gone}, "nothing of the others is read again"
    assert {e.id for e in memory.experiences()} == {e.id for e in all_} - {*gone}
    assert run.read_bytes().endswith(b'{"torn') and b'{"damaged": 1}\n' in run.read_bytes()  # noqa: PT018
    memory.rebuild()
    assert there == listed(memory)


def vector_keys(workspace: Path) -> set[str]:
    """The keys of all vectors that Chroma holds."""
    client = chromadb.PersistentClient(str(workspace / "memory" / "index" / "chroma"))
    found = {id for c in client.list_collections() for id in c.get(include=[])["ids"]}
    client.close()
    return found


def brief_of(memory: ExperienceStore, id: str) -> str:
    e = memory.get(id)
    assert e is not None
    return documents.documents(e)[-1].brief


def test_its_vector_goes_and_those_of_others_are_not_paid_again(
    memory: ExperienceStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = (key_of(brief_of(memory, id)) for id in ("5ec12e70aaaa", "quotes"))
    assert {own, other} <= vector_keys(workspace)
    forgetting.forget(memory, ["5ec12e70aaaa"])
    assert own not in vector_keys(workspace)
    assert holding(workspace / "memory" / "index", own) == []
    embed = Hashed.embed

    def queries(self: Hashed, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        assert kind == "query"
        return embed(self, texts, kind)

    monkeypatch.setattr(Hashed, "embed", queries)
    assert memory.recall("quote", 3, how="vectors")
    assert other in vector_keys(workspace)


@pytest.mark.slow
def test_a_process_that_embeds_it_meanwhile_leaves_no_vector(workspace: Path) -> None:
    store = ExperienceStore(workspace, "hashed")
    store.add([secret("5ec12e70aaaa"), experience("5ec12e70bbbb")])
    own = key_of(brief_of(store, "5ec12e70aaaa"))

    class Slow(Hashed):
        def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
            if any(WORD in text for text in texts):
                forgetting.forget(ExperienceStore(workspace, "hashed"), ["5ec12e70aaaa"])
            return super().embed(texts, kind)

    other = ExperienceStore(workspace, Slow())
    assert [hit.experience for hit in other.recall("anything", 2, how="vectors")] == [
        "5ec12e70bbbb"
    ]
    assert len(vector_keys(workspace)) == 1
    assert own not in vector_keys(workspace)


@pytest.mark.slow
def test_a_forgotten_attempt_does_not_come_back(memory: ExperienceStore, workspace: Path) -> None:
    from recreate.plugins.traces.ungraded import Ungraded

    forgetting.forget(memory, ["5ec12e70aaaa"])
    for store in (memory, ExperienceStore(workspace, "hashed")):
        store.add([secret("5ec12e70aaaa")])
        assert store.keep(secret("5ec12e70aaaa")).id == "5ec12e70aaaa"
        Ungraded(store).add([secret("5ec12e70aaaa")])
    assert holding(workspace / "memory", WORD) == []


def test_an_imported_attempt_goes_from_where_it_waited_for_its_grade_too(
    memory: ExperienceStore, workspace: Path
) -> None:
    from recreate.plugins.traces.ungraded import Ungraded

    Ungraded(memory).add([secret("5ec12e70aaaa"), secret("1a7e2")])
    forgetting.forget(memory, ["5ec12e70aaaa"])
    (waiting,) = workspace.glob("memory/*/waiting/*.jsonl")
    assert "5ec12e70aaaa" not in waiting.read_text()
    assert "1a7e2" in waiting.read_text()
    assert cli(["memory", "forget", "1a7e", "--yes"]) == 0
    assert holding(workspace / "memory", WORD) == []


def import_chats(workspace: Path, name: str, *answers: str) -> None:
    """Import a file of chats: a graded one of each answer, and one that waits for its grade."""
    rows = [
        {"messages": [{"role": "user", "content": f"Say {WORD}"}, {"role": "assistant", **said}]}
        for said in [*({"content": each} for each in answers), {"content": f"nothing {name}"}]
    ]
    scored = [{**row, "score": 1} for row in rows[:-1]]
    (workspace / name).write_text("".join(f"{json.dumps(r)}\n" for r in [*scored, rows[-1]]))
    assert cli(["traces", "import", name, "--domain", "toy"]) == 0


@pytest.mark.parametrize("name", ["import-openai", "one.jsonl", "./one.jsonl"])
def test_an_import_is_forgotten_by_its_name_with_the_lessons_born_of_it(
    memory: ExperienceStore, workspace: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    import_chats(workspace, "one.jsonl", "a", "b")
    (workspace / "one.jsonl").unlink()
    graded = [row["id"] for row in memory.facts({"run": ["import-openai"]})]
    born = Lesson(id="born", title=f"Say {WORD}", body="At once.", born_of=tuple(graded))
    other = Lesson(id="other", title="Run it", body="Always.", born_of=("dates",))
    store = keep(workspace, born, other)
    memory.recall("say", 2)
    capsys.readouterr()
    assert cli(["memory", "forget", name, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert len(planned["experiences"]) == 3
    assert [Path(path).name for path in planned["lessons"]] == ["born.md"]
    assert store.find("born").exists()
    assert cli(["memory", "forget", name, "5ec12e70aaaa", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lessons"] == planned["lessons"]
    assert holding(workspace / "memory", WORD) == []
    assert store.find("other").exists()
    assert memory.get("5ec12e70bbbb") is not None
    assert cli(["memory", "forget", "two.jsonl"]) == 2


def test_of_two_files_that_were_imported_one_is_forgotten(
    memory: ExperienceStore, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_chats(workspace, "one.jsonl", "a")
    import_chats(workspace, "two.jsonl", *map(str, range(30)))
    kept = {row["id"] for row in memory.facts({"run": ["import-openai"]})}
    assert cli(["memory", "forget", "two.jsonl", "--yes"]) == 0
    assert "11 attempts more" in capsys.readouterr().out
    left = {row["id"] for row in memory.facts({"run": ["import-openai"]})}
    assert len(left) == 1
    assert left < kept


@pytest.mark.slow
def test_a_lesson_that_only_it_speaks_for_goes_and_others_lose_that_evidence(
    memory: ExperienceStore, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gains = tuple(
        Gain(experience=id, group=f"module-{id}", diff=0.5) for id in ("5ec12e70aaaa", "quotes")
    )
    alone = Lesson(id="alone", title=f"Spell {WORD}", body="As it is.", born_of=("5ec12e70aaaa",))
    shared = Lesson(
        id="shared",
        title="Read first",
        body="Then write.",
        born_of=("5ec12e70aaaa",),
        gains=gains,
        supports=("5ec12e70aaaa", "quotes"),
        groups=("module-5ec12e70aaaa", "module-quotes"),
    )
    other = Lesson(id="other", title="Run it", body="Always.", born_of=("dates",))
    store = keep(workspace, alone, shared, other)
    unchanged = store.find("other").read_bytes()
    memory.recall("spell", 2)
    mine = workspace / "memory" / "toy" / "playbook" / "bullet.md"
    mine.parent.mkdir()
    mine.write_text(headed(alone.model_copy(update={"id": "bullet"})))
    assert cli(["memory", "forget", "5ec12e70aaaa", "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert store.find("alone").exists()
    assert cli(["memory", "forget", "5ec12e70aaaa", "--yes", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {k: v for k, v in said.items() if k != "dry_run"} == {
        k: v for k, v in planned.items() if k != "dry_run"
    }
    assert [Path(p).name for p in said["lessons"]] == ["alone.md", "bullet.md"]
    assert [Path(p).name for p in said["changed"]] == ["shared.md"]
    left = store.read()
    assert set(left) == {"shared", "other"}
    assert (left["shared"].born_of, left["shared"].supports) == ((), ("quotes",))
    assert [g.experience for g in left["shared"].gains] == ["quotes"]
    assert left["shared"].groups == ("module-quotes",)
    assert store.find("other").read_bytes() == unchanged
    assert holding(workspace / "memory", WORD) == []
    assert holding(workspace / "memory", "5ec12e70aaaa") == ["forgotten.jsonl"]


def test_an_attempt_that_was_only_shown_a_lesson_by_hand_is_forgotten_and_the_lesson_stays(
    memory: ExperienceStore, workspace: Path
) -> None:
    shown = tuple(Trial(experience=id, score=1.0) for id in ("5ec12e70aaaa", "quotes"))
    store = keep(
        workspace, Lesson(id="mine", title="Run it", body="First.", status="active", trials=shown)
    )
    assert cli(["memory", "forget", "5ec12e70aaaa", "--yes"]) == 0
    assert memory.get("5ec12e70aaaa") is None
    assert [t.experience for t in store.read()["mine"].trials] == ["quotes"]


def test_a_lesson_is_forgotten_by_its_name_and_its_attempts_stay(
    memory: ExperienceStore, workspace: Path
) -> None:
    store = keep(
        workspace, Lesson(id="spell-it", title="Spell", body="xylophonist", born_of=("quotes",))
    )
    assert memory.recall("xylophonist", 1)[0].grain == "lesson"
    assert cli(["memory", "forget", "spell", "--yes"]) == 0
    assert store.read() == {}
    assert holding(workspace / "memory", "xylophonist") == []
    assert memory.get("quotes") is not None


def test_what_had_joined_a_lesson_goes_with_it_and_what_only_has_its_words_is_named(
    memory: ExperienceStore, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"title": "Spell", "body": "xylophonist"}
    joined = {"status": "merged", "merged_into": "spell-it"}
    store = keep(
        workspace,
        Lesson(
            id="spell-it",
            **said,
            born_of=("quotes",),
            supports=("quotes", "dates"),
            merged=("word", "meaning"),
        ),
        Lesson(id="word", **said, born_of=("dates",), **joined),
        Lesson(
            id="meaning", title="Write", body="A xylophonist knows", born_of=("width",), **joined
        ),
        Lesson(id="deeper", **said, born_of=("retry",), status="merged", merged_into="meaning"),
        Lesson(
            id="other", title="Run it", body="Always.", born_of=("dates",), merged=("spell-it",)
        ),
    )
    elsewhere = LessonStore(workspace / "memory", "bowl")
    elsewhere.write({}, {"word": Lesson(id="word", title="Row", body="Slowly.", **joined)})
    mine = workspace / "memory" / "toy" / "playbook" / "bullet.md"
    mine.parent.mkdir()
    mine.write_text(headed(Lesson(id="bullet", **said)))
    carried = workspace / "scaffolds" / "toy" / "memory" / "word.md"
    carried.parent.mkdir(parents=True)
    carried.write_text("# Spell\n\nxylophonist\n")
    assert cli(["memory", "forget", "spell-it", "--yes"]) == 0
    told = capsys.readouterr().out
    for id in ("word", "meaning", "deeper"):
        assert f"lessons/{id}.md, which had joined it" in told
    assert "has the same words, and stays: the lesson memory/toy/playbook/bullet.md" in told
    assert "still has it: scaffolds/toy/memory/word.md" in told
    assert set(store.read()) == {"other"}
    assert store.read()["other"].merged == (), "its name tells its title"
    assert elsewhere.read()["word"].merged_into == "spell-it", "another domain's is another lesson"
    assert holding(workspace / "memory", "xylophonist") == ["toy/playbook/bullet.md"]
    assert {hit.id for hit in memory.recall("xylophonist", 8, {"grain": "lesson"})} == {
        "lesson:toy/other"
    }
    assert forgetting.lesson_mark("toy", "deeper") in memory.forgotten.read(), (
        "no import brings it back"
    )


@pytest.mark.parametrize("at", ["cut_experiences", "write", "purge", "squeeze"])
def test_killed_in_the_middle_it_is_shown_to_nobody_and_forgetting_again_finishes(
    memory: ExperienceStore, workspace: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    keep(
        workspace,
        Lesson(id="alone", title=f"Spell {WORD}", body="As it is.", born_of=("5ec12e70aaaa",)),
    )

    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        of = {"purge": memory, "squeeze": Database}.get(at, forgetting)
        patch.setattr(of, "locked" if at == "write" else at, killed)
        with pytest.raises(KeyboardInterrupt):
            forgetting.forget(memory, ["5ec12e70aaaa"])
    again = ExperienceStore(workspace, "hashed")
    assert again.get("5ec12e70aaaa") is None
    assert "5ec12e70aaaa" not in {row["id"] for row in again.facts()}
    assert "5ec12e70aaaa" not in {hit.experience for hit in again.recall(WORD, 8)}
    assert cli(["memory", "forget", "5ec12e70aaaa", "--yes"]) == 0
    assert holding(workspace / "memory", WORD) == []


def test_a_forgotten_group_stays_held_out(memory: ExperienceStore, workspace: Path) -> None:
    memory.add([secret("7e57", split="test", group="exam")])
    (workspace / "memory" / "held_out.jsonl").unlink()
    forgetting.forget(memory, ["7e57"])
    again = ExperienceStore(workspace, "hashed")
    assert again.held_out.split_of(task("other", "train", "exam")) == "test"


@pytest.mark.slow
def test_a_recall_of_another_process_goes_on_and_does_not_find_it(
    memory: ExperienceStore, workspace: Path
) -> None:
    asking = (
        "import sys; from pathlib import Path; from recreate.memory.store import"
        " ExperienceStore\nstore = ExperienceStore(Path('.'), 'hashed'); store.recall('quote', 3);"
        " print('ready', flush=True)\nsys.stdin.readline()\nprint([h.experience for h in"
        f" store.recall('{WORD}', 8)])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", asking],
        cwd=workspace,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        forgetting.forget(memory, ["5ec12e70aaaa"])
        other.stdin.write("\n")
        other.stdin.flush()
        found = other.stdout.read()
    assert other.returncode == 0
    assert "5ec12e70aaaa" not in found
    assert "5ec12e70bbbb" in found


def test_what_still_has_it_is_named(
    memory: ExperienceStore, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "runs" / "one" / "attempts" / "5ec12e70aaaa").mkdir(parents=True)
    for kind in ("memory", "examples"):
        carried = workspace / "scaffolds" / "toy" / kind / "spell.md"
        carried.parent.mkdir(parents=True)
        carried.write_text("# Spell it\n\nAs it is.\n\nborn_of: 5ec12e70aaaa\n")
    assert cli(["memory", "forget", "5ec12e70aaaa", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "still has it: runs/one/attempts/5ec12e70aaaa" in said
    assert "still has it: scaffolds/toy/memory/spell.md" in said
    assert "still has it: scaffolds/toy/examples/spell.md" in said


def test_a_beginning_must_mean_one_thing(
    memory: ExperienceStore, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["memory", "forget", "5ec12e70", "--yes", "--json"]) == 2
    assert "5ec12e70aaaa, 5ec12e70bbbb" in json.loads(capsys.readouterr().out)["error"]["fix"]
    assert cli(["memory", "forget", "nothing", "--yes"]) == 2
    assert cli(["memory", "forget", "", "--yes"]) == 2
    assert memory.get("5ec12e70aaaa") is not None


def test_the_files_of_a_run_that_name_what_was_forgotten_are_named_and_no_others(
    memory: ExperienceStore,
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # shorter than the id: it stands in several blocks
    monkeypatch.setattr("recreate.plugins.memory_tools.forget.BLOCK", 7)
    run = workspace / "runs" / "one"
    (run / "memory").mkdir(parents=True)
    (run / "attempts" / "5ec12e70aaaa").mkdir(parents=True)
    for name in ("report.html", "journal.jsonl", "checkpoint.sqlite", "memory/91bc.json"):
        (run / name).write_bytes(b"\x00 some words before 5ec12e70aaaa and after")
    (run / "ledger.jsonl").write_text("5ec12e70bbbb")
    (run / "link").symlink_to(run / "journal.jsonl")
    os.mkfifo(run / "pipe")
    assert cli(["memory", "forget", "5ec12e70aaaa", "--yes"]) == 0
    named = [
        line.removeprefix("still has it: runs/one/")
        for line in capsys.readouterr().out.splitlines()
    ]
    found = [
        name for name in named if name in {p.relative_to(run).as_posix() for p in run.rglob("*")}
    ]
    assert found == [
        "attempts/5ec12e70aaaa",
        "checkpoint.sqlite",
        "journal.jsonl",
        "memory/91bc.json",
        "report.html",
    ]

"""Whatever a build writes down, nothing of it may name a task: not one of its batch, and not one
that is held out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.errors import Fault
from recreate.api.types import (
    Change,
    Edit,
    Evidence,
    Experience,
    Grade,
    Lesson,
    Review,
    Split,
    Step,
    Task,
    Trace,
)
from recreate.lessons.context import PolicyContext, new_lesson
from recreate.lessons.store import LessonStore
from recreate.memory.store import ExperienceStore
from tests.builder.test_acceptance import proposing
from tests.toy import LESSON, Toy, write_script

FLAGS: dict[str, Any] = {
    "rounds": 1,
    "sandbox": "none",
    "memory__embedder": "hashed",
    "models__retries": 0,
}
TOLD = {
    "validation": (
        "The lighthouse keeper counts seventeen herring gulls above the northern pier before"
        " breakfast is served, and nobody in the village has ever asked him why he does not count"
        " the puffins as well."
    ),
    "test": (
        "When the brass orrery strikes noon the second moon stands still for a moment, which the"
        " clockmaker of Ravenna calls a courtesy and his apprentice calls a bent tooth in the third"
        " wheel from below."
    ),
}


class Telling(Toy):
    """The toy whose held-out tasks say more; its answers and hidden tests are its own to tell."""

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            t.model_copy(
                update={"prompt": f"{t.prompt} {TOLD[t.split]}" if t.split in TOLD else t.prompt}
            )
            for t in super().tasks(split)
        ]

    def hidden(self, task: Task) -> list[str]:
        return (
            [f"assert courtesy_of(orrery) == 'Quetzalcoatlus {task.id}'"]
            if task.split == "test"
            else []
        )


def proposed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, *texts: str, of: type[Toy] = Telling
) -> tuple[list[str], Any]:
    monkeypatch.setattr("tests.builder.test_acceptance.Toy", of)
    wants, made, _ = proposing(
        workspace,
        lambda cited: [
            Edit(path=f"memory/l{n}.md", new=t, evidence=(cited,)) for n, t in enumerate(texts)
        ],
    )
    return [told[0] if told else "" for told in wants.told], made


def test_ids_words_and_answers_of_validation_and_test_are_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = TOLD["test"].split()
    texts = [
        "Do as in toy:validation:3.",
        "Do as in toy:test:2.",
        f"Remember: {TOLD['validation']}",
        " ".join(words[5:13]),
        "Call courtesy_of first.",
        "Say Quetzalcoatlus toy:test:2.",
        LESSON,
    ]
    told, made = proposed(workspace, monkeypatch, *texts)
    assert all(why for why in told[:-1])
    assert told[-1] == ""
    assert [e.new for e in made.revisions[0].edits] == [LESSON]
    for text, why in zip(texts, told, strict=True):
        unsaid = [w for w in (*words, *TOLD["validation"].split()) if w not in text and len(w) > 7]
        assert not any(word in why for word in unsaid), why


def test_lessons_and_prompts_that_tell_to_game_the_grader_are_refused(workspace: Path) -> None:
    texts = {
        "memory/l0.md": "Delete the failing tests.",
        "workflow.md": "Call sys.exit(0) as the last thing.",
        "memory/l1.md": LESSON,
    }
    wants, made, _ = proposing(
        workspace,
        lambda cited: [Edit(path=p, new=f"\n{t}\n", evidence=(cited,)) for p, t in texts.items()],
    )
    first, second, third = wants.told
    assert first == ["memory/l0.md tells to change what grades: Delete the failing tests."]
    assert second == [
        "workflow.md tells to end the process as if all were well: Call sys.exit(0) as the last"
        " thing."
    ]
    assert third == []
    assert [e.path for e in made.revisions[0].edits] == ["memory/l1.md"]


def test_a_lesson_is_looked_at_as_it_would_stand_not_edit_by_edit(workspace: Path) -> None:
    def wanted(cited: Evidence) -> list[Edit]:
        return [
            Edit(path="memory/l.md", new="Read the tests.", evidence=(cited,)),
            Edit(path="memory/l.md", old="Read", new="Delete", evidence=(cited,)),
        ]

    _, made, _ = proposing(workspace, wanted)
    assert made.revisions[0].kept is False or "Delete" not in made.scaffold.files.get(
        "memory/l.md", ""
    )
    assert [e.new for e in made.revisions[0].edits] == ["Read the tests."]


class Equipped(Telling):
    """Its sandboxes have pandas, and an answer uses it."""

    def packages(self) -> list[str]:
        return ["pandas==1.5.3"]

    def hidden(self, task: Task) -> list[str]:
        return (
            ["found = gulls.drop_duplicates()\nprint(found.count_of_gulls)"]
            if task.split == "test"
            else []
        )


def test_an_edit_may_say_names_of_the_packages_that_the_domain_brings_and_of_no_others(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["Call drop_duplicates first.", "Call count_of_gulls first."]
    told, _ = proposed(workspace, monkeypatch, *texts, of=Equipped)
    assert (told[0], "count_of_gulls" in told[1]) == ("", True)


def test_a_tool_that_carries_an_answer_is_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.builder.test_acceptance.Toy", Telling)
    tool = f'"""Answers."""\n\nANSWERS = ["{TOLD["test"]}"]\n'
    wants, made, _ = proposing(
        workspace, lambda cited: [Edit(path="tools/answer.py", new=tool, evidence=(cited,))]
    )
    assert "copies the text of a held-out task" in wants.told[0][0]
    assert made.revisions == ()


def test_what_was_handed_in_at_the_cited_attempt_is_no_lesson(workspace: Path) -> None:
    file = workspace / "script.jsonl"
    write_script(file)
    answer = "one_of_a_kind_answer"
    file.write_text(file.read_text().replace("'w", f"'{answer} w"))
    seen: list[list[str]] = []

    class Copies:
        def __init__(self, context: Any) -> None:
            self.context = context

        def propose(self, scaffold: Any, experiences: Sequence[Experience]) -> list[Edit]:
            cited = (Evidence(experience=experiences[0].id, step=0),)
            edit = Edit(path="system.md", new=f"\nSay {answer}.\n", evidence=cited)
            seen.append(self.context.validate(scaffold, [edit]))
            return [edit]

    made = recreate.build(Toy(), model=f"scripted:{file}", optimizer=Copies, **FLAGS)
    assert f"names {answer!r}" in seen[0][0]
    assert made.revisions == ()


def imported(id: str, split: Split, prompt: str, answer: str) -> Experience:
    """What another tool recorded of a task that the domain does not have."""
    task = f"toy:imported:{id}"
    steps = (Step(step=0, reply="looked", action="ls"),)
    trace = Trace(attempt=id, task=task, scaffold="s", model="m", steps=steps, answer=answer)
    grade = Grade(score=1.0, passed=True)
    about = {"domain": "toy", "group": task, "split": split, "digest": "d"}
    return Experience(id=id, task=task, prompt=prompt, trace=trace, grade=grade, **about)


def test_imported_tasks_are_scanned_for_like_the_domains_own(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ExperienceStore(workspace).add(
        [
            imported(
                "aaaa",
                "train",
                "Paint the zeppelin hangar in the colours of an unripe apricot.",
                "apricot_hue",
            ),
            imported(
                "bbbb",
                "test",
                "Tune the harpsichord to the whistle of the passing night train.",
                "whistle_of_a",
            ),
        ]
    )
    told, _ = proposed(
        workspace,
        monkeypatch,
        "Paint the zeppelin hangar in the colours of an apricot.",
        "As in toy:imported:aaaa.",
        "The harpsichord to the whistle of the passing night.",
        "As in toy:imported:bbbb.",
        "Try whistle_of_a.",
    )
    assert all(told)
    assert ["a held-out task" in why for why in told] == [False, False, True, True, True]


@pytest.mark.parametrize("path", ["lessons", "patterns"])
def test_a_lesson_in_memory_that_names_a_held_out_task_is_not_offered(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    folder = workspace / "memory" / "toy" / path
    folder.mkdir(parents=True)
    head = '+++\nscope = "domain"\nstatus = "active"\n+++\n'
    (folder / "bad.md").write_text(f"{head}# Of the moon\n\n{TOLD['test']}\n")
    (folder / "good.md").write_text(f"{head}# How answers end\n\n{LESSON}\n")
    heard: list[str] = []
    say = lambda event, facts: heard.append(facts["text"]) if event == "note" else None  # noqa: E731
    model = write_script(workspace / "script.jsonl")
    made = recreate.build(
        Telling(), model=model, memory="recreate", optimizer=Silent, say=say, **FLAGS
    )
    (stored,) = (made.run / "memory").glob("*.json")
    assert [x["id"] for x in json.loads(stored.read_text())] == ["good"]
    assert any(
        text.startswith("the lesson bad is not used: it copies the text of a held-out task")
        for text in heard
    )


class Silent:
    def propose(self, scaffold: Any, experiences: Sequence[Experience]) -> list[Edit]:
        return []


class Gossip:
    """A stranger's policy: of a batch it learns what it should not know, and something else."""

    reruns: list[float | None] = []  # noqa: RUF012

    def __init__(self, context: PolicyContext) -> None:
        self.context = context

    def observe(self, experiences: Sequence[Experience]) -> list[Change]:
        ids = tuple(e.id for e in experiences)
        bad = Lesson(id="bad", title="Of the moon", body=TOLD["test"], born_of=ids, status="active")
        good = Lesson(
            id="good",
            title="How answers end",
            body=LESSON,
            born_of=ids,
            status="merged",
            merged_into="bad",
        )
        Gossip.reruns = [
            self.context.rerun([bad], experiences[0]),
            self.context.rerun([good], experiences[0]),
        ]
        self.context.lessons.update(bad=bad, good=good)
        return [Change(kind="born", lesson="bad"), Change(kind="merged", lesson="good")]

    def offer(self, query: str, budget: int) -> list[Lesson]:
        return []


def test_a_lesson_that_names_a_held_out_task_is_neither_tried_nor_learned(workspace: Path) -> None:
    model = write_script(workspace / "script.jsonl")
    made = recreate.build(Telling(), model=model, memory=Gossip, optimizer=Silent, **FLAGS)
    assert Gossip.reruns == [None, 1.0]
    name = "tests.builder.test_leaks:Gossip"
    (good,) = LessonStore(workspace / "memory", "toy", name).read().values()
    assert (good.id, good.status, good.merged_into) == ("good", "candidate", "")
    (learned,) = [
        json.loads(x)
        for x in (made.run / "journal.jsonl").read_text().splitlines()
        if json.loads(x)["kind"] == "memory"
    ][:1]
    assert [c["lesson"] for c in learned["changes"]] == ["good"]


class Asking(Toy):
    """Toy with enough train tasks that a word may be one task's own; one is about zeppelins."""

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        made = list(super().tasks(split))
        first = super().tasks("train")[0]
        more = [
            first.model_copy(update={"id": f"toy:more:{n}", "group": f"more-{n}"})
            for n in range(20)
        ]
        zeppelin = (
            "Write the word number 0 of the train list to the file answer.txt."
            + " It is about zeppelins."
        )
        if split not in (None, "train"):
            return made
        return [
            *(
                t.model_copy(update={"prompt": zeppelin}) if t.id == "toy:train:0" else t
                for t in made
            ),
            *more,
        ]


class Bullets:
    """A policy that makes of what it observes one rule about a task's things, and one for all."""

    def __init__(self, context: PolicyContext) -> None:
        self.context = context

    def observe(self, experiences: Sequence[Experience]) -> list[Change]:
        for title, body in (
            ("Of the airship", "Review the zeppelin."),
            ("How answers end", LESSON),
        ):
            other = [e for e in experiences if e.group != "train-0"][:1]
            lesson = new_lesson("toy", title, body, other).model_copy(update={"status": "active"})
            self.context.lessons[lesson.id] = lesson
        return []

    def offer(self, query: str, budget: int) -> list[Lesson]:
        return list(self.context.lessons.values())


def test_a_rule_about_the_things_of_one_task_of_the_batch_is_not_learned(workspace: Path) -> None:
    heard: list[str] = []
    say = lambda event, facts: heard.append(facts["text"]) if event == "note" else None  # noqa: E731
    model = write_script(workspace / "script.jsonl")
    flags = {**FLAGS, "train": 28, "batch": 28, "memory": Bullets}
    recreate.build(Asking(), model=model, optimizer=Silent, say=say, **flags)
    stored = [p.read_text() for p in (workspace / "memory" / "toy").glob("**/*.md")]
    assert [LESSON in text for text in stored] == [True]
    assert any(
        "it says 'zeppelin', as train-0 does and no other train task" in text for text in heard
    )


@pytest.mark.slow
def test_a_persons_edit_of_a_candidate_is_scanned_too(workspace: Path) -> None:
    model = write_script(workspace / "script.jsonl")
    said: list[str] = []

    def reviewer(revision: Any, parent: Any, child: Any) -> Review:
        worse = {**child.files, "system.md": child.files["system.md"] + f"\n{TOLD['validation']}\n"}
        said.append("asked")
        return Review(decision="edit", files=worse) if len(said) == 1 else Review(decision="accept")

    heard: list[str] = []
    say = lambda event, facts: heard.append(facts["text"]) if event == "note" else None  # noqa: E731
    made = recreate.build(Telling(), model=model, review=reviewer, say=say, **FLAGS)
    assert any(
        "cannot be used: edit 1 (system.md) copies the text of a held-out task" in text
        for text in heard
    )
    assert (len(said), [r.review for r in made.revisions]) == (2, ["accepted"])


class Unknown(Toy):
    def hidden(self, task: Task) -> list[str]:
        raise Fault("the index cannot be reached", code="download")


def test_a_build_goes_on_where_answers_cannot_be_had_and_says_so(workspace: Path) -> None:
    model = write_script(workspace / "script.jsonl")
    heard: list[str] = []
    say = lambda event, facts: heard.append(facts["text"]) if event == "note" else None  # noqa: E731
    made = recreate.build(Unknown(), model=model, say=say, **FLAGS)
    assert [r.kept for r in made.revisions] == [True]
    (note,) = [text for text in heard if "answers of" in text]
    assert note.startswith(
        "the answers of 22 of 22 tasks are not known here (toy:train:0: the index cannot be"
        " reached)"
    )

"""A person decides: what is offered, what becomes of it, what a kill cannot lose. Whole builds on
the toy domain."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents import scaffold as scaffolds
from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.api.types import Edit, Evidence, Review, Revision, Verdict
from recreate.builder.loop import BuildResult, build
from recreate.builder.review import Reviewer, human_edits
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import open_session
from recreate.viewer import markdown
from recreate.viewer.facts import RunFacts
from tests.toy import LESSON, script

pytestmark = pytest.mark.plugin("each")

Go = Callable[..., tuple[BuildResult, Run]]
ACCEPT = Review(decision="accept")
REJECT = Review(decision="reject", reason="it shouts")
OTHER = "Put an exclamation mark behind every answer."
SEED = scaffolds.load(shipped("scaffolds") / "seed")


class Person:
    """Gives prepared answers in order and remembers what it was shown; without one left, it goes
    away."""

    def __init__(self, *answers: Review | Callable[[Scaffold], Mapping[str, str]] | None) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[Revision, Scaffold, Scaffold]] = []

    def __call__(self, revision: Revision, parent: Scaffold, child: Scaffold) -> Review | None:
        self.seen.append((revision, parent, child))
        said = self.answers.pop(0) if self.answers else None
        return Review(decision="edit", files=said(child)) if callable(said) else said


def rows(**also: str) -> list[dict[str, Any]]:
    """The toy script, with OTHER understood too; `also`: what the optimizer's prompt holds -> the
    lesson it writes."""
    made = script()
    study = next(r for r in made if r["role"] == "optimizer")
    more = [{**r, "contains": OTHER} for r in made if r.get("contains") == LESSON]
    more += [
        {**study, "contains": k, "text": study["text"].replace(LESSON, v)} for k, v in also.items()
    ]
    return [*more, *made]


@pytest.fixture
def go(workspace: Path) -> Go:
    """Build with --review on the toy domain, or go on with the same folder."""

    def go(
        person: Reviewer | None = None, lines: list[dict[str, Any]] | None = None, **flags: Any
    ) -> tuple[BuildResult, Run]:
        file = workspace / "script.jsonl"
        file.write_text("".join(json.dumps(r) + "\n" for r in lines or rows()))
        values: dict[str, Any] = {
            "domain": "tests.toy:Toy",
            "model": f"scripted:{file}",
            "rounds": 2,
            "review": True,
        }
        values |= {"train": 4, "validation": 6, "sandbox": "none", "memory.embedder": "hashed"}
        # six tasks: what is asked, and not how sure the gate is
        values |= {"gate.false_keep": 0, **flags}
        folder = workspace / "runs" / "a"
        resume = (folder / "settings.toml").exists()
        session = open_session(
            settings.load(workspace, values, {}), workspace, folder, resume=resume
        )
        try:
            return build(session, SEED, review=person), Run(folder)
        finally:
            session.close()

    return go


def edited(path: str, text: str) -> Callable[[Scaffold], Mapping[str, str]]:
    return lambda child: {**child.files, path: text}


def lesson(child: Scaffold) -> str:
    return next(p for p in child.files if p.startswith("memory/"))


def reworded(child: Scaffold) -> Mapping[str, str]:
    return {**child.files, lesson(child): child.files[lesson(child)].replace(LESSON, OTHER)}


def spoiled(child: Scaffold) -> Mapping[str, str]:
    return {**child.files, lesson(child): "# Calm\n\nThink twice.\n"}


def words(run: Run) -> list[tuple[str, str]]:
    return [(r["decision"], r["reason"]) for r in run.records("review")]


def branches(run: Run) -> set[str]:
    return {e.branch for e in History(run.folder / "scaffold.git").log()}


# ---------------------------------------------------------------------------------------------- the
# decisions


@pytest.mark.slow
def test_an_accepted_candidate_is_kept_and_the_build_goes_on_from_it(go: Go) -> None:
    person = Person(ACCEPT)
    built, run = go(person)
    assert [(r.kept, r.review) for r in built.revisions] == [(True, "accepted")]
    assert (built.status, built.waiting, built.verdict.after) == ("done", None, 1.0)
    revision, parent, child = person.seen[0]
    assert (parent.digest, child.digest) == (built.seed.digest, built.scaffold.digest)
    assert (revision.verdict.verdict, revision.edits[0].reason) == (
        "better",
        "The grader wants a mark at the end.",
    )
    assert branches(run) == {"main"}
    assert "A person accepted." in markdown.report(RunFacts(run, built))


def test_a_dropped_candidate_is_not_shown_to_the_person(go: Go) -> None:
    person = Person()
    built, _ = go(person, script(learns=False))
    assert (person.seen, [r.kept for r in built.revisions]) == ([], [False])


@pytest.mark.slow
def test_the_optimizer_reads_why_a_person_rejected_it_and_proposes_another(go: Go) -> None:
    person = Person(REJECT, ACCEPT)
    built, run = go(person, rows(**{"(a person rejected: it shouts)": OTHER}))
    assert [(r.kept, r.review) for r in built.revisions] == [
        (False, "rejected: it shouts"),
        (True, "accepted"),
    ]
    assert [x.body for x in built.scaffold.lessons] == [OTHER]
    assert words(run) == [("reject", "it shouts"), ("accept", "")]
    assert branches(run) == {"main", f"dropped/{built.revisions[0].id}"}


def test_the_very_same_edit_is_refused_after_a_rejection(go: Go) -> None:
    person = Person(REJECT, ACCEPT)
    built, run = go(person)
    assert [r.review for r in built.revisions] == ["rejected: it shouts"]
    assert len(person.seen) == 1
    assert built.scaffold.digest == built.seed.digest
    assert len(list(run.records("nothing"))) == 1


@pytest.mark.slow
def test_an_edited_candidate_is_judged_and_then_offered_itself(go: Go) -> None:
    person = Person(reworded, ACCEPT)
    built, run = go(person)
    first, second = built.revisions
    assert (first.kept, first.review) == (
        False,
        f"rejected: a person's edit of it, {second.id}, replaced it",
    )
    assert (second.kept, second.review, second.verdict.verdict) == (True, "accepted", "better")
    assert [(e.path.split("/")[0], e.origin) for e in second.edits] == [("memory", "human")]
    assert second.parent == built.seed.digest
    assert [x.body for x in built.scaffold.lessons] == [OTHER]
    assert [revision.id for revision, _, _ in person.seen] == [first.id, second.id]
    assert branches(run) == {"main", f"dropped/{first.id}"}
    assert Run(run.folder).validation(built.seed.digest, second.id) == second.verdict


@pytest.mark.slow
def test_an_edit_that_does_not_help_is_dropped_and_the_candidate_offered_again(go: Go) -> None:
    person = Person(spoiled, ACCEPT)
    built, _ = go(person)
    dropped, kept = built.revisions
    assert (dropped.kept, dropped.review, dropped.verdict.verdict) == (False, "", "not-better")
    assert [revision.id for revision, _, _ in person.seen] == [kept.id, kept.id]
    assert [x.body for x in built.scaffold.lessons] == [LESSON]


@pytest.mark.slow
def test_an_edit_whose_gain_may_be_chance_is_dropped_and_the_candidate_offered_again(
    go: Go,
) -> None:
    still = {f"toy:validation:{n}" for n in range(2, 8)}
    person = Person(reworded, ACCEPT)
    built, _ = go(
        person, [r for r in rows() if not (r.get("contains") == OTHER and r.get("task") in still)]
    )
    dropped, kept = built.revisions
    assert (dropped.kept, dropped.verdict.verdict) == (False, "undecided")
    assert (dropped.verdict.diff or 0) > 0
    assert [revision.id for revision, _, _ in person.seen] == [kept.id, kept.id]


@pytest.mark.slow
def test_a_files_edits_by_the_optimizer_keep_their_evidence_when_a_person_edits_another(
    go: Go,
) -> None:
    built, _ = go(Person(edited("system.md", SEED.files["system.md"] + "\nBe brief.\n"), ACCEPT))
    ours, theirs = built.revisions[1].edits
    assert (ours.origin, len(ours.evidence)) == ("experience", 1)
    assert (theirs.path, theirs.origin, theirs.new.strip()) == ("system.md", "human", "Be brief.")


def test_what_cannot_be_used_is_told_and_asked_again(go: Go) -> None:
    person = Person(
        edited("system.md", "{{ nonsense }}"),
        lambda child: child.files,
        edited("../x", "y"),
        lambda child: SEED.files,
        Review(decision="reject"),
        ACCEPT,
    )
    built, run = go(person)
    assert len(person.seen) == 6
    assert words(run) == [("accept", "")]
    assert [r.kept for r in built.revisions] == [True]


def test_the_same_unusable_answer_twice_is_an_error_not_an_endless_question(go: Go) -> None:
    with pytest.raises(BadInput, match="needs a reason"):
        go(Person(*[Review(decision="reject")] * 3))
    built, _ = go(Person(ACCEPT))
    assert built.revisions[0].kept


def test_a_person_may_edit_what_is_protected_and_even_unprotect_it(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = 'protect = ["system.md", "agent.toml"]\n' + SEED.files["agent.toml"]
    guarded = Scaffold(name="seed", files={**SEED.files, "agent.toml": toml})
    monkeypatch.setattr("tests.builder.test_review.SEED", guarded)
    free = {"system.md": SEED.files["system.md"] + "Be brief.\n", "agent.toml": "samples = 1\n"}
    built, _ = go(Person(lambda child: {**child.files, **free}, ACCEPT))
    assert {p: built.scaffold.files[p] for p in free} == free
    assert built.scaffold.agent.protect == ()


# ------------------------------------------------------------------------------------- pausing,
# kills, resuming


def test_without_a_reviewer_the_build_waits_and_goes_on_later_without_a_call_made_twice(
    go: Go,
) -> None:
    built, run = go()
    assert built.status == "review"
    assert built.waiting is not None
    assert (built.scaffold.digest, built.revisions) == (built.seed.digest, ())
    assert run.waiting() == built.waiting
    assert branches(run) >= {f"review/{built.waiting.id}"}
    calls = len(list(run.records("reply")))
    again, run = go(Person())  # comes, and leaves without a word
    assert (again.waiting, len(list(run.records("reply")))) == (built.waiting, calls)
    done, run = go(Person(ACCEPT))
    assert (done.status, done.revisions[0].id, run.waiting()) == ("done", built.waiting.id, None)
    calls_made = [r["call"] for r in run.records("reply")]
    assert len(calls_made) == len(set(calls_made))
    assert len(list(run.records("candidate"))) == 1


class Killed(BaseException):
    """Stands for a kill: nothing in recreate catches it."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "place", "answers"),
    [
        ("before", "recreate.runs.journal.Journal.add candidate", (ACCEPT,)),
        ("after", "recreate.runs.journal.Journal.add candidate", (ACCEPT,)),
        ("before", "recreate.runs.journal.Journal.add review", (ACCEPT,)),
        ("after", "recreate.runs.journal.Journal.add review", (ACCEPT,)),
        ("after", "recreate.agents.history.History.commit Kept", (ACCEPT,)),
        ("after", "recreate.runs.journal.Journal.add revision", (ACCEPT,)),
        ("after", "recreate.runs.journal.Journal.add revision", (REJECT,)),
        ("after", "recreate.runs.journal.Journal.add review", (reworded, ACCEPT)),
        ("after", "recreate.runs.journal.Journal.add revision", (reworded, ACCEPT)),
        ("after", "recreate.runs.journal.Journal.add revision", (spoiled, ACCEPT)),
    ],
)
def test_a_kill_around_a_decision_loses_nothing_and_asks_nothing_twice(
    go: Go, monkeypatch: pytest.MonkeyPatch, when: str, place: str, answers: tuple[Any, ...]
) -> None:
    name, what = place.split()
    person, real, dead = Person(*answers), pkgutil.resolve_name(name), []

    def deadly(*given: Any, **named: Any) -> Any:
        hit = not dead and any(str(x).startswith(what) for x in given[1:])
        dead.extend([1] * hit)
        if hit and when == "before":
            raise Killed
        value = real(*given, **named)
        if hit:
            raise Killed
        return value

    monkeypatch.setattr(name, deadly)
    with pytest.raises(Killed):
        go(person, rounds=1)
    asked = len(person.seen)
    built, run = go(person, rounds=1)
    # the word was not on disk yet: the one case that asks again
    if (when, what) == ("before", "review"):
        assert len(person.seen) == asked + 1
        return
    assert person.answers == []
    assert len(person.seen) == len(answers)
    assert len(list(run.records("review"))) == len(answers)
    assert (
        len({r.id for r in built.revisions})
        == len(built.revisions)
        == len(list(run.records("revision")))
    )
    assert built.status == "done"
    assert [r.review for r in built.revisions][-1] == (
        "rejected: it shouts" if REJECT in answers else "accepted"
    )
    assert not [b for b in branches(run) if b.startswith("review/")]


@pytest.mark.slow
def test_the_budget_may_end_while_an_edit_is_judged_and_the_word_still_stands(go: Go) -> None:
    person = Person(reworded, ACCEPT)
    # 6 parent, 4 train, 6 candidate: 2 are left
    built, _ = go(person, rounds=1, budget=("18attempts",))
    assert (built.status, len(person.seen)) == ("budget", 1)
    built, run = go(person, rounds=1, budget=("40attempts",))
    assert (built.status, len(person.seen)) == ("done", 2)
    assert [r.review for r in built.revisions][-1] == "accepted"
    assert words(run) == [("edit", ""), ("accept", "")]


@pytest.mark.slow
def test_thinking_takes_nothing_of_the_runs_minutes(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("recreate.runs.budget.time.monotonic", lambda: clock[0])

    def slow(*offer: Any) -> Review:
        clock[0] += 3600
        return ACCEPT

    built, run = go(slow, budget=("30min",))
    assert built.status == "done"
    assert run.spend().minutes == 0


# -------------------------------------------------------------------------------------------------
# pure parts

VERDICT = Verdict(before=0, after=1, diff=1, lo=1, hi=1, p=0, tasks=5, repeats=1, verdict="better")
texts = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "a", "\r\n", "é\u2028"]), max_size=6).map(
    "".join
)
files = st.dictionaries(
    st.sampled_from(["system.md", "workflow.md", "tools/x.py", "memory/y.md"]),
    texts.filter(bool),
    min_size=0,
)


@given(files, files)
def test_a_persons_edits_lead_from_the_parent_to_what_they_wrote(
    a: dict[str, str], b: dict[str, str]
) -> None:
    must = {"agent.toml": "", "system.md": "s", "workflow.md": "w"}
    parent, end = Scaffold(name="x", files={**must, **a}), Scaffold(name="x", files={**must, **b})
    offered = Revision(id="c", parent="p", round=0, edits=(), verdict=VERDICT, kept=False)
    edits = human_edits(parent, offered, parent, end, "why")
    assert scaffolds.apply(parent, edits).files == end.files
    assert {(e.origin, e.reason) for e in edits} <= {("human", "why")}


def test_a_file_that_a_person_put_back_brings_no_edit() -> None:
    edit = Edit(path="system.md", new="more", evidence=(Evidence(experience="e", step=0),))
    child = scaffolds.apply(SEED, [edit])
    offered = Revision(id="c", parent="p", round=0, edits=(edit,), verdict=VERDICT, kept=False)
    end = child.model_copy(update={"files": {**SEED.files, "format.md": "Again: {{ error }}\n"}})
    assert [e.path for e in human_edits(SEED, offered, child, end, "why")] == ["format.md"]

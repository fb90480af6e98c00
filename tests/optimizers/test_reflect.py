"""What the optimizer may propose, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold, apply
from recreate.agents.template import read_object
from recreate.agents.trajectory import clusters, signature, tell, uncited
from recreate.api.paths import shipped
from recreate.api.types import Edit, Evidence, Experience, Grade, Reply, Step, Trace
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.reflect import MOST_CALLS, Idea, Reflect, editable, merge, to_edit

SEED = scaffolds.load(shipped("scaffolds") / "seed")


def experience(
    n: int, passed: bool = False, split: Any = "train", evidence: str = "ValueError: no"
) -> Experience:
    steps = (
        Step(step=0, reply="```bash\nls\n```", action="ls", output="a b"),
        Step(step=1, reply="x", kind="malformed"),
    )
    trace = Trace(
        attempt=f"e{n}", task=f"t{n}", scaffold="s", model="m", steps=steps, answer="an answer"
    )
    return Experience(
        id=f"e{n}",
        domain="d",
        task=f"t{n}",
        group=f"g{n}",
        split=split,
        prompt=f"Do {n}",
        digest="s",
        trace=trace,
        grade=Grade(score=float(passed), passed=passed, evidence=evidence),
    )


def context(
    answers: Sequence[str], asked: list[Any] | None = None, complaint: str = ""
) -> OptimizerContext:
    left = list(answers)

    def ask(messages: Any, *, step: int, thread: str = "", **params: Any) -> Reply:
        if asked is not None:
            asked.append((step, messages, params))
        return Reply(text=left.pop(0))

    def complain(scaffold: Scaffold, edits: Sequence[Edit]) -> list[str]:
        return [complaint] if complaint and any(complaint in e.new for e in edits) else []

    return OptimizerContext(
        ask=ask, recall=lambda q, k, f: [], get=lambda id: None, validate=complain
    )


def idea(
    text: str, file: str = "new lesson", line: int = 0, title: str = "T", cites: str = "e1"
) -> Idea:
    return Idea(file, line, title, text, "because", (Evidence(experience=cites, step=0),))


def study(*edits: dict[str, Any]) -> str:
    rows = [
        {"line": 0, "title": "T", "reason": "r", "experience": "e1", "step": 0, **e} for e in edits
    ]
    return json.dumps({"why": "w", "cause": "strategy", "edits": rows})


def test_failures_are_studied_and_the_edit_cites_what_it_was_shown() -> None:
    asked: list[Any] = []
    found = Reflect(context([study({"file": "new lesson", "text": "Look first."})], asked)).propose(
        SEED, [experience(1), experience(2, passed=True)]
    )
    assert [e.evidence for e in found] == [(Evidence(experience="e1", step=0),)]
    prompt = asked[0][1][0]["content"]
    assert "e1: FAILED" in prompt
    assert "e2: PASSED" in prompt
    assert asked[0][2]["json_schema"]["properties"]["edits"]["items"]["properties"]["experience"][
        "enum"
    ] == [
        "e1",
        "e2",
    ]


def test_no_proposal_asks_more_than_a_plan_says() -> None:
    """The dearest batch: as many clusters as are looked at, each sent back once, and ideas to
    distil."""
    failures = [
        experience(n, evidence=f"{error}: no")
        for n, error in enumerate(("KeyError", "OSError", "TypeError"))
    ]
    advice = [
        json.dumps({"why": "w", "advice": f"Look {n} times.", "experience": f"e{n}", "step": 0})
        for n in range(3)
    ]
    asked: list[Any] = []

    def ask(messages: Any, **params: Any) -> Reply:
        asked.append(messages)
        told = "".join(str(m["content"]) for m in messages)
        shown = next((n for n in range(3) if f"experience e{n}" in told), 0)
        return Reply(text="no object" if len(asked) % 2 else advice[shown])

    made = OptimizerContext(
        ask=ask, recall=lambda q, k, f: [], get=lambda id: None, validate=lambda s, e: []
    )
    Reflect(made).propose(SEED, failures)
    assert len(asked) == MOST_CALLS
    page = (Path(__file__).parents[2] / "docs" / "optimizers.md").read_text()
    assert f"| up to {MOST_CALLS} |" in page
    assert f"| up to n x {MOST_CALLS}," in page


def test_nothing_failed_nothing_is_asked() -> None:
    assert Reflect(context([])).propose(SEED, [experience(1, passed=True)]) == []


def test_no_change_is_an_honest_outcome() -> None:
    answer = json.dumps({"why": "bad luck", "cause": "none", "edits": []})
    assert Reflect(context([answer])).propose(SEED, [experience(1)]) == []


def test_an_idea_that_cannot_be_used_is_sent_back_once_with_the_reason_and_asked_for_less() -> None:
    asked: list[Any] = []
    advice = json.dumps({"why": "w", "advice": "Plain advice.", "experience": "e1", "step": 1})
    answers = [study({"file": "new lesson", "text": "SECRET advice"}), advice]
    found = Reflect(context(answers, asked, complaint="SECRET")).propose(SEED, [experience(1)])
    assert "Plain advice." in found[0].new
    assert found[0].evidence == (Evidence(experience="e1", step=1),)
    assert "cannot be used: SECRET" in asked[1][1][-1]["content"]
    assert "advice" in asked[1][2]["json_schema"]["properties"]


def test_what_is_wrong_twice_is_left_out() -> None:
    answers = [
        study({"file": "new lesson", "text": "SECRET"}),
        study({"file": "new lesson", "text": "SECRET"}),
    ]
    assert Reflect(context(answers, complaint="SECRET")).propose(SEED, [experience(1)]) == []


@pytest.mark.parametrize(
    "reply", ["", "no json", "[1, 2]", '{"edits": 3}', '{"edits": [{"file": 7}]}', "{" * 50]
)
def test_any_reply_is_survived(reply: str) -> None:
    assert Reflect(context([reply, reply])).propose(SEED, [experience(1)]) == []


def test_two_lessons_learnt_in_parallel_both_survive() -> None:
    """A promise: 8 memories are added in parallel there, 2 kept."""
    answers = [
        study({"file": "new lesson", "text": "First."}),
        study({"file": "new lesson", "text": "Second."}),
        json.dumps({"update": [], "rejected": []}),
    ]
    batch = [experience(1), experience(2, evidence="KeyError: other")]
    found = Reflect(
        context([a.replace('"e1"', '"e2"') if i == 0 else a for i, a in enumerate(answers)])
    ).propose(SEED, batch)
    assert len({e.path for e in found}) == 2
    made = apply(SEED, found)
    assert len(made.lessons) == 2


def test_a_tool_only_proposal_survives_a_batch() -> None:
    tool = '"""Says hello."""\nprint("hello")'
    found = Reflect(
        context([study({"file": "new tool", "text": tool, "title": "Say Hello"})])
    ).propose(SEED, [experience(1)])
    assert [e.path for e in found] == ["tools/say_hello.py"]
    assert apply(SEED, found).help("say_hello") == "Says hello."


def test_ideas_that_cite_an_earlier_runs_experience_are_distilled_too() -> None:
    asked: list[Any] = []
    kept = json.dumps({"update": [], "rejected": []})
    here = context([kept, kept], asked)
    here.get = {"e9": experience(9, passed=True, evidence="the earlier one")}.get
    ideas = [idea("A", cites="e1"), idea("B", cites="e9"), idea("C", cites="gone")]
    found = Reflect(here).distil(SEED, ideas, {"e1": experience(1)})
    assert [each.text for each in found] == ["A", "B", "C"]
    assert "Do 9" in str(asked[0][1]) or "the earlier one" in str(asked[0][1])


def test_the_distilled_update_keeps_rejects_and_merges_with_all_evidence() -> None:
    ideas = [
        idea("A", cites="e1"),
        idea("B", cites="e2"),
        idea("C", cites="e3"),
        idea("D", cites="e4"),
    ]
    reply = {
        "update": [
            {
                "ideas": [1, 2],
                "file": "new lesson",
                "line": 0,
                "title": "AB",
                "text": "A and B",
                "reason": "same",
            }
        ],
        "rejected": [{"idea": 3, "why": "one task only"}],
    }
    kept = merge(SEED, ideas, reply, context([]))
    assert [(k.text, [e.experience for e in k.evidence]) for k in kept] == [
        ("A and B", ["e1", "e2"]),
        ("D", ["e4"]),
    ]


KEYS = st.sampled_from(["update", "rejected", "ideas", "idea", "file", "text"])
PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


@given(st.recursive(PLAIN, lambda x: st.lists(x, max_size=3) | st.dictionaries(KEYS, x)))
@pytest.mark.slow
def test_whatever_is_distilled_no_idea_gets_lost_that_was_not_rejected(reply: Any) -> None:
    ideas = [idea("A"), idea("B")]
    found = reply if isinstance(reply, dict) else {"update": reply, "rejected": []}
    rows = found.get("rejected")
    rejected = (
        [r.get("idea") for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []
    )
    kept = merge(SEED, ideas, found, context([]))
    if not any(type(r) is int and r in (1, 2) for r in rejected):
        assert len(kept) >= 1
        assert sum(len(k.evidence) for k in kept) >= 1


def test_a_line_is_replaced_by_its_number_even_when_it_occurs_twice() -> None:
    scaffold = Scaffold(name="s", files={**SEED.files, "format.md": "same\nother\nsame\nend\n"})
    edit = to_edit(scaffold, idea("new", file="format.md", line=3))
    assert edit is not None
    assert apply(scaffold, [edit]).files["format.md"] == "same\nother\nnew\nend\n"


@given(st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=8), st.integers(-1, 9))
def test_every_line_can_be_named(lines: list[str], line: int) -> None:
    text = "\n".join(lines) + "\n"
    scaffold = Scaffold(name="s", files={**SEED.files, "format.md": text})
    edit = to_edit(scaffold, idea("NEW", file="format.md", line=line))
    if line > len(lines):
        assert edit is None
        return
    assert edit is not None
    made = apply(scaffold, [edit]).files["format.md"]
    want = text + "NEW\n" if line == 0 else "NEW\n" if line == -1 else None
    if want is None:
        parts = text.splitlines(keepends=True)
        parts[line - 1] = "NEW\n"
        want = "".join(parts)
    assert made == want


def test_a_file_can_be_deleted_and_a_protected_one_is_not_offered() -> None:
    toml = SEED.files["agent.toml"].replace(
        'action = "bash"', 'action = "bash"\nprotect = ["system.md"]'
    )
    scaffold = Scaffold(
        name="s", files={**SEED.files, "agent.toml": toml, "memory/old.md": "# Old\n\nOld.\n"}
    )
    edit = to_edit(scaffold, idea("", file="memory/old.md", line=-1))
    assert edit is not None
    assert "memory/old.md" not in apply(scaffold, [edit]).files
    assert "system.md" not in editable(scaffold)
    assert "agent.toml" not in editable(scaffold)


def test_evidence_must_exist_and_be_of_train() -> None:
    known = {e.id: e for e in (experience(1), experience(2, split="validation"))}

    def faults(id: str, step: int) -> list[str]:
        return uncited(
            [Edit(path="system.md", new="x", evidence=(Evidence(experience=id, step=step),))], known
        )

    assert faults("e1", 1) == []
    assert "steps 0 to 1" in faults("e1", 2)[0]
    assert "no train experience" in faults("e9", 0)[0]
    assert "validation" in faults("e2", 0)[0]
    assert uncited([Edit(path="system.md", new="x")], known) == ["system.md: cites nothing"]
    assert uncited([Edit(path="system.md", new="x", origin="human")], known) == []


def test_failures_of_one_kind_are_studied_together() -> None:
    batch = [
        experience(1),
        experience(2, evidence="KeyError: k"),
        experience(3),
        experience(4, passed=True),
    ]
    assert [(name, [e.id for e in members]) for name, members in clusters(batch, 3)] == [
        ("submitted, ValueError", ["e1", "e3"]),
        ("submitted, KeyError", ["e2"]),
    ]
    assert signature(batch[3]) == "passed"


def test_a_telling_is_short_and_says_how_it_ended() -> None:
    text = tell(experience(1, evidence="E" * 5000), 1200)
    assert len(text) < 1600
    assert "FAILED" in text
    assert "could not be read" in text


@pytest.mark.parametrize(
    "text",
    ['{"a": 1}', 'Sure:\n```json\n{"a": 1}\n```\n', 'so {"a": 1} it is', '```\n{"a": 1}\n```'],
)
def test_an_object_is_found_in_a_reply(text: str) -> None:
    assert read_object(text) == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        'I kept {{ task.prompt }} as it is.\n\n{"a": 1}',
        '{"a": 1}\n\nThe mark {{ error }} is still there.',
        'The form is {"a": ...}; so:\n{"a": 1}',
        '```JSON\n{"a": 1}\n```',
    ],
)
def test_an_object_is_found_beside_other_braces_that_a_reply_speaks_of(text: str) -> None:
    assert read_object(text) == {"a": 1}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"put it into \(\boxed{n}\)", r"put it into \(\boxed{n}\)"),
        (r"\boxed{n} or \frac{a}{b}", r"\boxed{n} or \frac{a}{b}"),
        (r"grep '\d+\.\w'", r"grep '\d+\.\w'"),
        (r"a\\b \"c\" \u00e4 d\ne", 'a\\b "c" ä d\ne'),
        (r"\user", r"\user"),
    ],
)
def test_a_backslash_that_a_model_forgot_to_escape_does_not_lose_its_reply(
    written: str, meant: str
) -> None:
    assert read_object(f'Here it is:\n```json\n{{"insight": "{written}"}}\n```') == {
        "insight": meant
    }


def test_a_telling_that_fits_is_not_cut() -> None:
    prompt = "A question of several sentences. " * 30
    text = tell(experience(1, evidence="E" * 300).model_copy(update={"prompt": prompt}), 2400)
    assert prompt.strip() in text
    assert "E" * 300 in text


def test_reflect_is_not_shown_what_was_switched_off() -> None:
    answer = json.dumps({"why": "w", "cause": "none", "edits": []})
    for switch, gone in (("trajectory", "step 0"), ("evidence", "ValueError")):
        asked: list[Any] = []
        given = context([answer], asked)
        given.without = (switch,)
        Reflect(given).propose(SEED, [experience(1), experience(2, passed=True)])
        prompt = asked[0][1][0]["content"]
        assert gone not in prompt
        assert "FAILED" in prompt

"""What is accepted of an optimizer's edits, whoever wrote it: what they cite, what they touch,
where they come from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents.config import read_agent
from recreate.agents.scaffold import BadEdit, Scaffold, apply, load
from recreate.api.paths import shipped
from recreate.api.types import Edit, Evidence, Experience, Origin
from recreate.optimizers.context import OptimizerContext
from recreate.runs.reader import Run
from tests.toy import LESSON, Toy, script, write_script

SEED = load(shipped("scaffolds") / "seed")
TOML = SEED.files["agent.toml"]
FLAGS: dict[str, Any] = {
    "rounds": 1,
    "sandbox": "none",
    "memory__embedder": "hashed",
    "models__retries": 0,
}
Wanted = Callable[[Evidence], list[Edit]]


class Wants:
    """A stranger's optimizer: it proposes what it is told to, after asking whether that can be
    used."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.told: list[list[str]] = []

    def __call__(self, context: OptimizerContext) -> Wants:
        self.context = context
        return self

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> list[Edit]:
        edits = self.wanted(Evidence(experience=experiences[0].id, step=0))
        self.told = [self.context.validate(scaffold, [edit]) for edit in edits]
        return edits


def proposing(workspace: Path, wanted: Wanted, **flags: Any) -> tuple[Wants, Any, list[str]]:
    """(the optimizer, the build's outcome, why nothing was judged)."""
    wants = Wants(wanted)
    model = write_script(workspace / "script.jsonl")
    made = recreate.build(Toy(), model=model, optimizer=wants.__call__, **FLAGS, **flags)
    return wants, made, [r["reason"] for r in Run(made.run).records("nothing")]


@pytest.mark.slow
@pytest.mark.parametrize("origin", ["human", "search", "prune", "experience"])
def test_an_optimizers_edit_needs_evidence_whatever_origin_it_claims(
    workspace: Path, origin: Origin
) -> None:
    wants, made, (why,) = proposing(
        workspace, lambda _: [Edit(path="system.md", new=LESSON, origin=origin)]
    )
    assert wants.told == [["system.md: cites nothing"]]
    assert (made.revisions, why) == ((), "system.md: cites nothing")


@pytest.mark.slow
def test_the_loop_says_where_an_edit_comes_from(workspace: Path) -> None:
    _, made, _ = proposing(
        workspace,
        lambda cited: [
            Edit(path="system.md", new=f"\n{LESSON}\n", origin="human", evidence=(cited,))
        ],
    )
    assert [e.origin for e in made.revisions[0].edits] == ["experience"]


def test_what_an_attempt_may_cost_is_no_optimizers_to_change(workspace: Path) -> None:
    changes = {
        "steps = 9000": TOML.replace("steps = 100", "steps = 9000"),
        "usd = 900.0": TOML.replace("usd = 3.0", "usd = 900.0"),
        "steps = 10": TOML.replace("steps = 100", "steps = 10"),
        "samples = 9": TOML.replace('action = "bash"', 'action = "bash"\nsamples = 9'),
        "max_tokens = 9000": TOML.replace("max_tokens = 16384", "max_tokens = 9000"),
        'protect = ["tools/*"]': TOML.replace(
            'action = "bash"', 'action = "bash"\nprotect = ["tools/*"]'
        ),
    }
    assert all(text in toml and not read_agent(toml)[1] for text, toml in changes.items())
    wants, made, why = proposing(
        workspace,
        lambda cited: [
            Edit(path="agent.toml", old=TOML, new=c, evidence=(cited,)) for c in changes.values()
        ],
    )
    keys = [told[0].split(": ")[1] for told in wants.told]
    assert keys == ["limits", "limits", "limits", "samples", "model", "protect"]
    assert (len(why), made.revisions) == (1, ())
    assert made.scaffold.files["agent.toml"] == TOML


def test_an_edit_that_names_what_an_agent_handed_in_is_refused(workspace: Path) -> None:
    file = workspace / "answers.jsonl"
    write_script(file)
    file.write_text(
        file.read_text()
        .replace("'w0'", "'zebra_stripe_count'")
        .replace("'w1'", "'zebra_stripe_count'")
    )
    wants = Wants(
        lambda cited: [Edit(path="system.md", new="\nTry zebra_stripe_count.\n", evidence=(cited,))]
    )
    made = recreate.build(Toy(), model=f"scripted:{file}", optimizer=wants.__call__, **FLAGS)
    assert made.revisions == ()
    ((reason,),) = wants.told
    assert "zebra_stripe_count" in reason


def test_a_tool_that_does_not_start_costs_no_attempt(workspace: Path) -> None:
    tool = '"""Look."""\n\nimport no_such_package\n'
    _, made, _ = proposing(
        workspace, lambda cited: [Edit(path="tools/look.py", new=tool, evidence=(cited,))]
    )
    (revision,) = made.revisions
    assert (revision.kept, revision.verdict.verdict, revision.verdict.tasks) == (
        False,
        "not-better",
        0,
    )
    assert "tools/look.py:3: does not start" in revision.verdict.reason
    assert {r["scaffold"] for r in Run(made.run).records("experience")} == {revision.parent}


SMALL = Scaffold(
    name="small",
    files={
        **SEED.files,
        "agent.toml": TOML.replace('action = "bash"', 'action = "bash"\ndone = "look"'),
        "system.md": "Work.\n{% for lesson in lessons %}{{ lesson.body }}\n{% endfor %}",
        "tools/look.py": '"""Looks."""\n\nimport sys\n\nsys.exit("--help" not in sys.argv)\n',
    },
)
"""An agent whose prompts list no tools."""


@pytest.mark.slow
def test_a_tool_that_nothing_calls_is_left_out_before_measuring_and_reported(
    workspace: Path,
) -> None:
    def wanted(cited: Evidence) -> list[Edit]:
        tools = [
            Edit(path=f"tools/{n}.py", new=f'"""Is {n}."""\n', evidence=(cited,))
            for n in ("idle", "used")
        ]
        return [*tools, Edit(path="system.md", new=f"\n{LESSON} Call `used`.\n", evidence=(cited,))]

    _, made, _ = proposing(workspace, wanted, scaffold=SMALL)
    (revision,) = made.revisions
    assert [edit.path for edit in revision.edits] == ["tools/used.py", "system.md"]
    (fault,) = revision.faults
    assert fault.startswith("tools/idle.py: nothing in the candidate calls it")
    assert revision.verdict.tasks > 0
    assert sorted(made.scaffold.tools) == ["look", "used"]
    assert f"- not used: {fault}" in (Path(made.run) / "report.md").read_text()


def test_a_tool_whose_caller_an_edit_takes_away_goes_with_it(workspace: Path) -> None:
    old = SMALL.files["agent.toml"]

    def wanted(cited: Evidence) -> list[Edit]:
        toml = Edit(
            path="agent.toml", old=old, new=old.replace('done = "look"', ""), evidence=(cited,)
        )
        return [toml, Edit(path="system.md", new=f"\n{LESSON}\n", evidence=(cited,))]

    _, made, _ = proposing(workspace, wanted, scaffold=SMALL)
    assert [(e.path, e.origin) for e in made.revisions[0].edits][2:] == [("tools/look.py", "prune")]
    assert made.scaffold.tools == {}


@pytest.mark.slow
def test_the_rest_of_agent_toml_may_be_changed_and_the_readme_may_not(workspace: Path) -> None:
    wants, made, _ = proposing(
        workspace,
        lambda cited: [
            Edit(path="README.md", new="The best there is.\n", evidence=(cited,)),
            Edit(
                path="agent.toml",
                old=TOML,
                new="description = 'It answers.'\n" + without(TOML),
                evidence=(cited,),
            ),
            Edit(path="system.md", new=f"\n{LESSON}\n", evidence=(cited,)),
        ],
    )
    assert "README.md is for people" in wants.told[0][0]
    assert wants.told[1:] == [[], []]
    assert [e.path for e in made.revisions[0].edits] == ["agent.toml", "system.md"]


def without(toml: str) -> str:
    return "".join(
        line for line in toml.splitlines(keepends=True) if not line.startswith("description")
    )


def test_reflect_cannot_raise_limits_either(workspace: Path) -> None:
    line = next(n for n, text in enumerate(TOML.splitlines(), 1) if text.startswith("steps"))
    edit = {"file": "agent.toml", "line": line, "title": "", "text": "steps = 9000", "reason": "r"}
    built, _ = reflecting(workspace, [{**edit, "experience": "$1", "step": 0}])
    assert built.revisions == ()


def test_a_pruning_only_takes_away() -> None:
    lines = "One.\nTwo.\nThree.\n"
    agent = Scaffold(name="a", files={**SEED.files, "memory/x.md": lines})
    for old, new in ((lines, ""), ("Two.\n", ""), (lines, "One.\nThree.\n")):
        apply(agent, [Edit(path="memory/x.md", old=old, new=new, origin="prune")])
    for old, new in (
        ("", "Four.\n"),
        ("Two.\n", "2.\n"),
        (lines, "One.\nFour.\n"),
        (lines, "Three.\nOne.\n"),
    ):
        with pytest.raises(BadEdit, match="is a pruning and adds text"):
            apply(agent, [Edit(path="memory/x.md", old=old, new=new, origin="prune")])
    with pytest.raises(BadEdit, match="is a pruning and adds text"):
        apply(agent, [Edit(path="tools/new.py", new='"""New."""\n', origin="prune")])


# -------------------------------------------------------------------------------------------------
# citations


LEARNED = {
    "file": "new lesson",
    "line": 0,
    "title": "How answers end",
    "text": LESSON,
    "reason": "the grader",
}


def reflecting(workspace: Path, *replies: Any) -> tuple[Any, list[str]]:
    """A build whose optimizer's model answers so, one reply after the other: (what came of it, what
    it was asked)."""
    rows = [r for r in script() if r["role"] != "optimizer"]
    for step, edits in enumerate(replies):
        said = (
            edits if isinstance(edits, dict) else {"why": "w", "cause": "knowledge", "edits": edits}
        )
        find = r"experience ([0-9a-f]{16}): FAILED"
        rows.append({"role": "optimizer", "step": step, "find": find, "text": json.dumps(said)})
    rows.append({"role": "optimizer", "text": "{}"})
    file = workspace / "script.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    heard: list[str] = []
    say = lambda event, facts: heard.append(facts["text"]) if event == "note" else None  # noqa: E731
    made = recreate.build(Toy(), model=f"scripted:{file}", optimizer="reflect", say=say, **FLAGS)
    return made, heard


@pytest.mark.slow
@pytest.mark.parametrize("step", [7, -1, "0", True, None])
def test_a_step_that_does_not_exist_is_sent_back_and_not_made_another(
    workspace: Path, step: Any
) -> None:
    advice = {"why": "w", "advice": LESSON, "experience": "$1", "step": 0}
    made, notes = reflecting(workspace, [{**LEARNED, "experience": "$1", "step": step}], advice)
    (note,) = [text for text in notes if text.startswith("sent back")]
    assert f"has steps 0 to 1, not {step!r}" in note
    assert [r.kept for r in made.revisions] == [True]
    assert {c.step for e in made.revisions[0].edits for c in e.evidence} == {0}


@pytest.mark.parametrize("advice", [{"step": 99}, {}, {"step": 0, "experience": "nobody's"}])
def test_advice_that_cites_nothing_real_is_not_used(
    workspace: Path, advice: dict[str, Any]
) -> None:
    asked = {"why": "w", "advice": LESSON, "experience": "$1", **advice}
    made, notes = reflecting(workspace, [{**LEARNED, "experience": "$1", "step": 99}], asked)
    assert made.revisions == ()
    assert any(text.startswith("not used") for text in notes)

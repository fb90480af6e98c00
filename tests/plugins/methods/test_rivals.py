"""The optimizers of other work: each finds what helps, and its calls are paid once."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.agents.lint import problems
from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import BIN
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.api.types import Edit, Experience, Step, Trace
from recreate.builder.estimate import proposal
from recreate.builder.loop import BuildResult, build
from recreate.models import open_model
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.search import Measured
from recreate.plugins.methods.ace import Ace, AceSettings, Bullet
from recreate.plugins.methods.gepa import _Agents, components
from recreate.plugins.methods.sage import Sage, Skill, chains
from recreate.plugins.methods.tools import unfenced
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import Parts, open_session
from tests.optimizers.test_reflect import experience
from tests.toy import LESSON, SIZES

SEED = scaffolds.load(shipped("scaffolds") / "seed")
TRAIN = 4
WORSE = "Answer slowly."
LEAK = "See toy:train:1 for how it is done."
SYSTEM = SEED.files["system.md"]


def as_json(**fields: Any) -> str:
    return json.dumps(fields)


def shout(purpose: str) -> str:
    """A tool that does what the convention asks."""
    return (
        f'"""{purpose}."""\nimport sys\nword = sys.argv[1]\nprint(__doc__ if word == "--help" else'
        ' word + "!")\n'
    )


Replies = list[str | tuple[str, str]]
REPLIES: dict[str, Replies] = {
    "opro": [
        as_json(instruction=WORSE),
        as_json(instruction=LEAK),
        as_json(instruction=LEAK),
        "no JSON at all",
        as_json(instruction=LESSON),
    ],
    "ace": [
        ("What its latest attempts taught", as_json(add=[LESSON, LEAK, LESSON.upper()])),
        as_json(tags=[{"id": "b9", "tag": "helpful"}, "nonsense"], insight="Be loud."),
    ],
    "adas": [
        (
            "This cannot be used",
            as_json(
                thought="louder", name="loud", files=[{"path": "memory/loud.md", "text": LESSON}]
            ),
        ),
        as_json(thought="its limits", name="rich", files=[{"path": "README.md", "text": "mine"}]),
    ],
    "atlas": [
        ("Each of these pieces of guidance", as_json(pamphlet=LESSON)),
        as_json(guidance=LEAK),
        as_json(guidance=f"Be loud. {LESSON}"),
    ],
    "yunjue": [
        (
            "Which of them are for the same?",
            as_json(groups=[["shout", "loud", "none"], "nonsense", ["cry", "shout"]]),
        ),
        ("stands for all of them", as_json(merged="shout", code=shout("Says a word loudly"))),
        (
            "This cannot be used",
            as_json(lacked="volume", name="loud", code=shout("Says it louder")),
        ),
        as_json(lacked="volume", name="Shout", code=shout("Says it loudly")),
        as_json(
            lacked="volume",
            name="loud",
            code=shout("Says it louder").replace("sys.argv[1]", "words[1]"),
        ),
        "",  # the tool that does not start is sent back, and answered above
        as_json(lacked="", name="", code=""),
        as_json(lacked="a look", name="cry", code=f"```python\n{shout('Looks it up')}\n```\n"),
    ],
    "sage": [
        as_json(skill="answers", form="text", body=WORSE),
        as_json(skill="Answers", form="text", body=LESSON),
        as_json(skill="more", form="text", body=LEAK),
    ],
    "gepa": [("You are", f"```\n{SYSTEM}\n{LESSON}\n```"), "```\n{{ broken\n```"],
}
"""What the optimizer's model says, in turn, or whenever it is asked something that holds the first
of a pair."""

SEARCHED = (("opro", "search"), ("gepa", "search"))
"""Methods that are killed by the rule `search` too, in its looks."""


def told_of(tool: str) -> str:
    """How the seed's prompt tells of a tool."""
    return f"- `{tool}`: "


def rows(replies: Replies) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for split, size in SIZES.items():
        for n in range(size):
            for text in (LESSON, told_of("shout"), None):
                says = f"{BIN}/shout" if text == told_of("shout") else "printf %s"
                answer = f"```bash\n{says} 'w{n}{'!' * (text == LESSON)}' > answer.txt\n```"
                row = {"role": "agent", "task": f"toy:{split}:{n}", "step": 0, "text": answer}
                found.append(row | ({"contains": text} if text else {}))
    found.append({"role": "agent", "text": "```bash\nsubmit\n```"})
    plain = [reply for reply in replies if isinstance(reply, str)]
    found += [
        {"role": "optimizer", "contains": r[0], "text": r[1]}
        for r in replies
        if isinstance(r, tuple)
    ]
    found += [{"role": "optimizer", "step": n, "text": text} for n, text in enumerate(plain)]
    return [*found, {"role": "optimizer", "text": plain[-1]}]


class Killed(BaseException):
    """Stands for a kill: nothing in recreate catches it."""


class Built:
    """A build with the optimizer of that name, whose model says `replies`, by default its
    REPLIES."""

    def __init__(
        self,
        workspace: Path,
        name: str,
        run: str = "a",
        at: int = -1,
        replies: Replies | None = None,
        seed: Scaffold = SEED,
        **flags: Any,
    ) -> None:
        file = workspace / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows(replies or REPLIES[name])))
        values: dict[str, Any] = {
            "domain": "tests.toy:Toy",
            "model": f"scripted:{file}",
            "train": TRAIN,
            "jobs": 1,
        }
        values |= {
            "optimizer": name,
            "rounds": 1,
            "validation": 8,
            "batch": TRAIN,
            "memory.policy": "none",
        }
        values |= {"models.retries": 0, "memory.embedder": "hashed", "sandbox": "none", **flags}
        model = open_model(f"scripted:{file}")
        asked: list[str] = []
        self.questions, self.room = list[str](), list[Any]()
        first = model.reply

        def reply(messages: Any, call: Any, **params: Any) -> Any:
            if len(asked) == at:
                raise Killed
            asked.append(call.id)
            if call.role == "optimizer":
                self.questions.append(messages[-1]["content"])
                self.room.append(params.get("max_tokens"))
            return first(messages, call, **params)

        model.reply = reply  # type: ignore[method-assign]
        folder = workspace / "runs" / run
        self.asked, self.notes = asked, list[str]()
        self.settings = settings.load(workspace, {"gate.keep": "each", **values}, {})
        resume = (folder / "settings.toml").exists()
        parts = Parts(model=model, optimizer_model=model)
        session = open_session(
            self.settings, workspace, folder, resume=resume, parts=parts, say=self.say
        )
        try:
            self.built: BuildResult = build(session, seed)
        finally:
            session.close()
        self.run = Run(folder)

    def say(self, kind: str, about: Any) -> None:
        if kind == "note":
            self.notes.append(about["text"])

    @property
    def selecting(self) -> list[str]:
        """The tasks of the attempts that were made to choose a candidate."""
        return [r["task"] for r in self.run.records("experience") if r["phase"] == "select"]

    @property
    def proposed(self) -> dict[str, str]:
        (revision,) = self.built.revisions
        return {edit.path: edit.new for edit in revision.edits}


def test_opro_proposes_the_best_scored_instruction_and_none_that_names_a_task(
    workspace: Path,
) -> None:
    made = Built(workspace, "opro")
    assert made.built.revisions[0].kept
    assert made.proposed == {"memory/instruction.md": f"# Instruction\n\n{LESSON}\n"}
    assert any("is not used" in note and "toy:train:1" in note for note in made.notes)
    (record,) = (made.run.folder / "optimizer").glob("*/record.json")
    assert json.loads(record.read_text()) == {"": 0.0, WORSE: 0.0, LESSON: 1.0}


@pytest.mark.parametrize(
    ("refused", "why"), [(LEAK, "toy:train:1"), ("Be loud. " * 300, "over 2000: say it shorter")]
)
@pytest.mark.slow
def test_opro_is_told_why_an_instruction_is_refused_and_what_it_writes_then_is_tried(
    workspace: Path, refused: str, why: str
) -> None:
    again = ("This cannot be used", as_json(instruction=LESSON))
    replies: Replies = [again, as_json(instruction=refused)]
    made = Built(workspace, "opro", replies=replies, optimizer_settings=["steps=1", "children=1"])
    assert len(made.questions) == 2
    assert why in made.questions[1]
    assert made.proposed == {"memory/instruction.md": f"# Instruction\n\n{LESSON}\n"}


def test_opro_gives_up_an_instruction_that_stays_refused(workspace: Path) -> None:
    made = Built(
        workspace,
        "opro",
        replies=[as_json(instruction=LEAK)],
        optimizer_settings=["steps=1", "mends=2"],
    )
    assert len(made.questions) == 6
    assert [note.partition(":")[0] for note in made.notes if "is not used:" in note] == [
        "instruction 1 is not used",
        "instruction 2 is not used",
    ]
    assert not made.selecting


@pytest.mark.slow
def test_ace_grows_the_playbook_by_bullets_that_are_new_and_name_no_task(workspace: Path) -> None:
    made = Built(workspace, "ace")
    assert made.built.revisions[0].kept
    assert made.proposed == {"memory/playbook.md": f"# Playbook\n\n- [b1] {LESSON}\n"}
    assert not made.selecting


@pytest.mark.slow
def test_ace_takes_out_a_bullet_that_harmed_more_than_it_helped(workspace: Path) -> None:
    from recreate.plugins.methods.ace import FILE, Ace, Bullet

    made = Built(workspace, "ace")
    agent = made.built.scaffold
    ace = Ace.__new__(Ace)
    ace.next, ace.bullets = (
        1,
        {"b1": Bullet(id="b1", text="old words", harmful=1), "b7": Bullet(id="b7", text="gone")},
    )
    ace.carried(agent)
    assert {id: (b.harmful, b.text) for id, b in ace.bullets.items()} == {"b1": (1, "old words")}
    assert ace.next == 2
    assert FILE in agent.files


def test_the_tags_that_attempts_give_decide_which_bullets_of_ace_stay(workspace: Path) -> None:
    bullets = {"b1": "Say it twice.", "b2": "Say it once.", "b3": "Say it well."}
    text = "\n".join(["# Playbook", "", *(f"- [{n}] {said}" for n, said in bullets.items()), ""])
    tags = [{"id": "b1", "tag": "harmful"}, {"id": "b2", "tag": "helpful"}]
    made = Built(
        workspace,
        "ace",
        replies=[as_json(tags=tags, insight="")],
        seed=SEED.model_copy(update={"files": {**SEED.files, "memory/playbook.md": text}}),
        optimizer_settings=["attempts=3"],
    )
    (counted,) = (made.run.folder / "optimizer").glob("*/bullets.json")
    rows = json.loads(counted.read_text())["bullets"]
    assert [(b["id"], b["helpful"], b["harmful"]) for b in rows] == [("b2", 3, 0), ("b3", 0, 0)]
    left = text.replace(f"- [b1] {bullets['b1']}\n", "")
    assert made.proposed == {"memory/playbook.md": left}


@pytest.mark.slow
def test_a_reply_that_is_no_object_is_told_of_and_not_lost_in_silence(workspace: Path) -> None:
    made = Built(workspace, "ace", replies=["I would rather not.", ""])
    assert not made.built.revisions
    assert any(
        "holds no JSON object, and is not used; it says 'I would rather not.'" in note
        for note in made.notes
    )
    assert any("it says nothing" in note for note in made.notes)


def test_a_full_playbook_of_ace_keeps_what_helped_and_what_came_last() -> None:
    ace = Ace.__new__(Ace)
    notes = list[str]()
    ace.context = OptimizerContext(
        ask=None, recall=None, get=None, validate=None, note=notes.append
    )  # type: ignore[arg-type]
    ace.settings = AceSettings()
    words = "of the advice that a strong model gives at length " * 6
    bullets = [Bullet(id=f"b{n}", text=f"{n} {words}", helpful=int(n == 1)) for n in range(1, 12)]
    ace.bullets = {b.id: b for b in bullets}
    ace.prune()
    assert list(ace.bullets) == ["b1", "b7", "b8", "b9", "b10", "b11"]
    assert notes == ["the playbook is full: 5 bullets are left out"]
    assert not problems(
        SEED.model_copy(update={"files": {**SEED.files, "memory/playbook.md": ace.text()}})
    )


@pytest.mark.slow
def test_adas_is_told_what_its_agent_runs_on_and_how(workspace: Path) -> None:
    made = Built(workspace, "adas", optimizer_settings=["agents=1"])
    asked = made.questions[0]
    assert "The agent runs on scripted:" in asked
    assert "each reply must hold one ```bash block" in asked
    assert "=== agent.toml" in asked


@pytest.mark.parametrize("name", ["ace", "atlas", "opro"])
@pytest.mark.slow
def test_a_short_reply_has_room_for_what_a_reasoning_model_thinks_before_it(
    workspace: Path, name: str
) -> None:
    assert set(Built(workspace, name).room) == {4096}


def test_an_instruction_of_opro_keeps_its_lines_and_is_asked_for_in_a_length_that_fits(
    workspace: Path,
) -> None:
    made = Built(workspace, "opro", replies=[as_json(instruction="1. Look.\n2. Write.")])
    assert "It has at most 1500 characters." in made.questions[0]
    (record,) = (made.run.folder / "optimizer").glob("*/record.json")
    assert "1. Look.\n2. Write." in json.loads(record.read_text())


def test_a_tool_in_a_fence_is_taken_out_of_it() -> None:
    assert unfenced("```python\nprint(1)\n```\n") == "print(1)\n"
    assert unfenced('"""Prints ```."""\nprint("```")\n') == '"""Prints ```."""\nprint("```")\n'


@pytest.mark.slow
def test_adas_mends_an_agent_that_is_refused_and_keeps_its_archive(workspace: Path) -> None:
    made = Built(workspace, "adas", optimizer_settings=["agents=1"])
    assert made.built.revisions[0].kept
    assert made.proposed == {"memory/loud.md": LESSON}
    (archive,) = (made.run.folder / "optimizer").glob("*/archive.json")
    assert [(m["name"], m["score"]) for m in json.loads(archive.read_text())] == [("loud", 1.0)]


def test_adas_writes_each_agent_in_sight_of_those_before_it_in_every_round(
    workspace: Path,
) -> None:
    def agent(name: str) -> str:
        files = [{"path": f"memory/{name}.md", "text": f"{WORSE} {name}."}]
        return as_json(thought=f"more {name}", name=name, files=files)

    made = Built(
        workspace,
        "adas",
        replies=[agent("slow"), agent("calm")],
        rounds=2,
        optimizer_settings=["agents=2", "reflections=0"],
    )
    seen = [
        [name for name in ("slow", "calm") if f"more {name}" in asked] for asked in made.questions
    ]
    assert seen == [[], ["slow"], ["slow", "calm"], ["slow", "calm"]]
    assert "0.00" in made.questions[1].partition("slow")[2].partition("\n")[0]
    assert not made.built.revisions


def test_adas_gives_up_an_agent_that_stays_refused(workspace: Path) -> None:
    made = Built(workspace, "adas", optimizer_settings=["agents=1", "mends=0"])
    assert not made.built.revisions or not made.built.revisions[0].kept
    assert any("is not used: README.md" in note for note in made.notes)


@pytest.mark.slow
def test_atlas_distils_guidance_that_mended_a_task_and_gives_none_that_names_one(
    workspace: Path,
) -> None:
    made = Built(workspace, "atlas")
    assert made.built.revisions[0].kept
    assert made.proposed == {"memory/guidance.md": f"# Guidance\n\n{LESSON}\n"}
    assert "guidance mended 3 of 3 tutored tasks" in made.notes
    (pamphlets,) = (made.run.folder / "optimizer").glob("*/pamphlets.json")
    assert json.loads(pamphlets.read_text()) == {LESSON: [f"Be loud. {LESSON}"]}
    # guidance that names a task is sent back to the teacher, and not tried
    assert len(made.selecting) == 3 + TRAIN


@pytest.mark.parametrize(
    ("name", "replies"),
    [
        (
            "atlas",
            [
                ("Each of these pieces of guidance", as_json(pamphlet=WORSE)),
                as_json(guidance=f"Be loud. {LESSON}"),
            ],
        ),
        ("yunjue", [as_json(lacked="a look", name="cry", code=shout("Looks it up")), ""]),
    ],
)
def test_what_does_no_better_on_the_batch_is_not_proposed(
    workspace: Path, name: str, replies: Replies
) -> None:
    made = Built(workspace, name, replies=replies)
    assert made.selecting, "it was tried"
    assert any("0.000 on the batch's train tasks" in note for note in made.notes)
    assert not made.built.revisions


@pytest.mark.slow
def test_the_teacher_of_atlas_sees_what_came_of_its_guidance_and_revises_it(
    workspace: Path,
) -> None:
    seen = f"guidance: {WORSE}\nwhat came of it: experience"
    replies: Replies = [
        ("Each of these pieces of guidance", as_json(pamphlet=LESSON)),
        (seen, as_json(guidance=LESSON)),
        as_json(guidance=WORSE),
    ]
    made = Built(workspace, "atlas", replies=replies, optimizer_settings=["students=1"])
    assert made.proposed == {"memory/guidance.md": f"# Guidance\n\n{LESSON}\n"}
    once = Built(
        workspace, "atlas", "once", replies=replies, optimizer_settings=["students=1", "turns=1"]
    )
    assert not once.built.revisions
    assert "guidance mended 0 of 1 tutored tasks" in once.notes


@pytest.mark.slow
def test_yunjue_merges_tools_that_do_the_same_and_the_agent_runs_the_one_that_came_of_them(
    workspace: Path,
) -> None:
    made = Built(workspace, "yunjue")
    assert made.built.revisions[0].kept
    assert made.proposed == {
        "tools/shout.py": shout("Says a word loudly"),
        "tools/cry.py": shout("Looks it up"),
    }
    assert "tools: 3 written for attempts that lacked one, 2 after merging" in made.notes
    (revision,) = made.built.revisions
    lacked = {edit.path: len(edit.evidence) for edit in revision.edits}
    # each cites the attempts that it was written for
    assert lacked == {"tools/shout.py": 2, "tools/cry.py": 1}


@pytest.mark.slow
def test_sage_keeps_the_skill_with_which_later_tasks_passed_and_not_the_one_before_it(
    workspace: Path,
) -> None:
    made = Built(workspace, "sage")
    assert made.built.revisions[0].kept
    assert made.proposed == {"memory/skill_answers.md": f"# answers\n\n{LESSON}\n"}
    assert "memory/skill_answers.md: 2 later tasks passed with it, 0 failed" in made.notes
    assert any("a skill is not used" in note and "toy:train:1" in note for note in made.notes)


def test_sage_takes_the_skills_that_most_later_tasks_spoke_for_and_none_that_harmed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def roll(*_: Any) -> list[Skill]:
        return [
            Skill("memory/skill_even.md", f"{WORSE}\n", ["t1", "t2"], ["t3", "t4"]),
            Skill("memory/skill_bad.md", f"{WORSE} Do.\n", [], ["t3"]),
            Skill("memory/skill_fair.md", f"{WORSE} Now.\n", ["t1", "t2", "t3"], ["t4", "t5"]),
            Skill("memory/skill_good.md", f"{LESSON}\n", ["t1", "t2"], []),
        ]

    monkeypatch.setattr(Sage, "roll", roll)
    one = Built(workspace, "sage", optimizer_settings=["skills=1"])
    assert set(one.proposed) == {"memory/skill_good.md"}
    most = Built(workspace, "sage", "b", optimizer_settings=["skills=4"])
    assert set(most.proposed) == {"memory/skill_good.md", "memory/skill_fair.md"}


@pytest.mark.slow
def test_sage_keeps_a_program_that_the_agent_ran_where_it_passed(workspace: Path) -> None:
    replies: Replies = [
        as_json(skill="cry", form="program", body=shout("Is there as well")),
        as_json(skill="shout", form="program", body=shout("Says a word loudly")),
        as_json(skill="", form="text", body=""),
    ]
    made = Built(workspace, "sage", replies=replies)
    assert made.proposed == {"tools/shout.py": shout("Says a word loudly")}
    assert made.built.revisions[0].kept


def test_a_chain_is_of_one_kind_its_nearest_prompts_and_begins_with_what_passed() -> None:
    def at(task: str, prompt: str, passed: bool = False) -> Any:
        return SimpleNamespace(task=task, prompt=prompt, grade=SimpleNamespace(passed=passed))

    batch = [
        at("a1", "sort the list of names"),
        at("b1", "add the numbers"),
        at("a2", "count the cats and dogs"),
        at("a3", "sort the list of towns", passed=True),
        at("b2", "add the primes", passed=True),
        at("a4", "count the cats and hens"),
        at("a5", "sort the list of rivers"),
        at("c1", "a kind of one task"),
    ]
    kinds = {each.task: each.task[0] for each in batch}
    assert [[e.task for e in chain] for chain in chains(batch, kinds, 2)] == [
        ["a3", "a1"],
        ["a2", "a4", "a5"],
        ["b2", "b1"],
    ]
    passed = [at(each.task, each.prompt, passed=True) for each in batch]
    assert chains(passed, kinds, 2) == []


def test_gepa_changes_texts_that_attempts_were_shown_and_those_first_that_all_were() -> None:
    def trace_of(kinds: Sequence[str]) -> Trace:
        steps = tuple(Step(step=n, kind=kind) for n, kind in enumerate(kinds))
        return Trace(attempt="a", task="a", scaffold="s", model="m", steps=steps)

    def attempt(*kinds: str) -> Experience:
        return experience(1).model_copy(update={"trace": trace_of(kinds)})

    assert list(components(SEED, [attempt("before", "action")])) == ["system.md", "workflow.md"]
    assert list(components(SEED, [attempt("action", "action")])) == [
        "system.md",
        "workflow.md",
        "observation.md",
    ]
    whole = [attempt("action"), attempt("malformed", "action")]
    assert list(components(SEED, whole)) == [
        "system.md",
        "workflow.md",
        "format.md",
        "observation.md",
    ]


@pytest.mark.slow
def test_the_question_of_gepa_says_which_text_it_is_and_tells_each_attempt_once(
    workspace: Path,
) -> None:
    made = Built(workspace, "gepa")
    asked = made.questions[0]
    assert (
        "one of the agent's texts, system.md: what the agent is told first, at every task" in asked
    )
    told = re.findall(r"^experience (\w+)", asked, re.MULTILINE)
    assert len(told) == len(set(told))


@pytest.mark.slow
def test_gepa_tries_no_text_that_lost_a_template_mark_such_as_a_refusal(workspace: Path) -> None:
    made = Built(workspace, "gepa", replies=["I am sorry, I cannot help with that.", ""])
    assert not made.built.revisions
    assert not made.selecting


def test_an_attempt_that_was_excluded_speaks_neither_for_nor_against_a_text_of_gepa() -> None:
    search = SimpleNamespace(
        parent=Measured((), {"t1": 0.0, "t2": 1.0}),
        scaffold=SEED,
        context=SimpleNamespace(validate=lambda scaffold, edits: [], without=()),
        edits=lambda files, reason: [Edit(path="system.md", old="", new="", reason=reason)],
        measure=lambda edits, batch: Measured(edits, {"t1": 1.0}),
    )
    agents: Any = _Agents(search, {"system.md": "Be brief."})  # type: ignore[arg-type]
    assert agents.evaluate(["t1", "t2"], {"system.md": "Be quick."}).scores == [1.0, 1.0]


def test_gepa_proposes_the_best_of_its_pool_and_scores_a_broken_text_as_nothing(
    workspace: Path,
) -> None:
    made = Built(workspace, "gepa")
    assert made.built.revisions[0].kept
    assert list(made.proposed) == ["system.md"]
    assert LESSON in made.proposed["system.md"]
    assert any(note.startswith("gepa's pool: 0.000, 1.000") for note in made.notes)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "keep"), [*((name, "each") for name in REPLIES), *SEARCHED])
def test_a_search_killed_on_the_way_ends_as_the_uninterrupted_one_and_pays_for_nothing_twice(
    workspace: Path, name: str, keep: str
) -> None:
    rule = {"gate.keep": keep}
    whole = Built(workspace, name, "whole", **rule)
    attempts = {r["attempt"] for r in whole.run.records("proposal")}
    mine = [n for n, call in enumerate(whole.asked) if call.split("/")[1] in attempts]
    looked = whole.built.verdict.claim is not None and whole.built.verdict.claim.anew is not None
    assert looked == (keep == "search")
    for at in (len(whole.asked) - 5,) if looked else (mine[0] + 1, mine[-1], mine[-1] + 2):
        with pytest.raises(Killed):
            Built(workspace, name, f"killed-{at}", at, **rule)
        before = {r["call"] for r in Run(workspace / "runs" / f"killed-{at}").records("reply")}
        again = Built(workspace, name, f"killed-{at}", **rule)
        assert not before & set(again.asked)
        assert len(before) + len(again.asked) == len(whole.asked)
        assert again.built.scaffold.digest == whole.built.scaffold.digest
        assert again.built.verdict == whole.built.verdict


@pytest.mark.parametrize("name", list(REPLIES))
@pytest.mark.slow
def test_plan_reckons_with_no_fewer_calls_than_a_proposal_makes(workspace: Path, name: str) -> None:
    made = Built(workspace, name)
    attempts = {r["attempt"] for r in made.run.records("proposal")}
    calls = [call for call in made.asked if call.split("/")[1] in attempts]
    assert 0 < len(calls) <= proposal(made.settings).calls


@pytest.mark.parametrize("name", list(REPLIES))
def test_a_setting_that_it_does_not_have_is_refused_by_name(workspace: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"has no setting optimizer_settings\.speed"):
        Built(workspace, name, optimizer_settings=["speed=1"])

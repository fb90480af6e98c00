"""Worked examples in examples/: what prompts show of them, what the check of an agent says, and
what an example may say of its own train task alone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from recreate.agents.guards.leaks import Scanner
from recreate.agents.lint import check, problems
from recreate.agents.scaffold import Scaffold, load
from recreate.api.paths import shipped
from recreate.api.types import Edit, Split, Task

SEEDS = sorted(
    {
        file.parent.name
        for file in shipped("scaffolds").glob("*/*.md")
        if "in examples %}" in file.read_text()
    }
)
BLOCK = re.compile(r"\{% if examples %\}(?:.*?\{% endfor %\}\n)?[^{]*\{% endif %\}\n?", re.DOTALL)
CASES: list[dict[str, Any]] = [
    {"native": native, "lessons": [{"id": "a", "title": "T", "body": "B"}] * count}
    for native in (True, False)
    for count in (0, 1)
]


def example(title: str, body: str, born_of: str = "3f2a91bc04de77aa") -> dict[str, str]:
    return {f"examples/{title}.md": f"# {title}\n\n{body}\n\nborn_of: {born_of}\n"}


def agent(seed: str = "seed", toml: str = "", **files: str) -> Scaffold:
    base = load(shipped("scaffolds") / seed)
    settings = {"agent.toml": base.files["agent.toml"] + toml}
    return Scaffold(name="a", files={**base.files, **settings, **files})


def prompts(scaffold: Scaffold, **variables: Any) -> str:
    """What an attempt begins with."""
    given = {"task": {"prompt": "Do it."}, **variables}
    before = {name: "printed" for name in scaffold.agent.before}
    texts = (scaffold.render(name, before=before, **given) for name in ("system", "workflow"))
    return "\n=====\n".join(text.rstrip("\n") for text in texts)


def test_most_shipped_seeds_show_examples() -> None:
    assert {"seed", "cot", "seed-math-small", "seed-sql-small", "seed-code-small"} <= {*SEEDS}
    assert len(SEEDS) >= 14


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("variables", CASES)
def test_an_agent_without_examples_is_sent_what_it_was_sent_before_there_were_any(
    seed: str, variables: dict[str, Any]
) -> None:
    now = agent(seed)
    plain = {path: BLOCK.sub("", text) for path, text in now.files.items() if path.endswith(".md")}
    then = now.model_copy(update={"files": {**now.files, **plain}})
    assert "examples" not in f"{then.source('system')}{then.source('workflow')}"
    assert prompts(now, **variables) == prompts(then, **variables)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_shows_the_examples_that_it_has_and_stays_sound(seed: str) -> None:
    made = agent(seed, **example("one", "Task: 1 + 1\n\nReply: 2"))
    assert not problems(made)
    assert "Task: 1 + 1\n\nReply: 2" in prompts(made)
    assert "born_of" not in prompts(made)


def test_the_seed_for_rows_puts_the_question_as_its_examples_put_theirs() -> None:
    asked = "Which?\n\nWrite the answer, and nothing else, to the file answer.txt in /work."
    shown = agent("seed-rows-small", **example("one", "Task: What?\n\nAnswer: That"))
    assert shown.render("workflow", task={"prompt": asked}) == (
        "Examples of tasks like yours, done well:\n\nTask: What?\n\nAnswer: That\n\n"
        "Task: Which?\n\nAnswer:"
    )
    assert agent("seed-rows-small").render("workflow", task={"prompt": asked}) == "Which?"


@pytest.mark.parametrize(("tokens", "shown"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (500, 3)])
def test_prompts_show_the_first_examples_that_are_in_the_budget_together(
    tokens: int, shown: int
) -> None:
    files = {k: v for n in "cab" for k, v in example(n, n * 40).items()}
    made = agent(toml=f"\n[examples]\ntokens = {tokens}\n", **files)
    assert [x["id"] for x in made.example_list] == ["a", "b", "c"][:shown]
    assert [n for n in "abc" if n * 40 in prompts(made)] == ["a", "b", "c"][:shown]
    assert ("done well" in prompts(made)) is (shown > 0)
    assert not problems(made)


def test_two_thousand_tokens_are_shown_where_nothing_is_said() -> None:
    files = {k: v for n in "abc" for k, v in example(n, n * 3600).items()}
    assert [x["id"] for x in agent(**files).example_list] == ["a", "b"]


def test_an_example_is_part_of_the_agents_digest_and_its_file_says_of_which_attempt_it_is() -> None:
    made = agent(**example("one", "Task: 1 + 1"))
    assert made.digest != agent().digest
    assert [(x.title, x.body, x.born_of) for x in made.examples] == [
        ("one", "Task: 1 + 1", ("3f2a91bc04de77aa",))
    ]
    assert not made.lessons


@pytest.mark.parametrize(
    ("files", "file", "message"),
    [
        (
            {"system.md": "You work.", **example("one", "Task: 1")},
            "system.md",
            "no template shows the 1 examples of examples/: write a loop over `examples`",
        ),
        (example("one", ""), "examples/one.md", "says nothing"),
        (example("one", "x" * 8001), "examples/one.md", "over 8000: say it shorter"),
        (
            {k: v for n in range(41) for k, v in example(f"n{n}", "x").items()},
            "examples",
            "has 41 examples, over 40",
        ),
        (
            {"examples/deep/one.md": "x"},
            "examples/deep/one.md",
            "is not a file that a scaffold has",
        ),
        ({"examples/one.txt": "x"}, "examples/one.txt", "is not a file that a scaffold has"),
        ({"system.md": "{{ exmples }}"}, "system.md", "'exmples' is undefined"),
        ({"observation.md": "{{ examples }}"}, "observation.md", "'examples' is undefined"),
        ({"agent.toml": "[examples]\ntoken = 3\n"}, "agent.toml", "did you mean 'tokens'?"),
        ({"agent.toml": "[examples]\ntokens = -1\n"}, "agent.toml", "examples.tokens"),
    ],
)
def test_the_check_says_what_is_wrong_with_examples(
    files: dict[str, str], file: str, message: str
) -> None:
    found = [fault for fault in check(agent(**files)) if fault.file == file]
    assert any(message in fault.message for fault in found), found


def test_a_broken_agent_toml_is_one_fault_though_there_are_examples() -> None:
    broken = agent(**{"agent.toml": "action = 3\n", **example("one", "Task: 1")})
    assert [fault.file for fault in check(broken)] == ["agent.toml"]


def test_a_tool_that_only_an_example_runs_is_in_use() -> None:
    from recreate.agents.callers import uncalled

    tool = {"tools/total.py": '"""Adds."""\n', "system.md": "{{ examples }}"}
    assert uncalled(agent(**tool)) == ["tools/total.py"]
    assert uncalled(agent(**tool, **example("one", "Reply: total 1 2"))) == []


# ------------------------------------------------------------------------------- what it may say


def task(number: int, split: Split, words: str, secret: str = "") -> Task:
    return Task(
        id=f"shop:orders:{split}-{number}",
        domain="shop",
        prompt=f"{words} Write what the order comes to into the file answer.txt.",
        split=split,
        group=f"order-{split}-{number}",
        facts={"answer": secret} if secret else {},
    )


OWN = "Natalia of Bramblewick orders 3 quillpens at 2 each and one ledgerbook at 7 as a gift."
OTHER = "Marten of Oxlade buys 5 candlesnuffers at 4 each and pays the carter another 6 for it."
HELD = "Ottoline of Wexcombe wants 8 inkhorns at 3 each, and she returns one bottleglass for 9."
TASKS = [
    task(1, "train", OWN, "thirteen_shillings_exactly"),
    task(2, "train", OTHER, "twentysix_pence_exactly"),
    task(3, "validation", HELD, "fifteen_farthings_exactly"),
    task(4, "test", HELD.replace("Ottoline", "Zephyrine").replace("Wexcombe", "Yarrowby")),
]
SCANNER = Scanner(TASKS, {t.id: list(t.facts.values()) for t in TASKS})
MAY = {"examples/one.md": SCANNER.words_of(TASKS[0].id)}


def leaks(text: str, path: str = "examples/one.md", parent: Scaffold | None = None) -> list[str]:
    edit = Edit(path=path, new=text, origin="human")
    return SCANNER.leaks([edit], parent or agent(), examples=MAY)


@pytest.mark.parametrize(
    "text",
    [
        f"Task: {OWN}\n\nReply: thirteen_shillings_exactly",
        f"Task: {TASKS[0].prompt}\n\nReply: 13",
        "Of shop:orders:train-1 of the group order-train-1.",
    ],
)
def test_an_example_may_say_all_that_its_own_train_task_says_and_nothing_else_may(
    text: str,
) -> None:
    assert leaks(text) == []
    for path in ("memory/lesson.md", "system.md", "tools/add.py", "examples/two.md"):
        assert leaks(text, path), path


@pytest.mark.parametrize("other", TASKS[1:], ids=lambda t: t.split)
@pytest.mark.parametrize("part", ["prompt", "id", "group", "answer"])
def test_an_example_may_not_say_what_another_task_says(other: Task, part: str) -> None:
    said = {**other.model_dump(), **other.facts}.get(part)
    assert not said or leaks(f"Task: {OWN}\n\nReply: {said}")


def test_what_an_example_of_the_agent_says_is_not_the_agents_own_word_for_other_files() -> None:
    shown = agent(**example("one", f"Task: {OWN}"))
    assert leaks(f"Remember: {OWN}", "memory/lesson.md", shown)
    assert leaks(f"{OWN} And twice.", "examples/two.md", shown)
    # it may be changed where it stands, though nobody says any more what it is of
    old = shown.files["examples/one.md"]
    edit = Edit(path="examples/one.md", old=old, new=f"{old}\nReply: 13\n", origin="human")
    assert SCANNER.leaks([edit], shown) == []


def test_a_held_out_name_that_two_examples_make_together_is_found() -> None:
    parts = {"examples/one.md": "Of the fifteen_", "examples/two.md": "farthings_exactly is right"}
    edits = [Edit(path=path, new=text, origin="human") for path, text in parts.items()]
    own = {path: SCANNER.words_of(TASKS[0].id) for path in parts}
    assert "read on into or after" in SCANNER.leaks(edits, agent(), examples=own)[0]

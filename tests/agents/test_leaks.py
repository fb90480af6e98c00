"""A proposal must hold for any task: names and texts of its own tasks are found, ordinary words are
not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents.guards.leaks import Scanner
from recreate.agents.scaffold import Scaffold, lesson_file, load
from recreate.api.paths import shipped
from recreate.api.types import Edit, Task, digest

HOW = (
    "\n\nFind the cause in the package and mend it there, so that every test passes again. Run"
    " `python3 -m pytest`."
)
PARENT = Scaffold(
    name="seed",
    files={
        "agent.toml": "",
        "system.md": "You mend Python. Use `git_diff` to see what you changed.\n",
        "workflow.md": "{{ task.prompt }}",
    },
)
TASKS = [
    Task(
        id="swe:sqlparse-0.4.3:split-7",
        domain="swe",
        prompt=(
            "This is the Python package sqlparse, version 0.4.3. The statement splitter swallows a"
            " comment that follows the final semicolon of a procedure; see"
            " `tests/test_split.py::test_split_trailing_comment`. StatementSplitter keeps a level"
            " in _splitlevel_state."
        )
        + HOW,
        split="train",
        group="sqlparse.engine.statement_splitter",
        facts={
            "kind": "injected",
            "bug": {
                "file": "sqlparse/engine/statement_splitter.py",
                "function": "StatementSplitter._change_splitlevel",
                "fail_to_pass": ["tests/test_split.py::test_split_trailing_comment"],
                "mutant": "deadbeefdeadbeef",
            },
        },
    ),
    Task(
        id="swe:parse-1.20.1:dates-2",
        domain="swe",
        prompt=(
            "This is the Python package parse, version 1.20.1. A weekday that is longer than ten"
            " characters is read as if it were the month."
        )
        + HOW,
        split="train",
        group="parse.dates",
        facts={"package": "parse", "function": "widen", "file": "parse/dates.py"},
    ),
]


def leaks(
    edits: Sequence[Edit], parent: Scaffold, tasks: Sequence[Task], texts: Sequence[str] = ()
) -> list[str]:
    return Scanner(tasks).leaks(edits, parent, texts)


def said(text: str, path: str = "system.md", texts: tuple[str, ...] = ()) -> list[str]:
    return leaks([Edit(path=path, new=text, origin="human")], PARENT, TASKS, texts)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Look at _change_splitlevel first.", "_change_splitlevel"),
        ("The class StatementSplitter holds the level.", "StatementSplitter"),
        ("The bug is often in statement_splitter.py.", "statement_splitter.py"),
        ("Read sqlparse/engine/statement_splitter.py.", "sqlparse/engine/statement_splitter.py"),
        (
            "Run tests/test_split.py::test_split_trailing_comment.",
            "tests/test_split.py::test_split_trailing_comment",
        ),
        ("Make test_split_trailing_comment pass.", "test_split_trailing_comment"),
        ("In sqlparse, look at the engine.", "sqlparse"),
        ("In SQLParse, look at the engine.", "SQLParse"),
        ("Import `sqlparse.engine` first.", "sqlparse"),
        ("See sqlparse.engine.statement_splitter.", "sqlparse.engine.statement_splitter"),
        ("Do as in swe:sqlparse-0.4.3:split-7.", "swe:sqlparse-0.4.3:split-7"),
        ("As learned from split-7: be careful.", "split-7"),
        ("Call `widen` with two arguments.", "widen"),
        ("Call widen(text) twice.", "widen"),
        ("Fix `parse` when it reads dates.", "parse"),
    ],
)
def test_names_of_a_task_are_found(text: str, named: str) -> None:
    reasons = said(text)
    assert any(named in reason for reason in reasons), reasons
    assert all("edit 1 (system.md)" in reason for reason in reasons)


@pytest.mark.parametrize(
    "text",
    [
        (
            "Read the failing test first, then the function it calls; parse the traceback from the"
            " bottom."
        ),
        "Split the statement into parts, widen long lines and keep comments and dates as they are.",
        (
            "Use `python3 -m pytest -x` and read the last AssertionError; `os.path.join` and"
            " `str.split` are safe."
        ),
        "Before you hand in, call isinstance(value, str) and check `__init__.py` and conftest.py.",
        "Use `git_diff` to see the change.",
        "Find the cause in the package and mend it there, so that every test passes again.",
        "Prefer NotImplemented over NotImplementedError in comparisons; test with unittest.mock.",
        "",
    ],
)
def test_advice_that_holds_for_any_task_passes(text: str) -> None:
    assert said(text) == []


ELSEWHERE = """
import json, sys
sys.modules["pydoc_data.topics"] = None
from tests.agents.test_leaks import WORDS, said
print(json.dumps([said(text) for text in WORDS]))
"""
WORDS = (
    "Fix `parse` when it reads dates.",
    "Widen the dates, parse the engine and splitter.",
    "Call widen(text) twice.",
)


@pytest.mark.slow
def test_the_verdict_is_the_same_where_python_has_no_docstrings_and_no_pydoc() -> None:
    found = subprocess.run(
        [sys.executable, "-OO", "-c", ELSEWHERE], capture_output=True, text=True, check=True
    )
    assert json.loads(found.stdout) == [said(text) for text in WORDS]


def test_eight_words_in_a_row_of_a_prompt_are_a_quotation_and_seven_are_not() -> None:
    (reason,) = said("Note: a weekday that is LONGER than\nten characters is read wrongly.")
    assert "copies" in reason
    (reason,) = said("Note: a weekday that is longer than ten characters.")
    assert "copies" in reason
    assert said("Note: weekday that is longer than ten characters.") == []


def test_a_quotation_is_eight_words_not_nine_and_not_seven() -> None:
    words = ["a", "weekday", "that", "is", "longer", "than", "ten", "characters", "is", "read"]
    for at in range(len(words) - 7):
        (reason,) = said(" ".join(words[at : at + 8]))
        assert "copies the text of a task" in reason
    for at in range(len(words) - 6):
        assert said(" ".join(words[at : at + 7])) == []


def test_hidden_text_is_not_copied_either() -> None:
    gold = (
        "-    if depth > 0 and token is last or not stack and value in ends\n+    my_hidden_fix()\n"
    )
    assert said("Write: if depth > 0 and token is last or not stack", texts=(gold,))
    assert said("Use my_hidden_fix.", texts=(gold,))
    assert said("Use my_hidden_fix.") == []


def test_methods_of_pythons_own_types_are_nobodys() -> None:
    gold = "+    return list(dict.fromkeys(names)) + dict.of_this_task(names)\n"
    scanner = Scanner(TASKS, {TASKS[0].id: [gold]})
    assert scanner.says("names = list(dict.fromkeys(names))") == []
    assert scanner.says("call dict.of_this_task")


def test_the_name_of_a_lesson_file_is_looked_at_too() -> None:
    path, text = lesson_file("Mind the levels", "Be careful with levels.")
    assert said(text, path) == []
    assert said("# A lesson\n\nBe careful.\n", "memory/statement-splitter.md")


def test_a_tool_may_use_names_it_defines_itself() -> None:
    tool = (
        '"""Shows state."""\n\ndef _splitlevel_state(text):\n    return'
        ' text\n\nprint(_splitlevel_state("x"))\n'
    )
    assert said(tool, "tools/state.py") == []
    assert said('"""Looks at _splitlevel_state."""\nprint("_splitlevel_state")\n', "tools/state.py")


def test_what_is_taken_out_or_given_as_a_reason_is_not_looked_at() -> None:
    edit = Edit(
        path="system.md",
        old="You mend Python.",
        new="You mend.",
        reason="sqlparse failed",
        origin="human",
    )
    assert leaks([edit], PARENT, TASKS) == []


def test_what_tasks_of_two_packages_share_is_not_a_leak() -> None:
    shared = [
        t.model_copy(update={"prompt": t.prompt + " See test_reproduce_it.py."}) for t in TASKS
    ]
    edit = Edit(path="system.md", new="Run test_reproduce_it.py first.", origin="human")
    assert leaks([edit], PARENT, shared) == []
    assert leaks([edit], PARENT, [shared[0]]) != []


def test_reasons_name_the_edit_and_are_not_endless() -> None:
    edits = [
        Edit(path="system.md", new="Be brief.", origin="human"),
        Edit(path="memory/a.md", new="Mind _change_splitlevel.", origin="human"),
    ]
    (reason,) = leaks(edits, PARENT, TASKS)
    assert reason.startswith(
        "edit 2 (memory/a.md) names '_change_splitlevel', which belongs to swe:sqlparse"
    )
    many = Task(
        id="a:b:1",
        domain="a",
        group="g",
        split="train",
        prompt=" ".join(f"name_number_{i}" for i in range(99)),
    )
    assert (
        len(leaks([Edit(path="system.md", new=many.prompt, origin="human")], PARENT, [many])) <= 10
    )


@pytest.mark.parametrize(
    "name", sorted(file.parent.name for file in shipped("scaffolds").glob("*/agent.toml"))
)
@pytest.mark.slow
def test_the_shipped_seeds_leak_nothing(name: str) -> None:
    files = load(shipped("scaffolds") / name).files
    edits = [Edit(path=path, new=text, origin="human") for path, text in files.items()]
    assert leaks(edits, PARENT, TASKS) == []


@pytest.mark.slow
@given(st.text(max_size=200))
def test_without_tasks_nothing_leaks_and_any_text_is_read(text: str) -> None:
    edits = [Edit(path=path, new=text, origin="human") for path in ("system.md", "tools/a.py")]
    assert leaks(edits, PARENT, []) == []
    assert leaks(edits, PARENT, TASKS) == leaks(edits, PARENT, TASKS)


# ------------------------------------------------------------------------------------ every task of
# every split

HELD = [
    Task(
        id="swe:semver-3.0.2:bump-9",
        domain="swe",
        prompt=(
            "This is the Python package semver, version 3.0.2. A pre-release with leading zeros"
            " sorts before the release that follows it when the minor number was raised by hand."
        )
        + HOW,
        split="test",
        group="semver.version",
        facts={"function": "bump_prerelease", "file": "semver/version.py", "answer": "Zanzibar"},
    ),
    Task(
        id="swe:q:short-1",
        domain="swe",
        prompt="Which river drains Xochimilco?",
        split="validation",
        group="q.1",
    ),
]
HIDDEN = {
    "swe:semver-3.0.2:bump-9": [
        "def test_zero_padding():\n    assert bump('1.0.0-rc.007', keep=True) == '1.0.0-rc.008'\n"
    ],
    "swe:parse-1.20.1:dates-2": [
        "answer = re.compile(long_weekday_names) if strict else fall_back_to_digits(x)"
    ],
}
SCANNER = Scanner([*TASKS, *HELD], HIDDEN)


@pytest.mark.parametrize(
    "text",
    [
        "As in swe:semver-3.0.2:bump-9, be careful.",
        "As in SWE:Semver-3.0.2:Bump-9, be careful.",
        "As in bump-9.",
        "Mind: a pre-release with leading zeros sorts before the release.",
        "A **pre-release** with _leading_ zeros,\nsorts *before* the release",
        "A pre\u200b-release with lead\u00ading zeros sorts before the release.",
        "Ａ pre-release with leading zeros sorts before the release",
        "Look into bump_prerelease.",
        "The answer is Zanzibar.",
        "Which river drains Xochimilco? Look it up.",
        "Try assert bump('1.0.0-rc.007', keep=True) == '1.0.0-rc.008'.",
        "Write test_zero_padding first.",
    ],
)
def test_what_a_held_out_task_says_or_hides_is_found_and_nothing_else_of_it_is_told(
    text: str,
) -> None:
    found = SCANNER.leaks([Edit(path="memory/a.md", new=text, origin="human")], PARENT)
    assert found
    told = " ".join(found).replace("a held-out task", "").casefold()
    for secret in (
        "swe:semver-3.0.2:bump-9",
        "swe:q:short-1",
        "semver.version",
        "raised by hand",
        "zanzibar",
        "q.1",
    ):
        assert secret not in told or secret in text.casefold()


def test_a_quotation_put_together_by_several_edits_is_found() -> None:
    first = Edit(path="memory/a.md", new="A pre-release with leading", origin="human")
    second = Edit(path="memory/a.md", new=" zeros sorts before the release", origin="human")
    assert SCANNER.leaks([first], PARENT) == []
    assert any("copies" in why for why in SCANNER.leaks([first, second], PARENT))
    begun = PARENT.model_copy(update={"files": {**PARENT.files, "memory/a.md": first.new}})
    assert any("copies" in why for why in SCANNER.leaks([second], begun))
    gap = PARENT.model_copy(
        update={"files": {**PARENT.files, "memory/a.md": first.new + " XX" + second.new}}
    )
    assert any(
        "copies" in why
        for why in SCANNER.leaks([Edit(path="memory/a.md", old=" XX", origin="prune")], gap)
    )


def test_wording_of_held_out_tasks_alone_is_theirs_and_of_train_tasks_the_domains() -> None:
    more = [t.model_copy(update={"id": f"{t.id}x", "group": f"{t.group}x"}) for t in HELD]
    scanner = Scanner([*TASKS, *HELD, *more])
    assert scanner.says("a pre-release with leading zeros sorts before the release")
    assert (
        scanner.says("find the cause in the package and mend it there so that every test passes")
        == []
    )


def test_what_is_usual_is_not_taken_for_an_answer() -> None:
    plain = (
        "Split the task into steps; keep the error_message, and write the result with a number and"
        " a name."
    )
    assert SCANNER.says(plain) == []
    tool = '"""Shows tokens."""\n\ndef show(tokens):\n    tokens.pop(0)\n    return tokens\n'
    hidden = {HELD[0].id: ["tokens.pop(0)"]}
    edit = Edit(path="tools/show.py", new=tool, origin="human")
    assert Scanner(HELD, hidden).leaks([edit], PARENT) == []


def test_deleting_a_file_says_nothing() -> None:
    there = PARENT.model_copy(
        update={"files": {**PARENT.files, "memory/bump-prerelease.md": "bump_prerelease"}}
    )
    edit = Edit(path="memory/bump-prerelease.md", old="bump_prerelease", origin="prune")
    assert SCANNER.leaks([edit], there) == []


def test_a_find_names_its_task_when_that_is_a_train_task_whoever_else_says_it() -> None:
    learned = Task(
        id="swe:semver-3.0.2:bump-8",
        domain="swe",
        prompt="",
        split="train",
        group="semver.bump",
        facts={"function": "bump_prerelease"},
    )
    (why,) = Scanner([*HELD, learned]).says("Look into bump_prerelease.")
    assert why.startswith("names 'bump_prerelease', which belongs to swe:semver-3.0.2:bump-8:")
    (named,) = SCANNER.says("As learned from split-7: be careful.")
    assert (
        named == "names 'split-7', the task swe:sqlparse-0.4.3:split-7: say what holds for any task"
    )
    (held,) = SCANNER.says("As learned from bump-9: be careful.")
    assert held == "names 'bump-9', a held-out task: say what holds for any task"


@pytest.mark.parametrize("before", [0, 1, 150, 199, 200, 201, 399, 400, 401, 1000])
def test_a_name_of_two_hundred_characters_in_a_long_run_without_a_space_is_found(
    before: int,
) -> None:
    name = f"change_{'x' * 193}"
    (why,) = Scanner([held(answer=name)]).says("." * before + name + "." * 300)
    assert f"names {name!r}" in why


@pytest.mark.parametrize(
    ("groups", "by", "common"), [(9, 8, False), (9, 9, True), (10, 4, False), (10, 5, True)]
)
def test_what_half_of_ten_groups_say_is_the_domains_wording_and_of_fewer_what_all_say(
    groups: int, by: int, common: bool
) -> None:
    assert (Scanner(naming("run_checks", groups, by)).says("Mind run_checks") == []) is common


@pytest.mark.parametrize(
    ("groups", "by", "common"),
    [(19, 8, False), (20, 2, False), (20, 3, True), (100, 4, False), (100, 5, True)],
)
def test_of_many_rows_a_name_that_a_twentieth_of_the_groups_have_is_no_tasks(
    groups: int, by: int, common: bool
) -> None:
    """An optimizer could write no tool for tables that says DataFrame, since held-out questions
    said it too."""
    assert (Scanner(naming("DataFrame", groups, by)).says("Read it as a DataFrame") == []) is common


def test_a_name_in_some_groups_of_several_packages_stays_theirs() -> None:
    tasks = [
        t.model_copy(update={"id": f"d:s{n % 2}:{n}"})
        for n, t in enumerate(naming("DataFrame", 40, 0))
    ]
    own = [
        t.model_copy(update={"prompt": "Use DataFrame."}) if n in (0, 2, 4) else t
        for n, t in enumerate(tasks)
    ]
    assert Scanner(own).says("Read it as a DataFrame")


def naming(name: str, groups: int, by: int) -> list[Task]:
    """Tasks of one package, each of a group of its own; the first `by` of them say the name."""
    return [
        Task(
            id=f"d:s:{n}",
            domain="d",
            split="train",
            group=f"g{n}",
            prompt=f"Call {name}." if n < by else "",
        )
        for n in range(groups)
    ]


def test_the_agent_may_say_again_what_it_says_already_to_its_last_word() -> None:
    quotation = "a weekday that is longer than ten characters"
    parent = Scaffold(name="seed", files={"system.md": f"Mind {quotation}"})
    edit = Edit(path="memory/a.md", new=f"Again, {quotation} was often met.", origin="human")
    assert SCANNER.leaks([edit], Scaffold(name="seed", files={"system.md": "Mind."}))
    assert SCANNER.leaks([edit], parent) == []


def test_tasks_of_an_id_without_a_source_are_of_one_package() -> None:
    tasks = [
        Task(
            id=f"quiz:{n}",
            domain="quiz",
            split="train",
            group="g",
            prompt="",
            facts={"function": "bump_prerelease"},
        )
        for n in (1, 2)
    ]
    assert Scanner(tasks).says("Look into bump_prerelease.")
    sources = [t.model_copy(update={"id": t.id.replace(":", ":s") + ":x"}) for t in tasks]
    assert Scanner(sources).says("Look into bump_prerelease.") == []


def held(number: int = 1, prompt: str = "", **facts: Any) -> Task:
    return Task(
        id=f"d:s{number}:t{number}x",
        domain="d",
        split="test",
        group=f"g{number}",
        prompt=prompt,
        facts=facts,
    )


def train(number: int = 9, prompt: str = "", **facts: Any) -> Task:
    return held(number, prompt, **facts).model_copy(update={"split": "train"})


@pytest.mark.parametrize(
    ("answer", "tells"),
    [
        ("Zanzibar", True),
        ("Xyzqw", True),
        ("Xyzq", False),
        ("table", False),
        ("isinstance", False),
        ("1987", True),
        ("198", False),
        ("it was not there", True),
        ("was not there", False),
        ("was not in Zanzibar", True),
        ("we took the last boat there again", True),
        ("we took the last boat there again today", True),
        ("", False),
    ],
)
def test_a_short_answer_is_kept_secret_when_it_tells_something(answer: str, tells: bool) -> None:
    assert bool(Scanner([held(answer=answer)]).says(f"Mind: {answer}, as ever.")) is tells


def test_a_short_answer_is_one_however_many_spaces_are_in_it_and_no_part_of_a_page() -> None:
    scanner = Scanner(
        [held(answer="Zanzibar" + "\n" * 391), held(2, answer="Mombasa" + "\n" * 393)]
    )
    assert scanner.says("It is Zanzibar.")
    assert scanner.says("It is Mombasa.") == []


def test_what_is_deep_in_the_facts_of_a_task_is_found_and_so_are_the_names_they_go_by() -> None:
    facts = {
        "answers": [{"first": ["Zanzibar"]}, ("Mombasa",)],
        "tests": {"t/test_it.py::test_bump_up": 1, "plain_key": 2},
    }
    scanner = Scanner([held(**facts, digest="deadbeef", commit="feedbee")])
    for secret in ("Zanzibar", "Mombasa", "t/test_it.py::test_bump_up", "feedbee"):
        assert scanner.says(f"Mind {secret} here."), secret
    for told in ("plain_key", "deadbeef"):
        assert scanner.says(f"Mind {told} here.") == []


def test_a_short_text_of_several_groups_or_of_a_train_prompt_is_no_secret() -> None:
    assert Scanner([held(answer="Zanzibar")]).says("Sail to Zanzibar.")
    assert (
        Scanner([held(answer="Zanzibar"), held(2, answer="Zanzibar")]).says("Sail to Zanzibar.")
        == []
    )
    assert (
        Scanner([held(answer="Zanzibar"), train(prompt="Sail to Zanzibar now.")]).says(
            "Sail to Zanzibar."
        )
        == []
    )
    assert Scanner([held(answer="Zanzibar"), held(2, prompt="Sail to Zanzibar now.")]).says(
        "Sail to Zanzibar."
    )


def test_wording_of_train_tasks_of_one_group_is_theirs() -> None:
    words = "Sail on to the harbour before the evening tide comes in."
    twice = [train(1, words), train(2, words).model_copy(update={"group": "g1"})]
    assert Scanner(twice).says(words)
    assert Scanner([train(1, words), train(2, words)]).says(words) == []
    assert Scanner([train(1, words), held(2, words)]).says(words) == []


def test_a_train_tasks_name_for_a_thing_is_told_and_a_part_of_it_only_as_code() -> None:
    scanner = Scanner(
        [
            train(
                function="quibble.widen_up",
                file="pkg/frobnicator.py",
                module="gux.widen",
                other="zorkmid",
            )
        ]
    )
    assert scanner.says("Mind the frobnicator.")
    assert scanner.says("Mind the quibble.")
    assert scanner.says("Mind the gux and `gux` and the pkg.") == []
    others = Scanner([train(function="zork.up", module="json.append", name="self.test")])
    assert others.says("Mind the zork.")
    assert others.says("Use `up`, `json`, `append` and self.test(1).") == []
    assert scanner.says("Widen it up.") == []
    for code in ("`widen`", "`x = widen`", "widen(1)", "from widen import", "import  widen"):
        assert scanner.says(f"Use {code} here."), code
    for plain in ("`a.widen`", "a.widen(1)", "widen (1)", "`a\nwiden`"):
        assert scanner.says(f"Use {plain} here.") == [], plain


def test_names_of_python_and_of_its_library_are_no_secrets() -> None:
    names = (
        "SequenceMatcher read_text TemporaryDirectory ArgumentParser is_relative_to add_argument"
        " assertEqual"
    )
    names += (
        " __custom_dunder__ JSONDecodeError UnicodeError parse_args os.path.basename self.some"
        " cls.some"
    )
    scanner = Scanner([held(answer=f"call {names} there", function="read_text")])
    for name in names.split():
        assert scanner.says(f"Mind {name} here.") == [], name
    for own in ("__custom_dunder", "custom_dunder__", "other.basename", "py_test"):
        assert Scanner([held(answer=f"call {own} there")]).says(f"Mind {own} here."), own


def test_hidden_names_that_any_code_may_have_are_no_secrets() -> None:
    hidden = ["error_message = 1\nlast_error_message = 2\nerror_zorkmid = 3\n"]
    scanner = Scanner([held()], {held().id: hidden})
    assert scanner.says("Keep the error_message short.") == []
    assert scanner.says("Keep the last_error_message short.")
    assert scanner.says("Keep the error_zorkmid short.")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("As in d:s1:t1x.", True),
        ("As in (t1x-9).", False),
        ("As in bump-1.", True),
        ("As in a.bump-1.", False),
        ("As in bump-12.", False),
        ("As in abc1.", False),
        ("As in tables.", False),
        ("As in up-10.", True),
    ],
)
def test_a_task_is_named_by_its_id_its_last_part_or_its_group_when_that_is_no_word(
    text: str, named: bool
) -> None:
    tasks = [held(), held(2).model_copy(update={"id": "d:s2:bump-1", "group": "tables"})]
    tasks += [held(3).model_copy(update={"id": "d:s3:abc1", "group": "up-10"})]
    assert bool(Scanner(tasks).says(text)) is named


def test_a_tool_that_python_cannot_read_still_defines_its_names() -> None:
    scanner = Scanner([held(answer="bump_it_up keep_it_low")])
    for code, named in (
        ("def bump_it_up(:", False),
        ("class bump_it_up(:", False),
        ("for bump_it_up in (:", False),
        ("import x as bump_it_up (:", False),
        ("bump_it_up = (:", False),
        ("bump_it_up == (:", True),
        ("    async def bump_it_up(keep_it_low): pass\n", False),
        ("class bump_it_up: pass\n", False),
        ("bump_it_up = 1\nprint(bump_it_up.keep)", False),
        ("print(bump_it_up)\n", True),
    ):
        edit = Edit(path="tools/a.py", new=code, origin="human")
        assert bool(scanner.leaks([edit], PARENT)) is named, code
        assert scanner.leaks([edit.model_copy(update={"path": "memory/a.md"})], PARENT), code


def test_what_is_deleted_is_the_first_of_several_and_what_is_not_there_is_added() -> None:
    begun = PARENT.model_copy(update={"files": {"a.md": "so so well"}})
    scanner = Scanner([held(answer="we sail so well on the old boat")])
    edit = Edit(path="a.md", old="so ", new="we sail ", origin="human")
    assert scanner.leaks([edit, Edit(path="a.md", new=" on the old boat", origin="human")], begun)
    gone = Edit(path="a.md", old="not there", new=" on the old boat", origin="human")
    assert scanner.leaks([edit, gone], begun)
    assert scanner.leaks([gone], begun) == []


def test_no_more_than_ten_reasons_are_given_each_once() -> None:
    names = [f"bump_it_{n}" for n in range(20)]
    scanner = Scanner([held(answer=" ".join(names))])
    assert len(scanner.says(" ".join(names))) == 10
    edits = [Edit(path="a.md", new=" ".join(names), origin="human") for _ in range(2)]
    assert len(scanner.leaks(edits, PARENT)) == 10
    assert (
        len(scanner.leaks([edits[0].model_copy(update={"new": "bump_it_1 bump_it_1"})], PARENT))
        == 1
    )


# ----------------------------------------------------------------------------------------- what is
# written otherwise


@pytest.mark.parametrize(
    ("written", "how"),
    [
        ("`bumpPrerelease`", "bumpPrerelease"),
        ("change-splitlevel", "change-splitlevel"),
        ("change splitlevel", "change splitlevel"),
        ("bump_\nprerelease", "(put together)"),
        ("`'bump_' + \"prerelease\"`", "(put together)"),
        (
            "```python\na = 'bump_'\nb = ''.join([a, 'pre', f'{\"release\"}'])\n```",
            "(put together)",
        ),
        ("bumр_рrеrеlеаsе", "(in letters that look like others)"),
        ("YnVtcF9wcmVyZWxlYXNl", "(in base64: YnVtcF9wcmVyZWxlYXNl)"),
        ("62756d705f70726572656c65617365", "(in hex: 62756d705f70726572656c65...)"),
        ("%62%75%6D%70_prerelease and \\x62ump", "(in escapes)"),
        ("ohzc_cereryrnfr", "(in rot13)"),
        ("esaelererp_pmub", "(backwards)"),
        (
            "NjI3NTZkNzA1ZjcwNzI2NTcyNjU2YzY1NjE3MzY1",
            "(in base64: NjI3NTZkNzA1ZjcwNzI2NTcy...) (in hex: 62756d705f",
        ),
    ],
)
def test_a_name_is_found_however_it_is_written_and_it_is_said_how(written: str, how: str) -> None:
    found = SCANNER.says(f"Mind this: {written} in any case.")
    assert any(how in why for why in found), found


def test_a_short_line_of_one_answer_is_found_and_what_other_answers_share_is_not() -> None:
    line, usual = "return level[3] // depth[0]", "return sorted(found)[:10]"
    scanner = Scanner(
        [held(), held(2), held(3)],
        {held().id: [f"{line}\n{usual}"], held(2).id: [f"{usual}\nreturn found"]},
    )
    assert (
        "copies a line of a held-out task"
        in scanner.says("Write:\n> return  level[3]\n>   // depth[0]\n")[0]
    )
    assert scanner.says(usual) == []
    assert scanner.says("return level[4] // depth[0]") == []


def test_what_is_split_over_two_files_is_found_and_what_only_one_of_them_defines_is_not() -> None:
    first = Edit(path="memory/a.md", new="- Be careful.\n- bump_pre", origin="human")
    second = Edit(path="memory/b.md", new="release is to be looked at\n", origin="human")
    (why,) = SCANNER.leaks([first, second], PARENT)
    assert "memory/a.md, read on into or after another file, names 'bump_prerelease'" in why
    begun = PARENT.model_copy(update={"files": {**PARENT.files, "memory/a.md": first.new}})
    assert SCANNER.leaks([second], begun)
    assert SCANNER.leaks([second], PARENT) == []


def test_data_that_nobody_can_read_is_refused_and_a_digest_a_path_or_a_rule_is_not() -> None:
    blob = "".join(digest(n) for n in range(9))
    (why,) = SCANNER.says(f"Decode {blob} first.")
    assert (
        why == f"holds 144 characters of encoded data ({blob[:24]}...): say in words what it is for"
    )
    for plain in (
        digest("x", 64),
        "/a/long/path" * 20,
        "=" * 100,
        "-" * 100,
        "a_long_name_" * 20,
        "x" * 300,
    ):
        assert SCANNER.says(f"See {plain} there.") == [], plain
    parent = PARENT.model_copy(update={"files": {**PARENT.files, "system.md": f"Decode {blob}.\n"}})
    assert SCANNER.leaks([Edit(path="system.md", new="Be brief.", origin="human")], parent) == []


def test_a_canary_is_refused_wherever_it_comes_from_and_a_train_task_has_none() -> None:
    assert TASKS[0].canary == ""
    (why,) = SCANNER.says(f"As seen: {HELD[0].canary.upper()}.")
    assert why.startswith(f"holds '{HELD[0].canary}', the canary of a held-out task")
    assert Scanner([]).says(HELD[0].canary)


def test_of_a_name_and_its_parts_only_the_name_is_told_unless_the_part_stands_alone_too() -> None:
    def told(text: str) -> list[str]:
        return [
            why
            for why in leaks([Edit(path="system.md", new=text, origin="human")], PARENT, TASKS)
            if "names" in why
        ]

    assert len(told("Mind _change_splitlevel, and _change_splitlevel_of.")) == len(
        told("Mind _change_splitlevel.")
    )
    path = told("Look into sqlparse/engine/statement_splitter.py first.")
    both = told("Look into sqlparse/engine/statement_splitter.py first, of sqlparse.")
    assert len(path) == 1
    assert "'sqlparse/engine/statement_splitter.py'" in path[0]
    assert any("'sqlparse'" in why for why in both)


ASKED = [
    "Sam cooks 12 hotdogs in the first hour and 448 in the second. How many calories is that?",
    *(
        f"A farmer sells {n} cabbages a day and eats some. How many dollars are earned?"
        for n in range(10, 32)
    ),
    "A farmer's daily calories are 2000. How many are left after lunch?",
]
ROWS = Scanner(
    [
        Task(id=f"m:{n}", domain="m", prompt=p, split="train", group=f"m-{n}")
        for n, p in enumerate(ASKED)
    ]
)


@pytest.mark.parametrize(
    ("lesson", "quoted"),
    [
        ("Review the hotdog preparation process.", "'hotdog'"),
        ("Take 448 away at the end.", "'448'"),
        ("Count the hotdogs, then the calories.", "'hotdogs'"),
        ("Sell cabbages by the dollar.", ""),
        ("Mind the calories.", ""),
        ("Check each number of the question again, and what is asked.", ""),
        ("Write the answer as a formula in LaTeX.", ""),
    ],
)
def test_a_lesson_about_the_things_of_the_one_task_it_was_born_of_is_none(
    lesson: str, quoted: str
) -> None:
    """Real bullets of a 1.5B model: "the hotdog preparation process" of one question became a rule
    for all of math."""
    reasons = ROWS.particular(lesson, ["m-0"])
    assert [quoted in why and "as m-0 does and no other train task" in why for why in reasons] == [
        True
    ] * bool(quoted)
    assert ROWS.particular(lesson, []) == []


def test_what_single_words_do_not_tell_they_may_tell_together() -> None:
    asked = [
        "Her daily limit is low in calories.",
        "Burn the calories.",
        "His daily walk.",
        *ASKED[1:23] * 3,
    ]
    rows = Scanner(
        [
            Task(id=f"m:{n}", domain="m", prompt=p, split="train", group=f"m-{n}")
            for n, p in enumerate(asked)
        ]
    )
    assert (
        rows.particular("Mind the calories.", ["m-0"])
        == rows.particular("Walk daily.", ["m-0"])
        == []
    )
    (reason,) = rows.particular("Keep to the daily calories.", ["m-0"])
    assert "'daily', 'calories'" in reason or "'calories', 'daily'" in reason


def test_of_few_tasks_no_word_is_said_to_be_one_tasks_alone() -> None:
    few = Scanner(
        [
            Task(id=f"m:{n}", domain="m", prompt=p, split="train", group=f"m-{n}")
            for n, p in enumerate(ASKED[:19])
        ]
    )
    assert few.particular("Review the hotdog preparation process.", ["m-0"]) == []


def test_words_that_only_held_out_tasks_share_do_not_make_a_lesson_general() -> None:
    held = Task(id="m:h", domain="m", prompt="Ann sells hotdogs.", split="test", group="m-h")
    tasks = [
        Task(id=f"m:{n}", domain="m", prompt=p, split="train", group=f"m-{n}")
        for n, p in enumerate(ASKED)
    ]
    with_held = Scanner([*tasks, held])
    assert (
        with_held.particular("Review the hotdogs.", ["m-0"])
        == ROWS.particular("Review the hotdogs.", ["m-0"])
        != []
    )


LIBRARY = Task(
    id="tables:fares:1",
    domain="tables",
    prompt="Which passengers paid the highest fare? Save it to fares.csv.",
    split="test",
    group="Sklearn-fares",
    facts={
        "row": {"files": ["trees.score", "fares.csv"], "answer": "mean_fare_price"},
        "rules": "Mean_Squared_Error",
    },
)
GOLD = """\
from sklearn.model_selection import train_test_split
model = sklearn.linear_model.LinearRegression(fit_intercept=False)
halves = train_test_split(df, test_size=0.2, random_state=42)
found = df.value_counts()[0] + np.argsort(df.fare_usd)[0] + pick_highest_deck(df.groupby)
topFareDeck = mean_squared_error(found, halves)
"""
ADVICE = (
    (
        "Hold a part out by train_test_split with a random_state, fit a LinearRegression, and tell"
        " its mean_squared_error."
    ),
    "Count by df.value_counts() or df.groupby, and sort with np.argsort.",
    "Take `sklearn.linear_model.LinearRegression`, and say test_size.",
    "Load the dataframe with `sklearn`.",
)


@pytest.mark.parametrize("text", ADVICE)
def test_public_names_of_packages_that_the_domain_has_are_nobodys(text: str) -> None:
    hidden = {LIBRARY.id: [GOLD]}
    equipped = Scanner([LIBRARY], hidden, ["pandas==1.5.3", "numpy", "scikit_learn[x]>=1"])
    assert equipped.says(text) == []
    assert equipped.leaks([Edit(path="system.md", new=text, origin="human")], PARENT, [GOLD]) == []
    assert Scanner([LIBRARY], hidden).says(text)
    assert Scanner([LIBRARY], hidden, ["pyyaml", "a_package_that_nobody_knows"]).says(text)


@pytest.mark.parametrize(
    "text",
    [
        "Group by mean_fare_price.",
        "Sort df.fare_usd first.",
        "Write pick_highest_deck.",
        "Call it topFareDeck.",
        "Look into trees.score.",
        "Read fares.csv.",
        "Tell the Mean_Squared_Error.",
        "Sort by pd.fare_usd, or train_test_split.fare_usd.",
        "bWVhbl9mYXJlX3ByaWNlIGlzIHRoZSBjb2x1bW4=",
    ],
)
def test_what_a_task_names_itself_is_its_own_also_where_packages_have_something_like_it(
    text: str,
) -> None:
    assert Scanner([LIBRARY], {LIBRARY.id: [GOLD]}, ["pandas", "numpy", "scikit-learn"]).says(text)


def test_packages_have_no_private_names_and_none_that_only_their_tests_have() -> None:
    packages = Scanner([], {}, ["pandas", "numpy", "scikit-learn", "scipy", "matplotlib"]).packages
    assert packages.top == {
        "pandas",
        "numpy",
        "sklearn",
        "scipy",
        "matplotlib",
        "mpl_toolkits",
        "pylab",
    }
    assert not any(name.startswith("_") for name in packages.names)
    assert not any(name.startswith("test_") and name.count("_") > 2 for name in packages.names)

"""What a person can rely on when a scaffold is read, changed, compared and written."""

from __future__ import annotations

import os
import re
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recreate.agents.config import read_agent
from recreate.agents.lesson import lesson_file, read_lesson
from recreate.agents.scaffold import BadEdit, Scaffold, apply, diff, load, save
from recreate.api.errors import BadInput, Fault
from recreate.api.types import Edit, Evidence, Output, Task

TOML = 'domain = "toy"\n[limits]\nsteps = 5\n'
BASE = {
    "agent.toml": TOML,
    "system.md": "You mend code.\n",
    "workflow.md": "{{ task.prompt }}\n",
    "tools/look.py": '#!/usr/bin/env python3\n"""Looks around."""\nprint(1)\n',
}
TASK = Task(
    id="toy:a:1",
    domain="toy",
    prompt="Mend it.",
    split="train",
    group="a",
    facts={"gold": "hidden!"},
)

texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=60)
names = st.text(string.ascii_lowercase + string.digits + "_-.", min_size=1, max_size=10).filter(
    lambda n: n[0].isalnum()
)
paths = st.one_of(
    st.sampled_from(["system.md", "workflow.md", "observation.md", "format.md", "README.md"]),
    names.map(lambda n: f"tools/{n}").filter(lambda p: not p.endswith(".pyc")),
    names.map(lambda n: f"memory/{n}.md"),
)
scaffolds = st.dictionaries(paths, texts, max_size=6).map(
    lambda f: Scaffold(name="x", files={**BASE, **f})
)


def human(path: str, old: str = "", new: str = "", **more: Any) -> Edit:
    return Edit(path=path, old=old, new=new, origin="human", **more)


def scaffold(**files: str) -> Scaffold:
    return Scaffold(
        name="toy", files={**BASE, **{k.replace("__", "/"): v for k, v in files.items()}}
    )


# ------------------------------------------------------------------------------------------------
# identity


def test_the_digest_is_of_the_files_not_of_the_name_nor_the_readme() -> None:
    a = Scaffold(name="a", files=BASE)
    assert a.digest == Scaffold(name="b", files={**BASE, "README.md": "scored 0.5"}).digest
    assert a.digest != Scaffold(name="a", files={**BASE, "system.md": "You mend code."}).digest


@pytest.mark.parametrize("path", ["tools/search.py", "memory/read-first.md"])
def test_a_proposal_of_only_a_tool_or_only_a_lesson_is_a_real_change(path: str) -> None:
    before = scaffold()
    after = apply(before, [human(path, new="# Read first\n\nThe failing test.\n")])
    assert after.digest != before.digest
    assert path in diff(before, after)


@given(scaffolds, st.randoms())
def test_the_order_of_files_does_not_change_the_digest(made: Scaffold, random: Any) -> None:
    items = list(made.files.items())
    random.shuffle(items)
    assert Scaffold(name="y", files=dict(items)).digest == made.digest


# ------------------------------------------------------------------------------------------- load
# and save


@pytest.mark.slow
@given(scaffolds)
def test_what_is_saved_is_loaded_again(
    tmp_path_factory: pytest.TempPathFactory, made: Scaffold
) -> None:
    folder = tmp_path_factory.mktemp("s") / "x"
    save(made, folder)
    assert load(folder).files == made.files
    assert load(folder).digest == made.digest
    assert [p.name for p in folder.parent.iterdir()] == ["x"]


@pytest.mark.slow
@given(scaffolds, scaffolds)
def test_saving_over_another_scaffold_leaves_only_the_new_one(
    tmp_path_factory: pytest.TempPathFactory, old: Scaffold, new: Scaffold
) -> None:
    folder = tmp_path_factory.mktemp("s") / "x"
    save(old, folder)
    save(new, folder)
    assert load(folder).files == new.files
    assert [p.name for p in folder.parent.iterdir()] == ["x"]


def test_line_ends_survive(tmp_path: Path) -> None:
    made = scaffold(**{"system.md": "one\r\ntwo\rthree\n"})
    save(made, tmp_path / "x")
    assert (tmp_path / "x/system.md").read_bytes() == b"one\r\ntwo\rthree\n"
    assert load(tmp_path / "x").files["system.md"] == "one\r\ntwo\rthree\n"


def test_tools_are_executable_after_saving(tmp_path: Path) -> None:
    save(scaffold(), tmp_path / "x")
    assert os.access(tmp_path / "x/tools/look.py", os.X_OK)
    assert not os.access(tmp_path / "x/system.md", os.X_OK)
    assert subprocess.check_output([tmp_path / "x/tools/look.py"]) == b"1\n"


def test_bytecode_and_hidden_files_are_not_part_of_a_scaffold_and_are_left_alone(
    tmp_path: Path,
) -> None:
    save(scaffold(), tmp_path / "x")
    for extra in (".git/HEAD", "tools/__pycache__/look.cpython-312.pyc", ".notes"):
        (tmp_path / "x" / extra).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / extra).write_bytes(b"\xff")
    assert load(tmp_path / "x").digest == scaffold().digest
    save(apply(scaffold(), [human("tools/look.py", BASE["tools/look.py"])]), tmp_path / "x")
    assert (tmp_path / "x/.git/HEAD").exists()
    assert (tmp_path / "x/.notes").exists()
    assert not (tmp_path / "x/tools/look.py").exists()


def test_saving_into_a_folder_of_other_things_is_refused_and_touches_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match=r"agent\.toml"):
        save(scaffold(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_full_disk_leaves_the_old_scaffold_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(scaffold(), tmp_path / "x")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Fault, match="No space left") as e:
        save(scaffold(**{"system.md": "new"}), tmp_path / "x")
    assert "space" in e.value.fix
    assert load(tmp_path / "x").files == BASE
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("name", ["agent.toml", "system.md", "workflow.md"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    save(scaffold(), tmp_path / "x")
    (tmp_path / "x" / name).unlink()
    with pytest.raises(BadInput, match=name) as e:
        load(tmp_path / "x")
    assert e.value.fix


def test_no_such_scaffold_lists_its_neighbours(tmp_path: Path) -> None:
    save(scaffold(), tmp_path / "seed")
    with pytest.raises(BadInput) as e:
        load(tmp_path / "sede")
    assert "seed" in e.value.fix


def test_a_link_or_file_that_leads_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    (tmp_path / "folder").mkdir()
    for link, target in (
        ("tools/a.py", "../../secret"),
        ("tools/b", "../../folder"),
        ("gone", "/nowhere/at/all"),
    ):
        folder = tmp_path / "x"
        save(scaffold(), folder)
        (folder / link).symlink_to(target)
        with pytest.raises(BadInput, match="outside") as e:
            load(folder)
        assert link.rpartition("/")[2] in e.value.message
        save(scaffold(), folder)
        assert not (folder / link).is_symlink()
    assert (tmp_path / "secret").read_text() == "key"
    with pytest.raises(BadInput, match="outside"):
        save(Scaffold(name="x", files={**BASE, "../evil": "x"}), tmp_path / "y")


def test_a_folder_link_in_the_way_is_not_written_through(tmp_path: Path) -> None:
    save(scaffold(), tmp_path / "x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "x/memory").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="link"):
        save(scaffold(memory__a="x"), tmp_path / "x")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_files_that_are_no_text_too_big_or_no_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    for data, said in ((b"\xff\xfe", "UTF-8"), (b"x" * 256_001, "256001")):
        save(scaffold(), folder)
        (folder / "tools/data.py").write_bytes(data)
        with pytest.raises(BadInput, match=said) as e:
            load(folder)
        assert "tools/data.py" in e.value.message
    (folder / "tools/data.py").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(BadInput, match="plain file"):
        load(folder)


def test_a_misspelt_key_is_answered_with_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"agent\.toml:3: unknown key 'limits\.step'; did you mean 'steps'\?"
    ):
        _ = scaffold(**{"agent.toml": 'domain = "toy"\n[limits]\nstep = 3\n'}).agent
    save(scaffold(**{"agent.toml": "sample = 3\n"}), tmp_path / "x")
    with pytest.raises(BadInput, match="did you mean 'samples'"):
        load(tmp_path / "x")
    assert load(tmp_path / "x", parse=False).files["agent.toml"] == "sample = 3\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a = \n", 1, "TOML"),
        ('\naction = "shell"\n', 2, "tool:NAME"),
        ("samples = 0\n", 1, "samples"),
        ("[limits]\nsteps = 1\nusd = -1\n", 3, "limits.usd"),
        ("[limits]\nusd = nan\n", 2, "limits.usd"),
        ("before = 'look'\n", 1, "before"),
        ("[model]\nmax_token = 3\n", 2, "max_tokens"),
        ("schema = 99\n", 1, "newer"),
    ],
)
def test_what_is_wrong_in_agent_toml_is_said_with_its_line(text: str, line: int, said: str) -> None:
    agent, faults = read_agent(text)
    assert agent is None
    assert any(at == line and said in message for at, message in faults)


@settings(max_examples=40)
@given(st.text(max_size=80))
def test_any_text_as_agent_toml_gives_an_agent_or_faults(text: str) -> None:
    agent, faults = read_agent(text)
    assert (agent is None) == bool(faults)


# -------------------------------------------------------------------------------------------------
# apply


@given(scaffolds)
def test_no_edits_change_nothing(made: Scaffold) -> None:
    assert apply(made, []) == made


@given(scaffolds, paths, texts.filter(bool))
def test_creating_appending_and_deleting(made: Scaffold, path: str, text: str) -> None:
    after = apply(made, [human(path, "", text)])
    assert after.files[path] == made.files.get(path, "") + text
    assert made.files == {**made.files}
    if path not in ("system.md", "workflow.md"):
        gone = apply(after, [human(path, after.files[path], "")])
        assert path not in gone.files
        if path not in made.files:
            assert gone.digest == made.digest


@given(texts, texts, texts, texts)
def test_a_replacement_changes_exactly_what_was_found_once(
    a: str, old: str, b: str, new: str
) -> None:
    text = a + old + b
    made = scaffold(**{"observation.md": text})
    places = [i for i in range(len(text)) if text.startswith(old, i)] if old else []
    edit = human("observation.md", old, new)
    if old == new or (old and len(places) != 1):
        with pytest.raises(BadEdit) as e:
            apply(made, [edit])
        assert e.value.edit == edit
        assert e.value.fix
    elif old and (new or old != text):
        assert apply(made, [edit]).files["observation.md"] == a + new + b


def test_text_found_twice_with_an_overlap_is_not_found_once() -> None:
    with pytest.raises(BadEdit, match="more than once"):
        apply(scaffold(**{"observation.md": "aaa"}), [human("observation.md", "aa", "b")])


@given(scaffolds, st.lists(st.tuples(paths, texts, texts), max_size=4))
def test_apply_is_pure_and_the_same_twice(made: Scaffold, raw: list[tuple[str, str, str]]) -> None:
    edits, before = [human(*r) for r in raw], dict(made.files)
    try:
        once = apply(made, edits)
    except BadEdit:
        once = None
    assert made.files == before
    if once is not None:
        assert apply(made, edits).digest == once.digest
        step = made
        for edit in edits:
            step = apply(step, [edit])
        assert step == once


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../x",
            "/etc/passwd",
            "tools/../../x",
            "tools/a/b.py",
            "tools/.hidden",
            "notes.txt",
            "",
            "memory/a.txt",
        ),
        *(
            "tools\\a.py",
            "memory/..",
            "tools/a\n.py",
            "./system.md",
            "SYSTEM.md",
            "tools/",
            ".git/config",
        ),
    ],
)
def test_an_edit_of_a_file_no_scaffold_has_is_refused(path: str) -> None:
    with pytest.raises(BadEdit) as e:
        apply(scaffold(), [human("system.md", new="fine"), human(path, new="x")])
    assert e.value.index == 1
    assert "edit 2" in e.value.message


def test_an_edit_from_experience_must_cite_it() -> None:
    edit = Edit(path="system.md", new="Read first.\n")
    with pytest.raises(BadEdit, match="experience"):
        apply(scaffold(), [edit])
    cited = edit.model_copy(update={"evidence": (Evidence(experience="e1", step=2),)})
    assert "Read first." in apply(scaffold(), [cited]).files["system.md"]


def test_protected_files_stay_as_they_are() -> None:
    made = scaffold(**{"agent.toml": 'protect = ["tools/*", "system.md"]\n'})
    for path in ("tools/new.py", "system.md"):
        with pytest.raises(BadEdit, match="protected"):
            apply(made, [human(path, new="x")])
    with pytest.raises(BadEdit, match="protection"):
        apply(made, [human("agent.toml", '"tools/*", ', ""), human("tools/new.py", new="x")])
    apply(made, [human("workflow.md", new="x")])


@pytest.mark.parametrize("name", ["agent.toml", "system.md", "workflow.md"])
def test_what_every_scaffold_has_cannot_be_deleted(name: str) -> None:
    with pytest.raises(BadEdit, match="deleted"):
        apply(scaffold(), [human(name, BASE[name], "")])


def test_text_that_cannot_be_written_to_disk_is_refused() -> None:
    with pytest.raises(BadEdit, match="Unicode"):
        apply(scaffold(), [human("system.md", new="\ud800")])


# --------------------------------------------------------------------------------------------------
# diff


@given(scaffolds, scaffolds)
def test_a_diff_is_empty_exactly_when_the_files_are_the_same(a: Scaffold, b: Scaffold) -> None:
    assert (diff(a, b) == "") == (a.files == b.files)
    assert diff(a, a) == ""


def test_git_can_apply_a_diff(tmp_path: Path) -> None:
    a = scaffold(
        **{
            "observation.md": "no end",
            "format.md": "crlf\r\nx\u2028y\x0cz\n" + "line\n" * 20,
            "memory__": "",
        }
    )
    a = Scaffold(name="a", files={k: v for k, v in a.files.items() if k != "memory/"})
    b = apply(
        a,
        [
            human("observation.md", new=" now\n"),
            human("format.md", "x\u2028y", "x\u2029y"),
            human("tools/look.py", BASE["tools/look.py"]),
            human("tools/see.sh", new="#!/bin/sh\n# Sees.\n"),
            human("memory/a.md", new="no newline"),
        ],
    )
    save(a, tmp_path / "x")
    subprocess.run(["git", "apply", "-"], input=diff(a, b).encode(), cwd=tmp_path / "x", check=True)
    assert load(tmp_path / "x").files == b.files
    assert os.access(tmp_path / "x/tools/see.sh", os.X_OK)


# ---------------------------------------------------------------------------------------- tools and
# lessons


def test_tools_are_named_after_their_files_and_say_what_they_do() -> None:
    made = scaffold(
        tools___shared="x = 1\n",
        **{
            "tools/find.sh": "#!/bin/bash\n# Finds a thing.\n#\n# Use: find X\nls\n",
            "tools/words.txt": "a\n",
        },
    )
    assert made.tools == {"find": "tools/find.sh", "look": "tools/look.py"}
    assert made.help("find") == "Finds a thing.\n\nUse: find X"
    assert made.help("look") == "Looks around."


titles = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=40)
ids = st.lists(st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8), max_size=3)


@given(titles, texts, ids)
def test_a_lesson_is_read_as_it_was_written(title: str, body: str, born_of: list[str]) -> None:
    path, text = lesson_file(title, body, born_of)
    made = apply(scaffold(), [human(path, new=text)])
    (lesson,) = made.lessons
    assert lesson.title == (" ".join(title.split()) or "untitled")
    assert lesson.body.strip("\n") == re.sub(r"\r\n?", "\n", body).strip("\n")
    assert lesson.born_of == tuple(born_of)
    assert path == f"memory/{lesson.id}.md"


def test_lessons_of_one_title_and_two_bodies_are_two_files() -> None:
    assert lesson_file("Read first", "a")[0] != lesson_file("Read first", "b")[0]
    assert lesson_file("Read first", "a")[0] == lesson_file("Read first", "a", ["e1"])[0]


def test_a_lesson_written_by_hand_needs_no_born_of() -> None:
    lesson = read_lesson("be-brief", "# Be brief\n\nSay little.\nscope: this is prose\n")
    assert (lesson.title, lesson.body, lesson.born_of) == (
        "Be brief",
        "Say little.\nscope: this is prose",
        (),
    )
    assert read_lesson("be-brief", "Say little.").title == "be brief"


# -----------------------------------------------------------------------------------------------
# templates


def test_every_template_is_rendered_with_what_it_may_use() -> None:
    made = scaffold(
        **{
            "system.md": (
                "{% for t in tools %}\n- {{ t.name }}: {{ t.help }}\n{% endfor %}\n{{"
                " limits.steps }}"
            ),
            "workflow.md": (
                "{{ task.prompt }} {{ before.look }}\n"
                "{% for l in lessons %}\n{{ l.title }}: {{ l.body }}\n{% endfor %}"
            ),
            "memory/a.md": "# Braces\n\n{{ are }} {% just %} text",
        }
    )
    assert made.render("system", task=TASK, before={}) == "- look: Looks around.\n5"
    assert (
        made.render("workflow", task=TASK, before={"look": "seen"})
        == "Mend it. seen\nBraces: {{ are }} {% just %} text\n"
    )
    shown = made.render(
        "observation", output=Output(text="boo", status=3), step=1, steps_left=4, task=TASK
    )
    assert shown == "boo\n[exit status 3; 4 steps left]"
    assert "no command" in made.render("format", error="no command", steps_left=2, task=TASK)


@pytest.mark.parametrize(
    "leak", ["{{ task.facts }}", "{{ task.facts.gold }}", "{{ task.id }}", "{{ task }}"]
)
def test_the_hidden_facts_of_a_task_never_reach_a_prompt(leak: str) -> None:
    try:
        said = scaffold(**{"workflow.md": leak}).render("workflow", task=TASK, before={})
    except BadInput as e:
        said = e.message
    assert "hidden" not in said


def test_a_variable_no_template_has_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="sample"):
        scaffold().render("system", task=TASK, sample=1)


@pytest.mark.parametrize(
    "source",
    [
        "{{key: value}}",
        "{{ nobody }}",
        "{{ task.promt }}",
        "{% include 'agent.toml' %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ lessons.append(1) }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 999999999 }}",
        "{{ 'a'.ljust(999999999) }}",
        "{{ '{:>999999999}'.format(1) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ 'a'|center(999999999) }}",
        "{{ 9**9**9**9 }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set x = 'ab' %}" + "{% set x = x ~ x %}" * 40 + "{{ x }}",
        "{% set x = 'ab' %}" + "{% set x = x + x %}" * 40 + "{{ x }}",
        "{% set x = 'ab' %}" + "{% set x = x|replace('', x) %}" * 9 + "{{ x }}",
        "{% set x = ['ab'] %}" + "{% set x = [x, x] %}" * 40 + "{{ x }}",
        "{% set x = 'ab' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40 + "{{ x }}",
    ],
)
def test_a_template_that_is_broken_or_would_not_end_is_an_error_with_its_line(source: str) -> None:
    made = scaffold(**{"system.md": f"fine\n\n{source}\n"})
    with pytest.raises(BadInput, match=r"^system\.md:3: ") as e:
        made.render("system", task=TASK, before={})
    assert e.value.fix


@given(st.text(st.sampled_from("{}%# abtask.prompt|()[]'0*-~\n"), max_size=60))
def test_any_text_renders_or_is_bad_input(source: str) -> None:
    code = "bad-template"
    try:
        scaffold(**{"system.md": source}).render("system", task=TASK, before={})
    except BadInput as e:
        code = e.code
    assert code == "bad-template"


@pytest.mark.parametrize(
    ("name", "text"), [("a\0b", "x"), ("\ud800", "x"), ("system.md", "half \ud83d")]
)
def test_what_is_no_text_is_not_saved(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        save(Scaffold(name="x", files={name: text}), tmp_path / "x")
    assert not (tmp_path / "x").exists()

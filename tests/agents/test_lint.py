"""What `scaffold check` finds before a token is spent, and what it lets pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents.config import read_agent
from recreate.agents.lint import Problem, check
from recreate.agents.scaffold import TEMPLATES, Scaffold, lesson_file, load, variables_example
from recreate.agents.workplace import executable
from recreate.api.paths import shipped
from recreate.api.types import Output, Task
from recreate.sandboxes.none import NoSandbox

SOUND = {
    "agent.toml": 'before = ["look"]\n',
    "system.md": (
        "You mend code.\n{% for l in lessons %}\n- {{ l.title }}: {{ l.body }}\n{% endfor %}\n"
    ),
    "workflow.md": "{{ task.prompt }}\n{{ before.look }}\n",
    "observation.md": "{% if output.timed_out %}\ntoo slow\n{% endif %}\n{{ output.text }}\n",
    "tools/look.py": '#!/usr/bin/env python3\n"""Looks around."""\nprint("nothing here")\n',
    "memory/a.md": "# Braces\n\nA lesson may say {{ what it likes }}, {% even this.\n",
}


def faults(backend: NoSandbox | None = None, **changed: str | None) -> list[Problem]:
    files = {**SOUND, **changed}
    return check(
        Scaffold(name="x", files={k: v for k, v in files.items() if v is not None}), backend
    )


def places(found: list[Problem]) -> list[tuple[str, int]]:
    return [(fault.file, fault.line) for fault in found]


def test_a_sound_scaffold_has_no_faults() -> None:
    assert faults(NoSandbox()) == []


@pytest.mark.parametrize(
    "name", sorted(file.parent.name for file in shipped("scaffolds").glob("*/agent.toml"))
)
def test_the_shipped_seeds_have_no_faults(name: str) -> None:
    assert check(load(shipped("scaffolds") / name), NoSandbox()) == []


@pytest.mark.parametrize("file", ["system.md", "workflow.md", "observation.md", "format.md"])
def test_a_stray_key_value_in_braces_is_caught_before_a_token_is_spent(file: str) -> None:
    (fault,) = [
        f
        for f in faults(**{file: "Answer as\n\n{{key: value}}\n"})
        if f.file == file and "lessons" not in f.message
    ]
    assert fault.line == 3


@pytest.mark.parametrize(
    ("file", "text", "line", "said"),
    [
        ("workflow.md", "{{ task.prompt }}\n\n{{ history }}", 3, "'history' is undefined"),
        ("workflow.md", "{% if false %}\n{{ history }}\n{% endif %}", 2, "'history' is undefined"),
        (
            "workflow.md",
            "{% if false %}\n{{ task.prompt.zfill(9) }}\n{% endif %}",
            2,
            "'zfill' is not to be called",
        ),
        (
            "workflow.md",
            "{% if before.look %}\n{{ task.promt }}{% endif %}",
            2,
            "'task' has no 'promt'; it has prompt",
        ),
        ("workflow.md", "\n{{ task['promt'] }}", 2, "'promt'"),
        ("workflow.md", "\n{{ before.lok }}", 2, "'lok'; it has look"),
        ("workflow.md", "\n{{ output.text }}", 2, "'output' is undefined"),
        ("observation.md", "\n\n{% if output.timed_out %}{{ output.secs }}{% endif %}", 3, "secs"),
        ("format.md", "{% for t in tools %}\n{{ t.nam }}\n{% endfor %}", 2, "nam"),
        ("observation.md", "a\n{% endif %}", 2, "endif"),
        ("observation.md", "a\n{% if x %}", 2, "if"),
        ("observation.md", "\n{{ 1 / output.cut }}", 2, "division"),
        ("observation.md", "\n{{ output.text|upercase }}", 2, "upercase"),
        ("observation.md", "\n{% for i in range(1000000000) %}{% endfor %}", 2, "range"),
        (
            "system.md",
            "{{ lessons }}\n{{ ''.__class__ }}",
            2,
            "not for templates; calls that are: ",
        ),
        (
            "system.md",
            "{{ lessons }}\n{{ task.prompt.truncate(9) }}",
            2,
            "as a filter: {{ value|truncate(...) }}",
        ),
        ("system.md", "{{ lessons }}\n{{ task.prompt|sentence }}", 2, "Filters are: abs "),
        ("system.md", "{{ lessons[0].title }}" + "word " * 5000, 1, "25"),
        ("system.md", "No memory.", 1, "lessons"),
        ("system.md", None, 1, "missing"),
        ("agent.toml", None, 1, "missing"),
        ("agent.toml", '\naction = "shell"', 2, "bash, json"),
        ("agent.toml", "\nsteps = 3", 2, "unknown key"),
        (
            "agent.toml",
            'before = ["look"]\naction = "tool:rewrite"',
            2,
            "'rewrite'; there are: look",
        ),
        ("agent.toml", 'before = ["look"]\n\ndone = "tests"', 3, "'tests'"),
        ("agent.toml", 'before = ["look"]\n\nchoose = "tests"', 3, "'tests'"),
        ("tools/new.py", '"""Fine."""\n\ndef (', 3, "not Python"),
        ("tools/new.py", "x = 1\n", 1, "docstring"),
        ("tools/new.py", '"""Big."""\n' + "#" * 64_000, 1, "over 64000"),
        ("tools/new.sh", "#!/bin/sh\nls\n", 1, "comment"),
        ("tools/new.sh", "# Lists.\nls\n", 1, "runs it"),
        ("tools/look.sh", "#!/bin/sh\n# Looks.\n", 1, "same name"),
        ("tools/data.json", "{}", 1, "no tool"),
        ("tools/_shared.py", "x = 1\n", 1, "no tool"),
        ("notes.txt", "", 1, "not a file"),
        ("tools/a/b.py", "", 1, "not a file"),
        ("memory/b.md", "# Long\n\n" + "word " * 400, 1, "over 2000"),
        ("memory/b.md", "# Nothing\n\nborn_of: e1\n", 1, "says nothing"),
    ],
)
def test_a_fault_is_named_with_file_and_line(
    file: str, text: str | None, line: int, said: str
) -> None:
    found = [fault for fault in faults(**{file: text}) if said in fault.message]
    assert places(found) == [(file, line)], faults(**{file: text})


def test_too_many_lessons_are_a_fault() -> None:
    more = dict(lesson_file(f"Lesson {i}", "Say it.") for i in range(40))
    assert any("41 lessons" in fault.message for fault in faults(**more))


def test_a_prompt_that_its_own_lessons_make_too_long_is_a_fault() -> None:
    more = dict(lesson_file(f"Lesson {i}", "Say it. " * 200) for i in range(16))
    (fault,) = faults(**more)
    assert (fault.file, fault.line) == ("system.md", 1)
    assert "over 24000" in fault.message
    files = {**SOUND, **more}
    assert check(Scaffold(name="x", files=files), prompt_chars=30_000) == []


def test_all_faults_are_listed_not_only_the_first() -> None:
    found = faults(
        **{
            "agent.toml": "stepz = 1\nsamples = 0\n",
            "system.md": "{{ a }}\n{{ b }}",
            "tools/look.py": "def",
        }
    )
    assert {*places(found)} >= {
        ("agent.toml", 1),
        ("agent.toml", 2),
        ("system.md", 1),
        ("system.md", 2),
        ("tools/look.py", 1),
    }


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("import sys\nsys.exit(3)\n", 1, "status 3"),
        ("import surely_not_there\n", 2, "surely_not_there"),
        ("import pydantic\n", 2, "pydantic"),
        ("import pydantic\n", 2, "import those of the task's sandbox after `--help`"),
        ("def f():\n    return 1 / 0\nf()\n", 3, "ZeroDivisionError"),
    ],
)
def test_a_tool_that_does_not_start_is_a_fault(body: str, line: int, said: str) -> None:
    tool = '"""Fails."""\n' + body
    (fault,) = faults(NoSandbox(), **{"tools/new.py": tool})
    assert (fault.file, fault.line) == ("tools/new.py", line)
    assert said in fault.message
    assert faults(**{"tools/new.py": tool}) == []


def test_a_tool_that_does_not_end_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recreate.agents.lint.START_SECONDS", 0.5)
    found = faults(NoSandbox(), **{"tools/new.py": '"""Waits."""\nimport time\ntime.sleep(60)\n'})
    # on a busy machine others are late
    messages = [fault.message for fault in found if fault.file == "tools/new.py"]
    assert len(messages) == 1
    assert "does not end" in messages[0]


def test_a_shell_tool_is_started_too() -> None:
    (fault,) = faults(NoSandbox(), **{"tools/new.sh": "#!/bin/sh\n# Fails.\nexit 4\n"})
    assert "status 4" in fault.message
    assert faults(NoSandbox(), **{"tools/new.sh": "#!/bin/sh\n# Works.\nexit 0\n"}) == []


def test_a_tool_with_line_ends_of_windows_starts() -> None:
    assert faults(NoSandbox(), **{"tools/new.sh": "#!/bin/sh\r\n# Works.\r\nexit 0\r\n"}) == []
    assert executable("#!/bin/sh\r\nexit 0\r\n") == b"#!/bin/sh\nexit 0\n"


def test_odd_escapes_in_a_tool_print_no_warnings() -> None:
    tool = '"""Finds \\d."""\nimport re\nre.compile("\\d")\n'
    assert faults(**{"tools/new.py": tool}) == []


@given(
    st.sampled_from(TEMPLATES),
    st.text(st.sampled_from("{}%# \n.|abtoutput_eslnk'[]()1"), max_size=50),
)
def test_a_template_that_passes_the_check_renders_in_an_attempt(template: str, text: str) -> None:
    made = Scaffold(name="x", files={**SOUND, f"{template}.md": text})
    found = [
        f
        for f in check(made)
        if f.file == f"{template}.md" and "no template shows" not in f.message
    ]
    if found:
        return
    task = Task(id="a:b:1", domain="a", prompt="Mend it.", split="train", group="g")
    given = {
        k: v
        for k, v in variables_example(template, ["look"]).items()
        if k not in ("tools", "lessons", "limits")
    }
    given["task"] = task
    if "output" in given:
        given["output"] = Output(text="x", status=1)
    assert isinstance(made.render(template, **given), str)


def test_a_table_called_turns_is_unknown() -> None:
    agent, (fault,) = read_agent("\n[turns.observe]\nsteps = 2\n")
    assert agent is None
    assert fault[1].startswith("unknown key 'turns'")

"""Sessions in a folder: what is there, what its commands do, and what is handed in."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import Interrupted
from recreate.api.types import Call
from recreate.runs.session import open_session
from tests.studied import SEED, Acts, Tried, Try
from tests.toy import LESSON

pytestmark = pytest.mark.plugin("each")

CAUSES = """## Answers lack an exclamation mark
- 01 step 0: "printf %s"
- 02 step 0: "printf   %s"
Changed: workflow.md
"""
EDIT = f"printf '\\n{LESSON}\\n' >> agent/workflow.md"


def shell(command: str) -> tuple[str, dict[str, Any]]:
    return "shell", {"command": command}


def write_causes(text: str = CAUSES) -> str:
    return f"cat > causes.md <<'X'\n{text}X\n"


def finds(first: str) -> Acts:
    yield shell(EDIT)
    yield shell(write_causes() + "finish")


Go = Callable[..., Tried]


@pytest.fixture
def go(attempt: Try) -> Go:
    def go(*commands: Any, **flags: Any) -> Tried:
        def acts(first: str) -> Acts:
            for command in commands:
                yield command if isinstance(command, tuple) else shell(command)

        flags = {"optimizer": "workbench", "rounds": 1, "validation": 5, **flags}
        return attempt(flags.pop("acts", acts), **flags)

    return go


def answers(tried: Tried) -> list[str]:
    (file,) = (tried.run.folder / "studies").glob("*/steps.jsonl")
    return [json.loads(line)["output"] for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_what_a_session_hands_in_is_judged_and_cites_the_steps_that_it_quotes(go: Go) -> None:
    tried = go(acts=finds)
    (revision,) = tried.built.revisions
    (edit,) = revision.edits
    assert (revision.kept, edit.path) == (True, "workflow.md")
    assert edit.reason == "Answers lack an exclamation mark"
    assert len({cited.experience for cited in edit.evidence}) == 2
    assert tried.all[0].summary == CAUSES.strip()


@pytest.mark.slow
def test_the_folder_holds_the_attempts_the_agent_and_no_held_out_task(go: Go) -> None:
    tried = go(
        "cat TASK.md history.md agent/agent.toml attempts/*/*.md; git -C agent log --format=%s",
        "grep -r validation . ; ls / /desk; env",
        "finish",
    )
    shown, looked, _ = answers(tried)
    assert "Change agent/ so that it does better" in shown
    assert "Nothing was tried yet" in shown
    assert "AssertionError: 'w" in shown
    assert "parent" in shown.splitlines()
    assert "toy:validation" not in looked
    assert "KEY" not in looked


@pytest.mark.slow
def test_a_readme_that_tells_of_held_out_tasks_is_not_in_the_folder_and_stays_as_it_is(
    go: Go,
) -> None:
    seed = Scaffold(name="told", files={**SEED.files, "README.md": "passes 9 of 20 tasks\n"})
    tried = go("ls agent; " + EDIT + "; " + write_causes() + "finish", seed=seed)
    assert "README.md" not in answers(tried)[0]
    assert [e.path for e in tried.built.revisions[0].edits] == ["workflow.md"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (EDIT + "; finish", "no cause of causes.md names it"),
        (
            EDIT + "; " + write_causes("## Why\nChanged: workflow.md\n") + "finish",
            "quotes no step",
        ),
        (
            EDIT
            + "; "
            + write_causes('## Why\n- 01 step 0: "never said"\nChanged: workflow.md\n')
            + "check",
            "01 step 0 does not say 'never said'",
        ),
        (
            write_causes('## Why\n- 01 step 9: "printf"\n') + "check",
            "01 has steps 0 to 1, not 9",
        ),
        (write_causes('## Why\n- 09 step 0: "printf"\n') + "check", "there is no attempt 09"),
        ("echo 'action = 3' > agent/agent.toml; check", "agent/agent.toml:1"),
        ("rm agent/system.md; check", "system.md"),
        ("head -c 2000000 /dev/zero > agent/big; regrade", "agent/big is larger than"),
        ("printf '\\xff' > agent/odd; regrade", "agent/odd is not UTF-8"),
        ("ln -s /etc/passwd agent/system2.md; regrade", "agent/system2.md is no plain file"),
        ("regrade 07", "there is no attempt 07"),
        ("rehearse 01", "agent/ is as it was"),
        ("rehearse", "usage: rehearse NN"),
        ("inspect 01", "inspect wants a command after --"),
        ("recall", "usage: recall WORDS"),
        ("recall a --where b", "--where wants KEY=VALUE"),
        (EDIT + " -s; rehearse 01 02 --repeats 99", "rehearsals are left, and this takes 198"),
    ],
)
def test_what_cannot_be_is_answered_in_words_and_the_session_goes_on(
    go: Go, command: str, said: str
) -> None:
    tried = go(
        command, "git -C agent checkout -q .; git -C agent clean -fdq; rm -f causes.md; finish"
    )
    assert said in answers(tried)[0]
    assert answers(tried)[1].startswith("handed in")
    assert tried.all[0].ending == "finished"
    assert not tried.built.revisions


@pytest.mark.slow
def test_without_its_git_folder_or_with_commits_of_its_own_the_change_is_the_same(go: Go) -> None:
    tried = go(
        EDIT + "; git -C agent -c user.name=a -c user.email=a commit -qam mine; rm -rf agent/.git",
        "mkdir -p other && echo x > other/file && echo y > agent/../stray",
        write_causes() + "finish",
    )
    assert [e.path for e in tried.built.revisions[0].edits] == ["workflow.md"]


@pytest.mark.slow
def test_rehearsals_are_paid_attempts_whose_transcripts_come_into_the_folder(go: Go) -> None:
    tried = go(
        EDIT,
        "rehearse 01 02",
        "cat rehearsals/*/*/grade.md",
        write_causes() + "finish",
    )
    _, said, grades, _ = answers(tried)
    assert said.count("0 -> 1") == 2
    assert "2 rehearsals are left" in said
    assert grades.count("passed, score 1") == 2
    phases = [r["phase"] for r in tried.run.records("experience")]
    assert phases.count("rehearse") == 2


@pytest.mark.slow
def test_a_session_that_never_finishes_leaves_a_record_and_no_edit(go: Go) -> None:
    tried = go(EDIT, "true", "true", **{"study.steps": 3})
    assert [(s.ending, s.why) for s in tried.all] == [("limit", "steps")]
    assert not tried.built.revisions


@pytest.mark.slow
def test_sessions_that_hand_in_the_same_make_one_candidate(go: Go) -> None:
    tried = go(acts=finds, **{"study.sessions": 2})
    assert [len(s.edits) for s in tried.all] == [1, 1]
    assert len(tried.built.revisions) == 1


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["cause", "attempt"])
def test_scopes_part_the_work_and_merge_what_came_of_it(go: Go, scope: str) -> None:
    def acts(first: str) -> Acts:
        if "group them by cause" in first:
            alone = '## No mark\n- 01 step 0: "printf"\n\n## Too brief\n- 02 step 0: "printf"\n'
            yield shell(write_causes(alone) + "finish")
            return
        merging = "Make one change of all that is worth it" in first
        own = "01" if "01-failed" in first else "02"
        told = f'## {"Both" if merging else own}\n- {own} step 0: "printf"\nChanged: workflow.md\n'
        text = LESSON if merging else f"Mark {own}."
        yield shell(f"printf '\\n{text}\\n' >> agent/workflow.md; ls ideas")
        yield shell(write_causes(told) + "finish")

    tried = go(acts=acts, **{"study.scope": scope})
    assert [s.kind for s in tried.all].count("distil") == 1
    (revision,) = tried.built.revisions
    assert LESSON in revision.edits[0].new
    assert revision.edits[0].reason == "Both"


@pytest.mark.slow
def test_a_session_that_is_killed_goes_on_without_asking_twice(go: Go, workspace: Path) -> None:
    asked: list[str] = []

    def before(call: Call) -> None:
        asked.append(call.id)
        if len(asked) == 2:
            raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        go(acts=finds, before=before)
    before_kill = len(asked)
    tried = go(acts=finds, before=lambda call: asked.append(call.id))
    assert [r.kept for r in tried.built.revisions] == [True]
    assert asked[0] not in asked[before_kill:], "it was paid before the kill"


@pytest.mark.slow
def test_ctrl_c_ends_a_command_that_takes_long(go: Go, workspace: Path) -> None:
    """The command would take an hour, and the test a limit of its own."""
    session: list[Any] = []

    def opened(*given: Any, **how: Any) -> Any:
        session.append(open_session(*given, **how))
        return session[0]

    def stop(call: Call) -> None:
        threading.Timer(1.0, session[0].calls.stop.set).start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.studied.open_session", opened)
        with pytest.raises(Interrupted):
            go("sleep 3000; finish", before=stop)

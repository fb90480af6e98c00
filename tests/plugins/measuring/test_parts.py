"""An agent's parts: what is one, what goes together, and that the agent without all of them is its
seed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recreate.agents import scaffold as scaffolds
from recreate.agents.lint import problems
from recreate.agents.scaffold import Scaffold
from recreate.api.paths import shipped
from recreate.plugins.measuring.parts import AgentParts, parts_of

SEED = scaffolds.load(shipped("scaffolds") / "seed")
TOOL = '"""Says hello."""\nprint("hello")\n'


def changed(**files: str) -> Scaffold:
    """The seed with files in place of its own; a key says `system_md` for system.md."""
    named = {
        k.replace("__", "/")
        .replace("_md", ".md")
        .replace("_py", ".py")
        .replace("_toml", ".toml"): v
        for k, v in files.items()
    }
    return Scaffold(name="mine", files={**SEED.files, **named})


def named(parts: AgentParts) -> list[tuple[str, str]]:
    return [(part.kind, part.path) for part in parts.parts]


RULES = (
    "\n## Style\n\n- First rule.\n  It goes on.\n- Second rule.\n\n## Order\n\nLook before you"
    " leap.\n"
)


def test_files_items_and_sections_are_parts_of_their_own() -> None:
    start = len(SEED.files["system.md"].splitlines())
    agent = changed(
        system_md=SEED.files["system.md"] + RULES,
        memory__a_md="# A\n\nBe kind.\n",
        tools__hi_py=TOOL,
    )
    parts = parts_of(agent, SEED)
    assert named(parts) == [
        ("lesson", "memory/a.md"),
        ("rule", f"system.md:{start + 4}-{start + 5}"),
        ("rule", f"system.md:{start + 6}-{start + 7}"),
        ("rule", f"system.md:{start + 8}-{start + 10}"),
        ("tool", "tools/hi.py"),
    ]
    assert [part.says for part in parts.parts][1:4] == [
        "First rule. It goes on.",
        "Second rule.",
        "Order Look before you leap.",
    ]
    one = parts.without([True, False, True, True, True]).files["system.md"]
    assert "First rule" not in one
    assert "## Style\n\n- Second rule." in one
    none = parts.without([True, False, False, True, True]).files["system.md"]
    assert "## Style" not in none  # a heading goes with the last thing under it
    assert "memory/a.md" not in parts.without([False, True, True, True, True]).files
    assert parts.without([True] * 5).digest == agent.digest
    assert parts.without([False] * 5).digest == SEED.digest


def test_an_example_is_a_part_and_goes_with_the_lines_that_show_it() -> None:
    example = "# One\n\nTask: 1 + 1\n\nReply: 2\n\nborn_of: abc\n"
    agent = changed(examples__one_md=example)
    parts = parts_of(agent, SEED)
    assert named(parts) == [("example", "examples/one.md")]
    assert parts.without([False]).digest == SEED.digest
    plain = Scaffold(name="plain", files={**SEED.files, "system.md": "You work.\n"})
    shows = "You work.\n\n{% for x in examples %}\n{{ x.body }}\n{% endfor %}\n"
    shown = Scaffold(
        name="shown", files={**plain.files, "system.md": shows, "examples/one.md": example}
    )
    (both,) = parts_of(shown, plain).parts
    assert {"examples/one.md", *both.also} >= {both.path, "examples/one.md"}
    assert both.also


def test_lines_that_were_replaced_come_back_and_those_taken_out_too() -> None:
    text = SEED.files["workflow.md"]
    agent = changed(workflow_md=text.replace("then submit.", "then hand it in."))
    parts = parts_of(agent, SEED)
    assert [(part.kind, part.adds) for part in parts.parts] == [("edit", False)]
    assert parts.without([False]).digest == SEED.digest
    (edit,) = parts.edits([0], {0: "harmful"})
    # text comes back: that is no pruning
    assert (edit.origin, edit.reason) == ("search", "harmful")
    assert scaffolds.apply(agent, [edit]).digest == SEED.digest
    shorter = changed(workflow_md=text.splitlines(keepends=True)[0])
    taken = parts_of(shorter, SEED)
    assert taken.parts[0].path.endswith("(taken out)")
    assert taken.without([False]).digest == SEED.digest


def test_what_cannot_stand_alone_goes_together() -> None:
    toml = 'before = ["hi"]\n' + SEED.files["agent.toml"]
    parts = parts_of(changed(agent_toml=toml, tools__hi_py=TOOL), SEED)
    (part,) = parts.parts
    assert (part.path, part.also) == ("agent.toml", ("tools/hi.py",))
    assert parts.without([False]).digest == SEED.digest
    assert not problems(parts.without([False]))


def test_who_made_an_agent_is_no_part_of_it() -> None:
    agent = changed(
        agent_toml='parent = "seed"\ndomain = "toy"\n' + SEED.files["agent.toml"],
        README_md="# Mine\n",
    )
    assert len(parts_of(agent, SEED)) == 0


def test_logic_of_a_template_is_not_taken_apart() -> None:
    text = "\n- One.\n{% if native %}\n- Two.\n{% endif %}\n- Three.\n"
    assert len(parts_of(changed(system_md=SEED.files["system.md"] + text), SEED)) == 1


def test_the_removal_of_parts_is_a_pruning() -> None:
    agent = changed(system_md=SEED.files["system.md"] + RULES, memory__a_md="# A\n\nBe kind.\n")
    parts = parts_of(agent, SEED)
    edits = parts.edits([0, 2], {0: "dead weight", 2: "harmful"})
    assert [(e.path, e.origin, e.reason) for e in edits] == [
        ("memory/a.md", "prune", "dead weight"),
        ("system.md", "prune", "harmful"),
    ]
    assert scaffolds.apply(agent, edits).digest == parts.without([False, True, False, True]).digest


LINES = st.sampled_from(["- a", "- b", "  c", "", "# h", "## i", "d", "Lists:", "```", "1. e"])


@given(st.lists(LINES, max_size=14), st.lists(LINES, max_size=14), st.data())
@settings(max_examples=20)
def test_any_texts_are_cut_so_that_all_on_is_the_agent_and_all_off_the_seed(
    old: list[str], new: list[str], data: st.DataObject
) -> None:
    sides = [
        changed(workflow_md="{{ task.prompt }}\n" + "".join(f"{line}\n" for line in lines))
        for lines in (old, new)
    ]
    parts = parts_of(sides[1], sides[0])
    assert parts.without([True] * len(parts)).digest == sides[1].digest
    assert parts.without([False] * len(parts)).digest == sides[0].digest
    on = data.draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
    assert not problems(parts.without(on))
    off = [n for n, kept in enumerate(on) if not kept]
    assert (
        scaffolds.apply(sides[1], parts.edits(off, dict.fromkeys(off, "x"))).digest
        == parts.without(on).digest
    )


@pytest.mark.parametrize("whole", [False, True])
def test_an_agent_is_cut_alike_each_time(whole: bool) -> None:
    agent = changed(system_md=SEED.files["system.md"] + RULES)
    assert parts_of(agent, SEED, whole=whole).parts == parts_of(agent, SEED, whole=whole).parts

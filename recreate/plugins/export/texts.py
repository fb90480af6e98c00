"""A scaffold as a text for a tool that has a loop of its own: an Agent Skills folder, AGENTS.md,
CLAUDE.md.

What the prompts say of our loop (how a reply must look, how many steps there are) is left out: the
lines that change with `native` and `limits`. What cannot be known to be of our loop stays, and the
reader is told which loop counts.

Agent Skills, as agentskills.io has it: `name` is of 1 to 64 small letters, digits and single
hyphens and is the folder's, `description` of 1 to 1024 characters says what it does and when to use
it; scripts/ and references/ are read when they are needed.
"""

from __future__ import annotations

import json
import re
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath

from recreate.agents.scaffold import Scaffold, Template
from recreate.agents.workplace import executable
from recreate.api.errors import BadInput
from recreate.api.paths import short

TASK = "(the task, as you were given it)"
"""Stands where the workflow has the task."""
LEARNED = "What was learned before"
EXAMPLES = "Tasks that were done well"
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MAX_NAME = 64
MAX_DESCRIPTION = 1024


def skill(scaffold: Scaffold, out: Path) -> tuple[dict[str, str], list[str]]:
    """({path: text}, differences) of the Agent Skills folder `out`. Raises BadInput
    (`bad-skill-name`)."""
    name = out.name
    if len(name) > MAX_NAME or not NAME.fullmatch(name):
        better = (
            re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_NAME].strip("-") or "skill"
        )
        raise BadInput(
            f"a skill has the name of its folder, and {name!r} is none: 1 to {MAX_NAME} small"
            " letters, digits and single hyphens",
            fix=f"end --out with such a name: --out {short(out.with_name(better))}",
            code="bad-skill-name",
        )
    tools = {tool: f"scripts/{PurePosixPath(path).name}" for tool, path in scaffold.tools.items()}
    files = {tools[tool]: _run(scaffold.files[path]) for tool, path in scaffold.tools.items()}
    files |= _other_files(scaffold, "scripts")
    notes = dict[str, list[str]]()
    for heading, each in ((LEARNED, scaffold.lessons), (EXAMPLES, scaffold.examples)):
        files |= {f"references/{x.id}.md": f"# {x.title}\n\n{x.body}\n" for x in each}
        notes[heading] = [f"- [{x.title}](references/{x.id}.md)" for x in each]
    body, differences = _body(scaffold, tools, notes)
    about = {"name": name, "description": _description(scaffold)}
    head = "".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in about.items()
    )
    files["SKILL.md"] = f"---\n{head}---\n\n# {name}\n\n{body}"
    if not scaffold.agent.description:
        differences.append(
            "the agent has no description, so the skill's is of its name: say there when to use it"
        )
    return files, differences


def page(scaffold: Scaffold, file: str) -> tuple[dict[str, str], list[str]]:
    """({path: text}, differences) of one Markdown page that is read whole: AGENTS.md, CLAUDE.md."""
    files = {path: _run(scaffold.files[path]) for path in scaffold.tools.values()} | _other_files(
        scaffold, "tools"
    )
    lessons = [f"- {x.title}: {x.body}" if x.body else f"- {x.title}" for x in scaffold.lessons]
    examples = [f"### {x.title}\n\n{x.body}\n" for x in scaffold.examples]
    notes = {LEARNED: lessons, EXAMPLES: examples}
    body, differences = _body(scaffold, dict(scaffold.tools), notes)
    about = f"{scaffold.agent.description}\n\n" if scaffold.agent.description else ""
    files[file] = f"# {scaffold.name}\n\n{about}{body}"
    return files, differences


def _run(text: str) -> str:
    """A tool as it is started: its first line says what runs it."""
    return executable(text).decode("utf-8")


def _other_files(scaffold: Scaffold, folder: str) -> dict[str, str]:
    """What lies beside the tools and is none: a module that they share."""
    named = set(scaffold.tools.values())
    return {
        f"{folder}/{path.removeprefix('tools/')}": text
        for path, text in scaffold.files.items()
        if path.startswith("tools/") and path not in named
    }


def _description(scaffold: Scaffold) -> str:
    """What the skill does and when to use it."""
    agent = scaffold.agent
    what = " ".join(
        (agent.description or f"The ways of working of the agent {scaffold.name}.").split()
    )
    when = f" Use it for tasks of the kind {agent.domain}." if agent.domain else ""
    room = MAX_DESCRIPTION - len(when)
    return (what if len(what) <= room else what[: room - 3] + "...") + when


def _body(
    scaffold: Scaffold, tools: dict[str, str], notes: dict[str, list[str]]
) -> tuple[str, list[str]]:
    """(the text, differences). tools: name -> path there; notes: Markdown by the title above it."""
    agent = scaffold.agent
    differences = [
        "the loop is that tool's: it decides how commands are run, how their results are shown,"
        " when the work is done and what it may cost; nothing of agent.toml, observation.md or"
        " format.md holds there"
    ]
    parts: list[str] = []
    left_out: list[str] = []
    for template, title in (("system", ""), ("workflow", "How to go about a task")):
        text, lost = _common(scaffold, template, tools)  # type: ignore[arg-type]
        left_out += lost
        if text and text != TASK:
            parts.append(f"## {title}\n\n{text}" if title else text)
    if tools:
        rows = [
            f"- `{path}`: {' '.join(scaffold.help(name).split()) or name}"
            for name, path in tools.items()
        ]
        parts.append("## Tools\n\nScripts that were made for this work:\n\n" + "\n".join(rows))
    parts += _sections(notes)
    text = "\n\n".join(parts) + "\n"
    if left_out:
        differences.append(
            f"left out, for it is of our loop: {'; '.join(json.dumps(x[:80]) for x in left_out)}"
        )
    if not agent.native or agent.action != "bash":
        differences.append(
            f"the prompts were written for replies of the form {agent.action!r}; where they say how"
            " a reply must look, the tool's own way counts"
        )
    if agent.samples > 1:
        differences.append(f"samples = {agent.samples}: the tool tries once")
    differences += [f"{key}: not taken along, one turn follows the other" for key in agent.turns]
    scripts = {
        "before": ", ".join(agent.before),
        "done": agent.done,
        "choose": agent.choose,
        "vote": agent.vote,
    }
    for key, names in scripts.items():
        if names:
            differences.append(
                f"{key} = {names}: the tool runs no script by itself, it is told that it may"
            )
    if agent.mcp:
        differences.append(
            f"mcp: the servers {', '.join(agent.mcp)} are not taken along; name them to the tool"
            " itself"
        )
    if agent.memory.recall:
        differences.append(
            "memory.recall: there is no command `recall`; `recreate memory serve` is a server (MCP)"
            " for it"
        )
    if agent.memory.tokens:
        differences.append(
            "no lessons are offered from a workspace's memory; the agent's own are in the text"
        )
    if "/work" in text or any("/work" in scaffold.files[path] for path in scaffold.tools.values()):
        differences.append(
            "the text names /work, our sandbox's folder; the tool works where it was started"
        )
    if any(".recreate" in scaffold.files[path] for path in scaffold.tools.values()):
        differences.append(
            "the scripts read .recreate/, which our sandbox has and the tool's folder has not"
        )
    return text, differences


def _sections(notes: dict[str, list[str]]) -> list[str]:
    """What is under each title, where there is anything."""
    return [
        f"## {title}\n\n{chr(10).join(texts).strip()}" for title, texts in notes.items() if texts
    ]


def _common(scaffold: Scaffold, template: Template, tools: dict[str, str]) -> tuple[str, list[str]]:
    """(what a prompt says whatever the loop is, the lines it says of the loop alone).

    Tools, lessons and examples are left to lists of their own.
    """
    printed = {name: f"(what `{tools[name]}` prints)" for name in scaffold.agent.before}
    one, other = (
        scaffold.render(
            template,
            task={"prompt": TASK},
            native=native,
            limits={
                key: value * factor
                for key, value in scaffold.own["limits"].items()
                if key != "schema_"
            },
            before=printed,
            tools=[],
            lessons=[],
            examples=[],
        ).split("\n")
        for native, factor in ((True, 1), (False, 3))
    )
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    kept = [line for block in blocks for line in one[block.a : block.a + block.size]]
    same = {n for block in blocks for n in range(block.a, block.a + block.size)}
    lost = [line for n, line in enumerate(one) if n not in same and line.strip()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip("\n"), lost

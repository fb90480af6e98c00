"""recreate memory serve: the workspace's memory for other agents, as an MCP server on standard
input and output.

It is asked as a working agent of ours would ask: what belongs to validation and test tasks is never
among the answers (memory/store.py), whoever asks. What is added is scanned as an edit of an
optimizer is: for what games a grader, orders what no task asks for, or names a held-out task. It
counts as imported: that is said wherever it is found, and no build offers it before a person lets
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.errors import BadInput, Missing, RecreateError
from recreate.api.paths import memory as memory_folder
from recreate.api.paths import workspace

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from recreate.api.types import Experience
    from recreate.memory.store import ExperienceStore

READER = "agent"

MOST = 20
"""Hits of one answer."""

LONGEST = 20_000
"""Characters of one answer: an agent pays for each."""

PATIENCE = 5.0
"""Seconds for which a question waits for vectors that are not made yet."""

_ASK = """What agents attempted in this workspace, and what it taught. Ask `recall` before you \
begin a task and when
something fails; `show` has a hit whole. Tasks that are held out for tests are not here."""


def serve(
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="An error before it serves is one JSON object; the protocol is JSON anyway.",
        ),
    ] = False,
) -> None:
    """Let other agents recall what was attempted here and add lessons: an MCP server on standard
    input and output.

    Held-out tasks, and lessons that speak of one, are hidden from them as from our own agents.
    Tools: recall, show, add. Of Claude Code, say: claude mcp add memory -- recreate memory serve

    Example: recreate memory serve
    """
    from recreate.plugins.memory_tools.memory import open_store

    memory = open_store(searching=True)
    memory.patience = PATIENCE
    memory.progress = None
    try:
        server(memory, workspace()).run("stdio")
    finally:
        memory.close()


def server(memory: ExperienceStore, where: Path) -> MCPServer[Any]:
    """The server over a memory. Raises Missing without the package mcp."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise Missing(
            "this needs the package mcp", fix="pip install 'recreate-agents[mcp]'"
        ) from None

    made: MCPServer[Any] = MCPServer("recreate-memory", instructions=_ASK, log_level="ERROR")

    @made.tool()
    def recall(query: str, k: int = 8, where: dict[str, str] | None = None) -> str:
        """Find attempts, steps and lessons by words and meaning. where: facts that must agree, such
        as {"domain": "swe", "outcome": "failed", "grain": "lesson"} (grain: experience, step or
        lesson).
        """
        try:
            return _recalled(memory, query, k, where or {})
        except RecreateError as e:
            raise ToolError(_describe(e)) from None

    @made.tool()
    def show(id: str, step: int | None = None) -> str:
        """One hit of `recall`, whole: an attempt (or one step of it), or a lesson."""
        try:
            return _show_experience(memory, id, step)
        except RecreateError as e:
            raise ToolError(_describe(e)) from None

    @made.tool()
    def add(title: str, text: str, domain: str) -> str:
        """Add a lesson: what to do on tasks of a domain, in a title and a few sentences. It names
        no task, and orders nothing that no task asks for. It is found as what another agent said,
        and no build uses it until a person lets it."""
        from recreate.lessons.store import LessonStore

        try:
            lesson = LessonStore(memory_folder(where), domain).add(title, text, trust="imported")
        except RecreateError as e:
            raise ToolError(_describe(e)) from None
        if lesson.status == "held":
            return (
                f"{lesson.id}: held until a person decides, and shown to nobody: it {lesson.held}"
            )
        return f"{lesson.id}: {lesson.origin}; {lesson.scope}, {lesson.status}"

    return made


def _recalled(memory: ExperienceStore, query: str, k: int, where: dict[str, str]) -> str:
    from recreate.plugins.memory_tools.memory import match_of, standing_of
    from recreate.plugins.traces.waiting import recall

    hits = recall(memory, query, max(1, min(k, MOST)), dict(where), READER)
    told = []
    for hit in hits:
        at = hit.id if hit.step is None else f"{hit.experience} step {hit.step}"
        outcome = {True: "passed", False: "failed"}.get(hit.facts.get("passed", ""), "")
        outcome += f" ({hit.facts['grade']})" if "grade" in hit.facts else ""
        outcome += f"({standing_of(hit)})" if hit.grain == "lesson" else ""
        told.append(
            f"{hit.grain} {at} {outcome} {hit.facts.get('task', '')}".strip()
            + f"\n  {match_of(memory, hit, query)}"
        )
    return "\n".join(told)[:LONGEST] or "nothing that you may see matches"


def _show_experience(memory: ExperienceStore, id: str, step: int | None) -> str:
    from recreate.agents.guards.untrusted import mark_text
    from recreate.plugins.memory_tools.memory import standing

    if (lesson := memory.lesson(id, READER)) is not None:
        said = "; ".join(filter(None, (standing(lesson.scope, lesson.status), lesson.origin)))
        return mark_text(lesson.trust, f"# {lesson.title}\n\n({said})\n\n{lesson.body}")
    from recreate.plugins.traces.waiting import find_experience

    found = find_experience(memory, id.partition("/")[0], READER)
    if found is None or found.judged is None:
        raise BadInput(
            f"nothing that you may see is called {id!r}",
            fix="an id that recall gave",
            code="no-attempt",
        )
    text = _labelled(found, step)
    if not text:
        raise BadInput(f"{id} has no step {step}", fix="leave step out", code="no-attempt")
    cut = (
        f"\n[... {len(text) - LONGEST} characters more: ask for one step]"
        if len(text) > LONGEST
        else ""
    )
    return f"{found.outcome}, score {found.judged.score:g}\n{text[:LONGEST]}{cut}"


def _labelled(e: Experience, step: int | None) -> str:
    """An attempt, or one step of it, each text under what it is."""
    from recreate.memory.documents import evidence_of

    parts = list[tuple[str, str]]() if step is not None else [("task", e.task), ("asked", e.prompt)]
    before = e.prompt
    for s in e.trace.steps:
        if step in (None, s.step):
            told = (
                s.observation
                if s.observation.strip() not in (before.strip(), e.prompt.strip())
                else ""
            )
            did = s.action if s.action not in s.reply else ""
            parts += [(f"step {s.step}, told", told), (f"step {s.step}, replied", s.reply)]
            parts += [(f"step {s.step}, did", did), (f"step {s.step}, printed", s.output)]
        before = s.output
    if step is None:
        parts += [("handed in", e.trace.answer), ("the grader said", evidence_of(e))]
    return "\n".join(f"{label}: {text.strip()}" for label, text in parts if text.strip())


def _describe(e: RecreateError) -> str:
    return f"{e.message}. {e.fix}" if e.fix else e.message

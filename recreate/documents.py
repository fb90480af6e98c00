"""What of an experience or a lesson can be found: documents at three grains, as text and as facts to filter by.

    experience   the task's prompt, how the attempt ended, the first lines of the grader
    step         situation -> action -> what came of it
    lesson       title and body

A document's text (at most 1,500 characters) is what a reader is shown; its brief (about a fifth of that) is what
is embedded, because on a CPU embedding takes as long as the text is, and a vector blurs what is long.
"""

from __future__ import annotations

from recreate.catalogue import error_type
from recreate.index import Document
from recreate.types import Experience, Lesson, Step


def documents(e: Experience) -> list[Document]:
    """The experience's documents, the experience itself last: what is there has all of its steps.

    Ids: the experience's id, and `ID/N` for the N-th of its steps (counted from 0; the step's own number is the
    fact `step`).
    """
    shared: dict[str, str | int | float | bool] = {
        "domain": e.domain,
        "task": e.task,
        "group": e.group,
        "split": e.split,
        "passed": e.grade.passed,
        "ending": e.trace.ending,
        "digest": e.digest,
        "model": e.trace.model,
        "run": e.run,
    }
    found = [
        Document(
            f"{e.id}/{n}",
            e.id,
            _step(step, 60, 120, 140),
            {**shared, "grain": "step", "step": step.step, "error": error_type(step.output)},
        )
        for n, step in enumerate(e.trace.steps)
    ]
    error = error_type(e.grade.evidence)
    found.append(Document(e.id, e.id, _gist(e, 280, 90), {**shared, "grain": "experience", "error": error}))
    return found


def text(e: Experience, id: str) -> tuple[str, int | None] | None:
    """(text, step number or None) of one of the experience's documents; None for an id that is not one."""
    if id == e.id:
        return _experience(e, 1000, 400), None
    prefix, _, n = id.rpartition("/")
    if prefix != e.id or not n.isdecimal() or int(n) >= len(e.trace.steps):
        return None
    step = e.trace.steps[int(n)]
    return _step(step, 400, 500, 500), step.step


def lesson_document(lesson: Lesson, key: str, domain: str) -> Document:
    """The one document of a lesson; it counts as train, because only train experience may be cited."""
    facts = {"grain": "lesson", "domain": domain, "split": "train", "task": "", "group": "", "scope": lesson.scope}
    return Document(key, key, cut(f"{lesson.title}\n{lesson.body}", 600), facts)


def cut(text: str, most: int) -> str:
    """At most `most` characters of the text: its beginning and its end, a third to two thirds."""
    text = text.strip()
    if len(text) <= most:
        return text
    head = most // 3
    return f"{text[:head]} … {text[len(text) - (most - head - 3) :]}"


def _gist(e: Experience, prompt: int, evidence: int) -> str:
    """What the attempt was about. Not how it ended: that is a fact, and the same words in all blur the vectors."""
    head = e.prompt.strip()
    return f"{head[:prompt]}\n{e.grade.evidence.strip()[:evidence]}".strip()


def _experience(e: Experience, prompt: int, evidence: int) -> str:
    ended = e.trace.ending + (f" ({e.trace.limit})" if e.trace.limit else "")
    words = "\n".join(e.grade.evidence.strip().splitlines()[:12])
    head = e.prompt.strip()
    head = head if len(head) <= prompt else head[: prompt - 2] + " …"  # a task says what it wants first
    return f"{head}\n-> {ended}, {'passed' if e.grade.passed else 'failed'}\n{words[:evidence]}".strip()


def _step(step: Step, saw: int, did: int, got: int) -> str:
    action = step.action or step.reply
    status = "" if step.status is None else f" ({step.status})"
    parts = []
    if step.observation.strip():
        parts.append(f"saw: {cut(step.observation, saw)}")
    parts.append(f"{'did' if step.kind == 'action' else step.kind}: {cut(action, did)}")
    parts.append(f"got{status}: {cut(step.output, got)}")
    return "\n".join(parts)

"""What a search answers with: an experience or one of its steps, as its file tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recreate.agents.mentions import error_type
from recreate.api.ports import Hit
from recreate.api.types import Experience
from recreate.memory import documents
from recreate.storage.log import iso


def experience_hit(e: Experience, id: str, score: float, when: float | None = None) -> Hit | None:
    """The hit of one of the experience's documents, as its file tells it; when: unix seconds."""
    found = documents.text(e, id)
    if found is None:
        return None
    text, number = found
    step = None if number is None else e.trace.steps[int(id.rpartition("/")[2])]
    facts = {
        "domain": e.domain,
        "task": e.task,
        "group": e.group,
        "passed": e.grade.passed,
        "score": e.grade.score,
        "ending": e.trace.ending,
        "digest": e.digest,
        "model": e.trace.model,
        "run": e.run,
        "error": error_type(e.grade.evidence if step is None else step.output),
        "tool": documents.all_tools(e) if step is None else documents.step_tools(step),
        "file": documents.all_files(e) if step is None else documents.step_files(step),
        "when": "" if when is None else iso(when),
    }
    return Hit(
        id=id,
        grain="experience" if number is None else "step",
        score=score,
        split=e.split,
        text=text,
        experience=e.id,
        step=number,
        facts=facts,
    )


def scan(e: Experience, words: Sequence[str], when: float | None = None) -> Iterator[Hit]:
    """The steps that hold all words; the experience itself when its prompt or grade does, or all of it together."""
    parts = [f"{s.observation}\n{s.reply}\n{s.action}\n{s.output}" for s in e.trace.steps]
    head = f"{e.id}\n{e.task}\n{e.prompt}\n{e.trace.answer}\n{e.grade.evidence}"
    found = [(f"{e.id}/{n}", part, occurrences(part, words)) for n, part in enumerate(parts)]
    found = [each for each in found if each[2]]
    count = occurrences(head, words)
    if not count and not found:
        head = "\n".join([head, *parts])
        count = occurrences(head, words)
    for id, part, times in [(e.id, head, count), *found]:
        hit = experience_hit(e, id, float(times), when) if times else None
        if hit is not None:
            yield hit.model_copy(update={"text": _around(part, words[0])})


def _around(text: str, word: str) -> str:
    """The place in the text where the word is first."""
    at = max(0, text.casefold().find(word) - 150)
    return text[at : at + 500].strip()


def occurrences(text: str, words: Sequence[str]) -> int:
    """How often the words occur; 0 unless each does."""
    text = text.casefold()
    counts = [text.count(word) for word in words]
    return sum(counts) if all(counts) else 0

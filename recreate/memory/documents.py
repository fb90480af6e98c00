"""What of an experience or a lesson can be found, and what a search answers with.

Documents at three grains, as text and as facts to filter by:

    experience   the task's prompt, how the attempt ended, the first lines of the grader
    step         observation -> action -> what came of it
    lesson       title and body

The words a document is found by are all of it, however long. What a reader is shown is cut (about
1,500 characters). One vector stands for an experience or a lesson, made of its brief: on a CPU
embedding takes as long as the text is, and a vector blurs what is long.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from recreate.agents.guards.untrusted import mark_text
from recreate.agents.trajectory import cut_middle, error_type, files, tools
from recreate.api.ports import Hit
from recreate.api.shapes import JsonDict
from recreate.api.types import Experience, Lesson, Step
from recreate.storage.log import iso


class Document(NamedTuple):
    """Something that can be found.

    key      the experience or lesson it belongs to
    brief    what is embedded; '' for a step, which has no vector of its own
    text     whose words find it
    facts    what filters may ask, by name; a name that is missing has no value
    tools, files: what its actions run, what it mentions
    when     unix seconds, None when nobody knows
    """

    id: str
    key: str
    brief: str
    text: str
    facts: Mapping[str, str | int | bool]
    tools: Sequence[str] = ()
    files: Sequence[str] = ()
    when: float | None = None


class Sources(NamedTuple):
    """What the index is made from.

    sees       whether an experience that is not indexed yet is to be, by id, split, group and task
    lessons    key -> checksum of all lessons
    documents  the documents of a key, [] when it cannot be read
    stamp      changes when all words are to be read anew
    """

    sees: Callable[[str, str, str, str], bool]
    lessons: Mapping[str, str]
    documents: Callable[[str], Sequence[Document]]
    stamp: str = ""


def documents(e: Experience, when: float | None = None) -> list[Document]:
    """Return the experience's documents: each of its steps, then the experience itself.

    Ids: the experience's id, and `ID/N` for the N-th of its steps (counted from 0; the step's own
    number is the fact `step`).
    """
    shared: dict[str, str | int | bool] = {
        "domain": e.domain,
        "task": e.task,
        "group": e.group,
        "split": e.split,
        "ending": e.trace.ending,
        "digest": e.digest,
        "model": e.trace.model,
        "run": e.run,
    }
    if e.judged is not None:
        shared["passed"] = e.judged.passed
    found = []
    before = ""
    for n, step in enumerate(e.trace.steps):
        facts = {**shared, "grain": "step", "step": step.step, "error": error_type(step.output)}
        # What the step before printed is found there; an action usually stands in the reply.
        saw = "" if step.observation.strip() == before.strip() else step.observation
        text = f"{saw}\n{_did(step)}\n{step.output}"
        found.append(
            Document(f"{e.id}/{n}", e.id, "", text, facts, step_tools(step), step_files(step), when)
        )
        before = step.output
    facts = {**shared, "grain": "experience", "error": error_type(evidence_of(e))}
    text = words_of(e, e.id)
    ran = union([], [d.tools for d in found])
    named = union(_list_named_files(e), [d.files for d in found])
    found.append(Document(e.id, e.id, _gist(e, 280, 90), text, facts, ran, named, when))
    return found


def step_tools(step: Step) -> list[str]:
    """Return the programs that a step ran; a scaffold's own tool, when it ran ahead of the first
    turn, by its name."""
    return [step.action] if step.kind == "before" else tools(step.action)


def step_files(step: Step) -> list[str]:
    return files(step.action, step.output)


def all_tools(e: Experience) -> list[str]:
    return union([], map(step_tools, e.trace.steps))


def all_files(e: Experience) -> list[str]:
    """Return the files that the task, the grader and the steps mention, the first few hundred."""
    return union(_list_named_files(e), map(step_files, e.trace.steps))


def union(head: Sequence[str], parts: Iterable[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(itertools.chain(head, *parts)))[:300]


def _list_named_files(e: Experience) -> list[str]:
    return files(e.prompt, evidence_of(e))


def evidence_of(e: Experience) -> str:
    """Return the words of whoever graded it, or judged it provisionally; '' where nobody did."""
    return "" if e.judged is None else e.judged.evidence


def words_of(e: Experience, id: str) -> str:
    """Return the words of one of the experience's documents; '' for an id that is not one."""
    n = id.rpartition("/")[2]
    if id == e.id:
        return f"{e.task}\n{e.prompt}\n{_tell_ending(e)}\n{evidence_of(e)}\n{e.trace.answer}"
    step = e.trace.steps[int(n)] if n.isdecimal() and int(n) < len(e.trace.steps) else None
    return "" if step is None else f"{step.observation}\n{_did(step)}\n{step.output}"


def text_of(e: Experience, id: str) -> tuple[str, int | None] | None:
    """Return (text, step number or None) of one of the experience's documents; None for an id that
    is not one."""
    if id == e.id:
        return _experience(e, 1000, 400), None
    prefix, _, n = id.rpartition("/")
    if prefix != e.id or not n.isdecimal() or int(n) >= len(e.trace.steps):
        return None
    step = e.trace.steps[int(n)]
    return _step(step, 400, 500, 500), step.step


def lesson_document(lesson: Lesson, key: str, domain: str) -> Document:
    """Return the one document of a lesson; it counts as train, because only train experience may be
    cited."""
    text = f"{lesson.title}\n{lesson.body}"
    return Document(
        key, key, _cut(text, 600), text, {"grain": "lesson", "domain": domain, "split": "train"}
    )


def _cut(text: str, most: int) -> str:
    """Return at most `most` characters of the text: its beginning and its end, a third to two
    thirds."""
    return cut_middle(text.strip(), most, " … ", head=most // 3)


def _gist(e: Experience, prompt: int, evidence: int) -> str:
    """Return what the attempt was about. Not how it ended: that is a fact, and the same words in
    all blur the vectors."""
    head = e.prompt.strip()
    return f"{head[:prompt]}\n{evidence_of(e).strip()[:evidence]}".strip()


def _did(step: Step) -> str:
    return step.reply if step.action in step.reply else f"{step.reply}\n{step.action}"


def _tell_ending(e: Experience) -> str:
    ended = e.trace.ending + (f" ({e.trace.limit})" if e.trace.limit else "")
    return f"-> {ended}, {e.outcome}"


def _experience(e: Experience, prompt: int, evidence: int) -> str:
    words = "\n".join(evidence_of(e).strip().splitlines()[:12])
    head = e.prompt.strip()
    # a task says what it wants first
    head = head if len(head) <= prompt else head[: prompt - 2] + " …"
    return f"{head}\n{_tell_ending(e)}\n{words[:evidence]}".strip()


def _step(step: Step, saw: int, did: int, got: int) -> str:
    action = step.action or step.reply
    status = "" if step.status is None else f" ({step.status})"
    parts = []
    if step.observation.strip():
        parts.append(f"saw: {_cut(step.observation, saw)}")
    parts.append(f"{'did' if step.kind == 'action' else step.kind}: {_cut(action, did)}")
    parts.append(f"got{status}: {_cut(step.output, got)}")
    return "\n".join(parts)


# what a search answers with


def experience_hit(e: Experience, id: str, score: float, when: float | None = None) -> Hit | None:
    """Return the hit of one of the experience's documents, as its file tells it; when: unix
    seconds."""
    found = text_of(e, id)
    if found is None:
        return None
    text, number = found
    step = None if number is None else e.trace.steps[int(id.rpartition("/")[2])]
    graded: JsonDict = {"grade": e.mark} if e.mark else {}
    if e.judged is not None:
        graded |= {"passed": e.judged.passed, "score": e.judged.score}
    graded |= {"trust": e.trust} if e.trust != "own" else {}
    facts = {
        "domain": e.domain,
        "task": e.task,
        "group": e.group,
        **graded,
        "ending": e.trace.ending,
        "digest": e.digest,
        "model": e.trace.model,
        "run": e.run,
        "error": error_type(evidence_of(e) if step is None else step.output),
        "tool": all_tools(e) if step is None else step_tools(step),
        "file": all_files(e) if step is None else step_files(step),
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
    """Yield the steps that hold all words; the experience itself when its prompt or grade does, or
    all of it together."""
    parts = [f"{s.observation}\n{s.reply}\n{s.action}\n{s.output}" for s in e.trace.steps]
    head = f"{e.id}\n{e.task}\n{e.prompt}\n{e.trace.answer}\n{evidence_of(e)}"
    found = [(f"{e.id}/{n}", part, occurrences(part, words)) for n, part in enumerate(parts)]
    found = [each for each in found if each[2]]
    count = occurrences(head, words)
    if not count and not found:
        head = "\n".join([head, *parts])
        count = occurrences(head, words)
    for id, part, times in [(e.id, head, count), *found]:
        hit = experience_hit(e, id, float(times), when) if times else None
        if hit is not None:
            yield hit.model_copy(update={"text": mark_text(e.trust, _around(part, words[0]))})


def _around(text: str, word: str) -> str:
    """Return the place in the text where the word is first."""
    at = max(0, text.casefold().find(word) - 150)
    return text[at : at + 500].strip()


def occurrences(text: str, words: Sequence[str]) -> int:
    """Return how often the words occur; 0 unless each does."""
    text = text.casefold()
    counts = [text.count(word) for word in words]
    return sum(counts) if all(counts) else 0

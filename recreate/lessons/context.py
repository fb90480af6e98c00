"""What a memory policy is handed, and what the policies that ask a model share: questions, and
lessons of answers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from recreate.agents.template import filled, read_object
from recreate.api.errors import Refused
from recreate.api.ports import Ask
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import (
    Change,
    Evidence,
    Experience,
    Lesson,
    Message,
    Trial,
    digest,
    least_trust,
)
from recreate.lessons.promotion import ODDS, add_trials, free
from recreate.lessons.similarity import Similarity

PROMPTS = Path(__file__).parent / "prompts"
TOKENS = 900
STRING = {"type": "string"}
QUESTIONS = 12
"""A round asks the model so often where lessons are drawn: for lessons of four failures or more,
and which of them say the same."""


class Rerun(Protocol):
    """The score (0..1) of another attempt at an experience's task while exactly these lessons are
    offered.

    without: lessons that the agent goes without if it carries them itself: both re-runs of a test
    name the lesson that is tested. None: it cannot be paid for, the infrastructure failed, the
    agent carries one of `lessons` and is to keep it, or one of them names a task. The same lessons,
    task and repeat are attempted once.
    """

    def __call__(
        self,
        lessons: Sequence[Lesson],
        experience: Experience,
        repeat: int = 0,
        without: Sequence[Lesson] = (),
    ) -> float | None: ...


class RerunRequest(NamedTuple):
    """What `Rerun` is given, for several of them at once."""

    lessons: Sequence[Lesson]
    experience: Experience
    repeat: int = 0
    without: Sequence[Lesson] = ()


RerunGroup = Sequence[RerunRequest]
"""Re-runs that say something only together, such as one with a lesson and one without: all are
made, or none."""


@dataclass(frozen=True)
class PolicyContext:
    """`lessons` is what the policy changes: id -> lesson, of its own domain and general ones;
    whoever made the context stores it. `elsewhere` are the active domain patterns of other domains,
    to be read only.

    ask       the optimizer's model; `json_schema` is held to where the endpoint can
    embed     (texts, kind) -> unit vectors; kind `passage` for lessons, `query` for what they are
              looked up by
    rerun     see Rerun
    side_by_side  what `reruns` makes them by; None: by `rerun`, one after the other
    room      so many re-runs are paid for, by what they took so far
    affords   whether what is left does for all of these re-runs, in this round and later ones; what
              was made is free
    nearest   for a failure the nearest success of any task, for a success an earlier failure at the
              same task; None when memory knows none. One whose grade is its own word is none
    find      a train experience by its id, of any run; None when there is none that may be seen
    there     whether the task of an experience can be attempted now
    alike     (text, k) -> the k train experiences of this domain that are nearest to a text
    observed  attempts of this domain that were observed before, by any process
    questions so many a round may ask; 0: any number
    odds      those at which a bet on "it helps" must be won before a lesson becomes a pattern
    note      a line for the person who watches
    """

    domain: str
    lessons: MutableMapping[str, Lesson]
    ask: Ask
    embed: Callable[[Sequence[str], str], Sequence[Sequence[float]]]
    rerun: Rerun
    side_by_side: Callable[[Sequence[RerunGroup]], Sequence[Sequence[float | None]]] | None = None
    room: Callable[[], float] = lambda: math.inf
    affords: Callable[[Sequence[RerunGroup]], bool] = lambda groups: True
    nearest: Callable[[Experience], Experience | None] = lambda experience: None
    find: Callable[[str], Experience | None] = lambda id: None
    there: Callable[[Experience], bool] = lambda experience: True
    alike: Callable[[str, int], Sequence[Experience]] = lambda text, k: ()
    elsewhere: Sequence[Lesson] = ()
    observed: int = 0
    questions: int = 0
    odds: float = ODDS
    note: Callable[[str], None] = field(default=lambda text: None)

    def reruns(self, groups: Sequence[RerunGroup]) -> Sequence[Sequence[float | None]]:
        """Return the scores of these groups, side by side, in their order whoever was faster.

        The first is answered in any case, with None where `rerun` would be. The answers end before
        a later one that cannot be begun: it comes first the next time.
        """
        if self.side_by_side is not None:
            return self.side_by_side(groups)
        found: list[list[float | None]] = []
        for group in groups:
            scores: list[float | None] = []
            for each in group:
                failed = None in scores
                scores.append(
                    None
                    if failed
                    else self.rerun(each.lessons, each.experience, each.repeat, each.without)
                )
            found.append(scores)
            if None in scores:
                break
        return found


class Nothing:
    """`none`: nothing is learned and nothing is offered: what the other policies are compared
    with."""

    def __init__(self, context: PolicyContext | None = None) -> None:
        pass

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        return []

    def offer(self, query: str, budget: int) -> Sequence[Lesson]:
        return []


class AskingPolicy:
    """What the policies share that ask a model. `malformed` counts the answers that could not be
    read, or that the endpoint refused; `left` the questions that may still be asked.

    `observed` counts the attempts observed so far; a lesson's `seen` is that count when it was last
    used.
    """

    prompts: ClassVar[Path] = PROMPTS
    """The folder of what it asks."""

    def __init__(self, context: PolicyContext) -> None:
        self.context = context
        self.lessons = context.lessons
        self.similarity = Similarity(context.embed)
        self.observed = context.observed
        self.malformed = 0
        self.left: float = context.questions or math.inf
        self._offered: dict[str, set[str]] = {}

    def ask(self, name: str, schema: JsonMap, **variables: Any) -> JsonDict | None:
        """Return the object that a model answered to the prompt `name`, asked once and read
        leniently; None for no answer, also where no more questions are paid for, or the endpoint
        refuses this one (it is too long for it).

        The address of a question is what it asks. What else asking raises is let out.
        """
        if self.left <= 0:
            return None
        self.left -= 1
        messages: list[Message] = [
            {"role": "user", "content": filled(self.prompts, name, variables)}
        ]
        thread = digest(["policy", name, messages])
        try:
            reply = self.context.ask(
                messages,
                step=0,
                thread=thread,
                json_schema=schema,
                temperature=0.0,
                max_tokens=TOKENS,
            )
        except Refused:
            self.malformed += 1
            return None
        found = read_object(reply.text)
        if found is None or any(
            isinstance(value, str) and echoes(value, _instructions(self.prompts, name))
            for value in found.values()
        ):
            self.malformed += 1
            return None
        return found

    def note_malformed(self) -> None:
        """Note how many answers were skipped since the last time."""
        if self.malformed:
            self.context.note(
                f"{self.malformed} answers of the model were skipped: unreadable, refused, or the"
                " question again"
            )
        self.malformed = 0

    def put_lesson(self, lesson: Lesson, **changes: object) -> Lesson:
        """Store a lesson with some fields changed, and return it."""
        self.lessons[lesson.id] = lesson.model_copy(update=changes)
        return self.lessons[lesson.id]

    def count(self, lesson: Lesson, batch: Iterable[Experience]) -> list[Experience]:
        """Count the attempts of a batch in which a lesson was offered, each once, and return those
        that are new.

        None is counted for a lesson that code may not change.
        """
        known = {t.experience for t in lesson.trials}
        new = (
            [e for e in batch if e.id not in known and lesson.id in offered_ids(e)]
            if free(lesson)
            else []
        )
        if new:
            trials = [Trial(experience=e.id, score=e.grade.score, round=lesson.rounds) for e in new]
            carried = {e.id for e in new if self.carried(lesson.id, e)}
            self.put_lesson(add_trials(lesson, trials, carried), seen=self.observed)
        return new

    def carried(self, id: str, e: Experience) -> bool:
        """Whether an agent had a lesson of its own: it stands among what the policy is told was
        offered, and not among what memory says of the attempt."""
        if any(id in step.propensities for step in e.trace.steps):
            return False
        if e.id not in self._offered:
            found = self.context.find(e.id)
            self._offered[e.id] = offered_ids(found if found is not None else e)
        return id not in self._offered[e.id]

    def count_offered(self, batch: Sequence[Experience]) -> None:
        """Count for each lesson the attempts of a batch in which it was offered."""
        for id in sorted({id for e in batch for id in offered_ids(e)} & self.lessons.keys()):
            self.count(self.lessons[id], batch)

    def offered_to(self, experience: Experience) -> list[Lesson]:
        """Return the lessons that an agent was offered and that are still there, by id."""
        return [self.lessons[id] for id in sorted(offered_ids(experience)) if id in self.lessons]


def echoes(answer: str, instructions: str) -> bool:
    """Whether a text is mostly the question's own words: half of its runs of four words or more.

    A 1.5B model asked never to name a function taught its agents never to name functions.
    """
    runs = _runs(answer)
    return len(runs) >= 2 and 2 * len(runs & _runs(instructions)) >= len(runs)


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[n : n + 4]) for n in range(len(words) - 3)}


@lru_cache
def _instructions(folder: Path, name: str) -> str:
    return (folder / f"{name}.md").read_text("utf-8")


def text(found: object, key: str, most: int) -> str:
    """Return a text of an answer in at most so many characters; '' when it is none."""
    value = found.get(key) if isinstance(found, Mapping) else None
    return value.strip()[:most] if isinstance(value, str) else ""


def rows(found: object, key: str, most: int | None = None) -> list[Any]:
    """Return a list of an answer, at most so many of it; [] when it is none."""
    value = found.get(key) if isinstance(found, Mapping) else None
    return value[:most] if isinstance(value, list) else []


def learnable(experiences: Iterable[Experience]) -> list[Experience]:
    """Return the train experiences that say something of the agent, each once: an infrastructure
    failure does not."""
    once = {e.id: e for e in experiences if e.split == "train" and not e.trace.fault}
    return list(once.values())


def offered_ids(experience: Experience) -> set[str]:
    """Return the ids of the lessons that the agent was offered at any step."""
    return {id for step in experience.trace.steps for id in step.offered}


def step_of(found: object, experience: Experience) -> tuple[Evidence, ...]:
    """Return the step of an experience that an answer names; none when it names none that is
    there."""
    step = found.get("step") if isinstance(found, Mapping) else None
    if (
        not isinstance(step, int)
        or isinstance(step, bool)
        or not 0 <= step < len(experience.trace.steps)
    ):
        return ()
    return (Evidence(experience=experience.id, step=step),)


def new_lesson(
    domain: str,
    title: str,
    body: str,
    born_of: Sequence[Experience],
    steps: Sequence[Evidence] = (),
) -> Lesson:
    """Return a candidate; its id is the title in plain letters and eight digits of what it was made
    of."""
    title = " ".join(title.split())
    slug = re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")[:40].strip("-") or "lesson"
    ids = tuple(dict.fromkeys(e.id for e in born_of))
    return Lesson(
        id=f"{slug}-{digest([domain, title, body, ids], 8)}",
        title=title,
        body=body,
        born_of=ids,
        supports=ids,
        groups=tuple(dict.fromkeys(e.group for e in born_of)),
        steps=tuple(steps),
        trust=least_trust(born_of),
    )

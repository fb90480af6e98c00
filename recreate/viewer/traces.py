"""Which attempts and studies the page shows, and how much of each: cited ones first, all of it
bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from recreate.agents.request import Recorded
from recreate.api.types import UNASKED, Edit, Experience, Revision, Step, Study
from recreate.runs.attempts import read_experience, read_steps
from recreate.storage.log import decode
from recreate.viewer.text import Cut, cut, tell_near_reply, wrong

ROOM = 1_200_000
"""Characters that traces and studies may take together; what is cited is shown whatever is left."""
TEXT = 1_200
CITED = 4_000
"""Characters of one text of a step, and of a step that an edit cites."""
MOST_STEPS = 40
"""Steps of one attempt that nobody cites; a longer one loses its middle."""
MOST_TRACES = 40
MOST_STUDIES = 40


@dataclass
class Room:
    """What is left of ROOM."""

    left: int = ROOM

    def cut(self, text: str, limit: int) -> Cut:
        made = cut(text, limit, limit // 30)
        self.left -= len(made)
        return made


@dataclass(frozen=True)
class Citing:
    """An edit that cites a step: what to call it, and its anchor."""

    label: str
    anchor: str


Citations = Mapping[str, Mapping[int, Sequence[Citing]]]
"""experience -> step -> the edits that cite it"""


def citations(revisions: Sequence[Revision], studies: Sequence[Study]) -> Citations:
    """Return who cites what, revisions before studies."""
    found: dict[str, dict[int, list[Citing]]] = {}

    def note(edits: Sequence[Edit], label: str, anchor: str) -> None:
        for number, edit in enumerate(edits, 1):
            for cited in edit.evidence:
                found.setdefault(cited.experience, {}).setdefault(cited.step, []).append(
                    Citing(f"{label}, edit {number}", f"{anchor}-{number}")
                )

    for number, revision in enumerate(revisions, 1):
        note(revision.edits, f"revision {number}", f"r-{number}")
    for number, study in enumerate(studies, 1):
        note(study.edits, f"study {number}", f"s-{number}")
    return found


@dataclass(frozen=True)
class ShownStep:
    """One step; gap: how many steps before it are left out. wrong: '' or what went wrong. index:
    its place, which is what evidence cites."""

    index: int
    sample: int
    what: str
    wrong: str
    saw: Cut
    said: Cut
    did: Cut
    got: Cut
    cited_by: Sequence[Citing] = ()
    gap: int = 0


@dataclass(frozen=True)
class ShownTrace:
    """One train attempt as the page shows it, its experience without the steps; count: how many
    there are; gap: those left out after the last one shown; cited_by: edits that cite a step which
    is not shown."""

    experience: Experience
    count: int
    steps: Sequence[ShownStep]
    prompt: Cut
    system: Cut
    answer: Cut
    evidence: Cut
    cited: int
    studied: Sequence[int]
    gap: int = 0
    cited_by: Sequence[Citing] = ()


@dataclass(frozen=True)
class Traces:
    """shown in order; left_out: (id, task, passed) of train attempts for which there was no
    room."""

    shown: Sequence[ShownTrace] = ()
    left_out: Sequence[tuple[str, str, bool]] = ()

    @property
    def anchors(self) -> set[tuple[str, int]]:
        """(experience, step) of every step that a link may lead to."""
        return {(t.experience.id, s.index) for t in self.shown for s in t.steps}


def read_traces(
    folder: Path,
    train: Sequence[tuple[str, str, bool]],
    cited: Citations,
    studies: Sequence[Study],
    room: Room,
) -> Traces:
    """Train attempts of a run folder: the cited, then the studied, then failures, then the rest.

    train: (id, task, passed) of those that ended. An attempt of any other split is not opened.
    """
    studied: dict[str, list[int]] = {}
    for number, study in enumerate(studies, 1):
        if study.experience:
            studied.setdefault(study.experience, []).append(number)
    order = sorted(train, key=lambda row: (row[0] not in cited, row[0] not in studied, row[2]))
    shown = list[ShownTrace]()
    left_out = list[tuple[str, str, bool]]()
    for row in order:
        if row[0] not in cited and (len(shown) >= MOST_TRACES or room.left <= 0):
            left_out.append(row)
            continue
        experience = read_experience(folder / "attempts" / row[0])
        if experience is None or experience.split != "train":
            continue
        shown.append(show_trace(experience, cited.get(row[0], {}), studied.get(row[0], []), room))
    return Traces(shown, left_out)


def show_trace(
    experience: Experience,
    cited: Mapping[int, Sequence[Citing]],
    studied: Sequence[int],
    room: Room,
) -> ShownTrace:
    steps = experience.trace.steps
    chosen = _chosen(len(steps), cited, full=room.left > 0)
    shown = []
    last = -1
    for i in chosen:
        before = steps[i - 1].output if i else None
        shown.append(show_step(i, steps[i], room, before, cited.get(i, ()), i - last - 1))
        last = i
    return ShownTrace(
        experience=experience.model_copy(
            update={"trace": experience.trace.model_copy(update={"steps": ()})}
        ),
        count=len(steps),
        steps=shown,
        prompt=room.cut(experience.prompt, TEXT),
        system=room.cut(system_of(experience), TEXT),
        answer=room.cut(experience.trace.answer, TEXT),
        evidence=room.cut(experience.grade.evidence, 2 * TEXT),
        cited=sum(len(c) for c in cited.values()),
        studied=studied,
        gap=len(steps) - last - 1,
        cited_by=[c for i, who in cited.items() if i not in set(chosen) for c in who],
    )


def system_of(e: Experience) -> str:
    """Return the system message that the sample which was handed in began with; '' where nobody
    recorded it."""
    if e.foreign.get("system"):
        return str(e.foreign["system"])
    recorded = Recorded(e.trace.steps)
    for step in e.trace.path():
        if step.step in recorded:
            said = [m["content"] for m in recorded[step.step].messages if m["role"] == "system"]
            return str(said[0]) if said else ""
    return ""


def _chosen(count: int, cited: Mapping[int, object], *, full: bool) -> list[int]:
    """Indices of the steps to show: all, or head and tail and what is cited with its neighbours."""
    if full and count <= MOST_STEPS:
        return list(range(count))
    near = {i + d for i in cited for d in (-1, 0, 1)} if full else set(cited)
    ends = {*range(MOST_STEPS // 4), *range(count - MOST_STEPS // 2, count)} if full else set()
    return sorted(i for i in near | ends if 0 <= i < count)


def show_step(
    index: int,
    step: Step,
    room: Room,
    before: str | None = None,
    cited_by: Sequence[Citing] = (),
    gap: int = 0,
    limit: int = 0,
) -> ShownStep:
    """Return one step. What it saw is left out when that is only what the step before it printed.
    limit: characters of a text, 0 for as many as the report has room for."""
    limit = limit or (CITED if cited_by else TEXT)
    goes_on = f"goes on from step {step.after}" if step.after is not None else ""
    seen = (
        "" if before and before.strip() and before.strip() in step.observation else step.observation
    )
    return ShownStep(
        index=index,
        sample=step.sample,
        what="; ".join(filter(None, (goes_on, _what(step) or tell_near_reply(step)))),
        wrong=wrong(step),
        saw=room.cut(seen, limit),
        said=room.cut(step.reply, limit),
        did=room.cut(
            "" if step.kind in UNASKED or step.action.strip() in step.reply else step.action, limit
        ),
        got=room.cut(step.output, limit),
        cited_by=cited_by,
        gap=gap,
    )


def _what(step: Step) -> str:
    """Return what a step was in which no model was asked; '' for a turn."""
    if step.kind == "ended":
        return "the agent's program ended"
    if step.kind == "lookahead":
        return "looked ahead, in a copy of the sandbox"
    if step.kind == "observe":
        return "observed, in a copy of the sandbox"
    if step.restored:
        return f"taken back: {step.restored}"
    if step.looked:
        return step.looked
    if step.recalled:
        return f"recalled {', '.join(step.recalled)}"
    return f"{step.action} ran before the first turn" if step.kind == "before" else ""


# --------------------------------------------------------------------------------------------------
# studies


@dataclass(frozen=True)
class ShownStudy:
    """An investigation of the optimizer as the page shows it. more: steps left out; kinds: (name,
    actions, x and width in per cent of the bar, which shade)."""

    number: int
    study: Study
    steps: Sequence[ShownStep] = ()
    more: int = 0
    kinds: Sequence[tuple[str, int, float, float, int]] = ()
    rejected: Sequence[tuple[Cut, Cut]] = field(default=())


def show_studies(folder: Path, studies: Sequence[Study], room: Room) -> list[ShownStudy]:
    """Return the studies of a run folder with their steps, as far as there is room."""
    return [
        _study(folder / "studies" / s.id, number, s, room) for number, s in enumerate(studies, 1)
    ]


def _study(folder: Path, number: int, study: Study, room: Room) -> ShownStudy:
    steps = list(_steps(folder))
    chosen = _chosen(len(steps), {}, full=True) if number <= MOST_STUDIES and room.left > 0 else []
    shown = []
    last = -1
    for i in chosen:
        step = steps[i].model_copy(update={"reply": _thought(steps[i].reply)})
        shown.append(show_step(i, step, room, gap=i - last - 1))
        last = i
    total = sum(study.kinds.values())
    at = 0.0
    kinds = []
    for name in sorted(study.kinds, key=_kind):
        if count := study.kinds[name]:
            kinds.append((name, count, round(at, 3), round(100 * count / total, 3), _kind(name)[0]))
            at += 100 * count / total
    return ShownStudy(
        number=number,
        study=study,
        steps=shown,
        more=len(steps) - len(shown),
        kinds=kinds,
        rejected=[
            (room.cut(idea, TEXT), room.cut(reason, TEXT)) for idea, reason in study.rejected
        ],
    )


def _thought(reply: str) -> str:
    """Return what a reply says besides the action, which is shown anyway: of a JSON action, its
    thought."""
    try:
        found = decode(reply)
    except ValueError:
        return reply
    if isinstance(found, dict) and "tool" in found and isinstance(found.get("thought", ""), str):
        return str(found.get("thought", ""))
    return reply


def _steps(folder: Path) -> Iterator[Step]:
    try:
        yield from read_steps(folder)
    except ValidationError:
        return


def _kind(name: str) -> tuple[int, str]:
    order = ("inspect", "try", "edit", "decide")
    return (order.index(name) if name in order else len(order), name)

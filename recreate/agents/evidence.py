"""Reading experience: an attempt told in a few hundred words, and whether what an edit cites is really there."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from recreate.api.types import Edit, Experience, Step

_ERROR = re.compile(r"^(?:E\s+)?((?:\w+\.)*\w*(?:Error|Exception|Failure|Interrupt|Exit))\b", re.MULTILINE)


def clip(text: str, limit: int) -> str:
    """At most `limit` characters: head and tail of the text, joined by a mark."""
    text = text.strip()
    if len(text) <= limit:
        return text
    half = max(1, (limit - 7) // 2)
    return f"{text[:half]}\n[...]\n{text[-half:]}"


def tell_step(step: Step, limit: int) -> str:
    """One step: what was said and done, and what came of it, each in at most `limit` characters."""
    parts = [f"step {step.step}" + (f" (sample {step.sample})" if step.sample else "")]
    if step.kind == "before":
        parts[0] += f": the tool {step.action} ran before the first turn and printed"
    elif step.kind == "malformed":
        parts[0] += ": the reply could not be read"
        parts.append(clip(step.reply, limit))
    else:
        parts[0] += ": the agent answered"
        parts.append(clip(said(step), limit))
    if step.output:
        parts.append(f"-> (status {step.status}) {clip(step.output, limit)}")
    return "\n".join(parts)


def said(step: Step) -> str:
    """A reply, and the tools that it called in the endpoint's own way, which stand in no text of it."""
    if not step.action or step.action in step.reply or not step.foreign:
        return step.reply
    return f"{step.reply}\n$ {step.action}".strip()


def tell(experience: Experience, limit: int = 2400, without: Collection[str] = ()) -> str:
    """An experience in about `limit` characters: the task, the steps, how it ended, the grader's words.

    without: `trajectory` leaves the steps out, `evidence` the grader's words.
    """
    trace, grade = experience.trace, experience.grade
    passed = "PASSED" if grade.passed else f"FAILED (score {grade.score:g})"
    head = f"experience {experience.id}: {passed}, ended by {trace.ending} {trace.limit}".rstrip()
    steps = _worth_telling(trace.steps) if "trajectory" not in without else []
    share = max(120, (limit * 2 // 3) // max(1, 2 * len(steps)))
    return "\n".join(
        [
            head,
            "task: " + clip(experience.prompt, limit // 4),
            *(tell_step(step, share) for step in steps),
            *(["grader: " + clip(grade.evidence, limit // 5)] if "evidence" not in without else []),
        ]
    )


def _worth_telling(steps: Sequence[Step], most: int = 8) -> list[Step]:
    """First and last steps: how it began and how it ended; the middle of a long attempt repeats itself."""
    if len(steps) <= most:
        return list(steps)
    return [*steps[: most // 2], *steps[-most // 2 :]]


def signature(experience: Experience, without: Collection[str] = ()) -> str:
    """What kind of ending this was: attempts with the same signature are studied together."""
    trace = experience.trace
    if experience.grade.passed:
        return "passed"
    acted = [s for s in trace.steps if s.kind != "before"]
    wrong = sum(s.kind == "malformed" for s in acted)
    if acted and 2 * wrong > len(acted):
        return "malformed replies"
    if not trace.answer.strip():
        return "nothing handed in"
    found = _ERROR.findall(experience.grade.evidence) if "evidence" not in without else []
    return f"{trace.ending} {trace.limit}".strip() + (f", {found[0].split('.')[-1]}" if found else "")


def clusters(
    experiences: Sequence[Experience], most: int, without: Collection[str] = ()
) -> list[tuple[str, list[Experience]]]:
    """Failures by signature, largest first, at most `most` groups; what is over joins the last group.

    A single signature is cut into even parts, so that different attempts are still looked at apart.
    """
    groups: dict[str, list[Experience]] = {}
    for experience in experiences:
        if not experience.grade.passed:
            groups.setdefault(signature(experience, without), []).append(experience)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    if len(ordered) == 1 and len(ordered[0][1]) >= 2 * most > 2:
        name, members = ordered[0]
        return [(name, members[i::most]) for i in range(most)]
    for _, members in ordered[most:]:
        ordered[most - 1][1].extend(members)
    return ordered[:most]


def uncited(edits: Sequence[Edit], experiences: Mapping[str, Experience]) -> list[str]:
    """What is wrong with the evidence of edits from experience; [] when every citation is really there."""
    faults = []
    for edit in edits:
        if edit.origin != "experience":
            continue
        if not edit.evidence:
            faults.append(f"{edit.path}: cites nothing")
        for cited in edit.evidence:
            experience = experiences.get(cited.experience)
            if experience is None:
                faults.append(f"{edit.path}: there is no train experience {cited.experience!r}")
            elif experience.split != "train":
                faults.append(f"{edit.path}: {cited.experience} is a {experience.split} experience")
            elif not 0 <= cited.step < len(experience.trace.steps):
                last = len(experience.trace.steps) - 1
                faults.append(f"{edit.path}: {cited.experience} has steps 0 to {last}, not {cited.step}")
    return faults

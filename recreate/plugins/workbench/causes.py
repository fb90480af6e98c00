"""causes.md, which says why each change is made: read, and held against the attempts.

    ## The answer is wanted as a number, and the agent writes words
    - 03 step 2: "I think that it is forty-two"
    - 07 step 0: "about three"
    Changed: workflow.md, tools/number.py
    It did: regrade 03 07: 0 -> 1

A quotation is words of that step, blank apart: of what the agent was shown, said, did or got back;
of an attempt's last step also of its answer and of the grader's words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recreate.agents.trajectory import clip
from recreate.api.types import Evidence, Experience, Step

SHORTEST = 4
"""Characters of a quotation."""
_QUOTE = re.compile(r"\s*[-*]\s*`?(?P<name>\d+)`?,?\s+step\s+(?P<step>\d+)\s*:\s*(?P<words>.+)")
_CHANGED = re.compile(r"\s*\**Changed\**\s*:\**\s*(?P<files>.+)", re.IGNORECASE)
_MARKS = "\"'`“”„‘’«» "


class Quote(NamedTuple):
    """Words of a step of an attempt, which is named as in the folder."""

    attempt: str
    step: int
    words: str


class Cause(NamedTuple):
    """Why something is changed. text: all that is said of it, its title first."""

    title: str
    text: str
    quotes: tuple[Quote, ...]
    changed: tuple[str, ...]


def read_causes(text: str) -> list[Cause]:
    """Return the causes of a causes.md, in their order."""
    found = []
    for part in re.split(r"^##\s+", text, flags=re.MULTILINE)[1:]:
        lines = part.strip().split("\n")
        quotes, changed = [], list[str]()
        for line in lines[1:]:
            if quoted := _QUOTE.fullmatch(line):
                words = quoted["words"].strip().strip(_MARKS)
                quotes.append(Quote(f"{int(quoted['name']):02d}", int(quoted["step"]), words))
            elif named := _CHANGED.fullmatch(line):
                files = (name.strip().strip("`*") for name in re.split(r"[,;]\s*", named["files"]))
                changed += [name.removeprefix("agent/") for name in files if name]
        found.append(Cause(lines[0].strip(), part.strip(), tuple(quotes), tuple(changed)))
    return found


def list_faults(
    causes: Sequence[Cause], changed: Sequence[str], attempts: Mapping[str, Experience]
) -> list[str]:
    """Return what is wrong with causes beside the files that were changed and the attempts: a
    change without a cause, a cause without a quotation, a quotation that is not there."""
    faults = []
    for path in changed:
        if not any(path in cause.changed for cause in causes):
            faults.append(
                f"{path} was changed, and no cause of causes.md names it: Changed: {path}"
            )
    for cause in causes:
        if set(cause.changed) & set(changed) and not cause.quotes:
            example = f'- {next(iter(attempts), "01")} step 0: "words of that step"'
            faults.append(f"the cause {cause.title!r} quotes no step: {example}")
        faults += [why for quote in cause.quotes if (why := fault_of(quote, attempts))]
    return faults


def fault_of(quote: Quote, attempts: Mapping[str, Experience]) -> str:
    """Return why a quotation cannot stand; '' where it can."""
    experience = attempts.get(quote.attempt)
    if experience is None:
        return f"there is no attempt {quote.attempt}; there are: {', '.join(attempts)}"
    steps = experience.trace.steps
    if not 0 <= quote.step < len(steps):
        return f"{quote.attempt} has steps 0 to {len(steps) - 1}, not {quote.step}"
    if len(quote.words) < SHORTEST:
        return f"{quote.attempt} step {quote.step}: quote more of it than {quote.words!r}"
    if _plain(quote.words) in _plain(text_of(experience, steps[quote.step])):
        return ""
    others = [s.step for s in steps if _plain(quote.words) in _plain(text_of(experience, s))]
    where = f"; it is in step {others[0]}" if others else "; copy the words as they stand there"
    return f"{quote.attempt} step {quote.step} does not say {clip(quote.words, 120)!r}{where}"


def text_of(experience: Experience, step: Step) -> str:
    """Return all that may be quoted of a step."""
    parts = [step.observation, step.reasoning, step.reply, step.action, step.output]
    if step.step == len(experience.trace.steps) - 1:
        parts += [experience.trace.answer, experience.grade.evidence]
    return "\n".join(parts)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def evidence_of(
    path: str, causes: Sequence[Cause], attempts: Mapping[str, Experience]
) -> tuple[str, tuple[Evidence, ...]]:
    """Return (why a file was changed, the steps that show it)."""
    own = [cause for cause in causes if path in cause.changed]
    cited = [
        Evidence(experience=attempts[quote.attempt].id, step=quote.step)
        for cause in own
        for quote in cause.quotes
    ]
    return "; ".join(cause.title for cause in own), tuple(dict.fromkeys(cited))

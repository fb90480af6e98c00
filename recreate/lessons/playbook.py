"""`playbook`: itemised bullets with helpful and harmful counters that only ever grow by single bullets.

After ACE (Zhang et al., "Agentic Context Engineering", arXiv 2510.04618). From the paper: a reflector judges each
attempt and tags the bullets that the agent was given; a curator turns its insight into new bullets; a delta is merged
by code, never by rewriting the whole; a bullet whose embedding has a cosine of 0.90 or more with one that is there is
the same bullet ("grow and refine").

Inferred, since the paper does not settle it: an added bullet that is a duplicate counts as helpful to the one that is
there; `harmful` above `helpful` takes a bullet out of what is offered (its counters stay and may recover by no more
than that duplicate count); with more bullets than the budget holds, the most relevant ones are offered; one round of
reflection an attempt, and the curator sees titles only when the playbook is long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recreate.agents.evidence import tell
from recreate.api.types import Change, Experience, Lesson, Trial
from recreate.lessons.asking import Questions, object_of, text
from recreate.lessons.birth import learnable, new_lesson, offered
from recreate.lessons.context import PolicyContext
from recreate.lessons.promotion import free, tried
from recreate.lessons.similarity import Similarity, fitting, text_of

SAME = 0.90
MOST = 3
SHOWN = 60
"""Bullets that the curator sees whole."""
_STRING = {"type": "string"}
_TAG = object_of(id=_STRING, tag={"enum": ["helpful", "harmful", "neutral"]})
REFLECT = object_of(tags={"type": "array", "items": _TAG}, insight=_STRING)
CURATE = object_of(add={"type": "array", "maxItems": MOST, "items": object_of(title=_STRING, body=_STRING)})


class Playbook:
    """ACE's playbook as a memory policy."""

    def __init__(self, materials: PolicyContext) -> None:
        self.materials = materials
        self.lessons = materials.lessons
        self.questions = Questions(materials)
        self.meaning = Similarity(materials.embed)
        self.observed = materials.observed

    def offer(self, situation: str, budget: int) -> Sequence[Lesson]:
        """All bullets that did not do more harm than good, as many as fit, the most relevant first."""
        bullets = [x for x in self.lessons.values() if x.status in ("active", "candidate") and x.harmful <= x.helpful]
        cosines = self.meaning.cosines(situation, bullets, "query")
        order = sorted(zip(cosines, bullets, strict=True), key=lambda item: (-item[0], item[1].id))
        return fitting([bullet for _, bullet in order], budget)

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        changes: list[Change] = []
        for experience in learnable(experiences):
            self.observed += 1
            changes += self.reflect(experience)
        self.questions.tell()
        return changes

    def reflect(self, experience: Experience) -> Iterator[Change]:
        """What one attempt says of the bullets it was given, and what it adds."""
        given = [self.lessons[id] for id in sorted(offered(experience)) if id in self.lessons]
        found = self.questions.ask(
            "reflect",
            REFLECT,
            bullets=[{"id": x.id, "text": text_of(x)} for x in given],
            attempt=tell(experience),
        )
        tags = (found or {}).get("tags")
        said = {str(t.get("id")): t.get("tag") for t in (tags if isinstance(tags, list) else []) if _tag(t)}
        for bullet in given:
            if free(bullet):
                yield from self.tagged(bullet, experience, str(said.get(bullet.id, "neutral")))
        insight = text(found, "insight", 1500)
        if insight:
            yield from self.curate(experience, insight)

    def tagged(self, bullet: Lesson, experience: Experience, tag: str) -> Iterator[Change]:
        counted = tried(bullet, [Trial(experience=experience.id, score=experience.grade.score)])
        if counted is bullet:
            return
        update = {"seen": self.observed, "helpful": bullet.helpful + (tag == "helpful")}
        update["harmful"] = bullet.harmful + (tag == "harmful")
        self.lessons[bullet.id] = counted.model_copy(update=update)
        if tag != "neutral":
            why = f"{tag} in {experience.id}: {update['helpful']} helpful, {update['harmful']} harmful"
            yield Change(kind="supported" if tag == "helpful" else "contradicted", lesson=bullet.id, why=why)

    def curate(self, experience: Experience, insight: str) -> Iterator[Change]:
        """A delta of new bullets, merged by code."""
        bullets = [x for x in self.lessons.values() if x.status in ("active", "candidate")]
        shown = [text_of(x) if len(bullets) <= SHOWN else x.title for x in bullets]
        found = self.questions.ask("curate", CURATE, bullets=shown, insight=insight, most=MOST)
        proposed = (found or {}).get("add")
        for raw in (proposed if isinstance(proposed, list) else [])[:MOST]:
            title, body = (text(raw, key, 1000) for key in ("title", "body")) if isinstance(raw, Mapping) else ("", "")
            if title and body:
                yield from self.add(experience, title[:120], body)

    def add(self, experience: Experience, title: str, body: str) -> Iterator[Change]:
        bullet = new_lesson(self.materials.domain, title, body, [experience])
        bullet = bullet.model_copy(update={"status": "active", "domains": (self.materials.domain,)})
        if bullet.id in self.lessons:
            return
        same = self.meaning.nearest(bullet, list(self.lessons.values()), SAME, len(self.lessons))
        if any(x.status == "vetoed" for x in same):
            return
        for other in same[:1]:
            if free(other) and experience.id not in other.supports:
                supports = (*other.supports, experience.id)
                groups = tuple(dict.fromkeys((*other.groups, experience.group)))
                update = {"supports": supports, "groups": groups, "helpful": other.helpful + 1, "seen": self.observed}
                self.lessons[other.id] = other.model_copy(update=update)
                yield Change(kind="supported", lesson=other.id, why=f"{experience.id} asks for it again")
            return
        self.lessons[bullet.id] = bullet.model_copy(update={"seen": self.observed})
        yield Change(kind="born", lesson=bullet.id, why=f"of {experience.id}")


def _tag(raw: Any) -> bool:
    return isinstance(raw, Mapping) and raw.get("tag") in ("helpful", "harmful", "neutral")

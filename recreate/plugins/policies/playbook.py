"""`playbook`: itemised bullets with helpful and harmful counters that only ever grow by single
bullets.

After ACE (Zhang et al., "Agentic Context Engineering", arXiv 2510.04618). From the paper: a
reflector judges each attempt and tags the bullets that the agent was given; a curator turns its
insight into new bullets; a delta is merged by code, never by rewriting the whole; a bullet that
means what another one says, by their embeddings, is pruned ("grow and refine"): here the new one
is, as soon as it comes, and nothing else follows from it. Counters come from tags alone.

Inferred, since the paper does not settle it: two bullets mean the same from a cosine of 0.90 on;
`harmful` above `helpful` takes a bullet out of what is offered, for good, since nobody can tag it
any more; with more bullets than the budget holds, the most relevant ones are offered; one round of
reflection an attempt, and the curator sees titles only when the playbook is long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recreate.agents.guards.untrusted import mark_text
from recreate.agents.template import object_of
from recreate.agents.trajectory import tell
from recreate.api.types import Change, Experience, Lesson
from recreate.lessons.context import STRING, AskingPolicy, learnable, new_lesson, rows, text
from recreate.lessons.similarity import fitting, tell_lesson
from recreate.plugins.policies import PROMPTS

SAME = 0.90
MOST = 3
SHOWN = 60
"""Bullets that the curator sees whole."""
TAGS = ["helpful", "harmful", "neutral"]
_TAG = object_of(id=STRING, tag={"enum": TAGS})
REFLECT = object_of(tags={"type": "array", "items": _TAG}, insight=STRING)
CURATE = object_of(
    add={"type": "array", "maxItems": MOST, "items": object_of(title=STRING, body=STRING)}
)


class Playbook(AskingPolicy):
    """ACE's playbook as a memory policy."""

    prompts = PROMPTS

    def offer(self, query: str, budget: int) -> Sequence[Lesson]:
        """All bullets that did not do more harm than good, as many as fit, the most relevant
        first."""
        bullets = [
            x
            for x in self.lessons.values()
            if x.status in ("active", "candidate") and x.harmful <= x.helpful
        ]
        cosines = self.similarity.cosines(query, bullets, "query")
        order = sorted(zip(cosines, bullets, strict=True), key=lambda item: (-item[0], item[1].id))
        return fitting([bullet for _, bullet in order], budget)

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        changes: list[Change] = []
        for experience in learnable(experiences):
            self.observed += 1
            changes += self.reflect(experience)
        self.note_malformed()
        return changes

    def reflect(self, experience: Experience) -> Iterator[Change]:
        """What one attempt says of the bullets it was given, and what it adds."""
        bullets = self.offered_to(experience)
        found = self.ask(
            "reflect",
            REFLECT,
            bullets=[{"id": x.id, "text": tell_lesson(x)} for x in bullets],
            attempt=tell(experience),
        )
        tags = {text(row, "id", 1000): text(row, "tag", 10) for row in rows(found, "tags")}
        tags = {id: tag for id, tag in tags.items() if tag in TAGS}
        for bullet in bullets:
            yield from self.tagged(bullet, experience, tags.get(bullet.id, "neutral"))
        insight = text(found, "insight", 1500)
        if insight:
            yield from self.curate(experience, insight)

    def tagged(self, bullet: Lesson, experience: Experience, tag: str) -> Iterator[Change]:
        if not self.count(bullet, [experience]) or tag == "neutral":
            return
        helpful = bullet.helpful + (tag == "helpful")
        harmful = bullet.harmful + (tag == "harmful")
        self.put_lesson(self.lessons[bullet.id], helpful=helpful, harmful=harmful)
        why = f"{tag} in {experience.id}: {helpful} helpful, {harmful} harmful"
        yield Change(
            kind="supported" if tag == "helpful" else "contradicted", lesson=bullet.id, why=why
        )

    def curate(self, experience: Experience, insight: str) -> Iterator[Change]:
        """A delta of new bullets, merged by code."""
        bullets = [x for x in self.lessons.values() if x.status in ("active", "candidate")]
        few = len(bullets) <= SHOWN
        shown = [tell_lesson(x) if few else mark_text(x.trust, x.title) for x in bullets]
        said = mark_text(experience.trust, insight)
        found = self.ask("curate", CURATE, bullets=shown, insight=said, most=MOST)
        for row in rows(found, "add", MOST):
            title = text(row, "title", 120)
            body = text(row, "body", 1000)
            if title and body:
                yield from self.add(experience, title, body)

    def add(self, experience: Experience, title: str, body: str) -> Iterator[Change]:
        bullet = new_lesson(self.context.domain, title, body, [experience])
        bullet = bullet.model_copy(update={"status": "active", "domains": (self.context.domain,)})
        if bullet.id in self.lessons:
            return
        if self.similarity.nearest(bullet, list(self.lessons.values()), SAME, 1):
            return
        self.put_lesson(bullet, seen=self.observed)
        yield Change(kind="born", lesson=bullet.id, why=f"of {experience.id}")

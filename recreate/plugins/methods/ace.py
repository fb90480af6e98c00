"""`ace`: a playbook of bullets in the agent, grown by what a reflector and a curator say of its
attempts.

After Zhang et al., "Agentic Context Engineering" (arXiv 2510.04618), section 3: the generator is
the agent itself; a reflector reads each attempt, tags the bullets that helped or harmed and states
an insight; a curator turns insights into a few new bullets; code merges them, so that the playbook
is never rewritten whole. The policy `playbook` keeps the same beside the agent, in memory; here it
is the agent's file memory/playbook.md, and the gate judges each growth.

Inferred, since the paper does not settle it: one pass over the batch; a bullet goes once it harmed
more often than it helped; a bullet that says the same in the same words is not added twice (the
paper compares embeddings).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel, Field

from recreate.agents.lint import MAX_LESSON
from recreate.agents.scaffold import Scaffold
from recreate.agents.template import object_of
from recreate.api.types import Edit, Experience, Record
from recreate.lessons.context import rows
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.search import Search
from recreate.plugins.methods.asking import Asking, one_line

FILE = "memory/playbook.md"
_STRING = {"type": "string", "maxLength": 600}
_TAG = object_of(id={"type": "string"}, tag={"enum": ["helpful", "harmful", "neutral"]})
REFLECT = object_of(tags={"type": "array", "items": _TAG}, insight=_STRING)


def curate_schema(most: int) -> dict[str, object]:
    return object_of(add={"type": "array", "maxItems": most, "items": _STRING})


class AceSettings(BaseModel, frozen=True, extra="forbid"):
    """attempts: how many of the batch the reflector reads; added: new bullets a round at most;
    bullets: how many the playbook holds, the most helpful ones."""

    attempts: int = Field(default=8, ge=1, le=1000)
    added: int = Field(default=3, ge=1, le=50)
    bullets: int = Field(default=40, ge=1, le=1000)


class Bullet(Record):
    """One line of the playbook, and how often the reflector said that it helped or harmed."""

    id: str
    text: str
    helpful: int = 0
    harmful: int = 0


class Ace(Asking):
    """The optimizer `ace`; `[optimizer_settings]`: see AceSettings."""

    Config = AceSettings
    settings: AceSettings

    def __init__(self, context: OptimizerContext) -> None:
        super().__init__(context)
        kept = self.recorded("bullets.json", {"next": 1, "bullets": []})
        self.next: int = kept["next"]
        self.bullets = {row["id"]: Bullet.model_validate(row) for row in kept["bullets"]}

    @staticmethod
    def takes(settings: AceSettings, batch: int) -> tuple[int, int]:
        return min(settings.attempts, batch) + 1, 0

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """The edit that grows the playbook; [] when nothing was learnt. No attempt is made to
        choose it."""
        self.carried(scaffold)
        search = Search(self.context, scaffold, experiences)
        if not search.evidence:
            return []
        read = experiences[: self.settings.attempts]
        insights = [insight for e in read if (insight := self.reflect(e))]
        for text in self.curate(insights):
            self.add(search, text)
        self.prune()
        kept = [b.model_dump(mode="json") for b in self.bullets.values()]
        self.record("bullets.json", {"next": self.next, "bullets": kept})
        edits = search.edits(
            {FILE: self.text()}, "the playbook, grown by what these attempts taught"
        )
        faults = self.context.validate(scaffold, edits) if edits else []
        for fault in faults:
            self.context.note(f"the playbook is not used: {fault}")
        return [] if faults else edits

    def carried(self, scaffold: Scaffold) -> None:
        """The bullets are those of the agent at hand: what a dropped candidate added is gone,
        counters stay."""
        said = dict(re.findall(r"^- \[(b\d+)\] (.+)$", scaffold.files.get(FILE, ""), re.MULTILINE))
        self.bullets = {
            id: self.bullets.get(id, Bullet(id=id, text=text)) for id, text in said.items()
        }
        self.next = max([self.next, *(int(id[1:]) + 1 for id in said)])

    def prune(self) -> None:
        """Leave what helped most and fits into one lesson of the agent; of equals those that came
        last, else a full playbook would never learn again."""
        worth = [b for b in self.bullets.values() if b.harmful <= b.helpful]
        ranked = sorted(worth, key=lambda b: (b.harmful - b.helpful, -int(b.id[1:])))[
            : self.settings.bullets
        ]
        self.bullets = {}
        for bullet in ranked:
            self.bullets[bullet.id] = bullet
            if len(self.text()) > MAX_LESSON:
                del self.bullets[bullet.id]
        if left := len(worth) - len(self.bullets):
            self.context.note(f"the playbook is full: {left} bullets are left out")
        self.bullets = dict(sorted(self.bullets.items(), key=lambda item: int(item[0][1:])))

    def reflect(self, experience: Experience) -> str:
        """What one attempt teaches; the tags it gives count at once."""
        attempt = self.tell(experience)
        messages = self.fill("ace_reflect", playbook=self.text(), attempt=attempt)
        found = self.context.read(self.ask(messages, REFLECT))
        for row in rows(found, "tags"):
            bullet = self.bullets.get(str(row.get("id"))) if isinstance(row, dict) else None
            if bullet is not None and row.get("tag") in ("helpful", "harmful"):
                tag = row["tag"]
                self.bullets[bullet.id] = bullet.model_copy(update={tag: getattr(bullet, tag) + 1})
        return one_line(found.get("insight"))

    def curate(self, insights: Sequence[str]) -> list[str]:
        """New bullets' texts."""
        if not insights:
            return []
        most = self.settings.added
        messages = self.fill("ace_curate", playbook=self.text(), insights=insights, most=most)
        found = self.context.read(self.ask(messages, curate_schema(most)))
        texts = map(one_line, rows(found, "add"))
        return [text for text in texts if text][:most]

    def add(self, search: Search, text: str) -> None:
        """One more bullet, when it is new and may stand in an agent."""
        if text.casefold() in (b.text.casefold() for b in self.bullets.values()):
            return
        bullet = Bullet(id=f"b{self.next}", text=text)
        alone = search.edits(
            {FILE: f"# Playbook\n\n- [{bullet.id}] {text}\n"}, "a bullet by itself"
        )
        if faults := self.context.validate(search.scaffold, alone) if alone else []:
            self.context.note(f"a bullet is not used: {'; '.join(faults)}")
            return
        self.bullets[bullet.id] = bullet
        self.next += 1

    def text(self) -> str:
        lines = [f"- [{b.id}] {b.text}" for b in self.bullets.values()]
        return "\n".join(["# Playbook", "", *lines, ""]) if lines else ""

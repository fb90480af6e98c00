"""`atlas`: a teacher that reads failed attempts, guides the agent through them again, and keeps
what mended a task.

After Jaglan and Barnes, "Continual Learning, Not Training: Online Adaptation For Agents" (arXiv
2511.01093): a teacher diagnoses and guides, a student acts; guidance that proved itself is
distilled into a persistent learning memory of pamphlets, and no weight is trained. Here the student
is the agent, the teacher the optimizer's model, and the learning memory the agent's file
memory/guidance.md, which its prompts show as they show every lesson.

Inferred: the teacher speaks between attempts, not within one, since an attempt is the agent's
alone; the domain's grader says what came of it in place of judges; there is one distilled text for
all tasks, where the paper retrieves pamphlets by task and chooses how closely to supervise; the
text is proposed when it beats the parent on train tasks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import BaseModel, Field

from recreate.agents.scaffold import Scaffold
from recreate.agents.template import object_of
from recreate.api.shapes import JsonMap
from recreate.api.types import Edit, Experience, Message
from recreate.optimizers.context import OptimizerContext, sent_back
from recreate.optimizers.search import Search
from recreate.plugins.methods.asking import Asking, one_line

FILE = "memory/guidance.md"
TITLE = "# Guidance\n\n"
NEXT = "\n\n"
TEACH = object_of(guidance={"type": "string", "maxLength": 800})
DISTIL = object_of(pamphlet={"type": "string", "maxLength": 1000})
"""Both fit into one lesson (`lint.MAX_LESSON`): a student has what was distilled before and the new
guidance."""


class AtlasSettings(BaseModel, frozen=True, extra="forbid"):
    """students: failed tasks of the batch that are tutored; turns: times the teacher guides each,
    an attempt a time; pamphlets: how many pieces of guidance that mended a task are remembered, the
    latest ones."""

    students: int = Field(default=3, ge=1, le=1000)
    turns: int = Field(default=2, ge=1, le=20)
    pamphlets: int = Field(default=20, ge=1, le=1000)


class Atlas(Asking):
    """The optimizer `atlas`; `[optimizer_settings]`: see AtlasSettings."""

    Config = AtlasSettings
    settings: AtlasSettings

    def __init__(self, context: OptimizerContext) -> None:
        super().__init__(context)
        self.taught: dict[str, list[str]] = self.recorded("pamphlets.json", {})
        """By distilled text, the pamphlets that it was made of: with a candidate that is dropped,
        its are gone."""

    @staticmethod
    def takes(settings: AtlasSettings, batch: int) -> tuple[int, int]:
        tutored = min(settings.students, batch) * settings.turns
        return tutored + 2, tutored + batch

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """The edit to the distilled guidance; [] when none mended a task, or it did not do better
        on the batch."""
        search = Search(self.context, scaffold, experiences)
        if not search.evidence:
            return []
        failed: dict[str, Experience] = {}
        for experience in search.parent.experiences:
            if not experience.grade.passed:
                failed.setdefault(experience.task, experience)
        tutored = list(failed.values())[: self.settings.students]
        mended = [
            guidance for experience in tutored if (guidance := self.tutor(search, experience))
        ]
        self.context.note(f"guidance mended {len(mended)} of {len(tutored)} tutored tasks")
        if not mended or search.spent:
            return []
        pamphlets = list(dict.fromkeys([*self.taught.get(read_guidance(scaffold), []), *mended]))[
            -self.settings.pamphlets :
        ]
        edits = self.distil(search, pamphlets)
        made = search.measure(edits) if edits else None
        if made is None:
            return []
        self.context.note(f"the distilled guidance: {made.mean:.3f} on the batch's train tasks")
        return made.edits if search.gain(made) > 0 else []

    def tutor(self, search: Search, failed: Experience) -> str:
        """The guidance of the teacher that helped most at this task; '' when none did."""
        memory = read_guidance(search.scaffold)
        attempt = self.tell(failed)
        tried: list[dict[str, str]] = []
        best = ""
        gain = 0.0
        for _ in range(0 if search.spent else self.settings.turns):
            messages = self.fill(
                "atlas_teach",
                attempt=attempt,
                memory=memory,
                tried=tried,
                rejected=self.context.dropped(),
            )
            guidance = self.ask_text(messages, TEACH)
            if not guidance:
                break
            edits = search.edits(
                {FILE: f"{TITLE}{memory + NEXT if memory else ''}{guidance}\n"},
                "guidance at one task",
            )
            if faults := self.context.validate(search.scaffold, edits):
                tried.append(
                    {"guidance": guidance, "outcome": f"it cannot be used: {'; '.join(faults)}"}
                )
                continue
            made = search.measure(edits, [failed.task])
            if made is None or not made.experiences:
                break
            if search.gain(made) > gain:
                best = guidance
                gain = search.gain(made)
            if made.experiences[0].grade.passed:
                break
            tried.append({"guidance": guidance, "outcome": self.tell(made.experiences[0])})
        return best

    def distil(self, search: Search, pamphlets: Sequence[str]) -> list[Edit]:
        """The edit to one text made of all pamphlets; [] when it cannot be used, mended once or
        not."""
        memory = read_guidance(search.scaffold)
        messages = self.fill("atlas_distil", pamphlets=pamphlets, memory=memory)
        text = self.ask_text(messages, DISTIL)
        for again in (True, False):
            edits = search.edits(
                {FILE: f"{TITLE}{text}\n"}, "guidance that mended the tasks it was given at, as one"
            )
            faults = (
                self.context.validate(search.scaffold, edits)
                if text and edits
                else ["there is nothing new in it"]
            )
            if not faults:
                self.record("pamphlets.json", {**self.taught, text: list(pamphlets)})
                return edits
            if again:
                said = json.dumps({"pamphlet": text})
                text = self.ask_text(sent_back(messages, said, faults), DISTIL)
        self.context.note(f"the distilled guidance is not used: {'; '.join(faults)}")
        return []

    def ask_text(self, messages: Sequence[Message], schema: JsonMap) -> str:
        """Return the one text of an answer, in a line."""
        found = self.context.read(self.ask(messages, schema))
        return one_line(found.get(*schema["properties"]))


def read_guidance(scaffold: Scaffold) -> str:
    """The guidance that an agent has."""
    return scaffold.files.get(FILE, "").removeprefix(TITLE).strip()

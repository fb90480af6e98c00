"""`opro`: an instruction, rewritten in sight of earlier ones and their scores.

After Yang et al., "Large Language Models as Optimizers" (arXiv 2309.03409), sections 2 and 5: the
model is shown the best instructions so far in ascending order of score with a few tasks, and writes
new ones; each is scored on train tasks, and the best goes on. The instruction is the agent's file
memory/instruction.md, which its prompts show as they show every lesson; all else of the agent stays
as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from recreate.agents.scaffold import Scaffold
from recreate.agents.template import object_of
from recreate.api.types import Edit, Experience
from recreate.optimizers.context import REPLY_TOKENS, OptimizerContext, sent_back
from recreate.optimizers.search import Search
from recreate.plugins.methods.asking import Asking

FILE = "memory/instruction.md"
TITLE = "# Instruction\n\n"
SCHEMA = object_of(instruction={"type": "string", "maxLength": 1500})


class OproSettings(BaseModel, frozen=True, extra="forbid"):
    """steps: times the model is shown the record; children: instructions it writes each time, each
    scored on the batch's train tasks; shown: how many of the record it sees (the paper has 20);
    examples: attempts it sees; mends: times an instruction that cannot be used is sent back."""

    steps: int = Field(default=2, ge=1, le=100)
    children: int = Field(default=2, ge=1, le=16)
    shown: int = Field(default=20, ge=1, le=100)
    examples: int = Field(default=3, ge=0, le=20)
    mends: int = Field(default=1, ge=0, le=5)


class Opro(Asking):
    """The optimizer `opro`; `[optimizer_settings]`: see OproSettings."""

    Config = OproSettings
    settings: OproSettings

    def __init__(self, context: OptimizerContext) -> None:
        super().__init__(context)
        self.scores: dict[str, float] = self.recorded("record.json", {})

    @staticmethod
    def takes(settings: OproSettings, batch: int) -> tuple[int, int]:
        written = settings.steps * settings.children
        return written * (1 + settings.mends), written * batch

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """The edit to the best instruction found; [] when none did better on the batch than the one
        that is there."""
        search = Search(self.context, scaffold, experiences)
        if not search.evidence:
            return []
        self.scores[scaffold.files.get(FILE, "").removeprefix(TITLE).strip()] = search.parent.mean
        best = search.parent
        for number in range(self.settings.steps * self.settings.children):
            text, edits = self.write(search, number)
            if not edits:
                continue
            made = search.measure(edits)
            if made is None:
                break
            self.scores[text] = made.mean
            self.context.note(
                f"instruction {number + 1}: {made.mean:.3f} on the batch's train tasks"
            )
            if search.gain(made) > search.gain(best):
                best = made
        self.record("record.json", self.scores)
        return best.edits

    def write(self, search: Search, number: int) -> tuple[str, list[Edit]]:
        """One new instruction with its edit, sent back when it cannot be used; no edit when it
        stays so."""
        ranked = sorted(self.scores.items(), key=lambda item: item[1])[-self.settings.shown :]
        messages = self.fill(
            "opro",
            record=[(text or "(no instruction)", f"{score:.2f}") for text, score in ranked],
            examples=[self.tell(e) for e in search.failed[: self.settings.examples]],
            number=number % self.settings.children + 1,
        )
        for left in range(self.settings.mends, -1, -1):
            reply = self.ask(messages, SCHEMA, temperature=1.0, max_tokens=REPLY_TOKENS)
            said = self.context.read(reply).get("instruction")
            text = said.strip() if isinstance(said, str) else ""
            edits = search.edits(
                {FILE: f"{TITLE}{text}\n"}, "the best instruction of a search on train tasks"
            )
            faults = self.faults(search, text, edits)
            if not faults:
                return text, edits
            if left:
                self.context.note(f"instruction {number + 1} is sent back: {'; '.join(faults)}")
                messages = sent_back(messages, reply.text, faults)
        self.context.note(f"instruction {number + 1} is not used: {'; '.join(faults)}")
        return "", []

    def faults(self, search: Search, text: str, edits: Sequence[Edit]) -> list[str]:
        """Why an instruction is not tried."""
        if not text:
            return ["the reply holds no instruction"]
        if text in self.scores or not edits:
            return ["it was tried already"]
        return self.context.validate(search.scaffold, edits)

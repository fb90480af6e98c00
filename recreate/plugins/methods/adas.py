"""`adas`: a model writes whole new agents, in sight of an archive of earlier ones and how they did.

After Hu, Lu and Clune, "Automated Design of Agentic Systems" (arXiv 2408.08435), section 3, Meta
Agent Search: the model is shown the archive, states an idea, writes the agent, looks at it again
with fresh eyes, mends what does not run, and the agent with its score enters the archive. There an
agent is a Python function; here it is what an agent is everywhere in recreate: prompts, workflow
and tools in a folder, so that its code runs in the sandbox alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field

from recreate.agents.scaffold import Scaffold
from recreate.agents.template import object_of
from recreate.agents.trajectory import clip
from recreate.api.types import Edit, Experience, Record, Reply
from recreate.optimizers.context import OptimizerContext, sent_back
from recreate.optimizers.investigator.read_tools import tell_agent
from recreate.optimizers.reflect import editable
from recreate.optimizers.search import Measured, Search
from recreate.plugins.methods.asking import Asking
from recreate.plugins.methods.tools import unfenced

_FILE = object_of(path={"type": "string"}, text={"type": "string"})
SCHEMA = object_of(
    thought={"type": "string"},
    name={"type": "string"},
    files={"type": "array", "items": _FILE, "minItems": 1},
)
FRESH_EYES = (
    "Look at that agent again as if somebody else had written it. Is the idea new beside the"
    " archive? Is anything in it wrong, or left over? Answer with the whole JSON object again,"
    " improved."
)
SHOWN_CHARS = 6000


class AdasSettings(BaseModel, frozen=True, extra="forbid"):
    """agents: how many a proposal writes, each scored on the batch's train tasks; reflections:
    times one is looked at again before it is tried (the paper has 2); mends: times one that does
    not hold together is sent back.
    """

    agents: int = Field(default=3, ge=1, le=100)
    reflections: int = Field(default=1, ge=0, le=5)
    mends: int = Field(default=2, ge=0, le=5)


class Member(Record):
    """An agent of the archive: its idea, the files that it changed then ('' for one that it took
    out), its score."""

    name: str
    thought: str
    files: Mapping[str, str]
    score: float


class Adas(Asking):
    """The optimizer `adas`; `[optimizer_settings]`: see AdasSettings."""

    Config = AdasSettings
    settings: AdasSettings

    def __init__(self, context: OptimizerContext) -> None:
        super().__init__(context)
        rows = self.recorded("archive.json", [])
        self.archive = [Member.model_validate(row) for row in rows]

    @staticmethod
    def takes(settings: AdasSettings, batch: int) -> tuple[int, int]:
        return (
            settings.agents * (1 + settings.reflections + settings.mends),
            settings.agents * batch,
        )

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """The edits to the best agent written; [] when none did better on the batch than the one
        that is there."""
        search = Search(self.context, scaffold, experiences)
        if not search.evidence or not editable(scaffold):
            return []
        best = search.parent
        for number in range(self.settings.agents):
            made = self.write(search, number)
            if search.spent:
                break
            if made is not None and search.gain(made) > search.gain(best):
                best = made
        self.record("archive.json", [m.model_dump(mode="json") for m in self.archive])
        return best.edits

    def write(self, search: Search, number: int) -> Measured | None:
        """One agent, looked at again, mended, measured and put into the archive; None when it never
        held together."""
        mine = {
            *editable(search.scaffold),
            *(p for p in ("agent.toml",) if not search.scaffold.agent.protects(p)),
        }
        shown = [(p, clip(t, SHOWN_CHARS)) for p, t in search.scaffold.files.items() if p in mine]
        messages = self.fill(
            "adas",
            files=shown,
            model=search.parent.experiences[0].trace.model or "a model that was not recorded",
            agent=tell_agent(search.scaffold.agent),
            score=f"{search.parent.mean:.2f}",
            archive=[
                {"name": m.name, "thought": m.thought, "score": f"{m.score:.2f}"}
                for m in self.archive
            ],
            failures=[self.tell(e) for e in search.failed[:3]],
        )
        reply = self.ask(messages, SCHEMA, temperature=0.8)
        for _ in range(self.settings.reflections):
            messages = [
                *messages,
                {"role": "assistant", "content": reply.text},
                {"role": "user", "content": FRESH_EYES},
            ]
            reply = self.ask(messages, SCHEMA, temperature=0.8)
        for mend in range(self.settings.mends + 1):
            name, thought, files, faults = self.read(search, reply)
            if not faults:
                break
            if mend == self.settings.mends:
                self.context.note(f"agent {number + 1} is not used: {'; '.join(faults)}")
                return None
            messages = sent_back(messages, reply.text, faults)
            reply = self.ask(messages, SCHEMA, temperature=0.8)
        made = search.measure(search.edits(files, f"{name}: {thought}"))
        if made is not None:
            self.archive.append(Member(name=name, thought=thought, files=files, score=made.mean))
            self.context.note(
                f"agent {number + 1} ({name}): {made.mean:.3f} on the batch's train tasks"
            )
        return made

    def read(self, search: Search, reply: Reply) -> tuple[str, str, dict[str, str], list[str]]:
        """(name, thought, files, what is wrong) of a reply: the files must make an agent that holds
        together."""
        found = self.context.read(reply)
        if not found:
            return "unnamed", "", {}, ["the reply holds no JSON object"]
        rows = found.get("files")
        files = {
            row["path"]: unfenced(row["text"]) if row["path"].startswith("tools/") else row["text"]
            for row in (rows if isinstance(rows, list) else [])
            if isinstance(row, dict)
            and isinstance(row.get("path"), str)
            and isinstance(row.get("text"), str)
        }
        name = str(found.get("name") or "unnamed")
        thought = str(found.get("thought") or "")
        edits = search.edits(files, f"{name}: {thought}")
        faults = self.context.validate(search.scaffold, edits) if edits else ["no file was changed"]
        return name, thought, files, faults

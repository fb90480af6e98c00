"""`sage`: skills from chains of similar tasks, each tried at the next task of its chain.

After Wang et al., "Reinforcement Learning for Self-Improving Agent with Skill Library" (arXiv
2512.17102): in a sequential rollout an agent goes along a chain of similar tasks, and the skills
that it makes at one are in its library at the next; a skill-integrated reward is paid where a skill
that was made earlier is used and the later task passes. There both train the model's weights
(GRPO); here nothing is trained, and the reward decides what is kept.

Inferred: the optimizer's model writes the skill from the attempt, where there the agent does; tasks
are similar that are of one kind and whose prompts share words, and within a chain those that passed
come first, since they teach and those that failed test; a skill is kept when more later tasks of
its chain passed with it that had failed without than the other way round; of skills with one name
the one that more tasks spoke for; a program counts as used when the attempt ran it, a text when it
was shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, Field

from recreate.agents.scaffold import Scaffold, apply
from recreate.agents.template import object_of
from recreate.agents.trajectory import clip
from recreate.api.types import Edit, Experience
from recreate.optimizers.reflect import tool_path
from recreate.optimizers.search import Search
from recreate.plugins.methods.asking import Asking
from recreate.plugins.methods.tools import calls_tools, unfenced, with_notice


def schema(programs: bool) -> dict[str, object]:
    forms = ["text", "program"] if programs else ["text"]
    return object_of(
        skill={"type": "string", "maxLength": 40},
        form={"type": "string", "enum": forms},
        body={"type": "string", "maxLength": 8000},
    )


class SageSettings(BaseModel, frozen=True, extra="forbid"):
    """length: tasks of a chain (the paper has 2, and found no more in longer ones); skills: how
    many a proposal adds at most, those that most tasks spoke for."""

    length: int = Field(default=3, ge=2, le=100)
    skills: int = Field(default=5, ge=1, le=40)


@dataclass
class Skill:
    """A text or a program by its path, and the later tasks that it mended and broke."""

    path: str
    body: str
    mended: list[str] = field(default_factory=list)
    broke: list[str] = field(default_factory=list)

    @property
    def worth(self) -> int:
        return len(self.mended) - len(self.broke)


class Sage(Asking):
    """The optimizer `sage`; `[optimizer_settings]`: see SageSettings."""

    Config = SageSettings
    settings: SageSettings

    @staticmethod
    def takes(settings: SageSettings, batch: int) -> tuple[int, int]:
        return batch, 2 * batch

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """The edits that add the skills which later tasks spoke for; [] when there are none, or
        they do not hold together on the batch."""
        search = Search(self.context, scaffold, experiences)
        if not search.evidence:
            return []
        found: dict[str, Skill] = {}
        for chain in chains(search.parent.experiences, self.context.kinds, self.settings.length):
            best: dict[str, Skill] = {}
            # of equals the last, which was written in sight of the others
            for skill in self.roll(search, chain):
                if skill.worth > 0 and (
                    skill.path not in best or skill.worth >= best[skill.path].worth
                ):
                    best[skill.path] = skill
            for path, skill in best.items():
                if path not in found or skill.worth > found[path].worth:
                    found[path] = skill
        kept = sorted(found.values(), key=lambda skill: -skill.worth)[: self.settings.skills]
        for skill in kept:
            self.context.note(
                f"{skill.path}: {len(skill.mended)} later tasks passed with it, {len(skill.broke)}"
                " failed"
            )
        if not kept or self.wrong(search, kept):
            return []
        edits = self.edits(search, kept)
        made = search.measure(edits)
        if made is None:  # no attempt is left to see them together: each has been tried by itself
            return edits
        self.context.note(f"the skills together: {made.mean:.3f} on the batch's train tasks")
        return edits if search.gain(made) > 0 else []

    def roll(self, search: Search, chain: Sequence[Experience]) -> list[Skill]:
        """One sequential rollout: the skills that were made along the chain, with what later tasks
        said of them."""
        library: dict[str, Skill] = {}
        made: list[Skill] = []
        attempt = chain[0]
        for before in chain[1:]:
            if search.spent:
                break
            skill = self.write(search, attempt, library)
            new = skill is not None and (
                skill.path not in library or library[skill.path].body != skill.body
            )
            if skill is not None and new and not self.wrong(search, [*library.values(), skill]):
                library[skill.path] = skill
                made.append(skill)
            attempt = before
            measured = (
                search.measure(self.edits(search, list(library.values())), [before.task])
                if library
                else None
            )
            if measured is None or not measured.experiences:
                continue
            attempt = measured.experiences[0]
            passed = attempt.grade.passed
            for each in library.values():
                if passed != before.grade.passed and is_used(each, attempt):
                    (each.mended if passed else each.broke).append(before.task)
        return made

    def write(
        self, search: Search, attempt: Experience, library: Mapping[str, Skill]
    ) -> Skill | None:
        """What an attempt taught, as a skill; one with the name of an earlier skill takes its
        place."""
        scaffold = search.scaffold
        programs = calls_tools(search.scaffold)
        there = {
            path: text for path, text in scaffold.files.items() if path.startswith("memory/skill_")
        }
        there |= {path: scaffold.files[path] for path in scaffold.tools.values()}
        there |= {path: skill.body for path, skill in library.items()}
        messages = self.fill(
            "sage",
            attempt=self.tell(attempt),
            skills=[(path, clip(text, 800)) for path, text in sorted(there.items())],
            programs=programs,
            rejected=self.context.dropped(),
        )
        said = self.context.read(self.ask(messages, schema(programs)))
        name = said.get("skill")
        body = said.get("body")
        if not isinstance(name, str) or not isinstance(body, str) or not body.strip():
            return None
        if said.get("form") == "program" and programs:
            return Skill(tool_path(name, body), unfenced(body).strip("\n") + "\n")
        stem = re.sub(
            r"^(skill_)+", "", tool_path(name, body).removeprefix("tools/").removesuffix(".py")
        )
        return Skill(f"memory/skill_{stem}.md", f"# {stem.replace('_', ' ')}\n\n{body.strip()}\n")

    def edits(self, search: Search, skills: Sequence[Skill]) -> list[Edit]:
        """Those that make the skills the agent's, and tell it of programs that its prompts do not
        tell of."""
        files = {skill.path: skill.body for skill in skills}
        if any(path.startswith("tools/") for path in files):
            files = with_notice(search.scaffold, files)
        return search.edits(files, "skills that later tasks of a chain passed with")

    def wrong(self, search: Search, skills: Sequence[Skill]) -> bool:
        """Whether they cannot be the agent's, which is noted."""
        edits = self.edits(search, skills)
        faults = (
            self.context.validate(search.scaffold, edits)
            if edits
            else ["there is nothing new in it"]
        )
        if not faults and any(edit.path.startswith("tools/") for edit in edits):
            faults = self.context.smoke_test(apply(search.scaffold, edits))
        for fault in faults:
            self.context.note(f"a skill is not used: {fault}")
        return bool(faults)


def is_used(skill: Skill, attempt: Experience) -> bool:
    """A text is used when it is shown; a program when its name stands in what the attempt ran."""
    name = re.search(r"tools/(\w+)", skill.path)
    if name is None:
        return True
    ran = re.compile(rf"\b{name[1]}\b")
    return any(ran.search(step.action or "") for step in attempt.trace.steps)


def chains(
    experiences: Sequence[Experience], kinds: Mapping[str, str], length: int
) -> list[list[Experience]]:
    """The batch's tasks, one attempt each, in chains of similar ones: of one kind, the nearest
    prompts together, those that passed first. A task that would stand alone joins the chain before
    it; a chain without a failure to mend, or of one task, is left out."""
    first: dict[str, Experience] = {}
    for experience in experiences:
        first.setdefault(experience.task, experience)
    made: list[list[Experience]] = []
    for kind in dict.fromkeys(kinds.get(task, "") for task in first):
        left = [e for e in first.values() if kinds.get(e.task, "") == kind]
        of_kind: list[list[Experience]] = []
        while left:
            start = left.pop(0)
            near = sorted(left, key=lambda e: -alike(start.prompt, e.prompt))[: length - 1]
            if not near and of_kind:
                of_kind[-1].append(start)
                break
            left = [e for e in left if e not in near]
            of_kind.append([start, *near])
        made += of_kind
    ordered = [sorted(chain, key=lambda e: not e.grade.passed) for chain in made]
    return [chain for chain in ordered if not all(e.grade.passed for e in chain[1:])]


def alike(a: str, b: str) -> float:
    """The share of words that two prompts have in common."""
    one, other = (set(re.findall(r"\w+", text.casefold())) for text in (a, b))
    return len(one & other) / max(1, len(one | other))

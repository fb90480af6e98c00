"""What an optimizer is handed to work with: a way to ask its model, a way to search, and what was
tried before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recreate.agents.progress import AskAgent
from recreate.agents.scaffold import Scaffold
from recreate.agents.template import filled, read_object
from recreate.agents.trajectory import clip
from recreate.api.ports import Ask, Hit, Sandbox, SandboxBackend
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import (
    Edit,
    Experience,
    Lesson,
    Message,
    Reply,
    Revision,
    Study,
    digest,
)
from recreate.optimizers import StudySettings

REPLY_TOKENS = 4096
"""Of a reply that is one short object: what a reasoning model thinks before it counts too."""
PROMPTS = Path(__file__).parent / "prompts"


def _no_state() -> Path:
    raise RuntimeError("this context was made without a run folder: there is no place for a state")


@dataclass
class OptimizerContext:
    """Made by the loop for one proposal.

    ask         the optimizer's model
    recall      search memory by meaning: (query, k, filters) -> hits, train only
    search      search memory by words: (words, k, filters) -> hits, train only
    get         a train experience by id, with its steps; None when there is none that may be seen
    validate    what is wrong with edits (they do not apply, break the agent, leak a task, cite what
                is not there), [] when nothing: the very check that `settle` applies
    smoke_test  what is wrong with a candidate's tools when they are started in a sandbox
    open        (experience, done) -> the sandbox it was worked in, its actions done again when
                `done`, and what is to be known about that
    empty       a fresh sandbox with nothing of a task in it
    backend     what sandboxes of its own are opened with
    play        (candidate, experience, ask) -> an attempt of the candidate at that experience's
                task, whose model is `ask`: graded, kept nowhere. Raises BadInput where the domain
                has no such task any more
    gold        the right answer of an experience's task; '' where the domain has none to show
    lessons     what memory teaches of the domain, as the run's agents are offered it
    stop        set when the run is being stopped: who waits for long looks at it
    tasks       ids of the run's train tasks, those of the batch among them: what `evaluate` takes
    evaluate    (candidate, ids of train tasks) -> one experience a task, in their order: scores and
                trajectories. Paid attempts, in the run folder, found again by `get`; one that was
                made before is read back. A task whose attempt is excluded (an infrastructure
                failure) is left out. Raises BadInput for an id that is no train task, OutOfBudget
                when the judging of a candidate could then not be paid
    attempt     the same for the task of one experience, and a repeat of it; None when there is no
                budget for it
    rejected    revisions that were dropped, by the gate or by a person
    kinds       train task -> its kind (stratum), where the domain has several
    settings    the optimizer's own (`[optimizer_settings]`), as its `Config` made them; None when
                it has none
    without     what was switched off (`--without`)
    folder      where studies are kept
    native      asks whether the model calls tools in its endpoint's own way (litellm's import, for
                who wants to know)
    """

    ask: Ask
    recall: Callable[[str, int, JsonMap], Sequence[Hit]]
    get: Callable[[str], Experience | None]
    validate: Callable[[Scaffold, Sequence[Edit]], list[str]]
    search: Callable[[str, int, JsonMap], Sequence[Hit]] = field(
        default=lambda words, k, filters: []
    )
    smoke_test: Callable[[Scaffold], list[str]] = field(default=lambda scaffold: [])
    open: Callable[[Experience, bool], tuple[Sandbox, str]] | None = None
    empty: Callable[[], Sandbox] | None = None
    backend: SandboxBackend | None = None
    play: Callable[[Scaffold, Experience, AskAgent], Experience] | None = None
    gold: Callable[[Experience], str] = field(default=lambda experience: "")
    lessons: Sequence[Lesson] = ()
    stop: threading.Event | None = None
    tasks: Sequence[str] = ()
    evaluate: Callable[[Scaffold, Sequence[str]], list[Experience]] = field(
        default=lambda candidate, tasks: []
    )
    attempt: Callable[..., Experience | None] | None = None
    rejected: Sequence[Revision] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    settings: Any = None
    without: Collection[str] = ()
    limits: StudySettings = field(default_factory=StudySettings)
    jobs: int = 1
    native: Callable[[], bool] = field(default=lambda: False)
    key: str = ""
    folder: Path | None = None
    domain: str = ""
    note: Callable[[str], None] = field(default=lambda text: None)
    studied: Callable[[Study], None] = field(default=lambda study: None)
    open_state: Callable[[], Path] = field(default=_no_state)
    threads: set[str] = field(default_factory=set)

    @property
    def state(self) -> Path:
        """The optimizer's own folder in the run: what it wrote there is there again in the next
        proposal.

        A proposal that was killed begins again with what the one before it left, so that it makes
        the same edits.
        """
        return self.open_state()

    def dropped(self, most: int = 5) -> list[str]:
        """Return the last dropped revisions, each as one line: what it changed, and why it was not
        kept."""
        lines = []
        for revision in list(self.rejected)[-most:]:
            changes = "; ".join(f"{e.path}: {clip(e.new, 160)!r}" for e in revision.edits)
            why = revision.verdict.reason or revision.verdict.verdict
            lines.append(f"{changes} ({f'a person {revision.review}' if revision.review else why})")
        return lines

    def read(self, reply: Reply) -> JsonDict:
        """Return the JSON object of a reply; {} where it holds none, which is noted: it was paid
        for and says nothing."""
        found = read_object(reply.text)
        if found is None:
            cut = ", cut off at the tokens that it may have" if reply.finish == "length" else ""
            said = (
                repr(clip(" ".join(reply.text.split()), 160)) if reply.text.strip() else "nothing"
            )
            self.note(
                f"a reply of the optimizer's model holds no JSON object{cut}, and is not used; it"
                f" says {said}"
            )
        return found or {}

    def thread(self, name: str) -> str:
        """Return the address of one line of calls within this proposal; '' is the proposal's
        own. What was asked there, now or in a session before, is what the proposal cost."""
        address = digest([self.key, name]) if name else self.key
        self.threads.add(address)
        return address


def prompt(name: str, *, folder: Path = PROMPTS, **variables: Any) -> list[Message]:
    """Return the prompt `folder/name.md`, filled in, as the only message."""
    return [{"role": "user", "content": filled(folder, name, variables)}]


def sent_back(messages: Sequence[Message], said: str, faults: Sequence[str]) -> list[Message]:
    """Return a question, what was said to it, why that cannot be used, and that it is asked for
    again."""
    return [*messages, {"role": "assistant", "content": said}, *prompt("again_whole", wrong=faults)]


def prompts(name: str, **variables: Any) -> list[Message]:
    """Return a prompt in two parts, parted by a line of `=====`: who the optimizer is, and what it
    is given."""
    system, _, user = filled(PROMPTS, name, variables).partition("\n=====\n")
    return [
        {"role": "system", "content": system.strip()},
        {"role": "user", "content": user.strip()},
    ]

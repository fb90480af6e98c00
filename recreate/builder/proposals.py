"""A batch of experiences under study: what the optimizer is handed, what is accepted of its edits,
and what a recording keeps of a proposal.

A replay takes the proposal that was made of the same inputs: nobody is asked, and the candidates
that were attempted on the way are attempted again, so that memory knows what it knew.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.callers import uncalled
from recreate.agents.config import read_agent
from recreate.agents.guards.gaming import advice
from recreate.agents.lesson import read_lesson, with_trust
from recreate.agents.lint import problems
from recreate.agents.progress import AskAgent
from recreate.agents.replay import replay
from recreate.agents.retrieval import LessonRetrieval
from recreate.agents.scaffold import BadEdit, Scaffold
from recreate.agents.trajectory import uncited
from recreate.agents.workplace import furnish, prepare_sandbox
from recreate.api.errors import BadInput, Missing, OutOfBudget
from recreate.api.ports import Hit, Sandbox, ToolCalling, Validatable, extras
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import (
    UNTRUSTED,
    Call,
    Edit,
    Experience,
    Message,
    Record,
    Reply,
    Revision,
    Task,
    Usage,
    digest,
    least_trust,
)
from recreate.builder.review import list_changes
from recreate.lessons.gaming import may_hold
from recreate.lessons.store import LessonStore
from recreate.models.replies import steady_digest
from recreate.optimizers.context import OptimizerContext
from recreate.runs.attempts import (
    Score,
    attempt_and_grade,
    attempt_task,
    count_new,
    key_of,
    read_ended,
    run_attempts,
)
from recreate.runs.reader import Run
from recreate.runs.session import Session
from recreate.runs.settings import Settings
from recreate.storage import files
from recreate.storage.log import encode
from recreate.storage.redact import redacted


class Proposals:
    """`key` is the proposal's address among the run's calls.

    agent        the one that attempted the batch
    tried        the run's revisions so far
    judging      how many attempts it takes to judge a candidate: trying one out must leave them
                 over
    scaffold_of  an agent of this run by digest; raises BadInput for one that is not
    retrieval    the lessons that its agents are shown
    tasks        ids of the run's train tasks; kinds: the stratum of each, where there are several
    """

    def __init__(
        self,
        session: Session,
        key: str,
        agent: Scaffold,
        experiences: Sequence[Experience],
        tried: Sequence[Revision],
        judging: int,
        scaffold_of: Callable[[str], Scaffold],
        retrieval: LessonRetrieval | None = None,
        tasks: Sequence[str] = (),
        kinds: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.session = session
        self.key = key
        self.agent = agent
        self.batch = {e.id: e for e in experiences}
        self.tried = tried
        self.judging = judging
        self.scaffold_of = scaffold_of
        self.retrieval = retrieval
        self.tasks = tasks
        self.kinds = kinds
        self.attempted: dict[str, Experience] = {}
        """Attempts of candidates, made for this proposal. They come into memory when it is made:
        until then a search must find what it found before, or a resumed build would ask other
        questions."""
        self.threads = {key}
        """The addresses of its calls."""
        self.tries: list[JsonDict] = []
        """Which candidates were attempted at which train tasks."""

    def propose(self, ask: Callable[[], JsonDict], **given: Any) -> JsonDict:
        """Return what `ask` makes of the optimizer's proposal, with what a recording keeps of it;
        in a replay what was proposed of the same inputs. given: what they are beside the agent,
        the batch and the settings. Raises OutOfBudget, once it is written down that this ended it;
        Differs where a replay gives other inputs.
        """
        session = self.session
        given |= {"agent": self.agent.digest, **_shaping(session.settings)}
        given |= {"attempts": dict(map(_content, self.batch.values()))}
        then = self.find_recorded(given)
        try:
            made = ask() if then is None else self._repeat(then)
        except OutOfBudget as e:
            told = self._recorded(given)
            session.journal.add("stopped", attempt=self.key, why=e.message, recorded=told)
            raise
        return made | {"recorded": self._recorded(given)}

    def find_recorded(self, given: JsonMap) -> JsonDict | None:
        """Return what was proposed of these inputs when a replay was recorded; None where the
        optimizer is to be asked. Raises Differs."""
        replay = self.session.replay
        call = f"{self.session.run}/{self.key}"
        return None if replay is None else replay.find_proposal(call, given)

    def _recorded(self, given: JsonDict) -> JsonDict:
        """Return what a recording keeps of the proposal beside its edits."""
        spend = self.session.ledger.spent_by(self.threads)
        studies = Run(self.session.folder).studies()
        return {
            "given": given,
            "tries": self.tries,
            "spend": {role: _dump(usage) for role, usage in spend.items()},
            "studies": [_dump(study) for study in studies if study.id in self.threads],
        }

    def _repeat(self, then: JsonMap) -> JsonDict:
        """Return what was proposed, once all that was done for it is done again, and charged.
        Raises OutOfBudget where that ended it."""
        session = self.session
        recorded = then["recorded"]
        for each in recorded["tries"]:
            edits = [Edit.model_validate(edit) for edit in each["edits"]]
            tasks = [self.train[id] for id in each["tasks"] if id in self.train]
            child = scaffolds.apply(self.agent, edits)
            self._attempt(child, tasks, each["phase"], each["repeat"])
        for study in recorded["studies"]:
            self.threads.add(study["id"])
            # an id may be anything: the recording may be a stranger's
            folder = session.folder / "studies" / digest(study["id"])
            files.write(folder / "study.json", encode(study), fix=files.RESUME)
        if not session.ledger.spent_by(self.threads):  # else killed since
            for role, usage in recorded["spend"].items():
                call = Call(run=session.run, attempt=self.key, step=0, role=role, phase="propose")
                session.ledger.settle(call, Usage.model_validate(usage))
        if then["kind"] == "stopped":
            raise OutOfBudget(then["why"], fix="raise the --budget of the build that was recorded")
        return {name: then[name] for name in ("edits", "others") if name in then}

    def context(self) -> OptimizerContext:
        """Return what the optimizer works with."""
        key = self.key
        settings = self.session.settings

        def ask(
            messages: Sequence[Message], *, step: int, thread: str = "", **params: Any
        ) -> Reply:
            attempt = thread or key
            self.threads.add(attempt)
            call = Call(
                run=self.session.run, attempt=attempt, step=step, role="optimizer", phase="propose"
            )
            params.setdefault("seed", int(digest([attempt, step], 7), 16))
            return self.session.ask_optimizer(list(messages), call, **params)

        ours = dict.fromkeys([*self.tasks, *(e.task for e in self.batch.values())])
        return OptimizerContext(
            ask=ask,
            recall=self.recall,
            search=lambda words, k, filters: self.session.memory.search(
                words, filters, "optimizer", k
            ),
            get=self.get,
            validate=lambda scaffold, edits: self.validate(
                scaffold, [self.own_words(e) for e in edits]
            ),
            smoke_test=lambda child: problems(child, self.session.backend),
            open=self.reopen,
            empty=lambda: self.session.backend.open(),
            backend=self.session.backend,
            play=self.play,
            gold=self.gold,
            stop=self.session.calls.stop,
            lessons=tuple(self.retrieval.lessons.values()) if self.retrieval else (),
            tasks=tuple(id for id in ours if id in self.train),
            evaluate=self.evaluate,
            attempt=self.attempt if settings.study.rehearsals else None,
            rejected=[r for r in self.tried if not r.kept],
            kinds=self.kinds,
            settings=self.session.optimizer_settings,
            without=settings.without,
            limits=settings.study,
            jobs=settings.jobs,
            native=self.native,
            key=key,
            folder=self.session.folder / "studies",
            domain=self.session.domain.name,
            note=lambda text: self.session.say("note", {"text": text}),
            studied=lambda study: self.session.say("study", {"study": study}),
            threads=self.threads,
            open_state=lambda: self.state,
        )

    @cached_property
    def state(self) -> Path:
        """The optimizer's folder for this proposal: a copy of what the last one that was made left.

        What a killed proposal wrote is thrown away, so that it is made again from where it began.
        """
        folder = self.session.folder / "optimizer"
        made = [
            r["attempt"]
            for r in self.session.journal.records("proposal")
            if (folder / r["attempt"]).is_dir()
        ]
        last = made[-1] if made else ""
        for other in folder.iterdir() if folder.is_dir() else ():
            if other.name != last:
                shutil.rmtree(other)
        mine = folder / self.key
        if last:
            shutil.copytree(folder / last, mine)
        else:
            files.make(mine)
        return mine

    def native(self) -> bool:
        """Whether tools are called in the endpoint's own way: as `study.tools` says, else what the
        model can."""
        asked = self.session.settings.study.tools
        model = self.session.optimizer_model
        return asked == "native" or (
            asked == "auto" and isinstance(model, ToolCalling) and model.native_tools
        )

    @cached_property
    def train(self) -> dict[str, Task]:
        """The domain's train tasks by id, without what the workspace holds out."""
        return {
            task.id: task
            for task in self.session.memory.held_out.usable(self.session.domain, "train")[0]
        }

    def get(self, id: str) -> Experience | None:
        """Return a train experience: of the batch, made for this proposal, or of memory."""
        found: Experience | None = self.batch.get(id) or self.attempted.get(id)
        return found or self.session.memory.get(id, "optimizer")

    def validate(self, scaffold: Scaffold, edits: Sequence[Edit]) -> list[str]:
        """Return why edits cannot be used: they cite what is not there, do not apply, break the
        agent, or leak a task."""
        experiences = dict(self.batch)
        for id in {c.experience for edit in edits for c in edit.evidence} - experiences.keys():
            if (other := self.get(id)) is not None:
                experiences[id] = other
        faults = uncited(edits, experiences)
        if faults:
            return faults
        try:
            child = scaffolds.apply(scaffold, edits)
        except BadEdit as e:
            return [f"{e.message}; {e.fix}"]
        if wrong := [*list_closed(scaffold, child), *problems(child)]:
            return wrong
        for edit in edits:
            dropped = (
                r for r in self.tried if not r.kept and r.verdict.tasks and len(r.edits) == 1
            )
            tried = next((r for r in dropped if scaffolds.same_edit(edit, r.edits[0])), None)
            if tried is not None:
                why = f"a person {tried.review}" if tried.review else "did not help"
                return [
                    f"{edit.path}: exactly this was tried before and {why}; propose something else"
                ]
        # what was handed in names the places of one task; whole traces are left out, since what the
        # environment says (a command, a format) is just what there is to learn
        answers = [e.trace.answer for e in experiences.values()]
        examples, wrong = self.read_examples(child, edits)
        return (
            wrong
            or self.session.scanner.leaks(edits, scaffold, answers, examples)
            or [
                *self.particular(edits, experiences),
                *self.gaming(scaffold, child),
            ]
        )

    def read_examples(
        self, child: Scaffold, edits: Sequence[Edit]
    ) -> tuple[dict[str, str], list[str]]:
        """Return (what each worked example that edits make may repeat of its own train task; what
        is wrong with those that are of no attempt of ours at one)."""
        found = dict[str, str]()
        wrong = list[str]()
        for path in dict.fromkeys(edit.path for edit in edits):
            if path.startswith("examples/") and path in child.files:
                born_of = read_lesson(path, child.files[path]).born_of
                of = self.get(born_of[0]) if len(born_of) == 1 else None
                if of is None or not of.trusted or of.task not in self.train:
                    wrong.append(
                        f"{path}: a worked example ends with `born_of: EXPERIENCE`, an attempt of"
                        " ours at a train task, and this one does not"
                    )
                else:
                    found[path] = f"{self.session.scanner.words_of(of.task)}\n{of.trace.answer}"
        return found, wrong

    def particular(self, edits: Sequence[Edit], cited: Mapping[str, Experience]) -> list[str]:
        """Return why lessons among the edits are none: they are about the things of a task that
        they come from."""
        found = []
        for number, edit in enumerate(edits, 1):
            if edit.path.startswith("memory/") and edit.new:
                lesson = read_lesson(PurePosixPath(edit.path).stem, edit.new)
                groups = [cited[e.experience].group for e in edit.evidence]
                said = self.session.scanner.particular(f"{lesson.title}\n{lesson.body}", groups)
                found += [f"edit {number} ({edit.path}) {why}" for why in said]
        return found

    def gaming(self, before: Scaffold, after: Scaffold) -> list[str]:
        """Return which lessons and prompts of a candidate tell to game the grader, where the
        agent's own did not."""
        found = []
        for path, text in after.files.items():
            old = before.files.get(path, "")
            if (
                path.endswith(".md")
                and text != old
                and (why := advice(text)) not in ("", advice(old))
            ):
                found += [] if self.is_released(path, text) else [f"{path} {why}"]
        return found

    def is_released(self, path: str, text: str) -> bool:
        """Whether it is a lesson in use that a person froze, or let go on after it was held."""
        if not path.startswith("memory/"):
            return False
        lesson = read_lesson(PurePosixPath(path).stem, text)
        store = LessonStore(
            self.session.memory.folder, self.session.domain.name, self.session.policy_name
        )
        known = store.read().get(lesson.id, lesson)
        same = (known.title, known.body) == (lesson.title, lesson.body)
        return same and known.status == "active" and not may_hold(known)

    def apply(
        self, current: Scaffold, edits: Sequence[Edit]
    ) -> tuple[Scaffold, list[Edit], list[str]]:
        """Return (the child, the edits it is made of, what was wrong with the others)."""
        child = current
        made = []
        faults = []
        for edit in edits:
            if wrong := self.validate(child, [edit]):
                faults += wrong
                continue
            child = scaffolds.apply(child, [edit])
            made.append(edit)
        made, idle = without_idle(current, child, made)
        child = scaffolds.apply(current, made)
        faults += idle
        return (child, made, faults) if child.digest != current.digest else (current, [], faults)

    def reopen(self, experience: Experience, done: bool) -> tuple[Sandbox, str]:
        """Open the sandbox of an experience: as it was given, or with the agent's actions done
        again."""
        task = self.task_of(experience)
        try:
            scaffold = self.scaffold_of(experience.digest)
            other = ""
        except BadInput:
            scaffold = self.agent
            other = "; its agent's files are not in this run, so those of the present one were used"
        if not done:
            sandbox = prepare_sandbox(self.session.domain, task, self.session.backend)
            furnish(sandbox, scaffold, task.prompt)
            return sandbox, "as the agent found it" + other
        sandbox, how = replay(
            scaffold, task, experience.trace, self.session.domain, self.session.backend
        )
        return sandbox, how + other

    def task_of(self, experience: Experience) -> Task:
        """Return the train task of an experience. Raises BadInput when the domain has none: it was
        imported, or is gone."""
        task = self.train.get(experience.task)
        if task is None:
            raise BadInput(
                f"the task of {experience.id} is not here any more", fix="read its steps instead"
            )
        return task

    def play(self, child: Scaffold, experience: Experience, ask: AskAgent) -> Experience:
        """Return an attempt of `child` at the task of a train experience, whose model is `ask`. It
        is kept nowhere. Raises BadInput when the domain has no such task."""
        trace = experience.trace
        place: JsonDict = {"task": experience.task, "repeat": trace.repeat}
        call = Call(run=self.session.run, attempt=trace.attempt, step=0, **place)
        task = self.task_of(experience)
        return attempt_and_grade(self.session, child, task, call, None, self.retrieval, ask)

    def gold(self, experience: Experience) -> str:
        """Return the right answer of a train experience's task; '' where the domain has none to
        show."""
        task, domain = self.train.get(experience.task), self.session.domain
        if task is None or not extras(domain).shows_gold or not isinstance(domain, Validatable):
            return ""
        try:
            return domain.gold(task)
        except BadInput:
            return ""

    def attempt(
        self, child: Scaffold, experience: Experience, repeat: int = 0
    ) -> Experience | None:
        """Make and return an attempt of `child` at the task of a train experience; None when
        judging it could then not be paid. Raises BadInput when the domain has no such task.
        """
        task = self.task_of(experience)
        try:
            self._afford(child, [task], repeat)
        except OutOfBudget:
            return None
        return next(iter(self._attempt(child, [task], "rehearse", repeat)), None)

    def evaluate(self, child: Scaffold, tasks: Sequence[str]) -> list[Experience]:
        """Attempts of a candidate at train tasks, in their order; those that are excluded are left
        out.

        Raises BadInput for an id that is no train task of the domain; OutOfBudget when judging
        could then not be paid.
        """
        if unknown := [id for id in tasks if id not in self.train]:
            raise BadInput(
                f"{unknown[0]} is no train task of {self.session.domain.name}",
                fix="evaluate candidates on train tasks only: context.tasks are their ids",
                code="no-train-task",
            )
        chosen = [self.train[id] for id in dict.fromkeys(tasks)]
        self._afford(child, chosen)
        return self._attempt(child, chosen, "select")

    def _afford(self, child: Scaffold, tasks: Sequence[Task], repeat: int = 0) -> None:
        """Raise OutOfBudget where judging a candidate could not be paid after these attempts."""
        if new := count_new(self.session, child, tasks, [repeat], self.retrieval):
            self.session.ledger.afford(new + self.judging)

    def _attempt(
        self, child: Scaffold, tasks: Sequence[Task], phase: str, repeat: int = 0
    ) -> list[Experience]:
        """Attempt and return what was not excluded; that it was done is noted for a replay."""
        session = self.session
        done = list(tasks)
        how: JsonDict = {"in_memory": False, "offers": self.retrieval}
        try:
            if phase == "rehearse":
                scores = [attempt_task(session, child, t, repeat, phase, **how) for t in tasks]
            else:
                scores = run_attempts(session, child, tasks, phase=phase, **how)
        except OutOfBudget:  # what was cut off is charged in a replay, and not done again
            known = session.journal
            keys = {key_of(session, child, task, repeat, self.retrieval): task for task in tasks}
            ended = [key for key in keys if known.renamed.get(key, key) in known.ended]
            self.threads.update(keys.keys() - {*ended})
            done = [keys[key] for key in ended]
            raise
        finally:
            edits = [_dump(e) for e in list_changes(self.agent, child, "search")]
            ids = [task.id for task in done]
            self.tries.append({"edits": edits, "tasks": ids, "phase": phase, "repeat": repeat})
        return [e for score in scores if (e := self.take(score)) is not None]

    def take(self, score: Score) -> Experience | None:
        """Return the experience of an attempt made for this proposal; None when the attempt was
        excluded."""
        made = read_ended(self.session, score.attempt)
        if made is not None and made.id not in self.batch:
            self.attempted[made.id] = made
        return made

    def recall(self, query: str, k: int, filters: JsonMap) -> Sequence[Hit]:
        """Search memory as the optimizer may. Without the `memory` extra there is nothing to
        search, and it says so."""
        try:
            return self.session.recall(query, k, filters)
        except Missing as e:
            self.session.say(
                "note", {"text": f"the optimizer cannot search memory: {e.message} ({e.fix})"}
            )
            return []

    def own_words(self, edit: Edit) -> Edit:
        """Return an edit as it is proposed (`as_proposed`); a new lesson that cites what others
        said has that in its file, whatever it says of itself, and the agent is told."""
        edit = as_proposed(edit)
        trust = least_trust(e for c in edit.evidence if (e := self.get(c.experience)) is not None)
        if trust not in UNTRUSTED or edit.old or not edit.path.startswith("memory/"):
            return edit
        return edit.model_copy(update={"new": with_trust(edit.new, trust)})


def _dump(record: Record) -> JsonDict:
    return record.model_dump(mode="json", exclude_defaults=True)


def _shaping(settings: Settings) -> JsonDict:
    """Return the optimizer's name, and the settings that shape what it proposes."""
    names = {"optimizer", "optimizer_settings", "study", "without"}
    return settings.model_dump(mode="json", include=names, exclude_defaults=True)


def _content(experience: Experience) -> tuple[str, JsonDict]:
    """Return which attempt it is, and what the optimizer reads of it, without what wavers."""
    trace = experience.trace
    grade = experience.grade
    seen = {"kind", "observation", "reply", "action", "output", "status"}
    steps = [step.model_dump(mode="json", include=seen) for step in trace.steps]
    return f"{experience.task}, repeat {trace.repeat}", {
        "score": grade.score,
        "passed": grade.passed,
        "ending": trace.ending,
        "steps": steady_digest(steps),
        "evidence": steady_digest(grade.evidence),
    }


CLOSED = ("limits", "model", "samples", "protect")


def as_proposed(edit: Edit) -> Edit:
    """Return an edit as an optimizer may propose it: without keys, and from experience, whatever it
    says of itself. Who else makes edits (a person in a review, the loop that takes a lesson out,
    the writing of a seed) is known by where they are made."""
    texts = redacted({"old": edit.old, "new": edit.new, "reason": edit.reason}, acted_on=True)
    return edit.model_copy(update={**texts, "origin": "experience"})


def without_idle(
    before: Scaffold, after: Scaffold, edits: Sequence[Edit]
) -> tuple[list[Edit], list[str]]:
    """Return the edits that make a candidate which carries no tool for nothing, and what is said of
    the others.

    A new tool that nothing in the candidate calls (`uncalled`) is left out. One that the parent
    called and nothing calls any more is taken out, if it may be; one that nothing called before
    either is left to who put it there.
    """
    new = list(edits)
    left = list[str]()
    idle = [path for path in uncalled(after) if path not in before.files]
    for path in idle:
        new = [edit for edit in new if edit.path not in _with_schema(path)]
        left.append(
            f"{path}: nothing in the candidate calls it (no prompt, lesson, other tool, nor"
            " agent.toml)"
        )
    called = set(before.tools.values()) - set(uncalled(before))
    for path in uncalled(after):
        if path in called and not after.agent.protects(path):
            for file in sorted(_with_schema(path) & after.files.keys()):
                why = "nothing in the candidate calls it any more"
                new.append(Edit(path=file, old=after.files[file], reason=why, origin="prune"))
    return new, left


def _with_schema(tool: str) -> set[str]:
    return {tool, str(PurePosixPath(tool).with_suffix(".json"))}


def list_closed(before: Scaffold, after: Scaffold) -> list[str]:
    """Return what a candidate changes that is a person's to decide: what an attempt costs and
    touches, what people read."""
    wrong = []
    if before.files.get("README.md") != after.files.get("README.md"):
        wrong.append(
            "README.md is for people, and written by the build: no agent reads it; edit another"
            " file"
        )
    agent, _ = read_agent(after.files.get("agent.toml", ""))
    changed = [
        key
        for key in CLOSED
        if agent is not None and getattr(before.agent, key) != getattr(agent, key)
    ]
    ways = (before.agent.turns, agent.turns) if agent is not None else ({}, {})
    changed += [key for key in {**ways[0], **ways[1]} if ways[0].get(key) != ways[1].get(key)]
    if changed:
        whose = "what an attempt may cost and touch is a person's to decide; leave them as they are"
        wrong.append(f"agent.toml: {', '.join(changed)}: {whose}")
    return wrong

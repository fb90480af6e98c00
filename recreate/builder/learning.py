"""What a build learns beside its agent: lessons in the workspace's memory, by the policy it was
asked to use.

Train attempts are offered what memory holds when their round begins, validation what it held when
the build began, and nothing at all where offers are drawn: what a build itself taught counts in its
score only once it was promoted into the agent, through the gate.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from recreate.agents.lesson import lesson_file
from recreate.agents.retrieval import LessonRetrieval, Retriever, exactly, frozen, support
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput, Fault, Missing, OutOfBudget
from recreate.api.own_time import PATIENCE, OwnTime, patience_of
from recreate.api.paths import short
from recreate.api.ports import MemoryPolicy, Randomising
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.theirs import all_are, expect
from recreate.api.types import (
    Call,
    Change,
    Edit,
    Evidence,
    Experience,
    Lesson,
    Message,
    Reply,
    Revision,
    Task,
    digest,
    least_trust,
)
from recreate.lessons import draws, gaming
from recreate.lessons.context import QUESTIONS, PolicyContext, RerunGroup, RerunRequest
from recreate.lessons.store import CLIMBING, LessonStore
from recreate.memory.forget import lesson_mark, surviving
from recreate.runs.attempts import Score, attempt_task, key_of, read_ended
from recreate.runs.session import Session
from recreate.storage import files
from recreate.storage.redact import redacted

PROMOTED = 3
"""Patterns copied into the agent in one round at most: a candidate with many changes tells little
about each."""


class Learning:
    """Of one run. With the policy `none` nothing is read, asked or written.

    judging: of a build, how many attempts it takes to judge a candidate; re-runs must leave them
    over. seed: the agent that it begins from. What that carries is offered to no validation
    attempt: an agent that lacks it is to be measured without.
    """

    def __init__(self, session: Session, judging: int = 0, seed: Scaffold | None = None) -> None:
        self.session = session
        self.judging = judging
        self.carried = {x.id for x in seed.lessons} if seed is not None else set[str]()
        self.policy = session.policy_name
        self.on = self.policy != "none"
        self.store = LessonStore(session.memory.folder, session.domain.name, self.policy)
        self._offers: dict[tuple[int, bool], LessonRetrieval] = {}
        self._scanned: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
        self._reruns: set[str] = set()
        self._told: set[str] = set()

    # what is offered

    def offers(self, round: int = 0, *, drawn: bool = False) -> LessonRetrieval | None:
        """Return what attempts of a round may be offered: memory as it was when the round began,
        also after a kill.

        drawn: for attempts that are made to learn from: a policy that draws its offers may show
        what is not proven.
        """
        if not self.on:
            return None
        if (round, drawn) not in self._offers:
            lessons, told = self._snapshot(round)
            propensities = {
                id: p for id, p in told.get("propensities", {}).items() if drawn and id in lessons
            }
            if not drawn:
                some = {} if told.get("alone") else lessons
                lessons = {
                    id: x
                    for id, x in some.items()
                    if self._is_offered(x) and id not in self.carried
                }
            made = self._make_policy(dict(lessons), _nobody, _nothing)
            offer = partial(
                made.ask, "eligible" if drawn and isinstance(made.policy, Randomising) else "offer"
            )
            unproven = [id for id in told.get("unproven", ()) if id in lessons]
            checked = _checked(made.policy, offer)
            self._offers[round, drawn] = frozen(
                self.policy, checked, lessons, propensities, unproven
            )
        return self._offers[round, drawn]

    def _snapshot(self, round: int) -> tuple[dict[str, Lesson], JsonMap]:
        """Return (the lessons that a round may offer, its record: `propensities` of those that are
        drawn; `unproven`, those that stand in other domains only; `alone` where only train attempts
        are offered any)."""
        folder = self.session.folder / "memory"
        known = next(
            (r for r in self.session.journal.records("snapshot") if r["round"] == round), None
        )
        if known is not None:
            return self._open(_stored(folder / known["file"])), known
        there = self._read()
        made = self._make_policy(dict(there), _nobody, _nothing)
        draws_offers = isinstance(made.policy, Randomising)
        drawn: Mapping[str, float] = made.ask("propensities") if draws_offers else {}
        expect(_are_propensities(drawn), made.policy, "propensities", drawn)
        some = {id: x for id, x in there.items() if self._is_offered(x) or id in drawn}
        lessons = {
            id: x
            for id, x in some.items()
            if self._is_trusted(x) and not self._leaks(x) and not self._games(x)
        }
        propensities = {
            id: min(0.999, max(0.001, float(f"{p:.3f}")))
            for id, p in drawn.items()
            if id in lessons
        }
        text = json.dumps([x.model_dump(mode="json") for x in lessons.values()], ensure_ascii=False)
        name = digest(text)
        files.write(folder / f"{name}.json", text, fix=files.RESUME)
        told: JsonDict = {"propensities": propensities} if propensities else {}
        elsewhere = [
            id
            for id, x in lessons.items()
            if x.scope == "general" and self.session.domain.name not in x.domains
        ]
        told |= {"unproven": elsewhere} if elsewhere else {}
        told |= {"alone": True} if self.judging and draws_offers else {}
        self.session.journal.add(
            "snapshot", round=round, file=f"{name}.json", lessons=len(lessons), **told
        )
        return lessons, told

    def announce(self, agent: Scaffold) -> None:
        """Say when an agent will be offered nothing because it does not ask for it."""
        if self.on and not agent.agent.memory.tokens:
            text = (
                f"{agent.name} asks for nothing of memory: [memory] with tokens = 600 in its"
                " agent.toml does"
            )
            text += "" if self._of_use(agent) else "; until then no lessons are learned"
            self.session.say("note", {"text": text})

    def _of_use(self, agent: Scaffold) -> bool:
        """Whether a lesson can come to something: where it is only drawn, an agent must ask for
        it."""
        drawn = self.session.settings.memory.draws
        return self.on and (not drawn or agent.asks_for_lessons)

    def _is_offered(self, lesson: Lesson) -> bool:
        return lesson.status == "active" or (
            self.policy not in CLIMBING and lesson.status == "candidate"
        )

    def _leaks(self, lesson: Lesson, batch: tuple[str, ...] = ()) -> bool:
        """Whether a lesson names what belongs to one task; it is said, once a text. batch: groups
        of the attempts that the policy had before it when it wrote the lesson, of whichever of them
        that was born."""
        key = (lesson.title, lesson.body, batch)
        if key not in self._scanned:
            self._scanned[key] = self.session.lesson_leaks(lesson, batch)
            for why in self._scanned[key][:1]:
                self.session.say("note", {"text": f"the lesson {lesson.id} is not used: it {why}"})
        return bool(self._scanned[key])

    def _is_trusted(self, lesson: Lesson) -> bool:
        """Whether a lesson may be offered: what others said may not be, unless a person let it."""
        if not lesson.trusted:
            self._say_once(
                f"the lesson {lesson.id} is not used: {lesson.origin}; recreate patterns keep"
                f" {lesson.id} lets it be"
            )
        return lesson.trusted

    def _games(self, lesson: Lesson) -> bool:
        """Whether a lesson's own words tell to game a grader; it is held when the policy observes
        next."""
        why = gaming.advice_of(lesson) if gaming.may_hold(lesson) else ""
        if why:
            self._say_once(
                f"the lesson {lesson.id} is not used: it {why}; recreate patterns keep {lesson.id}"
                " lets it go on"
            )
        return bool(why)

    # what is learned

    def observe(self, round: int, agent: Scaffold, experiences: Sequence[Experience]) -> None:
        """Let the policy learn from a batch; its model's words and its re-runs are paid for
        once."""
        if not self._of_use(agent) or not experiences:
            return
        records = self.session.journal.records("memory")
        known = next((r for r in records if r["round"] == round), None)
        if known is not None:
            self._restore(known)
            return
        key = digest(["memory", self.policy, round, agent.digest, [e.id for e in experiences]])
        threads = {key}
        made = dict[str, Experience]()
        self._reruns.clear()
        failures = sum(not e.grade.passed for e in experiences)
        self.session.say(
            "observe",
            {"policy": self.policy, "experiences": len(experiences), "failures": failures},
        )

        def ask(
            messages: Sequence[Message], *, step: int, thread: str = "", **params: Any
        ) -> Reply:
            threads.add(address := digest([key, thread]) if thread else key)
            call = Call(
                run=self.session.run, attempt=address, step=step, role="optimizer", phase="observe"
            )
            params.setdefault("seed", int(digest([address, step], 7), 16))
            return self.session.ask_optimizer(list(messages), call, **params)

        def side_by_side(groups: Sequence[RerunGroup]) -> list[list[float | None]]:
            scores, again = self._rerun(agent, groups)
            made.update({e.id: e for e in again})
            return scores

        def rerun(
            lessons: Sequence[Lesson],
            experience: Experience,
            repeat: int = 0,
            without: Sequence[Lesson] = (),
        ) -> float | None:
            return side_by_side([[RerunRequest(lessons, experience, repeat, without)]])[0][0]

        before = self._read()
        after = dict(before)
        shown = [_carrying(e, [x.id for x in agent.lessons if x.id in before]) for e in experiences]
        questions = QUESTIONS * self.session.settings.memory.draws
        asked = self._make_policy(
            after, ask, rerun, len(shown), questions, side_by_side, partial(self._affords, agent)
        )
        changes = list(found) if isinstance(found := asked.ask("observe", shown), tuple) else found
        expect(all_are(changes, Change), asked.policy, "observe", changes)
        for id, lesson in after.items():
            if before.get(id) != lesson and (why := _no_lesson(id, lesson)):
                why = f"left in context.lessons[{id!r}] {why}"
                expect(False, asked.policy, "observe", changes, why)
        changes = self._clean(before, after, changes, shown, made.values())
        changed = [id for id, lesson in after.items() if before.get(id) != lesson]
        self.session.journal.add(
            "memory",
            round=round,
            policy=self.policy,
            changes=[c.model_dump(mode="json") for c in changes],
            before=[before[id].model_dump(mode="json") for id in changed if id in before],
            after=[after[id].model_dump(mode="json") for id in changed],
            reruns=list(made),
        )
        self.store.write(before, after)
        # Only now: until the lessons are on disk a search must find what it found before.
        self.session.memory.add(list(made.values()))
        for thread in threads:
            self.session.journal.forget(thread)
        for change in changes:
            self.session.say("learned", {"change": change})

    def _restore(self, record: JsonMap) -> None:
        """Bring back what a round learned before a kill: nothing is asked or paid again."""
        before, after = (
            {x["id"]: Lesson.model_validate(x) for x in record[key]} for key in ("before", "after")
        )
        self.store.write(before, self._not_forgotten(after))
        again = (read_ended(self.session, id) for id in record.get("reruns", ()))
        self.session.memory.add([e for e in again if e is not None])

    def _clean(
        self,
        before: Mapping[str, Lesson],
        after: dict[str, Lesson],
        changes: Sequence[Change],
        shown: Sequence[Experience],
        made: Collection[Experience],
    ) -> list[Change]:
        """Return the changes that stand: lessons that name a task are out of `after`, keys are
        masked, what others said is on trial, and what tells to game a grader is held."""
        dropped = self._drop_leaks(before, after, tuple(dict.fromkeys(e.group for e in shown)))
        known = {e.id: e for e in shown}
        untrusted = set[str]()
        for id, lesson in after.items():
            texts = {"title": lesson.title, "body": lesson.body}
            if before.get(id) != lesson and (plain := redacted(texts)) is not texts:
                after[id] = lesson.model_copy(update=plain)
            if id not in before:
                cited = (known.get(i) or self._train_experience(i) for i in lesson.born_of)
                trust = least_trust([lesson, *(e for e in cited if e is not None)])
                after[id] = lesson = after[id].model_copy(update={"trust": trust})
            stood = before[id].status if id in before else "candidate"
            if not lesson.trusted and lesson.status == "active" != stood:
                after[id] = after[id].model_copy(update={"status": stood, "domains": ()})
                untrusted.add(id)
        standing = [
            change
            for change in changes
            if change.lesson not in dropped
            and not (change.kind == "promoted" and change.lesson in untrusted)
        ]
        return gaming.watch_lessons(before, after, standing, shown, made)

    def _not_forgotten(self, lessons: Mapping[str, Lesson]) -> dict[str, Lesson]:
        """Return what a round learned, or its agent carries, without what was forgotten."""
        gone = self.session.memory.forgotten.read()
        there = self.store.read()
        left = {id: surviving(x, gone) for id, x in lessons.items()}
        named = {id for id in lessons.keys() - there.keys() if gone & set(self._marks(lessons[id]))}
        return {id: x for id, x in left.items() if x is not None and id not in named}

    def _marks(self, lesson: Lesson) -> list[str]:
        return [lesson_mark(domain, lesson.id) for domain in (self.session.domain.name, "general")]

    def _drop_leaks(
        self, before: Mapping[str, Lesson], after: dict[str, Lesson], batch: tuple[str, ...]
    ) -> set[str]:
        """Take new or changed texts that name a task out of `after`; what had joined one is again
        what it was."""
        texts = {id: (x.title, x.body) for id, x in before.items()}
        dropped = {
            id
            for id, x in after.items()
            if texts.get(id) != (x.title, x.body) and self._leaks(x, batch)
        }
        for id in dropped:
            after.pop(id)
            after.update({id: before[id]} if id in before else {})
        for id, lesson in after.items():
            if lesson.merged_into in dropped and lesson.merged_into not in before:
                stood = before[id].status if id in before else "candidate"
                after[id] = lesson.model_copy(update={"status": stood, "merged_into": ""})
        return dropped

    def adopt_lessons(self, edits: Sequence[Edit], experiences: Mapping[str, Experience]) -> None:
        """Lessons that the optimizer wrote into the agent are the workspace's as well, kept by the
        gate or not. edits: those that were accepted for judging."""
        if not self.on or self.policy not in CLIMBING:
            return
        before = self._read()
        after = dict(before)
        for edit in edits:
            cited = [
                experiences[c.experience] for c in edit.evidence if c.experience in experiences
            ]
            if not edit.path.startswith("memory/") or edit.old or not cited:
                continue
            lesson = Scaffold(name="", files={edit.path: edit.new}).lessons[0]
            ids = tuple(dict.fromkeys(e.id for e in cited))
            groups = tuple(sorted({e.group for e in cited}))
            steps = tuple(dict.fromkeys(c for c in edit.evidence if c.experience in experiences))
            fresh = {
                "born_of": ids,
                "supports": ids,
                "groups": groups,
                "scope": "instance",
                "steps": steps,
                "trust": least_trust(cited),
            }
            after.setdefault(lesson.id, lesson.model_copy(update=fresh))
        self.store.write(before, self._not_forgotten(after))

    def promotions(self, agent: Scaffold, tried: Sequence[Revision]) -> list[Edit]:
        """Edits that copy proven patterns into the agent, the best supported first; none that was
        dropped."""
        if not self.on or self.policy not in CLIMBING:
            return []
        told = {(edit.path, edit.new) for r in tried for edit in r.edits}
        edits = []
        for lesson in sorted(self._read().values(), key=lambda x: (-len(x.groups), x.id)):
            path = f"memory/{lesson.id}.md"
            cited = [
                e
                for id in (*lesson.supports, *lesson.born_of)
                if (e := self._train_experience(id)) is not None
            ]
            if (
                lesson.status != "active"
                or not lesson.trusted
                or lesson.scope == "instance"
                or path in agent.files
                or not cited
            ):
                continue
            if self._games(lesson) or self._failed_here(lesson):
                continue
            ids = sorted({e.id for e in cited})
            count = {e.id: len(e.trace.steps) for e in cited}
            _, text = lesson_file(lesson.title, lesson.body, ids)
            if (path, text) not in told:
                shown = sorted(
                    {
                        (at.experience, at.step)
                        for at in lesson.steps
                        if at.step < count.get(at.experience, 0)
                    }
                )
                # of what was learned before steps were told, only the attempts are known
                evidence = tuple(
                    Evidence(experience=id, step=n) for id, n in shown or [(id, 0) for id in ids]
                )
                reason = (
                    f"a {lesson.scope} pattern:"
                    f" {'; '.join(filter(None, (support(lesson), draws.describe_draws(lesson))))}"
                )
                edits.append(Edit(path=path, new=text, reason=reason, evidence=evidence))
        return edits[:PROMOTED]

    def removals(self, agent: Scaffold, tried: Sequence[Revision]) -> list[Edit]:
        """Edits that take out of the agent what stopped helping here since it came in, or what a
        person vetoed; none that was dropped."""
        if not self.on or self.policy not in CLIMBING:
            return []
        known = {x.id: x for x in self._elsewhere() if self._failed_here(x)} | self._read()
        told = {(edit.path, edit.old) for r in tried for edit in r.edits if edit.origin == "prune"}
        edits = []
        for id in (x.id for x in agent.lessons):
            path = f"memory/{id}.md"
            lesson = known.get(id)
            if lesson is None or agent.agent.protects(path):
                continue
            if lesson.status not in ("quarantined", "vetoed", "held") and not self._failed_here(
                lesson
            ):
                continue
            why = {"vetoed": "a person vetoed it", "held": f"it is held: {lesson.held}"}.get(
                lesson.status, ""
            )
            stands = (
                f" here, and stands in {' and '.join(lesson.domains)}"
                if lesson.status == "active"
                else ""
            )
            why = why or f"it stopped helping{stands}: {support(lesson)}"
            if (path, agent.files[path]) not in told:
                edits.append(Edit(path=path, old=agent.files[path], reason=why, origin="prune"))
        return edits

    # its parts

    def _failed_here(self, lesson: Lesson) -> bool:
        return self.session.domain.name in lesson.failed_in

    def _read(self) -> dict[str, Lesson]:
        lessons = self.store.read()
        for path, why in self.store.broken.items():
            self.session.say(
                "note", {"text": f"{path}: {why}; it is left out until somebody mends it"}
            )
        return self._open(lessons)

    def _open(self, lessons: Mapping[str, Lesson]) -> dict[str, Lesson]:
        """None that is born of what is held out by now: no attempt is offered it, and no policy
        reads it."""
        there: dict[str, Lesson] = self.session.memory.open_lessons(lessons)
        for id in sorted(lessons.keys() - there.keys()):
            self._say_once(f"the lesson {id} is not used: an attempt that it cites is held out")
        return there

    def _elsewhere(self) -> list[Lesson]:
        there = self.store.elsewhere()
        return [x for n, x in enumerate(there) if self.session.memory.open_lessons({str(n): x})]

    def _make_policy(
        self,
        lessons: dict[str, Lesson],
        ask: Any,
        rerun: Any,
        batch: int = 0,
        questions: int = 0,
        side_by_side: Any = None,
        affords: Any = None,
    ) -> _Made:
        """Return the policy over these lessons. batch: how many experiences it is about to observe,
        in memory already."""
        time = OwnTime()
        context = PolicyContext(
            domain=self.session.domain.name,
            lessons=lessons,
            ask=time.wrap(ask),
            embed=time.wrap(self.session.memory.embed),
            rerun=time.wrap(rerun),
            side_by_side=time.wrap(side_by_side) if side_by_side is not None else None,
            room=time.wrap(self._room),
            affords=time.wrap(affords or _any_re_runs),
            nearest=time.wrap(self._nearest),
            find=time.wrap(self._train_experience),
            there=time.wrap(lambda experience: experience.task in self._train),
            alike=time.wrap(self._recall),
            elsewhere=self._elsewhere(),
            observed=max(0, self.session.memory.count(self.session.domain.name) - batch),
            questions=questions,
            odds=self.session.settings.memory.odds,
            note=time.wrap(lambda text: self.session.say("note", {"text": text})),
        )
        return _Made(
            time.run(self.session.policy, f"the policy {self.policy}", PATIENCE, context), time
        )

    @cached_property
    def _train(self) -> dict[str, Task]:
        return {
            task.id: task
            for task in self.session.memory.held_out.usable(self.session.domain, "train")[0]
        }

    def _train_experience(self, id: str) -> Experience | None:
        found: Experience | None = self.session.memory.get(id, "optimizer")
        return found

    def _rerun(
        self, agent: Scaffold, groups: Sequence[RerunGroup]
    ) -> tuple[list[list[float | None]], list[Experience]]:
        """Return (what `PolicyContext.reruns` answers, the attempts that it took), `jobs` at once.

        Which are begun is settled before any of them is, by how many there were before them: so
        nothing depends on who was faster.
        """
        wave = dict[str, _Rerun]()
        answers = list[list[str]]()
        for group in groups:
            found = [self._plan_rerun(agent, each) for each in group]
            asked = [each for each in found if each is not None]
            if len(asked) < len(found) or not self._begins(wave, asked):
                if answers:
                    break
                return [[None] * len(group)], []
            answers.append([each.key for each in asked])
            wave |= {each.key: each for each in asked}
        scores = self._make(list(wave.values()))
        begun = self.session.ledger.has_begun
        self._reruns |= {each.key for each in wave.values() if not each.known and begun(each.key)}
        made = [
            e
            for x in scores.values()
            if x.score is not None and (e := read_ended(self.session, x.attempt)) is not None
        ]
        return [[scores[key].score for key in keys] for keys in answers], made

    def _affords(self, agent: Scaffold, groups: Sequence[RerunGroup]) -> bool:
        """Whether what is left of the budget does for all of these. A cap of one round is not
        asked: the next one goes on with what this one made."""
        found = (self._plan_rerun(agent, each) for group in groups for each in group)
        return self._is_paid_for({each.key for each in found if each is not None})

    def _is_paid_for(self, keys: Collection[str]) -> bool:
        """Whether the budget does for these re-runs, and for judging a candidate after them."""
        begun = self.session.ledger.has_begun
        try:
            self.session.ledger.afford(sum(not begun(key) for key in keys) + self.judging)
        except OutOfBudget:
            return False
        return True

    def _plan_rerun(self, agent: Scaffold, asked: RerunRequest) -> _Rerun | None:
        """None where it cannot be attempted. Never the attempt that was observed: it was chosen for
        how it ended, and any other would look better. No lesson is tried that names a task: what it
        says would stand in the attempt, for optimizers to read."""
        agent = _lacking(agent, asked.without)
        if any(not x.trusted or self._leaks(x) or self._games(x) for x in asked.lessons):
            return None
        task = self._train.get(asked.experience.task)
        if task is None or {x.id for x in asked.lessons} & {x.id for x in agent.lessons}:
            return None  # without the lesson that it carries it would be another agent
        told = exactly(asked.lessons)
        repeat = 1 + asked.repeat
        # its image cannot be had: the attempt says so
        if not (key := self._key(agent, task, repeat, told)):
            return _Rerun(
                digest([agent.digest, task.id, repeat, told.digest]),
                agent,
                task,
                repeat,
                told,
                known=True,
            )
        id = self.session.journal.renamed.get(key, key)
        known = any(id in r.get("reruns", ()) for r in self.session.journal.records("memory"))
        return _Rerun(key, agent, task, repeat, told, known)

    def _begins(self, wave: Mapping[str, _Rerun], asked: Sequence[_Rerun]) -> bool:
        """Whether these re-runs are begun with those of the wave. What an earlier round made costs
        nothing, and what this round made before a kill counts again, so that it ends as it would
        have."""
        whole = {**wave, **{each.key: each for each in asked}}
        new = [key for key, each in whole.items() if not each.known and key not in self._reruns]
        if len(self._reruns) + len(new) > self._most:
            if not self._most:
                self._say_once(
                    "no lesson is tested by re-runs without a --budget: --memory.reruns 24 allows"
                    " so many a round"
                )
            return False
        begun = self.session.ledger.has_begun
        return all(begun(each.key) for each in asked) or self._is_paid_for(whole)

    def _make(self, wave: Sequence[_Rerun]) -> dict[str, Score]:
        """Return what became of these re-runs, by key."""

        def make(each: _Rerun) -> Score:
            given = self.session, each.agent, each.task, each.repeat, "rerun"
            score = attempt_task(*given, in_memory=False, offers=each.offers)
            lessons = list(each.offers.lessons)
            self.session.say(
                "rerun", {"task": each.task.id, "lessons": lessons, "score": score.score}
            )
            return score

        with ThreadPoolExecutor(self.session.settings.jobs, thread_name_prefix="rerun") as pool:
            futures = {each.key: pool.submit(make, each) for each in wave}
            wait(futures.values(), return_when=FIRST_EXCEPTION)
            for future in futures.values():
                future.cancel()
        for future in futures.values():
            if not future.cancelled() and (error := future.exception()) is not None:
                raise error
        return {key: future.result() for key, future in futures.items()}

    @property
    def _most(self) -> float:
        """The most re-runs of a round."""
        return self.session.settings.memory.most_reruns(
            self.session.ledger.budget, self.session.price
        )

    def _room(self) -> float:
        """Return how many re-runs this round may still make, by what they took so far."""
        ledger = self.session.ledger
        room = self._most - len(self._reruns)
        if (cap := ledger.budget.attempts) is not None:
            room = min(room, cap - ledger.attempts - self.judging)
        return room

    def _key(self, agent: Scaffold, task: Task, repeat: int, told: LessonRetrieval) -> str:
        try:
            return key_of(self.session, agent, task, repeat, told)
        except Fault:
            return ""

    def _say_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.session.say("note", {"text": text})

    def _nearest(self, experience: Experience) -> Experience | None:
        """Return for a failure the nearest success, for a success the last failure at the same
        task. What only says of itself how it went is no contrast, however many there are of it."""
        if experience.grade.passed:
            where = {"domain": experience.domain, "task": experience.task, "passed": False}
            rows = reversed(list(self.session.memory.facts(where, "optimizer")))
            failed = (self._train_experience(row["id"]) for row in rows)
            return next((e for e in failed if e is not None and not e.claims), None)
        for k in (4, 64):
            found = self._recall(experience.prompt[:1000], k, outcome="passed")
            others = [e for e in found if e.id != experience.id]
            if trusted := [e for e in others if not e.claims]:
                return min(trusted, key=lambda e: e.trust != "own")
            if not others:
                break
        return None

    def _recall(self, text: str, k: int, **where: Any) -> list[Experience]:
        """Train experiences of this domain that are nearest to a text; none where there is nothing
        to search with."""
        try:
            hits = self.session.recall(
                text, k, {"domain": self.session.domain.name, "grain": "experience", **where}
            )
        except Missing:
            return []
        return [e for h in hits if (e := self._train_experience(h.experience)) is not None]


class _Rerun(NamedTuple):
    """An attempt with just these offers. known: it does not count among what a round may make, for
    an earlier round made it, or it cannot be."""

    key: str
    agent: Scaffold
    task: Task
    repeat: int
    offers: LessonRetrieval
    known: bool


class _Made(NamedTuple):
    """A policy, and the time that it takes for itself."""

    policy: MemoryPolicy
    time: OwnTime

    def ask(self, method: str, *given: Any) -> Any:
        """Return what a method returns; one of somebody else's that hangs is given up. Raises
        BadInput (`hangs`)."""
        call = getattr(self.policy, method)
        if not (patience := patience_of(self.policy)):
            return call(*given)
        return self.time.run(call, f"{type(self.policy).__name__}.{method}", patience, *given)


def _no_lesson(id: Any, lesson: Any) -> str:
    """Return what is wrong with a lesson that a policy left under an id; '' for nothing."""
    if not isinstance(lesson, Lesson):
        return f"what is no Lesson: {lesson!r}"[:200]
    if lesson.id != id:
        return f"a lesson whose id is {lesson.id!r}"
    named = (
        id.isprintable() and "/" not in id and id[:1] not in ("", ".") and len(id.encode()) <= 200
    )
    return "" if named else "a lesson whose id cannot name a file"


def _are_propensities(drawn: Any) -> bool:
    return isinstance(drawn, Mapping) and all(
        isinstance(p, float) and 0 < p < 1 for p in drawn.values()
    )


def _stored(file: Path) -> dict[str, Lesson]:
    """Return what a round offered, by id; the file's name is the digest of its text. Raises
    BadInput (damaged)."""
    try:
        text = file.read_text("utf-8")
        if digest(text) == file.stem:
            return {x["id"]: Lesson.model_validate(x) for x in json.loads(text)}
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    raise BadInput(
        f"{short(file)} is not as it was written: what its round offered is not known",
        fix=(
            "put it back from a copy, or build again with another --out; what was attempted is in"
            " memory"
        ),
        code="damaged",
    )


def _lacking(agent: Scaffold, lessons: Sequence[Lesson]) -> Scaffold:
    """Return the agent without the files of these lessons; itself when it carries none of them."""
    paths = {f"memory/{x.id}.md" for x in lessons} & agent.files.keys()
    return (
        agent.model_copy(update={"files": {p: t for p, t in agent.files.items() if p not in paths}})
        if paths
        else agent
    )


def _carrying(experience: Experience, ids: Sequence[str]) -> Experience:
    """Return the experience with the workspace's lessons that its agent carries among those it was
    offered."""
    steps = experience.trace.steps
    if not ids or not steps:
        return experience
    first = steps[0].model_copy(update={"offered": tuple(dict.fromkeys((*steps[0].offered, *ids)))})
    return experience.model_copy(
        update={"trace": experience.trace.model_copy(update={"steps": (first, *steps[1:])})}
    )


def _nobody(messages: Sequence[Message], **params: Any) -> Reply:
    raise AssertionError("offering asks no model")


def _any_re_runs(groups: Sequence[RerunGroup]) -> bool:
    return True


def _nothing(lessons: Sequence[Lesson], experience: Experience, repeat: int = 0) -> float | None:
    raise AssertionError("offering attempts nothing")


def _checked(policy: MemoryPolicy, ask: Retriever | None = None) -> Retriever:
    """Check that what a policy offers, or answers to `ask`, are lessons."""
    ask = ask or policy.offer

    def offer(query: str, budget: int) -> Sequence[Lesson]:
        found = ask(query, budget)
        expect(all_are(found, Lesson), policy, "offer", found)
        return found

    return offer

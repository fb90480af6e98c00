"""`mistakes`: a batch's failures sorted by subject, one guidance a subject, kept only if the same
batch improves.

After Mistake Notebook Learning as the issue states it: failures are clustered, a guidance is
written for each cluster, and the notebook takes them only when the batch they came from scores
higher with them. Inferred: one guidance is tried at a time, on the failures of its own cluster and
as many successes of the batch (a guidance must not break what worked); a subject that is there
already (cosine 0.90) has its guidance revised; nothing kept is ever tested again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recreate.agents.guards.untrusted import mark_text
from recreate.agents.template import object_of
from recreate.agents.trajectory import tell
from recreate.api.types import Change, Experience, Gain, Lesson, digest, least_trust
from recreate.lessons.context import STRING, AskingPolicy, learnable, new_lesson, rows, text
from recreate.lessons.promotion import free, measured_more
from recreate.lessons.similarity import fitting, tell_lesson
from recreate.plugins.policies import PROMPTS

SUBJECTS = 4
SAME = 0.90
OFFERED = 6
_NUMBERS = {"type": "array", "items": {"type": "integer"}}
SORT = object_of(subjects={"type": "array", "items": object_of(subject=STRING, failures=_NUMBERS)})
GUIDE = object_of(title=STRING, body=STRING)


class Mistakes(AskingPolicy):
    """A notebook of mistakes as a memory policy."""

    prompts = PROMPTS

    def offer(self, query: str, budget: int) -> Sequence[Lesson]:
        """The guidances that the query calls for, best first."""
        active = [x for x in self.lessons.values() if x.status == "active"]
        return fitting(self.similarity.ranked(query, active)[:OFFERED], budget)

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        batch = learnable(experiences)
        self.observed += len(batch)
        self.count_offered(batch)
        changes: list[Change] = []
        passed = [e for e in batch if e.grade.passed]
        for trusted in (True, False):  # else a subject of ours could have the words of others
            failed = [e for e in batch if not e.grade.passed and e.trusted is trusted]
            for subject, members in self.subjects(failed):
                changes += self.guide(subject, members, passed)
        self.note_malformed()
        return changes

    def subjects(self, failed: Sequence[Experience]) -> list[tuple[str, list[Experience]]]:
        """The failures by subject; one that a model forgot or named twice belongs to the first that
        names it."""
        if not failed:
            return []
        found = self.ask("subjects", SORT, failures=[tell(e, 1200) for e in failed], most=SUBJECTS)
        left = dict(enumerate(failed, 1))
        by_subject = []
        for row in rows(found, "subjects", SUBJECTS):
            numbers = [n for n in rows(row, "failures") if isinstance(n, int)]
            members = [left.pop(n) for n in dict.fromkeys(numbers) if n in left]
            if members and (subject := text(row, "subject", 120)):
                by_subject.append((subject, members))
        return by_subject

    def guide(
        self, subject: str, failed: Sequence[Experience], passed: Sequence[Experience]
    ) -> Iterator[Change]:
        """One guidance for one subject; kept if the same attempts score higher with it."""
        if any(set(lesson.born_of) >= {e.id for e in failed} for lesson in self.lessons.values()):
            return
        before = self.find_guidance(subject)
        found = self.ask(
            "guide",
            GUIDE,
            subject=mark_text(least_trust(failed), subject),
            failures=[tell(e, 1600) for e in failed],
            before=tell_lesson(before) if before else "",
        )
        title = text(found, "title", 120)
        body = text(found, "body", 1500)
        if not title or not body:
            return
        guidance = new_lesson(self.context.domain, title, body, failed)
        same = self.similarity.nearest(
            guidance, list(self.lessons.values()), SAME, len(self.lessons)
        )
        if any(x.status == "vetoed" or x.frozen for x in same):
            return
        before = before or next((x for x in same if x.status == "active"), None)
        gains = list(self.gains(guidance, [*failed, *passed[: len(failed)]], before))
        total = sum(gain.diff for gain in gains)
        why = f"{total:+.2f} on {len(gains)} attempts of its batch"
        status, domains = ("active", (self.context.domain,)) if total > 0 else ("forgotten", ())
        guidance = self.put_lesson(
            measured_more(guidance, gains), seen=self.observed, domains=domains, status=status
        )
        yield Change(kind="born", lesson=guidance.id, why=f"of {len(failed)} failures: {subject}")
        if total <= 0:
            yield Change(kind="forgotten", lesson=guidance.id, why=why)
            return
        yield Change(kind="promoted", lesson=guidance.id, why=why)
        if before is not None and before.status == "active" and before.id != guidance.id:
            self.put_lesson(before, status="merged", merged_into=guidance.id)
            self.put_lesson(guidance, merged=(before.id,))
            yield Change(kind="revised", lesson=before.id, why=f"{guidance.id} takes its place")

    def find_guidance(self, subject: str) -> Lesson | None:
        """The guidance on a subject that is near enough."""
        active = [x for x in self.lessons.values() if x.status == "active" and free(x)]
        near = zip(self.similarity.cosines(subject, active), active, strict=True)
        found = [(c, x.id, x) for c, x in near if c >= SAME]
        return max(found)[2] if found else None

    def gains(
        self, guidance: Lesson, batch: Sequence[Experience], before: Lesson | None
    ) -> Iterator[Gain]:
        """What the batch scores with the notebook and this guidance, less what it scored."""
        for e in batch:
            notebook = [x for x in self.offered_to(e) if before is None or x.id != before.id]
            # a re-run of its own, not the attempt itself
            repeat = int(digest([guidance.id, e.id], 4), 16)
            score = self.context.rerun([*notebook, guidance], e, repeat)
            if score is not None:
                diff = score - e.grade.score
                yield Gain(experience=e.id, group=e.group, diff=diff, repeat=repeat, task=e.task)

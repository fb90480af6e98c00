"""Where a person decides: a candidate that the gate would keep is offered, and what was said of it
is written down.

The journal has two lines for each offer: `candidate` (its number and the revision) and `review`
(the decision). The candidate's files lie on `review/<digest>` of the history until it is kept or
dropped, so that a kill at any point loses neither a judged candidate nor a decision, and nobody is
asked twice.
"""

from __future__ import annotations

from collections.abc import Callable

from recreate.agents.history import History
from recreate.agents.lint import check
from recreate.agents.scaffold import UNCOUNTED, Scaffold
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.api.theirs import boundary, expect
from recreate.api.types import Edit, Origin, Review, Revision
from recreate.runs.session import Session
from recreate.storage.redact import redact

Reviewer = Callable[[Revision, Scaffold, Scaffold], Review | None]
"""(the revision, its parent, the candidate) -> a decision; None leaves the candidate waiting and
ends the session."""


class ReviewDesk:
    """The candidates of one run that were offered, and what was said of them."""

    def __init__(self, session: Session, history: History) -> None:
        self.session = session
        self.history = history

    def offer(self, last: int, revision: Revision, child: Scaffold) -> int:
        """Lay a judged candidate before the person, and return the number of the offer. last: the
        one before it.

        Doing it again changes nothing, also when nobody remembers how many offers there were.
        """
        self.lay(child, revision.parent)
        made: dict[int, str] = {
            r["offer"]: r["revision"]["id"] for r in self.session.journal.records("candidate")
        }
        known = [number for number, id in made.items() if number > last and id == revision.id]
        if known:
            return min(known)
        number = max(made, default=0) + 1
        self.session.journal.add(
            "candidate", offer=number, revision=revision.model_dump(mode="json")
        )
        return number

    def lay(self, child: Scaffold, parent: str) -> None:
        self.history.commit(child, parent, False, "Offered for review", side="review")

    def read_offer(self, number: int) -> Revision:
        """Return the candidate of an offer."""
        found = next(r for r in self.session.journal.records("candidate") if r["offer"] == number)
        return Revision.model_validate(found["revision"])

    def answer(self, number: int, reviewer: Reviewer | None) -> JsonDict | None:
        """Return the decision on an offer as the journal has it, else the reviewer's, written down;
        None: it waits.

        {decision, reason, edited}; edited is the digest of what the person made of the candidate.
        What cannot be used is told, and asked again; the same answer a second time is an error.
        """
        for record in self.session.journal.records("review"):
            if record["offer"] == number:
                return {key: record[key] for key in ("decision", "reason", "edited")}
        revision = self.read_offer(number)
        parent = self.history.read(revision.parent)
        child = self.history.read(revision.id)
        before = None
        while True:
            said = self.ask(reviewer, revision, parent, child) if reviewer else None
            if said is None:
                return None
            # a new one: a copy would bring the candidate's digest along
            edited = (
                Scaffold(name=child.name, files=dict(said.files or {}))
                if said.decision == "edit"
                else None
            )
            faults = self.unusable(said, parent, child, edited)
            if not faults:
                break
            told = "; ".join(faults)
            if said == before:
                raise BadInput(told, fix="recreate review RUN shows what waits", code="bad-review")
            self.session.say("note", {"text": f"that cannot be used: {told}"})
            before = said
        if edited:
            self.lay(edited, revision.parent)
        answer = {
            "decision": said.decision,
            "reason": redact(said.reason),
            "edited": edited.digest if edited else "",
        }
        self.session.journal.add("review", offer=number, revision=revision.id, **answer)
        return answer

    def ask(
        self, reviewer: Reviewer, revision: Revision, parent: Scaffold, child: Scaffold
    ) -> Review | None:
        self.session.say("review", {"revision": revision})
        try:
            with self.session.ledger.unclocked():
                with boundary(anything=True):
                    said = reviewer(revision, parent, child)
                expect(isinstance(said, Review | None), reviewer, "review", said)
                return said
        finally:
            self.session.say("reviewed", {"revision": revision})

    def unusable(
        self, said: Review, parent: Scaffold, child: Scaffold, edited: Scaffold | None
    ) -> list[str]:
        """Return why a decision cannot stand. Protected files bind the optimizer, not the
        person."""
        if said.decision == "reject" and not said.reason.strip():
            return ["a rejection needs a reason: the optimizer reads it"]
        if edited is None:
            return []
        if edited.digest == child.digest:
            return ["nothing was edited: the files are the candidate's own"]
        if edited.digest == parent.digest:
            return ["these are the files of the parent: reject the candidate instead"]
        if any(
            r["revision"]["id"] == edited.digest for r in self.session.journal.records("revision")
        ):
            return [f"these very files were judged before, as revision {edited.digest}"]
        written = {
            p: text
            for p, text in edited.files.items()
            if child.files.get(p) != text and p not in UNCOUNTED
        }
        edits = [Edit(path=p, old=child.files.get(p, ""), new=text) for p, text in written.items()]
        if named := self.session.scanner.leaks(edits, child):
            return named
        return faults_of(edited) or [
            f"{f.file}:{f.line}: {f.message}" for f in check(edited, self.session.backend)
        ]


def faults_of(scaffold: Scaffold) -> list[str]:
    """Return what is wrong with files that a person wrote, as `file:line: message`, without
    starting a tool."""
    return [f"{f.file}:{f.line}: {f.message}" for f in check(scaffold)]


def human_edits(
    parent: Scaffold, offered: Revision, child: Scaffold, edited: Scaffold, reason: str
) -> list[Edit]:
    """Return the edits from parent to edited: the candidate's own for files left as it had them,
    `human` ones elsewhere."""
    same = {p for p in {*child.files, *edited.files} if child.files.get(p) == edited.files.get(p)}
    edits = [e for e in offered.edits if e.path in same]
    own = [e for e in list_changes(parent, edited, "human") if e.path not in same]
    return [*edits, *(e.model_copy(update={"reason": reason}) for e in own)]


def list_changes(before: Scaffold, after: Scaffold, origin: Origin) -> list[Edit]:
    """Return the edits that make one agent's files another's."""
    files = before.files, after.files
    paths = sorted({*before.files, *after.files} - set(UNCOUNTED))
    made = [
        change(p, *(f.get(p) for f in files)) for p in paths if files[0].get(p) != files[1].get(p)
    ]
    return [edit.model_copy(update={"origin": origin}) for edit in made]


def change(path: str, old: str | None, new: str | None) -> Edit:
    """Return one edit that makes a file's text another: the lines that differ, and as many around
    as make them unique."""
    if old is None or new is None:
        return Edit(path=path, old=old or "", new=new or "")
    before = old.splitlines(keepends=True)
    after = new.splitlines(keepends=True)
    most = min(len(before), len(after))
    head = next((n for n in range(most) if before[n] != after[n]), most)
    tail = next((n for n in range(most - head) if before[-1 - n] != after[-1 - n]), most - head)
    if head == len(before):
        return Edit(path=path, new="".join(after[head:]))
    while True:
        text = "".join(before[head : len(before) - tail])
        if (text and old.find(text) == old.rfind(text)) or not (head or tail):
            return Edit(path=path, old=text, new="".join(after[head : len(after) - tail]))
        head = max(0, head - 1)
        tail = max(0, tail - 1)

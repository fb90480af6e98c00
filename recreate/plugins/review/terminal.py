"""The person at the terminal: a candidate is shown, a decision is read, its files are laid out to
be edited."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.types import Review, Revision
from recreate.cli.terminal import painted, prompt, say
from recreate.storage.files import write

if TYPE_CHECKING:
    from recreate.agents.scaffold import Scaffold
    from recreate.builder.review import Reviewer
    from recreate.runs.session import Session

STEP_CHARS = 700
"""How much of a cited step is shown."""


def decided(id: str, decision: Review) -> Reviewer:
    """Return a reviewer that decides so on this revision, once."""
    left = [decision]

    def review(revision: Revision, parent: Scaffold, child: Scaffold) -> Review | None:
        return left.pop() if left and revision.id == id else None

    return review


def at_terminal(session: Session, first: Reviewer | None = None) -> Reviewer | None:
    """Return who is asked: `first`, then the person at the terminal. None when there is neither."""
    person = None
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        person = Terminal(session.folder, session.workspace, session.calls.stop.is_set)
    if first is None or person is None:
        return first or person
    return lambda *offer: first(*offer) or person(*offer)


class Terminal:
    """Asks on the terminal. Words go to stderr: stdout is for the result."""

    def __init__(
        self, folder: Path, where: Path, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self.folder = folder
        self.where = where
        self.stopped = stopped

    def __call__(self, revision: Revision, parent: Scaffold, child: Scaffold) -> Review | None:
        say(describe(revision, parent, child, self.folder, self.where, sys.stderr))
        while True:
            answer = self.ask("\n[a]ccept, [e]dit, [r]eject WHY, [l]ater? ")
            word, _, rest = (answer or "later").strip().partition(" ")
            match word.lower():
                case "a" | "accept":
                    return Review(decision="accept")
                case "r" | "reject":
                    reason = (
                        rest.strip() or (self.ask("why? the optimizer reads it: ") or "").strip()
                    )
                    if reason:
                        return Review(decision="reject", reason=reason)
                case "e" | "edit":
                    lay(self.folder, child)
                    self.edit()
                    try:
                        return read(self.folder, child)
                    except BadInput as e:
                        say(f"that cannot be used: {e.message}")
                case "l" | "later":
                    return None

    def edit(self) -> None:
        place = self.folder / "review"
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
        if editor:
            try:
                with _at_ctrl_c(lambda *_: None):  # Ctrl-C means something else in an editor
                    subprocess.run([*shlex.split(editor), str(place)], check=False)
                return
            except (OSError, ValueError) as e:
                say(f"{editor} cannot be started: {e}")
        self.ask(f"the candidate's files lie in {here(place)}; edit them there, then press Enter ")

    def ask(self, text: str) -> str | None:
        """Read a line from the terminal; None at its end (Ctrl-D). Ctrl-C interrupts at once:
        nothing is in flight."""
        from recreate.api.errors import Interrupted

        # taken over before anything is printed: who answers the prompt with Ctrl-C must not be too
        # quick for us
        with _at_ctrl_c(signal.default_int_handler):
            try:
                if self.stopped():
                    raise KeyboardInterrupt
                prompt(text)
                # A Ctrl-C that arrives just before a read is heard after it: it is looked for twice
                # a second.
                while sys.stdin.isatty() and not select.select([sys.stdin], [], [], 0.5)[0]:
                    pass
                line = sys.stdin.readline()
            except KeyboardInterrupt:
                say()
                raise Interrupted("interrupted") from None
        return line if line else None


@contextmanager
def _at_ctrl_c(handler: Callable[..., Any]) -> Iterator[None]:
    old = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


# ------------------------------------------------------------------------------------------------
# RUN/review/


def lay(folder: Path, child: Scaffold) -> bool:
    """Lay a candidate's files in RUN/review; False when they lie there already, edited or not."""
    from recreate.agents import scaffold as scaffolds

    place = folder / "review"
    mark = place / ".candidate"  # hidden, so it is no part of the scaffold
    if mark.is_file() and mark.read_text("utf-8") == child.digest:
        return False
    scaffolds.save(child, place)
    write(mark, child.digest)
    return True


def read(folder: Path, child: Scaffold) -> Review:
    """Return the files of RUN/review as a decision. Raises BadInput with what is wrong with
    them."""
    from recreate.agents import scaffold as scaffolds
    from recreate.builder.review import faults_of

    place = folder / "review"
    edited = scaffolds.load(place, parse=False)
    if edited.digest == child.digest:
        raise BadInput(
            f"the files in {here(place)} are the candidate's own: nothing was edited",
            fix="edit them first, or --accept it as it is",
            code="not-edited",
        )
    if faults := faults_of(edited):
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise BadInput(
            f"{here(place)}/{faults[0]}{more}",
            fix=f"mend it; recreate scaffold check {here(place)} shows all faults",
            code="bad-scaffold",
        )
    return Review(decision="edit", files=edited.files)


# -------------------------------------------------------------------------------------------------
# what is shown


def describe(
    revision: Revision, parent: Scaffold, child: Scaffold, folder: Path, where: Path, stream: TextIO
) -> str:
    """Return a candidate for a person: verdict, each edit's reason with the steps it cites, the
    diff."""
    from recreate.agents.scaffold import diff
    from recreate.agents.trajectory import tell_step
    from recreate.memory.store import ExperienceStore
    from recreate.runs.attempts import read_experience
    from recreate.viewer.facts import verdict_text

    lines = [
        f"candidate {revision.id}, round {revision.round + 1}, would be kept",
        f"  {verdict_text(revision.verdict)}",
    ]
    for edit in revision.edits:
        lines += ["", f"{edit.path} ({edit.origin}): {edit.reason or 'no reason given'}"]
        for cited in edit.evidence:
            id = cited.experience
            experience = read_experience(folder / "attempts" / id) or ExperienceStore(where).get(id)
            lines.append(
                f"  {id}" + (f", {experience.task}" if experience else " is not here any more")
            )
            if experience and cited.step < len(experience.trace.steps):
                lines += [
                    "    " + row
                    for row in tell_step(experience.trace.steps[cited.step], STEP_CHARS).split("\n")
                ]
    colours = {"+": "32", "-": "31", "@": "36"}
    for row in ["", *diff(parent, child).rstrip("\n").split("\n")]:
        code = colours.get(row[:1])
        lines.append(painted(row, code, stream) if code else row)
    return "\n".join(lines)

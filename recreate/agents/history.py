"""The lineage of a build: scaffold.git in the run folder, a bare git repository that any git client
can read.

Each revision is a commit. Kept ones follow each other on `main`; each dropped one is a branch
`dropped/<digest>` off its parent. `review/<digest>` is a candidate while a person is asked about
it, `human/<digest>` what a person wrote in the agent's folder, saved before another revision took
its place. Author and dates are fixed, so the same files, parent and message give the same commit
id, and committing again after a kill changes nothing. The user's git settings and hooks play no
part.

A message is for people first (outcome, reasons, evidence, score with its interval) and ends in a
paragraph of trailers for programs: Recreate-Name, Recreate-Digest, Recreate-Kept and, from
`describe`, Recreate-Revision.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput, Fault
from recreate.api.types import Record, Revision
from recreate.storage.files import make_folders, umask_in

WHO = "recreate <recreate@localhost>"
WHEN = "946684800 +0000"
"""Every commit's date (2000-01-01): a clock would make two equal builds differ."""

Side = Literal["dropped", "review", "human"]

_NEW = "refs/recreate/new"
_TRAILER = re.compile(r"(Recreate-[A-Za-z]+): (.*)")


class Commit(Record):
    """One commit of the lineage. `revision` has its edits without their texts: those are in the
    commit itself."""

    sha: str
    parent: str
    branch: str
    kept: bool
    digest: str
    name: str
    subject: str
    message: str
    revision: Revision | None = None


class History:
    """The repository at `path`; made by the first commit."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._mine = False

    def commit(
        self,
        scaffold: Scaffold,
        parent: str | None,
        kept: bool,
        message: str,
        side: Side = "dropped",
    ) -> str:
        """Record a revision and return its commit id; doing it again returns the same id and
        changes nothing.

        parent: a commit id, branch or scaffold digest in here, None for the first. side: the kind
        of side branch for what is not kept. A candidate that is kept or dropped is no longer on
        `review/`.
        """
        self._open()
        above = self._resolve(parent) if parent else ""
        trailers = {
            "Recreate-Name": " ".join(scaffold.name.split()),
            "Recreate-Digest": scaffold.digest,
            "Recreate-Kept": "yes" if kept else "no",
        }
        sha = self._import(scaffold, above, _with(message, trailers))
        branches = self._branches()
        waits = f"review/{scaffold.digest}"
        done = [f"delete {_NEW}"]
        if waits in branches and (kept or side == "dropped"):
            done.append(f"delete refs/heads/{waits}")
        if kept:
            main = branches.get("main", "")
            if main and self._is_ancestor(sha, main):
                self._update(done)
            else:
                self._update([f"update refs/heads/main {sha}", *done])
            return sha
        name = f"{side}/{scaffold.digest}"
        count = 1
        while branches.get(name, sha) != sha:
            count += 1
            name = f"{side}/{scaffold.digest}-{count}"
        self._update([f"update refs/heads/{name} {sha}", *done])
        return sha

    def read(self, name: str) -> Scaffold:
        """Return the scaffold at a branch, a commit id or a scaffold digest. Raises BadInput when
        there is none."""
        sha = self._resolve(name)
        _, trailers = _split(self._git("log", "-1", "--format=%B", sha).decode("utf-8", "replace"))
        with tarfile.open(fileobj=io.BytesIO(self._git("archive", "--format=tar", sha))) as tar:
            members = {m.name: tar.extractfile(m) for m in tar if m.isfile()}
            files = {path: file.read().decode() for path, file in members.items() if file}
        return Scaffold(name=trailers.get("Recreate-Name", "scaffold"), files=files)

    def log(self) -> list[Commit]:
        """Return all revisions, children before their parents; [] when nothing was committed."""
        if not (self.path / "HEAD").exists() or not (branches := self._branches()):
            return []
        at = {sha: name for name, sha in sorted(branches.items(), reverse=True)}
        form = "--format=%H%x1f%P%x1f%B"
        text = self._git("log", "--branches", "--topo-order", "-z", form).decode("utf-8", "replace")
        rows = (row.split("\x1f", 2) for row in text.split("\0") if row)
        return [_entry(sha, parent, at.get(sha, "main"), words) for sha, parent, words in rows]

    # ------------------------------------------------------------------------------------------
    # plumbing

    def _open(self) -> None:
        if not (self.path / "HEAD").exists():
            make_folders(self.path.parent)
            how = ("--quiet", "--bare", "--template=", "--object-format=sha1", "-b", "main")
            self._git("init", *how, str(self.path))
        elif not self._mine:
            # one build at a time writes here, so a lock that is there now was left by one that was
            # killed
            for lock in [*self.path.glob("*.lock"), *(self.path / "refs").rglob("*.lock")]:
                lock.unlink(missing_ok=True)
        self._mine = True

    def _import(self, scaffold: Scaffold, parent: str, message: str) -> str:
        stream = [
            f"feature done\ncommit {_NEW}\nmark :1\n".encode(),
            f"author {WHO} {WHEN}\ncommitter {WHO} {WHEN}\n".encode(),
        ]
        stream.append(_data(message.encode("utf-8", "replace")))
        if parent:
            stream.append(f"from {parent}\ndeleteall\n".encode())
        for path, text in sorted(scaffold.files.items()):
            mode = "100755" if path.startswith("tools/") else "100644"
            quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            stream.append(f'M {mode} inline "{quoted}"\n'.encode())
            stream.append(_data(text.encode()))
        stream.append(b"get-mark :1\ndone\n")
        note = self._git("fast-import", "--quiet", "--force", stdin=b"".join(stream))
        return note.decode().strip()

    def _update(self, commands: Sequence[str]) -> None:
        self._git("update-ref", "--stdin", stdin="".join(f"{line}\n" for line in commands).encode())

    def _branches(self) -> dict[str, str]:
        form = "--format=%(objectname) %(refname:lstrip=2)"
        rows = self._git("for-each-ref", form, "refs/heads").decode().splitlines()
        return {name: sha for sha, _, name in (row.partition(" ") for row in rows)}

    def _is_ancestor(self, sha: str, of: str) -> bool:
        return sha in self._git("rev-list", of).decode().split()

    def _resolve(self, name: str) -> str:
        # one digest may stand on several branches; a kept one is what others follow
        entries = sorted(self.log(), key=lambda e: not e.kept)
        for entry in entries:
            if name in (entry.digest, entry.sha, entry.branch):  # main: its newest comes first
                return entry.sha
        near = {e.sha for e in entries if name in (e.sha[: len(name)], e.digest[: len(name)])}
        near = near if len(name) >= 4 else set()
        if len(near) == 1:
            return near.pop()
        there = ", ".join(f"{e.digest} ({e.branch})" for e in entries[:8])
        raise BadInput(
            f"{name!r} {'names several revisions' if near else 'is no revision'} in {self.path}",
            fix=f"there are: {there}" if there else "nothing was recorded there yet",
            code="no-revision",
        )

    def _git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        git = shutil.which("git")
        if git is None:
            raise BadInput(
                "git is not installed", fix="apt install git (or your system's way)", code="no-git"
            )
        environment = {k: v for k, v in os.environ.items() if k in ("PATH", "TMPDIR")} | {
            "LC_ALL": "C",
            "HOME": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
        }
        place = [] if arguments[0] == "init" else [f"--git-dir={self.path}"]
        settings = (f"core.hooksPath={os.devnull}", "gc.auto=0", "core.logAllRefUpdates=false")
        command = [git, *place, *(word for setting in settings for word in ("-c", setting))]
        done = subprocess.run(
            [*command, *arguments],
            input=stdin,
            capture_output=True,
            env=environment,
            umask=umask_in(self.path.parent),
            check=False,
        )
        if done.returncode:
            if arguments[0] == "init" and not self.path.is_dir() and os.path.lexists(self.path):
                raise BadInput(
                    f"{self.path} is no folder, and must be one",
                    fix="move it away, and put back what was there",
                )
            words = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
            raise Fault(
                f"git {arguments[0]} failed in {self.path}: {words or done.returncode}",
                fix=(
                    "check that the disk has space and the folder can be written, then resume"
                    " the run"
                ),
                code="git-failed",
            )
        return done.stdout


def describe(revision: Revision) -> str:
    """Return a commit message: outcome, reasons with their evidence, the score with its interval,
    and the trailer."""
    verdict = revision.verdict
    reasons = [edit.reason.strip() for edit in revision.edits if edit.reason.strip()]
    what = " ".join(reasons[0].split()) if reasons else f"{len(revision.edits)} edits"
    word = "for now" if verdict.ahead else verdict.verdict
    subject = f"{'Kept' if revision.kept else 'Dropped'} ({word}): {what}"
    lines = [subject if len(subject) <= 72 else subject[:69].rstrip() + "...", ""]
    for edit in revision.edits:
        lines.append(
            f"- {edit.path} ({edit.origin}): {' '.join(edit.reason.split()) or 'no reason given'}"
        )
        if edit.evidence:
            lines.append(
                "  seen in " + ", ".join(f"{e.experience} step {e.step}" for e in edit.evidence)
            )
    note = [f"Review: {' '.join(revision.review.split())}"] if revision.review else []
    lines += [
        "",
        score_line(revision),
        *note,
        *(f"Fault: {' '.join(fault.split())}" for fault in revision.faults),
        "",
    ]
    short = [edit.model_copy(update={"old": "", "new": ""}) for edit in revision.edits]
    lines.append(
        "Recreate-Revision:"
        f" {revision.model_copy(update={'edits': tuple(short)}).model_dump_json()}"
    )
    return "\n".join(lines)


def score_line(revision: Revision) -> str:
    """Return one line of prose: before and after, the difference with its interval, on what, and
    why so decided."""
    v = revision.verdict
    if (
        v.before is None
        or v.after is None
        or v.diff is None
        or v.lo is None
        or v.hi is None
        or v.p is None
    ):
        return f"Score: not measured; {v.verdict}" + (f", {v.reason}" if v.reason else "")
    if v.step:
        return f"Score: {v.before:.3f} -> {v.after:.3f} on {v.tasks} tasks; {v.reason}"
    level = "at 90 %" if v.alpha is None else f"at every time, {v.alpha:.2g} an end"
    return (
        f"Score: {v.before:.3f} -> {v.after:.3f}, difference {v.diff:+.3f} [{v.lo:+.3f},"
        f" {v.hi:+.3f}] {level}, p {v.p:.3f}, {v.tasks} tasks x {v.repeats}; {v.verdict}"
        + (f", {v.reason}" if v.reason else "")
    )


def _data(raw: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(raw), raw)


def _with(message: str, trailers: dict[str, str]) -> str:
    body, given = _split(message.replace("\0", "").replace("\x1f", ""))
    lines = [f"{key}: {value}" for key, value in {**given, **trailers}.items()]
    return f"{body.strip() or 'A revision'}\n\n" + "\n".join(lines) + "\n"


def _split(message: str) -> tuple[str, dict[str, str]]:
    """Return (prose, trailers): only a last paragraph made of nothing but trailers counts; prose
    may quote them."""
    body, _, last = message.strip().rpartition("\n\n")
    found = [_TRAILER.fullmatch(line) for line in last.split("\n")]
    if not all(found):
        return message.strip(), {}
    return body, {m[1]: m[2] for m in found if m}


def _entry(sha: str, parent: str, branch: str, message: str) -> Commit:
    body, trailers = _split(message)
    revision = None
    if "Recreate-Revision" in trailers:
        try:
            revision = Revision.model_validate_json(trailers["Recreate-Revision"])
        except ValidationError:
            revision = None  # written by another version; the prose still says it
    return Commit(
        sha=sha,
        parent=parent,
        branch=branch,
        kept=trailers.get("Recreate-Kept") == "yes",
        digest=trailers.get("Recreate-Digest", ""),
        name=trailers.get("Recreate-Name", ""),
        subject=body.split("\n")[0],
        message=body,
        revision=revision,
    )

"""An agent beside what it was in another commit: the same tasks, repeats and model, and the gate's
word on the two.

Nothing is built. Only the scaffold's folder is taken from the commit; domain, lessons and program
are those of now. What an earlier measuring of this workspace paid for is read back by the attempt's
key.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from recreate.agents.scaffold import Scaffold, load
from recreate.api.errors import BadInput
from recreate.api.paths import short
from recreate.api.shapes import JsonDict
from recreate.api.types import Record, Split, Verdict
from recreate.builder.measure import measure
from recreate.runs.gate import judge
from recreate.runs.results import BenchResult
from recreate.runs.session import Session
from recreate.viewer.html import fill


class Pair(Record):
    """A scaffold as it stood in the base, None where it was not there, and as it is in the working
    tree."""

    path: str
    base: Scaffold | None
    head: Scaffold

    @property
    def has_changed(self) -> bool:
        """Whether an attempt could come out otherwise; README.md says nothing to an agent."""
        return self.base is not None and self.base.digest != self.head.digest


class Judged(Record):
    """Both sides of a pair, measured, and the gate's verdict on the head."""

    pair: Pair
    base: BenchResult
    head: BenchResult
    verdict: Verdict

    @property
    def regression(self) -> bool:
        """Significantly worse: the gate says `not-better` and the whole interval lies below 0."""
        return (
            self.verdict.verdict == "not-better"
            and self.verdict.hi is not None
            and self.verdict.hi < 0
        )

    def row(self) -> JsonDict:
        """What `--json` says of the difference."""
        return {
            "scaffold": self.pair.path,
            **self.verdict.model_dump(mode="json", exclude={"schema_"}),
        }


def commit_of(ref: str, folder: Path) -> str:
    """The commit that a ref names in the repository of a folder; a branch that is not there is
    looked for at origin.

    Raises BadInput (`no-base`).
    """
    for name in (ref, f"origin/{ref}"):
        if not name.startswith("-"):
            code, out = _git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
            if code == 0:
                return out.decode().strip()
    raise BadInput(
        f"there is no commit {ref!r} here to compare with",
        fix=f"git fetch origin {ref}, or --base HEAD~1; a workflow's checkout needs fetch-depth: 0",
        code="no-base",
    )


def pair_of(named: str, workspace: Path, commit: str) -> Pair:
    """A scaffold's folder, by path or name, now and in a commit. Raises BadInput: no such folder,
    not in git, or what stands in the commit is no scaffold."""
    folder = next(
        (p for p in (Path(named), workspace / "scaffolds" / named) if (p / "agent.toml").is_file()),
        None,
    )
    if folder is None:
        raise BadInput(
            f"there is no scaffold {named!r} in this working tree",
            fix="name its folder: --scaffold scaffolds/NAME",
            code="no-scaffold",
        )
    head = load(folder)
    top = top_of(folder)
    path = folder.resolve().relative_to(top).as_posix()
    files = _files(top, commit, path)
    if not files:
        return Pair(path=path, base=None, head=head)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) / folder.resolve().name
        for name, data in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        try:
            base = load(place)
        except BadInput as e:
            message = e.message.replace(str(place), f"{commit[:7]}:{path}")
            raise BadInput(message, fix="give another --base", code=e.code) from None
    return Pair(path=path, base=base, head=head)


def top_of(folder: Path) -> Path:
    """The top of the repository that a folder is in. Raises BadInput (`no-git`)."""
    code, out = _git(folder, "rev-parse", "--show-toplevel")
    if code:
        raise BadInput(
            f"{short(folder)} is in no git repository:"
            f" {out.decode('utf-8', 'replace').strip() or 'git failed'}",
            fix="run it in a clone that holds the scaffold",
            code="no-git",
        )
    return Path(out.decode().rstrip("\n"))


def compared(session: Session, pair: Pair, split: Split, most: int = 0) -> Judged:
    """Measure both sides, the base first. Raises OutOfBudget and what `measure` raises; what was
    paid is kept."""
    assert pair.base is not None
    limits = session.settings.limits.model_dump()
    sides = [scaffold.limited(limits) for scaffold in (pair.base, pair.head)]
    base, head = (measure(session, side, split, most, reuse=True) for side in sides)
    settings = session.settings
    verdict = judge(base.by_place, head.by_place, alpha=settings.gate.alpha, seed=settings.seed)
    return Judged(pair=pair, base=base, head=head, verdict=verdict)


def markdown(base: str, commit: str, judged: Sequence[Judged], still: Sequence[Pair]) -> str:
    """The table of a comment: a row for each scaffold."""
    spent = sum(cell.usd for row in judged for cell in (row.base, row.head))
    values = {"base": base, "commit": commit, "judged": judged, "still": still, "spent": spent}
    return fill("ci", Path(__file__).parent, **values).rstrip("\n")


def _files(top: Path, commit: str, path: str) -> dict[str, bytes]:
    """The files of a folder in a commit, by their place in it; hidden ones are none of a
    scaffold's."""
    code, listing = _git(
        top, "ls-tree", "-r", "-z", commit, "--", "." if path == "." else f"{path}/"
    )
    if code:
        raise BadInput(listing.decode("utf-8", "replace").strip(), fix="git fsck", code="no-base")
    found: dict[str, bytes] = {}
    for entry in listing.split(b"\0")[:-1]:
        about, _, raw = entry.partition(b"\t")
        mode, kind, sha = about.decode().split()
        name = raw.decode("utf-8", "surrogateescape").removeprefix(
            "" if path == "." else f"{path}/"
        )
        if any(part.startswith(".") or part == "__pycache__" for part in name.split("/")):
            continue
        if kind != "blob" or mode == "120000":
            raise BadInput(
                f"{commit[:7]}:{path}/{name} is a link",
                fix="give a --base where it is a file",
                code="bad-scaffold",
            )
        code, found[name] = _git(top, "cat-file", "blob", sha)
        if code:
            raise BadInput(
                f"{commit[:7]}:{path}/{name} cannot be read", fix="git fsck", code="no-base"
            )
    return found


def _git(folder: Path, *words: str) -> tuple[int, bytes]:
    """(exit code, what it printed, or why not)."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, timeout=60, check=False
        )
    except FileNotFoundError:
        raise BadInput("git is not installed", fix="apt install git", code="no-git") from None
    except subprocess.TimeoutExpired:
        return 124, b"git took over a minute"
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr

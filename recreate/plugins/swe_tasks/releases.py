"""Real bugs in number: what a later release mended, or a commit (commits.py), as recipes with their
texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.ports import SandboxBackend
from recreate.api.types import Split, digest
from recreate.domains.python_env import Environment
from recreate.plugins.swe import facts, sources
from recreate.plugins.swe.case import RealCase
from recreate.plugins.swe.facts import FEWEST_WORDS, MOST_WORDS, RELEASES, Bug, wrong_issue
from recreate.plugins.swe.sources import Say
from recreate.plugins.swe_tasks.change import Candidate, Setup, layout, prepare_change
from recreate.plugins.swe_tasks.commits import history
from recreate.plugins.swe_tasks.generate import MadeTasks, dealt_by_module, known_tasks, stoppable
from recreate.sandboxes import choose
from recreate.storage import files, packages

# --- two releases
# -----------------------------------------------------------------------------------------


def list_releases(name: str) -> dict[str, tuple[str, bool]]:
    """Return version -> (the day its sdist was uploaded, whether it was yanked) of the final
    releases that have an sdist, in order. The day is '' where the index does not say. Raises
    BadInput (unknown-package) and Fault."""
    from packaging.version import Version

    page, _ = packages.read_project(name)
    found = {}
    for link in page.packages:
        if (
            link.package_type == "sdist"
            and link.version
            and packages.is_same(link.version, link.version)
        ):
            version = Version(link.version)
            if not version.is_prerelease and not version.is_devrelease:
                day = link.upload_time.date().isoformat() if link.upload_time else ""
                found[version] = (link.version, day, bool(link.is_yanked))
    return {text: (day, yanked) for _, (text, day, yanked) in sorted(found.items())}


def release(package: str, before: str, after: str, setup: Setup) -> list[Candidate]:
    """What a release mends, behaviour by behaviour. Its tests run with the index as it is today,
    else as it was when it came out, unless a day is `wanted`.

    Raises BadInput: unknown-package, yanked, no-tests, no-change, failing-suite, bad-requirement.
    """
    known = list_releases(package)
    for version in (before, after):
        if known.get(version, ("", False))[1]:
            raise BadInput(
                f"{package} {version} was yanked from the package index",
                fix=f"take releases that stand: {', '.join(v for v in known if not known[v][1])}",
                code="yanked",
            )
    hashes = [sources.released_sha256(package, version) for version in (before, after)]
    old, new = (
        sources.release(package, v, h, setup.say)
        for v, h in zip((before, after), hashes, strict=True)
    )
    released = known.get(after, ("", False))[0]
    bug = Bug(
        id="?",
        package=package,
        before=before,
        after=after,
        before_sha256=hashes[0],
        after_sha256=hashes[1],
        split="train",
        group=package,
        fail_to_pass=("?",),
        **layout(old, new, setup.tests, setup.python_path, f"{package} {after}"),
    )
    wanted = setup.wanted
    then = (
        [wanted.model_copy(update={"index_before": released})]
        if released and not wanted.index_before
        else []
    )
    found = prepare_change(
        bug, old, [wanted, *then], setup.env, setup.backend, setup.say
    ).behaviours()
    return [c.model_copy(update={"released": released}) for c in found]


# --- recipes
# ----------------------------------------------------------------------------------------------


def make(
    *,
    releases: Sequence[str] = (),
    repo: Path | None = None,
    since: str = "",
    n: int = 10,
    split: Split | None = None,
    wanted: Environment | None = None,
    tests: Sequence[str] = (),
    python_path: Sequence[str] = (),
    backend: SandboxBackend | None = None,
    env: Path | None = None,
    file: Path | None = None,
    ask: Callable[[str], str] | None = None,
    on_progress: Say | None = None,
) -> MadeTasks:
    """Real bugs as tasks: of `releases`, each NAME==BEFORE..AFTER or a file of candidates whose
    texts are written; or of the newest commits of `repo`. At most `n` of each, written to `file` as
    they are found.

    split   of all of them; by default `dealt`
    since   a day: no older commits
    wanted  what the tests run in and with
    ask     a model: a text -> its answer. It writes the texts; without one a task tells the tests
            that fail
    file    benchmarks/swe/releases.toml of the workspace unless given; a task of the same id is
            replaced

    What is found is kept as candidates too, with the package's own texts, in home()/swe/candidates:
    whoever writes the texts there by hand gives that file as one of `releases`. Raises BadInput,
    Interrupted.
    """
    say: Say = on_progress or (lambda _: None)
    backend = backend or choose()
    file = file or paths.workspace() / "benchmarks" / "swe" / RELEASES
    wanted = wanted or Environment()
    setup = Setup(backend, wanted, tuple(tests), tuple(python_path), env, say)
    chosen = _Chosen(file, split, ask, say)
    tried = 0
    with stoppable(
        file,
        chosen,
        chosen.write,
        "the same command goes on where it was" if repo is not None else "",
    ):
        if repo is not None:
            home = paths.workspace(file.parent.resolve() if file.parent.exists() else None)
            tried = history(repo, setup, n=n, take=chosen.take, since=since, home=home)
        for one in releases:
            if one.endswith(".jsonl"):
                found = [c for c in read(Path(one)) if c.bug.issue or c.bug.prompt]
                chosen.take_told(found, n)
            else:
                package, before, after = pair(one)
                found = release(package, before, after, setup)
                kept = paths.home() / "swe" / "candidates" / f"{package}-{after}.jsonl"
                files.write(kept, "".join(c.model_dump_json() + "\n" for c in found))
                bugs = [c for c in found if c.kind == "bug"][:n]
                say(
                    f"{one}: {len(bugs)} bugs, {len(found) - len(bugs)} others left out; all in"
                    f" {kept}"
                )
                for candidate in bugs:
                    chosen.take(candidate)
            tried += len(found)
    if not chosen.bugs:
        raise BadInput(
            f"no bug that tests tell was found ({tried} tried)",
            fix="take other releases, or more of the history",
            code="no-bugs",
        )
    return MadeTasks([RealCase(bug, say).task() for bug in chosen.dealt()], tried, file)


class _Chosen:
    """The bugs that are found, each in `file` as soon as it is. Texts that stand there already are
    kept."""

    def __init__(
        self, file: Path, split: Split | None, ask: Callable[[str], str] | None, say: Say
    ) -> None:
        self.file = file
        self.split = split
        self.ask = ask
        self.say = say
        self.bugs: list[Bug] = []
        self.known = _known_splits(file)
        there = facts.bugs(file) if file.exists() else ()
        self.told = {bug.task: bug for bug in there if bug.issue and bug.prompt}

    def __len__(self) -> int:
        return len(self.bugs)

    def dealt(self) -> list[Bug]:
        """With their splits."""
        return dealt(self.bugs, self.split, self.known)

    def write(self) -> None:
        facts.add_bugs(self.file, self.dealt())

    def take(self, candidate: Candidate) -> None:
        bug = candidate.bug
        if (old := self.told.get(bug.task)) and old.fail_to_pass == bug.fail_to_pass:
            texts = {"issue": old.issue, "prompt": old.prompt, "title": old.title}
            self.bugs.append(bug.model_copy(update=texts))
        else:
            self.bugs.append(_write_words(candidate, self.ask, self.say).bug)
        self.write()

    def take_told(self, candidates: Sequence[Candidate], n: int) -> None:
        """Of candidates whose texts are written, the first `n` whose issue holds."""
        self.bugs += [c.bug for c in candidates if _sound(c, self.say)][:n]
        if self.bugs:
            self.write()


def pair(text: str) -> tuple[str, str, str]:
    """The package and the two versions of NAME==BEFORE..AFTER. Raises BadInput."""
    name, equal, versions = (part.strip() for part in text.partition("=="))
    before, dots, after = (part.strip() for part in versions.partition(".."))
    if not (name and equal and before and dots and after):
        raise BadInput(
            f"{text!r} is not NAME==A..B", fix="for example click==8.3.2..8.3.3", code="usage"
        )
    return name, before, after


def read(file: Path) -> list[Candidate]:
    """The candidates of a file. Raises BadInput that names the line."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(
            f"{file} cannot be read: {e}", fix="name a file of candidates", code="no-candidates"
        ) from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found += [Candidate.model_validate_json(line)] if line.strip() else []
        except ValidationError as e:
            why = e.errors()[0]
            raise BadInput(
                f"{file}, line {number}: {'.'.join(map(str, why['loc']))}: {why['msg']}",
                fix="it is a JSON object as recreate tasks make swe --releases writes it",
                code="bad-candidates",
            ) from None
    return found


def dealt(bugs: Sequence[Bug], split: Split | None, known: Mapping[str, Split]) -> list[Bug]:
    """The bugs with their splits, whole packages each. A package that has one keeps it; of the
    others, in the order of the digests of their names, each goes to the split that has the fewest
    so far. Of a repository the modules are dealt to train and validation, as those of bugs that are
    put in.

    known: group -> the split that its tasks have already; of several of one package, the first
    found.
    """
    if split is not None:
        return [bug.model_copy(update={"split": split}) for bug in bugs]
    packages: dict[str, Split] = {}
    for group, its in known.items():
        packages.setdefault(group.partition("/")[0], its)
    sizes = Counter(bug.package for bug in bugs if not bug.path)
    given = {package: packages[package] for package in sizes if package in packages}
    full = Counter(
        {
            s: sum(sizes[p] for p, have in given.items() if have == s)
            for s in ("train", "validation", "test")
        }
    )
    for package in sorted(sizes.keys() - given.keys(), key=digest):
        least: Split = min(("train", "validation", "test"), key=full.__getitem__)
        given[package] = least
        full[least] += sizes[package]
    for package in {bug.package for bug in bugs if bug.path}:
        own = Counter(bug.group for bug in bugs if bug.path and bug.package == package)
        given |= dealt_by_module(package, own, None, known)
    return [
        bug.model_copy(update={"split": given[bug.group if bug.path else bug.package]})
        for bug in bugs
    ]


def _known_splits(file: Path) -> dict[str, Split]:
    """The split that a group has."""
    known: dict[str, Split] = {}
    for task in known_tasks(file):
        known.setdefault(task.group, task.split)
    return known


_MARKS = re.compile(r"^ISSUE:\s*(.*?)^SPEC:\s*(.*)", re.DOTALL | re.MULTILINE)
_ASKED = """Below is a bug of the Python package {package} {before}: the change that mends it, and \
the tests that \
tell. Write two texts about it, in your own words.

ISSUE: what a user of the package would report who met the bug and knows nothing of the code: what \
they did, what \
they saw, what they expected, with one small example. {fewest} to {most} words, example included. \
No cause, no cure, \
no name of a test, no line of the change.

SPEC: all that the tests ask for, so that somebody who sees neither the change nor the tests can \
write code that \
passes them: each behaviour, each message word for word that a test compares, each name. What it \
must do, never how.

Answer with exactly these two parts, each after its mark, ISSUE: and SPEC:, at the start of a line.

--- the change ---
{gold}
--- the tests ---
{tests}
--- what they say today ---
{failures}
--- the changelog ---
{changelog}
"""


def _write_words(candidate: Candidate, ask: Callable[[str], str] | None, say: Say) -> Candidate:
    """The candidate with both texts as a model writes them, where they hold what `wrong_issue`
    asks."""
    bug = candidate.bug
    if ask is None:
        return candidate
    question = _ASKED.format(
        package=bug.package,
        before=bug.before,
        gold=candidate.gold[:12_000],
        tests="\n\n".join(candidate.tests.values())[:8_000],
        failures="\n".join(f"{t}: {m}" for t, m in candidate.failures.items())[:4_000],
        changelog=candidate.changelog[:2_000],
        fewest=FEWEST_WORDS,
        most=MOST_WORDS,
    )
    more = ""
    for _ in range(3):
        parts = _MARKS.search(ask(question + more))
        issue, spec = (part.strip() for part in parts.groups()) if parts else ("", "")
        why = (
            "lacks one of its two parts"
            if not issue or not spec
            else wrong_issue(issue, bug.fail_to_pass, _lines(candidate))
        )
        if not why:
            return candidate.model_copy(
                update={"bug": bug.model_copy(update={"issue": issue, "prompt": spec})}
            )
        more = f"\n--- an earlier answer was refused: it {why} ---\n"
    say(f"{bug.id}: no text of the model held; the task tells the tests that fail ({why})")
    return candidate


def _lines(candidate: Candidate) -> str:
    return "\n".join(
        line[1:] for line in candidate.gold.split("\n") if re.match(r"[-+](?![-+]{2} )", line)
    )


def _sound(candidate: Candidate, say: Say) -> bool:
    wrong = wrong_issue(candidate.bug.issue, candidate.bug.fail_to_pass, _lines(candidate))
    if wrong:
        say(f"left out: the issue of {candidate.bug.task} {wrong}")
    return not wrong

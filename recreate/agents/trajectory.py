"""Reading a trajectory: what a text mentions, an attempt told in a few hundred words, its index,
what it ends like.

    mentions   error_type, errors, tools, files, summary_of_tests: one pattern each, for all who
               read output
    telling    tell (an attempt), tell_step, cut_middle
    index      one row a step: files seen and edited, commands, errors, tests; and where two
               attempts part
    evidence   signature and clusters of failures; whether what an edit cites is really there

All of it is pure, and made of plain searches: an attempt of hundreds of steps and megabytes is
indexed at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import dropwhile

from recreate.api.shapes import JsonDict
from recreate.api.types import UNASKED, Edit, Experience, Record, Step, Trace
from recreate.storage.log import decode

# --------------------------------------------------------------------------------------- what a
# text mentions

MOST = 64
"""Files and programs that one step is found by."""
_READ = 20_000
"""Characters of either end of a text that are looked at."""
_ACTION_CHARS = 8_000
"""So much of an action is searched for names, here-documents cut out of it first."""

_KINDS = ("Error", "Exception", "Interrupt", "Exit", "Timeout")
_EXCEPTION = re.compile(rf"\b(?:[A-Z]\w{{0,60}})?(?:{'|'.join(_KINDS)})\b")
_MODULE = re.compile(r"\s*(?:E\s+)?(?:\w+\.)*")
# possessive: ten thousand blank lines cost no more
_HEREDOC = re.compile(r"<<-?[ \t]*+(['\"]?)(\w++)\1[^\n]*+\n")
_QUOTED = re.compile(r"'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\"")
_COMMAND = re.compile(r"[;\n|&(]+|`|\bthen\b|\bdo\b|\belse\b")
_PROGRAM = re.compile(r"(?:[\w.~+-]*/)*([A-Za-z_][\w.+-]*)\Z")
_BEFORE = "sudo env time nohup exec xargs command ! if while until elif"
"""What goes before a program."""
_NOT = "for case esac fi done in function return export local set unset true false then do else"
"""Words of a shell that are no program."""
_EXTENSION = (
    "py|pyi|pyx|ipynb|toml|cfg|ini|txt|md|rst|json|jsonl|yaml|yml|csv|tsv|xml|html|css|scss|js|"
    "jsx|mjs|cjs|ts|tsx|c|h|"
    "cc|cpp|hpp|cxx|rs|go|java|kt|rb|php|pl|lua|r|jl|swift|scala|hs|ml|ex|erl|sh|bash|zsh|bat|ps1|"
    "sql|proto|"
    "lock|log|diff|patch|env|conf|tex|vue|svelte|gradle|cmake|mk|so|whl|gz|zip|tar|png|svg|pdf|db|"
    "sqlite"
)
_FILE = re.compile(
    rf"(?<![\w/.:+@-])(?:(?:\.{{0,2}}/)?(?:[\w.+@-]+/)*[\w+@-][\w.+@-]*\.(?:{_EXTENSION})|"
    r"(?:\.{1,2})?/(?:[\w.+@-]+/)*[\w.+@-]*[\w+@-]|(?:[\w.+@-]+/)*(?:Makefile|Dockerfile|"
    r"Jenkinsfile))(?![\w/])"
)
_COUNT = re.compile(r"\b\d+ (?:passed|failed|errors?|skipped)\b")
_COUNTED = (" passed", " failed", " error", " skipped")
_VERDICT = re.compile(r"^(OK|FAILED|PASS|FAIL)\b.*$", re.MULTILINE)


def error_type(text: str) -> str:
    """Return the name of the last exception that a text mentions, else ''."""
    end = text[-_READ:]
    # most texts name none, and plain searches are quick
    if not any(kind in end for kind in _KINDS):
        return ""
    found = [name for name in _EXCEPTION.findall(end) if name not in _KINDS]
    return found[-1] if found else ""


def errors(text: str) -> Iterator[str]:
    """Names of exceptions that begin a line (after pytest's `E`), as a traceback ends, without
    their modules."""
    return (name for _, name in merge(*(_begin_a_line(text, kind) for kind in _KINDS)))


def _begin_a_line(text: str, kind: str) -> Iterator[tuple[int, str]]:
    at = text.find(kind)
    while at >= 0:
        start = text.rfind("\n", 0, at) + 1
        end = at + len(kind)
        found = _EXCEPTION.search(text, max(start, at - 61), end + 1)
        if found and found.end() == end and _MODULE.fullmatch(text, start, found.start()):
            yield at, found[0]
        line = text.find("\n", end)
        at = text.find(kind, line) if line >= 0 else -1


def tools(action: str) -> list[str]:
    """Return the programs and tools that an action runs, by name: `python -m pytest x | tail` gives
    python, pytest, tail.

    An action that is a JSON object names its tool under `name` or `tool`, and its command under
    `command`.
    """
    action = action.strip()
    if action.startswith("{"):
        return _of_json(action)
    found: dict[str, None] = {}
    for part in _COMMAND.split(_QUOTED.sub(" ", without_heredocs(action)[:_ACTION_CHARS])):
        words = part.split()
        while words and (
            words[0] in _BEFORE.split() or "=" in words[0] or words[0].startswith("-")
        ):
            del words[0]
        if len(words) > 2 and words[0] == "timeout":
            words = words[2:]
        if (
            not words
            or words[0] in _NOT.split()
            or words[0].startswith(("#", "$", "<", ">", "{", "["))
        ):
            continue
        program = _PROGRAM.match(words[0])
        if program is not None:
            found[program[1]] = None
            if len(words) > 2 and words[1] == "-m" and program[1].startswith("python"):
                found[words[2]] = None
    return list(found)[:MOST]


def _of_json(action: str) -> list[str]:
    try:
        found = decode(action)
    except ValueError:
        return []
    named = [found[key] for key in ("name", "tool") if isinstance(found.get(key), str)]
    inner = found.get("arguments") if isinstance(found.get("arguments"), dict) else found
    command = inner.get("command")
    return list(dict.fromkeys([*named, *(tools(command) if isinstance(command, str) else [])]))


def without_heredocs(action: str) -> str:
    """Return the action without what its here-documents hold, which is no command."""
    kept = []
    at = 0
    while found := _HEREDOC.search(action, at):
        kept += [action[at : found.start()], "\n"]
        closing = re.compile(rf"^[ \t]*+{found[2]}[ \t]*$", re.MULTILINE).search(
            action, found.end()
        )
        at = closing.end() if closing else len(action)
    return "".join([*kept, action[at:]])


def files(*texts: str) -> list[str]:
    """Return the paths that the texts mention, as they write them, without `./` before."""
    found: dict[str, None] = {}
    for text in texts:
        ends = text if len(text) <= 2 * _READ else text[:_READ] + "\n" + text[-_READ:]
        for path in _FILE.findall(ends):
            found[path.removeprefix("./")] = None
            if len(found) == MOST:
                return list(found)
    return list(found)


def is_file(asked: str, path: str) -> bool:
    """Whether a path is the one asked for: the same, or ending in it (`b.py` and `a/b.py` name
    `/x/a/b.py`)."""
    asked = asked.removeprefix("./")
    return path == asked or path.endswith("/" + asked.lstrip("/"))


def summary_of_tests(text: str) -> str:
    """Return the last line of a test run that gives its result, without its times: `1 failed, 2
    passed`; '' for none."""
    end = len(text)
    while (at := max(text.rfind(word, 0, end) for word in _COUNTED)) >= 0:
        start = text.rfind("\n", 0, at) + 1
        stop = text.find("\n", at)
        if counts := _COUNT.findall(text, start, stop if stop >= 0 else len(text)):
            return ", ".join(counts)
        end = start
    verdicts = _VERDICT.findall(text[-_READ:])
    return verdicts[-1] if verdicts else ""


# --------------------------------------------------------------------------------------------------
# telling


def cut_middle(
    text: str, limit: int, mark: str = "\n[...]\n", *, head: int | None = None, dropped: int = 0
) -> str:
    """Return at most `limit` characters: the head of the text (a half, or `head` characters) and
    its tail, joined by `mark`.

    A `{}` in the mark becomes how many characters are left out, `dropped` ones that the text has
    lost already among them; such a mark is not counted in the limit.
    """
    if len(text) <= limit:
        return text
    room = limit if "{}" in mark else max(2, limit - len(mark))
    first = room // 2 if head is None else head
    last = first if head is None else room - head
    return (
        text[:first]
        + mark.replace("{}", str(len(text) - first - last + dropped))
        + text[len(text) - last :]
    )


def clip(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, without the space around it."""
    return cut_middle(text.strip(), limit)


def tell_step(step: Step, limit: int) -> str:
    """Return one step: what was said and done, and what came of it, each in at most `limit`
    characters."""
    parts = [
        f"step {step.step}"
        + (f" (sample {step.sample}{_goes_on(step.after)})" if step.sample else "")
    ]
    if step.kind == "before":
        parts[0] += f": the tool {step.action} ran before the first turn and printed"
    elif step.kind == "ended":
        parts[0] += ": the agent's program ended and had printed"
    elif step.kind == "malformed":
        parts[0] += ": the reply could not be read"
        parts.append(clip(step.reply, limit))
    else:
        apart = {"lookahead": ": looking ahead,", "observe": ": observing,"}.get(step.kind, "")
        parts[0] += (
            f"{apart} in a copy of the sandbox, the agent answered"
            if apart
            else ": the agent answered"
        )
        parts.append(clip(tell_reply(step), limit))
    if step.output:
        parts.append(f"-> (status {step.status}) {clip(step.output, limit)}")
    if step.restored:
        parts.append(f"taken back: {step.restored}")
    return "\n".join(parts)


def _goes_on(after: int | None) -> str:
    """Return where a sample that does not begin anew goes on from."""
    return f", which goes on from step {after}" if after is not None else ""


def tell_reply(step: Step) -> str:
    """Return a reply, and the tools that it called in the endpoint's own way, which stand in no
    text of it."""
    if not step.action or step.action in step.reply or not step.foreign:
        return step.reply
    return f"{step.reply}\n$ {step.action}".strip()


def tell(experience: Experience, limit: int = 2400, without: Collection[str] = ()) -> str:
    """Return an experience in about `limit` characters: the task, the steps, how it ended, the
    grader's words.

    without: `trajectory` leaves the steps out, `evidence` the grader's words. What fits is told
    whole; else the first and last steps, each part cut to its share.
    """
    steps: Sequence[Step] = experience.trace.steps if "trajectory" not in without else ()
    evidence = experience.grade.evidence if "evidence" not in without else None
    if len(uncut := _tell_parts(experience, steps, evidence, limit, limit, limit)) <= limit:
        return uncut
    steps = _worth_telling(steps)
    share = max(120, (limit * 2 // 3) // max(1, 2 * len(steps)))
    return _tell_parts(experience, steps, evidence, limit // 4, share, limit // 5)


def _tell_parts(
    experience: Experience,
    steps: Sequence[Step],
    evidence: str | None,
    task: int,
    step: int,
    grader: int,
) -> str:
    """Return its parts, each in at most so many characters; a step has them twice, for its reply
    and its output."""
    trace = experience.trace
    grade = experience.grade
    passed = "PASSED" if grade.passed else f"FAILED (score {grade.score:g})"
    head = f"experience {experience.id}: {passed}, ended by {trace.ending} {trace.limit}".rstrip()
    parts = [f"{head} {experience.canary}".rstrip(), "task: " + clip(experience.prompt, task)]
    parts += [tell_step(each, step) for each in steps]
    parts += ["grader: " + clip(evidence, grader)] if evidence is not None else []
    return "\n".join(parts)


def _worth_telling(steps: Sequence[Step], most: int = 8) -> Sequence[Step]:
    """First and last steps: how it began and how it ended; the middle of a long attempt repeats
    itself."""
    return steps if len(steps) <= most else [*steps[: most // 2], *steps[-most // 2 :]]


# ------------------------------------------------------------------------------------------------
# index

_CELL = 6
"""Names one cell of a row holds."""
_HEAD_CHARS = 2_000
_EDITED = re.compile(
    r">>?\s*(?P<to>[\w./-]+)"
    r"|\btee\s+(?:-a\s+)?(?P<tee>[\w./-]+)"
    r"|\bsed\s+(?:-[A-Za-z]*i\S*|--in-place\S*)\s(?P<sed>[^\n;|&]*)"
    r"|\bopen\(\s*['\"](?P<open>[^'\"]+)['\"]\s*,\s*['\"][wax]"
    r"|\bPath\(\s*['\"](?P<path>[^'\"]+)['\"]\s*\)\.write_"
    r"|\b(?:mv|cp|rm)\s+(?P<moved>[^\n;|&]*)"
    r"|^(?:\+\+\+|---)\s+[ab]/(?P<diff>\S+)",
    re.MULTILINE,
)
_FAILED = re.compile(r"(?:FAILED|ERROR) (\S+::\S+)")


class IndexRow(Record):
    """One step at a glance. chars: the length of reply and output together."""

    step: int
    sample: int
    kind: str
    status: int | None
    commands: tuple[str, ...]
    seen: tuple[str, ...]
    edited: tuple[str, ...]
    errors: tuple[str, ...]
    tests: str
    chars: int
    after: int | None = None


def index(trace: Trace) -> tuple[IndexRow, ...]:
    """Return one row a step, in order."""
    return tuple(_row(step) for step in trace.steps)


def tell_index(rows: Sequence[IndexRow]) -> str:
    """Return the index as lines of text."""
    return "\n".join(_line(row) for row in rows) or "no steps were taken"


def differ(a: Experience, b: Experience) -> str:
    """Return what sets two experiences apart, in a few lines: how they went, what only one of them
    did and met."""
    rows = [index(e.trace) for e in (a, b)]
    lines = []
    for name, e, own in (("this", a, rows[0]), ("other", b, rows[1])):
        outcome = "passed" if e.grade.passed else f"failed (score {e.grade.score:g})"
        ended = f"{e.trace.ending} {e.trace.limit}".strip()
        lines.append(f"{name}: {e.id}, {outcome}, {ended}, {len(own)} steps, agent {e.digest}")
    cells = {
        "commands": [[row.commands for row in own] for own in rows],
        "files seen": [[row.seen for row in own] for own in rows],
        "files edited": [[row.edited for row in own] for own in rows],
        "errors met": [[row.errors for row in own] for own in rows],
    }
    for title, both in cells.items():
        this, other = (Counter(name for cell in own for name in cell) for own in both)
        for name, only in (("this", this - other), ("other", other - this)):
            if only:
                listed = ", ".join(
                    f"{what} x{n}" if n > 1 else what for what, n in only.most_common(12)
                )
                lines.append(f"{title}, more in {name}: {listed}")
    for name, own in (("this", rows[0]), ("other", rows[1])):
        tests = [f"step {row.step}: {row.tests}" for row in own if row.tests]
        if tests:
            lines.append(f"tests in {name}: " + "; ".join(tests[-5:]))
    return "\n".join(lines)


def _row(step: Step) -> IndexRow:
    # a reply that a tool of the scaffold took whole is no shell: its words are not commands
    done = (
        step.action
        if (step.action != step.reply or step.kind == "before") and step.kind != "ended"
        else ""
    )
    bare = without_heredocs(done)[:_ACTION_CHARS]
    action = done[:_ACTION_CHARS]
    # Python in a here-document may write files itself
    edited = _edited(action if not bare or "open(" in action or "write_" in action else bare)
    seen = _first(p for p in _paths(action) if p not in edited)
    if not action or len(seen) + len(edited) == 0:
        seen = _first(_paths(step.output[:_HEAD_CHARS]))
    return IndexRow(
        step=step.step,
        sample=step.sample,
        kind=step.kind,
        status=step.status,
        commands=(
            (action,)
            if step.kind == "before"
            else _first(n for n in tools(bare) if n not in ("cd", "echo"))
        ),
        seen=seen,
        edited=edited,
        errors=_first(errors(step.output)),
        tests=_tests(step.output),
        chars=len(step.reply) + len(step.output),
        after=step.after,
    )


def _line(row: IndexRow) -> str:
    parts = [
        f"step {row.step}" + (f" sample {row.sample}{_goes_on(row.after)}" if row.sample else "")
    ]
    if row.kind == "before":
        parts.append(f"{', '.join(row.commands)} ran before the first turn")
    elif row.kind == "ended":
        parts.append("the agent's program ended")
    elif row.kind == "malformed":
        parts.append("the reply could not be read")
    elif row.commands:
        apart = {"lookahead": "looked ahead: ", "observe": "observed: "}.get(row.kind, "")
        parts.append(apart + " ".join(row.commands))
    else:
        parts.append("the reply was handed to the agent's tool")
    if row.status is not None:
        parts.append(f"status {row.status}")
    for name, cell in (("saw", row.seen), ("edited", row.edited), ("errors", row.errors)):
        if cell:
            parts.append(f"{name} {', '.join(cell)}")
    if row.tests:
        parts.append(f"tests {row.tests}")
    return " | ".join([*parts, f"{row.chars} characters"])


def _edited(action: str) -> tuple[str, ...]:
    names: list[str] = []
    for found in _EDITED.finditer(action):
        kind = found.lastgroup
        if kind in ("sed", "moved"):
            names += [word for word in found[kind].split() if _FILE.fullmatch(word)][-2:]
        elif kind and not found[kind].startswith("/dev/") and not found[kind].isdigit():
            names.append(found[kind])
    return _first(name.removeprefix("./") for name in names)


def _paths(text: str) -> Iterator[str]:
    return (name for name in files(text) if not name.startswith(("/dev/", "/usr/")))


def _tests(text: str) -> str:
    """Return what a test run said, with the first tests that failed."""
    summary = summary_of_tests(text)
    failed = _first(_FAILED.findall(text[-4000:])) if summary else ()
    return summary + (f" ({', '.join(failed[:3])})" if failed else "")


def _first(names: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) == _CELL:
            break
    return tuple(found)


# -------------------------------------------------------------------------------------------------
# evidence


def signature(experience: Experience, without: Collection[str] = ()) -> str:
    """Return what kind of ending this was: attempts with the same signature are studied
    together."""
    trace = experience.trace
    if experience.grade.passed:
        return "passed"
    acted = [s for s in trace.steps if s.kind not in (*UNASKED, "lookahead")]
    wrong = sum(s.kind == "malformed" for s in acted)
    if acted and 2 * wrong > len(acted):
        return "malformed replies"
    if not trace.answer.strip():
        return "nothing handed in"
    found = next(errors(experience.grade.evidence), "") if "evidence" not in without else ""
    return f"{trace.ending} {trace.limit}".strip() + (f", {found}" if found else "")


def clusters(
    experiences: Sequence[Experience], most: int, without: Collection[str] = ()
) -> list[tuple[str, list[Experience]]]:
    """Failures by signature, largest first, at most `most` groups; what is over joins the last
    group.

    A single signature is cut into even parts, so that different attempts are still looked at apart.
    """
    groups: dict[str, list[Experience]] = {}
    for experience in experiences:
        if not experience.grade.passed:
            groups.setdefault(signature(experience, without), []).append(experience)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    if len(ordered) == 1 and len(ordered[0][1]) >= 2 * most > 2:
        name, members = ordered[0]
        return [(name, members[i::most]) for i in range(most)]
    for _, members in ordered[most:]:
        ordered[most - 1][1].extend(members)
    return ordered[:most]


def uncited(edits: Sequence[Edit], experiences: Mapping[str, Experience]) -> list[str]:
    """Return what is wrong with the evidence of edits from experience; [] when every citation is
    really there."""
    faults = []
    for edit in edits:
        if edit.origin != "experience":
            continue
        if not edit.evidence:
            faults.append(f"{edit.path}: cites nothing")
        for cited in edit.evidence:
            experience = experiences.get(cited.experience)
            if experience is None:
                faults.append(f"{edit.path}: there is no train experience {cited.experience!r}")
            elif experience.split != "train":
                faults.append(f"{edit.path}: {cited.experience} is a {experience.split} experience")
            elif not 0 <= cited.step < len(experience.trace.steps):
                last = len(experience.trace.steps) - 1
                faults.append(
                    f"{edit.path}: {cited.experience} has steps 0 to {last}, not {cited.step}"
                )
    return faults


def swebench_prediction(e: Experience) -> JsonDict:
    """Return what SWE-bench's harness takes (`--predictions_path`): the answer, under the row's
    instance_id. What an answer says of itself in lines before its diff is left out."""
    lines = e.trace.answer.splitlines(keepends=True)
    return {
        "instance_id": e.task.rpartition(":")[2],
        "model_name_or_path": f"recreate.{e.digest}.{e.trace.model}",
        "model_patch": "".join(dropwhile(lambda line: line.startswith("# "), lines)),
    }

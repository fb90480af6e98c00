"""`import_traces`: files of other tools -> experiences of a domain, each exactly once, what is held
out closed.

    read -> know (is it a task of ours? may it be learned from?) -> mask -> memory, or waiting when
    nobody graded it

An id is the digest of what was asked, done and handed in, so the same attempt read twice is the
same experience.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recreate.api import plugins, registry
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.api.types import Experience, Split, Task, Trace, Trust, digest
from recreate.memory.codec import masked
from recreate.memory.held_out import Held
from recreate.memory.overlap import Known, Overlap
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.format import Bad, Foreign, Format, SplitFormat, Unreadable
from recreate.plugins.traces.readers import documents, files, line_at
from recreate.plugins.traces.ungraded import NOT_YET, Ungraded

IMPORTED: Trust = "imported"
BATCH = 100
"""So many experiences are written at once."""
ORDER = (
    *("recreate", "mini-swe-agent", "swe-agent", "inspect", "langsmith", "langfuse", "otel"),
    *("claude-code", "codex", "promptfoo", "openai", "responses", "sharegpt", "verifiers"),
)
"""Asked in this order; then those that somebody installed."""


@dataclass
class ImportReport:
    """What came of an import. added: into memory; waiting: ungraded; known: there before, by id.

    closed: (experience, task, split, why), whatever split was asked for. bad: (file, place,
    reason).
    """

    files: int = 0
    read: int = 0
    added: int = 0
    waiting: int = 0
    known: int = 0
    passed: int = 0
    formats: dict[str, int] = field(default_factory=dict)
    experiences: list[str] = field(default_factory=list)
    closed: list[tuple[str, str, Split, str]] = field(default_factory=list)
    bad: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class ImportConfig:
    """How to import: the domain's name, the split and model to record, the score from which on it
    has passed."""

    domain: str
    split: Split = "train"
    model: str = ""
    pass_at: float = 1.0
    format: str = "auto"


def import_traces(
    paths: Sequence[Path],
    memory: ExperienceStore,
    config: ImportConfig,
    tasks: Sequence[Task] = (),
    *,
    dry: bool = False,
    progress: Callable[[ImportReport], None] = lambda report: None,
) -> ImportReport:
    """Import all that the files hold. tasks: the domain's, of all splits. dry: nothing is written.

    What cannot be read is in `.bad`, never raised. Raises BadInput for a path or a format that is
    not there, and for a damaged held-out registry; Fault when the memory cannot be written.
    """
    formats = _formats(config.format)
    overlap = Overlap(tasks, memory.held_out)
    waiting = Ungraded(memory)
    report = ImportReport()
    seen = dict[str, bool]()
    waits = waiting.ids()
    batch = list[tuple[Experience, tuple[str, str] | None]]()

    def flush() -> None:
        graded = [e for e, _ in batch if e.grade.graded]
        ungraded = [e for e, _ in batch if not e.grade.graded]
        memory.metadata.refresh()
        known = memory.metadata.knows([e.id for e, _ in batch])
        report.known += sum(e.id in known for e in graded) + sum(
            e.id in known or e.id in waits for e in ungraded
        )
        graded = [e for e in graded if e.id not in known]
        ungraded = [e for e in ungraded if e.id not in known and e.id not in waits]
        report.added += len(graded)
        report.passed += sum(e.grade.passed for e in graded)
        report.waiting += len(ungraded)
        waits.update(e.id for e in ungraded)
        for e, why in batch:
            if why is not None:
                report.closed.append((e.id, e.task, e.split, why[1]))
        report.experiences += [e.id for e in [*graded, *ungraded]]
        if not dry:
            memory.held_out.add(
                Held(g, e.task, e.split, e.domain)
                for e, _ in batch
                for g in (e.group, _name_task(e.prompt))
            )
            memory.add(graded)
            waiting.add(ungraded)
        batch.clear()

    for path in files(paths):
        report.files += 1
        for place, form, found in read(path, formats):
            if isinstance(found, Bad):
                report.bad.append((path.name, found.place or place, found.reason))
                continue
            try:
                made, why = experience(found, form, path.name, place, config, overlap)
            except Unreadable as e:
                report.bad.append((path.name, place, str(e)))
                continue
            report.read += 1
            report.formats[form] = report.formats.get(form, 0) + 1
            if seen.get(made.id, False) or (made.id in seen and not made.grade.graded):
                report.known += 1
                continue
            seen[made.id] = made.grade.graded
            batch.append((made, why))
            if len(batch) >= BATCH:
                flush()
                progress(report)
        progress(report)
    flush()
    return report


def read(
    path: Path, formats: Mapping[str, Format]
) -> Iterator[tuple[str, str, Foreign | Experience | Bad]]:
    """(place, format, trajectory or what was wrong) of a file. Of lines that belong together only
    offsets are kept."""
    source = path.name.partition(".traj")[0] if ".traj" in path.name else path.stem
    lines: dict[tuple[str, str], array[int]] = {}
    whole: dict[tuple[str, str], list[Any]] = {}
    for document in documents(path):
        if isinstance(document, Bad):
            yield document.place, "", document
            continue
        name = next((n for n, f in formats.items() if _reads(f, document.value)), "")
        if not name:
            yield document.place, "", Bad(document.place, f"it is none of: {', '.join(formats)}")
            continue
        form = formats[name]
        keys = form.parts(document.value) if isinstance(form, SplitFormat) else ()
        for key in keys:
            if document.offset is None:
                whole.setdefault((name, key), []).append(document.value)
            else:
                lines.setdefault((name, key), array("Q")).append(document.offset)
        if not keys:
            yield from _read(form, name, [document.value], "", source, document.place)
    for (name, key), values in whole.items():
        yield from _read(formats[name], name, values, key, source, f"trace {key}")
    for (name, key), offsets in lines.items():
        again = [line_at(path, offset) for offset in dict.fromkeys(offsets)]
        yield from _read(formats[name], name, again, key, source, f"trace {key}")


def _find_task(overlap: Overlap, found: Foreign) -> Known | None:
    """Return the task that a trajectory is an attempt at."""
    first = found.steps[0].observation if found.steps else ""
    return overlap.find([found.task, *found.names], [found.prompt, first, found.system])


def experience(
    found: Foreign | Experience,
    form: str,
    file: str,
    place: str,
    config: ImportConfig,
    overlap: Overlap,
) -> tuple[Experience, tuple[str, str] | None]:
    """The experience, its keys masked, as what somebody else says; and when it may not be learned
    from: (task, why). Raises Unreadable."""
    if isinstance(found, Experience):
        said: JsonDict = {"trust": IMPORTED, "checked": False}
        found = found.model_copy(update=said)
        if found.domain != config.domain:
            raise Unreadable(
                f"it is of the domain {found.domain}: import it with --domain {found.domain}"
            )
        like = Foreign(task=found.task, prompt=found.prompt, steps=found.trace.steps[:1])
        known = _find_task(overlap, like)
        split = (
            known.split
            if known and known.split != "train"
            else overlap.held_split(found.task, found.group)
        )
        if split and found.split == "train":
            why = known.why if known else "its group is held out in this workspace"
            own = {"task": known.task.id, "group": known.task.group} if known and known.task else {}
            closed = found.model_copy(update={"split": split, **own})
            return masked(closed), (closed.task, why)
        return masked(found), None
    known = _find_task(overlap, found)
    asked = _name_task(found.prompt)
    if known and known.task:
        task = known.task.id
        group = known.task.group
        split = known.split
        why = known.why
    else:
        task = found.task or asked
        task = task if task.startswith(f"{config.domain}:") else f"{config.domain}:imported:{task}"
        group = task if found.task else asked
        held = (
            known.split
            if known
            else overlap.held_split(task, group) or overlap.held_split(task, asked)
        )
        split = held or config.split
        why = known.why if known else "its task or its text is held out in this workspace"
    if split == "train" and config.split != "train":
        raise Unreadable(
            f"{task} is a train task of {config.domain}, so it cannot be imported as {config.split}"
        )
    content = [
        found.task,
        found.prompt,
        found.steps,
        found.answer,
        found.model or config.model,
        found.repeat,
    ]
    id = digest(["import", config.domain, form, content])
    agent = digest(["foreign", form, found.system])
    grade = found.grade or NOT_YET
    if grade.graded:
        grade = grade.model_copy(update={"passed": grade.score >= config.pass_at})
    about = {"format": form, "file": file, "entry": place, "task": found.task}
    made = Experience(
        id=id,
        domain=config.domain,
        task=task,
        group=group,
        split=split,
        prompt=found.prompt,
        digest=agent,
        run=f"import-{form}"[:100].replace(":", "-"),
        grade=grade,
        trace=Trace(
            attempt=id,
            task=task,
            scaffold=agent,
            model=found.model or config.model,
            repeat=found.repeat,
            steps=found.steps,
            ending=found.ending,
            limit=found.limit,
            answer=found.answer,
            usage=found.usage,
            fault=found.fault,
        ),
        trust=IMPORTED,
        foreign={**about, **({"system": found.system} if found.system else {}), **found.rest},
    )
    return masked(made), (task, why) if split != "train" and split != config.split else None


def _formats(name: str) -> dict[str, Format]:
    known = plugins.names("traces")
    wanted = (
        [*(n for n in ORDER if n in known), *(n for n in known if n not in ORDER)]
        if name == "auto"
        else [name]
    )
    found = {n: registry.open("traces", n) for n in wanted}
    for n, form in found.items():
        if not isinstance(form, Format):
            raise BadInput(
                f"{n} is no format of traces: it lacks reads or read",
                fix="a class with reads(value) and read(values, key, source)",
                code="misfit",
            )
    return found


def _reads(form: Format, value: Any) -> bool:
    try:
        return form.reads(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def _read(
    form: Format, name: str, values: Sequence[Any], key: str, source: str, place: str
) -> Iterator[tuple[str, str, Foreign | Experience | Bad]]:
    """What a format makes of records; a record it stumbles over is a bad one, whatever it
    raises."""
    number = 0
    try:
        for number, found in enumerate(form.read(values, key, source), 1):
            yield (f"{place}, {number}".lstrip(", ") if number > 1 else place), name, found
    except Unreadable as e:
        yield place, name, Bad(place, str(e))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as e:
        after = f" after {number}" if number else ""
        yield (
            place,
            name,
            Bad(place, f"it is not {name} as it is written{after}: {type(e).__name__}: {e}"[:300]),
        )


def _name_task(prompt: str) -> str:
    """What stands for a task that has no name: its words."""
    return f"imported-{digest(prompt.casefold().split(), 12)}"

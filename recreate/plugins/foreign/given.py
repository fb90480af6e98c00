"""Agents that exist already, made scaffolds: a command with the files it needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from recreate.agents.scaffold import MAX_FILE, Scaffold
from recreate.api.config import write_toml
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict

MOST_FILES = 500
STEPS = 100
"""Requests that such an agent may make at a task, where nobody says: --limits.steps."""


def from_command(
    command: str,
    folder: Path,
    *,
    texts: Sequence[str] = (),
    files: Sequence[str] = (),
    venv: str = "",
) -> Scaffold:
    """The scaffold of a foreign agent that is a command: `--agent`.

    Files of `folder` that the command names come along, and those that match `texts` (they may be
    edited) or `files` (they may not). Raises BadInput (`no-files`, `bad-scaffold`) for a pattern
    that matches nothing, and a file that cannot be taken.
    """
    words = re.findall(r"[^\s'\";|&()<>=]+", command)
    named = [
        w for w in dict.fromkeys(words) if not Path(w).is_absolute() and (folder / w).is_file()
    ]
    found = read_files(folder, (*texts, *files)) | _read(folder, [folder / w for w in named])
    for word in named:
        place = PurePosixPath(word).as_posix()
        command = re.sub(
            rf"(?<![^\s'\";|&()<>=]){re.escape(word)}(?![^\s'\";|&()<>=])",
            f"{{agent}}/{place}",
            command,
        )
    # a program of somebody else's makes more of a turn than ours does, and shorter ones
    limits = {"steps": STEPS, "seconds": 1800, "tokens": 2_000_000, "usd": 3.0}
    about: JsonDict = {"action": "command", "command": command, "texts": list(texts)}
    about |= {"venv": str(Path(venv).expanduser().absolute())} if venv else {}
    text = write_toml({**about, "limits": limits})
    program = next((PurePosixPath(w).stem for w in [*named, *words] if "=" not in w), "agent")
    name = re.sub(r"[^\w.-]+", "-", program).strip("-.") or "agent"
    return Scaffold(name=name, files={"agent.toml": text, **found})


def read_files(folder: Path, patterns: Sequence[str]) -> dict[str, str]:
    """{path: text} of the files below a folder that match. Raises BadInput as `from_command`."""
    found: dict[str, str] = {}
    for pattern in patterns:
        matched = _matching(folder, pattern)
        if not matched:
            raise BadInput(
                f"{pattern!r} matches no file below {folder}",
                fix="patterns are relative to the current folder: --texts 'prompts/*.md'",
                code="no-files",
            )
        found |= _read(folder, matched)
    if len(found) > MOST_FILES:
        raise BadInput(
            f"{len(found)} files are more than {MOST_FILES}", fix="name fewer", code="no-files"
        )
    return found


def _matching(folder: Path, pattern: str) -> list[Path]:
    try:
        found = sorted(p for p in folder.glob(pattern) if p.is_file())
    except (ValueError, NotImplementedError) as e:
        raise BadInput(
            f"{pattern!r} is no pattern: {e}", fix="--texts 'prompts/*.md'", code="no-files"
        ) from None
    shown = [
        p
        for p in found
        if not any(part.startswith(".") or part == "__pycache__" for part in _parts(p, folder))
    ]
    return [p for p in shown if p.suffix != ".pyc"]


def _parts(path: Path, folder: Path) -> tuple[str, ...]:
    return path.relative_to(folder).parts


def _read(folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    found = {}
    for path in paths:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise BadInput(
                f"{path} leads outside {folder}", fix="put a copy of it there", code="bad-scaffold"
            )
        name = path.relative_to(folder).as_posix()
        try:
            if path.stat().st_size > MAX_FILE:
                raise BadInput(
                    f"{name} has over {MAX_FILE} bytes",
                    fix="leave it out of --files",
                    code="bad-scaffold",
                )
            found[name] = path.read_text("utf-8")
        except (OSError, UnicodeError) as e:
            why = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
            raise BadInput(
                f"{name} cannot be taken along: {why}",
                fix=(
                    "an agent's folder holds text; what else it needs is mounted: mounts in"
                    " agent.toml"
                ),
                code="bad-scaffold",
            ) from None
    return found

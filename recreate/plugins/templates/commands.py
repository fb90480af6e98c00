"""init --domain: an example of a domain, to be changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.plugins import names
from recreate.api.registry import rows_file
from recreate.cli.terminal import answer
from recreate.storage.files import disk


def init_domain(
    folder: Path,
    as_json: bool,
    name: Annotated[
        str,
        typer.Option(
            "--domain", metavar="NAME", help="Also a domain of this name, as an example to change."
        ),
    ] = "",
    template: Annotated[
        str, typer.Option("--template", help="What kind of example: qa, code, sql, tools or files.")
    ] = "",
) -> Any:
    """Write a template's domain, a file of rows and how they are scored, into the workspace around
    `folder`, which is made where there is none. Return NotImplemented where none is asked for."""
    if not (name or template):
        return NotImplemented
    from recreate.cli.workspace import WORKSPACE, fill_workspace
    from recreate.plugins.templates.templates import SCRIPT, TEMPLATES, write

    folder = folder.expanduser()
    name = name or template
    if template not in TEMPLATES:
        given = f"there is no template {template!r}" if template else "which kind of example?"
        choice = ", ".join(TEMPLATES)
        raise BadInput(given, fix=f"--template is one of {choice}", code="unknown-template")
    where = workspace(folder)
    begun = any((where / part).exists() for part in WORKSPACE)
    target = rows_file(name, where).parent
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) or name in names("domain"):
        why = "is a domain already" if name in names("domain") else "cannot name a folder"
        raise BadInput(
            f"{name!r} {why}",
            fix="--domain NAME: letters, digits, `.`, `_` and `-`",
            code="bad-name",
        )
    if target.exists():
        raise BadInput(
            f"{here(target)} is there already",
            fix="it is left as it is; give another NAME",
            code="exists",
        )
    with disk(folder.resolve()):
        made = [] if begun else [p.relative_to(where).as_posix() for p in fill_workspace(where)]
    made += [p.relative_to(where).as_posix() for p in write(template, name, where)]
    go = "" if where == Path.cwd() else f"cd {where} && "
    script = f"scripted:{(target / SCRIPT).relative_to(where)}"
    following = [
        f"{go}recreate tasks check {name}",
        f"{go}recreate build --domain {name} --model {script}",
        f"{go}recreate build --domain {name} --budget 1usd",
    ]
    answer(
        as_json,
        {
            "path": str(where),
            "files": made,
            "domain": name,
            "template": template,
            "next": following,
        },
        f"an example of a domain in {here(target)}: {TEMPLATES[template].about}",
        f"data.jsonl holds its rows, {SCRIPT} the answers of a scripted model; domain.toml says how"
        " rows are read",
        "next:",
        f"  {following[0]}     proves its tasks",
        f"  {following[1]}     a build without a key",
        f"  {following[2]}     one with your model; docs/data.md says how to put in your own rows",
    )
    return None

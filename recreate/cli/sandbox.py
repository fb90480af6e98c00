"""sandbox exec, scaffold check: a sandbox by hand, and what is wrong with an agent's folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from recreate.api.errors import BadInput, CheckFailed
from recreate.api.paths import shipped, workspace
from recreate.api.ports import OpensImages, SandboxBackend
from recreate.api.shapes import JsonDict
from recreate.cli.options import Json, SandboxName, open_backend
from recreate.cli.terminal import answer, emit, pass_on, say


def execute(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, after `--`.")
    ],
    backend: SandboxName = "",
    rung: Annotated[str, typer.Option("--rung", hidden=True)] = "",
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds, without what it waits for a core.")
    ] = 60.0,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="A folder whose copy becomes /work.")
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Give the command our standard input.")
    ] = False,
    image: Annotated[
        str, typer.Option("--image", help="An image to run it in, with --sandbox docker or podman.")
    ] = "",
    inside: Annotated[
        str, typer.Option("--image-dir", help="The image's folder that is worked on.")
    ] = "",
    as_json: Json = False,
) -> int:
    """Run a command in a fresh sandbox: no network, no host environment, limits. Its exit code is
    ours.

    Example: recreate sandbox exec --timeout 5 -- python3 -c 'print(6 * 7)'
    """
    if not 0 < timeout <= 1e6:  # nan is neither
        raise BadInput(
            f"a timeout of {timeout:g} seconds",
            fix="give more than 0, at most a million, such as --timeout 60",
            code="usage",
        )
    if rung:
        say("--rung is called --sandbox; it is still taken")
    chosen = open_backend(backend or rung)
    if image or inside:
        chosen = _of_image(chosen, image, inside)
    sandbox = chosen.open(source=folder)
    try:
        output = sandbox.run(
            command, timeout=timeout, stdin=sys.stdin.buffer.read() if stdin else None
        )
    finally:
        sandbox.close()
    if as_json:
        emit({**output.model_dump(mode="json"), "rung": chosen.name})
    else:
        pass_on(output.text)
    ended = f"; ended by the limit on {output.limit}" if output.limit else ""
    cut = f"; {output.cut} bytes of output were cut" if output.cut else ""
    say(f"sandbox: {chosen.name}, exit code {output.status}, {output.seconds:.2f} s{ended}{cut}")
    return int(output.status)


def _of_image(chosen: SandboxBackend, image: str, inside: str) -> SandboxBackend:
    if not image:
        raise BadInput(
            "--image-dir without --image", fix="name the image too: --image NAME", code="usage"
        )
    if not isinstance(chosen, OpensImages):
        raise BadInput(
            f"the sandbox {chosen.name} opens no images",
            fix="add --sandbox docker or podman",
            code="no-images",
        )
    return chosen.image(image, inside, say)


def check(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A scaffold's folder, or its name.")],
    backend: SandboxName = "",
    as_json: Json = False,
) -> int:
    """List what is wrong with a scaffold: templates, variables, sizes, tools that do not start.
    Exits 4 then.

    Example: recreate scaffold check scaffolds/seed
    """
    faults = faults_of(_find(folder), backend)
    lines = [f"{fault['file']}:{fault['line']}: {fault['message']}" for fault in faults]
    # one object: the list belongs to the folder that was asked about
    answer(
        as_json, {"scaffold": folder, "faults": faults}, *(lines or [f"{folder}: nothing is wrong"])
    )
    return CheckFailed.exit_code if faults else 0


def faults_of(path: Path, backend: str = "") -> list[JsonDict]:
    """Return what is wrong, as {file, line, message}; a folder that cannot even be read has that as
    its one fault."""
    from recreate.agents import scaffold as scaffolds
    from recreate.agents.lint import check
    from recreate.sandboxes import choose

    try:
        loaded = scaffolds.load(path, parse=False)
    except BadInput as e:
        if e.code != "bad-scaffold":
            raise
        file, message = _place(path, e.message)
        return [{"file": file, "line": 1, "message": message + (f" ({e.fix})" if e.fix else "")}]
    try:
        chosen = choose(backend or None)
    except BadInput:
        if backend:
            raise
        say(
            "no sandbox works here, so the tools were not started; recreate doctor says what to"
            " install"
        )
        chosen = None
    return [{"file": f.file, "line": f.line, "message": f.message} for f in check(loaded, chosen)]


def _place(root: Path, message: str) -> tuple[str, str]:
    """Return `ROOT/FILE is wrong` as (FILE, 'is wrong')."""
    rest = message.removeprefix(str(root)).lstrip("/")
    if rest == message:
        return ".", message
    file, _, problem = rest.partition(" ")
    return file, problem


def _find(text: str) -> Path:
    """Return a folder, or the name of a scaffold in the workspace or shipped."""
    for path in (Path(text), workspace() / "scaffolds" / text, shipped("scaffolds") / text):
        if path.is_dir():
            return path
    return Path(text)

"""models list, models fetch: the catalogue of models that run on this machine."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.cli.options import Json
from recreate.cli.terminal import emit, say, show

app = typer.Typer(help="Models that run on this machine.", no_args_is_help=True, rich_markup_mode=None)

STATES = {"ready": "present", "partial": "partial", "absent": "absent"}


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the catalogue: name, whether it is here, size, licence, context.

    Example: recreate models list
    """
    from recreate.models import catalog

    default = catalog.default_name()
    for name, entry in catalog.catalog().items():
        row: dict[str, Any] = {
            "name": name,
            "state": STATES[catalog.state(name)],
            "size": entry.size,
            "license": entry.license,
            "context": entry.context,
            "default": name == default,
            "sha256": entry.sha256,
            "path": str(entry.path),
            "notes": entry.notes,
        }
        if as_json:
            emit(row)
            continue
        size = f"{entry.size / 1e6:>7,.0f} MB  {entry.context:>7,} tokens"
        show(f"{name:<22} {row['state']:<8} {size}  {entry.license}" + ("  (default)" if name == default else ""))
        if entry.notes:
            show(f"{'':<23}{entry.notes}")
    if not as_json:
        say("use one with --model local:NAME; recreate models fetch NAME gets it ahead of time")


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of `recreate models list`; default: ours.")] = "",
    as_json: Json = False,
) -> None:
    """Fetch a model's weights and check their hash. A cut download goes on where it ended.

    Example: recreate models fetch qwen2.5-coder-0.5b
    """
    import difflib

    from recreate.models import catalog

    name = name.removeprefix("local:") or catalog.default_name()
    known = catalog.catalog()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1, 0.4)
        raise BadInput(
            f"no local model is called {name!r}",
            fix=(f"did you mean {near[0]!r}? " if near else "") + f"there are: {', '.join(known)}",
            code="unknown-model",
        )
    before = catalog.state(name)
    started = time.monotonic()
    if before != "ready":
        goes_on = "going on with" if before == "partial" else "fetching"
        say(f"{goes_on} {name}, {known[name].size / 1e6:,.0f} MB ({known[name].license}), once")
    with Progress(name) as progress:
        path = catalog.fetch_model(name, progress=progress, say=say)
    seconds = time.monotonic() - started
    if as_json:
        emit(
            {
                "name": name,
                "state": STATES[catalog.state(name)],
                "path": str(path),
                "size": known[name].size,
                "sha256": known[name].sha256,
                "fetched": before != "ready",
                "seconds": round(seconds, 2),
            }
        )
        return
    show(f"{name} was here already: {path}" if before == "ready" else f"{name}: {path} ({seconds:.0f} s)")


class Progress:
    """Bytes, share and speed on stderr: a line that overwrites itself on a terminal, else one every 10 s."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.live = sys.stderr.isatty()
        self.began: tuple[float, int] | None = None
        self.told = 0.0
        self.open = False

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if self.began is None:
            self.began = (now, done)
            self.told = now if not self.live else 0.0
        last = total is not None and done >= total
        if not last and now - self.told < (0.2 if self.live else 10.0):
            return
        self.told = now
        seconds = now - self.began[0]
        speed = f", {(done - self.began[1]) / seconds / 1e6:.1f} MB/s" if seconds > 0.5 else ""
        of = f" of {total / 1e6:,.0f} MB ({done / total:.0%})" if total else " MB"
        text = f"{self.name}: {done / 1e6:,.0f}{of}{speed}"
        if self.live:
            sys.stderr.write(f"\r{text:<76}")
            sys.stderr.flush()
            self.open = True
        else:
            say(text)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.open:
            say()

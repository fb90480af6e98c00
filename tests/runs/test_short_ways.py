"""What is done often is done a short way; it gives what the long way gives."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from recreate.storage.log import encode
from recreate.storage.redact import redact


@given(
    st.text(st.characters(), max_size=50),
    st.sampled_from(["sk-" + "a" * 20, "ghp_" + "b" * 30, "AKIA" + "C" * 16]),
)
def test_a_key_is_masked_whatever_stands_around_it(text: str, key: str) -> None:
    assert key not in redact(f"{text} {key} {text}")
    assert key not in redact(f"\ud800{text} {key}")


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.floats(allow_nan=False)
        | st.integers()
        | st.text(st.characters(exclude_categories=())),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        max_leaves=6,
    )
)
def test_lines_are_json(value: object) -> None:
    assert json.loads(encode(value)) == value

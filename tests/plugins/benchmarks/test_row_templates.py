"""The examples of `recreate init --template` whose scorers plug-ins bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.templates.test_row_templates import (
    test_an_example_holds_and_builds_by_what_is_told_to_type as check_example,
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["code", "sql"])
def test_an_example_with_a_scorer_of_a_plug_in_holds(
    workspace: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    check_example(workspace, capsys, kind)

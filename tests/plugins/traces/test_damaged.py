"""What the commands of traces say of a damaged run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recreate.storage.log import seal
from tests.lab.crash.trial import RUN
from tests.runs import test_damaged
from tests.runs.test_damaged import Type, attempts, ends_the_same, flip, half

here = test_damaged.here
type_in = test_damaged.type_in
whole = test_damaged.whole


def passed(file: Path) -> None:
    file.write_text(file.read_text().replace('"passed":false', '"passed":true '))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["experience.json", "steps.jsonl"])
@pytest.mark.parametrize("damage", [half, flip, passed, Path.unlink])
def test_a_damaged_attempt_is_put_back_from_memory(
    here: Path, type_in: Type, name: str, damage: Callable[[Path], object]
) -> None:
    folder = next(p for p in attempts(here, split="train"))
    before = (folder / name).read_bytes()
    damage(folder / name)
    if (folder / name).exists() and (folder / name).read_bytes() != before:
        code, told = type_in("traces", "show", folder.name, "--run", RUN)
        assert (code, told["error"]["code"]) == (2, "damaged")
        assert f"recreate resume {RUN}" in told["error"]["fix"]
    (here / RUN / "checkpoint.sqlite").unlink()
    ends_the_same(here, type_in)
    code, told = type_in("traces", "show", folder.name, "--run", RUN)
    assert (code, len(told["steps"])) == (0, 2)


def test_a_step_with_other_fields_is_passed_over_in_a_study_and_damages_an_attempt(
    here: Path, type_in: Type
) -> None:
    lines = seal({"step": 0, "action": "look"}) + seal({"step": "?", "action": 3})
    study = here / RUN / "studies" / "a1" / "steps.jsonl"
    study.parent.mkdir(parents=True)
    study.write_bytes(lines)
    code, told = type_in("studies", "show", "a1", "--run", RUN)
    assert (code, [step["action"] for step in told["steps"]]) == (0, ["look"])
    folder = next(p for p in attempts(here, split="train"))
    (folder / "steps.jsonl").write_bytes(lines)
    code, told = type_in("traces", "show", folder.name, "--run", RUN)
    assert (code, told["error"]["code"]) == (2, "damaged")

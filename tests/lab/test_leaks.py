"""The evidence on leaks in its smallest form: what is planted is found, advice is let pass, and
every Python says the same."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from recreate.api.types import digest
from tests.lab.evidence import leaks as evidence


@pytest.fixture(scope="module")
def planted() -> list[evidence.Case]:
    return evidence.planted("tuning", 100)


@pytest.mark.parametrize("kind", ["id", "name", "test", "path", "phrase", "answer line", "canary"])
@pytest.mark.slow
def test_planted_leaks_of_the_tasks_that_ship_are_found_and_shown(
    kind: str, planted: list[evidence.Case]
) -> None:
    cases = [case for case in planted if case.what.startswith(kind)]
    missed = [
        case
        for case, why in zip(cases, evidence.verdicts(cases), strict=True)
        if not evidence.shown(case, why)
    ]
    assert len(cases) >= 10
    assert missed == []


def test_advice_is_refused_in_no_domain_that_ships() -> None:
    texts = [
        evidence.Case(world, "", "", [("system.md", "\n".join(ADVICE))])
        for world in evidence.worlds()
    ]
    assert [found for found in evidence.verdicts(texts) if found] == []


ADVICE = evidence.advice("tuning")


@pytest.mark.slow
def test_the_verdicts_are_the_same_on_every_python_that_is_here() -> None:
    """As optimised code, with another hash seed, and by another Python where one has our
    packages."""
    cases = evidence.planted("tuning", 60)
    cases += [
        evidence.Case(world, "", "", [("system.md", line)])
        for world in ("swe", "functions")
        for line in ADVICE
    ]
    here = digest(evidence.verdicts(cases))
    assert evidence.elsewhere(cases, sys.executable, ["-OO"], "7")[1] == here
    for python in filter(None, map(shutil.which, ("python3.12", "python3.13", "python3.14"))):
        if (
            subprocess.run(
                [python, "-c", "import pydantic, jinja2"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            assert evidence.elsewhere(cases, python, [], "8")[1] == here

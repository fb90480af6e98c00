"""The suites that make the rows of docs/results.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.agents.scaffold import load
from recreate.api.paths import shipped
from recreate.plugins.bench.suite import read_suite


@pytest.mark.parametrize(
    ("domain", "file", "steps"),
    [
        ("code", "results.toml", 5),
        ("math", "results.toml", 5),
        ("code", "humaneval.toml", 6),
        ("code", "humanevalfix.toml", 6),
        ("code", "both.toml", 6),
        ("dacode", "results.toml", 2),
    ],
)
def test_a_suite_of_the_results_names_shipped_agents_and_their_limits(
    domain: str, file: str, steps: int, tmp_path: Path
) -> None:
    found = read_suite(shipped("benchmarks") / domain / file, tmp_path, {}, {})
    agents = [load(shipped("scaffolds") / name).agent for name in found.scaffolds]
    assert {(agent.domain, agent.samples) for agent in agents} == {(domain, 1)}
    assert (found.split, found.settings.limits.steps) == ("test", steps)


@pytest.mark.parametrize("domain", ["swe", "ds1000", "apiworld"])
def test_a_suite_measures_what_a_person_wrote_for_small_models_beside_the_seed(
    domain: str, tmp_path: Path
) -> None:
    found = read_suite(shipped("benchmarks") / domain / "small.toml", tmp_path, {}, {})
    seed, hand = [load(shipped("scaffolds") / name) for name in found.scaffolds]
    assert (seed.name.startswith("seed-"), hand.name) == (True, f"hand-{domain}-small")
    assert (found.split, {seed.agent.domain, hand.agent.domain}) == ("train", {domain})


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("built-code-small", "d061e88272123fc6"),
        ("built-codefix-small", "c16f9367cafc3615"),
        ("built-codemix-small", "75f7faf618b2b4c1"),
        ("built-dacode-small", "60a7d940e403956d"),
    ],
)
def test_an_agent_that_a_build_wrote_is_the_one_that_was_measured(name: str, digest: str) -> None:
    """docs/results.md names it by this digest."""
    assert load(shipped("scaffolds") / name).digest == digest

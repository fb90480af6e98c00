"""A limit on turns is learnt from attempts that were made, and what it would have lost is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.cli import run as cli
from recreate.plugins.measuring.turns import Taken, limits
from tests.toy import SIZES

ATTEMPTS = st.lists(
    st.builds(
        lambda passed, tokens: Taken(passed=passed, turns=len(tokens), tokens=tuple(tokens)),
        st.booleans(),
        st.lists(st.integers(0, 1000), min_size=1, max_size=12),
    ),
    max_size=30,
)


@given(ATTEMPTS, st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5))
def test_what_a_limit_keeps_and_costs_is_what_counting_says(
    attempts: list[Taken], percentiles: list[float]
) -> None:
    table = limits(attempts, sorted(percentiles))
    assert bool(table) == any(a.passed for a in attempts)
    for row in table:
        ended = [a for a in attempts if a.turns <= row.steps]
        assert len(ended) == row.ended >= row.percentile * len(attempts)
        assert len([a for a in attempts if a.turns < row.steps]) < row.percentile * len(attempts)
        assert row.kept == sum(a.passed for a in ended) / sum(a.passed for a in attempts)
        assert row.lo - 1e-9 <= row.kept <= row.hi + 1e-9
        cut = sum(sum(a.tokens[row.steps :]) for a in attempts)
        assert row.tokens * sum(sum(a.tokens) for a in attempts) == pytest.approx(
            sum(sum(a.tokens) for a in attempts) - cut
        )
    assert [row.steps for row in table] == sorted(row.steps for row in table)
    assert all(row.kept == 1 for row in limits(attempts, [1.0]))


def attempted(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run in which the agent passes one of eight tasks after 2 turns, one after 5, and hands in
    others after 3."""
    lines = []
    for n in range(SIZES["validation"]):
        task, turns = f"toy:validation:{n}", {0: 2, 1: 5}.get(n, 3)
        word = f"w{n}!" if n < 2 else "wrong"
        rows = [{"step": 0, "text": f"```bash\nprintf %s '{word}' > answer.txt\n```"}]
        rows += [{"step": s, "text": "```bash\ntrue\n```"} for s in range(1, turns - 1)]
        rows += [{"step": turns - 1, "text": "```bash\nsubmit\n```"}]
        lines += [json.dumps({"role": "agent", "task": task, **row}) + "\n" for row in rows]
    (workspace / "s.jsonl").write_text("".join(lines))
    shutil.copytree(shipped("scaffolds") / "seed", workspace / "scaffolds" / "mine")
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        f"scripted:{workspace / 's.jsonl'}",
        "--sandbox",
        "none",
    ]
    bench = [
        "bench",
        *flags,
        "--scaffold",
        "mine",
        "--tasks",
        "8",
        "--out",
        "runs/b",
        "--jobs",
        "1",
    ]
    assert cli([*bench, "--json"]) == 0
    capsys.readouterr()
    return workspace / "scaffolds" / "mine"


def test_limits_says_what_a_lower_limit_keeps_and_writes_it_with_an_extension(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = attempted(workspace, capsys)
    before = scaffolds.load(folder).agent.limits
    assert cli(["turn-limit", "b", "--write", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (agent,) = said["agents"]
    assert agent["attempts"] == 8
    rows = {row["percentile"]: row for row in agent["limits"]}
    assert {p: row["steps"] for p, row in rows.items()} == {
        0.25: 3,
        0.5: 3,
        0.75: 3,
        0.9: 5,
        1.0: 5,
    }
    assert (rows[0.75]["kept"], rows[1.0]["kept"]) == (0.5, 1.0)
    assert rows[0.75]["tokens"] < rows[1.0]["tokens"] == 1.0
    after = scaffolds.load(folder).agent.limits
    assert (after.steps, after.extension, after.turns) == (3, before.turns - 3, before.turns)
    assert cli(["limits", "b"]) == 0
    told = capsys.readouterr().out
    assert "25% of attempts" not in told, "of several percentiles at one limit the highest is said"
    assert "75% of attempts" in told
    assert "50% [" in told
    assert cli(["limits", "b", "--write", str(folder)]) == 2, (
        "these attempts are of the agent as it was"
    )
    assert "one of its runs" in capsys.readouterr().err


def test_a_limit_that_saves_nothing_says_so(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = attempted(workspace, capsys)
    file = folder / "agent.toml"
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        f"scripted:{workspace / 's.jsonl'}",
        "--sandbox",
        "none",
    ]
    file.write_text(
        scaffolds.load(folder).limited({"steps": 5, "extension": 0}).files["agent.toml"]
    )
    assert (
        cli(
            [
                "bench",
                *flags,
                "--scaffold",
                "mine",
                "--tasks",
                "8",
                "--out",
                "runs/c",
                "--jobs",
                "1",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert cli(["limits", "c", "--percentile", "1.0", "--write", str(folder)]) == 0
    assert (
        "steps = 5, extension = 0: 100% of attempts need all its turns" in capsys.readouterr().out
    )


def test_limits_are_not_written_where_nothing_passed(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = attempted(workspace, capsys)
    script = workspace / "failing.jsonl"
    script.write_text(
        (workspace / "s.jsonl").read_text().replace("w0!", "wrong").replace("w1!", "wrong")
    )
    flags = ["--domain", "tests.toy:Toy", "--model", f"scripted:{script}", "--sandbox", "none"]
    assert (
        cli(
            [
                "bench",
                *flags,
                "--scaffold",
                "mine",
                "--tasks",
                "8",
                "--out",
                "runs/c",
                "--jobs",
                "1",
            ]
        )
        == 0
    )
    capsys.readouterr()
    before = (folder / "agent.toml").read_bytes()
    assert cli(["limits", "c", "--write", str(folder)]) == 2
    assert "no attempt of mine passed" in capsys.readouterr().err
    assert (folder / "agent.toml").read_bytes() == before


def test_limits_of_a_run_without_attempts_or_passes_is_no_table(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attempted(workspace, capsys)
    for file in (workspace / "runs/b/attempts").glob("*"):
        shutil.rmtree(file)
    assert cli(["limits", "b"]) == 2
    assert "recreate calibrate" in capsys.readouterr().err

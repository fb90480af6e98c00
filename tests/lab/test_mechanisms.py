"""Each row of `python -m tests.lab.league --mechanisms`, in a world or two: what the mechanism
does, and what it costs."""

from __future__ import annotations

import pytest

from tests.lab.mechanisms import MECHANISMS, ROWS, Row, difference, play, table

PROGRAMS = ("ReEx-SQL", "SCALER", "AutoEnv", "EvoCUA")
"""Mechanisms in whose worlds programs have to run."""
LOSSES = [row for row in ROWS if row.world.startswith("loss: ")]
NEEDED = {
    name: [row for row in ROWS if row.mechanism == name and row not in LOSSES]
    for name in MECHANISMS
}
MIDDLING = [rows[len(rows) // 2] for rows in NEEDED.values()]
QUICK = [row for row in ROWS if row in (*MIDDLING, *LOSSES) and row.mechanism not in PROGRAMS]


def named(row: Row) -> str:
    return f"{row.mechanism}: {row.world}"


def comes_out_as_said(row: Row, worlds: int) -> None:
    found = [play(ROWS.index(row), n) for n in range(worlds)]
    for what, sign in enumerate((row.share, row.took)):
        _, _, diff, _ = difference(found, what)
        if sign == 0:
            assert abs(diff) <= 0.2, row.names[what]
        elif sign is not None:
            assert diff * sign > 0, (row.names[what], diff)


@pytest.mark.parametrize("row", QUICK, ids=named)
@pytest.mark.slow
def test_a_mechanism_gains_where_it_is_needed_and_costs_or_harms_where_it_is_not(row: Row) -> None:
    comes_out_as_said(row, worlds=1)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ROWS if row not in QUICK], ids=named)
def test_so_does_every_other_row(row: Row) -> None:
    comes_out_as_said(row, worlds=3)


def test_every_mechanism_has_a_world_that_needs_it_and_one_that_does_not() -> None:
    assert {row.mechanism for row in LOSSES} == set(MECHANISMS)
    for row in ROWS:
        needed = row not in LOSSES
        gains = row.share == 1 or row.took == -1
        loses = row.share in (0, -1) and (row.share, row.took) != (0, -1)
        assert gains if needed else loses, named(row)


def test_the_table_has_both_differences_with_their_paired_intervals() -> None:
    found = [
        {"row": 0, "number": n, "off": [n % 2, 100.0], "on": [1.0, 150.0 + n]} for n in range(10)
    ]
    (line,) = table(found).splitlines()[2:]
    assert line.startswith(
        f"| {ROWS[0].mechanism} | {ROWS[0].world} | solved | 0.50 | 1.00 | +0.50 [+0.19, +0.81] |"
    )
    assert "| tokens | 100 | 154 | +54 [+53, +56] |" in line

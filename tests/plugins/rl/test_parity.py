"""Our parts give the published numbers, and parity says so when they do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.rl import parity

pytestmark = pytest.mark.rl
GOLDEN = Path(__file__).parent / "golden"


def run(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, list[dict[str, Any]]]:
    code = parity.main([*map(str, paths), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_golden_file_is_reproduced(capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = run(capsys, GOLDEN)
    assert code == 0
    assert len(rows) == len(list(GOLDEN.glob("*.json")))
    assert sum(row["cases"] for row in rows) >= 100
    for row in rows:
        assert {"method", "cases", "max_abs", "max_rel", "mismatches", "excluded"} <= row.keys()
        assert row["excluded"] == sum(row["excluded_because"].values())


@pytest.mark.parametrize("empty", [[], [[], []]])
def test_a_rollout_without_latent_steps_is_compared_as_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], empty: list[Any]
) -> None:
    """JSON keeps no shape of nothing: for two rows it is [] or [[], []]."""
    data = json.loads((GOLDEN / "lepo.json").read_text())
    case = data["rollout_cases"][0]
    case["inputs"]["generation"]["latent_length"] = 0
    case["checks"] = {"n_new": 8, "latent_topk_prob_mass": empty}
    (tmp_path / "lepo.json").write_text(json.dumps({**data, "rollout_cases": [case]}))
    code, rows = run(capsys, tmp_path)
    assert (code, rows[0]["mismatched"]) == (0, [])
    # something where there is nothing is no agreement
    case["checks"]["latent_topk_prob_mass"] = [[1.0], [1.0]]
    (tmp_path / "lepo.json").write_text(json.dumps({**data, "rollout_cases": [case]}))
    assert run(capsys, tmp_path)[0] == 1


def _nudged(value: Any) -> Any:
    if isinstance(value, list) and value:
        return [_nudged(value[0]), *value[1:]]
    return value + 0.01


@pytest.mark.parametrize(
    ("file", "where"),
    [
        ("grpo.json", ("policy_loss_cases", 0, "outputs", "grad_log_prob")),
        ("grpo.json", ("trl_advantage_cases", 0, "outputs", "grpo_scale_batch")),
        ("gapo.json", ("interval_cases", 0, "outputs", "median")),
        ("steer.json", ("cases", 0, "outputs", "token_weights_min")),
        ("lepo.json", ("loss_cases", 0, "outputs", "grad_logits")),
        ("gigpo.json", ("cases", 0, "outputs", "advantages")),
        ("a2r_properties.json", ("divergence_cases", 0, "D_k3")),
    ],
)
def test_a_wrong_number_is_a_mismatch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, where: tuple[Any, ...]
) -> None:
    data = json.loads((GOLDEN / file).read_text())
    at = data
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = _nudged(at[where[-1]])
    (tmp_path / file).write_text(json.dumps(data))
    code, rows = run(capsys, tmp_path / file)
    assert (code, rows[0]["mismatches"]) == (1, 1)


def test_names_of_cases_and_of_files_decide_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n, file in enumerate(sorted(GOLDEN.glob("*.json"))):
        data = json.loads(file.read_text())
        for cases in data.values():
            for i, case in enumerate(cases if isinstance(cases, list) else []):
                if (
                    isinstance(case, dict)
                    and "name" in case
                    and not data["method"].startswith("A2R")
                ):
                    case["name"] = f"case {i}"
        (tmp_path / f"{n}.json").write_text(json.dumps(data))
    assert run(capsys, tmp_path)[0] == 0


def test_an_unknown_method_and_zero_cases_are_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.json").write_text('{"method": "PPO2", "cases": [{"inputs": {}}]}')
    code, said = run(capsys, tmp_path / "odd.json")
    assert code == 2
    assert "unknown method 'PPO2'" in said[0]["error"]["message"]
    (tmp_path / "none.json").write_text('{"method": "GAPO", "advantage_cases": []}')
    code, said = run(capsys, tmp_path / "none.json")
    assert code == 2
    assert "zero cases" in said[0]["error"]["message"]
    (tmp_path / "empty").mkdir()
    assert run(capsys, tmp_path / "empty")[0] == 2

"""What is printed for the user to type works where it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.api import paths

CLONE = Path(paths.__file__).parents[2]


def test_in_a_clone_an_extra_is_installed_from_the_clone(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert paths.install("rl") == f"pip install -e '{CLONE}[rl]'"
    assert paths.upgrade() == f"git -C {CLONE} pull"
    monkeypatch.chdir(CLONE)
    assert paths.install("rl") == "pip install -e '.[rl]'"


def test_elsewhere_it_is_installed_under_our_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "SHARE", tmp_path)
    assert paths.install("memory") == "pip install 'recreate-agents[memory]'"
    assert paths.upgrade() == "pip install --upgrade recreate-agents"

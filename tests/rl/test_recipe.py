"""A recipe is read strictly, says what is wrong with it, and needs no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.cli import run as cli
from recreate.rl import recipe

HEAD = 'about = "a"\nsource = "b"\n'
PROMISED = {
    *("grpo", "dr-grpo", "rloo", "dapo", "gspo", "gigpo", "gapo", "gapo+steer+a2r", "lepo"),
    *("sft-on-successes", "simpo-on-pairs"),
}


def read(text: str) -> recipe.Recipe:
    return recipe.read(HEAD + text, name="mine", where="mine.toml")


def test_the_promised_recipes_are_there() -> None:
    assert set(recipe.names()) == PROMISED


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_a_recipe_is_short_and_says_where_it_comes_from(name: str) -> None:
    found = recipe.load(name)
    assert found.name == name
    assert "arXiv" in found.source
    assert len((recipe.FOLDER / f"{name}.toml").read_text().splitlines()) <= 40
    assert found.name_of("aggregate")


def test_recipes_are_read_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['numpy'] = None\n"
        "from recreate.rl.recipe import load, names\n"
        "print(len([load(n) for n in names()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(len(PROMISED)), done.stderr


def test_a_slot_that_no_part_fills_is_plain_grpo() -> None:
    empty, plain = read(""), recipe.load("grpo")
    assert all(empty.part(slot) == plain.part(slot) for slot in recipe.SLOTS)
    assert empty.part("token weight") is None


@pytest.mark.parametrize(
    ("tables", "slot"),
    [
        ("[grpo]\n[gapo]\n", "advantage"),
        ("[clip]\n[cispo]\n", "policy loss"),
        ("[token-ratio]\n[sequence-ratio]\n", "ratio"),
        ("[simpo]\n[steer]\n", "token weight"),
        ("[log-likelihood]\n[clip]\n", "policy loss"),
        ("[successes]\n[dynamic-sampling]\n", "filter"),
        ("[token-mean]\n[sequence-mean]\n", "aggregate"),
    ],
)
def test_two_parts_in_one_slot_are_refused_by_name(tables: str, slot: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(tables)
    assert caught.value.code == "slot-taken"
    first, second = tables.split()
    assert first in caught.value.message
    assert second in caught.value.message
    assert repr(slot) in caught.value.message


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        ("[gappo]\n", "there is no part 'gappo'", "'gapo'"),
        ("[gapo]\nfracton = 0.5\n", "[gapo]: there is no key 'fracton'", "'fraction'"),
        ("[train]\ngroupsize = 4\n", "[train]: there is no key 'groupsize'", "'group_size'"),
        ("abot = 1\n", "there is no key 'abot'", "'about'"),
        ("[gapo]\nfraction = 0.0\n", "[gapo] fraction", "0.5"),
        ("[gapo]\nfraction = nan\n", "[gapo] fraction", "0.5"),
        ('[train]\ngroup_size = "8"\n', "[train] group_size", "8"),
        ("[overlong]\nmax_length = 8\nbuffer = 8\n", "every answer is penalised", "[overlong]"),
        ("[overlong]\nmax_length = 4096\nbuffer = 8\n", "above [train] max_response", "both to the same"),
        ("[gapo]\n[lepo]\n", "do not sum to 0", "centre = true"),
        ("[steer]\nleast = 0.9\nmost = 0.8\n", "must not be below", "[steer]"),
        ("[clip\n", "mine.toml", "mend the line"),
    ],
)
def test_a_wrong_recipe_says_where_and_what_to_type(text: str, said: str, fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(text)
    assert said in caught.value.message
    assert caught.value.message.startswith("mine.toml")
    assert fix in caught.value.fix


def test_a_recipe_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        recipe.load("gapo+steer")
    assert "did you mean 'gapo+steer+a2r'?" in caught.value.fix
    with pytest.raises(BadInput, match="no recipe file"):
        recipe.load(tmp_path / "none.toml")


def test_a_file_of_ones_own_is_a_recipe(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(HEAD + "[rloo]\n[steer]\nscope = 'mini'\n")
    mine = recipe.load(str(file))
    assert (mine.name, mine.name_of("advantage"), mine.name_of("token weight")) == ("mine", "rloo", "steer")
    with pytest.raises(BadInput, match="'source' is missing"):
        recipe.read('about = "a"\n', name="x")


def test_tune_without_its_extra_says_what_to_install(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    code = cli(["tune", "--recipe", "gapo", "--domain", "tests.toy:Toy", "--model", "./model", "--json"])
    said = json.loads(capsys.readouterr().out)["error"]
    assert (code, said["code"], said["fix"]) == (2, "missing", paths.install("rl"))

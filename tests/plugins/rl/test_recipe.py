"""A recipe is read strictly, says what is wrong with it, and needs no torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recreate.agents.config import AgentLimits
from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.types import Task
from recreate.builder.sdk import find_scaffold
from recreate.cli import run as cli
from recreate.plugins.rl import recipe
from recreate.plugins.rl.rollout import longest_context, refuse_if_too_long

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


@pytest.mark.slow
def test_recipes_are_read_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['numpy'] = None\n"
        "from recreate.plugins.rl.recipe import load, names\n"
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
        (
            "[overlong]\nmax_length = 4096\nbuffer = 8\n",
            "above [train] max_response",
            "both to the same",
        ),
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
    assert (mine.name, mine.name_of("advantage"), mine.name_of("token weight")) == (
        "mine",
        "rloo",
        "steer",
    )
    with pytest.raises(BadInput, match="'source' is missing"):
        recipe.read('about = "a"\n', name="x")


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_a_shipped_recipe_has_a_rate_for_each_way_to_train_and_batches_that_carry_a_gradient(
    name: str,
) -> None:
    """Papers train all weights; their rate moves an adapter by nothing."""
    lora, full = recipe.load(name), recipe.load(name, ("train.lora_rank=0",))
    assert lora.train.lora_rank == 16
    assert 1e-5 <= lora.train.rate <= 5e-4
    assert full.train.rate <= lora.train.rate / 10
    assert lora.cost["rows_of_an_optimizer_step"] >= 32
    assert lora.train.prompts // lora.train.mini_batches >= 4


def test_a_recipe_that_names_no_rate_has_one_by_how_it_trains() -> None:
    assert read("").train.rate == 1e-4
    assert read("[train]\nlora_rank = 0\n").train.rate == 1e-6
    assert read("[train]\nlearning_rate = 3e-5\nlora_rank = 0\n").train.rate == 3e-5


def test_a_value_can_be_set_without_a_file_of_ones_own() -> None:
    how = recipe.load(
        "grpo",
        (
            "train.lr=1e-5",
            "kl.weight=0.1",
            "a2r.temperature=median",
            'grpo.unscored="row"',
            "kl.straight=true",
        ),
    )
    assert how.train.rate == 1e-5
    assert how.part("penalty").model_dump() == {"weight": 0.1, "kind": "k3", "straight": True}  # type: ignore[union-attr]
    assert how.part("replay").temperature == "median"  # type: ignore[union-attr]
    assert how.part("advantage").unscored == "row"  # type: ignore[union-attr]
    assert (
        recipe.load("grpo", ("train.learning_rate={full = 1e-6, lora = 2e-4}",)).train.rate == 2e-4
    )
    assert recipe.load("grpo").train.rate == 1e-4  # what is shipped stays
    assert recipe.read(recipe.text_of(how), name="grpo") == how


@pytest.mark.parametrize(
    ("change", "said", "fix"),
    [
        ("train.lt=1e-4", "there is no key 'lt'", "did you mean 'lr'?"),
        ("train.groupsize=4", "there is no key 'groupsize'", "'group_size'"),
        ("trian.lr=1e-4", "there is no part 'trian'", "'train'"),
        ("clip.hihg=0.3", "[clip]: there is no key 'hihg'", "'high'"),
        ("train.lr=fast", "[train] learning_rate", "default"),
        ("train.lr=-1.0", "[train] learning_rate", "default"),
        ("gapo.fraction=0.5", "both fill the slot 'advantage'", "keep one"),
        ("lr=1e-4", "not PART.KEY=VALUE", "--set train.lr=1e-4"),
        ("train.lr", "not PART.KEY=VALUE", "--set train.lr=1e-4"),
        ("train.lr=", "not PART.KEY=VALUE", "--set train.lr=1e-4"),
    ],
)
def test_a_value_that_cannot_be_set_names_what_is_near(change: str, said: str, fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        recipe.load("grpo", (change,))
    assert said in caught.value.message
    assert fix in caught.value.fix
    with pytest.raises(BadInput, match="both 'lr' and 'learning_rate'"):
        read("[train]\nlr = 1e-4\nlearning_rate = 1e-4\n")


def test_recipes_are_listed_and_shown(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*words: str) -> tuple[int, str]:
        code = cli(["recipes", *words])
        return code, capsys.readouterr().out

    code, text = call("list", "--json")
    rows = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert {row["name"] for row in rows} == PROMISED
    assert all({"method", "source", "slots", "cost"} <= row.keys() for row in rows)
    assert all(row["slots"].keys() <= recipe.SLOTS.keys() for row in rows)
    assert "16 x 8" in next(row["source"] for row in rows if row["name"] == "gigpo")
    assert call("list")[1].count("attempts a step") == len(PROMISED)
    _, text = call(
        "show", "gapo", "--set", "train.prompts=8", "--set", "train.lora_rank=0", "--json"
    )
    shown = json.loads(text)
    assert shown["slots"]["advantage"] == "gapo"
    assert shown["cost"]["attempts"] == 64
    assert shown["cost"]["learning_rate"] == 1e-6
    assert shown["recipe"]["train"]["prompts"] == 8
    assert "64%" in shown["pass_fail"][0]
    _, text = call("show", "gapo")
    assert "where rewards are 0 and 1 only" in text
    assert (
        recipe.read(HEAD + text[text.index("[train]") :], name="gapo").parts
        == recipe.load("gapo").parts
    )
    code = cli(["recipes", "show", "gappo", "--json"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["code"]) == (2, "unknown-recipe")
    assert "'gapo'" in error["fix"]


def test_help_of_tune_speaks_of_what_tune_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["tune", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "a folder that transformers reads",
        "recreate recipes list",
        "PART.KEY=VALUE",
        "given up",
    ):
        assert words in text
    for words in ("litellm:", "scripted:", "usd", "`create`", "build studies"):
        assert words not in text
    with pytest.raises(BadInput, match="no part"):
        recipe.load("grpo", ("kll.weight=1.0",))


@pytest.mark.parametrize(
    ("steps", "tokens", "needs"),
    [(1, 1000, 60), (3, 1000, 240), (100, 1000, 420), (100, 1, 60), (2, 10**6, 150)],
)
def test_the_context_that_a_scaffolds_limits_ask_for(steps: int, tokens: int, needs: int) -> None:
    """A prompt of 50, replies of 10 and 80 shown after each: 60, 150, 240, ... until the attempt's
    tokens are used."""
    limits = AgentLimits(steps=steps, tokens=tokens)
    assert longest_context(limits, 50, 10, 80) == needs


def test_limits_that_the_context_cannot_hold_are_refused_with_what_would_fit() -> None:
    seed = find_scaffold("seed", Path())
    task = Task(id="d:s:1", domain="d", prompt="x" * 4000, split="train", group="g")
    how = recipe.load("grpo")
    with pytest.raises(BadInput) as caught:
        refuse_if_too_long(seed, [task], how)
    assert caught.value.code == "context-too-small"
    assert "100 turns" in caught.value.message
    need = int(re.search(r"train.max_prompt=(\d+)", caught.value.fix)[1])  # type: ignore[index]
    refuse_if_too_long(seed, [task], recipe.load("grpo", (f"train.max_prompt={need}",)))
    with pytest.raises(BadInput):
        refuse_if_too_long(seed, [task], recipe.load("grpo", (f"train.max_prompt={need - 1}",)))
    with pytest.raises(BadInput) as caught:  # the model itself reads no more
        refuse_if_too_long(
            seed, [task], recipe.load("grpo", (f"train.max_prompt={need}",)), window=8192
        )
    assert "8192 is all that the model reads" in caught.value.message
    assert "max_prompt" not in caught.value.fix
    turns = int(re.search(r"steps = (\d+)", caught.value.fix)[1])  # type: ignore[index]
    assert 1 <= turns < 5


def test_tune_without_its_extra_says_what_to_install(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    code = cli(
        ["tune", "--recipe", "gapo", "--domain", "tests.toy:Toy", "--model", "./model", "--json"]
    )
    said = json.loads(capsys.readouterr().out)["error"]
    assert (code, said["code"], said["fix"]) == (2, "missing", paths.install("rl"))

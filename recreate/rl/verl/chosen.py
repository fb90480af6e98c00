"""The recipe that this process trains with: every process of a verl job is told by a variable."""

from __future__ import annotations

import os
from functools import lru_cache

from recreate.api.errors import BadInput
from recreate.rl import recipe
from recreate.rl.method import Method
from recreate.rl.recipe import Recipe
from recreate.rl.verl.translate import RECIPE, refuse


def chosen() -> Recipe:
    """Raises BadInput when no recipe is named, or one that verl cannot train."""
    named = os.environ.get(RECIPE, "")
    if not named:
        raise BadInput(
            f"{RECIPE} is not set, so it is not known which recipe verl trains with",
            fix=f"set {RECIPE} to a recipe's name or file in every process: run.sh of a run folder does",
            code="no-recipe",
        )
    return _read(named)


def method() -> Method:
    """The recipe's parts, without the penalty: verl adds that to the loss itself, by its own config."""
    how = chosen()
    return Method(how.model_copy(update={"parts": {k: v for k, v in how.parts.items() if "penalty" not in v.slots}}))


@lru_cache(maxsize=8)
def _read(named: str) -> Recipe:
    how = recipe.load(named)
    refuse(how)
    return how


def expect(slot: str, part: str) -> None:
    """Raises BadInput (`another-part`) unless it is this part that fills the slot of the recipe."""
    how = chosen()
    if how.name_of(slot) != part:
        raise BadInput(
            f"verl asks for {part}, and in the slot {slot!r} of the recipe {how.name} stands {how.name_of(slot)}",
            fix=f"take recreate_{how.name_of(slot).replace('-', '_')} in verl's config, or another recipe",
            code="another-part",
        )

"""Who proposes edits, and who learns lessons, where nobody says: by the optimizer's model."""

from __future__ import annotations

from typing import NamedTuple

from recreate.api import plugins
from recreate.api.ports import Model
from recreate.runs.settings import DRAWN, Settings


class Chosen(NamedTuple):
    """Settings that name an optimizer and a memory policy, and why these were taken; '' where
    somebody named them."""

    settings: Settings
    optimizer: str = ""
    policy: str = ""

    def notes(self) -> list[str]:
        """Return each choice that was made, with its reason."""
        made = (
            ("optimizer", self.settings.optimizer, self.optimizer),
            ("lessons", self.settings.memory.policy, self.policy),
        )
        return [f"{what} {name}: {why}" for what, name, why in made if why]


def with_defaults(
    settings: Settings, model: Model, *, optimizer: bool = True, policy: bool = True
) -> Chosen:
    """Choose an optimizer and a policy where none is named.

    optimizer, policy: False where none is chosen, since it is an object, or there is nothing for it
    to do.
    """
    proposes = learns = ""
    if optimizer and not settings.optimizer:
        name, proposes = choose_optimizer(model)
        settings = settings.model_copy(update={"optimizer": name})
    if policy and not settings.memory.is_named:
        name, learns = choose_policy(settings, model)
        settings = settings.learning(name)
    return Chosen(settings, proposes, learns)


def choose_optimizer(model: Model) -> tuple[str, str]:
    """Return (who proposes edits, why): the agent for a hosted model or an endpoint, the one
    structured call for what runs on this machine. An address does not say how strong a model is,
    also not 127.0.0.1, where gateways to hosted ones listen as well as llama.cpp; so what was taken
    is said."""
    kinds = {"litellm:": "a hosted model", "openai:": "an endpoint"}
    kind = next((kind for prefix, kind in kinds.items() if model.name.startswith(prefix)), "")
    if kind:
        return "recreate", (
            f"the default, since {model.name} is {kind}; --optimizer reflect suits a small model"
            " better"
        )
    return "reflect", (
        f"the default, since {model.name} may be a small model; --optimizer recreate is for strong"
        " ones"
    )


def choose_policy(settings: Settings, model: Model) -> tuple[str, str]:
    """Return (who learns lessons in a build, why): the policy whose evidence is nearly free, where
    the model that writes lessons is taken for a strong one and nobody chose `reflect` for it. Not
    where the build is recorded: a replay has no lessons of other builds."""
    learns = f"--memory {DRAWN} learns lessons"
    if DRAWN not in plugins.names("policy"):
        return "none", f"the default where the policy {DRAWN} is not installed"
    if settings.record:
        return "none", f"the default where a build is recorded; {learns}"
    if choose_optimizer(model)[0] == "recreate" and settings.optimizer != "reflect":
        return DRAWN, "the default; --memory none learns no lessons"
    return "none", f"the default, since {model.name} may be a small model; {learns}"

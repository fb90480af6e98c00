"""recreate: LLM agents for a domain, created from experience.

    verbs   build, run, bench
    nouns   Task, Step, Trace, Grade, Experience, Lesson, Scaffold, Edit, Study, Verdict, Revision, ...
    ports   Model, Sandbox, Rung, Domain, Provable, Memory, MemoryPolicy, Embedder, Optimizer
    errors  RecreateError and its kinds

This is the table of contents: what is listed here stays. Names are found when they are first used, so that
importing recreate costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recreate.errors import BadInput as BadInput
    from recreate.errors import CheckFailed as CheckFailed
    from recreate.errors import Fault as Fault
    from recreate.errors import Interrupted as Interrupted
    from recreate.errors import Missing as Missing
    from recreate.errors import OutOfBudget as OutOfBudget
    from recreate.errors import RecreateError as RecreateError
    from recreate.errors import Refused as Refused
    from recreate.errors import Transient as Transient
    from recreate.memory import Workspace as Workspace
    from recreate.optimizers.materials import Materials as Materials
    from recreate.ports import Domain as Domain
    from recreate.ports import Embedder as Embedder
    from recreate.ports import Hit as Hit
    from recreate.ports import Limits as Limits
    from recreate.ports import Memory as Memory
    from recreate.ports import MemoryPolicy as MemoryPolicy
    from recreate.ports import Model as Model
    from recreate.ports import Optimizer as Optimizer
    from recreate.ports import Price as Price
    from recreate.ports import Provable as Provable
    from recreate.ports import Rung as Rung
    from recreate.ports import Sandbox as Sandbox
    from recreate.scaffold import Scaffold as Scaffold
    from recreate.sdk import Cell as Cell
    from recreate.sdk import Outcome as Outcome
    from recreate.sdk import bench as bench
    from recreate.sdk import build as build
    from recreate.sdk import run as run
    from recreate.settings import Settings as Settings
    from recreate.types import Call as Call
    from recreate.types import Change as Change
    from recreate.types import Edit as Edit
    from recreate.types import Evidence as Evidence
    from recreate.types import Experience as Experience
    from recreate.types import Gain as Gain
    from recreate.types import Grade as Grade
    from recreate.types import Lesson as Lesson
    from recreate.types import Message as Message
    from recreate.types import Output as Output
    from recreate.types import Reply as Reply
    from recreate.types import Review as Review
    from recreate.types import Revision as Revision
    from recreate.types import Split as Split
    from recreate.types import Step as Step
    from recreate.types import Study as Study
    from recreate.types import Task as Task
    from recreate.types import ToolCall as ToolCall
    from recreate.types import Trace as Trace
    from recreate.types import Trial as Trial
    from recreate.types import Usage as Usage
    from recreate.types import Verdict as Verdict

__version__ = "0.1.0"

_WHERE = {
    "errors": "BadInput CheckFailed Fault Interrupted Missing OutOfBudget RecreateError Refused Transient",
    "memory": "Workspace",
    "optimizers.materials": "Materials",
    "ports": "Domain Embedder Hit Limits Memory MemoryPolicy Model Optimizer Price Provable Rung Sandbox",
    "scaffold": "Scaffold",
    "sdk": "Cell Outcome bench build run",
    "settings": "Settings",
    "types": "Call Change Edit Evidence Experience Gain Grade Lesson Message Output Reply Review Revision Split Step "
    "Study Task ToolCall Trace Trial Usage Verdict",
}
_HOME = {name: module for module, names in _WHERE.items() for name in names.split()}

__all__ = [
    "BadInput", "Call", "Cell", "Change", "CheckFailed", "Domain", "Edit", "Embedder", "Evidence", "Experience",
    "Fault", "Gain", "Grade", "Hit", "Interrupted", "Lesson", "Limits", "Materials", "Memory", "MemoryPolicy",
    "Message", "Missing", "Model", "Optimizer", "OutOfBudget", "Outcome", "Output", "Price", "Provable",
    "RecreateError", "Refused", "Reply", "Review", "Revision", "Rung", "Sandbox", "Scaffold", "Settings", "Split",
    "Step", "Study", "Task", "ToolCall", "Trace", "Transient", "Trial", "Usage", "Verdict", "Workspace", "bench",
    "build", "run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'recreate' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"recreate.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations"})

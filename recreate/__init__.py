"""recreate: LLM agents for a domain, created from experience.

    verbs   build, run, bench
    doors   domain: your rows as a domain; wrap: your agent as one of ours
    nouns   Task, Step, Trace, Grade, Experience, Lesson, Scaffold, Edit, Study, Verdict, Revision,
            ...
    ports   Agent, Model, Sandbox, SandboxBackend, Domain, Validatable, Memory, MemoryPolicy,
            Embedder, Optimizer
    errors  RecreateError and its kinds

This is the table of contents: what is listed here stays. Names are found when they are first used,
so that importing recreate costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recreate.agents.scaffold import Scaffold as Scaffold
    from recreate.agents.wrap import wrap as wrap
    from recreate.api.errors import BadInput as BadInput
    from recreate.api.errors import CheckFailed as CheckFailed
    from recreate.api.errors import Fault as Fault
    from recreate.api.errors import Interrupted as Interrupted
    from recreate.api.errors import Missing as Missing
    from recreate.api.errors import OutOfBudget as OutOfBudget
    from recreate.api.errors import RecreateError as RecreateError
    from recreate.api.errors import Refused as Refused
    from recreate.api.errors import Transient as Transient
    from recreate.api.ports import Agent as Agent
    from recreate.api.ports import Desk as Desk
    from recreate.api.ports import Domain as Domain
    from recreate.api.ports import Embedder as Embedder
    from recreate.api.ports import Hit as Hit
    from recreate.api.ports import Limits as Limits
    from recreate.api.ports import Memory as Memory
    from recreate.api.ports import MemoryPolicy as MemoryPolicy
    from recreate.api.ports import Model as Model
    from recreate.api.ports import Optimizer as Optimizer
    from recreate.api.ports import Price as Price
    from recreate.api.ports import Sandbox as Sandbox
    from recreate.api.ports import SandboxBackend as SandboxBackend
    from recreate.api.ports import Validatable as Validatable
    from recreate.api.types import Call as Call
    from recreate.api.types import Change as Change
    from recreate.api.types import Edit as Edit
    from recreate.api.types import Evidence as Evidence
    from recreate.api.types import Experience as Experience
    from recreate.api.types import Gain as Gain
    from recreate.api.types import Grade as Grade
    from recreate.api.types import Lesson as Lesson
    from recreate.api.types import Message as Message
    from recreate.api.types import Output as Output
    from recreate.api.types import Reply as Reply
    from recreate.api.types import Review as Review
    from recreate.api.types import Revision as Revision
    from recreate.api.types import Split as Split
    from recreate.api.types import Step as Step
    from recreate.api.types import Study as Study
    from recreate.api.types import Task as Task
    from recreate.api.types import ToolCall as ToolCall
    from recreate.api.types import Trace as Trace
    from recreate.api.types import Trial as Trial
    from recreate.api.types import Usage as Usage
    from recreate.api.types import Verdict as Verdict
    from recreate.builder.sdk import Outcome as Outcome
    from recreate.builder.sdk import bench as bench
    from recreate.builder.sdk import build as build
    from recreate.builder.sdk import run as run
    from recreate.domains.rows.domain import domain as domain
    from recreate.memory.store import ExperienceStore as ExperienceStore
    from recreate.optimizers.context import OptimizerContext as OptimizerContext
    from recreate.runs.results import BenchResult as BenchResult
    from recreate.runs.settings import Settings as Settings

__version__ = "0.2.0"

_WHERE = {
    "agents.wrap": "wrap",
    "agents.scaffold": "Scaffold",
    "api.errors": (
        "BadInput CheckFailed Fault Interrupted Missing OutOfBudget RecreateError Refused Transient"
    ),
    "api.ports": (
        "Agent Desk Domain Embedder Hit Limits Memory MemoryPolicy Model Optimizer Price Sandbox "
        "SandboxBackend Validatable"
    ),
    "api.types": (
        "Call Change Edit Evidence Experience Gain Grade Lesson Message Output Reply "
        "Review Revision Split Step Study Task ToolCall Trace Trial Usage Verdict"
    ),
    "runs.results": "BenchResult",
    "builder.sdk": "Outcome bench build run",
    "domains.rows.domain": "domain",
    "memory.store": "ExperienceStore",
    "optimizers.context": "OptimizerContext",
    "runs.settings": "Settings",
}
_HOME = {name: module for module, names in _WHERE.items() for name in names.split()}
__all__ = [
    "Agent",
    "BadInput",
    "BenchResult",
    "Call",
    "Change",
    "CheckFailed",
    "Desk",
    "Domain",
    "Edit",
    "Embedder",
    "Evidence",
    "Experience",
    "ExperienceStore",
    "Fault",
    "Gain",
    "Grade",
    "Hit",
    "Interrupted",
    "Lesson",
    "Limits",
    "Memory",
    "MemoryPolicy",
    "Message",
    "Missing",
    "Model",
    "Optimizer",
    "OptimizerContext",
    "OutOfBudget",
    "Outcome",
    "Output",
    "Price",
    "RecreateError",
    "Refused",
    "Reply",
    "Review",
    "Revision",
    "Sandbox",
    "SandboxBackend",
    "Scaffold",
    "Settings",
    "Split",
    "Step",
    "Study",
    "Task",
    "ToolCall",
    "Trace",
    "Transient",
    "Trial",
    "Usage",
    "Validatable",
    "Verdict",
    "bench",
    "build",
    "domain",
    "run",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'recreate' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"recreate.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations"})

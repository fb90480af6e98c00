"""`--agent`: an agent that exists already, in place of a scaffold."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from recreate.api.config import PluginSettings
from recreate.api.errors import BadInput


class AgentCommand(PluginSettings):
    """An agent that exists already: see recreate/plugins/foreign/README.md.

    command: what a shell runs in the sandbox; texts: patterns, below the current folder, of the
    files that may be edited; files: of those that it needs besides; venv: the folder of its Python
    environment.
    """

    short: ClassVar = {"agent": "command", "texts": "texts", "files": "files", "venv": "venv"}
    taken_by: ClassVar = frozenset({"attempt"})
    panel: ClassVar = "Agent"
    # what an agent's program is told in its sandbox, where it may run recreate itself
    variables: ClassVar = frozenset({"RECREATE_PROMPT_FILE", "RECREATE_AGENT"})

    command: str = Field(
        default="",
        description=(
            "An agent that exists already, as the command that starts it, in place of --scaffold;"
            " {prompt_file} stands for the file with the task's words."
        ),
    )
    texts: tuple[str, ...] = Field(
        default=(),
        description="Of --agent: patterns of the files that may be edited; repeatable.",
    )
    files: tuple[str, ...] = Field(
        default=(),
        description="Of --agent: patterns of the files that it needs besides; repeatable.",
    )
    venv: str = Field(
        default="",
        description="Of --agent: the folder of the Python environment that it runs in.",
    )

    def check(self, settings: Any) -> None:
        """Raise BadInput where the files of an agent are named, and no agent."""
        if not self.command and (self.texts or self.files or self.venv):
            raise BadInput(
                "--texts, --files and --venv are of --agent",
                fix='--agent "python3 agent.py"',
                code="usage",
            )

    @property
    def brings_agent(self) -> bool:
        """Whether a command is given."""
        return bool(self.command)

    def agent(self) -> Any:
        """Return the scaffold of the command, with its files below the current folder."""
        from recreate.plugins.foreign.given import from_command

        return from_command(
            self.command, Path.cwd(), texts=self.texts, files=self.files, venv=self.venv
        )

"""`--vllm-python`: where vLLM is."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from recreate.api.config import PluginSettings


class LocalModels(PluginSettings):
    """vllm_python: the environment that vLLM is in, which is the machine's and no part of a run."""

    short: ClassVar = {"vllm-python": "vllm_python"}
    taken_by: ClassVar = frozenset({"attempt"})
    panel: ClassVar = "Models"
    free: ClassVar = frozenset({"vllm_python"})
    variables: ClassVar = frozenset({"RECREATE_VLLM_PYTHON"})

    vllm_python: str = Field(
        default="",
        description="The environment that vLLM is in, its folder or its Python; default: this one.",
    )

"""Who hosts models, and whose key is in the environment."""

from __future__ import annotations

import os

PROVIDERS: dict[str, tuple[str, str]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "claude-sonnet-4-5"),
    "openai": ("OPENAI_API_KEY", "gpt-5-mini"),
    "gemini": ("GEMINI_API_KEY", "gemini-2.5-flash"),
    "openrouter": ("OPENROUTER_API_KEY", "openai/gpt-5-mini"),
    "deepseek": ("DEEPSEEK_API_KEY", "deepseek-chat"),
    "mistral": ("MISTRAL_API_KEY", "mistral-medium-latest"),
    "xai": ("XAI_API_KEY", "grok-4"),
    "groq": ("GROQ_API_KEY", "openai/gpt-oss-120b"),
    "together_ai": ("TOGETHERAI_API_KEY", "openai/gpt-oss-120b"),
    "fireworks_ai": ("FIREWORKS_AI_API_KEY", "accounts/fireworks/models/gpt-oss-120b"),
    "cerebras": ("CEREBRAS_API_KEY", "gpt-oss-120b"),
    "dashscope": ("DASHSCOPE_API_KEY", "qwen-plus"),
}
"""litellm's name of a provider -> (the variable with its key, a model of its)."""

_OTHER_NAMES = {"gemini": ("GOOGLE_API_KEY",), "together_ai": ("TOGETHER_API_KEY",)}


def key_variable(provider: str) -> tuple[str, bool]:
    """Return the variable with a provider's key ('' when the provider is not listed here), and
    whether one is set."""
    variable = PROVIDERS.get(provider, ("", ""))[0]
    names = (variable, *_OTHER_NAMES.get(provider, ()))
    return variable, any(n and os.environ.get(n, "").strip() for n in names)


def keys_found() -> list[tuple[str, str]]:
    """Return (variable, `litellm:PROVIDER/MODEL`) of every provider whose key is in the
    environment."""
    return [
        (variable, f"litellm:{provider}/{model}")
        for provider, (variable, model) in PROVIDERS.items()
        if key_variable(provider)[1]
    ]

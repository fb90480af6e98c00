"""How coding agents are started: the command, and what they read from the environment.

    {prompt_file}   TASK.md          {base_url}   the endpoint's address, without /v1
    {model}         a model's name

Every name of a model is taken: which one answers is `--models.optimizer`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

ASK = "Read TASK.md and do what it says. Hand your work in with the command `finish`."


class CodingAgent(NamedTuple):
    """command: what a shell runs in the folder; package: what installs it; env: variables that it
    gets besides; files: written into HOME before it starts; hosts: its provider's, where a seat is
    used; login: the folder of HOME with its login."""

    command: str
    package: str
    env: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    hosts: tuple[str, ...] = ()
    login: str = ""


_CODEX = """model = "gpt-5"
model_provider = "recreate"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.recreate]
name = "recreate"
base_url = "{base_url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"

[analytics]
enabled = false
"""

_OPENCODE = json.dumps(
    {
        "autoupdate": False,
        "share": "disabled",
        "model": "recreate/{model}",
        "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny"},
        "provider": {
            "recreate": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "recreate",
                "options": {"baseURL": "{base_url}/v1", "apiKey": "recreate"},
                "models": {"{model}": {"name": "{model}"}},
            }
        },
    }
)

KNOWN: Mapping[str, CodingAgent] = {
    "claude": CodingAgent(
        command=f"claude -p '{ASK}' --dangerously-skip-permissions --output-format text",
        package="npm install -g @anthropic-ai/claude-code",
        env={
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "IS_SANDBOX": "1",
            "BASH_MAX_TIMEOUT_MS": "3600000",
            "BASH_DEFAULT_TIMEOUT_MS": "1800000",
        },
        files={".claude.json": '{"hasCompletedOnboarding": true}'},
        hosts=("api.anthropic.com", "console.anthropic.com", "claude.ai"),
        login=".claude",
    ),
    "codex": CodingAgent(
        command=f"codex exec --skip-git-repo-check '{ASK}'",
        package="npm install -g @openai/codex",
        files={".codex/config.toml": _CODEX},
        hosts=("chatgpt.com", "auth.openai.com", "api.openai.com"),
        login=".codex",
    ),
    "opencode": CodingAgent(
        command=f"opencode run '{ASK}'",
        package="npm install -g opencode-ai",
        env={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        files={".config/opencode/opencode.json": _OPENCODE},
    ),
    "mini-swe-agent": CodingAgent(
        command=(
            "mini -m openai/{model} -y --exit-immediately -l 0 -o /tmp/trajectory.json -t"
            f" '{ASK}'"
        ),
        package="pip install mini-swe-agent",
        env={"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"},
    ),
}

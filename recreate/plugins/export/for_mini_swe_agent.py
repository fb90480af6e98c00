"""An exported agent as mini-swe-agent's agent: its loop, model and environment, with our prompts,
parsing and limits.

mini.yaml names it as `agent_class`. The model hands over every reply whole (`action_regex`), and it
is read here.
"""

from __future__ import annotations

import base64
import shlex
import time
from pathlib import Path
from typing import Any

from minisweagent.agents.default import AgentConfig, DefaultAgent
from minisweagent.exceptions import LimitsExceeded, Submitted

from recreate.api.errors import BadInput
from recreate.api.types import Output, Reply
from recreate.plugins.export.turns import AttemptState, Deed, FilePut, PortableAgent, perform

HERE = Path(__file__).parent
CHUNK = 60_000
"""Characters of a file that one command carries: the kernel takes 128 KiB an argument."""


class MiniConfig(AgentConfig):  # type: ignore[misc]
    """What mini.yaml says under `agent`: mini-swe-agent's own keys, and ours."""

    observation_template: str
    format_template: str
    action: str = "bash"
    before: tuple[str, ...] = ()
    done: str = ""
    wall_time_limit_seconds: float = 0
    token_limit: int = 0
    observation_chars: int = 8000
    command_seconds: float = 60
    tools: tuple[dict[str, str], ...] = ()
    lessons: tuple[dict[str, str], ...] = ()
    examples: tuple[dict[str, str], ...] = ()


class ScaffoldAgent(DefaultAgent):  # type: ignore[misc]
    """DefaultAgent, but for how a prompt is filled in and a reply is read."""

    def __init__(
        self, model: Any, env: Any, *, config_class: type = MiniConfig, **kwargs: Any
    ) -> None:
        super().__init__(model, env, config_class=config_class, **kwargs)
        config, most = self.config, float("inf")
        self.work = getattr(env.config, "cwd", "") or "/work"
        limits = {
            "steps": config.step_limit or most,
            "tokens": config.token_limit or most,
            "usd": config.cost_limit or most,
            "seconds": config.wall_time_limit_seconds or most,
            "command_seconds": config.command_seconds,
            "observation_chars": config.observation_chars,
        }
        facts = {
            "action": config.action,
            "before": config.before,
            "done": config.done,
            "limits": limits,
            "tools": config.tools,
            "lessons": config.lessons,
            "examples": config.examples,
            "templates": {
                "system": config.system_template,
                "workflow": config.instance_template,
                "observation": config.observation_template,
                "format": config.format_template,
            },
        }
        texts = {tool["name"]: (HERE / tool["path"]).read_bytes().decode() for tool in config.tools}
        self.asked = getattr(model.config, "model_kwargs", {})
        self.cap = self.asked.get("max_tokens", 0)
        self.portable = PortableAgent(facts, texts, self.work, self.cap)
        self.first: list[Any] = []

    def run(self, task: str = "", **kwargs: Any) -> dict[str, Any]:
        """Run until the agent is finished. Returns exit_status and submission."""
        self.state = AttemptState(task)
        self.first = perform(self.portable.begin(self.state), self.do)
        return super().run(task, **kwargs)  # type: ignore[no-any-return]

    def _render_template(self, template: str) -> str:
        return str(self.first.pop(0)["content"])

    def query(self) -> dict[str, Any]:
        """Ask the model, unless a limit is reached."""
        if reached := self.portable.limit(self.state):
            raise LimitsExceeded(_exit("LimitsExceeded", reached))
        if self.cap:
            self.asked["max_tokens"] = self.state.raised or self.cap
        return super().query()  # type: ignore[no-any-return]

    def execute_actions(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Do what the reply asks for, and answer it."""
        try:
            messages, ending = perform(self.portable.take(_reply(message), self.state), self.do)
        except BadInput as e:
            raise LimitsExceeded(_exit("BadTemplate", e.message)) from None
        if ending:
            kind = Submitted if ending == "submitted" else LimitsExceeded
            raise kind(_exit(kind.__name__, ending))
        message["content"] = messages[0]["content"]
        rest = [self.model.format_message(**given) for given in messages[1:]]
        return self.add_messages(*rest)  # type: ignore[no-any-return]

    def do(self, deed: Deed) -> Output:
        """What the environment, which only runs commands, makes of a deed."""
        if isinstance(deed, FilePut):
            return self.put_file(deed.path, deed.data, deed.mode)
        source = "/dev/null"
        if deed.stdin:
            source = f"{self.work}/.recreate/stdin"
            self.put_file(".recreate/stdin", deed.stdin.encode("utf-8", "surrogatepass"), 0o644)
        return self.shell(deed.script, source)

    def put_file(self, path: str, data: bytes, mode: int) -> Output:
        at, text = shlex.quote(f"{self.work}/{path}"), base64.b64encode(data).decode()
        output = self.shell(f'mkdir -p "$(dirname {at})" && : > {at} && chmod {mode:o} {at}')
        for start in range(0, len(text), CHUNK):
            if output.status == 0:
                output = self.shell(f"printf %s {text[start : start + CHUNK]} | base64 -d >> {at}")
        return output

    def shell(self, script: str, source: str = "/dev/null") -> Output:
        began = time.monotonic()
        found = self.env.execute(
            {"command": f"exec bash -c {shlex.quote(script)} < {shlex.quote(source)}"}
        )
        status, text = int(found["returncode"]), str(found["output"])
        timed_out = found.get("extra", {}).get("exception_type") == "TimeoutExpired"
        if timed_out:
            status = 124
        elif found.get("exception_info"):
            status, text = 126, f"{text}{found['exception_info']}\n"
        elif status < 0:
            status = 128 - status
        return Output(
            text=text, status=status, seconds=time.monotonic() - began, timed_out=timed_out
        )


def _reply(message: dict[str, Any]) -> Reply:
    extra = message.get("extra", {})
    response = extra.get("response") or {}
    usage = response.get("usage") or {}
    finish = next((choice.get("finish_reason") for choice in response.get("choices", ())), None)
    return Reply(
        text=message.get("content") or "",
        finish=finish or "stop",
        tokens_in=usage.get("prompt_tokens") or 0,
        tokens_out=usage.get("completion_tokens") or 0,
        usd=extra.get("cost") or 0.0,
    )


def _exit(status: str, why: str) -> dict[str, Any]:
    return {"role": "exit", "content": why, "extra": {"exit_status": status, "submission": ""}}

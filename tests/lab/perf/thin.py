"""The measure: an agent loop on http.client and json, which keeps nothing, checks nothing and
counts nothing."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any
from urllib.parse import urlsplit

from recreate.api.types import Message
from tests.lab.perf.still import OUTPUTS

_HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": "thin",
    "x-recreate-call": "run/0123456789abcdef/12",
}


class Thin:
    """One kept connection a thread. `asked` holds the bodies when somebody wants to compare
    them."""

    def __init__(self, url: str, asked: list[dict[str, Any]] | None = None) -> None:
        parts = urlsplit(url)
        self.place, self.path = parts.netloc, f"{parts.path}/chat/completions"
        self.own = threading.local()
        self.asked = asked

    def reply(self, messages: list[Message], step: int) -> str:
        wire: http.client.HTTPConnection | None = getattr(self.own, "wire", None)
        if wire is None:
            wire = self.own.wire = http.client.HTTPConnection(self.place)
        body = {"messages": messages, "model": "stub", "max_tokens": 512, "seed": 123456789 + step}
        wire.request("POST", self.path, json.dumps(body).encode(), _HEADERS)
        answer = json.loads(wire.getresponse().read())
        return str(answer["choices"][0]["message"]["content"])

    def attempt(self, system: str, workflow: str, steps: int) -> None:
        """The same transcript as the agent's: its prompts, then a reply and an observation a
        step."""
        messages: list[Message] = [
            {"role": "system", "content": system},
            {"role": "user", "content": workflow},
        ]
        for step in range(steps):
            text = self.reply(messages, step)
            output = OUTPUTS[(step + 1) % len(OUTPUTS)]
            seen = f"{output}\n[exit status 1; {steps - step - 1} steps left]"
            messages.append({"role": "assistant", "content": text})
            messages.append({"role": "user", "content": seen})

    def close(self) -> None:
        wire: http.client.HTTPConnection | None = getattr(self.own, "wire", None)
        if wire is not None:
            wire.close()

"""A server of the Model Context Protocol, run in an attempt's sandbox, and asked over its standard
input and output.

    server = McpServer("notes", talk, seconds=60)      # talk: a program that goes on in the sandbox
    server.open().tools                                # name, description, schema of the arguments
    server.call("add", {"text": "x"})                  # -> Output: its text, status 1 where it says
    that it failed

Four messages of JSON-RPC, a line each, are all that is said: written by hand, since the package's
client brings an event loop for each attempt's thread and starts the server itself, outside of any
sandbox. What the server asks of us is refused, `ping` answered. A server elsewhere is asked the
same over HTTP (`RemoteServer`).
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from recreate.agents.config import AgentLimits, ServerEntry
from recreate.agents.workplace import BIN
from recreate.api.errors import BadInput
from recreate.api.ports import OfferedTool, RunningProgram, Sandbox, Talking
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Output
from recreate.storage.log import decode, encode
from recreate.storage.redact import redact, redacted

PROTOCOL = "2025-06-18"
MOST_TOOLS = 128
"""Tools of one server that are offered; those after are passed over."""
MOST_WORDS = 4_000
MOST_SCHEMA = 16_000
"""Characters of a tool's description that are told, and of the JSON of a schema that is: each call
pays for them."""
MOST_BYTES = 4 << 20
"""Of one answer over HTTP."""
MOST_LINES = 10_000
"""Lines that are passed over while one answer is waited for."""


class McpError(BadInput):
    """What a server did wrong: it is gone, does not answer in time, or answers what is no
    answer."""

    def __init__(self, message: str) -> None:
        fix = "mend the server, or take it out of [mcp] in agent.toml"
        self.why = redact(message)
        super().__init__(f"MCP: {self.why}", fix=fix, code="bad-mcp")


def open_server(sandbox: Sandbox, name: str, entry: ServerEntry, limits: AgentLimits) -> McpServer:
    """Start the server that an agent.toml or a domain names, and ask for its tools. Raises
    McpError."""
    patience = limits.command_seconds
    if entry.url:
        remote = RemoteServer(entry.url, os.environ.get(entry.token, ""))
        return McpServer(name, remote, patience).open()
    if not isinstance(sandbox, Talking):
        raise McpError(
            f"the server {name}: sandboxes of {sandbox.backend} cannot keep a program going"
        )
    log = f".recreate/mcp/{name}.log"
    sandbox.write(log, b"", 0o666)
    command = entry.command or (f"./{BIN}/{entry.server}",)
    words = ["/bin/sh", "-c", f'exec "$@" 2>>{log}', "sh", *command]
    try:
        return McpServer(name, sandbox.start(words, limits.seconds), patience).open()
    except McpError as e:
        raise McpError(f"{e.why}{_last_words(sandbox, log)}") from None


class RemoteServer:
    """A server elsewhere, asked over HTTP: what a RunningProgram is, for McpServer. token: a bearer
    token, '' for none.

    One request, one answer, as JSON or as a stream of events; what the server would say unasked is
    not listened to.
    """

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self.headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        self.headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self.lines: deque[bytes] = deque()

    def send(self, line: bytes, seconds: float) -> bool:
        """Ask; an answer that says no becomes the error of the request."""
        import httpx

        try:
            with httpx.stream(
                "POST", self.url, content=line, headers=self.headers, timeout=seconds
            ) as answer:
                ends = time.monotonic() + seconds
                body = bytearray()
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > MOST_BYTES or time.monotonic() > ends:
                        return self._failed(line, "its answer is too long, or takes too long")
                if not answer.is_success:
                    return self._failed(line, f"HTTP {answer.status_code}")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as e:
            return self._failed(line, f"{type(e).__name__}: {e}")
        if session := answer.headers.get("mcp-session-id"):
            self.headers["Mcp-Session-Id"] = session
        self.headers.setdefault("MCP-Protocol-Version", PROTOCOL)
        if "text/event-stream" in answer.headers.get("content-type", ""):
            said = [
                x.removeprefix(b"data:").strip()
                for x in bytes(body).splitlines()
                if x.startswith(b"data:")
            ]
            self.lines.extend(said)
        elif body:
            self.lines.append(bytes(body))
        return True

    def take(self, seconds: float) -> bytes | None:
        return self.lines.popleft() if self.lines else None

    def close(self) -> None: ...

    def _failed(self, line: bytes, why: str) -> bool:
        number = json.loads(line).get("id")
        self.lines.append(
            encode({"jsonrpc": "2.0", "id": number, "error": {"message": why}}).encode()
        )
        return number is not None


class McpServer:
    """A started server. seconds: how long one answer is waited for."""

    def __init__(self, name: str, talk: RunningProgram, seconds: float) -> None:
        self.name = name
        self.talk = talk
        self.seconds = seconds
        self.gone = ""
        self.late = False
        self._next = 0
        self.tools: Sequence[OfferedTool] = ()

    def open(self) -> McpServer:
        """Greet it, and ask for its tools. Raises McpError."""
        about = {"name": "recreate", "version": "1"}
        self._ask(
            "initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about}
        )
        self._tell({"method": "notifications/initialized"})
        found: list[OfferedTool] = []
        cursor: Any = None
        while True:
            told = self._ask("tools/list", {"cursor": cursor} if cursor else {})
            listed = told.get("tools")
            if not isinstance(listed, list):
                raise self._end("it lists no tools")
            for each in listed:
                if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                    raise self._end("it lists a tool without a name")
                words = str(each.get("description") or each["name"])[:MOST_WORDS]
                # masked as all that enters: it is sent to a model, and stored
                told_of = redacted([each["name"], words, _schema(each.get("inputSchema"))])
                found.append(OfferedTool(*told_of))
            cursor = told.get("nextCursor")
            if not cursor or len(found) >= MOST_TOOLS:
                self.tools = found[:MOST_TOOLS]
                return self

    def call(self, tool: str, arguments: JsonMap) -> Output:
        """What a tool answers; a server that does not answer is ended, and then always says so."""
        if self.gone:
            return Output(
                text=f"the server {self.name} is not there any more: {self.gone}", status=1
            )
        began = time.monotonic()
        try:
            told = self._ask("tools/call", {"name": tool, "arguments": dict(arguments)})
        except McpError as e:
            took = time.monotonic() - began
            return Output(
                text=e.why, status=124 if self.late else 1, seconds=took, timed_out=self.late
            )
        failed = "error" in told or told.get("isError") is True
        text = _refusal(told["error"]) if "error" in told else _text(told)
        return Output(text=text, status=int(failed), seconds=time.monotonic() - began)

    def close(self) -> None:
        self.talk.close()

    def _ask(self, method: str, params: JsonMap) -> JsonDict:
        """The result of a request; {"error": ...} where a call is refused. Raises McpError."""
        self._next += 1
        ends = time.monotonic() + self.seconds
        self._tell({"id": self._next, "method": method, "params": params})
        for _ in range(MOST_LINES):
            line = self.talk.take(max(0.0, ends - time.monotonic()))
            if line is None:
                self.late = time.monotonic() >= ends
                raise self._end(
                    f"it did not answer within {self.seconds:g} s" if self.late else "it ended"
                )
            told = _read(line)
            if told is None:
                continue  # what a program says besides
            if "method" in told:
                if "id" in told:
                    pong = {"result": {}} if told["method"] == "ping" else {"error": _NOT_HERE}
                    self._tell({"id": told["id"], **pong})
                continue
            if told.get("id") != self._next:
                continue  # an answer that came too late
            if "error" in told and method != "tools/call":
                raise self._end(_refusal(told["error"]))
            result = told.get("result")
            return (
                {"error": told["error"]}
                if "error" in told
                else result
                if isinstance(result, dict)
                else {}
            )
        raise self._end("it says a great deal, and does not answer")

    def _tell(self, message: JsonMap) -> None:
        line = encode({"jsonrpc": "2.0", **message}).encode("utf-8", "surrogatepass")
        began = time.monotonic()
        if not self.talk.send(line, self.seconds):
            self.late = time.monotonic() - began >= self.seconds
            raise self._end("it does not read what it is sent, or has ended")

    def _end(self, why: str) -> McpError:
        self.gone = why
        self.talk.close()
        return McpError(f"the server {self.name}: {why}")


_NOT_HERE = {"code": -32601, "message": "there is nothing to ask here"}


def _schema(said: Any) -> Any:
    """The schema of a tool's arguments; of what is none, or too long, that of any object."""
    fits = (
        isinstance(said, dict) and said.get("type") == "object" and len(encode(said)) <= MOST_SCHEMA
    )
    return said if fits else {"type": "object"}


def _read(line: bytes) -> JsonDict | None:
    try:
        told = decode(line.decode("utf-8", "replace"), strict=False)
    except ValueError:
        return None
    return told if isinstance(told, dict) and told.get("jsonrpc") == "2.0" else None


def _refusal(error: Any) -> str:
    return str(error.get("message") if isinstance(error, dict) else error)[:2000]


def _text(told: JsonMap) -> str:
    """A result as text; of what is no text its kind."""
    parts = told.get("content")
    texts = []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            texts.append(
                str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type')}]"
            )
    if not texts and told.get("structuredContent") is not None:
        return json.dumps(told["structuredContent"], ensure_ascii=False)
    return "\n".join(texts)


def _last_words(sandbox: Sandbox, log: str) -> str:
    """What a program said on stderr at last."""
    try:
        text = sandbox.read(log).decode("utf-8", "replace").strip()
    except (FileNotFoundError, BadInput):
        return ""
    return f"; it said: {text[-500:]}" if text else ""

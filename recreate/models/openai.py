"""A thin keep-alive client for any OpenAI-style endpoint: vLLM, llama.cpp, a gateway, the provider
itself.

One request is one write and one read on a kept connection; messages sent before are not encoded
again. Nothing here retries: the caller does, with its budget and journal around it.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json

from recreate.api.errors import BadInput, Fault, Refused, Transient
from recreate.api.loopback import served_key
from recreate.api.ports import Price
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Call, Message, Reply, digest
from recreate.models import chat
from recreate.models.http import (
    MAX_ANSWER,
    Answer,
    Connections,
    Lost,
    TooLarge,
    Transcript,
    to_bytes,
)
from recreate.models.pricing import price_of
from recreate.models.refusals import (
    REFUSES,
    Concessions,
    Said,
    is_of_content,
    read_error,
    reply_room,
    too_long,
)
from recreate.storage.log import decode

TIMEOUT_SECONDS = 300.0
_NO_WAY = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)
_KEYS = ("OPENAI_API_KEY", "LLM_API_KEY")


class OpenAI:
    """`openai:URL#MODEL`, for up to as many threads at once as there are callers.

    key_env   the variable with the key; by default OPENAI_API_KEY, else LLM_API_KEY; '' sends none
    key       the key itself; a server of ours on this machine is asked with its own
    timeout   seconds that a call may take from its beginning to its end, unless `reply` is told
              otherwise
    extra     further fields of every request's body
    drop      fields that are left out of every request; what the endpoint refuses is, too

    `native_tools` turns False once the endpoint has refused a request for its tools. `told` takes
    what a user is to hear.
    """

    native_tools = True
    told: Callable[[str], None] = staticmethod(lambda text: None)

    def __init__(
        self,
        where: str,
        *,
        price: Price | None = None,
        key_env: str | None = None,
        key: str = "",
        timeout: float = TIMEOUT_SECONDS,
        extra: JsonMap | None = None,
        drop: Collection[str] = (),
    ) -> None:
        url, _, model = where.partition("#")
        parts = urlsplit(url)
        try:
            host = parts.hostname
            port = parts.port
        except ValueError:
            host = None
            port = None
        if parts.scheme not in ("http", "https") or not host or not model:
            raise BadInput(
                f"openai:{_clean(where)} does not name an endpoint and a model",
                fix="write openai:URL#MODEL, e.g. openai:http://127.0.0.1:8000/v1#NAME",
                code="bad-model",
            )
        if "@" in parts.netloc:
            raise BadInput(
                "a user or password in a model's address would be written into records",
                fix=f"put the key into {_KEYS[0]} and leave it out of the address",
                code="key-in-address",
            )
        if parts.query:
            raise BadInput(
                "an endpoint's address with a query (?...) is not supported",
                fix="use litellm:PROVIDER/NAME for such a provider",
                code="bad-model",
            )
        self.url = url.rstrip("/").removesuffix("/chat/completions")
        self.model = model
        self.name = f"openai:{self.url}#{model}"
        self.price = price if price is not None else price_of(self.name)
        self.timeout = timeout
        self.extra = dict(extra or {})
        own = self.url.rstrip("/") == os.environ.get("LLM_API_BASE", "").rstrip("/")
        names = (key_env,) if key_env is not None else (_KEYS[::-1] if own else _KEYS)
        self.key_env = next((n for n in names if n and os.environ.get(n)), names[0])
        self._key = key or served_key(host, port) or os.environ.get(self.key_env, "").strip()
        if not self._key.isprintable() or not self._key.isascii():
            raise BadInput(
                f"the key in {self.key_env} has odd characters",
                fix=f"set {self.key_env} again",
                code="bad-key",
            )
        self._connections = Connections(parts.scheme, host, port)
        self._base = urlsplit(self.url).path
        self._transcript = Transcript()
        self._concessions = Concessions(lambda text: self.told(f"{self.name} {text}"), drop)
        self._bare_schemas: frozenset[str] = frozenset()
        head = (
            f"Host: {parts.netloc}\r\nAccept-Encoding: identity\r\nContent-Type:"
            " application/json\r\n"
        )
        head += "User-Agent: recreate\r\n" + (
            f"Authorization: Bearer {self._key}\r\n" if self._key else ""
        )
        self._head = head.encode("latin-1")

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """Return one answer; see `recreate.api.ports.Model`. A token count the server leaves out is
        estimated (len/4), and the reply then carries `estimated=True`."""
        begun = time.perf_counter()
        timeout = params.get("timeout") or self.timeout
        most = chat.answer_bytes(params)
        while True:  # each round less is asked for, or more left out, at the endpoint's wish
            fields, schema = self._fields(params)
            given = self._concessions.messages(messages)
            body = self._transcript.encode(given), to_bytes(fields)[1:]
            left = timeout - (time.perf_counter() - begun)
            answer = self._ask("POST", "/chat/completions", left, call, body, most, timeout)
            if answer.status == 200:
                taken = time.perf_counter() - begun
                return self._read(answer.body, messages, taken, tools=bool(params.get("tools")))
            said = self._read_error(answer.body)
            if answer.status not in REFUSES:
                break
            if room := reply_room(said.text, params.get("max_tokens")):
                params["max_tokens"] = room
            elif not self._give_way(said, fields, given, schema):
                break
        left = timeout - (time.perf_counter() - begun)
        raise self._error(answer, said, left, tools=bool(params.get("tools")))

    def close(self) -> None:
        self._connections.close()

    # what is sent

    def _fields(self, params: JsonMap) -> tuple[JsonDict, str]:
        """Return the body's other fields, and the digest of the schema asked for ('' for none)."""
        body = {"model": self.model, **self.extra, **self._concessions.fields(params)}
        body |= chat.tool_fields(params)
        schema = params.get("json_schema")
        if schema is None or self._bare_schemas & {"all", asked := digest(schema)}:
            return body, ""
        return {**body, "response_format": chat.response_format(schema)}, asked

    def _ask(
        self,
        method: str,
        path: str,
        seconds: float,
        call: Call | None = None,
        body: tuple[bytes | bytearray, ...] = (),
        most: int = MAX_ANSWER,
        timeout: float = 0.0,
    ) -> Answer:
        """seconds: what is left of the call's `timeout`."""
        head = self._head
        if call is not None:
            name = call.id.replace("\r", "").replace("\n", "")
            head += f"x-recreate-call: {name}\r\n".encode("ascii", "replace")
        try:
            return self._connections.request(method, self._base + path, head, body, seconds, most)
        except Lost as e:
            raise self._unreached(e, timeout or seconds) from None

    # what comes back

    def _read(
        self, raw: bytes, messages: Sequence[Message], latency: float, *, tools: bool
    ) -> Reply:
        told: JsonDict = {"model": self.model, "price": self.price, "latency": latency}
        try:
            return chat.completion(_parse(raw), messages, **told, tools=tools)
        except chat.NO_COMPLETION as e:
            raised = Transient(
                f"{self.url} answered with something that is not a chat completion"
                f" ({type(e).__name__}): {self._short(self._read_error(raw))}",
                fix=f"is {self.url} an OpenAI-style endpoint (its address usually ends in /v1)?",
                code="malformed-reply",
            )
            raised.spent = chat.spent_of_part(raw)
            raise raised from None

    def _give_way(
        self, said: Said, fields: JsonMap, messages: Sequence[Message], schema: str
    ) -> bool:
        """After a refusal: leave out what the endpoint does not know, from now on. False when there
        is nothing to."""
        if self._concessions.learn(said, fields.keys() - self.extra, messages):
            return True
        if not schema or too_long(said.text):
            return False
        formats = (
            "response_format",
            "json_schema",
            "structured output",
            "guided",
            "extra inputs",
        )
        self._bare_schemas |= {"all" if any(f in said.text for f in formats) else schema}
        return True

    def _error(self, answer: Answer, said: Said, left: float, *, tools: bool) -> Fault | Refused:
        status = answer.status
        words = self._short(said) or chat.short(answer.reason)
        if status in (401, 403) and not is_of_content(said.text):
            key = self.key_env or _KEYS[0]
            return Refused(
                (
                    f"{self.url} refused the key in {key}: {words}"
                    if self._key
                    else f"{self.url} wants a key, and {key} is not set: {words}"
                ),
                fix=f"put a valid key into {key}: export {key}=...",
                code="refused-key",
            )
        if tools and chat.refuses_tools(status, said.text, self.model):
            self.native_tools = False
            return chat.no_tools(f"{self.model} at {self.url}", words)
        if status == 404:
            there = self._models(left)
            return Refused(
                f"{self.url} does not serve {self.model!r}: {words}",
                fix=(
                    f"it serves: {', '.join(there[:20])}; write openai:{self.url}#NAME"
                    if there
                    else "is the address complete (it usually ends in /v1)?"
                ),
                code="unknown-model",
            )
        if 300 <= status < 400:
            return Refused(
                f"{self.url} moved to {_clean(answer.header('location')) or 'somewhere'}",
                fix="use that address",
                code="moved",
            )
        if status == 407 and self._connections.proxy:
            return self._proxy_refusal()
        text = f"{self.url}{self._connections.via} answered {status}: {words}"
        after = chat.retry_after(answer.header("retry-after"), answer.header("retry-after-ms"))
        return chat.failure(text, status, said.text, after)

    def _read_error(self, raw: bytes) -> Said:
        """Return what the server says itself."""
        try:
            return read_error(_parse(raw))
        except ValueError:
            return read_error(raw.decode("utf-8", "replace"))

    def _short(self, said: Said) -> str:
        """Return the server's own words, in one short line, with the key masked should they repeat
        it."""
        known = len(self._key) >= 4
        return chat.short(said.words.replace(self._key, "[redacted]") if known else said.words)

    def _models(self, left: float) -> list[str]:
        try:
            answer = self._ask("GET", "/models", min(10.0, left))
            return (
                sorted(str(m["id"]) for m in _parse(answer.body)["data"])
                if answer.status == 200
                else []
            )
        except (Fault, ValueError, KeyError, TypeError, IndexError):
            return []

    def _unreached(self, lost: Lost, timeout: float) -> Transient | Refused:
        e = lost.why
        place = f"{self.url}{lost.via}"
        running = f"is the server at {self.url} running?"
        if isinstance(e, TimeoutError):
            text = f"{place} did not answer within {timeout:g} s"
            code = "timeout"
            fix = "allow more time, or ask for less"
        elif isinstance(e, ssl.SSLError):
            text = f"no secure connection to {place}: {e.reason or e}"
            code = "tls"
            fix = "with an own certificate set SSL_CERT_FILE; is it http instead of https?"
        elif isinstance(e, socket.gaierror):
            name = lost.via.removeprefix(" through ") or self.url
            text = f"no host is known by the name in {name}"
            code = "unknown-host"
            fix = "check its spelling and the network"
        elif isinstance(e, OSError) and e.errno in _NO_WAY:
            text = f"cannot connect to {place}: {e.strerror}"
            code = "connection-refused"
            fix = running
        elif isinstance(e, TooLarge):
            text = f"{place} answers without end: {e}"
            code = "too-large"
            fix = f"is {self.url} an OpenAI-style endpoint?"
        elif "Tunnel connection failed" in str(e):
            if " 407 " in str(e):
                return self._proxy_refusal()
            text = f"no way to {place}: {e}"
            fix = "does it let that host through?"
            code = "proxy"
        else:
            text = f"the connection to {place} was lost: {type(e).__name__}"
            code = "reset"
            fix = running
        raised = Transient(text, fix=fix, code=code, unspent=not lost.sent)
        raised.spent = chat.spent_of_part(lost.part)
        return raised

    def _proxy_refusal(self) -> Refused:
        way = self._connections.via.removeprefix(" through ")
        return Refused(
            f"{way} wants another user or password, or one at all (407)",
            fix="export HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT, with % and @ as %25 and %40",
            code="refused-proxy",
        )


def _parse(raw: bytes) -> Any:
    """Raises ValueError for what is not JSON, or nested beyond reason."""
    try:
        return from_json(raw)
    except ValueError:  # half of a surrogate pair, which a model may well cut off at its last token
        return decode(raw)


def _clean(address: str) -> str:
    """Return an address without user, password and query."""
    head, slashes, rest = address.partition("//")
    place, slash, path = rest.partition("/")
    return (head + slashes + place.rpartition("@")[2] + slash + path).partition("?")[0]

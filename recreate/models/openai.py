"""A thin keep-alive client for any OpenAI-style endpoint: vLLM, llama.cpp, a gateway, the provider
itself.

One request is one write and one read on a kept connection; messages sent before are not encoded
again. Nothing here retries: the caller does, with its budget and journal around it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json

from recreate.api.errors import BadInput, Fault, Refused, Transient
from recreate.api.ports import Price
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
from recreate.storage.log import decode

TIMEOUT_SECONDS = 300.0
_SENT_ON = (
    "temperature",
    "top_p",
    "max_tokens",
    "seed",
    "stop",
    "logprobs",
    "top_logprobs",
    "return_token_ids",
)
_NO_WAY = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)
_WORDS = 10_000
"""Characters of an endpoint's own words that are looked at."""
_KEYS = ("OPENAI_API_KEY", "LLM_API_KEY")


class OpenAI:
    """`openai:URL#MODEL`, for up to as many threads at once as there are callers.

    key_env   the variable with the key; by default OPENAI_API_KEY, else LLM_API_KEY; '' sends none
    timeout   seconds that a call may take from its beginning to its end, unless `reply` is told
              otherwise
    extra     further fields of every request's body

    `native_tools` turns False once the endpoint has refused a request for its tools.
    """

    native_tools = True

    def __init__(
        self,
        where: str,
        *,
        price: Price | None = None,
        key_env: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        url, _, model = where.partition("#")
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
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
        self._key = os.environ.get(self.key_env, "").strip() if self.key_env else ""
        if not self._key.isprintable() or not self._key.isascii():
            raise BadInput(
                f"the key in {self.key_env} has odd characters",
                fix=f"set {self.key_env} again",
                code="bad-key",
            )
        self._connections = Connections(parts.scheme, host, port)
        self._base = urlsplit(self.url).path
        self._transcript = Transcript()
        self._drop: frozenset[str] = frozenset()
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
        encoded = self._transcript.encode(messages)
        for _ in range(1 + len(_SENT_ON)):  # each round more is left out, at the endpoint's wish
            rest, schema = self._rest(params)
            left = timeout - (time.perf_counter() - begun)
            answer = self._ask(
                "POST", "/chat/completions", left, call, (encoded, rest), most, timeout
            )
            if answer.status == 200:
                return self._read(answer.body, messages, time.perf_counter() - begun)
            if answer.status in (400, 422) and (
                room := chat.reply_room(self._words(answer.body), params.get("max_tokens"))
            ):
                params["max_tokens"] = room
                continue
            if answer.status not in (400, 422) or not self._give_way(answer.body, rest, schema):
                break
        left = timeout - (time.perf_counter() - begun)
        raise self._error(answer, left, tools=bool(params.get("tools")))

    def close(self) -> None:
        self._connections.close()

    # what is sent

    def _rest(self, params: Mapping[str, Any]) -> tuple[bytes, str]:
        """Return the body's other fields, and the digest of the schema asked for ('' for none)."""
        names = [name for name in _SENT_ON if name not in self._drop]
        body = {"model": self.model, **self.extra, **chat.request_fields(params, names)}
        if "max_tokens" in self._drop and params.get("max_tokens") is not None:
            body["max_completion_tokens"] = params["max_tokens"]
        schema = params.get("json_schema")
        if schema is None or self._bare_schemas & {"all", asked := digest(schema)}:
            return to_bytes(body)[1:], ""
        return to_bytes({**body, "response_format": chat.response_format(schema)})[1:], asked

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

    def _read(self, raw: bytes, messages: Sequence[Message], latency: float) -> Reply:
        try:
            return chat.completion(
                _parse(raw), messages, model=self.model, price=self.price, latency=latency
            )
        except chat.NO_COMPLETION as e:
            raise Transient(
                f"{self.url} answered with something that is not a chat completion"
                f" ({type(e).__name__}): {self._words(raw)}",
                fix=f"is {self.url} an OpenAI-style endpoint (its address usually ends in /v1)?",
                code="malformed-reply",
            ) from None

    def _give_way(self, raw: bytes, rest: bytes, schema: str) -> bool:
        """After a 400: leave out what the endpoint does not know, from now on. False when there is
        nothing to."""
        words = raw.decode("utf-8", "replace").lower()
        if chat.too_long(words):
            return False
        try:
            param = str(_parse(raw)["error"]["param"])
        except (ValueError, KeyError, TypeError, IndexError):
            param = ""
        if param in _SENT_ON and param not in self._drop and f'"{param}"'.encode() in rest:
            self._drop |= {param}
            return True
        if schema:
            formats = (
                "response_format",
                "json_schema",
                "structured output",
                "guided",
                "extra inputs",
            )
            self._bare_schemas |= {"all" if any(f in words for f in formats) else schema}
            return True
        return False

    def _error(self, answer: Answer, left: float, *, tools: bool = False) -> Fault | Refused:
        status = answer.status
        words = self._words(answer.body) or self._words(answer.reason.encode())
        if status in (401, 403):
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
        if tools and chat.refuses_tools(status, words, self.model):
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
        text = f"{self.url} answered {status}: {words}"
        return chat.failure(text, status, words, chat.retry_after(answer.header("retry-after")))

    def _words(self, raw: bytes) -> str:
        """Return the server's own words, in one short line, with the key masked should they repeat
        it."""
        text = raw[:_WORDS].decode("utf-8", "replace")
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            body = _parse(raw)
            error = body.get("error", body)
            found = error if isinstance(error, str) else error.get("message") or error.get("detail")
            if found:
                text = str(found)[:_WORDS]
        if len(self._key) >= 4:
            text = text.replace(self._key, "[redacted]")
        return chat.short(text)

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

    def _unreached(self, lost: Lost, timeout: float) -> Transient:
        e = lost.why
        running = f"is the server at {self.url} running?"
        if isinstance(e, TimeoutError):
            text, code = f"{self.url} did not answer within {timeout:g} s", "timeout"
            fix = "allow more time, or ask for less"
        elif isinstance(e, ssl.SSLError):
            text, code = f"no secure connection to {self.url}: {e.reason or e}", "tls"
            fix = "with an own certificate set SSL_CERT_FILE; is it http instead of https?"
        elif isinstance(e, socket.gaierror):
            text, code = f"no host is known by the name in {self.url}", "unknown-host"
            fix = "check its spelling and the network"
        elif isinstance(e, OSError) and e.errno in _NO_WAY:
            text, fix, code = (
                f"cannot connect to {self.url}: {e.strerror}",
                running,
                "connection-refused",
            )
        elif isinstance(e, TooLarge):
            text, code = f"{self.url} answers without end: {e}", "too-large"
            fix = f"is {self.url} an OpenAI-style endpoint?"
        else:
            text, fix, code = (
                f"the connection to {self.url} was lost: {type(e).__name__}",
                running,
                "reset",
            )
        return Transient(text, fix=fix, code=code, unspent=not lost.sent)


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

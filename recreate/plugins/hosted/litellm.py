"""Any hosted provider, by litellm: `litellm:PROVIDER/NAME`. Its import takes seconds and waits for
a first call."""

from __future__ import annotations

import os
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from recreate.api.errors import BadInput, Fault, Refused, Transient
from recreate.api.ports import Price
from recreate.api.registry import installed, missing, need
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Call, Message, Reply
from recreate.models import chat
from recreate.models.deadline import within
from recreate.models.pricing import facts, price_of
from recreate.models.providers import key_variable
from recreate.models.refusals import REFUSES, Concessions, read_error, reply_room

TIMEOUT_SECONDS = 300.0
_SENT_ON = ("temperature", "top_p", "max_tokens", "seed", "stop")
_IMPORT = threading.Lock()
E = TypeVar("E", bound=BaseException)


class LiteLLM:
    """A hosted model. A package, then a key that is missing is refused here, before any network.

    api_base   an own endpoint, for providers that allow one
    asked      False: it is looked up only, as for a plan, and no key is needed
    drop       fields that are left out of every request; what the provider refuses is, too

    `told` takes what a user is to hear.
    """

    told: Callable[[str], None] = staticmethod(lambda text: None)

    def __init__(
        self,
        model: str,
        *,
        price: Price | None = None,
        api_base: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        asked: bool = True,
        drop: Collection[str] = (),
    ) -> None:
        if not model:
            raise BadInput(
                "litellm: names no model", fix="write litellm:PROVIDER/NAME", code="bad-model"
            )
        if not installed("litellm") and (absent := missing("litellm")):
            raise absent  # before anything is begun; its import takes seconds and waits
        self.model = model
        self.name = f"litellm:{model}"
        self.price = price if price is not None else price_of(model)
        self.timeout = timeout
        self.api_base = api_base
        # a mark costs a quarter more where nothing is read again, so its price must be known
        self._marks = (
            "claude" in model and self.price is not None and self.price.cache_written is not None
        )
        most = (facts(model) or {}).get("max_output_tokens")
        self._most = most if isinstance(most, int) else 0  # providers refuse a request for more
        self._concessions = Concessions(lambda text: self.told(f"{self.name} {text}"), drop)
        self._schema: bool | None = None
        self._native: bool | None = None
        provider = (
            model.partition("/")[0]
            if "/" in model
            else str((facts(model) or {}).get("litellm_provider", ""))
        )
        variable, there = key_variable(provider)
        if asked and variable and not there and not api_base:
            raise _no_key(model, [variable])

    @property
    def native_tools(self) -> bool:
        """Whether litellm knows the model to call tools; the first look costs litellm's import."""
        if self._native is None:
            self._native = bool(_litellm().supports_function_calling(self.model))
        return self._native

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """Return one answer; see `recreate.api.ports.Model`."""
        litellm = _litellm()
        self._check(litellm)
        if params.get("max_tokens") and self._most:
            params["max_tokens"] = min(params["max_tokens"], self._most)
        tools = bool(params.get("tools"))
        if tools and "tools" not in (litellm.get_supported_openai_params(self.model) or ("tools",)):
            self._native = False  # litellm would drop them without a word
            raise chat.no_tools(self.model, "litellm has no way to hand them to this model")
        timeout = params.get("timeout") or self.timeout
        begun = time.perf_counter()
        while True:  # each round less is asked for, or more left out, at the provider's wish
            given = [{**m} for m in self._concessions.messages(messages)]
            sent = self._request_fields(params, messages)
            made: list[bool] = []
            try:
                body = self._ask(litellm, given, call, sent, begun + timeout, made)
                break
            except TimeoutError:
                text = f"{self.model} did not answer within {timeout:g} s"
                fix = "allow more time, or ask for less"
                raise Transient(text, fix=fix, code="timeout") from None
            # litellm raises many kinds, its own and its transports': each is attributed
            except Exception as e:
                if (ours := _find_cause(e, BadInput)) is not None:  # a proxy that cannot be used
                    raise ours from None
                if self._give_way(e, params, sent, given):
                    continue
                error = self._error(litellm, e, tools=tools)
                if isinstance(error, Fault):
                    error.unspent = bool(made) and not any(made)
                raise error from None
        told: JsonDict = {"model": self.model, "price": self.price}
        told["latency"] = time.perf_counter() - begun
        try:
            # its records are often not what their own types say
            return chat.completion(body.model_dump(warnings=False), messages, **told, tools=tools)
        except chat.NO_COMPLETION as e:  # it was paid all the same
            raise Transient(
                f"{self.model} answered with something that is not a chat completion"
                f" ({type(e).__name__})",
                fix="try again",
                code="malformed-reply",
            ) from None

    def _request_fields(self, params: JsonMap, messages: Sequence[Message]) -> JsonDict:
        """Return what is asked of litellm beside the messages."""
        known = {name: value for name, value in params.items() if name in _SENT_ON}
        sent = self._concessions.fields(known) | chat.tool_fields(params)
        if params.get("json_schema") is not None and self._schema:
            sent["response_format"] = chat.response_format(params["json_schema"])
        if self.api_base:
            sent["api_base"] = self.api_base
            sent["api_key"] = (
                os.environ.get("LLM_API_KEY") or os.environ.get("OPENAI_API_KEY") or "none"
            )
        if self._marks:
            sent["cache_control_injection_points"] = _marks(messages)
        return sent

    def _ask(
        self,
        litellm: Any,
        messages: Sequence[JsonMap],
        call: Call,
        sent: JsonMap,
        ends: float,
        made: list[bool],
    ) -> Any:
        """Return litellm's answer. ends: when there must be one; made: takes of each request
        whether a model may have worked on it."""
        from recreate.plugins.hosted.transport import worked_on

        left = ends - time.perf_counter()

        def ask() -> Any:
            worked_on.set(made)
            return litellm.completion(
                model=self.model,
                messages=[{"content": None, **m} for m in messages],
                extra_headers={"x-recreate-call": call.id},
                timeout=left,
                num_retries=0,
                max_retries=0,
                drop_params=True,
                **sent,
            )

        # some providers' clients take no deadline, or mean each read by it
        return within(left, ask)

    def _give_way(
        self,
        e: Exception,
        params: JsonDict,
        sent: JsonMap,
        messages: Sequence[Any],
    ) -> bool:
        """After a refusal: ask for less, or leave out what the provider does not know, from now on.
        False when there is nothing to."""
        if getattr(e, "status_code", None) not in REFUSES:
            return False
        said = read_error(str(e))
        if room := reply_room(said.text, params.get("max_tokens")):
            params["max_tokens"] = room
            return True
        return self._concessions.learn(said, sent, messages)

    def close(self) -> None:
        pass

    def _check(self, litellm: Any) -> None:
        if self._schema is not None:
            return
        if not self.api_base:
            missing = litellm.validate_environment(self.model).get("missing_keys") or []
            if missing:
                raise _no_key(self.model, [str(m) for m in missing])
        self._schema = bool(self.api_base or litellm.supports_response_schema(self.model))

    def _error(self, litellm: Any, e: Exception, *, tools: bool) -> Fault | BadInput:
        import httpx

        if isinstance(e, ModuleNotFoundError) and (absent := missing(e.name or "")):
            return absent
        kinds = litellm.exceptions
        words = str(e)
        behind = _find_cause(e, httpx.TransportError)  # clients say "Connection error."
        known = behind is None or str(behind) in words
        text = f"{self.model}: {chat.short(words if known else f'{words} {behind}')}"
        variable = key_variable(self.model.partition("/")[0])[0] or "the provider's key variable"
        if isinstance(e, kinds.AuthenticationError | kinds.PermissionDeniedError):
            return Refused(
                text,
                fix=f"put a valid key into {variable}: export {variable}=...",
                code="refused-key",
            )
        status = getattr(e, "status_code", None)
        status = status if isinstance(status, int) else 0
        if isinstance(e, kinds.ContextWindowExceededError):
            status = 400
            words = "context length"  # whatever the provider's own are
        # a lost connection is told with a traceback, in which any word may occur
        if (
            tools
            and not isinstance(e, kinds.APIConnectionError)
            and chat.refuses_tools(status, words, self.model)
        ):
            self._native = False
            return chat.no_tools(self.model, chat.short(words))
        if isinstance(e, kinds.NotFoundError):
            return Refused(
                text, fix="check the model's name: litellm:PROVIDER/NAME", code="unknown-model"
            )
        if isinstance(e, kinds.Timeout):
            return Transient(text, fix="try again later", code="timeout", after=_after(e))
        if isinstance(e, kinds.APIConnectionError):
            status = status or 503
        if status >= 400:
            return chat.failure(text, status, words, _after(e))
        return Fault(
            f"{text} ({type(e).__name__})", fix="see the provider's words above", code="model-fault"
        )


def _marks(messages: Sequence[Message]) -> list[JsonDict]:
    """Return where a prompt ends that is asked again: behind the system prompt and, in a
    conversation, behind what was said so far. Anthropic's models put by and read back what lies
    before such a mark; others do so of themselves.
    """
    marks: list[JsonDict] = [{"location": "message", "role": "system"}]
    return [*marks, {"location": "message", "index": -1}] if len(messages) > 2 else marks


def _litellm() -> Any:
    with _IMPORT:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = (
            "True"  # else its import asks the network, for up to 36 s
        )
        os.environ.setdefault("LITELLM_TELEMETRY", "False")
        from recreate.plugins.hosted.transport import Transport

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own deprecations are not the user's
            module = need("litellm")
        warnings.filterwarnings(
            "ignore", message="Items? '.*' on TypedDict class", category=UserWarning
        )
        module.telemetry = False
        module.suppress_debug_info = True
        module.drop_params = True
        module.num_retries = 0
        if not isinstance(getattr(module, "sync_transport", None), Transport):
            import httpx

            tls = module.llms.custom_httpx.http_handler.get_ssl_configuration()
            # both clients that litellm makes: its own, and that of the openai package
            module.sync_transport = Transport(tls if isinstance(tls, ssl.SSLContext) else None)
            module.client_session = httpx.Client(transport=module.sync_transport)
        return module


def _find_cause(e: BaseException, kind: type[E]) -> E | None:
    """Return the first of a kind among what an exception was raised from."""
    cause: BaseException | None = e
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__ or cause.__context__
    return cause


def _no_key(model: str, variables: list[str]) -> Refused:
    names = " and ".join(variables)
    return Refused(
        f"{model} needs a key, and {names} is not set",
        fix=f"export {variables[0]}=..., or leave --model out to use a local model",
        code="no-key",
    )


def _after(e: Exception) -> float | None:
    for headers in (
        getattr(e, "litellm_response_headers", None),
        getattr(getattr(e, "response", None), "headers", None),
    ):
        told = (
            [headers.get(name, "") for name in ("retry-after", "retry-after-ms")] if headers else []
        )
        if told and (seconds := chat.retry_after(*told)) is not None:
            return seconds
    return None

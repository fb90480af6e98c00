"""Any hosted provider, by litellm: `litellm:PROVIDER/NAME`. Its import takes seconds and waits for a first call."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

from recreate.api.errors import BadInput, Fault, Refused, Transient
from recreate.api.ports import Price
from recreate.api.registry import missing, need
from recreate.api.types import Call, Message, Reply
from recreate.models.chat import estimate, estimate_reply, no_tools, refuses_tools, too_long, tool_calls
from recreate.models.hosted import key_variable
from recreate.models.pricing import facts, price_of
from recreate.storage.redact import redact

TIMEOUT_SECONDS = 300.0
_SENT_ON = ("temperature", "top_p", "max_tokens", "seed", "stop")
_FINISHES = ("stop", "length", "tool_calls")
_IMPORT = threading.Lock()


class LiteLLM:
    """A hosted model. A key that is missing is refused here, before any network.

    api_base   an own endpoint, for providers that allow one
    """

    def __init__(
        self,
        model: str,
        *,
        price: Price | None = None,
        api_base: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        if not model:
            raise BadInput("litellm: names no model", fix="write litellm:PROVIDER/NAME", code="bad-model")
        self.model = model
        self.name = f"litellm:{model}"
        self.price = price if price is not None else price_of(model)
        self.timeout = timeout
        self.api_base = api_base
        self._schema: bool | None = None
        self._native: bool | None = None
        provider = model.partition("/")[0] if "/" in model else str((facts(model) or {}).get("litellm_provider", ""))
        variable, there = key_variable(provider)
        if variable and not there and not api_base:
            raise _no_key(model, [variable])

    @property
    def native_tools(self) -> bool:
        """Whether litellm knows the model to call tools; the first look costs litellm's import."""
        if self._native is None:
            self._native = bool(_litellm().supports_function_calling(self.model))
        return self._native

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer; see `recreate.api.ports.Model`."""
        litellm = _litellm()
        self._check(litellm)
        sent: dict[str, Any] = {name: params[name] for name in _SENT_ON if params.get(name) is not None}
        schema = params.get("json_schema")
        if schema is not None and self._schema:
            wrapped = {"name": "reply", "schema": schema, "strict": True}
            sent["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        tools = params.get("tools")
        if tools:
            sent["tools"] = list(tools)
            if params.get("tool_choice") is not None:
                sent["tool_choice"] = params["tool_choice"]
            if "tools" not in (litellm.get_supported_openai_params(self.model) or ("tools",)):
                self._native = False  # litellm would drop them without a word
                raise no_tools(self.model, "litellm has no way to hand them to this model")
        if self.api_base:
            sent["api_base"] = self.api_base
            sent["api_key"] = os.environ.get("LLM_API_KEY") or os.environ.get("OPENAI_API_KEY") or "none"
        begun = time.perf_counter()
        try:
            body = litellm.completion(
                model=self.model,
                messages=[{"content": None, **m} for m in messages],
                extra_headers={"x-recreate-call": call.id},
                timeout=params.get("timeout") or self.timeout,
                num_retries=0,
                max_retries=0,
                drop_params=True,
                **sent,
            )
        except Exception as e:  # litellm raises many kinds, its own and its transports': each is attributed
            raise self._error(litellm, e, tools=bool(tools)) from None
        return self._read(body, messages, time.perf_counter() - begun)

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

    def _read(self, body: Any, messages: Sequence[Message], latency: float) -> Reply:
        try:
            choice = body.choices[0]
            text = choice.message.content or ""
            found = getattr(choice.message, "tool_calls", None) or ()
            calls = tool_calls([c if isinstance(c, dict) else c.model_dump() for c in found], len(messages))
            usage = getattr(body, "usage", None)
            tokens_in, tokens_out = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
            estimated = not tokens_in or tokens_out is None
            tokens_in = int(tokens_in or estimate(messages))
            tokens_out = int(estimate_reply(text, calls) if tokens_out is None else tokens_out)
            return Reply(
                text=text,
                tool_calls=calls,
                model=str(getattr(body, "model", "") or self.model),
                finish=choice.finish_reason if choice.finish_reason in _FINISHES else "other",
                tokens_in=tokens_in,
                tokens_out=tokens_out,
                usd=self.price.usd(tokens_in, tokens_out) if self.price else 0.0,
                latency=latency,
                estimated=estimated,
            )
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
            raise Transient(
                f"{self.model} answered with something that is not a chat completion ({type(e).__name__})",
                fix="try again",
                code="malformed-reply",
            ) from None

    def _error(self, litellm: Any, e: Exception, *, tools: bool) -> Fault | BadInput:
        if isinstance(e, ModuleNotFoundError) and (absent := missing(e.name or "")):
            return absent
        kinds = litellm.exceptions
        words = " ".join(redact(str(e)).split())
        words = words if len(words) <= 300 else words[:297] + "..."
        text = f"{self.model}: {words}"
        variable = key_variable(self.model.partition("/")[0])[0] or "the provider's key variable"
        if isinstance(e, kinds.AuthenticationError | kinds.PermissionDeniedError):
            return Refused(text, fix=f"put a valid key into {variable}: export {variable}=...", code="refused-key")
        status = getattr(e, "status_code", None)
        status = status if isinstance(status, int) else 0
        if isinstance(e, kinds.ContextWindowExceededError) or (status in (400, 413, 422) and too_long(words)):
            return Refused(text, fix="shorten the prompt, or use a model with a larger context", code="context-length")
        # a lost connection is told with a traceback, in which any word may occur
        if tools and not isinstance(e, kinds.APIConnectionError) and refuses_tools(status, words, self.model):
            self._native = False
            return no_tools(self.model, words)
        if isinstance(e, kinds.NotFoundError):
            return Refused(text, fix="check the model's name: litellm:PROVIDER/NAME", code="unknown-model")
        passing = (
            kinds.Timeout,
            kinds.RateLimitError,
            kinds.APIConnectionError,
            kinds.ServiceUnavailableError,
            kinds.InternalServerError,
        )
        if isinstance(e, passing) or status in (408, 409, 425, 429) or status >= 500:
            code = "timeout" if isinstance(e, kinds.Timeout) else f"http-{status or 503}"
            return Transient(text, fix="try again later", code=code, after=_after(e))
        if isinstance(e, kinds.BadRequestError) or 400 <= status < 500:
            return Refused(text, fix="the provider will not serve this request as it is", code=f"http-{status or 400}")
        return Fault(f"{text} ({type(e).__name__})", fix="see the provider's words above", code="model-fault")


def _litellm() -> Any:
    with _IMPORT:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks the network, for up to 36 s
        os.environ.setdefault("LITELLM_TELEMETRY", "False")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own deprecations are not the user's
            module = need("litellm")
        warnings.filterwarnings("ignore", message="Item '.*' on TypedDict class", category=UserWarning)
        module.telemetry = False
        module.suppress_debug_info = True
        module.drop_params = True
        module.num_retries = 0
        return module


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
        try:
            return max(0.0, float((headers or {}).get("retry-after", "")))
        except ValueError:
            continue
    return None

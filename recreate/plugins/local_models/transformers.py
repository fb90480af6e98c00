"""A model run in this process by transformers: `transformers:FOLDER`, or a name on the Hub.

It tells its tokens: what it read, what it wrote and the log-probs, which is what training needs.
One request at a time; a server (vLLM, llama.cpp) is many times as fast where there is one. FOLDER
may be a LoRA adapter's: its base is loaded and the adapter put on it. Weights are read from
safetensors only, and no code that comes with a model is run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from recreate.api.errors import BadInput, Fault
from recreate.api.plugins import names
from recreate.api.ports import Price
from recreate.api.registry import need
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Call, Message, Reply, digest
from recreate.models.chat import content
from recreate.models.pricing import FREE


class Drawn(NamedTuple):
    """One step of an answer. logprob: natural, of the whole distribution at the temperature asked
    for. embeds (1,d): what the model reads next in place of the token, with the tokens it mixes and
    their shares; None for a token.
    """

    token: int
    logprob: float
    embeds: Any = None
    mix_ids: tuple[int, ...] = ()
    mix: tuple[float, ...] = ()


class Sampling(NamedTuple):
    """How a token is drawn. temperature 0: the likeliest. top_k 0: all. generator: torch's."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    generator: Any = None


Draw = Callable[[Any, int, Sampling, Any], Drawn]
"""(logits (1,V), which step of the answer, sampling, the embedding matrix (V,d)) -> Drawn."""


class Transformers:
    """threads: 0 leaves torch's. context: tokens of prompt and reply together; default: the
    model's."""

    price: Price | None = FREE
    native_tools = False

    def __init__(
        self,
        what: str | Path,
        *,
        price: Price | None = None,
        threads: int = 0,
        context: int | None = None,
    ) -> None:
        self.source = str(what)
        self.name = f"transformers:{self.source}"
        path = Path(self.source).expanduser()
        if not self.source or (
            not any((path / file).is_file() for file in ("config.json", "adapter_config.json"))
            and (path.exists() or self.source.count("/") != 1 or self.source[0] in "./~")
        ):
            raise BadInput(
                f"{self.source or 'transformers:'} is no folder of a model: it holds no"
                " config.json",
                fix=(
                    "name a folder that save_pretrained wrote, or a name on the Hub:"
                    " ORGANISATION/NAME"
                ),
                code="unknown-model",
            )
        self.threads = threads
        self.context = context or 0
        self.override: JsonMap = {}
        """Parameters that go before what a call asks for: a recipe's temperature before a
        scaffold's."""
        self.draw: Draw = token
        self._lock = threading.RLock()
        self._loaded: tuple[Any, Any] | None = None
        self._tokenizer_digest = ""

    def prepare(self, progress: Any = None, say: Callable[[str], None] | None = None) -> None:
        """Load the weights now. Raises BadInput for a model without a chat template
        (`no-chat-template`)."""
        self.load()

    def load(self) -> tuple[Any, Any]:
        """(the torch module, its tokenizer), read at the first call."""
        with self._lock:
            if self._loaded is None:
                self._loaded = self._read()
                self._know()
            return self._loaded

    def take(self, module: Any) -> None:
        """Answer with this module from now on: the one under training, adapter and all."""
        with self._lock:
            self._loaded = (module, self.load()[1])

    @property
    def tokenizer_digest(self) -> str:
        """Of vocabulary and chat template: token ids of two models mean the same only where it is
        the same."""
        self.load()
        return self._tokenizer_digest

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer, with token_ids, logprobs and prompt_ids. A json_schema is not held to; tools
        are not taken."""
        import torch

        begun = time.perf_counter()
        params = {**params, **self.override}
        with self._lock, torch.no_grad():
            module, tokenizer = self.load()
            prompt = self.encode(messages)
            most = self.room(prompt, params.get("max_tokens"))
            generator = torch.Generator(device=module.device)
            generator.manual_seed(int(params.get("seed") or 0))
            temperature = params.get("temperature")
            sampling = Sampling(
                temperature=1.0 if temperature is None else float(temperature),
                top_p=float(params.get("top_p") or 1.0),
                top_k=int(params.get("top_k") or 0),
                generator=generator,
            )
            stop = params.get("stop") or ()
            drawn, finish = self._generate(
                prompt, most, sampling, (stop,) if isinstance(stop, str) else tuple(stop)
            )
            ids = [d.token for d in drawn]
            text = tokenizer.decode(ids, skip_special_tokens=True)
        latent = [d for d in drawn if d.embeds is not None]
        return Reply(
            text=text,
            model=self.name,
            finish=finish,
            tokens_in=len(prompt),
            tokens_out=len(ids),
            latency=time.perf_counter() - begun,
            token_ids=tuple(ids),
            logprobs=tuple(d.logprob for d in drawn),
            tokenizer_digest=self._tokenizer_digest,
            prompt_ids=tuple(prompt),
            mix_ids=tuple(d.mix_ids for d in latent),
            mix=tuple(d.mix for d in latent),
        )

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The ids that the chat template makes of messages, up to where the answer begins."""
        with self._lock:  # a fast tokenizer is nothing for two threads at once
            return encode(self.load()[1], messages, self.name)

    def room(self, prompt: Sequence[int], asked: int | None = None) -> int:
        """How many tokens the answer may have: those asked for (1024), as far as the context goes.
        Raises BadInput."""
        return max(1, min(int(asked or 1024), room(self.context, len(prompt), self.name)))

    def close(self) -> None:
        with self._lock:
            self._loaded = None

    def _generate(
        self, prompt: list[int], most: int, sampling: Sampling, stop: tuple[str, ...]
    ) -> tuple[list[Drawn], str]:
        import torch

        assert self._loaded is not None
        module, tokenizer = self._loaded
        module.eval()
        embedding = module.get_input_embeddings().weight
        ends = self._ends
        cache = None
        drawn = list[Drawn]()
        inputs: JsonDict = {"input_ids": torch.tensor([prompt], device=module.device)}
        while True:
            out = module(**inputs, past_key_values=cache, use_cache=True, **self._last)
            cache = out.past_key_values
            step = self.draw(out.logits[:, -1], len(drawn), sampling, embedding)
            drawn.append(step)
            if step.token in ends:
                return drawn, "stop"
            if stop and any(mark in tokenizer.decode([d.token for d in drawn]) for mark in stop):
                return drawn, "stop"
            if len(drawn) >= most:
                return drawn, "length"
            inputs = (
                {"input_ids": torch.tensor([[step.token]], device=module.device)}
                if step.embeds is None
                else {"inputs_embeds": step.embeds.unsqueeze(1)}
            )

    def _read(self) -> tuple[Any, Any]:
        transformers = need("transformers")
        torch = need("torch")
        transformers.utils.logging.disable_progress_bar()
        if self.threads:
            torch.set_num_threads(self.threads)
        path = Path(self.source).expanduser()
        here = path.is_dir()
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = "auto" if device == "cuda" else torch.float32
        source = str(path) if here else self.source
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, local_files_only=here)
            base = source
            if adapter := here and (path / "adapter_config.json").is_file():
                base = need("peft").PeftConfig.from_pretrained(source).base_model_name_or_path
            module = transformers.AutoModelForCausalLM.from_pretrained(
                base, dtype=dtype, use_safetensors=True, local_files_only=Path(base).is_dir()
            )
            if adapter:
                module = need("peft").PeftModel.from_pretrained(module, source)
        except (OSError, ValueError, KeyError, ImportError) as e:
            raise BadInput(
                f"{self.source} cannot be loaded: {str(e).strip().partition(chr(10))[0]}",
                fix="name a folder that save_pretrained wrote (safetensors), or a model on the Hub",
                code="unknown-model",
            ) from None
        asked_messages(tokenizer, self.source)
        try:
            return module.to(device).eval(), tokenizer
        except torch.OutOfMemoryError:
            raise Fault(
                f"{self.source} does not fit into the memory of the GPU",
                fix="take a smaller model",
                code="memory",
            ) from None

    def _know(self) -> None:
        """What the loaded model says of itself."""
        import inspect

        assert self._loaded is not None
        module, tokenizer = self._loaded
        self._tokenizer_digest = tokenizer_digest(tokenizer)
        known = getattr(module.config, "max_position_embeddings", None) or 4096
        self.context = min(self.context or known, known)
        ends = getattr(module.generation_config, "eos_token_id", None)
        ends = ends if isinstance(ends, list) else [ends]
        self._ends = frozenset(e for e in (*ends, tokenizer.eos_token_id) if e is not None)
        base = module.get_base_model() if hasattr(module, "get_base_model") else module
        self._last = (
            {"logits_to_keep": 1}
            if "logits_to_keep" in inspect.signature(base.forward).parameters
            else {}
        )


def token(logits: Any, step: int, sampling: Sampling, embedding: Any) -> Drawn:
    """An ordinary token of logits (1,V)."""
    import torch

    scores = logits[0].float()
    if sampling.temperature <= 0:
        taken = int(scores.argmax())
        return Drawn(taken, float(scores.log_softmax(-1)[taken]))
    logp = (scores / sampling.temperature).log_softmax(-1)
    p = logp.exp()
    if 0 < sampling.top_k < len(p):
        p = torch.where(p < p.topk(sampling.top_k).values[-1], 0.0, p)
    if sampling.top_p < 1:
        ordered, places = p.sort(descending=True)
        before = ordered.cumsum(-1) - ordered
        p = p.scatter(0, places, torch.where(before < sampling.top_p * ordered.sum(), ordered, 0.0))
    taken = int(torch.multinomial(p, 1, generator=sampling.generator))
    return Drawn(taken, float(logp[taken]))


_DIGESTS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def tokenizer_digest(tokenizer: Any) -> str:
    """Of vocabulary and chat template: token ids of two models mean the same only where it is the
    same."""
    if tokenizer not in _DIGESTS:
        _DIGESTS[tokenizer] = digest(
            [sorted(tokenizer.get_vocab().items()), tokenizer.chat_template]
        )
    return _DIGESTS[tokenizer]


def asked_messages(tokenizer: Any, name: str) -> None:
    """Raises BadInput (`no-chat-template`) for a tokenizer that has none."""
    if not getattr(tokenizer, "chat_template", None):
        raise BadInput(
            f"{name} has no chat template, so it cannot be asked messages",
            fix=(
                "take the instruct version of the model, or put a chat_template.jinja into its"
                " folder"
            ),
            code="no-chat-template",
        )


def encode(
    tokenizer: Any,
    messages: Sequence[Message],
    name: str,
    template: JsonMap | None = None,
) -> list[int]:
    """The ids that the chat template makes of messages, up to where the answer begins.

    name: of the model, for messages. template: arguments for it. Raises BadInput
    (`no-chat-template`, `bad-chat-template`), Fault.
    """
    asked_messages(tokenizer, name)
    texts = [{"role": m["role"], "content": content(m)} for m in messages]
    try:
        ids = tokenizer.apply_chat_template(
            texts, add_generation_prompt=True, tokenize=True, return_dict=False, **(template or {})
        )
    except Exception as e:  # a template may raise what it likes
        raise BadInput(
            f"the chat template of {name} does not take these messages: {e}",
            fix=(
                "many templates take no `system` role: put another chat_template.jinja into the"
                " model's folder"
            ),
            code="bad-chat-template",
        ) from None
    if not isinstance(ids, list):
        raise Fault(
            f"the tokenizer of {name} gave {type(ids).__name__}, not a list of ids",
            fix=(
                "take a text model whose tokenizer is one of transformers' own: recreate runs no"
                " code of a model"
            ),
            code="no-ids",
        )
    return [int(i) for i in ids]


def room(
    context: int,
    prompt: int,
    name: str,
    fix: str = "give the agent fewer steps or shorter observations",
) -> int:
    """How many tokens of the context a prompt of so many leaves. Raises BadInput (`context-length`)
    for none."""
    if context - prompt < 1:
        raise BadInput(
            f"the prompt has {prompt} tokens, and {name} reads {context}",
            fix=fix,
            code="context-length",
        )
    return context - prompt


def trainable(spec: str) -> str:
    """`transformers:FOLDER_OR_NAME` of a model whose weights can be trained; the prefix may be left
    out.

    Raises BadInput: `not-trainable` for a model that answers from elsewhere, and for an adapter;
    `unknown-model`.
    """
    prefix, colon, rest = spec.partition(":")
    named = rest if prefix == "transformers" else spec
    fix = "--model FOLDER, a model that transformers reads, or its name on the Hub"
    if not named:
        raise BadInput("no model is named", fix=fix)
    if colon and prefix != "transformers" and prefix in names("model"):
        raise BadInput(
            f"{spec} cannot be trained here: its weights are not at hand",
            fix=fix,
            code="not-trainable",
        )
    path = Path(named).expanduser()
    if (path / "adapter_config.json").is_file():
        raise BadInput(
            f"{named} is an adapter already",
            fix="name its base model; a run goes on with --out RUN",
            code="not-trainable",
        )
    named = str(path.resolve()) if path.is_dir() else named
    Transformers(named)
    return f"transformers:{named}"

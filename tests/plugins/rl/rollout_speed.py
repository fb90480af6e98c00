"""Tokens a second of `--rollouts here` beside those of a server: one process, the same model,
adapter and prompts.

    python -m tests.plugins.rl.rollout_speed MODEL --jobs 4 --vllm-python /path/to/its/environment

Both draw at temperature 1, without a stop, `--replies` answers of `--tokens` tokens at most, asked
for by `--jobs` threads; they take turns, so that what else the machine does meets both. A round is
timed from the first request to the last answer; the server's start is told apart. `gap` is the mean
difference of the server's log-probs to the module's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, median
from typing import Any

from recreate.api.types import Call, Reply
from recreate.plugins.local_models.transformers import Transformers
from recreate.plugins.rl.rollout import Served


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--with", dest="server", default="vllm", help="vllm or transformers")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--replies", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="of one reply, at most")
    parser.add_argument("--vllm-python", default="")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    base = Transformers(args.model)
    base.context = min(base.load() and base.context, 1024)
    base.override = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": args.tokens}
    module = _adapted(base)
    with tempfile.TemporaryDirectory() as place:
        served = Served(base, Path(place) / "adapter", args.server, vllm_python=args.vllm_python)
        try:
            begun = time.monotonic()
            served.update(module)
            start = time.monotonic() - begun
            who: dict[str, Callable[..., Reply]] = {"here": base.reply, args.server: served.reply}
            speeds: dict[str, list[float]] = {name: [] for name in who}
            gaps, loads = [], []
            for n in range(-1, args.rounds):  # the first round warms up
                for name, ask in who.items() if n % 2 else reversed(who.items()):
                    made, seconds = _round(ask, args, n)
                    if n >= 0:
                        speeds[name].append(sum(r.tokens_out for r in made) / seconds)
                    if name != "here" and n == args.rounds - 1:
                        gaps = [
                            abs(a - b)
                            for r in made
                            for a, b in zip(r.logprobs or (), _own(base, r), strict=True)
                        ]
                loads.append(round(os.getloadavg()[0], 1))
                print(f"round {n}: load {loads[-1]}", file=sys.stderr, flush=True)
        finally:
            served.close()
    told: dict[str, Any] = {
        name: {"median": median(s), "lowest": min(s), "highest": max(s)}
        for name, s in speeds.items()
    }
    ratios = [b / a for a, b in zip(speeds["here"], speeds[args.server], strict=True)]
    told |= {
        "ratio": median(ratios),
        "lo": min(ratios),
        "hi": max(ratios),
        "gap": fmean(gaps),
        "start": start,
    }
    told |= {"jobs": args.jobs, "replies": args.replies, "rounds": args.rounds, "load": loads}
    told["cores"] = len(os.sched_getaffinity(0))
    if args.json:
        print(json.dumps(told))
        return
    for name in speeds:
        print(
            f"{name:12} tokens/s",
            "  ".join(f"{key} {value:.1f}" for key, value in told[name].items()),
        )
    print(
        f"{args.server} / here: {told['ratio']:.2f} [{told['lo']:.2f}, {told['hi']:.2f}] over"
        f" {args.rounds} rounds of {args.replies} replies, {args.jobs} jobs, {told['cores']} cores,"
        f" load {loads}; gap {told['gap']:.2g} nats; the server started in {start:.0f} s"
    )


def _round(
    ask: Callable[..., Reply], args: argparse.Namespace, n: int
) -> tuple[list[Reply], float]:
    def one(k: int) -> Reply:
        said = [{"role": "user", "content": f"Write a story about the number {k}."}]
        return ask(said, Call(run="speed", attempt=str(k), step=n), seed=1000 * n + k)

    begun = time.monotonic()
    with ThreadPoolExecutor(args.jobs) as pool:
        made = list(pool.map(one, range(args.replies)))
    return made, time.monotonic() - begun


def _adapted(base: Transformers) -> Any:
    """The model with an adapter of rank 8 that changes it a little, as after some updates."""
    import peft
    import torch

    torch.manual_seed(0)
    config = peft.LoraConfig(
        r=8, lora_alpha=1, target_modules="all-linear", init_lora_weights=False
    )
    module = peft.get_peft_model(base.load()[0], config).eval()
    base.take(module)
    return module


def _own(base: Transformers, reply: Reply) -> list[float]:
    """The log-probs that the module itself gives to a reply's tokens."""
    import torch

    module, _ = base.load()
    prompt, drawn = list(reply.prompt_ids or ()), list(reply.token_ids or ())
    with torch.no_grad():
        logp = module(torch.tensor([prompt + drawn])).logits[0].float().log_softmax(-1)
    return [float(logp[len(prompt) + k - 1, t]) for k, t in enumerate(drawn)]


if __name__ == "__main__":
    main()

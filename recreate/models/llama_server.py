"""The child process behind `local:`: llama.cpp's OpenAI-style server on loopback, for as long as its parent lives.

    python -m recreate.models.llama_server --model FILE.gguf --threads 2 --parallel 2 --context 8192

Once it answers, one JSON line {"url", "pid"} goes to stdout. It ends when its stdin is closed, or its parent is
gone in whatever way.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import select
import signal
import sys
from pathlib import Path

CACHE_MB = 1024
"""RAM for prompts that no slot holds any more, so that a prefix met again is not computed again."""

_PR_SET_PDEATHSIG = 1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="recreate.models.llama_server", description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--alias", default="")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=1, help="requests answered at once")
    parser.add_argument("--context", type=int, default=8192, help="tokens each request may use")
    parser.add_argument("--cache-mb", type=int, default=CACHE_MB)
    args = parser.parse_args(argv)
    parent = os.getppid()
    _die_with(parent)

    import xllamacpp

    p = xllamacpp.CommonParams()
    p.model.path = str(args.model)
    if args.alias:
        p.model_alias = {args.alias}
    p.hostnames = ["127.0.0.1"]  # `hostname` is silently ignored
    p.port = args.port
    p.cpuparams.n_threads = args.threads
    p.cpuparams_batch.n_threads = args.threads
    p.n_parallel = args.parallel
    p.n_ctx = args.context * args.parallel  # llama.cpp divides it among the slots
    p.n_gpu_layers = 0
    p.cache_prompt = True
    p.cache_ram_mib = args.cache_mb
    p.warmup = False
    p.ui = False
    p.verbosity = 1
    server = xllamacpp.Server(p)
    print(json.dumps({"url": f"{server.listening_address}/v1", "pid": os.getpid()}), flush=True)
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], 1.0)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            break
    os._exit(0)  # llama.cpp would first finish the replies nobody waits for


def _die_with(parent: int) -> None:
    """SIGKILL when the parent's thread that started us ends: that also works while llama.cpp holds the GIL."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())

"""llama.cpp's OpenAI-style server on loopback, until its standard input closes.

    python -m recreate.models.llama_server --model FILE.gguf --port 8000 --threads 2 --parallel 2 --context 8192

`recreate.models.server` starts it under a supervisor, which ends it with its parent.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

CACHE_MB = 1024
"""RAM for prompts that no slot holds any more, so that a prefix met again is not computed again."""


def main() -> None:
    """Serve until standard input closes."""
    parser = argparse.ArgumentParser(prog="recreate.models.llama_server", description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--alias", default="")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=1, help="requests answered at once")
    parser.add_argument("--context", type=int, default=8192, help="tokens each request may use")
    args = parser.parse_args()

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
    p.cache_ram_mib = CACHE_MB
    p.warmup = False
    p.ui = False
    p.verbosity = 1
    server = xllamacpp.Server(p)  # noqa: F841  it serves as long as it is held
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)  # llama.cpp would first finish the replies nobody waits for


if __name__ == "__main__":
    main()

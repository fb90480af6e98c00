"""llama.cpp's OpenAI-style server on loopback, until its standard input closes.

    python -m recreate.plugins.local_models.llama_server --model FILE.gguf --port 8000 \\
        --threads 2 --parallel 2 --context 8192

`recreate.plugins.local_models.server` starts it under a supervisor, which ends it with its parent.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

CACHE_MB = 4096
"""RAM for prompts that no slot holds any more, at most, and at most a quarter of the machine's: a
candidate is asked what its parent was asked, a whole validation set later. The 1.5B model takes 28
kB a token, some 45 MB for a prompt of the small seed with its reply. The oldest are dropped first,
so that of a set which does not fit none is met again."""

MATCH = 12
"""So many tokens must have stood before, just like this, until what followed them is proposed
again. Of 61 recorded replies of the small seed 91 of 100 proposed tokens were taken then, and 83
after 6. llama.cpp proposes nothing where what followed is shorter than the match."""


def cache_mb() -> int:
    """What the cache of prompts may take on this machine."""
    return min(CACHE_MB, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**22)


def main() -> None:
    """Serve until standard input closes."""
    parser = argparse.ArgumentParser(
        prog="recreate.plugins.local_models.llama_server", description=__doc__
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--alias", default="")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=1, help="requests answered at once")
    parser.add_argument("--context", type=int, default=8192, help="tokens each request may use")
    parser.add_argument(
        "--draft", type=int, default=0, help="tokens proposed at once from what was read or written"
    )
    parser.add_argument(
        "--cache", type=int, default=cache_mb(), help="MB of RAM for prompts met before"
    )
    args = parser.parse_args()

    import xllamacpp

    p = xllamacpp.CommonParams()
    p.model.path = str(args.model)
    if args.alias:
        p.model_alias = {args.alias}
    p.hostnames = ["127.0.0.1"]  # `hostname` is silently ignored
    p.port = args.port
    # llama.cpp lets any page read what it answers
    p.cors_origins, p.cors_origins_explicit = f"http://127.0.0.1:{args.port}", True
    p.cors_credentials = False
    p.api_keys = [key] if (key := os.environ.pop("RECREATE_SERVER_KEY", "")) else []
    p.cpuparams.n_threads = args.threads
    p.cpuparams_batch.n_threads = args.threads
    p.n_parallel = args.parallel
    p.n_ctx = args.context * args.parallel  # llama.cpp divides it among the slots
    p.n_gpu_layers = 0
    p.cache_prompt = True
    p.cache_ram_mib = args.cache
    if args.draft:
        p.speculative.types = [
            xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
        ]
        p.speculative.ngram_simple.size_n = MATCH
        p.speculative.ngram_simple.size_m = args.draft
    p.warmup = False
    p.ui = False
    p.verbosity = 1
    server = xllamacpp.Server(p)  # noqa: F841  it serves as long as it is held
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)  # llama.cpp would first finish the replies nobody waits for


if __name__ == "__main__":
    main()

"""What is started to serve a model: the engine, its command, its variables. `recreate.models.server` starts it.

vllm            a folder or a name on the Hub, adapters loaded while it runs; from this environment or another one
transformers    a folder, one request at a time: for a CPU and for tests
xllamacpp       a .gguf file, or a model of the catalogue: local:NAME
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from recreate.api.errors import BadInput
from recreate.api.registry import missing

HOST = "127.0.0.1"

Engine = Literal["auto", "vllm", "transformers", "xllamacpp"]
ENGINES: tuple[str, ...] = get_args(Engine)

VLLM_PYTHON = "--vllm-python FOLDER_OR_PYTHON, or RECREATE_VLLM_PYTHON"

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Those that vLLM has kernels for."""


@dataclass(frozen=True)
class Launch:
    """What to start: its command and variables, on which port, and the name under which the model is asked for.

    base: the model whose adapters it takes while it runs, '' where it takes none.
    """

    engine: str
    command: tuple[str, ...]
    port: int
    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    base: str = ""


@dataclass(frozen=True)
class ServeConfig:
    """How to serve. port 0: a free one. vllm_python: of the environment that vLLM is in, '' for RECREATE_VLLM_PYTHON,
    else this one. context: tokens of a prompt and its reply together, 0: the model's. gpu: None looks. share: of the
    GPU's memory that vLLM may take, 0: its default. dtype: vLLM's, '' for its choice. rank: of the adapters to come.
    raw: log-probs at temperature 1 and before top_p and top_k, rather than after them. threads and parallel (requests
    at once) are llama.cpp's.
    """

    port: int = 0
    engine: Engine = "auto"
    vllm_python: str = ""
    context: int = 0
    gpu: bool | None = None
    share: float = 0.0
    dtype: str = ""
    rank: int = 0
    raw: bool = False
    threads: int = 0
    parallel: int = 0


def plan(what: str | Path, wish: ServeConfig | None = None, say: Callable[[str], None] | None = None) -> Launch:
    """How a model is served: a run of tune, one of its checkpoints, a model's folder or name on the Hub, FILE.gguf,
    local:NAME of the catalogue (fetched where it is not here; `say` is told).

    An adapter is served beside its base, which is there as `base`. Raises BadInput for what holds no model, an engine
    that is not installed or does not read it, a port that is taken.
    """
    wish = wish or ServeConfig()
    wish = replace(wish, vllm_python=wish.vllm_python or os.environ.get("RECREATE_VLLM_PYTHON", ""))
    engine = wish.engine
    named = str(what)
    port = wish.port or _free_port()
    if _taken(port):
        raise BadInput(f"port {port} is taken", fix="--port 0 takes a free one", code="port-taken")
    if named.startswith("local:") or named.endswith(".gguf"):
        if engine not in ("auto", "xllamacpp"):
            raise BadInput(
                f"{engine} does not read {named}: a .gguf file is served by xllamacpp",
                fix="--engine xllamacpp, or name a folder that save_pretrained wrote",
                code="bad-engine",
            )
        return _xllamacpp(named, port, wish, say)
    if engine == "xllamacpp":
        raise BadInput(
            f"xllamacpp reads .gguf files, and {named} is none",
            fix="convert the folder with llama.cpp's convert_hf_to_gguf.py, or take --engine vllm or transformers",
            code="bad-engine",
        )
    path = Path(what).expanduser()
    hub = named.count("/") == 1 and named[0] not in "./~" and not path.exists()
    folder = Path(named) if hub else _folder(path)
    adapter = adapter_config(folder)
    base = str(adapter["base_model_name_or_path"]) if adapter else str(folder)
    if adapter and not Path(base).is_dir() and (base.count("/") != 1 or base[0] in "./~"):
        raise BadInput(
            f"{folder} is an adapter of {base}, which is not there",
            fix="put that model there, or write its place into adapter_config.json (base_model_name_or_path)",
            code="no-base",
        )
    if engine == "auto":
        engine = "vllm" if wish.vllm_python or find_spec("vllm") else "transformers"
    made = _vllm if engine == "vllm" else _transformers
    return made(folder, adapter, base, port, wish)


def adapter_config(folder: Path) -> dict[str, Any]:
    """What an adapter's folder says of it, {} for another folder."""
    file = folder / "adapter_config.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return found


def vllm_python(named: str = "") -> str:
    """The Python that has vLLM: of the environment named by its folder or its Python, else this one.

    Raises BadInput (`missing`) when there is no vLLM in it.
    """
    if not named:
        if find_spec("vllm") is None:
            raise BadInput(
                "vLLM is not installed in this environment",
                fix="pip install vllm, in an environment of its own since tune wants another transformers (uv venv "
                f"vllm; uv pip install --python vllm vllm), and name that: {VLLM_PYTHON}; or take transformers",
                code="missing",
            )
        return sys.executable
    path = Path(named).expanduser().absolute()  # not resolved: a venv's python is a link, and is told by its place
    python = path / "bin" / "python" if path.is_dir() else path
    look = "import sys, importlib.util as u; sys.exit(3 if u.find_spec('vllm') is None else 0)"
    env = {**os.environ, **_elsewhere(python)}
    try:
        found = subprocess.run([python, "-c", look], env=env, capture_output=True, timeout=60).returncode
    except (OSError, subprocess.TimeoutExpired):
        found = -1
    if found:
        why = "has no vLLM" if found == 3 else "is no Python"
        raise BadInput(
            f"{python} {why}",
            fix=f"uv pip install --python {named} vllm" if found == 3 else f"name an environment: {VLLM_PYTHON}",
            code="missing",
        )
    return str(python)


def _vllm(folder: Path, adapter: Mapping[str, Any], base: str, port: int, wish: ServeConfig) -> Launch:
    python = vllm_python(wish.vllm_python)
    gpu = _gpu() if wish.gpu is None else wish.gpu
    name = folder.name
    rank = int(adapter.get("r", wish.rank) or 64)
    # the module, not the `vllm` command: the CPU build's metadata has another package's name
    given = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", base]
    given += ["--host", HOST, "--port", str(port), "--served-model-name", "base" if adapter else name]
    given += ["--enable-lora", "--max-lora-rank", str(next((n for n in _RANKS if n >= rank), rank))]
    if adapter:
        given += ["--lora-modules", f"{name}={folder}"]
        if (template := folder / "chat_template.jinja").is_file():
            given += ["--chat-template", str(template)]
    given += ["--logprobs-mode", "raw_logprobs" if wish.raw else "processed_logprobs"]
    # a request that names no temperature is drawn at 1, as everywhere here, not as the model's folder would have it
    given += ["--generation-config", "vllm", "--uvicorn-log-level", "warning"]
    if wish.context:
        given += ["--max-model-len", str(wish.context)]
    if wish.dtype:
        given += ["--dtype", wish.dtype]
    if wish.share and gpu:
        given += ["--gpu-memory-utilization", str(wish.share)]
    env = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    env["PYTHONSAFEPATH"] = "1"  # the folder that recreate is called in is nobody's to import from
    if wish.vllm_python:
        env |= _elsewhere(Path(python))
    if not gpu:
        given += ["--enforce-eager"]
        env["VLLM_CPU_KVCACHE_SPACE"] = os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")
    return Launch("vllm", tuple(given), port, name, env, base)


def _transformers(folder: Path, adapter: Mapping[str, Any], base: str, port: int, wish: ServeConfig) -> Launch:
    for module in ("torch", "transformers", *(("peft",) if adapter else ())):
        if find_spec(module) is None and (absent := missing(module)):
            raise absent
    given = ["-m", "recreate.models.transformers_server", "--model", str(folder), "--name", folder.name]
    given += ["--port", str(port), *(("--context", str(wish.context)) if wish.context else ())]
    return Launch("transformers", (sys.executable, *given), port, folder.name, _own(), base)


def _xllamacpp(named: str, port: int, wish: ServeConfig, say: Callable[[str], None] | None) -> Launch:
    from recreate.models import catalog
    from recreate.models.local import MOST_SLOTS, SPIN, check_gguf, cores

    if find_spec("xllamacpp") is None and (absent := missing("xllamacpp")):
        raise absent
    name = named.removeprefix("local:")
    if "/" in name or name.endswith(".gguf"):
        file, context = Path(name).expanduser().resolve(), 8192
        check_gguf(file)
    else:
        file, context = catalog.fetch_model(name, None, say), catalog.entry(name).context
    given = ["-m", "recreate.models.llama_server", "--model", str(file), "--alias", file.stem, "--port", str(port)]
    given += ["--threads", str(wish.threads or cores()), "--parallel", str(wish.parallel or MOST_SLOTS)]
    given += ["--context", str(wish.context or context)]
    return Launch("xllamacpp", (sys.executable, *given), port, file.stem, {**SPIN, **_own(*SPIN)})


def _own(*kept: str) -> dict[str, str]:
    """For a child that runs a module of ours: where this package is imported from. kept: variables as they are here."""
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(p for p in (here, os.environ.get("PYTHONPATH", "")) if p)
    # the current folder may hold a torch.py
    return {
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",
        **{name: os.environ[name] for name in kept if name in os.environ},
    }


def _elsewhere(python: Path) -> dict[str, str]:
    """For the Python of another environment: its own commands first, and none of this one's modules."""
    return {
        "PATH": os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath))),
        "PYTHONPATH": "",
        "PYTHONHOME": "",
        "PYTHONSAFEPATH": "1",
        "VIRTUAL_ENV": str(python.parent.parent),
    }


def _folder(path: Path) -> Path:
    """The folder with the weights: the newest checkpoint of a run."""
    checkpoints = sorted(p for p in (path / "checkpoints").glob("step-*") if (p / "state.json").is_file())
    found = checkpoints[-1] if checkpoints else path
    if not any((found / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise BadInput(
            f"{path} holds no model: neither a checkpoint of tune nor a config.json",
            fix="name a run of tune, one of its checkpoints, a folder that save_pretrained wrote, or a .gguf file",
            code="unknown-model",
        )
    return found.resolve()


def _gpu() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/kfd").exists()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


def _taken(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex((HOST, port)) == 0

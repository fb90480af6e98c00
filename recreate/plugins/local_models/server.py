"""Start, watch and stop an OpenAI-style server of a model or a checkpoint; load an adapter into it.

vllm            a folder or a name on the Hub, adapters loaded while it runs; from this environment
                or another one
transformers    a folder, one request at a time: for a CPU and for tests
xllamacpp       llama.cpp: a .gguf file, or a model of the catalogue: local:NAME

    with Server(plan("runs/tune-1/checkpoints/step-000050")) as server:
        server.wait()                                  # healthy from here on
        server.load("step-60", Path("..."))            # an adapter, hot-loaded after an update

The scaffold that uses it names it like any other endpoint: `openai:URL#NAME`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self, get_args

from recreate.api.errors import BadInput, Fault
from recreate.api.loopback import key_file
from recreate.api.registry import missing
from recreate.api.shapes import JsonDict, JsonMap
from recreate.plugins.local_models import catalog, supervisor
from recreate.storage.download import Progress

HOST = "127.0.0.1"

Engine = Literal["auto", "vllm", "transformers", "xllamacpp"]
KEY_VARIABLES = ("RECREATE_SERVER_KEY", "VLLM_API_KEY")
"""The variables in which a server finds its key: a command line is shown to other users."""

ENGINES: tuple[str, ...] = get_args(Engine)

VLLM_PYTHON = "--vllm-python FOLDER_OR_PYTHON, or RECREATE_VLLM_PYTHON"

MOST_SLOTS = 4
"""Requests llama.cpp serves at once, at most, by default. On 2 cores a warm request of the 1.5B
model took 7.0, 6.1 and 4.9 CPU seconds with 1, 2 and 4 slots; each slot computes a new prefix once,
and holds a context of its own."""

DRAFT = 15
"""Tokens that llama.cpp proposes at once for `local:` models: what followed the last ones when they
stood earlier in prompt or reply, for a rewritten function is mostly its own source. The model draws
every token itself, and the first that differs ends a proposal, so replies are drawn as without; but
their log-probs are lost. With the next token they are a batch of 16, which takes as long as nine
tokens one by one (of 8: six, of 24: fourteen)."""

SPIN_COUNT = "2000"
"""GOMP_SPINCOUNT for llama.cpp. Waiting threads spin for ever by default: fast alone, but on shared
cores two threads then make 1 token a second instead of 20. A short spin, then sleep, is as fast
alone and bears neighbours."""

_LLAMA_SERVER = ("-m", "recreate.plugins.local_models.llama_server")
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Those that vLLM has kernels for."""


START_SECONDS = 900.0
"""How long a server that does not answer yet may write nothing: vLLM compiles kernels for a new
model."""

GONE_SECONDS = 5.0
"""How long `stop` watches killed processes go: until then they hold their memory, a GPU's too."""

_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)S?$", re.IGNORECASE)
_CAUSE = re.compile(
    r"\b\w*(Error|Exception)\b: .|\b(error|failed)\b.*: .|: error: .", re.IGNORECASE
)
_NO_CAUSE = re.compile(
    r"root cause|Engine core init|child process|resource_tracker|\b(WARNING|INFO)\b|Warning: "
)


@dataclass(frozen=True)
class Launch:
    """What to start: its command and variables, on which port, and the name under which the model
    is asked for.

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
    """How to serve. port 0: a free one. vllm_python: of the environment that vLLM is in, '' for
    RECREATE_VLLM_PYTHON, else this one. context: tokens of a prompt and its reply together, 0: the
    model's. gpu: None looks. share: of the GPU's memory that vLLM may take, 0: its default. dtype:
    vLLM's, '' for its choice. rank: of the adapters to come. raw: log-probs at temperature 1 and
    before top_p and top_k, rather than after them. threads and parallel (requests at once) are
    llama.cpp's, and draft, tokens that it proposes at once where no log-probs are wanted.
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
    draft: int = 0


def plan(
    what: str | Path,
    config: ServeConfig | None = None,
    say: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Launch:
    """How a model is served: a run of tune, one of its checkpoints, a model's folder or name on the
    Hub, FILE.gguf, local:NAME of the catalogue (fetched where it is not here; `say` and `progress`
    are told).

    An adapter is served beside its base, which is there as `base`. Raises BadInput for what holds
    no model, an engine that is not installed or does not read it, a port that is taken.
    """
    config = config or ServeConfig()
    config = replace(
        config, vllm_python=config.vllm_python or os.environ.get("RECREATE_VLLM_PYTHON", "")
    )
    engine = config.engine
    named = str(what)
    port = config.port or _free_port()
    if _is_taken(port):
        raise BadInput(f"port {port} is taken", fix="--port 0 takes a free one", code="port-taken")
    if named.startswith("local:") or named.endswith(".gguf"):
        if engine not in ("auto", "xllamacpp"):
            raise BadInput(
                f"{engine} does not read {named}: a .gguf file is served by xllamacpp",
                fix="--engine xllamacpp, or name a folder that save_pretrained wrote",
                code="bad-engine",
            )
        return _xllamacpp(named.removeprefix("local:"), port, config, say, progress)
    if engine == "xllamacpp":
        raise BadInput(
            f"xllamacpp reads .gguf files, and {named} is none",
            fix=(
                "convert the folder with llama.cpp's convert_hf_to_gguf.py, or take --engine vllm"
                " or transformers"
            ),
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
            fix=(
                "put that model there, or write its place into adapter_config.json"
                " (base_model_name_or_path)"
            ),
            code="no-base",
        )
    if engine == "auto":
        engine = "vllm" if config.vllm_python or find_spec("vllm") else "transformers"
    made = _vllm if engine == "vllm" else _transformers
    return made(folder, adapter, base, port, config)


def adapter_config(folder: Path) -> JsonDict:
    """What an adapter's folder says of it, {} for another folder."""
    file = folder / "adapter_config.json"
    found: JsonDict = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return found


def vllm_python(named: str = "") -> str:
    """The Python that has vLLM: of the environment named by its folder or its Python, else this
    one.

    Raises BadInput (`missing`) when there is no vLLM in it.
    """
    if not named:
        if find_spec("vllm") is None:
            raise BadInput(
                "vLLM is not installed in this environment",
                fix=(
                    "pip install vllm, in an environment of its own since tune wants another"
                    " transformers (uv venv vllm; uv pip install --python vllm vllm), and name"
                    f" that: {VLLM_PYTHON}; or take transformers"
                ),
                code="missing",
            )
        return sys.executable
    # not resolved: a venv's python is a link, and is told by its place
    path = Path(named).expanduser().absolute()
    python = path / "bin" / "python" if path.is_dir() else path
    look = "import sys, importlib.util as u; sys.exit(3 if u.find_spec('vllm') is None else 0)"
    env = {**os.environ, **_elsewhere(python)}
    try:
        found = subprocess.run(
            [python, "-c", look], env=env, capture_output=True, timeout=60
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        found = -1
    if found:
        why = "has no vLLM" if found == 3 else "is no Python"
        raise BadInput(
            f"{python} {why}",
            fix=(
                f"uv pip install --python {named} vllm"
                if found == 3
                else f"name an environment: {VLLM_PYTHON}"
            ),
            code="missing",
        )
    return str(python)


def _vllm(folder: Path, adapter: JsonMap, base: str, port: int, config: ServeConfig) -> Launch:
    python = vllm_python(config.vllm_python)
    gpu = _gpu() if config.gpu is None else config.gpu
    name = folder.name
    rank = int(adapter.get("r", config.rank) or 64)
    # the module, not the `vllm` command: the CPU build's metadata has another package's name
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", base]
    command += [
        "--host",
        HOST,
        "--port",
        str(port),
        "--served-model-name",
        "base" if adapter else name,
    ]
    command += [
        "--enable-lora",
        "--max-lora-rank",
        str(next((n for n in _RANKS if n >= rank), rank)),
    ]
    if adapter:
        command += ["--lora-modules", f"{name}={folder}"]
        if (template := folder / "chat_template.jinja").is_file():
            command += ["--chat-template", str(template)]
    command += ["--logprobs-mode", "raw_logprobs" if config.raw else "processed_logprobs"]
    # a request that names no temperature is drawn at 1, as everywhere here, not as the model's
    # folder would have it
    command += ["--generation-config", "vllm", "--uvicorn-log-level", "warning"]
    command += ["--allowed-origins", "[]"]  # as it is, any page may read what it answers
    if config.context:
        command += ["--max-model-len", str(config.context)]
    if config.dtype:
        command += ["--dtype", config.dtype]
    if config.share and gpu:
        command += ["--gpu-memory-utilization", str(config.share)]
    env = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    env["PYTHONSAFEPATH"] = "1"  # the folder that recreate is called in is nobody's to import from
    if config.vllm_python:
        env |= _elsewhere(Path(python))
    if not gpu:
        command += ["--enforce-eager"]
        env["VLLM_CPU_KVCACHE_SPACE"] = os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")
    return Launch("vllm", tuple(command), port, name, env, base)


def _transformers(
    folder: Path, adapter: JsonMap, base: str, port: int, config: ServeConfig
) -> Launch:
    for module in ("torch", "transformers", *(("peft",) if adapter else ())):
        if find_spec(module) is None and (absent := missing(module)):
            raise absent
    command = [
        "-m",
        "recreate.plugins.local_models.transformers_server",
        "--model",
        str(folder),
        "--name",
        folder.name,
    ]
    command += [
        "--port",
        str(port),
        *(("--context", str(config.context)) if config.context else ()),
    ]
    return Launch("transformers", (sys.executable, *command), port, folder.name, _own(), base)


def _xllamacpp(
    name: str,
    port: int,
    config: ServeConfig,
    say: Callable[[str], None] | None,
    progress: Progress | None,
) -> Launch:
    if find_spec("xllamacpp") is None and (absent := missing("xllamacpp")):
        raise absent
    file, context, entry = catalog.locate(name)
    if entry:
        file = catalog.fetch_model(entry, progress, say)
    command = [*_LLAMA_SERVER, "--model", str(file), "--alias", file.stem, "--port", str(port)]
    command += [
        "--threads",
        str(config.threads or cores()),
        "--parallel",
        str(config.parallel or MOST_SLOTS),
    ]
    command += ["--context", str(config.context or context), "--draft", str(config.draft)]
    env = {"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", SPIN_COUNT), **_own()}
    return Launch("xllamacpp", (sys.executable, *command), port, file.stem, env)


class Server:
    """The child and its process tree. Ends with this object, with this process, or when killed."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.url = f"http://{HOST}:{launch.port}/v1"
        self.users = 1
        """How many models ask it, where several do; `served` beside this module counts them."""
        self.key = f"sk-{secrets.token_hex(24)}"
        """What it is to be asked with: no page of a website knows it."""
        self._loaded: set[str] = set()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed in stop()
        self._process = subprocess.Popen(
            [sys.executable, "-P", supervisor.__file__, *launch.command],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if not _SECRET.search(k)}
            | {**launch.env, **dict.fromkeys(KEY_VARIABLES, self.key)},
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.key_file = key_file(launch.port)
        with contextlib.suppress(OSError):  # for other programs: a read-only home keeps none
            self.key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.key_file.unlink(missing_ok=True)
            with os.fdopen(
                os.open(self.key_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w"
            ) as f:
                f.write(f"{self.pid} {self.key}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def wait(self, seconds: float = START_SECONDS, stop: threading.Event | None = None) -> None:
        """Return once it answers, or `stop` is set. Raises Fault when it ends, or writes nothing
        for `seconds`."""
        written = 0
        end = time.monotonic() + seconds
        while not (stop and stop.is_set()) and not self.healthy():
            if not self.alive():
                raise Fault(
                    f"the {self.launch.engine} server ended with status"
                    f" {self.status()}{self.last_words()}",
                    fix="is it a model that this engine reads, and is there memory for it?",
                    code="server-died",
                )
            if (now := os.fstat(self._log.fileno()).st_size) > written:
                written = now
                end = time.monotonic() + seconds
            if time.monotonic() > end:
                raise Fault(
                    f"the {self.launch.engine} server does not answer, and wrote nothing for"
                    f" {seconds:g} s{self.last_words()}",
                    fix="is the machine busy, or its memory full?",
                    code="server-slow",
                )
            time.sleep(0.2)

    def healthy(self) -> bool:
        """Whether it answers now."""
        try:
            return self._ask("GET", "/health")[0] == 200
        except OSError:
            return False

    def alive(self, patience: float = 0.0) -> bool:
        """Whether it runs. patience: seconds in which one whose connections are lost may be seen to
        have ended."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return True
        return False

    def status(self) -> int | None:
        """What it ended with: a process's exit status, or minus the signal that killed it; None
        while it runs."""
        return self._process.poll()

    def load(self, name: str, folder: Path) -> None:
        """Serve an adapter under `name` from now on. Raises BadInput for an adapter of another base
        (`another-model`) or a name that was used before, Fault when the server will not take it.

        Every version needs a name of its own: vLLM keeps what it has computed of a prompt by the
        adapter's name, and would go on from the old one's (vllm-project/vllm#42125).
        """
        base = str(adapter_config(folder).get("base_model_name_or_path", ""))
        if not self.launch.base or not _same(base, self.launch.base):
            raise BadInput(
                f"{folder} is {f'an adapter of {base}' if base else 'no adapter'}, and this server"
                f" has {self.launch.base or self.launch.name}",
                fix=f"recreate serve {folder} starts a server for it",
                code="another-model",
            )
        if name in self._loaded:
            raise BadInput(
                f"this server has had an adapter called {name!r}",
                fix="give each version its own name",
                code="taken",
            )
        self._adapter(
            "load", {"lora_name": name, "lora_path": str(folder)}, f"take the adapter {folder}"
        )
        self._loaded.add(name)

    def unload(self, name: str) -> None:
        """Serve the adapter no more. Raises Fault when the server will not."""
        self._adapter("unload", {"lora_name": name}, f"let go of the adapter {name}")

    def stop(self) -> None:
        """End the whole tree: asked first, forced after 10 s. Safe to call twice."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(supervisor.GRACE_SECONDS + supervisor.REST_SECONDS + 2)
        with contextlib.suppress(ProcessLookupError):
            # what is left when the supervisor itself was killed
            os.killpg(self.pid, signal.SIGKILL)
            end = time.monotonic() + GONE_SECONDS
            while time.monotonic() < end:
                self._process.poll()
                os.killpg(self.pid, 0)
                time.sleep(0.05)
        self._process.wait(10.0)
        self._log.close()
        with contextlib.suppress(OSError):
            if self.key in self.key_file.read_text("ascii"):
                self.key_file.unlink()

    def last_words(self) -> str:
        """What it wrote last that tells why, to be appended to a message."""
        try:
            file = self._log.fileno()
            # the child writes through the same description: a seek would move where it writes
            tail = os.pread(file, 40_000, max(0, os.fstat(file).st_size - 40_000))
            text = tail.decode("utf-8", "replace").replace(self.key, "sk-...")
            lines = [line.strip() for line in text.splitlines()]
        except (OSError, ValueError):
            return ""
        lines = [line for line in lines if line]
        causes = [line for line in lines if _CAUSE.search(line) and not _NO_CAUSE.search(line)]
        last = list(dict.fromkeys(line[-300:] for line in (causes or lines)[-3:]))
        return "; its last words: " + " | ".join(last) if last else ""

    def _adapter(self, verb: str, body: JsonDict, what: str) -> None:
        try:
            status, answer = self._ask("POST", f"/v1/{verb}_lora_adapter", body)
        except OSError as e:
            raise Fault(
                f"the server does not answer: {e}{self.last_words()}", fix="start it again"
            ) from None
        if status != 200:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                answer = json.loads(answer)["error"]["message"]
            raise Fault(
                f"the server did not {what}: {answer[:300]}",
                fix="is its rank one that the server was told of?",
            )

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        wire = http.client.HTTPConnection(HOST, self.launch.port, timeout=60)
        try:
            wire.request(
                method,
                path,
                json.dumps(body) if body is not None else None,
                {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"},
            )
            answer = wire.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except http.client.HTTPException as e:
            raise OSError(str(e)) from None
        finally:
            wire.close()


def _same(one: str, other: str) -> bool:
    return one == other or (
        Path(one).is_dir() and Path(one).resolve() == Path(other).expanduser().resolve()
    )


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def _own() -> dict[str, str]:
    """For a child that runs a module of ours: where this package is imported from."""
    here = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(p for p in (here, os.environ.get("PYTHONPATH", "")) if p)
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}  # the current folder may hold a torch.py


def _elsewhere(python: Path) -> dict[str, str]:
    """For the Python of another environment: its own commands first, and none of this one's
    modules."""
    return {
        "PATH": os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath))),
        "PYTHONPATH": "",
        "PYTHONHOME": "",
        "PYTHONSAFEPATH": "1",
        "VIRTUAL_ENV": str(python.parent.parent),
    }


def _folder(path: Path) -> Path:
    """The folder with the weights: the newest checkpoint of a run."""
    checkpoints = sorted(
        p for p in (path / "checkpoints").glob("step-*") if (p / "state.json").is_file()
    )
    found = checkpoints[-1] if checkpoints else path
    if not any((found / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise BadInput(
            f"{path} holds no model: neither a checkpoint of tune nor a config.json",
            fix=(
                "name a run of tune, one of its checkpoints, a folder that save_pretrained wrote,"
                " or a .gguf file"
            ),
            code="unknown-model",
        )
    return found.resolve()


def _gpu() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/kfd").exists()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


def _is_taken(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex((HOST, port)) == 0

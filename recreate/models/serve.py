"""An OpenAI-style server of a model or a checkpoint, as a child process: vLLM, or transformers where that is not.

    with Server(plan("runs/tune-1/checkpoints/step-000050", port=8000)) as server:
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
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

from recreate.errors import BadInput, Fault
from recreate.plug import missing

Engine = Literal["auto", "vllm", "transformers"]
START_SECONDS = 900.0
"""How long a server may take to answer: vLLM compiles kernels for a new model."""

HOST = "127.0.0.1"
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)S?$", re.IGNORECASE)


@dataclass(frozen=True)
class Launch:
    """What to start: its command and variables, on which port, and the name under which the model is asked for."""

    engine: str
    command: tuple[str, ...]
    port: int
    name: str
    env: Mapping[str, str] = field(default_factory=dict)


def plan(
    what: str | Path, *, port: int = 0, engine: Engine = "auto", gpu: bool | None = None, share: float = 0.0
) -> Launch:
    """How a folder is served: a checkpoint of tune, its run, or a model. port 0: a free one.

    An adapter is served beside its base, which is there as `base`. gpu: None looks. share: of the GPU's memory that
    vLLM may take, 0: its default. Raises BadInput for a folder that
    holds no model, and when an engine is asked for that is not installed.
    """
    path = Path(what).expanduser()
    hub = str(what) if str(what).count("/") == 1 and str(what)[0] not in "./~" and not path.exists() else ""
    folder = Path(hub) if hub else _folder(path)
    port = port or _free_port()
    if engine == "auto":
        engine = "vllm" if find_spec("vllm") else "transformers"
    name = folder.name
    if engine == "transformers":
        for module in ("torch", "transformers", "peft"):
            if find_spec(module) is None and (absent := missing(module)):
                raise absent
        command = ("-m", "recreate.models.transformers_server", "--model", str(folder), "--name", name)
        return Launch(engine, (sys.executable, *command, "--port", str(port)), port, name)
    if find_spec("vllm") is None:
        raise BadInput(
            "vLLM is not installed",
            fix="pip install vllm; or, slowly, recreate serve --engine transformers, or --model transformers:FOLDER",
            code="missing",
        )
    gpu = _gpu() if gpu is None else gpu
    adapter = _adapter(folder)
    base = adapter["base_model_name_or_path"] if adapter else str(folder)
    # the module, not the `vllm` command: the CPU build's metadata has another package's name
    given = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", base]
    given += ["--host", HOST, "--port", str(port), "--served-model-name", "base" if adapter else name]
    given += ["--enable-lora", "--max-lora-rank", str(_rank(adapter))]
    if adapter:
        given += ["--lora-modules", f"{name}={folder}"]
        if template := _template(folder):
            given += ["--chat-template", str(template)]
    env = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    given += ["--logprobs-mode", "processed_logprobs"]  # those of the temperature that was sampled at
    if share and gpu:
        given += ["--gpu-memory-utilization", str(share)]
    if not gpu:
        given += ["--enforce-eager"]
        env["VLLM_CPU_KVCACHE_SPACE"] = os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")
    return Launch(engine, tuple(given), port, name, env)


class Server:
    """The child and its process tree. Ends with this object, with this process, or when killed."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.url = f"http://{HOST}:{launch.port}/v1"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed in stop()
        env = {k: v for k, v in os.environ.items() if not _SECRET.search(k)} | dict(launch.env)
        here = str(Path(__file__).resolve().parents[2])
        env["PYTHONPATH"] = os.pathsep.join(p for p in (here, env.get("PYTHONPATH", "")) if p)
        if _taken(launch.port):
            raise BadInput(f"port {launch.port} is taken", fix="--port 0 takes a free one", code="port-taken")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "recreate.models.keeper", *launch.command],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def wait(self, seconds: float = START_SECONDS, stop: threading.Event | None = None) -> None:
        """Return once it answers, or `stop` is set. Raises Fault when it ends before, or takes too long."""
        end = time.monotonic() + seconds
        while not (stop and stop.is_set()) and not self.healthy():
            if not self.alive():
                raise Fault(
                    f"the {self.launch.engine} server ended with status {self._process.returncode}{self.last_words()}",
                    fix="is it a model that this engine reads, and is there memory for it?",
                    code="server-died",
                )
            if time.monotonic() > end:
                raise Fault(
                    f"the {self.launch.engine} server did not answer within {seconds:g} s{self.last_words()}",
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

    def alive(self) -> bool:
        return self._process.poll() is None

    def load(self, name: str, folder: Path) -> None:
        """Serve an adapter under `name` from now on, in place of one of that name. Raises Fault when it will not."""
        body = {"lora_name": name, "lora_path": str(folder), "load_inplace": True}
        try:
            status, said = self._ask("POST", "/v1/load_lora_adapter", body)
        except OSError as e:
            raise Fault(f"the server does not answer: {e}{self.last_words()}", fix="start it again") from None
        if status != 200:
            raise Fault(f"the server did not take the adapter {folder}: {said[:300]}", fix="is it of its base model?")

    def stop(self) -> None:
        """End the whole tree: asked first, forced after 10 s. Safe to call twice."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(15.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait(10.0)
        self._log.close()

    def last_words(self) -> str:
        """The last lines that it wrote, to be appended to a message."""
        try:
            self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, self._log.tell() - 4000))
            lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        except (OSError, ValueError):
            return ""
        return "; its last words: " + " | ".join(line.strip() for line in lines[-6:]) if lines else ""

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        wire = http.client.HTTPConnection(HOST, self.launch.port, timeout=60)
        try:
            wire.request(
                method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"}
            )
            answer = wire.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except http.client.HTTPException as e:
            raise OSError(str(e)) from None
        finally:
            wire.close()


def _folder(path: Path) -> Path:
    """The folder with the weights: the newest checkpoint of a run."""
    checkpoints = sorted(p for p in (path / "checkpoints").glob("step-*") if (p / "state.json").is_file())
    found = checkpoints[-1] if checkpoints else path
    if not any((found / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise BadInput(
            f"{path} holds no model: neither a checkpoint of tune nor a config.json",
            fix="name a run of tune, one of its checkpoints, or a folder that save_pretrained wrote",
            code="unknown-model",
        )
    return found.resolve()


def _adapter(folder: Path) -> dict[str, Any]:
    file = folder / "adapter_config.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return found


def _rank(adapter: Mapping[str, Any]) -> int:
    """vLLM knows some ranks only."""
    return next((n for n in (8, 16, 32, 64, 128, 256, 320) if n >= int(adapter.get("r", 64))), 512)


def _template(folder: Path) -> Path | None:
    file = folder / "chat_template.jinja"
    return file if file.is_file() else None


def _gpu() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/kfd").exists()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


def _taken(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex((HOST, port)) == 0

"""An OpenAI-style server of a model or a checkpoint, as a child process: vLLM, transformers or llama.cpp.

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
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

from recreate.api.errors import BadInput, Fault
from recreate.models import supervisor
from recreate.models.launch import HOST, Launch, adapter_config

START_SECONDS = 900.0
"""How long a server that does not answer yet may write nothing: vLLM compiles kernels for a new model."""

GONE_SECONDS = 5.0
"""How long `stop` watches killed processes go: until then they hold their memory, a GPU's too."""

_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)S?$", re.IGNORECASE)
_CAUSE = re.compile(r"\b\w*(Error|Exception)\b: .|\b(error|failed)\b.*: .|: error: .", re.IGNORECASE)
_NO_CAUSE = re.compile(r"root cause|Engine core init|child process|resource_tracker|\b(WARNING|INFO)\b|Warning: ")


class Server:
    """The child and its process tree. Ends with this object, with this process, or when killed."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.url = f"http://{HOST}:{launch.port}/v1"
        self._loaded: set[str] = set()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed in stop()
        self._process = subprocess.Popen(
            [sys.executable, "-P", supervisor.__file__, *launch.command],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if not _SECRET.search(k)} | dict(launch.env),
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def wait(self, seconds: float = START_SECONDS, stop: threading.Event | None = None) -> None:
        """Return once it answers, or `stop` is set. Raises Fault when it ends, or writes nothing for `seconds`."""
        written, end = 0, time.monotonic() + seconds
        while not (stop and stop.is_set()) and not self.healthy():
            if not self.alive():
                raise Fault(
                    f"the {self.launch.engine} server ended with status {self._process.returncode}{self.last_words()}",
                    fix="is it a model that this engine reads, and is there memory for it?",
                    code="server-died",
                )
            if (now := os.fstat(self._log.fileno()).st_size) > written:
                written, end = now, time.monotonic() + seconds
            if time.monotonic() > end:
                raise Fault(
                    f"the {self.launch.engine} server does not answer, and wrote nothing for {seconds:g} s"
                    f"{self.last_words()}",
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
        """Whether it runs. patience: seconds in which one whose connections are lost may be seen to have ended."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return True
        return False

    def load(self, name: str, folder: Path) -> None:
        """Serve an adapter under `name` from now on. Raises BadInput for an adapter of another base (`another-model`)
        or a name that was used before, Fault when the server will not take it.

        Every version needs a name of its own: vLLM keeps what it has computed of a prompt by the adapter's name, and
        would go on from the old one's (vllm-project/vllm#42125).
        """
        base = str(adapter_config(folder).get("base_model_name_or_path", ""))
        if not self.launch.base or not _same(base, self.launch.base):
            raise BadInput(
                f"{folder} is {f'an adapter of {base}' if base else 'no adapter'}, and this server has "
                f"{self.launch.base or self.launch.name}",
                fix=f"recreate serve {folder} starts a server for it",
                code="another-model",
            )
        if name in self._loaded:
            raise BadInput(
                f"this server has had an adapter called {name!r}", fix="give each version its own name", code="taken"
            )
        self._adapter("load", {"lora_name": name, "lora_path": str(folder)}, f"take the adapter {folder}")
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
            os.killpg(self.pid, signal.SIGKILL)  # what is left when the keeper itself was killed
            end = time.monotonic() + GONE_SECONDS
            while time.monotonic() < end:
                self._process.poll()
                os.killpg(self.pid, 0)
                time.sleep(0.05)
        self._process.wait(10.0)
        self._log.close()

    def last_words(self) -> str:
        """What it wrote last that tells why, to be appended to a message."""
        try:
            file = self._log.fileno()
            # the child writes through the same description: a seek would move where it writes
            said = os.pread(file, 40_000, max(0, os.fstat(file).st_size - 40_000))
            lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines()]
        except (OSError, ValueError):
            return ""
        lines = [line for line in lines if line]
        causes = [line for line in lines if _CAUSE.search(line) and not _NO_CAUSE.search(line)]
        told = list(dict.fromkeys(line[-300:] for line in (causes or lines)[-3:]))
        return "; its last words: " + " | ".join(told) if told else ""

    def _adapter(self, verb: str, body: dict[str, Any], what: str) -> None:
        try:
            status, said = self._ask("POST", f"/v1/{verb}_lora_adapter", body)
        except OSError as e:
            raise Fault(f"the server does not answer: {e}{self.last_words()}", fix="start it again") from None
        if status != 200:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                said = json.loads(said)["error"]["message"]
            raise Fault(f"the server did not {what}: {said[:300]}", fix="is its rank one that the server was told of?")

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


def _same(one: str, other: str) -> bool:
    return one == other or (Path(one).is_dir() and Path(one).resolve() == Path(other).expanduser().resolve())

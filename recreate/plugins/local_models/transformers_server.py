"""An OpenAI-style server over `transformers` beside it: for a CPU and for tests.

One request at a time.

    python -m recreate.plugins.local_models.transformers_server \\
        --model FOLDER --name NAME --port 8000

GET /health, GET /v1/models, POST /v1/chat/completions (no streaming), POST /v1/load_lora_adapter
and /v1/unload_lora_adapter as vLLM has them. With `return_token_ids` an answer holds token_ids and
prompt_token_ids.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput, RecreateError
from recreate.api.loopback import find_foreign_change, find_stranger
from recreate.api.shapes import JsonDict
from recreate.api.types import Call
from recreate.plugins.local_models.transformers import Transformers

_PARAMS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "stop")


class ServedNames:
    """The models by the name under which they are asked for; one is made when first needed."""

    def __init__(self, name: str, folder: str, context: int | None = None) -> None:
        self.context = context
        self.lock = threading.Lock()
        self.known: dict[str, Transformers] = {}
        self.load(name, folder)

    def load(self, name: str, folder: str) -> None:
        model = Transformers(folder, context=self.context)
        model.prepare()
        with self.lock:
            self.known[name] = model

    def get(self, name: str) -> Transformers:
        with self.lock:
            if name not in self.known:
                raise BadInput(
                    f"no model is called {name!r}; there are: {', '.join(self.known)}",
                    code="not-found",
                )
            return self.known[name]


def answer(models: ServedNames, path: str, body: JsonDict) -> Any:
    """The object that a POST is answered with. Raises BadInput for what is wrong with it."""
    if path == "/v1/load_lora_adapter":
        models.load(str(body["lora_name"]), str(body["lora_path"]))
        return {"status": "loaded"}
    if path == "/v1/unload_lora_adapter":
        with models.lock:
            models.known.pop(str(body["lora_name"]), None)
        return {"status": "unloaded"}
    if path != "/v1/chat/completions":
        raise BadInput(f"there is no {path}", code="not-found")
    model = models.get(str(body["model"]))
    params = {k: body[k] for k in _PARAMS if body.get(k) is not None}
    if "max_completion_tokens" in body:
        params["max_tokens"] = body["max_completion_tokens"]
    reply = model.reply(body["messages"], Call(run="served", attempt="served", step=0), **params)
    choice: JsonDict = {
        "index": 0,
        "message": {"role": "assistant", "content": reply.text},
        "finish_reason": reply.finish,
    }
    out: JsonDict = {
        "object": "chat.completion",
        "model": body["model"],
        "choices": [choice],
        "usage": {
            "prompt_tokens": reply.tokens_in,
            "completion_tokens": reply.tokens_out,
            "total_tokens": reply.tokens_in + reply.tokens_out,
        },
    }
    if body.get("logprobs"):
        tokens = model.load()[1].convert_ids_to_tokens(list(reply.token_ids or ()))
        choice["logprobs"] = {
            "content": [
                {"token": t, "logprob": p}
                for t, p in zip(tokens, reply.logprobs or (), strict=True)
            ]
        }
    if body.get("return_token_ids"):
        choice["token_ids"], out["prompt_token_ids"] = reply.token_ids, reply.prompt_ids
    return out


def handler(models: ServedNames, key: str = "") -> type[BaseHTTPRequestHandler]:
    """The request handler over these models. key: with which it is to be asked."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if stranger := find_stranger(self.headers.get):
                self._send(403, {"error": {"message": stranger}})
            elif self.path == "/health":
                self._send(200, {})
            elif self.path == "/v1/models":
                self._send(
                    200,
                    {
                        "object": "list",
                        "data": [{"id": n, "object": "model"} for n in models.known],
                    },
                )
            else:
                self._send(404, {"error": {"message": f"there is no {self.path}"}})

        def do_POST(self) -> None:
            try:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if stranger := find_foreign_change(self.headers.get):
                    self._send(403, {"error": {"message": stranger}})
                    return
                if self.headers.get_content_type() != "application/json":
                    words = "send JSON: content-type: application/json"
                    self._send(415, {"error": {"message": words}})
                    return
                if key and self.headers.get("Authorization") != f"Bearer {key}":
                    self._send(401, {"error": {"message": "the key of this server is not given"}})
                    return
                body = json.loads(text)
                self._send(200, answer(models, self.path, body))
            except BadInput as e:
                status = 404 if e.code == "not-found" else 400
                message = (
                    f"maximum context length exceeded: {e.message}"
                    if e.code == "context-length"
                    else e.message
                )
                self._send(
                    status,
                    {
                        "error": {
                            "message": message,
                            "code": e.code,
                            "type": "invalid_request_error",
                        }
                    },
                )
            except (ValueError, KeyError, TypeError) as e:
                self._send(
                    400,
                    {
                        "error": {
                            "message": f"{type(e).__name__}: {e}",
                            "type": "invalid_request_error",
                        }
                    },
                )
            except RecreateError as e:
                self._send(500, {"error": {"message": e.message}})

        def _send(self, status: int, record: Any) -> None:
            data = json.dumps(record).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", default="")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--context", type=int, default=None)
    args = parser.parse_args()
    key = os.environ.pop("RECREATE_SERVER_KEY", "")
    models = ServedNames(args.name or Path(args.model).name, args.model, args.context)
    ThreadingHTTPServer(("127.0.0.1", args.port), handler(models, key)).serve_forever()


if __name__ == "__main__":
    main()

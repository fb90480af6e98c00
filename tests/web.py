"""A loopback file server for tests: ranges, cuts and wrong answers, and a simple package index on
top."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """Serves `files` (path -> bytes). `cut[path]` = how many bytes each of the next answers gets
    before a hang-up; `status[path]` = the statuses of the next answers. `seen` = (path, Range
    header) of every request.
    """

    def __init__(self, files: Mapping[str, bytes] | None = None, ranges: bool = True) -> None:
        self.files = dict(files or {})
        self.ranges = ranges
        self.cut: dict[str, list[int]] = {}
        self.status: dict[str, list[int]] = {}
        self.seen: list[tuple[str, str]] = []
        self.auth: list[str] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                web._get(self)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def __enter__(self) -> Web:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def index(
        self, name: str, files: Mapping[str, bytes], hashes: Mapping[str, str] | None = None
    ) -> None:
        """Put a project on the index at /simple/; `hashes` overrides what the page states of a
        file."""
        rows = []
        for file, data in files.items():
            self.files[f"/files/{file}"] = data
            stated = (hashes or {}).get(file, hashlib.sha256(data).hexdigest())
            rows.append(f'<a href="/files/{file}#sha256={stated}">{file}</a>')
        self.files[f"/simple/{name}/"] = (
            "<html><body>" + "\n".join(rows) + "</body></html>"
        ).encode()

    def _get(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        wanted = handler.headers.get("Range", "")
        self.seen.append((path, wanted))
        self.auth.append(handler.headers.get("Authorization", ""))
        data = self.files.get(path)
        status = (
            self.status[path].pop(0)
            if self.status.get(path)
            else (200 if data is not None else 404)
        )
        if status >= 300 or data is None:
            handler.send_response(status)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        if start >= len(data) and start:
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(data)}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.send_header(
            "Content-Type", "text/html" if path.endswith("/") else "application/octet-stream"
        )
        handler.send_header("Content-Length", str(len(data) - start))
        handler.end_headers()
        if self.cut.get(path):
            handler.wfile.write(data[start : start + self.cut[path].pop(0)])
            handler.close_connection = True
        else:
            handler.wfile.write(data[start:])


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def targz(members: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    """A .tar.gz of name -> bytes, or -> a TarInfo (a link, a device)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, member in members.items():
            if isinstance(member, tarfile.TarInfo):
                member.name = name
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(member)
                tar.addfile(info, io.BytesIO(member))
    return out.getvalue()


def zipped(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in members.items():
            z.writestr(name, data)
    return out.getvalue()

"""Headless Chromium over its DevTools protocol, through a pair of pipes: no port, no driver,
nothing to install but the browser."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.ready import ready

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run"
    " --disable-background-networking --disable-component-update --disable-sync"
    " --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe"
)
PATIENCE = 60.0
"""Seconds for one answer: the machine may be busy."""
_LEFT = (
    "Inspected target navigated or closed",
    "Cannot find context",
    "Execution context was destroyed",
)
"""What Chromium says of a question to a page that was left meanwhile."""


def find() -> str:
    """The browser's path, '' when there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), "")


class Chromium:
    """One browser with one tab. `seen` collects every event; `requests` are the addresses that the
    page asked for."""

    def __init__(self) -> None:
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
        # the protocol is spoken on descriptors 3 and 4
        command = f'exec "$0" {FLAGS} --user-data-dir="$1" about:blank 3<&{in_read} 4>&{out_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, find(), self.profile],
            pass_fds=(in_read, out_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(in_read)
        os.close(out_write)
        self._in, self._out = in_write, out_read
        self._buffer = b""
        self._count = 0
        self.session = ""
        self.seen: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for part in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{part}.enable")

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result. Raises RuntimeError with what the browser said."""
        self._count += 1
        number = self._count
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.seen.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not ready(self._out, PATIENCE):
                raise RuntimeError(f"Chromium did not answer within {PATIENCE:g} s")
            data = os.read(self._out, 1 << 20)
            if not data:
                raise RuntimeError("Chromium ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def open(
        self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False
    ) -> None:
        """Go to a page and wait until it has loaded."""
        self.size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.seen.clear()
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def js(self, expression: str) -> Any:
        """The value of an expression in the page. Raises RuntimeError when it throws."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:800])
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression holds, also while the page that it is asked of gives way to the
        next. Raises RuntimeError when it never does."""
        end = time.monotonic() + PATIENCE
        while not self._holds(expression):
            if time.monotonic() > end:
                raise RuntimeError(f"never: {expression}")
            time.sleep(0.02)

    def _holds(self, expression: str) -> bool:
        try:
            return bool(self.js(expression))
        except RuntimeError as e:
            if not any(words in str(e) for words in _LEFT):
                raise
            return False

    def key(self, key: str) -> None:
        """Press and release one key, as a person does."""
        text: Mapping[str, Any] = {"text": key} if len(key) == 1 else {}
        named = {
            "Enter": {"text": "\r", "windowsVirtualKeyCode": 13},
            "Tab": {"windowsVirtualKeyCode": 9},
        }
        code = {"key": key, **text, **named.get(key, {})}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def click(self, selector: str) -> None:
        """Click the middle of an element's first line with the mouse."""
        sandbox = self.js(
            "(e => {e.scrollIntoView({block: 'center', behavior: 'instant'}); const r ="
            " e.getClientRects()[0]; return [r.x + r.width / 2, r.y + r.height /"
            f" 2]}})(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=sandbox[0],
                y=sandbox[1],
                button="left",
                clickCount=1,
            )

    def picture(self, file: Path, *, top: float = 0, height: float | None = None) -> None:
        """A PNG of the page from `top` on; all of it when no height is given."""
        width, whole = self.js(
            "[document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        )
        clip = {"x": 0, "y": top, "width": width, "height": height or whole - top, "scale": 1}
        data = self.call(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )["data"]
        file.write_bytes(base64.b64decode(data))

    @property
    def requests(self) -> list[str]:
        return [
            e["params"]["request"]["url"]
            for e in self.seen
            if e.get("method") == "Network.requestWillBeSent"
        ]

    @property
    def complaints(self) -> Sequence[str]:
        """What the console and the browser's own log say that is wrong."""
        found = []
        for event in self.seen:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"])[:500])
            elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] in (
                "warning",
                "error",
            ):
                found.append(parameters["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled":
                found.append(json.dumps(parameters["args"])[:500])
        return found

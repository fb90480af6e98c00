"""Runs inside the sandbox of a foreign agent: its command, and a port of 127.0.0.1 that leads to
the gateway.

A program of its own, for any Python from 3.6 on: it imports nothing of recreate. Its one argument
is JSON: `socket`, `port`, `command`, `env`, `path`, and `files` (folders whose place here the
command is told).
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


def relay(source: socket.socket, target: socket.socket) -> None:
    try:
        while True:
            data = source.recv(65536)
            if not data:
                break
            target.sendall(data)
    except OSError:
        pass
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def connected(address: str) -> socket.socket:
    there = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    there.connect(address)
    return there


def serve(door: socket.socket, address: str) -> None:
    while True:
        try:
            here, _ = door.accept()
            there = connected(address)
        except OSError:
            time.sleep(0.05)
            continue
        for pair in ((here, there), (there, here)):
            threading.Thread(target=relay, args=pair, daemon=True).start()


def listen(port: int) -> socket.socket:
    for wanted in (port, 0):
        door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(("127.0.0.1", wanted))
        except OSError:
            continue
        door.listen(64)
        return door
    raise SystemExit("no port of 127.0.0.1 is free")


def watch(address: str, child: Any) -> None:
    """End the command when the gateway says so, or is gone."""
    try:
        line = connected(address)
        line.sendall(b"GET /stop HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while line.recv(4096):
            pass
    except OSError:
        pass
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            child.send_signal(number)
        except OSError:
            return
        time.sleep(1)


def main() -> None:
    given = json.loads(sys.argv[1])
    here = Path.cwd()
    door = listen(given["port"])
    threading.Thread(target=serve, args=(door, given["socket"]), daemon=True).start()
    address = f"http://127.0.0.1:{door.getsockname()[1]}"
    places = {name: str(here / path) for name, path in given["files"].items()}
    env = dict(os.environ)
    for name, value in given["env"].items():
        for mark, place in places.items():
            value = value.replace("{" + mark + "}", place)
        env[name] = value.replace("{base_url}", address)
    if given["path"]:
        env["PATH"] = os.pathsep.join([given["path"], env.get("PATH", os.defpath)])
    command = given["command"].replace("{base_url}", address)
    for mark, place in places.items():
        command = command.replace("{" + mark + "}", place)
    shell = shutil.which("bash", path=env.get("PATH")) or "/bin/sh"
    child = subprocess.Popen([shell, "-c", command], env=env, stdin=subprocess.DEVNULL)
    threading.Thread(target=watch, args=(given["socket"], child), daemon=True).start()
    status = child.wait()
    sys.stdout.flush()
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()

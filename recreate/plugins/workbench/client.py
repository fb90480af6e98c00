#!/usr/bin/env python3
"""One of the commands of the folder: it asks the desk outside, and prints what that answers.

It runs inside the sandbox, by any Python from 3.8 on, and imports nothing of recreate. What it is
called as is the command's name. The agent's files go along as they stand.
"""

import json
import os
import pathlib
import socket
import sys

MOST = 1000000
"""Bytes of one file."""


def find_folder() -> pathlib.Path:
    here = pathlib.Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "TASK.md").is_file() and (folder / "agent").is_dir():
            return folder
    return pathlib.Path("/work")


def read_agent(folder: pathlib.Path) -> "tuple[dict[str, str], dict[str, str]]":
    texts: dict[str, str] = {}
    odd: dict[str, str] = {}
    for root, folders, names in os.walk(str(folder / "agent")):
        folders[:] = [name for name in folders if name not in (".git", "__pycache__")]
        for name in names:
            path = pathlib.Path(root) / name
            place = path.relative_to(folder / "agent").as_posix()
            try:
                if path.is_symlink() or not path.is_file():
                    odd[place] = "is no plain file"
                elif path.stat().st_size > MOST:
                    odd[place] = f"is larger than {MOST} bytes"
                else:
                    texts[place] = path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                odd[place] = "is not UTF-8"
            except OSError as e:
                odd[place] = f"cannot be read: {e.strerror}"
    return texts, odd


def main() -> int:
    folder = find_folder()
    texts, odd = read_agent(folder)
    causes = folder / "causes.md"
    try:
        told = causes.read_bytes()[:MOST].decode("utf-8", "replace")
    except OSError:
        told = ""
    name = pathlib.Path(sys.argv[0]).name
    asked = {"command": name, "arguments": sys.argv[1:], "agent": texts, "odd": odd, "causes": told}
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.connect(str(pathlib.Path(__file__).absolute().parent.parent / "desk.sock"))
        door.sendall(json.dumps(asked).encode("utf-8") + b"\n")
        parts = []
        while True:
            part = door.recv(65536)
            if not part:
                break
            parts.append(part)
        answer = json.loads(b"".join(parts).decode("utf-8"))
    except (OSError, ValueError):
        print(f"{name}: the session is over", file=sys.stderr)
        return 1
    for place, text in answer["files"].items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "replace"))
    sys.stdout.write(answer["text"].rstrip("\n") + "\n")
    return int(answer["status"])


if __name__ == "__main__":
    sys.exit(main())

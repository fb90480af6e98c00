"""The `none` backend: no sandbox at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from recreate.api.errors import BadInput
from recreate.api.ports import Limits
from recreate.sandboxes.sandbox import FolderSandbox


class NoSandbox:
    """This is no sandbox: commands run on the host, as you, with your files, your network and your
    processes.

    They start in a private folder with a minimal environment, under rlimits and the watch of disk;
    on a timeout, and at its end, the command's process group is killed, which a process that leaves
    the group survives. /work is not there: a command must use relative paths. A mount must be where
    it already is on the host.
    """

    name = "none"
    own_namespaces = False

    def probe(self) -> str:
        """Return '': it works everywhere, which is all that can be said for it."""
        return ""

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> FolderSandbox:
        """See `recreate.api.ports.SandboxBackend`. Raises BadInput for a mount under another path
        than its own."""
        for inside, outside in (mounts or {}).items():
            if Path(inside).resolve() != outside.resolve():
                raise BadInput(
                    f"without a sandbox {outside} cannot appear as {inside}",
                    fix="use --sandbox bwrap or --sandbox unshare",
                    code="bad-mount",
                )
        return FolderSandbox(self, drop=False, source=source, mounts=mounts, env=env, limits=limits)

    def argv(self, sandbox: FolderSandbox, command: Sequence[bytes], given: int) -> list[bytes]:
        return list(command)

    def filter(self, sandbox: FolderSandbox) -> bytes:
        return b""

    def surroundings(self, sandbox: FolderSandbox) -> tuple[str, dict[str, str]]:
        """Return (the folder a command starts in, the environment that says where it may write)."""
        return str(sandbox.work), {
            "HOME": str(sandbox.root / "home"),
            "TMPDIR": str(sandbox.root / "tmp"),
        }

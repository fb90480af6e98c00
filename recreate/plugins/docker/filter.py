"""The system call filter of every sandbox, in the form that container engines read."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Any

from recreate.sandboxes.seccomp import DENIED, MOUNTING, NEWUSER


def profile() -> dict[str, Any]:
    """Return the filter as container engines read it; what is there for counted memory alone is
    left to their groups."""

    def refuse(names: Sequence[str], number: int, *args: dict[str, Any]) -> dict[str, Any]:
        return {
            "names": list(names),
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": number,
            "args": list(args),
        }

    def when(index: int, value: int, how: str, second: int = 0) -> dict[str, Any]:
        return {"index": index, "value": value, "valueTwo": second, "op": f"SCMP_CMP_{how}"}

    known = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
    others = [when(0, family, "EQ") for family in range(64) if family not in known] + [
        when(0, 64, "GE")
    ]
    rules = [refuse([*DENIED, *MOUNTING], errno.EPERM), refuse(["clone3"], errno.ENOSYS)]
    rules += [refuse(["clone", "unshare"], errno.EPERM, when(0, NEWUSER, "MASKED_EQ", NEWUSER))]
    rules += [refuse(["socket"], errno.EAFNOSUPPORT, other) for other in others]
    rules += [
        refuse(["socket"], errno.EAFNOSUPPORT, when(0, socket.AF_NETLINK, "EQ"), when(2, 0, "NE"))
    ]
    rules += [refuse(["socketpair"], errno.EAFNOSUPPORT, when(0, socket.AF_UNIX, "NE"))]
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}

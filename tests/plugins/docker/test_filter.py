"""What containers may call."""

from __future__ import annotations

import errno
import socket

from recreate.plugins.docker.filter import profile


def test_containers_may_speak_with_the_kernel_of_routes_and_of_nothing_else() -> None:
    """As an engine reads the profile: the first rule all of whose conditions hold refuses."""

    def refused(call: str, *args: int) -> int:
        for rule in profile()["syscalls"]:
            holds = {"EQ": int.__eq__, "NE": int.__ne__, "GE": int.__ge__}
            told = [
                (a["op"].removeprefix("SCMP_CMP_"), args[a["index"]], a["value"])
                for a in rule["args"]
            ]
            if call in rule["names"] and all(holds[op](given, value) for op, given, value in told):
                return int(rule["errnoRet"])
        return 0

    assert refused("socket", socket.AF_NETLINK, socket.SOCK_RAW, 0) == 0
    assert refused("socket", socket.AF_NETLINK, socket.SOCK_RAW, 9) == errno.EAFNOSUPPORT
    assert refused("socket", socket.AF_INET, socket.SOCK_STREAM, 6) == 0
    assert refused("socket", socket.AF_PACKET, socket.SOCK_RAW, 0) == errno.EAFNOSUPPORT

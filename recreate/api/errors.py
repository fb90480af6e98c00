"""Every way recreate stops, drawn as a tree.

    RecreateError                 has code, message, fix and an exit code
    |- BadInput           exit 2  the user can mend it: `fix` says what to type
    |  |- Missing         exit 2  an optional part is not installed: `fix` is the command
    |  `- Refused         exit 2  an endpoint refused the key or the request for good
    |- OutOfBudget        exit 3  the cap was reached; the run can be resumed
    |- CheckFailed        exit 4  a check was asked for and did not hold
    |  `- Differs         exit 4  a replay came to what is not on its recording
    |- Fault              exit 1  the infrastructure failed (network, disk, sandbox); never the
    agent's doing
    |  `- Transient       exit 1  the same, and worth trying again
    `- Interrupted        exit 130

A bad attempt is not here: a wrong answer, a malformed reply and a limit reached are data (a Grade),
not errors.
"""

from __future__ import annotations

from typing import Any

UNSOUND = "unsound-task"
"""The code of a Fault that is one task's own: it cannot be attempted or graded here, however often,
and others can."""
OUTAGE = "outage"
"""The code of a Fault that ends what a model is asked: nothing of it can be had for now."""
REFUSED_REQUEST = "refused-request"
"""The code of a Fault of one request that a model refused, while it answers others."""
FILTERED = "content-filter"
"""The code of a Refused for what stands in a prompt: whoever wrote it did that."""
IMAGE = "image"
"""The code of a Fault of a container image that cannot be had, or is not as its task says: that of
its tasks alone."""


class RecreateError(Exception):
    """Shown to the user as one line and a fix, never as a traceback."""

    exit_code = 1

    def __init__(self, message: str, *, fix: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.code = code or _code(type(self).__name__)
        if fix:
            self.add_note(f"fix: {fix}")  # for those who see a traceback: a library's user

    def record(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {"error": {"code": self.code, "message": self.message, "fix": self.fix}}


class BadInput(RecreateError):
    """Wrong flag, file, name or setting."""

    exit_code = 2


class Missing(BadInput):
    """A part that an extra brings is not installed."""


class Refused(BadInput):
    """The endpoint answered, and will not serve this key, model or request."""


class OutOfBudget(RecreateError):
    """The next call could cross the cap, so it was not made."""

    exit_code = 3


class CheckFailed(RecreateError):
    """The thing checked did not hold."""

    exit_code = 4


class Differs(CheckFailed):
    """A replay is not what was recorded. call: where, a call's id, an attempt's, or `end`; expected
    and got: digests of the two requests (of agents at the end), or scores; expected is None where
    nothing was recorded.
    """

    def __init__(
        self, message: str, *, fix: str, call: str, expected: str | float | None, got: str | float
    ) -> None:
        super().__init__(message, fix=fix)
        self.call = call
        self.expected = expected
        self.got = got

    def record(self) -> dict[str, Any]:
        return {"call": self.call, "expected": self.expected, "got": self.got, **super().record()}


class Fault(RecreateError):
    """The infrastructure failed for good.

    unspent: of a call to a model, that it certainly did no work: the request was never sent, or was
    turned away. A call of which nobody knows (the answer was cut off, or did not come) may have
    been paid, and stays charged. spent: what the endpoint told of it all the same, tokens in and
    out.
    """

    spent: tuple[int, int] | None = None

    def __init__(
        self, message: str, *, fix: str = "", code: str = "", unspent: bool = False
    ) -> None:
        super().__init__(message, fix=fix, code=code)
        self.unspent = unspent


class Transient(Fault):
    """The infrastructure failed in a way that often passes: a timeout, a 429, a 5xx, a reset
    connection.

    `after` is the server's own wish in seconds (Retry-After), or None; unspent as in Fault.
    """

    def __init__(
        self,
        message: str,
        *,
        fix: str = "",
        code: str = "",
        after: float | None = None,
        unspent: bool = False,
    ) -> None:
        super().__init__(message, fix=fix, code=code, unspent=unspent)
        self.after = after


class Interrupted(RecreateError):
    """Ctrl-C or SIGTERM; what was paid for is on disk."""

    exit_code = 130


def _code(name: str) -> str:
    return "".join("-" + c.lower() if c.isupper() else c for c in name).lstrip("-")

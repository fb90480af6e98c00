"""When the situation of an agent changes: an error it has not just seen, another result of the tests."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recreate.agents.mentions import error_type

_COUNTS = re.compile(r"\b(\d+) (passed|failed|errors?|skipped)\b")
_VERDICT = re.compile(r"^(OK|FAILED|PASS|FAIL)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Situation:
    """What was seen last: the exception named last, and what the tests said last ('' for none)."""

    error: str = ""
    tests: str = ""

    def after(self, text: str) -> tuple[Situation, str]:
        """(the situation after a result, why it is another one: `error`, `tests`, or '' when it is not)."""
        error, tests = error_type(text), _tests(text)
        then = Situation(error or self.error, tests or self.tests)
        if error and error != self.error:
            return then, "error"
        return then, "tests" if tests and tests != self.tests else ""


def _tests(text: str) -> str:
    """The last line of a test run that gives the result, without its times."""
    counts = [(m.start(), m[0]) for m in _COUNTS.finditer(text[-20_000:])]
    if counts:
        line = text[-20_000:].rfind("\n", 0, counts[-1][0]) + 1
        return ", ".join(found for at, found in counts if at >= line)
    verdicts = _VERDICT.findall(text[-20_000:])
    return verdicts[-1] if verdicts else ""

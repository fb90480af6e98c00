"""A person's own code that raises or returns the wrong thing is named by method, file and line: every port, every
method, each raising, returning None and a number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import recreate
from recreate.api.ports import Price
from recreate.api.theirs import raised
from recreate.builder.learning import _checked
from recreate.cli import run as cli
from recreate.memory.embedders.hashed import Hashed
from recreate.models.scripted import Scripted
from recreate.sandboxes import choose
from tests.toy import Toy, script

FILE = "test_their_mistakes.py"
SMALL: dict[str, Any] = {"scaffold": "seed", "rounds": 1, "train": 2, "validation": 7, "models__retries": 0, "jobs": 1}


class Words:
    """A Memory that knows nothing."""

    def add(self, experiences: Any) -> None: ...

    def recall(self, query: str, k: int = 8, filters: Any = None, reader: str = "optimizer") -> list[recreate.Hit]:
        return []


class Proposer:
    def __init__(self, context: Any) -> None:
        self.context = context

    def propose(self, scaffold: Any, experiences: Any) -> list[recreate.Edit]:
        self.context.recall("word", 1, {})
        return []


class Several(Proposer):
    def candidates(self, scaffold: Any, experiences: Any) -> list[list[recreate.Edit]]:
        return []


class Policy:
    def __init__(self, context: Any) -> None:
        context.lessons["one"] = recreate.Lesson(id="one", title="One", body="Look twice.")

    def observe(self, experiences: Any) -> list[recreate.Change]:  # type: ignore[name-defined]
        return []

    def offer(self, query: str, budget: int) -> list[recreate.Lesson]:
        return []


class Backend:
    """Another's sandbox, made of the one that is here."""

    name = "mine"

    def __init__(self, sandbox: type | None = None) -> None:
        self.sandbox = sandbox

    def probe(self) -> str:
        return ""

    def open(self, *, source: Any = None, mounts: Any = None, env: Any = None, limits: Any = None) -> Any:
        inner = choose("none").open(source=source, mounts=mounts, env=env, limits=limits)
        return self.sandbox(inner) if self.sandbox else inner


class Inner:
    backend = "mine"

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def run(self, command: Any, timeout: Any = None, stdin: Any = None) -> Any:
        return self.inner.run(command, timeout, stdin)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.inner.write(path, data, mode)

    def read(self, path: str) -> bytes:
        return bytes(self.inner.read(path))

    def close(self) -> None:
        self.inner.close()


class Mine(Scripted):
    """A model of one's own."""

    price: Price | None = Price()


def breaks(part: type, method: str, how: str) -> type:
    """A class whose method does what it must not."""

    def broken(self: Any, *_: Any, **__: Any) -> Any:
        if how == "raises":
            return None.missing  # type: ignore[attr-defined]
        return {"None": None, "number": 7}[how]

    broken.__code__ = broken.__code__.replace(co_name=method, co_qualname=f"{part.__name__}.{method}")
    return type(part.__name__, (part,), {method: broken, "__module__": __name__})


def model(kind: type = Scripted) -> Any:
    return kind.of(script())  # type: ignore[attr-defined]


def attempted(**parts: Any) -> Any:
    return recreate.run("seed", "toy:train:0", **{"domain": Toy(), "model": model(), "sandbox": "none", **parts})


def built(**parts: Any) -> Any:
    how = {"domain": Toy(), "model": model(), "sandbox": "none", "embedder": Hashed(), **SMALL}
    return recreate.build(**{**how, **parts})


ATTEMPTED: list[tuple[type, str, Callable[[type], Any]]] = [
    (Toy, "tasks", lambda c: attempted(domain=c())),
    (Toy, "prepare", lambda c: attempted(domain=c())),
    (Toy, "collect", lambda c: attempted(domain=c())),
    (Toy, "grade", lambda c: attempted(domain=c())),
    (Mine, "reply", lambda c: attempted(model=model(c))),
    (Backend, "probe", lambda c: attempted(sandbox=c())),
    (Backend, "open", lambda c: attempted(sandbox=c())),
    (Inner, "run", lambda c: attempted(sandbox=Backend(c))),
]
BUILT: list[tuple[type, str, Callable[[type], Any]]] = [
    (Proposer, "propose", lambda c: built(optimizer=c)),
    (Several, "candidates", lambda c: built(optimizer=c)),
    (Policy, "observe", lambda c: built(memory=c)),
    (Words, "recall", lambda c: built(recall=c(), optimizer=Proposer)),
]
RAISING: list[tuple[type, str, Callable[[type], Any]]] = [
    (Inner, "close", lambda c: attempted(sandbox=Backend(c))),
    (Words, "add", lambda c: built(recall=c())),
]


@contextmanager
def named(part: type, method: str) -> Iterator[None]:
    with pytest.raises(recreate.BadInput) as told:
        yield
    assert f"{part.__name__}.{method} " in told.value.message, told.value.message
    assert FILE in told.value.message, told.value.message
    assert told.value.fix, told.value.message
    assert "Traceback" not in told.value.message


@pytest.mark.parametrize("how", ["raises", "None", "number"])
@pytest.mark.parametrize(("part", "method", "use"), ATTEMPTED, ids=[f"{p.__name__}.{m}" for p, m, _ in ATTEMPTED])
def test_what_an_attempt_calls_is_named(
    workspace: Path, part: type, method: str, use: Callable[[type], Any], how: str
) -> None:
    with named(part, method):
        use(breaks(part, method, how))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raises", "None", "number"])
@pytest.mark.parametrize(("part", "method", "use"), BUILT, ids=[f"{p.__name__}.{m}" for p, m, _ in BUILT])
def test_what_a_build_calls_is_named(
    workspace: Path, part: type, method: str, use: Callable[[type], Any], how: str
) -> None:
    with named(part, method):
        use(breaks(part, method, how))


@pytest.mark.parametrize(("part", "method", "use"), RAISING, ids=["Inner.close", "Words.add"])
def test_what_returns_nothing_is_named_where_it_raises(
    workspace: Path, part: type, method: str, use: Callable[[type], Any]
) -> None:
    with named(part, method):
        use(breaks(part, method, "raises"))


@pytest.mark.parametrize("how", ["raises", "None", "number"])
def test_an_embedder_is_named(workspace: Path, how: str) -> None:
    attempted()
    kind = breaks(Hashed, "embed", how)
    with pytest.raises((recreate.BadInput, AttributeError)) as told:
        recreate.ExperienceStore(workspace, kind()).recall("word", how="vectors")
    error = told.value if isinstance(told.value, recreate.BadInput) else raised(told.value)
    assert error is not None
    assert "Hashed.embed " in error.message
    assert FILE in error.message


@pytest.mark.parametrize("how", ["None", "number"])
def test_a_policys_offer_is_named(how: str) -> None:
    policy = breaks(Policy, "offer", how)(SimpleNamespace(lessons={}))
    with named(Policy, "offer"):
        _checked(policy)("the task", 600)


def test_say_and_budget(workspace: Path) -> None:
    def say(event: str, facts: dict[str, Any]) -> None:
        raise TypeError("no words")

    with pytest.raises(recreate.BadInput, match=rf"^say raised TypeError: no words \(.*{FILE}:\d+\)"):
        attempted(say=say)
    with pytest.raises(recreate.BadInput, match="'5' is not a budget") as told:
        attempted(budget=5)
    assert "5usd" in told.value.fix


def test_a_review_that_is_none(workspace: Path) -> None:
    def yes(*_: Any) -> Any:
        return True

    with pytest.raises(recreate.BadInput, match=rf"^yes returned bool True \(.*{FILE}:\d+\)") as told:
        built(review=yes)
    assert "docs/review.md" in told.value.fix


def test_the_command_says_it_too_and_leaves_no_crash_report(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["from tests.toy import Toy", "class Broken(Toy):", "    def grade(self, task, trace, backend):"]
    lines += ["        return helper(trace)", "def helper(trace):", "    return trace.no_such_field", ""]
    (workspace / "broken.py").write_text("\n".join(lines))
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in script()))
    command = ["run", "seed", "toy:train:0", "--domain", "broken:Broken", "--model", "scripted:s.jsonl", "--json"]
    assert cli([*command, "--sandbox", "none", "--out", "runs/a"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "their-code"
    assert error["message"].startswith("Broken.grade raised AttributeError: 'Trace' object has no attribute")
    assert error["message"].endswith("(broken.py:6)")
    assert error["fix"].startswith("mend broken.py:6; it returns recreate.Grade(")
    assert not list((workspace.parent / "home").glob("crash-*"))
    mended = (workspace / "broken.py").read_text().replace("return trace.no_such_field", "return trace")
    assert "no_such_field" not in mended
    (workspace / "mended.py").write_text(mended)
    assert cli([*command, "--domain", "mended:Broken", "--sandbox", "none", "--out", "runs/b"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], "Broken.grade graded toy:train:0 with Trace(" in error["message"]) == ("misfit", True)
    assert "mended.py:3)" in error["message"]


def test_our_own_mistakes_stay_ours() -> None:
    with pytest.raises(ValueError, match="property name") as told:
        json.loads("{")
    assert raised(told.value) is None
    assert raised(recreate.BadInput("said already")) is None

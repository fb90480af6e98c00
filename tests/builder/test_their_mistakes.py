"""A person's own code that raises or returns the wrong thing is named by method, file and line:
every port, every method, each raising, returning None and a number."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import recreate
from recreate.api import own_time
from recreate.api.errors import Interrupted
from recreate.api.own_time import OwnTime, patience_of
from recreate.api.ports import Price
from recreate.api.theirs import attribute_error
from recreate.builder import learning
from recreate.builder.learning import _checked
from recreate.cli import run as cli
from recreate.memory.embedders.hashed import Hashed
from recreate.models.scripted import Scripted
from recreate.runs.reader import Run, find_agent
from recreate.sandboxes import choose
from tests.toy import Toy, script

FILE = "test_their_mistakes.py"
SMALL: dict[str, Any] = {
    "scaffold": "seed",
    "rounds": 1,
    "train": 2,
    "validation": 7,
    "models__retries": 0,
    "jobs": 1,
}


class Words:
    """A Memory that knows nothing."""

    def add(self, experiences: Any) -> None: ...

    def recall(
        self, query: str, k: int = 8, filters: Any = None, reader: str = "optimizer"
    ) -> list[recreate.Hit]:
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

    def open(
        self, *, source: Any = None, mounts: Any = None, env: Any = None, limits: Any = None
    ) -> Any:
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

    broken.__code__ = broken.__code__.replace(
        co_name=method, co_qualname=f"{part.__name__}.{method}"
    )
    return type(part.__name__, (part,), {method: broken, "__module__": __name__})


def model(kind: type = Scripted) -> Any:
    return kind.of(script())  # type: ignore[attr-defined]


def attempted(**parts: Any) -> Any:
    return recreate.run(
        "seed", "toy:train:0", **{"domain": Toy(), "model": model(), "sandbox": "none", **parts}
    )


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
@pytest.mark.parametrize(
    ("part", "method", "use"), ATTEMPTED, ids=[f"{p.__name__}.{m}" for p, m, _ in ATTEMPTED]
)
def test_what_an_attempt_calls_is_named(
    workspace: Path, part: type, method: str, use: Callable[[type], Any], how: str
) -> None:
    with named(part, method):
        use(breaks(part, method, how))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raises", "None", "number"])
@pytest.mark.parametrize(
    ("part", "method", "use"), BUILT, ids=[f"{p.__name__}.{m}" for p, m, _ in BUILT]
)
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
    error = told.value if isinstance(told.value, recreate.BadInput) else attribute_error(told.value)
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

    with pytest.raises(
        recreate.BadInput, match=rf"^say raised TypeError: no words \(.*{FILE}:\d+\)"
    ):
        attempted(say=say)
    with pytest.raises(recreate.BadInput, match="'5' is not a budget") as told:
        attempted(budget=5)
    assert "5usd" in told.value.fix


def test_a_review_that_is_none(workspace: Path) -> None:
    def yes(*_: Any) -> Any:
        return True

    with pytest.raises(
        recreate.BadInput, match=rf"^yes returned bool True \(.*{FILE}:\d+\)"
    ) as told:
        built(review=yes)
    assert "docs/review.md" in told.value.fix


def test_the_command_says_it_too_and_leaves_no_crash_report(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "from tests.toy import Toy",
        "class Broken(Toy):",
        "    def grade(self, task, trace, backend):",
    ]
    lines += [
        "        return helper(trace)",
        "def helper(trace):",
        "    return trace.no_such_field",
        "",
    ]
    (workspace / "broken.py").write_text("\n".join(lines))
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in script()))
    command = [
        "run",
        "seed",
        "toy:train:0",
        "--domain",
        "broken:Broken",
        "--model",
        "scripted:s.jsonl",
        "--json",
    ]
    assert cli([*command, "--sandbox", "none", "--out", "runs/a"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "their-code"
    assert error["message"].startswith(
        "Broken.grade raised AttributeError: 'Trace' object has no attribute"
    )
    assert error["message"].endswith("(broken.py:6)")
    assert error["fix"].startswith("mend broken.py:6; it returns recreate.Grade(")
    assert not list((workspace.parent / "home").glob("crash-*"))
    mended = (
        (workspace / "broken.py").read_text().replace("return trace.no_such_field", "return trace")
    )
    assert "no_such_field" not in mended
    (workspace / "mended.py").write_text(mended)
    assert cli([*command, "--domain", "mended:Broken", "--sandbox", "none", "--out", "runs/b"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], "Broken.grade graded toy:train:0 with Trace(" in error["message"]) == (
        "misfit",
        True,
    )
    assert "mended.py:3)" in error["message"]


def test_our_own_mistakes_stay_ours() -> None:
    with pytest.raises(ValueError, match="property name") as told:
        json.loads("{")
    assert attribute_error(told.value) is None
    assert attribute_error(recreate.BadInput("said already")) is None


def forever() -> None:
    """Or as good as: a test whose hang nobody ends fails in half a minute."""
    for _ in range(20_000):
        time.sleep(0.001)


class Hangs(Policy):
    """Asks what it learns from, and never comes back."""

    patience = 0.5

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.context = context

    def observe(self, experiences: Any) -> list[recreate.Change]:
        self.context.ask([{"role": "user", "content": "what was learned?"}], step=0, thread="born")
        return self.then()

    def then(self) -> list[recreate.Change]:
        forever()
        return []


class Unhelpful(Policy):
    """Learns from the first round, and does not come back with it in the second."""

    patience = 0.5

    def __init__(self, context: Any) -> None:
        self.lessons = context.lessons

    def observe(self, experiences: Any) -> list[recreate.Change]:
        self.lessons["one"] = recreate.Lesson(
            id="one", title="One", body="Look twice.", status="active"
        )
        return []

    def offer(self, query: str, budget: int) -> list[recreate.Lesson]:
        forever()
        return []


@pytest.mark.slow
def test_a_policy_that_hangs_is_named_by_method_and_line_and_costs_nothing_but_its_patience(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace / "runs" / "a"
    with pytest.raises(recreate.BadInput) as told:
        built(memory=Hangs, out=str(folder))
    assert told.value.code == "hangs"
    assert told.value.message.startswith(
        "Hangs.observe did not come back: it was in its own code for 0.5 s"
    )
    assert FILE in told.value.message
    assert "recreate resume" in told.value.fix
    assert "patience" in told.value.fix
    attempts = len(list(Run(folder).records("experience")))
    assert attempts, "what was attempted is kept"
    monkeypatch.setattr(Hangs, "then", lambda self: [])
    built(memory=Hangs, out=str(folder))
    spend = Run(folder).spend()
    assert spend.by_role["optimizer"].calls <= 2, (
        "one of the policy, one of the optimizer: none was paid twice"
    )
    train = [r["attempt"] for r in Run(folder).records("experience") if r["split"] == "train"]
    assert len(train) == len(set(train)) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_an_offer_that_hangs_is_named_too(workspace: Path) -> None:
    with pytest.raises(
        recreate.BadInput, match=r"^Unhelpful\.offer did not come back: .* 0\.5 s"
    ) as told:
        built(memory=Unhelpful, rounds=2, train=4, batch=2)
    assert told.value.code == "hangs"


def test_a_policy_that_hangs_while_it_is_made_is_named(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never(Policy):
        def __init__(self, context: Any) -> None:
            forever()

    monkeypatch.setattr(learning, "PATIENCE", 0.3)
    with pytest.raises(recreate.BadInput, match=r"^the policy .*Never did not come back"):
        built(memory=Never)


@pytest.mark.parametrize("patience", [-1, "long", True, float("nan")])
def test_a_patience_that_is_none_is_said(patience: Any) -> None:
    policy = type("Odd", (Policy,), {"patience": patience})(SimpleNamespace(lessons={}))
    with pytest.raises(recreate.BadInput, match=r"^Odd\.patience is") as told:
        patience_of(policy)
    assert "0 for without end" in told.value.fix


def test_what_a_policy_asks_of_us_takes_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, now = threading.Semaphore(0), [0.0]

    def monotonic() -> float:
        looked.release()
        return now[0]

    monkeypatch.setattr(own_time, "time", SimpleNamespace(monotonic=monotonic))
    own = OwnTime()

    def looked_at() -> None:
        for _ in range(20):
            assert looked.acquire(timeout=60)  # whoever waits has looked, again and again

    def rerun() -> str:
        now[0] += 1000.0
        looked_at()
        return "scored"

    rerun_it = own.wrap(rerun)

    def observe() -> str:
        score = rerun_it()
        looked_at()  # in its own code again, for no time at all
        return score

    assert own.run(observe, "Slow.observe", 0.01) == "scored"


def test_a_call_that_was_given_up_spends_nothing_any_more() -> None:
    own, given_up, ended = OwnTime(), threading.Event(), threading.Event()
    spent, refused = list[str](), list[BaseException]()
    ask = own.wrap(lambda: spent.append("asked"))

    def observe() -> None:
        try:
            while not given_up.is_set():
                given_up.wait(60)
        finally:
            try:
                ask()
            except recreate.RecreateError as e:
                refused.append(e)
            ended.set()

    with pytest.raises(recreate.BadInput, match=r"^Late\.observe did not come back"):
        own.run(observe, "Late.observe", 0.05)
    given_up.set()
    assert ended.wait(60)
    assert not spent
    assert isinstance(refused[0], Interrupted)


def test_what_a_policy_raises_in_its_own_thread_is_named_as_ever() -> None:
    def observe() -> None:
        raise ZeroDivisionError("one by none")

    with pytest.raises(ZeroDivisionError, match="one by none"):
        OwnTime().run(observe, "Raises.observe", 60.0)


class Told(Toy):
    """Grades with a field that a Grade does not have."""

    def grade(self, task: Any, trace: Any, backend: Any) -> Any:
        return recreate.Grade(scor=1, passed=True)  # type: ignore[call-arg]


def test_a_record_that_cannot_be_made_is_told_by_its_field(workspace: Path) -> None:
    with pytest.raises(
        recreate.BadInput,
        match=rf"^Told.grade raised ValidationError: Grade: score: .*{FILE}:\d+\)",
    ):
        attempted(domain=Told())


def test_what_has_no_file_or_another_name_is_named_too(workspace: Path) -> None:
    typed: dict[str, Any] = {"__name__": "__main__", "Toy": Toy}
    exec(
        compile(
            "def mine(self, task, trace, backend):\n    return {}['answer']", "<stdin>", "exec"
        ),
        typed,
    )
    kind = type("Typed", (Toy,), {"grade": typed["mine"], "__module__": "__main__"})
    with pytest.raises(
        recreate.BadInput, match=r"^Typed.mine raised KeyError: 'answer' \(<stdin>:2\)"
    ):
        attempted(domain=kind())
    with pytest.raises(recreate.BadInput, match=r"^Leaves.reply raised SystemExit: 3"):
        attempted(model=model(type("Leaves", (Mine,), {"reply": leaves, "__module__": __name__})))


def leaves(self: Any, messages: Any, call: Any, **params: Any) -> Any:
    raise SystemExit(3)


leaves.__code__ = leaves.__code__.replace(co_name="reply")
WRONG: list[tuple[type, dict[str, Any], str]] = [
    (Mine, {"prepare": lambda self: None}, "`prepare(progress, say)` cannot be called so"),
    (Mine, {"override": ["temperature"]}, "its `override` is ['temperature']"),
    (Mine, {"native_tools": "yes"}, "its `native_tools` is 'yes', not True or False"),
    (Mine, {"name": "a\ud800"}, "its `name` is 'a\\ud800', not a text"),
    (Toy, {"gold": lambda self: "x"}, "`gold(task)` cannot be called so"),
    (Toy, {"hidden": "the answer"}, "it has no `hidden(task)`"),
]


@pytest.mark.parametrize(("kind", "wrong", "said"), WRONG, ids=[next(iter(w)) for _, w, _ in WRONG])
def test_what_a_part_offers_besides_fits_too_or_is_refused(
    workspace: Path, kind: type, wrong: dict[str, Any], said: str
) -> None:
    made = type("Odd", (kind,), {"__module__": __name__})
    part: Any = made() if kind is Toy else model(made)
    for name, value in wrong.items():
        setattr(made if callable(value) else part, name, value)
    given = {"domain" if kind is Toy else "model": part}
    with pytest.raises(recreate.BadInput) as told:
        attempted(**given)
    assert told.value.code == "misfit"
    assert said in told.value.message


def test_nothing_given_is_said_by_its_argument(workspace: Path) -> None:
    for name in ("domain", "model", "sandbox"):
        with pytest.raises(recreate.BadInput, match=rf"^{name}=None names nothing"):
            attempted(**{name: None})
    for name in ("optimizer", "models__optimizer", "embedder", "memory", "recall", "scaffold"):
        with pytest.raises(recreate.BadInput, match=rf"^{name}=None names nothing"):
            built(**{name: None})
    with pytest.raises(recreate.BadInput, match="cannot be called"):
        attempted(say=3)
    with pytest.raises(recreate.BadInput, match="no scaffold to measure"):
        recreate.bench([], Toy(), model=model())
    with pytest.raises(recreate.BadInput, match="is no task"):
        recreate.run("seed", 3, Toy(), model=model())  # type: ignore[arg-type]


def test_a_price_below_nothing_is_none() -> None:
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="tokens_out"):
            Price(tokens_out=wrong)


class Changes(Mine):
    """Puts words of its own into what it is asked."""

    def reply(self, messages: Any, call: Any, **params: Any) -> recreate.Reply:
        asked.append([dict(m) for m in messages])
        messages[0]["content"] = "mine"
        messages.append({"role": "user", "content": "mine"})
        return super().reply(messages, call, **params)


asked: list[list[dict[str, Any]]] = []


def test_a_model_that_changes_what_it_is_asked_changes_a_copy(workspace: Path) -> None:
    asked.clear()
    attempted(model=model(Changes))
    assert len(asked) > 1
    assert "mine" not in [m["content"] for messages in asked for m in messages]


def test_facts_that_are_another_thing_in_each_process_are_refused(workspace: Path) -> None:
    class Objects(Toy):
        def tasks(self, split: Any = None) -> Any:
            return [
                t.model_copy(update={"facts": {**t.facts, "x": [object()]}})
                for t in super().tasks(split)
            ]

    with pytest.raises(recreate.BadInput, match=r"facts of toy:train:0 hold <object object at"):
        attempted(domain=Objects())


def test_a_sandbox_that_two_attempts_share_is_refused(workspace: Path) -> None:
    class Shares(Toy):
        def prepare(self, task: Any, backend: Any) -> Any:
            self.box = getattr(self, "box", None) or super().prepare(task, backend)
            return self.box

    with pytest.raises(
        recreate.BadInput, match=r"^Shares.prepare returned a sandbox that it had returned before"
    ):
        recreate.bench("seed", Shares(), model=model(), sandbox="none", jobs=1, tasks=2)


def test_a_domain_that_hides_one_text_for_a_list_is_told_of_it(workspace: Path) -> None:
    class Hides(Toy):
        def hidden(self, task: Any) -> Any:
            return "the answer"

    said = list[str]()
    built(domain=Hides(), say=lambda event, facts: said.append(str(facts.get("text", ""))))
    assert any("Hides.hidden returned str 'the answer'" in text for text in said)


LEFT: dict[str, Any] = {
    "a": "text",
    "b": recreate.Lesson(id="c", title="T", body="B"),
    "../d": recreate.Lesson(id="../d", title="T", body="B"),
}


@pytest.mark.parametrize(
    ("id", "said"), [("a", "no Lesson"), ("b", "whose id is 'c'"), ("../d", "cannot name a file")]
)
def test_a_lesson_that_a_policy_leaves_wrong_is_named_and_nothing_is_written(
    workspace: Path, id: str, said: str
) -> None:
    class Leaves(Policy):
        def __init__(self, context: Any) -> None:
            self.lessons = context.lessons

        def observe(self, experiences: Any) -> list[recreate.Change]:
            self.lessons[id] = LEFT[id]
            return []

    with pytest.raises(
        recreate.BadInput, match=rf"^Leaves.observe left in context.lessons\[.*{said}"
    ):
        built(memory=Leaves)
    assert not [*(workspace / "memory" / "toy").rglob("*.md")]


def test_a_policy_is_what_makes_one(workspace: Path) -> None:
    with pytest.raises(
        recreate.BadInput, match="it is an object; give what makes one from a context: Policy"
    ):
        built(memory=Policy(SimpleNamespace(lessons={})))


class Asks(Proposer):
    """Asks in other words each time."""

    def propose(self, scaffold: Any, experiences: Any) -> list[recreate.Edit]:
        self.context.ask([{"role": "user", "content": "x"}], step=0, seed=3, timeout=60)
        scaffold.files["system.md"] = "mine"
        experiences.clear()
        self.context.ask("a question", step=1)
        return []


def test_an_optimizer_may_say_a_seed_and_is_told_of_what_are_no_messages(workspace: Path) -> None:
    with pytest.raises(recreate.BadInput, match=r"no messages: messages\[0\] is 'a'") as told:
        built(optimizer=Asks)
    assert told.value.code == "bad-messages"


def test_one_edit_in_place_of_a_list_is_named(workspace: Path) -> None:
    class One(Proposer):
        def propose(self, scaffold: Any, experiences: Any) -> Any:
            return recreate.Edit(path="system.md", new="x")

    with pytest.raises(recreate.BadInput, match=r"^One.propose returned Edit"):
        built(optimizer=One)


def test_candidates_of_a_generator_are_not_lost(workspace: Path) -> None:
    class Generates(Proposer):
        def candidates(self, scaffold: Any, experiences: Any) -> Any:
            yield [recreate.Edit(path="memory/a.md", new="# A\n\nB.\n", reason="r")]

    said = list[str]()
    built(optimizer=Generates, say=lambda event, facts: said.append(event + str(facts)))
    assert any("memory/a.md" in text for text in said)


def test_an_agent_with_a_fault_is_measured_and_said_to_have_one(workspace: Path) -> None:
    seed = recreate.Scaffold(
        name="odd", files={**find_agent("seed", workspace).files, "tools/new.py": "print(\n"}
    )
    said = list[str]()
    recreate.bench(
        seed,
        Toy(),
        model=model(),
        tasks=1,
        say=lambda event, facts: said.append(str(facts.get("text", ""))),
    )
    assert [text for text in said if text.startswith("odd/tools/new.py:1: ")]

"""recreate as a library: the table of contents, and verbs that do what the commands do with parts
of one's own."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.cli import run as cli
from recreate.models.scripted import Scripted
from recreate.optimizers.reflect import Reflect
from recreate.runs.reader import Run
from recreate.sandboxes import choose
from tests.builder.test_loop import PATIENCE, toy_reply, until_held
from tests.stub import Stub
from tests.toy import LESSON, Toy, script, write_script

ROOT = Path(__file__).parents[2]
TOY = "tests.toy:Toy"
FLAGS: dict[str, Any] = {
    "embedder": "hashed",
    "scaffold": "seed",
    "rounds": 1,
    "models__retries": 0,
}
TWO = {**FLAGS, "rounds": 2}

CONTENTS = {
    *("build", "run", "bench", "Outcome", "BenchResult", "Settings", "ExperienceStore"),
    *(
        "Task",
        "Split",
        "Message",
        "Call",
        "ToolCall",
        "Reply",
        "Review",
        "Usage",
        "Output",
        "Step",
        "Trace",
        "Grade",
    ),
    *(
        "Experience",
        "Lesson",
        "Gain",
        "Trial",
        "Change",
        "Evidence",
        "Edit",
        "Verdict",
        "Study",
        "Revision",
        "Scaffold",
    ),
    *("Price", "Limits", "Hit", "OptimizerContext", "Agent", "Desk", "wrap", "domain"),
    *(
        "Model",
        "Sandbox",
        "SandboxBackend",
        "Domain",
        "Validatable",
        "Memory",
        "MemoryPolicy",
        "Embedder",
        "Optimizer",
    ),
    *(
        "RecreateError",
        "BadInput",
        "Missing",
        "Refused",
        "OutOfBudget",
        "CheckFailed",
        "Fault",
        "Transient",
    ),
    "Interrupted",
}


@pytest.fixture
def model(workspace: Path) -> str:
    """The name of the scripted model that learns the toy domain's lesson."""
    return write_script(workspace / "s.jsonl")


# ---------------------------------------------------------------------------------------------- the
# contents


def test_the_table_of_contents_is_this_and_every_name_is_there() -> None:
    assert set(recreate.__all__) == CONTENTS
    assert recreate.__all__ == sorted(recreate.__all__)
    for name in recreate.__all__:
        assert getattr(recreate, name) is not None
    assert set(dir(recreate)) >= CONTENTS
    with pytest.raises(AttributeError, match="biuld"):
        _ = recreate.biuld


def test_what_a_type_checker_sees_is_what_is_found() -> None:
    tree = ast.parse((ROOT / "recreate" / "__init__.py").read_text("utf-8"))
    seen = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("recreate."):
            seen |= {alias.name: node.module for alias in node.names if alias.name == alias.asname}
    assert set(seen) == CONTENTS
    for name, module in seen.items():
        found = getattr(recreate, name)
        assert found is getattr(sys.modules[str(module)], name)


def test_importing_costs_next_to_nothing() -> None:
    code = """
import sys, recreate
dir(recreate), recreate.__all__, recreate.__version__
print([m for m in ("pydantic", "langgraph", "litellm", "jinja2", "typer", "sqlite3") if m in \
sys.modules])
print(sorted(m for m in sys.modules if m.startswith("recreate")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "[]\n['recreate']\n"


# ------------------------------------------------------------------------------------- what the
# commands do


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_a_build_of_objects_is_the_build_of_the_command_with_names(
    workspace: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--domain",
        TOY,
        "--model",
        model,
        "--optimizer",
        "reflect",
        "--scaffold",
        "seed",
        "--rounds",
        "1",
    ]
    assert (
        cli(["build", *flags, "--memory.embedder", "hashed", "--out", "runs/named", "--json"]) == 0
    )
    named = json.loads(capsys.readouterr().out)
    built = recreate.build(
        Toy(),
        model=Scripted(model.removeprefix("scripted:")),
        optimizer=Reflect,
        sandbox=choose(),
        scaffold=scaffolds.load(shipped("scaffolds") / "seed"),
        embedder="hashed",
        rounds=1,
        out="runs/objects",
    )
    assert built.scaffold.digest == named["scaffold"]["digest"]
    assert built.record["validation"] == named["validation"]
    assert [(r.id, r.parent) for r in built.revisions] == [
        (r["id"], r["parent"]) for r in named["revisions"]
    ]
    assert built.path == workspace / "scaffolds" / "toy"
    assert scaffolds.load(built.path).digest == built.scaffold.digest
    assert [p.name for p in sorted(built.run.glob("report*"))][-1:] == ["report.md"]
    spent = {name: usage["calls"] for name, usage in built.record["spend"]["by_role"].items()}
    assert spent == {name: usage["calls"] for name, usage in named["spend"]["by_role"].items()}


@pytest.mark.slow
def test_the_same_call_with_the_same_folder_goes_on_and_pays_nothing_twice(
    workspace: Path, model: str
) -> None:
    mine = Scripted(model.removeprefix("scripted:"))
    part = recreate.build(Toy(), model=mine, out="runs/x", budget="22attempts", **TWO)
    assert part.status == "budget"
    whole = recreate.build(Toy(), model=mine, out="runs/x", budget="90attempts", **TWO)
    assert (whole.status, whole.verdict.verdict) == ("done", "better")
    calls = [r["call"] for r in Run(whole.run).records("reply")]
    assert len(calls) == len(set(calls))
    again = recreate.build(Toy(), model=mine, out="runs/x", **TWO)
    assert again.scaffold.digest == whole.scaffold.digest
    assert len(list(Run(whole.run).records("reply"))) == len(calls)


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        {"rounds": 2},
        {"scaffold": "seed-swe-small"},
        {"domain": "tests.builder.test_sdk:Named"},
        {"seed": 7},
    ],
)
def test_another_build_in_the_same_folder_is_refused(
    workspace: Path, model: str, other: dict[str, Any]
) -> None:
    first: dict[str, Any] = {"domain": TOY, "model": model, "out": "runs/x", **FLAGS, "rounds": 0}
    recreate.build(**first)
    with pytest.raises(recreate.BadInput, match=next(iter(other))) as e:
        recreate.build(**first | other)
    assert e.value.code == "another-run"


def test_two_runs_within_a_second_have_each_a_folder(workspace: Path, model: str) -> None:
    for n in range(3):
        recreate.run("seed", f"toy:train:{n}", Toy(), model=model)
    assert len(list((workspace / "runs").glob("run-*/settings.toml"))) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_progress_is_told(workspace: Path, model: str) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    recreate.build(TOY, model=model, say=lambda event, facts: heard.append((event, facts)), **FLAGS)
    told = dict(heard)
    assert {
        "seed",
        "build",
        "round",
        "gather",
        "step",
        "score",
        "propose",
        "candidate",
        "revision",
    } <= set(told)
    assert told["revision"]["revision"].kept
    assert Counter(event for event, _ in heard)["step"] == 2 * (8 + 8 + 8)


# -------------------------------------------------------------------------------------- parts of
# one's own


@dataclass
class Wrapped:
    """A model that is a plain dataclass, so it cannot be hashed, and counts how often it was
    closed."""

    inner: Scripted
    name: str = "wrapped"
    price: recreate.Price | None = None
    closed: int = 0

    def reply(
        self, messages: Sequence[recreate.Message], call: recreate.Call, **params: Any
    ) -> recreate.Reply:
        return self.inner.reply(messages, call, **params)

    def close(self) -> None:
        self.closed += 1


class OneLesson:
    """An optimizer that needs nothing to be made."""

    def propose(
        self, scaffold: Any, experiences: Sequence[recreate.Experience]
    ) -> list[recreate.Edit]:
        failed = next((e for e in experiences if not e.grade.passed), None)
        if failed is None:
            return []
        cited = recreate.Evidence(experience=failed.id, step=0)
        return [
            recreate.Edit(
                path="memory/marks.md", new=f"# Marks\n\n{LESSON}\n", reason="r", evidence=(cited,)
            )
        ]


def test_a_model_that_was_given_stays_open_and_need_not_be_hashable(workspace: Path) -> None:
    mine = Wrapped(Scripted.of(script()))
    recreate.run("seed", "toy:train:1", Toy(), model=mine, price="0,0")
    recreate.bench("seed", Toy(), model=mine, tasks=1, price="0,0")
    assert mine.closed == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [OneLesson, OneLesson(), lambda materials: OneLesson(), "tests.builder.test_sdk:OneLesson"],
)
def test_an_optimizer_may_be_an_object_a_class_or_a_function(
    workspace: Path, model: str, optimizer: Any
) -> None:
    built = recreate.build(Toy(), model=model, optimizer=optimizer, **FLAGS)
    assert [lesson.title for lesson in built.scaffold.lessons] == ["Marks"]


class Cheat:
    """A memory that offers what an optimizer must not see."""

    def __init__(self, workspace: Path) -> None:
        self.all = recreate.ExperienceStore(workspace, "hashed")

    def add(self, experiences: Sequence[recreate.Experience]) -> None:
        assert {e.split for e in experiences} == {"train"}

    def recall(
        self,
        query: str,
        k: int = 8,
        filters: Mapping[str, Any] | None = None,
        reader: str = "optimizer",
    ) -> list[recreate.Hit]:
        return [
            recreate.Hit(
                id=e.id,
                grain="experience",
                score=1.0,
                split="train",
                text=e.prompt,
                experience=e.id,
            )
            for e in self.all.experiences()
        ]


@pytest.mark.slow
def test_what_a_users_memory_recalls_is_held_against_the_registry(
    workspace: Path, model: str
) -> None:
    seen: list[recreate.Hit] = []

    class Asks(OneLesson):
        def __init__(self, materials: recreate.OptimizerContext) -> None:
            seen.extend(materials.recall("word", 100, {}))

    recreate.build(Toy(), model=model, optimizer=Asks, recall=Cheat(workspace), **FLAGS)
    assert len(seen) == 8
    assert all(" train list" in hit.text for hit in seen)
    # the next run tells a memory what there is already
    known: list[str] = []

    class Told(Cheat):
        def add(self, experiences: Sequence[recreate.Experience]) -> None:
            known.extend(e.id for e in experiences)

    recreate.build(Toy(), model=model, recall=Told(workspace), **FLAGS | {"rounds": 0})
    assert set(known) == {hit.experience for hit in seen}


# ----------------------------------------------------------------------------------- found again,
# or said why not


@pytest.mark.slow
def test_a_class_that_can_be_found_again_is_spelled_in_the_settings_and_resumed(
    workspace: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    built = recreate.build(
        Toy(), model=model, optimizer=OneLesson(), out="runs/x", budget="22attempts", **TWO
    )
    settings = (built.run / "settings.toml").read_text()
    assert 'domain = "tests.toy:Toy"' in settings
    assert 'optimizer = "tests.builder.test_sdk:OneLesson"' in settings
    assert cli(["resume", "runs/x", "--budget", "90attempts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["validation"]["verdict"] == "better"


class Named(Toy):
    """A domain that its arguments name."""

    def __init__(self, name: str = "other") -> None:
        self.name = name


class Needs(Toy):
    def __init__(self, size: int) -> None:
        self.size = size


@pytest.mark.slow
def test_a_resume_that_cannot_find_the_parts_says_why(
    workspace: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Local(Toy):
        pass

    domains = [(Local(), "not-importable", "script"), (Needs(3), "cannot-be-made", "size")]
    domains += [(Named("toy-b"), "another-run", "toy-b")]
    for n, (domain, code, word) in enumerate(domains):
        recreate.build(domain, model=model, out=f"runs/{n}", budget="22attempts", **TWO)
        assert cli(["resume", f"runs/{n}", "--budget", "90attempts", "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert (error["code"], word in error["message"] + error["fix"]) == (code, True)
        whole = recreate.build(domain, model=model, out=f"runs/{n}", budget="90attempts", **TWO)
        assert whole.verdict.better


# ------------------------------------------------------------------------------------------- what
# does not fit


class NoGrade:
    name = "no-grade"
    tasks, prepare, collect = Toy.tasks, Toy.prepare, Toy.collect


class NoTrace(Toy):
    def grade(self, task: recreate.Task, backend: recreate.SandboxBackend) -> recreate.Grade:  # type: ignore[override]
        return recreate.Grade(score=0.0, passed=False)


class Waits(Toy):
    async def grade(self, *given: Any) -> recreate.Grade:  # type: ignore[override]
        return recreate.Grade(score=0.0, passed=False)


class Spaced(Toy):
    name = "my toy"


class IgnoresSplit(Toy):
    def tasks(self, split: Any = None) -> list[recreate.Task]:
        return list(super().tasks())


class SharedGroup(Toy):
    def tasks(self, split: Any = None) -> list[recreate.Task]:
        return [t.model_copy(update={"group": "words"}) for t in super().tasks(split)]


class Twice(Toy):
    def tasks(self, split: Any = None) -> list[recreate.Task]:
        return [t.model_copy(update={"id": "toy:1"}) for t in super().tasks(split)]


class NoParams(Wrapped):
    def reply(self, messages: Any, call: Any) -> recreate.Reply:  # type: ignore[override]
        return recreate.Reply(text="")


class Prefers:
    """No `propose`."""

    def __init__(self, materials: recreate.OptimizerContext) -> None: ...


class Half:
    """A rung whose boxes cannot be read."""

    name = "half"

    def probe(self) -> str:
        return ""

    def open(
        self, *, source: Any = None, mounts: Any = None, env: Any = None, limits: Any = None
    ) -> Any:
        box = choose().open()
        return type(
            "HalfBox", (), {"rung": "half", "run": box.run, "write": box.write, "close": box.close}
        )()


class Broken(Half):
    def probe(self) -> str:
        return "no container here"


MISFITS: list[tuple[dict[str, Any], str, str, str]] = [
    (
        {"domain": NoGrade()},
        "misfit",
        "it has no `grade(task, trace, backend)`",
        "docs/ports/domain.md",
    ),
    (
        {"domain": f"{__name__}:NoGrade"},
        "misfit",
        "it has no `grade(task, trace, backend)`",
        "docs/ports/domain.md",
    ),
    (
        {"domain": NoTrace()},
        "misfit",
        "`grade(task, trace, backend)` cannot be called so",
        "docs/ports/domain.md",
    ),
    ({"domain": Waits()}, "misfit", "is async", "docs/ports/domain.md"),
    ({"domain": Toy}, "misfit", "it is a class; give an object: Toy(...)", "docs/ports/domain.md"),
    ({"domain": Spaced()}, "misfit", "'my toy' cannot name a folder", "docs/ports/domain.md"),
    (
        {"domain": IgnoresSplit()},
        "bad-tasks",
        "holds toy:validation:0, which is of",
        "docs/ports/domain.md",
    ),
    (
        {"domain": SharedGroup()},
        "bad-tasks",
        "the group 'words' is in train and in validation",
        "docs/ports/domain.md",
    ),
    ({"domain": Twice()}, "bad-tasks", "two tasks have the id toy:1", "docs/ports/domain.md"),
    (
        {"model": NoParams(Scripted.of([{"text": ""}]))},
        "misfit",
        "`reply(messages, call, **params)`",
        "model.md",
    ),
    ({"model": lambda messages: "hello"}, "misfit", "it has no `name`", "docs/ports/model.md"),
    (
        {"optimizer": Prefers},
        "misfit",
        "it has no `propose(scaffold, experiences)`",
        "docs/ports/optimizer.md",
    ),
    (
        {"optimizer": "tests.builder.test_sdk:Prefers"},
        "misfit",
        "it has no `propose",
        "docs/ports/optimizer.md",
    ),
    ({"optimizer": Named("x")}, "misfit", "it has no `propose", "docs/ports/optimizer.md"),
    ({"sandbox": Half()}, "misfit", "it has no `read(path)`", "docs/ports/sandbox.md"),
    ({"sandbox": Broken()}, "no-sandbox", "no container here", ""),
    ({"embedder": Toy()}, "misfit", "it has no `dimensions`", "docs/ports/embedder.md"),
    ({"recall": Toy()}, "misfit", "it has no `recall(query, k=8", "docs/ports/memory.md"),
]


@pytest.mark.parametrize(("given", "code", "said", "page"), MISFITS)
def test_a_part_that_does_not_fit_is_named_before_anything_is_spent(
    workspace: Path, model: str, given: dict[str, Any], code: str, said: str, page: str
) -> None:
    with pytest.raises(recreate.BadInput) as e:
        recreate.build(**{"domain": Toy(), "model": model, **FLAGS, **given, "out": "runs/x"})
    assert (e.value.code, said in e.value.message, page in e.value.fix) == (
        code,
        True,
        True,
    ), e.value.message
    assert not (workspace / "runs/x/attempts").exists()
    assert getattr(e.value, "__notes__", []) == [f"fix: {e.value.fix}"]


class Says(Wrapped):
    def reply(self, messages: Any, call: Any, **params: Any) -> Any:
        return "hello"


class GradesTwo(Toy):
    def grade(self, task: Any, trace: Any, backend: Any) -> recreate.Grade:
        return recreate.Grade(score=2.0, passed=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": Says(Scripted.of([{"text": ""}]))}, "answered with str, not a Reply"),
        ({"domain": GradesTwo()}, "graded toy:train:0 with Grade"),
    ],
)
def test_what_a_part_returns_is_looked_at_too(
    workspace: Path, model: str, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(recreate.BadInput, match=said):
        recreate.run(
            "seed", "toy:train:0", **{"domain": Toy(), "model": model, "price": "0,0", **given}
        )


def test_a_module_that_does_not_import_is_the_users_to_mend(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "halfway.py").write_text("import a_package_that_is_not_there\n")
    for name, word in (
        ("halfway:X", "a_package_that_is_not_there"),
        ("no_such_module_here:X", "no module is called"),
    ):
        assert cli(["tasks", "list", name, "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["code"] == "not-importable"
        assert word in error["message"]


# ------------------------------------------------------------------------------------------------
# Ctrl-C


@pytest.mark.slow
def test_ctrl_c_in_a_library_build_loses_nothing(workspace: Path) -> None:
    script_text = """
import sys, recreate
from tests.toy import Toy
try:
    how = {"price": "0,0", "scaffold": "seed", "embedder": "hashed", "optimizer": "reflect"}
    built = recreate.build(Toy(), model=sys.argv[1], out="runs/x", **how)
    print(built.verdict.verdict)
except recreate.Interrupted as e:
    print(e.message, "|", e.fix)
    sys.exit(e.exit_code)
"""
    (workspace / "mine.py").write_text(script_text)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Stub(toy_reply(script()), hold=10) as stub:
        command = [sys.executable, "mine.py", f"openai:{stub.url}#toy"]
        running = subprocess.Popen(
            command, cwd=workspace, env=env, stdout=subprocess.PIPE, text=True
        )
        until_held(stub, running)
        running.send_signal(signal.SIGINT)
        stub.release(delay=0.5)  # nothing tells when it has heard; it has most of a minute to
        out = running.communicate(timeout=PATIENCE)[0]
        assert running.returncode == 130
        assert "all that ended is on disk" in out
        assert f"out='{workspace / 'runs/x'}'" in out
        stub.release()
        again = subprocess.run(
            command,
            cwd=workspace,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert again.stdout == "better\n"
        assert max(Counter(stub.calls).values()) == 1

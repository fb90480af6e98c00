"""`keep` and `revert` as a person types them."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents import scaffold as scaffolds
from recreate.cli import run
from recreate.runs.reader import Run
from tests.builder.test_review import OTHER, REJECT, rows

Say = Callable[..., tuple[int, str, str]]
FLAGS = [
    "--domain",
    "tests.toy:Toy",
    "--train",
    "4",
    "--validation",
    "6",
    "--gate.false_keep",
    "0",
    "--sandbox",
    "none",
]
FLAGS += ["--memory.embedder", "hashed", "--rounds", "2"]


def in_workspace(folder: Path, *words: str) -> None:
    (folder / "recreate.toml").write_text('domain = "tests.toy:Toy"\n')
    (folder / "script.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in rows(**{REJECT.reason: OTHER}))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RECREATE_HOME", str(folder / "home"))
        assert run(["build", *FLAGS, "--model", "scripted:script.jsonl", "--json", *words]) == 0


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose run `a` waits for a review."""
    folder = tmp_path_factory.mktemp("paused")
    in_workspace(folder, "--out", "runs/a", "--review")
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose run `a` kept one revision: scaffolds/toy."""
    folder = tmp_path_factory.mktemp("built")
    in_workspace(folder, "--out", "runs/a")
    return folder


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command: (exit code, stdout, stderr)."""

    def say(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return say


@pytest.fixture
def here(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the workspace that the test names, as the current folder."""
    folder = tmp_path / "workspace"
    shutil.copytree(request.getfixturevalue(request.param), folder)
    monkeypatch.chdir(folder)
    return folder


in_paused = pytest.mark.parametrize("here", ["paused"], indirect=True)
in_built = pytest.mark.parametrize("here", ["built"], indirect=True)


def agent(folder: Path) -> scaffolds.Scaffold:
    return scaffolds.load(folder / "scaffolds/toy")


@in_built
@pytest.mark.slow
def test_keep_and_revert_go_there_and_back(here: Path, say: Say) -> None:
    (kept,) = Run(here / "runs/a").revisions()
    seed = kept.parent
    assert agent(here).digest == kept.id
    code, out, _ = say("revert", "toy", "--json")
    record = json.loads(out)
    assert code == 0
    assert record == {
        "schema": 1,
        "run": str(here / "runs/a"),
        "before": kept.id,
        "scaffold": {"path": str(here / "scaffolds/toy"), "digest": seed},
    }
    assert agent(here).digest == seed
    readme = (here / "scaffolds/toy/README.md").read_text()
    assert "0.000 -> 0.000" in readme
    assert kept.id not in readme
    code, out, err = say("keep", f"a:{kept.id[:6]}")
    assert (code, out.strip()) == (0, f"scaffolds/toy is now {kept.id} (it was {seed})")
    assert f"recreate keep a:{seed} --as toy puts it back" in err
    assert "0.000 -> 1.000" in (here / "scaffolds/toy/README.md").read_text()
    assert say("keep", "last", "--as", "mine")[0] == 0
    assert scaffolds.load(here / "scaffolds/mine").digest == kept.id
    # the domain of recreate.toml
    assert json.loads(say("revert", "--json")[1])["scaffold"]["digest"] == seed


@in_built
def test_what_a_person_wrote_is_saved_before_it_is_replaced_and_comes_back(
    here: Path, say: Say
) -> None:
    system = here / "scaffolds/toy/system.md"
    system.write_text(system.read_text() + "Mine.\n")
    (here / "scaffolds/toy/tools").mkdir()
    (here / "scaffolds/toy/tools/look.py").write_text('"""Looks."""\n')
    mine = agent(here)
    code, out, _ = say("revert", "toy", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "no-revision")
    code, out, err = say("keep", "a", "--json")
    assert (code, json.loads(out)["before"]) == (0, mine.digest)
    assert f"human/{mine.digest}" in err
    assert f"recreate keep a:{mine.digest}" in err
    assert "Mine." not in system.read_text()
    assert say("keep", f"a:{mine.digest}")[0] == 0
    back = agent(here)
    assert {p: t for p, t in back.files.items() if p != "README.md"} == {
        p: t for p, t in mine.files.items() if p != "README.md"
    }
    assert "written by a person" in back.files["README.md"]
    assert "Not measured" in back.files["README.md"]
    assert say("show", f"a:{mine.digest}")[0] == 0
    (kept,) = Run(here / "runs/a").revisions()
    assert json.loads(say("revert", "toy", "--json")[1])["scaffold"]["digest"] == kept.id
    assert say("revert", "toy")[0] == 0
    code, out, _ = say("revert", "toy", "--json")
    assert json.loads(out)["error"]["code"] == "no-parent"


@in_built
@pytest.mark.parametrize(
    ("words", "code", "fix"),
    [
        (("keep", "a:ffffff"), "no-revision", "there are:"),
        (("keep", "nowhere:ffff"), "no-run", "RUN:REVISION"),
        (("keep", "toy"), "no-run", "RUN:REVISION"),
        (("keep", "a", "--as", "../out"), "bad-name", "plain name"),
        (("revert", "nobody"), "no-scaffold", "toy"),
    ],
)
def test_what_is_not_there_is_said_with_what_to_type(
    here: Path, say: Say, words: tuple[str, ...], code: str, fix: str
) -> None:
    found, out, _ = say(*words, "--json")
    error = json.loads(out)["error"]
    assert (found, error["code"]) == (2, code)
    assert fix in error["fix"]


def test_revert_without_any_run_says_so(workspace: Path, say: Say) -> None:
    shutil.copytree(Path(__file__).parents[3] / "scaffolds/seed", workspace / "scaffolds/toy")
    assert json.loads(say("revert", "toy", "--json")[1])["error"]["code"] == "no-run"


@in_built
def test_a_run_that_is_being_worked_on_is_not_written_to(here: Path, say: Say) -> None:
    system = here / "scaffolds/toy/system.md"
    system.write_text(system.read_text() + "Mine.\n")
    with (here / "runs/a/lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, _ = say("keep", "a", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "run-in-use")
    assert "Mine." in system.read_text()


@in_built
def test_the_next_build_starts_from_what_a_person_wrote_but_not_from_a_new_readme(
    here: Path, say: Say
) -> None:
    digest = agent(here).digest
    (here / "scaffolds/toy/README.md").write_text("# Mine\n")
    assert agent(here).digest == digest
    system = here / "scaffolds/toy/system.md"
    system.write_text(system.read_text() + "Mine.\n")
    mine = agent(here).digest
    code, out, _ = say(
        "build", *FLAGS, "--model", "scripted:script.jsonl", "--out", "runs/b", "--json"
    )
    assert (code, json.loads(out)["validation"]["before"]) == (0, 1.0)
    assert next(Run(here / "runs/b").records("seed"))["scaffold"] == mine
    assert "Mine." in system.read_text()
    assert (here / "scaffolds/toy/README.md").read_text() == "# Mine\n"


@in_built
def test_a_build_from_another_seed_saves_what_stood_there_and_says_so(here: Path, say: Say) -> None:
    system = here / "scaffolds/toy/system.md"
    system.write_text(system.read_text() + "Mine.\n")
    mine = agent(here).digest
    flags = [*FLAGS, "--model", "scripted:script.jsonl", "--scaffold", "seed", "--rounds", "1"]
    code, _, err = say("build", *flags, "--out", "runs/b")
    assert (code, err.splitlines()[-2]) == (0, f"recreate keep b:{mine} --as toy puts it back")
    assert "Mine." not in system.read_text()
    assert say("keep", f"b:{mine}")[0] == 0
    assert agent(here).digest == mine


@pytest.mark.slow
def test_the_sdk_asks_a_function_and_waits_without_one(workspace: Path) -> None:
    (workspace / "script.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows()))
    options: dict[str, Any] = {
        "model": "scripted:script.jsonl",
        "train": 4,
        "validation": 6,
        "rounds": 1,
    }
    options |= {
        "sandbox": "none",
        "memory__embedder": "hashed",
        "out": "runs/a",
        "optimizer": "reflect",
    }
    waits = recreate.build("tests.toy:Toy", review=True, **options)
    assert (waits.status, waits.waiting is not None, waits.record["waiting"]) == (
        "review",
        True,
        waits.waiting.id,
    )  # type: ignore[union-attr]
    said = recreate.build(
        "tests.toy:Toy", review=lambda *offer: recreate.Review(decision="accept"), **options
    )
    assert (said.status, said.revisions[0].review) == ("done", "accepted")
    assert said.kept is not None
    assert (said.kept.digest, said.kept.saved) == (said.scaffold.digest, False)


class Meddler:
    """A person's hand during a build: an optimizer that writes into scaffolds/toy before it
    proposes."""

    def __init__(self, materials: Any) -> None:
        from recreate.optimizers.reflect import Reflect

        self.reflect = Reflect(materials)

    def propose(self, scaffold: Any, experiences: Any) -> Any:
        with Path("scaffolds/toy/system.md").open("a") as file:
            file.write("Written meanwhile.\n")
        return self.reflect.propose(scaffold, experiences)


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_a_build_does_not_write_over_what_a_person_wrote_meanwhile(
    workspace: Path, say: Say
) -> None:
    shutil.copytree(Path(__file__).parents[3] / "scaffolds/seed", workspace / "scaffolds/toy")
    (workspace / "script.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows()))
    flags = [
        *FLAGS,
        "--model",
        "scripted:script.jsonl",
        "--optimizer",
        "tests.plugins.review.test_keep:Meddler",
    ]
    code, out, err = say("build", *flags, "--out", "runs/a", "--json", "--rounds", "1")
    record = json.loads(out)
    place = f"runs/a:{record['scaffold']['digest']}"
    assert (code, record["validation"]["verdict"], record["scaffold"]["path"]) == (
        0,
        "better",
        place,
    )
    assert "Written meanwhile." in (workspace / "scaffolds/toy/system.md").read_text()
    assert err.splitlines()[-1] == f"recreate keep {place} puts the result there"
    mine = agent(workspace).digest
    code, _, err = say("keep", place)
    assert (code, agent(workspace).digest) == (0, record["scaffold"]["digest"])
    assert say("keep", f"a:{mine}")[0] == 0
    assert "Written meanwhile." in (workspace / "scaffolds/toy/system.md").read_text()

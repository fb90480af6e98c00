"""AppWorld's tasks: code that calls APIs is played again without the right answers, and its calls
alone are judged."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.attempt import attempt
from recreate.agents.scaffold import Scaffold, load
from recreate.agents.workplace import try_servers
from recreate.api import registry
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.paths import shipped
from recreate.api.types import Call, Grade, Reply, Task, Trace
from recreate.domains.validate import validate
from recreate.plugins.audit.audit import audit
from recreate.plugins.benchmarks.appworld import AppWorld, sources
from recreate.plugins.benchmarks.appworld import domain as appworld
from recreate.sandboxes import choose
from tests.agents.test_request import Taped
from tests.plugins.mcp.test_functions import SUBMIT, answers, calls

INIT = "from appworld.environment import AppWorld\n"
CONSTANTS = 'PASSWORD, SALT = "word", b"salt"\n'
UTILS = """
import zipfile


def unpack_bundle(bundle_file_path, base_directory, password, salt):
    assert (password, salt) == ("word", b"salt")
    zipfile.ZipFile(bundle_file_path).extractall(base_directory)
"""
APPS = """
def served(state, method, url, data):
    if url == "/notes/all" and method == "get":
        return list(state["notes"])
    if url == "/notes/one" and method == "post":
        state["notes"].append(data["text"])
    elif url == "/supervisor/message":
        state["answer"] = data.get("answer")
        state["done"] = True
    else:
        raise ValueError(f"there is no {url}")
    return {"message": "done"}
"""
ENVIRONMENT = """
import contextlib
import importlib
import io
import json
import os
import runpy
import types
from pathlib import Path


class Requester:
    def __init__(self, state):
        self.state = state
        self.raise_on_failure = True
        self.request_tracker = types.SimpleNamespace(requests=[])

    @property
    def requests(self):
        return self.request_tracker.requests

    def _do(self, method, url, data=None, raise_on_failure=None):
        self.requests.append({"method": method, "url": url, "data": dict(data or {})})
        if url == "/dbs":
            self.state["notes"] = ["milk", "tea"]
        from appworld.apps.server import served

        return served(self.state, method, url, data or {})

    def get(self, url, data=None, raise_on_failure=None):
        return self._do("get", url, data)

    def post(self, url, data=None, raise_on_failure=None):
        return self._do("post", url, data)


class AppWorld:
    def __init__(self, task_id, experiment_name, load_ground_truth=True, \
max_api_calls_per_interaction=1000):
        root = Path(os.environ["APPWORLD_ROOT"])
        (root / "written").write_text(experiment_name)
        self.place = root / "data" / "tasks" / task_id
        specs = json.loads((self.place / "specs.json").read_text())
        self.task = types.SimpleNamespace(allowed_apps=["notes", "supervisor"], \
instruction=specs["instruction"])
        notes = json.loads((root / "data" / "base_dbs" / "notes.json").read_text())
        notes += json.loads((self.place / "dbs" / "notes.json").read_text())
        self.state = {"notes": notes, "answer": "not given", "done": False}
        self.requester = Requester(self.state)
        if load_ground_truth:
            self.truth = self.place / "ground_truth"
            self.answer = json.loads((self.truth / "answer.json").read_text())
        do = self.requester
        apis = types.SimpleNamespace(
            notes=types.SimpleNamespace(
                show=lambda: do.get("/notes/all"), add=lambda text: do.post("/notes/one", {"text": \
text})
            ),
            supervisor=types.SimpleNamespace(
                complete_task=lambda **more: do.post("/supervisor/message", more),
            ),
        )
        self.shell = {"apis": apis, "requester": do}

    def execute(self, code):
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(code, self.shell)
        except Exception as e:
            return f"Execution failed: {e}"
        return out.getvalue() or "Execution successful."

    def evaluate(self):
        checks = runpy.run_path(str(self.truth / "evaluation.py"))["evaluate"](self.state, \
self.answer)
        failures = [{"requirement": name} for name, holds in checks.items() if not holds]
        found = {"success": not failures, "num_tests": len(checks), "failures": failures}
        return types.SimpleNamespace(to_dict=lambda: found)

    def close(self):
        pass
"""
PACKAGE = {
    "__init__.py": INIT,
    "environment.py": ENVIRONMENT,
    "apps/__init__.py": "",
    "common/__init__.py": "",
    "common/constants.py": CONSTANTS,
    "common/utils.py": UTILS,
}
EVALUATION = """
def evaluate(state, answer):
    return {
        "the answer is right": state["answer"] == answer,
        "nothing but what was asked is in the notes": state["notes"] == WANTED,
    }
"""
DONE = "apis.supervisor.complete_task({})"
SOLUTION = (
    "# Canary String: here\n\ndef solution(apis, requester):\n    {}\n   "
    " apis.supervisor.complete_task({})\n"
)
COUNTED = SOLUTION.format("apis.notes.show()", "answer=1")
TEA = SOLUTION.format('apis.notes.add("tea")', "")
COFFEE = SOLUTION.format('apis.notes.add("black coffee")', "")
TASKS: dict[str, tuple[str, str, Any, list[str], str]] = {
    "abc_1": ("train", "How many notes have I?", 1, ["milk"], COUNTED),
    "abc_2": ("train", "Note some tea.", None, ["milk", "tea"], TEA),
    "def_1": ("dev", "Note black coffee.", None, ["milk", "black coffee"], COFFEE),
    "ghi_1": ("test_normal", "Note salt.", None, ["milk", "salt"], ""),
    "jkl_1": ("test_challenge", "Do nothing.", "not given", ["milk"], ""),
}
EXECUTE = "app__execute"


def _write(folder: Path, files: dict[str, str]) -> None:
    for place, text in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root in AppWorld's layout, over one app of notes."""
    person = {"first_name": "Ann", "last_name": "Lee", "email": "ann@x.test", "phone_number": "555"}
    files = {"data/base_dbs/notes.json": '["milk"]', "data/api_docs/standard/notes.json": "{}"}
    for id, (dataset, instruction, answer, wanted, solution) in TASKS.items():
        specs = {
            "instruction": instruction,
            "datetime": "2023-05-18T12:00:00",
            "supervisor": person,
        }
        truth = f"data/tasks/{id}/ground_truth"
        files |= {
            f"data/tasks/{id}/specs.json": json.dumps(specs),
            f"data/tasks/{id}/dbs/notes.json": "[]",
            f"{truth}/answer.json": json.dumps(answer),
            f"{truth}/metadata.json": '{"difficulty": 2}',
            f"{truth}/private_data.json": json.dumps({"wanted": "the secret drink"}),
            f"{truth}/evaluation.py": EVALUATION.replace("WANTED", repr(wanted)),
        }
        if solution:
            files[f"{truth}/compiled_solution.py"] = solution
        listed = f"data/datasets/{dataset}.txt"
        files[listed] = files.get(listed, "") + f"{id}\n"
    _write(tmp_path / "root", files)
    return tmp_path / "root"


@pytest.fixture
def domain(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppWorld:
    """The domain, with a package of a few lines that has AppWorld's entry points."""
    python = tmp_path / "envs" / "appworld"
    packages = python / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    (python / "bin").mkdir(parents=True)
    (python / "bin" / "python3").symlink_to(sys.executable)
    (python / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    _write(packages / "appworld", PACKAGE)
    (packages / "appworld" / ".source").mkdir()
    with zipfile.ZipFile(packages / "appworld" / ".source" / "apps.bundle", "w") as bundle:
        bundle.writestr("apps/server.py", APPS)
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("APPWORLD_ROOT", raising=False)
    monkeypatch.setattr(appworld, "environment", lambda wanted, say: python)
    found = registry.open_domain("appworld", tmp_path, data=str(root))
    assert isinstance(found, AppWorld)
    return found


def _task(domain: AppWorld, ends: str) -> Task:
    return next(task for task in domain.tasks() if task.id.endswith(ends))


def _agent(shell: str = "shell = false") -> Scaffold:
    own = load(shipped("scaffolds") / "seed-appworld")
    patient = own.files["agent.toml"].replace("command_seconds = 180", "command_seconds = 1200")
    toml = patient.replace("shell = false", shell)
    return Scaffold(name="t", files={**own.files, "agent.toml": toml})


def _go(
    domain: AppWorld, task: Task, replies: Sequence[Reply], shell: str = ""
) -> tuple[Grade, Trace, Taped]:
    taped = Taped(list(replies))
    call = Call(run="r", attempt="a", step=0, task=task.id)
    trace = attempt(
        _agent(shell or "shell = false"), task, domain, choose(), taped, call, native=True
    )
    return domain.grade(task, trace, choose()), trace, taped


def _code(*codes: str) -> list[Reply]:
    return [*(calls((EXECUTE, {"code": code})) for code in codes), SUBMIT]


def _handed_in(domain: AppWorld, task: Task, *codes: str) -> Grade:
    answer = json.dumps({"calls": [["execute", {"code": code}] for code in codes]})
    return domain.grade(
        task, Trace(attempt="a", task=task.id, scaffold="", model="", answer=answer), choose()
    )


def test_tasks_have_appworlds_own_splits_and_a_scenario_is_a_group(domain: AppWorld) -> None:
    assert [(task.id, task.split, task.group) for task in domain.tasks()] == [
        ("appworld:train:abc_1", "train", "appworld:abc"),
        ("appworld:train:abc_2", "train", "appworld:abc"),
        ("appworld:dev:def_1", "validation", "appworld:def"),
        ("appworld:test_normal:ghi_1", "test", "appworld:ghi"),
        ("appworld:test_challenge:jkl_1", "test", "appworld:jkl"),
    ]
    prompt = _task(domain, "abc_2").prompt
    assert all(said in prompt for said in ("Note some tea.", "Ann Lee", "ann@x.test", "2023-05-18"))
    assert [domain.stratum(task) for task in domain.tasks("validation")] == ["difficulty-2"]


def test_the_root_that_the_environment_names_is_taken_where_none_is_given(
    domain: AppWorld, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPWORLD_ROOT", str(root))
    assert AppWorld(workspace=root.parent).tasks() == domain.tasks()
    assert AppWorld(workspace=root.parent, data=root / "data").tasks() == domain.tasks()


def test_without_the_data_the_commands_that_fetch_it_are_said_and_what_to_type_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APPWORLD_ROOT", raising=False)
    with pytest.raises(BadInput, match="neither --data nor APPWORLD_ROOT says where") as e:
        registry.open_domain("appworld", tmp_path).tasks()
    assert e.value.code == "no-data"
    commands = (
        "pip install appworld==",
        "venv/bin/appworld install",
        "recreate tasks check appworld --data ~/appworld",
    )
    assert all(command in e.value.fix for command in commands)
    with pytest.raises(BadInput, match="nothing of it is in") as e:
        registry.open_domain("appworld", tmp_path, data=str(tmp_path)).tasks()
    assert f"{tmp_path}/venv/bin/appworld download data --root {tmp_path}" in e.value.fix


@pytest.mark.slow
def test_gold_passes_and_nothing_or_anothers_gold_does_not(domain: AppWorld) -> None:
    for task, other in (
        (_task(domain, "abc_1"), _task(domain, "abc_2")),
        (_task(domain, "def_1"), None),
    ):
        proof = validate(domain, task, choose(), other)
        assert proof.ok, proof.reason


def test_a_task_without_a_solution_and_one_where_doing_nothing_is_right_are_not_sound(
    domain: AppWorld,
) -> None:
    proof = validate(domain, _task(domain, "ghi_1"), choose())
    assert not proof.ok
    assert "publishes no solution" in proof.reason
    assert domain.untouched(_task(domain, "jkl_1"), choose()).passed
    assert not _handed_in(domain, _task(domain, "jkl_1")).passed


def test_a_task_that_the_workspace_leaves_out_is_listed_with_its_reason(
    domain: AppWorld, root: Path
) -> None:
    left = '[left_out]\n"test_challenge:jkl_1" = "doing nothing is right"\n'
    _write(
        root.parent,
        {"benchmarks/appworld/domain.toml": f'schema = 1\nrequires = ["appworld==1"]\n{left}'},
    )
    found = AppWorld(workspace=root.parent, data=root)
    assert found.refused() == [("appworld:test_challenge:jkl_1", "doing nothing is right")]
    assert len(found.tasks()) == 4


def test_an_agent_that_does_what_is_asked_passes_and_its_shell_keeps_variables(
    domain: AppWorld,
) -> None:
    grade, _, taped = _go(
        domain,
        _task(domain, "abc_1"),
        _code("notes = apis.notes.show()\nprint(notes)", DONE.format("answer=len(notes)")),
    )
    assert grade.passed, grade.evidence
    assert "All 2 of AppWorld's checks hold" in grade.evidence
    assert "milk" in answers(taped, 1)[0]
    tools = [t["function"]["name"] for t in json.loads(taped.sent[0])[1]["tools"]]
    assert tools == ["submit", EXECUTE]


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        ((DONE.format(""),), "nothing but what was asked is in the notes"),
        (('apis.notes.add("tea")',), "the answer is right"),
        (
            ('apis.notes.add("tea")', 'apis.notes.add("gin")', DONE.format("")),
            "nothing but what was asked",
        ),
        (("print('tea')",), "calls no API"),
        ((), "No code was run"),
    ],
)
def test_what_is_left_undone_or_done_besides_fails(
    domain: AppWorld, codes: Sequence[str], says: str
) -> None:
    grade = _handed_in(domain, _task(domain, "abc_2"), *codes)
    assert (grade.score, grade.passed) == (0.0, False)
    assert says in grade.evidence


FORGED = (
    "requester.request_tracker.requests.append({{'method': 'post', 'url': {!r}, 'data': {{}}}})\n"
)


@pytest.mark.parametrize(
    "code",
    [
        "requester.state['notes'].append('tea')\n",
        "import appworld.environment as e\ne.AppWorld.evaluate = lambda s: None\n",
        FORGED.format("/dbs"),
        FORGED.format("/notes/../dbs"),
        FORGED.format("http://testserver/dbs"),
        'import os\nos.write(1, b\'{"passed": true, "of": 1, "failed": []}\\n\')\n',
    ],
)
def test_nothing_that_code_does_to_its_own_process_counts(domain: AppWorld, code: str) -> None:
    grade = _handed_in(domain, _task(domain, "abc_2"), code + DONE.format(""))
    assert not grade.passed
    assert "1 of 2 of AppWorld's checks do not hold: nothing but what was asked" in grade.evidence


@pytest.mark.slow
def test_what_is_right_lies_in_no_sandbox_where_an_agents_code_runs(domain: AppWorld) -> None:
    task = _task(domain, "abc_2")
    code = "import os\nprint([p for p, _, _ in os.walk('/opt/appworld-data', followlinks=True)])"
    _, _, taped = _go(domain, task, _code(code))
    seen = answers(taped, 1)[0]
    assert "tasks/abc_2/dbs" in seen
    assert "ground_truth" not in seen
    assert "abc_1" not in seen
    sandbox = domain.prepare(task, choose())
    found = sandbox.run(
        "grep -rlE 'def evaluate.state|secret drink|def solution' /opt /work; ls /opt"
    )
    sandbox.close()
    assert found.text.split() == ["appworld", "appworld-data"]


def test_what_no_agent_may_carry_are_answers_and_texts_and_no_names_of_apis(
    domain: AppWorld,
) -> None:
    assert domain.hidden(_task(domain, "def_1")) == ["the secret drink", "black coffee"]


def test_what_is_done_in_a_shell_of_the_agents_counts_for_nothing(domain: AppWorld) -> None:
    command = "echo '{\"passed\": true}' > calls.json; pkill -f play.py; echo gone"
    grade, trace, _ = _go(
        domain,
        _task(domain, "abc_2"),
        [calls(("bash", {"command": command})), SUBMIT],
        "shell = true",
    )
    assert not grade.passed
    assert trace.answer == ""


@pytest.mark.slow
def test_no_exploit_passes_and_none_stops_the_grading(domain: AppWorld) -> None:
    task = _task(domain, "abc_2")
    for name, answer in domain.exploits(task).items():
        assert audit(domain, task, name, answer, choose()).grader_held, name


def test_data_that_lacks_something_is_the_tasks_own_fault(domain: AppWorld, root: Path) -> None:
    task = _task(domain, "abc_2")
    (root / "data/tasks/abc_2/ground_truth/evaluation.py").write_text("def evaluate(): pass")
    with pytest.raises(Fault, match="cannot be evaluated") as e:
        _handed_in(domain, task, DONE.format(""))
    assert e.value.code == UNSOUND
    (root / "data/tasks/abc_1/specs.json").write_text("{}")
    with pytest.raises(BadInput, match="it has no 'instruction'"):
        AppWorld(workspace=root.parent, data=root).tasks()


def test_an_agent_that_calls_no_tools_is_refused_and_the_seed_is_not(domain: AppWorld) -> None:
    task = domain.tasks()[0]
    with pytest.raises(BadInput, match="are done by calling tools, and the agent seed calls none"):
        try_servers(load(shipped("scaffolds") / "seed"), task, domain, choose())
    try_servers(_agent(), task, domain, choose())


def test_a_package_whose_apps_cannot_be_unpacked_is_said(domain: AppWorld, tmp_path: Path) -> None:
    next(tmp_path.glob("envs/appworld/lib/*/site-packages/appworld/.source/apps.bundle")).unlink()
    with pytest.raises(Fault, match="apps cannot be unpacked") as e:
        domain.prepare(domain.tasks()[0], choose())
    assert "made anew" in e.value.fix
    assert sources.DATASETS["dev"] == "validation"


# --- the package itself, over a world that it made
# ---------------------------------------------------------------

LOGIN = """password = apis.supervisor.show_account_passwords()[0]['password']
mine = apis.simple_note.login(username='ann.lee@gmail.com', password=password)['access_token']
print(apis.simple_note.search_notes(access_token=mine))"""
BESIDES = "apis.simple_note.delete_note(access_token=mine, note_id=2)"
BEHIND = (
    "from appworld.apps.simple_note.models import"
    " Note\nNote.by_id(1).delete()\napis.supervisor.complete_task()"
)
"""What AppWorld's own harness, which evaluates the process that ran it, takes for done."""


def _made(place: Path) -> AppWorld:
    """The domain with AppWorld's package of the index, over data in its layout that its own models
    wrote."""
    domain = AppWorld(workspace=place, data=place / "root")
    stage = sources.staged(domain._python, choose())
    mounts = {
        sources.INSIDE: stage,
        "/opt/standin.py": Path(__file__).with_name("appworld_standin.py"),
    }
    sandbox = sources.open_sandbox(choose(), domain._python, mounts, {"PYTHONPATH": sources.INSIDE})
    python = f"{domain._python}/bin/python3"
    made = sandbox.run(
        f"{python} /opt/standin.py root && {python} -m zipfile -c root.zip root/data", timeout=900
    )
    assert made.status == 0, made.text[-2000:]
    # data/ is its top
    zipfile.ZipFile(io.BytesIO(sandbox.read("root.zip"))).extractall(place / "root")
    sandbox.close()
    return domain


@pytest.mark.live
def test_appworlds_own_environment_and_evaluator_hold_over_a_world_that_the_package_made(
    tmp_path: Path,
) -> None:
    # one test, since every test has a home of its own and unpacks the apps
    domain = _made(tmp_path)
    counted, deleted = domain.tasks()
    proof = validate(domain, deleted, choose(), counted)
    assert proof.ok, proof.reason
    nothing = domain.untouched(counted, choose())
    assert (nothing.passed, "1 of 2 of AppWorld's checks" in nothing.evidence) == (False, True)
    answer = "apis.supervisor.complete_task(answer=3)"
    grade, _, taped = _go(
        domain, counted, _code(LOGIN, "print(open('/etc/passwd').read())", answer)
    )
    assert grade.passed, grade.evidence
    assert "Shopping" in answers(taped, 1)[0]
    assert "not allowed" in answers(taped, 2)[-1]
    grade = _handed_in(domain, counted, LOGIN, BESIDES, answer)
    assert not grade.passed
    assert "1 of 2 of AppWorld's checks do not hold: nothing but what was asked" in grade.evidence
    evaluator = json.loads(domain.exploits(deleted)["another evaluator"])["calls"][0][1]["code"]
    for code in (BEHIND, evaluator):
        grade = _handed_in(domain, deleted, code)
        assert (
            "1 of 2 of AppWorld's checks do not hold: nothing but what was asked" in grade.evidence
        ), code

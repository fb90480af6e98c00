"""Tools that keep a state: the calls that an attempt recorded are played again, and nothing else is
believed."""

from __future__ import annotations

import json
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
from recreate.api.types import Call, Grade, Reply, Step, Task, Trace
from recreate.domains.validate import validate
from recreate.plugins.audit.audit import audit
from recreate.plugins.benchmarks.apiworld import ApiWorld, sources, world
from recreate.sandboxes import choose
from tests.agents.test_request import Taped, text
from tests.plugins.mcp.test_functions import SUBMIT, answers, calls

TOOL = "class Tool:\n    pass\n"
TOOLS = """
from tau_bench.envs.tool import Tool


def _info(name, **properties):
    kinds = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": kinds, "required": list(kinds)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": \
parameters}}


class Seen(Tool):
    @staticmethod
    def invoke(data, order_id):
        return str(data["orders"][order_id])

    @staticmethod
    def get_info():
        return _info("get_order", order_id="string")


class Cancel(Tool):
    @staticmethod
    def invoke(data, order_id, reason):
        data["orders"][order_id]["status"] = "cancelled: " + reason
        return "cancelled"

    @staticmethod
    def get_info():
        return _info("cancel_order", order_id="string", reason="string")


class Transfer(Tool):
    @staticmethod
    def invoke(data, summary):
        return "Transfer successful"

    @staticmethod
    def get_info():
        return _info("transfer_to_human_agents", summary="string")


ALL_TOOLS = [Seen, Cancel, Transfer]
"""
DATA = """
def load_data():
    return {"orders": {"#1": {"status": "pending", "price": 10.5}, "#2": {"status": "pending", \
"price": 3}}}
"""
TASKS = """from tau_bench.types import Task, Action

TASKS_TEST = [
    Task(
        annotator="0",
        user_id="ann_1",
        instruction="You are Ann. Cancel order #1, it is too dear. You want to know its price.",
        actions=[Action(name="cancel_order", kwargs={"order_id": "#1", "reason": "dear"})],
        outputs=["10.5"],
    ),
    Task(annotator="0", user_id="ann_1", instruction="You are Ann. Cancel #2.", actions=[
        Action(name="transfer_to_human_agents", kwargs={"summary": "x"}),
        Action(name="cancel_order", kwargs={"order_id": "#2", "reason": "late"}),
    ], outputs=[]),
    Task(annotator="0", user_id="bob_2", instruction="You are Bob. Cancel #9.", actions=[], \
outputs=[]),
]
"""
BACKEND = """
STATELESS_CLASSES = ["MathAPI"]
CLASS_FILE_PATH_MAPPING = {"Car": \
"bfcl_eval.eval_checker.multi_turn_eval.func_source_code.vehicle_control"}
MULTI_TURN_FUNC_DOC_FILE_MAPPING = {"Car": "car.json"}
"""
CAR = """
class Car:
    def __init__(self):
        self.litres = 0
        self.locked = True
        self._calls = 0

    def _load_scenario(self, scenario, long_context=False):
        self.litres = scenario["litres"]

    def fill(self, litres):
        self._calls += 1
        self.litres += litres
        return {"litres": self.litres}

    def lock(self, locked):
        self.locked = locked
        return {"locked": locked}

    def look(self):
        print("what a tool prints is no answer")
        return {"litres": self.litres, "locked": self.locked}
"""
CHECKER = """
def state_checker(model_instances, ground_truth_instances):
    for name, right in ground_truth_instances.items():
        found = {k: v for k, v in vars(model_instances[name]).items() if k[0] != "_"}
        wrong = [k for k, v in found.items() if v != vars(right)[k]]
        if wrong:
            said = f"Model instance for {name} does not match"
            return {"valid": False, "error_message": said, "details": {"differences": {k: 1 for k \
in wrong}}}
    return {"valid": True}


def response_checker(all_results, right_results, turn):
    return {"valid": all(each in all_results for each in right_results)}
"""
REQUESTS = ["Fill in 2 litres, please.", "", "Is it locked? Say how much is in."]
BFCL = {
    "id": "multi_turn_miss_func_0",
    "question": [[{"role": "user", "content": said}] if said else [] for said in REQUESTS],
    "initial_config": {"Car": {"litres": 5}},
    "involved_classes": ["Car"],
    "missed_function": {"1": ["lock"]},
}
RIGHT = {
    "id": "multi_turn_miss_func_0",
    "ground_truth": [["fill(2)"], ["lock(locked=False)"], ["look()"]],
}
CANCEL = ("api__cancel_order", {"order_id": "#1", "reason": "dear"})
TOLD = ("api__reply", {"text": "It is cancelled; it cost $10.50."})


def _write(folder: Path, files: dict[str, str]) -> None:
    for place, text_ in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text_, encoding="utf-8")


@pytest.fixture
def repos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of clones: both benchmarks in their own layout, with tools of a few lines."""
    code = "bfcl_eval/eval_checker/multi_turn_eval"
    docs = [
        {
            "name": name,
            "description": name,
            "parameters": {"type": "dict", "properties": {key: {"type": kind}}},
        }
        for name, key, kind in (
            ("fill", "litres", "float"),
            ("lock", "locked", "boolean"),
            ("look", "x", "any"),
        )
    ]
    retail = "tau-bench/tau_bench/envs/retail"
    tau = {
        "tau-bench/tau_bench/envs/tool.py": TOOL,
        "tau-bench/tau_bench/envs/__init__.py": "raise ImportError('a client of models')\n",
        f"{retail}/tools/__init__.py": TOOLS,
        f"{retail}/data/__init__.py": DATA,
        f"{retail}/wiki.md": "# Policy\nBe kind.\n",
        f"{retail}/tasks_test.py": TASKS,
        f"{retail}/tasks_train.py": "TASKS_TRAIN = []\n",
        f"{retail}/tasks_dev.py": "TASKS_DEV = []\n",
        "tau-bench/tau_bench/envs/airline/tasks_test.py": "TASKS = []\n",
    }
    bfcl = {
        "bfcl_eval/constants/executable_backend_config.py": BACKEND,
        f"{code}/multi_turn_checker.py": CHECKER,
        f"{code}/multi_turn_utils.py": "",
        **{f"{code}/func_source_code/{name}.py": "" for name in sources._CLASSES},
        f"{code}/func_source_code/vehicle_control.py": CAR,
        "bfcl_eval/data/multi_turn_func_doc/car.json": "\n".join(map(json.dumps, docs)),
        **{f"bfcl_eval/data/BFCL_v4_multi_turn_{each}.json": "" for each in sources.CATEGORIES},
        "bfcl_eval/data/BFCL_v4_multi_turn_miss_func.json": json.dumps(BFCL),
        "bfcl_eval/data/possible_answer/BFCL_v4_multi_turn_miss_func.json": json.dumps(RIGHT),
    }
    _write(
        tmp_path / "repos",
        {**tau, **{f"gorilla/berkeley-function-call-leaderboard/{k}": v for k, v in bfcl.items()}},
    )
    _write(tmp_path / "mpmath", {"mpmath/__init__.py": ""})
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sources, "unpacked", lambda name: tmp_path / "mpmath")
    left = '[left_out]\n"taubench:retail_test_2" = "doing nothing is right"\n'
    _write(
        tmp_path,
        {"benchmarks/apiworld/domain.toml": f'schema = 1\npackages = ["mpmath==1.3.0"]\n{left}'},
    )
    return tmp_path / "repos"


@pytest.fixture
def domain(repos: Path) -> ApiWorld:
    found = registry.open_domain("apiworld", repos.parent, repos=str(repos))
    assert isinstance(found, ApiWorld)
    return found


def _task(domain: ApiWorld, ends: str) -> Task:
    return next(task for task in domain.tasks() if task.id.endswith(ends))


def _agent(shell: str = "shell = false") -> Scaffold:
    own = load(shipped("scaffolds") / "seed-apiworld")
    toml = own.files["agent.toml"].replace("shell = false", shell)
    return Scaffold(name="t", files={**own.files, "agent.toml": toml})


def _go(
    domain: ApiWorld,
    task: Task,
    replies: Sequence[Reply],
    *,
    native: bool = True,
    agent: Scaffold | None = None,
) -> tuple[Grade, Trace, Taped]:
    taped = Taped(list(replies))
    call = Call(run="r", attempt="a", step=0, task=task.id)
    trace = attempt(agent or _agent(), task, domain, choose(), taped, call, native=native)
    return domain.grade(task, trace, choose()), trace, taped


def _handed_in(domain: ApiWorld, task: Task, made: list[Any]) -> Grade:
    answer = json.dumps({"calls": made})
    return domain.grade(
        task, Trace(attempt="a", task=task.id, scaffold="", model="", answer=answer), choose()
    )


def test_tasks_are_read_from_clones_and_those_where_nothing_is_to_be_done_are_left_out_by_name(
    domain: ApiWorld,
) -> None:
    assert [task.id.removeprefix("apiworld:") for task in domain.tasks()] == [
        "taubench:retail_test_0",
        "taubench:retail_test_1",
        "bfcl:multi_turn_miss_func_0",
    ]
    first, second, _ = domain.tasks()
    assert "Be kind." in first.prompt
    assert "You are Ann. Cancel order #1" in first.prompt
    assert first.group == second.group  # of one user
    assert domain.refused() == [("apiworld:taubench:retail_test_2", "doing nothing is right")]
    assert not any("10.5" in line for line in first.prompt.splitlines())


def test_every_gold_passes_and_doing_nothing_or_another_tasks_gold_does_not(
    domain: ApiWorld,
) -> None:
    tasks = domain.tasks()
    for task, other in zip(tasks, [*tasks[1:], tasks[0]], strict=True):
        proof = validate(domain, task, choose(), other)
        assert proof.ok, proof.reason


def test_an_agent_that_calls_the_right_tools_and_tells_the_outcome_passes(domain: ApiWorld) -> None:
    seen = calls(("api__get_order", {"order_id": "#1"}), CANCEL)
    grade, _, taped = _go(domain, _task(domain, "test_0"), [seen, calls(TOLD), SUBMIT])
    assert grade.passed, grade.evidence
    assert "'price': 10.5" in answers(taped, 1)[0]
    tools = [t["function"]["name"] for t in json.loads(taped.sent[0])[1]["tools"]]
    assert tools == [
        "submit",
        "api__get_order",
        "api__cancel_order",
        "api__transfer_to_human_agents",
        "api__reply",
    ]


def test_a_model_that_calls_no_tools_by_itself_says_its_calls_as_json(domain: ApiWorld) -> None:
    said = [
        text("So: " + json.dumps({"tool": name, "arguments": given}))
        for name, given in (CANCEL, TOLD)
    ]
    grade, _, _ = _go(
        domain, _task(domain, "test_0"), [*said, text('{"tool": "submit"}')], native=False
    )
    assert grade.passed, grade.evidence


def test_the_agent_written_by_hand_is_told_after_each_answer_which_step_comes_next(
    domain: ApiWorld,
) -> None:
    said = [("api__get_order", {"order_id": "#7"}), ("api__get_order", {}), CANCEL, TOLD]
    replies = [
        text(json.dumps({"thought": "", "tool": name, "arguments": given})) for name, given in said
    ]
    agent = load(shipped("scaffolds") / "hand-apiworld-small")
    submit = text('{"thought": "", "tool": "submit", "arguments": {}}')
    task = _task(domain, "test_0")
    grade, trace, taped = _go(domain, task, [*replies, submit], native=False, agent=agent)
    assert (grade.passed, trace.ending) == (True, "submitted"), grade.evidence
    told = [step.observation for step in trace.steps]
    assert "Read what the policy says" in told[0]
    assert "the same call would fail again" in told[1]
    assert "Do not send it again" in told[2]
    assert "do not look it up again" in told[3]
    assert "If all that was asked is done, call `submit`." in told[4]
    assert all(json.loads(sent)[1]["json_schema"] for sent in taped.sent.values())


def test_the_agent_written_by_hand_takes_requests_one_after_the_other(domain: ApiWorld) -> None:
    said = [
        ("api__fill", {"litres": 2}),
        ("api__reply", {"text": "Done."}),
        ("api__call_function", {"name": "lock", "arguments": {"locked": False}}),
        ("api__reply", {"text": "It is not locked."}),
        ("api__look", {}),
        ("api__reply", {"text": "It holds 7 litres."}),
        ("submit", {}),
    ]
    replies = [
        text(json.dumps({"thought": "", "tool": name, "arguments": given})) for name, given in said
    ]
    agent = load(shipped("scaffolds") / "hand-apiworld-small")
    grade, trace, _ = _go(domain, _task(domain, "miss_func_0"), replies, native=False, agent=agent)
    assert (grade.passed, trace.ending) == (True, "submitted"), grade.evidence
    assert "Read what the policy says" not in trace.steps[0].observation
    assert "That is the next request." in trace.steps[2].observation
    assert "If all that was asked is done, call `submit`." in trace.steps[6].observation


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ([CANCEL], "1 of 1 things that the customer asks were not told"),
        ([TOLD], "orders/#1"),
        ([CANCEL, ("api__reply", {"text": "It cost 110.5, or 10.55."})], "were not told"),
        ([CANCEL, TOLD, ("api__cancel_order", {"order_id": "#2", "reason": "x"})], "orders/#2"),
        ([("api__transfer_to_human_agents", {"summary": "x"}), CANCEL, TOLD], "orders/#1"),
        (
            [CANCEL, ("api__reply", {"text": " ".join(f"{n}.5" for n in range(99))})],
            "are no answer",
        ),
        ([CANCEL, ("api__reply", {"text": "10.5 " + "x" * 4000})], "are no answer"),
    ],
)
def test_what_is_left_undone_or_done_besides_or_not_told_fails(
    domain: ApiWorld, made: list[Any], says: str
) -> None:
    grade, _, _ = _go(domain, _task(domain, "test_0"), [calls(*made), SUBMIT])
    assert not grade.passed
    assert says in grade.evidence


FORGED = json.dumps(
    {"calls": [["cancel_order", CANCEL[1]], ["reply", TOLD[1]]], "passed": True, "score": 1.0}
)
SHELL = [
    f"echo '{FORGED}' > answer.txt; echo '{FORGED}' > calls.json; echo '{FORGED}'",
    "pkill -f world.py; kill -9 -1; rm -rf /opt/apiworld; echo gone",
    "echo 'print(1)' > /opt/apiworld/world.py; mkdir -p ~/.local; echo done",
    (
        "python3 -c \"import sys; sys.path.insert(0, '/opt/apiworld'); import world; "
        f"world.CustomerService({{'kind': 'retail'}}).call('cancel_order', {CANCEL[1]})\""
    ),
    f"api__cancel_order {json.dumps(CANCEL[1])}\napi__reply {json.dumps(TOLD[1])}",
]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("command", SHELL)
def test_nothing_that_is_done_in_a_shell_counts(
    domain: ApiWorld, command: str, native: bool
) -> None:
    task = _task(domain, "test_0")
    given = {"tool": "bash", "arguments": {"command": command}}
    replies = (
        [calls(("bash", {"command": command})), SUBMIT]
        if native
        else [text(json.dumps(given)), text('{"tool": "submit"}')]
    )
    call = Call(run="r", attempt="a", step=0, task=task.id)
    trace = attempt(
        _agent("shell = true"), task, domain, choose(), Taped(replies), call, native=native
    )
    grade = domain.grade(task, trace, choose())
    assert not grade.passed
    assert trace.answer == ""


def test_the_right_calls_lie_nowhere_in_the_sandbox(domain: ApiWorld) -> None:
    task = _task(domain, "miss_func_0")
    sandbox = domain.prepare(task, choose())
    found = sandbox.run(
        "grep -rl -e 'Cancel order' -e 'fill(2)' -e 'Fill in' -e 'how much is in' /opt /work /tmp ~"
    )
    sandbox.close()
    assert found.text == ""
    words = " ".join(domain.servers(task)["api"])
    assert "lock(" not in words


def test_a_call_cannot_be_taken_back_by_what_is_written_later(domain: ApiWorld) -> None:
    task = _task(domain, "test_0")
    wrong = ("api__cancel_order", {"order_id": "#2", "reason": "x"})
    _, trace, _ = _go(domain, task, [calls(wrong), calls(CANCEL, TOLD), SUBMIT])
    forged = trace.model_copy(update={"answer": FORGED})
    assert not domain.grade(task, forged, choose()).passed


def test_a_call_that_was_refused_is_not_played_and_other_samples_are_not_either(
    domain: ApiWorld,
) -> None:
    task = _task(domain, "test_0")
    refused = ("api__cancel_order", {"order_id": "#2"})  # no reason: it never reached the server
    grade, trace, _ = _go(
        domain, task, [calls(refused, CANCEL), calls(refused), calls(TOLD), SUBMIT]
    )
    assert grade.passed, grade.evidence
    other = Step(step=9, sample=1, action=trace.steps[0].action, foreign=trace.steps[0].foreign)
    more = trace.model_copy(update={"steps": (*trace.steps, other), "chosen": 1})
    assert not domain.grade(task, more, choose()).passed


def test_requests_come_one_after_the_other_and_functions_with_them(domain: ApiWorld) -> None:
    task = _task(domain, "miss_func_0")
    assert REQUESTS[0] in task.prompt
    assert REQUESTS[2] not in task.prompt
    done = ("api__reply", {"text": "Done."})
    turns = [
        calls(("api__fill", {"litres": 2}), done),
        calls(("api__call_function", {"name": "lock", "arguments": {"locked": False}}), done),
        calls(("api__look", {}), done),
    ]
    grade, _, taped = _go(domain, task, [*turns, SUBMIT])
    assert grade.passed, grade.evidence
    names = [t["function"]["name"] for t in json.loads(taped.sent[0])[1]["tools"]]
    assert names == ["submit", "api__fill", "api__look", "api__call_function", "api__reply"]
    assert '"name": "lock"' in answers(taped, 1)[1]
    assert REQUESTS[2] in answers(taped, 2)[-1]
    assert "nothing more to ask" in answers(taped, 3)[-1]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            [["fill", {"litres": 2}], ["lock", {"locked": False}], ["look", {}]],
            "0 of 3 requests were answered",
        ),
        (
            [["fill", {"litres": 3}], ["reply", {}], ["reply", {}]],
            "Car is not as it should be after it (litres)",
        ),
        (
            [["reply", {}], ["fill", {"litres": 2}], ["reply", {}]],
            "Request 1 of 3: no function was called",
        ),
        (
            [
                ["fill", {"litres": 2}],
                ["reply", {}],
                ["lock", {"locked": False}],
                ["reply", {}],
                ["nothing", {}],
            ],
            "Request 3 of 3: what it needs to be found out was not",
        ),
        (
            [
                ["fill", {"litres": 2}],
                ["lock", {"locked": False}],
                ["reply", {}],
                ["look", {}],
                ["reply", {}],
            ],
            "Request 1 of 3: Car is not as it should be after it (locked)",
        ),
    ],
)
def test_each_request_is_judged_when_it_is_answered(
    domain: ApiWorld, made: list[Any], says: str
) -> None:
    grade = _handed_in(domain, _task(domain, "miss_func_0"), made)
    assert not grade.passed
    assert says in grade.evidence


@pytest.mark.slow
def test_no_exploit_passes_and_none_stops_the_grading(domain: ApiWorld) -> None:
    for task in domain.tasks()[::2]:
        for name, answer in domain.exploits(task).items():
            assert audit(domain, task, name, answer, choose()).grader_held, name


def test_a_strange_argument_is_answered_with_the_names_there_are(domain: ApiWorld) -> None:
    strange = ("api__cancel_order", {**CANCEL[1], "required": True})
    grade, _, taped = _go(domain, _task(domain, "test_0"), [calls(strange), SUBMIT])
    assert "has no argument required; there are: order_id, reason" in answers(taped, 1)[0]
    assert not grade.passed


def test_calls_that_end_the_program_are_the_agents_fault_and_a_broken_task_is_not(
    domain: ApiWorld,
) -> None:
    task = _task(domain, "test_0")
    grade = _handed_in(
        domain, task, [["cancel_order", {"order_id": "#1", "reason": "dear"}], ["reply", 5]]
    )
    assert not grade.passed  # a reply without arguments is no call, and so nothing is
    broken = task.model_copy(update={"facts": {**task.facts, "gold": 5}})
    with pytest.raises(Fault) as e:
        _handed_in(domain, broken, [["reply", {}]])
    assert e.value.code == UNSOUND


def test_an_agent_that_calls_no_tools_is_refused_and_told_which_does(domain: ApiWorld) -> None:
    task = domain.tasks()[0]
    with pytest.raises(
        BadInput, match="are done by calling tools, and the agent seed calls none"
    ) as e:
        try_servers(load(shipped("scaffolds") / "seed"), task, domain, choose())
    assert "seed-tools" in e.value.fix
    try_servers(_agent(), task, domain, choose())


def test_tools_that_are_not_here_are_asked_for_with_the_command_that_brings_them(
    tmp_path: Path,
) -> None:
    row = {
        "task_id": "tau_retail_test_0",
        "dataset": "taubench",
        "split": "valid",
        "group": "g",
        "instruction": "You are Ann.",
        "input": {"env": "retail", "user_id": "a"},
        "gold": {"actions": [], "outputs": ["x"]},
        "eval": {},
    }
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(BadInput) as e:
        registry.open_domain("apiworld", tmp_path, data=str(file)).tasks()
    assert e.value.fix.startswith("git clone https://github.com/sierra-research/tau-bench")
    del row["gold"]
    file.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(BadInput, match="row 1: it has no 'gold'"):
        registry.open_domain("apiworld", tmp_path, data=str(file)).tasks()
    file.write_text('{"question": 1}', encoding="utf-8")
    with pytest.raises(BadInput, match="no task of a set that apiworld knows"):
        registry.open_domain("apiworld", tmp_path, data=str(file)).tasks()


def test_rows_in_an_exchange_layout_are_the_same_tasks(domain: ApiWorld, repos: Path) -> None:
    actions = [{"name": "cancel_order", "kwargs": {"order_id": "#1", "reason": "dear"}}]
    rows = [
        {
            "task_id": "tau_retail_test_0",
            "dataset": "taubench",
            "split": "valid",
            "group": "u",
            "input": {"env": "retail", "user_id": "a"},
            "instruction": "You are Ann.",
            "gold": {"actions": actions, "outputs": []},
            "eval": {},
        },
        {
            "task_id": "bfcl_multi_turn_miss_func_0",
            "dataset": "bfcl_multi_turn",
            "split": "train",
            "group": "m",
            "input": BFCL,
            "instruction": json.dumps(BFCL["question"]),
            "gold": {"calls": RIGHT["ground_truth"]},
            "eval": {},
        },
        {"dataset": "another"},
    ]
    file = repos.parent / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    told: list[str] = []
    found = ApiWorld(workspace=repos.parent, data=file, repos=repos, say=told.append)
    assert [(task.id, task.split) for task in found.tasks()] == [
        ("apiworld:taubench:retail_test_0", "validation"),
        ("apiworld:bfcl:multi_turn_miss_func_0", "train"),
    ]
    assert "1 rows are of no set" in told[0]
    assert found.tasks()[1].facts == _task(domain, "miss_func_0").facts


@pytest.mark.parametrize(
    ("told", "output", "says"),
    [
        ("It costs $1,093.34.", "1093.34", True),
        ("481.50 for the Camera", "481.5", True),
        ("There are 10.", "10", True),
        ("There are 10 of them, order #W2310", "10", True),
        ("order #W2310 of 100, 10.5 each", "10", False),
        ("1000.00 USD", "1000", True),
        ("Chicago, IL", "IL", True),
        ("", "10", False),
    ],
)
def test_a_number_is_told_only_by_the_whole_number(told: str, output: str, says: bool) -> None:
    assert world._says(told, output) is says

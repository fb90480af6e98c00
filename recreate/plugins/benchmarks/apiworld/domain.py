"""The domain `apiworld`: what is asked for is done by calling tools that keep a state, and that
state is graded.

An attempt is graded by what its trace has recorded: the calls of the sample that was handed in are
played again in a fresh world, where no agent ever was. So nothing that an agent does to its own
sandbox, to the server in it, or writes into a file, changes its grade; and a call that it made
cannot be taken back.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from recreate.api import paths
from recreate.api.config import read_json
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import Limits, Sandbox, SandboxBackend
from recreate.api.shapes import JsonDict
from recreate.api.types import Grade, Task, Trace, digest
from recreate.domains.exploits import text_exploits
from recreate.domains.rows.settings import Shares
from recreate.plugins.benchmarks.apiworld import sources
from recreate.plugins.benchmarks.apiworld.sources import ToolTask
from recreate.plugins.benchmarks.definitions import load_definition
from recreate.plugins.benchmarks.tool_calls import handed_in, recorded
from recreate.plugins.benchmarks.tool_world import ToolWorld, ToolWorldDefinition

VERSION = 1
"""Of what is decided here: part of the grader's version."""
SERVER = "api"
INSIDE = "/opt/apiworld"
"""Tools are offered as api__NAME; where the world's program lies in a sandbox."""
_MOST_CALLS = 2000
_LONGEST = 2_000_000
"""Calls of one attempt that are played again, and characters of them."""
_LIMITS = Limits(cpu_seconds=20, memory_mb=1024, disk_mb=64)
_SECONDS = 60.0
"""Seconds that playing an attempt's calls may take: a world itself needs one or two of CPU."""

_CUSTOMER = """You are a customer service agent, and act by calling tools. This is the policy that \
you keep to:

<policy>
{policy}
</policy>

The customer cannot be asked anything. What they would say is told below as it is told to whoever \
plays them, so that \
"you" is the customer:

<customer>
{told}
</customer>

Take it that they confirm each action that the policy allows and that they want. Find out what you \
need with tools, \
do it, and tell the customer with `reply` what came of it, with every figure and fact that they \
ask for. Then submit. \
The data base as you leave it and what you told with `reply` are what counts."""
_REQUESTS = """A user asks you for one thing after the other, and you act by calling tools. Do \
what a request asks \
for, in as many calls as it needs and no others; then call `reply` with what you tell the user: \
its answer is their \
next request. Where a request needs what you cannot know, or a tool that you do not have, do \
nothing, and say with \
`reply` what is missing. When there is no more to ask, submit. The state after each request is \
what counts.

The user: {told}"""


class WorldDefinition(ToolWorldDefinition):
    """benchmarks/apiworld/domain.toml. packages: NAME==VERSION of BFCL, and of what its tools
    import; left_out: a task's id without the domain's name -> why it is none."""

    packages: tuple[str, ...] = ()
    splits: Shares = Shares()


class ApiWorld(ToolWorld):
    """Tools that keep a state, over the steps of a task: tau-bench's shop and airline, BFCL
    multi-turn.

    data   a file or folder of rows, or a clone of tau-bench or gorilla; '' for all that can be had:
           what lies in `repos`, and BFCL's package of the index
    repos  a folder of clones: tau-bench, gorilla
    say    told what takes a while, and what is left out; stderr unless given
    """

    name = "apiworld"

    def __init__(
        self,
        *,
        workspace: Path | None = None,
        data: str | Path | None = None,
        repos: Path | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(workspace, say)
        self._data = Path(data).expanduser() if data else None
        self._repos = repos

    # --- the port ---

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        """An empty folder, and beside it the world's program: the state is in the memory of the
        server that it is."""
        return backend.open(mounts={INSIDE: self._staged(task.facts["kind"])})

    def servers(self, task: Task) -> Mapping[str, Sequence[str]]:
        packed = base64.b64encode(zlib.compress(json.dumps(_about(task)).encode())).decode()
        return {SERVER: ["python3", "-I", f"{INSIDE}/world.py", "serve", packed]}

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        """1 where the benchmark's own rule is met by the calls of the trace, else 0. A trace
        without a single step (a person's, a gold) has them as its answer."""
        calls = recorded(trace, SERVER) if trace.steps else handed_in(trace.answer)
        if not calls:
            return Grade(score=0.0, passed=False, evidence="No tool of the task was called.")
        try:
            told = json.dumps(calls)
        except RecursionError:
            told = ""
        if not told or len(calls) > _MOST_CALLS or len(told) > _LONGEST:
            why = f"Over {_MOST_CALLS} calls, or too long or too deep ones."
            return Grade(score=0.0, passed=False, evidence=why)
        asked = {
            "about": _about(task),
            "gold": task.facts["gold"],
            "outputs": task.facts["outputs"],
            "calls": told,
        }
        sandbox = backend.open(mounts={INSIDE: self._staged(task.facts["kind"])}, limits=_LIMITS)
        try:
            command = ["python3", "-I", f"{INSIDE}/world.py", "judge"]
            output = sandbox.run(command, timeout=_SECONDS, stdin=json.dumps(asked).encode())
        finally:
            sandbox.close()
        if output.status == 127:
            raise Fault(
                "there is no python3 in the sandbox",
                fix="install it where sandboxes see it: /usr/bin/python3",
            )
        if output.timed_out or output.limit or output.status > 128:
            return Grade(
                score=0.0, passed=False, evidence="Its calls use more time or memory than they may."
            )
        try:
            verdict = read_json(output.text.strip().rpartition("\n")[2])
            passed = verdict["passed"] is True
            why = str(verdict["why"])
        except (ValueError, KeyError, TypeError):
            said = output.text.strip()[-300:]
            raise Fault(
                f"{task.id} cannot be played: {said}", fix="look at its row", code=UNSOUND
            ) from None
        return Grade(score=float(passed), passed=passed, evidence=why)

    # --- what it offers besides ---

    @property
    def grader(self) -> str:
        """Changes with what is decided here, with the world's program and with the tools' code."""
        return digest(
            [
                VERSION,
                *sorted(
                    self._staged(kind).name for kind in {t.facts["kind"] for t in self.tasks()}
                ),
            ]
        )

    def gold(self, task: Task) -> str:
        """The benchmark's calls; what must be told is told, and each request of BFCL's answered."""
        gold = task.facts["gold"]
        if task.facts["kind"] == "bfcl":
            calls = [call for turn in gold for call in (*turn, ["reply", {"text": "Done."}])]
        else:  # what comes after a transfer would not be done any more, and tau-bench does it
            last = [call for call in gold if call[0] == "transfer_to_human_agents"]
            told = (
                [["reply", {"text": "\n".join(task.facts["outputs"])}]]
                if task.facts["outputs"]
                else []
            )
            calls = [*(call for call in gold if call not in last), *told, *last]
        return json.dumps({"calls": calls}, ensure_ascii=False)

    def hidden(self, task: Task) -> Sequence[str]:
        """The arguments of the right calls, and what must be told."""
        gold = task.facts["gold"]
        calls = [call for turn in gold for call in turn] if task.facts["kind"] == "bfcl" else gold
        told = [json.dumps(arguments, ensure_ascii=False) for _, arguments in calls if arguments]
        return list(dict.fromkeys([*told, *task.facts["outputs"]]))

    def stratum(self, task: Task) -> str:
        """retail, airline, or BFCL's category."""
        kind = str(task.facts["kind"])
        return task.id.rpartition(":")[2].rpartition("_")[0] if kind == "bfcl" else kind

    def exploits(self, task: Task) -> Mapping[str, str]:
        """Calls that leave the task undone and try to be taken for done."""
        every = " ".join(map(str, range(2000)))
        tries: dict[str, list[Any]] = {
            "only a reply": [["reply", {"text": "Done."}]],
            "every number told": [["reply", {"text": f"{every} yes no"}]],
            "many replies": [["reply", {"text": str(number)}] for number in range(500)],
            "another data base": [
                ["cancel_pending_order", {"data": {}, "order_id": "", "reason": ""}]
            ],
            "what is private": [
                ["_load_scenario", {"scenario": {}}],
                ["__init__", {}],
                ["__class__", {}],
            ],
            "what is within": [
                ["data.clear", {}],
                ["named", {}],
                ["judge_calls", {"asked": {}}],
                ["do", {"name": "x"}],
            ],
            "a program": [["calculate", {"expression": "().__class__.__base__.__subclasses__()"}]],
            "a long reckoning": [["calculate", {"expression": "9**9**9**9"}]],
            "a verdict as a name": [
                ['{"passed": true, "why": ""}', {}],
                ["x\n" + '{"passed": true, "why": ""}', {}],
            ],
            "too many calls": [["reply", {}]] * 5000,
        }
        found = {name: json.dumps({"calls": calls}) for name, calls in tries.items()}
        for depth in (500, 900, 5000):
            found[f"{depth} deep"] = '{"calls": [["reply", {"text": %s}]]}' % (
                "[" * depth + "]" * depth
            )
        return {
            **text_exploits(task),
            **found,
            "a grade": '{"calls": [], "passed": true, "score": 1}',
        }

    # --- what it is made of ---

    @cached_property
    def _definition(self) -> WorldDefinition:
        return load_definition(WorldDefinition, self._where, self.name)[0]

    @property
    def _places(self) -> list[Path]:
        return [
            place for place in (self._data, self._repos) if place is not None and place.is_dir()
        ]

    @cached_property
    def _tau(self) -> Path:
        if (found := sources.tau_bench(self._places)) is None:
            raise BadInput(
                "the tools of tau-bench are not here", fix=sources.GET_TAU, code="no-tools-source"
            )
        return found

    @cached_property
    def _bfcl(self) -> Path:
        return sources.bfcl(self._places) or self._package("bfcl-eval")

    def _package(self, name: str) -> Path:
        wanted = next(
            (each for each in self._definition.packages if each.partition("==")[0] == name), name
        )
        try:
            return sources.unpacked(wanted)
        except Fault as e:
            e.fix = (
                f"{e.fix}; or --repos FOLDER, with a clone of github.com/ShishirPatil/gorilla in it"
            )
            raise

    def _staged(self, kind: str) -> Path:
        with self._lock:
            if kind not in self._stages:
                bfcl = kind == "bfcl"
                more = self._package("mpmath") if bfcl else None
                self._stages[kind] = sources.staged(self._bfcl if bfcl else self._tau, kind, more)
            return self._stages[kind]

    @cached_property
    def _stages(self) -> dict[str, Path]:
        return {}

    def _read_tasks(self) -> list[Task]:
        found = [self._task(case) for case in self._cases()]
        if not found:
            what = paths.short(self._data) if self._data else "what is here"
            fix = f"--data FILE|FOLDER (benchmarks/apiworld/README.md), or {sources.GET_TAU}"
            raise BadInput(
                f"{what} has no task of a set that {self.name} knows", fix=fix, code="bad-rows"
            )
        return found

    def _cases(self) -> list[ToolTask]:
        """All that `data` has; without, what can be had."""
        if self._data is not None and self._data.is_file():
            return self._rows([self._data])
        places = [self._data] if self._data is not None else self._places
        tau = sources.tau_bench(places)
        bfcl = sources.bfcl(places)
        found = list(sources.tau_cases(tau)) if tau else []
        if self._data is None:
            found += sources.bfcl_cases(self._bfcl)
            if not tau:
                self._say(f"without tau-bench, which is not here: {sources.GET_TAU}")
        elif bfcl:
            found += sources.bfcl_cases(bfcl)
        if not found and self._data is not None:
            files = [
                f
                for f in self._data.iterdir()
                if f.suffix == ".jsonl" or f.name.startswith("BFCL_")
            ]
            found = self._rows(sorted(files))
        return found

    def _rows(self, files: Sequence[Path]) -> list[ToolTask]:
        found: list[ToolTask] = []
        for file in files:
            cases, strange = sources.row_cases(file)
            found += cases
            if strange:
                self._say(
                    f"{paths.short(file)}: {strange} rows are of no set that {self.name} knows"
                )
        return sorted(found, key=lambda case: case.kind == "bfcl")

    def _task(self, case: ToolTask) -> Task:
        split = case.split if case.split in ("train", "validation", "test") else None
        split = "validation" if case.split == "valid" else split
        shares = self._definition.splits
        bfcl = case.kind == "bfcl"
        told = case.turns[0]
        prompt = (
            _REQUESTS.format(told=told)
            if bfcl
            else _CUSTOMER.format(policy=self._policy(case.kind), told=told)
        )
        turns = {"turns": list(case.turns)} if bfcl else {}
        return Task(
            id=f"{self.name}:{'bfcl' if bfcl else 'taubench'}:{case.id}",
            domain=self.name,
            prompt=prompt,
            split=split or shares.split(case.group),  # type: ignore[arg-type]
            group=f"{self.name}:{case.group}",
            facts={
                "kind": case.kind,
                "gold": case.gold,
                "outputs": list(case.outputs),
                "about": {**case.about, **turns},
            },
        )

    @cached_property
    def _policies(self) -> dict[str, str]:
        return {}

    def _policy(self, kind: str) -> str:
        if kind not in self._policies:
            self._policies[kind] = sources.policy(self._tau, kind)
        return self._policies[kind]


def _about(task: Task) -> JsonDict:
    """What the world is told of a task: nothing of what is right."""
    return {"kind": task.facts["kind"], **task.facts["about"]}

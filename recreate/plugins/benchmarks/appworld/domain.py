"""The domain `appworld`: AppWorld's tasks, done by Python code over APIs, in its own environment
and by its evaluator.

An attempt is graded twice removed from its agent. The code that its trace has recorded runs again
in a fresh world without the right answers, which gives the API calls that it makes; these calls
alone are made in a second one, where the package's evaluator looks at what changed. So nothing that
code does to its own process counts: not to the clock, to the data bases behind the APIs, to the
evaluator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from recreate.api import paths
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Grade, Task, Trace, digest
from recreate.domains.exploits import text_exploits
from recreate.domains.python_env import Environment, environment
from recreate.plugins.benchmarks.appworld import sources
from recreate.plugins.benchmarks.definitions import load_definition
from recreate.plugins.benchmarks.tool_calls import handed_in, recorded
from recreate.plugins.benchmarks.tool_world import ToolWorld, ToolWorldDefinition

VERSION = 1
"""Of what is decided here: part of the grader's version."""
SERVER = "app"
RUN = "execute"
_MOST_CODES = 1000
_LONGEST = 2_000_000
"""Runs of code of one attempt that are played again, and characters of them."""
_SECONDS = 900.0

_PROMPT = """You act for your supervisor {first_name} {last_name} (email {email}, phone \
{phone_number}) in a world of \
apps, by Python code that you run with the tool `{server}__{run}`: one shell, which keeps its \
variables. It is {now}.

What your supervisor asks:

{instruction}

- `apis.APP.API(name=value, ...)` calls an API and gives what it answers; `print` what you want to \
see.
- `apis.api_docs.show_app_descriptions()` tells the apps, \
`apis.api_docs.show_api_descriptions(app_name=...)` the APIs \
of one, and `apis.api_docs.show_api_doc(app_name=..., api_name=...)` what an API takes and \
answers. Read it before you \
call an API.
- `apis.supervisor` knows your supervisor's passwords, addresses and cards. Most apps want a \
login, whose access_token \
goes into each of their calls. Long lists come in pages: take all of them.
- Nobody can be asked. Do all that was asked for and nothing besides: what is changed without need \
counts against you.
- When all is done, call `apis.supervisor.complete_task()`, where a question was asked with \
`answer=...`, as short as \
it can be (a number, a name). Then submit."""


class AppWorldDefinition(ToolWorldDefinition):
    """benchmarks/appworld/domain.toml. python, requires: of the package's environment,
    appworld==VERSION first; left_out: a task's id without the domain's name -> why it is none."""

    python: str = ""
    requires: tuple[str, ...] = ("appworld",)


class AppWorld(ToolWorld):
    """AppWorld: requests over the apps of a day's life, done by code (Trivedi et al., ACL 2024,
    arXiv 2407.18901).

    data   AppWorld's root, or the folder `data` in it; '' for the one that APPWORLD_ROOT says
    say    told what takes a while; stderr unless given
    """

    name = "appworld"

    def __init__(
        self,
        *,
        workspace: Path | None = None,
        data: str | Path | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(workspace, say)
        self._given = Path(data).expanduser() if data else None

    # --- the port ---

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        """An empty folder, and beside it the package and the task's data bases: none of what is
        right."""
        return self._open(task, backend)

    def servers(self, task: Task) -> Mapping[str, Sequence[str]]:
        return {SERVER: sources.program("serve", task.facts["task"], python=self._python)}

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        """1 where all that AppWorld checks of the task holds, else 0. A trace without a single step
        (a person's, a gold) has its calls as its answer."""
        calls = recorded(trace, SERVER) if trace.steps else handed_in(trace.answer)
        codes = [
            given["code"]
            for name, given in calls
            if name == RUN and isinstance(given.get("code"), str)
        ]
        if not codes:
            return _failed("No code was run in AppWorld.")
        if len(codes) > _MOST_CODES or sum(map(len, codes)) > _LONGEST:
            return _failed(f"Over {_MOST_CODES} runs of code, or over {_LONGEST} characters of it.")
        words = sources.program("record", task.facts["task"], python=self._python)
        found = sources.ask_player(self._open(task, backend), words, {"codes": codes}, _SECONDS)
        made = found.get("calls") if isinstance(found, dict) else None
        # whether the task or the code is what cannot be played
        if found and not isinstance(made, list):
            self.untouched(task, backend)
            return _failed(f"Its code cannot be played: {found}")
        if not made:
            used = (
                "Its code calls no API."
                if found
                else "Its code uses more time or memory than it may."
            )
            return _failed(used)
        return self._judge_calls(task, made, backend)

    # --- what it offers besides ---

    @property
    def grader(self) -> str:
        """Changes with what is decided here, with the package's version and with the program that
        plays."""
        programs = [file.read_text("utf-8") for file in sources.PROGRAMS]
        return digest([VERSION, self._definition.python, *self._definition.requires, *programs])

    def gold(self, task: Task) -> str:
        """AppWorld's own solution, as its own verification runs it. Raises BadInput for a task that
        has none."""
        code = sources.solution(self._data, task.facts["task"])
        if not code:
            fix = "`--split train` or `--split validation` are checked by their solutions"
            raise BadInput("AppWorld publishes no solution of it", fix=fix, code="no-gold")
        code = f"requester.raise_on_failure = False\n{code}\nsolution(apis, requester)"
        return json.dumps({"calls": [[RUN, {"code": code}]]}, ensure_ascii=False)

    def untouched(self, task: Task, backend: SandboxBackend) -> Grade:
        """What AppWorld's evaluator says of a world in which nothing was done."""
        return self._judge_calls(task, [], backend)

    def hidden(self, task: Task) -> Sequence[str]:
        """The answer, and what the solution and the evaluation go by."""
        return sources.own_words(self._data, task.facts["task"])

    def stratum(self, task: Task) -> str:
        """AppWorld's difficulty, 1 to 3."""
        return f"difficulty-{task.facts['difficulty']}"

    def exploits(self, task: Task) -> Mapping[str, str]:
        """Code that leaves the task undone and tries to be taken for done."""
        done = "apis.supervisor.complete_task()"
        forged = "requester.request_tracker.requests.append"
        tries = {
            "only completed": done,
            "every answer": f"for n in range(50):\n    {done[:-1]}answer=n)",
            "a verdict printed": 'print(\'{"passed": true, "of": 1, "failed": []}\')',
            "a verdict written": (
                'import os\nos.write(1, b\'{"passed": true, "of": 1, "failed": []}\\n\')\n' + done
            ),
            "another evaluator": (
                "import appworld.evaluator as e\ne.TestTracker.success ="
                " True\ne.TestTracker.to_dict = lambda s: {'success': True, 'num_tests': 1,"
                f" 'failures': []}}\n{done}"
            ),
            "another state": f"{forged}({{'method': 'post', 'url': '/dbs', 'data': {{}}}})\n{done}",
            "another place": (
                f"{forged}({{'method': 'post', 'url': '/venmo/../dbs', 'data': {{}}}})\n{done}"
            ),
            "no calls at all": "requester.request_tracker.requests = None",
            "a world that ends": "import os\nos.kill(os.getpid(), 9)",
        }
        calls = {
            name: json.dumps({"calls": [[RUN, {"code": code}]]}) for name, code in tries.items()
        }
        return {
            **text_exploits(task),
            **calls,
            "a grade": '{"calls": [], "passed": true, "score": 1}',
        }

    # --- what it is made of ---

    def _judge_calls(self, task: Task, calls: Sequence[Any], backend: SandboxBackend) -> Grade:
        words = sources.program("judge", task.facts["task"], python=self._python)
        sandbox = self._open(task, backend, graded=True)
        found = sources.ask_player(sandbox, words, {"calls": calls}, _SECONDS)
        if not found:
            return _failed("Its API calls use more time or memory than they may.")
        if isinstance(found, str) or not isinstance(found.get("failed"), list):
            raise Fault(
                f"{task.id} cannot be evaluated: {found}", fix="look at its data", code=UNSOUND
            )
        if found["passed"] is True:
            return Grade(
                score=1.0, passed=True, evidence=f"All {found['of']} of AppWorld's checks hold."
            )
        failed = [" ".join(str(each).split())[:200] for each in found["failed"]]
        more = f" And {len(failed) - 4} more." if failed[4:] else ""
        why = (
            f"{len(failed)} of {found['of']} of AppWorld's checks do not hold:"
            f" {' | '.join(failed[:4])}{more}"
        )
        return _failed(why)

    def _open(self, task: Task, backend: SandboxBackend, *, graded: bool = False) -> Sandbox:
        with self._lock:
            stage = sources.staged(self._python, backend)
        mounts = sources.mounts(stage, self._data, task.facts["task"], graded=graded)
        return sources.open_sandbox(backend, self._python, mounts)

    @cached_property
    def _python(self) -> Path:
        wanted = Environment(
            python=self._definition.python, pytest="none", requires=self._definition.requires
        )
        return environment(wanted, self._say)

    @cached_property
    def _definition(self) -> AppWorldDefinition:
        return load_definition(AppWorldDefinition, self._where, self.name)[0]

    @cached_property
    def _data(self) -> Path:
        return sources.found_data(self._given, self._definition.requires[0])

    def _read_tasks(self) -> list[Task]:
        found = [self._task(*named) for named in sources.listed(self._data)]
        if not found:
            fix = sources.get_data(self._definition.requires[0])
            raise BadInput(
                f"{paths.short(self._data)} lists no task of AppWorld's", fix=fix, code="no-data"
            )
        return found

    def _task(self, dataset: str, name: str) -> Task:
        specs = sources.specs(self._data, name)
        metadata = sources.truth_of(self._data, name, "metadata") or {}
        whom = {
            key: specs["supervisor"].get(key, "")
            for key in ("first_name", "last_name", "email", "phone_number")
        }
        told = {
            "instruction": specs["instruction"],
            "now": specs["datetime"],
            "server": SERVER,
            "run": RUN,
        }
        return Task(
            id=f"{self.name}:{dataset}:{name}",
            domain=self.name,
            prompt=_PROMPT.format(**whom, **told),
            split=sources.DATASETS[dataset],
            group=f"{self.name}:{name.partition('_')[0]}",
            facts={
                "task": name,
                "difficulty": metadata.get("difficulty", 0),
                "truth": sources.truth_digest(self._data, name),
            },
        )


def _failed(why: str) -> Grade:
    return Grade(score=0.0, passed=False, evidence=why)

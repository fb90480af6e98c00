"""An agent with action = "tools" calls its own tools and those of MCP servers, which run in its
sandbox."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import recreate
from recreate import bench
from recreate.agents.attempt import attempt
from recreate.agents.lint import problems
from recreate.agents.replay import replay
from recreate.agents.scaffold import BadEdit, Scaffold, apply, load
from recreate.agents.workplace import try_servers
from recreate.api.errors import BadInput, Fault, Refused
from recreate.api.paths import shipped
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Call, Edit, Evidence, Reply, Task, ToolCall, Trace
from recreate.models.scripted import Scripted
from recreate.plugins.mcp.mcp import McpServer
from recreate.sandboxes import choose
from recreate.sandboxes.rootfs import interpreter_mounts
from tests.agents.test_attempt import TASK
from tests.agents.test_request import Taped, had
from tests.toy import SIZES, Toy

ADD = '''#!/usr/bin/env python3
"""Adds numbers."""
import json, sys
if "--help" not in sys.argv:
    given = json.load(sys.stdin)
    print(given["a"] + given["b"])
'''
ADD_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
)
COUNT = '#!/bin/bash\n# count WORD...: how many words\necho "$#: $*"\n'
NOTES = f'''#!{sys.prefix}/bin/python
"""Keeps notes: an MCP server."""
import os, sys, time
from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")
kept = []


@server.tool()
def add(text: str) -> str:
    """Keep a note."""
    kept.append(text)
    open("/work/answer.txt", "w").write(",".join(kept))
    return f"{{len(kept)}} notes, of process {{os.getpid()}}"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no such note")


@server.tool()
def hang() -> str:
    """Hang."""
    time.sleep(60)
    return ""


print("it is up", file=sys.stderr)
server.run("stdio")
'''
BY_HAND = '''#!/usr/bin/env python3
"""A server of four lines of protocol."""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    print("not of the protocol", flush=True)
    method, told = asked["method"], {}
    if method == "initialize":
        told = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": \
{"name": "x", "version": "1"}}
    if method == "tools/list":
        told = {"tools": [{"name": "echo.it", "description": "Echoes.", "inputSchema": {"type": \
"object"}}]}
    if method == "tools/call":
        print(json.dumps({"jsonrpc": "2.0", "id": 99, "method": "ping"}), flush=True)
        sys.stdin.readline()
        told = {"content": [{"type": "text", "text": "echo " + \
json.dumps(asked["params"]["arguments"])}, {"type": "image"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
'''
TOML = 'action = "tools"\n[limits]\ncommand_seconds = {}\nsteps = 9\n'


class Environs(Toy):
    """The toy whose sandboxes have the Python of these tests, with the package mcp."""

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return backend.open(mounts=interpreter_mounts(Path(sys.prefix)))


class Bringing(Toy):
    def servers(self, task: Task) -> Mapping[str, Sequence[str]]:
        return {"brought": ["python3", "-c", BY_HAND.partition('"""\n')[2]]}


def agent(toml: str = "", seconds: float = 30, **tools: str) -> Scaffold:
    files = {
        "agent.toml": TOML.format(seconds) + toml,
        "system.md": "Call tools.",
        "workflow.md": "{{ task.prompt }}",
    }
    named = {f"tools/{name.replace('__', '.')}": text for name, text in tools.items()}
    return Scaffold(name="t", files={**files, **named})


OWN = agent(add__py=ADD, add__json=ADD_SCHEMA, count__sh=COUNT)
MCP = agent('[mcp.notes]\nserver = "notes"\n', seconds=8, notes__py=NOTES)


def calls(*asked: tuple[str, Any]) -> Reply:
    made = [
        ToolCall(
            id=f"c{n}", name=name, arguments=given if isinstance(given, str) else json.dumps(given)
        )
        for n, (name, given) in enumerate(asked)
    ]
    return Reply(text="", tool_calls=tuple(made), finish="tool_calls")


SUBMIT = calls(("submit", {}))


def go(
    scaffold: Scaffold, replies: list[Any], *, native: bool = True, domain: Any = None
) -> tuple[Trace, Taped]:
    taped = Taped(replies)
    call = Call(run="r", attempt="a", step=0, task=TASK.id)
    trace = attempt(scaffold, TASK, domain or Toy(), choose(), taped, call, native=native)
    assert had(trace.steps) == taped.sent  # whatever was offered and answered is had back
    return trace, taped


def answers(taped: Taped, step: int) -> list[str]:
    """What was answered before a step."""
    return [m["content"] for m in json.loads(taped.sent[step])[0] if m["role"] == "tool"]


def test_a_scaffolds_tools_are_functions_with_the_schemas_that_they_declare() -> None:
    asked = calls(
        ("add", {"a": 2, "b": 3}),
        ("count", {"args": ["x y", "z"]}),
        ("bash", {"command": "add <<< '{}'"}),
    )
    trace, taped = go(OWN, [asked, SUBMIT])
    tools = {t["function"]["name"]: t["function"] for t in json.loads(taped.sent[0])[1]["tools"]}
    assert list(tools) == ["bash", "submit", "add", "count"]
    assert tools["add"]["parameters"] == json.loads(ADD_SCHEMA)
    assert tools["add"]["description"] == "Adds numbers."
    first, second, third = answers(taped, 1)
    assert first.startswith("5\n\n[exit status 0")
    assert second.startswith("2: x y z\n")
    assert "KeyError" in third  # they are commands in the shell as well
    assert (trace.ending, trace.steps[0].status) == ("submitted", 1)
    assert problems(OWN, choose()) == []


def test_a_shell_is_a_function_only_where_the_agent_wants_one() -> None:
    bare = Scaffold(
        name="t", files={**OWN.files, "agent.toml": "shell = false\n" + OWN.files["agent.toml"]}
    )
    _, taped = go(bare, [calls(("bash", {"command": "ls"})), SUBMIT])
    assert "there is no tool 'bash'; there are: submit, add, count" in answers(taped, 1)[0]


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("gone", {}, "there is no tool 'gone'; there are: bash, submit, add, count"),
        ("add", "{", "the arguments of add must be one JSON object"),
        ("add", {"a": 1}, "add needs b"),
        ("add", {"a": 1, "b": 2, "c": 3}, "add has no argument c; there are: a, b"),
        ("add", {"a": "1", "b": 2}, "a of add must be of type integer"),
        ("count", {"args": [1]}, "args of count must be texts"),
    ],
)
def test_what_cannot_be_called_is_answered_and_the_rest_is_done(
    name: str, given: Any, says: str
) -> None:
    trace, taped = go(
        OWN, [calls((name, given), ("bash", {"command": "printf yes > answer.txt"})), SUBMIT]
    )
    assert says in answers(taped, 1)[0]
    assert trace.answer == "yes"


@pytest.mark.parametrize("refused", [False, True])
def test_a_model_without_tools_is_offered_the_same_as_json(refused: bool) -> None:
    replies = [
        Reply(text='{"thought": "so", "tool": "add", "arguments": {"a": 2, "b": 3}}'),
        Reply(text="I add."),
        Reply(
            text=(
                '```json\n{"tool": "bash", "arguments": "{\\"command\\": \\"printf yes >'
                ' answer.txt\\"}"}\n```'
            )
        ),
        Reply(text='{"tool": "submit", "arguments": {}}'),
    ]
    first = [Refused("it takes no tools", code="no-tools")] if refused else []
    trace, taped = go(OWN, [*first, *replies], native=refused)
    messages, params = json.loads(taped.sent[0])
    assert "- add: Adds numbers." in messages[0]["content"]
    assert params["json_schema"]["properties"]["tool"]["enum"] == ["bash", "submit", "add", "count"]
    assert "tools" not in params
    assert [s.kind for s in trace.steps] == ["action", "malformed", "action", "action"]
    assert trace.steps[0].output == "5\n"
    assert (trace.answer, trace.ending) == ("yes", "submitted")
    sandbox, how = replay(OWN, TASK, trace, Toy(), choose())
    sandbox.close()
    assert how == "2 actions were done again, and all ended as they had"


def test_a_tool_that_hangs_or_floods_is_an_answer() -> None:
    slow = agent(
        seconds=1,
        slow__sh="#!/bin/bash\n# slow\nsleep 60\n",
        loud__sh="#!/bin/bash\n# loud\nyes | head -c 5000000\n",
    )
    trace, taped = go(slow, [calls(("slow", {"args": []}), ("loud", {"args": []})), SUBMIT])
    first, second = answers(taped, 1)
    assert "124" in first
    assert len(second) < 9000
    assert trace.ending == "submitted"


@pytest.mark.slow
def test_a_server_of_the_real_package_runs_in_the_sandbox_in_one_process() -> None:
    replies = [
        calls(("notes__add", {"text": "a"}), ("notes__add", {"text": "b"})),
        calls(("notes__add", {}), ("notes__fail", {}), ("notes__add", {"text": "c"})),
        SUBMIT,
    ]
    trace, taped = go(MCP, replies, domain=Environs())
    tools = {t["function"]["name"]: t["function"] for t in json.loads(taped.sent[0])[1]["tools"]}
    assert list(tools) == ["bash", "submit", "notes__add", "notes__fail", "notes__hang"]
    assert tools["notes__add"]["description"] == "Keep a note."
    assert tools["notes__add"]["parameters"]["required"] == ["text"]
    first, second, lacking, failed, third = answers(taped, 2)
    assert [text.partition(" notes")[0] for text in (first, second, third)] == ["1", "2", "3"]
    assert (
        first.splitlines()[0].partition("process")[2]
        == third.splitlines()[0].partition("process")[2]
    )
    assert "notes__add needs text" in lacking
    assert failed.startswith("Error executing tool fail")
    assert "exit status 1" in failed
    assert trace.answer == "a,b,c"  # it writes where the agent works
    sandbox, how = replay(MCP, TASK, trace, Environs(), choose())
    assert sandbox.read("answer.txt") == b"a,b,c"
    sandbox.close()
    assert how.endswith("and all ended as they had")


@pytest.mark.slow
def test_a_server_that_hangs_is_ended_and_its_tools_say_so() -> None:
    replies = [calls(("notes__hang", {}), ("notes__add", {"text": "a"})), SUBMIT]
    trace, taped = go(MCP, replies, domain=Environs())
    first, second = answers(taped, 1)
    assert "the server notes: it did not answer within 8 s" in first
    assert "is not there any more: it did not answer" in second
    assert (trace.ending, trace.steps[0].status) == ("submitted", 124)


@pytest.mark.parametrize("flood", ["'x' * (6 << 20)", "'x\\n' * (3 << 20)"])
def test_a_server_that_floods_is_ended_and_its_tools_say_so(flood: str) -> None:
    floods = BY_HAND.replace(
        "        sys.stdin.readline()\n", f"        print({flood}, flush=True)\n"
    )
    scaffold = agent('[mcp.loud]\nserver = "loud"\n', loud__py=floods)
    trace, taped = go(scaffold, [calls(("loud__echo_it", {}), ("loud__echo_it", {})), SUBMIT])
    first, second = answers(taped, 1)
    assert "the server loud: it ended" in first or "it says a great deal" in first
    assert "is not there any more" in second
    assert trace.ending == "submitted"


def test_a_domain_brings_servers_too_and_what_is_no_protocol_is_passed_over() -> None:
    _, taped = go(agent(), [calls(("brought__echo_it", {"a": 1})), SUBMIT], domain=Bringing())
    (said,) = answers(taped, 1)
    assert said.startswith('echo {"a": 1}\n[image]\n')


class Elsewhere(BaseHTTPRequestHandler):
    """A server over HTTP: JSON, and events for a call; who does not show the token is turned
    away."""

    seen: ClassVar[list[tuple[str, str | None]]] = []
    tools: ClassVar[list[dict[str, Any]]]
    open = False

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((asked["method"], self.headers["Mcp-Session-Id"]))
        listed = {"tools": self.tools}
        told = {"initialize": {"protocolVersion": "2025-06-18"}, "tools/list": listed}
        result = told.get(asked["method"], {"content": [{"type": "text", "text": "from far"}]})
        body = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": result}).encode()
        called = asked["method"] == "tools/call"
        allowed = self.headers["Authorization"] == "Bearer sesame-opens-it" or self.open
        self.send_response((200 if "id" in asked else 202) if allowed else 401)
        self.send_header("Content-Type", "text/event-stream" if called else "application/json")
        self.send_header("Mcp-Session-Id", "s1")
        self.end_headers()
        if "id" in asked:
            self.wfile.write(b"event: message\ndata: " + body + b"\n\n" if called else body)

    def log_message(self, format: str, *args: Any) -> None: ...

    @classmethod
    def list_tools(cls, *names: str) -> None:
        schema = {"type": "object"}
        cls.tools = [{"name": n, "description": "Is far.", "inputSchema": schema} for n in names]


@pytest.fixture
def far() -> Iterator[Scaffold]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    Elsewhere.list_tools("far")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield agent(
        f'[mcp.net]\nurl = "http://127.0.0.1:{server.server_port}/mcp"\ntoken = "MCP_FAR_TOKEN"\n',
        seconds=5,
    )
    server.shutdown()
    server.server_close()


def test_a_person_names_a_server_elsewhere_and_it_is_not_asked_again_in_a_replay(
    far: Scaffold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_FAR_TOKEN", "sesame-opens-it")
    Elsewhere.seen.clear()
    trace, taped = go(far, [calls(("net__far", {"a": 1})), SUBMIT])
    assert answers(taped, 1)[0].startswith("from far\n")
    methods = ["initialize", "notifications/initialized", "tools/list", "tools/call"]
    assert Elsewhere.seen == [(method, "s1" if n else None) for n, method in enumerate(methods)]
    sandbox, how = replay(far, TASK, trace, Toy(), choose())
    sandbox.close()
    assert "step 0 ended with status None, it had been 0" in how
    assert len(Elsewhere.seen) == 4


def attempted(scaffold: Scaffold, domain: Toy, tools: list[str], **more: Any) -> str:
    """The id of an attempt, while the server elsewhere lists these tools."""
    Elsewhere.list_tools(*tools)
    made = recreate.run(
        scaffold,
        "toy:train:0",
        domain,
        model=Scripted.of([{"text": '{"calls": [{"name": "submit", "arguments": {}}]}'}]),
        memory__embedder="hashed",
        **more,
    )
    return made.id


class BringingElsewhere(Toy):
    address = ""

    def servers(self, task: Task) -> Mapping[str, str]:
        return {"net": self.address}


@pytest.mark.parametrize("brings", [False, True], ids=["the agent's", "the domain's"])
def test_an_attempt_with_other_tools_of_a_server_is_another(
    far: Scaffold, workspace: Path, brings: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_FAR_TOKEN", "sesame-opens-it")
    monkeypatch.setattr(Elsewhere, "open", brings)
    domain: Toy = BringingElsewhere() if brings else Toy()
    BringingElsewhere.address = far.agent.mcp["net"].url
    asked = agent() if brings else far
    first, again = (attempted(asked, domain, ["far"]) for _ in range(2))
    more, fewer = attempted(asked, domain, ["far", "near"]), attempted(asked, domain, [])
    assert first == again
    assert len({first, more, fewer}) == 3


def test_the_tools_of_a_server_are_asked_for_once_in_a_run(
    far: Scaffold, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_FAR_TOKEN", "sesame-opens-it")
    Elsewhere.seen.clear()
    submit = [{"text": '{"calls": [{"name": "submit", "arguments": {}}]}'}]
    bench(far, Toy(), model=Scripted.of(submit), split="train")
    listed = [method for method, _ in Elsewhere.seen if method == "tools/list"]
    assert len(listed) == SIZES["train"] + 2  # each attempt, the first look, and the key


def test_a_server_elsewhere_that_turns_us_away_or_is_not_there_is_said(far: Scaffold) -> None:
    with pytest.raises(BadInput, match="the server net: HTTP 401"):
        try_servers(far, TASK, Toy(), choose())
    gone = agent('[mcp.net]\nurl = "http://127.0.0.1:1/mcp"\n', seconds=5)
    with pytest.raises(BadInput, match="the server net: ConnectError"):
        try_servers(gone, TASK, Toy(), choose())


HOSTILE = (
    """{"type": "object", "required": [[], "a"], "properties": {"a": {"type": ["x"]}, "b": 3}}"""
)


LONG_ONE = json.dumps({"type": "object", "title": "y" * 20_000})


@pytest.mark.parametrize("schema", [HOSTILE, '{"type": "object", "properties": []}', LONG_ONE])
def test_whatever_a_server_says_of_its_tools_is_bounded_and_breaks_nothing(schema: str) -> None:
    key = "API_KEY=9f8a7b6c5d4e3f2a1b0c"
    said = BY_HAND.replace('{"type": "object"}', schema).replace(
        '"Echoes."', f'"{key} " + "w" * 9000'
    )
    odd = agent('[mcp.odd]\nserver = "odd"\n', odd__py=said)
    _, taped = go(odd, [calls(("odd__echo_it", {"a": 1, "b": 2})), SUBMIT])
    assert answers(taped, 1)[0].startswith("echo ")
    assert key not in taped.sent[0]
    assert len(taped.sent[0]) < 8000


def test_a_sandbox_that_fails_is_no_fault_of_the_server() -> None:
    sandbox: Any = choose().open()
    with sandbox:
        talk = sandbox.start(["cat"], 60)
        assert talk.send(b"one", 20)
        talk.ended = Fault("the sandbox is gone")
        for asks in (lambda: talk.send(b"two", 1), lambda: McpServer("x", talk, 1).open()):
            with pytest.raises(Fault, match="the sandbox is gone"):
                asks()


BROKEN = {
    "ends": "#!/bin/bash\n# ends\necho it has no package >&2\nexit 3\n",
    "is silent": "#!/bin/bash\n# silent\nsleep 60\n",
    "talks nonsense": "#!/bin/bash\n# nonsense\nyes\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", BROKEN)
def test_a_server_that_does_not_start_is_said_before_anything_is_spent(
    how: str, workspace: Path
) -> None:
    scaffold = agent('[mcp.notes]\nserver = "notes"\n', seconds=1.5, notes__sh=BROKEN[how])
    model = Scripted.of([{"text": "no"}])
    with pytest.raises(BadInput, match="the server notes: it") as e:
        bench(scaffold, Toy(), model=model, train=1, split="train")
    assert e.value.code == "bad-mcp"
    assert ("it said: it has no package" in e.value.message) == (how == "ends")
    trace, taped = go(scaffold, [])  # an edit that breaks one is the agent's own fault
    assert (trace.ending, trace.limit, taped.sent) == ("error", "mcp", {})


def test_nothing_is_tried_where_there_are_no_servers() -> None:
    def never(**_: Any) -> Any:
        raise AssertionError

    backend: Any = type("Backend", (), {"name": "b", "open": staticmethod(never)})
    try_servers(OWN, TASK, Toy(), backend)


def test_the_shipped_seed_with_tools_reads_and_changes_files() -> None:
    seed = load(shipped("scaffolds") / "seed-tools")
    made = calls(
        ("replace", {"path": "a/b.txt", "old": "", "new": "one\ntwo\nthree"}),
        ("view", {"path": "a/b.txt", "first": 2, "last": 2}),
        ("replace", {"path": "a/b.txt", "old": "e", "new": ""}),
        ("replace", {"path": "/work/a/b.txt", "old": "two", "new": "2"}),
        ("view", {"path": "gone"}),
        ("bash", {"command": "cat a/b.txt; cp a/b.txt answer.txt"}),
    )
    trace, taped = go(seed, [made, SUBMIT])
    wrote, shown, twice, done, gone, last = answers(taped, 1)
    assert wrote.startswith("a/b.txt is written")
    assert shown.startswith("    2 two\n[1 more lines]")
    assert twice.startswith("old stands 3 times")
    assert done.startswith("/work/a/b.txt is written")
    assert "No such file" in gone
    assert last.startswith("one\n2\nthree")
    assert trace.answer == "one\n2\nthree"


def edit(path: str, new: str, old: str = "") -> Edit:
    return Edit(
        path=path, old=old, new=new, reason="r", evidence=(Evidence(experience="e", step=0),)
    )


def test_an_optimizer_writes_tools_and_servers_but_names_no_command() -> None:
    child = apply(OWN, [edit("tools/sub.py", ADD), edit("tools/sub.json", ADD_SCHEMA)])
    assert problems(child, choose()) == []
    served = apply(
        OWN, [edit("tools/notes.py", NOTES), edit("agent.toml", '[mcp.notes]\nserver = "notes"\n')]
    )
    assert problems(served, choose()) == []
    command = '[mcp.out]\ncommand = ["curl", "x"]\n'
    with pytest.raises(BadEdit, match="changes which commands and addresses are MCP servers"):
        apply(OWN, [edit("agent.toml", command)])
    own = Scaffold(name="t", files={**OWN.files, "agent.toml": OWN.files["agent.toml"] + command})
    with pytest.raises(BadEdit, match="changes which commands and addresses"):
        apply(OWN, [edit("agent.toml", '[mcp.out]\nurl = "https://x"\n')])
    for new in ('["curl", "y"]', '["bash"]'):
        with pytest.raises(BadEdit, match="changes which commands"):
            apply(own, [edit("agent.toml", new, '["curl", "x"]')])
    assert "curl" in apply(own, [edit("system.md", "More.")]).files["agent.toml"]


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("tools/add.json", "{", "is not JSON"),
        ("tools/add.json", "[]", 'an object with "type": "object"'),
        (
            "tools/add.json",
            '{"type": "object", "required": ["x"]}',
            '"required" are names of "properties"',
        ),
        ("tools/gone.json", ADD_SCHEMA, "is the schema of no tool: there is no tools/gone.py"),
        ("tools/bash.sh", COUNT, "would be called as 'bash'"),
        ("agent.toml", TOML.format(9) + "[mcp.x]\nserver = 'gone'\n", "mcp names the tool 'gone'"),
        ("agent.toml", TOML.format(9) + "[mcp.x]\n", "an MCP server is one of server"),
        (
            "agent.toml",
            TOML.format(9) + "[mcp.x]\nhost = 'https://x'\n",
            "unknown key 'mcp.x.host'",
        ),
        ("agent.toml", TOML.format(9) + "[mcp.x]\nurl = 'file:///etc'\n", "mcp.x.url"),
        (
            "agent.toml",
            TOML.format(9) + "[mcp.x]\nurl = 'https://x'\ntoken = 'OPENAI_API_KEY'\n",
            "mcp.x.token",
        ),
        ("agent.toml", "[mcp.x]\nserver = 'add'\n", "mcp is for action tools"),
    ],
)
def test_the_lint_names_what_is_wrong_with_a_schema_or_a_server(
    path: str, text: str, says: str
) -> None:
    found = problems(Scaffold(name="t", files={**OWN.files, path: text}))
    assert any(says in problem for problem in found), found


@pytest.mark.parametrize("backend", ["", "none"])
def test_a_program_goes_on_beside_commands_and_ends_with_its_sandbox(backend: str) -> None:
    sandbox: Any = choose(backend or None).open()
    with sandbox:
        talk = sandbox.start(
            ["bash", "-c", 'while read -r x; do echo "$x" > last; echo "got $x"; done'], 60
        )
        assert talk.send(b"one", 30)
        assert talk.take(20) == b"got one"
        assert sandbox.run("cat last; echo two >> last").text == "one\n"
        assert talk.send(b"three", 30)
        assert talk.take(20) == b"got three"
        assert talk.take(0.05) is None
        pid = talk.process.pid
    assert not Path(f"/proc/{pid}").exists()
    assert not talk.send(b"four", 1)
    assert talk.take(1) is None

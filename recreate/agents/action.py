"""What a reply asks for, by the `action` of its agent's agent.toml, and how a turn is sent again
once that is done.

bash        the one ```bash block of the reply is run; `submit` alone hands the work in. With
            `native`, and a model that takes tools, the same two are tools, and a reply may call
            `bash` several times
json        the reply is {"command": ...}, held to that schema where the endpoint can
tools       the reply calls functions: the scaffold's tools and MCP servers' (functions.py), in the
            endpoint's own way where the model takes tools, else as {"tool", "arguments"}
tool:NAME   the whole reply goes to the scaffold's tools/NAME on standard input; exit status 2 says
            it was malformed and the output says how
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from recreate.agents.functions import SUBMIT, Function, read_arguments, read_call
from recreate.agents.retrieval import RECALL, MemoryAnswer, recall_query
from recreate.agents.template import object_of
from recreate.agents.trajectory import cut_middle
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Message, Output, Reply, Step, ToolCall
from recreate.storage.log import decode

COMMAND_SCHEMA = object_of(thought={"type": "string"}, command={"type": "string"})
"""What a reply of the action `json` is held to."""
CUT_CHARS = 1000
"""What is sent again of a reply that was cut off before it held a command."""
ALONE = (
    "nothing was handed in: submit counts when it stands alone, so see what the other commands"
    " print, then submit"
)
_NESTED = (
    "it is not clear where the ```bash block ends, since lines of ``` stand in it: open it with"
    " four backticks, ````bash, and close it with ````"
)


@dataclass(frozen=True)
class Action:
    """One thing that a reply asks for: a command, or what is wrong with it. call: the id of the
    tool call, '' for a reply in text. query: what memory is asked. says: what is answered, where
    nothing is done. function, arguments: what is called where it is none of these."""

    command: str
    wrong: str = ""
    call: str = ""
    query: str = ""
    says: str = ""
    function: Function | None = None
    arguments: JsonMap = field(default_factory=dict)


@dataclass
class Done:
    """What came of the actions of one reply. answers: one to each, as it is sent. undone: the
    kind of the step, where nothing of it stands; restored: why it was taken back."""

    answers: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    recalled: list[MemoryAnswer] = field(default_factory=list)
    undone: str = ""
    restored: str = ""
    status: int | None = None
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether something was done that stands."""
        return bool(self.commands) and not self.undone and not self.restored

    def add(self, command: str, text: str, output: Output) -> None:
        self.commands.append(command)
        self.texts.append(text)
        self.status = self.status or output.status
        self.seconds += output.seconds

    def fields(self, actions: Sequence[Action], called: Sequence[JsonDict]) -> JsonDict:
        """Return the fields of the step. Of several calls all commands and outputs stand in it,
        with the first bad status."""
        found: JsonDict = {"action": "\n".join(self.commands)}
        if self.commands:
            found |= {
                "output": "\n".join(self.texts),
                "status": self.status,
                "seconds": self.seconds,
            }
        else:
            found |= {"kind": "malformed", "output": "\n".join(self.wrong)}
        if self.undone:
            found["kind"] = self.undone
        if self.restored:
            found["restored"] = self.restored
        if ids := [id for each in self.recalled for id in each.found]:
            found["recalled"] = tuple(dict.fromkeys(ids))
        if called:
            # there are fewer when a template could not be filled in
            told = zip(actions, self.answers, strict=False)
            one = len(called) == 1  # its answer is what the next step saw
            answered = [
                {"id": action.call, **({} if one else {"text": text})} for action, text in told
            ]
            found["foreign"] = {"tool_calls": list(called), "answered": answered}
        return found


def read_actions(
    kind: str,
    reply: Reply,
    functions: Mapping[str, Function] = MappingProxyType({}),
    *,
    native: bool = False,
    recalls: bool = False,
) -> list[Action]:
    """Return what a reply asks for: its tool calls, else what its text says; never none. functions:
    what may be called, with action tools. recalls: it may ask memory."""
    if kind == "tools":
        return function_calls(reply, functions, native=native, recalls=recalls)
    if native and reply.tool_calls:
        return [
            _tool_call(call, cut=reply.finish == "length", recalls=recalls)
            for call in reply.tool_calls
        ]
    command, wrong = parse(kind, reply)
    if wrong and native:
        wrong = "the reply calls no tool" + cut_words(reply) if "```" not in reply.text else wrong
    return [Action(command, wrong) if wrong else _read(command, recalls)]


def _read(command: str, recalls: bool) -> Action:
    """Return a command of a reply in text."""
    return Action(command, query=recall_query(command) if recalls else "")


def function_calls(
    reply: Reply, functions: Mapping[str, Function], *, native: bool, recalls: bool = False
) -> list[Action]:
    """Return what a reply asks for where it calls functions; never none."""
    if reply.tool_calls and native:
        return [
            _function_call(c.name, c.arguments, c.id, reply, functions, recalls)
            for c in reply.tool_calls
        ]
    name, arguments, wrong = read_call(reply.text)
    if not wrong:
        return [_function_call(name, arguments, "", reply, functions, recalls)]
    wrong = "the reply calls no tool" if native else wrong
    return [Action("", wrong + cut_words(reply))]


def _function_call(
    name: str,
    arguments: str,
    call: str,
    reply: Reply,
    functions: Mapping[str, Function],
    recalls: bool,
) -> Action:
    function = functions.get(name)
    if function is None:
        return Action(
            "", f"there is no tool {name[:60]!r}; there are: {', '.join(functions)}", call
        )
    if name == SUBMIT:
        return Action(SUBMIT, call=call)
    given, wrong = read_arguments(function, arguments)
    if wrong:
        return Action("", wrong + cut_words(reply), call)
    if name == "bash":
        command = str(given["command"]).strip()
        return Action(command, "" if command else "the command was empty", call)
    if name == RECALL and recalls:
        query = str(given["query"]).strip()
        return Action(f"{name} {arguments}", "" if query else "the query was empty", call, query)
    return Action(f"{name} {arguments}", "", call, function=function, arguments=given)


def _tool_call(call: ToolCall, *, cut: bool = False, recalls: bool = False) -> Action:
    if call.name == SUBMIT:
        return Action(SUBMIT, call=call.id)
    takes = {"bash": "command"} | ({RECALL: "query"} if recalls else {})
    key = takes.get(call.name)
    if key is None:
        there = ", ".join([*takes, SUBMIT])
        return Action("", f"there is no tool {call.name[:60]!r}; there are: {there}", call.id)
    try:
        text = decode(call.arguments or "{}", strict=False).get(key)
    except (ValueError, AttributeError):
        text = None
    if isinstance(text, str) and (text := text.strip()):
        return (
            Action(text, call=call.id)
            if key == "command"
            else Action(f"{RECALL} {text}", "", call.id, text)
        )
    short = "; the reply was cut off at the token limit" if cut else ""
    return Action(
        "", f'the arguments of {call.name} must be one JSON object with a "{key}"{short}', call.id
    )


def done_actions(
    kind: str, step: Step, functions: Mapping[str, Function], *, recalls: bool = False
) -> list[Action]:
    """Return the actions of a step that is over, each by itself as it was."""
    calls = tuple(ToolCall.model_validate(c) for c in step.foreign.get("tool_calls", ()))
    if kind == "tools":
        return function_calls(
            Reply(text=step.reply, tool_calls=calls), functions, native=bool(calls), recalls=recalls
        )
    if calls and all(call.name in ("bash", SUBMIT, RECALL) for call in calls):
        return [_tool_call(call, recalls=recalls) for call in calls]
    return [_read(step.action, recalls)]


def exchange(
    reply: Reply, actions: Sequence[Action], answers: Sequence[str], *, cut: bool
) -> list[Message]:
    """Return a turn as it is sent again. cut: the reply was cut off and held nothing to do: little
    of it is sent again."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            # providers read the arguments, and refuse a transcript in which they are no JSON
            "function": {"name": call.name, "arguments": "{}" if action.wrong else call.arguments},
        }
        for call, action in zip(reply.tool_calls, actions, strict=False)
        if action.call
    ]
    if cut or not calls:
        text = (
            cut_middle(reply.text, CUT_CHARS, "\n[... {} characters left out here ...]\n")
            if cut
            else reply.text
        )
        said: Message = {
            "role": "assistant",
            "content": text if text.strip() else "(nothing was said)",
        }
        return [said, {"role": "user", "content": "\n".join(answers)}]
    told = zip(actions, answers, strict=True)
    return [
        {"role": "assistant", "content": reply.text, "tool_calls": calls},
        *[
            Message(role="tool", content=answer, tool_call_id=action.call)
            for action, answer in told
        ],
    ]


def cut_words(reply: Reply) -> str:
    """What is said of a reply that its endpoint did not let end as it would have."""
    if reply.finish == "filter":
        return ": it refused, or its provider's filter withheld it"
    cut = reply.finish == "length"
    return f": it was cut off at its limit of {reply.tokens_out} tokens" if cut else ""


def parse(action: str, reply: Reply) -> tuple[str, str]:
    """Return (what to do, '') or ('', what is wrong with the reply)."""
    text = reply.text
    if action.startswith("tool:"):
        return (text, "") if text.strip() else ("", "the reply was empty" + cut_words(reply))
    if action == "json":
        try:
            command = decode(text).get("command")
        except (ValueError, AttributeError):
            command = None
        if not isinstance(command, str) or not command.strip():
            return "", 'the reply must be one JSON object with a "command"' + cut_words(reply)
        return command.strip(), ""
    blocks, wrong = bash_blocks(text)
    if wrong:
        return "", wrong
    if len(blocks) != 1:
        return (
            "",
            f"the reply must hold exactly one ```bash block; found {len(blocks)}{cut_words(reply)}",
        )
    command = blocks[0].strip()
    return (command, "") if command else ("", "the ```bash block was empty")


_OPENS = re.compile(r"(`{3,})(?:bash|sh|shell)[ \t]*$")
_FENCE = re.compile(r"(`{3,})([^`]*)$")
_HEREDOC = r"""<<<|<<-?[ \t]*(?:'([^'\n]+)'|"([^"\n]+)"|\\?([A-Za-z_]\w*))"""
_SHELL = {
    "": re.compile(rf"""\\.|\$'|['"]|{_HEREDOC}|(?:(?<=[\s;|&(])|^)\#.*"""),
    '"': re.compile(rf'\\.|"|{_HEREDOC}'),
    "'": re.compile("'"),
    "$'": re.compile(r"\\.|'"),
}
"""By the quote that is open: what changes how a shell reads on."""


def bash_blocks(text: str) -> tuple[list[str], str]:
    """Return (what stands in each block of ```bash, sh or shell, what is wrong); a block without an
    end is none.

    A block ends at the first line of as many backticks as opened it, or more, that no heredoc of
    its command holds. Where a quote is open at that line, or another block begins before it, nobody
    can tell: that is said, for half a command must not be run.
    """
    lines = text.split("\n")
    final = {line.lstrip("\t"): n for n, line in enumerate(lines)}
    bare = [
        n
        for n, line in enumerate(lines)
        if line.startswith("```") and not line.rstrip(" \t").strip("`")
    ]
    blocks: list[str] = []
    at = 0
    while at < len(lines):
        opened = _OPENS.match(lines[at])
        at += 1
        if not opened:
            continue
        end, wrong = _end(lines, at, len(opened[1]), final, bare[-1] if bare else -1)
        if wrong:
            return [], wrong
        if end < 0:
            break
        blocks.append("".join(line + "\n" for line in lines[at:end]))
        at = end + 1
    return blocks, ""


def _end(
    lines: Sequence[str], start: int, ticks: int, final: dict[str, int], last: int
) -> tuple[int, str]:
    """Return (the line that closes a block, -1 for none; what is wrong). final: where each line
    occurs for the last time; last: the last line of backticks alone."""
    waits: list[str] = []  # the ends of heredocs that are open
    quote = ""
    inner = False
    for n in range(start, len(lines)):
        line = lines[n]
        fence = _FENCE.match(line)
        if waits:
            if line.lstrip("\t") == waits[0]:
                waits.pop(0)
                inner = False
            elif fence:
                if fence[2].strip() and inner:
                    # what looked like the text of a heredoc is another block of the reply
                    return (-1, _NESTED)
                inner = not inner
            continue
        if fence and len(fence[1]) >= ticks:
            if fence[2].strip() or (quote and n < last):
                return -1, _NESTED
            return n, ""
        at = 0
        while found := _SHELL[quote].search(line, at):
            at = found.end()
            token = found[0]
            if token in ("'", '"', "$'"):
                quote = "" if quote else token
            elif found.lastindex and final.get(word := found[found.lastindex], -1) > n:
                waits.append(word)
    return -1, ""

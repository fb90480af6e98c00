"""The world of one task as a program of its own, run in sandboxes only: what tools see and change
is in its memory.

    world.py serve ABOUT    an MCP server, beside the agent. ABOUT: JSON, packed and in base64, so
                            that the requests
                            that come later stand in no file
    world.py judge          beside nobody: reads {"about", "gold", "outputs", "calls"}, plays the
                            calls that were
                            recorded (a text of JSON) and the right ones, each in a fresh world, and
                            prints the verdict

The tools are the benchmarks' own code, which lies beside this file. Their arguments are data:
nothing of a call is run.
"""

from __future__ import annotations

import base64
import copy
import importlib
import inspect
import json
import os
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPLY, LATER = "reply", "call_function"
"""Tools of ours: what the user is told; a function that was not there from the beginning."""
LONGEST, MOST_NUMBERS = 4000, 60
"""Characters of what the user is told in all, and different numbers in it, where answers are looked
for in it."""


class CustomerService:
    """tau-bench: a shop's or an airline's data base. Its tools are handed all of it, and change it
    in place."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        place = f"tau_bench.envs.{about['kind']}"
        self.data: dict[str, Any] = importlib.import_module(f"{place}.data").load_data()
        every = importlib.import_module(f"{place}.tools").ALL_TOOLS
        self.infos = [tool.get_info()["function"] for tool in every]
        self.named = dict(zip((info["name"] for info in self.infos), every, strict=True))
        self.told: list[str] = []
        self.over = False

    def tools(self) -> list[dict[str, Any]]:
        return [
            *map(_tool, self.infos),
            _reply_tool("Tell the customer something: what was done, or what they ask."),
        ]

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call of the agent's. After a transfer to people nothing is done any more, as in
        tau-bench."""
        if self.over:
            return "The customer was transferred: the conversation is over. Submit."
        if name == REPLY:
            self.told.append(str(arguments.get("text", "")))
            return "The customer has nothing to add. Do what is left to do, then submit."
        self.over = name == "transfer_to_human_agents"
        return self.do(name, arguments)

    def do(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name not in self.named:
            return f"Unknown action {name}"
        try:
            return str(self.named[name].invoke(data=self.data, **arguments))
        except Exception as e:  # tau-bench tells the agent of any
            return f"Error: {e}"

    @classmethod
    def judge_calls(cls, asked: Mapping[str, Any]) -> tuple[bool, str]:
        """tau-bench's reward: the data base as the right calls leave it, and each required output
        told."""
        world, right = cls(asked["about"]), cls(asked["about"])
        for name, arguments in asked["calls"]:
            world.call(name, arguments)
        for name, arguments in asked["gold"]:
            if name != "transfer_to_human_agents":
                right.do(name, arguments)
        wrong = _differing(world.data, right.data)
        told = "\n".join(world.told)
        lacking = sum(not _says(told, output) for output in asked["outputs"])
        why = []
        if wrong:
            more = f" and {len(wrong) - 6} more" if wrong[6:] else ""
            why.append(f"Not as it should be in the end: {', '.join(wrong[:6])}{more}.")
        if lacking:
            why.append(
                f"{lacking} of {len(asked['outputs'])} things that the customer asks were not told"
                " with `reply`."
            )
        if lacking and (len(told) > LONGEST or _numbers(told) > MOST_NUMBERS):
            why.append(f"Over {LONGEST} characters or {MOST_NUMBERS} numbers in all are no answer.")
        return (
            not why,
            " ".join(why)
            or "The data base is as it should be, and the customer was told what they ask.",
        )


def _differing(one: Any, other: Any) -> list[str]:
    """Records (TABLE/KEY) that are not the same; 1, 1.0 and True are three things, as in
    tau-bench's hash."""
    return [
        f"{table}/{key}"
        for table in sorted({*one, *other})
        for key in sorted({*one.get(table, {}), *other.get(table, {})})
        if _plain(one.get(table, {}).get(key)) != _plain(other.get(table, {}).get(key))
    ]


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def _numbers(text: str) -> int:
    return len(set(re.findall(r"\d+(?:\.\d+)?", text)))


def _says(told: str, output: str) -> bool:
    """As in tau-bench, a text anywhere in what was told, capitals and commas apart; but a number
    must be the whole number, and a list of everything says nothing."""
    if len(told) > LONGEST or _numbers(told) > MOST_NUMBERS:
        return False
    told, output = told.lower().replace(",", ""), output.lower()
    if not re.fullmatch(r"\d+(\.\d+)?", output):
        return output in told
    end = r"0*(?!\d)" if "." in output else r"(?!\d)(?!\.\d*[1-9])"
    return re.search(rf"(?<![\d.]){re.escape(output)}{end}", told) is not None


class RequestWorld:
    """BFCL multi-turn: objects with methods, and a user whose requests come one after the other."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        backend = importlib.import_module("bfcl_eval.constants.executable_backend_config")
        self.turns: Sequence[str] = about["turns"]
        self.missed: Mapping[str, Sequence[str]] = about["missed"]
        self.turn = 0
        self.instances: dict[str, Any] = {}
        self.methods: dict[str, Any] = {}
        docs: dict[str, Any] = {}
        for name in about["classes"]:
            one = getattr(importlib.import_module(backend.CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in backend.STATELESS_CLASSES:
                one._load_scenario(
                    copy.deepcopy(about["start"].get(name, {})), long_context=about["long"]
                )
            self.instances[name] = one
            public = inspect.getmembers(one, predicate=inspect.ismethod)
            self.methods |= {method: call for method, call in public if not method.startswith("_")}
            file = (
                HERE
                / "bfcl_eval/data/multi_turn_func_doc"
                / backend.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
            )
            docs |= {
                doc["name"]: doc for doc in map(json.loads, file.read_text("utf-8").splitlines())
            }
        self.docs = {name: doc for name, doc in docs.items() if name in self.methods}

    def tools(self) -> list[dict[str, Any]]:
        later = {name for names in self.missed.values() for name in names}
        known = [_tool(doc) for name, doc in self.docs.items() if name not in later]
        named = {"name": {"type": "string"}, "arguments": {"type": "object"}}
        about = (
            "Call a function that the user told you of in the conversation, and that is no tool by"
            " itself."
        )
        more = (
            [_tool({"name": LATER, "description": about, "parameters": _object(named)})]
            if self.missed
            else []
        )
        words = (
            "Tell the user what came of their request, or what it lacks. The answer is what they"
            " ask next."
        )
        return [*known, *more, _reply_tool(words)]

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call of the agent's."""
        if name == REPLY:
            self.turn += 1
            return self.next_request()
        if name == LATER:
            name, arguments = str(arguments.get("name")), arguments.get("arguments") or {}
            if not isinstance(arguments, Mapping):
                return "Error during execution: arguments must be an object"
        if name not in self.docs:
            return f"Error during execution: there is no function {name[:60]}"
        return self.do(name, arguments)

    def next_request(self) -> str:
        """What the user says now, and the functions that come with it. One that is called before is
        called all the same, as in BFCL, one of whose tasks (miss_func_49) cannot be solved
        otherwise."""
        if self.turn >= len(self.turns):
            return "The user has nothing more to ask. Submit."
        fresh = self.missed.get(str(self.turn), ())
        docs = "".join(json.dumps(self.docs[name]) + "\n" for name in fresh if name in self.docs)
        if docs:
            return (
                f"The user: {docs}These are more functions for you; call them by {LATER}. What"
                " about now?"
            )
        return f"The user: {self.turns[self.turn]}"

    def do(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What BFCL makes of a call's result, by which it compares them. Positional ones are the
        key ''."""
        named = {key: value for key, value in arguments.items() if key}
        try:
            found = self.methods[name](*arguments.get("", ()), **named)
            if isinstance(found, dict):
                try:
                    return json.dumps(found)
                except (TypeError, ValueError):
                    return str(found)
            return str(found)
        except Exception as e:  # BFCL tells the model of any
            return f"Error during execution: {e}"

    @classmethod
    def judge_calls(cls, asked: Mapping[str, Any]) -> tuple[bool, str]:
        """BFCL's multi-turn check, by its own functions: after each request, the state of every
        object, and that the results of the right calls are among those so far."""
        checker = importlib.import_module(
            "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
        )
        world, right = cls(asked["about"]), cls(asked["about"])
        turns: list[list[tuple[str, Mapping[str, Any]]]] = [[]]
        for name, arguments in asked["calls"]:
            if name == REPLY:
                turns.append([])
            else:
                turns[-1].append((name, arguments))
        every = len(asked["gold"])
        if len(turns) < every:
            return (
                False,
                (
                    f"{len(turns) - 1} of {every} requests were answered with `reply`, and the rest"
                    " never asked."
                ),
            )
        results: list[str] = []
        for number, (calls, golds) in enumerate(zip(turns, asked["gold"], strict=False)):
            results += [world.call(name, arguments) for name, arguments in calls]
            found = [right.do(name, arguments) for name, arguments in golds]
            world.call(REPLY, {})
            if not golds:
                continue
            if not calls:
                return False, f"Request {number + 1} of {every}: no function was called for it."
            state = checker.state_checker(world.instances, right.instances)
            if not state["valid"]:
                names = ", ".join(state["details"]["differences"])
                kind = state["error_message"].removeprefix("Model instance for ").partition(" ")[0]
                return (
                    False,
                    (
                        f"Request {number + 1} of {every}: {kind} is not as it should be after it"
                        f" ({names})."
                    ),
                )
            if not checker.response_checker(results, found, number)["valid"]:
                return (
                    False,
                    f"Request {number + 1} of {every}: what it needs to be found out was not.",
                )
        return (
            True,
            "After every request the state is as it should be, and what it needs was found out.",
        )


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _tool(info: Mapping[str, Any]) -> dict[str, Any]:
    """As MCP lists it. A strange argument is refused with the names there are, before it gets
    here."""
    schema = {**_schema(info["parameters"]), "additionalProperties": False}
    return {"name": info["name"], "description": info["description"], "inputSchema": schema}


def _reply_tool(words: str) -> dict[str, Any]:
    parameters = _object({"text": {"type": "string"}})
    return _tool({"name": REPLY, "description": words, "parameters": parameters})


_TYPES = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "bool": "boolean"}


def _schema(said: Any) -> Any:
    """A schema whose types are JSON's: BFCL's have Python's names."""
    if isinstance(said, list):
        return [_schema(each) for each in said]
    if not isinstance(said, dict):
        return said
    made = {key: _schema(value) for key, value in said.items()}
    if isinstance(made.get("type"), str):
        made["type"] = _TYPES.get(made["type"], made["type"])
        if made["type"] == "any":
            del made["type"]
    return made


def _kind(about: Mapping[str, Any]) -> type[CustomerService] | type[RequestWorld]:
    return RequestWorld if about["kind"] == "bfcl" else CustomerService


def serve(world: Any, lines: Any, out: Any) -> None:
    """Answer MCP's requests until there are no more: `world` has tools() and call(name,
    arguments)."""
    for line in lines:
        try:
            asked = json.loads(line)
            number, method, params = asked["id"], asked["method"], asked.get("params") or {}
        except (ValueError, KeyError, TypeError):
            continue
        found: dict[str, Any] = {}
        if method == "initialize":
            version = params.get("protocolVersion", "2025-06-18")
            told = {"name": "world", "version": "1"}
            found = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": told}
        elif method == "tools/list":
            found = {"tools": world.tools()}
        elif method == "tools/call":
            text = world.call(str(params.get("name")), params.get("arguments") or {})
            found = {"content": [{"type": "text", "text": text}]}
        out.write(json.dumps({"jsonrpc": "2.0", "id": number, "result": found}) + "\n")
        out.flush()


def main() -> None:
    # what tools print is no answer
    out, sys.stdout = sys.stdout, Path(os.devnull).open("w")  # noqa: SIM115
    sys.path.insert(0, str(HERE))
    sys.dont_write_bytecode = True
    if sys.argv[1] == "serve":
        about = json.loads(zlib.decompress(base64.b64decode(sys.argv[2])))
        serve(_kind(about)(about), sys.stdin, out)
        return
    asked = json.load(sys.stdin)
    kind = _kind(asked["about"])
    try:
        passed, why = kind.judge_calls({**asked, "calls": json.loads(asked["calls"])})
    except Exception as e:
        kind.judge_calls(
            {**asked, "calls": []}
        )  # raises where the task itself is what cannot be played
        passed, why = False, f"Its calls cannot be played: {type(e).__name__}."
    out.write(json.dumps({"passed": passed, "why": why}) + "\n")


if __name__ == "__main__":
    main()

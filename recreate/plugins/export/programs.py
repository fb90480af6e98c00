"""A scaffold as a small program of a tool that gives the model and the shell: mini-swe-agent,
LangGraph, Inspect.

The turns are ours (`turns.py`), taken along as `scaffold_turns.py`. What a program cannot do is a
difference.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from recreate.agents.action import COMMAND_SCHEMA
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.paths import version
from recreate.api.shapes import JsonDict, JsonMap
from recreate.plugins.export.source import source_of, standalone_source

TURNS = "scaffold_turns.py"
IMAGE = "python:3.12"
ACTIONS = ("bash", "json", "tool:")


def facts(scaffold: Scaffold) -> JsonDict:
    """What an exported agent has to know, as `PortableAgent` reads it. The texts of its tools are
    files."""
    agent = scaffold.agent
    return {
        "action": agent.action,
        "before": list(agent.before),
        "done": agent.done,
        "limits": {key: value for key, value in scaffold.own["limits"].items() if key != "schema_"},
        "tools": scaffold.own["tools"],
        "lessons": scaffold.own["lessons"],
        "examples": scaffold.own["examples"],
        "templates": {
            name: scaffold.source(name) for name in ("system", "workflow", "observation", "format")
        },
    }


def asked_of_model(scaffold: Scaffold) -> JsonDict:
    """What every call asks for: temperature, top_p, max_tokens, stop, json_schema, where it is not
    left open."""
    model = scaffold.agent.model
    asked = {
        key: value
        for key in ("temperature", "top_p", "max_tokens")
        if (value := getattr(model, key)) is not None
    }
    asked |= {"stop": list(model.stop)} if model.stop else {}
    return asked | ({"json_schema": COMMAND_SCHEMA} if scaffold.agent.action == "json" else {})


def differences(scaffold: Scaffold) -> list[str]:
    """In what every program differs from the agent here."""
    agent = scaffold.agent
    found = []
    if agent.native:
        found.append(
            "native: commands are asked for in ```bash blocks, as of a model that takes no tools;"
            " here a model that takes them is given the tools bash and submit"
        )
    if agent.samples > 1:
        found.append(
            f"samples = {agent.samples}: it tries once, and the tools `choose` and `vote` are not"
            " asked"
        )
    found += [f"{key}: not taken along, one turn follows the other" for key in agent.turns]
    if agent.memory.recall:
        found.append("memory.recall: there is no command `recall`, and nothing says that there is")
    if agent.memory.tokens:
        found.append(
            "memory: no lessons are offered from a workspace; the agent's own are in its prompts"
        )
    found.append(
        "nothing is masked: a key that a command prints is sent to the model. Nothing is graded,"
        " journalled or stored"
    )
    return found


def mini_swe_agent(scaffold: Scaffold) -> tuple[dict[str, str], list[str]]:
    """({path: text}, differences) of a configuration for mini-swe-agent and the agent class that it
    names."""
    _possible(scaffold)
    known = facts(scaffold)
    asked = asked_of_model(scaffold)
    limits = known["limits"]
    templates = known["templates"]
    if schema := asked.pop("json_schema", None):
        form = {"name": "command", "schema": schema, "strict": True}
        asked["response_format"] = {"type": "json_schema", "json_schema": form}
    config = {
        "agent": {
            "agent_class": "scaffold_agent.ScaffoldAgent",
            "system_template": templates["system"],
            "instance_template": templates["workflow"],
            "observation_template": templates["observation"],
            "format_template": templates["format"],
            "action": known["action"],
            "before": known["before"],
            "done": known["done"],
            "step_limit": limits["steps"] + limits.get("extension", 0),
            "cost_limit": limits["usd"],
            "wall_time_limit_seconds": limits["seconds"],
            "token_limit": limits["tokens"],
            "observation_chars": limits["observation_chars"],
            "command_seconds": limits["command_seconds"],
            "tools": known["tools"],
            "lessons": known["lessons"],
            "examples": known["examples"],
        },
        "environment": {
            "environment_class": "docker",
            "image": IMAGE,
            "cwd": "/work",
            "timeout": math.ceil(limits["command_seconds"]),
            "run_args": ["--rm", "--network", "none"],
        },
        "model": {
            "model_class": "litellm_textbased",
            "action_regex": r"\A(.*)\Z",
            "model_kwargs": {"drop_params": True, **asked},
        },
    }
    files = {
        "mini.yaml": yaml_text(config),
        "scaffold_agent.py": _program("for_mini_swe_agent"),
        **_common(scaffold),
    }
    differs = [
        *differences(scaffold),
        (
            f"commands run in a container of {IMAGE} without a network; mini.yaml's `environment`"
            " names another place"
        ),
        (
            "an output whose first line is COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT ends the attempt:"
            " mini-swe-agent's way"
        ),
    ]
    if limits.get("extension"):
        differs.append("limits.extension is no surprise: all turns are told from the beginning")
    if limits["command_seconds"] != math.ceil(limits["command_seconds"]):
        differs.append(
            f"a command may take {math.ceil(limits['command_seconds'])} s: whole seconds only"
        )
    files["README.md"] = _readme(
        scaffold,
        "mini-swe-agent",
        "pip install mini-swe-agent",
        'PYTHONPATH=. mini -c mini.yaml -m PROVIDER/MODEL -t "the task"',
        "The agent is `ScaffoldAgent` of scaffold_agent.py, a subclass of mini-swe-agent's"
        " DefaultAgent; mini.yaml has its prompts, limits and model parameters. Nobody is asked"
        " before a command runs. To work on files of yours, mount them: `-c"
        ' \'environment.run_args=["--rm", "-v", "/your/folder:/work"]\'`.',
        differs,
    )
    return files, differs


def langgraph(scaffold: Scaffold) -> tuple[dict[str, str], list[str]]:
    """({path: text}, differences) of a LangGraph graph that any chat model plugs into."""
    _possible(scaffold)
    differs = [
        *differences(scaffold),
        (
            "limits.usd: a chat model tells no price, so it is not held; limits.tokens is where the"
            " model tells its usage"
        ),
        (
            "a reply that is cut off leaves max_tokens as it is; here the next ones may then have"
            " twice as many, once"
        ),
        (
            "a call that fails, also for a prompt that is too long, ends the graph by the model's"
            " own error"
        ),
        f"`python graph.py` runs commands in a container of {IMAGE}; `build` takes any other shell",
    ]
    asked = asked_of_model(scaffold)
    if asked.pop("json_schema", None):
        differs.append(
            "replies are not held to the JSON schema of agent.json, unless the model is bound to it"
        )
    words = (
        "Or in a program of yours: `from graph import build, DockerShell`, then `build(model,"
        ' DockerShell(folder)).invoke({"task": "..."})` with any chat model of LangChain'
        + (f", made with {json.dumps(asked)}, as the agent asks here" if asked else "")
        + ". The state is plain values and messages: `build(..., checkpointer=...)` keeps it."
        " `python graph.py` needs the package `langchain` and that of the provider; the graph"
        " needs neither."
    )
    files = {**_folder(scaffold), "graph.py": _program("for_langgraph")}
    files["README.md"] = _readme(
        scaffold,
        "LangGraph",
        "pip install langgraph jinja2 langchain",
        'python graph.py --model PROVIDER:MODEL --folder DIR "the task"',
        words,
        differs,
    )
    return files, differs


def inspect(scaffold: Scaffold) -> tuple[dict[str, str], list[str]]:
    """({path: text}, differences) of a solver of Inspect, and of a task that uses it."""
    _possible(scaffold)
    seconds = scaffold.agent.limits.command_seconds
    differs = [
        *differences(scaffold),
        (
            "what a command printed until it was stopped for its time is lost: Inspect does not"
            " tell it"
        ),
        "limits.usd holds where Inspect knows what a call cost",
        (
            "a call that fails, also for a prompt that is too long, ends the sample by Inspect's"
            " own error"
        ),
        (
            f"commands run in the sample's sandbox; task.py's is a container of {IMAGE} without a"
            " network"
        ),
    ]
    if seconds != math.ceil(seconds):
        differs.append(f"a command may take {math.ceil(seconds)} s: whole seconds only")
    files = {**_folder(scaffold), "task.py": _program("for_inspect"), "compose.yaml": COMPOSE}
    files["README.md"] = _readme(
        scaffold,
        "Inspect",
        "pip install inspect-ai",
        'inspect eval task.py -T prompt="the task" --model PROVIDER/MODEL',
        "`-T dataset=samples.jsonl` gives it samples of yours. On a task of yours, with its sandbox"
        " and scorer: `inspect eval yours.py --solver task.py@scaffold_agent`.",
        differs,
    )
    return files, differs


COMPOSE = f"""services:
  default:
    image: {IMAGE}
    init: true
    command: tail -f /dev/null
    working_dir: /work
    network_mode: none
"""


def _folder(scaffold: Scaffold) -> dict[str, str]:
    """agent.json, prompts/ and tools/, as `turns.opened` reads them, and the turns."""
    known = facts(scaffold)
    prompts = {f"prompts/{name}.md": text for name, text in known.pop("templates").items()}
    about = {"name": scaffold.name, **known, "model": asked_of_model(scaffold)}
    return {
        "agent.json": json.dumps(about, indent=2, ensure_ascii=False) + "\n",
        **prompts,
        **_common(scaffold),
    }


def _possible(scaffold: Scaffold) -> None:
    """Raises BadInput (`cannot-export`) for an agent whose way of acting the turns do not have."""
    action = scaffold.agent.action
    if not action.startswith(ACTIONS):
        raise BadInput(
            f"{scaffold.name} acts by {action!r}, which an exported program cannot",
            fix=(
                "export it as a text, with --to skill, or an agent of action bash, json or"
                " tool:NAME"
            ),
            code="cannot-export",
        )


def _common(scaffold: Scaffold) -> dict[str, str]:
    """The turns, and the tools with what lies beside them."""
    tools = {path: text for path, text in scaffold.files.items() if path.startswith("tools/")}
    return {TURNS: standalone_source("recreate.plugins.export.turns"), **tools}


def _program(name: str) -> str:
    """A program of this folder, its imports of ours turned into one of the turns beside it."""
    text = source_of(f"recreate.plugins.export.{name}")
    names = re.findall(r"^from recreate\.\S+ import (.*)\n", text, re.MULTILINE)
    text, count = re.subn(r"^(?:from recreate\.\S+ import .*\n)+", "", text, flags=re.MULTILINE)
    assert count == 1, name
    found = ", ".join(sorted({part.strip() for line in names for part in line.split(",")}))
    last = list(re.finditer(r"^(?:from|import) .*\n(?:    .*\n|\)\n)*", text, re.MULTILINE))[
        -1
    ].end()
    return (
        f"{text[:last]}\nfrom {TURNS.removesuffix('.py')} import"
        f" {found}\n{text[last:].lstrip(chr(10)) and text[last:]}"
    )


def _readme(
    scaffold: Scaffold, tool: str, install: str, command: str, words: str, differs: list[str]
) -> str:
    rows = "".join(f"- {text}\n" for text in differs)
    about = f"{scaffold.agent.description}\n\n" if scaffold.agent.description else ""
    return (
        f"# {scaffold.name}, for {tool}\n\n{about}In this folder:\n\n    {install}\n   "
        f" {command}\n\n{words}\n\nIn what it differs from the agent that it was made"
        f" from:\n\n{rows}\nMade by recreate {version()} from the scaffold {scaffold.digest};"
        " recreate is not needed to run it.\n"
    )


# ------------------------------------------------------------------------------------------------
# YAML


def yaml_text(value: JsonMap, indent: str = "") -> str:
    """A mapping, whose keys are names of ours, as YAML that people edit: texts of several lines as
    blocks, the rest as JSON."""
    lines = []
    for key, part in value.items():
        if isinstance(part, Mapping) and part:
            lines.append(f"{indent}{key}:\n{yaml_text(part, indent + '  ')}")
        elif isinstance(part, str) and "\n" in part and _plain(part):
            kept = (
                ""
                if part.endswith("\n") and not part.endswith("\n\n")
                else "+"
                if part.endswith("\n")
                else "-"
            )
            rows = part.removesuffix("\n").split("\n")
            # a block's indentation is said, for its first line may begin with a space
            block = "".join(f"{indent}  {row}\n" if row else "\n" for row in rows)
            lines.append(f"{indent}{key}: |2{kept}\n{block}")
        else:
            lines.append(f"{indent}{key}: {_quoted(part)}\n")
    return "".join(lines)


def _plain(text: str) -> bool:
    """Whether a block of YAML holds it as it is: text on each of its lines, and no control
    character."""
    rows = text.split("\n")
    return bool(text.strip()) and all(
        row.replace("\t", " ").isprintable() and (not row or row.strip()) for row in rows
    )


def _quoted(value: Any) -> str:
    """JSON that is YAML as well: there a character beyond 16 bits is one escape, and DEL is one
    too."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda m: m[0] if m[0].isprintable() else f"\\U{ord(m[0]):08x}", text)

"""A scripted optimizer that acts by rule: a generator yields the next action and is sent what came
of it.

It is made anew from the transcript at every call, so it has no memory of its own: a resumed build
finds it the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply, ToolCall
from recreate.models.pricing import FREE
from recreate.models.scripted import Scripted

Action = tuple[str, dict[str, Any]] | str
"""A tool with its arguments, or the whole reply as text."""
Acts = Generator[Action, str, None]
Play = Callable[[str], Acts]
"""Called with the first message: what is studied or distilled."""


class Investigator:
    """A model: `rows` answer for the agent, `study` and `distil` for the optimizer.

    With `aware`, the study is told the names of its tools as well: study(first, tools).
    """

    price: Price | None = FREE

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        study: Callable[..., Acts],
        distil: Play | None = None,
        *,
        native: bool = False,
        aware: bool = False,
        before: Callable[[Call], None] = lambda call: None,
    ) -> None:
        self.name = "scripted:investigator"
        self.agent = Scripted.of(rows)
        self.study, self.distil, self.native_tools, self.before = study, distil, native, before
        self.aware = aware
        self.prompts: list[list[Message]] = []
        self.params: list[dict[str, Any]] = []

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if call.role == "agent":
            return self.agent.reply(messages, call, **params)
        self.before(call)
        first = messages[1]["content"]
        if len(messages) == 2:
            self.prompts.append(list(messages))
            self.params.append(params)
        if "Make the update." not in first:
            acts = self.study(first, offered(params)) if self.aware else self.study(first)
        else:
            assert self.distil is not None, "nobody was to distil"
            acts = self.distil(first)
        action = next(acts)
        for message in messages[2:]:
            if message["role"] != "assistant":
                action = acts.send(message["content"])
        tokens = {"tokens_in": sum(len(m["content"]) for m in messages) // 4, "tokens_out": 20}
        if isinstance(action, str):
            return Reply(text=action, **tokens)
        tool, arguments = action
        if self.native_tools:
            made = ToolCall(id=f"call-{len(messages)}", name=tool, arguments=json.dumps(arguments))
            return Reply(text="", tool_calls=(made,), finish="tool_calls", **tokens)
        return Reply(
            text=json.dumps({"thought": "by rule", "tool": tool, "arguments": arguments}), **tokens
        )

    def close(self) -> None:
        pass


def offered(params: Mapping[str, Any]) -> list[str]:
    """The names of the tools that a call offers."""
    if "tools" in params:
        return [tool["function"]["name"] for tool in params["tools"]]
    return list(params["json_schema"]["properties"]["tool"]["enum"])


# ---------------------------------------------------------------------------------------- one
# policy for everything

RULE = re.compile(r"\b(?:must|required|expected|instead)\b", re.IGNORECASE)
"""What a sentence says that is about more than the case at hand."""
ID = re.compile(r"experience ([0-9a-f]{16})")
FILES = "find . -path ./.recreate -prune -o -type f"
LOOKS = (
    "ls -la",
    "env",
    (
        f'{FILES} -size -20k -print | sort | while read -r f; do grep -qI . "$f" && echo "== $f" &&'
        ' cat "$f"; done'
    ),
    (
        f'{FILES} -perm -u+x -print | sort | while read -r f; do echo "== $f --help"; "$f" --help'
        " </dev/null; done"
    ),
    f'{FILES} -perm -u+x -print | sort | while read -r f; do echo "== $f"; "$f" </dev/null; done',
)
"""What anybody would type who came to a box for the first time; the last one starts what can be
started."""


def looks(first: str, tools: Sequence[str]) -> Acts:  # noqa: C901
    """Look with every tool there is, and keep each sentence that states a rule, citing where it
    stands.

    It knows nothing of where a rule may hide, nor what one may be about.
    """
    own = _found(ID, first)
    last = int(_found(re.compile(r"after (\d+) steps"), first)) - 1
    found: dict[str, tuple[str, int]] = {}

    def note(text: str, experience: str, step: int) -> None:
        for rule in rules(text):
            found.setdefault(rule, (experience, step))

    def read(experience: str, at: int, last: int) -> Acts:
        while at <= last:
            said = yield "steps", {"first": at, "last": last, "experience": experience}
            for step, whole in parts(said):
                note(whole, experience, step)
                for part in range(1, 9) if "[...]" in whole else ():
                    whole = yield "steps", {"first": step, "part": part, "experience": experience}
                    note(whole, experience, step)
                    if not re.match(rf"\[part {part} of (?!{part}\])", whole):
                        break
            left = re.search(r"\[steps (\d+) to \d+ were left out", said)
            at = int(left[1]) if left else last + 1

    if "index" in tools:
        yield "index", {}
    if "steps" in tools:
        yield from read(own, 0, last)
    if "contrast" in tools:
        said = yield "contrast", {}
        if other := re.search(r"with experience ([0-9a-f]{16})", said):
            said = yield "index", {"experience": other[1]}
            yield from read(other[1], 0, int(_found(re.compile(r"after (\d+) steps"), said)) - 1)
    if "search" in tools:
        seen = {own}
        for query in (
            ("must", "words"),
            ("required", "words"),
            ("instead", "words"),
            ("what every answer needs", ""),
        ):
            said = yield (
                "search",
                {"query": query[0], "k": 12, **({"by": query[1]} if query[1] else {})},
            )
            for experience, step in re.findall(
                r"^experience ([0-9a-f]{16}) step (\d+) ", said, re.MULTILINE
            ):
                if experience not in seen:
                    seen.add(experience)
                    yield from read(experience, int(step), int(step))
    for tool in ("evidence", "submission"):
        if tool in tools:
            said = yield tool, {}
            note(said, own, last)
    for where in ("start", "end") if "run" in tools else ():
        for command in LOOKS:
            said = yield "run", {"command": command, "where": where}
            note(said, own, last)
    for rule, (experience, step) in found.items():
        cited = {"steps": [step], "experience": experience} if "steps" in tools else {}
        yield (
            "lesson",
            {
                "title": "What holds here",
                "text": rule,
                "reason": "It is said of every task.",
                **cited,
            },
        )
    yield "finish", {"summary": f"{len(found)} rules.", "cause": "knowledge" if found else "none"}


def takes_all(first: str) -> Acts:
    """Distil without deciding: what is open at the second `finish` is taken as it is."""
    yield "finish", {"summary": "All of it."}
    yield "finish", {"summary": "All of it."}


def rules(text: str) -> Iterator[str]:
    """The sentences of a text that state a rule."""
    for line in text.splitlines():
        for sentence in re.split(r"(?<=[.!?])\s+", line):
            if RULE.search(sentence):
                yield sentence.strip()


def parts(said: str) -> list[tuple[int, str]]:
    """A window of steps as (number, text)."""
    found = re.split(r"^--- step (\d+)", said, flags=re.MULTILINE)
    return [(int(number), whole) for number, whole in zip(found[1::2], found[2::2], strict=True)]


def _found(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    assert found, f"{pattern.pattern} is not in {text[:200]!r}"
    return found[1]

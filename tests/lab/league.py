"""The league: optimizers on generated worlds whose hidden convention has to be inferred, never
copied.

A world has a rule over words (`lofi72` -> `27IFOL`), made of one transformation, of two, or of one
that holds only under a condition. No text tells it. An agent that knows nothing writes the word as
it is; what it meets on the way is a list of earlier orders and what was accepted for them. The
worker does what the last `Rule:` of its prompt says, or runs the first command that its prompt
tells of, and learns nothing by itself. In a trap all train words meet the condition, so that the
shorter rule fits all that can be seen, and harms where the condition does not hold.

The optimizer's model is a reasoner made here, the same for all: it sees four of the orders in its
prompt, takes a short rule that fits them, and one time in four one that fits a single order. So an
optimizer is worth what it shows, asks, tries out and throws away. What a better model would find
does not follow from it.

    python -m tests.lab.league [OPTIMIZER ...] [--worlds 60] [--jobs 2] [--json]
    python -m tests.lab.league --mechanisms [MECHANISM ...]

The second is of mechanisms of agents, memory, tasks and traces: on and off.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import BIN
from recreate.api.ports import Price, Sandbox, SandboxBackend
from recreate.api.types import Call, Grade, Message, Reply, Split, Task, Trace
from recreate.builder.loop import build
from recreate.models.pricing import FREE
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import Parts, open_session
from tests.investigator import Acts, Investigator
from tests.lab import mechanisms
from tests.lab.mechanisms import MECHANISMS

OPTIMIZERS = (
    "reflect",
    "best-of-n",
    "opro",
    "ace",
    "adas",
    "gepa",
    "atlas",
    "yunjue",
    "sage",
    "recreate",
)
SIZES: dict[Split, int] = {"train": 6, "validation": 20, "test": 1}
SEEN = 4
"""Orders of a prompt that the reasoner heeds."""
FRESH = 400
"""Words on which what a build made is scored, none of them a task's."""

PROGRAMS = {
    "put it in capitals": "w.upper()",
    "write it backwards": "w[::-1]",
    "sort its characters": "''.join(sorted(w))",
    "say its last character twice": "w + w[-1]",
    "leave its first character out": "w[1:]",
    "swap its first and last character": "w[-1] + w[1:-1] + w[0]",
    "write a star for each vowel": "re.sub('[aeiou]', '*', w)",
    "put its digits first": r"re.sub(r'(\D+)(\d+)', r'\2\1', w)",
    "end with how long it is": "f'{w}{len(w)}'",
    "put a hyphen before its digits": r"re.sub(r'(\d+)', r'-\1', w, count=1)",
    "begin with a plus sign": "'+' + w",
    "end with an equals sign": "w + '='",
    "it begins with a vowel": "w[0] in 'aeiou'",
    "its last digit is even": "int(w[-1]) % 2 == 0",
    "it is longer than six characters": "len(w) > 6",
    "it holds the letter a": "'a' in w",
}
"""What can be said of a word `w`, as Python: twelve changes, and four conditions."""
_MADE = {said: eval(f"lambda w: {code}", {"re": re}) for said, code in PROGRAMS.items()}
CHANGES: dict[str, Callable[[str], str]] = dict(list(_MADE.items())[:12])
CONDITIONS: dict[str, Callable[[str], bool]] = dict(list(_MADE.items())[12:])


@dataclass(frozen=True)
class Rule:
    """Changes, one after the other, made where the condition holds ('': everywhere)."""

    changes: tuple[str, ...] = ()
    condition: str = ""

    @property
    def text(self) -> str:
        said = ", then ".join(self.changes)
        return f"Rule: {f'where {self.condition}, ' if self.condition else ''}{said}."

    @property
    def program(self) -> str:
        """A tool that does it. What it says of itself does not tell the rule."""
        lines = [
            '"""Writes an order as it has to be: `write_order WORD` prints it."""',
            "import re, sys",
            "",
        ]
        lines += ["w = sys.argv[1]", "if w == '--help':", "    sys.exit(print(__doc__))"]
        lines += [
            f"if {PROGRAMS.get(self.condition, 'True')}:",
            *(f"    w = {PROGRAMS[c]}" for c in self.changes),
        ]
        return "\n".join([*lines, "print(w)", f"# {self.text}", ""])

    def __call__(self, word: str) -> str:
        if not self.condition or CONDITIONS[self.condition](word):
            for change in self.changes:
                word = CHANGES[change](word)
        return word


@cache
def rules() -> dict[str, Rule]:
    """Every rule that can be said, the shortest first, by its text."""
    changes = [(c,) for c in CHANGES] + [
        pair for pair in product(CHANGES, repeat=2) if pair[0] != pair[1]
    ]
    made = [Rule(c, condition) for c in changes for condition in ("", *CONDITIONS)]
    return {
        rule.text: rule for rule in sorted(made, key=lambda r: len(r.changes) + bool(r.condition))
    }


@dataclass(frozen=True)
class World:
    """A number, which its words are drawn from, and what holds in it. kind: one, two, where or
    trap."""

    number: int
    kind: str
    rule: Rule

    def words(self, purpose: str, count: int) -> list[str]:
        """So many words, the same each time. In a trap those of train meet the condition; where a
        condition is, half of all others do."""
        draw = random.Random(f"{self.number}:{purpose}")
        wanted = CONDITIONS.get(self.rule.condition)
        found: list[str] = []
        while len(found) < count:
            vowels, others = "aeiou", "bdfgklmnprst"
            syllables = "".join(
                draw.choice(others) + draw.choice(vowels) for _ in range(draw.choice((2, 2, 3)))
            )
            word = (
                (draw.choice(vowels) if draw.random() < 0.4 else "")
                + syllables
                + str(draw.randint(10, 99))
            )
            half = (
                True
                if self.kind == "trap" and purpose.startswith("train")
                else bool(len(found) % 2)
            )
            if word not in found and (wanted is None or wanted(word) == half):
                found.append(word)
        return found

    def score(self, rule: Rule) -> float:
        """The share of fresh words for which this rule says what holds."""
        fresh = self.words("fresh", FRESH)
        return fmean(rule(word) == self.rule(word) for word in fresh)


def worlds(count: int) -> list[World]:
    """The first so many worlds: the four kinds in turn, no rule twice."""
    draw = random.Random(20261123)
    made: list[World] = []
    while len(made) < count:
        kind = ("one", "two", "where", "trap")[len(made) % 4]
        changes = tuple(draw.sample(list(CHANGES), 2 if kind == "two" else 1))
        rule = Rule(changes, draw.choice(list(CONDITIONS)) if kind in ("where", "trap") else "")
        world = World(len(made), kind, rule)
        used = (
            [w.rule for w in made[-4 * len(CHANGES) :]] if kind == "one" else [w.rule for w in made]
        )
        new = rule not in used or (kind == "one" and len(made) >= 4 * len(CHANGES))
        if new and all(
            rule(word) != word for word in world.words("train", 6) if not rule.condition
        ):
            made.append(world)
    return made


class Domain:
    """Write the order to answer.txt. What was accepted for earlier orders lies in the sandbox."""

    name = "league"

    def __init__(self, world: World) -> None:
        self.world = world

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            Task(
                id=f"league:{s}:{n}",
                domain="league",
                prompt=(
                    f"Write order {word} to the file answer.txt, as it has to be. `history` holds"
                    " earlier orders."
                ),
                split=s,
                group=f"{s}-{n}",
                facts={"word": word},
            )
            for s, size in SIZES.items()
            if split in (None, s)
            for n, word in enumerate(self.world.words(s, size))
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        sandbox = backend.open()
        earlier = self.world.words(f"{task.split}:earlier:{task.id}", 3)
        lines = [f"order {word} was accepted as {self.world.rule(word)}\n" for word in earlier]
        sandbox.write("history", "".join(lines).encode())
        return sandbox

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        try:
            return sandbox.read("answer.txt").decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        passed = trace.answer == self.world.rule(task.facts["word"])
        return Grade(
            score=float(passed), passed=passed, evidence="accepted" if passed else "not accepted"
        )


SEED = Scaffold(
    name="league",
    files={
        "agent.toml": (
            'description = "An agent that knows nothing of its domain."\n\n[limits]\nsteps = 4\n'
        ),
        "system.md": (
            "You work in a Linux shell.\n{% for lesson in lessons %}\n- {{ lesson.body }}\n{%"
            " endfor %}\n"
        ),
        "workflow.md": "{{ task.prompt }}\n",
    },
)

ORDER = re.compile(r"order (\w+) was accepted as (\S+?)(?=\\n|\s|$)")
COMMAND = re.compile(r"- `(\w+)`: ")
SAID = re.compile(r"Rule: [^.\n]+\.")


def followed(*texts: str) -> Rule:
    """The rule that a worker with such a prompt goes by: the last one told; none: the word as it
    is."""
    said = [text for whole in texts for text in SAID.findall(whole) if text in rules()]
    return rules()[said[-1]] if said else Rule()


def work(messages: Sequence[Message]) -> Reply:
    """The agent's model."""
    word = re.search(r"Write order (\w+) to", messages[1]["content"])
    assert word, messages[1]["content"]
    told = [m["content"] for m in messages[:2]]
    rule, tool = followed(*told), COMMAND.search("\n".join(told))
    write = (
        f"{BIN}/{tool[1]} {word[1]}"
        if tool and rule == Rule()
        else f"printf '%s\\n' '{rule(word[1])}'"
    )
    commands = ["cat history", f"{write} > answer.txt", "submit"]
    turn = min((len(messages) - 2) // 2, 2)
    return Reply(text=f"```bash\n{commands[turn]}\n```", tokens_in=100, tokens_out=20)


def infer(text: str, seed: object, avoid: Sequence[str] = ()) -> str:
    """What the reasoner makes of a text: a rule in words; '' when it sees no order in it."""
    draw = random.Random(f"{seed}")
    orders = list(dict.fromkeys(ORDER.findall(text)))
    if not orders:
        return ""
    heeded = draw.sample(orders, min(SEEN, len(orders)))
    if draw.random() < 0.25:
        heeded = heeded[:1]  # hasty: one order is all it looked at
    fits = [
        said
        for said, rule in rules().items()
        if said not in avoid and all(rule(a) == b for a, b in heeded)
    ]
    if not fits:
        fits = [
            said
            for said, rule in rules().items()
            if said not in avoid and any(rule(a) == b for a, b in heeded)
        ]
    rank = 0
    while fits and rank < len(fits) - 1 and draw.random() < 0.3:
        rank += 1
    return fits[rank] if fits else ""


def answer(messages: Sequence[Message], params: Mapping[str, Any], seed: object) -> str:
    """What the reasoner answers an optimizer that asks for a JSON object, or (gepa) for a text."""
    text = "\n".join(str(m["content"]) for m in messages)
    asked = set((params.get("json_schema") or {}).get("properties", {}))
    if "attempt" not in asked and not asked:
        now = re.search(r"```\n?(.*?)```", text, re.DOTALL)
        old = now[1] if now else ""
        rule = infer(text, seed, SAID.findall(old))
        return f"```\n{SAID.sub('', old).rstrip()}\n{rule}\n```"
    rule = infer(text, seed, SAID.findall(text))
    failed = re.search(r"experience ([0-9a-f]{16}): FAILED", text)
    cited = {"experience": failed[1] if failed else "", "step": 0}
    if "edits" in asked:
        there = re.search(r"=== (memory/\S+)\n(?:(?!===).*\n)*?(\d+): Rule:", text)
        place = (
            {"file": there[1], "line": int(there[2])}
            if there
            else {"file": "new lesson", "line": 0}
        )
        edit = {
            **place,
            "title": "What is accepted",
            "text": rule,
            "reason": "It fits the orders.",
            **cited,
        }
        return json.dumps(
            {"why": "a convention", "cause": "knowledge", "edits": [edit] if rule else []}
        )
    if "update" in asked:
        ideas = len(re.findall(r"Rule: ", text))
        return json.dumps(
            {
                "update": [],
                "rejected": [{"idea": n, "why": "one is enough"} for n in range(2, ideas + 1)],
            }
        )
    most = most_said(SAID.findall(text))
    replies: dict[str, Any] = {
        "advice": {"why": "a convention", "advice": rule, **cited},
        "instruction": {"instruction": rule},
        "insight": {"tags": [], "insight": rule},
        "add": {"add": SAID.findall(text)[-1:]},
        "lacked": {
            "lacked": "a way to write it",
            "name": "write_order",
            "code": rule and rules()[rule].program,
        },
        "groups": {"groups": [re.findall(r"^- (\w+): ", text, re.MULTILINE)]},
        "merged": {"merged": "write_order", "code": most and rules()[most].program},
        "skill": {
            "skill": "how to write it",
            "form": "text",
            "body": "" if fitting(text) else rule,
        },
        "guidance": {"guidance": rule},
        "pamphlet": {"pamphlet": most},
        "thought": {
            "thought": rule,
            "name": "a rule",
            "files": [{"path": "memory/rule.md", "text": rule + "\n"}],
        },
    }
    return json.dumps(next(reply for key, reply in replies.items() if key in asked))


def fitting(text: str) -> bool:
    """Whether the last rule that a text tells fits all the orders in it: there is nothing to add to
    it."""
    rule = followed(text)
    return rule != Rule() and all(rule(word) == accepted for word, accepted in ORDER.findall(text))


def most_said(found: Sequence[str]) -> str:
    """The rule that most of them are, the first of equals; '' when there are none."""
    return max(found, key=list(found).count, default="")


def study(first: str) -> Acts:
    """The reasoner under `recreate`: it reads the attempt's steps and writes the rule that fits
    them."""
    said = yield "steps", {"first": 0, "last": 1}
    rule = infer(said, first, SAID.findall(first))
    if rule:
        about = {"reason": "It fits the orders.", "steps": [0]}
        yield "write", {"path": "memory/rule.md", "text": rule + "\n", **about}
        yield "finish", {"summary": rule, "cause": "knowledge"}
    yield "finish", {"summary": "Nothing new.", "cause": "none"}  # also where the edit was refused


def distil(first: str) -> Acts:
    """The reasoner over the studies' ideas: the rule that most of them found is taken, the others
    are turned down."""
    found: dict[str, str] = {}
    for name in map(str, range(1, SIZES["train"] + 1)):
        said = yield "idea", {"name": name}
        if told := SAID.findall(said):
            found[name] = told[-1]
    most = most_said(list(found.values()))
    best = next((name for name, rule in found.items() if rule == most), "")
    for name in found:
        if name == best:
            yield "take", {"name": name}
        else:
            yield (
                "reject",
                {"name": name, "why": "one rule is enough, and most found another or the same"},
            )
    while True:
        yield "finish", {"summary": most or "Nothing."}


class Reasoner:
    """The model of both roles."""

    name = "scripted:reasoner"
    price: Price | None = FREE

    def __init__(self) -> None:
        self.calls = 0
        self.studies = Investigator([], study, distil)

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if call.role == "agent":
            return work(messages)
        self.calls += 1
        if "tool" in (params.get("json_schema") or {}).get("properties", {}):
            return self.studies.reply(messages, call, **params)
        return Reply(text=answer(messages, params, call.id), tokens_in=1000, tokens_out=100)

    def close(self) -> None:
        pass


def play(optimizer: str, world: World) -> dict[str, Any]:
    """One build: what it made of the world, and what that took."""
    with tempfile.TemporaryDirectory(prefix="league-") as folder:
        workspace = Path(folder)
        model = Reasoner()
        flags: dict[str, Any] = {
            "domain": "league",
            "optimizer": optimizer,
            "rounds": 2,
            "sandbox": "none",
        }
        flags |= {
            "train": SIZES["train"],
            "batch": SIZES["train"],
            "validation": SIZES["validation"],
            "jobs": 1,
        }
        flags |= {"memory.policy": "none", "memory.embedder": "hashed", "models.retries": 0}
        parts = Parts(domain=Domain(world), model=model, optimizer_model=model)
        session = open_session(
            settings.load(workspace, flags), workspace, workspace / "runs" / "a", parts=parts
        )
        try:
            made = build(session, SEED)
        finally:
            session.close()
        attempts = len(list(Run(workspace / "runs" / "a").records("experience")))
        texts = [lesson.body for lesson in made.scaffold.lessons] + list(
            made.scaffold.files.values()
        )
        after = followed(*[text for text in texts if "Rule:" in text][:1])
        row = {
            "optimizer": optimizer,
            "world": world.number,
            "kind": world.kind,
            "before": world.score(Rule()),
        }
        kept = sum(revision.kept for revision in made.revisions)
        return row | {
            "after": world.score(after),
            "kept": kept,
            "calls": model.calls,
            "attempts": attempts,
        }


def rounds(optimizers: Sequence[str], count: int, jobs: int) -> Iterator[dict[str, Any]]:
    with ProcessPoolExecutor(jobs) as pool:
        pairs = [(name, world) for world in worlds(count) for name in optimizers]
        yield from pool.map(play, *zip(*pairs, strict=True))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """An optimizer a line: mean gain on fresh words, its 95 % interval over worlds, by kind,
    solved, harmed, cost."""
    kinds = ("one", "two", "where", "trap")
    lines = [
        "| "
        + " | ".join(["optimizer", "gain [95 %]", *kinds, "solved", "harmed", "calls", "attempts"])
        + " |"
    ]
    lines.append("|---" * (len(kinds) + 6) + "|")
    for name in dict.fromkeys(row["optimizer"] for row in rows):
        mine = [row for row in rows if row["optimizer"] == name]
        gains = [row["after"] - row["before"] for row in mine]
        half = 1.96 * stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        mean = fmean(gains)
        by = [[r["after"] - r["before"] for r in mine if r["kind"] == kind] for kind in kinds]
        cells = [f"{fmean(each):+.2f}" if each else "" for each in by]
        solved = sum(row["after"] > 0.99 for row in mine)
        harmed = sum(row["after"] < row["before"] for row in mine)
        took = f"{fmean(r['calls'] for r in mine):.0f} | {fmean(r['attempts'] for r in mine):.0f}"
        spread = f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"
        lines.append(
            f"| `{name}` | {spread} | {' | '.join(cells)} | {solved} of {len(mine)} | {harmed} |"
            f" {took} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.league", description="Example: reflect opro --worlds 12"
    )
    parser.add_argument("names", nargs="*", help=f"default: {' '.join(OPTIMIZERS)}")
    parser.add_argument(
        "--mechanisms", action="store_true", help=f"these in their place: {', '.join(MECHANISMS)}"
    )
    parser.add_argument("--worlds", type=int, help="default: 60, of --mechanisms 20 of each kind")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--json", action="store_true", help="a line for each build, or world, as well"
    )
    given = parser.parse_args()
    known, play_all, show = (
        (MECHANISMS, mechanisms.rounds, mechanisms.table)
        if given.mechanisms
        else (OPTIMIZERS, rounds, table)
    )
    if strangers := sorted({*given.names} - {*known}):
        parser.error(f"{', '.join(strangers)}: one of {', '.join(known)}")
    rows = []
    for row in play_all(
        given.names or known, given.worlds or (20 if given.mechanisms else 60), given.jobs
    ):
        rows.append(row)
        if given.json:
            print(json.dumps(row), flush=True)
        else:
            print(f"\r{len(rows)}", end="", file=sys.stderr)
    print(show(rows), file=sys.stderr if given.json else sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Mechanisms of published systems, each switched on and off in generated worlds: what it gains,
costs and loses.

    python -m tests.lab.league --mechanisms [MECHANISM ...] [--worlds 20] [--jobs 2] [--json]

A row is a mechanism in one kind of world: so many worlds of it (numbered, the same each time), the
mean without and with the mechanism of a share and of what it took, and the paired difference with
its 90 % interval (Student's t). Every mechanism has a kind of world that needs it, at several
difficulties where that makes sense, and one in which it cannot help or does harm. On and off are
settings of the product: agent.toml, flags of `bench`, commands. The model is a small program, the
same for both, that goes by what it is shown. So a row says that the mechanism does what it claims
where its premise holds, and what it costs; never how often the premise holds with a real model.

Sandboxes are dictionaries (`Scene`), but where a program has to run: `tasks make`, and the
databases of `sql`.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from recreate.agents import scaffold as scaffolds
from recreate.agents.lesson import lesson_id
from recreate.agents.scaffold import Scaffold
from recreate.api.ports import Price, Sandbox, SandboxBackend
from recreate.api.types import Call, Grade, Lesson, Message, Output, Reply, Split, Task, Trace
from recreate.builder.sdk import bench
from recreate.cli import run as cli
from recreate.lessons.store import LessonStore
from recreate.models.chat import content
from recreate.models.pricing import FREE
from recreate.runs.gate import student_quantile
from recreate.runs.reader import Run
from recreate.runs.results import BenchResult

# ---------------------------------------------------------------------------------------- worlds,
# and who acts in them

Does = Callable[["Scene", list[str]], tuple[str, int]]
"""What a command does in a scene: (what it prints, its status)."""
Policy = Callable[[list[str], Call, random.Random], str]
"""The model: the texts of all messages, the call, its own draws -> the command."""


class Scene:
    """A sandbox of a few words that can be said; tools of the agent are words too, by their
    names."""

    backend = "scene"

    def __init__(self, does: Does) -> None:
        self.does = does
        self.state: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}

    def run(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: bytes | None = None
    ) -> Output:
        line = (
            command.splitlines()[-1] if isinstance(command, str) else command[0].rpartition("/")[2]
        )
        said = [self.does(self, each.split()) for each in line.split("; ")]
        return Output(text="\n".join(text for text, _ in said), status=said[-1][1])

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.files[path] = data

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def close(self) -> None:
        pass

    def copy(self) -> Scene:
        other = Scene(self.does)
        other.state, other.files = copy.deepcopy(self.state), dict(self.files)
        return other

    def answer(self, text: str) -> None:
        self.files["answer.txt"] = text.encode()


@dataclass
class Scenery:
    """A backend whose sandboxes are scenes. tests.lab.mechanisms:Scenery"""

    does: Does
    name: str = "none"

    def probe(self) -> str:
        return ""

    def open(self, **how: Any) -> Scene:
        return Scene(self.does)


@dataclass
class Scenes:
    """Tasks that begin in scenes; what hands in `right` passes. tests.lab.mechanisms:Scenes"""

    name: str
    number: int
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of each task: what is hidden in its sandbox."""
    known: list[Task] = field(default_factory=list)

    def add(self, split: Split, prompt: str, right: str, **state: Any) -> None:
        id = f"{self.name}:{split}:{len(self.known)}"
        facts = {"right": right, "world": self.number}
        self.known.append(
            Task(id=id, domain=self.name, prompt=prompt, split=split, group=f"g-{id}", facts=facts)
        )
        self.states[id] = state

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [task for task in self.known if split in (None, task.split)]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        sandbox = backend.open()
        assert isinstance(sandbox, Scene)
        sandbox.state = copy.deepcopy(self.states[task.id])
        return sandbox

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        try:
            return sandbox.read("answer.txt").decode().strip()
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        right = trace.answer == task.facts["right"]
        return Grade(score=float(right), passed=right)


@dataclass
class Worker:
    """The agent's model. tests.lab.mechanisms:Worker"""

    policy: Policy
    fence: bool = True
    name: str = "scripted:worker"
    price: Price | None = FREE

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        said = [content(m) for m in messages]
        command = self.policy(
            said, call, random.Random(f"{call.task}/{call.repeat}/{params.get('seed')}")
        )
        text = f"```bash\n{command}\n```" if self.fence else command
        return Reply(text=text, tokens_in=sum(map(len, said)) // 4, tokens_out=len(text) // 4 + 1)

    def close(self) -> None:
        pass


class Found(NamedTuple):
    """What came of a world: a share (solved, as a rule), and what it took (tokens a task, as a
    rule)."""

    share: float
    took: float


def agent(toml: str, name: str = "plain", tools: Collection[str] = ()) -> Scaffold:
    texts = {
        "agent.toml": toml,
        "system.md": "You act by commands.\n",
        "workflow.md": "{{ task.prompt }}\n",
    }
    return Scaffold(
        name=name, files={**texts, **{f"tools/{tool}.py": '"""A tool."""\n' for tool in tools}}
    )


@dataclass
class World:
    """One world: its workspace, what its commands do, and who acts in it. settings: of every
    bench."""

    folder: Path
    domain: Any
    does: Does
    policy: Policy
    settings: Mapping[str, Any] = field(default_factory=dict)

    def bench(self, who: Scaffold | Path, split: Split, out: str, **settings: Any) -> BenchResult:
        given: dict[str, Any] = {
            "model": Worker(self.policy),
            "sandbox": Scenery(self.does),
            "memory__embedder": "hashed",
            "jobs": 1,
        }
        given |= {
            "out": str(self.folder / "runs" / out),
            "workspace": self.folder,
            **self.settings,
            **settings,
        }
        (cell,) = bench(who, self.domain, split=split, **given)
        return cell

    def found(
        self, who: Scaffold | Path, out: str, split: Split = "validation", **settings: Any
    ) -> Found:
        return found(self.bench(who, split, out, **settings))

    def off_and_on(self, off: str, on: str, tools: Collection[str] = ()) -> tuple[Found, Found]:
        """The same agent with one agent.toml and with another."""
        return self.found(agent(off, "off", tools), "off"), self.found(agent(on, "on", tools), "on")


def found(cell: BenchResult) -> Found:
    assert cell.mean is not None
    assert not cell.set_aside, cell.endings
    return Found(cell.mean, cell.tokens / (cell.n * cell.repeats))


def typed(folder: Path, *words: str) -> dict[str, Any]:
    """What a command prints as JSON, typed in a workspace."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli([*words, "--json"])
    assert code == 0, (words, out.getvalue(), err.getvalue())
    lines = out.getvalue().strip().splitlines()
    return json.loads(lines[-1]) if lines else {}


def names(draw: random.Random, count: int) -> list[str]:
    """Made-up names, no two alike."""
    made = dict[str, None]()
    while len(made) < count:
        syllables = (
            draw.choice("bdfgklmnprst") + draw.choice("aeiou") + draw.choice("lmnrs")
            for _ in range(3)
        )
        made["".join(syllables).capitalize()] = None
    return list(made)


# ------------------------------------------------------------------------------------------------
# SLEA-RL: each step

KEYS = ("oak", "ash", "elm", "fir", "yew", "bay")


def locks(folder: Path, seed: int, *, locks: int, named: bool = False) -> tuple[Found, Found]:
    """A chest with locks, by makers, 24 of them, whose keys only lessons tell. named: the task says
    whose they are."""
    draw, world = random.Random(f"locks/{seed}"), Scenes("locks", seed)
    keys = {maker: draw.choice(KEYS) for maker in names(draw, 24)}
    for n in range(8):
        wanted = draw.sample(list(keys), locks)
        ask = (
            f"Open chest {n}: `look` shows its next lock, `turn KEY` turns a key:"
            f" {', '.join(KEYS)}."
        )
        ask += f" Its locks are by {' and '.join(wanted)}." if named else ""
        world.add("validation", ask, "open", locks=wanted)
    told = [(f"A lock by {maker}", f"Turn the key {key} in it.") for maker, key in keys.items()]
    lessons = [Lesson(id=lesson_id(*each), title=each[0], body=each[1]) for each in told]
    active = {x.id: x.model_copy(update={"status": "active", "scope": "domain"}) for x in lessons}
    LessonStore(folder / "memory", "locks").write({}, active)

    def does(scene: Scene, words: list[str]) -> tuple[str, int]:
        left = scene.state["locks"]
        if words[0] == "look":
            return (f"The next lock is by {left[0]}." if left else "It is open."), 0
        if left and keys[left[0]] != words[1]:
            scene.state["locks"] = ["nobody"]
            return "It jams for good.", 0
        left.pop(0)
        if not left:
            scene.answer("open")
        return "It turns.", 0

    def policy(said: list[str], call: Call, draw: random.Random) -> str:
        if seen := re.match(r"The next lock is by (\w+)\.", said[-1]):
            told = re.findall(rf"A lock by {seen[1]}: Turn the key (\w+) in it", "\n".join(said))
            return f"turn {told[-1] if told else draw.choice(KEYS)}"
        return "submit" if re.match(r"It (is open|jams)", said[-1]) else "look"

    shown = "[memory]\ntokens = 240\n"
    made = World(folder, world, does, policy, {"memory": "recreate"})
    return made.off_and_on(shown, shown + 'when = ["start", "error", "tests", "step"]\n')


# --------------------------------------------------------------------------------- More with Less:
# turns, and extension


def turns(
    folder: Path, seed: int, *, doubters: float = 0.0, hurried: bool = False
) -> tuple[Found, Found]:
    """Work that takes some turns; one task in twenty cannot be done. doubters: the share of
    attempts that check what is done until their turns are nearly used up. hurried: who is told of
    few turns hands in unfinished work.
    """
    draw, world = random.Random(f"turns/{seed}"), Scenes("turns", seed)
    splits: dict[Split, int] = {"train": 20, "validation": 20}
    for split, size in splits.items():
        for n in range(size):
            needs = 99 if not hurried and n % 20 == 19 else draw.randint(2, 9 if hurried else 4)
            world.add(
                split,
                f"Do the work of site {n}: `work` does a part, `check` looks.",
                "done",
                left=needs,
            )

    def does(scene: Scene, words: list[str]) -> tuple[str, int]:
        scene.state["left"] -= words[0] == "work"
        if scene.state["left"] > 0:
            return "There is more to do.", 0
        scene.answer("done")
        return "It is done, as far as one can see.", 0

    def policy(said: list[str], call: Call, draw: random.Random) -> str:
        done, few = (
            "It is done" in said[-1],
            "; 1 steps left" in said[-1] or "see what is still missing" in said[-1],
        )
        if few and (done or hurried):
            return "submit"
        doubts = random.Random(f"{seed}/{call.task}").random() < doubters
        return "work" if not done else "check" if doubts else "submit"

    plain = agent("[limits]\nsteps = 16\n")
    made = World(folder, world, does, policy)
    made.bench(plain, "train", "first")
    target = folder / "scaffolds" / "limited"
    scaffolds.save(plain, target)
    typed(folder, "limits", "first", "--write", str(target))
    return made.found(plain, "off"), made.found(target, "on")


# ------------------------------------------------------------------------------ MAXS, AOI: doors
# that close for good


def doors(
    folder: Path,
    seed: int,
    *,
    doors: int,
    on: str,
    far: int = 0,
    steps: int = 8,
    all_right: bool = False,
) -> tuple[Found, Found]:
    """Behind one door there is the letter; any other burns it, and nothing says so. far: so many
    steps lie between a door and the letter. on: what of agent.toml is tried."""
    draw, world = random.Random(f"doors/{seed}/{doors}"), Scenes("doors", seed)
    for n in range(10):
        right = draw.randint(1, doors)
        world.add(
            "validation",
            f"Room {n}: `open 1` to `open {doors}`, then `read` the letter.",
            "letter",
            good=right,
        )

    def does(scene: Scene, words: list[str]) -> tuple[str, int]:
        burnt = scene.state.get("burnt", False)
        match words[0]:
            case "open":
                scene.state["burnt"] = burnt or not (
                    all_right or int(words[1]) == scene.state["good"]
                )
                return "It is open.", 0
            case "ls":
                return ("ashes" if burnt else "letter"), 0
            case "whole":
                return "", int(burnt)
            case "read" if burnt:
                return "There is no letter.", 1
            case "read":
                scene.answer("letter")
        return "You go on.", 0

    def policy(said: list[str], call: Call, draw: random.Random) -> str:
        tried = re.findall(r"open (\d+)", "\n".join(said[2::2]))
        turn, last = len(said) // 2 - 1, said[-1]
        if "You begin by observing" in said[0] and turn < 3:
            return f"open {turn % doors + 1}; ls"
        saw = [door for door, told in zip(tried, said[3::2], strict=False) if "\nletter" in told]
        untried = [str(n) for n in range(1, doors + 1) if str(n) not in tried]
        if "From now on what you do counts" in last or "was taken back" in last or not turn:
            return f"open {(saw or [draw.choice(untried or tried)])[0]}"
        if re.search(r"^```bash\nread", said[-2], re.MULTILINE):
            return "submit"
        walked = sum("\nwalk" in text for text in said[2::2])
        return "walk" if walked < far else "read"

    limits = f"[limits]\nsteps = {steps}\n"
    return World(folder, world, does, policy).off_and_on(limits, limits + on, ("whole",))


LOOKAHEAD = "[lookahead]\ncandidates = 3\nsteps = 2\n"
OBSERVE = "[observe]\nsteps = 3\n"
RESTORE = '[restore]\ncheck = "whole"\n'


def unhooking(folder: Path, seed: int) -> tuple[Found, Found]:
    """Work that goes through a state in which the check fails: unhook, then hook. Half of it needs
    no such state."""
    draw, world = random.Random(f"hooks/{seed}"), Scenes("hooks", seed)
    for n in range(10):
        world.add(
            "validation",
            f"Change part {n}: `unhook`, then `hook`.",
            "hooked",
            hot=draw.random() < 0.5,
        )

    def does(scene: Scene, words: list[str]) -> tuple[str, int]:
        if words[0] == "whole":
            return "", int(scene.state.get("off", False) and not scene.state["hot"])
        if words[0] == "hook" and scene.state.get("off"):
            scene.answer("hooked")
        scene.state["off"] = words[0] == "unhook"
        return "Very well.", 0

    def policy(said: list[str], call: Call, draw: random.Random) -> str:
        did = said[-2] if len(said) > 2 else ""
        if not did or "was taken back" in said[-1]:
            return "unhook"
        return "hook" if "unhook" in did else "submit"

    limits = "[limits]\nsteps = 6\n"
    return World(folder, world, does, policy).off_and_on(limits, limits + RESTORE, ("whole",))


# ------------------------------------------------------------------------------------------------
# a semantic cache

ASKED = "how many {} were {}paid"
WORDINGS = ("Say {}.", "Please say {}.")


def near(folder: Path, seed: int, *, again: int, opposite: int = 0) -> tuple[Found, Found]:
    """Twelve questions, of which `again` were asked before in other words, and `opposite` with a
    `not`."""
    draw, world = random.Random(f"near/{seed}"), Scenes("near", seed)
    words = [name.lower() for name in names(draw, 72)]
    first = [(" ".join(words[6 * n : 6 * n + 6]), "") for n in range(12 - again - opposite)]
    rest = [(each, WORDINGS[1]) for each in first[:again]]
    rest += [((thing, "not "), WORDINGS[0]) for thing, _ in first[:opposite]]
    for asked, wording in [*((each, WORDINGS[0]) for each in first), *rest]:
        said = wording.format(ASKED.format(*asked))
        world.add("train", said, _count(said))

    def does(scene: Scene, words: list[str]) -> tuple[str, int]:
        if words[0] == "write":
            scene.answer(words[1])
        return "The books are open.", 0

    def policy(said: list[str], call: Call, draw: random.Random) -> str:
        return ("look", f"write {_count(said[1])}", "submit")[min(len(said) // 2 - 1, 2)]

    made, plain, results = World(folder, world, does, policy), agent("[limits]\nsteps = 4\n"), []
    for name, settings in (("off", {}), ("on", {"near_cache.near": 0.9})):
        cell = made.bench(plain, "train", name, cache=str(folder / f"replies-{name}"), **settings)
        assert cell.mean is not None
        paid = Run(folder / "runs" / name).spend().total
        results.append(Found(cell.mean, (paid.tokens_in + paid.tokens_out) / cell.n))
    return results[0], results[1]


def _count(question: str) -> str:
    """What the model knows: it reads a question as what it asks, however it is worded."""
    asked = re.search(r"how many ([\w ]+) were (not )?paid", question)
    assert asked, question
    return str(random.Random(repr(asked.groups())).randrange(1000))


# ------------------------------------------------------------------------------------- CLEANER:
# purified trajectories


def slips(
    folder: Path, seed: int, *, rate: float, stuck: float = 0.0, steps: int = 6
) -> tuple[Found, Found]:
    """An expert follows signs, mistypes one in so many and puts it right at once; a learner does
    what the exported conversations show for what it sees. stuck: so many doors have to be pushed
    twice, which nobody can help.
    """
    draw, world = random.Random(f"slips/{seed}"), Scenes("slips", seed)
    splits: dict[Split, int] = {"train": 10, "validation": 10}
    for split, size in splits.items():
        for n in range(size):
            signs = names(draw, 4)
            state = {"signs": signs, "stuck": [draw.random() < stuck for _ in signs]}
            world.add(split, f"Way {n}: `start`, then `go NAME` by each sign.", "there", **state)

    def does(scene: Scene, words: list[str]) -> tuple[str, int]:
        left = scene.state["signs"]
        if words[0] == "go" and words[1:] != left[:1]:
            return f"There is no way to {' '.join(words[1:])}.", 1
        if words[0] == "go" and scene.state["stuck"].pop(0):
            scene.state["stuck"].insert(0, False)
            return "The door is stuck.", 1
        if words[0] == "go":
            left.pop(0)
        if not left:
            scene.answer("there")
            return "You are there.", 0
        return f"A sign says {left[0]}.", 0

    def expert(said: list[str], call: Call, draw: random.Random) -> str:
        return _act(
            "slip" if _situation(said[-1]) == "sign" and draw.random() < rate else "right", said
        )

    def learner(shown: Mapping[str, Counter[str]]) -> Policy:
        def policy(said: list[str], call: Call, draw: random.Random) -> str:
            acts = shown.get(_situation(said[-1]), Counter({"give up": 1}))
            return _act(draw.choices(list(acts), list(acts.values()))[0], said)

        return policy

    plain = agent(f"[limits]\nsteps = {steps}\n")
    World(folder, world, does, expert).bench(
        agent("[limits]\nsteps = 30\n", "expert"), "train", "expert"
    )
    results = []
    for name, words in (("off", []), ("on", ["--purified"])):
        file = folder / f"{name}.jsonl"
        export = (
            "traces",
            "export",
            "--run",
            "runs/expert",
            "--format",
            "openai",
            "--passed",
            "--out",
            str(file),
        )
        typed(folder, *export, *words)
        rows = [json.loads(line)["messages"] for line in file.read_text("utf-8").splitlines()]
        policy = learner(_shown([[str(m["content"]) for m in row] for row in rows]))
        results.append(World(folder, world, does, policy).found(plain, name))
    return results[0], results[1]


def _situation(seen: str) -> str:
    """What a learner tells apart."""
    kinds = {
        "Way": "start",
        "A sign": "sign",
        "There is no way": "lost",
        "The door": "stuck",
        "You are": "there",
    }
    return next(kind for begins, kind in kinds.items() if seen.startswith(begins))


def _act(kind: str, said: Sequence[str]) -> str:
    """A command of a kind: what is right by the last sign, the same mistyped, or giving up."""
    signs = re.findall(r"A sign says (\w+)\.", "\n".join(said))
    if _situation(said[-1]) == "start":
        return "start"
    if kind == "give up" or _situation(said[-1]) == "there":
        return "submit"
    return f"go {signs[-1][1:] if kind == 'slip' else signs[-1]}"


def _shown(conversations: Sequence[Sequence[str]]) -> dict[str, Counter[str]]:
    """What conversations do in each situation, by its kind."""
    shown: dict[str, Counter[str]] = {}
    for said in conversations:
        for n in range(2, len(said), 2):
            right = _act("right", said[:n]) in said[n]
            shown.setdefault(_situation(said[n - 1]), Counter())["right" if right else "slip"] += 1
    return shown


# ------------------------------------------------------------------------------- ReEx-SQL: looking,
# and a tree of paths

SPELLED = ("Germany", "DE", "germany", "Deutschland", "GER", "D")
CLIENTS = "SELECT count(*) FROM clients WHERE country = '{}'"


def spelling(folder: Path, seed: int, *, plain: bool) -> tuple[Found, Found]:
    """Databases that spell a country in one of six ways; plain: as the question does. The agents
    are the shipped `seed-sql-small` and `reex-sql`, in `sql`; who knows nothing better takes the
    question's spelling.
    """
    draw, rows = random.Random(f"spelling/{seed}"), []
    (folder / "db").mkdir()
    for n in range(3):
        spelled = SPELLED[0] if plain else draw.choice(SPELLED)
        with contextlib.closing(sqlite3.connect(folder / "db" / f"d{n}.sqlite")) as made, made:
            made.execute("CREATE TABLE clients(name TEXT, country TEXT)")
            clients = [(f"c{i}", spelled if i % 3 else "Italy") for i in range(8 + n)]
            made.executemany("INSERT INTO clients VALUES (?, ?)", clients)
        asked = {
            "question": f"How many clients are in Germany? ({n})",
            "query": CLIENTS.format(spelled),
        }
        rows.append({**asked, "db_name": f"d{n}", "split": "validation", "id": f"v-{n}"})
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def policy(said: list[str], call: Call, draw: random.Random) -> str:
        text = "\n".join(said)
        seen = re.search(r"<result>\ncountry\n(?:Italy\n)?(\w+)", text)
        if "<intermediate_sql>" not in said[0]:
            return f"```sql\n{CLIENTS.format('Germany')}\n```"
        if not seen:
            return (
                "<think>How is it spelled?</think><intermediate_sql>SELECT DISTINCT country FROM"
                " clients"
            )
        return f"<think>As {seen[1]}.</think><final_sql>{CLIENTS.format(seen[1])}</final_sql>"

    given: dict[str, Any] = {
        "data": str(folder / "q.jsonl"),
        "model": Worker(policy, fence=False),
        "sandbox": "none",
    }
    given |= {
        "workspace": folder,
        "memory__embedder": "hashed",
        "jobs": 1,
        "out": str(folder / "runs" / "a"),
    }
    off, on = bench(["seed-sql-small", "reex-sql"], "sql", split="validation", **given)
    return found(off), found(on)


def paths(folder: Path, seed: int, *, look: float, conclude: float) -> tuple[Found, Found]:
    """One look, then a conclusion; either goes wrong by chance. Four samples vote: independent, or
    from one look."""
    world = Scenes("paths", seed)
    for n in range(15):
        world.add(
            "validation", f"Question {seed}-{n}: `look` at a table, then `write` what it says.", "0"
        )

    def does(scene: Scene, words: list[str]) -> tuple[str, int]:
        if words[0] == "look":
            return f"The {words[1]} table.", 0
        if words[0] == "write":
            scene.answer(words[1])
        said = scene.files.get("answer.txt", b"").decode()
        return said, int(not said)

    def policy(said: list[str], call: Call, draw: random.Random) -> str:
        if len(said) == 2:
            return f"look {'right' if draw.random() < look else 'wrong'}"
        right = "The right" in said[-1] and draw.random() < conclude
        return f"write {0 if right else draw.randrange(7)}"

    four = 'vote = "said"\ndone = "ready"\nsamples = 4\n'
    made = World(folder, world, does, policy)
    return made.off_and_on(four, f"{four}branches = [4]\n", ("said", "ready"))


# -------------------------------------------------------- SCALER, AutoEnv, EvoCUA: tasks that a
# program of theirs makes


def generator(folder: Path, body: str, settings: str) -> str:
    """A generator's folder. body: Python that sets `task` by `seed` and `level`."""
    made = folder / "generator"
    made.mkdir()
    (made / "generator.toml").write_text(settings)
    head = "import json, random, sys, time\nseed, level = int(sys.argv[1]), int(sys.argv[2])\n"
    (made / "generate.py").write_text(f"{head}{body}\nprint(json.dumps(task))\n")
    return str(made)


def rows(folder: Path) -> list[dict[str, Any]]:
    file = folder / "benchmarks" / "made" / "tasks.jsonl"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def writes(scene: Scene, words: list[str]) -> tuple[str, int]:
    """A scene in which nothing can be done but to write an answer."""
    scene.answer(" ".join(words[1:]))
    return "It is written.", 0


LEVELS = 6


def difficulty(
    folder: Path, seed: int, *, middle: float, flat: bool = False
) -> tuple[Found, Found]:
    """Tasks of six levels, and a learner that solves a level the less often the higher it is; flat:
    every task half the time, whatever its level. The share of tasks that it solves in some of four
    tries and not in all: evenly made, and made by its attempts at those. What that took is
    attempts."""
    body = "task = {'prompt': f'What is {seed} + {100 * level}?', 'answer': seed + 100 * level}"
    made = generator(folder, body, f'score = "numeric"\nlevels = {LEVELS}\n')

    def policy(said: list[str], call: Call, draw: random.Random) -> str:
        asked = re.search(r"What is (\d+) \+ (\d+)?", said[1])
        assert asked
        level, right = int(asked[2]) // 100, int(asked[1]) + int(asked[2])
        chance = 0.5 if flat else 1 / (1 + math.exp((level - middle) / 0.4))
        solves = random.Random(f"{seed}/{call.task}/{call.repeat}").random() < chance
        return "submit" if len(said) > 2 else f"write {right if solves else 0}"

    world = World(folder, "made", writes, policy, {"repeats": 4})
    told = agent("[limits]\nsteps = 2\n")

    def useful(out: str, tasks: Sequence[str]) -> float:
        cell = world.bench(told, "train", out, tasks=tasks)
        solved = Counter[str]()
        for each in cell.scores:
            solved[each["task"]] += bool(each["passed"])
        return fmean(0 < solved[task] < 4 for task in solved)

    words = ("tasks", "make", "made", "--generator", made, "--split", "train")
    # where there are none, train rows are taken for it
    typed(folder, *words[:-1], "validation", "--n", "1")
    typed(folder, *words, "--n", str(2 * LEVELS))
    first = [row["id"] for row in rows(folder) if row["split"] == "train"]
    off = Found(useful("off", [f"made:tasks:{id}" for id in first]), 8.0 * LEVELS)
    typed(folder, *words, "--n", "6", "--from", "runs/off", "--solve-rate", "0.5")
    new = [row["id"] for row in rows(folder) if row["split"] == "train" and row["id"] not in first]
    return off, Found(useful("on", [f"made:tasks:{id}" for id in new]), 8.0 * LEVELS + 4 * len(new))


DEFECTS = {
    "accepts anything": "task['answer'] = '.'",
    "refuses the right answer": "task['answer'] = '^no such number$'",
    "is another each time": "task['answer'] = f'^{random.randrange(10**9)}$'",
    "is of another task": "task['prompt'] = f'What is {time.time_ns()} + {level}?'",
}
OFF_BY_ONE = "task |= {'answer': f'^{seed + 2 + level}$', 'gold': str(seed + 2 + level)}"


def checked(folder: Path, seed: int, *, subtle: bool = False) -> tuple[Found, Found]:
    """A program whose tasks are wrong for some seeds, in one of four ways; subtle: its sums are off
    by one. The share of sound tasks, whose verifier takes what is right and nothing else: as
    printed, and as kept by `tasks make`. What that took is runs of the program for a task."""
    draw = random.Random(f"checked/{seed}")
    broken, wanted = draw.sample(range(8), 4), 4
    defect = OFF_BY_ONE if subtle else draw.choice(list(DEFECTS.values()))
    body = (
        "task = {'prompt': f'What is {seed} + {level}?', 'answer': f'^{seed + level}$', 'gold':"
        " str(seed + level)}\n"
    )
    body += f"if seed % 8 in {broken}:\n    {defect}"
    made = generator(folder, body, 'score = "regex"\n')
    first, printed = 8 * seed + draw.randrange(8), []
    for n in range(first, first + wanted):
        done = subprocess.run(
            [sys.executable, f"{made}/generate.py", str(n), "1"], capture_output=True, check=True
        )
        printed.append(json.loads(done.stdout))
    kept = typed(
        folder,
        "tasks",
        "make",
        "made",
        "--generator",
        made,
        "--n",
        str(wanted),
        "--seed",
        str(first),
    )
    runs = 2 * kept["tried"] / kept["kept"]  # each is printed twice
    return Found(fmean(map(_sound, printed)), 1.0), Found(fmean(map(_sound, rows(folder))), runs)


def _sound(task: Mapping[str, Any]) -> bool:
    asked = re.search(r"What is (\d+) \+ (\d+)", task["prompt"])
    assert asked
    right = int(asked[1]) + int(asked[2])
    return bool(re.search(task["answer"], str(right))) and not re.search(
        task["answer"], str(right + 7)
    )


WAYS = (
    "day.month.year",
    "year/month/day",
    "month-day-year",
    "day of month in year",
    "yearmonthday",
    "day|month|year",
)


def practice(folder: Path, seed: int, *, elsewhere: bool = False) -> tuple[Found, Found]:
    """Each guild writes dates in a way of its own, which only attempts that passed tell; two tasks
    are given, of two guilds of four. On: twelve more, with their verifiers, by a program;
    elsewhere: they are about other guilds. The agent recalls train attempts, and is measured on
    held-out tasks. Tokens are of all attempts, per held-out task.
    """
    draw = random.Random(f"practice/{seed}")
    guilds = names(draw, 8)
    way = {guild: draw.choice(WAYS) for guild in guilds}
    body = f"way = {way!r}\nguild = {guilds!r}[seed % 4 + {4 * elsewhere} * (seed >= 200)]\n"
    body += (
        "day = {'day': str(seed % 27 + 1), 'month': str(seed % 11 + 1), 'year': str(1900 + seed %"
        " 97)}\n"
    )
    body += (
        "text = way[guild]\nfor name, value in day.items():\n    text = text.replace(name, value)\n"
    )
    ask = "Write day {day} of month {month} in {year} to answer.txt as the guild {guild} does."
    body += f"task = {{'prompt': {ask!r}.format(**day, guild=guild), 'answer': text}}"
    made = generator(folder, body, 'score = "exact"\n')

    def policy(said: list[str], call: Call, draw: random.Random) -> str:
        asked = re.search(
            r"Write day (\d+) of month (\d+) in (\d+) to answer.txt as the guild (\w+) does",
            said[1],
        )
        assert asked
        day, guild = dict(zip(("day", "month", "year"), asked.groups(), strict=False)), asked[4]
        turn, recalls = len(said) // 2 - 1, "`recall WORDS`" in said[0]
        if turn == 0 and recalls:
            return f"recall how the guild {guild} writes a day"
        if turn > recalls:
            return "submit"
        guess = random.Random(f"{seed}/{call.task}/{call.repeat}").choice(WAYS)
        return f"write {_dated((recalls and _learned(said[-1], guild)) or guess, day)}"

    recalls = agent("[limits]\nsteps = 4\n[memory]\nrecall = 1000\n", "recalls")
    results = []
    make = ("tasks", "make", "made", "--generator", made)
    off, on = folder / "off", folder / "on"
    off.mkdir()
    (off / "recreate.toml").touch()
    typed(off, *make, "--n", "8", "--split", "validation")
    typed(off, *make, "--n", "2", "--split", "train", "--seed", "100")
    shutil.copytree(off, on)
    typed(on, *make, "--n", "12", "--split", "train", "--seed", "200")
    for where in (off, on):
        world = World(where, "made", writes, policy)
        practised = world.bench(agent("[limits]\nsteps = 2\n"), "train", "train", repeats=4)
        measured = world.bench(recalls, "validation", "held-out")
        assert measured.mean is not None
        results.append(Found(measured.mean, (practised.tokens + measured.tokens) / measured.n))
    return results[0], results[1]


def _dated(way: str, day: Mapping[str, str]) -> str:
    for name, value in day.items():
        way = way.replace(name, value)
    return way


def _learned(told: str, guild: str) -> str:
    """The way in which an attempt that passed wrote a day of the guild, as memory told of it."""
    for each in re.split(r"\n\n\d+\. ", told)[1:]:
        asked = re.search(
            rf"Write day (\d+) of month (\d+) in (\d+) to answer.txt as the guild {guild} ", each
        )
        wrote = re.search(r"^it handed in: (.*)$", each, re.MULTILINE)
        if asked and wrote and "passed" in each.split("\n")[0]:
            day = dict(zip(("day", "month", "year"), asked.groups(), strict=True))
            return next((way for way in WAYS if _dated(way, day) == wrote[1]), "")
    return ""


# ------------------------------------------------------------------------------------------------
# the table

Play = Callable[[Path, int], tuple[Found, Found]]


@dataclass(frozen=True)
class Row:
    """A mechanism in one kind of world. share, took: what is measured, and the sign that the
    difference should have (None: not said)."""

    mechanism: str
    world: str
    play: Play
    share: int | None
    took: int | None = None
    names: tuple[str, str] = ("solved", "tokens")


def _rows() -> Iterator[Row]:
    for n in (1, 2, 3):
        yield Row(
            "SLEA", f"{n} lock{'s' * (n > 1)}, seen on the way", partial(locks, locks=n), 1, 1
        )
    yield Row("SLEA", "loss: the task names its 2 locks", partial(locks, locks=2, named=True), 0, 1)
    for share in (0.1, 0.15, 0.2):
        yield Row("turns", f"{share:.0%} doubt what is done", partial(turns, doubters=share), 0, -1)
    yield Row("turns", "loss: few turns hurry it", partial(turns, hurried=True), -1, -1)
    yield Row("turns", "loss: 60% doubt, the limit stays", partial(turns, doubters=0.6), 0, 0)
    for n in (2, 3, 6):
        yield Row(
            "MAXS",
            f"{n} doors, seen at the next action",
            partial(doors, doors=n, on=LOOKAHEAD),
            1,
            1,
        )
    yield Row(
        "MAXS",
        "loss: 3 doors, seen two actions on",
        partial(doors, doors=3, on=LOOKAHEAD, far=1),
        0,
        1,
    )
    yield Row(
        "MAXS",
        "loss: every door is right",
        partial(doors, doors=3, on=LOOKAHEAD, all_right=True),
        0,
        1,
    )
    for n in (2, 3, 6):
        yield Row("AOI-observe", f"{n} doors, 3 looks", partial(doors, doors=n, on=OBSERVE), 1, 1)
    yield Row(
        "AOI-observe", "loss: 4 turns in all", partial(doors, doors=3, on=OBSERVE, steps=4), -1, 1
    )
    for n in (2, 3, 6):
        yield Row("AOI-restore", f"{n} doors", partial(doors, doors=n, on=RESTORE, steps=12), 1, 1)
    yield Row("AOI-restore", "loss: half must fail in between", unhooking, -1, 1)
    for n in (2, 4, 6):
        yield Row(
            "near-cache", f"{n} of 12 asked again in other words", partial(near, again=n), 0, -1
        )
    yield Row(
        "near-cache", "loss: 4 of 12 asked with a `not`", partial(near, again=0, opposite=4), -1, -1
    )
    for rate in (0.1, 0.2, 0.4):
        yield Row("CLEANER", f"an expert slips in {rate:.0%}", partial(slips, rate=rate), 1)
    yield Row(
        "CLEANER",
        "loss: 40% of doors are stuck at first",
        partial(slips, rate=0.0, stuck=0.4, steps=10),
        0,
        0,
    )
    yield Row("ReEx-SQL", "values spelled in one of 6 ways", partial(spelling, plain=False), 1, 1)
    yield Row("ReEx-SQL", "loss: spelled as it is asked", partial(spelling, plain=True), 0, 1)
    for look, conclude in ((0.95, 0.5), (0.8, 0.7)):
        what = f"looks right in {look:.0%}, concludes in {conclude:.0%}"
        yield Row("ReEx-SQL-tree", what, partial(paths, look=look, conclude=conclude), None, -1)
    yield Row(
        "ReEx-SQL-tree",
        "loss: looks in 60%, concludes in 90%",
        partial(paths, look=0.6, conclude=0.9),
        -1,
        -1,
    )
    informative = ("informative", "attempts")
    for middle in (1.5, 3.5, 5.5):
        what = f"solves half of level {middle:g} of 6"
        yield Row("SCALER", what, partial(difficulty, middle=middle), 1, 1, informative)
    yield Row(
        "SCALER",
        "loss: levels do not matter",
        partial(difficulty, middle=0, flat=True),
        0,
        1,
        informative,
    )
    sound = ("sound", "program runs")
    yield Row("AutoEnv", "half of its seeds break the verifier", checked, 1, 1, sound)
    yield Row("AutoEnv", "loss: half are off by one", partial(checked, subtle=True), 0, 1, sound)
    yield Row("EvoCUA", "2 tasks given, of 2 guilds of 4", practice, 1, 1)
    yield Row(
        "EvoCUA", "loss: made of guilds nobody asks for", partial(practice, elsewhere=True), 0, 1
    )


ROWS = tuple(_rows())
MECHANISMS = tuple(dict.fromkeys(row.mechanism for row in ROWS))


def play(at: int, number: int) -> dict[str, Any]:
    """World `number` of a row: what came of it without and with the mechanism."""
    row = ROWS[at]
    with tempfile.TemporaryDirectory(prefix="mechanism-") as made:
        (Path(made) / "recreate.toml").touch()
        off, on = row.play(Path(made), number)
    return {
        "row": at,
        "mechanism": row.mechanism,
        "world": row.world,
        "number": number,
        "off": [*off],
        "on": [*on],
    }


def rounds(mechanisms: Collection[str], count: int, jobs: int) -> Iterator[dict[str, Any]]:
    pairs = [
        (at, n) for n in range(count) for at, row in enumerate(ROWS) if row.mechanism in mechanisms
    ]
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(play, *zip(*pairs, strict=True))


def difference(found: Sequence[Mapping[str, Any]], what: int) -> tuple[float, float, float, float]:
    """(mean off, mean on, their paired difference, half of its 90 % interval by Student's t over
    worlds) of the share (0) or of what it took (1)."""
    off, on = ([float(row[side][what]) for row in found] for side in ("off", "on"))
    each = [b - a for a, b in zip(off, on, strict=True)]
    half = (
        student_quantile(len(each), 0.10) * stdev(each) / len(each) ** 0.5
        if len(each) > 1
        else math.inf
    )
    return fmean(off), fmean(on), fmean(each), half


def table(found: Sequence[Mapping[str, Any]]) -> str:
    beside = ["off", "on", "difference [90 %]"]
    head = ["mechanism", "world", "measured", *beside, "takes", *beside]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for at in sorted({row["row"] for row in found}):
        row, mine = ROWS[at], [each for each in found if each["row"] == at]
        cells = [row.mechanism, row.world]
        for what, digits in ((0, 2), (1, 0 if row.names[1] == "tokens" else 1)):
            off, on, diff, half = difference(mine, what)
            cells += [row.names[what], f"{off:,.{digits}f}", f"{on:,.{digits}f}"]
            cells.append(
                f"{diff:+,.{digits}f} [{diff - half:+,.{digits}f}, {diff + half:+,.{digits}f}]"
            )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)

"""Does the scan for leaks find what belongs to a task, however it is written, and let other text
pass?

Worlds are the tasks that ship: `swe`'s recipes (no package is fetched: what is hidden of them is
what recipes say), the demo's functions, the templates' rows, and the planted conventions, whose
rules are there to be learned.

Planted are ids, paths, test ids, names of functions and classes, eight words of a prompt or of an
answer, lines of an answer, and canaries; as they are, or disguised as `DISGUISES` says, amid honest
advice. What is planted is drawn by rules of its own, not by the scanner's: a name that Python's
library or a second package has, and words that a second group says, give no task away, and are left
out.

Clean are advice (advice.txt, the recorded edits of the demo), docstrings of the standard library
and of packages that no task is about, and functions of the standard library as tools.

The sources are dealt into parts. The scanner was made with `tuning`; `measured` was held back until
that was done, and what it showed was mended. `fresh`, whose advice, modules and packages are
others, was held back until then, and is what the command measures.
"""

from __future__ import annotations

import base64
import builtins
import codecs
import contextlib
import gzip
import hashlib
import importlib
import inspect
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from recreate.agents.guards.leaks import Scanner
from recreate.agents.scaffold import load
from recreate.api.paths import shipped
from recreate.api.types import Edit, Task, canary, digest
from recreate.domains.rows.domain import RowDomain
from recreate.plugins.demo.functions import Functions
from recreate.plugins.measuring.shares import wilson
from recreate.plugins.swe import Swe
from recreate.plugins.templates import templates
from recreate.plugins.templates.templates import TEMPLATES
from tests.lab.planted import KINDS, Planted

PLANTED, CLEAN = 200, 500
PARENT = load(shipped("scaffolds") / "seed-tools")
HERE = Path(__file__).parent


class World(NamedTuple):
    tasks: Sequence[Task]
    hidden: Mapping[str, Sequence[str]]


class Case(NamedTuple):
    """edits: (path, text), in order; what: kind of secret / disguise, or the source of a clean
    one."""

    world: str
    what: str
    secret: str
    edits: list[tuple[str, str]]


@cache
def worlds() -> dict[str, World]:
    """What `reproduce` of a recipe says stands in its task's facts."""
    found = {"swe": World(Swe().tasks(), {})}
    with tempfile.TemporaryDirectory() as folder:
        for name in TEMPLATES:
            templates.write(name, name, Path(folder))
            rows = RowDomain(name, workspace=Path(folder), say=lambda _: None)
            found[name] = World(rows.tasks(), {t.id: list(rows.hidden(t)) for t in rows.tasks()})
    functions = Functions()
    found["functions"] = World(
        functions.tasks(), {t.id: [functions.gold(t)] for t in functions.tasks()}
    )
    found["planted"] = World(Planted(KINDS["json"]).tasks(), {})
    return found


@cache
def scanner(world: str) -> Scanner:
    return Scanner(*worlds()[world])


# --------------------------------------------------------------------------------------- what is
# planted


@cache
def library() -> frozenset[str]:
    """Names that Python's library has, as far as this interpreter shows them."""
    names = set(sys.stdlib_module_names) | set(dir(builtins))
    for module in MODULES:
        found = importlib.import_module(module)
        names |= set(dir(found))
        for value in vars(found).values():
            if inspect.isclass(value):
                names |= set(dir(value))
    return frozenset(name.casefold() for name in names)


def words_of(text: str) -> list[str]:
    return [word.casefold() for word in re.findall(r"[^\W_]+", text)]


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from texts_of(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts_of(part)


def said_by(world: World, task: Task) -> str:
    return "\n".join([task.prompt, *texts_of(task.facts), *world.hidden.get(task.id, ())])


def package(task: Task) -> str:
    return task.id.split(":")[1].split("-")[0]


NAME = re.compile(r"[A-Za-z_]\w+")


@cache
def secrets(name: str) -> dict[str, list[tuple[str, str]]]:
    """(task, text) of a world, by kind."""
    world = worlds()[name]
    names, grams, lines = defaultdict(set), defaultdict(set), defaultdict(set)
    for task in world.tasks:
        text = said_by(world, task)
        for word in {*NAME.findall(text), *re.findall(r"[\w./-]+/[\w.-]+", text)}:
            names[word.casefold()].add(package(task) if name == "swe" else task.group)
        found = words_of(text)
        for at in range(len(found) - 7):
            grams[tuple(found[at : at + 8])].add(task.group)
        for line in text.splitlines():
            lines["".join(line.split())].add(task.group)
    kinds: dict[str, list[tuple[str, str]]] = defaultdict(list)

    def own(word: str) -> bool:
        bare = word.casefold().strip("_")
        return (
            len(names[word.casefold()]) < 2
            and bare not in library()
            and word.casefold() not in library()
        )

    for task in world.tasks:
        bug = task.facts.get("bug") or {}
        tests = [t for t in texts_of(task.facts) if re.fullmatch(r"[\w./-]+\.py::[\w:]+", t)]
        kinds["id"] += [(task.id, task.id)]
        kinds["path"] += [
            (task.id, p)
            for p in sorted({bug.get("file", ""), *(t.partition("::")[0] for t in tests)})
            if "/" in p and own(p)
        ]
        kinds["test"] += [(task.id, t) for t in sorted(set(tests))]
        code = "\n".join(world.hidden.get(task.id, ())) + str(task.facts.get("reproduce", ""))
        defined = {n for n in re.findall(r"(?:def|class) (\w+)", code)} | {
            t.rpartition("::")[2] for t in tests
        }
        qualname = str(bug.get("function", ""))
        defined |= set(qualname.split("."))
        shaped = re.compile(r"_*[A-Za-z0-9]+_\w+|[A-Z]+[a-z0-9]+[A-Z]\w*|[a-z]+[A-Z]\w*")
        kinds["name"] += [
            (task.id, n)
            for n in sorted(defined)
            if len(n) >= 8 and shaped.fullmatch(n) and own(n) and not n.startswith("__")
        ]
        if "." in qualname and not all(
            part.casefold() in library() for part in qualname.split(".")
        ):
            kinds["qualname"] += [(task.id, qualname)]
        for kind, whole in (("phrase", task.prompt), ("answer phrase", code)):
            for line in whole.split("\n\n"):
                parts = line.split()
                for at in range(0, len(parts) - 7, 3):
                    piece = " ".join(parts[at : at + 8])
                    found = words_of(piece)
                    if len(found) >= 8 and len(grams[tuple(found[:8])]) == 1:
                        kinds[kind] += [(task.id, piece)]
        for line in code.splitlines():
            bare = "".join(line.split())
            if (
                len(bare) >= 24
                and len(lines[bare]) == 1
                and not re.match(r"(import|from|def|class|@|#)\b", line.strip())
            ):
                kinds["answer line"] += [(task.id, line.strip())]
        if task.split != "train":
            kinds["canary"] += [(task.id, canary(task.id))]
    return {kind: list(dict.fromkeys(found)) for kind, found in kinds.items()}


# ------------------------------------------------------------------------------------------- how it
# is hidden

LOOKS = str.maketrans("aceiopsxyABEHKMOPTX", "асеіорѕхуАВЕНКМОРТХ")
Way = Callable[[str, random.Random], str]


def camel(text: str, _: random.Random) -> str:
    if "_" in text.strip("_"):
        first, *rest = text.strip("_").split("_")
        return first + "".join(part[:1].upper() + part[1:] for part in rest)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()


def joined(text: str, draw: random.Random) -> str:
    """A line of Python that puts the text together."""
    at = draw.randrange(len(text) // 3, 2 * len(text) // 3)
    a, b = repr(text[:at]), repr(text[at:])
    parts = [text[n : n + 4] for n in range(0, len(text), 4)]
    ways = [
        f"NOTE = {a} + {b}",
        f"NOTE = {a} {b}",
        f"NOTE = ''.join({parts})",
        f"PART = {a}\nNOTE = PART + {b}",
    ]
    ways.append(f"PART = {a}\nNOTE = f'{{PART}}' + {b}")
    return draw.choice(ways)


def spread(text: str, draw: random.Random) -> str:
    return re.sub(r"\s+", lambda _: draw.choice(["\n", "  ", "\t", "\n\n> "]), text)


def unseen(text: str, draw: random.Random) -> str:
    return "".join(c + draw.choice(["", "", "\u200b", "\u200d", "\ufeff", "\u00ad"]) for c in text)


DISGUISES: Mapping[str, Way] = {
    "as it is": lambda text, _: text,
    "other case": lambda text, draw: draw.choice([text.upper(), text.title(), text.swapcase()]),
    "other spaces": spread,
    "camel or snake": camel,
    "look-alikes": lambda text, _: text.translate(LOOKS),
    "full width": lambda text, _: "".join(
        chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text
    ),
    "zero width": unseen,
    "base64": (
        lambda text, draw: draw.choice([base64.b64encode, base64.urlsafe_b64encode])(
            text.encode()
        ).decode()
    ),
    "hex": lambda text, draw: draw.choice(["{}", "0x{}"]).format(text.encode().hex()),
    "rot13": lambda text, _: codecs.encode(text, "rot13"),
    "reversed": lambda text, _: text[::-1],
    "percent": lambda text, _: "".join(f"%{ord(c):02X}" if ord(c) < 128 else c for c in text),
    "escapes": lambda text, draw: "".join(
        draw.choice([f"\\x{ord(c):02x}", f"\\u{ord(c):04x}"]) for c in text
    ),
    "joined": joined,
    "two edits of a file": lambda text, _: text,
    "two files": lambda text, _: text,
}
CODED = ("base64", "hex", "rot13", "reversed", "percent", "escapes")


def fitting(kind: str, disguise: str) -> bool:
    if disguise == "camel or snake":
        return kind in ("name", "test")
    if disguise == "other spaces":
        return "phrase" in kind or "line" in kind
    return True


def hidden_in(
    text: str, disguise: str, honest: Sequence[str], draw: random.Random
) -> list[tuple[str, str]]:
    """The edits that carry a text amid honest sentences."""
    before, after = draw.choice(honest), draw.choice(honest)
    path = draw.choice(["system.md", "memory/what-was-seen.md"])
    if disguise in ("two edits of a file", "two files"):
        at = draw.randrange(len(text) // 3, 2 * len(text) // 3)
        second = path if disguise == "two edits of a file" else "memory/and-more.md"
        return [(path, f"\n- {before}\n- {text[:at]}"), (second, f"{text[at:]} {after}\n")]
    whole = DISGUISES[disguise](text, draw)
    if disguise == "joined":
        tool = f'"""Shows a note."""\n\n{whole}\nprint(NOTE)\n'
        fence = f"\n{before}\n\n```python\n{whole}\nprint(NOTE)\n```\n"
        return [("tools/note.py", tool)] if draw.random() < 0.5 else [(path, fence)]
    return [(path, f"\n- {before}\n- Mind this: {whole}\n- {after}\n")]


def planted(half: str, count: int = PLANTED) -> list[Case]:
    """Kinds, then disguises, then worlds are drawn alike: none is there more often because there is
    more of it."""
    draw, honest, cases = random.Random(f"planted {half}"), advice(half), list[Case]()
    by_kind: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for world in worlds():
        for kind, found in secrets(world).items():
            if texts := [text for task, text in found if half_of(task + text) == secrets_of(half)]:
                by_kind[kind][world] = texts
    kinds = sorted(by_kind)
    ways = {
        kind: draw.sample(fit := [d for d in DISGUISES if fitting(kind, d)], len(fit))
        for kind in kinds
    }
    while len(cases) < count:
        kind = kinds[len(cases) % len(kinds)]
        disguise = ways[kind][len(cases) // len(kinds) % len(ways[kind])]
        world = draw.choice(sorted(by_kind[kind]))
        text = draw.choice(by_kind[kind][world])
        cases.append(
            Case(world, f"{kind} / {disguise}", text, hidden_in(text, disguise, honest, draw))
        )
    return cases


# ------------------------------------------------------------------------------------------------
# what is clean

_MODULES = """abc argparse array ast base64 bisect bz2 calendar cmath cmd code codecs collections \
colorsys configparser
contextlib copy csv dataclasses datetime dbm decimal difflib dis doctest email enum filecmp \
fileinput fnmatch fractions
ftplib functools gc getopt getpass gettext glob graphlib gzip hashlib heapq hmac html http.client \
http.cookies imaplib
importlib inspect io ipaddress itertools json keyword linecache locale logging lzma mailbox math \
mimetypes mmap
multiprocessing numbers operator optparse os os.path pathlib pdb pickle pickletools pkgutil \
platform plistlib poplib
posixpath pprint profile pstats pyclbr queue quopri random re reprlib sched secrets select \
selectors shelve shlex
shutil signal smtplib socket socketserver sqlite3 ssl stat statistics string struct subprocess \
symtable sysconfig
tarfile tempfile textwrap threading timeit tokenize trace traceback tracemalloc types typing \
unicodedata unittest
unittest.mock urllib.error urllib.parse urllib.request urllib.robotparser uuid venv warnings wave \
weakref webbrowser
wsgiref.util xml.dom.minidom xml.etree.ElementTree xml.sax xmlrpc.client zipapp zipfile zoneinfo"""
_PACKAGES = """anyio attr certifi click_default_group distro filelock fsspec grpc httpcore httpx \
httptools
huggingface_hub jsonschema langchain_core langgraph markdown_it numpy openai opentelemetry
orjson overrides posthog psutil pydantic pydantic_settings pygments requests rich starlette \
tenacity tokenizers
tqdm typer urllib3 uvicorn websockets yaml"""
MODULES, PACKAGES = _MODULES.split(), _PACKAGES.split()
_FRESH_MODULES = """
asyncio binascii builtins bdb cgitb chunk codeop compileall concurrent.futures contextvars copyreg \
cProfile
curses.ascii encodings errno faulthandler formatter grp html.parser http.server importlib.metadata \
json.decoder
json.encoder logging.config logging.handlers modulefinder netrc nntplib ntpath optparse pipes pty \
pwd py_compile
resource runpy shelve site sndhdr stringprep sunau syslog telnetlib termios token tty types \
unittest.case
urllib.response uu wsgiref.headers xml.dom.pulldom xml.sax.handler xml.sax.saxutils xmlrpc.server \
zlib"""
_FRESH_PACKAGES = """aiohttp botocore cffi datasets dill docstring_parser dotenv fastapi grimp h11 \
hypothesis
importlib_metadata ijson jmespath jsonpath_ng langgraph_sdk langsmith mcp mmh3 multidict \
multiprocess oauthlib packaging
pandas platformdirs pluggy prompt_toolkit propcache pyarrow pypika referencing rpds s3transfer \
shellingham shortuuid
sortedcontainers sqlite_vec textual tiktoken upath uuid_utils watchfiles wrapt xxhash yarl zipp"""


def half_of(thing: str) -> str:
    """tuning or measured."""
    return ("tuning", "measured")[hashlib.sha256(thing.encode()).digest()[0] % 2]


def secrets_of(half: str) -> str:
    """The half of all other things that a part draws from."""
    return "tuning" if half == "tuning" else "measured"


def sources(which: str, half: str) -> list[str]:
    if half == "fresh":
        return (_FRESH_MODULES if which == "library" else _FRESH_PACKAGES).split()
    return MODULES if which == "library" else PACKAGES


@cache
def advice(half: str) -> list[str]:
    first, _, fresh = (HERE / "advice.txt").read_text("utf-8").partition("# Written")
    if half == "fresh":
        return fresh.splitlines()[1:]
    return [line for line in first.splitlines() if half_of(line) == half]


@cache
def recorded() -> list[str]:
    """The edits that a model wrote in the build that ships."""
    found = list[str]()
    with gzip.open(
        shipped("benchmarks") / "demo" / "tape" / "journal.jsonl.gz", "rt", encoding="utf-8"
    ) as file:
        for row in map(json.loads, file):
            for edits in [row.get("edits", ()), *row.get("others", ())]:
                found += [e["new"] for e in edits if row["kind"] == "proposal" and e["new"]]
    return list(dict.fromkeys(found))


def members(modules: Sequence[str], half: str) -> Iterator[tuple[str, Any]]:
    """(dotted name, function or class) that modules define and document, in the order of their
    names."""
    for name in modules:
        if half_of(name) != secrets_of(half):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = importlib.import_module(name)
        except ImportError:
            continue
        for attribute, value in sorted(vars(module).items()):
            if not attribute.startswith("_") and (
                inspect.isroutine(value) or inspect.isclass(value)
            ):
                yield f"{name}.{attribute}", value
                if (
                    inspect.isclass(value)
                    and (getattr(value, "__module__", "") or "").split(".")[0] == name.split(".")[0]
                ):
                    for inner, method in sorted(vars(value).items()):
                        if not inner.startswith("_") and inspect.isroutine(method):
                            yield f"{name}.{attribute}.{inner}", method


@cache
def docstrings(which: str, half: str) -> list[str]:
    found = list[str]()
    for name, value in members(sources(which, half), half):
        doc = getattr(value, "__doc__", None)
        text = inspect.cleandoc(doc) if isinstance(doc, str) else ""
        if 60 <= len(text) <= 1200 and text.isascii():
            found.append(f"`{name}`: {text}")
    return list(dict.fromkeys(found))


@cache
def functions(half: str) -> list[str]:
    """Functions of the standard library, as a tool would hold them."""
    found = list[str]()
    for _, value in members(sources("library", half), half):
        if inspect.isfunction(value):
            with contextlib.suppress(OSError, TypeError):
                text = textwrap.dedent(inspect.getsource(value))
                if 5 <= len(text.splitlines()) <= 30 and text.startswith("def "):
                    found.append(text)
    return list(dict.fromkeys(found))


def clean(half: str, count: int = CLEAN) -> list[Case]:
    """Half of it advice; the world of each is said when it is scanned: in all of them."""
    draw, cases = random.Random(f"clean {half}"), list[Case]()
    demo = [text for text in recorded() if half_of(text) == secrets_of(half)]
    for number in range(count):
        what = draw.choices(
            ["advice", "library", "packages", "mixed", "code", "recorded"], [45, 15, 15, 12, 10, 3]
        )[0]
        path = draw.choice(["system.md", "workflow.md", f"memory/lesson-{number}.md"])
        if what == "advice":
            lines = draw.sample(advice(half), draw.randint(2, 5))
            text = (
                "\n".join(f"- {line}" for line in lines) if draw.random() < 0.5 else " ".join(lines)
            )
        elif what in ("library", "packages"):
            text = draw.choice(docstrings(what, half))
        elif what == "mixed":
            text = f"{draw.choice(advice(half))}\n\n{draw.choice(docstrings('library', half))}"
        elif what == "code":
            text, path = (
                f'"""Helps."""\n\n{draw.choice(functions(half))}',
                f"tools/tool_{number}.py",
            )
        else:
            text = draw.choice(demo)
        cases.append(Case("", what, "", [(path, f"\n{text}\n")]))
    return cases


# ------------------------------------------------------------------------------------------------
# the figures


def verdicts(cases: Sequence[Case]) -> list[list[str]]:
    """What the scanner says of each case."""
    return [
        scanner(c.world).leaks([Edit(path=p, new=t) for p, t in c.edits], PARENT) for c in cases
    ]


def shown(case: Case, reasons: Sequence[str]) -> bool:
    """Whether a reason quotes what was planted, or a part of it."""

    def letters(text: str) -> str:
        return re.sub(r"[\W_]+", "", text).casefold()

    whole = letters(case.secret)
    quotes = [
        letters(q) for why in reasons for q in re.findall(r"(?:'(.*)'|\"(.*)\")", why) for q in q
    ]
    return any(q and (q in whole or whole in q) for q in quotes)


def told(found: int, of: int) -> dict[str, Any]:
    lo, hi = wilson(found, of)
    return {"found": found, "of": of, "share": found / of, "lo": lo, "hi": hi}


def leaks(_: int, half: str = "fresh", pythons: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """pythons: other interpreters that have pydantic and jinja2; each has to say the same of every
    case."""
    cases, texts = planted(half), clean(half)
    found = verdicts(cases)
    missed = [case for case, reasons in zip(cases, found, strict=True) if not shown(case, reasons)]
    for part, place in (("kind", 0), ("disguise", 1)):
        all_of, missed_of = (
            Counter(c.what.split(" / ")[place] for c in some) for some in (cases, missed)
        )
        for each in sorted(all_of):
            yield {part: each, "caught": all_of[each] - missed_of[each], "of": all_of[each]}
    for case in missed:
        yield {"missed": case.what, "world": case.world, "secret": case.secret, "edits": case.edits}
    yield {"planted": "all", **told(len(cases) - len(missed), len(cases))}
    for world in worlds():
        began = time.monotonic()
        here = [case._replace(world=world) for case in texts]
        said = verdicts(here)
        seconds = time.monotonic() - began
        for case, why in zip(here, said, strict=True):
            if why:
                yield {"refused": case.what, "world": world, "why": why[:2]}
        distinct = len({case.edits[0][1] for case in here})
        yield {
            "clean": world,
            "texts": distinct,
            **told(sum(map(bool, said)), len(here)),
            "seconds": seconds,
        }
        if world in ("swe", "functions"):
            cases, found = cases + here, found + said
    ours = digest(found)
    yield {"python": platform.python_version(), "verdicts": len(cases), "digest": ours}
    for python, flags, seed in [
        (sys.executable, ["-OO"], "1"),
        *((python, [], "2") for python in pythons),
    ]:
        version, there = elsewhere(cases, python, flags, seed)
        yield {
            "python": version,
            "flags": " ".join(flags),
            "hash_seed": seed,
            "digest": there,
            "same": there == ours,
        }


ELSEWHERE = """
import json, platform, sys
from recreate.agents.guards.leaks import Scanner
from recreate.agents.scaffold import Scaffold
from recreate.api.types import Edit, Task, digest
given = json.load(open(sys.argv[1], encoding="utf-8"))
parent = Scaffold.model_validate(given["parent"])
scanners = {n: Scanner([Task.model_validate(t) for t in w["tasks"]], w["hidden"]) for n, w in \
given["worlds"].items()}
found = [scanners[world].leaks([Edit(path=p, new=t) for p, t in edits], parent) for world, edits \
in given["cases"]]
print(json.dumps([platform.python_version(), digest(found)]))
"""


def elsewhere(
    cases: Sequence[Case], python: str, flags: Sequence[str], seed: str
) -> tuple[str, str]:
    """(version, digest of the verdicts) of another interpreter, or of this one built otherwise, on
    the same cases."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        given = {
            "parent": PARENT.model_dump(mode="json"),
            "worlds": {
                name: {
                    "tasks": [t.model_dump(mode="json") for t in world.tasks],
                    "hidden": world.hidden,
                }
                for name, world in worlds().items()
            },
            "cases": [(case.world, case.edits) for case in cases],
        }
        file.write_text(json.dumps(given), "utf-8")
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(HERE.parents[2])}
        command = [python, *flags, "-c", ELSEWHERE, str(file)]
        ended = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    version, there = json.loads(ended.stdout)
    return version, there

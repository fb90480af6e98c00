"""recreate tasks invent: a model writes a generator, and only one whose tasks hold is kept."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.api import paths
from recreate.cli import run as cli
from recreate.domains.rows.domain import RowDomain
from recreate.memory.held_out import Held, HeldOut
from recreate.plugins.generators import generator, invention
from recreate.sandboxes import choose
from recreate.storage.log import Log
from tests.cli.test_bad_input import refused

HEAD = """import json, random, sys
seed, level = int(sys.argv[1]), int(sys.argv[2])
draw = random.Random(f"{seed}/{level}")
"""
GOOD = """
words = " and ".join(["once", "twice", "thrice"][:level])
numbers = [draw.randint(10, 99) for _ in range(2 + level)]
task = {"prompt": f"Multiply {numbers}, {words}.", "answer": 1}
for number in numbers:
    task["answer"] *= number
"""
PRINT = "print(json.dumps(task))\n"
TOML = 'score = "numeric"\nlevels = 3\n'
VERIFIED = 'score = "verify.py:score"\nlevels = 3\n'
Invent = Callable[..., tuple[int, dict[str, Any], str]]


def reply(body: str, toml: str = TOML, **files: str) -> str:
    """What a model writes: a generator whose program is `body` between the arguments and the
    printing of `task`."""
    texts = {"generator.toml": toml, "generate.py": HEAD + body + PRINT} | {
        f"{n}.py": t for n, t in files.items()
    }
    return "Here it is.\n\n" + "\n".join(
        f"=== {name}\n```\n{text}```" for name, text in texts.items()
    )


def script(workspace: Path, *replies: str, **every: Any) -> str:
    """A model that gives these replies in turn, and the last one ever after."""
    lines = [
        {"role": "writer", "step": step, "text": text, **every} for step, text in enumerate(replies)
    ]
    lines.append({"role": "writer", "text": replies[-1], **every})
    (workspace / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "scripted:s.jsonl"


@pytest.fixture(autouse=True)
def probe_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """One task a level in place of three, which says the same of these."""
    monkeypatch.setattr(generator, "PROBED", 1)


@pytest.fixture
def invent(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Invent:
    """Asks a model that gives these replies for the generator `gen`: exit code, what was printed as
    JSON, what was said."""

    def invent(*replies: str, flags: tuple[str, ...] = ()) -> tuple[int, dict[str, Any], str]:
        words = [
            "tasks",
            "invent",
            "products of numbers",
            "--model",
            script(workspace, *replies),
            "--out",
            "gen",
        ]
        code = cli([*words, *flags, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out), err

    return invent


def kept(workspace: Path) -> Path:
    """The folder of the replies."""
    (found,) = (workspace / "runs").glob("invent-gen-*")
    return found


def calls(workspace: Path) -> int:
    return sum(line["kind"] == "settle" for line in Log(kept(workspace) / "ledger.jsonl").read())


def test_a_good_generator_is_kept_at_once_and_makes_tasks_as_a_shipped_one(
    workspace: Path, invent: Invent, capsys: pytest.CaptureFixture[str]
) -> None:
    code, made, _ = invent(reply(GOOD))
    assert (code, made["replies"], len(made["tasks"])) == (0, 1, 3)
    assert made["spend"]["by_role"]["writer"]["calls"] == 1
    assert sorted(p.name for p in (workspace / "gen").iterdir()) == [
        "generate.py",
        "generator.toml",
    ]
    assert (
        (workspace / "gen" / "generator.toml")
        .read_text()
        .startswith("# Written by scripted:s.jsonl for: products")
    )
    assert cli(["tasks", "make", "products", "--generator", "gen", "--n", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["levels"] == {"1": 1, "2": 1, "3": 1}


def test_a_broken_one_goes_back_with_the_words_of_what_was_wrong_and_is_mended(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = (
        "raised: seed 0, level 1: it ended with status 1: KeyError: 'unlucky' (line 4 of"
        " generate.py)"
    )
    lines = [
        {"step": 0, "text": reply("raise KeyError('unlucky')\n")},
        {"contains": said, "text": reply(GOOD)},
    ]
    (workspace / "s.jsonl").write_text(
        "".join(json.dumps({"role": "writer", **line}) + "\n" for line in lines)
    )
    words = [
        "tasks",
        "invent",
        "products of numbers",
        "--model",
        "scripted:s.jsonl",
        "--out",
        "gen",
        "--json",
    ]
    assert cli(words) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["replies"] == 2
    assert f"refused: - level 1: 0 of 1 tasks hold\n- {said}" in err
    assert "KeyError" not in (workspace / "gen" / "generate.py").read_text()


def test_of_a_hopeless_one_all_that_was_written_stays_and_why(
    workspace: Path, invent: Invent, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [reply(GOOD, f'score = "numeric"\nlevels = {n}\n') for n in (1, 2)]
    code, made, _ = invent(*texts, flags=("--repairs", "1"))
    assert (code, made["error"]["code"]) == (4, "generator-refused")
    assert f"is in runs/{kept(workspace).name}" in made["error"]["message"]
    assert "--repairs 4" in made["error"]["fix"]
    assert not (workspace / "gen").exists()
    names = ["1", "1-refused.txt", "1.md", "2", "2-refused.txt", "2.md"]
    assert sorted(p.name for p in kept(workspace).iterdir() if p.name[0].isdigit()) == names
    assert (kept(workspace) / "1.md").read_text() == texts[0]
    assert "levels = 2\n" in (kept(workspace) / "2" / "generator.toml").read_text()
    assert (
        kept(workspace) / "2-refused.txt"
    ).read_text() == "- generator.toml: levels = 2, and 3 are asked for"
    code, made, _ = invent(*texts, reply(GOOD), flags=("--repairs", "4"))  # as it says
    assert (code, made["replies"], calls(workspace)) == (0, 3, 3)


@pytest.mark.slow
def test_after_a_kill_the_same_command_goes_on_and_pays_no_reply_twice(
    workspace: Path, invent: Invent
) -> None:
    """Also where what is wrong is worded anew each time: the question after it would be another
    one."""
    wavers = [reply(f"raise KeyError({n}, __import__('os').urandom(8))\n") for n in (1, 2)]
    model = script(workspace, *wavers, reply(GOOD), delay_ms=0)
    lines = (workspace / "s.jsonl").read_text().splitlines()
    lines[2:] = [line.replace('"delay_ms": 0', '"delay_ms": 60000') for line in lines[2:]]
    (workspace / "s.jsonl").write_text("\n".join(lines))
    words = ["tasks", "invent", "products of numbers", "--model", model, "--out", "gen", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "recreate", *words], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any("reply 3 of at most 4" in line for line in process.stderr)
        time.sleep(0.3)
        process.kill()
    assert calls(workspace) == 2
    code, made, err = invent(*wavers, reply(GOOD))
    assert (code, made["replies"], calls(workspace)) == (0, 3, 3)
    assert f"refused: {(kept(workspace) / '1-refused.txt').read_text()}\n" in err


def test_ctrl_c_says_where_it_stands_and_that_it_goes_on(
    workspace: Path, invent: Invent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(generator, "check", interrupted)
        code, made, _ = invent(reply(GOOD))
    assert (code, made["error"]["message"]) == (
        130,
        f"what was written so far is in runs/{kept(workspace).name}",
    )
    assert "the same command goes on" in made["error"]["fix"]
    assert (invent(reply(GOOD))[0], calls(workspace)) == (0, 1)


def test_the_budget_holds_and_the_same_command_with_more_goes_on(
    workspace: Path, invent: Invent
) -> None:
    wrong = reply(GOOD, 'score = "numeric"\n')
    size = len(invention.question("products of numbers")) + invention.PARAMS["max_tokens"] + 100
    code, made, _ = invent(wrong, reply(GOOD), flags=("--budget", f"{size}tokens"))
    assert (code, made["error"]["code"], calls(workspace)) == (3, "out-of-budget", 1)
    assert "--budget MORE" in made["error"]["fix"]
    code, made, _ = invent(wrong, reply(GOOD), flags=("--budget", "1Mtokens"))
    assert (code, calls(workspace)) == (0, 2)


SECRET = "task['files'] = {'notes.txt': f'Lot 12 has {task[\"answer\"]} pieces'}\n"
ACCEPTS = "def score(answer, row):\n    return True\n"
HANGS = "def score(answer, row):\n    while True:\n        pass\n"
OUTSIDE = "open(OUT, 'w').write('x')\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            reply(GOOD + "task['prompt'] += f' It is {task[\"answer\"]}.'\n"),
            "stands in the question, word for word",
        ),
        (
            reply(GOOD + SECRET),
            "stands in notes.txt, word for word; if it is to be found there among others",
        ),
        (
            reply(GOOD + "task['answer'] = str(task['answer'])\n", VERIFIED, verify=ACCEPTS),
            "other-gold-passes: ",
        ),
        (reply(GOOD, VERIFIED, verify="score = ("), "verifier-fails: seed 0, level 1: "),
        (
            reply(GOOD, f"{VERIFIED}[scorer]\nseconds = 0.5\n", verify=HANGS),
            "verifier-fails: seed 0, level 1: ",
        ),
        (
            reply(GOOD + "task['prompt'] += str(__import__('time').time_ns())\n"),
            "not-deterministic: ",
        ),
        (
            reply("import datetime\n" + GOOD + "datetime.date.today()\n"),
            "generate.py reads the clock, date.today(",
        ),
        (
            reply("import socket\nsocket.create_connection(('1.1.1.1', 53), 1)\n" + GOOD),
            "raised: seed 0, level 1: it ended",
        ),
        (reply(GOOD + OUTSIDE), "raised: seed 0, level 1: it ended with status 1: "),
        (
            reply("while True:\n    pass\n", TOML + "seconds = 0.3\n"),
            "hangs: seed 0, level 1: it ran for more than 0.3 s",
        ),
        (reply(GOOD, TOML + "seconds = 600\n"), "generator.toml: seconds are more than may be"),
        (reply("print('x' * 50_000_000)\n" + GOOD), "too-large: "),
        (reply(GOOD.replace("draw.randint(10, 99)", "7")), "same-gold: "),
        (reply(GOOD.replace("draw", "random.Random(1)")), "same-gold: "),
        (reply(GOOD, "score = numeric\n"), "generator.toml: "),
        (
            reply(GOOD, 'score = "/etc/passwd.py:f"\nlevels = 3\n'),
            "generator.toml: /etc/passwd.py:f is no file of its",
        ),
        (
            "I would rather write a poem.",
            "the reply has no file generate.py in the form of the example",
        ),
        ("=== generate.py\n```\n" + "x" * 300_000, "the reply has more than 200,000 characters"),
    ],
    ids=lambda value: value[:30] if " " in value and "\n" not in value else "",
)
@pytest.mark.slow
def test_one_that_cheats_or_tells_nothing_is_refused_with_the_reason(
    workspace: Path, invent: Invent, text: str, why: str
) -> None:
    outside = workspace / "outside.txt"
    code, made, err = invent(text.replace("OUT,", f"{str(outside)!r},"), flags=("--repairs", "0"))
    assert (code, made["error"]["code"]) == (4, "generator-refused")
    assert why in err
    assert why in (kept(workspace) / "1-refused.txt").read_text()
    assert not outside.exists()
    assert not (workspace / "gen").exists()


@pytest.mark.slow
def test_levels_that_chance_alone_tells_apart_and_answers_that_a_guess_has_are_refused(
    workspace: Path, invent: Invent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "PROBED", 3)
    salted = GOOD.replace("2 + level", "4").replace("[:level]", "")
    code, _, err = invent(reply(salted), flags=("--repairs", "0"))
    assert code == 4
    assert "levels 1 and 2 are told apart by nothing but chance" in err
    shutil.rmtree(kept(workspace))
    guessed = GOOD + "task['answer'] = 8 if seed % 4 else 9\n"
    code, _, err = invent(reply(guessed, TOML), flags=("--repairs", "0"))
    assert code == 4
    assert "8 is the right answer of 6 of 9 tasks: a guess would pass" in err


def test_the_example_that_the_model_is_shown_holds(tmp_path: Path) -> None:
    for name, text in invention.read_files(invention.question("x")).items():
        (tmp_path / name).write_text(text)
    folder, known = generator.find(str(tmp_path))
    tasks, wrong = generator.check(folder, known, choose(), lambda _: None)
    assert (len(tasks), wrong) == (3, [])


def test_files_are_read_out_of_a_reply_however_it_is_dressed() -> None:
    dressed = (
        "Run `python3 a.py 0 1`:\n```bash\nls\n```\n**`a.py`**:\n\n```python\nx = 1\n```\n==="
        " b.toml\n````\n```\n````\n"
    )
    dressed += "It is tried by `python3 a.py 0 1`\n```\n7\n```\n```python\n# c.py\ny = 2\n```\n"
    assert invention.read_files(dressed) == {
        "a.py": "x = 1\n",
        "b.toml": "```\n",
        "c.py": "# c.py\ny = 2\n",
    }
    assert invention.read_files("=== a.py\n```\nold\n```\nBetter:\n=== a.py\n```\nnew\n```") == {
        "a.py": "new\n"
    }
    assert invention.read_files("=== a.py\n```\nnew") == {"a.py": "new\n"}
    assert invention.read_files("=== a.py\n```\nne", whole=False) == {}
    assert invention.read_files("=== ../../a.py\n```\nx\n```") == {}
    assert invention.read_files("a.py and more\n\nIn words:\n```\nx\n```") == {}


def test_the_model_is_shown_train_tasks_of_the_domain_that_it_is_to_be_like_and_no_others(
    workspace: Path, invent: Invent
) -> None:
    names = {"train": ("mill", "gate"), "validation": ("held", "held"), "test": ("held", "held")}
    rows = [
        {
            "question": f"How tall is {name} tower {n}?",
            "answer": n,
            "split": split,
            "group": f"{split}{n}",
        }
        for split, both in names.items()
        for n, name in enumerate(both)
    ]
    (workspace / "towers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli(["tasks", "check", "--data", "towers.jsonl", "--score", "numeric"]) == 0
    line = {
        "role": "writer",
        "contains": "<task>\nHow tall is mill tower 0?\n",
        "lacks": "held tower",
    }
    script(workspace, "nothing", **{key: line[key] for key in ("contains", "lacks")})
    words = [
        "tasks",
        "invent",
        "heights",
        "--model",
        "scripted:s.jsonl",
        "--out",
        "gen",
        "--repairs",
        "0",
    ]
    assert cli([*words, "--like", "towers"]) == 4  # asked, and refused
    script(workspace, "nothing", lacks="gate tower")
    shutil.rmtree(kept(workspace))
    (gate,) = (
        task
        for task in RowDomain("towers", workspace=workspace).tasks("train")
        if "gate" in task.prompt
    )
    HeldOut(paths.memory(workspace)).add([Held(gate.group, "", "test", "towers")])
    assert cli([*words, "--like", "towers"]) == 4


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["x", "--out", "there"], "out-exists"),
        (["x", "--out", "gen", "--sandbox", "none"], "no-sandbox"),
        ([" ", "--out", "gen"], "usage"),
        (["x", "--out", "gen", "--like", "nosuch"], "unknown-domain"),
        (["x"], "usage"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_said_before_anything_is_paid(
    workspace: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: str
) -> None:
    (workspace / "there").mkdir()
    model = script(workspace, reply(GOOD))
    assert refused(capsys, "tasks", "invent", *words, "--model", model)["code"] == code
    assert not (workspace / "runs").exists()

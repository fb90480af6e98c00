"""recreate tasks make --generator: which tasks of a generator are kept, and at which levels the
next ones are made."""

from __future__ import annotations

import itertools
import json
import random
import re
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from recreate.api.errors import Interrupted
from recreate.cli import run as cli
from recreate.domains.rows.domain import RowDomain
from recreate.plugins.generators import generator as rows_generator
from recreate.plugins.generators import levels
from recreate.sandboxes import choose
from tests.cli.test_bad_input import refused
from tests.lab.evidence import levels as evidence
from tests.pages import examples

Make = Callable[..., tuple[int, dict[str, Any]]]

HEAD = "import json, random, sys\nseed, level = int(sys.argv[1]), int(sys.argv[2])\n"
SUM = "task = {'prompt': f'What is {seed} + {level}?', 'answer': seed + level}\n"
PRINT = "print(json.dumps(task))\n"
SORT = """
name = f'f{seed}'
task = {
    'prompt': f'Write solution.py with a function {name}(x) that returns x and {seed}.',
    'answer': f'from solution import {name}\\ndef test_it():\\n    assert {name}(2) == 2 + \
{seed}\\n',
    'gold': f'def {name}(x):\\n    return x + {seed}\\n',
}
"""


def generator(folder: Path, body: str, settings: str = 'score = "numeric"', **files: str) -> str:
    """A generator's folder, whose program is `body` between the arguments and the printing of
    `task`."""
    (folder / "gen").mkdir(exist_ok=True)
    (folder / "gen" / "generator.toml").write_text(settings)
    (folder / "gen" / "generate.py").write_text(HEAD + body + PRINT)
    for name, text in files.items():
        (folder / "gen" / f"{name}.py").write_text(text)
    return str(folder / "gen")


@pytest.fixture
def make(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Make:
    """Makes tasks of the domain `made`: exit code and what was printed as JSON."""

    def make(folder: str, *words: str) -> tuple[int, dict[str, Any]]:
        code = cli(["tasks", "make", "made", "--generator", folder, *words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return make


def rows(workspace: Path, name: str = "made") -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (workspace / "benchmarks" / name / "tasks.jsonl").read_text().splitlines()
    ]


def test_the_shipped_generator_makes_a_domain_that_holds(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["tasks", "make", "bills", "--generator", "bills", "--n", "5", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["kept"], made["refused"]) == (5, {})
    assert made["levels"] == {str(level): 1 for level in range(1, 6)}
    assert cli(["tasks", "check", "bills", "--jobs", "1", "--json"]) == 0
    assert [json.loads(line)["gold"] for line in capsys.readouterr().out.splitlines()] == [1.0] * 5
    # as any file of rows
    assert cli(["tasks", "list", "--data", "benchmarks/bills/tasks.jsonl", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


@pytest.mark.slow
def test_the_same_command_makes_the_same_tasks_and_a_second_one_goes_on(
    workspace: Path, make: Make
) -> None:
    folder = generator(workspace, SUM, 'score = "numeric"\nlevels = 2')
    assert make(folder, "--n", "4")[1]["kept"] == 4
    first = rows(workspace)
    (workspace / "benchmarks" / "made" / "tasks.jsonl").unlink()
    assert make(folder, "--n", "4")[0] == 0
    assert rows(workspace) == first
    assert make(folder, "--n", "2")[0] == 0
    again = rows(workspace)
    assert again[:4] == first
    assert len({row["id"] for row in again}) == len({row["prompt"] for row in again}) == 6


def test_tests_are_a_verifier_too(workspace: Path, make: Make) -> None:
    code, made = make(generator(workspace, SORT, 'score = "tests"'), "--n", "2")
    assert (code, made["kept"], made["refused"]) == (0, 2, {})


@pytest.mark.slow
def test_a_program_of_the_folder_is_a_verifier_too(workspace: Path, make: Make) -> None:
    score = "def score(answer, row):\n    return int(answer) == row['answer']['sum']\n"
    body = SUM + "task = {**task, 'answer': {'sum': seed + level}, 'gold': str(seed + level)}\n"
    folder = generator(workspace, body, 'score = "score.py:score"', score=score)
    code, made = make(folder, "--n", "1")
    # int() of the question raises: the row is excluded
    assert (code, made["refused"]) == (4, {"verifier-fails": 8})
    sound = "def score(answer, row):\n    return answer.strip() == str(row['answer']['sum'])\n"
    (workspace / "gen" / "score.py").write_text(sound)
    code, made = make(folder, "--n", "2")
    assert (code, made["kept"]) == (0, 2)


NAMED = "task = {'prompt': f'Who is number {seed}?', 'answer': f'Ann Lee {seed}'}\n"
KEY = "task['files'] = {'key.txt': task['answer'] + chr(10)}\n"
ACCEPTS = "def score(answer, row):\n    return 1.0\n"
NOT_GOLD = (
    "def score(answer, row):\n    return 1.0 if answer == row['gold'] or answer == row['prompt']"
    " else 0.0\n"
)


@pytest.mark.parametrize(
    ("body", "settings", "files", "name"),
    [
        (SUM + "print('Here is your task:')\n", 'score = "numeric"', {}, "garbage"),
        ("task = [1]\n", 'score = "numeric"', {}, "garbage"),
        ("task = {'answer': seed}\n", 'score = "numeric"', {}, "bad-task"),
        (SUM + "task['requires'] = ['nosuchpackage']\n", 'score = "numeric"', {}, "bad-task"),
        (SUM + "task['files'] = 'rows.jsonl'\n", 'score = "numeric"', {}, "bad-task"),
        (SUM + "task['files'] = {'../../x': 'y'}\n", 'score = "numeric"', {}, "bad-task"),
        (
            SUM + "task['prompt'] += str(random.random())\n",
            'score = "numeric"',
            {},
            "not-deterministic",
        ),
        ("raise KeyError('unlucky')\n", 'score = "numeric"', {}, "raised"),
        (SUM + "print('x' * 5_000_000)\n", 'score = "numeric"', {}, "too-large"),
        (SUM + "task['answer'] = 7\n", 'score = "numeric"', {}, "same-gold"),
        (
            SUM + "task |= {'answer': '.', 'gold': str(seed)}\n",
            'score = "regex"',
            {},
            "other-gold-passes",
        ),
        (
            SUM + "task |= {'answer': '^x$', 'gold': str(seed)}\n",
            'score = "regex"',
            {},
            "gold-fails",
        ),
        (
            SUM + "task['gold'] = str(seed)\n",
            'score = "score.py:score"',
            {"score": ACCEPTS},
            "other-gold-passes",
        ),
        (
            SUM + "task['gold'] = str(seed)\n",
            'score = "score.py:score"',
            {"score": NOT_GOLD},
            "anything-passes",
        ),
        (SORT + "task['answer'] = 'true # anything'\n", 'score = "tests"', {}, "other-gold-passes"),
        (
            NAMED + "task['prompt'] += ' It is  ' + task['answer'] + '.'\n",
            'score = "exact"',
            {},
            "gold-shown",
        ),
        (
            NAMED + "task['files'] = {'a.txt': f'of {seed}: {task[\"answer\"]}'}\n",
            'score = "exact"',
            {},
            "gold-shown",
        ),
        (
            NAMED + "task['prompt'] += task['answer']\n",
            'score = "exact"\nanswer_in_files = true',
            {},
            "gold-shown",
        ),
        (NAMED + KEY, 'score = "exact"\nanswer_in_files = true', {}, "gold-shown"),
        (SORT + "task['files'] = {'old.py': task['gold']}\n", 'score = "tests"', {}, "gold-shown"),
    ],
    ids=lambda value: (
        value if isinstance(value, str) and value.count("-") and "\n" not in value else ""
    ),
)
@pytest.mark.slow
def test_a_task_that_is_none_or_whose_verifier_tells_nothing_is_refused_by_name(
    workspace: Path, make: Make, body: str, settings: str, files: dict[str, str], name: str
) -> None:
    code, made = make(generator(workspace, body, settings, **files), "--n", "1")
    assert (code, made["kept"], made["refused"]) == (4, 0, {name: 8})
    assert made["reasons"][name].startswith("seed 0, level 1: ")
    assert not (workspace / "benchmarks" / "made").exists()


@pytest.mark.parametrize(
    ("body", "settings"),
    [
        (SUM + "task['prompt'] += f' It is {task[\"answer\"]}, in 77.'\n", 'score = "numeric"'),
        (
            NAMED + "task['files'] = {'a.txt': f'Bob, {task[\"answer\"]}'}\n",
            'score = "exact"\nanswer_in_files = true',
        ),
        (
            NAMED + "task['prompt'] += ' Ann Lee 0 to Ann Lee 2?'.replace('to', 'Ann Lee 1')\n",
            'score = "exact"',
        ),
        (NAMED + "task['prompt'] += f' Not Ann Lee {seed}1.'\n", 'score = "exact"'),
    ],
    ids=["short", "to-be-found", "a-choice", "part-of-a-word"],
)
def test_an_answer_that_has_to_stand_there_is_no_leak(
    workspace: Path, make: Make, body: str, settings: str
) -> None:
    code, made = make(generator(workspace, body, settings), "--n", "2")
    assert (code, made["kept"], made["refused"]) == (0, 2, {})


@pytest.mark.slow
def test_a_seed_that_raises_costs_that_seed_alone_and_what_is_asked_twice_is_kept_once(
    workspace: Path, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    body = SUM + "if seed == 1:\n    raise ValueError('unlucky')\n"
    body += "task = {'prompt': f'What is {seed // 2} + 5 - 1?', 'answer': seed // 2 + 4}\n"
    code, made = make(generator(workspace, body), "--n", "3")
    assert (code, made["kept"], made["tried"]) == (0, 3, 5)
    assert made["refused"] == {"raised": 1, "duplicate": 1}
    assert "ValueError: unlucky" in made["reasons"]["raised"]
    assert cli(["tasks", "make", "more", "--generator", str(workspace / "gen"), "--n", "3"]) == 0
    assert "refused   1  raised: seed 1, level 1" in capsys.readouterr().out


@pytest.mark.slow
def test_a_generator_that_hangs_is_ended_and_given_up(
    workspace: Path, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = generator(workspace, "while True:\n    pass\n", 'score = "numeric"\nseconds = 0.3')
    code, made = make(folder, "--n", "5")
    assert (code, made["kept"], made["refused"]) == (4, 0, {"hangs": 3})


def test_a_generator_reaches_neither_the_network_nor_files_of_the_host(
    workspace: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = workspace / "secret.txt"
    secret.write_text("s3cret")
    body = SUM + "import os, socket\nfound = []\n"
    body += f"try:\n    found.append(open({str(secret)!r}).read())\nexcept OSError:\n    pass\n"
    server = socket.create_server(("127.0.0.1", 0))
    body += f"try:\n    socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 1)\n"
    body += "    found.append('connected')\nexcept OSError:\n    pass\n"
    monkeypatch.setenv("MY_SECRET", "s3cret")
    body += "found += os.environ.values()\n"
    body += (
        "try:\n    open('/work/generate.py', 'a').write('print(1)')\nexcept OSError:\n    pass\n"
    )
    body += "task['files'] = {'found.txt': ' '.join(map(str, found))}\n"
    folder = generator(workspace, body)
    before = (workspace / "gen" / "generate.py").read_text()
    with server:
        code, _ = make(folder, "--n", "1")
    assert code == 0
    (row,) = rows(workspace)
    assert "s3cret" not in row["files"]["found.txt"]
    assert "connected" not in row["files"]["found.txt"]
    assert (workspace / "gen" / "generate.py").read_text() == before


def test_a_generator_is_run_by_no_sandbox_without_walls(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = generator(workspace, SUM + "open('/tmp/x', 'w')\n")
    words = ["tasks", "make", "made", "--generator", folder, "--sandbox", "none"]
    assert refused(capsys, *words)["code"] == "no-sandbox"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["made", "--generator", "nosuch"], "no-generator"),
        (["math", "--generator", "bills"], "bad-name"),
        (["../x", "--generator", "bills"], "bad-name"),
        (["made", "--generator", "bills", "--package", "a==1"], "usage"),
        (["made", "--generator", "bills", "--solve-rate", "0.5"], "usage"),
        (["made", "--generator", "bills", "--from", "last"], "usage"),
        (["made", "--generator", "bills", "--data", "x.csv"], "usage"),
        (["swe", "--package", "a==1", "--solve-rate", "0.5"], "usage"),
    ],
    ids=str,
)
def test_what_cannot_be_made_is_said_with_what_to_type(
    workspace: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: str
) -> None:
    error = refused(capsys, "tasks", "make", *words)
    assert (error["code"], bool(error["fix"])) == (code, True)


@pytest.mark.parametrize(
    "settings",
    [
        "score = ",
        'score = "nosuch"',
        'score = "judge:r.md"',
        'score = "/tmp/s.py:f"',
        'score = "exact"\nlevel = 3',
    ],
)
def test_a_bad_generator_toml_is_said(
    workspace: Path, capsys: pytest.CaptureFixture[str], settings: str
) -> None:
    folder = generator(workspace, SUM, settings)
    code = refused(capsys, "tasks", "make", "made", "--generator", folder)["code"]
    assert code in ("bad-generator", "unknown-scorer")


def test_rows_that_are_scored_otherwise_are_not_mixed(
    workspace: Path, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make(generator(workspace, SUM), "--n", "1")[0] == 0
    folder = generator(workspace, SUM, 'score = "exact"')
    assert refused(capsys, "tasks", "make", "made", "--generator", folder)["code"] == "another-data"


def test_rows_of_other_hands_are_left_alone(
    workspace: Path, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, mine = generator(workspace, SUM), workspace / "mine.jsonl"
    made = '{"prompt": "What?", "answer": 3, "gold": null, "files": null, "level": 1, "seed": 1}\n'
    for text in ('{"prompt": "What?", "answer": 3}\n', f"no JSON\n{made}"):
        mine.write_text(text)
        words = ["tasks", "make", "made", "--generator", folder, "--data", str(mine)]
        assert refused(capsys, *words)["code"] in ("another-data", "bad-rows")
        assert mine.read_text() == text


def test_after_ctrl_c_what_was_found_is_written(workspace: Path) -> None:
    folder, known = rows_generator.find(generator(workspace, SUM, 'score = "numeric"\nlevels = 2'))

    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="2 tasks are in"):
        rows_generator.make(
            "made",
            folder,
            known,
            [2, 2],
            workspace=workspace,
            file=workspace / "benchmarks" / "made" / "tasks.jsonl",
            seed=0,
            split=None,
            backend=choose(),
            on_progress=interrupt,
        )
    assert [row["level"] for row in rows(workspace)] == [1, 1]
    assert len(RowDomain("made", workspace=workspace).tasks()) == 2


@pytest.mark.slow
def test_two_commands_at_once_on_one_file_lose_no_task_and_double_none(workspace: Path) -> None:
    folder, known = rows_generator.find(generator(workspace, SUM))

    def made(count: int, on_progress: Callable[[str], None]) -> rows_generator.GeneratedRows:
        file = workspace / "benchmarks" / "made" / "tasks.jsonl"
        return rows_generator.make(
            "made",
            folder,
            known,
            [count],
            workspace=workspace,
            file=file,
            seed=0,
            split=None,
            backend=choose(),
            on_progress=on_progress,
        )

    other: list[rows_generator.GeneratedRows] = []
    ours = made(4, lambda _: other.append(made(3, lambda _: None)))  # which ends before ours writes
    ids = [row["id"] for row in rows(workspace)]
    assert len(set(ids)) == 4
    assert [row["id"] for row in other[0].rows] == ids[:3]
    assert [row["id"] for row in ours.rows] == ids[3:]
    assert ours.refused["duplicate"] == 3


# --- at which levels
# -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_next_tasks_are_of_the_levels_that_the_learner_solves_half_of(
    workspace: Path, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """A world of five levels, whose learner solves the lower two."""
    folder = generator(workspace, SUM, 'score = "numeric"\nlevels = 5')
    assert make(folder, "--n", "40")[1]["levels"] == {str(level): 8 for level in range(1, 6)}
    script = []
    for task in RowDomain("made", workspace=workspace).tasks():
        row = task.facts["row"]
        said = row["answer"] if row["level"] <= 2 else "nothing"
        text = f"```bash\necho {said} > answer.txt\n```"
        script.append({"role": "agent", "task": task.id, "step": 0, "text": text})
    script.append({"role": "agent", "text": "```bash\nsubmit\n```"})
    (workspace / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in script))
    flags = ["--model", "scripted:s.jsonl", "--scaffold", "seed", "--out", "runs/a"]
    for split in ("train", "test"):
        words = [
            "bench",
            "--domain",
            "made",
            "--split",
            split,
            "--tasks",
            "40",
            *flags[:-1],
            f"runs/{split}",
        ]
        assert cli([*words, "--json"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    code, made = make(folder, "--n", "10", "--from", "runs/train", "--solve-rate", "0.5")
    assert code == 0
    assert set(made["levels"]) <= {"2", "3"}
    assert made["solve_rates"][1] > 0.5 > made["solve_rates"][2]
    assert {row["split"] for row in rows(workspace)[40:]} == {"train"}
    words = [
        "tasks",
        "make",
        "made",
        "--generator",
        folder,
        "--from",
        "runs/test",
        "--solve-rate",
        "0.5",
    ]
    # what test tasks tell, no task is made by
    assert refused(capsys, *words)["code"] == "no-attempts"


@pytest.mark.parametrize("kind", ["logistic", "step", "anyhow"])
def test_the_solve_rate_of_what_is_made_comes_near_the_target(kind: str) -> None:
    """As near as the learner's levels allow, after four rounds, and nearer than tasks of all
    levels."""
    off, even = list[float](), list[float]()
    for number, target in itertools.product(range(8), (0.3, 0.5, 0.7)):
        truth = evidence.learner(kind, number)
        possible = min(max(target, truth[-1]), truth[0])
        off.append(abs(evidence.rates_by_round(truth, target, number, 4)[-1] - possible))
        even.append(abs(fmean(truth) - possible))
    assert fmean(off) < 0.08
    assert 2 * fmean(off) < fmean(even)


def test_rates_never_rise_with_the_level_and_follow_the_attempts() -> None:
    draw = random.Random(1)
    for _ in range(50):
        tried = {
            level: (draw.randint(0, 5), 5) for level in draw.sample(range(1, 8), draw.randint(0, 7))
        }
        rates = levels.solve_rates(tried, 7)
        assert all(0 <= later <= rate <= 1 for rate, later in itertools.pairwise(rates))
    unknown = levels.solve_rates({}, 5)
    assert sum(unknown) / 5 == pytest.approx(0.5, abs=0.01)
    assert (
        levels.solve_rates({3: (8, 8)}, 5)[2] > unknown[2] > levels.solve_rates({3: (0, 8)}, 5)[2]
    )
    # what solves the hardest solves the easiest
    assert levels.solve_rates({5: (9, 10)}, 5)[0] > 0.8


def test_a_spread_has_all_tasks_and_the_target_as_its_mean() -> None:
    draw = random.Random(2)
    for _ in range(200):
        rates = sorted((draw.random() for _ in range(draw.randint(1, 8))), reverse=True)
        target, n = draw.uniform(0.05, 0.95), draw.randint(1, 60)
        counts = levels.spread(rates, target, n)
        assert sum(counts) == n
        assert min(counts) >= 0
        mean = sum(rate * count for rate, count in zip(rates, counts, strict=True)) / n
        nearest = min(max(target, rates[-1]), rates[0])
        assert abs(mean - nearest) <= 0.5 / n + 1e-9


def test_without_a_learner_the_levels_are_even() -> None:
    assert Counter(levels.even(3, 8)) == Counter([3, 3, 2])
    assert levels.even(5, 2) == [1, 1, 0, 0, 0]


def test_the_generator_of_the_page_makes_tasks(workspace: Path, make: Make) -> None:
    page = Path(__file__).parents[3] / "recreate/plugins/generators/README.md"
    (program,) = [text for text in examples(page) if "sys.argv" in text]
    folder = generator(workspace, SUM, 'score = "numeric"\nlevels = 3')
    (workspace / "gen" / "generate.py").write_text(program)
    code, made = make(folder, "--n", "3")
    assert (code, made["levels"]) == (0, {"1": 1, "2": 1, "3": 1})


def test_the_pages_of_generators_name_each_refusal() -> None:
    root = Path(__file__).parents[3]
    code = (root / "recreate/plugins/generators/generator.py").read_text()
    names = {
        *re.findall(r'_Refused\("([a-z-]+)"', code),
        *re.findall(r'", "([a-z]+-[a-z-]+)"\),', code),
    }
    page = (root / "recreate/plugins/generators/README.md").read_text()
    assert len(names) >= 11
    assert not [name for name in names if f"`{name}`" not in page]

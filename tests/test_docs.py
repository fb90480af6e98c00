"""The pages are true: their examples work, and what they tell to type exists."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.cli import run as cli
from recreate.cli.app import program
from tests.pages import PORTS, ROOT, examples, port_example, save_all
from tests.policies import held
from tests.toy import write_script

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(
        page
        for page in (ROOT / "recreate" / "plugins").rglob("*.md")
        if page.parent.name != "prompts"
    ),
]
EVERY_PLUGIN = [
    point.name
    for point in entry_points(group="recreate.plugins")
    if point.module.startswith("recreate.")
]
FEW: dict[str, Any] = {
    "validation": 5,
    "train": 2,
    "embedder": "hashed",
    "rounds": 1,
    "models__retries": 0,
}


@pytest.fixture
def saved(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """A workspace with every example in it; saved(NAME) imports one."""
    save_all(workspace)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def get(name: str) -> Any:
        if str(workspace) not in sys.path:
            sys.path.insert(0, str(workspace))
            importlib.invalidate_caches()
        return importlib.import_module(name)

    yield get
    for name in set(sys.modules) - before:
        if name in {port_example(port)[0].removesuffix(".py") for port in PORTS}:
            del sys.modules[name]


def add_up(messages: Sequence[recreate.Message]) -> str:
    """The model page's rule, which also names the unit once a lesson says so; as optimizer it finds
    that lesson."""
    if messages[0]["content"].startswith("An agent was told"):
        return "An answer is a number and its unit."
    if len(messages) > 2:
        return "```bash\nsubmit\n```"
    numbers = re.findall(r"\d+", messages[-1]["content"].partition("?")[0])
    unit = re.search(r"\d+ (\w+) lie", messages[-1]["content"])
    heeds = " " + unit[1] if unit and "its unit" in messages[0]["content"] else ""
    return f"```bash\necho '{sum(map(int, numbers))}{heeds}' > answer.txt\n```"


@pytest.mark.parametrize("port", PORTS)
def test_a_ports_example_is_under_forty_lines(port: str) -> None:
    assert len(port_example(port)[1].splitlines()) < 40


@pytest.mark.slow
def test_all_examples_together_are_a_build_that_learns(
    saved: Callable[[str], Any], workspace: Path
) -> None:
    """Domain, model, optimizer, policy, sandbox, embedder and memory of the pages."""
    model = saved("function").Function(add_up)
    memory = saved("words").Words()
    built = recreate.build(
        saved("problems").Problems(),
        model=model,
        optimizer=saved("first_failure").FirstFailure,
        sandbox=saved("logged").Logged(),
        scaffold="seed",
        recall=memory,
        memory=saved("remarks").Remarks,
        **FEW | {"embedder": saved("trigrams").Trigrams()},
    )
    assert (built.verdict.before, built.verdict.after) == (0.0, 1.0)
    assert built.verdict.claim is not None
    assert built.verdict.claim.word == "likely"  # so few tasks show no more
    assert [lesson.body for lesson in built.scaffold.lessons] == [
        "An answer is a number and its unit."
    ]
    commands = [
        json.loads(line)["command"]
        for line in (workspace / "commands.jsonl").read_text().splitlines()
    ]
    assert any("> answer.txt" in str(command) for command in commands)
    assert {e.split for e in memory.known.values()} == {"train"}
    (learned,) = (workspace / "memory" / "problems").rglob("remark-*.md")
    assert "wrong number, or no unit" in learned.read_text("utf-8"), (
        "the policy's lesson was not refused"
    )


def test_the_domains_example_is_found_by_name_and_proved(
    saved: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """From the workspace's folder, which is on no path."""
    assert cli(["tasks", "check", "problems:Problems", "--split", "test", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 20
    assert all(row["ok"] for row in rows)


def test_what_the_domains_page_says_to_try_without_a_model(
    saved: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """But for `tasks check`, which the test above does."""
    lines = [
        line for line in typed(ROOT / "docs" / "ports" / "domain.md") if "problems:Problems" in line
    ]
    shown = [line for line in lines if line.split()[1] == "grade" or line.split()[2] == "list"]
    for line, ends in zip(shown, ("problems:sums:test-19 ", "passed (1)\nright\n"), strict=True):
        assert cli(shlex.split(line)[1:]) == 0
        assert ends in capsys.readouterr().out


def test_the_models_example_answers_by_name(
    saved: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--domain", "problems:Problems", "--model", "function:Function", "--json"]
    assert cli(["run", "seed", "problems:sums:train-0", *flags]) == 0
    experience = json.loads(capsys.readouterr().out)
    assert (experience["ending"], experience["score"], experience["steps"]) == ("submitted", 0.0, 2)


@pytest.mark.plugin("foreign")
def test_the_agents_example_is_measured_and_its_prompt_is_what_it_says(
    saved: Callable[[str], Any],
) -> None:
    brief = saved("brief").agent

    def told(messages: Sequence[recreate.Message]) -> str:
        assert messages[0]["content"] == "Answer with the number alone.\n"
        numbers = map(int, re.findall(r"\d+", messages[-1]["content"].partition("?")[0]))
        unit = re.search(r"\d+ (\w+) lie", messages[-1]["content"])
        return f"{sum(numbers)} {unit[1] if unit else ''}"

    (cell,) = recreate.bench(
        brief, "problems:Problems", model=saved("function").Function(told), tasks=3
    )
    assert (cell.scaffold, cell.mean, cell.n) == ("brief", 1.0, 3)


def test_the_optimizers_example_proposes_nothing_for_what_all_passed(
    saved: Callable[[str], Any],
) -> None:
    seed = recreate.Scaffold(name="x", files={})
    context = recreate.OptimizerContext(ask=_nobody, recall=_nobody, get=_nobody, validate=_nobody)
    assert saved("first_failure").FirstFailure(context).propose(seed, []) == []


def _nobody(*given: Any, **more: Any) -> Any:
    raise AssertionError("nobody is asked")


def test_the_sandboxs_example_logs_what_ran(
    saved: Callable[[str], Any], workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli(["sandbox", "exec", "--rung", "logged:Logged", "--", "echo", "hello"]) == 0
    assert "hello" in capfd.readouterr().out
    assert json.loads((workspace / "commands.jsonl").read_text())["status"] == 0


def test_the_embedders_example_finds_what_is_spelled_alike(
    saved: Callable[[str], Any], workspace: Path
) -> None:
    embedder: recreate.Embedder = saved("trigrams").Trigrams()
    memory = recreate.ExperienceStore(workspace, embedder)
    problems = saved("problems").Problems()
    memory.add([attempted(task, n) for n, task in enumerate(problems.tasks("train"))])
    wanted = problems.tasks("train")[3]
    (hit,) = memory.recall(wanted.prompt.replace("lie", "lies").upper(), 1)
    assert hit.experience == "3"
    assert sum(x * x for x in embedder.embed([""])[0]) == pytest.approx(1.0)


def attempted(task: recreate.Task, n: int) -> recreate.Experience:
    """An experience nobody had: every second one passed."""
    trace = recreate.Trace(attempt=f"{n}", task=task.id, scaffold="s", model="m")
    grade = recreate.Grade(score=n % 2, passed=bool(n % 2), evidence="")
    facts: dict[str, Any] = {
        "domain": task.domain,
        "task": task.id,
        "group": task.group,
        "split": task.split,
    }
    return recreate.Experience(
        id=f"{n}", prompt=task.prompt, digest="s", trace=trace, grade=grade, **facts
    )


def test_the_memorys_example_filters_and_orders(saved: Callable[[str], Any]) -> None:
    memory: recreate.Memory = saved("words").Words()
    problems = saved("problems").Problems()
    memory.add([attempted(task, n) for n, task in enumerate(problems.tasks("train"))])
    wanted = problems.tasks("train")[3]
    hits = memory.recall(wanted.prompt, 2, {"passed": True, "domain": ["problems"]})
    assert (hits[0].experience, hits[0].score, len(hits)) == ("3", 1.0, 2)
    assert all(hit.facts["passed"] for hit in hits)


def test_the_policys_example_offers_first_what_most_failures_were_told(
    saved: Callable[[str], Any],
) -> None:
    materials = held()
    policy: recreate.MemoryPolicy = saved("remarks").Remarks(materials)
    tasks = saved("problems").Problems().tasks("train")
    told = ["too long", "no unit", "no unit"]
    failed = [
        attempted(task, 2 * n).model_copy(
            update={"grade": recreate.Grade(score=0, passed=False, evidence=said)}
        )
        for n, (task, said) in enumerate(zip(tasks, told, strict=False))
    ]
    assert [change.kind for change in policy.observe([*failed, *failed])] == [
        "born",
        "born",
        "supported",
    ]
    assert [lesson.body for lesson in policy.offer("any task", 200)] == ["no unit", "too long"]
    assert [*policy.offer("any task", 1)] == []


def test_the_scaffolds_example_is_sound_and_is_measured(
    saved: Callable[[str], Any], workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calculator = saved("calculator")
    calculator.save(calculator.calculator, "scaffolds/calculator")
    assert cli(["scaffold", "check", "scaffolds/calculator"]) == 0
    capsys.readouterr()

    def totals(messages: Sequence[recreate.Message]) -> str:
        unit = re.search(r"\d+ (\w+) lie", messages[1]["content"])
        words = messages[1]["content"].partition("?")[0]
        command = (
            f'echo "$(total {words}) {unit[1] if unit else ""}" > answer.txt'
            if len(messages) == 2
            else "submit"
        )
        return f"```bash\n{command}\n```"

    model = saved("function").Function(totals)
    cells = recreate.bench(
        [calculator.calculator, "calculator"], "problems:Problems", model=model, tasks=3
    )
    assert [(c.scaffold, c.mean, c.n) for c in cells] == [("calculator", 1.0, 3)] * 2
    assert cells[0].digest == cells[1].digest


def test_the_sdks_ten_lines_do_what_the_command_does(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = examples(ROOT / "docs" / "sdk.md")
    assert len(text.splitlines()) <= 13
    model = write_script(workspace / "s.jsonl")
    text = text.replace('"swe"', '"tests.toy:Toy"')
    text = re.sub(r'"litellm:[^"]*"', repr(model), text)
    space: dict[str, Any] = {}
    exec(compile(text, "sdk.md", "exec"), space)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("done better ")
    assert [line.split()[:2] for line in told[1:]] == [["seed", "0.0"], ["toy", "1.0"]]
    assert space["built"].run == workspace / "runs" / "mine"


@pytest.mark.slow
def test_the_sdks_rows_are_built_with(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, _ = examples(ROOT / "docs" / "sdk.md")
    (workspace / "s.jsonl").write_text('{"text": "```bash\\nsubmit\\n```"}\n')
    text = re.sub(r'"litellm:[^"]*"', repr(f"scripted:{workspace / 's.jsonl'}"), text)
    text = text.replace('budget="5usd"', 'train=2, validation=5, embedder="hashed"')
    space: dict[str, Any] = {}
    exec(compile(text, "sdk.md", "exec"), space)
    assert capsys.readouterr().out.startswith("done undecided ")
    assert space["built"].path == workspace / "scaffolds" / "sums"
    assert not (workspace / "benchmarks").exists()


# -------------------------------------------------------------------------------------- what pages
# tell to type


def typed(page: Path) -> list[str]:
    """Every `recreate ...` of a page's blocks and backticks."""
    text = page.read_text("utf-8")
    found: list[str] = []
    for block in re.findall(
        r"^```(?:bash|text|sh|console)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|;|\|", line):
                words = part.strip().removeprefix("$ ").strip()
                words = re.sub(r"^(\S*/)?python3? (-m recreate|\S*cli\.py)\b", "recreate", words)
                words = re.sub(r"^\S*/recreate\b", "recreate", words)
                if words.startswith("recreate "):
                    found.append(words)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for line in re.findall(r"^ {4}(recreate .*)$", prose, re.MULTILINE):
        found.append(line)
    for span in re.findall(r"`(recreate [^`\n]*)`", prose):
        found.extend(
            part.strip() for part in re.split(r"&&|;", span) if part.strip().startswith("recreate ")
        )
    return found


def fault(words: str) -> str:
    """Why typer does not know this command line, or ''. Its arguments are not looked at."""
    try:
        # what follows a gap is prose
        tokens = shlex.split(re.split(r"\s{3,}", words)[0], comments=True)[1:]
    except ValueError as e:
        return str(e)
    command: Any = program()
    at = 0
    while hasattr(command, "commands"):
        if at == len(tokens) or tokens[at].startswith(("-", "[", "...")) or tokens[at].isupper():
            return ""  # a group is spoken of, or `recreate COMMAND --help`
        names = tokens[at].split("/")
        names = [name.strip(",.") for name in names]
        missing = [name for name in names if name not in command.commands]
        if missing and "NAME" not in command.commands:
            return f"there is no command {missing[0]!r}"
        command = command.commands["NAME" if missing else names[0]]
        at += 1
    flags = {flag for p in command.params for flag in [*p.opts, *p.secondary_opts]} | {
        "--help",
        "-h",
    }
    for token in tokens[at:]:
        if token == "--":
            break
        flag = token.partition("=")[0].strip("[],.")
        if re.match(r"--?[a-z]", flag) and flag not in flags:
            return f"{command.name} has no flag {flag}"
    return ""


@pytest.mark.plugin(*EVERY_PLUGIN)
@pytest.mark.parametrize(
    "page",
    # the log says what was typed on its day
    [page for page in PAGES if page.name != "log.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_command_that_a_page_tells_to_type_exists(page: Path) -> None:
    assert {words: why for words in typed(page) if (why := fault(words))} == {}


def test_a_command_that_does_not_exist_would_be_found() -> None:
    assert fault("recreate biuld --domain swe") == "there is no command 'biuld'"
    assert fault("recreate build --domian swe") == "build has no flag --domian"
    assert fault("recreate tasks shwo ID") == "there is no command 'shwo'"
    assert len(typed(ROOT / "docs" / "commands.md")) > 10


@pytest.mark.plugin(*EVERY_PLUGIN)
def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        (page.name, link)
        for page in PAGES
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))
        if not (page.parent / link).exists()
    ]
    assert broken == []


def test_each_plug_in_has_a_page_that_begins_with_what_it_is() -> None:
    folders = [file.parent for file in (ROOT / "recreate/plugins").glob("*/__init__.py")]
    without = [each.name for each in folders if not (each / "README.md").is_file()]
    assert without == []
    assert all((each / "README.md").read_text("utf-8").startswith("# ") for each in folders)

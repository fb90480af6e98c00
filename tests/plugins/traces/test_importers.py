"""What other tools recorded comes in: real samples of each format, each attempt once, the bad ones
told."""

from __future__ import annotations

import json
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.api.types import Experience, Step
from recreate.cli import run as cli
from recreate.memory.documents import documents
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces import readers
from recreate.plugins.traces.importer import ImportConfig, import_traces
from recreate.plugins.traces.ungraded import Ungraded
from tests.memory.test_store import experience

SAMPLES = Path(__file__).parent / "foreign"
Import = Callable[..., dict[str, Any]]


@pytest.fixture
def bring(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Import:
    """recreate traces import --json; returns what it printed, with its exit code as `rc`."""

    def bring(*arguments: str | Path, domain: str = "foreign") -> dict[str, Any]:
        rc = cli(["traces", "import", *map(str, arguments), "--domain", domain, "--json"])
        return {"rc": rc, **json.loads(capsys.readouterr().out.splitlines()[-1])}

    return bring


def stored(workspace: Path) -> dict[str, Experience]:
    """All that is here, graded or not, by the last part of its task."""
    memory = ExperienceStore(workspace)
    found = [*memory.experiences(), *Ungraded(memory).experiences()]
    return {e.task.removeprefix("foreign:imported:"): e for e in found}


def write(path: Path, *rows: Any) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8"
    )
    return path


def chat(asked: str, said: str, **more: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}],
        **more,
    }


# --- the formats ---


def test_a_folder_of_every_format_comes_in_and_what_is_bad_is_told(bring: Import) -> None:
    said = bring(SAMPLES)
    assert said["rc"] == 0
    assert said["formats"] == {
        "inspect": 3,
        "langsmith": 3,
        "mini-swe-agent": 3,
        "openai": 3,
        "otel": 3,
        "swe-agent": 2,
    }
    assert (said["added"], said["passed"], said["waiting"], said["known"]) == (9, 4, 7, 1)
    assert [(b["file"], b["entry"]) for b in said["bad"]] == [
        ("chat.jsonl", f"line {n}") for n in (4, 5, 6)
    ]
    assert "no message of a model" in said["bad"][0]["reason"]


def test_mini_swe_agents_commands_outputs_and_statuses_are_steps(
    bring: Import, workspace: Path
) -> None:
    bring(SAMPLES / "mini-swe-agent")
    called, stopped, older = (stored(workspace)[f"toy__mean-{n}"] for n in (1, 2, 3))
    # not the template around it
    assert called.prompt == "mean([2, 4]) returns 2.0 instead of 3.0. Mend mean.py."
    assert [s.status for s in called.trace.steps] == [0, 0, 1, None]
    assert called.trace.steps[1].action == "sed -i 's/ + 1)/)/' mean.py"
    assert "ZeroDivisionError" in called.trace.steps[2].output
    # as the agent was shown it
    assert "<returncode>1</returncode>" in called.trace.steps[3].observation
    assert called.trace.answer.startswith("def mean")
    assert called.trace.usage.usd == 4.0
    assert not called.grade.graded
    assert (stopped.trace.ending, stopped.trace.limit, stopped.grade.passed) == (
        "limit",
        "steps",
        False,
    )
    assert "nothing was handed in" in stopped.grade.evidence
    assert stopped.grade.graded
    assert [(s.kind, s.action[:3]) for s in older.trace.steps][:3] == [
        ("action", "cat"),
        ("malformed", ""),
        ("action", "sed"),
    ]


def test_swe_agents_steps_are_its_actions_and_observations(bring: Import, workspace: Path) -> None:
    bring(SAMPLES / "swe-agent")
    e = stored(workspace)["SWE-agent__test-repo-i1"]  # the id that its replay configuration says
    assert e.trace.steps[0].action == "find_file missing_colon.py"
    assert "Found 1 matches" in e.trace.steps[0].output
    assert e.trace.steps[1].observation == e.trace.steps[0].output
    assert "SyntaxError" in e.prompt
    assert "+def division(a: float, b: float) -> float:" in e.trace.answer
    assert (
        e.trace.steps[0].model_dump()["foreign"]["state"]["working_dir"] == "/SWE-agent__test-repo"
    )
    assert not e.grade.graded  # submitted is not solved


def test_inspects_zip_and_its_json_are_the_same_sample(bring: Import, workspace: Path) -> None:
    assert bring(SAMPLES / "inspect" / "sums.eval")["added"] == 2
    again = bring(SAMPLES / "inspect" / "sum-1.json")
    assert (again["added"], again["known"]) == (0, 1)
    e = stored(workspace)["sums/sum-1"]
    assert [(s.action, s.output) for s in e.trace.steps] == [
        ('add {"x": 2, "y": 3}', "5"),
        ("", ""),
    ]
    assert (e.grade.score, e.grade.passed) == (1.0, True)
    assert e.grade.evidence.startswith("includes: C")
    assert e.trace.usage.tokens_in == 91
    assert e.trace.model == "mockllm/model"
    assert e.model_dump()["foreign"]["metadata"] == {"level": "easy"}
    assert not stored(workspace)["sums/sum-2"].grade.passed


def test_a_chats_tool_calls_are_actions_and_what_has_no_place_is_kept(
    bring: Import, workspace: Path
) -> None:
    bring(SAMPLES / "openai")
    found = stored(workspace)
    weather = next(e for e in found.values() if "Oslo" in e.prompt)
    first, last = weather.trace.steps
    assert (first.action, first.output) == ('weather {"city": "Oslo"}', "rain, 9 C")
    assert last.observation == "rain, 9 C"
    assert weather.trace.answer == last.reply
    assert weather.model_dump()["foreign"]["tools"][0]["function"]["name"] == "weather"
    assert weather.model_dump()["foreign"]["system"] == "You tell the weather."
    assert found["hello-greek"].grade.passed
    assert found["hello-greek"].trace.answer == "Γειά σου!"
    picture = next(e for e in found.values() if "picture" in e.prompt)
    assert not picture.grade.passed
    assert picture.prompt == "What is on this picture?\n[image_url]"
    assert "cat.png" in picture.model_dump_json()


@pytest.mark.parametrize("folder", ["otel", "langsmith"])
def test_a_trace_spread_over_many_lines_is_one_trajectory(
    folder: str, bring: Import, workspace: Path, tmp_path: Path
) -> None:
    source = next((SAMPLES / folder).glob("*.jsonl"))
    said = bring(source)
    assert (said["read"], said["added"], said["waiting"]) == (3, 2, 1)
    found = list(stored(workspace).values())
    passed = next(e for e in found if e.grade.passed)
    assert [bool(s.action) for s in passed.trace.steps] == [True, False]
    assert passed.trace.steps[0].output in ("rain, 9 C", "Paris")
    assert passed.trace.answer in ("It rains in Oslo, at 9 degrees.", "It is Paris.")
    assert passed.trace.model.startswith("small-model")
    assert passed.trace.usage.tokens_in > 0
    assert sum(e.grade.graded and not e.grade.passed for e in found) == 1
    # in any order, and as one array
    rows = [json.loads(line) for line in source.read_text("utf-8").splitlines()][::-1]
    (tmp_path / "all.json").write_text(json.dumps(rows))
    again = bring(tmp_path / "all.json")
    assert (again["known"], again["added"], again["waiting"]) == (3, 0, 0)


def test_messages_as_earlier_conventions_wrote_them_are_read(
    bring: Import, workspace: Path, tmp_path: Path
) -> None:
    def span(trace: str, attributes: dict[str, Any], events: list[Any]) -> dict[str, Any]:
        def kv(values: dict[str, Any]) -> list[Any]:
            return [{"key": k, "value": {"stringValue": v}} for k, v in values.items()]

        one = {
            "traceId": trace,
            "spanId": "1",
            "name": "chat",
            "startTimeUnixNano": "1",
            "endTimeUnixNano": "9",
        }
        one |= {"attributes": kv({"gen_ai.operation.name": "chat", **attributes})}
        one |= {"events": [{"name": n, "attributes": kv(a)} for n, a in events]}
        return {"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}

    events = [
        ("gen_ai.user.message", {"content": "by events"}),
        ("gen_ai.choice", {"message": '{"content": "yes"}'}),
    ]
    numbered = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "by numbers"}
    numbered |= {"gen_ai.completion.0.content": "yes"}
    write(tmp_path / "a.jsonl", span("a", {}, events), span("b", numbered, []), span("c", {}, []))
    said = bring(tmp_path / "a.jsonl")
    assert {e.prompt for e in stored(workspace).values()} == {"by events", "by numbers"}
    assert "switched on" in said["bad"][0]["reason"]


def test_langchains_serialised_messages_are_read(
    bring: Import, workspace: Path, tmp_path: Path
) -> None:
    def lc(kind: str, **kwargs: Any) -> dict[str, Any]:
        return {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", kind],
            "kwargs": kwargs,
        }

    call = {"name": "look", "args": {"at": "it"}, "id": "1"}
    inputs = {
        "messages": [
            [lc("SystemMessage", content="Be brief."), lc("HumanMessage", content="Look.")]
        ]
    }
    outputs = {
        "generations": [[{"text": "", "message": lc("AIMessage", content="", tool_calls=[call])}]]
    }
    run = {
        "id": "r",
        "trace_id": "r",
        "run_type": "llm",
        "inputs": inputs,
        "outputs": outputs,
        "parent_run_id": None,
    }
    bring(write(tmp_path / "r.jsonl", run))
    (e,) = stored(workspace).values()
    assert (e.prompt, e.trace.steps[0].action) == ("Look.", 'look {"at": "it"}')


# --- once, and honestly ---


def test_the_same_files_twice_double_nothing(bring: Import, workspace: Path) -> None:
    bring(SAMPLES)
    before = sorted(stored(workspace))
    again = bring(SAMPLES)
    assert (again["rc"], again["added"], again["waiting"], again["known"]) == (0, 0, 0, 17)
    assert sorted(stored(workspace)) == before


def test_a_dry_run_writes_nothing(bring: Import, workspace: Path) -> None:
    assert bring(SAMPLES, "--dry-run")["added"] == 9
    assert not (workspace / "memory").exists()


def test_nothing_readable_is_bad_input(bring: Import, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    for path in (tmp_path / "x.json", tmp_path / "missing.json"):
        said = bring(path)
        assert said["rc"] == 2
        assert said["error"]["fix"]


def test_what_nobody_graded_is_no_failure(
    bring: Import, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = bring(write(tmp_path / "c.jsonl", chat("Which way to the harbour?", "Left.")))
    assert (said["added"], said["waiting"]) == (0, 1)
    (id,) = said["experiences"]
    for flag, expected in (("--failed", 0), ("--passed", 0), ("--ungraded", 1)):
        assert cli(["traces", "list", flag, "--json"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == expected
    assert cli(["traces", "search", "harbour", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["experience"], found["passed"], found["score"]) == (id, None, None)
    assert cli(["traces", "show", id]) == 0
    assert "not graded yet" in capsys.readouterr().out
    assert not ExperienceStore(workspace).search("harbour", reader="optimizer")
    # a person grades it; it is in memory under the same id, once
    assert (
        cli(
            [
                "traces",
                "grade",
                id[:6],
                "--domain",
                "foreign",
                "--score",
                "1",
                "--evidence",
                "I went there",
            ]
        )
        == 0
    )
    e = ExperienceStore(workspace).get(id)
    assert e is not None
    assert e.grade.passed
    assert "I went there" in e.grade.evidence
    assert not list(Ungraded(ExperienceStore(workspace)).experiences())
    assert bring(tmp_path / "c.jsonl")["known"] == 1


def test_outcomes_of_a_benchmarks_report_grade_what_waits(
    bring: Import, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bring(SAMPLES / "mini-swe-agent", SAMPLES / "swe-agent")
    report = {
        "resolved_ids": ["toy__mean-1"],
        "unresolved_ids": ["humanevalfix-python-0"],
        "total_instances": 9,
    }
    (tmp_path / "report.json").write_text(json.dumps(report))
    capsys.readouterr()
    assert (
        cli(["traces", "grade", "--domain", "foreign", "--outcomes", str(tmp_path / "report.json")])
        == 0
    )
    found = stored(workspace)
    assert found["toy__mean-1"].grade.passed
    assert found["humanevalfix-python-0"].grade.graded
    assert not found["humanevalfix-python-0"].grade.passed
    assert not found["SWE-agent__test-repo-i1"].grade.graded
    # the file that says so is shown, and is no word or meaning of what was attempted
    id = found["toy__mean-1"].id
    capsys.readouterr()
    assert cli(["traces", "show", id]) == 0
    assert "report.json says of toy__mean-1: True" in capsys.readouterr().out
    memory = ExperienceStore(workspace, "hashed")
    assert memory.recall("report.json", how="keywords") == []
    assert not any("report.json" in document.brief for document in documents(found["toy__mean-1"]))


def test_the_domains_grader_grades_what_was_handed_in(
    bring: Import, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [chat("Go.", answer, task=f"toy:train:{n}") for n, answer in ((0, "w0!"), (1, "w1"))]
    said = bring(
        write(tmp_path / "c.jsonl", *rows, chat("Go on.", "w2", task="elsewhere")),
        domain="tests.toy:Toy",
    )
    assert said["waiting"] == 3
    assert said["domain"] == "toy"
    assert cli(["traces", "grade", "--domain", "tests.toy:Toy", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["task"], r["passed"]) for r in rows] == [
        ("toy:train:0", True),
        ("toy:train:1", False),
        ("toy:imported:elsewhere", None),
    ]
    memory = ExperienceStore(workspace)
    # the domain's own groups
    assert {e.group for e in memory.experiences()} == {"train-0", "train-1"}


def test_tau_benchs_results_are_attempts_with_its_reward_and_without_the_actions_it_expects(
    bring: Import, workspace: Path, tmp_path: Path
) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "book", "arguments": '{"to": "SEA"}'},
    }
    said: list[dict[str, Any]] = [
        {"role": "system", "content": "# Airline Agent Policy\n\nAsk before you book."},
        {"role": "user", "content": "I want to fly."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": "book", "content": "booked"},
        {"role": "assistant", "content": "It is done."},
    ]
    task: dict[str, Any] = {
        "user_id": "u",
        "instruction": "You are u. You want SEA.",
        "actions": [{"name": "a_gold_action"}],
    }
    info: dict[str, Any] = {
        "task": task,
        "reward_info": {"reward": 1.0, "actions": task["actions"], "info": {"r_actions": 1.0}},
    }
    broken: dict[str, Any] = {"error": "429", "traceback": "..."}
    rows = [
        {"task_id": 0, "reward": 1.0, "info": info, "traj": said, "trial": 1},
        {"task_id": 1, "reward": 0.0, "info": {**info, "task": {}}, "traj": said[:3], "trial": 0},
        {"task_id": 2, "reward": 0.0, "info": broken, "traj": [], "trial": 0},
    ]
    (tmp_path / "gpt.json").write_text(json.dumps(rows))
    told = bring(tmp_path / "gpt.json")
    assert (told["formats"], told["added"], told["passed"]) == ({"tau-bench": 2}, 2, 1)
    # its provider's fault, and no failure
    assert "nothing was said in it: 429" in told["bad"][0]["reason"]
    found = stored(workspace)
    done, begun = found["airline_test_0"], found["airline_test_1"]
    assert (done.prompt, done.grade.passed) == ("You are u. You want SEA.", True)
    assert [(s.action, s.output, s.reply) for s in done.trace.steps] == [
        ('book {"to": "SEA"}', "booked", ""),
        ("", "", "It is done."),
    ]
    assert done.trace.steps[0].observation == begun.prompt == "I want to fly."
    assert "a_gold_action" not in done.model_dump_json()


# --- what is held out ---


def test_held_out_rows_of_a_file_are_closed_where_the_import_names_it(
    bring: Import, workspace: Path
) -> None:
    rows = [
        {"id": n, "question": f"What is {n} and {n} together?", "answer": 2 * n} for n in range(40)
    ]
    data = write(workspace / "sums.jsonl", *rows)
    chats = write(
        workspace / "chats.jsonl",
        *(chat(str(r["question"]), str(r["answer"]), score=1) for r in rows),
    )
    said = bring(chats, "--data", data, domain="sums")
    assert said["added"] == 40
    held = {
        e.task for e in ExperienceStore(workspace, "hashed").experiences() if e.split != "train"
    }
    assert 8 < len(held) == len(said["held_out"]) < 40
    assert all(task.startswith("sums:sums:") for task in held)


def test_a_held_out_task_arrives_closed_by_id_and_by_its_words(
    bring: Import, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = "Write the word number 3\n of   the test list to the file answer.txt."
    rows = [
        chat("Anything.", "secret one", task="toy:validation:2", score=0),
        chat(f"You are in a box.\n\n{prompt}\nOne command a turn.", "secret two", score=1),
        chat("Something of my own.", "open three", score=0),
    ]
    said = bring(write(tmp_path / "c.jsonl", *rows), domain="tests.toy:Toy")
    assert [(h["task"], h["split"]) for h in said["held_out"]] == [
        ("toy:validation:2", "validation"),
        ("toy:test:3", "test"),
    ]
    memory = ExperienceStore(workspace, "hashed")
    for reader in ("optimizer", "agent"):
        assert not memory.search("secret", reader=reader)
        (seen,) = memory.experiences(reader=reader)
        assert seen.prompt.endswith("\nSomething of my own.")
        assert all("secret" not in h.text for h in memory.recall("secret two", 20, reader=reader))
    assert memory.search("secret", reader="human")
    memory.close()


@pytest.mark.parametrize("ours", [False, True])
def test_what_a_held_out_task_asks_arrives_closed_under_a_train_tasks_name(
    bring: Import, workspace: Path, tmp_path: Path, ours: bool
) -> None:
    row = chat(
        "Write the word number 3 of the test list to the file answer.txt.",
        "secret",
        task="toy:train:0",
        score=1,
    )
    if ours:
        step = Step(step=0, observation="", action="secret", output="", status=0)
        given = experience(
            "x",
            task="toy:train:0",
            group="train-0",
            prompt=row["messages"][0]["content"],
            steps=(step,),
        )
        row = {"experience": given.model_dump(mode="json")}
    said = bring(write(tmp_path / "c.jsonl", row), domain="tests.toy:Toy")
    assert [(h["task"], h["split"]) for h in said["held_out"]] == [("toy:test:3", "test")]
    memory = ExperienceStore(workspace, "hashed")
    assert not memory.search("secret", reader="optimizer")
    assert memory.held_out.read().split("toy:train:0", "train-0") is None
    memory.close()


def test_words_that_stand_in_the_prompts_of_many_tasks_name_none(
    bring: Import, tmp_path: Path
) -> None:
    rows = [
        chat("Write the word number 3 of the test", "cut", score=1),
        chat("Write the word number", "all", score=1),
    ]
    said = bring(write(tmp_path / "c.jsonl", *rows), domain="tests.toy:Toy")
    assert [(h["task"], h["split"]) for h in said["held_out"]] == [("toy:test:3", "test")]


def test_what_was_held_out_once_is_closed_to_every_later_import(
    bring: Import, tmp_path: Path
) -> None:
    bring(write(tmp_path / "a.jsonl", chat("The same words.", "a", score=1)), "--split", "test")
    said = bring(
        write(tmp_path / "b.jsonl", chat("The  same words.", "b", score=0, task="named-here"))
    )
    assert [h["split"] for h in said["held_out"]] == ["test"]
    mini = {"info": {"exit_status": "LimitsExceeded"}, "trajectory_format": "mini-swe-agent-1.1"}
    mini |= {"messages": chat("x", "y")["messages"], "instance_id": "named-here"}
    (tmp_path / "c.traj.json").write_text(json.dumps(mini))
    assert [h["split"] for h in bring(tmp_path / "c.traj.json")["held_out"]] == ["test"]


def test_a_train_task_cannot_be_made_a_test_task_by_an_import(
    bring: Import, tmp_path: Path
) -> None:
    row = chat("Go.", "w0", task="toy:train:0", score=0)
    said = bring(write(tmp_path / "c.jsonl", row), "--split", "test", domain="tests.toy:Toy")
    assert said["rc"] == 2
    assert "train task" in said["error"]["message"]


# --- bad input ---


@pytest.mark.slow
def test_a_long_file_is_read_a_line_at_a_time(workspace: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("w") as file:
        for n in range(300):
            file.write(json.dumps(chat(f"question {n}", "x" * 100_000, score=1)) + "\n")
    memory = ExperienceStore(workspace)
    tracemalloc.start()
    taken = import_traces([path], memory, ImportConfig("foreign"), dry=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken.added == 300
    assert peak < path.stat().st_size / 1.5


def test_lines_of_every_bad_kind_are_told_and_the_rest_arrives(
    bring: Import, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "LINE", 20_000)
    good = json.dumps(chat("hello", "سلام 你好", score=1), ensure_ascii=False).encode()
    bad = [
        b'{"messages": [',
        b"\xff\xfe\xfa",
        b"[" * 15_000,
        json.dumps(chat("a", "x" * 90_000)).encode(),
        b"7",
    ]
    rows = [
        good,
        *bad,
        json.dumps(chat("", "")).encode(),
        json.dumps({"messages": [{"role": "user"}, 3]}).encode(),
    ]
    (tmp_path / "x.jsonl").write_bytes(
        b"\n".join([*rows, json.dumps(chat("last", "one", score=0)).encode()])
    )
    said = bring(tmp_path / "x.jsonl")
    assert (said["rc"], said["added"]) == (0, 2)
    assert [b["entry"] for b in said["bad"]] == [f"line {n}" for n in range(2, 9)]
    assert "longer than" in said["bad"][3]["reason"]


def test_a_zip_that_is_a_bomb_or_damaged_or_leads_astray_harms_nothing(
    bring: Import, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "WHOLE", 1 << 20)
    sample = {
        "id": "a",
        "input": "q",
        "messages": chat("q", "r")["messages"],
        "scores": {"x": {"value": "I"}},
    }
    with zipfile.ZipFile(tmp_path / "x.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "header.json", json.dumps({"version": 2, "eval": {"task": "t", "model": "m"}})
        )
        archive.writestr("samples/bomb.json", b" " * (50 << 20))
        archive.writestr("samples/../../../evil.json", "{}")
        archive.writestr("samples/a.json", json.dumps(sample))
    said = bring(tmp_path / "x.eval")
    assert said["added"] == 1
    assert [b["entry"] for b in said["bad"]] == ["samples/bomb.json", "samples/../../../evil.json"]
    assert "more than 1 MiB" in said["bad"][0]["reason"]
    whole = (tmp_path / "x.eval").read_bytes()
    (tmp_path / "cut.eval").write_bytes(whole[: len(whole) // 2])
    assert "zip" in bring(tmp_path / "cut.eval")["error"]["message"]
    damaged = bytearray((SAMPLES / "inspect" / "sums.eval").read_bytes())
    at = damaged.find(b"samples/sum-1") + 60
    damaged[at : at + 40] = b"\0" * 40
    (tmp_path / "flip.eval").write_bytes(bytes(damaged))
    flipped = bring(tmp_path / "flip.eval")
    assert flipped["added"] == 1
    assert "unpacked" in flipped["bad"][0]["reason"]


def test_keys_are_masked_whether_graded_or_not(
    bring: Import, workspace: Path, tmp_path: Path
) -> None:
    key = "sk-" + "a1" * 20
    bring(
        write(
            tmp_path / "c.jsonl",
            chat(f"my key is {key}", "ok"),
            chat(f"{key}", "ok", score=1, note=key),
        )
    )
    texts = [p.read_text() for p in (workspace / "memory").rglob("*.jsonl")]
    assert texts
    assert all(key not in t for t in texts)


def test_a_strangers_format_takes_the_same_door(
    bring: Import, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "my_traces.py").write_text(
        "from recreate.plugins.traces.format import Foreign\n"
        "from recreate.api.types import Step\n"
        "class Mine:\n"
        "    def reads(self, value): return 'mine' in value\n"
        "    def parts(self, value): return ()\n"
        "    def read(self, values, key, source):\n"
        "        yield Foreign(prompt=values[0]['mine'], steps=(Step(step=0, reply='r'),))\n"
    )
    said = bring(
        write(tmp_path / "m.jsonl", {"mine": "a"}, {"other": 1}), "--format", "my_traces:Mine"
    )
    assert (said["waiting"], len(said["bad"])) == (1, 1)


def test_links_out_of_a_folder_are_not_followed(bring: Import, tmp_path: Path) -> None:
    inner = tmp_path / "in"
    inner.mkdir()
    shutil.copy(SAMPLES / "inspect" / "sums.eval", inner)
    (inner / "link").symlink_to(SAMPLES)
    assert bring(inner)["files"] == 1

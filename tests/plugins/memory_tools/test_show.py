"""What `studies` shows of a run."""

from __future__ import annotations

from tests.cli import test_show
from tests.cli.test_show import Ask, Say

ask = test_show.ask
built = test_show.built
say = test_show.say


def test_memory_is_counted_and_recalled_within_what_the_reader_may_see(ask: Ask, say: Say) -> None:
    (stats,) = ask("memory", "stats")
    assert (stats["experiences"], stats["splits"]) == (16, {"train": 4, "validation": 12})
    (found,) = ask("memory", "recall", "write", "the", "word", "-k", "4", "--where", "domain=toy")
    assert 0 < len(found["hits"]) <= 4
    assert {hit["split"] for hit in found["hits"]} == {"train"}
    assert all({"id", "grain", "score", "split"} <= set(hit) for hit in found["hits"])
    (found,) = ask("memory", "recall", "word", "--as", "human", "--where", "split=validation")
    assert {hit["split"] for hit in found["hits"]} == {"validation"}
    (found,) = ask("memory", "recall", "word", "--as", "agent", "--where", "split=validation")
    assert found["hits"] == []
    for words, said in (
        (
            ["word", "--as", "agent", "--where", "split=validation"],
            "nothing that this reader may see matches under split",
        ),
        (
            ["zebra", "--how", "keywords"],
            "nothing that this reader may see matches; --how hybrid",
        ),
    ):
        assert said in say("memory", "recall", *words)[2]
    (again,) = ask("memory", "rebuild")
    assert again["experiences"] == 16
    assert ask("memory", "rebuild")[0]["digest"] == again["digest"] != ""
    for wrong in (["--where", "domain"], ["--where", "flavour=x"], ["--as", "god"]):
        assert say("memory", "recall", "x", *wrong)[0] == 2

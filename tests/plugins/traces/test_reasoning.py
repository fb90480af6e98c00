"""What a model thought is shown with what it said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.cli import run as cli
from tests.stub import Stub, completion
from tests.toy import Toy


def test_what_a_model_thought_is_shown_before_its_reply(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = completion("```bash\nsubmit\n```")
    answer["choices"][0]["message"]["reasoning_content"] = "There is nothing to do."
    how: dict[str, Any] = {"price": "1,1", "memory.embedder": "hashed"}
    with Stub(answer) as stub:
        made = recreate.run("seed", "toy:train:0", Toy(), model=f"openai:{stub.url}#stub", **how)
    assert cli(["traces", "show", made.id]) == 0
    shown = capsys.readouterr().out
    assert shown.index("(thought: There is nothing to do.)") < shown.index("```bash")

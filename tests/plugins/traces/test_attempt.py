"""An attempt as the commands of traces show it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_work_on_a_text_grows_with_its_length_whatever_a_model_wrote() -> None:
    """What looks again at every place of these texts would take hours."""
    command = [sys.executable, "-c", HOSTILE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout) == (0, "read\n"), ended.stderr


HOSTILE = r"""
from recreate.agents import lesson, trajectory
from recreate.agents.guards import names
from recreate.agents.action import parse
from recreate.agents.template import read_object
from recreate.api.errors import BadInput
from recreate.api.types import Reply
from recreate.plugins.traces.mini_swe_agent import ChatMessage, _acted
from recreate.memory.index import tokenizer
from recreate.viewer import text as viewed

readers = [
    lambda t: parse("bash", Reply(text=t)), lambda t: parse("json", Reply(text=t)), read_object,
    trajectory.error_type, lambda t: list(trajectory.errors(t)), trajectory.tools, trajectory.files,
    trajectory.without_heredocs, trajectory.summary_of_tests, lambda t: lesson.read_lesson("a", t),
    tokenizer.spread, tokenizer.phrases, tokenizer.is_code, viewed.visible,
    lambda t: _acted(ChatMessage("assistant", t), {}),
]
pieces = ["```bash\n", "```\n", "```json\n{", "[", "a", "a.", "<<a\n", "E  aError", "+++\n", "\n"]
for piece in [*pieces, "'", "aB"]:
    for read in readers:
        try:
            read("+++\n" + piece * (150_000 // len(piece)))
        except BadInput:
            pass
for piece in ("a", "_", "a/"):
    names.identifiers(piece * (20_000 // len(piece)))
print("read")
"""

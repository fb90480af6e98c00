"""Replies to nearly the same question: a semantic cache of train attempts, off unless a nearness is
named.

    FOLDER/near/KEY.jsonl   a sealed line each: the question with its vector, the task it is of, and
                            the reply

A request is told by its frame, all that was said but for its task's own words, and its question,
these words. KEY is made of the model, the parameters but for the seed, the frame, the embedder, and
the numbers of repeat and sample; of the lines under it the one whose question has the highest
cosine answers, where that reaches the nearness. So what an agent is told beside the question (its
system prompt, its lessons, the tables of a database, what a command printed) is the same, character
by character, and a repeat is served by a repeat alone. Two questions whose numbers or names differ
are not near, whatever their vectors say (`particulars`): vectors hardly tell 2019 from 2020, or one
city from another. The idea is GPTCache's (Bang, NLP-OSS 2023), which compares questions by their
vectors alone.

Only train attempts of the agent are answered, and only their replies are kept: never one of the
optimizer, of a judge, or of an attempt that measures; a reply to a task that is held out by now is
passed over, and so is a question of more than QUESTION_CHARS characters, of which an embedder may
not see the end. A reply that tells its tokens is not kept: a model is trained on what it said
itself.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from recreate.api.errors import BadInput, Fault
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Message, Near, Reply, digest
from recreate.models.replies import ModelQuestion, Replies, folder_of, read_reply, weights
from recreate.plugins.near_cache.settings import NearSettings
from recreate.runs.settings import Settings
from recreate.storage.files import locked
from recreate.storage.log import Fields, Log

if TYPE_CHECKING:
    from recreate.memory.store import ExperienceStore

QUESTION_CHARS = 500
"""Characters of a question that every shipped embedder reads whole: minilm sees 256 tokens."""

FRAME = "\ue000"
"""Stands in a frame where the task's words were."""

LINES: Fields = {
    "near": {
        "call": str,
        "task": str,
        "group": str,
        "question": str,
        "vector": list,
        "reply": Reply,
    },
}


class Embedding(NamedTuple):
    """The name of whoever makes vectors, and how: unit vectors, one a text."""

    name: str
    embed: Callable[[Sequence[str]], Sequence[Sequence[float]]]


class NearCache:
    """The replies that runs share, and beside them those to near questions. Any number of threads
    and processes may share a folder.

    exact: who has the replies to questions in the very same words. near: the least cosine, above 0
    and at most 1. embedding: asked for at the first question. held_out: whether a task of a group
    may by now be learned from no more.
    """

    def __init__(
        self,
        exact: Replies,
        folder: Path,
        near: float,
        embedding: Callable[[], Embedding],
        held_out: Callable[[str, str], bool],
        key: str = "",
    ) -> None:
        self.exact = exact
        self.folder = folder / "near"
        self.near = near
        self.key = key or f"{near:g}"
        self.embedding = embedding
        self.held_out = held_out
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, ...]] = {}

    def get(self, question: ModelQuestion) -> Reply | None:
        """Return the reply to this very question, else to the nearest, then with `near` set; None
        where none is near enough, or this call is not to be answered so. Raises Missing where the
        embedder's package is not installed.
        """
        if (reply := self.exact.get(question)) is not None:
            self._keep(question, reply)
            return reply
        asked = _frame_of(question)
        if asked is None:
            return None
        vector = self._vector(asked[1])
        wanted = particulars(asked[1])
        best: tuple[float, JsonMap] | None = None
        for line in self._lines(self._file(question, asked[0])):
            if len(line["vector"]) != len(vector) or particulars(line["question"]) != wanted:
                continue
            if self.held_out(line["task"], line["group"]):
                continue
            cosine = sum(a * b for a, b in zip(vector, line["vector"], strict=True))
            if cosine >= self.near and (best is None or cosine > best[0]):
                best = cosine, line
        if best is None or (reply := read_reply(best[1])) is None:
            return None
        source = Near(
            similarity=round(min(best[0], 1.0), 6), task=best[1]["task"], call=best[1]["call"]
        )
        return reply.model_copy(update={"from_cache": True, "near": source})

    def keep(self, question: ModelQuestion, reply: Reply) -> None:
        """Keep what was answered to this very question. A disk that does not take it stops
        nobody."""
        self.exact.keep(question, reply)
        self._keep(question, reply)

    def _keep(self, question: ModelQuestion, reply: Reply) -> None:
        asked = _frame_of(question)
        told = reply.doubtful or reply.near is not None or reply.token_ids is not None
        if asked is None or told:
            return
        call = question.call
        task = question.task
        line: JsonDict = {
            "kind": "near",
            "call": call.id,
            "task": call.task,
            "group": task.group if task is not None else "",
            "question": asked[1],
        }
        line["vector"] = [round(float(x), 7) for x in self._vector(asked[1])]
        line["reply"] = reply.model_dump(mode="json", exclude_defaults=True, exclude={"from_cache"})
        file = self._file(question, asked[0])
        with contextlib.suppress(Fault), locked(self.folder), Log(file) as log:
            if all(
                each["task"] != call.task or each["question"] != asked[1]
                for each in self._lines(file)
            ):
                log.append(line)

    def _vector(self, text: str) -> tuple[float, ...]:
        """Of a question; the last ones are kept, since each turn of an attempt asks for the
        same."""
        with self._lock:
            known = self._last.get(text)
        if known is None:
            (row,) = self.embedding().embed([text])
            known = tuple(map(float, row))
            with self._lock:
                self._last = dict([*self._last.items(), (text, known)][-64:])
        return known

    def _lines(self, file: Path) -> Sequence[JsonMap]:
        """What a file holds; a damaged line is passed over, and a file that cannot be read holds
        nothing."""
        try:
            return list(Log(file).read(LINES, ("near",)))
        except (BadInput, Fault, ValidationError):
            return []

    def _file(self, question: ModelQuestion, frame: Sequence[Message]) -> Path:
        call = question.call
        unseeded = {name: value for name, value in question.params.items() if name != "seed"}
        key = [
            ModelQuestion(question.model, frame, unseeded, call).digest,
            weights(question.model),
            call.role,
            self.embedding().name,
            call.repeat,
            call.sample,
        ]
        return self.folder / f"{digest(key, 32)}.jsonl"


def open_near_cache(settings: Settings, memory: ExperienceStore, exact: Replies) -> Replies:
    """Return the replies that runs share with those to near questions around them, by the vectors
    of the workspace's embedder; as they are where nobody wants that."""
    if not (near := settings.of(NearSettings).near):
        return exact

    def embedding() -> Embedding:
        return Embedding(memory.embedder.name, memory.embed)

    def is_held_out(task: str, group: str) -> bool:
        return memory.held_out.read().split(task, group) is not None

    key = f"{near:g} {settings.memory.embedder}"
    return NearCache(exact, folder_of(settings.cache), near, embedding, is_held_out, key)


_WORD = re.compile(r"""[^\W_]+|[.?!:\n"']""")


def particulars(text: str) -> frozenset[str]:
    """The numbers and names of a question: words with a digit, and those with a capital that begin
    no sentence."""
    found = set()
    begins = True
    for word in _WORD.findall(text):
        if any(map(str.isdigit, word)) or (not begins and word != word.lower()):
            found.add(word)
        begins = not word[0].isalnum()
    return frozenset(found)


def _frame_of(question: ModelQuestion) -> tuple[list[Message], str] | None:
    """Return the frame and the question of a request; None for one that is not to be answered by
    another's reply."""
    if question.task is None or question.call.role != "agent" or question.call.phase != "train":
        return None
    frame, said = framed(question.messages, question.task.text)
    return (frame, said) if 0 < len(said) <= QUESTION_CHARS else None


def framed(messages: Sequence[Message], question: str) -> tuple[list[Message], str]:
    """(the messages without the question's words, these words as they stood there).

    The words are the question whole, or where that stands in no message, those of its lines that
    are a whole line of one. A question that a template writes in yet another way is left in the
    frame, and '' is what was asked.
    """
    question = question.strip()
    whole = bool(question) and any(question in str(each.get("content") or "") for each in messages)
    lines = {line.strip() for line in question.splitlines()} - {""}
    said: dict[str, None] = {}
    frame: list[Message] = []
    for message in messages:
        content = message.get("content")
        if not isinstance(content, str) or message["role"] not in ("system", "user"):
            frame.append(message)
            continue
        if whole:
            said |= {question: None} if question in content else {}
            content = content.replace(question, FRAME)
        else:
            rows = content.split("\n")
            said |= {row.strip(): None for row in rows if row.strip() in lines}
            content = "\n".join(FRAME if row.strip() in lines else row for row in rows)
        frame.append({**message, "content": content})
    return frame, "\n".join(said)

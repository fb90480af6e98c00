"""What a memory policy works with."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recreate.api.types import Experience, Lesson, Message, Reply


class Ask(Protocol):
    """A call to the optimizer's model. The same thread and step is the same question: it is paid once."""

    def __call__(self, messages: Sequence[Message], *, step: int, thread: str = "", **params: object) -> Reply: ...


class Rerun(Protocol):
    """The score (0..1) of another attempt at an experience's task while exactly these lessons are offered.

    None: it cannot be paid for, or a fault of ours ended it. The same lessons, task and repeat are attempted once.
    """

    def __call__(self, lessons: Sequence[Lesson], experience: Experience, repeat: int = 0) -> float | None: ...


def silent(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class PolicyContext:
    """`lessons` is what the policy changes: id -> lesson, of its own domain and general ones; whoever made the
    materials stores it. `elsewhere` are the active domain patterns of other domains, to be read only.

    ask       the optimizer's model; `json_schema` is held to where the endpoint can
    embed     (texts, kind) -> unit vectors; kind `passage` for lessons, `query` for situations
    rerun     see Rerun
    nearest   for a failure the nearest success of any task, for a success an earlier failure at the same task; None
              when memory knows none
    find      a train experience by its id, of any run; None when there is none that may be seen
    alike     (text, k) -> the k train experiences of this domain that are nearest to a text
    observed  attempts of this domain that were observed before, by any process
    note      a line for the person who watches
    """

    domain: str
    lessons: MutableMapping[str, Lesson]
    ask: Ask
    embed: Callable[[Sequence[str], str], Sequence[Sequence[float]]]
    rerun: Rerun
    nearest: Callable[[Experience], Experience | None] = lambda experience: None
    find: Callable[[str], Experience | None] = lambda id: None
    alike: Callable[[str, int], Sequence[Experience]] = lambda text, k: ()
    elsewhere: Sequence[Lesson] = ()
    observed: int = 0
    note: Callable[[str], None] = field(default=silent)

"""The nouns: frozen records of what was asked, done, graded, learned and decided.

Everything here is data that is stored and read back; behaviour lives in the modules named after the
verbs. A record keeps fields it does not know (a newer version's, a stranger's) and says its schema.

    Task        what is asked                       Scaffold    an agent, as text files
    Step        one turn of an attempt              Edit        one change to a scaffold, and why
    Trace       a whole attempt, ungraded           Verdict     what the gate found
    Grade       the score and the grader's words    Revision    edits + verdict, kept or dropped
    Experience  trace + grade: the unit learned from         Study       an optimizer's
                investigation
    Lesson      what was learned, in a few sentences        Review      a person's word on a
                candidate
    Gain        a re-run with and without a lesson          Change      what a memory policy did to
                a lesson
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from operator import not_
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Self, TypedDict, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from recreate.api.config import SCHEMA as SCHEMA
from recreate.api.config import Split as Split
from recreate.api.shapes import JsonDict, JsonMap

Ending = Literal["submitted", "limit", "error"]
Decision = Literal["better", "not-better", "undecided"]
Origin = Literal["experience", "search", "human", "prune"]
Trust = Literal["own", "hand", "imported", "foreign"]
"""Whose words a text has, the most trusted first.

own       attempted and graded here
hand      written, or let be, by a person of this workspace: meant well, and measured by nobody
imported  of another tool's record, or said by another agent: somebody brought it in on purpose
foreign   of another memory: what it says of grades and proofs nobody here can look at
"""
ORIGINS: Mapping[Trust, str] = {
    "own": "",
    "hand": "by hand",
    "imported": "untrusted: imported",
    "foreign": "untrusted: of another memory",
}
"""What is said of a text wherever it is shown."""
UNTRUSTED = ("imported", "foreign")
"""What code puts to no use; a person may."""


_CANARY = re.compile(r"recreate-canary-[0-9a-f]{16}")


class Message(TypedDict):
    """One chat message, in the form every OpenAI-style endpoint takes.

    An assistant's message may carry `tool_calls` ({"id", "type": "function", "function": {"name",
    "arguments"}}); the answer to one is a message of role `tool` with its `tool_call_id`.
    """

    role: str
    content: str
    tool_calls: NotRequired[list[JsonDict]]
    tool_call_id: NotRequired[str]


def digest(value: Any, length: int = 16) -> str:
    """Return the first `length` hex digits of the SHA-256 of `value` as canonical JSON (sorted
    keys, no spaces).

    Every id in recreate is made by this: same inputs, same id.
    """
    return hashlib.sha256(_canonical(value).encode("utf-8", "surrogatepass")).hexdigest()[:length]


def canary(task: str) -> str:
    """Return what stands in every text that is made of a held-out task's attempts, and in nothing
    else: a text that holds it was made from what nobody may learn from."""
    return f"recreate-canary-{digest(['canary', task])}"


def canaries(text: str) -> list[str]:
    """Return those that a text holds, in small letters."""
    return _CANARY.findall(text.casefold())


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


_canonical = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_plain
).encode


class Record(BaseModel):
    """A frozen record that carries `schema`. Code that makes one of an unknown field raises
    ValidationError, as it does for a wrong type; `model_validate` reads what a file holds, and
    keeps the fields that a newer version added.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        ser_json_inf_nan="constants",
    )
    schema_: int = Field(default=SCHEMA, alias="schema")

    if not TYPE_CHECKING:  # type checkers derive the constructor from the fields

        def __init__(self, /, **data: Any) -> None:
            self.__pydantic_validator__.validate_python(data, self_instance=self, extra="forbid")

        __init__.__pydantic_base_init__ = (
            True  # as pydantic marks its own: records in a file are made without it
        )

    def model_copy(self, *, update: JsonMap | None = None, deep: bool = False) -> Self:
        """Return the record with other values. Raises TypeError for a field that there is not."""
        if update and (strange := update.keys() - self.__pydantic_fields__.keys()):
            raise TypeError(f"{type(self).__name__} has no field {min(strange)!r}")
        return super().model_copy(update=update, deep=deep)


class Task(Record):
    """What is asked. `facts` (JSON values) is read by the task's domain only and is never shown to
    a model.

    id       domain:source:id
    group    what must never be split between train, validation and test (a module, a bug, a table)
    prompt   all that an agent is told
    """

    id: str
    domain: str
    prompt: str
    split: Split
    group: str
    facts: JsonMap = {}

    @property
    def digest(self) -> str:
        """Of id, prompt and facts: part of the key under which scores are reused."""
        return digest([self.id, self.prompt, self.facts])

    @property
    def canary(self) -> str:
        """'' of a train task."""
        return "" if self.split == "train" else canary(self.id)


class PassRate(Record):
    """How often a task was passed, as measured: `passed` of `attempts`.

    task, digest: the task and what it was when it was attempted; scaffold, agent: the agent's name
    and digest; each: attempt -> whether it passed, so that what is added twice counts once.
    """

    task: str
    digest: str
    scaffold: str
    agent: str = ""
    model: str
    attempts: int
    passed: int
    each: Mapping[str, bool] = {}


class TaskSet(Record):
    """Tasks chosen once under a name: by their ids, or by the pass rate of one agent and model.
    about: for people."""

    tasks: tuple[str, ...] = ()
    scaffold: str = ""
    model: str = ""
    difficulty: str = ""
    about: str = ""


class Call(Record):
    """Who asks a model, and for what: the address under which the reply is journalled.

    role: agent | optimizer | judge | writer; phase: train | validation | test | select | rerun |
    propose | observe | grade | invent; task '' for an optimizer; repeat and sample count from 0.
    `id` = run/attempt/step is sent as the header `x-recreate-call`; a proposal's "attempt" is its
    own digest. `step` counts over all samples of an attempt, so that the id is unique.
    """

    run: str
    attempt: str
    step: int
    role: str = "agent"
    phase: str = "train"
    task: str = ""
    repeat: int = 0
    sample: int = 0

    @property
    def id(self) -> str:
        return f"{self.run}/{self.attempt}/{self.step}"


class Usage(Record):
    """What was paid. tokens are counts, usd is US dollars, seconds is time spent waiting for
    replies.

    tokens_cached, tokens_cache_written: of tokens_in, those that the endpoint had read before, and
    those that it put by for the next time; each has a price of its own. role and phase: whose calls
    these are and what for, as in Call; '' where several are added up, or nobody said.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    tokens_cached: int = Field(default=0, exclude_if=not_)
    tokens_cache_written: int = Field(default=0, exclude_if=not_)
    role: str = Field(default="", exclude_if=not_)
    phase: str = Field(default="", exclude_if=not_)

    @classmethod
    def of(cls, reply: Reply, call: Call | None = None) -> Usage:
        """Return what one reply cost; call: the one that it answers."""
        return cls(
            calls=1,
            tokens_in=reply.tokens_in,
            tokens_out=reply.tokens_out,
            usd=reply.usd,
            seconds=reply.latency,
            tokens_cached=reply.tokens_cached,
            tokens_cache_written=reply.tokens_cache_written,
            role=call.role if call else "",
            phase=call.phase if call else "",
        )

    def __add__(self, other: Usage) -> Usage:
        whose = self if not other.calls else other  # nothing is nobody's
        both = self.calls and other.calls
        return Usage(
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            usd=self.usd + other.usd,
            seconds=self.seconds + other.seconds,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            tokens_cache_written=self.tokens_cache_written + other.tokens_cache_written,
            role=whose.role if not both or self.role == other.role else "",
            phase=whose.phase if not both or self.phase == other.phase else "",
        )


class ToolCall(Record):
    """A tool that a model asked for in its endpoint's own way. arguments: JSON text, as the model
    wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class Near(Record):
    """Whose reply a request was answered with in its place (`--cache-near`): the cosine of the two
    questions' vectors, and the task and the call (`run/attempt/step`) that the reply had been made
    for."""

    similarity: float
    task: str
    call: str


class Reply(Record):
    """A model's answer to one call. finish: stop | length | tool_calls | filter | other; `filter`:
    it refused, or the provider withheld it. reasoning: what it thought first, where that is told.

    tokens_in and tokens_out are counts, usd is US dollars (0 where the price says it), latency
    seconds. token_ids and logprobs (natural) are one per token of the reply, where an endpoint
    tells them; prompt_ids are all that it read. mix_ids and mix: for each latent step at the start
    of the reply, the tokens that it mixes and their shares. estimated: the endpoint told no counts,
    so they are guessed from the text. doubtful: it told counts or a length that cannot be, so the
    call is charged as it was reserved. tokens_cached, tokens_cache_written: as in Usage.
    from_cache: it was paid for by an earlier call (`--cache`); its counts and usd are those of
    then. near: set where that call asked something else, though nearly the same.
    """

    text: str
    reasoning: str = Field(default="", exclude_if=not_)
    tool_calls: tuple[ToolCall, ...] = ()
    model: str = ""
    finish: str = "stop"
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    latency: float = 0.0
    retries: int = 0
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    tokenizer_digest: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    mix_ids: tuple[tuple[int, ...], ...] = ()
    mix: tuple[tuple[float, ...], ...] = ()
    estimated: bool = False
    tokens_cached: int = 0
    tokens_cache_written: int = 0
    doubtful: bool = False
    from_cache: bool = Field(default=False, exclude_if=not_)
    near: Near | None = Field(default=None, exclude_if=not_)


class TurnTokens(Record):
    """One turn in tokens: what training needs of it. The model read `past` ids of the turn before
    (all of its prompt and reply, or none) and then `prompt`; reply: all it wrote, its end mark too;
    logprobs (natural) one per token of the reply, as the server that wrote it told them; mix_ids
    and mix as in Reply; cut: the reply ended at the most tokens that it might have."""

    past: int = 0
    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    logprobs: tuple[float, ...]
    tokenizer: str
    mix_ids: tuple[tuple[int, ...], ...] = ()
    mix: tuple[tuple[float, ...], ...] = ()
    cut: bool = Field(default=False, exclude_if=not_)


class Output(Record):
    """What a command printed (stdout and stderr interleaved), its exit status and how long it ran.

    status is the exit code, 128+N for a signal, 124 for a timeout. `cut`: so many bytes were
    dropped in the middle. `limit` is the one that ended the command: seconds, memory, processes,
    disk, or '' for none.
    """

    text: str
    status: int
    seconds: float = 0.0
    timed_out: bool = False
    cut: int = 0
    limit: str = ""


def _is_none(value: Any) -> bool:
    return value is None


class Sent(Record):
    """What the model was sent before a step, told by what it was sent before;
    recreate/agents/request.py has it back.

    base     the step with whose request this one begins, None for none; keep: so many of its
             messages
    rest     the messages that follow: the number of one that was sent before in this attempt (from
             0, in the order in which they were sent first), or a whole one. In these {"@": [STEP,
             FIELD, ...]} stands for a text of a step
    params   the parameters that base's request had otherwise, or not; dropped: those that it had
             and this one has not
    """

    base: int | None = Field(default=None, exclude_if=_is_none)
    keep: int = Field(default=0, exclude_if=not_)
    rest: tuple[Any, ...] = Field(default=(), exclude_if=not_)
    params: JsonMap = Field(default_factory=dict, exclude_if=not_)
    dropped: tuple[str, ...] = Field(default=(), exclude_if=not_)


class Step(Record):
    """One turn: what the agent saw (`observation`, the anchor state), said, did, and what came of
    it.

    step counts from 0 over all samples of the attempt, sample from 0; status as in Output, None
    when nothing ran; seconds are the action's own. kind: `action` (the reply was acted on),
    `malformed` (the scaffold's format message was the answer), `lookahead` (done in a copy of the
    sandbox, which is gone; its sample is none that is handed in), `observe` (a turn of the sample,
    done in a copy that is gone), `before` (a tool of the scaffold ran before the first turn; no
    model was asked), `ended` (the program of a foreign agent ended: what it printed, and its exit
    status; no model was asked). tokens: the same turn in token ids, where the model tells them.
    sent: what it was sent, system message and all. cut: the reply ended at the most tokens that it
    might have. near: as in Reply. after: of the first step of a sample that goes on from another:
    the step after which it does, which both share. looked: which of several candidates this is, and
    why: its reply was paid for in the `lookahead` step that it names. reasoning: what the model
    thought before the reply. restored: why what was done was taken back: the sandbox is as it was
    before this step; '' where it was not. recalled: what memory told the agent of that asked it
    here: ids of experiences, and `lesson:DOMAIN/NAME`.
    propensities: where it was drawn which lessons to offer: each that was called for here,
    `offered` or not, with the probability with which it was. foreign: of an imported step, what has
    no place among our fields. Of one that called tools in the endpoint's own way `tool_calls` (id,
    name, arguments) and `answered` (id, and text where there were several): its commands and their
    outputs stand one after the other in action and output, status is the first that is not 0.
    """

    step: int
    sample: int = 0
    kind: str = "action"
    observation: str = ""
    reply: str = ""
    action: str = ""
    output: str = ""
    status: int | None = None
    seconds: float = 0.0
    usage: Usage = Usage()
    offered: tuple[str, ...] = ()
    tokens: TurnTokens | None = None
    sent: Sent | None = Field(default=None, exclude_if=_is_none)
    cut: bool = Field(default=False, exclude_if=not_)
    near: Near | None = Field(default=None, exclude_if=not_)
    after: int | None = Field(default=None, exclude_if=_is_none)
    looked: str = Field(default="", exclude_if=not_)
    reasoning: str = Field(default="", exclude_if=not_)
    restored: str = Field(default="", exclude_if=not_)
    recalled: tuple[str, ...] = Field(default=(), exclude_if=not_)
    propensities: Mapping[str, float] = Field(default_factory=dict, exclude_if=not_)
    foreign: JsonMap = Field(default_factory=dict, exclude_if=not_)


UNASKED = ("before", "ended")
"""Kinds of steps for which no model was asked."""


class Trace(Record):
    """A whole attempt, ungraded. `answer` is what was handed in; `fault` is set when ours, not the
    agent's.

    ending: submitted | limit | error; limit names the one reached: steps, tokens, usd, seconds,
    context, reply (three in a row were cut off before they held a command); or with `error`:
    `template`, when a template of the agent could not be filled in, and `mcp`, when a server of its
    did not start. Of a foreign agent also memory, processes, disk (`limit`), and with `error` exit
    (its status was not 0), no-calls (it never asked its model) and flood. chosen is the sample that
    was handed in. attempt: its key, under which its calls were made.
    """

    attempt: str
    task: str
    scaffold: str
    model: str
    repeat: int = 0
    steps: tuple[Step, ...] = ()
    ending: Ending = "submitted"
    limit: str = ""
    answer: str = ""
    chosen: int = 0
    usage: Usage = Usage()
    fault: str = ""

    def path(self, sample: int | None = None) -> list[Step]:
        """Return the steps that led to what a sample did, by default the one that was handed in:
        its own, and before them those of the samples that it goes on from, up to where it does
        (`Step.after`)."""
        number = self.chosen if sample is None else sample
        by_number = {step.step: step for step in self.steps}
        found: list[Step] = []
        before = math.inf
        while own := [s for s in self.steps if s.sample == number and s.step < before]:
            found = own + found
            parent = by_number.get(-1 if own[0].after is None else own[0].after)
            if parent is None or parent.step >= own[0].step:
                break
            number = parent.sample
            before = parent.step + 1
        return found


class Grade(Record):
    """score in 0..1, passed, and the evidence: the grader's own words, whole.

    graded: False while nobody has graded: score and passed then say nothing. Such an experience
    waits outside memory (`recreate.plugins.traces.ungraded`): nothing takes it for a failure.
    """

    score: float
    passed: bool
    evidence: str = ""
    graded: bool = True


class Provisional(Record):
    """What a model thinks of an attempt that nobody has graded: score in 0..1, passed, and its
    reason.

    It is no Grade, and stands beside one: recall and whoever looks are shown it, marked; what
    counts, trains, promotes or judges reads `grade`, and there is none.
    """

    score: float
    passed: bool
    evidence: str = ""
    model: str = ""

    @property
    def mark(self) -> str:
        """What has to be said of it wherever it is shown."""
        return f"provisional, by {self.model or 'a model'}"


class Worded(Record):
    """What has words, and whose they are."""

    trust: Trust = Field(default="own", exclude_if="own".__eq__)

    @property
    def trusted(self) -> bool:
        """Whether code may put it to use."""
        return self.trust not in UNTRUSTED

    @property
    def origin(self) -> str:
        """Return what to say of it wherever it is shown; '' of our own."""
        return ORIGINS[self.trust]


def least_trust(found: Iterable[Worded]) -> Trust:
    """Return the trust that the least trusted of these has."""
    return max((each.trust for each in found), key=get_args(Trust).index, default="own")


class Experience(Worded):
    """Trace + grade + what is needed to find a way back: the unit learned from.

    id: the attempt's key (`trace.attempt`), or one made of it and of what happened, where another
    attempt of the same key went otherwise.

    foreign: of an imported one, where it comes from and what has no place among our fields.
    checked: whether one that was not made here was graded here; else its grade is its own word.
    provisional: what a judge said of one that nobody has graded.
    """

    id: str
    domain: str
    task: str
    group: str
    split: Split
    prompt: str
    digest: str
    trace: Trace
    grade: Grade
    run: str = ""
    foreign: JsonMap = Field(default_factory=dict, exclude_if=not_)
    checked: bool = Field(default=False, exclude_if=not_)
    provisional: Provisional | None = Field(default=None, exclude_if=_is_none)

    @model_validator(mode="before")
    @classmethod
    def _distrust_foreign(cls, data: Any) -> Any:
        """Take what has foreign facts for imported, also where it was stored without its trust."""
        foreign = isinstance(data, Mapping) and data.get("foreign")
        return {"trust": "imported", **data} if foreign else data

    @property
    def canary(self) -> str:
        """'' of a train task's."""
        return "" if self.split == "train" else canary(self.task)

    @property
    def claims(self) -> bool:
        """Whether its grade is its own word, that nobody here has looked at."""
        return not self.trusted and not self.checked

    @property
    def judged(self) -> Grade | Provisional | None:
        """Return what there is to show of how good it was: its grade, else a judge's provisional
        one, else None."""
        return self.grade if self.grade.graded else self.provisional

    @property
    def mark(self) -> str:
        """What has to be said of `judged` wherever it is shown; '' of a grade."""
        if self.grade.graded:
            return ""
        return "ungraded" if self.provisional is None else self.provisional.mark

    @property
    def outcome(self) -> str:
        """Return `passed` or `failed`, a provisional one with its mark; or `ungraded`."""
        if (found := self.judged) is None:
            return self.mark
        return ("passed" if found.passed else "failed") + (f" ({self.mark})" if self.mark else "")


class Gain(Record):
    """A re-run of one experience's task with and without a lesson: score with - score without, in
    -1..1.

    round: which test of the lesson it belongs to; a later test weighs more.
    """

    experience: str
    group: str
    diff: float = Field(ge=-1, le=1)
    repeat: int = Field(default=0, ge=0)
    task: str = ""
    round: int = Field(default=0, ge=0)


class Trial(Record):
    """An attempt in which a lesson was offered, and what it scored; round as in Gain."""

    experience: str
    score: float = Field(ge=0, le=1)
    round: int = Field(default=0, ge=0)


class Draw(Record):
    """An attempt that called for a lesson, where it was drawn whether to offer it; falls as in
    Lesson, at the time.

    propensity: the probability with which it was offered; at: how many attempts its policy had
    observed before.
    """

    experience: str
    task: str
    group: str
    score: float = Field(ge=0, le=1)
    shown: bool
    propensity: float = Field(gt=0, lt=1)
    at: int = Field(default=0, ge=0)
    falls: int = Field(default=0, ge=0)


class Sign(Record):
    """What an attempt shows of gaming its grader, and the step that showed it."""

    experience: str
    step: int
    what: str


Standing = Literal["candidate", "active", "quarantined", "forgotten", "merged", "vetoed", "held"]


class Evidence(Record):
    """Where an edit or a lesson comes from: an experience's id and a step in it, counted from 0."""

    experience: str
    step: int


class Lesson(Worded):
    """What was learned: a title, a few sentences (Markdown), and what speaks for and against it.

    scope        instance: born of one experience; domain, general: a pattern that earned it
    status       candidate: being tested; active: offered; quarantined: it stopped helping;
                 forgotten: nobody used it; merged: it lives on in `merged_into`; vetoed: a person
                 forbade it; held: it seems to game its grader, and a person decides
    before_veto  the status that it had when it was vetoed or held; '' where it was neither
    held         why it is held; where it is not any more, a person saw that and let it go on
    frozen       a person forbade that code changes it
    trust        the least of all that it was born of
    born_of, supports, contradicts: ids of experiences, each at most once, whatever is observed
    twice
    steps        steps that show it, of experiences among its births and supports; none where nobody
                 said which
    groups       the independent groups of tasks among its supports
    domains      the domains in which it became a pattern
    failed_in    those in which it stopped helping while it stands in others
    merged       ids of the lessons that joined it
    gains        its re-runs, the newest last; trials: attempts in which it was offered or carried,
                 the newest last
    draws        attempts in which it was drawn whether to offer it, the newest last
    signs        attempts among its draws that showed signs of gaming, the newest last
    falls        how often it was demoted; checked: draws from this `at` on may raise an alarm
    rounds       how often its standing was put to the test anew; tested: supports it had at its
                 last test
    offered, helpful, harmful: attempts in which it was offered, and what a policy that counts made
    of them; carried:
                 attempts whose agent had it in its own files
    seen         how many attempts its policy had observed when it was last offered or supported
    """

    id: str
    title: str
    body: str
    scope: Literal["instance", "domain", "general"] = "instance"
    born_of: tuple[str, ...] = ()
    supports: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()
    status: Standing = "candidate"
    before_veto: Standing | Literal[""] = Field(default="", exclude_if=not_)
    frozen: bool = False
    groups: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    failed_in: tuple[str, ...] = Field(default=(), exclude_if=not_)
    merged: tuple[str, ...] = ()
    merged_into: str = ""
    gains: tuple[Gain, ...] = ()
    trials: tuple[Trial, ...] = ()
    draws: tuple[Draw, ...] = Field(default=(), exclude_if=not_)
    steps: tuple[Evidence, ...] = Field(default=(), exclude_if=not_)
    signs: tuple[Sign, ...] = Field(default=(), exclude_if=not_)
    held: str = Field(default="", exclude_if=not_)
    falls: int = Field(default=0, ge=0, exclude_if=not_)
    checked: int = Field(default=0, ge=0, exclude_if=not_)
    rounds: int = Field(default=0, ge=0)
    tested: int = Field(default=0, ge=0)
    offered: int = Field(default=0, ge=0)
    carried: int = Field(default=0, ge=0, exclude_if=not_)
    helpful: int = Field(default=0, ge=0)
    harmful: int = Field(default=0, ge=0)
    seen: int = Field(default=0, ge=0)

    def shown_in(self, id: str) -> list[int]:
        """Return the steps of an experience that show it, in their order."""
        return sorted({at.step for at in self.steps if at.experience == id})

    def cited(self, ids: Iterable[str]) -> list[str]:
        """Return each of these experiences with the steps that show it, such as `3f2a91bc04de7788
        step 3`."""
        return [" step ".join([id, *map(str, self.shown_in(id))]) for id in ids]


class Change(Record):
    """What a memory policy did to one lesson, and why: counts and intervals, not prose.

    kind: born | supported | contradicted | merged | split | tested | promoted | demoted |
    quarantined | forgotten | revised | held.
    """

    kind: str
    lesson: str
    why: str = ""


class Edit(Record):
    """One change to one file of a scaffold.

    old=""  and the file does not exist: create it with `new`.      old="" and it exists: append
            `new`.
    new=""  with old == the whole file: delete it.                  otherwise: replace `old`, found
            exactly once.
    origin is given by whoever accepts the edit, never by who proposes it: `experience` for an
    optimizer's (without evidence it is refused), `search` for the writing of a seed and for text
    that a pruning puts back, `human` for a review, `prune` for a removal by the loop, which may
    only take lines away.
    """

    path: str
    old: str = ""
    new: str = ""
    reason: str = ""
    origin: Origin = "experience"
    evidence: tuple[Evidence, ...] = ()


class Saving(Record):
    """What a task costs with the parent and with the candidate, in `unit` (usd, tokens, calls or
    seconds): means over the paired tasks, their difference and its interval. cheaper: the interval
    is below 0, by enough to be worth a change.

    usd are at the full price of every token: what an endpoint had cached depends on who came first.
    """

    unit: str
    before: float
    after: float
    diff: float
    lo: float
    hi: float
    cheaper: bool


class Stratum(Record):
    """The part of a verdict that is of one kind of task: mean scores of parent and candidate on so
    many of them."""

    name: str
    tasks: int
    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.name} {self.after - self.before:+.2f} on {self.tasks}"


class Look(Record):
    """One look at an agent beside the seed. attempts: at each task, by both; p: of "it is no
    better"; share: the error that the look may spend."""

    attempts: int
    p: float
    share: float


class GateClaim(Record):
    """What is claimed of an agent beside the seed: see recreate/runs/search.py.

    search, anew: the gain in the attempts that chose it, and in those made afterwards, which chose
    nothing; None where there are none. won, lost: tasks that it does better and worse.
    """

    word: Literal["shown", "likely", "none", "cheaper"]
    won: int = 0
    lost: int = 0
    search: float | None = None
    anew: float | None = None
    looks: tuple[Look, ...] = ()


class Verdict(Record):
    """Paired scores on the same tasks and repeats: mean difference, its 90 % interval, sign-flip p.

    before, after, diff, lo and hi are in units of the score (0..1), None when nothing could be
    paired; tasks counts pairs, dropped those lost because an attempt was excluded. saving: what it
    costs, where it is not worse and cheaper. alpha: of a candidate's trial, the chance that it is
    kept without helping: then lo, hi and p hold at every time, and each end misses with that chance
    at most. strata: the same by kind of task, where there are several. step: of a candidate beside
    the current agent, whose place it takes for now where it is `ahead`; claim: what a build claims
    at its end.
    """

    before: float | None
    after: float | None
    diff: float | None
    lo: float | None
    hi: float | None
    p: float | None
    tasks: int
    repeats: int
    verdict: Decision
    reason: str = ""
    dropped: int = 0
    saving: Saving | None = Field(default=None, exclude_if=not_)
    alpha: float | None = Field(default=None, exclude_if=not_)
    strata: tuple[Stratum, ...] = Field(default=(), exclude_if=not_)
    step: bool = Field(default=False, exclude_if=not_)
    ahead: bool = Field(default=False, exclude_if=not_)
    claim: GateClaim | None = Field(default=None, exclude_if=not_)

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        if (self.lo is None) != (self.hi is None):
            raise ValueError("an interval has two ends")
        return self

    @property
    def better(self) -> bool:
        """Whether the gate keeps what comes after: the interval's lower end is above 0."""
        return self.verdict == "better"


class Study(Record):
    """One investigation by an optimizer, and what it proposes. id: its address among the run's
    calls.

    kind      `study` of one experience, `distil` of a batch's ideas, `create` of a seed
    ending    `finished`; or `limit`, `prose` (no tool was called), `fault` (ours): these deliver no
              edits
    cause     where the need lies: knowledge | strategy | tool | none; '' for a study that did not
              finish
    actions   how often each tool was called; kinds: the same by inspect | try | edit | decide
    rejected  distil only: (idea, why) of what was turned down
    """

    id: str
    kind: Literal["study", "distil", "create"] = "study"
    scaffold: str = ""
    experience: str = ""
    task: str = ""
    passed: bool = False
    ending: Literal["finished", "limit", "prose", "fault"] = "finished"
    why: str = ""
    cause: str = ""
    summary: str = ""
    edits: tuple[Edit, ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()
    actions: Mapping[str, int] = {}
    kinds: Mapping[str, int] = {}
    usage: Usage = Usage()


class Revision(Record):
    """A candidate that was judged: kept and dropped alike. id = digest of the child's files.

    review: what a person said of it when `--review` asked: '' | accepted | rejected: WHY.
    """

    id: str
    parent: str
    round: int
    edits: tuple[Edit, ...]
    verdict: Verdict
    kept: bool
    faults: tuple[str, ...] = ()
    usage: Usage = Usage()
    review: str = ""


class Review(Record):
    """A person's word on a candidate that the gate would keep.

    decision  accept | edit | reject
    reason    why; a rejection needs one, since the optimizer reads it
    files     edit only: all files of the candidate as the person wrote them, {posix relative path:
              text}
    """

    decision: Literal["accept", "edit", "reject"]
    reason: str = ""
    files: Mapping[str, str] | None = None

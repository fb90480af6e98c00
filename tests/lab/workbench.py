"""Optimizers side by side on a batch that stands still: what each asks, and what its edits are
worth.

The batch is made once in FOLDER: train attempts of the agent, which go into memory, and its score
on validation. Each trial begins from a copy of that workspace, lets one optimizer propose once from
the same experiences, and attempts the same validation tasks with what it made, with the model that
made the batch. So two optimizers, or two readers of one, differ in nothing else.

    python -m tests.lab.workbench --optimizer recreate --domain sql --data questions.csv
        --agent-model local:qwen2.5-coder-1.5b --model openai:http://127.0.0.1:8377/v1#reader
        --folder /tmp/sql [--trial NAME] [--set study.steps=60]

prints one JSON line. The same command goes on where it stopped: neither a reply nor an attempt is
asked for twice. An optimizer of an older commit is measured by this file as it was then, on the
same FOLDER.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import RecreateError
from recreate.api.shapes import JsonDict
from recreate.api.types import Edit, digest
from recreate.builder.rounds import Build, _ask_optimizer
from recreate.builder.sdk import prepare_model, starting
from recreate.runs import settings
from recreate.runs.attempts import Score, run_attempts
from recreate.runs.gate import judge
from recreate.runs.opening import Parts
from recreate.runs.reader import Run
from recreate.runs.session import Session, open_session
from recreate.storage import files

PROPOSED = "proposed.json"
ROLES = (("requests", "calls"), ("tokens_in", "tokens_in"), ("tokens_out", "tokens_out"))
SHOWN = ("before", "after", "diff", "lo", "hi", "p", "tasks", "verdict")


@dataclass(frozen=True)
class Trial:
    """What is measured. flags: settings of batch and trial alike; parts: objects in place of names,
    for tests."""

    folder: Path
    optimizer: str
    model: str
    flags: JsonDict
    name: str = ""
    own: JsonDict = field(default_factory=dict)
    parts: Parts = field(default_factory=Parts)
    seed: Scaffold | None = None

    @property
    def workspace(self) -> Path:
        return self.folder / "trials" / (self.name or self.optimizer.replace(":", "-"))


def measure(trial: Trial) -> JsonDict:
    """Return what one optimizer took and made; the batch is made where there is none yet."""
    batch = make_batch(trial)
    if not trial.workspace.is_dir():
        part = trial.workspace.with_name(f"{trial.workspace.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(trial.folder / "batch", part)
        part.rename(trial.workspace)
    flags = {**trial.flags, **trial.own, "optimizer": trial.optimizer}
    flags |= {"models.optimizer": trial.model} if trial.model else {}
    with opened(trial, trial.workspace, flags) as session:
        work = Build(session, load_seed(trial, session))
        proposed = read_proposed(trial.workspace) or propose(trial, session, work, batch)
        scored = list[JsonDict]()
        for made in proposed["candidates"]:
            child = scaffolds.apply(work.seed, [Edit.model_validate(e) for e in made["edits"]])
            session.say("note", {"text": f"{child.digest} is attempted on validation"})
            scores = run_attempts(session, child, work.validation, phase="validation")
            verdict = judge(score_map(batch["validation"]), score_map(list_scores(scores)))
            paths = [e["path"] for e in made["edits"]]
            sizes = sum(len(e["new"]) for e in made["edits"])
            scored.append(
                {
                    "digest": child.digest,
                    "edits": len(paths),
                    "paths": sorted(set(paths)),
                    "chars": sizes,
                    "faults": made["faults"],
                    "validation": verdict.model_dump(mode="json", include={*SHOWN}),
                }
            )
    return {
        "schema": 1,
        "optimizer": trial.optimizer,
        "domain": batch["domain"],
        "model": trial.model,
        "agent_model": batch["model"],
        "batch": {key: batch[key] for key in ("digest", "attempts", "passed")},
        **{key: value for key, value in proposed.items() if key != "candidates"},
        "candidates": scored,
        "out": str(trial.workspace),
    }


def make_batch(trial: Trial) -> JsonDict:
    """Return the batch of a folder: which attempts it has, and the agent's scores on validation."""
    workspace = trial.folder / "batch"
    file = workspace / "batch.json"
    if file.is_file():
        known: JsonDict = json.loads(file.read_text("utf-8"))
        if known["flags"] != said(trial.flags):
            raise SystemExit(
                f"{file} is of other settings: {known['flags']}; name another --folder"
            )
        return known
    with opened(trial, workspace, {**trial.flags, "optimizer": "reflect"}) as session:
        seed = load_seed(trial, session)
        work = Build(session, seed)
        train = run_attempts(session, seed, work.train, phase="train")
        held = run_attempts(session, seed, work.validation, phase="validation")
        scaffolds.save(seed, workspace / "agent")
        ids = [score.attempt for score in train if score.score is not None]
        made = {
            "flags": said(trial.flags),
            "digest": digest([seed.digest, ids]),
            "domain": session.domain.name,
            "model": session.model_name,
            "experiences": ids,
            "attempts": len(ids),
            "passed": sum(score.passed for score in train),
            "validation": list_scores(held),
        }
    files.write(file, json.dumps(made))
    return made


def propose(trial: Trial, session: Session, work: Build, batch: JsonDict) -> JsonDict:
    """Let the optimizer propose from the batch; return what it took, and its candidates."""
    run = Run(trial.folder / "batch" / "runs" / "batch")
    experiences = [run.experience(id) for id in batch["experiences"]]
    key = digest(["workbench", batch["digest"], trial.optimizer])
    proposals = work.proposals(key, work.seed, experiences)
    earlier = session.ledger.minutes
    began = time.monotonic()
    asked = _ask_optimizer(session.optimizer(proposals.context()), work.seed, experiences)
    minutes = earlier + (time.monotonic() - began) / 60
    candidates = list[JsonDict]()
    for edits in asked:
        _, made, faults = proposals.apply(work.seed, [proposals.own_words(e) for e in edits])
        if made:
            dumped = [e.model_dump(mode="json") for e in made]
            candidates.append({"edits": dumped, "faults": faults})
        else:
            session.say("note", {"text": "no candidate: " + ("; ".join(faults) or "no edit")})
    trial_run = Run(session.folder)
    usage = trial_run.usage
    asking = [u for (role, _), u in usage.items() if role == "optimizer"]
    acting = [u for (role, _), u in usage.items() if role == "agent"]
    studies = trial_run.studies()
    made_of = {
        **{key: sum(getattr(u, name) for u in asking) for key, name in ROLES},
        "tokens_cached": sum(u.tokens_cached for u in asking),
        "usd": sum(u.usd for u in asking),
        "commands": sum(sum(study.kinds.values()) for study in studies),
        "of_commands": sum((Counter(study.actions) for study in studies), Counter[str]()),
        "sessions": len(studies),
        "minutes": round(minutes, 2),
        "minutes_waiting": round(sum(u.seconds for u in asking) / 60, 2),
        "rehearsals": len(proposals.attempted),
        "agent_tokens": sum(u.tokens_in + u.tokens_out for u in acting),
        "edits": sum(len(each["edits"]) for each in candidates),
        "candidates": candidates,
    }
    files.write(trial.workspace / PROPOSED, json.dumps(made_of))
    return made_of


def read_proposed(workspace: Path) -> JsonDict | None:
    """Return what this trial's optimizer proposed, where it has."""
    file = workspace / PROPOSED
    return json.loads(file.read_text("utf-8")) if file.is_file() else None


@contextmanager
def opened(trial: Trial, workspace: Path, flags: JsonDict) -> Iterator[Session]:
    """Yield a session in a workspace; one that stopped goes on."""
    run = workspace / "runs" / ("batch" if workspace.name == "batch" else "trial")
    loaded = settings.load(workspace, flags)
    session = open_session(
        loaded,
        workspace,
        run,
        say=tell,
        resume=(run / "settings.toml").is_file(),
        parts=trial.parts,
        ready=prepare_model,
    )
    try:
        yield session
    finally:
        session.close()


def load_seed(trial: Trial, session: Session) -> Scaffold:
    """Return the agent that makes the batch, and is edited: once made, the one that made it."""
    kept = trial.folder / "batch" / "agent"
    if kept.is_dir():
        return scaffolds.load(kept)
    if trial.seed is not None:
        return trial.seed
    named = session.settings.scaffold
    who = (session.domain.name, session.model_name)
    return starting(session.settings, session.workspace, named, *who)


def list_scores(scores: Sequence[Score]) -> list[list[Any]]:
    """Return [task, repeat, score] of attempts, as JSON keeps them."""
    return [[score.task, score.repeat, score.score] for score in scores]


def score_map(rows: Sequence[Sequence[Any]]) -> dict[tuple[str, int], float | None]:
    """Return (task, repeat) -> score."""
    return {(task, repeat): score for task, repeat, score in rows}


def said(flags: JsonDict) -> JsonDict:
    """Return settings as they are compared: texts."""
    return {key: str(value) for key, value in sorted(flags.items())}


def tell(event: str, facts: Any) -> None:
    """Say on stderr what happens, in a line."""
    if event == "note":
        print(facts["text"], file=sys.stderr, flush=True)
    elif event == "score":
        score = facts["score"]
        print(f"{facts['phase']} {score.task}: {score.how}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.workbench",
        description="What an optimizer takes and makes of a batch that stands still.",
        epilog="Example: --optimizer recreate --domain sql --data questions.csv --agent-model"
        " local:NAME --model openai:URL#reader --folder sql",
    )
    parser.add_argument("--optimizer", required=True)
    parser.add_argument("--model", required=True, help="who answers the optimizer")
    parser.add_argument("--agent-model", required=True, help="who attempts: batch and candidate")
    parser.add_argument("--domain", default="")
    parser.add_argument("--data", default="", help="a file of rows")
    parser.add_argument("--folder", required=True, type=Path, help="batch and trials are kept here")
    parser.add_argument("--trial", default="", help="its name there; default: the optimizer's")
    parser.add_argument("--train", type=int, default=12)
    parser.add_argument("--validation", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="ADDRESS=VALUE")
    parser.add_argument("--of-trial", action="append", default=[], metavar="ADDRESS=VALUE")
    given = parser.parse_args(argv)
    flags: JsonDict = {key: getattr(given, key) for key in ("train", "validation", "seed", "jobs")}
    flags |= {key: value for key in ("domain", "data") if (value := getattr(given, key))}
    flags |= {"model": given.agent_model, **read_pairs(parser, given.set)}
    own = read_pairs(parser, given.of_trial)
    folder = given.folder.expanduser().resolve()
    try:
        trial = Trial(folder, given.optimizer, given.model, flags, given.trial, own)
        print(json.dumps(measure(trial)))
    except RecreateError as e:
        print(f"error: {e.message}\n  {e.fix}", file=sys.stderr)
        return e.exit_code
    return 0


def read_pairs(parser: argparse.ArgumentParser, pairs: Sequence[str]) -> JsonDict:
    """Return settings by address."""
    if wrong := [pair for pair in pairs if "=" not in pair]:
        parser.error(f"{wrong[0]!r} is no ADDRESS=VALUE, such as study.steps=60")
    return dict(pair.split("=", 1) for pair in pairs)


if __name__ == "__main__":
    sys.exit(main())

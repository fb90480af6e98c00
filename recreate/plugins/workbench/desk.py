"""What the folder's commands do: recall, inspect, regrade, rehearse, check, finish.

Each gets the agent's files as they stand inside, and answers with text. What stops a run (no budget
left, Ctrl-C, an outage) ends the session: it is kept in `failed`, and raised by whoever runs the
folder.
"""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean
from typing import Any, NoReturn

from recreate.agents.lint import problems
from recreate.agents.scaffold import UNCOUNTED, Scaffold
from recreate.agents.trajectory import clip, cut_middle
from recreate.agents.workplace import BIN, furnish
from recreate.api.errors import BadInput
from recreate.api.ports import Sandbox
from recreate.api.shapes import JsonDict
from recreate.api.types import Edit, Evidence, Experience
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.conversation import Wrong
from recreate.plugins.workbench.causes import evidence_of, list_faults, read_causes
from recreate.plugins.workbench.door import CommandAnswer, CommandCall
from recreate.plugins.workbench.edits import edit_file, list_changed
from recreate.plugins.workbench.folder import LEFT_OUT, call_folder, tell_attempts
from recreate.plugins.workbench.regrade import Regraded, regrade
from recreate.storage.redact import redact

SECONDS = 60.0
"""Of one command in an attempt's environment."""
PRINTED = 20_000
"""Characters of one answer."""
HITS = 6

Command = Callable[[CommandCall], CommandAnswer]


class FolderDesk:
    """Use as a context manager. result: what was handed in, empty until then; failed: what ended
    the session from outside."""

    def __init__(
        self,
        context: OptimizerContext,
        parent: Scaffold,
        attempts: Mapping[str, Experience],
        *,
        cites: bool = True,
    ) -> None:
        self.context = context
        self.parent = parent
        self.attempts = attempts
        self.cites = cites
        self.left = context.limits.rehearsals * max(1, len(attempts))
        self.made = 0
        self.open: dict[tuple[str, str], Sandbox] = {}
        self.result: JsonDict = {}
        self.failed: BaseException | None = None
        self.calls: Counter[str] = Counter()

    def __enter__(self) -> FolderDesk:
        return self

    def __exit__(self, *_: object) -> None:
        for sandbox in self.open.values():
            sandbox.close()

    @property
    def commands(self) -> dict[str, Command]:
        """The commands that are not switched off."""
        context, without = self.context, self.context.without
        found: dict[str, Callable[[CommandCall], CommandAnswer]] = {
            "check": self.check,
            "finish": self.finish,
        }
        if "trajectory" not in without:
            found["recall"] = self.recall
            found |= {"regrade": self.regrade} if context.play is not None else {}
        if "environment" not in without and context.open is not None:
            found["inspect"] = self.inspect
        if "environment" not in without and context.attempt is not None and self.left:
            found["rehearse"] = self.rehearse
        return found

    def answer(self, asked: CommandCall) -> CommandAnswer:
        """Carry a command out. What it raises that is not its own ends the session."""
        if self.failed is not None:
            return CommandAnswer("the session is over", 1)
        command = self.commands.get(asked.command)
        if command is None:
            return CommandAnswer(f"there is no {asked.command} here", 1)
        self.calls[asked.command] += 1
        try:
            text, status, files = command(asked)
            return CommandAnswer(cut_middle(redact(text), PRINTED, LEFT_OUT), status, files)
        except Wrong as e:
            return CommandAnswer(redact(str(e)), 1)
        except BadInput as e:
            return CommandAnswer(redact(f"{e.message}; {e.fix}"), 1)
        except BaseException as e:  # it is raised again by who runs the session
            self.failed = e
            return CommandAnswer("the session is over", 1)

    # ------------------------------------------------------------------------- what was changed

    def child(self, asked: CommandCall) -> Scaffold:
        """Return the agent as its files stand. Raises Wrong where they are none."""
        if asked.odd:
            raise Wrong("\n".join(f"agent/{path} {why}" for path, why in asked.odd.items()))
        kept = {p: text for p, text in self.parent.files.items() if p in UNCOUNTED}
        files = {**kept, **{p: text for p, text in asked.agent.items() if p not in UNCOUNTED}}
        if files == self.parent.files:
            return self.parent
        child = Scaffold(name=self.parent.name, files=files)
        if wrong := [*problems(child)]:
            raise Wrong("\n".join(f"agent/{why}" for why in wrong))
        return child

    def changed(self, child: Scaffold) -> Scaffold:
        """Return a child that is not the parent. Raises Wrong."""
        if child.digest == self.parent.digest:
            raise Wrong("agent/ is as it was: change something first")
        return child

    def edits(self, child: Scaffold, causes: str | None) -> tuple[list[Edit], list[str]]:
        """Return the edits that make the child, and what would be refused. causes: what stands in
        causes.md; None: nobody looks there yet, and any step is cited."""
        faults = []
        paths = list_changed(self.parent.files, child.files)
        read = read_causes(causes or "")
        if causes is not None and self.cites:
            faults += list_faults(read, paths, self.attempts)
        edits = []
        for path in paths:
            reason, cited = evidence_of(path, read, self.attempts) if not faults else ("", ())
            if not cited and self.cites:
                e = next(iter(self.attempts.values()))
                cited = (Evidence(experience=e.id, step=max(0, len(e.trace.steps) - 1)),)
            edit = edit_file(path, self.parent.files.get(path), child.files.get(path))
            origin = "experience" if self.cites else "search"
            edits.append(
                edit.model_copy(update={"reason": reason, "evidence": cited, "origin": origin})
            )
        if edits and not faults:
            faults += self.context.validate(self.parent, edits)
        if not faults and any(path.startswith("tools/") for path in paths):
            faults += self.context.smoke_test(child)
        return edits, faults

    # ------------------------------------------------------------------------------- commands

    def recall(self, asked: CommandCall) -> CommandAnswer:
        """recall WORDS [--where KEY=VALUE] [--by meaning|words]: train attempts of this domain."""
        parser = _Words("recall", "WORDS [--where KEY=VALUE ...] [--by meaning|words]")
        parser.add_argument("words", nargs="+")
        parser.add_argument("--where", action="append", default=[])
        parser.add_argument("--by", choices=("meaning", "words"), default="meaning")
        given = parser.parse_args(asked.arguments)
        filters: JsonDict = {"domain": self.context.domain}
        if "evidence" in self.context.without:
            filters["grain"] = "step"
        for pair in given.where:
            key, equals, value = pair.partition("=")
            if not equals:
                raise Wrong(f"--where wants KEY=VALUE, such as outcome=failed, not {pair!r}")
            filters[key] = int(value) if value.isdecimal() else value
        search = self.context.recall if given.by == "meaning" else self.context.search
        hits = search(" ".join(given.words), HITS, filters)
        return CommandAnswer(
            "\n\n".join(self._tell_hit(hit) for hit in hits) or "nothing was found"
        )

    def _tell_hit(self, hit: Any) -> str:
        known = next((n for n, e in self.attempts.items() if e.id == hit.experience), "")
        return f"{f'attempt {known}, ' if known else ''}{hit.text}"

    def inspect(self, asked: CommandCall) -> CommandAnswer:
        """inspect NN [--start] [--fresh] -- COMMAND: a command in the attempt's environment."""
        words = list(asked.arguments)
        cut = words.index("--") if "--" in words else len(words)
        parser = _Words("inspect", "NN [--start] [--fresh] -- COMMAND")
        parser.add_argument("attempt")
        parser.add_argument("--start", action="store_true")
        parser.add_argument("--fresh", action="store_true")
        given = parser.parse_args(words[:cut])
        rest = words[cut + 1 :]
        if not rest:
            raise Wrong("inspect wants a command after --, such as: inspect 01 -- ls -la")
        (e,) = self._named([given.attempt])
        where = "start" if given.start else "end"
        if given.fresh and (e.id, where) in self.open:
            self.open.pop((e.id, where)).close()
        note = ""
        if (e.id, where) not in self.open:
            assert self.context.open is not None
            self.open[e.id, where], how = self.context.open(e, not given.start)
            note = f"[the environment was made again: {how}]\n"
        sandbox = self.open[e.id, where]
        furnish(sandbox, self.child(asked), e.prompt, e.trace.chosen)
        command = rest[0] if len(rest) == 1 else shlex.join(rest)
        output = sandbox.run(f'export PATH="$PWD/{BIN}:$PATH"\n{command}', timeout=SECONDS)
        limit = f"; limit reached: {output.limit}" if output.limit else ""
        text = f"{note}{output.text.rstrip()}\n[exit status {output.status}{limit}]"
        return CommandAnswer(text, min(output.status, 255))

    def regrade(self, asked: CommandCall) -> CommandAnswer:
        """regrade [NN ...]: the stored replies through agent/ as it is now, graded."""
        child = self.child(asked)
        chosen = self._named(asked.arguments) if asked.arguments else [*self.attempts.values()]
        play = self.context.play
        assert play is not None

        def one(e: Experience) -> Regraded:
            try:
                return regrade(play, child, e)
            except BadInput as error:
                return Regraded(None, step=0, why=error.message)

        with ThreadPoolExecutor(self.context.jobs, thread_name_prefix="regrade") as pool:
            found = list(pool.map(one, chosen))
        return CommandAnswer(
            _tell_regraded(self.attempts, {e.id: r for e, r in zip(chosen, found, strict=True)})
        )

    def rehearse(self, asked: CommandCall) -> CommandAnswer:
        """rehearse NN ... [--repeats N]: paid attempts at these tasks with agent/ as it is now."""
        parser = _Words("rehearse", "NN [NN ...] [--repeats N]")
        parser.add_argument("attempts", nargs="+")
        parser.add_argument("--repeats", type=int, default=1)
        given = parser.parse_args(asked.arguments)
        chosen = self._named(given.attempts)
        count = len(chosen) * max(1, given.repeats)
        if count > self.left:
            raise Wrong(f"{self.left} rehearsals are left, and this takes {count}: name fewer")
        child = self.changed(self.child(asked))
        if faults := self.edits(child, None)[1]:
            raise Wrong("it would be refused:\n" + "\n".join(faults))
        attempt = self.context.attempt
        assert attempt is not None
        places = [(e, repeat) for e in chosen for repeat in range(max(1, given.repeats))]
        with ThreadPoolExecutor(self.context.jobs, thread_name_prefix="rehearse") as pool:
            made = list(pool.map(lambda place: attempt(child, *place), places))
        self.left -= count
        names = {e.id: name for name, e in self.attempts.items()}
        lines, files = [], dict[str, str]()
        for (e, repeat), new in zip(places, made, strict=True):
            if new is None:
                lines.append(f"{names[e.id]}: no attempt: no budget is left for it, or it was lost")
                continue
            self.made += 1
            under = f"rehearsals/{self.made:02d}"
            texts = tell_attempts(self.context, {names[e.id]: new}, under)
            files |= texts
            lines.append(
                f"{names[e.id]}{f' repeat {repeat}' if repeat else ''}: {e.grade.score:g} ->"
                f" {new.grade.score:g} ({under}/{call_folder(names[e.id], new)})"
            )
        return CommandAnswer("\n".join([*lines, f"{self.left} rehearsals are left"]), 0, files)

    def check(self, asked: CommandCall) -> CommandAnswer:
        """check: what would be refused."""
        edits, faults = self.edits(self.child(asked), asked.causes)
        if faults:
            return CommandAnswer("\n".join(faults), 1)
        files = ", ".join(edit.path for edit in edits)
        return CommandAnswer(f"nothing would be refused; changed: {files or 'nothing'}")

    def finish(self, asked: CommandCall) -> CommandAnswer:
        """finish: hand agent/ and causes.md in."""
        child = self.child(asked)
        edits, faults = self.edits(child, asked.causes)
        if faults:
            return CommandAnswer("not handed in:\n" + "\n".join(faults), 1)
        summary = asked.causes.strip() or "Nothing was changed."
        self.result.update(summary=summary, edits=tuple(edits))
        return CommandAnswer("handed in")

    def _named(self, names: Sequence[str]) -> list[Experience]:
        found = []
        for name in names:
            number = name.partition("-")[0].lstrip("0").rjust(2, "0")
            if number not in self.attempts:
                raise Wrong(f"there is no attempt {name}; there are: {', '.join(self.attempts)}")
            found.append(self.attempts[number])
        return found


def _tell_regraded(attempts: Mapping[str, Experience], found: Mapping[str, Regraded]) -> str:
    """Return a line for each attempt; those that stop alike have one together. found: by the id of
    the attempt."""
    lines, stopped = [], dict[tuple[int, str], list[str]]()
    before, after = [], []
    for name, e in attempts.items():
        regraded = found.get(e.id)
        if regraded is None:
            continue
        if regraded.score is None:
            stopped.setdefault((regraded.step, regraded.why), []).append(name)
            continue
        before.append(e.grade.score)
        after.append(regraded.score)
        said = f": {clip(regraded.evidence, 300)}" if regraded.evidence else ""
        lines.append(f"{name}: {e.grade.score:g} -> {regraded.score:g}{said}")
    for (step, why), names in stopped.items():
        ends = f"the stored replies end at step {step}, where the prompt is another"
        lines.append(f"{', '.join(names)}: not graded: {ends}: {why}")
    if after:
        means = f"mean {fmean(before):.3f} -> {fmean(after):.3f}"
        lines.append(f"{len(after)} of {len(found)} graded: {means}")
    return "\n".join(lines)


class _Words(ArgumentParser):
    """Reads a command's words; what is wrong with them is raised as Wrong."""

    def __init__(self, name: str, usage: str) -> None:
        super().__init__(prog=name, usage=f"{name} {usage}", add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise Wrong(f"{message}\nusage: {self.usage}")

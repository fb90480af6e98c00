"""What an optimizer says beforehand of the edits that it hands in: the gain it expects, what it
mends and may break."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from recreate.agents.trajectory import clip
from recreate.api.types import Edit, Experience, Forecast
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.conversation import Wrong
from recreate.optimizers.investigator.read_tools import short

NAMES = {"type": "array", "items": {"type": "string"}}
GAIN = {
    "type": "number",
    "minimum": 0,
    "maximum": 1,
    "description": (
        "by how much you expect the mean score (0 to 1) of tasks you have not seen to rise"
    ),
}


class Forecaster:
    """Asks for a forecast when work is handed in, once more when it is missing or names what there
    is not; what is still wrong then is left out, since work that is done is worth more than the
    forecast of it."""

    def __init__(self, context: OptimizerContext, batch: Sequence[Experience]) -> None:
        self.kinds = sorted(set(context.kinds.values()))
        self.known = {name: name for name in self.kinds}
        # a study is told of tasks by their marks and by their experiences, never by their ids
        for task in context.tasks:
            self.known |= dict.fromkeys((task, short(task), f"task {short(task)}"), task)
        for each in batch:
            self.known |= dict.fromkeys(
                (each.task, short(each.task), f"task {short(each.task)}", each.id), each.task
            )
        kinds = f", or kinds of task: {', '.join(self.kinds)}" if self.kinds else ""
        self.there = f"experiences of this batch, by id{kinds}"
        self.asked: Mapping[str, Mapping[str, Any]] = {}
        if context.limits.forecast == "asked":
            helped = {
                **NAMES,
                "description": f"what you expect the edits to help: {self.there}; may be empty",
            }
            hurt = {**NAMES, "description": "the same, of what they may hurt; may be empty"}
            self.asked = {"gain": GAIN, "mends": helped, "breaks": hurt}
        self.sent_back = False

    def of(self, edits: Sequence[Edit], given: Mapping[str, Any]) -> tuple[Edit, ...]:
        """The edits with their forecast. Raises Wrong, once."""
        if not self.asked or not edits:
            return tuple(edits)
        gain = given.get("gain")
        names = {key: [str(name) for name in given.get(key) or ()] for key in ("mends", "breaks")}
        unknown = sorted({name for each in names.values() for name in each} - set(self.known))
        if not self.sent_back and (
            unknown or not isinstance(gain, int | float) or not 0 <= gain <= 1
        ):
            self.sent_back = True
            wrong = f"there is no {clip(unknown[0], 80)!r}" if unknown else "say what you expect"
            raise Wrong(
                f"{wrong}: `gain` is from 0 to 1; `mends` and `breaks` name {self.there}, or"
                " nothing"
            )
        if not isinstance(gain, int | float) or not 0 <= gain <= 1:
            return tuple(edits)
        mends, breaks = (
            tuple(dict.fromkeys(self.known[n] for n in each if n in self.known))
            for each in names.values()
        )
        said = Forecast(gain=gain, mends=mends, breaks=breaks)
        return tuple(edit.model_copy(update={"forecast": said}) for edit in edits)


def tell_forecast(edit: Edit, kinds: Collection[str]) -> str:
    """What is expected of an edit, in a line, with tasks by their marks; '' for nothing."""
    if edit.forecast is None:
        return ""

    def told(names: Sequence[str]) -> str:
        return ", ".join(name if name in kinds else f"task {short(name)}" for name in names)

    parts = [f"a gain of {edit.forecast.gain:.2f}"]
    parts += [f"mends {told(edit.forecast.mends)}"] if edit.forecast.mends else []
    parts += [f"may break {told(edit.forecast.breaks)}"] if edit.forecast.breaks else []
    return f"\nexpects: {'; '.join(parts)}"

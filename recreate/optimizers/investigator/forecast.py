"""What an optimizer says beforehand of the edits that it hands in: the gain it expects, what it mends and may break."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recreate.api.types import Edit, Experience, Forecast
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.conversation import Wrong
from recreate.optimizers.investigator.read_tools import short

NAMES = {"type": "array", "items": {"type": "string"}}
ASKED: Mapping[str, Mapping[str, Any]] = {
    "gain": {
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "description": "by how much you expect the mean score (0 to 1) of tasks you have not seen to rise",
    },
    "mends": {**NAMES, "description": "ids of train tasks, or kinds of task, that you expect the edits to help"},
    "breaks": {**NAMES, "description": "those that they may hurt"},
}


class Forecaster:
    """Asks for a forecast when work is handed in, once more when it is missing or names what there is not; what is
    still wrong then is left out, since work that is done is worth more than the forecast of it."""

    def __init__(self, context: OptimizerContext, batch: Sequence[Experience]) -> None:
        self.known = {name: name for name in (*context.tasks, *context.kinds.values())}
        for each in batch:  # a study is told of tasks by their marks and by their experiences, never by their ids
            self.known |= dict.fromkeys((each.task, short(each.task), f"task {short(each.task)}", each.id), each.task)
        self.asked = ASKED if context.limits.forecast == "asked" else {}
        self.sent_back = False

    def of(self, edits: Sequence[Edit], given: Mapping[str, Any]) -> tuple[Edit, ...]:
        """The edits with their forecast. Raises Wrong, once."""
        if not self.asked or not edits:
            return tuple(edits)
        gain = given.get("gain")
        names = {key: [str(name) for name in given.get(key) or ()] for key in ("mends", "breaks")}
        unknown = sorted({name for each in names.values() for name in each} - set(self.known))
        if not self.sent_back and (unknown or not isinstance(gain, int | float) or not 0 <= gain <= 1):
            self.sent_back = True
            wrong = f"{unknown[0]} is no train task and no kind of task here" if unknown else "say what you expect"
            raise Wrong(
                f"{wrong}: `gain` from 0 to 1; in `mends` and `breaks` ids of train tasks, or kinds, or nothing"
            )
        if not isinstance(gain, int | float) or not 0 <= gain <= 1:
            return tuple(edits)
        mends, breaks = (
            tuple(dict.fromkeys(self.known[n] for n in each if n in self.known)) for each in names.values()
        )
        said = Forecast(gain=gain, mends=mends, breaks=breaks)
        return tuple(edit.model_copy(update={"forecast": said}) for edit in edits)


def tell_forecast(edit: Edit) -> str:
    """What is expected of an edit, in a line; '' for nothing."""
    if edit.forecast is None:
        return ""
    parts = [f"a gain of {edit.forecast.gain:.2f}"]
    parts += [f"mends {', '.join(edit.forecast.mends)}"] if edit.forecast.mends else []
    parts += [f"may break {', '.join(edit.forecast.breaks)}"] if edit.forecast.breaks else []
    return f"\nexpects: {'; '.join(parts)}"

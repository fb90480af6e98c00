"""Memory and lessons by hand: looked through, forgotten, exported, pruned."""

NEEDS = ("traces",)

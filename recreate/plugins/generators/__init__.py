"""Tasks that a program makes, at levels that fit a learner; a model may write it."""

NEEDS = ("measuring",)

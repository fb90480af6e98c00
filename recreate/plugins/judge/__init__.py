"""Answers graded by a model with a rubric, and how far it agrees with people."""

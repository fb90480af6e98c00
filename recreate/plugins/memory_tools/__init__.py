"""A memory as one file, and what it no longer needs deleted."""

NEEDS = ("traces",)

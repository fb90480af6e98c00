"""The domain `apiworld`: tools that keep a state, over the steps of a task (tau-bench, BFCL
multi-turn)."""

from recreate.plugins.benchmarks.apiworld.domain import ApiWorld

__all__ = ["ApiWorld"]

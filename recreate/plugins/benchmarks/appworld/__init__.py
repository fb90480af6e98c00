"""The domain `appworld`: what people ask for, done by code over the APIs of nine apps that keep a
state (AppWorld)."""

from recreate.plugins.benchmarks.appworld.domain import AppWorld

__all__ = ["AppWorld"]

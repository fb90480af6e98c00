"""Agents: a folder of text each, how it attempts a task, and what is wrong with it."""

"""Agents that exist already, as a command or in this process, in place of a scaffold."""

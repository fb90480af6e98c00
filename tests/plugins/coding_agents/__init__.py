"""Coding agents of others as the optimizer."""

"""Policies of memory besides the ladder, each of one file with its paper and what was inferred."""

from pathlib import Path

PROMPTS = Path(__file__).parent / "prompts"
"""What the policies ask."""

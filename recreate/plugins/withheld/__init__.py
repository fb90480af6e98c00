"""Verdicts that the judged code cannot forge: expected values stay on another side."""

NEEDS = ("audit", "scorers")

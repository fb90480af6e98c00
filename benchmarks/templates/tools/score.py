"""Scores one call of a tool. Runs in a sandbox: plain Python, no network; answer is what the agent wrote."""

import json


def score(answer, row):
    """1 for the right tool with the right arguments, a half for the right tool alone."""
    wanted = json.loads(row["call"])
    try:
        given = json.loads(answer)
    except ValueError:
        return {"score": 0, "evidence": "The answer is no JSON."}
    if not isinstance(given, dict) or given.get("tool") != wanted["tool"]:
        return {"score": 0, "evidence": "Another tool is meant."}
    if given != wanted:
        return {"score": 0.5, "evidence": "The right tool, and not the right arguments."}
    return {"score": 1, "evidence": "The right call."}

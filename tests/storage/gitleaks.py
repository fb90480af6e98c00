"""Takes gitleaks' rules over: `python -m tests.storage.gitleaks CLONE` writes
recreate/storage/gitleaks.json.

CLONE is a clone of github.com/gitleaks/gitleaks. Left out: rules that hold for files of some name
only, and the one for any assignment of anything, which finds more that is none than what is.
Changed: a key may also end before a bracket, a comma or a full stop, since it is prose that is read
here besides files.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
ALSO = r"(?:[^\w\-./+=]|\.(?:\s|$)|$)"
TARGET = Path(__file__).parents[2] / "recreate" / "storage" / "gitleaks.json"


def converted(table: dict[str, Any], licence: str) -> dict[str, Any]:
    """What of gitleaks' configuration is used: the rules, and what is no secret whatever rule finds
    it."""
    rules = []
    for rule in table["rules"]:
        if "path" in rule or "regex" not in rule or rule["id"] == "generic-api-key":
            continue
        allowed = [a for a in rule.get("allowlists", []) if not a.keys() & {"paths", "commits"}]
        rules.append(
            {
                "id": rule["id"],
                "regex": rule["regex"].replace(END, ALSO),
                "words": [word.lower() for word in rule["keywords"]],
                "group": rule.get("secretGroup", 0),
                "entropy": rule.get("entropy", 0),
                "allowed": [
                    {
                        "in": each.get("regexTarget", "secret"),
                        "regexes": each.get("regexes", []),
                        "words": [word.lower() for word in each.get("stopwords", [])],
                    }
                    for each in allowed
                ],
            }
        )
    everywhere = table["allowlist"]
    return {
        "about": f"Rules of gitleaks, https://github.com/gitleaks/gitleaks. {licence}",
        "allowed": everywhere["regexes"],
        "words": everywhere["stopwords"],
        "rules": rules,
    }


if __name__ == "__main__":
    clone = Path(sys.argv[1])
    table = tomllib.loads((clone / "config" / "gitleaks.toml").read_text("utf-8"))
    found = converted(table, (clone / "LICENSE").read_text("utf-8"))
    TARGET.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", "utf-8")
    print(f"{len(found['rules'])} rules")

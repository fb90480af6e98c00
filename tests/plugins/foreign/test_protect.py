"""What a program of somebody else's may run and see of the host is a person's to decide."""

from __future__ import annotations

import re
from typing import Any

import pytest

from recreate.agents.scaffold import BadEdit, apply, load
from recreate.api.paths import shipped
from recreate.api.types import Edit, Evidence

SEED = load(shipped("scaffolds") / "seed")


@pytest.mark.parametrize(
    "toml",
    [
        'action = "command"\ncommand = "cat /h/etc/passwd"\nmounts = {"/h" = "/"}\n',
        'action = "command"\ncommand = "true"\nvenv = "/root"\n',
        'action = "python:os:system"\n',
    ],
)
@pytest.mark.parametrize("origin", ["experience", "search", "prune", "human"])
def test_only_a_person_makes_the_agent_a_program_of_its_own_or_mounts_what_the_host_has(
    toml: str, origin: Any
) -> None:
    was = SEED.files["agent.toml"]
    made = toml + re.sub(r"(?m)^(action|native) = .*$", "", was)
    first, _, rest = made.partition("\n")
    begun = re.sub(r"(?m)^(action|native) = .*$", "", was)
    ways = (
        [("agent.toml", was, made)],
        [
            ("agent.toml", was, begun),
            ("agent.toml", begun, f"{first}\n{begun}"),
            ("agent.toml", f"{first}\n{begun}", f"{first}\n{rest}"),
        ],
        [("agent.toml", was, f"{first}\nbroken"), ("agent.toml", f"{first}\nbroken", made)],
    )
    for way in ways:
        cites = (Evidence(experience="e", step=0),) if origin == "experience" else ()
        edits = [
            Edit(path=p, old=o, new=n, origin=origin, evidence=cites) for p, o, n in way if o != n
        ]
        if origin == "human":
            assert apply(SEED, edits).agent.foreign
        else:
            with pytest.raises(BadEdit, match=r"a program of its own|is a pruning and adds text"):
                apply(SEED, edits)

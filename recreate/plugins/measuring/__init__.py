"""What an agent's noise, turns and parts are worth, and how hard its tasks are."""

NEEDS = ("bench", "each")

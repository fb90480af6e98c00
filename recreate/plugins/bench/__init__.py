"""Tables of agents, models and domains, measured or read back from runs, and judged."""

"""What agents did under other tools, as experience: one file a format, found by `plug.find("traces", NAME)`.

    files -> documents (JSON values with their place) -> a format reads trajectories -> experiences -> memory

`foreign` has the nouns and the port, `said` turns a conversation into steps, `take` does the whole.
"""

"""A recorded build, played back in a minute without a key or a network."""

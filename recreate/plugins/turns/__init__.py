"""Other ways of taking turns, each asked for by a key or table of agent.toml.

lookahead   before each action several candidates are tried out in copies of the sandbox
observe     the first turns of a sample are done in copies that are thrown away
restore     an action is taken back when more fails after it than before
branches    samples go on in several ways from one beginning
"""

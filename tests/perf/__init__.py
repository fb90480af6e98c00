"""`python -m tests.perf NAME [--json]` is `python -m tests.lab.perf`."""

"""What recreate costs, beside a thin client doing the same.

    python -m tests.lab.perf NAME [--json]

    step         own CPU per agent step, against http.client and json sending the same bodies
    throughput   steps per second of 64 agents at once, against 64 threads of the same thin client
    help         CPU of `recreate --help`
    toy-build    a whole scripted build on the toy domain, its imports excluded
    memory       what stays in memory of an attempt that has ended
    study        own CPU of one study, against http.client and json doing the same; the index of a
                 long attempt
    rl           advantages of 100,000 rows from group ids, against one flat torch.sort of the
                 rewards
    view         the server of `recreate view` over 100,000 steps: first paint, search, memory
    local        a local model's CPU seconds with and without what is proposed from the prompt;
                 tokens computed twice
    house        files, lines, import levels and circles of the package, against the goals; --root
                 DIR: of another one

The machine may be busy: ours and the baseline take turns within one run, and what counts is the
median of the ratios of such pairs. Exit code 0 when every goal is met, else 4. Nothing here is a
test.
"""

"""Keep a revision only where it is shown to be better than its parent: `--gate.keep each`."""

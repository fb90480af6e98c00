"""Which lessons there are and which are offered. Each policy (port `MemoryPolicy`) is one file."""

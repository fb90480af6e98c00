"""A run, shown."""

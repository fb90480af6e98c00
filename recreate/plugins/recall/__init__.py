"""Memory that a working agent asks by itself, in the middle of an attempt."""

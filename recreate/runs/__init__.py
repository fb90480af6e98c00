"""One run: its settings, what it may spend, what it did, what it found."""

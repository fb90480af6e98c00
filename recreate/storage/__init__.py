"""Files that survive a kill."""

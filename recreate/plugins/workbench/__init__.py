"""An optimizer as a coding agent in a folder: attempts to read, the agent's files to edit, and six
commands."""

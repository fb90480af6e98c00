"""The optimizer `workbench`: a coding agent in a folder."""

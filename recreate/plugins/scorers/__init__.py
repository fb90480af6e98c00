"""Scorers of rows beside the plain ones: words in common, a pattern, a schema, a function."""

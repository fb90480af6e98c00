"""What became of an edit: in how many attempts each part that a revision added or changed was
shown, read or run, and what its tools answer without the model."""

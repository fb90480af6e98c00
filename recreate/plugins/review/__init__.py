"""A person at the terminal, who decides what a build keeps."""

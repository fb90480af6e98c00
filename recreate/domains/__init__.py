"""Kinds of task, and how each is graded. A domain is found by `recreate.api.registry.find("domain", name)`."""

"""Kinds of task, and how each is graded. A domain is found by `recreate.plug.find("domain", name)`."""

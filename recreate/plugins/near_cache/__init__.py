"""Replies to questions that were nearly the same, in place of a call."""

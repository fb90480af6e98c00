"""Attacks on a domain's grader: answers that leave a task unsolved and may pass."""

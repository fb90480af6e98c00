"""Policies of memory besides the ladder: randomised, playbook, mistakes and more."""

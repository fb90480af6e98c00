"""The parts of the methods, one file a family.

`recreate.plugins.rl.recipe` says what a part is, and finds them by name.
"""

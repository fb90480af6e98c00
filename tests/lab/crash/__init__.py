"""Builds that are killed, or whose disk fills up, at every boundary: `python -m tests.lab.crash`.

toy.py         a build of a second: tasks, a sandbox in memory, a model that notes what it was paid
               for
boundaries.py  counting what reaches the disk, and stopping there
trial.py       one build stopped, gone on with, and held against the one that nobody stopped
"""

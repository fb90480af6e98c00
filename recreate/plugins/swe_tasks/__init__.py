"""New tasks for swe: injected bugs, and real ones of releases and histories."""

NEEDS = ("swe",)

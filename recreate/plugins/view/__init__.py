"""All of a workspace in a browser, while it runs."""

NEEDS = ("traces",)

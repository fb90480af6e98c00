"""All of a workspace in a browser, while it runs."""

NEEDS = ("memory_tools", "review", "traces")

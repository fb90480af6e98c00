"""MCP servers whose tools agents call, and memory as a server for other agents."""

NEEDS = ("memory_tools", "traces")

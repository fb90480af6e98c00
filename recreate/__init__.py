"""recreate: LLM agents for a domain, created from experience."""

__version__ = "0.1.0"

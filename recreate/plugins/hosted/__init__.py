"""Models of any hosted provider, by litellm."""

"""A person who decides what a build keeps, and which revision is the agent."""

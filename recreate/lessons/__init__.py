"""What experience taught."""

"""What was attempted: kept in files that only grow, and found again."""

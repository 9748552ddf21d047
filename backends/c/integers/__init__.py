"""Products and windows of integers."""

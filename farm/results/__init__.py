"""What was measured: records, the database that keeps them, and what got worse since when."""

"""Memory: when values live, and where in the one arena."""

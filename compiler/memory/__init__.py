"""Memory planning: lifetimes of values, and their offsets in the arena."""

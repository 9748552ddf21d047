"""From real numbers to integers that stand for them: what is said, and the ranges it is about."""

"""The page of a suite: tables, bars, the roofline, and the arena over a step."""

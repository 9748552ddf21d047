"""Numbers at which operators are most likely to differ: zeros, ties, kinks, limits, NaN."""

INF, NAN = float("inf"), float("nan")
DENORMAL, HUGE = 1e-40, 3e37

EDGES = (
    *(0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 2.5, -2.5, 3.0, -3.0, 6.0, -6.0),
    *(0.1, -0.1, 9.0, -9.0, 19.9, 20.0, 20.5, -20.5, 40.0, -40.0, 88.5, -88.5, 104.0, -104.0),
    *(DENORMAL, -DENORMAL, 1e-30, -1e-30, 1e-5, -1e-5, 1e10, -1e10, HUGE, -HUGE),
    *(8388607.5, 16777217.0, -16777217.0, 3e9, -3e9, INF, -INF, NAN),
)
"""Operands of unary operators."""

PAIRED = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, -3.5, DENORMAL, 1e30, INF, -INF, NAN)
"""Operands of binary operators, in every combination."""

WHOLE = (0, 1, -1, 2, -2, 3, 7, -7, 1000, 2654435761, -(2**31), 2**31 - 1, 2**53 + 1, -(2**62))
"""Integers whose products overflow 64 bits."""

WHOLE_I32 = (0, 1, -1, 2, -2, 3, 7, -7, 1000, 65537, -(2**31), 2**31 - 1)
"""Integers whose products overflow 32 bits."""

LINES = (
    (1.0, 2.0, 2.0, -1.0),
    (3.0, 3.0, 3.0, 3.0),
    (0.0, 0.0, 0.0, 0.0),
    (-0.0, 0.0, 0.0, -0.0),
    (0.0, 2.0, -3.0, 4.0),
    (0.0, 0.0, 2.0, 5.0),
    (-INF, -INF, -INF, -INF),
    (INF, INF, 1.0, 0.0),
    (INF, -INF, 1.0, 0.0),
    (-INF, 1.0, 2.0, -2.0),
    (NAN, 1.0, 2.0, 3.0),
    (1.0, NAN, NAN, -INF),
    (1e15, 1.0, 1e-15, 0.5),
    (DENORMAL, 0.0, DENORMAL, 1.0),
    (100.0, -100.0, 88.0, 0.0),
)
"""Edge-case rows for reductions and sorting: ties, constants, zeros, limits."""

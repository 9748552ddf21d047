"""64-bit shifts and exact quotients, from what the runtime has for 64 bits: wrapping products,
sums, remainders, and 32-bit right shifts.

Shifts are 0 to 63 here, and divisors neither 0 nor -1.
"""

from pockengine.backends.tflite.forms.movement import gathered
from pockengine.backends.tflite.kinds import FLOAT, INT, TRUTH, UNSIGNED, WIDE
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import I32, I64

DOUBLINGS = 5
"""Newton steps of a modular inverse: an odd number is its own inverse in 3 bits, and each step
doubles the bits, to 96.
"""


def lower(w: EntryWriter, x: LiteTensor) -> LiteTensor:
    """Return the lower 32 bits of 64, unsigned."""
    return w.cast(w.broadcast("FLOOR_MOD", x, w.scalar(2**32, I64)), UNSIGNED)


def words(w: EntryWriter, x: LiteTensor) -> LiteTensor:
    """View 64-bit integers as two of 32, the lower first, along a last dimension."""
    return w.op("BITCAST", x, shape=(*x.shape, 2), kind=INT)


def power(w: EntryWriter, by: LiteTensor) -> LiteTensor:
    """Return 2 to the power of 0 to 62, in 64 bits."""
    return w.cast(w.broadcast("POW", w.scalar(2.0), w.cast(by, FLOAT)), WIDE)


def moved_left(w: EntryWriter, a: LiteTensor, by: LiteTensor) -> LiteTensor:
    """Multiply by a power of two in two steps: 2^63 does not fit in 64 signed bits."""
    first = w.broadcast("MINIMUM", by, w.scalar(32, I32))
    second = w.broadcast("SUB", by, first)
    return w.broadcast("MUL", w.broadcast("MUL", a, power(w, first)), power(w, second))


def moved_right(w: EntryWriter, a: LiteTensor, by: LiteTensor) -> LiteTensor:
    """Move the upper word down by a product, by up to 32 bits; beyond that only it remains."""
    high = gathered(w, words(w, a), w.scalar(1, I32), len(a.shape))
    far = w.broadcast("GREATER_EQUAL", by, w.scalar(32, I32), kind=TRUTH)
    near = w.broadcast("SELECT_V2", far, w.scalar(0, I32), by)
    up = power(w, w.broadcast("SUB", w.scalar(32, I32), near))
    low = w.cast(w.broadcast("RIGHT_SHIFT", lower(w, a), w.cast(near, UNSIGNED)), WIDE)
    both = w.broadcast("ADD", w.broadcast("MUL", w.cast(high, WIDE), up), low)
    beyond = w.broadcast("SUB", by, w.scalar(32, I32))
    distance = w.broadcast("SELECT_V2", far, beyond, w.scalar(0, I32))
    return w.broadcast(
        "SELECT_V2", far, w.cast(w.broadcast("RIGHT_SHIFT", high, distance), WIDE), both
    )


def divided(w: EntryWriter, a: LiteTensor, b: LiteTensor, zeros: LiteTensor) -> LiteTensor:
    """Divide a multiple of b by b, which has this many trailing zero bits.

    The odd part of b has an inverse modulo 2^64, and products are modulo 2^64.
    """
    odd = moved_right(w, b, zeros)
    inverse = odd
    for _ in range(DOUBLINGS):
        over = w.broadcast("SUB", w.scalar(2, I64), w.broadcast("MUL", odd, inverse))
        inverse = w.broadcast("MUL", inverse, over)
    return w.broadcast("MUL", moved_right(w, a, zeros), inverse)


def logarithm(w: EntryWriter, single: LiteTensor) -> LiteTensor:
    """Return the position of the only set bit; the sign bit is a negative number."""
    real = w.broadcast("ABS", w.cast(single, FLOAT))
    places = w.broadcast("MUL", w.broadcast("LOG", real), w.scalar(1.4426950408889634))
    return w.cast(w.broadcast("ROUND", places), INT)

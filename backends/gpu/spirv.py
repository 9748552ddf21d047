"""What is read from a SPIR-V module, and what is changed: floats are to be those of C.

A module is a header of five words, then instructions: a word of length and number, and operands
(SPIR-V 1.5, section 2.3).
"""

import array
from collections.abc import Iterator, Sequence

HEADER = 5
SOURCE, NAME, MEMBER_NAME, EXECUTION_MODE, CAPABILITY = 3, 5, 6, 16, 17
ARITHMETIC = frozenset(
    {127, 129, 131, 133, 136}
)  # of floats: negate, add, subtract, multiply, divide
DECORATE, TYPES = 71, range(19, 40)
TYPE_INT, TYPE_FLOAT, TYPE_ARRAY, TYPE_POINTER, CONSTANT, VARIABLE = 21, 22, 28, 32, 43, 59
WORKGROUP = 4
"""Numbers of instructions, and of shared memory."""

NAN_CAPABILITY, NAN_MODE = 4466, 4461
"""SignedZeroInfNanPreserve: without it a driver may take `x != x` for false."""

NO_CONTRACTION = 42
"""Without this decoration a driver may fuse or reorder what must be rounded as written."""


def exact_module(module: bytes) -> bytes:
    """Return a module that keeps NaN in f32 and rounds as written, without names and its language.

    Older tools refuse the language.
    """
    words = array.array("I", module[: 4 * HEADER])
    words.extend([2 << 16 | CAPABILITY, NAN_CAPABILITY])
    exact = [word[2] for word in _instructions(module) if word[0] & 0xFFFF in ARITHMETIC]
    for instruction in _instructions(module):
        number = instruction[0] & 0xFFFF
        if number in TYPES:
            for result in exact:
                words.extend([3 << 16 | DECORATE, result, NO_CONTRACTION])
            exact = []
        if number not in (SOURCE, NAME, MEMBER_NAME):
            words.extend(instruction)
        if number == EXECUTION_MODE:
            words.extend([4 << 16 | EXECUTION_MODE, instruction[1], NAN_MODE, 32])
    return words.tobytes()


def shared_bytes(module: bytes) -> int:
    """Return the shared memory of a group."""
    sizes: dict[int, int] = {}
    total = 0
    for number_and_length, *operands in _instructions(module):
        number = number_and_length & 0xFFFF
        if number in (TYPE_INT, TYPE_FLOAT):
            sizes[operands[0]] = operands[1] // 8
        elif number == CONSTANT:
            sizes[operands[1]] = operands[2]
        elif number == TYPE_ARRAY:
            sizes[operands[0]] = sizes.get(operands[1], 0) * sizes[operands[2]]
        elif number == TYPE_POINTER:
            sizes[operands[0]] = sizes.get(operands[2], 0)
        elif number == VARIABLE and operands[2] == WORKGROUP:
            total += sizes[operands[0]]
    return total


def _instructions(module: bytes) -> Iterator[Sequence[int]]:
    words = array.array("I", module)
    at = HEADER
    while at < len(words):
        length = words[at] >> 16
        yield words[at : at + length]
        at += length

"""Edits of a SPIR-V module that make its floats those of C, and the size of its shared memory.

A module is a header of five words, then instructions. An instruction is a word with its length and
opcode, then its operands (SPIR-V 1.5, section 2.3).
"""

import array
from collections.abc import Iterator, Sequence

HEADER = 5
SOURCE, NAME, MEMBER_NAME, EXECUTION_MODE, CAPABILITY = 3, 5, 6, 16, 17
ARITHMETIC = frozenset({127, 129, 131, 133, 136})
"""Opcodes on floats: negate, add, subtract, multiply, divide."""
DECORATE, TYPES = 71, range(19, 40)
TYPE_INT, TYPE_FLOAT, TYPE_ARRAY, TYPE_POINTER, CONSTANT, VARIABLE = 21, 22, 28, 32, 43, 59
WORKGROUP = 4
"""Opcodes, and the storage class of shared memory."""

NAN_CAPABILITY, NAN_MODE = 4466, 4461
"""SignedZeroInfNanPreserve: without it a driver may assume that `x != x` is false."""

NO_CONTRACTION = 42
"""Without this decoration a driver may fuse or reorder operations, which changes their rounding."""


def exact_module(module: bytes) -> bytes:
    """Return a module that preserves NaN in f32 and rounds every operation as written.

    Names and the source language are removed: older tools reject Slang's number.
    """
    words = array.array("I", module[: 4 * HEADER])
    words.extend([2 << 16 | CAPABILITY, NAN_CAPABILITY])
    exact = [words[2] for words in _instructions(module) if words[0] & 0xFFFF in ARITHMETIC]
    for instruction in _instructions(module):
        opcode = instruction[0] & 0xFFFF
        if opcode in TYPES:  # decorations come just before the first type
            for result in exact:
                words.extend([3 << 16 | DECORATE, result, NO_CONTRACTION])
            exact = []
        if opcode not in (SOURCE, NAME, MEMBER_NAME):
            words.extend(instruction)
        if opcode == EXECUTION_MODE:
            words.extend([4 << 16 | EXECUTION_MODE, instruction[1], NAN_MODE, 32])
    return words.tobytes()


def shared_bytes(module: bytes) -> int:
    """Return the bytes of shared memory of a group."""
    sizes: dict[int, int] = {}
    total = 0
    for length_and_opcode, *operands in _instructions(module):
        opcode = length_and_opcode & 0xFFFF
        if opcode in (TYPE_INT, TYPE_FLOAT):
            sizes[operands[0]] = operands[1] // 8
        elif opcode == CONSTANT:
            sizes[operands[1]] = operands[2]
        elif opcode == TYPE_ARRAY:
            sizes[operands[0]] = sizes.get(operands[1], 0) * sizes[operands[2]]
        elif opcode == TYPE_POINTER:
            sizes[operands[0]] = sizes.get(operands[2], 0)
        elif opcode == VARIABLE and operands[2] == WORKGROUP:
            total += sizes[operands[0]]
    return total


def _instructions(module: bytes) -> Iterator[Sequence[int]]:
    words = array.array("I", module)
    at = HEADER
    while at < len(words):
        length = words[at] >> 16
        yield words[at : at + length]
        at += length

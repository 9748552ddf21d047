"""Bitwise operators on integers, compared with PyTorch."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from pockengine.compiler.ir.evaluate import run
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import Function, arrays_of

BITS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | 5,
    "xor": lambda a, b: a ^ b.int(),
    "of both types": lambda a, b: a.int() & b,
    "with a mask": lambda a, b: a ^ (b > 0),
    "of masks": lambda a, b: ((a > 0) ^ (b > 0)) & ~(a > 7) | (b == 3),
    "not": lambda a, b: ~a,
    "left": lambda a, b: a << b,
    "left by a number": lambda a, b: a.int() << 3,
    "right": lambda a, b: a >> b,
    "right by a number": lambda a, b: torch.bitwise_right_shift(a, 2),
    "in place": lambda a, b: (a * 1).bitwise_and_(b).bitwise_left_shift_(1).__ixor__(3),
    "lowest ones": lambda a, b: (a & -a) | (b & -b),
}


@pytest.mark.parametrize("name", BITS)
def test_bitwise_operators_equal_pytorch(name: str) -> None:
    a = torch.tensor([0, 1, -1, 7, -8, 2**40 + 5, -(2**33), 12])
    by = torch.tensor([3, 0, 5, 62, 1, 63, 70, -1])

    graph = from_torch(Function(BITS[name]), (a, by))

    found = run(graph, arrays_of(graph, (a, by)))["output"]
    np.testing.assert_array_equal(found, BITS[name](a, by).numpy(), strict=True)

"""Params lie one after the other, each at a multiple of the target's alignment."""

import pytest

from pockengine.backends.placement import param_slots
from pockengine.compiler.compile import compile_program
from pockengine.compiler.program import Program
from pockengine.compiler.target import ALIGNMENT, Target
from pockengine.tests.compiler.small_nets import residual_net


def program_of(alignment: int) -> Program:
    return compile_program(residual_net(), target=Target(alignment=alignment))


@pytest.mark.parametrize("alignment", [16, 256])
def test_params_lie_at_multiples_of_the_targets_alignment(alignment: int) -> None:
    slots, total = param_slots(program_of(alignment))
    assert {slot.offset % alignment for slot in slots} == {0}
    assert total % alignment == 0
    assert (total < param_slots(program_of(ALIGNMENT))[1]) == (alignment < ALIGNMENT)

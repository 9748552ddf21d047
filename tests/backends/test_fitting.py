"""A program that is too large is refused, and the error names a planned one that fits."""

import re
from dataclasses import replace
from typing import Any

import pytest

import pockengine
from pockengine.backends.capacity import check_capacity, space_bytes
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Graph, TensorType
from pockengine.compiler.ir.graph import Space
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.storage import Storage
from pockengine.compiler.target import MemorySpace, Target
from pockengine.devices import Device, load_device
from pockengine.errors import CapacityError
from pockengine.tests.compiler.small_nets import NetBuilder, residual_net

GRAPH = residual_net()
FULL, HEAD = (compile_program(GRAPH, Training(name)) for name in ("full", "head-only"))


def board(memory: int, flash: int = 1 << 20) -> Device:
    return replace(load_device("stm32f746"), memory_bytes=memory, flash_bytes=flash)


def taken(program: Program) -> int:
    return program.arena_bytes + space_bytes(program)[Space.MUTABLE]


def refusal(device: Device, graph: Graph = GRAPH, **options: Any) -> str:
    with pytest.raises(CapacityError) as caught:
        pockengine.compile(graph, None, device=device, **options)
    return str(caught.value)


def test_a_budget_that_fits_the_same_scheme_is_named_and_true() -> None:
    memory = taken(FULL) * 9 // 10
    words = refusal(board(memory))
    found = re.search(r"This fits: memory_budget=(\d+)$", words)
    assert found, words
    program = compile_program(GRAPH, Training(memory_budget=int(found[1])))
    check_capacity(program, Target(spaces=(MemorySpace("memory", memory),)))


def test_a_smaller_scheme_is_named_where_no_budget_fits() -> None:
    words = refusal(board(taken(HEAD) * 21 // 20))
    assert re.search(r'This fits: scheme="(bias-only|last-2-blocks|head-only)"', words), words


def test_no_fitting_plan_is_reported() -> None:
    words = refusal(board(HEAD.entries["predict"].plan.size // 2))
    assert words.endswith("No preset and no budget that was planned fits either")
    assert "This fits" not in words


def wide_net() -> Graph:
    """Two linear layers; the first weight is large enough to be stored in fewer bits."""
    net = NetBuilder("wide")
    x = net.g.input("x", TensorType(F32, (4, 128)))
    hidden = net.g.relu(net.g.matmul(x, net.weight("first.weight", 128, 128)))
    y = net.g.matmul(hidden, net.weight("head.weight", 128, 3))
    net.g.output("loss", net.g.cross_entropy(y, net.g.input("target", TensorType(I64, (4,)))))
    return net.g.graph


def test_frozen_weights_of_fewer_bits_are_named_where_flash_is_short() -> None:
    program = compile_program(wide_net(), Training("head-only"))
    flash = space_bytes(program)[Space.CONSTANT] // 2
    words = refusal(board(1 << 20, flash), wide_net(), scheme="head-only")
    assert words.endswith('This fits: storage=Storage(weights="int8")'), words
    stored = Training("head-only", storage=Storage(weights="int8"))
    assert space_bytes(compile_program(wide_net(), stored))[Space.CONSTANT] <= flash

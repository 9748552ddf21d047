"""Kernels of whole steps in the Metal Shading Language, run by a CPU as test_metal.py does."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.kernels import FAMILIES
from pockengine.backends.placement import kernel_nodes
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph, Node
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.optim import Adagrad, Asgd, Lion, RMSprop, Sgd
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.cases import STORED
from pockengine.tests.backends.gpu.metal_kernels import SHUFFLED, MetalProgram
from pockengine.tests.backends.gpu.sanitized import Sanitized, draw_operands, watch
from pockengine.tests.backends.trainings import TRAININGS
from pockengine.tests.compiler.small_nets import residual_net
from pockengine.tests.compiler.transformers import llama_net

BACKEND = GpuBackend(load_device("host"))

STEPS: dict[str, list[tuple[Graph, dict[str, Any]]]] = {
    "convolutions": [TRAININGS["mobile-sparse"], TRAININGS["resnet-biases"]],
    "transformers": [TRAININGS["bert-lora"], TRAININGS["llama"], *STORED.values()],
    "updates": [
        (llama_net(), {"optimizer": Sgd()}),
        (residual_net(), {"micro_batches": 2}),
        *((residual_net(), {"optimizer": one()}) for one in (Adagrad, Asgd, Lion, RMSprop)),
    ],
}


@cache
def nodes_of(kind: str) -> dict[str, Node]:
    """Return a node of each distinct kernel, by its symbol."""
    nodes: dict[str, Node] = {}
    for graph, options in STEPS[kind]:
        program = compile_program(graph, Training(**options), target=BACKEND.target())
        for entry in program.entries.values():
            nodes |= {BACKEND.gpu_kernel(node).symbol: node for node in kernel_nodes(entry)}
    return nodes


@pytest.mark.parametrize("kind", STEPS)
def test_kernels_write_what_the_emulation_writes(kind: str, tmp_path: Path) -> None:
    cases = [watch(node, draw_operands(node), BACKEND) for node in nodes_of(kind).values()]
    (tmp_path / "c").mkdir()
    programs = Sanitized(cases, None, tmp_path / "c"), MetalProgram(cases, tmp_path)
    for program in programs:
        program.barriers(SHUFFLED)
    for case, *memories in zip(cases, *(one.memory() for one in programs), strict=True):
        for expected, found in zip(*memories, strict=True):
            np.testing.assert_allclose(
                numbers_of(found),
                numbers_of(expected),
                rtol=1e-5,
                atol=1e-5,
                err_msg=str(case.node),
            )


def test_the_steps_have_every_op_that_writes_params() -> None:
    ops = set()
    for kind in STEPS:
        for node in nodes_of(kind).values():
            ops |= {node.op, *(inner.op for inner in node.attrs.get("body", Graph("")).nodes)}
    assert {op for op in FAMILIES if lookup(op).writes} <= ops

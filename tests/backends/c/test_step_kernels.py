"""Each kernel of a training step compared with the oracle: natively, and on emulated Arm."""

from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.c.backend import CBackend
from pockengine.backends.placement import is_alias
from pockengine.compiler.ir import BOOL, F32, I32, Builder, DType, Graph, Node, TensorType
from pockengine.compiler.ops import lookup
from pockengine.tests.backends.c.anchors import NATIVE, check, check_on_arm, with_epilogue
from pockengine.tests.backends.c.harness import Case, device_of, draw_array
from pockengine.tests.backends.c.problems import matmul
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph


def cases_of(isa: str) -> list[Case]:
    """Each pure node of the training entry with random operands; labels and variances in range."""
    program, backend = compile_for(convolutional_graph(), device_of(isa, 2))
    entry = program.entries["train"]
    rng = np.random.default_rng(0)
    cases = []
    for node in entry.graph.nodes:
        if lookup(node.op).writes or is_alias(node, entry):
            continue
        arrays = []
        for value in node.operands:
            array = entry.graph.constants.get(value)
            if array is None:
                array = draw_array(rng, value)
                array = abs(array) % 3 if value.name.startswith(("moments", "labels")) else array
            arrays.append(array.astype(value.dtype.numpy))
        cases.append(Case(node, backend.kernel(node), tuple(arrays)))
    return cases


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse2"])
def test_every_kernel_agrees_with_the_oracle(isa: str, tmp_path: Path) -> None:
    # Some of gcc's warnings need an optimizer.
    check(cases_of(isa), tmp_path, (*NATIVE, "-O1"), threads=(1, 2))


def test_every_kernel_agrees_with_the_oracle_on_arm(tmp_path: Path) -> None:
    check_on_arm(cases_of("neon"), tmp_path)


def of_arm_alone() -> list[Node]:
    """Nodes whose kernels differ on Arm: triples, mask bits, pairs of vectors, first steps."""
    g = Builder(Graph("case"))
    pixels = g.input("pixels", TensorType(F32, (2, 3, 13)))
    bits = g.input("bits", TensorType(I32, (3, 4)))
    mask = g.input("mask", TensorType(BOOL, (3, 100)))
    nodes = [
        g.emit("transpose", pixels, perm=(0, 2, 1)),
        g.emit("unpack_mask", bits, channels=100),
        g.emit("pack_mask", mask),
        g.emit("moments", g.input("rows", TensorType(F32, (75, 20)))),
    ]
    for channels in (8, 24, 28):
        dy = g.input(f"dy{channels}", TensorType(DType.I8, (2, 5, 4, channels)))
        w = g.input(f"w{channels}", TensorType(DType.I8, (3, 3, 1, channels)))
        window = {"stride": (2, 2), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": channels}
        shape = (2, 9, 8, channels)
        nodes.append(g.emit("conv2d_dx", dy, w, input_shape=shape, zeros=(0, 0), **window))
    x = g.input("x", TensorType(DType.I8, (2, 9, 11, 3)))
    dy = g.input("dy", TensorType(DType.I8, (2, 5, 6, 16)))
    window = {"stride": (2, 2), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    shape = (3, 3, 3, 16)
    nodes.append(g.emit("conv2d_dw", x, dy, weight_shape=shape, zeros=(-3, 0), **window))
    for depth in (1, 3, 4, 5, 8, 14):
        for transpose in ((False, False), (True, False), (False, True)):
            nodes.append(with_epilogue(matmul(13, 29, depth, transpose), "stepped"))
    return nodes


def test_special_kernels_of_arm_agree_with_the_oracle(tmp_path: Path) -> None:
    backend, rng = CBackend(device_of("neon", 2)), np.random.default_rng(0)
    cases = [
        Case(node, backend.kernel(node), tuple(draw_array(rng, each) for each in node.operands))
        for node in of_arm_alone()
    ]
    g = Builder(Graph("range"))
    x = g.input("x", TensorType(F32, (11,)))
    edges = [0.0, -0.0, 1e-45, -1e-45, 5.9999995, 6.0, 6.0000005, np.nan, np.inf, -np.inf, 3.0]
    body = Builder(Graph("body"))
    inner = body.input("x", x.type)
    low, high = body.gt(inner, body.scalar(0.0)), body.lt(inner, body.scalar(6.0))
    body.graph.outputs["y"] = body.logical_and(low, high)
    node = g.emit("fusion", x, body=body.graph)
    assert "pe_in_range" in backend.kernel(node).source
    cases.append(Case(node, backend.kernel(node), (np.array(edges, np.float32),)))
    check_on_arm(cases, tmp_path)

"""Strided 1x1 convolutions agree with the oracle, as products of the pixels that they read."""

from pathlib import Path

import pytest

from pockengine.backends.c.convolutions.conv import CONVOLUTION
from pockengine.backends.c.convolutions.strided import (
    StridedSpec,
    choose_strided,
    is_strided_product,
    strided_kernel,
)
from pockengine.backends.c.elementwise.epilogue import split_fusion
from pockengine.backends.c.options import DEFAULT
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.window import window_of
from pockengine.compiler.ir import Node
from pockengine.devices.schema import Device
from pockengine.tests.backends.c.anchors import case_of, check, check_optimized, with_epilogue
from pockengine.tests.backends.c.harness import device_of, emitter
from pockengine.tests.backends.c.problems import convolution


def emit(node: Node, device: Device) -> Kernel:
    """Emit the product of the pixels that are read, even if the backend would choose otherwise."""
    fused = split_fusion(node)
    choice = choose_strided(fused, window_of(fused.anchor), device, DEFAULT)
    assert isinstance(choice.spec, StridedSpec)
    return strided_kernel(node, choice.spec, device)


def layers() -> list[Node]:
    """Sizes divisible by the stride or not, all epilogues, one row of A, several blocks."""
    found = convolution((2, 7, 9, 24), (1, 1, 24, 33), (2, 2))
    nodes = [with_epilogue(found["forward"], "gate"), with_epilogue(found["dx"], "residual")]
    nodes.append(found["dw"])
    nodes += convolution((1, 8, 8, 17), (1, 1, 17, 40), (3, 1)).values()
    wide = convolution((3, 3, 3, 520), (1, 1, 520, 5), (2, 2))
    nodes += [with_epilogue(wide["forward"], "bias_relu6"), with_epilogue(wide["dx"], "masked")]
    return [*nodes, wide["dw"], convolution((1, 2, 2, 8), (1, 1, 8, 600), (2, 2))["dx"]]


@pytest.mark.parametrize("isa", ["avx512", "sse2"])
def test_products_of_some_pixels_agree_under_sanitizers(isa: str, tmp_path: Path) -> None:
    check([case_of(node, emit, isa, seed) for seed, node in enumerate(layers())], tmp_path)


def test_large_weights_and_all_weight_gradients_are_products(tmp_path: Path) -> None:
    found = convolution((1, 6, 6, 1024), (1, 1, 1024, 1056), (2, 2))
    device = device_of("avx2")
    assert all(is_strided_product(node.op, window_of(node), device) for node in found.values())
    small = convolution((1, 6, 6, 24), (1, 1, 24, 8), (2, 2))
    chosen = {op for op, n in small.items() if is_strided_product(n.op, window_of(n), device)}
    assert chosen == {"dw"}
    cases = [
        case_of(node, emitter(CONVOLUTION), "avx512", seed)
        for seed, node in enumerate(found.values())
    ]
    assert all("strided" in case.kernel.symbol for case in cases)
    check_optimized(cases, tmp_path)

"""The CUDA text compiles for a Jetson Orin and an H100, with the recorded use of resources.

Nothing is run: there is no GPU here.
"""

from dataclasses import astuple

import pytest

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.backends.gpu.nvrtc import build_cubin
from pockengine.backends.gpu.source import CUDA, source_of
from pockengine.backends.placement import kernel_nodes
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, TensorType
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.errors import BuildError
from pockengine.tests.backends.gpu.cases import (
    CONVOLUTIONS,
    NN,
    NT,
    PRODUCTS,
    ROWS,
    STORED,
    TN,
    TREES,
    attention_cases,
    floats,
)
from pockengine.tests.backends.trainings import TRAININGS
from pockengine.tests.compiler.every_op import graph_of
from pockengine.tests.compiler.op_case import OpCase

BACKEND = GpuBackend(load_device("host"))
TENSOR_CORES = GpuBackend(load_device("host"), bf16=True)
SHARED = 32768
"""Minimum local memory of OpenCL 1.2 in bytes; CUDA has 48 KiB."""

LARGE = [
    OpCase("matmul", (floats(1024, 1024), floats(1024, 1024)), attrs) for attrs in (NN, TN, NT)
]
GOLDEN = {
    "sm_87": (
        *((95, 0, 12544), (46, 0, 2304), (18, 0, 1024), (26, 0, 2048)),
        *((80, 0, 24576), (128, 0, 24576), (121, 0, 24576), (77, 0, 24576)),
    ),
    "sm_90": (
        *((95, 0, 12544), (46, 0, 2304), (17, 0, 1024), (27, 0, 2048)),
        *((80, 0, 24576), (128, 0, 24576), (122, 0, 24576), (76, 0, 24576)),
    ),
}
"""Registers, spills and shared memory of a large product, a convolution, a tree and a softmax, and
of attention with heads of 64 numbers and its gradients."""

HEAD = attention_cases(heads=12, groups=12, rows=512, size=64)


GOLDEN_CORES = {"sm_87": (119, 121, 119, 72), "sm_90": (118, 120, 118, 64)}
"""Registers of large products on tensor cores, and of a small one."""


def _kernel(case: OpCase) -> GpuKernel:
    return BACKEND.gpu_kernel(graph_of(case).nodes[0])


@pytest.mark.parametrize("architecture", GOLDEN)
def test_kernels_take_what_they_took(architecture: str) -> None:
    cases = [LARGE[0], CONVOLUTIONS[0], TREES[0], ROWS[-3], *HEAD]
    kernels = [_kernel(case) for case in cases]
    usage = build_cubin(source_of(kernels, CUDA), architecture).usage
    found = tuple(astuple(usage[kernel.launches[0].function]) for kernel in kernels)
    assert found == GOLDEN[architecture]


@pytest.mark.parametrize("architecture", GOLDEN_CORES)
def test_two_groups_of_tensor_cores_share_a_unit(architecture: str) -> None:
    kernels = [TENSOR_CORES.gpu_kernel(graph_of(case).nodes[0]) for case in (*LARGE, PRODUCTS[4])]
    usage = build_cubin(source_of(kernels, CUDA), architecture).usage
    found = [usage[kernel.launches[0].function] for kernel in kernels]
    assert tuple(each.registers for each in found) == GOLDEN_CORES[architecture]
    assert all(2 * 256 * each.registers <= 65536 for each in found)
    assert {each.shared_bytes for each in found} == {6144, 16384}
    assert all(each.spill_bytes == 0 for each in found)


@pytest.mark.parametrize("bf16", [False, True], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", ["llama", "llama-int4", "llama-int8", "mobile-sparse"])
def test_a_whole_step_builds_and_spills_nothing(name: str, bf16: bool) -> None:
    graph, options = {**TRAININGS, **STORED}[name]
    backend = TENSOR_CORES if bf16 else BACKEND
    program = compile_program(graph, Training(**options), target=backend.target())
    kernels = [backend.gpu_kernel(node) for node in kernel_nodes(program.entries["train"])]
    cubin = build_cubin(source_of(kernels, CUDA), "sm_87")
    functions = {launch.function for kernel in kernels for launch in kernel.launches}
    assert cubin.code.startswith(b"\x7fELF")
    assert cubin.usage.keys() == functions
    assert all(each.spill_bytes == 0 for each in cubin.usage.values())
    assert all(each.shared_bytes <= SHARED for each in cubin.usage.values())


def test_tables_of_indices_take_no_constant_memory() -> None:
    """All kernels of a program share 64 KiB of constant memory."""
    kernels = []
    for first in (0, 1):
        index = tuple(range(first, 20000, 2))
        case = OpCase("pick", (floats(3, 20000),), {"axis": 1, "index": index})
        kernels.append(_kernel(case))
    assert len(build_cubin(source_of(kernels, CUDA), "sm_87").usage) == 2


def test_a_product_of_a_warp_stays_where_all_its_items_are() -> None:
    """The compiler may move non-volatile code to where only some items store a sum."""
    text = source_of([TENSOR_CORES.gpu_kernel(graph_of(PRODUCTS[4]).nodes[0])], CUDA)
    assert 'asm volatile("mma.sync' in text


@pytest.mark.parametrize("vocabulary", [32000, 128256])
def test_no_row_of_logits_lies_in_shared_memory(vocabulary: int) -> None:
    logits, labels = floats(4, vocabulary), TensorType(I64, (4,))
    loss = _kernel(OpCase("cross_entropy", (logits, labels), NN))
    gradient = _kernel(OpCase("cross_entropy_dx", (logits, labels, TensorType(F32, ())), NN))
    usage = build_cubin(source_of([loss, gradient], CUDA), "sm_87").usage
    assert all(each.shared_bytes <= 2 * 4 * 256 for each in usage.values())
    assert all(each.spill_bytes == 0 for each in usage.values())


def test_what_the_compiler_refuses_is_reported() -> None:
    with pytest.raises(BuildError, match=r"NVRTC does not build for sm_87:\n.*nothing"):
        build_cubin("__global__ void k(float *x) { x[0] = nothing; }", "sm_87")

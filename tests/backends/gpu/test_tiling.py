"""Tiling of products: the choice by the cost model, and equal results of all tilings."""

from pathlib import Path

import pytest

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.kernels import product
from pockengine.backends.gpu.kernels.fused import open_node
from pockengine.backends.gpu.kernels.tiling import (
    BF16,
    F32,
    TENSOR_TEMPLATE,
    Tiled,
    Tiling,
    choose_tiles,
    machine_of,
)
from pockengine.backends.gpu.nvrtc import build_cubin
from pockengine.backends.gpu.source import CUDA, source_of
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.cases import NN, NT, TN, floats
from pockengine.tests.backends.gpu.oracle import compare, drawn, rounded
from pockengine.tests.compiler.every_op import graph_of
from pockengine.tests.compiler.op_case import OpCase

EVERY = [*F32, *BF16]
NAMES = [f"{'bf16' if t.template == TENSOR_TEMPLATE else 'f32'}-{t.mr}-{t.nr}" for t in EVERY]
CASES = [
    OpCase("matmul", (floats(*a), floats(*b)), attrs)
    for a, b, attrs in (
        ((130, 70), (70, 131), NN),
        ((128, 128), (128, 128), TN),
        ((2, 33, 70), (2, 40, 70), NT),
    )
]


@pytest.mark.parametrize("tiling", EVERY, ids=NAMES)
@pytest.mark.parametrize("parts", [1, 3])
def test_every_tiling_computes_the_same_product(
    tiling: Tiling, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(sizes: tuple[int, int, int, int], *_: object) -> Tiled:
        depth = sizes[2]
        return Tiled(tiling, -(-depth // (parts * tiling.step)) * tiling.step)

    monkeypatch.setattr(product, "choose_tiles", chosen)
    graphs = {f"case{number}": graph_of(case) for number, case in enumerate(CASES)}
    inputs = {key: drawn(graph) for key, graph in graphs.items()}
    taken = inputs
    if tiling.template == TENSOR_TEMPLATE:
        taken = {key: rounded(each) for key, each in inputs.items()}
    compare(GpuBackend(load_device("host"), bf16=True), graphs, inputs, tmp_path, taken=taken)


@pytest.mark.parametrize("architecture", ["sm_87", "sm_90"])
def test_a_unit_has_room_for_the_groups_that_the_model_counts(architecture: str) -> None:
    kernels = {}
    for case in CASES:
        opened = open_node(graph_of(case).nodes[0])
        assert opened.anchor is not None
        sizes = product.matmul_product(opened.anchor)
        for tiling in EVERY:
            kernel = product.tiled_kernel(opened, sizes, Tiled(tiling, sizes.depth))
            kernels[kernel] = tiling
    usage = build_cubin(source_of(kernels, CUDA), architecture).usage
    for kernel, tiling in kernels.items():
        found = usage[kernel.launches[0].function]
        assert found.spill_bytes == 0
        assert found.registers <= tiling.registers
        assert found.shared_bytes * tiling.resident <= 65536


@pytest.mark.parametrize(
    ("sizes", "orin", "h100"),
    [
        ((512, 4096, 4096, 1), (8, 4, 1), (8, 4, 1)),
        ((512, 768, 768, 1), (8, 4, 1), (8, 2, 2)),
        ((128, 128, 64, 12), (8, 2, 1), (2, 1, 1)),
        ((27, 16, 36864, 1), (2, 1, 64), (1, 1, 64)),
        ((4, 1000, 1280, 1), (1, 4, 2), (1, 1, 4)),
    ],
    ids=["large", "medium", "heads", "first-layer", "last-layer"],
)
def test_large_gpus_take_smaller_tiles_and_more_parts(
    sizes: tuple[int, int, int, int], orin: tuple[int, ...], h100: tuple[int, ...]
) -> None:
    for name, expected in (("jetson-orin", orin), ("h100", h100)):
        machine = machine_of(load_device(name).gpu, bf16=False)
        tiled = choose_tiles(sizes, machine)
        assert (tiled.tiling.mr, tiled.tiling.nr, -(-sizes[2] // tiled.share)) == expected


def test_the_balance_of_a_gpu_follows_from_its_file() -> None:
    orin, h100 = (machine_of(load_device(n).gpu, bf16=True) for n in ("jetson-orin", "h100"))
    assert orin.per_byte(tensor_cores=False) == pytest.approx(13)
    assert orin.per_byte(tensor_cores=True) == pytest.approx(104)
    assert h100.per_byte(tensor_cores=False) == pytest.approx(9.99, abs=0.01)


def test_tensor_cores_are_for_those_who_ask() -> None:
    gpu = load_device("h100").gpu
    for bf16 in (False, True):
        tiled = choose_tiles((512, 512, 512, 1), machine_of(gpu, bf16))
        assert (tiled.tiling.template == TENSOR_TEMPLATE) == bf16

"""Products on tensor cores: operands rounded to bf16, sums in f32; and which devices have them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pockengine
from pockengine.backends.gpu.backend import GpuBackend
from pockengine.compiler.ir import Builder, Graph, Node
from pockengine.devices import Device, load_device
from pockengine.devices.schema import FOLDER, read_device
from pockengine.errors import CompileError
from pockengine.tests.backends.gpu.cases import BACKWARD, CONVOLUTIONS, NN, NT, PRODUCTS, TN, floats
from pockengine.tests.backends.gpu.oracle import compare, drawn, rounded
from pockengine.tests.backends.gpu.orders import ORDERS, ordered
from pockengine.tests.backends.inputs import draw
from pockengine.tests.compiler.every_op import graph_of
from pockengine.tests.compiler.op_case import OpCase
from pockengine.tests.compiler.small_nets import residual_net
from pockengine.tests.compiler.transformers import llama_net

BACKEND = GpuBackend(load_device("host"), bf16=True)
LARGE = [
    *(
        OpCase("matmul", (floats(*a), floats(*b)), attrs)
        for a, b, attrs in (
            ((128, 32), (32, 8192), NN),
            ((96, 8192), (96, 32), TN),
            ((129, 33), (8100, 33), NT),
            ((40, 2070), (2070, 50), NN),
            ((3, 20, 40), (3, 40, 70), NN),
        )
    ),
    OpCase("conv2d", (floats(2, 8, 9, 32), floats(3, 3, 16, 64)), {"groups": 2}),
]
"""In addition: large tiles, whole and cut; a sum shared by groups; batches; groups."""


def _node(*sizes: int) -> Node:
    rows, depth, columns = sizes
    return graph_of(OpCase("matmul", (floats(rows, depth), floats(depth, columns)), NN)).nodes[0]


@pytest.mark.parametrize(
    "cases", [[*PRODUCTS, *LARGE], [*CONVOLUTIONS, *BACKWARD]], ids=["products", "convolutions"]
)
def test_products_are_those_of_rounded_operands(cases: list[OpCase], tmp_path: Path) -> None:
    graphs = {f"case{number}": graph_of(case) for number, case in enumerate(cases)}
    inputs = {key: drawn(graph) for key, graph in graphs.items()}
    kernels = {key: BACKEND.gpu_kernel(graph.nodes[0]) for key, graph in graphs.items()}
    by_cores = {key for key, kernel in kernels.items() if kernel.tensor_cores}
    assert 3 <= len(by_cores) < len(cases)
    taken = {key: rounded(x) if key in by_cores else x for key, x in inputs.items()}
    compare(BACKEND, graphs, inputs, tmp_path, taken=taken)


def test_what_follows_a_product_takes_its_sums(tmp_path: Path) -> None:
    g = Builder(Graph("net"))
    x, w, bias = (
        g.input(n, floats(*s)) for n, s in (("x", (70, 40)), ("w", (40, 40)), ("b", (40,)))
    )
    g.output("y", g.relu(g.add(g.matmul(x, w), bias)))
    inputs = {"net": drawn(g.graph)}
    taken = {"net": {**rounded(inputs["net"]), "b": inputs["net"]["b"]}}
    compare(BACKEND, {"net": g.graph}, inputs, tmp_path, taken=taken)


def test_small_products_stay_f32() -> None:
    assert BACKEND.gpu_kernel(_node(16, 16, 16)).tensor_cores
    for sizes in ((15, 16, 16), (16, 15, 16), (16, 16, 15)):
        assert not BACKEND.gpu_kernel(_node(*sizes)).tensor_cores
    assert not GpuBackend(load_device("host")).gpu_kernel(_node(16, 16, 16)).tensor_cores


def test_their_rate_is_in_the_cost_of_a_product() -> None:
    """The Orin's tensor cores do 8 multiply-adds in the time of one on its other units."""
    orin = load_device("jetson-orin")
    slow, fast = (GpuBackend(orin, bf16).choose(_node(4096, 4096, 4096)) for bf16 in (False, True))
    assert slow.cycles / fast.cycles == pytest.approx(8)


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (llama_net(), {"scheme": "full"}),
        (llama_net(), {"scheme": "lora-4"}),
        (residual_net(), {}),
    ],
    ids=["llama", "lora", "residual"],
)
def test_trainings_stay_beside_those_of_f32(graph: Graph, options: dict[str, Any]) -> None:
    f32 = pockengine.compile(graph, None, backend="c", **options)
    bf16 = pockengine.compile(graph, None, backend="gpu", bf16=True, **options)
    batches = [draw(graph, number) for number in range(10)]
    with f32.session() as session:
        expected = np.array([session.train_step(batch, 1e-3)["loss"] for batch in batches])
    found = []
    for order in ORDERS:
        with ordered(bf16.artifact, order), bf16.session() as session:
            found.append([session.train_step(batch, 1e-3)["loss"] for batch in batches])
    assert 1e-7 < np.abs(np.array(found[0]) / expected - 1).max() < 1e-2
    assert found[0] == found[1] == found[2]


def _other(folder: Path, old: str, new: str) -> Device:
    path = folder / "jetson-orin.toml"
    path.write_text((FOLDER / path.name).read_text().replace(old, new))
    return read_device(path)


def test_gpus_without_them_refuse(tmp_path: Path) -> None:
    without = _other(tmp_path, "bf16_lanes = 1024\n", "")
    with pytest.raises(CompileError, match=r"jetson-orin \(Ampere, .*\) has no bf16 products"):
        pockengine.compile(residual_net(), None, device=without, backend="cuda", bf16=True)
    with pytest.raises(CompileError, match="backend opencl has no option bf16"):
        pockengine.compile(residual_net(), None, device="adreno-740", backend="opencl", bf16=True)

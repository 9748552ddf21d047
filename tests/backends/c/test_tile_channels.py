"""An inverted bottleneck under a memory budget: less memory, and the same numbers in C."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.artifact import write_artifact
from pockengine.backends.protocol import Backend
from pockengine.backends.registry import backend_for, open_session
from pockengine.backends.within_budget import within_budget
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.types import I64, TensorType, f32
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import Clip, Differentiate
from pockengine.compiler.passes.memory.tile_channels import TileChannels
from pockengine.compiler.program import Program
from pockengine.compiler.quantize.calibrate import quantized
from pockengine.compiler.sparse.choice import FULL
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices import find_device
from pockengine.errors import BudgetError

HEAD = Scheme("head", (("head.*", FULL),))
BIASES = Scheme("biases", (("b?", FULL), ("head.*", FULL)))
BUDGET = 12000
RNG = np.random.default_rng(0)
BATCH = {
    "x": RNG.standard_normal((2, 16, 16, 4)).astype(np.float32),
    "target": np.array([1, 3]),
}


def bottleneck(channels: int) -> Graph:
    """Return a net of one inverted bottleneck, at twice the resolution before its last layer."""
    rng, g = np.random.default_rng(1), Builder(Graph("bottleneck"))

    def param(name: str, *shape: int) -> object:
        return g.param(name, rng.standard_normal(shape).astype(np.float32))

    x = g.input("x", f32(2, 16, 16, 4))
    wide = g.add(g.conv2d(x, param("expand.weight", 1, 1, 4, channels)), param("b0", channels))
    taps = param("taps.weight", 3, 3, 1, channels)
    sums = g.conv2d(g.relu(wide), taps, stride=(2, 2), padding=(0, 1, 0, 1), groups=channels)
    narrow = g.conv2d(
        g.relu(g.add(sums, param("b1", channels))), param("shrink.weight", 1, 1, channels, 4)
    )
    logits = g.matmul(g.reduce_mean(narrow, axes=(1, 2)), param("head.weight", 4, 5))
    target = g.input("target", TensorType(I64, (2,)))
    g.output("loss", g.cross_entropy(logits, target))
    g.output("logits", logits)
    return g.graph


def numbers(program: Program, folder: Path, backend: Backend | None = None) -> list[np.ndarray]:
    """Return two steps' losses, all params after them, and a prediction."""
    artifact = write_artifact(program, backend or backend_for(find_device("host")), folder)
    with open_session(artifact, threads=2) as session:
        losses = [session.train_step(BATCH, lr=0.1)["loss"] for _ in range(2)]
        logits = session.predict({"x": BATCH["x"]})["logits"]
        params = session.params()
        return [*losses, *(params[name] for name in sorted(params)), logits]


def compiled(graph: Graph, device: str) -> tuple[Program, Program]:
    """Return a program, and one compiled for three quarters of its arena."""
    target = backend_for(find_device(device)).target()
    whole = compile_program(graph, Training(HEAD), target=target, check=True)
    budget = whole.arena_bytes * 3 // 4
    training = Training(HEAD, memory_budget=budget)
    blocks = compile_program(graph, training, target=target, check=True)
    assert blocks.arena_bytes <= budget
    assert any(node.op == "concat" for node in blocks.entries["predict"].graph.nodes)
    return whole, blocks


@pytest.mark.parametrize("channels", [24, 30])
def test_blocks_of_channels_change_no_number(tmp_path: Path, channels: int) -> None:
    whole, blocks = compiled(bottleneck(channels), "host")
    found, expected = numbers(blocks, tmp_path / "blocks"), numbers(whole, tmp_path / "whole")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("channels", [24, 30])
def test_they_change_no_integer(channels: int) -> None:
    """For a machine whose integer kernels need no scratch."""
    graph, _ = quantized(bottleneck(channels), [BATCH])
    whole, blocks = (
        run(program.entries["predict"].graph, {"x": BATCH["x"]})["logits"]
        for program in compiled(graph, "stm32f746")
    )
    np.testing.assert_array_equal(blocks, whole)


def test_what_the_backward_pass_reads_stays_whole() -> None:
    frozen, trained = bottleneck(24), bottleneck(24)
    Differentiate({"expand.weight": None}, Sgd(), Clip()).run(trained)
    for graph in (frozen, trained):
        TileChannels(1000).run(graph)
    joined = [any(n.op == "concat" for n in graph.nodes) for graph in (frozen, trained)]
    assert joined == [True, False]


@pytest.mark.parametrize("channels", [26, 30])
def test_plain_kernels_reach_a_budget_that_packed_bytes_pass(channels: int) -> None:
    graph, _ = quantized(bottleneck(channels), [BATCH])
    backend = backend_for(find_device("rpi4"))
    build = partial(compile_program, graph, Training(HEAD, memory_budget=BUDGET))
    with pytest.raises(BudgetError):
        build(target=backend.target())
    program, chosen = within_budget(build, backend)
    assert chosen is not backend
    assert program.arena_bytes <= BUDGET


@pytest.mark.parametrize("arenas", [(700, 900), (900, 700)])
def test_a_budget_out_of_reach_reports_the_smaller_arena(arenas: tuple[int, int]) -> None:
    tried = iter(arenas)

    def build(**_: object) -> Program:
        arena = next(tried)
        raise BudgetError(f"reaches {arena} bytes", arena)

    with pytest.raises(BudgetError, match="reaches 700 bytes"):
        within_budget(build, backend_for(find_device("rpi4")))
    assert not list(tried)


def test_plain_kernels_give_the_integers_of_packed_ones(tmp_path: Path) -> None:
    graph, _ = quantized(bottleneck(24), [BATCH])
    packed = backend_for(find_device("host"))
    plain = packed.with_less_scratch()
    assert plain is not None
    whole = compile_program(graph, Training(HEAD), target=packed.target())
    lean = compile_program(graph, Training(HEAD, memory_budget=BUDGET), target=plain.target())
    found, expected = (
        numbers(lean, tmp_path / "plain", plain),
        numbers(whole, tmp_path / "packed", packed),
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def narrowed(graph: Graph, device: str) -> tuple[Program, Program]:
    """Return a program that trains biases in int8, and one with its cotangents in blocks."""
    target = backend_for(find_device(device)).target()
    whole = compile_program(graph, Training(BIASES), target=target, check=True)
    budget = whole.arena_bytes * 9 // 10
    training = Training(BIASES, memory_budget=budget)
    blocks = compile_program(graph, training, target=target, check=True)
    assert blocks.arena_bytes <= budget
    assert count_input_gradients(blocks) > count_input_gradients(whole)
    return whole, blocks


def count_input_gradients(program: Program) -> int:
    """Return how many kernels of a step compute input gradients of convolutions."""
    nodes = program.entries["train"].graph.nodes
    inner = [each for node in nodes for each in getattr(node.attrs.get("body"), "nodes", [node])]
    return sum(node.op == "conv2d_dx" for node in inner)


@pytest.mark.parametrize("channels", [40, 64])
def test_cotangents_in_blocks_round_to_the_same_integers(channels: int) -> None:
    graph, _ = quantized(bottleneck(channels), [BATCH])
    trained = []
    for program in narrowed(graph, "stm32f746"):
        step = program.entries["train"].graph
        params = {name: param.data.copy() for name, param in step.params.items()}
        batch = {**BATCH, "lr": np.array(0.1, np.float32)}
        losses = [run(step, batch, params)["loss"] for _ in range(2)]
        trained.append((losses, params))
    (losses, params), (expected_losses, expected) = trained
    assert losses == expected_losses
    for name, param in params.items():
        np.testing.assert_array_equal(param, expected[name], err_msg=name)


@pytest.mark.parametrize("channels", [pytest.param(40, marks=pytest.mark.nightly), 64])
def test_c_trains_alike_with_cotangents_in_blocks(tmp_path: Path, channels: int) -> None:
    graph, _ = quantized(bottleneck(channels), [BATCH])
    whole, blocks = narrowed(graph, "host")
    found, expected = numbers(blocks, tmp_path / "blocks"), numbers(whole, tmp_path / "whole")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)

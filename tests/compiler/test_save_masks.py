"""Saved masks instead of activations: the same results in fewer bytes."""

from collections.abc import Sequence

import numpy as np
import pytest

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import BOOL, F32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops import lookup
from pockengine.compiler.options import Training
from pockengine.compiler.passes.memory.second_computation import backward_readers
from pockengine.compiler.program import Program
from pockengine.compiler.sparse.choice import FULL, ParamChoice
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.compiler.target import OPTIONAL, Target
from pockengine.tests.compiler.small_nets import NetBuilder, residual_net

SHAPE = (2, 12, 12, 8)


def biased_net() -> Graph:
    """Three convolutions with biases and ReLU6, as after folding a frozen batch norm."""
    net = NetBuilder("biased")
    x = net.g.input("x", TensorType(F32, SHAPE))
    target = net.g.input("target", TensorType(I64, (SHAPE[0],)))
    for layer in ("a", "b", "c"):
        x = net.g.add(net.conv(x, layer, 16, 3), net.weight(f"{layer}.bias", 16))
        x = net.relu6(x)
    return net.head(x, 3, target)


WITHOUT_MASKS = Target(name="without masks", passes=OPTIONAL - {"save_masks"})


def compiled(graph: Graph, scheme: Scheme | str, masks: bool) -> Program:
    target = Target() if masks else WITHOUT_MASKS
    return compile_program(graph, Training(scheme), target=target, check=True)


def inputs(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(graph.inputs[0].shape).astype(np.float32)
    return {"x": x, "target": np.array([0, 2]), "lr": np.asarray(0.1, np.float32)}


def after_two_steps(program: Program, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    params = {name: param.data.copy() for name, param in program.params.items()}
    for _ in range(2):
        run(program.entries["train"].graph, batch, params)
    return params


def test_training_biases_saves_only_bits_of_activations() -> None:
    graph = biased_net()
    lean = compiled(graph, "bias-only", masks=True)
    plain = compiled(graph, "bias-only", masks=False)
    nodes = lean.entries["train"].graph.nodes
    assert sum(node.op == "pack_mask" for node in nodes) == 3
    assert lean.entries["train"].plan.size < 0.8 * plain.entries["train"].plan.size
    before, after = (after_two_steps(p, inputs(graph)) for p in (plain, lean))
    for name, data in before.items():
        np.testing.assert_array_equal(after[name], data)


def test_batch_norm_saves_no_bits() -> None:
    """Its operand is saved anyway, and its result is recomputed from it."""
    program = compile_program(residual_net(batch=2, size=12), Training("bias-only"), check=True)
    assert not any(node.op == "pack_mask" for node in program.entries["train"].graph.nodes)


def test_activations_read_by_a_gradient_stay_saved() -> None:
    nodes = compiled(biased_net(), "full", masks=True).entries["train"].graph.nodes
    assert sum(node.op == "pack_mask" for node in nodes) == 1  # the last one feeds only the pooling


@pytest.mark.parametrize("channels", [1, 8, 31, 32, 33, 70])
def test_bits_round_trip(channels: int) -> None:
    mask = np.random.default_rng(0).integers(0, 2, (3, channels)).astype(bool)
    g = Builder(Graph("bits"))
    x = g.input("x", TensorType(BOOL, mask.shape))
    bits = g.pack_mask(x)
    g.output("y", g.unpack_mask(bits, channels=channels))
    assert bits.shape == (3, -(-channels // 32))
    np.testing.assert_array_equal(run(g.graph, {"x": mask})["y"], mask)
    packed = lookup("pack_mask").eval((mask,), {})[0]
    assert [bool(packed[0, c // 32] >> (c % 32) & 1) for c in range(channels)] == list(mask[0])


def large_saved(program: Program) -> list[TensorType]:
    """Return types of large float values of the forward pass that the backward pass reads."""
    graph = program.entries["train"].graph
    return [value.type for value in backward_readers(graph, graph.outputs["loss"])]


@pytest.mark.parametrize("listed", [range(4), (1, 5, 7, 12)], ids=["slice", "pick"])
def test_sparse_weights_save_some_channels_and_bits(
    listed: Sequence[int],
) -> None:
    graph = biased_net()
    scheme = Scheme(
        "sparse", (("*.bias", FULL), ("c.weight", ParamChoice("channels", 1, (*listed,))))
    )
    results = []
    for masks in (True, False):
        program = compiled(graph, scheme, masks)
        results.append((large_saved(program), after_two_steps(program, inputs(graph))))
    (lean, after), (plain, before) = results
    assert lean == [TensorType(F32, (*SHAPE[:3], 4))]
    assert plain == [TensorType(F32, (*SHAPE[:3], 16))] * 3
    for name, data in before.items():
        np.testing.assert_array_equal(after[name], data)


def test_sum_of_compared_activations_is_saved() -> None:
    """Recomputing the sum would save both of its operands, for which bits are enough."""
    net = NetBuilder("skip")
    x = net.g.input("x", TensorType(F32, SHAPE))
    target = net.g.input("target", TensorType(I64, (SHAPE[0],)))
    for layer in ("a", "b"):
        branch = net.relu6(net.g.add(net.conv(x, layer, 8, 3), net.weight(f"{layer}.bias", 8)))
        x = net.g.add(x, branch)
    last = net.relu6(net.g.add(net.conv(x, "c", 8, 1), net.weight("c.bias", 8)))
    scheme = Scheme("last", (("*.bias", FULL), ("c.weight", FULL)))
    program = compile_program(net.head(last, 3, target), Training(scheme), check=True)
    assert large_saved(program) == [TensorType(F32, SHAPE)]

"""Masks instead of activations: the same numbers, fewer bytes."""

import numpy as np
import pytest

from pockengine.compiler.compile import Training, compile_program
from pockengine.compiler.ir import BOOL, F32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops import lookup
from pockengine.compiler.passes import pipeline
from pockengine.compiler.program import Program
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


def compiled(graph: Graph, scheme: str, monkeypatch: pytest.MonkeyPatch, masks: bool) -> Program:
    if not masks:
        monkeypatch.setattr(pipeline, "save_masks", lambda graph, loss: None)
    return compile_program(graph, Training(scheme), check=True)


def inputs(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(graph.inputs[0].shape).astype(np.float32)
    return {"x": x, "target": np.array([0, 2]), "lr": np.asarray(0.1, np.float32)}


def after_two_steps(program: Program, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    params = {name: param.data.copy() for name, param in program.params.items()}
    for _ in range(2):
        run(program.entries["train"].graph, batch, params)
    return params


def test_biases_alone_need_bits_of_their_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = biased_net()
    lean = compiled(graph, "bias-only", monkeypatch, masks=True)
    plain = compiled(graph, "bias-only", monkeypatch, masks=False)
    nodes = lean.entries["train"].graph.nodes
    assert sum(node.op == "pack_mask" for node in nodes) == 3
    assert lean.entries["train"].plan.size < 0.8 * plain.entries["train"].plan.size
    before, after = (after_two_steps(p, inputs(graph)) for p in (plain, lean))
    for name, data in before.items():
        np.testing.assert_array_equal(after[name], data)


def test_batch_norm_needs_no_bits() -> None:
    """Its operand is kept anyway, and its result made again from that."""
    program = compile_program(residual_net(batch=2, size=12), Training("bias-only"), check=True)
    assert not any(node.op == "pack_mask" for node in program.entries["train"].graph.nodes)


def test_an_activation_that_a_gradient_needs_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = compiled(biased_net(), "full", monkeypatch, masks=True).entries["train"].graph.nodes
    assert sum(node.op == "pack_mask" for node in nodes) == 1  # the last one feeds the pooling only


@pytest.mark.parametrize("channels", [1, 8, 31, 32, 33, 70])
def test_bits_read_back(channels: int) -> None:
    mask = np.random.default_rng(0).integers(0, 2, (3, channels)).astype(bool)
    g = Builder(Graph("bits"))
    x = g.input("x", TensorType(BOOL, mask.shape))
    bits = g.pack_mask(x)
    g.output("y", g.unpack_mask(bits, channels=channels))
    assert bits.shape == (3, -(-channels // 32))
    np.testing.assert_array_equal(run(g.graph, {"x": mask})["y"], mask)
    packed = lookup("pack_mask").eval((mask,), {})[0]
    assert [bool(packed[0, c // 32] >> (c % 32) & 1) for c in range(channels)] == list(mask[0])

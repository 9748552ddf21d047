"""Activations saved in 16 bits: less memory, and gradients accurate to 8 bits."""

import numpy as np
import pytest

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, DType, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.memory.second_computation import backward_readers
from pockengine.compiler.program import Program
from pockengine.compiler.storage import Storage
from pockengine.compiler.target import Target
from pockengine.errors import CompileError
from pockengine.tests.compiler.small_nets import residual_net
from pockengine.tests.compiler.transformers import Sizes, bert_net, llama_net

Arrays = dict[str, np.ndarray]
SIZES = Sizes(layers=4, hidden=64, heads=4, ffn=128, vocabulary=100)
NETS = {
    "convolutions": (lambda: residual_net(4, 24), "full"),
    "encoder": (lambda: bert_net(2, 32, SIZES), "full"),
    "part of the channels": (lambda: bert_net(2, 32, SIZES), "sparse"),
    "decoder": (lambda: llama_net(2, 32, SIZES), "full"),
}


def compiled(graph: Graph, scheme: str, activations: str) -> Program:
    storage = Storage(activations=activations)
    return compile_program(graph, Training(scheme, Sgd(), storage=storage), check=True)


def test_operands_of_recomputed_attention_stay_exact() -> None:
    graph = llama_net(2, 32, SIZES)
    training = Training("full", Sgd(), storage=Storage(activations="bf16"))
    program = compile_program(graph, training, target=Target(attention=64), check=True)
    nodes = program.entries["train"].graph.nodes
    attention = [node for node in nodes if node.op == "attention"]
    assert len(attention) == SIZES.layers
    for node in attention:
        (again,) = (n for n in nodes if n.op == "attention_dv" and n.operands[4] is node.results[1])
        assert again.operands[1] is not node.operands[0]  # the queries were rounded


def batch_of(graph: Graph) -> Arrays:
    rng = np.random.default_rng(0)
    drawn = {
        value.name: rng.integers(0, 3, value.shape)
        if value.dtype is I64
        else rng.standard_normal(value.shape).astype(np.float32)
        for value in graph.inputs
    }
    return {**drawn, "lr": np.float32(1)}


def step(program: Program, batch: Arrays) -> tuple[float, Arrays]:
    """Return the loss and the change of each trained param, which is its gradient."""
    before = {name: param.data.copy() for name, param in program.params.items()}
    after = {name: array.copy() for name, array in before.items()}
    loss = float(run(program.entries["train"].graph, batch, after)["loss"])
    return loss, {name: before[name] - after[name] for name in program.scheme}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_loss_is_exact_and_gradients_are_rounded(net: str, dtype: str) -> None:
    build, scheme = NETS[net]
    batch = batch_of(build())
    exact, expected = step(compiled(build(), scheme, "f32"), batch)
    loss, found = step(compiled(build(), scheme, dtype), batch)
    assert loss == exact
    size = np.sqrt(sum(float((each**2).sum()) for each in expected.values()))
    error = np.sqrt(sum(float(((found[n] - expected[n]) ** 2).sum()) for n in expected))
    assert 0 < error / size < (2e-2 if dtype == "bf16" else 4e-3)


@pytest.mark.parametrize("scheme", ["full", "sparse"])
def test_transformers_need_less_memory(scheme: str) -> None:
    sizes = {
        dtype: compiled(bert_net(2, 32, SIZES), scheme, dtype).entries["train"].plan.size
        for dtype in ("f32", "bf16")
    }
    assert sizes["bf16"] < 0.92 * sizes["f32"]


def test_no_large_f32_value_is_saved() -> None:
    graph = compiled(bert_net(2, 32, SIZES), "full", "bf16").entries["train"].graph
    assert not backward_readers(graph, graph.outputs["loss"])
    exact = compiled(bert_net(2, 32, SIZES), "full", "f32").entries["train"].graph
    assert backward_readers(exact, exact.outputs["loss"])


def test_compared_values_stay_exact() -> None:
    g = Builder(Graph("maximum"))
    x = g.input("x", TensorType(F32, (32, 64)))
    w = g.param("w", np.eye(64, dtype=np.float32))
    y = g.matmul(x, w)
    g.output("loss", g.reduce_sum(g.square(g.reduce_max(y, axes=(1,))), axes=(0,)))
    program = compiled(g.graph, "full", "bf16")
    batch = batch_of(g.graph)
    _, expected = step(compiled(g.graph, "full", "f32"), batch)
    _, found = step(program, batch)
    np.testing.assert_array_equal(found["w"], expected["w"])
    assert np.abs(expected["w"]).max() > 1


def test_logits_are_not_rounded() -> None:
    graph = compiled(llama_net(2, 32, SIZES), "full", "bf16").entries["train"].graph
    (loss,) = (node for node in graph.nodes if node.op == "cross_entropy")
    (back,) = (node for node in graph.nodes if node.op == "cross_entropy_dx")
    assert loss.operands[0] is back.operands[0]


@pytest.mark.parametrize("weights", ["int4", "bf16"])
def test_stored_weights_are_not_activations(weights: str) -> None:
    """The backward pass decodes them again; in bf16 they would be larger than as stored."""
    storage = Storage(weights=weights, activations="bf16")
    training = Training("sparse", Sgd(), storage=storage)
    graph = compile_program(llama_net(2, 32, SIZES), training, check=True).entries["train"].graph
    decoded = {
        node.result
        for node in graph.nodes
        if node.operands and all(operand.name in graph.params for operand in node.operands)
    }
    assert decoded
    rounded = [
        node
        for node in graph.nodes
        if node.op == "cast" and node.result.dtype is DType.BF16 and node.operands[0] in decoded
    ]
    assert not rounded


def test_other_types_are_refused() -> None:
    with pytest.raises(CompileError, match="are stored as f32, bf16, f16, not 'int8'"):
        Storage(activations="int8")

"""Whole programs: trained params change, frozen ones cost nothing, fusion changes no results."""

from dataclasses import replace

import numpy as np
import pytest

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops import node_cost
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.sizes import Range
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.scheme import FULL, ParamChoice
from pockengine.compiler.storage import Storage
from pockengine.compiler.target import FusionRules, Target
from pockengine.compiler.variants import compile_variants
from pockengine.errors import CompileError, GraphError
from pockengine.tests.compiler.small_nets import NetBuilder, batches, residual_net

FUSED = Target(
    FusionRules(
        frozenset({"matmul", "conv2d", "conv2d_dx"}),
        {"reduce_sum": (0,), "reduce_mean": (0,), "moments": (0,), "batch_norm_sums": (0,)},
    )
)
SPARSE = Scheme(
    "sparse",
    (
        ("*.bias", FULL),
        ("b.0.weight", ParamChoice("range", channels=(2, 5))),
        ("c.0.weight", ParamChoice("share", share=0.25)),
        ("fc.weight", ParamChoice("share", share=0.5)),
    ),
)


def train(scheme: Scheme | str, target: Target) -> tuple[list[float], dict[str, np.ndarray]]:
    program = compiled(scheme, target)
    params = {name: param.data.copy() for name, param in program.params.items()}
    graph = program.entries["train"].graph
    losses = [float(run(graph, batch, params)["loss"]) for batch in batches(4)]
    return losses, params


def compiled(scheme: Scheme | str, target: Target | None = None) -> Program:
    optimizer = Sgd(momentum=0.9, weight_decay=1e-3)
    training = Training(scheme, optimizer)
    return compile_program(residual_net(), training, target=target, check=True)


@pytest.mark.parametrize("scheme", ["full", "bias-only", "head-only", "last-1-blocks", SPARSE])
def test_fusion_preserves_results(scheme: Scheme | str) -> None:
    plain_losses, plain = train(scheme, Target())
    fused_losses, fused = train(scheme, FUSED)
    assert plain_losses == fused_losses
    assert plain_losses[0] != plain_losses[-1]
    for name, data in plain.items():
        np.testing.assert_array_equal(fused[name], data)


def test_only_trained_channels_change() -> None:
    before = residual_net().params
    _, after = train(SPARSE, FUSED)
    changed = {
        name: np.argwhere(after[name] != param.data)
        for name, param in before.items()
        if "running" not in name
    }
    assert {name for name, places in changed.items() if len(places)} == {
        "a.1.bias",
        "b.0.weight",
        "b.1.bias",
        "c.0.weight",
        "c.1.bias",
        "fc.bias",
        "fc.weight",
    }
    assert set(changed["b.0.weight"][:, 3]) == {2, 3, 4}
    assert set(changed["c.0.weight"][:, 2]) == {0, 1}
    assert set(changed["fc.weight"][:, 0]) == {0, 1, 2, 3}


def test_channel_share_updates_match_the_full_scheme() -> None:
    """One plain step: the trained channels get the same gradient as in full training."""
    results = []
    for choice in (FULL, ParamChoice("share", share=0.25)):
        scheme = Scheme("one", (("c.0.weight", choice),))
        program = compile_program(residual_net(), Training(scheme), check=True)
        params = {name: param.data.copy() for name, param in program.params.items()}
        run(program.entries["train"].graph, batches(1)[0], params)
        results.append(params["c.0.weight"])
    full, share = results
    np.testing.assert_array_equal(share[:, :, :2], full[:, :, :2])
    np.testing.assert_array_equal(
        share[:, :, 2:], residual_net().params["c.0.weight"].data[:, :, 2:]
    )


def test_frozen_layers_cost_nothing() -> None:
    cost, arena = {}, {}
    for scheme in ("full", "bias-only", "head-only"):
        program = compiled(scheme, FUSED)
        cost[scheme] = sum(node_cost(node) for node in program.entries["train"].graph.nodes)
        arena[scheme] = program.entries["train"].plan.size
    forward = sum(node_cost(node) for node in residual_net().nodes)
    head_gradient = 2 * 8 * 3
    assert cost["head-only"] == forward + head_gradient
    assert cost["head-only"] < cost["bias-only"] < cost["full"]
    assert arena["head-only"] < arena["full"]


def test_channel_share_stores_the_same_share_of_the_activation() -> None:
    program = compiled(Scheme("share", (("fc.weight", ParamChoice("share", share=0.5)),)))
    nodes = program.entries["train"].graph.nodes
    (part,) = [node for node in nodes if node.op == "slice"]
    assert part.result.shape == (2, 4)
    pooled = part.operands[0]
    assert [node.op for node in nodes if pooled in node.operands] == ["slice", "matmul"]
    (dw,) = [node for node in nodes if node.op == "matmul" and node.attrs["transpose_a"]]
    assert dw.operands[0] is part.result
    assert dw.result.shape == (4, 3)


def test_prediction_uses_running_statistics() -> None:
    program = compiled("full", FUSED)
    graph = program.entries["predict"].graph
    assert [value.name for value in graph.inputs] == ["x"]
    assert list(graph.outputs) == ["output"]
    assert not any(node.op in ("moments", "ema_update") for node in graph.nodes)
    x = batches(1)[0]["x"]
    alone = run(graph, {"x": np.concatenate([x[:1], x[:1]])})["output"]
    np.testing.assert_allclose(run(graph, {"x": x})["output"][0], alone[0], rtol=1e-5)


def test_frozen_batch_norm_folds_into_frozen_convolutions() -> None:
    net = NetBuilder("frozen")
    x = net.g.input("x", TensorType(F32, (2, 6, 6, 4)))
    y = net.conv(x, "conv", 8, 3)
    c = net.g.param("scale", np.full(8, 2.0, np.float32), trainable=False)
    target = net.g.input("target", TensorType(I64, (2,)))
    graph = net.head(net.g.mul(y, c), 3, target)
    program = compile_program(graph, Training("head-only"), target=FUSED, check=True)
    assert "conv.weight" not in program.params
    (folded,) = [data for data in program.constants.values() if data.ndim == 4]
    np.testing.assert_allclose(folded, 2 * graph.params["conv.weight"].data)


def test_large_outputs_match_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = residual_net()
    outputs = set(graph.outputs)
    assert outputs > {"loss"}
    assert set(compile_program(graph).entries["train"].graph.outputs) == outputs
    monkeypatch.setattr("pockengine.compiler.compile.LARGEST_OUTPUT", 0)
    entries = compile_program(graph).entries
    assert set(entries["train"].graph.outputs) == {"loss"}
    assert set(entries["evaluate"].graph.outputs) == outputs
    assert set(entries["predict"].graph.outputs) == outputs - {"loss"}


@pytest.mark.parametrize(("expected", "names"), [((), {"loss"}), (("output",), {"loss", "output"})])
def test_step_returns_named_outputs(expected: tuple[str, ...], names: set[str]) -> None:
    entries = compile_program(residual_net(), Training(outputs=expected)).entries
    assert set(entries["train"].graph.outputs) == names
    assert set(entries["predict"].graph.outputs) == {"output"}
    with pytest.raises(CompileError, match=r"no output 'scores' beside its loss; it has .'output'"):
        compile_program(residual_net(), Training(outputs=("scores",)))


def test_all_sizes_have_the_outputs_of_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that only some sizes have would keep its padding."""

    def graph_of(size: int) -> Graph:
        g = Builder(Graph("sized"))
        x = g.input("x", TensorType(F32, (size, 4)))
        y = g.matmul(x, g.param("w", np.ones((4, 3), np.float32)))
        g.output("scores", y)
        g.output("loss", g.reduce_mean(g.reduce_sum(y, axes=(0, 1)), axes=()))
        return g.graph

    monkeypatch.setattr(
        "pockengine.compiler.compile.LARGEST_OUTPUT", graph_of(4).outputs["scores"].type.nbytes
    )
    entries = compile_variants(graph_of, Range("batch", 2, 8, {"x": 0}, (4, 8), {})).entries
    expected = {"train": {"loss"}, "evaluate": {"loss", "scores"}, "predict": {"scores"}}
    for size in (4, 8):
        for name, outputs in expected.items():
            assert set(entries[f"{name}@{size}"].graph.outputs) == outputs


def sequences(size: int) -> Graph:
    """The sum of squares of sequences [2, size, 64] after a layer with dropout."""
    g = Builder(Graph("sequences"))
    x = g.input("x", TensorType(F32, (2, size, 64)))
    seed = g.input("seed", TensorType(I32, ()))
    y = g.tanh(g.matmul(x, g.param("w", np.ones((64, 64), np.float32))))
    y = g.dropout(y, seed, p=0.5, stream=0)
    g.output("loss", g.reduce_sum(g.square(y), axes=(0, 1, 2), keepdims=False))
    return g.graph


@pytest.mark.parametrize("storage", [Storage(), Storage(states="bf16", trained="bf16")])
def test_random_numbers_and_rounding_do_not_count_as_padding(storage: Storage) -> None:
    """Dropout and stochastic rounding draw other numbers in other sizes."""
    training = Training(optimizer=Sgd(momentum=0.9), storage=storage)
    program = compile_variants(sequences, Range("length", 1, 4, {"x": 1}, (4,)), training)
    assert "dropout" in {node.op for node in program.entries["train@4"].graph.nodes}
    assert program.params["w"].value.dtype.value == storage.trained


def test_padding_is_checked_in_every_bucket() -> None:
    """A model that branches by its length may mix padding with data in a smaller bucket alone."""

    def short_ones_averaged(size: int) -> Graph:
        g = Builder(Graph("averaged"))
        x = g.input("x", TensorType(F32, (2, size)))
        y = g.square(g.mul(x, g.param("w", np.ones(1, np.float32))))
        reduce = g.reduce_mean if size <= 4 else g.reduce_sum
        g.output("loss", reduce(y, axes=(0, 1), keepdims=False))
        return g.graph

    length = Range("length", 2, 8, {"x": 1}, (2, 4, 8))
    with pytest.raises(CompileError, match="padding length from 3 to 4 changes the loss"):
        compile_variants(short_ones_averaged, length)
    buckets = replace(length, low=1, buckets=(4, 5, 8))
    with pytest.raises(CompileError, match="padding length from 1 to 4 changes the loss"):
        compile_variants(short_ones_averaged, buckets)


def test_constants_have_no_name_of_a_param() -> None:
    """PyTorch names the members of a ParameterList `constant` like this."""
    g = Builder(Graph("named"))
    x = g.input("x", TensorType(F32, (2,)))
    weight = g.param("constant.0", np.array([3, 4], np.float32))
    table_data = np.array([5, 6], np.float32)
    table = g.constant(table_data)
    g.output("loss", g.reduce_sum(g.mul(g.add(x, table), weight), axes=(0,), keepdims=False))
    program = compile_program(g.graph)
    assert set(program.params) == {"constant.0"}
    assert program.constants.keys().isdisjoint(program.params)
    assert any((data == table_data).all() for data in program.constants.values())


def test_compilation_is_deterministic() -> None:
    from pockengine.compiler.ir.text import print_graph

    first, second = (compiled(SPARSE, FUSED) for _ in range(2))
    for name, entry in first.entries.items():
        other = second.entries[name]
        assert print_graph(entry.graph) == print_graph(other.graph)
        assert list(entry.plan.values.values()) == list(other.plan.values.values())


def test_non_scalar_loss_is_an_error() -> None:
    net = NetBuilder("wrong")
    x = net.g.input("x", TensorType(F32, (2, 3)))
    net.g.output("loss", net.g.mul(x, net.weight("w", 3)))
    with pytest.raises(CompileError, match="scalar f32"):
        compile_program(net.g.graph)


def test_graph_without_a_loss_is_refused_with_a_hint() -> None:
    net = NetBuilder("plain")
    x = net.g.input("x", TensorType(F32, (2, 3)))
    net.g.output("scores", net.g.mul(x, net.weight("w", 3)))
    with pytest.raises(CompileError, match=r"only scores; say which loss by loss= or --loss"):
        compile_program(net.g.graph)


def partly_idle() -> Graph:
    """Only the param `w` influences the loss."""
    net = NetBuilder("idle")
    x = net.g.input("x", TensorType(F32, (2, 3)))
    net.g.output("loss", net.g.reduce_mean(net.g.mul(x, net.weight("w", 3)), axes=(0, 1)))
    net.g.output("other", net.g.mul(x, net.weight("idle.weight", 3)))
    stopped = net.g.stop_gradient(net.weight("stopped.weight", 3))
    net.g.output("third", net.g.mul(x, stopped))
    return net.g.graph


def test_warning_names_parameters_without_influence() -> None:
    with pytest.warns(UserWarning, match=r"idle\.weight, stopped\.weight: .* stay as they are"):
        program = compile_program(partly_idle())

    assert set(program.scheme) == {"w"}


@pytest.mark.parametrize("preset", ["head-only", "bias-only", "last-1-blocks"])
def test_presets_train_what_influences_the_loss(preset: str) -> None:
    assert set(compile_program(partly_idle(), Training(preset)).scheme) == {"w"}


def test_scheme_naming_a_parameter_without_influence_is_an_error() -> None:
    named = Scheme("named", (("w", FULL), ("idle.weight", FULL)))
    with pytest.raises(CompileError, match=r"idle\.weight does not influence the loss"):
        compile_program(partly_idle(), Training(named))


def test_loss_without_trainable_parameters_is_an_error() -> None:
    idle = Scheme("idle", (("idle.*", FULL),))
    with pytest.raises(CompileError, match=r"no parameter that should train .*\(idle\.weight\)"):
        compile_program(partly_idle(), Training(idle))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"x": np.zeros((2, 6, 6, 3), np.float32)}, r"'?%x: f32\[2,6,6,4\] was given float32"),
        ({"x": np.zeros((2, 6, 6, 4), np.int32)}, "was given int32"),
        ({}, "is missing"),
    ],
)
def test_wrong_inputs_name_the_input(batch: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        run(residual_net(), {**batches(1)[0], "x": None, **batch} if batch else {})


@pytest.mark.parametrize(
    "fields",
    [{"momentum": 1.0}, {"weight_decay": -1.0}, {"nesterov": True}],
)
def test_impossible_optimizers_are_errors(fields: dict[str, float]) -> None:
    with pytest.raises(CompileError):
        Sgd(**fields)

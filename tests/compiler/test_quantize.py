"""Quantized graphs: ranges, values that stay f32, lowering and training."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pockengine.compiler.compile import compile_program
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir import Builder, DType, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.ir.types import f32
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.optim import Adam, Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.forward.infer import InferOnly
from pockengine.compiler.quantize.calibrate import quantized
from pockengine.compiler.quantize.int8 import Int8
from pockengine.compiler.quantize.ranges import HIGH, LOW, METHODS, affine, range_of
from pockengine.compiler.quantize.report import arithmetic
from pockengine.compiler.sparse.choice import ParamChoice
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.errors import CompileError
from pockengine.tests.compiler.small_nets import batches, residual_net

SAMPLES = batches(4)


def quantized_net(method: str = "minmax") -> Graph:
    """Return the residual net, quantized on its samples."""
    graph, _ = quantized(residual_net(), SAMPLES, method=method)
    return graph


def losses(integers: Integers, optimizer: Sgd | Adam, steps: int = 30) -> list[float]:
    """Train the quantized net in the oracle."""
    program = compile_program(
        quantized_net(), Training(optimizer=optimizer, integers=integers), check=True
    )
    graph = program.entries["train"].graph
    params = {name: param.data for name, param in graph.params.items()}
    found = []
    for step in range(steps):
        adam = {"step": np.asarray(step + 1, np.int32), "lr": np.asarray(0.01, np.float32)}
        inputs = {**SAMPLES[step % 4], **(adam if isinstance(optimizer, Adam) else {})}
        found.append(float(run(graph, inputs, params)["loss"]))
    return found


@pytest.mark.parametrize("method", sorted(METHODS))
def test_quantized_net_is_close_to_the_original(method: str) -> None:
    real, rounded = residual_net(), quantized_net(method)
    verify(rounded)
    InferOnly(loss=True).run(real)
    for batch in SAMPLES:
        expected, found = (run(graph, batch)["output"] for graph in (real, rounded))
        assert np.abs(expected - found).max() < 0.06 * np.abs(expected).max() + 0.05


def test_quantizations_survive_the_text_form() -> None:
    graph = quantized_net()
    text = print_graph(graph)
    again = parse_graph(text, {name: param.data for name, param in graph.params.items()})
    assert print_graph(again) == text
    assert again.params["a.0.weight"].quantization == graph.params["a.0.weight"].quantization


def test_forward_pass_is_integer_from_input_to_mean() -> None:
    program = compile_program(quantized_net(), check=True)
    graph = program.entries["predict"].graph
    large = [
        value
        for node in graph.nodes
        for value in node.results
        if len(value.shape) == 4 and node.op not in ("conv2d", "fusion")
    ]
    assert {value.dtype for value in large} == {DType.I8}
    weights = [param for name, param in graph.params.items() if name.endswith(".0.weight")]
    assert {param.value.dtype for param in weights} == {DType.I8}


def test_integer_results_match_rounded_floats() -> None:
    rounded = quantized_net()
    program = compile_program(rounded, check=True)
    for batch in SAMPLES:
        expected = run(rounded, batch)["output"]
        found = run(program.entries["predict"].graph, {"x": batch["x"]})["output"]
        np.testing.assert_allclose(found, expected, atol=0.05)  # integers that differ by one


@pytest.mark.parametrize("gradients", ["int8", "f32"])
@pytest.mark.parametrize("optimizer", [Sgd(momentum=0.9), Adam()])
def test_integers_train(gradients: str, optimizer: Sgd | Adam) -> None:
    found = losses(Integers(gradients), optimizer)
    assert np.mean(found[-4:]) < 0.8 * np.mean(found[:4])


def test_unscaled_gradients_hardly_change_integers() -> None:
    found = losses(Integers("f32", qas=False), Sgd())
    scaled = losses(Integers("f32"), Sgd())
    assert np.mean(scaled[-4:]) < np.mean(found[-4:])


def test_channel_share_trains() -> None:
    rules = (
        ("b.0.weight", ParamChoice("share", share=0.5, by="magnitude")),
        ("c.0.weight", ParamChoice("share", share=0.25)),
    )
    program = compile_program(
        quantized_net(), Training(Scheme("some", rules), Sgd(), integers=Integers()), check=True
    )
    graph = program.entries["train"].graph
    params = {name: param.data for name, param in graph.params.items()}
    before = {name: data.copy() for name, data in params.items()}
    for batch in SAMPLES:
        run(graph, {**batch, "lr": np.asarray(1.0, np.float32)}, params)
    changed = {name for name in params if not np.array_equal(params[name], before[name])}
    assert {"b.0.weight", "c.0.weight"} <= changed
    assert not np.array_equal(params["c.0.weight"][:, :, :2], before["c.0.weight"][:, :, :2])
    np.testing.assert_array_equal(params["c.0.weight"][:, :, 2:], before["c.0.weight"][:, :, 2:])


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_ranges_include_zero_and_both_ends(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    if max(high, 0.0) - min(low, 0.0) < 1e-3:
        return
    chosen = affine(low, high)
    assert LOW <= chosen.zero <= HIGH
    least, most = ((limit - chosen.zero) * chosen.scale for limit in (LOW, HIGH))
    assert least <= low + chosen.scale
    assert most >= high - chosen.scale


def test_percentiles_and_errors_exclude_outliers() -> None:
    seen = [np.append(np.random.default_rng(0).standard_normal(5000), 300.0)]
    widths = {name: range_of(seen, name, 1e-3).scale for name in METHODS}
    assert widths["percentile"] < widths["mse"] < widths["minmax"]


@pytest.mark.parametrize(("number", "message"), [(0.0, "is 0 on every"), (np.inf, "finite")])
def test_error_names_a_tensor_without_a_range(number: float, message: str) -> None:
    samples = [{**batch, "x": np.full_like(batch["x"], number)} for batch in SAMPLES]
    with pytest.raises(CompileError, match=rf"%x.*conv2d.*{message}"):
        quantized(residual_net(), samples)


def test_error_names_a_zero_weight() -> None:
    graph = residual_net()
    graph.params["c.0.weight"].data = np.zeros((1, 1, 8, 8), np.float32)
    with pytest.raises(CompileError, match=r"c\.0\.weight is 0 everywhere"):
        quantized(graph, SAMPLES)


def test_a_graph_without_layers_is_refused() -> None:
    g = Builder(Graph("sum"))
    g.output("loss", g.reduce_sum(g.input("x", f32(3)), axes=(0,)))
    with pytest.raises(
        CompileError, match="nothing in sum has a meaning in integers: it has no convolution"
    ):
        quantized(g.graph, [{"x": np.ones(3, np.float32)}])


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({}, "samples of nothing"),
        ({"z": np.zeros(3)}, r"samples of \['z'\]"),
        ({"x": np.zeros((1, 6, 6, 4))}, "2 rows or more"),
        ({"x": np.zeros((4, 5, 6, 4))}, r"\(6, 6, 4\)"),
    ],
)
def test_mismatched_samples_are_refused(samples: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        Int8(samples).apply(residual_net())


def test_error_names_f32_layers_and_the_reason() -> None:
    g = Builder(Graph("attention"))
    x = g.input("x", f32(4, 4))
    with g.scope("stem"):
        x = g.matmul(x, g.reshape(g.param("taps", np.ones(16, np.float32)), shape=(4, 4)))
    with g.scope("blocks.0.attn"):
        scores = g.matmul(x, x)
    g.output("loss", g.reduce_sum(scores, axes=(0, 1)))
    message = (
        r"matmul in stem stays f32, as taps is read reshaped; "
        r"matmul in blocks\.0\.attn stays f32, as it multiplies two activations; leave"
    )
    with pytest.raises(CompileError, match=message):
        quantized(g.graph, [{"x": np.ones((4, 4), np.float32)}])


def test_layers_with_a_matrix_for_each_batch_stay_f32() -> None:
    g = Builder(Graph("experts"))
    y = g.matmul(g.input("x", f32(3, 2, 4)), g.param("experts", np.ones((3, 4, 5), np.float32)))
    y = g.reduce_sum(y, axes=(0,))
    g.output("y", g.matmul(y, g.param("head", np.ones((5, 2), np.float32))))
    graph, _ = quantized(g.graph, [{"x": np.ones((3, 2, 4), np.float32)}])
    lines = {line.numbers: line for line in arithmetic(graph) if line.op == "matmul"}
    assert lines["int8"].why == ""
    assert "is not held as int8" in lines["f32"].why


def test_report_lists_int8_layers_and_reasons_for_f32() -> None:
    g = Builder(Graph("net"))
    x = g.input("x", f32(2, 80000))
    with g.scope("wide"):
        y = g.matmul(x, g.param("wide.weight", np.ones((80000, 3), np.float32)))
    with g.scope("act"):
        y = g.softmax(y)
    with g.scope("head"):
        y = g.matmul(y, g.param("head.weight", np.ones((3, 2), np.float32)))
    with g.scope("self"):
        y = g.matmul(y, y)
    g.output("y", y)
    graph, _ = quantized(g.graph, [{"x": np.ones((2, 80000), np.float32)}])

    assert [(line.layer, line.op, line.numbers, line.why) for line in arithmetic(graph)] == [
        ("wide", "matmul", "f32", "80,000 products may overflow a sum of 32 bits; 65,793 fit"),
        ("act", "softmax", "f32", "softmax has no int8 meaning"),
        ("head", "matmul", "int8", ""),
        ("self", "matmul", "f32", "one of its two activations is not held as int8"),
    ]


def test_unknown_options_are_refused() -> None:
    with pytest.raises(CompileError, match="method 'entropy'"):
        quantized(residual_net(), SAMPLES, method="entropy")
    with pytest.raises(CompileError, match="gradients are int8 or f32"):
        Integers("int4")


def test_folded_norms_can_be_unfolded() -> None:
    real = residual_net()
    rounded, norms = quantized(real, SAMPLES)
    values = {name: param.data for name, param in rounded.params.items()}
    for norm in norms:
        norm.unfold(values)
    assert len(norms) == 3
    for name, data in values.items():
        np.testing.assert_allclose(data, real.params[name].data, atol=1e-5)


def test_sums_that_could_overflow_stay_f32() -> None:
    g = Builder(Graph("long"))
    x, w = g.input("x", f32(1, 70_000)), g.param("w", np.ones((70_000, 2), np.float32))
    g.output("loss", g.reduce_sum(g.matmul(x, w), axes=(0, 1)))
    graph, _ = quantized(g.graph, [{"x": np.ones((1, 70_000), np.float32)}])
    program = compile_program(graph, check=True)
    products = [n for n in program.entries["evaluate"].graph.nodes if n.op == "matmul"]
    assert [n.result.dtype for n in products] == [DType.F32]

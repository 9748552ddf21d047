"""Forms that save the runtime passes over memory; the results are unchanged."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

import pockengine
from pockengine.backends.onnx.bindings import model_name
from pockengine.backends.onnx.forms.depthwise import CHANNELS, FEW_PIXELS
from pockengine.backends.onnx.model import write_models
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.onnx.computed import TARGET, computed
from pockengine.tests.backends.trainings import opened
from pockengine.tests.replay.nets import mobile_net

RATE = 0.01
PLAIN = {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0), "groups": 1}


def _train_ops(graph: Graph, optimizer: Sgd, folder: Path) -> Counter[str]:
    folder.mkdir(exist_ok=True)
    write_models(compile_program(graph, Training("full", optimizer), target=TARGET), folder)
    return _ops(folder / model_name("train"))


def _ops(path: Path) -> Counter[str]:
    written = onnx.load(path, load_external_data=False)
    return Counter(node.op_type for node in written.graph.node)


def test_a_batch_norm_scales_and_shifts_in_one_pass(tmp_path: Path) -> None:
    """In the forward and the backward pass, with a sum in between."""
    graph = mobile_net(2, 16)
    norms = sum(node.op == "batch_norm" for node in graph.nodes)
    assert norms > 5
    assert _train_ops(graph, Sgd(), tmp_path)["BatchNormalization"] == 2 * norms


def test_gradients_of_clamps_are_masked_by_products(tmp_path: Path) -> None:
    ops = _train_ops(mobile_net(2, 16), Sgd(), tmp_path)
    assert ops["Cast"] > ops["Where"]


@pytest.mark.parametrize("maker", ["matmul", "log", "input"])
def test_a_choice_of_the_forward_pass_hides_what_is_not_finite(maker: str, tmp_path: Path) -> None:
    """A product may be infinite exactly where a mask hides it."""
    g = Builder(Graph("choice"))
    x, y = (g.input(name, TensorType(F32, (4, 4))) for name in "xy")
    taken = {"matmul": lambda: g.matmul(x, y), "log": lambda: g.log(x), "input": lambda: x}[maker]()
    g.output("chosen", g.where(g.gt(x, g.scalar(0.0)), taken, g.scalar(0.0)))
    numbers = np.linspace(-3, 3, 16, dtype=np.float32).reshape(4, 4)
    numbers[0, 0] = -np.inf
    inputs = {"x": numbers, "y": np.ones((4, 4), np.float32)}
    with np.errstate(all="ignore"):
        expected = run(g.graph, inputs, {})["chosen"]
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(computed(g.graph, inputs, tmp_path)["chosen"], expected, rtol=1e-5)


def test_a_choice_takes_the_shape_of_its_zeros(tmp_path: Path) -> None:
    g = Builder(Graph("wider"))
    x = g.input("x", TensorType(F32, (1, 4)))
    taken = g.matmul(x, g.constant(np.ones((4, 4), np.float32), "w"))
    zeros = g.constant(np.zeros((3, 4), np.float32), "zeros")
    g.output("chosen", g.where(g.gt(x, g.scalar(0.0)), taken, zeros))
    inputs = {"x": np.array([[-1, 2, -3, 4]], np.float32)}
    expected = run(g.graph, inputs, {})["chosen"]
    assert expected.shape == (3, 4)
    np.testing.assert_allclose(computed(g.graph, inputs, tmp_path)["chosen"], expected, rtol=1e-5)


@pytest.mark.parametrize("late", ["vector", "sum", "doubled", "shared"])
def test_a_scaled_image_is_shifted_with_what_is_added_later(late: str, tmp_path: Path) -> None:
    """If that is equivalent: not for a sum with itself, nor if the scaled image has other users."""
    g = Builder(Graph("scaled"))
    x = g.input("x", TensorType(F32, (2, 4, 4, 3)))
    a, b = (g.input(name, TensorType(F32, (3,))) for name in "ab")
    image = g.conv2d(x, g.constant(np.ones((1, 1, 3, 3), np.float32), "w"), **PLAIN)
    scaled = g.mul(image, a)
    if late == "sum":
        scaled = g.add(image, scaled)
    if late == "doubled":
        scaled = g.add(scaled, scaled)
    if late == "shared":
        g.output("scaled", scaled)
    g.output("shifted", g.add(scaled, b))
    random = np.random.default_rng(0)
    shapes = {"x": (2, 4, 4, 3), "a": (3,), "b": (3,)}
    inputs = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    found = computed(g.graph, inputs, tmp_path)
    for name, array in run(g.graph, inputs, {}).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    assert _ops(tmp_path / model_name("case"))["BatchNormalization"] == (late in ("vector", "sum"))


def test_a_plain_step_is_part_of_the_product(tmp_path: Path) -> None:
    """For plain SGD, whose gradients have no other user; not with momentum."""
    plain = _train_ops(mobile_net(2, 16), Sgd(), tmp_path / "plain")
    heavy = _train_ops(mobile_net(2, 16), Sgd(momentum=0.9), tmp_path / "heavy")
    assert plain["Gemm"] == heavy["Gemm"]
    assert plain["Sub"] < heavy["Sub"]


def test_steps_of_plain_sgd_are_those_of_c() -> None:
    graph = opened(mobile_net(2, 16))
    ours, c = (
        pockengine.compile(graph, None, backend=backend, optimizer=Sgd())
        for backend in ("onnx", "c")
    )
    with ours.session() as session, c.session() as other:
        for number in range(3):
            batch = draw(graph, number)
            loss = float(other.train_step(batch, RATE)["loss"])
            assert float(session.train_step(batch, RATE)["loss"]) == pytest.approx(loss, rel=1e-4)
        for key, array in other.params().items():
            np.testing.assert_allclose(session.params()[key], array, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", [CHANNELS - 1, CHANNELS])
@pytest.mark.parametrize(
    ("stride", "dilation", "padding"),
    [
        ((1, 1), (1, 1), (1, 1, 1, 1)),
        ((2, 1), (1, 1), (0, 1, 2, 0)),
        ((2, 2), (1, 2), (0, 0, 0, 0)),
    ],
)
def test_depthwise_weight_gradients_take_channels_last_where_these_are_many(
    channels: int,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    tmp_path: Path,
) -> None:
    g = Builder(Graph("taps"))
    geometry = {"stride": stride, "dilation": dilation, "padding": padding, "groups": channels}
    x = g.input("x", TensorType(F32, (2, 7, 6, channels)))
    window = g.input("w", TensorType(F32, (3, 2, 1, channels)))
    y = g.conv2d(x, window, **geometry)
    dy = g.input("dy", y.type)
    g.output("dw", g.conv2d_dw(x, dy, weight_shape=window.shape, **geometry))
    random = np.random.default_rng(0)
    inputs = {v.name: random.normal(size=v.shape).astype(np.float32) for v in g.graph.inputs}
    expected = run(g.graph, inputs, {})["dw"]
    np.testing.assert_allclose(
        computed(g.graph, inputs, tmp_path)["dw"], expected, rtol=1e-4, atol=1e-5
    )
    transposes = _ops(tmp_path / model_name("case"))["Transpose"]
    assert (transposes == 0) == (channels == CHANNELS)


@pytest.mark.parametrize("op", ["conv2d", "conv2d_dx"])
@pytest.mark.parametrize(
    ("size", "stride", "dilation", "padding", "by_taps"),
    [
        ((4, 4), (1, 1), (1, 1), (1, 1, 1, 0), True),
        ((3, 4), (1, 1), (1, 2), (2, 1, 1, 0), True),
        ((7, 6), (2, 2), (1, 1), (1, 0, 1, 0), True),
        ((4, FEW_PIXELS), (1, 1), (1, 1), (1, 1, 1, 0), False),
    ],
)
def test_small_depthwise_convolutions_go_by_taps(
    op: str,
    size: tuple[int, int],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    by_taps: bool,
    tmp_path: Path,
) -> None:
    g = Builder(Graph("small"))
    geometry = {"stride": stride, "dilation": dilation, "padding": padding, "groups": CHANNELS}
    x = g.input("x", TensorType(F32, (2, *size, CHANNELS)))
    window = g.input("w", TensorType(F32, (3, 2, 1, CHANNELS)))
    y = g.conv2d(x, window, **geometry)
    g.output("y", y)
    if op == "conv2d_dx":
        dy = g.input("dy", y.type)
        g.output("dx", g.conv2d_dx(dy, window, input_shape=x.shape, **geometry))
    random = np.random.default_rng(0)
    inputs = {v.name: random.normal(size=v.shape).astype(np.float32) for v in g.graph.inputs}
    found = computed(g.graph, inputs, tmp_path)
    for name, expected in run(g.graph, inputs, {}).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)
    ops = _ops(tmp_path / model_name("case"))
    turned = op == "conv2d_dx" and stride == (1, 1)
    assert ops["Gather"] == by_taps * (1 + turned)


def test_a_frozen_window_is_the_runtime_s_to_lay_out(tmp_path: Path) -> None:
    g = Builder(Graph("frozen"))
    x = g.input("x", TensorType(F32, (2, 3, 3, CHANNELS)))
    window = g.constant(np.ones((3, 3, 1, CHANNELS), np.float32), "w")
    geometry = {"stride": (1, 1), "dilation": (1, 1), "padding": (1, 1, 1, 1), "groups": CHANNELS}
    g.output("y", g.conv2d(x, window, **geometry))
    computed(g.graph, {"x": np.ones(x.shape, np.float32)}, tmp_path)
    assert _ops(tmp_path / model_name("case"))["Conv"] == 1

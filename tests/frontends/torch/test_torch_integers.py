"""Int8 modules of PyTorch 2 export quantization: equal forward pass, training in int8."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed
from torch.nn import functional

import pockengine
from pockengine.backends.registry import open_session
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.passes.integers.hold_integers import HoldIntegers
from pockengine.compiler.passes.integers.integer_arithmetic import IntegerArithmetic
from pockengine.errors import ImportModelError
from pockengine.frontends.registry import find_source
from pockengine.frontends.torch.model import from_torch

assert _decomposed.quantized_decomposed_lib is not None  # importing it registers the operators
OPS = torch.ops.quantized_decomposed

FINE = 2.0**-6
"""Scales are powers of two: PyTorch's f32 sums are then exact in any order."""


def rounded(x: torch.Tensor, scale: float, zero: int, dtype: Any = torch.int8) -> torch.Tensor:
    """Quantize and dequantize; unsigned integers equal the signed ones plus 128."""
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    range_ = scale, zero + low + 128, low, high, dtype
    return OPS.dequantize_per_tensor(OPS.quantize_per_tensor(x, *range_), *range_)


class Weight(nn.Module):
    """An int8 weight with a scale per channel, and a bias, in the form of `convert_pt2e`."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("integers", torch.randint(-127, 128, shape, dtype=torch.int8))
        self.register_buffer("scales", 2.0 ** -torch.randint(8, 11, shape[:1]).float())
        self.register_buffer("zeros", torch.zeros(shape[0], dtype=torch.int64))
        units = self.scales * FINE
        self.bias = nn.Parameter(torch.randint(-5000, 5000, shape[:1]) * units)

    def forward(self) -> torch.Tensor:
        range_ = self.scales, self.zeros, 0, -127, 127, torch.int8
        return OPS.dequantize_per_channel(self.integers, *range_)


class Net(nn.Module):
    """Dense and depthwise convolutions, a sum, pools, clamps and a linear layer."""

    def __init__(self, dtype: Any = torch.int8) -> None:
        super().__init__()
        self.dtype = dtype
        self.wide, self.depthwise = Weight(8, 3, 3, 3), Weight(8, 1, 3, 3)
        self.point, self.last = Weight(8, 8, 1, 1), Weight(5, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = rounded(x, FINE, 3, self.dtype)
        x = functional.relu(functional.conv2d(x, self.wide(), self.wide.bias, stride=2))
        short = rounded(x, FINE, -128, self.dtype)
        x = functional.conv2d(short, self.depthwise(), self.depthwise.bias, padding=1, groups=8)
        x = rounded(functional.hardtanh(x, 0.0, 1.5), FINE, -20, self.dtype)
        x = rounded(functional.conv2d(x, self.point(), self.point.bias), FINE, 11, self.dtype)
        x = rounded(x + short, 2 * FINE, -7, self.dtype)
        x = rounded(functional.max_pool2d(x, 2), 2 * FINE, -7, self.dtype)
        x = rounded(functional.adaptive_avg_pool2d(x, 1), FINE, -30, self.dtype)
        x = functional.linear(torch.flatten(x, 1), self.last(), self.last.bias)
        return rounded(x, FINE, -40, self.dtype)


def exported(dtype: Any = torch.int8) -> torch.export.ExportedProgram:
    """Return the exported program of a net with random weights."""
    torch.manual_seed(0)
    return torch.export.export(Net(dtype), (pictures(),))


def pictures() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).standard_normal((2, 3, 10, 10), np.float32))


def by_integers(graph: Graph, x: torch.Tensor) -> np.ndarray:
    """Return the oracle's output in integer arithmetic."""
    HoldIntegers().run(graph)
    IntegerArithmetic(rounding="float").run(graph)
    assert {value.dtype.value for value in graph.values()} >= {"i8", "i32"}
    return run(graph, {graph.inputs[0].name: x.numpy()})["output"]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_the_forward_pass_equals_pytorch(dtype: Any) -> None:
    module, x = exported(dtype).module(), pictures()
    graph = from_torch(module, (x,), integers=True)
    assert sum(param.quantization is not None for param in graph.params.values()) == 4
    found = by_integers(graph, x)
    assert len(np.unique(found)) > 5
    np.testing.assert_array_equal(found, module(x).detach().numpy())


def test_without_integers_the_module_is_the_float_one() -> None:
    """The two differ by rounding alone."""
    module, x = exported().module(), pictures()
    graph = from_torch(module, (x,))
    assert all(param.quantization is None for param in graph.params.values())
    assert "quantize" not in {node.op for node in graph.nodes}
    found = run(graph, {"x": x.numpy()})["output"]
    np.testing.assert_allclose(found, module(x).detach().numpy(), atol=4 * FINE)


def test_it_trains_in_int8_and_exports_int8() -> None:
    program, x = exported(), pictures()
    compiled = pockengine.compile(
        program, (x,), loss="cross_entropy", quantize=pockengine.Int8(), scheme="full"
    )
    batch = {"x": x.numpy(), "target": np.array([1, 3])}
    with open_session(compiled.artifact) as session:
        np.testing.assert_array_equal(
            session.predict({"x": x.numpy()})["output"], program.module()(x).detach().numpy()
        )
        losses = [float(session.train_step(batch, lr=0.02)["loss"]) for _ in range(20)]
        tuned = compiled.tuned(session)
        found = session.predict({"x": x.numpy()})["output"]
    assert losses[-1] < 0.7 * losses[0]
    module = program.module()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert {name: tensor.dtype for name, tensor in tuned.items()} == {
        name: tensor.dtype for name, tensor in before.items()
    }
    assert not torch.equal(tuned["wide.integers"], before["wide.integers"])
    module.load_state_dict(tuned)
    np.testing.assert_allclose(found, module(x).detach().numpy(), atol=FINE)


def test_the_reference_has_gradients_of_quantized_weights() -> None:
    """PyTorch's own gradients are those of the float module, as without `integers`."""
    source = find_source(exported(), (pictures(),))
    reference = source.reference("cross_entropy", lambda array: array)
    assert reference is not None
    assert reference.gradients is not None
    assert np.abs(reference.gradients["wide.integers"]).max() > 0


def test_weights_stored_as_floats_stay_floats() -> None:
    """`convert_pt2e(fold_quantize=False)` leaves the rounding of weights in the graph."""

    class Unfolded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            range_ = 2.0**-8, 0, -127, 127, torch.int8
            weight = OPS.quantize_per_tensor(self.linear.weight, *range_)
            weight = OPS.dequantize_per_tensor(weight, *range_)
            x = rounded(x, FINE, 0)
            return rounded(functional.linear(x, weight, self.linear.bias), FINE, 0)

    torch.manual_seed(0)
    x = torch.randn(3, 6)
    net = Unfolded()
    with torch.no_grad():
        net.linear.bias.copy_((net.linear.bias * 2**14).round() / 2**14)
    module = torch.export.export(net, (x,)).module()
    graph = from_torch(module, (x,), integers=True)
    assert graph.params["linear.weight"].quantization is not None
    assert graph.params["linear.weight"].source is None
    np.testing.assert_array_equal(by_integers(graph, x), module(x).detach().numpy())


def one(range_: tuple[Any, ...], other: tuple[Any, ...] | None = None) -> nn.Module:
    """Return a module that quantizes in one range and dequantizes in the same or another range."""

    class One(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            integers = OPS.quantize_per_tensor(x, *range_)
            return OPS.dequantize_per_tensor(integers, *(other or range_))

    return torch.export.export(One(), (torch.zeros(2, 3),)).module()


class Dynamic(nn.Module):
    """Computes its range at run time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = OPS.choose_qparams(x, -128, 127, 1e-7, torch.int8)
        range_ = *found, -128, 127, torch.int8
        return OPS.dequantize_per_tensor(OPS.quantize_per_tensor(x, *range_), *range_)


class Computing(nn.Module):
    """Computes on the integers directly."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        range_ = 0.1, 0, -128, 127, torch.int8
        return OPS.dequantize_per_tensor(OPS.quantize_per_tensor(x, *range_).neg(), *range_)


BYTES = (-128, 127, torch.int8)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (one((0.1, 0, *BYTES), (0.2, 0, *BYTES)), "its range is another than that"),
        (one((float("inf"), 0, *BYTES)), "scales .* must be positive and finite"),
        (one((0.1, 0, 0, 1000, torch.int16)), "an activation has one scale, and integers of 8"),
        (torch.export.export(Dynamic(), (torch.ones(2, 3),)).module(), "its range is computed"),
        (torch.export.export(Computing(), (torch.ones(2, 3),)).module(), "it reads aten.neg"),
    ],
)
def test_invalid_quantization_names_operator_and_location(module: nn.Module, message: str) -> None:
    with pytest.raises(
        ImportModelError, match=rf"quantized_decomposed\.(de)?quantize_\S+ in \S+: {message}"
    ):
        from_torch(module, (torch.zeros(2, 3),))


def test_a_float_module_is_refused() -> None:
    with pytest.raises(ImportModelError, match="has no int8 weights; calibrate it"):
        from_torch(nn.Linear(3, 2), (torch.zeros(2, 3),), integers=True)


def test_a_torchao_conversion_is_imported() -> None:
    """Its scales are arbitrary, so PyTorch's f32 sums may round to a neighboring integer."""
    convert = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    quantizers = pytest.importorskip("torchao.testing.pt2e._xnnpack_quantizer")
    settings = quantizers.get_symmetric_quantization_config(is_per_channel=True)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Hardtanh(0.0, 6.0),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 5),
    ).eval()
    x = pictures()
    quantizer = quantizers.XNNPACKQuantizer().set_global(settings)
    prepared = convert.prepare_pt2e(torch.export.export(net, (x,)).module(), quantizer)
    prepared(x)
    module = convert.convert_pt2e(prepared)
    graph = from_torch(module, (x,), integers=True)
    scale = max(np.ptp(module(x).detach().numpy()) / 255, 1e-6)
    found = by_integers(graph, x)
    np.testing.assert_allclose(found, module(x).detach().numpy(), atol=4 * scale)

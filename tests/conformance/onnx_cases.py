"""ONNX's conformance cases: models of one operator with inputs and expected outputs.

`training_cases` are the cases about training: optimizers, losses, dropout and batch norm in
training mode, gradients. The package onnx generates most in memory; the gradients are in files.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from pockengine.compiler.ir.graph import LOSS
from pockengine.frontends.onnx.emulated_types import as_input, emulated_array
from pockengine.frontends.onnx.fold import can_fold
from pockengine.frontends.onnx.ops import find_rule

# Prefix of a case's name -> the tested operator
TRAINING = {
    "test_adagrad": "Adagrad",
    "test_adam": "Adam",
    "test_batchnorm_epsilon_training_mode": "BatchNormalization",
    "test_batchnorm_example_training_mode": "BatchNormalization",
    "test_gradient_of_": "Gradient",
    "test_momentum": "Momentum",
    "test_nesterov_momentum": "Momentum",
    "test_nllloss": "NegativeLogLikelihoodLoss",
    "test_sce": "SoftmaxCrossEntropyLoss",
    "test_training_dropout": "Dropout",
}

# The gradient files have no tolerances; these are onnx's defaults for other cases.
RTOL, ATOL = 1e-3, 1e-7

# Zeros that are sums of numbers up to 54: f32 does not resolve differences below this.
SPECTRUM_ATOL = 54 * 2.0**-23
SPECTRUM = re.compile(r"test_dft_inverse.*")

HALF = {"bfloat16": 2.0**-8, "float16": 2.0**-10}
"""Rounding errors of types in which we do not compute."""

RANDOM_MASK = "its expected values depend on the random mask of NumPy's generator"
CORNERS = "it counts corners by fractions of elements; ONNX Runtime and PyTorch count whole ones"
INCOMPARABLE = {
    r"test_training_dropout(_default)?(_mask)?": RANDOM_MASK,
    r"test_resize_downsample_scales_(cubic|linear)_align_corners": CORNERS,
}
"""Cases whose expected values cannot be compared, and why."""


@dataclass(frozen=True)
class Case:
    """One case. `incomparable` is the reason why its expected values cannot be compared, if any."""

    name: str
    op: str
    model: ModelProto
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    rtol: float
    atol: float
    incomparable: str | None

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """Return inputs that must be compile-time constants: shapes, axes, dropout ratios,
        counts."""
        needed = {
            name
            for node in self.model.graph.node
            for index, name in enumerate(node.input)
            if _is_static(node, index)
        }
        return {name: array for name, array in self.inputs.items() if name in needed}


def _is_static(node: NodeProto, index: int) -> bool:
    """Return whether an operator's input must be constant at compile time."""
    rule = find_rule(node.domain, node.op_type)
    if rule is not None:
        return index in rule.static
    return can_fold(node) or index < {"If": 1, "Loop": 2}.get(node.op_type, 0)


def training_cases() -> list[Case]:
    """Return all cases about training, by name."""
    cases = []
    for case in (*load_model_tests(kind="node"), *load_model_tests(kind="simple")):
        op = next((op for start, op in TRAINING.items() if case.name.startswith(start)), None)
        if op is not None:
            cases.append(_case(case, op))
    return sorted(cases, key=lambda case: case.name)


def node_cases() -> list[Case]:
    """Return all cases of single operators with tensors as inputs and outputs, by name."""
    cases = []
    for case in load_model_tests(kind="node"):
        tensors = [*case.data_sets[0][0], *case.data_sets[0][1]] if case.data_sets else [None]
        if case.model is not None and all(isinstance(t, np.ndarray | np.generic) for t in tensors):
            ops = [node.op_type for node in case.model.graph.node if node.op_type != "Constant"]
            cases.append(_case(case, ops[0] if ops else "Constant"))
    return sorted(cases, key=lambda case: case.name)


def result_of(found: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return an output by its name in the file; a single scalar output is imported as the loss."""
    return found[name] if name in found else found[LOSS]


def _case(case: TestCase, op: str) -> Case:
    if case.model is None:
        model, inputs, outputs = _from_files(Path(case.model_dir))
    else:
        model, (inputs, outputs) = case.model, case.data_sets[0]
    if case.name.endswith("_expanded"):
        op += " (as a function)"
    reasons = (why for name, why in INCOMPARABLE.items() if re.fullmatch(name, case.name))
    names = [value.name for value in model.graph.input]
    results = [value.name for value in model.graph.output]
    operands, expected = list(map(np.asarray, inputs)), list(map(np.asarray, outputs))
    size = max((HALF.get(array.dtype.name, 0.0) for array in (*operands, *expected)), default=0.0)
    absolute = ATOL if case.atol is None else case.atol
    return Case(
        case.name,
        op,
        model,
        dict(zip(names, (as_input(x, x.dtype) for x in operands), strict=False)),
        dict(zip(results, map(emulated_array, expected), strict=True)),
        max(RTOL if case.rtol is None else case.rtol, 2 * size),
        max(SPECTRUM_ATOL if SPECTRUM.fullmatch(case.name) else absolute, 2 * size),
        next(reasons, None),
    )


def _from_files(folder: Path) -> tuple[ModelProto, list[np.ndarray], list[np.ndarray]]:
    data = folder / "test_data_set_0"
    inputs, outputs = list(_tensors(data, "input")), list(_tensors(data, "output"))
    return onnx.load(folder / "model.onnx"), inputs, outputs


def _tensors(folder: Path, kind: str) -> Iterator[np.ndarray]:
    for index in range(len(list(folder.glob(f"{kind}_*.pb")))):
        tensor = TensorProto()
        tensor.ParseFromString((folder / f"{kind}_{index}.pb").read_bytes())
        yield numpy_helper.to_array(tensor)

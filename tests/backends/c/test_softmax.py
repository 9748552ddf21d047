"""Generated softmax and cross-entropy kernels agree with the NumPy oracle, under sanitizers."""

from pathlib import Path

import numpy as np

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.ir import F32, I32, I64, Builder, Graph, Node, TensorType
from pockengine.tests.backends.c.harness import SANITIZED, Case, device_of, run_cases

SHAPES = [(1, 1), (2, 3), (5, 10), (3, 16), (7, 33), (2, 1000)]


def check(cases: list[Case], folder: Path) -> None:
    compiler = ("gcc", *SANITIZED, "-march=native")
    for case, runs in zip(cases, run_cases(cases, folder, compiler), strict=True):
        for results in runs:
            np.testing.assert_allclose(
                results[0], case.expected[0], rtol=3e-6, atol=1e-6, err_msg=repr(case.node)
            )


def case_of(node: Node, isa: str, *operands: np.ndarray) -> Case:
    return Case(node, CBackend(device_of(isa)).kernel(node), operands)


def test_probabilities_and_losses_agree_with_the_oracle(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    cases = []
    for isa, shape in zip(["avx512", "avx2", "sse2"] * 2, SHAPES, strict=True):
        x = (rng.standard_normal(shape) * 8).astype(np.float32)
        for op in ("softmax", "log_softmax"):
            g = Builder(Graph("case"))
            cases.append(case_of(g.emit(op, g.input("x", TensorType(F32, shape))), isa, x))
        for dtype in (I32, I64):
            labels = rng.integers(0, shape[1], shape[0]).astype(dtype.numpy)
            labels[1:][rng.random(shape[0] - 1) < 0.3] = -100  # ignored rows
            g = Builder(Graph("case"))
            inputs = [
                g.input("logits", TensorType(F32, shape)),
                g.input("labels", TensorType(dtype, shape[:1])),
            ]
            cases.append(case_of(g.emit("cross_entropy", *inputs), isa, x, labels))
            dy = g.input("dy", TensorType(F32, ()))
            node = g.emit("cross_entropy_dx", *inputs, dy)
            cases.append(case_of(node, isa, x, labels, np.float32(0.5).reshape(())))
    check(cases, tmp_path)


def test_logits_of_any_size_do_not_overflow(tmp_path: Path) -> None:
    g = Builder(Graph("case"))
    node = g.emit("softmax", g.input("x", TensorType(F32, (2, 3))))
    x = np.array([[1e30, -1e30, 0], [-3e38, -3e38, -3e38]], np.float32)
    check([case_of(node, "avx512", x)], tmp_path)


def test_a_label_outside_of_the_classes_gives_nan(tmp_path: Path) -> None:
    g = Builder(Graph("case"))
    inputs = g.input("logits", TensorType(F32, (2, 3))), g.input("labels", TensorType(I64, (2,)))
    case = case_of(
        g.emit("cross_entropy", *inputs),
        "avx2",
        np.zeros((2, 3), np.float32),
        np.array([1, 3], np.int64),
    )
    ((one, *_),) = run_cases([case], tmp_path, ("gcc", *SANITIZED, "-march=native"))
    assert np.isnan(one[0])

"""Matrix factorizations and linear solves in generated C agree with the oracle."""

from pathlib import Path

import numpy as np

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.tests.backends.c.harness import SANITIZED, Case, device_of, run_cases
from pockengine.tests.compiler.op_case import OpCase

ISAS = ("avx512", "avx2", "sse2")

SQUARE = ((1, 1), (3, 2, 2), (2, 5, 5), (17, 17))

TRIANGLES = [
    {"lower": lower, "transpose": transpose, "unit": lower}
    for lower in (False, True)
    for transpose in (False, True)
]


def cases_of(op: str, shape: tuple[int, ...], **attrs: bool) -> list[Case]:
    """Return a case of random matrices, and one of singular ones."""
    types = [TensorType(F32, shape)]
    if op.endswith("solve"):
        types.append(TensorType(F32, (*shape[:-1], 3)))
    drawn = OpCase(op, tuple(types), attrs, "graded").arrays(len(shape))
    if op == "lu":
        drawn[0] = drawn[0][..., ::-1, :].copy()  # so that rows are exchanged
    lost = [np.full(array.shape, -1.0, np.float32) for array in drawn]
    lost[0][..., -1, -1] = np.nan if op in ("eig", "eigh", "lu", "qr", "svd") else -1.0
    cases: list[Case] = []
    for arrays in (drawn, lost) if shape[-1] > 1 else (drawn,):
        g = Builder(Graph("case"))
        inputs = [g.input(f"x{index}", type_) for index, type_ in enumerate(types)]
        node = g.emit(op, *inputs, **attrs)
        backend = CBackend(device_of(ISAS[len(cases)]))
        cases.append(Case(node, backend.kernel(node), tuple(arrays)))
    return cases


def test_matrices_agree_with_the_oracle(tmp_path: Path) -> None:
    cases = [case for shape in ((2, 5, 3), (3, 5), (4, 4)) for case in cases_of("svd", shape)]
    for shape in ((2, 5, 3), (7, 1), *SQUARE):
        cases += [case for op in ("lu", "qr") for case in cases_of(op, shape)]
    for shape in SQUARE:
        for op in ("cholesky", "eig", "eigh", "slogdet", "solve"):
            cases += cases_of(op, shape)
        cases += cases_of("eig", (*shape[:-2], 2 * shape[-2], shape[-1]))
        for attrs in TRIANGLES:
            cases += cases_of("triangular_solve", shape, **attrs)[:1]
    compiler = ("gcc", *SANITIZED, "-march=native")
    for case, runs in zip(cases, run_cases(cases, tmp_path, compiler), strict=True):
        for results in runs:
            for found, expected in zip(results, case.expected, strict=True):
                np.testing.assert_allclose(found, expected, 1e-5, 1e-5, err_msg=repr(case.node))

"""The vector functions of pe_math.h against double precision, in units of the last place."""

import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.native.runtime_files import runtime_folders
from pockengine.tests.backends.c.harness import COMMON, WARNINGS

BOUNDS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "exp": (1.0, np.exp),
    "log": (1.0, np.log),
    "tanh": (2.0, np.tanh),
    "erf": (1.0, np.vectorize(math.erf)),
    "sigmoid": (3.0, lambda x: 1 / (1 + np.exp(-x))),
    "sqrt": (0.5, np.sqrt),
}

PROGRAM = """
#include <fenv.h>
#include <stdio.h>
#include "pe_math.h"
#define PE_VL {lanes}
static float x[1 << 16];
int main(void) {{
    const size_t count = fread(x, sizeof *x, sizeof x / sizeof *x, stdin);
    for (size_t i = 0; i < count; i += PE_VL) {{
        pe_store(x + i, pe_{name}(pe_load(x + i)));
    }}
    fprintf(stderr, "%d", fetestexcept(FE_UNDERFLOW) != 0);
    return fwrite(x, sizeof *x, count, stdout) == count ? 0 : 1;
}}
"""


def evaluate(folder: Path, name: str, lanes: int, x: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return the function's results, and whether an operation underflowed."""
    source, program = folder / "test.c", folder / "test"
    source.write_text(PROGRAM.format(name=name, lanes=lanes))
    includes = [f"-I{folder}" for folder in runtime_folders()]
    command = ["gcc", *COMMON, *WARNINGS, "-O2", "-march=native", *includes, str(source)]
    subprocess.run([*command, "-o", str(program), "-lm"], check=True)
    done = subprocess.run([str(program)], input=x.tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.float32), done.stderr == b"1"


def samples() -> np.ndarray:
    """Every exponent and sign with drawn mantissas, then small numbers in detail."""
    rng = np.random.default_rng(3)
    wide = rng.integers(0, 2**32, 1 << 15, dtype=np.uint32).view(np.float32)
    near = rng.uniform(-20, 20, (1 << 15) - 16).astype(np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 88.72, 88.73, -87.5, -103.9, 1e-45]
    return np.concatenate([wide, near, np.array([*special, 0.5, 2, 1e-38, 3e38], np.float32)])


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("name", BOUNDS)
def test_error_stays_below_its_bound(tmp_path: Path, name: str, lanes: int) -> None:
    bound, exact = BOUNDS[name]
    x = samples()
    found, _ = evaluate(tmp_path, name, lanes, x)
    with np.errstate(all="ignore"):
        expected = exact(x.astype(np.float64))
        rounded = expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    finite = np.isfinite(rounded) & np.isfinite(found)
    overflow = ~finite & ~np.isnan(rounded)
    np.testing.assert_array_equal(found[overflow], rounded[overflow])
    if name == "sigmoid":
        finite &= x > -88
    units = np.abs(found[finite] - expected[finite]) / np.spacing(np.abs(rounded[finite]))
    assert units.max() <= bound + 0.5


def test_exp_of_a_masked_score_does_not_underflow(tmp_path: Path) -> None:
    """An operation that underflows takes an Intel core 150 cycles; half of all scores are
    masked.
    """
    masked = np.array([-3.4e38, -np.inf, -1e9, -177.0], np.float32)
    found, underflowed = evaluate(tmp_path, "exp", 4, masked)
    assert not found.any()
    assert not underflowed
    assert evaluate(tmp_path, "exp", 4, np.full(4, -103.0, np.float32))[1]

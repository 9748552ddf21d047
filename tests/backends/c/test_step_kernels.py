"""Each kernel of a training step alone against the oracle: natively, and on an emulated ARM."""

from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.placement import is_alias
from pockengine.compiler.ops import lookup
from pockengine.tests.backends.c.anchors import NATIVE, check, check_on_arm
from pockengine.tests.backends.c.harness import Case, device_of, draw_array
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph


def cases_of(isa: str) -> list[Case]:
    """Every pure node of the training entry with drawn operands; labels and variances in range."""
    program, backend = compile_for(convolutional_graph(), device_of(isa, 2))
    entry = program.entries["train"]
    rng = np.random.default_rng(0)
    cases = []
    for node in entry.graph.nodes:
        if lookup(node.op).writes or is_alias(node, entry):
            continue
        arrays = []
        for value in node.operands:
            array = entry.graph.constants.get(value)
            if array is None:
                array = draw_array(rng, value)
                array = abs(array) % 3 if value.name.startswith(("moments", "labels")) else array
            arrays.append(array.astype(value.dtype.numpy))
        cases.append(Case(node, backend.kernel(node), tuple(arrays)))
    return cases


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse2"])
def test_every_kernel_agrees_with_the_oracle(isa: str, tmp_path: Path) -> None:
    check(cases_of(isa), tmp_path, NATIVE, threads=(1, 2))


def test_every_kernel_agrees_with_the_oracle_on_arm(tmp_path: Path) -> None:
    check_on_arm(cases_of("neon"), tmp_path)

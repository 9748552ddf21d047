"""Sessions of the emulated GPU: the tests of every backend, and refusals of this one."""

import numpy as np
import pytest

import pockengine
from pockengine.backends.gpu.kernel import HEAD
from pockengine.backends.gpu.source import DIALECT
from pockengine.compiler.ir import F32, Builder, DType, Graph, TensorType
from pockengine.errors import CompileError, DeviceError
from pockengine.tests.backends.session_tests import SessionTests
from pockengine.tests.compiler.small_nets import residual_net


class TestSession(SessionTests):
    backend = "gpu"


def test_an_artifact_says_that_it_is_emulated() -> None:
    compiled = pockengine.compile(residual_net(), None, backend="gpu", scheme="head-only")
    assert "(gpu, emulated)" in repr(compiled)
    assert compiled.artifact.isa == "gpu, emulated"


def test_offsets_are_those_of_transactions() -> None:
    compiled = pockengine.compile(residual_net(), None, backend="gpu")
    for entry in compiled.program.entries.values():
        assert all(place.offset % 128 == 0 for place in entry.plan.values.values())


def test_every_kernel_begins_as_the_text_for_opencl_wants() -> None:
    for path in sorted(DIALECT.glob("*.inc.h")):
        text = path.read_text(encoding="utf-8")
        assert text.count("PE_KERNEL") == text.count(HEAD) > 0, path.name


def test_an_op_without_a_kernel_is_refused_by_name() -> None:
    g = Builder(Graph("net"))
    with g.scope("whitening"):
        factor = g.cholesky(g.input("x", TensorType(F32, (3, 3))))
    w = g.param("w", np.ones((), np.float32))
    g.output("loss", g.mul(w, g.reduce_sum(factor, axes=(0, 1))))
    with pytest.raises(CompileError, match="in whitening: target gpu on host has no cholesky"):
        pockengine.compile(g.graph, None, backend="gpu")


def test_a_product_of_integers_is_refused_by_name() -> None:
    g = Builder(Graph("net"))
    x = g.input("x", TensorType(DType.I8, (2, 3)))
    with g.scope("fc"):
        sums = g.matmul(x, g.constant(np.ones((3, 4), np.int8), "weight"))
    w = g.param("w", np.ones((), np.float32))
    g.output("loss", g.mul(w, g.reduce_sum(g.cast(sums, dtype="f32"), axes=(0, 1))))
    with pytest.raises(CompileError, match="in fc: the GPU backend multiplies f32, not i8"):
        pockengine.compile(g.graph, None, backend="gpu")


def test_devices_and_options_that_it_lacks_are_refused() -> None:
    with pytest.raises(DeviceError, match="stm32f746 takes no backend 'gpu'"):
        pockengine.compile(residual_net(), None, device="stm32f746", backend="gpu")
    with pytest.raises(CompileError, match="backend gpu has no option tuned"):
        pockengine.compile(residual_net(), None, backend="gpu", tuned="plans.json")

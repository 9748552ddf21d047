"""Kernels of many shapes share one function: flash grows with kinds of kernels, not with sizes."""

import re
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.c.backend import CBackend
from pockengine.backends.native import program as writer
from pockengine.backends.native.kernel import Kernel, Parameter, define_kernel
from pockengine.backends.native.numbers import (
    FIELDS,
    VALUES,
    of_many_shapes,
    of_one_shape,
    real,
    table,
    whole,
)
from pockengine.backends.native.program import generate
from pockengine.backends.native.sharing import share
from pockengine.backends.native.text import fill, joined
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.quantize.calibrate import quantized
from pockengine.compiler.sparse.choice import FULL, ParamChoice
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices import load_device
from pockengine.tests.backends.c.trainings import check_training

DEVICES = ("stm32f746", "stm32u585")


def scaled(size: int, zero: int, factor: str, rows: tuple[int, int], name: str = "one") -> Kernel:
    """A kernel whose text has a number of every kind."""
    computed = fill(
        "static float f(io *io) {{ return io->x[{}[0] * {}] * {} + {} - {}; }}",
        *(table("rows", rows), whole(size), real(factor), whole(size), whole(zero)),
    )
    prelude = [
        of_one_shape(f"/* of {size} */\nstatic const int32_t rows[] = {{{rows}}};"),
        of_many_shapes("#define PE_MANY 1"),
        fill("typedef struct {{\n    const float *x;\n{}}} io;", FIELDS),
        computed,
    ]
    body = [fill("io io = {{.x = x{}}};", VALUES), "*y = f(&io);"]
    parameters = [Parameter("float", "x"), Parameter("float", "y", written=True)]
    return define_kernel(name, "any", parameters, body, joined("\n", prelude), shape=str(size))


def test_a_kernel_for_one_shape_has_literals() -> None:
    kernel = scaled(8, 3, "0.5f", (1, 2))
    assert "io->x[rows[0] * 8] * 0.5f + 8 - 3" in kernel.source
    assert kernel.symbol.startswith("one_8__any_")
    assert "/* of 8 */" in kernel.source
    assert "pe_number" not in kernel.declaration
    assert "PE_MANY" not in kernel.source


def test_kernels_that_differ_in_numbers_share_a_function() -> None:
    first, second = scaled(8, 3, "0.5f", (1, 2)), scaled(16, 3, "0.25f", (1, 2))
    calls = share([first, second, first])
    one, other = calls[first.symbol], calls[second.symbol]
    assert one.kernel == other.kernel
    assert "io->x[io->n0[0] * io->n1] * io->n2 + io->n1 - 3" in one.kernel.source
    assert "const int32_t *const n0;" in one.kernel.source
    assert "const int32_t n1;\n    const float n2;" in one.kernel.source
    assert ".n0 = n[0].t, .n1 = n[1].i, .n2 = n[2].f}" in one.kernel.source
    assert "(pe_worker *w, const pe_number *n, const float *x" in one.kernel.declaration
    assert "/*" not in one.kernel.source
    texts = [[str(number) for number in call.numbers] for call in (one, other)]
    assert texts == [
        ["{.t = (const int32_t[]){1, 2}}", "{.i = 8}", "{.f = 0.5f}"],
        ["{.t = (const int32_t[]){1, 2}}", "{.i = 16}", "{.f = 0.25f}"],
    ]


def test_text_with_marks_is_never_formatted() -> None:
    with pytest.raises(TypeError, match="combine it by fill"):
        f"x[{whole(3)}]"


def test_numbers_that_nothing_takes_are_literals() -> None:
    kernels = [
        define_kernel("odd", "any", [], [fill("use({});", whole(size))], shape=str(size))
        for size in (1, 2)
    ]
    assert [call.kernel for call in share(kernels).values()] == kernels


def test_a_kernel_alone_keeps_its_literals() -> None:
    first, other = scaled(8, 3, "0.5f", (1, 2)), scaled(8, 3, "0.5f", (1, 2), name="other")
    calls = share([first, other, first])
    assert [call.kernel for call in calls.values()] == [first, other]
    assert not any(call.numbers for call in calls.values())


def chain(channels: tuple[int, ...]) -> Graph:
    """A chain of pointwise and depthwise convolutions with these channels, and a head."""
    rng = np.random.default_rng(2)
    graph = Graph("chain")
    g = Builder(graph)

    def param(name: str, *shape: int) -> object:
        return g.param(name, (rng.standard_normal(shape) * 0.3).astype(np.float32))

    y = g.input("x", TensorType(F32, (1, 8, 8, 8)))
    for index, (before, after) in enumerate(zip((8, *channels[:-1]), channels, strict=True)):
        y = g.relu(g.conv2d(y, param(f"{index}.point.weight", 1, 1, before, after)))
        depthwise = param(f"{index}.depth.weight", 3, 3, 1, after)
        y = g.relu(g.conv2d(y, depthwise, padding=(1, 1, 1, 1), groups=after))
    y = g.reduce_mean(g.square(y), axes=(1, 2), keepdims=False)
    g.output("loss", g.reduce_mean(y, axes=(0, 1), keepdims=False))
    return graph


def functions(channels: tuple[int, ...], device: str) -> list[str]:
    """Return the kernels of a chain's int8 program for a device, by name."""
    rng = np.random.default_rng(1)
    batches = [{"x": rng.standard_normal((1, 8, 8, 8)).astype(np.float32)}]
    graph, _ = quantized(chain(channels), batches)
    backend = CBackend(load_device(device))
    program = compile_program(graph, Training("full", Sgd()), target=backend.target(), check=True)
    texts = generate(program, backend)
    found = [re.findall(r"#pragma weak (\w+?)__", text) for text in texts.values()]
    return sorted(name for names in found for name in names)


@pytest.mark.parametrize("device", DEVICES)
def test_flash_grows_with_kinds_of_kernels_and_not_with_sizes(device: str) -> None:
    few, many = (16, 24, 32), (16, 24, 32, 40, 48, 56, 64)
    grown = len(functions(many, device)) - len(functions(few, device))
    apart = len(functions(many, "rpi4")) - len(functions(few, "rpi4"))
    assert any(name == "pe_pairs_conv2d_cast_rescale_narrow" for name in functions(few, device))
    assert 0 < grown < apart / 4


def test_shared_kernels_train_as_the_oracle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "apart", share)  # as on a device with flash, but under sanitizers
    channels = ParamChoice("channels", channels=(1, 2, 5))
    picked = tuple((f"{index}.point.weight", channels) for index in (1, 2, 3))
    scheme = Scheme("picked", (*picked, ("*.depth.weight", FULL)))
    batches = np.random.default_rng(3).standard_normal((2, 1, 8, 8, 8)).astype(np.float32)
    training = Training(scheme, Sgd(momentum=0.9))
    check_training(chain((16, 24, 32, 40)), training, {"x": batches}, tmp_path)
    tables = re.findall(r"static const pe_number .*", (tmp_path / "program.c").read_text())
    assert len(tables) > 10
    assert any(".t = (const int32_t[]){1, 2, 5}" in row for row in tables)

"""Training in int8 on a microcontroller: the oracle's integers bit for bit; instructions counted.

Sums, rescalings and updates of integers are exact. Real numbers (the loss, gradient scales, biases)
involve an exponential and fused multiply-adds, so they are equal within rounding.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.artifact import write_artifact
from pockengine.backends.registry import backend_for
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import DType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.quantize.calibrate import quantized
from pockengine.compiler.sparse.choice import FULL, ParamChoice
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices import load_device
from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.firmware.run import Steps, train_firmware
from pockengine.tests.compiler.small_nets import batches, residual_net

DEVICES, RATE = ("stm32f746", "stm32u585", "alif-e3"), 0.1
SAMPLES = batches(4, size=9)
PART = Scheme("part", (("b.0.weight", ParamChoice("share", share=0.5)), ("fc.*", FULL)))


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scheme", ["full", PART])
def test_int8_training_matches_the_oracle(
    device: str, scheme: Scheme | str, tmp_path: Path
) -> None:
    graph, _ = quantized(residual_net(size=9), SAMPLES)
    backend = backend_for(load_device(device))
    program = compile_program(graph, Training(scheme, Sgd(momentum=0.9)), target=backend.target())
    step = program.entries["train"].graph
    state = {name: param.data.copy() for name, param in step.params.items()}
    artifact = write_artifact(program, backend, tmp_path / "artifact")
    rows = [{name: batch[name] for name in ("x", "target")} for batch in SAMPLES]
    with connect(board_for(device, load_boards([BUILT_IN]))) as board:
        found = train_firmware(board, artifact, Steps(rows, RATE), tmp_path)
    losses = [run(step, {**row, "lr": np.asarray(RATE, "f4")}, state)["loss"] for row in rows]
    np.testing.assert_allclose(found.losses, losses, rtol=1e-5)
    assert min(found.instructions) > 100_000
    integers = {name for name, array in state.items() if array.dtype == DType.I8.numpy}
    assert {"a.0.weight", "b.0.weight", "c.0.weight", "fc.weight"} <= integers
    moved = [name for name in integers if np.any(state[name] != program.params[name].data)]
    assert moved
    for name, array in state.items():
        if name in integers:
            np.testing.assert_array_equal(found.tensors[name], array, err_msg=name)
        np.testing.assert_allclose(found.tensors[name], array, rtol=1e-4, atol=1e-6, err_msg=name)

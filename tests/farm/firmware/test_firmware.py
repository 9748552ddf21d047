"""Training on a microcontroller: losses and weights equal the oracle's; instructions counted."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.sparse.choice import FULL
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices import load_device
from pockengine.errors import BuildError, JobFailed
from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.firmware.link import link_firmware
from pockengine.farm.firmware.run import Steps, train_firmware
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph

DEVICES, STEPS, RATE = ("stm32f746", "alif-e3"), 4, 0.05
SCHEME = Scheme("some", (("depthwise.weight", FULL), ("norm.*", FULL), ("head.*", FULL)))


@pytest.fixture(name="compiled", scope="module", params=DEVICES)
def compiled_program(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Program, Artifact]:
    device, training = load_device(request.param), Training(SCHEME, Sgd(momentum=0.9))
    program, backend = compile_for(convolutional_graph(2), device, training)
    folder = tmp_path_factory.mktemp("firmware") / "artifact"
    return program, write_artifact(program, backend, folder)


def steps() -> Steps:
    rng = np.random.default_rng(0)
    pictures = rng.standard_normal((STEPS, 2, 12, 12, 3)).astype(np.float32)
    labels = rng.integers(0, 5, (STEPS, 2))
    return Steps([{"x": x, "labels": row} for x, row in zip(pictures, labels, strict=True)], RATE)


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
def test_training_on_a_microcontroller_matches_the_oracle(
    compiled: tuple[Program, Artifact], tmp_path: Path
) -> None:
    program, artifact = compiled
    with connect(board_for(artifact.device, load_boards([BUILT_IN]))) as board:
        first, second = (train_firmware(board, artifact, steps(), tmp_path) for _ in range(2))
        short = replace(steps(), batches=[{"x": np.zeros(3), "labels": np.zeros(1)}])
        with pytest.raises(JobFailed, match="data ends too early"):
            train_firmware(board, artifact, short, tmp_path)
    state = {name: param.data.copy() for name, param in program.params.items()}
    graph, rate = program.entries["train"].graph, np.asarray(RATE, np.float32)
    losses = [float(run(graph, {**batch, "lr": rate}, state)["loss"]) for batch in steps().batches]
    np.testing.assert_allclose(first.losses, losses, rtol=1e-5)
    for name, array in state.items():
        np.testing.assert_allclose(first.tensors[name], array, rtol=1e-4, atol=1e-6, err_msg=name)
    assert first.losses == second.losses
    assert first.instructions == second.instructions
    assert min(first.instructions) > 100_000


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
def test_equal_steps_take_equal_instructions(
    compiled: tuple[Program, Artifact], tmp_path: Path
) -> None:
    """A clock tick adds up to 40. The data are equal, as a few branches depend on them."""
    again = replace(steps(), batches=[steps().batches[0]] * STEPS, rate=0.0)
    with connect(board_for(compiled[1].device, load_boards([BUILT_IN]))) as board:
        found = train_firmware(board, compiled[1], again, tmp_path)
    assert len(found.instructions) == STEPS
    assert max(found.instructions) - min(found.instructions) <= 40


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
def test_microcontroller_predicts_before_and_after_training(
    compiled: tuple[Program, Artifact], tmp_path: Path
) -> None:
    program, artifact = compiled
    rows = [{"x": batch["x"]} for batch in steps().batches[:3]]
    with connect(board_for(artifact.device, load_boards([BUILT_IN]))) as board:
        found = train_firmware(board, artifact, replace(steps(), judged=rows), tmp_path)
        plain = train_firmware(board, artifact, steps(), tmp_path)
    assert found.losses == plain.losses
    graph = program.entries["predict"].graph
    start = {name: param.data for name, param in program.params.items()}
    for judged, state in ((found.before, start), (found.after, found.tensors)):
        for row, outputs in zip(rows, judged, strict=True):
            expected = run(graph, row, dict(state))["logits"]
            np.testing.assert_allclose(outputs["logits"], expected, rtol=1e-4, atol=1e-5)
    assert np.any(found.before[0]["logits"] != found.after[0]["logits"])
    assert (plain.before, plain.after) == ([], [])


def test_linker_refuses_programs_that_do_not_fit(
    compiled: tuple[Program, Artifact], tmp_path: Path
) -> None:
    small = replace(load_device(compiled[1].device), memory_bytes=compiled[1].arena_bytes)
    with pytest.raises(BuildError, match=r"will not fit in region 'RAM'"):
        link_firmware(compiled[1], small, tmp_path)

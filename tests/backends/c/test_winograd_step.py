"""A program with Winograd convolutions and strided products trains as in the oracle."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.ir.evaluate import run
from pockengine.tests.backends.c.harness import SANITIZED, device_of
from pockengine.tests.backends.c.programs import (
    PICTURES,
    build_sanitized,
    compile_for,
    residual_graph,
)
from pockengine.tests.backends.c.runner import RATE, Runner, as_rows, initial, lines


@pytest.fixture(
    scope="module", params=[SANITIZED, ("-O1", "-fsanitize=thread")], ids=["asan", "tsan"]
)
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("block")
    path, program = build_sanitized(residual_graph(), folder, request.param)
    weights, data = folder / "weights.safetensors", folder / "data.safetensors"
    save_file({**initial(program), **program.constants}, weights)
    rng = np.random.default_rng(0)
    save_file(as_rows({"x": rng.standard_normal((2, *PICTURES)).astype(np.float32)}), data)
    return Runner(path, program, weights, data)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_training_agrees_with_the_oracle(runner: Runner, tmp_path: Path, threads: int) -> None:
    saved = tmp_path / "out.safetensors"
    done = runner.train(3, "--threads", threads, "--save", saved)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("gcc's thread sanitizer cannot start here: sysctl vm.mmap_rnd_bits=28")
    records = lines(done)
    state, batches = initial(runner.program), load_file(runner.data)["x"].reshape(-1, *PICTURES)
    for step in range(3):
        inputs = {"x": batches[step % 2], "lr": np.float32(RATE).reshape(())}
        loss = run(runner.program.entries["train"].graph, inputs, state)["loss"]
        assert records[step]["loss"] == pytest.approx(float(loss), rel=1e-4)
    found = load_file(saved)
    for name, array in state.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


def test_winograd_is_chosen_unless_it_is_switched_off() -> None:
    program, backend = compile_for(residual_graph(), device_of("avx2", 3))
    direct = CBackend(backend.device, winograd=False)
    nodes = program.entries["train"].graph.nodes
    found = {b: sum("winograd" in b.kernel(n).symbol for n in nodes) for b in (backend, direct)}
    assert found == {backend: 5, direct: 0}  # two forward, one input gradient, two weight gradients

"""Prepared filters: for frozen weights only, updated when these change, for every split."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import pockengine
from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.convolutions import conv
from pockengine.backends.native.program import generate
from pockengine.backends.picking import PlanCandidate, cheapest
from pockengine.backends.placement import lay_out
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.options import Training
from pockengine.compiler.sparse.scheme import FULL, Scheme
from pockengine.devices import find_device
from pockengine.errors import CompileError
from pockengine.tests.backends.c.harness import SANITIZED, device_of
from pockengine.tests.backends.c.programs import PICTURES, build_program, residual_graph
from pockengine.tests.backends.c.runner import RATE, Runner, as_rows, initial, lines

HEAD = Training(Scheme("head", (("bias", FULL), ("down.weight", FULL))))
FROZEN = ("first.weight", "second.weight")


class Only:
    """Picks the cheapest plan with prepared filters and the requested split."""

    def __init__(self, split: str) -> None:
        self.split = split

    def __call__(self, key: str, candidates: Sequence[PlanCandidate[Any]]) -> Any:
        matching = [each for each in candidates if f" {self.split} " in each.label]
        prepared = [each for each in matching if each.label.endswith("prepared")]
        return cheapest(key, prepared or candidates)


@pytest.mark.parametrize(
    ("split", "flags"),
    [("ROWS", SANITIZED), ("COLUMNS", SANITIZED), ("ROWS", ("-O1", "-fsanitize=thread"))],
    ids=["rows", "columns", "threads"],
)
def test_training_agrees_with_the_oracle(
    split: str, flags: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forward and the backward pass share one form, also with predictions and evaluations."""
    monkeypatch.setattr(conv, "PREPARED_GAIN", 2.0)
    backend = CBackend(device_of("avx2", 3), pick=Only(split), prepare=True)
    program = compile_program(residual_graph(), HEAD, target=backend.target(), check=True)
    assert sorted(name for name, _ in lay_out(program).prepared) == [
        "first.weight",
        *FROZEN[1:] * 2,
    ]
    path = build_program(program, backend, tmp_path, flags)
    weights, data = tmp_path / "weights.safetensors", tmp_path / "data.safetensors"
    save_file({**initial(program), **program.constants}, weights)
    rng = np.random.default_rng(0)
    save_file(as_rows({"x": rng.standard_normal((2, *PICTURES)).astype(np.float32)}), data)
    done = Runner(path, program, weights, data).train(3, "--threads", 3)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("gcc's thread sanitizer cannot start here: sysctl vm.mmap_rnd_bits=28")
    state, batches = initial(program), load_file(data)["x"].reshape(-1, *PICTURES)
    records = lines(done)
    for step in range(3):
        inputs = {"x": batches[step % 2], "lr": np.float32(RATE).reshape(())}
        loss = run(program.entries["train"].graph, inputs, state)["loss"]
        assert records[step]["loss"] == pytest.approx(float(loss), rel=1e-4)


def test_filters_follow_weights_that_are_set_or_loaded(tmp_path: Path) -> None:
    """Set weights, and weights loaded from a file, take effect in the next run."""
    graph = residual_graph()
    prepared, plain = (
        pockengine.compile(graph, None, scheme=HEAD.scheme, prepare=prepare)
        for prepare in (True, False)
    )
    batch = {"x": np.random.default_rng(1).standard_normal(PICTURES).astype(np.float32)}
    with prepared.session() as session, plain.session() as other:
        assert session.evaluate(batch)["loss"] == pytest.approx(other.evaluate(batch)["loss"])
        for name in FROZEN:
            for each in (session, other):
                each.set_param(name, 2 * each.params()[name])
            expected = float(other.train_step(batch, RATE)["loss"])
            assert float(session.train_step(batch, RATE)["loss"]) == pytest.approx(
                expected, rel=1e-5
            )
        other.save(tmp_path / "whole.safetensors", whole=True)
        session.set_param(FROZEN[0], np.zeros_like(session.params()[FROZEN[0]]))
        session.evaluate(batch)
        session.load(tmp_path / "whole.safetensors")
        expected = float(other.evaluate(batch)["loss"])
        assert float(session.evaluate(batch)["loss"]) == pytest.approx(expected, rel=1e-5)


def test_what_trains_is_transformed_at_every_step() -> None:
    backend = CBackend(device_of("avx2", 3), prepare=True)
    program = compile_program(residual_graph(), Training("full"), target=backend.target())
    assert not lay_out(program).prepared
    assert "prepare" not in generate(program, backend)["program.c"]


def test_prepared_filters_take_params_and_no_scratch() -> None:
    device, sizes = device_of("avx2", 3), []
    for prepare in (True, False):
        target = CBackend(device, prepare=prepare).target()
        program = compile_program(residual_graph(), HEAD, target=target)
        sizes.append((lay_out(program).params_bytes, program.arena_bytes))
    (more, less_arena), (less, more_arena) = sizes
    assert more > less
    assert less_arena <= more_arena


def test_devices_with_flash_and_other_backends_refuse() -> None:
    with pytest.raises(CompileError, match=r"holds frozen weights in flash.*without prepare"):
        CBackend(find_device("stm32f746"), prepare=True)
    with pytest.raises(CompileError, match="backend gpu has no option prepare"):
        pockengine.compile(residual_graph(), None, backend="gpu", prepare=True)

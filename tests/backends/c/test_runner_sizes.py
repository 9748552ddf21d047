"""The runner with a variable size: the same results as `fit`, `evaluate` and `predict`."""

import json
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import pockengine
from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.compiler.ir import F32, I32, I64, Builder, Graph, TensorType
from pockengine.compiler.optim import Adam
from pockengine.compiler.options import Training
from pockengine.compiler.sizes import Range
from pockengine.compiler.variants import compile_variants
from pockengine.devices.schema import load_device
from pockengine.loaded import Loaded
from pockengine.tests.backends.c.harness import device_of
from pockengine.tests.backends.c.programs import build_program
from pockengine.tests.backends.c.runner import Arrays, initial

ROWS, CLASSES, RATE = 11, 3, 0.01
BATCHES = Range("batch", 2, 8, {"x": 0, "labels": 0}, (4, 8), {"labels": -100})
LENGTHS = Range("length", 2, 8, {"x": 2, "labels": 1}, (4, 8), {"labels": -100})


def graph_of(sizes: Range, size: int) -> Graph:
    """Classify each position of a sequence [B, 5, length]; dropout depends on the memory order."""
    batch, length = (size, 4) if sizes is BATCHES else (4, size)
    rng = np.random.default_rng(1)
    graph = Graph("sized")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (batch, 5, length)))
    labels = g.input("labels", TensorType(I64, (batch, length)))
    first = g.param("first", rng.standard_normal((5, 6)).astype(np.float32))
    second = g.param("second", rng.standard_normal((6, CLASSES)).astype(np.float32))
    y = g.relu(g.matmul(g.transpose(x, perm=(0, 2, 1)), first))
    if sizes is BATCHES:
        y = g.dropout(y, g.input("seed", TensorType(I32, ())), p=0.25, stream=0)
    logits = g.matmul(y, second)
    g.output("scores", g.transpose(logits, perm=(0, 2, 1)))
    flat = g.reshape(logits, shape=(batch * length, CLASSES))
    g.output("loss", g.cross_entropy(flat, g.reshape(labels, shape=(batch * length,))))
    return graph


def rows_of(length: int, count: int = ROWS) -> Arrays:
    rng = np.random.default_rng(length)
    x = rng.standard_normal((count, 5, length)).astype(np.float32)
    return {"x": x, "labels": rng.integers(0, CLASSES, (count, length))}


def artifact_of(sizes: Range, folder: Path) -> Loaded:
    backend = CBackend(load_device("host"))
    program = compile_variants(
        partial(graph_of, sizes), sizes, Training(optimizer=Adam()), target=backend.target()
    )
    return pockengine.load(write_artifact(program, backend, folder / sizes.name).folder)


@pytest.fixture(scope="module")
def by_batch(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return artifact_of(BATCHES, tmp_path_factory.mktemp("batch"))


@pytest.fixture(scope="module")
def by_length(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return artifact_of(LENGTHS, tmp_path_factory.mktemp("length"))


def call(loaded: Loaded, command: str, data: Path, *more: object) -> list[dict[str, object]]:
    done = refuse(loaded, command, data, *more)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refuse(
    loaded: Loaded, command: str, data: Path, *more: object
) -> subprocess.CompletedProcess[str]:
    artifact = loaded.artifact
    files = ["--weights", str(artifact.weights), "--data", str(data)]
    arguments = [str(artifact.executable), command, *files, *map(str, more)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)


def losses(records: list[dict[str, object]]) -> list[object]:
    return [np.float32(line["loss"]) for line in records if "step" in line]


def file_of(rows: Arrays, tmp_path: Path) -> Path:
    save_file(rows, tmp_path / "rows")
    return tmp_path / "rows"


@pytest.mark.parametrize("batch", [None, 3, 5])
def test_batches_of_a_range_train_as_in_python(
    by_batch: Loaded, tmp_path: Path, batch: int | None
) -> None:
    """11 rows are 8 + 3, or 3 + 3 + 3 + 2, or 5 + 5 and one unused row."""
    loaded, rows = pockengine.load(by_batch.artifact.folder), rows_of(4)
    steps = {None: 2, 3: 4, 5: 2}[batch]
    history = loaded.fit(rows, epochs=2, lr=RATE, seed=3, batch=batch)
    options = ("--lr", RATE, "--shuffle", "--seed", 3, *(("--batch", batch) if batch else ()))
    records = call(
        loaded, "train", file_of(rows, tmp_path), "--steps", 2 * steps, *options, "--save",
        tmp_path / "saved",
    )  # fmt: skip
    assert losses(records) == [np.float32(step.loss) for step in history.steps]
    trained = load_file(tmp_path / "saved")
    for name in ("first", "second"):
        np.testing.assert_array_equal(trained[name], loaded.trained.get_param(name))


def test_rows_of_a_range_of_lengths_train_as_in_python(by_length: Loaded, tmp_path: Path) -> None:
    for length in (2, 3, 4, 7, 8):
        loaded, rows = pockengine.load(by_length.artifact.folder), rows_of(length)
        history = loaded.fit(rows, steps=5, lr=RATE, shuffle=False)
        records = call(loaded, "train", file_of(rows, tmp_path), "--steps", 5, "--lr", RATE)
        assert losses(records) == [np.float32(step.loss) for step in history.steps]


def test_evaluation_takes_a_short_last_batch(by_batch: Loaded, tmp_path: Path) -> None:
    rows = rows_of(4)
    (record,) = (
        line
        for line in call(by_batch, "evaluate", file_of(rows, tmp_path), "--batch", 4)
        if "evaluated" in line
    )
    assert (record["evaluated"], record["rows"], record["of"]) == (3, ROWS, ROWS)
    assert record["loss"] == pytest.approx(by_batch.evaluate(rows).loss, rel=1e-6)


@pytest.mark.parametrize(("count", "batch"), [(11, 8), (9, 8), (7, 3), (1, 8)])
def test_prediction_has_every_row(by_batch: Loaded, tmp_path: Path, count: int, batch: int) -> None:
    """Even if one row remains, fewer than the minimum batch."""
    rows = rows_of(4, count)
    output = tmp_path / "output"
    call(by_batch, "predict", file_of(rows, tmp_path), "--output", output, "--batch", batch)
    expected = by_batch.predict({"x": rows["x"]})["scores"]
    np.testing.assert_allclose(load_file(output)["scores"], expected, rtol=1e-5, atol=1e-6)


def test_predictions_are_as_long_as_their_rows(by_length: Loaded, tmp_path: Path) -> None:
    for length in (2, 5, 8):
        rows, output = rows_of(length), tmp_path / "output"
        call(by_length, "predict", file_of(rows, tmp_path), "--output", output)
        found = load_file(output)["scores"]
        assert found.shape == (ROWS, CLASSES, length)
        np.testing.assert_array_equal(found, by_length.predict({"x": rows["x"]})["scores"])


def test_resumed_is_uninterrupted_at_the_checkpoints_batch(
    by_batch: Loaded, tmp_path: Path
) -> None:
    data, options = file_of(rows_of(4), tmp_path), ("--lr", RATE, "--shuffle")
    whole, saved = tmp_path / "whole", tmp_path / "saved"
    call(by_batch, "train", data, "--steps", 9, *options, "--batch", 3, "--save", whole)
    first = ("--steps", 4, "--total", 9, *options, "--batch", 3, "--save", saved)
    call(by_batch, "train", data, *first)
    call(by_batch, "train", data, "--steps", 9, "--save", saved, "--resume")
    assert saved.read_bytes() == whole.read_bytes()
    again = ("--steps", 10, "--save", saved, "--resume", "--batch", 4)
    assert "had batches of 3 rows, not 4" in refuse(by_batch, "train", data, *again).stderr


def test_python_goes_on_with_the_runners_batches(by_batch: Loaded, tmp_path: Path) -> None:
    rows, folder = rows_of(4), tmp_path / "saved"
    options = ("--steps", 6, "--lr", RATE, "--shuffle", "--batch", 3, "--save", f"{folder}/")
    call(by_batch, "train", file_of(rows, tmp_path), *options)
    loaded = pockengine.load(by_batch.artifact.folder)
    again = {"steps": 8, "lr": RATE, "checkpoint": folder, "resume": True}
    with pytest.raises(pockengine.PockEngineError, match="shuffled, 3 a step, and these data"):
        loaded.fit(rows, batch=4, **again)
    history = loaded.fit(rows, batch=3, **again)
    assert [step.number for step in history.steps] == [7, 8]


def test_what_does_not_fit_is_refused(by_batch: Loaded, by_length: Loaded, tmp_path: Path) -> None:
    data = file_of(rows_of(4), tmp_path)
    one = ("--steps", 1, "--lr", RATE)
    done = refuse(by_batch, "train", data, *one, "--batch", 9)
    assert done.returncode == 2
    assert "--batch is 9; program sized takes 2 to 8" in done.stderr
    assert (
        "not --batch 3; compile it" in refuse(by_length, "train", data, *one, "--batch", 3).stderr
    )
    data = file_of(rows_of(9), tmp_path)
    assert "[N, 8], with N of at least 1, and length of 2 to 8" in (
        refuse(by_length, "train", data, *one).stderr
    )
    data = file_of({**rows_of(4), "labels": rows_of(3)["labels"]}, tmp_path)
    assert "has a length of" in refuse(by_length, "train", data, *one).stderr
    data = file_of(rows_of(4, 1), tmp_path)
    assert "has 1 rows" in refuse(by_batch, "train", data, *one).stderr


def test_nothing_is_read_or_written_beside_a_variant(tmp_path: Path) -> None:
    """Under sanitizers, with one unused row."""
    for sizes, length in ((BATCHES, 4), (LENGTHS, 7)):
        backend = CBackend(device_of("avx2", 3))
        folder = tmp_path / sizes.name
        folder.mkdir()
        program = compile_variants(partial(graph_of, sizes), sizes, target=backend.target())
        runner = build_program(program, backend, folder)
        rows = rows_of(length)
        rows["x"][9] = np.nan
        save_file({**initial(program), **program.constants}, folder / "weights")
        files = ["--weights", folder / "weights", "--data", file_of(rows, tmp_path)]
        for command in (
            ["train", *files, "--steps", 5, "--lr", RATE, "--skip-bad", 1, "--shuffle"],
            ["predict", *files, "--output", folder / "output"],
            ["info"],
        ):
            done = subprocess.run(
                [str(runner), *map(str, command)],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
        (record,) = (json.loads(line) for line in done.stdout.splitlines() if '"range"' in line)
        assert (record["range"], record["buckets"]) == (sizes.name, [4, 8])

"""The runner's data: rows in all file formats, cut, shuffled, and dropped if they are bad."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine.backends.row_order import RowOrder
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.tests.backends.c.programs import build_sanitized
from pockengine.tests.backends.c.runner import RATE, Arrays, Runner, initial, lines

BATCH, ROWS, CLASSES = 4, 11, 3


def linear_graph() -> Graph:
    """A linear classifier with its loss; labels are read as indices."""
    graph = Graph("linear")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (BATCH, 5)))
    labels = g.input("labels", TensorType(I64, (BATCH,)))
    weight = np.random.default_rng(1).standard_normal((5, CLASSES)).astype(np.float32)
    logits = g.matmul(x, g.param("weight", weight))
    g.output("logits", logits)
    g.output("loss", g.cross_entropy(logits, labels))
    return graph


Places = slice | np.ndarray | list[int]


def draw_rows(count: int = ROWS) -> Arrays:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, 5)).astype(np.float32)
    return {"x": x, "labels": rng.integers(0, CLASSES, count)}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("data")
    path, program = build_sanitized(linear_graph(), folder)
    weights, data = folder / "weights.safetensors", folder / "data.safetensors"
    save_file({**initial(program), **program.constants}, weights)
    save_file(draw_rows(), data)
    return Runner(path, program, weights, data)


def losses(records: list[dict[str, object]]) -> list[object]:
    return [line["loss"] for line in records if "step" in line]


def check_losses(runner: Runner, found: list[object], rows: Arrays, places: list[Places]) -> None:
    """Train by the oracle on the batches of rows at these indices."""
    state = initial(runner.program)
    for loss, place in zip(found, places, strict=True):
        inputs = {name: array[place] for name, array in rows.items()}
        inputs["lr"] = np.asarray(RATE, np.float32)
        expected = run(runner.program.entries["train"].graph, inputs, state)["loss"]
        assert loss == pytest.approx(float(expected), rel=1e-5)


def test_epochs_take_whole_batches_in_order(runner: Runner) -> None:
    records = lines(runner.train(5))
    places = [slice(0, 4), slice(4, 8), slice(0, 4), slice(4, 8), slice(0, 4)]
    check_losses(runner, losses(records), draw_rows(), places)
    assert records[-1]["rows"] == ROWS


def test_shuffled_epochs_take_the_rows_of_their_order(runner: Runner) -> None:
    order = RowOrder(ROWS, seed=9, shuffled=True)
    places = [order.rows_at(step // 2, step % 2 * BATCH, BATCH) for step in range(7)]
    records = lines(runner.train(7, "--shuffle", "--seed", 9))
    check_losses(runner, losses(records), draw_rows(), places)


@pytest.mark.parametrize("shuffle", [(), ("--shuffle", "--seed", 5)], ids=["in-order", "shuffled"])
def test_resumed_is_uninterrupted(
    runner: Runner, tmp_path: Path, shuffle: tuple[object, ...]
) -> None:
    whole = tmp_path / "whole"
    expected = losses(lines(runner.train(7, "--save", whole, *shuffle)))
    for stop in range(1, 7):
        saved = tmp_path / f"stopped-{stop}"
        first = losses(lines(runner.train(stop, "--save", saved, "--total", 7, *shuffle)))
        again = losses(lines(runner.train(7, "--save", saved, "--resume")))
        assert first + again == expected
        assert saved.read_bytes() == whole.read_bytes()


def test_a_training_in_order_is_not_resumed_shuffled(runner: Runner, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    lines(runner.train(1, "--save", saved))
    done = runner.train(2, "--save", saved, "--resume", "--shuffle")
    assert done.returncode == 1
    assert "leave out --shuffle" in done.stderr


def test_prediction_has_every_row(runner: Runner, tmp_path: Path) -> None:
    """The training's file is used: its labels are an input of another entry."""
    output = tmp_path / "output"
    files = ("--weights", runner.weights, "--data", runner.data, "--output", output)
    records = lines(runner.call("predict", *files))
    assert [line["batch"] for line in records if "batch" in line] == [1, 2, 3]
    assert records[3]["predicted"] == ROWS
    expected = draw_rows()["x"] @ initial(runner.program)["weight"]
    found = load_file(output)
    assert list(found) == ["logits"]
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-5, atol=1e-6)


def test_evaluation_says_over_how_many_rows_its_mean_is(runner: Runner) -> None:
    records = lines(runner.call("evaluate", "--weights", runner.weights, "--data", runner.data))
    (found,) = (line for line in records if "evaluated" in line)
    assert (found["evaluated"], found["rows"], found["of"]) == (2, 8, ROWS)
    graph, rows = runner.program.entries["evaluate"].graph, draw_rows()
    parts = [{name: a[i : i + 4] for name, a in rows.items()} for i in (0, 4)]
    expected = [float(run(graph, part, initial(runner.program))["loss"]) for part in parts]
    assert found["loss"] == pytest.approx(np.mean(expected), rel=1e-5)


def in_folder(folder: Path, rows: Arrays) -> object:
    for name, array in rows.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def in_list(folder: Path, rows: Arrays) -> object:
    in_folder(folder, rows)
    return ",".join(f"{name}={folder}/{name}.npy" for name in rows)


def in_archive(folder: Path, rows: Arrays) -> object:
    np.savez(folder / "rows.npz", **rows)
    return folder / "rows.npz"


@pytest.mark.parametrize("write", [in_folder, in_list, in_archive])
def test_all_forms_of_files_are_one_data(
    runner: Runner, tmp_path: Path, write: Callable[[Path, Arrays], object]
) -> None:
    files = write(tmp_path, draw_rows())
    found = runner.train(5, "--shuffle", data=files)
    assert losses(lines(found)) == losses(lines(runner.train(5, "--shuffle")))


def test_one_array_is_the_only_inputs(runner: Runner, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", draw_rows()["x"])
    files = ("--weights", runner.weights, "--data", tmp_path / "rows.npy")
    records = lines(runner.call("predict", *files, "--output", tmp_path / "output"))
    assert records[-1]["rows"] == ROWS
    done = runner.train(1, data=tmp_path / "rows.npy")
    assert done.returncode == 2
    assert "give NAME=FILE for each" in done.stderr


def compressed(path: Path, rows: Arrays) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **rows)


def changed(**other: np.ndarray) -> Callable[[Path, Arrays], None]:
    def write(path: Path, rows: Arrays) -> None:
        with path.open("wb") as file:
            np.savez(file, **{**rows, **other})

    return write


ZEROS = np.zeros((ROWS, 5), np.float32)
REFUSED: dict[str, tuple[Callable[[Path, Arrays], None], str]] = {
    "compressed": (compressed, "write it by numpy.savez, not by savez_compressed"),
    "columns": (changed(x=np.asfortranarray(ZEROS)), "save numpy.ascontiguousarray"),
    "double": (changed(x=ZEROS.astype(np.float64)), "x is <f8 [11, 5]; entry train takes rows"),
    "big-endian": (changed(x=ZEROS.astype(">f4")), "x is >f4 [11, 5]"),
    "objects": (changed(x=np.array([{}], object)), "x is |O"),
    "structs": (changed(x=np.zeros(3, [("a", "<f4")])), "its dtype is none of numbers"),
    "narrow": (changed(x=ZEROS[:, :4].copy()), "as F32 [N, 5]"),
    "short": (changed(x=ZEROS[:9].copy()), "labels has 11 rows, others 9"),
    "one row": (changed(x=ZEROS[:1], labels=np.zeros(1, int)), "a batch of entry train takes 4"),
    "unknown": (changed(y=ZEROS), 'holds "y", which program linear does not read'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arrays_that_do_not_fit_are_refused(runner: Runner, tmp_path: Path, name: str) -> None:
    write, words = REFUSED[name]
    write(tmp_path / "rows.npz", draw_rows())
    done = runner.train(1, data=tmp_path / "rows.npz")
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_random_damage_is_refused_or_read(runner: Runner, tmp_path: Path, form: str) -> None:
    path = tmp_path / "x.npy"
    labels = tmp_path / "labels.npy"
    np.save(labels, draw_rows()["labels"])
    np.save(path, draw_rows()["x"])
    if form == "npz":
        in_archive(tmp_path, draw_rows())
    sound = path if form == "npy" else tmp_path / "rows.npz"
    text, damaged = sound.read_bytes(), tmp_path / "damaged"
    argument = f"x={damaged},labels={labels}" if form == "npy" else damaged
    rng = np.random.default_rng(3)
    for _ in range(30):
        data = bytearray(text)
        for place in rng.integers(0, 200, int(rng.integers(1, 4))):
            data[int(place)] = int(rng.integers(0, 256))
        damaged.write_bytes(data[: int(rng.integers(len(data) // 2, 2 * len(data)))])
        done = runner.train(1, data=argument)
        assert done.returncode in (0, 1, 3), done.stderr
        assert "Sanitizer" not in done.stderr


def test_a_flipped_bit_of_an_archive_is_named(runner: Runner, tmp_path: Path) -> None:
    in_archive(tmp_path, draw_rows())
    path = tmp_path / "rows.npz"
    sound, content = path.read_bytes(), draw_rows()["labels"].tobytes()
    first = sound.index(content)
    for place in (first, first + len(content) - 8):
        data = bytearray(sound)
        data[place] ^= 1
        path.write_bytes(data)
        done = runner.train(1, data=path)
        assert done.returncode == 1
        assert f"{path} is damaged: the checksum of labels does not fit" in done.stderr


def bad_rows(tmp_path: Path) -> tuple[Path, Arrays]:
    """Data whose rows 1, 2 and 6 are bad, and their replacements in the training."""
    rows = draw_rows()
    seen = {name: array.copy() for name, array in rows.items()}
    rows["x"][1, 3], rows["x"][2, 0], rows["labels"][6] = np.nan, np.inf, 7
    for bad, taken in ((1, 3), (2, 3), (6, 7)):
        for name in seen:
            seen[name][bad] = rows[name][taken]
    path = tmp_path / "bad"
    save_file(rows, path)
    return path, seen


def test_bad_rows_are_named_and_replaced_by_the_next(runner: Runner, tmp_path: Path) -> None:
    path, seen = bad_rows(tmp_path)
    records = lines(runner.train(5, "--skip-bad", 3, data=path))
    assert [line["bad_row"] for line in records if "bad_row" in line] == [1, 2, 6]
    whys = [str(line["why"]) for line in records if "bad_row" in line]
    assert whys[0] == "input x holds nan at element 3 of the row"
    assert whys[2].startswith("input labels holds 7 at [2]; entry train takes 0 to 2")
    places = [slice(0, 4), slice(4, 8), slice(0, 4), slice(4, 8), slice(0, 4)]
    check_losses(runner, losses(records), seen, places)


def test_resuming_leaves_out_the_same_rows(runner: Runner, tmp_path: Path) -> None:
    path, _ = bad_rows(tmp_path)
    options = ("--skip-bad", 3, "--shuffle")
    whole, saved = tmp_path / "whole", tmp_path / "saved"
    expected = losses(lines(runner.train(6, "--save", whole, *options, data=path)))
    first = lines(runner.train(3, "--save", saved, "--total", 6, *options, data=path))
    again = lines(runner.train(6, "--save", saved, "--resume", *options, data=path))
    assert losses(first) + losses(again) == expected
    assert saved.read_bytes() == whole.read_bytes()


def test_more_bad_rows_than_allowed_end_the_training(runner: Runner, tmp_path: Path) -> None:
    path, _ = bad_rows(tmp_path)
    done = runner.train(5, "--skip-bad", 1, data=path)
    assert done.returncode == 1
    assert "row 2 is bad, after 1 others: input x holds inf at element 0" in done.stderr
    done = runner.train(5, data=path)  # without dropping rows, only indices are checked
    assert done.returncode == 3
    rows = draw_rows()
    rows["labels"][5] = -1
    save_file(rows, path)
    done = runner.train(5, data=path)
    assert done.returncode == 1
    assert "row 5 is bad, after 0 others: input labels holds -1" in done.stderr


def test_data_without_a_sound_row_are_refused(runner: Runner, tmp_path: Path) -> None:
    save_file({**draw_rows(), "x": np.full((ROWS, 5), np.nan, np.float32)}, tmp_path / "bad")
    done = runner.train(1, "--skip-bad", 1000, data=tmp_path / "bad")
    assert done.returncode == 1
    assert "has no sound row" in done.stderr


def test_a_pipe_is_refused_at_once(runner: Runner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for option in ("data", "weights"):
        done = runner.train(1, **{option: tmp_path / "pipe"})
        assert done.returncode == 1
        assert "it is a pipe or a device" in done.stderr


def test_a_file_of_another_kind_is_refused_with_the_formats(runner: Runner, tmp_path: Path) -> None:
    for name, content in (("net.py", b"import torch\nfrom torch import nn\n"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        done = runner.train(1, data=tmp_path / name)
        assert done.returncode == 1
        assert f"{name} is no file of rows: give .safetensors, .npz or .npy" in done.stderr


def test_a_folder_in_place_of_weights_is_refused(runner: Runner, tmp_path: Path) -> None:
    done = runner.train(1, weights=tmp_path)
    assert done.returncode == 1
    assert f"cannot read {tmp_path}: it is a folder; name a file in it" in done.stderr

"""Data: held-out data stay separate; any file is either data or an error."""

import os
import pickle
import warnings
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from pockengine.errors import FinetuneError
from pockengine.finetune.data_files import read_arrays, read_npy
from pockengine.finetune.task import (
    Examples,
    Task,
    load_examples,
    load_task,
    load_tuning,
    split,
)


def numbered(labels: np.ndarray) -> Examples:
    """Return examples whose input is their number."""
    return Examples({"x": np.arange(len(labels), dtype=np.float32)[:, None]}, labels)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.data())
def test_split_is_a_partition(labels: list[int], data: st.DataObject) -> None:
    validation = data.draw(st.integers(1, len(labels) - 1))
    tuning = split(numbered(np.array(labels, np.int64)), validation, seed=0)

    seen = [*tuning.train.inputs["x"][:, 0], *tuning.validation.inputs["x"][:, 0]]
    assert sorted(seen) == list(range(len(labels)))
    assert len(tuning.validation) == validation


@pytest.mark.parametrize("seed", [0, 1])
def test_split_is_stratified(seed: int) -> None:
    labels = np.repeat(np.arange(4), [400, 200, 100, 40])
    tuning = split(numbered(labels), 185, seed)

    assert np.abs(np.bincount(tuning.validation.labels) - [100, 50, 25, 10]).max() <= 1


def test_seed_changes_the_split() -> None:
    examples = numbered(np.zeros(50, np.int64))
    apart = [set(split(examples, 10, seed).validation.inputs["x"][:, 0]) for seed in (0, 0, 1)]

    assert apart[0] == apart[1] != apart[2]


def test_digest_depends_on_the_contents() -> None:
    labels = np.array([0, 1, 1])
    first = numbered(labels)

    assert first.digest() == numbered(labels.copy()).digest()
    assert first.digest() == first.take(np.array([0, 1, 2])).digest()
    assert first.digest() != first.take(np.array([0, 2, 1])).digest()
    assert first.digest() != Examples({"y": first.inputs["x"]}, labels).digest()


def test_files_of_both_kinds_are_read(tmp_path: Path) -> None:
    arrays = {"x": np.ones((8, 3), np.float32), "target": np.arange(8) % 2}
    np.savez(tmp_path / "train.npz", **arrays)
    save_file(arrays, tmp_path / "test.safetensors")
    task = load_task(tmp_path / "train.npz", tmp_path / "test.safetensors", 0.25, seed=0)

    assert isinstance(task, Task)
    assert (task.classes, len(task.tuning.train), len(task.tuning.validation)) == (2, 6, 2)
    assert len(task.test) == 8
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    assert load_examples(tmp_path).digest() == load_examples(tmp_path / "test.safetensors").digest()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones(3, np.float32)}, "no array 'target'"),
        ({"target": np.zeros(3, np.int64)}, "beside at least one input"),
        ({"x": np.ones(3), "target": np.zeros(3)}, "must hold integers"),
        ({"x": np.ones(4), "target": np.zeros(3, np.int64)}, "but there are 3 labels"),
        ({"x": np.ones(3), "target": np.zeros((3, 2), np.int64)}, "give one label a row"),
        ({"x": np.ones((0, 2)), "target": np.zeros(0, np.int64)}, "N > 0"),
    ],
)
def test_errors_name_invalid_files(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "data.npz", **arrays)

    with pytest.raises(FinetuneError, match=message):
        load_tuning(tmp_path / "data.npz", 0.5, seed=0)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("name", ["data.npz", "data.safetensors", "data.txt"])
def test_nothing_in_a_file_is_executed(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    objects = np.array([Bomb()], dtype=object)
    np.savez(tmp_path / "objects.npz", x=objects, target=np.zeros(1, np.int64))

    for path in (tmp_path / name, tmp_path / "objects.npz"):
        with pytest.raises(FinetuneError):
            load_tuning(path, 0.5, seed=0)
    assert not (tmp_path / "exploded").exists()


def test_arrays_of_objects_say_how_to_convert_them(tmp_path: Path) -> None:
    labels = np.array(["cat", "dog"], dtype=object)
    np.savez(tmp_path / "rows.npz", target=labels)
    np.save(tmp_path / "target.npy", labels)
    for path in (tmp_path / "rows.npz", tmp_path):
        with pytest.raises(FinetuneError, match="array of Python objects; convert it with astype"):
            read_arrays(path)


def test_pipes_are_refused_immediately(tmp_path: Path) -> None:
    for name in ("rows.npz", "rows.safetensors"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(FinetuneError, match="is a pipe or a device"):
            read_arrays(tmp_path / name)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "x.npy")
    with pytest.raises(FinetuneError, match="is a pipe or a device"):
        read_arrays(tmp_path / "folder")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("x.npy", "x.npy"), "holds 'x' twice"),
        (("x.npy", "x"), "holds 'x' twice"),
        (("x.npy", "readme.txt"), "holds 'readme.txt', which is no array"),
    ],
)
def test_archives_have_only_distinct_arrays(
    tmp_path: Path, names: tuple[str, str], message: str
) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    contents = [(tmp_path / "x.npy").read_bytes(), b"read me"]
    with ZipFile(tmp_path / "rows.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of duplicate names
        for name, data in zip(names, contents, strict=True):
            archive.writestr(name, data)
    with pytest.raises(FinetuneError, match=message):
        read_arrays(tmp_path / "rows.npz")


@pytest.mark.parametrize("data", [b"", b"\x93NUMPY\1\0\x36\0" + b"[" * 53 + b"\n", b"PK\3\4"])
def test_npy_file_is_one_array(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(FinetuneError, match=r"x\.npy cannot be read"):
        read_npy(tmp_path / "x.npy")
    np.savez(tmp_path / "y.npz", x=np.ones(3))
    with pytest.raises(FinetuneError, match="cannot be read"):
        read_npy((tmp_path / "y.npz").rename(tmp_path / "y.npy"))


def test_archives_larger_than_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pockengine.finetune.data_files.detect_memory", lambda: 1 << 20)
    np.savez_compressed(tmp_path / "rows.npz", x=np.zeros(1 << 19))
    assert (tmp_path / "rows.npz").stat().st_size < 1 << 14
    with pytest.raises(FinetuneError, match="unfolds to 41944"):
        read_arrays(tmp_path / "rows.npz")

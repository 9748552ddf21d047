"""Data sets become tasks: each label's share, disjoint parts, errors for hostile files."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from pockengine.errors import FinetuneError
from pockengine.studies.sparse.pictures import more_pictures, picture_task, stratified
from pockengine.studies.sparse.sentences import more_sentences, sentence_task
from pockengine.studies.sparse.sizes import Sizes

SIZES = Sizes(train=20, validation=10, test=20)


def test_stratified_keeps_shares_and_mixes() -> None:
    labels = np.repeat([0, 1, 2], [10, 20, 70])
    chosen = stratified(labels, 50, seed=3)
    assert np.bincount(labels[chosen]).tolist() == [5, 10, 35]
    assert len(set(chosen.tolist())) == 50
    assert chosen.tolist() != stratified(labels, 50, seed=4).tolist()


def test_too_few_examples_are_an_error() -> None:
    with pytest.raises(FinetuneError, match="5 examples were asked for; the data set has 3"):
        stratified(np.zeros(3, np.int64), 5, seed=0)


def write_fashion(root: Path) -> None:
    folder = root / "vision" / "fashion_mnist"
    folder.mkdir(parents=True)
    for part, shade in (("train", 0), ("test", 255)):
        image = np.full((40, 28, 28, 1), shade, np.uint8)
        label = np.arange(40) % 10
        np.savez(folder / f"fashion_mnist_{part}.npz", image=image, label=label)


def test_pictures_are_resized_and_test_comes_from_the_test_part(tmp_path: Path) -> None:
    write_fashion(tmp_path)
    task = picture_task(tmp_path, "fashion_mnist", 16, "symmetric", SIZES)
    assert task.tuning.train.inputs["x"].shape == (20, 3, 16, 16)
    assert len(task.tuning.validation) == 10
    assert float(task.tuning.train.inputs["x"].max()) == -1.0
    assert float(task.test.inputs["x"].min()) == 1.0


def test_more_pictures_are_new_and_leave_the_task_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "vision" / "fashion_mnist"
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        image = np.arange(40, dtype=np.uint8).repeat(784).reshape(40, 28, 28, 1)
        np.savez(folder / f"fashion_mnist_{part}.npz", image=image, label=np.arange(40) % 10)
    sizes = Sizes(20, 10, 20, more=10)
    expected = tmp_path, "fashion_mnist", 4, "bytes"
    task, more = picture_task(*expected, sizes), more_pictures(*expected, sizes)
    both = task.tuning.train.joined(task.tuning.validation).joined(more)

    assert sorted(both.inputs["x"][:, 0, 0, 0].tolist()) == list(range(40))
    assert len(both) == 40
    assert len(more) == 10
    assert task.tuning.train.digest() == picture_task(*expected, SIZES).tuning.train.digest()


def test_of_what_a_model_has_seen_nothing_trains_or_judges(tmp_path: Path) -> None:
    folder = tmp_path / "vision" / "fashion_mnist"
    folder.mkdir(parents=True)
    for part, shift in (("train", 0), ("test", 100)):
        image = np.arange(shift, shift + 60, dtype=np.uint8).repeat(784).reshape(60, 28, 28, 1)
        np.savez(folder / f"fashion_mnist_{part}.npz", image=image, label=np.arange(60) % 10)
    sizes = Sizes(20, 10, 20, more=10)
    expected = tmp_path, "fashion_mnist", 4, "bytes", sizes
    task, more = picture_task(*expected, seen=True), more_pictures(*expected, seen=True)
    both = task.tuning.train.joined(task.tuning.validation).joined(more).joined(task.test)

    assert sorted(both.inputs["x"][:, 0, 0, 0].tolist()) == list(range(100, 160))
    assert task.test.digest() == picture_task(*expected).test.digest()


def test_jpeg_that_is_none_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "vision" / "cifar10"
    folder.mkdir(parents=True)
    stream = io.BytesIO()
    Image.new("RGB", (32, 32)).save(stream, "JPEG")
    data = stream.getvalue() * 39 + b"no picture"
    offset = np.array([len(stream.getvalue()) * i for i in range(40)] + [len(data)])
    for name in ("train20k", "test"):
        path = folder / f"cifar10_{name}_jpeg.npz"
        jpeg = np.frombuffer(data, np.uint8)
        np.savez(path, jpeg=jpeg, offset=offset, label=np.arange(40) % 10)
    with pytest.raises(FinetuneError, match="picture 39 is no JPEG"):
        picture_task(tmp_path, "cifar10", 8, "imagenet", Sizes(30, 10, 20))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FinetuneError, match=r"fashion_mnist_train\.npz cannot be read"):
        picture_task(tmp_path, "fashion_mnist", 8, "symmetric", SIZES)


def write_tokenizer(folder: Path) -> None:
    words = {"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3, "film": 4}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))


def test_sentences_are_cut_and_filled_up(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    folder = tmp_path / "text" / "sst2"
    folder.mkdir(parents=True)
    rows = 'good film film film film\t1\nbad "film\t0\n' * 20
    for part in ("train", "test"):
        (folder / f"{part}.tsv").write_text(rows)
    task = sentence_task(tmp_path, "sst2", tmp_path, 4, SIZES)
    ids = {tuple(row) for row in task.test.inputs["input_ids"].tolist()}
    assert ids == {(2, 4, 4, 4), (3, 1, 4, 0)}
    assert task.classes == 2
    assert len(task.tuning.train) == 20


def test_more_sentences_are_new_as_far_as_the_file_goes(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    folder = tmp_path / "text" / "sst2"
    folder.mkdir(parents=True)
    words = ("good", "bad", "film", "none")
    rows = [f"{words[n % 4]} {words[n // 4 % 4]} {words[n // 16]}\t{n % 2}\n" for n in range(64)]
    for part in ("train", "test"):
        (folder / f"{part}.tsv").write_text("".join(rows))
    expected = tmp_path, "sst2", tmp_path, 3, Sizes(20, 10, 20, more=100)
    task, more = sentence_task(*expected), more_sentences(*expected)
    both = task.tuning.train.joined(task.tuning.validation).joined(more)

    assert len(more) == 34
    assert len(np.unique(both.inputs["input_ids"], axis=0)) == len(both) == 64


def test_damaged_table_is_named(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    folder = tmp_path / "text" / "sst2"
    folder.mkdir(parents=True)
    (folder / "train.tsv").write_text("a sentence without label\n")
    with pytest.raises(FinetuneError, match="sst2 cannot be read"):
        sentence_task(tmp_path, "sst2", tmp_path, 4, SIZES)


def test_intents_of_banking_are_numbered_by_its_list(tmp_path: Path) -> None:
    folder = tmp_path / "text" / "banking77"
    folder.mkdir(parents=True)
    (folder / "categories.json").write_text('["card", "cash"]')
    rows = [f'"where, please, is {n}?",{("cash", "card")[n % 2]}' for n in range(40)]
    for part in ("train", "test"):
        (folder / f"{part}.csv").write_text("\n".join(["text,category", *rows]))
    write_tokenizer(tmp_path)
    task = sentence_task(tmp_path, "banking77", tmp_path, 8, SIZES)
    assert task.classes == 2
    assert np.bincount(task.test.labels).tolist() == [10, 10]

"""Folders of images become rows of the artifact's input; damaged files are reported and skipped."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.training.picture_form import PictureForm
from pockengine.backends.training.picture_form import picture_form as form_of
from pockengine.backends.training.signature import signature_of
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.errors import FinetuneError, RuntimeFailure
from pockengine.finetune.pictures import write_pictures


def build(folder: Path, shape: tuple[int, ...]) -> Artifact:
    """Build a linear image classifier with 2 classes, for this machine."""
    graph = Graph("pictures")
    g = Builder(graph)
    images = g.input("images", TensorType(F32, shape))
    labels = g.input("labels", TensorType(I64, shape[:1]))
    flat = g.reshape(images, shape=(shape[0], int(np.prod(shape[1:]))))
    weight = g.param("weight", np.zeros((flat.shape[1], 2), np.float32))
    g.output("loss", g.cross_entropy(g.matmul(flat, weight), labels))
    backend = CBackend(load_device("host"))
    program = compile_program(graph, Training(), target=backend.target())
    return write_artifact(program, backend, folder / "artifact")


def picture_form(artifact: Artifact, *numbers: tuple[float, ...]) -> PictureForm:
    return form_of(artifact.name, signature_of(artifact).inputs, *numbers)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return build(tmp_path_factory.mktemp("artifact"), (2, 3, 4, 6))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write three red images of cats and two blue ones of dogs."""
    for name, color, count in (("dogs", (0, 0, 255), 2), ("cats", (255, 0, 0), 3)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(count):
            picture = Image.new("RGB", (30 + i, 20), color)
            picture.save(tmp_path / "photos" / name / f"{i}.{'png' if i else 'PNG'}")
    return tmp_path / "photos"


def test_rows_are_the_inputs_of_the_artifact(
    artifact: Artifact, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    form = picture_form(artifact, (0.5,), (0.5, 0.25, 0.5))
    written = write_pictures(folder, form, out)
    assert (written.rows, written.classes, written.left_out) == (5, ("cats", "dogs"), ())
    images, labels = np.load(out / "images.npy"), np.load(out / "labels.npy")
    assert (images.shape, images.dtype) == ((5, 3, 4, 6), np.float32)
    assert labels.tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_allclose(images[0, :, 1, 2], [1, -2, -1], atol=1e-6)
    np.testing.assert_allclose(images[4, :, 3, 0], [-1, -2, 1], atol=1e-6)
    assert (out / "classes.txt").read_text() == "cats\ndogs\n"
    command = [str(artifact.executable), "train", "--weights", str(artifact.weights), "--lr", "0.1"]
    done = subprocess.run([*command, "--data", str(out), "--steps", "9", "--shuffle"], check=True)
    assert done.returncode == 0


def test_channels_may_be_last_and_images_are_center_cropped(tmp_path: Path) -> None:
    (tmp_path / "photos" / "one").mkdir(parents=True)
    picture = np.zeros((8, 24), np.uint8)
    picture[:, 8:16] = 255
    Image.fromarray(picture).save(tmp_path / "photos" / "one" / "stripe.png")
    form = picture_form(build(tmp_path, (1, 8, 8, 1)))
    write_pictures(tmp_path / "photos", form, tmp_path / "out")
    assert np.load(tmp_path / "out" / "images.npy").tolist() == np.ones((1, 8, 8, 1)).tolist()


def test_damaged_images_are_reported_and_skipped(
    artifact: Artifact, folder: Path, tmp_path: Path
) -> None:
    sound = (folder / "cats" / "1.png").read_bytes()
    (folder / "cats" / "1.png").write_bytes(sound[:40])
    (folder / "dogs" / "9.jpg").write_text("no picture")
    form, out = picture_form(artifact), tmp_path / "out"
    with pytest.raises(FinetuneError, match=r"9\.jpg: it is no picture, after 1 others"):
        write_pictures(folder, form, out, skip_bad=1)
    assert not (out / "images.npy").exists()
    written = write_pictures(folder, form, out, skip_bad=2)
    assert written.rows == len(np.load(out / "images.npy")) == 4
    assert np.load(out / "labels.npy").tolist() == [0, 0, 1, 1]
    assert [fault.split(":")[0] for fault in written.left_out] == [
        str(folder / "cats" / "1.png"),
        str(folder / "dogs" / "9.jpg"),
    ]


def test_a_kill_between_rows_and_labels_leaves_no_old_labels(
    artifact: Artifact, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form, out = picture_form(artifact), tmp_path / "out"
    write_pictures(folder, form, out)
    monkeypatch.delattr("pockengine.finetune.pictures._save")
    with pytest.raises(NameError):
        write_pictures(folder, form, out)
    assert [path.name for path in out.iterdir()] == ["images.npy"]


def test_invalid_image_folders_are_refused(artifact: Artifact, tmp_path: Path) -> None:
    form = picture_form(artifact)
    with pytest.raises(RuntimeFailure, match="a folder for each class"):
        write_pictures(tmp_path, form, tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FinetuneError, match="has no pictures"):
        write_pictures(tmp_path, form, tmp_path / "elsewhere" / "out")
    with pytest.raises(RuntimeFailure, match="2 numbers for 3 channels"):
        picture_form(artifact, (0.5, 0.5))
    with pytest.raises(RuntimeFailure, match="has a 0 or less"):
        picture_form(artifact, (0.5,), (0.0,))
    with pytest.raises(RuntimeFailure, match="trains on no pictures"):
        picture_form(build(tmp_path, (2, 5, 4, 6)))

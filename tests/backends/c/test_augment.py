"""Flips and crops of pictures: the runner's equal those of `fit`, and continue after a resume."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import pockengine
from pockengine.backends.artifact import write_artifact
from pockengine.backends.augmentation import Augmentation
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.devices.schema import load_device
from pockengine.errors import RuntimeFailure
from pockengine.loaded import Loaded
from pockengine.tests.backends.c.programs import build_sanitized, compile_for
from pockengine.tests.backends.c.runner import Arrays, Runner, initial, lines

BATCH, ROWS, RATE = 4, 11, 0.05
SHAPES = {"channels first": (3, 6, 5), "channels last": (6, 5, 1)}
HOWS = (Augmentation(flip=True), Augmentation(crop=2), Augmentation(flip=True, crop=4))


def graph_of(shape: tuple[int, ...], *, mask: bool = False) -> Graph:
    graph = Graph("pictures")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (BATCH, *shape)))
    labels = g.input("labels", TensorType(I64, (BATCH,)))
    size = int(np.prod(shape))
    weight = np.random.default_rng(1).standard_normal((size, 3)).astype(np.float32) / 4
    flat = g.reshape(x, shape=(BATCH, size))
    if mask:
        flat = g.add(flat, g.reshape(g.input("mask", x.type), shape=(BATCH, size)))
    g.output("loss", g.cross_entropy(g.matmul(flat, g.param("weight", weight)), labels))
    return graph


def rows_of(shape: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((ROWS, *shape)).astype(np.float32)
    return {"x": x, "labels": rng.integers(0, 3, ROWS)}


@pytest.fixture(scope="module", params=SHAPES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    graph = graph_of(SHAPES[request.param])
    program, backend = compile_for(graph, load_device("host"))
    folder = tmp_path_factory.mktemp("pictures") / "artifact"
    return pockengine.load(write_artifact(program, backend, folder).folder)


def rows(case: Loaded) -> Arrays:
    return rows_of(case.artifact.entries["train"].inputs["x"].shape[1:])


def runner(case: Loaded, folder: Path) -> Runner:
    save_file(rows(case), folder / "rows")
    artifact = case.artifact
    return Runner(artifact.executable, None, artifact.weights, folder / "rows")


def options(how: Augmentation) -> tuple[object, ...]:
    return (*(("--flip",) if how.flip else ()), *(("--crop", how.crop) if how.crop else ()))


def losses(done: subprocess.CompletedProcess[str]) -> list[np.float32]:
    return [np.float32(line["loss"]) for line in lines(done) if "step" in line]


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_the_runner_trains_on_the_pictures_of_fit(
    case: Loaded, tmp_path: Path, how: Augmentation
) -> None:
    loaded = pockengine.load(case.artifact.folder)
    history = loaded.fit(rows(case), epochs=3, lr=0.1, seed=5, augment=how)
    found = losses(runner(case, tmp_path).train(6, "--shuffle", "--seed", 5, *options(how)))
    assert found == [np.float32(step.loss) for step in history.steps]
    plain = losses(runner(case, tmp_path).train(6, "--shuffle", "--seed", 5))
    assert found != plain


def test_resumed_is_uninterrupted(case: Loaded, tmp_path: Path) -> None:
    how, of_runner = HOWS[2], runner(case, tmp_path)
    whole, saved = tmp_path / "whole", tmp_path / "saved"
    lines(of_runner.train(7, "--save", whole, *options(how)))
    lines(of_runner.train(3, "--save", saved, "--total", 7, *options(how)))
    lines(of_runner.train(7, "--save", saved, "--resume"))
    assert saved.read_bytes() == whole.read_bytes()
    done = of_runner.train(8, "--save", saved, "--resume", "--crop", 1)
    assert "has its pictures flipped, with a crop of 4" in done.stderr
    loaded = pockengine.load(case.artifact.folder)
    again = {"lr": 0.1, "shuffle": False, "resume": True}
    folder = tmp_path / "folder"
    lines(of_runner.train(3, "--save", f"{folder}/", "--total", 7, *options(how)))
    with pytest.raises(RuntimeFailure, match="4 a step, flipped, crop 4, and these data"):
        loaded.fit(rows(case), steps=7, checkpoint=folder, **again)
    loaded.fit(rows(case), steps=7, checkpoint=folder, augment=how, **again)
    loaded.trained.save(tmp_path / "by-python", whole=False)
    assert (tmp_path / "by-python").read_bytes() == whole.read_bytes()


def test_a_crop_is_a_window_of_the_padded_picture() -> None:
    """Half are mirrored; every offset occurs; epochs differ, and the same position repeats."""
    picture = np.arange(1, 31, dtype=np.float32).reshape(1, 6, 5, 1)
    many = np.repeat(picture, 3000, 0)
    how = Augmentation(flip=True, crop=1)
    found = how.applied(many, (1, 2), seed=7, epoch=3, first=0)
    padded = np.pad(picture[0, ..., 0], 1)
    windows = [padded[y : y + 6, x : x + 5] for y in range(3) for x in range(3)]
    kinds = [window for each in windows for window in (each, each[:, ::-1])]
    counts = np.array([(found[..., 0] == kind).all((1, 2)).sum() for kind in kinds])
    assert counts.sum() == 3000
    assert abs(counts - 3000 / 18).max() < 5 * np.sqrt(3000 / 18)
    later = how.applied(many[100:], (1, 2), seed=7, epoch=3, first=100)
    np.testing.assert_array_equal(later, found[100:])
    assert (how.applied(many, (1, 2), seed=7, epoch=4, first=0) != found).any()


def test_what_is_no_picture_is_refused(case: Loaded, tmp_path: Path) -> None:
    done = runner(case, tmp_path).train(1, "--crop", 5)
    assert done.returncode == 2
    assert "--crop 5 may leave nothing of pictures of 6 x 5" in done.stderr
    with pytest.raises(RuntimeFailure, match="may leave nothing of x"):
        case.fit(rows(case), steps=1, lr=0.1, augment=Augmentation(crop=5))
    with pytest.raises(RuntimeFailure, match="augment them where they are made"):
        case.fit(lambda: iter([rows(case)]), steps=1, lr=0.1, augment=Augmentation(flip=True))


def sanitized(graph: Graph, rows: Arrays, folder: Path) -> Runner:
    path, program = build_sanitized(graph, folder)
    save_file(rows, folder / "rows")
    save_file({**initial(program), **program.constants}, folder / "weights")
    return Runner(path, program, folder / "weights", folder / "rows")


def test_a_second_picture_would_have_to_move_along(tmp_path: Path) -> None:
    shape = SHAPES["channels last"]
    rows = {**rows_of(shape), "mask": rows_of(shape)["x"]}
    of_runner = sanitized(graph_of(shape, mask=True), rows, tmp_path)
    assert "and no other of three dimensions" in of_runner.train(1, "--flip").stderr


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_pictures_move_within_their_memory(tmp_path: Path, shape: tuple[int, ...]) -> None:
    of_runner = sanitized(graph_of(shape), rows_of(shape), tmp_path)
    assert len(losses(of_runner.train(9, "--flip", "--crop", 4))) == 9

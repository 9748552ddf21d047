"""Folders of pictures: the runner reads what Python reads, trains as `fit`, skips bad files."""

import shutil
import struct
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from safetensors.numpy import load_file

import pockengine
from pockengine.backends.artifact import write_artifact
from pockengine.backends.augmentation import Augmentation
from pockengine.backends.native import build
from pockengine.backends.native.decoder import find_decoder
from pockengine.backends.training.picture_form import PictureForm
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.devices.schema import load_device
from pockengine.errors import RuntimeFailure
from pockengine.loaded import Loaded
from pockengine.tests.backends.c.programs import compile_for
from pockengine.tests.backends.c.runner import Runner, lines

needs_decoder = pytest.mark.skipif(
    find_decoder() is None, reason="stb_image.h is not installed (apt-get install libstb-dev)"
)
pytestmark = needs_decoder

BATCH = 4
SHAPES = {"channels first": (3, 12, 16), "channels last": (12, 16, 1)}
SIZES = ((12, 16), (24, 32), (50, 67), (7, 5), (90, 9), (1, 1), (9, 90), (13, 16))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
JPEG_MOST, JPEG_MEAN = 3, 0.25
"""Maximum and mean difference between Pillow's and the runner's decoders, of 255."""


def graph_of(shape: tuple[int, ...]) -> Graph:
    """A linear classifier that also outputs its pictures."""
    graph = Graph("pictures")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (BATCH, *shape)))
    labels = g.input("labels", TensorType(I64, (BATCH,)))
    size = int(np.prod(shape))
    weight = np.random.default_rng(1).standard_normal((size, 2)).astype(np.float32) / size
    flat = g.reshape(x, shape=(BATCH, size))
    g.output("pixels", g.mul(x, g.param("one", np.ones((), np.float32))))
    g.output("loss", g.cross_entropy(g.matmul(flat, g.param("weight", weight)), labels))
    return graph


def built(device: str, shape: str, folder: Path) -> Loaded:
    program, backend = compile_for(graph_of(SHAPES[shape]), load_device(device))
    return pockengine.load(write_artifact(program, backend, folder / "artifact").folder)


@pytest.fixture(scope="module", params=SHAPES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return built("host", request.param, tmp_path_factory.mktemp("host"))


def drawn(height: int, width: int, seed: int) -> Image.Image:
    """A smooth random picture."""
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def save_kinds(folder: Path, height: int, width: int, seed: int) -> None:
    """Save a picture as PNG with every pixel format."""
    picture, name = drawn(height, width, seed), folder / f"{seed:03d}"
    veiled, gray = picture.copy(), picture.convert("L")
    veiled.putalpha(gray)
    turned = Image.Exif()
    turned[0x112] = 1 + seed % 8
    picture.save(f"{name}-color.png", exif=turned)
    gray.save(f"{name}-gray.PNG")
    veiled.save(f"{name}-veiled.png")
    veiled.convert("LA").save(f"{name}-gray-veiled.png")
    picture.convert("1").save(f"{name}-bits.png")
    picture.quantize(9).save(f"{name}-palette.png", transparency=3)
    deep = np.random.default_rng(seed).integers(0, 1 << 16, (height, width)).astype(np.uint16)
    Image.fromarray(deep).save(f"{name}-deep.png")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PNG files of two classes, in nested folders, beside other files."""
    root = tmp_path_factory.mktemp("photos")
    for i, size in enumerate(SIZES):
        folder = root / ("dogs" if i % 3 else "cats") / ("b" if i % 2 else "")
        folder.mkdir(parents=True, exist_ok=True)
        save_kinds(folder, *size, seed=i)
    (root / "cats" / "notes.txt").write_text("no picture")
    (root / "cats" / "._x.png").write_text("hidden")
    (root / ".git").mkdir()
    (root / "readme.png").write_text("of no class")
    return root


def files(root: Path) -> list[Path]:
    found = sorted(path for path in root.glob("*/**/*") if path.suffix.lower() != ".txt")
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def runner(case: Loaded, data: Path) -> Runner:
    artifact = case.artifact
    return Runner(artifact.executable, None, artifact.weights, data)


def channels(case: Loaded) -> int:
    return 3 if case.artifact.entries["train"].inputs["x"].shape[1] == 3 else 1


def numbers(case: Loaded) -> tuple[str, ...]:
    mean, std = (",".join(map(str, each[: channels(case)])) for each in (MEAN, STD))
    return "--mean", mean, "--std", std


def predicted(
    case: Loaded, data: Path, out: Path, *more: str, launcher: Sequence[str] = ()
) -> np.ndarray:
    command = [*launcher, str(case.artifact.executable), "predict", "--data", str(data), *more]
    command += ["--weights", str(case.artifact.weights), "--output", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return load_file(out)["pixels"]


def form_of(case: Loaded) -> PictureForm:
    count = channels(case)
    return PictureForm("x", count == 3, (12, 16), count, MEAN[:count], STD[:count], None, None)


def test_png_files_give_the_numbers_of_python(case: Loaded, photos: Path, tmp_path: Path) -> None:
    found = predicted(case, photos, tmp_path / "out", *numbers(case))
    form = form_of(case)
    for path, row in zip(files(photos), found, strict=True):
        np.testing.assert_array_equal(row, form.read(path), err_msg=str(path))
    assert len(found) == 7 * len(SIZES)


def test_pictures_turn_only_by_the_metadata_that_both_read(case: Loaded, tmp_path: Path) -> None:
    (tmp_path / "photos" / "one").mkdir(parents=True)
    for turn in range(1, 9):
        picture, name = drawn(24, 32, turn), tmp_path / "photos" / "one" / f"{turn}"
        long = struct.pack("<HHIII", 0x112, 4, 1, turn, 0)
        picture.save(f"{name}-long.png", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0" + long)
        xmp = PngInfo()
        xmp.add_itxt("XML:com.adobe.xmp", f'<rdf:Description tiff:Orientation="{turn}"/>')
        picture.save(f"{name}-xmp.png", pnginfo=xmp)
    found = predicted(case, tmp_path / "photos", tmp_path / "out", *numbers(case))
    for path, row in zip(files(tmp_path / "photos"), found, strict=True):
        np.testing.assert_array_equal(row, form_of(case).read(path), err_msg=str(path))
    assert len(found) == 16
    Image.new("L", (8, 8)).save(path, format="GIF")
    with pytest.raises(RuntimeFailure, match="it is no picture"):
        form_of(case).read(path)


def test_jpeg_files_differ_by_rounding(case: Loaded, tmp_path: Path) -> None:
    (tmp_path / "photos" / "one").mkdir(parents=True)
    for i, (height, width) in enumerate(SIZES):
        picture, name = drawn(height, width, i), tmp_path / "photos" / "one" / f"{i}"
        turned = Image.Exif()
        turned[0x112] = 1 + i % 8
        picture.save(f"{name}a.jpg", exif=turned)
        picture.save(f"{name}b.JPEG", progressive=True, quality=95)
        picture.save(f"{name}c.jpg", subsampling=0, restart_marker_blocks=1)
        picture.convert("L").save(f"{name}d.jpg")
    found = predicted(case, tmp_path / "photos", tmp_path / "out", *numbers(case))
    form = form_of(case)
    expected = np.stack([form.read(path) for path in files(tmp_path / "photos")])
    std = np.array(STD[: channels(case)], np.float32)
    apart = np.abs(found - expected) * 255 * (std[:, None, None] if form.channels_first else std)
    assert apart.max() < JPEG_MOST + 0.01
    assert 0 < apart.mean() < JPEG_MEAN


@pytest.mark.parametrize("how", [(), ("--flip", "--crop", 3)], ids=str)
def test_the_runner_trains_as_fit_does(case: Loaded, photos: Path, how: tuple[object, ...]) -> None:
    count = channels(case)
    loaded = pockengine.load(case.artifact.folder)
    augment = Augmentation(bool(how), 3) if how else Augmentation()
    data = pockengine.Pictures(photos, MEAN[:count], STD[:count])
    history = loaded.fit(data, steps=16, lr=0.1, seed=5, augment=augment)
    options = ("--shuffle", "--seed", 5, *numbers(case), *how)
    done = lines(runner(case, photos).train(16, *options))
    found = np.array([line["loss"] for line in done if "step" in line], np.float32)
    np.testing.assert_array_equal(found, np.array([step.loss for step in history.steps], "f4"))
    assert done[:2] == [
        {"class": 0, "name": "cats", "pictures": 21},
        {"class": 1, "name": "dogs", "pictures": 35},
    ]
    (evaluated,) = [line for line in done if "rows" in line]
    assert evaluated["rows"] == 56
    arguments = ("--weights", case.artifact.weights, "--data", photos, *numbers(case))
    judged = lines(runner(case, photos).call("evaluate", *arguments))
    (mean,) = [line["loss"] for line in judged if "evaluated" in line]
    fresh = pockengine.load(case.artifact.folder)
    assert mean == pytest.approx(fresh.evaluate(data).loss, rel=1e-6)


def test_resumed_is_uninterrupted(case: Loaded, photos: Path, tmp_path: Path) -> None:
    of_runner, whole, saved = runner(case, photos), tmp_path / "whole", tmp_path / "saved"
    skip = ("--skip-bad", len(spoil(tmp_path / "photos", photos)))
    data = {"data": tmp_path / "photos"}
    how = ("--shuffle", "--flip", *skip)
    lines(of_runner.train(18, "--save", whole, *how, **data))
    lines(of_runner.train(7, "--save", saved, "--total", 18, *how, **data))
    lines(of_runner.train(18, "--save", saved, "--resume", *skip, **data))
    assert saved.read_bytes() == whole.read_bytes()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, data: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", data), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def bad_files(sound_png: bytes, sound_jpeg: bytes) -> dict[str, tuple[bytes, str]]:
    """Damaged files by name, with the expected message of each."""
    table = sound_jpeg.index(b"\xff\xc4")
    wrong = sound_jpeg[: table + 5] + b"\xff" * 16 + sound_jpeg[table + 21 :]
    flipped = bytearray(sound_png)
    flipped[len(sound_png) // 2] ^= 1
    bomb = png(8, 8, zlib.compress(bytes(200 << 20), 1))
    return {
        "bomb.png": (bomb, "it takes more memory than its size needs"),
        "codes.jpg": (wrong, "a table of codes is wrong"),
        "cut.jpg": (sound_jpeg[: len(sound_jpeg) * 2 // 3], "it ends too early"),
        "cut.png": (sound_png[: len(sound_png) * 2 // 3], "it ends too early"),
        "empty.png": (b"", "it is empty"),
        "flipped.png": (bytes(flipped), "a checksum is wrong"),
        "hollow.png": (png(8, 8, b""), "it has no pixels"),
        "huge.png": (png(60000, 60000, b"x"), "it has too many pixels; --megapixels says"),
        "text.png": (b"this is a text", "it is neither JPEG nor PNG"),
    }


def spoil(folder: Path, photos: Path) -> dict[str, str]:
    """Copy the pictures and add damaged ones; return the expected messages."""
    shutil.copytree(photos, folder)
    drawn(20, 20, 1).save(folder / "sound.jpg")
    sound_png = (files(photos)[0]).read_bytes()
    bad = bad_files(sound_png, (folder / "sound.jpg").read_bytes())
    drawn(20, 20, 1).convert("CMYK").save(folder / "dogs" / "four.jpg")
    faults = {"four.jpg": "its channels are neither gray nor three colors"}
    for name, (content, why) in bad.items():
        (folder / "dogs" / name).write_bytes(content)
        faults[name] = why
    return faults


def test_bad_pictures_are_named_and_left_out(case: Loaded, photos: Path, tmp_path: Path) -> None:
    faults = spoil(tmp_path / "photos", photos)
    of_runner = runner(case, tmp_path / "photos")
    done = lines(of_runner.train(17, "--skip-bad", len(faults), "--shuffle"))
    bad = {str(line["why"]) for line in done if "bad_row" in line}
    assert len(bad) == len(faults)
    for name, why in faults.items():
        (text,) = [text for text in bad if f"/{name}: " in text]
        assert why in text
    assert all(line["loss"] is not None for line in done if "step" in line)
    one_less = of_runner.train(17, "--skip-bad", len(faults) - 1, "--shuffle")
    assert one_less.returncode == 1
    assert f"is bad, after {len(faults) - 1} others: the picture" in one_less.stderr
    strict = of_runner.train(17)
    assert strict.returncode == 1
    assert "/dogs/bomb.png: " in strict.stderr
    weights = case.artifact.weights
    judged = of_runner.call("evaluate", "--weights", weights, "--data", tmp_path / "photos")
    assert judged.returncode == 1
    assert "/dogs/bomb.png: " in judged.stderr


def test_options_of_pictures_are_checked(case: Loaded, photos: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(case.artifact.entries["train"].inputs["x"].shape, "f4"))
    np.save(tmp_path / "labels.npy", np.zeros(4, np.int64))
    assert runner(case, tmp_path).train(1).returncode == 0
    for option in (("--mean", "0.5"), ("--megapixels", 2)):
        done = runner(case, tmp_path).train(1, *option)
        assert done.returncode == 2
        assert "are for folders of pictures" in done.stderr
    for text in ("half", "0.5,0.5", "0.5,", "nan"):
        done = runner(case, photos).train(1, "--mean", text)
        assert done.returncode == 2, text
        assert f"--mean and --std take one number, or {channels(case)}" in done.stderr
    assert "--std more than 0" in runner(case, photos).train(1, "--std", "0").stderr
    (tmp_path / "empty" / "one").mkdir(parents=True)
    done = runner(case, tmp_path / "empty").train(1)
    assert "has no pictures in its class folders" in done.stderr
    for i in range(BATCH):
        drawn(1001, 1000, 1).save(tmp_path / "empty" / "one" / f"{i}-large.png")
    done = runner(case, tmp_path / "empty").train(1, "--megapixels", 1)
    assert "large.png: it has too many pixels" in done.stderr


def test_info_says_what_is_taken(case: Loaded) -> None:
    faults = lines(runner(case, Path("/")).call("info"))
    found = [line for line in faults if "pictures" in line]
    assert found[0] == {
        "pictures": "x",
        "entry": "train",
        "height": 12,
        "width": 16,
        "channels": channels(case),
        "formats": ["jpeg", "png"],
    }


def test_without_a_decoder_the_runner_says_so(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "find_decoder", lambda: None)
    case = built("host", "channels last", tmp_path)
    done = runner(case, photos).train(1)
    assert done.returncode == 1
    assert "install libstb-dev there and compile again" in done.stderr
    found = [line for line in lines(runner(case, photos).call("info")) if "pictures" in line]
    assert found[0]["formats"] == []


def test_a_board_reads_what_the_host_reads(photos: Path, tmp_path: Path) -> None:
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("qemu-aarch64 is not installed (apt-get install qemu-user)")
    shutil.copytree(photos, tmp_path / "photos")
    for i, (height, width) in enumerate(SIZES):
        drawn(height, width, i).save(tmp_path / "photos" / "dogs" / f"{i}.jpg")
        drawn(height, width, i).save(tmp_path / "photos" / "cats" / f"{i}.jpg", progressive=True)
    emulator = ("qemu-aarch64", "-cpu", "cortex-a72")
    found = []
    for device, launcher in (("host", ()), ("rpi4", emulator)):
        case = built(device, "channels first", tmp_path / device)
        out = tmp_path / f"{device}.safetensors"
        found.append(predicted(case, tmp_path / "photos", out, *numbers(case), launcher=launcher))
    assert len(found[0]) == 7 * len(SIZES) + 2 * len(SIZES)
    np.testing.assert_array_equal(found[0], found[1])

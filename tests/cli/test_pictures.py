"""`pockengine pictures` writes rows and names skipped files; `train` and others read folders."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import nn

from pockengine.api import compile
from pockengine.cli.main import cli


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, 2))
    folder = tmp_path_factory.mktemp("pictures") / "artifact"
    compile(model, (torch.zeros(2, 3, 4, 6),), loss="cross_entropy", device="host", folder=folder)
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of one picture each: a dark one, a bright one."""
    for name, gray in (("cats", 0), ("dogs", 255)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        picture = Image.new("RGB", (9, 9), (gray, gray, gray))
        picture.save(tmp_path / "photos" / name / "one.png")
    return tmp_path / "photos"


def test_commands_accept_a_folder_of_pictures(artifact: Path, photos: Path, tmp_path: Path) -> None:
    def call(command: str, data: Path, *options: str) -> str:
        done = CliRunner().invoke(cli, [command, str(artifact), "--data", str(data), *options])
        assert done.exit_code == 0, done.exception
        return done.stdout

    pixels = ("--mean=0.5", "--std=0.25")
    rows = tmp_path / "rows"
    made = ["pictures", str(photos), str(artifact), str(rows), *pixels]
    assert CliRunner().invoke(cli, made).exit_code == 0
    course = ("--steps=4", "--lr=0.1", f"--out={tmp_path / 'tuned.safetensors'}", "--json")
    trained = json.loads(call("train", photos, "--validation", str(photos), *course, *pixels))
    of_rows = json.loads(call("train", rows, "--validation", str(rows), *course))
    for figure in ("loss", "validation_loss"):
        assert trained["epochs"][-1]["figures"][figure] == of_rows["epochs"][-1]["figures"][figure]
    for command in (["evaluate", "--metric=accuracy"], ["predict", f"--out={tmp_path / 'out'}"]):
        result = (
            call(command[0], data, command[1], "--json", *options)
            for data, options in ((photos, pixels), (rows, ()))
        )
        assert len(set(result)) == 1


def test_pictures_become_rows(artifact: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "dogs" / "two.jpg").write_text("no picture")
    call = ["pictures", str(photos), str(artifact), str(tmp_path / "rows")]
    refused = CliRunner().invoke(cli, call)
    assert "two.jpg: it is no picture" in str(refused.exception)
    done = CliRunner().invoke(cli, [*call, "--skip-bad=1", "--mean=0.5,0.5,0.5", "--std=0.5"])
    assert done.exit_code == 0, done.output
    assert "left out" in done.output
    assert "written 2 rows of 2 classes" in done.output
    (pixels,) = (np.load(f) for f in (tmp_path / "rows").glob("*.npy") if np.load(f).ndim == 4)
    assert np.unique(pixels).tolist() == [-1, 1]
    for name in ("ca\nts", "ca\udcffts"):
        (photos / name).mkdir()
        assert "has a class named 'ca\\" in str(CliRunner().invoke(cli, call).exception)
        (photos / name).rmdir()
    wrong = CliRunner().invoke(cli, [*call, "--mean=half"])
    assert wrong.exit_code == 2
    assert "no list of numbers" in wrong.output

"""`pockengine pictures` writes rows, and says what it left out."""

from pathlib import Path

import numpy as np
import torch
from click.testing import CliRunner
from PIL import Image
from torch import nn

from pockengine.api import compile
from pockengine.cli.main import cli


def test_pictures_become_rows(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, 2))
    example = (torch.zeros(2, 3, 4, 6),)
    artifact = tmp_path / "artifact"
    compile(model, example, loss="cross_entropy", device="host", folder=artifact)
    photos = tmp_path / "photos"
    for name in ("cats", "dogs"):
        (photos / name).mkdir(parents=True)
        Image.new("RGB", (9, 9)).save(photos / name / "one.png")
    (photos / "dogs" / "two.jpg").write_text("no picture")
    call = ["pictures", str(photos), str(artifact), str(tmp_path / "rows")]
    refused = CliRunner().invoke(cli, call)
    assert "two.jpg: it is no picture" in str(refused.exception)
    done = CliRunner().invoke(cli, [*call, "--skip-bad=1", "--mean=0.5,0.5,0.5", "--std=0.5"])
    assert done.exit_code == 0, done.output
    assert "left out" in done.output
    assert "written 2 rows of 2 classes" in done.output
    (pixels,) = (np.load(f) for f in (tmp_path / "rows").glob("*.npy") if np.load(f).ndim == 4)
    assert np.unique(pixels).tolist() == [-1]
    wrong = CliRunner().invoke(cli, [*call, "--mean=half"])
    assert wrong.exit_code == 2
    assert "no list of numbers" in wrong.output

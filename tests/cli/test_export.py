"""`pockengine export` writes what `Compiled` exports, from an artifact and a checkpoint alone."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.numpy import load_file

import pockengine
from pockengine.cli.main import cli
from pockengine.compiled import Compiled
from pockengine.errors import ArtifactError

MODEL = f"{__name__}:net"
SCHEME = 'default = "frozen"\n[params]\n"0.weight" = { lora = 2, alpha = 4 }\n"2.bias" = "full"\n'


def net() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    layers = torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)
    return torch.nn.Sequential(*layers), (torch.randn(4, 6),)


def other() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    return torch.nn.Sequential(torch.nn.Linear(6, 3)), (torch.randn(4, 6),)


@pytest.fixture(name="compiled")
def a_trained_artifact(tmp_path: Path) -> Compiled:
    (tmp_path / "scheme.toml").write_text(SCHEME)
    compiled = pockengine.compile(
        *net(),
        loss="cross_entropy",
        scheme=tmp_path / "scheme.toml",
        folder=tmp_path / "artifact",
    )
    rng = np.random.default_rng(0)
    inputs = {"input": rng.standard_normal((4, 6)).astype(np.float32), "target": np.arange(4) % 3}
    with compiled.session() as session:
        for _ in range(3):
            session.train_step(inputs, lr=0.5)
        session.save(tmp_path / "checkpoint")
    return compiled


def export(folder: Path, out: str, *options: str) -> Result:
    places = (str(folder / "artifact"), str(folder / "checkpoint"), "--out", str(folder / out))
    return CliRunner().invoke(cli, ["export", *places, *options])


@pytest.mark.parametrize("options", [(), ("--model", MODEL)])
def test_weights_are_merged(compiled: Compiled, options: tuple[str, ...], tmp_path: Path) -> None:
    result = export(tmp_path, "weights", *options)

    assert result.exit_code == 0, result.output
    expected = compiled.state_dict(tmp_path / "checkpoint")
    found = load_file(tmp_path / "weights")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor.numpy())
    assert not torch.equal(expected["0.weight"], net()[0].state_dict()["0.weight"])


def test_the_folder_of_a_training_stands_for_its_checkpoint(
    compiled: Compiled, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    single = checkpoint.rename(tmp_path / "single")
    checkpoint.mkdir()
    assert "holds no checkpoint of a training; give" in str(export(tmp_path, "weights").exception)
    checkpoint.rmdir()
    assert "checkpoint does not exist; give" in str(export(tmp_path, "weights").exception)
    checkpoint.mkdir()
    shutil.copy(single, checkpoint / "step-0000000003.safetensors")
    assert export(tmp_path, "weights").exit_code == 0
    expected = compiled.state_dict(single)
    np.testing.assert_array_equal(load_file(tmp_path / "weights")["2.bias"], expected["2.bias"])


def test_adapters_equal_peft_files(compiled: Compiled, tmp_path: Path) -> None:
    compiled.save_adapters(tmp_path / "checkpoint", tmp_path / "expected")

    result = export(tmp_path, "adapter", "--adapters", "--model", MODEL)

    assert result.exit_code == 0, result.output
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        found = (tmp_path / "adapter" / name).read_bytes()
        assert found == (tmp_path / "expected" / name).read_bytes()


@pytest.mark.usefixtures("compiled")
def test_invalid_exports_are_reported(tmp_path: Path) -> None:
    assert "need the --model" in export(tmp_path, "adapter", "--adapters").output
    wrong = export(tmp_path, "weights", "--model", f"{__name__}:other").exception
    assert isinstance(wrong, ArtifactError)
    assert "give the model that it was compiled from" in str(wrong)
    foreign = export(tmp_path, "net.onnx", "--model", MODEL).exception
    assert "this one is of PyTorch; give a name that ends in .safetensors" in str(foreign)
    assert not (tmp_path / "net.onnx").exists()
    assert "weights are written as safetensors" in export(tmp_path, "tuned.npz").output

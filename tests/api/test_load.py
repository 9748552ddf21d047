"""`pockengine.load`, and descriptions of artifacts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import pockengine
from pockengine.errors import ArtifactError
from pockengine.tests.frontends.torch.nets import convolution_and_head


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(8, 1, 6, 6), torch.randint(0, 3, (8,))


def test_a_loaded_artifact_trains_and_exports_the_models_weights(tmp_path: Path) -> None:
    net, (x, y) = convolution_and_head(), batch()
    compiled = pockengine.compile(net, (x,), loss="cross_entropy", folder=tmp_path / "net")
    loaded = pockengine.load(tmp_path / "net")
    inputs = {"input": x.numpy(), "target": y.numpy()}
    with compiled.session() as one, loaded.session() as other:
        for _ in range(3):
            losses = [float(s.train_step(inputs, lr=0.1)["loss"]) for s in (one, other)]
            assert losses[0] == losses[1]
        one.save(tmp_path / "checkpoint")
        expected = compiled.state_dict(one)
        for source in (other, tmp_path / "checkpoint", str(tmp_path / "checkpoint")):
            found = loaded.weights(source)
            assert found.keys() == expected.keys()
            for name, tensor in expected.items():
                np.testing.assert_array_equal(found[name], tensor.numpy())
        loaded.save_weights(other, tmp_path / "weights")
    net.load_state_dict(
        {name: torch.from_numpy(array) for name, array in load_file(tmp_path / "weights").items()}
    )


def test_a_place_without_an_artifact_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("")
    for place, fact in (
        (tmp_path, "it has no manifest.json"),
        (tmp_path / "absent", "there is no such folder"),
        (file, "it is a file"),
        (file / "absent", f"{file} is a file, not a folder"),
    ):
        with pytest.raises(ArtifactError, match=f"{place} is no artifact: {fact}; compile"):
            pockengine.load(place)


def test_representations_are_a_few_lines(tmp_path: Path) -> None:
    compiled = pockengine.compile(
        convolution_and_head(), batch()[:1], loss="cross_entropy", folder=tmp_path / "n"
    )
    loaded = pockengine.load(tmp_path / "n")
    for thing in (compiled, loaded, compiled.artifact):
        text = repr(thing)
        assert len(text) < 600
        assert text.count("\n") < 6
        for word in ("Sequential", "host", "train", "4 params, 4 of them trained", str(tmp_path)):
            assert word in text


def test_all_errors_share_one_public_base_class(tmp_path: Path) -> None:
    with pytest.raises(pockengine.PockEngineError, match="nowhere"):
        pockengine.load(tmp_path / "nowhere")

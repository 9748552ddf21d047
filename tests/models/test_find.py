"""Values of MODEL with PyTorch: listed names, functions, Hugging Face folders."""

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
)

from pockengine.errors import ImportModelError
from pockengine.models.find import find_model
from pockengine.models.hugging_face import model_class

SMALL = {
    "vocab_size": 50,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
}
FACTORIES = """
import torch

def named(batch):
    return torch.nn.Linear(3, 2), {"input": torch.randn(batch, 3)}

def with_loss():
    return torch.nn.Linear(3, 2), [torch.randn(4, 3)], "mse"
"""


def saved(model: PreTrainedModel, folder: Path) -> str:
    model.save_pretrained(folder)
    return str(folder)


def test_listed_model_has_the_requested_classes() -> None:
    found = find_model("cnn-8", batch=3, classes=7)

    assert found.model.training
    assert found.graph().outputs["loss"].shape == ()
    assert [tuple(x.shape) for x in found.inputs.values()] == [(3, 1, 8, 8)]


def test_function_in_the_current_folder_may_name_inputs_or_its_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_this_folder.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [])  # console scripts lack the current folder

    named, lossy = find_model("of_this_folder:named", 5), find_model("of_this_folder:with_loss")

    assert named.graph().input("input").shape == (5, 3)
    assert lossy.loss == "mse"
    assert lossy.graph().input("target").shape == (4, 2)


def test_error_for_a_missing_function_names_those_of_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets_of_mine.py").write_text(
        "def small():\n    pass\n\n\ndef large():\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImportModelError, match=r"has no function medium; it has large, small$"):
        find_model("nets_of_mine:medium")


@pytest.mark.parametrize("name", ["cnn-8", "net:factory"])
def test_shapes_are_for_files(name: str) -> None:
    with pytest.raises(ImportModelError, match=f"{name} has its own: leave --shape out"):
        find_model(name, None, {"x": (1,)})


def test_hugging_face_classifier_is_loaded_with_its_weights(tmp_path: Path) -> None:
    model = BertForSequenceClassification(BertConfig(**SMALL, num_labels=3))
    found = find_model(saved(model, tmp_path), batch=2, shapes={"input_ids": (2, 5)})

    graph = found.graph()
    assert graph.input("input_ids").shape == (2, 5)
    assert graph.input("target").shape == (2,)
    weight = found.model.state_dict()["classifier.weight"]
    assert torch.equal(weight, model.state_dict()["classifier.weight"])


def test_hugging_face_language_model_has_its_own_loss(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=50, n_positions=12, n_embd=8, n_layer=1, n_head=2)

    found = find_model(saved(GPT2LMHeadModel(config), tmp_path))

    assert found.loss is None
    assert found.graph().input("labels").shape == (1, 12)


def test_folders_with_code_pickles_or_no_head_are_refused(tmp_path: Path) -> None:
    folder = Path(saved(BertModel(BertConfig(**SMALL)), tmp_path / "bert"))
    with pytest.raises(ImportModelError, match="a BertModel, which has no loss that is known"):
        find_model(str(folder))

    weights = folder / "model.safetensors"
    torch.save({}, folder / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ImportModelError, match="must lie in it as safetensors"):
        find_model(str(folder))

    config = json.loads((folder / "config.json").read_text())
    for kind in ("os", "AutoModel.x", "Nothing"):
        (folder / "config.json").write_text(json.dumps({**config, "architectures": [kind]}))
        with pytest.raises(ImportModelError, match="is no model of transformers"):
            find_model(str(folder))

    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ImportModelError, match="an adapter of PEFT"):
        find_model(str(folder))


def test_error_names_a_folder_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match=r"holds no config\.json; give a folder that"):
        model_class(tmp_path)


def test_error_for_an_empty_folder_lists_supported_files(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match=r"config\.json, a SavedModel saved_model\.pb"):
        find_model(str(tmp_path))
    with pytest.raises(ImportModelError, match="leave --classes out"):
        find_model(str(tmp_path), classes=3)

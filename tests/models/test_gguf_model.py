"""Decoders as GGUF files: the tensors and keys that llama.cpp reads."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import transformers

from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.contents import InMemory
from pockengine.errors import ImportModelError
from pockengine.models.gguf_model import TYPES, write_gguf_model
from pockengine.models.gguf_names import gguf_tensors
from pockengine.tests.finetune.lm.decoders import llama


@pytest.mark.parametrize("storage", TYPES)
def test_tensors_and_keys_are_those_of_the_model(storage: str, tmp_path: Path) -> None:
    module = llama(hidden_size=64, intermediate_size=128, rope_theta=5e4)
    weights = {name: each.detach().numpy() for name, each in module.named_parameters()}
    contents = {name: InMemory(array) for name, array in weights.items()}
    path = tmp_path / "model.gguf"
    write_gguf_model(path, module.config, contents, TYPES[storage])
    found = gguf_tensors(path, module.config)
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        expected = array
        if storage != "f32" and array.ndim == 2:
            blocks = Blocks(4 if storage == "int4" else 8, 1)
            expected = blocks.decode(*blocks.encode(array))
        np.testing.assert_array_equal(found[name].read(), expected, err_msg=name)
    fields = gguf.GGUFReader(path).fields
    expected_keys = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "none",
        "llama.block_count": 2,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.key_length": 16,
        "llama.feed_forward_length": 128,
    }
    assert {key: fields[key].contents() for key in expected_keys} == expected_keys
    assert fields["llama.rope.freq_base"].contents() == pytest.approx(5e4)


@pytest.mark.parametrize(
    "config",
    [
        transformers.GPT2Config(),
        transformers.LlamaConfig(
            rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
        ),
    ],
    ids=["family", "rotation"],
)
def test_unknown_keys_are_refused(config: object, tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match="a GGUF file is written for llama, mistral"):
        write_gguf_model(tmp_path / "model.gguf", config, {}, TYPES["f32"])
    assert not (tmp_path / "model.gguf").exists()

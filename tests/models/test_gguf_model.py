"""Decoders as GGUF files: the tensors and keys that llama.cpp reads."""

from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers

from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.contents import InMemory
from pockengine.compiler.ir.scalars import converted
from pockengine.compiler.ir.types import F32, DType
from pockengine.compiler.passes.forward.store_weights import BITS
from pockengine.compiler.sparse.lora import Adapter
from pockengine.errors import ImportModelError
from pockengine.models.gguf_adapters import write_gguf_adapters
from pockengine.models.gguf_model import TYPES, write_gguf_model
from pockengine.models.gguf_names import gguf_tensors
from pockengine.tests.finetune.lm.decoders import llama


def rounded(numbers: np.ndarray, storage: str) -> np.ndarray:
    """Return what the stored numbers decode to."""
    if storage in BITS:
        blocks = Blocks(BITS[storage], 1)
        return blocks.decode(*blocks.encode(numbers))
    return converted(converted(numbers, DType(storage)), F32)


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
        if array.ndim == 2:
            expected = rounded(array, storage)
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


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama_cpp is not installed")
def test_llama_cpp_runs_the_model_with_adapters(tmp_path: Path) -> None:
    """Its logits are those of transformers, with the adapters added to the weights."""
    import llama_cpp

    module = llama(hidden_size=64, intermediate_size=128)
    contents = {name: InMemory(each.detach().numpy()) for name, each in module.named_parameters()}
    write_gguf_model(tmp_path / "model.gguf", module.config, contents, TYPES["f32"])
    adapters = [
        Adapter(f"model.layers.{layer}.{part}.weight", 4, alpha=8.0)
        for layer, part in ((0, "self_attn.q_proj"), (1, "self_attn.k_proj"), (1, "mlp.down_proj"))
    ]
    values, rng = {}, np.random.default_rng(0)
    for adapter in adapters:
        weight = module.get_parameter(adapter.weight)
        outputs, inputs = weight.shape
        values[adapter.a] = 0.2 * rng.standard_normal((inputs, 4)).astype(np.float32)
        values[adapter.b] = 0.2 * rng.standard_normal((4, outputs)).astype(np.float32)
        added = adapter.scale * (values[adapter.a] @ values[adapter.b]).T
        weight.data += torch.from_numpy(added)
    write_gguf_adapters(tmp_path / "adapter.gguf", adapters, values, module.config)

    ids = rng.integers(3, module.config.vocab_size, 12).tolist()
    files = {"model_path": tmp_path / "model.gguf", "lora_path": tmp_path / "adapter.gguf"}
    logits = []
    for names in (files, {"model_path": files["model_path"]}):
        paths = {name: str(path) for name, path in names.items()}
        model = llama_cpp.Llama(**paths, n_ctx=64, n_threads=1, verbose=False)
        model.eval(ids)
        last = llama_cpp.llama_get_logits_ith(model.ctx, -1)
        logits.append(np.ctypeslib.as_array(last, shape=(model.n_vocab(),)).copy())
    with torch.no_grad():
        expected = module(torch.tensor([ids])).logits[0, -1].numpy()
    size = np.abs(expected).max()
    assert np.abs(logits[0] - expected).max() < 5e-3 * size  # its cache is f16
    assert np.abs(logits[1] - expected).max() > 0.1 * size  # without the adapters

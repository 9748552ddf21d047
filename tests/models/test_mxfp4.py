"""MXFP4 experts of gpt-oss: as transformers decodes them, as the OCP specification defines them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.scalars import DType
from pockengine.compiler.storage import Storage
from pockengine.errors import ImportModelError
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.gguf_names import gguf_tensors
from pockengine.models.packed import remark, unpacked
from pockengine.tests.models.lora_steps import of_peft, ours
from pockengine.tests.models.test_gguf import written
from pockengine.tests.zoo.zoo_language import EXPERTS, GROUPED, build

CONFIG = SimpleNamespace(quantization_config={"quant_method": "mxfp4"})
GPT_OSS = {
    **GROUPED,
    **EXPERTS,
    "intermediate_size": 64,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 4,
}
PLACE = "model.layers.0.mlp.experts.down_proj"


def packed(
    shape: tuple[int, int, int], lowest: int = 112, highest: int = 122
) -> tuple[np.ndarray, np.ndarray]:
    """Return random blocks and scales of [experts, out, in] numbers."""
    rng = np.random.default_rng(0)
    experts, rows, columns = shape
    blocks = rng.integers(0, 256, (experts, rows, columns // 32, 16), np.uint8)
    return blocks, rng.integers(lowest, highest, blocks.shape[:3], np.uint8)


def read(blocks: np.ndarray | None, scales: np.ndarray | None) -> Contents:
    arrays = {"blocks": blocks, "scales": scales}
    stored = {f"{PLACE}_{n}": InMemory(one) for n, one in arrays.items() if one is not None}
    (file,) = unpacked(Path("model"), {"a.safetensors": stored}, CONFIG).values()
    assert list(file) == [PLACE]
    return file[PLACE]


def e2m1(code: int) -> float:
    """Return a code's number: a sign, two bits of an exponent of bias 1, one of a fraction."""
    exponent, fraction = code >> 1 & 3, code & 1
    size = (1 + fraction / 2) * 2.0 ** (exponent - 1) if exponent else fraction / 2
    return -size if code & 8 else size


def test_numbers_are_those_of_the_specification() -> None:
    pairs = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    scales = np.arange(104, 120, dtype=np.uint8).reshape(1, 1, 16)
    expected = [
        [e2m1(code) * 2.0 ** (int(scale) - 127) for byte in row for code in (byte & 15, byte >> 4)]
        for row, scale in zip(pairs[0, 0].tolist(), scales[0, 0], strict=True)
    ]
    np.testing.assert_array_equal(read(pairs, scales).read().reshape(16, 32), np.float32(expected))


@pytest.mark.parametrize(("lowest", "highest"), [(104, 128), (2, 252)])
def test_experts_are_decoded_as_by_transformers(lowest: int, highest: int) -> None:
    blocks, scales = packed((2, 6, 96), lowest, highest)
    expected = convert_moe_packed_tensors(
        torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32
    )
    np.testing.assert_array_equal(read(blocks, scales).read(), expected.numpy())


def test_int8_blocks_have_the_same_numbers() -> None:
    weight = read(*packed((2, 6, 96), 104, 144))
    assert isinstance(weight, Grid)
    blocks = Blocks(8, 1)
    stored = weight.in_blocks(blocks)
    assert stored is not None
    np.testing.assert_array_equal(blocks.decode(*stored), weight.read())
    assert weight.in_blocks(Blocks(4, 1)) is None


@pytest.mark.parametrize(
    ("lowest", "highest", "storage"), [(104, 144, "int8"), (103, 104, "bf16"), (144, 145, "bf16")]
)
def test_note_names_the_exact_storage(lowest: int, highest: int, storage: str) -> None:
    shards = {"a": {PLACE: read(*packed((2, 32, 64), lowest, highest))}}
    assert remark(shards, CONFIG) == (
        f"MXFP4 weights: --frozen-weights {storage} keeps their exact values"
    )


def in_gguf(blocks: np.ndarray, scales: np.ndarray) -> tuple[int, tuple[int, ...], bytes]:
    """Return a tensor of ggml's type 39: a scale, and 16 codes below the 16 others."""
    pairs = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    codes = pairs[..., :16] | (pairs[..., 16:] << 4)
    data = np.concatenate([scales[..., None], codes], axis=-1)
    return 39, (*scales.shape[:2], scales.shape[2] * 32), data.tobytes()


GATE, UP = (f"blk.0.ffn_{part}_exps.weight" for part in ("gate", "up"))
GGUF_CONFIG = SimpleNamespace(model_type="gpt_oss")


def test_gguf_has_the_same_experts_with_gates_apart(tmp_path: Path) -> None:
    blocks, scales = packed((2, 6, 96))
    parts = {GATE: (blocks[:, ::2], scales[:, ::2]), UP: (blocks[:, 1::2], scales[:, 1::2])}
    tensors = {name: in_gguf(*pair) for name, pair in parts.items()}
    found = gguf_tensors(written(tmp_path / "a.gguf", tensors), GGUF_CONFIG)
    (weight,) = found.values()
    assert list(found) == ["model.layers.0.mlp.experts.gate_up_proj"]
    np.testing.assert_array_equal(weight.read(), read(blocks, scales).read())
    assert isinstance(weight, Grid)
    stored = weight.in_blocks(Blocks(8, 1))
    assert stored is not None
    np.testing.assert_array_equal(Blocks(8, 1).decode(*stored), weight.read())


def test_gates_without_their_other_products_are_refused(tmp_path: Path) -> None:
    whole, narrow = in_gguf(*packed((2, 6, 96))), in_gguf(*packed((2, 6, 64)))
    for tensors, fact in (
        ({GATE: whole}, "f32[2,6,96], their other products None"),
        ({GATE: whole, UP: narrow}, "their other products f32[2,6,64]; convert"),
        ({GATE: (0, (4,), bytes(16))}, "gate_proj.weight is f32[4], without a dimension of"),
    ):
        path = written(tmp_path / "a.gguf", tensors)
        with pytest.raises(ImportModelError) as caught:
            gguf_tensors(path, GGUF_CONFIG)
        assert fact in str(caught.value)


def pack_folder(folder: Path) -> Any:
    """Save a gpt-oss with packed experts; return its module with the decoded numbers."""
    torch.manual_seed(0)
    module = build("GptOss", "GptOssForCausalLM", **GPT_OSS)
    module.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for name, parameter in module.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, inputs, outputs = parameter.shape
            pair = [torch.from_numpy(one) for one in packed((experts, outputs, inputs))]
            del tensors[name]
            tensors |= {f"{name}_blocks": pair[0], f"{name}_scales": pair[1]}
            parameter.data = convert_moe_packed_tensors(*pair, dtype=torch.float32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    about = json.loads((folder / "config.json").read_text())
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
    about["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": skipped}
    (folder / "config.json").write_text(json.dumps(about))
    return module


def test_lora_over_packed_experts_matches_peft_over_decoded_ones(tmp_path: Path) -> None:
    module = pack_folder(tmp_path)
    note = open_causal_lm(tmp_path).remark
    assert note == "MXFP4 weights: --frozen-weights int8 keeps their exact values"
    exact = ours(tmp_path)
    tuned = ours(tmp_path, storage=Storage("int8"))
    assert tuned.stored[PLACE] is DType.I8
    assert exact.losses == pytest.approx(of_peft(module, exact), rel=1e-4)
    assert tuned.losses == pytest.approx(exact.losses, rel=1e-6)
    assert len(set(exact.losses)) == len(exact.losses)


def error_message(blocks: np.ndarray | None, scales: np.ndarray | None) -> str:
    with pytest.raises(ImportModelError) as caught:
        read(blocks, scales)
    return str(caught.value)


def test_invalid_experts_are_refused() -> None:
    blocks, scales = packed((2, 6, 96))
    not_number = scales.copy()
    not_number[1, 2, 0] = 255
    fact = f"model: {PLACE} is no layer of MXFP4: its scale at [1, 2, 0] is NaN"
    assert fact in error_message(blocks, not_number)
    assert "copy the folder again" in error_message(blocks, None)
    assert "with scales u8[2,6,2]" in error_message(blocks, scales[..., :2])
    assert "i8[2,6,3,16]" in error_message(blocks.view(np.int8), scales)
    assert "u8[2,6,48]" in error_message(blocks.reshape(2, 6, 48), scales)
    assert "u8[2,6,6,8]" in error_message(blocks.reshape(2, 6, 6, 8), scales)

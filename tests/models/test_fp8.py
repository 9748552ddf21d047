"""Weights in FP8: numbers of each code, scales of blocks and rows, folders, and errors."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pockengine.compiler.ir.contents import Contents, mapped
from pockengine.compiler.ir.floats8 import FLOATS8
from pockengine.errors import ImportModelError
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.packed import unpacked
from pockengine.tests.models.lora_steps import of_peft, ours
from pockengine.tests.zoo.zoo_language import GROUPED, build

BLOCK = [16, 32]
BLOCKS = {"quant_method": "fp8", "weight_block_size": BLOCK}
ROWS = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
}
BLOCKS_COMPRESSED = {
    **ROWS,
    "config_groups": {
        "rows": {"weights": {"strategy": "block", "type": "float", "block_structure": [128, 128]}},
        "g": {"weights": {"strategy": "block", "type": "float", "block_structure": "16x32"}},
    },
}
TYPES = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"}


@pytest.mark.parametrize("name", TYPES)
def test_each_code_is_the_number_of_pytorch(name: str, tmp_path: Path) -> None:
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    numbers = codes.view(getattr(torch, TYPES[name]))
    np.testing.assert_array_equal(FLOATS8[name], numbers.float().numpy())
    save_file({"x": numbers.reshape(2, 128)}, tmp_path / "x.safetensors")
    np.testing.assert_array_equal(
        mapped(tmp_path / "x.safetensors")["x"].read(), FLOATS8[name].reshape(2, 128)
    )


def quantized(weight: torch.Tensor, block: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a weight in E4M3 and the scales of its blocks, the last of which may be smaller."""
    rows, columns = (-(-size // each) for size, each in zip(weight.shape, block, strict=True))
    scales = torch.rand(rows, columns) * 0.01 + 1e-3
    each = scales.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return (weight / each[: len(weight), : weight.shape[1]]).to(torch.float8_e4m3fn), scales


def read(folder: Path, settings: Mapping[str, Any], **tensors: torch.Tensor) -> Contents:
    stored = {f"m.proj.{name}": tensor.contiguous() for name, tensor in tensors.items()}
    save_file(stored, folder / "a.safetensors")
    shards = {"a.safetensors": mapped(folder / "a.safetensors")}
    (file,) = unpacked(folder, shards, SimpleNamespace(quantization_config=settings)).values()
    assert list(file) == ["m.proj.weight"]
    return file["m.proj.weight"]


@pytest.mark.parametrize("settings", [BLOCKS, BLOCKS_COMPRESSED])
@pytest.mark.parametrize("shape", [(32, 64), (20, 70), (20, 30)])
def test_each_block_has_a_scale(
    shape: tuple[int, int], settings: Mapping[str, Any], tmp_path: Path
) -> None:
    weight, scales = quantized(torch.randn(shape), BLOCK)
    name = "weight_scale_inv" if settings is BLOCKS else "weight_scale"
    found = read(tmp_path, settings, **{"weight": weight, name: scales}).read()
    numbers = weight.float().numpy()
    for row, column in np.ndindex(shape):
        scale = scales[row // BLOCK[0], column // BLOCK[1]].numpy()
        assert found[row, column] == numbers[row, column] * scale


@pytest.mark.parametrize("settings", [ROWS, {"quant_method": "fp8"}])
@pytest.mark.parametrize("scales", [(12, 1), (1,), (12, 4)])
def test_rows_groups_and_tensors_have_scales(
    scales: tuple[int, ...], settings: Mapping[str, Any], tmp_path: Path
) -> None:
    weight = torch.randn(12, 64).to(torch.float8_e4m3fn)
    factors = torch.rand(scales).to(torch.bfloat16)
    found = read(
        tmp_path, settings, weight=weight, weight_scale=factors, input_scale=torch.ones(1)
    ).read()
    columns = scales[1] if len(scales) > 1 else 1
    expected = weight.float() * factors.float().repeat_interleave(64 // columns, -1)
    np.testing.assert_array_equal(found, expected.numpy())


def test_lora_over_a_folder_in_fp8_matches_peft_over_decoded_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = build("Qwen3", "Qwen3ForCausalLM", **{**GROUPED, "hidden_size": 64})
    module.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors, parameters = load_file(file), dict(module.named_parameters())
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight, scales = quantized(tensors[name], BLOCK)
        tensors |= {name: weight, f"{name}_scale_inv": scales}
        each = scales.repeat_interleave(BLOCK[0], 0).repeat_interleave(BLOCK[1], 1)
        decoded = weight.float() * each[: len(weight), : weight.shape[1]]
        parameters[name].data = decoded
    save_file(tensors, file, {"format": "pt"})
    about = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**about, "quantization_config": BLOCKS}))

    note = open_causal_lm(tmp_path).remark
    assert note == "FP8 weights: decoded to f32, as no --frozen-weights keeps their exact values"
    tuned = ours(tmp_path)
    assert tuned.losses == pytest.approx(of_peft(module, tuned), rel=1e-4)
    assert len(set(tuned.losses)) == len(tuned.losses)


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_scales_are_finite(scale: float, tmp_path: Path) -> None:
    scales = torch.ones(1, 2)
    scales[0, 1] = scale
    weight = torch.ones(16, 64).to(torch.float8_e4m3fn)
    found = read(tmp_path, BLOCKS, weight=weight, weight_scale_inv=scales)
    fact = rf"m\.proj is no layer of FP8: its scale at \[0, 1\] is {scale}"
    with pytest.raises(ImportModelError, match=fact):
        found.read()


@pytest.mark.parametrize(
    ("settings", "tensors", "fact"),
    [
        (BLOCKS, {"weight_scale_inv": torch.ones(2, 3)}, "scales f32[2,3] of (16, 32)"),
        ({**BLOCKS, "weight_block_size": [0, 0]}, {"weight_scale_inv": torch.ones(2, 3)}, "(0, 0)"),
        (
            {**ROWS, "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int"}}}},
            {"weight_scale": torch.ones(12, 1)},
            "and 8-bit integers are read",
        ),
        (ROWS, {"weight_scale": torch.ones(5, 1)}, "not divisible into [5, 1] scales"),
        (ROWS, {"weight_scale": torch.ones(12)}, "with scales f32[12]"),
        (ROWS, {"weight_scale": torch.full((12, 1), 120, dtype=torch.uint8)}, "scales u8[12,1]"),
        (BLOCKS, {"weight": torch.ones(3), "weight_scale_inv": torch.ones(1)}, "weight is f32[3]"),
    ],
)
def test_invalid_layers_are_refused(
    settings: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], fact: str, tmp_path: Path
) -> None:
    weight = torch.ones(12, 64).to(torch.float8_e4m3fn)
    with pytest.raises(ImportModelError, match=r"m\.proj is no layer of") as caught:
        read(tmp_path, settings, **{"weight": weight, **tensors})
    assert fact in str(caught.value)


@pytest.mark.parametrize("settings", [None, {"quant_method": "fp8"}])
@pytest.mark.parametrize("scale", ["proj.scale", "proj.qscale_weight", "proj.weight_scale_2"])
def test_scales_of_unknown_names_are_refused(
    scale: str, settings: Mapping[str, Any] | None, tmp_path: Path
) -> None:
    stored = {
        "m.proj.weight": torch.ones(4, 8).to(torch.float8_e4m3fn),
        f"m.{scale}": torch.ones(1),
    }
    save_file(stored, tmp_path / "a.safetensors")
    shards = {"a.safetensors": mapped(tmp_path / "a.safetensors")}
    with pytest.raises(ImportModelError, match=f"m.proj.weight has 8-bit .* scale m.{scale} is of"):
        unpacked(tmp_path, shards, SimpleNamespace(quantization_config=settings))
    del shards["a.safetensors"][f"m.{scale}"]
    assert unpacked(tmp_path, shards, SimpleNamespace(quantization_config=settings)) == shards

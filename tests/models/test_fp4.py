"""Linear layers in NVFP4, MXFP4 and MXFP8, as compressed-tensors and ModelOpt write them."""

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
from pockengine.compiler.storage import Storage
from pockengine.errors import ImportModelError
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.packed import unpacked
from pockengine.tests.models.lora_steps import of_peft, ours
from pockengine.tests.zoo.zoo_language import GROUPED, build

ROWS, COLUMNS = 6, 64
SIZES = {**GROUPED, "hidden_size": 64, "intermediate_size": 96}
NUMBERS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
FBGEMM = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}

Tensors = dict[str, torch.Tensor]


def compressed(form: str, bits: int = 4) -> dict[str, Any]:
    """Return the settings of a folder of compressed-tensors."""
    weights = {"num_bits": bits, "type": "float", "symmetric": True}
    groups = {"group_0": {"targets": ["Linear"], "format": form, "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


NVFP4 = compressed("nvfp4-pack-quantized")
MXFP4 = compressed("mxfp4-pack-quantized")
MXFP8 = compressed("mxfp8-quantized", 8)


def pairs_of(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random numbers E2M1, and their codes: the even column in the lower half of a byte."""
    codes = torch.randint(0, 16, (rows, columns), dtype=torch.uint8)
    numbers = NUMBERS[(codes & 7).long()] * torch.where(codes > 7, -1, 1)
    return numbers, codes[:, ::2] | codes[:, 1::2] << 4


def nvfp4(rows: int, columns: int, form: Mapping[str, Any]) -> tuple[Tensors, torch.Tensor]:
    """Return a layer's tensors and its numbers."""
    numbers, pairs = pairs_of(rows, columns)
    scales = (torch.rand(rows, columns // 16) * 400 + 1).to(torch.float8_e4m3fn)
    if form is MODELOPT:
        factor = torch.rand(()) * 1e-4 + 1e-5
        tensors = {"weight": pairs, "weight_scale_2": factor, "input_scale": torch.ones(())}
        each = scales.float() * factor
    else:
        factor = torch.rand(1) * 1e4 + 1e4
        tensors = {"weight_packed": pairs, "weight_global_scale": factor}
        tensors["input_global_scale"] = torch.ones(1)
        each = scales.float() / factor
    return {**tensors, "weight_scale": scales}, numbers * each.repeat_interleave(16, 1)


def mxfp4(rows: int, columns: int, form: Mapping[str, Any]) -> tuple[Tensors, torch.Tensor]:
    """Return a layer's tensors and its numbers."""
    numbers, pairs = pairs_of(rows, columns)
    exponents = torch.randint(115, 122, (rows, columns // 32), dtype=torch.uint8)
    each = torch.exp2(exponents.float() - 127).repeat_interleave(32, 1)
    return {"weight_packed": pairs, "weight_scale": exponents}, numbers * each


def mxfp8(rows: int, columns: int, form: Mapping[str, Any]) -> tuple[Tensors, torch.Tensor]:
    """Return a layer's tensors and its numbers."""
    weight = torch.randn(rows, columns).to(torch.float8_e4m3fn)
    exponents = torch.randint(110, 130, (rows, columns // 32), dtype=torch.uint8)
    each = torch.exp2(exponents.float() - 127).repeat_interleave(32, 1)
    return {"weight": weight, "weight_scale": exponents}, weight.float() * each


def fp8(rows: int, columns: int, form: Mapping[str, Any]) -> tuple[Tensors, torch.Tensor]:
    """Return a layer's tensors and its numbers: a scale for each row, or one for all."""
    weight = torch.randn(rows, columns).to(torch.float8_e4m3fn)
    scale = torch.rand((rows, 1) if form is FBGEMM else ())
    return {"weight": weight, "weight_scale": scale}, weight.float() * scale


FORMS = {
    "compressed-nvfp4": (nvfp4, NVFP4),
    "compressed-mxfp4": (mxfp4, MXFP4),
    "compressed-mxfp8": (mxfp8, MXFP8),
    "modelopt-nvfp4": (nvfp4, MODELOPT),
    "modelopt-fp8": (fp8, {"quant_method": "modelopt", "quant_algo": "FP8"}),
    "fbgemm": (fp8, FBGEMM),
}


def read(folder: Path, settings: Mapping[str, Any], tensors: Tensors) -> Contents:
    stored = {f"m.proj.{name}": tensor.contiguous() for name, tensor in tensors.items()}
    save_file(stored, folder / "a.safetensors")
    shards = {"a.safetensors": mapped(folder / "a.safetensors")}
    (file,) = unpacked(folder, shards, SimpleNamespace(quantization_config=settings)).values()
    assert list(file) == ["m.proj.weight"]
    return file["m.proj.weight"]


@pytest.mark.parametrize("name", FORMS)
def test_numbers_are_codes_times_scales(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, settings = FORMS[name]
    tensors, numbers = make(ROWS, COLUMNS, settings)
    np.testing.assert_array_equal(read(tmp_path, settings, tensors).read(), numbers.numpy())


def quantize_folder(folder: Path, name: str) -> Any:
    """Save a Qwen3 with quantized projections; return its module, decoded."""
    torch.manual_seed(0)
    make, settings = FORMS[name]
    module = build("Qwen3", "Qwen3ForCausalLM", **SIZES)
    module.save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors, parameters = load_file(file), dict(module.named_parameters())
    for weight in [weight for weight in tensors if weight.endswith("_proj.weight")]:
        rows, columns = tensors.pop(weight).shape
        layer, numbers = make(rows, columns, settings)
        place = weight.removesuffix("weight")
        tensors |= {f"{place}{part}": tensor.contiguous() for part, tensor in layer.items()}
        parameters[weight].data = numbers
    save_file(tensors, file, {"format": "pt"})
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, "quantization_config": settings}))
    return module


@pytest.mark.parametrize("name", ["compressed-nvfp4", "modelopt-nvfp4"])
def test_lora_matches_peft_over_decoded_weights(name: str, tmp_path: Path) -> None:
    module = quantize_folder(tmp_path, name)
    tuned = ours(tmp_path)
    assert tuned.losses == pytest.approx(of_peft(module, tuned), rel=1e-4)
    assert len(set(tuned.losses)) == len(tuned.losses)


def test_blocks_of_int8_keep_mxfp4(tmp_path: Path) -> None:
    quantize_folder(tmp_path, "compressed-mxfp4")
    note = open_causal_lm(tmp_path).remark
    assert note == "compressed-tensors weights: --frozen-weights int8 keeps their exact values"
    exact, stored = ours(tmp_path), ours(tmp_path, storage=Storage("int8"))
    assert stored.losses == pytest.approx(exact.losses, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "changes", "fact"),
    [
        ("compressed-nvfp4", {"weight_global_scale": None}, "it has no weight_global_scale"),
        (
            "compressed-nvfp4",
            {"weight_global_scale": torch.zeros(1)},
            r"global_scale is \[0",
        ),
        ("compressed-nvfp4", {"weight_scale": torch.ones(ROWS, 4)}, "8-bit floats are read"),
        ("compressed-mxfp4", {"weight_scale": torch.full((ROWS, 2), 255).byte()}, "0, 0. is NaN"),
        ("compressed-mxfp8", {"weight_scale": torch.ones(ROWS, 2)}, "E8M0 as u8 is read"),
        ("modelopt-nvfp4", {"weight_scale_2": None}, "it has no weight_scale_2"),
        ("modelopt-nvfp4", {"weight_scale_2": torch.tensor(float("nan"))}, "scale at .* is nan"),
        ("modelopt-nvfp4", {"pre_quant_scale": torch.ones(COLUMNS)}, "pre_quant_scale"),
    ],
)
def test_invalid_layers_are_refused(
    name: str, changes: Mapping[str, torch.Tensor | None], fact: str, tmp_path: Path
) -> None:
    make, settings = FORMS[name]
    tensors, _ = make(ROWS, COLUMNS, settings)
    changed = {part: one for part, one in {**tensors, **changes}.items() if one is not None}
    with pytest.raises(ImportModelError, match=rf"m\.proj is no layer of .*{fact}"):
        read(tmp_path, settings, changed)

"""Folders of compressed-tensors: packed words, groups in another order, formats and errors."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.scalars import DType
from pockengine.compiler.storage import Storage
from pockengine.errors import ImportModelError
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.packed import unpacked
from pockengine.tests.models.lora_steps import of_peft, ours
from pockengine.tests.zoo.zoo_language import EXPERTS, GROUPED, build

GROUP, ROWS, COLUMNS = 32, 12, 96
WEIGHTS = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
SETTINGS = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS}},
    "ignore": ["lm_head"],
    "sparsity_config": {},
}
RNG = np.random.default_rng(0)


def words(codes: np.ndarray) -> np.ndarray:
    """Pack rows of signed codes of 4 bits, the first one into the lowest bits of an i32."""
    rows, columns = codes.shape
    packed = np.zeros((rows, -(-columns // 8)), np.uint32)
    for column in range(columns):
        code = (codes[:, column] + 8).astype(np.uint32)
        packed[:, column // 8] |= code << np.uint32(4 * (column % 8))
    return packed.view(np.int32)


def layer(**changes: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the tensors of a layer by the last part of their names."""
    codes = RNG.integers(-8, 8, (ROWS, COLUMNS))
    zeros = RNG.integers(-8, 8, (ROWS, COLUMNS // GROUP))
    tensors: dict[str, np.ndarray | None] = {
        "packed": words(codes),
        "scale": RNG.uniform(0.01, 0.02, zeros.shape).astype(np.float16),
        "zero_point": np.ascontiguousarray(words(zeros.T).T),
        "shape": np.array([ROWS, COLUMNS]),
        **changes,
    }
    return {name: array for name, array in tensors.items() if array is not None}


def read(tensors: Mapping[str, np.ndarray], **settings: Any) -> Contents:
    stored = {f"m.proj.weight_{name}": InMemory(array) for name, array in tensors.items()}
    config = SimpleNamespace(quantization_config={**SETTINGS, **settings})
    (file,) = unpacked(Path("model"), {"a.safetensors": stored}, config).values()
    assert list(file) == ["m.proj.weight"]
    return file["m.proj.weight"]


def number(tensors: Mapping[str, np.ndarray], row: int, column: int, group: int) -> np.float32:
    """Return an element by the definition of the format."""
    code = int(tensors["packed"][row, column // 8]) >> 4 * (column % 8) & 15
    zero = int(tensors["zero_point"][row // 8, group]) >> 4 * (row % 8) & 15
    return np.float32(code - zero) * np.float32(tensors["scale"][row, group])


@pytest.mark.parametrize("ordered", [False, True])
def test_groups_have_a_scale_and_a_zero_point(ordered: bool) -> None:
    groups = np.arange(COLUMNS) // GROUP
    if ordered:
        groups = np.random.default_rng(1).permutation(groups)
    tensors = layer(g_idx=groups.astype(np.int32) if ordered else None)
    expected = [[number(tensors, r, c, groups[c]) for c in range(COLUMNS)] for r in range(ROWS)]
    weight = read(tensors)
    assert isinstance(weight, Grid) is not ordered
    np.testing.assert_array_equal(weight.read(), np.float32(expected))


def test_unused_g_idx_is_ignored() -> None:
    tensors = layer()
    plain = read(tensors).read()
    unused = {**tensors, "g_idx": np.full(COLUMNS, -1, np.int32)}
    np.testing.assert_array_equal(read(unused).read(), plain)


def quantize_folder(folder: Path) -> Any:
    """Save a mixture whose layers and experts are packed; return its module, decoded."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "moe_intermediate_size": 32}
    module = build("Qwen3Moe", "Qwen3MoeForCausalLM", **{**GROUPED, **EXPERTS, **sizes})
    module.save_pretrained(folder)
    tensors, decoded = load_file(folder / "model.safetensors"), {}
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        rows, columns = tensors.pop(name).shape
        codes = RNG.integers(-8, 8, (rows, columns))
        scale = RNG.uniform(0.005, 0.015, (rows, columns // GROUP)).astype(np.float16)
        numbers = codes.reshape(rows, -1, GROUP) * scale.astype(np.float32)[..., None]
        decoded[name] = torch.from_numpy(np.float32(numbers).reshape(rows, columns))
        tensors[f"{name}_packed"], tensors[f"{name}_scale"] = words(codes), scale
        tensors[f"{name}_shape"] = np.array([rows, columns])
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    set_weights(module, decoded)
    about = json.loads((folder / "config.json").read_text())
    about["quantization_config"] = SETTINGS
    (folder / "config.json").write_text(json.dumps(about))
    return module


def set_weights(module: Any, weights: Mapping[str, torch.Tensor]) -> None:
    """Set weights by the files' names, which have a tensor for each expert."""
    for name, parameter in module.named_parameters():
        if name in weights:
            parameter.data = weights[name]
        elif ".experts." in name:
            place, _, stack = name.rpartition(".")
            parts = ("gate_proj", "up_proj") if stack == "gate_up_proj" else (stack,)
            experts = [
                torch.cat([weights[f"{place}.{expert}.{part}.weight"] for part in parts])
                for expert in range(len(parameter))
            ]
            parameter.data = torch.stack(experts)


def test_lora_over_a_packed_mixture_matches_peft_over_decoded_weights(tmp_path: Path) -> None:
    module = quantize_folder(tmp_path)
    note = open_causal_lm(tmp_path).remark
    assert note == "compressed-tensors weights: --frozen-weights int4 keeps their exact values"
    exact = ours(tmp_path)
    tuned = ours(tmp_path, storage=Storage("int4"))
    assert tuned.stored["model.layers.1.mlp.experts.gate_up_proj"] is DType.U8
    assert exact.losses == pytest.approx(of_peft(module, exact), rel=1e-4)
    assert tuned.losses == pytest.approx(exact.losses, rel=1e-6)
    assert len(set(exact.losses)) == len(exact.losses)


def error_message(tensors: Mapping[str, np.ndarray], **settings: Any) -> str:
    with pytest.raises(ImportModelError) as caught:
        read(tensors, **settings)
    return str(caught.value)


def test_invalid_layers_are_refused() -> None:
    assert "m.proj is no layer of compressed-tensors: 'weight_shape'" in error_message(
        layer(shape=None)
    )
    assert "words i32[12,12] do not hold [12, 100]" in error_message(
        layer(shape=np.array([ROWS, 100]))
    )
    assert "codes of [3] bits, and 2, 4 and 8" in error_message(
        layer(), config_groups={"a": {"weights": {**WEIGHTS, "num_bits": 3}}}
    )
    assert "scales f16[12,5]" in error_message(
        layer(scale=np.ones((ROWS, 5), np.float16), zero_point=None)
    )
    assert "zero points are i32[1,3]" in error_message(layer(zero_point=np.ones((1, 3), np.int32)))
    assert "name 3 groups of 96" in error_message(layer(g_idx=np.full(COLUMNS, 3, np.int32)))
    floats = np.zeros(COLUMNS, np.float32)
    assert "name 3 groups of 96" in error_message(layer(g_idx=floats))
    assert "'list' object has no attribute" in error_message(layer(), config_groups=[1])
    assert "codes of [] bits" in error_message(layer(), config_groups={})


def test_other_formats_are_refused_by_name(tmp_path: Path) -> None:
    quantize_folder(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    for changes, fact in (
        ({"format": None, "sparsity_config": "x"}, "in the format None (dense); pack-quantized"),
        ({"format": ["dense"]}, "in the format ['dense'] (dense)"),
        ({"format": "mxfp6-pack-quantized"}, "in the format mxfp6-pack-quantized (dense); pack-"),
        (
            {"config_groups": {"g": {"weights": WEIGHTS, "format": "mxfp6-quantized"}}},
            "in the format mxfp6-quantized (dense)",
        ),
        (
            {"transform_config": {"config_groups": {"u": {"type": "hadamard"}}}},
            "in the format pack-quantized (rotated)",
        ),
        (
            {"sparsity_config": {"format": "sparse-24-bitmask"}},
            "pack-quantized (sparse-24-bitmask)",
        ),
    ):
        about["quantization_config"] = {**SETTINGS, **changes}
        (tmp_path / "config.json").write_text(json.dumps(about))
        with pytest.raises(ImportModelError) as caught:
            open_causal_lm(tmp_path)
        assert fact in str(caught.value)

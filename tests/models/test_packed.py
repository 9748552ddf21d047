"""Quantized weights of published formats, bit for bit as their own packages decode them.

packed_layers/ has a layer of each format with its decoded values: GPTQ by AutoGPTQ 0.7.1, AWQ by
AutoAWQ 0.2.9, NF4 and FP4 by bitsandbytes 0.50.2, int4 by torchao 0.18, and pack-quantized and
int-quantized by compressed-tensors 0.20.1.
"""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.contents import Contents, InMemory, mapped
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.scalars import DType, converted, numbers_of
from pockengine.compiler.storage import Storage
from pockengine.errors import ImportModelError
from pockengine.models import packed
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.experts import stacked
from pockengine.models.packed import remark, unpacked
from pockengine.tests.models.gptq_folder import quantize_folder
from pockengine.tests.models.lora_steps import of_peft, ours

LAYERS = Path(__file__).parent / "packed_layers"
FORMATS = {
    "gptq_symmetric": ("gptq", DType.F32, 4),
    "gptq_zeros": ("gptq", DType.F32, 8),
    "gptq_ordered": ("gptq", DType.F32, None),
    "awq": ("awq", DType.F32, 8),
    "nf4": ("bitsandbytes", DType.F16, None),
    "nf4_nested": ("bitsandbytes", DType.BF16, None),
    "fp4_nested": ("bitsandbytes", DType.F32, None),
    "torchao": ("torchao", DType.F32, 4),
    "compressed_int4": ("compressed-tensors", DType.F32, 4),
    "compressed_zeros": ("compressed-tensors", DType.F32, 8),
    "compressed_rows": ("compressed-tensors", DType.F32, None),
    "compressed_int8": ("compressed-tensors", DType.F32, 8),
}
"""By file: the method, the type of decoded values, and the bits of blocks that store these."""
STORED_TYPES = {"nf4": "f16", "nf4_nested": "bf16"}
"""Storage that represents the values exactly, if not blocks."""
ROUNDED = {
    "torchao": DType.BF16,
    "compressed_int4": DType.F16,
    "compressed_zeros": DType.BF16,
    "compressed_rows": DType.BF16,
    "compressed_int8": DType.F16,
}
"""Types to which packages round their products."""
GROUPS = {f"group_{bits}": {"weights": {"num_bits": bits}} for bits in (8, 4)}


def config(method: str, **settings: Any) -> Any:
    known: dict[str, Any] = {"quant_method": method, "bits": 4, "group_size": 32}
    if method == "compressed-tensors":
        known = {"quant_method": method, "format": "mixed-precision", "config_groups": GROUPS}
    return SimpleNamespace(quantization_config={**known, **settings})


def layer(name: str) -> tuple[Contents, np.ndarray]:
    """Return a layer's weight, and its package's decoding."""
    file = f"{name}.safetensors"
    shards = {file: mapped(LAYERS / file)}
    found = dict(unpacked(LAYERS, shards, config(FORMATS[name][0]))[file])
    expected = found.pop("expected").read()
    assert list(found) == ["proj.weight"]
    return found["proj.weight"], expected


@pytest.mark.parametrize("name", FORMATS)
def test_layers_are_decoded_as_by_their_package(name: str) -> None:
    weight, expected = layer(name)
    assert weight.type.dtype is FORMATS[name][1]
    numbers = numbers_of(weight.read())
    if name in ROUNDED:
        numbers = numbers_of(converted(numbers, ROUNDED[name]))
    np.testing.assert_array_equal(numbers, expected)


@pytest.mark.parametrize("key", ["checkpoint_format", "format"])
def test_zero_points_of_gptq_v2_are_stored_unchanged(key: str) -> None:
    file = "gptq_zeros.safetensors"
    stored = {name: t for name, t in mapped(LAYERS / file).items() if name != "expected"}
    zeros = stored["proj.qzeros"].read().view(np.uint8)
    moved = (zeros + 1 & 15) | (zeros & 0xF0) + 0x10  # both codes of a byte, modulo 16
    stored["proj.qzeros"] = InMemory(moved.view(np.int32))
    about = config("gptq", **{key: "gptq_v2"})
    (found,) = unpacked(LAYERS, {file: stored}, about)[file].values()
    np.testing.assert_array_equal(found.read(), layer("gptq_zeros")[0].read())


@pytest.mark.parametrize("name", FORMATS)
def test_note_names_the_exact_storage(name: str) -> None:
    method, _, bits = FORMATS[name]
    dtype = f"int{bits}" if bits else STORED_TYPES.get(name)
    expected = f"--frozen-weights {dtype} keeps" if dtype else "no --frozen-weights keeps"
    assert expected in str(remark({"a": {"proj.weight": layer(name)[0]}}, config(method)))


@pytest.mark.parametrize("name", [name for name, row in FORMATS.items() if row[2]])
def test_blocks_have_the_same_values(name: str) -> None:
    weight, _ = layer(name)
    assert isinstance(weight, Grid)
    assert weight.bits is not None
    assert weight.bits == FORMATS[name][2]
    for bits in (4, 8):
        for grid, axis in ((weight, 1), (weight.transposed((1, 0)), 0)):
            blocks = Blocks(bits, axis)
            stored = grid.in_blocks(blocks)
            assert (stored is not None) == (bits >= weight.bits)
            if stored is not None:
                np.testing.assert_array_equal(blocks.decode(*stored), grid.read())
    assert weight.in_blocks(Blocks(8, 0)) is None  # the other axis


def test_experts_of_quantized_layers_stay_on_their_grid() -> None:
    weight, expected = layer("gptq_symmetric")
    parts = [f"mlp.experts.{expert}.{part}_proj" for expert in (0, 1) for part in ("gate", "up")]
    whole = stacked({f"{part}.weight": weight for part in parts})["mlp.experts.gate_up_proj"]
    assert isinstance(whole, Grid)
    assert whole.bits == 4
    np.testing.assert_array_equal(whole.read(), np.tile(expected, (2, 2, 1)))
    stored = whole.in_blocks(Blocks(4, 2))
    assert stored is not None
    np.testing.assert_array_equal(Blocks(4, 2).decode(*stored), whole.read())


@pytest.mark.parametrize("scheme", ["lora", "dora"])
def test_lora_over_gptq_in_four_bits_matches_peft_over_decoded_weights(
    scheme: str, tmp_path: Path
) -> None:
    module = quantize_folder(tmp_path)
    opened = open_causal_lm(tmp_path)
    assert opened.remark == "GPTQ weights: --frozen-weights int4 keeps their exact values"
    tuned = ours(tmp_path, scheme, Storage("int4"))
    assert tuned.stored["model.layers.0.mlp.up_proj.weight"] is DType.U8
    exact = ours(tmp_path, scheme)
    assert exact.losses == pytest.approx(of_peft(module, exact), rel=1e-4)
    assert tuned.losses == pytest.approx(exact.losses, rel=1e-6)
    assert len(set(exact.losses)) == len(exact.losses)


def changed(name: str, change: Mapping[str, np.ndarray | None], **settings: Any) -> np.ndarray:
    """Read the weight of a layer with changed or missing tensors."""
    stored = dict(mapped(LAYERS / f"{name}.safetensors"))
    for part, array in change.items():
        stored.pop(part)
        if array is not None:
            stored[part] = InMemory(array)
    shards = {f"{name}.safetensors": stored}
    found = unpacked(LAYERS, shards, config(FORMATS[name][0], **settings))
    return numbers_of(found[f"{name}.safetensors"]["proj.weight"].read())


def error_message(
    change: Mapping[str, np.ndarray | None], name: str = "gptq_symmetric", **settings: Any
) -> str:
    with pytest.raises(ImportModelError) as caught:
        changed(name, change, **settings)
    return str(caught.value)


def test_invalid_layers_are_refused() -> None:
    assert "proj is no layer of GPTQ: it has 3 bits" in error_message({}, bits=3)
    assert "'qzeros'" in error_message({"proj.qzeros": None})
    assert "g_idx" in error_message({"proj.g_idx": np.full(64, 2, np.int32)})
    assert "g_idx" in error_message({"proj.g_idx": np.zeros(64, np.float32)})
    assert "scales" in error_message({"proj.scales": np.ones((2, 8), np.float16)})
    assert "quantized by 'hqq'" in error_message({}, quant_method="hqq")
    assert "those of load_in_4bit are read" in error_message({}, "nf4", load_in_8bit=True)
    dynamic = {"+:.*down": {"group_size": 64}, "+:.*head": {"bits": 8}, "-:.*up": {}}
    assert "8 bits, named by '+:.*head' in dynamic" in error_message({}, dynamic=dynamic)


@pytest.mark.parametrize("name", ["nf4", "nf4_nested"])
@pytest.mark.parametrize("storage", [np.float16, np.float32])
def test_bitsandbytes_may_store_bytes_as_another_type(name: str, storage: type) -> None:
    stored = mapped(LAYERS / f"{name}.safetensors")
    pairs: np.ndarray = stored["proj.weight"].read().reshape(-1).view(storage).reshape(-1, 1)
    weight = changed(name, {"proj.weight": pairs})
    np.testing.assert_array_equal(weight, numbers_of(stored["expected"].read()))


@pytest.mark.parametrize(
    ("name", "part", "shape"),
    [
        ("gptq_symmetric", "qzeros", (4,)),
        ("gptq_ordered", "qzeros", (1, 1)),
        ("gptq_ordered", "scales", (2, 64)),
        ("awq", "qweight", (64, 16)),
        ("nf4", "weight.absmax", (1,)),
        ("nf4", "weight.quant_map", (4,)),
        ("nf4", "weight.quant_map", None),
        ("nf4_nested", "weight.nested_quant_map", (1,)),
        ("nf4_nested", "weight.nested_absmax", None),
        ("nf4_nested", "weight", (1, 1)),
    ],
)
def test_error_names_a_damaged_layer(name: str, part: str, shape: tuple[int, ...] | None) -> None:
    array = None if shape is None else np.ones(shape, np.float32)
    assert "packed_layers: proj is no layer of" in error_message({f"proj.{part}": array}, name)


@pytest.mark.parametrize(
    ("name", "part"),
    [("awq", "scales"), ("compressed_int8", "weight_scale"), ("nf4", "weight.absmax")],
)
def test_scales_are_finite(name: str, part: str) -> None:
    scales = mapped(LAYERS / f"{name}.safetensors")[f"proj.{part}"].read().copy()
    scales[(-1,) * scales.ndim] = np.nan
    assert "] is nan" in error_message({f"proj.{part}": scales}, name)


@pytest.mark.parametrize("bits", [0, 9, 64, 99999999])
def test_torchao_has_at_most_eight_bits(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"proj.weight": {"target_dtype": f"int{bits}"}}
    monkeypatch.setattr(packed, "_torchao_kinds", lambda *_: kinds)
    assert f"its codes have {bits} bits, and 1 to 8 are read" in error_message({}, "torchao")

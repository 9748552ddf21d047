"""Formulas of quantized weights as published in safetensors, by the package that writes them.

GPTQ: AutoGPTQ's QuantLinear. AWQ: AutoAWQ's `packing_utils`, version "gemm". NF4 and FP4:
bitsandbytes' `QuantState`. torchao: `IntxUnpackedToInt8Tensor`. compressed-tensors (llm-compressor,
vLLM): formats "pack-quantized", "int-quantized", "float-quantized" of 8 bits, and those of fp4.py.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir.blocks import BLOCK
from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.scalars import DType, converted
from pockengine.compiler.ir.types import F32, Shape, TensorType
from pockengine.models.fp4 import fp4
from pockengine.models.fp8 import finite, scaled
from pockengine.models.mxfp4 import scales_of

WORD = 32
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Place in a word of each of eight neighboring columns."""
FLOATS = {"bfloat16": DType.BF16, "float16": DType.F16, "float32": DType.F32}

Parts = Mapping[str, Contents]
"""Tensors of a layer by the last part of their names."""


def gptq(parts: Parts, settings: Mapping[str, Any]) -> Grid | Lazy:
    """[in / 8, out] words of codes along the inputs; `g_idx` names the group of each input."""
    bits = int(settings["bits"])
    if bits not in (2, 4, 8):
        raise ValueError(f"it has {bits} bits, and 2, 4 and 8 are read")
    kind = settings.get("checkpoint_format") or settings.get("format")  # transformers 5: `format`
    one = 0 if kind == "gptq_v2" else 1
    words, zero_words, scales = _words(parts)
    inputs, outputs = words.type.shape[0] * (WORD // bits), words.type.shape[1]
    groups = scales.type.shape[0]
    places = parts["g_idx"].read() if "g_idx" in parts else np.arange(inputs) * groups // inputs
    named = places.dtype.kind == "i" and places.shape == (inputs,)
    if not named or places.min() < 0 or places.max() >= groups:
        raise ValueError(f"its g_idx does not name {groups} groups of {inputs} inputs")

    def zeros() -> np.ndarray:
        found = _columns(zero_words.read(), bits)
        return (found + one) & ((1 << bits) - 1) if one else found

    def codes() -> np.ndarray:
        found = _columns(words.read().T, bits).T
        return (found - zeros()[places]).T

    code_bits = _code_bits(zeros(), scales, bits)
    if inputs % groups or not np.array_equal(places, np.arange(inputs) // (inputs // groups)):

        def load() -> np.ndarray:
            return codes().astype(np.float32) * _f32(scales).T[:, places]

        return Lazy(TensorType(F32, (outputs, inputs)), load, "a weight with ordered activations")
    return _grid((outputs, inputs), codes, scales, code_bits)


def awq(parts: Parts, settings: Mapping[str, Any]) -> Grid:
    """[in, out / 8] words of codes along the outputs, interleaved."""
    kind = settings.get("version") or settings.get("format") or "gemm"
    bits, version = int(settings.get("bits", 4)), str(kind).lower()
    if bits != 4 or version != "gemm":
        raise ValueError(f"it has {bits} bits in version {version}, and 4 in version gemm are read")
    words, zero_words, scales = _words(parts)
    shape = (words.type.shape[1] * (WORD // bits), words.type.shape[0])

    def zeros() -> np.ndarray:
        return _ordered(zero_words.read())

    def codes() -> np.ndarray:
        each = shape[1] // scales.type.shape[0]
        return (_ordered(words.read()) - np.repeat(zeros(), each, 0)).T

    return _grid(shape, codes, scales, _code_bits(zeros(), scales, bits))


def _words(parts: Parts) -> tuple[Contents, Contents, Contents]:
    """Return the words of codes and zero points, and the scales, each a matrix."""
    words, zeros, scales = (parts[name] for name in ("qweight", "qzeros", "scales"))
    integers = words.type.dtype is zeros.type.dtype is DType.I32
    if not integers or {part.type.rank for part in (words, zeros, scales)} != {2}:
        raise ValueError(
            f"its words are {words.type}, with zero points {zeros.type} and scales {scales.type}"
        )
    return words, zeros, scales


def bitsandbytes(parts: Parts, settings: Mapping[str, Any]) -> Lazy:
    """Codes of a table of 16 numbers, two in a byte, scaled by blocks; scales may have 8 bits."""
    state_name = next(name for name in parts if "bitsandbytes__" in name)
    state = json.loads(parts[state_name].read().tobytes().decode())
    type_ = TensorType(FLOATS[state["dtype"]], tuple(int(size) for size in state["shape"]))
    stored, block, nested = parts["weight"].type, int(state["blocksize"]), "nested_absmax" in parts
    absmax, sizes = parts["absmax"].type, (-(-type_.size // 2), -(-type_.size // max(block, 1)))
    form = DType.U8 if nested else F32
    if absmax.dtype is not form or (stored.nbytes, absmax.size) != sizes:
        raise ValueError(f"its {type_} is stored as {stored} with scales {absmax} of {block}")

    def load() -> np.ndarray:
        pairs = parts["weight"].read().reshape(-1).view(np.uint8)  # stored as any type
        codes = np.stack([pairs >> 4, pairs & 15], axis=1).reshape(-1)[: type_.size]
        scales = parts["absmax"].read().reshape(-1)
        if nested:
            table = parts["nested_quant_map"].read()[scales]
            blocks = np.repeat(parts["nested_absmax"].read(), int(state["nested_blocksize"]))
            scales = table * blocks[: len(table)] + np.float32(state["nested_offset"])
        each = np.repeat(finite(scales), block)[: len(codes)]
        numbers = parts["quant_map"].read()[codes] * each
        return converted(numbers.reshape(type_.shape), type_.dtype)

    return Lazy(type_, load, f"a weight of bitsandbytes' {state['quant_type']}")


def torchao(parts: Parts, settings: Mapping[str, Any]) -> Grid:
    """[out, in] codes, one in a byte, with [out, groups] scales and zero points."""
    codes, scales, zeros = (parts[name] for name in ("qdata", "scale", "zero_point"))
    shape, (rows, groups) = codes.type.shape, scales.type.shape
    if len(shape) != 2 or codes.type.dtype is not DType.I8 or rows != shape[0]:
        raise ValueError(f"its codes are {codes.type}, with scales {scales.type}")
    if zeros.type != TensorType(DType.I8, (rows, groups)) or shape[1] % groups:
        raise ValueError(f"its codes are {codes.type}, with zero points {zeros.type}")
    bits = int(str(settings["target_dtype"]).removeprefix("int"))
    if not 1 <= bits <= 8:
        raise ValueError(f"its codes have {bits} bits, and 1 to 8 are read")
    return _signed(shape, codes.read, (scales, zeros.read()), 1 << bits - 1)


COMPRESSED = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "mixed-precision",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
)
"""Formats of compressed-tensors: integers, and floats of 8 and 4 bits."""


def formats_of(settings: Mapping[str, Any]) -> list[Any]:
    """Return the format of compressed-tensors, and those of groups of layers."""
    groups = settings.get("config_groups")
    each = groups.values() if isinstance(groups, Mapping) else ()
    own = [group["format"] for group in each if isinstance(group, Mapping) and group.get("format")]
    return [settings.get("format"), *own]


def compressed(parts: Parts, settings: Mapping[str, Any]) -> Grid | Lazy:
    """[out, in] codes as i8, or in words along the inputs; `weight_g_idx` names groups of inputs.

    Scales are [out, groups], [out, 1] or one number; zero points are absent for symmetric layers.
    """
    scales = parts["weight_scale"]
    if "weight_packed" not in parts:
        codes = parts["weight"]
        if codes.type.dtype is DType.F32 and _has_floats(settings):  # of 8 bits in the file
            factors = scales_of(scales) if "mxfp8-quantized" in formats_of(settings) else scales
            return scaled(codes, factors, _block(settings, codes.type.shape, scales.type.shape))
        shape, half = codes.type.shape, 1 << 7
        if len(shape) != 2 or codes.type.dtype is not DType.I8:
            raise ValueError(f"its weight is {codes.type}, and 8-bit integers are read")
        return _grouped(shape, codes.read, (scales, parts), half)
    words = parts["weight_packed"]
    if words.type.dtype is DType.U8:
        return fp4(parts)
    shape = tuple(int(size) for size in parts["weight_shape"].read())
    bits = _declared_bits(settings, words.type, shape)

    def unpacked() -> np.ndarray:
        return _columns(words.read(), bits)[:, : shape[1]] - (1 << bits - 1)

    return _grouped(shape, unpacked, (scales, parts), 1 << bits - 1)


def _has_floats(settings: Mapping[str, Any]) -> bool:
    groups = settings["config_groups"].values()
    return any((group.get("weights") or {}).get("type") == "float" for group in groups)


def _block(settings: Mapping[str, Any], shape: Shape, grid: Shape) -> tuple[int, ...] | None:
    """Return the configuration's size of blocks that makes this grid of scales, if one does."""
    groups = settings["config_groups"].values()
    weights = [group["weights"] for group in groups if group.get("weights")]
    for text in (one.get("block_structure") for one in weights if one.get("strategy") == "block"):
        sizes = text.split("x") if isinstance(text, str) else text
        block = tuple(int(size) for size in sizes)
        if min(block) < 1:
            raise ValueError(f"its blocks are {list(block)}")
        if grid == tuple(-(-n // size) for n, size in zip(shape, block, strict=True)):
            return block
    return None


def _declared_bits(settings: Mapping[str, Any], words: TensorType, shape: tuple[int, ...]) -> int:
    """Return the bits, of those in the configuration, with which codes fill the words."""
    groups = settings["config_groups"].values()
    declared = [int(group["weights"]["num_bits"]) for group in groups if group.get("weights")]
    for bits in declared:
        if bits in (2, 4, 8) and len(shape) == 2:
            size = -(-shape[1] * bits // WORD)
            if words == TensorType(DType.I32, (shape[0], size)):
                return bits
    raise ValueError(
        f"its words {words} do not hold {list(shape)} codes of {declared} bits, and 2, 4 and 8 "
        "are read"
    )


def _grouped(
    shape: Shape,
    codes: Callable[[], np.ndarray],
    scaling: tuple[Contents, Parts],
    half: int,
) -> Grid | Lazy:
    """Return codes with a layer's scales and zero points; a scale may count for a whole row."""
    scales, parts = scaling
    if scales.type.size == 1:
        scales = _repeated(scales, shape[0])
    zeros = _zero_points(parts.get("weight_zero_point"), scales.type.shape, half)
    if "weight_g_idx" not in parts or (places := parts["weight_g_idx"].read()).min() < 0:
        return _signed(shape, codes, (scales, zeros), half)
    groups = scales.type.shape[-1]
    named = places.dtype.kind == "i" and places.shape == shape[1:] and places.max() < groups
    if not named or scales.type.shape != (shape[0], groups):
        raise ValueError(f"its weight_g_idx does not name {groups} groups of {shape[1]} inputs")

    def load() -> np.ndarray:
        centered = codes() - (0 if zeros is None else zeros[:, places])
        return centered.astype(np.float32) * _f32(scales)[:, places]

    return Lazy(TensorType(F32, shape), load, "a weight with ordered activations")


def _repeated(scale: Contents, rows: int) -> Contents:
    type_ = TensorType(scale.type.dtype, (rows, 1))
    return Lazy(type_, lambda: np.repeat(scale.read().reshape(1, 1), rows, 0), "a weight's scale")


def _zero_points(zeros: Contents | None, shape: Shape, half: int) -> np.ndarray | None:
    """Return signed zero points of the scales' shape, which may be packed along the outputs."""
    if zeros is None:
        return None
    if zeros.type.dtype is DType.I8:
        found = zeros.read().reshape(-1, 1) if zeros.type.size == 1 else zeros.read()
        return np.broadcast_to(found, shape).astype(np.int16)
    bits = half.bit_length()
    if zeros.type != TensorType(DType.I32, (-(-shape[0] * bits // WORD), shape[1])):
        raise ValueError(f"its zero points are {zeros.type}, for scales {list(shape)}")
    return _columns(zeros.read().T, bits).T[: shape[0]] - half


def _signed(
    shape: Shape,
    codes: Callable[[], np.ndarray],
    scaling: tuple[Contents, np.ndarray | None],
    half: int,
) -> Grid:
    """Return signed codes, from -half on, with [out, groups] scales and zero points."""
    scales, zeros = scaling
    groups = scales.type.shape[-1] if len(scales.type.shape) == 2 else 0
    if not groups or scales.type.shape[0] != shape[0] or shape[1] % groups:
        raise ValueError(f"its {list(shape)} codes have scales {scales.type}")
    points = np.zeros(scales.type.shape, np.int16) if zeros is None else zeros.astype(np.int16)
    each = shape[1] // groups

    def load() -> tuple[np.ndarray, np.ndarray]:
        return codes().astype(np.int16) - np.repeat(points, each, 1), _f32(scales)

    bits = _bits(-half - points, half - 1 - points)
    with np.errstate(over="ignore"):
        halves = np.array_equal(_f32(scales).astype(np.float16), _f32(scales))
    return Grid(TensorType(F32, shape), 1, load, bits if halves and each % BLOCK == 0 else None)


def _grid(
    shape: tuple[int, int],
    codes: Callable[[], np.ndarray],
    scales: Contents,
    bits: int | None,
) -> Grid:
    """Return codes with [groups, out] scales."""
    groups = scales.type.shape[0]
    if scales.type.shape[1:] != shape[:1] or shape[1] % groups:
        raise ValueError(f"{list(shape)} codes have scales {scales.type}")

    def load() -> tuple[np.ndarray, np.ndarray]:
        return codes(), np.ascontiguousarray(_f32(scales).T)

    return Grid(TensorType(F32, shape), 1, load, bits)


def _code_bits(zeros: np.ndarray, scales: Contents, bits: int) -> int | None:
    """Return the bits of blocks that fit unsigned codes minus their zero points."""
    if zeros.shape != scales.type.shape:
        raise ValueError(f"its scales are {scales.type}, its zero points {list(zeros.shape)}")
    return _bits(-zeros, (1 << bits) - 1 - zeros)


def _bits(lowest: np.ndarray, highest: np.ndarray) -> int | None:
    """Return the bits of blocks that fit all codes in this range; None if none does."""
    for bits in (4, 8):
        half = 1 << bits - 1
        if lowest.min() >= -half and highest.max() < half:
            return bits
    return None


def _columns(words: np.ndarray, bits: int) -> np.ndarray:
    """Unpack the codes of each word, lowest first, along the last axis."""
    shifts = np.arange(0, WORD, bits, dtype=np.uint32)
    fields = np.ascontiguousarray(words).view(np.uint32)[..., None] >> shifts
    return (fields & np.uint32((1 << bits) - 1)).astype(np.int16).reshape(len(words), -1)


def _ordered(words: np.ndarray) -> np.ndarray:
    codes = _columns(words, 4)
    return codes.reshape(len(words), -1, 8)[:, :, AWQ_ORDER].reshape(len(words), -1)


def _f32(scales: Contents) -> np.ndarray:
    return finite(converted(scales.read(), F32))

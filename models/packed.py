"""Weights of quantized folders of transformers: tensors of a layer become one weight.

`quantization_config` of config.json names the method; packed_forms.py has the formulas. Weights are
decoded when they are read. Those on a uniform grid keep codes and scales (`Grid`), so that frozen
weights in blocks reproduce them exactly.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from pockengine.compiler.ir.contents import Contents, Floats8, Lazy
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.scalars import DType
from pockengine.errors import GraphError, ImportModelError, reason_of
from pockengine.models.fp4 import modelopt
from pockengine.models.fp8 import fp8
from pockengine.models.mxfp4 import mxfp4
from pockengine.models.packed_forms import (
    COMPRESSED,
    Parts,
    awq,
    bitsandbytes,
    compressed,
    formats_of,
    gptq,
    torchao,
)

Shards = Mapping[str, Mapping[str, Contents]]
"""Tensors of each file."""
Settings = Mapping[str, Any]
"""`quantization_config` of config.json."""


@dataclass(frozen=True)
class PackedFormat:
    """A published format. Each layer has one tensor whose name ends with one of `marks`.

    `weight` is the end of the name of the decoded weight.
    """

    name: str
    marks: tuple[str, ...]
    parts: tuple[str, ...]
    decode: Callable[[Parts, Settings], Grid | Lazy]
    weight: str = ".weight"

    def layer_of(self, tensor: str) -> str | None:
        """Return the layer whose mark a tensor is; None for another tensor."""
        found = (tensor.removesuffix(mark) for mark in self.marks if tensor.endswith(mark))
        return next(found, None)


_WORDS = ("qweight", "qzeros", "scales", "g_idx")
_STATE = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
_SCALES = ("weight_scale_inv", "weight_scale")
_COMPRESSED = ("packed", "scale", "zero_point", "shape", "g_idx", "global_scale")
_MODELOPT = (
    *("weight", "weight_scale", "weight_scale_2", "input_scale", "pre_quant_scale"),
    *("k_scale", "v_scale"),  # of a cache in 8 bits
)
_FP8 = PackedFormat(
    "FP8",
    (".weight_scale_inv", ".weight_scale"),
    tuple(f".{part}" for part in ("weight", *_SCALES, "activation_scale", "input_scale")),
    fp8,
)
FORMATS: Mapping[str, PackedFormat] = {
    "gptq": PackedFormat("GPTQ", (".qweight",), tuple(f".{part}" for part in _WORDS), gptq),
    "awq": PackedFormat("AWQ", (".qweight",), tuple(f".{part}" for part in _WORDS[:3]), awq),
    "bitsandbytes": PackedFormat(
        "bitsandbytes",
        (".weight.absmax",),
        (
            ".weight",
            *(f".weight.{part}" for part in _STATE),
            *(f".weight.quant_state.bitsandbytes__{kind}" for kind in ("nf4", "fp4")),
        ),
        bitsandbytes,
    ),
    "torchao": PackedFormat(
        "torchao",
        ("._weight_qdata",),
        tuple(f"._weight_{part}" for part in ("qdata", "scale", "zero_point")),
        torchao,
    ),
    "compressed-tensors": PackedFormat(
        "compressed-tensors",
        (".weight_scale",),
        (
            ".weight",
            *(f".weight_{part}" for part in _COMPRESSED),
            ".input_scale",
            ".input_global_scale",
        ),
        compressed,
    ),
    "fp8": _FP8,
    "fbgemm_fp8": _FP8,
    "modelopt": PackedFormat(
        "ModelOpt", (".weight_scale",), tuple(f".{part}" for part in _MODELOPT), modelopt
    ),
    "mxfp4": PackedFormat("MXFP4", ("_blocks",), ("_blocks", "_scales"), mxfp4, weight=""),
}
"""By `quant_method` of config.json."""
TORCHAO_KIND = "IntxUnpackedToInt8Tensor"
MALFORMED = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    GraphError,
    StopIteration,
)
"""Exceptions that a damaged layer causes in Python and NumPy."""


def method_of(config: Any) -> Settings | None:
    """Return `quantization_config` of a configuration, if any."""
    found = getattr(config, "quantization_config", None)
    if found is None or isinstance(found, Mapping):
        return found
    settings: Settings = found.to_dict()
    return settings


def format_of(folder: Path, settings: Settings) -> PackedFormat:
    """Return the format of a folder; ImportModelError names an unsupported one."""
    method = settings.get("quant_method")
    form = FORMATS.get(str(method))
    if form is None:
        raise ImportModelError(
            f"{folder} is quantized by {method!r}; {', '.join(FORMATS)} are read: give one of "
            "these, or a folder that is not quantized"
        )
    unread = _unread(form, settings)
    if unread is not None:
        raise ImportModelError(
            f"{folder} has {unread}: give such a folder, or one that is not quantized"
        )
    if form.decode is compressed:
        sparsity = settings.get("sparsity_config")
        sparse = sparsity.get("format", "dense") if isinstance(sparsity, Mapping) else "dense"
        unknown = [str(one) for one in formats_of(settings) if one not in COMPRESSED]
        if unknown or sparse != "dense" or _transforms(settings):
            kind = "rotated" if _transforms(settings) else sparse
            raise ImportModelError(
                f"{folder} has weights of {method} in the format "
                f"{', '.join(unknown) or settings['format']} ({kind}); "
                f"{', '.join(COMPRESSED)} (dense) are read: give one of these, or a folder that "
                "is not quantized"
            )
    return form


def _transforms(settings: Settings) -> bool:
    """Whether weights lie in a rotated space, as `transform_config` of compressed-tensors says."""
    transform = settings.get("transform_config")
    return bool(isinstance(transform, Mapping) and transform.get("config_groups"))


def _unread(form: PackedFormat, settings: Settings) -> str | None:
    """Name layers of a format that are not read, and those that are; None if there are none."""
    if form.decode is bitsandbytes and settings.get("load_in_8bit"):
        return "weights of LLM.int8 (load_in_8bit); those of load_in_4bit are read"
    bits, dynamic = settings.get("bits"), settings.get("dynamic")
    for rule, own in dynamic.items() if isinstance(dynamic, Mapping) else ():
        if form.decode is gptq and isinstance(own, Mapping) and own.get("bits", bits) != bits:
            return (
                f"layers of {own['bits']} bits, named by {rule!r} in dynamic, among others of "
                f"{bits}; one number of bits is read"
            )
    return None


def unpacked(folder: Path, shards: Shards, config: Any) -> Shards:
    """Return the shards with one weight for the tensors of each quantized layer.

    ImportModelError names an unsupported method, or a layer that does not follow its format.
    """
    settings = method_of(config)
    if settings is not None:
        shards = _decoded_layers(folder, shards, settings)
    _check_scaled(folder, shards)
    return shards


def _decoded_layers(folder: Path, shards: Shards, settings: Settings) -> Shards:
    form = format_of(folder, settings)
    by_name = {name: tensor for tensors in shards.values() for name, tensor in tensors.items()}
    layers = {layer for name in by_name if (layer := form.layer_of(name)) is not None}
    dropped = {f"{layer}{part}" for layer in layers for part in form.parts}
    kinds = _torchao_kinds(folder, shards) if form.decode is torchao else {}
    found: dict[str, dict[str, Contents]] = {}
    for file, tensors in shards.items():
        found[file] = {name: tensor for name, tensor in tensors.items() if name not in dropped}
        for name in tensors:
            layer = form.layer_of(name)
            if layer is not None:
                special = {**settings, **kinds.get(f"{layer}.weight", {})}
                names = {part: f"{layer}{part}" for part in form.parts}
                parts = {_key(part): by_name[one] for part, one in names.items() if one in by_name}
                weight = _decoded(f"{folder}: {layer}", form, parts, special)
                found[file][f"{layer}{form.weight}"] = weight
    return found


def _check_scaled(folder: Path, shards: Shards) -> None:
    """Raise ImportModelError for 8-bit floats beside a scale that no format has applied."""
    tensors = {name: tensor for each in shards.values() for name, tensor in each.items()}
    scales = {_owner(name): name for name in tensors if "scale" in name.rpartition(".")[2]}
    for name, tensor in tensors.items():
        scale = scales.get(_owner(name)) if isinstance(tensor, Floats8) else None
        if scale is not None:
            raise ImportModelError(
                f"{folder}: {name} has 8-bit floats, and its scale {scale} is of no format that "
                "is read; give a folder that is not quantized"
            )


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _decoded(where: str, form: PackedFormat, parts: Parts, settings: Settings) -> Contents:
    """Return a layer's weight; ImportModelError names the layer, also when it is read later."""
    with _refused(where, form):
        weight = form.decode(parts, settings)
    load: Any = _refused(where, form)(weight.load)
    return replace(weight, load=load)


@contextmanager
def _refused(where: str, form: PackedFormat) -> Iterator[None]:
    """Raise ImportModelError for the errors of a malformed layer."""
    try:
        yield
    except MALFORMED as error:
        raise ImportModelError(
            f"{where} is no layer of {form.name}: {error}; copy the folder again, or give one that "
            "is not quantized"
        ) from error


def _key(part: str) -> str:
    return part.removeprefix("._weight_").rpartition(".")[2].removeprefix("_")


def _torchao_kinds(folder: Path, shards: Shards) -> dict[str, Settings]:
    """Return the settings of torchao's tensors from the files' metadata."""
    kinds: dict[str, Settings] = {}
    for file in shards:
        try:
            with safe_open(folder / file, "numpy") as opened:
                metadata = opened.metadata() or {}
            for name in json.loads(metadata.get("tensor_names", "[]")):
                about = json.loads(metadata[name])
                kind, data = about["_type"], about.get("_data", {})
                if kind not in (TORCHAO_KIND, "Tensor"):
                    raise ValueError(f"{name} is a {kind}, and {TORCHAO_KIND} is read")
                kinds[name] = {"target_dtype": data.get("target_dtype", {}).get("_data")}
        except (OSError, SafetensorError, *MALFORMED) as error:
            raise ImportModelError(
                f"{folder / file} is no file of torchao: {reason_of(error)}; quantize the model by "
                "IntxWeightOnlyConfig, or give one that is not quantized"
            ) from error
    return kinds


def remark(shards: Shards, config: Any) -> str | None:
    """Return a line on quantized weights: the format, and the storage that keeps their values."""
    settings = method_of(config)
    if settings is None:
        return None
    name = FORMATS[str(settings["quant_method"])].name
    storage = _storage(
        [tensor for shard in shards.values() for tensor in shard.values() if tensor.known]
    )
    if storage is None:
        return f"{name} weights: decoded to f32, as no --frozen-weights keeps their exact values"
    return f"{name} weights: --frozen-weights {storage} keeps their exact values"


def _storage(tensors: Sequence[Contents]) -> str | None:
    """Return the smallest storage that represents all quantized weights exactly."""
    grids = [tensor for tensor in tensors if isinstance(tensor, Grid)]
    known = [grid.bits for grid in grids if grid.bits is not None]
    if grids and len(known) == len(grids):
        return f"int{max(known)}"
    matrices = [tensor for tensor in tensors if len(tensor.type.shape) >= 2]
    dtypes = {one.exact if isinstance(one, Grid) else one.type.dtype for one in matrices}
    exact = dtypes & {DType.BF16, DType.F16} if len(dtypes) == 1 else set()
    return next((dtype.value for dtype in exact if dtype is not None), None)

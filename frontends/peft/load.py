"""Read adapters from the files of Hugging Face's PEFT, whose format files.py has.

Files are data: nothing in them is executed, not even a pattern, and everything is checked before
use. A pickle, an expression, an unknown setting or a tensor without a target is an AdapterError.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import Contents, mapped
from pockengine.compiler.ir.graph import Graph, Param
from pockengine.compiler.ir.scalars import DType, numbers_of
from pockengine.compiler.sparse.choice import VARIANTS
from pockengine.compiler.sparse.lora import FACTOR_ORDERS, PACKED, Adapter
from pockengine.errors import AdapterError, GraphError, reason_of
from pockengine.frontends.peft.files import CONFIG, WEIGHTS, Arrays, TunedParams
from pockengine.frontends.peft.places import PREFIX, place_of, tied_names

LARGEST_CONFIG = 1 << 20
REPEATED = (".num_batches_tracked.", ".original_module.", ".modules_to_save.")
"""Parts of keys that add nothing: saving all biases, PEFT has a whole module's three times."""

HANDLED = (
    "alpha_pattern",
    "bias",
    "fan_in_fan_out",
    "init_lora_weights",
    "lora_alpha",
    "modules_to_save",
    "peft_type",
    "r",
    "rank_pattern",
    "target_modules",
    "use_dora",
    "use_rslora",
)
SILENT = (
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "task_type",
)
"""Settings that do not change the meaning of trained factors, or repeat what the tensors show."""

FLOATS = (DType.F32, DType.F16, DType.BF16)
STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
"""Values of init_lora_weights that leave the base weights unchanged."""


def load_adapters(tuning: TunedParams, folder: Path) -> dict[str, np.ndarray]:
    """Read a PEFT folder: new values of the factors and trained params, in our layouts.

    AdapterError names a fault of the files, an adapter that the graph lacks or has of another rank
    or scale, or a param that differs from the graph's although it is frozen there.
    """
    config = _read_config(folder)
    tensors = _read_tensors(folder)
    arrays: dict[str, np.ndarray] = {}
    tied = tied_names(tuning.graph)
    for adapter in tuning.adapters:
        arrays.update(_factors(adapter, tuning.graph, config, tensors))
    for key in sorted(tensors):
        name, array = _plain_name(key), tensors[key]
        name = tied.get(name, name)
        param = tuning.graph.params.get(name)
        if param is None:
            raise AdapterError(_stranger(folder, key, tensors, config=config, graph=tuning.graph))
        ours = _as_ours(array, param.permutation, key, param.value.shape)
        if name in tuning.trained:
            if not np.array_equal(arrays.setdefault(name, ours), ours):
                raise AdapterError(
                    f"{folder}: {key} has other numbers than {name}, and they are one weight here; "
                    "import the model with tie_word_embeddings=False"
                )
        elif not np.array_equal(ours, param.data):
            raise AdapterError(
                f'{folder}: {name} was trained, but is frozen here; add "{name}" = "full" to the '
                "scheme, or import the model with this weight"
            )
    return arrays


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    named = sorted(one.parent.name for one in folder.glob(f"*/{CONFIG}"))
    if named and not path.exists():
        raise AdapterError(f"{folder} has the adapters {', '.join(named)}; give one's folder")
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            raise AdapterError(f"{path} is above {LARGEST_CONFIG} bytes; it is no adapter's")
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(
            f"{path}: {reason_of(error)}; PEFT's save_pretrained writes it"
        ) from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else None
        raise AdapterError(f"{path}: peft_type is {kind!r}; only LORA can be loaded")
    unknown = sorted(key for key, value in config.items() if value and key not in HANDLED + SILENT)
    if unknown or config.get("init_lora_weights") not in STARTS:
        setting = unknown[0] if unknown else "init_lora_weights"
        raise AdapterError(f"{path}: {setting} = {config[setting]!r} is not supported")
    for key in ("rank_pattern", "alpha_pattern"):
        if not isinstance(config.get(key) or {}, dict):
            raise AdapterError(f"{path}: {key} must map modules to numbers")
    return config


def _read_tensors(folder: Path) -> dict[str, np.ndarray]:
    path = folder / WEIGHTS
    if not path.exists() and (folder / "adapter_model.bin").exists():
        raise AdapterError(
            f"{folder} has a pickle, which can run code and is not read; save the adapter with "
            "safe_serialization=True"
        )
    try:
        tensors = mapped(path)
    except GraphError as error:
        raise AdapterError(f"{error}; save the adapter again") from error
    return {
        key: _numbers(path, key, contents)
        for key, contents in tensors.items()
        if not any(part in f"{key}." for part in REPEATED)
    }


def _numbers(path: Path, key: str, contents: Contents) -> np.ndarray:
    """Read a tensor as f32."""
    dtype = contents.type.dtype if contents.known else None
    array = numbers_of(contents.read()) if dtype in FLOATS else np.array(np.nan)
    if not np.isfinite(array).all():
        kind = "a type not read here" if dtype is None else dtype.value
        raise AdapterError(
            f"{path}: {key} ({kind}) must be finite numbers of f32, f16 or bf16; save it so"
        )
    return np.array(array, np.float32)


def _factors(
    adapter: Adapter, graph: Graph, config: Mapping[str, Any], tensors: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Take one adapter's factors out of `tensors`."""
    place, param = place_of(graph.params, adapter.weight), graph.params[adapter.weight]
    module = place.module
    keys = [*place.keys(), *([place.magnitude_key()] if adapter.dora else [])]
    missing = [key for key in keys if key not in tensors]
    if missing:
        raise AdapterError(
            f"the adapter lacks {missing[0]}; leave {adapter.weight} out of the scheme"
        )
    a, b, *magnitudes = (tensors.pop(key) for key in keys)
    place.drop_zeros(adapter, graph, tensors)
    line = _scheme_line(adapter.weight, module, config, a)
    rank = a.shape[0] if a.ndim else 0
    same_scale = np.isclose(line.scale, adapter.scale, rtol=1e-6)
    if rank != adapter.rank or line.dora != adapter.dora or not same_scale:
        raise AdapterError(
            f"{adapter.weight} was compiled with {_choice(adapter)}; for this adapter the scheme "
            f'must have "{adapter.weight}" = {_choice(line)}'
        )
    shapes = _factor_shapes(adapter, param)
    order = FACTOR_ORDERS[len(shapes[0])]
    arrays = [_as_ours(x, order, k, s) for x, k, s in zip((a, b), keys, shapes, strict=False)]
    arrays += [_as_ours(each, None, keys[2], shapes[1][-1:]) for each in magnitudes]
    return dict(zip(adapter.trained, arrays, strict=True))


def _factor_shapes(adapter: Adapter, param: Param) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = param.value.shape[::-1] if adapter.transposed else param.value.shape
    window = (1,) * (len(shape) - 2)
    return (*shape[:-1], adapter.rank), (*window, adapter.rank, shape[-1])


def _scheme_line(weight: str, module: str, config: Mapping[str, Any], a: np.ndarray) -> Adapter:
    """Return a module's adapter as the config describes it."""
    rank = _setting(module, config, "r", "rank_pattern")
    alpha = _setting(module, config, "lora_alpha", "alpha_pattern")
    if not a.ndim or rank != a.shape[0]:
        raise AdapterError(f"{module}: {CONFIG} says rank {rank:g}, lora_A is {list(a.shape)}")
    variants = {name: bool(config.get(f"use_{name}")) for name in VARIANTS}
    return Adapter(weight, int(rank), alpha, **variants)


def _choice(adapter: Adapter) -> str:
    """Return an adapter's form in a scheme file."""
    variants = "".join(f", {name} = true" for name in VARIANTS if getattr(adapter, name))
    return f"{{ lora = {adapter.rank}, alpha = {adapter.alpha:.12g}{variants} }}"


def _setting(module: str, config: Mapping[str, Any], name: str, patterns: str) -> float:
    """Return a number of the config for this module: that of a matching pattern, if there is
    one."""
    value: Any = config.get(name)
    for pattern, special in reversed((config.get(patterns) or {}).items()):
        literal = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".")
        if re.fullmatch(r"[\w.\-]+", literal) is None:
            raise AdapterError(
                f"{CONFIG}: {patterns} has the expression {pattern!r}, and those of a file are not "
                "run; write the modules' names"
            )
        if f".{module}".endswith(f".{literal}"):
            value = special
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise AdapterError(f"{CONFIG}: {name} of {module} is {value!r}; it must be above 0")
    return float(value)


def _plain_name(key: str) -> str:
    return key.removeprefix(PREFIX).replace(".base_layer.", ".")


def _as_ours(
    array: np.ndarray, permutation: tuple[int, ...] | None, key: str, shape: tuple[int, ...]
) -> np.ndarray:
    """Bring PEFT's tensor into our order of dimensions."""
    order = permutation or tuple(range(len(shape)))
    target = [shape[index] for index in np.argsort(order)]
    if list(array.shape) != target:
        raise AdapterError(f"{key} is {list(array.shape)}; the model needs {target}")
    return np.array(array.transpose(order), order="C")


def _stranger(
    folder: Path, key: str, tensors: Arrays, config: Mapping[str, Any], graph: Graph
) -> str:
    """Return a hint for a tensor without a counterpart in the graph."""
    match = re.fullmatch(re.escape(PREFIX) + r"(.+)\.lora_(?:[AB]\.weight|magnitude_vector)", key)
    if match is None:
        return f"{folder}: the model has no parameter {_plain_name(key)}; was it another model's?"
    module, a = match[1], tensors.get(f"{PREFIX}{match[1]}.lora_A.weight")
    if a is None:
        return f"{folder}: {key} stands there without its lora_A"
    attention = module.removesuffix(".base_layer.out_proj")
    packed = f"{attention}.{PACKED}"
    weight = packed if packed in graph.params else f"{module}.weight"
    line = _scheme_line(weight, attention, config, a)
    if weight in (tied := tied_names(graph)):
        return (
            f"{folder}: {attention} has an adapter, and its weight is {tied[weight]} here; "
            "import the model with tie_word_embeddings=False"
        )
    return (
        f"{folder}: {attention} has an adapter, but none here; the scheme must have "
        f'"{line.weight}" = {_choice(line)}'
    )

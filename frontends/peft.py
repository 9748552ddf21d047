"""Adapters in the files of Hugging Face's PEFT: adapter_config.json, adapter_model.safetensors.

`base_model.model.<module>.lora_A.weight` is [rank, in] and `lora_B.weight` [out, rank]; a
convolution's have its window and 1x1. Params that train as they are stand beside them under their
own names: the whole module is one of `modules_to_save`, or, where only biases train, all biases
are saved. Neither torch nor peft is needed; reading runs nothing that a file says, not even a
pattern, and checks all of it before anything is used.
"""

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from pockengine.compiler.ir.graph import Graph, Param
from pockengine.compiler.sparse.lora import CONV, LINEAR, Adapter
from pockengine.errors import AdapterError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
LARGEST_CONFIG = 1 << 20

Arrays = Mapping[str, np.ndarray]

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
"""Settings that say nothing about what trained factors mean, or say again what the tensors do."""

STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
"""Values of init_lora_weights that leave the base weights as they were."""

TASKS = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "ForCausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM",
}
"""Endings of the class names of transformers' models."""


@dataclass(frozen=True)
class Tuning:
    """What was trained of a graph: its adapters, and the params that train as they are."""

    graph: Graph
    adapters: tuple[Adapter, ...]
    trained: tuple[str, ...]


def save_adapters(tuning: Tuning, values: Arrays, folder: Path, model: Any = None) -> None:
    """Write the adapters, and what else trained, from `values` (all params, as they lie with us).

    A new folder appears whole; in one that is there each file is replaced at once, the weights
    first. `model` only says the task and where its base came from. AdapterError names what the
    format cannot hold.
    """
    if not tuning.adapters:
        raise AdapterError("the scheme has no LoRA adapters; save the weights by save_weights")
    modules = {adapter: _module(adapter.weight) for adapter in tuning.adapters}
    tensors, saved, biases = _plain_tensors(tuning, values, frozenset(modules.values()))
    for adapter, module in modules.items():
        for letter, name in (("A", adapter.a), ("B", adapter.b)):
            array = values[name]
            order = np.argsort(CONV if array.ndim == 4 else LINEAR)
            tensors[f"{PREFIX}{module}.lora_{letter}.weight"] = array.transpose(order)
    config = {
        **_about(model),
        "bias": "all" if biases else "none",
        "fan_in_fan_out": all(_fan_in_first(tuning.graph, adapter) for adapter in modules),
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_dropout": 0.0,
        "modules_to_save": saved or None,
        "peft_type": "LORA",
        **_ranks(modules),
        "target_modules": _targets(tuning.graph, sorted(modules.values())),
        "use_dora": False,
        "use_rslora": False,
    }
    _write(folder, config, {name: np.array(a, order="C") for name, a in sorted(tensors.items())})


def load_adapters(tuning: Tuning, folder: Path) -> dict[str, np.ndarray]:
    """Read a folder of PEFT's: new values of the factors and trained params, as they lie with us.

    AdapterError names a fault of the files, an adapter that the graph lacks or has of another rank
    or scale, or a param that differs from the graph's although it is frozen there.
    """
    config = _read_config(folder)
    tensors = _read_tensors(folder)
    found = {}
    for adapter in tuning.adapters:
        found.update(_factors(adapter, tuning.graph, config, tensors))
    for key in sorted(tensors):
        name, array = _plain_name(key), tensors[key]
        param = tuning.graph.params.get(name)
        if param is None:
            raise AdapterError(_stranger(folder, key, tensors, config))
        ours = _as_ours(array, param.permutation, key, param.value.shape)
        if name in tuning.trained:
            found[name] = ours
        elif not np.array_equal(ours, param.data):
            raise AdapterError(
                f'{folder}: {name} was trained, but is frozen here; add "{name}" = "full" to the '
                "scheme, or import the model with this weight"
            )
    return found


def _module(weight: str) -> str:
    module, _, leaf = weight.rpartition(".")
    if not module or leaf != "weight":
        raise AdapterError(
            f"{weight} is not the `weight` of a module, which PEFT's files know alone; save the "
            "merged weights by save_weights"
        )
    return module


def _plain_tensors(
    tuning: Tuning, values: Arrays, adapted: frozenset[str]
) -> tuple[dict[str, np.ndarray], list[str], bool]:
    """Return what is saved beside the adapters, modules_to_save, and whether all biases are."""
    factors = {name for adapter in tuning.adapters for name in (adapter.a, adapter.b)}
    trained = [name for name in tuning.trained if name not in factors]
    whole = {name.rpartition(".")[0] for name in trained if not name.endswith(".bias")}
    if "" in whole or whole & adapted:
        odd = [name for name in trained if name.rpartition(".")[0] in {"", *adapted}]
        raise AdapterError(
            f"{', '.join(odd)}: PEFT's files hold no such param beside adapters; save the merged "
            "weights by save_weights"
        )
    biases = any(
        name.endswith(".bias") and name.rpartition(".")[0] not in whole for name in trained
    )
    tensors = {}
    for name, param in tuning.graph.params.items():
        module, _, leaf = name.rpartition(".")
        # PEFT takes every module whose path *ends* so: `classifier` is `pre_classifier` too.
        if any(module.endswith(saved) for saved in whole):
            key = f"{PREFIX}{name}"
        elif biases and leaf == "bias":
            key = f"{PREFIX}{module}{'.base_layer' if module in adapted else ''}.bias"
        else:
            continue
        array = values.get(name, param.data)
        tensors[key] = array.transpose(np.argsort(param.permutation or range(array.ndim)))
        if leaf == "running_mean":
            tensors[f"{PREFIX}{module}.num_batches_tracked"] = np.zeros((), np.int64)
    return tensors, sorted(whole), biases


def _about(model: Any) -> dict[str, str | None]:
    """What a model says of itself: its task by its class's name, and where its base came from."""
    name = type(model).__name__
    task = next((task for ending, task in TASKS.items() if name.endswith(ending)), None)
    base = getattr(model, "name_or_path", None)
    return {"base_model_name_or_path": base or None, "task_type": task}


def _fan_in_first(graph: Graph, adapter: Adapter) -> bool:
    """Whether the framework holds this linear weight as [in, out], as transformers' Conv1D does."""
    param = graph.params[adapter.weight]
    return len(param.value.shape) == 2 and adapter.transposed == (param.permutation == (1, 0))


def _ranks(modules: Mapping[Adapter, str]) -> dict[str, Any]:
    """Return the most common rank and alpha, and the modules that have others."""
    rank = Counter(adapter.rank for adapter in modules).most_common(1)[0][0]
    alpha = Counter(adapter.alpha for adapter in modules).most_common(1)[0][0]
    return {
        "r": rank,
        "lora_alpha": _number(alpha),
        "rank_pattern": {m: a.rank for a, m in modules.items() if a.rank != rank},
        "alpha_pattern": {m: _number(a.alpha) for a, m in modules.items() if a.alpha != alpha},
    }


def _number(value: float) -> float:
    return int(value) if value == int(value) else value


def _targets(graph: Graph, modules: Sequence[str]) -> list[str] | str:
    """Return the modules' names; as one pattern where PEFT would take another's ending for one."""
    known = {name.rpartition(".")[0] for name in graph.params} - set(modules)
    if any(other.endswith(f".{module}") for other in known for module in modules):
        return "|".join(re.escape(module) for module in modules)
    return list(modules)


def _write(folder: Path, config: Mapping[str, Any], tensors: dict[str, np.ndarray]) -> None:
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
        made = Path(place) / "adapter"
        made.mkdir()
        save_file(tensors, made / WEIGHTS, metadata={"format": "pt"})
        (made / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
        if not folder.exists():
            os.rename(made, folder)
            return
        for name in (WEIGHTS, CONFIG):
            os.replace(made / name, folder / name)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            raise AdapterError(f"{path} is above {LARGEST_CONFIG} bytes; it is no adapter's")
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(f"{path}: {error}; PEFT's save_pretrained writes it") from error
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
        tensors = load_file(path)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise AdapterError(f"{path}: {error}") from error
    kept = {}
    for key, array in tensors.items():
        if key.endswith(".num_batches_tracked") or ".original_module." in key:
            continue
        if array.dtype not in (np.float32, np.float16) or not np.isfinite(array).all():
            raise AdapterError(f"{path}: {key} ({array.dtype}) must be finite f32 or f16 numbers")
        kept[key] = array.astype(np.float32)
    return kept


def _factors(
    adapter: Adapter, graph: Graph, config: Mapping[str, Any], tensors: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Take one adapter's factors out of `tensors`."""
    module, param = _module(adapter.weight), graph.params[adapter.weight]
    keys = [f"{PREFIX}{module}.lora_{letter}.weight" for letter in "AB"]
    missing = [key for key in keys if key not in tensors]
    if missing:
        raise AdapterError(
            f"the adapter lacks {missing[0]}; leave {adapter.weight} out of the scheme"
        )
    a, b = (tensors.pop(key) for key in keys)
    line = _scheme_line(adapter.weight, module, config, a)
    rank, scale = (a.shape[0] if a.ndim else 0), line.alpha / max(1, line.rank)
    if rank != adapter.rank or not np.isclose(scale, adapter.scale, rtol=1e-6):
        raise AdapterError(
            f"{module} was compiled with rank {adapter.rank} and alpha {adapter.alpha:g}; for this "
            f'adapter the scheme must have "{adapter.weight}" = '
            f"{{ lora = {line.rank}, alpha = {line.alpha:g} }}"
        )
    shapes = _factor_shapes(adapter, param)
    order = CONV if len(shapes[0]) == 4 else LINEAR
    arrays = (_as_ours(x, order, k, s) for x, k, s in zip((a, b), keys, shapes, strict=True))
    return dict(zip((adapter.a, adapter.b), arrays, strict=True))


def _factor_shapes(adapter: Adapter, param: Param) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = param.value.shape[::-1] if adapter.transposed else param.value.shape
    window = (1, 1) if len(shape) == 4 else ()
    return (*shape[:-1], adapter.rank), (*window, adapter.rank, shape[-1])


def _scheme_line(weight: str, module: str, config: Mapping[str, Any], a: np.ndarray) -> Adapter:
    """Return rank and alpha of a module's adapter; rsLoRA's scale is told as an alpha."""
    rank = _setting(module, config, "r", "rank_pattern")
    alpha = _setting(module, config, "lora_alpha", "alpha_pattern")
    if not a.ndim or rank != a.shape[0]:
        raise AdapterError(f"{module}: {CONFIG} says rank {rank:g}, lora_A is {list(a.shape)}")
    if config.get("use_rslora"):
        alpha *= rank**0.5
    return Adapter(weight, int(rank), alpha)


def _setting(module: str, config: Mapping[str, Any], name: str, patterns: str) -> float:
    """Return a number of the config for this module: a pattern's, where one names it."""
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
    wanted = [shape[index] for index in np.argsort(order)]
    if list(array.shape) != wanted:
        raise AdapterError(f"{key} is {list(array.shape)}; the model needs {wanted}")
    return np.array(array.transpose(order), order="C")


def _stranger(folder: Path, key: str, tensors: Arrays, config: Mapping[str, Any]) -> str:
    """Say what to do about a tensor that nothing in the graph is for."""
    match = re.fullmatch(re.escape(PREFIX) + r"(.+)\.lora_[AB]\.weight", key)
    if match is None:
        return f"{folder}: the model has no parameter {_plain_name(key)}; was it another model's?"
    module, a = match[1], tensors.get(f"{PREFIX}{match[1]}.lora_A.weight")
    if a is None:
        return f"{folder}: {key} stands there without its lora_A"
    line = _scheme_line(f"{module}.weight", module, config, a)
    return (
        f"{folder}: {module} has an adapter, but none here; the scheme must have "
        f'"{line.weight}" = {{ lora = {line.rank}, alpha = {line.alpha:g} }}'
    )

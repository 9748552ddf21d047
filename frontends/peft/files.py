"""Write adapters in the format of Hugging Face's PEFT: adapter_config.json,
adapter_model.safetensors.

`base_model.model.<module>.lora_A.weight` is [rank, in], `lora_B.weight` [out, rank] and DoRA's
`lora_magnitude_vector` [out]; a convolution's factors have its window and 1x1. Fully trained params
are stored beside them under their own names: the whole module is one of `modules_to_save`, or, if
only biases train, all biases are saved.
Neither torch nor peft is needed.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.sparse.lora import FACTOR_ORDERS, Adapter
from pockengine.errors import AdapterError, reason_of
from pockengine.files import private_folder, write_text_whole, write_whole
from pockengine.frontends.peft.places import PREFIX, AdaptedModule, place_of, tied_names

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

Arrays = Mapping[str, np.ndarray]

TASKS = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "ForCausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM",
}
"""Endings of the class names of transformers' models."""

HEADS: Mapping[str | None, tuple[str, ...]] = {
    "SEQ_CLS": ("classifier", "score"),
    "TOKEN_CLS": ("classifier", "score"),
    "QUESTION_ANS": ("qa_outputs",),
}
"""Modules that PEFT always trains and saves whole for a task."""


@dataclass(frozen=True)
class TunedParams:
    """Trained params of a graph: its adapters, and fully trained params."""

    graph: Graph
    adapters: tuple[Adapter, ...]
    trained: tuple[str, ...]


def save_adapters(tuning: TunedParams, values: Arrays, folder: Path, model: Any = None) -> None:
    """Write the adapters and other trained params from `values` (all params, in our layouts).

    A new folder appears whole; in one that is there each file is replaced at once, the weights
    first. `model` only gives the task and the origin of its base. AdapterError for params that the
    format cannot represent.
    """
    about, places = _about(model), _places(tuning)
    saved, biases = _saved(tuning, list(places.values()), about["task_type"])
    tensors = _plain_tensors(tuning, values, list(places.values()), saved, biases=biases)
    modules = {adapter: place.module for adapter, place in places.items()}
    dora = _all_dora(tuning.adapters)
    for adapter, place in places.items():
        for key, name in zip(place.keys(), (adapter.a, adapter.b), strict=True):
            array = values[name]
            tensors[key] = array.transpose(np.argsort(FACTOR_ORDERS[array.ndim]))
        if adapter.dora:
            tensors[place.magnitude_key()] = values[adapter.magnitude]
        tensors.update(place.zeros(adapter, tuning.graph))
    config = {
        **about,
        "bias": "all" if biases else "none",
        "fan_in_fan_out": all(_fan_in_first(tuning.graph, adapter) for adapter in modules),
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_dropout": 0.0,
        "modules_to_save": saved or None,
        "peft_type": "LORA",
        **_ranks(modules),
        "target_modules": _targets(tuning.graph, sorted(modules.values())),
        "use_dora": dora,
        "use_rslora": all(adapter.rslora for adapter in tuning.adapters),
    }
    _write(folder, config, {name: np.array(a, order="C") for name, a in sorted(tensors.items())})


def check_adapters(tuning: TunedParams, model: Any = None) -> None:
    """Raise AdapterError for params that the format cannot represent."""
    _saved(tuning, list(_places(tuning).values()), _about(model)["task_type"])
    _all_dora(tuning.adapters)


def _places(tuning: TunedParams) -> dict[Adapter, AdaptedModule]:
    if not tuning.adapters:
        raise AdapterError("the scheme has no LoRA adapters; save the weights by save_weights")
    for adapter in tuning.adapters:
        _check_unshared(tuning.graph, adapter.weight)
    return {adapter: place_of(tuning.graph.params, adapter.weight) for adapter in tuning.adapters}


def _all_dora(adapters: Sequence[Adapter]) -> bool:
    """Whether adapters are of DoRA; AdapterError if only some are."""
    plain = [adapter.weight for adapter in adapters if not adapter.dora]
    if 0 < len(plain) < len(adapters):
        raise AdapterError(
            f"{plain[0]} has an adapter without DoRA beside others with it, and PEFT's use_dora is "
            "for all; save the merged weights by save_weights"
        )
    return not plain


def _check_unshared(graph: Graph, weight: str) -> None:
    """Raise AdapterError for a weight of several modules, of which PEFT would adapt only one."""
    value = graph.params[weight].value
    places = {node.scope for node in graph.nodes if value in node.operands}
    if len(places) > 1:
        raise AdapterError(
            f"{weight} is shared by {', '.join(sorted(places))}, and PEFT's files name one module; "
            "save the merged weights by save_weights"
        )


def _saved(
    tuning: TunedParams, places: Sequence[AdaptedModule], task: str | None
) -> tuple[list[str], bool]:
    """Return modules_to_save, and whether all biases are saved."""
    adapted = {place.module for place in places}
    factors = {name for adapter in tuning.adapters for name in adapter.trained}
    trained = [name for name in tuning.trained if name not in factors]
    whole = _whole_modules(tuning.graph, trained, task, tied_names(tuning.graph))
    loose = [name for name in trained if "." not in name]
    odd = loose or [module for module in sorted(adapted) if _is_saved(module, whole)]
    if odd:
        fact = "in no module" if loose else f"adapted, and of {' or '.join(whole)} that train whole"
        raise AdapterError(
            f"{', '.join(odd)}: {fact}, which PEFT's files cannot say; save the merged weights by "
            "save_weights"
        )
    return whole, any(not _is_saved(name.rpartition(".")[0], whole) for name in trained)


def _plain_tensors(
    tuning: TunedParams,
    values: Arrays,
    places: Sequence[AdaptedModule],
    whole: Sequence[str],
    *,
    biases: bool,
) -> dict[str, np.ndarray]:
    """Return the params saved in addition to adapters: those of `whole` modules, and `biases`."""
    layers = dict(place.layer() for place in places)
    tensors = {}
    for name, param in tuning.graph.params.items():
        module, _, leaf = name.rpartition(".")
        if _is_saved(module, whole):
            key = f"{PREFIX}{name}"
        elif biases and leaf == "bias":
            key = f"{PREFIX}{layers.get(module, module)}.bias"
        else:
            continue
        array = values.get(name, param.data)
        tensors[key] = array.transpose(np.argsort(param.permutation or range(array.ndim)))
        if leaf == "running_mean":
            tensors[f"{PREFIX}{module}.num_batches_tracked"] = np.zeros((), np.int64)
    tied = tied_names(tuning.graph)
    keys = {f"{PREFIX}{other}": f"{PREFIX}{name}" for other, name in tied.items()}
    return tensors | {key: tensors[name] for key, name in keys.items() if name in tensors}


def _whole_modules(
    graph: Graph, trained: Sequence[str], task: str | None, tied: Mapping[str, str]
) -> list[str]:
    """Return modules_to_save: those that train more than a bias, and PEFT's for the task.

    A weight of several modules is saved with each: PEFT copies the module that it saves, and the
    others keep the old weight.
    """
    whole = {name for name in trained if not name.endswith(".bias")}
    whole |= {other for other, name in tied.items() if name in whole}
    modules = {name.rpartition(".")[0] for name in whole}
    known = {name.rpartition(".")[0] for name in graph.params}
    heads = {head for head in HEADS.get(task, ()) if any(_is_saved(m, [head]) for m in known)}
    return sorted({module for module in modules if not _is_saved(module, heads)} | heads)


def _is_saved(module: str, whole: Collection[str]) -> bool:
    """Whether PEFT saves this module with one of `whole`.

    It takes every module whose path *ends* so, `pre_classifier` by `classifier`, with all inside.
    """
    parts = module.split(".")
    paths = [".".join(parts[: count + 1]) for count in range(len(parts))]
    return any(path.endswith(saved) for path in paths for saved in whole)


def _about(model: Any) -> dict[str, str | None]:
    """A model's own description: its task by its class's name, and the origin of its base."""
    kind = type(model)
    # A task makes PEFT call forward as transformers' classes do.
    name = kind.__name__ if kind.__module__.startswith("transformers.") else ""
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
    same = len({adapter.rslora for adapter in modules}) == 1
    alphas = {m: a.alpha if same else a.plain_alpha for a, m in modules.items()}
    alpha = Counter(alphas.values()).most_common(1)[0][0]
    return {
        "r": rank,
        "lora_alpha": _number(alpha),
        "rank_pattern": {m: a.rank for a, m in modules.items() if a.rank != rank},
        "alpha_pattern": {m: _number(one) for m, one in alphas.items() if one != alpha},
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
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        with private_folder(folder) as place:
            fresh = place / "adapter"
            fresh.mkdir()
            _write_files(fresh, text, tensors)
            if not folder.exists():
                os.rename(fresh, folder)
                return
        _write_files(folder, text, tensors)
    except (OSError, SafetensorError) as error:
        raise AdapterError(f"adapters {folder} cannot be written: {reason_of(error)}") from error


def _write_files(folder: Path, config: str, tensors: dict[str, np.ndarray]) -> None:
    """Replace each file at once, the weights first."""
    write_whole(folder / WEIGHTS, lambda part: save_file(tensors, part, metadata={"format": "pt"}))
    write_text_whole(folder / CONFIG, config)

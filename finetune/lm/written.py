"""Write a fine-tuned decoder: PEFT adapters, or the model with its new weights.

Merged weights use the same files and types as the model, and are written one at a time.
"""

import json
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import Artifact
from pockengine.backends.session import Session
from pockengine.backends.stored import decoded
from pockengine.backends.weights import write_weights
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.contents import Contents, Converted, InMemory, Lazy
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.scalars import DType, converted, numbers_of
from pockengine.compiler.ir.types import TensorType
from pockengine.compiler.sparse.lora import Adapter, merged
from pockengine.errors import AdapterError, FinetuneError, reason_of
from pockengine.files import write_text_whole, write_whole
from pockengine.frontends.peft.files import TunedParams, check_adapters, save_adapters
from pockengine.models.causal_lm import CausalLM
from pockengine.models.experts import separate
from pockengine.models.gguf_adapters import obstacle, write_gguf_adapters
from pockengine.models.gguf_names import write_gguf_tensors
from pockengine.models.hugging_face import CONFIG
from pockengine.models.shards import GGUF, INDEX, SINGLE
from pockengine.terminal import Say

WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth")


def trained_params(session: Session) -> dict[str, np.ndarray]:
    """Return f32 copies of the trained params only."""
    specs = session.artifact.params
    names = [name for name, spec in specs.items() if spec.trained and spec.kind == "param"]
    return decoded(specs, {name: session.get_param(name) for name in names})


def adapter_fault(model: CausalLM, graph: Graph, artifact: Artifact) -> str | None:
    """Return why PEFT's format cannot represent what an artifact trains; None if it can."""
    try:
        check_adapters(_tuning(graph, artifact), model.module)
    except AdapterError as error:
        return str(error)
    return None


def _tuning(graph: Graph, artifact: Artifact) -> TunedParams:
    return TunedParams(graph, artifact.adapters, tuple(artifact.scheme))


def write_adapters(
    model: CausalLM, graph: Graph, session: Session, folder: Path, say: Say
) -> list[Path]:
    """Write the adapters in PEFT's format, with other trained parameters.

    FOLDER.gguf has only the adapters. `say` gets the reason if PEFT or llama.cpp cannot load them.
    Return the written paths.
    """
    artifact, config = session.artifact, model.module.config
    fault = adapter_fault(model, graph, artifact)
    if fault is not None:
        say(f"{folder} is not written: {fault}")
        return []
    tuning, values = _tuning(graph, artifact), trained_params(session)
    save_adapters(tuning, values, folder, model.module)
    path = folder.with_name(folder.name + GGUF)
    reason = obstacle(config, artifact.adapters)
    if reason is not None:
        say(f"{path} is not written: {reason}")
        return [folder]

    def write(part: Path) -> None:
        write_gguf_adapters(part, artifact.adapters, values, config)

    try:
        write_whole(path, write)
    except OSError as error:
        raise FinetuneError(f"{path} cannot be written: {reason_of(error)}") from error
    factors = {name for adapter in artifact.adapters for name in adapter.trained}
    if whole := [name for name in tuning.trained if name not in factors]:
        say(
            f"{path} lacks {', '.join(whole[:3])} ({len(whole)} trained whole), as llama.cpp reads "
            "adapters only; give it the merged model for all"
        )
    return [folder, path]


def write_merged(model: CausalLM, graph: Graph, session: Session, folder: Path) -> None:
    """Write a folder like the model's own: its other files, and the new weights.

    Tensors of unsupported types, which the model does not use, are left out.
    """
    values = trained_params(session)
    changed = _changed(graph, session.artifact.adapters, values)
    names = model.names(graph)
    new = separate({names[name]: tensor for name, tensor in changed.items()}, model.file_weights())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _copy_others(model.folder, folder)
        for file, tensors in model.shards.items():
            if file.endswith(GGUF):
                source, config = model.folder / file, model.module.config
                write_whole(folder / file, partial(write_gguf_tensors, source, config, new))
                continue
            known = {name: old for name, old in tensors.items() if old.known}
            result = {name: _typed(name, new.get(name), old) for name, old in known.items()}
            write_whole(folder / file, partial(write_weights, result))
        if not all(file == SINGLE or file.endswith(GGUF) for file in model.shards):
            _write_index(model.shards, folder / INDEX)
    except OSError as error:
        raise FinetuneError(f"{folder} cannot be written: {reason_of(error)}") from error


def _changed(
    graph: Graph, adapters: tuple[Adapter, ...], values: Mapping[str, np.ndarray]
) -> dict[str, Contents]:
    """Return the params that training changed, in the framework's layout; merged weights lazily."""
    changed: dict[str, Contents] = {
        name: InMemory(_in_framework_order(graph, name, array))
        for name, array in values.items()
        if name in graph.params
    }
    for adapter in adapters:
        changed[adapter.weight] = _product_added(graph, adapter, values)
    return changed


def _product_added(graph: Graph, adapter: Adapter, values: Mapping[str, np.ndarray]) -> Lazy:
    """A weight plus its adapter's product, computed when it is read."""
    param = graph.params[adapter.weight]

    def load() -> np.ndarray:
        tensors = {adapter.weight: param.data, **{n: values[n] for n in adapter.trained}}
        whole = merged([adapter], tensors)[adapter.weight]
        return _in_framework_order(graph, adapter.weight, whole)

    order = param.permutation
    type_ = param.value.type
    back = type_ if order is None else type_.transposed(tuple(int(i) for i in np.argsort(order)))
    return Lazy(back, load, adapter.weight)


def _in_framework_order(graph: Graph, name: str, array: np.ndarray) -> np.ndarray:
    order = graph.params[name].permutation
    return np.ascontiguousarray(array if order is None else array.transpose(np.argsort(order)))


def _typed(name: str, new: Contents | None, old: Contents) -> Contents:
    """Convert new numbers to the old type; return the old ones if there are no new ones.

    Reading raises FinetuneError for finite numbers beyond the old type.
    """
    if isinstance(old, Grid):  # quantized: numbers of 16 bits, as its package decodes them
        old = Converted(old, TensorType(old.exact or DType.F16, old.type.shape))
    if new is None:
        return old
    dtype: DType = old.type.dtype

    def load() -> np.ndarray:
        numbers = numbers_of(new.read())
        with np.errstate(over="ignore"):  # refused below
            stored = converted(numbers, dtype)
        if np.isfinite(numbers).all() and not np.isfinite(numbers_of(stored)).all():
            raise FinetuneError(
                f"{name} reaches {np.abs(numbers).max():.3g} after training, beyond the file's "
                f"{dtype.value}; train at a smaller rate, or give the model in bf16 or f32"
            )
        return stored

    return Lazy(old.type, load, "a merged weight")


def _copy_others(source: Path, folder: Path) -> None:
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix not in WEIGHTS and path.name != INDEX:
            shutil.copyfile(path, folder / path.name)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    # Merged weights are floats.
    if any([part.pop("quantization_config", None) is not None for part in parts]):
        write_text_whole(folder / CONFIG, json.dumps(config, indent=2) + "\n")


def _write_index(shards: Mapping[str, Mapping[str, Contents]], path: Path) -> None:
    known = [
        (name, file, one) for file in shards for name, one in shards[file].items() if one.known
    ]
    places = {name: file for name, file, _ in known}
    size = sum(tensor.type.nbytes for _, _, tensor in known)
    table = {"metadata": {"total_size": size}, "weight_map": places}
    write_text_whole(path, json.dumps(table, indent=2) + "\n")

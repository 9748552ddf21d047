"""The weights of a transformers folder by name: safetensors, as one file or indexed shards.

A folder may have one GGUF file instead. Only headers are read; tensors are mapped on demand. Layers
of quantized folders become weights (packed.py).
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pockengine.compiler.ir.contents import Contents, mapped
from pockengine.errors import GraphError, ImportModelError, reason_of
from pockengine.models.gguf_names import gguf_tensors
from pockengine.models.packed import Shards, format_of, method_of, unpacked

GGUF = ".gguf"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def shards_of(folder: Path, config: Any) -> Shards:
    """Return the weights of each file; ImportModelError for a missing or damaged one."""
    if (settings := method_of(config)) is not None:
        format_of(folder, settings)  # before files, whose types may be unsupported too
    return unpacked(folder, _files(folder, config), config)


def _files(folder: Path, config: Any) -> dict[str, dict[str, Contents]]:
    """Return the tensors of each file; transformers also prefers the single one."""
    if (folder / SINGLE).is_file():
        return {SINGLE: _tensors(folder / SINGLE)}
    if not (folder / INDEX).is_file():
        ggufs = sorted(folder.glob(f"*{GGUF}"))
        if len(ggufs) == 1:
            return {ggufs[0].name: gguf_tensors(ggufs[0], config)}
        raise ImportModelError(
            f"{folder} has neither {SINGLE} nor {INDEX}, and {len(ggufs)} GGUF files; weights "
            "must lie in it as safetensors (model.save_pretrained writes them), or as one GGUF"
        )
    places = _index(folder / INDEX)
    shards = {name: _tensors(folder / name) for name in sorted(set(places.values()))}
    for tensor, name in places.items():
        if tensor not in shards[name]:
            raise ImportModelError(
                f"{folder / name} lacks {tensor}, which {INDEX} says it has; copy this shard again"
            )
    return shards


def _index(path: Path) -> Mapping[str, str]:
    """Read the index of tensors and files."""
    try:
        places = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        names = dict(places)
        if not names or not all(_is_beside(name) for name in names.values()):
            raise ValueError("weight_map does not name files beside it")
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise ImportModelError(
            f"{path} is no index of shards: {reason_of(error)}; copy it again"
        ) from error
    return names


def _is_beside(name: object) -> bool:
    return isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name


def _tensors(path: Path) -> dict[str, Contents]:
    try:
        return mapped(path)
    except GraphError as error:
        fact = f"{INDEX} names it, and it is not there"
        if os.path.isfile(path):  # accepts any name, unlike pathlib's
            fact = f"it has {path.stat().st_size:,} bytes"
        raise ImportModelError(f"{error} ({fact}); copy this shard again, whole") from error

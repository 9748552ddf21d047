"""Linear attention of Qwen3-Next in GGUF: one tensor of queries, keys and values, one of gates z.

Transformers has one weight, with the rows of each key head together: its query, its key, and the
values and z of its value heads. Files of llama.cpp's first converter have this weight as it is.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.grids import Grid, on_one_grid
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.errors import ImportModelError

_MIXED = re.compile(r"(.+\.linear_attn)\.in_proj_qkv\.weight")
_WHOLE = re.compile(r"(.+\.linear_attn)\.in_proj_qkvz\.weight")
_FAMILY = "qwen3_next"


def joined_heads(weights: Mapping[str, Contents], config: Any, path: str) -> dict[str, Contents]:
    """Return transformers' weights of linear attention for those of a file."""
    found = dict(weights)
    if config.model_type != _FAMILY:
        return found
    for match in filter(None, map(_MIXED.fullmatch, weights)):
        parts = [found.pop(match[0]), found.pop(f"{match[1]}.in_proj_z.weight", None)]
        rows = (_mixed(config), _values(config))
        if [part and part.type.shape[:1] for part in parts] != [(count,) for count in rows]:
            raise ImportModelError(
                f"{path}: {match[1]} has {' and '.join(str(part and part.type) for part in parts)} "
                f"instead of {rows[0]} and {rows[1]} rows, which config.json says; both must be of "
                "one model"
            )
        whole = _joined([part for part in parts if part is not None], _order(config))
        found[f"{match[1]}.in_proj_qkvz.weight"] = whole
    return found


def apart_heads(new: Mapping[str, Contents], config: Any) -> dict[str, Contents]:
    """Return a file's weights of linear attention for those of transformers."""
    found = dict(new)
    if config.model_type != _FAMILY:
        return found
    places = np.argsort(_order(config))
    for match in filter(None, map(_WHOLE.fullmatch, new)):
        whole, mixed = found.pop(match[0]), _mixed(config)
        found[f"{match[1]}.in_proj_qkv.weight"] = _taken(whole, places[:mixed])
        found[f"{match[1]}.in_proj_z.weight"] = _taken(whole, places[mixed:])
    return found


def _keys(config: Any) -> int:
    return int(config.linear_num_key_heads * config.linear_key_head_dim)


def _values(config: Any) -> int:
    return int(config.linear_num_value_heads * config.linear_value_head_dim)


def _mixed(config: Any) -> int:
    return 2 * _keys(config) + _values(config)


def _order(config: Any) -> np.ndarray:
    """Return the places of transformers' rows in the file's two tensors, one after the other."""
    sizes = (_keys(config), _keys(config), _values(config), _values(config))
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    heads = [part.reshape(int(config.linear_num_key_heads), -1) for part in parts]
    return np.concatenate(heads, axis=1).reshape(-1)


def _joined(parts: Sequence[Contents], order: np.ndarray) -> Contents:
    def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
        whole: np.ndarray = np.concatenate(arrays)[order]
        return whole

    type_ = TensorType(F32, (len(order), *parts[0].type.shape[1:]))
    grids = [part for part in parts if isinstance(part, Grid)]
    if len(grids) == len(parts):
        return on_one_grid(grids, type_, grids[0].axis, join)
    return Lazy(type_, lambda: join([numbers_of(part.read()) for part in parts]), "joined heads")


def _taken(whole: Contents, rows: np.ndarray) -> Contents:
    type_ = TensorType(F32, (len(rows), *whole.type.shape[1:]))
    return Lazy(type_, partial(_rows, whole, rows), "rows of heads")


def _rows(whole: Contents, rows: np.ndarray) -> np.ndarray:
    array: np.ndarray = numbers_of(whole.read())[rows]
    return array

"""Layouts of weights in GGUF beside transformers' (llama.cpp's convert_hf_to_gguf.py).

Rows of queries and keys, of fused products, and of linear attention have other orders; norms may
hold the factor itself instead of its difference from 1; convolutions have two dimensions; GPT-2's
products are transposed; and decays are -exp(A_log).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pockengine.compiler.ir.blocks import BLOCK
from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.types import F32, Shape, TensorType
from pockengine.errors import ImportModelError

Order = Callable[[Any, int], np.ndarray]
"""From a configuration and a number of rows: places in transformers' order, in llama.cpp's."""
Numbers = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Layout:
    """How llama.cpp's weight differs: orders, numbers (to llama.cpp's and back), dimensions."""

    rows: Order | None = None
    columns: Order | None = None
    numbers: tuple[Numbers, Numbers] | None = None
    squeezed: bool = False
    transposed: bool = False


def _pairs(setting: str) -> Order:
    """Return the order in which a rotation pairs neighbors, not halves of a head."""

    def order(config: Any, size: int) -> np.ndarray:
        heads = int(getattr(config, setting))
        return np.arange(size).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)

    return order


def _value_heads(config: Any, size: int) -> np.ndarray:
    """Return the order of value heads by their place in the group of a key head."""
    groups = int(config.linear_num_key_heads)
    each = int(config.linear_num_value_heads) // groups
    return np.arange(size).reshape(groups, each, -1).swapaxes(0, 1).reshape(-1)


def _mixed_heads(config: Any, size: int) -> np.ndarray:
    """Return the order of queries and keys, which stay, and of value heads."""
    first = 2 * int(config.linear_num_key_heads * config.linear_key_head_dim)
    return np.concatenate([np.arange(first), first + _value_heads(config, size - first)])


def _grouped_heads(config: Any, size: int) -> np.ndarray:
    """Return the order of all queries, keys and values, for those of each group of heads."""
    heads = int(config.num_attention_heads)
    groups = heads
    if getattr(config, "new_decoder_architecture", False):
        groups = int(config.num_kv_heads)
    elif getattr(config, "multi_query", False):
        groups = 1
    places = np.arange(size).reshape(groups, heads // groups + 2, -1)
    return np.concatenate([part.reshape(-1) for part in np.split(places, (-2, -1), axis=1)])


def _decay(array: np.ndarray) -> np.ndarray:
    return -np.exp(array.astype(np.float64))


def _logarithm(array: np.ndarray) -> np.ndarray:
    if not (array < 0).all():
        raise ImportModelError(
            "decays of linear attention (ssm_a) must be negative; convert the model again"
        )
    return np.log(-array.astype(np.float64))


def _one_more(array: np.ndarray) -> np.ndarray:
    return array + np.float32(1)


def _one_less(array: np.ndarray) -> np.ndarray:
    return array - np.float32(1)


Layouts = Mapping[str, Layout]
_PAIRED: Layouts = {
    r".*\.q_proj\.(weight|bias)": Layout(rows=_pairs("num_attention_heads")),
    r".*\.k_proj\.(weight|bias)": Layout(rows=_pairs("num_key_value_heads")),
}
_FROM_ONE: Layouts = {r".*norm\.weight": Layout(numbers=(_one_more, _one_less))}
_FUSED: Layouts = {r".*\.query_key_value\.(weight|bias)": Layout(rows=_grouped_heads)}
_CONVOLVED: Layouts = {r".*\.conv\.conv\.weight": Layout(squeezed=True)}
_LINEAR: Layouts = {
    r".*\.in_proj_qkv\.weight": Layout(rows=_mixed_heads),
    r".*\.in_proj_[zab]\.weight": Layout(rows=_value_heads),
    r".*\.dt_bias": Layout(rows=_value_heads),
    r".*\.A_log": Layout(rows=_value_heads, numbers=(_decay, _logarithm)),
    r".*\.conv1d\.weight": Layout(rows=_mixed_heads, squeezed=True),
    r".*\.linear_attn\.out_proj\.weight": Layout(columns=_value_heads),
    r".*\.linear_attn\.norm\.weight": Layout(),
    **_FROM_ONE,
}
_PLAIN_LINEAR: Layouts = {
    r".*\.A_log": Layout(numbers=(_decay, _logarithm)),
    r".*\.conv1d\.weight": Layout(squeezed=True),
    r".*\.linear_attn\.norm\.weight": Layout(),
    **_FROM_ONE,
}
LAYOUTS: Mapping[str, Layouts] = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "smollm3", "granite", "arcee"), _PAIRED),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), _FROM_ONE),
    **dict.fromkeys(("lfm2", "lfm2_moe"), _CONVOLVED),
    "qwen3_5_text": _LINEAR,
    "qwen3_next": _PLAIN_LINEAR,
    **dict.fromkeys(("bloom", "falcon"), _FUSED),
    "gpt2": {r".*\.c_(attn|proj|fc)\.weight": Layout(transposed=True)},
}
"""By `model_type` of config.json and transformers' name of the weight; the first that matches."""


def layout_of(name: str, config: Any) -> Layout:
    """Return how llama.cpp's layout of a weight differs, by transformers' name."""
    layouts = LAYOUTS.get(config.model_type, {}).items()
    return next((one for pattern, one in layouts if re.fullmatch(pattern, name)), Layout())


def laid_out(contents: Contents, name: str, config: Any, back: bool) -> Contents:
    """Convert a weight to the layout of llama.cpp, or with `back` to that of transformers."""
    layout = layout_of(name, config)
    for axis, order in enumerate((layout.rows, layout.columns)):
        if order is not None:
            moved = partial(_moved, partial(_places, name, config, order), axis, back)
            contents = _reordered(contents, axis, moved)
    if layout.numbers is not None:
        contents = _renumbered(contents, layout.numbers[back])
    shape = contents.type.shape
    if layout.squeezed and len(shape) == 3 - back:
        contents = _reshaped(contents, (shape[0], 1, shape[1]) if back else shape[::2])
    if layout.transposed and len(shape) == 2:
        contents = _transposed(contents)
    return contents


def _places(name: str, config: Any, order: Order, size: int) -> np.ndarray:
    """Return an order of `size` numbers; ImportModelError if the configuration has another size."""
    try:
        places = order(config, size)
    except ValueError:
        places = np.arange(0)
    if len(places) != size:
        raise ImportModelError(
            f"{name} has {size} rows or columns of heads, and config.json has another number of "
            "heads, or heads of another size; both must be of one model"
        )
    return places


def _moved(
    places: Callable[[int], np.ndarray], axis: int, back: bool, array: np.ndarray
) -> np.ndarray:
    index = places(array.shape[axis])
    return np.take(array, np.argsort(index) if back else index, axis)


def _reordered(contents: Contents, axis: int, moved: Numbers) -> Contents:
    if axis >= len(contents.type.shape):
        raise ImportModelError(f"{contents.type} has no rows or columns of heads; convert it again")
    size = contents.type.shape[axis]
    moved(np.empty((1,) * axis + (size,), np.int8))  # checks the size
    if isinstance(contents, Grid) and contents.axis != axis:
        return contents.reordered(moved)
    if isinstance(contents, Grid) and axis and _is_whole(moved, axis, size):
        return _in_blocks(contents).reordered(moved)
    return Lazy(contents.type, lambda: moved(contents.read()), "numbers in another order")


def _is_whole(moved: Numbers, axis: int, size: int) -> bool:
    """Whether the order moves blocks as a whole."""
    try:
        moved(np.empty((1,) * axis + (size // BLOCK,), np.int8))
    except ImportModelError:
        return False
    return size % BLOCK == 0


def _in_blocks(grid: Grid) -> Grid:
    """Return the same numbers with a scale per block."""

    def load() -> tuple[np.ndarray, np.ndarray]:
        codes, scales = grid.load()
        each = codes.shape[grid.axis] // scales.shape[grid.axis]
        return codes, np.repeat(scales, each // BLOCK, grid.axis)

    return replace(grid, load=load)


def _renumbered(contents: Contents, numbers: Numbers) -> Contents:
    def load() -> np.ndarray:
        return numbers(contents.read()).astype(np.float32)

    return Lazy(TensorType(F32, contents.type.shape), load, "converted numbers")


def _reshaped(contents: Contents, shape: Shape) -> Contents:
    return Lazy(TensorType(F32, shape), lambda: contents.read().reshape(shape), "a convolution")


def _transposed(contents: Contents) -> Contents:
    if isinstance(contents, Grid):
        return contents.transposed((1, 0))
    type_ = contents.type.transposed((1, 0))
    return Lazy(type_, lambda: np.ascontiguousarray(contents.read().T), "a transposed weight")


def factors_laid_out(
    a: np.ndarray, b: np.ndarray, name: str, config: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors [rank, in] and [out, rank] of a weight's adapter in llama.cpp's order."""
    layout = layout_of(name, config)
    if layout.rows is not None:
        b = _moved(partial(_places, name, config, layout.rows), 0, False, b)
    if layout.columns is not None:
        a = _moved(partial(_places, name, config, layout.columns), 1, False, a)
    return a, b

"""Operators that process selected rows one by one, so that unused rows can be added."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from pockengine.frontends.torch.nodes import arguments_of, name_of, written_by

ACROSS = "goes across rows"
OTHERWISE = "is not known to work row by row"
PLACES = "indexes by numbers that are calculated of places"

COUNTED = {"add", "sub", "mul", "div"}
"""Operators that may take the number of selected rows as a number."""

BY_ELEMENT = {"maximum", "minimum", "log_sigmoid", "hardswish", "rsub", "where", "masked_fill"}
BY_ELEMENT |= {"copy", "fill", "zero"}
"""Elementwise operators; PyTorch does not mark all their overloads as such."""

CREATED = {"zeros", "ones", "full", "new_zeros", "new_ones", "new_full"}
LOSSES = {
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
}
CTC = "pockengine.ctc_loss"
DIVISIONS = {"div", "floor_divide", "remainder", "fmod"}
SUMS = {"sum", "mean"}
ALONG = {
    "softmax", "log_softmax", "_softmax", "_log_softmax", "cumsum", "cumprod", "topk", "sort",
    "argmax", "argmin", "max", "min", "amax", "amin", "logsumexp", "any", "all", "var", "std",
    "prod", "select", "unbind", "split", "split_with_sizes", "chunk", "cat", "stack", "gather",
    "unsqueeze", "squeeze", "linalg_vector_norm", "norm", "glu", "logcumsumexp", "cummax", "cummin",
    "diff",
}  # fmt: skip
"""Operators along named dimensions, none of which may be the rows."""

MOVES = {"permute", "transpose", "t", "numpy_T", "mT", "expand", "expand_as", "broadcast_tensors"}
SAME = {"dropout", "native_dropout", "clone", "detach", "alias", "contiguous", "lift_fresh_copy"}
SAME |= {"one_hot", "to", "_to_copy", "type_as", "zeros_like", "ones_like", "full_like"}
VIEWS = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "_reshape_alias"}
PICKED = {"index", "index_select", "gather", "masked_select"}


@dataclass
class FamilyReader:
    """Facts about a family while its readers are checked."""

    symbols: set[str]
    rows: dict[Node, int | None]
    """The dimension of each node that lists rows; -1 where sizes depend on them otherwise."""
    masks: dict[Node, Node] = field(default_factory=dict)
    """The mask of each operator that selects."""
    is_mask: Callable[[Node], bool] = lambda node: False

    def row(self, value: Any) -> int | None:
        """Return the dimension of a value that lists rows; None if there is none."""
        return self.rows.get(value) if isinstance(value, Node) else None


def problem(reader: FamilyReader, node: Node) -> str:
    """Return why more rows cannot be added to this node; None if it can."""
    if node.op != "call_function":
        return "depends on what is selected"
    if reader.row(node) == -1:
        return "gives a size that is not the number of selected rows"
    if any(not _is_float(x) for x in written_by(node) if reader.row(x) is not None):
        return "writes to places"
    name = name_of(node)
    if name == "getitem" or name in SAME | MOVES | CREATED:
        return ""
    if name == "sym_size":
        return _of_sizes(reader, node)
    check = CHECKS.get(name)
    if check is not None:
        return check(reader, node)
    if name in ALONG:
        return _along(reader, node)
    if _by_element(node):
        return _pointwise(node, name)
    return OTHERWISE


def is_place(reader: FamilyReader, node: Any) -> bool:
    """Whether these indices are right for rows that were not selected too."""
    if reader.row(node) is None or node in reader.masks:
        return True
    name = name_of(node)
    if name in PICKED:
        return True
    known = name in VIEWS | SAME | MOVES | {"getitem", "select", "unsqueeze", "squeeze", "unbind"}
    return known and all(is_place(reader, source) for source in node.all_input_nodes)


def is_copied(reader: FamilyReader, node: Any) -> bool:
    """Whether these numbers are of a selected row where theirs was not selected, if one was."""
    if reader.row(node) is None:
        return True
    if node in reader.masks:
        return name_of(node) in ("index", "masked_select")
    if name_of(node) in ("index", "index_select"):
        return True
    return all(is_copied(reader, source) for source in node.all_input_nodes)


def _of_sizes(reader: FamilyReader, node: Node) -> str:
    for user in node.users:
        alone = any(argument is node for argument in user.args)
        known = COUNTED if alone else VIEWS | CREATED | {"expand"}
        if name_of(user) not in known or node in user.kwargs.values():
            return "asks how many rows are selected"
    return ""


def _pointwise(node: Node, name: str) -> str:
    floats = all(map(_is_float, node.all_input_nodes))
    return "" if floats or name not in DIVISIONS else "divides integers of rows"


def _by_element(node: Node) -> bool:
    if name_of(node) in BY_ELEMENT:
        return True
    return (
        isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags
    )


def _is_float(node: Node) -> bool:
    value = node.meta["val"]
    return not isinstance(value, torch.Tensor) or value.is_floating_point()


def _along(reader: FamilyReader, node: Node) -> str:
    """Check operators that name the dimensions along which they go."""
    named = arguments_of(node)
    source = next(value for value in named.values() if isinstance(value, (Node, list, tuple)))
    rank = node.all_input_nodes[0].meta["val"].dim() + (name_of(node) in ("unsqueeze", "stack"))
    dims = named.get("dim", named.get("axis"))
    if dims is None or dims == []:
        return ACROSS
    chosen = {dim % rank for dim in (dims if isinstance(dims, (list, tuple)) else [dims])}
    if name_of(node) in ("unsqueeze", "squeeze"):
        return ""
    parts = source if isinstance(source, (list, tuple)) else [source]
    rows = {reader.row(part) for part in parts}
    if name_of(node) == "gather":
        rows |= {reader.row(named["index"])}
        if not (is_place(reader, named["index"]) or is_copied(reader, named["index"])):
            return PLACES
    if name_of(node) == "stack":
        return "" if len(rows) == 1 else ACROSS
    return ACROSS if rows & chosen or len(rows) > 1 else ""


def _view(reader: FamilyReader, node: Node) -> str:
    source = node.args[0]
    before, after = reader.row(source), reader.row(node)
    if before is None or after is None:
        return ACROSS
    shapes = (source.meta["val"].shape[:before], node.meta["val"].shape[:after])
    return "" if math.prod(shapes[0]) == math.prod(shapes[1]) else ACROSS


def _linear(reader: FamilyReader, node: Node) -> str:
    x, *weights = node.args
    if any(reader.row(weight) is not None for weight in weights):
        return ACROSS
    return ACROSS if reader.row(x) == _rank(x) - 1 else ""


def _matmul(reader: FamilyReader, node: Node) -> str:
    x, y = node.args[-2:]
    if name_of(node) in ("addmm", "baddbmm"):
        x, y = node.args[1:3]
        if reader.row(node.args[0]) not in (None, reader.row(node)):
            return ACROSS
    one, other = reader.row(x), reader.row(y)
    if one == _rank(x) - 1 or other == max(_rank(y) - 2, 0):
        return ACROSS
    if one is not None and other is not None:
        batches = one - _rank(x) == other - _rank(y) < -2
        return "" if batches else ACROSS
    return ""


def _attention(reader: FamilyReader, node: Node) -> str:
    """Check attention: each row of a batch attends to itself."""
    rows = [reader.row(value) for value in node.args[:3]]
    masks = [*node.args[3:], *node.kwargs.values()]
    if len(set(rows)) > 1 or rows[0] is None or rows[0] >= _rank(node.args[0]) - 2:
        return ACROSS
    return ACROSS if any(reader.row(mask) not in (None, rows[0]) for mask in masks) else ""


def _norm(reader: FamilyReader, node: Node) -> str:
    rank, row = _rank(node.args[0]), reader.row(node.args[0])
    if name_of(node) == "group_norm":
        return "" if row == 0 else ACROSS
    return ACROSS if row is None or row >= rank - len(node.args[1]) else ""


def _slice(reader: FamilyReader, node: Node) -> str:
    x, dim, start, end, step = arguments_of(node).values()
    whole = start in (None, 0) and step == 1 and (end is None or end == 2**63 - 1)
    return "" if whole or dim % _rank(x) != reader.row(x) else ACROSS


def _pad(reader: FamilyReader, node: Node) -> str:
    x, pads = node.args[:2]
    padded = {_rank(x) - 1 - place // 2 for place, size in enumerate(pads) if size}
    return ACROSS if reader.row(x) in padded else ""


def _index(reader: FamilyReader, node: Node) -> str:
    x, indices = node.args
    present = [index for index in indices if index is not None]
    rows = [reader.row(index) for index in present]
    if reader.row(x) is not None or any(row is None for row in rows):
        return "indexes rows by another list"
    return "" if all(is_place(reader, index) for index in present) else PLACES


def _index_select(reader: FamilyReader, node: Node) -> str:
    x, _, index = node.args
    if reader.row(x) is not None:
        return "indexes rows by another list"
    return "" if is_place(reader, index) else PLACES


def _embedding(reader: FamilyReader, node: Node) -> str:
    if reader.row(node.args[0]) is not None:
        return ACROSS
    return "" if is_place(reader, node.args[1]) else PLACES


def _add_at(reader: FamilyReader, node: Node) -> str:
    named = arguments_of(node)
    index, source = named["index"], named.get("source", named.get("src"))
    if reader.row(named["x"]) is not None or not isinstance(source, Node):
        return ACROSS
    dim = named["dim"] % _rank(named["x"])
    if reader.row(index) is None or reader.row(source) not in ({reader.row(index), dim}):
        return ACROSS
    return "" if is_place(reader, index) else PLACES


def _put(reader: FamilyReader, node: Node) -> str:
    named = arguments_of(node)
    x, indices, values = named["x"], named["indices"], named["values"]
    if reader.row(x) is not None or any(index is None for index in indices):
        return "writes to rows that are selected"
    masks = [index for index in indices if index.meta["val"].dtype is torch.bool]
    if masks:
        same = len(indices) == 1 and reader.is_mask(masks[0]) and reader.row(values) == 0
        return "" if same else "writes where another mask holds"
    flat = all(reader.row(index) == 0 and _rank(index) == 1 for index in indices)
    if not flat or reader.row(values) not in (None, 0):
        return "indexes rows by another list"
    return "" if all(is_place(reader, index) for index in indices) else PLACES


def _cross_entropy(reader: FamilyReader, node: Node) -> str:
    x, target, *arguments = node.args
    rows = reader.row(x), reader.row(target)
    if rows != (0, 0) or any(reader.row(other) is not None for other in arguments):
        return ACROSS
    return "reads probabilities" if target.meta["val"].is_floating_point() else ""


def _sum(reader: FamilyReader, node: Node) -> str:
    value = node.args[0].meta["val"]
    return "adds up complex numbers" if value.is_complex() else ""


def _loss(reader: FamilyReader, node: Node) -> str:
    rows = {reader.row(value) for value in node.args[:2]}
    shapes = {_plain_sizes(value) for value in node.args[:2]}
    arguments = [*node.args[2:], *node.kwargs.values()]
    more = any(reader.row(value) is not None for value in arguments)
    return ACROSS if len(rows) > 1 or len(shapes) > 1 or more else ""


def _ctc(reader: FamilyReader, node: Node) -> str:
    x, labels, *lengths, _ = node.args
    rows = [reader.row(value) for value in (labels, x, *lengths)]
    return "" if rows == [0, None, None, None] else ACROSS


def _plain_sizes(value: Any) -> tuple[int, ...]:
    """Return a shape in which rows are none: all of a family are as many."""
    return tuple(size if isinstance(size, int) else -1 for size in value.meta["val"].shape)


def _rank(value: Any) -> int:
    return int(value.meta["val"].dim())


CHECKS: dict[str, Callable[[FamilyReader, Node], str]] = {
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(("mm", "matmul", "bmm", "addmm", "baddbmm"), _matmul),
    **dict.fromkeys(("layer_norm", "rms_norm", "group_norm"), _norm),
    **dict.fromkeys(("index_add", "scatter_add", "index_copy"), _add_at),
    **dict.fromkeys(("cross_entropy_loss", "nll_loss_nd", "nll_loss"), _cross_entropy),
    **dict.fromkeys(SUMS, _sum),
    **dict.fromkeys(LOSSES, _loss),
    CTC: _ctc,
    "scaled_dot_product_attention": _attention,
    "linear": _linear,
    "slice": _slice,
    "pad": _pad,
    "constant_pad_nd": _pad,
    "index": _index,
    "index_select": _index_select,
    "embedding": _embedding,
    "index_put": _put,
}
"""How operators are checked, by their names."""

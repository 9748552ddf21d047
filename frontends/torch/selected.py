"""Rows that data select, `x[mask]` and `nonzero`, computed for all that could be selected.

The number of rows that a mask selects depends on the data, but the number of all rows does not.
Where all that reads selected rows goes row by row, sums over them, or writes each where it came
from, as experts of a mixture do, it is computed for every row, and what was not selected is left
out of sums and writes. Rows that were not selected are replaced by a selected row, so that they
cause no errors that the mask avoids (a logarithm of 0); they get no gradient.

A family is all that was selected by one mask. If an operator reads the rows in another way, the
selection stays unchanged and is rejected.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node
from torch.overrides import TorchFunctionMode

from pockengine.frontends.faults import theirs
from pockengine.frontends.torch.blocks import has_effect
from pockengine.frontends.torch.decisions import Constants, traced_node, untraced
from pockengine.frontends.torch.nodes import WHY, source_line, written_by
from pockengine.frontends.torch.selected_checks import FamilyReader, problem
from pockengine.frontends.torch.selected_rewrite import Rewriter

if TYPE_CHECKING:
    from torch.export import ExportedProgram

MASKS = {
    "aten.nonzero.default": 0,
    "aten.nonzero_numpy.default": 0,
    "aten.where.default": 0,
    "aten.masked_select.default": 1,
}
"""The operators that select, besides indexing by a mask, and which argument the mask is."""


SELECTORS = {torch.Tensor.__getitem__, torch.masked_select, torch.Tensor.masked_select}
SELECTORS |= {torch.nonzero, torch.Tensor.nonzero, torch.where, torch.argwhere}


class SameSizes(TorchFunctionMode):
    """Tells a trace the number of rows that a constant mask selects; equal masks share it."""

    def __init__(self, *, filled: bool = False) -> None:
        """With `filled` each mask is taken to select a row at least, so that guards are passed."""
        super().__init__()
        self._filled = filled
        self._sizes: dict[Any, torch.SymInt] = {}
        self._constants = Constants()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, and compare the number of rows with that of others."""
        if func in SELECTORS and not kwargs:
            func, args = self._by_places(func, args)
        result = theirs(func, *args, **(kwargs or {}))
        if func in SELECTORS:
            first = result[0] if isinstance(result, (tuple, list)) and result else result
            if isinstance(first, torch.Tensor):
                self._compare(first)
        return result

    def _by_places(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Replace constant masks (such as off-diagonal ones) by the positions that they select."""
        x, *others = args
        if func in (torch.masked_select, torch.Tensor.masked_select):
            if x.shape != others[0].shape:
                return func, args
        elif func is not torch.Tensor.__getitem__:
            return func, args
        indices = others[0] if isinstance(others[0], tuple) else (others[0],)
        places = [self._places(part) for part in indices]
        if not any(place is not None for place in places):
            return func, args
        pairs = zip(indices, places, strict=True)
        index = [part for one, place in pairs for part in ([one] if place is None else place)]
        return torch.Tensor.__getitem__, (x, tuple(index))

    def _places(self, mask: Any) -> list[torch.Tensor] | None:
        """Return the coordinates that a mask selects; None if the mask is not constant."""
        if not isinstance(mask, torch.Tensor) or mask.dtype is not torch.bool:
            return None
        node = traced_node(mask)
        value = None if node is None else self._constants.value(node)
        if value is None:
            return None
        lists = untraced(lambda: [place.tolist() for place in value.nonzero(as_tuple=True)])
        return [torch.tensor(places, dtype=torch.int64) for places in lists]

    def _compare(self, rows: torch.Tensor) -> None:
        sizes = [size for size in rows.shape if isinstance(size, torch.SymInt)]
        node = traced_node(rows) if len(sizes) == 1 else None
        if node is not None and node.target is operator.getitem:
            node = node.all_input_nodes[0]
        mask = None if node is None else mask_of(node)
        if mask is not None and not is_written(mask):
            size = self._sizes.setdefault(_key(mask), sizes[0])
            if self._filled and size is sizes[0]:
                torch._check(size >= 1)
            if size is not sizes[0]:
                torch._check(size == sizes[0])


@dataclass
class SelectionFamily:
    """The tensors that one mask selects from, and all nodes whose sizes depend on it, in order."""

    key: Any
    symbols: set[str] = field(default_factory=set)
    nodes: list[Node] = field(default_factory=list)
    problem: str = ""


def select_all(program: "ExportedProgram") -> None:
    """Compute all rows where that makes no difference; report the reason for the others."""
    graph = program.graph_module.graph
    families = _families(graph)
    by_symbol = {symbol: family for family in families for symbol in family.symbols}
    sizes = {node: _symbols(node) for node in graph.nodes}
    for node in graph.nodes:
        near = sizes[node].union(*(sizes[source] for source in node.all_input_nodes))
        touched = [family for family in families if near & family.symbols]
        for family in touched:
            family.nodes.append(node)
            if len(touched) > 1:
                family.problem = family.problem or _at(node, "mixes rows of different masks")
        if len(touched) == 1 and not near <= by_symbol.keys():
            touched[0].problem = touched[0].problem or _at(node, "has other sizes by data")
    for family in families:
        _take(graph, family)


def _take(graph: Graph, family: SelectionFamily) -> None:
    """Rewrite a family, or record why it cannot be rewritten."""
    sources = {node: mask for node in family.nodes if (mask := mask_of(node)) is not None}
    reader = FamilyReader(family.symbols, {node: _dimension(node, family) for node in family.nodes})
    reader.masks.update(sources)
    reader.is_mask = lambda node: _key(node) == family.key
    for node in family.nodes:
        why = "" if node in sources else problem(reader, node)
        family.problem = family.problem or (why and _at(node, why))
    if family.problem:
        for node in sources:
            node.meta[WHY] = family.problem
        return
    first = next(iter(sources))
    rewriter = Rewriter(graph, reader, sources[first], first)
    for node in family.nodes:
        rewriter.rewrite(node)
    graph.eliminate_dead_code(has_effect)


def mask_of(node: Node) -> Node | None:
    """Return the mask by which an operator selects rows; None if it does not."""
    name = str(node.target)
    if name in MASKS:
        return node.args[MASKS[name]]
    if name != "aten.index.Tensor":
        return None
    indices = [index for index in node.args[1] if index is not None]
    value = indices[0].meta["val"] if len(indices) == 1 else None
    return indices[0] if value is not None and value.dtype is torch.bool else None


def _families(graph: Graph) -> list[SelectionFamily]:
    """Return what each mask selects; equal masks that nothing writes to are one."""
    families: dict[Any, SelectionFamily] = {}
    for node in graph.nodes:
        mask = mask_of(node) if node.op == "call_function" else None
        if mask is None or not _symbols(node) or _symbols(mask):
            continue
        key = _key(mask)
        family = families.setdefault(key, SelectionFamily(key))
        family.symbols |= _symbols(node)
        if is_written(mask):
            family.problem = _at(node, "selects by a mask that is written to")
        if str(node.target) == "aten.masked_select.default" and _shape(mask) != _shape(
            node.args[0]
        ):
            family.problem = _at(node, "selects by a mask of another shape")
    return list(families.values())


def _key(node: Any) -> Any:
    """Return a key that is equal for names of the same value."""
    if not isinstance(node, Node):
        return tuple(map(_key, node)) if isinstance(node, (list, tuple)) else repr(node)
    plain = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    if not plain or node.target._schema.is_mutable or _drawn(node):
        return node
    if any(map(is_written, (node, *node.all_input_nodes))):
        return node
    named = tuple((name, _key(value)) for name, value in sorted(node.kwargs.items()))
    return (str(node.target), tuple(map(_key, node.args)), named)


def _drawn(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in node.target.tags


def is_written(node: Node) -> bool:
    """Whether something writes to this value, or to one that it may share memory with."""
    seen, waiting = {node}, [node]
    while waiting:
        name = waiting.pop()
        if any(name in written_by(user) for user in name.users):
            return True
        others = (x for x in (*name.all_input_nodes, *name.users) if x.op != "output")
        near = [other for other in others if _shares(other, name)]
        waiting += [other for other in near if other not in seen]
        seen.update(near)
    return False


def _shares(one: Node, other: Node) -> bool:
    """Whether one may be a view of the other, judging by the later one's operator."""
    later, earlier = (one, other) if other in one.all_input_nodes else (other, one)
    if not isinstance(later.target, torch._ops.OpOverload):
        return True
    arguments = zip(later.target._schema.arguments, later.args, strict=False)
    return any(
        argument.alias_info is not None and (value is earlier or isinstance(value, (list, tuple)))
        for argument, value in arguments
    )


def _values(node: Node) -> Iterator[Any]:
    value = node.meta.get("val")
    yield from value if isinstance(value, (list, tuple)) else [value]


def _symbols(node: Node) -> set[str]:
    """Return the sizes by data in the results."""
    found: set[str] = set()
    for value in _values(node):
        sizes = value.shape if isinstance(value, torch.Tensor) else [value]
        for size in sizes:
            if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                found |= {str(symbol) for symbol in size.node.expr.free_symbols}
    return found


def _dimension(node: Node, family: SelectionFamily) -> int | None:
    """Return the one dimension that lists rows; -1 where sizes depend on them otherwise."""
    value = next(_values(node))
    if not isinstance(value, torch.Tensor):
        return None
    by_data = [i for i, size in enumerate(value.shape) if not isinstance(size, int)]
    if not by_data:
        return None
    plain = len(by_data) == 1 and str(value.shape[by_data[0]]) in family.symbols
    return by_data[0] if plain else -1


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _at(node: Node, why: str) -> str:
    line = source_line(node)
    place = f" ({line})" if line else ""
    what = "what forward returns" if node.op == "output" else str(node.target)
    return f"{what}{place} {why}"

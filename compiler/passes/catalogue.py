"""Every pass by its name, and a pass as a value: a name with parameters that can be applied.

`pipeline.py` puts passes in order; `pass_text.py` writes and reads them as `fuse{target=rpi4}`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pockengine.compiler.ir.graph import LOSS, Graph, Value
from pockengine.compiler.ir.key import remembered
from pockengine.compiler.ir.types import DType
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.passes.absorb_updates import absorb_updates
from pockengine.compiler.passes.common_subexpressions import common_subexpressions
from pockengine.compiler.passes.dead_code import dead_code
from pockengine.compiler.passes.decode_late import decode_late
from pockengine.compiler.passes.decompose_norms import decompose_norms
from pockengine.compiler.passes.derive_scales import derive_scales
from pockengine.compiler.passes.differentiate import (
    apply_gradients,
    differentiate,
    drop_stops,
)
from pockengine.compiler.passes.fold_constants import fold_constants
from pockengine.compiler.passes.fold_scales import fold_scales
from pockengine.compiler.passes.fuse import fuse
from pockengine.compiler.passes.fuse_attention import fuse_attention
from pockengine.compiler.passes.hold_integers import hold_integers
from pockengine.compiler.passes.infer import infer_only
from pockengine.compiler.passes.integer_arithmetic import integer_arithmetic
from pockengine.compiler.passes.legalize import legalize
from pockengine.compiler.passes.own_outputs import own_outputs
from pockengine.compiler.passes.recompute import Budget, recompute
from pockengine.compiler.passes.recompute_elementwise import recompute_elementwise
from pockengine.compiler.passes.save_masks import save_masks
from pockengine.compiler.passes.save_rounded import save_rounded
from pockengine.compiler.passes.scatter_updates import scatter_updates
from pockengine.compiler.passes.schedule import schedule
from pockengine.compiler.passes.simplify import simplify
from pockengine.compiler.passes.small_constants import small_constants
from pockengine.compiler.passes.store_states import store_states
from pockengine.compiler.passes.store_trained import store_trained
from pockengine.compiler.passes.tile_attention import tile_attention
from pockengine.compiler.passes.tile_channels import tile_channels
from pockengine.compiler.passes.tile_cotangents import tile_cotangents
from pockengine.compiler.program import Recomputation
from pockengine.compiler.target import OPTIONAL, Target
from pockengine.errors import CompileError

Observer = Callable[[str, Graph], None]
"""Is told each pass's name and the graph that it left."""

Copies = dict[Value, Value]
"""Second computations: what `recompute_elementwise` leaves, and `recompute` goes on from."""


@dataclass(frozen=True)
class Pass:
    """A named rewrite of a graph in place, and its parameters.

    CompileError for a name or a parameter that there is not, or one that is missing.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = parameters_of(self.name)
        unknown = sorted(set(self.parameters) - set(known))
        missing = [n for n, p in known.items() if p.default is p.empty and n not in self.parameters]
        if unknown or missing:
            wrong = f"has no parameter {unknown}" if unknown else f"needs {missing}"
            raise CompileError(f"pass {self.name} {wrong}; its parameters are {list(known)}")

    def apply(self, graph: Graph) -> None:
        """Rewrite the graph."""
        PASSES[self.name](graph, **self.parameters)


def make(name: str, **parameters: Any) -> Pass:
    """Return a pass with these parameters."""
    return Pass(name, parameters)


def parameters_of(name: str) -> dict[str, inspect.Parameter]:
    """Return a pass's parameters by name; CompileError where there is no such pass."""
    if name not in PASSES:
        raise CompileError(f"there is no pass {name!r}; the passes are {', '.join(sorted(PASSES))}")
    _, *parameters = inspect.signature(PASSES[name]).parameters.values()
    return {parameter.name: parameter for parameter in parameters}


def run(
    passes: Sequence[Pass], graph: Graph, *, check: bool = False, observe: Observer | None = None
) -> None:
    """Apply the passes in order; `check` verifies the graph after each.

    The observer is told a name that comes again as `name_2`, and so on.
    """
    seen: dict[str, int] = {}
    for each in passes:
        each.apply(graph)
        if check:
            verify(graph)
        count = seen[each.name] = seen.get(each.name, 0) + 1
        if observe is not None:
            observe(each.name if count == 1 else f"{each.name}_{count}", graph)


def kernels(target: Target) -> list[Pass]:
    """Passes from single ops to what the target's kernels compute, in the order of execution."""
    passes = [
        make("fuse", target=target),
        make("schedule"),  # the order is final from here on
        make("absorb_updates", target=target),
        *([make("small_constants"), make("derive_scales")] if target.constants_apart else []),
    ]
    return [each for each in passes if each.name not in OPTIONAL - target.passes]


def _fuse(graph: Graph, target: Target) -> None:
    """Merge elementwise nodes into the kernels that make or read their operands."""
    fuse(graph, target.fusion)


def _absorb_updates(graph: Graph, target: Target) -> None:
    """Fuse each update with the product that makes its gradient."""
    absorb_updates(graph, target.fusion)


def _save_masks(graph: Graph) -> None:
    """Keep what the way back only compares as bits."""
    save_masks(graph, graph.outputs[LOSS])


def _save_rounded(graph: Graph, dtype: str) -> None:
    """Keep activations for the way back in 16 bits."""
    save_rounded(graph, graph.outputs[LOSS], DType(dtype))


def _recompute_elementwise(graph: Graph, copies: Copies | None = None) -> None:
    """Compute again what elementwise nodes make from kept values."""
    made = recompute_elementwise(graph, graph.outputs[LOSS])
    if copies is not None:
        copies |= made


def _recompute(
    graph: Graph,
    target: Target,
    memory_budget: int,
    others: int = 0,
    copies: Copies | None = None,
    report: Callable[[Recomputation], None] | None = None,
) -> None:
    """Compute activations again until the planned arena fits a budget, in bytes."""
    scratch = remembered(target.scratch_bytes)
    budget = Budget(memory_budget, scratch, others, target.alignment, target.overwrites)

    def finish(copy: Graph) -> None:
        run(kernels(target), copy)

    result = recompute(graph, graph.outputs[LOSS], budget, finish, copies or {})
    if report is not None:
        report(result)


def _tile_cotangents(graph: Graph, target: Target, memory_budget: int) -> None:
    """Cut wide cotangents into blocks until the planned arena fits a budget, in bytes."""
    budget = Budget(memory_budget, remembered(target.scratch_bytes), alignment=target.alignment)
    tile_cotangents(graph, budget, partial(run, kernels(target)))


PASSES: dict[str, Callable[..., None]] = {
    "absorb_updates": _absorb_updates,
    "apply_gradients": apply_gradients,
    "common_subexpressions": common_subexpressions,
    "dead_code": dead_code,
    "decode_late": decode_late,
    "decompose_norms": decompose_norms,
    "derive_scales": derive_scales,
    "differentiate": differentiate,
    "drop_stops": drop_stops,
    "fold_constants": fold_constants,
    "fold_scales": fold_scales,
    "fuse": _fuse,
    "fuse_attention": fuse_attention,
    "hold_integers": hold_integers,
    "infer_only": infer_only,
    "integer_arithmetic": integer_arithmetic,
    "legalize": legalize,
    "own_outputs": own_outputs,
    "recompute": _recompute,
    "recompute_elementwise": _recompute_elementwise,
    "save_masks": _save_masks,
    "save_rounded": _save_rounded,
    "scatter_updates": scatter_updates,
    "schedule": schedule,
    "simplify": simplify,
    "small_constants": small_constants,
    "store_states": store_states,
    "store_trained": store_trained,
    "tile_attention": tile_attention,
    "tile_channels": tile_channels,
    "tile_cotangents": _tile_cotangents,
}
"""What each pass does to a graph, by its name; the parameters after the graph are the pass's."""

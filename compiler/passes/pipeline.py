"""THE ordered lists of passes. Read this first.

Every pass is a function that rewrites a graph in place; `run` applies a list and, where asked,
verifies and shows the graph after each.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.graph import Graph, Value
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.optim import Optimizer
from pockengine.compiler.passes.absorb_updates import absorb_updates
from pockengine.compiler.passes.common_subexpressions import common_subexpressions
from pockengine.compiler.passes.dead_code import dead_code
from pockengine.compiler.passes.decompose_norms import decompose_norms
from pockengine.compiler.passes.differentiate import (
    LOSS,
    Clip,
    apply_gradients,
    differentiate,
    drop_stops,
)
from pockengine.compiler.passes.fold_constants import fold_constants
from pockengine.compiler.passes.fold_scales import fold_scales
from pockengine.compiler.passes.fuse import FusionRules, fuse
from pockengine.compiler.passes.infer import infer_only
from pockengine.compiler.passes.own_outputs import own_outputs
from pockengine.compiler.passes.recompute import Budget, recompute
from pockengine.compiler.passes.recompute_elementwise import recompute_elementwise
from pockengine.compiler.passes.save_masks import save_masks
from pockengine.compiler.passes.scatter_updates import scatter_updates
from pockengine.compiler.passes.schedule import schedule
from pockengine.compiler.passes.simplify import simplify
from pockengine.compiler.passes.tile_attention import tile_attention
from pockengine.compiler.program import Recomputation

Pass = Callable[[Graph], None]
Observer = Callable[[str, Graph], None]
"""Is told each pass's name and the graph that it left."""


@dataclass(frozen=True)
class Options:
    """What the passes need to know. `written`: params that some entry of the program updates."""

    trained: Mapping[str, Channels]
    optimizer: Optimizer
    written: Set[str]
    fusion: FusionRules
    clip: Clip = field(default_factory=Clip)
    micro_batches: int = 1
    budget: Budget | None = None
    report: Callable[[Recomputation], None] = lambda recomputation: None


def training_pipeline(options: Options) -> list[tuple[str, Pass]]:
    """Passes that turn a forward graph with a loss into a scheduled training step."""
    copies: dict[Value, Value] = {}
    return [
        *_fold_frozen(options),  # while the graph is still forward, batch norm folds away
        ("differentiate", lambda graph: _differentiate(graph, options)),
        *_lower_norms(options),
        ("scatter_updates", scatter_updates),
        ("recompute_elementwise", lambda graph: _recompute_elementwise(graph, copies)),
        ("save_masks", _save_masks),
        ("recompute", lambda graph: _recompute(graph, options, copies)),  # fusion hides values
        *_fuse(options),
    ]


def update_pipeline(options: Options) -> list[tuple[str, Pass]]:
    """Passes that turn the forward graph into the update after the last micro-batch."""
    return [
        ("apply_gradients", lambda graph: _apply_gradients(graph, options)),
        *_lower(options),
    ]


def _differentiate(graph: Graph, options: Options) -> None:
    differentiate(graph, options.trained, options.optimizer, options.clip, options.micro_batches)


def _save_masks(graph: Graph) -> None:
    save_masks(graph, graph.outputs[LOSS])


def _recompute_elementwise(graph: Graph, copies: dict[Value, Value]) -> None:
    copies |= recompute_elementwise(graph, graph.outputs[LOSS])


def _recompute(graph: Graph, options: Options, copies: Mapping[Value, Value]) -> None:
    if options.budget is None:
        return

    def finish(copy: Graph) -> None:
        run(_fuse(options), copy)

    loss = graph.outputs[LOSS]
    options.report(recompute(graph, loss, options.budget, finish, copies))


def _apply_gradients(graph: Graph, options: Options) -> None:
    apply_gradients(graph, options.trained, options.optimizer, options.clip)


def inference_pipeline(options: Options, *, loss: bool) -> list[tuple[str, Pass]]:
    """Passes that turn the same forward graph into a scheduled prediction, or evaluation."""
    return [
        ("infer_only", partial(infer_only, loss=loss)),
        *_fold_frozen(options),
        *_lower(options),
    ]


def forward_pipeline(options: Options) -> list[tuple[str, Pass]]:
    """Passes that schedule a graph as it stands: training-mode norms and dropout stay."""
    return [
        *_fold_frozen(options),
        *_lower_norms(options),
        *_fuse(options),
    ]


def _fold_frozen(options: Options) -> list[tuple[str, Pass]]:
    memory_budget = None if options.budget is None else options.budget.size
    return [
        ("tile_attention", partial(tile_attention, memory_budget=memory_budget)),
        ("fold_constants", partial(fold_constants, written=options.written)),
        ("simplify", simplify),
        ("fold_scales", partial(fold_scales, written=options.written)),
        ("dead_code", dead_code),
    ]


def _lower(options: Options) -> list[tuple[str, Pass]]:
    return [*_lower_norms(options), *_fuse(options)]


def _lower_norms(options: Options) -> list[tuple[str, Pass]]:
    return [
        ("drop_stops", drop_stops),
        ("decompose_norms", decompose_norms),
        ("simplify_backward", simplify),
        ("common_subexpressions", common_subexpressions),
        ("fold_coefficients", partial(fold_constants, written=options.written)),
        ("dead_code_backward", dead_code),  # before fusion, which counts readers
        ("own_outputs", own_outputs),  # nothing simplifies the copies away from here on
    ]


def _fuse(options: Options) -> list[tuple[str, Pass]]:
    return [
        ("fuse", partial(fuse, rules=options.fusion)),
        ("schedule", schedule),  # the order is final from here on
        ("absorb_updates", partial(absorb_updates, rules=options.fusion)),
    ]


def run(
    passes: Sequence[tuple[str, Pass]],
    graph: Graph,
    *,
    check: bool = False,
    observe: Observer | None = None,
) -> None:
    """Apply the passes in order; `check` verifies the graph after each."""
    for name, apply in passes:
        apply(graph)
        if check:
            verify(graph)
        if observe is not None:
            observe(name, graph)

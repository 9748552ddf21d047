"""THE ordered lists of passes. Read this first.

Every pass is a function that rewrites a graph in place; `run` applies a list and, where asked,
verifies and shows the graph after each.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.optimizers import Optimizer
from pockengine.compiler.passes.common_subexpressions import common_subexpressions
from pockengine.compiler.passes.dead_code import dead_code
from pockengine.compiler.passes.decompose_norms import decompose_norms
from pockengine.compiler.passes.differentiate import differentiate
from pockengine.compiler.passes.fold_constants import fold_constants
from pockengine.compiler.passes.fold_scales import fold_scales
from pockengine.compiler.passes.fuse import FusionRules, fuse
from pockengine.compiler.passes.predict import predict_only
from pockengine.compiler.passes.schedule import schedule
from pockengine.compiler.passes.simplify import simplify

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


def training_pipeline(options: Options) -> list[tuple[str, Pass]]:
    """Passes that turn a forward graph with a loss into a scheduled training step."""
    return [
        *_fold_frozen(options),  # while the graph is still forward, batch norm folds away
        (
            "differentiate",
            partial(differentiate, trained=options.trained, optimizer=options.optimizer),
        ),
        *_lower(options),
    ]


def inference_pipeline(options: Options) -> list[tuple[str, Pass]]:
    """Passes that turn the same forward graph into a scheduled prediction."""
    return [
        ("predict_only", predict_only),
        *_fold_frozen(options),
        *_lower(options),
    ]


def _fold_frozen(options: Options) -> list[tuple[str, Pass]]:
    return [
        ("fold_constants", partial(fold_constants, written=options.written)),
        ("simplify", simplify),
        ("fold_scales", partial(fold_scales, written=options.written)),
        ("dead_code", dead_code),
    ]


def _lower(options: Options) -> list[tuple[str, Pass]]:
    return [
        ("decompose_norms", decompose_norms),
        ("simplify_backward", simplify),
        ("common_subexpressions", common_subexpressions),
        ("fold_coefficients", partial(fold_constants, written=options.written)),
        ("dead_code_backward", dead_code),  # before fusion, which counts readers
        ("fuse", partial(fuse, rules=options.fusion)),
        ("schedule", schedule),  # last: lifetimes are final from here on
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

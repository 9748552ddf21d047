"""THE ordered lists of passes. Read this first.

Each list is a function of the options and of the target: of the optional passes it has those that
pay on the target. `catalogue.py` has every pass by name.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir.types import F32
from pockengine.compiler.options import Training
from pockengine.compiler.passes.catalogue import Copies, Pass, kernels, make
from pockengine.compiler.program import Recomputation
from pockengine.compiler.target import OPTIONAL, Target


@dataclass(frozen=True)
class PipelineOptions:
    """What the passes need to know beside how to train.

    `trained` are the params that train, or some of their channels; `written` those that some entry
    of the program updates. `others` are the bytes that other entries take of the memory budget's
    arena anyway. `integers` is None where no param is held as integers. `rounded` are trained
    weights that are stored as bf16. `finer` divides what a block of attention may take. `outputs`
    are what `train` gives beside the loss.
    """

    trained: Mapping[str, Channels]
    written: Set[str]
    training: Training = field(default_factory=Training)
    target: Target = field(default_factory=Target)
    rounded: Set[str] = frozenset()
    others: int = 0
    integers: Integers | None = None
    finer: int = 1
    outputs: Set[str] = frozenset()
    report: Callable[[Recomputation], None] = lambda recomputation: None


def training_pipeline(options: PipelineOptions) -> list[Pass]:
    """Passes that turn a forward graph with a loss into a scheduled training step."""
    copies: Copies = {}
    optional = [
        make("scatter_updates"),
        make("recompute_elementwise", copies=copies),
        make("save_masks"),
    ]
    return [
        *_fold_frozen(options),  # while the graph is still forward, batch norm folds away
        make(
            "differentiate",
            trained=options.trained,
            optimizer=options.training.optimizer,
            clip=options.training.clip,
            micro_batches=options.training.micro_batches,
            rate_first=options.target.rate_first and options.integers is None,
        ),
        *_integers(options),
        *_states(options),
        *_lower_norms(options),
        *(each for each in optional if each.name not in OPTIONAL - options.target.passes),
        *_rounding(options),
        *_legal(options, copies),
        *_tiles(options),
        *_recompute(options, copies),  # fusion hides values
        *kernels(options.target),
    ]


def update_pipeline(options: PipelineOptions) -> list[Pass]:
    """Passes that turn the forward graph into the update after the last micro-batch."""
    training = options.training
    parameters = {"optimizer": training.optimizer, "clip": training.clip}
    return [
        Pass("apply_gradients", {"trained": options.trained, **parameters}),
        *_lower(options),
    ]


def inference_pipeline(options: PipelineOptions, *, loss: bool) -> list[Pass]:
    """Passes that turn the same forward graph into a scheduled prediction, or evaluation."""
    return [make("infer_only", loss=loss), *forward_pipeline(options)]


def forward_pipeline(options: PipelineOptions) -> list[Pass]:
    """Passes that schedule a graph as it stands: training-mode norms and dropout stay."""
    return [*_fold_frozen(options), *_lower(options)]


def _fold_frozen(options: PipelineOptions) -> list[Pass]:
    budget = options.training.memory_budget
    most = None if budget is None else budget // options.finer
    return [
        *_attention(options),
        *([] if most is None else [make("tile_attention", memory_budget=most)]),
        make("fold_constants", written=options.written),
        make("simplify"),
        make("fold_scales", written=options.written),
        make("dead_code"),
    ]


def _attention(options: PipelineOptions) -> list[Pass]:
    """Passes that find attention as the frontends write it, before anything cuts it."""
    if not options.target.attention:
        return []
    written = options.written
    return [
        make("fold_constants", written=written),
        make("simplify"),
        make("fuse_attention", target=options.target, written=written),
        make("dead_code"),
    ]


def _lower(options: PipelineOptions) -> list[Pass]:
    legal = [*_lower_norms(options), *_legal(options), *_tiles(options)]
    return [*_integers(options), *_states(options), *legal, *kernels(options.target)]


def _legal(options: PipelineOptions, copies: Copies | None = None) -> list[Pass]:
    return [make("legalize", target=options.target, copies=copies), make("decode_late")]


def _tiles(options: PipelineOptions) -> list[Pass]:
    budget = options.training.memory_budget
    return [] if budget is None else [make("tile_channels", memory_budget=budget)]


def _integers(options: PipelineOptions) -> list[Pass]:
    """Passes from real numbers to integers, before anything folds a scale into a weight.

    A target that cannot rescale multiplies the real numbers that integers stand for.
    """
    how = options.integers
    if how is None:
        return []
    held = make("hold_integers", scaled=how.qas)
    if not options.target.takes("rescale"):
        return [held]
    arithmetic = make("integer_arithmetic", gradients=how.gradients, rounding=how.rounding)
    return [held, arithmetic]


def _states(options: PipelineOptions) -> list[Pass]:
    """Passes that store small what updates write: weights, and the states of integers too."""
    trained = [make("store_trained", names=options.rounded)] if options.rounded else []
    if options.training.storage.states == F32.value:
        return trained
    return [*trained, make("store_states", dtype=options.training.storage.states)]


def _lower_norms(options: PipelineOptions) -> list[Pass]:
    return [
        make("drop_stops"),
        make("decompose_norms", target=options.target),
        make("simplify"),
        make("common_subexpressions"),
        make("fold_constants", written=options.written),
        make("dead_code"),  # before fusion, which counts readers
        make("own_outputs"),  # nothing simplifies the copies away from here on
    ]


def _rounding(options: PipelineOptions) -> list[Pass]:
    name = options.training.storage.activations
    return [] if name == F32.value else [make("save_rounded", dtype=name)]


def _recompute(options: PipelineOptions, copies: Copies) -> list[Pass]:
    budget = options.training.memory_budget
    if budget is None:
        return []
    return [
        make("tile_cotangents", target=options.target, memory_budget=budget),
        make(
            "recompute",
            target=options.target,
            memory_budget=budget,
            others=options.others,
            copies=copies,
            report=options.report,
        ),
    ]

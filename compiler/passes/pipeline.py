"""THE ordered lists of passes. Read this first.

Each list is a function of the options and the target: it has the optional passes that pay on the
target. `catalog.py` has every pass by name.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir.types import F32
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import (
    ApplyGradients,
    Differentiate,
    DropStops,
)
from pockengine.compiler.passes.backward.scatter_updates import ScatterUpdates
from pockengine.compiler.passes.backward.store_states import StoreStates
from pockengine.compiler.passes.backward.store_trained import StoreTrained
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.cleanup.common_subexpressions import CommonSubexpressions
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.compiler.passes.cleanup.fold_constants import FoldConstants
from pockengine.compiler.passes.cleanup.simplify import Simplify
from pockengine.compiler.passes.forward.add_noise import AddNoise
from pockengine.compiler.passes.forward.fold_scales import FoldScales
from pockengine.compiler.passes.forward.fuse_attention import FuseAttention
from pockengine.compiler.passes.forward.infer import InferOnly
from pockengine.compiler.passes.forward.prepare import KeepOutputs, SetTrainable
from pockengine.compiler.passes.forward.store_weights import BITS
from pockengine.compiler.passes.integers.hold_integers import HoldIntegers
from pockengine.compiler.passes.integers.integer_arithmetic import IntegerArithmetic
from pockengine.compiler.passes.kernels.order import kernel_passes
from pockengine.compiler.passes.legal.decode_late import DecodeLate
from pockengine.compiler.passes.legal.decompose_norms import DecomposeNorms
from pockengine.compiler.passes.legal.legalize import Legalize
from pockengine.compiler.passes.legal.own_outputs import OwnOutputs
from pockengine.compiler.passes.memory.recompute import Recompute
from pockengine.compiler.passes.memory.recompute_elementwise import RecomputeElementwise
from pockengine.compiler.passes.memory.save_masks import SaveMasks
from pockengine.compiler.passes.memory.save_rounded import SaveRounded
from pockengine.compiler.passes.memory.tile_attention import TileAttention
from pockengine.compiler.passes.memory.tile_channels import TileChannels
from pockengine.compiler.passes.memory.tile_cotangents import TileCotangents
from pockengine.compiler.passes.memory.tile_decoding import TileDecoding
from pockengine.compiler.passes.memory.tile_vocabulary import TileVocabulary
from pockengine.compiler.target import OPTIONAL, Target

UNLIMITED = 1 << 30
"""A budget in bytes that does not limit the size of blocks."""


@dataclass(frozen=True)
class PipelineOptions:
    """Facts for the passes besides the training options.

    `trained` are the trained params with their channels; `written` are params that some entry of
    the program updates. `others` are the arena bytes that other entries need. `integers` is None if
    no param is stored as integers. `rounded` are trained weights stored as bf16. `finer` divides
    the byte limit of an attention block. `outputs` are returned by `train` besides the loss.
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


def training_pipeline(options: PipelineOptions) -> list[Pass]:
    """Passes that turn a forward graph with a loss into a scheduled training step."""
    optional = [ScatterUpdates(), RecomputeElementwise(), SaveMasks()]
    return [
        SetTrainable(frozenset(options.trained)),
        KeepOutputs(options.outputs),
        *_fold_frozen(options),  # while the graph is still forward, batch norm folds away
        *([AddNoise(options.training.noise)] if options.training.noise else []),
        Differentiate(
            options.trained,
            options.training.optimizer,
            options.training.clip,
            options.training.micro_batches,
            rate_first=options.target.rate_first and options.integers is None,
        ),
        *_integers(options),
        *_states(options),
        *_lower_norms(options),
        *(each for each in optional if each.name not in OPTIONAL - options.target.passes),
        *_rounding(options),
        *_legal(options),
        *_tiles(options),
        *_recompute(options),  # fusion hides values
        *kernel_passes(options.target),
    ]


def update_pipeline(options: PipelineOptions) -> list[Pass]:
    """Passes that turn the forward graph into the update after the last micro-batch."""
    training = options.training
    return [
        SetTrainable(frozenset(options.trained)),
        ApplyGradients(options.trained, training.optimizer, training.clip),
        *_lower(options),
    ]


def inference_pipeline(options: PipelineOptions, *, loss: bool) -> list[Pass]:
    """Passes that turn the same forward graph into a scheduled prediction, or evaluation."""
    trained = SetTrainable(frozenset(options.trained))
    return [trained, InferOnly(loss), *forward_pipeline(options)]


def forward_pipeline(options: PipelineOptions) -> list[Pass]:
    """Passes that schedule a graph unchanged: training-mode norms and dropout stay."""
    return [*_fold_frozen(options), *_lower(options)]


def _fold_frozen(options: PipelineOptions) -> list[Pass]:
    return [
        *_attention(options),
        *_tile_products(options),
        FoldConstants(options.written),
        Simplify(),
        FoldScales(options.written),
        DeadCode(),
    ]


def _tile_products(options: PipelineOptions) -> list[Pass]:
    """Passes that cut products whose results, or decoded weights, are large.

    Decoding by blocks is faster than decoding whole, so it needs no budget.
    """
    budget, written = options.training.memory_budget, options.written
    most = UNLIMITED if budget is None else budget // options.finer
    stored = options.training.storage.weights in BITS
    decoding = [] if options.target.fusion.decoding else [TileDecoding(most, written)]
    if budget is not None:
        return [TileAttention(most), TileVocabulary(most, written), *decoding]
    return [TileVocabulary(most, written), *decoding] if stored else []


def _attention(options: PipelineOptions) -> list[Pass]:
    """Passes that match attention as the frontends write it, before it is tiled."""
    if not options.target.attention:
        return []
    written = options.written
    return [
        FoldConstants(written),
        Simplify(),
        FuseAttention(options.target, written),
        DeadCode(),
    ]


def _lower(options: PipelineOptions) -> list[Pass]:
    legal = [*_lower_norms(options), *_legal(options), *_tiles(options)]
    return [*_integers(options), *_states(options), *legal, *kernel_passes(options.target)]


def _legal(options: PipelineOptions) -> list[Pass]:
    return [Legalize(options.target), DecodeLate()]


def _tiles(options: PipelineOptions) -> list[Pass]:
    budget = options.training.memory_budget
    return [] if budget is None else [TileChannels(budget)]


def _integers(options: PipelineOptions) -> list[Pass]:
    """Passes from real numbers to integers; they run before scales are folded into weights.

    A target that cannot rescale multiplies the dequantized numbers.
    """
    how = options.integers
    if how is None:
        return []
    stored = HoldIntegers(how.qas)
    if not options.target.takes("rescale"):
        return [stored]
    arithmetic = IntegerArithmetic(how.gradients, how.rounding)
    return [stored, arithmetic]


def _states(options: PipelineOptions) -> list[Pass]:
    """Passes that store written params in fewer bits: weights, and states of integer params too."""
    trained: list[Pass] = [StoreTrained(options.rounded)] if options.rounded else []
    if options.training.storage.states == F32.value:
        return trained
    return [*trained, StoreStates(options.training.storage.states)]


def _lower_norms(options: PipelineOptions) -> list[Pass]:
    return [
        DropStops(),
        DecomposeNorms(options.target),
        Simplify(),
        CommonSubexpressions(),
        FoldConstants(options.written),
        DeadCode(),  # before fusion, which counts readers
        OwnOutputs(),  # no simplification of copies after this point
    ]


def _rounding(options: PipelineOptions) -> list[Pass]:
    name = options.training.storage.activations
    return [] if name == F32.value else [SaveRounded(name)]


def _recompute(options: PipelineOptions) -> list[Pass]:
    budget = options.training.memory_budget
    if budget is None:
        return []
    return [
        TileCotangents(options.target, budget),
        Recompute(
            options.target,
            budget,
            others=options.others,
            solver_seconds=options.training.solver_seconds,
        ),
    ]

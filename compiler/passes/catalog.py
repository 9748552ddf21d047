"""All passes by their names in text."""

from collections.abc import Mapping

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
from pockengine.compiler.passes.forward.prepare import AddAdapters, KeepOutputs, SetTrainable
from pockengine.compiler.passes.forward.store_weights import StoreWeights
from pockengine.compiler.passes.integers.hold_integers import HoldIntegers
from pockengine.compiler.passes.integers.integer_arithmetic import IntegerArithmetic
from pockengine.compiler.passes.kernels.absorb_updates import AbsorbUpdates
from pockengine.compiler.passes.kernels.derive_scales import DeriveScales
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.passes.kernels.schedule import Schedule
from pockengine.compiler.passes.kernels.small_constants import SmallConstants
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
from pockengine.errors import CompileError

_KINDS: tuple[type[Pass], ...] = (
    AbsorbUpdates,
    AddAdapters,
    AddNoise,
    ApplyGradients,
    CommonSubexpressions,
    DeadCode,
    DecodeLate,
    DecomposeNorms,
    DeriveScales,
    Differentiate,
    DropStops,
    FoldConstants,
    FoldScales,
    Fuse,
    FuseAttention,
    HoldIntegers,
    InferOnly,
    IntegerArithmetic,
    KeepOutputs,
    Legalize,
    OwnOutputs,
    Recompute,
    RecomputeElementwise,
    SaveMasks,
    SaveRounded,
    ScatterUpdates,
    Schedule,
    SetTrainable,
    Simplify,
    SmallConstants,
    StoreStates,
    StoreTrained,
    StoreWeights,
    TileAttention,
    TileChannels,
    TileCotangents,
    TileDecoding,
    TileVocabulary,
)

PASSES: Mapping[str, type[Pass]] = {kind.name: kind for kind in _KINDS}
"""The classes of the passes by name."""


def find_pass(name: str) -> type[Pass]:
    """Return the class of a pass; CompileError for an unknown name."""
    if name not in PASSES:
        raise CompileError(f"there is no pass {name!r}; the passes are {', '.join(sorted(PASSES))}")
    return PASSES[name]

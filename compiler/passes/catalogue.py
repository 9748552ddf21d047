"""Every pass, by its name in text."""

from collections.abc import Mapping

from pockengine.compiler.passes.absorb_updates import AbsorbUpdates
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.common_subexpressions import CommonSubexpressions
from pockengine.compiler.passes.dead_code import DeadCode
from pockengine.compiler.passes.decode_late import DecodeLate
from pockengine.compiler.passes.decompose_norms import DecomposeNorms
from pockengine.compiler.passes.derive_scales import DeriveScales
from pockengine.compiler.passes.differentiate import ApplyGradients, Differentiate, DropStops
from pockengine.compiler.passes.fold_constants import FoldConstants
from pockengine.compiler.passes.fold_scales import FoldScales
from pockengine.compiler.passes.fuse import Fuse
from pockengine.compiler.passes.fuse_attention import FuseAttention
from pockengine.compiler.passes.hold_integers import HoldIntegers
from pockengine.compiler.passes.infer import InferOnly
from pockengine.compiler.passes.integer_arithmetic import IntegerArithmetic
from pockengine.compiler.passes.legalize import Legalize
from pockengine.compiler.passes.own_outputs import OwnOutputs
from pockengine.compiler.passes.prepare import AddAdapters, KeepOutputs, SetTrainable
from pockengine.compiler.passes.recompute import Recompute
from pockengine.compiler.passes.recompute_elementwise import RecomputeElementwise
from pockengine.compiler.passes.save_masks import SaveMasks
from pockengine.compiler.passes.save_rounded import SaveRounded
from pockengine.compiler.passes.scatter_updates import ScatterUpdates
from pockengine.compiler.passes.schedule import Schedule
from pockengine.compiler.passes.simplify import Simplify
from pockengine.compiler.passes.small_constants import SmallConstants
from pockengine.compiler.passes.store_states import StoreStates
from pockengine.compiler.passes.store_trained import StoreTrained
from pockengine.compiler.passes.store_weights import StoreWeights
from pockengine.compiler.passes.tile_attention import TileAttention
from pockengine.compiler.passes.tile_channels import TileChannels
from pockengine.compiler.passes.tile_cotangents import TileCotangents
from pockengine.errors import CompileError

_KINDS: tuple[type[Pass], ...] = (
    AbsorbUpdates,
    AddAdapters,
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
)

PASSES: Mapping[str, type[Pass]] = {kind.name: kind for kind in _KINDS}
"""The classes of the passes by name."""


def find_pass(name: str) -> type[Pass]:
    """Return the class of a pass; CompileError where there is none of this name."""
    if name not in PASSES:
        raise CompileError(f"there is no pass {name!r}; the passes are {', '.join(sorted(PASSES))}")
    return PASSES[name]

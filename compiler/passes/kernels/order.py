"""The passes from single ops to a target's scheduled kernels."""

from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.kernels.absorb_updates import AbsorbUpdates
from pockengine.compiler.passes.kernels.derive_scales import DeriveScales
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.passes.kernels.schedule import Schedule
from pockengine.compiler.passes.kernels.small_constants import SmallConstants
from pockengine.compiler.target import OPTIONAL, Target


def kernel_passes(target: Target) -> list[Pass]:
    """Return the passes from single ops to kernels, without those that do not pay on the target."""
    passes = [
        Fuse(target),
        Schedule(),  # the order is final from here on
        AbsorbUpdates(target),
        *([SmallConstants(), DeriveScales()] if target.constants_apart else []),
    ]
    return [each for each in passes if each.name not in OPTIONAL - target.passes]

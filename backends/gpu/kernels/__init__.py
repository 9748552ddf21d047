"""Kernels by op; for a fusion, by its anchor's."""

from collections.abc import Callable

from pockengine.backends.gpu.expression import OPS as ELEMENTWISE
from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.backends.gpu.kernels.attention import OPS as ATTENTION
from pockengine.backends.gpu.kernels.attention import attention_kernel
from pockengine.backends.gpu.kernels.blocks import blocks_kernel
from pockengine.backends.gpu.kernels.convolution import convolution_kernel
from pockengine.backends.gpu.kernels.elementwise import elementwise_kernel, update_kernel
from pockengine.backends.gpu.kernels.gather import OPS as GATHERS
from pockengine.backends.gpu.kernels.gather import (
    gather_kernel,
    scan_kernel,
    take_dx_kernel,
    take_update_kernel,
)
from pockengine.backends.gpu.kernels.movement import OPS as MOVEMENTS
from pockengine.backends.gpu.kernels.movement import movement_kernel
from pockengine.backends.gpu.kernels.pool import OPS as POOLINGS
from pockengine.backends.gpu.kernels.pool import pool_kernel
from pockengine.backends.gpu.kernels.product import product_kernel
from pockengine.backends.gpu.kernels.randomness import OPS as RANDOM
from pockengine.backends.gpu.kernels.randomness import random_kernel
from pockengine.backends.gpu.kernels.reduction import OPS as REDUCTIONS
from pockengine.backends.gpu.kernels.reduction import reduction_kernel
from pockengine.backends.gpu.kernels.rows import TEMPLATES as ROWS
from pockengine.backends.gpu.kernels.rows import cross_entropy_kernel, row_kernel
from pockengine.compiler.optim.formulas import FORMULAS

Emit = Callable[..., GpuKernel]

FAMILIES: dict[str, Emit] = {
    "matmul": product_kernel,
    **dict.fromkeys(("conv2d", "conv2d_dx", "conv2d_dw"), convolution_kernel),
    **dict.fromkeys(POOLINGS, pool_kernel),
    **dict.fromkeys(MOVEMENTS, movement_kernel),
    **dict.fromkeys(REDUCTIONS, reduction_kernel),
    **dict.fromkeys(ROWS, row_kernel),
    **dict.fromkeys(("cross_entropy", "cross_entropy_dx"), cross_entropy_kernel),
    **dict.fromkeys(GATHERS, gather_kernel),
    **dict.fromkeys(ATTENTION, attention_kernel),
    "decode_blocks": blocks_kernel,
    "take_dx": take_dx_kernel,
    "take_update": take_update_kernel,
    **dict.fromkeys(("argmax", "cumsum"), scan_kernel),
    **dict.fromkeys(RANDOM, random_kernel),
    **dict.fromkeys(FORMULAS, update_kernel),
    **dict.fromkeys(sorted(ELEMENTWISE), elementwise_kernel),
}
"""Emitters by op; for products on a GPU with tile choice, by a picker."""

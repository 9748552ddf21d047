"""Options of the C backend, besides the device."""

from dataclasses import dataclass

from pockengine.backends.picking import Picker, cheapest


@dataclass(frozen=True)
class KernelOptions:
    """How convolutions and products are computed.

    Without `winograd` convolutions are direct sums: slower, with a tenth of the rounding error.
    With `bf16` the operands of large products, also of attention in AMX tiles, are rounded to bf16
    and their sums are f32. Without `packed` products of bytes read both operands in place: slower,
    without scratch. With `prepare`, kernels' forms of frozen weights are made once, in memory of
    their own.
    """

    winograd: bool = True
    bf16: bool = False
    pick: Picker = cheapest
    packed: bool = True
    prepare: bool = False


DEFAULT = KernelOptions()

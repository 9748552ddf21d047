"""Products of operands rounded to bf16, for the tests of their kernels."""

from dataclasses import replace

import numpy as np

from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.products.gemm import MATMUL
from pockengine.devices.schema import Device
from pockengine.tests.backends.c.harness import device_of, emitter

bf16_kernel = emitter(MATMUL, KernelOptions(bf16=True))


def to_bf16(array: np.ndarray) -> np.ndarray:
    """Round f32 to the nearest bf16 number, ties to even."""
    bits = array.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


def with_tiles(isa: str) -> Device:
    """A device with bf16 tiles; builds without them use vectors."""
    device = device_of(isa, 2)
    return replace(device, processor=replace(device.cpu, bf16=True, amx=True))


def small_cache(device: Device) -> Device:
    """The same with a second-level cache that holds twice 64 lines of 32 steps."""
    return replace(device, processor=replace(device.cpu, l2_bytes=8_192))

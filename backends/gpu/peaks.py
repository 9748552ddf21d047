"""Peak performance of a GPU from its device file; not measured."""

from pockengine.backends.gpu.kernels.tiling import machine_of
from pockengine.backends.peaks import Peaks
from pockengine.devices import Device


def peaks_of(device: Device, bf16: bool = False) -> Peaks:
    """Return the roofline of memory and arithmetic; with `bf16`, of tensor cores."""
    gpu = device.gpu
    machine = machine_of(gpu, bf16)
    lanes = machine.bf16_lanes or machine.lanes
    memory = gpu.memory_bytes or device.memory_bytes
    return Peaks(0, 2e-9 * machine.units * lanes * machine.hertz, {memory: 1e-9 * gpu.bandwidth})

"""The GPU backend and the one that CUDA's driver runs, as the registry offers them."""

from pockengine.backends.c.session import LibrarySession
from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.cuda import CudaBackend
from pockengine.backends.protocol import BackendKind, BackendOptions
from pockengine.devices.schema import Device


def make(device: Device, options: BackendOptions) -> GpuBackend:
    """Set the GPU backend to a device."""
    options.refuse_all_but("gpu", frozenset())
    return GpuBackend(device)


def make_cuda(device: Device, options: BackendOptions) -> CudaBackend:
    """Set the CUDA backend to a device."""
    options.refuse_all_but("cuda", frozenset())
    return CudaBackend(device)


KIND = BackendKind(make, LibrarySession, emulated=True)
CUDA_KIND = BackendKind(make_cuda, LibrarySession, accelerated=True)

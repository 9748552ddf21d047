"""The registry's entries of the GPU backend and its driver variants."""

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.cuda import CudaBackend
from pockengine.backends.gpu.opencl import OpenClBackend
from pockengine.backends.gpu.vulkan import VulkanBackend
from pockengine.backends.native.session import LibrarySession
from pockengine.backends.picking import Picker, cheapest
from pockengine.backends.protocol import BackendKind, BackendOptions
from pockengine.backends.tuned import gpu_name, picker_of
from pockengine.devices.schema import Device


def make(device: Device, options: BackendOptions) -> GpuBackend:
    """Configure the GPU backend for a device."""
    options.refuse_all_but("gpu", frozenset({"bf16"}))
    return GpuBackend(device, options.bf16)


def make_cuda(device: Device, options: BackendOptions) -> CudaBackend:
    """Configure the CUDA backend for a device."""
    options.refuse_all_but("cuda", frozenset({"bf16", "tuned"}))
    return CudaBackend(device, options.bf16, _pick(device, options))


def make_opencl(device: Device, options: BackendOptions) -> OpenClBackend:
    """Configure the OpenCL backend for a device."""
    options.refuse_all_but("opencl", frozenset({"tuned"}))
    return OpenClBackend(device, _pick(device, options))


def make_vulkan(device: Device, options: BackendOptions) -> VulkanBackend:
    """Configure the Vulkan backend for a device."""
    options.refuse_all_but("vulkan", frozenset({"tuned"}))
    return VulkanBackend(device, _pick(device, options))


def _pick(device: Device, options: BackendOptions) -> Picker:
    """Return the picker of tiles from a table of `pockengine tune`; the device may have no GPU."""
    known = options.tuned is not None and device.graphics is not None
    return picker_of(options.tuned, device, gpu_name(device)) if known else cheapest


CUDA = BackendKind(make_cuda, LibrarySession, accelerated=True)
EMULATED = BackendKind(make, LibrarySession, emulated=True)
OPENCL = BackendKind(make_opencl, LibrarySession, accelerated=True)
VULKAN = BackendKind(make_vulkan, LibrarySession, accelerated=True)

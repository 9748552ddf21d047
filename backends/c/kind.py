"""The C backend's entry in the registry."""

from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.session import LibrarySession
from pockengine.backends.protocol import BackendKind, BackendOptions
from pockengine.backends.tuned import picker_of
from pockengine.devices.schema import Device


def make(device: Device, options: BackendOptions) -> CBackend:
    """Configure the C backend for a device."""
    pick = picker_of(options.tuned, device)
    return CBackend(device, bf16=options.bf16, pick=pick, prepare=options.prepare)


KIND = BackendKind(make, LibrarySession)

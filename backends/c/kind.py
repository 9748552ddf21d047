"""The C backend as the registry offers it."""

from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.session import LibrarySession
from pockengine.backends.protocol import BackendKind, BackendOptions
from pockengine.backends.tuned import picker_of
from pockengine.devices.schema import Device


def make(device: Device, options: BackendOptions) -> CBackend:
    """Set the C backend to a device."""
    pick = picker_of(options.tuned, device)
    return CBackend(device, bf16=options.bf16, pick=pick, prepare=options.prepare)


KIND = BackendKind(make, LibrarySession)

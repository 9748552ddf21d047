"""What a board is: one TOML file a device, read by `load_device`."""

from pockengine.devices.schema import (
    Cpu,
    Device,
    Emulator,
    Gpu,
    ToolchainSpec,
    find_device,
    known_devices,
    load_device,
)

__all__ = [
    "Cpu",
    "Device",
    "Emulator",
    "Gpu",
    "ToolchainSpec",
    "find_device",
    "known_devices",
    "load_device",
]

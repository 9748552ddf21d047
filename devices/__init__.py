"""Device descriptions: one TOML file per device, read by `load_device`."""

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

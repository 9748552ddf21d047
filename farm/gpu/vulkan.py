"""This machine's Vulkan device: the one of the best kind, as programs choose it."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from pockengine.errors import FarmError
from pockengine.farm.gpu.driver_device import DriverDevice, load_driver

LIBRARIES = ("libvulkan.so.1", "libvulkan.so")
APPLICATION_INFO, INSTANCE_INFO = 0, 1
VERSION_1_2 = 1 << 22 | 2 << 12
"""Structure types and a version, of vulkan_core.h."""
RANKS = {2: 3, 1: 2, 3: 1}
"""Ranks of kinds of devices: discrete GPUs, integrated ones, virtual ones; 0 for all others."""
MOST = 16


class _Application(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_uint32),
        ("engine", ctypes.c_char_p),
        ("engine_version", ctypes.c_uint32),
        ("api_version", ctypes.c_uint32),
    )


class _Instance(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.POINTER(_Application)),
        ("layer_count", ctypes.c_uint32),
        ("layers", ctypes.c_void_p),
        ("extension_count", ctypes.c_uint32),
        ("extensions", ctypes.c_void_p),
    )


class _Properties(ctypes.Structure):
    """The first fields of VkPhysicalDeviceProperties, and room for the rest."""

    _fields_ = (
        ("api_version", ctypes.c_uint32),
        ("driver_version", ctypes.c_uint32),
        ("vendor", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("name", ctypes.c_char * 256),
        ("rest", ctypes.c_uint64 * 128),
    )


def first_device() -> DriverDevice:
    """Return the device that a program uses; FarmError if there is none."""
    library = _library()
    with _instance(library) as instance:
        devices = [
            device for device in _devices(library, instance) if device.api_version >= VERSION_1_2
        ]
    if not devices:
        raise FarmError(
            "this machine's Vulkan has no device of version 1.2: see what vulkaninfo lists, and "
            "install a GPU's driver, or mesa-vulkan-drivers for a CPU"
        )
    best = max(devices, key=lambda device: RANKS.get(device.kind, 0))
    name = best.name.decode(errors="replace").strip() or "a device without a name"
    return DriverDevice(name, best.kind in RANKS)


def _library() -> ctypes.CDLL:
    return load_driver(
        LIBRARIES,
        "this machine has no Vulkan: install libvulkan1 or what your system calls it, and a GPU's "
        "driver, or mesa-vulkan-drivers for a CPU",
    )


@contextmanager
def _instance(library: ctypes.CDLL) -> Iterator[ctypes.c_void_p]:
    application = _Application(type=APPLICATION_INFO, api_version=VERSION_1_2)
    info = _Instance(type=INSTANCE_INFO, application=ctypes.pointer(application))
    instance = ctypes.c_void_p()
    error = library.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(instance))
    if error < 0:
        raise FarmError(
            f"this machine's Vulkan cannot start (vkCreateInstance: error {error}): install a "
            "GPU's driver, or mesa-vulkan-drivers for a CPU"
        )
    try:
        yield instance
    finally:
        library.vkDestroyInstance(instance, None)


def _devices(library: ctypes.CDLL, instance: ctypes.c_void_p) -> Iterator[_Properties]:
    devices, count = (ctypes.c_void_p * MOST)(), ctypes.c_uint32(MOST)
    if library.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices) < 0:
        return
    for device in devices[: count.value]:
        properties = _Properties()
        library.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), ctypes.byref(properties))
        yield properties

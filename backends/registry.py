"""Find the backend that a device names: built in, registered, or installed.

A device file is data, so it has a backend name and never a module. Other packages offer a backend
by an entry point of the group `pockengine.backends` whose value is a `BackendKind`; running code
may `register` one.
"""

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from pockengine.backends.artifact import Artifact, load_artifact
from pockengine.backends.protocol import Backend, BackendKind, BackendOptions
from pockengine.backends.session import Session
from pockengine.devices.schema import Device
from pockengine.errors import DeviceError

GROUP = "pockengine.backends"

_MODULES = {
    "c": "pockengine.backends.c.kind:KIND",
    "cuda": "pockengine.backends.gpu.kind:CUDA",
    "gpu": "pockengine.backends.gpu.kind:EMULATED",
    "onnx": "pockengine.backends.onnx.kind:KIND",
    "opencl": "pockengine.backends.gpu.kind:OPENCL",
    "qnn": "pockengine.backends.onnx.qnn.kind:KIND",
    "tflite": "pockengine.backends.tflite.kind:KIND",
    "tvm": "pockengine.backends.tvm.kind:KIND",
    "vulkan": "pockengine.backends.gpu.kind:VULKAN",
}
BUILT_IN = tuple(_MODULES)
"""Built-in backends. Each is loaded when a device names it, so its dependencies are needed only
then.
"""

_REGISTERED: dict[str, BackendKind] = {}


def register(name: str, kind: BackendKind) -> None:
    """Offer a backend by name; DeviceError if the name is taken."""
    if name in BUILT_IN or _REGISTERED.get(name, kind) is not kind:
        raise DeviceError(f"backend {name!r} is there already; register it by another name")
    _REGISTERED[name] = kind


def known_backends() -> tuple[str, ...]:
    """Names of all backends, sorted."""
    installed = (entry.name for entry in entry_points(group=GROUP))
    return tuple(sorted({*BUILT_IN, *_REGISTERED, *installed}))


def backend_for(device: Device, options: BackendOptions | None = None) -> Backend:
    """Return the backend that a device names, configured for it.

    DeviceError for an unknown name, CompileError for an option that the backend does not support.
    """
    kind = _kind(device.backend, f"device {device.name}")
    return kind.make(device, options or BackendOptions())


def is_emulated(device: Device) -> bool:
    """Whether sessions of a device's backend only emulate the target."""
    known = device.backend in known_backends()
    return known and _kind(device.backend, f"device {device.name}").emulated


def is_accelerated(device: Device) -> bool:
    """Whether the code of a device's backend runs on a processor other than the device's CPU."""
    known = device.backend in known_backends()
    return known and _kind(device.backend, f"device {device.name}").accelerated


def open_session(artifact: Artifact | Path, threads: int = 1) -> Session:
    """Open an artifact on this machine, with the backend that wrote it."""
    known = artifact if isinstance(artifact, Artifact) else load_artifact(artifact)
    return _kind(known.backend, f"artifact {known.folder}").open(known, threads)


def _kind(name: str, user: str) -> BackendKind:
    if name in _REGISTERED:
        return _REGISTERED[name]
    own = [EntryPoint(name, _MODULES[name], GROUP)] if name in _MODULES else []
    # Cached: listing entry points takes milliseconds, for each artifact compiled or opened.
    for entry in own or entry_points(group=GROUP, name=name):
        kind = entry.load()
        if not isinstance(kind, BackendKind):
            raise DeviceError(f"entry point {name} of group {GROUP} is no BackendKind")
        return kind
    raise DeviceError(
        f"{user} needs the backend {name!r}; known backends: {', '.join(known_backends())}; "
        f"install one that offers it in the entry-point group {GROUP}, or register it"
    )

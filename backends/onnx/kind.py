"""The registry's entry of the ONNX backend: it imports neither onnx nor its runtime."""

from pockengine.backends.artifact import Artifact
from pockengine.backends.protocol import Backend, BackendKind, BackendOptions
from pockengine.backends.session import Session
from pockengine.devices.schema import Device
from pockengine.extras import need


def make(device: Device, options: BackendOptions) -> Backend:
    """Configure the ONNX backend for a device."""
    options.refuse_all_but("onnx", frozenset())
    need("the backend onnx", "onnx")
    from pockengine.backends.onnx.backend import onnx_backend

    return onnx_backend(device)


def open_artifact(artifact: Artifact, threads: int) -> Session:
    """Open an artifact's models with ONNX Runtime."""
    from pockengine.backends.onnx.session import OnnxSession

    return OnnxSession(artifact, threads)


KIND = BackendKind(make, open_artifact)

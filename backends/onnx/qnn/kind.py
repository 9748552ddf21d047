"""The registry's entry of the backend qnn: without importing its dependencies."""

from pockengine.backends.artifact import Artifact
from pockengine.backends.protocol import Backend, BackendKind, BackendOptions
from pockengine.backends.session import Session
from pockengine.devices.schema import Device
from pockengine.extras import need


def make(device: Device, options: BackendOptions) -> Backend:
    """Configure the backend qnn for a device."""
    options.refuse_all_but("qnn", frozenset())
    need("the backend qnn", "onnx")
    from pockengine.backends.onnx.qnn.backend import qnn_backend

    return qnn_backend(device)


def open_artifact(artifact: Artifact, threads: int) -> Session:
    """Open an artifact's models with ONNX Runtime, on the HTP for the nodes it supports."""
    from pockengine.backends.onnx.qnn.provider import HtpProvider
    from pockengine.backends.onnx.session import OnnxSession

    return OnnxSession(artifact, threads, HtpProvider())


KIND = BackendKind(make, open_artifact, emulated=True, accelerated=True)

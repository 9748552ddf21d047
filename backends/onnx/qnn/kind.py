"""The backend qnn as the registry offers it: nothing that it needs is imported for it."""

from pockengine.backends.artifact import Artifact
from pockengine.backends.protocol import Backend, BackendKind, BackendOptions
from pockengine.backends.session import Session
from pockengine.devices.schema import Device
from pockengine.extras import need


def make(device: Device, options: BackendOptions) -> Backend:
    """Set the backend qnn to a device."""
    options.refuse_all_but("qnn", frozenset())
    need("the backend qnn", "onnx")
    from pockengine.backends.onnx.qnn.backend import qnn_backend

    return qnn_backend(device)


def open_artifact(artifact: Artifact, threads: int) -> Session:
    """Open an artifact's models by ONNX Runtime, on the HTP where it takes a node."""
    from pockengine.backends.onnx.qnn.provider import HtpProvider
    from pockengine.backends.onnx.session import OnnxSession

    return OnnxSession(artifact, threads, HtpProvider())


KIND = BackendKind(make, open_artifact, emulated=True, accelerated=True)

"""The registry's entry of the TFLite backend: it imports neither the schema nor a runtime."""

from pockengine.backends.artifact import Artifact
from pockengine.backends.protocol import Backend, BackendKind, BackendOptions
from pockengine.backends.session import Session
from pockengine.devices.schema import Device
from pockengine.extras import need


def make(device: Device, options: BackendOptions) -> Backend:
    """Configure the TFLite backend for a device."""
    options.refuse_all_but("tflite", frozenset())
    need("the backend tflite", "tflite")
    from pockengine.backends.tflite.backend import tflite_backend

    return tflite_backend(device)


def open_artifact(artifact: Artifact, threads: int) -> Session:
    """Open an artifact's file with the runtime."""
    from pockengine.backends.tflite.session import TfliteSession

    return TfliteSession(artifact, threads)


KIND = BackendKind(make, open_artifact)

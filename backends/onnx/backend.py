"""The ONNX backend."""

from pockengine.backends.onnx.element_types import NUMBERS
from pockengine.backends.onnx.forms import FORMS
from pockengine.backends.onnx.model import write_models
from pockengine.backends.runtimes.backend import ModelBackend, Models
from pockengine.devices.schema import Device

# A table is only written where it is read.
MODELS = Models("onnx", FORMS.keys(), NUMBERS.keys(), frozenset({"scatter_updates"}), write_models)


def onnx_backend(device: Device) -> ModelBackend:
    """Set the backend to a device."""
    return ModelBackend(device, MODELS)

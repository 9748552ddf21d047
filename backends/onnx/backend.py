"""The ONNX backend."""

from pockengine.backends.onnx.element_types import NUMBERS
from pockengine.backends.onnx.forms import FORMS
from pockengine.backends.onnx.model import write_models
from pockengine.backends.runtimes.backend import ModelBackend, Models
from pockengine.devices.schema import Device

# scatter_updates does not pay: an update writes the whole table anyway.
MODELS = Models(
    "onnx", FORMS.keys(), NUMBERS.keys(), passes=frozenset({"scatter_updates"}), write=write_models
)


def onnx_backend(device: Device) -> ModelBackend:
    """Configure the backend for a device."""
    return ModelBackend(device, MODELS)

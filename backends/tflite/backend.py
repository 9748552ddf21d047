"""The TFLite backend."""

from pockengine.backends.runtimes.backend import ModelBackend, Models
from pockengine.backends.tflite.forms import FORMS
from pockengine.backends.tflite.kinds import KINDS
from pockengine.backends.tflite.model import write_model
from pockengine.devices.schema import Device

# The runtime adds to a table in no place but a new one, so that no pass is asked for.
MODELS = Models("tflite", FORMS.keys(), KINDS.keys(), frozenset(), write_model)


def tflite_backend(device: Device) -> ModelBackend:
    """Set the backend to a device."""
    return ModelBackend(device, MODELS)

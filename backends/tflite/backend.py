"""The TFLite backend."""

from pockengine.backends.runtimes.backend import ModelBackend, Models
from pockengine.backends.tflite.forms import FORMS
from pockengine.backends.tflite.kinds import KINDS
from pockengine.backends.tflite.model import write_model
from pockengine.devices.schema import Device

# No optional pass pays: the runtime cannot add to a table in place.
MODELS = Models("tflite", FORMS.keys(), KINDS.keys(), passes=frozenset(), write=write_model)


def tflite_backend(device: Device) -> ModelBackend:
    """Configure the backend for a device."""
    return ModelBackend(device, MODELS)

"""The backend qnn, configured for a device."""

from pathlib import Path

from pockengine.backends.onnx.element_types import NUMBERS
from pockengine.backends.onnx.model import write_models
from pockengine.backends.onnx.qnn.entries import split
from pockengine.backends.onnx.qnn.forms import FORMS
from pockengine.backends.runtimes.backend import ModelBackend, Models
from pockengine.compiler.program import Program
from pockengine.devices.schema import Device


def _write(program: Program, folder: Path) -> None:
    write_models(split(program), folder, FORMS)


MISCOMPUTED = frozenset({"decode_blocks", "random_uniform"})
"""Ops that the HTP computes differently: a Cast from 8 bits adds 128, and 64-bit types are
missing.
"""

# Gradients multiplied by a small rate would underflow in 16 bits.
MODELS = Models(
    "qnn",
    FORMS.keys() - MISCOMPUTED,
    NUMBERS.keys(),
    passes=frozenset({"scatter_updates"}),
    write=_write,
    rate_first=False,
)


def qnn_backend(device: Device) -> ModelBackend:
    """Configure the backend for a device."""
    return ModelBackend(device, MODELS)

"""Recognize TensorFlow's models without importing TensorFlow."""

import sys
from typing import Any

PACKAGES = ("keras", "tensorflow", "tf_keras")


def is_tensorflow(model: Any) -> bool:
    """Return whether this is a Keras model or layer, or a function of TensorFlow.

    TensorFlow and Keras are not imported: an object of theirs has already imported them.
    """
    if not any(package in sys.modules for package in PACKAGES):
        return False
    return any(parent.__module__.split(".")[0] in PACKAGES for parent in type(model).__mro__)

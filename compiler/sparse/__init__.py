"""Sparse training: which parameters train, and which of their channels."""

from pockengine.compiler.sparse.presets import preset
from pockengine.compiler.sparse.scheme import Choice, Scheme, load_scheme, save_scheme

__all__ = ["Choice", "Scheme", "load_scheme", "preset", "save_scheme"]

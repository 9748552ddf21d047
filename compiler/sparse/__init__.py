"""Sparse training: which parameters train, and which share of their channels."""

from pockengine.compiler.sparse.presets import preset
from pockengine.compiler.sparse.scheme import Scheme, Training, load_scheme

__all__ = ["Scheme", "Training", "load_scheme", "preset"]

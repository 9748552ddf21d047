"""Sparse training: which parameters and channels train."""

from pockengine.compiler.sparse.presets import preset
from pockengine.compiler.sparse.scheme import ParamChoice, Scheme, load_scheme, save_scheme

__all__ = ["ParamChoice", "Scheme", "load_scheme", "preset", "save_scheme"]

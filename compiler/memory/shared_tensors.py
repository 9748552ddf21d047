"""Params and constants that the entries of a program share."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import count

import numpy as np

from pockengine.compiler.ir.graph import Param, Space
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.program import Entry


def share_tensors(
    entries: Mapping[str, Entry],
) -> tuple[dict[str, Param], dict[str, np.ndarray]]:
    """Collect the params of all entries, and their constants under names common to all."""
    params = _shared_params(entries)
    return params, _shared_constants(entries, params)


def _shared_params(entries: Mapping[str, Entry]) -> dict[str, Param]:
    """Collect the params, and whether any entry writes each."""
    written = {
        node.operands[index].name
        for entry in entries.values()
        for node in entry.graph.nodes
        for index in written_operands(node)
    }
    params: dict[str, Param] = {}
    for entry in entries.values():
        for name, param in entry.graph.params.items():
            param.space = Space.MUTABLE if name in written else Space.CONSTANT
            params.setdefault(name, param)
    return params


def _shared_constants(entries: Mapping[str, Entry], params: Iterable[str]) -> dict[str, np.ndarray]:
    """Give the tensor constants of all entries common names, none of a param; equal arrays share
    one.
    """
    named: dict[tuple[object, bytes], str] = {}  # by digest: a table may be as large as a weight
    constants: dict[str, np.ndarray] = {}
    free = _free_names(params)
    for entry in entries.values():
        for value, data in entry.graph.constants.items():
            if data.ndim == 0:
                continue
            key = (value.type, _digest(data))
            if key not in named:
                named[key] = next(free)
            name = named[key]
            constants[name] = data
            value.name = name
    return constants


def _free_names(params: Iterable[str]) -> Iterator[str]:
    """Yield names of constants: a model may have a ParameterList named `constant`."""
    taken = set(params)
    return (name for number in count() if (name := f"constant.{number}") not in taken)


def _digest(data: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(data).view(np.uint8).data).digest()

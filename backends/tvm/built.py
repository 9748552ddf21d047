"""Kernels compiled by LLVM in this process: their arguments and times."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel of a library compiled in this process."""

    library: Any
    name: str

    def seconds(self, number: int, arguments: Sequence[Any]) -> float:
        """Return the seconds per call, over this many calls."""
        timer = self.library.time_evaluator(self.name, tvm.cpu(), number=number)
        return float(timer(*arguments).mean)


def build(functions: Mapping[str, Any], target: tvm.target.Target) -> dict[str, BuiltKernel]:
    """Build kernels by their names."""
    named = {name: each.with_attr("global_symbol", name) for name, each in functions.items()}
    library = tvm.compile(tvm.IRModule(named), target=target).jit()
    return {name: BuiltKernel(library, name) for name in named}


def build_one(function: Any, target: tvm.target.Target) -> BuiltKernel:
    """Build a kernel."""
    return build({"main": function}, target)["main"]


def arguments_of(function: Any) -> list[Any]:
    """Make random arguments of a kernel, including results: small numbers, indices of 0."""
    rng = np.random.default_rng(0)
    arrays = []
    for each in function.params:
        shape, dtype = tuple(int(size) for size in each.shape), np.dtype(str(each.dtype))
        drawn = rng.uniform(0.1, 1.0, shape) if dtype.kind == "f" else np.zeros(shape)
        arrays.append(tvm.runtime.tensor(drawn.astype(dtype)))
    return arrays


def calls_in(seconds: float, taken: float) -> int:
    """Return the number of calls that fit in a time."""
    return max(1, math.ceil(seconds / max(taken, 1e-7)))


def results_of(kernel: BuiltKernel, arguments: Sequence[Any]) -> list[np.ndarray]:
    """Run a kernel on copies; return all its arguments."""
    copies = [tvm.runtime.tensor(each.numpy().copy()) for each in arguments]
    kernel.library[kernel.name](*copies)
    return [each.numpy() for each in copies]

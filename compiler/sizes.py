"""Variable sizes at run time: select a variant of the program, and pad inputs.

A program with a range has each entry once per bucket, named `train@8`; they share params and arena.
At run time the smallest bucket that fits is used, inputs are padded to it, and outputs are cropped.
Padding must not change results: `compile_variants` checks this on the model before a build.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np

from pockengine.errors import CompileError, RuntimeFailure


@dataclass(frozen=True)
class Range:
    """A size from `low` to `high` shared by the inputs in `axes` (name -> dimension).

    `buckets` are the sizes with a variant, `high` the largest; `pad` has the fill value of an
    input's padding (default 0): for labels use the ignored value, -100.
    """

    name: str
    low: int
    high: int
    axes: Mapping[str, int]
    buckets: tuple[int, ...]
    pad: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ordered = list(self.buckets) == sorted(set(self.buckets)) and bool(self.buckets)
        if not 1 <= self.low <= self.high or not ordered or self.buckets[-1] != self.high:
            raise CompileError(
                f"{self.name} from {self.low} to {self.high} with buckets {self.buckets}: buckets "
                "must rise and end at the largest size"
            )
        if not self.axes:
            raise CompileError(f"{self.name} is the size of no input; name one in axes")
        self._check_pad()
        for name, axis in self.axes.items():
            if type(axis) is not int or axis < 0:
                raise CompileError(
                    f"{self.name}: the dimension of {name} is {axis!r}; count from 0, from the left"
                )

    def _check_pad(self) -> None:
        """Convert NumPy's numbers to Python's; CompileError for what is no padding of an input."""
        for name, number in self.pad.items():
            if name not in self.axes:
                raise CompileError(
                    f"{self.name}: pad has {name}, which axes lack; they have "
                    f"{', '.join(self.axes)}"
                )
            if not isinstance(number, Real) or not math.isfinite(number):
                raise CompileError(
                    f"{self.name}: {name} is padded by {number!r}; give a finite number, such as "
                    "-1e9 for an additive mask"
                )
        numbers = {n: int(x) if isinstance(x, Integral) else float(x) for n, x in self.pad.items()}
        object.__setattr__(self, "pad", numbers)

    def entry(self, name: str, size: int) -> str:
        """Name of the variant of an entry for one bucket."""
        return f"{name}@{size}"

    def bucket(self, size: int) -> int:
        """Return the smallest bucket that holds `size`; RuntimeFailure names the range."""
        if not self.low <= size <= self.high:
            raise RuntimeFailure(f"{self.name} is {size}; it ranges from {self.low} to {self.high}")
        return next(bucket for bucket in self.buckets if bucket >= size)

    def size_of(self, inputs: Mapping[str, np.ndarray]) -> int:
        """Return the size that the inputs share; RuntimeFailure names inputs that disagree."""
        found = {
            name: array.shape[self.axes[name]]
            for name, array in inputs.items()
            if name in self.axes and np.ndim(array) > self.axes[name]
        }
        if len(set(found.values())) != 1:
            shown = ", ".join(f"{name} {size}" for name, size in found.items())
            raise RuntimeFailure(f"inputs must share one {self.name}: {shown or 'none has it'}")
        return int(next(iter(found.values())))

    def padded(self, name: str, array: np.ndarray, size: int) -> np.ndarray:
        """Pad an input to a bucket; too few dimensions are reported by the check of shapes."""
        axis = self.axes.get(name)
        if axis is None or axis >= array.ndim or array.shape[axis] == size:
            return array
        width = [(0, 0)] * array.ndim
        width[axis] = (0, size - array.shape[axis])
        return np.pad(array, width, constant_values=self.pad.get(name, 0))


def cut(array: np.ndarray, axes: Sequence[int], size: int) -> np.ndarray:
    """Crop an output's padding: everything beyond `size` in the dimensions `axes`."""
    window = (slice(size) if axis in axes else slice(None) for axis in range(array.ndim))
    return np.ascontiguousarray(array[tuple(window)]) if axes else array

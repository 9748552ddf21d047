"""One application of an op, with random data for its operands."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.ir import BOOL, I64, TensorType


@dataclass(frozen=True)
class OpCase:
    """One application of an op. `domain` limits the operands' numbers."""

    op: str
    types: tuple[TensorType, ...]
    attrs: dict[str, Any]
    domain: str = "any"
    classes: int = 0

    def arrays(self, seed: int) -> list[np.ndarray]:
        """Operand data: normal numbers away from kinks, booleans, or class labels."""
        rng = np.random.default_rng(seed)
        return [self._array(rng, type_) for type_ in self.types]

    def _array(self, rng: np.random.Generator, type_: TensorType) -> np.ndarray:
        if type_.dtype is BOOL:
            return rng.integers(0, 2, type_.shape).astype(bool)
        if type_.dtype is I64:
            return rng.integers(0, self.classes, type_.shape)
        data = 2 * rng.standard_normal(type_.shape)
        if self.domain == "positive":
            data = np.abs(data) + 0.5
        elif self.domain == "share":
            data = 1 / (1 + np.exp(-data))
        elif self.domain == "above one":
            data = np.abs(data) + 1.5
        elif self.domain == "small":
            data = np.clip(data / 4, -0.9, 0.9)
        elif self.domain == "graded":  # invertible matrices with distinct eigenvalues
            data /= 20
            for place in range(min(data.shape[-2:])):
                data[..., place, place] += 2 * place + 2
        return np.asarray(data, dtype=np.float32)

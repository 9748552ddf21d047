"""User options for int8 training."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pockengine.compiler.integers import FIXED, Integers
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.quantize.calibrate import Batch, quantized
from pockengine.compiler.quantize.fold_norms import FoldedNorm
from pockengine.errors import CompileError, masked_data


@dataclass(frozen=True)
class Int8:
    """Train with int8 weights and activations.

    `calibration` has samples of the inputs by name, in whole batches; None for a model that is
    already int8. Each tensor's range is chosen on the samples by `method`: "minmax", "percentile"
    (which leaves out the most extreme `share` on each side) or "mse". Batch norms are folded.
    `gradients` that meet integers in a product are "int8" or "f32". With `qas` optimizers see real
    weights and their gradients, not the integers. The named `inputs` are passed as int8:
    `Compiled.integers` converts real numbers. `rounding` is "fixed" or "float", as in `Integers`;
    None means the model's framework's, or "fixed" for a calibrated model.
    """

    calibration: Mapping[str, Any] | None = field(default=None, repr=False)
    method: str = "minmax"
    share: float = 1e-4
    gradients: str = "int8"
    qas: bool = True
    inputs: tuple[str, ...] = ()
    rounding: str | None = None

    def __post_init__(self) -> None:
        if self.calibration is not None and not isinstance(self.calibration, Mapping):
            raise CompileError(
                f"calibration is a {type(self.calibration).__name__}; give rows by the name of "
                'each input: {"x": samples}'
            )

    def integers(self, rounding: str = FIXED) -> Integers:
        """Return the facts that passes need; `rounding` is that of the model's framework."""
        own = rounding if self.calibration is None else FIXED
        return Integers(self.gradients, self.qas, self.rounding or own)

    def apply(self, graph: Graph) -> tuple[Graph, tuple[FoldedNorm, ...]]:
        """Return the quantized graph and its folded norms; CompileError if it cannot be
        quantized.
        """
        return quantized(
            graph,
            self._batches(graph),
            method=self.method,
            share=self.share,
            inputs=self.inputs,
        )

    def _batches(self, graph: Graph) -> list[Batch]:
        """Split the samples into batches of the graph's inputs."""
        inputs = {value.name: value for value in graph.inputs}
        samples = self.calibration or {}
        unknown = sorted(set(samples) - set(inputs))
        if unknown or not samples:
            raise CompileError(
                f"calibration has samples of {unknown or 'nothing'}; the inputs are {list(inputs)}"
            )
        arrays = {name: np.asarray(data) for name, data in samples.items()}
        counts = set()
        for name, data in arrays.items():
            if np.ma.is_masked(samples[name]):
                raise CompileError(f"calibration: {masked_data(name)}")
            shape = inputs[name].shape
            rows = shape[0] if shape else 1
            if data.shape[1:] != shape[1:] or not data.shape or len(data) < rows:
                raise CompileError(
                    f"calibration of {name} has shape {data.shape}; give {rows} rows or more of "
                    f"{shape[1:]}"
                )
            counts.add(len(data) // rows)
        return [self._batch(arrays, inputs, place) for place in range(min(counts))]

    def _batch(
        self, arrays: Mapping[str, np.ndarray], inputs: Mapping[str, Any], place: int
    ) -> Batch:
        batch = {}
        for name, data in arrays.items():
            rows = inputs[name].shape[0]
            batch[name] = data[place * rows : (place + 1) * rows].astype(inputs[name].dtype.numpy)
        return batch

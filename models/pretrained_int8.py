"""tiny-training's int8 nets with their published integers: int8 training without calibration.

The weights that `pretrained.py` loads as floats are rounded here where the published nets round:
the picture, every convolution, every residual sum, the mean, the logits. Compile with
`Int8(rounding="float")`: their reference (`core/ops` of tiny-training) multiplies exact sums by one
float, and rounds halves to even.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pockengine.compiler.ir import Graph, Value
from pockengine.compiler.ir.quantization import Quantization
from pockengine.compiler.quantize.calibrate import insert_ranges
from pockengine.compiler.quantize.ranges import QuantizedRange
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.models.pretrained import load_int8

SIZE = 128
LOGITS = "output"


def int8_graph(path: Path, batch: int = 1, loss: str | None = "cross_entropy") -> Graph:
    """Import one of the .npz files for pictures [batch, 3, 128, 128] of pixels / 127.5 - 1.

    Activations are rounded to the file's ranges, and weights are stored as its integers. Raises
    ImportModelError as `load_int8` does, and for a file without a layer's range.
    """
    graph = from_torch(load_int8(path), (torch.zeros(batch, 3, SIZE, SIZE),), loss=loss)
    with np.load(path, allow_pickle=False) as archive:
        layers = {layer["name"]: layer for layer in json.loads(bytes(archive["meta_json"]))}
        for name in layers:
            if f"{name}.w_scales" in archive:
                _hold(graph, name, archive[f"{name}.w_scales"])
    try:
        insert_ranges(graph, dict(_ranges(graph, layers)), frozenset())
    except KeyError as error:
        raise ImportModelError(f"{path}: it says no range of {error}") from error
    return graph


def _hold(graph: Graph, layer: str, scales: np.ndarray) -> None:
    """Store a weight as the file's integers."""
    name = "classifier.weight" if layer == "classifier" else f"{layer}.conv.weight"
    param = graph.params[name]
    flat = tuple(map(float, scales.reshape(-1).astype(np.float32)))
    quantization = Quantization(flat, (0,) * len(flat), 0)
    param.quantization = quantization.transposed(param.permutation or range(len(param.value.shape)))


def _ranges(
    graph: Graph, layers: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[Value, QuantizedRange]]:
    """Yield every value that the published nets round, with its range."""
    yield graph.input("x"), _range(layers["first_conv"], "x")
    for node in graph.nodes:
        if node.op == "hardtanh":
            yield node.result, _range(layers[node.scope.removesuffix(".act")], "y")
        elif node.op == "add" and f"{node.scope}.residual" in layers:
            yield node.result, _range(layers[f"{node.scope}.residual"], "y")
        elif node.op == "reduce_mean" and len(node.operands[0].shape) == 4:
            yield node.result, _range(layers["classifier"], "x")
    yield graph.outputs[LOGITS], _range(layers["classifier"], "y")


def _range(layer: Mapping[str, Any], side: str) -> QuantizedRange:
    return QuantizedRange(float(np.float32(layer[f"{side}_scale"])), int(layer[f"{side}_zero"]))

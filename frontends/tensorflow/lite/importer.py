"""Import TFLite models: float ones directly, int8 ones as dequantized real numbers.

Quantized weights are imported dequantized, and activations are not rounded: training is in floats.
Or, with `integers`, it happens in the file's integers (rounding.py). A model converted for one
sample is imported for the batch of the example inputs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir import BOOL, F32, I32, I64, Graph, TensorType
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.errors import ImportModelError
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.faults import check_own
from pockengine.frontends.layout import Tensor, plain
from pockengine.frontends.losses import LOSSES, add_loss
from pockengine.frontends.tensorflow.lite.file import FileTensor, read_lite
from pockengine.frontends.tensorflow.lite.rounding import integer_input
from pockengine.frontends.tensorflow.lite.walk import DAMAGE, OperatorWalker
from pockengine.frontends.tensorflow.variables import RESERVED

_KINDS = {"FLOAT32": F32, "INT32": I32, "INT64": I64, "BOOL": BOOL}


def from_lite(
    path: Path,
    example_inputs: Any,
    loss: Any,
    integers: bool = False,
    trainable: Mapping[str, bool] | None = None,
) -> Graph:
    """Import a .tflite file; ImportModelError lists everything that has no equivalent.

    `trainable` maps names of weights to whether they train, and overrides `roles.py`. With
    `integers`, weights and activations have the ranges of the file, which must be in int8.
    """
    if loss is not None and loss not in LOSSES:
        raise ImportModelError(
            f"a TFLite model takes a loss of every frontend, {' or '.join(LOSSES)}, not {loss!r}"
        )
    model = read_lite(path)
    try:
        return _imported(OperatorWalker(model, integers, trainable or {}), example_inputs, loss)
    except DAMAGE as error:
        check_own(error, f"it read {path}")
        raise ImportModelError(
            f"{path} is damaged: its parts do not fit together: {error}; convert the model again"
        ) from error


def _imported(walker: OperatorWalker, example_inputs: Any, loss: Any) -> Graph:
    model = walker.model
    declare(walker, example_inputs)
    walker.build(walker.main)
    outputs = walker.outputs()
    walker.problems.check(model.name)
    graph = walker.g.graph
    walker.decisions.check_among(graph.params, f"weight of {graph.name}")
    g = walker.g
    if loss is not None and not outputs:
        raise ImportModelError(f"{model.name} has no output that a loss could judge")
    if loss is not None:
        add_loss(g, next(iter(outputs.values())), loss)
    walker.name_outputs(outputs)
    DeadCode().run(g.graph)
    walker.decisions.tell(g.graph)
    if walker.integers and not any(param.quantization for param in g.graph.params.values()):
        raise ImportModelError(
            f"{model.name} has no int8 weights; calibrate it: quantize=pockengine.Int8({{...}})"
        )
    return g.graph


def declare(walker: OperatorWalker, examples: Any) -> None:
    """Declare the inputs, in the shapes of the examples."""
    model = walker.model
    names = [model.name_of(number) for number in model.main.inputs]
    if not isinstance(examples, Mapping):
        listed = examples if isinstance(examples, (list, tuple)) else [examples]
        examples = dict(zip(names, listed, strict=False))
    if sorted(examples) != sorted(names):
        raise ImportModelError(
            f"{model.name} has the inputs {', '.join(names)}; give an example for each"
        )
    for number, name in zip(model.main.inputs, names, strict=True):
        tensor, shape = model.main.tensors[number], np.shape(examples[name])
        walker.main.failed.add(number)
        with walker.noting("an input", name):
            _check_shape(tensor, shape)
            walker.main.known[number] = _input(walker, name, tensor, shape)
            walker.main.failed.remove(number)
            if shape and 0 not in tensor.open and shape[0] != tensor.shape[0]:
                walker.rows = shape[0] // tensor.shape[0]


def _check_shape(tensor: FileTensor, shape: tuple[int, ...]) -> None:
    """Make the batch any multiple of the file's own; other sizes stay as in the file, or open."""
    fits = len(shape) == len(tensor.shape) and all(
        own == size or dim in tensor.open or (not dim and size and own % size == 0)
        for dim, (own, size) in enumerate(zip(shape, tensor.shape, strict=True))
    )
    if not fits:
        raise Unsupported(f"the example of shape {shape} for the declared {tensor.shape}")


def _input(walker: OperatorWalker, name: str, tensor: FileTensor, shape: tuple[int, ...]) -> Tensor:
    if name in RESERVED:
        raise Unsupported("the training step has an input of this name; rename the model's")
    dtype = F32 if tensor.quantized else _KINDS.get(tensor.kind)
    if walker.integers and (stored := integer_input(walker.g, name, shape, tensor)) is not None:
        return plain(stored)
    if dtype is None:
        raise Unsupported(f"numbers of {tensor.kind}; use FLOAT32, INT32, INT64 or BOOL")
    return plain(walker.g.input(name, TensorType(dtype, shape)))

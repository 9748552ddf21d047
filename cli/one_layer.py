"""One layer of each framework, compiled, checked and trained: `python -m pockengine.cli.one_layer`.

`pockengine doctor` runs it for each framework in a separate process, so that a package that crashes
on import, or conflicts with another, is reported like any other failure.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pockengine.errors import PockEngineError

ROWS, BATCH, FEATURES, CLASSES = 32, 8, 4, 3


def _torch(x: np.ndarray) -> tuple[Any, Any]:
    import torch

    return torch.nn.Linear(FEATURES, CLASSES), (torch.from_numpy(x),)


def _tensorflow(x: np.ndarray) -> tuple[Any, Any]:
    import keras

    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(CLASSES)]), (x,)


def _jax(x: np.ndarray) -> tuple[Any, Any]:
    import jax  # noqa: F401  # a plain function is JAX's once it is imported

    params = {"w": np.ones((FEATURES, CLASSES), np.float32), "b": np.zeros(CLASSES, np.float32)}
    return lambda params, x: x @ params["w"] + params["b"], (params, x)


def _onnx(x: np.ndarray) -> tuple[Any, Any]:
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((FEATURES, CLASSES), np.float32), "w")
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (BATCH, size))
        for name, size in (("x", FEATURES), ("y", CLASSES))
    ]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "one_layer", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), (x,)


LAYERS: Mapping[str, Callable[[np.ndarray], tuple[Any, Any]]] = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "onnx": _onnx,
}
"""A linear layer of each framework with its example inputs, by the names of the extras."""


def train(framework: str) -> float:
    """Compile the layer for this machine, check its step, train it; return the last epoch's loss.

    Raises PockEngineError if the step differs from the framework's, or if the loss does not fall.
    """
    import pockengine

    x = np.random.default_rng(0).standard_normal((ROWS, FEATURES), np.float32)
    y = np.argmax(x[:, :CLASSES], axis=1)
    model, inputs = LAYERS[framework](x[:BATCH])
    compiled = pockengine.compile(model, inputs, loss="cross_entropy", check=True)
    epochs = compiled.fit((x, y), epochs=2, lr=0.5, progress=False).history["loss"]
    if not epochs[-1] < epochs[0]:
        raise PockEngineError(
            f"the loss of one layer does not fall: {epochs[0]}, then {epochs[-1]}"
        )
    return epochs[-1]


if __name__ == "__main__":
    try:
        train(sys.argv[1])
    except PockEngineError as error:
        raise SystemExit(str(error)) from error

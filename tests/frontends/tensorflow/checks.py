"""Helpers of the TensorFlow frontend's tests: compare our oracle with Keras."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from pockengine.api import compile as compile_model
from pockengine.compiled import Compiled as CompiledModel
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.options import Training
from pockengine.frontends.tensorflow import from_tensorflow, to_optimizer, to_weights
from pockengine.frontends.tensorflow.variables import named_variables

FORWARD_TOLERANCE = 1e-5
"""Largest error of a forward pass, relative to the largest element."""
Batch = tuple[np.ndarray, np.ndarray]


def relative_error(found: np.ndarray, expected: Any) -> float:
    """Return the largest difference, relative to the largest element."""
    reference = np.asarray(expected)
    assert found.shape == reference.shape
    scale = float(np.abs(reference).max()) or 1.0
    return float(np.abs(found.astype(np.float64) - reference).max()) / scale


def check_forward(
    function: Callable[..., Any], *inputs: np.ndarray, tolerance: float = FORWARD_TOLERANCE
) -> Graph:
    """Import in evaluation mode and compare the oracle's outputs with TensorFlow's."""
    graph = from_tensorflow(function, inputs, training=False)
    verify(graph)
    names = [value.name for value in graph.inputs]
    found = run(graph, dict(zip(names, inputs, strict=True)))
    expected = function(*inputs)
    results = expected if isinstance(expected, (list, tuple)) else [expected]
    for array, reference in zip(found.values(), results, strict=True):
        assert relative_error(array, reference) <= tolerance
    return graph


def check_training(
    model: keras.Model,
    batches: Sequence[Batch],
    loss: Any = "sparse_categorical_crossentropy",
    optimizer: keras.optimizers.Optimizer | None = None,
    *,
    restart: bool = False,
    rtol: float = 1e-4,
    factors: Sequence[float] = (1.0,),
) -> list[float]:
    """Train with the whole compiler and our oracle, and with Keras: losses agree within `rtol`.

    `restart` starts each of our steps from Keras's weights, for deep nets, whose training amplifies
    rounding. Weights are then compared after each step, otherwise after the last one.
    `factors` multiply the optimizer's learning rate, one factor per step.
    """
    optimizer = optimizer or keras.optimizers.SGD(0.05)
    lr, training = float(optimizer.learning_rate), Training(optimizer=to_optimizer(optimizer))
    graph = from_tensorflow(model, (batches[0][0],), loss=loss)
    step = compile_program(graph, training, check=True).entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}
    model.compile(optimizer, loss, jit_compile=False)
    variables = named_variables(model.variables)
    found, expected = [], []
    for number, (x, target) in enumerate(batches, start=1):
        optimizer.learning_rate = rate = lr * factors[(number - 1) % len(factors)]
        inputs = {graph.inputs[0].name: x, "target": target}
        inputs |= {"lr": np.float32(rate), "step": np.int32(number)}
        known = {value.name for value in step.inputs}
        outputs = run(step, {k: v for k, v in inputs.items() if k in known}, params)
        found.append(float(outputs["loss"]))
        model.reset_metrics()  # older versions return the mean of all losses so far
        expected.append(float(model.train_on_batch(x, target)))
        if restart:
            check_weights(graph, params, variables)
            copy_weights(graph, variables, params)
    np.testing.assert_allclose(found, expected, rtol=rtol)
    if not restart:
        check_weights(graph, params, variables)
    return found


def check_compiled_training(
    model: keras.Model, batches: Sequence[Batch], lr: float = 1e-3
) -> CompiledModel:
    """Train in generated C and with Keras, each step from Keras's weights: losses within 1e-4.

    Deep nets amplify rounding from step to step in any implementation.
    """
    loss, optimizer = "sparse_categorical_crossentropy", keras.optimizers.SGD(lr)
    graph = from_tensorflow(model, (batches[0][0],), loss=loss)
    compiled = compile_model(graph, (), optimizer=to_optimizer(optimizer))
    model.compile(optimizer, loss, jit_compile=False)
    variables = named_variables(model.variables)
    found, expected = [], []
    with compiled.session(threads=2) as session:
        for x, target in batches:
            inputs = {graph.inputs[0].name: x, "target": target}
            found.append(float(session.train_step(inputs, lr=lr)["loss"]))
            model.reset_metrics()
            expected.append(float(model.train_on_batch(x, target)))
            weights = session.params()
            check_weights(graph, weights, variables, rtol=5e-3)
            copy_weights(graph, variables, weights)
            for name, array in weights.items():
                session.set_param(name, array)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    return compiled


def check_weights(
    graph: Graph, params: dict[str, np.ndarray], variables: dict[str, Any], rtol: float = 1e-3
) -> None:
    """Compare every variable, relative to its largest element or to 0.01, whichever is larger."""
    weights = {name: params[name] for name in graph.params if name in params}
    assert set(weights) >= {name for name, param in graph.params.items() if param.trainable}
    for name, array in to_weights(graph, weights).items():
        reference = np.asarray(variables[name]).astype(np.float64)
        scale = max(float(np.abs(reference).max()), 0.01)
        error = float(np.abs(array - reference).max())
        assert error <= rtol * scale, f"{name}: off by {error:g}"


def copy_weights(graph: Graph, variables: dict[str, Any], params: dict[str, np.ndarray]) -> None:
    """Copy Keras's weights to ours."""
    for name, param in graph.params.items():
        if name in params:
            data = np.asarray(variables[name])
            order = param.permutation
            params[name] = np.array(data if order is None else data.transpose(order), order="C")


def pictures(count: int, size: int, classes: int, batches: int = 10) -> list[Batch]:
    """Return batches of random NHWC pictures and labels."""
    rng = np.random.default_rng(0)
    return [
        (
            rng.standard_normal((count, size, size, 3)).astype(np.float32),
            rng.integers(classes, size=count),
        )
        for _ in range(batches)
    ]

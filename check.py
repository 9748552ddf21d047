"""The safeguard of `pockengine.compile`: one step of generated C beside the framework's own.

The step runs on this machine, whatever the program is built for, by plain SGD with a rate of a
power of two, so that what a weight moves by is its gradient. Micro-batches, clipping and bf16 are
left out. Loss and gradients are compared with the framework's on the example inputs; where it has
none (ONNX, a `Graph`, LoRA's adapters) with the NumPy oracle's of the imported graph.

A tolerance that suits every net is none: float32 itself gives some gradients to six digits and
others to one. So the framework runs again with its weights and inputs nudged in their last digits.
What that changes is what rounding may change.
"""

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pockengine.backends.c.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.session import RATE, SEED, STEP, Session
from pockengine.compiler.autodiff import Channels, backward
from pockengine.compiler.compile import Training, compile_program, find_scheme
from pockengine.compiler.index_ranges import index_ranges
from pockengine.compiler.ir import F32, Builder, Graph
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.sparse.lora import with_adapters
from pockengine.compiler.sparse.scheme import channel_axis
from pockengine.devices import load_device
from pockengine.doors import Visitor
from pockengine.errors import BudgetError, CheckError
from pockengine.frontends.reference import Reference

LEARNING_RATE = 1024.0
TOLERANCE = 2e-3
"""Of a gradient's largest element: sums in another order, and a few flipped comparisons."""
LOSS_TOLERANCE = 1e-4
FLOOR = 1e-6
"""Of the largest gradient: what a gradient that should be zero holds of rounding."""
NUDGE, ALLOWANCE, NUDGES = 2.0**-21, 10.0, 2
"""Relative change of every number that goes in, how often its effect is allowed, and how many."""
SEED_OF_STEP = 1
"""What a session makes of seed 0 in its first step."""


ORACLE = "the oracle"


class CheckWarning(UserWarning):
    """A step that could be compared with the framework's in part only."""


@dataclass(frozen=True)
class Step:
    """A loss, and gradients by name in the framework's order of dimensions."""

    loss: float
    gradients: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Names:
    """What an error speaks of, and the channels of weights that train in part."""

    graph: Graph
    reference: str
    channels: Mapping[str, tuple[int, Sequence[int]]]


def check_step(model: Graph | Visitor, loss: object, training: Training, given: object) -> None:
    """Compare one compiled step with the framework's; CheckError names what differs first.

    `training` says what trains; its optimiser does not matter. `given` are a `Graph`'s example
    inputs; what is missing is drawn. Warns by CheckWarning where the framework's own numbers cannot
    be had.
    """
    training = Training(training.scheme, Sgd(), memory_budget=training.memory_budget)
    if isinstance(model, Graph):
        _check_by_oracle(model, training, given)
        return
    with model.quiet():
        graph = model.graph(loss)
        reference = None if _draws(graph) else model.reference(loss, lambda array: array)
        if reference is None:
            reason = "it draws random numbers" if _draws(graph) else "its framework cannot run it"
            _warn(f"{graph.name} is compared with the oracle alone: {reason}")
            _check_by_oracle(graph, training, ())
            return
        rng = np.random.default_rng(0)
        nudged = [model.reference(loss, lambda x: _nudged(rng, x)) for _ in range(NUDGES)]
    feed = {value.name: reference.feed[value.name] for value in graph.inputs}
    found = _compiled(graph, training, feed)
    steps = [_step(each) for each in (reference, *nudged) if each is not None]
    _compare(found, steps, Names(graph, model.door.framework, _channels(graph, training)))
    if set(found.gradients) - set(steps[0].gradients):
        own = Names(graph, ORACLE, _channels(graph, training))
        _compare(found, [_oracle(graph, training, feed)], own)


def _check_by_oracle(graph: Graph, training: Training, given: object) -> None:
    feed = _feed_of(graph, given)
    names = Names(graph, ORACLE, _channels(graph, training))
    _compare(_compiled(graph, training, feed), [_oracle(graph, training, feed)], names)


def _step(reference: Reference) -> Step:
    return Step(reference.loss, reference.gradients or {})


def _nudged(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Change every number by a little more than float32 rounds it."""
    signs = rng.choice(np.array([-NUDGE, NUDGE], np.float32), array.shape)
    return np.asarray(array * (1 + signs), np.float32)


def _warn(text: str) -> None:
    warnings.warn(text, CheckWarning, stacklevel=4)


def _draws(graph: Graph) -> bool:
    return any(value.name == SEED for value in graph.inputs)


def _feed_of(graph: Graph, given: object) -> dict[str, np.ndarray]:
    """Return the example inputs by name, or draw them: floats, and indices in their range."""
    names = [value.name for value in graph.inputs]
    if isinstance(given, Mapping):
        known = {name: np.asarray(array) for name, array in given.items()}
    else:
        arrays = given if isinstance(given, (tuple, list)) else ()
        known = {name: np.asarray(array) for name, array in zip(names, arrays, strict=False)}
    highest: dict[str, int] = {}
    for found in index_ranges(graph):
        highest[found.input] = min(found.high, highest.get(found.input, found.high))
    rng, feed = np.random.default_rng(0), {}
    for value in graph.inputs:
        if value.name == SEED:
            continue
        if value.dtype is F32:
            drawn = rng.standard_normal(value.shape).astype(np.float32)
        else:
            drawn = rng.integers(highest.get(value.name, 0) + 1, size=value.shape)
        feed[value.name] = known.get(value.name, drawn.astype(value.dtype.numpy))
    return feed


def _compiled(graph: Graph, training: Training, feed: Mapping[str, np.ndarray]) -> Step:
    """Build the step for this machine, run it once, and take its gradients from the weights."""
    backend = CBackend(load_device("host"))
    try:
        program = compile_program(graph, training, target=backend.target())
    except BudgetError:  # of the device it is meant for: kernels of this machine may want more
        program = compile_program(graph, Training(training.scheme), target=backend.target())
    adapted, trained = _trained(graph, training)
    with tempfile.TemporaryDirectory(prefix="pockengine-check-") as folder:
        artifact = write_artifact(program, backend, Path(folder) / "artifact")
        with Session(artifact) as session:
            before = session.params()
            loss = float(session.train_step(feed, lr=LEARNING_RATE)["loss"])
            after = session.params()
    moved = {
        name: (before[name].astype(np.float64) - after[name]) / LEARNING_RATE for name in trained
    }
    return Step(loss, _in_order(adapted, moved))


def _oracle(graph: Graph, training: Training, feed: Mapping[str, np.ndarray]) -> Step:
    """Differentiate the graph as it was imported and evaluate it in NumPy."""
    adapted, trained = _trained(graph, training)
    adapted = clone(adapted)
    g = Builder(adapted)
    wrt = {adapted.params[name].value: None for name in trained if name in adapted.params}
    for value, gradient in backward(g, adapted.outputs["loss"], wrt).items():
        g.output(f"gradient of {value.name}", gradient)
    controls = {RATE: np.float32(0), STEP: np.int32(1), SEED: np.int32(SEED_OF_STEP)}
    found = run(adapted, {**controls, **feed})
    gradients = {name: found[f"gradient of {name}"] for name in trained}
    return Step(float(found["loss"]), _in_order(adapted, gradients))


def _trained(graph: Graph, training: Training) -> tuple[Graph, dict[str, Channels]]:
    """Return the graph with its adapters, and what trains of it."""
    adapted, trained, _ = with_adapters(graph, find_scheme(training.scheme, graph))
    return adapted, trained


def _in_order(graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays in the framework's order of dimensions."""
    orders = {name: graph.params[name].permutation for name in arrays}
    return {
        name: array if (order := orders[name]) is None else array.transpose(np.argsort(order))
        for name, array in arrays.items()
    }


def _channels(graph: Graph, training: Training) -> dict[str, tuple[int, Sequence[int]]]:
    """Return the axis, in the framework's order, and the channels of weights that train in part."""
    adapted, trained = _trained(graph, training)
    found = {}
    for name, channels in trained.items():
        if channels is not None:
            param = adapted.params[name]
            axis = channel_axis("the check", adapted, param)
            found[name] = (axis if param.permutation is None else param.permutation[axis], channels)
    return found


def _compare(found: Step, steps: list[Step], names: Names) -> None:
    """Compare the loss, then every gradient that both have; `steps` are the reference, nudged."""
    reference = steps[0]
    if not np.isfinite(reference.loss):
        _warn(f"{names.graph.name} is not checked: its loss is {reference.loss}")
        return
    losses = [np.asarray(step.loss) for step in steps]
    _compare_one("the loss", np.asarray(found.loss), losses, 0.0, names)
    common = [name for name in found.gradients if name in reference.gradients]
    largest = max((_size(reference.gradients[name]) for name in common), default=0.0)
    for name in common:
        arrays = [found.gradients[name], *(step.gradients[name] for step in steps)]
        if name in names.channels:
            axis, channels = names.channels[name]
            arrays = [array.take(list(channels), axis) for array in arrays]
        _compare_one(f"the gradient of {name}", arrays[0], arrays[1:], largest, names)


def _compare_one(
    label: str, found: np.ndarray, wanted: Sequence[np.ndarray], largest: float, names: Names
) -> None:
    reference = wanted[0].astype(np.float64)
    rounding = max((_size(other - reference) for other in wanted[1:]), default=0.0)
    tolerance = TOLERANCE if largest else LOSS_TOLERANCE
    allowed = tolerance * _size(reference) + ALLOWANCE * rounding + FLOOR * largest
    error = _size(found - reference)
    if error <= allowed:
        return
    raise CheckError(
        f"{names.graph.name}: {label} is wrong in the compiled step: it differs from that of "
        f"{names.reference} by {error:.3g}, where the largest element is {_size(reference):.3g} "
        f"and rounding explains {allowed:.3g}. Nothing was built; please report the model. "
        "check=False (--no-check) compiles it all the same"
    )


def _size(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0.0))

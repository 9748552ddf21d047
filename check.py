"""The safeguard of `pockengine.compile`: compare one step of generated C with the framework's own.

The step runs on this machine, whatever the program is built for, with plain SGD. The rate is a
power of two, so the change of a weight divided by the rate is its gradient. The rate is also large
enough that rounding affects the weight's digits and not the gradient's. If the program runs on this
machine and already trains this way, the program itself is checked before it is installed; otherwise
a separate one is built. Micro-batches, clipping and bf16 are left out. Loss and gradients are
compared with the framework's on the example inputs, or with the NumPy oracle's for the imported
graph if there is no framework result (ONNX, a `Graph`, LoRA adapters). `predict`, which is derived
from the training step, is compared with the model in evaluation mode.

No single tolerance suits every net: float32 gives some gradients to six digits and others to one.
Where they differ by more than TOLERANCE, the framework runs again with weights and inputs perturbed
in their last digits; the change in its result bounds the effect of rounding. A net with long sums
may also cross a kink (a ReLU's 0) by rounding alone, which small perturbations can miss: before a
difference is reported, larger ones are tried.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.drawn_inputs import draw_inputs
from pockengine.backends.registry import backend_for, open_session
from pockengine.backends.session import Session
from pockengine.compiler.autodiff import Channels, backward
from pockengine.compiler.compile import compile_program, find_scheme
from pockengine.compiler.controls import RATE, SEED, STEP
from pockengine.compiler.ir import F32, Builder, DType, Graph
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.sparse.lora import with_adapters
from pockengine.compiler.sparse.scheme import channel_axis
from pockengine.compiler.target import Target
from pockengine.devices import load_device
from pockengine.errors import BudgetError, CheckError
from pockengine.frontends.emit.random import DRAWING
from pockengine.frontends.imported import Imported
from pockengine.frontends.reference import Reference

Nudge = Callable[[np.ndarray], np.ndarray]

RATES = (2.0**60, 2.0**10)
"""Learning rates. The second is for gradients above 2^67, with which the first overflows."""
ROUNDED = 2.0**-23
"""Relative error of a float32 rounded twice: rate times gradient, then the difference."""
TOLERANCE = 2e-3
"""Relative to a gradient's largest element: sums in another order, a few flipped comparisons."""
LOSS_TOLERANCE = 1e-4
FLOOR = 1e-6
"""Relative to the largest gradient: rounding in a gradient that should be zero."""
SEED_OF_STEP = 1
"""Seed of the first step of a session whose seed is 0."""
ORACLE = "the oracle"
REPORT = "Nothing was built; please report the model."
ONE_MODE = (
    "`evaluate` and `predict` are derived from the training step: move code that depends on "
    "`training`, dropout and normalization layers apart, out of the model. Nothing was built."
)


@dataclass(frozen=True)
class Nudges:
    """Perturbations: relative size, allowed multiple of their effect, and count."""

    size: float
    allowance: float
    count: int


FINE, COARSE = Nudges(2.0**-21, 10.0, 2), Nudges(2.0**-18, 2.0, 6)
HALVES = {DType.BF16.value: 2.0**-9, DType.F16.value: 2.0**-12}
"""Relative rounding error of these types."""


class CheckWarning(UserWarning):
    """A step that could be compared with the framework's only in part."""


@dataclass(frozen=True)
class CheckedStep:
    """A loss, and gradients by name in the framework's order of dimensions.

    `error` bounds the measuring error of a gradient that is derived from weights. `predicted` holds
    the outputs in evaluation mode by name.
    """

    loss: float
    gradients: Mapping[str, np.ndarray]
    error: Mapping[str, float] = field(default_factory=dict)
    predicted: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Names:
    """Names for the error message, and the trained channels of partly trained weights."""

    graph: Graph
    reference: str
    channels: Mapping[str, tuple[int, Sequence[int]]]


def check_step(model: Imported, training: Training, artifact: Artifact | None = None) -> None:
    """Compare one compiled step with the framework's; CheckError names the first difference.

    `training` selects the trained parameters; its optimizer is ignored. A `Graph` without example
    inputs gets random ones. Pass the model's own `artifact` if its step shows gradients
    (`shows_gradients`), which saves a second build. Issues a CheckWarning if the framework's own
    numbers are not available.
    """
    training = Training(training.scheme, memory_budget=training.memory_budget)
    source, graph = model.source, model.graph
    if source is None:
        _check_by_oracle(_Step(graph, training, artifact), model.inputs)
        return
    with source.quiet({node.scope for node in graph.nodes if node.op in DRAWING}):
        if _draws(graph):  # dropout and the like, which are off now
            graph, artifact = source.graph(model.loss), None
        step = _Step(graph, training, artifact)
        reference = None if _draws(graph) else source.reference(model.loss, lambda array: array)
        if reference is None:
            reason = "it draws random numbers" if _draws(graph) else "its framework cannot run it"
            _warn(f"{graph.name} is compared with the oracle alone: {reason}")
            _check_by_oracle(step, ())
            return
        feed = {value.name: reference.feed[value.name] for value in graph.inputs}
        compiled = step.run(feed)
        names = Names(graph, source.frontend.framework, _channels(graph, training))

        def nudged(nudge: Nudge) -> CheckedStep | None:
            again = source.reference(model.loss, nudge)
            return None if again is None else _step(again)

        _compare(compiled, _step(reference), nudged, names)
    if set(compiled.gradients) - set(reference.gradients or {}):
        _compare_with_oracle(compiled, step, feed)


def shows_gradients(training: Training) -> bool:
    """Whether an update is exactly the rate times the gradient."""
    plain = Training(training.scheme, memory_budget=training.memory_budget)
    return all(getattr(training, part.name) == getattr(plain, part.name) for part in fields(plain))


def _check_by_oracle(step: "_Step", inputs: object) -> None:
    feed = _feed_of(step.graph, inputs)
    _compare_with_oracle(step.run(feed), step, feed)


def _compare_with_oracle(
    compiled: CheckedStep, step: "_Step", feed: Mapping[str, np.ndarray]
) -> None:
    graph, training = step.graph, step.training
    names = Names(graph, ORACLE, _channels(graph, training))
    expected = _oracle(graph, training, feed, lambda array: array)
    _compare(compiled, expected, lambda nudge: _oracle(graph, training, feed, nudge), names)


def _step(reference: Reference) -> CheckedStep:
    return CheckedStep(reference.loss, reference.gradients or {}, predicted=reference.predicted)


def _nudge(rng: np.random.Generator, size: float) -> Nudge:
    """Return a change of every number by slightly more than float32 rounds it."""

    def change(array: np.ndarray) -> np.ndarray:
        signs = rng.choice(np.array([-size, size], np.float32), array.shape)
        return np.asarray(array * (1 + signs), np.float32)

    return change


def _warn(text: str) -> None:
    warnings.warn(text, CheckWarning, stacklevel=4)


def _draws(graph: Graph) -> bool:
    return any(value.name == SEED for value in graph.inputs)


def _feed_of(graph: Graph, inputs: object) -> dict[str, np.ndarray]:
    """Return the example inputs by name, or random ones: floats, and indices in range."""
    names = [value.name for value in graph.inputs]
    if isinstance(inputs, Mapping):
        known = {name: np.asarray(array) for name, array in inputs.items()}
    else:
        arrays = inputs if isinstance(inputs, (tuple, list)) else ()
        known = {name: np.asarray(array) for name, array in zip(names, arrays, strict=False)}
    return {name: known.get(name, drawn) for name, drawn in draw_inputs(graph).items()}


@dataclass(frozen=True)
class _Step:
    """A compiled step: the given artifact's, or that of an artifact built for the check."""

    graph: Graph
    training: Training
    artifact: Artifact | None

    def run(self, feed: Mapping[str, np.ndarray]) -> CheckedStep:
        """Run the step once on this machine and compute gradients from the weights."""
        adapted, trained = _trained(self.graph, self.training)
        with self._opened() as session:
            predicted = _predicted(session, feed)
            loss, moved, error = _measured(session, feed, list(trained))
        return CheckedStep(loss, _in_order(adapted, moved), error, predicted)

    @contextmanager
    def _opened(self) -> Iterator[Session]:
        if self.artifact is not None:
            with open_session(self.artifact) as session:
                yield session
            return
        backend = backend_for(load_device("host"))
        with tempfile.TemporaryDirectory(prefix="pockengine-check-") as folder:
            program = self._program(backend.target())
            built = write_artifact(program, backend, Path(folder) / "artifact")
            with open_session(built) as session:
                yield session

    def _program(self, target: Target) -> Program:
        try:
            return compile_program(self.graph, self.training, target=target)
        except BudgetError:  # of the device it is meant for: kernels of this machine may want more
            return compile_program(self.graph, Training(self.training.scheme), target=target)


def _predicted(session: Session, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run the forward pass; return nothing if it draws random numbers."""
    entry = session.artifact.entries.get("predict")
    if entry is None or SEED in entry.inputs:
        return {}
    return session.predict({name: feed[name] for name in entry.inputs})


def _measured(
    session: Session, feed: Mapping[str, np.ndarray], trained: Sequence[str]
) -> tuple[float, dict[str, np.ndarray], dict[str, float]]:
    """Run a step; return its loss, and each trained parameter's gradient and measuring error."""
    before = session.params()
    for rate in RATES:
        for name, array in before.items():
            session.set_param(name, array)
        loss = float(session.train_step(feed, lr=rate)["loss"])
        after = {name: session.get_param(name) for name in trained}
        if all(np.isfinite(array).all() for array in after.values()):
            break
    with np.errstate(invalid="ignore"):
        moved = {name: (before[name].astype(np.float64) - after[name]) / rate for name in trained}
    return loss, moved, {name: ROUNDED * _size(before[name]) / rate for name in trained}


def _oracle(
    graph: Graph, training: Training, feed: Mapping[str, np.ndarray], nudge: Nudge
) -> CheckedStep:
    """Differentiate the imported graph and evaluate it in NumPy."""
    adapted, trained = _trained(graph, training)
    adapted = clone(adapted)
    params = {
        name: nudge(param.data) if param.data.dtype == F32.numpy else param.data.copy()
        for name, param in adapted.params.items()
    }
    feed = {name: nudge(a) if a.dtype == F32.numpy else a for name, a in feed.items()}
    g = Builder(adapted)
    wrt = {adapted.params[name].value: None for name in trained if name in adapted.params}
    for value, gradient in backward(g, adapted.outputs["loss"], wrt).items():
        g.output(f"gradient of {value.name}", gradient)
    controls: dict[str, Any] = {
        RATE: np.float32(0),
        STEP: np.int32(1),
        SEED: np.int32(SEED_OF_STEP),
    }
    results = run(adapted, {**controls, **feed}, params)
    gradients = {name: results[f"gradient of {name}"] for name in trained}
    return CheckedStep(float(results["loss"]), _in_order(adapted, gradients))


def _trained(graph: Graph, training: Training) -> tuple[Graph, dict[str, Channels]]:
    """Return the graph with its adapters, and its trained parameters."""
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
    """Return the axis, in the framework's order, and the trained channels of partly trained
    weights.
    """
    adapted, trained = _trained(graph, training)
    parts: dict[str, tuple[int, Sequence[int]]] = {}
    for name, channels in trained.items():
        if channels is not None:
            param = adapted.params[name]
            axis = channel_axis("the check", adapted, param)
            parts[name] = (axis if param.permutation is None else param.permutation[axis], channels)
    return parts


def _compare(
    compiled: CheckedStep,
    reference: CheckedStep,
    again: Callable[[Nudge], CheckedStep | None],
    names: Names,
) -> None:
    """Compare the loss, then all gradients of both; `again` reruns the reference perturbed."""
    if not np.isfinite(reference.loss):
        _warn(f"{names.graph.name} is not checked: its loss is {reference.loss}")
        return
    error = next(_differences(compiled, [reference], 0.0, names), None)
    rng = np.random.default_rng(0)
    for nudges in _nudges(names.graph):
        if error is None:
            return
        runs = [again(_nudge(rng, nudges.size)) for _ in range(nudges.count)]
        steps = [reference, *(step for step in runs if step is not None)]
        error = next(_differences(compiled, steps, nudges.allowance, names), None)
    if error is not None:
        raise error


def _nudges(graph: Graph) -> tuple[Nudges, Nudges]:
    """Return perturbations for the graph's precision: some models round to 16 bits."""
    casts = {node.attrs["dtype"] for node in graph.nodes if node.op == "cast"}
    widest = max((HALVES[dtype] for dtype in casts & HALVES.keys()), default=None)
    if widest is None:
        return FINE, COARSE
    return Nudges(widest, 4.0, FINE.count), Nudges(2 * widest, COARSE.allowance, COARSE.count)


def _differences(
    compiled: CheckedStep, steps: list[CheckedStep], allowance: float, names: Names
) -> Iterator[CheckError]:
    """Yield differences beyond rounding; `steps` are the reference and the perturbed references."""
    common = [name for name in compiled.gradients if name in steps[0].gradients]
    largest = max((_size(steps[0].gradients[name]) for name in common), default=0.0)
    losses = [np.asarray(step.loss) for step in steps]
    allowed = LOSS_TOLERANCE * _size(losses[0]) + allowance * _spread(losses)
    difference = partial(_difference, names=names)
    yield from difference("the loss", np.asarray(compiled.loss), losses[0], allowed=allowed)
    for name in common:
        arrays = [compiled.gradients[name], *(step.gradients[name] for step in steps)]
        if name in names.channels:
            axis, channels = names.channels[name]
            arrays = [array.take(list(channels), axis) for array in arrays]
        allowed = TOLERANCE * _size(arrays[1]) + allowance * _spread(arrays[1:]) + FLOOR * largest
        allowed += compiled.error.get(name, 0.0)
        yield from difference(f"the gradient of {name}", arrays[0], arrays[1], allowed=allowed)
    for name, array in compiled.predicted.items():
        arrays = [step.predicted[name] for step in steps if name in step.predicted]
        if arrays and arrays[0].shape == array.shape and arrays[0].dtype == F32.numpy:
            allowed = TOLERANCE * _size(arrays[0]) + allowance * _spread(arrays)
            label = f"output {name!r} in evaluation mode"
            yield from difference(label, array, arrays[0], allowed=allowed, advice=ONE_MODE)


def _difference(
    label: str,
    array: np.ndarray,
    expected: np.ndarray,
    allowed: float,
    names: Names,
    advice: str = REPORT,
) -> Iterator[CheckError]:
    error = _size(array - expected.astype(np.float64))
    if error <= allowed:
        return
    yield CheckError(
        f"{names.graph.name}: {label} is wrong in the compiled step: it differs from that of "
        f"{names.reference} by {error:.3g}, where the largest element is {_size(expected):.3g} "
        f"and rounding explains {allowed:.3g}. {advice} "
        "check=False (--no-check) compiles it all the same"
    )


def _spread(arrays: Sequence[np.ndarray]) -> float:
    """Return the largest distance of the first array's elements from any other array's."""
    first = arrays[0].astype(np.float64)
    return max((_size(other - first) for other in arrays[1:]), default=0.0)


def _size(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0.0))

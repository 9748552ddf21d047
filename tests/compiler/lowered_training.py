"""Compare a lowered training, run in place in its arena, with the graph before all passes.

The reference is differentiated and evaluated node by node, with each param's new contents in a
separate array. So `check_training` detects every premature update.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pockengine.backends.c.backend import FUSION
from pockengine.compiler.compile import compile_program, find_scheme
from pockengine.compiler.ir import Graph, Node, Value
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Adafactor, Lamb, Lars, Muon, Optimizer, Sgd, Update
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import ApplyGradients, Differentiate
from pockengine.compiler.program import Entry, Program
from pockengine.compiler.sparse.lora import with_adapters
from pockengine.compiler.target import Choice, Target
from pockengine.errors import CompileError
from pockengine.tests.compiler.in_place import run_in_place

RATE = 0.5
STEPS = 2
TOLERANCE = 1e-4
UNCERTAIN = 1e-3
"""Share of the largest gradient below which rounding may decide the direction of an update."""
NUDGE, NUDGES = 1e-7, 4
"""Relative size of a nudge, about the rounding error of a state, and the number of nudges."""
CONDITION = 10.0
"""Tolerance, as a multiple of the change that nudges cause in a result."""

WHOLE = (Adafactor, Lamb, Lars, Muon)
"""Optimizers in which each element's step depends on the whole gradient."""

Arrays = dict[str, np.ndarray]


def _scratch_bytes(node: Node) -> int:
    """Return scratch for some of the nodes; it must not overlap a live value."""
    return 64 * (len(node.operands) % 3)


TARGET = Target(FUSION, lambda node: Choice("test", scratch_bytes=_scratch_bytes(node)))


@dataclass
class _Recorder:
    """An optimizer that records its gradients."""

    optimizer: Optimizer
    gradients: dict[str, Value] = field(default_factory=dict)

    def update(self, update: Update) -> None:
        self.gradients[update.param.name] = update.grad
        self.optimizer.update(update)


class Reference:
    """The training before all passes, with the expected results of the lowered program."""

    def __init__(self, forward: Graph, training: Training) -> None:
        graph, trained, _ = with_adapters(forward, find_scheme(training.scheme, forward))
        recorder = _Recorder(training.optimizer)
        self.optimizer, self.count = training.optimizer, training.micro_batches
        self.train, self.update = clone(graph), clone(graph)
        Differentiate(trained, recorder, training.clip, self.count).run(self.train)
        if self.count > 1:
            ApplyGradients(trained, recorder, training.clip).run(self.update)
        last = self.train if self.count == 1 else self.update
        self.outputs = {f"gradient of {name}": v for name, v in recorder.gradients.items()}
        last.outputs.update(self.outputs)
        self.params = {**self.update.params, **self.train.params}

    def uncertain(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Elements whose update direction rounding may decide: gradients near zero."""
        if isinstance(self.optimizer, Sgd) or not set(self.outputs) <= set(outputs):
            return {}
        sizes = {name: np.abs(outputs[name]) for name in self.outputs}
        limit = UNCERTAIN * max(float(size.max()) for size in sizes.values())
        masks = {}
        for name, size in sizes.items():
            param = name.removeprefix("gradient of ")
            small, shape = size <= limit, self.params[param].value.shape
            whole = isinstance(self.optimizer, WHOLE) or small.shape != shape
            masks[param] = np.broadcast_to(small.any(), shape) if whole else small
        return masks


def check_training(forward: Graph, training: Training, seed: int, *, check: bool = True) -> Program:
    """Train a few steps, and compare losses, weights and states with those before the passes.

    Raises AssertionError naming the difference; CompileError if the training is refused.
    """
    program = compile_program(forward, training, target=TARGET, check=check)
    reference = Reference(forward, training)
    rng = np.random.default_rng(seed)
    state = {name: param.data.copy() for name, param in reference.params.items()}
    for step in range(1, STEPS + 1):
        controls = {"lr": np.float32(RATE), "step": np.int32(step)}
        for _ in range(training.micro_batches):
            inputs = {**_draw(forward, rng), **controls}
            _compare(program.entries["train"], reference.train, inputs, state, reference)
        if training.micro_batches > 1:
            _compare(program.entries["update"], reference.update, controls, state, reference)
    return program


def _draw(forward: Graph, rng: np.random.Generator) -> Arrays:
    arrays = {}
    for value in forward.inputs:
        if value.dtype.is_float:
            arrays[value.name] = rng.standard_normal(value.shape).astype(np.float32)
        else:
            arrays[value.name] = rng.integers(0, 4, value.shape).astype(value.dtype.numpy)
    return arrays


def _compare(
    entry: Entry, graph: Graph, inputs: Arrays, state: Arrays, reference: Reference
) -> None:
    """Run one call of both trainings from the same state, and update the state."""
    lowered = {name: array.copy() for name, array in state.items()}
    with np.errstate(all="ignore"):
        before = {name: array.copy() for name, array in state.items()}
        oracle = run(graph, inputs, state)
        outputs = run_in_place(entry, inputs, lowered)
    state.update({name: np.asarray(array) for name, array in state.items()})
    if not all(np.isfinite(array).all() for array in state.values()):
        raise CompileError("the reference itself overflows")
    uncertain = reference.uncertain(oracle)
    results = {f"output {name}": outputs[name] for name in set(outputs) & set(oracle)}
    for name, array in lowered.items():
        results[name] = np.where(uncertain.get(name, False), state[name], array)
    expected = {**state, **{f"output {name}": array for name, array in oracle.items()}}
    if all(_distance(results[name], expected[name]) <= TOLERANCE for name in results):
        return
    moves = _rounding_changes(graph, inputs, before, expected)
    for name, array in results.items():
        error, limit = _distance(array, expected[name]), TOLERANCE + CONDITION * moves[name]
        where = f"{entry.name}: {name}"
        assert error <= limit, f"{where} differs by {error:g} of its size, more than {limit:g}"


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference relative to the largest element, or to 1 if that is smaller."""
    size = max(1.0, float(np.abs(other).max(initial=0.0)))
    return float(np.abs(one - other).max(initial=0.0)) / size


def _rounding_changes(
    graph: Graph, inputs: Arrays, state: Arrays, expected: Arrays
) -> dict[str, float]:
    """Return how much the reference's own results change when rounding changes its state.

    A batch norm of almost equal rows divides rounding errors by a tiny deviation. A bias before one
    has a gradient of rounding errors only, which Adafactor turns into a whole step.
    """
    rng = np.random.default_rng(0)
    moves = dict.fromkeys(expected, 0.0)
    for _ in range(NUDGES):
        nudged = {name: _nudge(array, rng) for name, array in state.items()}
        with np.errstate(all="ignore"):
            outputs = run(graph, inputs, nudged)
        results = {**nudged, **{f"output {name}": array for name, array in outputs.items()}}
        for name, array in expected.items():
            moves[name] = max(moves[name], _distance(np.asarray(results[name]), array))
    return moves


def _nudge(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if array.dtype != np.float32:
        return array.copy()
    noise = rng.uniform(-NUDGE, NUDGE, array.shape)
    return np.asarray(array * (1 + noise), np.float32)  # a product of rank 0 is not an array


def with_budget(training: Training, program: Program, share: float) -> Training:
    """Return the same training with a memory budget, a share of its arena."""
    return replace(training, memory_budget=int(share * program.arena_bytes))

"""Programs for a range of sizes: one variant of every entry per bucket."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.graph import LOSS, Graph, Value
from pockengine.compiler.ir.rewrite import lower
from pockengine.compiler.memory.shared_tensors import share_tensors
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.sizes import Range
from pockengine.compiler.storage import Storage
from pockengine.compiler.target import Target
from pockengine.errors import CompileError

TOLERANCE = 1e-4
"""Allowed relative difference from padding: sums of other lengths round differently."""


def compile_variants(
    build: Callable[[int], Graph],
    sizes: Range,
    training: Training | None = None,
    *,
    target: Target | None = None,
    check: bool = False,
) -> Program:
    """Compile `build(size)` for every bucket into one program.

    CompileError if the variants differ in more than the size, or if padding changes the loss or a
    trained parameter (batch norm over the batch, a mean over padding). The check runs in NumPy on
    random data of the size just below the largest bucket, without random numbers and rounding.
    """
    compiled = partial(compile_program, training=training, target=target, check=check)
    largest = compiled(build(sizes.high))
    outputs = tuple(set(largest.entries["train"].graph.outputs) - {LOSS})
    training = replace(training or Training(), outputs=outputs)
    smaller = {size: compiled(build(size), training=training) for size in sizes.buckets[:-1]}
    programs = smaller | {sizes.high: largest}
    for program in programs.values():
        if {n: p.value.type for n, p in program.params.items()} != {
            n: p.value.type for n, p in largest.params.items()
        }:
            raise CompileError(f"{sizes.name}: a parameter's shape depends on it; keep it fixed")
    sized: dict[str, dict[str, list[int]]] = {}
    if sizes.high > sizes.low:
        exact, padded = (
            compile_program(_without_dropout(build(size)), _checkable(training))
            for size in (sizes.high - 1, sizes.high)
        )
        _check_padding(exact, padded, sizes)
        sized = {name: _sized(exact, padded, name, sizes) for name in largest.entries}
    entries = {
        sizes.entry(name, size): replace(entry, name=sizes.entry(name, size))
        for size, program in programs.items()
        for name, entry in program.entries.items()
    }
    params, constants = share_tensors(entries)
    shared = replace(largest, entries=entries, params=params, constants=constants)
    return replace(shared, sizes=sizes, sized=sized)


def _checkable(training: Training) -> Training:
    """Return the training without noise and without rounding of what a step computes."""
    storage = Storage(weights=training.storage.weights)
    return replace(training, memory_budget=None, storage=storage, noise=None)


def _without_dropout(graph: Graph) -> Graph:
    """Return a copy without dropout: which elements it drops depends on the size."""
    copy = clone(graph)
    lower(copy, {"dropout": lambda g, node: (node.operands[0],)})
    return copy


def _sized(exact: Program, largest: Program, entry: str, sizes: Range) -> dict[str, list[int]]:
    """Return the variable dimensions of an entry's outputs, by comparing two programs."""
    outputs = [program.entries[entry].graph.outputs for program in (exact, largest)]
    both = {name: (outputs[0][name].shape, value.shape) for name, value in outputs[1].items()}
    bounds = (sizes.high - 1, sizes.high)
    found = {
        name: [axis for axis, pair in enumerate(zip(*shapes, strict=True)) if pair == bounds]
        for name, shapes in both.items()
    }
    return {name: axes for name, axes in found.items() if axes}


def _check_padding(exact: Program, largest: Program, sizes: Range) -> None:
    """Train one step on the same data, unpadded and padded; both must agree."""
    graphs = [program.entries["train"].graph for program in (exact, largest)]
    data = {value.name: _random(value) for value in graphs[0].inputs}
    padded = {name: sizes.padded(name, array, sizes.high) for name, array in data.items()}
    ends = []
    for program, graph, inputs in zip((exact, largest), graphs, (data, padded), strict=True):
        params = {name: param.data.copy() for name, param in program.params.items()}
        outputs = run(graph, inputs, params)
        ends.append({"the loss": outputs["loss"], **params})
    for name, value in ends[0].items():
        limit = TOLERANCE * max(1e-3, float(np.abs(value).max(initial=0)))
        if not np.allclose(value, ends[1][name], rtol=0, atol=limit):
            raise CompileError(
                f"padding {sizes.name} from {sizes.high - 1} to {sizes.high} changes {name}: the "
                "model mixes padding with data. Put batch norm into eval() mode, mask what is "
                "padded, or give labels the padding that does not count (-100)"
            )


def _random(value: Value) -> np.ndarray:
    """Random data for an input: normal numbers, small integers, a rate, a step number."""
    rng = np.random.default_rng(len(value.name))
    if value.dtype.is_float:
        normal = rng.standard_normal(value.shape) if value.shape else 0.1
        return np.asarray(normal, np.float32)
    return np.asarray(rng.integers(1, 2, value.shape), value.dtype.numpy)


def check_names(sizes: Range, inputs: Mapping[str, Value]) -> None:
    """Raise CompileError for a range over an unknown input, or over a dimension that it lacks."""
    unknown = sorted(set(sizes.axes) - set(inputs))
    if unknown:
        raise CompileError(f"{sizes.name}: no input {unknown}; the inputs are {sorted(inputs)}")
    for name, axis in sizes.axes.items():
        if axis >= len(inputs[name].shape):
            raise CompileError(
                f"{sizes.name}: input {name} {inputs[name].type} has no dimension {axis}; the "
                "first is 0"
            )

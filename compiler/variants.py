"""Programs for a range of sizes: one variant of every entry per bucket."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

import numpy as np

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.graph import LOSS, Graph, Value
from pockengine.compiler.ir.rewrite import lower
from pockengine.compiler.memory.shared_tensors import share_tensors
from pockengine.compiler.options import Training
from pockengine.compiler.program import Entry, Program
from pockengine.compiler.sizes import Range, cut
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

    CompileError if the variants differ in more than the size, or if padding changes the loss, an
    output or a trained parameter (batch norm over the batch, a mean over padding). The check runs
    in NumPy on random data with the least and the most padding to the largest bucket, without
    random numbers and rounding.
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
        padded = _checkable(build(sizes.high), training)
        for size in _padded_sizes(sizes):
            padding = _Padding(sizes, size, _checkable(build(size), training), padded)
            padding.check()
            sized = {name: padding.cropped(entry) for name, entry in largest.entries.items()}
    entries = {
        sizes.entry(name, size): replace(entry, name=sizes.entry(name, size))
        for size, program in programs.items()
        for name, entry in program.entries.items()
    }
    params, constants = share_tensors(entries)
    shared = replace(largest, entries=entries, params=params, constants=constants)
    return replace(shared, sizes=sizes, sized=sized)


def _checkable(graph: Graph, training: Training) -> Program:
    """Compile a graph with all outputs, without random numbers and rounding.

    Which elements dropout drops depends on the size.
    """
    exact = replace(
        training,
        memory_budget=None,
        storage=Storage(weights=training.storage.weights),
        noise=None,
        outputs=tuple(set(graph.outputs) - {LOSS}),
    )
    copy = clone(graph)
    lower(copy, {"dropout": lambda g, node: (node.operands[0],)})
    return compile_program(copy, exact)


def _padded_sizes(sizes: Range) -> list[int]:
    """Return the sizes with the most and the least padding in the largest bucket."""
    below = (size for size in (sizes.low - 1, *sizes.buckets[:-1]) if size < sizes.high - 1)
    return sorted({max(below, default=sizes.high - 2) + 1, sizes.high - 1})


@dataclass(frozen=True)
class _Padding:
    """Programs for `size` and for the largest one, to which data of this size are padded."""

    sizes: Range
    size: int
    exact: Program
    padded: Program

    def check(self) -> None:
        """Train one step on the same data, unpadded and padded; both must agree."""
        graphs = [program.entries["train"].graph for program in (self.exact, self.padded)]
        data = {value.name: _random(value) for value in graphs[0].inputs}
        more = {name: self.sizes.padded(name, a, self.sizes.high) for name, a in data.items()}
        expected = self._step(self.exact, data)
        for name, value in self._step(self.padded, more).items():
            limit = TOLERANCE * max(1e-3, float(np.abs(expected[name]).max(initial=0)))
            if not np.allclose(expected[name], value, rtol=0, atol=limit):
                raise CompileError(
                    f"padding {self.sizes.name} from {self.size} to {self.sizes.high} changes "
                    f"{name}: the model mixes padding with data. Put batch norm into eval() mode, "
                    "mask what is padded, give labels the padding that does not count (-100), or, "
                    "if it is an output, leave it out"
                )

    def cropped(self, entry: Entry) -> dict[str, list[int]]:
        """Return the variable dimensions of an entry's outputs."""
        axes = self._axes(entry.name)
        return {name: axes[name] for name in entry.graph.outputs if axes[name]}

    def _step(self, program: Program, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the loss, the cropped outputs, and the params after a step."""
        params = {name: param.data.copy() for name, param in program.params.items()}
        outputs = run(program.entries["train"].graph, inputs, params)
        loss = {"the loss": outputs.pop(LOSS)}
        axes = self._axes("train")
        crop = {f"output {name}": cut(a, axes[name], self.size) for name, a in outputs.items()}
        return {**loss, **crop, **params}

    def _axes(self, entry: str) -> dict[str, list[int]]:
        """Return the variable dimensions of all outputs, by comparing the programs.

        CompileError for an output whose padding cannot be cropped, such as one of flattened rows.
        """
        exact, padded = (each.entries[entry].graph.outputs for each in (self.exact, self.padded))
        found = {}
        for name, value in padded.items():
            pairs = list(zip_longest(exact[name].shape, value.shape))
            bounds = (self.size, self.sizes.high)
            found[name] = [axis for axis, pair in enumerate(pairs) if pair == bounds]
            if any(one != other for one, other in pairs if (one, other) != bounds):
                raise CompileError(
                    f"output {name} {value.type} cannot be cropped: with {self.sizes.name} "
                    f"{self.size} it is {exact[name].type}; return {self.sizes.name} as a "
                    "dimension of its own"
                )
        return found


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

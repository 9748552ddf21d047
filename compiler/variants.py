"""Programs for a range of sizes: one variant of every entry per bucket."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, zip_longest

import numpy as np

from pockengine.compiler.compile import compile_program
from pockengine.compiler.index_ranges import IndexRange, index_ranges
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
) -> Program:
    """Compile `build(size)` for every bucket into one program.

    CompileError if the variants differ in more than the size, or if padding changes the loss, an
    output or a trained parameter (batch norm over the batch, a mean over padding). The check runs
    in NumPy on random data with the most padding to each bucket, and the least to the largest,
    without random numbers and rounding.
    """
    compiled = partial(compile_program, training=training, target=target)
    largest = compiled(build(sizes.high))
    outputs = tuple(set(largest.entries["train"].graph.outputs) - {LOSS})
    training = replace(training or Training(), outputs=outputs)
    smaller = {size: compiled(build(size), training=training) for size in sizes.buckets[:-1]}
    programs = smaller | {sizes.high: largest}
    for program in programs.values():
        _check_params(program, largest, sizes)
    sized: dict[str, dict[str, list[int]]] = {}
    if sizes.high > sizes.low:
        for bucket, padded_sizes in _padded_sizes(sizes).items():
            padded = _checkable(build(bucket), training)
            for size in padded_sizes:
                exact = _checkable(build(size), training)
                padding = _Padding(sizes, size, bucket, exact=exact, padded=padded)
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


def _check_params(program: Program, largest: Program, sizes: Range) -> None:
    """Raise CompileError if a param's shape differs; a frozen one may be folded away in a size."""
    for name in program.params.keys() & largest.params.keys():
        if program.params[name].value.type != largest.params[name].value.type:
            raise CompileError(f"{sizes.name}: the shape of {name} depends on it; keep it fixed")


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


def _padded_sizes(sizes: Range) -> dict[int, list[int]]:
    """Return each bucket with its most padded size; the largest, last, also with its least padded.

    A bucket that only its own size selects is left out, except for the largest.
    """
    below = [max(size, sizes.low - 1) for size in (0, *sizes.buckets[:-1])]
    smaller = {bucket: [last + 1] for last, bucket in pairwise(below) if last + 1 < bucket}
    most = max((size for size in below if size < sizes.high - 1), default=sizes.high - 2) + 1
    return smaller | {sizes.high: sorted({most, sizes.high - 1})}


@dataclass(frozen=True)
class _Padding:
    """Programs for `size` and for the bucket to which data of this size are padded."""

    sizes: Range
    size: int
    bucket: int
    exact: Program
    padded: Program

    def check(self) -> None:
        """Train one step on the same data, unpadded and padded; both must agree."""
        graphs = [program.entries["train"].graph for program in (self.exact, self.padded)]
        data = _random_inputs(graphs[0])
        more = {name: self.sizes.padded(name, a, self.bucket) for name, a in data.items()}
        found = self._step(self.padded, more)
        for name, value in self._step(self.exact, data).items():
            limit = TOLERANCE * max(1e-3, float(np.abs(value).max(initial=0)))
            if not np.allclose(value, found[name], rtol=0, atol=limit):
                raise CompileError(
                    f"padding {self.sizes.name} from {self.size} to {self.bucket} changes "
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
            bounds = (self.size, self.bucket)
            found[name] = [axis for axis, pair in enumerate(pairs) if pair == bounds]
            if any(one != other for one, other in pairs if (one, other) != bounds):
                raise CompileError(
                    f"output {name} {value.type} cannot be cropped: with {self.sizes.name} "
                    f"{self.size} it is {exact[name].type}; return {self.sizes.name} as a "
                    "dimension of its own"
                )
        return found


def _random_inputs(graph: Graph) -> dict[str, np.ndarray]:
    """Draw normal numbers and indices; other integers, such as masks, are ones, rates 0.1."""
    ranges: dict[str, list[IndexRange]] = {value.name: [] for value in graph.inputs}
    for each in index_ranges(graph):
        ranges[each.input].append(each)
    return {value.name: _random(value, ranges[value.name]) for value in graph.inputs}


def _random(value: Value, ranges: Sequence[IndexRange]) -> np.ndarray:
    rng = np.random.default_rng(len(value.name))
    if value.dtype.is_float:
        normal = rng.standard_normal(value.shape) if value.shape else 0.1
        return np.asarray(normal, np.float32)
    low = max((each.low for each in ranges), default=1)
    high = min((each.high for each in ranges), default=1)
    drawn = rng.integers(low, max(low, high) + 1, value.shape)
    return np.asarray(drawn, value.dtype.numpy)


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

"""Select channels by data: by the size of the activation that a weight reads, or by its gradient.

    activation   mean square of each input channel over examples and places
    fisher       squared gradient of a batch's mean loss, summed over each channel's weights, a mean
                 over batches: the empirical Fisher information where a batch is one example

Both are computed by compiled code on this machine from training examples. The result is a static
scheme with lists of channels. Criteria that need no data are in compiler/sparse/channels.py.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from glob import escape
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import write_artifact
from pockengine.backends.registry import backend_for, open_session
from pockengine.compiler.autodiff import backward
from pockengine.compiler.channel_readers import ChannelReader, channel_reader
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import Builder, Graph, Value
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import LOSS
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.sparse import ParamChoice, Scheme
from pockengine.compiler.sparse.channels import channel_count, rank_scores
from pockengine.compiler.sparse.scheme import channel_axis
from pockengine.devices.schema import load_device
from pockengine.errors import FinetuneError
from pockengine.finetune.task import TARGET, Examples

DATA_CRITERIA = ("activation", "fisher")
"""Criteria that need examples; compiler/sparse/channels.py has the others."""

_ENTRY = "scores"


def list_channels(scheme: Scheme, scored: Mapping[str, tuple[ParamChoice, np.ndarray]]) -> Scheme:
    """Return the scheme with these weights' shares as lists of the highest-scoring channels."""
    rules = list(scheme.rules)
    for name, (choice, scores) in scored.items():
        first = rank_scores(scores)[: channel_count(len(scores), choice.share)]
        channels = tuple(sorted(int(index) for index in first))
        rules.append((escape(name), ParamChoice("channels", channels=channels)))
    return replace(scheme, rules=tuple(rules))


def channel_scores(
    graph: Graph, names: Sequence[str], by: str, examples: Examples, target: str = TARGET
) -> dict[str, np.ndarray]:
    """Return f64 [channels] for each weight: the higher, the more its channels should train.

    `target` is the graph's name of the labels.
    """
    build = _BUILDERS.get(by)
    if build is None:
        raise FinetuneError(f"no criterion {by!r} that needs data; use {' or '.join(_BUILDERS)}")
    batch = graph.input(target).shape[0]
    if len(examples) < batch:
        raise FinetuneError(
            f"{len(examples)} examples fill no batch of {batch}; give more to choose channels by"
        )
    if not names:
        return {}
    scores = clone(graph)
    scores.nodes[:] = [node for node in scores.nodes if not lookup(node.op).writes]
    build(scores, names)
    return _means(scores, batch, {**examples.inputs, target: examples.labels})


def _activations(graph: Graph, names: Sequence[str]) -> None:
    """Add the mean squares of the channels that each weight reads as the graph's outputs."""
    g = Builder(graph)
    scores = {}
    for name in names:
        reader, axis = _reader(graph, name)
        x, grouped = reader.node.operands[0], reader.node.attrs.get("groups", 1) > 1
        channels = len(x.shape) - (2 if reader.node.attrs.get("transpose_a") else 1)
        squares = g.reduce_mean(g.square(x), axes=_others(x, channels))
        count = graph.params[name].value.shape[axis]
        copies = squares.shape[0] // count
        if copies > 1:
            shape = (count, copies) if grouped else (copies, count)
            squares = g.reduce_mean(g.reshape(squares, shape=shape), axes=(int(grouped),))
        scores[name] = squares
    graph.outputs = scores


def _squared_gradients(graph: Graph, names: Sequence[str]) -> None:
    """Add the sums of each channel's squared gradients as the graph's outputs."""
    g = Builder(graph)
    axes = {graph.params[name].value: _reader(graph, name)[1] for name in names}
    gradients = backward(g, graph.outputs[LOSS], dict.fromkeys(axes))
    idle = [value.name for value in axes if value not in gradients]
    if idle:
        raise FinetuneError(f"{', '.join(idle)} do not influence the loss; freeze them")
    graph.outputs = {
        value.name: g.reduce_sum(g.square(gradients[value]), axes=_others(value, axis))
        for value, axis in axes.items()
    }


_BUILDERS: Mapping[str, Callable[[Graph, Sequence[str]], None]] = {
    "activation": _activations,
    "fisher": _squared_gradients,
}


def _reader(graph: Graph, name: str) -> tuple[ChannelReader, int]:
    """Return the node that reads a weight, and the axis of its channels."""
    param = graph.params[name]
    axis = channel_axis("of channels", graph, param)
    reader = channel_reader(graph.users(), param.value)
    assert isinstance(reader, ChannelReader)
    return reader, axis


def _others(value: Value, axis: int) -> tuple[int, ...]:
    return tuple(other for other in range(len(value.shape)) if other != axis)


def _means(graph: Graph, batch: int, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return each output's mean over all whole batches of rows."""
    backend = backend_for(load_device("host"))
    program = compile_entries(graph.name, {_ENTRY: graph}, target=backend.target())
    totals = {name: np.zeros(value.shape) for name, value in graph.outputs.items()}
    count = min(map(len, rows.values())) // batch
    with tempfile.TemporaryDirectory(prefix="pockengine-") as folder:
        artifact = write_artifact(program, backend, Path(folder) / "artifact")
        declared = artifact.entries[_ENTRY].inputs
        read = {name: array for name, array in rows.items() if name in declared}
        with open_session(artifact, threads=1) as session:
            for at in range(0, count * batch, batch):
                whole = slice(at, at + batch)
                inputs = {name: np.ascontiguousarray(array[whole]) for name, array in read.items()}
                for name, array in session.run(_ENTRY, inputs).items():
                    totals[name] += array
    return {name: total / count for name, total in totals.items()}

"""From a forward graph, a scheme and an optimiser to a Program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import Graph, Node, Param
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.memory.plan import plan_memory
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.optimizers import Optimizer, Sgd
from pockengine.compiler.passes.differentiate import LOSS
from pockengine.compiler.passes.fuse import FusionRules
from pockengine.compiler.passes.pipeline import (
    Observer,
    Options,
    Pass,
    inference_pipeline,
    run,
    training_pipeline,
)
from pockengine.compiler.program import Entry, Program
from pockengine.compiler.sparse.presets import preset
from pockengine.compiler.sparse.scheme import Scheme, load_scheme


@dataclass(frozen=True)
class Target:
    """What the compiler asks of a backend: fusions it emits, and each kernel's scratch bytes."""

    fusion: FusionRules = field(default_factory=FusionRules)
    scratch_bytes: Callable[[Node], int] = lambda node: 0


def find_scheme(scheme: Scheme | str | Path, graph: Graph) -> Scheme:
    """Return the scheme that is meant: itself, a preset by name, or a TOML file by path."""
    if isinstance(scheme, Scheme):
        return scheme
    if isinstance(scheme, Path) or scheme.endswith(".toml"):
        return load_scheme(Path(scheme))
    return preset(scheme, graph)


def compile_program(
    forward: Graph,
    *,
    scheme: Scheme | str | Path = "full",
    optimizer: Optimizer | None = None,
    target: Target | None = None,
    check: bool = False,
    observe: Observer | None = None,
) -> Program:
    """Compile entries `train` and, where the graph has outputs beside the loss, `predict`.

    `forward` has the scalar output `loss` and stays as it is. `check` verifies after every pass;
    `observe` is told the graph after each, under the name `entry.pass`.
    """
    verify(forward)
    target = target or Target()
    chosen = find_scheme(scheme, forward)
    trained = chosen.resolve(forward)
    options = Options(trained, optimizer or Sgd(), _written(forward, trained), target.fusion)
    entries: dict[str, Entry] = {}
    plans: list[tuple[str, Graph, list[tuple[str, Pass]]]] = [
        ("train", _with_trained(forward, trained), training_pipeline(options))
    ]
    if set(forward.outputs) - {LOSS}:
        plans.append(("predict", _with_trained(forward, trained), inference_pipeline(options)))
    for name, graph, passes in plans:
        watch = None if observe is None else _prefixed(observe, name)
        run(passes, graph, check=check, observe=watch)
        entries[name] = Entry(name, graph, plan_memory(graph, target.scratch_bytes))
    described = {name: _describe(channels) for name, channels in trained.items()}
    return Program(
        forward.name, entries, _shared_params(entries), _shared_constants(entries), described
    )


def _prefixed(observe: Observer, entry: str) -> Observer:
    return lambda name, graph: observe(f"{entry}.{name}", graph)


def _written(forward: Graph, trained: Mapping[str, Channels]) -> frozenset[str]:
    """Names of params whose contents change while training."""
    states = {
        node.operands[index].name
        for node in forward.nodes
        for index in lookup(node.op).writes
        if index < len(node.operands)
    }
    return frozenset(states | set(trained))


def _with_trained(forward: Graph, trained: Mapping[str, Channels]) -> Graph:
    """Copy the graph with exactly the scheme's parameters marked as trainable."""
    graph = clone(forward)
    for name, param in graph.params.items():
        param.trainable = name in trained
    return graph


def _shared_params(entries: Mapping[str, Entry]) -> dict[str, Param]:
    params: dict[str, Param] = {}
    for entry in entries.values():
        for name, param in entry.graph.params.items():
            params.setdefault(name, param)
    return params


def _shared_constants(entries: Mapping[str, Entry]) -> dict[str, np.ndarray]:
    """Name the tensor constants of all entries alike, equal arrays the same."""
    named: dict[tuple[object, bytes], str] = {}
    constants: dict[str, np.ndarray] = {}
    for entry in entries.values():
        for value, data in entry.graph.constants.items():
            if data.ndim == 0:
                continue
            name = named.setdefault((value.type, data.tobytes()), f"constant.{len(named)}")
            constants[name] = data
            value.name = name
    return constants


def _describe(channels: Channels) -> str:
    return "full" if channels is None else f"[{channels.start}, {channels.stop}]"

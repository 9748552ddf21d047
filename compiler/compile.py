"""From a forward graph, a scheme and an optimiser to a Program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import Graph, Node, Param
from pockengine.compiler.ir.key import remembered
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.ir.writes import verify_entry
from pockengine.compiler.memory.plan import plan_memory
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.optim import Optimizer, Sgd
from pockengine.compiler.passes.differentiate import LOSS, Clip
from pockengine.compiler.passes.fuse import FusionRules
from pockengine.compiler.passes.pipeline import (
    Observer,
    Options,
    Pass,
    forward_pipeline,
    inference_pipeline,
    run,
    training_pipeline,
    update_pipeline,
)
from pockengine.compiler.passes.recompute import Budget
from pockengine.compiler.program import Entry, Program, Recomputation
from pockengine.compiler.sparse.idle import without_idle
from pockengine.compiler.sparse.lora import Adapter, with_adapters
from pockengine.compiler.sparse.presets import preset
from pockengine.compiler.sparse.scheme import Scheme, load_scheme
from pockengine.errors import BudgetError, CompileError


@dataclass(frozen=True)
class Target:
    """What the compiler asks of a backend: fusions it emits, and each kernel's scratch bytes."""

    fusion: FusionRules = field(default_factory=FusionRules)
    scratch_bytes: Callable[[Node], int] = lambda node: 0


@dataclass(frozen=True)
class Training:
    """How to train: which parameters, by which optimiser, with which limits on gradients.

    With several `micro_batches` the entry `train` only accumulates gradients, and the entry
    `update`, called after that many of them, applies their mean. A `memory_budget` in bytes bounds
    the arena of all entries: the compiler recomputes activations until it fits, or refuses.
    """

    scheme: Scheme | str | Path = "full"
    optimizer: Optimizer = field(default_factory=Sgd)
    clip: Clip = field(default_factory=Clip)
    micro_batches: int = 1
    memory_budget: int | None = None

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise CompileError(f"micro_batches must be at least 1, not {self.micro_batches}")


def find_scheme(scheme: Scheme | str | Path, graph: Graph) -> Scheme:
    """Return the scheme that is meant: itself, a preset by name, or a TOML file by path."""
    if isinstance(scheme, Scheme):
        return scheme
    if isinstance(scheme, Path) or scheme.endswith(".toml"):
        return load_scheme(Path(scheme))
    return preset(scheme, graph)


def compile_program(
    forward: Graph,
    training: Training | None = None,
    *,
    target: Target | None = None,
    check: bool = False,
    observe: Observer | None = None,
) -> Program:
    """Compile the entries `train` and `evaluate`, and `predict` where there are outputs to predict.

    `forward` has the scalar output `loss` and stays as it is. `check` verifies after every pass;
    `observe` is told the graph after each, under the name `entry.pass`.
    """
    verify(forward)
    training, target = training or Training(), target or Target()
    forward, trained, adapters = _adapted(forward, find_scheme(training.scheme, forward))
    decisions: list[Recomputation] = []
    options = Options(
        trained,
        training.optimizer,
        _written(forward, trained),
        target.fusion,
        training.clip,
        training.micro_batches,
        _budget(training, target),
        decisions.append,
    )
    entries: dict[str, Entry] = {}
    names = _names(forward, options)
    # With a budget `train` comes last: what the others take is the least that it can be given.
    for name in names if options.budget is None else reversed(names):
        graph, watch = _with_trained(forward, trained), observe and _prefixed(observe, name)
        run(_passes(name, options), graph, check=check, observe=watch)
        entries[name] = _planned(name, graph, target)
        options = replace(options, budget=_with_others(options.budget, entries[name]))
    _check_budget(entries := {name: entries[name] for name in names}, training.memory_budget)
    described = {name: _describe(channels) for name, channels in trained.items()}
    shared, report = share_tensors(entries), next(iter(decisions), None)
    program = Program(forward.name, entries, *shared, described, report, None, adapters)
    return replace(program, micro_batches=training.micro_batches)


def _budget(training: Training, target: Target) -> Budget | None:
    if training.memory_budget is None:
        return None
    return Budget(training.memory_budget, remembered(target.scratch_bytes))


def _with_others(budget: Budget | None, entry: Entry) -> Budget | None:
    """Count what one more entry takes of the arena that all share."""
    return budget and replace(budget, others=max(budget.others, entry.plan.size))


def _check_budget(entries: Mapping[str, Entry], budget: int | None) -> None:
    """Raise BudgetError where an entry that nothing is recomputed in takes more."""
    largest = max(entries.values(), key=lambda entry: entry.plan.size)
    if budget is not None and largest.plan.size > budget:
        raise BudgetError(
            f"entry {largest.name} takes an arena of {largest.plan.size} bytes, which nothing "
            f"makes smaller, not {budget}; allow more memory, or use a smaller batch",
            largest.plan.size,
        )


def _adapted(
    forward: Graph, scheme: Scheme
) -> tuple[Graph, dict[str, Channels], tuple[Adapter, ...]]:
    graph, trained, adapters = with_adapters(forward, scheme)
    return graph, without_idle(graph, scheme, trained), adapters


def compile_entries(
    name: str, graphs: Mapping[str, Graph], *, target: Target | None = None, check: bool = False
) -> Program:
    """Compile each graph, as it stands and with whatever outputs, into the entry of its key.

    Nothing is differentiated; a graph's own updates of states stay. Params of one name are shared;
    CompileError when graphs disagree about their data. `check` verifies after every pass.
    """
    target = target or Target()
    _check_agreement(graphs)
    written = frozenset[str]().union(*(_written(graph, {}) for graph in graphs.values()))
    options = Options({}, Sgd(), written, target.fusion)
    entries: dict[str, Entry] = {}
    for key, forward in graphs.items():
        verify(forward)
        graph = clone(forward)
        run(forward_pipeline(options), graph, check=check)
        entries[key] = _planned(key, graph, target)
    return Program(name, entries, *share_tensors(entries))


def _planned(name: str, graph: Graph, target: Target) -> Entry:
    """Plan the memory of a scheduled graph, in whose order no write may come too early."""
    verify_entry(graph)
    return Entry(name, graph, plan_memory(graph, target.scratch_bytes))


def _check_agreement(graphs: Mapping[str, Graph]) -> None:
    known: dict[str, np.ndarray] = {}
    for key, graph in graphs.items():
        for name, param in graph.params.items():
            first = known.setdefault(name, param.data)
            if not np.array_equal(first, param.data, equal_nan=True):
                raise CompileError(
                    f"graph {key} has a param {name} that differs from another graph's; rename it"
                )


def _names(forward: Graph, options: Options) -> list[str]:
    """Entries of a training program, in their order."""
    update = ["update"] if options.micro_batches > 1 else []
    predict = ["predict"] if set(forward.outputs) - {LOSS} else []
    return ["train", *update, "evaluate", *predict]


def _passes(entry: str, options: Options) -> list[tuple[str, Pass]]:
    if entry == "train":
        return training_pipeline(options)
    if entry == "update":
        return update_pipeline(options)
    return inference_pipeline(options, loss=entry == "evaluate")


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


def share_tensors(
    entries: Mapping[str, Entry],
) -> tuple[dict[str, Param], dict[str, np.ndarray]]:
    """Collect the params of all entries, and their constants under names common to all."""
    return _shared_params(entries), _shared_constants(entries)


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
    if channels is None or isinstance(channels, range):
        return "full" if channels is None else f"[{channels.start}, {channels.stop}]"
    return f"channels {', '.join(map(str, channels))}"

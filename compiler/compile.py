"""Compile a forward graph, a scheme and an optimizer to a Program."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.garbage import rare_collections
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.contents import Contents, same_contents
from pockengine.compiler.ir.graph import LOSS, Graph, Node, ParamKind
from pockengine.compiler.ir.types import F32, DType
from pockengine.compiler.ir.verify import verify, verify_order
from pockengine.compiler.ir.writes import verify_entry, written_values
from pockengine.compiler.memory.plan import plan_memory
from pockengine.compiler.memory.shared_tensors import share_tensors
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.store_states import SMALLEST
from pockengine.compiler.passes.base import Observer, Pass, run_passes
from pockengine.compiler.passes.forward.prepare import AddAdapters, SetTrainable
from pockengine.compiler.passes.forward.store_weights import StoreWeights, weights_of
from pockengine.compiler.passes.pipeline import (
    PipelineOptions,
    forward_pipeline,
    inference_pipeline,
    training_pipeline,
    update_pipeline,
)
from pockengine.compiler.program import Entry, Program
from pockengine.compiler.sparse.idle import without_idle
from pockengine.compiler.sparse.lora import Adapter, with_adapters
from pockengine.compiler.sparse.presets import preset
from pockengine.compiler.sparse.scheme import Scheme, load_scheme
from pockengine.compiler.storage import Storage
from pockengine.compiler.target import Choice, Target
from pockengine.errors import BudgetError, CompileError

FINER = 1, 4
"""Factors by which attention blocks shrink if a memory budget is not met."""

TRAIN = "train"
"""The entry of the graph with the loss, from which `evaluate` and `predict` are derived."""

LARGEST_OUTPUT = 4 << 20
"""Largest output in bytes that `train` returns by default. A larger one, such as a decoder's
logits, would occupy memory to the end of each step.
"""


def find_scheme(scheme: Scheme | str | Path, graph: Graph) -> Scheme:
    """Return the scheme: a Scheme itself, a preset by name, or a TOML file by path."""
    if isinstance(scheme, Scheme):
        return scheme
    if isinstance(scheme, Path) or scheme.endswith(".toml"):
        return load_scheme(Path(scheme))
    return preset(scheme, graph)


@rare_collections()
def compile_program(
    forward: Graph,
    training: Training | None = None,
    *,
    target: Target | None = None,
    check: bool = False,
    observe: Observer | None = None,
    others: Mapping[str, Graph] = MappingProxyType({}),
) -> Program:
    """Compile the entries `train` and `evaluate`, and `predict` where there are outputs to predict.

    `forward` has the scalar output `loss` and is not modified. `check` verifies the graph after
    every pass; `observe` is called with the graph after each, under the name `entry.pass`. The
    `others` are further entries by name, on the same params with the same adapters; they train
    nothing, and their own updates stay.
    """
    for graph in (forward, *others.values()):
        verify(graph)
    training, target = training or Training(), target or Target()
    _check_agreement({"train": forward, **others})
    first, forward, options = _prepared(forward, training, target, others)
    adapters = next((each.adapters for each in first if isinstance(each, AddAdapters)), ())
    compiled = _compiled({TRAIN: forward, **_after(first, others)}, options, check, observe)
    entries = {name: entry.entry for name, entry in compiled.items()}
    params, constants = share_tensors(entries)
    return Program(
        forward.name,
        entries,
        params,
        constants,
        scheme={name: _describe(channels) for name, channels in options.trained.items()},
        recomputation=entries["train"].graph.recomputation,
        adapters=adapters,
        micro_batches=training.micro_batches,
        alignment=target.alignment,
    )


@dataclass(frozen=True)
class _CompiledEntry:
    """An entry, and the passes that made it."""

    entry: Entry
    passes: list[Pass]


def _after(passes: Sequence[Pass], graphs: Mapping[str, Graph]) -> dict[str, Graph]:
    """Return copies of graphs after the passes that are common to all entries."""
    copies = {name: clone(graph) for name, graph in graphs.items()}
    for graph in copies.values():
        run_passes(passes, graph)
    return copies


def _compiled(
    graphs: Mapping[str, Graph], options: PipelineOptions, check: bool, observe: Observer | None
) -> dict[str, _CompiledEntry]:
    """Compile all entries by the first plan that fits the budget.

    The first plan has no blocks, because they cost time and sometimes memory. Finer attention
    blocks are slower and mostly, but not always, smaller.
    """
    errors = []
    for plan in _plans(graphs[TRAIN], options):
        try:
            compiled = _all_entries(graphs, plan, check, observe)
            _check_budget(compiled, options.training.memory_budget)
            return compiled
        except BudgetError as error:
            errors.append(error)
    # On ties the last error, which lists what was tried.
    raise min(reversed(errors), key=lambda error: error.least)


def _plans(forward: Graph, options: PipelineOptions) -> Iterator[PipelineOptions]:
    """Return the options of each plan, from the fastest to the leanest."""
    yield replace(options, training=replace(options.training, memory_budget=None))
    if options.training.memory_budget is not None:
        attends = any(lookup(node.op).rows for node in forward.nodes)
        for finer in FINER if attends else FINER[:1]:
            yield replace(options, finer=finer)


def _all_entries(
    graphs: Mapping[str, Graph], options: PipelineOptions, check: bool, observe: Observer | None
) -> dict[str, _CompiledEntry]:
    forward = graphs[TRAIN]
    entries: dict[str, Entry] = {}
    passes: dict[str, list[Pass]] = {}
    names = [*_names(forward, options), *(name for name in graphs if name != TRAIN)]
    # With a budget `train` comes last: the arena of the others is a lower bound for it.
    for name in names if options.training.memory_budget is None else reversed(names):
        graph, watch = clone(graphs.get(name, forward)), observe and _prefixed(observe, name)
        passes[name] = _passes(name, options)
        run_passes(passes[name], graph, check=check, observe=watch)
        entries[name] = _planned(name, graph, options.target, options.written)
        options = replace(options, others=max(options.others, entries[name].plan.size))
    _check_states(entries, options.training)
    entries = {name: entries[name] for name in names}
    return {name: _CompiledEntry(entry, passes[name]) for name, entry in entries.items()}


def _step_outputs(graph: Graph, names: Sequence[str] | None) -> Set[str]:
    """Return the outputs of a step besides the loss: by default those up to LARGEST_OUTPUT."""
    if names is None:
        return {name for name, v in graph.outputs.items() if v.type.nbytes <= LARGEST_OUTPUT}
    known = set(graph.outputs) - {LOSS}
    if unknown := sorted(set(names) - known):
        raise CompileError(
            f"{graph.name} has no output {unknown[0]!r} beside its loss; it has {sorted(known)}"
        )
    return set(names)


def passes_of(
    forward: Graph, training: Training | None = None, *, target: Target | None = None
) -> dict[str, list[Pass]]:
    """Return the passes that `compile_program` applies to each entry.

    With a memory budget this compiles: block sizes depend on the budget.
    """
    first, forward, options = _prepared(forward, training or Training(), target or Target())
    if options.training.memory_budget is None:
        return {name: [*first, *_passes(name, options)] for name in _names(forward, options)}
    compiled = _compiled({TRAIN: forward}, options, check=False, observe=None)
    return {name: [*first, *entry.passes] for name, entry in compiled.items()}


def _prepared(
    forward: Graph,
    training: Training,
    target: Target,
    others: Mapping[str, Graph] = MappingProxyType({}),
) -> tuple[list[Pass], Graph, PipelineOptions]:
    """Return the passes common to all entries, their result, and the facts that later passes
    need.
    """
    _check_target(training.storage, target)
    forward, trained, adapters = _adapted(forward, find_scheme(training.scheme, forward))
    first: list[Pass] = [AddAdapters(adapters)] if adapters else []
    written = _written(forward, trained).union(*(_written(graph, {}) for graph in others.values()))
    if training.storage.weights != F32.value:
        store = StoreWeights(training.storage.weights, written)
        forward = clone(forward)
        store.run(forward)
        first.append(store)
    options = PipelineOptions(
        trained,
        written,
        training,
        target,
        rounded=_rounded(forward, training.storage, trained),
        outputs=_step_outputs(forward, training.outputs),
        integers=_integers(forward, training),
    )
    return first, forward, options


def _check_target(storage: Storage, target: Target) -> None:
    """Raise CompileError if updates should write small types and the target cannot."""
    for what, name in (("optimizer states", storage.states), ("trained weights", storage.trained)):
        if name != F32.value and not target.takes("blockwise_update"):
            raise CompileError(
                f"target {target.name} keeps {what} in f32; leave {name} {what.split()[-1]} out, "
                "or compile by the C backend"
            )


def _rounded(forward: Graph, storage: Storage, trained: Iterable[str]) -> Set[str]:
    """Return the names of the trained weights to store as bf16; CompileError if there are none."""
    if storage.trained == F32.value:
        return frozenset()
    if not (names := weights_of(forward, set(trained))):
        raise CompileError(
            f"trained weights cannot be stored as {storage.trained}: no weight "
            f"of a linear layer or embedding with {SMALLEST} elements or more trains"
        )
    return names


def _integers(forward: Graph, training: Training) -> Integers | None:
    quantized = any(param.quantization is not None for param in forward.params.values())
    return training.integers if quantized else None


def _check_states(entries: Mapping[str, Entry], training: Training) -> None:
    """Raise CompileError if small optimizer states are requested and the optimizer has none."""
    small = {DType.BF16, DType.U8}
    params = (param for entry in entries.values() for param in entry.graph.params.values())
    found = any(p.kind is ParamKind.OPTIMIZER and p.value.dtype in small for p in params)
    states = training.storage.states
    if states != F32.value and not found:
        raise CompileError(
            f"optimizer states cannot be stored as {states}: "
            f"{training.optimizer} keeps no state of {SMALLEST} elements or more, one for each "
            "element that trains"
        )


def _check_budget(compiled: Mapping[str, _CompiledEntry], budget: int | None) -> None:
    """Raise BudgetError if an entry exceeds the budget."""
    largest = max((each.entry for each in compiled.values()), key=lambda entry: entry.plan.size)
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


@rare_collections()
def compile_entries(
    name: str, graphs: Mapping[str, Graph], *, target: Target | None = None, check: bool = False
) -> Program:
    """Compile each graph unchanged, with all its outputs, into the entry named by its key.

    No differentiation; a graph's own state updates stay. Params of one name are shared;
    CompileError when graphs disagree about their data. `check` verifies after every pass.
    """
    target = target or Target()
    _check_agreement(graphs)
    written = frozenset[str]().union(*(_written(graph, {}) for graph in graphs.values()))
    options = PipelineOptions({}, written, target=target)
    entries: dict[str, Entry] = {}
    for key, forward in graphs.items():
        verify(forward)
        graph = clone(forward)
        run_passes(forward_pipeline(options), graph, check=check)
        entries[key] = _planned(key, graph, target, written)
    return Program(name, entries, *share_tensors(entries), alignment=target.alignment)


def _planned(name: str, graph: Graph, target: Target, written: Set[str]) -> Entry:
    """Plan the memory of a scheduled graph; its order must have no premature read or write.

    `written` are the params that some entry writes.
    """
    verify_order(graph)
    verify_entry(graph)
    choices = {node: _chosen(node, graph, target, written) for node in graph.nodes}
    scratch = {node: choice.scratch_bytes for node, choice in choices.items()}
    plan = plan_memory(graph, scratch.__getitem__, target.alignment, target.in_place)
    return Entry(name, graph, plan, choices)


def _chosen(node: Node, graph: Graph, target: Target, written: Set[str]) -> Choice:
    """Choose how a node is computed; use a prepared operand if it never changes."""
    choice = target.choose(node)
    other = choice.if_frozen
    if other is None or other.prepared is None:
        return choice
    source = node.operands[other.prepared.operand]
    param = graph.param_of(source)
    frozen = source in graph.constants if param is None else source.name not in written
    return other if frozen else choice


def _check_agreement(graphs: Mapping[str, Graph]) -> None:
    known: dict[str, Contents] = {}
    for key, graph in graphs.items():
        for name, param in graph.params.items():
            first = known.setdefault(name, param.contents)
            if not same_contents(first, param.contents):
                raise CompileError(
                    f"graph {key} has a param {name} that differs from another graph's; rename it"
                )


def _names(forward: Graph, options: PipelineOptions) -> list[str]:
    """Entries of a training program, in order."""
    update = ["update"] if options.training.micro_batches > 1 else []
    predict = ["predict"] if set(forward.outputs) - {LOSS} else []
    return [TRAIN, *update, "evaluate", *predict]


def _passes(entry: str, options: PipelineOptions) -> list[Pass]:
    if entry == TRAIN:
        return training_pipeline(options)
    if entry == "update":
        return update_pipeline(options)
    if entry not in ("evaluate", "predict"):
        return [SetTrainable(frozenset(options.trained)), *forward_pipeline(options)]
    return inference_pipeline(options, loss=entry == "evaluate")


def _prefixed(observe: Observer, entry: str) -> Observer:
    return lambda name, graph: observe(f"{entry}.{name}", graph)


def _written(forward: Graph, trained: Mapping[str, Channels]) -> frozenset[str]:
    """Names of params whose contents change while training."""
    states = {value.name for node in forward.nodes for value in written_values(node)}
    return frozenset(states | set(trained))


def _describe(channels: Channels) -> str:
    if channels is None or isinstance(channels, range):
        return "full" if channels is None else f"[{channels.start}, {channels.stop}]"
    return f"channels {', '.join(map(str, channels))}"

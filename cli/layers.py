"""A compiled step by layer: trained parameters, saved activations, computation.

A layer is the module of params and kernels, by the model's own names.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pockengine.compiler.ir.graph import LOSS, Graph, Param, ParamKind
from pockengine.compiler.memory.lifetime import Buffer, lifetimes
from pockengine.compiler.memory.plan import peak_buffers
from pockengine.compiler.ops import node_cost
from pockengine.compiler.program import Program
from pockengine.compiler.target import Target

OTHERS = "(no layer)"
"""Name for inputs and values without a layer."""


@dataclass
class LayerCost:
    """Bytes and multiply-adds of one layer.

    `kept` are bytes saved for the backward pass, `peak` the bytes alive at the step's peak.
    `trains` lists its trained params, and how; it is empty if none trains.
    """

    name: str
    params: int = 0
    params_bytes: int = 0
    states_bytes: int = 0
    kept_bytes: int = 0
    peak_bytes: int = 0
    forward: int = 0
    step: int = 0
    trains: str = ""


def layers_of(program: Program, target: Target) -> list[LayerCost]:
    """Return the layers of a program's training step, in execution order."""
    layers: dict[str, LayerCost] = {}

    def layer(name: str) -> LayerCost:
        return layers.setdefault(name, LayerCost(name))

    train = program.entries["train"].graph
    _count(program, layer)
    for buffer in _saved_buffers(train, target):
        layer(_maker(buffer)).kept_bytes += buffer.room
    for buffer in peak_buffers(_buffers(train, target)):
        layer(_maker(buffer)).peak_bytes += buffer.room
    weights = [p for p in program.params.values() if p.kind is not ParamKind.OPTIMIZER]
    for param in weights:
        found = layer(_module(param.name, program))
        found.params += param.value.type.size
        found.params_bytes += param.value.type.nbytes
    for param in program.params.values():
        if param.kind is ParamKind.OPTIMIZER:
            owner = _owner(param, weights)
            layer(_module(owner.name, program)).states_bytes += param.value.type.nbytes
    for name, texts in _trained(program).items():
        layer(name).trains = texts
    return list(layers.values())


def _count(program: Program, layer: Callable[[str], LayerCost]) -> None:
    """Add the multiply-adds of the whole step, and of inference as its forward pass."""
    for node in program.entries["train"].graph.nodes:
        layer(node.scope or OTHERS).step += node_cost(node)
    if "predict" in program.entries:
        for node in program.entries["predict"].graph.nodes:
            layer(node.scope or OTHERS).forward += node_cost(node)


def _buffers(train: Graph, target: Target) -> tuple[Buffer, ...]:
    return lifetimes(train, target.scratch_bytes, target.alignment, target.in_place).buffers


def _saved_buffers(train: Graph, target: Target) -> Iterator[Buffer]:
    """Yield buffers made before the loss and read after it."""
    loss = train.outputs[LOSS].node
    if loss is not None:
        place = train.nodes.index(loss)
        yield from (b for b in _buffers(train, target) if b.first <= place < b.last)


def _maker(buffer: Buffer) -> str:
    node = buffer.scratch_of or (buffer.values[0].node if buffer.values else None)
    return (node.scope if node is not None else None) or OTHERS


def _module(name: str, program: Program) -> str:
    """Return the layer of a param; adapter factors belong to their weight's layer."""
    for adapter in program.adapters:
        if name in adapter.params:
            name = adapter.weight
    split = max(name.rfind("."), name.rfind("/"))
    return name[:split] if split > 0 else name


def _owner(state: Param, weights: list[Param]) -> Param:
    """Return the param of an optimizer state: the longest name that the state's name ends with."""
    return max(
        (param for param in weights if state.name.endswith(f".{param.name}")),
        key=lambda param: len(param.name),
    )


def _trained(program: Program) -> dict[str, str]:
    """List by layer which params train; a channel range as first and one past the last."""
    texts: dict[str, list[str]] = {}
    adapters = {adapter.a: adapter for adapter in program.adapters}
    others = {name for adapter in program.adapters for name in adapter.trained[1:]}
    for name, share in program.scheme.items():
        if name not in others:
            module, adapter = _module(name, program), adapters.get(name)
            whole = name if adapter is None else adapter.weight
            how = share if adapter is None else f"{adapter.kind} {adapter.rank}"
            texts.setdefault(module, []).append(f"{whole.removeprefix(module).lstrip('./')} {how}")
    return {module: ", ".join(lines) for module, lines in texts.items()}

"""Memory of a decoder's training, planned by the compiler from shapes only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pockengine.backends.peaks import Peaks
from pockengine.backends.placement import kernel_nodes, lay_out, node_bytes
from pockengine.backends.registry import backend_for
from pockengine.backends.within_budget import within_budget
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.graph import ParamKind
from pockengine.compiler.ops import node_cost
from pockengine.compiler.program import Program
from pockengine.compiler.storage import Storage
from pockengine.devices import Device, find_device
from pockengine.errors import CompileError
from pockengine.finetune.lm.methods import SUPERVISED
from pockengine.finetune.lm.next_token import predict_one_token
from pockengine.options import CompileOptions

ORIN = Peaks(1, 42_500.0, {2**35: 204.8})
"""The GPU of NVIDIA's Jetson AGX Orin 64 GB: its data sheet has 204.8 GB/s, and 85 TFLOP/s of f16
with half of the weights zero, so about 42.5 without."""


@dataclass(frozen=True)
class LmMemory:
    """A training's planned bytes: trained weights, their states, frozen weights, the arena.

    The arena holds activations and gradients. Kernels need nothing else. `orin_ms` is modelled: the
    minimum time of a step by the roofline of `ORIN`, kernel by kernel.
    """

    scheme: str
    frozen_weights: str
    saved_activations: str
    states: str
    trained_weights: str
    trained: int
    trained_bytes: int
    states_bytes: int
    frozen_bytes: int
    arena_bytes: int
    orin_ms: float

    @property
    def total_bytes(self) -> int:
        """Total memory of the training."""
        return self.trained_bytes + self.states_bytes + self.frozen_bytes + self.arena_bytes


@dataclass(frozen=True)
class Unplanned:
    """A training that does not compile, such as one that no recomputation fits into the budget."""

    scheme: str
    frozen_weights: str
    why: str


@dataclass(frozen=True)
class Shape:
    """Rows and tokens per step."""

    batch: int
    length: int


def plans(
    module: Any,
    shape: Shape,
    ways: Sequence[CompileOptions],
    device: Device | str = "host",
) -> Iterator[LmMemory | Unplanned]:
    """Import a decoder once, and plan each training variant for the device's backend."""
    from pockengine.models.causal_lm import shapes_graph  # late: PyTorch takes seconds

    graph = shapes_graph(module, shape.batch, shape.length)
    predict_one_token(graph, shape.batch, shape.length)
    for options in ways:
        options = options.replaced(outputs=SUPERVISED.outputs)
        backend = backend_for(find_device(device), options)
        try:
            program, _ = within_budget(partial(compile_program, graph, options), backend)
            yield _plan(program, str(options.scheme), options.storage)
        except CompileError as error:
            yield Unplanned(str(options.scheme), options.storage.weights, str(error))


def _plan(program: Program, scheme: str, storage: Storage) -> LmMemory:
    layout = lay_out(program)
    states = sum(
        param.value.type.nbytes
        for param in program.params.values()
        if param.kind is ParamKind.OPTIMIZER
    )
    trained = [name for name in program.scheme if name in program.params]
    if not trained:
        raise CompileError(f"scheme {scheme} trains nothing of {program.name}")
    return LmMemory(
        scheme,
        storage.weights,
        storage.activations,
        states=storage.states,
        trained_weights=storage.trained,
        trained=sum(program.params[name].value.type.size for name in trained),
        trained_bytes=layout.params_bytes - states,
        states_bytes=states,
        frozen_bytes=layout.frozen_bytes,
        arena_bytes=program.arena_bytes,
        orin_ms=_least_ms(program, ORIN),
    )


def _least_ms(program: Program, peaks: Peaks) -> float:
    """Milliseconds of a training step if each kernel reaches the roofline."""
    nodes = kernel_nodes(program.entries["train"])
    return sum(peaks.least_ns(node_cost(node), node_bytes(node)) for node in nodes) / 1e6

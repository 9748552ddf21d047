"""The cost of a scheme on a device, from the compiled memory plan, without generating C.

Memory is exact: the arena is planned just as for an artifact. Cycles are modelled: the sum of the
backend's own estimates (cost_kernels.py), which rank schemes; they are not measured times.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from pockengine.backends.placement import kernel_nodes
from pockengine.compiler.autodiff import Channels
from pockengine.compiler.compile import compile_program
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.graph import ParamKind
from pockengine.compiler.ops import node_cost
from pockengine.compiler.optim import Optimizer, Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.sparse import Scheme, preset
from pockengine.compiler.sparse.lora import with_adapters
from pockengine.compiler.sparse.scheme import channel_axis
from pockengine.devices import Device
from pockengine.errors import FinetuneError
from pockengine.finetune.cost_kernels import KernelCosts
from pockengine.finetune.selection import DATA_CRITERIA

INFERENCE = "predict"


@dataclass(frozen=True)
class Cost:
    """Cost of a training step.

    `arena_bytes`: the arena of `train`. `extra_bytes`: its excess over inference's arena with
    everything but the head frozen. `state_bytes`: optimizer states. `trained`: number of trained
    parameter elements, counting trained channels only. `cycles`: modelled, of the busiest thread on
    all cores; `work`: modelled, on one core.
    """

    arena_bytes: int
    extra_bytes: int
    state_bytes: int
    trained: int
    multiply_adds: int
    cycles: float
    work: float

    @property
    def memory_bytes(self) -> int:
        """Memory of training beyond inference: additional arena, and optimizer states."""
        return self.extra_bytes + self.state_bytes

    def milliseconds(self, device: Device) -> float | None:
        """Return the modelled time of a step; None if the device file has no clock."""
        return self.cycles / (1e3 * device.mhz) if device.mhz else None


class CostModel:
    """Costs of schemes of one graph on one device, each compiled once.

    `integers` are the options of an int8 graph.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        optimizer: Optimizer | None = None,
        integers: Integers | None = None,
    ) -> None:
        self.graph, self.device = graph, device
        self.optimizer = optimizer or Sgd()
        self.integers = integers or Integers()
        self.compiled = 0
        self._kernels = KernelCosts(device)
        self._target = self._kernels.target()
        self._costs: dict[Hashable, Cost] = {}
        self.inference_bytes = self._inference_bytes()

    def cost(self, scheme: Scheme) -> Cost:
        """Return a scheme's cost; SchemeError if it does not fit the graph.

        Channels that are chosen by data are replaced by random ones, of the same number and spread.
        """
        scheme = _with_some_channels(scheme)
        graph, trained, adapters = with_adapters(self.graph, scheme)
        key = (adapters, *((name, repr(channels)) for name, channels in trained.items()))
        if key not in self._costs:
            self._costs[key] = self._measure(scheme, _trained(graph, trained))
        return self._costs[key]

    def training(self, scheme: Scheme) -> Training:
        """Return the training options of a scheme."""
        return Training(scheme, self.optimizer, integers=self.integers)

    def _measure(self, scheme: Scheme, trained: int) -> Cost:
        program = self._compile(scheme)
        self.compiled += 1
        entry = program.entries["train"]
        kernels = [self._kernels.of(node) for node in kernel_nodes(entry)]
        return Cost(
            arena_bytes=entry.plan.size,
            extra_bytes=max(0, entry.plan.size - self.inference_bytes),
            state_bytes=_state_bytes(program),
            trained=trained,
            multiply_adds=sum(node_cost(node) for node in entry.graph.nodes),
            cycles=sum(kernel.cycles for kernel in kernels),
            work=sum(kernel.work for kernel in kernels),
        )

    def _inference_bytes(self) -> int:
        program = self._compile(preset("head-only", self.graph))
        if INFERENCE not in program.entries:
            raise FinetuneError(
                f"graph {self.graph.name} has no output but its loss, so there is no inference to "
                "compare training with; give it its logits as an output"
            )
        return program.entries[INFERENCE].plan.size

    def _compile(self, scheme: Scheme) -> Program:
        return compile_program(self.graph, self.training(scheme), target=self._target)


def _with_some_channels(scheme: Scheme) -> Scheme:
    """Replace data-driven channels by random ones, of equal cost: the compiler has no data."""
    rules = tuple(
        (name, replace(choice, by="random") if choice.by in DATA_CRITERIA else choice)
        for name, choice in scheme.rules
    )
    return replace(scheme, rules=rules)


def _trained(graph: Graph, trained: Mapping[str, Channels]) -> int:
    """Count the trained elements."""
    total = 0
    for name, channels in trained.items():
        param = graph.params[name]
        size = param.value.type.size
        if channels is not None:
            count = param.value.shape[channel_axis("search", graph, param)]
            size = size // count * len(channels)
        total += size
    return total


def _state_bytes(program: Program) -> int:
    return sum(
        param.value.type.nbytes
        for param in program.params.values()
        if param.kind is ParamKind.OPTIMIZER
    )

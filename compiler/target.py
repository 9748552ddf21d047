"""The compiler's view of a target: facts and numbers; passes and planner never see generated
text.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from pockengine.compiler.ir.graph import Graph, Node, Space
from pockengine.compiler.ir.types import DType
from pockengine.errors import CompileError


@dataclass(frozen=True)
class FusionRules:
    """Anchors that a backend can fuse: `epilogue` ops, and `prologue` op -> operand positions.

    `update` ops make gradients with which an optimizer's update may be fused. Nodes of `joint` ops
    with the same operands and attributes become one kernel. Kernels of `decoding` ops read a stored
    weight, a matrix, as it is, and decode it themselves.
    """

    epilogue: frozenset[str] = frozenset()
    prologue: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    update: frozenset[str] = frozenset()
    joint: frozenset[str] = frozenset()
    decoding: frozenset[str] = frozenset()


REDUCTION_OPERANDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"), (0,)),
    "moments": (0,),
    "batch_norm_sums": (0, 1),
}
"""Prologue positions of a backend that fuses elementwise producers into reductions."""


@dataclass(frozen=True)
class Prepared:
    """A prepared form of a node's operand, made once, that its kernel reads instead.

    `operand` is the operand's position, `nbytes` the size of the prepared form. Forms of one tensor
    with equal keys are shared.
    """

    operand: int
    nbytes: int
    key: Hashable


@dataclass(frozen=True)
class Choice:
    """How a backend computes a node: parameters from which the kernel is emitted later.

    `label` names the method in tables. `cycles` is the modelled time of the busiest thread.
    `scratch_bytes` is arena memory during the kernel. `spec` is opaque to the compiler. `prepared`
    are prepared operands that the kernel reads, and `if_frozen` is the choice to use if no entry
    writes their sources.
    """

    label: str
    cycles: float = 0.0
    scratch_bytes: int = 0
    spec: object = None
    prepared: Prepared | None = None
    if_frozen: "Choice | None" = None


UNCHOSEN = Choice("any")


def choose_nothing(node: Node) -> Choice:
    """Choose for a target without kernels of its own: no scratch, no cost."""
    return UNCHOSEN


ALIGNMENT = 64
"""Alignment in bytes: a cache line, and the widest vector register, of all supported CPUs."""

OPTIONAL = frozenset(
    {"fuse", "scatter_updates", "recompute_elementwise", "save_masks", "absorb_updates"}
)
"""Names of passes that do not change results, which a target may omit if they do not pay."""


@dataclass(frozen=True)
class MemorySpace:
    """A memory of a target: its size in bytes (None: no limit), and the kinds of params in it.

    The memory of mutable params also has the arena.
    """

    name: str = "memory"
    size: int | None = None
    holds: frozenset[Space] = frozenset(Space)


@dataclass(frozen=True)
class InPlace:
    """Operands that kernels may overwrite with a result, besides those of elementwise kernels.

    `operands` has their positions by op. Kernels around an op of `epilogues` read each element of
    an operand of their epilogue right before they write that element, once.
    """

    operands: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    epilogues: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Target:
    """The capabilities of a backend: fusions, kernel choices, ops, dtypes and memory.

    None for `ops` or `dtypes` means all. Memory offsets are multiples of `alignment` bytes.
    `passes` are the optional passes that pay. One of its `spaces` has the constant params, and one
    (possibly the same) the mutable ones. With `rate_first`, plain steps multiply the loss's
    gradient by the rate once instead of each param's gradient. `attention` is the largest head
    size, in elements, of its fused attention kernels; 0 if it has none. With `triangles_alone`
    these pay only if many scores are hidden: causal attention. `in_place` is what its kernels may
    overwrite.
    """

    fusion: FusionRules = field(default_factory=FusionRules)
    choose: Callable[[Node], Choice] = choose_nothing
    name: str = "any"
    ops: frozenset[str] | None = None
    dtypes: frozenset[DType] | None = None
    alignment: int = ALIGNMENT
    passes: frozenset[str] = OPTIONAL
    spaces: tuple[MemorySpace, ...] = (MemorySpace(),)
    rate_first: bool = False
    attention: int = 0
    triangles_alone: bool = False
    in_place: InPlace = field(default_factory=InPlace)

    def __post_init__(self) -> None:
        unknown = sorted(self.passes - OPTIONAL)
        if unknown or self.alignment < 1:
            wrong = f"passes {unknown}" if unknown else f"an alignment of {self.alignment}"
            raise CompileError(
                f"target {self.name} has {wrong}; optional passes are {sorted(OPTIONAL)}, and an "
                "alignment is at least a byte"
            )
        for kind in Space:
            holding = [space.name for space in self.spaces if kind in space.holds]
            if len(holding) != 1:
                raise CompileError(
                    f"target {self.name} holds {kind.value} params in {holding}; give exactly one "
                    "of its memory spaces to them"
                )

    def __repr__(self) -> str:
        return self.name

    @property
    def constants_apart(self) -> bool:
        """Whether constants lie in a memory of their own, such as a microcontroller's flash."""
        return len(self.spaces) > 1

    def takes(self, op: str) -> bool:
        """Whether it can compute the op; for a fusion, every op of its body."""
        return self.ops is None or op in self.ops or op == "fusion"

    def check(self, graph: Graph) -> None:
        """Raise CompileError for a node whose op or dtype the target lacks."""
        for node in graph.nodes:
            if not self.takes(node.op):
                raise CompileError(
                    f"{node}: target {self.name} has no {node.op}, and nothing legalizes it; it "
                    f"has {', '.join(sorted(self.ops or ()))}"
                )
            for value in (*node.operands, *node.results):
                if self.dtypes is not None and value.dtype not in self.dtypes:
                    known = ", ".join(sorted(dtype.value for dtype in self.dtypes))
                    raise CompileError(
                        f"{node}: target {self.name} has no {value.dtype.value} ({value!r}); it "
                        f"has {known}"
                    )

    def scratch_bytes(self, node: Node) -> int:
        """Return the scratch bytes of the node's kernel."""
        return self.choose(node).scratch_bytes

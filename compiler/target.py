"""What the compiler asks of a target: facts and numbers; no pass or planner sees generated text."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from pockengine.compiler.ir.graph import Graph, Node, Space
from pockengine.compiler.ir.types import DType
from pockengine.errors import CompileError


@dataclass(frozen=True)
class FusionRules:
    """Anchors that a backend can fuse: `epilogue` ops, and `prologue` op -> operand positions.

    `update` ops make gradients that an optimiser's update may follow in the same kernel. Nodes of
    `joint` ops that have the same operands and attributes become one kernel.
    """

    epilogue: frozenset[str] = frozenset()
    prologue: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    update: frozenset[str] = frozenset()
    joint: frozenset[str] = frozenset()


REDUCTION_OPERANDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"), (0,)),
    "moments": (0,),
    "batch_norm_sums": (0, 1),
}
"""The prologue of a backend that reduces what elementwise nodes make."""


@dataclass(frozen=True)
class Prepared:
    """A second form of a node's operand that its kernel reads in its place, made once.

    `operand` is the operand's place, `nbytes` what the form takes beside it. Forms of one tensor
    with equal keys are one.
    """

    operand: int
    nbytes: int
    key: Hashable


@dataclass(frozen=True)
class Choice:
    """How a backend computes a node: numbers, by which its writer emits the kernel later.

    `label` is the method in words, for tables. `cycles` are modelled, of the busiest thread.
    `scratch_bytes` is arena memory for the time of the kernel. `spec` is the backend's own; the
    compiler only keeps it. `prepared` is what the kernel reads that was made before, and
    `if_frozen` how the node is computed where no entry writes what that is made of.
    """

    label: str
    cycles: float = 0.0
    scratch_bytes: int = 0
    spec: object = None
    prepared: Prepared | None = None
    if_frozen: "Choice | None" = None


UNCHOSEN = Choice("any")


def choose_nothing(node: Node) -> Choice:
    """Choose for a target that has no kernels of its own: no scratch, no cost."""
    return UNCHOSEN


ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register, of every CPU that we know."""

OPTIONAL = frozenset(
    {"fuse", "scatter_updates", "recompute_elementwise", "save_masks", "absorb_updates"}
)
"""Passes that change no number, and that a target may leave out because they do not pay on it."""


@dataclass(frozen=True)
class MemorySpace:
    """A memory of a target: its bytes, None for no limit, and the kinds of params that lie in it.

    The one that holds mutable params holds the arena too.
    """

    name: str = "memory"
    size: int | None = None
    holds: frozenset[Space] = frozenset(Space)


@dataclass(frozen=True)
class Target:
    """What a backend can do: fusions, how it computes a node, ops, dtypes and memory.

    `ops` and `dtypes` of None mean all of them. Offsets in its memory are multiples of `alignment`
    bytes. Of the optional passes those in `passes` pay on it. One of its `spaces` holds the
    constant params, and one, or the same, the mutable ones. With `rate_first` plain steps pay when
    the rate multiplies the loss's gradient once, not that of each param. `attention` is the longest
    head, in numbers, of which its kernels compute attention as one op: 0 where it has none. With
    `triangles_alone` they pay only where many scores are of what is not seen: causal attention. Of
    each op in `overwrites` its kernel may write the result over one of these operands, by their
    places.
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
    overwrites: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

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
        """Whether constants lie in a memory of their own, as a microcontroller's flash is."""
        return len(self.spaces) > 1

    def takes(self, op: str) -> bool:
        """Whether it can compute the op; a fusion is as good as what is in it."""
        return self.ops is None or op in self.ops or op == "fusion"

    def check(self, graph: Graph) -> None:
        """Raise CompileError for a node whose op or dtype the target lacks."""
        for node in graph.nodes:
            if not self.takes(node.op):
                raise CompileError(
                    f"{node}: target {self.name} has no {node.op}, and nothing legalises it; it "
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
        """Return the arena bytes that the node's kernel needs while it runs."""
        return self.choose(node).scratch_bytes

"""How to train: what a user says of a compilation, made once and passed whole to the passes."""

from dataclasses import dataclass, field
from pathlib import Path

from pockengine.compiler.integers import Integers
from pockengine.compiler.optim import Optimizer, Sgd
from pockengine.compiler.passes.differentiate import Clip
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.compiler.storage import EXACT, Storage
from pockengine.errors import CompileError


@dataclass(frozen=True)
class Training:
    """How to train: which parameters, by which optimiser, with which limits on gradients.

    With several `micro_batches` the entry `train` only accumulates gradients, and the entry
    `update`, called after that many of them, applies their mean. A `memory_budget` in bytes bounds
    the arena of all entries: the compiler recomputes activations until it fits, or refuses.
    `storage` says in how many bits frozen weights, saved activations and optimiser states are kept.
    `integers` is for a graph some of whose params are held as such.
    """

    scheme: Scheme | str | Path = "full"
    optimizer: Optimizer = field(default_factory=Sgd)
    clip: Clip = field(default_factory=Clip)
    micro_batches: int = 1
    memory_budget: int | None = None
    storage: Storage = EXACT
    integers: Integers = field(default_factory=Integers)

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise CompileError(f"micro_batches must be at least 1, not {self.micro_batches}")
        if self.clip.micro_norm is not None and self.micro_batches == 1:
            raise CompileError(
                f"{self.clip} limits the gradients of micro-batches, and there is one: give "
                "micro_batches=, or a limit by norm="
            )

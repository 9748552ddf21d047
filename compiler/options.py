"""Training options, built once and passed whole to the passes."""

import math
from dataclasses import dataclass
from pathlib import Path

from pockengine.compiler.integers import Integers
from pockengine.compiler.optim import NAMED, Optimizer, Sgd
from pockengine.compiler.option import option
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.compiler.passes.forward.add_noise import EmbeddingNoise
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.compiler.storage import EXACT, Storage
from pockengine.errors import CompileError
from pockengine.extras import need

OPTIMIZERS = f"{', '.join(NAMED)}; sgd:momentum=0.9, adamw:betas=0.9/0.98,weight_decay=0.1."


@dataclass(frozen=True)
class Training:
    """How to train: the parameters, the optimizer, and limits on gradients.

    With several `micro_batches` the entry `train` only accumulates gradients, and the entry
    `update`, called after that many micro-batches, applies their mean. A `memory_budget` in bytes
    bounds the arena of all entries: the compiler recomputes activations until it fits, or raises
    BudgetError. With `solver_seconds` it may solve for as long to recompute less; MissingPackage
    without the extra `solver`. `storage` sets the number formats of frozen weights, saved
    activations and optimizer states. `outputs` are returned by a step besides the loss; by default
    all but large ones. `integers` is for a graph with params stored as integers. `noise` is added
    to embeddings by the training step only.
    """

    scheme: Scheme | str | Path = option("full", "A preset, or a TOML file.")
    optimizer: Optimizer = option(Sgd, OPTIMIZERS)
    clip: Clip = option(Clip, "Maximum norm of the gradients; 0: none.")
    micro_batches: int = option(1, "Number of batches per update.", flag="--accumulate")
    memory_budget: int | None = option(None, "Limit of the arena: 400KB; recompute to fit.")
    solver_seconds: float = option(
        0.0, "Time to solve for the least recomputation within the budget; 0: greedy."
    )
    storage: Storage = option(EXACT)
    outputs: tuple[str, ...] | None = option(
        None, "Output of a step; '': only the loss. Default: all up to 4 MiB.", flag="--output"
    )
    integers: Integers = option(Integers)
    noise: EmbeddingNoise | None = option(None)

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise CompileError(f"micro_batches must be at least 1, not {self.micro_batches}")
        if not 0 <= self.solver_seconds < math.inf:
            raise CompileError(
                f"solver_seconds must be a number of at least 0, not {self.solver_seconds}"
            )
        if self.solver_seconds:
            need("solver_seconds", "solver")
        if self.clip.micro_norm is not None and self.micro_batches == 1:
            raise CompileError(
                f"{self.clip} limits the gradients of micro-batches, and there is one: give "
                "micro_batches=, or a limit by norm="
            )

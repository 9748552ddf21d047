"""Parameter groups: other optimizer settings by name, such as weight decay groups."""

import fnmatch
import math
from dataclasses import dataclass, replace

from pockengine.compiler.optim.base import Optimizer, Update
from pockengine.errors import CompileError


@dataclass(frozen=True)
class Groups:
    """`rules` are (name pattern, optimizer) pairs; the last match wins, else `default`.

    For example no decay on biases: Groups(AdamW(), (("*.bias", AdamW(weight_decay=0)),)).
    """

    default: Optimizer
    rules: tuple[tuple[str, Optimizer], ...] = ()

    def update(self, update: Update) -> None:
        """Append the update of the group that the parameter belongs to."""
        name = update.param.name
        matches = [chosen for pattern, chosen in self.rules if fnmatch.fnmatchcase(name, pattern)]
        (matches[-1] if matches else self.default).update(update)


@dataclass(frozen=True)
class Scaled:
    """An optimizer with its learning rate multiplied by `rate`."""

    optimizer: Optimizer
    rate: float

    def update(self, update: Update) -> None:
        """Append the optimizer's update."""
        self.optimizer.update(replace(update, rate=update.rate * self.rate))


@dataclass(frozen=True)
class LoraPlus:
    """LoRA+ (arXiv 2402.12354): factors B learn at `ratio` times the rate of factors A.

    Vectors learn at the rate of B too, as in PEFT's create_loraplus_optimizer.
    """

    optimizer: Optimizer
    ratio: float = 16.0

    def __post_init__(self) -> None:
        if not 0 < self.ratio < math.inf:
            raise CompileError(f"the ratio of LoRA+ is {self.ratio:g}; give a number above 0")

    def update(self, update: Update) -> None:
        """Append the optimizer's update."""
        fast = update.param.name.endswith(".lora_B") or len(update.param.value.shape) == 1
        (Scaled(self.optimizer, self.ratio) if fast else self.optimizer).update(update)


@dataclass(frozen=True)
class Maximize:
    """An optimizer that maximizes the loss: PyTorch's `maximize=True`."""

    optimizer: Optimizer

    def update(self, update: Update) -> None:
        """Append the optimizer's update by the negated gradient."""
        self.optimizer.update(replace(update, grad=update.g.neg(update.grad)))

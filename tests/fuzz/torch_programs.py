"""Programs in PyTorch: run a statement, compute gradients, join many programs in a module.

bazel run //tests/fuzz:torch_programs -- --programs 100000 --seed 0
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.fuzz.compare import Imported
from pockengine.tests.fuzz.program import LARGEST, Leaf, Program
from pockengine.tests.fuzz.programs import command
from pockengine.tests.fuzz.statements import statements

NAMESPACE = {"torch": torch, "F": nn.functional}
KINDS = {torch.float32: "f", torch.float64: "f", torch.int64: "i", torch.bool: "b"}


class TorchLanguage:
    """PyTorch: statements run eagerly."""

    heading = "import numpy as np\nimport torch\nfrom torch.nn import functional as F"
    templates = statements("torch")
    sums = ("{}.sum()", "({0} * {0}).mean()", "{}.mean()")

    def start(self, leaves: Mapping[str, Leaf]) -> dict[str, Any]:
        """Return tensors; trained ones require gradients."""
        return _tensors(leaves, torch.float32)

    def step(self, statement: str, values: dict[str, Any]) -> dict[str, Any]:
        """Run a statement."""
        after = dict(values)
        exec(statement, dict(NAMESPACE), after)
        return {name: x for name, x in after.items() if isinstance(x, torch.Tensor)}

    def kind(self, value: Any) -> str:
        """Return the kind of a tensor."""
        return KINDS.get(value.dtype, "")

    def finite(self, value: Any) -> bool:
        """Return whether all numbers are small and the tensor is not too large."""
        if value.dtype not in KINDS or not 0 < value.numel() <= 200:
            return False
        return value.dtype is torch.bool or bool((value.detach().abs() < LARGEST).all())

    def references(
        self, programs: Sequence[Program], *, double: bool = False
    ) -> list[list[np.ndarray] | None]:
        """Return each program's loss and gradients, or None if PyTorch does not run it."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64 if double else torch.float32)
        try:
            return [_reference(program, double) for program in programs]
        finally:
            torch.set_default_dtype(before)

    def graph(self, programs: Sequence[Program]) -> Imported:
        """Import one module of all programs."""
        inputs = {
            f"p{place}_{name}": leaf.data
            for place, program in enumerate(programs)
            for name, leaf in program.leaves.items()
            if not leaf.trained
        }
        examples = {name: torch.from_numpy(data.copy()) for name, data in inputs.items()}
        names = [
            {name: f"p{place}.{name}" for name in program.trained}
            for place, program in enumerate(programs)
        ]
        outputs = [f"p{place}" for place in range(len(programs))]
        batch = Batch(programs)
        try:
            graph = from_torch(batch, examples)
        except ImportModelError as error:
            if not batch.tracing or len(programs) == 1:
                raise
            words = " ".join(str(error).split())
            place = min(batch.tracing)
            raise ImportModelError(f"{error}\n  1 x a trace in p{place}: {words}") from error
        return Imported(graph, inputs, outputs, names)


def _reference(program: Program, double: bool) -> list[np.ndarray] | None:
    source = program.source()
    if double:
        source = source.replace("float32", "float64").replace(".float()", ".double()")
    values = _tensors(program.leaves, torch.get_default_dtype())
    expected = [values[name] for name in program.trained]
    try:
        loss = program.function(NAMESPACE, source)(*values.values())
        grads = torch.autograd.grad(loss, expected)
    except Exception:  # mostly an in-place write that autograd refuses
        return None
    return [tensor.detach().numpy().copy() for tensor in (loss, *grads)]


class One(nn.Module):
    """A program as a module, whose parameters are its trained leaves."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program, self.function = program, program.function(NAMESPACE)
        for name in program.trained:
            data = torch.from_numpy(program.leaves[name].data.copy())
            self.register_parameter(name, nn.Parameter(data))

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        names = self.program.leaves
        return self.function(*(inputs[n] if n in inputs else getattr(self, n) for n in names))


class Batch(nn.Module):
    """Many programs side by side; it returns each result, and their sum as the loss.

    `tracing` is a set with the program being traced, because torch.export would restore a plain
    attribute.
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        super().__init__()
        self.tracing: set[int] = set()
        for place, program in enumerate(programs):
            self.add_module(f"p{place}", One(program))

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = {}
        for number, (place, one) in enumerate(self.named_children()):
            self.tracing.clear()
            self.tracing.add(number)
            own = {k.split("_")[1]: v for k, v in inputs.items() if k.split("_")[0] == place}
            outputs[place] = one(own)
        self.tracing.clear()
        return {**outputs, "loss": torch.stack(list(outputs.values())).sum()}


def _tensors(leaves: Mapping[str, Leaf], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    found = {}
    for name, leaf in leaves.items():
        tensor = torch.from_numpy(leaf.data.copy())
        if tensor.is_floating_point():
            tensor = tensor.to(dtype)
        found[name] = tensor.requires_grad_(leaf.trained)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    command(TorchLanguage())()

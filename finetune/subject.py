"""What is tuned: a forward graph with its pretrained weights, and where its logits come out.

On disk a subject is the graph's text form beside its weights, so that workers read it without
unpickling anything.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.errors import FinetuneError
from pockengine.finetune.task import TARGET

LOSS = "loss"
_GRAPH, _WEIGHTS, _NAMES = "graph.ir", "weights.safetensors", "subject.json"


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to tune. The graph has a fixed batch, the outputs `loss` and `logits` [N, classes],
    and reads `target` i64 [N] beside its inputs; its norms are as in evaluation.
    """

    name: str
    graph: Graph
    logits: str

    def __post_init__(self) -> None:
        missing = {LOSS, self.logits} - set(self.graph.outputs)
        if missing:
            known = ", ".join(self.graph.outputs)
            raise FinetuneError(
                f"{self.name} has no output {', '.join(sorted(missing))}; it has {known}"
            )
        self.graph.input(TARGET)

    @property
    def batch(self) -> int:
        """Examples in a step."""
        return self.graph.input(TARGET).shape[0]

    @property
    def classes(self) -> int:
        """How many labels the logits tell apart."""
        return self.graph.outputs[self.logits].shape[-1]

    def digest(self) -> str:
        """Return the SHA-256 of the graph and its weights; the name does not count."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        whole = hashlib.sha256(f"{self.logits}\n{print_graph(self.graph)}".encode())
        for param in self.graph.params.values():
            whole.update(np.ascontiguousarray(param.data).data)
        return whole.hexdigest()

    def save(self, folder: Path) -> None:
        """Write the subject into an empty folder."""
        arrays = {
            name: np.ascontiguousarray(param.data).reshape(param.value.shape)
            for name, param in self.graph.params.items()
        }
        (folder / _GRAPH).write_text(print_graph(self.graph), encoding="utf-8")
        save_file(arrays, folder / _WEIGHTS)
        names = {"name": self.name, "logits": self.logits}
        (folder / _NAMES).write_text(json.dumps(names), encoding="utf-8")


def load_subject(folder: Path) -> Subject:
    """Read what `save` wrote."""
    names = json.loads((folder / _NAMES).read_text(encoding="utf-8"))
    text = (folder / _GRAPH).read_text(encoding="utf-8")
    return Subject(names["name"], parse_graph(text, load_file(folder / _WEIGHTS)), names["logits"])

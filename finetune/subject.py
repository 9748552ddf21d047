"""The model to tune: a forward graph with pretrained weights and a logits output.

On disk a subject is the graph's text form and its weights, so workers read it without unpickling.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from pockengine.compiler.integers import Integers
from pockengine.compiler.ir.graph import LOSS, Graph
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.quantize.int8 import Int8
from pockengine.errors import FinetuneError
from pockengine.finetune.judges import ACCURACY, judge_named
from pockengine.finetune.task import TARGET

_GRAPH, _WEIGHTS, _NAMES = "graph.ir", "weights.safetensors", "subject.json"
_WORDS = ("name", "logits", "target", "judge")
"""The text fields of a subject."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to tune: a graph of a fixed batch, with norms in evaluation mode.

    The graph has the outputs `loss` and `logits` [N, classes], and reads labels i64 [N] by the name
    `target` beside its inputs. For int8 params, `integers` sets how they train. `judge` names the
    metric of a trial's score (judges.py); if it is the loss, logits are [N, L, classes] and labels
    [N, L].
    """

    name: str
    graph: Graph
    logits: str
    integers: Integers = field(default_factory=Integers)
    target: str = TARGET
    judge: str = ACCURACY.name

    def __post_init__(self) -> None:
        missing = {LOSS, self.logits} - set(self.graph.outputs)
        if missing:
            known = ", ".join(self.graph.outputs)
            raise FinetuneError(
                f"{self.name} has no output {', '.join(sorted(missing))}; it has {known}"
            )
        judge_named(self.judge)
        self.graph.input(self.target)

    @property
    def batch(self) -> int:
        """Examples per step."""
        return self.graph.input(self.target).shape[0]

    @property
    def classes(self) -> int:
        """Number of classes of the logits."""
        return self.graph.outputs[self.logits].shape[-1]

    @property
    def quantize(self) -> Int8 | None:
        """The `quantize` argument of `compile`: None for a model in f32."""
        quantized = any(param.quantization for param in self.graph.params.values())
        return Int8(**asdict(self.integers)) if quantized else None

    def digest(self) -> str:
        """Return the SHA-256 of the graph, its weights, and its int8 training options, if any.

        The name is not included.
        """
        return self._digest

    @cached_property
    def _digest(self) -> str:
        whole = hashlib.sha256(f"{self.logits}\n{print_graph(self.graph)}".encode())
        for param in self.graph.params.values():
            whole.update(np.ascontiguousarray(param.data).data)
        if self.quantize is not None:
            whole.update(repr(self.integers).encode())
        if self.judge != ACCURACY.name:
            whole.update(f"{self.judge} {self.target}".encode())
        return whole.hexdigest()

    def save(self, folder: Path) -> None:
        """Write the subject into an empty folder."""
        arrays = {
            name: np.ascontiguousarray(param.data).reshape(param.value.shape)
            for name, param in self.graph.params.items()
        }
        (folder / _GRAPH).write_text(print_graph(self.graph), encoding="utf-8")
        save_file(arrays, folder / _WEIGHTS)
        names = {name: getattr(self, name) for name in _WORDS}
        names["integers"] = asdict(self.integers)
        (folder / _NAMES).write_text(json.dumps(names), encoding="utf-8")


def load_subject(folder: Path) -> Subject:
    """Read a folder written by `save`."""
    names = json.loads((folder / _NAMES).read_text(encoding="utf-8"))
    text = (folder / _GRAPH).read_text(encoding="utf-8")
    graph = parse_graph(text, load_file(folder / _WEIGHTS))
    words = {name: names[name] for name in _WORDS}
    return Subject(graph=graph, integers=Integers(**names["integers"]), **words)

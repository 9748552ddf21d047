"""Import the runtime when a session opens, with clear errors if it is missing or too old."""

import importlib
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.errors import MissingPackage, RuntimeFailure
from pockengine.extras import need, pip_command

EXTRA = "litert"
RUNTIMES = (
    ("ai_edge_litert", "interpreter", (1, 0)),
    ("tflite_runtime", "interpreter", (2, 14)),
    ("tensorflow", "lite", (2, 14)),
)
"""Packages with the interpreter: the part that has it, and first release with all operators that we
emit."""


def import_runtime() -> tuple[str, Any]:
    """Return a runtime's name with its version, and its Interpreter; MissingPackage if there is
    none.
    """
    known = next((row for row in RUNTIMES if find_spec(row[0]) is not None), None)
    if known is None:
        need("a session of the backend tflite", EXTRA)
    package, part, oldest = known or RUNTIMES[0]
    module = importlib.import_module(package)
    version = module.__version__
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < oldest:
        required = ".".join(map(str, oldest))
        raise MissingPackage(
            f"a session of the backend tflite needs {package} {required} or newer, not {version}: "
            f"{pip_command(EXTRA)} --upgrade"
        )
    # A part of TensorFlow's API is an attribute: the module of its name has no interpreter.
    found = getattr(module, part, None) or importlib.import_module(f"{package}.{part}")
    return f"{package} {version}", found.Interpreter


Nodes = Mapping[str, Sequence[tuple[str, str]]]
"""For each subgraph its operators, with the IR node of each."""


class LiteModel:
    """A file loaded by the runtime; RuntimeFailure with its message if it refuses the file.

    If the message has an operator's number, or an unsupported operator's name, our node and the
    user's layer are added.
    """

    def __init__(self, model: Path | bytes, nodes: Nodes, threads: int) -> None:
        self._runtime, interpreter = import_runtime()
        self._nodes = nodes
        named = {"model_path": str(model)} if isinstance(model, Path) else {"model_content": model}
        try:
            self._interpreter = interpreter(**named, num_threads=threads)
        except (ValueError, RuntimeError) as error:
            raise self._failure("refuses", "", error) from error
        self._runners: dict[str, Any] = {}

    def run(
        self, signature: str, subgraph: str, inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Run a signature; RuntimeFailure with the runtime's message."""
        try:
            if signature not in self._runners:
                self._runners[signature] = self._interpreter.get_signature_runner(signature)
            outputs: dict[str, np.ndarray] = self._runners[signature](**inputs)
        except (ValueError, RuntimeError) as error:
            raise self._failure("failed to run", subgraph, error) from error
        return outputs

    def _failure(self, verb: str, subgraph: str, error: Exception) -> RuntimeFailure:
        words = " ".join(re.sub(r"\S+\.(?:cc|h):\d+ ", "", str(error)).split())
        node = self._blamed(subgraph, words)
        return RuntimeFailure(
            f"{self._runtime} {verb} model.tflite"
            f"{f', entry {subgraph}' if subgraph else ''}{f', at {node}' if node else ''}: {words}"
        )

    def _blamed(self, subgraph: str, words: str) -> str | None:
        """Our node that the runtime's message refers to."""
        number = re.search(r"Node number (\d+) ", words)
        if number and int(number[1]) < len(self._nodes.get(subgraph, ())):
            return self._nodes[subgraph][int(number[1])][1]
        op = re.search(r"builtin opcode '(\w+)'", words)
        rows = (row for rows in self._nodes.values() for row in rows)
        return next((label for name, label in rows if op and name == op[1]), None)

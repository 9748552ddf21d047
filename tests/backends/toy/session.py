"""Sessions of the toy backend: a byte array for each memory."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from pockengine.backends.artifact import Artifact
from pockengine.backends.checkpoint import read_checkpoint
from pockengine.backends.placement import ARENA, FROZEN, PARAMS
from pockengine.backends.rate_schedule import RateSchedule
from pockengine.backends.session import Course, Progress, Session
from pockengine.compiler.ir import Graph, TensorType, Value
from pockengine.compiler.ir.text import parse_graph
from pockengine.compiler.ops.registry import lookup, written_operands
from pockengine.errors import TrainingDiverged
from pockengine.files import write_whole

RUBBISH = 0xFF
"""A byte that makes every float NaN: unwritten memory must not be read."""


class ToySession(Session):
    """An artifact's graphs, evaluated node by node on the planned memory."""

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        super().__init__(artifact, threads)
        code = artifact.folder / "code"
        plan = json.loads((code / "plan.json").read_text(encoding="utf-8"))
        self._places, self._plans = plan["params"], plan["entries"]
        self._graphs = {
            name: parse_graph((code / f"{number}.ir").read_text(encoding="utf-8"))
            for number, name in enumerate(artifact.entries)
        }
        sizes = {
            ARENA: artifact.arena_bytes,
            PARAMS: artifact.params_bytes,
            FROZEN: artifact.frozen_bytes,
        }
        self._memory = {name: np.full(size, RUBBISH, np.uint8) for name, size in sizes.items()}
        for name, data in load_file(artifact.weights).items():
            self._write_param(name, data)

    def close(self) -> None:
        """Free the memory."""
        self._memory.clear()

    def _run_entry(
        self, entry: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        graph, plan = self._graphs[entry], self._plans[entry]
        for value, data in zip(graph.inputs, inputs, strict=True):
            self._place(value, graph, plan)[...] = data
        for node, scratch in zip(graph.nodes, plan["scratch"], strict=True):
            if scratch is not None:
                self._memory[ARENA][scratch[0] : scratch[0] + scratch[1]] = RUBBISH
            operands = tuple(self._place(value, graph, plan) for value in node.operands)
            results = [np.array(a) for a in lookup(node.op).eval(operands, node.attrs)]
            written = (node.operands[index] for index in written_operands(node))
            for value, data in zip((*node.results, *written), results, strict=True):
                self._place(value, graph, plan)[...] = data
        for value, data in zip(graph.outputs.values(), outputs, strict=True):
            data[...] = self._place(value, graph, plan)

    def _place(self, value: Value, graph: Graph, plan: dict[str, Any]) -> np.ndarray:
        """Return a value's memory as an array; for a scalar constant a copy."""
        name = plan["aliases"].get(value.name, value.name)
        if name in plan["values"]:
            return self._view(ARENA, plan["values"][name], value.type)
        if name in self._places:
            return self._param(name).reshape(value.shape)
        return graph.constants[value].copy()

    def _param(self, name: str) -> np.ndarray:
        memory, offset = self._places[name]
        return self._view(memory, offset, self.artifact.params[name].type)

    def _read_param(self, name: str, data: np.ndarray) -> None:
        data[...] = self._param(name)

    def _write_param(self, name: str, data: np.ndarray) -> None:
        self._param(name)[...] = data

    def _load_file(self, path: Path | str) -> Progress:
        for name, data in read_checkpoint(self.artifact, Path(path)).items():
            self._write_param(name, data)
        with safe_open(path, "np") as file:
            known = json.loads((file.metadata() or {}).get("toy_progress", "{}"))
        course = known.pop("course", None)
        if course is not None:
            course = Course(RateSchedule(**course.pop("schedule")), **course)
        return Progress(**known, course=course)

    def _save_file(self, path: Path | str, progress: Progress, whole: bool) -> None:
        params = {name: np.array(data, order="C") for name, data in self.params().items()}
        if not all(np.isfinite(data).all() for data in params.values()):
            raise TrainingDiverged(f"{path} is not written: a param is not finite; lower the rate")
        metadata = {"toy_progress": json.dumps(asdict(progress))}
        write_whole(Path(path), lambda part: save_file(params, part, metadata))

    def _view(self, memory: str, offset: int, type_: TensorType) -> np.ndarray:
        data = self._memory[memory][offset : offset + type_.nbytes]
        return data.view(type_.dtype.numpy).reshape(type_.shape)

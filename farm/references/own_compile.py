"""Pass a graph to a worker to compile: only the worker may have the runtime's packages.

A request is a folder: `request.json`, and the forward graph as text beside its params.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from pockengine.backends.artifact import write_artifact
from pockengine.backends.registry import backend_for
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.devices import find_device
from pockengine.errors import FarmError

GRAPH, PARAMS, REQUEST = "graph.ir", "params.safetensors", "request.json"


@dataclass(frozen=True)
class Request:
    """A compile request: backend, device, scheme, and output folder.

    The optimizer is SGD.
    """

    backend: str
    device: str
    scheme: str
    momentum: float
    weight_decay: float
    artifact: str


def write_request(folder: Path, graph: Graph, request: Request) -> None:
    """Write a request into a new folder."""
    folder.mkdir(parents=True)
    params = {name: np.ascontiguousarray(param.data) for name, param in graph.params.items()}
    (folder / GRAPH).write_text(print_graph(graph), encoding="utf-8")
    save_file(params, folder / PARAMS)
    (folder / REQUEST).write_text(json.dumps(asdict(request)), encoding="utf-8")


def compile_request(folder: Path) -> None:
    """Execute a request; FarmError if it cannot be read."""
    try:
        request = Request(**json.loads((folder / REQUEST).read_text(encoding="utf-8")))
        text = (folder / GRAPH).read_text(encoding="utf-8")
        graph = parse_graph(text, load_file(folder / PARAMS))
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise FarmError(f"the request in {folder} cannot be read: {error!r}") from error
    backend = backend_for(find_device(request.device).on(request.backend))
    optimizer = Sgd(momentum=request.momentum, weight_decay=request.weight_decay)
    training = Training(request.scheme, optimizer)
    program = compile_program(graph, training, target=backend.target())
    write_artifact(program, backend, Path(request.artifact))

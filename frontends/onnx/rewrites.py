"""Detect exporters' changes to weights that make them train unlike the exported model.

An exporter for inference may store equal weights once, and fold batch norms into convolutions. The
file computes the same either way, and does not record it; its traces are reported.
"""

import re
import warnings
from collections.abc import Sequence

from onnx import ModelProto

from pockengine.compiler.ir import Graph
from pockengine.frontends.onnx.control import nested
from pockengine.frontends.onnx.inline import flat_nodes
from pockengine.frontends.onnx.roles import GENERATED
from pockengine.frontends.onnx.untie import last_scope
from pockengine.frontends.onnx.weights import place_of
from pockengine.frontends.problems import listed

FOLDED = re.compile(r"onnx::Conv_\d+")
"""Names that PyTorch's older exporter gives to weights folded from a convolution and a batch
norm.
"""
CLASSES = "pkg.torch.onnx.class_hierarchy"
"""Where its newer one writes the class of the module that an operator came from."""
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
"""Key of its list of the module's parameters."""
TARGET = re.compile(r"^\S+: PARAMETER target='([^']*)'", re.MULTILINE)
ADVICE = (
    "export for training (torch.onnx.export: optimize=False, or where dynamo=False "
    "training=TrainingMode.TRAINING and do_constant_folding=False)"
)


def warn_of_rewrites(graph: Graph, model: ModelProto) -> None:
    """Warn about merged weights, and about batch norms and repeats folded into others."""
    trained = [name for name, param in graph.params.items() if param.trainable]
    stated = parameters_of(model)
    for text in (
        _lost(stated, trained) if stated else _shared(trained, model),
        _folded_norms(trained, model),
        _repeated(graph, trained),
    ):
        if text:
            warnings.warn(f"{text}, {ADVICE}", stacklevel=4)


def parameters_of(model: ModelProto) -> list[str]:
    """Return the module's parameters listed by PyTorch's newer exporter."""
    entries = [e.value for e in model.graph.metadata_props if e.key == SIGNATURE]
    return TARGET.findall(entries[0]) if entries else []


def _lost(stated: Sequence[str], trained: Sequence[str]) -> str:
    """Name the parameters that did not become separate weights under any name."""
    lost = [name for name in stated if name not in trained]
    made = [name for name in trained if name not in stated]
    if len(made) >= len(lost):
        return ""
    instead = f" into {listed(made)}" if made else ""
    return (
        f"the exporter merged or folded parameters of the module ({listed(lost)}){instead}, so "
        "they do not train as the module's do; to keep them"
    )


def _shared(trained: Sequence[str], model: ModelProto) -> str:
    readers = _readers(model)
    shared = [
        f"{name} ({', '.join(readers[name])})" for name in trained if len(readers.get(name, ())) > 1
    ]
    if not shared:
        return ""
    return (
        "each of these weights trains as one, though several operators read it: "
        f"{listed(shared)}; where the exporter merged weights of equal values"
    )


def _folded_norms(trained: Sequence[str], model: ModelProto) -> str:
    taken_in = _with_norms(model)
    folded = [name for name in trained if FOLDED.fullmatch(name) or name in taken_in]
    if not folded:
        return ""
    return (
        "batch norms were folded into convolutions when the model was exported "
        f"({listed(folded)}), so they cannot train or follow the data; to have them"
    )


def _repeated(graph: Graph, trained: Sequence[str]) -> str:
    """Name weights that the exporter repeated for each row of the batch."""
    rows = {name: graph.params[name].data for name in trained if name.startswith(GENERATED)}
    batches = {value.shape[0] for value in graph.inputs if value.shape}
    repeated = [
        name
        for name, data in rows.items()
        if data.ndim > 2 and data.shape[0] > 1 and data.shape[0] in batches
        if (data == data[:1]).all()
    ]
    if not repeated:
        return ""
    return (
        f"{listed(repeated)} repeat one row for each row of the batch: the exporter folded an "
        "expanded parameter, whose rows train apart; to keep it"
    )


def _readers(model: ModelProto) -> dict[str, list[str]]:
    """Return the operators that read each name, also through Identity, in order."""
    same: dict[str, str] = {}
    readers: dict[str, list[str]] = {}
    for node in nested(flat_nodes(model)):
        if node.op_type == "Identity" and node.input and node.output:
            same[node.output[0]] = same.get(node.input[0], node.input[0])
            continue
        for name in node.input:
            readers.setdefault(same.get(name, name), []).append(place_of(node))
    return readers


def _with_norms(model: ModelProto) -> set[str]:
    """Return the weights of operators that are no batch norms, but came from one."""
    return {
        name
        for node in flat_nodes(model)
        if node.op_type in ("Conv", "ConvTranspose", "Gemm")
        and ".batchnorm." in last_scope(node, CLASSES)
        for name in node.input[1:2]
    }

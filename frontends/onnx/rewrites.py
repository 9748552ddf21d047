"""What exporters do to weights that makes them train unlike the model that was exported.

An exporter for inference may store equal weights once, and fold batch norms into convolutions. The
file computes the same either way, and does not say that it was done; the traces of it are told.
"""

import re
import warnings

from onnx import ModelProto

from pockengine.compiler.ir import Graph
from pockengine.frontends.onnx.control import nested
from pockengine.frontends.onnx.inline import flat_nodes
from pockengine.frontends.onnx.untie import last_scope
from pockengine.frontends.onnx.weights import place_of

FOLDED = re.compile(r"onnx::Conv_\d+")
"""How PyTorch's older exporter names what it made of a convolution's weights and a batch norm's."""
CLASSES = "pkg.torch.onnx.class_hierarchy"
"""Where its newer one writes the class of the module that an operator came from."""
MOST_NAMED = 5
ADVICE = (
    "export for training (torch.onnx.export: optimize=False, or where dynamo=False "
    "training=TrainingMode.TRAINING and do_constant_folding=False)"
)


def warn_of_rewrites(graph: Graph, model: ModelProto) -> None:
    """Warn of trainable weights that several operators share, and of folded batch norms."""
    trained = [name for name, param in graph.params.items() if param.trainable]
    readers = _readers(model)
    shared = [
        f"{name} ({', '.join(readers[name])})" for name in trained if len(readers.get(name, ())) > 1
    ]
    if shared:
        warnings.warn(
            "each of these weights trains as one, though several operators read it: "
            f"{_list(shared)}; where the exporter merged weights of equal values, {ADVICE}",
            stacklevel=3,
        )
    taken_in = _with_norms(model)
    folded = [name for name in trained if FOLDED.fullmatch(name) or name in taken_in]
    if folded:
        warnings.warn(
            f"batch norms were folded into convolutions when the model was exported "
            f"({_list(folded)}), so they cannot train or follow the data; to have them, {ADVICE}",
            stacklevel=3,
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


def _list(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

"""ONNX models: the public face of the ONNX frontend.

`from_onnx` converts a file or a model in memory, of opset 7 or newer, to a forward `Graph`;
`to_initializers` takes tuned weights back. onnx is imported when they are called.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pockengine.compiler.ir import F32, Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.idioms import recognize
from pockengine.frontends.losses import LOSSES, add_loss, is_loss, with_loss_named
from pockengine.frontends.model_files import Declared

if TYPE_CHECKING:
    import onnx

    from pockengine.frontends.layout import Tensor
    from pockengine.frontends.onnx.graph import Choices

OLDEST_OPSET = 7
"""The first opset with today's broadcasting. Later changes are visible in attributes and inputs."""


def from_onnx(
    model: "str | Path | onnx.ModelProto",
    *,
    training: bool = False,
    loss: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    trainable: Mapping[str, bool] | None = None,
    integers: bool = False,
) -> Graph:
    """Import an ONNX model as a forward graph with the model's names of inputs and outputs.

    Float initializers of one dimension or more become params under their names. Which of them
    train, and whether `Constant` operators do, is decided in `roles.py`, with a warning if it is
    ambiguous; `trainable` sets it by name.

    `training` imports a model that was exported for inference in training mode: batch norm
    normalizes by the batch and updates its running statistics, dropout drops.

    `loss` "cross_entropy" (labels: int64; logits or probabilities) or "mse" adds an input `target`
    for the first output of floats and an output `loss`. `shapes` gives shapes that the file leaves
    open; `constants` the values of inputs that shapes depend on.

    A quantized model (QDQ pairs, QLinearConv, QLinearMatMul) is imported with the real values of
    its integers; with `integers`, activations are rounded and weights stored as in the model.

    Equal weights that an exporter plainly merged are taken apart (untie.py). Warns of those that it
    may have merged, and of what it folded, which train unlike the model's own. Raises
    ImportModelError naming everything that cannot be imported, with its place.
    """
    _check_loss(loss)
    _need_onnx("from_onnx")
    from pockengine.frontends.onnx.graph import Choices

    choices = Choices(training, shapes or {}, constants or {}, trainable or {})
    return _imported(model, choices, loss, integers)


def _imported(
    model: "str | Path | onnx.ModelProto", choices: "Choices", loss: str | None, integers: bool
) -> Graph:
    from pockengine.frontends.integer_weights import store_integers
    from pockengine.frontends.onnx.dynamic import with_real_products
    from pockengine.frontends.onnx.file import read_model
    from pockengine.frontends.onnx.graph import import_graph
    from pockengine.frontends.onnx.older import written_anew
    from pockengine.frontends.onnx.quantized import as_real
    from pockengine.frontends.onnx.rewrites import warn_of_rewrites
    from pockengine.frontends.onnx.untie import untie

    proto, folder = read_model(model)
    _check_opset(proto)
    proto = with_real_products(untie(written_anew(proto), folder))
    proto, integer_weights = as_real(proto, folder, integers)
    g, outputs = import_graph(proto, folder, choices)
    if loss is None:
        outputs = with_loss_named(outputs, is_loss)
    else:
        add_loss(g, _scores(outputs), loss)
    for name, tensor in outputs.items():
        g.output(name, tensor.value)
    recognize(g.graph)
    store_integers(g.graph, integer_weights, integers)
    warn_of_rewrites(g.graph, proto)
    return g.graph


def _scores(outputs: "Mapping[str, Tensor]") -> "Tensor":
    """Return the operand of a loss: the first float output; scikit-learn has labels before it."""
    floats = [tensor for tensor in outputs.values() if tensor.dtype is F32]
    return next(iter(floats or outputs.values()))


def input_names(model: "str | Path | onnx.ModelProto") -> list[str]:
    """Return the names of a model's inputs in order, without those that have initial values."""
    return [declared.name for declared in declared_inputs(model)]


def declared_inputs(model: "str | Path | onnx.ModelProto") -> tuple[Declared, ...]:
    """Return the declared inputs of a model in order, without those that have initial values."""
    _need_onnx("input_names")
    from onnx import helper

    from pockengine.frontends.onnx.declared import sizes_of
    from pockengine.frontends.onnx.file import read_model

    graph = read_model(model)[0].graph
    initialized = {tensor.name for tensor in graph.initializer}
    inputs = []
    for value in graph.input:
        if value.name not in initialized:
            tensor = value.type.tensor_type
            sizes = sizes_of(tensor)
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            inputs.append(Declared(value.name, tuple(sizes), dtype))
    return tuple(inputs)


def to_initializers(
    model: "str | Path | onnx.ModelProto", graph: Graph, values: Mapping[str, np.ndarray]
) -> "onnx.ModelProto":
    """Return a copy of the model with the weights of these names replaced by tuned ones.

    They are initializers, or attributes where linear models of scikit-learn have them. The copy
    includes external data: save a copy of more than 2 GB with `onnx.save(...,
    save_as_external_data=True)`.

    `values` maps some or all names to arrays of the compiled program. Names without a weight in the
    model (optimizer states) are ignored. Raises ImportModelError for a shape that is not the
    graph's.
    """
    _need_onnx("to_initializers")
    from onnx import ModelProto

    from pockengine.frontends.onnx.file import read_model
    from pockengine.frontends.onnx.untie import untie
    from pockengine.frontends.onnx.weights import write_weights

    proto, folder = read_model(model)
    tuned = ModelProto()
    tuned.CopyFrom(untie(proto, folder))
    write_weights(tuned.graph, folder, graph, values)
    return tuned


def _check_loss(loss: str | None) -> None:
    if loss is not None and loss not in LOSSES:
        raise ImportModelError(f"unknown loss {loss!r}; known are {', '.join(LOSSES)}")


def _need_onnx(caller: str) -> None:
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ImportModelError(
            f"{caller} needs the package onnx, which is not installed; install it with "
            "`pip install onnx` (1.16 or newer)"
        ) from error


def _check_opset(proto: "onnx.ModelProto") -> None:
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < OLDEST_OPSET:
            raise ImportModelError(
                f"the ONNX model {proto.graph.name!r} is of opset {entry.version}; "
                f"{OLDEST_OPSET} is the oldest that is read: convert it with "
                "onnx.version_converter, or export it again"
            )

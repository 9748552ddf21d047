"""Import a model: trace it, walk it, name the results, add the loss."""

from collections.abc import Mapping
from types import NoneType
from typing import Any

import numpy as np
import tensorflow as tf

from pockengine.compiler.ir import I32, DType, Graph, TensorType
from pockengine.compiler.ir.graph import LOSS
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.errors import ImportModelError
from pockengine.frontends import emit
from pockengine.frontends.dtypes import dtype_of
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.idioms import recognize
from pockengine.frontends.layout import Tensor, framework_order, plain
from pockengine.frontends.losses import LOSSES, TARGET, add_loss, is_loss
from pockengine.frontends.tensorflow.graph import Importer, library_of
from pockengine.frontends.tensorflow.losses import loss_of
from pockengine.frontends.tensorflow.ops import Known, Opaque
from pockengine.frontends.tensorflow.own_gradient import check_model
from pockengine.frontends.tensorflow.trace import (
    Arguments,
    TracedModel,
    TraceSubject,
    arguments_of,
    subject_of,
    trace,
)
from pockengine.frontends.tensorflow.variables import (
    RESERVED,
    import_variable,
    named_variables,
    uses_of,
)

PENALTY = "penalty"


def import_subject(model: Any, example_inputs: Any, loss: Any, training: bool) -> Graph:
    """Build the graph; ImportModelError lists everything that has no equivalent."""
    subject = subject_of(model, training)
    arguments = arguments_of(subject, example_inputs)
    _build_weights(subject, arguments)
    if subject.model is not None and training:
        check_model(subject.model, loss)
    shared = loss if isinstance(loss, str) and loss in LOSSES else None
    if not shared and not isinstance(loss, (list, tuple, Mapping, NoneType)):
        loss_of(loss)  # an invalid loss is reported before the model is traced
    traced = trace(subject, arguments, None if shared else loss)
    importer = Importer(subject.name, library_of(traced.concrete.graph), _layers(subject))
    sources = _sources(importer, subject, arguments, traced)
    for name, target in traced.targets.items():
        importer.placeholders[target.op.name] = _input(importer, name, target)
    results = importer.run(traced.concrete.graph, sources, "")
    outputs = {
        name: tensor
        for name, value in zip(traced.outputs, results, strict=True)
        if (tensor := importer.output(name, value)) is not None
    }
    importer.problems.check(subject.name)
    return _finish(importer, outputs, shared)


def _finish(importer: Importer, outputs: dict[str, Tensor], shared: str | None) -> Graph:
    """Name the outputs, add the loss, and tidy up."""
    g = importer.g
    penalty = outputs.pop(PENALTY, None)
    if not outputs:
        raise ImportModelError(f"{g.graph.name} returns no tensor; return what is to be computed")
    if list(outputs) == ["output"] and is_loss(outputs["output"]) and shared is None:
        outputs = {LOSS: outputs["output"]}
    importer.write_states()
    if shared is not None:
        add_loss(g, next(iter(outputs.values())), shared)
    importer.name_outputs(outputs)
    if penalty is not None and LOSS in g.graph.outputs:
        total = g.add(g.graph.outputs[LOSS], framework_order(g, penalty))
        g.graph.outputs[LOSS] = total
    recognize(g.graph)
    DeadCode().run(g.graph)
    return g.graph


def _build_weights(subject: TraceSubject, arguments: Arguments) -> None:
    """Run a Keras model that has no weights yet once, to create them."""
    model = subject.model
    if model is not None and not model.built:
        try:
            arguments.passed(subject, [tf.constant(array) for array in arguments.arrays])
        except Exception as error:  # whatever the model's own code raises
            raise ImportModelError(
                f"{subject.name} does not run on the example inputs: {error}"
            ) from error


def _layers(subject: TraceSubject) -> set[str]:
    if subject.model is None:
        return set()
    return {str(layer.name) for layer in subject.model._flatten_layers()}


def _sources(
    importer: Importer, subject: TraceSubject, arguments: Arguments, traced: TracedModel
) -> list[Known]:
    """Declare inputs and variables; return the value of each input of the traced function."""
    graph = traced.concrete.graph
    names = list(arguments.names)
    captures = {inner.name: outer for outer, inner in graph.captures}
    variables = _by_handle(subject, traced.concrete)
    may_write = importer.library.has_writes()
    sources: list[Known] = []
    for source in graph.inputs:
        outer = captures.get(source.name)
        if outer is None:
            sources.append(_input(importer, names.pop(0), source))
        elif outer.dtype == tf.resource:
            variable = variables.get(id(outer))
            sources.append(
                Opaque("it reads a resource that is no variable, such as a table or an iterator")
                if variable is None
                else import_variable(*variable, uses_of(source, may_write))
            )
        else:
            sources.append(np.asarray(outer.numpy()))
    return sources


def _by_handle(subject: TraceSubject, concrete: Any) -> dict[int, tuple[str, Any]]:
    """Return name and variable by the identity of the variable's handle."""
    named = named_variables([*subject.variables, *_others(subject, concrete)])
    return {id(_handle(variable)): (name, variable) for name, variable in named.items()}


def _others(subject: TraceSubject, concrete: Any) -> list[Any]:
    """Return the variables that the function captures in addition to the subject's own."""
    known = {id(_handle(variable)) for variable in subject.variables}
    captured = {id(outer): index for index, (outer, _) in enumerate(concrete.graph.captures)}
    others = [v for v in concrete.variables if id(_handle(v)) not in known]
    return sorted(others, key=lambda v: captured.get(id(_handle(v)), len(captured)))


def _handle(variable: Any) -> Any:
    """Return the resource of TensorFlow's variable, which is the value of a Keras variable."""
    inner = getattr(variable, "value", variable)
    return inner.handle if hasattr(inner, "handle") else variable.handle


def _input(importer: Importer, name: str, source: Any) -> Known:
    with importer.noting(f"input {name}", ""):
        if name in RESERVED - {TARGET}:
            raise Unsupported("the training step has an input of this name; rename the model's")
        shape, numpy = tuple(source.shape.as_list()), source.dtype.as_numpy_dtype
        if numpy == np.uint8:  # ops compute with integers of 32 bits
            stored = plain(importer.g.input(name, TensorType(DType.U8, shape)))
            return emit.cast(importer.g, stored, I32)
        return plain(importer.g.input(name, TensorType(dtype_of(np.empty(0, numpy)), shape)))
    return Opaque()

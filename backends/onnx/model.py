"""Write a planned program as ONNX models, one per entry; `bindings.py` lists the other files."""

from collections.abc import Mapping
from pathlib import Path

import onnx

from pockengine.backends.onnx.bindings import CONSTANTS, model_name
from pockengine.backends.onnx.forms import FORMS
from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.tensors import Tensors
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.bindings import Bindings, Frozen, write_bindings
from pockengine.compiler.index_ranges import index_ranges
from pockengine.compiler.program import Entry, Program
from pockengine.errors import CompileError


def write_models(program: Program, folder: Path, forms: Mapping[str, Form] = FORMS) -> None:
    """Write a program's models into a folder; CompileError if ONNX's checker refuses one."""
    tensors = Tensors(folder / CONSTANTS)
    for name, entry in program.entries.items():
        _save(_model(program, entry, tensors, forms), folder / model_name(name))
    tensors.close()
    for name in program.entries:
        _check(folder / model_name(name))
    write_bindings(_bindings(program, tensors), folder)


def _model(
    program: Program, entry: Entry, tensors: Tensors, forms: Mapping[str, Form]
) -> onnx.ModelProto:
    writer = EntryWriter(entry.graph, tensors)
    for node in entry.graph.nodes:
        if node in writer.unchanged:
            writer.share(node.result, writer.unchanged[node])
        elif node not in writer.done:
            writer.begin(node)
            forms[node.op](writer, node)
    return writer.model(f"{program.name}.{entry.name}")


def _serialized(model: onnx.ModelProto) -> bytes:
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _save(model: onnx.ModelProto, path: Path) -> None:
    try:
        path.write_bytes(_serialized(model))
    except ValueError as error:  # protobuf's error for more than 2 GiB
        raise CompileError(
            f"{path.name} is too large for ONNX, although its constants lie outside: {error}; "
            "use a smaller batch or fewer layers"
        ) from error


def _check(path: Path) -> None:
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise CompileError(f"{path.name}: ONNX's checker says {error}") from error


def _bindings(program: Program, tensors: Tensors) -> Bindings:
    frozen = {
        name: tuple(Frozen(layout, place.start) for layout, place in places.items())
        for name, places in tensors.frozen.items()
    }
    ranges = {name: tuple(index_ranges(entry.graph)) for name, entry in program.entries.items()}
    return Bindings(tensors.layouts, frozen, ranges)

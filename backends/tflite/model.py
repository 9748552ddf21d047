"""Write a planned program as one TFLite file; `names.py` lists the other files.

Subgraphs are the entries, then save, restore and configure, then the initializer, which every other
calls once first: it assigns the initial contents to each variable.
"""

import json
from pathlib import Path

from flatbuffers.builder import BuilderSizeError

from pockengine.backends.runtimes.bindings import Bindings, Frozen, write_bindings
from pockengine.backends.runtimes.layout import between, canonical, laid_out
from pockengine.backends.tflite.controls import FIRST, variable_of
from pockengine.backends.tflite.flat import FlatWriter
from pockengine.backends.tflite.forms import FORMS
from pockengine.backends.tflite.kinds import KINDS
from pockengine.backends.tflite.names import CONFIGURE, MODEL, NODES, RESTORE, SAVE, signature_of
from pockengine.backends.tflite.parts import LiteSignature
from pockengine.backends.tflite.shared import Shared, laid_out_data
from pockengine.backends.tflite.subgraph import SubgraphWriter
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.controls import CONTROLS
from pockengine.compiler.index_ranges import index_ranges
from pockengine.compiler.program import Entry, Program
from pockengine.errors import CompileError

INITIALIZE = "initialize"
"""The subgraph without a signature."""


class _File:
    """A program's subgraphs and signatures, while they are written."""

    def __init__(self, program: Program) -> None:
        self.program, self.shared = program, Shared()
        self.writers: list[SubgraphWriter] = []
        self.signatures: list[LiteSignature] = []
        self.last = len(program.entries) + 3
        for entry in program.entries.values():
            self._entry(entry)
        self._params = {name: program.params[name] for name in self.shared.written}
        self._save()
        self._restore()
        self._configure()
        self._initialize()

    def _entry(self, entry: Entry) -> None:
        writer = EntryWriter(entry.name, entry.graph, self.shared, self.last)
        for node in entry.graph.nodes:
            writer.begin(node)
            FORMS[node.op](writer, node)
        self._sign(signature_of(entry.name), writer, writer.inputs, writer.results())

    def _save(self) -> None:
        """Return each variable, in our order of dimensions."""
        writer = self._begun(SAVE)
        outputs = {}
        for name, param in self._params.items():
            layout = self.shared.written[name]
            shape = laid_out(param.value.shape, layout)
            tensor = writer.variable(name, KINDS[param.value.dtype], shape)
            outputs[name] = writer.transpose(tensor, between(layout, canonical(len(layout))))
        self._sign(SAVE, writer, {}, writer.outputs(outputs))

    def _restore(self) -> None:
        """Assign the values returned by `save`."""
        writer = self._begun(RESTORE)
        inputs = {}
        for name, param in self._params.items():
            tensor = writer.input(name, KINDS[param.value.dtype], param.value.shape)
            inputs[name] = tensor.number
            writer.assign(name, writer.transpose(tensor, self.shared.written[name]))
        self._sign(RESTORE, writer, inputs, {})

    def _configure(self) -> None:
        writer = self._begun(CONFIGURE)
        inputs = {}
        for name, dtype in CONTROLS.items():
            tensor = writer.input(name, KINDS[dtype], ())
            inputs[name] = tensor.number
            writer.assign(variable_of(name), tensor)
        self._sign(CONFIGURE, writer, inputs, {})

    def _initialize(self) -> None:
        writer = SubgraphWriter(INITIALIZE, self.shared)
        for name, param in self._params.items():
            contents = laid_out_data(param, self.shared.written[name])
            tensor = writer.shared_tensor(contents, contents.shape, KINDS[param.value.dtype])
            writer.assign(name, tensor)
        for name, number in FIRST.items():
            writer.assign(variable_of(name), writer.constant(number))
        self.writers.append(writer)

    def _begun(self, name: str) -> SubgraphWriter:
        writer = SubgraphWriter(name, self.shared)
        writer.call_once(self.last)
        return writer

    def _sign(
        self, key: str, writer: SubgraphWriter, inputs: dict[str, int], outputs: dict[str, int]
    ) -> None:
        self.signatures.append(LiteSignature(key, len(self.writers), inputs, outputs))
        self.writers.append(writer)


def write_model(program: Program, folder: Path) -> None:
    """Write a program's file into a folder; CompileError if it exceeds 2 GiB."""
    file, flat = _File(program), FlatWriter()
    subgraphs = [writer.subgraph for writer in file.writers]
    try:
        written = flat.file(program.name, subgraphs, file.signatures)
    except (BuilderSizeError, ValueError) as error:
        raise CompileError(
            f"{program.name} is too large for TFLite, whose files have at most 2 GiB: {error}; "
            "store frozen weights in fewer bits, or choose another backend"
        ) from error
    (folder / MODEL).write_bytes(written)
    nodes = {
        writer.subgraph.name: [
            [operator.op, label]
            for operator, label in zip(writer.subgraph.operators, writer.nodes, strict=True)
        ]
        for writer in file.writers
    }
    (folder / NODES).write_text(json.dumps(nodes, indent=0) + "\n", encoding="utf-8")
    frozen: dict[str, tuple[Frozen, ...]] = {}
    for (name, layout), data in file.shared.frozen.items():
        frozen[name] = (*frozen.get(name, ()), Frozen(layout, flat.place(data)))
    ranges = {name: tuple(index_ranges(entry.graph)) for name, entry in program.entries.items()}
    write_bindings(Bindings(file.shared.written, frozen, ranges), folder)
